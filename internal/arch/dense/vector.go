package dense

import (
	"context"

	"anemone/internal/checkpoint"
)

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

// FromOne reads the weight of a norm that is stored as its difference from 1.
func FromOne(t *checkpoint.Tensor) []float32 {
	v := Vector(t)
	for i := range v {
		v[i]++
	}
	return v
}

// NormHeads is [NormRows] for each head on its own: heads of dim elements stand
// side by side in the rows.
func NormHeads(y, x Matrix, dim int, weight []float32, eps float64) {
	heads := func(m Matrix) Matrix { return Matrix{m.Rows * m.Cols / dim, dim, m.Data} }
	NormRows(heads(y), heads(x), weight, eps)
}

// Gate sets y to f(gate) * up, element by element: a gated MLP's
// input of its last product.
func Gate(ctx context.Context, y, gate, up Matrix, f func(float32) float32) error {
	return Parallel(ctx, y.Rows, func(t int) error {
		y, gate, up := y.Row(t), gate.Row(t), up.Row(t)
		for i := range y {
			y[i] = f(gate[i]) * up[i]
		}
		return nil
	})
}
