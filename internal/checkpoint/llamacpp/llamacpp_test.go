package llamacpp_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"anemone/internal/checkpoint/gguf"
	"anemone/internal/checkpoint/gguftest"
	. "anemone/internal/checkpoint/llamacpp"
	"anemone/internal/tokenizer/vocab"
)

// open writes a file and opens it.
func open(t testing.TB, data []byte) *gguf.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.gguf")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func translate(t testing.TB, m *gguftest.Model) (*Model, *gguf.File) {
	t.Helper()
	f := open(t, m.File())
	out, err := Translate(f)
	if err != nil {
		t.Fatal(err)
	}
	return out, f
}

var modelTypes = []string{"llama", "qwen2", "qwen3", "gemma3_text"}

// TestTensors compares with the values that gguftest gave the tensors, which
// goes the way of llama.cpp's converter.
func TestTensors(t *testing.T) {
	for _, modelType := range modelTypes {
		dir := gguftest.Random(t, modelType, nil)
		for _, typ := range []gguf.Type{gguf.F32, gguf.F16, gguf.BF16, gguf.Q8_0, gguf.Q4_0} {
			t.Run(fmt.Sprintf("%s %s", modelType, typ), func(t *testing.T) {
				want := gguftest.Convert(t, dir, typ)
				m, f := translate(t, want)
				if len(m.Tensors) != len(want.Values) {
					t.Fatalf("%d tensors, want %d", len(m.Tensors), len(want.Values))
				}
				found := map[string]*Tensor{}
				for i := range m.Tensors {
					found[m.Tensors[i].Name] = &m.Tensors[i]
				}
				r := rand.New(rand.NewPCG(1, 2))
				for _, w := range want.Values {
					x := found[w.Name]
					if x == nil || !reflect.DeepEqual(x.Info.Shape, w.Shape) {
						t.Fatalf("%s: %+v", w.Name, x)
					}
					values := make([]float32, len(w.Data)/4)
					for i := range values {
						values[i] = math.Float32frombits(binary.LittleEndian.Uint32(w.Data[4*i:]))
					}
					// The whole, nothing, and parts from anywhere.
					ranges := [][2]int{{0, len(values)}, {len(values), len(values)}, {len(values) - 1, len(values)}}
					for range 20 {
						a, b := r.IntN(len(values)+1), r.IntN(len(values)+1)
						ranges = append(ranges, [2]int{min(a, b), max(a, b)})
					}
					for _, at := range ranges {
						got := make([]float32, at[1]-at[0])
						if err := x.Read(f, got, at[0]); err != nil {
							t.Fatal(err)
						}
						for i, v := range got {
							if math.Float32bits(v) != math.Float32bits(values[at[0]+i]) {
								t.Fatalf("%s, elements %v: element %d is %v, want %v", w.Name, at, i, v, values[at[0]+i])
							}
						}
					}
				}
			})
		}
	}
}

// TestRows has the order of llama's rows by hand: two heads of four rows, each
// row its number.
func TestRows(t *testing.T) {
	m := gguftest.Convert(t, gguftest.Random(t, "llama", map[string]any{"num_hidden_layers": 2}), gguf.F32)
	q := m.Tensor("blk.0.attn_q.bias")
	var stored []float32
	for i := range q.Shape[0] {
		stored = append(stored, float32(i))
	}
	q.Data, _ = gguftest.Quantize(gguf.F32, stored)
	out, f := translate(t, m)
	for _, x := range out.Tensors {
		if x.Name != "model.layers.0.self_attn.q_proj.bias" {
			continue
		}
		if x.AsStored() {
			t.Error("rows in another order are said to be as they are stored")
		}
		got := make([]float32, 32)
		if err := x.Read(f, got, 0); err != nil {
			t.Fatal(err)
		}
		// Heads of 16: the first half of a head has the even rows.
		want := []float32{0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15, 16, 18, 20, 22, 24, 26, 28, 30, 17, 19, 21, 23, 25, 27, 29, 31}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("rows %v, want %v", got, want)
		}
		return
	}
	t.Error("no such tensor")
}

// object decodes a JSON object.
func object(t testing.TB, text []byte) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return m
}

