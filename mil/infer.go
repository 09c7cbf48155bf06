package mil

import (
	"fmt"
	"slices"
)

// inferFunc gives the result types of an operation whose arguments have been
// checked against its parameters.
type inferFunc func(c *call) ([]Type, error)

// call gives inference short access to the operands.
type call struct{ op *Operation }

func (c *call) t(name string) Type { return c.op.Operand(name).Type }

func (c *call) has(name string) bool { return c.op.Operand(name) != nil }

// ints returns the elements of a constant integer operand; ok is false if it
// is absent or not known.
func (c *call) ints(name string) (v []int, ok bool) { return ConstInts(c.op.Operand(name)) }

// intOr returns a constant integer operand, or def if it is absent.
func (c *call) intOr(name string, def int) (int, error) {
	v := c.op.Operand(name)
	if v == nil {
		return def, nil
	}
	n, ok := ConstInts(v)
	if !ok || len(n) != 1 {
		return 0, fmt.Errorf("argument %q must be one constant integer", name)
	}
	return n[0], nil
}

func (c *call) boolOr(name string, def bool) (bool, error) {
	v := c.op.Operand(name)
	if v == nil {
		return def, nil
	}
	if v.Literal == nil || len(v.Literal.Bools) != 1 {
		return false, fmt.Errorf("argument %q must be one constant bool", name)
	}
	return v.Literal.Bools[0], nil
}

func (c *call) bools(name string, n int) ([]bool, error) {
	v := c.op.Operand(name)
	if v == nil {
		return make([]bool, n), nil
	}
	if v.Literal == nil || len(v.Literal.Bools) != n {
		return nil, fmt.Errorf("argument %q must be %d constant bools", name, n)
	}
	return v.Literal.Bools, nil
}

func (c *call) strOr(name, def string) (string, error) {
	v := c.op.Operand(name)
	if v == nil {
		return def, nil
	}
	if v.Literal == nil || len(v.Literal.Strings) != 1 {
		return "", fmt.Errorf("argument %q must be one constant string", name)
	}
	return v.Literal.Strings[0], nil
}

// axis resolves an axis that may count from the end.
func axis(a, rank int) (int, error) {
	if a < -rank || a >= rank {
		return 0, fmt.Errorf("axis %d is outside a tensor of rank %d", a, rank)
	}
	if a < 0 {
		a += rank
	}
	return a, nil
}

// ConstInts returns the elements of an integer literal; ok is false if v is
// nil or anything else.
func ConstInts(v *Value) (ints []int, ok bool) {
	if v == nil || v.Literal == nil || !v.Literal.Type.DType.IsInt() {
		return nil, false
	}
	ints = make([]int, len(v.Literal.Ints))
	for i, x := range v.Literal.Ints {
		ints[i] = int(x)
	}
	return ints, true
}

// Broadcast returns the shape that a and b have in common under numpy's
// rules. A Dynamic dimension beside 1 or another Dynamic one stays Dynamic.
func Broadcast(a, b []int) ([]int, error) {
	if len(a) < len(b) {
		a, b = b, a
	}
	out := slices.Clone(a)
	for i, d := range b {
		j := len(a) - len(b) + i
		switch {
		case out[j] == d || d == 1:
		case out[j] == 1 || out[j] < 0:
			out[j] = d
		case d < 0:
		default:
			return nil, fmt.Errorf("shapes %v and %v do not broadcast", a, b)
		}
	}
	return out, nil
}

func inferConst(c *call) ([]Type, error) {
	if len(c.op.Results) != 1 || !c.op.Results[0].IsConst() {
		return nil, fmt.Errorf("const has no value")
	}
	v := c.op.Results[0]
	if v.Weight != nil {
		return []Type{v.Weight.Type()}, nil
	}
	return []Type{v.Literal.Type}, nil
}

func inferSame(c *call) ([]Type, error) { return []Type{c.t("x")}, nil }

