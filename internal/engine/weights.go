package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"unsafe"

	"anemone/internal/engine/kernels"
	"anemone/internal/float16"
	"anemone/mil"
)

// weights holds what plans share: packed matrices, each made once, at its
// first use.
type weights struct {
	mu     sync.Mutex
	packed map[matrixKey]*packedMatrix
	held   atomic.Int64 // bytes of packed matrices
}

// matrixKey tells stored matrices apart by where their bytes are. Two
// functions over one file of weights thus share what is made of them, also
// if they hold different Weights for the same bytes.
type matrixKey struct {
	indices, lut unsafe.Pointer
	rows, cols   int
}

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

// lutWeight is a tensor kept as indices into tables: the operands of a
// constexpr_lut_to_dense.
type lutWeight struct {
	dt      mil.DType
	shape   []int
	width   int    // bits of an index
	indices []byte // packed, first element in the lowest bits
	tables  []float32
	lutKey  unsafe.Pointer
	groups  []int // tables along every axis
	vector  int   // elements per entry, 1 but for vector palettization
	vecAxis int
	dense   *val // once somebody needed it
}

func buildLUT(o *opCtx) error {
	iv, lv := o.op.Operand("indices"), o.op.Operand("lut")
	if iv == nil || lv == nil {
		return errors.New("indices or lut is missing")
	}
	w := &lutWeight{vector: 1}
	lut, err := o.p.value(lv)
	if err != nil {
		return fmt.Errorf("lut: %w", err)
	}
	if lut.str != nil || lut.lut != nil || !lut.isConst() {
		return errors.New("lut must be a constant of numbers")
	}
	flat, err := o.p.straight(lut)
	if err != nil {
		return err
	}
	w.dt = lut.dt
	w.tables = make([]float32, flat.size())
	for i := range w.tables {
		if flat.buf.elem == elemI32 {
			w.tables[i] = float32(flat.buf.i[i])
		} else {
			w.tables[i] = flat.buf.f[i]
		}
	}
	w.lutKey = keyOf(lv)
	n := 0
	if old := o.op.Operand("shape"); old != nil {
		// The form before iOS 18: one table, indices packed in uint8.
		sv, err := o.p.value(old)
		if err != nil {
			return fmt.Errorf("shape: %w", err)
		}
		shape, ok := constInts(sv)
		if !ok {
			return errors.New("shape must be a constant")
		}
		w.shape = shape
		w.groups = make([]int, len(shape))
		for i := range w.groups {
			w.groups[i] = 1
		}
		if w.width, ok = kernels.Log2(len(w.tables)); !ok || len(lut.shape()) != 1 {
			return fmt.Errorf("lut has the shape %v, want one table of 2, 4, 16, 64 or 256 entries", lut.shape())
		}
		if n, ok = mil.NumElements(shape); !ok || n > maxElements {
			return fmt.Errorf("shape %v is too large", shape)
		}
		if w.indices, err = storedBytes(iv); err != nil {
			return fmt.Errorf("indices: %w", err)
		}
		if want := (n*w.width + 7) / 8; len(w.indices) < want {
			return fmt.Errorf("indices have %d bytes, %v of %d bits needs %d", len(w.indices), shape, w.width, want)
		}
	} else {
		is, ls := iv.Type.Shape, lut.shape()
		r := len(is)
		if len(ls) != r+2 {
			return fmt.Errorf("lut has the shape %v, want rank %d for indices %v", ls, r+2, is)
		}
		w.shape = append([]int(nil), is...)
		w.groups = ls[:r]
		w.vector = ls[r+1]
		var ok bool
		if w.width, ok = kernels.Log2(ls[r]); !ok || w.width != iv.Type.DType.Bits() {
			return fmt.Errorf("tables of %d entries do not fit indices of type %v", ls[r], iv.Type.DType)
		}
		if n, ok = mil.NumElements(is); !ok || n > maxElements {
			return fmt.Errorf("indices of shape %v are too many", is)
		}
		for i, g := range w.groups {
			if g < 1 || is[i]%g != 0 {
				return fmt.Errorf("lut of shape %v does not divide indices of shape %v", ls, is)
			}
		}
		if w.vector < 1 {
			return fmt.Errorf("lut of shape %v has empty entries", ls)
		}
		if w.vector > 1 {
			a, err := o.axis("vector_axis", r, r)
			if err != nil {
				return err
			}
			w.vecAxis = a
			w.shape[a] *= w.vector
		}
		if w.indices, err = storedBytes(iv); err != nil {
			return fmt.Errorf("indices: %w", err)
		}
	}
	if n == 0 {
		return errors.New("weight has no elements")
	}
	return o.give(&val{dt: w.dt, v: dense(w.shape), lut: w}, false)
}

// storedBytes returns the stored form of a constant of small integers.
func storedBytes(v *mil.Value) ([]byte, error) {
	if v.Weight != nil {
		b, err := mil.WeightBytes(v.Weight)
		if want, ok := v.Type.ByteSize(); err == nil && (!ok || int64(len(b)) != want) {
			err = fmt.Errorf("has %d bytes, a %v needs %d", len(b), v.Type, want)
		}
		return b, err
	}
	l := v.Literal
	width := v.Type.DType.Bits()
	want, ok := v.Type.ByteSize()
	if l == nil || !ok || width > 8 || !v.Type.DType.IsUnsigned() {
		return nil, fmt.Errorf("a %v cannot hold indices", v.Type)
	}
	if n, _ := v.Type.NumElements(); len(l.Ints) != n {
		return nil, fmt.Errorf("literal of type %v holds %d elements", v.Type, l.Len())
	}
	b := make([]byte, want+1)
	for i, x := range l.Ints {
		bit := i * width
		k := uint16(x) & (1<<width - 1) << (bit & 7)
		b[bit>>3] |= byte(k)
		b[bit>>3+1] |= byte(k >> 8)
	}
	return b[:want], nil
}

