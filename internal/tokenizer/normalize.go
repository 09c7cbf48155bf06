package tokenizer

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// A normalizer rewrites the text between added tokens. Its input and output are
// valid UTF-8.
type normalizer interface {
	normalize(s string) string
}

// A startCutter is a normalizer that may drop characters. cutsStart reports
// whether it drops the first ones of s: to the reference, what is left is then
// not the start of the text.
type startCutter interface {
	cutsStart(s string) bool
}

// unicodeForm is NFC, NFD, NFKC or NFKD.
type unicodeForm struct{ form norm.Form }

func (u unicodeForm) normalize(s string) string {
	if isASCII(s) || u.form.IsNormalString(s) {
		return s
	}
	// Late characters are normalization boundaries to the reference: what
	// stands before and after them is normalized on its own.
	var b strings.Builder
	b.Grow(len(s) + len(s)/8)
	start := 0
	for i, r := range s {
		if isLate(r) {
			b.WriteString(u.segment(s[start:i]))
			b.WriteRune(r)
			start = i + utf8.RuneLen(r)
		}
	}
	b.WriteString(u.segment(s[start:]))
	return b.String()
}

// lateRanges are characters that the reference's normalization tables (the
// unicode-normalization-alignments crate, Unicode 9) do not know: no
// combining class, no composition, no decomposition. Found by asking it for the
// NFKC form of each code point and for its order around U+0345 and U+0334; those
// after Unicode 15 are from the character database, for the day x/text learns
// of them.
var lateRanges = []rune{
	0x07FD, 0x07FD, 0x0897, 0x089F, 0x08CA, 0x08D3, 0x09FE, 0x09FE, 0x0C3C, 0x0C3C, 0x0D3B, 0x0D3C,
	0x0EBA, 0x0EBA, 0x1715, 0x1715, 0x1ABF, 0x1ADD, 0x1AE0, 0x1AEB, 0x1DF6, 0x1DFA, 0x32FF, 0x32FF,
	0xA7F1, 0xA7F4, 0xA82C, 0xA82C, 0xAB69, 0xAB69, 0x10781, 0x107BA, 0x10D24, 0x10D27, 0x10D69, 0x10D6D,
	0x10EAB, 0x10EAC, 0x10EFA, 0x10EFF, 0x10F46, 0x10F50, 0x10F82, 0x10F85, 0x11070, 0x11070,
	0x1133B, 0x1133B, 0x11382, 0x11391, 0x113B8, 0x113E2, 0x1145E, 0x1145E, 0x11839, 0x1183A,
	0x11930, 0x11930, 0x11938, 0x11938, 0x1193D, 0x1193E, 0x11943, 0x11943, 0x119E0, 0x119E0,
	0x11A34, 0x11A34, 0x11A47, 0x11A47, 0x11A99, 0x11A99, 0x11B60, 0x11B67, 0x11D42, 0x11D42,
	0x11D44, 0x11D45, 0x11D97, 0x11D97, 0x11F41, 0x11F42, 0x11F5A, 0x11F5A, 0x1611E, 0x1612F,
	0x16D63, 0x16D6A, 0x16FF0, 0x16FF1, 0x1CCD6, 0x1CCF9, 0x1E030, 0x1E06D, 0x1E08F, 0x1E08F,
	0x1E130, 0x1E136, 0x1E2AE, 0x1E2AE, 0x1E2EC, 0x1E2EF, 0x1E4EC, 0x1E4EF, 0x1E5EE, 0x1E5EF,
	0x1E6E3, 0x1E6E3, 0x1E6E6, 0x1E6E6, 0x1E6EE, 0x1E6EF, 0x1E6F5, 0x1E6F5, 0x1F16C, 0x1F16C,
	0x1FBF0, 0x1FBF9,
}

func isLate(r rune) bool { return r >= lateRanges[0] && inRanges(lateRanges, r) }

// inRanges reports whether r is in a sorted list of first, last, first, last ...
func inRanges(ranges []rune, r rune) bool {
	// The first range that ends at r or later; ends are at odd places.
	n, found := slices.BinarySearch(ranges, r)
	return found || n%2 == 1
}

// maxMarks is the longest run of combining marks that is left to x/text. It
// follows the Stream-Safe Text Format and breaks longer runs (30) with U+034F,
// which no tokenizer does.
const maxMarks = 16

func (u unicodeForm) segment(s string) string {
	if isASCII(s) || u.form.IsNormalString(s) {
		return s
	}
	run := 0
	for i := 0; i < len(s); {
		if s[i] < utf8.RuneSelf {
			run = 0
			i++
			continue
		}
		p := norm.NFKD.PropertiesString(s[i:])
		if d := p.Decomposition(); len(d) > 0 {
			run += utf8.RuneCount(d) // an upper bound is enough
		} else if p.CCC() != 0 {
			run++
		} else {
			run = 0
		}
		if run > maxMarks {
			return u.long(s)
		}
		i += p.Size()
	}
	return u.form.String(s)
}

// mark is a character on its way through normalization.
type mark struct {
	r   rune
	ccc uint8 // canonical combining class
}

