package mil

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"anemone/internal/float16"
)

// OpDef is the definition of an operation: one row of the table that the
// builder, the verifier and the executors read. An operation whose
// arguments or types changed has one OpDef, or form, for each change.
type OpDef struct {
	Name   string
	Params []Param
	// Results is the number of results; -1 if it depends on the operands.
	Results int
	// Since is the first operation set that has the operation in the form
	// described here.
	Since Opset
	// Gives says in words what types the results have.
	Gives string
	// Family is the part of the table that the operation is in, such as
	// "Reduction and sorting".
	Family string

	infer inferFunc
	older *OpDef // the form that this one replaced
}

// Param is a parameter of an operation.
type Param struct {
	Name     string
	Accepts  Class
	Optional bool
	Variadic bool // any number of values
	Const    bool // known before the program runs
	// Group names parameters that must have one element type, as "T". It is
	// empty for the others.
	Group string
	// Values are the allowed ones of a string; nil if any will do. With
	// AnyCase upper and lower case are the same.
	Values  []string
	AnyCase bool
	// Default is the value of an absent optional argument, if it is the
	// same for all operands; nil otherwise. See [OpDef.Default].
	Default *Literal
	// Absent says in words what an absent optional argument means, if
	// Default does not.
	Absent string
	// Since is the first operation set in which the operation has the
	// parameter.
	Since Opset

	def     func(*call) *Literal
	dropped bool // of a newer form: no longer there
}

// Class is a set of types that a parameter accepts: a bit for each element
// type of a tensor, and one for each other kind of value.
type Class uint64

// Classes of parameter types. Those of the table are often narrower.
const (
	States Class = 1 << (63 - iota) // a state
	Lists                           // a list
	Dicts                           // a dictionary

	Booleans Class = 1 << Bool               // bool
	Strings  Class = 1 << String             // string
	Floats   Class = 1<<Float16 | 1<<Float32 // fp16, fp32
	Integers Class = 1<<(UInt64+1) - 1<<Int4 // any integer type
	Numbers        = Floats | Integers       // Floats or Integers
	Any      Class = 1<<numDTypes - 1<<Bool  // a tensor of any element type
)

// classOf returns the class of tensors of the given element types.
func classOf(ds ...DType) (c Class) {
	for _, d := range ds {
		c |= 1 << d
	}
	return c
}

// DTypes returns the element types that tensors of c may have.
func (c Class) DTypes() (ds []DType) {
	for d := Bool; d < numDTypes; d++ {
		if c&(1<<d) != 0 {
			ds = append(ds, d)
		}
	}
	return ds
}

// String returns what c accepts, such as "fp16 or fp32 tensor".
func (c Class) String() string {
	var s []string
	switch t := c &^ (States | Lists | Dicts); t {
	case 0:
	case Any:
		s = append(s, "tensor")
	case Integers:
		s = append(s, "integer tensor")
	case Numbers:
		s = append(s, "tensor of numbers")
	case Strings:
		s = append(s, "string")
	default:
		s = append(s, listing(t.DTypes(), "or")+" tensor")
	}
	for _, k := range []struct {
		c    Class
		name string
	}{{States, "state"}, {Lists, "list"}, {Dicts, "dictionary"}} {
		if c&k.c != 0 {
			s = append(s, k.name)
		}
	}
	return listing(s, "or")
}

// listing joins words as in "a, b or c".
func listing[T any](words []T, last string) string {
	var b strings.Builder
	for i, w := range words {
		switch {
		case i == 0:
		case i == len(words)-1:
			b.WriteString(" " + last + " ")
		default:
			b.WriteString(", ")
		}
		fmt.Fprint(&b, w)
	}
	return b.String()
}

// Contains reports whether t belongs to c.
func (c Class) Contains(t Type) bool {
	switch t.Kind {
	case TensorKind:
		return t.DType < numDTypes && c&(1<<t.DType) != 0
	case StateKind:
		return c&States != 0
	case ListKind:
		return c&Lists != 0
	case DictKind:
		return c&Dicts != 0
	}
	return false
}

// Param returns the named parameter, or nil.
func (d *OpDef) Param(name string) *Param {
	for i := range d.Params {
		if d.Params[i].Name == name {
			return &d.Params[i]
		}
	}
	return nil
}

// Older returns the form that d replaced; nil if there is none.
func (d *OpDef) Older() *OpDef { return d.older }

