package gemma4

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
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

// types returns layer_types in which every nth layer is full.
func types(layers, n int) []string {
	t := slices.Repeat([]string{"sliding_attention"}, layers)
	for i := n - 1; i < layers; i += n {
		t[i] = "full_attention"
	}
	return t
}

// e2b is what google/gemma-4-E2B says about its text model; e4b is that of
// E4B.
func e2b() change {
	return change{
		"attention_bias": false, "attention_dropout": 0.0, "attention_k_eq_v": false, "bos_token_id": 2, "dtype": "bfloat16",
		"enable_moe_block": false, "eos_token_id": 1, "final_logit_softcapping": 30.0, "global_head_dim": 512, "head_dim": 256,
		"hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1536, "hidden_size_per_layer_input": 256, "initializer_range": 0.02,
		"intermediate_size": 6144, "layer_types": types(35, 5), "max_position_embeddings": 131072, "model_type": "gemma4_text",
		"moe_intermediate_size": nil, "num_attention_heads": 8, "num_experts": nil, "num_global_key_value_heads": nil, "num_hidden_layers": 35,
		"num_key_value_heads": 1, "num_kv_shared_layers": 20, "pad_token_id": 0, "rms_norm_eps": 1e-6,
		"rope_parameters": change{"full_attention": change{"partial_rotary_factor": 0.25, "rope_theta": 1e6, "rope_type": "proportional"},
			"sliding_attention": change{"rope_theta": 1e4, "rope_type": "default"}},
		"sliding_window": 512, "tie_word_embeddings": true, "top_k_experts": nil, "use_bidirectional_attention": nil, "use_cache": true,
		"use_double_wide_mlp": true, "vocab_size": 262144, "vocab_size_per_layer_input": 262144,
	}
}

func e4b() change {
	c := e2b()
	maps.Copy(c, change{"hidden_size": 2560, "num_hidden_layers": 42, "num_key_value_heads": 2, "intermediate_size": 10240,
		"use_double_wide_mlp": false, "num_kv_shared_layers": 18, "layer_types": types(42, 6)})
	return c
}

// wrap puts a text model's configuration into that of the whole model.
func wrap(text change) change {
	return change{"architectures": []string{"Gemma4ForConditionalGeneration"}, "model_type": "gemma4", "text_config": text, "tie_word_embeddings": true,
		"vision_config": change{"hidden_size": 768}, "audio_config": change{"hidden_size": 1024}, "eos_token_id": []int{1, 106}}
}

func parse(data []byte) (*Config, error) {
	c, err := checkpoint.ParseConfig("config.json", data)
	if err != nil {
		return nil, err
	}
	return ParseConfig(c)
}

// perLayer returns the head dimensions of full layers in the form of
// transformers 5.
func perLayer(dim, layers, n int) change {
	c := change{}
	for i := n - 1; i < layers; i += n {
		c[fmt.Sprint(i)] = change{"head_dim": dim}
	}
	return c
}

