package coreml

import (
	"anemone/mil"
)

// Describe returns the description of a function that its program implies:
// tensor parameters are inputs, state parameters are states, the outputs of
// the body are outputs. A parameter with an unknown dimension needs its
// alternatives set by the caller (Shapes or Ranges, and Shape); an output
// with one is left without a shape.
func Describe(f *mil.Function) Function {
	d := Function{Name: f.Name}
	feature := func(v *mil.Value) Feature {
		x := Feature{Name: v.Name, DType: v.Type.DType}
		if v.Type.Static() {
			x.Shape = v.Type.Shape
		}
		return x
	}
	for _, in := range f.Inputs {
		if in.Type.Kind == mil.StateKind {
			d.States = append(d.States, feature(in))
		} else {
			d.Inputs = append(d.Inputs, feature(in))
		}
	}
	if f.Body != nil {
		for _, out := range f.Body.Outputs {
			d.Outputs = append(d.Outputs, feature(out))
		}
	}
	return d
}

// Input returns the named input, or nil.
func (f *Function) Input(name string) *Feature { return find(f.Inputs, name) }

// Output returns the named output, or nil.
func (f *Function) Output(name string) *Feature { return find(f.Outputs, name) }

// State returns the named state, or nil.
func (f *Function) State(name string) *Feature { return find(f.States, name) }

func find(fs []Feature, name string) *Feature {
	for i := range fs {
		if fs[i].Name == name {
			return &fs[i]
		}
	}
	return nil
}
