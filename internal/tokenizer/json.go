package tokenizer

import (
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonReader walks JSON text once, without building values for it: most of a
// tokenizer.json is two large tables that go straight into their final form.
// It is strict (no trailing text, no bad escapes, limited depth); the text is
// known to be valid UTF-8.
type jsonReader struct {
	data  []byte
	pos   int
	depth int
	key   []byte // space for keys with escapes
}

func (r *jsonReader) errorf(format string, args ...any) error {
	return fmt.Errorf("at byte %d: %w", r.pos, fmt.Errorf(format, args...))
}

// peek skips white space and returns the next byte, or 0 at the end.
func (r *jsonReader) peek() byte {
	for r.pos < len(r.data) {
		switch c := r.data[r.pos]; c {
		case ' ', '\t', '\r', '\n':
			r.pos++
		default:
			return c
		}
	}
	return 0
}

func (r *jsonReader) expect(c byte, what string) error {
	if got := r.peek(); got != c || r.pos >= len(r.data) {
		return r.errorf("found %s, want %s", r.found(), what)
	}
	r.pos++
	return nil
}

// found describes what is at the reader for an error.
func (r *jsonReader) found() string {
	if r.pos >= len(r.data) {
		return "the end of the file"
	}
	c, _ := utf8.DecodeRune(r.data[r.pos:])
	return strconv.QuoteRune(c)
}

// object reads an object and calls field with each key, which is valid until
// the next string is read; field reads the value.
func (r *jsonReader) object(field func(key []byte) error) error {
	if err := r.expect('{', "an object"); err != nil {
		return err
	}
	return r.list('}', func(int) error {
		key, err := r.str(r.key[:0])
		if err != nil {
			return err
		}
		if err := r.expect(':', "a colon"); err != nil {
			return err
		}
		return field(key)
	})
}

// array reads an array; element reads each value.
func (r *jsonReader) array(element func(i int) error) error {
	if err := r.expect('[', "an array"); err != nil {
		return err
	}
	return r.list(']', element)
}

func (r *jsonReader) list(end byte, item func(i int) error) error {
	if r.depth++; r.depth > maxDepth {
		return r.errorf("nested more than %d deep", maxDepth)
	}
	defer func() { r.depth-- }()
	if r.peek() == end {
		r.pos++
		return nil
	}
	for i := 0; ; i++ {
		if err := item(i); err != nil {
			return err
		}
		switch r.peek() {
		case end:
			r.pos++
			return nil
		case ',':
			r.pos++
		default:
			return r.errorf("found %s, want a comma or the end of the list", r.found())
		}
	}
}

// str reads a string. The result is a part of the text or, if the string has
// escapes, appended to buf.
func (r *jsonReader) str(buf []byte) ([]byte, error) {
	if err := r.expect('"', "a string"); err != nil {
		return nil, err
	}
	start := r.pos
	for r.pos < len(r.data) {
		switch c := r.data[r.pos]; {
		case c == '"':
			r.pos++
			return r.data[start : r.pos-1], nil
		case c == '\\':
			return r.escaped(append(buf, r.data[start:r.pos]...))
		case c < ' ':
			return nil, r.errorf("control character in a string")
		}
		r.pos++
	}
	return nil, r.errorf("the string does not end")
}

// escaped reads the rest of a string from its first escape on.
func (r *jsonReader) escaped(buf []byte) ([]byte, error) {
	for r.pos < len(r.data) {
		c := r.data[r.pos]
		r.pos++
		switch {
		case c == '"':
			r.key = buf[:0] // keep the larger space
			return buf, nil
		case c < ' ':
			return nil, r.errorf("control character in a string")
		case c != '\\':
			buf = append(buf, c)
			continue
		}
		if r.pos >= len(r.data) {
			break
		}
		c = r.data[r.pos]
		r.pos++
		switch c {
		case '"', '\\', '/':
			buf = append(buf, c)
		case 'b':
			buf = append(buf, '\b')
		case 'f':
			buf = append(buf, '\f')
		case 'n':
			buf = append(buf, '\n')
		case 'r':
			buf = append(buf, '\r')
		case 't':
			buf = append(buf, '\t')
		case 'u':
			u, ok := r.hex4()
			if ok && utf16.IsSurrogate(u) {
				ok = r.pos+1 < len(r.data) && r.data[r.pos] == '\\' && r.data[r.pos+1] == 'u'
				if ok {
					r.pos += 2
					var low rune
					low, ok = r.hex4()
					u = utf16.DecodeRune(u, low)
					ok = ok && u != utf8.RuneError
				}
			}
			if !ok {
				return nil, r.errorf("bad \\u escape")
			}
			buf = utf8.AppendRune(buf, u)
		default:
			return nil, r.errorf("bad escape \\%c", c)
		}
	}
	return nil, r.errorf("the string does not end")
}

func (r *jsonReader) hex4() (rune, bool) {
	if r.pos+4 > len(r.data) {
		return 0, false
	}
	var u rune
	for _, c := range r.data[r.pos : r.pos+4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		u = u<<4 | rune(c)
	}
	r.pos += 4
	return u, true
}

// id reads a token id: a whole number from 0 to maxID.
func (r *jsonReader) id() (int32, error) {
	r.peek()
	start := r.pos
	n := int32(0)
	for r.pos < len(r.data) && r.data[r.pos] >= '0' && r.data[r.pos] <= '9' {
		if n = n*10 + int32(r.data[r.pos]-'0'); n > maxID {
			return 0, r.errorf("token id larger than %d", maxID)
		}
		r.pos++
	}
	if r.pos == start || r.data[start] == '0' && r.pos > start+1 {
		return 0, r.errorf("found %s, want a token id", r.found())
	}
	return n, nil
}

// skip reads any value.
func (r *jsonReader) skip() error {
	switch c := r.peek(); {
	case c == '{':
		return r.object(func([]byte) error { return r.skip() })
	case c == '[':
		return r.array(func(int) error { return r.skip() })
	case c == '"':
		_, err := r.str(r.key[:0])
		return err
	case c == '-' || c >= '0' && c <= '9':
		return r.number()
	}
	for _, word := range []string{"null", "true", "false"} {
		if end := r.pos + len(word); end <= len(r.data) && string(r.data[r.pos:end]) == word {
			r.pos = end
			return nil
		}
	}
	return r.errorf("found %s, want a value", r.found())
}

func (r *jsonReader) number() error {
	digits := func() bool {
		start := r.pos
		for r.pos < len(r.data) && r.data[r.pos] >= '0' && r.data[r.pos] <= '9' {
			r.pos++
		}
		return r.pos > start
	}
	at := func(set string) bool {
		for i := range len(set) {
			if r.pos < len(r.data) && r.data[r.pos] == set[i] {
				r.pos++
				return true
			}
		}
		return false
	}
	at("-")
	ok := at("0") || digits()
	if ok && at(".") {
		ok = digits()
	}
	if ok && at("eE") {
		at("+-")
		ok = digits()
	}
	if !ok {
		return r.errorf("bad number")
	}
	return nil
}

// raw reads any value and returns its text.
func (r *jsonReader) raw() ([]byte, error) {
	r.peek()
	start := r.pos
	if err := r.skip(); err != nil {
		return nil, err
	}
	return r.data[start:r.pos], nil
}
