package gemma4

import (
	"fmt"
	"math"

	"anemone/internal/arch"
	"anemone/internal/arch/gemma"
	"anemone/internal/arch/nn"
	"anemone/internal/checkpoint"
	"anemone/mil"
)

// Architecture is the registry's entry for Gemma 4.
var Architecture = arch.Architecture{ModelTypes: []string{"gemma4", "gemma4_text"}, Open: Open}

// Model is a Gemma 4 checkpoint that can be converted and computed.
type Model struct {
	cfg *Config
	set *WeightSet

	embed                                  *nn.Weight // times sqrt(Hidden)
	perLayerEmbed                          *nn.Weight // times sqrt(PerLayer / 2)
	perLayerModel, perLayerNorm, finalNorm *nn.Weight // the norm divided by sqrt(2)
	layers                                 []layer
	caches                                 gemma.Caches
}

// layer holds the weights of one decoder layer as the graph uses them. They
// are made once, so that all functions of a package share them. k, v and
// kNorm are nil in layers that share.
type layer struct {
	inputNorm, postNorm                *nn.Weight
	preFFNorm, postFFNorm, postPLENorm *nn.Weight
	q, k, v, o                         *nn.Weight
	qNorm, kNorm                       *nn.Weight
	gate, up, down                     *nn.Weight
	pleGate, pleProject, scalar        *nn.Weight
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
	// The embeddings are scaled, and the sum of the per-layer embedding (times
	// sqrt(PerLayer)) and of the projection is divided by sqrt(2). All of that
	// is in the tables: one product in float32, rounded once. The per-layer
	// table stays fp16 whatever the encoding of its part: Core ML maps it and
	// reads the rows that it needs, where it would expand tables of indices.
	m := &Model{
		cfg: cfg, set: set,
		embed:         nn.Lookup(set.Embed).Scaled(float32(math.Sqrt(float64(cfg.Hidden)))),
		perLayerEmbed: nn.Lookup(set.PerLayerEmbed).Plain().Scaled(float32(math.Sqrt(float64(cfg.PerLayer) / 2))),
		perLayerModel: nn.LinearAll(set.PerLayerModel),
		perLayerNorm:  nn.Vec(set.PerLayerNorm).Scaled(float32(math.Sqrt(0.5))),
		finalNorm:     nn.Vec(set.FinalNorm),
		caches: gemma.Caches{
			Window: cfg.Window, KVHeads: cfg.KVHeads,
			HeadDim: [2]int{Sliding: cfg.Local.HeadDim, Full: cfg.Global.HeadDim},
			Layers:  [2][]int{Sliding: cfg.Producers(Sliding), Full: cfg.Producers(Full)},
		},
	}
	for _, l := range set.Layers {
		g := layer{
			inputNorm: nn.Vec(l.InputNorm), postNorm: nn.Vec(l.PostNorm),
			preFFNorm: nn.Vec(l.PreFFNorm), postFFNorm: nn.Vec(l.PostFFNorm), postPLENorm: nn.Vec(l.PostPLENorm),
			q: nn.LinearAll(l.Q), o: nn.LinearAll(l.O), qNorm: nn.Vec(l.QNorm), kNorm: nn.Vec(l.KNorm),
			gate: nn.LinearAll(l.Gate), up: nn.LinearAll(l.Up), down: nn.LinearAll(l.Down),
			pleGate: nn.LinearAll(l.PLEGate), pleProject: nn.LinearAll(l.PLEProject), scalar: nn.Vec(l.Scalar),
		}
		if l.K != nil {
			g.k, g.v = nn.LinearAll(l.K), nn.LinearAll(l.V)
		}
		m.layers = append(m.layers, g)
	}
	return m, nil
}

// Info describes the model.
func (m *Model) Info() arch.Info {
	return arch.Info{
		Architecture: "gemma4", Prefix: "gemma4", TokenizerClass: "GemmaTokenizer",
		Hidden: m.cfg.Hidden, Layers: m.cfg.Layers, Vocab: m.cfg.Vocab, MaxContext: m.cfg.MaxPositions,
	}
}

// Aside says what a tensor that takes no part belongs to.
func (m *Model) Aside(tensor string) string { return aside(m.cfg, m.set.Prefix, tensor) }

// Extension is what meta.yaml says beyond the keys of plain transformers.
func (m *Model) Extension(o arch.Options) arch.Extension {
	c := m.cfg
	x := arch.Extension{
		LocalAttentionWindow: c.Window, FinalLogitSoftcap: c.Softcap, PerLayerInputs: c.Layers * c.PerLayer,
		KVSharedLayers: map[int]int{}, LocalCacheLength: m.caches.LocalLength(o), States: m.caches.States(o),
	}
	for i, k := range c.Kinds {
		x.LayerTypes = append(x.LayerTypes, k.String())
		if c.Shares(i) {
			x.KVSharedLayers[i] = c.Producer(i)
		}
	}
	return x
}

