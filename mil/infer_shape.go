package mil

import (
	"fmt"
	"slices"
)

func inferReshape(c *call) ([]Type, error) {
	x := c.t("x")
	s, known, err := c.shapeOperand("shape")
	if err != nil {
		return nil, err
	}
	if !known {
		return one(x.DType, s...)
	}
	out := slices.Clone(s)
	free := -1
	for i, d := range s {
		switch {
		case d == -1 && free >= 0:
			return nil, fmt.Errorf("shape %v leaves two dimensions open", s)
		case d == -1:
			free = i
		case d < 0:
			return nil, fmt.Errorf("shape %v has a negative dimension", s)
		case d > 0:
		case c.since(CoreML7): // the same place from the end, 1 in front of all
			out[i] = 1
			if j := x.Rank() - (len(s) - i); j >= 0 {
				out[i] = x.Shape[j]
			}
		case len(s) != x.Rank():
			return nil, fmt.Errorf("shape %v has a 0, but not the rank of %v", s, x)
		default:
			out[i] = x.Shape[i]
		}
	}
	n, ok := x.NumElements()
	if !ok {
		if x.Static() {
			return nil, fmt.Errorf("%v is too large", x)
		}
		return one(x.DType, out...)
	}
	if free >= 0 {
		out[free] = 1
	}
	m, ok := NumElements(out)
	if !ok || (free < 0 && m != n) || (free >= 0 && (m == 0 || n%m != 0)) {
		return nil, fmt.Errorf("%v does not reshape to %v", x, s)
	}
	if free >= 0 {
		out[free] = n / m
	}
	return one(x.DType, out...)
}

func inferReshapeLike(c *call) ([]Type, error) {
	x := c.t("x")
	refs, begins, ends, masks := c.op.Arg("ref_tensors"), c.op.Arg("begins"), c.op.Arg("ends"), c.op.Arg("end_masks")
	if len(begins) != len(refs) || len(ends) != len(refs) || len(masks) != len(refs) {
		return nil, fmt.Errorf("%d ref_tensors with %d begins, %d ends and %d end_masks", len(refs), len(begins), len(ends), len(masks))
	}
	out := []int{}
	for i, r := range refs {
		b, ok1 := ConstInts(begins[i])
		e, ok2 := ConstInts(ends[i])
		m := masks[i].Literal
		if !ok1 || !ok2 || m == nil || len(b) != 1 || len(e) != 1 || len(m.Bools) != 1 {
			return nil, fmt.Errorf("begins, ends and end_masks must be constant scalars")
		}
		from, n := SliceBounds(r.Type.Rank(), b[0], e[0], 1, false, m.Bools[0])
		if out = append(out, r.Type.Shape[from:from+n]...); len(out) > maxRank {
			return nil, fmt.Errorf("result has rank %d or more, more than %d", len(out), maxRank)
		}
	}
	n, ok1 := x.NumElements()
	m, ok2 := NumElements(out)
	if ok1 && ok2 && n != m {
		return nil, fmt.Errorf("%v does not reshape to %s", x, dims(out))
	}
	return one(x.DType, out...)
}

func inferTranspose(c *call) ([]Type, error) {
	x := c.t("x")
	p, err := c.vec("perm")
	if err != nil {
		return nil, err
	}
	if len(p) != x.Rank() {
		return nil, fmt.Errorf("perm %v of a %v, want %d numbers", p, x, x.Rank())
	}
	if _, err := c.axes("perm", x.Rank()); err != nil {
		return nil, err
	}
	out := make([]int, len(p))
	for i, a := range p {
		a, _ = axis(a, x.Rank())
		out[i] = x.Shape[a]
	}
	return one(x.DType, out...)
}

