// Package coreml describes a Core ML model: what its functions take and
// give, its metadata, and the ML Program inside. Its subpackages store it:
// mlpackage as the .mlpackage bundle that Xcode and coremltools exchange.
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
