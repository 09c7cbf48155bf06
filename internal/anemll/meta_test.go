package anemll

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"anemone/internal/testutil"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var ignoreUnexported = cmpopts.IgnoreUnexported(Meta{})

// contractQwen35 is the example of the contract, with the lists shortened.
const contractQwen35 = `model_info:
  name: anemll-Qwen-Qwen3.5-0.8B-ctx512
  version: 0.3.5                 # ANEMLL format version
  architecture: qwen3_5          # qwen3 | qwen3_5 | gemma4
  parameters:
    context_length: 512          # KV cache length = largest position + 1
    batch_size: 64               # tokens per prefill call
    lut_embeddings: none         # palettization bits per part, or none
    lut_ffn: 6
    lut_ffn_per_channel: 8       # output channels sharing one LUT
    lut_lmhead: 6
    lut_lmhead_per_channel: 8
    num_chunks: 1
    model_prefix: qwen35
    embeddings: qwen35_embeddings.mlmodelc
    lm_head: qwen35_lm_head_lut6.mlmodelc
    ffn: qwen35_FFN_PF_lut6_chunk_01of01.mlmodelc   # first chunk
    split_lm_head: 2
    vocab_size: 248320
    lm_head_chunk_sizes: [124160, 124160]          # width of logits1..logitsN
    prefill_dynamic_slice: true
    prefill_last_token_output: true
    hidden_size: 1024
    num_layers: 24
    recommended_sampling: {do_sample: true, temperature: 0.6, top_p: 0.95, top_k: 20}
    # --- extensions (qwen3_5) ---
    recurrent_state: true
    prefill_full_batches_only: true
    gdn_chunk_size: 64
    moe: {experts: 16, experts_per_token: 4, evaluation: dense}
    layer_types: [linear, linear, linear, full]
    states:
      - name: model_model_kv_cache_0
        shape: [12, 2, 512, 256]
        dtype: float16
        layers: [3, 7, 11, 15, 19, 23]
      - name: model_model_conv_state_0
        shape: [18, 3, 6144]
        dtype: float16
        layers: [0, 1, 2, 4]
    some_future_key: 7
`

func qwen35Meta() *Meta {
	return &Meta{
		Name: "anemll-Qwen-Qwen3.5-0.8B-ctx512", Version: "0.3.5", Architecture: "qwen3_5",
		ContextLength: 512, BatchSize: 64, LUTFFN: LUT{6, 8}, LUTLMHead: LUT{6, 8}, NumChunks: 1, ModelPrefix: "qwen35",
		Embeddings: "qwen35_embeddings.mlmodelc", LMHead: "qwen35_lm_head_lut6.mlmodelc",
		FFN: "qwen35_FFN_PF_lut6_chunk_01of01.mlmodelc", SplitLMHead: 2, VocabSize: 248320,
		LMHeadChunkSizes: []int{124160, 124160}, PrefillDynamicSlice: true, PrefillLastTokenOutput: true,
		HiddenSize: 1024, NumLayers: 24,
		RecommendedSampling: &RecommendedSampling{DoSample: ptr(true), Temperature: ptr(0.6), TopP: ptr(0.95), TopK: ptr(20)},
		RecurrentState:      true, PrefillFullBatchesOnly: true, GDNChunkSize: 64,
		MoE:        &MoE{16, 4, "dense"},
		LayerTypes: []string{"linear", "linear", "linear", "full"},
		States: []StateInfo{
			{"model_model_kv_cache_0", []int{12, 2, 512, 256}, "float16", []int{3, 7, 11, 15, 19, 23}},
			{"model_model_conv_state_0", []int{18, 3, 6144}, "float16", []int{0, 1, 2, 4}},
		},
	}
}

