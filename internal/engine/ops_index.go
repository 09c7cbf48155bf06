package engine

import (
	"fmt"
	"math"
	"slices"

	"anemone/internal/engine/kernels"
	"anemone/mil"
)

func ceilDiv(a, b float64) float64 { return math.Ceil(a / b) }

// ranges describes the elements that slice_by_index and slice_update
// address.
type ranges struct {
	rank               int
	begin, end, stride []int // nil if they depend on the inputs
	bm, em, sq         []bool
}

func (o *opCtx) ranges(x *val) (*ranges, error) {
	r := &ranges{rank: len(x.shape())}
	var err error
	if r.bm, err = o.flags("begin_mask", r.rank); err != nil {
		return nil, err
	}
	if r.em, err = o.flags("end_mask", r.rank); err != nil {
		return nil, err
	}
	if r.sq, err = o.flags("squeeze_mask", r.rank); err != nil {
		return nil, err
	}
	for _, a := range []struct {
		name string
		to   *[]int
	}{{"begin", &r.begin}, {"end", &r.end}, {"stride", &r.stride}} {
		v := o.x(a.name)
		if v == nil {
			*a.to = slices.Repeat([]int{1}, r.rank)
			continue
		}
		if v.str != nil || v.dt.IsFloat() || len(v.shape()) != 1 || v.size() != r.rank {
			return nil, fmt.Errorf("argument %q has the shape %v, want %d integers", a.name, v.shape(), r.rank)
		}
		if ints, ok := constInts(v); ok {
			*a.to = ints
			for i, s := range ints {
				if a.name == "stride" && (s == 0 || s == math.MinInt32) {
					return nil, fmt.Errorf("stride is %d in dimension %d", s, i)
				}
			}
		}
	}
	if r.stride == nil {
		return nil, fmt.Errorf("argument %q depends on the inputs of the function: %w", "stride", errNeedsValue)
	}
	return r, nil
}

// bounds returns what is addressed of one axis of size n.
func (r *ranges) bounds(axis, n, begin, end int) (first, count int, err error) {
	if r.sq[axis] {
		if begin < 0 {
			begin += n
		}
		if begin < 0 || begin >= n {
			return 0, 0, fmt.Errorf("index %d of dimension %d is outside 0 to %d", begin, axis, n-1)
		}
		return begin, 1, nil
	}
	first, count = mil.SliceBounds(n, begin, end, r.stride[axis], r.bm[axis], r.em[axis])
	return first, count, nil
}

func buildSlice(o *opCtx) error {
	x, err := o.movable(o.x("x"))
	if err != nil {
		return err
	}
	r, err := o.ranges(x)
	if err != nil {
		return err
	}
	if r.begin == nil || r.end == nil {
		return o.dynamicSlice(x, r)
	}
	out := x
	for i, n := range x.shape() {
		first, count, err := r.bounds(i, n, r.begin[i], r.end[i])
		if err != nil {
			return err
		}
		if out, err = o.sliced(out, i, first, count, r.stride[i]); err != nil {
			return err
		}
	}
	return o.dropAxes(out, r.sq)
}

// dropAxes gives x without the marked axes, which have size 1.
func (o *opCtx) dropAxes(x *val, drop []bool) error {
	return o.give(x.with(x.v.without(drop)), false)
}

// window returns the sizes of the addressed part along every axis, from the
// declared shape of the part where bounds depend on the inputs.
func (r *ranges) window(x *val, part []int) ([]int, error) {
	size := make([]int, r.rank)
	k := 0
	if len(part) == r.rank && slices.Contains(r.sq, true) {
		// The part keeps its squeezed axes.
		part = slices.Clone(part)
		for i := r.rank - 1; i >= 0; i-- {
			if r.sq[i] {
				part = slices.Delete(part, i, i+1)
			}
		}
	}
	for i, n := range x.shape() {
		known := r.begin != nil && r.end != nil || r.bm[i] && (r.em[i] || r.end != nil) || r.em[i] && r.begin != nil
		switch {
		case r.sq[i]:
			size[i] = 1
			continue
		case known:
			var b, e int
			if r.begin != nil {
				b = r.begin[i]
			}
			if r.end != nil {
				e = r.end[i]
			}
			_, size[i] = mil.SliceBounds(n, b, e, r.stride[i], r.bm[i], r.em[i])
		case k >= len(part) || part[k] < 0:
			return nil, fmt.Errorf("the size of dimension %d depends on the inputs of the function: %w", i, errNeedsValue)
		default:
			size[i] = part[k]
		}
		if size[i] > n {
			return nil, fmt.Errorf("%d elements of dimension %d, which has %d", size[i], i, n)
		}
		k++
	}
	return size, nil
}

