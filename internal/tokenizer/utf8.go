package tokenizer

import (
	"strings"
	"unicode/utf8"
)

const replacement = "\uFFFD"

// appendLossy appends src to dst as valid UTF-8. Bad bytes become U+FFFD, one
// for each maximal subpart of a character (the practice recommended by the
// Unicode standard, and what Rust's from_utf8_lossy and Python do); Go's own
// conversions write one for each byte. If final is false, an incomplete
// character at the end is not written; its bytes are the rest returned.
func appendLossy(dst, src []byte, final bool) (out, rest []byte) {
	for len(src) > 0 {
		n := validPrefix(src)
		dst, src = append(dst, src[:n]...), src[n:]
		if len(src) == 0 {
			break
		}
		n, complete := subpart(src)
		if !complete && !final {
			return dst, src
		}
		dst, src = append(dst, replacement...), src[n:]
	}
	return dst, nil
}

// validPrefix returns the length of the longest valid UTF-8 text at the start
// of b.
func validPrefix(b []byte) int {
	i := 0
	for i < len(b) {
		if b[i] < utf8.RuneSelf {
			i++
			continue
		}
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n <= 1 {
			break
		}
		i += n
	}
	return i
}

// subpart returns the length of the maximal subpart of an ill-formed sequence
// at the start of b, which is not empty and does not start with a valid
// character. complete is false if more bytes could still make a character
// of it. The table is 3-7 of the Unicode standard.
func subpart(b []byte) (n int, complete bool) {
	var low, high byte = 0x80, 0xBF
	var size int
	switch c := b[0]; {
	case c >= 0xC2 && c <= 0xDF:
		size = 2
	case c >= 0xE0 && c <= 0xEF:
		size = 3
		if c == 0xE0 {
			low = 0xA0
		} else if c == 0xED {
			high = 0x9F
		}
	case c >= 0xF0 && c <= 0xF4:
		size = 4
		if c == 0xF0 {
			low = 0x90
		} else if c == 0xF4 {
			high = 0x8F
		}
	default:
		return 1, true
	}
	for n = 1; n < size; n++ {
		if n == len(b) {
			return n, false
		}
		if b[n] < low || b[n] > high {
			return n, true
		}
		low, high = 0x80, 0xBF
	}
	return n, true // not reached: the character would be valid
}

// validText returns s as valid UTF-8.
func validText(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	out, _ := appendLossy(make([]byte, 0, len(s)+8), []byte(s), true)
	return string(out)
}

// isASCII reports whether s has only characters below U+0080.
func isASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// byteRunes is GPT-2's alphabet: each byte has a printable character, so that
// vocabularies of bytes can be written as text. Bytes that are printable in
// Latin-1 stand for themselves, the others get U+0100 and up in order.
var byteRunes, runeBytes = func() (of [256]rune, back [512]int16) {
	for i := range back {
		back[i] = -1
	}
	next := rune(0x100)
	for b := range of {
		r := rune(b)
		if !(b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE) {
			r = next
			next++
		}
		of[b] = r
		back[r] = int16(b)
	}
	return of, back
}()

// appendByteLevel appends the bytes that a token of a byte-level vocabulary
// stands for; a token with characters outside the alphabet stands for itself.
func appendByteLevel(dst []byte, token string) []byte {
	start := len(dst)
	for _, r := range token {
		if int(r) >= len(runeBytes) || runeBytes[r] < 0 {
			return append(dst[:start], token...)
		}
		dst = append(dst, byte(runeBytes[r]))
	}
	return dst
}

// toByteLevel is the other direction: the spelling of bytes in GPT-2's alphabet.
func toByteLevel(s string) string {
	var b strings.Builder
	b.Grow(2 * len(s))
	for i := 0; i < len(s); i++ {
		b.WriteRune(byteRunes[s[i]])
	}
	return b.String()
}