func inferExpandDims(c *call) ([]Type, error) {
	x := c.t("x")
	v, err := c.vec("axes")
	if err != nil {
		return nil, err
	}
	if len(v) > maxRank {
		return nil, fmt.Errorf("%d axes, more than %d", len(v), maxRank)
	}
	named, err := c.axes("axes", x.Rank()+len(v))
	if err != nil {
		return nil, err
	}
	out := make([]int, len(named))
	i := 0
	for j := range out {
		if out[j] = 1; !named[j] {
			out[j] = x.Shape[i]
			i++
		}
	}
	return one(x.DType, out...)
}

func inferSqueeze(c *call) ([]Type, error) {
	x := c.t("x")
	named := make([]bool, x.Rank())
	if c.has("axes") {
		var err error
		if named, err = c.axes("axes", x.Rank()); err != nil {
			return nil, err
		}
	}
	for i, d := range x.Shape {
		if !c.has("axes") {
			named[i] = d == 1
		} else if named[i] && d != 1 && d >= 0 {
			return nil, fmt.Errorf("axis %d of %v is not 1", i, x)
		}
	}
	return one(x.DType, without(x.Shape, named, false)...)
}

func inferReverseSequence(c *call) ([]Type, error) {
	x := c.t("x")
	if _, err := c.axis("seq_axis", x.Rank()); err != nil {
		return nil, err
	}
	b, err := c.axis("batch_axis", x.Rank())
	if err != nil {
		return nil, err
	}
	if err := c.shaped("lengths", x.Shape[b]); err != nil {
		return nil, err
	}
	return inferSame(c)
}

func inferWindows(c *call) ([]Type, error) {
	x := c.t("x")
	a, err := c.axis("axis", x.Rank())
	if err != nil {
		return nil, err
	}
	size, err := c.size("size", 1)
	if err != nil {
		return nil, err
	}
	stride, err := c.size("stride", 1)
	if err != nil {
		return nil, err
	}
	out := slices.Insert(slices.Clone(x.Shape), a+1, size)
	if d := x.Shape[a]; d >= 0 {
		if d < size {
			return nil, fmt.Errorf("window of %d along axis %d of %v", size, a, x)
		}
		out[a] = (d-size)/stride + 1
	}
	return one(x.DType, out...)
}

func inferFlatten(c *call) ([]Type, error) {
	x := c.t("x")
	a, err := c.int("axis")
	if err == nil && a == x.Rank() {
		a = 0 // everything before the axis
	} else if err == nil {
		a, err = axis(a, x.Rank())
		a -= x.Rank()
	}
	if err != nil {
		return nil, err
	}
	before, err := times(x.Shape[:x.Rank()+a]...)
	if err != nil {
		return nil, err
	}
	behind, err := times(x.Shape[x.Rank()+a:]...)
	if err != nil {
		return nil, err
	}
	return one(x.DType, before, behind)
}

func inferConcat(c *call) ([]Type, error) {
	vals := c.op.Arg("values")
	first := vals[0].Type
	if first.Rank() == 0 { // scalars make a vector
		for _, v := range vals[1:] {
			if v.Type.Rank() != 0 {
				return nil, fmt.Errorf("values %v and %v do not concatenate", first, v.Type)
			}
		}
		return one(first.DType, len(vals))
	}
	a, err := c.axis("axis", first.Rank())
	if err != nil {
		return nil, err
	}
	interleave, err := c.flag("interleave")
	if err != nil {
		return nil, err
	}
	out := slices.Clone(first.Shape)
	for _, v := range vals[1:] {
		if v.Type.Rank() != first.Rank() {
			return nil, fmt.Errorf("values %v and %v do not concatenate", first, v.Type)
		}
		for i, d := range v.Type.Shape {
			switch {
			case i == a:
				if interleave && !sameDim(d, first.Shape[a]) {
					return nil, fmt.Errorf("values %v and %v do not interleave along axis %d", first, v.Type, a)
				}
				if out[i], err = plus(out[i], d); err != nil {
					return nil, err
				}
			case out[i] < 0:
				out[i] = d
			case !sameDim(d, out[i]):
				return nil, fmt.Errorf("values %v and %v do not concatenate along axis %d", first, v.Type, a)
			}
		}
	}
	return one(first.DType, out...)
}

