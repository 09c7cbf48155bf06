package qwen3

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"anemone/internal/arch/archtest"
	"anemone/internal/arch/decoder"
	"anemone/internal/checkpoint"
	"anemone/internal/testutil"
)

// What Qwen/Qwen3-0.6B says, in the form of transformers 4.
const config06B = `{"architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 151643,
"eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024, "initializer_range": 0.02, "intermediate_size": 3072,
"max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3", "num_attention_heads": 16, "num_hidden_layers": 28,
"num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
"tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": true, "use_sliding_window": false,
"vocab_size": 151936}`

type change = archtest.Change

func openModel(t testing.TB, dir string) *decoder.Model {
	t.Helper()
	return archtest.Open(t, Architecture, dir).(*decoder.Model)
}

func TestParseConfig(t *testing.T) {
	full := make([]string, 28)
	for i := range full {
		full[i] = "full_attention"
	}
	want06B := decoder.Config{Hidden: 1024, Layers: 28, Heads: 16, KVHeads: 8, HeadDim: 128, Intermediate: 3072, Vocab: 151936,
		MaxPositions: 40960, Eps: 1e-6, RopeTheta: 1e6, Tied: true,
		HeadNorms: true, QKVBias: decoder.BiasIfStored, OBias: decoder.BiasIfStored, MLPBias: decoder.BiasIfStored}
	archtest.TestTaken(t, config06B, ParseConfig, want06B, []archtest.Taken[decoder.Config]{
		{"0.6B", nil, func(*decoder.Config) {}},
		{"transformers 5", change{"rope_theta": nil, "rope_scaling": nil, "torch_dtype": nil, "dtype": "bfloat16",
			"rope_parameters": change{"rope_theta": 1e6, "rope_type": "default"}, "layer_types": full}, func(*decoder.Config) {}},
		{"other base", change{"rope_theta": 10000.5}, func(c *decoder.Config) { c.RopeTheta = 10000.5 }},
		{"untied", change{"tie_word_embeddings": false}, func(c *decoder.Config) { c.Tied = false }},
		{"nothing said on tying", change{"tie_word_embeddings": nil}, func(c *decoder.Config) { c.TiedUnsaid = true }},
		{"biases", change{"attention_bias": true}, func(c *decoder.Config) { c.QKVBias, c.OBias = decoder.BiasPresent, decoder.BiasPresent }},
		{"narrow heads", change{"head_dim": 32}, func(c *decoder.Config) { c.HeadDim = 32 }},
		{"defaults", change{"head_dim": nil, "num_key_value_heads": nil, "max_position_embeddings": nil, "rms_norm_eps": nil, "hidden_act": nil,
			"attention_bias": nil, "use_sliding_window": nil, "max_window_layers": nil},
			func(c *decoder.Config) { c.HeadDim, c.KVHeads, c.MaxPositions = 64, 16, 32768 }},
		{"a window that no layer has", change{"use_sliding_window": true, "sliding_window": 4096, "max_window_layers": 28}, func(*decoder.Config) {}},
		{"layer types decide", change{"use_sliding_window": true, "sliding_window": 4096, "max_window_layers": 0, "layer_types": full}, func(*decoder.Config) {}},
		{"a window that is not used", change{"sliding_window": 4096, "max_window_layers": 0}, func(*decoder.Config) {}},
	})
}

