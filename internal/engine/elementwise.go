package engine

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"anemone/internal/engine/kernels"
	"anemone/mil"
)

// Elementwise operations walk a nest whose last operand is the result. The
// innermost loop of the result is dense. Operands that are not are brought
// into scratch memory block by block, so that kernels only see slices.
const (
	block = 512     // elements of an operand in scratch memory
	grain = 1 << 14 // elements of a chunk of parallel work
)

// piece is a part of the innermost loop of a nest: n elements, at most
// block, of every operand from its offset on.
type piece func(c *call, slot int, off [4]int, n int)

// spread returns a step that divides a nest among chunks. Everything that
// it needs is made here, when planning, so that running allocates nothing.
func spread(ns nest, f piece) func(c *call) {
	l := &ns.loops[len(ns.loops)-1]
	inner, rows := l.n, ns.rows()
	if inner == 0 || rows == 0 {
		return func(*call) {}
	}
	row := func(c *call, slot int, off [4]int, lo, hi int) {
		for k := range off {
			off[k] += lo * l.s[k]
		}
		for ; lo < hi; lo += block {
			f(c, slot, off, min(block, hi-lo))
			for k := range off {
				off[k] += block * l.s[k]
			}
		}
	}
	if rows == 1 {
		chunks := (inner + grain - 1) / grain
		body := func(c *call, chunk, slot int) {
			row(c, slot, ns.off, chunk*grain, min((chunk+1)*grain, inner))
		}
		return func(c *call) { c.parallel(chunks, body) }
	}
	per := max(1, grain/inner)
	chunks := (rows + per - 1) / per
	body := func(c *call, chunk, slot int) {
		w := ns.seek(chunk * per)
		for range min(per, rows-chunk*per) {
			row(c, slot, w.off, 0, inner)
			ns.next(&w)
		}
	}
	return func(c *call) { c.parallel(chunks, body) }
}

// gatherRun returns n elements of an operand as a slice: its own memory if they
// lie side by side, else a copy at place k of the scratch memory.
func gatherRun[T number](c *call, b *buf, off, step, n, slot, k int) []T {
	x := data[T](c, b)
	if step == 1 {
		return x[off : off+n]
	}
	t := temp[T](c, slot, k*block, n)
	if step == 0 {
		v := x[off]
		for i := range t {
			t[i] = v
		}
		return t
	}
	for i := range t {
		t[i] = x[off]
		off += step
	}
	return t
}

func copyStep[T number](ns nest, src, dst *buf) func(c *call) {
	s := ns.loops[len(ns.loops)-1].s
	return spread(ns, func(c *call, slot int, off [4]int, n int) {
		x, d := data[T](c, src), data[T](c, dst)
		put(d, off[1], s[1], x, off[0], s[0], n)
	})
}

// put copies n elements between any steps.
func put[T number](d []T, at, step int, x []T, from, by, n int) {
	switch {
	case step == 1 && by == 1:
		copy(d[at:at+n], x[from:from+n])
	case step == 1 && by == 0:
		v := x[from]
		d = d[at : at+n]
		for i := range d {
			d[i] = v
		}
	case step == 1:
		d = d[at : at+n]
		for i := range d {
			d[i] = x[from]
			from += by
		}
	default:
		for range n {
			d[at] = x[from]
			at += step
			from += by
		}
	}
}

func widenStep(ns nest, src, dst *buf) func(c *call) {
	s := ns.loops[len(ns.loops)-1].s
	return spread(ns, func(c *call, slot int, off [4]int, n int) {
		d := c.f32(dst)[off[1] : off[1]+(n-1)*s[1]+1]
		if s[0] == 1 && s[1] == 1 {
			kernels.Widen(d, src.h[off[0]:off[0]+n])
			return
		}
		var one [1]float32
		for i := range n {
			at := off[0] + i*s[0]
			kernels.Widen(one[:], src.h[at:at+1])
			d[i*s[1]] = one[0]
		}
	})
}

