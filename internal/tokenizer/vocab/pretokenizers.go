package vocab

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// preTokenizer is what GGUF's name for a pre-tokenizer stands for: the parts of
// the tokenizer.json that the name was given to.
type preTokenizer struct {
	split        []string // regular expressions that split the text, one after the other
	digits       bool     // every digit is apart, before the expressions
	gpt2         bool     // the expression of ByteLevel itself, after the others
	nfc          bool     // Unicode normalization form C
	ignoreMerges bool     // a piece that is a token is that token, merges or not
	addBOS       bool     // the default of add_bos_token
}

// Regular expressions as the tokenizer.json of these models have them.
const (
	words       = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|`
	rest        = `| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	splitLlama3 = words + `\p{N}{1,3}` + rest
	splitQwen2  = words + `\p{N}` + rest
	splitQwen35 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	splitTekken = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	splitGPT2   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
)

var preTokenizers = func() map[string]preTokenizer {
	llama3 := preTokenizer{split: []string{splitLlama3}, ignoreMerges: true, addBOS: true}
	digits := preTokenizer{digits: true, gpt2: true}
	return map[string]preTokenizer{
		// What the maker of a file writes who does not know: punctuation,
		// GPT-2's words, numbers by three digits.
		"default":   {split: []string{`[\p{P}\$\+<=>\^~\|]+`, splitGPT2, `\p{N}+`, `[0-9][0-9][0-9]`}},
		"gpt-2":     {gpt2: true},
		"phi-2":     {gpt2: true},
		"llama-bpe": llama3,
		"llama3":    llama3,
		"llama-v3":  llama3,
		"qwen2":     {split: []string{splitQwen2}, nfc: true},
		"qwen35":    {split: []string{splitQwen35}, nfc: true},
		"smollm":    digits,
		"starcoder": digits,
		"tekken":    {split: []string{splitTekken}, ignoreMerges: true, addBOS: true},
	}
}()

// PreTokenizers lists the values of Vocabulary.Pre that are known, sorted.
func PreTokenizers() []string { return slices.Sorted(maps.Keys(preTokenizers)) }

func (v *Vocabulary) preTokenizer() (preTokenizer, error) {
	p, ok := preTokenizers[v.Pre]
	if !ok {
		return p, fmt.Errorf("vocab: pre-tokenizer %.100q is not known; known: %s", v.Pre, strings.Join(PreTokenizers(), ", "))
	}
	return p, nil
}

// appendJSON appends the pre_tokenizer of tokenizer.json.
func (p preTokenizer) appendJSON(b []byte) []byte {
	b = append(b, `{"type":"Sequence","pretokenizers":[`...)
	if p.digits {
		b = append(b, `{"type":"Digits","individual_digits":true},`...)
	}
	for _, expr := range p.split {
		b = append(b, `{"type":"Split","pattern":{"Regex":`...)
		b = appendString(b, expr)
		b = append(b, `},"behavior":"Isolated","invert":false},`...)
	}
	return fmt.Appendf(b, `{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":%v,"use_regex":%v}]}`, p.gpt2, p.gpt2)
}
