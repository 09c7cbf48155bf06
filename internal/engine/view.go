package engine

import (
	"slices"

	"anemone/mil"
)

// dim is one loop over memory: n elements, s apart.
type dim struct{ n, s int }

// view places a logical tensor on a flat buffer. Every logical axis is a
// nest of loops from the outermost to the innermost whose sizes multiply to
// the size of the axis; an axis of size 1 has none. That an axis may be
// several loops is what makes a reshape of a transposed, sliced or tiled
// tensor free: in grouped-query attention the tiled cache, [kv, rep, C, d]
// with a stride of 0 for rep, is reshaped to [kv*rep, C, d] without a copy.
type view struct {
	off   int
	shape []int
	axes  [][]dim
}

// dense returns the view of a row-major tensor at the start of a buffer.
func dense(shape []int) view {
	v := view{shape: slices.Clone(shape), axes: make([][]dim, len(shape))}
	s := 1
	for i := len(shape) - 1; i >= 0; i-- {
		if n := shape[i]; n != 1 {
			v.axes[i] = []dim{{n, s}}
			s *= n
		}
	}
	return v
}

// size returns the number of elements.
func (v view) size() int {
	n, _ := mil.NumElements(v.shape)
	return n
}

// flat returns the loops of v in iteration order, neighbours joined where
// they are one loop over memory.
func (v view) flat() []dim {
	var d []dim
	for _, a := range v.axes {
		d = append(d, a...)
	}
	return joinDims(d)
}

// joinDims merges loops that run on from one another. d may be reused.
func joinDims(d []dim) []dim {
	out := d[:0]
	for _, x := range d {
		if x.n == 1 {
			continue
		}
		if k := len(out) - 1; k >= 0 && out[k].s == x.n*x.s {
			out[k] = dim{out[k].n * x.n, x.s}
			continue
		}
		out = append(out, x)
	}
	return out
}

// contiguous reports whether the elements follow one another in memory in
// iteration order.
func (v view) contiguous() bool {
	d := v.flat()
	return len(d) == 0 || len(d) == 1 && d[0].s == 1 || v.size() == 0
}

// reshape returns v with another shape of the same size, ok if no copy is
// needed.
func (v view) reshape(shape []int) (view, bool) {
	if slices.Contains(shape, 0) {
		return dense(shape), true
	}
	rest := v.flat()
	w := view{off: v.off, shape: slices.Clone(shape), axes: make([][]dim, len(shape))}
	for i, n := range shape {
		for n > 1 {
			if len(rest) == 0 {
				return view{}, false
			}
			switch d := rest[0]; {
			case d.n <= n && n%d.n == 0:
				w.axes[i] = append(w.axes[i], d)
				rest = rest[1:]
				n /= d.n
			case d.n > n && d.n%n == 0:
				w.axes[i] = append(w.axes[i], dim{n, d.n / n * d.s})
				rest[0].n = d.n / n
				n = 1
			default:
				return view{}, false
			}
		}
	}
	return w, len(rest) == 0
}

// permute returns v with axis i of the result being axis perm[i] of v.
func (v view) permute(perm []int) view {
	w := view{off: v.off, shape: make([]int, len(perm)), axes: make([][]dim, len(perm))}
	for i, p := range perm {
		w.shape[i], w.axes[i] = v.shape[p], v.axes[p]
	}
	return w
}

// slice returns the n elements begin, begin+step, ... of an axis, which must
// exist. It is not ok if the axis is a nest that the range cuts across.
func (v view) slice(axis, begin, n, step int) (view, bool) {
	if begin == 0 && n == v.shape[axis] && step == 1 {
		return v, true
	}
	w := v.clone()
	w.shape[axis] = n
	if slices.Contains(w.shape, 0) {
		return dense(w.shape), true
	}
	a := joinDims(slices.Clone(v.axes[axis]))
	switch {
	case len(a) == 0: // size 1
		return w, true
	case len(a) == 1:
		w.off += begin * a[0].s
		w.axes[axis] = nil
		if n > 1 {
			w.axes[axis] = []dim{{n, a[0].s * step}}
		}
		return w, true
	}
	// The range may lie along the outermost loop, or within one turn of it.
	inner := v.shape[axis] / a[0].n
	if step == 1 && begin%inner == 0 && n%inner == 0 {
		w.off += begin / inner * a[0].s
		a[0].n = n / inner
		if a[0].n == 1 {
			a = a[1:]
		}
		w.axes[axis] = a
		return w, true
	}
	if last := begin + (n-1)*step; begin/inner == last/inner {
		w.off += begin / inner * a[0].s
		w.axes[axis] = a[1:]
		w.shape[axis] = inner
		return w.slice(axis, begin%inner, n, step)
	}
	return view{}, false
}