func TestParseConfigErrors(t *testing.T) {
	archtest.TestRefused(t, config06B, ParseConfig, []archtest.Refused{
		{"another architecture", change{"model_type": "llama"}, `model_type|"llama"|"qwen3"`},
		{"no architecture", change{"model_type": nil}, `model_type`},
		{"quantized", change{"quantization_config": change{"quant_method": "fp8"}}, `quantization_config|fp8`},
		{"no width", change{"hidden_size": nil}, "hidden_size|missing"},
		{"no layers", change{"num_hidden_layers": 0}, "num_hidden_layers|found 0"},
		{"negative vocabulary", change{"vocab_size": -5}, "vocab_size|found -5"},
		{"huge vocabulary", change{"vocab_size": int64(1) << 40}, "vocab_size|1099511627776|1 to 16777216"},
		{"huge layers", change{"num_hidden_layers": 1 << 20}, "num_hidden_layers|1048576"},
		{"huge width", change{"intermediate_size": 1<<20 + 1}, "intermediate_size|1048577"},
		{"text for a number", change{"hidden_size": "1024"}, "hidden_size"},
		{"half a layer", change{"num_hidden_layers": 1.5}, "num_hidden_layers|1.5"},
		{"negative heads", change{"num_key_value_heads": -8}, "num_key_value_heads|-8"},
		{"heads do not divide", change{"num_key_value_heads": 5}, "num_key_value_heads|found 5|16"},
		{"more key heads", change{"num_key_value_heads": 32}, "num_key_value_heads|found 32|16"},
		{"odd heads", change{"head_dim": 63}, "head_dim|63|even"},
		{"no head_dim follows", change{"head_dim": nil, "num_attention_heads": 48, "num_key_value_heads": 8}, "head_dim is missing|1024|48"},
		{"no head_dim left", change{"head_dim": nil, "num_attention_heads": 2048}, "head_dim|found 0"},
		{"huge heads together", change{"num_attention_heads": 4096, "num_key_value_heads": 4096, "head_dim": 4096}, "4096 times head_dim 4096"},
		{"eps zero", change{"rms_norm_eps": 0}, "rms_norm_eps|found 0"},
		{"eps large", change{"rms_norm_eps": 1}, "rms_norm_eps|found 1"},
		{"activation", change{"hidden_act": "gelu"}, `hidden_act|"gelu"|"silu"`},
		{"tying by text", change{"tie_word_embeddings": "yes"}, "tie_word_embeddings"},
		{"no base", change{"rope_theta": nil}, "rope_theta"},
		{"small base", change{"rope_theta": 0.5}, "rope_theta|0.5"},
		{"infinite base", change{"rope_theta": 1e300}, "rope_theta|1e+300"},
		{"yarn", change{"rope_scaling": change{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}, `"yarn"|default|rope_scaling`},
		{"linear, old name", change{"rope_scaling": change{"type": "linear", "factor": 2.0}}, `"linear"`},
		{"yarn, transformers 5", change{"rope_theta": nil, "rope_parameters": change{"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0}}, `"yarn"`},
		{"partial rotation", change{"partial_rotary_factor": 0.5}, "partial_rotary_factor|0.5"},
		{"sliding window", change{"use_sliding_window": true, "sliding_window": 4096, "max_window_layers": 20}, "use_sliding_window|layer 20"},
		{"sliding window, all defaults", change{"use_sliding_window": true, "num_hidden_layers": 36, "max_window_layers": nil}, "use_sliding_window|layer 28"},
		{"sliding layer", change{"layer_types": append(slices.Repeat([]string{"full_attention"}, 27), "sliding_attention")}, `layer_types[27]|"sliding_attention"`},
		{"too few layer types", change{"layer_types": []string{"full_attention"}}, "layer_types|1 entries|28"},
		{"layer types by number", change{"layer_types": []int{1}}, "layer_types"},
		{"window flag by number", change{"use_sliding_window": 1}, "use_sliding_window"},
	})
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(config06B))
	for _, name := range random {
		b, err := os.ReadFile(filepath.Join("testdata", name, "config.json"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add(archtest.Edit(f, config06B, change{"rope_parameters": map[string]any{"rope_type": "yarn"}, "layer_types": []string{"x"}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := archtest.Parse(data, ParseConfig)
		if err != nil {
			return
		}
		// What the rest relies on.
		if c.Hidden < 1 || c.Layers < 1 || c.Vocab < 1 || c.Intermediate < 1 || c.KVHeads < 1 || c.Heads%c.KVHeads != 0 || c.HeadDim < 2 || c.HeadDim%2 != 0 ||
			c.QuerySize() > 1<<20 || c.Hidden > 1<<20 || c.Vocab > 1<<24 || c.Layers > 1<<10 || !(c.Eps > 0) || !(c.RopeTheta >= 1) {
			t.Errorf("%s gives %+v", data, *c)
		}
	})
}

func TestWeights(t *testing.T) {
	m := openModel(t, "testdata/bias-untied")
	w := m.Weights()
	if w.Tied || w.Head == w.Embed || w.Head.Name != "lm_head.weight" {
		t.Errorf("tied %t, head %s", w.Tied, w.Head.Name)
	}
	if len(w.Layers) != 3 {
		t.Fatalf("%d layers, want 3", len(w.Layers))
	}
	for field, want := range map[string]string{
		"InputNorm": "input_layernorm.weight [24]", "PostNorm": "post_attention_layernorm.weight [24]",
		"Q": "self_attn.q_proj.weight [80 24]", "K": "self_attn.k_proj.weight [20 24]", "V": "self_attn.v_proj.weight [20 24]", "O": "self_attn.o_proj.weight [24 80]",
		"QNorm": "self_attn.q_norm.weight [10]", "KNorm": "self_attn.k_norm.weight [10]",
		"Gate": "mlp.gate_proj.weight [37 24]", "Up": "mlp.up_proj.weight [37 24]", "Down": "mlp.down_proj.weight [24 37]",
		"QBias": "self_attn.q_proj.bias [80]", "KBias": "self_attn.k_proj.bias [20]", "VBias": "self_attn.v_proj.bias [20]", "OBias": "self_attn.o_proj.bias [24]",
		"GateBias": "mlp.gate_proj.bias [37]", "UpBias": "mlp.up_proj.bias [37]", "DownBias": "mlp.down_proj.bias [24]",
	} {
		got := reflect.ValueOf(w.Layers[2]).FieldByName(field).Interface().(*checkpoint.Tensor)
		if found := fmt.Sprint(got.Name, " ", got.Shape); found != "model.layers.2."+want {
			t.Errorf("%s is %s, want %s", field, found, want)
		}
	}
}

func TestWeightsThatMayMiss(t *testing.T) {
	mha := openModel(t, "testdata/mha-tied").Weights()
	if l := mha.Layers[1]; !mha.Tied || mha.Head != mha.Embed || l.KBias == nil || l.DownBias == nil || l.QBias != nil || l.OBias != nil || l.UpBias != nil {
		t.Errorf("mha-tied: tied %t, layer %+v", mha.Tied, l)
	}
	// The lm_head.weight that lies there is not used, and said so.
	ck, err := checkpoint.Open("testdata/wide-heads")
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	if _, err := Open(ck); err != nil {
		t.Fatal(err)
	}
	if got := ck.Unused(); !slices.Equal(got, []string{"lm_head.weight"}) {
		t.Errorf("unused tensors %q, want lm_head.weight", got)
	}
}

func TestWeightsErrors(t *testing.T) {
	archtest.TestOpen(t, Architecture, "testdata/bias-untied", []archtest.Opened{
		{"nothing wrong", nil, nil, ""},
		{"other width", archtest.Set("intermediate_size", 38), nil, "mlp.gate_proj.weight|[37 24]|[38 24]"},
		{"other heads", archtest.Set("head_dim", 20), nil, "self_attn.q_proj.weight|[80 24]|[160 24]"},
		{"other vocabulary", archtest.Set("vocab_size", 78), nil, "model.embed_tokens.weight|[77 24]|[78 24]"},
		{"more layers", archtest.Set("num_hidden_layers", 4), nil, "layer_types"},
		{"no tensor", nil, archtest.Without("model.layers.1.self_attn.k_norm.weight"), "model.layers.1.self_attn.k_norm.weight|missing"},
		{"no announced bias", nil, archtest.Without("model.layers.2.self_attn.o_proj.bias"), "model.layers.2.self_attn.o_proj.bias|missing"},
		{"no other bias", nil, archtest.Without("model.layers.2.mlp.up_proj.bias"), ""},
		{"no final norm", nil, archtest.Without("model.norm.weight"), "model.norm.weight|missing"},
		{"no head", nil, archtest.Without("lm_head.weight"), "tie_word_embeddings|lm_head.weight"},
		{"no head, nothing said", archtest.Set("tie_word_embeddings", nil), archtest.Without("lm_head.weight"), ""},
	})
}

// The checkpoint that the repository carries is in the form of transformers
// 5, ANEMLL's peer in that of 4.
func TestParseConfigFiles(t *testing.T) {
	got := *openModel(t, testutil.Data(t, "checkpoints", "tiny-qwen3")).Config()
	want := decoder.Config{Hidden: 128, Layers: 4, Heads: 4, KVHeads: 2, HeadDim: 64, Intermediate: 384, Vocab: 1024, MaxPositions: 4096, Eps: 1e-6, RopeTheta: 1e6, Tied: true,
		HeadNorms: true, QKVBias: decoder.BiasIfStored, OBias: decoder.BiasIfStored, MLPBias: decoder.BiasIfStored}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	got = *openModel(t, testutil.Shared(t, "peers", "qwen3-checkpoint")).Config()
	want = decoder.Config{Hidden: 96, Layers: 4, Heads: 4, KVHeads: 2, HeadDim: 32, Intermediate: 256, Vocab: 512, MaxPositions: 4096, Eps: 1e-6, RopeTheta: 1e6, Tied: true,
		HeadNorms: true, QKVBias: decoder.BiasIfStored, OBias: decoder.BiasIfStored, MLPBias: decoder.BiasIfStored}
	if got != want {
		t.Errorf("peer: got %+v, want %+v", got, want)
	}
}