// everything has every field set, with text that needs quoting.
func everything() *Meta {
	m := qwen35Meta()
	m.Version = "1.0"
	m.Description = "Two lines: one\n  # and \"two\" {x}"
	m.Name = "yes"
	m.License = "Apache 2.0"
	m.Author = "Zoë: \\ \"Q\" # not a comment"
	m.Framework, m.Language = "Core ML", "Go\u0085\u2028\t."
	m.ModelType = "odd"
	m.StateLength, m.AttentionSize, m.NumLogits = 1024, 768, 2
	m.LUTEmbeddings, m.LUTMonolithic = LUT{4, 0}, LUT{3, 2}
	m.PF = "qwen35_PF_lut6_chunk_01of01"
	m.ArgmaxInModel, m.SplitRotate, m.UpdateMaskPrefill, m.SingleCache = true, true, true, true
	m.PerChunkState, m.InferOnly = true, true
	m.SlidingWindow = 512
	m.Functions = []string{"infer", "pre, fill", "1.5"}
	m.TokenizerPath = "/some where/else"
	m.RecommendedSampling.MinP = ptr(0.00001)
	m.RecommendedSampling.RepetitionPenalty = ptr(1.0)
	m.RecommendedSampling.DoSample = ptr(false)
	m.LocalAttentionWindow, m.LocalCacheLength, m.FinalLogitSoftcap, m.PerLayerInputs = 512, 640, 30, 8960
	m.KVSharedLayers = map[int]int{16: 14, 15: 13}
	m.QuantEmbeddings, m.QuantFFN, m.QuantLMHead = "int8", "int4,32", "int8"
	m.LUTFFNMixed = 4.5
	m.Conversion = []Note{{"model_path", "a/b"}, {"lut_part2", "6,8"}, {"empty", ""}}
	return m
}

func TestParseContractExample(t *testing.T) {
	m, err := ParseMeta([]byte(contractQwen35))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(qwen35Meta(), m, ignoreUnexported); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if got := m.Unknown(); !reflect.DeepEqual(got, []string{"some_future_key"}) {
		t.Errorf("Unknown() = %q", got)
	}
	if !m.Given("gdn_chunk_size") || m.Given("state_length") || m.Given("some_future_key") {
		t.Error("Given is wrong")
	}
	if m.Rewindable() || !m.PrefillAllowed() {
		t.Error("a recurrent package with dynamic slices: not rewindable, prefill allowed")
	}
}

