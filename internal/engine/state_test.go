package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"anemone/internal/runner"
	"anemone/mil"
)

const stateName = "cache"

// cacheProgram is a builder of functions over a state of 4 rows of 3.
type cacheProgram struct {
	*mil.Builder
	st *mil.Value
}

func newCacheProgram() *cacheProgram {
	b := mil.NewBuilder("main", mil.CoreML8)
	return &cacheProgram{b, b.Input(stateName, mil.StateOf(mil.Float16, 4, 3))}
}

func (p *cacheProgram) read() *mil.Value { return p.Op("read_state", mil.A("input", p.st)) }
func (p *cacheProgram) write(v *mil.Value) {
	p.OpAll("write_state", mil.A("input", p.st), mil.A("data", v))
}

// update is the other spelling of write and read.
func (p *cacheProgram) update(v *mil.Value) *mil.Value {
	return p.Op("coreml_update_state", mil.A("state", p.st), mil.A("value", v))
}

func (p *cacheProgram) rows(x, update *mil.Value, begin, end int) *mil.Value {
	return p.Op("slice_update", mil.A("x", x), mil.A("update", update), mil.A("begin", p.Const(mil.Ints(begin, 0))), mil.A("end", p.Const(mil.Ints(end, 3))))
}

func (p *cacheProgram) slice(x *mil.Value, begin, end int) *mil.Value {
	return p.Op("slice_by_index", mil.A("x", x), mil.A("begin", p.Const(mil.Ints(begin, 0))), mil.A("end", p.Const(mil.Ints(end, 3))))
}

func (p *cacheProgram) half(v float64, shape ...int) *mil.Value {
	l := &mil.Literal{Type: mil.TensorOf(mil.Float16, shape...)}
	n, _ := l.Type.NumElements()
	for i := range n {
		l.Floats = append(l.Floats, v+float64(i))
	}
	return p.Const(l)
}

