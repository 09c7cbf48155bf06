package nn

import "math"

// LinearInvFreq returns inverse frequencies divided by a factor: positions
// that lie factor times closer.
func LinearInvFreq(invFreq []float32, factor float64) []float32 {
	out := make([]float32, len(invFreq))
	for i, f := range invFreq {
		out[i] = float32(float64(f) / factor)
	}
	return out
}

// Llama3InvFreq returns inverse frequencies as Llama 3.1 scales them. How
// often a pair of dimensions turns within the original context, in rotations,
// decides: from high on its frequency stays, up to low it is divided by the
// factor, and in between the two are mixed in proportion.
func Llama3InvFreq(invFreq []float32, factor, low, high, original float64) []float32 {
	out := make([]float32, len(invFreq))
	for i, f := range invFreq {
		turns := original * float64(f) / (2 * math.Pi)
		keep := min(max((turns-low)/(high-low), 0), 1)
		out[i] = float32(float64(f) * (keep + (1-keep)/factor))
	}
	return out
}
