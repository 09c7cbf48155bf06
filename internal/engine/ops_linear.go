package engine

import (
	"fmt"
	"math"
	"slices"

	"anemone/internal/engine/kernels"
	"anemone/mil"
)

// Sizes of the pieces in which products are computed. They are fixed, so
// that results do not depend on the number of workers.
const (
	vecRows    = 32      // rows of a weight per chunk when there is one column
	panelElems = 1 << 15 // elements of an expanded panel of rows
	mulRows    = 64      // rows of a variable right-hand side per chunk
)

// product emits out = x * w^T + bias, where x is a dense matrix of n rows
// and w a constant. out is dense, n rows of w.Rows() columns.
func (o *opCtx) product(out, x *val, n int, w kernels.Matrix, bias *val) error {
	rows, k := w.Rows(), w.Cols()
	xb, xo, ob := x.buf, x.v.off, out.buf
	reads := bufsOf(x)
	var bb *buf
	bo := 0
	if bias != nil {
		bb, bo = bias.buf, bias.v.off
		reads = append(reads, bb)
	}
	if n == 1 {
		o.p.need(w.Scratch(1))
		chunks := (rows + vecRows - 1) / vecRows
		body := func(c *call, chunk, slot int) {
			r0, r1 := chunk*vecRows, min((chunk+1)*vecRows, rows)
			d := c.f32(ob)[r0:r1]
			w.MulVec(c.scratch[slot], d, c.f32(xb)[xo:xo+k], r0, r1)
			if bb != nil {
				addTo(d, c.f32(bb)[bo+r0:])
			}
		}
		return o.p.emit(reads, bufsOf(out), func(c *call) { c.parallel(chunks, body) })
	}
	step := min(max(panelElems/k&^7, 8), 64)
	o.p.need(w.Scratch(step))
	chunks := (rows + step - 1) / step
	body := func(c *call, chunk, slot int) {
		r0, r1 := chunk*step, min((chunk+1)*step, rows)
		panel := w.Panel(c.scratch[slot], r0, r1)
		d := c.f32(ob)
		kernels.MulNT(d[r0:], rows, c.f32(xb)[xo:], k, n, panel, k, r1-r0, k)
		if bb != nil {
			for i := range n {
				addTo(d[i*rows+r0:i*rows+r1], c.f32(bb)[bo+r0:])
			}
		}
	}
	return o.p.emit(reads, bufsOf(out), func(c *call) { c.parallel(chunks, body) })
}

func addTo(d, x []float32) {
	for i, v := range x[:len(d)] {
		d[i] += v
	}
}

// dense32 returns x row-major, as float32.
func (o *opCtx) dense32(x *val) (*val, error) {
	if x.str != nil || !x.dt.IsFloat() {
		return nil, fmt.Errorf("a product of elements of type %v is not supported", x.dt)
	}
	return o.p.straight(x)
}

func (o *opCtx) optional32(name string, n int) (*val, error) {
	b := o.x(name)
	if b == nil {
		return nil, nil
	}
	b, err := o.dense32(b)
	if err == nil && b.size() != n {
		err = fmt.Errorf("argument %q has %d elements, want %d", name, b.size(), n)
	}
	return b, err
}

func buildLinear(o *opCtx) error {
	x, w := o.x("x"), o.x("weight")
	if len(x.shape()) == 0 || len(w.shape()) != 2 || x.shape()[len(x.shape())-1] != w.shape()[1] {
		return fmt.Errorf("weight of shape %v does not fit %v", w.shape(), x.shape())
	}
	rows, cols := w.shape()[0], w.shape()[1]
	bias, err := o.optional32("bias", rows)
	if err != nil {
		return err
	}
	if x, err = o.dense32(x); err != nil {
		return err
	}
	shape := slices.Clone(x.shape())
	shape[len(shape)-1] = rows
	out, err := o.p.fresh(x.dt, shape, o.constant)
	if err != nil {
		return err
	}
	if out.size() == 0 {
		return o.give(out, true)
	}
	if cols == 0 {
		return fmt.Errorf("weight of shape %v has no columns", w.shape())
	}
	m, ok, err := o.p.matrix(w, rows)
	if err != nil {
		return err
	}
	if !ok {
		if w, err = o.dense32(w); err != nil {
			return err
		}
		if m, ok, err = o.p.matrix(w, rows); err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("weight must be a constant")
		}
	}
	if err := o.product(out, x, x.size()/cols, m, bias); err != nil {
		return err
	}
	return o.give(out, true)
}

