package engine

import (
	"fmt"
	"math"

	"anemone/internal/engine/kernels"
)

// withTwo builds an operation on every element that has two constants.
func withTwo(f func(x, alpha, beta float32) float32) builder {
	return func(o *opCtx) error {
		alpha, err := o.floatOr("alpha", 0)
		if err != nil {
			return err
		}
		beta, err := o.floatOr("beta", 0)
		if err != nil {
			return err
		}
		return unaryOp(eachF(func(x float32) float32 { return f(x, alpha, beta) }), nil)(o)
	}
}

func clampedRelu(x, alpha, beta float32) float32 {
	if x < 0 {
		x *= alpha
	}
	return minF(x, beta)
}

func sigmoidHard(x, alpha, beta float32) float32 { return minF(maxF(alpha*x+beta, 0), 1) }

func thresholdedRelu(x, alpha float32) float32 {
	if x < alpha {
		return 0
	}
	return x
}

// buildThreshold is the larger of x and a constant.
func buildThreshold(o *opCtx) error {
	a := o.x("alpha")
	if a.dt.IsFloat() {
		return withAlpha(maxF)(o)
	}
	alpha, err := o.intOr("alpha", 0)
	if err != nil {
		return err
	}
	return unaryOp(nil, func(x int32) int32 { return max(x, int32(alpha)) })(o)
}

// channels returns a constant with a number for each channel, the second
// axis of x, in a form that broadcasts with x.
func (o *opCtx) channels(name string, x *val) (*val, error) {
	a := o.x(name)
	if a == nil {
		return nil, nil
	}
	a, err := o.dense32(a)
	if err != nil {
		return nil, err
	}
	if len(x.shape()) < 2 || len(a.shape()) != 1 || a.size() != x.shape()[1] {
		return nil, fmt.Errorf("argument %q has the shape %v for x of shape %v", name, a.shape(), x.shape())
	}
	shape := make([]int, len(x.shape())-1)
	for i := range shape {
		shape[i] = 1
	}
	shape[0] = a.size()
	w, ok := a.v.reshape(shape)
	if !ok {
		return nil, fmt.Errorf("internal error: cannot reshape argument %q", name)
	}
	return a.with(w), nil
}

func buildPReLU(o *opCtx) error {
	x := o.x("x")
	alpha, err := o.channels("alpha", x)
	if err != nil {
		return err
	}
	out, err := pairs(o, x, alpha, x.dt, pairF(func(x, a float32) float32 {
		if x > 0 {
			return x
		}
		return a * x
	}))
	if err != nil {
		return err
	}
	return o.give(out, true)
}

func buildSoftplusParametric(o *opCtx) error {
	x := o.x("x")
	alpha, err := o.channels("alpha", x)
	if err != nil {
		return err
	}
	beta, err := o.channels("beta", x)
	if err != nil {
		return err
	}
	out, err := pairs(o, x, beta, x.dt, mulF)
	if err != nil {
		return err
	}
	if out, err = unary(o, out, x.dt, eachF(kernels.Softplus)); err != nil {
		return err
	}
	if out, err = pairs(o, out, alpha, x.dt, mulF); err != nil {
		return err
	}
	return o.give(out, true)
}

// exp2I is 2 to the power x in the arithmetic of int32: powers below 1 are
// 0, and those beyond the range wrap to 0.
func exp2I(x int32) int32 {
	if x < 0 || x > 31 {
		return 0
	}
	return int32(uint32(1) << x)
}