func TestParseMetaDefaultsAndForms(t *testing.T) {
	base := func(change func(*Meta)) *Meta {
		m := &Meta{ContextLength: 2048, BatchSize: 64, NumChunks: 1, ModelPrefix: "llama", SplitLMHead: 8}
		change(m)
		return m
	}
	for _, c := range []struct {
		name, in string
		want     *Meta
	}{
		{"nothing", "model_info:\n  parameters:\n", base(func(m *Meta) {})},
		{"seven keys of 0.1.1", `model_info:
  name: anemll-DeepHermes-3-Llama-3-8B-Preview-ctx1024
  version: 0.1.1
  parameters:
    context_length: 1024
    batch_size: 64
    lut_embeddings: none
    lut_ffn: 6
    lut_lmhead: 6
    num_chunks: 8
    model_prefix: DeepHermes
`, base(func(m *Meta) {
			m.Name, m.Version = "anemll-DeepHermes-3-Llama-3-8B-Preview-ctx1024", "0.1.1"
			m.ContextLength, m.LUTFFN.Bits, m.LUTLMHead.Bits, m.NumChunks, m.ModelPrefix = 1024, 6, 6, 8, "DeepHermes"
		})},
		{"keys directly under model_info", "model_info:\n  context_length: 128\n  ffn: x_FFN.mlmodelc\n", base(func(m *Meta) {
			m.ContextLength, m.FFN = 128, "x_FFN.mlmodelc"
		})},
		{"parameters win", "model_info:\n  batch_size: 8\n  num_chunks: 3\n  parameters:\n    batch_size: 16\n", base(func(m *Meta) {
			m.BatchSize, m.NumChunks = 16, 3
		})},
		{"version as a number", "model_info:\n  version: 1.0\n  parameters: {}\n", base(func(m *Meta) { m.Version = "1.0" })},
		{"lists as strings", "model_info:\n  parameters:\n    lm_head_chunk_sizes: \"3, 4,5\"\n    layer_types: \"[full, full]\"\n", base(func(m *Meta) {
			m.LMHeadChunkSizes, m.LayerTypes = []int{3, 4, 5}, []string{"full", "full"}
		})},
		{"block list", "model_info:\n  parameters:\n    lm_head_chunk_sizes:\n      - 3\n      - 4\n", base(func(m *Meta) {
			m.LMHeadChunkSizes = []int{3, 4}
		})},
		{"nulls are absent", "model_info:\n  parameters:\n    batch_size: null\n    vocab_size: ~\n    lut_ffn: None\n    sliding_window:\n", base(func(m *Meta) {})},
		{"bits with group, quoted numbers, YAML 1.1 bools", "model_info:\n  parameters:\n    lut_ffn: \"6,8\"\n    batch_size: '32'\n    prefill_dynamic_slice: Yes\n    argmax_in_model: off\n", base(func(m *Meta) {
			m.LUTFFN, m.BatchSize, m.PrefillDynamicSlice = LUT{6, 8}, 32, true
		})},
		{"camel case sampling", "model_info:\n  parameters:\n    recommended_sampling:\n      doSample: true\n      temperature: 1\n      topP: 0.9\n      topK: 40\n", base(func(m *Meta) {
			m.RecommendedSampling = &RecommendedSampling{DoSample: ptr(true), Temperature: ptr(1.0), TopP: ptr(0.9), TopK: ptr(40)}
		})},
		{"monolithic", "model_info:\n  model_type: monolithic\n  parameters:\n    monolithic_model: qwen_monolithic_full_lut4.mlmodelc\n    lut_bits: 4\n", base(func(m *Meta) {
			m.ModelType, m.MonolithicModel, m.LUTMonolithic.Bits = "monolithic", "qwen_monolithic_full_lut4.mlmodelc", 4
			m.ModelPrefix, m.SplitLMHead = "qwen", 16
		})},
		{"gemma3", "model_info:\n  model_type: chunked\n  parameters:\n    model_prefix: gemma3\n", base(func(m *Meta) {
			m.ModelPrefix, m.SlidingWindow = "gemma3", 512
		})},
		{"num_logits", "model_info:\n  parameters:\n    num_logits: 4\n", base(func(m *Meta) { m.NumLogits, m.SplitLMHead = 4, 4 })},
		{"gemma4 maps", "model_info:\n  parameters:\n    kv_shared_layers: {15: 13, 16: 14}\n    final_logit_softcap: 30.0\n    lut_ffn_mixed: 4.50\n", base(func(m *Meta) {
			m.KVSharedLayers, m.FinalLogitSoftcap, m.LUTFFNMixed = map[int]int{15: 13, 16: 14}, 30, 4.5
		})},
		{"byte order mark and carriage returns", "\ufeffmodel_info:\r\n  parameters:\r\n    batch_size: 16\r\n", base(func(m *Meta) { m.BatchSize = 16 })},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ParseMeta([]byte(c.in))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got, ignoreUnexported); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

func TestParseMetaErrors(t *testing.T) {
	p := func(s string) string { return "model_info:\n  parameters:\n    " + s + "\n" }
	for _, c := range []struct{ name, in, want string }{
		{"empty", "", "the file is empty"},
		{"no model_info", "a: 1\n", "model_info is missing"},
		{"a list", "- 1\n", "found a list, wanted a map"},
		{"info is text", "model_info: hello\n", `:1: model_info: found "hello", wanted a map`},
		{"parameters is a list", "model_info:\n  parameters: [1]\n", "model_info.parameters: found a list, wanted a map"},
		{"text for a number", p("batch_size: many"), `meta.yaml:3: model_info.parameters.batch_size: found "many", wanted a whole number from 1 to 65536`},
		{"fraction", p("context_length: 1.5"), `found "1.5"`},
		{"zero", p("batch_size: 0"), `found "0"`},
		{"negative", p("num_chunks: -2"), `found "-2"`},
		{"huge", p("context_length: 99999999999999999999"), "wanted a whole number from 1 to"},
		{"lut 16", p("lut_ffn: 16"), "none or a number of bits from 1 to 8"},
		{"lut map", p("lut_ffn: {a: 1}"), "found a map"},
		{"bool", p("prefill_dynamic_slice: maybe"), `found "maybe", wanted true or false`},
		{"list element", p("lm_head_chunk_sizes: [1, x]"), `lm_head_chunk_sizes: found the element "x"`},
		{"list of lists", p("lm_head_chunk_sizes: [[1]]"), "found a list, wanted a list of scalars"},
		{"nan", p("recommended_sampling: {temperature: .nan}"), "recommended_sampling.temperature"},
		{"top_p", p("recommended_sampling: {top_p: 1.5}"), "recommended_sampling.top_p"},
		{"states", p("states: [{name: a}]"), "states[0]: found a map, wanted a map with name and shape"},
		{"shape", p("states: [{name: a, shape: [0]}]"), "states[0].shape"},
		{"shared layers", p("kv_shared_layers: {a: 1}"), "kv_shared_layers.a"},
		{"anchor", p("batch_size: &a 1"), "anchor or alias"},
		{"alias", "model_info: &x\n  parameters: *x\n", "anchor or alias"},
		{"tag", p("batch_size: !!int 1"), "tags"},
		{"merge", p("<<: {a: 1}"), "merge keys"},
		{"twice", p("batch_size: 1\n    batch_size: 2"), "batch_size"},
		{"deep", p("x: " + strings.Repeat("[", 20)), "nested"},
		{"deep dashes", strings.Repeat("- ", 5000), "nested"},
		{"many keys", strings.Repeat("k: 1\n", 2000), "more than 1024 keys"},
		{"large", strings.Repeat("#", maxMetaBytes+1), "at most 65536 are read"},
		{"not text", "model_info: \xff\n", "not UTF-8"},
		{"broken", "model_info: [1\n", "not readable as YAML"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := ParseMeta([]byte(c.in))
			if err == nil {
				t.Fatalf("no error; got %+v", m)
			}
			if !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "meta.yaml:") {
				t.Errorf("error %q, want one with %q", err, c.want)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error of several lines: %q", err)
			}
		})
	}
}