// operand is a side of a batched product of variable matrices: rows of k
// elements that are ld apart if the elements lie side by side (unit), else k
// rows of elements side by side.
type operand struct {
	buf  *buf
	off  []int // of every batch
	ld   int
	flip bool // the contracted axis is the outer one in memory
}

// operand brings a view of [batch..., rows, k] into one of the two forms.
// Only rows that lie on the contracted axis are taken as they are if flip is
// not allowed.
func (o *opCtx) operand(x *val, w view, batch []int, flip bool) (*operand, error) {
	r := len(w.shape)
	bw, ok := w.broadcast(append(slices.Clone(batch), w.shape[r-2:]...))
	if !ok {
		return nil, fmt.Errorf("batches of shape %v do not stretch to %v", w.shape[:r-2], batch)
	}
	const maxBatches = 1 << 20
	rows, k := w.shape[r-2], w.shape[r-1]
	rs, ok1 := bw.stride(len(batch))
	ks, ok2 := bw.stride(len(batch) + 1)
	if ok1 && ok2 && x.buf.elem == elemF32 {
		if offs, ok := bw.offsets(len(batch), maxBatches); ok {
			switch {
			case (ks == 1 || k == 1) && (rs >= k || rows == 1):
				return &operand{x.buf, offs, max(rs, k), false}, nil
			case flip && (rs == 1 || rows == 1) && (ks >= rows || k == 1):
				return &operand{x.buf, offs, max(ks, rows), true}, nil
			}
		}
	}
	y, err := o.p.copyOf(x.with(w))
	if err != nil {
		return nil, err
	}
	bw, _ = y.v.broadcast(append(slices.Clone(batch), w.shape[r-2:]...))
	offs, ok := bw.offsets(len(batch), maxBatches)
	if !ok {
		return nil, fmt.Errorf("too many batches: %v", batch)
	}
	return &operand{y.buf, offs, k, false}, nil
}

func buildMatmul(o *opCtx) error {
	tx, err := o.boolOr("transpose_x", false)
	if err != nil {
		return err
	}
	ty, err := o.boolOr("transpose_y", false)
	if err != nil {
		return err
	}
	return o.matmul(o.x("x"), o.x("y"), tx, ty)
}