// buildBatchNorm normalizes by constants for each channel.
func buildBatchNorm(o *opCtx) error {
	x, err := o.dense32(o.x("x"))
	if err != nil {
		return err
	}
	if _, err := o.infer(); err != nil {
		return err
	}
	ch := x.shape()[1]
	mean, err := o.floatsOf("mean", ch)
	if err != nil {
		return err
	}
	variance, err := o.floatsOf("variance", ch)
	if err != nil {
		return err
	}
	scale, shift, err := o.gammaBeta(ch)
	if err != nil {
		return err
	}
	eps, err := o.floatOr("epsilon", 1e-5)
	if err != nil {
		return err
	}
	if mean == nil || variance == nil {
		return fmt.Errorf("mean or variance is missing")
	}
	k := make([]float32, ch)
	for i := range k {
		k[i] = float32(float64(scale[i]) / math.Sqrt(float64(variance[i])+float64(eps)))
	}
	out, err := o.p.fresh(x.dt, x.shape(), o.constant)
	if err != nil {
		return err
	}
	if out.size() > 0 {
		rows := x.shape()[0] * ch
		n := x.size() / rows
		err := o.each(rows, grain/n, []*val{x}, []*val{out}, func(c *call, _, lo, hi int) {
			for r := lo; r < hi; r++ {
				i := r % ch
				d, m, s, b := c.f32(out.buf)[r*n:(r+1)*n], mean[i], k[i], shift[i]
				for j, v := range c.f32of(x)[r*n : (r+1)*n] {
					d[j] = (v-m)*s + b
				}
			}
		})
		if err != nil {
			return err
		}
	}
	return o.give(out, true)
}

// gammaBeta returns the scale and shift of every channel.
func (o *opCtx) gammaBeta(ch int) (gamma, beta []float32, err error) {
	if gamma, err = o.floatsOf("gamma", ch); err != nil {
		return nil, nil, err
	}
	if beta, err = o.floatsOf("beta", ch); err != nil {
		return nil, nil, err
	}
	if gamma == nil {
		gamma = make([]float32, ch)
		for i := range gamma {
			gamma[i] = 1
		}
	}
	if beta == nil {
		beta = make([]float32, ch)
	}
	return gamma, beta, nil
}

// buildInstanceNorm normalizes every channel of every batch by its own mean
// and variance.
func buildInstanceNorm(o *opCtx) error {
	x, err := o.dense32(o.x("x"))
	if err != nil {
		return err
	}
	if _, err := o.infer(); err != nil {
		return err
	}
	ch := x.shape()[1]
	gamma, beta, err := o.gammaBeta(ch)
	if err != nil {
		return err
	}
	eps, err := o.floatOr("epsilon", 1e-5)
	if err != nil {
		return err
	}
	out, err := o.p.fresh(x.dt, x.shape(), o.constant)
	if err != nil {
		return err
	}
	if out.size() > 0 {
		rows := x.shape()[0] * ch
		n := x.size() / rows
		err := o.each(rows, grain/4/n, []*val{x}, []*val{out}, func(c *call, _, lo, hi int) {
			for r := lo; r < hi; r++ {
				d := c.f32(out.buf)[r*n : (r+1)*n]
				kernels.LayerNorm(d, c.f32of(x)[r*n:(r+1)*n], nil, nil, eps)
				g, b := gamma[r%ch], beta[r%ch]
				for j := range d {
					d[j] = d[j]*g + b
				}
			}
		})
		if err != nil {
			return err
		}
	}
	return o.give(out, true)
}

// buildLRN divides every element by a power of the sum of squares of its
// neighbours in the channels around it: size/2 before and (size-1)/2 behind.
func buildLRN(o *opCtx) error {
	x, err := o.dense32(o.x("x"))
	if err != nil {
		return err
	}
	if len(x.shape()) < 2 {
		return fmt.Errorf("x has the shape %v, want channels as the second axis", x.shape())
	}
	size, err := o.intOr("size", 1)
	if err != nil {
		return err
	}
	if size < 1 {
		return fmt.Errorf("size is %d, want 1 or more", size)
	}
	alpha, err := o.floatOr("alpha", 1e-4)
	if err != nil {
		return err
	}
	beta, err := o.floatOr("beta", 0.75)
	if err != nil {
		return err
	}
	k, err := o.floatOr("k", 1)
	if err != nil {
		return err
	}
	out, err := o.p.fresh(x.dt, x.shape(), o.constant)
	if err != nil {
		return err
	}
	if out.size() > 0 {
		n, ch := x.shape()[0], x.shape()[1]
		inner := x.size() / n / ch
		err := o.each(n*ch, 1, []*val{x}, []*val{out}, func(c *call, _, lo, hi int) {
			src, dst := c.f32of(x), c.f32(out.buf)
			for r := lo; r < hi; r++ {
				batch, i := r/ch*ch, r%ch
				first, last := max(0, i-size/2), min(ch-1, i+(size-1)/2)
				for j := range inner {
					var sum float64
					for q := first; q <= last; q++ {
						v := float64(src[(batch+q)*inner+j])
						sum += v * v
					}
					at := r*inner + j
					dst[at] = float32(float64(src[at]) / math.Pow(float64(k)+float64(alpha)/float64(size)*sum, float64(beta)))
				}
			}
		})
		if err != nil {
			return err
		}
	}
	return o.give(out, true)
}

