package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"anemone/coreml"
	"anemone/internal/float16"
	"anemone/internal/runner"
	"anemone/mil"
)

// node makes an operation with one result.
func node(typ, name string, t mil.Type, args ...mil.Arg) *mil.Operation {
	op := &mil.Operation{Type: typ, Name: name, Args: args}
	op.Results = []*mil.Value{{Name: name, Type: t, Op: op}}
	op.SortArgs()
	return op
}

var (
	int0  = mil.TensorOf(mil.Int32)
	bool0 = mil.TensorOf(mil.Bool)
)

// counting is a function that counts to n, and adds x to a vector each time;
// while says how the loop goes on.
func counting(while func(i, n *mil.Value) *mil.Operation, body func(x, a *mil.Value) []*mil.Operation, shape ...int) *mil.Function {
	vec := mil.TensorOf(mil.Float32, shape...)
	n := &mil.Value{Name: "n", Type: int0}
	x := &mil.Value{Name: "x", Type: mil.TensorOf(mil.Float32, 3)}
	val := func(name string, t mil.Type) *mil.Value { return &mil.Value{Name: name, Type: t} }
	i0, a0, i1, a1 := val("i0", int0), val("a0", vec), val("i1", int0), val("a1", vec)
	test := while(i0, n)
	next := node("add", "next", int0, mil.A("x", i1), mil.A("y", mil.Imm(mil.Int(1))))
	more := body(x, a1)
	loop := &mil.Operation{Type: "while_loop", Name: "loop", Args: []mil.Arg{mil.A("loop_vars", mil.Imm(mil.Int(0)), x)}, Blocks: []*mil.Block{
		{Inputs: []*mil.Value{i0, a0}, Ops: []*mil.Operation{test}, Outputs: test.Results},
		{Inputs: []*mil.Value{i1, a1}, Ops: append([]*mil.Operation{next}, more...), Outputs: []*mil.Value{next.Results[0], more[len(more)-1].Results[0]}},
	}}
	loop.Results = []*mil.Value{{Name: "count", Type: int0, Op: loop}, {Name: "sum", Type: vec, Op: loop}}
	return &mil.Function{Name: "main", Opset: mil.CoreML7, Inputs: []*mil.Value{n, x}, Body: &mil.Block{Ops: []*mil.Operation{loop}, Outputs: loop.Results}}
}

func upTo(i, n *mil.Value) *mil.Operation {
	return node("less", "again", bool0, mil.A("x", i), mil.A("y", n))
}

func forever(i, n *mil.Value) *mil.Operation {
	return node("less_equal", "again", bool0, mil.A("x", n), mil.A("y", n))
}

// sums adds x to the vector.
func sums(x, a *mil.Value) []*mil.Operation {
	return []*mil.Operation{node("add", "more", a.Type, mil.A("x", a), mil.A("y", x))}
}

// reshapes does so too, but first gives the vector a shape that is computed,
// which no plan can know.
func reshapes(x, a *mil.Value) []*mil.Operation {
	shape := node("cast", "shape", mil.TensorOf(mil.Int32, 1), mil.A("x", node("reduce_max", "m", mil.TensorOf(mil.Float32, 1), mil.A("x", x)).Results[0]), mil.A("dtype", mil.Imm(mil.Str("int32"))))
	size := shape.Value("x").Op
	size.Args = append(size.Args, mil.A("keep_dims", mil.Imm(mil.Flag(true))))
	size.SortArgs()
	flat := node("reshape", "flat", mil.TensorOf(mil.Float32, mil.Dynamic), mil.A("x", a), mil.A("shape", shape.Results[0]))
	return []*mil.Operation{size, shape, flat, node("add", "more", mil.TensorOf(mil.Float32, mil.Dynamic), mil.A("x", flat.Results[0]), mil.A("y", x))}
}

func countTo(n int) runner.Values {
	return runner.Values{"n": runner.Ints([]int32{int32(n)}), "x": runner.Floats(mil.Float32, []float32{1, 2, 3}, 3)}
}

