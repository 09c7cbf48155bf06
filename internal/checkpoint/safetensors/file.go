package safetensors

import (
	"fmt"
	"os"
	"slices"
	"sync/atomic"

	"anemone/internal/platform"
)

// File is an open safetensors file. Its methods may be called from several
// goroutines at once, except that Close must come after all use.
type File struct {
	path   string
	header *Header
	index  map[string]int
	data   []byte // the whole file, mapped
	closed atomic.Bool
}

// Open maps the file at path into memory and checks its header (see the
// package comment). Errors begin with the path.
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
	h, err := Parse(data, int64(len(data)))
	if err != nil {
		platform.Munmap(data)
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	index := make(map[string]int, len(h.Tensors))
	for i, t := range h.Tensors {
		index[t.Name] = i
	}
	return &File{path: path, header: h, index: index, data: data}, nil
}

// Path returns the path given to [Open].
func (f *File) Path() string { return f.path }

// Size returns the length of the file in bytes.
func (f *File) Size() int64 { return int64(len(f.data)) }

// Tensors describes all tensors in the order of their bytes in the file.
func (f *File) Tensors() []Info { return slices.Clone(f.header.Tensors) }

// Lookup describes the tensor of that name.
func (f *File) Lookup(name string) (Info, bool) {
	i, ok := f.index[name]
	if !ok {
		return Info{}, false
	}
	return f.header.Tensors[i], true
}

// Bytes returns the bytes of a tensor: a read-only view that is valid until
// Close. It need not be aligned to the element's size.
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

// Metadata returns what the file says about itself, nil if nothing. The
// caller must not change it.
func (f *File) Metadata() map[string]string { return f.header.Metadata }

// Close releases the map. Views from Bytes must not be used afterwards. A
// second Close does nothing.
func (f *File) Close() error {
	if f.closed.Swap(true) {
		return nil
	}
	return platform.Munmap(f.data)
}
