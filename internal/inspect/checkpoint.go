package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"anemone/internal/arch"
	"anemone/internal/checkpoint"
	"anemone/internal/checkpoint/gguf"
)

// Checkpoint describes a Hugging Face model folder or a GGUF file.
type Checkpoint struct {
	Format    string `json:"format"` // "safetensors", or "GGUF" with its version
	ModelType string `json:"model_type"`
	// Architecture and Name are what a GGUF file calls the model.
	Architecture string `json:"architecture,omitempty"`
	Name         string `json:"name,omitempty"`
	Context      int    `json:"context_length,omitempty"` // positions that the model was made for
	// Tokenizer says what kind of vocabulary a GGUF file holds.
	Tokenizer  string   `json:"tokenizer,omitempty"`
	Supported  bool     `json:"supported"`
	Why        string   `json:"why,omitempty"` // it is not
	Files      []string `json:"files"`
	Tensors    int      `json:"tensors"`
	Types      []Type   `json:"types"` // that the tensors are stored in, most frequent first
	Parameters int64    `json:"parameters"`
	Bytes      int64    `json:"bytes"`
	Unused     []string `json:"unused_tensors,omitempty"`
	// Problems are what keeps packages made of it from being of full use.
	Problems []string `json:"problems"`
}

// Type is a type that tensors are stored in.
type Type struct {
	Name    string `json:"name"` // "BF16", "Q4_K"
	Tensors int    `json:"tensors"`
	Bytes   int64  `json:"bytes"`
}

// add counts a tensor.
func (c *Checkpoint) add(stored string, elements, size int64) {
	c.Tensors++
	c.Parameters += elements
	c.Bytes += size
	i := slices.IndexFunc(c.Types, func(t Type) bool { return t.Name == stored })
	if i < 0 {
		i = len(c.Types)
		c.Types = append(c.Types, Type{Name: stored})
	}
	c.Types[i].Tensors++
	c.Types[i].Bytes += size
}

func (c *Checkpoint) sortTypes() {
	slices.SortFunc(c.Types, func(a, b Type) int {
		return cmp.Or(cmp.Compare(b.Tensors, a.Tensors), cmp.Compare(a.Name, b.Name))
	})
}

func ofCheckpoint(path string, registry arch.Registry) (*Checkpoint, error) {
	r := &Checkpoint{Format: "safetensors", Types: []Type{}, Problems: []string{}}
	isGGUF := gguf.IsFile(path)
	if isGGUF {
		if err := r.ofGGUF(path); err != nil {
			return nil, err
		}
	}
	ck, err := checkpoint.Open(path)
	if err != nil {
		if isGGUF {
			// It is sound, but nothing that could be converted.
			r.Why = err.Error()
			return r, nil
		}
		return nil, err
	}
	defer ck.Close()
	r.ModelType = ck.Config.ModelType()
	config := ck.Config
	if text, ok := config.Sub("text_config"); ok {
		config = text
	}
	// What is wrong with it, the architecture says.
	r.Context, _ = config.IntOr("max_position_embeddings", 0)
	if !isGGUF {
		r.Files = append(ck.Weights(), ck.Files()...)
		for _, name := range ck.Names() {
			if t, ok := ck.Lookup(name); ok {
				r.add(t.Stored, int64(t.Len()), t.Size())
			}
		}
		r.sortTypes()
	}
	switch err := ck.TokenizerProblem(); {
	case err != nil:
		r.Problems = append(r.Problems, fmt.Sprintf("no tokenizer.json can be made of the tokenizer, so that packages made of it cannot be run on text: %v", err))
	case !slices.Contains(ck.Files(), "tokenizer.json"):
		r.Problems = append(r.Problems, "there is no tokenizer.json: packages made of it cannot be run on text")
	}
	if _, err := registry.Open(ck); err != nil {
		// What programs look for adds nothing to what the error says.
		r.Why = strings.ReplaceAll(err.Error(), ": "+arch.ErrUnsupported.Error(), "")
		return r, nil
	}
	r.Supported = true
	r.Unused = ck.Unused()
	slices.Sort(r.Unused)
	return r, nil
}

// ofGGUF adds what a GGUF file says, be its model one that can be converted or
// not.
func (c *Checkpoint) ofGGUF(path string) error {
	f, err := gguf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	c.Format, c.Files = fmt.Sprintf("GGUF %d", f.Version()), []string{path}
	// What is missing or of another type, whoever needs it says.
	text := func(key string) string { s, _ := f.String(key); return s }
	c.Architecture, c.Name = text("general.architecture"), text("general.name")
	if model := text("tokenizer.ggml.model"); model != "" {
		c.Tokenizer = model
		if pre := text("tokenizer.ggml.pre"); pre != "" {
			c.Tokenizer += " (" + pre + ")"
		}
		if n, err := f.Len("tokenizer.ggml.tokens"); err == nil {
			c.Tokenizer += fmt.Sprintf(", %d tokens", n)
		}
	}
	for _, t := range f.Tensors() {
		n := int64(1)
		for _, d := range t.Shape {
			n *= int64(d)
		}
		c.add(t.Type.String(), n, t.Size)
	}
	c.sortTypes()
	return nil
}