// keyOf identifies the memory behind a constant.
func keyOf(v *mil.Value) unsafe.Pointer {
	if b, ok := v.Weight.(mil.Byter); ok {
		if s, err := b.Bytes(); err == nil && len(s) > 0 {
			return unsafe.Pointer(unsafe.SliceData(s))
		}
	}
	return unsafe.Pointer(v)
}

// decodeRun writes elements first to first+len(dst) in row-major order.
func (w *lutWeight) decodeRun(dst []float32, idx []uint8, first int) {
	r := len(w.shape)
	entries := 1 << w.width
	if w.vector == 1 && len(w.tables) == entries {
		kernels.UnpackIndices(idx, w.indices, w.width, first, len(dst))
		for i, k := range idx[:len(dst)] {
			dst[i] = w.tables[k]
		}
		return
	}
	var at [maxRank]int
	rest := first
	for a := r - 1; a >= 0; a-- {
		at[a] = rest % w.shape[a]
		rest /= w.shape[a]
	}
	var one [1]uint8
	for i := range dst {
		table, pos, lane := 0, 0, 0
		for a := range r {
			k, size := at[a], w.shape[a]
			if a == w.vecAxis && w.vector > 1 {
				lane = k % w.vector
				k /= w.vector
				size /= w.vector
			}
			table = table*w.groups[a] + k/(size/w.groups[a])
			pos = pos*size + k
		}
		kernels.UnpackIndices(one[:], w.indices, w.width, pos, 1)
		dst[i] = w.tables[(table*entries+int(one[0]))*w.vector+lane]
		for a := r - 1; a >= 0; a-- {
			if at[a]++; at[a] < w.shape[a] {
				break
			}
			at[a] = 0
		}
	}
}

// expandLUT returns the dense form, for operations that cannot do without.
func (p *planner) expandLUT(w *lutWeight) (*val, error) {
	out, err := p.fresh(w.dt, w.shape, true)
	if err != nil {
		return nil, err
	}
	n := out.size()
	dst := out.buf.f
	if out.buf.elem == elemI32 {
		return nil, fmt.Errorf("tables of type %v are only supported for weights of matrix products", w.dt)
	}
	const chunk = 1 << 12
	p.fold.grow(0, 0, chunk/4)
	p.m.pool.run(p.fold, (n+chunk-1)/chunk, func(c *call, k, slot int) {
		idx := bytesOf(c.scratch[slot], chunk)
		end := min((k+1)*chunk, n)
		w.decodeRun(dst[k*chunk:end], idx, k*chunk)
	})
	return out, nil
}

// lutRows is a matrix whose tables lie in a way that packing cannot follow.
// It decodes every row anew.
type lutRows struct {
	w          *lutWeight
	rows, cols int
}

func (m *lutRows) Rows() int    { return m.rows }
func (m *lutRows) Cols() int    { return m.cols }
func (m *lutRows) Bytes() int64 { return 4 * int64(len(m.w.tables)) }

func (m *lutRows) Panel(scratch []float32, r0, r1 int) []float32 {
	n := (r1 - r0) * m.cols
	m.w.decodeRun(scratch[:n], make([]uint8, n), r0*m.cols)
	return scratch[:n]
}

func (m *lutRows) MulVec(dst, x []float32, r0, r1 int) {
	row := make([]float32, m.cols)
	for r := r0; r < r1; r++ {
		dst[r-r0] = kernels.Dot(m.Panel(row, r, r+1), x)
	}
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
	if v.lut != nil {
		m, err := p.packLUT(v.lut, rows, cols)
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

func (p *planner) packLUT(w *lutWeight, rows, cols int) (kernels.Matrix, error) {
	ws := &p.m.weights
	key := matrixKey{unsafe.Pointer(unsafe.SliceData(w.indices)), w.lutKey, rows, cols}
	ws.mu.Lock()
	e := ws.packed[key]
	if e == nil {
		e = &packedMatrix{}
		ws.packed[key] = e
	}
	ws.mu.Unlock()
	e.once.Do(func() {
		if e.m, e.err = p.pack(w, rows, cols); e.err == nil {
			ws.held.Add(e.m.Bytes())
		}
	})
	return e.m, e.err
}

func (p *planner) pack(w *lutWeight, rows, cols int) (kernels.Matrix, error) {
	// The rows of the matrix are the first axis, and tables change along it
	// and along the second only.
	simple := w.vector == 1 && len(w.shape) > 0 && w.shape[0] == rows
	colGroups := 1
	for a, g := range w.groups {
		if a == 1 {
			colGroups = g
		} else if a > 1 && g > 1 {
			simple = false
		}
	}
	if !simple || !kernels.LUTFits(cols, cols/colGroups) {
		return &lutRows{w, rows, cols}, nil
	}
	m, err := kernels.NewLUT(rows, cols, w.width, rows/w.groups[0], cols/colGroups, w.tables)
	if err != nil {
		return nil, err
	}
	const chunk = 16
	p.fold.grow(0, 0, (cols+3)/4)
	p.m.pool.run(p.fold, (rows+chunk-1)/chunk, func(c *call, k, slot int) {
		idx := bytesOf(c.scratch[slot], cols)
		for r := k * chunk; r < min((k+1)*chunk, rows); r++ {
			kernels.UnpackIndices(idx, w.indices, w.width, r*cols, cols)
			m.Pack(r, idx)
		}
	})
	return m, nil
}
