package milproto

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"anemone/mil"
	"anemone/mil/milproto/milpb"
)

// DecodeOptions tells [Decode] what the program itself does not say.
type DecodeOptions struct {
	// Order names functions in the order they shall have; those it does not
	// name follow, by name.
	Order []string
	// Weight returns the weight of type t that is stored at ref. It is asked
	// once for each pair of place and type: values that refer to the same
	// one get the same weight. Without it a weight is an error.
	Weight func(ref BlobRef, t mil.Type) (mil.Weight, error)
}

// Decode returns the program that pb stores. pb is hostile until proven
// otherwise: what is malformed is an error that names the function, the
// operation and the value. The program may share memory with pb.
func Decode(pb *milpb.Program, opt DecodeOptions) (*mil.Program, error) {
	if v := pb.GetVersion(); v != Version {
		return nil, fmt.Errorf("ML Program of version %d, want %d", v, Version)
	}
	d := &decoder{opt: opt, weights: map[weightKey]mil.Weight{}}
	p := &mil.Program{Doc: pb.GetDocString()}
	var err error
	if p.Attributes, err = d.attributes(pb.GetAttributes()); err != nil {
		return nil, err
	}
	rest := maps.Clone(pb.GetFunctions())
	add := func(name string) error {
		f, err := d.function(name, rest[name])
		if err != nil {
			return fmt.Errorf("function %q: %w", name, err)
		}
		p.Functions = append(p.Functions, f)
		delete(rest, name)
		return nil
	}
	for _, name := range opt.Order {
		if _, ok := rest[name]; !ok {
			continue
		}
		if err := add(name); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(rest)) {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	return p, nil
}

type decoder struct {
	opt     DecodeOptions
	weights map[weightKey]mil.Weight
}

type weightKey struct {
	ref BlobRef
	typ string
}

func (d *decoder) function(name string, pb *milpb.Function) (*mil.Function, error) {
	if name == "" {
		return nil, errors.New("no name")
	}
	if pb.GetOpset() == "" {
		return nil, errors.New("no opset")
	}
	f := &mil.Function{Name: name, Opset: mil.Opset(pb.GetOpset())}
	s := newScope(nil)
	var err error
	if f.Inputs, err = d.named(s, pb.GetInputs(), nil); err != nil {
		return nil, fmt.Errorf("inputs: %w", err)
	}
	if f.Attributes, err = d.attributes(pb.GetAttributes()); err != nil {
		return nil, err
	}
	body, ok := pb.GetBlockSpecializations()[pb.GetOpset()]
	if !ok {
		return nil, fmt.Errorf("no block for its opset %q, only for %q", pb.GetOpset(), slices.Sorted(maps.Keys(pb.GetBlockSpecializations())))
	}
	if len(body.GetInputs()) != 0 {
		return nil, fmt.Errorf("its block has %d inputs of its own, want none", len(body.GetInputs()))
	}
	if f.Body, err = d.block(s, body, 0); err != nil {
		return nil, err
	}
	return f, nil
}

func (d *decoder) named(s *scope, pbs []*milpb.NamedValueType, op *mil.Operation) ([]*mil.Value, error) {
	var out []*mil.Value
	for _, pb := range pbs {
		t, err := decodeType(pb.GetType(), 0)
		if err != nil {
			return nil, fmt.Errorf("value %q: %w", pb.GetName(), err)
		}
		v := &mil.Value{Name: pb.GetName(), Type: t, Op: op}
		if err := s.define(v); err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

func (d *decoder) block(outer *scope, pb *milpb.Block, depth int) (*mil.Block, error) {
	if depth > maxDepth {
		return nil, errDepth
	}
	s := outer
	if depth > 0 {
		s = newScope(outer)
	}
	s.pb = pb
	b := &mil.Block{}
	var err error
	if b.Inputs, err = d.named(s, pb.GetInputs(), nil); err != nil {
		return nil, fmt.Errorf("inputs: %w", err)
	}
	if b.Attributes, err = d.attributes(pb.GetAttributes()); err != nil {
		return nil, err
	}
	for i, o := range pb.GetOperations() {
		op, err := d.operation(s, o, depth)
		if err != nil {
			return nil, fmt.Errorf("operation %d (%s%s): %w", i, o.GetType(), firstOutput(o), err)
		}
		b.Ops = append(b.Ops, op)
	}
	for i, name := range pb.GetOutputs() {
		v := s.lookup(name)
		if v == nil {
			return nil, fmt.Errorf("output %d: value %q is not defined", i, name)
		}
		b.Outputs = append(b.Outputs, v)
	}
	return b, nil
}

// firstOutput helps to find an operation: indices are hard to count.
func firstOutput(o *milpb.Operation) string {
	if len(o.GetOutputs()) == 0 {
		return ""
	}
	return fmt.Sprintf(" giving %q", o.GetOutputs()[0].GetName())
}

// undefined returns the error for the use of an unknown name.
func undefined(s *scope, name string) error {
	later := ""
	for ; s != nil && later == ""; s = s.outer {
		later = definedIn(s.pb, name)
	}
	return fmt.Errorf("value %q is not defined%s", name, later)
}

// definedIn says where in a block a name is defined, if anywhere.
func definedIn(pb *milpb.Block, name string) string {
	for i, o := range pb.GetOperations() {
		for _, r := range o.GetOutputs() {
			if r.GetName() == name {
				return fmt.Sprintf(" yet: operation %d (%s) defines it", i, o.GetType())
			}
		}
	}
	return ""
}

func (d *decoder) operation(s *scope, pb *milpb.Operation, depth int) (*mil.Operation, error) {
	op := &mil.Operation{Type: pb.GetType()}
	if op.Type == "" {
		return nil, errors.New("no type")
	}
	var val *mil.Value
	attrs, err := d.attributes(pb.GetAttributes())
	if err != nil {
		return nil, err
	}
	for _, a := range attrs {
		switch {
		case a.Name == "name":
			if l := a.Value.Literal; l == nil || !l.Type.IsScalar() || len(l.Strings) != 1 {
				return nil, fmt.Errorf("attribute \"name\" is of type %v, want a string", a.Value.Type)
			}
			op.Name = a.Value.Literal.Strings[0]
		case a.Name == "val" && op.Type == "const":
			val = a.Value
		default:
			op.Attributes = append(op.Attributes, a)
		}
	}
	inputs := pb.GetInputs()
	for _, name := range slices.Sorted(maps.Keys(inputs)) {
		if name == "" {
			return nil, errors.New("argument without a name")
		}
		a := mil.Arg{Name: name}
		for _, b := range inputs[name].GetArguments() {
			var v *mil.Value
			switch x := b.GetBinding().(type) {
			case *milpb.Argument_Binding_Name:
				if v = s.lookup(x.Name); v == nil {
					return nil, fmt.Errorf("argument %q: %w", name, undefined(s, x.Name))
				}
			case *milpb.Argument_Binding_Value:
				if v, err = d.constant(x.Value); err != nil {
					return nil, fmt.Errorf("argument %q: %w", name, err)
				}
			default:
				return nil, fmt.Errorf("argument %q is bound to nothing", name)
			}
			a.Values = append(a.Values, v)
		}
		op.Args = append(op.Args, a)
	}
	for i, b := range pb.GetBlocks() {
		n, err := d.block(s, b, depth+1)
		if err != nil {
			return nil, fmt.Errorf("block %d: %w", i, err)
		}
		op.Blocks = append(op.Blocks, n)
	}
	if op.Results, err = d.named(s, pb.GetOutputs(), op); err != nil {
		return nil, err
	}
	if op.Type != "const" {
		return op, nil
	}
	if val == nil || len(op.Results) != 1 || len(op.Args) != 0 {
		return nil, fmt.Errorf("want attribute \"val\", one result and no argument; found %d attributes, %d results, %d arguments", len(attrs), len(op.Results), len(op.Args))
	}
	r := op.Results[0]
	if !r.Type.Equal(val.Type) {
		return nil, fmt.Errorf("value %q of type %v is given a constant of type %v", r.Name, r.Type, val.Type)
	}
	r.Literal, r.Weight = val.Literal, val.Weight
	return op, nil
}

func (d *decoder) attributes(pb map[string]*milpb.Value) ([]mil.Attribute, error) {
	var out []mil.Attribute
	for _, name := range slices.Sorted(maps.Keys(pb)) {
		if name == "" {
			return nil, errors.New("attribute without a name")
		}
		v, err := d.constant(pb[name])
		if err != nil {
			return nil, fmt.Errorf("attribute %q: %w", name, err)
		}
		out = append(out, mil.Attribute{Name: name, Value: v})
	}
	return out, nil
}

func (d *decoder) constant(pb *milpb.Value) (*mil.Value, error) {
	t, err := decodeType(pb.GetType(), 0)
	if err != nil {
		return nil, err
	}
	v := &mil.Value{Type: t}
	switch x := pb.GetValue().(type) {
	case *milpb.Value_ImmediateValue:
		v.Literal, err = decodeLiteral(t, x.ImmediateValue, 0)
	case *milpb.Value_BlobFileValue:
		v.Weight, err = d.weight(BlobRef{x.BlobFileValue.GetFileName(), x.BlobFileValue.GetOffset()}, t)
	default:
		err = fmt.Errorf("value of type %v has no content", t)
	}
	return v, err
}

func (d *decoder) weight(ref BlobRef, t mil.Type) (mil.Weight, error) {
	fail := func(err error) (mil.Weight, error) {
		return nil, fmt.Errorf("weight in %q: %w", ref.File, err)
	}
	if n, ok := t.ByteSize(); !ok || n < 0 || t.Kind != mil.TensorKind {
		return fail(fmt.Errorf("offset %d: type %v cannot be stored there", ref.Offset, t))
	}
	key := weightKey{ref, t.String()}
	if w := d.weights[key]; w != nil {
		return w, nil
	}
	if d.opt.Weight == nil {
		return fail(errors.New("there is no file of weights"))
	}
	w, err := d.opt.Weight(ref, t)
	if err != nil {
		return fail(err)
	}
	if w == nil || !w.Type().Equal(t) {
		return fail(fmt.Errorf("offset %d: not of type %v", ref.Offset, t))
	}
	d.weights[key] = w
	return w, nil
}
