package milproto

import (
	"errors"
	"fmt"

	"anemone/mil"
	"anemone/mil/milproto/milpb"
)

// Version is the version of ML Programs that this package reads and writes.
const Version = 1

// BlobRef says where a weight is stored.
type BlobRef struct {
	// File is the name as the program has it, such as
	// "@model_path/weights/weight.bin".
	File string
	// Offset is that of the weight's record in the file.
	Offset uint64
}

// Encode returns the stored form of p. blob is asked where each weight is
// stored, every time a value refers to it; it may be nil if the program has
// no weights.
//
// Encode checks what the stored form needs (every value is defined before it
// is used, under a name of its own, and every literal fits its type), not
// that operations have the right arguments: that is [mil.Verify]'s.
func Encode(p *mil.Program, blob func(mil.Weight) (BlobRef, error)) (*milpb.Program, error) {
	e := &encoder{blob: blob}
	attrs, err := e.attributes(p.Attributes)
	if err != nil {
		return nil, err
	}
	out := &milpb.Program{Version: Version, DocString: p.Doc, Attributes: attrs, Functions: map[string]*milpb.Function{}}
	for _, f := range p.Functions {
		if f == nil || f.Name == "" {
			return nil, errors.New("function without a name")
		}
		if out.Functions[f.Name] != nil {
			return nil, fmt.Errorf("two functions named %q", f.Name)
		}
		if out.Functions[f.Name], err = e.function(f); err != nil {
			return nil, fmt.Errorf("function %q: %w", f.Name, err)
		}
	}
	return out, nil
}

type encoder struct {
	blob func(mil.Weight) (BlobRef, error)
}

// scope holds the values that are known at a point of a block.
type scope struct {
	outer *scope
	names map[string]*mil.Value
	pb    *milpb.Block // that is decoded, for messages
}

func newScope(outer *scope) *scope { return &scope{outer: outer, names: map[string]*mil.Value{}} }

func (s *scope) define(v *mil.Value) error {
	if v.Name == "" {
		return errors.New("value without a name")
	}
	if s.lookup(v.Name) != nil {
		return fmt.Errorf("value %q is defined twice", v.Name)
	}
	s.names[v.Name] = v
	return nil
}

func (s *scope) lookup(name string) *mil.Value {
	for ; s != nil; s = s.outer {
		if v := s.names[name]; v != nil {
			return v
		}
	}
	return nil
}

func (e *encoder) function(f *mil.Function) (*milpb.Function, error) {
	if f.Opset == "" {
		return nil, errors.New("no opset")
	}
	if f.Body == nil {
		return nil, errors.New("no body")
	}
	if len(f.Body.Inputs) != 0 {
		return nil, errors.New("its body has inputs of its own; they belong to the function")
	}
	s := newScope(nil)
	inputs, err := e.named(s, f.Inputs)
	if err != nil {
		return nil, err
	}
	attrs, err := e.attributes(f.Attributes)
	if err != nil {
		return nil, err
	}
	body, err := e.block(s, f.Body, 0)
	if err != nil {
		return nil, err
	}
	return &milpb.Function{
		Inputs: inputs, Opset: string(f.Opset), Attributes: attrs,
		BlockSpecializations: map[string]*milpb.Block{string(f.Opset): body},
	}, nil
}

// named defines values that have a name and a type.
func (e *encoder) named(s *scope, vs []*mil.Value) ([]*milpb.NamedValueType, error) {
	out := make([]*milpb.NamedValueType, len(vs))
	for i, v := range vs {
		if v == nil {
			return nil, fmt.Errorf("value %d is missing", i)
		}
		if err := s.define(v); err != nil {
			return nil, err
		}
		t, err := encodeType(v.Type, 0)
		if err != nil {
			return nil, fmt.Errorf("value %q: %w", v.Name, err)
		}
		out[i] = &milpb.NamedValueType{Name: v.Name, Type: t}
	}
	return out, nil
}

func (e *encoder) block(outer *scope, b *mil.Block, depth int) (*milpb.Block, error) {
	if depth > maxDepth {
		return nil, errDepth
	}
	if b == nil {
		return nil, errors.New("block is missing")
	}
	s := outer
	if depth > 0 {
		s = newScope(outer)
	}
	inputs, err := e.named(s, b.Inputs)
	if err != nil {
		return nil, err
	}
	attrs, err := e.attributes(b.Attributes)
	if err != nil {
		return nil, err
	}
	out := &milpb.Block{Inputs: inputs, Attributes: attrs}
	for i, op := range b.Ops {
		if op == nil {
			return nil, fmt.Errorf("operation %d is missing", i)
		}
		o, err := e.operation(s, op, depth)
		if err != nil {
			return nil, fmt.Errorf("operation %d (%s %q): %w", i, op.Type, op.Name, err)
		}
		out.Operations = append(out.Operations, o)
	}
	for i, v := range b.Outputs {
		name, err := e.use(s, v)
		if err != nil {
			return nil, fmt.Errorf("output %d: %w", i, err)
		}
		out.Outputs = append(out.Outputs, name)
	}
	return out, nil
}

