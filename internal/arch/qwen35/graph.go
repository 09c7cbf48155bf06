package qwen35

import (
	"fmt"
	"math"

	"anemone/internal/arch"
	"anemone/internal/arch/nn"
	"anemone/internal/checkpoint"
	"anemone/mil"
)

// Architecture is the registry's entry for Qwen3.5, 3.6 and 3.8.
var Architecture = arch.Architecture{ModelTypes: ModelTypes, Open: Open}

// Model is a Qwen3.5 checkpoint that can be converted and computed.
type Model struct {
	cfg *Config
	set *WeightSet

	embed  *nn.Weight
	norm   *nn.Weight
	layers []layer
	order  *nn.Weight // of the experts; nil in dense models
}

// layer holds the weights of one decoder layer as the graph uses them. They
// are made once, so that all functions of a package share them.
type layer struct {
	inputNorm, postNorm *nn.Weight
	attention           *attention
	delta               *delta
	mlp                 *mlp
	experts             *experts
}

type attention struct {
	q, k, v, o   *nn.Weight
	gate         *nn.Weight // half of it
	qNorm, kNorm *nn.Weight
}

type delta struct {
	qkv, z, out *nn.Weight
	rate        *nn.Weight // half of in_proj_b
	decay, bias *nn.Weight // in_proj_a, dt_bias
	scale       *nn.Weight // -exp(A_log) [1, heads, 1, 1]
	conv        *nn.Weight
	norm        *nn.Weight
}

type mlp struct{ gate, up, down *nn.Weight }

type experts struct {
	router     *nn.Weight
	all        mlp // of all experts side by side
	shared     mlp
	sharedGate *nn.Weight // half of it
}

// Open checks the configuration and the presence and shape of every tensor.
func Open(ck *checkpoint.Checkpoint) (arch.Model, error) {
	cfg, err := ParseConfig(ck.Config)
	if err != nil {
		return nil, err
	}
	set, err := Weights(cfg, ck)
	if err != nil {
		return nil, err
	}
	m := &Model{cfg: cfg, set: set, embed: nn.Lookup(set.Embed), norm: nn.Vec(set.FinalNorm).PlusOne()}
	for i := range set.Layers {
		m.layers = append(m.layers, newLayer(cfg, i, &set.Layers[i]))
	}
	if cfg.MoE != nil {
		m.order = nn.Order(cfg.MoE.Experts)
	}
	return m, nil
}

func newLayer(c *Config, i int, w *LayerWeights) layer {
	l := layer{inputNorm: nn.Vec(w.InputNorm).PlusOne(), postNorm: nn.Vec(w.PostNorm).PlusOne()}
	if a := w.Attention; a != nil {
		// Of each head, HeadDim rows of the query and as many of the gate.
		part := func(name string, second int) *nn.Weight {
			return nn.LinearRows(a.Q, a.Q.Name+name, c.QuerySize(), func(r int) int { return (2*(r/c.HeadDim)+second)*c.HeadDim + r%c.HeadDim })
		}
		l.attention = &attention{
			q: part("[query]", 0), gate: part("[gate]", 1).Scaled(0.5),
			k: nn.LinearAll(a.K), v: nn.LinearAll(a.V), o: nn.LinearAll(a.O),
			qNorm: nn.Vec(a.QNorm).PlusOne(), kNorm: nn.Vec(a.KNorm).PlusOne(),
		}
	}
	if d := w.Delta; d != nil {
		l.delta = &delta{
			qkv: nn.LinearAll(d.QKV), z: nn.LinearAll(d.Z), out: nn.LinearAll(d.Out),
			rate: nn.LinearAll(d.B).Scaled(0.5).Plain(), decay: nn.LinearAll(d.A).Plain(), bias: nn.Vec(d.DTBias),
			scale: nn.Vec(d.ALog).Mapped(negExp).Shaped(1, c.ValueHeads, 1, 1),
			conv:  nn.Made(d.Conv.Name, nn.Vector, []int{c.ConvSize(), 1, 1, c.Kernel}, func(dst []float32, _ int) { d.Conv.Float32(dst, 0) }, d.Conv.Release),
			norm:  nn.Vec(d.Norm),
		}
	}
	if d := w.MLP; d != nil {
		l.mlp = newMLP(d)
	}
	if x := w.Experts; x != nil {
		l.experts = &experts{
			router: nn.LinearAll(x.Router).Plain(), shared: *newMLP(&x.Shared), sharedGate: nn.LinearAll(x.SharedGate).Scaled(0.5).Plain(),
			all: sideBySide(c, fmt.Sprintf("layers.%d.mlp.experts", i), x),
		}
	}
	return l
}

