package llama

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
	"anemone/internal/checkpoint/checkpointtest"
	"anemone/internal/checkpoint/safetensors"
)

// What meta-llama/Llama-3.2-1B-Instruct says, in the form of transformers 4.
const config32 = `{"architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 128000,
"eos_token_id": [128001, 128008, 128009], "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
"intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama", "num_attention_heads": 32,
"num_hidden_layers": 16, "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 32.0,
"high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "rope_theta": 500000.0,
"tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.45.0.dev0", "use_cache": true, "vocab_size": 128256}`

type change = archtest.Change

// scaling returns the parameters of Llama 3.2's scaling with some replaced;
// nil removes one.
func scaling(changes change) change {
	s := change{"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
	maps.Copy(s, changes)
	maps.DeleteFunc(s, func(_ string, v any) bool { return v == nil })
	return s
}

func TestParseConfig(t *testing.T) {
	base := decoder.Config{Hidden: 2048, Layers: 16, Heads: 32, KVHeads: 8, HeadDim: 64, Intermediate: 8192, Vocab: 128256, MaxPositions: 131072,
		Eps: 1e-5, RopeTheta: 500000, Tied: true,
		Scaling: decoder.Scaling{Type: decoder.Llama3, Factor: 32, LowFreq: 1, HighFreq: 4, Original: 8192}}
	plain := decoder.Scaling{}
	v5 := scaling(change{"rope_theta": 500000.0})
	archtest.TestTaken(t, config32, ParseConfig, base, []archtest.Taken[decoder.Config]{
		{"3.2 1B", nil, func(*decoder.Config) {}},
		{"transformers 5", change{"rope_theta": nil, "rope_scaling": nil, "rope_parameters": v5}, func(*decoder.Config) {}},
		{"both forms, alike", change{"rope_parameters": v5}, func(*decoder.Config) {}},
		{"no scaling", change{"rope_scaling": nil}, func(c *decoder.Config) { c.Scaling = plain }},
		{"no scaling, said so", change{"rope_scaling": change{"rope_type": "default"}}, func(c *decoder.Config) { c.Scaling = plain }},
		{"linear, old name", change{"rope_scaling": change{"type": "linear", "factor": 2.5}}, func(c *decoder.Config) { c.Scaling = decoder.Scaling{Type: decoder.Linear, Factor: 2.5} }},
		{"linear, transformers 5", change{"rope_theta": nil, "rope_scaling": nil, "rope_parameters": change{"rope_type": "linear", "factor": 1, "rope_theta": 1e4}},
			func(c *decoder.Config) {
				c.RopeTheta, c.Scaling = 1e4, decoder.Scaling{Type: decoder.Linear, Factor: 1}
			}},
		{"biases of the attention", change{"attention_bias": true}, func(c *decoder.Config) { c.QKVBias, c.OBias = decoder.BiasPresent, decoder.BiasPresent }},
		{"biases of the MLP", change{"mlp_bias": true}, func(c *decoder.Config) { c.MLPBias = decoder.BiasPresent }},
		{"untied", change{"tie_word_embeddings": false}, func(c *decoder.Config) { c.Tied = false }},
		{"nothing said on tying", change{"tie_word_embeddings": nil}, func(c *decoder.Config) { c.TiedUnsaid = true }},
		{"wide heads", change{"head_dim": 128}, func(c *decoder.Config) { c.HeadDim = 128 }},
		// What Llama 1 and 2 leave out means this to transformers.
		{"first generations", change{"head_dim": nil, "num_key_value_heads": nil, "max_position_embeddings": nil, "rms_norm_eps": nil, "hidden_act": nil,
			"attention_bias": nil, "mlp_bias": nil, "rope_theta": nil, "rope_scaling": nil},
			func(c *decoder.Config) {
				c.KVHeads, c.MaxPositions, c.Eps, c.RopeTheta, c.Scaling = 32, 2048, 1e-6, 10000, plain
			}},
		{"second generation, made longer", change{"rope_theta": nil, "rope_scaling": change{"type": "linear", "factor": 8.0}},
			func(c *decoder.Config) {
				c.RopeTheta, c.Scaling = 10000, decoder.Scaling{Type: decoder.Linear, Factor: 8}
			}},
		{"Mistral, no window", change{"model_type": "mistral", "rope_scaling": nil, "sliding_window": json.RawMessage("null")}, func(c *decoder.Config) { c.Scaling = plain }},
		{"Mistral, a window that hides nothing", change{"model_type": "mistral", "rope_scaling": nil, "sliding_window": 131072}, func(c *decoder.Config) { c.Scaling = plain }},
		{"Mistral has no biases", change{"model_type": "mistral", "rope_scaling": nil, "sliding_window": json.RawMessage("null"), "attention_bias": true, "mlp_bias": true}, func(c *decoder.Config) { c.Scaling = plain }},
		{"Mistral, nothing said on positions", change{"model_type": "mistral", "rope_scaling": nil, "sliding_window": json.RawMessage("null"), "max_position_embeddings": nil}, func(c *decoder.Config) { c.Scaling = plain }},
	})
}

func TestParseConfigErrors(t *testing.T) {
	rope := func(changes change) change { return change{"rope_scaling": scaling(changes)} }
	mistral := func(changes change) change {
		m := change{"model_type": "mistral", "rope_scaling": nil}
		maps.Copy(m, changes)
		return m
	}
	archtest.TestRefused(t, config32, ParseConfig, []archtest.Refused{
		{"another architecture", change{"model_type": "qwen3"}, `model_type|"qwen3"|"llama"|"mistral"`},
		{"no architecture", change{"model_type": nil}, `model_type`},
		{"quantized", change{"quantization_config": change{"quant_method": "awq", "bits": 4}}, `quantization_config|awq|bits 4`},
		{"no width", change{"hidden_size": nil}, "hidden_size|missing"},
		{"heads do not divide", change{"num_key_value_heads": 5}, "num_key_value_heads|found 5|32"},
		{"odd heads", change{"head_dim": 63}, "head_dim|63|even"},
		{"activation", change{"hidden_act": "gelu"}, `hidden_act|"gelu"|every Llama`},
		{"bias by number", change{"attention_bias": 1}, "attention_bias"},
		{"bias by text", change{"mlp_bias": "no"}, "mlp_bias"},
		{"sliding layers", change{"layer_types": append(slices.Repeat([]string{"full_attention"}, 15), "sliding_attention")}, `layer_types[15]|"sliding_attention"|Llama`},

		{"base by text", change{"rope_theta": "500000"}, "rope_theta"},
		{"base zero", change{"rope_theta": 0}, "rope_theta"},
		{"dynamic", change{"rope_scaling": change{"type": "dynamic", "factor": 2.0}}, `"dynamic"|"default", "linear" and "llama3" are|how long the text is|remove rope_scaling`},
		{"longrope", change{"rope_scaling": change{"type": "su"}}, `"longrope"|how long the text is`},
		{"yarn", change{"rope_scaling": change{"rope_type": "yarn", "factor": 4.0}}, `"yarn"|implemented for Llama;`},
		{"yarn without a base", change{"rope_theta": nil, "rope_scaling": change{"rope_type": "yarn", "factor": 4.0}}, `"yarn"`},
		{"type by number", change{"rope_scaling": change{"rope_type": 3}}, "rope_scaling.rope_type"},
		{"type by number without a base", change{"rope_theta": nil, "rope_scaling": change{"type": 3}}, "rope_scaling.type"},
		{"rotates in part, without a base", change{"rope_theta": nil, "rope_scaling": nil, "partial_rotary_factor": 0.5}, "partial_rotary_factor|found 0.5"},
		{"parameters rotate in part, without a base", change{"rope_theta": nil, "rope_scaling": nil, "rope_parameters": change{"partial_rotary_factor": 0.5}}, "partial_rotary_factor|found 0.5"},
		{"two types without a base", change{"rope_theta": nil, "rope_scaling": change{"type": "linear", "factor": 8.0}, "rope_parameters": change{"rope_type": "default"}}, `rope_scaling says "linear"|rope_parameters says "default"`},
		{"scaling by number without a base", change{"rope_theta": nil, "rope_scaling": 8}, "rope_scaling"},
		{"partial rotation", change{"partial_rotary_factor": 0.5}, "partial_rotary_factor|0.5"},
		{"two bases", change{"rope_parameters": scaling(change{"rope_theta": 10000.0})}, "rope_theta|500000|10000"},
		{"two types", change{"rope_parameters": change{"rope_type": "default", "rope_theta": 500000.0}}, `"llama3"|"default"`},
		{"two scalings", change{"rope_parameters": scaling(change{"rope_theta": 500000.0, "factor": 8.0})}, "rope_scaling|rope_parameters|factor|32|8|remove"},

		{"no factor", rope(change{"factor": nil}), "rope_scaling.factor|missing"},
		{"factor zero", rope(change{"factor": 0}), "rope_scaling.factor|found 0|at least 1"},
		{"negative factor", rope(change{"factor": -8}), "rope_scaling.factor|found -8|at least 1"},
		{"factor below one", rope(change{"factor": 0.5}), "rope_scaling.factor|found 0.5|at least 1"},
		{"huge factor", rope(change{"factor": 1e300}), "rope_scaling.factor|found 1e+300"},
		{"factor by text", rope(change{"factor": "32"}), "rope_scaling.factor"},
		{"no low factor", rope(change{"low_freq_factor": nil}), "rope_scaling.low_freq_factor|missing"},
		{"low factor zero", rope(change{"low_freq_factor": 0}), "rope_scaling.low_freq_factor|found 0|above 0"},
		{"no high factor", rope(change{"high_freq_factor": nil}), "rope_scaling.high_freq_factor|missing"},
		{"negative high factor", rope(change{"high_freq_factor": -4.0}), "rope_scaling.high_freq_factor|found -4|above 0"},
		{"low is high", rope(change{"low_freq_factor": 4.0}), "rope_scaling.low_freq_factor|found 4|less than high_freq_factor, 4"},
		{"low above high", rope(change{"low_freq_factor": 5.0}), "rope_scaling.low_freq_factor|found 5|less than high_freq_factor, 4"},
		{"no original context", rope(change{"original_max_position_embeddings": nil}), "rope_scaling.original_max_position_embeddings|missing"},
		{"original context zero", rope(change{"original_max_position_embeddings": 0}), "rope_scaling.original_max_position_embeddings|found 0"},
		{"half a position", rope(change{"original_max_position_embeddings": 0.5}), "rope_scaling.original_max_position_embeddings"},
		{"huge original context", rope(change{"original_max_position_embeddings": int64(1) << 40}), "rope_scaling.original_max_position_embeddings|1099511627776"},
		{"transformers 5, no factor", change{"rope_theta": nil, "rope_scaling": nil, "rope_parameters": scaling(change{"rope_theta": 5e5, "factor": nil})}, "rope_parameters.factor|missing"},
		{"linear without a factor", change{"rope_scaling": change{"type": "linear"}}, "rope_scaling.factor|missing"},

		{"Mistral 7B 0.1", mistral(change{"sliding_window": 4096}), "sliding_window|found 4096|max_position_embeddings to 4096"},
		{"nothing said on a window", mistral(nil), "sliding_window is missing|4096|null"},
		{"window zero", mistral(change{"sliding_window": 0}), "sliding_window|found 0"},
		{"window by text", mistral(change{"sliding_window": "4096"}), "sliding_window"},
		{"Mistral, activation", mistral(change{"hidden_act": "relu"}), `"relu"|every Mistral`},
	})
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(config32))
	for _, name := range random {
		b, err := os.ReadFile(filepath.Join("testdata", name, "config.json"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add(archtest.Edit(f, config32, change{"rope_theta": nil, "rope_scaling": change{"type": "linear", "factor": 8.0}}))
	f.Add(archtest.Edit(f, config32, change{"model_type": "mistral", "sliding_window": 4096}))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := archtest.Parse(data, ParseConfig)
		if err != nil {
			return
		}
		// What the rest relies on.
		s := c.Scaling
		if c.Hidden < 1 || c.Layers < 1 || c.Vocab < 1 || c.Intermediate < 1 || c.KVHeads < 1 || c.Heads%c.KVHeads != 0 || c.HeadDim < 2 || c.HeadDim%2 != 0 ||
			c.QuerySize() > 1<<20 || !(c.Eps > 0) || !(c.RopeTheta >= 1) || s.Type != "" && !(s.Factor >= 1) ||
			s.Type == decoder.Llama3 && !(0 < s.LowFreq && s.LowFreq < s.HighFreq && s.Original > 0) {
			t.Errorf("%s gives %+v", data, *c)
		}
	})
}

func TestInfo(t *testing.T) {
	for name, want := range map[string]arch.Info{
		"llama3":  {Architecture: "llama", Prefix: "llama", TokenizerClass: "LlamaTokenizer", Hidden: 16, Layers: 2, Vocab: 43, MaxContext: 256},
		"mistral": {Architecture: "mistral", Prefix: "llama", TokenizerClass: "LlamaTokenizer", Hidden: 16, Layers: 2, Vocab: 40, MaxContext: 256},
	} {
		if got := archtest.Open(t, Architecture, filepath.Join("testdata", name)).Info(); got != want {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
}

// Announced biases have to be there; others are not used, as transformers
// does not. Frequencies that old checkpoints hold are no surprise.
func TestWeights(t *testing.T) {
	const frequencies = "model.layers.0.self_attn.rotary_emb.inv_freq"
	for _, c := range []struct {
		name   string
		config change
		leave  string // tensor that is left out
		want   string // parts of the error
		unused int
	}{
		{"nothing wrong", nil, "", "", 1},
		{"no bias of q", nil, "model.layers.1.self_attn.q_proj.bias", "model.layers.1.self_attn.q_proj.bias|missing", 0},
		{"no bias of o", nil, "model.layers.0.self_attn.o_proj.bias", "model.layers.0.self_attn.o_proj.bias|missing", 0},
		{"no bias of the MLP", nil, "model.layers.1.mlp.up_proj.bias", "model.layers.1.mlp.up_proj.bias|missing", 0},
		{"attention without", change{"attention_bias": false}, "", "", 1 + 2*4},
		{"MLP without", change{"mlp_bias": false}, "", "", 1 + 2*3},
		{"no head", nil, "lm_head.weight", "tie_word_embeddings|lm_head.weight", 0},
		{"another vocabulary", change{"vocab_size": 48}, "", "model.embed_tokens.weight|[41 18]|[48 18]", 0},
	} {
		dir := checkpointtest.Variant(t, "testdata/linear-biases", func(m map[string]any) { archtest.Apply(m, c.config) }, func(m map[string]*safetensors.Named) {
			delete(m, c.leave)
			m[frequencies] = &safetensors.Named{DType: safetensors.F32, Shape: []int{3}, Data: make([]byte, 12)}
		})
		ck, err := checkpoint.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		m, err := Open(ck)
		unused := ck.Unused()
		ck.Close()
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
				continue
			}
			if len(unused) != c.unused {
				t.Errorf("%s: %d unused tensors, want %d: %q", c.name, len(unused), c.unused, unused)
			}
			for _, name := range unused {
				said := m.(arch.Partial).Aside(name) != ""
				if want := strings.HasSuffix(name, "inv_freq"); said != want {
					t.Errorf("%s: whether %s belongs to something known: %t, want %t", c.name, name, said, want)
				}
			}
			continue
		}
		if err == nil {
			t.Errorf("%s: no error", c.name)
			continue
		}
		archtest.Names(t, c.name, err, c.want)
	}
}