func (p *cacheProgram) function(t testing.TB) *mil.Function {
	t.Helper()
	f, err := p.Build()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

var startRows = []float32{0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32}

func runCache(t testing.TB, f *mil.Function, o Options) (out runner.Values, cache []float32) {
	t.Helper()
	m := modelOf(t, f, o)
	st, err := m.NewState()
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Write(stateName, runner.Floats(mil.Float16, startRows, 4, 3)); err != nil {
		t.Fatal(err)
	}
	out = predict(t, m, "main", runner.Values{}, st)
	c, err := st.Read(stateName)
	if err != nil {
		t.Fatal(err)
	}
	return out, c.Float
}

// TestStateOrder checks that every value that was read from a state keeps
// what it was, whatever is written afterwards, and that updates that nobody
// looks behind happen in place.
func TestStateOrder(t *testing.T) {
	updated := []float32{0, 1, 2, 100, 101, 102, 20, 21, 22, 30, 31, 32}
	for _, c := range []struct {
		name    string
		build   func(p *cacheProgram)
		inPlace int // slice updates that write into the state
		copied  int // values that are copied because they outlive it
		out     []float32
		cache   []float32
	}{
		{"update, write, read", func(p *cacheProgram) {
			p.write(p.rows(p.read(), p.half(100, 1, 3), 1, 2))
			p.Output("out", p.slice(p.read(), 0, 2))
		}, 1, 0, updated[:6], updated},
		{"update state gives the new contents", func(p *cacheProgram) {
			p.Output("out", p.slice(p.update(p.rows(p.read(), p.half(100, 1, 3), 1, 2)), 1, 2))
		}, 1, 0, updated[3:6], updated},
		{"the updated value is used as it is", func(p *cacheProgram) {
			u := p.rows(p.read(), p.half(100, 1, 3), 1, 2)
			p.write(u)
			p.Output("out", u)
		}, 1, 0, updated, updated},
		{"old contents used after the update", func(p *cacheProgram) {
			old := p.read()
			p.write(p.rows(old, p.half(100, 1, 3), 1, 2))
			p.Output("out", p.slice(old, 0, 2))
		}, 1, 1, startRows[:6], updated},
		{"a view of the old contents used after the update", func(p *cacheProgram) {
			old := p.read()
			part := p.slice(old, 1, 3)
			p.write(p.rows(old, p.half(100, 1, 3), 1, 2))
			p.Output("out", part)
		}, 1, 1, startRows[3:9], updated},
		{"a view of the old contents used before the update only", func(p *cacheProgram) {
			old := p.read()
			sum := p.Op("add", mil.A("x", p.slice(old, 1, 2)), mil.A("y", p.half(0, 1, 3)))
			p.write(p.rows(old, sum, 0, 1))
			p.Output("out", sum)
		}, 1, 0, []float32{10, 12, 14}, []float32{10, 12, 14, 10, 11, 12, 20, 21, 22, 30, 31, 32}},
		{"rows move within the state", func(p *cacheProgram) {
			old := p.read()
			p.write(p.rows(old, p.slice(old, 0, 3), 1, 4))
			p.Output("out", p.slice(p.read(), 3, 4))
		}, 1, 1, startRows[6:9], []float32{0, 1, 2, 0, 1, 2, 10, 11, 12, 20, 21, 22}},
		{"two updates, one write", func(p *cacheProgram) {
			u := p.rows(p.read(), p.half(100, 1, 3), 1, 2)
			p.write(p.rows(u, p.half(200, 1, 3), 3, 4))
			p.Output("out", p.slice(p.read(), 3, 4))
		}, 2, 0, []float32{200, 201, 202}, []float32{0, 1, 2, 100, 101, 102, 20, 21, 22, 200, 201, 202}},
		{"two updates, the first used later", func(p *cacheProgram) {
			u := p.rows(p.read(), p.half(100, 1, 3), 1, 2)
			p.write(p.rows(u, p.half(200, 1, 3), 1, 2))
			p.Output("out", p.slice(u, 1, 2))
		}, 2, 1, []float32{100, 101, 102}, []float32{0, 1, 2, 200, 201, 202, 20, 21, 22, 30, 31, 32}},
		{"an update that is not written back", func(p *cacheProgram) {
			p.Output("out", p.rows(p.read(), p.half(100, 1, 3), 1, 2))
		}, 0, 0, updated, startRows},
		{"an update that is not written before the state is read", func(p *cacheProgram) {
			u := p.rows(p.read(), p.half(100, 1, 3), 1, 2)
			p.Output("out", p.slice(p.read(), 1, 2))
			p.write(u)
		}, 0, 1, startRows[3:6], updated},
		{"the state is replaced", func(p *cacheProgram) {
			old := p.read()
			p.write(p.Op("add", mil.A("x", old), mil.A("y", old)))
			p.Output("out", old)
		}, 0, 1, startRows, []float32{0, 2, 4, 20, 22, 24, 40, 42, 44, 60, 62, 64}},
		{"the state is written back reversed", func(p *cacheProgram) {
			p.write(p.Op("reverse", mil.A("x", p.read()), mil.A("axes", p.Const(mil.Ints(0)))))
			p.Output("out", p.read())
		}, 0, 1, []float32{30, 31, 32, 20, 21, 22, 10, 11, 12, 0, 1, 2}, []float32{30, 31, 32, 20, 21, 22, 10, 11, 12, 0, 1, 2}},
		{"a read through an identity", func(p *cacheProgram) {
			old := p.Op("identity", mil.A("x", p.read()))
			p.write(p.rows(old, p.half(100, 1, 3), 1, 2))
			p.Output("out", p.slice(p.read(), 1, 2))
		}, 1, 0, updated[3:6], updated},
		{"two reads before one update", func(p *cacheProgram) {
			a, b := p.read(), p.read()
			p.write(p.rows(a, p.half(100, 1, 3), 1, 2))
			p.Output("out", p.slice(b, 1, 2))
		}, 1, 1, startRows[3:6], updated},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newCacheProgram()
			c.build(p)
			f := p.function(t)
			a := analyse(f)
			if len(a.inPlace) != c.inPlace || len(a.copied) != c.copied {
				t.Errorf("%d updates in place and %d values copied, want %d and %d", len(a.inPlace), len(a.copied), c.inPlace, c.copied)
			}
			out, cache := runCache(t, f, Options{Workers: 1})
			if !slices.Equal(out["out"].Float, c.out) {
				t.Errorf("out is %v, want %v", out["out"].Float, c.out)
			}
			if !slices.Equal(cache, c.cache) {
				t.Errorf("state is %v, want %v", cache, c.cache)
			}
		})
	}
}

