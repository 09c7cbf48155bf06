package gemma3

import (
	"fmt"
	"math"

	"anemone/internal/arch/gemma"
	"anemone/internal/checkpoint"
)

// Config holds what config.json says about a Gemma 3 text model's
// computation.
type Config struct {
	Hidden       int // width of the residual stream
	Layers       int
	Heads        int // query heads
	KVHeads      int // key and value heads; divides Heads
	HeadDim      int // even; Heads*HeadDim may differ from Hidden
	Intermediate int // width of the gated MLP
	Vocab        int // rows of the embedding, and logits
	MaxPositions int // context length that the model was made for
	Window       int // positions that sliding layers attend to, their own included

	Kinds         []Kind // of every layer
	Local, Global Rope   // of sliding and of full layers

	QueryScalar float64 // the scores are divided by its square root
	Eps         float64 // added to the mean square in every norm
	Softcap     float64 // bound of the logits; 0 for none

	// AttentionBias is whether the query, key, value and output projections
	// have biases for certain. Without it they have those that the
	// checkpoint holds.
	AttentionBias bool
	// Tied is whether the head is the embedding. It may say true where the
	// checkpoint decides; see [WeightSet.Tied].
	Tied       bool
	tiedUnsaid bool
	// Vision is whether there is a vision tower, which is left out.
	Vision bool
}

// Rope is how the layers of a kind rotate their queries and keys.
type Rope struct {
	Theta  float64 // base of the frequencies
	Factor float64 // that positions are divided by, 1 for none
}

// Kind is a kind of attention.
type Kind = gemma.Kind

// Kinds of layers.
const (
	Sliding = gemma.Sliding // attends to a window
	Full    = gemma.Full    // attends to the whole context
)

// Rope returns how layers of a kind rotate.
func (c *Config) Rope(k Kind) *Rope {
	if k == Full {
		return &c.Global
	}
	return &c.Local
}

// QuerySize is the width of all query heads together.
func (c *Config) QuerySize() int { return c.Heads * c.HeadDim }

// KVSize is the width of all key heads together, and of all value heads.
func (c *Config) KVSize() int { return c.KVHeads * c.HeadDim }

// Bounds of a configuration. They are far beyond every released model (27B
// has 62 layers, hidden 5376, intermediate 21504) and keep products of two of
// them, times a few bytes, within 64 bits.
const (
	maxWidth     = 1 << 20 // hidden, intermediate, heads*head_dim
	maxLayers    = 1 << 10
	maxHeads     = 1 << 12
	maxHeadDim   = 1 << 12
	maxVocab     = 1 << 24
	maxPositions = 1 << 30
	maxPattern   = 1 << 10
)

// Defaults of transformers for keys that a config.json may leave out. Those of
// released models do: that of 4B has little more than its sizes.
const (
	defaultVocab        = 262208
	defaultHeads        = 8
	defaultKVHeads      = 4
	defaultHeadDim      = 256
	defaultWindow       = 4096
	defaultMaxPositions = 131072
	defaultPattern      = 6 // every sixth layer is full
	defaultQueryScalar  = 256
	defaultEps          = 1e-6
	defaultLocalTheta   = 1e4
	defaultGlobalTheta  = 1e6
)

