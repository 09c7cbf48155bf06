package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// unigram is SentencePiece's unigram model: of all ways to cut a piece of text
// into tokens it takes the one with the largest sum of scores, which are
// logarithms of probabilities.
type unigram struct {
	vocab        *vocabulary
	scores       []float64 // by id
	trie         *trie
	unk          int32
	unkScore     float64 // of one character that no token covers
	byteFallback bool
	fallback     [256]int32 // by byte: the token "<0x41>", or -1
	allBytes     bool       // no -1 among them
}

// unkPenalty is how much worse than any token an unknown character is.
const unkPenalty = 10

// finish builds the tables once the vocabulary is known.
func (m *unigram) finish() error {
	lowest := math.Inf(1)
	for _, s := range m.scores {
		lowest = min(lowest, s)
	}
	m.unkScore = lowest - unkPenalty
	values := make(map[string]int32, len(m.vocab.ids))
	for token, id := range m.vocab.ids {
		if token != "" {
			values[token] = id
		}
	}
	var err error
	if m.trie, err = newTrie(values); err != nil {
		return err
	}
	m.allBytes = true
	for b := range m.fallback {
		id, ok := m.vocab.ids[byteToken(b)]
		if !ok {
			id = -1
			m.allBytes = false
		}
		m.fallback[b] = id
	}
	return nil
}

// byteToken is how a vocabulary spells a byte.
func byteToken(b int) string { return fmt.Sprintf("<0x%02X>", b) }

// best is the best way to cut a text up to some place.
type best struct {
	score float64
	from  int32 // where the last token starts, or -1: there is no way yet
	id    int32
}

func (m *unigram) encode(dst []int32, piece string, w *scratch) []int32 {
	if ids, ok := w.cached(piece); ok {
		return append(dst, ids...)
	}
	start := len(dst)
	dst = m.word(dst, piece, w)
	w.keep(piece, dst[start:])
	return dst
}

// word is the Viterbi algorithm. Where no token reaches over a place, every way
// leads through it: what lies before is final and written out, so that a long
// text needs little memory.
func (m *unigram) word(dst []int32, s string, w *scratch) []int32 {
	u := fusing{m: m, s: s, unk: -1}
	base, score := 0, 0.0 // the last place that every way leads through
	table := append(w.best[:0], best{from: 0})
	reach := 0 // where the furthest token found so far ends
	for at := 0; at < len(s); {
		if at == reach && at > base {
			dst = m.trace(dst, table, base, at, &u, w)
			score = table[at-base].score
			base = at
			table = append(table[:0], best{score: score})
		}
		here := table[at-base].score
		width := 1
		if s[at] >= utf8.RuneSelf {
			_, width = utf8.DecodeRuneInString(s[at:])
		}
		single := false
		try := func(end int, id int32, score float64) {
			for len(table) <= end-base {
				table = append(table, best{from: -1})
			}
			reach = max(reach, end)
			if t := &table[end-base]; t.from < 0 || score > t.score {
				*t = best{score, int32(at - base), id}
			}
		}
		node := uint32(0)
		for end := at; end < len(s); {
			if node = m.trie.step(node, s[end]); node == 0 {
				break
			}
			end++
			if id := m.trie.value[node]; id >= 0 {
				try(end, id, m.scores[id]+here)
				single = single || end-at == width
			}
		}
		if !single {
			try(at+width, m.unk, m.unkScore+here)
		}
		at += width
	}
	dst = m.trace(dst, table, base, len(s), &u, w)
	w.best = table
	return u.flush(dst)
}

// trace writes the best way from base to end.
func (m *unigram) trace(dst []int32, table []best, base, end int, u *fusing, w *scratch) []int32 {
	w.ends = w.ends[:0]
	for at := int32(end - base); at > 0; at = table[at].from {
		w.ends = append(w.ends, at)
	}
	start := base
	for i := len(w.ends) - 1; i >= 0; i-- {
		at := w.ends[i]
		dst = u.add(dst, table[at].id, start, base+int(at))
		start = base + int(at)
	}
	return dst
}

// fusing collects neighbouring unknown characters, which together are one
// unknown token.
type fusing struct {
	m   *unigram
	s   string
	unk int // where the unknown characters start, or -1
	end int
}

