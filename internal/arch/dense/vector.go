package dense

import "anemone/internal/checkpoint"

// Vector reads a small tensor, such as the weight of a norm or a bias; nil
// gives nil.
func Vector(t *checkpoint.Tensor) []float32 {
	if t == nil {
		return nil
	}
	v := make([]float32, t.Len())
	t.Float32(v, 0)
	return v
}

// NormRows sets the rows of y to those of x, normed as by [RMSNorm]. y may be
// x.
func NormRows(y, x Matrix, weight []float32, eps float64) {
	for t := range x.Rows {
		RMSNorm(y.Row(t), x.Row(t), weight, eps)
	}
}