func (c *call) broadcast(a, b string) (Type, error) {
	x, y := c.t(a), c.t(b)
	if x.DType != y.DType {
		return Type{}, fmt.Errorf("%q is %v and %q is %v, want one element type", a, x, b, y)
	}
	s, err := Broadcast(x.Shape, y.Shape)
	return TensorOf(x.DType, s...), err
}

func inferBinary(c *call) ([]Type, error) {
	t, err := c.broadcast("x", "y")
	return []Type{t}, err
}

func inferCompare(c *call) ([]Type, error) {
	t, err := c.broadcast("x", "y")
	t.DType = Bool
	return []Type{t}, err
}

func inferSelect(c *call) ([]Type, error) {
	t, err := c.broadcast("a", "b")
	if err != nil {
		return nil, err
	}
	t.Shape, err = Broadcast(t.Shape, c.t("cond").Shape)
	return []Type{t}, err
}

func inferCast(c *call) ([]Type, error) {
	name, err := c.strOr("dtype", "")
	if err != nil {
		return nil, err
	}
	d, ok := ParseDType(name)
	if !ok || d == String {
		return nil, fmt.Errorf("cannot cast to %q", name)
	}
	return []Type{TensorOf(d, c.t("x").Shape...)}, nil
}

// inferLUT covers both forms: since iOS 18 indices have the shape of the
// result and the table has two more dimensions; before, indices are packed
// and the result has the shape in "shape".
func inferLUT(c *call) ([]Type, error) {
	lut, ind := c.t("lut"), c.t("indices")
	if c.has("shape") {
		s, ok := c.ints("shape")
		if !ok {
			return nil, fmt.Errorf("argument \"shape\" must be a constant")
		}
		return []Type{TensorOf(lut.DType, s...)}, nil
	}
	r := ind.Rank()
	if lut.Rank() != r+2 {
		return nil, fmt.Errorf("table has rank %d, want %d (indices' rank + 2)", lut.Rank(), r+2)
	}
	if !ind.DType.IsUnsigned() || ind.DType.Bits() > 8 {
		return nil, fmt.Errorf("indices are %v, want an unsigned type of at most 8 bits", ind.DType)
	}
	if n := lut.Shape[r]; n != 1<<ind.DType.Bits() {
		return nil, fmt.Errorf("table has %d entries, want %d for %v indices", n, 1<<ind.DType.Bits(), ind.DType)
	}
	out := slices.Clone(ind.Shape)
	for i, d := range out {
		if g := lut.Shape[i]; g <= 0 || d%g != 0 {
			return nil, fmt.Errorf("dimension %d has %d tables for %d indices, which they do not divide", i, g, d)
		}
	}
	if v := lut.Shape[r+1]; v != 1 {
		va, err := c.intOr("vector_axis", r-1)
		if err != nil {
			return nil, err
		}
		if va, err = axis(va, r); err != nil {
			return nil, err
		}
		out[va] *= v
	}
	return []Type{TensorOf(lut.DType, out...)}, nil
}

func inferMatmul(c *call) ([]Type, error) {
	x, y := c.t("x"), c.t("y")
	if x.DType != y.DType {
		return nil, fmt.Errorf("%q is %v and %q is %v, want one element type", "x", x, "y", y)
	}
	tx, err := c.boolOr("transpose_x", false)
	if err != nil {
		return nil, err
	}
	ty, err := c.boolOr("transpose_y", false)
	if err != nil {
		return nil, err
	}
	xs, ys := slices.Clone(x.Shape), slices.Clone(y.Shape)
	if len(xs) == 0 || len(ys) == 0 {
		return nil, fmt.Errorf("matmul of %v and %v needs at least rank 1", x, y)
	}
	vx, vy := len(xs) == 1, len(ys) == 1
	if vx {
		xs = []int{1, xs[0]}
	} else if tx {
		xs[len(xs)-1], xs[len(xs)-2] = xs[len(xs)-2], xs[len(xs)-1]
	}
	if vy {
		ys = []int{ys[0], 1}
	} else if ty {
		ys[len(ys)-1], ys[len(ys)-2] = ys[len(ys)-2], ys[len(ys)-1]
	}
	m, k1 := xs[len(xs)-2], xs[len(xs)-1]
	k2, n := ys[len(ys)-2], ys[len(ys)-1]
	if k1 != k2 && k1 >= 0 && k2 >= 0 {
		return nil, fmt.Errorf("inner dimensions %d and %d of %v and %v differ", k1, k2, x, y)
	}
	out, err := Broadcast(xs[:len(xs)-2], ys[:len(ys)-2])
	if err != nil {
		return nil, err
	}
	out = slices.Clone(out)
	if !vx {
		out = append(out, m)
	}
	if !vy {
		out = append(out, n)
	}
	return []Type{TensorOf(x.DType, out...)}, nil
}

