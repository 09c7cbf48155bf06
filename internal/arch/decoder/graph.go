package decoder

import (
	"fmt"
	"math"
	"strings"

	"anemone/internal/arch"
	"anemone/internal/arch/nn"
	"anemone/internal/checkpoint"
	"anemone/mil"
)

// Model is a checkpoint that can be converted and computed.
type Model struct {
	family *Family
	cfg    *Config
	set    *WeightSet

	embed  *nn.Weight
	norm   *nn.Weight
	layers []layer
}

// layer holds the weights of one decoder layer as the graph uses them. They
// are made once, so that all functions of a package share them.
type layer struct {
	inputNorm, postNorm        *nn.Weight
	q, k, v, o                 *nn.Weight
	qBias, kBias               *nn.Weight
	vBias, oBias               *nn.Weight
	qNorm, kNorm               *nn.Weight
	gate, up, down             *nn.Weight
	gateBias, upBias, downBias *nn.Weight
}

// Open checks the presence and shape of every tensor that the configuration
// asks for.
func Open(ck *checkpoint.Checkpoint, f *Family, cfg *Config) (*Model, error) {
	set, err := Weights(cfg, ck)
	if err != nil {
		return nil, err
	}
	m := &Model{family: f, cfg: cfg, set: set, embed: nn.Lookup(set.Embed), norm: nn.Vec(set.FinalNorm)}
	for _, l := range set.Layers {
		m.layers = append(m.layers, layer{
			inputNorm: nn.Vec(l.InputNorm), postNorm: nn.Vec(l.PostNorm),
			q: nn.LinearAll(l.Q), k: nn.LinearAll(l.K), v: nn.LinearAll(l.V), o: nn.LinearAll(l.O),
			qBias: nn.Vec(l.QBias), kBias: nn.Vec(l.KBias), vBias: nn.Vec(l.VBias), oBias: nn.Vec(l.OBias),
			qNorm: nn.Vec(l.QNorm), kNorm: nn.Vec(l.KNorm),
			gate: nn.LinearAll(l.Gate), up: nn.LinearAll(l.Up), down: nn.LinearAll(l.Down),
			gateBias: nn.Vec(l.GateBias), upBias: nn.Vec(l.UpBias), downBias: nn.Vec(l.DownBias),
		})
	}
	return m, nil
}

// Config returns what the model's config.json says.
func (m *Model) Config() *Config { return m.cfg }

// Weights returns the model's tensors.
func (m *Model) Weights() *WeightSet { return m.set }

// Aside implements [arch.Partial].
func (m *Model) Aside(tensor string) string {
	if strings.HasSuffix(tensor, ".rotary_emb.inv_freq") {
		return "rotary frequencies that follow from the configuration"
	}
	if tensor == headName && m.set.Tied {
		return "copy of the embedding as LM head"
	}
	return ""
}

// Info describes the model.
func (m *Model) Info() arch.Info {
	return arch.Info{
		Architecture: m.family.Architecture, Prefix: m.family.Prefix, TokenizerClass: m.family.TokenizerClass,
		Hidden: m.cfg.Hidden, Layers: m.cfg.Layers, Vocab: m.cfg.Vocab, MaxContext: m.cfg.MaxPositions,
	}
}

// Embeddings looks the token's rows of the embedding table up.
func (m *Model) Embeddings(arch.Options) (*mil.Function, error) { return nn.Embeddings(m.embed) }

// Head multiplies the last token's normed state by the head, in parts.
func (m *Model) Head(o arch.Options) (*mil.Function, error) {
	return nn.Head(m.set.Head, arch.SplitVocab(m.cfg.Vocab, o.SplitHead), 0)
}

// Chunk builds the functions of a range of layers.
func (m *Model) Chunk(o arch.Options, first, last int) ([]*mil.Function, error) {
	cos, sin := nn.RotaryTables("rotary", o.Context, invFreq(m.cfg))
	return arch.BuildChunk(o, m.cfg.Layers, first, last, func(name string, tokens int) (*mil.Function, error) {
		return m.function(name, o, first, last, tokens, cos, sin)
	})
}

