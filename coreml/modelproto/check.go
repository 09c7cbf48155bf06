package modelproto

import (
	"errors"
	"fmt"
	"regexp"
	"slices"

	"anemone/coreml"
	"anemone/mil"
)

// CheckNames reports whether a model's description and its program speak of
// the same functions, inputs, outputs and states. It is what every reader
// asks for.
func CheckNames(m *coreml.Model) error {
	_, err := check(m, func(coreml.Feature, *mil.Value, string) error { return nil })
	return err
}

// Check reports whether a model can be written: besides [CheckNames], the
// types of description and program agree, the specification version has what
// the program uses, and no name is one that Core ML's text form reserves.
// Whether the operations are right is [mil.Verify]'s to say.
func Check(m *coreml.Model) error {
	if m.Program == nil {
		return errors.New("model without a program")
	}
	if err := checkStructure(m.Program); err != nil {
		return err
	}
	described, err := check(m, checkFeature)
	if err != nil {
		return err
	}
	if m.SpecVersion > maxSpec {
		return fmt.Errorf("specification version %d is unknown, the newest is %d", m.SpecVersion, maxSpec)
	}
	states := false
	for _, f := range m.Functions {
		states = states || len(f.States) > 0
	}
	if m.SpecVersion < 9 && (states || m.DefaultFunction != "") {
		return fmt.Errorf("specification version %d: states and several functions need version 9", m.SpecVersion)
	}
	for _, f := range m.Program.Functions {
		if !described[f.Name] {
			return fmt.Errorf("function %q of the program is not in the model's description", f.Name)
		}
		need, ok := specOf[f.Opset]
		if !ok {
			return fmt.Errorf("function %q: unknown opset %q", f.Name, f.Opset)
		}
		if m.SpecVersion < need {
			return fmt.Errorf("function %q: opset %s needs specification version %d, the model has %d", f.Name, f.Opset, need, m.SpecVersion)
		}
		if err := checkName(f.Name); err != nil {
			return fmt.Errorf("function %q: %w", f.Name, err)
		}
		for _, v := range f.Inputs {
			if err := checkName(v.Name); err != nil {
				return fmt.Errorf("function %q: input %q: %w", f.Name, v.Name, err)
			}
		}
		f.Body.Walk(func(op *mil.Operation) bool {
			vs := op.Results
			for _, b := range op.Blocks {
				vs = append(slices.Clip(vs), b.Inputs...)
			}
			for _, v := range vs {
				if err = checkName(v.Name); err != nil {
					err = fmt.Errorf("function %q: value %q of operation %s: %w", f.Name, v.Name, op.Type, err)
					return false
				}
			}
			return true
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// maxSpec is the newest specification version.
const maxSpec = 10

// specOf is the first specification version that has an opset.
var specOf = map[mil.Opset]int{mil.CoreML5: 6, mil.CoreML6: 7, mil.CoreML7: 8, mil.CoreML8: 9, "CoreML9": 10}

// nameRE is what the text form of a compiled program can hold.
var nameRE = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_@]*$`)

func checkName(name string) error {
	switch {
	case mil.Reserved(name):
		return errors.New("the name is a reserved word of Core ML; choose another")
	case !nameRE.MatchString(name):
		return errors.New("the name is not a letter or '_' followed by letters, digits, '_' and '@'")
	}
	return nil
}

// check pairs every feature with the program's value of that name, and
// returns the names of the described functions.
func check(m *coreml.Model, pair func(f coreml.Feature, v *mil.Value, what string) error) (map[string]bool, error) {
	if m.Program == nil {
		return nil, errors.New("model without a program")
	}
	switch {
	case len(m.Functions) == 0:
		return nil, errors.New("model without a function")
	case m.DefaultFunction == "" && (len(m.Functions) != 1 || m.Functions[0].Name != "main"):
		return nil, errors.New(`a model without a default function has one function, named "main"`)
	case m.DefaultFunction != "" && m.Function(m.DefaultFunction) == nil:
		return nil, fmt.Errorf("the default function %q does not exist", m.DefaultFunction)
	}
	described := map[string]bool{}
	for _, fd := range m.Functions {
		if described[fd.Name] {
			return nil, fmt.Errorf("function %q is described twice", fd.Name)
		}
		described[fd.Name] = true
		fn := m.Program.Function(fd.Name)
		if fn == nil || fn.Body == nil {
			return nil, fmt.Errorf("function %q is described but not in the program", fd.Name)
		}
		all := func(what string, left map[string]*mil.Value, features ...coreml.Feature) error {
			for _, f := range features {
				v := left[f.Name]
				if v == nil {
					return fmt.Errorf("function %q: %s %q of the description is not in the program, or twice in the description", fd.Name, what, f.Name)
				}
				delete(left, f.Name)
				if err := pair(f, v, what); err != nil {
					return fmt.Errorf("function %q: %s %q: %w", fd.Name, what, f.Name, err)
				}
			}
			return nil
		}
		none := func(what string, left map[string]*mil.Value) error {
			for name := range left {
				return fmt.Errorf("function %q: %s %q of the program is not in the description", fd.Name, what, name)
			}
			return nil
		}
		in := byName(fn.Inputs)
		out := byName(fn.Body.Outputs)
		if err := errors.Join(all("input", in, fd.Inputs...), all("state", in, fd.States...), all("output", out, fd.Outputs...)); err != nil {
			return nil, err
		}
		if err := errors.Join(none("input", in), none("output", out)); err != nil {
			return nil, err
		}
	}
	return described, nil
}

func byName(vs []*mil.Value) map[string]*mil.Value {
	m := make(map[string]*mil.Value, len(vs))
	for _, v := range vs {
		if v != nil {
			m[v.Name] = v
		}
	}
	return m
}

// checkFeature compares the type of a feature with that of its value. The
// dimensions that vary are unknown in the program.
func checkFeature(f coreml.Feature, v *mil.Value, what string) error {
	t := v.Type
	kind := mil.TensorKind
	if what == "state" {
		kind = mil.StateKind
	}
	if t.Kind != kind || t.DType != f.DType {
		return fmt.Errorf("described as %v, but %v in the program", f.DType, t)
	}
	if what == "output" {
		if len(f.Shape) > 0 && !t.Accepts(mil.TensorOf(f.DType, f.Shape...)) {
			return fmt.Errorf("described with shape %v, but %v in the program", f.Shape, t)
		}
		return nil
	}
	want := slices.Clone(f.Shape)
	for _, s := range f.Shapes {
		if len(s) != len(want) {
			return fmt.Errorf("enumerated shape %v is not of the rank of the default %v", s, f.Shape)
		}
		for i, n := range s {
			if n != f.Shape[i] {
				want[i] = mil.Dynamic
			}
		}
	}
	if len(f.Shapes) > 0 && !slices.ContainsFunc(f.Shapes, func(s []int) bool { return slices.Equal(s, f.Shape) }) {
		return fmt.Errorf("default shape %v is not among the enumerated %v", f.Shape, f.Shapes)
	}
	if len(f.Ranges) > 0 {
		if len(f.Ranges) != len(want) {
			return fmt.Errorf("%d ranges for %d dimensions", len(f.Ranges), len(want))
		}
		for i, r := range f.Ranges {
			if f.Shape[i] < r.Min || r.Max >= 0 && f.Shape[i] > r.Max {
				return fmt.Errorf("default shape %v: dimension %d is not within %d to %d", f.Shape, i, r.Min, r.Max)
			}
			if r.Min != r.Max {
				want[i] = mil.Dynamic
			}
		}
	}
	if !slices.Equal(t.Shape, want) {
		return fmt.Errorf("described with shape %v, so the program must have %v, not %v", f.Shape, mil.Type{Kind: kind, DType: f.DType, Shape: want}, t)
	}
	return nil
}

// checkStructure makes sure that the program can be walked: nothing in it is
// nil, and blocks are not nested without end.
func checkStructure(p *mil.Program) error {
	seen := map[string]bool{}
	for i, f := range p.Functions {
		switch {
		case f == nil:
			return fmt.Errorf("function %d of the program is nil", i)
		case seen[f.Name]:
			return fmt.Errorf("two functions are named %q", f.Name)
		case slices.Contains(f.Inputs, nil):
			return fmt.Errorf("function %q: an input is nil", f.Name)
		}
		seen[f.Name] = true
		if err := checkBlock(f.Body, 0); err != nil {
			return fmt.Errorf("function %q: %w", f.Name, err)
		}
	}
	return nil
}

func checkBlock(b *mil.Block, depth int) error {
	const maxDepth = 64
	switch {
	case b == nil:
		return errors.New("a block is nil")
	case depth > maxDepth:
		return fmt.Errorf("blocks are nested more than %d deep", maxDepth)
	case slices.Contains(b.Inputs, nil), slices.Contains(b.Outputs, nil):
		return errors.New("an input or output of a block is nil")
	}
	for i, op := range b.Ops {
		if op == nil {
			return fmt.Errorf("operation %d is nil", i)
		}
		bad := slices.Contains(op.Results, nil)
		for _, a := range op.Args {
			bad = bad || slices.Contains(a.Values, nil)
		}
		for _, a := range op.Attributes {
			bad = bad || a.Value == nil
		}
		if bad {
			return fmt.Errorf("operation %d (%s %q): a result, argument or attribute is nil", i, op.Type, op.Name)
		}
		for _, n := range op.Blocks {
			if err := checkBlock(n, depth+1); err != nil {
				return fmt.Errorf("operation %d (%s %q): %w", i, op.Type, op.Name, err)
			}
		}
	}
	return nil
}
