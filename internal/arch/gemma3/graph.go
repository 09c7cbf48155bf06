package gemma3

import (
	"fmt"
	"math"

	"anemone/internal/arch"
	"anemone/internal/arch/gemma"
	"anemone/internal/arch/nn"
	"anemone/internal/checkpoint"
	"anemone/mil"
)

// Architecture is the registry's entry for Gemma 3.
var Architecture = arch.Architecture{ModelTypes: []string{"gemma3", "gemma3_text"}, Open: Open}

// streamScale is what the residual stream of a package is multiplied by. The
// stream grows far beyond the range of fp16, 65504: to 98,000 in the 270M
// model, to several times that in larger ones. Nothing but norms reads it, so
// the embeddings and the factors of the norms whose results are added to it
// take the scale in, and nothing else changes; a power of two rounds nothing.
const streamScale = 1.0 / 16

// smallestEps is the least that fp16 can add to a mean square.
const smallestEps = 1.0 / (1 << 24)

// Model is a Gemma 3 checkpoint that can be converted and computed.
type Model struct {
	cfg *Config
	set *WeightSet

	embed     *nn.Weight // times sqrt(Hidden) and streamScale
	finalNorm *nn.Weight
	layers    []layer
	caches    gemma.Caches
}

// layer holds the weights of one decoder layer as the graph uses them. They
// are made once, so that all functions of a package share them. Biases may be
// nil.
type layer struct {
	inputNorm, preFFNorm       *nn.Weight
	postNorm, postFFNorm       *nn.Weight // times streamScale
	q, k, v, o                 *nn.Weight
	qBias, kBias, vBias, oBias *nn.Weight
	qNorm, kNorm               *nn.Weight // that of queries divided by sqrt(QueryScalar)
	gate, up, down             *nn.Weight
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
	m := &Model{
		cfg: cfg, set: set,
		embed:     nn.Lookup(set.Embed).Scaled(float32(math.Sqrt(float64(cfg.Hidden)))).Scaled(streamScale),
		finalNorm: norm(set.FinalNorm),
		caches: gemma.Caches{
			Window: cfg.Window, KVHeads: cfg.KVHeads, HeadDim: [2]int{cfg.HeadDim, cfg.HeadDim},
			Layers: [2][]int{Sliding: cfg.layersOf(Sliding), Full: cfg.layersOf(Full)},
		},
	}
	for _, l := range set.Layers {
		m.layers = append(m.layers, layer{
			inputNorm: norm(l.InputNorm), preFFNorm: norm(l.PreFFNorm),
			postNorm: norm(l.PostNorm).Scaled(streamScale), postFFNorm: norm(l.PostFFNorm).Scaled(streamScale),
			q: nn.LinearAll(l.Q), k: nn.LinearAll(l.K), v: nn.LinearAll(l.V), o: nn.LinearAll(l.O),
			qBias: nn.Vec(l.QBias), kBias: nn.Vec(l.KBias), vBias: nn.Vec(l.VBias), oBias: nn.Vec(l.OBias),
			qNorm: norm(l.QNorm).Scaled(float32(1 / math.Sqrt(cfg.QueryScalar))), kNorm: norm(l.KNorm),
			gate: nn.LinearAll(l.Gate), up: nn.LinearAll(l.Up), down: nn.LinearAll(l.Down),
		})
	}
	return m, nil
}

// norm returns the factor of a norm, which is stored around zero.
func norm(t *checkpoint.Tensor) *nn.Weight { return nn.Vec(t).PlusOne() }

// Info describes the model.
func (m *Model) Info() arch.Info {
	return arch.Info{
		Architecture: "gemma3_text", Prefix: "gemma3", TokenizerClass: "GemmaTokenizer",
		Hidden: m.cfg.Hidden, Layers: m.cfg.Layers, Vocab: m.cfg.Vocab, MaxContext: m.cfg.MaxPositions,
	}
}

// StreamScale is what the residual stream between the chunks of a package is
// multiplied by, as against that of the reference.
func (m *Model) StreamScale() float64 { return streamScale }

// Aside says what a tensor that takes no part belongs to.
func (m *Model) Aside(tensor string) string { return aside(tensor) }

// Extension is what meta.yaml says beyond the keys of plain transformers.
func (m *Model) Extension(o arch.Options) arch.Extension {
	x := arch.Extension{
		LocalAttentionWindow: m.cfg.Window, FinalLogitSoftcap: m.cfg.Softcap,
		LocalCacheLength: m.caches.LocalLength(o), States: m.caches.States(o),
	}
	for _, k := range m.cfg.Kinds {
		x.LayerTypes = append(x.LayerTypes, k.String())
	}
	return x
}

