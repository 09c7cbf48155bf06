package qwen3

import (
	"errors"
	"fmt"
	"math"

	"anemone/internal/checkpoint"
)

// Config holds what config.json says about a Qwen3 model's computation.
type Config struct {
	Hidden       int // width of the residual stream
	Layers       int
	Heads        int // query heads
	KVHeads      int // key and value heads; divides Heads
	HeadDim      int // even; Heads*HeadDim may differ from Hidden
	Intermediate int // width of the gated MLP
	Vocab        int // rows of the embedding, and logits
	MaxPositions int // context length that the model was made for

	Eps       float64 // added to the mean square in every norm
	RopeTheta float64 // base of the rotary frequencies

	// Tied is whether the head is the embedding. It may say true where the
	// checkpoint decides; see [WeightSet.Tied].
	Tied bool
	// AttentionBias is whether the query, key, value and output projections
	// have biases for certain. Without it they have those that the
	// checkpoint holds.
	AttentionBias bool

	// tiedUnsaid: config.json does not say whether the head is tied.
	tiedUnsaid bool
}

// QuerySize is the width of all query heads together.
func (c *Config) QuerySize() int { return c.Heads * c.HeadDim }

// KVSize is the width of all key heads together, and of all value heads.
func (c *Config) KVSize() int { return c.KVHeads * c.HeadDim }

// Bounds of a configuration. They are far beyond every released model (the
// largest, 32B, has 64 layers, hidden 5120, intermediate 25600) and keep
// products of two of them, times a few bytes, within 64 bits.
const (
	maxWidth     = 1 << 20 // hidden, intermediate, heads*head_dim
	maxLayers    = 1 << 10
	maxHeads     = 1 << 12
	maxHeadDim   = 1 << 12
	maxVocab     = 1 << 24
	maxPositions = 1 << 30
)

// defaultMaxPositions and the other defaults below are those of transformers
// for keys that a config.json may leave out.
const (
	defaultMaxPositions = 32768
	defaultEps          = 1e-6
	defaultWindowLayers = 28
)

// ParseConfig reads the configuration of a Qwen3 model, in the form of
// transformers 4 or 5. It refuses what this package does not compute: other
// activations, scaled rotary embeddings, sliding windows, and weights that
// are quantized already.
func ParseConfig(c *checkpoint.Config) (*Config, error) {
	if t := c.ModelType(); t != "qwen3" {
		return nil, fmt.Errorf("%s: model_type: found %q, want \"qwen3\"", c.File(), t)
	}
	if err := c.CheckSupported(); err != nil {
		return nil, err
	}
	cfg := new(Config)
	for _, f := range []struct {
		key string
		to  *int
		max int
	}{
		{"hidden_size", &cfg.Hidden, maxWidth},
		{"num_hidden_layers", &cfg.Layers, maxLayers},
		{"num_attention_heads", &cfg.Heads, maxHeads},
		{"intermediate_size", &cfg.Intermediate, maxWidth},
		{"vocab_size", &cfg.Vocab, maxVocab},
	} {
		var err error
		if *f.to, err = c.Int(f.key); err != nil {
			return nil, err
		}
		if err := checkRange(c, f.key, *f.to, f.max); err != nil {
			return nil, err
		}
	}
	for _, f := range []struct {
		key      string
		to       *int
		def, max int
	}{
		// Missing in files that others than transformers have written.
		{"num_key_value_heads", &cfg.KVHeads, cfg.Heads, maxHeads},
		{"head_dim", &cfg.HeadDim, cfg.Hidden / cfg.Heads, maxHeadDim},
		{"max_position_embeddings", &cfg.MaxPositions, defaultMaxPositions, maxPositions},
	} {
		var err error
		if *f.to, err = c.IntOr(f.key, f.def); err != nil {
			return nil, err
		}
		if err := checkRange(c, f.key, *f.to, f.max); err != nil {
			return nil, err
		}
	}
	if !c.Has("head_dim") && cfg.Hidden%cfg.Heads != 0 {
		return nil, fmt.Errorf("%s: head_dim is missing, and hidden_size %d is no multiple of num_attention_heads %d: add head_dim", c.File(), cfg.Hidden, cfg.Heads)
	}
	if cfg.Heads%cfg.KVHeads != 0 {
		return nil, fmt.Errorf("%s: num_key_value_heads: found %d, want a divisor of num_attention_heads, %d", c.File(), cfg.KVHeads, cfg.Heads)
	}
	if cfg.HeadDim%2 != 0 {
		return nil, fmt.Errorf("%s: head_dim: found %d, want an even number: the rotary embedding pairs its halves", c.File(), cfg.HeadDim)
	}
	if cfg.QuerySize() > maxWidth {
		return nil, fmt.Errorf("%s: num_attention_heads %d times head_dim %d exceeds %d", c.File(), cfg.Heads, cfg.HeadDim, maxWidth)
	}

	var err error
	if cfg.Eps, err = c.FloatOr("rms_norm_eps", defaultEps); err != nil {
		return nil, err
	}
	if !(cfg.Eps > 0 && cfg.Eps < 1) {
		return nil, fmt.Errorf("%s: rms_norm_eps: found %g, want a number between 0 and 1", c.File(), cfg.Eps)
	}
	act, err := c.StringOr("hidden_act", "silu")
	if err != nil {
		return nil, err
	}
	if act != "silu" {
		return nil, fmt.Errorf("%s: hidden_act: found %q, want \"silu\", which every Qwen3 has", c.File(), act)
	}
	if cfg.AttentionBias, err = c.BoolOr("attention_bias", false); err != nil {
		return nil, err
	}
	cfg.tiedUnsaid = !c.Has("tie_word_embeddings")
	if cfg.Tied, err = c.BoolOr("tie_word_embeddings", true); err != nil {
		return nil, err
	}
	if cfg.RopeTheta, err = ropeTheta(c); err != nil {
		return nil, err
	}
	if err := checkAttention(c, cfg.Layers); err != nil {
		return nil, err
	}
	return cfg, nil
}

