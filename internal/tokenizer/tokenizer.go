package tokenizer

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"anemone/internal/platform"
)

// Tokenizer is a tokenizer.json. It does not change and may be used by any
// number of goroutines.
type Tokenizer struct {
	vocab       vocabulary
	bpe         bpe
	unigram     *unigram // instead of bpe, or nil
	normalizers []normalizer
	splitters   []splitter
	needsFirst  bool // a splitter asks which piece is the first
	byteLevel   bool // pieces are encoded as bytes
	added       addedTokens
	prefix      []int32 // ids that the post-processor puts before a text
	suffix      []int32 // and after it
	decode      decoding
	problems    []string
	size        int       // largest id + 1
	scratch     sync.Pool // of *scratch
}

// Open reads a tokenizer.json: path is the file or the folder that holds it.
func Open(path string) (*Tokenizer, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	if info.IsDir() {
		path = filepath.Join(path, "tokenizer.json")
	}
	f, err := platform.Open(path)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	defer f.Close()
	data, err := readAll(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	t, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// readAll reads a file at once if it is not too large.
func readAll(f *os.File) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFileSize {
		return nil, fmt.Errorf("%d bytes: more than %d are not accepted", info.Size(), maxFileSize)
	}
	data := make([]byte, info.Size())
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, err
	}
	return data, nil
}

// problem notes an oddity of the file that is no error.
func (t *Tokenizer) problem(format string, args ...any) {
	if len(t.problems) < maxProblems {
		t.problems = append(t.problems, fmt.Sprintf(format, args...))
	}
}

// Problems lists oddities of the file, such as two tokens with one id: it can
// be used, but may not be what its maker meant.
func (t *Tokenizer) Problems() []string { return append([]string(nil), t.problems...) }

// Encode returns the ids of a text. Added tokens in the text, such as
// "<|im_end|>", are recognised. With addSpecial the result has what the
// post-processor adds, such as a token for the beginning of a text.
func (t *Tokenizer) Encode(text string, addSpecial bool) []int32 {
	out := make([]int32, 0, len(text)/3+len(t.prefix)+len(t.suffix)+8)
	if addSpecial {
		out = append(out, t.prefix...)
	}
	w := t.scratch.Get().(*scratch)
	defer t.scratch.Put(w)
	first := true // nothing of the text has been seen
	add := func(token *addedToken) {
		out = append(out, token.id)
		first = false
	}
	t.added.plain.split(validText(text), func(s string) {
		first = first && t.needsFirst && !t.cutsStart(s)
		t.added.normalized.split(t.normalize(s), func(s string) {
			out = t.encode(out, s, first, w)
			first = false
		}, add)
	}, add)
	if addSpecial {
		out = append(out, t.suffix...)
	}
	return out
}

func (t *Tokenizer) normalize(s string) string {
	for _, n := range t.normalizers {
		s = n.normalize(s)
	}
	return s
}

// cutsStart reports whether normalization drops the first characters of s.
func (t *Tokenizer) cutsStart(s string) bool {
	for _, n := range t.normalizers {
		if c, ok := n.(startCutter); ok && c.cutsStart(s) {
			return true
		}
		s = n.normalize(s)
	}
	return false
}

// piece appends the ids of a piece of text that the pre-tokenizer has cut out.
func (t *Tokenizer) piece(out []int32, s string, w *scratch) []int32 {
	if t.unigram == nil {
		return t.bpe.encode(out, s, t.byteLevel, w)
	}
	if t.byteLevel {
		s = toByteLevel(s)
	}
	return t.unigram.encode(out, s, w)
}

// encode appends the ids of a text without added tokens; first says that it is
// the start of the whole.
func (t *Tokenizer) encode(out []int32, s string, first bool, w *scratch) []int32 {
	// One Split with a known pattern is what nearly every file has: no list
	// of pieces is needed.
	if len(t.splitters) == 1 {
		if sp, ok := t.splitters[0].(*split); ok && sp.behavior == isolated {
			if sc, ok := sp.matcher.(*scanner); ok {
				for i := 0; i < len(s); {
					end := sc.next(s, i)
					out = t.piece(out, s[i:end], w)
					i = end
				}
				return out
			}
		}
	}
	pieces, spare := append(w.pieces[:0], s), w.spare[:0]
	for _, sp := range t.splitters {
		spare = spare[:0]
		start := false
		for i, p := range pieces {
			var begins bool
			spare, begins = sp.split(spare, p, first && i == 0)
			start = start || begins
		}
		first = start
		pieces, spare = spare, pieces
	}
	for _, p := range pieces {
		out = t.piece(out, p, w)
	}
	clear(pieces[:cap(pieces)]) // do not keep the text alive
	clear(spare[:cap(spare)])
	w.pieces, w.spare = pieces[:0], spare[:0]
	return out
}

// lookup returns how a token is spelled for decoding, and whether it is special.
func (t *Tokenizer) lookup(id int32) (token string, special, ok bool) {
	if a := t.added.byID[id]; a != nil {
		return a.text, a.special, true
	}
	token, ok = t.vocab.tokens.get(id)
	return token, false, ok
}

// TokenBytes returns the bytes that one token adds to a text, or nil if no
// token has the id. Special tokens have their text.
func (t *Tokenizer) TokenBytes(id int32) []byte {
	token, _, ok := t.lookup(id)
	if !ok {
		return nil
	}
	return t.decode.bytes([]byte{}, token)
}

// ID returns the id of a token as the file spells it, or false.
func (t *Tokenizer) ID(token string) (int32, bool) {
	if id, ok := t.added.byContent[token]; ok {
		return id, true
	}
	id, ok := t.vocab.ids[token]
	return id, ok
}

// Token returns how the file spells the token with an id ("Ġthe"), or false.
func (t *Tokenizer) Token(id int32) (string, bool) {
	if a := t.added.byID[id]; a != nil {
		return a.content, true
	}
	return t.vocab.tokens.get(id)
}

// IsSpecial reports whether the token with an id is one of those for structure
// ("<|im_end|>"), which a decoder may leave out.
func (t *Tokenizer) IsSpecial(id int32) bool {
	a := t.added.byID[id]
	return a != nil && a.special
}

// VocabSize returns the largest id of any token plus one.
func (t *Tokenizer) VocabSize() int { return t.size }