// TestLoopMemory runs long loops, planned and interpreted: what they hold
// does not depend on the number of turns, and planned ones allocate nothing.
func TestLoopMemory(t *testing.T) {
	for _, c := range []struct {
		name    string
		f       *mil.Function
		dynamic bool
		turns   int
	}{
		{"planned", counting(upTo, sums, 3), false, 100_000},
		{"interpreted", counting(upTo, reshapes, mil.Dynamic), true, 20_000},
	} {
		m := modelOf(t, c.f, Options{Workers: 1, MaxBytes: 1 << 16})
		out := runner.Values{}
		held := func(turns int) uint64 {
			if err := m.Predict(t.Context(), "main", countTo(turns), out, nil); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			want := float32(turns + 1)
			if got := out["sum"].Float; !slices.Equal(got, []float32{want, 2 * want, 3 * want}) || out["count"].Int[0] != int32(turns) {
				t.Fatalf("%s: %v after %v turns", c.name, got, out["count"].Int)
			}
			var ms runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&ms)
			return ms.HeapInuse
		}
		few := held(10)
		if many := held(c.turns); many > few+1<<20 {
			t.Errorf("%s: %d bytes in use after 10 turns, %d after %d", c.name, few, many, c.turns)
		}
		p := (*m.funcs[0].plans.Load())[0]
		if dynamic := p.dynamic != nil; dynamic != c.dynamic {
			t.Errorf("%s: interpreted is %t", c.name, dynamic)
		}
		if c.dynamic {
			continue
		}
		in := countTo(50)
		if n := testing.AllocsPerRun(20, func() { m.Predict(context.Background(), "main", in, out, nil) }); n > 0 {
			t.Errorf("%s: allocates %v times", c.name, n)
		}
	}
}

// TestEndlessLoop stops loops that never end by their context.
func TestEndlessLoop(t *testing.T) {
	for name, f := range map[string]*mil.Function{"planned": counting(forever, sums, 3), "interpreted": counting(forever, reshapes, mil.Dynamic)} {
		m := modelOf(t, f, Options{Workers: 2})
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
		began := time.Now()
		err := m.Predict(ctx, "main", countTo(1), runner.Values{}, nil)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 5*time.Second {
			t.Errorf("%s: %v after %v", name, err, time.Since(began))
		}
	}
}

// TestInterpretedCalls runs an interpreted function from several goroutines.
func TestInterpretedCalls(t *testing.T) {
	models, cases := programs(t)
	for _, name := range []string{"computed", "lists", "loop_grows", "find_f32", "state_loop18"} {
		m, err := New(models[name], Options{Workers: 2})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for range 3 {
					for k := range cases[name] {
						c := &cases[name][k]
						out, err := c.call(m)
						if err != nil {
							t.Errorf("%s: %v", name, err)
							return
						}
						for n, want := range c.out {
							if err := compare(fmt.Sprintf("%s, case %d, %s", name, k, n), out[n], want, 3e-7); err != nil {
								t.Error(err)
							}
						}
					}
				}
			}()
		}
		wg.Wait()
		for _, p := range *m.funcs[0].plans.Load() {
			if p.dynamic == nil {
				t.Errorf("%s has a plan", name)
			}
		}
		m.Close()
	}
}

// branching is cond(p, yes, no) of a table's row that is not there in one of
// the branches.
func branching() *mil.Function {
	p := &mil.Value{Name: "p", Type: bool0}
	x := &mil.Value{Name: "x", Type: mil.TensorOf(mil.Float32, 2)}
	row := func(name string, k int) *mil.Operation {
		table := &mil.Literal{Type: mil.TensorOf(mil.Float32, 3, 2), Floats: []float64{1, 2, 3, 4, 5, 6}}
		return node("gather", name, mil.TensorOf(mil.Float32, 2), mil.A("x", mil.Imm(table)), mil.A("indices", mil.Imm(mil.Int(k))), mil.A("axis", mil.Imm(mil.Int(0))))
	}
	yes, no := row("yes", 1), row("no", 7)
	op := &mil.Operation{Type: "cond", Name: "c", Args: []mil.Arg{mil.A("pred", p)}, Blocks: []*mil.Block{{Ops: []*mil.Operation{yes}, Outputs: yes.Results}, {Ops: []*mil.Operation{no}, Outputs: no.Results}}}
	op.Results = []*mil.Value{{Name: "r", Type: mil.TensorOf(mil.Float32, 2), Op: op}}
	sum := node("add", "out", mil.TensorOf(mil.Float32, 2), mil.A("x", op.Results[0]), mil.A("y", x))
	return &mil.Function{Name: "main", Opset: mil.CoreML5, Inputs: []*mil.Value{p, x}, Body: &mil.Block{Ops: []*mil.Operation{op, sum}, Outputs: sum.Results}}
}

