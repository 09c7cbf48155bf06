package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"anemone/coreml"
	"anemone/internal/float16"
	"anemone/internal/runner"
	"anemone/mil"
)

// lutCase is a compressed weight and its dense form.
type lutCase struct {
	name  string
	shape []int
	build func(b *mil.Builder) *mil.Value
	dense []float32
}

func stored(t testing.TB, typ mil.Type, b []byte) mil.Weight {
	t.Helper()
	w, err := mil.NewWeight(typ, b)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// packBits stores indices of a width, the first in the lowest bits.
func packBits(idx []int, width int) []byte {
	b := make([]byte, (len(idx)*width+7)/8)
	for i, k := range idx {
		for j := range width {
			if k>>j&1 != 0 {
				b[(i*width+j)/8] |= 1 << ((i*width + j) % 8)
			}
		}
	}
	return b
}

func halfBytes(x []float32) []byte {
	var b []byte
	for _, f := range x {
		h := float16.FromFloat32(f)
		b = append(b, byte(h), byte(h>>8))
	}
	return b
}

// lutOf makes a weight of iOS 18's form: shape is that of the indices, and
// groups says how many tables there are along each axis.
func lutOf(t testing.TB, r *rand.Rand, width int, shape, groups []int, asWeights bool) lutCase {
	n, _ := mil.NumElements(shape)
	g, _ := mil.NumElements(groups)
	entries := 1 << width
	tables := make([]float32, g*entries)
	for i := range tables {
		tables[i] = float16.Round(float32(r.NormFloat64()))
	}
	idx := make([]int, n)
	dense := make([]float32, n)
	for i := range idx {
		idx[i] = r.IntN(entries)
		rest, tab, scale := i, 0, 1
		for a := len(shape) - 1; a >= 0; a-- {
			k := rest % shape[a]
			rest /= shape[a]
			tab += k / (shape[a] / groups[a]) * scale
			scale *= groups[a]
		}
		dense[i] = tables[tab*entries+idx[i]]
	}
	dt, ok := mil.ParseDType(fmt.Sprintf("uint%d", width))
	if !ok {
		t.Fatalf("no uint%d", width)
	}
	it := mil.TensorOf(dt, shape...)
	lt := mil.TensorOf(mil.Float16, append(slices.Clone(groups), entries, 1)...)
	return lutCase{fmt.Sprintf("%d bits, indices %v, tables %v", width, shape, groups), shape, func(b *mil.Builder) *mil.Value {
		if asWeights {
			return b.Constexpr("constexpr_lut_to_dense", "w",
				mil.A("indices", mil.ImmWeight(stored(t, it, packBits(idx, width)))), mil.A("lut", mil.ImmWeight(stored(t, lt, halfBytes(tables)))))
		}
		il, ll := &mil.Literal{Type: it}, &mil.Literal{Type: lt}
		for _, k := range idx {
			il.Ints = append(il.Ints, int64(k))
		}
		for _, f := range tables {
			ll.Floats = append(ll.Floats, float64(f))
		}
		return b.Constexpr("constexpr_lut_to_dense", "w", mil.A("indices", mil.Imm(il)), mil.A("lut", mil.Imm(ll)))
	}, dense}
}

func lutCases(t testing.TB) []lutCase {
	r := rand.New(rand.NewPCG(21, 22))
	var cases []lutCase
	for _, width := range []int{1, 2, 3, 4, 6, 8} {
		cases = append(cases,
			lutOf(t, r, width, []int{16, 128}, []int{2, 1}, true),
			lutOf(t, r, width, []int{16, 24}, []int{16, 1}, false),
			lutOf(t, r, width, []int{5, 130}, []int{1, 1}, true),
			lutOf(t, r, width, []int{8, 256}, []int{2, 2}, true), // tables along the columns, as packing likes them
			lutOf(t, r, width, []int{6, 12}, []int{3, 4}, true),  // and as it does not
		)
	}
	return cases
}

func fill(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

func closeTo(t *testing.T, what string, got []float32, want []float64, tol float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d values, want %d", what, len(got), len(want))
		return
	}
	for i := range got {
		if !agree(float64(got[i]), want[i], tol) {
			t.Errorf("%s: element %d is %v, want %v", what, i, got[i], want[i])
			return
		}
	}
}

// TestCompressedWeights uses every form of a look-up table in every
// operation that takes weights, with one column and with many, and holds the
// results to the dense weights.
func TestCompressedWeights(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 32))
	for _, c := range lutCases(t) {
		rows, cols := c.shape[0], c.shape[1]
		for _, n := range []int{1, 3} {
			x := fill(r, n*cols)
			y := fill(r, n*rows)
			want := make([]float64, n*rows)   // x * w^T
			turned := make([]float64, n*cols) // y * w
			for i := range n {
				for j := range rows {
					for k := range cols {
						w := float64(c.dense[j*cols+k])
						want[i*rows+j] += float64(x[i*cols+k]) * w
						turned[i*cols+k] += float64(y[i*rows+j]) * w
					}
				}
			}
			b := mil.NewBuilder("main", mil.CoreML8)
			w := c.build(b)
			xi := b.Input("x", mil.TensorOf(mil.Float16, n, cols))
			yi := b.Input("y", mil.TensorOf(mil.Float16, n, rows))
			b.Output("linear", b.Op("linear", mil.A("x", xi), mil.A("weight", w)))
			b.Output("matmul", b.Op("matmul", mil.A("x", xi), mil.A("y", w), mil.A("transpose_y", b.Const(mil.Flag(true)))))
			b.Output("turned", b.Op("matmul", mil.A("x", yi), mil.A("y", w)))
			b.Output("dense", b.Op("identity", mil.A("x", w)))
			b.Output("added", b.Op("add", mil.A("x", w), mil.A("y", b.Const(mil.Half(1)))))
			b.Output("rows", b.Op("gather", mil.A("x", w), mil.A("indices", b.Const(mil.Ints(rows-1, 0, 1))), mil.A("axis", b.Const(mil.Int(0)))))
			w4 := b.Op("expand_dims", mil.A("x", w), mil.A("axes", b.Const(mil.Ints(2, 3))))
			x4 := b.Op("expand_dims", mil.A("x", b.Op("transpose", mil.A("x", xi), mil.A("perm", b.Const(mil.Ints(1, 0))))), mil.A("axes", b.Const(mil.Ints(0, 2))))
			b.Output("conv", b.Op("conv", mil.A("x", x4), mil.A("weight", w4)))
			f, err := b.Build()
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			m := modelOf(t, f, Options{Workers: 2})
			in := runner.Values{"x": runner.Floats(mil.Float16, x, n, cols), "y": runner.Floats(mil.Float16, y, n, rows)}
			out := predict(t, m, "main", in, nil)
			what := fmt.Sprintf("%s, %d columns: ", c.name, n)
			closeTo(t, what+"linear", out["linear"].Float, want, 2e-5)
			closeTo(t, what+"matmul", out["matmul"].Float, want, 2e-5)
			closeTo(t, what+"turned", out["turned"].Float, turned, 2e-5)
			if !slices.Equal(out["dense"].Float, c.dense) {
				t.Errorf("%sdense form differs", what)
			}
			for i, d := range c.dense {
				if out["added"].Float[i] != d+1 {
					t.Errorf("%sdense form plus 1 differs", what)
					break
				}
			}
			if got := out["rows"].Float; !slices.Equal(got, slices.Concat(c.dense[(rows-1)*cols:], c.dense[:2*cols])) {
				t.Errorf("%sgathered rows differ", what)
			}
			conv := make([]float64, len(want)) // [1, rows, 1, n]
			for i := range n {
				for j := range rows {
					conv[j*n+i] = want[i*rows+j]
				}
			}
			closeTo(t, what+"conv", out["conv"].Float, conv, 2e-5)
		}
	}
}