func (o *opCtx) matmul(x, y *val, tx, ty bool) error {
	if x.str != nil || y.str != nil {
		return errNoNumber
	}
	if !x.dt.IsFloat() || !y.dt.IsFloat() {
		return o.matmulInt(x, y, tx, ty)
	}
	attention := x.scores
	if attention != nil && (!attention.soft || tx || len(x.shape()) < 2 || len(y.shape()) < 2) {
		attention = nil
	}
	var err error
	if attention == nil {
		if x, err = o.p.plain(x); err != nil {
			return err
		}
	}
	stored := y // perhaps compressed
	if y.comp == nil && y.buf.elem != elemF16 {
		stored = nil
	} else if y.comp == nil && y.size() < y.buf.n && !y.v.contiguous() {
		if y, err = o.p.plain(y); err != nil {
			return err
		}
		stored = nil
	}
	xs, ys := len(x.shape()), len(y.shape())
	if xs == 0 || ys == 0 {
		return fmt.Errorf("product of shapes %v and %v", x.shape(), y.shape())
	}
	swapLast := func(v view, swap bool) view {
		r := len(v.shape)
		if !swap || r < 2 {
			return v
		}
		perm := make([]int, r)
		for i := range perm {
			perm[i] = i
		}
		perm[r-1], perm[r-2] = r-2, r-1
		return v.permute(perm)
	}
	// Views of [batch..., m, k] and [batch..., n, k].
	xv := swapLast(x.v, tx)
	yv := swapLast(y.v, !ty)
	if xs == 1 {
		xv = view{xv.off, []int{1, xv.shape[0]}, [][]dim{nil, xv.axes[0]}}
	}
	if ys == 1 {
		yv = view{yv.off, []int{1, yv.shape[0]}, [][]dim{nil, yv.axes[0]}}
	}
	rx, ry := len(xv.shape), len(yv.shape)
	m, k, n := xv.shape[rx-2], xv.shape[rx-1], yv.shape[ry-2]
	if yv.shape[ry-1] != k {
		return fmt.Errorf("inner dimensions of shapes %v and %v differ", x.shape(), y.shape())
	}
	batch, ok := broadcastShapes(xv.shape[:rx-2], yv.shape[:ry-2])
	if !ok {
		return fmt.Errorf("batches of shapes %v and %v do not broadcast", x.shape(), y.shape())
	}
	shape := slices.Clone(batch)
	if xs > 1 {
		shape = append(shape, m)
	}
	if ys > 1 {
		shape = append(shape, n)
	}
	out, err := o.p.fresh(x.dt, shape, o.constant)
	if err != nil {
		return err
	}
	if out.size() == 0 {
		return o.give(out, true)
	}
	if k == 0 {
		if err := o.fill(out, 0, 0); err != nil {
			return err
		}
		return o.give(out, true)
	}
	if attention != nil {
		if y, err = o.p.plain(y); err != nil {
			return err
		}
		yv.off = y.v.off
		v, err := o.operand(y, yv, batch, true)
		if err != nil {
			return err
		}
		if nb, _ := mil.NumElements(x.shape()[:rx-2]); nb == len(v.off) && len(attention.q.off) == nb {
			if err := o.attend(out, attention, v, n); err != nil {
				return err
			}
			return o.give(out, true)
		}
		if x, err = o.p.plain(x); err != nil {
			return err
		}
		xv.off, xv.axes = x.v.off, x.v.axes
		stored = nil
	}
	if stored != nil {
		done, err := o.matmulConst(out, x, xv, stored, n, k, !ty || ys == 1)
		if err != nil {
			return err
		}
		if done {
			return o.give(out, true)
		}
		// Everything of it is widened in place, so views stay good.
		if y, err = o.p.plain(y); err != nil {
			return err
		}
		yv.off = y.v.off
	}
	xo, err := o.operand(x, xv, batch, false)
	if err != nil {
		return err
	}
	yo, err := o.operand(y, yv, batch, true)
	if err != nil {
		return err
	}
	if o.p.chains[o.op] && !o.constant {
		return o.lazy(out, lazyScores{q: xo, k: yo, batch: batch, m: m, n: n, d: k})
	}
	if err := o.multiply(out, xo, yo, m, n, k); err != nil {
		return err
	}
	return o.give(out, true)
}

// multiply emits the batched product out = x y', m rows by n of k terms.
func (o *opCtx) multiply(out *val, xo, yo *operand, m, n, k int) error {
	nb := len(xo.off)
	blocks := (n + mulRows - 1) / mulRows
	// Small products are not worth a chunk of their own.
	per := 1
	if work := m * k * min(n, mulRows); work < grain {
		per = grain / work
	}
	total := nb * blocks
	chunks := (total + per - 1) / per
	ob := out.buf
	body := func(c *call, chunk, slot int) {
		a, b, d := c.f32(xo.buf), c.f32(yo.buf), c.f32(ob)
		for t := chunk * per; t < min((chunk+1)*per, total); t++ {
			i, j := t/blocks, t%blocks*mulRows
			nj := min(mulRows, n-j)
			dst, ax := d[i*m*n+j:], a[xo.off[i]:]
			if yo.flip {
				kernels.MulNN(dst, n, ax, xo.ld, m, b[yo.off[i]+j:], yo.ld, nj, k)
			} else {
				kernels.MulNT(dst, n, ax, xo.ld, m, b[yo.off[i]+j*yo.ld:], yo.ld, nj, k)
			}
		}
	}
	return o.p.emit([]*buf{xo.buf, yo.buf}, bufsOf(out), func(c *call) { c.parallel(chunks, body) })
}

