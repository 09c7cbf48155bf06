package engine

import (
	"fmt"
	"math"
	"slices"

	"anemone/internal/engine/kernels"
	"anemone/mil"
)

// rowsOf returns x as rows along some axes: dense, with those axes last. The
// permutation leads back.
func (o *opCtx) rowsOf(x *val, axes []int) (rows *val, n int, perm []int, err error) {
	if x.str != nil {
		return nil, 0, nil, errNoNumber
	}
	n = 1
	for i := range x.shape() {
		if !slices.Contains(axes, i) {
			perm = append(perm, i)
		}
	}
	for _, a := range axes {
		n *= x.shape()[a]
		perm = append(perm, a)
	}
	if x, err = o.p.plain(x); err != nil {
		return nil, 0, nil, err
	}
	rows, err = o.p.straight(x.with(x.v.permute(perm)))
	return rows, n, perm, err
}

func inverse(perm []int) []int {
	inv := make([]int, len(perm))
	for i, p := range perm {
		inv[p] = i
	}
	return inv
}

// byRows emits a step that maps every row of n elements of x to one of the
// same size in the result, which is returned with its axes back in order.
func (o *opCtx) byRows(x *val, axes []int, f func(dst, x []float32)) (*val, error) {
	if !x.dt.IsFloat() {
		return nil, fmt.Errorf("not defined for elements of type %v", x.dt)
	}
	in, n, perm, err := o.rowsOf(x, axes)
	if err != nil {
		return nil, err
	}
	out, err := o.p.fresh(x.dt, in.shape(), o.constant)
	if err != nil {
		return nil, err
	}
	if total := out.size(); total > 0 {
		per := max(1, grain/4/n)
		rows := total / n
		xb, xo, ob := in.buf, in.v.off, out.buf
		body := func(c *call, chunk, slot int) {
			a, d := c.f32(xb)[xo:], c.f32(ob)
			for r := chunk * per; r < min((chunk+1)*per, rows); r++ {
				f(d[r*n:(r+1)*n], a[r*n:(r+1)*n])
			}
		}
		chunks := (rows + per - 1) / per
		if err := o.p.emit(bufsOf(in), bufsOf(out), func(c *call) { c.parallel(chunks, body) }); err != nil {
			return nil, err
		}
	}
	return out.with(out.v.permute(inverse(perm))), nil
}

func buildSoftmax(o *opCtx) error {
	axis, err := o.axis("axis", -1, len(o.x("x").shape()))
	if err != nil {
		return err
	}
	if ok, err := o.lazySoftmax(axis); ok || err != nil {
		return err
	}
	return o.softmax(o.x("x"), axis)
}

func (o *opCtx) softmax(x *val, axis int) error {
	out, err := o.byRows(x, []int{axis}, kernels.Softmax)
	if err != nil {
		return err
	}
	return o.give(out, true)
}

func buildLayerNorm(o *opCtx) error {
	x := o.x("x")
	axes, err := o.axes("axes", len(x.shape()))
	if err != nil {
		return err
	}
	eps, err := o.floatOr("epsilon", 1e-5)
	if err != nil {
		return err
	}
	n := 1
	for _, a := range axes {
		n *= x.shape()[a]
	}
	param := func(name string) ([]float32, error) {
		v, err := o.optional32(name, n)
		if v == nil || err != nil {
			return nil, err
		}
		if v.buf.space != spaceConst {
			return nil, fmt.Errorf("argument %q must be a constant", name)
		}
		return v.buf.f[v.v.off : v.v.off+n], nil
	}
	gamma, err := param("gamma")
	if err != nil {
		return err
	}
	beta, err := param("beta")
	if err != nil {
		return err
	}
	out, err := o.byRows(x, axes, func(dst, x []float32) { kernels.LayerNorm(dst, x, gamma, beta, eps) })
	if err != nil {
		return err
	}
	return o.give(out, true)
}

