package gemma4

import (
	"fmt"
	"math"
	"strconv"

	"anemone/internal/arch/gemma"
	"anemone/internal/checkpoint"
)

// Config holds what config.json says about a Gemma 4 text model's
// computation.
type Config struct {
	Hidden       int // width of the residual stream
	Layers       int
	Heads        int // query heads
	KVHeads      int // key and value heads; divides Heads
	Vocab        int // rows of the embedding, and logits
	MaxPositions int // context length that the model was made for
	Window       int // positions that sliding layers attend to, their own included

	Local, Global Attention // of sliding and of full layers

	PerLayer      int // width of a layer's per-layer input
	PerLayerVocab int // rows of the table of per-layer embeddings, at least Vocab

	// Kinds has the kind of every layer.
	Kinds []Kind
	// Shared is the number of layers at the end that read the keys and values
	// of earlier ones.
	Shared int

	Intermediate int  // width of the gated MLP
	DoubleWide   bool // MLPs of layers with shared keys are twice as wide

	Eps     float64 // added to the mean square in every norm
	Softcap float64 // bound of the logits; 0 for none

	// Tied is whether the head is the embedding. It may say true where the
	// checkpoint decides; see [WeightSet.Tied].
	Tied       bool
	tiedUnsaid bool
	// Vision and Audio are whether there is a tower, which is left out.
	Vision, Audio bool
}

// Attention is what the two kinds of layers differ in.
type Attention struct {
	HeadDim int     // even
	Theta   float64 // base of the rotary frequencies
	// Rotated is the number of frequencies, the first of HeadDim/2, that rotate
	// their pair of dimensions.
	Rotated int
}

// Kind is a kind of attention.
type Kind = gemma.Kind

// Kinds of layers.
const (
	Sliding = gemma.Sliding // attends to a window
	Full    = gemma.Full    // attends to the whole context
)

// Attention returns what layers of a kind have.
func (c *Config) Attention(k Kind) *Attention {
	if k == Full {
		return &c.Global
	}
	return &c.Local
}

// QuerySize is the width of all query heads of a layer together.
func (c *Config) QuerySize(layer int) int { return c.Heads * c.Attention(c.Kinds[layer]).HeadDim }

// KVSize is the width of all key heads of a layer together, and of all value
// heads.
func (c *Config) KVSize(layer int) int { return c.KVHeads * c.Attention(c.Kinds[layer]).HeadDim }

// MLPSize is the width of a layer's MLP.
func (c *Config) MLPSize(layer int) int {
	if c.DoubleWide && c.Shares(layer) {
		return 2 * c.Intermediate
	}
	return c.Intermediate
}

// Shares reports whether a layer reads another's keys and values.
func (c *Config) Shares(layer int) bool { return layer >= c.Layers-c.Shared }

// Producer returns the layer whose keys and values a layer reads: itself, or
// the last of its kind before the layers that share.
func (c *Config) Producer(layer int) int {
	if !c.Shares(layer) {
		return layer
	}
	for p := c.Layers - c.Shared - 1; p >= 0; p-- {
		if c.Kinds[p] == c.Kinds[layer] {
			return p
		}
	}
	return -1 // refused by ParseConfig
}

// Producers returns the layers of a kind that store keys and values, in
// order: the slots of their cache.
func (c *Config) Producers(k Kind) []int {
	var layers []int
	for i := range c.Layers - c.Shared {
		if c.Kinds[i] == k {
			layers = append(layers, i)
		}
	}
	return layers
}

// Bounds of a configuration. They are far beyond every released model and keep
// products of two of them, times a few bytes, within 64 bits.
const (
	maxWidth     = 1 << 20 // hidden, intermediate, heads*head_dim
	maxLayers    = 1 << 10
	maxHeads     = 1 << 12
	maxHeadDim   = 1 << 12
	maxVocab     = 1 << 24
	maxPositions = 1 << 30
)