// locate emits a step that computes, at run time, how far the addressed part
// lies from the start of x, and checks its size. The returned buffer holds
// one number.
func (o *opCtx) locate(x *val, r *ranges, size []int) (*buf, error) {
	// Every axis must be one loop.
	steps := make([]int, r.rank)
	for i, n := range x.shape() {
		s, ok := x.v.stride(i)
		if !ok {
			return nil, fmt.Errorf("internal error: axis %d is a nest", i)
		}
		steps[i] = s
		if n > math.MaxInt32 {
			return nil, fmt.Errorf("dimension %d is too large", n)
		}
	}
	bv, err := o.p.straight(o.x("begin"))
	if err != nil {
		return nil, err
	}
	ev, err := o.p.straight(o.x("end"))
	if err != nil {
		return nil, err
	}
	at, err := o.p.buffer(elemI32, 2, false)
	if err != nil {
		return nil, err
	}
	shape := x.shape()
	bb, bo, eb, eo := bv.buf, bv.v.off, ev.buf, ev.v.off
	return at, o.p.emit(bufsOf(bv, ev), []*buf{at}, func(c *call) {
		begin, end := c.i32(bb)[bo:], c.i32(eb)[eo:]
		off := 0
		for i, n := range shape {
			first, count, err := r.bounds(i, n, int(begin[i]), int(end[i]))
			if err == nil && count != size[i] {
				err = fmt.Errorf("range %d to %d of dimension %d (of %d) has %d elements, want %d", begin[i], end[i], i, n, count, size[i])
			}
			if err != nil {
				c.fail(err)
				off = 0
				break
			}
			off += first * steps[i]
		}
		p := c.i32(at)
		p[0], p[1] = int32(uint32(off)), int32(uint32(uint64(off)>>32))
	})
}

func readOffset(c *call, at *buf) int {
	p := c.i32(at)
	return int(uint64(uint32(p[0])) | uint64(uint32(p[1]))<<32)
}

// loops returns x with every axis in one loop, copying if it must.
func (o *opCtx) loops(x *val) (*val, error) {
	for i := range x.shape() {
		if _, ok := x.v.stride(i); !ok {
			return o.p.copyOf(x)
		}
	}
	return x, nil
}

// shifted runs a step over a nest whose operand k begins at an offset that
// is only known at run time.
func shifted(ns nest, k int, at *buf, copyPiece func(c *call, slot int, off [4]int, n int)) func(c *call) {
	return spread(ns, func(c *call, slot int, off [4]int, n int) {
		off[k] += readOffset(c, at)
		copyPiece(c, slot, off, n)
	})
}

func (o *opCtx) dynamicSlice(x *val, r *ranges) error {
	x, err := o.p.plain(x)
	if err != nil {
		return err
	}
	if x, err = o.loops(x); err != nil {
		return err
	}
	size, err := r.window(x, o.op.Results[0].Type.Shape)
	if err != nil {
		return err
	}
	at, err := o.locate(x, r, size)
	if err != nil {
		return err
	}
	w := x.v
	for i, n := range size {
		step := r.stride[i]
		if r.sq[i] {
			step = 1
		}
		w = w.clone()
		w.shape[i] = n
		s, _ := x.v.stride(i)
		w.axes[i] = nil
		if n != 1 {
			w.axes[i] = []dim{{n, s * step}}
		}
	}
	out, err := o.p.fresh(x.dt, size, false)
	if err != nil {
		return err
	}
	if out.size() > 0 {
		ns, _, ok := weave(w, out.v)
		if !ok {
			return fmt.Errorf("internal error: slice is too tangled")
		}
		var run func(c *call)
		if x.buf.elem == elemI32 {
			run = movePiece[int32](ns, 0, at, x.buf, out.buf)
		} else {
			run = movePiece[float32](ns, 0, at, x.buf, out.buf)
		}
		if err := o.p.emit(append(bufsOf(x), at), bufsOf(out), guarded(run)); err != nil {
			return err
		}
	}
	return o.dropAxes(out, r.sq)
}

// guarded skips a step after an error, whose offsets mean nothing.
func guarded(run func(c *call)) func(c *call) {
	return func(c *call) {
		if c.err == nil {
			run(c)
		}
	}
}

