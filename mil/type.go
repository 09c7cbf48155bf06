package mil

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// DType is the type of one element of a tensor.
type DType uint8

// Element types. The sub-byte integers occur only as stored constants.
const (
	InvalidDType DType = iota
	Bool
	String
	Float16
	Float32
	Float64
	BFloat16
	Int4
	Int8
	Int16
	Int32
	Int64
	UInt1
	UInt2
	UInt3
	UInt4
	UInt6
	UInt8
	UInt16
	UInt32
	UInt64
	numDTypes
)

var dtypes = [numDTypes]struct {
	name string
	bits int
}{
	InvalidDType: {"invalid", 0},
	Bool:         {"bool", 8},
	String:       {"string", 0},
	Float16:      {"fp16", 16},
	Float32:      {"fp32", 32},
	Float64:      {"fp64", 64},
	BFloat16:     {"bf16", 16},
	Int4:         {"int4", 4},
	Int8:         {"int8", 8},
	Int16:        {"int16", 16},
	Int32:        {"int32", 32},
	Int64:        {"int64", 64},
	UInt1:        {"uint1", 1},
	UInt2:        {"uint2", 2},
	UInt3:        {"uint3", 3},
	UInt4:        {"uint4", 4},
	UInt6:        {"uint6", 6},
	UInt8:        {"uint8", 8},
	UInt16:       {"uint16", 16},
	UInt32:       {"uint32", 32},
	UInt64:       {"uint64", 64},
}

// String returns the name that the text form of MIL uses, such as "fp16".
func (d DType) String() string {
	if d < numDTypes {
		return dtypes[d].name
	}
	return fmt.Sprintf("dtype(%d)", uint8(d))
}

// ParseDType returns the element type with the given MIL name.
func ParseDType(name string) (DType, bool) {
	for d := Bool; d < numDTypes; d++ {
		if dtypes[d].name == name {
			return d, true
		}
	}
	return InvalidDType, false
}

// Bits returns the size of one stored element in bits; 0 for strings.
func (d DType) Bits() int {
	if d < numDTypes {
		return dtypes[d].bits
	}
	return 0
}

// IsFloat reports whether d is a floating-point type.
func (d DType) IsFloat() bool { return d >= Float16 && d <= BFloat16 }

// IsInt reports whether d is an integer type of any width or sign.
func (d DType) IsInt() bool { return d >= Int4 && d <= UInt64 }

// IsUnsigned reports whether d is an unsigned integer type.
func (d DType) IsUnsigned() bool { return d >= UInt1 && d <= UInt64 }

// Kind tells tensors from the other, rarer types of values.
type Kind uint8

// Kinds of types.
const (
	InvalidKind Kind = iota
	TensorKind       // numbers, bools or strings in a (possibly rank-0) array
	StateKind        // a tensor that lives from one call to the next
	ListKind         // Elems[0] repeated, Length of them (Dynamic if unknown)
	DictKind         // Elems[0] -> Elems[1]
	TupleKind        // one of each of Elems
)

// Dynamic is a dimension (or length) that is not known before a call.
const Dynamic = -1

// Type is the type of a value. The zero Type is invalid.
type Type struct {
	Kind  Kind
	DType DType // element type of a tensor or state
	Shape []int // dimensions of a tensor or state; empty for a scalar
	Elems []Type
	// Length is the number of elements of a list.
	Length int
}

// TensorOf returns a tensor type. No dimensions make a scalar.
func TensorOf(d DType, shape ...int) Type {
	return Type{Kind: TensorKind, DType: d, Shape: slices.Clip(shape)}
}

// StateOf returns the type of a state that holds a tensor.
func StateOf(d DType, shape ...int) Type {
	return Type{Kind: StateKind, DType: d, Shape: slices.Clip(shape)}
}

// Rank returns the number of dimensions of a tensor or state.
func (t Type) Rank() int { return len(t.Shape) }

