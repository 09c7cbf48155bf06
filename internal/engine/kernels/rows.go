package kernels

import "math"

// Sum returns the sum of x.
func Sum(x []float32) float32 {
	var s [8]float32
	for len(x) >= 8 {
		v := (*[8]float32)(x)
		for i := range s {
			s[i] += v[i]
		}
		x = x[8:]
	}
	for i, v := range x {
		s[i] += v
	}
	return ((s[0] + s[4]) + (s[1] + s[5])) + ((s[2] + s[6]) + (s[3] + s[7]))
}

// Max returns the largest element of x, or NaN if there is one; negative
// infinity for no elements.
func Max(x []float32) float32 {
	m := float32(math.Inf(-1))
	nan := false
	for _, v := range x {
		if v > m {
			m = v
		}
		nan = nan || v != v
	}
	if nan {
		return float32(math.NaN())
	}
	return m
}

// Softmax sets dst to the softmax of x. A row of nothing but negative
// infinities gives NaN.
func Softmax(dst, x []float32) {
	dst = dst[:len(x)]
	m := Max(x)
	for i, v := range x {
		dst[i] = Exp(v - m)
	}
	// -inf - -inf is NaN, which Exp keeps.
	s := Sum(dst)
	for i := range dst {
		dst[i] /= s
	}
}

// LayerNorm sets dst to x less its mean, over the root of its variance plus
// epsilon, times gamma plus beta where these are not nil.
func LayerNorm(dst, x, gamma, beta []float32, epsilon float32) {
	n := float32(len(x))
	dst = dst[:len(x)]
	mean := Sum(x) / n
	for i, v := range x {
		dst[i] = v - mean
	}
	d := float32(math.Sqrt(float64(Dot(dst, dst)/n + epsilon)))
	for i := range dst {
		dst[i] /= d
	}
	if gamma != nil {
		for i, g := range gamma[:len(dst)] {
			dst[i] *= g
		}
	}
	if beta != nil {
		for i, b := range beta[:len(dst)] {
			dst[i] += b
		}
	}
}
