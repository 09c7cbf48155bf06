package gemma

import (
	"math"

	"anemone/internal/arch/nn"
	"anemone/mil"
)

// Rotation is how the layers of a kind turn their queries and keys: cosines
// and sines of every position, of the pairs of dimensions that turn. Whole
// tables would be four times as large where few do, a hundred megabytes per
// chunk for long contexts; what is missing is put beside the rows of a call.
type Rotation struct {
	Cos, Sin *nn.Weight // [positions, pairs that turn]
	Dim      int        // of a head
}

// NewRotation returns the tables for a kind of layers with heads of dim
// elements, of which the first len(freq) pairs (i, i + dim/2) turn by freq[i]
// radians per position. Angles are products in float32, as transformers has
// them, and their cosines and sines those of float64.
func NewRotation(k Kind, freq []float32, dim, positions int) *Rotation {
	table := func(name string, f func(float64) float64) *nn.Weight {
		return nn.Made("rotary_"+k.String()+name, nn.Table, []int{positions, len(freq)}, func(dst []float32, pos int) {
			for i, q := range freq {
				dst[i] = float32(f(float64(float32(pos) * q)))
			}
		}, nil).Plain()
	}
	return &Rotation{Cos: table("_cos", math.Cos), Sin: table("_sin", math.Sin), Dim: dim}
}

// at returns the cosines and sines [1, 1, T, dim] at the positions [T] of a
// call: those of pair i at i and i + dim/2, as rotate-half wants it. Pairs
// that do not turn have 1 and 0.
func (r *Rotation) at(b *mil.Builder, positions *mil.Value) (cos, sin *mil.Value) {
	cos, sin = nn.RotaryAt(b, r.Cos, r.Sin, positions)
	t := positions.Type.Shape[0]
	both := func(x *mil.Value, rest float64) *mil.Value {
		n := r.Dim/2 - r.Cos.Cols()
		if n == 0 {
			return nn.Concat(b, -1, x, x)
		}
		still := constant(b, rest, 1, 1, t, n)
		return nn.Concat(b, -1, x, still, x, still)
	}
	return both(cos, 1), both(sin, 0)
}

// constant returns an fp16 tensor of one value.
func constant(b *mil.Builder, v float64, shape ...int) *mil.Value {
	return b.Op("fill", mil.A("shape", b.Const(mil.Ints(shape...))), mil.A("value", b.Const(mil.Half(v))))
}
