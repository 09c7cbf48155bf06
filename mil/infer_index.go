package mil

import (
	"fmt"
	"slices"
)

// SliceBounds returns the first index and the number of elements that the
// slice [begin:end:stride] of a dimension of size n covers. As in Python,
// negative bounds count from the end and bounds beyond it are clamped; a
// mask replaces a bound by the end of the dimension in its direction. A
// stride of 0 covers nothing.
func SliceBounds(n, begin, end, stride int, beginMask, endMask bool) (first, count int) {
	clamp := func(i, lo, hi int) int {
		if i < 0 {
			i += n
		}
		return min(max(i, lo), hi)
	}
	switch {
	case stride > 0:
		first, end = clamp(begin, 0, n), clamp(end, 0, n)
		if beginMask {
			first = 0
		}
		if endMask {
			end = n
		}
		return first, steps(end-first, stride)
	case stride < 0:
		first, end = clamp(begin, -1, n-1), clamp(end, -1, n-1)
		if beginMask {
			first = n - 1
		}
		if endMask {
			end = -1
		}
		return first, steps(first-end, -stride)
	}
	return clamp(begin, 0, n), 0
}

// steps returns how many steps of a stride a span has.
func steps(span, stride int) int {
	switch {
	case span <= 0:
		return 0
	case stride <= 0: // the negative of the smallest integer
		return 1
	}
	return (span-1)/stride + 1
}

// index is what slice_by_index and slice_update are told of one axis.
type index struct {
	begin, end, stride int
	hasBegin, hasEnd   bool // known
	beginMask, endMask bool
}

// count returns how many elements of an axis of size n the index covers,
// Dynamic if that cannot be told.
func (i index) count(n int) int {
	unmasked := !i.beginMask && !i.endMask && i.hasBegin && i.hasEnd
	switch {
	case n >= 0 && (i.hasBegin || i.beginMask) && (i.hasEnd || i.endMask):
		_, n = SliceBounds(n, i.begin, i.end, i.stride, i.beginMask, i.endMask)
		return n
	case n == 1 && !i.endMask && !i.beginMask: // one element is taken of one
		return 1

	// A few slices have as many elements whatever the size of the axis is.
	case unmasked && i.begin >= 0 && i.end >= 0 && i.stride > 0:
		if n := steps(i.end-i.begin, i.stride); n <= 1 {
			return n
		}
	case unmasked && i.begin < 0 && i.end < 0 && i.stride < 0:
		if n := steps(i.begin-i.end, -i.stride); n <= 1 {
			return n
		}
	case !i.beginMask && i.endMask && i.hasBegin && (i.begin == 0 && i.stride < 0 || i.begin == -1 && i.stride > 0):
		return 1
	}
	return Dynamic
}

// sliceShape returns the dimensions that an index addresses, without the
// squeezed ones.
func (c *call) sliceShape(x Type) (kept []int, err error) {
	r := x.Rank()
	for _, name := range []string{"begin", "end", "stride"} {
		if c.has(name) {
			if err := c.shaped(name, r); err != nil {
				return nil, fmt.Errorf("%w: a number for each axis of %v", err, x)
			}
		}
	}
	begin, hasBegin := c.ints("begin")
	end, hasEnd := c.ints("end")
	stride, err := c.vec("stride")
	if err != nil {
		return nil, err
	}
	if hasBegin && len(begin) != r || hasEnd && len(end) != r || len(stride) != r {
		return nil, fmt.Errorf("begin, end or stride do not hold %d numbers", r)
	}
	var masks [3][]bool
	for i, name := range []string{"begin_mask", "end_mask", "squeeze_mask"} {
		if masks[i], err = c.bools(name, r); err != nil {
			return nil, err
		}
	}
	kept = []int{}
	for a, d := range x.Shape {
		i := index{stride: stride[a], hasBegin: hasBegin, hasEnd: hasEnd, beginMask: masks[0][a], endMask: masks[1][a]}
		if hasBegin {
			i.begin = begin[a]
		}
		if hasEnd {
			i.end = end[a]
		}
		if i.stride == 0 {
			return nil, fmt.Errorf("stride is 0 in dimension %d", a)
		}
		if !masks[2][a] {
			kept = append(kept, i.count(d))
		}
	}
	return kept, nil
}

