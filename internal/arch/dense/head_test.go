package dense

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestHead(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	// Wide enough that two rows at a time are too many.
	const rows, in, vocab = 3, 2, maxLogits/2 + 1
	x, w := Matrix{rows, in, normal(r, rows*in)}, memory(make([]float32, vocab*in))
	for i := range 64 {
		w[i], w[len(w)-1-i] = float32(i), float32(-i)
	}
	var seen, visited []int
	see := func(m Matrix) { seen = append(seen, m.Rows) }
	want := func(i int) bool { return i != 1 }
	err := Head(t.Context(), x, w, vocab, want, see, func(i int, logits []float32) error {
		visited = append(visited, i)
		for _, o := range []int{0, 5, vocab - 3} {
			if got, want := logits[o], exact(w[o*in:(o+1)*in], x.Row(i), 0); !near(got, float64(want), 1e-6) {
				t.Errorf("row %d: logit %d is %g, want %g", i, o, got, want)
			}
		}
		clear(logits) // the caller may
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(visited, []int{0, 2}) || !slices.Equal(seen, []int{1, 1}) {
		t.Errorf("visited rows %v after products of %v rows, want [0 2] after [1 1]", visited, seen)
	}
}

func TestHeadErrors(t *testing.T) {
	x, w := New(2, 3), memory(make([]float32, 12))
	boom := errors.New("boom")
	calls := 0
	visit := func(int, []float32) error { calls++; return boom }
	if err := Head(t.Context(), x, w, 4, nil, nil, visit); !errors.Is(err, boom) || calls != 1 {
		t.Errorf("error %v after %d calls", err, calls)
	}
	none := func(int) bool { return false }
	if err := Head(t.Context(), x, w, 4, none, nil, visit); err != nil || calls != 1 {
		t.Errorf("nothing wanted: error %v, %d calls", err, calls)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Head(ctx, x, w, 4, nil, nil, visit); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: error %v", err)
	}
	if err := Head(t.Context(), x, w, 0, nil, nil, visit); err == nil {
		t.Error("a head of no tokens is no error")
	}
}
