package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sync"
	"unsafe"

	"anemone/internal/engine/kernels"
	"anemone/internal/float16"
	"anemone/mil"
)

// compressed is a constant tensor that is kept as it is stored, and
// decompressed where it is used: row by row in products and gathers, whole
// for everything else.
type compressed struct {
	dt     mil.DType
	shape  []int
	src    source
	key    storedKey
	sparse *sparseSource // where the tensor is the elements of a sparse one

	once  sync.Once // guards dense
	dense *val
	err   error
}

// source gives the elements of a tensor in row-major order.
type source interface {
	// decode sets dst to the elements from first on, as float32. tmp has
	// as many bytes as dst has elements.
	decode(dst []float32, tmp []uint8, first int)
}

// compressedOp is what the results of a constexpr operation are, made once.
type compressedOp struct {
	once sync.Once
	vals []*val
	err  error
}

// buildConstexpr plans the operations on stored constants.
func buildConstexpr(o *opCtx) error {
	ws := &o.p.m.weights
	ws.mu.Lock()
	e := ws.values[o.op]
	if e == nil {
		e = &compressedOp{}
		ws.values[o.op] = e
	}
	ws.mu.Unlock()
	e.once.Do(func() { o.p.steady(func() { e.vals, e.err = o.compress() }) })
	if e.err != nil {
		return e.err
	}
	for _, v := range e.vals {
		if n := v.size(); n == 0 {
			return errors.New("weight has no elements")
		}
		if err := o.give(v, false); err != nil {
			return err
		}
	}
	return nil
}

func (o *opCtx) compress() ([]*val, error) {
	switch o.op.Type {
	case "constexpr_cast":
		return o.constexprCast()
	case "constexpr_lut_to_dense":
		return o.lutToDense()
	case "constexpr_affine_dequantize":
		return o.affineDequantize()
	case "constexpr_blockwise_shift_scale":
		return o.blockwise()
	case "constexpr_sparse_to_dense":
		return o.sparseToDense()
	case "constexpr_lut_to_sparse":
		return o.lutToSparse()
	case "constexpr_sparse_blockwise_shift_scale":
		return o.sparseBlockwise()
	}
	return nil, fmt.Errorf("unknown form of stored constants")
}

func compressedVal(c *compressed) *val { return &val{dt: c.dt, v: dense(c.shape), comp: c} }

// mustOperand returns a named operand, which may be an attribute.
func (o *opCtx) mustOperand(name string) (*mil.Value, error) {
	v := o.op.Operand(name)
	if v == nil {
		return nil, fmt.Errorf("argument %q is missing", name)
	}
	return v, nil
}

// small returns the elements of a small operand, such as the scales of
// blocks, and their shape; nil if it is absent.
func (o *opCtx) small(name string) (f []float32, v *val, err error) {
	a := o.op.Operand(name)
	if a == nil {
		return nil, nil, nil
	}
	fail := func(err error) ([]float32, *val, error) {
		return nil, nil, fmt.Errorf("argument %q: %w", name, err)
	}
	if v, err = o.p.value(a); err != nil {
		return fail(err)
	}
	if v.str != nil || v.list != nil || !v.isConst() {
		return fail(errors.New("it must be a constant of numbers"))
	}
	flat, err := o.p.straight(v)
	if err != nil {
		return fail(err)
	}
	f = make([]float32, flat.size())
	if err := o.p.hold(4 * int64(len(f))); err != nil {
		return fail(err)
	}
	for i := range f {
		if flat.buf.elem == elemI32 {
			f[i] = float32(flat.buf.i[flat.v.off+i])
		} else {
			f[i] = flat.buf.f[flat.v.off+i]
		}
	}
	return f, v, nil
}

// hold counts memory that constants take for as long as the model lives.
func (p *planner) hold(n int64) error {
	if have := p.m.weights.consts.Add(n); have > p.m.opts.maxBytes() {
		p.m.weights.consts.Add(-n)
		return p.m.opts.tooBig("constants", have)
	}
	return nil
}

// keyOf identifies the memory behind a constant.
func (o *opCtx) keyOf(name string) unsafe.Pointer {
	v := o.op.Operand(name)
	if v == nil {
		return nil
	}
	if b, ok := v.Weight.(mil.Byter); ok {
		if s, err := b.Bytes(); err == nil && len(s) > 0 {
			return unsafe.Pointer(unsafe.SliceData(s))
		}
	}
	return unsafe.Pointer(v)
}

