package gguftest

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"anemone/internal/checkpoint/gguf"
	"anemone/internal/checkpoint/safetensors"
	"anemone/internal/float16"
)

// config is what is wanted of config.json.
type config struct {
	ModelType    string   `json:"model_type"`
	Hidden       int      `json:"hidden_size"`
	Layers       int      `json:"num_hidden_layers"`
	Heads        int      `json:"num_attention_heads"`
	KVHeads      int      `json:"num_key_value_heads"`
	HeadDim      int      `json:"head_dim"`
	Intermediate int      `json:"intermediate_size"`
	Positions    int      `json:"max_position_embeddings"`
	Eps          float32  `json:"rms_norm_eps"`
	EOS          *uint32  `json:"eos_token_id"`
	BOS          *uint32  `json:"bos_token_id"`
	Window       uint32   `json:"sliding_window"`
	LayerTypes   []string `json:"layer_types"`
	Softcap      float32  `json:"final_logit_softcapping"`
	Rope         struct {
		rope
		Full  rope `json:"full_attention"`
		Local rope `json:"sliding_attention"`
	} `json:"rope_parameters"`
}

type rope struct {
	Type   string  `json:"rope_type"`
	Theta  float64 `json:"rope_theta"`
	Factor float32 `json:"factor"`
}

// Model is a checkpoint as a converter sees it.
type Model struct {
	Entries []Entry
	Tensors []Tensor
	// Values are those that the tensors have become, under their names in the
	// checkpoint and in its order.
	Values []safetensors.Named
}

// File returns the GGUF file.
func (m *Model) File() []byte { return Encode(m.Entries, m.Tensors) }

// Set gives a key another value, or a new key one; nil removes it.
func (m *Model) Set(key string, value any) {
	m.Entries = slices.DeleteFunc(m.Entries, func(e Entry) bool { return e.Key == key })
	if value != nil {
		m.Entries = append(m.Entries, Entry{key, value})
	}
}

// Tensor returns the tensor of a name.
func (m *Model) Tensor(name string) *Tensor {
	for i := range m.Tensors {
		if m.Tensors[i].Name == name {
			return &m.Tensors[i]
		}
	}
	panic(fmt.Sprintf("gguftest: no tensor %q", name))
}

