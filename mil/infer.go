package mil

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// inferFunc gives the result types of an operation whose arguments have been
// checked against its parameters.
type inferFunc func(c *call) ([]Type, error)

// call gives inference short access to the operands and their defaults.
type call struct {
	op *Operation
	d  *OpDef
}

func (c *call) t(name string) Type {
	if v := c.op.Operand(name); v != nil {
		return v.Type
	}
	return Type{}
}

func (c *call) has(name string) bool { return c.op.Operand(name) != nil }

// since reports whether the operation is in the form of s or a later one.
func (c *call) since(s Opset) bool { return !c.d.Since.Before(s) }

// ints returns the elements of a constant integer operand; ok is false if it
// is absent or not known.
func (c *call) ints(name string) (v []int, ok bool) { return ConstInts(c.op.Operand(name)) }

// vec returns the elements of a constant integer operand or its default.
func (c *call) vec(name string) ([]int, error) {
	if !c.has(name) {
		if l := c.d.Default(c.op, name); l != nil {
			v, _ := ConstInts(Imm(l))
			return v, nil
		}
	}
	v, ok := c.ints(name)
	if !ok {
		return nil, fmt.Errorf("argument %q must be constant integers", name)
	}
	return v, nil
}

// vecOf is vec for n numbers of at least lo.
func (c *call) vecOf(name string, n, lo int) ([]int, error) {
	v, err := c.vec(name)
	if err != nil {
		return nil, err
	}
	if len(v) != n {
		return nil, fmt.Errorf("argument %q has %d values, want %d", name, len(v), n)
	}
	for _, x := range v {
		if x < lo || x > maxDim {
			return nil, fmt.Errorf("argument %q has the value %d, want %d to %d", name, x, lo, maxDim)
		}
	}
	return v, nil
}

// int returns a constant integer operand or its default.
func (c *call) int(name string) (int, error) {
	v, err := c.vec(name)
	if err == nil && len(v) != 1 {
		err = fmt.Errorf("argument %q has %d values, want one", name, len(v))
	}
	if err != nil {
		return 0, err
	}
	return v[0], nil
}

// size is int for a number of at least lo.
func (c *call) size(name string, lo int) (int, error) {
	n, err := c.int(name)
	if err == nil && (n < lo || n > maxDim) {
		err = fmt.Errorf("argument %q is %d, want %d to %d", name, n, lo, maxDim)
	}
	return n, err
}

// axis is int for an axis, which may count from the end, of a tensor of the
// given rank.
func (c *call) axis(name string, rank int) (int, error) {
	a, err := c.int(name)
	if err != nil {
		return 0, err
	}
	if a, err = axis(a, rank); err != nil {
		err = fmt.Errorf("argument %q: %w", name, err)
	}
	return a, err
}

// axes is axis for a set of axes: which of them are named.
func (c *call) axes(name string, rank int) ([]bool, error) {
	v, err := c.vec(name)
	if err != nil {
		return nil, err
	}
	named := make([]bool, rank)
	for _, a := range v {
		a, err := axis(a, rank)
		if err != nil {
			return nil, fmt.Errorf("argument %q: %w", name, err)
		}
		if named[a] {
			return nil, fmt.Errorf("argument %q names axis %d twice", name, a)
		}
		named[a] = true
	}
	return named, nil
}

// bools returns the elements of a constant bool operand or its default.
func (c *call) bools(name string, n int) ([]bool, error) {
	l := (*Literal)(nil)
	if v := c.op.Operand(name); v != nil {
		l = v.Literal
	} else {
		l = c.d.Default(c.op, name)
	}
	if l == nil || len(l.Bools) != n {
		return nil, fmt.Errorf("argument %q must be %d constant bools", name, n)
	}
	return l.Bools, nil
}

func (c *call) flag(name string) (bool, error) {
	v, err := c.bools(name, 1)
	return err == nil && v[0], err
}

// str returns a constant string operand or its default.
func (c *call) str(name string) (string, error) {
	l := (*Literal)(nil)
	if v := c.op.Operand(name); v != nil {
		l = v.Literal
	} else {
		l = c.d.Default(c.op, name)
	}
	if l == nil || len(l.Strings) != 1 {
		return "", fmt.Errorf("argument %q must be one constant string", name)
	}
	return l.Strings[0], nil
}

// floats returns the elements of a floating point literal; nil if it is
// absent or not known.
func (c *call) floats(name string) []float64 {
	if v := c.op.Operand(name); v != nil && v.Literal != nil {
		return v.Literal.Floats
	}
	return nil
}

// rank fails unless the named operand has one of the ranks.
func (c *call) rank(name string, ranks ...int) error {
	if t := c.t(name); !slices.Contains(ranks, t.Rank()) {
		return fmt.Errorf("argument %q is a %v, want rank %s", name, t, listing(ranks, "or"))
	}
	return nil
}