// storedBytes returns the stored form of a constant.
func storedBytes(v *mil.Value) ([]byte, error) {
	want, ok := v.Type.ByteSize()
	if !ok || v.Type.Kind != mil.TensorKind {
		return nil, fmt.Errorf("a %v has no stored form", v.Type)
	}
	if v.Weight != nil {
		b, err := mil.WeightBytes(v.Weight)
		if err == nil && int64(len(b)) != want {
			err = fmt.Errorf("has %d bytes, a %v needs %d", len(b), v.Type, want)
		}
		return b, err
	}
	if v.Literal == nil {
		return nil, fmt.Errorf("value %q is not stored: it is computed", v.Name)
	}
	l, d := v.Literal, v.Type.DType
	n, _ := v.Type.NumElements()
	if l.Len() != n || len(l.Ints) != n && len(l.Floats) != n {
		return nil, fmt.Errorf("literal of type %v holds %d elements", v.Type, l.Len())
	}
	var b []byte
	le := binary.LittleEndian
	switch width := d.Bits(); {
	case d == mil.Float16 && len(l.Floats) == n:
		for _, x := range l.Floats {
			b = le.AppendUint16(b, float16.FromFloat32(float32(x)))
		}
	case d == mil.Float32 && len(l.Floats) == n:
		for _, x := range l.Floats {
			b = le.AppendUint32(b, math.Float32bits(float32(x)))
		}
	case d.IsInt() && width <= 8 && len(l.Ints) == n:
		b = make([]byte, want+1)
		for i, x := range l.Ints {
			bit := i * width
			k := uint16(x) & (1<<width - 1) << (bit & 7)
			b[bit>>3] |= byte(k)
			b[bit>>3+1] |= byte(k >> 8)
		}
		b = b[:want]
	default:
		return nil, fmt.Errorf("a %v is not supported here", v.Type)
	}
	return b, nil
}

// rawSource has elements as they are stored.
type rawSource struct {
	dt mil.DType
	b  []byte
}

func (s *rawSource) decode(dst []float32, tmp []uint8, first int) {
	le := binary.LittleEndian
	switch s.dt {
	case mil.Float16:
		if h, ok := castF16(s.b[2*first:], len(dst)); ok {
			kernels.Widen(dst, h)
			return
		}
		for i := range dst {
			dst[i] = float16.ToFloat32(le.Uint16(s.b[2*(first+i):]))
		}
	case mil.Float32:
		for i := range dst {
			dst[i] = math.Float32frombits(le.Uint32(s.b[4*(first+i):]))
		}
	case mil.Int8:
		for i, x := range s.b[first : first+len(dst)] {
			dst[i] = float32(int8(x))
		}
	case mil.Int4:
		kernels.UnpackIndices(tmp, s.b, 4, first, len(dst))
		for i, x := range tmp[:len(dst)] {
			dst[i] = float32(int8(x<<4) >> 4)
		}
	default:
		kernels.UnpackIndices(tmp, s.b, s.dt.Bits(), first, len(dst))
		for i, x := range tmp[:len(dst)] {
			dst[i] = float32(x)
		}
	}
}

// index returns the source's elements as indices of a width into a table of
// all values that they can have; ok is false if there are too many.
func (s *rawSource) index() (width int, values []float32, ok bool) {
	width = s.dt.Bits()
	if !s.dt.IsInt() || width > 8 {
		return 0, nil, false
	}
	values = make([]float32, 1<<width)
	for i := range values {
		values[i] = float32(i)
		if !s.dt.IsUnsigned() && i >= len(values)/2 {
			values[i] -= float32(len(values))
		}
	}
	return width, values, true
}

// operandSource returns a large operand as a source of its elements, with
// its element type and shape.
func (o *opCtx) operandSource(name string) (source, mil.DType, []int, error) {
	fail := func(err error) (source, mil.DType, []int, error) {
		return nil, 0, nil, fmt.Errorf("argument %q: %w", name, err)
	}
	v, err := o.mustOperand(name)
	if err != nil {
		return nil, 0, nil, err
	}
	if n, ok := v.Type.NumElements(); !ok || n > maxElements || len(v.Type.Shape) > maxRank {
		return fail(fmt.Errorf("a %v is too large", v.Type))
	}
	if v.IsConst() {
		b, err := storedBytes(v)
		if err != nil {
			return fail(err)
		}
		switch d := v.Type.DType; {
		case d == mil.Float16, d == mil.Float32, d.IsInt() && d.Bits() <= 8:
			return &rawSource{d, b}, d, v.Type.Shape, nil
		}
		return fail(fmt.Errorf("elements of type %v are not supported here", v.Type.DType))
	}
	x, err := o.p.value(v)
	if err != nil {
		return fail(err)
	}
	if x.comp != nil {
		return x.comp.src, x.dt, x.shape(), nil
	}
	f, x, err := o.small(name)
	if err != nil {
		return nil, 0, nil, err
	}
	return &floatSource{f}, x.dt, x.shape(), nil
}

// floatSource has elements in memory.
type floatSource struct{ f []float32 }

func (s *floatSource) decode(dst []float32, _ []uint8, first int) { copy(dst, s.f[first:]) }

// grid divides the elements of a tensor into blocks: groups of equal size
// along every axis. Blocks are numbered row-major.
type grid struct{ shape, groups []int }

// newGrid drops and joins axes where that does not change the numbers of
// blocks, so that the last axis is as long as can be.
func newGrid(shape, groups []int) grid {
	g := grid{}
	for a, n := range shape {
		switch k := len(g.shape) - 1; {
		case n == 1:
		case k >= 0 && groups[a] == 1:
			g.shape[k] *= n
		default:
			g.shape, g.groups = append(g.shape, n), append(g.groups, groups[a])
		}
	}
	if len(g.shape) == 0 {
		return grid{[]int{1}, []int{1}}
	}
	return g
}

func (g *grid) blocks() int {
	n := 1
	for _, k := range g.groups {
		n *= k
	}
	return n
}