// TestOldPalettized reads the form before iOS 18, whose operands are
// attributes and whose indices are packed in uint8.
func TestOldPalettized(t *testing.T) {
	idx := []int{0, 1, 2, 3, 3, 2, 1, 0, 1, 1, 2, 2}
	table := []float32{-1, 0.5, 2, 4}
	packed := packBits(idx, 2)
	w := &mil.Value{Name: "w", Type: mil.TensorOf(mil.Float16, 3, 4)}
	lut := &mil.Literal{Type: mil.TensorOf(mil.Float16, 4), Floats: []float64{-1, 0.5, 2, 4}}
	op := &mil.Operation{Type: "constexpr_lut_to_dense", Results: []*mil.Value{w}, Attributes: []mil.Attribute{
		{Name: "indices", Value: mil.ImmWeight(stored(t, mil.TensorOf(mil.UInt8, len(packed)), packed))},
		{Name: "lut", Value: mil.Imm(lut)},
		{Name: "shape", Value: mil.Imm(&mil.Literal{Type: mil.TensorOf(mil.UInt32, 2), Ints: []int64{3, 4}})},
	}}
	w.Op = op
	x := &mil.Value{Name: "x", Type: mil.TensorOf(mil.Float16, 1, 4)}
	y := &mil.Value{Name: "y", Type: mil.TensorOf(mil.Float16, 1, 3)}
	lin := &mil.Operation{Type: "linear", Args: []mil.Arg{mil.A("weight", w), mil.A("x", x)}, Results: []*mil.Value{y}}
	y.Op = lin
	f := &mil.Function{Name: "main", Opset: mil.CoreML6, Inputs: []*mil.Value{x}, Body: &mil.Block{Ops: []*mil.Operation{op, lin}, Outputs: []*mil.Value{y}}}
	m := modelOf(t, f, Options{})
	in := []float32{1, 2, 3, 4}
	got := predict(t, m, "main", runner.Values{"x": runner.Floats(mil.Float16, in, 1, 4)}, nil)["y"].Float
	for i := range 3 {
		var want float32
		for j := range 4 {
			want += in[j] * table[idx[4*i+j]]
		}
		if got[i] != want {
			t.Errorf("row %d is %v, want %v", i, got[i], want)
		}
	}
}

