package engine

import (
	"context"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"anemone/coreml"
	"anemone/coreml/mlpackage"
	"anemone/internal/runner"
	"anemone/mil"
)

// planOnly plans a function without the checks of mil, which the engine
// does not lean on for its safety.
func planOnly(t testing.TB, f *mil.Function) error {
	t.Helper()
	m := &Model{opts: Options{Workers: 1, MaxBytes: 1 << 26}, pool: newPool(1), weights: newWeights()}
	defer m.Close()
	fn := &function{name: f.Name, f: f}
	fn.plans.Store(new([]*plan))
	c := m.newCall()
	for i, in := range f.Inputs {
		if in.Type.Kind == mil.StateKind {
			fn.states = append(fn.states, in)
			continue
		}
		fn.inputs = append(fn.inputs, i)
	}
	c.in = make([]*runner.Tensor, len(f.Inputs))
	for _, k := range fn.inputs {
		c.in[k] = &runner.Tensor{Shape: f.Inputs[k].Type.Shape}
	}
	_, err := fn.plan(context.Background(), m, c, &runner.Signature{})
	return err
}

func one(typ string, result mil.Type, args ...mil.Arg) *mil.Operation {
	op := &mil.Operation{Type: typ, Name: "op", Args: args}
	op.Results = []*mil.Value{{Name: "op", Type: result, Op: op}}
	op.SortArgs()
	return op
}

