package dense

import "math"

// Dot returns the sum of the products of a and b, which are equally long.
func Dot(a, b []float32) float64 {
	b = b[:len(a)]
	var s0, s1, s2, s3 float64
	i := 0
	for ; i < len(a)-3; i += 4 {
		s0 += float64(a[i]) * float64(b[i])
		s1 += float64(a[i+1]) * float64(b[i+1])
		s2 += float64(a[i+2]) * float64(b[i+2])
		s3 += float64(a[i+3]) * float64(b[i+3])
	}
	for ; i < len(a); i++ {
		s0 += float64(a[i]) * float64(b[i])
	}
	return s0 + s1 + (s2 + s3)
}

// RMSNorm sets dst to x / sqrt(mean(x²) + eps) * weight; a nil weight is one of
// ones. It returns the factor 1 / sqrt(mean(x²) + eps), which the derivative
// needs. dst may be x.
func RMSNorm(dst, x, weight []float32, eps float64) float64 {
	f := 1 / math.Sqrt(Dot(x, x)/float64(len(x))+eps)
	dst = dst[:len(x)]
	if weight == nil {
		for i, v := range x {
			dst[i] = float32(float64(v) * f)
		}
		return f
	}
	weight = weight[:len(x)]
	for i, v := range x {
		dst[i] = float32(float64(v) * f * float64(weight[i]))
	}
	return f
}

// Softmax replaces the logits x by their softmax.
func Softmax(x []float32) {
	top := float32(math.Inf(-1))
	for _, v := range x {
		top = max(top, v) // NaN stays NaN
	}
	var sum float64
	for i, v := range x {
		e := math.Exp(float64(v) - float64(top))
		x[i] = float32(e)
		sum += e
	}
	for i, v := range x {
		x[i] = float32(float64(v) / sum)
	}
}

// SiLU returns x / (1 + exp(-x)).
func SiLU(x float32) float32 {
	// exp overflows to infinity for x below -709, and the quotient is the
	// right zero.
	return float32(float64(x) / (1 + math.Exp(-float64(x))))
}

// Sigmoid returns 1 / (1 + exp(-x)).
func Sigmoid(x float32) float64 { return 1 / (1 + math.Exp(-float64(x))) }

// GELU returns x times the normal distribution function of x, in its tanh form:
// x/2 (1 + tanh(sqrt(2/π) (x + 0.044715 x³))).
func GELU(x float32) float32 {
	v := float64(x)
	return float32(0.5 * v * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v))))
}

// Softcap replaces x by limit tanh(x / limit), unless the limit is 0.
func Softcap(x []float32, limit float64) {
	if limit == 0 {
		return
	}
	for i, v := range x {
		x[i] = float32(limit * math.Tanh(float64(v)/limit))
	}
}