func negExp(v float32) float32 { return float32(-math.Exp(float64(v))) }

func newMLP(w *MLP) *mlp {
	return &mlp{gate: nn.LinearAll(w.Gate), up: nn.LinearAll(w.Up), down: nn.LinearAll(w.Down)}
}

// sideBySide returns the experts as one wide MLP. How the checkpoint holds
// them makes no difference, not even to the names.
func sideBySide(c *Config, name string, x *Experts) mlp {
	n, width, hidden := c.MoE.Experts, c.MoE.Intermediate, c.Hidden
	release := func() {
		if x.GateUp != nil {
			x.GateUp.Release()
			x.Down.Release()
		}
		for _, e := range x.Split {
			e.Gate.Release()
			e.Up.Release()
			e.Down.Release()
		}
	}
	in := func(which string, fused int, split func(*MLP) *checkpoint.Tensor) *nn.Weight {
		return nn.Made(name+"."+which, nn.Matrix, []int{n * width, hidden, 1, 1}, func(dst []float32, row int) {
			e, r := row/width, row%width
			if x.GateUp != nil {
				x.GateUp.Float32(dst, ((2*e+fused)*width+r)*hidden)
			} else {
				split(&x.Split[e]).Float32(dst, r*hidden)
			}
		}, release)
	}
	return mlp{
		gate: in("gate_proj", 0, func(m *MLP) *checkpoint.Tensor { return m.Gate }),
		up:   in("up_proj", 1, func(m *MLP) *checkpoint.Tensor { return m.Up }),
		down: nn.Made(name+".down_proj", nn.Matrix, []int{hidden, n * width, 1, 1}, func(dst []float32, row int) {
			for e := range n {
				part := dst[e*width : (e+1)*width]
				if x.GateUp != nil {
					x.Down.Float32(part, (e*hidden+row)*width)
				} else {
					x.Split[e].Down.Float32(part, row*width)
				}
			}
		}, release),
	}
}

// Info describes the model.
func (m *Model) Info() arch.Info {
	return arch.Info{
		Architecture: "qwen3_5", Prefix: "qwen35", TokenizerClass: "Qwen2Tokenizer",
		Hidden: m.cfg.Hidden, Layers: m.cfg.Layers, Vocab: m.cfg.Vocab, MaxContext: m.cfg.MaxPositions,
	}
}

// Aside implements [arch.Partial].
func (m *Model) Aside(tensor string) string { return m.set.aside(tensor) }

// Extension implements [arch.Extended].
func (m *Model) Extension(o arch.Options) arch.Extension {
	c := m.cfg
	x := arch.Extension{RecurrentState: true, PrefillFullBatchesOnly: true, States: c.states(o)}
	x.GDNChunkSize, _ = chunkSize(o)
	if e := c.MoE; e != nil {
		x.MoE = &arch.MoE{Experts: e.Experts, ExpertsPerToken: e.PerToken, Evaluation: "dense", Parameters: 3 * int64(c.Hidden) * int64(e.Experts*e.Intermediate) * int64(c.Layers)}
	}
	for _, full := range c.Full {
		x.LayerTypes = append(x.LayerTypes, map[bool]string{true: "full", false: "linear"}[full])
	}
	return x
}