// shaped fails unless the named operand may have the shape.
func (c *call) shaped(name string, shape ...int) error {
	if t := c.t(name); !fits(t.Shape, shape) {
		return fmt.Errorf("argument %q is a %v, want the shape %s", name, t, dims(shape))
	}
	return nil
}

// optShaped is shaped for an argument that may be absent.
func (c *call) optShaped(name string, shape ...int) error {
	if !c.has(name) {
		return nil
	}
	return c.shaped(name, shape...)
}

// dims writes a shape with "?" for unknown dimensions.
func dims(shape []int) string {
	s := "["
	for i, d := range shape {
		if i > 0 {
			s += ", "
		}
		if d < 0 {
			s += "?"
		} else {
			s += fmt.Sprint(d)
		}
	}
	return s + "]"
}

// fits reports whether two shapes are equal, unknown dimensions aside.
func fits(a, b []int) bool { return slices.EqualFunc(a, b, sameDim) }

// sameDim reports whether two dimensions are, or may be, equal.
func sameDim(a, b int) bool { return a == b || a < 0 || b < 0 }

// one wraps a single result.
func one(d DType, shape ...int) ([]Type, error) { return []Type{TensorOf(d, shape...)}, nil }

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

// maxDim is a bound on the numbers that dimensions are computed from, so that
// sums and products of two do not overflow unnoticed.
const maxDim = 1 << 40

// plus adds dimensions; unknown if one is, or too large to be one.
func plus(ds ...int) (int, error) {
	sum := 0
	for _, d := range ds {
		if d < 0 {
			return Dynamic, nil
		}
		if d > math.MaxInt-sum {
			return 0, fmt.Errorf("sum of the dimensions %s is too large", dims(ds))
		}
		sum += d
	}
	return sum, nil
}

// times multiplies dimensions; unknown if one is.
func times(ds ...int) (int, error) {
	for _, d := range ds {
		if d < 0 {
			return Dynamic, nil
		}
	}
	n, ok := NumElements(ds)
	if !ok {
		return 0, fmt.Errorf("product of the dimensions %s is too large", dims(ds))
	}
	return n, nil
}

// maxConsts is the largest number of elements that ConstInts reads from a
// weight: enough for shapes and tables of indices, but not for data.
const maxConsts = 1 << 12

// ConstInts returns the elements of a constant integer: a literal, or a
// weight of at most 4096 elements; ok is false for everything else.
func ConstInts(v *Value) (ints []int, ok bool) {
	switch {
	case v == nil:
		return nil, false
	case v.Literal != nil && v.Literal.Type.DType.IsInt():
		ints = make([]int, len(v.Literal.Ints))
		for i, x := range v.Literal.Ints {
			ints[i] = int(x)
		}
		return ints, true
	case v.Weight != nil:
		return weightInts(v.Weight)
	}
	return nil, false
}

func weightInts(w Weight) (ints []int, ok bool) {
	t := w.Type()
	n, ok := t.NumElements()
	if !ok || !t.DType.IsInt() || t.DType.Bits() < 8 || n > maxConsts {
		return nil, false
	}
	b, err := WeightBytes(w)
	if err != nil || len(b) != n*t.DType.Bits()/8 {
		return nil, false
	}
	ints = make([]int, n)
	for i := range ints {
		switch t.DType {
		case Int8:
			ints[i] = int(int8(b[i]))
		case UInt8:
			ints[i] = int(b[i])
		case Int16:
			ints[i] = int(int16(binary.LittleEndian.Uint16(b[2*i:])))
		case UInt16:
			ints[i] = int(binary.LittleEndian.Uint16(b[2*i:]))
		case Int32:
			ints[i] = int(int32(binary.LittleEndian.Uint32(b[4*i:])))
		case UInt32:
			ints[i] = int(binary.LittleEndian.Uint32(b[4*i:]))
		default:
			ints[i] = int(binary.LittleEndian.Uint64(b[8*i:]))
		}
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
			return nil, fmt.Errorf("shapes %s and %s do not broadcast", dims(a), dims(b))
		}
	}
	return out, nil
}

// shapeOperand returns the shape that an operand gives as its value; unknown
// dimensions where the value is not known, if at least its length is.
func (c *call) shapeOperand(name string) (shape []int, known bool, err error) {
	if s, ok := c.ints(name); ok {
		if len(s) > maxRank {
			return nil, false, fmt.Errorf("argument %q has %d dimensions, more than %d", name, len(s), maxRank)
		}
		return s, true, nil
	}
	t := c.t(name)
	if t.Rank() != 1 || t.Shape[0] < 0 || t.Shape[0] > maxRank {
		return nil, false, fmt.Errorf("argument %q is a %v, want a vector of at most %d integers", name, t, maxRank)
	}
	return slices.Repeat([]int{Dynamic}, t.Shape[0]), false, nil
}
