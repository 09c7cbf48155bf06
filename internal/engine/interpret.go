package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"anemone/internal/engine/kernels"
	"anemone/internal/runner"
	"anemone/mil"
)

// A function whose inner shapes depend on the values of its inputs has no
// plan. It is interpreted: with every call it is planned anew, with its
// inputs as constants. As the planner computes what depends on constants at
// once, planning it is running it, and every shape is known in time.
//
// What depends on nothing but the program's own constants is computed by the
// first call and kept for the next ones; other values are let go of after
// their last use.
type interpreter struct {
	last  map[*mil.Operation][]*mil.Value // values that nothing needs afterwards
	block map[*mil.Block][]*mil.Value     // values that a block defines
	fixed map[*mil.Operation]*fixedOp

	mu    sync.Mutex
	vals  map[*mil.Value]*val // constants, and results of fixed operations
	dense map[*buf]*val       // widened fp16 constants
}

// fixedOp is an operation whose operands are constants.
type fixedOp struct{ done bool }

func newInterpreter(f *mil.Function) *interpreter {
	in := &interpreter{
		last: map[*mil.Operation][]*mil.Value{}, block: map[*mil.Block][]*mil.Value{}, fixed: map[*mil.Operation]*fixedOp{},
		vals: map[*mil.Value]*val{}, dense: map[*buf]*val{},
	}
	in.scan(f.Body, map[*mil.Value]bool{})
	return in
}

// scan notes where the values of a block are used last, and which of its
// operations have constant operands.
func (in *interpreter) scan(b *mil.Block, fixed map[*mil.Value]bool) {
	mine := map[*mil.Value]*mil.Operation{} // last use
	for _, v := range b.Inputs {
		mine[v] = nil
		in.block[b] = append(in.block[b], v)
	}
	for _, op := range b.Ops {
		for _, v := range operands(op) {
			if _, ok := mine[v]; ok {
				mine[v] = op
			}
		}
		for _, v := range op.Results {
			if !v.IsConst() {
				mine[v] = op
				in.block[b] = append(in.block[b], v)
			}
		}
		if isFixed(op, fixed) {
			in.fixed[op] = &fixedOp{}
			for _, v := range op.Results {
				fixed[v] = true
			}
		}
		for _, n := range op.Blocks {
			in.scan(n, fixed)
		}
	}
	for _, v := range b.Outputs {
		delete(mine, v)
	}
	for v, op := range mine {
		if op != nil {
			in.last[op] = append(in.last[op], v)
		}
	}
}

// isFixed reports whether an operation gives the same whenever it runs.
func isFixed(op *mil.Operation, fixed map[*mil.Value]bool) bool {
	switch {
	case op.Type == "const" || len(op.Blocks) > 0 || strings.HasPrefix(op.Type, "random_") || strings.Contains(op.Type, "list"):
		return false
	case strings.HasPrefix(op.Type, "constexpr_"):
		return true
	}
	n := 0
	for _, a := range op.Args {
		for _, v := range a.Values {
			if n++; !v.IsConst() && !fixed[v] {
				return false
			}
		}
	}
	return n > 0
}

// operands returns the values that an operation uses: its arguments, and
// what the blocks nested in it use.
func operands(op *mil.Operation) []*mil.Value {
	var vs []*mil.Value
	for _, a := range op.Args {
		vs = append(vs, a.Values...)
	}
	for _, b := range op.Blocks {
		for _, o := range b.Ops {
			vs = append(vs, operands(o)...)
		}
		vs = append(vs, b.Outputs...)
	}
	return vs
}

// known returns the record of an operation whose results are kept from call
// to call, nil if they are not.
func (in *interpreter) known(op *mil.Operation) *fixedOp {
	if in == nil {
		return nil
	}
	return in.fixed[op]
}

// once computes a fixed operation, or finds its results.
func (in *interpreter) once(p *planner, op *mil.Operation, e *fixedOp, run func() error) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !e.done {
		outer := p.heap.keep
		p.heap.keep = true
		err := run()
		p.heap.keep = outer
		if err != nil {
			return err
		}
		e.done = true
	}
	return nil
}

// find returns a value that is kept from call to call, nil if v is not. The
// lock is held by whoever computes one.
func (in *interpreter) find(p *planner, v *mil.Value) (*val, error) {
	if !p.heap.keep {
		in.mu.Lock()
		defer in.mu.Unlock()
	}
	got := in.vals[v]
	if got != nil || !v.IsConst() {
		return got, nil
	}
	got, err := p.constant(v)
	if err == nil {
		in.vals[v] = got
	}
	return got, err
}

// widened returns a large fp16 constant in float32.
func (in *interpreter) widened(p *planner, v *val) (*val, error) {
	if !p.heap.keep {
		in.mu.Lock()
		defer in.mu.Unlock()
	}
	if d := in.dense[v.buf]; d != nil {
		return d.with(v.v), nil
	}
	if v.size() < v.buf.n {
		return p.copyOf(v)
	}
	if err := p.hold(4 * int64(v.buf.n)); err != nil {
		return nil, err
	}
	b := &buf{space: spaceConst, n: v.buf.n, f: make([]float32, v.buf.n)}
	kernels.Widen(b.f, v.buf.h)
	d := &val{dt: v.dt, buf: b}
	in.dense[v.buf] = d
	return d.with(v.v), nil
}