// states returns the states of all chunks. A model without layers of a kind
// has none for them.
func (c *Config) states(o arch.Options) []arch.State {
	var s []arch.State
	if full := c.FullLayers(); len(full) > 0 {
		s = append(s, arch.State{Name: arch.StateKV, Shape: []int{2 * len(full), c.KVHeads, o.Context, c.HeadDim}, Layers: full})
	}
	if linear := c.LinearLayers(); len(linear) > 0 {
		s = append(s,
			arch.State{Name: arch.StateGDN, Shape: []int{len(linear) * c.ValueHeads, c.KeyDim, c.ValueDim}, Layers: linear},
			// Time before channels: the Neural Engine fails on states whose last
			// axis has 3 elements.
			arch.State{Name: arch.StateConv, Shape: []int{len(linear), c.Kernel - 1, c.ConvSize()}, Layers: linear})
	}
	return s
}

// Embeddings looks the token's rows of the embedding table up.
func (m *Model) Embeddings(arch.Options) (*mil.Function, error) { return nn.Embeddings(m.embed) }

// Head multiplies the last token's normed state by the head, in parts.
func (m *Model) Head(o arch.Options) (*mil.Function, error) {
	return nn.Head(m.set.Head, arch.SplitVocab(m.cfg.Vocab, o.SplitHead), 0)
}

// Chunk builds the functions of a range of layers.
func (m *Model) Chunk(o arch.Options, first, last int) ([]*mil.Function, error) {
	n, err := chunkSize(o)
	if err != nil {
		return nil, err
	}
	// What the functions share.
	f := function{m: m, o: o, first: first, last: last}
	f.cosTable, f.sinTable = nn.RotaryTables("rotary", o.Context, nn.InvFreq(m.cfg.RopeTheta, m.cfg.Rotary))
	bySize := map[int]*masks{} // of the delta rule
	return arch.BuildChunk(o, m.cfg.Layers, first, last, func(name string, tokens int) (*mil.Function, error) {
		n := divisor(tokens, n)
		if bySize[n] == nil {
			bySize[n] = newMasks(n)
		}
		f.masks = bySize[n]
		return f.build(name, tokens)
	})
}

// function builds the functions of a chunk. What follows the first group of
// fields is that of the function being built.
type function struct {
	m                  *Model
	o                  arch.Options
	first, last        int // layers
	masks              *masks
	cosTable, sinTable *nn.Weight

	b        *mil.Builder
	t        int        // tokens
	cos, sin *mil.Value // rotations of the tokens
	mask     *mil.Value
	cache    *nn.Cache // keys and values; nil without attention
	memory   *nn.Rows  // of the delta rule; nil without Gated DeltaNets
	window   *nn.Rows  // of the convolution
}

// build builds a function over t tokens.
func (f function) build(name string, t int) (*mil.Function, error) {
	c := f.m.cfg
	b := mil.NewBuilder(name, mil.CoreML8)
	f.b, f.t = b, t
	x := b.Input("hidden_states", mil.TensorOf(mil.Float16, 1, t, c.Hidden))
	positions := b.Input("position_ids", mil.TensorOf(mil.Int32, t))
	f.mask = b.Input("causal_mask", mil.TensorOf(mil.Float16, 1, 1, t, f.o.Context))
	current := b.Input("current_pos", mil.TensorOf(mil.Int32, 1))
	has := map[bool]bool{} // kinds of layers in this chunk
	for _, full := range c.Full[f.first:f.last] {
		has[full] = true
	}
	var idle []*mil.Value
	for _, s := range c.states(f.o) {
		v := b.Input(s.Name, mil.StateOf(mil.Float16, s.Shape...))
		switch {
		case s.Name == arch.StateKV && has[true]:
			f.cache = nn.NewCache(b, v, current, t)
		case s.Name == arch.StateGDN && has[false]:
			f.memory = nn.NewRows(b, v)
		case s.Name == arch.StateConv && has[false]:
			f.window = nn.NewRows(b, v)
		default:
			idle = append(idle, v)
		}
	}
	for _, s := range idle {
		x = nn.Touch(b, x, s)
	}
	if has[true] {
		f.cos, f.sin = nn.RotaryAt(b, f.cosTable, f.sinTable, positions)
	}
	for i := f.first; i < f.last; i++ {
		done := b.Scope(fmt.Sprintf("layers_%d", i))
		x = f.layer(i, x)
		done()
	}
	if f.last == c.Layers {
		if t > 1 {
			x = nn.Slice(b, x, 1, t-1, t) // only the last token goes on
		}
		x = nn.RMSNorm(b, x, f.m.norm, c.Eps)
	}
	b.Output("output_hidden_states", x)
	return b.Build()
}

