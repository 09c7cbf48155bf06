package qwen35

import (
	"fmt"
	"strings"

	"anemone/internal/arch"
	"anemone/internal/checkpoint"
)

// WeightSet is every tensor of a Qwen3.5 checkpoint that takes part in text,
// each with the shape that the configuration asks for.
type WeightSet struct {
	Embed     *checkpoint.Tensor // [Vocab, Hidden]
	FinalNorm *checkpoint.Tensor // [Hidden], from 1
	Head      *checkpoint.Tensor // [Vocab, Hidden]; the same pointer as Embed when Tied
	Layers    []LayerWeights

	// Tied is whether the head is the embedding: a level of the configuration
	// says so and none denies it, or there is no lm_head.weight. A re-saved
	// lm_head.weight beside a tied embedding is not used.
	Tied bool
	// Prefix is what the names of the text model's tensors begin with.
	Prefix string
}

// LayerWeights holds the tensors of one layer. A linear layer's weight is
// stored as [out, in]. "From 1" means that 1 is added to a norm's weight.
type LayerWeights struct {
	InputNorm *checkpoint.Tensor // [Hidden], from 1, before the attention
	PostNorm  *checkpoint.Tensor // [Hidden], from 1, before the MLP

	Attention *Attention // of a layer with full attention
	Delta     *Delta     // of the others
	MLP       *MLP       // of dense models
	Experts   *Experts   // of the others
}

// Attention holds the tensors of full attention.
type Attention struct {
	// Q is [2*Heads*HeadDim, Hidden]: of each head, the query and then the gate
	// of its output.
	Q            *checkpoint.Tensor
	K, V         *checkpoint.Tensor // [KVHeads*HeadDim, Hidden]
	QNorm, KNorm *checkpoint.Tensor // [HeadDim], from 1
	O            *checkpoint.Tensor // [Hidden, Heads*HeadDim]
}

// Delta holds the tensors of a Gated DeltaNet.
type Delta struct {
	QKV    *checkpoint.Tensor // [ConvSize, Hidden]: queries, keys, values
	Z      *checkpoint.Tensor // [ValueSize, Hidden]: gates of the output
	B, A   *checkpoint.Tensor // [ValueHeads, Hidden]: rates and decays
	Conv   *checkpoint.Tensor // [ConvSize, 1, Kernel]
	ALog   *checkpoint.Tensor // [ValueHeads]: logarithm of the decays' scale
	DTBias *checkpoint.Tensor // [ValueHeads]: of the decays
	Norm   *checkpoint.Tensor // [ValueDim], not from 1
	Out    *checkpoint.Tensor // [Hidden, ValueSize]
}

// MLP holds the tensors of a gated MLP of some width.
type MLP struct {
	Gate, Up *checkpoint.Tensor // [width, Hidden]
	Down     *checkpoint.Tensor // [Hidden, width]
}

// Experts holds the tensors of a mixture of experts.
type Experts struct {
	Router     *checkpoint.Tensor // [Experts, Hidden]
	Shared     MLP                // the expert of all tokens
	SharedGate *checkpoint.Tensor // [1, Hidden]: how much of it

	// Released checkpoints have one tensor for all experts: GateUp [Experts,
	// 2*Intermediate, Hidden], of each expert its gate and then its other
	// half, and Down [Experts, Hidden, Intermediate].
	GateUp, Down *checkpoint.Tensor
	// Split has the experts of checkpoints that keep them apart; GateUp and
	// Down are nil then.
	Split []MLP
}

const headName = "lm_head.weight"

// prefixes of the text model's tensors: released checkpoints and those saved
// from them as text models.
var prefixes = []string{"model.language_model.", "model."}

// Weights finds the tensors of a model in its checkpoint. A tensor that is
// missing or has another shape is an error.
func Weights(c *Config, ck *checkpoint.Checkpoint) (*WeightSet, error) {
	if ck.Format() == "mlx" {
		// Their tensors have the same names, but norms with 1 added already.
		return nil, fmt.Errorf("%s: the checkpoint was made for MLX, where weights have the same names and other values: convert from the original checkpoint instead", ck.Dir)
	}
	w := &WeightSet{}
	for _, p := range prefixes {
		if ck.Has(p + "embed_tokens.weight") {
			w.Prefix = p
			break
		}
	}
	if w.Prefix == "" {
		return nil, fmt.Errorf("%s: neither %sembed_tokens.weight nor %sembed_tokens.weight is among the checkpoint's tensors", ck.Dir, prefixes[0], prefixes[1])
	}
	f := &finder{ck: ck, prefix: w.Prefix}
	w.Embed = f.need("embed_tokens.weight", c.Vocab, c.Hidden)
	for i := 0; i < c.Layers && f.err == nil; i++ {
		f.prefix = fmt.Sprintf("%slayers.%d.", w.Prefix, i)
		l := LayerWeights{
			InputNorm: f.need("input_layernorm.weight", c.Hidden),
			PostNorm:  f.need("post_attention_layernorm.weight", c.Hidden),
		}
		if c.Full[i] {
			l.Attention = f.attention(c)
		} else {
			l.Delta = f.delta(c)
		}
		if c.MoE != nil {
			l.Experts = f.experts(c)
		} else {
			m := f.mlp("mlp.", c.Intermediate, c.Hidden)
			l.MLP = &m
		}
		w.Layers = append(w.Layers, l)
	}
	f.prefix = w.Prefix
	w.FinalNorm = f.need("norm.weight", c.Hidden)
	if f.err != nil {
		return nil, f.err
	}
	head, err := arch.FindHead(ck, headName, w.Embed, c.Tied == tied, c.Tied == tied || c.Tied == untied)
	w.Head, w.Tied = head, head == w.Embed
	return w, err
}