// IsScalar reports whether t is a tensor of rank 0.
func (t Type) IsScalar() bool { return t.Kind == TensorKind && len(t.Shape) == 0 }

// Static reports whether every dimension of t is known.
func (t Type) Static() bool { return !slices.ContainsFunc(t.Shape, func(d int) bool { return d < 0 }) }

// NumElements returns the number of elements of a tensor or state. ok is
// false when a dimension is unknown or the number does not fit in an int.
func (t Type) NumElements() (n int, ok bool) { return NumElements(t.Shape) }

// NumElements returns the product of the dimensions; ok is false when one is
// negative or the product does not fit in an int.
func NumElements(shape []int) (n int, ok bool) {
	n = 1
	zero := false
	for _, d := range shape {
		if d < 0 {
			return 0, false
		}
		if d == 0 {
			zero = true
			continue
		}
		if n > math.MaxInt/d {
			return 0, false
		}
		n *= d
	}
	if zero {
		return 0, true
	}
	return n, true
}

// ByteSize returns the size in bytes of a stored tensor: sub-byte elements
// are packed, so it is ceil(elements * bits / 8). ok is false for strings,
// unknown dimensions and sizes that do not fit.
func (t Type) ByteSize() (n int64, ok bool) {
	e, ok := t.NumElements()
	bits := t.DType.Bits()
	if !ok || bits == 0 || (t.Kind != TensorKind && t.Kind != StateKind) || int64(e) > (math.MaxInt64-7)/int64(bits) {
		return 0, false
	}
	return (int64(e)*int64(bits) + 7) / 8, true
}

// Tensor returns the tensor type that a state holds, and t itself for a
// tensor.
func (t Type) Tensor() Type {
	if t.Kind == StateKind {
		t.Kind = TensorKind
	}
	return t
}

// Equal reports whether t and u are the same type, unknown dimensions being
// equal only to unknown ones.
func (t Type) Equal(u Type) bool {
	return t.Kind == u.Kind && t.DType == u.DType && t.Length == u.Length &&
		slices.Equal(t.Shape, u.Shape) && slices.EqualFunc(t.Elems, u.Elems, Type.Equal)
}

// Accepts reports whether a value of type u may stand where t is declared:
// equal types, where an unknown dimension on either side matches any.
func (t Type) Accepts(u Type) bool {
	if t.Kind != u.Kind || t.DType != u.DType || len(t.Shape) != len(u.Shape) {
		return false
	}
	for i, d := range t.Shape {
		if d != u.Shape[i] && d >= 0 && u.Shape[i] >= 0 {
			return false
		}
	}
	return slices.EqualFunc(t.Elems, u.Elems, Type.Accepts)
}

// String returns t as the newer dialect of the text form writes it, such as
// "tensor<fp16, [1, 64, ?]>", "int32" or "state<tensor<fp16, [2, 3]>>".
func (t Type) String() string {
	switch t.Kind {
	case TensorKind:
		if len(t.Shape) == 0 {
			return t.DType.String()
		}
		dims := make([]string, len(t.Shape))
		for i, d := range t.Shape {
			if dims[i] = fmt.Sprint(d); d < 0 {
				dims[i] = "?"
			}
		}
		return "tensor<" + t.DType.String() + ", [" + strings.Join(dims, ", ") + "]>"
	case StateKind:
		return "state<" + t.Tensor().String() + ">"
	case ListKind:
		n := fmt.Sprint(t.Length)
		if t.Length < 0 {
			n = "?"
		}
		return "list<" + t.elems() + ", " + n + ">"
	case DictKind:
		return "dict<" + t.elems() + ">"
	case TupleKind:
		return "tuple<" + t.elems() + ">"
	}
	return "invalid"
}

func (t Type) elems() string {
	s := make([]string, len(t.Elems))
	for i, e := range t.Elems {
		s[i] = e.String()
	}
	return strings.Join(s, ", ")
}