// align makes views of one shape that can be walked together with a result
// that lies like the operand that says so, copying operands whose nests are
// at odds. It returns the result too.
func (o *opCtx) align(d mil.DType, shape []int, xs []*val) (nest, []*val, *val, error) {
	xs = slices.Clone(xs)
	lead := -1
	for k, x := range xs {
		var err error
		if x, err = o.p.plain(x); err != nil {
			return nest{}, nil, nil, err
		}
		w, ok := x.v.broadcast(shape)
		if !ok {
			return nest{}, nil, nil, fmt.Errorf("shape %v does not stretch to %v", x.shape(), shape)
		}
		if lead < 0 && slices.Equal(x.shape(), shape) {
			lead = k
		}
		xs[k] = x.with(w)
	}
	place := dense(shape)
	if lead >= 0 {
		place = xs[lead].v.like()
	}
	out, err := o.p.freshView(d, place, o.constant)
	if err != nil {
		return nest{}, nil, nil, err
	}
	for {
		views := make([]view, 0, 4)
		for _, x := range xs {
			views = append(views, x.v)
		}
		ns, bad, ok := weave(append(views, out.v)...)
		if ok {
			return ns, xs, out, nil
		}
		if bad >= len(xs) {
			// The result's own order is at odds: lay it out row-major.
			bad = 0
			out.v = dense(shape)
		}
		if xs[bad], err = o.p.copyOf(xs[bad]); err != nil {
			return nest{}, nil, nil, err
		}
	}
}

func bufsOf(xs ...*val) []*buf {
	var out []*buf
	for _, x := range xs {
		if x != nil && x.buf != nil {
			out = append(out, x.buf)
		}
	}
	return out
}

// unary applies f to every element.
func unary[A, B number](o *opCtx, x *val, d mil.DType, f func(dst []B, x []A)) (*val, error) {
	ns, xs, out, err := o.align(d, x.shape(), []*val{x})
	if err != nil || out.size() == 0 {
		return out, err
	}
	o.p.need(4 * block)
	s := ns.loops[len(ns.loops)-1].s
	xb, ob := xs[0].buf, out.buf
	return out, o.p.emit(bufsOf(xs...), bufsOf(out), spread(ns, func(c *call, slot int, off [4]int, n int) {
		dst := data[B](c, ob)
		if s[1] == 1 || n == 1 {
			f(dst[off[1]:off[1]+n], gatherRun[A](c, xb, off[0], s[0], n, slot, 0))
			return
		}
		t := temp[B](c, slot, block, n)
		f(t, gatherRun[A](c, xb, off[0], s[0], n, slot, 0))
		put(dst, off[1], s[1], t, 0, 1, n)
	}))
}

// pairs applies f to pairs of elements, broadcasting.
func pairs[A, B number](o *opCtx, x, y *val, d mil.DType, f func(dst []B, x, y []A)) (*val, error) {
	shape, ok := broadcastShapes(x.shape(), y.shape())
	if !ok {
		return nil, fmt.Errorf("shapes %v and %v do not broadcast", x.shape(), y.shape())
	}
	ns, xs, out, err := o.align(d, shape, []*val{x, y})
	if err != nil || out.size() == 0 {
		return out, err
	}
	o.p.need(4 * block)
	s := ns.loops[len(ns.loops)-1].s
	xb, yb, ob := xs[0].buf, xs[1].buf, out.buf
	return out, o.p.emit(bufsOf(xs...), bufsOf(out), spread(ns, func(c *call, slot int, off [4]int, n int) {
		a := gatherRun[A](c, xb, off[0], s[0], n, slot, 0)
		b := gatherRun[A](c, yb, off[1], s[1], n, slot, 1)
		dst := data[B](c, ob)
		if s[2] == 1 || n == 1 {
			f(dst[off[2]:off[2]+n], a, b)
			return
		}
		t := temp[B](c, slot, 2*block, n)
		f(t, a, b)
		put(dst, off[2], s[2], t, 0, 1, n)
	}))
}

