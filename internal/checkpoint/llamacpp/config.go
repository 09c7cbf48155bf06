package llamacpp

import (
	"fmt"
	"slices"
)

// Bounds of what is passed on: far beyond every model, and small enough that
// products of two of them fit an int. The architectures have their own.
const (
	maxLayers    = 1 << 10
	maxHeads     = 1 << 12
	maxWidth     = 1 << 24
	maxPositions = 1 << 30
)

// neutral lists keys of any architecture that change the computation unless
// they have the value that is given: none of the converters for the supported
// architectures writes another, but other programs might.
var neutral = []struct {
	key  string
	want any // int, float64 or bool
}{
	{"expert_count", 0},
	{"attention.scale", 0.0},
	{"attention.output_scale", 0.0},
	{"attention.temperature_scale", 0.0},
	{"attention.temperature_length", 0},
	{"attention.max_alibi_bias", 0.0},
	{"attention.clamp_kqv", 0.0},
	{"attention.causal", true},
	{"attention.shared_kv_layers", 0},
	{"logit_scale", 0.0},
	{"embedding_scale", 0.0},
	{"residual_scale", 0.0},
	{"use_parallel_residual", false},
	{"pooling_type", 0},
	{"rope.scaling.attn_factor", 1.0},
}

// common reads what all architectures have.
func (r *reader) common(c object) {
	for _, n := range neutral {
		key := r.arch + n.key
		if !r.f.Has(key) {
			continue
		}
		var found any
		var err error
		switch n.want.(type) {
		case int:
			found, err = r.f.Int(key)
		case float64:
			found, err = r.f.Float(key)
		case bool:
			found, err = r.f.Bool(key)
		}
		if err != nil {
			r.fail(err)
		} else if found != n.want {
			r.bad(key, found, fmt.Sprintf("%v: models with another value are not supported", n.want))
		}
	}
	heads := r.int(r.arch+"attention.head_count", 1, maxHeads)
	hidden := r.int(r.arch+"embedding_length", 1, maxWidth)
	c["num_hidden_layers"] = r.int(r.arch+"block_count", 1, maxLayers)
	c["hidden_size"] = hidden
	c["num_attention_heads"] = heads
	c["num_key_value_heads"] = r.intOr(r.arch+"attention.head_count_kv", heads, 1, maxHeads)
	c["intermediate_size"] = r.int(r.arch+"feed_forward_length", 1, maxWidth)
	c["max_position_embeddings"] = r.int(r.arch+"context_length", 1, maxPositions)
	c["rms_norm_eps"] = r.float(r.arch + "attention.layer_norm_rms_epsilon")

	key := r.arch + "attention.key_length"
	dim := hidden / heads
	if !r.f.Has(key) && hidden%heads != 0 {
		r.bad(key, "nothing", fmt.Sprintf("the size of a head, as %d heads do not divide %d", heads, hidden))
	}
	dim = r.intOr(key, dim, 2, maxWidth)
	if dim%2 != 0 {
		r.bad(key, dim, "an even number")
	}
	c["head_dim"] = dim
	for _, same := range []string{"attention.value_length", "rope.dimension_count"} {
		if n := r.intOr(r.arch+same, dim, 0, maxWidth); n != dim {
			r.bad(r.arch+same, n, fmt.Sprintf("%d, the size of a head: others are not supported", dim))
		}
	}
	if embed, ok := r.f.Lookup("token_embd.weight"); !ok {
		r.fail(fmt.Errorf("%s: tensor \"token_embd.weight\" is missing", r.f.Path()))
	} else if len(embed.Shape) != 2 || embed.Shape[0] < 1 || embed.Shape[0] > maxWidth || embed.Shape[1] != hidden {
		r.fail(fmt.Errorf("%s: tensor \"token_embd.weight\": found shape %v, want [* %d]", r.f.Path(), embed.Shape, hidden))
	} else {
		c["vocab_size"] = embed.Shape[0]
	}
	_, head := r.f.Lookup("output.weight")
	c["tie_word_embeddings"] = !head
}