func buildL2Norm(o *opCtx) error {
	x := o.x("x")
	eps, err := o.floatOr("epsilon", 1e-6)
	if err != nil {
		return err
	}
	r := len(x.shape())
	if r < 3 {
		return fmt.Errorf("x has the shape %v, want rank 3 or more", x.shape())
	}
	out, err := o.byRows(x, []int{r - 3, r - 2, r - 1}, func(dst, x []float32) {
		d := sqrt(kernels.Dot(x, x) + eps)
		for i, v := range x {
			dst[i] = v / d
		}
	})
	if err != nil {
		return err
	}
	return o.give(out, true)
}

// reduction reduces a row to a number, for each kind of number.
type reduction struct {
	f func(x []float32) float32
	i func(x []int32) int32
}

var (
	reduceSum  = reduction{kernels.Sum, func(x []int32) (s int32) { return foldI(x, 0, func(a, b int32) int32 { return a + b }) }}
	reduceMean = reduction{func(x []float32) float32 { return kernels.Sum(x) / float32(len(x)) }, func(x []int32) int32 {
		var s int64
		for _, v := range x {
			s += int64(v)
		}
		if len(x) == 0 {
			return 0
		}
		return int32(math.Trunc(float64(s) / float64(len(x))))
	}}
	reduceMax       = reduction{kernels.Max, func(x []int32) int32 { return foldI(x, math.MinInt32, func(a, b int32) int32 { return max(a, b) }) }}
	reduceMin       = reduction{minOf, func(x []int32) int32 { return foldI(x, math.MaxInt32, func(a, b int32) int32 { return min(a, b) }) }}
	reduceProd      = reduction{prodOf, func(x []int32) int32 { return foldI(x, 1, func(a, b int32) int32 { return a * b }) }}
	reduceSumSquare = reduction{func(x []float32) float32 { return kernels.Dot(x, x) }, func(x []int32) int32 { return foldI(x, 0, func(a, b int32) int32 { return a + b*b }) }}
	reduceL1        = reduction{absSum, func(x []int32) int32 { return foldI(x, 0, func(a, b int32) int32 { return a + absI(b) }) }}
	reduceL2        = reduction{func(x []float32) float32 { return sqrt(kernels.Dot(x, x)) }, reduceL2I}
	reduceLogSum    = reduction{logSum, logSumI}
	reduceLogSumExp = reduction{logSumExp, logSumExpI}
)

// The following reduce integers to numbers that are none, and cut them off.

func reduceL2I(x []int32) int32 {
	s := 0.0
	for _, v := range x {
		s += float64(v) * float64(v)
	}
	return truncate(float32(math.Sqrt(s)))
}

func logSumI(x []int32) int32 {
	s := 0.0
	for _, v := range x {
		s += float64(v)
	}
	return truncate(float32(math.Log(s)))
}

func logSumExpI(x []int32) int32 {
	if len(x) == 0 {
		return math.MinInt32
	}
	m, s := slices.Max(x), 0.0
	for _, v := range x {
		s += math.Exp(float64(v) - float64(m))
	}
	return truncate(float32(float64(m) + math.Log(s)))
}

func logSum(x []float32) float32 { return float32(math.Log(float64(kernels.Sum(x)))) }

func foldI(x []int32, s int32, f func(a, b int32) int32) int32 {
	for _, v := range x {
		s = f(s, v)
	}
	return s
}

func minOf(x []float32) float32 {
	m := float32(math.Inf(1))
	for _, v := range x {
		m = minF(v, m)
		if m != m {
			break
		}
	}
	return m
}

func prodOf(x []float32) float32 {
	p := float32(1)
	for _, v := range x {
		p *= v
	}
	return p
}

func absSum(x []float32) float32 {
	s := 0.0
	for _, v := range x {
		s += math.Abs(float64(v))
	}
	return float32(s)
}

func logSumExp(x []float32) float32 {
	m := kernels.Max(x)
	if math.IsInf(float64(m), 0) || m != m {
		return m
	}
	s := 0.0
	for _, v := range x {
		s += math.Exp(float64(v - m))
	}
	return m + float32(math.Log(s))
}

