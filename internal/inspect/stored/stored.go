// Package stored lists the weights of a program as a reader sees them: one
// entry for a matrix, whether it is stored as it is or as indices, tables and
// scales, with the pieces of the file that hold it and the functions that use
// it. It looks at types, never at the bytes.
package stored

import (
	"fmt"
	"slices"
	"strings"

	"anemone/coreml"
	"anemone/mil"
)

// Tensor is one weight.
type Tensor struct {
	Name string
	Type mil.Type // as operations see it
	// Op gives it: a const, or the constexpr operation that operations take;
	// in a chain of those, the last one. It is nil for a weight that stands in
	// an operation's arguments.
	Op       *mil.Operation
	Encoding Encoding
	Pieces   []Piece
	// Functions names those that use it, in the order of the program.
	Functions []string
	// Values are what operations use it by, one for each of Functions.
	Values []*mil.Value
}

// Piece is a stretch of a file of weights.
type Piece struct {
	// Role is the operand that it is, such as "indices"; empty for a weight
	// that is stored as it is.
	Role   string
	Weight mil.Weight
	Bytes  int64
	// File and Offset say where its record lies, if Known.
	File   string
	Offset uint64
	Known  bool
}

// Bytes returns what all pieces take.
func (t *Tensor) Bytes() (n int64) {
	for _, p := range t.Pieces {
		n += p.Bytes
	}
	return n
}

// key tells pieces apart: by place if that is known, for one place may be read
// as two types.
func (p *Piece) key() any {
	if p.Known {
		return [2]any{p.File, p.Offset}
	}
	return p.Weight
}

// Total returns what the pieces of tensors take, each once.
func Total(ts []Tensor) (n int64) {
	seen := map[any]bool{}
	for i := range ts {
		for _, p := range ts[i].Pieces {
			if k := p.key(); !seen[k] {
				seen[k] = true
				n += p.Bytes
			}
		}
	}
	return n
}

// Of returns the tensors that a function uses.
func Of(ts []Tensor, function string) []Tensor {
	var out []Tensor
	for _, t := range ts {
		if slices.Contains(t.Functions, function) {
			out = append(out, t)
		}
	}
	return out
}

// List returns the weights of a program in the order of their first use. A
// weight that several functions use is listed once if all its pieces are the
// same. where says in which file they lie; it may be nil.
func List(p *mil.Program, where coreml.Stored) []Tensor {
	l := &lister{where: where, ids: map[mil.Weight]int{}, at: map[string]int{}}
	for _, f := range p.Functions {
		if f != nil && f.Body != nil {
			l.function(f)
		}
	}
	return l.out
}

type lister struct {
	where coreml.Stored
	ids   map[mil.Weight]int // number of every weight, by first use
	at    map[string]int     // index in out, by what a tensor is made of
	out   []Tensor
}

// use says who takes a value.
type use struct{ constexpr, other bool }

func (l *lister) function(f *mil.Function) {
	uses := map[*mil.Value]use{}
	mark := func(vs []*mil.Value, constexpr bool) {
		for _, v := range vs {
			u := uses[v]
			u.constexpr = u.constexpr || constexpr
			u.other = u.other || !constexpr
			uses[v] = u
		}
	}
	var outputs func(b *mil.Block)
	outputs = func(b *mil.Block) {
		mark(b.Outputs, false)
		for _, op := range b.Ops {
			for _, n := range op.Blocks {
				outputs(n)
			}
		}
	}
	outputs(f.Body)
	f.Body.Walk(func(op *mil.Operation) bool {
		for _, a := range op.Args {
			mark(a.Values, IsConstexpr(op))
		}
		return true
	})
	f.Body.Walk(func(op *mil.Operation) bool {
		switch {
		case op.Type == "const" || IsConstexpr(op):
			for _, v := range op.Results {
				if u := uses[v]; u.constexpr && !u.other {
					continue // a step on the way to another weight
				}
				if op.Type != "const" || v.Weight != nil {
					l.add(f, v.Name, v, op)
				}
			}
		default:
			for _, a := range op.Args {
				for _, v := range a.Values {
					if v.Weight != nil && v.Op == nil {
						l.add(f, opName(op)+"."+a.Name, v, nil)
					}
				}
			}
		}
		return true
	})
}

func opName(op *mil.Operation) string {
	if op.Name == "" && len(op.Results) > 0 {
		return op.Results[0].Name
	}
	return op.Name
}

func (l *lister) add(f *mil.Function, name string, v *mil.Value, op *mil.Operation) {
	t := Tensor{Name: name, Type: v.Type, Op: op, Encoding: EncodingOf(v)}
	l.pieces(&t, "", v, 0)
	key := fmt.Sprintf("%v|%v", v.Type, t.Encoding)
	for _, p := range t.Pieces {
		key += fmt.Sprintf("|%d", l.ids[p.Weight])
	}
	if len(t.Pieces) == 0 {
		key += "|" + name
	}
	i, ok := l.at[key]
	if !ok {
		i = len(l.out)
		l.at[key] = i
		l.out = append(l.out, t)
	}
	o := &l.out[i]
	if n := len(o.Functions); n == 0 || o.Functions[n-1] != f.Name {
		o.Functions = append(o.Functions, f.Name)
		o.Values = append(o.Values, v)
	}
}

// maxDepth bounds the chains of constexpr operations; real ones have two.
const maxDepth = 8

// pieces collects what v is stored in.
func (l *lister) pieces(t *Tensor, role string, v *mil.Value, depth int) {
	if v.Weight != nil {
		if _, ok := l.ids[v.Weight]; !ok {
			l.ids[v.Weight] = len(l.ids)
		}
		p := Piece{Role: role, Weight: v.Weight}
		p.Bytes, _ = v.Weight.Type().ByteSize()
		if l.where != nil {
			p.File, p.Offset, p.Known = l.where.WeightRef(v.Weight)
		}
		if !slices.ContainsFunc(t.Pieces, func(q Piece) bool { return q.Weight == p.Weight }) {
			t.Pieces = append(t.Pieces, p)
		}
		return
	}
	if v.Op == nil || !IsConstexpr(v.Op) || depth == maxDepth {
		return
	}
	Operands(v.Op, func(name string, o *mil.Value) { l.pieces(t, strings.TrimPrefix(role+"."+name, "."), o, depth+1) })
}

// IsConstexpr reports whether an operation makes a weight of compressed ones.
func IsConstexpr(op *mil.Operation) bool { return strings.HasPrefix(op.Type, "constexpr_") }

// Operands calls visit for the operands of a constexpr operation, wherever
// they are kept.
func Operands(op *mil.Operation, visit func(name string, v *mil.Value)) {
	for _, a := range op.Args {
		for _, v := range a.Values {
			visit(a.Name, v)
		}
	}
	for _, a := range op.Attributes {
		if a.Value != nil {
			visit(a.Name, a.Value)
		}
	}
}