// choose gives a where cond is true, b elsewhere.
func choose[T number](o *opCtx, cond, a, b *val) (*val, error) {
	shape, ok := broadcastShapes(a.shape(), b.shape())
	if ok {
		shape, ok = broadcastShapes(shape, cond.shape())
	}
	if !ok {
		return nil, fmt.Errorf("shapes %v, %v and %v do not broadcast", cond.shape(), a.shape(), b.shape())
	}
	ns, xs, out, err := o.align(a.dt, shape, []*val{a, b, cond})
	if err != nil || out.size() == 0 {
		return out, err
	}
	o.p.need(4 * block)
	s := ns.loops[len(ns.loops)-1].s
	ab, bb, cb, ob := xs[0].buf, xs[1].buf, xs[2].buf, out.buf
	return out, o.p.emit(bufsOf(xs...), bufsOf(out), spread(ns, func(c *call, slot int, off [4]int, n int) {
		x := gatherRun[T](c, ab, off[0], s[0], n, slot, 0)
		y := gatherRun[T](c, bb, off[1], s[1], n, slot, 1)
		k := gatherRun[int32](c, cb, off[2], s[2], n, slot, 2)
		dst := data[T](c, ob)
		for i, q := range k {
			v := y[i]
			if q != 0 {
				v = x[i]
			}
			dst[off[3]+i*s[3]] = v
		}
	}))
}

// eachF makes a kernel of a function of one number.
func eachF(f func(float32) float32) func(dst, x []float32) {
	return func(dst, x []float32) {
		for i, v := range x[:len(dst)] {
			dst[i] = f(v)
		}
	}
}

// wide makes a kernel of a function of one float64.
func wide(f func(float64) float64) func(dst, x []float32) {
	return eachF(func(x float32) float32 { return float32(f(float64(x))) })
}

func eachI(d mil.DType, f func(int32) int32) func(dst, x []int32) {
	return func(dst, x []int32) {
		for i, v := range x[:len(dst)] {
			dst[i] = wrap(d, f(v))
		}
	}
}

// unaryOp builds an operation on x with a kernel for each kind of number;
// one of them may be missing.
func unaryOp(f func(dst, x []float32), g func(int32) int32) builder {
	return func(o *opCtx) error {
		x := o.x("x")
		var out *val
		var err error
		switch {
		case x.dt.IsFloat() && f != nil:
			out, err = unary(o, x, x.dt, f)
		case !x.dt.IsFloat() && x.str == nil && g != nil:
			out, err = unary(o, x, x.dt, eachI(x.dt, g))
		default:
			err = fmt.Errorf("not defined for elements of type %v", x.dt)
		}
		if err != nil {
			return err
		}
		return o.give(out, true)
	}
}

func pairI(d mil.DType, f func(x, y int32) int32) func(dst, x, y []int32) {
	return func(dst, x, y []int32) {
		for i := range dst {
			dst[i] = wrap(d, f(x[i], y[i]))
		}
	}
}

func pairF(f func(x, y float32) float32) func(dst, x, y []float32) {
	return func(dst, x, y []float32) {
		x, y = x[:len(dst)], y[:len(dst)]
		for i := range dst {
			dst[i] = f(x[i], y[i])
		}
	}
}

// same checks that two operands have one kind of elements.
func same(x, y *val) error {
	if x.str != nil || y.str != nil || x.dt.IsFloat() != y.dt.IsFloat() || (x.dt == mil.Bool) != (y.dt == mil.Bool) {
		return fmt.Errorf("operands are %v and %v, want the same type", x.dt, y.dt)
	}
	return nil
}

func binaryOp(f func(dst, x, y []float32), g func(x, y int32) int32) builder {
	return func(o *opCtx) error {
		x, y := o.x("x"), o.x("y")
		if x.scores != nil || y.scores != nil {
			chain := o.lazyMask
			if o.op.Type == "mul" {
				chain = o.lazyScale
			}
			if ok, err := chain(); ok || err != nil {
				return err
			}
		}
		if err := same(x, y); err != nil {
			return err
		}
		var out *val
		var err error
		if x.dt.IsFloat() {
			out, err = pairs(o, x, y, x.dt, f)
		} else {
			out, err = pairs(o, x, y, x.dt, pairI(x.dt, g))
		}
		if err != nil {
			return err
		}
		return o.give(out, true)
	}
}

