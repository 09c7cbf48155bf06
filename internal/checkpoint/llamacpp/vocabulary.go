package llamacpp

import (
	"fmt"
	"math"
	"slices"

	"anemone/internal/checkpoint/gguf"
	"anemone/internal/tokenizer/vocab"
)

const tokenizerKeys = "tokenizer.ggml."

// id returns the id of a special token, -1 if the file names none. Converters
// write -1 or the largest number for that, too.
func (r *reader) id(name string) int {
	key := tokenizerKeys + name
	if !r.f.Has(key) {
		return -1
	}
	n := r.int(key, -1, math.MaxUint32)
	if n == math.MaxUint32 {
		return -1
	}
	return n
}

// special returns the id of a special token, checked against the number of
// rows of the embedding; -1 if the file names none.
func (r *reader) special(name string, rows int) int {
	n := r.id(name)
	if n >= rows {
		r.bad(tokenizerKeys+name, n, fmt.Sprintf("one of the %d tokens", rows))
		return -1
	}
	return n
}

// tokens adds the special tokens to config.json, and to generation_config.json
// those that it has. There, more than one token may end a text.
func (r *reader) tokens(config, generation object) {
	if r.err != nil {
		return
	}
	rows := config["vocab_size"].(int)
	for _, key := range []struct {
		name, hf   string
		generation bool
	}{{"bos_token_id", "bos_token_id", true}, {"eos_token_id", "eos_token_id", false}, {"unknown_token_id", "unk_token_id", false}, {"padding_token_id", "pad_token_id", true}} {
		n := r.special(key.name, rows)
		if n < 0 {
			continue
		}
		config[key.hf] = n
		if key.generation {
			generation[key.hf] = n
		}
	}
	var eos []int
	for _, name := range []string{"eos_token_id", "eot_token_id", "eom_token_id"} {
		if n := r.special(name, rows); n >= 0 && !slices.Contains(eos, n) {
			eos = append(eos, n)
		}
	}
	switch len(eos) {
	case 0:
	case 1:
		generation["eos_token_id"] = eos[0]
	default:
		generation["eos_token_id"] = eos
	}
}

// sampling adds what the model's makers recommend to generation_config.json,
// if the file has it.
func (r *reader) sampling(generation object) {
	const prefix = "general.sampling."
	greedy := false
	for _, key := range []struct{ name, hf string }{
		{"temp", "temperature"}, {"top_p", "top_p"}, {"min_p", "min_p"}, {"penalty_repeat", "repetition_penalty"},
	} {
		if !r.f.Has(prefix + key.name) {
			continue
		}
		v, err := r.f.Float(prefix + key.name)
		if err != nil {
			r.fail(err)
			return
		}
		if math.IsNaN(v) || math.IsInf(v, 0) {
			r.bad(prefix+key.name, v, "a finite number")
			return
		}
		if generation["do_sample"] = true; key.name == "temp" && v == 0 {
			greedy = true
			continue
		}
		// As the shortest decimal number that is this float32.
		generation[key.hf] = float32(v)
	}
	if key := prefix + "top_k"; r.f.Has(key) {
		generation["top_k"], generation["do_sample"] = r.int(key, 0, math.MaxInt32), true
	}
	if greedy { // which Hugging Face does not say by a temperature
		generation["do_sample"] = false
	}
}

