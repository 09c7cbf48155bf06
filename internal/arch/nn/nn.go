package nn

import (
	"fmt"

	"anemone/mil"
)

// Short forms of literals that graphs use all the time.
func lit(b *mil.Builder, l *mil.Literal) *mil.Value { return b.Const(l) }
func ints(b *mil.Builder, v ...int) *mil.Value      { return b.Const(mil.Ints(v...)) }
func half(b *mil.Builder, v float64) *mil.Value     { return b.Const(mil.Half(v)) }

// Mul returns x * y.
func Mul(b *mil.Builder, x, y *mil.Value) *mil.Value {
	return b.Op("mul", mil.A("x", x), mil.A("y", y))
}

// Add returns x + y.
func Add(b *mil.Builder, x, y *mil.Value) *mil.Value {
	return b.Op("add", mil.A("x", x), mil.A("y", y))
}

// Scale returns x times an fp16 constant.
func Scale(b *mil.Builder, x *mil.Value, s float64) *mil.Value { return Mul(b, x, half(b, s)) }

// Use returns the value of a weight in the graph, under its own name.
func Use(b *mil.Builder, w *Weight) *mil.Value { return b.Weight(w.Name(), w) }

// Reshape gives x another shape; one dimension may be -1.
func Reshape(b *mil.Builder, x *mil.Value, shape ...int) *mil.Value {
	return b.Op("reshape", mil.A("x", x), mil.A("shape", ints(b, shape...)))
}

// Transpose permutes the axes of x.
func Transpose(b *mil.Builder, x *mil.Value, perm ...int) *mil.Value {
	return b.Op("transpose", mil.A("x", x), mil.A("perm", ints(b, perm...)))
}

// Concat joins values along an axis.
func Concat(b *mil.Builder, axis int, values ...*mil.Value) *mil.Value {
	return b.Op("concat", mil.A("values", values...), mil.A("axis", lit(b, mil.Int(axis))), mil.A("interleave", lit(b, mil.Flag(false))))
}

// Slice returns elements [from, to) of an axis of x.
func Slice(b *mil.Builder, x *mil.Value, axis, from, to int) *mil.Value {
	r := x.Type.Rank()
	begin, end, mask := make([]int, r), make([]int, r), make([]bool, r)
	if axis < 0 {
		axis += r
	}
	for i, d := range x.Type.Shape {
		end[i], mask[i] = d, i != axis
	}
	begin[axis], end[axis] = from, to
	return b.Op("slice_by_index", mil.A("x", x), mil.A("begin", ints(b, begin...)), mil.A("end", ints(b, end...)),
		mil.A("begin_mask", lit(b, mil.Bools(make([]bool, r)...))), mil.A("end_mask", lit(b, mil.Bools(mask...))))
}

// RMSNorm normalizes the last axis of x to a mean square of one and
// multiplies by gamma (nil for none).
//
// layer_norm over [x, -x] is used instead of squares and sums: those
// overflow fp16 as soon as an element exceeds 255, which residual streams
// do, while layer_norm is one operation whose sums are kept wide.
func RMSNorm(b *mil.Builder, x *mil.Value, gamma *Weight, eps float64) *mil.Value {
	n := x.Type.Shape[x.Type.Rank()-1]
	both := Concat(b, -1, x, Scale(b, x, -1))
	y := b.Op("layer_norm", mil.A("x", both), mil.A("axes", ints(b, -1)), mil.A("epsilon", half(b, eps)))
	y = Slice(b, y, -1, 0, n)
	if gamma != nil {
		y = Mul(b, y, Use(b, gamma))
	}
	return y
}

// ToChannels turns tokens [1, T, H] into the channels [1, H, 1, T] that
// convolutions take.
func ToChannels(b *mil.Builder, x *mil.Value) *mil.Value {
	return b.Op("expand_dims", mil.A("x", Transpose(b, x, 0, 2, 1)), mil.A("axes", ints(b, 2)))
}

// FromChannels turns channels [1, H, 1, T] into tokens [1, T, H].
func FromChannels(b *mil.Builder, x *mil.Value) *mil.Value {
	return Transpose(b, b.Op("squeeze", mil.A("x", x), mil.A("axes", ints(b, 2))), 0, 2, 1)
}