func (v view) clone() view {
	return view{off: v.off, shape: slices.Clone(v.shape), axes: slices.Clone(v.axes)}
}

// without returns v without the marked axes, which have size 1.
func (v view) without(drop []bool) view {
	w := view{off: v.off, shape: []int{}, axes: [][]dim{}}
	for i, d := range drop {
		if !d {
			w.shape = append(w.shape, v.shape[i])
			w.axes = append(w.axes, v.axes[i])
		}
	}
	return w
}

// repeat returns v with an axis repeated n times.
func (v view) repeat(axis, n int) view {
	w := v.clone()
	w.shape[axis] *= n
	if n > 1 {
		w.axes[axis] = append([]dim{{n, 0}}, v.axes[axis]...)
	}
	return w
}

// broadcast returns v stretched to a shape by the rules of numpy.
func (v view) broadcast(shape []int) (view, bool) {
	k := len(shape) - len(v.shape)
	if k < 0 {
		return view{}, false
	}
	w := view{off: v.off, shape: slices.Clone(shape), axes: make([][]dim, len(shape))}
	for i, n := range shape {
		switch {
		case i >= k && v.shape[i-k] == n:
			w.axes[i] = v.axes[i-k]
		case i < k || v.shape[i-k] == 1:
			if n != 1 {
				w.axes[i] = []dim{{n, 0}}
			}
		default:
			return view{}, false
		}
	}
	return w, true
}

// broadcastShapes returns the shape that numpy would broadcast a and b to.
func broadcastShapes(a, b []int) ([]int, bool) {
	n := max(len(a), len(b))
	out := make([]int, n)
	for i := range n {
		x, y := 1, 1
		if j := i - (n - len(a)); j >= 0 {
			x = a[j]
		}
		if j := i - (n - len(b)); j >= 0 {
			y = b[j]
		}
		switch {
		case x == y || y == 1:
			out[i] = x
		case x == 1:
			out[i] = y
		default:
			return nil, false
		}
	}
	return out, true
}

// maxLoops bounds the depth of a nest, so that its counters are an array.
const maxLoops = 12

// loop is one loop of a nest over several operands.
type loop struct {
	n int
	s [4]int // step of each operand
}

// nest walks several views of one shape together.
type nest struct {
	loops []loop // outermost first; at least one
	off   [4]int
}

// weave finds common loops for views of one shape, in the order in which
// the last of them lies in memory. Where the nests of an axis cannot be
// split alike it fails and names an operand that a copy would straighten.
func weave(vs ...view) (ns nest, culprit int, ok bool) {
	var loops []loop
	cur := make([][]dim, len(vs))
	for axis, size := range vs[0].shape {
		if size == 1 {
			continue
		}
		if size == 0 {
			return nest{loops: []loop{{}}}, 0, true
		}
		var inner []loop // innermost first
		for k, v := range vs {
			cur[k] = slices.Clone(v.axes[axis])
		}
		for left := size; left > 1; {
			m := left
			for _, a := range cur {
				m = min(m, a[len(a)-1].n)
			}
			l := loop{n: m}
			for k, a := range cur {
				last := &a[len(a)-1]
				if last.n%m != 0 {
					return nest{}, k, false
				}
				l.s[k] = last.s
				if last.n == m {
					cur[k] = a[:len(a)-1]
				} else {
					*last = dim{last.n / m, last.s * m}
				}
			}
			if m > 1 {
				inner = append(inner, l)
			}
			left /= m
		}
		slices.Reverse(inner)
		loops = append(loops, inner...)
	}
	for k, v := range vs {
		ns.off[k] = v.off
	}
	out := len(vs) - 1
	slices.SortStableFunc(loops, func(a, b loop) int { return abs(b.s[out]) - abs(a.s[out]) })
	for _, l := range loops {
		if k := len(ns.loops) - 1; k >= 0 {
			p := &ns.loops[k]
			joined := true
			for i := range vs {
				joined = joined && p.s[i] == l.n*l.s[i]
			}
			if joined {
				*p = loop{p.n * l.n, l.s}
				continue
			}
		}
		ns.loops = append(ns.loops, l)
	}
	if len(ns.loops) == 0 {
		ns.loops = []loop{{n: 1}}
	}
	return ns, len(vs) - 1, len(ns.loops) <= maxLoops
}

