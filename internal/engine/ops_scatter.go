package engine

import (
	"fmt"
	"math"
	"slices"

	"anemone/mil"
)

// merge puts an update to where something is already.
type merge[T number] func(old, update T) T

func mergeF(mode string) merge[float32] {
	return map[string]merge[float32]{
		"add":    func(a, b float32) float32 { return a + b },
		"sub":    func(a, b float32) float32 { return a - b },
		"mul":    func(a, b float32) float32 { return a * b },
		"div":    func(a, b float32) float32 { return a / b },
		"max":    func(a, b float32) float32 { return maxF(b, a) },
		"min":    func(a, b float32) float32 { return minF(b, a) },
		"update": func(_, b float32) float32 { return b },
	}[mode]
}

func mergeI(mode string) merge[int32] {
	return map[string]merge[int32]{
		"add":    func(a, b int32) int32 { return a + b },
		"sub":    func(a, b int32) int32 { return a - b },
		"mul":    func(a, b int32) int32 { return a * b },
		"div":    floorDiv,
		"max":    func(a, b int32) int32 { return max(a, b) },
		"min":    func(a, b int32) int32 { return min(a, b) },
		"update": func(_, b int32) int32 { return b },
	}[mode]
}

// scatterPlan says where updates go: update number k, of inner elements,
// goes to the elements of the result that begin at target(c, k).
type scatterPlan struct {
	count, inner int
	target       func(c *call, k int) (at int, err error)
}

// scatter copies data and merges updates into it, in order.
func (o *opCtx) scatter(s scatterPlan, data, updates, indices *val) error {
	mode, err := o.strOr("mode", "add")
	if err != nil {
		return err
	}
	if err := same(data, updates); err != nil {
		return err
	}
	out, err := o.p.fresh(data.dt, data.shape(), o.constant)
	if err != nil {
		return err
	}
	if out.size() == 0 && s.count*s.inner > 0 {
		return fmt.Errorf("updates of shape %v to nothing", updates.shape())
	}
	if out.size() == 0 {
		return o.give(out, true)
	}
	if err := o.p.copyTo(out, data); err != nil {
		return err
	}
	f, g, dt := mergeF(mode), mergeI(mode), data.dt
	if f == nil {
		return fmt.Errorf("mode is %q", mode)
	}
	n := out.size()
	err = o.p.emit(bufsOf(updates, indices, out), bufsOf(out), func(c *call) {
		for k := range s.count {
			at, err := s.target(c, k)
			if err == nil && (at < 0 || at > n-s.inner) {
				err = fmt.Errorf("internal error: update beyond the result")
			}
			if err != nil {
				c.fail(err)
				return
			}
			if dt.IsFloat() {
				d, u := c.f32(out.buf)[at:at+s.inner], c.f32of(updates)[k*s.inner:]
				for i := range d {
					d[i] = f(d[i], u[i])
				}
			} else {
				d, u := c.i32(out.buf)[at:at+s.inner], c.i32of(updates)[k*s.inner:]
				for i := range d {
					d[i] = wrap(dt, g(d[i], u[i]))
				}
			}
		}
	})
	if err != nil {
		return err
	}
	return o.give(out, true)
}

// scatterArgs returns the operands of a scatter, straight.
func (o *opCtx) scatterArgs() (data, updates, indices *val, err error) {
	if _, err = o.infer(); err != nil {
		return
	}
	if data, err = o.p.straight(o.x("data")); err != nil {
		return
	}
	if updates, err = o.p.straight(o.x("updates")); err != nil {
		return
	}
	if indices, err = o.p.straight(o.x("indices")); err == nil && indices.dt.IsFloat() {
		err = fmt.Errorf("indices are %v", indices.dt)
	}
	return
}

