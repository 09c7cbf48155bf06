package qwen2

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"anemone/internal/arch"
	"anemone/internal/arch/archtest"
	"anemone/internal/arch/decoder"
	"anemone/internal/checkpoint"
)

// What Qwen/Qwen2.5-0.5B-Instruct says, in the form of transformers 4.
const config05B = `{"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151645,
"hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02, "intermediate_size": 4864, "max_position_embeddings": 32768,
"max_window_layers": 21, "model_type": "qwen2", "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2,
"rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
"transformers_version": "4.43.1", "use_cache": true, "use_sliding_window": false, "vocab_size": 151936}`

type change = map[string]any

// edit returns config05B with keys replaced; a nil value removes the key.
func edit(t testing.TB, changes change) []byte {
	t.Helper()
	var m change
	if err := json.Unmarshal([]byte(config05B), &m); err != nil {
		t.Fatal(err)
	}
	maps.Copy(m, changes)
	maps.DeleteFunc(m, func(k string, v any) bool {
		_, changed := changes[k]
		return changed && v == nil
	})
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func parse(data []byte) (*decoder.Config, error) {
	c, err := checkpoint.ParseConfig("config.json", data)
	if err != nil {
		return nil, err
	}
	return ParseConfig(c)
}

func TestParseConfig(t *testing.T) {
	base := decoder.Config{Hidden: 896, Layers: 24, Heads: 14, KVHeads: 2, HeadDim: 64, Intermediate: 4864, Vocab: 151936, MaxPositions: 32768,
		Eps: 1e-6, RopeTheta: 1e6, Tied: true, QKVBias: decoder.BiasPresent}
	full := slices.Repeat([]string{"full_attention"}, 24)
	for _, c := range []struct {
		name    string
		changes change
		want    func(*decoder.Config)
	}{
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
	} {
		want := base
		c.want(&want)
		got, err := parse(edit(t, c.changes))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if *got != want {
			t.Errorf("%s: got %+v, want %+v", c.name, *got, want)
		}
	}
}

func TestParseConfigErrors(t *testing.T) {
	for _, c := range []struct {
		name    string
		changes change
		want    string // parts of the error, separated by |
	}{
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
	} {
		got, err := parse(edit(t, c.changes))
		if err == nil {
			t.Errorf("%s: no error, got %+v", c.name, got)
			continue
		}
		for _, part := range strings.Split("config.json|"+c.want, "|") {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: error %q does not name %q", c.name, err, part)
			}
		}
	}
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
	f.Add(edit(f, change{"use_sliding_window": true, "layer_types": []string{"x"}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parse(data)
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