func inferLinear(c *call) ([]Type, error) {
	x, w := c.t("x"), c.t("weight")
	if w.Rank() != 2 || x.Rank() < 1 {
		return nil, fmt.Errorf("linear of %v with weight %v", x, w)
	}
	if in := x.Shape[x.Rank()-1]; in >= 0 && w.Shape[1] != in {
		return nil, fmt.Errorf("weight %v does not fit %v", w, x)
	}
	if c.has("bias") {
		if b := c.t("bias"); b.Rank() != 1 || b.Shape[0] != w.Shape[0] {
			return nil, fmt.Errorf("bias %v does not fit weight %v", b, w)
		}
	}
	out := slices.Clone(x.Shape)
	out[len(out)-1] = w.Shape[0]
	return []Type{TensorOf(x.DType, out...)}, nil
}

func inferConv(c *call) ([]Type, error) {
	x, w := c.t("x"), c.t("weight")
	n := x.Rank() - 2
	if n < 1 || w.Rank() != x.Rank() || x.DType != w.DType {
		return nil, fmt.Errorf("conv of %v with weight %v", x, w)
	}
	groups, err := c.intOr("groups", 1)
	if err != nil {
		return nil, err
	}
	if groups < 1 || w.Shape[0]%groups != 0 || (x.Shape[1] >= 0 && x.Shape[1] != w.Shape[1]*groups) {
		return nil, fmt.Errorf("weight %v in %d groups does not fit %v", w, groups, x)
	}
	if c.has("bias") {
		if b := c.t("bias"); b.Rank() != 1 || b.Shape[0] != w.Shape[0] {
			return nil, fmt.Errorf("bias %v does not fit weight %v", b, w)
		}
	}
	vec := func(name string, n, def int) ([]int, error) {
		if !c.has(name) {
			return slices.Repeat([]int{def}, n), nil
		}
		v, ok := c.ints(name)
		if !ok || len(v) != n {
			return nil, fmt.Errorf("argument %q must be %d constant integers", name, n)
		}
		for _, x := range v {
			if x < def || x > 1<<30 {
				return nil, fmt.Errorf("argument %q has the value %d", name, x)
			}
		}
		return v, nil
	}
	strides, err := vec("strides", n, 1)
	if err != nil {
		return nil, err
	}
	dilations, err := vec("dilations", n, 1)
	if err != nil {
		return nil, err
	}
	padType, err := c.strOr("pad_type", "valid")
	if err != nil {
		return nil, err
	}
	pad := make([]int, 2*n)
	if padType == "custom" {
		if pad, err = vec("pad", 2*n, 0); err != nil {
			return nil, err
		}
	}
	out := []int{x.Shape[0], w.Shape[0]}
	for i := range n {
		d := x.Shape[2+i]
		if d < 0 || w.Shape[2+i] < 0 {
			out = append(out, Dynamic)
			continue
		}
		k := (w.Shape[2+i]-1)*dilations[i] + 1
		switch padType {
		case "valid", "custom":
			if d = d + pad[2*i] + pad[2*i+1] - k; d < 0 {
				return nil, fmt.Errorf("kernel of weight %v does not fit into %v", w, x)
			}
			d = d/strides[i] + 1
		case "same", "same_lower":
			d = (d + strides[i] - 1) / strides[i]
		default:
			return nil, fmt.Errorf("unknown pad_type %q", padType)
		}
		out = append(out, d)
	}
	return []Type{TensorOf(x.DType, out...)}, nil
}

