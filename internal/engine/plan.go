package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"anemone/internal/engine/kernels"
	"anemone/internal/runner"
	"anemone/mil"
)

// plan is a function compiled for concrete input shapes: a list of steps
// over buffers whose places are known. Where the shapes inside depend on
// values of the inputs there are no steps: see interpret.go.
type plan struct {
	shapes  [][]int // of the inputs, in the order of the function
	dynamic *interpreter
	steps   []step
	outs    []output
	f, i    int // elements of the arenas
	scratch int // elements of scratch memory per slot
	consts  int64
}

// step is one thing to do, after which the next one in the list follows. run
// must not keep anything between calls. A jump tells the index of the step
// that follows instead.
type step struct {
	run  func(c *call)
	jump func(c *call) int
	op   *mil.Operation
}

// output copies a value to the caller's tensor.
type output struct {
	name  string
	dtype mil.DType
	shape []int
	val   *val
}

// val is a value of the program in a plan.
type val struct {
	dt   mil.DType
	buf  *buf
	v    view
	comp *compressed // compressed weights; buf is nil
	mask *mask       // a mask of such
	str  []string    // strings, always constant; buf is nil
	list *list       // a list of tensors; buf is nil
	// part of an attention that is computed later; buf is nil
	scores *lazyScores
}

func (v *val) shape() []int { return v.v.shape }

func (v *val) isConst() bool {
	return v.scores == nil && (v.buf == nil || v.buf.space == spaceConst)
}

func (v *val) size() int { return v.v.size() }

// with returns the same buffer through another view.
func (v *val) with(w view) *val {
	return &val{dt: v.dt, buf: v.buf, v: w, comp: v.comp, scores: v.scores}
}

// Limits on what a program may ask for, far above real models.
const (
	maxElements = 1 << 40 // of any value, counting repetitions that take no memory
	maxRank     = 16
	maxFolded   = 1 << 24 // of a result that is computed when planning
)

// planner builds a plan.
type planner struct {
	m      *Model
	f      *mil.Function
	half   bool
	vals   map[*mil.Value]*val
	alias  *aliases
	outs   []runner.Feature // as the model describes them
	plan   *plan
	arena  []*buf
	states map[*mil.Value]int
	fold   *call // runs what depends on constants only
	chains map[*mil.Operation]bool

	builders map[string]builder
	ctx      context.Context
	op       *mil.Operation // being planned
	dense    map[*buf]*val  // straightened constants
	live     *interpreter   // not nil: everything is computed at once
	heap     heap           // of the interpreter
}

// errNeedsValue is wrapped by the error for a plan that depends on a value
// that is only known when the function runs.
var errNeedsValue = errors.New("it must be known when the function is loaded")

// emit adds a step. A step that only reads and writes constants runs at
// once instead.
func (p *planner) emit(reads, writes []*buf, run func(c *call)) error {
	if err := p.scratchFits(); err != nil {
		return err
	}
	fold := true
	for _, b := range writes {
		fold = fold && b.space == spaceConst
	}
	if fold {
		for _, b := range reads {
			if b.space != spaceConst {
				return errors.New("internal error: a constant depends on a variable")
			}
		}
		p.fold.grow(0, 0, p.plan.scratch)
		p.fold.err = nil
		run(p.fold)
		return p.fold.err
	}
	p.plan.steps = append(p.plan.steps, step{run: run, op: p.op})
	p.touch(reads, writes)
	return nil
}

// touch notes that the last step uses buffers.
func (p *planner) touch(reads, writes []*buf) {
	k := len(p.plan.steps) - 1
	for _, bs := range [2][]*buf{writes, reads} {
		for _, b := range bs {
			if b.space == spaceArena {
				if b.first < 0 {
					b.first = k
				}
				b.last = k
			}
		}
	}
}

// need asks for scratch memory of n elements per slot. The next step fails
// if that is too much.
func (p *planner) need(n int) { p.plan.scratch = max(p.plan.scratch, n) }

// scratchFits checks what need has asked for.
func (p *planner) scratchFits() error {
	if n := int64(p.plan.scratch) * 4; n > p.m.opts.maxBytes()/int64(p.m.pool.workers) {
		return p.m.opts.tooBig("scratch memory of one goroutine", n)
	}
	return nil
}