// buildScatter merges whole slices along an axis.
func buildScatter(o *opCtx) error {
	data, updates, indices, err := o.scatterArgs()
	if err != nil {
		return err
	}
	axis, err := o.axis("axis", 0, len(data.shape()))
	if err != nil {
		return err
	}
	n := data.shape()[axis]
	inner, outer, per := product(data.shape()[axis+1:]), product(data.shape()[:axis]), indices.size()
	if updates.size() != outer*per*inner {
		return fmt.Errorf("updates of shape %v for data of shape %v and indices of shape %v", updates.shape(), data.shape(), indices.shape())
	}
	return o.scatter(scatterPlan{outer * per, inner, func(c *call, k int) (int, error) {
		i := c.i32of(indices)[k%per]
		j, ok := pickIndex(i, n)
		if !ok {
			return 0, badIndex(i, n)
		}
		return (k/per*n + j) * inner, nil
	}}, data, updates, indices)
}

// buildScatterAlong merges single elements, each with an index of its own.
func buildScatterAlong(o *opCtx) error {
	data, updates, indices, err := o.scatterArgs()
	if err != nil {
		return err
	}
	axis, err := o.axis("axis", 0, len(data.shape()))
	if err != nil {
		return err
	}
	n, m := data.shape()[axis], indices.shape()[axis]
	inner := product(data.shape()[axis+1:])
	if !slices.Equal(updates.shape(), indices.shape()) {
		return fmt.Errorf("updates of shape %v for indices of shape %v", updates.shape(), indices.shape())
	}
	return o.scatter(scatterPlan{updates.size(), 1, func(c *call, k int) (int, error) {
		i := c.i32of(indices)[k]
		j, ok := pickIndex(i, n)
		if !ok {
			return 0, badIndex(i, n)
		}
		return (k/inner/m*n+j)*inner + k%inner, nil
	}}, data, updates, indices)
}

// buildScatterND merges slices that vectors of indices address.
func buildScatterND(o *opCtx) error {
	data, updates, indices, err := o.scatterArgs()
	if err != nil {
		return err
	}
	r := len(indices.shape()) - 1
	k := indices.shape()[r]
	dims, inner := data.shape()[:k], product(data.shape()[k:])
	count := product(indices.shape()[:r])
	if updates.size() != count*inner {
		return fmt.Errorf("updates of shape %v for data of shape %v and indices of shape %v", updates.shape(), data.shape(), indices.shape())
	}
	return o.scatter(scatterPlan{count, inner, func(c *call, j int) (int, error) {
		at := 0
		for a, i := range c.i32of(indices)[j*k : (j+1)*k] {
			p, ok := pickIndex(i, dims[a])
			if !ok {
				return 0, badIndex(i, dims[a])
			}
			at = at*dims[a] + p
		}
		return at * inner, nil
	}}, data, updates, indices)
}

// buildNonZero gives the positions of the elements that are not 0. How many
// there are is only known with x.
func buildNonZero(o *opCtx) error {
	if !o.x("x").isConst() {
		return fmt.Errorf("the number of elements that are not 0: %w", errNeedsValue)
	}
	x, err := o.p.straight(o.x("x"))
	if err != nil {
		return err
	}
	n, r := x.size(), len(x.shape())
	nonZero := func(i int) bool {
		if x.buf.elem == elemI32 {
			return x.buf.i[x.v.off+i] != 0
		}
		return x.buf.f[x.v.off+i] != 0
	}
	count := 0
	for i := range n {
		if nonZero(i) {
			count++
		}
	}
	out, err := o.p.fresh(mil.Int32, []int{count, r}, true)
	if err != nil {
		return err
	}
	var at [maxRank]int
	k := 0
	for i := range n {
		if nonZero(i) {
			place(&at, i, x.shape())
			for a := range r {
				out.buf.i[k*r+a] = int32(at[a])
			}
			k++
		}
	}
	return o.give(out, true)
}

