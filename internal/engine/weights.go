package engine

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"unsafe"

	"anemone/internal/engine/kernels"
	"anemone/internal/float16"
	"anemone/mil"
)

// weights holds what plans share: packed matrices and compressed constants,
// each made once, at its first use.
type weights struct {
	mu     sync.Mutex
	packed map[matrixKey]*packedMatrix
	values map[*mil.Operation]*compressedOp
	held   atomic.Int64 // bytes of packed matrices
	consts atomic.Int64 // bytes of what else is kept of them
}

func newWeights() weights {
	return weights{packed: map[matrixKey]*packedMatrix{}, values: map[*mil.Operation]*compressedOp{}}
}

// matrixKey tells stored matrices apart by where their bytes are. Two
// functions over one file of weights thus share what is made of them, also
// if they hold different Weights for the same bytes.
type matrixKey struct {
	stored     storedKey
	rows, cols int
}

// storedKey has the addresses of the parts of a compressed weight.
type storedKey [4]unsafe.Pointer

type packedMatrix struct {
	once sync.Once
	m    kernels.Matrix
	err  error
}

// inlineElements is the size up to which fp16 constants are widened to
// float32 when planning; larger ones stay fp16.
const inlineElements = 1 << 14

// constant returns the planned form of a literal or weight.
func (p *planner) constant(v *mil.Value) (*val, error) {
	t := v.Type
	if t.Kind != mil.TensorKind {
		return nil, fmt.Errorf("a constant of type %v is not supported", t)
	}
	n, ok := t.NumElements()
	if !ok || n > maxElements || len(t.Shape) > maxRank {
		return nil, fmt.Errorf("a constant of type %v is too large", t)
	}
	out := &val{dt: t.DType, v: dense(t.Shape)}
	if v.Literal != nil {
		l := v.Literal
		if l.Len() != n {
			return nil, fmt.Errorf("literal of type %v holds %d elements", t, l.Len())
		}
		switch {
		case t.DType == mil.String:
			out.str = l.Strings
			if out.str == nil {
				out.str = []string{}
			}
			return out, nil
		case t.DType.IsFloat():
			out.buf = &buf{space: spaceConst, n: n, f: make([]float32, n)}
			for i, x := range l.Floats {
				out.buf.f[i] = float32(x)
			}
		default:
			out.buf = &buf{elem: elemI32, space: spaceConst, n: n, i: make([]int32, n)}
			for i, x := range l.Ints {
				out.buf.i[i] = wrap64(t.DType, x)
			}
			for i, x := range l.Bools {
				if x {
					out.buf.i[i] = 1
				}
			}
		}
		return out, nil
	}
	raw, err := mil.WeightBytes(v.Weight)
	if err != nil {
		return nil, fmt.Errorf("weight %q: %w", v.Name, err)
	}
	if want, ok := t.ByteSize(); !ok || int64(len(raw)) != want {
		return nil, fmt.Errorf("weight %q: has %d bytes, a %v needs %d", v.Name, len(raw), t, want)
	}
	out.buf, err = p.decode(t.DType, raw, n)
	if err != nil {
		return nil, fmt.Errorf("weight %q: %w", v.Name, err)
	}
	return out, nil
}

// decode makes a constant buffer of n stored elements, over the stored bytes
// themselves where it can.
func (p *planner) decode(d mil.DType, raw []byte, n int) (*buf, error) {
	if d == mil.Float16 && n > inlineElements {
		if h, ok := castF16(raw, n); ok {
			return &buf{elem: elemF16, space: spaceConst, n: n, h: h}, nil
		}
	}
	if d == mil.Float32 {
		if f, ok := castF32(raw, n); ok {
			return &buf{space: spaceConst, n: n, f: f}, nil
		}
	}
	b, err := p.buffer(elemOf(d), n, true)
	if err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	switch d {
	case mil.Float16:
		for i := range b.f {
			b.f[i] = float16.ToFloat32(le.Uint16(raw[2*i:]))
		}
	case mil.BFloat16:
		for i := range b.f {
			b.f[i] = float16.BFloat16ToFloat32(le.Uint16(raw[2*i:]))
		}
	case mil.Float32:
		for i := range b.f {
			b.f[i] = math.Float32frombits(le.Uint32(raw[4*i:]))
		}
	case mil.Float64:
		for i := range b.f {
			b.f[i] = float32(math.Float64frombits(le.Uint64(raw[8*i:])))
		}
	case mil.Bool:
		for i := range b.i {
			if raw[i] != 0 {
				b.i[i] = 1
			}
		}
	case mil.Int8:
		for i := range b.i {
			b.i[i] = int32(int8(raw[i]))
		}
	case mil.Int16:
		for i := range b.i {
			b.i[i] = int32(int16(le.Uint16(raw[2*i:])))
		}
	case mil.UInt16:
		for i := range b.i {
			b.i[i] = int32(le.Uint16(raw[2*i:]))
		}
	case mil.Int32, mil.UInt32:
		for i := range b.i {
			b.i[i] = int32(le.Uint32(raw[4*i:]))
		}
	case mil.Int64, mil.UInt64:
		for i := range b.i {
			b.i[i] = wrap64(d, int64(le.Uint64(raw[8*i:])))
		}
	case mil.UInt1, mil.UInt2, mil.UInt3, mil.UInt4, mil.UInt6, mil.UInt8, mil.Int4:
		idx := make([]uint8, n)
		kernels.UnpackIndices(idx, raw, d.Bits(), 0, n)
		for i, k := range idx {
			b.i[i] = int32(k)
			if d == mil.Int4 && k > 7 {
				b.i[i] -= 16
			}
		}
	default:
		return nil, fmt.Errorf("elements of type %v are not supported", d)
	}
	return b, nil
}

// matrix returns a constant as a matrix of the given number of rows, which
// the rest of its elements divide among them. ok is false if v is no
// constant, or one that lies in memory in another order.
func (p *planner) matrix(v *val, rows int) (m kernels.Matrix, ok bool, err error) {
	n := v.size()
	if !v.isConst() || v.str != nil || rows <= 0 || n == 0 || n%rows != 0 {
		return nil, false, nil
	}
	cols := n / rows
	if v.comp != nil {
		m, err := p.packed(v.comp, rows, cols)
		return m, err == nil, err
	}
	if !v.v.contiguous() {
		return nil, false, nil
	}
	switch v.buf.elem {
	case elemF16:
		return kernels.NewF16(v.buf.h[v.v.off:v.v.off+n], rows, cols), true, nil
	case elemF32:
		return kernels.NewF32(v.buf.f[v.v.off:v.v.off+n], rows, cols), true, nil
	}
	return nil, false, nil
}
