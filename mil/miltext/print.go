package miltext

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"anemone/internal/float16"
	"anemone/mil"
)

// PrintOptions are choices of [Print].
type PrintOptions struct {
	// Dialect is the variant to write; the zero value is V13.
	Dialect Dialect
	// Blob is asked where each weight is stored, every time a value refers
	// to it. It may be nil if the program has no weights.
	Blob func(mil.Weight) (BlobRef, error)
}

// Print writes the text form of p: the bytes that Apple's compiler gives,
// functions, inputs, arguments and attributes sorted by name. p is not
// changed.
//
// Print checks what the text needs to be read again (every value is defined
// before it is used, under a name of its own that is a word of the text, and
// every literal fits its type), not that operations have the right arguments:
// that is [mil.Verify]'s. What p has and the text has no place for is an
// error where it means something (attributes of blocks) and left out where it
// does not (documentation).
func Print(w io.Writer, p *mil.Program, opt PrintOptions) error {
	if opt.Dialect == 0 {
		opt.Dialect = V13
	}
	if opt.Dialect != V10 && opt.Dialect != V13 {
		return fmt.Errorf("there is no %v of the text form", opt.Dialect)
	}
	pr := &printer{w: w, opt: opt}
	if err := pr.program(p); err != nil {
		return err
	}
	return pr.flush()
}

type printer struct {
	w     io.Writer
	opt   PrintOptions
	b     []byte // not yet written
	names map[string]*mil.Value
}

func (p *printer) flush() error {
	_, err := p.w.Write(p.b)
	p.b = p.b[:0]
	return err
}

// full writes what has gathered, once it is much.
func (p *printer) full() error {
	if len(p.b) < 64<<10 {
		return nil
	}
	return p.flush()
}

func (p *printer) s(s string) { p.b = append(p.b, s...) }

func (p *printer) spaces(n int) {
	for range n {
		p.b = append(p.b, ' ')
	}
}

// word writes a name, which must be one.
func (p *printer) word(what, name string) error {
	if !isName(name) {
		return fmt.Errorf("%s is named %q; the text form needs a letter or '_' followed by letters, digits, '_' and '@'", what, name)
	}
	p.s(name)
	return nil
}

func (p *printer) program(prog *mil.Program) error {
	p.s(p.opt.Dialect.String())
	p.s("\n")
	if len(prog.Attributes) > 0 {
		if err := p.attributes(prog.Attributes); err != nil {
			return err
		}
		p.s("\n")
	}
	p.s("{\n")
	fs := slices.Clone(prog.Functions)
	if slices.Contains(fs, nil) {
		return errors.New("a function is missing")
	}
	slices.SortStableFunc(fs, func(a, b *mil.Function) int { return cmp.Compare(a.Name, b.Name) })
	for i, f := range fs {
		if i > 0 && fs[i-1].Name == f.Name {
			return fmt.Errorf("two functions are named %q", f.Name)
		}
		if err := p.function(f); err != nil {
			return fmt.Errorf("function %q: %w", f.Name, err)
		}
	}
	p.s("}")
	return nil
}

func (p *printer) function(f *mil.Function) error {
	p.spaces(4)
	p.s("func ")
	if err := p.word("it", f.Name); err != nil {
		return err
	}
	opset, err := opsetName(f.Opset)
	if err != nil {
		return err
	}
	if f.Body == nil {
		return errors.New("no body")
	}
	if len(f.Body.Inputs) != 0 {
		return errors.New("its body has inputs of its own; they belong to the function")
	}
	p.s("<")
	p.s(opset)
	p.s(">")
	p.names = map[string]*mil.Value{}
	in := slices.Clone(f.Inputs)
	if slices.Contains(in, nil) {
		return errors.New("an input is missing")
	}
	slices.SortStableFunc(in, func(a, b *mil.Value) int { return cmp.Compare(a.Name, b.Name) })
	if err := p.params(in); err != nil {
		return err
	}
	p.s(" ")
	if len(f.Attributes) > 0 {
		if err := p.attributes(f.Attributes); err != nil {
			return err
		}
		p.s(" ")
	}
	if err := p.block(f.Body, 12, 8, 0); err != nil {
		return err
	}
	p.s(";\n")
	return p.full()
}

