package ane

import (
	"fmt"

	"anemone/mil"
)

// Device is what runs an operation.
type Device string

// Devices.
const (
	Engine Device = "ANE"
	CPU    Device = "CPU"
	// None is the device of constants and compressed weights: they are data.
	None Device = "none"
)

// Place predicts where an operation runs; if that is the CPU, why says what
// keeps it from the Neural Engine. The operations of an embeddings model run on
// the CPU, where the table stays mapped.
//
// What the rules leave out, the cost model of Core ML, can move more
// operations to the CPU or, in small models, all of them.
func Place(op *mil.Operation, embeddings bool) (d Device, why string) {
	switch {
	case Folded(op.Type):
		return None, ""
	case embeddings && op.Type == "gather":
		return CPU, "a look-up in the table of all tokens: the rows that are needed are read from the mapped file"
	case embeddings:
		return CPU, "serves the look-up in the embeddings, which the CPU does"
	case !HasCode(op.Type):
		return CPU, op.Type + " has no implementation on the Neural Engine"
	}
	for _, t := range Tensors(op) {
		if !t.Static() {
			return CPU, fmt.Sprintf("a tensor of unknown shape, %v", t)
		}
		if TooLarge(t) > 0 {
			return CPU, fmt.Sprintf("a tensor %v: more than %d elements in a dimension", t, MaxSide)
		}
	}
	if Moves(op.Type) {
		return Engine, ""
	}
	switch e := element(op); {
	case e.IsInt():
		return CPU, fmt.Sprintf("arithmetic on %v", e)
	case e == mil.Float32 || e == mil.Float64:
		return CPU, fmt.Sprintf("computes in %v; the Neural Engine computes in fp16", e)
	}
	return Engine, ""
}

// element returns the element type that an operation computes in.
func element(op *mil.Operation) mil.DType {
	d := mil.InvalidDType
	for _, v := range op.Results {
		if v.Type.Kind == mil.TensorKind {
			d = v.Type.DType
			break
		}
	}
	// Comparisons and conversions are of the kind of what they take.
	if x := op.Value("x"); x != nil && (d == mil.Bool || op.Type == "cast") && x.Type.DType.IsInt() {
		d = x.Type.DType
	}
	return d
}

// Tensors returns the types of the tensors that an operation reads and makes.
func Tensors(op *mil.Operation) []mil.Type {
	var ts []mil.Type
	add := func(vs []*mil.Value) {
		for _, v := range vs {
			if v.Type.Kind == mil.TensorKind {
				ts = append(ts, v.Type)
			}
		}
	}
	for _, a := range op.Args {
		add(a.Values)
	}
	add(op.Results)
	return ts
}

// IsEmbeddings reports whether a function is one of an embeddings model: it
// turns tokens into hidden states and has no states of its own.
func IsEmbeddings(f *mil.Function) bool {
	if f.Input("input_ids") == nil || f.Body == nil {
		return false
	}
	for _, in := range f.Inputs {
		if in.Type.Kind == mil.StateKind {
			return false
		}
	}
	for _, out := range f.Body.Outputs {
		if out.Name == "hidden_states" {
			return true
		}
	}
	return false
}
