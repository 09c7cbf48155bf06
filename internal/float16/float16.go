// Package float16 converts between float32 and the two 16-bit floating-point
// formats of checkpoints and Core ML programs: IEEE 754 binary16 (fp16) and
// bfloat16. A 16-bit value is carried as its bit pattern in a uint16.
//
// Narrowing rounds to nearest, ties to even, as the hardware does.
package float16

import "math"

const (
	// Max is the largest finite fp16 value.
	Max = 65504
	// Inf is the bit pattern of positive infinity.
	Inf = 0x7c00
)

// ToFloat32 returns the exact value of the fp16 bit pattern h.
func ToFloat32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exp := uint32(h>>10) & 0x1f
	man := uint32(h & 0x3ff)
	switch exp {
	case 0: // zero or subnormal: man * 2^-24, exact in float32
		return math.Float32frombits(sign | math.Float32bits(float32(man)*0x1p-24))
	case 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | man<<13)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | man<<13)
}

// FromFloat32 returns the fp16 bit pattern nearest to f. Values beyond the
// range become infinities and NaN stays NaN.
func FromFloat32(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b>>16) & 0x8000
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000:
		return sign | 0x7e00
	case b >= 0x47800000: // 2^16 and above
		return sign | Inf
	case b < 0x38800000: // below 2^-14: subnormal
		// Adding 0.5 makes the float32 adder align the bits that remain and
		// round the others to nearest even.
		return sign | uint16(math.Float32bits(math.Float32frombits(b)+0.5)-0x3f000000)
	}
	// A carry out of the mantissa moves into the exponent, as it should.
	return sign | uint16((b+0xfff+(b>>13&1)-0x38000000)>>13)
}

// Round returns f rounded to fp16 precision.
func Round(f float32) float32 { return ToFloat32(FromFloat32(f)) }

// Widen sets dst[i] to the value of src[i]; dst is at least as long as src.
func Widen(dst []float32, src []uint16) {
	dst = dst[:len(src)]
	for i, h := range src {
		dst[i] = ToFloat32(h)
	}
}

// Narrow sets dst[i] to src[i] rounded to fp16; dst is at least as long as
// src.
func Narrow(dst []uint16, src []float32) {
	dst = dst[:len(src)]
	for i, f := range src {
		dst[i] = FromFloat32(f)
	}
}

// RoundAll rounds every element of x to fp16 precision in place.
func RoundAll(x []float32) {
	for i, f := range x {
		x[i] = Round(f)
	}
}

// BFloat16ToFloat32 returns the exact value of the bfloat16 bit pattern h.
func BFloat16ToFloat32(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// BFloat16FromFloat32 returns the bfloat16 bit pattern nearest to f.
func BFloat16FromFloat32(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + (b >> 16 & 1)) >> 16)
}