func inferSlice(c *call) ([]Type, error) {
	x := c.t("x")
	kept, err := c.sliceShape(x)
	if err != nil {
		return nil, err
	}
	return one(x.DType, kept...)
}

func inferSliceSize(c *call) ([]Type, error) {
	x := c.t("x")
	r := x.Rank()
	for _, name := range []string{"begin", "size"} {
		if err := c.shaped(name, r); err != nil {
			return nil, fmt.Errorf("%w: a number for each axis of %v", err, x)
		}
	}
	size, hasSize := c.ints("size")
	begin, hasBegin := c.ints("begin")
	if hasSize && len(size) != r || hasBegin && len(begin) != r {
		return nil, fmt.Errorf("begin or size do not hold %d numbers", r)
	}
	out := make([]int, r)
	for i, d := range x.Shape {
		b := 0
		if hasBegin {
			if b = begin[i]; d >= 0 && (b > d || b < -d) {
				return nil, fmt.Errorf("begin %v is outside %v", begin, x)
			}
		}
		switch {
		case !hasSize || size[i] == -1 && (!hasBegin || d < 0):
			out[i] = Dynamic
		case size[i] == -1 && b < 0:
			out[i] = -b
		case size[i] == -1:
			out[i] = d - b
		case size[i] < 0 || d >= 0 && size[i] > d-max(0, b):
			return nil, fmt.Errorf("size %v from %v is outside %v", size, begin, x)
		default:
			out[i] = size[i]
		}
	}
	return one(x.DType, out...)
}

func inferSliceUpdate(c *call) ([]Type, error) {
	x, u := c.t("x"), c.t("update")
	kept, err := c.sliceShape(x)
	if err != nil {
		return nil, err
	}
	if u.Rank() == 0 {
		return nil, fmt.Errorf("update is a scalar")
	}
	if !fits(u.Shape, kept) {
		return nil, fmt.Errorf("update is %v, but the slice of %v has the shape %s", u, x, dims(kept))
	}
	return []Type{x}, nil
}

// validIndices holds constant indices, if the operation shall, to the axes
// that they address, in turn.
func (c *call) validIndices(axes ...int) error {
	if c.d.Param("validate_indices") == nil {
		return nil
	}
	if on, err := c.flag("validate_indices"); err != nil || !on {
		return err
	}
	v, ok := c.ints("indices")
	if !ok || len(axes) == 0 {
		return nil
	}
	for i, x := range v {
		if n := axes[i%len(axes)]; x < 0 || n >= 0 && x >= n {
			return fmt.Errorf("index %d is outside an axis of %d", x, n)
		}
	}
	return nil
}

// batchDims returns the number of axes that data and indices share.
func (c *call) batchDims(most int) (int, error) {
	if c.d.Param("batch_dims") == nil {
		return 0, nil
	}
	b, err := c.int("batch_dims")
	if err != nil || b < 0 || b > most {
		return 0, errorOr(err, "argument %q is %d, want 0 to %d", "batch_dims", b, most)
	}
	return b, nil
}

func inferGather(c *call) ([]Type, error) {
	x, ind := c.t("x"), c.t("indices")
	a, err := c.axis("axis", x.Rank())
	if err != nil {
		return nil, err
	}
	b, err := c.batchDims(min(a, ind.Rank()))
	if err != nil {
		return nil, err
	}
	if !fits(x.Shape[:b], ind.Shape[:b]) {
		return nil, fmt.Errorf("indices %v do not share %d axes with %v", ind, b, x)
	}
	if err := c.validIndices(x.Shape[a]); err != nil {
		return nil, err
	}
	return one(x.DType, slices.Concat(x.Shape[:a], ind.Shape[b:], x.Shape[a+1:])...)
}