func movePiece[T number](ns nest, k int, at *buf, src, dst *buf) func(c *call) {
	s := ns.loops[len(ns.loops)-1].s
	return shifted(ns, k, at, func(c *call, slot int, off [4]int, n int) {
		put(data[T](c, dst), off[1], s[1], data[T](c, src), off[0], s[0], n)
	})
}

func buildSliceSize(o *opCtx) error {
	x, err := o.movable(o.x("x"))
	if err != nil {
		return err
	}
	size, err := o.mustInts("size")
	if err != nil {
		return err
	}
	r := len(x.shape())
	if len(size) != r || o.x("begin").size() != r {
		return fmt.Errorf("begin %v and size %v for a tensor of shape %v", o.x("begin").shape(), size, x.shape())
	}
	begin, ok := o.ints("begin")
	if !ok {
		return o.dynamicSliceSize(x, size)
	}
	out := x
	for i, n := range x.shape() {
		b := begin[i]
		if b < 0 {
			b += n
		}
		k := size[i]
		if k == -1 {
			k = n - b
		}
		if b < 0 || k < 0 || b > n || k > n-b {
			return fmt.Errorf("%d elements from %d of dimension %d, which has %d", size[i], begin[i], i, n)
		}
		if out, err = o.sliced(out, i, b, k, 1); err != nil {
			return err
		}
	}
	return o.give(out, false)
}

func (o *opCtx) dynamicSliceSize(x *val, size []int) error {
	x, err := o.p.plain(x)
	if err != nil {
		return err
	}
	if x, err = o.loops(x); err != nil {
		return err
	}
	w := x.v.clone()
	steps := make([]int, len(size))
	for i, n := range size {
		if n < 0 || n > x.shape()[i] {
			return fmt.Errorf("size %v for a tensor of shape %v: %w", size, x.shape(), errNeedsValue)
		}
		steps[i], _ = x.v.stride(i)
		w.shape[i], w.axes[i] = n, nil
		if n != 1 {
			w.axes[i] = []dim{{n, steps[i]}}
		}
	}
	bv, err := o.p.straight(o.x("begin"))
	if err != nil {
		return err
	}
	at, err := o.p.buffer(elemI32, 2, false)
	if err != nil {
		return err
	}
	shape, bb, bo := x.shape(), bv.buf, bv.v.off
	err = o.p.emit(bufsOf(bv), []*buf{at}, func(c *call) {
		off := 0
		for i, b := range c.i32(bb)[bo : bo+len(shape)] {
			k := int(b)
			if k < 0 {
				k += shape[i]
			}
			if k < 0 || k > shape[i]-size[i] {
				c.fail(fmt.Errorf("%d elements from %d of dimension %d, which has %d", size[i], b, i, shape[i]))
				off = 0
				break
			}
			off += k * steps[i]
		}
		p := c.i32(at)
		p[0], p[1] = int32(uint32(off)), int32(uint32(uint64(off)>>32))
	})
	if err != nil {
		return err
	}
	out, err := o.p.fresh(x.dt, size, false)
	if err != nil {
		return err
	}
	if out.size() > 0 {
		ns, _, ok := weave(w, out.v)
		if !ok {
			return fmt.Errorf("internal error: slice is too tangled")
		}
		run := movePiece[float32](ns, 0, at, x.buf, out.buf)
		if x.buf.elem == elemI32 {
			run = movePiece[int32](ns, 0, at, x.buf, out.buf)
		}
		if err := o.p.emit(append(bufsOf(x), at), bufsOf(out), guarded(run)); err != nil {
			return err
		}
	}
	return o.give(out, false)
}