// heap counts the memory that the values of an interpreted call take. The
// memory itself is the garbage collector's.
type heap struct {
	bytes int64
	refs  map[*buf]int // values in every buffer
	temps []*buf       // made by the operation at hand
	keep  bool         // what is made is kept from call to call
}

// take counts a new buffer.
func (h *heap) take(p *planner, b *buf) error {
	n := 4 * int64(b.n)
	if h.keep {
		return p.hold(n)
	}
	if h.bytes+n > p.m.opts.maxBytes() {
		return p.m.opts.tooBig("the values of one call", h.bytes+n)
	}
	h.bytes += n
	b.counted = true
	h.temps = append(h.temps, b)
	return nil
}

// buffers calls f for every buffer that a value lies in.
func (v *val) buffers(f func(*buf)) {
	if v.buf != nil {
		f(v.buf)
	}
	if v.list != nil {
		for _, x := range v.list.items {
			if x != nil {
				x.buffers(f)
			}
		}
	}
}

func (h *heap) hold(v *val) { v.buffers(func(b *buf) { h.refs[b]++ }) }

func (h *heap) release(v *val) {
	v.buffers(func(b *buf) {
		if h.refs[b]--; h.refs[b] <= 0 {
			delete(h.refs, b)
			if b.counted {
				b.counted = false
				h.bytes -= 4 * int64(b.n)
			}
		}
	})
}

func (h *heap) set(p *planner, r *mil.Value, v *val) {
	if h.keep {
		p.live.vals[r] = v
		return
	}
	h.drop(p, r)
	h.hold(v)
	p.vals[r] = v
}

func (h *heap) drop(p *planner, r *mil.Value) {
	if v := p.vals[r]; v != nil {
		delete(p.vals, r)
		h.release(v)
	}
}

// clean lets go of what an operation was the last to need.
func (h *heap) clean(p *planner, op *mil.Operation) {
	if p.live == nil {
		return
	}
	for _, b := range h.temps {
		if h.refs[b] == 0 && b.counted {
			b.counted = false
			h.bytes -= 4 * int64(b.n)
		}
	}
	clear(h.temps)
	h.temps = h.temps[:0]
	for _, v := range p.live.last[op] {
		h.drop(p, v)
	}
}

// leave lets go of the values of a block.
func (h *heap) leave(p *planner, b *mil.Block) {
	if p.live == nil {
		return
	}
	for _, v := range p.live.block[b] {
		h.drop(p, v)
	}
}

// interpret runs a function that has no plan.
func (m *Model) interpret(ctx context.Context, fn *function, p *plan, c *call, sig *runner.Signature, out runner.Values) error {
	pl := fn.planner(m, sig, p.shapes, c)
	pl.live, pl.heap.refs = p.dynamic, map[*buf]int{}
	pl.alias = &aliases{}
	if err := pl.build(ctx, p.shapes); err != nil {
		return err
	}
	for k := range pl.plan.outs {
		pl.plan.outs[k].store(c, out)
	}
	return nil
}

// planner returns a planner for the given shapes of the inputs.
func (fn *function) planner(m *Model, sig *runner.Signature, shapes [][]int, fold *call) *planner {
	pl := &planner{
		m: m, f: fn.f, outs: sig.Outputs, half: m.opts.Numerics == Float16,
		vals: map[*mil.Value]*val{}, plan: &plan{shapes: shapes}, states: map[*mil.Value]int{},
		fold: fold, dense: map[*buf]*val{}, builders: builders,
	}
	for i, s := range fn.states {
		pl.states[s] = i
	}
	return pl
}

// planFor makes the plan for inputs of the given shapes.
func (fn *function) planFor(ctx context.Context, m *Model, sig *runner.Signature, shapes [][]int) (*plan, error) {
	fold := m.newCall()
	fold.ctx = ctx
	defer fold.drop()
	pl := fn.planner(m, sig, shapes, fold)
	pl.alias = analyse(fn.f)
	if !m.opts.NoFusion && !pl.half && !m.copyAll {
		pl.chains = chains(fn.f)
	}
	var err error
	if hasStates(fn.f.Body, false) {
		err = errNeedsValue
	} else {
		err = pl.build(ctx, shapes)
	}
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err() // whatever it led to
	}
	if errors.Is(err, errNeedsValue) {
		if fn.interpreter == nil {
			fn.interpreter = newInterpreter(fn.f)
		}
		return &plan{shapes: shapes, dynamic: fn.interpreter}, nil
	}
	return pl.plan, err
}

// hasStates reports whether blocks nested in b read or write states: the
// order of such operations is only known when they run.
func hasStates(b *mil.Block, nested bool) bool {
	return slices.ContainsFunc(b.Ops, func(op *mil.Operation) bool {
		return nested && stateOf(op) != nil || slices.ContainsFunc(op.Blocks, func(n *mil.Block) bool { return hasStates(n, true) })
	})
}
