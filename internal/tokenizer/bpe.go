package tokenizer

import (
	"math"
	"math/rand/v2"
	"unicode/utf8"
)

// newSeed returns an odd number for a multiplicative hash.
func newSeed() uint64 { return rand.Uint64() | 1 }

// vocabulary is model.vocab: tokens as the file spells them.
type vocabulary struct {
	ids    map[string]int32
	tokens tokenList
}

// tokenList finds tokens by id: a slice where ids are dense, as they always
// are, and a map where the file has only a few large ones.
type tokenList struct {
	dense  []string
	known  []bool // which entries of dense exist: the empty token may
	sparse map[int32]string
}

func (l *tokenList) grow(n int, largest int32) {
	if int(largest) < 2*n+1024 {
		l.dense = make([]string, largest+1)
		l.known = make([]bool, largest+1)
	} else {
		l.sparse = make(map[int32]string, n)
	}
}

func (l *tokenList) set(id int32, token string) {
	if l.sparse != nil {
		l.sparse[id] = token
		return
	}
	l.dense[id], l.known[id] = token, true
}

func (l *tokenList) get(id int32) (string, bool) {
	if l.sparse != nil {
		token, ok := l.sparse[id]
		return token, ok
	}
	if id < 0 || int(id) >= len(l.dense) {
		return "", false
	}
	return l.dense[id], l.known[id]
}

// bpe is the byte pair encoding of a piece of text: it starts from single
// characters (or bytes, spelled in GPT-2's alphabet) and joins the neighbouring
// pair whose merge comes first in the file, the leftmost of equals, until there is
// none left.
type bpe struct {
	vocab        *vocabulary
	merges       *pairTable
	unk          int32 // the token for what the vocabulary lacks, or -1
	fuseUnk      bool
	byteFallback bool
	ignoreMerges bool

	bytes     [256]int32     // by byte: the token of its spelling, or -1 (byte level)
	allBytes  bool           // no -1 among them
	ascii     [128]int32     // by character: its token, or -1 (character level)
	runes     map[rune]int32 // the same for the others
	fallback  [256]int32     // by byte: the token "<0x41>", or -1
	crossings *pairTable     // see cut
}

// finish builds the tables for the start of a merge.
func (m *bpe) finish(byteLevel bool) {
	id := func(token string) int32 {
		if id, ok := m.vocab.ids[token]; ok {
			return id
		}
		return -1
	}
	m.allBytes = true
	for b := range m.bytes {
		m.bytes[b] = id(string(byteRunes[b]))
		m.allBytes = m.allBytes && m.bytes[b] >= 0
		m.fallback[b] = id(byteToken(b))
	}
	if byteLevel {
		return
	}
	for r := range m.ascii {
		m.ascii[r] = id(string(rune(r)))
	}
	m.runes = map[rune]int32{}
	for token, id := range m.vocab.ids {
		if r, n := utf8.DecodeRuneInString(token); n == len(token) && n > 1 {
			m.runes[r] = id
		}
	}
	// The crossings of merges: last character of the left token, first of the
	// right.
	n := 0
	for i := range m.merges.slots {
		if m.merges.slots[i].key != noPair {
			n++
		}
	}
	m.crossings = newPairTable(n)
	for i := range m.merges.slots {
		key := m.merges.slots[i].key
		if key == noPair {
			continue
		}
		left, _ := m.vocab.tokens.get(int32(key >> 32))
		right, _ := m.vocab.tokens.get(int32(uint32(key)))
		a, _ := utf8.DecodeLastRuneInString(left)
		b, _ := utf8.DecodeRuneInString(right)
		m.crossings.put(pairKey(a, b), pairValue{})
	}
}

// encode appends the ids of a piece of text to dst.
func (m *bpe) encode(dst []int32, piece string, byteLevel bool, w *scratch) []int32 {
	if byteLevel {
		if len(piece) == 1 && m.bytes[piece[0]] >= 0 {
			return append(dst, m.bytes[piece[0]])
		}
		return m.cached(dst, piece, true, w)
	}
	if m.ignoreMerges {
		if id, ok := m.vocab.ids[piece]; ok {
			return append(dst, id)
		}
	}
	for piece != "" {
		n := m.cut(piece)
		dst = m.cached(dst, piece[:n], false, w)
		piece = piece[n:]
	}
	return dst
}

