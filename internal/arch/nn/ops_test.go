package nn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"anemone/coreml"
	"anemone/internal/engine"
	"anemone/internal/runner"
	"anemone/mil"
)

// evalHalf is eval with every result rounded to fp16.
func evalHalf(t *testing.T, x []float32, shape []int, build func(b *mil.Builder, x *mil.Value) *mil.Value) []float32 {
	t.Helper()
	b := mil.NewBuilder("main", mil.CoreML8)
	b.Output("y", build(b, b.Input("x", mil.TensorOf(mil.Float16, shape...))))
	f, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	m := load(t, f, engine.Float16)
	out := runner.Values{}
	if err := m.Predict(t.Context(), "main", runner.Values{"x": runner.Floats(mil.Float16, x, shape...)}, out, nil); err != nil {
		t.Fatal(err)
	}
	return out["y"].Float
}

func load(t *testing.T, f *mil.Function, n engine.Numerics) *engine.Model {
	t.Helper()
	m, err := engine.New(&coreml.Model{SpecVersion: 9, Functions: []coreml.Function{coreml.Describe(f)}, Program: &mil.Program{Functions: []*mil.Function{f}}}, engine.Options{Numerics: n})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// TestSoftplus: exact to 1e-5 of the value in float32, from where e^x is below
// fp16 to where it is far above, and to a little more than fp16's own
// precision when every step is rounded.
func TestSoftplus(t *testing.T) {
	var x []float32
	for v := -9.5; v <= 30; v += 0.0625 {
		x = append(x, float32(v))
	}
	x = append(x, 100, 1000, 60000)
	shape := []int{1, len(x)}
	exact := func(v float32) float64 { return math.Max(float64(v), 0) + math.Log1p(math.Exp(-math.Abs(float64(v)))) }
	single := eval(t, x, shape, Softplus).Float
	rounded := evalHalf(t, x, shape, Softplus)
	for i, v := range x {
		want := exact(v)
		if d := math.Abs(float64(single[i])-want) / want; !(d <= 1.2e-5) {
			t.Errorf("softplus(%v) is %v, want %v: off by %.2g of it", v, single[i], want, d)
		}
		if d := math.Abs(float64(rounded[i])-want) / want; !(d <= 3e-3) {
			t.Errorf("rounded, softplus(%v) is %v, want %v: off by %.2g of it", v, rounded[i], want, d)
		}
	}
	for _, y := range [][]float32{eval(t, []float32{-60000, -100}, []int{1, 2}, Softplus).Float, evalHalf(t, []float32{-60000, -100}, []int{1, 2}, Softplus)} {
		if !(y[0] >= 0 && y[0] < 1e-30 && y[1] >= 0 && y[1] < 1e-30) {
			t.Errorf("far below zero: %v, want zeros", y)
		}
	}
}

func TestSigmoidOfHalf(t *testing.T) {
	y := eval(t, []float32{-10, -0.5, 0, 1.5, 10}, []int{1, 5}, SigmoidOfHalf)
	var want []float64
	for _, h := range []float64{-10, -0.5, 0, 1.5, 10} {
		want = append(want, 1/(1+math.Exp(-2*h)))
	}
	near(t, y.Float, want, 1e-6)
}

// TestL2Norm: rows of any size, down to where the epsilon rules and to zero,
// also when every step is rounded to fp16.
func TestL2Norm(t *testing.T) {
	const dim, eps = 32, 1e-6
	r := rand.New(rand.NewPCG(1, 2))
	for _, size := range []float64{0, 1e-6, 1e-3, 1e-2, 1, 100, 1000} {
		x := make([]float32, dim)
		sum := 0.0
		for i := range x {
			x[i] = float32(size * r.NormFloat64())
			sum += float64(x[i]) * float64(x[i])
		}
		want := make([]float64, dim)
		for i := range x {
			want[i] = 0.25 * math.Sqrt(dim) * float64(x[i]) / math.Sqrt(sum+eps)
		}
		build := func(b *mil.Builder, x *mil.Value) *mil.Value { return L2Norm(b, x, eps, 0.25) }
		for name, y := range map[string][]float32{"float32": eval(t, x, []int{1, 1, dim}, build).Float, "fp16": evalHalf(t, x, []int{1, 1, dim}, build)} {
			// Half a unit of fp16 is 1/2048 of the value; the smallest inputs
			// lose digits when they are rounded.
			for i := range want {
				if d := math.Abs(float64(y[i]) - want[i]); !(d <= 2e-3*math.Abs(want[i])+2e-4) {
					t.Errorf("%s, size %g: element %d is %v, want %v", name, size, i, y[i], want[i])
				}
			}
		}
	}
}

// TestKeepTop compares with a stable sort, among many ties.
func TestKeepTop(t *testing.T) {
	const experts, tokens = 12, 9
	r := rand.New(rand.NewPCG(3, 4))
	for _, values := range []int{1, 2, 3, 50} {
		for _, k := range []int{1, 2, 5, 11, 12} {
			x := make([]float32, experts*tokens) // [expert][token]
			for i := range x {
				x[i] = float32(r.IntN(values)) / float32(values)
			}
			want := slices.Clone(x)
			for tok := range tokens {
				order := make([]int, experts)
				for e := range order {
					order[e] = e
				}
				slices.SortStableFunc(order, func(a, b int) int {
					switch p, q := x[a*tokens+tok], x[b*tokens+tok]; {
					case p > q:
						return -1
					case p < q:
						return 1
					}
					return 0
				})
				for _, e := range order[k:] {
					want[e*tokens+tok] = 0
				}
			}
			build := func(b *mil.Builder, x *mil.Value) *mil.Value { return KeepTop(b, x, k, Order(experts)) }
			if y := eval(t, x, []int{1, experts, 1, tokens}, build).Float; !slices.Equal(y, want) {
				t.Errorf("%d of %d with %d values: got %v, want %v", k, experts, values, y, want)
			}
		}
	}
	// As many as fp16 can count, all equal: the first ones count.
	x := slices.Repeat([]float32{0.0625}, MaxOrder)
	y := evalHalf(t, x, []int{1, MaxOrder, 1, 1}, func(b *mil.Builder, x *mil.Value) *mil.Value { return KeepTop(b, x, 3, Order(MaxOrder)) })
	if i := slices.Index(y, 0); i != 3 || slices.Max(y[3:]) != 0 {
		t.Errorf("of equal elements the first %d were kept, want 3", i)
	}
}

func TestDepthwiseConv(t *testing.T) {
	// Two channels of four inputs, kernels of three.
	w := Constant("w", []int{2, 1, 1, 3}, func(dst []float32) { copy(dst, []float32{1, 10, 100, 1, 2, 3}) })
	y := eval(t, []float32{1, 2, 3, 4, 5, 6, 7, 8}, []int{1, 2, 1, 4}, func(b *mil.Builder, x *mil.Value) *mil.Value { return DepthwiseConv(b, x, w) })
	near(t, y.Float, []float64{321, 432, 5 + 12 + 21, 6 + 14 + 24}, 0)
}

// TestPartialRotary: the first elements rotate, the others stay.
func TestPartialRotary(t *testing.T) {
	cos, sin := RotaryTables("r", 8, InvFreq(100, 2))
	y := eval(t, []float32{1, 2, 3, 4}, []int{1, 1, 1, 4}, func(b *mil.Builder, x *mil.Value) *mil.Value {
		c, s := RotaryAt(b, cos, sin, b.Const(mil.Ints(5)))
		return PartialRotary(b, x, c, s)
	})
	s, c := math.Sincos(5)
	near(t, y.Float, []float64{1*c - 2*s, 2*c + 1*s, 3, 4}, 2e-3) // the tables are fp16
	y = eval(t, []float32{1, 2}, []int{1, 1, 1, 2}, func(b *mil.Builder, x *mil.Value) *mil.Value {
		c, s := RotaryAt(b, cos, sin, b.Const(mil.Ints(5)))
		return PartialRotary(b, x, c, s)
	})
	near(t, y.Float, []float64{1*c - 2*s, 2*c + 1*s}, 2e-3)
}

func TestMatmul(t *testing.T) {
	// x = [1 2 3; 4 5 6]
	x := []float32{1, 2, 3, 4, 5, 6}
	for _, c := range []struct {
		name  string
		build func(b *mil.Builder, x *mil.Value) *mil.Value
		want  []float64
	}{
		{"x x'", func(b *mil.Builder, x *mil.Value) *mil.Value { return MatmulT(b, x, x) }, []float64{14, 32, 32, 77}},
		{"x' x", func(b *mil.Builder, x *mil.Value) *mil.Value { return TMatmul(b, x, x) }, []float64{17, 22, 27, 22, 29, 36, 27, 36, 45}},
		{"x x' x", func(b *mil.Builder, x *mil.Value) *mil.Value { return Matmul(b, MatmulT(b, x, x), x) }, []float64{142, 188, 234, 340, 449, 558}},
		{"sum of rows", func(b *mil.Builder, x *mil.Value) *mil.Value { return Sum(b, x, -1) }, []float64{6, 15}},
		{"largest of columns", func(b *mil.Builder, x *mil.Value) *mil.Value { return Max(b, x, 0) }, []float64{4, 5, 6}},
		{"x - x/x", func(b *mil.Builder, x *mil.Value) *mil.Value { return Sub(b, x, Div(b, x, x)) }, []float64{0, 1, 2, 3, 4, 5}},
		{"at least 3", func(b *mil.Builder, x *mil.Value) *mil.Value { return AtLeast(b, x, 3) }, []float64{3, 3, 3, 4, 5, 6}},
	} {
		t.Run(c.name, func(t *testing.T) { near(t, eval(t, x, []int{2, 3}, c.build).Float, c.want, 0) })
	}
}

// TestRows: two writes to one state in a function, each of its own rows, and a
// state that is only touched.
func TestRows(t *testing.T) {
	b := mil.NewBuilder("main", mil.CoreML8)
	x := b.Input("x", mil.TensorOf(mil.Float16, 1, 1, 2))
	s := b.Input("s", mil.StateOf(mil.Float16, 3, 1, 2))
	idle := b.Input("idle", mil.StateOf(mil.Float16, 2, 2))
	rows := NewRows(b, s)
	old := rows.Read(1, 2)
	rows.Write(1, 2, Add(b, old, x))
	rows.Write(2, 3, Scale(b, rows.Read(1, 2), 10))
	b.Output("y", Add(b, Touch(b, x, idle), Scale(b, rows.Read(2, 3), 1)))
	f, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	m := load(t, f, engine.Float32)
	st, err := m.NewState()
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Write("idle", runner.Floats(mil.Float16, []float32{7, 8, 9, 10}, 2, 2)); err != nil {
		t.Fatal(err)
	}
	out := runner.Values{}
	for range 2 {
		if err := m.Predict(t.Context(), "main", runner.Values{"x": runner.Floats(mil.Float16, []float32{1, 2}, 1, 1, 2)}, out, st); err != nil {
			t.Fatal(err)
		}
	}
	near(t, out["y"].Float, []float64{21, 42}, 0)
	v, err := st.Read("s")
	if err != nil {
		t.Fatal(err)
	}
	near(t, v.Float, []float64{0, 0, 2, 4, 20, 40}, 0)
}

// TestDerived: weights made of others.
func TestDerived(t *testing.T) {
	read := func(w *Weight) string {
		got := make([]float32, w.Rows()*w.Cols())
		if err := w.Float32(got, 0); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%s %t %v %v", w.Name(), w.Kind() == Vector, w.Type().Shape, got)
	}
	w := Made("w", Matrix, []int{2, 3, 1, 1}, func(dst []float32, row int) {
		for i := range dst {
			dst[i] = float32(10*row + i)
		}
	}, nil)
	for _, c := range []struct {
		w    *Weight
		want string
	}{
		{w, "w false [2 3 1 1] [0 1 2 10 11 12]"},
		{w.Plain(), "w true [2 3 1 1] [0 1 2 10 11 12]"},
		{w.Named("other"), "other false [2 3 1 1] [0 1 2 10 11 12]"},
		{w.Mapped(func(v float32) float32 { return -v }), "w false [2 3 1 1] [-0 -1 -2 -10 -11 -12]"},
		{vec(0.5, -3).PlusOne(), "w true [2] [1.5 -2]"},
		{vec(1, 2).Shaped(1, 2, 1, 1), "w true [1 2 1 1] [1 2]"},
	} {
		if got := read(c.w); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}
