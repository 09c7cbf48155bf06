package engine

import (
	"context"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"anemone/coreml"
	"anemone/coreml/mlpackage"
	"anemone/internal/checkpoint/safetensors"
	"anemone/internal/runner"
	"anemone/internal/testutil"
	"anemone/mil"
)

// programCase is a call of one of testdata/programs, which make_programs.py
// wrote, and what it gives.
type programCase struct {
	in, out, state map[string]*runner.Tensor
}

// programs opens testdata/programs: the models by name, and their cases.
func programs(t testing.TB) (map[string]*coreml.Model, map[string][]programCase) {
	t.Helper()
	f, err := safetensors.Open(testutil.Unpacked(t, filepath.Join("testdata", "programs", "values.safetensors")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	cases := map[string][]programCase{}
	for _, info := range f.Tensors() {
		p := strings.Split(info.Name, "/")
		var k int
		if len(p) != 4 {
			t.Fatalf("tensor %q", info.Name)
		}
		if _, err := fmt.Sscan(p[1], &k); err != nil || k < 0 || k > 100 {
			t.Fatalf("tensor %q: %v", info.Name, err)
		}
		x := &runner.Tensor{DType: mil.Float32}
		for _, d := range info.Shape {
			x.Shape = append(x.Shape, int(d))
		}
		if x.Float, x.Int = golden(t, f, info.Name); x.Float == nil {
			x.DType = mil.Int32
			if fmt.Sprint(info.DType) != "I32" {
				x.DType, x.Float = mil.Float32, []float32{}
			}
		}
		for len(cases[p[0]]) <= k {
			cases[p[0]] = append(cases[p[0]], programCase{map[string]*runner.Tensor{}, map[string]*runner.Tensor{}, map[string]*runner.Tensor{}})
		}
		c := cases[p[0]][k]
		map[string]map[string]*runner.Tensor{"in": c.in, "out": c.out, "state": c.state}[p[2]][p[3]] = x
	}
	paths, err := filepath.Glob(filepath.Join("testdata", "programs", "*.mlpackage"))
	if err != nil || len(paths) < 40 {
		t.Fatalf("%d programs, %v", len(paths), err)
	}
	models := map[string]*coreml.Model{}
	for _, path := range paths {
		p, err := mlpackage.Open(path)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		t.Cleanup(func() { p.Close() })
		models[strings.TrimSuffix(filepath.Base(path), ".mlpackage")] = p.Model
	}
	return models, cases
}

// compare holds a result to the judge's: integers exactly, numbers to 1e-5
// relative and a part of the largest of them, as what cancels leaves errors
// of the size of what there was.
func compare(what string, got, want *runner.Tensor, part float64) error {
	if got == nil {
		return fmt.Errorf("%s: no result", what)
	}
	if !slices.Equal(got.Shape, want.Shape) || got.DType.IsFloat() != want.DType.IsFloat() || got.Len() != want.Len() {
		return fmt.Errorf("%s: a %v of %v, want a %v of %v", what, got.DType, got.Shape, want.DType, want.Shape)
	}
	size := 0.0
	for _, w := range want.Float {
		if x := math.Abs(float64(w)); !math.IsInf(x, 0) {
			size = max(size, x)
		}
	}
	for i, w := range want.Float {
		if g := got.Float[i]; g != w && !(math.Abs(float64(g)-float64(w)) <= 1e-5*math.Abs(float64(w))+part*size) && (g == g || w == w) {
			return fmt.Errorf("%s: element %d of %v is %v, want %v", what, i, want.Shape, g, w)
		}
	}
	for i, w := range want.Int {
		if g := got.Int[i]; g != w {
			return fmt.Errorf("%s: element %d of %v is %d, want %d", what, i, want.Shape, g, w)
		}
	}
	return nil
}

// call runs a case, and returns its outputs and states.
func (c *programCase) call(m *Model) (out runner.Values, err error) {
	sig := m.Functions()[0]
	in := runner.Values{}
	for _, x := range sig.Inputs {
		v := c.in[x.Name]
		if v == nil {
			return nil, fmt.Errorf("no input %q", x.Name)
		}
		in[x.Name] = v
	}
	st, err := m.NewState()
	if err != nil {
		return nil, err
	}
	out = runner.Values{}
	if err := m.Predict(context.Background(), sig.Name, in, out, st); err != nil {
		return nil, err
	}
	for _, s := range sig.States {
		if out["state/"+s.Name], err = st.Read(s.Name); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// TestPrograms runs programs that coremltools' own builder made, of every
// operation in several types and ranks, and holds every output to the judge.
// The number of workers, fusion and views must not matter.
func TestPrograms(t *testing.T) {
	models, cases := programs(t)
	seen, outputs := map[string]bool{}, 0
	for _, name := range slices.Sorted(maps.Keys(models)) {
		model := models[name]
		for _, f := range model.Program.Functions {
			f.Body.Walk(func(op *mil.Operation) bool {
				seen[op.Type] = true
				return true
			})
		}
		run := func(o Options, copyAll bool) (all []runner.Values) {
			m, err := New(model, o)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return nil
			}
			defer m.Close()
			m.copyAll = copyAll
			for k := range cases[name] {
				out, err := cases[name][k].call(m)
				if err != nil {
					t.Errorf("%s, case %d: %v", name, k, err)
				}
				all = append(all, out)
			}
			return all
		}
		first := run(Options{Workers: 1}, false)
		for k, out := range first {
			if out == nil {
				continue
			}
			c := cases[name][k]
			for n, want := range c.state {
				c.out["state/"+n] = want
			}
			for _, n := range slices.Sorted(maps.Keys(c.out)) {
				if err := compare(fmt.Sprintf("%s, case %d, %s", name, k, n), out[n], c.out[n], 3e-7); err != nil {
					t.Errorf("%v (%s)", err, producer(model, n))
				}
				outputs++
			}
		}
		for what, other := range map[string][]runner.Values{
			"three workers": run(Options{Workers: 3}, false), "no fusion": run(Options{Workers: 2, NoFusion: true}, false), "everything copied": run(Options{Workers: 1}, true),
		} {
			for k := range other {
				if k >= len(first) || first[k] == nil || other[k] == nil {
					continue
				}
				for n, x := range first[k] {
					if y := other[k][n]; y == nil || !slices.Equal(x.Shape, y.Shape) || !slices.Equal(x.Int, y.Int) || !sameBits(x.Float, y.Float) {
						t.Errorf("%s, case %d, %s: other bits with %s (%s)", name, k, n, what, producer(model, n))
					}
				}
			}
		}
	}
	t.Logf("%d programs, %d outputs, %d operations", len(models), outputs, len(seen))
	for _, op := range mil.OpNames() {
		switch op {
		case "asinh", "acosh", "coreml_update_state": // coremltools writes none; tests of their own
			continue
		}
		if ok, _ := Supports(op); ok && !seen[op] {
			t.Errorf("no program has operation %q", op)
		}
	}
}

func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return x == y || x != x && y != y })
}