// buildOneHot sets one element along a new axis to on_value, none where the
// index is not on it.
func buildOneHot(o *opCtx) error {
	size, err := o.intOr("one_hot_vector_size", 1)
	if err != nil {
		return err
	}
	idx, err := o.p.straight(o.x("indices"))
	if err != nil {
		return err
	}
	r := len(idx.shape())
	axis, err := o.axis("axis", -1, r+1)
	if err != nil {
		return err
	}
	if size < 0 || size > maxElements || idx.dt.IsFloat() {
		return fmt.Errorf("one_hot_vector_size is %d, indices are %v", size, idx.dt)
	}
	ts, err := o.infer()
	if err != nil {
		return err
	}
	d := ts[0].DType
	on, off := o.x("on_value"), o.x("off_value")
	if on == nil || off == nil || !on.isConst() || !off.isConst() || on.size() != 1 || off.size() != 1 {
		return fmt.Errorf("on_value and off_value must be one number each: %w", errNeedsValue)
	}
	fOn, err := o.floatOr("on_value", 1)
	if err != nil {
		return err
	}
	fOff, err := o.floatOr("off_value", 0)
	if err != nil {
		return err
	}
	out, err := o.p.fresh(d, slices.Insert(slices.Clone(idx.shape()), axis, size), o.constant)
	if err != nil {
		return err
	}
	iOn, iOff := truncate(fOn), truncate(fOff)
	if !on.dt.IsFloat() {
		k, _ := o.intOr("on_value", 1)
		iOn = int32(k)
	}
	if !off.dt.IsFloat() {
		k, _ := o.intOr("off_value", 0)
		iOff = int32(k)
	}
	if out.size() > 0 {
		inner := product(idx.shape()[axis:])
		err = o.each(idx.size(), grain/size, []*val{idx}, []*val{out}, func(c *call, _, lo, hi int) {
			for k := lo; k < hi; k++ {
				hot, base := int(c.i32of(idx)[k]), k/inner*size*inner+k%inner
				for j := range size {
					if d.IsFloat() {
						v := fOff
						if j == hot {
							v = fOn
						}
						c.f32(out.buf)[base+j*inner] = v
					} else {
						v := iOff
						if j == hot {
							v = iOn
						}
						c.i32(out.buf)[base+j*inner] = v
					}
				}
			}
		})
		if err != nil {
			return err
		}
	}
	return o.give(out, true)
}

func buildArgsort(o *opCtx) error {
	x := o.x("x")
	axis, err := o.axis("axis", -1, len(x.shape()))
	if err != nil {
		return err
	}
	ascending, err := o.boolOr("ascending", false)
	if err != nil {
		return err
	}
	in, n, perm, err := o.rowsOf(x, []int{axis})
	if err != nil {
		return err
	}
	ids, err := o.p.fresh(mil.Int32, in.shape(), o.constant)
	if err != nil {
		return err
	}
	if ids.size() > 0 {
		o.p.need(n)
		run := topKStep[float32](in, nil, ids, n, n, ascending)
		if in.buf.elem == elemI32 {
			run = topKStep[int32](in, nil, ids, n, n, ascending)
		}
		if err := o.p.emit(bufsOf(in), bufsOf(ids), run); err != nil {
			return err
		}
	}
	return o.give(ids.with(ids.v.permute(inverse(perm))), true)
}

// buildReverseSequence turns the first elements of every row around.
func buildReverseSequence(o *opCtx) error {
	if _, err := o.infer(); err != nil {
		return err
	}
	x, lengths := o.x("x"), o.x("lengths")
	r := len(x.shape())
	seq, err := o.axis("seq_axis", 0, r)
	if err != nil {
		return err
	}
	batch, err := o.axis("batch_axis", 0, r)
	if err != nil {
		return err
	}
	if x, err = o.p.straight(x); err != nil {
		return err
	}
	if lengths, err = o.p.straight(lengths); err != nil {
		return err
	}
	if seq == batch {
		return fmt.Errorf("seq_axis and batch_axis are both %d", seq)
	}
	out, err := o.p.fresh(x.dt, x.shape(), o.constant)
	if err != nil {
		return err
	}
	n, inner, total := x.shape()[seq], product(x.shape()[seq+1:]), product(x.shape()[:seq+1])
	// The position on the batch axis of a slice and of an element in it.
	var outerStep, outerSize, innerStep, innerSize = 1, 1, 1, 1
	if batch < seq {
		outerStep, outerSize = product(x.shape()[batch+1:seq+1]), x.shape()[batch]
	} else {
		innerStep, innerSize = product(x.shape()[batch+1:]), x.shape()[batch]
	}
	if out.size() > 0 {
		err = o.each(total, max(1, grain/inner), []*val{x, lengths}, []*val{out}, func(c *call, _, lo, hi int) {
			for k := lo; k < hi; k++ {
				at := k % n
				for j := range inner {
					b := j / innerStep % innerSize
					if batch < seq {
						b = k / outerStep % outerSize
					}
					length := int(c.i32of(lengths)[b])
					if length < 0 || length > n {
						c.fail(fmt.Errorf("length %d of sequence %d is not within 0 to %d", length, b, n))
						return
					}
					from := k
					if at < length {
						from = k - at + length - 1 - at
					}
					if x.buf.elem == elemI32 {
						c.i32(out.buf)[k*inner+j] = c.i32of(x)[from*inner+j]
					} else {
						c.f32(out.buf)[k*inner+j] = c.f32of(x)[from*inner+j]
					}
				}
			}
		})
		if err != nil {
			return err
		}
	}
	return o.give(out, false)
}