// TestVectorPalettized reads tables whose entries are several elements.
func TestVectorPalettized(t *testing.T) {
	for axis := range 2 {
		idx := []int{0, 1, 1, 0, 0, 1} // [2, 3]
		table := []float64{1, 2, 3, 4} // entries (1, 2) and (3, 4)
		b := mil.NewBuilder("main", mil.CoreML8)
		il := &mil.Literal{Type: mil.TensorOf(mil.UInt1, 2, 3)}
		for _, k := range idx {
			il.Ints = append(il.Ints, int64(k))
		}
		w := b.Constexpr("constexpr_lut_to_dense", "w", mil.A("indices", mil.Imm(il)),
			mil.A("lut", mil.Imm(&mil.Literal{Type: mil.TensorOf(mil.Float16, 1, 1, 2, 2), Floats: table})), mil.A("vector_axis", mil.Imm(mil.Int(axis))))
		b.Output("out", b.Op("identity", mil.A("x", w)))
		f, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		want := [][]float32{{1, 3, 3, 2, 4, 4, 1, 1, 3, 2, 2, 4}, {1, 2, 3, 4, 3, 4, 1, 2, 1, 2, 3, 4}}[axis]
		if got := predict(t, modelOf(t, f, Options{}), "main", runner.Values{}, nil)["out"].Float; !slices.Equal(got, want) {
			t.Errorf("axis %d: %v, want %v", axis, got, want)
		}
	}
}

// testLayer is a decoder layer in the shape of ANEMLL's, with random
// weights: cache update, repeated heads, attention, and a gated product.
type testLayer struct{ hidden, heads, kv, dim, ctx, inner int }

