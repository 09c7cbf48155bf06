package nn

import "anemone/mil"

// Sub returns x - y.
func Sub(b *mil.Builder, x, y *mil.Value) *mil.Value {
	return b.Op("sub", mil.A("x", x), mil.A("y", y))
}

// Div returns x / y.
func Div(b *mil.Builder, x, y *mil.Value) *mil.Value {
	return b.Op("real_div", mil.A("x", x), mil.A("y", y))
}

// Exp returns e^x.
func Exp(b *mil.Builder, x *mil.Value) *mil.Value { return b.Op("exp", mil.A("x", x)) }

// AtLeast returns the larger of x and an fp16 constant.
func AtLeast(b *mil.Builder, x *mil.Value, v float64) *mil.Value {
	return b.Op("maximum", mil.A("x", x), mil.A("y", half(b, v)))
}

// Matmul multiplies the matrices in the last two axes of x and y.
func Matmul(b *mil.Builder, x, y *mil.Value) *mil.Value { return matmul(b, x, y, false, false) }

// MatmulT is Matmul with every matrix of y transposed.
func MatmulT(b *mil.Builder, x, y *mil.Value) *mil.Value { return matmul(b, x, y, false, true) }

// TMatmul is Matmul with every matrix of x transposed.
func TMatmul(b *mil.Builder, x, y *mil.Value) *mil.Value { return matmul(b, x, y, true, false) }

func matmul(b *mil.Builder, x, y *mil.Value, tx, ty bool) *mil.Value {
	return b.Op("matmul", mil.A("x", x), mil.A("y", y), mil.A("transpose_x", lit(b, mil.Flag(tx))), mil.A("transpose_y", lit(b, mil.Flag(ty))))
}

// Sum returns the sum over an axis of x, which stays as one element.
func Sum(b *mil.Builder, x *mil.Value, axis int) *mil.Value { return reduce(b, "reduce_sum", x, axis) }

// Max returns the largest element along an axis of x, which stays as one
// element.
func Max(b *mil.Builder, x *mil.Value, axis int) *mil.Value { return reduce(b, "reduce_max", x, axis) }

func reduce(b *mil.Builder, op string, x *mil.Value, axis int) *mil.Value {
	return b.Op(op, mil.A("x", x), mil.A("axes", ints(b, axis)), mil.A("keep_dims", lit(b, mil.Flag(true))))
}

// Softmax returns the softmax of x along an axis.
func Softmax(b *mil.Builder, x *mil.Value, axis int) *mil.Value {
	return b.Op("softmax", mil.A("x", x), mil.A("axis", lit(b, mil.Int(axis))))
}

// SigmoidOfHalf returns the sigmoid of 2h. A projection that a sigmoid
// follows holds half its weights and gives h: otherwise Core ML folds the
// half that the tanh form needs into the weights itself, which a palettized
// weight does not survive unchanged.
func SigmoidOfHalf(b *mil.Builder, h *mil.Value) *mil.Value {
	t := b.Op("tanh", mil.A("x", h))
	return Add(b, Scale(b, t, 0.5), half(b, 0.5))
}

// Coefficients of 2 atanh(u) = u (2 + c1 u² + c2 u⁴) for u up to 1/3, exact in
// fp16; the relative error is 1e-5 at most.
const (
	atanh1 = 0.6650390625
	atanh2 = 0.44775390625
)

// Softplus returns log(1 + e^x), to 1e-5 of it before fp16 rounds.
//
// It is max(x, 0) + log(1+z) with z = e^-|x|, and log(1+z) = 2 atanh(u) with
// u = z/(2+z). The operation of the same name is not used: on the Neural
// Engine it gives 0 from x = 10.4 on, where e^x leaves fp16 (coremltools
// issue 2687). Neither is log(1+z): 1+z keeps three digits of a sum, not of
// z, and decay rates are small numbers.
func Softplus(b *mil.Builder, x *mil.Value) *mil.Value {
	z := Exp(b, Scale(b, b.Op("abs", mil.A("x", x)), -1))
	u := Div(b, z, Add(b, z, half(b, 2)))
	s := Mul(b, u, u)
	p := Add(b, Mul(b, Add(b, Scale(b, s, atanh2), half(b, atanh1)), s), half(b, 2))
	return Add(b, b.Op("relu", mil.A("x", x)), Mul(b, u, p))
}

// l2Raise is by how much L2Norm raises its argument: an epsilon of 1e-6,
// divided by the length of a head, is less than fp16 has, its square times
// that is not. Elements stay within fp16 up to 4094.
const l2Raise = 16

// L2Norm returns the rows of x (its last axis), divided by sqrt(sum x² + eps)
// and multiplied by scale, preferably a power of two, times the square root
// of their length. It is the form of RMSNorm, for the same reasons.
func L2Norm(b *mil.Builder, x *mil.Value, eps, scale float64) *mil.Value {
	n := x.Type.Shape[x.Type.Rank()-1]
	both := Concat(b, -1, Scale(b, x, l2Raise), Scale(b, x, -l2Raise))
	y := b.Op("layer_norm", mil.A("x", both), mil.A("axes", ints(b, -1)), mil.A("epsilon", half(b, l2Raise*l2Raise*eps/float64(n))))
	y = Slice(b, y, -1, 0, n)
	if scale != 1 {
		y = Scale(b, y, scale)
	}
	return y
}

