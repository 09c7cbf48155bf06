package nn

import (
	"math"
	"testing"

	"anemone/coreml"
	"anemone/internal/engine"
	"anemone/internal/runner"
	"anemone/mil"
)

// eval builds a function of one input x with build and runs it in float32.
func eval(t *testing.T, x []float32, shape []int, build func(b *mil.Builder, x *mil.Value) *mil.Value) *runner.Tensor {
	t.Helper()
	b := mil.NewBuilder("main", mil.CoreML8)
	b.Output("y", build(b, b.Input("x", mil.TensorOf(mil.Float16, shape...))))
	f, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	m, err := engine.New(&coreml.Model{SpecVersion: 9, Functions: []coreml.Function{coreml.Describe(f)}, Program: &mil.Program{Functions: []*mil.Function{f}}}, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	out := runner.Values{}
	if err := m.Predict(t.Context(), "main", runner.Values{"x": runner.Floats(mil.Float16, x, shape...)}, out, nil); err != nil {
		t.Fatal(err)
	}
	return out["y"]
}

func vec(v ...float32) *Weight {
	return vector("w", len(v), func(dst []float32) { copy(dst, v) })
}

func near(t *testing.T, got []float32, want []float64, tol float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %d values, want %d", len(got), len(want))
	}
	for i := range got {
		if d := math.Abs(float64(got[i]) - want[i]); !(d <= tol) {
			t.Errorf("value %d is %v, want %v", i, got[i], want[i])
		}
	}
}

func TestRMSNorm(t *testing.T) {
	x := []float32{3, -4, 0, 5, 1000, -3000, 2000, 500}
	g := []float64{1, 2, 0.5, -1}
	var want []float64
	for r := range 2 {
		sum := 0.0
		for i := range 4 {
			sum += float64(x[4*r+i]) * float64(x[4*r+i])
		}
		for i := range 4 {
			want = append(want, g[i]*float64(x[4*r+i])/math.Sqrt(sum/4+1e-6))
		}
	}
	y := eval(t, x, []int{1, 2, 4}, func(b *mil.Builder, x *mil.Value) *mil.Value {
		return RMSNorm(b, x, vec(1, 2, 0.5, -1), 1e-6)
	})
	near(t, y.Float, want, 1e-5)
}

func TestSiLU(t *testing.T) {
	x := []float32{-20, -1, 0, 0.5, 3, 20}
	var want []float64
	for _, v := range x {
		want = append(want, float64(v)/(1+math.Exp(-float64(v))))
	}
	y := eval(t, x, []int{1, 6}, SiLU)
	near(t, y.Float, want, 2e-6)
}

// TestRotary compares with the rotation of every pair (i, i + dim/2) by the
// angle of its frequency, at two positions.
func TestRotary(t *testing.T) {
	const dim, length = 4, 8
	freq := InvFreq(100, dim)
	if freq[0] != 1 || math.Abs(float64(freq[1])-0.1) > 1e-7 {
		t.Fatalf("frequencies are %v, want 1 and 0.1", freq)
	}
	cos, sin := RotaryTables("r", length, freq)
	x := []float32{1, 2, 3, 4, 5, 6, 7, 8}
	pos := []int{3, 7}
	var want []float64
	for i, p := range pos {
		v := x[4*i:]
		for j := range dim {
			a := float64(p) * float64(freq[j%2])
			c, s := math.Cos(a), math.Sin(a)
			if j < 2 {
				want = append(want, float64(v[j])*c-float64(v[j+2])*s)
			} else {
				want = append(want, float64(v[j])*c+float64(v[j-2])*s)
			}
		}
	}
	y := eval(t, x, []int{1, 1, 2, dim}, func(b *mil.Builder, x *mil.Value) *mil.Value {
		c, s := RotaryAt(b, cos, sin, b.Const(mil.Ints(pos...)))
		return Rotary(b, x, c, s)
	})
	near(t, y.Float, want, 8e-3) // the tables are fp16: 2^-11 of values up to 8, twice
}

func TestRepeatHeads(t *testing.T) {
	y := eval(t, []float32{1, 2, 3, 4}, []int{1, 2, 1, 2}, func(b *mil.Builder, x *mil.Value) *mil.Value { return RepeatHeads(b, x, 2) })
	near(t, y.Float, []float64{1, 2, 1, 2, 3, 4, 3, 4}, 0)
}

// TestHeadsAndBack: channels to heads and back are each other's inverse, and
// heads have the layout [head][token][dim].
func TestHeadsAndBack(t *testing.T) {
	x := make([]float32, 2*3*5) // 2 heads of 3, 5 tokens: channel-major
	for i := range x {
		x[i] = float32(i)
	}
	y := eval(t, x, []int{1, 6, 1, 5}, func(b *mil.Builder, x *mil.Value) *mil.Value { return Heads(b, x, 2, 3) })
	if got, want := y.Float[1*15+4*3+2], x[(1*3+2)*5+4]; got != want {
		t.Errorf("head 1, token 4, element 2 is %v, want %v", got, want)
	}
	y = eval(t, x, []int{1, 6, 1, 5}, func(b *mil.Builder, x *mil.Value) *mil.Value { return MergeHeads(b, Heads(b, x, 2, 3)) })
	for i := range x {
		if y.Float[i] != x[i] {
			t.Fatalf("element %d came back as %v, want %v", i, y.Float[i], x[i])
		}
	}
}

func TestScaledWeight(t *testing.T) {
	w := vec(1, -3).Scaled(0.5)
	got := make([]float32, 2)
	if err := w.Float32(got, 0); err != nil {
		t.Fatal(err)
	}
	near(t, got, []float64{0.5, -1.5}, 0)
}

func TestIndexType(t *testing.T) {
	for rows, want := range map[int]mil.DType{512: mil.Int16, 32768: mil.Int16, 32769: mil.UInt16, 65536: mil.UInt16, 65537: mil.Int32} {
		b := mil.NewBuilder("main", mil.CoreML8)
		ids := b.Input("ids", mil.TensorOf(mil.Int32, 1))
		if got := Index(b, ids, rows).Type.DType; got != want {
			t.Errorf("indices into %d rows are %v, want %v", rows, got, want)
		}
	}
}