// layer is one decoder layer over the residual stream x [1, T, H].
func (f *function) layer(i int, x *mil.Value) *mil.Value {
	b, c, l := f.b, f.m.cfg, &f.m.layers[i]
	h := nn.ToChannels(b, nn.RMSNorm(b, x, l.inputNorm, c.Eps))
	if l.attention != nil {
		h = f.attention(l.attention, c.slot(i), h)
	} else {
		h = f.delta(l.delta, c.slot(i), h)
	}
	x = nn.Add(b, x, nn.FromChannels(b, h))
	h = nn.ToChannels(b, nn.RMSNorm(b, x, l.postNorm, c.Eps))
	if l.mlp != nil {
		h = gatedMLP(b, h, l.mlp)
	} else {
		h = f.experts(l.experts, h)
	}
	return nn.Add(b, x, nn.FromChannels(b, h))
}

func gatedMLP(b *mil.Builder, h *mil.Value, w *mlp) *mil.Value {
	return nn.GatedMLP(b, h, w.gate, nil, w.up, nil, w.down, nil)
}

// attention is the full attention of a layer, the slot-th of its kind, over
// channels [1, H, 1, T].
func (f *function) attention(w *attention, slot int, h *mil.Value) *mil.Value {
	b, c := f.b, f.m.cfg
	q := nn.Heads(b, nn.Project(b, h, w.q, nil), c.Heads, c.HeadDim)
	k := nn.Heads(b, nn.Project(b, h, w.k, nil), c.KVHeads, c.HeadDim)
	v := nn.Heads(b, nn.Project(b, h, w.v, nil), c.KVHeads, c.HeadDim)
	q = nn.PartialRotary(b, nn.RMSNorm(b, q, w.qNorm, c.Eps), f.cos, f.sin)
	k = nn.PartialRotary(b, nn.RMSNorm(b, k, w.kNorm, c.Eps), f.cos, f.sin)
	values := len(c.FullLayers()) + slot
	f.cache.Write(slot, k)
	f.cache.Write(values, v)
	a := nn.Attention(b, q, f.cache.Read(slot), f.cache.Read(values), f.mask, 1/math.Sqrt(float64(c.HeadDim)))
	a = nn.Mul(b, nn.MergeHeads(b, a), nn.SigmoidOfHalf(b, nn.Project(b, h, w.gate, nil)))
	return nn.Project(b, a, w.o, nil)
}

// experts evaluates all experts over channels [1, H, 1, T] and lets those
// count that the router chooses.
func (f *function) experts(w *experts, h *mil.Value) *mil.Value {
	b, m := f.b, f.m.cfg.MoE
	// What the router says of each expert, of all tokens: [1, E, 1, T].
	p := nn.Softmax(b, nn.Project(b, h, w.router, nil), 1)
	p = nn.KeepTop(b, p, m.PerToken, f.m.order)
	p = nn.Div(b, p, nn.Sum(b, p, 1))

	g := nn.SiLU(b, nn.Project(b, h, w.all.gate, nil))
	g = nn.Mul(b, g, nn.Project(b, h, w.all.up, nil))
	g = nn.Mul(b, nn.Reshape(b, g, 1, m.Experts, m.Intermediate, f.t), p)
	y := nn.Project(b, nn.Reshape(b, g, 1, m.Experts*m.Intermediate, 1, f.t), w.all.down, nil)

	shared := nn.Mul(b, gatedMLP(b, h, &w.shared), nn.SigmoidOfHalf(b, nn.Project(b, h, w.sharedGate, nil)))
	return nn.Add(b, y, shared)
}