// runs calls f for every stretch of elements of one block among the n from
// first on: the number of the block, and where the stretch begins and ends,
// counted from first.
func (g *grid) runs(first, n int, f func(block, lo, hi int)) {
	r := len(g.shape) - 1
	last := g.shape[r]
	seg := last / g.groups[r]
	for at := 0; at < n; {
		row, k := (first+at)/last, (first+at)%last
		block, stride := 0, g.groups[r]
		for a := r - 1; a >= 0; a-- {
			block += row % g.shape[a] / (g.shape[a] / g.groups[a]) * stride
			row /= g.shape[a]
			stride *= g.groups[a]
		}
		for k < last && at < n {
			m := min(seg-k%seg, n-at)
			f(block+k/seg, at, at+m)
			at += m
			k += m
		}
	}
}

// lutSource is indices into tables.
type lutSource struct {
	width   int // bits of an index
	indices []byte
	tables  []float32
	shape   []int // of the result
	groups  []int // tables along every axis
	vector  int   // elements per entry, 1 but for vector palettization
	vecAxis int
	g       grid // for vector 1
}

func (s *lutSource) decode(dst []float32, tmp []uint8, first int) {
	entries := 1 << s.width
	if s.vector == 1 {
		kernels.UnpackIndices(tmp, s.indices, s.width, first, len(dst))
		if len(s.tables) == entries {
			for i, k := range tmp[:len(dst)] {
				dst[i] = s.tables[k]
			}
			return
		}
		s.g.runs(first, len(dst), func(block, lo, hi int) {
			t, d := s.tables[block*entries:(block+1)*entries], dst[lo:hi]
			for i, k := range tmp[lo:hi] {
				d[i] = t[k]
			}
		})
		return
	}
	r := len(s.shape)
	var at [maxRank]int
	rest := first
	for a := r - 1; a >= 0; a-- {
		at[a] = rest % s.shape[a]
		rest /= s.shape[a]
	}
	var one [1]uint8
	for i := range dst {
		table, pos, lane := 0, 0, 0
		for a := range r {
			k, size := at[a], s.shape[a]
			if a == s.vecAxis {
				lane = k % s.vector
				k /= s.vector
				size /= s.vector
			}
			table = table*s.groups[a] + k/(size/s.groups[a])
			pos = pos*size + k
		}
		kernels.UnpackIndices(one[:], s.indices, s.width, pos, 1)
		dst[i] = s.tables[(table*entries+int(one[0]))*s.vector+lane]
		for a := r - 1; a >= 0; a-- {
			if at[a]++; at[a] < s.shape[a] {
				break
			}
			at[a] = 0
		}
	}
}

// constexprCast gives fp16 weights as fp32: the same numbers.
func (o *opCtx) constexprCast() ([]*val, error) {
	v, err := o.mustOperand("source_val")
	if err != nil {
		return nil, err
	}
	x, err := o.p.value(v)
	if err != nil {
		return nil, err
	}
	if !x.isConst() || x.str != nil || x.list != nil || !x.dt.IsFloat() {
		return nil, fmt.Errorf("source_val must be a floating-point constant")
	}
	y := *x
	y.dt = mil.Float32
	if x.comp != nil {
		y.comp = &compressed{dt: mil.Float32, shape: x.comp.shape, src: x.comp.src, key: x.comp.key}
	}
	return []*val{&y}, nil
}

// lutTables reads the tables of the form since iOS 18 for indices of a shape
// and element type; sparse ones have no packed form here.
func (o *opCtx) lutTables(is []int, index mil.DType) (*lutSource, mil.DType, error) {
	tables, lut, err := o.small("lut")
	if err == nil && lut == nil {
		err = errors.New("lut is missing")
	}
	if err != nil {
		return nil, 0, err
	}
	ls, r := lut.shape(), len(is)
	if len(ls) != r+2 {
		return nil, 0, fmt.Errorf("lut has the shape %v, want rank %d for indices %v", ls, r+2, is)
	}
	s := &lutSource{tables: tables, shape: slices.Clone(is), groups: ls[:r], vector: ls[r+1]}
	var ok bool
	if s.width, ok = kernels.Log2(ls[r]); !ok || s.width != index.Bits() || s.width < 1 || s.width > 8 {
		return nil, 0, fmt.Errorf("tables of %d entries do not fit indices of type %v", ls[r], index)
	}
	for i, g := range s.groups {
		if g < 1 || is[i]%g != 0 {
			return nil, 0, fmt.Errorf("lut of shape %v does not divide indices of shape %v", ls, is)
		}
	}
	if s.vector < 1 {
		return nil, 0, fmt.Errorf("lut of shape %v has empty entries", ls)
	}
	if s.vector > 1 {
		v := o.op.Operand("vector_axis")
		if v == nil {
			return nil, 0, errors.New("vector_axis is missing")
		}
		x, ok := mil.ConstInts(v)
		if !ok || len(x) != 1 || x[0] < -r || x[0] >= r {
			return nil, 0, fmt.Errorf("vector_axis is %v for indices %v", x, is)
		}
		s.vecAxis = (x[0] + r) % r
		s.shape[s.vecAxis] *= s.vector
	}
	s.g = newGrid(s.shape, s.groups)
	if n, ok := mil.NumElements(s.shape); !ok || n > maxElements {
		return nil, 0, fmt.Errorf("weight of shape %v is too large", s.shape)
	}
	return s, lut.dt, nil
}