// Defaults of transformers for keys that a config.json may leave out.
const (
	defaultMaxPositions = 131072
	defaultWindow       = 512
	defaultHeadDim      = 256
	defaultGlobalDim    = 512
	defaultPerLayer     = 256
	defaultVocab        = 262144
	defaultPattern      = 6 // every sixth layer is full
	defaultEps          = 1e-6
	defaultLocalTheta   = 1e4
	defaultGlobalTheta  = 1e6
	defaultPartial      = 0.25
)

// ParseConfig reads the configuration of a Gemma 4 model: that of the whole
// model, with text_config, or of the text model alone. It refuses what this
// package does not compute.
func ParseConfig(outer *checkpoint.Config) (*Config, error) {
	c, err := gemma.Text(outer, "gemma4")
	if err != nil {
		return nil, err
	}
	if err := outer.CheckSupported(); err != nil {
		return nil, err
	}
	if err := refuse(c); err != nil {
		return nil, err
	}
	cfg := &Config{Vision: outer.Has("vision_config"), Audio: outer.Has("audio_config")}
	err = c.Sizes([]gemma.Size{
		{Key: "hidden_size", To: &cfg.Hidden, Def: -1, Max: maxWidth},
		{Key: "num_hidden_layers", To: &cfg.Layers, Def: -1, Max: maxLayers},
		{Key: "num_attention_heads", To: &cfg.Heads, Def: -1, Max: maxHeads},
		{Key: "num_key_value_heads", To: &cfg.KVHeads, Def: -1, Max: maxHeads},
		{Key: "intermediate_size", To: &cfg.Intermediate, Def: -1, Max: maxWidth / 2},
		{Key: "head_dim", To: &cfg.Local.HeadDim, Def: defaultHeadDim, Max: maxHeadDim},
		{Key: "vocab_size", To: &cfg.Vocab, Def: defaultVocab, Max: maxVocab},
		{Key: "vocab_size_per_layer_input", To: &cfg.PerLayerVocab, Def: defaultVocab, Max: maxVocab},
		{Key: "hidden_size_per_layer_input", To: &cfg.PerLayer, Def: defaultPerLayer, Max: maxHeadDim},
		{Key: "sliding_window", To: &cfg.Window, Def: defaultWindow, Max: maxPositions},
		{Key: "max_position_embeddings", To: &cfg.MaxPositions, Def: defaultMaxPositions, Max: maxPositions},
	})
	if err != nil {
		return nil, err
	}
	switch {
	case cfg.Heads%cfg.KVHeads != 0:
		return nil, fmt.Errorf("%snum_key_value_heads: found %d, want a divisor of num_attention_heads, %d", c.At(), cfg.KVHeads, cfg.Heads)
	case cfg.PerLayerVocab < cfg.Vocab:
		return nil, fmt.Errorf("%svocab_size_per_layer_input: found %d, want at least vocab_size, %d: every token needs a row", c.At(), cfg.PerLayerVocab, cfg.Vocab)
	case cfg.Layers*cfg.PerLayer > maxWidth:
		return nil, fmt.Errorf("%snum_hidden_layers %d times hidden_size_per_layer_input %d exceeds %d", c.At(), cfg.Layers, cfg.PerLayer, maxWidth)
	}

	if err := cfg.parseLayers(c); err != nil {
		return nil, err
	}
	if err := cfg.parseHeadDims(c); err != nil {
		return nil, err
	}
	if err := cfg.parseRope(c); err != nil {
		return nil, err
	}
	if cfg.DoubleWide, err = c.BoolOr("use_double_wide_mlp", false); err != nil {
		return nil, err
	}
	if cfg.Eps, err = c.NormEps(defaultEps); err != nil {
		return nil, err
	}
	if cfg.Softcap, err = c.Softcap(); err != nil {
		return nil, err
	}
	tied, said, err := c.Tied(outer)
	if err != nil {
		return nil, err
	}
	cfg.Tied, cfg.tiedUnsaid = tied, !said
	return cfg, nil
}