// DepthwiseConv convolves every channel of [1, D, 1, T+K-1] with its own row
// of a weight [D, 1, 1, K]; the result is [1, D, 1, T].
func DepthwiseConv(b *mil.Builder, x *mil.Value, w *Weight) *mil.Value {
	return b.Op("conv", mil.A("x", x), mil.A("weight", Use(b, w)),
		mil.A("strides", ints(b, 1, 1)), mil.A("pad_type", lit(b, mil.Str("valid"))), mil.A("pad", ints(b, 0, 0, 0, 0)),
		mil.A("dilations", ints(b, 1, 1)), mil.A("groups", lit(b, mil.Int(x.Type.Shape[1]))))
}

// PartialRotary rotates the first elements of the heads [1, heads, T, dim],
// as many as the tables [1, 1, T, rot] have; see [Rotary].
func PartialRotary(b *mil.Builder, x, cos, sin *mil.Value) *mil.Value {
	d, rot := x.Type.Shape[3], cos.Type.Shape[3]
	if rot == d {
		return Rotary(b, x, cos, sin)
	}
	return Concat(b, -1, Rotary(b, Slice(b, x, -1, 0, rot), cos, sin), Slice(b, x, -1, rot, d))
}

// Rows is a state whose first axis is divided among layers, each of which
// replaces its part as a whole.
type Rows struct {
	b     *mil.Builder
	state *mil.Value
	value *mil.Value // the state's present contents
}

// NewRows returns the rows of a state parameter.
func NewRows(b *mil.Builder, state *mil.Value) *Rows {
	return &Rows{b: b, state: state, value: b.Op("read_state", mil.A("input", state))}
}

// Read returns rows [from, to).
func (r *Rows) Read(from, to int) *mil.Value { return Slice(r.b, r.value, 0, from, to) }

// Write replaces rows [from, to).
func (r *Rows) Write(from, to int, x *mil.Value) {
	b, rank := r.b, r.value.Type.Rank()
	begin, end, stride, no, all := make([]int, rank), make([]int, rank), make([]int, rank), make([]bool, rank), make([]bool, rank)
	for i, d := range r.value.Type.Shape {
		end[i], stride[i], all[i] = d, 1, i > 0
	}
	begin[0], end[0] = from, to
	updated := b.Op("slice_update", mil.A("x", r.value), mil.A("update", x), mil.A("begin", ints(b, begin...)), mil.A("end", ints(b, end...)),
		mil.A("stride", ints(b, stride...)), mil.A("begin_mask", lit(b, mil.Bools(no...))),
		mil.A("end_mask", lit(b, mil.Bools(all...))), mil.A("squeeze_mask", lit(b, mil.Bools(no...))))
	b.OpAll("write_state", mil.A("input", r.state), mil.A("data", updated))
	r.value = b.Op("read_state", mil.A("input", r.state))
}

// Touch returns x [1, T, H], after a read of one element of a state that the
// function has no use for: a declared state that a function does not read
// keeps the model from compiling for the Neural Engine. The element counts
// for nothing, but the read cannot be left out.
func Touch(b *mil.Builder, x, state *mil.Value) *mil.Value {
	v := b.Op("read_state", mil.A("input", state))
	rank := v.Type.Rank()
	begin, end, no := make([]int, rank), make([]int, rank), make([]bool, rank)
	for i := range end {
		end[i] = 1
	}
	e := b.Op("slice_by_index", mil.A("x", v), mil.A("begin", ints(b, begin...)), mil.A("end", ints(b, end...)),
		mil.A("begin_mask", lit(b, mil.Bools(no...))), mil.A("end_mask", lit(b, mil.Bools(no...))))
	return Add(b, x, Scale(b, Reshape(b, e, 1, 1, 1), 0))
}

// Order returns the numbers n, n-1, ..., 1 as [1, n, 1, 1], for KeepTop. n is
// at most MaxOrder: up to there fp16 has all whole numbers.
func Order(n int) *Weight {
	return Constant("order", []int{1, n, 1, 1}, func(dst []float32) {
		for i := range dst {
			dst[i] = float32(n - i)
		}
	})
}

// MaxOrder is the largest number of elements that KeepTop chooses from.
const MaxOrder = 2048

// KeepTop returns p [1, E, 1, T], no element of which is below 0 or above 1,
// with all but the k largest of each token's E elements replaced by 0. Of
// equal ones the first counts as larger, as in torch.topk. order is Order(E).
//
// Each round finds the largest element that is left and moves it below 0:
// reductions and comparisons, which the Neural Engine has; it has no topk.
func KeepTop(b *mil.Builder, p *mil.Value, k int, order *Weight) *mil.Value {
	if k >= p.Type.Shape[1] {
		return p
	}
	half16 := lit(b, mil.Str("fp16"))
	toHalf := func(x *mil.Value) *mil.Value { return b.Op("cast", mil.A("x", x), mil.A("dtype", half16)) }
	// The largest number of the order among equals points at the first.
	numbers := Use(b, order)
	rest := p
	for range k {
		largest := b.Op("greater_equal", mil.A("x", rest), mil.A("y", Max(b, rest, 1)))
		first := Mul(b, toHalf(largest), numbers)
		pick := b.Op("equal", mil.A("x", first), mil.A("y", Max(b, first, 1)))
		rest = Sub(b, rest, Scale(b, toHalf(pick), 2))
	}
	kept := b.Op("less", mil.A("x", rest), mil.A("y", half(b, 0)))
	return Mul(b, p, toHalf(kept))
}
