package decoder

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"anemone/internal/checkpoint"
)

// Types of scaling of the rotary frequencies.
const (
	Linear = "linear"
	Llama3 = "llama3"
)

// Scaling is how the frequencies of the rotary embedding differ from
// theta^(-2i/dim). The zero value is for those that do not.
type Scaling struct {
	Type string // "", Linear or Llama3
	// Factor, at least 1, divides frequencies: all of them, or the low ones of
	// Llama3.
	Factor float64

	// The rest is Llama3's. A pair of dimensions that turns HighFreq times or
	// more within Original positions keeps its frequency, one that turns
	// LowFreq times or less has a low one, and in between both are mixed.
	// 0 < LowFreq < HighFreq.
	LowFreq, HighFreq float64
	Original          int
}

// What keeps other types of scaling from being taken, in so far as there is a
// reason beside that nobody has added them.
var noScaling = map[string]string{
	"dynamic":  ": its frequencies depend on how long the text is, and a package has one table",
	"longrope": ": its frequencies depend on how long the text is, and a package has one table",
}

// readRope reads the base and the scaling of the rotary frequencies.
func readRope(c *checkpoint.Config, f *Family) (float64, Scaling, error) {
	none := Scaling{}
	r, params, err := rope(c, f)
	if err != nil {
		return 0, none, err
	}
	if r.Type != "default" && !slices.Contains(f.Scalings, r.Type) {
		return 0, none, fmt.Errorf("%s: rope type: found %q, but only %s implemented for %s%s; a model made for short contexts runs without the scaling: remove rope_scaling (or set rope_type in rope_parameters) to accept that",
			c.File(), r.Type, quoted(append([]string{"default"}, f.Scalings...)), f.Name, noScaling[r.Type])
	}
	if p := r.PartialRotaryFactor; p != 0 && p != 1 {
		return 0, none, fmt.Errorf("%s: partial_rotary_factor: found %g, want 1: %s rotates whole heads", c.File(), p, f.Name)
	}
	// Below 1 the frequencies would rise; infinite ones would stay silent.
	if !(r.Theta >= 1 && r.Theta <= math.MaxFloat32) {
		return 0, none, fmt.Errorf("%s: rope_theta: found %g, want a number from 1 to %g", c.File(), r.Theta, math.MaxFloat32)
	}
	if r.Type == "default" {
		return r.Theta, none, nil
	}
	s, err := readScaling(c, params, r.Type)
	if err != nil {
		return 0, none, err
	}
	if old := "rope_scaling"; params != old && c.Has(old) {
		o, err := readScaling(c, old, r.Type)
		if err != nil {
			return 0, none, err
		}
		if o != s {
			return 0, none, fmt.Errorf("%s: %s and %s say different things (factor %g and %g): remove the wrong one", c.File(), old, params, o.Factor, s.Factor)
		}
	}
	return r.Theta, s, nil
}

// quoted lists words as the subject of a sentence, verb included.
func quoted(words []string) string {
	q := make([]string, len(words))
	for i, w := range words {
		q[i] = fmt.Sprintf("%q", w)
	}
	last := len(q) - 1
	if last == 0 {
		return q[0] + " is"
	}
	return strings.Join(q[:last], ", ") + " and " + q[last] + " are"
}

// rope returns the settings and the key of the object that they come from.
func rope(c *checkpoint.Config, f *Family) (checkpoint.Rope, string, error) {
	key := "rope_scaling" // transformers 4
	if c.Has("rope_parameters") {
		key = "rope_parameters" // transformers 5
	}
	if f.RopeTheta == 0 {
		r, err := c.Rope()
		return r, key, err
	}
	r, err := c.RopeOr(f.RopeTheta)
	return r, key, err
}

// maxFactor is beyond every model, and what keeps frequencies above zero.
const maxFactor = 1 << 20

// readScaling reads the parameters of a type of scaling.
func readScaling(c *checkpoint.Config, key, kind string) (Scaling, error) {
	s := Scaling{Type: kind}
	params, err := c.Object(key)
	if err != nil {
		return s, err
	}
	number := func(name string, least float64) (v float64) {
		if err != nil {
			return 0
		}
		if v, err = params.Float(name); err == nil && !(v >= least && v > 0 && v <= maxFactor) {
			want := fmt.Sprintf("at least %g", least)
			if least == 0 {
				want = "above 0"
			}
			err = fmt.Errorf("%s%s: found %g, want a number %s and at most %d", params.At(), name, v, want, maxFactor)
		}
		return v
	}
	s.Factor = number("factor", 1)
	if kind == Llama3 {
		s.LowFreq, s.HighFreq = number("low_freq_factor", 0), number("high_freq_factor", 0)
		if err == nil && s.LowFreq >= s.HighFreq {
			err = fmt.Errorf("%slow_freq_factor: found %g, want less than high_freq_factor, %g", params.At(), s.LowFreq, s.HighFreq)
		}
		if err == nil {
			s.Original, err = params.Size("original_max_position_embeddings", maxPositions)
		}
	}
	if err != nil {
		return Scaling{}, err
	}
	return s, nil
}
