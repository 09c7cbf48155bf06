package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"anemone/coreml"
	"anemone/internal/float16"
	"anemone/internal/runner"
	"anemone/internal/testutil"
	"anemone/mil"
)

// opCase is a case of testdata/ops.json.gz, which make_ops.py writes.
type opCase struct {
	Op, Note string
	Tol      float64
	Args     map[string]opArg
	Out      []opTensor
}

type opTensor struct {
	DType string
	Shape []int
	Data  []any
}

type opArg struct {
	opTensor
	Const bool
	List  []opArg
}

func (a *opTensor) dtype(t testing.TB) mil.DType {
	d, ok := mil.ParseDType(a.DType)
	if !ok {
		t.Fatalf("no type %q", a.DType)
	}
	return d
}

func number64(t testing.TB, x any) float64 {
	switch v := x.(type) {
	case float64:
		return v
	case bool:
		if v {
			return 1
		}
		return 0
	case string:
		switch v {
		case "nan":
			return math.NaN()
		case "inf":
			return math.Inf(1)
		case "-inf":
			return math.Inf(-1)
		}
	}
	t.Fatalf("no number: %v", x)
	return 0
}

func (a *opTensor) literal(t testing.TB) *mil.Literal {
	d := a.dtype(t)
	l := &mil.Literal{Type: mil.TensorOf(d, a.Shape...)}
	for _, x := range a.Data {
		switch {
		case d == mil.String:
			l.Strings = append(l.Strings, x.(string))
		case d == mil.Bool:
			l.Bools = append(l.Bools, x.(bool))
		case d.IsFloat():
			l.Floats = append(l.Floats, float64(float32(number64(t, x))))
		default:
			l.Ints = append(l.Ints, int64(number64(t, x)))
		}
	}
	return l
}

func (a *opTensor) tensor(t testing.TB) *runner.Tensor {
	r := &runner.Tensor{DType: a.dtype(t), Shape: a.Shape}
	for _, x := range a.Data {
		if r.DType.IsFloat() {
			r.Float = append(r.Float, float32(number64(t, x)))
		} else {
			r.Int = append(r.Int, int32(number64(t, x)))
		}
	}
	return r
}

// transposed returns the tensor with its axes reversed.
func transposed(t *runner.Tensor) *runner.Tensor {
	r := &runner.Tensor{DType: t.DType, Shape: slices.Clone(t.Shape), Float: slices.Clone(t.Float), Int: slices.Clone(t.Int)}
	slices.Reverse(r.Shape)
	n := len(t.Shape)
	for i := range t.Len() {
		rest, at := i, make([]int, n)
		for k := n - 1; k >= 0; k-- {
			at[k] = rest % t.Shape[k]
			rest /= t.Shape[k]
		}
		j := 0
		for k := n - 1; k >= 0; k-- {
			j = j*t.Shape[k] + at[k]
		}
		if t.DType.IsFloat() {
			r.Float[j] = t.Float[i]
		} else {
			r.Int[j] = t.Int[i]
		}
	}
	return r
}

func allOps(t testing.TB) []opCase {
	t.Helper()
	b, err := os.ReadFile(testutil.Unpacked(t, filepath.Join("testdata", "ops.json")))
	if err != nil {
		t.Fatal(err)
	}
	var cases []opCase
	if err := json.Unmarshal(b, &cases); err != nil {
		t.Fatal(err)
	}
	return cases
}