// buildQuantize gives round(x / scale) + zero_point in 8 bits, clipped.
func buildQuantize(o *opCtx) error {
	x, err := o.dense32(o.x("input"))
	if err != nil {
		return err
	}
	ts, err := o.infer()
	if err != nil {
		return err
	}
	scale, zero, channel, err := o.quantParams(x)
	if err != nil {
		return err
	}
	d := ts[0].DType
	lo, hi := float32(-128), float32(127)
	if d.IsUnsigned() {
		lo, hi = 0, 255
	}
	out, err := o.p.fresh(d, x.shape(), o.constant)
	if err != nil {
		return err
	}
	err = o.each(out.size(), grain, []*val{x}, []*val{out}, func(c *call, _, a, b int) {
		src, dst := c.f32of(x), c.i32(out.buf)
		for i := a; i < b; i++ {
			k := channel(i)
			v := float32(math.RoundToEven(float64(src[i]/scale[k]))) + zero[k]
			if !(v >= lo) { // or not a number
				v = lo
			}
			dst[i] = int32(minF(v, hi))
		}
	})
	if err != nil {
		return err
	}
	return o.give(out, true)
}

// buildDequantize gives (x - zero_point) * scale.
func buildDequantize(o *opCtx) error {
	x, err := o.p.straight(o.x("input"))
	if err != nil {
		return err
	}
	if x.dt.IsFloat() {
		return fmt.Errorf("input is %v, want 8 bits", x.dt)
	}
	ts, err := o.infer()
	if err != nil {
		return err
	}
	scale, zero, channel, err := o.quantParams(x)
	if err != nil {
		return err
	}
	out, err := o.p.fresh(ts[0].DType, x.shape(), o.constant)
	if err != nil {
		return err
	}
	err = o.each(out.size(), grain, []*val{x}, []*val{out}, func(c *call, _, a, b int) {
		src, dst := c.i32of(x), c.f32(out.buf)
		for i := a; i < b; i++ {
			k := channel(i)
			dst[i] = (float32(src[i]) - zero[k]) * scale[k]
		}
	})
	if err != nil {
		return err
	}
	return o.give(out, true)
}

// quantParams returns scales and zero points, and which of them the element
// at a place has.
func (o *opCtx) quantParams(x *val) (scale, zero []float32, channel func(i int) int, err error) {
	if scale, err = o.floats("scale"); err != nil {
		return nil, nil, nil, err
	}
	if zero, err = o.floatsOf("zero_point", len(scale)); err != nil {
		return nil, nil, nil, err
	}
	if zero == nil {
		zero = make([]float32, len(scale))
	}
	if len(scale) == 1 {
		return scale, zero, func(int) int { return 0 }, nil
	}
	axis, err := o.axis("axis", 0, len(x.shape()))
	if err != nil {
		return nil, nil, nil, err
	}
	n, inner := x.shape()[axis], 1
	for _, d := range x.shape()[axis+1:] {
		inner *= d
	}
	if n != len(scale) {
		return nil, nil, nil, fmt.Errorf("%d scales along an axis of %d", len(scale), n)
	}
	return scale, zero, func(i int) int { return i / inner % n }, nil
}
