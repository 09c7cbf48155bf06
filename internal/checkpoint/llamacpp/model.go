package llamacpp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"anemone/internal/checkpoint/gguf"
)

// Model is a model of a GGUF file in Hugging Face's terms.
type Model struct {
	// Architecture is general.architecture.
	Architecture string
	// Config is the text of config.json, Generation that of
	// generation_config.json.
	Config, Generation []byte
	// ChatTemplate is the chat template in Jinja, "" if there is none.
	ChatTemplate string
	// Tensors are all of the file that are weights, in its order.
	Tensors []Tensor
}

// architecture is what is particular to the files of an architecture.
type architecture struct {
	class     string // of transformers
	modelType string
	// layer has the names of a layer's tensors that others do not have.
	layer    map[string]string
	permuted bool // rows of queries and keys are in ggml's order
	plusOne  bool // norms hold 1 + w
	config   func(r *reader, c object)
}

var architectures = map[string]architecture{
	"llama": {
		class: "LlamaForCausalLM", modelType: "llama", permuted: true,
		layer:  map[string]string{"ffn_norm": "post_attention_layernorm"},
		config: llamaConfig,
	},
	"qwen2": {
		class: "Qwen2ForCausalLM", modelType: "qwen2",
		layer:  map[string]string{"ffn_norm": "post_attention_layernorm"},
		config: qwenConfig,
	},
	"qwen3": {
		class: "Qwen3ForCausalLM", modelType: "qwen3",
		layer: map[string]string{
			"ffn_norm":    "post_attention_layernorm",
			"attn_q_norm": "self_attn.q_norm",
			"attn_k_norm": "self_attn.k_norm",
		},
		config: qwenConfig,
	},
	"gemma3": {
		class: "Gemma3ForCausalLM", modelType: "gemma3_text", plusOne: true,
		layer: map[string]string{
			"post_attention_norm": "post_attention_layernorm",
			"ffn_norm":            "pre_feedforward_layernorm",
			"post_ffw_norm":       "post_feedforward_layernorm",
			"attn_q_norm":         "self_attn.q_norm",
			"attn_k_norm":         "self_attn.k_norm",
		},
		config: gemma3Config,
	},
}

// Supported returns the architectures that can be read, in order.
func Supported() []string { return slices.Sorted(maps.Keys(architectures)) }

// Translate reads the metadata and the list of tensors of a file; no weight
// and no vocabulary. Errors name the file and the key or tensor. That of an
// architecture that is not [Supported] wraps [errors.ErrUnsupported].
//
// A tensor that has no place in the architecture is an error: converters write
// nothing that the computation does without, so the model is another one.
func Translate(f *gguf.File) (*Model, error) {
	r := &reader{f: f}
	m := &Model{Architecture: r.text("general.architecture")}
	if r.err != nil {
		return nil, r.err
	}
	a, ok := architectures[m.Architecture]
	if !ok {
		return nil, r.unsupported(m.Architecture)
	}
	if kind := r.textOr("general.type", "model"); r.err == nil && kind != "model" {
		return nil, unsupportedError(fmt.Sprintf("%s: key \"general.type\": found %.100q, want \"model\": the file holds something that belongs to a model, not the model", f.Path(), kind))
	}
	r.arch = m.Architecture + "."
	c := object{"model_type": a.modelType, "architectures": []string{a.class}, "use_cache": true}
	r.common(c)
	if r.err == nil {
		a.config(r, c)
	}
	generation := object{}
	r.tokens(c, generation)
	r.sampling(generation)
	m.ChatTemplate = r.textOr("tokenizer.chat_template", "")
	if r.err != nil {
		return nil, r.err
	}
	if err := m.tensors(f, a, c); err != nil {
		return nil, err
	}
	m.Config, m.Generation = c.text(), generation.text()
	return m, nil
}

// unsupported is the error for an architecture that is not read.
func (r *reader) unsupported(name string) error {
	why := ""
	switch name {
	case "clip", "mmproj":
		why = " (it is the part of a model that reads images or sound: name the file with the language model)"
	case "mistral3", "mistral":
		why = " (Mistral's older models have the architecture llama)"
	}
	return unsupportedError(fmt.Sprintf("%s: key \"general.architecture\": found %.100q%s, want one of those that are read from GGUF files: %s",
		r.f.Path(), name, why, strings.Join(Supported(), ", ")))
}

// unsupportedError is an error that matches [errors.ErrUnsupported].
type unsupportedError string

func (e unsupportedError) Error() string { return string(e) }

func (unsupportedError) Is(target error) bool { return target == errors.ErrUnsupported }

// object is a JSON object.
type object map[string]any

// text returns it as Python's json.dump(indent=2, sort_keys=True) would,
// nearly.
func (o object) text() []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(o); err != nil {
		// Numbers are finite, and there is nothing else that can fail.
		panic(fmt.Sprintf("llamacpp: %v", err))
	}
	return b.Bytes()
}