// buffer returns memory for n elements, of the plan if it is to be constant.
func (p *planner) buffer(e elem, n int, constant bool) (*buf, error) {
	b := &buf{elem: e, n: n, first: -1, last: -1}
	if constant || p.live != nil {
		b.space = spaceConst
		if p.live != nil {
			if err := p.heap.take(p, b); err != nil {
				return nil, err
			}
		} else if p.plan.consts += int64(n) * 4; p.plan.consts > p.m.opts.maxBytes() {
			return nil, p.m.opts.tooBig("constants", p.plan.consts)
		}
		if e == elemF32 {
			b.f = make([]float32, n)
		} else {
			b.i = make([]int32, n)
		}
		return b, nil
	}
	if int64(n) > p.m.opts.maxBytes()/4 {
		return nil, p.m.opts.tooBig("a value", int64(n)*4)
	}
	p.arena = append(p.arena, b)
	return b, nil
}

// fresh returns a new dense value.
func (p *planner) fresh(d mil.DType, shape []int, constant bool) (*val, error) {
	return p.freshView(d, dense(shape), constant)
}

// freshView returns a new value with a dense view in any order of axes.
func (p *planner) freshView(d mil.DType, v view, constant bool) (*val, error) {
	n, ok := mil.NumElements(v.shape)
	if !ok {
		return nil, fmt.Errorf("shape %v is too large", v.shape)
	}
	b, err := p.buffer(elemOf(d), n, constant)
	if err != nil {
		return nil, err
	}
	return &val{dt: d, buf: b, v: v}, nil
}

// straight returns v with its elements row-major in memory and in the form
// that steps compute with, copying only if need be.
func (p *planner) straight(v *val) (*val, error) {
	v, err := p.plain(v)
	if err != nil {
		return nil, err
	}
	if v.v.contiguous() {
		w := dense(v.shape())
		w.off = v.v.off
		return v.with(w), nil
	}
	return p.copyOf(v)
}

// plain returns v in the form that steps compute with: float32 or int32.
func (p *planner) plain(v *val) (*val, error) {
	if v.str != nil || v.list != nil {
		return nil, errNoNumber
	}
	if v.scores != nil {
		return p.force(v)
	}
	if v.comp != nil {
		d, err := p.expand(v.comp)
		if err != nil {
			return nil, err
		}
		w, ok := d.v.reshape(v.shape())
		if !ok {
			return nil, errors.New("internal error: weight changed its shape")
		}
		return d.with(w), nil
	}
	if v.buf.elem != elemF16 {
		return v, nil
	}
	if p.live != nil {
		return p.live.widened(p, v)
	}
	if d := p.dense[v.buf]; d != nil {
		return d.with(v.v), nil
	}
	// Widen only what the view reaches, if that is less than everything.
	if v.size() < v.buf.n {
		return p.copyOf(v)
	}
	b, err := p.buffer(elemF32, v.buf.n, true)
	if err != nil {
		return nil, err
	}
	kernels.Widen(b.f, v.buf.h)
	d := &val{dt: v.dt, buf: b}
	p.dense[v.buf] = d
	return d.with(v.v), nil
}

// copyOf returns a dense copy of v.
func (p *planner) copyOf(v *val) (*val, error) {
	out, err := p.fresh(v.dt, v.shape(), v.isConst())
	if err != nil {
		return nil, err
	}
	return out, p.copyTo(out, v)
}

// copyTo emits a copy of src to dst, which has the same shape.
func (p *planner) copyTo(dst, src *val) error {
	if src.buf == nil {
		var err error
		if src, err = p.plain(src); err != nil {
			return err
		}
	}
	ns, _, ok := weave(src.v, dst.v)
	if !ok {
		// Copy through a straight form of the source's own.
		return errors.New("a view is too tangled to copy")
	}
	if dst.size() == 0 {
		return nil
	}
	run := copyStep[int32](ns, src.buf, dst.buf)
	if dst.buf.elem == elemF32 {
		run = copyStep[float32](ns, src.buf, dst.buf)
		if src.buf.elem == elemF16 {
			run = widenStep(ns, src.buf, dst.buf)
		}
	}
	return p.emit([]*buf{src.buf}, []*buf{dst.buf}, run)
}