// producer describes what gives an output, for messages.
func producer(m *coreml.Model, name string) string {
	for _, v := range m.Program.Functions[0].Body.Outputs {
		if v.Name != name {
			continue
		}
		s := ""
		for op := v.Op; op != nil; {
			if s += " " + op.Type; op.Type != "identity" && op.Type != "cast" || len(op.Args) == 0 {
				for _, a := range op.Args {
					for _, x := range a.Values {
						s += fmt.Sprintf(" %s=%v", a.Name, x.Type)
						if x.Literal != nil && x.Literal.Len() <= 6 {
							s += fmt.Sprint(x.Literal.Floats, x.Literal.Ints, x.Literal.Bools, x.Literal.Strings)
						}
					}
				}
				break
			}
			op = op.Value("x").Op
		}
		return s
	}
	return ""
}

// TestProgramsFolded gives programs their inputs as constants: what was
// computed when they ran is then computed when they are planned, to the same
// bits.
func TestProgramsFolded(t *testing.T) {
	models, cases := programs(t)
	for _, name := range slices.Sorted(maps.Keys(models)) {
		for k := range cases[name] {
			c := &cases[name][k]
			m, err := New(models[name], Options{Workers: 1})
			if err != nil {
				t.Fatal(err)
			}
			want, err := c.call(m)
			m.Close()
			if err != nil {
				t.Errorf("%s, case %d: %v", name, k, err)
				continue
			}
			p, err := mlpackage.Open(filepath.Join("testdata", "programs", name+".mlpackage"))
			if err != nil {
				t.Fatal(err)
			}
			f := p.Model.Program.Functions[0]
			var states []*mil.Value
			for _, v := range f.Inputs {
				x := c.in[v.Name]
				if x == nil {
					states = append(states, v)
					continue
				}
				v.Type.Shape = x.Shape
				v.Literal = &mil.Literal{Type: v.Type}
				for _, y := range x.Float {
					v.Literal.Floats = append(v.Literal.Floats, float64(y))
				}
				for _, y := range x.Int {
					v.Literal.Ints = append(v.Literal.Ints, int64(y))
				}
				v.Op = &mil.Operation{Type: "const", Name: v.Name, Results: []*mil.Value{v}}
				f.Body.Ops = slices.Insert(f.Body.Ops, 0, v.Op)
			}
			f.Inputs = states
			folded, err := New(&coreml.Model{Program: p.Model.Program}, Options{Workers: 1})
			if err != nil {
				t.Errorf("%s, case %d: %v", name, k, err)
				p.Close()
				continue
			}
			got, err := (&programCase{}).call(folded)
			if err != nil {
				t.Errorf("%s, case %d, folded: %v", name, k, err)
			}
			for n, x := range want {
				y := got[n]
				if y == nil || !slices.Equal(x.Shape, y.Shape) || !slices.Equal(x.Int, y.Int) || !sameBits(x.Float, y.Float) {
					t.Errorf("%s, case %d, %s: other bits when folded (%s)", name, k, n, producer(p.Model, n))
				}
			}
			folded.Close()
			p.Close()
		}
	}
}
