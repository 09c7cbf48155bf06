package nn

import (
	"math"

	"anemone/mil"
)

// GELU returns x (0.5 + 0.5 tanh(sqrt(2/pi) x (1 + 0.044715 x²))), the tanh
// form of the Gaussian error linear unit. The usual x + 0.044715 x³ leaves
// fp16 where |x| reaches 40; here x² does so at 256, where the tanh is ±1
// whatever comes of it.
func GELU(b *mil.Builder, x *mil.Value) *mil.Value {
	inner := Mul(b, x, Add(b, Scale(b, Mul(b, x, x), 0.044715), half(b, 1)))
	t := b.Op("tanh", mil.A("x", Scale(b, inner, math.Sqrt(2/math.Pi))))
	return Mul(b, x, Add(b, Scale(b, t, 0.5), half(b, 0.5)))
}

// GatedGELU returns down(gelu(gate(x)) * up(x)) over channels [1, H, 1, T].
func GatedGELU(b *mil.Builder, x *mil.Value, gate, up, down *Weight) *mil.Value {
	g := GELU(b, Project(b, x, gate, nil))
	return Project(b, Mul(b, g, Project(b, x, up, nil)), down, nil)
}

// Softcap returns limit tanh(x), for an x that has been divided by the limit
// before.
func Softcap(b *mil.Builder, x *mil.Value, limit float64) *mil.Value {
	return Scale(b, b.Op("tanh", mil.A("x", x)), limit)
}