// TestStateUpdateTouchesOnlyItsRows checks in-place updates from outside: a
// row that is written over and over by somebody else would race, and shows
// here as a value that the engine put back.
func TestStateUpdateTouchesOnlyItsRows(t *testing.T) {
	p := newCacheProgram()
	p.write(p.rows(p.read(), p.half(100, 1, 3), 1, 2))
	p.Output("out", p.half(0, 1))
	m := modelOf(t, p.function(t), Options{Workers: 1})
	st, _ := m.NewState()
	c := m.takeCall()
	defer m.giveBack(c)
	if err := m.bindStates(c, m.funcs[0], st); err != nil {
		t.Fatal(err)
	}
	pl, err := m.funcs[0].plan(context.Background(), m, c, &m.sigs[0])
	if err != nil {
		t.Fatal(err)
	}
	c.grow(pl.f, pl.i, pl.scratch)
	if pl.f >= 12 {
		t.Errorf("the plan has room for %d values: the state of 12 is copied", pl.f)
	}
	for k := range pl.steps {
		c.st[0].f[0]++ // row 0 belongs to nobody
		pl.steps[k].run(c)
	}
	if got := c.st[0].f[0]; got != float32(len(pl.steps)) {
		t.Errorf("row 0 was written by an update of row 1: %v after %d steps", got, len(pl.steps))
	}
	if !slices.Equal(c.st[0].f[3:6], []float32{100, 101, 102}) {
		t.Errorf("row 1 is %v", c.st[0].f[3:6])
	}
}

// TestStateRandomPrograms compares random sequences of operations on a state
// with the plain meaning of each, where every value is a copy.
func TestStateRandomPrograms(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	inPlace, copied := 0, 0
	for run := range 1200 {
		p := newCacheProgram()
		type known struct {
			v *mil.Value
			x []float32
			n int // rows
		}
		state := slices.Clone(startRows)
		var vals []known
		pick := func(rows int) (known, bool) {
			var fit []known
			for _, k := range vals {
				if rows == 0 || k.n == rows {
					fit = append(fit, k)
				}
			}
			if len(fit) == 0 {
				return known{}, false
			}
			// Mostly recent ones, as in real programs.
			return fit[max(0, len(fit)-1-int(r.ExpFloat64()*2))], true
		}
		for range 4 + r.IntN(14) {
			switch r.IntN(8) {
			case 0, 1:
				vals = append(vals, known{p.read(), slices.Clone(state), 4})
			case 2, 3: // slice update
				x, ok := pick(4)
				n := 1 + r.IntN(3)
				u, ok2 := pick(n)
				if !ok {
					continue
				}
				if !ok2 {
					base := float64(r.IntN(50) * 10)
					u = known{p.half(base, n, 3), nil, n}
					for i := range 3 * n {
						u.x = append(u.x, float32(base)+float32(i))
					}
				}
				at := r.IntN(5 - n)
				y := slices.Clone(x.x)
				copy(y[3*at:], u.x)
				vals = append(vals, known{p.rows(x.v, u.v, at, at+n), y, 4})
			case 4:
				if x, ok := pick(4); ok {
					p.write(x.v)
					state = slices.Clone(x.x)
				}
			case 5:
				if x, ok := pick(4); ok {
					state = slices.Clone(x.x)
					vals = append(vals, known{p.update(x.v), slices.Clone(state), 4})
				}
			case 6: // slice
				if x, ok := pick(0); ok {
					b := r.IntN(x.n)
					e := b + 1 + r.IntN(x.n-b)
					vals = append(vals, known{p.slice(x.v, b, e), slices.Clone(x.x[3*b : 3*e]), e - b})
				}
			case 7: // arithmetic
				if x, ok := pick(0); ok {
					y := slices.Clone(x.x)
					for i := range y {
						y[i] = 1 + y[i]
					}
					vals = append(vals, known{p.Op("add", mil.A("x", x.v), mil.A("y", p.Const(mil.Half(1)))), y, x.n})
				}
			}
		}
		vals = append(vals, known{p.read(), slices.Clone(state), 4})
		want := map[string][]float32{}
		for i, k := range vals {
			if i == len(vals)-1 || r.IntN(3) == 0 {
				name := fmt.Sprintf("out%d", i)
				// An output must not be another's value.
				p.Output(name, p.Op("identity", mil.A("x", k.v)))
				want[name] = k.x
			}
		}
		f := p.function(t)
		a := analyse(f)
		inPlace += len(a.inPlace)
		copied += len(a.copied)
		out, cache := runCache(t, f, Options{Workers: 1})
		if !slices.Equal(cache, state) {
			t.Fatalf("run %d: state is %v, want %v\n%s", run, cache, state, listing(f))
		}
		for name, x := range want {
			if !slices.Equal(out[name].Float, x) {
				t.Fatalf("run %d: %s is %v, want %v\n%s", run, name, out[name].Float, x, listing(f))
			}
		}
	}
	t.Logf("%d updates in place, %d values copied", inPlace, copied)
	if inPlace < 100 || copied < 100 {
		t.Errorf("%d updates in place and %d values copied: the programs do not test much", inPlace, copied)
	}
}

