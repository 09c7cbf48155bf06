package safetensors

import (
	"errors"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// A scanner reads JSON strictly, as the header needs it: keys in order, none
// merged or repaired. (encoding/json keeps the last of two equal keys and
// replaces broken strings, so two different headers could look alike.)
type scanner struct {
	b []byte
	i int
}

// maxDepth bounds the nesting of values that are skipped.
const maxDepth = 64

func (s *scanner) errorf(format string, args ...any) error {
	return fmt.Errorf("at byte %d: %s", s.i, fmt.Sprintf(format, args...))
}

func (s *scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

// peek returns the next byte after white space, or 0 at the end.
func (s *scanner) peek() byte {
	s.space()
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

// take consumes c if it comes next after white space.
func (s *scanner) take(c byte) bool {
	if s.peek() != c || s.i >= len(s.b) {
		return false
	}
	s.i++
	return true
}

func (s *scanner) want(c byte) error {
	if s.take(c) {
		return nil
	}
	if s.i >= len(s.b) {
		return s.errorf("the header ends where %q should be", c)
	}
	return s.errorf("found %q, want %q", s.b[s.i], c)
}

// literal consumes word if it comes next.
func (s *scanner) literal(word string) bool {
	s.space()
	if len(s.b)-s.i < len(word) || string(s.b[s.i:s.i+len(word)]) != word {
		return false
	}
	s.i += len(word)
	return true
}

// object reads an object and calls value for each key, to read its value.
func (s *scanner) object(value func(key string) error) error {
	if err := s.want('{'); err != nil {
		return err
	}
	if s.take('}') {
		return nil
	}
	for {
		key, err := s.string()
		if err != nil {
			return err
		}
		if err := s.want(':'); err != nil {
			return err
		}
		if err := value(key); err != nil {
			return err
		}
		if s.take(',') {
			continue
		}
		return s.want('}')
	}
}

// array reads an array and calls element for each index, to read its value.
func (s *scanner) array(what string, element func(i int) error) error {
	if err := s.want('['); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if s.take(']') {
		return nil
	}
	for i := 0; ; i++ {
		if err := element(i); err != nil {
			return err
		}
		if s.take(',') {
			continue
		}
		if err := s.want(']'); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	}
}

func (s *scanner) string() (string, error) {
	if err := s.want('"'); err != nil {
		return "", err
	}
	start := s.i
	for s.i < len(s.b) {
		switch c := s.b[s.i]; {
		case c == '"':
			v := s.b[start:s.i]
			s.i++
			if !utf8.Valid(v) {
				return "", s.errorf("string is not UTF-8")
			}
			return string(v), nil
		case c == '\\':
			return s.escaped(start)
		case c < 0x20:
			return "", s.errorf("control character in a string")
		}
		s.i++
	}
	return "", s.errorf("the header ends inside a string")
}

// escaped goes on with a string that began at start and has its first
// backslash at s.i.
func (s *scanner) escaped(start int) (string, error) {
	v := append([]byte(nil), s.b[start:s.i]...)
	for s.i < len(s.b) {
		c := s.b[s.i]
		s.i++
		switch {
		case c == '"':
			if !utf8.Valid(v) {
				return "", s.errorf("string is not UTF-8")
			}
			return string(v), nil
		case c < 0x20:
			return "", s.errorf("control character in a string")
		case c != '\\':
			v = append(v, c)
			continue
		}
		if s.i >= len(s.b) {
			break
		}
		c = s.b[s.i]
		s.i++
		switch c {
		case '"', '\\', '/':
			v = append(v, c)
		case 'b':
			v = append(v, '\b')
		case 'f':
			v = append(v, '\f')
		case 'n':
			v = append(v, '\n')
		case 'r':
			v = append(v, '\r')
		case 't':
			v = append(v, '\t')
		case 'u':
			r, err := s.hex4()
			if err != nil {
				return "", err
			}
			if utf16.IsSurrogate(r) {
				if len(s.b)-s.i < 2 || s.b[s.i] != '\\' || s.b[s.i+1] != 'u' {
					return "", s.errorf("half a surrogate pair")
				}
				s.i += 2
				low, err := s.hex4()
				if err != nil {
					return "", err
				}
				if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
					return "", s.errorf("broken surrogate pair")
				}
			}
			v = utf8.AppendRune(v, r)
		default:
			return "", s.errorf("unknown escape \\%c", c)
		}
	}
	return "", s.errorf("the header ends inside a string")
}

func (s *scanner) hex4() (rune, error) {
	if len(s.b)-s.i < 4 {
		return 0, s.errorf("the header ends inside a string")
	}
	var r rune
	for _, c := range s.b[s.i : s.i+4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, s.errorf("bad \\u escape")
		}
		r = r<<4 | rune(c)
	}
	s.i += 4
	return r, nil
}

// skip reads any value and forgets it.
func (s *scanner) skip(depth int) error {
	if depth > maxDepth {
		return errors.New("values nest too deep")
	}
	switch c := s.peek(); {
	case c == '{':
		return s.object(func(string) error { return s.skip(depth + 1) })
	case c == '[':
		return s.array("array", func(int) error { return s.skip(depth + 1) })
	case c == '"':
		_, err := s.string()
		return err
	case c == '-' || '0' <= c && c <= '9':
		return s.number()
	case s.literal("true"), s.literal("false"), s.literal("null"):
		return nil
	}
	return s.errorf("want a JSON value")
}

// number reads a JSON number and forgets it.
func (s *scanner) number() error {
	digits := func() bool {
		start := s.i
		for s.i < len(s.b) && '0' <= s.b[s.i] && s.b[s.i] <= '9' {
			s.i++
		}
		return s.i > start
	}
	at := func(set string) bool {
		for k := range len(set) {
			if s.i < len(s.b) && s.b[s.i] == set[k] {
				s.i++
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
		return s.errorf("bad number")
	}
	return nil
}