func inferSDPA(c *call) ([]Type, error) {
	q, k, v := c.t("query"), c.t("key"), c.t("value")
	r := q.Rank()
	if r < 3 || k.Rank() != r || v.Rank() != r {
		return nil, fmt.Errorf("attention of %v, %v, %v", q, k, v)
	}
	if q.Shape[r-1] != k.Shape[r-1] || k.Shape[r-2] != v.Shape[r-2] {
		return nil, fmt.Errorf("attention of %v, %v, %v: dimensions differ", q, k, v)
	}
	out := slices.Clone(q.Shape)
	out[r-1] = v.Shape[r-1]
	return []Type{TensorOf(q.DType, out...)}, nil
}

// reduced returns x without (or with 1 for) the given axes; nil is all.
func reduced(x Type, axes []int, keep bool) ([]int, error) {
	drop := make([]bool, x.Rank())
	if axes == nil {
		for i := range drop {
			drop[i] = true
		}
	}
	for _, a := range axes {
		a, err := axis(a, x.Rank())
		if err != nil {
			return nil, err
		}
		drop[a] = true
	}
	out := []int{}
	for i, d := range x.Shape {
		if !drop[i] {
			out = append(out, d)
		} else if keep {
			out = append(out, 1)
		}
	}
	return out, nil
}

func inferReduce(c *call) ([]Type, error) {
	x := c.t("x")
	axes, _ := c.ints("axes")
	keep, err := c.boolOr("keep_dims", false)
	if err != nil {
		return nil, err
	}
	s, err := reduced(x, axes, keep)
	return []Type{TensorOf(x.DType, s...)}, err
}

func inferArg(c *call) ([]Type, error) {
	x := c.t("x")
	a, err := c.intOr("axis", -1)
	if err != nil {
		return nil, err
	}
	keep, err := c.boolOr("keep_dims", false)
	if err != nil {
		return nil, err
	}
	name, err := c.strOr("output_dtype", "int32")
	if err != nil {
		return nil, err
	}
	d, ok := ParseDType(name)
	if !ok || !d.IsInt() {
		return nil, fmt.Errorf("output_dtype is %q, want an integer type", name)
	}
	s, err := reduced(x, []int{a}, keep)
	return []Type{TensorOf(d, s...)}, err
}

func inferTopK(c *call) ([]Type, error) {
	x := c.t("x")
	a, err := c.intOr("axis", -1)
	if err != nil {
		return nil, err
	}
	if a, err = axis(a, x.Rank()); err != nil {
		return nil, err
	}
	out := slices.Clone(x.Shape)
	out[a] = Dynamic
	if !c.has("k") {
		out[a] = 1
	} else if k, ok := c.ints("k"); ok && len(k) == 1 {
		out[a] = k[0]
	}
	name, err := c.strOr("output_indices_dtype", "int32")
	if err != nil {
		return nil, err
	}
	d, ok := ParseDType(name)
	if !ok || !d.IsInt() {
		return nil, fmt.Errorf("output_indices_dtype is %q, want an integer type", name)
	}
	ret, err := c.boolOr("return_indices", true)
	if err != nil {
		return nil, err
	}
	if !ret {
		return []Type{TensorOf(x.DType, out...)}, nil
	}
	return []Type{TensorOf(x.DType, out...), TensorOf(d, out...)}, nil
}

