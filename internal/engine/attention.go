package engine

import (
	"fmt"
	"math"
	"slices"

	"anemone/internal/engine/kernels"
	"anemone/mil"
)

// Attention is the one rewrite of plans. The operations
//
//	scores = matmul(q, k)             (times a constant)
//	p      = softmax(scores + mask)   (reshaped)
//	out    = matmul(p, v)
//
// become one step that leaves out the keys that the mask forbids to all of
// its rows: columns at the end that are -inf. Their p is 0, so a cache of a
// long context costs only what it holds. Heads that share keys and values
// read them once.
//
// The numbers are the ones that the single operations give, bit by bit,
// provided that the keys and values left out are finite: 0 times infinity
// would be NaN. [Options.NoFusion] turns the rewrite off.

// lazyScores is the value of an operation of such a chain but the last. Its
// steps are not emitted yet.
type lazyScores struct {
	q, k    *operand
	batch   []int // of the scores as they were computed
	m, n, d int
	scale   float32
	scaled  bool
	mask    *val
	soft    bool
}

// chains finds the matmuls that begin a chain: every value of it is used
// once, by the next, and nothing changes a state in between, as the whole
// is computed where the last operation stands.
func chains(f *mil.Function) map[*mil.Operation]bool {
	type use struct {
		op *mil.Operation
		n  int
	}
	uses := map[*mil.Value]use{}
	changes := make([]int, len(f.Body.Ops)+1) // state writes before a position
	pos := map[*mil.Operation]int{}
	for i, op := range f.Body.Ops {
		pos[op] = i
		changes[i+1] = changes[i]
		switch op.Type {
		case "slice_update", "write_state", "coreml_update_state":
			changes[i+1]++
		}
		for _, v := range operands(op) {
			uses[v] = use{op, uses[v].n + 1}
			if len(op.Blocks) > 0 {
				uses[v] = use{nil, uses[v].n + 1}
			}
		}
	}
	for _, v := range f.Body.Outputs {
		uses[v] = use{nil, uses[v].n + 1}
	}
	next := func(op *mil.Operation) *mil.Operation {
		if len(op.Results) != 1 {
			return nil
		}
		if u := uses[op.Results[0]]; u.n == 1 {
			return u.op
		}
		return nil
	}
	found := map[*mil.Operation]bool{}
	for i, op := range f.Body.Ops {
		if op.Type != "matmul" {
			continue
		}
		at := next(op)
		if at != nil && at.Type == "mul" && (scalarConst(at.Value("x")) || scalarConst(at.Value("y"))) {
			at = next(at)
		}
		if at != nil && at.Type == "add" {
			at = next(at)
		}
		if at == nil || at.Type != "softmax" {
			continue
		}
		p := at
		for at = next(at); at != nil && (at.Type == "reshape" || at.Type == "squeeze" || at.Type == "expand_dims"); at = next(at) {
			p = at
		}
		if at != nil && at.Type == "matmul" && at.Value("x") == p.Results[0] && changes[i] == changes[pos[at]] {
			found[op] = true
		}
	}
	return found
}

func scalarConst(v *mil.Value) bool {
	if v == nil || v.Literal == nil {
		return false
	}
	n, ok := v.Type.NumElements()
	return ok && n == 1 && v.Type.DType.IsFloat()
}

// lazy gives a result that is computed later.
func (o *opCtx) lazy(x *val, a lazyScores) error {
	return o.give(&val{dt: x.dt, v: x.v, scores: &a}, false)
}

// lazyScale, lazyMask and lazySoftmax add an operation to a chain. ok is
// false if it is not of the kind; the operands are then to be used as usual.
func (o *opCtx) lazyScale() (ok bool, err error) {
	x, y := o.x("x"), o.x("y")
	if y.scores != nil {
		x, y = y, x
	}
	if x.scores == nil || x.scores.scaled || x.scores.mask != nil || x.scores.soft || y.size() != 1 || len(y.shape()) > len(x.shape()) || !y.dt.IsFloat() || !y.isConst() {
		return false, nil
	}
	if y, err = o.p.plain(y); err != nil {
		return false, err
	}
	a := *x.scores
	a.scale, a.scaled = y.buf.f[y.v.off], true
	return true, o.lazy(x, a)
}

func (o *opCtx) lazyMask() (ok bool, err error) {
	x, y := o.x("x"), o.x("y")
	if y.scores != nil {
		x, y = y, x
	}
	if x.scores == nil || x.scores.mask != nil || x.scores.soft || y.scores != nil || !y.dt.IsFloat() {
		return false, nil
	}
	if y, err = o.p.plain(y); err != nil {
		return false, err
	}
	w, ok := y.v.broadcast(x.shape())
	if !ok {
		return false, nil
	}
	r := len(w.shape)
	if _, ok := w.stride(r - 2); !ok {
		return false, nil
	}
	if s, ok := w.stride(r - 1); !ok || s != 1 && w.shape[r-1] != 1 {
		return false, nil
	}
	a := *x.scores
	a.mask = y.with(w)
	return true, o.lazy(x, a)
}

func (o *opCtx) lazySoftmax(axis int) (ok bool, err error) {
	x := o.x("x")
	if x.scores == nil || x.scores.soft || axis != len(x.shape())-1 {
		return false, nil
	}
	a := *x.scores
	a.soft = true
	return true, o.lazy(x, a)
}

