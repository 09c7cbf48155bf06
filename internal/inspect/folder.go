package inspect

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"anemone/coreml/mlpackage"
	"anemone/internal/anemll"
	"anemone/internal/arch"
	"anemone/internal/checkpoint"
)

// Report describes a folder or a model: exactly one of the three is set.
type Report struct {
	Kind       string      `json:"kind"` // "package", "model" or "checkpoint"
	Path       string      `json:"path"`
	Package    *Package    `json:"package,omitempty"`
	Model      *Model      `json:"model,omitempty"`
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`
}

// Package describes a package in ANEMLL's layout.
type Package struct {
	Name         string  `json:"name"`
	Architecture string  `json:"architecture"`
	Context      int     `json:"context_length"`
	Batch        int     `json:"batch_size"`
	Hidden       int     `json:"hidden_size"`
	Vocab        int     `json:"vocab_size"`
	Parts        []Model `json:"parts"`
	WeightBytes  int64   `json:"weight_bytes"`
	Memory       Memory  `json:"memory"`
	// Problems are what is odd about the package.
	Problems []string `json:"problems"`
}

// Memory estimates what running a package takes, in bytes.
type Memory struct {
	State int64 `json:"state"` // of one context
	// Engine is what the portable engine holds: weights as they are stored,
	// shared by all functions, and the states in float32.
	Engine int64 `json:"engine"`
	// NeuralEngine is what Core ML wires on the Neural Engine: a copy of the
	// weights for each function of the decoder and the head. The embeddings
	// stay mapped.
	NeuralEngine int64 `json:"neural_engine"`
}

// Checkpoint describes a Hugging Face model folder.
type Checkpoint struct {
	ModelType  string   `json:"model_type"`
	Supported  bool     `json:"supported"`
	Why        string   `json:"why,omitempty"` // it is not
	Files      []string `json:"files"`
	Tensors    int      `json:"tensors"`
	Parameters int64    `json:"parameters"`
	Bytes      int64    `json:"bytes"`
	Unused     []string `json:"unused_tensors,omitempty"`
}

// Open describes what lies at path: a package, a Core ML model, or a
// checkpoint that could be converted.
func Open(path string, registry arch.Registry) (*Report, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	has := func(name string) bool {
		_, err := os.Stat(filepath.Join(path, name))
		return err == nil
	}
	r := &Report{Path: path}
	switch {
	case strings.HasSuffix(strings.TrimRight(path, `/\`), ".mlpackage") || strings.HasSuffix(path, ".mlmodel"):
		r.Kind = "model"
		p, err := mlpackage.Open(path)
		if err != nil {
			return nil, err
		}
		defer p.Close()
		name := filepath.Base(filepath.Clean(path))
		r.Model = Inspect(strings.TrimSuffix(name, filepath.Ext(name)), p.Model)
		r.Model.Path = path
		return r, nil
	case strings.HasSuffix(strings.TrimRight(path, `/\`), ".mlmodelc"):
		return nil, fmt.Errorf("%s is a compiled model, which this version does not read: look at the .mlpackage it was compiled from: %w", path, errors.ErrUnsupported)
	case has(anemll.MetaFile) || filepath.Base(path) == anemll.MetaFile:
		r.Kind = "package"
		r.Package, err = ofPackage(path)
		return r, err
	case st.IsDir() && has("config.json"):
		r.Kind = "checkpoint"
		r.Checkpoint, err = ofCheckpoint(path, registry)
		return r, err
	}
	return nil, fmt.Errorf("%s is neither a package (no %s), nor a .mlpackage, nor a checkpoint (no config.json)", path, anemll.MetaFile)
}

func ofPackage(path string) (*Package, error) {
	p, err := anemll.Open(path)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	r := &Package{
		Name: p.Meta.Name, Architecture: p.Meta.Architecture, Context: p.ContextLength, Batch: p.BatchSize,
		Hidden: p.HiddenSize, Vocab: p.VocabSize, Problems: p.Problems,
	}
	if r.Problems == nil {
		r.Problems = []string{}
	}
	r.Memory.State = p.StateBytes()
	r.Memory.Engine = 2 * r.Memory.State
	for _, part := range p.Parts() {
		m := Inspect(part.Name, part.Model)
		m.Path = part.Path
		r.Parts = append(r.Parts, *m)
		r.WeightBytes += m.WeightBytes
		r.Memory.Engine += m.WeightBytes
		if part != p.Embeddings {
			for _, f := range m.Functions {
				r.Memory.NeuralEngine += f.WeightBytes
			}
		}
	}
	return r, nil
}

func ofCheckpoint(path string, registry arch.Registry) (*Checkpoint, error) {
	ck, err := checkpoint.Open(path)
	if err != nil {
		return nil, err
	}
	defer ck.Close()
	r := &Checkpoint{ModelType: ck.Config.ModelType(), Files: append(ck.Weights(), ck.Files()...), Supported: true}
	for _, name := range ck.Names() {
		if t, ok := ck.Lookup(name); ok {
			r.Tensors++
			r.Parameters += int64(t.Len())
			r.Bytes += int64(len(t.Raw()))
		}
	}
	if _, err := registry.Open(ck); err != nil {
		r.Supported, r.Why = false, err.Error()
		return r, nil
	}
	r.Unused = ck.Unused()
	slices.Sort(r.Unused)
	return r, nil
}
