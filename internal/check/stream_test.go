package check

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"anemone/coreml"
	"anemone/internal/anemll"
	"anemone/internal/arch/nn"
	"anemone/internal/session"
	"anemone/internal/session/sessiontest"
	"anemone/mil"
)

// op adds an operation with one result of a given name.
func op(b *mil.Builder, name, typ string, args ...mil.Arg) *mil.Value {
	return b.Named(name, typ, args...)
}

// branch stands for attention or an MLP: something that is computed from the
// stream through a norm as all converters write it, which looks at the stream
// twice.
func branch(b *mil.Builder, x *mil.Value) *mil.Value {
	minus := nn.Scale(b, x, -1)
	both := nn.Concat(b, -1, x, minus)
	n := x.Type.Shape[2]
	half := nn.Slice(b, b.Op("relu", mil.A("x", both)), 2, 0, n)
	return b.Op("tanh", mil.A("x", half))
}

func TestFindStream(t *testing.T) {
	const hidden = 6
	add := func(b *mil.Builder, name string, x, y *mil.Value) *mil.Value {
		return op(b, name, "add", mil.A("x", x), mil.A("y", y))
	}
	for _, c := range []struct {
		name   string
		layers int
		rows   int
		build  func(b *mil.Builder, x *mil.Value) *mil.Value
		want   string // behind the layers; or part of the error
	}{
		{"two additions per layer", 2, 1, func(b *mil.Builder, x *mil.Value) *mil.Value {
			for _, n := range []string{"a", "b", "c", "d"} {
				x = add(b, n, x, branch(b, x))
			}
			return branch(b, x)
		}, "b d"},
		{"the other way round", 2, 3, func(b *mil.Builder, x *mil.Value) *mil.Value {
			x = add(b, "a", branch(b, x), x)
			return branch(b, add(b, "b", branch(b, x), x))
		}, "a b"},
		{"three, and a factor behind each layer", 2, 3, func(b *mil.Builder, x *mil.Value) *mil.Value {
			for l := range 2 {
				for k := range 3 {
					x = add(b, fmt.Sprintf("add%d%d", l, k), x, branch(b, x))
				}
				x = op(b, fmt.Sprintf("scaled%d", l), "mul", mil.A("x", x), mil.A("y", b.Const(mil.Half(0.25))))
			}
			return branch(b, nn.Slice(b, x, 1, 2, 3))
		}, "scaled0 scaled1"},
		{"a factor in front of each layer", 2, 1, func(b *mil.Builder, x *mil.Value) *mil.Value {
			for l := range 2 {
				x = op(b, fmt.Sprintf("scaled%d", l), "mul", mil.A("x", b.Const(mil.Half(0.25))), mil.A("y", x))
				x = add(b, fmt.Sprintf("add%d", l), x, branch(b, x))
			}
			return branch(b, x)
		}, "scaled1 add1"},
		{"clamped, cast and copied", 2, 1, func(b *mil.Builder, x *mil.Value) *mil.Value {
			for l := range 2 {
				x = op(b, fmt.Sprintf("wide%d", l), "cast", mil.A("x", x), mil.A("dtype", b.Const(mil.Str("fp32"))))
				y := branch(b, b.Op("cast", mil.A("x", x), mil.A("dtype", b.Const(mil.Str("fp16")))))
				y = b.Op("cast", mil.A("x", y), mil.A("dtype", b.Const(mil.Str("fp32"))))
				x = add(b, fmt.Sprintf("add%d", l), x, y)
				x = op(b, fmt.Sprintf("clip%d", l), "clip", mil.A("x", x), mil.A("alpha", b.Const(mil.Float(-9))), mil.A("beta", b.Const(mil.Float(9))))
				x = op(b, fmt.Sprintf("half%d", l), "cast", mil.A("x", x), mil.A("dtype", b.Const(mil.Str("fp16"))))
			}
			return branch(b, x)
		}, "wide1 half1"},
		{"numbers and constants are no additions", 2, 2, func(b *mil.Builder, x *mil.Value) *mil.Value {
			one := nn.Slice(b, nn.Slice(b, x, 1, 0, 1), 2, 0, 1)
			x = add(b, "touched", x, nn.Scale(b, one, 0)) // as nn.Touch does
			x = add(b, "shifted", x, b.Const(mil.Half(2)))
			x = add(b, "a", x, branch(b, x))
			return branch(b, add(b, "b", x, branch(b, x)))
		}, "a b"},
		{"side by side", 2, 1, func(b *mil.Builder, x *mil.Value) *mil.Value {
			for l := range 2 { // attention and MLP of the same input
				y := add(b, fmt.Sprintf("both%d", l), branch(b, x), branch(b, nn.Scale(b, x, 2)))
				x = add(b, fmt.Sprintf("add%d", l), y, x)
			}
			return branch(b, x)
		}, "add0 add1"},
		{"one too many", 2, 1, func(b *mil.Builder, x *mil.Value) *mil.Value {
			for _, n := range []string{"a", "b", "c"} {
				x = add(b, n, x, branch(b, x))
			}
			return branch(b, x)
		}, "3 additions to the residual stream were found for 2 layers"},
		{"none", 1, 1, func(b *mil.Builder, x *mil.Value) *mil.Value { return branch(b, x) }, "0 additions"},
	} {
		b := mil.NewBuilder("infer", mil.CoreML8)
		x := b.Input("x", mil.TensorOf(mil.Float16, 1, c.rows, hidden))
		b.Output("y", c.build(b, x))
		f, err := b.Build()
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		s := findStream(f, x)
		n, err := s.perLayer(c.layers)
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			var names []string
			for _, v := range s.layers(c.layers, n) {
				names = append(names, v.Name)
			}
			got = strings.Join(names, " ")
		}
		if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// Programs that nobody has verified do no harm.
func TestFindStreamInCircles(t *testing.T) {
	x := &mil.Value{Name: "x", Type: mil.TensorOf(mil.Float16, 1, 1, 4)}
	y, z := &mil.Value{Name: "y", Type: x.Type}, &mil.Value{Name: "z", Type: x.Type}
	of := func(typ string, result *mil.Value, args ...mil.Arg) *mil.Operation {
		return &mil.Operation{Type: typ, Args: args, Results: []*mil.Value{result}}
	}
	f := &mil.Function{Name: "infer", Inputs: []*mil.Value{x}, Body: &mil.Block{Outputs: []*mil.Value{y}, Ops: []*mil.Operation{
		of("identity", x, mil.A("x", x)),
		of("add", y, mil.A("x", x), mil.A("y", y)),
		of("add", x, mil.A("x", y), mil.A("y", x)),
		of("add", y, mil.A("x", y), mil.A("y", y)),
		of("add", z, mil.A("x", x)), of("mul", z, mil.A("y", x)), of("identity", z), of("add", z), {Type: "cast"},
	}}}
	if s := findStream(f, x); len(s.after) != 2 || s.after[1] != y {
		t.Errorf("%+v", s)
	}
	if _, _, err := residuals(&mil.Function{Name: "infer"}, &coreml.Function{Name: "infer"}, 1, 0, true, false, 4); err == nil {
		t.Error("a function without a body")
	}
	p := &anemll.Package{Chunks: []*anemll.Part{{Name: "chunk", Model: &coreml.Model{Functions: []coreml.Function{{Name: "infer"}}}}}}
	p.InferFunction = "infer"
	if sh := show(p, []int{0}, []int{0}, 4); !strings.Contains(sh.told[0], "no function infer") {
		t.Errorf("%q", sh.told)
	}
}

// What a package of two layers in one chunk, or in one model for everything,
// shows of its first layer is what the first chunk of the same layers in two
// chunks gives, function by function and bit by bit.
func TestShow(t *testing.T) {
	slow(t)
	t.Parallel()
	tokens := sessiontest.Tokens(31)
	// trace is what calls give behind each layer: "layer pos rows" to values.
	type trace map[string][]float32
	see := func(p *sessiontest.Package, pkg *anemll.Package, mode session.Mode) trace {
		const hidden = 8
		n := len(pkg.Chunks)
		first, last := []int{0, 1}[:n], []int{0, 1}
		if n == 1 {
			last = []int{1}
		}
		sh := show(pkg, first, last, hidden)
		if strings.Join(sh.told, "") != "" || len(sh.notes) != 0 {
			t.Fatalf("%+v: %q, %q", p, sh.told, sh.notes)
		}
		m, err := session.Load(sh.pkg, sh.loader(loader))
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		s, err := m.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		got, pos := trace{}, 0
		put := func(layer int, x []float32) {
			rows := len(x) / hidden
			key := fmt.Sprintf("layer %d, %d rows from %d", layer, rows, pos)
			got[key] = append(got[key], x...)
		}
		sh.sink = func(point int, x []float32) { put(sh.points[point].layer, x) }
		s.SetTap(func(part, at, rows int, x []float32) {
			if n == 2 && part < n || n == 1 && part == 0 {
				put(part-1, x)
			}
		})
		for len(tokens) > s.Pos() {
			pos = s.Pos()
			k := len(tokens) - pos
			switch mode { // one call at a time
			case session.InferOnly:
				k = 1
			case session.Contract:
				k = s.NextCall(len(tokens) - pos)
			}
			if err := s.Each(t.Context(), tokens[pos:][:k], mode, func(int, []float32) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		return got
	}
	for _, c := range []sessiontest.Package{
		{Context: 32, Batch: 4},
		{Context: 32, Batch: 4, LastToken: true, Argmax: true},
		{Context: 40, Window: 12, Batch: 4, Rotate: true},
		{Context: 40, Window: 16, Batch: 4, Rotate: true, Split: true, LastToken: true},
	} {
		two, one, mono := c, c, c
		two.Chunks, one.Chunks, mono.Chunks = 2, 1, 0
		mono.PrefillGives = "hidden"
		opened := map[*sessiontest.Package]*anemll.Package{}
		for _, p := range []*sessiontest.Package{&two, &one, &mono} {
			if p.Chunks > 0 || !p.Split {
				opened[p] = open(t, p.Write(t))
			}
		}
		for _, mode := range []session.Mode{session.InferOnly, session.Contract, session.AnemllSequence} {
			want := see(&two, opened[&two], mode)
			if calls := 31; mode == session.InferOnly && len(want) != 3*calls {
				t.Errorf("%+v: %d values of %d calls", c, len(want), calls)
			}
			for _, p := range []*sessiontest.Package{&one, &mono} {
				if opened[p] == nil || p == &mono && mode == session.AnemllSequence {
					continue // there is none, or it takes other calls
				}
				got := see(p, opened[p], mode)
				if len(got) != len(want) {
					t.Errorf("%+v, mode %d: %d values, want %d", *p, mode, len(got), len(want))
				}
				for key, x := range want {
					if !slices.Equal(got[key], x) {
						t.Errorf("%+v, mode %d: %s: %v, want %v", *p, mode, key, got[key], x)
						break
					}
				}
			}
		}
	}
}

// A package is not changed by a copy that shows more.
func TestShowLeavesThePackage(t *testing.T) {
	p, err := anemll.Open((&sessiontest.Package{Context: 16, Batch: 4, Chunks: 1}).Write(t))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	count := func() (n string) {
		for _, part := range p.Parts() {
			for i, f := range part.Model.Program.Functions {
				n += fmt.Sprintf("%s %s: %d operations, %d outputs, %d described\n", part.Name, f.Name, len(f.Body.Ops), len(f.Body.Outputs), len(part.Model.Functions[i].Outputs))
			}
		}
		return n
	}
	before := count()
	sh := show(p, []int{0}, []int{1}, 8)
	if got := count(); got != before {
		t.Errorf("before\n%sand after\n%s", before, got)
	}
	if len(sh.points) != 2 || sh.pkg == p || sh.pkg.Chunks[0] == p.Chunks[0] || sh.pkg.Head != p.Head {
		t.Errorf("points %+v", sh.points)
	}
	f := sh.pkg.Chunks[0].Model.Function(p.InferFunction)
	if len(f.Outputs) != 3 || f.Outputs[1].Name != "anemone_stream_1" || !slices.Equal(f.Outputs[1].Shape, []int{1, 1, 8}) {
		t.Errorf("outputs %+v", f.Outputs)
	}
	if err := mil.Verify(sh.pkg.Chunks[0].Model.Program); err != nil {
		t.Error(err)
	}
	// What cannot be looked into is said.
	for _, c := range []struct {
		first, last []int
		width       int
		want        string
	}{
		{[]int{0}, []int{2}, 8, "4 additions to the residual stream were found for 3 layers"},
		{[]int{0}, []int{1}, 9, "wanted 9 wide"},
	} {
		if sh := show(p, c.first, c.last, c.width); len(sh.points) != 0 || !strings.Contains(sh.told[0], c.want) || sh.pkg.Chunks[0] != p.Chunks[0] {
			t.Errorf("%+v: points %+v, told %q", c, sh.points, sh.told)
		}
	}
}
