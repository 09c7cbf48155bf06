package anemone

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"anemone/internal/engine"
	"anemone/internal/predict"
	"anemone/internal/runner"
)

// Model is a single Core ML model that is ready to run: a part of a package,
// or any ML Program.
type Model struct{ m *predict.Model }

// Tensor is an array that goes into a model or comes out of it: its DType, its
// Shape, and its elements, row-major: those of floating-point types in Float
// ([]float32), those of int32 and bool in Int ([]int32).
type Tensor = runner.Tensor

// ModelState is what a model remembers from one call to the next: Names lists
// its states, Read copies one, Write replaces it, Reset sets all to zero.
type ModelState = runner.State

// ModelFunction describes a function of a model: its Name, Inputs, Outputs and
// States. Each of these has a Name, a DType and a Shape (nil if that is only
// known after a call); an input may have several Shapes, or Ranges of its
// dimensions, and may be Optional.
type ModelFunction = predict.Function

// OpenModel loads a .mlpackage, a .mlmodel, or a compiled .mlmodelc.
func OpenModel(path string, o OpenOptions) (*Model, error) {
	p := predict.Options{Workers: o.Workers}
	if o.Half {
		p.Numerics = engine.Float16
	}
	m, err := predict.Open(path, p)
	if err != nil {
		return nil, err
	}
	return &Model{m}, nil
}

// Close releases the model.
func (m *Model) Close() error { return m.m.Close() }

// Functions describes the functions; the first is the default.
func (m *Model) Functions() []ModelFunction { return m.m.Functions() }

// NewState returns the states of all functions, zero.
func (m *Model) NewState() (ModelState, error) { return m.m.NewState() }

// Predict runs a function, the default one if its name is empty, and returns
// its outputs. Optional inputs may be left out. Without a state the call
// begins with one that is zero, and forgets it.
func (m *Model) Predict(ctx context.Context, function string, inputs map[string]*Tensor, st ModelState) (map[string]*Tensor, error) {
	return m.m.Call(ctx, function, inputs, st)
}

// ReadTensors reads the arrays of a .safetensors, .npz, .npy or .json file as
// a model takes them: float64 is rounded to float32, integers of all widths
// become int32, which is an error where one does not fit.
func ReadTensors(path string) (map[string]*Tensor, error) {
	f, err := predict.OpenFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all := map[string]*Tensor{}
	for _, a := range f.Arrays {
		if all[a.Name], err = a.Tensor(); err != nil {
			return nil, fmt.Errorf("array %v: %w", a, err)
		}
	}
	return all, nil
}

// WriteTensors writes a .safetensors, .npz or .json file, which appears whole
// or not at all. Floating-point tensors are stored as float32, so that nothing
// is lost.
func WriteTensors(path string, tensors map[string]*Tensor) error {
	var vs []predict.Value
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		t := tensors[name]
		if t == nil {
			return fmt.Errorf("%q: no tensor", name)
		}
		if err := t.Check(); err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
		vs = append(vs, predict.Pack(name, t))
	}
	return predict.WriteFile(path, vs)
}