// Vocabulary reads the vocabulary of a file. The error for a file that has
// none, or not all of one, wraps [gguf.ErrMissing]: texts would have other tokens
// without the merges, scores or kinds.
func Vocabulary(f *gguf.File) (*vocab.Vocabulary, error) {
	r := &reader{f: f}
	v := vocab.Defaults(r.text(tokenizerKeys+"model"), r.textOr(tokenizerKeys+"pre", "default"))
	tokens, err := f.Strings(tokenizerKeys + "tokens")
	if err != nil {
		r.fail(err)
	}
	if embed, ok := f.Lookup("token_embd.weight"); ok && len(embed.Shape) == 2 && len(tokens) > embed.Shape[0] {
		r.bad(tokenizerKeys+"tokens", fmt.Sprintf("%d elements", len(tokens)), fmt.Sprintf("at most %d, the rows of the embedding", embed.Shape[0]))
	}
	var needed []string
	switch v.Model {
	case "gpt2":
		needed = []string{"token_type", "merges"}
	case "llama", "unigram", "t5":
		needed = []string{"token_type", "scores"}
	}
	for _, name := range needed {
		if key := tokenizerKeys + name; !f.Has(key) {
			r.fail(fmt.Errorf("%s: key %q: %w", f.Path(), key, gguf.ErrMissing))
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	v.Tokens = make([]vocab.Token, len(tokens))
	for i, text := range tokens {
		v.Tokens[i] = vocab.Token{Text: text, Kind: vocab.Normal}
	}
	each(r, f.Ints, "token_type", v.Tokens, func(t *vocab.Token, kind int) bool {
		t.Kind = vocab.Kind(kind)
		return int(vocab.Normal) <= kind && kind <= int(vocab.Byte)
	})
	each(r, f.Floats, "scores", v.Tokens, func(t *vocab.Token, score float64) bool {
		t.Score = float32(score)
		return true
	})
	if key := tokenizerKeys + "merges"; f.Has(key) {
		if v.Merges, err = f.Strings(key); err != nil {
			r.fail(err)
		}
	}
	if key := tokenizerKeys + "precompiled_charsmap"; f.Has(key) {
		ints, err := f.Ints(key)
		if err != nil {
			r.fail(err)
		}
		v.CharsMap = make([]byte, len(ints))
		for i, n := range ints {
			if n < -128 || n > 255 { // signed or not
				r.bad(fmt.Sprintf("%s[%d]", key, i), n, "a byte")
			}
			v.CharsMap[i] = byte(n)
		}
	}
	for _, id := range []struct {
		name string
		to   *int
	}{{"bos_token_id", &v.BOS}, {"eos_token_id", &v.EOS}, {"unknown_token_id", &v.Unknown}, {"padding_token_id", &v.Padding}} {
		switch {
		case f.Has(tokenizerKeys + id.name):
			*id.to = r.special(id.name, len(tokens))
		case v.Model == "gpt2" || *id.to >= len(tokens):
			// llama.cpp takes GPT-2's number for a byte-level vocabulary that
			// does not say, which is some word of any other.
			*id.to = -1
		}
	}
	if key := r.textOr("general.architecture", "") + ".context_length"; f.Has(key) {
		v.MaxLength = r.int(key, 1, maxPositions)
	}
	v.AddBOS = r.boolOr(tokenizerKeys+"add_bos_token", v.AddBOS && v.BOS >= 0)
	v.AddEOS = r.boolOr(tokenizerKeys+"add_eos_token", v.AddEOS && v.EOS >= 0)
	v.AddSpacePrefix = r.boolOr(tokenizerKeys+"add_space_prefix", v.AddSpacePrefix)
	v.RemoveExtraSpaces = r.boolOr(tokenizerKeys+"remove_extra_whitespaces", v.RemoveExtraSpaces)
	if r.err != nil {
		return nil, r.err
	}
	return v, nil
}

// each sets something of every token to the elements of an array, if the file
// has it; set reports whether the value is one that may be.
func each[T any](r *reader, read func(string) ([]T, error), name string, tokens []vocab.Token, set func(*vocab.Token, T) bool) {
	key := tokenizerKeys + name
	if !r.f.Has(key) {
		return
	}
	values, err := read(key)
	switch {
	case err != nil:
		r.fail(err)
	case len(values) != len(tokens):
		r.bad(key, fmt.Sprintf("%d elements", len(values)), fmt.Sprintf("%d, one for each token", len(tokens)))
	default:
		for i, v := range values {
			if !set(&tokens[i], v) {
				r.bad(fmt.Sprintf("%s[%d]", key, i), v, "1 to 6")
				return
			}
		}
	}
}