// params writes and defines the parameters of a function or block.
func (p *printer) params(vs []*mil.Value) error {
	p.s("(")
	for i, v := range vs {
		if i > 0 {
			p.s(", ")
		}
		if v == nil {
			return fmt.Errorf("input %d is missing", i)
		}
		if err := p.declare(v); err != nil {
			return err
		}
		if err := p.define(v); err != nil {
			return err
		}
	}
	p.s(")")
	return nil
}

// declare writes a type and a name.
func (p *printer) declare(v *mil.Value) error {
	if err := p.typ(v.Type, 0); err != nil {
		return fmt.Errorf("value %q: %w", v.Name, err)
	}
	p.s(" ")
	return p.word("a value", v.Name)
}

func (p *printer) define(v *mil.Value) error {
	if p.names[v.Name] != nil {
		return fmt.Errorf("value %q is defined twice", v.Name)
	}
	p.names[v.Name] = v
	return nil
}

// use writes the name of a value that is known here.
func (p *printer) use(v *mil.Value) error {
	switch {
	case v == nil:
		return errors.New("value is missing")
	case v.Name == "":
		return errors.New("value without a name")
	}
	switch p.names[v.Name] {
	case v:
		p.s(v.Name)
		return nil
	case nil:
		return fmt.Errorf("value %q is not defined before its use", v.Name)
	}
	return fmt.Errorf("another value than the one meant is named %q here", v.Name)
}

// block writes operations at one indentation and the end at another.
func (p *printer) block(b *mil.Block, indent, end, depth int) error {
	if len(b.Attributes) > 0 {
		return fmt.Errorf("the block has an attribute %q, which the text form has no place for", b.Attributes[0].Name)
	}
	p.s("{\n")
	for i, op := range b.Ops {
		if op == nil {
			return fmt.Errorf("operation %d is missing", i)
		}
		if err := p.operation(op, indent, depth); err != nil {
			return fmt.Errorf("operation %d (%s %q): %w", i, op.Type, op.Name, err)
		}
		if err := p.full(); err != nil {
			return err
		}
	}
	p.spaces(end)
	p.s("} -> (")
	for i, v := range b.Outputs {
		if i > 0 {
			p.s(", ")
		}
		if err := p.use(v); err != nil {
			return fmt.Errorf("output %d: %w", i, err)
		}
	}
	p.s(")")
	return nil
}

func (p *printer) operation(op *mil.Operation, indent, depth int) error {
	p.spaces(indent)
	for i, r := range op.Results {
		if i > 0 {
			p.s(", ")
		}
		if r == nil {
			return fmt.Errorf("result %d is missing", i)
		}
		if err := p.declare(r); err != nil {
			return err
		}
	}
	if len(op.Results) > 0 {
		p.s(" = ")
	}
	if err := p.word("the operation", op.Type); err != nil {
		return err
	}
	if err := p.arguments(op); err != nil {
		return err
	}
	attrs := slices.Clone(op.Attributes)
	for _, a := range attrs {
		if a.Name == "name" || a.Name == "val" && op.Type == "const" {
			return fmt.Errorf("attribute %q is reserved", a.Name)
		}
	}
	own := func(name string, v *mil.Value) { attrs = append(attrs, mil.Attribute{Name: name, Value: v}) }
	if op.Name != "" {
		own("name", mil.Imm(mil.Str(op.Name)))
	}
	if op.Type == "const" {
		if len(op.Results) != 1 || !op.Results[0].IsConst() || len(op.Args) != 0 {
			return errors.New("want one result that holds a literal or a weight, and no argument")
		}
		r := op.Results[0]
		if t := constType(r); !t.Equal(r.Type) {
			return fmt.Errorf("value %q of type %v holds a constant of type %v", r.Name, r.Type, t)
		}
		own("val", &mil.Value{Type: r.Type, Literal: r.Literal, Weight: r.Weight})
	} else {
		for _, r := range op.Results {
			if r.IsConst() {
				return fmt.Errorf("value %q is a constant, but not the result of a const operation", r.Name)
			}
		}
	}
	if len(attrs) > 0 {
		if err := p.attributes(attrs); err != nil {
			return err
		}
	}
	for i, n := range op.Blocks {
		if err := p.nested(n, indent+4, depth+1); err != nil {
			return fmt.Errorf("block %d: %w", i, err)
		}
	}
	for _, r := range op.Results {
		if err := p.define(r); err != nil {
			return err
		}
	}
	p.s(";\n")
	return nil
}