// buildWindows gives overlapping stretches of an axis: a view, which only
// names elements more than once.
func buildWindows(o *opCtx) error {
	shape, err := o.shapeOf()
	if err != nil {
		return err
	}
	x, err := o.movable(o.x("x"))
	if err != nil {
		return err
	}
	axis, err := o.axis("axis", 0, len(x.shape()))
	if err != nil {
		return err
	}
	stride, err := o.intOr("stride", 1)
	if err != nil {
		return err
	}
	s, ok := x.v.stride(axis)
	if !ok {
		if x, err = o.p.copyOf(x); err != nil {
			return err
		}
		s, _ = x.v.stride(axis)
	}
	w := view{off: x.v.off, shape: shape, axes: slices.Insert(slices.Clone(x.v.axes), axis+1, nil)}
	for i, step := range []int{s * stride, s} {
		w.axes[axis+i] = nil
		if n := shape[axis+i]; n != 1 {
			w.axes[axis+i] = []dim{{n, step}}
		}
	}
	if w.size() == 0 {
		w = dense(shape)
	}
	return o.give(x.with(w), false)
}

// moved gives x reshaped, its axes permuted, and reshaped again.
func (o *opCtx) moved(x *val, first, perm, last []int) error {
	x, err := o.movable(x)
	if err != nil {
		return err
	}
	if product(first) != x.size() || product(last) != x.size() {
		return fmt.Errorf("x of shape %v does not divide into blocks", x.shape())
	}
	reshape := func(x *val, shape []int) (*val, error) {
		if w, ok := x.v.reshape(shape); ok {
			return x.with(w), nil
		}
		x, err := o.p.straight(x)
		if err != nil {
			return nil, err
		}
		w, _ := x.v.reshape(shape)
		return x.with(w), nil
	}
	if x, err = reshape(x, first); err != nil {
		return err
	}
	if x, err = reshape(x.with(x.v.permute(perm)), last); err != nil {
		return err
	}
	return o.give(x, false)
}

// blocksOp trades channels for pixels: inner says that the channels of a
// block lie side by side, up that pixels become more.
func blocksOp(factor string, inner, up bool) builder {
	return func(o *opCtx) error {
		shape, err := o.shapeOf()
		if err != nil {
			return err
		}
		b, err := o.intOr(factor, 1)
		if err != nil {
			return err
		}
		x := o.x("x")
		n := shape[0]
		if up {
			c, h, w := shape[1], x.shape()[2], x.shape()[3]
			if inner {
				return o.moved(x, []int{n, c, b, b, h, w}, []int{0, 1, 4, 2, 5, 3}, shape)
			}
			return o.moved(x, []int{n, b, b, c, h, w}, []int{0, 3, 4, 1, 5, 2}, shape)
		}
		c, h, w := x.shape()[1], shape[2], shape[3]
		if inner {
			return o.moved(x, []int{n, c, h, b, w, b}, []int{0, 1, 3, 5, 2, 4}, shape)
		}
		return o.moved(x, []int{n, c, h, b, w, b}, []int{0, 3, 5, 1, 2, 4}, shape)
	}
}

