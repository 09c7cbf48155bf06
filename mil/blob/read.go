package blob

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"sync/atomic"

	"anemone/internal/platform"
	"anemone/mil"
)

// Reader gives the weights of a file. It is safe for use by several
// goroutines, Close excepted.
type Reader struct {
	b      []byte
	count  uint32
	mapped bool
	closed atomic.Bool
}

// NewReader returns a reader of the file with the bytes b, which must not
// change. Only the header is looked at.
func NewReader(b []byte) (*Reader, error) {
	if len(b) < headerSize {
		return nil, fmt.Errorf("file of weights: %d bytes, want at least the header of %d", len(b), headerSize)
	}
	if v := binary.LittleEndian.Uint32(b[4:]); v != version {
		return nil, fmt.Errorf("file of weights: storage version %d, want %d", v, version)
	}
	count := binary.LittleEndian.Uint32(b)
	if uint64(count) > uint64(len(b)/align) {
		return nil, fmt.Errorf("file of weights: header says %d blobs, more than fit in its %d bytes", count, len(b))
	}
	return &Reader{b: b, count: count}, nil
}

// Open maps the file at path into memory. Nothing but its header is read.
// The reader, and every weight it gave, can be used until Close.
func Open(path string) (*Reader, error) {
	f, err := platform.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return OpenFile(f)
}

// OpenFile is like [Open] for a file that is already open; the caller closes
// it, at any time.
func OpenFile(f *os.File) (*Reader, error) {
	b, err := platform.Mmap(f)
	if err != nil {
		return nil, err
	}
	r, err := NewReader(b)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", f.Name(), err), platform.Munmap(b))
	}
	r.mapped = true
	return r, nil
}

// Close releases the mapped file. The bytes of its weights must not be used
// any more; asking a weight for them is an error from now on.
func (r *Reader) Close() error {
	if r.closed.Swap(true) || !r.mapped {
		return nil
	}
	return platform.Munmap(r.b)
}

// Release gives the pages of the file that were read back to the system. A
// walk of all records would else count, with the pages that the system maps
// around each, as much memory as the file.
func (r *Reader) Release() {
	if r.mapped && !r.closed.Load() {
		platform.Discard(r.b)
	}
}

// Size returns the size of the file in bytes.
func (r *Reader) Size() int64 { return int64(len(r.b)) }

// Len returns the number of blobs that the header promises.
func (r *Reader) Len() int { return int(r.count) }

// Record returns the record at an offset.
func (r *Reader) Record(offset uint64) (Record, error) {
	if r.closed.Load() {
		return Record{}, os.ErrClosed
	}
	return parseRecord(r.b, offset)
}

// Records walks the file from the first blob to the last. A damaged record
// ends the walk with an error.
func (r *Reader) Records() iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		off := uint64(headerSize)
		for i := range r.count {
			rec, err := r.Record(off)
			if err != nil {
				yield(Record{}, fmt.Errorf("blob %d of %d: %w", i+1, r.count, err))
				return
			}
			if !yield(rec, nil) {
				return
			}
			off = alignUp(rec.Data + rec.Size)
		}
	}
}

// Weight returns the blob whose record is at offset as a weight of type t,
// after checking that the record is one and fits the type. The weight is a
// [mil.Byter] whose bytes are those of the file.
func (r *Reader) Weight(offset uint64, t mil.Type) (mil.Weight, error) {
	rec, err := r.Record(offset)
	if err != nil {
		return nil, err
	}
	size, ok := t.ByteSize()
	if !ok || t.Kind != mil.TensorKind {
		return nil, fmt.Errorf("record at offset %d: a blob cannot be of type %v", offset, t)
	}
	if code, ok := codes[t.DType]; !ok || code != rec.Code {
		return nil, fmt.Errorf("record at offset %d: holds %v, the program wants %v", offset, rec.Code, t)
	}
	if uint64(size) != rec.Size {
		return nil, fmt.Errorf("record at offset %d: holds %d bytes, the program wants %v of %d bytes", offset, rec.Size, t, size)
	}
	n, _ := t.NumElements()
	// Files from before iOS 18 may hold garbage here, but no such elements.
	if want := bitsUnused(t.DType, n, size); t.DType.Bits() < 8 && rec.UnusedBits != want {
		return nil, fmt.Errorf("record at offset %d: says that %d bits of the last byte are unused, type %v leaves %d", offset, rec.UnusedBits, t, want)
	}
	return &weight{r: r, t: t, off: rec.Data, size: rec.Size}, nil
}

type weight struct {
	r         *Reader
	t         mil.Type
	off, size uint64
}

func (w *weight) Type() mil.Type { return w.t }

func (w *weight) Bytes() ([]byte, error) {
	if w.r.closed.Load() {
		return nil, fmt.Errorf("weight of type %v: its file is closed: %w", w.t, os.ErrClosed)
	}
	return w.r.b[w.off:][:w.size:w.size], nil
}

func (w *weight) WriteTo(dst io.Writer) (int64, error) {
	b, err := w.Bytes()
	if err != nil {
		return 0, err
	}
	n, err := dst.Write(b)
	return int64(n), err
}