func TestParseConfig(t *testing.T) {
	kinds := func(layers, n int) []Kind {
		k := make([]Kind, layers)
		for i := n - 1; i < layers; i += n {
			k[i] = Full
		}
		return k
	}
	want2 := Config{Hidden: 1536, Layers: 35, Heads: 8, KVHeads: 1, Vocab: 262144, MaxPositions: 131072, Window: 512,
		Local: Attention{HeadDim: 256, Theta: 1e4, Rotated: 128}, Global: Attention{HeadDim: 512, Theta: 1e6, Rotated: 64},
		PerLayer: 256, PerLayerVocab: 262144, Kinds: kinds(35, 5), Shared: 20, Intermediate: 6144, DoubleWide: true, Eps: 1e-6, Softcap: 30, Tied: true, Vision: true, Audio: true}
	want4 := want2
	want4.Hidden, want4.Layers, want4.KVHeads, want4.Kinds, want4.Shared, want4.Intermediate, want4.DoubleWide = 2560, 42, 2, kinds(42, 6), 18, 10240, false
	for _, c := range []struct {
		name   string
		base   func() change
		text   change // changes of the text model's object; nil removes a key
		change func(change) change
		want   func(*Config)
	}{
		{name: "E2B"},
		{name: "E4B", base: e4b},
		{name: "saved again", text: change{"global_head_dim": nil, "per_layer_config": perLayer(512, 35, 5)}},
		{name: "both forms", text: change{"per_layer_config": perLayer(512, 35, 5)}},
		{name: "other head dimensions", text: change{"global_head_dim": nil, "per_layer_config": perLayer(384, 35, 5)}, want: func(c *Config) { c.Global = Attention{384, 1e6, 48} }},
		{name: "key heads repeated", text: change{"per_layer_config": change{"4": change{"head_dim": 512, "num_key_value_heads": 1}}, "layer_types": types(35, 36), "num_kv_shared_layers": 0, "global_head_dim": nil},
			change: func(c change) change {
				text := c["text_config"].(change)
				text["layer_types"].([]string)[4] = "full_attention"
				text["per_layer_config"].(change)["34"] = change{"head_dim": 512}
				return c
			},
			want: func(c *Config) { c.Kinds = make([]Kind, 35); c.Kinds[4], c.Kinds[34], c.Shared = Full, Full, 0 }},
		{name: "text alone", change: func(c change) change {
			text := c["text_config"].(change)
			text["architectures"] = []string{"Gemma4ForCausalLM"}
			return text
		}, want: func(c *Config) { c.Vision, c.Audio = false, false }},
		{name: "text alone under the outer name", change: func(c change) change {
			text := c["text_config"].(change)
			text["model_type"] = "gemma4"
			return text
		}, want: func(c *Config) { c.Vision, c.Audio = false, false }},
		{name: "architectures null", text: change{"architectures": nil}, change: func(c change) change {
			c["text_config"].(change)["architectures"] = nil
			return c
		}},
		{name: "tying said outside", text: change{"tie_word_embeddings": nil}, change: func(c change) change { c["tie_word_embeddings"] = false; return c }, want: func(c *Config) { c.Tied = false }},
		{name: "tying said inside", change: func(c change) change { c["tie_word_embeddings"] = false; return c }},
		{name: "nothing said on tying", text: change{"tie_word_embeddings": nil}, change: func(c change) change { delete(c, "tie_word_embeddings"); return c }, want: func(c *Config) { c.tiedUnsaid = true }},
		{name: "defaults", text: change{"head_dim": nil, "global_head_dim": nil, "vocab_size": nil, "vocab_size_per_layer_input": nil, "hidden_size_per_layer_input": nil,
			"sliding_window": nil, "max_position_embeddings": nil, "rope_parameters": nil, "rms_norm_eps": nil, "hidden_activation": nil,
			"attention_k_eq_v": nil, "enable_moe_block": nil, "attention_bias": nil}},
		{name: "no soft cap", text: change{"final_logit_softcapping": nil}, want: func(c *Config) { c.Softcap = 0 }},
		{name: "the last layer is full", base: e4b, text: change{"layer_types": append(types(42, 6)[:41], "sliding_attention")}},
		{name: "no layer types", base: e4b, text: change{"layer_types": nil}},
		{name: "nothing shared", text: change{"num_kv_shared_layers": nil, "use_double_wide_mlp": nil}, want: func(c *Config) { c.Shared, c.DoubleWide = 0, false }},
		{name: "vision may look both ways", text: change{"use_bidirectional_attention": "vision"}},
		{name: "whole rotation", text: change{"rope_parameters": change{"full_attention": change{"rope_theta": 5e5, "rope_type": "default"},
			"sliding_attention": change{"rope_theta": 1e4, "rope_type": "proportional"}}}, want: func(c *Config) { c.Global = Attention{512, 5e5, 256} }},
	} {
		base, want := c.base, want2
		if base == nil {
			base = e2b
		} else {
			want = want4
		}
		want.Kinds = slices.Clone(want.Kinds)
		text := base()
		archtest.Apply(text, c.text)
		outer := wrap(text)
		if c.change != nil {
			outer = c.change(outer)
		}
		if c.want != nil {
			c.want(&want)
		}
		got, err := parse(archtest.Encode(t, outer))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: got %+v, want %+v", c.name, *got, want)
		}
	}
}

