package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"anemone/coreml"
	"anemone/internal/float16"
	"anemone/internal/runner"
	"anemone/mil"
)

// Numerics is the arithmetic of floating-point values.
type Numerics uint8

const (
	// Float32 computes and keeps every floating-point value in float32,
	// whatever type the program declares.
	Float32 Numerics = iota
	// Float16 rounds the result of every floating-point operation, and the
	// states, to fp16: what a device that stores fp16 and sums in float32
	// would give.
	Float16
)

// maxWorkers is more than any machine has cores; each costs memory.
const maxWorkers = 1024

// Options are choices of a caller. The zero value is the usual one.
type Options struct {
	Numerics Numerics
	// Workers is the number of goroutines that one call uses; 0 means
	// GOMAXPROCS. Results do not depend on it.
	Workers int
	// NoFusion runs the program operation by operation, as Float16 always
	// does. Otherwise attention skips the keys that its mask forbids, which
	// gives the same bits if they are finite.
	NoFusion bool
	// MaxBytes limits the memory for the values of one call, and for
	// constants that are computed from others; 0 means 4 GiB. A program
	// that needs more is refused.
	MaxBytes int64
}

func (o *Options) maxBytes() int64 {
	if o.MaxBytes > 0 {
		return o.MaxBytes
	}
	return 4 << 30
}

func (o *Options) tooBig(what string, n int64) error {
	return fmt.Errorf("%s would take %d MiB of memory, more than the limit of %d MiB", what, n>>20, o.maxBytes()>>20)
}

// Model is a loaded model. It implements [runner.Model].
type Model struct {
	opts    Options
	sigs    []runner.Signature
	funcs   []*function
	states  []stateSpec // of all functions, sorted by name
	pool    *pool
	weights weights

	mu     sync.Mutex
	calls  []*call      // idle
	arenas atomic.Int64 // bytes of all calls
	closed atomic.Bool

	copyAll bool // tests: every value is dense and alone in its memory
}

var _ runner.Model = (*Model)(nil)

// function is a function of the program and its plans.
type function struct {
	name   string
	f      *mil.Function
	inputs []int // of f.Inputs, those that are tensors
	states []*mil.Value
	ranges [][]coreml.Range // of the dimensions of flexible inputs
	mu     sync.Mutex       // held while planning
	plans  atomic.Pointer[[]*plan]

	interpreter *interpreter // if there is a shape without a plan
}

// maxPlans is the number of plans that a function keeps, one per shape of
// its inputs.
const maxPlans = 16

// New prepares a model for running. It checks the program; weights are read
// when a function first runs.
func New(m *coreml.Model, o Options) (*Model, error) {
	if m == nil || m.Program == nil || len(m.Program.Functions) == 0 {
		return nil, errors.New("the model has no functions")
	}
	e := &Model{opts: o, weights: newWeights()}
	byName := map[string]stateSpec{}
	for _, f := range m.Program.Functions {
		if f == nil || f.Body == nil {
			return nil, errors.New("the model has a function without a body")
		}
		if err := known(f); err != nil {
			return nil, err
		}
		if err := mil.VerifyFunction(f); err != nil {
			return nil, err
		}
		fn := &function{name: f.Name, f: f}
		fn.plans.Store(new([]*plan))
		for i, in := range f.Inputs {
			if in.Type.Kind != mil.StateKind {
				fn.inputs = append(fn.inputs, i)
				continue
			}
			fn.states = append(fn.states, in)
			s := stateSpec{in.Name, in.Type.DType, in.Type.Shape}
			if n, ok := in.Type.NumElements(); !ok || int64(n) > e.opts.maxBytes() {
				return nil, fmt.Errorf("function %q: state %q of type %v has no fixed size, or is too large", f.Name, in.Name, in.Type)
			}
			if old, ok := byName[in.Name]; ok && !old.equal(s) {
				return nil, fmt.Errorf("state %q is a %v of %v in one function and a %v of %v in another", in.Name, old.dtype, old.shape, s.dtype, s.shape)
			}
			byName[in.Name] = s
		}
		e.funcs = append(e.funcs, fn)
		e.sigs = append(e.sigs, signature(m, f))
		fn.ranges = inputRanges(m, fn)
	}
	for _, s := range byName {
		e.states = append(e.states, s)
	}
	slices.SortFunc(e.states, func(a, b stateSpec) int { return cmp.Compare(a.name, b.name) })
	if k := slices.IndexFunc(e.funcs, func(f *function) bool { return f.name == m.DefaultFunction }); k > 0 {
		f, s := e.funcs[k], e.sigs[k]
		e.funcs = slices.Insert(slices.Delete(e.funcs, k, k+1), 0, f)
		e.sigs = slices.Insert(slices.Delete(e.sigs, k, k+1), 0, s)
	}
	if e.opts.Workers <= 0 {
		e.opts.Workers = runtime.GOMAXPROCS(0)
	}
	e.opts.Workers = min(e.opts.Workers, maxWorkers)
	e.pool = newPool(e.opts.Workers)
	return e, nil
}