// without refuses keys that stand for something that the architecture does not
// have.
func (r *reader) without(keys ...string) {
	for _, key := range keys {
		if key = r.arch + key; r.f.Has(key) {
			r.bad(key, "a value", "none: not supported for the architecture")
		}
	}
}

// llamaConfig adds what Llama and Mistral have.
func llamaConfig(r *reader, c object) {
	r.without("attention.sliding_window", "attn_logit_softcapping", "final_logit_softcapping")
	c["hidden_act"] = "silu"
	c["attention_bias"] = r.hasAll("blk.0.attn_q.bias", "blk.0.attn_output.bias")
	c["mlp_bias"] = r.hasAll("blk.0.ffn_down.bias")
	rope := r.rope(10000)
	r.ropeFactors(rope, c["head_dim"].(int))
	c["rope_parameters"] = rope
}

// qwenConfig adds what Qwen2 and Qwen3 have.
func qwenConfig(r *reader, c object) {
	r.without("attention.sliding_window", "attn_logit_softcapping", "final_logit_softcapping")
	c["hidden_act"] = "silu"
	c["use_sliding_window"] = false
	c["rope_parameters"] = r.rope(10000)
	if r.arch == "qwen3." {
		c["attention_bias"] = r.hasAll("blk.0.attn_q.bias", "blk.0.attn_output.bias")
	}
}

// hasAll reports whether the file has all of the tensors.
func (r *reader) hasAll(tensors ...string) bool {
	return !slices.ContainsFunc(tensors, func(name string) bool {
		_, ok := r.f.Lookup(name)
		return !ok
	})
}

// gemma27BLayers is the number of layers by which llama.cpp knows the one
// Gemma 3 that scales its attention by the width of the model over the number
// of heads in place of the size of a head.
const gemma27BLayers = 62

// gemma3Config adds what Gemma 3 has. What converters leave out, because it is
// the same in all sizes, is as in transformers: the pattern of the layers and
// the base of the local rotary embeddings.
func gemma3Config(r *reader, c object) {
	r.without("attn_logit_softcapping")
	layers := c["num_hidden_layers"].(int)
	c["hidden_activation"] = "gelu_pytorch_tanh"
	c["attention_bias"] = r.hasAll("blk.0.attn_q.bias", "blk.0.attn_output.bias")
	c["attn_logit_softcapping"] = nil
	c["final_logit_softcapping"] = nil
	if key := r.arch + "final_logit_softcapping"; r.f.Has(key) {
		c["final_logit_softcapping"] = r.float(key)
	}
	c["query_pre_attn_scalar"] = c["head_dim"]
	if layers == gemma27BLayers {
		c["query_pre_attn_scalar"] = c["hidden_size"].(int) / c["num_attention_heads"].(int)
	}
	c["use_bidirectional_attention"] = false

	types := make([]string, layers)
	for i := range types {
		types[i] = "full_attention"
	}
	if key := r.arch + "attention.sliding_window"; r.f.Has(key) {
		c["sliding_window"] = r.int(key, 1, maxPositions)
		r.pattern(types, 6)
	}
	c["layer_types"] = types
	full := r.rope(1e6)
	c["rope_parameters"] = object{
		"full_attention":    full,
		"sliding_attention": object{"rope_type": "default", "rope_theta": r.floatOr(r.arch+"rope.freq_base_swa", 10000)},
	}
}

// pattern marks the layers with a window: all but every n-th, or those that a
// list says.
func (r *reader) pattern(types []string, n int) {
	const sliding = "sliding_attention"
	key := r.arch + "attention.sliding_window_pattern"
	if all, err := r.f.Bools(key); err == nil {
		if len(all) != len(types) {
			r.bad(key, fmt.Sprintf("%d elements", len(all)), fmt.Sprintf("%d, one for each layer", len(types)))
			return
		}
		for i, s := range all {
			if s {
				types[i] = sliding
			}
		}
		return
	}
	n = r.intOr(key, n, 1, maxLayers)
	for i := range types {
		if i%n < n-1 {
			types[i] = sliding
		}
	}
}
