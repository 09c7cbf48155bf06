package nn

import (
	"math"
	"testing"

	"anemone/mil"
)

// TestGELU holds the form of the graph to the definition, and in fp16 to what
// fp16 can give, also where the cube of x leaves it.
func TestGELU(t *testing.T) {
	x := []float32{0, 1, -1, 0.5, -3, 8, 41, -41, 255, 300, -300, 60000, -60000}
	var want []float64
	for _, v := range x {
		v := float64(v)
		want = append(want, 0.5*v*(1+math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v))))
	}
	got := eval(t, x, []int{1, len(x), 1, 1}, GELU)
	for i, v := range got.Float {
		if d := math.Abs(float64(v) - want[i]); !(d <= 1e-3*math.Max(1, math.Abs(want[i]))) {
			t.Errorf("gelu(%g) is %g, want %g", x[i], v, want[i])
		}
	}
	half := evalHalf(t, x, []int{1, len(x), 1, 1}, GELU)
	for i, v := range half {
		if d := math.Abs(float64(v) - want[i]); !(d <= 2e-3*math.Max(1, math.Abs(want[i]))) {
			t.Errorf("in fp16, gelu(%g) is %g, want %g", x[i], v, want[i])
		}
	}
}

func TestGatedGELU(t *testing.T) {
	gelu := func(v float64) float64 {
		return 0.5 * v * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v)))
	}
	m := func(rows, cols int, v ...float32) *Weight {
		return Made("w", Matrix, []int{rows, cols, 1, 1}, func(dst []float32, row int) { copy(dst, v[row*cols:]) }, nil)
	}
	// x is 2 channels, the MLP 3 wide.
	x := []float32{1, -2}
	got := eval(t, x, []int{1, 2, 1, 1}, func(b *mil.Builder, x *mil.Value) *mil.Value {
		return GatedGELU(b, x, m(3, 2, 1, 0, 0, 1, 1, 1), m(3, 2, 2, 0, 0, 3, 1, -1), m(2, 3, 1, 1, 1, 0, 2, 0))
	})
	g := []float64{gelu(1) * 2, gelu(-2) * -6, gelu(-1) * 3}
	near(t, got.Float, []float64{g[0] + g[1] + g[2], 2 * g[1]}, 2e-3)
}

func TestSoftcap(t *testing.T) {
	got := eval(t, []float32{0, 0.5, -1, 10}, []int{1, 4, 1, 1}, func(b *mil.Builder, x *mil.Value) *mil.Value { return Softcap(b, x, 30) })
	near(t, got.Float, []float64{0, 30 * math.Tanh(0.5), 30 * math.Tanh(-1), 30}, 2e-2)
}
