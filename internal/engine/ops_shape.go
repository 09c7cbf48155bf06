package engine

import (
	"fmt"
	"slices"

	"anemone/mil"
)

func buildReshape(o *opCtx) error {
	x := o.x("x")
	if x.str != nil {
		return errNoNumber
	}
	shape, ok := o.ints("shape")
	if !ok {
		// The shape depends on the inputs; the declared one must do.
		if t := o.op.Results[0].Type; !t.Static() {
			_, err := o.mustInts("shape")
			return err
		}
		shape = slices.Clone(o.op.Results[0].Type.Shape)
	} else {
		shape = slices.Clone(shape)
		free := -1
		for i, d := range shape {
			switch {
			case d == 0 && len(shape) == len(x.shape()):
				shape[i] = x.shape()[i]
			case d == -1 && free < 0:
				free = i
			case d < 0:
				return fmt.Errorf("cannot reshape to %v", shape)
			}
		}
		if free >= 0 {
			shape[free] = 1
			m, ok := mil.NumElements(shape)
			if !ok || m == 0 {
				return fmt.Errorf("%v does not reshape to %v", x.shape(), shape)
			}
			shape[free] = x.size() / m
		}
	}
	if n, ok := mil.NumElements(shape); !ok || n != x.size() || len(shape) > maxRank {
		return fmt.Errorf("%v does not reshape to %v", x.shape(), shape)
	}
	return o.reshaped(x, shape)
}

// reshaped gives x in another shape, without a copy if that can be.
func (o *opCtx) reshaped(x *val, shape []int) error {
	if x.scores != nil {
		if ok, err := o.lazyShape(x, shape); ok || err != nil {
			return err
		}
		var err error
		if x, err = o.p.plain(x); err != nil {
			return err
		}
	}
	if w, ok := x.v.reshape(shape); ok {
		return o.give(x.with(w), false)
	}
	x, err := o.p.straight(x)
	if err != nil {
		return err
	}
	w, ok := x.v.reshape(shape)
	if !ok {
		return fmt.Errorf("internal error: cannot reshape %v to %v", x.shape(), shape)
	}
	return o.give(x.with(w), false)
}

// movable returns x in a form whose view may be changed freely. Compressed
// weights only keep their shape up to ones.
func (o *opCtx) movable(x *val) (*val, error) {
	if x.str != nil {
		return nil, errNoNumber
	}
	if x.comp != nil {
		return o.p.plain(x)
	}
	return x, nil
}

func buildTranspose(o *opCtx) error {
	x, err := o.movable(o.x("x"))
	if err != nil {
		return err
	}
	perm, err := o.mustInts("perm")
	if err != nil {
		return err
	}
	r := len(x.shape())
	perm = slices.Clone(perm)
	seen := make([]bool, r)
	for i, a := range perm {
		if a < 0 {
			a += r
		}
		if len(perm) != r || a < 0 || a >= r || seen[a] {
			return fmt.Errorf("perm %v does not permute the axes of %v", perm, x.shape())
		}
		seen[a] = true
		perm[i] = a
	}
	if len(perm) != r {
		return fmt.Errorf("perm %v does not permute the axes of %v", perm, x.shape())
	}
	return o.give(x.with(x.v.permute(perm)), false)
}

func buildExpandDims(o *opCtx) error {
	x := o.x("x")
	axes, err := o.mustInts("axes")
	if err != nil {
		return err
	}
	r := len(x.shape()) + len(axes)
	if r > maxRank {
		return fmt.Errorf("rank %d is too high", r)
	}
	shape := make([]int, r)
	for _, a := range axes {
		if a < 0 {
			a += r
		}
		if a < 0 || a >= r || shape[a] == -1 {
			return fmt.Errorf("axes %v do not fit %v", axes, x.shape())
		}
		shape[a] = -1
	}
	rest := x.shape()
	for i := range shape {
		if shape[i] == -1 {
			shape[i] = 1
		} else {
			shape[i] = rest[0]
			rest = rest[1:]
		}
	}
	return o.resized(x, shape)
}