func buildSliceUpdate(o *opCtx) error {
	x, u := o.x("x"), o.x("update")
	if err := same(x, u); err != nil {
		return err
	}
	var err error
	if u, err = o.p.plain(u); err != nil {
		return err
	}
	// Where it is written to: the state itself, or a copy.
	var out *val
	if s := o.p.alias.inPlace[o.op]; s != nil {
		v := o.p.vals[s]
		out = &val{dt: v.dt, buf: v.buf, v: v.v}
	} else if out, err = o.p.copyConstAs(x, o.constant); err != nil {
		return err
	}
	r, err := o.ranges(x)
	if err != nil {
		return err
	}
	size, err := r.window(x, u.shape())
	if err != nil {
		return err
	}
	if n, ok := mil.NumElements(size); !ok || n != u.size() {
		return fmt.Errorf("update has the shape %v, the slice %v", u.shape(), size)
	}
	w, ok := u.v.reshape(size)
	if !ok {
		if u, err = o.p.copyOf(u); err != nil {
			return err
		}
		w, _ = u.v.reshape(size)
	}
	if u.buf == out.buf {
		if u, err = o.p.copyOf(u.with(w)); err != nil {
			return err
		}
		w = u.v
	}
	if u.size() == 0 {
		return o.give(out, false)
	}
	dst := out.v.clone()
	for i, n := range size {
		step := r.stride[i]
		if r.sq[i] {
			step = 1
		}
		s, _ := out.v.stride(i)
		dst.shape[i], dst.axes[i] = n, nil
		if n != 1 {
			dst.axes[i] = []dim{{n, s * step}}
		}
	}
	if r.begin != nil && r.end != nil {
		for i, n := range x.shape() {
			first, count, err := r.bounds(i, n, r.begin[i], r.end[i])
			if err == nil && count != size[i] {
				err = fmt.Errorf("update has %d elements in dimension %d, the slice %d", size[i], i, count)
			}
			if err != nil {
				return err
			}
			s, _ := out.v.stride(i)
			dst.off += first * s
		}
		return o.updateWith(out, u, w, dst, nil)
	}
	at, err := o.locate(out, r, size)
	if err != nil {
		return err
	}
	return o.updateWith(out, u, w, dst, at)
}

// copyConstAs returns a dense copy of x, constant only if it is to be.
func (p *planner) copyConstAs(x *val, constant bool) (*val, error) {
	out, err := p.fresh(x.dt, x.shape(), constant)
	if err != nil {
		return nil, err
	}
	return out, p.copyTo(out, x)
}

func (o *opCtx) updateWith(out, u *val, from, to view, at *buf) error {
	ns, _, ok := weave(from, to)
	if !ok {
		return fmt.Errorf("update is too tangled")
	}
	var run func(c *call)
	switch {
	case at == nil && out.buf.elem == elemI32:
		run = copyStep[int32](ns, u.buf, out.buf)
	case at == nil:
		run = copyStep[float32](ns, u.buf, out.buf)
	case out.buf.elem == elemI32:
		run = guarded(movePiece[int32](ns, 1, at, u.buf, out.buf))
	default:
		run = guarded(movePiece[float32](ns, 1, at, u.buf, out.buf))
	}
	reads := bufsOf(u, out)
	if at != nil {
		reads = append(reads, at)
	}
	if err := o.p.emit(reads, bufsOf(out), run); err != nil {
		return err
	}
	return o.give(out, false)
}

// pickIndex resolves an index that may count from the end; ok is false if it
// is out of range.
func pickIndex(i int32, n int) (int, bool) {
	k := int(i)
	if k < 0 {
		k += n
	}
	return k, k >= 0 && k < n
}

func badIndex(i int32, n int) error {
	return fmt.Errorf("index %d is outside a dimension of %d", i, n)
}

// buildGather takes whole slices of x: for every index the slice that it
// names, so only the rows that are asked for are read, and decompressed.
func buildGather(o *opCtx) error {
	x, idx := o.x("x"), o.x("indices")
	if x.str != nil || idx.str != nil || idx.dt.IsFloat() {
		return fmt.Errorf("gather of %v by %v", x.dt, idx.dt)
	}
	axis, err := o.axis("axis", 0, len(x.shape()))
	if err != nil {
		return err
	}
	batch, err := o.intOr("batch_dims", 0)
	if err != nil {
		return err
	}
	if batch < 0 || batch > axis || batch > len(idx.shape()) || !slices.Equal(x.shape()[:batch], idx.shape()[:batch]) {
		return fmt.Errorf("batch_dims %d for shapes %v and %v", batch, x.shape(), idx.shape())
	}
	shape := slices.Concat(x.shape()[:axis], idx.shape()[batch:], x.shape()[axis+1:])
	out, err := o.p.fresh(x.dt, shape, o.constant)
	if err != nil {
		return err
	}
	if out.size() == 0 {
		return o.give(out, false)
	}
	if idx, err = o.p.straight(idx); err != nil {
		return err
	}
	row, err := o.rowReader(x, axis)
	if err != nil {
		return err
	}
	nb, _ := mil.NumElements(x.shape()[:batch])
	outer, _ := mil.NumElements(x.shape()[batch:axis])
	per := idx.size() / nb
	n, inner := x.shape()[axis], row.inner
	ib, io, ob := idx.buf, idx.v.off, out.buf
	o.p.need(row.scratch)
	body := func(c *call, k, slot int) {
		// k counts batches, outer slices and indices.
		j := k % per
		b := k / per / outer
		i, ok := pickIndex(c.i32(ib)[io+b*per+j], n)
		if !ok {
			c.fail(badIndex(c.i32(ib)[io+b*per+j], n))
			return
		}
		row.read(c, slot, ob, k*inner, (k/per)*n+i)
	}
	total := nb * outer * per
	size := max(1, grain/max(inner, 1))
	chunks := (total + size - 1) / size
	many := func(c *call, chunk, slot int) {
		for k := chunk * size; k < min((chunk+1)*size, total); k++ {
			body(c, k, slot)
		}
	}
	if err := o.p.emit(append(row.bufs, ib), bufsOf(out), func(c *call) { c.parallel(chunks, many) }); err != nil {
		return err
	}
	return o.give(out, false)
}