// TestBranchNotTaken has a branch that would fail: it matters only if taken.
func TestBranchNotTaken(t *testing.T) {
	m := modelOf(t, branching(), Options{})
	in := func(p int32) runner.Values {
		return runner.Values{"p": &runner.Tensor{DType: mil.Bool, Int: []int32{p}}, "x": runner.Floats(mil.Float32, []float32{10, 20}, 2)}
	}
	if got := predict(t, m, "main", in(1), nil)["out"].Float; !slices.Equal(got, []float32{13, 24}) {
		t.Errorf("got %v", got)
	}
	err := m.Predict(t.Context(), "main", in(0), runner.Values{}, nil)
	if err == nil || !strings.Contains(err.Error(), `gather "no": index 7 is outside a dimension of 3`) {
		t.Errorf("error %v", err)
	}
	if err := m.Predict(t.Context(), "main", in(2), runner.Values{}, nil); err == nil || !strings.Contains(err.Error(), "it holds 2, which is not a bool") {
		t.Errorf("error %v", err)
	}
}

// TestCondNoAllocation checks that branches of a plan allocate nothing.
func TestCondNoAllocation(t *testing.T) {
	models, cases := programs(t)
	for _, name := range []string{"cond", "loops_nested", "recurrent_f32", "resize_f32", "scatter_f32", "suppression15", "constexpr18_f32", "sparse18_f16", "pool_f32", "norm_f32", "conv_transpose_f32", "quantize17_f32", "picture_f32"} {
		m, err := New(models[name], Options{Workers: 2})
		if err != nil {
			t.Fatal(err)
		}
		for k := range cases[name] {
			in, out := runner.Values(cases[name][k].in), runner.Values{}
			call := func() {
				if err := m.Predict(context.Background(), "main", in, out, nil); err != nil {
					t.Fatal(err)
				}
			}
			call()
			if n := testing.AllocsPerRun(10, call); n > 0 {
				t.Errorf("%s, case %d: allocates %v times", name, k, n)
			}
		}
		m.Close()
	}
}

// TestProgramsFloat16 checks that with rounding every fp16 output is an fp16
// number.
func TestProgramsFloat16(t *testing.T) {
	models, cases := programs(t)
	for name, model := range models {
		m, err := New(model, Options{Numerics: Float16, Workers: 1})
		if err != nil {
			t.Fatal(err)
		}
		for k := range cases[name] {
			out, err := cases[name][k].call(m)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			for n, x := range out {
				if x.DType != mil.Float16 {
					continue
				}
				for _, v := range x.Float {
					if v == v && float16.Round(v) != v {
						t.Errorf("%s, case %d, %s: %v is no fp16 number (%s)", name, k, n, v, producer(model, n))
						break
					}
				}
			}
		}
		m.Close()
	}
}