func inferStack(c *call) ([]Type, error) {
	vals := c.op.Arg("values")
	first := vals[0].Type
	a, err := c.axis("axis", first.Rank()+1)
	if err != nil {
		return nil, err
	}
	out := slices.Clone(first.Shape)
	for _, v := range vals[1:] {
		if !fits(out, v.Type.Shape) {
			return nil, fmt.Errorf("values %v and %v do not stack", first, v.Type)
		}
		for i, d := range v.Type.Shape {
			out[i] = max(out[i], d)
		}
	}
	return one(first.DType, slices.Insert(out, a, len(vals))...)
}

// maxSplits is a bound on the results of one operation.
const maxSplits = 1 << 16

func inferSplit(c *call) ([]Type, error) {
	x := c.t("x")
	a, err := c.axis("axis", x.Rank())
	if err != nil {
		return nil, err
	}
	n := 0
	if c.has("num_splits") {
		if n, err = c.size("num_splits", 1); err != nil {
			return nil, err
		}
	}
	var sizes []int
	switch d := x.Shape[a]; {
	case c.has("split_sizes"):
		if sizes, err = c.vec("split_sizes"); err != nil {
			return nil, err
		}
		if n != 0 && n != len(sizes) {
			return nil, fmt.Errorf("num_splits is %d, but there are %d split_sizes", n, len(sizes))
		}
	case n == 0:
		return nil, fmt.Errorf("neither num_splits nor split_sizes is given")
	case n > maxSplits || d >= 0 && d%n != 0:
		return nil, fmt.Errorf("axis %d of %v does not split into %d", a, x, n)
	case d < 0:
		sizes = slices.Repeat([]int{Dynamic}, n)
	default:
		sizes = slices.Repeat([]int{d / n}, n)
	}
	if len(sizes) > maxSplits {
		return nil, fmt.Errorf("%d parts, more than %d", len(sizes), maxSplits)
	}
	var out []Type
	for _, s := range sizes {
		if s < 0 && c.has("split_sizes") {
			return nil, fmt.Errorf("negative split size %d", s)
		}
		t := TensorOf(x.DType, slices.Clone(x.Shape)...)
		t.Shape[a] = s
		out = append(out, t)
	}
	sum, err := plus(sizes...)
	if err != nil || !sameDim(sum, x.Shape[a]) {
		return nil, errorOr(err, "split sizes %v do not sum to %d", sizes, x.Shape[a])
	}
	return out, nil
}

func inferTile(c *call) ([]Type, error) {
	x := c.t("x")
	reps, known, err := c.shapeOperand("reps")
	if err != nil {
		return nil, err
	}
	if len(reps) != x.Rank() || len(reps) == 0 {
		return nil, fmt.Errorf("%d reps for %v", len(reps), x)
	}
	out := slices.Clone(x.Shape)
	for i := range out {
		if known && reps[i] < 1 {
			return nil, fmt.Errorf("reps %v, want at least 1", reps)
		}
		if out[i], err = times(out[i], reps[i]); err != nil {
			return nil, err
		}
	}
	return one(x.DType, out...)
}

func inferPad(c *call) ([]Type, error) {
	x := c.t("x")
	out := slices.Clone(x.Shape)
	p, ok := c.ints("pad")
	if !ok {
		if t := c.t("pad"); !fits(t.Shape, []int{2 * x.Rank()}) {
			return nil, fmt.Errorf("argument \"pad\" is a %v, want %d numbers where they are not constant", t, 2*x.Rank())
		}
		return one(x.DType, slices.Repeat([]int{Dynamic}, len(out))...)
	}
	if len(p)%2 != 0 || len(p)/2 > len(out) {
		return nil, fmt.Errorf("%d pads for %v", len(p), x)
	}
	for i := range len(p) / 2 {
		j := len(out) - len(p)/2 + i
		if p[2*i] < 0 || p[2*i+1] < 0 {
			return nil, fmt.Errorf("pad %v has a negative number", p)
		}
		var err error
		if out[j], err = plus(out[j], p[2*i], p[2*i+1]); err != nil {
			return nil, err
		}
	}
	return one(x.DType, out...)
}

