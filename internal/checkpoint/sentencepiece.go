package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"anemone/internal/tokenizer/vocab"
)

const sentencePieceFile = "tokenizer.model"

// useSentencePiece lets a tokenizer.model stand for the tokenizer.json that
// the folder does not have.
func (c *Checkpoint) useSentencePiece() {
	f := &c.files
	if f.real("tokenizer.json") || !f.real(sentencePieceFile) {
		return
	}
	f.tokenizer = sync.OnceValues(func() (map[string][]byte, error) {
		v, err := c.sentencePiece()
		if err != nil {
			return nil, err
		}
		made, err := madeTokenizer(v, "")
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.path(sentencePieceFile), err)
		}
		return made, nil
	})
}

// addedToken is an entry of added_tokens_decoder.
type addedToken struct {
	Content string `json:"content"`
	Special bool   `json:"special"`
}

// sentencePiece reads tokenizer.model and what tokenizer_config.json and
// added_tokens.json say beyond it.
func (c *Checkpoint) sentencePiece() (*vocab.Vocabulary, error) {
	// Only files of the folder: asking for made ones would ask for what is
	// being made here.
	read := func(name string) ([]byte, error) { return readFile(filepath.Join(c.Dir, name), maxFile) }
	data, err := read(sentencePieceFile)
	if err != nil {
		return nil, err
	}
	v, err := vocab.ReadSentencePiece(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Dir, err) // it says that it is tokenizer.model
	}
	var added map[string]int
	const addedFile = "added_tokens.json"
	if data, err := read(addedFile); err == nil {
		if err := json.Unmarshal(data, &added); err != nil {
			return nil, fmt.Errorf("%s: want a JSON object from tokens to ids: %w", c.files.path(addedFile), err)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	config, err := c.tokenizerConfig()
	if err != nil {
		return nil, err
	}
	if err := complete(v, config, added); err != nil {
		return nil, err
	}
	return v, nil
}

// complete adds to a vocabulary what tokenizer_config.json and
// added_tokens.json, a map from texts to ids, say beyond it.
func complete(v *vocab.Vocabulary, config *Config, more map[string]int) error {
	added := map[int]addedToken{}
	for text, id := range more {
		if t, ok := added[id]; !ok || text < t.Content {
			added[id] = addedToken{Content: text}
		}
	}
	if config.Has("added_tokens_decoder") {
		list, err := config.Object("added_tokens_decoder")
		if err != nil {
			return err
		}
		for _, key := range list.Keys() {
			var t addedToken
			id, err := strconv.Atoi(key)
			if err == nil {
				err = json.Unmarshal(list.get(key), &t)
			}
			if err != nil {
				return list.found(key, list.get(key), "an added token under its id")
			}
			added[id] = t
		}
	}
	for _, id := range slices.Sorted(maps.Keys(added)) {
		t := added[id]
		switch {
		case id < 0 || id > len(v.Tokens):
			return fmt.Errorf("%s: added token %q has id %d, want one of the %d before it or the next", config.File(), t.Content, id, len(v.Tokens))
		case id == len(v.Tokens):
			v.Tokens = append(v.Tokens, vocab.Token{})
		}
		v.Tokens[id].Text = t.Content
		switch {
		case v.Tokens[id].Kind == vocab.Unknown: // stays what it is
		case t.Special:
			v.Tokens[id].Kind = vocab.Control
		default:
			v.Tokens[id].Kind = vocab.UserDefined
		}
	}
	for _, s := range []struct {
		key string
		to  *int
	}{{"bos_token", &v.BOS}, {"eos_token", &v.EOS}, {"unk_token", &v.Unknown}, {"pad_token", &v.Padding}} {
		text := tokenText(config, s.key)
		if i := slices.IndexFunc(v.Tokens, func(t vocab.Token) bool { return t.Text == text }); text != "" && i >= 0 {
			*s.to = i
		}
	}
	// The classes of Llama and Gemma begin a text with a token unless they are
	// told not to. Others that use SentencePiece are not known to.
	class, err := config.StringOr("tokenizer_class", "LlamaTokenizer")
	if err != nil {
		return err
	}
	begins := strings.HasPrefix(class, "Llama") || strings.HasPrefix(class, "Gemma") || strings.HasPrefix(class, "CodeLlama")
	if v.AddBOS, err = config.BoolOr("add_bos_token", begins && v.BOS >= 0); err != nil {
		return err
	}
	v.AddEOS, err = config.BoolOr("add_eos_token", false)
	return err
}

// tokenizerConfig reads tokenizer_config.json, an empty object if there is
// none.
func (c *Checkpoint) tokenizerConfig() (*Config, error) {
	const name = "tokenizer_config.json"
	if !c.files.real(name) {
		return &Config{file: c.files.path(sentencePieceFile)}, nil
	}
	path := filepath.Join(c.Dir, name)
	data, err := readFile(path, maxFile)
	if err != nil {
		return nil, err
	}
	return ParseConfig(path, data)
}

// tokenText returns the text of a special token, which is a string or an
// object of an added token; "" if there is none.
func tokenText(c *Config, key string) string {
	if o, ok := c.Sub(key); ok {
		c, key = o, "content"
	}
	s, _ := c.String(key)
	return s
}