// TestSharing has the layers whose keys and values the last ones read.
func TestSharing(t *testing.T) {
	for _, c := range []struct {
		name                  string
		config                change
		first, sliding, full  int // first layer that shares, and what they read
		locals, globals, wide int
	}{
		{"E2B", e2b(), 15, 13, 14, 12, 3, 12288},
		{"E4B", e4b(), 24, 22, 23, 20, 4, 10240},
	} {
		cfg, err := parse(archtest.Encode(t, wrap(c.config)))
		if err != nil {
			t.Fatal(err)
		}
		for i := range cfg.Layers {
			want := i
			if i >= c.first {
				want = map[Kind]int{Sliding: c.sliding, Full: c.full}[cfg.Kinds[i]]
			}
			if got := cfg.Producer(i); got != want || cfg.Shares(i) != (i >= c.first) {
				t.Errorf("%s: layer %d reads layer %d, want %d", c.name, i, got, want)
			}
			width := cfg.Intermediate
			if i >= c.first {
				width = c.wide
			}
			if got := cfg.MLPSize(i); got != width {
				t.Errorf("%s: the MLP of layer %d is %d wide, want %d", c.name, i, got, width)
			}
		}
		if l, g := len(cfg.Producers(Sliding)), len(cfg.Producers(Full)); l != c.locals || g != c.globals {
			t.Errorf("%s: %d local and %d global caches, want %d and %d", c.name, l, g, c.locals, c.globals)
		}
	}
}

// TestRotation has the tables of E2B: of the 256 frequencies of a full layer
// the first 64 turn, by powers of 512, the whole head, not of the 128 elements
// that turn.
func TestRotation(t *testing.T) {
	cfg, err := parse(archtest.Encode(t, e2b()))
	if err != nil {
		t.Fatal(err)
	}
	for k, want := range map[Kind]map[int]float64{
		Sliding: {0: 1, 1: 0.930572, 127: 1.0746078e-4},
		Full:    {0: 1, 1: 0.9474635, 32: 0.177827941, 63: 0.033376247},
	} {
		r := (&Model{cfg: cfg}).rotations(2000)[k]
		if n := map[Kind]int{Sliding: 128, Full: 64}[k]; r.Cos.Rows() != 2000 || r.Cos.Cols() != n || r.Sin.Cols() != n {
			t.Fatalf("%s: tables [%d, %d], want [2000, %d]", k, r.Cos.Rows(), r.Cos.Cols(), n)
		}
		for _, pos := range []int{0, 1, 1999} {
			cos, sin := make([]float32, r.Cos.Cols()), make([]float32, r.Cos.Cols())
			if err := errors.Join(r.Cos.Float32(cos, pos), r.Sin.Float32(sin, pos)); err != nil {
				t.Fatal(err)
			}
			for i, f := range want {
				angle := float64(pos) * f
				if d := max(math.Abs(float64(cos[i])-math.Cos(angle)), math.Abs(float64(sin[i])-math.Sin(angle))); !(d <= 2e-4) {
					t.Errorf("%s: pair %d turns by another angle than %g at position %d", k, i, angle, pos)
				}
			}
		}
	}
}