// matmulConst emits a product with a constant matrix that is kept in its
// stored form: n rows of k, or k rows of n if it is upright. done is false if
// that cannot be.
func (o *opCtx) matmulConst(out, x *val, xv view, y *val, n, k int, upright bool) (done bool, err error) {
	if len(y.shape()) > 2 || y.size() != n*k || !y.v.contiguous() || xv.size() != out.size()/n*k {
		return false, nil
	}
	if len(y.shape()) < 2 {
		upright = false
	}
	rows := n
	if upright {
		rows = k
	}
	w, ok, err := o.p.matrix(y, rows)
	if err != nil || !ok {
		return false, err
	}
	px, err := o.p.straight(x.with(xv))
	if err != nil {
		return false, err
	}
	if upright {
		return true, o.productRows(out, px, out.size()/n, w)
	}
	return true, o.product(out, px, out.size()/n, w, nil)
}

// productRows emits out = x * w where the rows of w are along the contracted
// axis.
func (o *opCtx) productRows(out, x *val, rows int, w kernels.Matrix) error {
	k, n := w.Rows(), w.Cols()
	step := max(4, min(64, panelElems/n&^3))
	o.p.need(w.Scratch(step))
	xb, xo, ob := x.buf, x.v.off, out.buf
	// Chunks of rows of x: every one adds up all of w in the same order.
	per := max(1, (rows+7)/8)
	chunks := (rows + per - 1) / per
	body := func(c *call, chunk, slot int) {
		i0, i1 := chunk*per, min((chunk+1)*per, rows)
		d, a := c.f32(ob), c.f32(xb)
		clear(d[i0*n : i1*n])
		for l := 0; l < k; l += step {
			nl := min(step, k-l)
			panel := w.Panel(c.scratch[slot], l, l+nl)
			for i := i0; i < i1; i++ {
				kernels.AddRows(d[i*n:(i+1)*n], a[xo+i*k+l:xo+i*k+l+nl], panel, n)
			}
		}
	}
	return o.p.emit(bufsOf(x), bufsOf(out), func(c *call) { c.parallel(chunks, body) })
}

// matmulInt multiplies integer matrices, plainly.
func (o *opCtx) matmulInt(x, y *val, tx, ty bool) error {
	if err := same(x, y); err != nil {
		return err
	}
	if len(x.shape()) < 2 || len(y.shape()) < 2 {
		return fmt.Errorf("product of integers of shapes %v and %v is not supported", x.shape(), y.shape())
	}
	last2 := func(v *val, swap bool) (*val, error) {
		r := len(v.shape())
		perm := make([]int, r)
		for i := range perm {
			perm[i] = i
		}
		if swap {
			perm[r-1], perm[r-2] = r-2, r-1
		}
		return o.p.straight(v.with(v.v.permute(perm)))
	}
	x, err := last2(x, tx)
	if err != nil {
		return err
	}
	if y, err = last2(y, ty); err != nil {
		return err
	}
	rx, ry := len(x.shape()), len(y.shape())
	m, k, n := x.shape()[rx-2], x.shape()[rx-1], y.shape()[ry-1]
	batch, ok := broadcastShapes(x.shape()[:rx-2], y.shape()[:ry-2])
	if !ok || y.shape()[ry-2] != k {
		return fmt.Errorf("product of shapes %v and %v", x.shape(), y.shape())
	}
	xw, _ := x.v.broadcast(append(slices.Clone(batch), m, k))
	yw, _ := y.v.broadcast(append(slices.Clone(batch), k, n))
	xo, ok1 := xw.offsets(len(batch), 1<<20)
	yo, ok2 := yw.offsets(len(batch), 1<<20)
	if !ok1 || !ok2 {
		return fmt.Errorf("too many batches: %v", batch)
	}
	out, err := o.p.fresh(x.dt, append(batch, m, n), o.constant)
	if err != nil {
		return err
	}
	xb, yb, ob, dt := x.buf, y.buf, out.buf, x.dt
	err = o.p.emit(bufsOf(x, y), bufsOf(out), func(c *call) {
		a, b, d := c.i32(xb), c.i32(yb), c.i32(ob)
		for q := range xo {
			for i := range m {
				for j := range n {
					var s int32
					for l := range k {
						s += a[xo[q]+i*k+l] * b[yo[q]+l*n+j]
					}
					d[(q*m+i)*n+j] = wrap(dt, s)
				}
			}
		}
	})
	if err != nil {
		return err
	}
	return o.give(out, true)
}

// convShape holds what a convolution does along its spatial axes.
type convShape struct {
	kernel, stride, dilation, lo, in, out []int
}