// TestRanges checks inputs against the bounds of their dimensions.
func TestRanges(t *testing.T) {
	models, _ := programs(t)
	m, err := New(models["ranged"], Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	in := func(n, k int) runner.Values {
		return runner.Values{"x": runner.Floats(mil.Float32, make([]float32, 3*n), 1, n, 3), "y": runner.Floats(mil.Float32, make([]float32, 3*k), k, 3)}
	}
	predict(t, m, "main", in(4, 4), nil)
	for _, c := range []struct {
		in   runner.Values
		want string
	}{
		{in(9, 4), `input "x" has the shape [1 9 3]: dimension 1 is 9, want 1 to 8`},
		{in(4, 0), `input "y" has the shape [0 3]: dimension 0 is 0, want 1 to 8`},
		{in(4, 3), "do not broadcast"},
	} {
		err := m.Predict(t.Context(), "main", c.in, runner.Values{}, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want one with %q", err, c.want)
		}
	}
	e, err := New(models["enumerated"], Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	err = e.Predict(t.Context(), "main", runner.Values{"x": runner.Floats(mil.Float32, make([]float32, 15), 1, 3, 5)}, runner.Values{}, nil)
	if err == nil || !strings.Contains(err.Error(), "want one of [[1 2 3] [1 4 3] [1 6 5]]") {
		t.Errorf("error %v", err)
	}
	if err := outside([]coreml.Range{{Min: 2, Max: -1}}, []int{1 << 40}); err != nil {
		t.Errorf("no upper bound: %v", err)
	}
}

// TestRandom checks what is said of random numbers: their distribution, that
// a seed gives the same ones every time, and none others.
func TestRandom(t *testing.T) {
	models, _ := programs(t)
	in := runner.Values{"n": runner.Ints([]int32{2000}, 1), "w": runner.Floats(mil.Float32, []float32{0, 1, 2, 5, 5, 5}, 2, 3)}
	run := func(workers int) runner.Values {
		m, err := New(models["random15"], Options{Workers: workers})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		a, b := predict(t, m, "main", in, nil), predict(t, m, "main", in, nil)
		for n := range a {
			if !slices.Equal(a[n].Float, b[n].Float) {
				t.Errorf("%s differs between two calls", n)
			}
		}
		return a
	}
	out := run(1)
	for n, x := range run(3) {
		if !slices.Equal(x.Float, out[n].Float) {
			t.Errorf("%s depends on the number of workers", n)
		}
	}
	moments := func(x []float32) (mean, variance, low, high float64) {
		low, high = 1e9, -1e9
		for _, v := range x {
			mean += float64(v) / float64(len(x))
			low, high = min(low, float64(v)), max(high, float64(v))
		}
		for _, v := range x {
			variance += (float64(v) - mean) * (float64(v) - mean) / float64(len(x))
		}
		return mean, variance, low, high
	}
	near := func(what string, got, want, tol float64) {
		if !(got >= want-tol && got <= want+tol) {
			t.Errorf("%s is %v, want %v within %v", what, got, want, tol)
		}
	}
	// Within five standard errors.
	mean, variance, low, high := moments(out["out0"].Float) // uniform from -1 to 3
	near("mean", mean, 1, 0.09)
	near("variance", variance, 16.0/12, 0.1)
	if low < -1 || high >= 3 || !slices.Equal(out["out0"].Shape, []int{100, 50}) {
		t.Errorf("uniform from %v to %v, shape %v", low, high, out["out0"].Shape)
	}
	mean, variance, _, _ = moments(out["out1"].Float) // normal, mean 2, deviation 0.5
	near("mean", mean, 2, 0.036)
	near("variance", variance, 0.25, 0.025)
	mean, _, low, high = moments(out["out2"].Float) // 1 with probability 0.25
	near("mean", mean, 0.25, 0.05)
	if low != 0 || high != 1 || len(out["out2"].Float) != 2000 {
		t.Errorf("bernoulli from %v to %v, %d of them", low, high, len(out["out2"].Float))
	}
	weights := []float64{0.09003, 0.24473, 0.66524, 1. / 3, 1. / 3, 1. / 3} // softmax of 0, 1, 2 and of equals
	for row := range 2 {
		var count [3]float64
		for _, v := range out["out3"].Float[row*3000 : (row+1)*3000] {
			count[int(v)] += 1. / 3000
		}
		for i, c := range count {
			near(fmt.Sprintf("part of %d in row %d", i, row), c, weights[3*row+i], 0.043)
		}
	}
	// Without a seed every call has others.
	b := mil.NewBuilder("main", mil.CoreML5)
	b.Output("out", b.Op("random_uniform", mil.A("shape", b.Const(mil.Ints(9)))))
	f, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	m := modelOf(t, f, Options{})
	if x, y := predict(t, m, "main", runner.Values{}, nil), predict(t, m, "main", runner.Values{}, nil); slices.Equal(x["out"].Float, y["out"].Float) {
		t.Error("two calls without a seed give the same numbers")
	}
}

// TestListErrors reads and writes lists where they do not go.
func TestListErrors(t *testing.T) {
	elem := mil.TensorOf(mil.Float32, 2)
	build := func(init int, grows bool, do func(ls *mil.Value, k *mil.Value) *mil.Operation) *mil.Function {
		k := &mil.Value{Name: "k", Type: int0}
		lt := mil.Type{Kind: mil.ListKind, Elems: []mil.Type{elem}, Length: mil.Dynamic}
		if !grows {
			lt.Length = init
		}
		ls := node("make_list", "ls", lt, mil.A("init_length", mil.Imm(mil.Int(init))), mil.A("dynamic_length", mil.Imm(mil.Flag(grows))), mil.A("elem_shape", mil.Imm(mil.Int(2))))
		w := node("list_write", "w", lt, mil.A("ls", ls.Results[0]), mil.A("index", mil.Imm(mil.Int(0))), mil.A("value", mil.Imm(&mil.Literal{Type: elem, Floats: []float64{1, 2}})))
		op := do(w.Results[0], k)
		out := op
		ops := []*mil.Operation{ls, w, op}
		if op.Results[0].Type.Kind == mil.ListKind {
			out = node("list_length", "out", int0, mil.A("ls", op.Results[0]))
			ops = append(ops, out)
		}
		return &mil.Function{Name: "main", Opset: mil.CoreML5, Inputs: []*mil.Value{k}, Body: &mil.Block{Ops: ops, Outputs: out.Results}}
	}
	read := func(ls, k *mil.Value) *mil.Operation {
		return node("list_read", "out", elem, mil.A("ls", ls), mil.A("index", k))
	}
	write := func(ls, k *mil.Value) *mil.Operation {
		return node("list_write", "w2", ls.Type, mil.A("ls", ls), mil.A("index", k), mil.A("value", mil.Imm(&mil.Literal{Type: elem, Floats: []float64{3, 4}})))
	}
	for _, c := range []struct {
		name  string
		f     *mil.Function
		k     int32
		want  string
		float []float32
		int   []int32
	}{
		{"read", build(3, false, read), 0, "", []float32{1, 2}, nil},
		{"read what was never written", build(3, false, read), 2, "", []float32{0, 0}, nil},
		{"read beyond the end", build(3, true, read), 3, "index 3 is outside a list of 3", nil, nil},
		{"read before the start", build(3, true, read), -1, "index -1 is outside a list of 3", nil, nil},
		{"write beyond the end of one that grows", build(1, true, write), 4, "", nil, []int32{5}},
		{"write beyond the end of one that does not", build(1, false, write), 4, "index 4 is outside a list of 1", nil, nil},
		{"write very far", build(1, true, write), 1<<31 - 1, "is outside a list of 1", nil, nil},
	} {
		m := modelOf(t, c.f, Options{})
		out := runner.Values{}
		err := m.Predict(t.Context(), "main", runner.Values{"k": runner.Ints([]int32{c.k})}, out, nil)
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
			}
			continue
		}
		if err != nil || !slices.Equal(out["out"].Float, c.float) || !slices.Equal(out["out"].Int, c.int) {
			t.Errorf("%s: %v, %v", c.name, out["out"], err)
		}
	}
}