func (o *opCtx) lutToDense() ([]*val, error) {
	iv, err := o.mustOperand("indices")
	if err != nil {
		return nil, err
	}
	key := storedKey{o.keyOf("indices"), o.keyOf("lut")}
	if n, ok := iv.Type.NumElements(); !ok || n > maxElements || len(iv.Type.Shape) > maxRank {
		return nil, fmt.Errorf("indices of type %v are too many", iv.Type)
	}
	if old := o.op.Operand("shape"); old != nil {
		// The form before iOS 18: one table, indices packed in uint8.
		shape, err := o.shapeOperand()
		if err != nil {
			return nil, err
		}
		tables, lut, err := o.small("lut")
		if err == nil && lut == nil {
			err = errors.New("lut is missing")
		}
		if err != nil {
			return nil, err
		}
		s := &lutSource{tables: tables, shape: shape, groups: slices.Repeat([]int{1}, len(shape)), vector: 1}
		var ok bool
		if s.width, ok = kernels.Log2(len(s.tables)); !ok || len(lut.shape()) != 1 || s.width < 1 || s.width > 8 {
			return nil, fmt.Errorf("lut has the shape %v, want one table of 2, 4, 16, 64 or 256 entries", lut.shape())
		}
		if s.indices, err = storedBytes(iv); err != nil {
			return nil, fmt.Errorf("indices: %w", err)
		}
		n, _ := mil.NumElements(shape)
		if want := (n*s.width + 7) / 8; len(s.indices) < want {
			return nil, fmt.Errorf("indices have %d bytes, %v of %d bits needs %d", len(s.indices), shape, s.width, want)
		}
		s.g = newGrid(shape, s.groups)
		return []*val{compressedVal(&compressed{dt: lut.dt, shape: shape, src: s, key: key})}, nil
	}
	s, dt, err := o.lutTables(iv.Type.Shape, iv.Type.DType)
	if err != nil {
		return nil, err
	}
	if s.indices, err = storedBytes(iv); err != nil {
		return nil, fmt.Errorf("indices: %w", err)
	}
	return []*val{compressedVal(&compressed{dt: dt, shape: s.shape, src: s, key: key})}, nil
}

// shapeOperand returns the shape of a weight of the form before iOS 18.
func (o *opCtx) shapeOperand() ([]int, error) {
	sv := o.op.Operand("shape")
	shape, ok := mil.ConstInts(sv)
	if !ok || len(shape) > maxRank {
		return nil, errors.New("shape must be a short constant")
	}
	if n, ok := mil.NumElements(shape); !ok || n > maxElements {
		return nil, fmt.Errorf("shape %v is too large", shape)
	}
	return shape, nil
}

// scaling is the scales and offsets of blocks: element x of a block is
// scale * (x - offset). In fp16 both steps round, as the arithmetic that
// defines the weight does.
type scaling struct {
	g             grid
	scale, offset []float32 // of each block; no offset is 0
	half          bool
	halfShift     bool // the difference is rounded too
}

// block scales elements of one block.
func (s *scaling) block(d []float32, block int) {
	k := s.scale[block]
	if s.offset != nil {
		o := s.offset[block]
		for i := range d {
			d[i] -= o
		}
		if s.halfShift {
			roundFast(d)
		}
	}
	for i := range d {
		d[i] *= k
	}
	if s.half {
		roundFast(d)
	}
}

// apply scales the elements from first on.
func (s *scaling) apply(dst []float32, first int) {
	s.g.runs(first, len(dst), func(block, lo, hi int) { s.block(dst[lo:hi], block) })
}

// roundFast rounds to fp16. Numbers that are normal there, as most weights
// are, only need their bits rounded.
func roundFast(x []float32) {
	for i, f := range x {
		b := math.Float32bits(f)
		if e := b & 0x7f800000; e-0x38800000 < 0x47000000-0x38800000 {
			x[i] = math.Float32frombits((b + 0xfff + b>>13&1) &^ 0x1fff)
			continue
		}
		x[i] = float16.Round(f)
	}
}

// newScaling reads scale and offset for data of a shape and type, divided by blocks
// of the shape of scale, or, with an axis, along it.
func (o *opCtx) newScaling(shape []int, data mil.DType, offsetName string, axis *int) (*scaling, mil.DType, error) {
	scale, sv, err := o.small("scale")
	if err == nil && sv == nil {
		err = errors.New("scale is missing")
	}
	if err != nil {
		return nil, 0, err
	}
	offset, ov, err := o.small(offsetName)
	if err != nil {
		return nil, 0, err
	}
	groups := sv.shape()
	if axis != nil {
		a, n := *axis, 1
		groups = slices.Repeat([]int{1}, len(shape))
		for _, v := range []*val{sv, ov} {
			if v == nil || len(v.shape()) == 0 {
				continue
			}
			if len(v.shape()) != 1 || v.shape()[0] != shape[a] {
				return nil, 0, fmt.Errorf("scale or %s has the shape %v, want [] or [%d]", offsetName, v.shape(), shape[a])
			}
			n = shape[a]
		}
		groups[a] = n
		if scale = slices.Clone(scale); len(scale) == 1 {
			scale = slices.Repeat(scale, n)
		}
		if len(offset) == 1 {
			offset = slices.Repeat(offset, n)
		}
	} else if ov != nil && !slices.Equal(ov.shape(), groups) {
		return nil, 0, fmt.Errorf("%s has the shape %v, scale %v", offsetName, ov.shape(), groups)
	}
	if len(groups) != len(shape) {
		return nil, 0, fmt.Errorf("scale of shape %v for data of shape %v", groups, shape)
	}
	for i, g := range groups {
		if g < 1 || shape[i]%g != 0 {
			return nil, 0, fmt.Errorf("scale of shape %v does not divide data of shape %v", groups, shape)
		}
	}
	s := &scaling{g: newGrid(shape, groups), scale: scale, offset: offset}
	if n := s.g.blocks(); len(scale) != n || offset != nil && len(offset) != n {
		return nil, 0, fmt.Errorf("%d scales and %d offsets for %d blocks", len(scale), len(offset), n)
	}
	s.half = sv.dt == mil.Float16
	// The difference of bytes is exact in fp16.
	s.halfShift = s.half && axis == nil && ov != nil && (ov.dt.IsFloat() || data.IsFloat())
	if ov != nil && ov.dt == mil.Float32 && axis == nil {
		s.half, s.halfShift = false, false // the arithmetic is that of the wider type
	}
	return s, sv.dt, nil
}

