// Package inspect says what a model or a package holds, without running it:
// functions with their inputs, outputs and states, weights by encoding and
// what they weigh, and an estimate of the memory that running it takes.
//
// It reads the description and the program, never the weights.
package inspect

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"anemone/coreml"
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
	StateBytes int64 `json:"state_bytes"`
}

// Feature describes an input, output or state.
type Feature struct {
	Name   string  `json:"name"`
	Type   string  `json:"type"`
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
		shape = fmt.Sprint(f.Shape)
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
	for _, f := range m.Functions {
		r.Functions = append(r.Functions, function(m, f))
	}
	r.weights(m.Program)
	return r
}

func features(fs []coreml.Feature) []Feature {
	var out []Feature
	for _, f := range fs {
		out = append(out, Feature{f.Name, f.DType.String(), f.Shape, f.Shapes})
	}
	return out
}

func function(m *coreml.Model, d coreml.Function) Function {
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
	f.WeightBytes = bytesOf(&mil.Program{Functions: []*mil.Function{p}})
	return f
}

func bytesOf(p *mil.Program) (n int64) {
	p.Weights(func(_ *mil.Value, w mil.Weight) {
		size, _ := w.Type().ByteSize()
		n += size
	})
	return n
}

// weights groups the program's stored weights by how they are encoded.
func (r *Model) weights(p *mil.Program) {
	by := map[string]*Encoding{}
	seen := map[mil.Weight]bool{}
	add := func(name string, t mil.Type, stored ...*mil.Value) {
		e := by[name]
		if e == nil {
			e = &Encoding{Name: name}
			by[name] = e
		}
		fresh := false
		for _, v := range stored {
			if v != nil && v.Weight != nil && !seen[v.Weight] {
				seen[v.Weight], fresh = true, true
				n, _ := v.Weight.Type().ByteSize()
				e.Bytes += n
				r.WeightBytes += n
			}
		}
		if fresh {
			e.Count++
			n, _ := t.NumElements()
			e.Elements += int64(n)
		}
	}
	for _, f := range p.Functions {
		f.Body.Walk(func(op *mil.Operation) bool {
			switch {
			case len(op.Results) != 1:
			case op.Type == "const":
				if v := op.Results[0]; v.Weight != nil {
					add(v.Type.DType.String(), v.Type, v)
				}
			case strings.HasPrefix(op.Type, "constexpr_"):
				var stored []*mil.Value
				for _, a := range op.Args {
					stored = append(stored, a.Values...)
				}
				for _, a := range op.Attributes {
					stored = append(stored, a.Value)
				}
				for i, v := range stored { // constexpr operands may be consts
					if v.Weight == nil && v.Op != nil && v.Op.Type == "const" {
						stored[i] = v.Op.Results[0]
					}
				}
				add(encoding(op), op.Results[0].Type, stored...)
			}
			return true
		})
	}
	// const operands of constexpr operations would count twice but for seen.
	r.Weights = []Encoding{}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		if by[name].Count > 0 {
			r.Weights = append(r.Weights, *by[name])
		}
	}
	slices.SortStableFunc(r.Weights, func(a, b Encoding) int { return cmp.Compare(b.Bytes, a.Bytes) })
}

// encoding names the form of a constexpr operation.
func encoding(op *mil.Operation) string {
	kind := strings.TrimSuffix(strings.TrimPrefix(op.Type, "constexpr_"), "_to_dense")
	lut, t := op.Operand("lut"), op.Results[0].Type
	if lut == nil {
		return kind
	}
	s := lut.Type.Shape
	bits, entries := 0, 0
	switch {
	case len(s) >= 2 && len(s) == t.Rank()+2:
		entries = s[len(s)-2]
	case len(s) == 1:
		entries = s[0]
	}
	for 1<<bits < entries {
		bits++
	}
	name := fmt.Sprintf("lut%d", bits)
	groups := 1
	for _, g := range s[:max(0, len(s)-2)] {
		groups *= g
	}
	switch {
	case len(s) == 1 || groups == 1:
		return name + ", one table"
	case t.Rank() > 0 && s[0] == groups && groups > 0:
		return fmt.Sprintf("%s, %d rows per table", name, t.Shape[0]/groups)
	}
	return fmt.Sprintf("%s, %d tables", name, groups)
}
