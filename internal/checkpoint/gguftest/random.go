package gguftest

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"anemone/internal/checkpoint/gguf"
	"anemone/internal/checkpoint/safetensors"
)

// Random writes a small checkpoint of random float32 weights into a temporary
// folder: model type llama, qwen2, qwen3 or gemma3_text. Widths are multiples
// of 32, so that all types of blocks of 32 can store it. set replaces keys of
// config.json. There is no tokenizer.
func Random(t testing.TB, modelType string, set map[string]any) string {
	t.Helper()
	layers := 2
	if modelType == "gemma3_text" {
		layers = 7
	}
	c := map[string]any{
		"model_type": modelType, "hidden_size": 64, "num_hidden_layers": layers, "num_attention_heads": 4, "num_key_value_heads": 2,
		"head_dim": 16, "intermediate_size": 96, "vocab_size": 50, "max_position_embeddings": 131072, "rms_norm_eps": 1e-6,
		"tie_word_embeddings": false, "eos_token_id": 7, "bos_token_id": 3,
		"rope_parameters": map[string]any{"rope_type": "default", "rope_theta": 500000.0},
	}
	biases := []string{}
	switch modelType {
	case "llama":
		c["hidden_act"], c["attention_bias"], c["mlp_bias"] = "silu", true, true
		biases = []string{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}
	case "qwen2":
		c["hidden_act"] = "silu"
		biases = []string{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}
	case "qwen3":
		c["hidden_act"] = "silu"
	case "gemma3_text":
		c["hidden_activation"], c["query_pre_attn_scalar"], c["sliding_window"] = "gelu_pytorch_tanh", 16, 9
		types := make([]string, layers)
		for i := range types {
			if types[i] = "sliding_attention"; i == 5 {
				types[i] = "full_attention"
			}
		}
		c["layer_types"] = types
		c["rope_parameters"] = map[string]any{
			"full_attention":    map[string]any{"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
			"sliding_attention": map[string]any{"rope_type": "default", "rope_theta": 10000.0},
		}
	}
	maps.Copy(c, set)
	shapes := map[string][]int{"model.embed_tokens.weight": {50, 64}, "model.norm.weight": {64}}
	if c["tie_word_embeddings"] == false {
		shapes["lm_head.weight"] = []int{50, 64}
	}
	for l := range layers {
		layer := map[string][]int{
			"input_layernorm": {64}, "post_attention_layernorm": {64},
			"self_attn.q_proj": {64, 64}, "self_attn.k_proj": {32, 64}, "self_attn.v_proj": {32, 64}, "self_attn.o_proj": {64, 64},
			"mlp.gate_proj": {96, 64}, "mlp.up_proj": {96, 64}, "mlp.down_proj": {64, 96},
		}
		if modelType == "qwen3" || modelType == "gemma3_text" {
			layer["self_attn.q_norm"], layer["self_attn.k_norm"] = []int{16}, []int{16}
		}
		if modelType == "gemma3_text" {
			layer["pre_feedforward_layernorm"], layer["post_feedforward_layernorm"] = []int{64}, []int{64}
		}
		for part, shape := range layer {
			shapes[fmt.Sprintf("model.layers.%d.%s.weight", l, part)] = shape
		}
		for _, part := range biases {
			shapes[fmt.Sprintf("model.layers.%d.%s.bias", l, part)] = layer[part][:1]
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	var tensors []safetensors.Named
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		shape, n := shapes[name], 1
		for _, d := range shape {
			n *= d
		}
		values := make([]float32, n)
		for i := range values {
			values[i] = float32(r.NormFloat64()) / 8
		}
		data, _ := Quantize(gguf.F32, values)
		tensors = append(tensors, safetensors.Named{Name: name, DType: safetensors.F32, Shape: shape, Data: data})
	}
	dir := filepath.Join(t.TempDir(), "model")
	text, err := json.MarshalIndent(c, "", "  ")
	if err == nil {
		err = os.Mkdir(dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.json"), text, 0o644)
	}
	if err == nil {
		err = safetensors.Write(filepath.Join(dir, "model.safetensors"), tensors, map[string]string{"format": "pt"})
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
