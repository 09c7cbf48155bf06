package mil

import (
	"errors"
	"fmt"
)

// An Error says what is wrong with a program, and where.
type Error struct {
	Function string
	Op       string // type of the operation, "" for the function itself
	Name     string // of the operation or of its first result
	Err      error
}

func (e *Error) Error() string {
	if e.Op == "" {
		return fmt.Sprintf("function %q: %v", e.Function, e.Err)
	}
	return fmt.Sprintf("function %q: %s %q: %v", e.Function, e.Op, e.Name, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// ErrUnknownOp is wrapped by the error for an operation that is not in the
// table.
var ErrUnknownOp = errors.New("unknown operation")

// Verify checks that every function of p is well formed: every operation is
// in the table, in the operation set of the function, and has the arguments
// that it requires, of fitting types; every value is defined before it is
// used and names are unique; declared result types are what the operands
// give; constants hold what their types say; states are used as states; the
// blocks of control flow take and give what they should. It returns the
// first [*Error].
func Verify(p *Program) error {
	if len(p.Functions) == 0 {
		return errors.New("program has no functions")
	}
	seen := map[string]bool{}
	for _, f := range p.Functions {
		if seen[f.Name] {
			return fmt.Errorf("two functions are named %q", f.Name)
		}
		seen[f.Name] = true
		if err := VerifyFunction(f); err != nil {
			return err
		}
	}
	return nil
}

// VerifyFunction checks one function; see [Verify].
func VerifyFunction(f *Function) error {
	v := verifier{f: f, defined: map[*Value]bool{}, names: map[string]bool{}}
	if f.Body == nil {
		return v.fail(nil, errors.New("has no body"))
	}
	if _, ok := f.Opset.version(); !ok && f.Opset != "" {
		return v.fail(nil, fmt.Errorf("operation set is %q, want CoreML5 to CoreML8", string(f.Opset)))
	}
	for _, in := range f.Inputs {
		if in.Type.Kind != TensorKind && in.Type.Kind != StateKind {
			return v.fail(nil, fmt.Errorf("input %q is a %v, want a tensor or a state", in.Name, in.Type))
		}
		if err := v.define(in); err != nil {
			return v.fail(nil, fmt.Errorf("input: %w", err))
		}
	}
	return v.block(f.Body)
}

type verifier struct {
	f       *Function
	defined map[*Value]bool
	names   map[string]bool
	depth   int // of nested blocks
}

// maxDepth is a bound on blocks in blocks, far beyond what people write.
const maxDepth = 100

func (v *verifier) fail(op *Operation, err error) error {
	var at *Error
	if errors.As(err, &at) {
		return err
	}
	e := &Error{Function: v.f.Name, Err: err}
	if op != nil {
		e.Op, e.Name = op.Type, op.Name
		if e.Name == "" && len(op.Results) > 0 {
			e.Name = op.Results[0].Name
		}
	}
	return e
}

func (v *verifier) define(x *Value) error {
	switch {
	case x == nil:
		return errors.New("value is nil")
	case x.Name == "":
		return errors.New("value has no name")
	case v.names[x.Name]:
		return fmt.Errorf("value %q is defined twice", x.Name)
	}
	if err := checkType(x.Type); err != nil {
		return fmt.Errorf("value %q: %w", x.Name, err)
	}
	v.names[x.Name] = true
	v.defined[x] = true
	return nil
}

func (v *verifier) block(b *Block) error {
	if b == nil {
		return v.fail(nil, errors.New("block is nil"))
	}
	if v.depth++; v.depth > maxDepth {
		return v.fail(nil, fmt.Errorf("blocks are nested more than %d deep", maxDepth))
	}
	defer func() { v.depth-- }()
	var mine []*Value
	add := func(x *Value) error {
		mine = append(mine, x)
		return v.define(x)
	}
	for _, in := range b.Inputs {
		if err := add(in); err != nil {
			return v.fail(nil, fmt.Errorf("block input: %w", err))
		}
	}
	for _, op := range b.Ops {
		if op == nil {
			return v.fail(nil, errors.New("operation is nil"))
		}
		if err := v.op(op); err != nil {
			return v.fail(op, err)
		}
		for _, r := range op.Results {
			if err := add(r); err != nil {
				return v.fail(op, err)
			}
		}
	}
	for _, out := range b.Outputs {
		if out == nil || !v.defined[out] {
			return v.fail(nil, fmt.Errorf("output %s is not defined", nameOf(out)))
		}
	}
	if b != v.f.Body { // values of a nested block end with it
		for _, x := range mine {
			delete(v.defined, x)
			delete(v.names, x.Name)
		}
	}
	return nil
}

func nameOf(v *Value) string {
	if v == nil {
		return "nil"
	}
	return fmt.Sprintf("%q", v.Name)
}

func (v *verifier) op(op *Operation) error {
	d, err := LookupOpIn(op.Type, v.f.Opset)
	if err != nil {
		return err
	}
	if len(op.Blocks) > 0 && op.Type != "cond" && op.Type != "while_loop" {
		return fmt.Errorf("has %d blocks, want none", len(op.Blocks))
	}
	for _, a := range op.Args {
		for _, x := range a.Values {
			switch {
			case x == nil:
				return fmt.Errorf("argument %q is nil", a.Name)
			case x.Name == "" && x.Op == nil: // immediate
				if err := checkConst(x); err != nil {
					return fmt.Errorf("argument %q: %w", a.Name, err)
				}
			case !v.defined[x]:
				return fmt.Errorf("argument %q uses %q, which is not defined before", a.Name, x.Name)
			}
		}
	}
	for _, a := range op.Attributes {
		if a.Value == nil {
			return fmt.Errorf("attribute %q is nil", a.Name)
		}
		if err := checkConst(a.Value); err != nil {
			return fmt.Errorf("attribute %q: %w", a.Name, err)
		}
	}
	for _, b := range op.Blocks {
		if err := v.block(b); err != nil {
			return err
		}
	}
	if op.Type == "const" {
		if len(op.Results) != 1 || op.Results[0] == nil {
			return errors.New("const must have one result")
		}
		return checkConst(op.Results[0])
	}
	types, err := d.Infer(op)
	if err != nil {
		return err
	}
	if len(op.Results) != len(types) {
		return fmt.Errorf("has %d results, want %d", len(op.Results), len(types))
	}
	for i, r := range op.Results {
		if r == nil {
			return errors.New("result is nil")
		}
		if !r.Type.Accepts(types[i]) {
			return fmt.Errorf("result %q is declared %v, but the operands give %v", r.Name, r.Type, types[i])
		}
	}
	return nil
}

// checkType checks that a type is one at all.
func checkType(t Type) error {
	switch t.Kind {
	case TensorKind, StateKind:
		if t.DType == InvalidDType || t.DType >= numDTypes {
			return fmt.Errorf("type has no element type")
		}
		for _, d := range t.Shape {
			if d < Dynamic {
				return fmt.Errorf("type has a dimension of %d", d)
			}
		}
	case ListKind, DictKind, TupleKind:
		if n := len(t.Elems); t.Kind == ListKind && n != 1 || t.Kind == DictKind && n != 2 {
			return fmt.Errorf("type %v has %d types of elements", t, n)
		}
		for _, e := range t.Elems {
			if err := checkType(e); err != nil {
				return err
			}
		}
	default:
		return errors.New("has no type")
	}
	return nil
}

// checkConst checks that a constant holds what its type says.
func checkConst(v *Value) error {
	switch {
	case v.Literal != nil && v.Weight != nil:
		return errors.New("constant is both a literal and a weight")
	case v.Weight != nil:
		t := v.Weight.Type()
		if _, ok := t.ByteSize(); !ok || t.Kind != TensorKind {
			return fmt.Errorf("weight has the type %v, which cannot be stored", t)
		}
		if !t.Equal(v.Type) {
			return fmt.Errorf("constant is declared %v, its weight is %v", v.Type, t)
		}
		return nil
	case v.Literal == nil:
		return errors.New("constant has no value")
	}
	if !v.Literal.Type.Equal(v.Type) {
		return fmt.Errorf("constant is declared %v, its value is %v", v.Type, v.Literal.Type)
	}
	return v.Literal.check()
}

func (l *Literal) check() error {
	if l.Type.Kind != TensorKind {
		for _, i := range l.Items {
			if i == nil {
				return errors.New("literal has a nil element")
			}
			if err := i.check(); err != nil {
				return err
			}
		}
		return nil
	}
	n, ok := l.Type.NumElements()
	var have int
	switch d := l.Type.DType; {
	case d.IsFloat():
		have = len(l.Floats)
	case d.IsInt():
		have = len(l.Ints)
	case d == Bool:
		have = len(l.Bools)
	case d == String:
		have = len(l.Strings)
	}
	if !ok || have != n || l.Len() != have {
		return fmt.Errorf("literal of type %v holds %d elements", l.Type, l.Len())
	}
	if bits := l.Type.DType.Bits(); l.Type.DType.IsInt() && bits < 64 {
		low, high := int64(-1)<<(bits-1), int64(1)<<(bits-1)-1
		if l.Type.DType.IsUnsigned() {
			low, high = 0, int64(1)<<bits-1
		}
		for _, x := range l.Ints {
			if x < low || x > high {
				return fmt.Errorf("literal of type %v holds %d, outside %d to %d", l.Type, x, low, high)
			}
		}
	}
	return nil
}
