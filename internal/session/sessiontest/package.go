// Package sessiontest has packages for tests: a transformer of two layers that
// a few loops in float64 can compute, in every form that ANEMLL gives its
// packages.
package sessiontest

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"anemone/coreml"
	"anemone/coreml/mlmodelc"
	"anemone/coreml/mlpackage"
	"anemone/internal/anemll"
	"anemone/internal/arch/nn"
	"anemone/internal/float16"
	"anemone/mil"
)

// Package is a transformer of two layers, small enough that a few loops in
// float64 say what it has to compute, in a form that ANEMLL gives its packages.
// Layer 0 looks at the last window tokens if there is a window,
// layer 1 at all of them. Keys and queries carry their positions; there is a
// gain where others have their final norm, so that one shows that it is there.
type Package struct {
	Context int // width of the mask
	State   int // rows of the full cache; 0: context
	Window  int // rows of the local cache; 0: no local cache
	Batch   int
	Chunks  int // 1 or 2; 0: monolithic

	Rotate     bool // with infer_rotate and prefill_rotate
	Split      bool // these in files of their own
	Argmax     bool
	UpdateMask bool // prefill writes caches by update_mask
	OneAtATime bool // meta.yaml allows no prefill
	LastToken  bool // prefill_last_token_output
	// PrefillGives is what a monolithic prefill gives: "all" logits of all
	// tokens, "first" the logits of the first one (without the final norm, as
	// ANEMLL's llama has it), "hidden" the first one's state.
	PrefillGives string
	OnlyMain     bool     // one function, main
	Forms        []string // ".mlpackage" (if there are none), ".mlmodelc"
	Params       []string // further lines of meta.yaml
}

const (
	hidden, heads, dim = 8, 2, 4
	inner              = 12
	// Vocab is the number of tokens.
	Vocab = 13
)

// Widths are the parts of the vocabulary that the head has.
var Widths = []int{5, 4, 4}

// weights are rows x cols each; every element is a multiple of 1/32 and so
// the same number in fp16 and float64.
type weights struct {
	embed, head, gain []float64
	position          []float64 // context x dim
	layers            [2]layerWeights
}

type layerWeights struct{ q, k, v, o, up, down []float64 }

func (s *Package) weights() *weights {
	r := rand.New(rand.NewPCG(7, 8))
	m := func(n int, scale float64) []float64 {
		w := make([]float64, n)
		for i := range w {
			w[i] = math.Round((r.Float64()*2-1)*scale*32) / 32
		}
		return w
	}
	w := &weights{embed: m(Vocab*hidden, 2), head: m(Vocab*hidden, 1), gain: m(hidden, 2), position: m(s.Context*dim, 1)}
	for i := range w.layers {
		w.layers[i] = layerWeights{
			q: m(heads*dim*hidden, 1), k: m(dim*hidden, 1), v: m(dim*hidden, 1), o: m(hidden*heads*dim, 1),
			up: m(inner*hidden, 0.5), down: m(hidden*inner, 0.5),
		}
	}
	return w
}

// mulVec returns w x for a matrix of rows of len(x) elements.
func mulVec(w, x []float64) []float64 {
	y := make([]float64, len(w)/len(x))
	for i := range y {
		for j, v := range x {
			y[i] += w[i*len(x)+j] * v
		}
	}
	return y
}

// attend returns the output of attention for one query over rows of keys and
// values.
func attend(q []float64, k, v [][]float64) []float64 {
	out := make([]float64, 0, len(q))
	for h := range heads {
		p, sum := make([]float64, len(k)), 0.0
		for i := range k {
			for d := range dim {
				p[i] += q[h*dim+d] * k[i][d] * 0.5
			}
			p[i] = math.Exp(p[i])
			sum += p[i]
		}
		for d := range dim {
			y := 0.0
			for i := range v {
				y += p[i] / sum * v[i][d]
			}
			out = append(out, y)
		}
	}
	return out
}

// caches are the keys and values that a layer sees, in the order in which it
// has them.
type cache struct{ k, v [][]float64 }

// Simulator computes in float64 what the graphs compute, cache row by cache
// row. Fed one token at a time it is the definition: layer 0 drops its oldest
// row when there are window of them.
type Simulator struct {
	s      *Package
	w      *weights
	caches [2]cache
}

// NewSimulator returns one that was fed nothing.
func NewSimulator(s *Package) *Simulator { return &Simulator{s: s, w: s.weights()} }