// finder looks tensors up until one is wrong.
type finder struct {
	ck     *checkpoint.Checkpoint
	prefix string
	err    error
}

func (f *finder) need(name string, shape ...int) *checkpoint.Tensor {
	if f.err != nil {
		return nil
	}
	var t *checkpoint.Tensor
	t, f.err = f.ck.Tensor(f.prefix+name, shape...)
	return t
}

func (f *finder) mlp(name string, width, hidden int) MLP {
	return MLP{
		Gate: f.need(name+"gate_proj.weight", width, hidden),
		Up:   f.need(name+"up_proj.weight", width, hidden),
		Down: f.need(name+"down_proj.weight", hidden, width),
	}
}

func (f *finder) attention(c *Config) *Attention {
	return &Attention{
		Q:     f.need("self_attn.q_proj.weight", 2*c.QuerySize(), c.Hidden),
		K:     f.need("self_attn.k_proj.weight", c.KVSize(), c.Hidden),
		V:     f.need("self_attn.v_proj.weight", c.KVSize(), c.Hidden),
		QNorm: f.need("self_attn.q_norm.weight", c.HeadDim),
		KNorm: f.need("self_attn.k_norm.weight", c.HeadDim),
		O:     f.need("self_attn.o_proj.weight", c.Hidden, c.QuerySize()),
	}
}

func (f *finder) delta(c *Config) *Delta {
	return &Delta{
		QKV:    f.need("linear_attn.in_proj_qkv.weight", c.ConvSize(), c.Hidden),
		Z:      f.need("linear_attn.in_proj_z.weight", c.ValueSize(), c.Hidden),
		B:      f.need("linear_attn.in_proj_b.weight", c.ValueHeads, c.Hidden),
		A:      f.need("linear_attn.in_proj_a.weight", c.ValueHeads, c.Hidden),
		Conv:   f.need("linear_attn.conv1d.weight", c.ConvSize(), 1, c.Kernel),
		ALog:   f.need("linear_attn.A_log", c.ValueHeads),
		DTBias: f.need("linear_attn.dt_bias", c.ValueHeads),
		Norm:   f.need("linear_attn.norm.weight", c.ValueDim),
		Out:    f.need("linear_attn.out_proj.weight", c.Hidden, c.ValueSize()),
	}
}

func (f *finder) experts(c *Config) *Experts {
	m := c.MoE
	x := &Experts{
		Router:     f.need("mlp.gate.weight", m.Experts, c.Hidden),
		Shared:     f.mlp("mlp.shared_expert.", m.Shared, c.Hidden),
		SharedGate: f.need("mlp.shared_expert_gate.weight", 1, c.Hidden),
	}
	const fused, split = "mlp.experts.gate_up_proj", "mlp.experts.0.gate_proj.weight"
	isFused, isSplit := f.ck.Has(f.prefix+fused), f.ck.Has(f.prefix+split)
	switch {
	case f.err != nil:
	case isFused && isSplit:
		f.err = fmt.Errorf("%s: the checkpoint has both %s%s and %s%s, which hold the same experts: remove those that are not meant", f.ck.Dir, f.prefix, fused, f.prefix, split)
	case isFused:
		x.GateUp = f.need(fused, m.Experts, 2*m.Intermediate, c.Hidden)
		x.Down = f.need("mlp.experts.down_proj", m.Experts, c.Hidden, m.Intermediate)
	case isSplit:
		for e := range m.Experts {
			x.Split = append(x.Split, f.mlp(fmt.Sprintf("mlp.experts.%d.", e), m.Intermediate, c.Hidden))
		}
	default:
		f.err = fmt.Errorf("%s: the checkpoint has neither %s%s nor %s%s", f.ck.Dir, f.prefix, fused, f.prefix, split)
	}
	return x
}

// aside returns what a tensor that is not used belongs to, "" if nobody knows.
func (w *WeightSet) aside(name string) string {
	switch {
	case strings.HasPrefix(name, "model.visual.") || strings.HasPrefix(name, "visual."):
		return "the image encoder (model.visual.*)"
	case strings.HasPrefix(name, "mtp.") || strings.HasPrefix(name, "model.mtp."):
		return "the heads that predict several tokens (mtp.*)"
	case name == headName && w.Tied:
		return "a head beside the embedding that is one already (" + headName + ")"
	}
	return ""
}