func buildSpaceToBatch(o *opCtx) error {
	shape, err := o.shapeOf()
	if err != nil {
		return err
	}
	b, err := o.mustInts("block_shape")
	if err != nil {
		return err
	}
	pad, err := o.mustInts("paddings")
	if err != nil {
		return err
	}
	x := o.x("x")
	s := x.shape()
	n, c, h, w := s[0], s[1], s[2]+pad[0]+pad[1], s[3]+pad[2]+pad[3]
	wide, err := o.p.fresh(x.dt, []int{n, c, h, w}, o.constant)
	if err != nil {
		return err
	}
	if wide.size() > 0 {
		if err := o.fill(wide, 0, 0); err != nil {
			return err
		}
		v, _ := wide.v.slice(2, pad[0], s[2], 1)
		v, _ = v.slice(3, pad[2], s[3], 1)
		if x.size() > 0 {
			if err := o.p.copyTo(wide.with(v), x); err != nil {
				return err
			}
		}
	}
	return o.moved(wide, []int{n, c, h / b[0], b[0], w / b[1], b[1]}, []int{3, 5, 0, 1, 2, 4}, shape)
}

func buildBatchToSpace(o *opCtx) error {
	shape, err := o.shapeOf()
	if err != nil {
		return err
	}
	b, err := o.mustInts("block_shape")
	if err != nil {
		return err
	}
	crop, err := o.mustInts("crops")
	if err != nil {
		return err
	}
	x := o.x("x")
	s := x.shape()
	n, c := shape[0], shape[1]
	// The whole picture is a value of its own; what is cropped of it is a
	// view.
	y, err := o.inner(4, func(sub *opCtx) error {
		return sub.moved(x, []int{b[0], b[1], n, c, s[2], s[3]}, []int{2, 3, 4, 0, 5, 1}, []int{n, c, s[2] * b[0], s[3] * b[1]})
	})
	if err != nil {
		return err
	}
	if y, err = o.sliced(y, 2, crop[0], shape[2], 1); err != nil {
		return err
	}
	if y, err = o.sliced(y, 3, crop[2], shape[3], 1); err != nil {
		return err
	}
	return o.give(y, false)
}

// take returns the planned form of a value that only the planner knows, and
// forgets it.
func (p *planner) take(r *mil.Value) *val {
	if p.live != nil {
		if p.heap.keep {
			v := p.live.vals[r]
			delete(p.live.vals, r)
			return v
		}
		v := p.vals[r]
		p.heap.drop(p, r)
		return v
	}
	v := p.vals[r]
	delete(p.vals, r)
	return v
}

func buildReshapeTo(o *opCtx) error {
	shape, err := o.shapeOf()
	if err != nil {
		return err
	}
	x := o.x("x")
	if n, ok := mil.NumElements(shape); !ok || n != x.size() || len(shape) > maxRank || x.str != nil {
		return fmt.Errorf("%v does not reshape to %v", x.shape(), shape)
	}
	return o.reshaped(x, shape)
}