// Project multiplies channels [1, in, 1, T] by a matrix: a 1x1 convolution,
// with a bias unless it is nil. The result is [1, out, 1, T].
func Project(b *mil.Builder, x *mil.Value, w, bias *Weight) *mil.Value {
	args := []mil.Arg{
		mil.A("x", x), mil.A("weight", Use(b, w)),
		mil.A("strides", ints(b, 1, 1)), mil.A("pad_type", lit(b, mil.Str("valid"))), mil.A("pad", ints(b, 0, 0, 0, 0)),
		mil.A("dilations", ints(b, 1, 1)), mil.A("groups", lit(b, mil.Int(1))),
	}
	if bias != nil {
		args = append(args, mil.A("bias", Use(b, bias)))
	}
	return b.Op("conv", args...)
}

// Heads turns channels [1, heads*dim, 1, T] into [1, heads, T, dim].
func Heads(b *mil.Builder, x *mil.Value, heads, dim int) *mil.Value {
	t := x.Type.Shape[3]
	if t == 1 {
		return Reshape(b, x, 1, heads, 1, dim)
	}
	return Transpose(b, Reshape(b, x, 1, heads, dim, t), 0, 1, 3, 2)
}

// MergeHeads turns [1, heads, T, dim] into channels [1, heads*dim, 1, T].
func MergeHeads(b *mil.Builder, x *mil.Value) *mil.Value {
	s := x.Type.Shape
	if s[2] == 1 {
		return Reshape(b, x, 1, s[1]*s[3], 1, 1)
	}
	return Reshape(b, Transpose(b, x, 0, 1, 3, 2), 1, s[1]*s[3], 1, s[2])
}

// Rotary rotates the heads [1, heads, T, dim] by tables [1, 1, T, dim],
// pairing element i with i + dim/2 ("rotate half").
func Rotary(b *mil.Builder, x, cos, sin *mil.Value) *mil.Value {
	d := x.Type.Shape[3]
	turned := Concat(b, -1, Scale(b, Slice(b, x, -1, d/2, d), -1), Slice(b, x, -1, 0, d/2))
	return Add(b, Mul(b, x, cos), Mul(b, turned, sin))
}

// Index casts int32 indices into a table of rows rows to the narrowest type
// that a gather on the Neural Engine takes.
func Index(b *mil.Builder, ids *mil.Value, rows int) *mil.Value {
	switch {
	case rows <= 1<<15:
		return b.Op("cast", mil.A("x", ids), mil.A("dtype", lit(b, mil.Str("int16"))))
	case rows <= 1<<16:
		return b.Op("cast", mil.A("x", ids), mil.A("dtype", lit(b, mil.Str("uint16"))))
	}
	return ids
}

// Gather looks rows of a table [rows, dim] up by indices [...]; the result is
// [..., dim].
func Gather(b *mil.Builder, table *Weight, index *mil.Value) *mil.Value {
	return b.Op("gather", mil.A("x", Use(b, table)), mil.A("indices", index), mil.A("axis", lit(b, mil.Int(0))),
		mil.A("batch_dims", lit(b, mil.Int(0))), mil.A("validate_indices", lit(b, mil.Flag(false))))
}

// RotaryAt looks both tables up at the positions [T] of a call; the results
// are [1, 1, T, dim].
func RotaryAt(b *mil.Builder, cos, sin *Weight, positions *mil.Value) (c, s *mil.Value) {
	index := Index(b, positions, cos.Rows())
	row := func(w *Weight) *mil.Value {
		return b.Op("expand_dims", mil.A("x", Gather(b, w, index)), mil.A("axes", ints(b, 0, 1)))
	}
	return row(cos), row(sin)
}

// Sigmoid returns 1/(1+exp(-x)) as 0.5 + 0.5 tanh(x/2).
func Sigmoid(b *mil.Builder, x *mil.Value) *mil.Value {
	t := b.Op("tanh", mil.A("x", Scale(b, x, 0.5)))
	return Add(b, Scale(b, t, 0.5), half(b, 0.5))
}

// SiLU returns x sigmoid(x).
func SiLU(b *mil.Builder, x *mil.Value) *mil.Value { return Mul(b, x, Sigmoid(b, x)) }