// alongAxis checks indices that have the shape of the data but for one axis.
func (c *call) alongAxis(data string) error {
	x, ind := c.t(data), c.t("indices")
	a, err := c.axis("axis", x.Rank())
	if err != nil {
		return err
	}
	if x.Rank() != ind.Rank() {
		return fmt.Errorf("indices %v and %v differ in rank", ind, x)
	}
	for i, d := range x.Shape {
		if i != a && !sameDim(d, ind.Shape[i]) {
			return fmt.Errorf("indices %v and %v differ in axis %d", ind, x, i)
		}
	}
	return c.validIndices(x.Shape[a])
}

func inferGatherAlong(c *call) ([]Type, error) {
	if err := c.alongAxis("x"); err != nil {
		return nil, err
	}
	return one(c.t("x").DType, c.t("indices").Shape...)
}

// slicesAt returns the shape of what the vectors in "indices" address.
func (c *call) slicesAt(data string) ([]int, error) {
	x, ind := c.t(data), c.t("indices")
	if ind.Rank() == 0 {
		return nil, fmt.Errorf("indices are a scalar")
	}
	b, err := c.batchDims(min(x.Rank(), ind.Rank()-1))
	if err != nil {
		return nil, err
	}
	k := ind.Shape[ind.Rank()-1]
	if k < 0 || k > x.Rank()-b || !fits(x.Shape[:b], ind.Shape[:b]) {
		return nil, fmt.Errorf("indices %v do not fit %v", ind, x)
	}
	if err := c.validIndices(x.Shape[b : b+k]...); err != nil {
		return nil, err
	}
	return slices.Concat(ind.Shape[:ind.Rank()-1], x.Shape[b+k:]), nil
}

func inferGatherND(c *call) ([]Type, error) {
	s, err := c.slicesAt("x")
	if err != nil {
		return nil, err
	}
	return one(c.t("x").DType, s...)
}

func inferScatter(c *call) ([]Type, error) {
	x, ind := c.t("data"), c.t("indices")
	a, err := c.axis("axis", x.Rank())
	if err != nil {
		return nil, err
	}
	if err := c.shaped("updates", slices.Concat(x.Shape[:a], ind.Shape, x.Shape[a+1:])...); err != nil {
		return nil, err
	}
	return []Type{x}, c.validIndices(x.Shape[a])
}

func inferScatterAlong(c *call) ([]Type, error) {
	if err := c.alongAxis("data"); err != nil {
		return nil, err
	}
	return []Type{c.t("data")}, c.shaped("updates", c.t("indices").Shape...)
}

func inferScatterND(c *call) ([]Type, error) {
	s, err := c.slicesAt("data")
	if err != nil {
		return nil, err
	}
	return []Type{c.t("data")}, c.shaped("updates", s...)
}

func inferNMS(c *call) ([]Type, error) {
	boxes, scores := c.t("boxes"), c.t("scores")
	if err := c.rank("boxes", 3); err != nil {
		return nil, err
	}
	if err := c.rank("scores", 3); err != nil {
		return nil, err
	}
	most, err := c.size("max_boxes", 0)
	if err != nil {
		return nil, err
	}
	n := scores.Shape[0]
	if c.since(CoreML7) { // the boxes are the last axis
		if !fits(boxes.Shape, []int{n, 4, scores.Shape[2]}) {
			return nil, fmt.Errorf("boxes %v with scores %v", boxes, scores)
		}
		return []Type{TensorOf(boxes.DType, n, 4, most), TensorOf(scores.DType, n, scores.Shape[1], most), TensorOf(Int32, n, most)}, nil
	}
	if !fits(boxes.Shape, []int{n, scores.Shape[1], 4}) {
		return nil, fmt.Errorf("boxes %v with scores %v", boxes, scores)
	}
	return []Type{TensorOf(boxes.DType, n, most, 4), TensorOf(scores.DType, n, most, scores.Shape[2]), TensorOf(Int32, n, most), TensorOf(Int32, n)}, nil
}