// cut returns where a piece can be cut in two without changing its ids: the
// first place between two characters of the vocabulary such that no merge joins
// a token that ends with the one to a token that starts with the other.
// Whatever is merged on both sides, no merge can ever cross that place.
//
// Character-level vocabularies need this: theirs are pre-tokenizers that never
// split anything ("▁a▁sentence" is one piece), and without cuts nothing would
// ever be found in the cache.
func (m *bpe) cut(piece string) int {
	last, known := rune(0), false
	for i, r := range piece {
		now := m.char(r) >= 0
		if i > 0 && now && known {
			if _, ok := m.crossings.get(pairKey(last, r)); !ok {
				return i
			}
		}
		last, known = r, now
	}
	return len(piece)
}

// char returns the token of a character, or -1.
func (m *bpe) char(r rune) int32 {
	if r < utf8.RuneSelf {
		return m.ascii[r]
	}
	if id, ok := m.runes[r]; ok {
		return id
	}
	return -1
}

func (m *bpe) cached(dst []int32, piece string, byteLevel bool, w *scratch) []int32 {
	if ids, ok := w.cached(piece); ok {
		return append(dst, ids...)
	}
	start := len(dst)
	dst = m.word(dst, piece, byteLevel, w)
	w.keep(piece, dst[start:])
	return dst
}

// word encodes a piece that is not in the cache.
func (m *bpe) word(dst []int32, piece string, byteLevel bool, w *scratch) []int32 {
	if byteLevel && m.ignoreMerges {
		if id, ok := m.vocab.ids[toByteLevel(piece)]; ok {
			return append(dst, id)
		}
	}
	w.ids = w.ids[:0]
	switch {
	case byteLevel && m.allBytes:
		for i := 0; i < len(piece); i++ {
			w.ids = append(w.ids, m.bytes[piece[i]])
		}
	case byteLevel:
		u := unknowns{m: m, w: w}
		for i := 0; i < len(piece); i++ {
			u.add(byteRunes[piece[i]], m.bytes[piece[i]])
		}
		u.flush()
	default:
		u := unknowns{m: m, w: w}
		for _, r := range piece {
			u.add(r, m.char(r))
		}
		u.flush()
	}
	if len(w.ids) <= shortWord {
		return m.mergeShort(dst, w)
	}
	return m.mergeLong(dst, w)
}

// unknowns collects the symbols a piece starts from where the vocabulary may
// lack some.
type unknowns struct {
	m       *bpe
	w       *scratch
	pending bool // an unknown token is due
}

func (u *unknowns) add(r rune, id int32) {
	m := u.m
	if id >= 0 {
		u.flush()
		u.w.ids = append(u.w.ids, id)
		return
	}
	if m.byteFallback {
		var buf [utf8.UTFMax]byte
		b := utf8.AppendRune(buf[:0], r)
		all := true
		for _, c := range b {
			all = all && m.fallback[c] >= 0
		}
		if all {
			// An unknown token that is due stays so: as in the reference, it
			// comes after the bytes.
			for _, c := range b {
				u.w.ids = append(u.w.ids, m.fallback[c])
			}
			return
		}
	}
	if m.unk < 0 {
		return // without an unknown token it is dropped
	}
	if !m.fuseUnk {
		u.flush()
	}
	u.pending = true
}

func (u *unknowns) flush() {
	if u.pending {
		u.w.ids = append(u.w.ids, u.m.unk)
		u.pending = false
	}
}

// shortWord is the number of symbols up to which looking at all pairs for the
// best one is faster than keeping them in a heap.
const shortWord = 48

const noMerge = math.MaxUint32

