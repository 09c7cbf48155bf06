package gemma3

import (
	"fmt"
	"strings"

	"anemone/internal/arch"
	"anemone/internal/checkpoint"
)

// WeightSet is every tensor of a Gemma 3 checkpoint that takes part, each
// with the shape that the configuration asks for.
type WeightSet struct {
	// Prefix is what the names of the text model begin with:
	// "language_model.model.", "model.language_model." or "model.".
	Prefix string

	Embed     *checkpoint.Tensor // [Vocab, Hidden]
	FinalNorm *checkpoint.Tensor // [Hidden]
	Head      *checkpoint.Tensor // [Vocab, Hidden]; the same pointer as Embed when Tied
	Layers    []LayerWeights

	// Tied is whether the head is the embedding: the configuration says so,
	// or it does not say and there is no head. A re-saved head beside a tied
	// embedding is not used.
	Tied bool
}

// LayerWeights holds the tensors of one layer. A linear layer's weight is
// stored as [out, in], a norm's as its distance from 1. Biases that the
// checkpoint does not have are nil.
type LayerWeights struct {
	InputNorm  *checkpoint.Tensor // [Hidden], before the attention
	Q          *checkpoint.Tensor // [Heads*HeadDim, Hidden]
	K, V       *checkpoint.Tensor // [KVHeads*HeadDim, Hidden]
	QNorm      *checkpoint.Tensor // [HeadDim], for each query head
	KNorm      *checkpoint.Tensor // [HeadDim], for each key head
	O          *checkpoint.Tensor // [Hidden, Heads*HeadDim]
	PostNorm   *checkpoint.Tensor // [Hidden], after the attention
	PreFFNorm  *checkpoint.Tensor // [Hidden], before the MLP
	Gate, Up   *checkpoint.Tensor // [Intermediate, Hidden]
	Down       *checkpoint.Tensor // [Hidden, Intermediate]
	PostFFNorm *checkpoint.Tensor // [Hidden], after the MLP

	QBias        *checkpoint.Tensor // [Heads*HeadDim]
	KBias, VBias *checkpoint.Tensor // [KVHeads*HeadDim]
	OBias        *checkpoint.Tensor // [Hidden]
}

// Name of the embedding behind the prefix, and of the head behind the
// prefix's first part.
const (
	embedName = "embed_tokens.weight"
	headName  = "lm_head.weight"
)

// prefixes are what the names of a text model and its head begin with: in the
// whole model as it is released, as transformers 5 has it in memory and some
// save it, and in a text model alone.
var prefixes = []struct{ model, head string }{
	{"language_model.model.", "language_model."},
	{"model.language_model.", ""},
	{"model.", ""},
}

// Weights finds the tensors of a model in its checkpoint. A tensor that is
// missing or has another shape is an error.
func Weights(c *Config, ck *checkpoint.Checkpoint) (*WeightSet, error) {
	// What the configuration is wrapped in says nothing about the names: both
	// forms are around, and more after a conversion by hand.
	names := prefixes[len(prefixes)-1]
	if ck.Config.Has("text_config") {
		names = prefixes[0]
	}
	for _, p := range prefixes {
		if !ck.Has(names.model+embedName) && ck.Has(p.model+embedName) {
			names = p
		}
	}
	w := &WeightSet{Prefix: names.model}
	var err error
	// need sets *to unless something went wrong before.
	need := func(to **checkpoint.Tensor, name string, shape ...int) {
		if err == nil {
			*to, err = ck.Tensor(w.Prefix+name, shape...)
		}
	}
	bias := func(to **checkpoint.Tensor, name string, size int) {
		if c.AttentionBias || ck.Has(w.Prefix+name) {
			need(to, name, size)
		}
	}
	need(&w.Embed, embedName, c.Vocab, c.Hidden)
	for i := 0; i < c.Layers && err == nil; i++ {
		var l LayerWeights
		name := func(rest string) string { return fmt.Sprintf("layers.%d.%s", i, rest) }
		need(&l.InputNorm, name("input_layernorm.weight"), c.Hidden)
		need(&l.Q, name("self_attn.q_proj.weight"), c.QuerySize(), c.Hidden)
		need(&l.K, name("self_attn.k_proj.weight"), c.KVSize(), c.Hidden)
		need(&l.V, name("self_attn.v_proj.weight"), c.KVSize(), c.Hidden)
		need(&l.QNorm, name("self_attn.q_norm.weight"), c.HeadDim)
		need(&l.KNorm, name("self_attn.k_norm.weight"), c.HeadDim)
		need(&l.O, name("self_attn.o_proj.weight"), c.Hidden, c.QuerySize())
		need(&l.PostNorm, name("post_attention_layernorm.weight"), c.Hidden)
		need(&l.PreFFNorm, name("pre_feedforward_layernorm.weight"), c.Hidden)
		need(&l.Gate, name("mlp.gate_proj.weight"), c.Intermediate, c.Hidden)
		need(&l.Up, name("mlp.up_proj.weight"), c.Intermediate, c.Hidden)
		need(&l.Down, name("mlp.down_proj.weight"), c.Hidden, c.Intermediate)
		need(&l.PostFFNorm, name("post_feedforward_layernorm.weight"), c.Hidden)

		bias(&l.QBias, name("self_attn.q_proj.bias"), c.QuerySize())
		bias(&l.KBias, name("self_attn.k_proj.bias"), c.KVSize())
		bias(&l.VBias, name("self_attn.v_proj.bias"), c.KVSize())
		bias(&l.OBias, name("self_attn.o_proj.bias"), c.Hidden)
		w.Layers = append(w.Layers, l)
	}
	need(&w.FinalNorm, "norm.weight", c.Hidden)
	if err != nil {
		return nil, err
	}
	// Text models have their head outside of what the prefix names, also
	// where that was renamed.
	head := names.head + headName
	if !ck.Has(head) && ck.Has(headName) {
		head = headName
	}
	if w.Head, err = arch.FindHead(ck, head, w.Embed, c.Tied, !c.tiedUnsaid); err != nil {
		return nil, err
	}
	w.Tied = w.Head == w.Embed
	return w, nil
}

// aside says what a tensor that takes no part belongs to, "" if to nothing
// known.
func aside(name string) string {
	for _, part := range []string{"vision_tower.", "multi_modal_projector."} {
		if strings.HasPrefix(strings.TrimPrefix(name, "model."), part) {
			return "vision tower (packages take text only)"
		}
	}
	for _, p := range prefixes {
		if name == p.head+headName {
			return "copy of the embedding as LM head"
		}
	}
	return ""
}
