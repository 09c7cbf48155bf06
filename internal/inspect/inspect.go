// Package inspect says what a model or a package holds, without running it:
// functions with their inputs, outputs and states, weights by encoding and
// what they weigh, and an estimate of the memory that running it takes; if
// asked for, the program as text, every weight and where it lies, and what
// the linter finds.
//
// It reads the description and the program, never the weights (unless the
// linter is told to).
package inspect

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"anemone/coreml"
	"anemone/internal/ane"
	"anemone/internal/inspect/stored"
	"anemone/internal/lint"
	"anemone/mil"
)

// Model describes one Core ML model.
type Model struct {
	Name            string            `json:"name"`
	Path            string            `json:"path,omitempty"`
	SpecVersion     int               `json:"specification_version"`
	Description     string            `json:"description,omitempty"`
	Author          string            `json:"author,omitempty"`
	DefaultFunction string            `json:"default_function,omitempty"`
	Functions       []Function        `json:"functions"`
	Weights         []Encoding        `json:"weights"`
	WeightBytes     int64             `json:"weight_bytes"` // each stored weight once
	Metadata        map[string]string `json:"metadata,omitempty"`
	// Compiled says what only a compiled bundle has.
	Compiled *Compiled `json:"compiled,omitempty"`
	// Tensors lists every weight, MIL is the program as text: if asked for.
	Tensors []Tensor `json:"tensors,omitempty"`
	MIL     string   `json:"mil,omitempty"`
}

// Compiled is what a compiled bundle says of its making.
type Compiled struct {
	// Format is the version of the compiled format, which decides the oldest
	// system that loads it.
	Format int `json:"format"`
	// Compiler is the version of the compiler; it decides nothing.
	Compiler string `json:"compiler,omitempty"`
}

// Function describes one entry point.
type Function struct {
	Name       string         `json:"name"`
	Opset      string         `json:"opset"`
	Inputs     []Feature      `json:"inputs"`
	Outputs    []Feature      `json:"outputs"`
	States     []Feature      `json:"states,omitempty"`
	Operations map[string]int `json:"operations"` // count by type, without const
	// WeightBytes is what the function uses of the weights. Functions of a
	// model share them on disk, but the Neural Engine keeps a copy for each.
	WeightBytes int64 `json:"weight_bytes"`
	// StateBytes is the size of all states.
	StateBytes int64          `json:"state_bytes"`
	Memory     FunctionMemory `json:"memory"`
}

// FunctionMemory estimates what a function takes on the Neural Engine, in
// bytes. Activations and states are fp16, weights as they are stored.
type FunctionMemory struct {
	// Weights is the function's own copy: loading another function of the model
	// takes another one. It is 0 for embeddings, which stay in the mapped file.
	Weights int64 `json:"weights"`
	// Activations is the most that is alive at one time, every result in a place
	// of its own.
	Activations int64 `json:"activations"`
	InOut       int64 `json:"inputs_outputs"`
	State       int64 `json:"state"` // one for all functions that share it
}

// Total is the sum.
func (m FunctionMemory) Total() int64 { return m.Weights + m.Activations + m.InOut + m.State }

// Feature describes an input, output or state.
type Feature struct {
	Name string `json:"name"`
	Type string `json:"type"`
	// Shape has -1 for a dimension of an output that depends on the inputs.
	Shape  []int   `json:"shape,omitempty"`
	Shapes [][]int `json:"shapes,omitempty"` // enumerated alternatives
}

func (f Feature) String() string {
	shape := "?"
	switch {
	case len(f.Shapes) > 0:
		var s []string
		for _, x := range f.Shapes {
			s = append(s, fmt.Sprint(x))
		}
		shape = strings.Join(s, " or ")
	case f.Shape != nil:
		shape = strings.ReplaceAll(fmt.Sprint(f.Shape), "-1", "?")
	}
	return fmt.Sprintf("%s %s %s", f.Name, f.Type, shape)
}

// Encoding sums up the weights that are stored in one way.
type Encoding struct {
	Name     string `json:"encoding"` // such as "fp16" or "lut4, 8 rows per table"
	Count    int    `json:"count"`
	Elements int64  `json:"elements"`
	Bytes    int64  `json:"bytes"` // indices and tables together
}

// Inspect describes m.
func Inspect(name string, m *coreml.Model) *Model {
	r := &Model{
		Name: name, SpecVersion: m.SpecVersion, DefaultFunction: m.DefaultFunction,
		Description: m.Metadata.ShortDescription, Author: m.Metadata.Author, Metadata: m.Metadata.User,
	}
	ts := stored.List(m.Program, nil)
	for _, f := range m.Functions {
		r.Functions = append(r.Functions, function(m, f, ts))
	}
	r.WeightBytes = stored.Total(ts)
	r.Weights = encodings(ts)
	return r
}

