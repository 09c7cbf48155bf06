package qwen35

import (
	"errors"
	"fmt"
	"math"

	"anemone/internal/checkpoint"
)

// Config holds what config.json says about the computation of a Qwen3.5
// model's text part.
type Config struct {
	Hidden       int // width of the residual stream
	Layers       int
	Vocab        int // rows of the embedding, and logits
	MaxPositions int // context length that the model was made for

	// Full has, for each layer, whether it attends to the whole context; the
	// others are Gated DeltaNets.
	Full []bool

	Heads   int // query heads of an attention layer
	KVHeads int // its key and value heads; divides Heads
	HeadDim int // even
	Rotary  int // dimensions of a head that rotate, the first ones; even

	KeyHeads   int // query and key heads of a Gated DeltaNet; divides ValueHeads
	ValueHeads int
	KeyDim     int // of its heads
	ValueDim   int
	Kernel     int // inputs that its convolution sees, 2 or more

	Intermediate int // width of the gated MLP; 0 with experts
	MoE          *MoE

	Eps       float64 // added to the mean square in every norm
	RopeTheta float64 // base of the rotary frequencies

	// Tied is whether the head is the embedding, as far as config.json says;
	// see [WeightSet.Tied].
	Tied tying
}

// MoE holds the sizes of a mixture of experts.
type MoE struct {
	Experts      int
	PerToken     int // experts of each token
	Intermediate int // width of an expert
	Shared       int // width of the expert that all tokens take
}

// tying is what the levels of a config say about the head.
type tying uint8

const (
	unsaid   tying = iota // nothing
	tied                  // it is the embedding
	untied                // it is not
	disputed              // both
)

// QuerySize is the width of all query heads of an attention layer together.
func (c *Config) QuerySize() int { return c.Heads * c.HeadDim }

// KVSize is the width of its key heads together, and of its value heads.
func (c *Config) KVSize() int { return c.KVHeads * c.HeadDim }

// KeySize is the width of all query heads of a Gated DeltaNet together, and
// of its key heads.
func (c *Config) KeySize() int { return c.KeyHeads * c.KeyDim }

// ValueSize is the width of its value heads together.
func (c *Config) ValueSize() int { return c.ValueHeads * c.ValueDim }

// ConvSize is the width of what its convolution sees: queries, keys, values.
func (c *Config) ConvSize() int { return 2*c.KeySize() + c.ValueSize() }

// FullLayers returns the layers that attend to the whole context.
func (c *Config) FullLayers() []int { return c.layersOf(true) }

// LinearLayers returns the layers that are Gated DeltaNets.
func (c *Config) LinearLayers() []int { return c.layersOf(false) }

func (c *Config) layersOf(full bool) []int {
	var l []int
	for i, f := range c.Full {
		if f == full {
			l = append(l, i)
		}
	}
	return l
}

// slot returns the number of layers before l that are of its kind: its place
// in the states.
func (c *Config) slot(l int) int {
	n := 0
	for _, f := range c.Full[:l] {
		if f == c.Full[l] {
			n++
		}
	}
	return n
}

// Bounds of a configuration, far beyond every released model. They keep
// products of two widths, times a few bytes, within 64 bits.
const (
	maxWidth     = 1 << 20
	maxLayers    = 1 << 10
	maxHeads     = 1 << 12
	maxHeadDim   = 1 << 12
	maxVocab     = 1 << 24
	maxPositions = 1 << 30
	maxKernel    = 64
	maxExperts   = 2048 // what fp16 can count
)

// l2Eps is added to the square of the length of keys and queries. No config.json
// says so: every Qwen3.5 has this one.
const l2Eps = 1e-6

// ModelTypes are the values of model_type that ParseConfig reads.
var ModelTypes = []string{"qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"}

// isMoE returns whether a model type is one with experts.
func isMoE(modelType string) (moe, ok bool) {
	switch modelType {
	case "qwen3_5", "qwen3_5_text":
		return false, true
	case "qwen3_5_moe", "qwen3_5_moe_text":
		return true, true
	}
	return false, false
}