func (m *Simulator) layer(l int, x []float64, pos int, see func(k, v []float64) cache) []float64 {
	w := &m.w.layers[l]
	at := m.w.position[pos*dim:][:dim]
	q, k, v := mulVec(w.q, x), mulVec(w.k, x), mulVec(w.v, x)
	for d := range dim {
		k[d] += at[d]
		for h := range heads {
			q[h*dim+d] += at[d]
		}
	}
	c := see(k, v)
	x = sum(x, mulVec(w.o, attend(q, c.k, c.v)))
	up := mulVec(w.up, x)
	for i := range up {
		up[i] = math.Tanh(up[i])
	}
	return sum(x, mulVec(w.down, up))
}

func sum(a, b []float64) []float64 {
	c := make([]float64, len(a))
	for i := range a {
		c[i] = a[i] + b[i]
	}
	return c
}

// Append feeds one token and returns the logits after it.
func (m *Simulator) Append(token int32, pos int) []float64 {
	x := m.w.embed[int(token)*hidden:][:hidden]
	for l := range 2 {
		x = m.layer(l, x, pos, func(k, v []float64) cache {
			c := &m.caches[l]
			if l == 1 && pos < len(c.k) { // the same position again: its row is overwritten
				c.k[pos], c.v[pos] = k, v
				return cache{c.k[:pos+1], c.v[:pos+1]}
			}
			if l == 0 && m.s.Window == 0 && pos < len(c.k) || l == 0 && m.s.Window > 0 && pos < m.s.Window && pos < len(c.k) {
				c.k[pos], c.v[pos] = k, v
				return cache{c.k[:pos+1], c.v[:pos+1]}
			}
			c.k, c.v = append(c.k, k), append(c.v, v)
			if n := len(c.k) - m.s.Window; l == 0 && m.s.Window > 0 && n > 0 {
				c.k, c.v = c.k[n:], c.v[n:]
			}
			return *c
		})
	}
	y := make([]float64, hidden)
	for i := range y {
		y[i] = x[i] * m.w.gain[i]
	}
	return mulVec(m.w.head, y)
}

// RotateBatch feeds a batch through prefill_rotate: the window moves on by the
// whole batch before any of its tokens looks.
func (m *Simulator) RotateBatch(tokens []int32, pos int) {
	xs := make([][]float64, len(tokens))
	for i, t := range tokens {
		xs[i] = m.w.embed[int(t)*hidden:][:hidden]
	}
	for l := range 2 {
		w := &m.w.layers[l]
		for i, x := range xs {
			k, v := mulVec(w.k, x), mulVec(w.v, x)
			for d := range dim {
				k[d] += m.w.position[(pos+i)*dim+d]
			}
			m.caches[l].k, m.caches[l].v = append(m.caches[l].k, k), append(m.caches[l].v, v)
		}
		c := m.caches[l]
		if l == 0 {
			n := len(c.k) - m.s.Window
			c.k, c.v = c.k[n:], c.v[n:]
			m.caches[l] = c
		}
		for i, x := range xs {
			xs[i] = m.layer(l, x, pos+i, func(k, v []float64) cache {
				if l == 0 {
					return c // all of it, later tokens of the batch included
				}
				return cache{c.k[:pos+i+1], c.v[:pos+i+1]}
			})
		}
	}
}

// Reference returns the logits after every token.
func (s *Package) Reference(tokens []int32) [][]float64 {
	m := NewSimulator(s)
	var out [][]float64
	for i, t := range tokens {
		out = append(out, m.Append(t, i))
	}
	return out
}

func (s *Package) stateRows() int {
	if s.State > 0 {
		return s.State
	}
	return s.Context
}

// graph builds the functions of one model. Weights are shared by name.
type graph struct {
	*Package
	w      *weights
	shared map[string]mil.Weight
}

func (s *Package) newGraph() *graph {
	return &graph{s, s.weights(), map[string]mil.Weight{}}
}

// weight returns a constant; rows are taken from data.
func (g *graph) weight(t testing.TB, b *mil.Builder, name string, data []float64, shape ...int) *mil.Value {
	t.Helper()
	if g.shared[name] == nil {
		raw := make([]byte, 0, 2*len(data))
		for _, v := range data {
			raw = binary.LittleEndian.AppendUint16(raw, float16.FromFloat32(float32(v)))
		}
		w, err := mil.NewWeight(mil.TensorOf(mil.Float16, shape...), raw)
		if err != nil {
			t.Fatal(err)
		}
		g.shared[name] = w
	}
	return b.Weight(name, g.shared[name])
}