func buildConv(o *opCtx) error {
	x, w := o.x("x"), o.x("weight")
	xs, ws := x.shape(), w.shape()
	n := len(xs) - 2
	if n < 1 || len(ws) != len(xs) || x.str != nil || !x.dt.IsFloat() || !w.dt.IsFloat() {
		return fmt.Errorf("weight of shape %v does not fit %v", ws, xs)
	}
	groups, err := o.intOr("groups", 1)
	if err != nil {
		return err
	}
	if groups < 1 || ws[0]%groups != 0 || ws[1] < 1 || groups > xs[1] || xs[1] != ws[1]*groups {
		return fmt.Errorf("weight of shape %v in %d groups does not fit %v", ws, groups, xs)
	}
	cs, err := o.convShape(xs[2:], ws[2:])
	if err != nil {
		return err
	}
	outC := ws[0]
	bias, err := o.optional32("bias", outC)
	if err != nil {
		return err
	}
	// Channels last, like the rows of a product.
	perm := []int{0}
	back := []int{0, n + 1}
	for i := range n {
		perm = append(perm, 2+i)
		back = append(back, 1+i)
	}
	perm = append(perm, 1)
	shape := append(append([]int{xs[0]}, cs.out...), outC)
	out, err := o.p.fresh(x.dt, shape, o.constant)
	if err != nil {
		return err
	}
	result := out.with(out.v.permute(back))
	if out.size() == 0 {
		return o.give(result, true)
	}
	x, err = o.p.plain(x)
	if err != nil {
		return err
	}
	xv := x.v.permute(perm)
	pointwise := groups == 1
	for i := range n {
		pointwise = pointwise && cs.kernel[i] == 1 && cs.lo[i] == 0 && (cs.out[i]-1)*cs.stride[i] < cs.in[i]
	}
	k := ws[1]
	for _, d := range cs.kernel {
		k *= d
	}
	m, isMatrix, err := o.p.matrix(w, outC)
	if err != nil {
		return err
	}
	if !isMatrix && groups == 1 && w.isConst() {
		if w, err = o.p.straight(w); err != nil {
			return err
		}
		if m, isMatrix, err = o.p.matrix(w, outC); err != nil {
			return err
		}
	}
	switch {
	case pointwise && isMatrix:
		in := x.with(xv)
		for i := range n {
			if in, err = o.sliced(in, 1+i, 0, cs.out[i], cs.stride[i]); err != nil {
				return err
			}
		}
		if in, err = o.p.straight(in); err != nil {
			return err
		}
		err = o.product(out, in, out.size()/outC, m, bias)
	case groups == 1 && isMatrix:
		var cols *val
		if cols, err = o.gatherPatches(x, xv, ws[1], cs); err == nil {
			err = o.product(out, cols, out.size()/outC, m, bias)
		}
	default:
		err = o.directConv(out, x, xv, w, bias, groups, cs)
	}
	if err != nil {
		return err
	}
	return o.give(result, true)
}

func (o *opCtx) convShape(in, kernel []int) (*convShape, error) {
	n := len(in)
	vec := func(name string, n, least, def int) ([]int, error) {
		if o.x(name) == nil {
			return slices.Repeat([]int{def}, n), nil
		}
		v, err := o.mustInts(name)
		if err != nil {
			return nil, err
		}
		if len(v) != n {
			return nil, fmt.Errorf("argument %q has %d elements, want %d", name, len(v), n)
		}
		for _, d := range v {
			if d < least || d > 1<<30 {
				return nil, fmt.Errorf("argument %q is %v", name, v)
			}
		}
		return v, nil
	}
	cs := &convShape{in: in, kernel: kernel, lo: make([]int, n), out: make([]int, n)}
	var err error
	if cs.stride, err = vec("strides", n, 1, 1); err != nil {
		return nil, err
	}
	if cs.dilation, err = vec("dilations", n, 1, 1); err != nil {
		return nil, err
	}
	kind, err := o.strOr("pad_type", "valid")
	if err != nil {
		return nil, err
	}
	pad := make([]int, 2*n)
	if kind == "custom" {
		if pad, err = vec("pad", 2*n, 0, 0); err != nil {
			return nil, err
		}
	}
	for i := range n {
		if kernel[i] < 1 || kernel[i] > 1<<20 {
			return nil, fmt.Errorf("kernel of %v", kernel)
		}
		span := (kernel[i]-1)*cs.dilation[i] + 1
		switch kind {
		case "valid", "custom":
			room := in[i] + pad[2*i] + pad[2*i+1] - span
			if room < 0 {
				return nil, fmt.Errorf("kernel of %v does not fit into %v", kernel, in)
			}
			cs.out[i] = room/cs.stride[i] + 1
			cs.lo[i] = pad[2*i]
		case "same", "same_lower":
			cs.out[i] = (in[i] + cs.stride[i] - 1) / cs.stride[i]
			total := max(0, (cs.out[i]-1)*cs.stride[i]+span-in[i])
			cs.lo[i] = total / 2
			if kind == "same_lower" {
				cs.lo[i] = total - total/2
			}
		default:
			return nil, fmt.Errorf("pad_type is %q, want valid, same, same_lower or custom", kind)
		}
	}
	return cs, nil
}