// ParseConfig reads the configuration of a Qwen3.5 model: a released one,
// whose text_config stands beside that of the image encoder, or a flat one. It
// refuses what this package does not compute. Keys that are left out have the
// values of transformers.
func ParseConfig(outer *checkpoint.Config) (*Config, error) {
	moe, ok := isMoE(outer.ModelType())
	if !ok {
		return nil, fmt.Errorf("%s: model_type: found %q, want one of %q", outer.File(), outer.ModelType(), ModelTypes)
	}
	if err := outer.CheckSupported(); err != nil {
		return nil, err
	}
	cfg := new(Config)
	r := &reader{c: outer}
	if outer.Has("text_config") {
		text, err := outer.Object("text_config")
		if err != nil {
			return nil, err
		}
		if t := text.ModelType(); t != "" {
			if inner, ok := isMoE(t); !ok || inner != moe {
				return nil, fmt.Errorf("%s: text_config.model_type: found %q beside model_type %q", outer.File(), t, outer.ModelType())
			}
		}
		r.c = text
	}

	r.int("hidden_size", &cfg.Hidden, maxWidth)
	r.int("num_hidden_layers", &cfg.Layers, maxLayers)
	r.int("vocab_size", &cfg.Vocab, maxVocab)
	r.int("num_attention_heads", &cfg.Heads, maxHeads)
	r.intOr("num_key_value_heads", &cfg.KVHeads, cfg.Heads, maxHeads)
	r.intOr("head_dim", &cfg.HeadDim, 256, maxHeadDim)
	r.intOr("max_position_embeddings", &cfg.MaxPositions, 32768, maxPositions)
	r.intOr("linear_num_key_heads", &cfg.KeyHeads, 16, maxHeads)
	r.intOr("linear_num_value_heads", &cfg.ValueHeads, 32, maxHeads)
	r.intOr("linear_key_head_dim", &cfg.KeyDim, 128, maxHeadDim)
	r.intOr("linear_value_head_dim", &cfg.ValueDim, 128, maxHeadDim)
	r.intOr("linear_conv_kernel_dim", &cfg.Kernel, 4, maxKernel)
	if moe {
		cfg.MoE = new(MoE)
		r.int("num_experts", &cfg.MoE.Experts, maxExperts)
		r.int("num_experts_per_tok", &cfg.MoE.PerToken, maxExperts)
		r.int("moe_intermediate_size", &cfg.MoE.Intermediate, maxWidth)
		r.int("shared_expert_intermediate_size", &cfg.MoE.Shared, maxWidth)
	} else {
		r.int("intermediate_size", &cfg.Intermediate, maxWidth)
	}
	if r.err != nil {
		return nil, r.err
	}
	if err := cfg.checkSizes(r); err != nil {
		return nil, err
	}

	var err error
	if cfg.Eps, err = r.c.FloatOr("rms_norm_eps", 1e-6); err != nil {
		return nil, err
	}
	if !(cfg.Eps > 0 && cfg.Eps < 1) {
		return nil, r.errorf("rms_norm_eps", "found %g, want a number between 0 and 1", cfg.Eps)
	}
	if err := r.refuse(moe); err != nil {
		return nil, err
	}
	if cfg.Full, err = r.layerTypes(cfg.Layers); err != nil {
		return nil, err
	}
	if err := cfg.rope(r); err != nil {
		return nil, err
	}
	if cfg.Tied, err = readTying(outer, r.c); err != nil {
		return nil, err
	}
	return cfg, nil
}

func (c *Config) checkSizes(r *reader) error {
	switch {
	case c.Heads%c.KVHeads != 0:
		return r.errorf("num_key_value_heads", "found %d, want a divisor of num_attention_heads, %d", c.KVHeads, c.Heads)
	case c.HeadDim%2 != 0:
		return r.errorf("head_dim", "found %d, want an even number", c.HeadDim)
	case c.ValueHeads%c.KeyHeads != 0:
		return r.errorf("linear_num_key_heads", "found %d, want a divisor of linear_num_value_heads, %d", c.KeyHeads, c.ValueHeads)
	case c.Kernel < 2:
		return r.errorf("linear_conv_kernel_dim", "found %d, want 2 or more", c.Kernel)
	case c.QuerySize() > maxWidth:
		return r.errorf("num_attention_heads", "%d times head_dim %d exceeds %d", c.Heads, c.HeadDim, maxWidth)
	case c.ConvSize() > maxWidth:
		return r.errorf("linear_num_value_heads", "the heads of a Gated DeltaNet have %d elements together, want at most %d", c.ConvSize(), maxWidth)
	}
	if m := c.MoE; m != nil {
		if m.PerToken > m.Experts {
			return r.errorf("num_experts_per_tok", "found %d, want at most num_experts, %d", m.PerToken, m.Experts)
		}
		if m.Experts*m.Intermediate > 1<<26 {
			return r.errorf("moe_intermediate_size", "%d experts of width %d have more than %d channels together", m.Experts, m.Intermediate, 1<<26)
		}
	}
	return nil
}