// resized gives x with axes of size 1 added or dropped.
func (o *opCtx) resized(x *val, shape []int) error {
	if x.scores != nil {
		return o.reshaped(x, shape)
	}
	w := view{off: x.v.off, shape: shape, axes: make([][]dim, len(shape))}
	from := 0
	for i, n := range shape {
		if n == 1 {
			continue
		}
		for x.shape()[from] == 1 {
			from++
		}
		w.axes[i] = x.v.axes[from]
		from++
	}
	return o.give(x.with(w), false)
}

func buildSqueeze(o *opCtx) error {
	x := o.x("x")
	drop := make([]bool, len(x.shape()))
	if o.x("axes") == nil {
		for i, d := range x.shape() {
			drop[i] = d == 1
		}
	} else {
		axes, err := o.mustInts("axes")
		if err != nil {
			return err
		}
		for _, a := range axes {
			if a < 0 {
				a += len(drop)
			}
			if a < 0 || a >= len(drop) || x.shape()[a] != 1 {
				return fmt.Errorf("axes %v of %v are not all 1", axes, x.shape())
			}
			drop[a] = true
		}
	}
	shape := []int{}
	for i, d := range x.shape() {
		if !drop[i] {
			shape = append(shape, d)
		}
	}
	return o.resized(x, shape)
}

func buildConcat(o *opCtx) error {
	xs := o.lists["values"]
	if len(xs) == 0 || xs[0].str != nil || xs[0].list != nil {
		return fmt.Errorf("needs tensors of numbers")
	}
	if len(xs[0].shape()) == 0 {
		return o.stacked(xs, 0) // numbers make a vector
	}
	axis, err := o.axis("axis", 0, len(xs[0].shape()))
	if err != nil {
		return err
	}
	interleave, err := o.boolOr("interleave", false)
	if err != nil {
		return err
	}
	shape := slices.Clone(xs[0].shape())
	shape[axis] = 0
	for _, x := range xs {
		if err := same(x, xs[0]); err != nil {
			return err
		}
		if len(x.shape()) != len(shape) {
			return fmt.Errorf("values of shapes %v and %v do not concatenate", xs[0].shape(), x.shape())
		}
		for i, d := range x.shape() {
			if i != axis && d != shape[i] || interleave && d != xs[0].shape()[i] {
				return fmt.Errorf("values of shapes %v and %v do not concatenate", xs[0].shape(), x.shape())
			}
		}
		shape[axis] += x.shape()[axis]
		if shape[axis] > maxElements {
			return fmt.Errorf("result is too large")
		}
	}
	if len(xs) == 1 {
		x, err := o.movable(xs[0])
		if err != nil {
			return err
		}
		if x.buf.space == spaceState {
			if x, err = o.p.copyOf(x); err != nil {
				return err
			}
		}
		return o.give(x, false)
	}
	out, err := o.p.fresh(xs[0].dt, shape, o.constant)
	if err != nil {
		return err
	}
	at := 0
	for k, x := range xs {
		n := x.shape()[axis]
		begin, step := at, 1
		if interleave {
			begin, step = k, len(xs)
		}
		at += n
		if n == 0 {
			continue
		}
		part, ok := out.v.slice(axis, begin, n, step)
		if !ok {
			return fmt.Errorf("internal error: cannot slice the result")
		}
		if err := o.p.copyTo(out.with(part), x); err != nil {
			return err
		}
	}
	return o.give(out, false)
}

func buildStack(o *opCtx) error {
	xs := o.lists["values"]
	if len(xs) == 0 || xs[0].str != nil || xs[0].list != nil {
		return fmt.Errorf("needs tensors of numbers")
	}
	axis, err := o.axis("axis", 0, len(xs[0].shape())+1)
	if err != nil {
		return err
	}
	return o.stacked(xs, axis)
}

// stacked gives tensors of one shape side by side along a new axis.
func (o *opCtx) stacked(xs []*val, axis int) error {
	first := xs[0].shape()
	shape := slices.Insert(slices.Clone(first), axis, len(xs))
	out, err := o.p.fresh(xs[0].dt, shape, o.constant)
	if err != nil {
		return err
	}
	for k, x := range xs {
		if err := same(x, xs[0]); err != nil {
			return err
		}
		if !slices.Equal(x.shape(), first) {
			return fmt.Errorf("values of shapes %v and %v do not stack", first, x.shape())
		}
		if x.size() == 0 {
			continue
		}
		part, ok := out.v.slice(axis, k, 1, 1)
		if ok {
			part, ok = view{off: part.off, shape: first, axes: slices.Delete(slices.Clone(part.axes), axis, axis+1)}, true
		}
		if !ok {
			return fmt.Errorf("internal error: cannot slice the result")
		}
		if err := o.p.copyTo(out.with(part), x); err != nil {
			return err
		}
	}
	return o.give(out, false)
}