// refuse names the keys of Gemma 4 models that this package does not compute.
func refuse(c gemma.Object) error {
	for _, f := range []struct{ key, why string }{
		{"attention_k_eq_v", "values that are computed by the keys' projection (Gemma 4 12B and 31B) are not supported; E2B and E4B are"},
		{"enable_moe_block", "mixtures of experts (Gemma 4 26B-A4B) are not supported; E2B and E4B are"},
		{"attention_bias", "projections with biases are not supported; no released Gemma 4 has them"},
	} {
		on, err := c.BoolOr(f.key, false)
		if err != nil {
			return err
		}
		if on {
			return fmt.Errorf("%s%s: found true, want false: %s", c.At(), f.key, f.why)
		}
	}
	if n, err := c.IntOr("hidden_size_per_layer_input", defaultPerLayer); err != nil {
		return err
	} else if n == 0 {
		return fmt.Errorf("%shidden_size_per_layer_input: found 0: models without per-layer inputs (Gemma 4 12B and larger) are not supported; E2B and E4B are", c.At())
	}
	switch s, err := c.StringOr("use_bidirectional_attention", ""); {
	case err != nil:
		return err
	case s != "" && s != "vision": // which only concerns images
		return fmt.Errorf("%suse_bidirectional_attention: found %q: tokens that attend to later ones are not supported", c.At(), s)
	}
	return c.Activation()
}

// parseLayers reads the kinds of layers and which of them share keys.
func (c *Config) parseLayers(o gemma.Object) error {
	var err error
	if c.Kinds, err = o.LayerKinds(c.Layers, defaultPattern); err != nil {
		return err
	}
	c.Kinds[c.Layers-1] = Full // whatever is said, as in transformers

	if c.Shared, err = o.IntOr("num_kv_shared_layers", 0); err != nil {
		return err
	}
	if c.Shared < 0 || c.Shared >= c.Layers {
		return fmt.Errorf("%snum_kv_shared_layers: found %d, want 0 to %d for %d layers", o.At(), c.Shared, c.Layers-1, c.Layers)
	}
	for i := range c.Layers {
		if c.Producer(i) < 0 {
			return fmt.Errorf("%snum_kv_shared_layers: layer %d is to share keys, but no %s layer comes before the last %d", o.At(), i, c.Kinds[i], c.Shared)
		}
	}
	// Every package declares both caches.
	for _, k := range []Kind{Sliding, Full} {
		if len(c.Producers(k)) == 0 {
			return fmt.Errorf("%slayer_types: no layer with keys of its own has %s: models with one kind of attention are not supported", o.At(), k.LayerType())
		}
	}
	return nil
}

// parseHeadDims reads the size of the heads of full layers: global_head_dim
// in released models, an entry of per_layer_config for each of them in those
// that transformers has saved again.
func (c *Config) parseHeadDims(o gemma.Object) error {
	bad := func(key string, d int) error {
		if d < 2 || d > maxHeadDim || d%2 != 0 {
			return fmt.Errorf("%s%s: found %d, want an even number up to %d: the rotary embedding pairs its halves", o.At(), key, d, maxHeadDim)
		}
		if c.Heads*d > maxWidth {
			return fmt.Errorf("%snum_attention_heads %d times %s %d exceeds %d", o.At(), c.Heads, key, d, maxWidth)
		}
		return nil
	}
	var err error
	if c.Global.HeadDim, err = o.IntOr("global_head_dim", defaultGlobalDim); err != nil {
		return err
	}
	if o.Has("per_layer_config") {
		if err := c.perLayerConfig(o); err != nil {
			return err
		}
	}
	if err := bad("head_dim", c.Local.HeadDim); err != nil {
		return err
	}
	return bad("global_head_dim", c.Global.HeadDim)
}