// modelOf wraps a function.
func modelOf(t testing.TB, f *mil.Function, o Options) *Model {
	t.Helper()
	m, err := New(&coreml.Model{Program: &mil.Program{Functions: []*mil.Function{f}}}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// how the inputs of a case reach the operation
const (
	asInputs     = iota
	asConstants  // so that everything is folded
	asTransposed // through a view that is not dense
	asTiled      // through a view with repetitions that is cut to size
)

// build makes a function of the one operation. ok is false if the case
// cannot be given its operands in that way.
func (c *opCase) build(t testing.TB, how int) (f *mil.Function, in runner.Values, ok bool) {
	b := mil.NewBuilder("main", mil.CoreML8)
	in = runner.Values{}
	changed := false
	one := func(name string, a *opArg) *mil.Value {
		if a.Const || how == asConstants {
			return b.Const(a.literal(t))
		}
		x := a.tensor(t)
		switch {
		case how == asTransposed && len(x.Shape) > 1:
			changed = true
			x = transposed(x)
			in[name] = x
			perm := make([]int, len(x.Shape))
			for i := range perm {
				perm[i] = len(perm) - 1 - i
			}
			v := b.Input(name, mil.TensorOf(x.DType, x.Shape...))
			return b.Op("transpose", mil.A("x", v), mil.A("perm", b.Const(mil.Ints(perm...))))
		case how == asTiled && len(x.Shape) > 0:
			changed = true
			in[name] = x
			v := b.Input(name, mil.TensorOf(x.DType, x.Shape...))
			reps := slices.Repeat([]int{2}, len(x.Shape))
			v = b.Op("tile", mil.A("x", v), mil.A("reps", b.Const(mil.Ints(reps...))))
			zero := make([]int, len(x.Shape))
			return b.Op("slice_by_size", mil.A("x", v), mil.A("begin", b.Const(mil.Ints(x.Shape...))), mil.A("size", b.Const(mil.Ints(sizes(x.Shape, zero)...))))
		}
		in[name] = x
		return b.Input(name, mil.TensorOf(x.DType, x.Shape...))
	}
	var args []mil.Arg
	names := []string{}
	for name := range c.Args {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		a := c.Args[name]
		if a.List != nil {
			var vs []*mil.Value
			for i := range a.List {
				vs = append(vs, one(fmt.Sprintf("%s_%d", name, i), &a.List[i]))
			}
			args = append(args, mil.A(name, vs...))
			continue
		}
		args = append(args, mil.A(name, one(name, &a)))
	}
	if (how == asTransposed || how == asTiled) && !changed {
		return nil, nil, false
	}
	rs := b.OpAll(c.Op, args...)
	for i, r := range rs {
		// Bounds that are inputs leave the shape to the declaration.
		if r.Type.Kind == mil.TensorKind && !r.Type.Static() && i < len(c.Out) {
			r.Type.Shape = c.Out[i].Shape
		}
		b.Output(fmt.Sprintf("out%d", i), r)
	}
	f, err := b.Build()
	if err != nil {
		t.Fatalf("%s %s: %v", c.Op, c.Note, err)
	}
	return f, in, true
}

func sizes(end, begin []int) []int {
	out := make([]int, len(end))
	for i := range out {
		out[i] = end[i] - begin[i]
	}
	return out
}

// agree compares numbers as the judge does: relative to the size of the
// value, or of 1 where it is smaller.
func agree(got, want, tol float64) bool {
	if math.IsNaN(want) {
		return math.IsNaN(got)
	}
	if got == want {
		return true
	}
	return math.Abs(got-want) <= tol*max(1, math.Abs(want))
}

func checkTensor(t *testing.T, what string, got *runner.Tensor, want *opTensor, tol float64) {
	t.Helper()
	if got == nil {
		t.Errorf("%s: no result", what)
		return
	}
	w := want.tensor(t)
	if got.DType != w.DType || !slices.Equal(got.Shape, w.Shape) || got.Len() != w.Len() {
		t.Errorf("%s: result is %v %v, want %v %v", what, got.DType, got.Shape, w.DType, w.Shape)
		return
	}
	for i := range w.Float {
		if g, x := float64(got.Float[i]), float64(w.Float[i]); !agree(g, x, tol) {
			t.Errorf("%s: element %d is %v, want %v", what, i, g, x)
			return
		}
	}
	for i := range w.Int {
		if got.Int[i] != w.Int[i] {
			t.Errorf("%s: element %d is %d, want %d", what, i, got.Int[i], w.Int[i])
			return
		}
	}
}

// TestOps holds every operation to numpy, with operands that come as inputs,
// as constants, and through views.
func TestOps(t *testing.T) {
	seen := map[string]bool{}
	for i, c := range allOps(t) {
		seen[c.Op] = true
		for how, name := range []string{"inputs", "constants", "transposed", "tiled"} {
			f, in, ok := c.build(t, how)
			if !ok {
				continue
			}
			what := fmt.Sprintf("case %d: %s %s (%s)", i, c.Op, c.Note, name)
			m, err := New(&coreml.Model{Program: &mil.Program{Functions: []*mil.Function{f}}}, Options{Workers: 1 + i%3})
			if err != nil {
				t.Errorf("%s: %v", what, err)
				continue
			}
			out := runner.Values{}
			err = m.Predict(context.Background(), "main", in, out, nil)
			m.Close()
			if err != nil {
				t.Errorf("%s: %v", what, err)
				continue
			}
			for k := range c.Out {
				checkTensor(t, what, out[fmt.Sprintf("out%d", k)], &c.Out[k], c.Tol)
			}
		}
	}
	for _, op := range []string{"asinh", "acosh"} { // those that no program has, see TestPrograms
		if !seen[op] {
			t.Errorf("no case for operation %q", op)
		}
	}
}

// TestOpsFloat16 holds the rounding mode to its definition: a result of
// arithmetic is the float32 result rounded to fp16.
func TestOpsFloat16(t *testing.T) {
	for i, c := range allOps(t) {
		f, in, _ := c.build(t, asInputs)
		run := func(o Options) runner.Values {
			m := modelOf(t, f, o)
			return predict(t, m, "main", in, nil)
		}
		exact, half := run(Options{Workers: 1}), run(Options{Workers: 1, Numerics: Float16})
		for k := range c.Out {
			name := fmt.Sprintf("out%d", k)
			moved := slices.Contains([]string{"identity", "reshape", "transpose", "expand_dims", "squeeze", "concat", "stack", "split", "tile", "reverse",
				"pad", "fill", "fill_like", "slice_by_index", "slice_by_size", "slice_update", "gather", "gather_along_axis", "gather_nd", "band_part"}, c.Op)
			for j, x := range exact[name].Float {
				want := float16.Round(x)
				tol := 0.0
				if moved {
					want = x
				}
				if c.Op == "scaled_dot_product_attention" {
					tol = 4e-3 // its parts are rounded too
				}
				if !agree(float64(half[name].Float[j]), float64(want), tol) {
					t.Errorf("case %d: %s: element %d is %v, want %v", i, c.Op, j, half[name].Float[j], want)
					break
				}
			}
			if !slices.Equal(exact[name].Int, half[name].Int) {
				t.Errorf("case %d: %s: integers differ", i, c.Op)
			}
		}
	}
}
