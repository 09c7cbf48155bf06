package dense

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
)

func near(a float32, b, relative float64) bool {
	return math.Abs(float64(a)-b) <= relative*math.Max(math.Abs(b), 1e-30)
}

func TestDot(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for n := range 20 {
		a, b := normal(r, n), normal(r, n)
		if got, want := Dot(a, b), exact(a, b, 0); !near(float32(got), float64(want), 1e-7) {
			t.Errorf("%d elements: %g, want %g", n, got, want)
		}
	}
}

func TestRMSNorm(t *testing.T) {
	// mean(x²) = (9+16+0+0)/4 = 6.25, sqrt 2.5
	x := []float32{3, -4, 0, 0}
	y := make([]float32, 4)
	f := RMSNorm(y, x, []float32{1, 2, 3, 4}, 0)
	if f != 0.4 {
		t.Errorf("factor %g, want 0.4", f)
	}
	for i, want := range []float64{1.2, -3.2, 0, 0} {
		if !near(y[i], want, 1e-7) {
			t.Errorf("y[%d] = %g, want %g", i, y[i], want)
		}
	}
	// Values whose squares leave float32, in place; eps with zeros.
	big := []float32{3e30, -4e30, 0, 0}
	RMSNorm(big, big, []float32{1, 2, 3, 4}, 1e-6)
	if !near(big[0], 1.2, 1e-7) || !near(big[1], -3.2, 1e-7) {
		t.Errorf("large values: %v, want [1.2 -3.2 0 0]", big)
	}
	zero := make([]float32, 2)
	if f := RMSNorm(zero, zero, []float32{1, 1}, 0.25); f != 2 || zero[0] != 0 {
		t.Errorf("zeros: factor %g, values %v", f, zero)
	}
}

// A nil weight is one of ones, to the bit.
func TestRMSNormPlain(t *testing.T) {
	x := normal(rand.New(rand.NewPCG(9, 10)), 37)
	ones, a, b := make([]float32, len(x)), make([]float32, len(x)), make([]float32, len(x))
	for i := range ones {
		ones[i] = 1
	}
	if f, g := RMSNorm(a, x, nil, 1e-6), RMSNorm(b, x, ones, 1e-6); f != g || !slices.Equal(a, b) {
		t.Errorf("factors %g and %g, values %v and %v", f, g, a, b)
	}
}

// Two rows of two heads of two elements; the first head by hand: mean(x²) is
// (1+49)/2 = 25.
func TestNormHeads(t *testing.T) {
	x := Matrix{2, 4, []float32{1, 7, 30, 40, 0, 0, -5, 5}}
	y := New(2, 4)
	NormHeads(y, x, 2, []float32{1, 2}, 0.0)
	root := math.Sqrt(1250) // of (900+1600)/2
	for i, want := range []float64{0.2, 2.8, 30 / root, 80 / root, math.NaN(), math.NaN(), -1, 2} {
		if got := float64(y.Data[i]); math.IsNaN(want) != math.IsNaN(got) || !math.IsNaN(want) && !near(y.Data[i], want, 1e-7) {
			t.Errorf("[%d] is %g, want %g", i, got, want)
		}
	}
}

// Values of torch in float64.
func TestGELU(t *testing.T) {
	for _, c := range []struct{ x, want float64 }{
		{0, 0}, {1, 0.8411919906082768}, {-1, -0.15880800939172324}, {3, 2.996362607918227}, {0.5, 0.34571400982514394}, {10, 10}, {-10, 0}, {1e30, 1e30}, {-1e30, 0},
	} {
		if got := GELU(float32(c.x)); math.Abs(float64(got)-c.want) > 1e-7*math.Max(1, math.Abs(c.want)) {
			t.Errorf("GELU(%g) = %g, want %g", c.x, got, c.want)
		}
	}
}

func TestSigmoid(t *testing.T) {
	for _, c := range []struct{ x, want float64 }{{0, 0.5}, {1, 0.7310585786300049}, {-1, 0.2689414213699951}, {1e30, 1}, {-1e30, 0}} {
		if got := Sigmoid(float32(c.x)); math.Abs(got-c.want) > 1e-15 {
			t.Errorf("Sigmoid(%g) = %g, want %g", c.x, got, c.want)
		}
	}
}

func TestSoftcap(t *testing.T) {
	x := []float32{1, -45, 1000, 0}
	Softcap(x, 0) // none
	if x[1] != -45 {
		t.Errorf("without a limit %v", x)
	}
	Softcap(x, 30)
	for i, want := range []float64{0.9996297941646859, -27.154447609345993, 30, 0} {
		if !near(x[i], want, 1e-6) {
			t.Errorf("[%d] is %g, want %g", i, x[i], want)
		}
	}
}

