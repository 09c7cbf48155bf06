package npy

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"strings"
	"unicode/utf8"
)

const suffix = ".npy"

// Archive is an open .npz file. Its methods may be called from several
// goroutines at once, except that Close must come after all use.
type Archive struct {
	entries []*Entry
	closer  io.Closer
}

// Entry is one array of an archive.
type Entry struct {
	Name string // without .npy
	// Header is known without reading the elements.
	Header Header
	// Err says why the array cannot be read; nil if it can, as far as its
	// header shows. The others of an archive are not affected.
	Err error

	file *zip.File
	size int // of header and elements
	skip int // bytes before the elements
}

// OpenZip opens the .npz file at path and reads the headers of its arrays.
// Errors begin with the path.
func OpenZip(path string) (*Archive, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	var a *Archive
	if err == nil {
		a, err = NewArchive(f, st.Size())
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	a.closer = f
	return a, nil
}

// NewArchive reads the directory of a .npz file of the given size and the
// headers of its arrays. Entries that are no .npy files are left out, as are
// folders.
func NewArchive(r io.ReaderAt, size int64) (*Archive, error) {
	z, err := zip.NewReader(r, size)
	// A name with ".." is nothing to fear for us, who create no files.
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) {
		return nil, fmt.Errorf("not a .npz file: %w", err)
	}
	a := &Archive{}
	seen := map[string]bool{}
	for _, f := range z.File {
		name, ok := strings.CutSuffix(f.Name, suffix)
		if !ok {
			continue
		}
		if seen[name] {
			return nil, fmt.Errorf("array %q occurs twice", name)
		}
		seen[name] = true
		e := &Entry{Name: name, file: f}
		e.Err = e.open()
		a.entries = append(a.entries, e)
	}
	return a, nil
}

// Entries lists the arrays in the order of the archive.
func (a *Archive) Entries() []*Entry { return a.entries }

// Entry returns the array of that name, nil if there is none.
func (a *Archive) Entry(name string) *Entry {
	for _, e := range a.entries {
		if e.Name == name {
			return e
		}
	}
	return nil
}

// Close closes the file.
func (a *Archive) Close() error {
	if a.closer == nil {
		return nil
	}
	return a.closer.Close()
}

// open reads the header.
func (e *Entry) open() error {
	if e.file.UncompressedSize64 > math.MaxInt {
		return errors.New("too large")
	}
	e.size = int(e.file.UncompressedSize64)
	if m := e.file.Method; m != zip.Store && m != zip.Deflate {
		return fmt.Errorf("compression method %d is not supported, want stored or deflated", m)
	}
	if e.file.Flags&1 != 0 {
		return errors.New("encrypted archives are not supported")
	}
	r, err := e.file.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	c := &counter{r: r}
	h, err := ReadHeader(c)
	if err != nil {
		return broken(err)
	}
	e.Header, e.skip = *h, c.n
	switch n, ok := h.Bytes(); {
	case !ok || n > math.MaxInt-e.skip:
		return fmt.Errorf("an array of shape %v and type %v is too large", h.Shape, h.DType)
	case n+e.skip != e.size:
		return fmt.Errorf("shape %v and type %v take %d bytes, but the entry has %d behind its header", h.Shape, h.DType, n, e.size-e.skip)
	}
	return nil
}

type counter struct {
	r io.Reader
	n int
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += n
	return n, err
}

// broken explains errors of the archive's compression.
func broken(err error) error {
	var corrupt flate.CorruptInputError
	if errors.As(err, &corrupt) || errors.Is(err, zip.ErrChecksum) || errors.Is(err, zip.ErrFormat) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the archive is damaged: %w", err)
	}
	return err
}

// Read reads the elements, whose size Header has. The memory that this takes
// grows with what is really there, so that a small file that claims to hold
// a large array costs nothing; but a deflated one may be a thousand times
// larger than its file: check the shape first.
func (e *Entry) Read() (*Array, error) {
	if e.Err != nil {
		return nil, fmt.Errorf("array %q: %w", e.Name, e.Err)
	}
	b, err := e.read()
	if err != nil {
		return nil, fmt.Errorf("array %q: %w", e.Name, broken(err))
	}
	return e.Header.array(b), nil
}

func (e *Entry) read() ([]byte, error) {
	r, err := e.file.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if _, err := io.CopyN(io.Discard, r, int64(e.skip)); err != nil {
		return nil, err
	}
	n := e.size - e.skip
	var b bytes.Buffer
	// The checksum is compared at the end of the entry.
	b.Grow(min(n, 1<<20) + bytes.MinRead)
	if _, err := b.ReadFrom(io.LimitReader(r, int64(n)+1)); err != nil {
		return nil, err
	}
	if b.Len() != n {
		return nil, fmt.Errorf("%d bytes of data, want %d: %w", b.Len(), n, io.ErrUnexpectedEOF)
	}
	return b.Bytes()[:n:n], nil
}

// Named is an array to be written.
type Named struct {
	Name string
	Array
}

// WriteZip writes arrays as a .npz file, in their order. The same arrays give
// the same bytes.
func WriteZip(w io.Writer, arrays []Named) error {
	z := zip.NewWriter(w)
	seen := map[string]bool{}
	for i := range arrays {
		a := &arrays[i]
		if err := a.Check(); err != nil {
			return fmt.Errorf("array %q: %w", a.Name, err)
		}
		if seen[a.Name] {
			return fmt.Errorf("array %q is given twice", a.Name)
		}
		seen[a.Name] = true
		head := a.header()
		sum := crc32.Update(crc32.ChecksumIEEE(head), crc32.IEEETable, a.Data)
		size := uint64(len(head)) + uint64(len(a.Data))
		h := &zip.FileHeader{Name: a.Name + suffix, Method: zip.Store, CRC32: sum, CompressedSize64: size, UncompressedSize64: size}
		// 1 January 1980, the zero of the format, as NumPy has it.
		h.ModifiedDate = 1<<5 | 1
		if utf8.ValidString(a.Name) {
			h.Flags |= 0x800
		}
		f, err := z.CreateRaw(h)
		if err != nil {
			return err
		}
		if _, err := f.Write(head); err != nil {
			return err
		}
		if _, err := f.Write(a.Data); err != nil {
			return err
		}
	}
	return z.Close()
}
