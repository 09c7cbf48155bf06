package decoder

import (
	"errors"
	"fmt"

	"anemone/internal/checkpoint"
)

// Config holds what config.json says about a model's computation.
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
	Scaling   Scaling // of the rotary frequencies

	// HeadNorms is whether each query and key head is normed.
	HeadNorms bool
	// Biases of the projections to queries, keys and values, of that from the
	// attention to the residual stream, and of the three of the MLP.
	QKVBias, OBias, MLPBias Bias

	// Tied is whether the head is the embedding. With TiedUnsaid, which means
	// that config.json does not say, the checkpoint decides; see
	// [WeightSet.Tied].
	Tied, TiedUnsaid bool
}

// Bias says whether linear layers have biases.
type Bias uint8

const (
	BiasAbsent   Bias = iota // one that the checkpoint holds is not used
	BiasPresent              // one that is missing is an error
	BiasIfStored             // those that the checkpoint holds
)

// QuerySize is the width of all query heads together.
func (c *Config) QuerySize() int { return c.Heads * c.HeadDim }

// KVSize is the width of all key heads together, and of all value heads.
func (c *Config) KVSize() int { return c.KVHeads * c.HeadDim }

// Bounds of a configuration. They are far beyond every released model (the
// largest, Llama 3.1 405B, has 126 layers, hidden 16384, intermediate 53248)
// and keep products of two of them, times a few bytes, within 64 bits.
const (
	maxWidth     = 1 << 20 // hidden, intermediate, heads*head_dim
	maxLayers    = 1 << 10
	maxHeads     = 1 << 12
	maxHeadDim   = 1 << 12
	maxVocab     = 1 << 24
	maxPositions = 1 << 30
)

// Family is what an architecture of this kind is called, and what
// transformers assumes where its config.json says nothing.
type Family struct {
	Name           string // for messages, such as "Llama"
	Architecture   string // see [arch.Info]
	Prefix         string
	TokenizerClass string

	MaxPositions int      // where max_position_embeddings is missing
	RopeTheta    float64  // where rope_theta is missing; 0 makes that an error
	Scalings     []string // types of rope scaling that are taken, beside "default"
}

const defaultEps = 1e-6

// ReadConfig reads what all families have in common, in the form of
// transformers 4 or 5. It refuses what this package does not compute: other
// activations, rotary embeddings that the family is not known to have, sliding
// windows, and weights that are quantized already. The caller sets norms and
// biases.
func ReadConfig(c *checkpoint.Config, f *Family) (*Config, error) {
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
		if *f.to, err = c.Size(f.key, f.max); err != nil {
			return nil, err
		}
	}
	for _, f := range []struct {
		key      string
		to       *int
		def, max int
	}{
		{"num_key_value_heads", &cfg.KVHeads, cfg.Heads, maxHeads},
		{"head_dim", &cfg.HeadDim, cfg.Hidden / cfg.Heads, maxHeadDim},
		{"max_position_embeddings", &cfg.MaxPositions, f.MaxPositions, maxPositions},
	} {
		var err error
		if *f.to, err = c.SizeOr(f.key, f.def, f.max); err != nil {
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
		return nil, fmt.Errorf("%s: hidden_act: found %q, want \"silu\", which every %s has", c.File(), act, f.Name)
	}
	cfg.TiedUnsaid = !c.Has("tie_word_embeddings")
	if cfg.Tied, err = c.BoolOr("tie_word_embeddings", true); err != nil {
		return nil, err
	}
	if cfg.RopeTheta, cfg.Scaling, err = readRope(c, f); err != nil {
		return nil, err
	}
	if err := checkAttention(c, f, cfg.Layers); err != nil {
		return nil, err
	}
	return cfg, nil
}

// ReadBias reads a flag that says whether linear layers have biases; without
// it they have none.
func ReadBias(c *checkpoint.Config, key string) (Bias, error) {
	has, err := c.BoolOr(key, false)
	if err != nil || !has {
		return BiasAbsent, err
	}
	return BiasPresent, nil
}

// defaultWindowLayers is how many layers, from the first on, see everything in
// a Qwen with sliding windows.
const defaultWindowLayers = 28

// checkAttention refuses layers that do not see the whole context.
func checkAttention(c *checkpoint.Config, f *Family, layers int) error {
	kinds, err := c.Strings("layer_types")
	switch {
	case err == nil:
		if len(kinds) != layers {
			return fmt.Errorf("%s: layer_types: found %d entries, want num_hidden_layers, %d", c.File(), len(kinds), layers)
		}
		for i, k := range kinds {
			if k != "full_attention" {
				return fmt.Errorf("%s: layer_types[%d]: found %q, but only \"full_attention\" is implemented for %s", c.File(), i, k, f.Name)
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
		return fmt.Errorf("%s: use_sliding_window: found true (from layer %d on), but sliding windows are not implemented for %s; a model made without them has false here", c.File(), first, f.Name)
	}
	return nil // no layer slides
}
