package mil

import (
	"fmt"
	"math/bits"
	"slices"
)

func inferAffineDequantize(c *call) ([]Type, error) {
	q := c.t("quantized_data")
	a, err := c.axis("axis", q.Rank())
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"scale", "zero_point"} {
		if c.t(name).Rank() == 0 {
			continue
		}
		if err := c.shaped(name, q.Shape[a]); err != nil {
			return nil, err
		}
	}
	return one(c.t("scale").DType, q.Shape...)
}

func inferConstexprCast(c *call) ([]Type, error) { return one(Float32, c.t("source_val").Shape...) }

// packedShape returns the shape in "shape" and its number of elements, for
// the operations before iOS 18 whose data is packed in vectors of bytes.
func (c *call) packedShape() ([]int, int, error) {
	s, known, err := c.shapeOperand("shape")
	if err != nil {
		return nil, 0, err
	}
	n, ok := NumElements(s)
	if !known || !ok || n > 1<<50 {
		return nil, 0, fmt.Errorf("argument \"shape\" is %s, want constants", dims(s))
	}
	return s, n, nil
}

func inferPackedLUT(c *call) ([]Type, error) {
	s, n, err := c.packedShape()
	if err != nil {
		return nil, err
	}
	lut := c.t("lut")
	if lut.Rank() != 1 || !slices.Contains([]int{2, 4, 16, 64, 256}, lut.Shape[0]) {
		return nil, fmt.Errorf("argument \"lut\" is a %v, want one table of 2, 4, 16, 64 or 256 entries", lut)
	}
	width := bits.Len(uint(lut.Shape[0])) - 1
	if err := c.shaped("indices", (n*width+7)/8); err != nil {
		return nil, fmt.Errorf("%w for %s of %d bits", err, dims(s), width)
	}
	return one(lut.DType, s...)
}

func inferPackedSparse(c *call) ([]Type, error) {
	s, n, err := c.packedShape()
	if err != nil {
		return nil, err
	}
	if err := c.rank("nonzero_data", 1); err != nil {
		return nil, err
	}
	if err := c.shaped("mask", (n+7)/8); err != nil {
		return nil, fmt.Errorf("%w for %s", err, dims(s))
	}
	if m := c.op.Operand("mask"); m.Literal != nil {
		set := 0
		for i, b := range m.Literal.Ints {
			set += bits.OnesCount8(uint8(b))
			if left := n - 8*i; left < 8 && uint8(b)>>left != 0 {
				return nil, fmt.Errorf("argument \"mask\" has bits set behind the last of %d elements", n)
			}
		}
		if err := c.shaped("nonzero_data", set); err != nil {
			return nil, fmt.Errorf("%w: that many bits of the mask are set", err)
		}
	}
	return one(c.t("nonzero_data").DType, s...)
}

// tables checks a look-up table against the indices into it, of the given
// shape and element type; it returns the length of the vectors in it and the
// axis along which they lie.
func (c *call) tables(shape []int, index DType) (vector, axis int, err error) {
	lut := c.t("lut")
	r := len(shape)
	if r < 1 || lut.Rank() != r+2 {
		return 0, 0, fmt.Errorf("table has rank %d, want %d (indices' rank + 2)", lut.Rank(), r+2)
	}
	if n := lut.Shape[r]; n != 1<<index.Bits() {
		return 0, 0, fmt.Errorf("table has %d entries, want %d for %v indices", n, 1<<index.Bits(), index)
	}
	if err := divides(lut.Shape[:r], shape, "tables", "indices"); err != nil {
		return 0, 0, err
	}
	vector = lut.Shape[r+1]
	if c.has("vector_axis") {
		if axis, err = c.axis("vector_axis", r); err != nil {
			return 0, 0, err
		}
	} else if vector != 1 {
		return 0, 0, fmt.Errorf("table holds vectors of %d: argument %q is missing", vector, "vector_axis")
	}
	if vector < 1 {
		return 0, 0, fmt.Errorf("table holds vectors of %d", vector)
	}
	return vector, axis, nil
}

// divides fails unless the dimensions of blocks divide those of data.
func divides(blocks, data []int, what, of string) error {
	if len(blocks) != len(data) {
		return fmt.Errorf("%s have rank %d, want that of the %s, %d", what, len(blocks), of, len(data))
	}
	for i, d := range data {
		if g := blocks[i]; g < 1 || d < 0 || d%g != 0 {
			return fmt.Errorf("dimension %d has %d %s for %d %s, which they do not divide", i, g, what, d, of)
		}
	}
	return nil
}

func inferLUT(c *call) ([]Type, error) {
	ind := c.t("indices")
	vector, a, err := c.tables(ind.Shape, ind.DType)
	if err != nil {
		return nil, err
	}
	out := slices.Clone(ind.Shape)
	if out[a], err = times(out[a], vector); err != nil {
		return nil, err
	}
	return one(c.t("lut").DType, out...)
}

// masked checks a mask against the values where it is set.
func (c *call) masked(mask, values string) error {
	if err := c.rank(values, 1); err != nil {
		return err
	}
	m := c.op.Operand(mask)
	if m.Literal == nil {
		return nil
	}
	set := 0
	for _, b := range m.Literal.Ints {
		if b != 0 {
			set++
		}
	}
	if err := c.shaped(values, set); err != nil {
		return fmt.Errorf("%w: that many elements of the mask are set", err)
	}
	return nil
}

func inferSparse(c *call) ([]Type, error) {
	if err := c.masked("mask", "nonzero_data"); err != nil {
		return nil, err
	}
	return one(c.t("nonzero_data").DType, c.t("mask").Shape...)
}

func inferLUTToSparse(c *call) ([]Type, error) {
	if err := c.masked("indices_mask", "indices_nonzero_data"); err != nil {
		return nil, err
	}
	mask, values := c.t("indices_mask"), c.t("indices_nonzero_data")
	vector, a, err := c.tables(mask.Shape, values.DType)
	if err != nil {
		return nil, err
	}
	out := slices.Clone(mask.Shape)
	if out[a], err = times(out[a], vector); err != nil {
		return nil, err
	}
	n, err := times(values.Shape[0], vector)
	return []Type{TensorOf(mask.DType, out...), TensorOf(c.t("lut").DType, n)}, err
}

// blocks checks scales and offsets of blocks of data.
func (c *call) blocks(shape []int, d DType) error {
	if len(shape) < 1 {
		return fmt.Errorf("data is a scalar")
	}
	scale := c.t("scale")
	if err := divides(scale.Shape, shape, "scales", "elements"); err != nil {
		return err
	}
	if !c.has("offset") {
		return nil
	}
	if o := c.t("offset"); !o.DType.IsFloat() && o.DType != d {
		return fmt.Errorf("argument %q is a %v, want %v like the data, or a floating point type", "offset", o, d)
	}
	return c.shaped("offset", scale.Shape...)
}

func inferBlockwise(c *call) ([]Type, error) {
	x := c.t("data")
	if err := c.blocks(x.Shape, x.DType); err != nil {
		return nil, err
	}
	return one(c.t("scale").DType, x.Shape...)
}

func inferSparseBlockwise(c *call) ([]Type, error) {
	if err := c.masked("data_mask", "nonzero_data"); err != nil {
		return nil, err
	}
	mask, values := c.t("data_mask"), c.t("nonzero_data")
	if err := c.blocks(mask.Shape, values.DType); err != nil {
		return nil, err
	}
	return []Type{mask, TensorOf(c.t("scale").DType, values.Shape...)}, nil
}