func reduceOp(r reduction) builder {
	return func(o *opCtx) error {
		x := o.x("x")
		axes, err := o.axes("axes", len(x.shape()))
		if err != nil {
			return err
		}
		keep, err := o.boolOr("keep_dims", false)
		if err != nil {
			return err
		}
		var out *val
		switch {
		case x.dt.IsFloat():
			out, err = reduce(o, x, x.dt, axes, keep, r.f)
		case r.i != nil && x.str == nil:
			out, err = reduce(o, x, x.dt, axes, keep, r.i)
		default:
			err = fmt.Errorf("not defined for elements of type %v", x.dt)
		}
		if err != nil {
			return err
		}
		return o.give(out, true)
	}
}

// reduce emits a step that gives one number per row.
func reduce[A, B number](o *opCtx, x *val, d mil.DType, axes []int, keep bool, f func(x []A) B) (*val, error) {
	shape := []int{}
	for i, n := range x.shape() {
		if !slices.Contains(axes, i) {
			shape = append(shape, n)
		} else if keep {
			shape = append(shape, 1)
		}
	}
	in, n, _, err := o.rowsOf(x, axes)
	if err != nil {
		return nil, err
	}
	out, err := o.p.fresh(d, shape, o.constant)
	if err != nil {
		return nil, err
	}
	rows := out.size()
	if rows == 0 {
		return out, nil
	}
	per := max(1, grain/max(n, 1))
	chunks := (rows + per - 1) / per
	xb, xo, ob := in.buf, in.v.off, out.buf
	body := func(c *call, chunk, slot int) {
		a, b := data[A](c, xb)[xo:], data[B](c, ob)
		for r := chunk * per; r < min((chunk+1)*per, rows); r++ {
			b[r] = f(a[r*n : (r+1)*n])
		}
	}
	return out, o.p.emit(bufsOf(in), bufsOf(out), func(c *call) { c.parallel(chunks, body) })
}

func argOf[T number](x []T, better func(a, b T) bool) int32 {
	best := 0
	for i, v := range x {
		if v != v { // NaN comes first, as in numpy
			return int32(i)
		}
		if better(v, x[best]) {
			best = i
		}
	}
	return int32(best)
}

func argOp(largest bool) builder {
	return func(o *opCtx) error {
		x := o.x("x")
		axis, err := o.axis("axis", -1, len(x.shape()))
		if err != nil {
			return err
		}
		keep, err := o.boolOr("keep_dims", false)
		if err != nil {
			return err
		}
		name, err := o.strOr("output_dtype", "int32")
		if err != nil {
			return err
		}
		d, ok := mil.ParseDType(name)
		if !ok || !d.IsInt() {
			return fmt.Errorf("output_dtype is %q, want an integer type", name)
		}
		if x.shape()[axis] == 0 {
			return fmt.Errorf("dimension %d of shape %v is empty", axis, x.shape())
		}
		var out *val
		if x.dt.IsFloat() {
			out, err = reduce(o, x, d, []int{axis}, keep, func(x []float32) int32 {
				return wrap(d, argOf(x, func(a, b float32) bool { return a != b && (a > b) == largest }))
			})
		} else {
			out, err = reduce(o, x, d, []int{axis}, keep, func(x []int32) int32 {
				return wrap(d, argOf(x, func(a, b int32) bool { return a != b && (a > b) == largest }))
			})
		}
		if err != nil {
			return err
		}
		return o.give(out, true)
	}
}

func buildCumsum(o *opCtx) error {
	x := o.x("x")
	axis, err := o.axis("axis", 0, len(x.shape()))
	if err != nil {
		return err
	}
	exclusive, err := o.boolOr("exclusive", false)
	if err != nil {
		return err
	}
	reverse, err := o.boolOr("reverse", false)
	if err != nil {
		return err
	}
	in, n, perm, err := o.rowsOf(x, []int{axis})
	if err != nil {
		return err
	}
	out, err := o.p.fresh(x.dt, in.shape(), o.constant)
	if err != nil {
		return err
	}
	if out.size() > 0 {
		run := cumsumStep[float32](in, out, n, exclusive, reverse)
		if out.buf.elem == elemI32 {
			run = cumsumStep[int32](in, out, n, exclusive, reverse)
		}
		if err := o.p.emit(bufsOf(in), bufsOf(out), run); err != nil {
			return err
		}
	}
	return o.give(out.with(out.v.permute(inverse(perm))), true)
}