func buildSplit(o *opCtx) error {
	x, err := o.movable(o.x("x"))
	if err != nil {
		return err
	}
	axis, err := o.axis("axis", 0, len(x.shape()))
	if err != nil {
		return err
	}
	n := x.shape()[axis]
	sizes, ok := o.ints("split_sizes")
	if !ok {
		k, err := o.intOr("num_splits", 0)
		if err != nil {
			return err
		}
		if k < 1 || n%k != 0 || k > len(o.op.Results) {
			return fmt.Errorf("%d does not split into %d equal parts", n, k)
		}
		sizes = slices.Repeat([]int{n / k}, k)
	}
	at := 0
	for _, s := range sizes {
		if s < 0 || s > n-at {
			return fmt.Errorf("split sizes %v do not fit %d", sizes, n)
		}
		if err := o.part(x, axis, at, s, 1); err != nil {
			return err
		}
		at += s
	}
	if at != n {
		return fmt.Errorf("split sizes %v do not add up to %d", sizes, n)
	}
	return nil
}

// sliced returns n elements of an axis, copying first where the axis cannot
// be cut as it lies.
func (o *opCtx) sliced(x *val, axis, begin, n, step int) (*val, error) {
	if w, ok := x.v.slice(axis, begin, n, step); ok {
		return x.with(w), nil
	}
	x, err := o.p.copyOf(x)
	if err != nil {
		return nil, err
	}
	w, ok := x.v.slice(axis, begin, n, step)
	if !ok {
		return nil, fmt.Errorf("internal error: cannot slice %v", x.shape())
	}
	return x.with(w), nil
}

// part gives a slice of x.
func (o *opCtx) part(x *val, axis, begin, n, step int) error {
	x, err := o.sliced(x, axis, begin, n, step)
	if err != nil {
		return err
	}
	return o.give(x, false)
}

func buildTile(o *opCtx) error {
	x, err := o.movable(o.x("x"))
	if err != nil {
		return err
	}
	reps, err := o.mustInts("reps")
	if err != nil {
		return err
	}
	if len(reps) != len(x.shape()) {
		return fmt.Errorf("%d reps for a tensor of shape %v", len(reps), x.shape())
	}
	w := x.v
	for i, r := range reps {
		if r < 1 || r > maxElements || w.shape[i] > 0 && r > maxElements/w.shape[i] {
			return fmt.Errorf("reps %v of a tensor of shape %v", reps, x.shape())
		}
		w = w.repeat(i, r)
	}
	if n, ok := mil.NumElements(w.shape); !ok || n > maxElements {
		return fmt.Errorf("reps %v of a tensor of shape %v", reps, x.shape())
	} else if n == 0 {
		w = dense(w.shape)
	}
	return o.give(x.with(w), false)
}

func buildReverse(o *opCtx) error {
	x, err := o.movable(o.x("x"))
	if err != nil {
		return err
	}
	axes, err := o.axes("axes", len(x.shape()))
	if err != nil {
		return err
	}
	w := x.v.clone()
	if w.size() > 0 {
		for _, a := range axes {
			// A nest runs backwards if every loop of it does.
			w.axes[a] = slices.Clone(w.axes[a])
			for k, d := range w.axes[a] {
				w.off += (d.n - 1) * d.s
				w.axes[a][k].s = -d.s
			}
		}
	}
	return o.give(x.with(w), false)
}