// rowReader reads slices of a tensor along an axis: slice number k of the
// flattened leading axes, dense.
type rowReader struct {
	inner   int
	scratch int
	bufs    []*buf
	read    func(c *call, slot int, dst *buf, at, k int)
}

func (o *opCtx) rowReader(x *val, axis int) (*rowReader, error) {
	inner, _ := mil.NumElements(x.shape()[axis+1:])
	r := &rowReader{inner: inner}
	if x.comp != nil && x.dt.IsFloat() {
		w := x.comp.src
		r.scratch = (inner + 3) / 4
		r.read = func(c *call, slot int, dst *buf, at, k int) {
			w.decode(c.f32(dst)[at:at+inner], bytesOf(c.scratch[slot], inner), k*inner)
		}
		return r, nil
	}
	if x.buf == nil {
		var err error
		if x, err = o.p.plain(x); err != nil {
			return nil, err
		}
	}
	if !x.v.contiguous() {
		var err error
		if x, err = o.p.copyOf(x); err != nil {
			return nil, err
		}
	}
	b, off := x.buf, x.v.off
	r.bufs = []*buf{b}
	switch b.elem {
	case elemF16:
		r.read = func(c *call, _ int, dst *buf, at, k int) {
			kernels.Widen(c.f32(dst)[at:at+inner], b.h[off+k*inner:off+(k+1)*inner])
		}
	case elemI32:
		r.read = func(c *call, _ int, dst *buf, at, k int) {
			copy(c.i32(dst)[at:at+inner], c.i32(b)[off+k*inner:])
		}
	default:
		r.read = func(c *call, _ int, dst *buf, at, k int) {
			copy(c.f32(dst)[at:at+inner], c.f32(b)[off+k*inner:])
		}
	}
	return r, nil
}

func buildGatherAlong(o *opCtx) error {
	x, idx := o.x("x"), o.x("indices")
	if x.str != nil || idx.str != nil || idx.dt.IsFloat() || len(x.shape()) != len(idx.shape()) {
		return fmt.Errorf("gather of %v by %v", x.shape(), idx.shape())
	}
	axis, err := o.axis("axis", 0, len(x.shape()))
	if err != nil {
		return err
	}
	for i, d := range idx.shape() {
		if i != axis && d > x.shape()[i] {
			return fmt.Errorf("indices of shape %v do not fit %v", idx.shape(), x.shape())
		}
	}
	if x, err = o.p.straight(x); err != nil {
		return err
	}
	if idx, err = o.p.straight(idx); err != nil {
		return err
	}
	out, err := o.p.fresh(x.dt, idx.shape(), o.constant)
	if err != nil {
		return err
	}
	if out.size() > 0 {
		// The place in x of every result, but for the index.
		w := x.v.clone()
		w.off = 0
		step, _ := w.stride(axis)
		if x.shape()[axis] == 1 {
			step = 0
		}
		for i, d := range idx.shape() {
			s, _ := x.v.stride(i)
			w.shape[i], w.axes[i] = d, nil
			if i == axis {
				s = 0
			}
			if d != 1 {
				w.axes[i] = []dim{{d, s}}
			}
		}
		ns, _, ok := weave(w, idx.v, out.v)
		if !ok {
			return fmt.Errorf("internal error: gather is too tangled")
		}
		n := x.shape()[axis]
		xb, xo, ib, ob := x.buf, x.v.off, idx.buf, out.buf
		s := ns.loops[len(ns.loops)-1].s
		run := spread(ns, func(c *call, _ int, off [4]int, m int) {
			for k := range m {
				i, ok := pickIndex(c.i32(ib)[off[1]+k*s[1]], n)
				if !ok {
					c.fail(badIndex(c.i32(ib)[off[1]+k*s[1]], n))
					return
				}
				from, to := xo+off[0]+k*s[0]+i*step, off[2]+k*s[2]
				if xb.elem == elemI32 {
					c.i32(ob)[to] = c.i32(xb)[from]
				} else {
					c.f32(ob)[to] = c.f32(xb)[from]
				}
			}
		})
		if err := o.p.emit(bufsOf(x, idx), bufsOf(out), run); err != nil {
			return err
		}
	}
	return o.give(out, false)
}

