// Package runnertest is the compliance suite of [runner.Model]: everything
// that a session relies on, held to values computed by hand. Every runner
// passes it.
//
// The values are such that fp16 holds them exactly, so runners that compute
// in fp16 pass too.
package runnertest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"anemone/coreml"
	"anemone/internal/runner"
	"anemone/mil"
)

// Open prepares a model for running. It fails the test if it cannot, and
// closes the model when the test ends.
type Open func(t testing.TB, m *coreml.Model) runner.Model

// Run holds the runner that open makes to the suite.
func Run(t *testing.T, open Open) {
	for _, c := range []struct {
		name string
		run  func(t *testing.T, open Open)
	}{
		{"Signature", testSignature},
		{"Predict", testPredict},
		{"OutputsAreReused", testOutputs},
		{"InputsAreKept", testInputsKept},
		{"State", testState},
		{"StatesAreSeparate", testStatesSeparate},
		{"StateReadWrite", testStateReadWrite},
		{"StateAcrossModels", testStateAcrossModels},
		{"Shapes", testShapes},
		{"Integers", testIntegers},
		{"Errors", testErrors},
		{"Cancel", testCancel},
		{"Concurrent", testConcurrent},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, open) })
	}
}

const (
	rows = 4
	cols = 32
)

// model wraps functions that were built by hand.
func model(t testing.TB, def string, bs ...*mil.Builder) *coreml.Model {
	t.Helper()
	m := &coreml.Model{SpecVersion: 9, DefaultFunction: def, Program: &mil.Program{}}
	for _, b := range bs {
		f, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		m.Program.Functions = append(m.Program.Functions, f)
		m.Functions = append(m.Functions, coreml.Describe(f))
	}
	return m
}

// cacheModel has a state of rows, which "put" writes one of and sums up, and
// "total" only reads. "put" is the default, though it comes second.
//
//	put:   cache[at] = x; y = sum over rows of cache
//	total: y = scale * sum over rows of cache
func cacheModel(t testing.TB) *coreml.Model {
	t.Helper()
	half := func(s ...int) mil.Type { return mil.TensorOf(mil.Float16, s...) }
	start := func(name string) (*mil.Builder, *mil.Value) {
		b := mil.NewBuilder(name, mil.CoreML8)
		return b, b.Input("cache", mil.StateOf(mil.Float16, rows, cols))
	}
	sum := func(b *mil.Builder, v *mil.Value) *mil.Value {
		return b.Op("reduce_sum", mil.A("x", v), mil.A("axes", b.Const(mil.Ints(0))), mil.A("keep_dims", b.Const(mil.Flag(true))))
	}
	total, st := start("total")
	scale := total.Input("scale", half(1, 1))
	total.Output("y", total.Op("mul", mil.A("x", sum(total, total.Op("read_state", mil.A("input", st)))), mil.A("y", scale)))

	put, st := start("put")
	x := put.Input("x", half(1, cols))
	at := put.Input("at", mil.TensorOf(mil.Int32, 1))
	join := func(v ...*mil.Value) *mil.Value {
		return put.Op("concat", mil.A("values", v...), mil.A("axis", put.Const(mil.Int(0))), mil.A("interleave", put.Const(mil.Flag(false))))
	}
	end := put.Op("add", mil.A("x", at), mil.A("y", put.Const(mil.Int(1))))
	u := put.Op("slice_update", mil.A("x", put.Op("read_state", mil.A("input", st))), mil.A("update", x),
		mil.A("begin", join(at, put.Const(mil.Ints(0)))), mil.A("end", join(end, put.Const(mil.Ints(cols)))))
	put.OpAll("write_state", mil.A("input", st), mil.A("data", u))
	put.Output("y", sum(put, put.Op("read_state", mil.A("input", st))))
	return model(t, "put", total, put)
}

func fill(v float32, n int) []float32 { return slices.Repeat([]float32{v}, n) }

func putIn(v float32, at int32) runner.Values {
	return runner.Values{"x": runner.Floats(mil.Float16, fill(v, cols), 1, cols), "at": runner.Ints([]int32{at}, 1)}
}

func predict(t testing.TB, m runner.Model, fn string, in runner.Values, st runner.State) runner.Values {
	t.Helper()
	out := runner.Values{}
	if err := m.Predict(context.Background(), fn, in, out, st); err != nil {
		t.Fatal(err)
	}
	return out
}