func buildPad(o *opCtx) error {
	x := o.x("x")
	pad, err := o.mustInts("pad")
	if err != nil {
		return err
	}
	mode, err := o.strOr("mode", "constant")
	if err != nil {
		return err
	}
	if x.str != nil || len(pad)%2 != 0 || len(pad)/2 > len(x.shape()) {
		return fmt.Errorf("%d pads for a tensor of shape %v", len(pad), x.shape())
	}
	lead := len(x.shape()) - len(pad)/2
	shape := slices.Clone(x.shape())
	for i := range len(pad) / 2 {
		lo, hi := pad[2*i], pad[2*i+1]
		if lo < 0 || hi < 0 || lo > maxElements || hi > maxElements {
			return fmt.Errorf("pads %v", pad)
		}
		d := x.shape()[lead+i]
		if mode == "reflect" && (lo >= max(d, 1) || hi >= max(d, 1)) || mode == "replicate" && d == 0 {
			return fmt.Errorf("pads %v are too large for shape %v in mode %q", pad, x.shape(), mode)
		}
		shape[lead+i] += lo + hi
	}
	if n, ok := mil.NumElements(shape); !ok || n > maxElements {
		return fmt.Errorf("pads %v of shape %v", pad, x.shape())
	}
	out, err := o.p.fresh(x.dt, shape, o.constant)
	if err != nil {
		return err
	}
	if out.size() == 0 {
		return o.give(out, false)
	}
	switch mode {
	case "constant":
		v, err := o.floatOr("constant_val", 0)
		if err != nil {
			return err
		}
		if err := o.fill(out, v, truncate(v)); err != nil {
			return err
		}
		w := out.v
		for i := range len(pad) / 2 {
			w, _ = w.slice(lead+i, pad[2*i], x.shape()[lead+i], 1)
		}
		if x.size() > 0 {
			if err := o.p.copyTo(out.with(w), x); err != nil {
				return err
			}
		}
	case "reflect", "replicate":
		if err := o.padEdges(out, x, lead, pad, mode == "reflect"); err != nil {
			return err
		}
	default:
		return fmt.Errorf("mode is %q, want constant, reflect or replicate", mode)
	}
	return o.give(out, false)
}

// padEdges pads axis by axis: the rows beyond an edge are copies of rows of
// the result that are there already.
func (o *opCtx) padEdges(out, x *val, lead int, pad []int, reflect bool) error {
	w := out.v
	for i := range len(pad) / 2 {
		w, _ = w.slice(lead+i, pad[2*i], x.shape()[lead+i], 1)
	}
	if err := o.p.copyTo(out.with(w), x); err != nil {
		return err
	}
	for i := range len(pad) / 2 {
		lo, hi, d, axis := pad[2*i], pad[2*i+1], x.shape()[lead+i], lead+i
		rows := out.v // the axes after this one are not padded yet
		for j := i + 1; j < len(pad)/2; j++ {
			rows, _ = rows.slice(lead+j, pad[2*j], x.shape()[lead+j], 1)
		}
		one := func(to, from int) error {
			a, _ := rows.slice(axis, to, 1, 1)
			b, _ := rows.slice(axis, from, 1, 1)
			return o.p.copyTo(out.with(a), out.with(b))
		}
		if lo+hi > 1<<12 {
			return fmt.Errorf("pads %v are too large", pad)
		}
		for k := range lo {
			from := lo
			if reflect {
				from = lo + k + 1
			}
			if err := one(lo-1-k, from); err != nil {
				return err
			}
		}
		for k := range hi {
			from := lo + d - 1
			if reflect {
				from = lo + d - 2 - k
			}
			if err := one(lo+d+k, from); err != nil {
				return err
			}
		}
	}
	return nil
}

// fill sets every element of a dense value.
func (o *opCtx) fill(out *val, f float32, i int32) error {
	b := out.buf
	return o.p.emit(nil, bufsOf(out), func(c *call) {
		if b.elem == elemI32 {
			x := c.i32(b)
			for k := range x {
				x[k] = i
			}
			return
		}
		x := c.f32(b)
		for k := range x {
			x[k] = f
		}
	})
}

func buildShape(o *opCtx) error {
	n := len(o.x("x").shape())
	o.constant = true
	out, err := o.p.fresh(mil.Int32, []int{n}, true)
	if err != nil {
		return err
	}
	for i, d := range o.x("x").shape() {
		if d > 1<<31-1 {
			return fmt.Errorf("dimension %d does not fit int32", d)
		}
		out.buf.i[i] = int32(d)
	}
	return o.give(out, false)
}