// Default returns the value that an absent optional argument of op has; nil
// if it has none (the operation then does without it, see [Param.Absent]).
func (d *OpDef) Default(op *Operation, name string) *Literal {
	p := d.Param(name)
	switch {
	case p == nil || !p.Optional:
		return nil
	case p.def != nil:
		return p.def(&call{op, d})
	}
	return p.Default
}

// Infer returns the types of the results of op, which must have the
// arguments that its definition requires. A dimension that depends on values
// not known before the program runs is Dynamic.
func (d *OpDef) Infer(op *Operation) ([]Type, error) {
	if err := d.checkArgs(op); err != nil {
		return nil, err
	}
	types, err := d.infer(&call{op, d})
	if err != nil {
		return nil, err
	}
	for _, t := range types {
		if t.Kind != TensorKind {
			continue
		}
		if t.Rank() > maxRank {
			return nil, fmt.Errorf("result has rank %d, more than %d", t.Rank(), maxRank)
		}
		if _, ok := t.NumElements(); !ok && t.Static() {
			return nil, fmt.Errorf("result %v is too large", t)
		}
	}
	return types, nil
}

// maxRank is a bound on the ranks of operands and results. Core ML's tensors
// have at most five dimensions, tables of constexpr operations two more.
const maxRank = 32

// args returns the values bound to a parameter, as arguments or, as the
// constexpr operations before iOS 18 have them, as attributes.
func (p *Param) args(op *Operation) []*Value {
	vals := op.Arg(p.Name)
	if vals == nil && p.Const {
		if v := op.Attr(p.Name); v != nil {
			vals = []*Value{v}
		}
	}
	return vals
}

// checkArgs holds the arguments of op to the parameters of d.
func (d *OpDef) checkArgs(op *Operation) error {
	type arg struct {
		name string
		t    Type
	}
	first := map[string]arg{} // of each group
	for i := range d.Params {
		p := &d.Params[i]
		vals := p.args(op)
		if len(vals) == 0 {
			if p.Optional {
				continue
			}
			return fmt.Errorf("argument %q is missing (want a %v)", p.Name, p.Accepts)
		}
		if len(vals) > 1 && !p.Variadic {
			return fmt.Errorf("argument %q has %d values, want one", p.Name, len(vals))
		}
		for _, v := range vals {
			if v == nil {
				return fmt.Errorf("argument %q is nil", p.Name)
			}
			if err := p.check(v); err != nil {
				return err
			}
			if p.Group == "" {
				continue
			}
			if f, ok := first[p.Group]; !ok {
				first[p.Group] = arg{p.Name, v.Type}
			} else if f.t.DType != v.Type.DType && !p.isDefault(v) {
				return fmt.Errorf("argument %q is a %v, but %q is a %v: want one element type", p.Name, v.Type, f.name, f.t)
			}
		}
	}
	for _, a := range op.Args {
		if d.Param(a.Name) != nil {
			continue
		}
		if newest, ok := opTable[d.Name]; ok {
			if p := newest.Param(a.Name); p != nil && d.Since.Before(p.Since) {
				return fmt.Errorf("argument %q: %w: needs %v", a.Name, ErrLaterOp, p.Since.name())
			}
		}
		for o := d.older; o != nil; o = o.older {
			if o.Param(a.Name) != nil {
				return fmt.Errorf("argument %q is no longer there since %v", a.Name, d.Since.name())
			}
		}
		return fmt.Errorf("unknown argument %q (known: %s)", a.Name, d.paramNames())
	}
	return nil
}

// check holds one value to a parameter.
func (p *Param) check(v *Value) error {
	if !p.Accepts.Contains(v.Type) {
		return fmt.Errorf("argument %q is a %v, want a %v", p.Name, v.Type, p.Accepts)
	}
	if v.Type.Rank() > maxRank {
		return fmt.Errorf("argument %q has rank %d, more than %d", p.Name, v.Type.Rank(), maxRank)
	}
	if p.Const && !v.isKnown() {
		return fmt.Errorf("argument %q must be a constant, got value %q", p.Name, v.Name)
	}
	if p.Values != nil && v.Literal != nil {
		for _, s := range v.Literal.Strings {
			if !slices.ContainsFunc(p.Values, func(w string) bool { return w == s || p.AnyCase && strings.EqualFold(w, s) }) {
				return fmt.Errorf("argument %q is %q, want %s", p.Name, s, listing(quoted(p.Values), "or"))
			}
		}
	}
	return nil
}

