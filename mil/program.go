package mil

import (
	"cmp"
	"slices"
)

// Opset is the set of operations, and their meaning, that a function is
// written in: "CoreML5" (iOS 15) to "CoreML8" (iOS 18).
type Opset string

// Operation sets. States, several functions over one set of weights and
// grouped look-up tables need CoreML8.
const (
	CoreML5 Opset = "CoreML5" // iOS 15, macOS 12
	CoreML6 Opset = "CoreML6" // iOS 16, macOS 13
	CoreML7 Opset = "CoreML7" // iOS 17, macOS 14
	CoreML8 Opset = "CoreML8" // iOS 18, macOS 15
)

// Program is a set of functions over one file of weights.
type Program struct {
	Functions  []*Function
	Attributes []Attribute // such as buildInfo
	Doc        string
}

// Function returns the function with the given name, or nil.
func (p *Program) Function(name string) *Function {
	for _, f := range p.Functions {
		if f.Name == name {
			return f
		}
	}
	return nil
}

// Function is one entry point of a program.
type Function struct {
	Name  string
	Opset Opset
	// Inputs are the parameters, tensors and states, in the order of the
	// model's description.
	Inputs     []*Value
	Body       *Block
	Attributes []Attribute
}

// Input returns the parameter with the given name, or nil.
func (f *Function) Input(name string) *Value {
	for _, v := range f.Inputs {
		if v.Name == name {
			return v
		}
	}
	return nil
}

// Block is a sequence of operations. The operations of a nested block may
// use the values of the blocks around it.
type Block struct {
	Inputs     []*Value // parameters of a nested block; none in a function's body
	Ops        []*Operation
	Outputs    []*Value
	Attributes []Attribute
}

// Operation is one step of a block.
type Operation struct {
	Type    string // name in the table of operations, such as "conv"
	Name    string // of this operation; free text, may be empty
	Args    []Arg  // sorted by name
	Results []*Value
	Blocks  []*Block // of cond and while_loop
	// Attributes are the named constants other than the name (and the value
	// of a const): the constexpr operations before iOS 18 keep their
	// operands here.
	Attributes []Attribute
}

// Arg binds values to the parameter of an operation. A variadic parameter
// takes any number of values, the others exactly one.
type Arg struct {
	Name   string
	Values []*Value
}

// A is shorthand for an argument.
func A(name string, values ...*Value) Arg { return Arg{name, values} }

// Attribute is a named constant that is not an operand.
type Attribute struct {
	Name  string
	Value *Value // an immediate: no name, no operation
}

// Value is a typed value of a program: a parameter, the result of an
// operation, or an immediate constant (no name and no operation). It is
// referred to by pointer; its name only matters in stored forms.
type Value struct {
	Name string
	Type Type
	Op   *Operation // that gives it; nil for parameters and immediates
	// Constant value, if known before the program runs: the result of a
	// const operation or an immediate has exactly one of the two.
	Literal *Literal
	Weight  Weight
}

// IsConst reports whether v carries a literal or a weight.
func (v *Value) IsConst() bool { return v != nil && (v.Literal != nil || v.Weight != nil) }

// Arg returns the values bound to the named parameter, nil if it is absent.
func (op *Operation) Arg(name string) []*Value {
	for i := range op.Args {
		if op.Args[i].Name == name {
			return op.Args[i].Values
		}
	}
	return nil
}

// Value returns the single value bound to the named parameter, or nil.
func (op *Operation) Value(name string) *Value {
	if v := op.Arg(name); len(v) == 1 {
		return v[0]
	}
	return nil
}

// Attr returns the attribute with the given name, or nil.
func (op *Operation) Attr(name string) *Value {
	for _, a := range op.Attributes {
		if a.Name == name {
			return a.Value
		}
	}
	return nil
}

// Operand returns the named constant wherever it is kept: as an argument, or
// as an attribute as the constexpr operations before iOS 18 have it.
func (op *Operation) Operand(name string) *Value {
	if v := op.Value(name); v != nil {
		return v
	}
	return op.Attr(name)
}

// SortArgs puts the arguments and attributes in the order of their names,
// the canonical one of the stored forms.
func (op *Operation) SortArgs() {
	slices.SortStableFunc(op.Args, func(a, b Arg) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortStableFunc(op.Attributes, func(a, b Attribute) int { return cmp.Compare(a.Name, b.Name) })
}

// Walk calls visit for every operation of b and of the blocks nested in it,
// in execution order, until visit returns false.
func (b *Block) Walk(visit func(*Operation) bool) bool {
	for _, op := range b.Ops {
		if !visit(op) {
			return false
		}
		for _, n := range op.Blocks {
			if !n.Walk(visit) {
				return false
			}
		}
	}
	return true
}

// Weights calls visit once for every distinct weight of the program, in the
// order of first use: the order in which a writer stores them.
func (p *Program) Weights(visit func(*Value, Weight)) {
	seen := map[Weight]bool{}
	one := func(v *Value) {
		if v != nil && v.Weight != nil && !seen[v.Weight] {
			seen[v.Weight] = true
			visit(v, v.Weight)
		}
	}
	for _, f := range p.Functions {
		if f.Body == nil {
			continue
		}
		f.Body.Walk(func(op *Operation) bool {
			for _, a := range op.Args {
				for _, v := range a.Values {
					if v.Name == "" {
						one(v)
					}
				}
			}
			for _, a := range op.Attributes {
				one(a.Value)
			}
			for _, v := range op.Results {
				one(v)
			}
			return true
		})
	}
}