// Embeddings looks the token's rows of the embedding table up.
func (m *Model) Embeddings(arch.Options) (*mil.Function, error) { return nn.Embeddings(m.embed) }

// Head multiplies the last token's normed state by the head, in parts, and
// bounds the logits.
func (m *Model) Head(o arch.Options) (*mil.Function, error) {
	return nn.Head(m.set.Head, arch.SplitVocab(m.cfg.Vocab, o.SplitHead), m.cfg.Softcap)
}

// Chunk builds the functions of a range of layers.
func (m *Model) Chunk(o arch.Options, first, last int) ([]*mil.Function, error) {
	rot := m.rotations(o.Context)
	return arch.BuildChunk(o, m.cfg.Layers, first, last, func(name string, tokens int) (*mil.Function, error) {
		return m.function(name, o, first, last, tokens, rot)
	})
}

// rotations returns the rotary tables of both kinds of layers.
func (m *Model) rotations(positions int) (rot [2]*gemma.Rotation) {
	for _, k := range []Kind{Sliding, Full} {
		r := m.cfg.Rope(k)
		freq := nn.LinearInvFreq(nn.InvFreq(r.Theta, m.cfg.HeadDim), r.Factor)
		rot[k] = gemma.NewRotation(k, freq, m.cfg.HeadDim, positions)
	}
	return rot
}

// function builds the layers [first, last) over t tokens.
func (m *Model) function(name string, o arch.Options, first, last, t int, rot [2]*gemma.Rotation) (*mil.Function, error) {
	c := m.cfg
	b := mil.NewBuilder(name, mil.CoreML8)
	x := b.Input("hidden_states", mil.TensorOf(mil.Float16, 1, t, c.Hidden))
	call := gemma.NewCall(b, o, t)
	x, views := m.caches.Open(b, o, x, call, c.Kinds, first, last, rot)
	for i := first; i < last; i++ {
		done := b.Scope(fmt.Sprintf("layers_%d", i))
		x = m.layer(b, i, x, views[c.Kinds[i]])
		done()
	}
	if last == c.Layers {
		if t > 1 {
			x = nn.Slice(b, x, 1, t-1, t) // only the last token goes on
		}
		x = m.streamNorm(b, x, m.finalNorm)
	}
	b.Output("output_hidden_states", x)
	return b.Build()
}

// streamNorm norms the residual stream. Of its epsilon, scaled as the mean
// squares are, little is left in fp16, and those are never near it; it keeps a
// token without an embedding from being divided by zero.
func (m *Model) streamNorm(b *mil.Builder, x *mil.Value, gamma *nn.Weight) *mil.Value {
	return nn.RMSNorm(b, x, gamma, max(m.cfg.Eps*streamScale*streamScale, smallestEps))
}

// layer is one decoder layer over the residual stream x [1, T, H].
func (m *Model) layer(b *mil.Builder, index int, x *mil.Value, view *gemma.View) *mil.Value {
	c, l := m.cfg, &m.layers[index]

	// Attention. Its scores are not scaled: the queries' norm does that.
	h := nn.ToChannels(b, m.streamNorm(b, x, l.inputNorm))
	q := nn.Heads(b, nn.Project(b, h, l.q, l.qBias), c.Heads, c.HeadDim)
	q = view.Rotate(nn.RMSNorm(b, q, l.qNorm, c.Eps))
	k := nn.Heads(b, nn.Project(b, h, l.k, l.kBias), c.KVHeads, c.HeadDim)
	k = view.Rotate(nn.RMSNorm(b, k, l.kNorm, c.Eps))
	v := nn.Heads(b, nn.Project(b, h, l.v, l.vBias), c.KVHeads, c.HeadDim)
	view.Store(index, k, v)
	a := view.Attend(index, q)
	h = nn.FromChannels(b, nn.Project(b, nn.MergeHeads(b, a), l.o, l.oBias))
	x = nn.Add(b, x, nn.RMSNorm(b, h, l.postNorm, c.Eps))

	// MLP.
	h = nn.ToChannels(b, m.streamNorm(b, x, l.preFFNorm))
	h = nn.FromChannels(b, nn.GatedGELU(b, h, l.gate, l.up, l.down))
	return nn.Add(b, x, nn.RMSNorm(b, h, l.postFFNorm, c.Eps))
}
