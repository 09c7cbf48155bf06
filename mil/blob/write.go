package blob

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"anemone/mil"
)

// Plan is the layout of a file: which weights, in which order, at which
// offsets. The zero Plan is an empty file.
type Plan struct {
	entries []entry
	offsets map[mil.Weight]uint64
	end     uint64 // of the last blob's data
}

type entry struct {
	name   string
	weight mil.Weight
	record Record
}

// Add gives w the next place in the file, or the place it already has, and
// returns the offset of its record. The name is only used in messages.
func (p *Plan) Add(name string, w mil.Weight) (offset uint64, err error) {
	if w == nil {
		return 0, fmt.Errorf("weight %q: no data", name)
	}
	if off, ok := p.offsets[w]; ok {
		return off, nil
	}
	t := w.Type()
	code, ok := codes[t.DType]
	if !ok {
		return 0, fmt.Errorf("weight %q of type %v: files of weights hold no elements of type %v; write it in the program", name, t, t.DType)
	}
	size, ok := t.ByteSize()
	if !ok || t.Kind != mil.TensorKind {
		return 0, fmt.Errorf("weight %q: type %v has no size", name, t)
	}
	n, _ := t.NumElements()
	if p.offsets == nil {
		p.offsets = map[mil.Weight]uint64{}
		p.end = headerSize
	}
	off := alignUp(p.end)
	// A file ends before 2^63, the largest offset of the file calls.
	const last = math.MaxInt64 - 4*align
	if off > last || uint64(size) > last-off {
		return 0, fmt.Errorf("weight %q: the file would be larger than 2^63 bytes", name)
	}
	if len(p.entries) == math.MaxUint32 {
		return 0, errors.New("more than 2^32 - 1 weights")
	}
	r := Record{Offset: off, Code: code, Size: uint64(size), Data: off + recordSize, UnusedBits: bitsUnused(t.DType, n, size)}
	p.entries = append(p.entries, entry{name, w, r})
	p.offsets[w] = off
	p.end = r.Data + r.Size
	return off, nil
}

// Offset returns the offset of the record of w; ok is false if w is not in
// the plan.
func (p *Plan) Offset(w mil.Weight) (offset uint64, ok bool) {
	offset, ok = p.offsets[w]
	return offset, ok
}

// Len returns the number of blobs.
func (p *Plan) Len() int { return len(p.entries) }

// Size returns the size of the file in bytes.
func (p *Plan) Size() int64 {
	if len(p.entries) == 0 {
		return headerSize
	}
	return int64(p.end)
}

// Record returns the record of blob i, and the name given for it.
func (p *Plan) Record(i int) (Record, string) { return p.entries[i].record, p.entries[i].name }

// Progress reports how far a write has come: done of total bytes of the
// file, at present the weight of that name. It is called between and within
// weights, from the goroutine that writes.
type Progress func(done, total int64, name string)

// Write writes the file to w, asking every weight for its bytes once, in the
// order of the plan. It stops with the context's error soon after ctx is
// done, at the latest when the weight at hand writes next. progress may be
// nil.
func (p *Plan) Write(ctx context.Context, w io.Writer, progress Progress) error {
	out := &planWriter{ctx: ctx, w: w, total: p.Size(), progress: progress}
	head := make([]byte, headerSize)
	binary.LittleEndian.PutUint32(head, uint32(len(p.entries)))
	binary.LittleEndian.PutUint32(head[4:], version)
	out.limit = headerSize
	if _, err := out.Write(head); err != nil {
		return err
	}
	buf := make([]byte, 0, align+recordSize)
	for _, e := range p.entries {
		buf = buf[:e.record.Offset-uint64(out.done)]
		clear(buf)
		buf = e.record.append(buf)
		out.name, out.limit = e.name, int64(e.record.Data)
		if _, err := out.Write(buf); err != nil {
			return err
		}
		out.limit += int64(e.record.Size)
		n, err := e.weight.WriteTo(out)
		if err == nil && out.done != out.limit {
			err = fmt.Errorf("gave %d bytes, want %d", n, e.record.Size)
		}
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("weight %q of type %v: %w", e.name, e.weight.Type(), err)
		}
	}
	return nil
}

func alignUp(n uint64) uint64 { return (n + align - 1) &^ (align - 1) }

var errTooLong = errors.New("gives more bytes than its type has")

// planWriter counts, stops at the end of the blob, and looks at the context.
type planWriter struct {
	ctx      context.Context
	w        io.Writer
	done     int64
	limit    int64
	total    int64
	name     string
	progress Progress
}

func (o *planWriter) Write(b []byte) (n int, err error) {
	// Large writes are cut so that progress is seen and a stop is heeded.
	const piece = 4 << 20
	if int64(len(b)) > o.limit-o.done {
		return 0, errTooLong
	}
	for first := true; first || len(b) > 0; first = false {
		if err := o.ctx.Err(); err != nil {
			return n, err
		}
		m, err := o.w.Write(b[:min(len(b), piece)])
		n += m
		o.done += int64(m)
		if err != nil {
			return n, err
		}
		b = b[m:]
		if o.progress != nil {
			o.progress(o.done, o.total, o.name)
		}
	}
	return n, nil
}