func (l testLayer) function(t testing.TB, name string, tokens, layers int) *mil.Function {
	t.Helper()
	r := rand.New(rand.NewPCG(41, 42))
	b := mil.NewBuilder(name, mil.CoreML8)
	ints := func(v ...int) *mil.Value { return b.Const(mil.Ints(v...)) }
	h := b.Input("hidden_states", mil.TensorOf(mil.Float16, 1, tokens, l.hidden))
	mask := b.Input("causal_mask", mil.TensorOf(mil.Float16, 1, 1, tokens, l.ctx))
	pos := b.Input("current_pos", mil.TensorOf(mil.Int32, 1))
	st := b.Input("kv", mil.StateOf(mil.Float16, 2*layers, l.kv, l.ctx, l.dim))
	conv := func(x *mil.Value, out, in int) *mil.Value {
		c := lutOf(t, r, 4, []int{out, in, 1, 1}, []int{out / 8, 1, 1, 1}, true)
		return b.Op("conv", mil.A("x", x), mil.A("weight", c.build(b)))
	}
	channels := func(x *mil.Value) *mil.Value {
		return b.Op("expand_dims", mil.A("x", b.Op("transpose", mil.A("x", x), mil.A("perm", ints(0, 2, 1)))), mil.A("axes", ints(2)))
	}
	back := func(x *mil.Value) *mil.Value {
		return b.Op("transpose", mil.A("x", b.Op("squeeze", mil.A("x", x), mil.A("axes", ints(2)))), mil.A("perm", ints(0, 2, 1)))
	}
	end := b.Op("add", mil.A("x", pos), mil.A("y", b.Const(mil.Int(tokens))))
	for i := range layers {
		x := channels(b.Op("layer_norm", mil.A("x", h), mil.A("axes", ints(-1))))
		split := func(x *mil.Value, n int) *mil.Value {
			x = b.Op("reshape", mil.A("x", x), mil.A("shape", ints(1, n, l.dim, tokens)))
			return b.Op("transpose", mil.A("x", x), mil.A("perm", ints(0, 1, 3, 2)))
		}
		q := split(conv(x, l.heads*l.dim, l.hidden), l.heads)
		k := split(conv(x, l.kv*l.dim, l.hidden), l.kv)
		v := split(conv(x, l.kv*l.dim, l.hidden), l.kv)
		update := func(row int, u *mil.Value) *mil.Value {
			begin := b.Op("concat", mil.A("values", ints(row), ints(0), pos, ints(0)), mil.A("axis", b.Const(mil.Int(0))))
			stop := b.Op("concat", mil.A("values", ints(row+1), ints(l.kv), end, ints(l.dim)), mil.A("axis", b.Const(mil.Int(0))))
			read := b.Op("read_state", mil.A("input", st))
			new := b.Op("slice_update", mil.A("x", read), mil.A("update", u), mil.A("begin", begin), mil.A("end", stop))
			return b.Op("coreml_update_state", mil.A("state", st), mil.A("value", new))
		}
		update(i, k)
		cache := update(layers+i, v)
		all := func(row int) *mil.Value {
			c := b.Op("slice_by_index", mil.A("x", cache), mil.A("begin", ints(row, 0, 0, 0)), mil.A("end", ints(row+1, l.kv, l.ctx, l.dim)))
			c = b.Op("transpose", mil.A("x", c), mil.A("perm", ints(1, 0, 2, 3)))
			c = b.Op("tile", mil.A("x", c), mil.A("reps", ints(1, l.heads/l.kv, 1, 1)))
			return b.Op("reshape", mil.A("x", c), mil.A("shape", ints(1, l.heads, l.ctx, l.dim)))
		}
		s := b.Op("matmul", mil.A("x", q), mil.A("y", all(i)), mil.A("transpose_y", b.Const(mil.Flag(true))))
		s = b.Op("mul", mil.A("x", s), mil.A("y", b.Const(mil.Half(1/math.Sqrt(float64(l.dim))))))
		s = b.Op("softmax", mil.A("x", b.Op("add", mil.A("x", s), mil.A("y", mask))), mil.A("axis", b.Const(mil.Int(-1))))
		a := b.Op("matmul", mil.A("x", s), mil.A("y", all(layers+i)))
		a = b.Op("reshape", mil.A("x", b.Op("transpose", mil.A("x", a), mil.A("perm", ints(0, 2, 1, 3)))), mil.A("shape", ints(1, tokens, l.heads*l.dim)))
		h = b.Op("add", mil.A("x", h), mil.A("y", back(conv(channels(a), l.hidden, l.heads*l.dim))))
		x = channels(b.Op("layer_norm", mil.A("x", h), mil.A("axes", ints(-1))))
		g := b.Op("mul", mil.A("x", b.Op("silu", mil.A("x", conv(x, l.inner, l.hidden)))), mil.A("y", conv(x, l.inner, l.hidden)))
		h = b.Op("add", mil.A("x", h), mil.A("y", back(conv(g, l.hidden, l.inner))))
	}
	b.Output("output_hidden_states", h)
	f, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (l testLayer) inputs(r *rand.Rand, tokens, pos int) runner.Values {
	mask := make([]float32, tokens*l.ctx)
	for i := range tokens {
		for j := pos + i + 1; j < l.ctx; j++ {
			mask[i*l.ctx+j] = float32(math.Inf(-1))
		}
	}
	return runner.Values{
		"hidden_states": runner.Floats(mil.Float16, fill(r, tokens*l.hidden), 1, tokens, l.hidden),
		"causal_mask":   runner.Floats(mil.Float16, mask, 1, 1, tokens, l.ctx),
		"current_pos":   runner.Ints([]int32{int32(pos)}, 1),
	}
}

var smallLayer = testLayer{hidden: 64, heads: 4, kv: 2, dim: 16, ctx: 64, inner: 128}

func layerModel(t testing.TB, o Options) *Model {
	t.Helper()
	m, err := New(&coreml.Model{
		Program:         &mil.Program{Functions: []*mil.Function{smallLayer.function(t, "prefill", 16, 2), smallLayer.function(t, "infer", 1, 2)}},
		DefaultFunction: "infer",
	}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// run feeds 16 tokens by prefill and 4 by infer, and returns every output.
func (l testLayer) run(t testing.TB, m *Model) (all []float32) {
	t.Helper()
	r := rand.New(rand.NewPCG(51, 52))
	st, err := m.NewState()
	if err != nil {
		t.Fatal(err)
	}
	all = append(all, predict(t, m, "prefill", l.inputs(r, 16, 0), st)["output_hidden_states"].Float...)
	for i := range 4 {
		all = append(all, predict(t, m, "infer", l.inputs(r, 1, 16+i), st)["output_hidden_states"].Float...)
	}
	kv, err := st.Read("kv")
	if err != nil {
		t.Fatal(err)
	}
	return append(all, kv.Float...)
}

// TestWorkers checks that results are the same bits for any number of
// workers.
func TestWorkers(t *testing.T) {
	want := smallLayer.run(t, layerModel(t, Options{Workers: 1}))
	for _, x := range want {
		if x != x {
			t.Fatal("results hold NaN")
		}
	}
	for _, w := range []int{2, 3, 8} {
		if got := smallLayer.run(t, layerModel(t, Options{Workers: w})); !slices.Equal(got, want) {
			t.Errorf("%d workers give other bits than one", w)
		}
	}
}

// TestPrefillEqualsInfer feeds the same tokens at once and one by one.
func TestPrefillEqualsInfer(t *testing.T) {
	m := layerModel(t, Options{})
	r := rand.New(rand.NewPCG(61, 62))
	in := smallLayer.inputs(r, 16, 0)
	one, _ := m.NewState()
	many, _ := m.NewState()
	want := predict(t, m, "prefill", in, many)["output_hidden_states"].Float
	var got []float32
	for i := range 16 {
		x := smallLayer.inputs(r, 1, i)
		x["hidden_states"].Float = in["hidden_states"].Float[i*64 : (i+1)*64]
		got = append(got, predict(t, m, "infer", x, one)["output_hidden_states"].Float...)
	}
	largest := func(x []float32) float64 { return maxDiff(t, x, make([]float32, len(x))) }
	if d := maxDiff(t, got, want) / largest(want); !(d < 2e-6) {
		t.Errorf("hidden states differ by up to %g of the largest", d)
	}
	a, _ := one.Read("kv")
	b, _ := many.Read("kv")
	if d := maxDiff(t, a.Float, b.Float) / largest(b.Float); !(d < 2e-6) {
		t.Errorf("caches differ by up to %g of the largest", d)
	}
}

// TestNoAllocation checks that a call allocates nothing once it has run.
func TestNoAllocation(t *testing.T) {
	for _, workers := range []int{1, 2} {
		m := layerModel(t, Options{Workers: workers})
		st, _ := m.NewState()
		r := rand.New(rand.NewPCG(71, 72))
		for _, c := range []struct {
			fn     string
			tokens int
		}{{"infer", 1}, {"prefill", 16}} {
			in, out := smallLayer.inputs(r, c.tokens, 0), runner.Values{}
			call := func() {
				if err := m.Predict(context.Background(), c.fn, in, out, st); err != nil {
					t.Fatal(err)
				}
			}
			call()
			if n := testing.AllocsPerRun(20, call); n > 0 {
				t.Errorf("%s with %d workers allocates %v times", c.fn, workers, n)
			}
		}
	}
}

// TestCacheIsNotCopied checks the memory for values: the cache and its
// repeated heads would need more.
func TestCacheIsNotCopied(t *testing.T) {
	l := testLayer{hidden: 16, heads: 8, kv: 1, dim: 64, ctx: 512, inner: 16}
	f := l.function(t, "main", 1, 1)
	m := modelOf(t, f, Options{Workers: 1})
	st, _ := m.NewState()
	predict(t, m, "main", l.inputs(rand.New(rand.NewPCG(1, 1)), 1, 5), st)
	p := (*m.funcs[0].plans.Load())[0]
	if cache := l.kv * l.ctx * l.dim; p.f > cache {
		t.Errorf("the plan has %d values; one layer's keys are %d", p.f, cache)
	}
	s := m.Stats()
	if s.State != 4*2*512*64 || s.Plans != 1 || s.Packed == 0 || s.Arenas < int64(4*p.f) || s.Mapped == 0 || s.Held() < s.Packed {
		t.Errorf("stats: %+v", s)
	}
}

// TestConcurrentCalls runs one model from several goroutines, each with its
// own state.
func TestConcurrentCalls(t *testing.T) {
	m := layerModel(t, Options{Workers: 3})
	want := smallLayer.run(t, layerModel(t, Options{Workers: 1}))
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 3 {
				if got := smallLayer.run(t, m); !slices.Equal(got, want) {
					t.Errorf("goroutine %d: other results", g)
				}
			}
		}()
	}
	wg.Wait()
}

// TestFunctionsShareWeights checks that two functions over the same bytes
// pack them once.
func TestFunctionsShareWeights(t *testing.T) {
	idx, table := packBits(make([]int, 64*128), 4), halfBytes(make([]float32, 16))
	build := func(name string, n int) *mil.Function {
		b := mil.NewBuilder(name, mil.CoreML8)
		// Two Weights over the same memory, as two readers would give.
		w := b.Constexpr("constexpr_lut_to_dense", "w", mil.A("indices", mil.ImmWeight(stored(t, mil.TensorOf(mil.UInt4, 64, 128), idx))),
			mil.A("lut", mil.ImmWeight(stored(t, mil.TensorOf(mil.Float16, 1, 1, 16, 1), table))))
		b.Output("out", b.Op("linear", mil.A("x", b.Input("x", mil.TensorOf(mil.Float16, n, 128))), mil.A("weight", w)))
		f, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	m, err := New(&coreml.Model{Program: &mil.Program{Functions: []*mil.Function{build("a", 1), build("b", 4)}}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	predict(t, m, "a", runner.Values{"x": runner.Floats(mil.Float16, make([]float32, 128), 1, 128)}, nil)
	once := m.Stats().Packed
	predict(t, m, "b", runner.Values{"x": runner.Floats(mil.Float16, make([]float32, 512), 4, 128)}, nil)
	if twice := m.Stats().Packed; once != 64*128/2+16*4 || twice != once {
		t.Errorf("one function holds %d bytes, two %d", once, twice)
	}
}

// TestShapes runs a function with several shapes of its input.
func TestShapes(t *testing.T) {
	b := mil.NewBuilder("main", mil.CoreML8)
	ids := b.Input("ids", mil.TensorOf(mil.Int32, 1, mil.Dynamic))
	table := b.Const(&mil.Literal{Type: mil.TensorOf(mil.Float16, 3, 2), Floats: []float64{0, 1, 10, 11, 20, 21}})
	x := b.Op("gather", mil.A("x", table), mil.A("indices", ids), mil.A("axis", b.Const(mil.Int(0))))
	b.Output("out", x)
	b.Output("shape", b.Op("shape", mil.A("x", x)))
	f, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(&coreml.Model{
		Program:   &mil.Program{Functions: []*mil.Function{f}},
		Functions: []coreml.Function{{Name: "main", Inputs: []coreml.Feature{{Name: "ids", DType: mil.Int32, Shape: []int{1, 1}, Shapes: [][]int{{1, 1}, {1, 3}}}}}},
	}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	out := runner.Values{}
	for range 2 {
		for _, c := range []struct {
			ids  []int32
			want []float32
		}{{[]int32{2}, []float32{20, 21}}, {[]int32{1, 0, -1}, []float32{10, 11, 0, 1, 20, 21}}} {
			if err := m.Predict(context.Background(), "main", runner.Values{"ids": runner.Ints(c.ids, 1, len(c.ids))}, out, nil); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(out["out"].Float, c.want) || !slices.Equal(out["out"].Shape, []int{1, len(c.ids), 2}) || !slices.Equal(out["shape"].Int, []int32{1, int32(len(c.ids)), 2}) {
				t.Errorf("ids %v: %v %v", c.ids, out["out"], out["shape"])
			}
		}
	}
	err = m.Predict(context.Background(), "main", runner.Values{"ids": runner.Ints(make([]int32, 2), 1, 2)}, out, nil)
	if err == nil || !strings.Contains(err.Error(), "[[1 1] [1 3]]") {
		t.Errorf("shape that is not listed: %v", err)
	}
	if n := m.Stats().Plans; n != 2 {
		t.Errorf("%d plans, want 2", n)
	}
}

func TestPredictErrors(t *testing.T) {
	m := layerModel(t, Options{Workers: 1})
	st, _ := m.NewState()
	r := rand.New(rand.NewPCG(1, 1))
	other := modelOf(t, testLayer{hidden: 16, heads: 2, kv: 1, dim: 8, ctx: 32, inner: 16}.function(t, "main", 1, 1), Options{})
	otherState, _ := other.NewState()
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	for _, c := range []struct {
		name, want string
		ctx        context.Context
		fn         string
		change     func(in runner.Values)
		st         runner.State
	}{
		{"unknown function", `no function "decode" (it has infer, prefill)`, nil, "decode", nil, st},
		{"missing input", `input "current_pos" is missing`, nil, "infer", func(in runner.Values) { delete(in, "current_pos") }, st},
		{"wrong type", `input "current_pos" is fp32, want int32`, nil, "infer", func(in runner.Values) { in["current_pos"] = runner.Floats(mil.Float32, []float32{1}, 1) }, st},
		{"wrong shape", `input "hidden_states" has the shape [1 2 64]`, nil, "infer", func(in runner.Values) {
			in["hidden_states"] = runner.Floats(mil.Float16, make([]float32, 128), 1, 2, 64)
		}, st},
		{"wrong rank", `input "hidden_states" has the shape [64]`, nil, "infer", func(in runner.Values) {
			in["hidden_states"] = runner.Floats(mil.Float16, make([]float32, 64), 64)
		}, st},
		{"short data", `input "hidden_states": tensor of shape [1 1 64]`, nil, "infer", func(in runner.Values) {
			in["hidden_states"] = runner.Floats(mil.Float16, make([]float32, 63), 1, 1, 64)
		}, st},
		{"no state", "none were given", nil, "infer", nil, nil},
		{"foreign state", "another kind of runner", nil, "infer", nil, foreignState{}},
		{"state of another shape", `state "kv" is a fp16 of [2 1 32 8], want fp16 of [4 2 64 16]`, nil, "infer", nil, otherState},
		{"position beyond the cache", "slice_update", nil, "infer", func(in runner.Values) { in["current_pos"].Int[0] = 64 }, st},
		{"canceled", "context canceled", canceled, "infer", nil, st},
	} {
		in := smallLayer.inputs(r, 1, 0)
		if c.change != nil {
			c.change(in)
		}
		if c.ctx == nil {
			c.ctx = context.Background()
		}
		err := m.Predict(c.ctx, c.fn, in, runner.Values{}, c.st)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
	}
	if err := m.Predict(context.Background(), "infer", smallLayer.inputs(r, 1, 0), nil, st); err == nil {
		t.Error("nil outputs: no error")
	}
	// After errors the model still works.
	predict(t, m, "infer", smallLayer.inputs(r, 1, 3), st)
	m.Close()
	if err := m.Predict(context.Background(), "infer", smallLayer.inputs(r, 1, 0), runner.Values{}, st); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("closed model: %v", err)
	}
}

type foreignState struct{ runner.State }

// TestCancel stops a call between two steps.
func TestCancel(t *testing.T) {
	m := layerModel(t, Options{Workers: 1})
	st, _ := m.NewState()
	in := smallLayer.inputs(rand.New(rand.NewPCG(1, 1)), 1, 0)
	predict(t, m, "infer", in, st)
	ctx := &countdown{Context: context.Background(), left: 10}
	if err := m.Predict(ctx, "infer", in, runner.Values{}, st); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
	if ctx.left != 0 {
		t.Errorf("asked %d times less than there are steps", ctx.left)
	}
}

// countdown is done after a number of questions.
type countdown struct {
	context.Context
	left int
}

func (c *countdown) Err() error {
	if c.left == 0 {
		return context.Canceled
	}
	c.left--
	return nil
}

// TestRuntimeErrors checks what only the values of a call can get wrong.
func TestRuntimeErrors(t *testing.T) {
	table := func(b *mil.Builder) *mil.Value {
		return b.Const(&mil.Literal{Type: mil.TensorOf(mil.Float16, 3, 2), Floats: make([]float64, 6)})
	}
	for _, c := range []struct {
		name, want string
		build      func(b *mil.Builder, k *mil.Value) *mil.Value
		k          int32
	}{
		{"gather beyond the end", `gather "out": index 3 is outside a dimension of 3`, func(b *mil.Builder, k *mil.Value) *mil.Value {
			return b.Op("gather", mil.A("x", table(b)), mil.A("indices", k), mil.A("axis", b.Const(mil.Int(0))))
		}, 3},
		{"gather before the start", "index -4 is outside a dimension of 3", func(b *mil.Builder, k *mil.Value) *mil.Value {
			return b.Op("gather", mil.A("x", table(b)), mil.A("indices", k), mil.A("axis", b.Const(mil.Int(0))))
		}, -4},
		{"gather_nd beyond the end", "index 3 is outside a dimension of 3", func(b *mil.Builder, k *mil.Value) *mil.Value {
			return b.Op("gather_nd", mil.A("x", table(b)), mil.A("indices", b.Op("expand_dims", mil.A("x", k), mil.A("axes", b.Const(mil.Ints(0))))))
		}, 3},
		{"gather_along_axis beyond the end", "index 2 is outside a dimension of 2", func(b *mil.Builder, k *mil.Value) *mil.Value {
			k = b.Op("tile", mil.A("x", b.Op("expand_dims", mil.A("x", k), mil.A("axes", b.Const(mil.Ints(0))))), mil.A("reps", b.Const(mil.Ints(3, 1))))
			return b.Op("gather_along_axis", mil.A("x", table(b)), mil.A("indices", k), mil.A("axis", b.Const(mil.Int(1))))
		}, 2},
		{"slice_by_size beyond the end", "2 elements from 2 of dimension 0, which has 3", func(b *mil.Builder, k *mil.Value) *mil.Value {
			begin := b.Op("concat", mil.A("values", k, b.Const(mil.Ints(0))), mil.A("axis", b.Const(mil.Int(0))))
			return b.Op("slice_by_size", mil.A("x", table(b)), mil.A("begin", begin), mil.A("size", b.Const(mil.Ints(2, 2))))
		}, 2},
		{"squeezed index beyond the end", "index 5 of dimension 0 is outside 0 to 2", func(b *mil.Builder, k *mil.Value) *mil.Value {
			begin := b.Op("concat", mil.A("values", k, b.Const(mil.Ints(0))), mil.A("axis", b.Const(mil.Int(0))))
			return b.Op("slice_by_index", mil.A("x", table(b)), mil.A("begin", begin), mil.A("end", b.Const(mil.Ints(0, 2))), mil.A("end_mask", b.Const(mil.Bools(false, true))), mil.A("squeeze_mask", b.Const(mil.Bools(true, false))))
		}, 5},
	} {
		b := mil.NewBuilder("main", mil.CoreML8)
		v := c.build(b, b.Input("k", mil.TensorOf(mil.Int32, 1)))
		if v == nil {
			t.Fatalf("%s: %v", c.name, b.Err())
		}
		if c.name == "squeezed index beyond the end" {
			v.Type.Shape = []int{2}
		}
		b.Output("out", v)
		f, err := b.Build()
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		m := modelOf(t, f, Options{})
		err = m.Predict(context.Background(), "main", runner.Values{"k": runner.Ints([]int32{c.k}, 1)}, runner.Values{}, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
		predict(t, m, "main", runner.Values{"k": runner.Ints([]int32{0}, 1)}, nil)
	}
}

// TestCloseDuringCalls closes a model while it is at work: calls finish or
// say that it is closed.
func TestCloseDuringCalls(t *testing.T) {
	for range 20 {
		m := layerModel(t, Options{Workers: 4})
		var wg sync.WaitGroup
		for range 4 {
			st, err := m.NewState()
			if err != nil {
				t.Fatal(err)
			}
			wg.Add(1)
			go func() {
				defer wg.Done()
				in := smallLayer.inputs(rand.New(rand.NewPCG(1, 1)), 1, 0)
				for range 20 {
					err := m.Predict(context.Background(), "infer", in, runner.Values{}, st)
					if err != nil && !strings.Contains(err.Error(), "closed") {
						t.Error(err)
					}
				}
			}()
		}
		m.Close()
		wg.Wait()
		if err := m.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
	}
}
