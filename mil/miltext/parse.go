package miltext

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"anemone/mil"
)

// ParseOptions tells [Parse] what the text itself does not say.
type ParseOptions struct {
	// Weight returns the weight of type t that is stored at ref. It is asked
	// once for each pair of place and type: values that refer to the same
	// one get the same weight. Without it a weight is an error.
	Weight func(ref BlobRef, t mil.Type) (mil.Weight, error)
}

// An Error says what is wrong with a text, and where.
type Error struct {
	Line, Column int // from 1; columns count bytes
	Function     string
	Err          error
}

func (e *Error) Error() string {
	msg := e.Err.Error()
	if e.Function != "" {
		return fmt.Sprintf("line %d, column %d (function %q): %s", e.Line, e.Column, cut(e.Function, 100), cut(msg, 1000))
	}
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, cut(msg, 1000))
}

// cut keeps a name of a megabyte out of a message.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "..."
}

func (e *Error) Unwrap() error { return e.Err }

// ParseDialect returns the dialect that a text names in its first words.
func ParseDialect(text []byte) (Dialect, error) {
	p := &parser{b: text}
	d, err := p.header()
	if err != nil {
		return 0, p.where(err)
	}
	return d, nil
}

// Parse returns the program that a text holds. The text is hostile until
// proven otherwise: what is malformed is an [*Error] that names the place.
// Functions and their inputs come in the order of the text; whoever knows a
// better one, such as that of a model's description, sorts them. The program
// shares no memory with the text.
func Parse(text []byte, opt ParseOptions) (*mil.Program, error) {
	p := &parser{
		b: text, opt: opt,
		names:   map[string]*mil.Value{},
		words:   map[string]string{},
		weights: map[weightKey]mil.Weight{},
	}
	prog, err := p.program()
	if err != nil {
		return nil, p.where(err)
	}
	return prog, nil
}

type weightKey struct {
	ref BlobRef
	typ string
}

type parser struct {
	b   []byte
	at  int // next byte
	opt ParseOptions

	function string
	names    map[string]*mil.Value // known at this point of the function
	words    map[string]string     // that occur again and again
	weights  map[weightKey]mil.Weight
}

// posError is an error whose place is known better than by the next byte.
type posError struct {
	at  int
	err error
}

func (e *posError) Error() string { return e.err.Error() }
func (e *posError) Unwrap() error { return e.err }

// failAt returns an error at a place.
func failAt(at int, format string, args ...any) error {
	return &posError{at, fmt.Errorf(format, args...)}
}

// errAt gives err a place, unless it has one.
func (p *parser) errAt(at int, err error) error {
	var pe *posError
	if err == nil || errors.As(err, &pe) {
		return err
	}
	return &posError{at, err}
}

// where turns an error into one with line and column.
func (p *parser) where(err error) error {
	at := p.at
	var pe *posError
	if errors.As(err, &pe) {
		at = pe.at
	}
	at = min(at, len(p.b))
	head := p.b[:at]
	return &Error{
		Line:     bytes.Count(head, []byte{'\n'}) + 1,
		Column:   at - bytes.LastIndexByte(head, '\n'),
		Function: p.function,
		Err:      err,
	}
}

// skip moves to the next byte that is not white space.
func (p *parser) skip() {
	for p.at < len(p.b) {
		switch p.b[p.at] {
		case ' ', '\n', '\t', '\r':
			p.at++
		default:
			return
		}
	}
}

// peek returns the next byte that is not white space, 0 at the end.
func (p *parser) peek() byte {
	p.skip()
	if p.at < len(p.b) {
		return p.b[p.at]
	}
	return 0
}

// found describes what comes next, for messages.
func (p *parser) found() string {
	p.skip()
	rest := p.b[p.at:]
	if len(rest) == 0 {
		return "the end of the text"
	}
	n := 0
	for n < len(rest) && n < 24 && isNameByte(rest[n], false) {
		n++
	}
	if n == 0 {
		_, n = utf8.DecodeRune(rest)
	}
	return strconv.Quote(string(rest[:n]))
}

// accept moves over c if it is next.
func (p *parser) accept(c byte) bool {
	if p.peek() != c || p.at >= len(p.b) {
		return false
	}
	p.at++
	return true
}

func (p *parser) expect(c byte, where string) error {
	if p.accept(c) {
		return nil
	}
	return fmt.Errorf("want %q %s, found %s", string(rune(c)), where, p.found())
}

