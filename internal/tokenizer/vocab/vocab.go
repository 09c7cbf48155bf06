package vocab

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// Kind says what a token is for. The numbers are those of GGUF's
// tokenizer.ggml.token_type and of the piece types of SentencePiece.
type Kind uint8

const (
	Normal      Kind = 1 // text
	Unknown     Kind = 2 // stands for what the vocabulary lacks
	Control     Kind = 3 // structure, such as "<s>": never made from text
	UserDefined Kind = 4 // text that is always one token
	Unused      Kind = 5 // a place held free
	Byte        Kind = 6 // "<0x41>": one byte
)

// Token is one entry of a vocabulary; its place is its id.
type Token struct {
	// Text is spelled in GPT-2's alphabet of bytes in "gpt2" models, and with "▁"
	// for a space in the others.
	Text  string
	Score float32 // "llama": larger merges first; "unigram": logarithm of the probability
	Kind  Kind
}

// Vocabulary is a raw vocabulary and what its source says about its use. In
// parentheses are the names that GGUF's metadata has for the fields, all after
// "tokenizer.ggml.".
type Vocabulary struct {
	// Model is how tokens are found (model): "gpt2", byte-level byte pair
	// encoding with merges; "llama", SentencePiece's byte pair encoding by scores;
	// "unigram" (in GGUF also "t5"), SentencePiece's unigram model.
	Model string
	// Pre names the pre-tokenizer of a "gpt2" model (pre): one of
	// PreTokenizers. The others do without.
	Pre string

	Tokens []Token  // tokens, scores, token_type
	Merges []string // merges, "a b", the first one first; only for "gpt2"

	// Ids, -1 for none (bos_token_id, eos_token_id, unknown_token_id,
	// padding_token_id).
	BOS, EOS, Unknown, Padding int

	AddBOS, AddEOS bool // add_bos_token, add_eos_token
	// AddSpacePrefix puts a space before a text (add_space_prefix; in
	// SentencePiece add_dummy_prefix).
	AddSpacePrefix bool
	// RemoveExtraSpaces drops spaces at both ends of a text and makes one of
	// several (remove_extra_whitespaces).
	RemoveExtraSpaces bool
	// CharsMap is SentencePiece's compiled normalization
	// (precompiled_charsmap), empty for none.
	CharsMap []byte

	// MaxLength is the longest text in tokens, for tokenizer_config.json; 0 if
	// it is not known.
	MaxLength int
}

// Defaults returns what a GGUF file means that names a tokenizer model and a
// pre-tokenizer and nothing else: each key that the file has replaces a field. The
// values are llama.cpp's, but for the ids of "gpt2", where it takes those of one
// early model.
func Defaults(model, pre string) *Vocabulary {
	v := &Vocabulary{Model: model, Pre: pre, BOS: -1, EOS: -1, Unknown: -1, Padding: -1}
	switch model {
	case "llama":
		v.BOS, v.EOS, v.Unknown = 1, 2, 0
		v.AddSpacePrefix, v.AddBOS = true, true
	case "unigram", "t5":
		v.EOS, v.Unknown, v.Padding = 1, 2, 0
		v.AddSpacePrefix, v.AddEOS = true, true
	case "gpt2":
		v.AddBOS = preTokenizers[pre].addBOS
	}
	return v
}

// What a vocabulary may hold; package tokenizer has the same bounds.
const (
	maxTokens      = 1 << 20
	maxTokenLength = 1 << 16 // bytes
	maxSought      = 1 << 9  // bytes of a token that is looked for at every place of a text
	maxMerges      = 1 << 20
	// maxMergedLength bounds the tokens, in bytes, that are made from two others
	// by score, all of whose splits are looked up. SentencePiece makes none of more
	// than 16 characters unless told to.
	maxMergedLength = 256
	// maxMergeWork bounds the search for merges, which for each token looks at as
	// many pairs of its parts as it has bytes: the sum of the squared lengths. It
	// is about a second; Gemma 3's 262144 tokens come to a fortieth of it.
	maxMergeWork = 1 << 30
	// maxText bounds all tokens together, and all merges, in bytes. The largest
	// vocabularies have some two million, and control characters take six times as many in JSON.
	maxText     = 1 << 25
	maxAdded    = 1 << 16 // special and user-defined tokens
	maxCharsMap = 750_000 // bytes; NFKC with lower case has 247 thousand
)

// check refuses what no tokenizer.json can be made of.
func (v *Vocabulary) check() error {
	if len(v.Tokens) == 0 {
		return fmt.Errorf("vocab: no tokens")
	}
	if len(v.Tokens) > maxTokens {
		return fmt.Errorf("vocab: %d tokens: more than %d are not accepted", len(v.Tokens), maxTokens)
	}
	if len(v.CharsMap) > maxCharsMap {
		return fmt.Errorf("vocab: precompiled charsmap of %d bytes: more than %d are not accepted", len(v.CharsMap), maxCharsMap)
	}
	added, text := 0, 0
	for i, t := range v.Tokens {
		if t.Kind == Control || t.Kind == UserDefined {
			added++
		}
		text += len(t.Text)
		switch {
		case text > maxText:
			return fmt.Errorf("vocab: tokens of more than %d bytes in all are not accepted", maxText)
		case len(v.text(i)) > maxSought && (v.unigram() || v.added(i)):
			return fmt.Errorf("vocab: token %d has %d bytes: more than %d are not accepted of a token that is looked for at every place of a text", i, len(v.text(i)), maxSought)
		case added > maxAdded:
			return fmt.Errorf("vocab: more than %d control and user-defined tokens", maxAdded)
		case len(t.Text) > maxTokenLength:
			return fmt.Errorf("vocab: token %d has %d bytes: more than %d are not accepted", i, len(t.Text), maxTokenLength)
		case !utf8.ValidString(t.Text):
			return fmt.Errorf("vocab: token %d, %.100q, is not UTF-8", i, t.Text)
		case t.Kind < Normal || t.Kind > Byte:
			return fmt.Errorf("vocab: token %d, %.100q, is of kind %d; want 1 (normal) to 6 (byte)", i, t.Text, t.Kind)
		case math.IsNaN(float64(t.Score)) || math.IsInf(float64(t.Score), 0):
			return fmt.Errorf("vocab: token %d, %.100q, has score %v; want a number", i, t.Text, t.Score)
		}
	}
	text = 0
	for _, m := range v.Merges {
		if text += len(m); text > maxText {
			return fmt.Errorf("vocab: merges of more than %d bytes in all are not accepted", maxText)
		}
	}
	for _, s := range []struct {
		name string
		id   int
		need bool
	}{
		{"BOS", v.BOS, v.AddBOS}, {"EOS", v.EOS, v.AddEOS}, {"unknown", v.Unknown, v.unigram()}, {"padding", v.Padding, false},
	} {
		if s.id >= len(v.Tokens) || s.id < -1 {
			return fmt.Errorf("vocab: the %s token is %d of %d tokens", s.name, s.id, len(v.Tokens))
		}
		if s.need && s.id < 0 {
			return fmt.Errorf("vocab: the %s token is needed, and there is none", s.name)
		}
	}
	return nil
}

func (v *Vocabulary) unigram() bool { return v.Model == "unigram" || v.Model == "t5" }

// text is a token as tokenizer.json spells it. GGUF writes the spaces of
// user-defined tokens as they are.
func (v *Vocabulary) text(id int) string {
	t := v.Tokens[id]
	if v.Model != "gpt2" && t.Kind == UserDefined {
		return strings.ReplaceAll(t.Text, " ", space)
	}
	return t.Text
}

// space is how SentencePiece spells a space.
const space = "▁"