// place gives every arena buffer its place: first fit among the buffers
// that live at the same time, in the order in which they are born.
func (p *planner) place() error {
	for _, e := range []elem{elemF32, elemI32} {
		var live []*buf // sorted by place
		top := 0
		var bufs []*buf
		for _, b := range p.arena {
			if b.elem == e && b.first >= 0 && b.n > 0 {
				bufs = append(bufs, b)
			}
		}
		slices.SortStableFunc(bufs, func(a, b *buf) int { return a.first - b.first })
		for _, b := range bufs {
			live = slices.DeleteFunc(live, func(o *buf) bool { return o.last < b.first })
			at, k := 0, 0
			best, bestK, bestGap := -1, 0, math.MaxInt
			for ; k < len(live); k++ {
				if gap := live[k].off - at; gap >= b.n && gap < bestGap {
					best, bestK, bestGap = at, k, gap
				}
				at = live[k].off + roundUp(live[k].n)
			}
			if best < 0 {
				best, bestK = at, k
			}
			b.off = best
			live = slices.Insert(live, bestK, b)
			top = max(top, best+b.n)
		}
		if int64(top) > p.m.opts.maxBytes()/4 {
			return p.m.opts.tooBig("the values of one call", int64(top)*4)
		}
		if e == elemF32 {
			p.plan.f = top
		} else {
			p.plan.i = top
		}
	}
	return nil
}

// roundUp keeps buffers on their own cache lines.
func roundUp(n int) int { return (n + 15) &^ 15 }

// build plans the whole function for the given input shapes.
func (p *planner) build(ctx context.Context, shapes [][]int) error {
	for k, in := range p.f.Inputs {
		b := &buf{elem: elemOf(in.Type.DType), space: spaceInput, idx: k}
		if in.Type.Kind == mil.StateKind {
			b.space = spaceState
			b.idx = p.states[in]
		}
		if n, ok := mil.NumElements(shapes[k]); !ok || n > maxElements || len(shapes[k]) > maxRank {
			return fmt.Errorf("function %q: input %q has the shape %v", p.f.Name, in.Name, shapes[k])
		}
		v := &val{dt: in.Type.DType, buf: b, v: dense(shapes[k])}
		b.n = v.size()
		if p.live != nil { // all is known
			b.f, b.i = p.fold.f32(b), p.fold.i32(b)
			b.space = spaceConst
			p.vals[in] = v
		}
		if p.half && in.Type.DType == mil.Float16 && in.Type.Kind != mil.StateKind {
			r, err := p.copyOf(v)
			if err != nil {
				return err
			}
			if err := p.round(r); err != nil {
				return err
			}
			v = r
		}
		p.vals[in] = v
	}
	p.ctx = ctx
	if err := p.operations(p.f.Body.Ops); err != nil {
		return err
	}
	p.op = nil
	for i, o := range p.f.Body.Outputs {
		d := o.Type.DType
		if i < len(p.outs) && p.outs[i].DType.IsFloat() == d.IsFloat() {
			d = p.outs[i].DType // 16-bit integers leave as int32
		}
		v, err := p.value(o)
		if err == nil {
			v, err = p.straight(v)
		}
		if err != nil {
			return fmt.Errorf("function %q: output %q: %w", p.f.Name, o.Name, err)
		}
		if v.buf.space == spaceArena {
			v.buf.last = math.MaxInt
		}
		p.plan.outs = append(p.plan.outs, output{name: o.Name, dtype: d, shape: v.shape(), val: v})
	}
	return p.place()
}

// operations plans the operations of a block in order.
func (p *planner) operations(ops []*mil.Operation) error {
	for _, op := range ops {
		if err := p.ctx.Err(); err != nil {
			return err
		}
		outer := p.op
		p.op = op
		if err := p.operation(op); err != nil {
			return opError(p.f, op, err)
		}
		p.op = outer
		p.heap.clean(p, op)
	}
	return nil
}

// opError says which operation an error is about.
func opError(f *mil.Function, op *mil.Operation, err error) error {
	var at *mil.Error
	if errors.As(err, &at) {
		return err // of an operation in a block of this one
	}
	name := op.Name
	if len(op.Results) > 0 {
		name = op.Results[0].Name
	}
	return &mil.Error{Function: f.Name, Op: op.Type, Name: name, Err: err}
}

// value returns the planned form of a value of the program.
func (p *planner) value(v *mil.Value) (*val, error) {
	if got := p.vals[v]; got != nil {
		return got, nil
	}
	if p.live != nil {
		if got, err := p.live.find(p, v); got != nil || err != nil {
			return got, err
		}
	}
	if !v.IsConst() {
		return nil, fmt.Errorf("value %q is used before it is known", v.Name)
	}
	got, err := p.constant(v)
	if err != nil {
		return nil, err
	}
	p.vals[v] = got
	return got, nil
}