func buildGatherND(o *opCtx) error {
	x, idx := o.x("x"), o.x("indices")
	batch, err := o.intOr("batch_dims", 0)
	if err != nil {
		return err
	}
	if x.str != nil || idx.str != nil || idx.dt.IsFloat() || len(idx.shape()) == 0 {
		return fmt.Errorf("gather of %v by %v", x.shape(), idx.shape())
	}
	r := len(idx.shape()) - 1
	k := idx.shape()[r]
	if batch < 0 || batch > r || batch+k > len(x.shape()) || !slices.Equal(x.shape()[:batch], idx.shape()[:batch]) {
		return fmt.Errorf("indices of shape %v with batch_dims %d do not fit %v", idx.shape(), batch, x.shape())
	}
	dims := x.shape()[batch : batch+k]
	rest := x.shape()[batch+k:]
	out, err := o.p.fresh(x.dt, slices.Concat(idx.shape()[:r], rest), o.constant)
	if err != nil {
		return err
	}
	if out.size() == 0 {
		return o.give(out, false)
	}
	if idx, err = o.p.straight(idx); err != nil {
		return err
	}
	if batch+k == 0 {
		return fmt.Errorf("indices of shape %v address nothing", idx.shape())
	}
	row, err := o.rowReader(x, batch+k-1)
	if err != nil {
		return err
	}
	nb, _ := mil.NumElements(x.shape()[:batch])
	total := out.size() / row.inner
	per := total / nb
	size, _ := mil.NumElements(dims)
	ib, io, ob := idx.buf, idx.v.off, out.buf
	o.p.need(row.scratch)
	step := max(1, grain/row.inner)
	chunks := (total + step - 1) / step
	body := func(c *call, chunk, slot int) {
		for j := chunk * step; j < min((chunk+1)*step, total); j++ {
			at := 0
			for a, i := range c.i32(ib)[io+j*k : io+(j+1)*k] {
				p, ok := pickIndex(i, dims[a])
				if !ok {
					c.fail(badIndex(i, dims[a]))
					return
				}
				at = at*dims[a] + p
			}
			row.read(c, slot, ob, j*row.inner, j/per*size+at)
		}
	}
	if err := o.p.emit(append(row.bufs, ib), bufsOf(out), func(c *call) { c.parallel(chunks, body) }); err != nil {
		return err
	}
	return o.give(out, false)
}

func buildReadState(o *opCtx) error { return o.giveState(o.x("input")) }

// giveState gives the contents of a state. What an interpreted function
// reads is copied: the state may be written to before it is used.
func (o *opCtx) giveState(s *val) error {
	if o.p.live != nil {
		var err error
		if s, err = o.p.copyOf(s); err != nil {
			return err
		}
	}
	return o.give(s, false)
}

func buildWriteState(o *opCtx) error { return o.write(o.x("input"), o.x("data")) }

func buildUpdateState(o *opCtx) error {
	s := o.x("state")
	if err := o.write(s, o.x("value")); err != nil {
		return err
	}
	return o.giveState(s)
}

func (o *opCtx) write(s, v *val) error {
	if o.p.alias.written[o.op] {
		return nil
	}
	if v.str != nil || v.dt.IsFloat() != s.dt.IsFloat() || !slices.Equal(v.shape(), s.shape()) {
		return fmt.Errorf("a %v of shape %v cannot be written to a state of %v %v", v.dt, v.shape(), s.dt, s.shape())
	}
	if v.buf == s.buf {
		var err error
		if v, err = o.p.copyOf(v); err != nil {
			return err
		}
	}
	return o.p.copyTo(s, v)
}
