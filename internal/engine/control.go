package engine

import (
	"errors"
	"fmt"
	"slices"

	"anemone/mil"
)

// Control flow in a plan is jumps among its steps: those of both branches of
// a cond, or of the blocks of a loop, lie in one list with all others. Where
// a branch or turn gives another shape than the others the function is
// interpreted instead.

// branchError is an error of a block that perhaps never runs.
type branchError struct{ err error }

func (e *branchError) Error() string   { return e.err.Error() }
func (e *branchError) Unwrap() []error { return []error{e.err, errNeedsValue} }

// jump adds a step that goes to the step in *to if the bool in v is the given
// one; always if v is nil. *to is set later.
func (p *planner) jump(v *val, when bool, to *int) {
	if v == nil {
		p.plan.steps = append(p.plan.steps, step{op: p.op, jump: func(*call) int { return *to }})
		return
	}
	next := len(p.plan.steps) + 1
	b, off := v.buf, v.v.off
	p.plan.steps = append(p.plan.steps, step{op: p.op, jump: func(c *call) int {
		if (c.i32(b)[off] != 0) == when {
			return *to
		}
		return next
	}})
	p.touch([]*buf{b}, nil)
}

// truthOf returns the value of a constant bool.
func (p *planner) truthOf(v *val) (bool, error) {
	v, err := p.plain(v)
	if err != nil {
		return false, err
	}
	if v.buf.elem != elemI32 || v.size() != 1 {
		return false, fmt.Errorf("a %v of shape %v is not one bool", v.dt, v.shape())
	}
	return v.buf.i[v.v.off] != 0, nil
}