// name returns the name that comes next, as a part of the text.
func (p *parser) name(what string) ([]byte, error) {
	p.skip()
	start := p.at
	for p.at < len(p.b) && isNameByte(p.b[p.at], p.at == start) {
		p.at++
	}
	if p.at == start {
		return nil, fmt.Errorf("want %s, found %s", what, p.found())
	}
	return p.b[start:p.at], nil
}

// word returns a name of which there are few: the same text gives the same
// string.
func (p *parser) word(what string) (string, error) {
	b, err := p.name(what)
	if err != nil {
		return "", err
	}
	if s, ok := p.words[string(b)]; ok {
		return s, nil
	}
	s := string(b)
	p.words[s] = s
	return s, nil
}

// keyword moves over a word that must come next.
func (p *parser) keyword(want string) error {
	p.skip()
	at := p.at
	b, err := p.name(strconv.Quote(want))
	if err == nil && string(b) != want {
		p.at = at
		err = fmt.Errorf("want %q, found %s", want, p.found())
	}
	return err
}

func (p *parser) header() (Dialect, error) {
	if err := p.keyword("program"); err != nil {
		return 0, fmt.Errorf("not the text of an ML Program: %w", err)
	}
	if err := p.expect('(', `after "program"`); err != nil {
		return 0, err
	}
	p.skip()
	start := p.at
	for p.at < len(p.b) && p.at < start+16 && (p.b[p.at] >= '0' && p.b[p.at] <= '9' || p.b[p.at] == '.') {
		p.at++
	}
	var d Dialect
	switch v := string(p.b[start:p.at]); v {
	case "1.0":
		d = V10
	case "1.3":
		d = V13
	case "":
		return 0, fmt.Errorf("want the version of the text, found %s", p.found())
	default:
		return 0, failAt(start, "text of version %s; this program knows 1.0 and 1.3", v)
	}
	return d, p.expect(')', "after the version of the text")
}

func (p *parser) program() (*mil.Program, error) {
	if _, err := p.header(); err != nil {
		return nil, err
	}
	prog := &mil.Program{}
	var err error
	if prog.Attributes, err = p.attributes(); err != nil {
		return nil, err
	}
	if err := p.expect('{', "before the functions"); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for !p.accept('}') {
		if err := p.keyword("func"); err != nil {
			return nil, err
		}
		p.skip()
		at := p.at
		f, err := p.fn()
		if err != nil {
			return nil, err
		}
		p.function = ""
		if seen[f.Name] {
			return nil, failAt(at, "two functions are named %q", f.Name)
		}
		seen[f.Name] = true
		prog.Functions = append(prog.Functions, f)
	}
	if p.peek(); p.at != len(p.b) {
		return nil, fmt.Errorf("want the end of the text, found %s", p.found())
	}
	return prog, nil
}

func (p *parser) fn() (*mil.Function, error) {
	name, err := p.name("the name of a function")
	if err != nil {
		return nil, err
	}
	f := &mil.Function{Name: string(name)}
	p.function = f.Name
	if err := p.expect('<', "before the operation set"); err != nil {
		return nil, err
	}
	p.skip()
	at := p.at
	set, err := p.name("an operation set")
	if err != nil {
		return nil, err
	}
	if f.Opset, err = parseOpset(set); err != nil {
		return nil, p.errAt(at, err)
	}
	if err := p.expect('>', "after the operation set"); err != nil {
		return nil, err
	}
	p.names = map[string]*mil.Value{} // a new one: clearing a large map takes long
	if f.Inputs, err = p.params(); err != nil {
		return nil, err
	}
	if f.Attributes, err = p.attributes(); err != nil {
		return nil, err
	}
	if f.Body, err = p.block(0); err != nil {
		return nil, err
	}
	return f, p.expect(';', "after the function")
}

// params reads and defines the parameters of a function or block.
func (p *parser) params() ([]*mil.Value, error) {
	if err := p.expect('(', "before the parameters"); err != nil {
		return nil, err
	}
	var vs []*mil.Value
	for p.peek() != ')' || len(vs) > 0 {
		v, at, err := p.declaration()
		if err != nil {
			return nil, err
		}
		if err := p.define(v); err != nil {
			return nil, p.errAt(at, err)
		}
		vs = append(vs, v)
		if !p.accept(',') {
			break
		}
	}
	return vs, p.expect(')', "after the parameters")
}

