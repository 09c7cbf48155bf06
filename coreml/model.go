// Package coreml describes a Core ML model: what its functions take and
// give, its metadata, and the ML Program inside. Its subpackages store it:
// mlpackage as the .mlpackage bundle that Xcode and coremltools exchange,
// mlmodelc as the compiled .mlmodelc bundle that Core ML loads.
package coreml

import (
	"anemone/mil"
)

// Model is a Core ML model that is an ML Program.
type Model struct {
	// SpecVersion is the specification version, which decides the oldest
	// system that loads the model: 9 is iOS 18 and macOS 15.
	SpecVersion int
	// Functions describes the entry points in the description's order. A
	// model in the older single-function form has one, named "main".
	Functions []Function
	// DefaultFunction names the function that runs unless another is asked
	// for; empty in the single-function form.
	DefaultFunction string
	Metadata        Metadata
	Program         *mil.Program
	// RawDescription is the description as it was read, in its protobuf
	// form, for what the fields above have no place for, such as default
	// values of inputs or the names of a classifier's outputs. A writer uses
	// it as long as it agrees with them; nil is fine.
	RawDescription []byte
}

// Stored is implemented by models that were read: it says where their weights
// lie, so that a writer can take over the files instead of the bytes.
type Stored interface {
	// WeightRef returns the name of the file that holds w, as the program
	// has it ("@model_path/weights/weight.bin"), and the offset of its record
	// there; ok is false if w is not one of the model's.
	WeightRef(w mil.Weight) (file string, offset uint64, ok bool)
	// WeightFile returns the path of a file of weights on this machine.
	WeightFile(name string) (path string, ok bool)
}

// Function returns the description of a function, or nil.
func (m *Model) Function(name string) *Function {
	for i := range m.Functions {
		if m.Functions[i].Name == name {
			return &m.Functions[i]
		}
	}
	return nil
}

// Function describes one entry point: its features in the order in which
// they are declared.
type Function struct {
	Name    string
	Inputs  []Feature
	Outputs []Feature
	States  []Feature
}

// Feature is an input, output or state: a multi-dimensional array.
type Feature struct {
	Name        string
	Description string
	DType       mil.DType // Float16, Float32, Float64 or Int32
	// Shape is the (default) shape. An output whose shape depends on the
	// input has none.
	Shape []int
	// Shapes lists the alternatives of an input with enumerated shapes.
	Shapes [][]int
	// Ranges gives the bounds of every dimension of a flexible input.
	Ranges   []Range
	Optional bool
}

// Range bounds a dimension; Max < 0 is unbounded.
type Range struct{ Min, Max int }

// Metadata is what a model says about itself.
type Metadata struct {
	ShortDescription string
	Version          string
	Author           string
	License          string
	// User holds the free entries, such as com.anemll.context_length.
	User map[string]string
}