// perLayerConfig takes the head sizes from per_layer_config, where they must
// be the same for all layers of a kind. What it does not say is said outside:
// head_dim.
func (c *Config) perLayerConfig(o gemma.Object) error {
	const key = "per_layer_config"
	all, err := o.Object(key)
	if err != nil {
		return err
	}
	dims := make([]int, c.Layers)
	for i := range dims {
		dims[i] = c.Local.HeadDim
	}
	for _, k := range all.Keys() {
		i, err := strconv.Atoi(k)
		if err != nil || i < 0 || i >= c.Layers {
			return fmt.Errorf("%s%s: found key %q, want the number of a layer, 0 to %d", o.At(), key, k, c.Layers-1)
		}
		one, err := all.Object(k)
		if err != nil {
			return err
		}
		for _, name := range one.Keys() {
			v, err := one.Int(name)
			switch {
			case name == "head_dim" && err == nil:
				dims[i] = v
			case name == "num_key_value_heads" && err == nil && v == c.KVHeads:
			case err != nil:
				return err
			default:
				return fmt.Errorf("%s%s.%s.%s: found %d: only head_dim may differ between layers", o.At(), key, k, name, v)
			}
		}
	}
	first := map[Kind]int{}
	for i, d := range dims {
		k := c.Kinds[i]
		if f, ok := first[k]; ok && dims[f] != d {
			return fmt.Errorf("%s%s: layers %d and %d have heads of %d and %d elements, but both are %s", o.At(), key, f, i, dims[f], d, k.LayerType())
		} else if !ok {
			first[k] = i
		}
	}
	if g := dims[first[Full]]; o.Has("global_head_dim") && g != c.Global.HeadDim {
		return fmt.Errorf("%sglobal_head_dim is %d but %s says %d: remove the wrong one", o.At(), c.Global.HeadDim, key, g)
	} else {
		c.Global.HeadDim = g
	}
	c.Local.HeadDim = dims[first[Sliding]]
	return nil
}

// parseRope reads how either kind of layer rotates.
func (c *Config) parseRope(o gemma.Object) error {
	for _, k := range []Kind{Sliding, Full} {
		r := checkpoint.Rope{Type: "default", Theta: defaultLocalTheta}
		if k == Full {
			r = checkpoint.Rope{Type: "proportional", Theta: defaultGlobalTheta, PartialRotaryFactor: defaultPartial}
		}
		if o.Has("rope_parameters") {
			var err error
			if r, err = o.RopeFor(k.LayerType()); err != nil {
				return err
			}
		}
		where := o.At() + "rope_parameters." + k.LayerType()
		// Below 1 the frequencies would rise; infinite ones would stay silent.
		if !(r.Theta >= 1 && r.Theta <= math.MaxFloat32) {
			return fmt.Errorf("%s.rope_theta: found %g, want a number from 1 to %g", where, r.Theta, math.MaxFloat32)
		}
		if f, ok := r.Params["factor"]; ok && f != 1.0 {
			return fmt.Errorf("%s.factor: found %v, want 1: scaled positions are not supported", where, f)
		}
		a := c.Attention(k)
		a.Theta = r.Theta
		switch p := r.PartialRotaryFactor; {
		case r.Type == "default" && (p == 0 || p == 1):
			a.Rotated = a.HeadDim / 2
		case r.Type == "default":
			return fmt.Errorf("%s.partial_rotary_factor: found %g, want 1: only proportional rotation may be partial", where, p)
		case r.Type == "proportional" && p == 0:
			a.Rotated = a.HeadDim / 2
		case r.Type == "proportional":
			a.Rotated = int(p * float64(a.HeadDim) / 2)
		default:
			return fmt.Errorf("%s.rope_type: found %q, want \"default\" or \"proportional\"", where, r.Type)
		}
		if a.Rotated == 0 {
			return fmt.Errorf("%s.partial_rotary_factor: found %g, of which no pair of %d elements rotates", where, r.PartialRotaryFactor, a.HeadDim)
		}
	}
	return nil
}
