package tokenizer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// charsMap is a Precompiled normalizer: SentencePiece's table of texts and what
// becomes of them.
//
// The reference does not apply it as SentencePiece does, which takes the longest
// entry that the text starts with. It takes the shortest, and if the character
// is part of a cluster (a letter with its marks) of less than six bytes, what
// becomes of the start of the cluster stands for all of it.
type charsMap struct {
	units  []unit
	texts  string
	growth int // how many times longer it can make a text
}

// clusterLimit is the length from which on the parts of a cluster are looked
// up one by one.
const clusterLimit = 6

// unit is an element of a double-array trie as the darts-clone library has it:
// the children of a node are where its own place and offset, taken together by
// exclusive or with the byte that leads to the child, say.
type unit uint32

func (u unit) leaf() bool     { return u>>8&1 == 1 } // a key ends here; its value is child 0
func (u unit) value() uint32  { return uint32(u) & (1<<31 - 1) }
func (u unit) label() uint32  { return uint32(u) & (1<<31 | 0xFF) }
func (u unit) offset() uint32 { return uint32(u) >> 10 << (uint32(u) & (1 << 9) >> 6) }

// newCharsMap reads a table: the size in bytes of a trie, little endian like all
// of it; the trie; and the texts, each with a zero byte after it. The value of a
// key is where its text starts.
func newCharsMap(b []byte) (*charsMap, error) {
	if len(b) == 0 {
		return &charsMap{units: make([]unit, 1), growth: 1}, nil
	}
	if len(b) < 4 {
		return nil, fmt.Errorf("precompiled_charsmap of %d bytes: want 4 and more", len(b))
	}
	size := int64(binary.LittleEndian.Uint32(b))
	if b = b[4:]; size > int64(len(b)) || size%4 != 0 || size == 0 {
		return nil, fmt.Errorf("precompiled_charsmap says that its trie has %d bytes, and %d follow", size, len(b))
	}
	m := &charsMap{units: make([]unit, size/4), texts: string(b[size:]), growth: 1}
	for i := range m.units {
		m.units[i] = unit(binary.LittleEndian.Uint32(b[4*i:]))
	}
	if !utf8.ValidString(m.texts) {
		return nil, errors.New("precompiled_charsmap: its texts are not UTF-8")
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("precompiled_charsmap: %w", err)
	}
	return m, nil
}

// check visits every unit that a key can lead to once, those of short keys
// first: each value must be a text.
func (m *charsMap) check() error {
	n := uint32(len(m.units))
	seen := make([]bool, n)
	bases, next := []uint32{m.units[0].offset()}, []uint32(nil)
	for depth := 1; len(bases) > 0; depth++ {
		next = next[:0]
		for _, base := range bases {
			for c := uint32(1); c < 256; c++ {
				at := base ^ c
				if at >= n || m.units[at].label() != c || seen[at] {
					continue
				}
				seen[at] = true
				below := at ^ m.units[at].offset()
				next = append(next, below)
				if !m.units[at].leaf() {
					continue
				}
				if below >= n {
					return fmt.Errorf("unit %d of the trie has its value outside of it", at)
				}
				v := m.units[below].value()
				if int64(v) > int64(len(m.texts)) || int(v) < len(m.texts) && !utf8.RuneStart(m.texts[v]) {
					return fmt.Errorf("a text starts at byte %d of %d, or inside of a character", v, len(m.texts))
				}
				if m.growth = max(m.growth, (len(m.text(v))+depth-1)/depth); m.growth > maxGrowth {
					return fmt.Errorf("a text is more than %d times longer than what it replaces", maxGrowth)
				}
			}
		}
		bases, next = next, bases
	}
	return nil
}

func (m *charsMap) text(at uint32) string {
	text, _, _ := strings.Cut(m.texts[at:], "\x00")
	return text
}

// find returns what becomes of the shortest entry that s starts with.
func (m *charsMap) find(s string) (string, bool) {
	base := m.units[0].offset()
	for i := range len(s) {
		c := uint32(s[i])
		at := base ^ c
		if c == 0 || at >= uint32(len(m.units)) || m.units[at].label() != c {
			break
		}
		base = at ^ m.units[at].offset()
		if m.units[at].leaf() {
			return m.text(m.units[base].value()), true
		}
	}
	return "", false
}

func (m *charsMap) normalize(s string) string {
	var b strings.Builder
	done := 0 // how much of s is in b
	put := func(start, end int, text string) {
		b.WriteString(s[done:start])
		b.WriteString(text)
		done = end
	}
	for i := 0; i < len(s); {
		end := clusterEnd(s, i)
		if end-i < clusterLimit {
			if text, ok := m.find(s[i:end]); ok {
				put(i, end, text)
				i = end
				continue
			}
		}
		for i < end {
			_, n := utf8.DecodeRuneInString(s[i:end])
			if text, ok := m.find(s[i : i+n]); ok {
				put(i, i+n, text)
			}
			i += n
		}
	}
	if done == 0 && b.Len() == 0 {
		return s
	}
	b.WriteString(s[done:])
	return b.String()
}

// clusterEnd returns the end of the grapheme cluster that starts at s[i], by
// the rules of Unicode's annex 29 that can make one of less than six bytes with
// more than one character: a line break of two, marks after a character, and
// characters that go before others. Hangul syllables, flags and emoji that are
// joined have six and more, as have their parts.
func clusterEnd(s string, i int) int {
	if c := s[i]; c < utf8.RuneSelf && (i+1 == len(s) || s[i+1] < utf8.RuneSelf) {
		if c == '\r' && i+1 < len(s) && s[i+1] == '\n' {
			return i + 2
		}
		return i + 1
	}
	prefix := true
	for prefix && i < len(s) {
		r, n := utf8.DecodeRuneInString(s[i:])
		if inRanges(controlRanges, r) {
			return i + n
		}
		i += n
		prefix = inRanges(prefixRanges, r)
		if prefix && i < len(s) {
			if r, _ := utf8.DecodeRuneInString(s[i:]); inRanges(controlRanges, r) {
				return i
			}
		}
	}
	for i < len(s) {
		r, n := utf8.DecodeRuneInString(s[i:])
		if !inRanges(joinedRanges, r) {
			break
		}
		i += n
	}
	return i
}