// TestRefuses plans programs that ask for too much or say what is not so.
func TestRefuses(t *testing.T) {
	open := func(n int) []int { return slices.Repeat([]int{mil.Dynamic}, n) }
	x := func(shape ...int) *mil.Value { return &mil.Value{Name: "x", Type: mil.TensorOf(mil.Float16, shape...)} }
	ints := func(v ...int) *mil.Value { return mil.Imm(mil.Ints(v...)) }
	scalar := func(v int) *mil.Value { return mil.Imm(mil.Int(v)) }
	half := func(shape ...int) mil.Type { return mil.TensorOf(mil.Float16, shape...) }
	for _, c := range []struct {
		name, want string
		op         *mil.Operation
	}{
		{"a copy of a long tile", "more than the limit of 64 MiB", one("softmax", half(open(1)...), mil.A("x", nil))},
		{"declared shape is wrong", "declared tensor<fp16, [3, 3]>, but is tensor<fp16, [2, 4]>", one("relu", half(3, 3), mil.A("x", x(2, 4)))},
		{"declared type is wrong", "declared int32, but is fp16", one("relu", mil.TensorOf(mil.Int32), mil.A("x", x()))},
		{"operand is missing", `argument "x" is missing`, one("relu", half(1))},
		{"unknown operation", "does not know", one("fold", half(1), mil.A("x", x(1)))},
		{"string operand", "strings are not supported", one("identity", mil.TensorOf(mil.String), mil.A("x", mil.Imm(mil.Str("a"))))},
		{"wrong reshape", "does not reshape", one("reshape", half(open(2)...), mil.A("x", x(2, 3)), mil.A("shape", ints(4, 2)))},
		{"two open dimensions", "cannot reshape", one("reshape", half(open(2)...), mil.A("x", x(2, 3)), mil.A("shape", ints(-1, -1)))},
		{"overflowing reshape", "does not reshape", one("reshape", half(open(3)...), mil.A("x", x(2, 3)), mil.A("shape", ints(1<<30, 1<<30, 1<<30)))},
		{"perm names an axis twice", "does not permute", one("transpose", half(open(2)...), mil.A("x", x(2, 3)), mil.A("perm", ints(0, 0)))},
		{"perm is short", "does not permute", one("transpose", half(open(2)...), mil.A("x", x(2, 3)), mil.A("perm", ints(0)))},
		{"squeeze of a long axis", "are not all 1", one("squeeze", half(open(1)...), mil.A("x", x(2, 3)), mil.A("axes", ints(0)))},
		{"axis out of range", "outside a tensor of rank 2", one("softmax", half(open(2)...), mil.A("x", x(2, 3)), mil.A("axis", scalar(2)))},
		{"axes twice", "names an axis twice", one("reduce_sum", half(), mil.A("x", x(2, 3)), mil.A("axes", ints(1, -1)))},
		{"huge reps", "reps", one("tile", half(open(2)...), mil.A("x", x(2, 3)), mil.A("reps", ints(1<<40, 1<<40)))},
		{"negative reps", "reps", one("tile", half(open(2)...), mil.A("x", x(2, 3)), mil.A("reps", ints(-1, 2)))},
		{"huge fill", "too large", one("fill", half(open(2)...), mil.A("shape", ints(1<<30, 1<<30)), mil.A("value", mil.Imm(mil.Half(1))))},
		{"huge pad", "limit", one("pad", half(open(1)...), mil.A("x", x(3)), mil.A("pad", ints(1<<30, 1<<30)))},
		{"negative pad", "pads", one("pad", half(open(1)...), mil.A("x", x(3)), mil.A("pad", ints(-1, 0)))},
		{"long range", "too long", one("range_1d", mil.TensorOf(mil.Int32, mil.Dynamic), mil.A("start", scalar(0)), mil.A("end", scalar(1<<31-1)), mil.A("step", scalar(1)))},
		{"range by nothing", "range from", one("range_1d", mil.TensorOf(mil.Int32, mil.Dynamic), mil.A("start", scalar(0)), mil.A("end", scalar(5)), mil.A("step", scalar(0)))},
		{"inner dimensions", "inner dimensions", one("matmul", half(open(2)...), mil.A("x", x(2, 3)), mil.A("y", x(2, 3)))},
		{"batches", "do not broadcast", one("matmul", half(open(3)...), mil.A("x", x(2, 3, 3)), mil.A("y", x(4, 3, 3)))},
		{"broadcast", "do not broadcast", one("add", half(open(2)...), mil.A("x", x(2, 3)), mil.A("y", x(2)))},
		{"kinds of operands", "want the same type", one("add", half(open(1)...), mil.A("x", x(2)), mil.A("y", ints(1, 2)))},
		{"kernel does not fit", "does not fit", one("conv", half(open(3)...), mil.A("x", x(1, 2, 3)), mil.A("weight", x(4, 2, 5)))},
		{"channels do not fit", "does not fit", one("conv", half(open(3)...), mil.A("x", x(1, 2, 3)), mil.A("weight", x(4, 3, 1)))},
		{"zero stride", "strides", one("conv", half(open(3)...), mil.A("x", x(1, 2, 3)), mil.A("weight", x(4, 2, 1)), mil.A("strides", ints(0)))},
		{"huge padding", "limit", one("conv", half(open(3)...), mil.A("x", x(1, 2, 3)), mil.A("weight", x(4, 2, 1)), mil.A("pad_type", mil.Imm(mil.Str("custom"))), mil.A("pad", ints(1<<30, 0)))},
		{"uneven split", "does not split", one("split", half(open(1)...), mil.A("x", x(5)), mil.A("num_splits", scalar(2)), mil.A("axis", scalar(0)))},
		{"split sizes", "do not add up", one("split", half(open(1)...), mil.A("x", x(5)), mil.A("split_sizes", ints(2)), mil.A("axis", scalar(0)))},
		{"slice rank", "want 2 integers", one("slice_by_index", half(open(2)...), mil.A("x", x(5, 2)), mil.A("begin", ints(0)), mil.A("end", ints(0, 0)))},
		{"slice stride", "stride is 0", one("slice_by_index", half(open(1)...), mil.A("x", x(5)), mil.A("begin", ints(0)), mil.A("end", ints(3)), mil.A("stride", ints(0)))},
		{"squeezed index", "outside 0 to 4", one("slice_by_index", half(), mil.A("x", x(5)), mil.A("begin", ints(5)), mil.A("end", ints(0)), mil.A("squeeze_mask", mil.Imm(mil.Bools(true))))},
		{"update size", "update has", one("slice_update", half(5), mil.A("x", x(5)), mil.A("update", x(5)), mil.A("begin", ints(0)), mil.A("end", ints(3)))},
		{"k too large", "k is 9", one("topk", half(open(1)...), mil.A("x", x(4)), mil.A("k", scalar(9)))},
		{"cast to nothing", "cannot cast", one("cast", half(open(1)...), mil.A("x", x(4)), mil.A("dtype", mil.Imm(mil.Str("fp8"))))},
		{"gelu mode", "mode is", one("gelu", half(4), mil.A("x", x(4)), mil.A("mode", mil.Imm(mil.Str("FAST"))))},
		{"gather batch", "batch_dims", one("gather", half(open(2)...), mil.A("x", x(4, 4)), mil.A("indices", ints(1)), mil.A("batch_dims", scalar(1)))},
	} {
		f := &mil.Function{Name: "main", Body: &mil.Block{Ops: []*mil.Operation{c.op}, Outputs: c.op.Results}}
		if c.name == "a copy of a long tile" {
			in := x(1)
			tile := one("tile", half(mil.Dynamic), mil.A("x", in), mil.A("reps", ints(1<<30)))
			c.op.Args[0].Values = tile.Results
			f.Body.Ops = []*mil.Operation{tile, c.op}
			f.Inputs = append(f.Inputs, in)
		}
		for _, a := range c.op.Args {
			for _, v := range a.Values {
				if v.Op == nil && !v.IsConst() {
					f.Inputs = append(f.Inputs, v)
				}
			}
		}
		err := planOnly(t, f)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
		if err != nil && !strings.Contains(err.Error(), `function "main": `+c.op.Type+` "op"`) {
			t.Errorf("%s: error %v does not say where", c.name, err)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	in := &mil.Value{Name: "x", Type: mil.TensorOf(mil.Float16, 1)}
	op := one("fold", mil.TensorOf(mil.Float16, 1), mil.A("x", in))
	fn := func(ops ...*mil.Operation) *mil.Function {
		f := &mil.Function{Name: "main", Inputs: []*mil.Value{in}, Body: &mil.Block{Ops: ops}}
		if len(ops) > 0 {
			f.Body.Outputs = ops[len(ops)-1].Results
		}
		return f
	}
	huge := &mil.Value{Name: "s", Type: mil.StateOf(mil.Float16, 1<<20, 1<<20)}
	stateful := func(name string, n int) *mil.Function {
		return &mil.Function{Name: name, Inputs: []*mil.Value{{Name: "s", Type: mil.StateOf(mil.Float16, n)}}, Body: &mil.Block{}}
	}
	for _, c := range []struct {
		name, want string
		m          *coreml.Model
	}{
		{"nil", "no functions", nil},
		{"no program", "no functions", &coreml.Model{}},
		{"no functions", "no functions", &coreml.Model{Program: &mil.Program{}}},
		{"no body", "without a body", &coreml.Model{Program: &mil.Program{Functions: []*mil.Function{{Name: "main"}}}}},
		{"unknown operation", `function "main": fold "op": unknown operation`, &coreml.Model{Program: &mil.Program{Functions: []*mil.Function{fn(op)}}}},
		{"badly formed", "is not defined", &coreml.Model{Program: &mil.Program{Functions: []*mil.Function{fn(one("relu", in.Type, mil.A("x", &mil.Value{Name: "y", Type: in.Type})))}}}},
		{"huge state", "too large", &coreml.Model{Program: &mil.Program{Functions: []*mil.Function{{Name: "main", Inputs: []*mil.Value{huge}, Body: &mil.Block{}}}}}},
		{"two kinds of one state", `state "s" is a fp16 of [3] in one function and a fp16 of [4]`, &coreml.Model{Program: &mil.Program{Functions: []*mil.Function{stateful("a", 3), stateful("b", 4)}}}},
	} {
		_, err := New(c.m, Options{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
	}
}

// FuzzProgram changes the numbers in programs of one operation: constants,
// and the shapes of inputs behind open dimensions, which only the engine can
// check. Nothing may panic or take more memory than allowed.
func FuzzProgram(f *testing.F) {
	cases := allOps(f)
	for i := range cases {
		f.Add(uint16(i), uint64(i))
	}
	f.Fuzz(func(t *testing.T, which uint16, seed uint64) {
		c := cases[int(which)%len(cases)]
		r := rand.New(rand.NewPCG(seed, 1))
		fn, in, ok := c.build(t, int(seed%4))
		if !ok {
			return
		}
		mutate(r, fn)
		// Shapes that only show at run time.
		for _, v := range fn.Inputs {
			x := in[v.Name]
			for i := range v.Type.Shape {
				if r.IntN(3) == 0 {
					v.Type.Shape = slices.Clone(v.Type.Shape)
					v.Type.Shape[i] = mil.Dynamic
					if r.IntN(2) == 0 {
						shape := slices.Clone(x.Shape)
						shape[i] = r.IntN(6)
						n, _ := mil.NumElements(shape)
						y := &runner.Tensor{DType: x.DType, Shape: shape}
						if x.DType.IsFloat() {
							y.Float = make([]float32, n)
							copy(y.Float, x.Float)
						} else {
							y.Int = make([]int32, n)
							copy(y.Int, x.Int)
						}
						x = y
						in[v.Name] = y
					}
				}
			}
		}
		for _, op := range fn.Body.Ops {
			for _, v := range op.Results {
				if !v.IsConst() {
					v.Type.Shape = slices.Repeat([]int{mil.Dynamic}, len(v.Type.Shape))
				}
			}
		}
		m, err := New(&coreml.Model{Program: &mil.Program{Functions: []*mil.Function{fn}}}, Options{Workers: 2, MaxBytes: 1 << 22})
		if err != nil {
			return
		}
		defer m.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = m.Predict(ctx, "main", in, runner.Values{}, nil)
		if n := m.Stats().Held(); n > 1<<25 {
			t.Errorf("%s holds %d bytes", c.Op, n)
		}
	})
}

// FuzzRun changes constants, inputs and shapes of whole programs: those that
// coremltools made of every operation. Nothing may panic, nor run on or take
// more memory than allowed.
func FuzzRun(f *testing.F) {
	paths, err := filepath.Glob(filepath.Join("testdata", "programs", "*.mlpackage"))
	if err != nil || len(paths) == 0 {
		f.Fatal("no programs", err)
	}
	_, cases := programs(f)
	for i := range paths {
		f.Add(uint16(i), uint64(i))
		f.Add(uint16(i), uint64(i+1000))
	}
	f.Fuzz(func(t *testing.T, which uint16, seed uint64) {
		path := paths[int(which)%len(paths)]
		p, err := mlpackage.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		r := rand.New(rand.NewPCG(seed, 3))
		fn := p.Model.Program.Functions[0]
		mutate(r, fn)
		in := runner.Values{}
		cs := cases[strings.TrimSuffix(filepath.Base(path), ".mlpackage")]
		for _, v := range fn.Inputs {
			if v.Type.Kind == mil.StateKind {
				continue
			}
			shape := slices.Clone(v.Type.Shape)
			for i := range shape {
				if r.IntN(6) == 0 {
					v.Type.Shape = slices.Clone(v.Type.Shape)
					v.Type.Shape[i] = mil.Dynamic
					shape[i] = r.IntN(5)
				}
				if shape[i] < 0 {
					shape[i] = 1 + r.IntN(3)
				}
			}
			x := &runner.Tensor{DType: v.Type.DType, Shape: shape}
			var old *runner.Tensor
			if len(cs) > 0 {
				old = cs[r.IntN(len(cs))].in[v.Name]
			}
			n, _ := mil.NumElements(shape)
			for i := range n {
				k := r.IntN(12) - 3
				g := float32(r.NormFloat64())
				if old != nil && i < len(old.Int) && r.IntN(3) > 0 {
					k = int(old.Int[i])
				}
				if r.IntN(40) == 0 {
					k, g = []int{1 << 20, 1<<31 - 1, -1 << 31}[r.IntN(3)], []float32{float32(math.Inf(1)), float32(math.NaN()), 1e30}[r.IntN(3)]
				}
				if x.DType.IsFloat() {
					x.Float = append(x.Float, g)
				} else {
					x.Int = append(x.Int, int32(k))
				}
			}
			in[v.Name] = x
		}
		if r.IntN(2) == 0 {
			fn.Body.Walk(func(op *mil.Operation) bool {
				for _, v := range op.Results {
					if !v.IsConst() && v.Type.Kind == mil.TensorKind {
						v.Type.Shape = slices.Repeat([]int{mil.Dynamic}, len(v.Type.Shape))
					}
				}
				return true
			})
		}
		// The engine's own checks have to do, not only those of mil.
		m := unchecked(fn, Options{Workers: 2, MaxBytes: 1 << 22})
		defer m.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		st, err := m.NewState()
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_ = m.Predict(ctx, fn.Name, in, runner.Values{}, st)
		if d := time.Since(began); d > 20*time.Second {
			t.Errorf("%s went on for %v", path, d)
		}
		if n := m.Memory(); n > 1<<25 {
			t.Errorf("%s holds %d bytes", path, n)
		}
	})
}

// unchecked wraps a function without the checks of mil.
func unchecked(f *mil.Function, o Options) *Model {
	m := &Model{opts: o, pool: newPool(o.Workers), weights: newWeights()}
	fn := &function{name: f.Name, f: f}
	fn.plans.Store(new([]*plan))
	for i, in := range f.Inputs {
		if in.Type.Kind == mil.StateKind {
			fn.states = append(fn.states, in)
			m.states = append(m.states, stateSpec{in.Name, in.Type.DType, in.Type.Shape})
			continue
		}
		fn.inputs = append(fn.inputs, i)
	}
	fn.ranges = make([][]coreml.Range, len(fn.inputs))
	m.funcs = []*function{fn}
	m.sigs = []runner.Signature{signature(&coreml.Model{Program: &mil.Program{Functions: []*mil.Function{f}}}, f)}
	return m
}

// mutate changes some constants of a function.
func mutate(r *rand.Rand, f *mil.Function) {
	odd := []int64{0, 1, -1, 2, -2, 3, 7, 16, 1 << 20, 1<<31 - 1, -1 << 31}
	var ops []*mil.Operation
	f.Body.Walk(func(op *mil.Operation) bool {
		ops = append(ops, op)
		return true
	})
	for _, op := range ops {
		if op.Type != "const" || op.Results[0].Literal == nil || r.IntN(2) == 0 {
			continue
		}
		l := op.Results[0].Literal
		for i := range l.Floats {
			if r.IntN(8) == 0 {
				l.Floats[i] = []float64{0, -1, 1, math.Inf(1), math.NaN(), 1e-30}[r.IntN(6)]
			}
		}
		for i := range l.Ints {
			if r.IntN(3) == 0 {
				l.Ints[i] = odd[r.IntN(len(odd))]
			}
		}
		for i := range l.Bools {
			if r.IntN(3) == 0 {
				l.Bools[i] = !l.Bools[i]
			}
		}
	}
}
