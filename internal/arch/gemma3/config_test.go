package gemma3

import (
	"encoding/json"
	"maps"
	"math"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"anemone/internal/anemll"
	"anemone/internal/arch/archtest"
	"anemone/internal/checkpoint"
	"anemone/internal/checkpoint/checkpointtest"
	"anemone/internal/checkpoint/safetensors"
	"anemone/internal/testutil"
)

type change = map[string]any

func types(layers, n int) []string {
	t := make([]string, layers)
	for i := range t {
		t[i] = "sliding_attention"
		if (i+1)%n == 0 {
			t[i] = "full_attention"
		}
	}
	return t
}

func kinds(layers, n int) []Kind {
	k := make([]Kind, layers)
	for i := n - 1; i < layers; i += n {
		k[i] = Full
	}
	return k
}

// small is what google/gemma-3-270m says (gemma3_text, transformers 4).
func small() change {
	return change{
		"_sliding_window_pattern": 6, "architectures": []string{"Gemma3ForCausalLM"}, "attention_bias": false, "attn_logit_softcapping": nil, "bos_token_id": 2,
		"eos_token_id": 1, "final_logit_softcapping": nil, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 640, "intermediate_size": 2048,
		"layer_types": types(18, 6), "max_position_embeddings": 32768, "model_type": "gemma3_text", "num_attention_heads": 4, "num_hidden_layers": 18, "num_key_value_heads": 1,
		"query_pre_attn_scalar": 256, "rms_norm_eps": 1e-6, "rope_local_base_freq": 10000.0, "rope_scaling": nil, "rope_theta": 1000000.0, "sliding_window": 512,
		"torch_dtype": "bfloat16", "use_bidirectional_attention": false, "use_cache": true, "vocab_size": 262144,
	}
}