// run plans a block and returns its outputs.
func (p *planner) run(b *mil.Block) ([]*val, error) {
	if err := p.operations(b.Ops); err != nil {
		return nil, err
	}
	out := make([]*val, len(b.Outputs))
	for i, v := range b.Outputs {
		var err error
		if out[i], err = p.value(v); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (o *opCtx) blocks(n int) error {
	if len(o.op.Blocks) != n || slices.Contains(o.op.Blocks, nil) {
		return fmt.Errorf("has %d blocks, want %d", len(o.op.Blocks), n)
	}
	return nil
}

func buildCond(o *opCtx) error {
	if err := o.blocks(2); err != nil {
		return err
	}
	p, pred := o.p, o.x("pred")
	if pred.isConst() {
		yes, err := p.truthOf(pred)
		if err != nil {
			return err
		}
		b := o.op.Blocks[1]
		if yes {
			b = o.op.Blocks[0]
		}
		vs, err := p.run(b)
		if err != nil {
			return err
		}
		for _, v := range vs {
			if v.buf != nil && v.buf.space == spaceState {
				if v, err = p.copyOf(v); err != nil {
					return err
				}
			}
			if err := o.give(v, false); err != nil {
				return err
			}
		}
		p.heap.leave(p, b)
		return nil
	}
	pred, err := p.plain(pred)
	if err != nil {
		return err
	}
	if pred.size() != 1 || pred.buf.elem != elemI32 {
		return fmt.Errorf("pred is a %v of shape %v, want one bool", pred.dt, pred.shape())
	}
	var outs []*val
	var otherwise, end int
	p.jump(pred, false, &otherwise)
	for k, b := range o.op.Blocks {
		vs, err := p.run(b)
		if err != nil {
			return &branchError{err}
		}
		if k == 1 && len(vs) != len(outs) {
			return fmt.Errorf("the block for true has %d outputs, the one for false %d", len(outs), len(vs))
		}
		for i, v := range vs {
			if v.str != nil || v.list != nil {
				return &branchError{errNoNumber}
			}
			if k == 0 {
				out, err := p.fresh(v.dt, v.shape(), false)
				if err != nil {
					return err
				}
				outs = append(outs, out)
			}
			if outs[i].dt != v.dt || !slices.Equal(outs[i].shape(), v.shape()) {
				return &branchError{fmt.Errorf("output %d is a %v of %v in one block and a %v of %v in the other", i, outs[i].dt, outs[i].shape(), v.dt, v.shape())}
			}
			if err := p.copyTo(outs[i], v); err != nil {
				return err
			}
		}
		if k == 0 {
			p.jump(nil, true, &end)
			otherwise = len(p.plan.steps)
		}
	}
	end = len(p.plan.steps)
	for _, v := range outs {
		if err := o.give(v, false); err != nil {
			return err
		}
	}
	return nil
}

func buildWhile(o *opCtx) error {
	if err := o.blocks(2); err != nil {
		return err
	}
	vars := o.lists["loop_vars"]
	for _, b := range o.op.Blocks {
		if len(b.Inputs) != len(vars) {
			return fmt.Errorf("a block has %d inputs for %d loop_vars", len(b.Inputs), len(vars))
		}
	}
	if len(o.op.Blocks[0].Outputs) != 1 || len(o.op.Blocks[1].Outputs) != len(vars) {
		return errors.New("the blocks do not have the outputs of a loop")
	}
	if o.p.live != nil {
		return o.whileLive(vars)
	}
	return o.whileSteps(vars)
}

// enter binds the inputs of a block of a loop.
func (o *opCtx) enter(b *mil.Block, vars []*val) error {
	for i, in := range b.Inputs {
		v := vars[i]
		if v.list == nil && !in.Type.Accepts(mil.TensorOf(v.dt, v.shape()...)) {
			return fmt.Errorf("input %q of a block is a %v, but gets a %v of %v", in.Name, in.Type, v.dt, v.shape())
		}
		o.p.set(in, v)
	}
	return nil
}

// whileLive runs a loop turn by turn.
func (o *opCtx) whileLive(vars []*val) error {
	p, test, body := o.p, o.op.Blocks[0], o.op.Blocks[1]
	vars = slices.Clone(vars)
	for _, v := range vars {
		p.heap.hold(v)
	}
	for {
		if err := p.ctx.Err(); err != nil {
			return err
		}
		if err := o.enter(test, vars); err != nil {
			return err
		}
		vs, err := p.run(test)
		if err != nil {
			return err
		}
		again, err := p.truthOf(vs[0])
		if err != nil {
			return err
		}
		p.heap.leave(p, test)
		if !again {
			break
		}
		if err := o.enter(body, vars); err != nil {
			return err
		}
		if vs, err = p.run(body); err != nil {
			return err
		}
		for i, v := range vs {
			p.heap.hold(v)
			p.heap.release(vars[i])
			vars[i] = v
		}
		p.heap.leave(p, body)
	}
	for _, v := range vars {
		if err := o.give(v, false); err != nil {
			return err
		}
		p.heap.release(v)
	}
	return nil
}

// whileSteps plans a loop whose variables keep their shapes.
func (o *opCtx) whileSteps(vars []*val) error {
	p, test, body := o.p, o.op.Blocks[0], o.op.Blocks[1]
	loop := make([]*val, len(vars))
	bufs := make([]*buf, len(vars))
	for i, v := range vars {
		if v.str != nil || v.list != nil {
			return &branchError{errNoNumber}
		}
		var err error
		if loop[i], err = p.fresh(v.dt, v.shape(), false); err != nil {
			return err
		}
		if err := p.copyTo(loop[i], v); err != nil {
			return err
		}
		bufs[i] = loop[i].buf
	}
	start, end := len(p.plan.steps), 0
	if err := o.enter(test, loop); err != nil {
		return err
	}
	vs, err := p.run(test)
	if err != nil {
		return &branchError{err}
	}
	pred, err := p.plain(vs[0])
	if err != nil {
		return err
	}
	if pred.size() != 1 || pred.buf.elem != elemI32 {
		return fmt.Errorf("the condition is a %v of shape %v, want one bool", pred.dt, pred.shape())
	}
	p.jump(pred, false, &end)
	if err := o.enter(body, loop); err != nil {
		return err
	}
	if vs, err = p.run(body); err != nil {
		return &branchError{err}
	}
	next := make([]*val, len(vs))
	for i, v := range vs {
		switch {
		case v.str != nil || v.list != nil:
			return &branchError{errNoNumber}
		case v.dt != loop[i].dt || !slices.Equal(v.shape(), loop[i].shape()):
			return &branchError{fmt.Errorf("variable %d turns from a %v of %v into a %v of %v", i, loop[i].dt, loop[i].shape(), v.dt, v.shape())}
		case v == loop[i]: // as it was
		case slices.Contains(bufs, v.buf):
			if next[i], err = p.copyOf(v); err != nil {
				return err
			}
		default:
			next[i] = v
		}
	}
	for i, v := range next {
		if v != nil {
			if err := p.copyTo(loop[i], v); err != nil {
				return err
			}
		}
	}
	p.jump(nil, true, &start)
	end = len(p.plan.steps)
	// What the loop takes from outside must last through all turns.
	for _, b := range p.arena {
		if b.first >= 0 && b.first < start && b.last >= start {
			b.last = max(b.last, end-1)
		}
	}
	for _, v := range loop {
		if err := o.give(v, false); err != nil {
			return err
		}
	}
	return nil
}

// list is a list of tensors. Lists are values: a write makes a new one.
type list struct {
	elem  mil.Type
	items []*val // nil where nothing was written
	grows bool
}

// maxList bounds the length of a list.
const maxList = 1 << 20

// listArg returns the list that an operation works on. Plans have none.
func (o *opCtx) listArg() (*list, error) {
	v := o.x("ls")
	if v == nil || v.list == nil {
		return nil, errors.New("ls is not a list")
	}
	return v.list, nil
}

func (o *opCtx) giveList(l *list) error { return o.give(&val{list: l}, false) }

func buildMakeList(o *opCtx) error {
	if o.p.live == nil {
		return fmt.Errorf("a list of tensors: %w", errNeedsValue)
	}
	t := o.op.Results[0].Type
	if t.Kind != mil.ListKind || len(t.Elems) != 1 || t.Elems[0].Kind != mil.TensorKind || t.Elems[0].DType == mil.String {
		return fmt.Errorf("a %v is not a list of tensors of numbers", t)
	}
	n, err := o.intOr("init_length", 1)
	if err != nil {
		return err
	}
	grows, err := o.boolOr("dynamic_length", true)
	if err != nil {
		return err
	}
	if n < 0 || n > maxList {
		return fmt.Errorf("init_length is %d, want 0 to %d", n, maxList)
	}
	return o.giveList(&list{elem: t.Elems[0], items: make([]*val, n), grows: grows})
}

func buildListLength(o *opCtx) error {
	l, err := o.listArg()
	if err != nil {
		return err
	}
	return o.give(intVal(len(l.items)), false)
}

func intVal(n int) *val {
	return &val{dt: mil.Int32, buf: &buf{elem: elemI32, space: spaceConst, n: 1, i: []int32{int32(n)}}, v: dense(nil)}
}

// item returns an element: zeros where nothing was written.
func (o *opCtx) item(l *list, i int) (*val, error) {
	if i < 0 || i >= len(l.items) {
		return nil, fmt.Errorf("index %d is outside a list of %d", i, len(l.items))
	}
	if x := l.items[i]; x != nil {
		return x, nil
	}
	if !l.elem.Static() {
		return nil, fmt.Errorf("element %d of the list was never written, and its shape is not known", i)
	}
	x, err := o.p.fresh(l.elem.DType, l.elem.Shape, true)
	if err != nil {
		return nil, err
	}
	return x, o.fill(x, 0, 0)
}

func buildListRead(o *opCtx) error {
	l, err := o.listArg()
	if err != nil {
		return err
	}
	i, err := o.intOr("index", 0)
	if err != nil {
		return err
	}
	x, err := o.item(l, i)
	if err != nil {
		return err
	}
	return o.give(x, false)
}

// put returns the list with an element replaced.
func (l *list) put(i int, x *val) error {
	switch {
	case i >= 0 && i < len(l.items):
	case i >= 0 && l.grows && i < maxList:
		l.items = append(l.items, make([]*val, i+1-len(l.items))...)
	default:
		return fmt.Errorf("index %d is outside a list of %d", i, len(l.items))
	}
	if !l.elem.Accepts(mil.TensorOf(x.dt, x.shape()...)) {
		return fmt.Errorf("a %v of %v is no element of a list of %v", x.dt, x.shape(), l.elem)
	}
	l.items[i] = x
	return nil
}

func (l *list) clone() *list { return &list{l.elem, slices.Clone(l.items), l.grows} }

func buildListWrite(o *opCtx) error {
	l, err := o.listArg()
	if err != nil {
		return err
	}
	i, err := o.intOr("index", 0)
	if err != nil {
		return err
	}
	x, err := o.p.plain(o.x("value"))
	if err != nil {
		return err
	}
	l = l.clone()
	if err := l.put(i, x); err != nil {
		return err
	}
	return o.giveList(l)
}

func buildListGather(o *opCtx) error {
	l, err := o.listArg()
	if err != nil {
		return err
	}
	idx, err := o.mustInts("indices")
	if err != nil {
		return err
	}
	var xs []*val
	for _, i := range idx {
		x, err := o.item(l, i)
		if err != nil {
			return err
		}
		xs = append(xs, x)
	}
	if len(xs) == 0 {
		if !l.elem.Static() {
			return errors.New("no indices, and elements of unknown shape")
		}
		x, err := o.p.fresh(l.elem.DType, append([]int{0}, l.elem.Shape...), true)
		if err != nil {
			return err
		}
		return o.give(x, false)
	}
	return o.stacked(xs, 0)
}

func buildListScatter(o *opCtx) error {
	l, err := o.listArg()
	if err != nil {
		return err
	}
	idx, err := o.mustInts("indices")
	if err != nil {
		return err
	}
	x, err := o.movable(o.x("value"))
	if err != nil {
		return err
	}
	if len(x.shape()) == 0 || x.shape()[0] != len(idx) {
		return fmt.Errorf("value of shape %v for %d indices", x.shape(), len(idx))
	}
	l = l.clone()
	drop := make([]bool, len(x.shape()))
	drop[0] = true
	for k, i := range idx {
		part, err := o.sliced(x, 0, k, 1, 1)
		if err != nil {
			return err
		}
		if err := l.put(i, part.with(part.v.without(drop))); err != nil {
			return err
		}
	}
	return o.giveList(l)
}
