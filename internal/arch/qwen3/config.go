package qwen3

import (
	"fmt"

	"anemone/internal/arch"
	"anemone/internal/arch/decoder"
	"anemone/internal/checkpoint"
)

// Architecture is the registry's entry for Qwen3.
var Architecture = arch.Architecture{ModelTypes: []string{"qwen3"}, Open: Open}

var family = decoder.Family{
	Name: "Qwen3", Architecture: "qwen3", Prefix: "qwen", TokenizerClass: "Qwen2Tokenizer",
	MaxPositions: 32768,
}

// Open checks the configuration and the presence and shape of every tensor.
func Open(ck *checkpoint.Checkpoint) (arch.Model, error) {
	cfg, err := ParseConfig(ck.Config)
	if err != nil {
		return nil, err
	}
	return decoder.Open(ck, &family, cfg)
}

// ParseConfig reads the configuration of a Qwen3 model, in the form of
// transformers 4 or 5. It refuses what is not computed: other activations,
// scaled rotary embeddings, sliding windows, and weights that are quantized
// already.
func ParseConfig(c *checkpoint.Config) (*decoder.Config, error) {
	if t := c.ModelType(); t != "qwen3" {
		return nil, fmt.Errorf("%s: model_type: found %q, want \"qwen3\"", c.File(), t)
	}
	cfg, err := decoder.ReadConfig(c, &family)
	if err != nil {
		return nil, err
	}
	cfg.HeadNorms = true
	// Fine-tunes have biases without saying so; those that are stored count.
	cfg.QKVBias, cfg.OBias, cfg.MLPBias = decoder.BiasIfStored, decoder.BiasIfStored, decoder.BiasIfStored
	said, err := decoder.ReadBias(c, "attention_bias")
	if err != nil {
		return nil, err
	}
	if said == decoder.BiasPresent {
		cfg.QKVBias, cfg.OBias = said, said
	}
	return cfg, nil
}