// operation plans one operation.
func (p *planner) operation(op *mil.Operation) error {
	if op.Type == "const" {
		return nil // planned where it is used
	}
	build := p.builders[op.Type]
	if build == nil {
		return errors.New("the engine does not know this operation; docs/operations.md lists those that it does")
	}
	if known := p.live.known(op); known != nil {
		return p.live.once(p, op, known, func() error { return p.planOne(op, build) })
	}
	return p.planOne(op, build)
}

func (p *planner) planOne(op *mil.Operation, build builder) error {
	def, err := mil.LookupOpIn(op.Type, p.f.Opset)
	if err != nil {
		return err
	}
	o := &opCtx{p: p, op: op, def: def, args: map[string]*val{}, lists: map[string][]*val{}, constant: true}
	for _, r := range op.Results {
		// Large results are computed when they are wanted, not kept.
		if n, ok := r.Type.NumElements(); ok && n > maxFolded {
			o.constant = false
		}
	}
	// What is stored is not decoded: see compressed.go.
	if !strings.HasPrefix(op.Type, "constexpr_") {
		for i := range def.Params {
			if err := o.bind(&def.Params[i]); err != nil {
				return err
			}
		}
	}
	o.constant = o.constant || p.live != nil
	if err := build(o); err != nil {
		return err
	}
	if o.done != len(op.Results) {
		return fmt.Errorf("declares %d results, but gives %d", len(op.Results), o.done)
	}
	return nil
}

// bind plans the values of a parameter, or its default value.
func (o *opCtx) bind(par *mil.Param) error {
	vs := o.op.Arg(par.Name)
	if vs == nil {
		if a := o.op.Attr(par.Name); a != nil {
			vs = []*mil.Value{a}
		} else if l := o.def.Default(o.op, par.Name); l != nil {
			v, err := o.p.constant(mil.Imm(l))
			if err != nil {
				return fmt.Errorf("default of argument %q: %w", par.Name, err)
			}
			o.args[par.Name] = v
			return nil
		}
	}
	for _, mv := range vs {
		v, err := o.p.value(mv)
		if err != nil {
			return fmt.Errorf("argument %q: %w", par.Name, err)
		}
		if v.str != nil && par.Accepts&(mil.Floats|mil.Booleans) != 0 {
			return fmt.Errorf("argument %q: %w", par.Name, errNoNumber)
		}
		o.constant = o.constant && v.isConst()
		if par.Variadic {
			o.lists[par.Name] = append(o.lists[par.Name], v)
		} else {
			o.args[par.Name] = v
		}
	}
	if len(vs) == 0 && !par.Optional {
		return fmt.Errorf("argument %q is missing", par.Name)
	}
	return nil
}

// maxLiteral is the largest number of elements of a computed constant that
// shapes are inferred from.
const maxLiteral = 1 << 12

// infer returns the types of the results, by the rules of mil's table, for
// operands of the shapes and values that they have here. It checks the
// operands like the table does.
func (o *opCtx) infer() ([]mil.Type, error) {
	op := &mil.Operation{Type: o.op.Type, Name: o.op.Name}
	for i := range o.def.Params {
		name := o.def.Params[i].Name
		given := o.op.Arg(name)
		if given == nil {
			if a := o.op.Attr(name); a != nil {
				given = []*mil.Value{a}
			}
		}
		if given == nil {
			continue // or a default
		}
		vs := o.lists[name]
		if v := o.args[name]; v != nil {
			vs = []*val{v}
		}
		if len(vs) != len(given) {
			return nil, fmt.Errorf("argument %q has %d values, want %d", name, len(vs), len(given))
		}
		arg := mil.Arg{Name: name}
		for k, v := range vs {
			mv := given[k]
			if !mv.IsConst() {
				mv = &mil.Value{Name: mv.Name, Type: mil.TensorOf(v.dt, v.shape()...), Op: mv.Op, Literal: v.literal()}
			}
			arg.Values = append(arg.Values, mv)
		}
		op.Args = append(op.Args, arg)
	}
	return o.def.Infer(op)
}

// literal returns a small constant as the program could have it, nil for
// everything else.
func (v *val) literal() *mil.Literal {
	if !v.isConst() || v.buf == nil || v.buf.elem == elemF16 || v.size() > maxLiteral {
		return nil
	}
	offs, ok := v.v.offsets(len(v.v.axes), maxLiteral)
	if !ok {
		return nil
	}
	l := &mil.Literal{Type: mil.TensorOf(v.dt, v.shape()...)}
	for _, at := range offs {
		switch {
		case v.dt == mil.Bool:
			l.Bools = append(l.Bools, v.buf.i[at] != 0)
		case v.dt.IsFloat():
			l.Floats = append(l.Floats, float64(v.buf.f[at]))
		default:
			l.Ints = append(l.Ints, int64(v.buf.i[at]))
		}
	}
	return l
}