// known reports the first operation that the engine cannot run.
func known(f *mil.Function) error {
	var err error
	f.Body.Walk(func(op *mil.Operation) bool {
		if op == nil || op.Type == "const" {
			return true
		}
		if builders[op.Type] == nil {
			err = opError(f, op, fmt.Errorf("%w: the engine does not run it", mil.ErrUnknownOp))
		}
		return err == nil
	})
	return err
}

// signature describes a function, by the model's description where that has
// something to say.
func signature(m *coreml.Model, f *mil.Function) runner.Signature {
	s := runner.Signature{Name: f.Name}
	d := describe(m, f)
	find := func(fs func(*coreml.Function) []coreml.Feature, name string) *coreml.Feature {
		if d != nil {
			for i, x := range fs(d) {
				if x.Name == name {
					return &fs(d)[i]
				}
			}
		}
		return nil
	}
	inputs := func(d *coreml.Function) []coreml.Feature { return d.Inputs }
	outputs := func(d *coreml.Function) []coreml.Feature { return d.Outputs }
	for _, in := range f.Inputs {
		x := runner.Feature{Name: in.Name, DType: in.Type.DType}
		if in.Type.Static() {
			x.Shape = slices.Clone(in.Type.Shape)
		}
		if in.Type.Kind == mil.StateKind {
			s.States = append(s.States, x)
			continue
		}
		if c := find(inputs, in.Name); c != nil {
			x.DType = c.DType
			if c.Shape != nil {
				x.Shape = slices.Clone(c.Shape)
			}
			for _, alt := range c.Shapes {
				x.Shapes = append(x.Shapes, slices.Clone(alt))
			}
		}
		s.Inputs = append(s.Inputs, x)
	}
	for _, out := range f.Body.Outputs {
		x := runner.Feature{Name: out.Name, DType: out.Type.DType}
		if out.Type.Static() {
			x.Shape = slices.Clone(out.Type.Shape)
		}
		if c := find(outputs, out.Name); c != nil {
			x.DType = c.DType
		}
		s.Outputs = append(s.Outputs, x)
	}
	return s
}

// Functions describes the functions; the first is the default.
func (m *Model) Functions() []runner.Signature { return slices.Clone(m.sigs) }

// Function returns the description of a function, nil if there is none.
func (m *Model) Function(name string) *runner.Signature {
	for i := range m.sigs {
		if m.sigs[i].Name == name {
			s := m.sigs[i]
			return &s
		}
	}
	return nil
}

// Close stops the goroutines of the model. Calls that run finish.
func (m *Model) Close() error {
	m.closed.Store(true)
	m.pool.close()
	return nil
}

// call is what one run of a plan needs. Calls are kept and used again, so
// that a run allocates nothing.
type call struct {
	m       *Model
	f       []float32
	i       []int32
	scratch [][]float32 // per slot
	in      []*runner.Tensor
	st      []*stateData
	ctx     context.Context // of the call; nil is one that never ends
	job     job
	seed    uint64 // of the random numbers of the step at hand
	mu      sync.Mutex
	err     error
}

func (m *Model) newCall() *call {
	c := &call{m: m, scratch: make([][]float32, m.pool.workers)}
	c.job.finish = make(chan struct{}, 1)
	return c
}

// grow makes room for arenas of f and i elements and scratch memory.
func (c *call) grow(f, i, scratch int) {
	if len(c.f) < f {
		c.m.arenas.Add(4 * int64(f-len(c.f)))
		c.f = make([]float32, f)
	}
	if len(c.i) < i {
		c.m.arenas.Add(4 * int64(i-len(c.i)))
		c.i = make([]int32, i)
	}
	for k, s := range c.scratch {
		if len(s) < scratch {
			c.m.arenas.Add(4 * int64(scratch-len(s)))
			c.scratch[k] = make([]float32, scratch)
		}
	}
}