// GatedMLP returns down(silu(gate(x)) * up(x)) over channels [1, H, 1, T].
// The biases may be nil.
func GatedMLP(b *mil.Builder, x *mil.Value, gate, gateBias, up, upBias, down, downBias *Weight) *mil.Value {
	g := SiLU(b, Project(b, x, gate, gateBias))
	return Project(b, Mul(b, g, Project(b, x, up, upBias)), down, downBias)
}

// Cache is a state [slots, heads, C, dim] that keeps one row per position.
type Cache struct {
	b     *mil.Builder
	state *mil.Value
	value *mil.Value // the state's present contents
	begin *mil.Value // position of the first new row, int32 [1]
	end   *mil.Value // position after the last new row, int32 [1]
}

// NewCache returns the cache in a state parameter; rows of a call of t
// tokens go to current_pos, current_pos+1, ...
func NewCache(b *mil.Builder, state, currentPos *mil.Value, t int) *Cache {
	return &Cache{b: b, state: state, begin: currentPos, end: Add(b, currentPos, ints(b, t)),
		value: b.Op("read_state", mil.A("input", state))}
}

// Write puts rows [1, heads, T, dim] into a slot at the call's positions.
func (c *Cache) Write(slot int, rows *mil.Value) {
	b := c.b
	no := lit(b, mil.Bools(false, false, false, false))
	begin := Concat(b, 0, ints(b, slot), ints(b, 0), c.begin, ints(b, 0))
	end := Concat(b, 0, ints(b, slot+1), ints(b, 0), c.end, ints(b, 0))
	updated := b.Op("slice_update", mil.A("x", c.value), mil.A("update", rows), mil.A("begin", begin), mil.A("end", end),
		mil.A("stride", ints(b, 1, 1, 1, 1)), mil.A("begin_mask", no),
		mil.A("end_mask", lit(b, mil.Bools(false, true, false, true))), mil.A("squeeze_mask", no))
	b.OpAll("write_state", mil.A("input", c.state), mil.A("data", updated))
	c.value = b.Op("read_state", mil.A("input", c.state))
}

// Read returns the contents [1, heads, C, dim] of a slot.
func (c *Cache) Read(slot int) *mil.Value { return Slice(c.b, c.value, 0, slot, slot+1) }

// RepeatHeads returns [1, heads*n, C, dim] in which every head of
// [1, heads, C, dim] stands n times in a row.
func RepeatHeads(b *mil.Builder, x *mil.Value, n int) *mil.Value {
	if n == 1 {
		return x
	}
	s := x.Type.Shape
	y := b.Op("squeeze", mil.A("x", x), mil.A("axes", ints(b, 0)))
	y = b.Op("expand_dims", mil.A("x", y), mil.A("axes", ints(b, 1)))
	y = b.Op("tile", mil.A("x", y), mil.A("reps", ints(b, 1, n, 1, 1)))
	return Reshape(b, y, 1, s[1]*n, s[2], s[3])
}

// Attention returns softmax(scale q k' + mask) v for q [1, heads, T, dim], k
// and v [1, kv, C, dim] with kv dividing heads, and mask [1, 1, T, C].
// A scale of 1 costs nothing.
func Attention(b *mil.Builder, q, k, v, mask *mil.Value, scale float64) *mil.Value {
	heads, kv := q.Type.Shape[1], k.Type.Shape[1]
	if kv == 0 || heads%kv != 0 {
		b.Fail(fmt.Errorf("%d heads do not share %d key heads", heads, kv))
		return q
	}
	k, v = RepeatHeads(b, k, heads/kv), RepeatHeads(b, v, heads/kv)
	no, yes := lit(b, mil.Flag(false)), lit(b, mil.Flag(true))
	scores := b.Op("matmul", mil.A("x", q), mil.A("y", k), mil.A("transpose_x", no), mil.A("transpose_y", yes))
	if scale != 1 {
		scores = Scale(b, scores, scale)
	}
	p := b.Op("softmax", mil.A("x", Add(b, scores, mask)), mil.A("axis", lit(b, mil.Int(-1))))
	return b.Op("matmul", mil.A("x", p), mil.A("y", v), mil.A("transpose_x", no), mil.A("transpose_y", no))
}