func (c *Config) rope(r *reader) error {
	rope, err := r.c.Rope()
	if err != nil {
		return err
	}
	if rope.Type != "default" {
		return r.errorf("rope_parameters.rope_type", "found %q, but only \"default\" is implemented for Qwen3.5; a model made for short contexts runs without the scaling: set it to \"default\" to accept that", rope.Type)
	}
	// Below 1 the frequencies would rise; infinite ones would stay silent.
	if !(rope.Theta >= 1 && rope.Theta <= math.MaxFloat32) {
		return r.errorf("rope_theta", "found %g, want a number from 1 to %g", rope.Theta, math.MaxFloat32)
	}
	c.RopeTheta = rope.Theta
	// Text has the same position in all three sections of the multimodal
	// embedding, so they do not matter here.
	part := rope.PartialRotaryFactor
	if part == 0 {
		part = 0.25
	}
	c.Rotary = int(float64(c.HeadDim) * part)
	if c.Rotary < 2 || c.Rotary%2 != 0 || c.Rotary > c.HeadDim {
		return r.errorf("partial_rotary_factor", "%g of head_dim %d are %d dimensions, want an even number from 2 on", part, c.HeadDim, c.Rotary)
	}
	return nil
}

// readTying reads tie_word_embeddings of both levels.
func readTying(outer, text *checkpoint.Config) (tying, error) {
	t := unsaid
	objects := []*checkpoint.Config{outer}
	if text != outer {
		objects = append(objects, text)
	}
	for _, o := range objects {
		if !o.Has("tie_word_embeddings") {
			continue
		}
		yes, err := o.Bool("tie_word_embeddings")
		if err != nil {
			return unsaid, err
		}
		says := untied
		if yes {
			says = tied
		}
		if t == unsaid {
			t = says
		} else if t != says {
			t = disputed
		}
	}
	return t, nil
}

// reader reads keys of an object until one is wrong.
type reader struct {
	c   *checkpoint.Config
	err error
}

func (r *reader) errorf(key, format string, args ...any) error {
	return fmt.Errorf("%s%s: %s", r.c.At(), key, fmt.Sprintf(format, args...))
}

func (r *reader) int(key string, to *int, max int) {
	if r.err == nil {
		*to, r.err = r.c.Size(key, max)
	}
}

func (r *reader) intOr(key string, to *int, def, max int) {
	if r.err == nil {
		*to, r.err = r.c.SizeOr(key, def, max)
	}
}

// refuse is about keys that must have one value.
func (r *reader) refuse(moe bool) error {
	act, err := r.c.StringOr("hidden_act", "silu")
	if err != nil {
		return err
	}
	if act != "silu" {
		return r.errorf("hidden_act", "found %q, want \"silu\", which every Qwen3.5 has", act)
	}
	for _, f := range []struct {
		key  string
		want bool
	}{{"attention_bias", false}, {"attn_output_gate", true}, {"norm_topk_prob", true}} {
		v, err := r.c.BoolOr(f.key, f.want)
		if err != nil {
			return err
		}
		if v != f.want {
			return r.errorf(f.key, "found %t, but only %t is implemented for Qwen3.5", v, f.want)
		}
	}
	if !moe {
		return nil
	}
	// Of Qwen3-Next, from which the configuration descends.
	step, err := r.c.IntOr("decoder_sparse_step", 1)
	if err != nil {
		return err
	}
	if step != 1 {
		return r.errorf("decoder_sparse_step", "found %d, but only experts in every layer are implemented", step)
	}
	only, err := r.c.Ints("mlp_only_layers")
	if err != nil && !errors.Is(err, checkpoint.ErrMissing) {
		return err
	}
	if len(only) > 0 {
		return r.errorf("mlp_only_layers", "found %v, but only experts in every layer are implemented", only)
	}
	return nil
}

// layerTypes returns which layers attend to the whole context.
func (r *reader) layerTypes(layers int) ([]bool, error) {
	full := make([]bool, layers)
	kinds, err := r.c.Strings("layer_types")
	switch {
	case errors.Is(err, checkpoint.ErrMissing):
		every, err := r.c.IntOr("full_attention_interval", 4)
		if err != nil {
			return nil, err
		}
		if every < 1 {
			return nil, r.errorf("full_attention_interval", "found %d, want 1 or more", every)
		}
		for i := range full {
			full[i] = (i+1)%every == 0
		}
		return full, nil
	case err != nil:
		return nil, err
	}
	if len(kinds) != layers {
		return nil, r.errorf("layer_types", "found %d entries, want num_hidden_layers, %d", len(kinds), layers)
	}
	for i, k := range kinds {
		switch k {
		case "full_attention":
			full[i] = true
		case "linear_attention":
		default:
			return nil, r.errorf(fmt.Sprintf("layer_types[%d]", i), "found %q, want \"linear_attention\" or \"full_attention\"", k)
		}
	}
	return full, nil
}
