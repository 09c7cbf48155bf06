package checkpoint

import (
	"fmt"
	"sync"

	"anemone/internal/checkpoint/gguf"
	"anemone/internal/checkpoint/llamacpp"
	"anemone/internal/checkpoint/safetensors"
	"anemone/internal/tokenizer/vocab"
)

// openGGUF opens a GGUF file.
func (c *Checkpoint) openGGUF() error {
	f, err := gguf.Open(c.Dir)
	if err != nil {
		return err
	}
	c.weights = append(c.weights, f)
	m, err := llamacpp.Translate(f)
	if err != nil {
		return err
	}
	c.files.from = c.Dir
	c.files.made = map[string][]byte{configFile: m.Config, generationFile: m.Generation}
	if m.ChatTemplate != "" {
		c.files.made["chat_template.jinja"] = []byte(m.ChatTemplate)
	}
	c.files.tokenizer = sync.OnceValues(func() (map[string][]byte, error) { return tokenizerOf(f, m.ChatTemplate) })
	for i := range m.Tensors {
		c.tensors[m.Tensors[i].Name] = tensorOfGGUF(f, &m.Tensors[i])
	}
	return c.readConfigs()
}

// tensorOfGGUF returns a tensor of a GGUF file.
func tensorOfGGUF(f *gguf.File, from *llamacpp.Tensor) Tensor {
	info := from.Info
	t := Tensor{Name: from.Name, Shape: info.Shape, File: f.Path(), Stored: info.Type.String(), gguf: true, n: 1, size: info.Size}
	for _, d := range info.Shape {
		t.n *= d
	}
	if info.Name != from.Name {
		t.alias = info.Name
	}
	t.bytes = func() ([]byte, error) { return f.Bytes(info.Name) }
	t.DType = safetensors.DType(t.Stored) // F32, F16 and BF16 are called the same
	if _, _, ok := info.Type.Block(); ok && !from.AsStored() {
		t.DType = safetensors.F32
		t.read = func(dst []float32, offset int) error { return from.Read(f, dst, offset) }
	}
	return t
}

// tokenizerOf makes the files of the tokenizer. The template is in one of them,
// too, where older programs look for it.
func tokenizerOf(f *gguf.File, template string) (map[string][]byte, error) {
	v, err := llamacpp.Vocabulary(f)
	if err != nil {
		return nil, err
	}
	made, err := madeTokenizer(v, template)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path(), err)
	}
	return made, nil
}

// madeTokenizer makes the files that stand for a vocabulary.
func madeTokenizer(v *vocab.Vocabulary, template string) (map[string][]byte, error) {
	tokenizer, err := v.TokenizerJSON()
	if err != nil {
		return nil, err
	}
	config, err := v.TokenizerConfig(template)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{"tokenizer.json": tokenizer, "tokenizer_config.json": config}, nil
}