// filled gives one number repeated, which takes no memory.
func (o *opCtx) filled(shape []int) error {
	for _, d := range shape {
		if d < 0 {
			return fmt.Errorf("shape %v", shape)
		}
	}
	if n, ok := mil.NumElements(shape); !ok || n > maxElements || len(shape) > maxRank {
		return fmt.Errorf("shape %v is too large", shape)
	}
	v := o.x("value")
	if v == nil {
		v = &val{dt: mil.Float32, buf: &buf{space: spaceConst, n: 1, f: []float32{0}}, v: dense(nil)}
	}
	if v.str != nil || v.buf == nil || v.size() != 1 {
		return fmt.Errorf("value must be one number")
	}
	w, ok := view{off: v.v.off, shape: []int{}, axes: [][]dim{}}.broadcast(shape)
	if !ok {
		return fmt.Errorf("shape %v", shape)
	}
	return o.give(v.with(w), false)
}

func buildFill(o *opCtx) error {
	shape, err := o.mustInts("shape")
	if err != nil {
		return err
	}
	return o.filled(shape)
}

func buildFillLike(o *opCtx) error { return o.filled(o.x("ref_tensor").shape()) }

func buildRange(o *opCtx) error {
	start, end, step := o.x("start"), o.x("end"), o.x("step")
	for _, x := range []*val{start, end, step} {
		if x.str != nil || x.size() != 1 || !x.isConst() {
			return fmt.Errorf("start, end and step depend on the inputs of the function: %w", errNeedsValue)
		}
	}
	a, err := o.floatOr("start", 0)
	if err != nil {
		return err
	}
	b, _ := o.floatOr("end", 0)
	s, _ := o.floatOr("step", 0)
	if s == 0 || a != a || b != b || s != s {
		return fmt.Errorf("range from %v to %v by %v", a, b, s)
	}
	n := 0
	if start.dt.IsFloat() {
		if q := ceilDiv(float64(b)-float64(a), float64(s)); q > 1<<24 {
			return fmt.Errorf("range from %v to %v by %v is too long", a, b, s)
		} else if q > 0 {
			n = int(q)
		}
	} else {
		ai, _ := o.intOr("start", 0)
		bi, _ := o.intOr("end", 0)
		si, _ := o.intOr("step", 1)
		if si > 0 {
			n = max(0, (bi-ai+si-1)/si)
		} else {
			n = max(0, (ai-bi-si-1)/-si)
		}
		if n > 1<<24 {
			return fmt.Errorf("range from %v to %v by %v is too long", ai, bi, si)
		}
	}
	out, err := o.p.fresh(start.dt, []int{n}, true)
	if err != nil {
		return err
	}
	if start.dt.IsFloat() {
		for i := range out.buf.f {
			out.buf.f[i] = float32(float64(a) + float64(i)*float64(s))
		}
	} else {
		ai, _ := o.intOr("start", 0)
		si, _ := o.intOr("step", 1)
		for i := range out.buf.i {
			out.buf.i[i] = int32(ai + i*si)
		}
	}
	return o.give(out, true)
}

func buildBandPart(o *opCtx) error {
	x := o.x("x")
	lower, err := o.intOr("lower", -1)
	if err != nil {
		return err
	}
	upper, err := o.intOr("upper", -1)
	if err != nil {
		return err
	}
	r := len(x.shape())
	if r < 2 || x.str != nil {
		return fmt.Errorf("x has the shape %v, want rank 2 or more", x.shape())
	}
	out, err := o.p.copyOf(x)
	if err != nil {
		return err
	}
	rows, cols := x.shape()[r-2], x.shape()[r-1]
	if out.size() == 0 {
		return o.give(out, false)
	}
	b := out.buf
	err = o.p.emit(bufsOf(out), bufsOf(out), func(c *call) {
		for at := 0; at < b.n; at += cols {
			i := at / cols % rows
			for j := range cols {
				if (lower >= 0 && i-j > lower) || (upper >= 0 && j-i > upper) {
					if b.elem == elemI32 {
						c.i32(b)[at+j] = 0
					} else {
						c.f32(b)[at+j] = 0
					}
				}
			}
		}
	})
	if err != nil {
		return err
	}
	return o.give(out, false)
}