// declaration reads a type and a name, and says where the name is.
func (p *parser) declaration() (*mil.Value, int, error) {
	t, err := p.typ(0)
	if err != nil {
		return nil, 0, err
	}
	p.skip()
	at := p.at
	name, err := p.name("the name of a value")
	if err != nil {
		return nil, 0, err
	}
	return &mil.Value{Name: string(name), Type: t}, at, nil
}

func (p *parser) define(v *mil.Value) error {
	if p.names[v.Name] != nil {
		return fmt.Errorf("value %q is defined twice", v.Name)
	}
	p.names[v.Name] = v
	return nil
}

// use returns the value whose name comes next.
func (p *parser) use() (*mil.Value, error) {
	p.skip()
	at := p.at
	name, err := p.name("the name of a value")
	if err != nil {
		return nil, err
	}
	if v := p.names[string(name)]; v != nil {
		return v, nil
	}
	return nil, p.undefined(at, name)
}

// undefined returns the error for the use of an unknown name. A value that
// is defined later is often the end of a cycle.
func (p *parser) undefined(at int, name []byte) error {
	later := ""
	for rest := at + len(name); ; {
		i := bytes.Index(p.b[rest:], name)
		if i < 0 {
			break
		}
		i += rest
		rest = i + len(name)
		// A definition is "type name =" or "type name,": a type ends in '>'
		// or is a word.
		after := bytes.TrimLeft(p.b[rest:min(rest+2, len(p.b))], " ")
		before := bytes.TrimRight(p.b[:i], " ")
		if len(before) == i || len(before) == 0 || len(after) == 0 || after[0] != '=' && after[0] != ',' {
			continue
		}
		if c := before[len(before)-1]; c == '>' || isNameByte(c, false) {
			later = fmt.Sprintf(" yet: line %d defines it", bytes.Count(p.b[:i], []byte{'\n'})+1)
			break
		}
	}
	return failAt(at, "value %q is not defined%s", name, later)
}

// block reads the operations of a block and its outputs.
func (p *parser) block(depth int) (*mil.Block, error) {
	if err := p.expect('{', "before the operations"); err != nil {
		return nil, err
	}
	b := &mil.Block{}
	for !p.accept('}') {
		op, err := p.operation(depth)
		if err != nil {
			return nil, err
		}
		b.Ops = append(b.Ops, op)
	}
	if err := p.expect('-', "after the operations"); err != nil {
		return nil, err
	}
	if p.at >= len(p.b) || p.b[p.at] != '>' {
		return nil, fmt.Errorf("want \"->\" after the operations, found %s", p.found())
	}
	p.at++
	if err := p.expect('(', "before the outputs"); err != nil {
		return nil, err
	}
	for p.peek() != ')' || len(b.Outputs) > 0 {
		v, err := p.use()
		if err != nil {
			return nil, err
		}
		b.Outputs = append(b.Outputs, v)
		if !p.accept(',') {
			break
		}
	}
	return b, p.expect(')', "after the outputs")
}

// nested reads a block of an operation, whose values end with it.
func (p *parser) nested(depth int) (*mil.Block, error) {
	if depth > maxDepth {
		return nil, errDepth
	}
	in, err := p.params()
	if err != nil {
		return nil, err
	}
	b, err := p.block(depth)
	if err != nil {
		return nil, err
	}
	b.Inputs = in
	for _, v := range in {
		delete(p.names, v.Name)
	}
	for _, op := range b.Ops {
		for _, r := range op.Results {
			delete(p.names, r.Name)
		}
	}
	return b, nil
}

func (p *parser) operation(depth int) (*mil.Operation, error) {
	p.skip()
	start := p.at
	op := &mil.Operation{}
	var places []int
	// Results, unless the first word is that of an operation: "name(".
	word, err := p.name("an operation or the type of a result")
	if err != nil {
		return nil, err
	}
	if p.peek() != '(' || isType(word) {
		p.at = start
		for {
			v, at, err := p.declaration()
			if err != nil {
				return nil, err
			}
			v.Op = op
			op.Results = append(op.Results, v)
			places = append(places, at)
			if !p.accept(',') {
				break
			}
		}
		if err := p.expect('=', "after the results"); err != nil {
			return nil, err
		}
	} else {
		p.at = start
	}
	if op.Type, err = p.word("the name of an operation"); err != nil {
		return nil, err
	}
	if op.Args, err = p.arguments(); err != nil {
		return nil, err
	}
	attrs, err := p.attributes()
	if err != nil {
		return nil, err
	}
	for p.peek() == '(' {
		b, err := p.nested(depth + 1)
		if err != nil {
			return nil, err
		}
		op.Blocks = append(op.Blocks, b)
	}
	if err := p.expect(';', "after the operation"); err != nil {
		return nil, err
	}
	for i, r := range op.Results {
		if err := p.define(r); err != nil {
			return nil, p.errAt(places[i], err)
		}
	}
	return op, p.errAt(start, p.finish(op, attrs))
}