func quoted(s []string) []string {
	q := make([]string, len(s))
	for i := range s {
		q[i] = strconv.Quote(s[i])
	}
	return q
}

// isDefault reports whether v is the default value of p in either floating
// point type: coremltools writes defaults as fp32, whatever the type of the
// other operands.
func (p *Param) isDefault(v *Value) bool {
	l := v.Literal
	if p.Default == nil || l == nil || len(p.Default.Floats) != 1 || len(l.Floats) != 1 {
		return false
	}
	want := p.Default.Floats[0]
	return l.Floats[0] == want || l.Floats[0] == float64(float16.Round(float32(want)))
}

// isKnown reports whether v is known before the program runs: a constant, or
// computed from nothing else.
func (v *Value) isKnown() bool {
	budget := 1000 // so that no program makes this slow
	return v.known(&budget)
}

func (v *Value) known(budget *int) bool {
	if v.IsConst() {
		return true
	}
	op := v.Op
	if *budget--; op == nil || *budget < 0 {
		return false
	}
	if strings.HasPrefix(op.Type, "constexpr_") {
		return true
	}
	if len(op.Blocks) > 0 || len(op.Args) == 0 || op.Type == "read_state" || strings.HasPrefix(op.Type, "random_") {
		return false
	}
	for _, a := range op.Args {
		for _, x := range a.Values {
			if x == nil || !x.known(budget) {
				return false
			}
		}
	}
	return true
}

func (d *OpDef) paramNames() string {
	s := ""
	for i, p := range d.Params {
		if i > 0 {
			s += ", "
		}
		s += p.Name
	}
	return s
}

// ErrLaterOp is wrapped by the error for an operation, or an argument of
// one, that came with a later operation set than the function is written in.
var ErrLaterOp = errors.New("of a later operation set")

// LookupOp returns the newest form of the named operation.
func LookupOp(name string) (*OpDef, bool) {
	d, ok := opTable[name]
	return d, ok
}

// LookupOpIn returns the form that the named operation has in an operation
// set. An empty or a later set than the table knows has the newest form of
// every operation. The error is [ErrUnknownOp] or [ErrLaterOp].
func LookupOpIn(name string, s Opset) (*OpDef, error) {
	newest, ok := opTable[name]
	if !ok {
		return nil, fmt.Errorf("%w %q", ErrUnknownOp, name)
	}
	d := newest
	for d != nil && s.Before(d.Since) {
		d = d.older
	}
	if d == nil {
		for d = newest; d.older != nil; d = d.older {
		}
		return nil, fmt.Errorf("operation %w: %s needs %v, the function is in %v", ErrLaterOp, name, d.Since.name(), s.name())
	}
	return d, nil
}

// OpNames returns the names of all operations of the table, sorted.
func OpNames() []string { return slices.Sorted(maps.Keys(opTable)) }

// Families returns the names of the parts of the table, in the order in
// which a document shows them.
func Families() []string {
	names := make([]string, len(families))
	for i, f := range families {
		names[i] = f.name
	}
	return names
}

// Ops is the table of operations by name, each in its newest form. It is not
// to be changed.
func Ops() map[string]*OpDef { return opTable }

// version returns the number of an operation set; ok is false if s does not
// look like one.
func (s Opset) version() (n int, ok bool) {
	digits, ok := strings.CutPrefix(string(s), "CoreML")
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && n >= 1
}

// Before reports whether s is an earlier operation set than t. It is false
// if either is not an operation set.
func (s Opset) Before(t Opset) bool {
	n, ok := s.version()
	m, ok2 := t.version()
	return ok && ok2 && n < m
}

// System returns the first system that runs programs in the operation set,
// such as "iOS 18"; "" if that is not known.
func (s Opset) System() string {
	switch n, _ := s.version(); {
	case n >= 5 && n <= 8:
		return fmt.Sprintf("iOS %d", n+10)
	case n == 9:
		return "iOS 26"
	}
	return ""
}

// name returns s with its system, such as "CoreML8 (iOS 18)".
func (s Opset) name() string {
	if s.System() == "" {
		return string(s)
	}
	return fmt.Sprintf("%s (%s)", string(s), s.System())
}