// use returns the name under which v is known in s.
func (e *encoder) use(s *scope, v *mil.Value) (string, error) {
	switch {
	case v == nil:
		return "", errors.New("value is missing")
	case v.Name == "":
		return "", errors.New("value without a name")
	}
	switch s.lookup(v.Name) {
	case v:
		return v.Name, nil
	case nil:
		return "", fmt.Errorf("value %q is not defined before its use", v.Name)
	}
	return "", fmt.Errorf("another value than the one meant is named %q here", v.Name)
}

func (e *encoder) operation(s *scope, op *mil.Operation, depth int) (*milpb.Operation, error) {
	if op.Type == "" {
		return nil, errors.New("no type")
	}
	attrs, err := e.attributes(op.Attributes)
	if err != nil {
		return nil, err
	}
	if attrs == nil {
		attrs = map[string]*milpb.Value{}
	}
	own := func(name string, v *milpb.Value) error {
		if attrs[name] != nil {
			return fmt.Errorf("attribute %q is reserved", name)
		}
		attrs[name] = v
		return nil
	}
	if op.Name != "" {
		v, err := encodeLiteral(mil.Str(op.Name), 0)
		if err != nil {
			return nil, err
		}
		if err := own("name", v); err != nil {
			return nil, err
		}
	}
	if op.Type == "const" {
		if len(op.Results) != 1 || !op.Results[0].IsConst() || len(op.Args) != 0 {
			return nil, errors.New("want one result that holds a literal or a weight, and no argument")
		}
		r := op.Results[0]
		v, err := e.constant(r)
		if err != nil {
			return nil, err
		}
		if !r.Type.Equal(constType(r)) {
			return nil, fmt.Errorf("value %q of type %v holds a constant of type %v", r.Name, r.Type, constType(r))
		}
		if err := own("val", v); err != nil {
			return nil, err
		}
	} else {
		for _, r := range op.Results {
			if r.IsConst() {
				return nil, fmt.Errorf("value %q is a constant, but not the result of a const operation", r.Name)
			}
		}
	}
	out := &milpb.Operation{Type: op.Type, Attributes: attrs, Inputs: map[string]*milpb.Argument{}}
	for _, a := range op.Args {
		if a.Name == "" || out.Inputs[a.Name] != nil {
			return nil, fmt.Errorf("argument %q is given twice or has no name", a.Name)
		}
		arg := &milpb.Argument{}
		for _, v := range a.Values {
			b := &milpb.Argument_Binding{}
			if v != nil && v.Name == "" && v.IsConst() {
				c, err := e.constant(v)
				if err != nil {
					return nil, fmt.Errorf("argument %q: %w", a.Name, err)
				}
				b.Binding = &milpb.Argument_Binding_Value{Value: c}
			} else {
				name, err := e.use(s, v)
				if err != nil {
					return nil, fmt.Errorf("argument %q: %w", a.Name, err)
				}
				b.Binding = &milpb.Argument_Binding_Name{Name: name}
			}
			arg.Arguments = append(arg.Arguments, b)
		}
		out.Inputs[a.Name] = arg
	}
	for i, n := range op.Blocks {
		b, err := e.block(s, n, depth+1)
		if err != nil {
			return nil, fmt.Errorf("block %d: %w", i, err)
		}
		out.Blocks = append(out.Blocks, b)
	}
	if out.Outputs, err = e.named(s, op.Results); err != nil {
		return nil, err
	}
	return out, nil
}

func (e *encoder) attributes(as []mil.Attribute) (map[string]*milpb.Value, error) {
	if len(as) == 0 {
		return nil, nil
	}
	out := make(map[string]*milpb.Value, len(as))
	for _, a := range as {
		if a.Name == "" || out[a.Name] != nil {
			return nil, fmt.Errorf("attribute %q is given twice or has no name", a.Name)
		}
		v, err := e.constant(a.Value)
		if err != nil {
			return nil, fmt.Errorf("attribute %q: %w", a.Name, err)
		}
		out[a.Name] = v
	}
	return out, nil
}

func constType(v *mil.Value) mil.Type {
	if v.Weight != nil {
		return v.Weight.Type()
	}
	return v.Literal.Type
}

// constant returns the stored form of what v holds.
func (e *encoder) constant(v *mil.Value) (*milpb.Value, error) {
	switch {
	case !v.IsConst():
		return nil, errors.New("not a constant")
	case v.Literal != nil && v.Weight != nil:
		return nil, errors.New("both a literal and a weight")
	case v.Literal != nil:
		return encodeLiteral(v.Literal, 0)
	case e.blob == nil:
		return nil, errors.New("a weight, but there is no file of weights")
	}
	t := v.Weight.Type()
	pt, err := encodeType(t, 0)
	if err != nil {
		return nil, err
	}
	ref, err := e.blob(v.Weight)
	if err != nil {
		return nil, fmt.Errorf("weight of type %v: %w", t, err)
	}
	return &milpb.Value{Type: pt, Value: &milpb.Value_BlobFileValue{BlobFileValue: &milpb.Value_BlobFile{FileName: ref.File, Offset: ref.Offset}}}, nil
}
