package checkpoint

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Rope describes rotary position embeddings, whatever form the config has.
type Rope struct {
	// Type is "default", "linear", "dynamic", "yarn", "longrope", "llama3",
	// "proportional", or whatever else the config says: the caller refuses
	// what it does not implement. The old names "mrope" (plain rotation, for
	// text) and "su" come as "default" and "longrope".
	Type string
	// Theta is the base of the frequencies, above 0.
	Theta float64
	// PartialRotaryFactor is the part of each head's dimensions that rotates,
	// in (0, 1]; 0 when the config does not say.
	PartialRotaryFactor float64
	// Params holds all of rope_parameters or rope_scaling, numbers as float64;
	// nil when there is neither.
	Params map[string]any
}

// Rope reads the object's rotary settings from rope_parameters (transformers
// 5) or from rope_theta, rope_scaling and partial_rotary_factor (transformers
// 4). A config without rope_theta is an error, since a wrong guess would give
// fluent nonsense. So is one that has both forms with different values:
// transformers itself reads it differently from version to version. A config
// with settings per kind of layer needs [Config.RopeFor].
func (c *Config) Rope() (Rope, error) { return c.RopeFor("") }

// RopeOr is [Config.Rope] for models whose base is theta where the config
// gives none.
func (c *Config) RopeOr(theta float64) (Rope, error) {
	const key = "rope_theta"
	given := c.Has(key)
	for _, object := range []string{"rope_parameters", "rope_scaling"} {
		o, ok := c.Sub(object)
		given = given || ok && o.Has(key)
	}
	if given {
		return c.Rope()
	}
	with := *c
	with.m = maps.Clone(c.m)
	with.m[key] = strconv.AppendFloat(nil, theta, 'g', -1, 64)
	return with.Rope()
}

// RopeFor is [Config.Rope] for one kind of layer, such as "full_attention":
// the entry of that name in rope_parameters if it has one per kind, the
// settings for all layers otherwise.
func (c *Config) RopeFor(layerType string) (Rope, error) {
	params, err := c.optionalObject("rope_parameters")
	if err != nil {
		return Rope{}, err
	}
	legacy, err := c.optionalObject("rope_scaling")
	if err != nil {
		return Rope{}, err
	}
	if params == nil {
		return c.rope(legacy)
	}
	if kinds := params.perLayer(); kinds != nil {
		if layerType == "" {
			return Rope{}, fmt.Errorf("%s: %srope_parameters: found settings per kind of layer (%s), want one for all", c.file, c.path, strings.Join(kinds, ", "))
		}
		kind, err := params.Object(layerType)
		if err != nil {
			return Rope{}, err
		}
		return kind.rope(kind) // nothing is taken from outside: it would be for all kinds
	}
	r, err := c.rope(params)
	if err != nil {
		return Rope{}, err
	}
	return r, c.agree(r, legacy)
}

// agree checks that the settings in the form of transformers 4, where there
// are any, say what r, which came from rope_parameters, says.
func (c *Config) agree(r Rope, legacy *Config) error {
	objects := []*Config{c}
	if legacy != nil {
		objects = append(objects, legacy)
		kind, err := legacy.ropeType()
		if err != nil {
			return err
		}
		if kind != r.Type {
			return fmt.Errorf("%s: %srope_scaling says %q but rope_parameters says %q: remove the wrong one", c.file, c.path, kind, r.Type)
		}
	}
	for _, o := range objects {
		if !o.Has("rope_theta") {
			continue
		}
		theta, err := o.theta()
		if err != nil {
			return err
		}
		if theta != r.Theta {
			return fmt.Errorf("%s: %srope_theta is %g but rope_parameters says %g: remove the wrong one", c.file, o.path, theta, r.Theta)
		}
	}
	return nil
}

// optionalObject returns the object under key, nil if the key is absent.
func (c *Config) optionalObject(key string) (*Config, error) {
	if !c.Has(key) {
		return nil, nil
	}
	return c.Object(key)
}

// perLayer returns the keys of rope_parameters if its values are objects, one
// for each kind of layer.
func (c *Config) perLayer() []string {
	keys := c.Keys()
	if len(keys) == 0 || slices.ContainsFunc(keys, func(k string) bool { return c.get(k)[0] != '{' }) {
		return nil
	}
	return keys
}

func (c *Config) theta() (float64, error) {
	theta, err := c.Float("rope_theta")
	if err != nil {
		return 0, err
	}
	if theta <= 0 {
		return 0, c.found("rope_theta", c.get("rope_theta"), "a number above 0")
	}
	return theta, nil
}

// ropeType returns the type that rope_parameters or rope_scaling names.
func (c *Config) ropeType() (string, error) {
	kind, err := c.StringOr("type", "default")
	if err == nil {
		kind, err = c.StringOr("rope_type", kind)
	}
	switch kind {
	case "mrope":
		kind = "default"
	case "su":
		kind = "longrope"
	}
	return kind, err
}

// rope reads the settings in params, which may be nil, and what it leaves out
// in c.
func (c *Config) rope(params *Config) (Rope, error) {
	r := Rope{Type: "default"}
	holder := func(key string) *Config {
		if params != nil && params.Has(key) {
			return params
		}
		return c
	}
	var err error
	if params != nil {
		if r.Type, err = params.ropeType(); err != nil {
			return Rope{}, err
		}
		r.Params = make(map[string]any, len(params.m))
		for k, v := range params.m {
			var value any
			if err := json.Unmarshal(v, &value); err != nil { // a number beyond float64
				return Rope{}, fmt.Errorf("%s: %s%s: %w", params.file, params.path, k, err)
			}
			r.Params[k] = value
		}
	}
	if r.Theta, err = holder("rope_theta").theta(); err != nil {
		return Rope{}, err
	}
	const partial = "partial_rotary_factor"
	o := holder(partial)
	if r.PartialRotaryFactor, err = o.FloatOr(partial, 0); err != nil {
		return Rope{}, err
	}
	if f := r.PartialRotaryFactor; o.Has(partial) && !(0 < f && f <= 1) {
		return Rope{}, o.found(partial, o.get(partial), "a number above 0 and at most 1")
	}
	return r, nil
}
