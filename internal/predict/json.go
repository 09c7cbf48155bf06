package predict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"anemone/mil"
)

// maxDepth bounds the nesting of lists, and so the rank of arrays.
const maxDepth = 32

// parseJSON finds the arrays of a JSON object. It checks the whole text and
// takes no memory for the numbers, which are read from the text when they
// are used.
func parseJSON(b []byte) ([]*Array, error) {
	s := &scanner{b: b}
	var arrays []*Array
	seen := map[string]bool{}
	err := s.object(func(key string) error {
		if seen[key] {
			return fmt.Errorf("array %q is given twice", key)
		}
		seen[key] = true
		a := &Array{Name: key, text: true}
		if err := s.array(a); err != nil {
			return fmt.Errorf("array %q: %w", key, err)
		}
		arrays = append(arrays, a)
		return nil
	})
	if s.peek(); err == nil && s.i < len(b) {
		err = s.errorf("text after the object")
	}
	return arrays, err
}

type scanner struct {
	b []byte
	i int
}

func (s *scanner) errorf(format string, args ...any) error {
	line := 1 + bytes.Count(s.b[:min(s.i, len(s.b))], []byte{'\n'})
	return fmt.Errorf("line %d: "+format, append([]any{line}, args...)...)
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// peek returns the next byte after white space, or 0 at the end.
func (s *scanner) peek() byte {
	for s.i < len(s.b) && isSpace(s.b[s.i]) {
		s.i++
	}
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

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
		return s.errorf("the text ends where %q should be", c)
	}
	return s.errorf("found %q, want %q", s.b[s.i], c)
}

// object reads an object and calls value to read the value of each key.
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
		if !s.take(',') {
			return s.want('}')
		}
	}
}

func (s *scanner) string() (string, error) {
	if s.peek() != '"' {
		return "", s.want('"')
	}
	start := s.i
	for s.i++; s.i < len(s.b) && s.b[s.i] != '"'; s.i++ {
		if s.b[s.i] == '\\' {
			s.i++
		}
	}
	if s.i >= len(s.b) {
		return "", s.errorf("the text ends inside a string")
	}
	s.i++
	var v string
	if err := json.Unmarshal(s.b[start:s.i], &v); err != nil || !utf8.Valid(s.b[start:s.i]) {
		return "", s.errorf("%s is not a string", s.b[start:s.i])
	}
	return v, nil
}

// array reads what an array may be.
func (s *scanner) array(a *Array) error {
	if s.peek() != '{' {
		return s.list(a)
	}
	var shape []int
	var label mil.DType
	seen := map[string]bool{}
	err := s.object(func(key string) error {
		if seen[key] {
			return s.errorf("%q is given twice", key)
		}
		seen[key] = true
		switch key {
		case "data":
			return s.list(a)
		case "dtype":
			v, err := s.string()
			if err != nil {
				return err
			}
			var ok bool
			if label, ok = parseDType(v); !ok {
				return s.errorf("dtype %q is unknown: want one such as fp16, fp32, int32 or bool", v)
			}
			return nil
		case "shape":
			return s.shape(&shape)
		}
		return s.errorf("key %q is unknown: want shape, data and perhaps dtype", key)
	})
	if err != nil {
		return err
	}
	if !seen["shape"] || !seen["data"] {
		return s.errorf("want both shape and data, or a list")
	}
	n, ok := mil.NumElements(shape)
	if have, _ := mil.NumElements(a.Shape); !ok || n != have {
		return s.errorf("%d elements, but shape %v has another number", have, shape)
	}
	if label != mil.InvalidDType {
		a.DType = label
	}
	a.Shape = shape
	return nil
}

func (s *scanner) shape(shape *[]int) error {
	var a Array
	if err := s.list(&a); err != nil {
		return err
	}
	if len(a.Shape) != 1 || a.DType != mil.Int64 {
		return s.errorf("the shape is not a list of numbers")
	}
	if a.Shape[0] > maxDepth {
		return s.errorf("%d dimensions, more than %d", a.Shape[0], maxDepth)
	}
	b, err := a.load()
	if err != nil {
		return err
	}
	return eachJSON(b, 64, func(_ int, x number) error {
		v, ok := x.integer()
		if !ok || v < 0 || v > math.MaxInt {
			return s.errorf("dimension %v is no size", x)
		}
		*shape = append(*shape, int(v))
		return nil
	})
}

// parseDType knows the names of MIL and of NumPy.
func parseDType(name string) (mil.DType, bool) {
	switch name {
	case "float16":
		return mil.Float16, true
	case "float32":
		return mil.Float32, true
	case "float64":
		return mil.Float64, true
	}
	d, ok := mil.ParseDType(name)
	return d, ok && d != mil.String
}

// list reads nested lists of numbers, all of one shape, or a number alone.
func (s *scanner) list(a *Array) error {
	c := s.peek()
	start := s.i
	l := lists{s: s, leaf: -1}
	var err error
	if c == '[' {
		err = l.read(0)
	} else {
		err = l.element()
	}
	if err != nil {
		return err
	}
	a.Shape = l.dims
	text := s.b[start:s.i:s.i]
	a.load = func() ([]byte, error) { return text, nil }
	switch {
	case l.bools && l.numbers:
		return s.errorf("both numbers and true or false")
	case l.bools:
		a.DType = mil.Bool
	case l.fraction:
		a.DType = mil.Float64
	default:
		a.DType = mil.Int64
	}
	return nil
}

type lists struct {
	s       *scanner
	dims    []int // -1 while the first list of that depth is open
	leaf    int   // depth of the elements, -1 while unknown
	numbers bool
	bools   bool
	// fraction says that a number is written with a fraction or exponent, or
	// is none.
	fraction bool
}

