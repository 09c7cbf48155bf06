package mil

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
)

// The file testdata/coremltools/ops.json.gz holds what coremltools' own code
// says about its operations; record.py beside it makes it.

type recording struct {
	Coremltools string
	Specs       map[string]map[Opset]map[string]specParam
	Records     []*record
}

type specParam struct {
	Kind            string // tensor, tuple, list, state or any
	Const, Optional bool
	Group           string
	Types           []string
}

// record is a function built with coremltools' builder.
type record struct {
	Opset  Opset
	Note   string
	Error  bool // the builder refused it
	Inputs []namedType
	recordedBlock
}

type recordedBlock struct {
	Inputs  []namedType
	Ops     []*recordedOp
	Outputs []json.RawMessage
}

type recordedOp struct {
	Op       string
	Args     map[string][]json.RawMessage
	Defaults map[string]json.RawMessage
	Results  []namedType
	Blocks   []*recordedBlock
}

// namedType is [name, [dtype, dims...]].
type namedType struct {
	Name string
	Type Type
}

func (n *namedType) UnmarshalJSON(b []byte) error {
	var v []json.RawMessage
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	if len(v) != 2 {
		return fmt.Errorf("%s is no named type", b)
	}
	if err := json.Unmarshal(v[0], &n.Name); err != nil {
		return err
	}
	var err error
	n.Type, err = recordedType(v[1])
	return err
}

func recordedType(b []byte) (Type, error) {
	var v []any
	if err := json.Unmarshal(b, &v); err != nil {
		return Type{}, err
	}
	return typeFrom(v)
}

func typeFrom(v []any) (Type, error) {
	switch v[0] {
	case "state":
		t, err := typeFrom(v[1:])
		t.Kind = StateKind
		return t, err
	case "list":
		t, err := typeFrom(v[2:])
		return Type{Kind: ListKind, Length: int(v[1].(float64)), Elems: []Type{t}}, err
	}
	d, ok := ParseDType(v[0].(string))
	if !ok {
		return Type{}, fmt.Errorf("unknown type %v", v)
	}
	t := TensorOf(d)
	for _, n := range v[1:] {
		t.Shape = append(t.Shape, int(n.(float64)))
	}
	return t, nil
}

// recordedConst returns a constant as an immediate value: a literal, or
// zeros as a weight where the values were not recorded.
func recordedConst(t testing.TB, b []byte) *Value {
	t.Helper()
	var c struct {
		T json.RawMessage
		V []any
	}
	if err := json.Unmarshal(b, &c); err != nil {
		t.Fatal(err)
	}
	typ, err := recordedType(c.T)
	if err != nil {
		t.Fatal(err)
	}
	n, _ := typ.NumElements()
	if n != len(c.V) {
		size, _ := typ.ByteSize()
		return ImmWeight(PromiseWeight(typ, func(w io.Writer) error {
			_, err := w.Write(make([]byte, size))
			return err
		}))
	}
	l := &Literal{Type: typ}
	for _, v := range c.V {
		switch v := v.(type) {
		case bool:
			l.Bools = append(l.Bools, v)
		case float64:
			if typ.DType.IsFloat() {
				l.Floats = append(l.Floats, v)
			} else {
				l.Ints = append(l.Ints, int64(v))
			}
		case string:
			if typ.DType.IsFloat() {
				f, _ := strconv.ParseFloat(v, 64)
				l.Floats = append(l.Floats, f)
			} else {
				l.Strings = append(l.Strings, v)
			}
		}
	}
	return Imm(l)
}