func (u *fusing) add(dst []int32, id int32, start, end int) []int32 {
	if id == u.m.unk {
		if u.unk < 0 {
			u.unk = start
		}
		u.end = end
		return dst
	}
	return append(u.flush(dst), id)
}

func (u *fusing) flush(dst []int32) []int32 {
	if u.unk < 0 {
		return dst
	}
	s := u.s[u.unk:u.end]
	u.unk = -1
	// The text may be the unknown token itself, spelled out.
	if id, ok := u.m.vocab.ids[s]; ok {
		return append(dst, id)
	}
	if u.m.byteFallback && u.m.bytesKnown(s) {
		for i := range len(s) {
			dst = append(dst, u.m.fallback[s[i]])
		}
		return dst
	}
	return append(dst, u.m.unk)
}

func (m *unigram) bytesKnown(s string) bool {
	if m.allBytes {
		return true
	}
	for i := range len(s) {
		if m.fallback[s[i]] < 0 {
			return false
		}
	}
	return true
}

// unigram reads a model of the type Unigram.
func (p *parser) unigram(data []byte, fields map[string]part) error {
	m := &unigram{vocab: &p.t.vocab}
	if fields["vocab"].missing() {
		return errors.New(`"vocab" is missing`)
	}
	if fields["unk_id"].missing() {
		return &UnsupportedError{"unk_id", "null or none", "the id of the unknown token: without it some texts have no ids"}
	}
	if err := json.Unmarshal(fields["unk_id"].raw, &m.unk); err != nil {
		return fmt.Errorf("unk_id: %w", err)
	}
	var err error
	if m.byteFallback, err = fields["byte_fallback"].flag(); err != nil {
		return fmt.Errorf("byte_fallback: %w", err)
	}
	if err := p.scoredVocab(fields["vocab"].at(data), m); err != nil {
		return fmt.Errorf("vocab: %w", err)
	}
	if m.unk < 0 || int(m.unk) >= len(m.scores) {
		return fmt.Errorf("unk_id: %d, but the vocabulary has %d tokens", m.unk, len(m.scores))
	}
	if err := m.finish(); err != nil {
		return err
	}
	p.t.unigram = m
	return nil
}

// scoredVocab reads [["token", score], ...], where the place is the id. All
// tokens share one string.
func (p *parser) scoredVocab(r *jsonReader, m *unigram) error {
	var all []byte
	var ends []int
	err := r.array(func(i int) error {
		if i == maxVocabulary {
			return r.errorf("more than %d tokens", maxVocabulary)
		}
		n := 0
		err := r.array(func(int) error {
			n++
			switch n {
			case 1:
				token, err := r.str(r.key[:0])
				if len(token) > maxSoughtLength {
					return r.errorf("token of %d bytes: more than %d are not accepted in a unigram model", len(token), maxSoughtLength)
				}
				all = append(all, token...)
				ends = append(ends, len(all))
				return err
			case 2:
				score, err := r.float()
				m.scores = append(m.scores, score)
				return err
			}
			return r.errorf("more than a token and its score")
		})
		if err == nil && n != 2 {
			err = r.errorf("found %d parts, want a token and its score", n)
		}
		return err
	})
	if err != nil {
		return err
	}
	if len(ends) == 0 {
		return errors.New("no tokens")
	}
	v := &p.t.vocab
	v.ids = make(map[string]int32, len(ends))
	v.tokens.grow(len(ends), int32(len(ends)-1))
	text, start := string(all), 0
	for id, end := range ends {
		token := text[start:end]
		start = end
		if other, ok := v.ids[token]; ok {
			p.t.problem("vocab: %q is token %d and token %d, which is used", token, other, id)
		}
		v.ids[token] = int32(id)
		v.tokens.set(int32(id), token)
	}
	p.t.size = len(ends)
	return nil
}

// float reads a finite number.
func (r *jsonReader) float() (float64, error) {
	r.peek()
	start := r.pos
	if err := r.number(); err != nil {
		return 0, err
	}
	f, err := strconv.ParseFloat(string(r.data[start:r.pos]), 64)
	if err != nil {
		return 0, r.errorf("number %s: %w", r.data[start:r.pos], errors.Unwrap(err))
	}
	return f, nil
}
