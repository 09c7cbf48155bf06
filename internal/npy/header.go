package npy

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// parseHeader reads the dictionary of a header: the keys descr,
// fortran_order and shape, each once, in any order.
func parseHeader(s string) (*Header, error) {
	p := &parser{s: strings.TrimRight(s, " \n\x00")}
	h := &Header{}
	var seen [3]bool
	once := func(i int, key string) error {
		if seen[i] {
			return fmt.Errorf("key %q occurs twice", key)
		}
		seen[i] = true
		return nil
	}
	if err := p.want('{'); err != nil {
		return nil, err
	}
	for !p.take('}') {
		key, err := p.string()
		if err != nil {
			return nil, err
		}
		if err := p.want(':'); err != nil {
			return nil, err
		}
		switch key {
		case "descr":
			if err = once(0, key); err == nil {
				err = p.descr(h)
			}
		case "fortran_order":
			if err = once(1, key); err == nil {
				h.Fortran, err = p.bool()
			}
		case "shape":
			if err = once(2, key); err == nil {
				h.Shape, err = p.shape()
			}
		default:
			err = errors.New("unknown key")
		}
		if err != nil {
			return nil, fmt.Errorf("%q: %w", key, err)
		}
		if !p.take(',') {
			if err := p.want('}'); err != nil {
				return nil, err
			}
			break
		}
	}
	if p.space(); p.i < len(p.s) {
		return nil, fmt.Errorf("at byte %d: data after the dictionary", p.i)
	}
	for i, key := range []string{"descr", "fortran_order", "shape"} {
		if !seen[i] {
			return nil, fmt.Errorf("no key %q", key)
		}
	}
	return h, nil
}

// parser reads the few Python literals that occur in headers.
type parser struct {
	s string
	i int
}

func (p *parser) space() {
	for p.i < len(p.s) && strings.IndexByte(" \t\r\n", p.s[p.i]) >= 0 {
		p.i++
	}
}

func (p *parser) peek() byte {
	p.space()
	if p.i < len(p.s) {
		return p.s[p.i]
	}
	return 0
}

func (p *parser) take(c byte) bool {
	if p.peek() != c || p.i >= len(p.s) {
		return false
	}
	p.i++
	return true
}

func (p *parser) want(c byte) error {
	if p.take(c) {
		return nil
	}
	if p.i >= len(p.s) {
		return fmt.Errorf("ends where %q should be", c)
	}
	return fmt.Errorf("at byte %d: found %q, want %q", p.i, p.s[p.i], c)
}

func (p *parser) string() (string, error) {
	quote := p.peek()
	if quote != '\'' && quote != '"' {
		return "", fmt.Errorf("at byte %d: want a string", p.i)
	}
	p.i++
	end := strings.IndexByte(p.s[p.i:], quote)
	if end < 0 {
		return "", errors.New("ends inside a string")
	}
	v := p.s[p.i : p.i+end]
	if strings.IndexByte(v, '\\') >= 0 {
		return "", fmt.Errorf("at byte %d: strings with backslashes are not supported", p.i)
	}
	p.i += end + 1
	return v, nil
}

func (p *parser) bool() (bool, error) {
	p.space()
	for _, v := range []struct {
		word  string
		value bool
	}{{"True", true}, {"False", false}} {
		if strings.HasPrefix(p.s[p.i:], v.word) {
			p.i += len(v.word)
			return v.value, nil
		}
	}
	return false, fmt.Errorf("at byte %d: want True or False", p.i)
}

// shape reads a tuple of dimensions: (), (3,) or (3, 4). Python 2 wrote long
// ones as 3L.
func (p *parser) shape() ([]int, error) {
	if err := p.want('('); err != nil {
		return nil, err
	}
	var shape []int
	for !p.take(')') {
		n, digits := 0, 0
		for p.space(); p.i < len(p.s) && '0' <= p.s[p.i] && p.s[p.i] <= '9'; p.i++ {
			d := int(p.s[p.i] - '0')
			if n > (math.MaxInt-d)/10 {
				return nil, fmt.Errorf("at byte %d: dimension is too large", p.i)
			}
			n = 10*n + d
			digits++
		}
		if digits == 0 {
			return nil, fmt.Errorf("at byte %d: want a dimension", p.i)
		}
		if p.i < len(p.s) && p.s[p.i] == 'L' {
			p.i++
		}
		if shape = append(shape, n); len(shape) > maxRank {
			return nil, fmt.Errorf("more than %d dimensions", maxRank)
		}
		if p.take(',') {
			continue
		}
		if len(shape) == 1 {
			return nil, fmt.Errorf("at byte %d: a number in parentheses, want a tuple", p.i)
		}
		if err := p.want(')'); err != nil {
			return nil, err
		}
		break
	}
	return shape, nil
}

// descr reads an element type, such as '<f4'.
func (p *parser) descr(h *Header) error {
	if c := p.peek(); c == '[' || c == '(' {
		return errors.New("arrays of records are not supported: save their fields as arrays of their own")
	}
	s, err := p.string()
	if err != nil {
		return err
	}
	code := s
	if s != "" && strings.IndexByte("<>=|", s[0]) >= 0 {
		code = s[1:]
		h.BigEndian = s[0] == '>'
	}
	var ok bool
	if h.DType, ok = dtypes[code]; ok {
		return nil
	}
	what := "elements of an unknown type"
	if code != "" {
		switch code[0] {
		case 'O':
			what = "Python objects, which are programs: they are never loaded"
		case 'S', 'a', 'U':
			what = "strings"
		case 'M', 'm':
			what = "dates or durations"
		case 'c':
			what = "complex numbers"
		case 'V':
			what = "raw bytes (which is how bfloat16 is saved): convert to float32 before saving"
		case 'f':
			what = "wide floating-point numbers"
		}
	}
	return fmt.Errorf("type %q is not supported: %s", s, what)
}
