package llamacpp

import (
	"fmt"
	"strconv"
	"strings"

	"anemone/internal/checkpoint/gguf"
)

// Tensor is a tensor of the file under its name in the checkpoint.
type Tensor struct {
	Name string // in Hugging Face's checkpoint; Info.Name is that in the file
	Info gguf.Info

	heads   int  // among which the rows are divided, in ggml's order; 0 for rows as they are
	plusOne bool // the file has 1 + w
}

// top has the names outside of the layers.
var top = map[string]string{
	"token_embd":  "model.embed_tokens",
	"output_norm": "model.norm",
	"output":      "lm_head",
}

// layer has the names of a layer's tensors that all architectures share.
var layer = map[string]string{
	"attn_norm":   "input_layernorm",
	"attn_q":      "self_attn.q_proj",
	"attn_k":      "self_attn.k_proj",
	"attn_v":      "self_attn.v_proj",
	"attn_output": "self_attn.o_proj",
	"ffn_gate":    "mlp.gate_proj",
	"ffn_up":      "mlp.up_proj",
	"ffn_down":    "mlp.down_proj",
}

// name returns the name in the checkpoint of a tensor of the file, and part,
// what it is in a layer ("attn_q") or outside of one.
func (a *architecture) name(stored string, layers int) (name, part string, ok bool) {
	stem, suffix := stored, ""
	for _, s := range []string{".weight", ".bias"} {
		if cut, ok := strings.CutSuffix(stored, s); ok {
			stem, suffix = cut, s
		}
	}
	if suffix == "" {
		return "", "", false
	}
	if name, ok := top[stem]; ok {
		return name + suffix, stem, true
	}
	rest, ok := strings.CutPrefix(stem, "blk.")
	number, part, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(number)
	if !ok || err != nil || n < 0 || n >= layers || strconv.Itoa(n) != number {
		return "", "", false
	}
	hf := layer[part]
	if own, ok := a.layer[part]; ok {
		hf = own
	}
	if hf == "" {
		return "", "", false
	}
	return fmt.Sprintf("model.layers.%d.%s%s", n, hf, suffix), part, true
}

// tensors finds the place of every tensor of the file.
func (m *Model) tensors(f *gguf.File, a architecture, c object) error {
	layers := c["num_hidden_layers"].(int)
	var unknown []string
	for _, info := range f.Tensors() {
		name, part, ok := a.name(info.Name, layers)
		if !ok {
			// It was used up for the configuration.
			if a.permuted && info.Name == "rope_freqs.weight" {
				continue
			}
			unknown = append(unknown, info.Name)
			continue
		}
		t := Tensor{Name: name, Info: info, plusOne: a.plusOne && strings.HasSuffix(info.Name, "norm.weight")}
		if a.permuted && (part == "attn_q" || part == "attn_k") {
			t.heads = c["num_attention_heads"].(int)
			if part == "attn_k" {
				t.heads = c["num_key_value_heads"].(int)
			}
			if len(info.Shape) == 0 || info.Shape[0]%(2*t.heads) != 0 {
				return fmt.Errorf("%s: tensor %q: found shape %v, want rows for %d heads", f.Path(), info.Name, info.Shape, t.heads)
			}
			if block, _, _ := info.Type.Block(); len(info.Shape) == 1 && block != 1 {
				return fmt.Errorf("%s: tensor %q: found a bias of type %s, want F32, F16 or BF16", f.Path(), info.Name, info.Type)
			}
		}
		m.Tensors = append(m.Tensors, t)
	}
	if len(unknown) > 0 {
		return m.noPlace(f, unknown)
	}
	return nil
}

// noPlace is the error for tensors that the architecture does not have.
func (m *Model) noPlace(f *gguf.File, names []string) error {
	more := ""
	if n := len(names) - 1; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	why := "what becomes of its results is not known"
	for _, prefix := range []string{"v.", "mm."} {
		if strings.HasPrefix(names[0], prefix) {
			why = "what reads images belongs in a file of its own"
		}
	}
	return fmt.Errorf("%s: tensor %.100q%s: not part of the architecture %s as llama.cpp has it (%s); convert from the original checkpoint, or from a file that llama.cpp reads",
		f.Path(), names[0], more, m.Architecture, why)
}

// AsStored reports whether the tensor's bytes are its values in the order of
// the checkpoint, as they are for types that are not quantized and tensors of
// which nothing has to be undone.
func (t *Tensor) AsStored() bool {
	switch t.Info.Type {
	case gguf.F32, gguf.F16, gguf.BF16:
		return t.heads == 0 && !t.plusOne
	}
	return false
}

// Read sets dst to the elements from offset on, in the checkpoint's order. The
// tensor has them, and its type is implemented; see [gguf.Type.Block]. Of a
// block that is needed in part, the whole is decoded, aside.
func (t *Tensor) Read(f *gguf.File, dst []float32, offset int) error {
	src, err := f.Bytes(t.Info.Name)
	if err != nil {
		return err
	}
	if t.heads == 0 {
		t.decode(dst, src, offset)
	} else {
		cols := 1
		for _, d := range t.Info.Shape[1:] {
			cols *= d
		}
		half := t.Info.Shape[0] / t.heads / 2 // rows of half a head
		for at := 0; at < len(dst); {
			row, col := (offset+at)/cols, (offset+at)%cols
			n := min(len(dst)-at, cols-col)
			head, in := row/(2*half), row%(2*half)
			stored := head*2*half + 2*(in%half) + in/half
			t.decode(dst[at:at+n], src, stored*cols+col)
			at += n
		}
	}
	if t.plusOne {
		for i := range dst {
			dst[i] -= 1
		}
	}
	return nil
}

// decode sets dst to the stored elements from at on.
func (t *Tensor) decode(dst []float32, src []byte, at int) {
	elements, bytes, _ := t.Info.Type.Block()
	var block []float32
	for len(dst) > 0 {
		first, skip := at/elements, at%elements
		if whole := len(dst) / elements; skip == 0 && whole > 0 {
			n := whole * elements
			t.Info.Type.Dequantize(dst[:n], src[first*bytes:(first+whole)*bytes])
			dst, at = dst[n:], at+n
			continue
		}
		if block == nil {
			block = make([]float32, elements)
		}
		t.Info.Type.Dequantize(block, src[first*bytes:(first+1)*bytes])
		n := copy(dst, block[skip:])
		dst, at = dst[n:], at+n
	}
}
