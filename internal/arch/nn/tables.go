package nn

import "math"

// ProportionalInvFreq returns inverse frequencies for all dim/2 pairs of a
// head, of which only the first rotated ones turn: theta^(-2i/dim) as in
// [InvFreq], and zero for the others.
func ProportionalInvFreq(theta float64, dim, rotated int) []float32 {
	f := make([]float32, dim/2)
	for i := range rotated {
		f[i] = float32(1 / math.Pow(theta, float64(float32(2*i)/float32(dim))))
	}
	return f
}
