package mil

import "fmt"

// inferRNN covers rnn, gru and lstm, which differ in the number of gates.
func inferRNN(c *call) ([]Type, error) {
	x := c.t("x")
	if err := c.rank("x", 3); err != nil {
		return nil, err
	}
	gates := map[string]int{"rnn": 1, "gru": 3, "lstm": 4}[c.d.Name]
	whh := c.t("weight_hh")
	if err := c.rank("weight_hh", 2); err != nil {
		return nil, err
	}
	h := whh.Shape[1]
	rows, err := times(gates, h)
	if err != nil {
		return nil, err
	}
	direction, err := c.str("direction")
	if err != nil {
		return nil, err
	}
	ways, weights := 1, []string{""}
	if direction == "bidirectional" {
		ways, weights = 2, []string{"", "_back"}
	}
	for _, w := range weights {
		for _, p := range []struct {
			name string
			cols int
		}{{"weight_ih" + w, x.Shape[2]}, {"weight_hh" + w, h}} {
			if !c.has(p.name) {
				return nil, fmt.Errorf("argument %q is missing for direction %q", p.name, direction)
			}
			if err := c.shaped(p.name, rows, p.cols); err != nil {
				return nil, fmt.Errorf("%w for %d gates of %d", err, gates, h)
			}
		}
		for _, b := range []string{"bias" + w, "input_bias"} {
			if err := c.optShaped(b, rows); err != nil {
				return nil, err
			}
		}
	}
	if h, err = times(ways, h); err != nil {
		return nil, err
	}
	batch := x.Shape[1]
	for _, s := range []string{"initial_h", "initial_c"} {
		if err := c.optShaped(s, batch, h); err != nil {
			return nil, err
		}
	}
	sequence, err := c.flag("output_sequence")
	if err != nil {
		return nil, err
	}
	length := 1
	if sequence {
		length = x.Shape[0]
	}
	last := TensorOf(x.DType, batch, h)
	out := []Type{TensorOf(x.DType, length, batch, h), last}
	if c.d.Name == "lstm" {
		out = append(out, last)
	}
	return out, nil
}

// inferChannels covers the normalizations with parameters for each channel.
func inferChannels(c *call) ([]Type, error) {
	x := c.t("x")
	if x.Rank() < 3 {
		return nil, fmt.Errorf("argument %q is a %v, want rank 3 or more", "x", x)
	}
	for _, name := range []string{"mean", "variance", "gamma", "beta"} {
		if err := c.optShaped(name, x.Shape[1]); err != nil {
			return nil, err
		}
	}
	return inferSame(c)
}

func inferL2Norm(c *call) ([]Type, error) {
	if err := c.picture(); err != nil {
		return nil, err
	}
	return inferSame(c)
}

func inferLayerNorm(c *call) ([]Type, error) {
	x := c.t("x")
	axes, err := c.axes("axes", x.Rank())
	if err != nil {
		return nil, err
	}
	for i := range axes {
		axes[i] = !axes[i]
	}
	shape := without(x.Shape, axes, false)
	for _, name := range []string{"gamma", "beta"} {
		if err := c.optShaped(name, shape...); err != nil {
			return nil, err
		}
	}
	return inferSame(c)
}
