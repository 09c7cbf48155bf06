package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
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
	data, err := c.files.read(sentencePieceFile, maxFile)
	if err != nil {
		return nil, err
	}
	v, err := vocab.ReadSentencePiece(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.files.path(sentencePieceFile), err)
	}
	added := map[int]addedToken{}
	if data, err := c.files.read("added_tokens.json", maxFile); err == nil {
		var ids map[string]int
		if err := json.Unmarshal(data, &ids); err != nil {
			return nil, fmt.Errorf("%s: want a JSON object from tokens to ids: %w", c.files.path("added_tokens.json"), err)
		}
		for text, id := range ids {
			added[id] = addedToken{Content: text}
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	config, err := c.tokenizerConfig()
	if err != nil {
		return nil, err
	}
	if config.Has("added_tokens_decoder") {
		list, err := config.Object("added_tokens_decoder")
		if err != nil {
			return nil, err
		}
		for _, key := range list.Keys() {
			var t addedToken
			id, err := strconv.Atoi(key)
			if err == nil {
				err = json.Unmarshal(list.get(key), &t)
			}
			if err != nil {
				return nil, list.found(key, list.get(key), "an added token under its id")
			}
			added[id] = t
		}
	}
	for _, id := range slices.Sorted(maps.Keys(added)) {
		t := added[id]
		switch {
		case id < 0 || id > len(v.Tokens):
			return nil, fmt.Errorf("%s: added token %q has id %d, want one below or next to those of the %d tokens of %s", config.File(), t.Content, id, len(v.Tokens), sentencePieceFile)
		case id == len(v.Tokens):
			v.Tokens = append(v.Tokens, vocab.Token{})
		}
		v.Tokens[id].Text, v.Tokens[id].Kind = t.Content, vocab.UserDefined
		if t.Special {
			v.Tokens[id].Kind = vocab.Control
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
	// The classes of Llama and Gemma begin a text with the token unless told not
	// to; others that use SentencePiece end it with one, and do neither here.
	class, err := config.StringOr("tokenizer_class", "LlamaTokenizer")
	if err != nil {
		return nil, err
	}
	begins := strings.HasPrefix(class, "Llama") || strings.HasPrefix(class, "Gemma") || strings.HasPrefix(class, "CodeLlama")
	if v.AddBOS, err = config.BoolOr("add_bos_token", begins && v.BOS >= 0); err != nil {
		return nil, err
	}
	if v.AddEOS, err = config.BoolOr("add_eos_token", false); err != nil {
		return nil, err
	}
	return v, nil
}

// tokenizerConfig reads tokenizer_config.json, an empty object if there is
// none.
func (c *Checkpoint) tokenizerConfig() (*Config, error) {
	const name = "tokenizer_config.json"
	if !c.files.real(name) {
		return &Config{file: c.files.path(sentencePieceFile)}, nil
	}
	data, err := c.files.read(name, maxFile)
	if err != nil {
		return nil, err
	}
	return ParseConfig(c.files.path(name), data)
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
