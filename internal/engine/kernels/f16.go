package kernels

import (
	"math"
	"sync"
)

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

// halves has the value of every fp16 pattern: looking them up is three times
// as fast as computing them, as few of the 256 KiB are in use at a time.
var halves = sync.OnceValue(func() *[1 << 16]float32 {
	t := new([1 << 16]float32)
	for h := range t {
		t[h] = widen(uint16(h))
	}
	return t
})

// Widen sets dst[i] to the value of the fp16 pattern src[i].
func Widen(dst []float32, src []uint16) {
	t := halves()
	dst = dst[:len(src)]
	for i, h := range src {
		dst[i] = t[h]
	}
}

// dotF16 sets dst[i] to the product of row i of w, four rows that are ldw
// apart, and x.
func dotF16(dst *[4]float32, x []float32, w []uint16, ldw int) {
	t := halves()
	*dst = [4]float32{}
	for at := 0; at < len(x); at += sumChunk {
		n := min(sumChunk, len(x)-at)
		w := w[at:]
		w0, w1, w2, w3 := w[:n], w[ldw:ldw+n], w[2*ldw:2*ldw+n], w[3*ldw:3*ldw+n]
		var s0, s1, s2, s3 float32
		for i, a := range x[at : at+n] {
			s0 += a * t[w0[i]]
			s1 += a * t[w1[i]]
			s2 += a * t[w2[i]]
			s3 += a * t[w3[i]]
		}
		dst[0] += s0
		dst[1] += s1
		dst[2] += s2
		dst[3] += s3
	}
}