// large is what google/gemma-3-4b-it says (gemma3, transformers 4): the rest is
// left to defaults.
func large() change {
	return change{"architectures": []string{"Gemma3ForConditionalGeneration"}, "model_type": "gemma3", "eos_token_id": []int{1, 106}, "vision_config": change{"hidden_size": 1152},
		"text_config": change{"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
			"rope_scaling": change{"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024}}
}

// resaved is that of large by transformers 5.
func resaved() change {
	c := large()
	text := c["text_config"].(change)
	delete(text, "rope_scaling")
	maps.Copy(text, change{"layer_types": types(34, 6), "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208, "tie_word_embeddings": true,
		"max_position_embeddings": 131072, "query_pre_attn_scalar": 256, "use_bidirectional_attention": nil, "rms_norm_eps": 1e-6,
		"rope_parameters": change{"full_attention": change{"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}, "sliding_attention": change{"rope_type": "default", "rope_theta": 1e4}}})
	return c
}

func parse(data []byte) (*Config, error) {
	c, err := checkpoint.ParseConfig("config.json", data)
	if err != nil {
		return nil, err
	}
	return ParseConfig(c)
}

// with returns a configuration with changes of the text model's object; nil
// removes a key.
func with(c, text change) change {
	to := c
	if inner, ok := c["text_config"].(change); ok {
		to = inner
	}
	for k, v := range text {
		if to[k] = v; v == nil {
			delete(to, k)
		}
	}
	return c
}

func TestParseConfig(t *testing.T) {
	want270 := Config{Hidden: 640, Layers: 18, Heads: 4, KVHeads: 1, HeadDim: 256, Intermediate: 2048, Vocab: 262144, MaxPositions: 32768, Window: 512, Kinds: kinds(18, 6),
		Local: Rope{1e4, 1}, Global: Rope{1e6, 1}, QueryScalar: 256, Eps: 1e-6, Tied: true, tiedUnsaid: true}
	want4 := Config{Hidden: 2560, Layers: 34, Heads: 8, KVHeads: 4, HeadDim: 256, Intermediate: 10240, Vocab: 262208, MaxPositions: 131072, Window: 1024, Kinds: kinds(34, 6),
		Local: Rope{1e4, 1}, Global: Rope{1e6, 8}, QueryScalar: 256, Eps: 1e-6, Tied: true, tiedUnsaid: true, Vision: true}
	both := func(c change) change { c["model_type"] = "gemma3"; return c }
	for _, c := range []struct {
		name   string
		config change
		want   Config
		change func(*Config)
	}{
		{"270M", small(), want270, nil},
		{"270M under the outer name", both(small()), want270, nil},
		{"4B", large(), want4, nil},
		{"4B saved again", resaved(), want4, func(c *Config) { c.tiedUnsaid = false }},
		{"27B", with(large(), change{"hidden_size": 5376, "intermediate_size": 21504, "num_hidden_layers": 62, "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128, "query_pre_attn_scalar": 168}), want4,
			func(c *Config) {
				c.Hidden, c.Intermediate, c.Layers, c.Heads, c.KVHeads, c.HeadDim, c.QueryScalar, c.Kinds = 5376, 21504, 62, 32, 16, 128, 168, kinds(62, 6)
			}},
		{"another pattern", with(large(), change{"sliding_window_pattern": 2}), want4, func(c *Config) { c.Kinds = kinds(34, 2) }},
		{"layer types before a pattern", with(small(), change{"sliding_window_pattern": 2}), want270, nil},
		{"other bases", with(small(), change{"rope_theta": 5e5, "rope_local_base_freq": 2e4}), want270, func(c *Config) { c.Local.Theta, c.Global.Theta = 2e4, 5e5 }},
		{"no bases", with(small(), change{"rope_theta": nil, "rope_local_base_freq": nil}), want270, nil},
		{"scaling by its older name", with(small(), change{"rope_scaling": change{"type": "linear", "factor": 2}}), want270, func(c *Config) { c.Global.Factor = 2 }},
		{"both forms of rotation", with(resaved(), change{"rope_scaling": change{"factor": 8.0, "rope_type": "linear"}, "rope_theta": 1e6}), want4, func(c *Config) { c.tiedUnsaid = false }},
		{"one kind's parameters", with(small(), change{"rope_parameters": change{"full_attention": change{"rope_type": "linear", "factor": 3.0}}}), want270, func(c *Config) { c.Global.Factor = 3 }},
		{"soft cap", with(small(), change{"final_logit_softcapping": 30.0}), want270, func(c *Config) { c.Softcap = 30 }},
		{"biases", with(small(), change{"attention_bias": true}), want270, func(c *Config) { c.AttentionBias = true }},
		{"untied", with(small(), change{"tie_word_embeddings": false}), want270, func(c *Config) { c.Tied, c.tiedUnsaid = false, false }},
		{"nulls", with(small(), change{"use_bidirectional_attention": nil, "attention_bias": nil}), want270, nil},
	} {
		want := c.want
		if c.change != nil {
			c.change(&want)
		}
		got, err := parse(archtest.Encode(t, c.config))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if !reflect.DeepEqual(*got, want) {
			t.Errorf("%s:\n%+v, want\n%+v", c.name, *got, want)
		}
	}
	outer := large()
	outer["tie_word_embeddings"] = false
	if got, err := parse(archtest.Encode(t, outer)); err != nil || got.Tied || got.tiedUnsaid {
		t.Errorf("tying said outside: %+v, %v", got, err)
	}
}

func TestParseConfigErrors(t *testing.T) {
	rope := func(kind string, r change) change { return change{"rope_parameters": change{kind: r}} }
	for _, c := range []struct {
		name   string
		config change
		want   string // parts of the error, separated by |
	}{
		{"another model", with(small(), change{"model_type": "gemma2"}), "model_type|\"gemma2\"|\"gemma3\" or \"gemma3_text\""},
		{"no text_config", change{"model_type": "gemma3"}, "text_config|missing"},
		{"EmbeddingGemma", with(small(), change{"use_bidirectional_attention": true}), "use_bidirectional_attention|EmbeddingGemma"},
		{"in text_config", with(large(), change{"use_bidirectional_attention": true}), "text_config.use_bidirectional_attention"},
		{"bounded scores", with(small(), change{"attn_logit_softcapping": 50.0}), "attn_logit_softcapping|50|want null"},
		{"another activation", with(small(), change{"hidden_activation": "silu"}), "hidden_activation|\"silu\"|gelu_pytorch_tanh"},
		{"quantized", with(small(), change{"quantization_config": change{"quant_method": "bitsandbytes"}}), "quantization_config|bitsandbytes"},
		{"no width", with(large(), change{"hidden_size": nil}), "text_config.hidden_size|missing"},
		{"no layers", with(small(), change{"num_hidden_layers": 0}), "num_hidden_layers|found 0"},
		{"too wide", with(small(), change{"intermediate_size": 1 << 21}), "intermediate_size|want 1 to 1048576"},
		{"key heads", with(small(), change{"num_key_value_heads": 3}), "num_key_value_heads|found 3|divisor|4"},
		{"odd heads", with(small(), change{"head_dim": 255}), "head_dim|255|even"},
		{"wide heads", with(small(), change{"num_attention_heads": 4096, "head_dim": 512, "num_key_value_heads": 1}), "num_attention_heads 4096|512|exceeds"},
		{"window", with(small(), change{"sliding_window": 0}), "sliding_window|found 0"},
		{"window that is none", with(small(), change{"sliding_window": json.RawMessage("null")}), "sliding_window|found null|sliding_attention"},
		{"pattern", with(large(), change{"sliding_window_pattern": 0}), "sliding_window_pattern|found 0"},
		{"layer types", with(small(), change{"layer_types": types(17, 6)}), "layer_types|17 entries|18"},
		{"unknown layer", with(small(), change{"layer_types": append(types(17, 6), "chunked_attention")}), "layer_types[17]|chunked_attention"},
		{"sliding only", with(small(), change{"layer_types": types(18, 19)}), "layer_types|no layer has full_attention"},
		{"full only", with(small(), change{"layer_types": types(18, 1)}), "layer_types|no layer has sliding_attention"},
		{"pattern beyond the layers", with(large(), change{"sliding_window_pattern": 40}), "layer_types|full_attention"},
		{"query scalar", with(small(), change{"query_pre_attn_scalar": 0}), "query_pre_attn_scalar|found 0"},
		{"epsilon", with(small(), change{"rms_norm_eps": 0}), "rms_norm_eps|found 0"},
		{"soft cap", with(small(), change{"final_logit_softcapping": -1}), "final_logit_softcapping|found -1"},
		{"negative base", with(small(), change{"rope_theta": -1.0}), "rope_theta|found -1"},
		{"small base", with(small(), change{"rope_local_base_freq": 0.5}), "rope_local_base_freq|found 0.5"},
		{"yarn", with(large(), change{"rope_scaling": change{"rope_type": "yarn", "factor": 2.0}}), "text_config.rope_scaling.rope_type|\"yarn\"|linear"},
		{"no factor", with(large(), change{"rope_scaling": change{"rope_type": "linear"}}), "text_config.rope_scaling.factor|missing"},
		{"factor below one", with(large(), change{"rope_scaling": change{"rope_type": "linear", "factor": 0.5}}), "text_config.rope_scaling.factor|found 0.5"},
		{"scaling no object", with(large(), change{"rope_scaling": 8}), "text_config.rope_scaling|8"},
		{"dynamic parameters", with(small(), rope("sliding_attention", change{"rope_type": "dynamic", "rope_theta": 1e4})), "rope_parameters.sliding_attention.rope_type|dynamic"},
		{"part of a head", with(small(), rope("full_attention", change{"rope_type": "default", "partial_rotary_factor": 0.5})), "rope_parameters.full_attention.partial_rotary_factor|0.5"},
		{"parameters for all", with(small(), change{"rope_parameters": change{"rope_type": "default", "rope_theta": 1e4}}), "rope_parameters|all layers|full_attention"},
		{"bases that differ", with(small(), rope("full_attention", change{"rope_theta": 5e5})), "rope_parameters.full_attention.rope_theta is 500000|rope_theta says 1e+06|remove"},
		{"factors that differ", with(resaved(), change{"rope_scaling": change{"factor": 4.0, "rope_type": "linear"}}), "factor is 8|rope_scaling says 4|remove"},
		{"a string", with(small(), change{"head_dim": "256"}), "head_dim|256"},
	} {
		cfg, err := parse(archtest.Encode(t, c.config))
		if err == nil {
			t.Errorf("%s: no error but %+v", c.name, *cfg)
			continue
		}
		archtest.Names(t, c.name, err, "config.json|"+c.want)
	}
}

func FuzzParseConfig(f *testing.F) {
	for _, c := range []change{small(), large(), resaved(), with(small(), change{"layer_types": nil, "rope_parameters": change{}})} {
		f.Add(archtest.Encode(f, c))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parse(data)
		if err != nil {
			return
		}
		// What the rest relies on.
		if len(c.Kinds) != c.Layers || c.Layers < 2 || c.KVHeads < 1 || c.Heads%c.KVHeads != 0 || c.Window < 1 || c.Hidden < 1 || c.Hidden > maxWidth || c.Intermediate < 1 || c.Vocab < 1 ||
			c.HeadDim < 2 || c.HeadDim%2 != 0 || c.QuerySize() > maxWidth || !(c.Eps > 0) || !(c.QueryScalar > 0) {
			t.Errorf("%s gives %+v", data, *c)
		}
		for _, k := range []Kind{Sliding, Full} {
			if r := c.Rope(k); !(r.Theta >= 1) || !(r.Factor >= 1) || len(c.layersOf(k)) == 0 {
				t.Errorf("%s: %s layers rotate by %+v", data, k, *r)
			}
		}
	})
}

// TestRotation has the angles of 4B: full layers turn an eighth as far as
// their base says.
func TestRotation(t *testing.T) {
	cfg, err := parse(archtest.Encode(t, large()))
	if err != nil {
		t.Fatal(err)
	}
	rot := (&Model{cfg: cfg}).rotations(2000)
	for k, want := range map[Kind]map[int]float64{
		Sliding: {0: 1, 1: 0.930572, 127: 1.0746078e-4},
		Full:    {0: 0.125, 1: 0.125 * 0.8976872, 64: 0.125e-3, 127: 0.125 * 1.1139738e-6},
	} {
		r := rot[k]
		if r.Cos.Rows() != 2000 || r.Cos.Cols() != 128 || r.Sin.Cols() != 128 || r.Dim != 256 {
			t.Fatalf("%s: tables [%d, %d]", k, r.Cos.Rows(), r.Cos.Cols())
		}
		for _, pos := range []int{0, 1, 1999} {
			cos, sin := make([]float32, 128), make([]float32, 128)
			if err := r.Cos.Float32(cos, pos); err != nil {
				t.Fatal(err)
			}
			if err := r.Sin.Float32(sin, pos); err != nil {
				t.Fatal(err)
			}
			for i, f := range want {
				angle := float64(pos) * f
				// Six digits of a frequency, times 2000.
				if d := max(math.Abs(float64(cos[i])-math.Cos(angle)), math.Abs(float64(sin[i])-math.Sin(angle))); !(d <= 2e-4) {
					t.Errorf("%s: pair %d turns by another angle than %g at position %d", k, i, angle, pos)
				}
			}
		}
	}
}

// TestSamePackage converts checkpoints of one model in the forms that
// releases and saves have: everything but the config.json, which is copied,
// is the same to the byte. Where the tensors have other names, so have the
// constants in the programs; the weights are the same then.
func TestSamePackage(t *testing.T) {
	o := anemll.Options{Context: 64, Batch: 4, Chunks: 2, SplitHead: 3, Name: "x", Format: anemll.MLPackage}
	convert := func(dir string) (map[string][32]byte, *anemll.Report) {
		out, report := archtest.Write(t, Architecture, dir, o)
		h := testutil.Hashes(t, out)
		delete(h, "config.json")
		return h, report
	}
	want, _ := convert(folder("outer"))
	if len(want) < 10 {
		t.Fatalf("a package of %d files", len(want))
	}
	flat := func(c change) {
		text := c["text_config"].(change)
		clear(c)
		maps.Copy(c, text)
	}
	renamed := func(to string) func(map[string]*safetensors.Named) {
		return func(m map[string]*safetensors.Named) {
			for n, x := range maps.Clone(m) {
				if rest, ok := strings.CutPrefix(n, prefixes[0].model); ok {
					delete(m, n)
					m[to+rest] = x
				} else if to != "model." { // transformers 5 in memory
					delete(m, n)
					m["model."+n] = x
				}
			}
		}
	}
	copied := func(name string) func(map[string]*safetensors.Named) {
		return func(m map[string]*safetensors.Named) {
			m[name] = &safetensors.Named{DType: "BF16", Shape: []int{1, 1}, Data: []byte{1, 2}}
		}
	}
	tied := func(c change) { c["text_config"].(change)["tie_word_embeddings"] = true }
	for _, c := range []struct {
		name    string
		config  func(change)
		tensors func(map[string]*safetensors.Named)
		aside   int // kinds of tensors that are set aside
		renamed bool
	}{
		{"names as in memory", nil, renamed("model.language_model."), 1, true},
		{"the text model alone", flat, renamed("model."), 1, true},
		{"the text model's configuration alone", flat, nil, 1, false},
		{"the text model's names alone", nil, renamed("model."), 1, true},
		{"a copy of the head", tied, copied("lm_head.weight"), 2, false},
		{"a copy of the head inside", tied, copied("language_model.lm_head.weight"), 2, false},
		{"rope_parameters", func(c change) {
			text := c["text_config"].(change)
			delete(text, "rope_scaling")
			text["rope_parameters"] = change{"full_attention": change{"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}, "sliding_attention": change{"rope_type": "default", "rope_theta": 1e4}}
		}, nil, 1, false},
		{"layer_types", func(c change) { c["text_config"].(change)["layer_types"] = types(4, 3) }, nil, 1, false},
	} {
		got, report := convert(checkpointtest.Variant(t, folder("outer"), c.config, c.tensors))
		if len(got) != len(want) {
			t.Errorf("%s: %d files, want %d", c.name, len(got), len(want))
		}
		for n := range want {
			if got[n] != want[n] && !(c.renamed && filepath.Base(n) != "weight.bin") {
				t.Errorf("%s: %s differs", c.name, n)
			}
		}
		if len(report.Aside) != c.aside || len(report.Unused) > 0 {
			t.Errorf("%s: set aside: %q, not used: %q", c.name, report.Aside, report.Unused)
		}
	}
}

func TestWeightsErrors(t *testing.T) {
	text := func(key string, v any) func(change) { return func(c change) { c["text_config"].(change)[key] = v } }
	without := func(name string) func(map[string]*safetensors.Named) {
		return archtest.Without(prefixes[0].model + name)
	}
	archtest.TestOpen(t, Architecture, folder("outer"), []archtest.Opened{
		{"nothing wrong", nil, nil, ""},
		{"other width", text("intermediate_size", 14), nil, "layers.0.mlp.gate_proj.weight|[13 20]|[14 20]"},
		{"other heads", text("head_dim", 4), nil, "layers.0.self_attn.q_proj.weight|[32 20]|[16 20]"},
		{"other rows", text("vocab_size", 51), nil, "embed_tokens.weight|[50 20]|[51 20]"},
		{"no embedding", nil, without("embed_tokens.weight"), "language_model.model.embed_tokens.weight|missing"},
		{"no norm", nil, without("layers.3.pre_feedforward_layernorm.weight"), "layers.3.pre_feedforward_layernorm.weight|missing"},
		{"no final norm", nil, without("norm.weight"), "language_model.model.norm.weight|missing"},
		{"no biases", text("attention_bias", true), nil, "layers.0.self_attn.q_proj.bias|missing"},
		{"no head", archtest.Set("tie_word_embeddings", false), nil, "tie_word_embeddings|language_model.lm_head.weight"},
	})
}

// An untied head and biases are found where the checkpoint has them.
func TestWeights(t *testing.T) {
	m := openModel(t, folder("long"))
	if m.set.Tied || m.set.Head.Name != "lm_head.weight" || m.set.Prefix != "model." || m.set.Layers[1].OBias == nil || m.set.Layers[2].KBias == nil {
		t.Errorf("head %s, tied %t, prefix %q", m.set.Head.Name, m.set.Tied, m.set.Prefix)
	}
	// Without saying so: what is there decides.
	m = openModel(t, checkpointtest.Variant(t, folder("long"), func(c change) { delete(c, "tie_word_embeddings"); delete(c, "attention_bias") }, nil))
	if m.set.Tied || m.set.Layers[0].QBias == nil {
		t.Errorf("head %s, tied %t", m.set.Head.Name, m.set.Tied)
	}
	m = openModel(t, checkpointtest.Variant(t, folder("long"), func(c change) { delete(c, "tie_word_embeddings") }, func(m map[string]*safetensors.Named) { delete(m, "lm_head.weight") }))
	if !m.set.Tied || m.set.Head != m.set.Embed {
		t.Errorf("head %s, tied %t", m.set.Head.Name, m.set.Tied)
	}
	// An untied head within the whole model.
	m = openModel(t, checkpointtest.Variant(t, folder("outer"), nil, func(m map[string]*safetensors.Named) {
		m["language_model.lm_head.weight"] = m["language_model.model.embed_tokens.weight"]
	}))
	if m.set.Tied || m.set.Head.Name != "language_model.lm_head.weight" {
		t.Errorf("head %s, tied %t", m.set.Head.Name, m.set.Tied)
	}
}