// ParseConfig reads the configuration of a Gemma 3 model, in the form of
// transformers 4 or 5: that of the whole model, with text_config, or of the
// text model alone. It refuses what this package does not compute.
func ParseConfig(outer *checkpoint.Config) (*Config, error) {
	c, err := gemma.Text(outer, "gemma3")
	if err != nil {
		return nil, err
	}
	if err := outer.CheckSupported(); err != nil {
		return nil, err
	}
	if err := refuse(c); err != nil {
		return nil, err
	}
	cfg := &Config{Vision: outer.Has("vision_config")}
	pattern := defaultPattern
	err = c.Sizes([]gemma.Size{
		{Key: "hidden_size", To: &cfg.Hidden, Def: -1, Max: maxWidth},
		{Key: "num_hidden_layers", To: &cfg.Layers, Def: -1, Max: maxLayers},
		{Key: "intermediate_size", To: &cfg.Intermediate, Def: -1, Max: maxWidth},
		{Key: "num_attention_heads", To: &cfg.Heads, Def: defaultHeads, Max: maxHeads},
		{Key: "num_key_value_heads", To: &cfg.KVHeads, Def: defaultKVHeads, Max: maxHeads},
		{Key: "head_dim", To: &cfg.HeadDim, Def: defaultHeadDim, Max: maxHeadDim},
		{Key: "vocab_size", To: &cfg.Vocab, Def: defaultVocab, Max: maxVocab},
		{Key: "sliding_window", To: &cfg.Window, Def: defaultWindow, Max: maxPositions},
		{Key: "max_position_embeddings", To: &cfg.MaxPositions, Def: defaultMaxPositions, Max: maxPositions},
		{Key: "sliding_window_pattern", To: &pattern, Def: defaultPattern, Max: maxPattern},
	})
	if err != nil {
		return nil, err
	}
	switch {
	case cfg.Heads%cfg.KVHeads != 0:
		return nil, fmt.Errorf("%snum_key_value_heads: found %d, want a divisor of num_attention_heads, %d", c.At(), cfg.KVHeads, cfg.Heads)
	case cfg.HeadDim%2 != 0:
		return nil, fmt.Errorf("%shead_dim: found %d, want an even number: the rotary embedding pairs its halves", c.At(), cfg.HeadDim)
	case cfg.QuerySize() > maxWidth:
		return nil, fmt.Errorf("%snum_attention_heads %d times head_dim %d exceeds %d", c.At(), cfg.Heads, cfg.HeadDim, maxWidth)
	}

	if cfg.Kinds, err = c.LayerKinds(cfg.Layers, pattern); err != nil {
		return nil, err
	}
	// Every package declares both caches.
	for _, k := range []Kind{Sliding, Full} {
		if len(cfg.layersOf(k)) == 0 {
			return nil, fmt.Errorf("%slayer_types: no layer has %s: models with one kind of attention are not supported", c.At(), k.LayerType())
		}
	}
	if err := cfg.parseRope(c); err != nil {
		return nil, err
	}
	const scalar = "query_pre_attn_scalar"
	if cfg.QueryScalar, err = c.FloatOr(scalar, defaultQueryScalar); err != nil {
		return nil, err
	}
	// The bounds keep the factors of norms that the root goes into within fp16.
	if !(cfg.QueryScalar >= 1e-3 && cfg.QueryScalar <= 1e6) {
		return nil, fmt.Errorf("%s%s: found %g, want a number from 0.001 to 1000000", c.At(), scalar, cfg.QueryScalar)
	}
	if cfg.Eps, err = c.NormEps(defaultEps); err != nil {
		return nil, err
	}
	if cfg.Softcap, err = c.Softcap(); err != nil {
		return nil, err
	}
	if cfg.AttentionBias, err = c.BoolOr("attention_bias", false); err != nil {
		return nil, err
	}
	tied, said, err := c.Tied(outer)
	if err != nil {
		return nil, err
	}
	cfg.Tied, cfg.tiedUnsaid = tied, !said
	return cfg, nil
}

// layersOf returns the layers of a kind, in order: the slots of their cache.
func (c *Config) layersOf(k Kind) []int {
	var layers []int
	for i, is := range c.Kinds {
		if is == k {
			layers = append(layers, i)
		}
	}
	return layers
}

// refuse names the keys of Gemma 3 models that this package does not compute.
func refuse(c gemma.Object) error {
	both, err := c.BoolOr("use_bidirectional_attention", false)
	if err != nil {
		return err
	}
	if both {
		return fmt.Errorf("%suse_bidirectional_attention: found true (as in EmbeddingGemma): tokens that attend to later ones are not supported", c.At())
	}
	const soft = "attn_logit_softcapping"
	if c.Has(soft) {
		v, err := c.Float(soft)
		if err != nil {
			return err
		}
		return fmt.Errorf("%s%s: found %g, want null: bounded attention scores (Gemma 2) are not supported; no released Gemma 3 has them", c.At(), soft, v)
	}
	return c.Activation()
}