func inferReshape(c *call) ([]Type, error) {
	x := c.t("x")
	s, ok := c.ints("shape")
	if !ok {
		st := c.t("shape")
		if st.Rank() != 1 || st.Shape[0] < 0 || st.Shape[0] > 16 {
			return nil, fmt.Errorf("shape is %v, want an integer vector", st)
		}
		return []Type{TensorOf(x.DType, slices.Repeat([]int{Dynamic}, st.Shape[0])...)}, nil
	}
	out := slices.Clone(s)
	free, known := -1, true
	for i, d := range out {
		switch {
		case d == 0 && i < x.Rank() && x.Shape[i] != 0: // 0 keeps the dimension
			out[i] = x.Shape[i]
			known = known && out[i] >= 0
		case d == -1:
			if free >= 0 {
				return nil, fmt.Errorf("shape %v leaves two dimensions open", s)
			}
			free = i
		case d < 0:
			return nil, fmt.Errorf("shape %v has a negative dimension", s)
		}
	}
	n, ok := x.NumElements()
	if !ok || !known {
		return []Type{TensorOf(x.DType, out...)}, nil
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
	return []Type{TensorOf(x.DType, out...)}, nil
}

func inferTranspose(c *call) ([]Type, error) {
	x := c.t("x")
	p, ok := c.ints("perm")
	if !ok || len(p) != x.Rank() {
		return nil, fmt.Errorf("perm must be %d constant integers", x.Rank())
	}
	out := make([]int, len(p))
	seen := make([]bool, len(p))
	for i, a := range p {
		a, err := axis(a, x.Rank())
		if err != nil {
			return nil, err
		}
		if seen[a] {
			return nil, fmt.Errorf("perm %v names an axis twice", p)
		}
		seen[a] = true
		out[i] = x.Shape[a]
	}
	return []Type{TensorOf(x.DType, out...)}, nil
}

func inferExpandDims(c *call) ([]Type, error) {
	x := c.t("x")
	axes, ok := c.ints("axes")
	if !ok || len(axes) > 16 {
		return nil, fmt.Errorf("axes must be constant integers")
	}
	r := x.Rank() + len(axes)
	out := make([]int, r)
	for _, a := range axes {
		a, err := axis(a, r)
		if err != nil {
			return nil, err
		}
		if out[a] == 1 {
			return nil, fmt.Errorf("axes %v name an axis twice", axes)
		}
		out[a] = 1
	}
	i := 0
	for j := range out {
		if out[j] == 0 {
			out[j] = x.Shape[i]
			i++
		}
	}
	return []Type{TensorOf(x.DType, out...)}, nil
}

func inferSqueeze(c *call) ([]Type, error) {
	x := c.t("x")
	axes, ok := c.ints("axes")
	if !ok {
		for i, d := range x.Shape {
			if d == 1 {
				axes = append(axes, i)
			}
		}
	}
	drop := make([]bool, x.Rank())
	for _, a := range axes {
		a, err := axis(a, x.Rank())
		if err != nil {
			return nil, err
		}
		if x.Shape[a] != 1 && x.Shape[a] >= 0 {
			return nil, fmt.Errorf("axis %d of %v is not 1", a, x)
		}
		drop[a] = true
	}
	out := []int{}
	for i, d := range x.Shape {
		if !drop[i] {
			out = append(out, d)
		}
	}
	return []Type{TensorOf(x.DType, out...)}, nil
}

func inferConcat(c *call) ([]Type, error) {
	vals := c.op.Arg("values")
	first := vals[0].Type
	a, err := c.intOr("axis", 0)
	if err != nil {
		return nil, err
	}
	if a, err = axis(a, first.Rank()); err != nil {
		return nil, err
	}
	out := slices.Clone(first.Shape)
	for _, v := range vals[1:] {
		if v.Type.DType != first.DType || v.Type.Rank() != first.Rank() {
			return nil, fmt.Errorf("values %v and %v do not concatenate", first, v.Type)
		}
		for i, d := range v.Type.Shape {
			switch {
			case i == a:
				if d < 0 || out[i] < 0 {
					out[i] = Dynamic
				} else {
					out[i] += d
				}
			case out[i] < 0:
				out[i] = d
			case d >= 0 && d != out[i]:
				return nil, fmt.Errorf("values %v and %v do not concatenate along axis %d", first, v.Type, a)
			}
		}
	}
	return []Type{TensorOf(first.DType, out...)}, nil
}

func inferStack(c *call) ([]Type, error) {
	vals := c.op.Arg("values")
	first := vals[0].Type
	a, err := c.intOr("axis", 0)
	if err != nil {
		return nil, err
	}
	if a, err = axis(a, first.Rank()+1); err != nil {
		return nil, err
	}
	for _, v := range vals[1:] {
		if !first.Accepts(v.Type) {
			return nil, fmt.Errorf("values %v and %v do not stack", first, v.Type)
		}
	}
	return []Type{TensorOf(first.DType, slices.Insert(slices.Clone(first.Shape), a, len(vals))...)}, nil
}

func inferSplit(c *call) ([]Type, error) {
	x := c.t("x")
	a, err := c.intOr("axis", 0)
	if err != nil {
		return nil, err
	}
	if a, err = axis(a, x.Rank()); err != nil {
		return nil, err
	}
	sizes, ok := c.ints("split_sizes")
	if !ok {
		n, err := c.intOr("num_splits", 0)
		if err != nil {
			return nil, err
		}
		if n < 1 || n > 1<<16 || x.Shape[a] < 0 || x.Shape[a]%n != 0 {
			return nil, fmt.Errorf("axis %d of %v does not split into %d", a, x, n)
		}
		sizes = slices.Repeat([]int{x.Shape[a] / n}, n)
	}
	sum := 0
	var out []Type
	for _, s := range sizes {
		if s < 0 {
			return nil, fmt.Errorf("negative split size %d", s)
		}
		sum += s
		t := TensorOf(x.DType, slices.Clone(x.Shape)...)
		t.Shape[a] = s
		out = append(out, t)
	}
	if x.Shape[a] >= 0 && sum != x.Shape[a] {
		return nil, fmt.Errorf("split sizes %v do not sum to %d", sizes, x.Shape[a])
	}
	return out, nil
}

func inferTile(c *call) ([]Type, error) {
	x := c.t("x")
	out := slices.Clone(x.Shape)
	reps, ok := c.ints("reps")
	if ok && len(reps) != len(out) {
		return nil, fmt.Errorf("%d reps for %v", len(reps), x)
	}
	for i := range out {
		switch {
		case !ok || out[i] < 0:
			out[i] = Dynamic
		case reps[i] < 1 || (out[i] > 0 && reps[i] > (1<<40)/out[i]):
			return nil, fmt.Errorf("reps %v", reps)
		default:
			out[i] *= reps[i]
		}
	}
	return []Type{TensorOf(x.DType, out...)}, nil
}

func inferPad(c *call) ([]Type, error) {
	x := c.t("x")
	out := slices.Clone(x.Shape)
	p, ok := c.ints("pad")
	if !ok {
		return []Type{TensorOf(x.DType, slices.Repeat([]int{Dynamic}, len(out))...)}, nil
	}
	if len(p)%2 != 0 || len(p)/2 > len(out) {
		return nil, fmt.Errorf("%d pads for %v", len(p), x)
	}
	for i := range len(p) / 2 {
		j := len(out) - len(p)/2 + i
		if p[2*i] < 0 || p[2*i+1] < 0 || p[2*i] > 1<<40 || p[2*i+1] > 1<<40 {
			return nil, fmt.Errorf("pad %v", p)
		}
		if out[j] >= 0 {
			out[j] += p[2*i] + p[2*i+1]
		}
	}
	return []Type{TensorOf(x.DType, out...)}, nil
}

func inferShape(c *call) ([]Type, error) { return []Type{TensorOf(Int32, c.t("x").Rank())}, nil }

func inferFill(c *call) ([]Type, error) {
	d := Float32
	if c.has("value") {
		d = c.t("value").DType
	}
	if s, ok := c.ints("shape"); ok {
		for _, x := range s {
			if x < 0 {
				return nil, fmt.Errorf("shape %v", s)
			}
		}
		return []Type{TensorOf(d, s...)}, nil
	}
	st := c.t("shape")
	if st.Rank() != 1 || st.Shape[0] < 0 || st.Shape[0] > 16 {
		return nil, fmt.Errorf("shape is %v, want an integer vector", st)
	}
	return []Type{TensorOf(d, slices.Repeat([]int{Dynamic}, st.Shape[0])...)}, nil
}

func inferFillLike(c *call) ([]Type, error) {
	d := Float32
	if c.has("value") {
		d = c.t("value").DType
	}
	return []Type{TensorOf(d, c.t("ref_tensor").Shape...)}, nil
}

func inferRange(c *call) ([]Type, error) {
	n := Dynamic
	s, ok1 := c.ints("start")
	e, ok2 := c.ints("end")
	st, ok3 := c.ints("step")
	if ok1 && ok2 && ok3 && len(s) == 1 && len(e) == 1 && len(st) == 1 {
		switch d := st[0]; {
		case d > 0:
			n = max(0, (e[0]-s[0]+d-1)/d)
		case d < 0:
			n = max(0, (s[0]-e[0]-d-1)/-d)
		default:
			return nil, fmt.Errorf("step is 0")
		}
	}
	return []Type{TensorOf(c.t("start").DType, n)}, nil
}

// SliceBounds returns the first index and the number of elements that the
// slice [begin:end:stride] of a dimension of size n covers. As in Python,
// negative bounds count from the end and bounds beyond it are clamped; a
// mask replaces a bound by the end of the dimension in its direction.
func SliceBounds(n, begin, end, stride int, beginMask, endMask bool) (first, count int) {
	clamp := func(i, lo, hi int) int {
		if i < 0 {
			i += n
		}
		return min(max(i, lo), hi)
	}
	if stride > 0 {
		first, end = clamp(begin, 0, n), clamp(end, 0, n)
		if beginMask {
			first = 0
		}
		if endMask {
			end = n
		}
		return first, max(0, (end-first+stride-1)/stride)
	}
	first, end = clamp(begin, -1, n-1), clamp(end, -1, n-1)
	if beginMask {
		first = n - 1
	}
	if endMask {
		end = -1
	}
	return first, max(0, (first-end-stride-1)/-stride)
}

// sliceShape returns the dimensions that an index addresses, before and
// after the squeezed ones are dropped.
func (c *call) sliceShape(x Type) (kept []int, err error) {
	r := x.Rank()
	begin, bok := c.ints("begin")
	end, eok := c.ints("end")
	stride, sok := c.ints("stride")
	if !c.has("stride") {
		stride, sok = slices.Repeat([]int{1}, r), true
	}
	bm, err := c.bools("begin_mask", r)
	if err != nil {
		return nil, err
	}
	em, err := c.bools("end_mask", r)
	if err != nil {
		return nil, err
	}
	sq, err := c.bools("squeeze_mask", r)
	if err != nil {
		return nil, err
	}
	for _, v := range []struct {
		name string
		ok   bool
		n    int
	}{{"begin", bok, len(begin)}, {"end", eok, len(end)}, {"stride", sok, len(stride)}} {
		if v.ok && v.n != r {
			return nil, fmt.Errorf("%d values in %q for %v", v.n, v.name, x)
		}
		if t := c.op.Operand(v.name); t != nil && (t.Type.Rank() != 1 || (t.Type.Shape[0] >= 0 && t.Type.Shape[0] != r)) {
			return nil, fmt.Errorf("%q is %v, want %d integers", v.name, t.Type, r)
		}
	}
	for i, d := range x.Shape {
		if sq[i] {
			continue
		}
		switch {
		case d < 0 || !sok:
			kept = append(kept, Dynamic)
		case stride[i] == 0:
			return nil, fmt.Errorf("stride is 0 in dimension %d", i)
		case (bok || bm[i]) && (eok || em[i]):
			var b, e int
			if bok {
				b = begin[i]
			}
			if eok {
				e = end[i]
			}
			_, n := SliceBounds(d, b, e, stride[i], bm[i], em[i])
			kept = append(kept, n)
		default:
			kept = append(kept, Dynamic)
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
	return []Type{TensorOf(x.DType, kept...)}, nil
}

func inferSliceSize(c *call) ([]Type, error) {
	x := c.t("x")
	r := x.Rank()
	size, ok := c.ints("size")
	begin, bok := c.ints("begin")
	if (ok && len(size) != r) || (bok && len(begin) != r) {
		return nil, fmt.Errorf("begin and size need %d values for %v", r, x)
	}
	out := make([]int, r)
	for i, d := range x.Shape {
		switch {
		case !ok || (size[i] == -1 && (!bok || d < 0)):
			out[i] = Dynamic
		case size[i] == -1:
			out[i] = max(0, d-begin[i])
		case size[i] < 0:
			return nil, fmt.Errorf("size %v", size)
		default:
			out[i] = size[i]
		}
	}
	return []Type{TensorOf(x.DType, out...)}, nil
}

func inferSliceUpdate(c *call) ([]Type, error) {
	x, u := c.t("x"), c.t("update")
	if x.DType != u.DType {
		return nil, fmt.Errorf("update is %v, but what it updates is %v: the element types must be equal", u, x)
	}
	kept, err := c.sliceShape(x)
	if err != nil {
		return nil, err
	}
	want := TensorOf(x.DType, kept...)
	n, ok1 := want.NumElements()
	m, ok2 := u.NumElements()
	if ok1 && ok2 && n != m {
		return nil, fmt.Errorf("update is %v, but the slice of %v has shape %v", u, x, kept)
	}
	return []Type{x}, nil
}

func inferGather(c *call) ([]Type, error) {
	x, ind := c.t("x"), c.t("indices")
	a, err := c.intOr("axis", 0)
	if err != nil {
		return nil, err
	}
	if a, err = axis(a, x.Rank()); err != nil {
		return nil, err
	}
	b, err := c.intOr("batch_dims", 0)
	if err != nil {
		return nil, err
	}
	if b < 0 || b > a || b > ind.Rank() {
		return nil, fmt.Errorf("batch_dims %d with axis %d and indices %v", b, a, ind)
	}
	out := slices.Concat(x.Shape[:a], ind.Shape[b:], x.Shape[a+1:])
	return []Type{TensorOf(x.DType, out...)}, nil
}

func inferGatherAlong(c *call) ([]Type, error) {
	x, ind := c.t("x"), c.t("indices")
	if x.Rank() != ind.Rank() {
		return nil, fmt.Errorf("indices %v and %v differ in rank", ind, x)
	}
	return []Type{TensorOf(x.DType, ind.Shape...)}, nil
}

func inferGatherND(c *call) ([]Type, error) {
	x, ind := c.t("x"), c.t("indices")
	b, err := c.intOr("batch_dims", 0)
	if err != nil {
		return nil, err
	}
	if ind.Rank() == 0 {
		return nil, fmt.Errorf("indices are a scalar")
	}
	k := ind.Shape[ind.Rank()-1]
	if b < 0 || k < 0 || b+k > x.Rank() || b > ind.Rank()-1 {
		return nil, fmt.Errorf("indices %v do not fit %v", ind, x)
	}
	out := slices.Concat(ind.Shape[:ind.Rank()-1], x.Shape[b+k:])
	return []Type{TensorOf(x.DType, out...)}, nil
}

func inferReadState(c *call) ([]Type, error) { return []Type{c.t("input").Tensor()}, nil }

func (c *call) fitsState(state, value string) error {
	s, v := c.t(state).Tensor(), c.t(value)
	if !s.Accepts(v) {
		return fmt.Errorf("a %v cannot be written to a state of %v", v, s)
	}
	return nil
}

func inferWriteState(c *call) ([]Type, error) { return nil, c.fitsState("input", "data") }

func inferUpdateState(c *call) ([]Type, error) {
	return []Type{c.t("state").Tensor()}, c.fitsState("state", "value")
}