// invFreq returns the inverse frequencies of the rotary embedding.
func invFreq(c *Config) []float32 {
	f, s := nn.InvFreq(c.RopeTheta, c.HeadDim), &c.Scaling
	switch s.Type {
	case Linear:
		return nn.LinearInvFreq(f, s.Factor)
	case Llama3:
		return nn.Llama3InvFreq(f, s.Factor, s.LowFreq, s.HighFreq, float64(s.Original))
	}
	return f
}

// function builds the layers [first, last) over t tokens.
func (m *Model) function(name string, o arch.Options, first, last, t int, cos, sin *nn.Weight) (*mil.Function, error) {
	c := m.cfg
	b := mil.NewBuilder(name, mil.CoreML8)
	x := b.Input("hidden_states", mil.TensorOf(mil.Float16, 1, t, c.Hidden))
	positions := b.Input("position_ids", mil.TensorOf(mil.Int32, t))
	mask := b.Input("causal_mask", mil.TensorOf(mil.Float16, 1, 1, t, o.Context))
	current := b.Input("current_pos", mil.TensorOf(mil.Int32, 1))
	state := b.Input(arch.StateKV, mil.StateOf(mil.Float16, 2*c.Layers, c.KVHeads, o.Context, c.HeadDim))

	cosT, sinT := nn.RotaryAt(b, cos, sin, positions)
	cache := nn.NewCache(b, state, current, t)
	for i := first; i < last; i++ {
		done := b.Scope(fmt.Sprintf("layers_%d", i))
		x = m.layer(b, &m.layers[i], i, x, cosT, sinT, mask, cache)
		done()
	}
	if last == c.Layers {
		if t > 1 {
			x = nn.Slice(b, x, 1, t-1, t) // only the last token goes on
		}
		x = nn.RMSNorm(b, x, m.norm, c.Eps)
	}
	b.Output("output_hidden_states", x)
	return b.Build()
}

// layer is one decoder layer over the residual stream x [1, T, H].
func (m *Model) layer(b *mil.Builder, l *layer, index int, x, cos, sin, mask *mil.Value, cache *nn.Cache) *mil.Value {
	c := m.cfg
	h := nn.ToChannels(b, nn.RMSNorm(b, x, l.inputNorm, c.Eps))
	q := nn.Heads(b, nn.Project(b, h, l.q, l.qBias), c.Heads, c.HeadDim)
	k := nn.Heads(b, nn.Project(b, h, l.k, l.kBias), c.KVHeads, c.HeadDim)
	v := nn.Heads(b, nn.Project(b, h, l.v, l.vBias), c.KVHeads, c.HeadDim)
	q = nn.Rotary(b, headNorm(b, q, l.qNorm, c.Eps), cos, sin)
	k = nn.Rotary(b, headNorm(b, k, l.kNorm, c.Eps), cos, sin)

	cache.Write(index, k)
	cache.Write(c.Layers+index, v)
	a := nn.Attention(b, q, cache.Read(index), cache.Read(c.Layers+index), mask, 1/math.Sqrt(float64(c.HeadDim)))
	x = nn.Add(b, x, nn.FromChannels(b, nn.Project(b, nn.MergeHeads(b, a), l.o, l.oBias)))

	h = nn.ToChannels(b, nn.RMSNorm(b, x, l.postNorm, c.Eps))
	h = nn.GatedMLP(b, h, l.gate, l.gateBias, l.up, l.upBias, l.down, l.downBias)
	return nn.Add(b, x, nn.FromChannels(b, h))
}

// headNorm norms each head of x; without a weight it leaves x as it is.
func headNorm(b *mil.Builder, x *mil.Value, weight *nn.Weight, eps float64) *mil.Value {
	if weight == nil {
		return x
	}
	return nn.RMSNorm(b, x, weight, eps)
}