// finish gives an operation its attributes; its name and the value of a
// constant are some of them.
func (p *parser) finish(op *mil.Operation, attrs []mil.Attribute) error {
	var val *mil.Value
	rest := attrs[:0]
	for _, a := range attrs {
		switch {
		case a.Name == "name":
			if l := a.Value.Literal; l == nil || !l.Type.IsScalar() || len(l.Strings) != 1 {
				return fmt.Errorf("attribute \"name\" is of type %v, want a string", a.Value.Type)
			}
			op.Name = a.Value.Literal.Strings[0]
		case a.Name == "val" && op.Type == "const":
			val = a.Value
		default:
			rest = append(rest, a)
		}
	}
	if len(rest) > 0 {
		op.Attributes = rest
	}
	if op.Type != "const" {
		return nil
	}
	if val == nil || len(op.Results) != 1 || len(op.Args) != 0 || len(op.Blocks) != 0 {
		return errors.New("a const has an attribute \"val\", one result and no argument")
	}
	r := op.Results[0]
	if !r.Type.Equal(val.Type) {
		return fmt.Errorf("value %q of type %v is given a constant of type %v", r.Name, r.Type, val.Type)
	}
	r.Literal, r.Weight = val.Literal, val.Weight
	return nil
}

func (p *parser) arguments() ([]mil.Arg, error) {
	if err := p.expect('(', "before the arguments"); err != nil {
		return nil, err
	}
	p.skip()
	start := p.at
	var args []mil.Arg
	sorted := true
	for p.peek() != ')' || len(args) > 0 {
		name, err := p.word("the name of an argument")
		if err != nil {
			return nil, err
		}
		if err := p.expect('=', "after the name of an argument"); err != nil {
			return nil, err
		}
		a := mil.Arg{Name: name}
		if p.accept('(') {
			for p.peek() != ')' || len(a.Values) > 0 {
				v, err := p.binding()
				if err != nil {
					return nil, err
				}
				a.Values = append(a.Values, v)
				if !p.accept(',') {
					break
				}
			}
			if err := p.expect(')', "after the values of an argument"); err != nil {
				return nil, err
			}
		} else {
			v, err := p.binding()
			if err != nil {
				return nil, err
			}
			a.Values = []*mil.Value{v}
		}
		sorted = sorted && (len(args) == 0 || args[len(args)-1].Name < name)
		args = append(args, a)
		if !p.accept(',') {
			break
		}
	}
	if !sorted { // which the compiler never writes
		slices.SortStableFunc(args, func(a, b mil.Arg) int { return cmp.Compare(a.Name, b.Name) })
		for i := range args[1:] {
			if args[i].Name == args[i+1].Name {
				return nil, failAt(start, "argument %q is given twice", args[i].Name)
			}
		}
	}
	return args, p.expect(')', "after the arguments")
}

// isType reports whether a word starts a type.
func isType(word []byte) bool {
	switch string(word) {
	case "tensor", "state", "list", "dict", "tuple":
		return true
	}
	_, ok := mil.ParseDType(string(word))
	return ok
}

// binding reads what an argument is bound to: a name or a constant.
func (p *parser) binding() (*mil.Value, error) {
	p.skip()
	at := p.at
	word, err := p.name("a value")
	if err != nil {
		return nil, err
	}
	next := p.peek()
	p.at = at
	if (next == '<' || next == '(') && isType(word) {
		return p.constant()
	}
	return p.use()
}