func abs(x int) int {
	if x < 0 {
		return -x
	}
	return x
}

// rows returns the number of turns of all loops but the innermost.
func (ns *nest) rows() int {
	n := 1
	for _, l := range ns.loops[:len(ns.loops)-1] {
		n *= l.n
	}
	return n
}

// walk is the position of a nest: which row, and where it starts in every
// operand.
type walk struct {
	at  [maxLoops]int
	off [4]int
}

// seek returns the position at the given row.
func (ns *nest) seek(row int) walk {
	w := walk{off: ns.off}
	for i := len(ns.loops) - 2; i >= 0; i-- {
		l := &ns.loops[i]
		k := row % l.n
		row /= l.n
		w.at[i] = k
		for j := range w.off {
			w.off[j] += k * l.s[j]
		}
	}
	return w
}

// next moves to the next row.
func (ns *nest) next(w *walk) {
	for i := len(ns.loops) - 2; i >= 0; i-- {
		l := &ns.loops[i]
		w.at[i]++
		for j := range w.off {
			w.off[j] += l.s[j]
		}
		if w.at[i] < l.n {
			return
		}
		w.at[i] = 0
		for j := range w.off {
			w.off[j] -= l.n * l.s[j]
		}
	}
}

// like returns a dense view of v's shape whose elements lie in memory in the
// order of v's, as far as v has one: what an elementwise operation on v
// gives, so that a chain of them on a transposed tensor walks it in order.
func (v view) like() view {
	type place struct{ axis, k int }
	type item struct {
		dim
		place
	}
	var items []item
	for i, a := range v.axes {
		for k, d := range a {
			if d.s <= 0 || d.n == 0 {
				return dense(v.shape)
			}
			items = append(items, item{d, place{i, k}})
		}
	}
	slices.SortStableFunc(items, func(a, b item) int { return b.s - a.s })
	w := view{shape: slices.Clone(v.shape), axes: make([][]dim, len(v.shape))}
	for i, a := range v.axes {
		w.axes[i] = slices.Clone(a)
	}
	s := 1
	for i := len(items) - 1; i >= 0; i-- {
		it := items[i]
		w.axes[it.axis][it.k].s = s
		s *= it.n
	}
	return w
}

// offsets returns where each element of the leading axes starts, if the
// number is at most limit.
func (v view) offsets(axes, limit int) ([]int, bool) {
	offs := []int{v.off}
	for _, a := range v.axes[:axes] {
		for _, d := range a {
			if d.n == 0 {
				return nil, true
			}
			if len(offs) > limit/d.n {
				return nil, false
			}
			next := make([]int, 0, len(offs)*d.n)
			for _, o := range offs {
				for k := range d.n {
					next = append(next, o+k*d.s)
				}
			}
			offs = next
		}
	}
	return offs, true
}

// stride returns the single stride of an axis, ok if it has one; an axis of
// size 1 has any.
func (v view) stride(axis int) (int, bool) {
	a := joinDims(slices.Clone(v.axes[axis]))
	switch len(a) {
	case 0:
		return 0, true
	case 1:
		return a[0].s, true
	}
	return 0, false
}