func listing(f *mil.Function) string {
	s := ""
	for _, op := range f.Body.Ops {
		if op.Type == "const" {
			continue
		}
		for _, r := range op.Results {
			s += r.Name + " "
		}
		s += "= " + op.Type + "("
		for _, a := range op.Args {
			for _, v := range a.Values {
				s += " " + a.Name + "=" + v.Name
			}
		}
		s += ")\n"
	}
	return s
}

// TestStateInBlocks has blocks that use what was read from a state before an
// update that stands before them.
func TestStateInBlocks(t *testing.T) {
	half := mil.TensorOf(mil.Float16, 4, 3)
	p := &mil.Value{Name: "p", Type: bool0}
	s := &mil.Value{Name: stateName, Type: mil.StateOf(mil.Float16, 4, 3)}
	read := node("read_state", "read", half, mil.A("input", s))
	row := mil.Imm(&mil.Literal{Type: mil.TensorOf(mil.Float16, 1, 3), Floats: []float64{100, 101, 102}})
	update := node("slice_update", "update", half, mil.A("x", read.Results[0]), mil.A("update", row), mil.A("begin", mil.Imm(mil.Ints(1, 0))), mil.A("end", mil.Imm(mil.Ints(2, 3))))
	write := &mil.Operation{Type: "write_state", Name: "write", Args: []mil.Arg{mil.A("data", update.Results[0]), mil.A("input", s)}}
	yes := node("identity", "yes", half, mil.A("x", read.Results[0]))
	no := node("add", "no", half, mil.A("x", read.Results[0]), mil.A("y", mil.Imm(mil.Half(1))))
	cond := &mil.Operation{Type: "cond", Name: "c", Args: []mil.Arg{mil.A("pred", p)}, Blocks: []*mil.Block{{Ops: []*mil.Operation{yes}, Outputs: yes.Results}, {Ops: []*mil.Operation{no}, Outputs: no.Results}}}
	cond.Results = []*mil.Value{{Name: "out", Type: half, Op: cond}}
	f := &mil.Function{Name: "main", Opset: mil.CoreML8, Inputs: []*mil.Value{p, s}, Body: &mil.Block{Ops: []*mil.Operation{read, update, write, cond}, Outputs: cond.Results}}
	for _, o := range []Options{{}, {NoFusion: true}, {Numerics: Float16}} {
		m := modelOf(t, f, o)
		for k := range 2 {
			st, err := m.NewState()
			if err != nil {
				t.Fatal(err)
			}
			if err := st.Write(stateName, runner.Floats(mil.Float16, startRows, 4, 3)); err != nil {
				t.Fatal(err)
			}
			out := predict(t, m, "main", runner.Values{"p": {DType: mil.Bool, Int: []int32{int32(k)}}}, st)
			for i, v := range startRows {
				if want := v + float32(1-k); out["out"].Float[i] != want {
					t.Errorf("%+v, p %d: element %d is %v, want %v", o, k, i, out["out"].Float[i], want)
				}
			}
			now, _ := st.Read(stateName)
			if got := now.Float[3:6]; !slices.Equal(got, []float32{100, 101, 102}) {
				t.Errorf("state holds %v", got)
			}
		}
		if p := (*m.funcs[0].plans.Load())[0]; p.dynamic != nil {
			t.Error("interpreted")
		}
	}
}