// TestConfig: what the original config.json has is there again, but for
// numbers that went through float32.
func TestConfig(t *testing.T) {
	class := map[string]string{"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM", "gemma3_text": "Gemma3ForCausalLM"}
	for _, c := range []struct {
		modelType string
		set       map[string]any
	}{
		{"llama", nil}, {"qwen2", nil}, {"qwen3", nil}, {"gemma3_text", nil},
		{"llama", map[string]any{"tie_word_embeddings": true}},
		{"llama", map[string]any{"rope_parameters": map[string]any{"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}}},
		{"llama", map[string]any{"rope_parameters": llama3(8)}},
		{"llama", map[string]any{"rope_parameters": llama3(32)}},
		{"gemma3_text", map[string]any{"final_logit_softcapping": 30.0}},
		{"gemma3_text", map[string]any{"layer_types": []string{"full_attention", "sliding_attention", "full_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention"}}},
	} {
		dir := gguftest.Random(t, c.modelType, c.set)
		m, _ := translate(t, gguftest.Convert(t, dir, gguf.F32))
		text, err := os.ReadFile(filepath.Join(dir, "config.json"))
		if err != nil {
			t.Fatal(err)
		}
		got, want := object(t, m.Config), object(t, text)
		want["rms_norm_eps"] = 9.999999974752427e-07 // float32(1e-6), widened
		want["architectures"] = []any{class[c.modelType]}
		for key, w := range want {
			if !reflect.DeepEqual(got[key], w) {
				t.Errorf("%s %v: %s is %v, want %v", c.modelType, c.set, key, got[key], w)
			}
		}
		if g := object(t, m.Generation); !reflect.DeepEqual(g, map[string]any{"eos_token_id": 7.0, "bos_token_id": 3.0}) {
			t.Errorf("generation config %v", g)
		}
	}
}

func llama3(factor float64) map[string]any {
	return map[string]any{"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192.0, "rope_theta": 500000.0}
}

// TestVariants changes entries of a file and says what becomes of
// config.json.
func TestVariants(t *testing.T) {
	for _, c := range []struct {
		name, modelType string
		set             map[string]any
		want            map[string]any // nil: absent
	}{
		{"the number of key heads is that of heads", "qwen2", map[string]any{"qwen2.attention.head_count_kv": nil}, map[string]any{"num_key_value_heads": 4.0}},
		{"head size by division", "llama", map[string]any{"llama.attention.key_length": nil, "llama.attention.value_length": nil}, map[string]any{"head_dim": 16.0}},
		{"head size by rotary dimensions alone is checked", "llama", map[string]any{"llama.attention.key_length": nil, "llama.attention.value_length": nil, "llama.rope.dimension_count": uint32(16)}, map[string]any{"head_dim": 16.0}},
		{"a number for each layer", "llama", map[string]any{"llama.attention.head_count_kv": []int32{2, 2}, "llama.feed_forward_length": []int32{96, 96}}, map[string]any{"num_key_value_heads": 2.0, "intermediate_size": 96.0}},
		{"no base", "llama", map[string]any{"llama.rope.freq_base": nil}, map[string]any{"rope_parameters": map[string]any{"rope_type": "default", "rope_theta": 10000.0}}},
		{"an integer as base", "llama", map[string]any{"llama.rope.freq_base": uint32(5000)}, map[string]any{"rope_parameters": map[string]any{"rope_type": "default", "rope_theta": 5000.0}}},
		{"scaling none", "llama", map[string]any{"llama.rope.scaling.type": "none", "llama.rope.scaling.factor": float32(4)}, map[string]any{"rope_parameters": map[string]any{"rope_type": "default", "rope_theta": 500000.0}}},
		{"old name of linear scaling", "llama", map[string]any{"llama.rope.scale_linear": float32(2)}, map[string]any{"rope_parameters": map[string]any{"rope_type": "linear", "factor": 2.0, "rope_theta": 500000.0}}},
		{"linear scaling by 1", "llama", map[string]any{"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": float32(1)}, map[string]any{"rope_parameters": map[string]any{"rope_type": "default", "rope_theta": 500000.0}}},
		{"linear scaling without a type, as llama.cpp reads it", "llama", map[string]any{"llama.rope.scaling.factor": float32(4)}, map[string]any{"rope_parameters": map[string]any{"rope_type": "linear", "factor": 4.0, "rope_theta": 500000.0}}},
		{"both names of linear scaling", "llama", map[string]any{"llama.rope.scale_linear": float32(2), "llama.rope.scaling.factor": float32(4)}, map[string]any{"rope_parameters": map[string]any{"rope_type": "linear", "factor": 4.0, "rope_theta": 500000.0}}},
		{"no special tokens", "llama", map[string]any{"tokenizer.ggml.eos_token_id": nil, "tokenizer.ggml.bos_token_id": uint32(math.MaxUint32)}, map[string]any{"eos_token_id": nil, "bos_token_id": nil}},
		{"all special tokens", "llama", map[string]any{"tokenizer.ggml.unknown_token_id": uint32(0), "tokenizer.ggml.padding_token_id": int32(5)}, map[string]any{"unk_token_id": 0.0, "pad_token_id": 5.0}},
		{"neutral values", "llama", map[string]any{"llama.expert_count": uint32(0), "llama.attention.causal": true, "llama.logit_scale": float32(0)}, map[string]any{"model_type": "llama"}},
		{"all layers full", "gemma3_text", map[string]any{"gemma3.attention.sliding_window": nil}, map[string]any{"sliding_window": nil, "layer_types": []any{"full_attention", "full_attention", "full_attention", "full_attention", "full_attention", "full_attention", "full_attention"}}},
		{"another period", "gemma3_text", map[string]any{"gemma3.attention.sliding_window_pattern": uint32(2)}, map[string]any{"layer_types": []any{"sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention"}}},
		{"another local base", "gemma3_text", map[string]any{"gemma3.rope.freq_base_swa": float32(20000)}, map[string]any{"rope_parameters": map[string]any{
			"full_attention":    map[string]any{"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
			"sliding_attention": map[string]any{"rope_type": "default", "rope_theta": 20000.0}}}},
		{"no type of the file", "qwen3", map[string]any{"general.type": nil}, map[string]any{"model_type": "qwen3"}},
	} {
		m := gguftest.Convert(t, gguftest.Random(t, c.modelType, nil), gguf.F32)
		for key, v := range c.set {
			m.Set(key, v)
		}
		out, _ := translate(t, m)
		got := object(t, out.Config)
		for key, w := range c.want {
			if !reflect.DeepEqual(got[key], w) {
				t.Errorf("%s: %s is %v, want %v", c.name, key, got[key], w)
			}
		}
	}
}

// TestGemma27B: the one size whose attention is scaled by something else than
// the size of a head, 5376/32.
func TestGemma27B(t *testing.T) {
	m := gguftest.Convert(t, gguftest.Random(t, "gemma3_text", nil), gguf.F32)
	m.Set("gemma3.block_count", uint32(62))
	m.Set("gemma3.attention.head_count", uint32(2))
	out, _ := translate(t, m)
	if got := object(t, out.Config)["query_pre_attn_scalar"]; got != 32.0 { // 64/2
		t.Errorf("query_pre_attn_scalar is %v, want 32", got)
	}
}

func TestGeneration(t *testing.T) {
	for _, c := range []struct {
		set  map[string]any
		want map[string]any
	}{
		{map[string]any{"tokenizer.ggml.eot_token_id": uint32(9), "tokenizer.ggml.eom_token_id": uint32(7)}, map[string]any{"eos_token_id": []any{7.0, 9.0}, "bos_token_id": 3.0}},
		{map[string]any{"tokenizer.ggml.eos_token_id": nil, "tokenizer.ggml.bos_token_id": nil, "tokenizer.ggml.padding_token_id": uint32(0)}, map[string]any{"pad_token_id": 0.0}},
		{map[string]any{"general.sampling.temp": float32(0.6), "general.sampling.top_p": float32(0.95), "general.sampling.top_k": int32(20), "general.sampling.min_p": float32(0), "general.sampling.penalty_repeat": float32(1.1)},
			map[string]any{"eos_token_id": 7.0, "bos_token_id": 3.0, "do_sample": true, "temperature": 0.6, "top_p": 0.95, "top_k": 20.0, "min_p": 0.0, "repetition_penalty": 1.1}},
		{map[string]any{"general.sampling.temp": float32(0), "general.sampling.top_k": int32(40)}, map[string]any{"eos_token_id": 7.0, "bos_token_id": 3.0, "do_sample": false, "top_k": 40.0}},
	} {
		m := gguftest.Convert(t, gguftest.Random(t, "qwen3", nil), gguf.F32)
		for key, v := range c.set {
			m.Set(key, v)
		}
		out, _ := translate(t, m)
		if got := object(t, out.Generation); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v: %v, want %v", c.set, got, c.want)
		}
	}
}

// TestNoPlace: a tensor that the architecture does not have is no detail. The
// last ones are what Ollama's EmbeddingGemma (which attends both ways) and
// Gemma 3 with images have, under the architecture gemma3.
func TestNoPlace(t *testing.T) {
	for _, c := range []struct{ modelType, name, want string }{
		{"qwen3", "blk.2.attn_q.weight", "is not known"},
		{"qwen3", "blk.00.attn_q.weight", "is not known"},
		{"qwen3", "blk.+1.attn_q.weight", "is not known"},
		{"qwen3", "blk.0.attn_rot.weight", "is not known"},
		{"qwen3", "blk.0.attn_q", "is not known"},
		{"qwen3", "blk.0.attn_q.scale", "is not known"},
		{"qwen3", "rope_freqs.weight", "is not known"},
		{"qwen3", ".weight", "is not known"},
		{"qwen3", "blk..weight", "is not known"},
		{"qwen3", "model.embed_tokens.weight", "is not known"},
		{"llama", "blk.0.attn_q_norm.weight", "is not known"},
		{"llama", "blk.1.ffn_gate_inp.weight", "is not known"},
		{"gemma3_text", "dense.0.weight", "is not known"},
		{"gemma3_text", "v.blk.0.attn_q.weight", "reads images"},
		{"gemma3_text", "mm.mm_input_projection.weight", "reads images"},
		{"gemma3_text", strings.Repeat("x", 5000), "is not known"},
	} {
		m := gguftest.Convert(t, gguftest.Random(t, c.modelType, nil), gguf.F32)
		for _, name := range []string{c.name, "zz"} {
			m.Tensors = append(m.Tensors, gguftest.Tensor{Name: name, Shape: []int{1}, Data: make([]byte, 4)})
		}
		f := open(t, m.File())
		_, err := Translate(f)
		for _, w := range []string{f.Path(), fmt.Sprintf("tensor %.100q and 1 more", c.name), c.want} {
			if err == nil || !strings.Contains(err.Error(), w) || len(err.Error()) > 600 {
				t.Errorf("%.100s: error %.800v does not say %q", c.name, err, w)
			}
		}
	}
}

func TestErrors(t *testing.T) {
	set := func(key string, v any) func(*gguftest.Model) { return func(m *gguftest.Model) { m.Set(key, v) } }
	rename := func(from, to string) func(*gguftest.Model) {
		return func(m *gguftest.Model) { m.Tensor(from).Name = to }
	}
	factors := func(values ...float32) func(*gguftest.Model) {
		return func(m *gguftest.Model) {
			data, _ := gguftest.Quantize(gguf.F32, values)
			m.Tensors = append(m.Tensors, gguftest.Tensor{Name: "rope_freqs.weight", Shape: []int{len(values)}, Data: data})
		}
	}
	for _, c := range []struct {
		name, modelType string
		change          func(*gguftest.Model)
		want            []string
	}{
		{"no architecture", "llama", set("general.architecture", nil), []string{`"general.architecture"`, "missing"}},
		{"another architecture", "llama", set("general.architecture", "phi3"), []string{`"general.architecture": found "phi3"`, "gemma3, llama, qwen2, qwen3"}},
		{"architecture is a number", "llama", set("general.architecture", uint32(3)), []string{`"general.architecture"`, "want a string"}},
		{"vision", "llama", set("general.architecture", "clip"), []string{"images", "language model"}},
		{"mistral 3", "llama", set("general.architecture", "mistral3"), []string{`"mistral3"`, "architecture llama"}},
		{"adapter", "llama", set("general.type", "adapter"), []string{`"general.type": found "adapter"`}},
		{"no layers", "llama", set("llama.block_count", nil), []string{`"llama.block_count"`, "missing"}},
		{"layers 0", "llama", set("llama.block_count", uint32(0)), []string{`"llama.block_count": found 0, want 1 to 1024`}},
		{"layers beyond", "llama", set("llama.block_count", uint32(math.MaxUint32)), []string{`"llama.block_count": found 4294967295`}},
		{"layers a word", "llama", set("llama.block_count", "two"), []string{`"llama.block_count"`, "found string", "an integer"}},
		{"layers differ", "llama", set("llama.feed_forward_length", []int32{96, 80}), []string{`feed_forward_length[1]": found 80, want 96`}},
		{"heads 0", "llama", set("llama.attention.head_count", uint32(0)), []string{`"llama.attention.head_count": found 0`}},
		{"heads do not divide", "llama", func(m *gguftest.Model) {
			m.Set("llama.attention.key_length", nil)
			m.Set("llama.attention.value_length", nil)
			m.Set("llama.attention.head_count", uint32(5))
		}, []string{`"llama.attention.key_length"`, "5 heads do not divide 64"}},
		{"odd head", "llama", set("llama.attention.key_length", uint32(15)), []string{`"llama.attention.key_length": found 15, want an even number`}},
		{"values of another size", "llama", set("llama.attention.value_length", uint32(8)), []string{`"llama.attention.value_length": found 8, want 16`}},
		{"partial rotation", "llama", set("llama.rope.dimension_count", uint32(8)), []string{`"llama.rope.dimension_count": found 8, want 16`}},
		{"no eps", "llama", set("llama.attention.layer_norm_rms_epsilon", nil), []string{`layer_norm_rms_epsilon"`, "missing"}},
		{"eps 0", "llama", set("llama.attention.layer_norm_rms_epsilon", float32(0)), []string{`layer_norm_rms_epsilon": found 0, want a number above 0`}},
		{"eps NaN", "llama", set("llama.attention.layer_norm_rms_epsilon", float32(math.NaN())), []string{"found NaN"}},
		{"base infinite", "llama", set("llama.rope.freq_base", float32(math.Inf(1))), []string{`"llama.rope.freq_base": found +Inf`}},
		{"experts", "llama", set("llama.expert_count", uint32(8)), []string{`"llama.expert_count": found 8, want 0`}},
		{"scaled logits", "llama", set("llama.logit_scale", float32(0.5)), []string{`"llama.logit_scale": found 0.5, want 0`}},
		{"scaled rotation", "llama", set("llama.rope.scaling.attn_factor", float32(1.5)), []string{`"llama.rope.scaling.attn_factor": found 1.5, want 1`}},
		{"both directions", "qwen3", set("qwen3.attention.causal", false), []string{`"qwen3.attention.causal": found false, want true`}},
		{"window", "llama", set("llama.attention.sliding_window", uint32(4096)), []string{`"llama.attention.sliding_window"`, "not supported"}},
		{"yarn", "qwen2", set("qwen2.rope.scaling.type", "yarn"), []string{`"qwen2.rope.scaling.type": found "yarn", want "linear" or "none"`}},
		{"pattern of another length", "gemma3_text", set("gemma3.attention.sliding_window_pattern", []bool{true}), []string{"sliding_window_pattern", "found 1 elements, want 7"}},
		{"pattern 0", "gemma3_text", set("gemma3.attention.sliding_window_pattern", uint32(0)), []string{"sliding_window_pattern", "found 0"}},
		{"capped attention", "gemma3_text", set("gemma3.attn_logit_softcapping", float32(50)), []string{`"gemma3.attn_logit_softcapping"`}},
		{"eos for each layer", "llama", set("tokenizer.ggml.eos_token_id", []int32{1, 1}), []string{`"tokenizer.ggml.eos_token_id"`, "found array of 2 int32, want an integer"}},
		{"a name without end", "llama", set("general.architecture", strings.Repeat("x", 5000)), []string{`found "` + strings.Repeat("x", 100) + `", want`}},
		{"eos beyond", "llama", set("tokenizer.ggml.eos_token_id", uint32(50)), []string{`"tokenizer.ggml.eos_token_id": found 50, want one of the 50 tokens`}},
		{"template a number", "llama", set("tokenizer.chat_template", uint32(1)), []string{`"tokenizer.chat_template"`, "want a string"}},
		{"temperature infinite", "llama", set("general.sampling.temp", float32(math.Inf(1))), []string{`"general.sampling.temp"`}},
		{"no embedding", "llama", rename("token_embd.weight", "token_embed.weight"), []string{`"token_embd.weight" is missing`}},
		{"embedding of another width", "llama", set("llama.embedding_length", uint32(48)), []string{`"token_embd.weight": found shape [50 64], want [* 48]`}},
		{"rows and heads", "llama", set("llama.attention.head_count_kv", uint32(3)), []string{`"blk.0.attn_k`, "rows for 3 heads"}},
		{"quantized bias", "llama", func(m *gguftest.Model) {
			b := m.Tensor("blk.0.attn_q.bias")
			b.Type = gguf.Q8_0
			b.Data, _ = gguftest.Quantize(b.Type, make([]float32, 64))
		}, []string{`"blk.0.attn_q.bias"`, "Q8_0"}},
		{"factors", "llama", factors(1, 1, 1, 1, 1, 2, 2, 2), []string{`"rope_freqs.weight"`, "factors from 1 to 2", "Llama 3.1"}},
		{"factors NaN", "llama", factors(1, 1, 1, 1, 1, 1, 1, float32(math.NaN())), []string{"factors from 1 to NaN"}},
		{"too few factors", "llama", factors(1, 1), []string{`"rope_freqs.weight": found F32 [2], want F32 [8]`}},
		{"longrope", "llama", func(m *gguftest.Model) {
			m.Tensors = append(m.Tensors, gguftest.Tensor{Name: "rope_factors_long.weight", Shape: []int{1}, Data: make([]byte, 4)})
		}, []string{"rope_factors_long.weight", "longrope"}},
	} {
		m := gguftest.Convert(t, gguftest.Random(t, c.modelType, nil), gguf.F32)
		c.change(m)
		f := open(t, m.File())
		_, err := Translate(f)
		if err == nil {
			t.Errorf("%s: no error", c.name)
			continue
		}
		for _, w := range append(c.want, f.Path()) {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: error %q does not say %q", c.name, err, w)
			}
		}
		switch c.name {
		case "another architecture", "vision", "adapter":
			if !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("%s: error %q is not ErrUnsupported", c.name, err)
			}
		}
	}
}

// TestLlama3Factors: factors of 1 are none, and those of linear scaling on top
// are refused.
func TestLlama3Factors(t *testing.T) {
	m := gguftest.Convert(t, gguftest.Random(t, "llama", nil), gguf.F32)
	ones, _ := gguftest.Quantize(gguf.F32, []float32{1, 1, 1, 1, 1, 1, 1, 1})
	m.Tensors = append(m.Tensors, gguftest.Tensor{Name: "rope_freqs.weight", Shape: []int{8}, Data: ones})
	out, _ := translate(t, m)
	if got := object(t, out.Config)["rope_parameters"]; !reflect.DeepEqual(got, map[string]any{"rope_type": "default", "rope_theta": 500000.0}) {
		t.Errorf("factors of 1: %v", got)
	}
	m = gguftest.Convert(t, gguftest.Random(t, "llama", map[string]any{"rope_parameters": llama3(8)}), gguf.F32)
	m.Set("llama.rope.scaling.type", "linear")
	m.Set("llama.rope.scaling.factor", float32(2))
	if _, err := Translate(open(t, m.File())); err == nil || !strings.Contains(err.Error(), "together with rope.scaling") {
		t.Errorf("both scalings: %v", err)
	}
}

func TestVocabulary(t *testing.T) {
	base := func() *gguftest.Model {
		m := &gguftest.Model{}
		m.Set("tokenizer.ggml.model", "llama")
		m.Set("tokenizer.ggml.tokens", []string{"<unk>", "<s>", "</s>", "▁a"})
		m.Set("tokenizer.ggml.scores", []float32{0, 0, 0, -1.5})
		m.Set("tokenizer.ggml.token_type", []int32{2, 3, 3, 1})
		return m
	}
	tokens := []vocab.Token{{Text: "<unk>", Kind: vocab.Unknown}, {Text: "<s>", Kind: vocab.Control}, {Text: "</s>", Kind: vocab.Control}, {Text: "▁a", Kind: vocab.Normal, Score: -1.5}}
	for _, c := range []struct {
		name string
		set  map[string]any
		want vocab.Vocabulary
	}{
		{"defaults of SentencePiece", nil, vocab.Vocabulary{Model: "llama", Pre: "default", Tokens: tokens, BOS: 1, EOS: 2, Unknown: 0, Padding: -1, AddBOS: true, AddSpacePrefix: true}},
		{"everything said", map[string]any{
			"tokenizer.ggml.bos_token_id": uint32(2), "tokenizer.ggml.eos_token_id": uint32(1), "tokenizer.ggml.unknown_token_id": uint32(3), "tokenizer.ggml.padding_token_id": uint32(0),
			"tokenizer.ggml.add_bos_token": false, "tokenizer.ggml.add_eos_token": true, "tokenizer.ggml.add_space_prefix": false, "tokenizer.ggml.remove_extra_whitespaces": true,
			"tokenizer.ggml.precompiled_charsmap": []int32{1, 255}, "tokenizer.ggml.pre": "x", "general.architecture": "llama", "llama.context_length": uint32(8192)},
			vocab.Vocabulary{Model: "llama", Pre: "x", Tokens: tokens, BOS: 2, EOS: 1, Unknown: 3, Padding: 0, AddEOS: true, RemoveExtraSpaces: true, CharsMap: []byte{1, 255}, MaxLength: 8192}},
		{"byte-level", map[string]any{"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "llama-bpe", "tokenizer.ggml.merges": []string{"a b"}, "tokenizer.ggml.bos_token_id": uint32(1)},
			vocab.Vocabulary{Model: "gpt2", Pre: "llama-bpe", Tokens: tokens, Merges: []string{"a b"}, BOS: 1, EOS: -1, Unknown: -1, Padding: -1, AddBOS: true}},
		{"byte-level without special tokens", map[string]any{"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "llama-bpe", "tokenizer.ggml.merges": []string{"a b"}},
			vocab.Vocabulary{Model: "gpt2", Pre: "llama-bpe", Tokens: tokens, Merges: []string{"a b"}, BOS: -1, EOS: -1, Unknown: -1, Padding: -1}},
	} {
		m := base()
		for key, v := range c.set {
			m.Set(key, v)
		}
		got, err := Vocabulary(open(t, m.File()))
		if err != nil || !reflect.DeepEqual(*got, c.want) {
			t.Errorf("%s: %+v, %v; want %+v", c.name, got, err, c.want)
		}
	}
	for _, c := range []struct {
		key   string
		value any
		want  string
	}{
		{"tokenizer.ggml.model", nil, "missing"},
		{"tokenizer.ggml.tokens", nil, "missing"},
		{"tokenizer.ggml.tokens", []int32{1}, "want an array of strings"},
		{"tokenizer.ggml.scores", []float32{1}, "found 1 elements, want 4"},
		{"tokenizer.ggml.scores", nil, "missing"},
		{"tokenizer.ggml.token_type", nil, "missing"},
		{"tokenizer.ggml.token_type", []int32{1, 1}, "found 2 elements, want 4"},
		{"tokenizer.ggml.token_type", []int32{1, 1, 1, 257}, `token_type[3]": found 257, want 1 to 6`},
		{"tokenizer.ggml.token_type", []int32{0, 1, 1, 1}, `token_type[0]": found 0, want 1 to 6`},
		{"tokenizer.ggml.merges", "a b", "want an array of strings"},
		{"tokenizer.ggml.precompiled_charsmap", "x", "want an array of integers"},
		{"tokenizer.ggml.precompiled_charsmap", []int32{300}, "found 300"},
		{"tokenizer.ggml.bos_token_id", uint32(4), "found 4, want one of the 4 tokens"},
		{"tokenizer.ggml.add_bos_token", uint32(1), "want a bool"},
	} {
		m := base()
		m.Set(c.key, c.value)
		f := open(t, m.File())
		_, err := Vocabulary(f)
		for _, w := range []string{c.want, f.Path(), strings.TrimSuffix(c.key, "]")} {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%s = %v: error %v does not say %q", c.key, c.value, err, w)
			}
		}
	}
}

// TestVocabularyParts: what splits texts has to be there, and no token may lie
// beyond the embedding.
func TestVocabularyParts(t *testing.T) {
	m := gguftest.Convert(t, gguftest.Random(t, "llama", nil), gguf.F32) // 50 rows
	m.Set("tokenizer.ggml.model", "gpt2")
	m.Set("tokenizer.ggml.tokens", slices.Repeat([]string{"a"}, 50))
	m.Set("tokenizer.ggml.token_type", slices.Repeat([]int32{1}, 50))
	if _, err := Vocabulary(open(t, m.File())); !errors.Is(err, gguf.ErrMissing) || !strings.Contains(err.Error(), `"tokenizer.ggml.merges"`) {
		t.Errorf("without merges: %v", err)
	}
	m.Set("tokenizer.ggml.merges", []string{"a a"})
	if _, err := Vocabulary(open(t, m.File())); err != nil {
		t.Errorf("as many tokens as rows: %v", err)
	}
	m.Set("tokenizer.ggml.tokens", slices.Repeat([]string{"a"}, 51))
	m.Set("tokenizer.ggml.token_type", slices.Repeat([]int32{1}, 51))
	if _, err := Vocabulary(open(t, m.File())); err == nil || !strings.Contains(err.Error(), `"tokenizer.ggml.tokens": found 51 elements, want at most 50`) {
		t.Errorf("more tokens than rows: %v", err)
	}
}

// FuzzTranslate reads whatever a file says, as a conversion does.
func FuzzTranslate(f *testing.F) {
	for _, modelType := range modelTypes {
		m := gguftest.Convert(f, gguftest.Random(f, modelType, nil), gguf.Q8_0)
		m.Set("tokenizer.ggml.model", "llama")
		m.Set("tokenizer.ggml.tokens", []string{"<unk>", "<s>", "</s>", "▁a", "a"})
		m.Set("tokenizer.ggml.scores", []float32{0, 0, 0, -1.5, 2})
		m.Set("tokenizer.ggml.token_type", []int32{2, 3, 3, 1, 1})
		// Few tensors: the fuzzer is slow on long inputs.
		m.Tensors = slices.DeleteFunc(m.Tensors, func(x gguftest.Tensor) bool {
			return !strings.HasPrefix(x.Name, "blk.0.attn_q") && x.Name != "blk.0.attn_norm.weight" && x.Name != "token_embd.weight"
		})
		f.Add(m.File())
		m.Tensors = m.Tensors[:1]
		m.Tensors[0].Shape, m.Tensors[0].Data = []int{1, 64}, m.Tensors[0].Data[:2*34]
		f.Add(m.File())
	}
	path := filepath.Join(f.TempDir(), "model.gguf")
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<20 {
			return
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		g, err := gguf.Open(path)
		if err != nil {
			return
		}
		defer g.Close()
		if v, err := Vocabulary(g); err == nil && len(v.Tokens) > len(data) {
			t.Errorf("%d tokens in %d bytes", len(v.Tokens), len(data))
		}
		m, err := Translate(g)
		if err != nil {
			if !strings.Contains(err.Error(), path) {
				t.Errorf("error %q does not name the file", err)
			}
			return
		}
		object(t, m.Config)
		object(t, m.Generation)
		seen := map[string]bool{}
		for _, x := range m.Tensors {
			if seen[x.Name] {
				t.Errorf("two tensors are %s", x.Name)
			}
			seen[x.Name] = true
			n := 1
			for _, d := range x.Info.Shape {
				n *= d
			}
			if _, _, ok := x.Info.Type.Block(); !ok || n == 0 {
				continue
			}
			if n > 1<<24 {
				t.Fatalf("%s: %d elements in %d bytes", x.Name, n, len(data))
			}
			part := make([]float32, min(n, 100))
			for _, at := range []int{0, (n - len(part)) / 2, n - len(part)} {
				if err := x.Read(g, part, at); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

func ExampleTranslate() {
	file := gguftest.Encode([]gguftest.Entry{
		{Key: "general.architecture", Value: "qwen3"},
		{Key: "qwen3.block_count", Value: uint32(1)},
		{Key: "qwen3.context_length", Value: uint32(32768)},
		{Key: "qwen3.embedding_length", Value: uint32(2)},
		{Key: "qwen3.feed_forward_length", Value: uint32(6)},
		{Key: "qwen3.attention.head_count", Value: uint32(1)},
		{Key: "qwen3.attention.layer_norm_rms_epsilon", Value: float32(1e-6)},
	}, []gguftest.Tensor{
		{Name: "token_embd.weight", Type: gguf.F32, Shape: []int{1, 2}, Data: make([]byte, 8)},
		{Name: "blk.0.ffn_norm.weight", Type: gguf.F32, Shape: []int{2}, Data: make([]byte, 8)},
	})
	path := filepath.Join(os.TempDir(), "example.gguf")
	defer os.Remove(path)
	if err := os.WriteFile(path, file, 0o644); err != nil {
		fmt.Println(err)
		return
	}
	f, err := gguf.Open(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()
	m, err := Translate(f)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, t := range m.Tensors {
		fmt.Println(t.Info.Name, "->", t.Name)
	}
	// Output:
	// token_embd.weight -> model.embed_tokens.weight
	// blk.0.ffn_norm.weight -> model.layers.0.post_attention_layernorm.weight
}