// scaledSource is a source with scales and offsets.
type scaledSource struct {
	src source
	s   *scaling

	raw    *rawSource // src, if it has elements of up to 4 bits
	values []float32  // that they stand for
}

func newScaledSource(src source, s *scaling) *scaledSource {
	x := &scaledSource{src: src, s: s}
	if raw, ok := src.(*rawSource); ok && raw.dt.Bits() <= 4 {
		if _, values, ok := raw.index(); ok {
			x.raw, x.values = raw, values
		}
	}
	return x
}

func (s *scaledSource) decode(dst []float32, tmp []uint8, first int) {
	if s.values != nil {
		s.decodeNibbles(dst, tmp, first)
		return
	}
	s.src.decode(dst, tmp, first)
	s.s.apply(dst, first)
}

// decodeNibbles scales the 16 or fewer numbers that there are, once for each
// block, instead of every element.
func (s *scaledSource) decodeNibbles(dst []float32, tmp []uint8, first int) {
	kernels.UnpackIndices(tmp, s.raw.b, s.raw.dt.Bits(), first, len(dst))
	s.s.g.runs(first, len(dst), func(block, lo, hi int) {
		d, idx := dst[lo:hi], tmp[lo:hi]
		if len(idx) < len(s.values) {
			for i, k := range idx {
				d[i] = s.values[k]
			}
			s.s.block(d, block)
			return
		}
		var t [16]float32
		s.s.block(t[:copy(t[:], s.values)], block)
		for i, k := range idx {
			d[i] = t[k&15]
		}
	})
}

// scaled gives data with scales applied, as look-up tables where that does
// not take much memory: products read those fastest.
func (o *opCtx) scaled(data source, shape []int, s *scaling, groups []int, dt mil.DType, key storedKey) *compressed {
	c := &compressed{dt: dt, shape: shape, src: newScaledSource(data, s), key: key}
	n, _ := mil.NumElements(shape)
	var lut *lutSource
	switch d := data.(type) {
	case *rawSource:
		if width, values, ok := d.index(); ok {
			lut = &lutSource{width: width, indices: d.b, tables: values, shape: shape, groups: slices.Repeat([]int{1}, len(shape)), vector: 1}
		}
	case *lutSource:
		if d.vector == 1 {
			lut = d
		}
	}
	if lut == nil {
		return c
	}
	// One table for each pair of a table and a scale that meet.
	fine, count := make([]int, len(shape)), 1
	for a := range shape {
		fine[a] = lcm(lut.groups[a], groups[a])
		if shape[a]%fine[a] != 0 || count > n/fine[a] {
			return c
		}
		count *= fine[a]
	}
	entries := 1 << lut.width
	if count > n/4/entries {
		return c
	}
	t := &lutSource{width: lut.width, indices: lut.indices, shape: shape, groups: fine, vector: 1, g: newGrid(shape, fine)}
	t.tables = make([]float32, count*entries)
	if o.p.hold(4*int64(len(t.tables))) != nil {
		return c
	}
	for k := range count {
		from, block, rest := 0, 0, k
		ls, ss := 1, 1
		for a := len(shape) - 1; a >= 0; a-- {
			i := rest % fine[a]
			rest /= fine[a]
			from += i / (fine[a] / lut.groups[a]) * ls
			block += i / (fine[a] / groups[a]) * ss
			ls *= lut.groups[a]
			ss *= groups[a]
		}
		table := t.tables[k*entries : (k+1)*entries]
		copy(table, lut.tables[from*entries:])
		s.block(table, block)
	}
	c.src = t
	return c
}

func lcm(a, b int) int {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return a / x * b
}

