// Package runner is the one interface of everything that runs Core ML
// models: the portable engine and Core ML itself. Code that calls models
// holds a [Model] and never asks which one it is.
package runner

import (
	"context"
	"fmt"

	"anemone/mil"
)

// Tensor is a dense row-major array at the boundary of a model.
type Tensor struct {
	DType mil.DType // of the feature: Float16, Float32, Int32 or Bool
	Shape []int
	// Float holds the elements of floating-point tensors. A runner that
	// keeps fp16 features rounds on the way in; values that came out are
	// exact.
	Float []float32
	// Int holds the elements of integer (and bool: 0 or 1) tensors.
	Int []int32
}

// Floats returns a floating-point tensor over data.
func Floats(d mil.DType, data []float32, shape ...int) *Tensor {
	return &Tensor{DType: d, Shape: shape, Float: data}
}

// Ints returns an int32 tensor over data.
func Ints(data []int32, shape ...int) *Tensor {
	return &Tensor{DType: mil.Int32, Shape: shape, Int: data}
}

// Len returns the number of elements that t holds.
func (t *Tensor) Len() int {
	if t.DType.IsFloat() {
		return len(t.Float)
	}
	return len(t.Int)
}

// Check reports whether the data has the size that the shape says.
func (t *Tensor) Check() error {
	n, ok := mil.NumElements(t.Shape)
	if !ok || n != t.Len() {
		return fmt.Errorf("tensor of shape %v and type %v holds %d elements", t.Shape, t.DType, t.Len())
	}
	return nil
}

// Feature describes an input, output or state of a function.
type Feature struct {
	Name  string
	DType mil.DType
	// Shape is the default shape; nil for an output whose shape depends on
	// the inputs.
	Shape []int
	// Shapes lists the alternatives of an input with enumerated shapes.
	Shapes [][]int
}

// Signature describes a function of a model.
type Signature struct {
	Name                    string
	Inputs, Outputs, States []Feature
}

// Values binds features to tensors by name.
type Values map[string]*Tensor

// Model is a loaded model. Its methods may be called from several goroutines
// as long as no two calls share a State.
type Model interface {
	// Functions describes the functions; the first is the default.
	Functions() []Signature
	// Function returns the description of one, nil if there is none.
	Function(name string) *Signature
	// NewState returns the states of the model's functions, all zero: an
	// empty context. A state made by one model may be passed to another
	// that declares the same states, or some of them.
	NewState() (State, error)
	// Predict runs a function. Every input must be in in. Outputs go to out:
	// where it holds a tensor of the right size, its data is overwritten,
	// otherwise a new one is put there. st may be nil if the function has no
	// states. Predict stops early, leaving st in an unknown condition, when
	// ctx is done.
	Predict(ctx context.Context, function string, in, out Values, st State) error
	// Close releases the model.
	Close() error
}

// State holds what a model remembers between calls.
type State interface {
	// Names lists the states, sorted.
	Names() []string
	// Read returns a copy of the named state.
	Read(name string) (*Tensor, error)
	// Write replaces the contents of the named state.
	Write(name string, t *Tensor) error
	// Reset sets every state to zero.
	Reset()
}

// RowState is a State of which leading rows along an axis can be copied alone.
// It is optional: what keeps copies of states (of a KV cache, the rows of the
// positions so far) uses it where it finds it, and Read and Write elsewhere.
type RowState interface {
	State
	// ReadRows copies the first rows of the named state along an axis to t.
	// t's shape is that of the state with the number of rows in the axis'
	// place.
	ReadRows(name string, axis int, t *Tensor) error
	// WriteRows makes t the first rows of the named state along an axis, and
	// the rows behind them zero.
	WriteRows(name string, axis int, t *Tensor) error
}
