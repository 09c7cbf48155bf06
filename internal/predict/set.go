package predict

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
)

// maxText bounds JSON that does not come from a file, in bytes.
const maxText = 1 << 30

// Set is a set of arrays from one or several sources, by name.
type Set struct {
	Arrays map[string]*Array
	files  []*File
	names  map[string]bool // in the sources
}

// Has reports whether a source has an array that is called so there.
func (s *Set) Has(name string) bool { return s.names[name] }

// Add adds the arrays of a source: a file in one of the formats, JSON itself
// (anything that begins with an opening brace), "-" for JSON from stdin, or
// NAME=FILE.npy. rename changes names: what is called key in the source is
// called value in the set. A name that two sources have is an error.
func (s *Set) Add(source string, stdin io.Reader, rename map[string]string) error {
	f, err := openSource(source, stdin)
	if err != nil {
		return err
	}
	s.files = append(s.files, f)
	if s.Arrays == nil {
		s.Arrays, s.names = map[string]*Array{}, map[string]bool{}
	}
	for _, a := range f.Arrays {
		name := a.Name
		s.names[name] = true
		if to, ok := rename[name]; ok {
			name = to
		}
		if old := s.Arrays[name]; old != nil {
			return fmt.Errorf("%q is both array %v and array %v: rename one of them", name, old, a)
		}
		s.Arrays[name] = a
	}
	return nil
}

func openSource(source string, stdin io.Reader) (*File, error) {
	switch {
	case source == "-":
		if stdin == nil {
			return nil, errors.New("there is no standard input")
		}
		b, err := io.ReadAll(io.LimitReader(stdin, maxText+1))
		if err != nil {
			return nil, fmt.Errorf("standard input: %w", err)
		}
		if len(b) > maxText {
			return nil, fmt.Errorf("standard input: more than %d MiB", maxText>>20)
		}
		return ParseJSON("standard input", b)
	case strings.HasPrefix(strings.TrimSpace(source), "{"):
		return ParseJSON("the command line", []byte(source))
	}
	if name, path, ok := strings.Cut(source, "="); ok && strings.EqualFold(filepath.Ext(path), string(NPY)) {
		f, err := OpenFile(path)
		if err == nil {
			f.Arrays[0].Name = name
		}
		return f, err
	}
	return OpenFile(source)
}

// Names lists the arrays, sorted.
func (s *Set) Names() []string {
	var names []string
	for n := range s.Arrays {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Close closes the files. Elements cannot be read after it.
func (s *Set) Close() error {
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.Close())
	}
	s.files = nil
	return errors.Join(errs...)
}