func inferShape(c *call) ([]Type, error) { return one(Int32, c.t("x").Rank()) }

func (c *call) valueType() DType {
	if c.has("value") {
		return c.t("value").DType
	}
	return Float32
}

func inferFill(c *call) ([]Type, error) { return c.filled(c.valueType()) }

func inferFillLike(c *call) ([]Type, error) { return one(c.valueType(), c.t("ref_tensor").Shape...) }

// inferBlocks covers the operations that trade pixels for channels.
func inferBlocks(c *call) ([]Type, error) {
	x := c.t("x")
	if err := c.rank("x", 4); err != nil {
		return nil, err
	}
	b, err := c.size(c.d.Params[1].Name, 1)
	if err != nil {
		return nil, err
	}
	if b > 1<<20 {
		return nil, fmt.Errorf("blocks of %d", b)
	}
	ch, h, w := x.Shape[1], x.Shape[2], x.Shape[3]
	if c.d.Name == "depth_to_space" || c.d.Name == "pixel_shuffle" {
		if ch >= 0 && ch%(b*b) != 0 {
			return nil, fmt.Errorf("channels of %v do not divide into blocks of %d × %d", x, b, b)
		}
		if ch >= 0 {
			ch /= b * b
		}
		if h, err = times(h, b); err == nil {
			w, err = times(w, b)
		}
	} else {
		for _, d := range []*int{&h, &w} {
			if *d >= 0 && *d%b != 0 {
				return nil, fmt.Errorf("height and width of %v do not divide into blocks of %d × %d", x, b, b)
			}
			if *d >= 0 {
				*d /= b
			}
		}
		ch, err = times(ch, b*b)
	}
	if err != nil {
		return nil, err
	}
	return one(x.DType, x.Shape[0], ch, h, w)
}

// inferBatchBlocks covers the operations that trade pixels for batches.
func inferBatchBlocks(c *call) ([]Type, error) {
	x := c.t("x")
	if err := c.rank("x", 4); err != nil {
		return nil, err
	}
	block, err := c.vecOf("block_shape", 2, 1)
	if err != nil {
		return nil, err
	}
	edge := c.d.Params[2].Name // paddings or crops
	if err := c.shaped(edge, 2, 2); err != nil {
		return nil, err
	}
	edges, err := c.vecOf(edge, 4, 0)
	if err != nil {
		return nil, err
	}
	out := slices.Clone(x.Shape)
	n, err := times(block...)
	if err != nil {
		return nil, err
	}
	if c.d.Name == "space_to_batch" {
		if out[0], err = times(out[0], n); err != nil {
			return nil, err
		}
	} else if out[0] >= 0 {
		if out[0]%n != 0 {
			return nil, fmt.Errorf("batch of %v does not divide into blocks of %v", x, block)
		}
		out[0] /= n
	}
	for i, b := range block {
		d := out[2+i]
		switch {
		case d < 0:
			continue
		case c.d.Name == "space_to_batch":
			if d, err = plus(d, edges[2*i], edges[2*i+1]); err == nil && d%b != 0 {
				err = fmt.Errorf("axis %d of %v, padded to %d, does not divide into blocks of %d", 2+i, x, d, b)
			}
			d /= b
		default:
			if d, err = times(d, b); err == nil && d < edges[2*i]+edges[2*i+1] {
				err = fmt.Errorf("axis %d of %v is less than what is cropped", 2+i, x)
			}
			d -= edges[2*i] + edges[2*i+1]
		}
		if err != nil {
			return nil, err
		}
		out[2+i] = d
	}
	return one(x.DType, out...)
}
