package mil

import (
	"fmt"
	"math"
	"slices"
)

// lastTwo returns x with other last two dimensions.
func (c *call) lastTwo(h, w int) ([]Type, error) {
	x := c.t("x")
	out := slices.Clone(x.Shape)
	out[len(out)-2], out[len(out)-1] = h, w
	return one(x.DType, out...)
}

func (c *call) picture() error {
	if x := c.t("x"); x.Rank() < 3 {
		return fmt.Errorf("argument %q is a %v, want rank 3 or more", "x", x)
	}
	return nil
}

// scaled returns a dimension times a factor, rounded down. Where rounding
// the product to fp32 changes that, the dimension is not known: writers of
// programs differ.
func (c *call) scaled(name string, d int) (int, error) {
	l := (*Literal)(nil)
	if v := c.op.Operand(name); v != nil {
		l = v.Literal
	} else {
		l = c.d.Default(c.op, name)
	}
	f := 0.0
	switch {
	case l != nil && len(l.Ints) == 1:
		f = float64(l.Ints[0])
	case l != nil && len(l.Floats) == 1:
		f = l.Floats[0]
	default:
		return 0, fmt.Errorf("argument %q must be one constant number", name)
	}
	if !(f > 0 && f <= maxDim) || d > maxDim/2 {
		return 0, fmt.Errorf("argument %q is %v for a dimension of %d", name, f, d)
	}
	n := math.Floor(f * float64(d))
	if d < 0 || n != math.Floor(float64(float32(f)*float32(d))) && len(l.Floats) == 1 {
		return Dynamic, nil
	}
	if n > maxDim {
		return 0, fmt.Errorf("argument %q is %v for a dimension of %d", name, f, d)
	}
	return int(n), nil
}

func inferUpsample(c *call) ([]Type, error) {
	if err := c.picture(); err != nil {
		return nil, err
	}
	x := c.t("x")
	h, err := c.scaled("scale_factor_height", x.Shape[x.Rank()-2])
	if err != nil {
		return nil, err
	}
	w, err := c.scaled("scale_factor_width", x.Shape[x.Rank()-1])
	if err != nil {
		return nil, err
	}
	return c.lastTwo(h, w)
}

func inferResize2(c *call) ([]Type, error) {
	if err := c.picture(); err != nil {
		return nil, err
	}
	h, err := c.size("target_size_height", 1)
	if err != nil {
		return nil, err
	}
	w, err := c.size("target_size_width", 1)
	if err != nil {
		return nil, err
	}
	return c.lastTwo(h, w)
}

func inferResize(c *call) ([]Type, error) {
	x := c.t("x")
	shape, known, err := c.shapeOperand("shape")
	if err != nil {
		return nil, err
	}
	n, err := c.size("resized_dims", 0)
	if err != nil {
		return nil, err
	}
	if n > len(shape) || len(shape) > x.Rank() {
		return nil, fmt.Errorf("resized_dims is %d and shape has %d numbers for %v", n, len(shape), x)
	}
	out := slices.Clone(x.Shape)
	for i := range n {
		d := shape[len(shape)-n+i]
		at := &out[x.Rank()-n+i]
		switch {
		case known && (d < 0 || d > maxDim):
			return nil, fmt.Errorf("shape is %v, want dimensions, or 0 for what x has", shape)
		case d != 0:
			*at = d
		}
	}
	return one(x.DType, out...)
}

func inferCrop(c *call) ([]Type, error) {
	if err := c.picture(); err != nil {
		return nil, err
	}
	x := c.t("x")
	hw := slices.Clone(x.Shape[x.Rank()-2:])
	for i, name := range []string{"crop_height", "crop_width"} {
		v, err := c.vecOf(name, 2, 0)
		if err != nil {
			return nil, err
		}
		if hw[i] < 0 {
			continue
		}
		if hw[i] -= v[0] + v[1]; hw[i] < 0 {
			return nil, fmt.Errorf("argument %q is %v for %v", name, v, x)
		}
	}
	return c.lastTwo(hw[0], hw[1])
}

// target returns the size to which boxes are resized.
func (c *call) target() (h, w int, err error) {
	if err = c.rank("x", 4); err == nil {
		if h, err = c.size("target_height", 1); err == nil {
			w, err = c.size("target_width", 1)
		}
	}
	return h, w, err
}

func inferCropROI(c *call) ([]Type, error) {
	h, w, err := c.target()
	if err != nil {
		return nil, err
	}
	if err := c.rank("roi", 5); err != nil {
		return nil, err
	}
	x := c.t("x")
	return one(x.DType, c.t("roi").Shape[0], x.Shape[0], x.Shape[1], h, w)
}

func inferCropBoxes(c *call) ([]Type, error) {
	h, w, err := c.target()
	if err != nil {
		return nil, err
	}
	x, boxes := c.t("x"), c.t("boxes")
	if err := c.shaped("boxes", Dynamic, 4); err != nil {
		return nil, err
	}
	if n := boxes.Shape[0]; !c.has("box_indices") && n >= 0 && x.Shape[0] >= 0 && n > x.Shape[0] {
		return nil, fmt.Errorf("%d boxes for %v without box_indices", n, x)
	}
	if err := c.optShaped("box_indices", boxes.Shape[0]); err != nil {
		return nil, err
	}
	if v, ok := c.ints("box_indices"); ok && x.Shape[0] >= 0 && len(v) > 0 && slices.Max(v) >= x.Shape[0] {
		return nil, fmt.Errorf("box index %d is outside %v", slices.Max(v), x)
	}
	normalized, err := c.flag("normalized_coordinates")
	if err != nil {
		return nil, err
	}
	if normalized && !boxes.DType.IsFloat() {
		return nil, fmt.Errorf("boxes are %v, want fp16 or fp32 for normalized coordinates", boxes)
	}
	return one(x.DType, boxes.Shape[0], x.Shape[1], h, w)
}

func inferAffine(c *call) ([]Type, error) {
	x, m := c.t("x"), c.t("transform_matrix")
	if err := c.rank("x", 4); err != nil {
		return nil, err
	}
	if m.Rank() != 2 || !sameDim(m.Shape[1], 6) || m.Shape[0] != 1 && !sameDim(m.Shape[0], x.Shape[0]) {
		return nil, fmt.Errorf("transform_matrix is a %v, want the shape %s", m, dims([]int{x.Shape[0], 6}))
	}
	h, err := c.size("output_height", 1)
	if err != nil {
		return nil, err
	}
	w, err := c.size("output_width", 1)
	if err != nil {
		return nil, err
	}
	if v := c.floats("padding_value"); len(v) > 0 && v[0] != 0 {
		return nil, fmt.Errorf("padding_value is %v, want 0", v[0])
	}
	return c.lastTwo(h, w)
}

func inferResample(c *call) ([]Type, error) {
	if err := c.rank("x", 4); err != nil {
		return nil, err
	}
	if err := c.shaped("coordinates", c.t("x").Shape[0], Dynamic, Dynamic, 2); err != nil {
		return nil, err
	}
	s := c.t("coordinates").Shape
	return c.lastTwo(s[1], s[2])
}