// nested writes a block of an operation, whose values end with it.
func (p *printer) nested(b *mil.Block, indent, depth int) error {
	if depth > maxDepth {
		return errDepth
	}
	if b == nil {
		return errors.New("it is missing")
	}
	p.s("\n")
	p.spaces(indent)
	if err := p.params(b.Inputs); err != nil {
		return err
	}
	p.s(" ")
	if err := p.block(b, indent+4, indent, depth); err != nil {
		return err
	}
	for _, v := range b.Inputs {
		delete(p.names, v.Name)
	}
	for _, op := range b.Ops {
		for _, r := range op.Results {
			delete(p.names, r.Name)
		}
	}
	return nil
}

func (p *printer) arguments(op *mil.Operation) error {
	args := op.Args
	byName := func(a, b mil.Arg) int { return cmp.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(args, byName) {
		args = slices.Clone(args)
		slices.SortStableFunc(args, byName)
	}
	var def *mil.OpDef
	if d, ok := mil.LookupOp(op.Type); ok {
		def = d
	}
	p.s("(")
	for i, a := range args {
		if i > 0 {
			p.s(", ")
			if args[i-1].Name == a.Name {
				return fmt.Errorf("argument %q is given twice", a.Name)
			}
		}
		if err := p.word("an argument", a.Name); err != nil {
			return err
		}
		p.s(" = ")
		many := len(a.Values) != 1
		if def != nil && !many {
			d := def.Param(a.Name)
			many = d != nil && d.Variadic
		}
		if many {
			p.s("(")
		}
		for k, v := range a.Values {
			if k > 0 {
				p.s(", ")
			}
			var err error
			if v != nil && v.Name == "" && v.IsConst() {
				err = p.constant(v)
			} else {
				err = p.use(v)
			}
			if err != nil {
				return fmt.Errorf("argument %q: %w", a.Name, err)
			}
		}
		if many {
			p.s(")")
		}
	}
	p.s(")")
	return nil
}

func (p *printer) attributes(as []mil.Attribute) error {
	byName := func(a, b mil.Attribute) int { return cmp.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(as, byName) {
		as = slices.Clone(as)
		slices.SortStableFunc(as, byName)
	}
	p.s("[")
	for i, a := range as {
		if i > 0 {
			p.s(", ")
			if as[i-1].Name == a.Name {
				return fmt.Errorf("attribute %q is given twice", a.Name)
			}
		}
		if err := p.word("an attribute", a.Name); err != nil {
			return err
		}
		p.s(" = ")
		if err := p.constant(a.Value); err != nil {
			return fmt.Errorf("attribute %q: %w", a.Name, err)
		}
	}
	p.s("]")
	return nil
}

func constType(v *mil.Value) mil.Type {
	if v.Weight != nil {
		return v.Weight.Type()
	}
	return v.Literal.Type
}

// constant writes what v holds: its type, and a literal or a reference.
func (p *printer) constant(v *mil.Value) error {
	switch {
	case !v.IsConst():
		return errors.New("not a constant")
	case v.Literal != nil && v.Weight != nil:
		return errors.New("both a literal and a weight")
	}
	t := constType(v)
	if err := p.typ(t, 0); err != nil {
		return err
	}
	p.s("(")
	if v.Literal != nil {
		if err := p.literal(v.Literal, t, 0); err != nil {
			return err
		}
		p.s(")")
		return nil
	}
	if _, ok := t.ByteSize(); !ok || t.Kind != mil.TensorKind {
		return fmt.Errorf("a weight cannot be of type %v", t)
	}
	if p.opt.Blob == nil {
		return errors.New("a weight, but there is no file of weights")
	}
	ref, err := p.opt.Blob(v.Weight)
	if err != nil {
		return fmt.Errorf("weight of type %v: %w", t, err)
	}
	p.s("BLOBFILE(path = ")
	p.scalar(mil.String)
	p.s("(")
	if err := p.quote(ref.File); err != nil {
		return err
	}
	p.s("), offset = ")
	p.scalar(mil.UInt64)
	p.s("(")
	p.b = strconv.AppendUint(p.b, ref.Offset, 10)
	p.s(")))")
	return nil
}

func (p *printer) scalar(d mil.DType) {
	if p.opt.Dialect == V10 {
		p.s("tensor<")
		p.s(d.String())
		p.s(", []>")
	} else {
		p.s(d.String())
	}
}

func (p *printer) dim(n int) {
	if n < 0 {
		p.s("?")
	} else {
		p.b = strconv.AppendInt(p.b, int64(n), 10)
	}
}

func (p *printer) typ(t mil.Type, depth int) error {
	if depth > maxDepth {
		return errDepth
	}
	elems := func(want int) error {
		if want >= 0 && len(t.Elems) != want {
			return fmt.Errorf("type of kind %d has %d element types", t.Kind, len(t.Elems))
		}
		for i, e := range t.Elems {
			if i > 0 {
				p.s(", ")
			}
			if err := p.typ(e, depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	switch t.Kind {
	case mil.TensorKind:
		if _, ok := mil.ParseDType(t.DType.String()); !ok {
			return fmt.Errorf("there is no element type %v", t.DType)
		}
		if len(t.Shape) > maxRank {
			return fmt.Errorf("type %v has %d dimensions, at most %d are possible", t, len(t.Shape), maxRank)
		}
		if len(t.Shape) == 0 {
			p.scalar(t.DType)
			return nil
		}
		p.s("tensor<")
		p.s(t.DType.String())
		p.s(", [")
		for i, n := range t.Shape {
			if i > 0 {
				p.s(", ")
			}
			p.dim(n)
		}
		p.s("]>")
		return nil
	case mil.StateKind:
		p.s("state<")
		if err := p.typ(t.Tensor(), depth+1); err != nil {
			return err
		}
	case mil.ListKind:
		p.s("list<")
		if err := elems(1); err != nil {
			return err
		}
		p.s(", ")
		p.dim(t.Length)
	case mil.DictKind:
		p.s("dict<")
		if err := elems(2); err != nil {
			return err
		}
	case mil.TupleKind:
		p.s("tuple<")
		if err := elems(-1); err != nil {
			return err
		}
	default:
		return errors.New("no type")
	}
	p.s(">")
	return nil
}

// literal writes l, which must be of type t; an unknown dimension or length
// of t is one that l decides.
func (p *printer) literal(l *mil.Literal, t mil.Type, depth int) error {
	if depth > maxDepth {
		return errDepth
	}
	if l == nil {
		return errors.New("a literal is missing")
	}
	if !t.Accepts(l.Type) {
		return fmt.Errorf("literal of type %v, want %v", l.Type, t)
	}
	if t.Kind == mil.TensorKind {
		if err := p.tensor(l); err != nil {
			return fmt.Errorf("literal of type %v: %w", t, err)
		}
		return p.full()
	}
	n := len(l.Items)
	wrong := func() error { return fmt.Errorf("literal of type %v has %d items", t, n) }
	if l.Len() != n {
		return wrong()
	}
	items := func(open, close string, elem func(i int) mil.Type) error {
		p.s(open)
		for i, it := range l.Items {
			if i > 0 {
				p.s(", ")
			}
			if err := p.literal(it, elem(i), depth+1); err != nil {
				return fmt.Errorf("item %d: %w", i, err)
			}
		}
		p.s(close)
		return nil
	}
	switch t.Kind {
	case mil.ListKind:
		if len(t.Elems) != 1 || t.Length >= 0 && t.Length != n {
			return wrong()
		}
		return items("[", "]", func(int) mil.Type { return t.Elems[0] })
	case mil.TupleKind:
		if len(t.Elems) != n {
			return wrong()
		}
		return items("(", ")", func(i int) mil.Type { return t.Elems[i] })
	case mil.DictKind:
		if len(t.Elems) != 2 || n%2 != 0 {
			return wrong()
		}
		p.s("{")
		for i := 0; i < n; i += 2 {
			if i > 0 {
				p.s(", ")
			}
			p.s("{")
			for k := range 2 {
				if k > 0 {
					p.s(", ")
				}
				if err := p.literal(l.Items[i+k], t.Elems[k], depth+1); err != nil {
					return fmt.Errorf("entry %d: %w", i/2, err)
				}
			}
			p.s("}")
		}
		p.s("}")
		return nil
	}
	return fmt.Errorf("a value of type %v cannot be written in the program", t)
}

func (p *printer) tensor(l *mil.Literal) error {
	n, ok := l.Type.NumElements()
	if !ok {
		return errors.New("the number of its elements is unknown or too large")
	}
	d := l.Type.DType
	have := 0
	var elem func(i int) error
	switch {
	case d == mil.Bool:
		have = len(l.Bools)
		elem = func(i int) error { p.b = strconv.AppendBool(p.b, l.Bools[i]); return nil }
	case d == mil.String:
		have = len(l.Strings)
		elem = func(i int) error { return p.quote(l.Strings[i]) }
	case d.IsFloat():
		have = len(l.Floats)
		elem = func(i int) error { return p.float(l.Floats[i], d) }
	case d.IsInt():
		have = len(l.Ints)
		elem = func(i int) error { return p.int(l.Ints[i], d) }
	}
	if have != n || l.Len() != n {
		return fmt.Errorf("it holds %d elements, want %d", l.Len(), n)
	}
	if n == 0 {
		return p.empty(l.Type.Shape)
	}
	next := 0
	var level func(shape []int) error
	level = func(shape []int) error {
		if len(shape) == 0 {
			next++
			if err := elem(next - 1); err != nil {
				return fmt.Errorf("element %d: %w", next-1, err)
			}
			return nil
		}
		p.s("[")
		for i := range shape[0] {
			if i > 0 {
				p.s(", ")
			}
			if err := level(shape[1:]); err != nil {
				return err
			}
			if err := p.full(); err != nil {
				return err
			}
		}
		p.s("]")
		return nil
	}
	return level(l.Type.Shape)
}

// empty writes the brackets of a tensor without elements. Their number is
// not bounded by what the tensor holds, so it is here.
func (p *printer) empty(shape []int) error {
	const max = 1 << 16
	n := 1
	for i, d := range shape {
		if d == 0 {
			shape = shape[:i+1]
			break
		}
		if n > max/d {
			return fmt.Errorf("a literal of shape %v has no elements, but more than %d brackets", shape, max)
		}
		n *= d
	}
	var level func(shape []int)
	level = func(shape []int) {
		p.s("[")
		for i := range shape[0] {
			if i > 0 {
				p.s(", ")
			}
			level(shape[1:])
		}
		p.s("]")
	}
	level(shape)
	return nil
}

func (p *printer) int(v int64, d mil.DType) error {
	if !intFits(v, d) {
		return fmt.Errorf("%d is out of range", v)
	}
	if d == mil.UInt64 {
		p.b = strconv.AppendUint(p.b, uint64(v), 10)
	} else {
		p.b = strconv.AppendInt(p.b, v, 10)
	}
	return nil
}

func intFits(v int64, d mil.DType) bool {
	bits := d.Bits()
	switch {
	case bits == 64:
		return true
	case d.IsUnsigned():
		return v >= 0 && v < 1<<bits
	}
	return v >= -1<<(bits-1) && v < 1<<(bits-1)
}

// roundFloat returns v rounded to d.
func roundFloat(v float64, d mil.DType) float64 {
	switch d {
	case mil.Float16:
		return float64(float16.Round(float32(v)))
	case mil.BFloat16:
		return float64(float16.BFloat16ToFloat32(float16.BFloat16FromFloat32(float32(v))))
	case mil.Float32:
		return float64(float32(v))
	}
	return v
}

// float writes v as C's %a: the shortest form in hexadecimal with a leading 1,
// and an exponent without leading zeros.
func (p *printer) float(v float64, d mil.DType) error {
	switch {
	case math.IsNaN(v):
		if math.Signbit(v) {
			p.s("-")
		}
		p.s("nan")
		return nil
	case math.IsInf(v, 0):
		if v < 0 {
			p.s("-")
		}
		p.s("inf")
		return nil
	}
	if r := roundFloat(v, d); r != v {
		return fmt.Errorf("%v is not an %v value (the nearest is %v)", v, d, r)
	}
	p.b = strconv.AppendFloat(p.b, v, 'x', -1, 64)
	// Go writes two digits of exponent at least.
	if n := len(p.b); p.b[n-2] == '0' && (p.b[n-3] == '+' || p.b[n-3] == '-') {
		p.b = append(p.b[:n-2], p.b[n-1])
	}
	return nil
}

// quote writes a string. Only what would end it or a line is escaped; no
// sample of Apple's shows how it escapes anything.
func (p *printer) quote(s string) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("string %q is not UTF-8", s)
	}
	p.s(`"`)
	for i := range len(s) {
		switch c := s[i]; c {
		case '"', '\\':
			p.b = append(p.b, '\\', c)
		case '\n':
			p.s(`\n`)
		case '\t':
			p.s(`\t`)
		case '\r':
			p.s(`\r`)
		default:
			p.b = append(p.b, c)
		}
	}
	p.s(`"`)
	return nil
}
