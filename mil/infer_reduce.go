package mil

import (
	"fmt"
	"math"
	"slices"
)

// without returns a shape without the named axes, or with 1 in their place.
func without(shape []int, named []bool, keep bool) []int {
	out := []int{}
	for i, d := range shape {
		if !named[i] {
			out = append(out, d)
		} else if keep {
			out = append(out, 1)
		}
	}
	return out
}

func inferReduce(c *call) ([]Type, error) {
	x := c.t("x")
	axes, err := c.axes("axes", x.Rank())
	if err != nil {
		return nil, err
	}
	keep, err := c.flag("keep_dims")
	if err != nil {
		return nil, err
	}
	return one(x.DType, without(x.Shape, axes, keep)...)
}

func inferArg(c *call) ([]Type, error) {
	x := c.t("x")
	a, err := c.axis("axis", x.Rank())
	if err != nil {
		return nil, err
	}
	keep, err := c.flag("keep_dims")
	if err != nil {
		return nil, err
	}
	d, err := c.indexType("output_dtype")
	if err != nil {
		return nil, err
	}
	axes := make([]bool, x.Rank())
	axes[a] = true
	return one(d, without(x.Shape, axes, keep)...)
}

// indexType returns the element type of a result of indices: int32, unless
// the form of the operation has a parameter for it.
func (c *call) indexType(name string) (DType, error) {
	if c.d.Param(name) == nil {
		return Int32, nil
	}
	s, err := c.str(name)
	if err != nil {
		return 0, err
	}
	d, ok := ParseDType(lower(s))
	if !ok || !d.IsInt() {
		return 0, fmt.Errorf("argument %q is %q, want an integer type", name, s)
	}
	return d, nil
}

func inferCumsum(c *call) ([]Type, error) {
	x := c.t("x")
	if a, err := c.int("axis"); err != nil || a < -1 || a >= x.Rank() {
		return nil, errorOr(err, "argument %q is %d, want -1 to %d", "axis", a, x.Rank()-1)
	}
	return inferSame(c)
}

// errorOr returns err, or if it is nil, a new error.
func errorOr(err error, format string, args ...any) error {
	if err != nil {
		return err
	}
	return fmt.Errorf(format, args...)
}

func inferArgsort(c *call) ([]Type, error) {
	x := c.t("x")
	if _, err := c.axis("axis", x.Rank()); err != nil {
		return nil, err
	}
	return one(Int32, x.Shape...)
}

func inferTopK(c *call) ([]Type, error) {
	x := c.t("x")
	a, err := c.axis("axis", x.Rank())
	if err != nil {
		return nil, err
	}
	k, err := c.size("k", 0)
	if err != nil {
		return nil, err
	}
	if d := x.Shape[a]; d >= 0 && k > d {
		return nil, fmt.Errorf("argument %q is %d, but axis %d of %v is %d", "k", k, a, x, d)
	}
	out := slices.Clone(x.Shape)
	out[a] = k
	if c.d.Param("return_indices") != nil {
		ret, err := c.flag("return_indices")
		if err != nil {
			return nil, err
		}
		if !ret {
			if c.has("output_indices_dtype") {
				return nil, fmt.Errorf("argument %q is given, but indices are not returned", "output_indices_dtype")
			}
			return one(x.DType, out...)
		}
	}
	d, err := c.indexType("output_indices_dtype")
	return []Type{TensorOf(x.DType, out...), TensorOf(d, out...)}, err
}

func inferNonZero(c *call) ([]Type, error) {
	x := c.t("x")
	n := Dynamic
	if l := c.op.Operand("x").Literal; l != nil {
		n = 0
		for i := range l.Len() {
			if i < len(l.Ints) && l.Ints[i] != 0 || i < len(l.Floats) && l.Floats[i] != 0 || i < len(l.Bools) && l.Bools[i] {
				n++
			}
		}
	}
	return one(Int32, n, x.Rank())
}

func inferOneHot(c *call) ([]Type, error) {
	ind := c.t("indices")
	a, err := c.axis("axis", ind.Rank()+1)
	if err != nil {
		return nil, err
	}
	d := Int32
	for _, name := range []string{"off_value", "on_value"} {
		if c.has(name) {
			d = c.t(name).DType
		}
	}
	n := Dynamic
	if v, ok := c.ints("one_hot_vector_size"); ok {
		if len(v) != 1 || v[0] < 0 || v[0] > maxDim {
			return nil, fmt.Errorf("argument %q is %v, want a number of 0 to %d", "one_hot_vector_size", v, maxDim)
		}
		n = v[0]
	}
	return one(d, slices.Insert(slices.Clone(ind.Shape), a, n)...)
}

func inferRandom(c *call) ([]Type, error) {
	d := Float32
	for _, name := range []string{"prob", "mean", "stddev", "low", "high"} {
		if c.d.Param(name) != nil && c.has(name) {
			d = c.t(name).DType
			break
		}
	}
	return c.filled(d)
}

// filled returns a tensor whose shape is the value of "shape".
func (c *call) filled(d DType) ([]Type, error) {
	s, known, err := c.shapeOperand("shape")
	if err != nil {
		return nil, err
	}
	if known && slices.ContainsFunc(s, func(d int) bool { return d < 0 }) {
		return nil, fmt.Errorf("shape %v has a negative dimension", s)
	}
	return one(d, s...)
}

func inferCategorical(c *call) ([]Type, error) {
	x := c.t("x")
	n, err := c.size("size", 1)
	if err != nil {
		return nil, err
	}
	if x.Rank() < 1 {
		return nil, fmt.Errorf("random_categorical of a scalar")
	}
	out := slices.Clone(x.Shape)
	out[len(out)-1] = n
	return one(x.DType, out...)
}

// inferRange rounds as arithmetic in the element type does.
func inferRange(c *call) ([]Type, error) {
	d := c.t("start").DType
	var v [3]float64 // start, end, step
	for i, name := range []string{"start", "end", "step"} {
		if err := c.rank(name, 0); err != nil {
			return nil, err
		}
		l := c.op.Operand(name).Literal
		switch {
		case l == nil:
			return one(d, Dynamic)
		case len(l.Ints) == 1:
			v[i] = float64(l.Ints[0])
		case len(l.Floats) == 1:
			v[i] = l.Floats[0]
		}
	}
	if v[2] == 0 {
		return nil, fmt.Errorf("step is 0")
	}
	round := func(x float64) float64 { return x }
	switch d {
	case Float16:
		round = func(x float64) float64 { return Half(x).Floats[0] }
	case Float32:
		round = func(x float64) float64 { return float64(float32(x)) }
	}
	n := math.Ceil(round(round(v[1]-v[0]) / v[2]))
	if !(n <= maxDim) { // or not a number
		return nil, fmt.Errorf("range from %v to %v by %v is too long", v[0], v[1], v[2])
	}
	return one(d, int(max(0, n)))
}
