package mil

import (
	"fmt"
	"math"
	"slices"
)

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
	name, err := c.str("dtype")
	if err != nil {
		return nil, err
	}
	d, ok := ParseDType(name)
	if !ok || d == String {
		return nil, fmt.Errorf("cannot cast to %q", name)
	}
	return one(d, c.t("x").Shape...)
}

func inferClip(c *call) ([]Type, error) {
	if a, b := c.floats("alpha"), c.floats("beta"); len(a) == 1 && len(b) == 1 && !(a[0] < b[0]) {
		return nil, fmt.Errorf("alpha is %v and beta is %v, want alpha < beta", a[0], b[0])
	}
	return inferSame(c)
}

func inferAxis(c *call) ([]Type, error) {
	if _, err := c.axis("axis", c.t("x").Rank()); err != nil {
		return nil, err
	}
	return inferSame(c)
}

func inferAxes(c *call) ([]Type, error) {
	if _, err := c.axes("axes", c.t("x").Rank()); err != nil {
		return nil, err
	}
	return inferSame(c)
}

// inferPReLU covers the activations with parameters for each channel.
func inferPReLU(c *call) ([]Type, error) {
	x := c.t("x")
	most := 5
	if c.d.Name == "softplus_parametric" {
		most = maxRank
	}
	if x.Rank() < 3 || x.Rank() > most {
		return nil, fmt.Errorf("argument %q is a %v, want rank 3 to %d", "x", x, most)
	}
	for _, name := range []string{"alpha", "beta"} {
		if err := c.optShaped(name, x.Shape[1]); err != nil {
			return nil, err
		}
	}
	if a := c.floats("alpha"); c.d.Name == "prelu" && x.Rank() != 4 && slices.ContainsFunc(a, func(v float64) bool { return math.Abs(v-a[0]) > 1e-5 }) {
		return nil, fmt.Errorf("alpha differs between channels: that needs an argument %q of rank 4, not a %v", "x", x)
	}
	return inferSame(c)
}

func inferQuantize(c *call) ([]Type, error) {
	name, err := c.str("output_dtype")
	if err != nil {
		return nil, err
	}
	d, _ := ParseDType(name)
	if c.has("zero_point") && c.t("zero_point").DType != d {
		return nil, fmt.Errorf("argument %q is a %v, want the type of the result, %v", "zero_point", c.t("zero_point"), d)
	}
	if s := c.floats("scale"); len(s) > 0 && !slices.ContainsFunc(s, func(x float64) bool { return x != 0 }) {
		return nil, fmt.Errorf("argument %q is 0", "scale")
	}
	if err := c.quantizationAxis("input"); err != nil {
		return nil, err
	}
	return one(d, c.t("input").Shape...)
}

func inferDequantize(c *call) ([]Type, error) {
	if err := c.quantizationAxis("input"); err != nil {
		return nil, err
	}
	return one(c.t("scale").DType, c.t("input").Shape...)
}

// quantizationAxis checks scale and zero point: both scalars without an
// axis, or vectors along it.
func (c *call) quantizationAxis(data string) error {
	x, scale := c.t(data), c.t("scale")
	shape := []int{}
	switch scale.Rank() {
	case 0:
		if c.has("axis") {
			return fmt.Errorf("argument %q is given, but the scale is a scalar", "axis")
		}
	case 1:
		if !c.has("axis") {
			return fmt.Errorf("argument %q is missing, but the scale is a vector", "axis")
		}
		a, err := c.axis("axis", x.Rank())
		if err != nil {
			return err
		}
		shape = append(shape, x.Shape[a])
	default:
		return fmt.Errorf("argument %q is a %v, want a scalar or a vector", "scale", scale)
	}
	if err := c.shaped("scale", shape...); err != nil {
		return err
	}
	return c.optShaped("zero_point", shape...)
}