func features(fs []coreml.Feature) []Feature {
	var out []Feature
	for _, f := range fs {
		out = append(out, Feature{f.Name, f.DType.String(), f.Shape, f.Shapes})
	}
	return out
}

func function(m *coreml.Model, d coreml.Function, ts []stored.Tensor) Function {
	f := Function{Name: d.Name, Inputs: features(d.Inputs), Outputs: features(d.Outputs), States: features(d.States), Operations: map[string]int{}}
	for _, s := range d.States {
		n, _ := mil.TensorOf(s.DType, s.Shape...).ByteSize()
		f.StateBytes += n
	}
	p := m.Program.Function(d.Name)
	if p == nil {
		return f
	}
	f.Opset = string(p.Opset)
	p.Body.Walk(func(op *mil.Operation) bool {
		if op.Type != "const" {
			f.Operations[op.Type]++
		}
		return true
	})
	// The description leaves shapes out that depend on the inputs; the program
	// knows what of them does not.
	for i := range f.Outputs {
		if f.Outputs[i].Shape != nil {
			continue
		}
		for _, v := range p.Body.Outputs {
			if v.Name == f.Outputs[i].Name && v.Type.Kind == mil.TensorKind {
				f.Outputs[i].Shape = v.Type.Shape
			}
		}
	}
	used := stored.Of(ts, d.Name)
	f.WeightBytes = stored.Total(used)
	f.Memory = FunctionMemory{Activations: activations(p), State: f.StateBytes}
	if !ane.IsEmbeddings(p) {
		f.Memory.Weights = lint.Footprint(used)
	}
	for _, vs := range [][]*mil.Value{p.Inputs, p.Body.Outputs} {
		for _, v := range vs {
			if v.Type.Kind == mil.TensorKind {
				f.Memory.InOut += size(v.Type)
			}
		}
	}
	return f
}

// size returns the bytes of a tensor, 0 if its shape is not known.
func size(t mil.Type) int64 {
	n, _ := t.ByteSize()
	return n
}

// activations returns the most bytes of results that are alive at one time.
// What an operation in a nested block uses is alive until the operation around
// it ends. States are changed in place, and outputs are counted as such.
func activations(f *mil.Function) int64 {
	last := map[*mil.Value]int{} // the last operation that uses a value
	at := 0
	var uses func(op *mil.Operation)
	uses = func(op *mil.Operation) {
		for _, a := range op.Args {
			for _, v := range a.Values {
				last[v] = at
			}
		}
		for _, b := range op.Blocks {
			for _, in := range b.Ops {
				uses(in)
			}
			for _, v := range b.Outputs {
				last[v] = at
			}
		}
	}
	for i, op := range f.Body.Ops {
		at = i
		uses(op)
	}
	state := map[*mil.Value]bool{} // values that are the state itself
	out := map[*mil.Value]bool{}
	for _, v := range f.Body.Outputs {
		out[v] = true
	}
	free := make([]int64, len(f.Body.Ops)+1) // by the operation after which
	var alive, most int64
	for i, op := range f.Body.Ops {
		if ane.Folded(op.Type) {
			continue
		}
		inPlace := op.Type == "read_state" || op.Type == "coreml_update_state" || op.Type == "slice_update" && state[op.Value("x")]
		var inner int64
		for _, b := range op.Blocks {
			inner = max(inner, activations(&mil.Function{Body: b}))
		}
		for _, v := range op.Results {
			switch {
			case inPlace:
				state[v] = true
			case v.Type.Kind == mil.TensorKind && !out[v]:
				n := size(v.Type)
				alive += n
				free[max(last[v], i)] += n
			}
		}
		most = max(most, alive+inner)
		alive -= free[i]
	}
	return most
}

// encodings sums weights up by how they are stored, the largest first. A piece
// that several weights share counts for the first of them.
func encodings(ts []stored.Tensor) []Encoding {
	by := map[string]*Encoding{}
	seen := map[mil.Weight]bool{}
	for i := range ts {
		t := &ts[i]
		name := t.Encoding.String()
		e := by[name]
		if e == nil {
			e = &Encoding{Name: name}
			by[name] = e
		}
		fresh := false
		for _, p := range t.Pieces {
			if !seen[p.Weight] {
				seen[p.Weight], fresh = true, true
				e.Bytes += p.Bytes
			}
		}
		if fresh {
			n, _ := t.Type.NumElements()
			e.Count++
			e.Elements += int64(n)
		}
	}
	out := []Encoding{}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		if by[name].Count > 0 {
			out = append(out, *by[name])
		}
	}
	slices.SortStableFunc(out, func(a, b Encoding) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return out
}
