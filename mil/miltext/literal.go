package miltext

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"anemone/mil"
)

// literal reads the value of a constant of type t. What t leaves open (an
// unknown dimension or length) is decided by what is found.
func (p *parser) literal(t mil.Type, depth int) (*mil.Literal, error) {
	if depth > maxDepth {
		return nil, errDepth
	}
	l := &mil.Literal{Type: t}
	item := func(t mil.Type) error {
		it, err := p.literal(t, depth+1)
		if err == nil {
			l.Items = append(l.Items, it)
		}
		return err
	}
	switch t.Kind {
	case mil.TensorKind:
		return l, p.tensor(l)
	case mil.ListKind:
		p.skip()
		at := p.at
		if err := p.expect('[', "before the elements of a list"); err != nil {
			return nil, err
		}
		for p.peek() != ']' || len(l.Items) > 0 {
			if err := item(t.Elems[0]); err != nil {
				return nil, err
			}
			if !p.accept(',') {
				break
			}
		}
		if t.Length >= 0 && len(l.Items) != t.Length {
			return nil, failAt(at, "%d elements, want %d of %v", len(l.Items), t.Length, t)
		}
		return l, p.expect(']', "after the elements of a list")
	case mil.TupleKind:
		if err := p.expect('(', "before the elements of a tuple"); err != nil {
			return nil, err
		}
		for i, e := range t.Elems {
			if i > 0 {
				if err := p.expect(',', "between the elements of a tuple"); err != nil {
					return nil, err
				}
			}
			if err := item(e); err != nil {
				return nil, err
			}
		}
		return l, p.expect(')', "after the elements of a tuple")
	case mil.DictKind:
		if err := p.expect('{', "before the entries of a dict"); err != nil {
			return nil, err
		}
		for p.peek() != '}' || len(l.Items) > 0 {
			if err := p.expect('{', "before an entry of a dict"); err != nil {
				return nil, err
			}
			if err := item(t.Elems[0]); err != nil {
				return nil, err
			}
			if err := p.expect(',', "between key and value"); err != nil {
				return nil, err
			}
			if err := item(t.Elems[1]); err != nil {
				return nil, err
			}
			if err := p.expect('}', "after an entry of a dict"); err != nil {
				return nil, err
			}
			if !p.accept(',') {
				break
			}
		}
		return l, p.expect('}', "after the entries of a dict")
	}
	return nil, fmt.Errorf("a value of type %v cannot be written in the program", t)
}

// tensor reads the elements of l, in brackets by its shape.
func (p *parser) tensor(l *mil.Literal) error {
	shape := l.Type.Shape
	d := l.Type.DType
	var elem func() error
	switch {
	case d == mil.Bool:
		elem = func() error {
			v, err := p.bool()
			l.Bools = append(l.Bools, v)
			return err
		}
	case d == mil.String:
		elem = func() error {
			v, err := p.str()
			l.Strings = append(l.Strings, v)
			return err
		}
	case d.IsFloat():
		elem = func() error {
			v, err := p.float(d)
			l.Floats = append(l.Floats, v)
			return err
		}
	default:
		elem = func() error {
			v, err := p.int(d)
			l.Ints = append(l.Ints, v)
			return err
		}
	}
	if len(shape) == 0 {
		return elem()
	}
	// What is found decides the dimensions that are not known.
	seen := make([]int, len(shape))
	for i := range seen {
		seen[i] = max(shape[i], mil.Dynamic)
	}
	var level func(k int) error
	level = func(k int) error {
		p.skip()
		at := p.at
		if err := p.expect('[', "before the elements of a tensor"); err != nil {
			return err
		}
		n := 0
		for p.peek() != ']' || n > 0 {
			if n == seen[k] {
				return fmt.Errorf("more than %d elements in dimension %d of a literal of type %v", n, k, l.Type)
			}
			var err error
			if k+1 < len(seen) {
				err = level(k + 1)
			} else {
				err = elem()
			}
			if err != nil {
				return err
			}
			n++
			if !p.accept(',') {
				break
			}
		}
		if seen[k] < 0 {
			seen[k] = n
		}
		if n != seen[k] {
			return failAt(at, "%d elements in dimension %d of a literal of type %v", n, k, l.Type)
		}
		return p.expect(']', "after the elements of a tensor")
	}
	if err := level(0); err != nil {
		return err
	}
	for i := range seen {
		seen[i] = max(seen[i], 0) // below a dimension of no elements
	}
	l.Type.Shape = seen
	return nil
}

func (p *parser) bool() (bool, error) {
	p.skip()
	at := p.at
	if c := p.peek(); c == 't' || c == 'f' {
		switch word, _ := p.name(""); string(word) {
		case "true":
			return true, nil
		case "false":
			return false, nil
		}
		p.at = at
	}
	return false, fmt.Errorf("want true or false, found %s", p.found())
}

// number returns the text up to what ends a number.
func (p *parser) number(what string) ([]byte, error) {
	p.skip()
	start := p.at
	for p.at < len(p.b) {
		c := p.b[p.at]
		if c == '-' || c == '+' || c == '.' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
			p.at++
			continue
		}
		break
	}
	if p.at == start {
		return nil, fmt.Errorf("want %s, found %s", what, p.found())
	}
	return p.b[start:p.at], nil
}

