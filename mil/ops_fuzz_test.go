package mil

import (
	"math"
	"testing"
)

// chooser turns bytes into choices; past the end all are 0.
type chooser struct{ b []byte }

func (c *chooser) of(n int) int {
	if len(c.b) == 0 {
		return 0
	}
	x := int(c.b[0])
	c.b = c.b[1:]
	return x % n
}

var hostileInts = []int64{0, 1, 2, 3, 4, 5, 8, 16, -1, -2, -3, 255, 1 << 16, 1 << 31, math.MaxInt32, 1 << 40, math.MaxInt64, math.MinInt64, math.MinInt64 + 1, 1 << 62}
var hostileDims = []int{1, 2, 3, 4, 6, 8, 16, 0, Dynamic, 1 << 20, 1 << 40, math.MaxInt, math.MaxInt / 2}
var hostileFloats = []float64{0, 1, 0.5, 2, -1, 1e30, 65504, math.Inf(1), math.NaN(), 1e-45}

// value makes an operand for p: mostly of a type that p accepts.
func (c *chooser) value(p *Param) *Value {
	if p.Accepts&(States|Lists) != 0 && c.of(4) > 0 || p.Accepts == States || p.Accepts == Lists {
		t := TensorOf(Float16, c.shape()...)
		if p.Accepts&States != 0 {
			return &Value{Name: "s", Type: StateOf(t.DType, t.Shape...)}
		}
		return &Value{Name: "l", Type: Type{Kind: ListKind, Elems: []Type{t}, Length: c.of(5) - 1}}
	}
	ds := p.Accepts.DTypes()
	if c.of(16) == 15 || len(ds) == 0 {
		ds = Any.DTypes()
	}
	d := ds[c.of(len(ds))]
	switch kind := c.of(4); {
	case kind == 0 && !p.Const:
		return &Value{Name: "v", Type: TensorOf(d, c.shape()...)}
	case kind == 1 && d != String && d != Bool:
		return ImmWeight(&bytesWeight{t: TensorOf(d, c.shape()...)})
	}
	n := c.of(12)
	l := &Literal{Type: TensorOf(d, n)}
	if n == 0 {
		n, l.Type.Shape = 1, nil
	}
	for range n {
		switch {
		case d == String && len(p.Values) > 0:
			l.Strings = append(l.Strings, p.Values[c.of(len(p.Values))])
		case d == String:
			l.Strings = append(l.Strings, []string{"fp16", "int32", "nchw,nwhr->nchr", "", "x"}[c.of(5)])
		case d == Bool:
			l.Bools = append(l.Bools, c.of(2) == 1)
		case d.IsFloat():
			l.Floats = append(l.Floats, hostileFloats[c.of(len(hostileFloats))])
		default:
			l.Ints = append(l.Ints, hostileInts[c.of(len(hostileInts))])
		}
	}
	return Imm(l)
}

func (c *chooser) shape() []int {
	s := make([]int, c.of(6))
	for i := range s {
		s[i] = hostileDims[c.of(len(hostileDims))]
	}
	return s
}

func (c *chooser) block() *Block {
	b := &Block{}
	any := &Param{Accepts: Any}
	for range c.of(3) {
		b.Inputs = append(b.Inputs, c.value(any))
	}
	for range c.of(3) {
		b.Outputs = append(b.Outputs, c.value(any))
	}
	return b
}

// FuzzInfer gives operations operands of hostile types and values: an error
// is fine, a panic or an impossible result is not.
func FuzzInfer(f *testing.F) {
	names := OpNames()
	for i := range names {
		f.Add([]byte{byte(i), 0, 1, 2, 3, 1, 1, 1, 2, 1, 4, 2, 2, 1, 0, 3, 5, 1, 2, 1, 0, 0, 4, 3, 2, 1})
		f.Add([]byte{byte(i), 1, 0, 0, 3, 9, 10, 11, 0, 0, 4, 16, 17, 18, 0, 2, 0, 3, 1, 1, 1, 1})
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c := &chooser{b}
		d, _ := LookupOp(names[c.of(len(names))])
		for range c.of(4) {
			if d.Older() != nil {
				d = d.Older()
			}
		}
		op := &Operation{Type: d.Name}
		for i := range d.Params {
			p := &d.Params[i]
			if p.Optional && c.of(3) == 0 {
				continue
			}
			vals := []*Value{c.value(p)}
			if p.Variadic {
				for range c.of(4) {
					vals = append(vals, c.value(p))
				}
			}
			op.Args = append(op.Args, A(p.Name, vals...))
		}
		if d.Name == "cond" || d.Name == "while_loop" {
			op.Blocks = []*Block{c.block(), c.block()}
		}
		op.SortArgs()
		for i := range d.Params {
			d.Default(op, d.Params[i].Name)
		}
		types, err := d.Infer(op)
		if err != nil {
			return
		}
		if d.Results >= 0 && len(types) != d.Results {
			t.Errorf("%s gives %d results, want %d", d.Name, len(types), d.Results)
		}
		for _, r := range types {
			if r.Kind == InvalidKind || r.Kind == TensorKind && (r.DType == InvalidDType || r.DType >= numDTypes) {
				t.Errorf("%s gives %v", d.Name, r)
			}
			for _, n := range r.Shape {
				if n < Dynamic {
					t.Errorf("%s gives the shape %v", d.Name, r.Shape)
				}
			}
		}
	})
}