func readRecording(t testing.TB) *recording {
	t.Helper()
	f, err := os.Open("testdata/coremltools/ops.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var r recording
	if err := json.NewDecoder(z).Decode(&r); err != nil {
		t.Fatal(err)
	}
	return &r
}

// rebuild makes a function of a record. With defaults it also binds the
// values that coremltools' builder filled in, as its files have them.
type rebuild struct {
	t        testing.TB
	opset    Opset
	values   map[string]*Value
	defaults bool
}

func (r *rebuild) operand(b json.RawMessage) *Value {
	var name string
	if json.Unmarshal(b, &name) != nil {
		return recordedConst(r.t, b)
	}
	v := r.values[name]
	if v == nil {
		r.t.Fatalf("no value %q", name)
	}
	return v
}

func (r *rebuild) input(n namedType) *Value {
	v := &Value{Name: n.Name, Type: n.Type}
	r.values[n.Name] = v
	return v
}

func (r *rebuild) block(b *recordedBlock) *Block {
	out := &Block{}
	for _, n := range b.Inputs {
		out.Inputs = append(out.Inputs, r.input(n))
	}
	for _, o := range b.Ops {
		op := &Operation{Type: o.Op, Name: o.Op}
		bind := func(name string, vals ...*Value) {
			if strings.HasPrefix(o.Op, "constexpr_") && r.opset.Before(CoreML8) {
				op.Attributes = append(op.Attributes, Attribute{name, vals[0]})
				return
			}
			op.Args = append(op.Args, A(name, vals...))
		}
		for name, vals := range o.Args {
			vs := []*Value{}
			for _, v := range vals {
				vs = append(vs, r.operand(v))
			}
			bind(name, vs...)
		}
		if r.defaults {
			for name, v := range o.Defaults {
				bind(name, recordedConst(r.t, v))
			}
		}
		op.SortArgs()
		for _, nested := range o.Blocks {
			op.Blocks = append(op.Blocks, r.block(nested))
		}
		for _, n := range o.Results {
			v := r.input(n)
			v.Op = op
			op.Results = append(op.Results, v)
		}
		out.Ops = append(out.Ops, op)
	}
	for _, o := range b.Outputs {
		var name string
		if json.Unmarshal(o, &name) == nil {
			out.Outputs = append(out.Outputs, r.values[name])
		}
	}
	return out
}

func (r *record) function(t testing.TB, defaults bool) *Function {
	b := &rebuild{t: t, opset: r.Opset, values: map[string]*Value{}, defaults: defaults}
	f := &Function{Name: "main", Opset: r.Opset}
	for _, n := range r.Inputs {
		f.Inputs = append(f.Inputs, b.input(n))
	}
	f.Body = b.block(&recordedBlock{Ops: r.Ops, Outputs: r.Outputs})
	return f
}

func (r *record) String() string {
	var s []string
	for _, o := range r.Ops {
		s = append(s, o.Op)
	}
	in := []string{}
	for _, n := range r.Inputs {
		in = append(in, n.Name+": "+n.Type.String())
	}
	var args []string
	for name, v := range r.Ops[len(r.Ops)-1].Args {
		a := name + "="
		for _, x := range v {
			if len(x) > 100 {
				x = append(slices.Clone(x[:100]), "..."...)
			}
			a += string(x)
		}
		args = append(args, a)
	}
	sort.Strings(args)
	return fmt.Sprintf("%s %s (%s) %s %s", r.Opset, strings.Join(s, " "), strings.Join(in, ", "), strings.Join(args, " "), r.Note)
}

// TestInferAsCoremltools holds inference to the types that coremltools
// gives, operation by operation: the same element types, and every dimension
// that coremltools knows. A known dimension where it has a symbol is fine.
func TestInferAsCoremltools(t *testing.T) {
	rec := readRecording(t)
	good, bad := 0, 0
	for _, r := range rec.Records {
		if r.Error {
			bad++
			op := r.function(t, false).Body.Ops[0]
			d, err := LookupOpIn(op.Type, r.Opset)
			if err == nil {
				_, err = d.Infer(op)
			}
			if err == nil {
				t.Errorf("%v: was not refused", r)
			}
			continue
		}
		good++
		for _, defaults := range []bool{false, true} {
			f := r.function(t, defaults)
			if err := VerifyFunction(f); err != nil {
				t.Errorf("%v (with defaults: %v): %v", r, defaults, err)
				continue
			}
			f.Body.Walk(func(op *Operation) bool {
				d, err := LookupOpIn(op.Type, f.Opset)
				if err != nil {
					t.Fatal(err)
				}
				got, err := d.Infer(op)
				if err != nil {
					t.Errorf("%v: %v", r, err)
					return true
				}
				if d.Results >= 0 && d.Results != len(got) {
					t.Errorf("%s: table says %d results, got %d", op.Type, d.Results, len(got))
				}
				for i, res := range op.Results {
					if !precise(got[i], res.Type) {
						t.Errorf("%v: result %d of %s is %v, coremltools says %v", r, i, op.Type, got[i], res.Type)
					}
				}
				return true
			})
		}
	}
	if good < 1600 || bad < 250 {
		t.Errorf("only %d records and %d refusals", good, bad)
	}
}

// precise reports whether got is want, with at least as many known
// dimensions.
func precise(got, want Type) bool {
	if !got.Accepts(want) {
		return false
	}
	for i, d := range want.Shape {
		if d >= 0 && got.Shape[i] != d {
			return false
		}
	}
	return slices.EqualFunc(got.Elems, want.Elems, precise)
}

// TestDefaultsAsCoremltools compares the defaults of the table with the
// values that coremltools' builder fills in.
func TestDefaultsAsCoremltools(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range readRecording(t).Records {
		if r.Error {
			continue
		}
		f := r.function(t, false)
		var ops []*recordedOp
		var collect func([]*recordedOp)
		collect = func(os []*recordedOp) {
			for _, o := range os {
				for _, b := range o.Blocks {
					collect(b.Ops)
				}
				ops = append(ops, o)
			}
		}
		collect(r.Ops)
		i := 0
		var walk func(*Block)
		walk = func(b *Block) {
			for _, op := range b.Ops {
				for _, n := range op.Blocks {
					walk(n)
				}
				o := ops[i]
				i++
				d, err := LookupOpIn(op.Type, f.Opset)
				if err != nil {
					t.Fatal(err)
				}
				for name, b := range o.Defaults {
					seen[op.Type+" "+name] = true
					want := recordedConst(t, b).Literal
					got := d.Default(op, name)
					switch {
					case op.Type == "linear" && name == "bias" || name == "box_indices":
						if got != nil || d.Param(name).Absent == "" {
							t.Errorf("%s %s: got %v, want an explanation", op.Type, name, got)
						}
					case got == nil:
						t.Errorf("%v: no default of %s, want %v", r, name, want)
					case !got.Type.Equal(want.Type) || !slices.Equal(got.Floats, want.Floats) || !slices.Equal(got.Ints, want.Ints) ||
						!slices.Equal(got.Bools, want.Bools) || !slices.Equal(got.Strings, want.Strings):
						t.Errorf("%v: default of %s is %v, want %v", r, name, got, want)
					}
				}
			}
		}
		walk(f.Body)
	}
	if len(seen) < 100 {
		t.Errorf("only %d defaults compared", len(seen))
	}
}

// TestOptionalArgumentsExplained wants a default or an explanation for every
// argument that may be missing.
func TestOptionalArgumentsExplained(t *testing.T) {
	for _, d := range Ops() {
		for ; d != nil; d = d.Older() {
			if d.Gives == "" {
				t.Errorf("%s: nothing is said about its results", d.Name)
			}
			for _, p := range d.Params {
				if p.Optional != (p.Default != nil || p.Absent != "") {
					t.Errorf("%s: argument %s is optional: %v, default %v, explanation %q", d.Name, p.Name, p.Optional, p.Default, p.Absent)
				}
			}
		}
	}
}

// notCoremltools are rows that coremltools does not have.
var notCoremltools = []string{"acosh", "asinh", "coreml_update_state", "write_state"}

// TestTableAsCoremltools compares every parameter of every form of every
// operation with coremltools' definitions.
func TestTableAsCoremltools(t *testing.T) {
	rec := readRecording(t)
	if rec.Coremltools != "9.0" {
		t.Errorf("recorded with coremltools %s", rec.Coremltools)
	}
	skip := map[string]bool{"const": true, "_const_symbolic": true, "classify": true}
	for name, forms := range rec.Specs {
		if skip[name] {
			continue
		}
		for _, s := range []Opset{CoreML5, CoreML6, CoreML7, CoreML8} {
			d, err := LookupOpIn(name, s)
			want, exists := forms[s]
			if exists != (err == nil) {
				t.Errorf("%s in %s: coremltools has it: %v, error: %v", name, s, exists, err)
			}
			if !exists || err != nil {
				continue
			}
			for p := range want {
				if d.Param(p) == nil {
					t.Errorf("%s in %s: no parameter %s", name, s, p)
				}
			}
			for _, p := range d.Params {
				w, ok := want[p.Name]
				if !ok {
					t.Errorf("%s in %s: coremltools has no parameter %s", name, s, p.Name)
					continue
				}
				if diff := p.differs(w); diff != "" {
					t.Errorf("%s in %s: parameter %s: %s", name, s, p.Name, diff)
				}
			}
		}
	}
	for _, name := range OpNames() {
		if _, ok := rec.Specs[name]; ok == slices.Contains(notCoremltools, name) {
			t.Errorf("%s: coremltools has it: %v", name, ok)
		}
	}
}

func (p *Param) differs(w specParam) string {
	if (w.Kind == "tuple") != p.Variadic {
		return fmt.Sprintf("variadic is %v, kind %s", p.Variadic, w.Kind)
	}
	if w.Kind == "tuple" { // coremltools says no more about these
		return ""
	}
	if w.Const != p.Const || w.Optional != p.Optional {
		return fmt.Sprintf("const %v, optional %v; want %v, %v", p.Const, p.Optional, w.Const, w.Optional)
	}
	switch w.Kind {
	case "list":
		if p.Accepts != Lists {
			return fmt.Sprintf("takes %v, want a list", p.Accepts)
		}
	case "state":
		if p.Accepts != States {
			return fmt.Sprintf("takes %v, want a state", p.Accepts)
		}
	case "tensor":
		var got []string
		for _, d := range p.Accepts.DTypes() {
			got = append(got, d.String())
		}
		slices.Sort(got)
		if !slices.Equal(got, w.Types) {
			return fmt.Sprintf("takes %v, want %v", got, w.Types)
		}
	}
	return ""
}

// TestGroupsAsCoremltools compares which parameters must have one element
// type.
func TestGroupsAsCoremltools(t *testing.T) {
	for name, forms := range readRecording(t).Specs {
		for s, want := range forms {
			d, err := LookupOpIn(name, s)
			if err != nil || name == "const" {
				continue
			}
			for _, p := range d.Params {
				for _, q := range d.Params {
					if p.Variadic || q.Variadic || p.Name == q.Name {
						continue
					}
					a, b := want[p.Name].Group, want[q.Name].Group
					if got := p.Group != "" && p.Group == q.Group; got != (a != "" && a == b) {
						t.Errorf("%s in %s: %s and %s have one type: %v", name, s, p.Name, q.Name, got)
					}
				}
			}
		}
	}
}

// TestRecordsCoverTheTable wants a record for every operation in every form
// of it.
func TestRecordsCoverTheTable(t *testing.T) {
	type form struct {
		name  string
		since Opset
	}
	seen := map[form]int{}
	var count func(Opset, []*recordedOp)
	count = func(s Opset, ops []*recordedOp) {
		for _, o := range ops {
			if d, err := LookupOpIn(o.Op, s); err == nil {
				seen[form{d.Name, d.Since}]++
			}
			for _, b := range o.Blocks {
				count(s, b.Ops)
			}
		}
	}
	for _, r := range readRecording(t).Records {
		if !r.Error {
			count(r.Opset, r.Ops)
		}
	}
	for _, d := range Ops() {
		for ; d != nil; d = d.Older() {
			skip := d.Name == "const" || d.Name == "write_state" || d.Name == "acosh" || d.Name == "asinh"
			if !skip && seen[form{d.Name, d.Since}] == 0 {
				t.Errorf("%s since %s has no record", d.Name, d.Since)
			}
		}
	}
}

func TestRecordedFloats(t *testing.T) {
	v := recordedConst(t, []byte(`{"t":["fp16",2],"v":["inf",1]}`))
	if !slices.Equal(v.Literal.Floats, []float64{math.Inf(1), 1}) {
		t.Errorf("got %v", v.Literal.Floats)
	}
}
