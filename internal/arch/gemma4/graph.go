package gemma4

import (
	"fmt"
	"math"

	"anemone/internal/arch"
	"anemone/internal/arch/nn"
	"anemone/internal/checkpoint"
	"anemone/mil"
)

// Architecture is the registry's entry for Gemma 4.
var Architecture = arch.Architecture{ModelTypes: []string{"gemma4", "gemma4_text"}, Open: Open}

// Names of the states.
const (
	localState  = "model_model_kv_cache_local"
	globalState = "model_model_kv_cache_global"
)

// Model is a Gemma 4 checkpoint that can be converted and computed.
type Model struct {
	cfg *Config
	set *WeightSet

	embed                                  *nn.Weight // times sqrt(Hidden)
	perLayerEmbed                          *nn.Weight // times sqrt(PerLayer / 2)
	perLayerModel, perLayerNorm, finalNorm *nn.Weight // the norm divided by sqrt(2)
	head                                   *checkpoint.Tensor
	layers                                 []layer

	// dropping makes the caches of the first version of the layout; see
	// [window]. Only tests do.
	dropping bool
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
		cfg: cfg, set: set, head: set.Head,
		embed:         nn.Lookup(set.Embed).Scaled(float32(math.Sqrt(float64(cfg.Hidden)))),
		perLayerEmbed: nn.Lookup(set.PerLayerEmbed).Plain().Scaled(float32(math.Sqrt(float64(cfg.PerLayer) / 2))),
		perLayerModel: nn.LinearAll(set.PerLayerModel),
		perLayerNorm:  nn.Vec(set.PerLayerNorm).Scaled(float32(math.Sqrt(0.5))),
		finalNorm:     nn.Vec(set.FinalNorm),
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
		KVSharedLayers: map[int]int{},
	}
	if w := m.window(o); w.kind != whole {
		x.LocalCacheLength = w.length
	}
	for i, k := range c.Kinds {
		x.LayerTypes = append(x.LayerTypes, k.String())
		if c.Shares(i) {
			x.KVSharedLayers[i] = c.Producer(i)
		}
	}
	local, global := m.states(o)
	x.States = []arch.State{
		{Name: localState, Shape: local, Layers: c.Producers(Sliding)},
		{Name: globalState, Shape: global, Layers: c.Producers(Full)},
	}
	return x
}

// states returns the shapes of the caches: a slot for each layer that stores
// keys and values, side by side.
func (m *Model) states(o arch.Options) (local, global []int) {
	c := m.cfg
	return []int{len(c.Producers(Sliding)), 2 * c.KVHeads, m.window(o).length, c.Local.HeadDim},
		[]int{len(c.Producers(Full)), 2 * c.KVHeads, o.Context, c.Global.HeadDim}
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
	c := m.cfg
	b := mil.NewBuilder("main", mil.CoreML8)
	x := b.Input("hidden_states", mil.TensorOf(mil.Float16, 1, 1, c.Hidden))
	if c.Softcap > 0 {
		// The soft cap's division is done here: behind the products it would be
		// a constant that compilers fold into the weights.
		x = nn.Scale(b, x, 1/c.Softcap)
	}
	x = nn.ToChannels(b, x)
	from := 0
	for i, n := range arch.SplitVocab(c.Vocab, o.SplitHead) {
		if n == 0 {
			return nil, fmt.Errorf("a vocabulary of %d does not split into %d parts", c.Vocab, o.SplitHead)
		}
		y := nn.Project(b, x, nn.Linear(m.head, from, from+n), nil)
		if c.Softcap > 0 {
			y = nn.Softcap(b, y, c.Softcap)
		}
		b.Output(fmt.Sprintf("logits%d", i+1), nn.FromChannels(b, y))
		from += n
	}
	return b.Build()
}

// Chunk builds both functions of a range of layers.
func (m *Model) Chunk(o arch.Options, first, last int) (infer, prefill *mil.Function, err error) {
	if first < 0 || last > m.cfg.Layers || first >= last {
		return nil, nil, fmt.Errorf("no layers %d to %d in a model of %d", first, last, m.cfg.Layers)
	}
	rot := [2]*rotation{Sliding: newRotation(Sliding, &m.cfg.Local, o.Context), Full: newRotation(Full, &m.cfg.Global, o.Context)}
	if infer, err = m.function("infer", o, first, last, 1, rot); err != nil {
		return nil, nil, err
	}
	prefill, err = m.function("prefill", o, first, last, o.Batch, rot)
	return infer, prefill, err
}