func (o *opCtx) affineDequantize() ([]*val, error) {
	data, d, shape, err := o.operandSource("quantized_data")
	if err != nil {
		return nil, err
	}
	if !d.IsInt() {
		return nil, fmt.Errorf("quantized_data is %v, want an integer type", d)
	}
	av, err := o.mustOperand("axis")
	if err != nil {
		return nil, err
	}
	ax, ok := mil.ConstInts(av)
	if !ok || len(ax) != 1 || ax[0] < -len(shape) || ax[0] >= len(shape) {
		return nil, fmt.Errorf("axis is %v for data of shape %v", ax, shape)
	}
	a := (ax[0] + len(shape)) % len(shape)
	s, dt, err := o.newScaling(shape, d, "zero_point", &a)
	if err != nil {
		return nil, err
	}
	groups := slices.Repeat([]int{1}, len(shape))
	groups[a] = s.g.blocks()
	key := storedKey{o.keyOf("quantized_data"), o.keyOf("scale"), o.keyOf("zero_point")}
	return []*val{compressedVal(o.scaled(data, shape, s, groups, dt, key))}, nil
}

func (o *opCtx) blockwise() ([]*val, error) {
	data, d, shape, err := o.operandSource("data")
	if err != nil {
		return nil, err
	}
	s, dt, err := o.newScaling(shape, d, "offset", nil)
	if err != nil {
		return nil, err
	}
	groups := o.op.Operand("scale").Type.Shape
	key := storedKey{o.keyOf("data"), o.keyOf("scale"), o.keyOf("offset")}
	return []*val{compressedVal(o.scaled(data, shape, s, groups, dt, key))}, nil
}

// mask tells which elements of a tensor are stored.
type mask struct {
	shape []int
	bits  []byte
	ranks []int32 // of the first element of every block of maskBlock
	set   int
}

const maskBlock = 512

func (o *opCtx) newMask(shape []int, b []byte) (*mask, error) {
	n, ok := mil.NumElements(shape)
	if !ok || n > math.MaxInt32 || len(b) < (n+7)/8 {
		return nil, fmt.Errorf("mask of %d bytes for shape %v", len(b), shape)
	}
	m := &mask{shape: shape, bits: b}
	if err := o.p.hold(int64(n/maskBlock+1) * 4); err != nil {
		return nil, err
	}
	for i := 0; i < n; i += maskBlock {
		m.ranks = append(m.ranks, int32(m.set))
		m.set += m.count(i, min(i+maskBlock, n))
	}
	return m, nil
}

// count returns how many elements from lo to hi are stored.
func (m *mask) count(lo, hi int) int {
	n := 0
	for ; lo < hi && lo&7 != 0; lo++ {
		n += int(m.bits[lo>>3] >> (lo & 7) & 1)
	}
	for ; lo+8 <= hi; lo += 8 {
		n += bits.OnesCount8(m.bits[lo>>3])
	}
	if lo < hi {
		n += bits.OnesCount8(m.bits[lo>>3] & (1<<(hi-lo) - 1))
	}
	return n
}

// rank returns how many elements before i are stored.
func (m *mask) rank(i int) int {
	b := i / maskBlock
	return int(m.ranks[b]) + m.count(b*maskBlock, i)
}

// maskOperand reads a mask: uint1 with a shape of its own, or packed in
// uint8 in the form before iOS 18.
func (o *opCtx) maskOperand(name string) (*mask, error) {
	v, err := o.mustOperand(name)
	if err != nil {
		return nil, err
	}
	if !v.IsConst() {
		x, err := o.p.value(v)
		if err != nil {
			return nil, err
		}
		if x.mask == nil {
			return nil, fmt.Errorf("argument %q is computed by something other than a constexpr operation", name)
		}
		return x.mask, nil
	}
	b, err := storedBytes(v)
	if err != nil {
		return nil, fmt.Errorf("argument %q: %w", name, err)
	}
	shape := v.Type.Shape
	if o.op.Operand("shape") != nil {
		if shape, err = o.shapeOperand(); err != nil {
			return nil, err
		}
	} else if v.Type.DType != mil.UInt1 {
		return nil, fmt.Errorf("argument %q is a %v, want uint1", name, v.Type)
	}
	if len(shape) > maxRank {
		return nil, fmt.Errorf("argument %q has the shape %v", name, shape)
	}
	return o.newMask(shape, b)
}

// sparseSource is a tensor of which only some elements are stored. The steps
// that make an element of what is stored may depend on its place.
type sparseSource struct {
	m      *mask
	values source // of the stored elements
	steps  []sparseStep
}

// sparseStep changes the stored elements among dst, those of a tensor from
// first on.
type sparseStep func(m *mask, dst []float32, first int)

func (s *sparseSource) decode(dst []float32, tmp []uint8, first int) {
	n := len(dst)
	k := s.m.count(first, first+n)
	// The stored values go to the end, and from there to their places.
	s.values.decode(dst[n-k:], tmp[:k], s.m.rank(first))
	// Which are stored is hard to foresee: no branch asks.
	from := n - k
	for i := range dst {
		p := first + i
		bit := uint32(s.m.bits[p>>3]>>(p&7)) & 1
		dst[i] = math.Float32frombits(math.Float32bits(dst[min(from, n-1)]) & -bit)
		from += int(bit)
	}
	for _, f := range s.steps {
		f(s.m, dst, first)
	}
}

// storedSource gives the stored elements of a sparse tensor alone.
type storedSource struct{ s *sparseSource }

