package qwen35

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"anemone/internal/arch/archtest"
	"anemone/internal/checkpoint"
	"anemone/internal/checkpoint/checkpointtest"
	"anemone/internal/checkpoint/safetensors"
	"anemone/internal/testutil"
)

// What Qwen/Qwen3.5-0.8B and Qwen/Qwen3.5-35B-A3B say, but for the image
// encoder.
const (
	config08B = `{"architectures": ["Qwen3_5ForConditionalGeneration"], "image_token_id": 248056, "model_type": "qwen3_5", "tie_word_embeddings": true,
"text_config": {"attention_bias": false, "attention_dropout": 0.0, "attn_output_gate": true, "dtype": "bfloat16", "eos_token_id": 248044, "full_attention_interval": 4,
"head_dim": 256, "hidden_act": "silu", "hidden_size": 1024, "initializer_range": 0.02, "intermediate_size": 3584, "layer_types": [` +
		`"linear_attention", "linear_attention", "linear_attention", "full_attention", "linear_attention", "linear_attention", "linear_attention", "full_attention",` +
		`"linear_attention", "linear_attention", "linear_attention", "full_attention", "linear_attention", "linear_attention", "linear_attention", "full_attention",` +
		`"linear_attention", "linear_attention", "linear_attention", "full_attention", "linear_attention", "linear_attention", "linear_attention", "full_attention"],
"linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 16, "linear_value_head_dim": 128, "mamba_ssm_dtype": "float32",
"max_position_embeddings": 262144, "mlp_only_layers": [], "model_type": "qwen3_5_text", "mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": false, "num_attention_heads": 8, "num_hidden_layers": 24,
"num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_parameters": {"mrope_interleaved": true, "mrope_section": [11, 11, 10], "rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25},
"tie_word_embeddings": true, "use_cache": true, "vocab_size": 248320}, "vision_config": {"depth": 12, "hidden_size": 768, "model_type": "qwen3_5"}}`
	config35B = `{"architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe", "tie_word_embeddings": false,
"text_config": {"attention_bias": false, "full_attention_interval": 4, "head_dim": 256, "hidden_act": "silu", "hidden_size": 2048, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
"linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_value_head_dim": 128, "max_position_embeddings": 262144, "model_type": "qwen3_5_moe_text", "moe_intermediate_size": 512,
"num_attention_heads": 16, "num_experts": 256, "num_experts_per_tok": 8, "num_hidden_layers": 40, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
"rope_parameters": {"rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25, "mrope_section": [11, 11, 10]}, "router_aux_loss_coef": 0.001,
"shared_expert_intermediate_size": 512, "vocab_size": 248320}}`
)

type change = map[string]any

// apply makes changes of a config, in the text_config where the key begins with
// a dot; a nil value removes the key.
func apply(config, changes change) {
	for k, v := range changes {
		in := config
		if strings.HasPrefix(k, ".") {
			in, k = config["text_config"].(change), k[1:]
		}
		archtest.Apply(in, change{k: v})
	}
}

// edit returns a config with changes.
func edit(t testing.TB, config string, changes change) []byte {
	t.Helper()
	var m change
	if err := json.Unmarshal([]byte(config), &m); err != nil {
		t.Fatal(err)
	}
	apply(m, changes)
	return archtest.Encode(t, m)
}

// flat returns the text_config of a config alone.
func flat(t testing.TB, config string, changes change) []byte {
	t.Helper()
	var m change
	if err := json.Unmarshal(edit(t, config, nil), &m); err != nil {
		t.Fatal(err)
	}
	text := m["text_config"].(change)
	maps.Copy(text, changes)
	return archtest.Encode(t, text)
}

func parse(data []byte) (*Config, error) { return archtest.Parse(data, ParseConfig) }

func every(n, of int) []bool {
	full := make([]bool, of)
	for i := n - 1; i < of; i += n {
		full[i] = true
	}
	return full
}

