package gemma

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"anemone/coreml"
	"anemone/internal/arch"
	"anemone/internal/arch/nn"
	"anemone/internal/engine"
	"anemone/internal/runner"
	"anemone/mil"
)

// model is functions in the engine that share states.
type model struct {
	testing.TB
	*engine.Model
	state runner.State
}

func newModel(t testing.TB, builders ...*mil.Builder) model {
	t.Helper()
	m := &coreml.Model{SpecVersion: 9, Program: &mil.Program{}}
	for _, b := range builders {
		f, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		m.Functions = append(m.Functions, coreml.Describe(f))
		m.Program.Functions = append(m.Program.Functions, f)
	}
	e, err := engine.New(m, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	state, err := e.NewState()
	if err != nil {
		t.Fatal(err)
	}
	return model{t, e, state}
}

// call runs a function for tokens at positions first, first+1 and so on.
func (m model) call(function string, first, tokens, context int, more runner.Values) runner.Values {
	m.Helper()
	positions, causal := make([]int32, tokens), make([]float32, tokens*context)
	for i := range tokens {
		positions[i] = int32(first + i)
		for j := range context {
			if j > first+i {
				causal[i*context+j] = float32(math.Inf(-1))
			}
		}
	}
	in := runner.Values{
		"position_ids": runner.Ints(positions, tokens), "current_pos": runner.Ints([]int32{int32(first)}, 1),
		"causal_mask": runner.Floats(mil.Float16, causal, 1, 1, tokens, context),
	}
	for name, x := range more {
		in[name] = x
	}
	out := runner.Values{}
	if err := m.Predict(m.Context(), function, in, out, m.state); err != nil {
		m.Fatal(err)
	}
	return out
}

func (m model) read(state string) []float32 {
	m.Helper()
	x, err := m.state.Read(state)
	if err != nil {
		m.Fatal(err)
	}
	return x.Float
}

// windowFunction writes rows [1, 1, t, 1] into slot 1 of three of a window's
// cache, of which it shifts that slot alone, and gives the mask.
func windowFunction(w window, name string, t, context int) *mil.Builder {
	b := mil.NewBuilder(name, mil.CoreML8)
	call := NewCall(b, arch.Options{Context: context}, t)
	rows := b.Input("rows", mil.TensorOf(mil.Float16, 1, 1, t, 1))
	state := b.Input("cache", mil.StateOf(mil.Float16, 3, 1, w.length, 1))
	mask, cache := w.open(b, state, 1, 2, call.Positions, call.Current, call.Causal, t)
	cache.Write(1, rows)
	b.Output("mask", nn.Add(b, mask, constant(b, 0, 1, 1, 1, 1)))
	return b
}

// TestWindowByHand has single calls of a window of 3 positions with batches of
// 4: which slots each token attends to, by how much the cache is shifted, and
// where the first token's row goes.
func TestWindowByHand(t *testing.T) {
	for _, c := range []struct {
		kind                  cacheKind
		length, tokens, first int
		shifted, written      int
		attends               [][]int
	}{
		// Eleven slots: position p is in slot p + 7 in block 0, p + 3 in block
		// 1, p - 1 in block 2.
		{kind: blocks, length: 11, tokens: 1, first: 0, shifted: 4, written: 7, attends: [][]int{{7}}},
		{kind: blocks, length: 11, tokens: 1, first: 3, shifted: 0, written: 10, attends: [][]int{{8, 9, 10}}},
		{kind: blocks, length: 11, tokens: 1, first: 8, shifted: 4, written: 7, attends: [][]int{{5, 6, 7}}},
		{kind: blocks, length: 11, tokens: 1, first: 9, shifted: 0, written: 8, attends: [][]int{{6, 7, 8}}},
		{kind: blocks, length: 11, tokens: 2, first: 0, shifted: 4, written: 7, attends: [][]int{{7}, {7, 8}}},
		{kind: blocks, length: 11, tokens: 2, first: 1, shifted: 0, written: 8, attends: [][]int{{7, 8}, {7, 8, 9}}},
		{kind: blocks, length: 11, tokens: 2, first: 2, shifted: 0, written: 9, attends: [][]int{{7, 8, 9}, {8, 9, 10}}},
		{kind: blocks, length: 11, tokens: 2, first: 3, shifted: 4, written: 6, attends: [][]int{{4, 5, 6}, {5, 6, 7}}},
		{kind: blocks, length: 11, tokens: 2, first: 4, shifted: 4, written: 7, attends: [][]int{{5, 6, 7}, {6, 7, 8}}},
		{kind: blocks, length: 11, tokens: 2, first: 6, shifted: 0, written: 9, attends: [][]int{{7, 8, 9}, {8, 9, 10}}},
		{kind: blocks, length: 11, tokens: 3, first: 1, shifted: 0, written: 8, attends: [][]int{{7, 8}, {7, 8, 9}, {8, 9, 10}}},
		{kind: blocks, length: 11, tokens: 3, first: 6, shifted: 4, written: 5, attends: [][]int{{3, 4, 5}, {4, 5, 6}, {5, 6, 7}}},
		{kind: blocks, length: 11, tokens: 4, first: 0, shifted: 4, written: 7, attends: [][]int{{7}, {7, 8}, {7, 8, 9}, {8, 9, 10}}},
		{kind: blocks, length: 11, tokens: 4, first: 6, shifted: 4, written: 5, attends: [][]int{{3, 4, 5}, {4, 5, 6}, {5, 6, 7}, {6, 7, 8}}},
		{kind: blocks, length: 11, tokens: 4, first: 7, shifted: 4, written: 6, attends: [][]int{{4, 5, 6}, {5, 6, 7}, {6, 7, 8}, {7, 8, 9}}},
		// Seven slots that end with the last token.
		{kind: dropping, length: 7, tokens: 1, first: 0, shifted: 1, written: 6, attends: [][]int{{6}}},
		{kind: dropping, length: 7, tokens: 2, first: 3, shifted: 2, written: 5, attends: [][]int{{3, 4, 5}, {4, 5, 6}}},
		{kind: dropping, length: 7, tokens: 4, first: 8, shifted: 4, written: 3, attends: [][]int{{1, 2, 3}, {2, 3, 4}, {3, 4, 5}, {4, 5, 6}}},
		// Every position in its own slot.
		{kind: whole, length: 16, tokens: 1, first: 0, written: 0, attends: [][]int{{0}}},
		{kind: whole, length: 16, tokens: 2, first: 3, written: 3, attends: [][]int{{1, 2, 3}, {2, 3, 4}}},
	} {
		const context = 16
		what := fmt.Sprintf("form %d, %d tokens from %d on", c.kind, c.tokens, c.first)
		w := window{kind: c.kind, size: 3, batch: 4, length: c.length}
		m := newModel(t, windowFunction(w, "f", c.tokens, context))
		before := make([]float32, 3*w.length)
		for i := range before {
			before[i] = float32(i + 1)
		}
		if err := m.state.Write("cache", runner.Floats(mil.Float16, before, 3, 1, w.length, 1)); err != nil {
			t.Fatal(err)
		}
		rows := make([]float32, c.tokens)
		for i := range rows {
			rows[i] = float32(100 + i)
		}
		mask := m.call("f", c.first, c.tokens, context, runner.Values{"rows": runner.Floats(mil.Float16, rows, 1, 1, c.tokens, 1)})["mask"]
		if !slices.Equal(mask.Shape, []int{1, 1, c.tokens, w.length}) {
			t.Fatalf("%s: a mask of shape %v", what, mask.Shape)
		}
		for i, want := range c.attends {
			var got []int
			for j, v := range mask.Float[i*w.length:][:w.length] {
				switch {
				case v == 0:
					got = append(got, j)
				case !math.IsInf(float64(v), -1):
					t.Errorf("%s: the mask has %g", what, v)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: token %d attends to slots %v, want %v", what, i, got, want)
			}
		}
		want := slices.Clone(before)
		mine := want[w.length:][:w.length]
		copy(mine, before[w.length+c.shifted:2*w.length])
		copy(mine[c.written:], rows)
		if got := m.read("cache"); !slices.Equal(got, want) {
			t.Errorf("%s: the cache holds\n%v, want\n%v", what, got, want)
		}
	}
}

// TestWindowCalls makes calls of every number of tokens in any order, with
// returns to position 0, for windows smaller and larger than the batch: what
// each token attends to in the cache is what was written for the positions of
// its window, in their order, and nothing else.
func TestWindowCalls(t *testing.T) {
	const context = 64
	r := rand.New(rand.NewPCG(31, 32))
	for _, c := range []struct{ size, batch int }{{1, 1}, {1, 4}, {3, 4}, {4, 4}, {5, 4}, {9, 4}, {7, 6}, {2, 9}} {
		for _, kind := range []cacheKind{whole, blocks, dropping} {
			w := window{kind: kind, size: c.size, batch: c.batch, length: [...]int{whole: context, blocks: c.size + 2*c.batch, dropping: c.size + c.batch}[kind]}
			var functions []*mil.Builder
			for n := 1; n <= c.batch; n++ {
				functions = append(functions, windowFunction(w, fmt.Sprint("tokens_", n), n, context))
			}
			m := newModel(t, functions...)
			written := map[int]float32{}
			for p, calls := 0, 0; calls < 60; calls++ {
				n := 1 + r.IntN(c.batch)
				if p+n > context || r.IntN(40) == 0 {
					p = 0
					clear(written)
				}
				rows := make([]float32, n)
				for i := range rows {
					rows[i] = float32(1 + r.IntN(2000))
					written[p+i] = rows[i]
				}
				mask := m.call(fmt.Sprint("tokens_", n), p, n, context, runner.Values{"rows": runner.Floats(mil.Float16, rows, 1, 1, n, 1)})["mask"].Float
				cache := m.read("cache")[w.length:][:w.length]
				for i := range n {
					var got, want []float32
					for j, v := range cache {
						if mask[i*w.length+j] == 0 {
							got = append(got, v)
						}
					}
					for q := max(0, p+i-w.size+1); q <= p+i; q++ {
						want = append(want, written[q])
					}
					if !slices.Equal(got, want) {
						t.Fatalf("window %d, batch %d, form %d: in a call of %d tokens from %d on, token %d attends to %v, want %v", c.size, c.batch, kind, n, p, i, got, want)
					}
				}
				p += n
			}
		}
	}
}

// TestViews stores and attends through the views of two layers, one of each
// kind. Queries of zeros find all scores equal, so that what comes back is the
// mean of the values in sight.
func TestViews(t *testing.T) {
	// Layer 0 is in another chunk; layer 3 stores nothing of its own.
	layers := []Kind{Full, Sliding, Full, Sliding}
	c := Caches{Window: 3, KVHeads: 1, HeadDim: [2]int{2, 4}, Layers: [2][]int{{1}, {0, 2}}}
	o := arch.Options{Context: 32, Batch: 4}
	still := func(k Kind) *Rotation { return NewRotation(k, []float32{0}, c.HeadDim[k], o.Context) }
	build := func(name string, n int) *mil.Builder {
		b := mil.NewBuilder(name, mil.CoreML8)
		x := b.Input("x", mil.TensorOf(mil.Float16, 1, n, 1))
		call := NewCall(b, o, n)
		x, views := c.Open(b, o, x, call, layers, 1, 4, [2]*Rotation{still(Sliding), still(Full)})
		for _, v := range []struct{ from, layer int }{{1, 1}, {2, 2}, {1, 3}} {
			k := layers[v.layer]
			rows := nn.Add(b, nn.Reshape(b, x, 1, 1, n, 1), constant(b, 0, 1, 1, n, c.HeadDim[k]))
			if v.from == v.layer {
				rows = nn.Add(b, rows, constant(b, float64(100*v.layer), 1, 1, 1, 1))
				views[k].Store(v.layer, rows, rows)
			}
			q := views[k].Rotate(nn.Scale(b, nn.Concat(b, 1, rows, rows), 0)) // two heads
			b.Output(fmt.Sprint("layer_", v.layer), nn.Add(b, views[k].Attend(v.from, q), constant(b, 0, 1, 1, 1, 1)))
		}
		return b
	}
	m := newModel(t, build("one", 1), build("two", 2), build("four", 4))
	p := 0
	for _, n := range []int{4, 2, 1, 4, 2, 2, 1, 4} {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(p + i)
		}
		out := m.call(map[int]string{1: "one", 2: "two", 4: "four"}[n], p, n, o.Context, runner.Values{"x": runner.Floats(mil.Float16, x, 1, n, 1)})
		for i := range n {
			q := p + i
			mean := func(from int) float64 { return float64(from+q) / 2 }
			for layer, want := range map[int]float64{1: 100 + mean(max(0, q-2)), 2: 200 + mean(0), 3: 100 + mean(max(0, q-2))} {
				dim := c.HeadDim[layers[layer]]
				y := out[fmt.Sprint("layer_", layer)]
				if !slices.Equal(y.Shape, []int{1, 2, n, dim}) {
					t.Fatalf("layer %d gives a shape of %v", layer, y.Shape)
				}
				for head := range 2 {
					for _, got := range y.Float[(head*n+i)*dim:][:dim] {
						// An output in fp16: an eighth of a unit below 256.
						if math.Abs(float64(got)-want) > 1.0/16 {
							t.Errorf("%d tokens from %d on, layer %d, position %d: found %g, want %g", n, p, layer, q, got, want)
						}
					}
				}
			}
		}
		p += n
	}
	// The other chunk's slot of the global cache has been left alone.
	for i, v := range m.read(arch.StateGlobal) {
		if slot := i / (2 * o.Context * 4); (v != 0) != (slot == 1 && i/4%o.Context < p) {
			t.Fatalf("element %d of the global cache, in slot %d, is %g", i, slot, v)
		}
	}
}

// TestViewOfOneKind: a chunk without layers of a kind reads its state for
// nothing and hands x on as it is.
func TestViewOfOneKind(t *testing.T) {
	c := Caches{Window: 3, KVHeads: 1, HeadDim: [2]int{2, 4}, Layers: [2][]int{{0}, {1}}}
	o := arch.Options{Context: 32, Batch: 4}
	b := mil.NewBuilder("f", mil.CoreML8)
	call := NewCall(b, o, 1)
	x := b.Input("x", mil.TensorOf(mil.Float16, 1, 1, 2))
	rot := [2]*Rotation{NewRotation(Sliding, []float32{1}, 2, 32), NewRotation(Full, []float32{1}, 4, 32)}
	y, views := c.Open(b, o, x, call, []Kind{Sliding, Full}, 1, 2, rot)
	if views[Sliding] != nil || views[Full] == nil {
		t.Fatalf("views %v of a full layer", views)
	}
	b.Output("y", y)
	m := newModel(t, b)
	local := make([]float32, 2*11*2)
	for i := range local {
		local[i] = float32(i + 1)
	}
	if err := m.state.Write(arch.StateLocal, runner.Floats(mil.Float16, local, 1, 2, 11, 2)); err != nil {
		t.Fatal(err)
	}
	out := m.call("f", 4, 1, 32, runner.Values{"x": runner.Floats(mil.Float16, []float32{3, -5}, 1, 1, 2)})
	if got := out["y"].Float; !slices.Equal(got, []float32{3, -5}) {
		t.Errorf("x became %v", got)
	}
	if got := m.read(arch.StateLocal); !slices.Equal(got, local) {
		t.Errorf("the local cache became %v", got)
	}
}

// TestRotation holds the rows of a call to the angles by hand: pairs (0, 3) and
// (1, 4) of six elements turn by a quarter and an eighth of a circle for each
// position, pair (2, 5) does not.
func TestRotation(t *testing.T) {
	quarter, h := float32(math.Pi/2), math.Sqrt(0.5)
	r := NewRotation(Full, []float32{quarter, quarter / 2}, 6, 8)
	if r.Cos.Rows() != 8 || r.Cos.Cols() != 2 || r.Cos.Name() != "rotary_full_cos" || r.Sin.Name() != "rotary_full_sin" {
		t.Errorf("tables %v and %v", r.Cos, r.Sin)
	}
	b := mil.NewBuilder("f", mil.CoreML8)
	call := NewCall(b, arch.Options{Context: 8}, 4)
	cos, sin := r.at(b, call.Positions)
	x := b.Input("x", mil.TensorOf(mil.Float16, 1, 1, 4, 6))
	b.Output("cos", nn.Add(b, cos, constant(b, 0, 1, 1, 1, 1)))
	b.Output("sin", nn.Add(b, sin, constant(b, 0, 1, 1, 1, 1)))
	b.Output("turned", (&View{b: b, cos: cos, sin: sin}).Rotate(x))
	m := newModel(t, b)
	rows := []float32{1, 2, 3, 4, 5, 6}
	out := m.call("f", 1, 4, 8, runner.Values{"x": runner.Floats(mil.Float16, slices.Concat(rows, rows, rows, rows), 1, 1, 4, 6)})
	for name, want := range map[string][]float64{
		"cos": {
			0, h, 1, 0, h, 1,
			-1, 0, 1, -1, 0, 1,
			0, -h, 1, 0, -h, 1,
			1, -1, 1, 1, -1, 1,
		},
		"sin": {
			1, h, 0, 1, h, 0,
			0, 1, 0, 0, 1, 0,
			-1, h, 0, -1, h, 0,
			0, 0, 0, 0, 0, 0,
		},
		// (a, b) by an angle: (a cos - b sin, b cos + a sin).
		"turned": {
			-4, -3 * h, 3, 1, 7 * h, 6,
			-1, -5, 3, -4, 2, 6,
			4, -7 * h, 3, -1, -3 * h, 6,
			1, -2, 3, 4, -5, 6,
		},
	} {
		if len(out[name].Float) != len(want) {
			t.Fatalf("%s has %d elements, want %d", name, len(out[name].Float), len(want))
		}
		for i, got := range out[name].Float {
			// Tables of fp16, and sums of two products of them with numbers up
			// to 6: 2^-12 of each.
			if d := math.Abs(float64(got) - want[i]); !(d <= 4e-3) {
				t.Errorf("%s[%d] is %g, want %g", name, i, got, want[i])
			}
		}
	}
}
