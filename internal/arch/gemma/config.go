package gemma

import (
	"errors"
	"fmt"

	"anemone/internal/checkpoint"
)

// Object is the object of config.json that describes a text model.
type Object struct{ *checkpoint.Config }

// Text returns the object that describes the text model of a family, such as
// "gemma4": that in text_config, or the whole file for checkpoints of the text
// model alone.
func Text(outer *checkpoint.Config, family string) (Object, error) {
	switch t := outer.ModelType(); t {
	case family:
		if !outer.Has("text_config") && outer.Has("hidden_size") {
			return Object{outer}, nil // a text model that kept the outer name
		}
		c, err := outer.Object("text_config")
		return Object{c}, err
	case family + "_text":
		return Object{outer}, nil
	default:
		return Object{}, fmt.Errorf("%s: model_type: found %q, want %q or %q", outer.File(), t, family, family+"_text")
	}
}

// A Size is a key of config.json that counts something.
type Size struct {
	Key string
	To  *int // is set to the value
	Def int  // for a key that is absent; below 0, it must be there
	Max int
}

// Sizes reads counts, from 1 to their largest values.
func (o Object) Sizes(sizes []Size) (err error) {
	for _, s := range sizes {
		if s.Def < 0 {
			*s.To, err = o.Size(s.Key, s.Max)
		} else {
			*s.To, err = o.SizeOr(s.Key, s.Def, s.Max)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// LayerKinds reads the kinds of a number of layers from layer_types, without
// which every one in pattern is full. A window that is said to be none is
// refused: transformers fails over it, so there is no telling what is meant.
func (o Object) LayerKinds(layers, pattern int) ([]Kind, error) {
	const window = "sliding_window"
	if o.Null(window) {
		return nil, fmt.Errorf("%s%s: found null, want the number of positions that layers with %s attend to", o.At(), window, Sliding.LayerType())
	}
	kinds := make([]Kind, layers)
	types, err := o.Strings("layer_types")
	switch {
	case errors.Is(err, checkpoint.ErrMissing):
		for i := pattern - 1; i < layers; i += pattern {
			kinds[i] = Full
		}
		return kinds, nil
	case err != nil:
		return nil, err
	case len(types) != layers:
		return nil, fmt.Errorf("%slayer_types: found %d entries, want num_hidden_layers, %d", o.At(), len(types), layers)
	}
	for i, t := range types {
		switch t {
		case Sliding.LayerType():
		case Full.LayerType():
			kinds[i] = Full
		default:
			return nil, fmt.Errorf("%slayer_types[%d]: found %q, want %q or %q", o.At(), i, t, Sliding.LayerType(), Full.LayerType())
		}
	}
	return kinds, nil
}

// Tied reads whether the head is the embedding. Either object may say it; when
// none does, said is false, and a model without a head of its own is tied.
func (o Object) Tied(outer *checkpoint.Config) (tied, said bool, err error) {
	const key = "tie_word_embeddings"
	from := o.Config
	if !o.Has(key) {
		from = outer
	}
	tied, err = from.BoolOr(key, true)
	return tied, from.Has(key), err
}

// Activation refuses any but the activation of all Gemma models.
func (o Object) Activation() error {
	act, err := o.StringOr("hidden_activation", "gelu_pytorch_tanh")
	if err == nil && act != "gelu_pytorch_tanh" {
		err = fmt.Errorf("%shidden_activation: found %q, want \"gelu_pytorch_tanh\", which every Gemma has", o.At(), act)
	}
	return err
}

// NormEps reads what norms add to the mean square, def if it is not said.
func (o Object) NormEps(def float64) (float64, error) {
	eps, err := o.FloatOr("rms_norm_eps", def)
	if err == nil && !(eps > 0 && eps < 1) {
		err = fmt.Errorf("%srms_norm_eps: found %g, want a number between 0 and 1", o.At(), eps)
	}
	return eps, err
}

// Softcap reads the bound of the logits, 0 for none.
func (o Object) Softcap() (float64, error) {
	const key = "final_logit_softcapping"
	c, err := o.FloatOr(key, 0)
	if err == nil && o.Has(key) && !(c >= 1e-3 && c <= 1e4) {
		err = fmt.Errorf("%s%s: found %g, want a number from 0.001 to 10000, or null", o.At(), key, c)
	}
	return c, err
}