// shapeOf returns the inferred shape of the only result, or of the first.
func (o *opCtx) shapeOf() ([]int, error) {
	ts, err := o.infer()
	if err != nil {
		return nil, err
	}
	if len(ts) == 0 || ts[0].Kind != mil.TensorKind || !ts[0].Static() {
		return nil, fmt.Errorf("the shape of the result depends on the inputs of the function: %w", errNeedsValue)
	}
	return ts[0].Shape, nil
}

// opCtx is what a builder of an operation works with.
type opCtx struct {
	p        *planner
	op       *mil.Operation
	def      *mil.OpDef // the form that the function's operation set has
	args     map[string]*val
	lists    map[string][]*val // of variadic parameters
	constant bool              // everything it depends on is known
	done     int               // results given
}

// x returns an argument, nil if it is absent.
func (o *opCtx) x(name string) *val { return o.args[name] }

// give sets the next result of the operation. computed tells results of
// arithmetic, which have a precision, from elements that moved.
func (o *opCtx) give(v *val, computed bool) error {
	if o.done >= len(o.op.Results) {
		return fmt.Errorf("declares %d results, but gives more", len(o.op.Results))
	}
	r := o.op.Results[o.done]
	o.done++
	n, ok := mil.NumElements(v.shape())
	if !ok || n > maxElements || len(v.shape()) > maxRank {
		return fmt.Errorf("result %q would have the shape %v", r.Name, v.shape())
	}
	t := mil.TensorOf(v.dt, v.shape()...)
	if v.list != nil {
		t = mil.Type{Kind: mil.ListKind, Elems: []mil.Type{v.list.elem}}
	}
	if !r.Type.Accepts(t) {
		return fmt.Errorf("result %q is declared %v, but is %v", r.Name, r.Type, t)
	}
	if computed && o.p.half && v.dt.IsFloat() {
		if err := o.p.round(v); err != nil {
			return err
		}
	}
	if o.p.m.copyAll && v.str == nil && v.list == nil && v.mask == nil || o.p.alias.copied[r] && v.buf != nil && v.buf.space == spaceState {
		c, err := o.p.copyOf(v)
		if err != nil {
			return err
		}
		v = c
	}
	o.p.set(r, v)
	return nil
}

// set makes v the planned form of a value of the program.
func (p *planner) set(r *mil.Value, v *val) {
	if p.live != nil {
		p.heap.set(p, r, v)
		return
	}
	p.vals[r] = v
}

// since reports whether the operation has the form of s or a later one.
func (o *opCtx) since(s mil.Opset) bool { return !o.def.Since.Before(s) }

// round rounds a dense value to fp16 where it is.
func (p *planner) round(v *val) error {
	b, off, n := v.buf, v.v.off, v.size()
	return p.emit([]*buf{b}, []*buf{b}, func(c *call) { roundHalf(c.f32(b)[off : off+n]) })
}

// ints returns the elements of a constant integer argument; ok is false if
// it is absent or not known when planning.
func (o *opCtx) ints(name string) (v []int, ok bool) { return constInts(o.args[name]) }

func constInts(a *val) ([]int, bool) {
	if a == nil || !a.isConst() || a.buf == nil || a.buf.elem != elemI32 || a.size() > 1<<20 {
		return nil, false
	}
	var out []int
	offs, ok := a.v.offsets(len(a.v.axes), 1<<20)
	if !ok {
		return nil, false
	}
	for _, at := range offs {
		out = append(out, int(a.buf.i[at]))
	}
	return out, true
}

// mustInts is ints for a required argument.
func (o *opCtx) mustInts(name string) ([]int, error) {
	v, ok := o.ints(name)
	if !ok {
		return nil, fmt.Errorf("argument %q depends on the inputs of the function: %w", name, errNeedsValue)
	}
	return v, nil
}

// intOr returns a constant scalar argument, def if it is absent.
func (o *opCtx) intOr(name string, def int) (int, error) {
	if o.args[name] == nil {
		return def, nil
	}
	v, err := o.mustInts(name)
	if err == nil && len(v) != 1 {
		err = fmt.Errorf("argument %q has %d elements, want one", name, len(v))
	}
	if err != nil {
		return 0, err
	}
	return v[0], nil
}

