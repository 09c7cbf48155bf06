package predict

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"anemone/coreml"
	"anemone/coreml/mlmodelc"
	"anemone/coreml/mlpackage"
	"anemone/internal/engine"
	"anemone/internal/runner"
	"anemone/mil"
)

// write stores a model as a package in a folder of its own.
func write(t testing.TB, m *coreml.Model) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.mlpackage")
	if err := mlpackage.Write(context.Background(), path, m, mlpackage.Options{}); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t testing.TB, path string, o Options) *Model {
	t.Helper()
	m, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// build makes a model of functions; the first is the default.
func build(t testing.TB, bs ...*mil.Builder) *coreml.Model {
	t.Helper()
	m := &coreml.Model{SpecVersion: 9, Program: &mil.Program{}}
	for _, b := range bs {
		f, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		m.Program.Functions = append(m.Program.Functions, f)
		m.Functions = append(m.Functions, coreml.Describe(f))
	}
	if len(bs) > 1 {
		m.DefaultFunction = m.Functions[0].Name
	}
	return m
}

// mixed has inputs of several types and no states:
//
//	sum = x + cast(k); next = k + 1
func mixed(t testing.TB) *coreml.Model {
	b := mil.NewBuilder("main", mil.CoreML8)
	x := b.Input("x", mil.TensorOf(mil.Float16, 2, 3))
	k := b.Input("k", mil.TensorOf(mil.Int32, 1))
	b.Output("sum", b.Op("add", mil.A("x", x), mil.A("y", b.Op("cast", mil.A("x", k), mil.A("dtype", b.Const(mil.Str("fp16")))))))
	b.Output("next", b.Op("add", mil.A("x", k), mil.A("y", b.Const(mil.Int(1)))))
	return build(t, b)
}

// counter has a state that "add" adds to and "get" reads:
//
//	add: acc = acc + x; y = acc
//	get: y = acc * x
func counter(t testing.TB) *coreml.Model {
	half := mil.TensorOf(mil.Float16, 1, 32)
	add := mil.NewBuilder("add", mil.CoreML8)
	st := add.Input("acc", mil.StateOf(mil.Float16, 1, 32))
	x := add.Input("x", half)
	add.OpAll("write_state", mil.A("input", st), mil.A("data", add.Op("add", mil.A("x", add.Op("read_state", mil.A("input", st))), mil.A("y", x))))
	add.Output("y", add.Op("read_state", mil.A("input", st)))
	get := mil.NewBuilder("get", mil.CoreML8)
	st = get.Input("acc", mil.StateOf(mil.Float16, 1, 32))
	get.Output("y", get.Op("mul", mil.A("x", get.Op("read_state", mil.A("input", st))), mil.A("y", get.Input("x", half))))
	return build(t, add, get)
}

// flexible has an input of enumerated shapes, one of ranges, and an optional
// one: y = a * 2, z = b * 2 + c.
func flexible(t testing.TB) *coreml.Model {
	b := mil.NewBuilder("main", mil.CoreML8)
	a := b.Input("a", mil.TensorOf(mil.Float32, 1, mil.Dynamic))
	r := b.Input("b", mil.TensorOf(mil.Float32, mil.Dynamic, 2))
	c := b.Input("c", mil.TensorOf(mil.Float32, 2))
	two := b.Const(mil.Float(2))
	b.Output("y", b.Op("mul", mil.A("x", a), mil.A("y", two)))
	b.Output("z", b.Op("add", mil.A("x", b.Op("mul", mil.A("x", r), mil.A("y", two))), mil.A("y", c)))
	m := build(t, b)
	f := &m.Functions[0]
	f.Inputs[0].Shape, f.Inputs[0].Shapes = []int{1, 1}, [][]int{{1, 1}, {1, 4}}
	f.Inputs[1].Shape, f.Inputs[1].Ranges = []int{2, 2}, []coreml.Range{{Min: 2, Max: 5}, {Min: 2, Max: 2}}
	f.Inputs[2].Optional = true
	return m
}

func set(t testing.TB, sources ...string) map[string]*Array {
	t.Helper()
	var s Set
	t.Cleanup(func() { s.Close() })
	for _, x := range sources {
		if err := s.Add(x, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	return s.Arrays
}

// floats returns the elements of an output.
func floats(t testing.TB, r *Result, name string) []float32 {
	t.Helper()
	for _, o := range slices.Concat(r.Outputs, r.States) {
		if o.Name == name {
			if o.All != nil {
				return o.All.Float
			}
			return o.Tensor.Float
		}
	}
	t.Fatalf("no output %q", name)
	return nil
}

func TestRun(t *testing.T) {
	m := open(t, write(t, mixed(t)), Options{})
	res, err := m.Run(t.Context(), Request{Inputs: set(t, `{"x": [[1, 2, 3], [4, 5, 0.1]], "k": 7, "other": [1]}`)})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := floats(t, res, "sum"), []float32{8, 9, 10, 11, 12, 7.1}; !slices.Equal(got, want) {
		t.Errorf("sum %v, want %v", got, want)
	}
	if o := res.Outputs[1]; o.Name != "next" || !slices.Equal(o.Tensor.Int, []int32{8}) {
		t.Errorf("next: %+v", o.Tensor)
	}
	if !slices.Equal(res.Unused, []string{"other"}) || res.Calls != 1 || res.Function != "main" || res.First <= 0 {
		t.Errorf("%+v", res)
	}
	rep := m.Report(res)
	x := rep.Outputs[0]
	if x.Min != Number(float32(7.1)) || math.Abs(float64(x.Max)-12) > 0 || math.Abs(float64(x.Mean)-9.516667) > 1e-6 || x.NaN+x.Inf != 0 || len(x.First) != 6 {
		t.Errorf("%+v", x)
	}
	if rep.Inputs[1].Source != "the command line" || !slices.Equal(rep.Inputs[1].Shape, []int{1}) {
		t.Errorf("%+v", rep.Inputs[1])
	}
	if len(rep.Notes) != 1 || !strings.Contains(rep.Notes[0], `"other" is no input of function "main"`) {
		t.Errorf("notes %q", rep.Notes)
	}

	// fp16 arithmetic rounds inputs to the declared type, and stores it.
	half := open(t, m.Path, Options{Numerics: engine.Float16})
	if res, err = half.Run(t.Context(), Request{Inputs: set(t, `{"x": {"dtype": "fp32", "shape": [2, 3], "data": [0.1, 1e5, 1, 1, 1, 1]}, "k": [0]}`)}); err != nil {
		t.Fatal(err)
	}
	if got, want := floats(t, res, "sum"), []float32{0x1.998p-4, inf, 1, 1, 1, 1}; !slices.Equal(got, want) {
		t.Errorf("sum %v, want %v", got, want)
	}
	if vs := res.OutputValues(); vs[0].DType != mil.Float16 || len(vs[0].Data) != 12 || vs[1].DType != mil.Int32 {
		t.Errorf("%+v", vs)
	}
	notes := fmt.Sprint(half.Report(res).Notes)
	for _, w := range []string{`input "x": of 6 values of type fp32, as fp16 1 became infinite`, `output "sum": 1 infinite of 6 values`} {
		if !strings.Contains(notes, w) {
			t.Errorf("no %q in %s", w, notes)
		}
	}
}

func TestRunErrors(t *testing.T) {
	m := open(t, write(t, mixed(t)), Options{})
	flex := open(t, write(t, flexible(t)), Options{})
	st := open(t, write(t, counter(t)), Options{})
	ones := `{"x": {"shape": [1, 32], "data": [` + strings.Repeat("1,", 31) + `1]}}`
	for _, c := range []struct {
		m   *Model
		r   Request
		err string
	}{
		{m, Request{Function: "none"}, `has no function "none", it has main`},
		{m, Request{}, "2 inputs are missing:\n  x fp16 [2 3]\n  k int32 [1]"},
		{m, Request{Inputs: set(t, `{"X": 1, "k": 1}`)}, "input x fp16 [2 3] is missing\ngiven: X, k"},
		{m, Request{Inputs: set(t, `{"x": [1, 2, 3], "k": 1}`)}, `input "x": array "x" of the command line has the shape [3], want [2 3]`},
		{m, Request{Inputs: set(t, `{"x": [[1, 2], [3, 4], [5, 6]], "k": 1}`)}, "has the shape [3 2], want [2 3]"},
		{m, Request{Inputs: set(t, `{"x": [[1, 2], [3, 4], [5, 6]], "k": 1}`), Repeat: 3}, "has the shape [3 2], want [2 3], or 3 times that for as many calls"},
		{m, Request{Inputs: set(t, `{"x": [[1, 2, 3], [4, 5, 6]], "k": 1.5}`)}, `input "k": array "k" of the command line: 1.5 is not an integer`},
		{m, Request{Inputs: set(t, `{"k": 1}`), Random: &Random{Shapes: map[string][]int{"x": {1, 1}}}}, `input "x" cannot have the shape [1 1], want [2 3]`},
		{m, Request{Inputs: set(t, `{"x": [[1, 2, 3], [4, 5, 6]], "k": 1}`), States: set(t, `{}`)}, "states are given, but the model has none"},
		{flex, Request{}, "2 inputs are missing:\n  a fp32 [1 1] or [1 4]\n  b fp32 [2..5 2]"},
		{flex, Request{Inputs: set(t, `{"a": [[1, 2]], "b": [[1, 2], [3, 4]]}`)}, "shape [1 2], want [1 1] or [1 4]"},
		{flex, Request{Inputs: set(t, `{"a": 1, "b": [[1, 2]]}`)}, "shape [1 2], want [2..5 2]"},
		{flex, Request{Inputs: set(t, `{"a": 1, "b": [[1, 2], [1, 2], [1, 2], [1, 2], [1, 2], [1, 2]]}`)}, "shape [6 2], want [2..5 2]"},
		{flex, Request{Inputs: set(t, `{"a": 1, "b": [1, 2]}`)}, "shape [2], want [2..5 2]"},
		{st, Request{Inputs: set(t, ones), States: set(t, `{"bcc": 1}`)}, "the given states lack acc"},
		{st, Request{Inputs: set(t, ones), States: set(t, `{"acc": 1}`)}, `state "acc": array "acc" of the command line has the shape [], want [1 32]`},
	} {
		_, err := c.m.Run(t.Context(), c.r)
		if err == nil || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), c.m.Path) {
			t.Errorf("error %v does not say %q and the path", err, c.err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	_, err := st.Run(ctx, Request{Inputs: set(t, ones), Repeat: 100, Progress: func(done, total int) {
		if n++; n == 3 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) || n != 3 || !strings.Contains(err.Error(), "call 4 of 100") {
		t.Errorf("cancelled after %d calls: %v", n, err)
	}
}

func TestFlexible(t *testing.T) {
	m := open(t, write(t, flexible(t)), Options{})
	res, err := m.Run(t.Context(), Request{Inputs: set(t, `{"a": [1, 2, 3, 4], "b": [[1, 2], [3, 4], [5, 6]]}`)})
	if err != nil {
		t.Fatal(err)
	}
	if got := floats(t, res, "y"); !slices.Equal(got, []float32{2, 4, 6, 8}) || !slices.Equal(res.Outputs[0].Tensor.Shape, []int{1, 4}) {
		t.Errorf("y %v", got)
	}
	if got := floats(t, res, "z"); !slices.Equal(got, []float32{2, 4, 6, 8, 10, 12}) {
		t.Errorf("z %v", got)
	}
	notes := fmt.Sprint(m.Report(res).Notes)
	for _, w := range []string{`input "a": shape [4] was taken as [1 4]`, `input "c" was not given and is 0 everywhere`} {
		if !strings.Contains(notes, w) {
			t.Errorf("no %q in %s", w, notes)
		}
	}
	// A scalar fits but one of the alternatives.
	if res, err = m.Run(t.Context(), Request{Inputs: set(t, `{"a": 3, "b": [[1, 2], [3, 4]], "c": [10, 20]}`)}); err != nil {
		t.Fatal(err)
	}
	if y, z := floats(t, res, "y"), floats(t, res, "z"); !slices.Equal(y, []float32{6}) || !slices.Equal(z, []float32{12, 24, 16, 28}) {
		t.Errorf("y %v, z %v", y, z)
	}
	// Random inputs have the default shape or the one that is asked for.
	for _, c := range []struct {
		shapes map[string][]int
		a, b   []int
	}{
		{nil, []int{1, 1}, []int{2, 2}},
		{map[string][]int{"a": {1, 4}, "b": {5, 2}}, []int{1, 4}, []int{5, 2}},
	} {
		res, err := m.Run(t.Context(), Request{Random: &Random{Seed: 1, Shapes: c.shapes}})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(res.Inputs[0].Tensor.Shape, c.a) || !slices.Equal(res.Inputs[1].Tensor.Shape, c.b) {
			t.Errorf("shapes %v, %v", res.Inputs[0].Tensor.Shape, res.Inputs[1].Tensor.Shape)
		}
	}
}

func TestFit(t *testing.T) {
	for _, c := range []struct {
		f           Feature
		shape, want []int
	}{
		{Feature{Shape: []int{2, 3}}, []int{2, 3}, []int{2, 3}},
		{Feature{Shape: []int{1, 2, 1, 3}}, []int{2, 3, 1}, []int{1, 2, 1, 3}},
		{Feature{Shape: []int{2, 3}}, []int{3, 2}, nil},
		{Feature{Shape: []int{2, 3}}, []int{6}, nil},
		{Feature{Shape: []int{}}, []int{1}, []int{}},
		{Feature{Shape: []int{1, 0}}, []int{0}, []int{1, 0}},
		{Feature{Shape: nil}, []int{3, 1}, []int{3, 1}},
		{Feature{Shape: []int{1, 4}, Shapes: [][]int{{1, 4}, {4, 1}}}, []int{4, 1}, []int{4, 1}},
		{Feature{Shape: []int{1, 4}, Shapes: [][]int{{1, 4}, {4, 1}}}, []int{4}, nil}, // which of the two?
		{Feature{Shape: []int{1, 4}, Shapes: [][]int{{1, 4}, {8, 1}}}, []int{8}, []int{8, 1}},
		{Feature{Shape: []int{1}, Ranges: []coreml.Range{{Min: 1, Max: -1}}}, []int{1 << 40}, []int{1 << 40}},
		{Feature{Shape: []int{1}, Ranges: []coreml.Range{{Min: 1, Max: -1}}}, []int{0}, nil},
		{Feature{Shape: []int{1}, Ranges: []coreml.Range{{Min: 1, Max: -1}}}, []int{1, 1}, nil},
	} {
		got, ok := c.f.fit(c.shape)
		if !slices.Equal(got, c.want) || ok != (c.want != nil) {
			t.Errorf("%v for %v: %v %v, want %v", c.shape, c.f, got, ok, c.want)
		}
	}
	for _, c := range []struct {
		f    Feature
		want string
	}{
		{Feature{Name: "x", DType: mil.Float16, Shape: []int{1, 2}}, "x fp16 [1 2]"},
		{Feature{Name: "x", DType: mil.Int32}, "x int32 of any shape"},
		{Feature{Name: "x", DType: mil.Int32, Ranges: []coreml.Range{{Min: 1, Max: 1}, {Min: 2, Max: 7}, {Min: 3, Max: -1}}}, "x int32 [1 2..7 3..]"},
		{Feature{Name: "x", DType: mil.Float32, Shape: []int{1}, Optional: true, Default: 1.5}, "x fp32 [1] (optional, otherwise 1.5)"},
	} {
		if got := c.f.String(); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

func TestRandom(t *testing.T) {
	m := open(t, write(t, mixed(t)), Options{})
	draw := func(r Random, inputs string) ([]float32, []int32) {
		t.Helper()
		res, err := m.Run(t.Context(), Request{Inputs: set(t, inputs), Random: &r})
		if err != nil {
			t.Fatal(err)
		}
		return res.Inputs[0].Tensor.Float, res.Inputs[1].Tensor.Int
	}
	x1, k1 := draw(Random{Seed: 1}, `{}`)
	x2, _ := draw(Random{Seed: 1}, `{"k": 3}`)
	x3, _ := draw(Random{Seed: 2}, `{}`)
	if !slices.Equal(x1, x2) || slices.Equal(x1, x3) {
		t.Errorf("%v, the same seed %v, another %v", x1, x2, x3)
	}
	if slices.Contains(x1, 0) || k1[0] < 0 || k1[0] >= 8 {
		t.Errorf("%v, %v", x1, k1)
	}
	half := open(t, m.Path, Options{Numerics: engine.Float16})
	res, err := half.Run(t.Context(), Request{Random: &Random{Seed: 1}})
	if err != nil || !slices.Equal(res.Inputs[0].Tensor.Float, x1) || half.Report(res).Inputs[0].Source != "random" {
		t.Errorf("fp16 arithmetic draws other numbers: %v, %v", res.Inputs[0].Tensor.Float, err)
	}
	seen := map[int32]bool{}
	for seed := range uint64(200) {
		_, k := draw(Random{Seed: seed, Below: 3}, `{}`)
		seen[k[0]] = true
	}
	if len(seen) != 3 || !seen[0] || !seen[1] || !seen[2] {
		t.Errorf("integers below 3: %v", seen)
	}
}

// TestRepeat feeds one array per call, on one state.
func TestRepeat(t *testing.T) {
	m := open(t, write(t, counter(t)), Options{})
	row := func(v string) string { return "[" + strings.Repeat(v+",", 31) + v + "]" }
	each := set(t, `{"x": [`+row("1")+`,`+row("2")+`,`+row("0.000244140625")+`]}`)
	res, err := m.Run(t.Context(), Request{Inputs: each, Repeat: 3})
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Concat(slices.Repeat([]float32{1}, 32), slices.Repeat([]float32{3}, 32), slices.Repeat([]float32{3 + 0x1p-12}, 32))
	if got := floats(t, res, "y"); !slices.Equal(got, want) || !slices.Equal(res.Outputs[0].All.Shape, []int{3, 1, 32}) {
		t.Errorf("y %v", got)
	}
	if got := floats(t, res, "acc"); !slices.Equal(got, want[64:]) {
		t.Errorf("acc %v", got)
	}
	rep := m.Report(res)
	if rep.Calls != 3 || !slices.Equal(rep.Inputs[0].Shape, []int{1, 32}) || !slices.Equal(rep.Outputs[0].Shape, []int{1, 32}) || rep.Outputs[0].Min != Number(want[64]) || rep.MeanSeconds <= 0 {
		t.Errorf("%+v", rep)
	}
	// The last only.
	if res, err = m.Run(t.Context(), Request{Inputs: each, Repeat: 3, Last: true}); err != nil || !slices.Equal(floats(t, res, "y"), want[64:]) {
		t.Errorf("the last: %v, %v", res.Outputs, err)
	}
	// The same array for every call.
	if res, err = m.Run(t.Context(), Request{Inputs: set(t, `{"x": [`+row("2")+`]}`), Repeat: 5}); err != nil || floats(t, res, "acc")[0] != 10 {
		t.Errorf("five times 2: %v", err)
	}
	// What was not finite on the way is said.
	res, err = m.Run(t.Context(), Request{Function: "get", Inputs: set(t, `{"x": [`+row(`1`)+`,`+row(`"Infinity"`)+`,`+row(`0`)+`]}`), States: set(t, `{"acc": [`+row("1")+`]}`), Repeat: 3})
	if err != nil {
		t.Fatal(err)
	}
	if notes := fmt.Sprint(m.Report(res).Notes); !strings.Contains(notes, `output "y": not finite after 1 of 3 calls, though finite after the last`) {
		t.Errorf("notes %s", notes)
	}
	res, err = m.Run(t.Context(), Request{Function: "add", Inputs: set(t, `{"x": [`+row(`"Infinity"`)+`,`+row(`"-Infinity"`)+`]}`), Repeat: 2})
	if err != nil {
		t.Fatal(err)
	}
	notes := fmt.Sprint(m.Report(res).Notes)
	for _, w := range []string{`output "y": 32 NaN of 32 values after the last call, not finite after 2 of 2 calls`, `state "acc": 32 NaN of 32 values`} {
		if !strings.Contains(notes, w) {
			t.Errorf("no %q in %s", w, notes)
		}
	}
}

// TestStateFiles counts in one go and call by call with a file in between, in
// every format. The sums need more digits than fp16 has, so a file that lost
// some would show.
func TestStateFiles(t *testing.T) {
	path := write(t, counter(t))
	var numbers []string
	for i := range 12 * 32 {
		numbers = append(numbers, fmt.Sprint(math.Sin(float64(i))/3))
	}
	in := fmt.Sprintf(`{"x": {"shape": [12, 1, 32], "data": [%s]}}`, strings.Join(numbers, ","))
	for _, numerics := range []engine.Numerics{engine.Float32, engine.Float16} {
		m := open(t, path, Options{Numerics: numerics})
		whole, err := m.Run(t.Context(), Request{Inputs: set(t, in), Repeat: 12})
		if err != nil {
			t.Fatal(err)
		}
		want := whole.OutputValues()[0].Data
		for _, ext := range []string{".safetensors", ".npz", ".json"} {
			file := filepath.Join(t.TempDir(), "state"+ext)
			// A state of another model stays in the file.
			other := Value{Name: "other", DType: mil.Int8, Shape: []int{2}, Data: []byte{1, 255}}
			if err := WriteFile(file, []Value{other, {Name: "acc", DType: mil.Float16, Shape: []int{1, 32}, Data: make([]byte, 64)}}); err != nil {
				t.Fatal(err)
			}
			var got []byte
			for k := range 12 {
				m := open(t, path, Options{Numerics: numerics})
				step := fmt.Sprintf(`{"x": [[%s]]}`, strings.Join(numbers[32*k:32*k+32], ","))
				var st Set
				if err := st.Add(file, nil, nil); err != nil {
					t.Fatal(err)
				}
				res, err := m.Run(t.Context(), Request{Inputs: set(t, step), States: st.Arrays})
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, res.OutputValues()[0].Data...)
				kept, err := res.StateValues()
				if err != nil {
					t.Fatal(err)
				}
				if err := st.Close(); err != nil {
					t.Fatal(err)
				}
				if err := WriteFile(file, kept); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s, numerics %d: call by call differs from all at once", ext, numerics)
			}
			st := set(t, file)
			if v, err := st["other"].ints(mil.Int8); err != nil || len(st) != 2 || !slices.Equal(v, []int32{1, -1}) {
				t.Errorf("%s: %d states, other %v, %v", ext, len(st), v, err)
			}
		}
	}
}

func TestFiles(t *testing.T) {
	values := []Value{
		pack("a/b ü", &runner.Tensor{DType: mil.Float16, Shape: []int{2, 2}, Float: []float32{1, 2, -inf, 0.5}}, true),
		pack("f", &runner.Tensor{DType: mil.Float16, Shape: []int{1}, Float: []float32{0.1}}, false),
		pack("i8", &runner.Tensor{DType: mil.Int8, Shape: []int{2}, Int: []int32{-128, 127}}, false),
		pack("wide", &runner.Tensor{DType: mil.Int8, Shape: []int{1}, Int: []int32{128}}, false),
		pack("u16", &runner.Tensor{DType: mil.UInt16, Shape: []int{1}, Int: []int32{65535}}, false),
		pack("bool", &runner.Tensor{DType: mil.Bool, Shape: []int{2}, Int: []int32{0, 1}}, false),
		pack("scalar", &runner.Tensor{DType: mil.Int32, Int: []int32{-5}}, false),
		pack("empty", &runner.Tensor{DType: mil.Float32, Shape: []int{0, 3}}, false),
	}
	for i, d := range []mil.DType{mil.Float16, mil.Float32, mil.Int8, mil.Int32, mil.UInt16, mil.Bool, mil.Int32, mil.Float32} {
		if values[i].DType != d {
			t.Errorf("%s is stored as %v, want %v", values[i].Name, values[i].DType, d)
		}
	}
	dir := t.TempDir()
	for _, name := range []string{"x.safetensors", "x.npz", "x.json", "X.JSON"} {
		path := filepath.Join(dir, name)
		for range 2 { // the second time over the first
			if err := WriteFile(path, values); err != nil {
				t.Fatal(err)
			}
		}
		f, err := OpenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Arrays) != len(values) {
			t.Errorf("%s: %d arrays", name, len(f.Arrays))
		}
		byName := map[string]Value{}
		for _, a := range f.Arrays {
			v, err := a.value()
			if err != nil || a.File != path {
				t.Errorf("%s: %v: %v", name, a, err)
			}
			byName[a.Name] = v
		}
		for _, w := range values {
			v := byName[w.Name]
			// JSON knows int8 only by name.
			if v.DType != w.DType || !slices.Equal(v.Shape, w.Shape) || !bytes.Equal(v.Data, w.Data) {
				if strings.EqualFold(filepath.Ext(name), ".json") && w.DType.IsInt() && slices.Equal(v.Shape, w.Shape) {
					continue
				}
				t.Errorf("%s: %+v, want %+v", name, v, w)
			}
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) < 3 || len(entries) > 4 {
		t.Errorf("the folder holds %v, %v", entries, err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "x.npy"):             "does not end in .safetensors, .npz or .json",
		filepath.Join(dir, "x"):                 "does not end in .safetensors, .npz or .json",
		filepath.Join(dir, "none", "x.npz"):     "no such file",
		filepath.Join(dir, "none", "x.json"):    "no such file",
		filepath.Join(dir, "x.bin.safetensor"):  "does not end in",
		filepath.Join(dir, "..", "x\x00y.json"): "invalid",
	} {
		if err := WriteFile(path, values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("write %q: %v, want %q", path, err, want)
		}
	}
	// A write that fails leaves the old file and nothing else.
	bad := []Value{{Name: "x", DType: mil.Float32, Shape: []int{2}, Data: make([]byte, 4)}}
	before, _ := os.ReadFile(filepath.Join(dir, "x.npz"))
	if err := WriteFile(filepath.Join(dir, "x.npz"), bad); err == nil {
		t.Error("no error for missing data")
	}
	after, _ := os.ReadFile(filepath.Join(dir, "x.npz"))
	if now, _ := os.ReadDir(dir); !bytes.Equal(before, after) || len(now) != len(entries) {
		t.Errorf("the folder holds %v after a failed write", now)
	}
}

func TestOpenFileErrors(t *testing.T) {
	dir := t.TempDir()
	for name, b := range map[string]string{
		"x.json": `{"a": [1, `, "x.npz": "PK", "x.npy": "\x93NUMPY", "x.safetensors": "\x01", "empty.json": "",
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(b), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenFile(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v does not name it", name, err)
		}
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "x.bin"):    "does not end in .safetensors, .npz, .npy or .json",
		filepath.Join(dir, "no.json"):  "no such file",
		filepath.Join(dir, "no.npz"):   "no such file",
		filepath.Join(dir, "dir.json"): "not a regular file",
	} {
		os.Mkdir(filepath.Join(dir, "dir.json"), 0o777)
		if _, err := OpenFile(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v does not say %q", path, err, want)
		}
	}
}

func TestSet(t *testing.T) {
	dir := t.TempDir()
	npy := filepath.Join(dir, "one=two.npy")
	if err := os.WriteFile(npy, []byte("\x93NUMPY\x01\x00\x3a\x00{'descr': '|i1', 'fortran_order': False, 'shape': (2,), }\n\x03\x04"), 0o666); err != nil {
		t.Fatal(err)
	}
	plain := filepath.Join(dir, "plain.npy")
	b, _ := os.ReadFile(npy)
	if err := os.WriteFile(plain, b, 0o666); err != nil {
		t.Fatal(err)
	}
	var s Set
	defer s.Close()
	for _, source := range []string{"ids=" + plain, plain, ` {"a": 1}`, "-"} {
		if err := s.Add(source, strings.NewReader(`{"b": [2.5]}`), map[string]string{"a": "input"}); err != nil {
			t.Errorf("%q: %v", source, err)
		}
	}
	if got := fmt.Sprint(s.Names()); got != "[b ids input plain]" {
		t.Errorf("names %s", got)
	}
	if v, err := s.Arrays["ids"].ints(mil.Int32); err != nil || !slices.Equal(v, []int32{3, 4}) {
		t.Errorf("%v, %v", v, err)
	}
	if !s.Has("a") || s.Has("input") || !s.Has("ids") {
		t.Error("Has does not know the names of the sources")
	}
	if err := s.Add(`{"b": 3}`, nil, nil); err == nil || !strings.Contains(err.Error(), `"b" is both array "b" of standard input and array "b" of the command line`) {
		t.Errorf("a name twice: %v", err)
	}
	if err := s.Add(`{"c": 3, "d": 4}`, nil, map[string]string{"c": "d"}); err == nil || !strings.Contains(err.Error(), `"d" is both`) {
		t.Errorf("a name twice by renaming: %v", err)
	}
	if err := s.Add("-", strings.NewReader("{"), nil); err == nil || !strings.Contains(err.Error(), "standard input") {
		t.Errorf("broken JSON: %v", err)
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"package/a.mlmodelc", "package/b.mlpackage", "folder", "broken.mlpackage", "broken.mlmodelc"} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.FromSlash(d)), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"package/meta.yaml", "broken.mlpackage/Manifest.json", "broken.mlmodelc/coremldata.bin", "x.mlmodel"} {
		if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(f)), []byte("{}"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"package":           "is a package of several models: name one of them: a.mlmodelc, b.mlpackage",
		"package/meta.yaml": "is a package of several models: name one of them: a.mlmodelc, b.mlpackage",
		"folder":            "is no model",
		"none":              "no such file",
		"broken.mlpackage":  "Manifest.json",
		"broken.mlmodelc":   "coremldata.bin",
		"x.mlmodel":         "x.mlmodel",
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if _, err := Open(path, Options{}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v does not say %q and the path", name, err, want)
		}
	}
	// An operation that the engine does not run.
	b := mil.NewBuilder("main", mil.CoreML8)
	x := b.Input("x", mil.TensorOf(mil.Float32, 2))
	b.Output("y", b.Op("add", mil.A("x", x), mil.A("y", x)))
	m := build(t, b)
	for _, op := range m.Program.Functions[0].Body.Ops {
		op.Type = "no_such_operation"
	}
	path := filepath.Join(t.TempDir(), "m.mlpackage")
	if err := mlpackage.Write(t.Context(), path, m, mlpackage.Options{}); err != nil {
		t.Skip("the writer refuses it already")
	}
	if _, err := Open(path, Options{}); err == nil || !strings.Contains(err.Error(), "no_such_operation") || !strings.Contains(err.Error(), path) {
		t.Errorf("an unknown operation: %v", err)
	}
}

// TestBothForms runs a model as package, as its lone specification, and
// compiled, whatever their names.
func TestBothForms(t *testing.T) {
	m := mixed(t)
	pkg := write(t, m)
	compiled := filepath.Join(t.TempDir(), "m.mlmodelc")
	if err := mlmodelc.Write(t.Context(), compiled, m, mlmodelc.Options{}); err != nil {
		t.Fatal(err)
	}
	renamed := filepath.Join(t.TempDir(), "renamed")
	if err := os.Rename(compiled, renamed); err != nil {
		t.Fatal(err)
	}
	p, err := mlpackage.Open(pkg)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, path := range []string{pkg, p.Spec, renamed} {
		res, err := open(t, path, Options{}).Run(t.Context(), Request{Inputs: set(t, `{"x": [[1, 2, 3], [4, 5, 6]], "k": 1}`)})
		if err != nil || !slices.Equal(floats(t, res, "sum"), []float32{2, 3, 4, 5, 6, 7}) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestCall(t *testing.T) {
	m := open(t, write(t, flexible(t)), Options{})
	in := runner.Values{"a": runner.Floats(mil.Float32, []float32{1}, 1, 1), "b": runner.Floats(mil.Float32, []float32{1, 2, 3, 4}, 2, 2)}
	out, err := m.Call(t.Context(), "", in, nil)
	if err != nil || !slices.Equal(out["z"].Float, []float32{2, 4, 6, 8}) || len(in) != 2 {
		t.Errorf("%v, %v", out, err)
	}
	c := open(t, write(t, counter(t)), Options{})
	x := runner.Values{"x": runner.Floats(mil.Float16, slices.Repeat([]float32{1}, 32), 1, 32)}
	st, err := c.NewState()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		kept, err := c.Call(t.Context(), "add", x, st)
		if err != nil || kept["y"].Float[0] != float32(i+1) {
			t.Errorf("call %d: %v, %v", i, kept, err)
		}
		fresh, err := c.Call(t.Context(), "", x, nil)
		if err != nil || fresh["y"].Float[0] != 1 {
			t.Errorf("call %d without a state: %v, %v", i, fresh, err)
		}
	}
	if _, err := c.Call(t.Context(), "put", nil, nil); err == nil || !strings.Contains(err.Error(), `no function "put", it has add, get`) {
		t.Errorf("an unknown function: %v", err)
	}
	if _, err := c.Call(t.Context(), "add", nil, nil); err == nil || !strings.Contains(err.Error(), `"x" is missing`) {
		t.Errorf("no inputs: %v", err)
	}
}

func TestDefaultValue(t *testing.T) {
	for _, c := range []struct {
		b    string
		want float64
		ok   bool
	}{
		{"", 0, false},
		{"\xc8\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", -1, true}, // 41: -1
		{"\x9d\x03\x00\x00\x20\x40", 2.5, true},                        // 51: 2.5
		{"\xe9\x03\x9a\x99\x99\x99\x99\x99\xb9\x3f", 0.1, true},        // 61: 0.1
		{"\x0a\x01x\xc8\x02\x07", 7, true},                             // behind another field
		{"\xc8\x02", 0, false},                                         // cut off
		{"\xc9\x02\x00\x00\x00\x00\x00\x00\x00\x00", 0, false},         // 41 of another type
		{"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 0, false},     // no tag
	} {
		if v, ok := defaultValue([]byte(c.b)); v != c.want || ok != c.ok {
			t.Errorf("% x: %v %v, want %v %v", c.b, v, ok, c.want, c.ok)
		}
	}
}
