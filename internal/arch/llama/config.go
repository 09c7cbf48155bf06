package llama

import (
	"fmt"

	"anemone/internal/arch"
	"anemone/internal/arch/decoder"
	"anemone/internal/checkpoint"
)

// Architecture is the registry's entry for Llama and Mistral.
var Architecture = arch.Architecture{ModelTypes: []string{"llama", "mistral"}, Open: Open}

// families by model_type. ANEMLL converts whatever it does not know as a
// Llama, under that prefix.
var families = map[string]*decoder.Family{
	"llama": {
		Name: "Llama", Architecture: "llama", Prefix: "llama", TokenizerClass: "LlamaTokenizer",
		MaxPositions: 2048, RopeTheta: 10000, Scalings: []string{decoder.Linear, decoder.Llama3},
	},
	"mistral": {
		Name: "Mistral", Architecture: "mistral", Prefix: "llama", TokenizerClass: "LlamaTokenizer",
		MaxPositions: 131072, RopeTheta: 10000, Scalings: []string{decoder.Linear, decoder.Llama3},
	},
}

// Open checks the configuration and the presence and shape of every tensor.
func Open(ck *checkpoint.Checkpoint) (arch.Model, error) {
	cfg, err := ParseConfig(ck.Config)
	if err != nil {
		return nil, err
	}
	return decoder.Open(ck, families[ck.Config.ModelType()], cfg)
}

// ParseConfig reads the configuration of a Llama or Mistral model, in the form
// of transformers 4 or 5. Llama's may lack rope_theta: those of the first two
// generations do, and mean 10000.
func ParseConfig(c *checkpoint.Config) (*decoder.Config, error) {
	kind := c.ModelType()
	f := families[kind]
	if f == nil {
		return nil, fmt.Errorf("%s: model_type: found %q, want \"llama\" or \"mistral\"", c.File(), kind)
	}
	cfg, err := decoder.ReadConfig(c, f)
	if err != nil {
		return nil, err
	}
	if kind == "mistral" {
		if err := checkWindow(c, cfg); err != nil {
			return nil, err
		}
		return cfg, nil // it has no biases
	}
	if cfg.QKVBias, err = decoder.ReadBias(c, "attention_bias"); err != nil {
		return nil, err
	}
	cfg.OBias = cfg.QKVBias
	if cfg.MLPBias, err = decoder.ReadBias(c, "mlp_bias"); err != nil {
		return nil, err
	}
	return cfg, nil
}

// defaultWindow is the window of a Mistral whose config.json does not name one.
const defaultWindow = 4096

// checkWindow refuses a sliding window that hides something within the
// positions that the model was made for.
func checkWindow(c *checkpoint.Config, cfg *decoder.Config) error {
	const key = "sliding_window"
	if c.Null(key) {
		return nil
	}
	if !c.Has(key) && cfg.MaxPositions > defaultWindow {
		return fmt.Errorf("%s: %s is missing, which transformers takes for %d: add it, as null if the model was made without a window", c.File(), key, defaultWindow)
	}
	window, err := c.IntOr(key, defaultWindow)
	if err != nil {
		return err
	}
	if window < 1 {
		return fmt.Errorf("%s: %s: found %d, want null or a number above 0", c.File(), key, window)
	}
	if window < cfg.MaxPositions {
		return fmt.Errorf("%s: %s: found %d, but sliding windows are not implemented for Mistral; a context of up to %d tokens does not need the window: set it to null to accept that, and max_position_embeddings to %d",
			c.File(), key, window, window, window)
	}
	return nil
}
