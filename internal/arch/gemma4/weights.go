package gemma4

import (
	"fmt"
	"strconv"
	"strings"

	"anemone/internal/arch"
	"anemone/internal/checkpoint"
)

// WeightSet is every tensor of a Gemma 4 checkpoint that takes part, each
// with the shape that the configuration asks for.
type WeightSet struct {
	// Prefix is what the names of the text model begin with:
	// "model.language_model." or "model.".
	Prefix string

	Embed         *checkpoint.Tensor // [Vocab, Hidden]
	PerLayerEmbed *checkpoint.Tensor // [PerLayerVocab, Layers*PerLayer]
	PerLayerModel *checkpoint.Tensor // [Layers*PerLayer, Hidden], projects the embedding
	PerLayerNorm  *checkpoint.Tensor // [PerLayer], of the projection, for each layer's part
	FinalNorm     *checkpoint.Tensor // [Hidden]
	Head          *checkpoint.Tensor // [Vocab, Hidden]; the same pointer as Embed when Tied
	Layers        []LayerWeights

	// Tied is whether the head is the embedding: the configuration says so,
	// or it does not say and there is no lm_head.weight. A re-saved
	// lm_head.weight beside a tied embedding is not used.
	Tied bool
}

// LayerWeights holds the tensors of one layer. A linear layer's weight is
// stored as [out, in].
type LayerWeights struct {
	InputNorm   *checkpoint.Tensor // [Hidden], before the attention
	Q           *checkpoint.Tensor // [Heads*HeadDim, Hidden]
	K, V        *checkpoint.Tensor // [KVHeads*HeadDim, Hidden]; nil in layers that share
	QNorm       *checkpoint.Tensor // [HeadDim], for each query head
	KNorm       *checkpoint.Tensor // [HeadDim], for each key head; nil in layers that share
	O           *checkpoint.Tensor // [Hidden, Heads*HeadDim]
	PostNorm    *checkpoint.Tensor // [Hidden], after the attention
	PreFFNorm   *checkpoint.Tensor // [Hidden], before the MLP
	Gate, Up    *checkpoint.Tensor // [MLPSize, Hidden]
	Down        *checkpoint.Tensor // [Hidden, MLPSize]
	PostFFNorm  *checkpoint.Tensor // [Hidden], after the MLP
	PLEGate     *checkpoint.Tensor // [PerLayer, Hidden]
	PLEProject  *checkpoint.Tensor // [Hidden, PerLayer]
	PostPLENorm *checkpoint.Tensor // [Hidden], after the per-layer input
	Scalar      *checkpoint.Tensor // [1], times the layer's output
}

// Names of tensors behind the prefix, and of the head, which has none.
const (
	embedName = "embed_tokens.weight"
	headName  = "lm_head.weight"
)

// prefixes are what the text model's names begin with: in the whole model and
// in a text model saved alone.
var prefixes = []string{"model.language_model.", "model."}

// Weights finds the tensors of a model in its checkpoint. A tensor that is
// missing or has another shape is an error.
func Weights(c *Config, ck *checkpoint.Checkpoint) (*WeightSet, error) {
	w := &WeightSet{Prefix: prefixes[1]}
	if ck.Config.Has("text_config") {
		w.Prefix = prefixes[0]
	}
	// What the configuration is wrapped in and what the names begin with need
	// not agree after a conversion by hand.
	for _, p := range prefixes {
		if !ck.Has(w.Prefix+embedName) && ck.Has(p+embedName) {
			w.Prefix = p
		}
	}
	var err error
	// need sets *to unless something went wrong before.
	need := func(to **checkpoint.Tensor, name string, shape ...int) {
		if err == nil {
			*to, err = ck.Tensor(w.Prefix+name, shape...)
		}
	}
	need(&w.Embed, embedName, c.Vocab, c.Hidden)
	need(&w.PerLayerEmbed, "embed_tokens_per_layer.weight", c.PerLayerVocab, c.Layers*c.PerLayer)
	need(&w.PerLayerModel, "per_layer_model_projection.weight", c.Layers*c.PerLayer, c.Hidden)
	need(&w.PerLayerNorm, "per_layer_projection_norm.weight", c.PerLayer)
	for i := 0; i < c.Layers && err == nil; i++ {
		var l LayerWeights
		name := func(rest string) string { return fmt.Sprintf("layers.%d.%s", i, rest) }
		dim := c.Attention(c.Kinds[i]).HeadDim
		need(&l.InputNorm, name("input_layernorm.weight"), c.Hidden)
		need(&l.Q, name("self_attn.q_proj.weight"), c.QuerySize(i), c.Hidden)
		need(&l.QNorm, name("self_attn.q_norm.weight"), dim)
		if !c.Shares(i) {
			need(&l.K, name("self_attn.k_proj.weight"), c.KVSize(i), c.Hidden)
			need(&l.V, name("self_attn.v_proj.weight"), c.KVSize(i), c.Hidden)
			need(&l.KNorm, name("self_attn.k_norm.weight"), dim)
		}
		need(&l.O, name("self_attn.o_proj.weight"), c.Hidden, c.QuerySize(i))
		need(&l.PostNorm, name("post_attention_layernorm.weight"), c.Hidden)
		need(&l.PreFFNorm, name("pre_feedforward_layernorm.weight"), c.Hidden)
		need(&l.Gate, name("mlp.gate_proj.weight"), c.MLPSize(i), c.Hidden)
		need(&l.Up, name("mlp.up_proj.weight"), c.MLPSize(i), c.Hidden)
		need(&l.Down, name("mlp.down_proj.weight"), c.Hidden, c.MLPSize(i))
		need(&l.PostFFNorm, name("post_feedforward_layernorm.weight"), c.Hidden)
		need(&l.PLEGate, name("per_layer_input_gate.weight"), c.PerLayer, c.Hidden)
		need(&l.PLEProject, name("per_layer_projection.weight"), c.Hidden, c.PerLayer)
		need(&l.PostPLENorm, name("post_per_layer_input_norm.weight"), c.Hidden)
		need(&l.Scalar, name("layer_scalar"), 1)
		w.Layers = append(w.Layers, l)
	}
	need(&w.FinalNorm, "norm.weight", c.Hidden)
	if err != nil {
		return nil, err
	}
	if w.Head, err = arch.FindHead(ck, headName, w.Embed, c.Tied, !c.tiedUnsaid); err != nil {
		return nil, err
	}
	w.Tied = w.Head == w.Embed
	return w, nil
}

// aside says what a tensor that takes no part belongs to, "" if to nothing
// known.
func aside(c *Config, prefix, name string) string {
	for _, p := range []struct{ prefix, what string }{
		{"model.vision_tower.", "vision tower (packages take text only)"},
		{"model.embed_vision.", "vision tower (packages take text only)"},
		{"model.audio_tower.", "audio tower (packages take text only)"},
		{"model.embed_audio.", "audio tower (packages take text only)"},
	} {
		if strings.HasPrefix(name, p.prefix) {
			return p.what
		}
	}
	if name == headName {
		return "copy of the embedding as LM head"
	}
	rest, ok := strings.CutPrefix(name, prefix+"layers.")
	if !ok {
		return ""
	}
	number, rest, _ := strings.Cut(rest, ".")
	if i, err := strconv.Atoi(number); err == nil && i < c.Layers && c.Shares(i) {
		switch rest {
		case "self_attn.k_proj.weight", "self_attn.v_proj.weight", "self_attn.k_norm.weight":
			return "keys and values of layers that read another's"
		}
	}
	return ""
}