func TestMetaRoundTrip(t *testing.T) {
	for name, m := range map[string]*Meta{"qwen35": qwen35Meta(), "everything": everything()} {
		text := m.Encode()
		back, err := ParseMeta(text)
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
		if d := cmp.Diff(m, back, ignoreUnexported); d != "" {
			t.Errorf("%s (-want +got)\n%s\n%s", name, d, text)
		}
	}
	// No field may be forgotten by everything(), or the test above says less
	// than it seems to.
	v := reflect.ValueOf(*everything())
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.IsExported() && f.Name != "MonolithicModel" && v.Field(i).IsZero() {
			t.Errorf("everything() leaves %s zero", f.Name)
		}
	}
}

// What ANEMLL's generator wrote is what Encode writes, byte for byte.
func TestEncodeIsANEMLLsShape(t *testing.T) {
	for _, peer := range []string{"qwen3-fp16-c2", "qwen3-lut4-lut6-c2", "qwen3-lut6-argmax-c2"} {
		want, err := os.ReadFile(filepath.Join(testutil.Shared(t, "peers", peer), MetaFile))
		if err != nil {
			t.Fatal(err)
		}
		m, err := ParseMeta(want)
		if err != nil {
			t.Fatalf("%s: %v", peer, err)
		}
		if m.Architecture != "qwen3" || m.ContextLength != 256 || m.NumChunks != 2 || len(m.LMHeadChunkSizes) != 16 {
			t.Errorf("%s: read %+v", peer, m)
		}
		if d := cmp.Diff(string(want), string(m.Encode())); d != "" {
			t.Errorf("%s (-theirs +ours)\n%s", peer, d)
		}
	}
}