func (s *storedSource) decode(dst []float32, _ []uint8, first int) {
	m := s.s.m
	// Begin at the last block that starts at or before the first wanted.
	b, _ := slices.BinarySearch(m.ranks, int32(first)+1)
	b--
	at, rank := b*maskBlock, int(m.ranks[b])
	var buf [maskBlock]float32
	var tmp [maskBlock]uint8
	n, _ := mil.NumElements(m.shape)
	for len(dst) > 0 {
		part := buf[:min(maskBlock, n-at)]
		s.s.decode(part, tmp[:], at)
		for i, x := range part {
			p := at + i
			if m.bits[p>>3]>>(p&7)&1 == 0 {
				continue
			}
			if rank >= first && len(dst) > 0 {
				dst[0] = x
				dst = dst[1:]
			}
			rank++
		}
		at += len(part)
	}
}

// sparseValues returns the operand with the stored elements of a mask.
func (o *opCtx) sparseValues(name string, m *mask) (*sparseSource, mil.DType, error) {
	v, err := o.mustOperand(name)
	if err != nil {
		return nil, 0, err
	}
	if !v.IsConst() {
		x, err := o.p.value(v)
		if err != nil {
			return nil, 0, err
		}
		if x.comp != nil && x.comp.sparse != nil && x.comp.sparse.m == m {
			return x.comp.sparse, x.dt, nil
		}
	}
	src, dt, shape, err := o.operandSource(name)
	if err != nil {
		return nil, 0, err
	}
	if len(shape) != 1 || shape[0] != m.set {
		return nil, 0, fmt.Errorf("argument %q has the shape %v, the mask has %d elements", name, shape, m.set)
	}
	return &sparseSource{m: m, values: src}, dt, nil
}

func (o *opCtx) sparseToDense() ([]*val, error) {
	m, err := o.maskOperand("mask")
	if err != nil {
		return nil, err
	}
	s, dt, err := o.sparseValues("nonzero_data", m)
	if err != nil {
		return nil, err
	}
	key := storedKey{o.keyOf("mask"), o.keyOf("nonzero_data")}
	return []*val{compressedVal(&compressed{dt: dt, shape: m.shape, src: s, key: key})}, nil
}

// sparseResults are the mask and the stored elements of a sparse tensor.
func sparseResults(m *mask, s *sparseSource, dt mil.DType) []*val {
	c := &compressed{dt: dt, shape: []int{m.set}, src: &storedSource{s}, sparse: s}
	mc := &compressed{dt: mil.UInt1, shape: m.shape, src: &rawSource{mil.UInt1, m.bits}}
	mv := compressedVal(mc)
	mv.mask = m
	return []*val{mv, compressedVal(c)}
}

func (o *opCtx) sparseBlockwise() ([]*val, error) {
	m, err := o.maskOperand("data_mask")
	if err != nil {
		return nil, err
	}
	s, d, err := o.sparseValues("nonzero_data", m)
	if err != nil {
		return nil, err
	}
	k, dt, err := o.newScaling(m.shape, d, "offset", nil)
	if err != nil {
		return nil, err
	}
	step := func(m *mask, dst []float32, first int) {
		k.g.runs(first, len(dst), func(block, lo, hi int) {
			k.block(dst[lo:hi], block)
			for i := lo; i < hi; i++ {
				if p := first + i; m.bits[p>>3]>>(p&7)&1 == 0 {
					dst[i] = 0
				}
			}
		})
	}
	out := &sparseSource{m: m, values: s.values, steps: append(slices.Clone(s.steps), step)}
	return sparseResults(m, out, dt), nil
}

func (o *opCtx) lutToSparse() ([]*val, error) {
	m, err := o.maskOperand("indices_mask")
	if err != nil {
		return nil, err
	}
	iv, err := o.mustOperand("indices_nonzero_data")
	if err != nil {
		return nil, err
	}
	s, _, err := o.sparseValues("indices_nonzero_data", m)
	if err != nil {
		return nil, err
	}
	lut, dt, err := o.lutTables(m.shape, iv.Type.DType)
	if err != nil {
		return nil, err
	}
	entries := 1 << lut.width
	if lut.vector == 1 {
		step := func(m *mask, dst []float32, first int) {
			lut.g.runs(first, len(dst), func(block, lo, hi int) {
				t := lut.tables[block*entries : (block+1)*entries]
				for i := lo; i < hi; i++ {
					p := first + i
					bit := uint32(m.bits[p>>3]>>(p&7)) & 1
					dst[i] = math.Float32frombits(math.Float32bits(t[int(dst[i])&(entries-1)]) & -bit)
				}
			})
		}
		out := &sparseSource{m: m, values: s.values, steps: append(slices.Clone(s.steps), step)}
		return sparseResults(m, out, dt), nil
	}
	return o.vectorToSparse(m, s, lut, dt)
}