func TestParseConfig(t *testing.T) {
	want08B := Config{Hidden: 1024, Layers: 24, Vocab: 248320, MaxPositions: 262144, Full: every(4, 24), Heads: 8, KVHeads: 2, HeadDim: 256, Rotary: 64,
		KeyHeads: 16, ValueHeads: 16, KeyDim: 128, ValueDim: 128, Kernel: 4, Intermediate: 3584, Eps: 1e-6, RopeTheta: 1e7, Tied: tied}
	want35B := Config{Hidden: 2048, Layers: 40, Vocab: 248320, MaxPositions: 262144, Full: every(4, 40), Heads: 16, KVHeads: 2, HeadDim: 256, Rotary: 64,
		KeyHeads: 16, ValueHeads: 32, KeyDim: 128, ValueDim: 128, Kernel: 4, MoE: &MoE{256, 8, 512, 512}, Eps: 1e-6, RopeTheta: 1e7, Tied: untied}
	for _, c := range []struct {
		name string
		data []byte
		base Config
		want func(*Config)
	}{
		{"0.8B", edit(t, config08B, nil), want08B, func(*Config) {}},
		{"35B-A3B", edit(t, config35B, nil), want35B, func(*Config) {}},
		{"flat", flat(t, config08B, nil), want08B, func(*Config) {}},
		{"flat, type of the outer one", flat(t, config08B, change{"model_type": "qwen3_5"}), want08B, func(*Config) {}},
		{"flat, experts", flat(t, config35B, change{"tie_word_embeddings": true}), want35B, func(c *Config) { c.Tied = tied }},
		{"no layer types", edit(t, config08B, change{".layer_types": nil, ".full_attention_interval": 3}), want08B, func(c *Config) { c.Full = every(3, 24) }},
		{"no interval either", edit(t, config08B, change{".layer_types": nil, ".full_attention_interval": nil}), want08B, func(*Config) {}},
		{"layer types decide", edit(t, config08B, change{".full_attention_interval": 2}), want08B, func(*Config) {}},
		{"rope of transformers 4", edit(t, config08B, change{".rope_parameters": nil, ".rope_theta": 1e6, ".partial_rotary_factor": 0.5}), want08B, func(c *Config) { c.RopeTheta, c.Rotary = 1e6, 128 }},
		{"no partial factor", edit(t, config08B, change{".rope_parameters": change{"rope_type": "default", "rope_theta": 1e7}}), want08B, func(*Config) {}},
		{"rope by the name of the sections", edit(t, config08B, change{".rope_parameters": change{"rope_type": "mrope", "rope_theta": 1e7}}), want08B, func(*Config) {}},
		{"tied outside", edit(t, config08B, change{".tie_word_embeddings": nil}), want08B, func(*Config) {}},
		{"tied inside", edit(t, config08B, change{"tie_word_embeddings": nil}), want08B, func(*Config) {}},
		{"nothing said on tying", edit(t, config08B, change{"tie_word_embeddings": nil, ".tie_word_embeddings": nil}), want08B, func(c *Config) { c.Tied = unsaid }},
		{"two words on tying", edit(t, config08B, change{"tie_word_embeddings": false}), want08B, func(c *Config) { c.Tied = disputed }},
		{"no prediction of several tokens", edit(t, config08B, change{".mtp_num_hidden_layers": 0}), want08B, func(*Config) {}},
		{"null architectures", edit(t, config08B, change{"architectures": []any(nil)}), want08B, func(*Config) {}},
		{"defaults", edit(t, config08B, change{".num_key_value_heads": nil, ".head_dim": nil, ".linear_num_key_heads": nil, ".linear_num_value_heads": nil, ".linear_key_head_dim": nil, ".linear_value_head_dim": nil,
			".linear_conv_kernel_dim": nil, ".max_position_embeddings": nil, ".rms_norm_eps": nil, ".hidden_act": nil, ".attention_bias": nil, ".attn_output_gate": nil, ".model_type": nil}), want08B,
			func(c *Config) { c.KVHeads, c.ValueHeads, c.MaxPositions = 8, 32, 32768 }},
		{"three values for a key", edit(t, config08B, change{".linear_num_value_heads": 48}), want08B, func(c *Config) { c.ValueHeads = 48 }},
	} {
		want := c.base
		c.want(&want)
		got, err := parse(c.data)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: got %+v, want %+v", c.name, *got, want)
		}
	}
	// Derived sizes, those of the 0.8B's tensors.
	c := want08B
	if c.QuerySize() != 2048 || c.KVSize() != 512 || c.KeySize() != 2048 || c.ValueSize() != 2048 || c.ConvSize() != 6144 {
		t.Errorf("sizes: %d, %d, %d, %d, %d", c.QuerySize(), c.KVSize(), c.KeySize(), c.ValueSize(), c.ConvSize())
	}
	if !slices.Equal(c.FullLayers(), []int{3, 7, 11, 15, 19, 23}) || len(c.LinearLayers()) != 18 || c.slot(7) != 1 || c.slot(8) != 6 {
		t.Errorf("layers %v and %v, slots %d and %d", c.FullLayers(), c.LinearLayers(), c.slot(7), c.slot(8))
	}
}

func TestParseConfigErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		data []byte
		want string // parts of the error, separated by |
	}{
		{"another architecture", edit(t, config08B, change{"model_type": "qwen3_next"}), `model_type|"qwen3_next"|qwen3_5_moe`},
		{"two architectures", edit(t, config08B, change{".model_type": "qwen3_5_moe_text"}), `text_config.model_type|"qwen3_5_moe_text"|"qwen3_5"`},
		{"text_config by name", edit(t, config08B, change{"text_config": "text"}), "text_config"},
		{"quantized", edit(t, config08B, change{"quantization_config": change{"quant_method": "fp8"}}), "quantization_config|fp8"},
		{"quantized inside", edit(t, config08B, change{".quantization_config": change{"quant_method": "awq"}}), "text_config.quantization_config|awq"},
		{"no width", edit(t, config08B, change{".hidden_size": nil}), "text_config.hidden_size|missing"},
		{"no width, flat", flat(t, config08B, change{"hidden_size": nil}), "hidden_size"},
		{"huge width", edit(t, config08B, change{".intermediate_size": 1 << 21}), "text_config.intermediate_size|2097152"},
		{"no layers", edit(t, config08B, change{".num_hidden_layers": 0}), "text_config.num_hidden_layers|found 0"},
		{"half a head", edit(t, config08B, change{".num_attention_heads": 7.5}), "num_attention_heads|7.5"},
		{"no experts", edit(t, config35B, change{".num_experts": nil}), "text_config.num_experts|missing"},
		{"too many of the experts", edit(t, config35B, change{".num_experts_per_tok": 257}), "num_experts_per_tok|257|256"},
		{"more experts than can be counted", edit(t, config35B, change{".num_experts": 4096}), "num_experts|4096|2048"},
		{"experts too wide together", edit(t, config35B, change{".moe_intermediate_size": 1 << 19}), "moe_intermediate_size|256 experts"},
		{"no shared expert", edit(t, config35B, change{".shared_expert_intermediate_size": 0}), "shared_expert_intermediate_size|found 0"},
		{"weights of experts as they are", edit(t, config35B, change{".norm_topk_prob": false}), "norm_topk_prob|false"},
		{"experts in every other layer", edit(t, config35B, change{".decoder_sparse_step": 2}), "decoder_sparse_step|2"},
		{"layers without experts", edit(t, config35B, change{".mlp_only_layers": []int{0, 3}}), "mlp_only_layers|[0 3]"},
		{"heads do not divide", edit(t, config08B, change{".num_key_value_heads": 3}), "num_key_value_heads|found 3|8"},
		{"odd heads", edit(t, config08B, change{".head_dim": 63}), "head_dim|63|even"},
		{"key heads do not divide", edit(t, config08B, change{".linear_num_value_heads": 24}), "linear_num_key_heads|16|24"},
		{"no convolution", edit(t, config08B, change{".linear_conv_kernel_dim": 1}), "linear_conv_kernel_dim|found 1"},
		{"wide convolution", edit(t, config08B, change{".linear_value_head_dim": 4096, ".linear_num_value_heads": 512}), "linear_num_value_heads|2101248"},
		{"wide heads", edit(t, config08B, change{".num_attention_heads": 4096, ".head_dim": 512}), "num_attention_heads|4096 times head_dim 512"},
		{"eps zero", edit(t, config08B, change{".rms_norm_eps": 0}), "text_config.rms_norm_eps|found 0"},
		{"activation", edit(t, config08B, change{".hidden_act": "gelu"}), `text_config.hidden_act|"gelu"|"silu"`},
		{"biases", edit(t, config08B, change{".attention_bias": true}), "text_config.attention_bias|true"},
		{"no output gate", edit(t, config08B, change{".attn_output_gate": false}), "text_config.attn_output_gate|false"},
		{"another layer", edit(t, config08B, change{".layer_types": append(slices.Repeat([]string{"linear_attention"}, 23), "sliding_attention")}), `layer_types[23]|"sliding_attention"`},
		{"too few layer types", edit(t, config08B, change{".layer_types": []string{"full_attention"}}), "layer_types|1 entries|24"},
		{"no interval", edit(t, config08B, change{".layer_types": nil, ".full_attention_interval": 0}), "full_attention_interval|found 0"},
		{"no base", edit(t, config08B, change{".rope_parameters": nil}), "rope_theta"},
		{"small base", edit(t, config08B, change{".rope_parameters": change{"rope_theta": 0.5}}), "rope_theta|0.5"},
		{"yarn", edit(t, config08B, change{".rope_parameters": change{"rope_type": "yarn", "rope_theta": 1e7, "factor": 4.0}}), `"yarn"|default`},
		{"odd part rotates", edit(t, config08B, change{".rope_parameters": change{"rope_theta": 1e7, "partial_rotary_factor": 0.02}}), "partial_rotary_factor|5 dimensions"},
		{"tying by text", edit(t, config08B, change{".tie_word_embeddings": "yes"}), "tie_word_embeddings"},
	} {
		got, err := parse(c.data)
		if err == nil {
			t.Errorf("%s: no error, got %+v", c.name, got)
			continue
		}
		archtest.Names(t, c.name, err, "config.json|"+c.want)
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(config08B))
	f.Add([]byte(config35B))
	f.Add([]byte(`{"model_type": "qwen3_5_text", "hidden_size": 9223372036854775807, "num_hidden_layers": -1}`))
	f.Add([]byte(`{"model_type": "qwen3_5_moe", "text_config": {"num_experts": 2048, "layer_types": [null]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parse(data)
		if err != nil {
			return
		}
		if len(c.Full) != c.Layers || c.Heads%c.KVHeads != 0 || c.ValueHeads%c.KeyHeads != 0 || c.Rotary%2 != 0 || c.Rotary > c.HeadDim || c.Kernel < 2 || (c.MoE == nil) == (c.Intermediate == 0) {
			t.Errorf("accepted %+v", *c)
		}
		if m := c.MoE; m != nil && (m.PerToken < 1 || m.PerToken > m.Experts) {
			t.Errorf("accepted %+v", *m)
		}
	})
}

// TestWeightErrors: each error names the tensor.
func TestWeightErrors(t *testing.T) {
	type tensors = map[string]*safetensors.Named
	remove := archtest.Without
	config := func(c change) func(change) { return func(m change) { apply(m, c) } }
	for name, cases := range map[string][]archtest.Opened{
		"flat-untied": {
			{"no embeddings", nil, remove("model.embed_tokens.weight"), "model.language_model.embed_tokens.weight|model.embed_tokens.weight"},
			{"a convolution of MLX", nil, func(m tensors) {
				x := m["model.layers.0.linear_attn.conv1d.weight"]
				x.Shape = []int{x.Shape[0], x.Shape[2], 1}
			}, "conv1d.weight|want [108 1 3]"},
			{"no head", nil, remove("lm_head.weight"), "tie_word_embeddings is false|lm_head.weight"},
			{"a key and value head more", config(change{"num_key_value_heads": 3}), nil, "layers.1.self_attn.k_proj.weight|want [60 18]"},
		},
		"nested-linear": {
			{"no convolution", nil, remove("model.language_model.layers.1.linear_attn.conv1d.weight"), `"model.language_model.layers.1.linear_attn.conv1d.weight"|missing`},
			{"a layer more in the config", config(change{".num_hidden_layers": 3, ".layer_types": nil}), nil, "layers.2.input_layernorm.weight|missing"},
		},
		"moe-split": {
			{"one expert less", nil, remove("model.layers.2.mlp.experts.4.up_proj.weight"), `"model.layers.2.mlp.experts.4.up_proj.weight"|missing`},
			{"experts twice", nil, func(m tensors) { m["model.layers.0.mlp.experts.gate_up_proj"] = m["model.embed_tokens.weight"] }, "experts.gate_up_proj|experts.0.gate_proj.weight|same experts"},
		},
		"moe-fused": {
			{"no experts", nil, remove("model.language_model.layers.1.mlp.experts.gate_up_proj"), "layers.1.mlp.experts.gate_up_proj|layers.1.mlp.experts.0.gate_proj.weight"},
			{"half the experts", nil, remove("model.language_model.layers.1.mlp.experts.down_proj"), `"model.language_model.layers.1.mlp.experts.down_proj"|missing`},
			{"experts along the wrong axis", nil, func(m tensors) {
				x := m["model.language_model.layers.0.mlp.experts.gate_up_proj"]
				x.Shape = []int{5, 16, 14}
			}, "experts.gate_up_proj|want [5 14 16]"},
			{"more experts in the config", config(change{".num_experts": 6}), nil, "mlp.gate.weight|want [6 16]"},
		},
	} {
		archtest.TestOpen(t, Architecture, filepath.Join("testdata", name), cases)
	}
}

// TestMLX: a checkpoint that says it was made for MLX is refused, whatever its
// tensors are.
func TestMLX(t *testing.T) {
	dir := checkpointtest.Variant(t, "testdata/flat-untied", nil, nil)
	one := []safetensors.Named{{Name: "x", DType: safetensors.F32, Shape: []int{1}, Data: make([]byte, 4)}}
	if err := safetensors.Write(filepath.Join(dir, "model.safetensors"), one, map[string]string{"format": "mlx"}); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, dir); err == nil || !strings.Contains(err.Error(), "MLX") {
		t.Errorf("error %v, want one about MLX", err)
	}
}

func open(t *testing.T, dir string) (*Model, error) {
	t.Helper()
	ck, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ck.Close() })
	m, err := Open(ck)
	if err != nil {
		return nil, err
	}
	return m.(*Model), nil
}

// TestTying: which head is used, by what the levels of the config say and by
// whether there is an lm_head.weight.
func TestTying(t *testing.T) {
	head := func(m map[string]*safetensors.Named) {
		m["lm_head.weight"] = m["model.language_model.embed_tokens.weight"]
	}
	for _, c := range []struct {
		outer, text any
		head        bool
		want        string
	}{
		{nil, nil, false, "tied"}, {nil, nil, true, "head"}, {nil, true, true, "tied"}, {true, nil, true, "tied"}, {true, nil, false, "tied"}, {true, true, true, "tied"},
		{nil, false, true, "head"}, {false, false, true, "head"}, {false, nil, false, "error"}, {false, true, true, "head"}, {true, false, true, "head"}, {true, false, false, "tied"},
	} {
		var add func(map[string]*safetensors.Named)
		if c.head {
			add = head
		}
		says := func(m change) { apply(m, change{"tie_word_embeddings": c.outer, ".tie_word_embeddings": c.text}) }
		m, err := open(t, checkpointtest.Variant(t, "testdata/nested-linear", says, add))
		got := "error"
		if err == nil {
			got = map[bool]string{true: "tied", false: "head"}[m.set.Tied]
			if want := map[bool]string{true: "model.language_model.embed_tokens.weight", false: "lm_head.weight"}[m.set.Tied]; m.set.Head.Name != want {
				t.Errorf("%+v: the head is %s, want %s", c, m.set.Head.Name, want)
			}
		}
		if got != c.want {
			t.Errorf("%+v: %s (%v)", c, got, err)
		}
	}
}

// TestBothPrecisions: A_log and the gated norm may be F32 or what the rest is.
func TestBothPrecisions(t *testing.T) {
	fused, plain := openModel(t, testutil.Data(t, "checkpoints", "tiny-qwen35-moe-fused")), openModel(t, testutil.Data(t, "checkpoints", "tiny-qwen35"))
	a, b := fused.set.Layers[0].Delta, plain.set.Layers[0].Delta
	if a.ALog.DType != safetensors.F32 || a.Norm.DType != safetensors.F32 || a.DTBias.DType != safetensors.BF16 || b.ALog.DType != safetensors.BF16 {
		t.Errorf("types %v, %v, %v and %v", a.ALog.DType, a.Norm.DType, a.DTBias.DType, b.ALog.DType)
	}
}

func TestAside(t *testing.T) {
	for name, want := range map[string]string{
		"model.visual.blocks.0.attn.qkv.weight": "image encoder", "mtp.layers.0.mlp.down_proj.weight": "several tokens",
		"lm_head.weight": "embedding", "model.layers.0.self_attn.rotary_emb.inv_freq": "", "model.language_model.layers.9.mlp.experts.3.up_proj.weight": "",
	} {
		got := (&WeightSet{Tied: true}).aside(name)
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s belongs to %q, want %q", name, got, want)
		}
	}
	if got := (&WeightSet{}).aside("lm_head.weight"); got != "" {
		t.Errorf("a head that is used belongs to %q", got)
	}
}