// long is the normalization algorithm of the Unicode standard (chapter 3.11)
// without a limit on the number of marks. It is slow and seldom needed.
func (u unicodeForm) long(s string) string {
	canonical := norm.NFD
	compat := u.form == norm.NFKC || u.form == norm.NFKD
	if compat {
		canonical = norm.NFKD
	}
	var all []mark
	var buf [utf8.UTFMax]byte
	for i, r := range s {
		if hangul(r) {
			for _, j := range norm.NFD.String(string(r)) {
				all = append(all, mark{j, 0})
			}
			continue
		}
		d := canonical.PropertiesString(s[i:]).Decomposition()
		if len(d) == 0 {
			d = utf8.AppendRune(buf[:0], r)
		}
		for len(d) > 0 {
			j, n := utf8.DecodeRune(d)
			all = append(all, mark{j, norm.NFD.Properties(d).CCC()})
			d = d[n:]
		}
	}
	for i := 0; i < len(all); {
		if all[i].ccc == 0 {
			i++
			continue
		}
		j := i
		for j < len(all) && all[j].ccc != 0 {
			j++
		}
		slices.SortStableFunc(all[i:j], func(a, b mark) int { return int(a.ccc) - int(b.ccc) })
		i = j
	}
	if u.form == norm.NFC || u.form == norm.NFKC {
		all = compose(all)
	}
	out := make([]byte, 0, len(s)+len(s)/8)
	for _, m := range all {
		out = utf8.AppendRune(out, m.r)
	}
	return string(out)
}

func hangul(r rune) bool { return r >= 0xAC00 && r <= 0xD7A3 }

// compose replaces pairs of characters by primary composites, in place.
func compose(all []mark) []mark {
	out, starter := all[:0], -1
	for _, m := range all {
		if starter >= 0 {
			blocked := len(out)-1 > starter && out[len(out)-1].ccc >= m.ccc
			if !blocked {
				if r, ok := composite(out[starter].r, m.r); ok {
					out[starter].r = r
					continue
				}
			}
		}
		if m.ccc == 0 {
			starter = len(out)
		}
		out = append(out, m)
	}
	return out
}

// composite returns the primary composite of two characters. x/text does not
// export its table, but normalizing the pair looks it up.
func composite(a, b rune) (rune, bool) {
	s := norm.NFC.String(string([]rune{a, b}))
	r, n := utf8.DecodeRuneInString(s)
	return r, n == len(s)
}

// replaceText is a Replace normalizer with a plain pattern.
type replaceText struct{ old, new string }

func (r replaceText) normalize(s string) string { return strings.ReplaceAll(s, r.old, r.new) }

func (r replaceText) cutsStart(s string) bool { return r.new == "" && strings.HasPrefix(s, r.old) }

// replacePattern is a Replace normalizer with a regular expression; the new
// text is taken literally.
type replacePattern struct {
	pattern matcher
	new     string
}

func (r replacePattern) normalize(s string) string {
	var b strings.Builder
	last := 0
	r.pattern.each(s, func(start, end int) {
		b.WriteString(s[last:start])
		b.WriteString(r.new)
		last = end
	})
	if last == 0 && b.Len() == 0 {
		return s
	}
	b.WriteString(s[last:])
	return b.String()
}

func (r replacePattern) cutsStart(s string) bool {
	cut := false
	if r.new == "" {
		r.pattern.each(s, func(start, end int) { cut = cut || start == 0 && end > 0 })
	}
	return cut
}

// strip is a Strip normalizer.
type strip struct{ left, right bool }

func (n strip) normalize(s string) string {
	if n.left {
		s = strings.TrimLeftFunc(s, unicode.IsSpace)
	}
	if n.right {
		s = strings.TrimRightFunc(s, unicode.IsSpace)
	}
	return s
}

func (n strip) cutsStart(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return n.left && unicode.IsSpace(r)
}

// stripAccents is a StripAccents normalizer: it drops the combining marks of
// Unicode 9.
type stripAccents struct{}

func (stripAccents) normalize(s string) string {
	if isASCII(s) {
		return s
	}
	return strings.Map(func(r rune) rune {
		if inRanges(accentRanges, r) {
			return -1
		}
		return r
	}, s)
}

func (n stripAccents) cutsStart(s string) bool {
	r, size := utf8.DecodeRuneInString(s)
	return n.normalize(s[:size]) == "" && r != utf8.RuneError
}

// lowercase is a Lowercase normalizer: one character at a time, without regard
// to its neighbours.
type lowercase struct{}

func (lowercase) normalize(s string) string {
	if strings.ContainsRune(s, '\u0130') {
		// The only one that becomes two.
		s = strings.ReplaceAll(s, "\u0130", "i\u0307")
	}
	return strings.Map(lower, s)
}

// lower is the lower case of a character in Unicode 17; Go's tables may be
// older.
func lower(r rune) rune {
	switch {
	case r < 0x1C89:
		return unicode.ToLower(r)
	case r >= 0x10D50 && r <= 0x10D65:
		return r + 0x20
	case r >= 0x16EA0 && r <= 0x16EB8:
		return r + 0x1B
	}
	switch r {
	case 0x1C89, 0xA7CC, 0xA7CE, 0xA7D2, 0xA7D4, 0xA7DA:
		return r + 1
	case 0xA7CB:
		return 0x0264
	case 0xA7DC:
		return 0x019B
	}
	return unicode.ToLower(r)
}

// prepend is a Prepend normalizer: it leaves empty text empty.
type prepend struct{ prefix string }

func (p prepend) normalize(s string) string {
	if s == "" {
		return s
	}
	return p.prefix + s
}