// Convert makes a GGUF model of a checkpoint in one file of F32, F16 or BF16
// tensors, of model type llama, mistral, qwen2, qwen3 or gemma3_text: matrices
// become of the given type, vectors F32, as llama.cpp's converter has it.
func Convert(t testing.TB, dir string, typ gguf.Type) *Model {
	t.Helper()
	var c config
	readJSON(t, filepath.Join(dir, "config.json"), &c)
	arch := map[string]string{"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma3_text": "gemma3"}[c.ModelType]
	if arch == "" {
		t.Fatalf("gguftest: model type %q", c.ModelType)
	}
	if c.HeadDim == 0 {
		c.HeadDim = c.Hidden / c.Heads
	}
	m := &Model{}
	add := func(key string, v any) { m.Entries = append(m.Entries, Entry{key, v}) }
	of := func(key string, v any) { add(arch+"."+key, v) }
	add("general.architecture", arch)
	add("general.type", "model")
	add("general.name", "a name that says nothing")
	of("context_length", uint32(c.Positions))
	of("embedding_length", uint32(c.Hidden))
	of("block_count", uint32(c.Layers))
	of("feed_forward_length", uint32(c.Intermediate))
	of("attention.head_count", uint32(c.Heads))
	of("attention.head_count_kv", uint32(c.KVHeads))
	of("attention.layer_norm_rms_epsilon", c.Eps)
	of("attention.key_length", uint32(c.HeadDim))
	of("attention.value_length", uint32(c.HeadDim))
	r := c.Rope.rope
	if arch == "gemma3" {
		r = c.Rope.Full
		if slices.Contains(c.LayerTypes, "sliding_attention") {
			of("attention.sliding_window", c.Window)
			if pattern, period := windows(c.LayerTypes); !period {
				of("attention.sliding_window_pattern", pattern)
			}
		}
		if c.Softcap != 0 {
			of("final_logit_softcapping", c.Softcap)
		}
	}
	of("rope.freq_base", float32(r.Theta))
	switch r.Type {
	case "linear":
		of("rope.scaling.type", "linear")
		of("rope.scaling.factor", r.Factor)
	case "llama3":
		m.Tensors = append(m.Tensors, frequencies(r.Theta, c.HeadDim, float64(r.Factor)))
	}
	m.vocabulary(t, dir, &c)

	f, err := safetensors.Open(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, info := range f.Tensors() {
		values := floats(t, f, info)
		name := stored(arch, info.Name)
		if name == "" {
			t.Fatalf("gguftest: no name for tensor %q", info.Name)
		}
		tensor := Tensor{Name: name, Type: typ, Shape: info.Shape}
		if len(info.Shape) == 1 {
			tensor.Type = gguf.F32
		}
		if arch == "gemma3" && strings.HasSuffix(info.Name, "norm.weight") {
			for i := range values {
				values[i] += 1
			}
			_, became := Quantize(tensor.Type, values)
			for i := range became {
				became[i] -= 1
			}
			m.keep(info, became)
		} else {
			_, became := Quantize(tensor.Type, values)
			m.keep(info, became)
		}
		if arch == "llama" {
			for part, heads := range map[string]int{".attn_q.": c.Heads, ".attn_k.": c.KVHeads} {
				if strings.Contains(name, part) {
					values = permute(values, info.Shape[0], heads)
				}
			}
		}
		tensor.Data, _ = Quantize(tensor.Type, values)
		m.Tensors = append(m.Tensors, tensor)
	}
	return m
}

// windows says which layers have one, and whether those are all but every
// sixth, which the converter leaves out.
func windows(types []string) (pattern []bool, period bool) {
	period = true
	for i, kind := range types {
		pattern = append(pattern, kind == "sliding_attention")
		period = period && pattern[i] == (i%6 != 5)
	}
	return pattern, period
}

// keep notes the values that a tensor of the checkpoint has become.
func (m *Model) keep(info safetensors.Info, values []float32) {
	data, _ := Quantize(gguf.F32, values)
	m.Values = append(m.Values, safetensors.Named{Name: info.Name, DType: safetensors.F32, Shape: info.Shape, Data: data})
}

// Folder writes the checkpoint that the model has become: its values and the
// other files of the original folder.
func (m *Model) Folder(t testing.TB, original string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "model")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(original)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() || strings.Contains(e.Name(), "safetensors") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(original, e.Name()))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, e.Name()), data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := safetensors.Write(filepath.Join(dir, "model.safetensors"), m.Values, map[string]string{"format": "pt"}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Write writes the GGUF file into a temporary folder and returns its path.
func (m *Model) Write(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.gguf")
	if err := os.WriteFile(path, m.File(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// stored returns llama.cpp's name of a tensor.
func stored(arch, name string) string {
	feedforward := "post_attention_layernorm"
	if arch == "gemma3" {
		feedforward = "pre_feedforward_layernorm"
	}
	names := map[string]string{
		"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
		"input_layernorm": "attn_norm", feedforward: "ffn_norm",
		"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
		"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
		"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
	}
	if arch == "gemma3" {
		names["post_attention_layernorm"], names["post_feedforward_layernorm"] = "post_attention_norm", "post_ffw_norm"
	}
	dot := strings.LastIndexByte(name, '.')
	stem, suffix := name[:dot], name[dot:]
	prefix := ""
	if rest, ok := strings.CutPrefix(stem, "model.layers."); ok {
		number, part, _ := strings.Cut(rest, ".")
		prefix, stem = "blk."+number+".", part
	}
	if names[stem] == "" {
		return ""
	}
	return prefix + names[stem] + suffix
}

// permute is llama.cpp's: rows of a head [2][half] become [half][2].
func permute(values []float32, rows, heads int) []float32 {
	cols, half := len(values)/rows, rows/heads/2
	out := make([]float32, 0, len(values))
	for h := range heads {
		for i := range half {
			for s := range 2 {
				row := (h*2+s)*half + i
				out = append(out, values[row*cols:(row+1)*cols]...)
			}
		}
	}
	return out
}

// frequencies is the tensor of factors for rope type llama3 with the
// parameters of Llama 3.1 but for the factor, in float32 as the converter
// computes it.
func frequencies(theta float64, dim int, factor float64) Tensor {
	factors := make([]float32, dim/2)
	for i := range factors {
		frequency := 1 / float32(math.Pow(theta, float64(2*i)/float64(dim)))
		wavelength := 2 * math.Pi / frequency
		switch {
		case wavelength < 8192/4:
			factors[i] = 1
		case wavelength > 8192/1:
			factors[i] = float32(factor)
		default:
			smooth := (8192/wavelength - 1) / (4 - 1)
			factors[i] = 1 / ((1-smooth)/float32(factor) + smooth)
		}
	}
	data, _ := Quantize(gguf.F32, factors)
	return Tensor{Name: "rope_freqs.weight", Type: gguf.F32, Shape: []int{len(factors)}, Data: data}
}

// vocabulary adds a tokenizer.json of the byte-level kind, with Qwen's
// pre-tokenizer; places of the embedding that have no token get one that is
// not used.
func (m *Model) vocabulary(t testing.TB, dir string, c *config) {
	t.Helper()
	var file struct {
		Model struct {
			Vocab  map[string]int `json:"vocab"`
			Merges [][2]string    `json:"merges"`
		} `json:"model"`
		Added []struct {
			ID      int    `json:"id"`
			Content string `json:"content"`
			Special bool   `json:"special"`
		} `json:"added_tokens"`
	}
	add := func(key string, v any) { m.Entries = append(m.Entries, Entry{"tokenizer." + key, v}) }
	if data, err := os.ReadFile(filepath.Join(dir, "chat_template.jinja")); err == nil {
		add("chat_template", string(data))
	}
	if c.EOS != nil {
		add("ggml.eos_token_id", *c.EOS)
	}
	if c.BOS != nil {
		add("ggml.bos_token_id", *c.BOS)
	}
	path := filepath.Join(dir, "tokenizer.json")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return
	}
	readJSON(t, path, &file)
	var rows struct {
		Vocab int `json:"vocab_size"`
	}
	readJSON(t, filepath.Join(dir, "config.json"), &rows)
	tokens, kinds := make([]string, rows.Vocab), make([]int32, rows.Vocab)
	for i := range tokens {
		tokens[i], kinds[i] = fmt.Sprintf("[PAD%d]", i), 5
	}
	for text, id := range file.Model.Vocab {
		tokens[id], kinds[id] = text, 1
	}
	for _, a := range file.Added {
		tokens[a.ID], kinds[a.ID] = a.Content, 4
		if a.Special {
			kinds[a.ID] = 3
		}
	}
	merges := []string{}
	for _, p := range file.Model.Merges {
		merges = append(merges, p[0]+" "+p[1])
	}
	add("ggml.model", "gpt2")
	add("ggml.pre", "qwen2")
	add("ggml.tokens", tokens)
	add("ggml.token_type", kinds)
	add("ggml.merges", merges)
	add("ggml.add_bos_token", false)
}

func readJSON(t testing.TB, path string, v any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// floats returns the values of a tensor.
func floats(t testing.TB, f *safetensors.File, info safetensors.Info) []float32 {
	t.Helper()
	data, err := f.Bytes(info.Name)
	if err != nil {
		t.Fatal(err)
	}
	var out []float32
	for at := 0; at < len(data); at += info.DType.Size() {
		b := data[at:]
		switch info.DType {
		case safetensors.F32:
			out = append(out, math.Float32frombits(binary.LittleEndian.Uint32(b)))
		case safetensors.F16:
			out = append(out, float16.ToFloat32(binary.LittleEndian.Uint16(b)))
		case safetensors.BF16:
			out = append(out, float16.BFloat16ToFloat32(binary.LittleEndian.Uint16(b)))
		default:
			t.Fatalf("gguftest: tensor %q is of type %s", info.Name, info.DType)
		}
	}
	return out
}