func newState(t testing.TB, m runner.Model) runner.State {
	t.Helper()
	st, err := m.NewState()
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func want(t testing.TB, what string, got *runner.Tensor, v float32) {
	t.Helper()
	if got == nil || got.Check() != nil || !slices.Equal(got.Shape, []int{1, cols}) || !got.DType.IsFloat() || !slices.Equal(got.Float, fill(v, cols)) {
		t.Errorf("%s: got %+v, want %d times %v", what, got, cols, v)
	}
}

func testSignature(t *testing.T, open Open) {
	m := open(t, cacheModel(t))
	fs := m.Functions()
	if len(fs) != 2 || fs[0].Name != "put" || fs[1].Name != "total" {
		t.Fatalf("functions %+v, want put (the default) and total", fs)
	}
	f := m.Function("put")
	if f == nil || f.Name != "put" {
		t.Fatalf("function put is %+v", f)
	}
	if m.Function("nope") != nil {
		t.Error("a function that is not there is described")
	}
	feature := func(fs []runner.Feature, name string, d mil.DType, shape ...int) {
		t.Helper()
		for _, x := range fs {
			if x.Name == name {
				if x.DType != d || !slices.Equal(x.Shape, shape) {
					t.Errorf("%s is %v %v, want %v %v", name, x.DType, x.Shape, d, shape)
				}
				return
			}
		}
		t.Errorf("%s is not described", name)
	}
	if len(f.Inputs) != 2 || len(f.Outputs) != 1 || len(f.States) != 1 {
		t.Errorf("put has %d inputs, %d outputs, %d states, want 2, 1, 1", len(f.Inputs), len(f.Outputs), len(f.States))
	}
	feature(f.Inputs, "x", mil.Float16, 1, cols)
	feature(f.Inputs, "at", mil.Int32, 1)
	feature(f.Outputs, "y", mil.Float16, 1, cols)
	feature(f.States, "cache", mil.Float16, rows, cols)
}

// plainModel computes y = 2x + 1, without states.
func plainModel(t testing.TB) *coreml.Model {
	t.Helper()
	b := mil.NewBuilder("main", mil.CoreML8)
	x := b.Input("x", mil.TensorOf(mil.Float16, 1, cols))
	b.Output("y", b.Op("add", mil.A("x", b.Op("mul", mil.A("x", x), mil.A("y", b.Const(mil.Half(2))))), mil.A("y", b.Const(mil.Half(1)))))
	return model(t, "main", b)
}

func testPredict(t *testing.T, open Open) {
	m := open(t, plainModel(t))
	in := runner.Values{"x": runner.Floats(mil.Float16, fill(3, cols), 1, cols)}
	want(t, "y", predict(t, m, "main", in, nil)["y"], 7)
	// A float32 tensor for an fp16 feature is rounded or taken as it is.
	in["x"].DType = mil.Float32
	want(t, "y from float32", predict(t, m, "main", in, nil)["y"], 7)
}

func testOutputs(t *testing.T, open Open) {
	m := open(t, plainModel(t))
	y := runner.Floats(mil.Float16, make([]float32, cols), 1, cols)
	out := runner.Values{"y": y, "other": runner.Ints([]int32{5}, 1)}
	for _, v := range []float32{1, 2} {
		in := runner.Values{"x": runner.Floats(mil.Float16, fill(v, cols), 1, cols)}
		if err := m.Predict(context.Background(), "main", in, out, nil); err != nil {
			t.Fatal(err)
		}
		want(t, "y", out["y"], 2*v+1)
		if out["y"] != y {
			t.Error("the tensor of the right size was not used")
		}
	}
	if o := out["other"]; o == nil || o.Int[0] != 5 {
		t.Error("a tensor that is no output was touched")
	}
	out = runner.Values{"y": runner.Floats(mil.Float16, make([]float32, 3), 3)}
	if err := m.Predict(context.Background(), "main", runner.Values{"x": runner.Floats(mil.Float16, fill(1, cols), 1, cols)}, out, nil); err != nil {
		t.Fatal(err)
	}
	want(t, "y in place of a tensor of another size", out["y"], 3)
	// Results of different calls do not share memory.
	a := predict(t, m, "main", runner.Values{"x": runner.Floats(mil.Float16, fill(1, cols), 1, cols)}, nil)
	predict(t, m, "main", runner.Values{"x": runner.Floats(mil.Float16, fill(2, cols), 1, cols)}, nil)
	want(t, "y after another call", a["y"], 3)
}

func testInputsKept(t *testing.T, open Open) {
	m := open(t, plainModel(t))
	x := runner.Floats(mil.Float16, fill(3, cols), 1, cols)
	predict(t, m, "main", runner.Values{"x": x, "unknown": x}, nil)
	if !slices.Equal(x.Float, fill(3, cols)) {
		t.Error("an input was changed")
	}
}

func testState(t *testing.T, open Open) {
	m := open(t, cacheModel(t))
	st := newState(t, m)
	want(t, "first", predict(t, m, "put", putIn(1, 0), st)["y"], 1)
	want(t, "second", predict(t, m, "put", putIn(2, 1), st)["y"], 3)
	want(t, "overwritten", predict(t, m, "put", putIn(8, 0), st)["y"], 10)
	// Another function sees the same state.
	scale := runner.Values{"scale": runner.Floats(mil.Float16, []float32{0.5}, 1, 1)}
	want(t, "total", predict(t, m, "total", scale, st)["y"], 5)
	st.Reset()
	want(t, "after reset", predict(t, m, "total", scale, st)["y"], 0)
}

func testStatesSeparate(t *testing.T, open Open) {
	m := open(t, cacheModel(t))
	a, b := newState(t, m), newState(t, m)
	predict(t, m, "put", putIn(1, 0), a)
	predict(t, m, "put", putIn(2, 0), b)
	want(t, "a", predict(t, m, "put", putIn(4, 1), a)["y"], 5)
	want(t, "b", predict(t, m, "put", putIn(4, 1), b)["y"], 6)
}

func testStateReadWrite(t *testing.T, open Open) {
	m := open(t, cacheModel(t))
	st := newState(t, m)
	if n := st.Names(); !slices.Equal(n, []string{"cache"}) {
		t.Errorf("names are %q", n)
	}
	predict(t, m, "put", putIn(3, 2), st)
	c, err := st.Read("cache")
	if err != nil {
		t.Fatal(err)
	}
	x := slices.Concat(fill(0, 2*cols), fill(3, cols), fill(0, cols))
	if !slices.Equal(c.Shape, []int{rows, cols}) || !slices.Equal(c.Float, x) {
		t.Errorf("state is %+v", c)
	}
	// What was read is a copy, both ways.
	c.Float[0] = 100
	want(t, "after a change of the copy", predict(t, m, "put", putIn(1, 3), st)["y"], 4)
	for i := range x {
		x[i] = float32(i / cols)
	}
	in := runner.Floats(mil.Float16, slices.Clone(x), rows, cols)
	if err := st.Write("cache", in); err != nil {
		t.Fatal(err)
	}
	clear(in.Float)
	want(t, "after a write", predict(t, m, "put", putIn(1, 0), st)["y"], 7)
	if _, err := st.Read("nope"); err == nil {
		t.Error("reading a state that is not there: no error")
	}
	for name, bad := range map[string]*runner.Tensor{
		"shape": runner.Floats(mil.Float16, make([]float32, rows*cols), cols, rows), "type": runner.Ints(make([]int32, rows*cols), rows, cols),
		"size": runner.Floats(mil.Float16, make([]float32, 3), rows, cols), "nil": nil,
	} {
		if err := st.Write("cache", bad); err == nil {
			t.Errorf("writing a state of the wrong %s: no error", name)
		}
	}
}

func testStateAcrossModels(t *testing.T, open Open) {
	a, b := open(t, cacheModel(t)), open(t, cacheModel(t))
	st := newState(t, a)
	predict(t, a, "put", putIn(1, 0), st)
	want(t, "second model", predict(t, b, "put", putIn(2, 1), st)["y"], 3)
	want(t, "first model again", predict(t, a, "put", putIn(4, 2), st)["y"], 7)
}

// shapesModel looks up rows of a table, one or three at a time.
func shapesModel(t testing.TB) *coreml.Model {
	t.Helper()
	b := mil.NewBuilder("main", mil.CoreML8)
	ids := b.Input("ids", mil.TensorOf(mil.Int32, 1, mil.Dynamic))
	table := &mil.Literal{Type: mil.TensorOf(mil.Float16, 5, cols)}
	for i := range 5 * cols {
		table.Floats = append(table.Floats, float64(i/cols))
	}
	b.Output("rows", b.Op("gather", mil.A("x", b.Const(table)), mil.A("indices", ids), mil.A("axis", b.Const(mil.Int(0))),
		mil.A("batch_dims", b.Const(mil.Int(0))), mil.A("validate_indices", b.Const(mil.Flag(false)))))
	m := model(t, "main", b)
	in := m.Functions[0].Input("ids")
	in.Shape, in.Shapes = []int{1, 1}, [][]int{{1, 1}, {1, 3}}
	return m
}

func testShapes(t *testing.T, open Open) {
	m := open(t, shapesModel(t))
	f := m.Function("main")
	if x := f.Inputs[0]; !slices.Equal(x.Shape, []int{1, 1}) || len(x.Shapes) != 2 {
		t.Errorf("input is %+v, want the shapes [1 1] and [1 3]", x)
	}
	for _, ids := range [][]int32{{4}, {0, 2, 1}, {3}, {4, 4, 0}} {
		got := predict(t, m, "main", runner.Values{"ids": runner.Ints(ids, 1, len(ids))}, nil)["rows"]
		var x []float32
		for _, i := range ids {
			x = append(x, fill(float32(i), cols)...)
		}
		if !slices.Equal(got.Shape, []int{1, len(ids), cols}) || !slices.Equal(got.Float, x) {
			t.Errorf("rows %v are %+v", ids, got)
		}
	}
	if err := m.Predict(context.Background(), "main", runner.Values{"ids": runner.Ints([]int32{0, 1}, 1, 2)}, runner.Values{}, nil); err == nil {
		t.Error("a shape that is not listed: no error")
	}
}

func testIntegers(t *testing.T, open Open) {
	b := mil.NewBuilder("main", mil.CoreML8)
	x := b.Input("x", mil.TensorOf(mil.Int32, cols))
	b.Output("y", b.Op("add", mil.A("x", x), mil.A("y", b.Const(mil.Int(1000000)))))
	m := open(t, model(t, "main", b))
	in := make([]int32, cols)
	for i := range in {
		in[i] = int32(i) - 7
	}
	got := predict(t, m, "main", runner.Values{"x": runner.Ints(in, cols)}, nil)["y"]
	if got.DType != mil.Int32 || len(got.Int) != cols || got.Int[0] != 999993 || got.Int[cols-1] != 1000000+cols-8 {
		t.Errorf("y is %+v", got)
	}
}

func testErrors(t *testing.T, open Open) {
	m := open(t, cacheModel(t))
	st := newState(t, m)
	with := func(name string, x *runner.Tensor) runner.Values {
		in := putIn(1, 0)
		in[name] = x
		return in
	}
	missing := putIn(1, 0)
	delete(missing, "at")
	for _, c := range []struct {
		name, fn, says string
		in             runner.Values
		st             runner.State
	}{
		{"unknown function", "nope", "nope", putIn(1, 0), st},
		{"missing input", "put", "at", missing, st},
		{"wrong shape", "put", "x", with("x", runner.Floats(mil.Float16, fill(1, 2*cols), 2, cols)), st},
		{"wrong type", "put", "at", with("at", runner.Floats(mil.Float32, []float32{0}, 1)), st},
		{"short data", "put", "x", with("x", runner.Floats(mil.Float16, fill(1, cols-1), 1, cols)), st},
		{"no state", "put", "state", putIn(1, 0), nil},
	} {
		err := m.Predict(context.Background(), c.fn, c.in, runner.Values{}, c.st)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: error %v, want one that names %q", c.name, err, c.says)
		}
	}
	want(t, "after errors", predict(t, m, "put", putIn(1, 0), st)["y"], 1)
}

func testCancel(t *testing.T, open Open) {
	m := open(t, cacheModel(t))
	st := newState(t, m)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := m.Predict(ctx, "put", putIn(1, 0), runner.Values{}, st); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
	st.Reset()
	want(t, "after a canceled call", predict(t, m, "put", putIn(1, 0), st)["y"], 1)
}

func testConcurrent(t *testing.T, open Open) {
	m := open(t, cacheModel(t))
	errs := make(chan error, 4)
	for g := range 4 {
		st := newState(t, m)
		go func() {
			errs <- func() error {
				for i := range int32(20) {
					out := runner.Values{}
					if err := m.Predict(context.Background(), "put", putIn(float32(g+1), i%rows), out, st); err != nil {
						return err
					}
					if n := float32(min(i+1, rows)) * float32(g+1); !slices.Equal(out["y"].Float, fill(n, cols)) {
						return errors.New("a call sees another's state or values")
					}
				}
				return nil
			}()
		}()
	}
	for range 4 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}