func TestGate(t *testing.T) {
	gate, up := Matrix{2, 2, []float32{1, 2, 3, 4}}, Matrix{2, 2, []float32{10, 100, 1000, -1}}
	if err := Gate(t.Context(), gate, gate, up, func(x float32) float32 { return x + 1 }); err != nil {
		t.Fatal(err)
	}
	if want := []float32{20, 300, 4000, -5}; !slices.Equal(gate.Data, want) {
		t.Errorf("got %v, want %v", gate.Data, want)
	}
}

func TestSoftmax(t *testing.T) {
	inf := float32(math.Inf(-1))
	for _, c := range []struct {
		x    []float32
		want []float64
	}{
		{[]float32{5}, []float64{1}},
		{[]float32{0, 0, 0, 0}, []float64{.25, .25, .25, .25}},
		// e^(ln 3) = 3
		{[]float32{0, float32(math.Log(3))}, []float64{.25, .75}},
		{[]float32{1e30, 1e30, 0}, []float64{.5, .5, 0}},
		{[]float32{-1e30, inf, -1e30}, []float64{.5, 0, .5}},
		{[]float32{-200, 0}, []float64{0, 1}}, // e^-200 is below float32
	} {
		got := append([]float32(nil), c.x...)
		Softmax(got)
		for i, want := range c.want {
			if !near(got[i], want, 2e-7) {
				t.Errorf("softmax of %v is %v, want %v", c.x, got, c.want)
				break
			}
		}
	}
}

func TestSiLU(t *testing.T) {
	for _, c := range []struct{ x, want float64 }{
		{0, 0},
		{1, 0.7310585786300049}, // 1/(1+e^-1)
		{-1, -0.2689414213699951},
		{20, 19.99999995877693},
		{-30, -2.80728689065184e-12},
		{1e30, 1e30},
		{-1e30, 0}, // not -Inf/Inf
		{-800, 0},
	} {
		if got := SiLU(float32(c.x)); !near(got, c.want, 1e-7) {
			t.Errorf("SiLU(%g) = %g, want %g", c.x, got, c.want)
		}
	}
}

func TestMatrix(t *testing.T) {
	m := Matrix{3, 2, []float32{1, 2, 3, 4, 5, 6}}
	c := m.Clone()
	s := m.Slice(1, 3)
	s.Row(1)[0] = 50
	if s.Rows != 2 || m.Data[4] != 50 || c.Data[4] != 5 {
		t.Errorf("slice %v, matrix %v, clone %v", s, m, c)
	}
	Add(m, m, c)
	if want := []float32{2, 4, 6, 8, 55, 12}; !slices.Equal(m.Data, want) {
		t.Errorf("sum %v, want %v", m.Data, want)
	}
	// A row's capacity ends with it, so that nobody appends into the next.
	if row := m.Row(0); cap(row) != 2 || row[1] != 4 {
		t.Errorf("row %v with capacity %d", row, cap(row))
	}
}

func TestParallel(t *testing.T) {
	cores := runtime.GOMAXPROCS(0)
	for _, n := range []int{0, 1, 2, 1000} {
		calls := make([]atomic.Int32, n)
		var made atomic.Int32
		err := ParallelScratch(t.Context(), n, func() *atomic.Int32 {
			made.Add(1)
			return new(atomic.Int32)
		}, func(busy *atomic.Int32, i int) error {
			if busy.Add(1) != 1 {
				t.Error("two calls have the same scratch at once")
			}
			calls[i].Add(1)
			busy.Add(-1)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if m := int(made.Load()); m > min(n, cores) {
			t.Errorf("scratch was made %d times for %d calls on %d cores", m, n, cores)
		}
		for i := range calls {
			if c := calls[i].Load(); c != 1 {
				t.Fatalf("%d calls for %d of %d", c, i, n)
			}
		}
	}
	boom := errors.New("boom")
	var calls atomic.Int32
	err := Parallel(t.Context(), 1_000_000, func(i int) error {
		calls.Add(1)
		return boom
	})
	if err != boom || int(calls.Load()) > cores {
		t.Errorf("error %v after %d calls", err, calls.Load())
	}
	ctx, cancel := context.WithCancel(t.Context())
	calls.Store(0)
	err = Parallel(ctx, 1_000_000, func(i int) error {
		calls.Add(1)
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) || int(calls.Load()) > cores {
		t.Errorf("canceled: error %v after %d calls", err, calls.Load())
	}
}