// short keeps a hostile number out of messages.
func short(b []byte) string {
	if len(b) > 32 {
		return strconv.Quote(string(b[:32])) + "..."
	}
	return strconv.Quote(string(b))
}

func (p *parser) int(d mil.DType) (int64, error) {
	p.skip()
	at := p.at
	b, err := p.number("an integer")
	if err != nil {
		return 0, err
	}
	bad := func() (int64, error) { return 0, failAt(at, "%s is no %v number", short(b), d) }
	digits := b
	neg := digits[0] == '-'
	if neg {
		digits = digits[1:]
	}
	if len(digits) == 0 {
		return bad()
	}
	var n uint64
	for _, c := range digits {
		if c < '0' || c > '9' || n > (math.MaxUint64-uint64(c-'0'))/10 {
			return bad()
		}
		n = n*10 + uint64(c-'0')
	}
	if d == mil.UInt64 {
		if neg && n != 0 {
			return bad()
		}
		return int64(n), nil
	}
	v := int64(n)
	switch {
	case neg && n <= 1<<63:
		v = -v
	case n > math.MaxInt64:
		return bad()
	}
	if !intFits(v, d) {
		return bad()
	}
	return v, nil
}

var errFloat = errors.New("not a number")

func (p *parser) float(d mil.DType) (float64, error) {
	p.skip()
	at := p.at
	b, err := p.number("a number")
	if err != nil {
		return 0, err
	}
	v, err := parseFloat(b)
	if err != nil {
		return 0, failAt(at, "%s is no %v number", short(b), d)
	}
	r := roundFloat(v, d)
	if math.IsInf(r, 0) && !math.IsInf(v, 0) {
		return 0, failAt(at, "%s is out of the range of %v", short(b), d)
	}
	return r, nil
}

func parseFloat(b []byte) (float64, error) {
	if v, ok := hexFloat(b); ok {
		return v, nil
	}
	switch string(b) {
	case "inf", "+inf":
		return math.Inf(1), nil
	case "-inf":
		return math.Inf(-1), nil
	case "nan", "+nan":
		return math.NaN(), nil
	case "-nan":
		return math.Copysign(math.NaN(), -1), nil
	}
	if len(b) > 400 { // no number needs as many digits
		return 0, errFloat
	}
	return strconv.ParseFloat(string(b), 64)
}

// hexFloat reads the form that the printer writes; ok is false for any other.
func hexFloat(b []byte) (v float64, ok bool) {
	neg := false
	if len(b) > 0 && b[0] == '-' {
		neg, b = true, b[1:]
	}
	if len(b) < 6 || b[0] != '0' || b[1] != 'x' || b[2] != '0' && b[2] != '1' {
		return 0, false
	}
	mant := uint64(b[2] - '0')
	b = b[3:]
	exp := 0
	if b[0] == '.' {
		i := 1
		for ; i < len(b); i++ {
			c := b[i]
			switch {
			case c >= '0' && c <= '9':
				c -= '0'
			case c >= 'a' && c <= 'f':
				c -= 'a' - 10
			default:
				c = 16
			}
			if c == 16 {
				break
			}
			mant = mant<<4 | uint64(c)
		}
		if i == 1 || i > 14 { // at most 13 digits are exact
			return 0, false
		}
		exp = -4 * (i - 1)
		b = b[i:]
	}
	if len(b) < 3 || b[0] != 'p' || b[1] != '+' && b[1] != '-' || len(b) > 6 {
		return 0, false
	}
	e := 0
	for _, c := range b[2:] {
		if c < '0' || c > '9' {
			return 0, false
		}
		e = e*10 + int(c-'0')
	}
	if b[1] == '-' {
		e = -e
	}
	if e < -1000 || e > 1000 { // near where float64 ends
		return 0, false
	}
	v = math.Ldexp(float64(mant), e+exp)
	if neg {
		v = -v
	}
	return v, true
}

// str reads a quoted string.
func (p *parser) str() (string, error) {
	p.skip()
	start := p.at
	if err := p.expect('"', "before a string"); err != nil {
		return "", err
	}
	from := p.at
	var buf []byte // once there is an escape
	for p.at < len(p.b) {
		switch p.b[p.at] {
		case '"':
			raw := p.b[from:p.at]
			p.at++
			if buf != nil {
				raw = append(buf, raw...)
			}
			if !utf8.Valid(raw) {
				return "", failAt(start, "string is not UTF-8")
			}
			return string(raw), nil
		case '\\':
			if p.at+1 >= len(p.b) {
				return "", failAt(start, "string has no end")
			}
			c := p.b[p.at+1]
			switch c {
			case '"', '\\':
			case 'n':
				c = '\n'
			case 't':
				c = '\t'
			case 'r':
				c = '\r'
			default:
				return "", failAt(p.at, "escape \\%c in a string is not known", c)
			}
			buf = append(append(buf, p.b[from:p.at]...), c)
			p.at += 2
			from = p.at
		default:
			p.at++
		}
	}
	return "", failAt(start, "string has no end")
}
