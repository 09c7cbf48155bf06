package dense

import "math"

// Frequencies returns the frequencies theta^(-2i/dim) of the first n pairs of
// dimensions of a rotary embedding, in radians per position.
//
// Every step is rounded to float32, as in the framework that models are
// trained and served with. It matters: at position 10,000 the rounding of a
// frequency near 1 moves the angle by half a thousandth.
func Frequencies(theta float64, dim, n int) []float32 {
	f := make([]float32, n)
	for i := range f {
		exponent := float32(2*i) / float32(dim)
		f[i] = 1 / float32(math.Pow(theta, float64(exponent)))
	}
	return f
}

// Rotations holds the cosines and sines of the rotations of some tokens: a
// row for each token, a column for each frequency.
type Rotations struct{ Cos, Sin Matrix }

// NewRotations returns the rotations of tokens from position pos on.
func NewRotations(frequencies []float32, pos, tokens int) Rotations {
	r := Rotations{New(tokens, len(frequencies)), New(tokens, len(frequencies))}
	for t := range tokens {
		cos, sin := r.Cos.Row(t), r.Sin.Row(t)
		for i, f := range frequencies {
			angle := float64(float32(pos+t) * f)
			cos[i], sin[i] = float32(math.Cos(angle)), float32(math.Sin(angle))
		}
	}
	return r
}

// RotateHeads turns the heads in the rows of x, dim elements each and side by
// side: of their first part elements, each pair (i, i + part/2) by the angle of
// the row's token, as far as there are angles.
func (r *Rotations) RotateHeads(x Matrix, dim, part int) {
	for t := range x.Rows {
		for h := 0; h < x.Cols; h += dim {
			r.rotate(x.Row(t)[h:h+part], t)
		}
	}
}

func (r *Rotations) rotate(head []float32, t int) {
	cos, sin := r.Cos.Row(t), r.Sin.Row(t)
	lo, hi := head[:len(head)/2], head[len(head)/2:]
	for i := range cos {
		u, v, c, s := float64(lo[i]), float64(hi[i]), float64(cos[i]), float64(sin[i])
		lo[i] = float32(u*c - v*s)
		hi[i] = float32(v*c + u*s)
	}
}