func (g *graph) mul(t testing.TB, b *mil.Builder, x *mil.Value, name string, w []float64) *mil.Value {
	in := x.Type.Shape[x.Type.Rank()-1]
	return b.Op("matmul", mil.A("x", x), mil.A("y", g.weight(t, b, name, w, len(w)/in, in)),
		mil.A("transpose_x", b.Const(mil.Flag(false))), mil.A("transpose_y", b.Const(mil.Flag(true))))
}

func gatherRows(b *mil.Builder, table, index *mil.Value) *mil.Value {
	return b.Op("gather", mil.A("x", table), mil.A("indices", index), mil.A("axis", b.Const(mil.Int(0))),
		mil.A("batch_dims", b.Const(mil.Int(0))), mil.A("validate_indices", b.Const(mil.Flag(false))))
}

func (g *graph) heads(b *mil.Builder, x *mil.Value, n int) *mil.Value {
	return nn.Transpose(b, nn.Reshape(b, x, 1, x.Type.Shape[1], n, dim), 0, 2, 1, 3)
}

// cacheWrite puts rows [1, 1, T, dim] into a slot of a state and returns the
// slot's new contents [1, 1, rows, dim].
func cacheWrite(b *mil.Builder, state *mil.Value, slot int, rows, pos, update *mil.Value, rotate bool) *mil.Value {
	no := b.Const(mil.Bools(false, false, false, false))
	old := b.Op("read_state", mil.A("input", state))
	n, t := state.Type.Shape[2], rows.Type.Shape[2]
	ints := func(v ...int) *mil.Value { return b.Const(mil.Ints(v...)) }
	begin, end, mask := ints(slot, 0, 0, 0), ints(slot+1, 0, 0, 0), b.Const(mil.Bools(false, true, true, true))
	switch {
	case rotate:
		kept := nn.Slice(b, nn.Slice(b, old, 0, slot, slot+1), 2, t, n)
		rows = nn.Concat(b, 2, kept, rows)
	case update != nil:
		m := update
		if m.Type.Shape[2] > n {
			m = nn.Slice(b, m, 2, 0, n)
		}
		here := b.Op("matmul", mil.A("x", m), mil.A("y", rows), mil.A("transpose_x", b.Const(mil.Flag(false))), mil.A("transpose_y", b.Const(mil.Flag(false))))
		hit := b.Op("reduce_sum", mil.A("x", m), mil.A("axes", ints(-1)), mil.A("keep_dims", b.Const(mil.Flag(true))))
		miss := nn.Add(b, nn.Scale(b, hit, -1), b.Const(mil.Half(1)))
		rows = nn.Add(b, nn.Mul(b, nn.Slice(b, old, 0, slot, slot+1), miss), here)
	default:
		begin = nn.Concat(b, 0, ints(slot), ints(0), pos, ints(0))
		end = nn.Concat(b, 0, ints(slot+1), ints(0), nn.Add(b, pos, ints(t)), ints(0))
		mask = b.Const(mil.Bools(false, true, false, true))
	}
	now := b.Op("slice_update", mil.A("x", old), mil.A("update", rows), mil.A("begin", begin), mil.A("end", end),
		mil.A("stride", ints(1, 1, 1, 1)), mil.A("begin_mask", no), mil.A("end_mask", mask), mil.A("squeeze_mask", no))
	b.OpAll("write_state", mil.A("input", state), mil.A("data", now))
	return nn.Slice(b, b.Op("read_state", mil.A("input", state)), 0, slot, slot+1)
}

const (
	fullCache  = "model_model_kv_cache_0"
	localCache = "model_model_kv_cache_local"
)

