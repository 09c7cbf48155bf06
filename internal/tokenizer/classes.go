package tokenizer

import (
	"sync"
	"unicode"
	"unicode/utf8"
)

// class is what the regular expressions of pre-tokenizers ask of a character.
// The classes are disjoint: \s is classSpace or classNewline.
type class uint8

const (
	classOther   class = iota
	classLetter        // \p{L}
	classNumber        // \p{N}
	classMark          // \p{M}
	classSpace         // \s, without the next two
	classNewline       // \r and \n
)

// classTable finds the class of a code point: 256 code points to a page, equal
// pages shared.
type classTable struct {
	ascii [utf8.RuneSelf]class
	index [(unicode.MaxRune + 1) / 256]uint8
	pages [][256]class
}

// classes is built once, on first use, from the ranges of classes_table.go.
var classes = sync.OnceValue(func() *classTable {
	flat := make([]class, unicode.MaxRune+1)
	for _, set := range []struct {
		ranges []rune
		class  class
	}{
		{letterRanges, classLetter},
		{numberRanges, classNumber},
		{markRanges, classMark},
		// \s: the Unicode property White_Space, unchanged since Unicode 6.3.
		{[]rune{
			'\t', '\r', ' ', ' ', 0x85, 0x85, 0xA0, 0xA0, 0x1680, 0x1680, 0x2000, 0x200A, 0x2028, 0x2029,
			0x202F, 0x202F, 0x205F, 0x205F, 0x3000, 0x3000,
		}, classSpace},
		{[]rune{'\n', '\n', '\r', '\r'}, classNewline},
	} {
		for i := 0; i < len(set.ranges); i += 2 {
			for r := set.ranges[i]; r <= set.ranges[i+1]; r++ {
				flat[r] = set.class
			}
		}
	}
	t := new(classTable)
	copy(t.ascii[:], flat)
	seen := map[[256]class]uint8{}
	for p := range t.index {
		page := [256]class(flat[p*256:])
		n, ok := seen[page]
		if !ok {
			n = uint8(len(t.pages)) // 150 or so distinct pages
			seen[page] = n
			t.pages = append(t.pages, page)
		}
		t.index[p] = n
	}
	return t
})

// of returns the class of a code point.
func (t *classTable) of(r rune) class {
	if uint32(r) > unicode.MaxRune {
		return classOther
	}
	return t.pages[t.index[r>>8]][r&0xFF]
}

// at returns the class of the character that starts at s[i], and its length in
// bytes. s is valid UTF-8 and i is inside it.
func (t *classTable) at(s string, i int) (class, int) {
	if b := s[i]; b < utf8.RuneSelf {
		return t.ascii[b], 1
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	return t.of(r), n
}

// isWordCharacter reports whether \w of Rust's regex crate matches r, which is
// how added tokens with "single_word" look at their neighbours.
func isWordCharacter(r rune) bool {
	switch classes().of(r) {
	case classLetter, classMark:
		return true
	case classNumber:
		return unicode.In(r, unicode.Nd, unicode.Nl)
	}
	return r == 0x200C || r == 0x200D || unicode.In(r, unicode.Pc, unicode.Other_Alphabetic)
}