func (o *opCtx) boolOr(name string, def bool) (bool, error) {
	d := 0
	if def {
		d = 1
	}
	v, err := o.intOr(name, d)
	return v != 0, err
}

// flags returns n constant bools, all false if the argument is absent.
func (o *opCtx) flags(name string, n int) ([]bool, error) {
	out := make([]bool, n)
	if o.args[name] == nil {
		return out, nil
	}
	v, err := o.mustInts(name)
	if err == nil && len(v) != n {
		err = fmt.Errorf("argument %q has %d elements, want %d", name, len(v), n)
	}
	if err != nil {
		return nil, err
	}
	for i, x := range v {
		out[i] = x != 0
	}
	return out, nil
}

func (o *opCtx) strOr(name, def string) (string, error) {
	a := o.args[name]
	if a == nil {
		return def, nil
	}
	if len(a.str) != 1 {
		return "", fmt.Errorf("argument %q must be one constant string", name)
	}
	return a.str[0], nil
}

// floatOr returns a constant scalar argument of any numeric type.
func (o *opCtx) floatOr(name string, def float32) (float32, error) {
	a := o.args[name]
	if a == nil {
		return def, nil
	}
	if !a.isConst() || a.size() != 1 {
		return 0, fmt.Errorf("argument %q must be one number: %w", name, errNeedsValue)
	}
	a, err := o.p.plain(a)
	if err != nil {
		return 0, err
	}
	if a.buf.elem == elemI32 {
		return float32(a.buf.i[a.v.off]), nil
	}
	return a.buf.f[a.v.off], nil
}

// floats returns the elements of a constant argument of numbers, nil if it is
// absent.
func (o *opCtx) floats(name string) ([]float32, error) {
	a := o.args[name]
	if a == nil {
		return nil, nil
	}
	if !a.isConst() {
		return nil, fmt.Errorf("argument %q depends on the inputs of the function: %w", name, errNeedsValue)
	}
	a, err := o.p.straight(a)
	if err != nil {
		return nil, fmt.Errorf("argument %q: %w", name, err)
	}
	n := a.size()
	if a.buf.elem == elemF32 {
		return a.buf.f[a.v.off : a.v.off+n], nil
	}
	f := make([]float32, n)
	for i, x := range a.buf.i[a.v.off : a.v.off+n] {
		f[i] = float32(x)
	}
	return f, nil
}

// floatsOf is floats for n numbers.
func (o *opCtx) floatsOf(name string, n int) ([]float32, error) {
	f, err := o.floats(name)
	if err == nil && f != nil && len(f) != n {
		err = fmt.Errorf("argument %q has %d elements, want %d", name, len(f), n)
	}
	return f, err
}

// each emits a step that does n pieces of work, divided among the workers,
// per of them at a time. body must not touch what other pieces write.
func (o *opCtx) each(n, per int, reads, writes []*val, body func(c *call, slot, lo, hi int)) error {
	if n <= 0 {
		return nil
	}
	per = max(per, 1)
	chunks := (n + per - 1) / per
	one := func(c *call, k, slot int) { body(c, slot, k*per, min((k+1)*per, n)) }
	return o.p.emit(bufsOf(reads...), bufsOf(writes...), func(c *call) { c.parallel(chunks, one) })
}

// axis returns a constant axis argument, resolved against a rank.
func (o *opCtx) axis(name string, def, rank int) (int, error) {
	a, err := o.intOr(name, def)
	if err != nil {
		return 0, err
	}
	if a < -rank || a >= rank {
		return 0, fmt.Errorf("argument %q is %d, outside a tensor of rank %d", name, a, rank)
	}
	if a < 0 {
		a += rank
	}
	return a, nil
}

// axes returns a constant list of distinct axes, resolved and sorted; all of
// them if the argument is absent.
func (o *opCtx) axes(name string, rank int) ([]int, error) {
	var out []int
	if o.args[name] == nil {
		for i := range rank {
			out = append(out, i)
		}
		return out, nil
	}
	v, err := o.mustInts(name)
	if err != nil {
		return nil, err
	}
	for _, a := range v {
		if a < -rank || a >= rank {
			return nil, fmt.Errorf("argument %q has %d, outside a tensor of rank %d", name, a, rank)
		}
		if a < 0 {
			a += rank
		}
		out = append(out, a)
	}
	slices.Sort(out)
	if len(slices.Compact(slices.Clone(out))) != len(out) {
		return nil, fmt.Errorf("argument %q names an axis twice: %v", name, v)
	}
	return out, nil
}