// lazyShape changes the shape of scores if it only changes the batches.
func (o *opCtx) lazyShape(x *val, shape []int) (ok bool, err error) {
	r, k := len(x.shape()), len(shape)
	if x.scores == nil || k < 2 || !slices.Equal(x.shape()[r-2:], shape[k-2:]) {
		return false, nil
	}
	return true, o.give(&val{dt: x.dt, v: dense(shape), scores: x.scores}, false)
}

// force emits the steps of a chain that ends early.
func (p *planner) force(v *val) (*val, error) {
	a := v.scores
	o := &opCtx{p: p, op: &mil.Operation{}}
	out, err := p.fresh(v.dt, append(slices.Clone(a.batch), a.m, a.n), false)
	if err != nil {
		return nil, err
	}
	if err := o.multiply(out, a.q, a.k, a.m, a.n, a.d); err != nil {
		return nil, err
	}
	if a.scaled {
		s := a.scale
		if out, err = unary(o, out, v.dt, func(dst, x []float32) {
			for i, y := range x[:len(dst)] {
				dst[i] = y * s
			}
		}); err != nil {
			return nil, err
		}
	}
	if a.mask != nil {
		if out, err = pairs(o, out, a.mask, v.dt, addF); err != nil {
			return nil, err
		}
	}
	if a.soft {
		if out, err = o.byRows(out, []int{len(out.shape()) - 1}, kernels.Softmax); err != nil {
			return nil, err
		}
	}
	w, ok := out.v.reshape(v.shape())
	if !ok {
		return nil, fmt.Errorf("internal error: scores %v do not reshape to %v", out.shape(), v.shape())
	}
	return out.with(w), nil
}

// attentionRows is the number of rows of scores per chunk.
const attentionRows = 16

// attend emits the whole chain: out = softmax(scale q k' + mask) v, with v
// as an operand whose rows are its columns. out is dense.
func (o *opCtx) attend(out *val, a *lazyScores, v *operand, cols int) error {
	nb := len(a.q.off)
	var maskAt []int
	maskStep := 0
	if a.mask != nil {
		var ok bool
		if maskAt, ok = a.mask.v.offsets(len(a.batch), 1<<20); !ok {
			return fmt.Errorf("too many batches: %v", a.batch)
		}
		maskStep, _ = a.mask.v.stride(len(a.batch))
		if a.m == 1 {
			maskStep = 0
		}
	}
	// Groups of batches that share keys and values, and whose queries lie
	// one after another, are one batch of more rows.
	group := 1
	for g := nb; g > 1; g-- {
		if nb%g == 0 && shares(a, v, g) {
			group = g
			break
		}
	}
	rows := group * a.m
	blocks := (rows + attentionRows - 1) / attentionRows
	o.p.need(attentionRows * a.n)
	m, n, d := a.m, a.n, a.d
	ob, qb, kb, vb := out.buf, a.q.buf, a.k.buf, v.buf
	reads := []*buf{qb, kb, vb}
	var mb *buf
	if a.mask != nil {
		mb = a.mask.buf
		reads = append(reads, mb)
	}
	scale, scaled := a.scale, a.scaled
	body := func(c *call, chunk, slot int) {
		b, r0 := chunk/blocks*group, chunk%blocks*attentionRows
		nr := min(attentionRows, rows-r0)
		limit := n
		var mask []float32
		if mb != nil {
			mask = c.f32(mb)
			limit = 0
			for r := r0; r < r0+nr && limit < n; r++ {
				at := maskAt[b+r/m] + r%m*maskStep
				limit = max(limit, allowed(mask[at:at+n], limit))
			}
			// Whole blocks of eight keep the order of sums. A row that is
			// masked everywhere still needs a column to become NaN.
			limit = min(max((limit+7)&^7, 8), n)
		}
		s := c.scratch[slot][:nr*n]
		q, k := c.f32(qb)[a.q.off[b]+r0*a.q.ld:], c.f32(kb)[a.k.off[b]:]
		if a.k.flip {
			kernels.MulNN(s, n, q, a.q.ld, nr, k, a.k.ld, limit, d)
		} else {
			kernels.MulNT(s, n, q, a.q.ld, nr, k, a.k.ld, limit, d)
		}
		for i := range nr {
			row := s[i*n : i*n+limit]
			if scaled {
				for j := range row {
					row[j] *= scale
				}
			}
			if mb != nil {
				at := maskAt[b+(r0+i)/m] + (r0+i)%m*maskStep
				addTo(row, mask[at:])
			}
			kernels.Softmax(row, row)
		}
		dst := c.f32(ob)[(b*m+r0)*cols:]
		w := c.f32(vb)[v.off[b]:]
		if v.flip {
			kernels.MulNN(dst, cols, s, n, nr, w, v.ld, cols, limit)
		} else {
			kernels.MulNT(dst, cols, s, n, nr, w, v.ld, cols, limit)
		}
	}
	chunks := nb / group * blocks
	return o.p.emit(reads, bufsOf(out), func(c *call) { c.parallel(chunks, body) })
}

// shares reports whether batches can be taken g at a time.
func shares(a *lazyScores, v *operand, g int) bool {
	for b := range a.q.off {
		first := b / g * g
		if a.k.off[b] != a.k.off[first] || v.off[b] != v.off[first] || a.q.off[b] != a.q.off[first]+(b-first)*a.m*a.q.ld {
			return false
		}
	}
	return true
}

// allowed returns the number of columns up to the last that is not -inf,
// at least least.
func allowed(mask []float32, least int) int {
	inf := float32(math.Inf(-1))
	n := len(mask)
	for n > least && mask[n-1] == inf {
		n--
	}
	return n
}
