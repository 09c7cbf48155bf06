package gguf

import (
	"fmt"
	"io"
	"os"
	"slices"
	"sync/atomic"

	"anemone/internal/platform"
)

// Info describes one tensor of a file.
type Info struct {
	Name string
	Type Type
	// Shape is row-major as Hugging Face has it, the last dimension being the
	// one whose elements are neighbours: ggml's ne, reversed. It is empty for
	// a scalar.
	Shape []int
	// Offset is where the tensor's bytes begin, counted from the start of the
	// file, and Size is their number.
	Offset, Size int64
}

// File is an open GGUF file. Its methods may be called from several
// goroutines at once, except that Close must come after all use.
type File struct {
	path   string
	header *header
	data   []byte // the whole file, mapped
	closed atomic.Bool
}

// IsFile reports whether path is a regular file that begins as GGUF files do.
func IsFile(path string) bool {
	f, err := platform.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var b [len(magic)]byte
	_, err = io.ReadFull(f, b[:])
	return err == nil && string(b[:]) == magic
}

// Open maps the file at path into memory and checks all of its header (see
// the package comment). Errors begin with the path.
func Open(path string) (*File, error) {
	f, err := platform.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // the map outlives it
	data, err := platform.Mmap(f)
	if err != nil {
		return nil, err
	}
	h, err := parse(data)
	if err == nil {
		err = h.checkWhole(data)
	}
	if err != nil {
		platform.Munmap(data)
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &File{path: path, header: h, data: data}, nil
}

// Path returns the path given to [Open].
func (f *File) Path() string { return f.path }

// Version returns the version of the format, 2 or 3.
func (f *File) Version() int { return f.header.version }

// Tensors describes all tensors in the order in which the file lists them.
func (f *File) Tensors() []Info { return slices.Clone(f.header.tensors) }

// Lookup describes the tensor of that name.
func (f *File) Lookup(name string) (Info, bool) {
	i, ok := f.header.index[name]
	if !ok {
		return Info{}, false
	}
	return f.header.tensors[i], true
}

// Bytes returns the bytes of a tensor as they are stored: a read-only view
// that is valid until Close. Rows follow each other without gaps; each is a
// whole number of blocks of the tensor's type.
func (f *File) Bytes(name string) ([]byte, error) {
	t, ok := f.Lookup(name)
	if !ok {
		return nil, fmt.Errorf("%s: no tensor %q", f.path, name)
	}
	if f.closed.Load() {
		return nil, fmt.Errorf("%s: tensor %q: %w", f.path, name, os.ErrClosed)
	}
	end := t.Offset + t.Size
	return f.data[t.Offset:end:end], nil
}

// Close releases the map. Views from Bytes must not be used afterwards. A
// second Close does nothing.
func (f *File) Close() error {
	if f.closed.Swap(true) {
		return nil
	}
	return platform.Munmap(f.data)
}
