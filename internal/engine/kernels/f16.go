package kernels

import "math"

// widen returns the value of an fp16 bit pattern. Shifted into the place of
// a float32, it lacks a factor of 2^112, for subnormal numbers too; infinity
// and NaN need their exponent filled up.
func widen(h uint16) float32 {
	b := uint32(h)
	f := math.Float32frombits(b<<16&0x80000000|b<<13&0x0fffe000) * 0x1p112
	if h&0x7c00 == 0x7c00 {
		return math.Float32frombits(b<<16&0x80000000 | 0x7f800000 | b<<13&0x007fe000)
	}
	return f
}

// Widen sets dst[i] to the value of the fp16 pattern src[i].
func Widen(dst []float32, src []uint16) {
	dst = dst[:len(src)]
	for i, h := range src {
		dst[i] = widen(h)
	}
}

// dotF16 returns the product of a row of fp16 patterns and x.
func dotF16(w []uint16, x []float32) float32 {
	x = x[:len(w)]
	var s0, s1, s2, s3 float32
	for len(w) >= 8 && len(x) >= 8 {
		w0, x0 := (*[8]uint16)(w), (*[8]float32)(x)
		s0 += widen(w0[0]) * x0[0]
		s1 += widen(w0[1]) * x0[1]
		s2 += widen(w0[2]) * x0[2]
		s3 += widen(w0[3]) * x0[3]
		s0 += widen(w0[4]) * x0[4]
		s1 += widen(w0[5]) * x0[5]
		s2 += widen(w0[6]) * x0[6]
		s3 += widen(w0[7]) * x0[7]
		w, x = w[8:], x[8:]
	}
	for i, h := range w {
		s0 += widen(h) * x[i]
	}
	return (s0 + s1) + (s2 + s3)
}
