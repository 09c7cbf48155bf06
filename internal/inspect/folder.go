package inspect

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"anemone/coreml"
	"anemone/coreml/mlmodelc"
	"anemone/coreml/mlpackage"
	"anemone/internal/anemll"
	"anemone/internal/arch"
	"anemone/internal/checkpoint/gguf"
	"anemone/internal/lint"
)

// Report describes a folder or a model: exactly one of the three is set.
type Report struct {
	Kind       string      `json:"kind"` // "package", "model" or "checkpoint"
	Path       string      `json:"path"`
	Package    *Package    `json:"package,omitempty"`
	Model      *Model      `json:"model,omitempty"`
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`
	// Lint is what the linter found; nil if it was not asked.
	Lint *Lint `json:"lint,omitempty"`
}

// Lint is what the linter found.
type Lint struct {
	Errors   int            `json:"errors"`
	Warnings int            `json:"warnings"`
	Infos    int            `json:"infos"`
	Findings []lint.Finding `json:"findings"`
}

// Models returns the models that a report describes.
func (r *Report) Models() []*Model {
	switch {
	case r.Model != nil:
		return []*Model{r.Model}
	case r.Package != nil:
		ms := make([]*Model, len(r.Package.Parts))
		for i := range ms {
			ms[i] = &r.Package.Parts[i]
		}
		return ms
	}
	return nil
}

// Package describes a package in ANEMLL's layout.
type Package struct {
	Name         string `json:"name"`
	Architecture string `json:"architecture"`
	Context      int    `json:"context_length"`
	Batch        int    `json:"batch_size"`
	// Remainders are the tokens of functions for what does not fill a batch.
	Remainders  []int   `json:"prefill_remainders,omitempty"`
	Hidden      int     `json:"hidden_size"`
	Vocab       int     `json:"vocab_size"`
	Parts       []Model `json:"parts"`
	WeightBytes int64   `json:"weight_bytes"`
	Memory      Memory  `json:"memory"`
	// Extension is what meta.yaml says beyond a plain transformer; nil if that is
	// nothing. Where it disagrees with the models is among the problems.
	Extension *Extension `json:"extension,omitempty"`
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

// Options say what to report beyond the summary.
type Options struct {
	Weights bool // fill Model.Tensors
	MIL     bool // fill Model.MIL
	// Function restricts the text to the functions of that name. Models that
	// have none are left without a text; it is an error if none has.
	Function string
	Full     bool          // do not shorten literals in the text
	Lint     *lint.Options // run the linter; nil does not
}

// models reports whether an option asks for something that only Core ML models
// have.
func (o *Options) models() string {
	switch {
	case o.MIL:
		return "a program"
	case o.Weights:
		return "a tree of weights"
	case o.Lint != nil:
		return "something to lint"
	}
	return ""
}

// Open describes what lies at path: a package, a Core ML model (.mlpackage,
// .mlmodel or .mlmodelc), or a checkpoint that could be converted (a folder or a
// GGUF file). It fails if ctx ends.
func Open(ctx context.Context, path string, registry arch.Registry, o Options) (*Report, error) {
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
	case isBundle(path):
		r.Kind = "model"
		return r, r.model(ctx, path, o)
	case has(anemll.MetaFile) || filepath.Base(path) == anemll.MetaFile:
		r.Kind = "package"
		return r, r.ofPackage(ctx, path, o)
	case st.IsDir() && has("config.json"), gguf.IsFile(path):
		if what := o.models(); what != "" {
			return nil, fmt.Errorf("%s is a checkpoint, which does not have %s: convert it first: %w", path, what, errors.ErrUnsupported)
		}
		r.Kind = "checkpoint"
		r.Checkpoint, err = ofCheckpoint(path, registry)
		return r, err
	case !st.IsDir() && strings.EqualFold(filepath.Ext(path), ".gguf"):
		// It does not begin as one, and the error says how it does.
		r.Checkpoint, err = ofCheckpoint(path, registry)
		return r, err
	}
	return nil, fmt.Errorf("%s is neither a package (no %s), nor a Core ML model (.mlpackage, .mlmodel, .mlmodelc), nor a checkpoint (no config.json, no GGUF file)", path, anemll.MetaFile)
}

var bundleExts = []string{".mlpackage", ".mlmodelc", ".mlmodel"}

func isBundle(path string) bool {
	return slices.Contains(bundleExts, filepath.Ext(filepath.Clean(path)))
}

// part is a model and what lies around it.
type part struct {
	name     string
	path     string
	model    *coreml.Model
	stored   coreml.Stored // nil if it was not asked for
	compiled *Compiled
	close    func() error
}

// openPart opens a bundle of any form.
func openPart(path string) (*part, error) {
	base := filepath.Base(filepath.Clean(path))
	p := &part{name: strings.TrimSuffix(base, filepath.Ext(base)), path: path}
	if filepath.Ext(base) == ".mlmodelc" {
		b, err := mlmodelc.Open(path)
		if err != nil {
			return nil, err
		}
		p.model, p.stored, p.close = b.Model, b, b.Close
		p.compiled = compiled(path)
		return p, nil
	}
	b, err := mlpackage.Open(path)
	if err != nil {
		return nil, err
	}
	p.model, p.stored, p.close = b.Model, b, b.Close
	return p, nil
}

var compilerVersion = regexp.MustCompile(`coremlc-version"[^"]*"([0-9.]+)"`)

// compiled returns what a compiled bundle says of its making: the first number
// of the second field of its coremldata.bin, and an entry at the beginning of
// its program. What cannot be read is left out.
func compiled(path string) *Compiled {
	head := func(name string, n int64) []byte {
		f, err := os.Open(filepath.Join(path, name))
		if err != nil {
			return nil
		}
		defer f.Close()
		b, err := io.ReadAll(io.LimitReader(f, n))
		if err != nil {
			return nil
		}
		return b
	}
	c := &Compiled{}
	if b := head("coremldata.bin", 12); len(b) == 12 {
		c.Format = int(min(binary.LittleEndian.Uint64(b[4:]), 1<<20))
	}
	if m := compilerVersion.FindSubmatch(head("model.mil", 4096)); m != nil {
		c.Compiler = string(m[1])
	}
	return c
}

// describe fills in what the options ask for.
func (p *part) describe(o *Options) (*Model, error) {
	m := Inspect(p.name, p.model)
	m.Path, m.Compiled = p.path, p.compiled
	if o.Weights {
		m.Tensors = tensors(p.model, p.stored)
	}
	if o.MIL && (o.Function == "" || p.model.Program.Function(o.Function) != nil) {
		var b strings.Builder
		if err := WriteMIL(&b, p.model, p.stored, o.Function, o.Full); err != nil {
			return nil, fmt.Errorf("%s: %w", p.path, err)
		}
		m.MIL = b.String()
	}
	return m, nil
}

var lutName = regexp.MustCompile(`_(?:lut|LUT)(\d{1,2})(?:_|$)`)

// lint returns what the linter wants to know of the part.
func (p *part) lint() lint.Model {
	m := lint.Model{Part: p.name, Content: p.model}
	if p.compiled != nil {
		m.Format, m.Compiler = p.compiled.Format, p.compiled.Compiler
	}
	if n := lutName.FindStringSubmatch(p.name); n != nil {
		m.LUT, _ = strconv.Atoi(n[1])
	}
	return m
}

func (r *Report) runLint(ctx context.Context, t lint.Target, o *lint.Options) error {
	fs, err := lint.Check(ctx, t, *o)
	if err != nil {
		return err
	}
	if fs == nil {
		fs = []lint.Finding{}
	}
	r.Lint = &Lint{Errors: lint.Count(fs, lint.Error), Warnings: lint.Count(fs, lint.Warning), Infos: lint.Count(fs, lint.Info), Findings: fs}
	return nil
}

// checkFunction makes sure that one of the models has the function that the
// options name.
func (o *Options) checkFunction(models ...*coreml.Model) error {
	if o.Function == "" {
		return nil
	}
	var have []string
	for _, m := range models {
		for _, f := range m.Program.Functions {
			if f.Name == o.Function {
				return nil
			}
			if !slices.Contains(have, f.Name) {
				have = append(have, f.Name)
			}
		}
	}
	return fmt.Errorf("there is no function %q; there are %s", o.Function, strings.Join(have, ", "))
}

func (r *Report) model(ctx context.Context, path string, o Options) error {
	p, err := openPart(path)
	if err != nil {
		return err
	}
	defer p.close()
	if err := o.checkFunction(p.model); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if r.Model, err = p.describe(&o); err != nil || o.Lint == nil {
		return err
	}
	return r.runLint(ctx, lint.Target{Models: []lint.Model{p.lint()}}, o.Lint)
}

func (r *Report) ofPackage(ctx context.Context, path string, o Options) error {
	q, err := anemll.Open(path)
	if err != nil {
		return err
	}
	defer q.Close()
	r.Package = &Package{
		Name: q.Meta.Name, Architecture: q.Meta.Architecture, Context: q.ContextLength, Batch: q.BatchSize,
		Hidden: q.HiddenSize, Vocab: q.VocabSize, Problems: q.Problems, Extension: extension(q.Meta),
	}
	for _, f := range q.Remainders {
		r.Package.Remainders = append(r.Package.Remainders, f.Tokens)
	}
	if !q.HasTokenizer() {
		r.Package.Problems = append(slices.Clip(r.Package.Problems), "there is no tokenizer.json, without which a text has no tokens: put the checkpoint's into the folder")
	}
	if r.Package.Problems == nil {
		r.Package.Problems = []string{}
	}
	mem := &r.Package.Memory
	mem.State = q.StateBytes()
	mem.Engine = 2 * mem.State

	var models []*coreml.Model
	for _, x := range q.Parts() {
		models = append(models, x.Model)
	}
	if err := o.checkFunction(models...); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	target := lint.Target{Package: q}
	for _, x := range q.Parts() {
		p := &part{name: x.Name, path: x.Path, model: x.Model}
		if o.Weights || o.MIL {
			// The package keeps to itself where its weights lie.
			if p, err = openPart(x.Path); err != nil {
				return err
			}
			defer p.close()
		} else if filepath.Ext(x.Path) == ".mlmodelc" {
			p.compiled = compiled(x.Path)
		}
		m, err := p.describe(&o)
		if err != nil {
			return err
		}
		r.Package.Parts = append(r.Package.Parts, *m)
		r.Package.WeightBytes += m.WeightBytes
		mem.Engine += m.WeightBytes
		if x != q.Embeddings {
			for _, f := range m.Functions {
				mem.NeuralEngine += f.Memory.Weights
			}
		}
		l := p.lint()
		l.Embeddings, l.Head = x == q.Embeddings, x == q.Head
		target.Models = append(target.Models, l)
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	if o.Lint == nil {
		return nil
	}
	return r.runLint(ctx, target, o.Lint)
}
