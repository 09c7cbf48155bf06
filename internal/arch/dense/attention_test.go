package dense

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// TestAttend holds attention to the same sums written out for each token and
// head on its own, over the window only.
func TestAttend(t *testing.T) {
	const before, tokens, dim = 4, 5, 6
	r := rand.New(rand.NewPCG(5, 6))
	for _, c := range []struct{ heads, kv, window int }{{1, 1, 0}, {4, 2, 0}, {3, 3, 2}, {6, 2, 1}, {2, 1, 100}} {
		name := fmt.Sprintf("%d heads, %d of keys, window %d", c.heads, c.kv, c.window)
		width, all := c.kv*dim, before+tokens
		var cache KV
		cache.Append(Matrix{before, width, normal(r, before*width)}, Matrix{before, width, normal(r, before*width)})
		cache.Append(Matrix{tokens, width, normal(r, tokens*width)}, Matrix{tokens, width, normal(r, tokens*width)})
		q, out := Matrix{tokens, c.heads * dim, normal(r, tokens*c.heads*dim)}, New(tokens, c.heads*dim)
		a := Attention{Heads: c.heads, KVHeads: c.kv, HeadDim: dim, Scale: 0.3, Window: c.window}
		if err := a.Attend(t.Context(), out, q, &cache, before, nil); err != nil {
			t.Fatal(err)
		}
		for i := range tokens {
			for h := range c.heads {
				kv := h / (c.heads / c.kv) * dim
				var sum float64
				want := make([]float64, dim)
				for j := range all {
					if j > before+i || c.window > 0 && j <= before+i-c.window {
						continue
					}
					var s float64
					for k := range dim {
						s += float64(q.Row(i)[h*dim+k]) * float64(cache.K[j*width+kv+k])
					}
					e := math.Exp(0.3 * s)
					sum += e
					for k := range dim {
						want[k] += e * float64(cache.V[j*width+kv+k])
					}
				}
				for k := range dim {
					// Scores and weights are rounded to float32 on the way.
					if got := float64(out.Row(i)[h*dim+k]); math.Abs(got-want[k]/sum) > 2e-5 {
						t.Errorf("%s: token %d, head %d, [%d] is %g, want %g", name, i, h, k, got, want[k]/sum)
					}
				}
			}
		}
		// In place, and with the weights kept.
		probs := make([][]float32, tokens*c.heads)
		for i := range probs {
			n := before + i/c.heads + 1
			if c.window > 0 {
				n = min(n, c.window)
			}
			probs[i] = make([]float32, n)
		}
		if err := a.Attend(t.Context(), q, q, &cache, before, probs); err != nil {
			t.Fatal(err)
		}
		for i, v := range q.Data {
			if v != out.Data[i] {
				t.Fatalf("%s: in place [%d] is %g, want %g", name, i, v, out.Data[i])
			}
		}
		for i, p := range probs {
			var sum float64
			for _, v := range p {
				sum += float64(v)
			}
			if math.Abs(sum-1) > 1e-6 {
				t.Errorf("%s: weights %d add up to %g", name, i, sum)
			}
		}
		if err := a.Attend(t.Context(), q, q, &cache, before+1, nil); err == nil {
			t.Errorf("%s: a cache that holds too little is no error", name)
		}
		cache.Truncate(before, width)
		if len(cache.K) != before*width || len(cache.V) != before*width {
			t.Errorf("%s: %d keys and %d values after truncation", name, len(cache.K), len(cache.V))
		}
		if cache.Truncate(100, width); len(cache.K) != before*width {
			t.Errorf("%s: truncation to more made %d keys", name, len(cache.K))
		}
	}
}

// By hand: 4 dimensions are two pairs, (0, 2) and (1, 3).
func TestRotations(t *testing.T) {
	f := Frequencies(10000, 4, 2)
	if f[0] != 1 || f[1] != float32(0.01) {
		t.Errorf("frequencies %v, want 1 and 0.01", f)
	}
	rot := NewRotations([]float32{math.Pi / 2, math.Pi}, 1, 2) // positions 1 and 2
	for row, want := range [][]float64{{-3, -2, 1, -4}, {-1, 2, -3, 4}} {
		x := []float32{1, 2, 3, 4}
		rot.rotate(x, row)
		for i := range x {
			// float32 has π to 9e-8.
			if math.Abs(float64(x[i])-want[i]) > 2e-6 {
				t.Errorf("position %d: [%d] is %g, want %g", row+1, i, x[i], want[i])
			}
		}
	}
	// What has no angle stays.
	rot = NewRotations([]float32{math.Pi / 2}, 1, 1)
	x := []float32{1, 2, 3, 4}
	if rot.rotate(x, 0); x[1] != 2 || x[3] != 4 || math.Abs(float64(x[0])+3) > 1e-6 {
		t.Errorf("half of the pairs rotated: %v", x)
	}
}

// Two heads of six elements side by side, of which the first four turn: the
// rows are those of the heads turned alone.
func TestRotateHeads(t *testing.T) {
	rot := NewRotations([]float32{1, 0.1}, 5, 2)
	x := Matrix{2, 12, normal(rand.New(rand.NewPCG(11, 12)), 24)}
	want := x.Clone()
	for row := range 2 {
		for _, head := range []int{0, 6} {
			for i, f := range []float64{1, 0.1} {
				s, c := math.Sincos(float64(5+row) * f)
				a, b := &want.Row(row)[head+i], &want.Row(row)[head+i+2]
				u, v := float64(*a), float64(*b)
				*a, *b = float32(u*c-v*s), float32(v*c+u*s)
			}
		}
	}
	rot.RotateHeads(x, 6, 4)
	for i, v := range x.Data {
		// Angles, cosines and sines are rounded to float32.
		if math.Abs(float64(v-want.Data[i])) > 2e-6 {
			t.Errorf("[%d] is %g, want %g", i, v, want.Data[i])
		}
	}
}

// Frequencies are rounded to float32 at every step, as torch rounds them:
// these are torch's, 1/(500000 ** (arange(0, 8, 2).float() / 8)).
func TestFrequencies(t *testing.T) {
	want := []float32{1, 0.03760603070259094, 0.001414213445968926, 5.3182957344688475e-05}
	for i, f := range Frequencies(500000, 8, 4) {
		if math.Abs(float64(f)/float64(want[i])-1) > 1.2e-7 { // a unit in the last place: torch's power is not rounded exactly
			t.Errorf("frequency %d is %g, want %g", i, f, want[i])
		}
	}
}