func (p *parser) attributes() ([]mil.Attribute, error) {
	if !p.accept('[') {
		return nil, nil
	}
	start := p.at
	sorted := true
	var as []mil.Attribute
	for p.peek() != ']' || len(as) > 0 {
		name, err := p.word("the name of an attribute")
		if err != nil {
			return nil, err
		}
		if err := p.expect('=', "after the name of an attribute"); err != nil {
			return nil, err
		}
		v, err := p.constant()
		if err != nil {
			return nil, err
		}
		sorted = sorted && (len(as) == 0 || as[len(as)-1].Name < name)
		as = append(as, mil.Attribute{Name: name, Value: v})
		if !p.accept(',') {
			break
		}
	}
	if !sorted {
		slices.SortStableFunc(as, func(a, b mil.Attribute) int { return cmp.Compare(a.Name, b.Name) })
		for i := range as[1:] {
			if as[i].Name == as[i+1].Name {
				return nil, failAt(start, "attribute %q is given twice", as[i].Name)
			}
		}
	}
	return as, p.expect(']', "after the attributes")
}

// constant reads a type and, in parentheses, a literal or a reference.
func (p *parser) constant() (*mil.Value, error) {
	p.skip()
	start := p.at
	t, err := p.typ(0)
	if err != nil {
		return nil, err
	}
	if err := p.expect('(', "before the value of a constant"); err != nil {
		return nil, err
	}
	v := &mil.Value{Type: t}
	p.skip()
	if bytes.HasPrefix(p.b[p.at:], []byte("BLOBFILE")) {
		ref, err := p.blob()
		if err != nil {
			return nil, err
		}
		if v.Weight, err = p.weight(ref, t); err != nil {
			return nil, p.errAt(start, err)
		}
	} else {
		if v.Literal, err = p.literal(t, 0); err != nil {
			return nil, err
		}
		if t.Kind == mil.TensorKind && !t.Static() {
			return nil, failAt(start, "constant of type %v, whose dimensions are not all known", t)
		}
	}
	return v, p.expect(')', "after the value of a constant")
}

func (p *parser) blob() (BlobRef, error) {
	var ref BlobRef
	if err := p.keyword("BLOBFILE"); err != nil {
		return ref, err
	}
	if err := p.expect('(', "after BLOBFILE"); err != nil {
		return ref, err
	}
	if err := p.keyword("path"); err != nil {
		return ref, err
	}
	if err := p.expect('=', `after "path"`); err != nil {
		return ref, err
	}
	if err := p.scalar(mil.String, "a path"); err != nil {
		return ref, err
	}
	var err error
	if ref.File, err = p.path(); err != nil {
		return ref, err
	}
	if err := p.expect(')', "after a path"); err != nil {
		return ref, err
	}
	if err := p.expect(',', "after the path"); err != nil {
		return ref, err
	}
	if err := p.keyword("offset"); err != nil {
		return ref, err
	}
	if err := p.expect('=', `after "offset"`); err != nil {
		return ref, err
	}
	if err := p.scalar(mil.UInt64, "an offset"); err != nil {
		return ref, err
	}
	n, err := p.int(mil.UInt64)
	if err != nil {
		return ref, err
	}
	ref.Offset = uint64(n)
	if err := p.expect(')', "after an offset"); err != nil {
		return ref, err
	}
	return ref, p.expect(')', "after a reference")
}