func TestParseConfigErrors(t *testing.T) {
	rope := func(kind string, with change) change {
		r := change{"full_attention": change{"partial_rotary_factor": 0.25, "rope_theta": 1e6, "rope_type": "proportional"},
			"sliding_attention": change{"rope_theta": 1e4, "rope_type": "default"}}
		r[kind+"_attention"] = with
		return change{"rope_parameters": r}
	}
	for _, c := range []struct {
		name string
		text change
		want string // parts of the error, separated by |
	}{
		{"keys are values", change{"attention_k_eq_v": true}, "text_config.attention_k_eq_v|12B"},
		{"experts", change{"enable_moe_block": true}, "text_config.enable_moe_block|26B"},
		{"no per-layer inputs", change{"hidden_size_per_layer_input": 0}, "text_config.hidden_size_per_layer_input|found 0|not supported"},
		{"biases", change{"attention_bias": true}, "text_config.attention_bias"},
		{"looks both ways", change{"use_bidirectional_attention": "all"}, `use_bidirectional_attention|"all"`},
		{"activation", change{"hidden_activation": "silu"}, `hidden_activation|"silu"`},
		{"quantized", change{"quantization_config": change{"quant_method": "fp8"}}, "quantization_config|fp8"},
		{"no width", change{"hidden_size": nil}, "text_config.hidden_size|missing"},
		{"no layers", change{"num_hidden_layers": 0}, "num_hidden_layers|found 0"},
		{"huge vocabulary", change{"vocab_size": int64(1) << 40}, "vocab_size|1099511627776"},
		{"per-layer rows", change{"vocab_size_per_layer_input": 1000}, "vocab_size_per_layer_input|1000|262144"},
		{"wide per-layer inputs", change{"hidden_size_per_layer_input": 4096, "num_hidden_layers": 300}, "hidden_size_per_layer_input 4096"},
		{"heads do not divide", change{"num_key_value_heads": 3}, "num_key_value_heads|found 3|8"},
		{"odd heads", change{"head_dim": 255}, "head_dim|255|even"},
		{"odd wide heads", change{"global_head_dim": 513}, "global_head_dim|513|even"},
		{"wide heads together", change{"num_attention_heads": 4096, "global_head_dim": 4096}, "4096 times global_head_dim 4096"},
		{"two sizes", change{"per_layer_config": perLayer(256, 35, 5)}, "global_head_dim|512|256"},
		{"sizes within a kind", change{"per_layer_config": change{"4": change{"head_dim": 512}}, "global_head_dim": nil}, "per_layer_config|layers 4 and 9|512|256"},
		{"other differences", change{"per_layer_config": change{"4": change{"intermediate_size": 7}}}, "per_layer_config.4.intermediate_size|found 7"},
		{"other key heads", change{"per_layer_config": change{"4": change{"num_key_value_heads": 2}}}, "per_layer_config.4.num_key_value_heads|found 2"},
		{"layer of another number", change{"per_layer_config": change{"35": change{"head_dim": 512}}}, `per_layer_config|"35"|0 to 34`},
		{"layer without a number", change{"per_layer_config": change{"x": change{"head_dim": 512}}}, `per_layer_config|"x"`},
		{"per-layer list", change{"per_layer_config": []int{1}}, "per_layer_config"},
		{"few layer types", change{"layer_types": types(34, 5)}, "layer_types|34|35"},
		{"unknown layer type", change{"layer_types": append(types(34, 5), "chunked_attention")}, `layer_types[34]|"chunked_attention"`},
		{"one kind of layers", change{"layer_types": types(35, 1)}, "layer_types|sliding_attention"},
		{"all shared", change{"num_kv_shared_layers": 35}, "num_kv_shared_layers|found 35"},
		{"nothing to share", change{"num_kv_shared_layers": 31}, "num_kv_shared_layers|layer 4|full"},
		{"no window", change{"sliding_window": 0}, "sliding_window|found 0"},
		{"window that is none", change{"sliding_window": json.RawMessage("null")}, "sliding_window|found null|sliding_attention"},
		{"eps", change{"rms_norm_eps": 0}, "rms_norm_eps|found 0"},
		{"soft cap", change{"final_logit_softcapping": -30}, "final_logit_softcapping|-30"},
		{"soft cap of nothing", change{"final_logit_softcapping": 0}, "final_logit_softcapping|found 0"},
		{"yarn", rope("full", change{"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0}), `rope_parameters.full_attention|factor`},
		{"another rotation", rope("full", change{"rope_type": "llama3", "rope_theta": 1e6}), `rope_parameters.full_attention.rope_type|"llama3"`},
		{"scaled", rope("full", change{"rope_type": "proportional", "rope_theta": 1e6, "factor": 8.0}), "rope_parameters.full_attention.factor|8"},
		{"partial default", rope("sliding", change{"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}), "rope_parameters.sliding_attention.partial_rotary_factor|0.5"},
		{"no rotation", rope("full", change{"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.001}), "rope_parameters.full_attention.partial_rotary_factor|0.001|512"},
		{"small base", rope("sliding", change{"rope_type": "default", "rope_theta": 0.5}), "rope_parameters.sliding_attention.rope_theta|0.5"},
		{"no base", rope("sliding", change{"rope_type": "default"}), "rope_theta"},
		{"one rotation missing", change{"rope_parameters": change{"full_attention": change{"rope_type": "default", "rope_theta": 1e4}}}, "sliding_attention"},
	} {
		text := e2b()
		archtest.Apply(text, c.text)
		got, err := parse(archtest.Encode(t, wrap(text)))
		if err == nil {
			t.Errorf("%s: no error, got %+v", c.name, got)
			continue
		}
		archtest.Names(t, c.name, err, "config.json|"+c.want)
	}
	for data, want := range map[string]string{
		`{"model_type": "gemma3"}`: `"gemma3"`, `{"model_type": "gemma4"}`: "text_config", `{"model_type": "gemma4", "text_config": 3}`: "text_config", `{}`: "model_type",
	} {
		if _, err := parse([]byte(data)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one about %s", data, err, want)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add(archtest.Encode(f, wrap(e2b())))
	f.Add(archtest.Encode(f, e4b()))
	for _, name := range random {
		b, err := os.ReadFile(filepath.Join("testdata", name, "config.json"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parse(data)
		if err != nil {
			return
		}
		// What the rest relies on.
		if len(c.Kinds) != c.Layers || c.KVHeads < 1 || c.Heads%c.KVHeads != 0 || c.Window < 1 || c.Hidden < 1 || c.Hidden > maxWidth || c.Vocab < 1 || c.PerLayerVocab < c.Vocab || c.PerLayer < 1 || !(c.Eps > 0) {
			t.Errorf("%s gives %+v", data, *c)
		}
		for i := range c.Layers {
			p, a := c.Producer(i), c.Attention(c.Kinds[i])
			if p < 0 || p > i || c.Kinds[p] != c.Kinds[i] || c.Shares(p) || a.HeadDim < 2 || a.HeadDim%2 != 0 || a.Rotated < 1 || a.Rotated > a.HeadDim/2 || c.QuerySize(i) > maxWidth || c.MLPSize(i) > maxWidth {
				t.Fatalf("%s: layer %d reads %d, %+v", data, i, p, *a)
			}
		}
	})
}

var sharedTensors = []string{"self_attn.k_proj.weight", "self_attn.v_proj.weight", "self_attn.k_norm.weight"}

// TestSamePackage converts checkpoints of one model in the forms that
// releases and saves have: everything but the config.json, which is copied,
// is the same to the byte. Where the tensors have other names, so have the
// constants in the programs; the weights are the same then.
func TestSamePackage(t *testing.T) {
	released := filepath.Join("testdata", "released")
	o := anemll.Options{Context: 64, Batch: 4, Chunks: 3, SplitHead: 3, Name: "x"}
	first, report := archtest.Write(t, Architecture, released, o)
	want := testutil.Hashes(t, first)
	delete(want, "config.json")
	if len(want) < 10 {
		t.Fatalf("a package of %d files", len(want))
	}
	if got := strings.Join(report.Aside, "; "); got != "vision tower (packages take text only): 2 tensors set aside; keys and values of layers that read another's: 9 tensors set aside" || len(report.Unused) > 0 {
		t.Errorf("set aside: %q, not used: %q", got, report.Unused)
	}
	flat := func(c change) {
		text := c["text_config"].(change)
		clear(c)
		maps.Copy(c, text)
		c["architectures"] = []string{"Gemma4ForCausalLM"}
	}
	renamed := func(m map[string]*safetensors.Named) {
		for n, x := range maps.Clone(m) {
			if rest, ok := strings.CutPrefix(n, prefixes[0]); ok {
				delete(m, n)
				m[prefixes[1]+rest] = x
			}
		}
	}
	for _, c := range []struct {
		name    string
		config  func(change)
		tensors func(map[string]*safetensors.Named)
		aside   string
		renamed bool
	}{
		{"without keys that are not used", nil, func(m map[string]*safetensors.Named) {
			for _, l := range []int{4, 5, 6} {
				for _, n := range sharedTensors {
					delete(m, fmt.Sprintf("model.language_model.layers.%d.%s", l, n))
				}
			}
		}, "vision tower (packages take text only): 2 tensors set aside", false},
		{"per_layer_config", func(c change) {
			text := c["text_config"].(change)
			delete(text, "global_head_dim")
			text["per_layer_config"] = change{"2": change{"head_dim": 12}, "4": change{"head_dim": 12}, "6": change{"head_dim": 12}}
		}, nil, "", false},
		{"the text model alone", flat, renamed, "", true},
		{"the text model's configuration alone", flat, nil, "", false},
		{"the text model's names alone", nil, renamed, "", true},
		{"a copy of the head", nil, func(m map[string]*safetensors.Named) {
			m["lm_head.weight"] = &safetensors.Named{DType: "BF16", Shape: []int{1, 1}, Data: []byte{1, 2}}
		}, "copy of the embedding as LM head: 1 tensors set aside; vision tower (packages take text only): 2 tensors set aside; keys and values of layers that read another's: 9 tensors set aside", false},
	} {
		dir, report := archtest.Write(t, Architecture, checkpointtest.Variant(t, released, c.config, c.tensors), o)
		got := testutil.Hashes(t, dir)
		delete(got, "config.json")
		if len(got) != len(want) {
			t.Errorf("%s: %d files, want %d", c.name, len(got), len(want))
		}
		for n := range want {
			if got[n] != want[n] && !(c.renamed && filepath.Base(n) != "weight.bin") {
				t.Errorf("%s: %s differs", c.name, n)
			}
		}
		if aside := strings.Join(report.Aside, "; "); c.aside != "" && aside != c.aside {
			t.Errorf("%s: set aside: %q", c.name, aside)
		}
	}
}

func TestWeightsErrors(t *testing.T) {
	text := func(key string, v any) func(change) {
		return func(c change) { c["text_config"].(change)[key] = v }
	}
	without := func(name string) func(map[string]*safetensors.Named) {
		return archtest.Without("model.language_model." + name)
	}
	archtest.TestOpen(t, Architecture, filepath.Join("testdata", "released"), []archtest.Opened{
		{"nothing wrong", nil, nil, ""},
		{"other width", text("intermediate_size", 14), nil, "layers.0.mlp.gate_proj.weight|[13 20]|[14 20]"},
		{"double width", text("use_double_wide_mlp", true), nil, "layers.4.mlp.gate_proj.weight|[13 20]|[26 20]"},
		{"other heads", text("global_head_dim", 6), nil, "layers.2.self_attn.q_proj.weight|[48 20]|[24 20]"},
		{"other kinds", text("layer_types", []string{"sliding_attention", "full_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention"}), nil, "layers.1.self_attn.q_proj.weight"},
		{"other rows", text("vocab_size_per_layer_input", 50), nil, "embed_tokens_per_layer.weight|[44 42]|[50 42]"},
		{"no table", nil, without("embed_tokens_per_layer.weight"), "model.language_model.embed_tokens_per_layer.weight|missing"},
		{"no scalar", nil, without("layers.3.layer_scalar"), "layers.3.layer_scalar|missing"},
		{"no keys of its own", nil, without("layers.3.self_attn.k_proj.weight"), "layers.3.self_attn.k_proj.weight|missing"},
		{"no embedding", nil, without("embed_tokens.weight"), "model.language_model.embed_tokens.weight|missing"},
		{"no head", archtest.Set("tie_word_embeddings", false), nil, "tie_word_embeddings|lm_head.weight"},
		{"no head, nothing said", archtest.Set("tie_word_embeddings", nil), nil, ""},
	})
}