// parseRope reads how either kind of layer rotates: from rope_parameters,
// which has an object for each kind (transformers 5), or from rope_theta and
// rope_scaling, which are those of full layers, and rope_local_base_freq
// (transformers 4).
func (c *Config) parseRope(o gemma.Object) error {
	const key = "rope_parameters"
	for _, f := range []struct {
		kind    Kind
		base    string // of transformers 4
		scaling string
		theta   float64
	}{
		{Sliding, "rope_local_base_freq", "", defaultLocalTheta},
		{Full, "rope_theta", "rope_scaling", defaultGlobalTheta},
	} {
		r := c.Rope(f.kind)
		theta, err := o.FloatOr(f.base, f.theta)
		if err != nil {
			return err
		}
		*r = Rope{Theta: theta, Factor: 1}
		where := o.At() + f.base
		if f.scaling != "" && o.Has(f.scaling) {
			s, err := o.Object(f.scaling)
			if err != nil {
				return err
			}
			if r.Factor, err = factor(s); err != nil {
				return err
			}
		}
		if o.Has(key) {
			all, err := o.Object(key)
			if err != nil {
				return err
			}
			if all.Has("rope_type") || all.Has("rope_theta") {
				return fmt.Errorf("%s%s: found settings for all layers, want an object for %s and one for %s", o.At(), key, Sliding.LayerType(), Full.LayerType())
			}
			if all.Has(f.kind.LayerType()) {
				own, err := all.Object(f.kind.LayerType())
				if err != nil {
					return err
				}
				was := *r
				where = own.At() + "rope_theta"
				if r.Theta, err = own.FloatOr("rope_theta", was.Theta); err != nil {
					return err
				}
				if r.Factor, err = factor(own); err != nil {
					return err
				}
				// A wrong guess of which is meant would give fluent nonsense.
				if o.Has(f.base) && was.Theta != r.Theta {
					return fmt.Errorf("%s is %g but %s%s says %g: remove the wrong one", where, r.Theta, o.At(), f.base, was.Theta)
				}
				if f.scaling != "" && o.Has(f.scaling) && was.Factor != r.Factor {
					return fmt.Errorf("%sfactor is %g but %s%s says %g: remove the wrong one", own.At(), r.Factor, o.At(), f.scaling, was.Factor)
				}
			}
		}
		// Below 1 the frequencies would rise; infinite ones would stay silent.
		if !(r.Theta >= 1 && r.Theta <= math.MaxFloat32) {
			return fmt.Errorf("%s: found %g, want a number from 1 to %g", where, r.Theta, math.MaxFloat32)
		}
	}
	return nil
}

// factor returns what an object of rotary settings divides positions by.
func factor(o *checkpoint.Config) (float64, error) {
	kind, err := o.StringOr("type", "default")
	if err == nil {
		kind, err = o.StringOr("rope_type", kind)
	}
	if err != nil {
		return 0, err
	}
	partial, err := o.FloatOr("partial_rotary_factor", 1)
	switch {
	case err != nil:
		return 0, err
	case partial != 1:
		return 0, fmt.Errorf("%spartial_rotary_factor: found %g, want 1: Gemma 3 rotates whole heads", o.At(), partial)
	case kind == "default":
		return 1, nil // which has no factor, whatever stands there
	case kind != "linear":
		return 0, fmt.Errorf("%srope_type: found %q, want \"default\" or \"linear\", which Gemma 3 has", o.At(), kind)
	}
	f, err := o.Float("factor")
	if err == nil && !(f >= 1 && f <= 1e6) {
		err = fmt.Errorf("%sfactor: found %g, want a number from 1 to 1000000", o.At(), f)
	}
	return f, err
}
