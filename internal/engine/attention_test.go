package engine

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"anemone/internal/runner"
	"anemone/mil"
)

// attention builds out = softmax(scale q k' + mask) v with keys and values
// of fewer heads than the queries.
type attention struct {
	heads, kv, rows, keys, dim int
	scale, mask, flat          bool
	maskHeads                  int
}

func (a attention) function(t testing.TB) *mil.Function {
	t.Helper()
	b := mil.NewBuilder("main", mil.CoreML8)
	half := func(s ...int) mil.Type { return mil.TensorOf(mil.Float16, s...) }
	ints := func(v ...int) *mil.Value { return b.Const(mil.Ints(v...)) }
	q := b.Input("q", half(1, a.heads, a.rows, a.dim))
	all := func(name string) *mil.Value {
		x := b.Input(name, half(1, a.kv, a.keys, a.dim))
		if a.kv == a.heads {
			return x
		}
		x = b.Op("transpose", mil.A("x", x), mil.A("perm", ints(1, 0, 2, 3)))
		x = b.Op("tile", mil.A("x", x), mil.A("reps", ints(1, a.heads/a.kv, 1, 1)))
		return b.Op("reshape", mil.A("x", x), mil.A("shape", ints(1, a.heads, a.keys, a.dim)))
	}
	k, v := all("k"), all("v")
	s := b.Op("matmul", mil.A("x", q), mil.A("y", k), mil.A("transpose_y", b.Const(mil.Flag(true))))
	if a.scale {
		s = b.Op("mul", mil.A("x", b.Const(mil.Half(0.3))), mil.A("y", s))
	}
	if a.mask {
		s = b.Op("add", mil.A("x", s), mil.A("y", b.Input("mask", half(1, a.maskHeads, a.rows, a.keys))))
	}
	p := b.Op("softmax", mil.A("x", s), mil.A("axis", b.Const(mil.Int(-1))))
	if a.flat { // as coremltools writes an einsum
		p = b.Op("reshape", mil.A("x", p), mil.A("shape", ints(a.heads, a.rows, a.keys)))
		v = b.Op("reshape", mil.A("x", v), mil.A("shape", ints(a.heads, a.keys, a.dim)))
	}
	b.Output("out", b.Op("matmul", mil.A("x", p), mil.A("y", v)))
	f, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestAttention checks that attention gives the same bits as its parts, for
// masks of many kinds, and that it is one step.
func TestAttention(t *testing.T) {
	r := rand.New(rand.NewPCG(101, 102))
	inf := float32(math.Inf(-1))
	masks := map[string]func(row, key, keys int) float32{
		"causal": func(row, key, keys int) float32 {
			if key > row+3 {
				return inf
			}
			return 0
		},
		"window": func(row, key, keys int) float32 {
			if key > row+9 || key < row+2 {
				return inf
			}
			return 0
		},
		"weights": func(row, key, keys int) float32 {
			if key > keys/2 {
				return inf
			}
			return float32(key) / 7
		},
		"some rows masked": func(row, key, keys int) float32 {
			if row%3 == 0 || key > 4 {
				return inf
			}
			return 0
		},
		"everything masked": func(row, key, keys int) float32 { return inf },
		"nothing masked":    func(row, key, keys int) float32 { return 0 },
	}
	for _, a := range []attention{
		{4, 2, 1, 64, 16, true, true, false, 1}, {4, 2, 20, 64, 16, true, true, false, 1}, {4, 4, 3, 37, 8, false, true, false, 4},
		{6, 1, 33, 100, 8, true, true, true, 1}, {2, 2, 5, 3, 4, true, true, true, 2}, {4, 1, 7, 19, 5, true, false, false, 1}, {1, 1, 1, 1, 1, false, false, false, 1},
	} {
		f := a.function(t)
		fused, plain := modelOf(t, f, Options{Workers: 2}), modelOf(t, f, Options{Workers: 1, NoFusion: true})
		for name, mask := range masks {
			in := runner.Values{
				"q": runner.Floats(mil.Float16, fill(r, a.heads*a.rows*a.dim), 1, a.heads, a.rows, a.dim),
				"k": runner.Floats(mil.Float16, fill(r, a.kv*a.keys*a.dim), 1, a.kv, a.keys, a.dim),
				"v": runner.Floats(mil.Float16, fill(r, a.kv*a.keys*a.dim), 1, a.kv, a.keys, a.dim),
			}
			if a.mask {
				m := make([]float32, a.maskHeads*a.rows*a.keys)
				for i := range m {
					m[i] = mask(i/a.keys%a.rows, i%a.keys, a.keys)
				}
				in["mask"] = runner.Floats(mil.Float16, m, 1, a.maskHeads, a.rows, a.keys)
			}
			got, want := predict(t, fused, "main", in, nil)["out"], predict(t, plain, "main", in, nil)["out"]
			if !slices.Equal(got.Shape, want.Shape) {
				t.Fatalf("%+v: shapes %v and %v", a, got.Shape, want.Shape)
			}
			for i := range want.Float {
				if g, w := got.Float[i], want.Float[i]; g != w && (g == g || w == w) {
					t.Errorf("%+v, %s: element %d is %v in one step, %v in many", a, name, i, g, w)
					break
				}
			}
		}
		if n := len((*fused.funcs[0].plans.Load())[0].steps); n != 1 {
			t.Errorf("%+v takes %d steps", a, n)
		}
	}
}

// TestAttentionSkipsMaskedKeys puts NaN where the mask forbids to look.
func TestAttentionSkipsMaskedKeys(t *testing.T) {
	a := attention{heads: 2, kv: 1, rows: 1, keys: 64, dim: 8, mask: true, maskHeads: 1}
	m := modelOf(t, a.function(t), Options{})
	r := rand.New(rand.NewPCG(1, 2))
	k, v, mask := fill(r, 64*8), fill(r, 64*8), make([]float32, 64)
	for i := range mask {
		if i >= 16 {
			mask[i] = float32(math.Inf(-1))
			for j := range 8 {
				k[i*8+j], v[i*8+j] = float32(math.NaN()), float32(math.NaN())
			}
		}
	}
	out := predict(t, m, "main", runner.Values{
		"q": runner.Floats(mil.Float16, fill(r, 16), 1, 2, 1, 8), "k": runner.Floats(mil.Float16, k, 1, 1, 64, 8),
		"v": runner.Floats(mil.Float16, v, 1, 1, 64, 8), "mask": runner.Floats(mil.Float16, mask, 1, 1, 1, 64),
	}, nil)["out"].Float
	for i, x := range out {
		if x != x {
			t.Fatalf("element %d is NaN", i)
		}
	}
}

// TestChainsOfScores checks where attention must not be put together: values
// that somebody else uses, and states that change in between.
func TestChainsOfScores(t *testing.T) {
	r := rand.New(rand.NewPCG(103, 104))
	for _, c := range []struct {
		name  string
		found int
		build func(b *mil.Builder, q, k, v, st *mil.Value)
	}{
		{"plain", 1, func(b *mil.Builder, q, k, v, st *mil.Value) {
			p := b.Op("softmax", mil.A("x", b.Op("matmul", mil.A("x", q), mil.A("y", k), mil.A("transpose_y", b.Const(mil.Flag(true))))))
			b.Output("out", b.Op("matmul", mil.A("x", p), mil.A("y", v)))
		}},
		{"scores are an output", 0, func(b *mil.Builder, q, k, v, st *mil.Value) {
			p := b.Op("softmax", mil.A("x", b.Op("matmul", mil.A("x", q), mil.A("y", k), mil.A("transpose_y", b.Const(mil.Flag(true))))))
			b.Output("p", p)
			b.Output("out", b.Op("matmul", mil.A("x", p), mil.A("y", v)))
		}},
		{"scores are used twice", 0, func(b *mil.Builder, q, k, v, st *mil.Value) {
			s := b.Op("matmul", mil.A("x", q), mil.A("y", k), mil.A("transpose_y", b.Const(mil.Flag(true))))
			p := b.Op("softmax", mil.A("x", s))
			b.Output("out", b.Op("add", mil.A("x", b.Op("matmul", mil.A("x", p), mil.A("y", v))), mil.A("y", b.Op("reduce_sum", mil.A("x", s), mil.A("keep_dims", b.Const(mil.Flag(true)))))))
		}},
		{"softmax along the rows", 1, func(b *mil.Builder, q, k, v, st *mil.Value) {
			p := b.Op("softmax", mil.A("x", b.Op("matmul", mil.A("x", q), mil.A("y", k), mil.A("transpose_y", b.Const(mil.Flag(true))))), mil.A("axis", b.Const(mil.Int(-2))))
			b.Output("out", b.Op("matmul", mil.A("x", p), mil.A("y", v)))
		}},
		{"scores on the right", 0, func(b *mil.Builder, q, k, v, st *mil.Value) {
			p := b.Op("softmax", mil.A("x", b.Op("matmul", mil.A("x", k), mil.A("y", q), mil.A("transpose_y", b.Const(mil.Flag(true))))))
			b.Output("out", b.Op("matmul", mil.A("x", v), mil.A("y", p), mil.A("transpose_x", b.Const(mil.Flag(true)))))
		}},
		{"reshape that mixes rows", 1, func(b *mil.Builder, q, k, v, st *mil.Value) {
			p := b.Op("softmax", mil.A("x", b.Op("matmul", mil.A("x", q), mil.A("y", k), mil.A("transpose_y", b.Const(mil.Flag(true))))))
			p = b.Op("reshape", mil.A("x", p), mil.A("shape", b.Const(mil.Ints(1, 6, 5))))
			b.Output("out", b.Op("matmul", mil.A("x", p), mil.A("y", b.Op("reshape", mil.A("x", v), mil.A("shape", b.Const(mil.Ints(1, 5, 4)))))))
		}},
		{"mask of another rank", 1, func(b *mil.Builder, q, k, v, st *mil.Value) {
			s := b.Op("matmul", mil.A("x", q), mil.A("y", k), mil.A("transpose_y", b.Const(mil.Flag(true))))
			m := b.Op("reduce_sum", mil.A("x", k), mil.A("axes", b.Const(mil.Ints(-1))))
			s = b.Op("add", mil.A("x", s), mil.A("y", b.Op("reshape", mil.A("x", m), mil.A("shape", b.Const(mil.Ints(1, 1, 5))))))
			b.Output("out", b.Op("matmul", mil.A("x", b.Op("softmax", mil.A("x", s))), mil.A("y", v)))
		}},
		{"the keys change in between", 0, func(b *mil.Builder, q, k, v, st *mil.Value) {
			old := b.Op("read_state", mil.A("input", st))
			s := b.Op("matmul", mil.A("x", q), mil.A("y", old), mil.A("transpose_y", b.Const(mil.Flag(true))))
			u := b.Op("slice_update", mil.A("x", old), mil.A("update", k), mil.A("begin", b.Const(mil.Ints(0, 0, 0))), mil.A("end", b.Const(mil.Ints(1, 5, 4))))
			b.OpAll("write_state", mil.A("input", st), mil.A("data", u))
			b.Output("out", b.Op("matmul", mil.A("x", b.Op("softmax", mil.A("x", s))), mil.A("y", b.Op("read_state", mil.A("input", st)))))
		}},
	} {
		b := mil.NewBuilder("main", mil.CoreML8)
		half := func(s ...int) mil.Type { return mil.TensorOf(mil.Float16, s...) }
		q, k, v := b.Input("q", half(1, 6, 4)), b.Input("k", half(1, 5, 4)), b.Input("v", half(1, 5, 4))
		st := b.Input("st", mil.StateOf(mil.Float16, 1, 5, 4))
		c.build(b, q, k, v, st)
		f, err := b.Build()
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if n := len(chains(f)); n != c.found {
			t.Errorf("%s: %d chains, want %d", c.name, n, c.found)
		}
		in := runner.Values{"q": runner.Floats(mil.Float16, fill(r, 24), 1, 6, 4), "k": runner.Floats(mil.Float16, fill(r, 20), 1, 5, 4), "v": runner.Floats(mil.Float16, fill(r, 20), 1, 5, 4)}
		cache := fill(r, 20)
		var results []runner.Values
		for _, o := range []Options{{}, {NoFusion: true}} {
			m := modelOf(t, f, o)
			s, _ := m.NewState()
			if err := s.Write("st", runner.Floats(mil.Float16, slices.Clone(cache), 1, 5, 4)); err != nil {
				t.Fatal(err)
			}
			results = append(results, predict(t, m, "main", in, s))
		}
		for name, want := range results[1] {
			if got := results[0][name]; !slices.Equal(got.Float, want.Float) || !slices.Equal(got.Shape, want.Shape) {
				t.Errorf("%s: %s differs from the plan without fusion", c.name, name)
			}
		}
	}
}

// TestFusionOfLayers checks whole decoder layers, with their states.
func TestFusionOfLayers(t *testing.T) {
	fused, plain := layerModel(t, Options{}), layerModel(t, Options{NoFusion: true})
	if !slices.Equal(smallLayer.run(t, fused), smallLayer.run(t, plain)) {
		t.Error("fusion changes the results")
	}
	count := func(m *Model) (n int) {
		for _, f := range m.funcs {
			for _, p := range *f.plans.Load() {
				n += len(p.steps)
			}
		}
		return n
	}
	if f, p := count(fused), count(plain); f != p-4*4 {
		t.Errorf("%d steps with fusion, %d without, want 4 less in each of 4 layers", f, p)
	}
}