func TestSupports(t *testing.T) {
	for _, op := range mil.OpNames() {
		if ok, note := Supports(op); !ok || op != "const" && builders[op] == nil {
			t.Errorf("%s: %t, %q", op, ok, note)
		}
	}
	if ok, note := Supports("classify"); ok || note == "" {
		t.Errorf("classify: %t, %q", ok, note)
	}
}

// TestCancelWhilePlanning ends calls at every moment of the first one, which
// prepares weights: later calls must find them whole.
func TestCancelWhilePlanning(t *testing.T) {
	models, cases := programs(t)
	for _, name := range []string{"constexpr18_f32", "sparse18_f32", "constexpr16_f16", "computed", "loop_grows"} {
		c := cases[name][0]
		for left := 0; ; left += 1 + left/8 {
			m, err := New(models[name], Options{Workers: 1})
			if err != nil {
				t.Fatal(err)
			}
			err = m.Predict(&countdown{Context: context.Background(), left: left}, "main", runner.Values(c.in), runner.Values{}, nil)
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
			out := runner.Values{}
			if err := m.Predict(context.Background(), "main", runner.Values(c.in), out, nil); err != nil {
				t.Errorf("%s, canceled after %d questions: %v", name, left, err)
			}
			for n, want := range c.out {
				if err := compare(fmt.Sprintf("%s, canceled after %d questions, %s", name, left, n), out[n], want, 3e-7); err != nil {
					t.Error(err)
				}
			}
			m.Close()
			if err == nil {
				break
			}
		}
	}
}