func truth[T number](f func(x, y T) bool) func(dst []int32, x, y []T) {
	return func(dst []int32, x, y []T) {
		for i := range dst {
			dst[i] = 0
			if f(x[i], y[i]) {
				dst[i] = 1
			}
		}
	}
}

func compareOp(f func(x, y float32) bool, g func(x, y int32) bool) builder {
	return func(o *opCtx) error {
		x, y := o.x("x"), o.x("y")
		if err := same(x, y); err != nil {
			return err
		}
		var out *val
		var err error
		if x.dt.IsFloat() {
			out, err = pairs(o, x, y, mil.Bool, truth(f))
		} else {
			out, err = pairs(o, x, y, mil.Bool, truth(g))
		}
		if err != nil {
			return err
		}
		return o.give(out, true)
	}
}

func logicalOp(g func(x, y bool) bool) builder {
	return func(o *opCtx) error {
		x, y := o.x("x"), o.x("y")
		if x.dt != mil.Bool || y.dt != mil.Bool {
			return fmt.Errorf("operands are %v and %v, want bool", x.dt, y.dt)
		}
		out, err := pairs(o, x, y, mil.Bool, truth(func(x, y int32) bool { return g(x != 0, y != 0) }))
		if err != nil {
			return err
		}
		return o.give(out, true)
	}
}

// wrap reduces an integer to the range of its type, as the type's own
// arithmetic would.
func wrap(d mil.DType, x int32) int32 {
	switch d {
	case mil.Int8:
		return int32(int8(x))
	case mil.UInt8:
		return int32(uint8(x))
	case mil.Int16:
		return int32(int16(x))
	case mil.UInt16:
		return int32(uint16(x))
	case mil.Bool:
		if x != 0 {
			return 1
		}
		return 0
	}
	return x
}

func wrap64(d mil.DType, x int64) int32 {
	if d == mil.Int64 || d == mil.UInt64 {
		// Kept in 32 bits; larger ones saturate, as "to the end" does in
		// slices.
		return int32(min(max(x, math.MinInt32), math.MaxInt32))
	}
	return wrap(d, int32(x))
}

// truncate converts to an integer toward zero. Values out of range give the
// nearest one in range, and NaN zero.
func truncate(x float32) int32 {
	switch {
	case x >= 1<<31:
		return math.MaxInt32
	case x < -1<<31:
		return math.MinInt32
	case x != x:
		return 0
	}
	return int32(x)
}

func floorDiv(x, y int32) int32 {
	if y == 0 {
		return 0
	}
	q := x / y
	if x%y != 0 && (x < 0) != (y < 0) {
		q--
	}
	return q
}

func floorMod(x, y int32) int32 {
	if y == 0 {
		return 0
	}
	r := x % y
	if r != 0 && (r < 0) != (y < 0) {
		r += y
	}
	return r
}

func floorModF(x, y float32) float32 {
	r := math.Mod(float64(x), float64(y))
	if r != 0 && (r < 0) != (y < 0) {
		r += float64(y)
	}
	return float32(r)
}

func powI(x, y int32) int32 {
	if y < 0 {
		switch x {
		case 1:
			return 1
		case -1:
			return 1 - 2*(y&1)
		}
		return 0
	}
	r := int32(1)
	for ; y > 0; y >>= 1 {
		if y&1 != 0 {
			r *= x
		}
		x *= x
	}
	return r
}

func maxF(x, y float32) float32 {
	if x > y || x != x {
		return x
	}
	return y
}

func minF(x, y float32) float32 {
	if x < y || x != x {
		return x
	}
	return y
}

func addF(dst, x, y []float32) {
	x, y = x[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] = x[i] + y[i]
	}
}

func subF(dst, x, y []float32) {
	x, y = x[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] = x[i] - y[i]
	}
}

func mulF(dst, x, y []float32) {
	x, y = x[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] = x[i] * y[i]
	}
}

func divF(dst, x, y []float32) {
	x, y = x[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] = x[i] / y[i]
	}
}

func sign[T number](x T) T {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return x
}