// buildNMS keeps the boxes of the highest scores that do not overlap others
// that are kept. A box's class is that of its highest score. If no box
// reaches the least score, the best one is kept nevertheless, as Core ML
// does; places that are left over hold 0, and -1 as the index.
func buildNMS(o *opCtx) error {
	ts, err := o.infer()
	if err != nil {
		return err
	}
	boxes, err := o.dense32(o.x("boxes"))
	if err != nil {
		return err
	}
	scores, err := o.dense32(o.x("scores"))
	if err != nil {
		return err
	}
	iou, err := o.floatOr("iou_threshold", 0)
	if err != nil {
		return err
	}
	least, err := o.floatOr("score_threshold", float32(math.Inf(-1)))
	if err != nil {
		return err
	}
	most, err := o.intOr("max_boxes", 0)
	if err != nil {
		return err
	}
	perClass, err := o.boolOr("per_class_suppression", false)
	if err != nil {
		return err
	}
	// Since iOS 17 the boxes are the last axis.
	last := o.since(mil.CoreML7)
	batch, n, classes := scores.shape()[0], scores.shape()[1], scores.shape()[2]
	if last {
		n, classes = classes, n
	}
	if n == 0 || classes == 0 {
		return fmt.Errorf("no boxes: scores have the shape %v", scores.shape())
	}
	outs := make([]*val, len(ts))
	for i, t := range ts {
		if !t.Static() {
			return fmt.Errorf("result %d: %w", i, errNeedsValue)
		}
		if outs[i], err = o.p.fresh(t.DType, t.Shape, o.constant); err != nil {
			return err
		}
	}
	o.p.need(4 * n) // order, best score, class, kept
	err = o.each(batch, 1, []*val{boxes, scores}, outs, func(c *call, slot, lo, hi int) {
		order, best := temp[int32](c, slot, 0, n), temp[float32](c, slot, n, n)
		class, kept := temp[int32](c, slot, 2*n, n), temp[int32](c, slot, 3*n, n)
		for b := lo; b < hi; b++ {
			box := func(i, k int) float32 {
				if last {
					return c.f32of(boxes)[(b*4+k)*n+i]
				}
				return c.f32of(boxes)[(b*n+i)*4+k]
			}
			score := func(i, k int) float32 {
				if last {
					return c.f32of(scores)[(b*classes+k)*n+i]
				}
				return c.f32of(scores)[(b*n+i)*classes+k]
			}
			for i := range n {
				order[i], best[i], class[i] = int32(i), score(i, 0), 0
				for k := 1; k < classes; k++ {
					if s := score(i, k); s > best[i] {
						best[i], class[i] = s, int32(k)
					}
				}
			}
			slices.SortFunc(order, func(i, j int32) int {
				switch {
				case best[i] > best[j]:
					return -1
				case best[i] < best[j]:
					return 1
				}
				return int(i - j)
			})
			count := 0
			for _, i := range order {
				if count == most || best[i] < least {
					break
				}
				free := true
				for _, k := range kept[:count] {
					if (!perClass || class[k] == class[i]) && overlap(box, int(i), int(k)) > iou {
						free = false
						break
					}
				}
				if free {
					kept[count] = i
					count++
				}
			}
			if count == 0 && most > 0 {
				kept[0], count = order[0], 1
			}
			for j := range most {
				i, used := 0, j < count
				if used {
					i = int(kept[j])
				}
				for k := range 4 {
					at := (b*most+j)*4 + k
					if last {
						at = (b*4+k)*most + j
					}
					c.f32(outs[0].buf)[at] = 0
					if used {
						c.f32(outs[0].buf)[at] = box(i, k)
					}
				}
				for k := range classes {
					at := (b*most+j)*classes + k
					if last {
						at = (b*classes+k)*most + j
					}
					c.f32(outs[1].buf)[at] = 0
					if used {
						c.f32(outs[1].buf)[at] = score(i, k)
					}
				}
				c.i32(outs[2].buf)[b*most+j] = -1
				if used {
					c.i32(outs[2].buf)[b*most+j] = int32(i)
				}
			}
			if len(outs) > 3 {
				c.i32(outs[3].buf)[b] = int32(count)
			}
		}
	})
	if err != nil {
		return err
	}
	for _, v := range outs {
		if err := o.give(v, true); err != nil {
			return err
		}
	}
	return nil
}

// overlap returns the part that two boxes have in common, of what they cover
// together. Boxes are x, y, width and height, from the center.
func overlap(box func(i, k int) float32, i, j int) float32 {
	span := func(k int) float32 {
		lo := max(box(i, k)-box(i, k+2)/2, box(j, k)-box(j, k+2)/2)
		hi := min(box(i, k)+box(i, k+2)/2, box(j, k)+box(j, k+2)/2)
		return max(0, hi-lo)
	}
	both := span(0) * span(1)
	union := box(i, 2)*box(i, 3) + box(j, 2)*box(j, 3) - both
	if union <= 0 {
		return 0
	}
	return both / union
}