func checkRange(c *checkpoint.Config, key string, v, max int) error {
	if v < 1 || v > max {
		return fmt.Errorf("%s: %s: found %d, want 1 to %d", c.File(), key, v, max)
	}
	return nil
}

func ropeTheta(c *checkpoint.Config) (float64, error) {
	r, err := c.Rope()
	if err != nil {
		return 0, err
	}
	if r.Type != "default" {
		return 0, fmt.Errorf("%s: rope type: found %q, but only \"default\" is implemented for Qwen3; a model made for short contexts runs without the scaling: remove rope_scaling (or set rope_type in rope_parameters) to accept that", c.File(), r.Type)
	}
	if p := r.PartialRotaryFactor; p != 0 && p != 1 {
		return 0, fmt.Errorf("%s: partial_rotary_factor: found %g, want 1: Qwen3 rotates whole heads", c.File(), p)
	}
	// Below 1 the frequencies would rise; infinite ones would stay silent.
	if !(r.Theta >= 1 && r.Theta <= math.MaxFloat32) {
		return 0, fmt.Errorf("%s: rope_theta: found %g, want a number from 1 to %g", c.File(), r.Theta, math.MaxFloat32)
	}
	return r.Theta, nil
}

// checkAttention refuses layers that do not see the whole context.
func checkAttention(c *checkpoint.Config, layers int) error {
	kinds, err := c.Strings("layer_types")
	switch {
	case err == nil:
		if len(kinds) != layers {
			return fmt.Errorf("%s: layer_types: found %d entries, want num_hidden_layers, %d", c.File(), len(kinds), layers)
		}
		for i, k := range kinds {
			if k != "full_attention" {
				return fmt.Errorf("%s: layer_types[%d]: found %q, but only \"full_attention\" is implemented for Qwen3", c.File(), i, k)
			}
		}
		return nil // where there are layer_types, they decide
	case !errors.Is(err, checkpoint.ErrMissing):
		return err
	}
	use, err := c.BoolOr("use_sliding_window", false)
	if err != nil || !use {
		return err
	}
	first, err := c.IntOr("max_window_layers", defaultWindowLayers)
	if err != nil {
		return err
	}
	if first < layers {
		return fmt.Errorf("%s: use_sliding_window: found true (from layer %d on), but sliding windows are not implemented for Qwen3; a model made without them has false here", c.File(), first)
	}
	return nil // no layer slides
}