func TestEncodeQwen3(t *testing.T) {
	m := &Meta{Name: "anemll-tiny-qwen3-ctx256", Version: FormatVersion, Description: "Runs tiny-qwen3 on Apple's Neural Engine\nContext length: 256",
		License: "MIT", Framework: "Core ML", Architecture: "qwen3", ContextLength: 256, BatchSize: 64, LUTFFN: LUT{6, 8}, NumChunks: 2,
		ModelPrefix: "qwen", Embeddings: "qwen_embeddings.mlmodelc", LMHead: "qwen_lm_head.mlmodelc", FFN: "qwen_FFN_PF_lut6_chunk_01of02.mlmodelc",
		SplitLMHead: 2, VocabSize: 1025, LMHeadChunkSizes: []int{513, 512}, PrefillDynamicSlice: true, PrefillLastTokenOutput: true,
		HiddenSize: 64, NumLayers: 4, RecommendedSampling: &RecommendedSampling{DoSample: ptr(true), Temperature: ptr(1.0), TopP: ptr(0.95), TopK: ptr(20)},
		Conversion: []Note{{"lut_part2", "6,8"}}}
	const want = `model_info:
  name: anemll-tiny-qwen3-ctx256
  version: 0.3.5
  description: |
    Runs tiny-qwen3 on Apple's Neural Engine
    Context length: 256
  license: MIT
  framework: Core ML
  architecture: qwen3
  parameters:
    context_length: 256
    batch_size: 64
    lut_embeddings: none
    lut_ffn: 6
    lut_ffn_per_channel: 8
    lut_lmhead: none
    num_chunks: 2
    model_prefix: qwen
    embeddings: qwen_embeddings.mlmodelc
    lm_head: qwen_lm_head.mlmodelc
    ffn: qwen_FFN_PF_lut6_chunk_01of02.mlmodelc
    split_lm_head: 2
    vocab_size: 1025
    lm_head_chunk_sizes: [513, 512]
    prefill_dynamic_slice: true
    prefill_last_token_output: true
    hidden_size: 64
    num_layers: 4
    recommended_sampling: {do_sample: true, temperature: 1.0, top_p: 0.95, top_k: 20}

# =============================================================================
# Conversion Parameters (for troubleshooting)
# =============================================================================
#
# lut_part2: 6,8
# =============================================================================
`
	if d := cmp.Diff(want, string(m.Encode())); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestNames(t *testing.T) {
	m := &Meta{ModelPrefix: "qwen3-0.6B", LUTFFN: LUT{4, 8}, QuantLMHead: "int4,32", LUTLMHead: LUT{}}
	if got := m.EmbeddingsName(); got != "qwen3-0.6B_embeddings" {
		t.Error(got)
	}
	if got := m.LMHeadName(); got != "qwen3-0.6B_lm_head_int4" {
		t.Error(got)
	}
	if got := m.ChunkName(1, 12); got != "qwen3-0.6B_FFN_PF_lut4_chunk_02of12" {
		t.Error(got)
	}
}

// PyYAML, which ANEMLL and others read the file with, finds the values that
// were written. ANEMONE_PYTHON names a Python that has it.
func TestEncodeReadByPyYAML(t *testing.T) {
	python := os.Getenv("ANEMONE_PYTHON")
	if python == "" {
		t.Skip("ANEMONE_PYTHON does not name a Python with PyYAML")
	}
	cmd := exec.Command(python, "-c", "import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.stdin.buffer.read())))")
	cmd.Stdin = strings.NewReader(string(everything().Encode()))
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	m := everything()
	list := func(v ...any) []any { return v }
	want := map[string]any{"model_info": map[string]any{
		"name": "yes", "version": "1.0", "description": m.Description + "\n", "license": "Apache 2.0", "author": m.Author,
		"framework": "Core ML", "language": m.Language, "architecture": "qwen3_5", "model_type": "odd",
		"parameters": map[string]any{
			"context_length": 512.0, "state_length": 1024.0, "attention_size": 768.0, "batch_size": 64.0,
			"lut_embeddings": 4.0, "lut_ffn": 6.0, "lut_ffn_per_channel": 8.0, "lut_lmhead": 6.0, "lut_lmhead_per_channel": 8.0,
			"lut_bits": 3.0, "lut_per_channel": 2.0, "num_chunks": 1.0, "model_prefix": "qwen35",
			"embeddings": m.Embeddings, "lm_head": m.LMHead, "ffn": m.FFN, "pf": m.PF, "split_lm_head": 2.0, "num_logits": 2.0,
			"argmax_in_model": true, "vocab_size": 248320.0, "lm_head_chunk_sizes": list(124160.0, 124160.0), "split_rotate": true,
			"sliding_window": 512.0, "update_mask_prefill": true, "prefill_dynamic_slice": true, "single_cache": true,
			"functions": list("infer", "pre, fill", "1.5"), "tokenizer_path": "/some where/else", "per_chunk_state": true, "infer_only": true,
			"prefill_last_token_output": true, "hidden_size": 1024.0, "num_layers": 24.0,
			"recommended_sampling": map[string]any{"do_sample": false, "temperature": 0.6, "top_p": 0.95, "top_k": 20.0, "min_p": 0.00001, "repetition_penalty": 1.0},
			"recurrent_state":      true, "prefill_full_batches_only": true, "gdn_chunk_size": 64.0,
			"moe":                    map[string]any{"experts": 16.0, "experts_per_token": 4.0, "evaluation": "dense"},
			"local_attention_window": 512.0, "local_cache_length": 640.0, "final_logit_softcap": 30.0, "per_layer_inputs": 8960.0,
			"kv_shared_layers": map[string]any{"15": 13.0, "16": 14.0},
			"quant_embeddings": "int8", "quant_ffn": "int4,32", "quant_lmhead": "int8", "lut_ffn_mixed": 4.5,
			"layer_types": list("linear", "linear", "linear", "full"),
			"states": list(
				map[string]any{"name": "model_model_kv_cache_0", "shape": list(12.0, 2.0, 512.0, 256.0), "dtype": "float16", "layers": list(3.0, 7.0, 11.0, 15.0, 19.0, 23.0)},
				map[string]any{"name": "model_model_conv_state_0", "shape": list(18.0, 3.0, 6144.0), "dtype": "float16", "layers": list(0.0, 1.0, 2.0, 4.0)}),
		}}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// The largest files that are read, made to be as costly as possible.
func TestParseMetaCost(t *testing.T) {
	n := maxMetaBytes
	for name, in := range map[string]string{
		"brackets":     strings.Repeat("[", n),
		"dashes":       strings.Repeat("- ", n/2),
		"maps":         strings.Repeat("{a: ", n/4),
		"list":         "a: [" + strings.Repeat("1,", n/2-10) + "1]",
		"strings":      "a: [" + strings.Repeat("'',", n/3-10) + "1]",
		"flow nesting": "a: [" + strings.Repeat("[[[[[[0]]]]]],", n/14-4) + "1]",
		"comments":     strings.Repeat("#\n", n/2),
		"keys":         strings.Repeat("k:\n", n/3),
		"indentation": func() string {
			var b strings.Builder
			for i := 0; b.Len()+i+3 < n; i++ {
				b.WriteString(strings.Repeat(" ", i) + "k:\n")
			}
			return b.String()
		}(),
		"keys of one map": func() string {
			var b strings.Builder
			b.WriteString("model_info:\n")
			for i := range maxMetaKeys - 1 {
				fmt.Fprintf(&b, "  %050d:\n", i)
			}
			return b.String()
		}(),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		ParseMeta([]byte(in)) // most are refused; only the cost matters
		runtime.ReadMemStats(&after)
		if got := (after.TotalAlloc - before.TotalAlloc) >> 20; got >= 64 {
			t.Errorf("%s: %d MiB allocated for %d bytes", name, got, len(in))
		}
	}
}

func TestLUTString(t *testing.T) {
	for l, want := range map[LUT]string{{}: "none", {0, 8}: "none", {6, 0}: "6", {6, 8}: "6,8"} {
		if got := l.String(); got != want {
			t.Errorf("%#v: %q, want %q", l, got, want)
		}
	}
}

func FuzzParseMeta(f *testing.F) {
	f.Add([]byte(contractQwen35))
	f.Add(everything().Encode())
	f.Add([]byte("model_info:\n  version: 1.0\n  context_length: 5\n  parameters: ~\n"))
	f.Add([]byte("model_info: {parameters: {lut_ffn: '6,8', states: [{name: a, shape: '1,2'}]}}"))
	f.Add([]byte("model_info:\n  description: >-\n    a\n\n     b\n  parameters:\n    layer_types: \"a,,b\"\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := ParseMeta(data)
		if err != nil {
			if m != nil || !strings.HasPrefix(err.Error(), "meta.yaml:") {
				t.Fatalf("%v with error %v", m, err)
			}
			return
		}
		text := m.Encode()
		back, err := ParseMeta(text)
		if err != nil {
			t.Fatalf("own text is refused: %v\n%s", err, text)
		}
		if d := cmp.Diff(m, back, ignoreUnexported, cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("(-first +again)\n%s\n%s", d, text)
		}
	})
}

func ExampleMeta_Encode() {
	m := &Meta{Name: "demo", ContextLength: 512, BatchSize: 64, LUTFFN: LUT{Bits: 6, Group: 8}}
	fmt.Print(string(m.Encode()))
	// Output:
	// model_info:
	//   name: demo
	//   parameters:
	//     context_length: 512
	//     batch_size: 64
	//     lut_embeddings: none
	//     lut_ffn: 6
	//     lut_ffn_per_channel: 8
	//     lut_lmhead: none
}