// vectorToSparse replaces every stored index by several elements. Their
// order in the result is not that of the indices, so they are laid out.
func (o *opCtx) vectorToSparse(m *mask, s *sparseSource, lut *lutSource, dt mil.DType) ([]*val, error) {
	n, _ := mil.NumElements(m.shape)
	total, ok := mil.NumElements(lut.shape)
	if !ok {
		return nil, fmt.Errorf("weight of shape %v is too large", lut.shape)
	}
	if err := o.p.hold(int64(total)/8 + 5*int64(n) + 4*int64(m.set)*int64(lut.vector)); err != nil {
		return nil, err
	}
	index, tmp := make([]float32, n), make([]uint8, n)
	s.decode(index, tmp, 0)
	b := make([]byte, (total+7)/8)
	values := make([]float32, 0, m.set*lut.vector)
	r, entries := len(lut.shape), 1<<lut.width
	at := make([]int, r)
	for i := range total {
		table, pos, lane := 0, 0, 0
		for a := range r {
			k := at[a]
			if a == lut.vecAxis {
				lane = k % lut.vector
				k /= lut.vector
			}
			table = table*lut.groups[a] + k/(m.shape[a]/lut.groups[a])
			pos = pos*m.shape[a] + k
		}
		if m.bits[pos>>3]>>(pos&7)&1 != 0 {
			b[i>>3] |= 1 << (i & 7)
			values = append(values, lut.tables[(table*entries+int(index[pos])&(entries-1))*lut.vector+lane])
		}
		for a := r - 1; a >= 0; a-- {
			if at[a]++; at[a] < lut.shape[a] {
				break
			}
			at[a] = 0
		}
	}
	wide, err := o.newMask(lut.shape, b)
	if err != nil {
		return nil, err
	}
	return sparseResults(wide, &sparseSource{m: wide, values: &floatSource{values}}, dt), nil
}

// steady does what is done once and kept: the end of the call that happens
// to do it must not leave it half done.
func (p *planner) steady(f func()) {
	ctx := p.fold.ctx
	p.fold.ctx = nil
	f()
	p.fold.ctx = ctx
}

// expand returns the dense form, for operations that cannot do without. It
// is made once and kept.
func (p *planner) expand(w *compressed) (*val, error) {
	w.once.Do(func() { p.steady(func() { w.dense, w.err = p.expanded(w) }) })
	return w.dense, w.err
}

func (p *planner) expanded(w *compressed) (*val, error) {
	n, ok := mil.NumElements(w.shape)
	if !ok || int64(n) > p.m.opts.maxBytes()/4 {
		return nil, p.m.opts.tooBig("a weight", 4*int64(n))
	}
	if err := p.hold(4 * int64(n)); err != nil {
		return nil, err
	}
	out := &val{dt: w.dt, v: dense(w.shape), buf: &buf{elem: elemOf(w.dt), space: spaceConst, n: n}}
	if w.dt.IsFloat() {
		out.buf.f = make([]float32, n)
	} else {
		out.buf.i = make([]int32, n)
	}
	const chunk = 1 << 12
	p.fold.grow(0, 0, chunk+chunk/4)
	p.m.pool.run(p.fold, (n+chunk-1)/chunk, func(c *call, k, slot int) {
		tmp := bytesOf(c.scratch[slot], chunk)
		end := min((k+1)*chunk, n)
		if w.dt.IsFloat() {
			w.src.decode(out.buf.f[k*chunk:end], tmp, k*chunk)
			return
		}
		part := c.scratch[slot][chunk/4 : chunk/4+end-k*chunk]
		w.src.decode(part, tmp, k*chunk)
		for i, x := range part {
			out.buf.i[k*chunk+i] = int32(x)
		}
	})
	return out, nil
}

// rowsMatrix is a matrix of compressed elements that are decompressed row by
// row whenever they are used.
type rowsMatrix struct {
	src        source
	rows, cols int
}

func (m *rowsMatrix) Rows() int         { return m.rows }
func (m *rowsMatrix) Cols() int         { return m.cols }
func (m *rowsMatrix) Bytes() int64      { return 0 }
func (m *rowsMatrix) Scratch(n int) int { return n*m.cols + (n*m.cols+3)/4 }

func (m *rowsMatrix) Panel(scratch []float32, r0, r1 int) []float32 {
	n := (r1 - r0) * m.cols
	m.src.decode(scratch[:n], bytesOf(scratch[n:], n), r0*m.cols)
	return scratch[:n]
}

func (m *rowsMatrix) MulVec(scratch, dst, x []float32, r0, r1 int) {
	for r := r0; r < r1; r++ {
		dst[r-r0] = kernels.Dot(m.Panel(scratch, r, r+1), x)
	}
}

// packed returns a compressed weight as a matrix.
func (p *planner) packed(w *compressed, rows, cols int) (kernels.Matrix, error) {
	lut, ok := w.src.(*lutSource)
	if !ok {
		return &rowsMatrix{w.src, rows, cols}, nil
	}
	ws := &p.m.weights
	key := matrixKey{w.key, rows, cols}
	ws.mu.Lock()
	e := ws.packed[key]
	if e == nil {
		e = &packedMatrix{}
		ws.packed[key] = e
	}
	ws.mu.Unlock()
	e.once.Do(func() {
		p.steady(func() {
			if e.m, e.err = p.pack(lut, rows, cols); e.err == nil {
				ws.held.Add(e.m.Bytes())
			}
		})
	})
	return e.m, e.err
}

func (p *planner) pack(w *lutSource, rows, cols int) (kernels.Matrix, error) {
	// The rows of the matrix are the first axis, and tables change along it
	// and along the second only.
	simple := w.vector == 1 && len(w.shape) > 0 && w.shape[0] == rows && w.width != 5 && w.width != 7
	colGroups := 1
	for a, g := range w.groups {
		if a == 1 {
			colGroups = g
		} else if a > 1 && g > 1 {
			simple = false
		}
	}
	if !simple || !kernels.LUTFits(cols, cols/colGroups) {
		return &rowsMatrix{w, rows, cols}, nil
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