// decoder builds a function of the layers [first, last).
func (g *graph) decoder(t testing.TB, name string, first, last int) *mil.Function {
	rows := 1
	if strings.HasPrefix(name, "prefill") {
		rows = g.Batch
	}
	rotate, mono, prefill := strings.HasSuffix(name, "_rotate"), g.Chunks == 0, rows > 1
	b := mil.NewBuilder(name, mil.CoreML8)
	var x *mil.Value
	if mono {
		ids := b.Input(anemll.InputIDs, mil.TensorOf(mil.Int32, 1, rows))
		x = gatherRows(b, g.weight(t, b, "embed", g.w.embed, Vocab, hidden), ids)
	} else {
		x = b.Input(anemll.HiddenStates, mil.TensorOf(mil.Float16, 1, rows, hidden))
	}
	position := b.Input(anemll.PositionIDs, mil.TensorOf(mil.Int32, rows))
	mask := b.Input(anemll.CausalMask, mil.TensorOf(mil.Float16, 1, 1, rows, g.Context))
	pos := b.Input(anemll.CurrentPos, mil.TensorOf(mil.Int32, 1))
	var update *mil.Value
	if g.UpdateMask && name == "prefill" {
		update = b.Input(anemll.UpdateMask, mil.TensorOf(mil.Float16, 1, 1, g.Context, rows))
	}
	slots := 4
	if g.Window > 0 {
		slots = 2
	}
	var local *mil.Value
	if g.Window > 0 {
		local = b.Input(localCache, mil.StateOf(mil.Float16, 2, 1, g.Window, dim))
	}
	full := b.Input(fullCache, mil.StateOf(mil.Float16, slots, 1, g.stateRows(), dim))

	at := b.Op("expand_dims", mil.A("x", gatherRows(b, g.weight(t, b, "position", g.w.position, g.Context, dim), position)), mil.A("axes", b.Const(mil.Ints(0, 1))))
	for l := first; l < last; l++ {
		w := &g.w.layers[l]
		n := func(s string) string { return fmt.Sprintf("layers_%d_%s", l, s) }
		q := nn.Add(b, g.heads(b, g.mul(t, b, x, n("q"), w.q), heads), at)
		k := nn.Add(b, g.heads(b, g.mul(t, b, x, n("k"), w.k), 1), at)
		v := g.heads(b, g.mul(t, b, x, n("v"), w.v), 1)
		state, slot, turn := full, l, rotate
		switch {
		case g.Window > 0 && l == 0:
			state, slot = local, 0
		case g.Window > 0:
			slot, turn = 0, false
		default:
			turn = false
		}
		kk := cacheWrite(b, state, slot, k, pos, update, turn)
		vv := cacheWrite(b, state, slot+slots/2, v, pos, update, turn)
		see := mask
		if r := state.Type.Shape[2]; r < g.Context {
			see = nn.Slice(b, mask, 3, 0, r)
		} else if r > g.Context {
			kk, vv = nn.Slice(b, kk, 2, 0, g.Context), nn.Slice(b, vv, 2, 0, g.Context)
		}
		y := nn.Attention(b, q, kk, vv, see, 0.5)
		y = nn.Reshape(b, nn.Transpose(b, y, 0, 2, 1, 3), 1, rows, heads*dim)
		x = nn.Add(b, x, g.mul(t, b, y, n("o"), w.o))
		up := b.Op("tanh", mil.A("x", g.mul(t, b, x, n("up"), w.up)))
		x = nn.Add(b, x, g.mul(t, b, up, n("down"), w.down))
	}
	norm := func(x *mil.Value) *mil.Value { return nn.Mul(b, x, g.weight(t, b, "gain", g.w.gain, hidden)) }
	switch {
	case last < 2:
		b.Output(anemll.OutputHiddenStates, x)
	case mono && (!prefill || g.PrefillGives == "all"):
		g.scores(t, b, norm(x), g.Argmax && !prefill)
	case mono && g.PrefillGives == "first":
		g.scores(t, b, nn.Slice(b, x, 1, 0, 1), false)
	case !prefill:
		b.Output(anemll.OutputHiddenStates, norm(x))
	case g.LastToken:
		b.Output(anemll.OutputHiddenStates, nn.Slice(b, norm(x), 1, rows-1, rows))
	default:
		b.Output(anemll.OutputHiddenStates, nn.Slice(b, x, 1, 0, 1))
	}
	f, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// scores adds the head and its outputs.
func (g *graph) scores(t testing.TB, b *mil.Builder, x *mil.Value, argmax bool) {
	at := 0
	var index, value []*mil.Value
	for i, n := range Widths {
		y := g.mul(t, b, x, fmt.Sprintf("head%d", i), g.w.head[at*hidden:(at+n)*hidden])
		at += n
		if !argmax {
			b.Output(fmt.Sprintf("logits%d", i+1), y)
			continue
		}
		axis, keep := b.Const(mil.Int(-1)), b.Const(mil.Flag(true))
		index = append(index, b.Op("reduce_argmax", mil.A("x", y), mil.A("axis", axis), mil.A("keep_dims", keep)))
		value = append(value, b.Op("reduce_max", mil.A("x", y), mil.A("axes", b.Const(mil.Ints(-1))), mil.A("keep_dims", keep)))
	}
	if argmax {
		axes := b.Const(mil.Ints(0, 1))
		b.Output(anemll.ArgmaxIndex, b.Op("squeeze", mil.A("x", nn.Concat(b, -1, index...)), mil.A("axes", axes)))
		b.Output(anemll.ArgmaxValue, b.Op("squeeze", mil.A("x", nn.Concat(b, -1, value...)), mil.A("axes", axes)))
	}
}

func model(main string, funcs ...*mil.Function) *coreml.Model {
	m := &coreml.Model{SpecVersion: 9, DefaultFunction: main, Program: &mil.Program{Functions: funcs}}
	for _, f := range funcs {
		m.Functions = append(m.Functions, coreml.Describe(f))
	}
	return m
}

// parts returns the models by their file names without extension.
func (s *Package) parts(t testing.TB) map[string]*coreml.Model {
	t.Helper()
	out := map[string]*coreml.Model{}
	names := []string{"infer", "prefill"}
	rotated := []string{"infer_rotate", "prefill_rotate"}
	functions := func(list []string, first, last int) []*mil.Function {
		g := s.newGraph()
		var fs []*mil.Function
		for _, n := range list {
			fs = append(fs, g.decoder(t, n, first, last))
		}
		return fs
	}
	if s.Rotate && !s.Split {
		names = append(names, rotated...)
	}
	if s.Chunks == 0 {
		if s.OnlyMain {
			f := functions([]string{"main"}, 0, 2)
			out["syn_monolithic_full"] = model("", f...)
			return out
		}
		out["syn_monolithic_full"] = model("infer", functions(names, 0, 2)...)
		return out
	}
	g := s.newGraph()
	b := mil.NewBuilder("main", mil.CoreML8)
	ids := b.Input(anemll.InputIDs, mil.TensorOf(mil.Int32, 1, mil.Dynamic))
	b.Output(anemll.HiddenStates, gatherRows(b, g.weight(t, b, "embed", g.w.embed, Vocab, hidden), ids))
	f, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	emb := model("", f)
	in := &emb.Functions[0].Inputs[0]
	in.Shape, in.Shapes = []int{1, 1}, [][]int{{1, 1}, {1, s.Batch}}
	out["syn_embeddings"] = emb

	b = mil.NewBuilder("main", mil.CoreML8)
	g.scores(t, b, b.Input(anemll.HiddenStates, mil.TensorOf(mil.Float16, 1, 1, hidden)), s.Argmax)
	if f, err = b.Build(); err != nil {
		t.Fatal(err)
	}
	out["syn_lm_head"] = model("", f)

	for c := range s.Chunks {
		first, last := c*2/s.Chunks, (c+1)*2/s.Chunks
		name := fmt.Sprintf("syn_FFN_PF_chunk_%02dof%02d", c+1, s.Chunks)
		out[name] = model("infer", functions(names, first, last)...)
		if s.Rotate && s.Split {
			out[name+"_rot"] = model("infer_rotate", functions(rotated, first, last)...)
		}
	}
	return out
}

// meta returns the text of meta.yaml.
func (s *Package) meta() string {
	lines := []string{fmt.Sprintf("context_length: %d", s.Context), fmt.Sprintf("batch_size: %d", s.Batch), "model_prefix: syn"}
	text := "model_info:\n"
	if s.Chunks == 0 {
		text += "  model_type: monolithic\n"
		lines = append(lines, "lut_bits: none")
	} else {
		lines = append(lines, "lut_ffn: none", fmt.Sprintf("num_chunks: %d", s.Chunks))
	}
	flag := func(name string, v bool) {
		if v {
			lines = append(lines, name+": true")
		}
	}
	flag("prefill_dynamic_slice", !s.OneAtATime && !s.UpdateMask)
	flag("update_mask_prefill", s.UpdateMask)
	flag("argmax_in_model", s.Argmax)
	flag("split_rotate", s.Split)
	flag("prefill_last_token_output", s.LastToken)
	if s.Window > 0 {
		lines = append(lines, fmt.Sprintf("sliding_window: %d", s.Window))
	}
	text += "  parameters:\n"
	for _, l := range append(lines, s.Params...) {
		text += "    " + l + "\n"
	}
	return text
}

// Write writes the package into a new folder.
func (s *Package) Write(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	forms := s.Forms
	if forms == nil {
		forms = []string{".mlpackage"}
	}
	for name, m := range s.parts(t) {
		for _, ext := range forms {
			var err error
			if path := filepath.Join(dir, name+ext); ext == ".mlmodelc" {
				err = mlmodelc.Write(t.Context(), path, m, mlmodelc.Options{})
			} else {
				err = mlpackage.Write(t.Context(), path, m, mlpackage.Options{})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(dir, anemll.MetaFile), []byte(s.meta()), 0o666); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Tokens returns n tokens without a pattern.
func Tokens(n int) []int32 {
	r := rand.New(rand.NewPCG(3, uint64(n)))
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(r.IntN(Vocab))
	}
	return out
}