// mergeShort merges w.ids and appends the result to dst.
func (m *bpe) mergeShort(dst []int32, w *scratch) []int32 {
	ids := w.ids
	n := len(ids)
	if n < 2 {
		return append(dst, ids...)
	}
	w.ranks, w.to = resize(w.ranks, n), resize(w.to, n)
	ranks, to := w.ranks, w.to // of the pair that starts there
	look := func(i int) {
		if v, ok := m.merges.get(pairKey(ids[i], ids[i+1])); ok {
			ranks[i], to[i] = v.rank, v.to
		} else {
			ranks[i] = noMerge
		}
	}
	for i := range n - 1 {
		look(i)
	}
	ranks[n-1] = noMerge // the last symbol starts no pair
	for n > 1 {
		best, at := uint32(noMerge), 0
		for i, rank := range ranks[:n-1] {
			if rank < best {
				best, at = rank, i
			}
		}
		if best == noMerge {
			break
		}
		ids[at] = to[at]
		copy(ids[at+1:n-1], ids[at+2:n])
		copy(ranks[at+1:n-1], ranks[at+2:n])
		copy(to[at+1:n-1], to[at+2:n])
		n--
		if at > 0 {
			look(at - 1)
		}
		if at < n-1 {
			look(at)
		}
	}
	return append(dst, ids[:n]...)
}

// candidate is a pair that can be merged: its left symbol and what it becomes.
type candidate struct {
	rank uint32
	at   int32
	to   int32
}

func (c candidate) before(d candidate) bool {
	return c.rank < d.rank || c.rank == d.rank && c.at < d.at
}

// mergeLong is mergeShort for any length: symbols in a linked list, candidates
// in a heap. A candidate whose symbols have changed since is skipped.
func (m *bpe) mergeLong(dst []int32, w *scratch) []int32 {
	ids := w.ids
	n := int32(len(ids))
	w.prev, w.next = resize(w.prev, int(n)), resize(w.next, int(n))
	prev, next := w.prev, w.next
	h := candidates(w.heap[:0])
	for i := range n {
		prev[i], next[i] = i-1, i+1
		if i+1 < n {
			if v, ok := m.merges.get(pairKey(ids[i], ids[i+1])); ok {
				h = append(h, candidate{v.rank, i, v.to})
			}
		}
	}
	h.init()
	const gone = -1
	for len(h) > 0 {
		c := h.pop()
		i := c.at
		if ids[i] == gone || next[i] >= n {
			continue
		}
		j := next[i]
		if v, ok := m.merges.get(pairKey(ids[i], ids[j])); !ok || v.to != c.to {
			continue
		}
		ids[i], ids[j] = c.to, gone
		next[i] = next[j]
		if k := next[i]; k < n {
			prev[k] = i
			if v, ok := m.merges.get(pairKey(c.to, ids[k])); ok {
				h.push(candidate{v.rank, i, v.to})
			}
		}
		if k := prev[i]; k >= 0 {
			if v, ok := m.merges.get(pairKey(ids[k], c.to)); ok {
				h.push(candidate{v.rank, k, v.to})
			}
		}
	}
	w.heap = h[:0]
	for _, id := range ids {
		if id != gone {
			dst = append(dst, id)
		}
	}
	return dst
}

// candidates is a binary heap with the best candidate first.
type candidates []candidate

func (h candidates) init() {
	for i := len(h)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

func (h *candidates) push(c candidate) {
	*h = append(*h, c)
	s := *h
	i := len(s) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !c.before(s[parent]) {
			break
		}
		s[i] = s[parent]
		i = parent
	}
	s[i] = c
}

func (h *candidates) pop() candidate {
	s := *h
	top := s[0]
	last := len(s) - 1
	s[0] = s[last]
	*h = s[:last]
	h.down(0)
	return top
}

func (h candidates) down(i int) {
	if i >= len(h) {
		return
	}
	c := h[i]
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1].before(h[child]) {
			child++
		}
		if !h[child].before(c) {
			break
		}
		h[i] = h[child]
		i = child
	}
	h[i] = c
}

// resize returns a slice of n elements, reusing s if it is large enough.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
