package safetensors

import (
	"fmt"
	"math/bits"
)

// DType names the type of a tensor's elements as the header spells it.
type DType string

// The types of safetensors 0.8.
const (
	Bool       DType = "BOOL"
	F4         DType = "F4"
	F6E2M3     DType = "F6_E2M3"
	F6E3M2     DType = "F6_E3M2"
	U8         DType = "U8"
	I8         DType = "I8"
	F8E5M2     DType = "F8_E5M2"
	F8E4M3     DType = "F8_E4M3"
	F8E8M0     DType = "F8_E8M0"
	F8E4M3FNUZ DType = "F8_E4M3FNUZ"
	F8E5M2FNUZ DType = "F8_E5M2FNUZ"
	I16        DType = "I16"
	U16        DType = "U16"
	F16        DType = "F16"
	BF16       DType = "BF16"
	I32        DType = "I32"
	U32        DType = "U32"
	F32        DType = "F32"
	C64        DType = "C64"
	F64        DType = "F64"
	I64        DType = "I64"
	U64        DType = "U64"
)

// dtypes lists the types in the order in which the reference implementation
// sorts them (the last is written first), with their widths in bits.
var dtypes = []struct {
	dtype DType
	bits  int
}{
	{Bool, 8},
	{F4, 4},
	{F6E2M3, 6},
	{F6E3M2, 6},
	{U8, 8},
	{I8, 8},
	{F8E5M2, 8},
	{F8E4M3, 8},
	{F8E8M0, 8},
	{F8E4M3FNUZ, 8},
	{F8E5M2FNUZ, 8},
	{I16, 16},
	{U16, 16},
	{F16, 16},
	{BF16, 16},
	{I32, 32},
	{U32, 32},
	{F32, 32},
	{C64, 64},
	{F64, 64},
	{I64, 64},
	{U64, 64},
}

// rank is the place of d in dtypes, or -1 when d is unknown.
func (d DType) rank() int {
	for i, t := range dtypes {
		if t.dtype == d {
			return i
		}
	}
	return -1
}

// Bits returns the width of an element in bits, 0 for an unknown type.
func (d DType) Bits() int {
	if i := d.rank(); i >= 0 {
		return dtypes[i].bits
	}
	return 0
}

// Size returns the width of an element in whole bytes: 0 for a type that is
// narrower than a byte or unknown.
func (d DType) Size() int { return d.Bits() / 8 }

// byteSize returns the number of bytes that a tensor of this type and shape
// takes, or an error when the number does not fit an int64 or is no whole
// number of bytes.
func byteSize(d DType, shape []int) (int64, error) {
	n := uint64(1)
	for _, dim := range shape {
		if dim < 0 {
			return 0, fmt.Errorf("shape %v has a negative dimension", shape)
		}
		hi, lo := bits.Mul64(n, uint64(dim))
		if hi != 0 {
			return 0, fmt.Errorf("shape %v overflows", shape)
		}
		n = lo
	}
	hi, lo := bits.Mul64(n, uint64(d.Bits()))
	if hi != 0 || lo > 1<<63-1 {
		return 0, fmt.Errorf("%s of shape %v overflows", d, shape)
	}
	if lo%8 != 0 {
		return 0, fmt.Errorf("%s of shape %v is no whole number of bytes", d, shape)
	}
	return int64(lo / 8), nil
}
