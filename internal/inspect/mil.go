package inspect

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"anemone/coreml"
	"anemone/mil"
	"anemone/mil/miltext"
)

// WriteMIL writes the program of a model as text, or only one function of it.
// Long literals are shortened, and so no longer what a compiler would read,
// unless full is set. Where weights lie is asked of where.
func WriteMIL(w io.Writer, m *coreml.Model, where coreml.Stored, function string, full bool) error {
	p := m.Program
	if function != "" {
		f := p.Function(function)
		if f == nil {
			return fmt.Errorf("there is no function %q", function)
		}
		p = &mil.Program{Functions: []*mil.Function{f}, Attributes: p.Attributes}
	}
	opt := miltext.PrintOptions{Dialect: miltext.DialectOf(m.SpecVersion), Blob: func(x mil.Weight) (miltext.BlobRef, error) {
		if where != nil {
			if file, offset, ok := where.WeightRef(x); ok {
				return miltext.BlobRef{File: file, Offset: offset}, nil
			}
		}
		return miltext.BlobRef{}, errors.New("a weight is in none of the model's files")
	}}
	b := bufio.NewWriterSize(w, 1<<16)
	var dst io.Writer = b
	if !full {
		dst = &shortener{w: b}
	}
	if err := miltext.Print(dst, p, opt); err != nil {
		return err
	}
	b.WriteByte('\n')
	return b.Flush()
}

// Literals of more than longLiteral values are shown by their first ones.
const (
	longLiteral  = 16
	shownLiteral = 8
)

// shortener passes a text on, and shortens the lists of literals in it: what
// stands between "([" and "])". A type's dimensions are no such list.
type shortener struct {
	w *bufio.Writer
	// The list that is being read: what there is of it (from the opening
	// bracket on), where it may be cut and how deep in brackets that is, and
	// how many values have been seen.
	list   []byte
	cut    int
	cutIn  int
	values int
	depth  int
	last   byte // character before
	quoted bool
	escape bool
}

func (s *shortener) Write(p []byte) (int, error) {
	for _, c := range p {
		s.put(c)
	}
	return len(p), nil // the writer keeps its error until Flush
}

func (s *shortener) put(c byte) {
	open := c == '[' && s.last == '(' && !s.quoted
	switch {
	case s.escape:
		s.escape = false
	case s.quoted && c == '\\':
		s.escape = true
	case c == '"':
		s.quoted = !s.quoted
	}
	s.last = c
	if s.depth == 0 {
		if !open {
			s.w.WriteByte(c)
			return
		}
		s.list, s.cut, s.values, s.depth = append(s.list[:0], c), 0, 1, 1
		return
	}
	if s.values <= longLiteral {
		s.list = append(s.list, c)
	}
	if s.quoted || s.escape {
		return
	}
	switch c {
	case '[':
		s.depth++
	case ']':
		if s.depth--; s.depth == 0 {
			s.end()
		}
	case ',':
		s.values++
		if s.values == shownLiteral+1 {
			s.cut, s.cutIn = len(s.list), s.depth // behind the comma
		}
	}
}

// end writes the list, shortened if it is long.
func (s *shortener) end() {
	if s.values <= longLiteral {
		s.w.Write(s.list)
		return
	}
	s.w.Write(s.list[:s.cut])
	fmt.Fprintf(s.w, " ... %d more%s", s.values-shownLiteral, strings.Repeat("]", s.cutIn))
}