// kindValues is what the layers of one kind share within a function.
type kindValues struct {
	cos, sin *mil.Value // of the call's positions [1, 1, T, HeadDim]
	mask     *mil.Value // [1, 1, T, length of the cache]
	cache    *nn.Cache
	slots    map[int]int // layer that stores keys and values to its slot
}

// function builds the layers [first, last) over t tokens.
func (m *Model) function(name string, o arch.Options, first, last, t int, rot [2]*rotation) (*mil.Function, error) {
	c := m.cfg
	b := mil.NewBuilder(name, mil.CoreML8)
	x := b.Input("hidden_states", mil.TensorOf(mil.Float16, 1, t, c.Hidden))
	positions := b.Input("position_ids", mil.TensorOf(mil.Int32, t))
	causal := b.Input("causal_mask", mil.TensorOf(mil.Float16, 1, 1, t, o.Context))
	current := b.Input("current_pos", mil.TensorOf(mil.Int32, 1))
	ple := b.Input("per_layer_inputs", mil.TensorOf(mil.Float16, 1, t, c.Layers*c.PerLayer))
	localShape, globalShape := m.states(o)
	states := [2]*mil.Value{
		Sliding: b.Input(localState, mil.StateOf(mil.Float16, localShape...)),
		Full:    b.Input(globalState, mil.StateOf(mil.Float16, globalShape...)),
	}

	// Layers become an axis of their own: a slice of one has a small offset
	// then (some engines take none above 4094).
	ple = nn.Reshape(b, ple, 1, t, c.Layers, c.PerLayer)
	var kinds [2]*kindValues
	for _, k := range []Kind{Sliding, Full} {
		used := false
		for i := first; i < last; i++ {
			used = used || c.Kinds[i] == k
		}
		if !used {
			x = nn.Touch(b, x, states[k])
			continue
		}
		v := &kindValues{slots: map[int]int{}}
		for slot, i := range c.Producers(k) {
			v.slots[i] = slot
		}
		v.cos, v.sin = rot[k].at(b, positions)
		if k == Full {
			v.mask, v.cache = causal, nn.NewCache(b, states[k], current, t)
		} else {
			from, to := m.stored(k, first, last)
			v.mask, v.cache = m.window(o).open(b, states[k], from, to, positions, current, causal, t)
		}
		kinds[k] = v
	}
	for i := first; i < last; i++ {
		done := b.Scope(fmt.Sprintf("layers_%d", i))
		x = m.layer(b, i, x, ple, kinds[c.Kinds[i]])
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

// stored returns the range of slots that belong to layers [first, last).
func (m *Model) stored(k Kind, first, last int) (from, to int) {
	for _, i := range m.cfg.Producers(k) {
		if i < first {
			from++
		}
		if i < last {
			to++
		}
	}
	return from, to
}

// layer is one decoder layer over the residual stream x [1, T, H], with the
// inputs of all layers ple [1, T, Layers, PerLayer].
func (m *Model) layer(b *mil.Builder, index int, x, ple *mil.Value, kind *kindValues) *mil.Value {
	c, l := m.cfg, &m.layers[index]
	dim := c.Attention(c.Kinds[index]).HeadDim

	// Attention. Its scores are not scaled: the queries' norm does that.
	h := nn.ToChannels(b, nn.RMSNorm(b, x, l.inputNorm, c.Eps))
	q := nn.Heads(b, nn.Project(b, h, l.q, nil), c.Heads, dim)
	q = nn.Rotary(b, nn.RMSNorm(b, q, l.qNorm, c.Eps), kind.cos, kind.sin)
	if l.k != nil {
		k := nn.Heads(b, nn.Project(b, h, l.k, nil), c.KVHeads, dim)
		k = nn.Rotary(b, nn.RMSNorm(b, k, l.kNorm, c.Eps), kind.cos, kind.sin)
		v := nn.RMSNorm(b, nn.Heads(b, nn.Project(b, h, l.v, nil), c.KVHeads, dim), nil, c.Eps)
		kind.cache.Write(kind.slots[index], nn.Concat(b, 1, k, v))
	}
	kv := kind.cache.Read(kind.slots[c.Producer(index)])
	a := nn.Attention(b, q, nn.Slice(b, kv, 1, 0, c.KVHeads), nn.Slice(b, kv, 1, c.KVHeads, 2*c.KVHeads), kind.mask, 1)
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
