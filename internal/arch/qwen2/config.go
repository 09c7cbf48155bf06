package qwen2

import (
	"fmt"

	"anemone/internal/arch"
	"anemone/internal/arch/decoder"
	"anemone/internal/checkpoint"
)

// Architecture is the registry's entry for Qwen2 and Qwen2.5.
var Architecture = arch.Architecture{ModelTypes: []string{"qwen2"}, Open: Open}

var family = decoder.Family{
	Name: "Qwen2", Architecture: "qwen2", Prefix: "qwen25", TokenizerClass: "Qwen2Tokenizer",
	MaxPositions: 32768, Scalings: []string{decoder.Linear, decoder.Llama3},
}

// Open checks the configuration and the presence and shape of every tensor.
func Open(ck *checkpoint.Checkpoint) (arch.Model, error) {
	cfg, err := ParseConfig(ck.Config)
	if err != nil {
		return nil, err
	}
	return decoder.Open(ck, &family, cfg)
}

// ParseConfig reads the configuration of a Qwen2 model, in the form of
// transformers 4 or 5. A sliding window that is configured and switched off,
// as in every release, is none; one that layers have is refused.
func ParseConfig(c *checkpoint.Config) (*decoder.Config, error) {
	if t := c.ModelType(); t != "qwen2" {
		return nil, fmt.Errorf("%s: model_type: found %q, want \"qwen2\"", c.File(), t)
	}
	cfg, err := decoder.ReadConfig(c, &family)
	if err != nil {
		return nil, err
	}
	// Not configurable: every Qwen2 has these and no others.
	cfg.QKVBias = decoder.BiasPresent
	return cfg, nil
}