func cumsumStep[T number](in, out *val, n int, exclusive, reverse bool) func(c *call) {
	rows := out.size() / n
	xb, xo, ob, dt := in.buf, in.v.off, out.buf, in.dt
	return func(c *call) {
		a, d := data[T](c, xb)[xo:], data[T](c, ob)
		for r := range rows {
			var s T
			for i := range n {
				k := r*n + i
				if reverse {
					k = r*n + n - 1 - i
				}
				v := a[k]
				if exclusive {
					d[k] = s
					s += v
				} else {
					s += v
					d[k] = s
				}
				if ob.elem == elemI32 {
					d[k] = T(wrap(dt, int32(d[k])))
				}
			}
		}
	}
}

func buildTopK(o *opCtx) error {
	x := o.x("x")
	axis, err := o.axis("axis", -1, len(x.shape()))
	if err != nil {
		return err
	}
	k, err := o.intOr("k", 1)
	if err != nil {
		return err
	}
	ascending, err := o.boolOr("ascending", false)
	if err != nil {
		return err
	}
	indices, err := o.boolOr("return_indices", true)
	if err != nil {
		return err
	}
	name, err := o.strOr("output_indices_dtype", "int32")
	if err != nil {
		return err
	}
	d, ok := mil.ParseDType(name)
	if !ok || !d.IsInt() {
		return fmt.Errorf("output_indices_dtype is %q, want an integer type", name)
	}
	in, n, perm, err := o.rowsOf(x, []int{axis})
	if err != nil {
		return err
	}
	if k == -1 {
		k = n
	}
	if k < 0 || k > n {
		return fmt.Errorf("k is %d, the dimension has %d", k, n)
	}
	shape := slices.Clone(in.shape())
	shape[len(shape)-1] = k
	vals, err := o.p.fresh(x.dt, shape, o.constant)
	if err != nil {
		return err
	}
	ids, err := o.p.fresh(d, shape, o.constant)
	if err != nil {
		return err
	}
	if vals.size() > 0 {
		o.p.need(2 * n)
		run := topKStep[float32](in, vals, ids, n, k, ascending)
		if vals.buf.elem == elemI32 {
			run = topKStep[int32](in, vals, ids, n, k, ascending)
		}
		if err := o.p.emit(bufsOf(in), bufsOf(vals, ids), run); err != nil {
			return err
		}
	}
	back := inverse(perm)
	if err := o.give(vals.with(vals.v.permute(back)), true); err != nil || !indices {
		return err
	}
	return o.give(ids.with(ids.v.permute(back)), true)
}

func topKStep[T number](in, vals, ids *val, n, k int, ascending bool) func(c *call) {
	rows := ids.size() / k
	xb, xo, ib, dt := in.buf, in.v.off, ids.buf, ids.dt
	body := func(c *call, r, slot int) {
		a := data[T](c, xb)[xo+r*n : xo+(r+1)*n]
		order := temp[int32](c, slot, 0, n)
		for i := range order {
			order[i] = int32(i)
		}
		slices.SortFunc(order, func(i, j int32) int {
			x, y := a[i], a[j]
			switch {
			case x == y:
			case (x < y) == ascending && x == x && y == y, x == x && y != y:
				return -1
			default:
				if x == x || y == y {
					return 1
				}
			}
			return int(i - j) // the first of equals comes first
		})
		for j := range k {
			if vals != nil {
				data[T](c, vals.buf)[r*k+j] = a[order[j]]
			}
			c.i32(ib)[r*k+j] = wrap(dt, order[j])
		}
	}
	return func(c *call) { c.parallel(rows, body) }
}
