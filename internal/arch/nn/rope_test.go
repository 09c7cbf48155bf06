package nn

import (
	"math"
	"testing"
)

// By hand: with 1024 original positions a frequency of 2π turns/1024 turns so
// often within them.
func TestLlama3InvFreq(t *testing.T) {
	unit := 2 * math.Pi / 1024
	turns := []float64{100, 8, 5, 2, 1, 0.5}
	want := []float64{100, 8, 5 * (0.5 + 0.5/4), 2 / 4.0, 1 / 4.0, 0.5 / 4}
	in := make([]float32, len(turns))
	for i, n := range turns {
		in[i] = float32(n * unit)
	}
	for i, f := range Llama3InvFreq(in, 4, 2, 8, 1024) {
		if got := float64(f) / unit; math.Abs(got-want[i]) > 1e-6*want[i] {
			t.Errorf("%g turns become %g, want %g", turns[i], got, want[i])
		}
	}
	if in[5] != float32(0.5*unit) {
		t.Error("the argument was changed")
	}
}

func TestLinearInvFreq(t *testing.T) {
	got := LinearInvFreq([]float32{1, 0.5, 0.25}, 4)
	for i, want := range []float32{0.25, 0.125, 0.0625} {
		if got[i] != want {
			t.Errorf("frequency %d is %g, want %g", i, got[i], want)
		}
	}
}
