package mil

import (
	"fmt"
	"regexp"
	"strings"
)

// Builder makes one function, operation by operation. Its methods give
// values at once; the first error is kept and every later call does nothing,
// so that a graph reads as a formula and is checked once, by [Builder.Build].
//
// Literals become const operations, each distinct one once.
type Builder struct {
	f      *Function
	err    error
	names  map[string]int // uses of every name, for making unique ones
	consts map[string]*Value
	byW    map[Weight]*Value
	scope  string
}

// NewBuilder returns a builder of a function in the given operation set.
func NewBuilder(name string, opset Opset) *Builder {
	return &Builder{
		f:      &Function{Name: name, Opset: opset, Body: &Block{}},
		names:  map[string]int{},
		consts: map[string]*Value{},
		byW:    map[Weight]*Value{},
	}
}

// Reserved reports whether name cannot name a value, because it is a word
// of the text form.
func Reserved(name string) bool {
	if _, ok := ParseDType(name); ok {
		return true
	}
	switch name {
	case "any", "program", "func", "tensor", "list", "dict", "tuple", "true", "false", "state":
		return true
	}
	return false
}

var badName = regexp.MustCompile(`[^A-Za-z0-9_@]`)

// unique returns name, changed as little as needed to be a valid value name
// that is not taken.
func (b *Builder) unique(name string) string {
	name = badName.ReplaceAllString(name, "_")
	if name == "" || name[0] >= '0' && name[0] <= '9' || Reserved(name) {
		name = "_" + name
	}
	base := name
	for {
		n := b.names[base]
		b.names[base] = n + 1
		if n > 0 {
			name = fmt.Sprintf("%s_%d", base, n)
		}
		if n == 0 {
			return name
		}
		if _, taken := b.names[name]; !taken {
			b.names[name] = 1
			return name
		}
	}
}

// Scope sets a prefix for the names of the operations to come, such as
// "layers_3", and returns a function that restores the previous one.
func (b *Builder) Scope(name string) func() {
	old := b.scope
	if b.scope != "" {
		name = b.scope + "_" + name
	}
	b.scope = name
	return func() { b.scope = old }
}

// Fail records an error, unless there is one already.
func (b *Builder) Fail(err error) {
	if b.err == nil && err != nil {
		b.err = fmt.Errorf("function %q: %w", b.f.Name, err)
	}
}

// Err returns the first error.
func (b *Builder) Err() error { return b.err }

// Input declares a parameter. Its name is kept as it is.
func (b *Builder) Input(name string, t Type) *Value {
	v := &Value{Name: name, Type: t}
	if Reserved(name) || badName.MatchString(name) || name == "" || b.names[name] > 0 {
		b.Fail(fmt.Errorf("input cannot be named %q", name))
	}
	b.names[name]++
	b.f.Inputs = append(b.f.Inputs, v)
	return v
}

// Const returns the value of a literal. Equal literals give one value.
func (b *Builder) Const(l *Literal) *Value {
	key := fmt.Sprintf("%v|%v|%v|%v|%q", l.Type, l.Floats, l.Ints, l.Bools, l.Strings)
	if v := b.consts[key]; v != nil {
		return v
	}
	v := &Value{Name: b.unique(constName(l)), Type: l.Type, Literal: l}
	b.addConst(v)
	b.consts[key] = v
	return v
}

// constName describes a literal, so that a printed program can be read.
func constName(l *Literal) string {
	s := ""
	for i := range min(l.Len(), 6) {
		switch {
		case l.Ints != nil:
			s += fmt.Sprintf("_%d", l.Ints[i])
		case l.Floats != nil:
			s += fmt.Sprintf("_%.4g", l.Floats[i])
		case l.Bools != nil:
			s += map[bool]string{true: "_t", false: "_f"}[l.Bools[i]]
		case l.Strings != nil:
			s += "_" + l.Strings[i]
		}
	}
	return "c_" + l.Type.DType.String() + strings.ReplaceAll(s, "-", "m")
}

// Weight returns the value of a weight, named after what it holds. The same
// weight gives one value.
func (b *Builder) Weight(name string, w Weight) *Value {
	if v := b.byW[w]; v != nil {
		return v
	}
	v := &Value{Name: b.unique(name), Type: w.Type(), Weight: w}
	b.addConst(v)
	b.byW[w] = v
	return v
}

func (b *Builder) addConst(v *Value) {
	op := &Operation{Type: "const", Name: v.Name, Results: []*Value{v}}
	v.Op = op
	b.f.Body.Ops = append(b.f.Body.Ops, op)
}

// Constexpr adds an operation whose operands are immediates, such as
// constexpr_lut_to_dense, and returns its result under the given name.
func (b *Builder) Constexpr(typ, name string, args ...Arg) *Value {
	return first(b.add(typ, name, args))
}

// Op adds an operation and returns its result, named after the operation
// and the current scope.
func (b *Builder) Op(typ string, args ...Arg) *Value { return first(b.add(typ, "", args)) }

// OpAll adds an operation and returns all its results.
func (b *Builder) OpAll(typ string, args ...Arg) []*Value { return b.add(typ, "", args) }

// Named is like Op, but names the result.
func (b *Builder) Named(name, typ string, args ...Arg) *Value { return first(b.add(typ, name, args)) }

func first(v []*Value) *Value {
	if len(v) == 0 {
		return &Value{} // after an error: never used
	}
	return v[0]
}

func (b *Builder) add(typ, name string, args []Arg) []*Value {
	if b.err != nil {
		return nil
	}
	d, err := LookupOpIn(typ, b.f.Opset)
	if err != nil {
		b.Fail(err)
		return nil
	}
	op := &Operation{Type: typ}
	for _, a := range args {
		if len(a.Values) > 0 {
			op.Args = append(op.Args, a)
		}
	}
	op.SortArgs()
	types, err := d.Infer(op)
	if name == "" {
		name = typ
		if b.scope != "" {
			name = b.scope + "_" + typ
		}
	}
	if err != nil {
		b.Fail(&Error{Function: b.f.Name, Op: typ, Name: name, Err: err})
		return nil
	}
	for _, t := range types {
		op.Results = append(op.Results, &Value{Name: b.unique(name), Type: t, Op: op})
	}
	op.Name = name
	if len(op.Results) > 0 {
		op.Name = op.Results[0].Name
	}
	b.f.Body.Ops = append(b.f.Body.Ops, op)
	return op.Results
}

// Output makes v an output under the given name. An output name that v does
// not have yet is given to it; a parameter or constant is copied first.
func (b *Builder) Output(name string, v *Value) {
	if b.err != nil {
		return
	}
	if b.names[name] > 0 && v.Name != name {
		b.Fail(fmt.Errorf("output name %q is taken", name))
		return
	}
	if v.Op == nil || v.IsConst() || b.isOutput(v) {
		v = b.Named(name, "identity", A("x", v))
	}
	if v.Name != name {
		b.names[name]++
		v.Name = name
	}
	b.f.Body.Outputs = append(b.f.Body.Outputs, v)
}

func (b *Builder) isOutput(v *Value) bool {
	for _, o := range b.f.Body.Outputs {
		if o == v {
			return true
		}
	}
	return false
}

// Build returns the finished function, or the first error.
func (b *Builder) Build() (*Function, error) {
	if b.err != nil {
		return nil, b.err
	}
	if err := VerifyFunction(b.f); err != nil {
		return nil, err
	}
	return b.f, nil
}