func absI(x int32) int32 {
	if x < 0 {
		return -x
	}
	return x
}

func keepI(x int32) int32 { return x }

func buildCast(o *opCtx) error {
	x := o.x("x")
	name, err := o.strOr("dtype", "")
	if err != nil {
		return err
	}
	d, ok := mil.ParseDType(name)
	if !ok || d == mil.String || x.str != nil {
		return fmt.Errorf("cannot cast %v to %q", x.dt, name)
	}
	var out *val
	computed := true
	switch {
	case x.dt.IsFloat() && d.IsFloat():
		// Every floating-point type is float32 here; see Numerics.
		if out, err = o.p.plain(x); err == nil {
			out = &val{dt: d, buf: out.buf, v: out.v}
		}
		computed = false
	case x.dt.IsFloat() && d == mil.Bool:
		out, err = unary(o, x, d, func(dst []int32, x []float32) {
			for i, v := range x {
				dst[i] = 0
				if v != 0 {
					dst[i] = 1
				}
			}
		})
	case x.dt.IsFloat():
		out, err = unary(o, x, d, func(dst []int32, x []float32) {
			for i, v := range x {
				dst[i] = wrap(d, truncate(v))
			}
		})
	case d.IsFloat():
		out, err = unary(o, x, d, func(dst []float32, x []int32) {
			for i, v := range x {
				dst[i] = float32(v)
			}
		})
	default:
		out, err = unary(o, x, d, eachI(d, keepI))
	}
	if err != nil {
		return err
	}
	return o.give(out, computed)
}

func buildSelect(o *opCtx) error {
	cond, a, b := o.x("cond"), o.x("a"), o.x("b")
	if err := same(a, b); err != nil {
		return err
	}
	if cond.dt != mil.Bool {
		return fmt.Errorf("cond is %v, want bool", cond.dt)
	}
	var out *val
	var err error
	if a.dt.IsFloat() {
		out, err = choose[float32](o, cond, a, b)
	} else {
		out, err = choose[int32](o, cond, a, b)
	}
	if err != nil {
		return err
	}
	return o.give(out, true)
}

// withEpsilon builds an operation that adds a constant before it works.
func withEpsilon(def float32, f func(x, epsilon float32) float32) builder {
	return func(o *opCtx) error {
		eps, err := o.floatOr("epsilon", def)
		if err != nil {
			return err
		}
		return unaryOp(eachF(func(x float32) float32 { return f(x, eps) }), nil)(o)
	}
}

// withAlpha builds an operation that has one constant.
func withAlpha(f func(x, alpha float32) float32) builder {
	return func(o *opCtx) error {
		alpha, err := o.floatOr("alpha", 0)
		if err != nil {
			return err
		}
		return unaryOp(eachF(func(x float32) float32 { return f(x, alpha) }), nil)(o)
	}
}

func buildClip(o *opCtx) error {
	lo, err := o.floatOr("alpha", 0)
	if err != nil {
		return err
	}
	hi, err := o.floatOr("beta", 0)
	if err != nil {
		return err
	}
	return unaryOp(eachF(func(x float32) float32 {
		if x < lo {
			x = lo
		}
		if x > hi {
			x = hi
		}
		return x
	}), func(x int32) int32 {
		return min(max(x, truncate(lo)), truncate(hi))
	})(o)
}

func buildGelu(o *opCtx) error {
	mode, err := o.strOr("mode", "EXACT")
	if err != nil {
		return err
	}
	f := map[string]func(float32) float32{
		"EXACT":                 kernels.GeluExact,
		"TANH_APPROXIMATION":    kernels.GeluTanh,
		"SIGMOID_APPROXIMATION": kernels.GeluSigmoid,
	}[mode]
	if f == nil {
		return fmt.Errorf("mode is %q, want EXACT, TANH_APPROXIMATION or SIGMOID_APPROXIMATION", mode)
	}
	return unaryOp(eachF(f), nil)(o)
}

func buildIdentity(o *opCtx) error { return o.give(o.x("x"), false) }

var errNoNumber = errors.New("strings are not supported")
