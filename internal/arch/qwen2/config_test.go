package qwen2

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"anemone/internal/arch"
	"anemone/internal/arch/archtest"
	"anemone/internal/arch/decoder"
)

// What Qwen/Qwen2.5-0.5B-Instruct says, in the form of transformers 4.
const config05B = `{"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151645,
"hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02, "intermediate_size": 4864, "max_position_embeddings": 32768,
"max_window_layers": 21, "model_type": "qwen2", "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2,
"rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
"transformers_version": "4.43.1", "use_cache": true, "use_sliding_window": false, "vocab_size": 151936}`

type change = archtest.Change

func TestParseConfig(t *testing.T) {
	base := decoder.Config{Hidden: 896, Layers: 24, Heads: 14, KVHeads: 2, HeadDim: 64, Intermediate: 4864, Vocab: 151936, MaxPositions: 32768,
		Eps: 1e-6, RopeTheta: 1e6, Tied: true, QKVBias: decoder.BiasPresent}
	full := slices.Repeat([]string{"full_attention"}, 24)
	archtest.TestTaken(t, config05B, ParseConfig, base, []archtest.Taken[decoder.Config]{
		{"0.5B", nil, func(*decoder.Config) {}},
		{"transformers 5", change{"rope_theta": nil, "torch_dtype": nil, "dtype": "bfloat16", "sliding_window": nil,
			"rope_parameters": change{"rope_theta": 1e6, "rope_type": "default"}, "layer_types": full}, func(*decoder.Config) {}},
		{"a window that no layer has", change{"use_sliding_window": true, "max_window_layers": 24}, func(*decoder.Config) {}},
		{"layer types decide", change{"use_sliding_window": true, "max_window_layers": 0, "layer_types": full}, func(*decoder.Config) {}},
		{"not configurable", change{"attention_bias": false, "mlp_bias": true}, func(*decoder.Config) {}},
		{"head_dim", change{"head_dim": 32}, func(c *decoder.Config) { c.HeadDim = 32 }},
		{"untied", change{"tie_word_embeddings": false}, func(c *decoder.Config) { c.Tied = false }},
		{"linear", change{"rope_scaling": change{"type": "linear", "factor": 2.0}}, func(c *decoder.Config) { c.Scaling = decoder.Scaling{Type: decoder.Linear, Factor: 2} }},
		{"defaults", change{"num_key_value_heads": nil, "max_position_embeddings": nil, "rms_norm_eps": nil, "hidden_act": nil, "use_sliding_window": nil},
			func(c *decoder.Config) { c.KVHeads = 14 }},
	})
}

func TestParseConfigErrors(t *testing.T) {
	archtest.TestRefused(t, config05B, ParseConfig, []archtest.Refused{
		{"another architecture", change{"model_type": "qwen2_moe"}, `model_type|"qwen2_moe"|"qwen2"`},
		{"quantized", change{"quantization_config": change{"quant_method": "gptq"}}, `quantization_config|gptq`},
		{"no width", change{"hidden_size": nil}, "hidden_size|missing"},
		{"no base", change{"rope_theta": nil}, "rope_theta|missing"},
		// The models' cards tell to add this for long texts.
		{"yarn", change{"rope_scaling": change{"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}, `"yarn"|Qwen2|remove rope_scaling`},
		{"sliding window", change{"use_sliding_window": true}, "use_sliding_window|layer 21|Qwen2"},
		{"sliding window, all defaults", change{"use_sliding_window": true, "num_hidden_layers": 36, "max_window_layers": nil}, "use_sliding_window|layer 28"},
		{"sliding layer", change{"layer_types": append(slices.Repeat([]string{"full_attention"}, 23), "sliding_attention")}, `layer_types[23]|"sliding_attention"`},
		{"activation", change{"hidden_act": "gelu"}, `"gelu"|every Qwen2`},
	})
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(config05B))
	for _, name := range random {
		b, err := os.ReadFile(filepath.Join("testdata", name, "config.json"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add(archtest.Edit(f, config05B, change{"use_sliding_window": true, "layer_types": []string{"x"}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := archtest.Parse(data, ParseConfig)
		if err != nil {
			return
		}
		if c.Hidden < 1 || c.Layers < 1 || c.Vocab < 1 || c.KVHeads < 1 || c.Heads%c.KVHeads != 0 || c.HeadDim < 2 || c.HeadDim%2 != 0 ||
			c.QKVBias != decoder.BiasPresent || c.OBias != decoder.BiasAbsent || c.HeadNorms {
			t.Errorf("%s gives %+v", data, *c)
		}
	})
}

// The biases are there, the head is the embedding or not, and the package says
// what it is.
func TestOpen(t *testing.T) {
	m := archtest.Open(t, Architecture, filepath.Join("testdata", "gqa-tied")).(*decoder.Model)
	if w := m.Weights(); !w.Tied || w.Head != w.Embed || w.Layers[2].VBias == nil || w.Layers[2].OBias != nil || w.Layers[2].QNorm != nil {
		t.Errorf("gqa-tied: tied %t, layer %+v", w.Tied, w.Layers[2])
	}
	want := arch.Info{Architecture: "qwen2", Prefix: "qwen25", TokenizerClass: "Qwen2Tokenizer", Hidden: 16, Layers: 3, Vocab: 42, MaxContext: 256}
	if got := m.Info(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	m = archtest.Open(t, Architecture, filepath.Join("testdata", "mha-untied")).(*decoder.Model)
	if w := m.Weights(); w.Tied || w.Head.Name != "lm_head.weight" {
		t.Errorf("mha-untied: tied %t, head %s", w.Tied, w.Head.Name)
	}
}