// Embeddings looks the token's rows of the embedding table up, and computes
// the inputs of all layers: the token's row of the second table plus the
// normed projection of its embedding.
func (m *Model) Embeddings(arch.Options) (*mil.Function, error) {
	c := m.cfg
	b := mil.NewBuilder("main", mil.CoreML8)
	ids := b.Input("input_ids", mil.TensorOf(mil.Int32, 1, mil.Dynamic))
	x := nn.Gather(b, m.embed, nn.Index(b, ids, c.Vocab))

	// The projection is multiplied by Hidden^-0.5 before its norm, of which
	// nothing is left behind it but the epsilon, so much larger here.
	p := nn.FromChannels(b, nn.Project(b, nn.ToChannels(b, x), m.perLayerModel, nil))
	p = nn.Reshape(b, p, 1, -1, c.Layers, c.PerLayer)
	p = nn.RMSNorm(b, p, m.perLayerNorm, c.Eps*float64(c.Hidden))
	p = nn.Reshape(b, p, 1, -1, c.Layers*c.PerLayer)
	p = nn.Add(b, p, nn.Gather(b, m.perLayerEmbed, nn.Index(b, ids, c.PerLayerVocab)))

	b.Output("hidden_states", x)
	b.Output("per_layer_inputs", p)
	return b.Build()
}

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
		a := m.cfg.Attention(k)
		rot[k] = gemma.NewRotation(k, nn.InvFreq(a.Theta, a.HeadDim)[:a.Rotated], a.HeadDim, positions)
	}
	return rot
}

// function builds the layers [first, last) over t tokens.
func (m *Model) function(name string, o arch.Options, first, last, t int, rot [2]*gemma.Rotation) (*mil.Function, error) {
	c := m.cfg
	b := mil.NewBuilder(name, mil.CoreML8)
	x := b.Input("hidden_states", mil.TensorOf(mil.Float16, 1, t, c.Hidden))
	call := gemma.NewCall(b, o, t)
	ple := b.Input("per_layer_inputs", mil.TensorOf(mil.Float16, 1, t, c.Layers*c.PerLayer))
	// Layers become an axis of their own: a slice of one has a small offset
	// then (some engines take none above 4094).
	ple = nn.Reshape(b, ple, 1, t, c.Layers, c.PerLayer)
	x, views := m.caches.Open(b, o, x, call, c.Kinds, first, last, rot)
	for i := first; i < last; i++ {
		done := b.Scope(fmt.Sprintf("layers_%d", i))
		x = m.layer(b, i, x, ple, views[c.Kinds[i]])
		done()
	}
	if last == c.Layers {
		if t > 1 {
			x = nn.Slice(b, x, 1, t-1, t) // only the last token goes on
		}
		x = nn.RMSNorm(b, x, m.finalNorm, c.Eps)
	}
	b.Output("output_hidden_states", x)
	return b.Build()
}

// layer is one decoder layer over the residual stream x [1, T, H], with the
// inputs of all layers ple [1, T, Layers, PerLayer].
func (m *Model) layer(b *mil.Builder, index int, x, ple *mil.Value, view *gemma.View) *mil.Value {
	c, l := m.cfg, &m.layers[index]
	dim := c.Attention(c.Kinds[index]).HeadDim

	// Attention. Its scores are not scaled: the queries' norm does that.
	h := nn.ToChannels(b, nn.RMSNorm(b, x, l.inputNorm, c.Eps))
	q := nn.Heads(b, nn.Project(b, h, l.q, nil), c.Heads, dim)
	q = view.Rotate(nn.RMSNorm(b, q, l.qNorm, c.Eps))
	if l.k != nil {
		k := nn.Heads(b, nn.Project(b, h, l.k, nil), c.KVHeads, dim)
		k = view.Rotate(nn.RMSNorm(b, k, l.kNorm, c.Eps))
		v := nn.RMSNorm(b, nn.Heads(b, nn.Project(b, h, l.v, nil), c.KVHeads, dim), nil, c.Eps)
		view.Store(index, k, v)
	}
	a := view.Attend(c.Producer(index), q)
	h = nn.FromChannels(b, nn.Project(b, nn.MergeHeads(b, a), l.o, nil))
	x = nn.Add(b, x, nn.RMSNorm(b, h, l.postNorm, c.Eps))

	// MLP.
	h = nn.ToChannels(b, nn.RMSNorm(b, x, l.preFFNorm, c.Eps))
	h = nn.FromChannels(b, nn.GatedGELU(b, h, l.gate, l.up, l.down))
	x = nn.Add(b, x, nn.RMSNorm(b, h, l.postFFNorm, c.Eps))

	// The layer's input of its own.
	in := nn.Transpose(b, nn.Slice(b, ple, 2, index, index+1), 0, 3, 2, 1) // [1, PerLayer, 1, T]
	h = nn.GELU(b, nn.Project(b, nn.ToChannels(b, x), l.pleGate, nil))
	h = nn.FromChannels(b, nn.Project(b, nn.Mul(b, h, in), l.pleProject, nil))
	x = nn.Add(b, x, nn.RMSNorm(b, h, l.postPLENorm, c.Eps))

	return nn.Mul(b, x, nn.Use(b, l.scalar))
}