// path reads the name of a file, of which there are few.
func (p *parser) path() (string, error) {
	p.skip()
	if rest := p.b[p.at:]; len(rest) > 0 && rest[0] == '"' {
		if end := bytes.IndexByte(rest[1:], '"'); end >= 0 {
			if s, ok := p.words[string(rest[1:end+1])]; ok {
				p.at += end + 2
				return s, nil
			}
		}
	}
	s, err := p.str()
	// A word with a backslash would be found above under its escaped form.
	if err == nil && !bytes.ContainsAny([]byte(s), `"\`) {
		p.words[s] = s
	}
	return s, err
}

// scalar moves over the type d without dimensions and a parenthesis.
func (p *parser) scalar(d mil.DType, what string) error {
	p.skip()
	at := p.at
	t, err := p.typ(0)
	if err != nil {
		return err
	}
	if !t.IsScalar() || t.DType != d {
		return failAt(at, "%s is of type %v, want %v", what, t, d)
	}
	return p.expect('(', "before "+what)
}

func (p *parser) weight(ref BlobRef, t mil.Type) (mil.Weight, error) {
	fail := func(err error) (mil.Weight, error) {
		return nil, fmt.Errorf("weight in %q at offset %d: %w", ref.File, ref.Offset, err)
	}
	if _, ok := t.ByteSize(); !ok || t.Kind != mil.TensorKind {
		return fail(fmt.Errorf("type %v cannot be stored there", t))
	}
	key := weightKey{ref, t.String()}
	if w := p.weights[key]; w != nil {
		return w, nil
	}
	if p.opt.Weight == nil {
		return fail(errors.New("there is no file of weights"))
	}
	w, err := p.opt.Weight(ref, t)
	if err != nil {
		return fail(err)
	}
	if w == nil || !w.Type().Equal(t) {
		return fail(fmt.Errorf("not of type %v", t))
	}
	p.weights[key] = w
	return w, nil
}

func (p *parser) typ(depth int) (mil.Type, error) {
	if depth > maxDepth {
		return mil.Type{}, errDepth
	}
	p.skip()
	at := p.at
	word, err := p.name("a type")
	if err != nil {
		return mil.Type{}, err
	}
	kind := mil.TensorKind
	switch string(word) {
	case "tensor":
		return p.tensorType()
	case "state":
		kind = mil.StateKind
	case "list":
		kind = mil.ListKind
	case "dict":
		kind = mil.DictKind
	case "tuple":
		kind = mil.TupleKind
	default:
		d, ok := mil.ParseDType(string(word))
		if !ok {
			return mil.Type{}, failAt(at, "there is no type %q", word)
		}
		return mil.Type{Kind: mil.TensorKind, DType: d}, nil
	}
	if err := p.expect('<', "in a type"); err != nil {
		return mil.Type{}, err
	}
	t := mil.Type{Kind: kind}
	if kind == mil.TupleKind && p.accept('>') {
		return t, nil
	}
	elem, err := p.typ(depth + 1)
	if err != nil {
		return mil.Type{}, err
	}
	switch kind {
	case mil.StateKind:
		if elem.Kind != mil.TensorKind {
			return mil.Type{}, failAt(at, "state of type %v, want a tensor", elem)
		}
		t = elem
		t.Kind = mil.StateKind
	case mil.ListKind:
		t.Elems = []mil.Type{elem}
		if err := p.expect(',', "in the type of a list"); err != nil {
			return mil.Type{}, err
		}
		if t.Length, err = p.dim(); err != nil {
			return mil.Type{}, err
		}
	default:
		t.Elems = []mil.Type{elem}
		for p.accept(',') {
			if elem, err = p.typ(depth + 1); err != nil {
				return mil.Type{}, err
			}
			t.Elems = append(t.Elems, elem)
		}
		if kind == mil.DictKind && len(t.Elems) != 2 {
			return mil.Type{}, failAt(at, "a dict has two element types, found %d", len(t.Elems))
		}
	}
	return t, p.expect('>', "at the end of a type")
}

func (p *parser) tensorType() (mil.Type, error) {
	if err := p.expect('<', "in the type of a tensor"); err != nil {
		return mil.Type{}, err
	}
	p.skip()
	at := p.at
	word, err := p.name("an element type")
	if err != nil {
		return mil.Type{}, err
	}
	d, ok := mil.ParseDType(string(word))
	if !ok {
		return mil.Type{}, failAt(at, "there is no element type %q", word)
	}
	if err := p.expect(',', "in the type of a tensor"); err != nil {
		return mil.Type{}, err
	}
	if err := p.expect('[', "before the dimensions"); err != nil {
		return mil.Type{}, err
	}
	var dims [maxRank]int
	n := 0
	for p.peek() != ']' || n > 0 {
		if n == maxRank {
			return mil.Type{}, fmt.Errorf("tensor of more than %d dimensions", maxRank)
		}
		if dims[n], err = p.dim(); err != nil {
			return mil.Type{}, err
		}
		n++
		if !p.accept(',') {
			break
		}
	}
	t := mil.Type{Kind: mil.TensorKind, DType: d}
	if n > 0 {
		t.Shape = slices.Clone(dims[:n])
	}
	if err := p.expect(']', "after the dimensions"); err != nil {
		return mil.Type{}, err
	}
	return t, p.expect('>', "at the end of a type")
}

// dim reads a dimension or length.
func (p *parser) dim() (int, error) {
	if p.accept('?') {
		return mil.Dynamic, nil
	}
	p.skip()
	at := p.at
	n := 0
	for p.at < len(p.b) && p.b[p.at] >= '0' && p.b[p.at] <= '9' {
		c := int(p.b[p.at] - '0')
		if n > (math.MaxInt-c)/10 {
			return 0, failAt(at, "dimension is too large")
		}
		n = n*10 + c
		p.at++
	}
	if p.at == at {
		return 0, fmt.Errorf("want a dimension or '?', found %s", p.found())
	}
	return n, nil
}
