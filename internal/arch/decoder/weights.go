package decoder

import (
	"fmt"

	"anemone/internal/arch"
	"anemone/internal/checkpoint"
)

// WeightSet is every tensor of a checkpoint that takes part, each with
// the shape that the configuration asks for.
type WeightSet struct {
	Embed     *checkpoint.Tensor // [Vocab, Hidden]
	FinalNorm *checkpoint.Tensor // [Hidden]
	Head      *checkpoint.Tensor // [Vocab, Hidden]; the same pointer as Embed when Tied
	Layers    []LayerWeights

	// Tied is whether the head is the embedding: the configuration says so,
	// or it does not say and there is no lm_head.weight. A re-saved
	// lm_head.weight beside a tied embedding is not used.
	Tied bool
}

// LayerWeights holds the tensors of one layer. A linear layer's weight is
// stored as [out, in]. What the model does not have is nil.
type LayerWeights struct {
	InputNorm *checkpoint.Tensor // [Hidden], before the attention
	Q         *checkpoint.Tensor // [Heads*HeadDim, Hidden]
	K, V      *checkpoint.Tensor // [KVHeads*HeadDim, Hidden]
	QNorm     *checkpoint.Tensor // [HeadDim], for each query head; with HeadNorms
	KNorm     *checkpoint.Tensor // [HeadDim], for each key head; with HeadNorms
	O         *checkpoint.Tensor // [Hidden, Heads*HeadDim]
	PostNorm  *checkpoint.Tensor // [Hidden], before the MLP
	Gate, Up  *checkpoint.Tensor // [Intermediate, Hidden]
	Down      *checkpoint.Tensor // [Hidden, Intermediate]

	QBias            *checkpoint.Tensor // [Heads*HeadDim]
	KBias, VBias     *checkpoint.Tensor // [KVHeads*HeadDim]
	OBias            *checkpoint.Tensor // [Hidden]
	GateBias, UpBias *checkpoint.Tensor // [Intermediate]
	DownBias         *checkpoint.Tensor // [Hidden]
}

// Names of the tensors outside the layers.
const (
	embedName = "model.embed_tokens.weight"
	normName  = "model.norm.weight"
	headName  = "lm_head.weight"
)

// layerName is the name of a tensor of a layer.
func layerName(layer int, rest string) string {
	return fmt.Sprintf("model.layers.%d.%s", layer, rest)
}

// Weights finds the tensors of a model in its checkpoint. A tensor that is
// missing or has another shape is an error.
func Weights(c *Config, ck *checkpoint.Checkpoint) (*WeightSet, error) {
	var (
		w   = &WeightSet{}
		err error
	)
	// need and may set *to unless something went wrong before.
	need := func(to **checkpoint.Tensor, name string, shape ...int) {
		if err == nil {
			*to, err = ck.Tensor(name, shape...)
		}
	}
	bias := func(to **checkpoint.Tensor, b Bias, name string, size int) {
		if b == BiasPresent || b == BiasIfStored && ck.Has(name) {
			need(to, name, size)
		}
	}
	need(&w.Embed, embedName, c.Vocab, c.Hidden)
	for i := 0; i < c.Layers && err == nil; i++ {
		var l LayerWeights
		need(&l.InputNorm, layerName(i, "input_layernorm.weight"), c.Hidden)
		need(&l.Q, layerName(i, "self_attn.q_proj.weight"), c.QuerySize(), c.Hidden)
		need(&l.K, layerName(i, "self_attn.k_proj.weight"), c.KVSize(), c.Hidden)
		need(&l.V, layerName(i, "self_attn.v_proj.weight"), c.KVSize(), c.Hidden)
		if c.HeadNorms {
			need(&l.QNorm, layerName(i, "self_attn.q_norm.weight"), c.HeadDim)
			need(&l.KNorm, layerName(i, "self_attn.k_norm.weight"), c.HeadDim)
		}
		need(&l.O, layerName(i, "self_attn.o_proj.weight"), c.Hidden, c.QuerySize())
		need(&l.PostNorm, layerName(i, "post_attention_layernorm.weight"), c.Hidden)
		need(&l.Gate, layerName(i, "mlp.gate_proj.weight"), c.Intermediate, c.Hidden)
		need(&l.Up, layerName(i, "mlp.up_proj.weight"), c.Intermediate, c.Hidden)
		need(&l.Down, layerName(i, "mlp.down_proj.weight"), c.Hidden, c.Intermediate)

		bias(&l.QBias, c.QKVBias, layerName(i, "self_attn.q_proj.bias"), c.QuerySize())
		bias(&l.KBias, c.QKVBias, layerName(i, "self_attn.k_proj.bias"), c.KVSize())
		bias(&l.VBias, c.QKVBias, layerName(i, "self_attn.v_proj.bias"), c.KVSize())
		bias(&l.OBias, c.OBias, layerName(i, "self_attn.o_proj.bias"), c.Hidden)
		bias(&l.GateBias, c.MLPBias, layerName(i, "mlp.gate_proj.bias"), c.Intermediate)
		bias(&l.UpBias, c.MLPBias, layerName(i, "mlp.up_proj.bias"), c.Intermediate)
		bias(&l.DownBias, c.MLPBias, layerName(i, "mlp.down_proj.bias"), c.Hidden)
		w.Layers = append(w.Layers, l)
	}
	need(&w.FinalNorm, normName, c.Hidden)
	if err != nil {
		return nil, err
	}
	if w.Head, err = arch.FindHead(ck, headName, w.Embed, c.Tied, !c.TiedUnsaid); err != nil {
		return nil, err
	}
	w.Tied = w.Head == w.Embed
	return w, nil
}