var errRagged = errors.New("the lists do not make an array: their lengths differ")

func (l *lists) read(depth int) error {
	s := l.s
	s.i++ // [
	if depth >= maxDepth {
		return s.errorf("lists nest deeper than %d", maxDepth)
	}
	if depth == l.leaf {
		return s.errorf("%w", errRagged)
	}
	if depth == len(l.dims) {
		l.dims = append(l.dims, -1)
	}
	n := 0
	if !s.take(']') {
		for {
			n++
			var err error
			if s.peek() == '[' {
				err = l.read(depth + 1)
			} else if l.leaf < 0 && depth+1 == len(l.dims) {
				l.leaf = depth + 1
				err = l.element()
			} else if l.leaf == depth+1 {
				err = l.element()
			} else {
				err = s.errorf("%w", errRagged)
			}
			if err != nil {
				return err
			}
			if s.take(',') {
				continue
			}
			if err := s.want(']'); err != nil {
				return err
			}
			break
		}
	}
	if l.dims[depth] < 0 {
		l.dims[depth] = n
	}
	if l.dims[depth] != n {
		return s.errorf("%w (%d and %d)", errRagged, l.dims[depth], n)
	}
	return nil
}

// element reads a number, true, false, or the word for what is no number.
func (l *lists) element() error {
	s := l.s
	s.peek()
	t := token(s.b[s.i:])
	if len(t) == 0 {
		if s.i >= len(s.b) {
			return s.errorf("the text ends where a number should be")
		}
		return s.errorf("found %q, want a number, true or false", s.b[s.i])
	}
	switch {
	case string(t) == "true" || string(t) == "false":
		l.bools = true
	case special(t) != nil:
		l.numbers, l.fraction = true, true
	case !isNumber(t):
		return s.errorf("%s is not a number", t[:min(len(t), 64)])
	default:
		l.numbers = true
		l.fraction = l.fraction || bytes.ContainsAny(t, ".eE")
	}
	s.i += len(t)
	return nil
}

// token returns the element at the start of b: all up to a comma, bracket or
// white space. Words in quotation marks have none of these.
func token(b []byte) []byte {
	for i, c := range b {
		if isSpace(c) || strings.IndexByte(",[]{}:", c) >= 0 {
			return b[:i]
		}
	}
	return b
}

var words = map[string]float64{
	"NaN": math.NaN(), "Infinity": math.Inf(1), "-Infinity": math.Inf(-1),
	`"NaN"`: math.NaN(), `"Infinity"`: math.Inf(1), `"-Infinity"`: math.Inf(-1),
	`"nan"`: math.NaN(), `"inf"`: math.Inf(1), `"-inf"`: math.Inf(-1),
}

func special(t []byte) *float64 {
	if f, ok := words[string(t)]; ok {
		return &f
	}
	return nil
}

// isNumber checks JSON's grammar of numbers.
func isNumber(t []byte) bool {
	i := 0
	digits := func() bool {
		start := i
		for i < len(t) && '0' <= t[i] && t[i] <= '9' {
			i++
		}
		return i > start
	}
	at := func(set string) bool {
		if i < len(t) && strings.IndexByte(set, t[i]) >= 0 {
			i++
			return true
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
	return ok && i == len(t)
}

// eachJSON calls visit with the elements of a text that list has checked.
// Decimals are rounded to a precision of bits.
func eachJSON(b []byte, bits int, visit func(i int, n number) error) error {
	for i, k := 0, 0; k < len(b); {
		t := token(b[k:])
		if len(t) == 0 {
			k++
			continue
		}
		k += len(t)
		if err := visit(i, parseNumber(t, bits)); err != nil {
			return err
		}
		i++
	}
	return nil
}

func parseNumber(t []byte, bits int) number {
	switch string(t) {
	case "true":
		return whole(1)
	case "false":
		return whole(0)
	}
	if f := special(t); f != nil {
		return number{float: true, f: *f}
	}
	if string(t) != "-0" {
		if v, err := strconv.ParseInt(string(t), 10, 64); err == nil {
			return whole(v)
		}
	}
	f, err := strconv.ParseFloat(string(t), bits)
	if err != nil || f == 0 {
		// Out of range: the precise value, so that narrow can count it.
		if f, err = strconv.ParseFloat(string(t), 64); err != nil {
			f = math.Copysign(math.MaxFloat64, f)
		}
	}
	return number{float: true, f: f}
}

// appendString appends a string without the escapes for HTML that the
// standard encoder adds.
func appendString(dst []byte, v string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(v) // cannot fail: a string, a buffer
	return append(dst, bytes.TrimSuffix(b.Bytes(), []byte{'\n'})...)
}

// appendJSON appends the elements of a value that was packed by pack.
func appendJSON(dst []byte, v *Value) []byte {
	get, err := element(v.DType)
	if err != nil {
		return dst // pack gives no other
	}
	size := v.DType.Bits() / 8
	for k := 0; k < len(v.Data); k += size {
		if k > 0 {
			dst = append(dst, ',')
		}
		switch n := get(v.Data[k:]); {
		case v.DType == mil.Bool:
			dst = strconv.AppendBool(dst, n.i != 0)
		case !n.float:
			dst = strconv.AppendInt(dst, n.i, 10)
		case math.IsNaN(n.f):
			dst = append(dst, `"NaN"`...)
		case math.IsInf(n.f, 1):
			dst = append(dst, `"Infinity"`...)
		case math.IsInf(n.f, -1):
			dst = append(dst, `"-Infinity"`...)
		case v.DType == mil.Float64:
			dst = strconv.AppendFloat(dst, n.f, 'g', -1, 64)
		default:
			dst = strconv.AppendFloat(dst, n.f, 'g', -1, 32)
		}
	}
	return dst
}