// gatherPatches lays out, for every position of the result, the elements
// that its kernel covers: [batch, out..., channels, kernel...].
func (o *opCtx) gatherPatches(x *val, xv view, channels int, cs *convShape) (*val, error) {
	in, err := o.p.straight(x.with(xv)) // [batch, in..., channels]
	if err != nil {
		return nil, err
	}
	n := len(cs.in)
	batch := in.shape()[0]
	inner, ok := mil.NumElements(append([]int{channels}, cs.kernel...))
	positions, ok2 := mil.NumElements(append([]int{batch}, cs.out...))
	if _, ok3 := mil.NumElements([]int{positions, inner}); !ok || !ok2 || !ok3 {
		return nil, fmt.Errorf("kernel of %v over %v is too large", cs.kernel, cs.in)
	}
	cols, err := o.p.fresh(x.dt, []int{positions, inner}, o.constant)
	if err != nil {
		return nil, err
	}
	taps := inner / channels
	xb, xo, cb := in.buf, in.v.off, cols.buf
	body := func(c *call, p, slot int) {
		src, dst := c.f32(xb)[xo:], c.f32(cb)[p*inner:(p+1)*inner]
		var at [maxRank]int
		rest := p
		for i := n - 1; i >= 0; i-- {
			at[i] = rest % cs.out[i]
			rest /= cs.out[i]
		}
		for t := range taps {
			pos, inside := rest, true
			var tap [maxRank]int
			q := t
			for i := n - 1; i >= 0; i-- {
				tap[i] = q % cs.kernel[i]
				q /= cs.kernel[i]
			}
			for i := range n {
				a := at[i]*cs.stride[i] - cs.lo[i] + tap[i]*cs.dilation[i]
				inside = inside && a >= 0 && a < cs.in[i]
				pos = pos*cs.in[i] + a
			}
			for ch := range channels {
				var v float32
				if inside {
					v = src[pos*channels+ch]
				}
				dst[ch*taps+t] = v
			}
		}
	}
	return cols, o.p.emit(bufsOf(in), bufsOf(cols), func(c *call) { c.parallel(positions, body) })
}

// directConv is the plain definition, for grouped convolutions and weights
// that are not constant.
func (o *opCtx) directConv(out, x *val, xv view, w, bias *val, groups int, cs *convShape) error {
	in, err := o.p.straight(x.with(xv))
	if err != nil {
		return err
	}
	if w, err = o.p.straight(w); err != nil {
		return err
	}
	n := len(cs.in)
	outC, perIn := w.shape()[0], w.shape()[1]
	perOut := outC / groups
	channels := perIn * groups
	taps := 1
	for _, d := range cs.kernel {
		taps *= d
	}
	positions := out.size() / outC
	xb, xo, wb, wo, ob := in.buf, in.v.off, w.buf, w.v.off, out.buf
	reads := bufsOf(in, w)
	var bb *buf
	bo := 0
	if bias != nil {
		bb, bo = bias.buf, bias.v.off
		reads = append(reads, bb)
	}
	body := func(c *call, p, slot int) {
		src, wt, dst := c.f32(xb)[xo:], c.f32(wb)[wo:], c.f32(ob)[p*outC:(p+1)*outC]
		clear(dst)
		var at, tap [maxRank]int
		rest := p
		for i := n - 1; i >= 0; i-- {
			at[i] = rest % cs.out[i]
			rest /= cs.out[i]
		}
		for t := range taps {
			q := t
			for i := n - 1; i >= 0; i-- {
				tap[i] = q % cs.kernel[i]
				q /= cs.kernel[i]
			}
			pos, inside := rest, true
			for i := range n {
				a := at[i]*cs.stride[i] - cs.lo[i] + tap[i]*cs.dilation[i]
				inside = inside && a >= 0 && a < cs.in[i]
				pos = pos*cs.in[i] + a
			}
			if !inside {
				continue
			}
			for oc := range dst {
				g := oc / perOut
				s := dst[oc]
				for ic := range perIn {
					s += src[pos*channels+g*perIn+ic] * wt[(oc*perIn+ic)*taps+t]
				}
				dst[oc] = s
			}
		}
		if bb != nil {
			addTo(dst, c.f32(bb)[bo:])
		}
	}
	return o.p.emit(reads, bufsOf(out), func(c *call) { c.parallel(positions, body) })
}