// drop takes the memory of a call off the books.
func (c *call) drop() {
	n := len(c.f) + len(c.i)
	for _, s := range c.scratch {
		n += len(s)
	}
	c.m.arenas.Add(-4 * int64(n))
}

// fail records the first error of the call. Chunks may fail at once.
func (c *call) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
}

// done reports whether the call is to end. It then fails.
func (c *call) done() bool {
	if c.ctx == nil {
		return false
	}
	err := c.ctx.Err()
	if err != nil {
		c.fail(err)
	}
	return err != nil
}

// parallel calls body for every chunk, unless the call ends before.
func (c *call) parallel(chunks int, body func(c *call, chunk, slot int)) {
	c.m.pool.run(c, chunks, body)
}

func (m *Model) takeCall() *call {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k := len(m.calls) - 1; k >= 0 {
		c := m.calls[k]
		m.calls = m.calls[:k]
		return c
	}
	return m.newCall()
}

func (m *Model) giveBack(c *call) {
	clear(c.in)
	clear(c.st)
	c.err, c.ctx = nil, nil
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.calls) >= 4 {
		c.drop()
		return
	}
	m.calls = append(m.calls, c)
}

// Predict runs a function; see [runner.Model]. Output tensors must not share
// memory with inputs.
func (m *Model) Predict(ctx context.Context, name string, in, out runner.Values, st runner.State) error {
	if m.closed.Load() {
		return errors.New("the model is closed")
	}
	var fn *function
	var sig *runner.Signature
	for i, f := range m.funcs {
		if f.name == name {
			fn, sig = f, &m.sigs[i]
		}
	}
	if fn == nil {
		return fmt.Errorf("the model has no function %q (it has %s)", name, m.functionNames())
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if out == nil {
		return errors.New("no place for the outputs: out is nil")
	}
	c := m.takeCall()
	defer m.giveBack(c)
	c.ctx = ctx
	if err := fn.bind(c, sig, in); err != nil {
		return fmt.Errorf("function %q: %w", name, err)
	}
	if err := m.bindStates(c, fn, st); err != nil {
		return fmt.Errorf("function %q: %w", name, err)
	}
	p, err := fn.plan(ctx, m, c, sig)
	if err != nil {
		return err
	}
	if p.dynamic != nil {
		return m.interpret(ctx, fn, p, c, sig, out)
	}
	c.grow(p.f, p.i, p.scratch)
	for k := 0; k < len(p.steps); {
		s := &p.steps[k]
		if err := ctx.Err(); err != nil {
			return err
		}
		if s.jump != nil {
			k = s.jump(c)
			continue
		}
		k++
		s.run(c)
		if c.err != nil {
			return opError(fn.f, s.op, c.err)
		}
	}
	for k := range p.outs {
		p.outs[k].store(c, out)
	}
	return nil
}

func (m *Model) functionNames() string {
	s := ""
	for i, f := range m.funcs {
		if i > 0 {
			s += ", "
		}
		s += f.name
	}
	return s
}

// bind finds the inputs of a call and checks them.
func (fn *function) bind(c *call, sig *runner.Signature, in runner.Values) error {
	if len(c.in) < len(fn.f.Inputs) {
		c.in = make([]*runner.Tensor, len(fn.f.Inputs))
	}
	for j, k := range fn.inputs {
		v := fn.f.Inputs[k]
		t := in[v.Name]
		if t == nil {
			return fmt.Errorf("input %q is missing", v.Name)
		}
		if t.DType.IsFloat() != v.Type.DType.IsFloat() {
			return fmt.Errorf("input %q is %v, want %v", v.Name, t.DType, v.Type.DType)
		}
		if err := t.Check(); err != nil {
			return fmt.Errorf("input %q: %w", v.Name, err)
		}
		if !accepts(v.Type.Shape, t.Shape) || !allows(&sig.Inputs[j], t.Shape) {
			return fmt.Errorf("input %q has the shape %v, want %s", v.Name, t.Shape, wanted(v, &sig.Inputs[j]))
		}
		if err := holds(v.Type.DType, t.Int); err != nil {
			return fmt.Errorf("input %q: %w", v.Name, err)
		}
		if err := outside(fn.ranges[j], t.Shape); err != nil {
			return fmt.Errorf("input %q has the shape %v: %w", v.Name, t.Shape, err)
		}
		c.in[k] = t
	}
	return nil
}

// holds checks that integers are in the range of the type that they are
// declared to have.
func holds(d mil.DType, x []int32) error {
	if d == mil.Int32 || d == mil.UInt32 || d == mil.Int64 || d == mil.UInt64 {
		return nil
	}
	for _, v := range x {
		if wrap(d, v) != v {
			return fmt.Errorf("it holds %d, which is not a %v", v, d)
		}
	}
	return nil
}

// describe returns the description of a function, nil if there is none.
func describe(m *coreml.Model, f *mil.Function) *coreml.Function {
	d := m.Function(f.Name)
	if d == nil && len(m.Program.Functions) == 1 && len(m.Functions) == 1 {
		d = &m.Functions[0]
	}
	return d
}

// inputRanges returns the bounds that the model's description sets to the
// dimensions of the function's inputs; nil for those without.
func inputRanges(m *coreml.Model, fn *function) [][]coreml.Range {
	out := make([][]coreml.Range, len(fn.inputs))
	if d := describe(m, fn.f); d != nil {
		for j, k := range fn.inputs {
			if x := d.Input(fn.f.Inputs[k].Name); x != nil {
				out[j] = slices.Clone(x.Ranges)
			}
		}
	}
	return out
}

// outside says which dimension of a shape leaves the bounds set to it.
func outside(bounds []coreml.Range, shape []int) error {
	if len(bounds) != len(shape) {
		return nil
	}
	for i, r := range bounds {
		if d := shape[i]; d < r.Min || r.Max >= 0 && d > r.Max {
			most := "any number"
			if r.Max >= 0 {
				most = fmt.Sprint(r.Max)
			}
			return fmt.Errorf("dimension %d is %d, want %d to %s", i, d, r.Min, most)
		}
	}
	return nil
}

func accepts(declared, shape []int) bool {
	if len(declared) != len(shape) {
		return false
	}
	for i, d := range declared {
		if d >= 0 && d != shape[i] {
			return false
		}
	}
	return true
}

// allows reports whether a feature with enumerated shapes lists this one.
func allows(f *runner.Feature, shape []int) bool {
	for _, s := range f.Shapes {
		if slices.Equal(s, shape) {
			return true
		}
	}
	return len(f.Shapes) == 0
}

func wanted(v *mil.Value, f *runner.Feature) string {
	if len(f.Shapes) > 0 {
		return fmt.Sprintf("one of %v", f.Shapes)
	}
	return v.Type.String()
}

// plan returns the plan for the inputs that c holds.
func (fn *function) plan(ctx context.Context, m *Model, c *call, sig *runner.Signature) (*plan, error) {
	find := func() *plan {
		for _, p := range *fn.plans.Load() {
			same := true
			for _, k := range fn.inputs {
				same = same && slices.Equal(p.shapes[k], c.in[k].Shape)
			}
			if same {
				return p
			}
		}
		return nil
	}
	if p := find(); p != nil {
		return p, nil
	}
	fn.mu.Lock()
	defer fn.mu.Unlock()
	if p := find(); p != nil {
		return p, nil
	}
	shapes := make([][]int, len(fn.f.Inputs))
	for k, in := range fn.f.Inputs {
		shapes[k] = slices.Clone(in.Type.Shape)
	}
	for _, k := range fn.inputs {
		shapes[k] = slices.Clone(c.in[k].Shape)
	}
	p, err := fn.planFor(ctx, m, sig, shapes)
	if err != nil {
		return nil, err
	}
	old := *fn.plans.Load()
	if len(old) >= maxPlans {
		old = old[1:]
	}
	plans := append(slices.Clone(old), p)
	fn.plans.Store(&plans)
	return p, nil
}

// store copies an output to where the caller wants it.
func (o *output) store(c *call, out runner.Values) {
	n := o.val.size()
	off := o.val.v.off
	t := out[o.name]
	if t == nil || t.DType.IsFloat() != o.dtype.IsFloat() || t.Len() != n {
		t = &runner.Tensor{}
		if o.dtype.IsFloat() {
			t.Float = make([]float32, n)
		} else {
			t.Int = make([]int32, n)
		}
		out[o.name] = t
	}
	t.DType = o.dtype
	if !slices.Equal(t.Shape, o.shape) {
		t.Shape = slices.Clone(o.shape)
	}
	if o.val.buf.elem == elemI32 {
		copy(t.Int, c.i32(o.val.buf)[off:off+n])
		return
	}
	copy(t.Float, c.f32(o.val.buf)[off:off+n])
}

func roundHalf(x []float32) { float16.RoundAll(x) }