// buildEinsum knows the two equations of Core ML: products of matrices on the
// axes -1 and -3, "nchw,nwhr->nchr" and "chw,whr->chr".
func buildEinsum(o *opCtx) error {
	if _, err := o.infer(); err != nil {
		return err
	}
	vs := o.lists["values"]
	r := len(vs[0].shape())
	perm := []int{0, 1, 2, 3}[:r]
	perm[r-3], perm[r-2] = r-2, r-3
	var xy [2]*val
	for i, v := range vs {
		v, err := o.movable(v)
		if err != nil {
			return err
		}
		xy[i] = v.with(v.v.permute(perm))
	}
	out, err := o.inner(r, func(sub *opCtx) error { return sub.matmul(xy[0], xy[1], false, false) })
	if err != nil {
		return err
	}
	return o.give(out.with(out.v.permute(perm)), true)
}

// inner plans a part of an operation, whose result stays inside.
func (o *opCtx) inner(rank int, build func(*opCtx) error) (*val, error) {
	d := o.op.Results[0].Type.DType
	tmp := &mil.Operation{Type: o.op.Type, Results: []*mil.Value{{Type: mil.TensorOf(d, slices.Repeat([]int{mil.Dynamic}, rank)...)}}}
	sub := &opCtx{p: o.p, op: tmp, def: o.def, args: map[string]*val{}, constant: o.constant}
	if err := build(sub); err != nil {
		return nil, err
	}
	return o.p.take(tmp.Results[0]), nil
}

func buildSDPA(o *opCtx) error {
	q, k, v, mask := o.x("query"), o.x("key"), o.x("value"), o.x("attn_mask")
	for _, x := range []*val{q, k, v} {
		if x.str != nil || len(x.shape()) < 3 || !x.dt.IsFloat() {
			return fmt.Errorf("attention of shapes %v, %v and %v", q.shape(), k.shape(), v.shape())
		}
	}
	scale := 1 / float32(math.Sqrt(float64(q.shape()[len(q.shape())-1])))
	r := len(q.shape())
	s, err := o.inner(r, func(sub *opCtx) error { return sub.matmul(q, k, false, true) })
	if err != nil {
		return err
	}
	if s, err = unary(o, s, s.dt, func(dst, x []float32) {
		for i, v := range x[:len(dst)] {
			dst[i] = v * scale
		}
	}); err != nil {
		return err
	}
	if mask != nil {
		if mask.dt == mil.Bool {
			inf := &val{dt: s.dt, buf: &buf{space: spaceConst, n: 1, f: []float32{float32(math.Inf(-1))}}, v: dense(nil)}
			s, err = choose[float32](o, mask, s, inf)
		} else if mask.dt.IsFloat() {
			s, err = pairs(o, s, mask, s.dt, addF)
		} else {
			err = fmt.Errorf("attn_mask is %v, want bool or a floating-point type", mask.dt)
		}
		if err != nil {
			return err
		}
	}
	if s, err = o.inner(r, func(sub *opCtx) error { return sub.softmax(s, len(s.shape())-1) }); err != nil {
		return err
	}
	return o.matmul(s, v, false, false)
}
