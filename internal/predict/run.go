package predict

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"anemone/internal/float16"
	"anemone/internal/runner"
	"anemone/mil"
)

// Request is one or several calls of a function.
type Request struct {
	Function string // empty for the default
	// Inputs are arrays by the names of inputs. Those that the function does
	// not have are left out. If an array has one dimension more than its
	// input, of size Repeat, each call gets its own part.
	Inputs map[string]*Array
	// Random fills the inputs that are not in Inputs; nil makes them an
	// error.
	Random *Random
	// States are the states to begin with; nil for zero.
	States map[string]*Array
	// Repeat is the number of calls, one after the other on the same states;
	// 0 is one.
	Repeat int
	// Last keeps the outputs of the last call only. Otherwise the outputs of
	// several calls are stacked: they have a first dimension of size Repeat.
	Last bool
	// Progress, if not nil, is called after each call.
	Progress func(done, total int)
}

// Random makes up inputs: floating-point numbers of the normal distribution,
// rounded to fp16, integers from 0 on, and bools. They depend on the seed, the
// input's name and its shape only.
type Random struct {
	Seed uint64
	// Below is the limit of integers; 0 means 8, which most positions and
	// vocabularies allow.
	Below int
	// Shapes chooses the shapes of inputs that have several. Otherwise it is
	// the default one.
	Shapes map[string][]int
}

// Result is what a request gave.
type Result struct {
	Function string
	Calls    int
	Inputs   []Input
	Outputs  []Output
	States   []Output
	// Extra are given states that the model does not have. They belong to
	// other models of a package: whoever stores the states keeps them.
	Extra []*Array
	// Unused names the given arrays that are no inputs of the function.
	Unused []string
	// First and All are the durations of the first call, which prepares the
	// function, and of all calls.
	First, All time.Duration

	half bool
}

// Input says what an input was made of.
type Input struct {
	Feature
	// Array is what was given; nil if the input was filled.
	Array *Array
	// Given is the shape of one call's share before its dimensions of size 1
	// were changed to what the model wants; nil if they were not.
	Given      []int
	PerCall    bool // each call has its own part of the array
	Random     bool
	Tensor     *runner.Tensor // of all calls, if PerCall, else of each
	Conversion Conversion
}

// Output is an output or state and what it holds.
type Output struct {
	Feature
	Tensor *runner.Tensor // of the last call
	Stats  Stats          // of Tensor
	// All has the outputs of all calls, stacked, if there are several and
	// they are kept.
	All *runner.Tensor
	// Bad is the number of calls after which the output was not finite.
	Bad int
}

// Run serves a request. Nothing of its arrays is needed afterwards, except
// Extra.
func (m *Model) Run(ctx context.Context, r Request) (*Result, error) {
	f, err := m.Function(r.Function)
	if err != nil {
		return nil, err
	}
	res := &Result{Function: f.Name, Calls: max(r.Repeat, 1), half: m.half}
	if res.Inputs, err = m.inputs(f, &r, res.Calls); err != nil {
		return nil, fmt.Errorf("%s: function %q: %w", m.Path, f.Name, err)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Inputs)) {
		if !slices.ContainsFunc(f.Inputs, func(x Feature) bool { return x.Name == name }) {
			res.Unused = append(res.Unused, name)
		}
	}
	st, err := m.NewState()
	if err != nil {
		return nil, err
	}
	if r.States != nil {
		if res.Extra, err = m.restore(st, r.States); err != nil {
			return nil, fmt.Errorf("%s: %w", m.Path, err)
		}
	}
	if err := m.calls(ctx, f, &r, res, st); err != nil {
		return nil, fmt.Errorf("%s: %w", m.Path, err)
	}
	used := map[string]Feature{}
	for _, x := range f.States {
		used[x.Name] = x
	}
	for _, name := range st.Names() {
		t, err := st.Read(name)
		if err != nil {
			return nil, err
		}
		x, ok := used[name]
		if !ok {
			x = Feature{Name: name, DType: t.DType, Shape: t.Shape}
		}
		s := measure(t)
		res.States = append(res.States, Output{Feature: x, Tensor: t, Stats: s, Bad: min(1, s.NaN+s.Inf)})
	}
	return res, nil
}

// calls makes the calls and collects the outputs.
func (m *Model) calls(ctx context.Context, f *Function, r *Request, res *Result, st runner.State) error {
	out := runner.Values{}
	stacks := map[string]*runner.Tensor{}
	bad := map[string]int{}
	for k := range res.Calls {
		in := runner.Values{}
		for i := range res.Inputs {
			x := &res.Inputs[i]
			in[x.Name] = x.call(k, res.Calls)
		}
		start := time.Now()
		if err := m.Predict(ctx, f.Name, in, out, st); err != nil {
			if res.Calls > 1 {
				err = fmt.Errorf("call %d of %d: %w", k+1, res.Calls, err)
			}
			return err
		}
		d := time.Since(start)
		if res.All += d; k == 0 {
			res.First = d
		}
		for name, t := range out {
			if !finite(t) {
				bad[name]++
			}
			if r.Last || res.Calls == 1 {
				continue
			}
			if err := stack(stacks, name, t, k, res.Calls); err != nil {
				return err
			}
		}
		if r.Progress != nil {
			r.Progress(k+1, res.Calls)
		}
	}
	for _, x := range f.Outputs {
		t := out[x.Name]
		if t == nil {
			return fmt.Errorf("function %q gave no output %q", f.Name, x.Name)
		}
		res.Outputs = append(res.Outputs, Output{Feature: x, Tensor: t, Stats: measure(t), All: stacks[x.Name], Bad: bad[x.Name]})
	}
	return nil
}

// stack appends the output of call k to those before it.
func stack(stacks map[string]*runner.Tensor, name string, t *runner.Tensor, k, calls int) error {
	s := stacks[name]
	if s == nil {
		s = &runner.Tensor{DType: t.DType, Shape: append([]int{calls}, t.Shape...)}
		stacks[name] = s
	}
	if !slices.Equal(s.Shape[1:], t.Shape) {
		return fmt.Errorf("output %q has the shape %v in call %d and %v in the first: outputs of several calls can be kept together only if they are alike; keep the last ones only", name, t.Shape, k+1, s.Shape[1:])
	}
	s.Float = append(s.Float, t.Float...)
	s.Int = append(s.Int, t.Int...)
	return nil
}

// call returns the tensor of call k.
func (x *Input) call(k, calls int) *runner.Tensor {
	if !x.PerCall {
		return x.Tensor
	}
	t := &runner.Tensor{DType: x.Tensor.DType, Shape: x.Tensor.Shape[1:]}
	n := x.Tensor.Len() / calls
	if t.DType.IsFloat() {
		t.Float = x.Tensor.Float[k*n : (k+1)*n]
	} else {
		t.Int = x.Tensor.Int[k*n : (k+1)*n]
	}
	return t
}

// inputs makes the tensors of a function's inputs.
func (m *Model) inputs(f *Function, r *Request, calls int) ([]Input, error) {
	var all []Input
	var missing []string
	for _, x := range f.Inputs {
		in := Input{Feature: x}
		a := r.Inputs[x.Name]
		var err error
		switch {
		case a != nil:
			err = m.take(&in, a, calls)
		case x.Optional:
			err = in.fill(x.Shape, func() float64 { return x.Default })
		case r.Random != nil:
			err = in.random(r.Random)
		default:
			missing = append(missing, x.String())
		}
		if err != nil {
			return nil, err
		}
		all = append(all, in)
	}
	if len(missing) > 0 {
		err := fmt.Errorf("input %s is missing", missing[0])
		if len(missing) > 1 {
			err = fmt.Errorf("%d inputs are missing:\n  %s", len(missing), strings.Join(missing, "\n  "))
		}
		if len(r.Inputs) > 0 {
			err = fmt.Errorf("%w\ngiven: %s", err, strings.Join(slices.Sorted(maps.Keys(r.Inputs)), ", "))
		}
		return nil, err
	}
	return all, nil
}

// take makes an input of a given array.
func (m *Model) take(in *Input, a *Array, calls int) error {
	in.Array = a
	shape, ok := in.fit(a.Shape)
	if !ok && calls > 1 && len(a.Shape) > 0 && a.Shape[0] == calls {
		if shape, ok = in.fit(a.Shape[1:]); ok {
			in.PerCall = true
			if !slices.Equal(shape, a.Shape[1:]) {
				in.Given = a.Shape[1:]
			}
			shape = append([]int{calls}, shape...)
		}
	} else if ok && !slices.Equal(shape, a.Shape) {
		in.Given = a.Shape
	}
	if !ok {
		wanted := in.Feature.shapes()
		if calls > 1 {
			wanted += fmt.Sprintf(", or %d times that for as many calls", calls)
		}
		return fmt.Errorf("input %q: array %v has the shape %v, want %s", in.Name, a, a.Shape, wanted)
	}
	t, c, err := m.tensor(a, in.DType, shape)
	if err != nil {
		return fmt.Errorf("input %q: array %v: %w", in.Name, a, err)
	}
	in.Tensor, in.Conversion = t, c
	return nil
}

// tensor reads an array as a tensor of a type; shape is the array's, give or
// take dimensions of size 1.
func (m *Model) tensor(a *Array, d mil.DType, shape []int) (*runner.Tensor, Conversion, error) {
	t := &runner.Tensor{DType: d, Shape: slices.Clone(shape)}
	var c Conversion
	var err error
	if d.IsFloat() {
		t.Float, c, err = a.floats(m.half && d == mil.Float16)
	} else {
		t.Int, err = a.ints(d)
	}
	return t, c, err
}

// fill makes up an input.
func (in *Input) fill(shape []int, value func() float64) error {
	if shape == nil {
		return fmt.Errorf("input %v: no shape is known to fill it with: choose one", in.Feature)
	}
	n, ok := mil.NumElements(shape)
	if !ok || n > 1<<30 {
		return fmt.Errorf("input %v: shape %v is too large to fill", in.Feature, shape)
	}
	in.Tensor = &runner.Tensor{DType: in.DType, Shape: slices.Clone(shape)}
	if in.DType.IsFloat() {
		in.Tensor.Float = make([]float32, n)
		for i := range in.Tensor.Float {
			in.Tensor.Float[i] = float32(value())
		}
		return nil
	}
	in.Tensor.Int = make([]int32, n)
	for i := range in.Tensor.Int {
		in.Tensor.Int[i] = int32(value())
	}
	return nil
}

func (in *Input) random(r *Random) error {
	in.Random = true
	shape := in.Shape
	if s, ok := r.Shapes[in.Name]; ok {
		if !in.accepts(s) {
			return fmt.Errorf("input %q cannot have the shape %v, want %s", in.Name, s, in.Feature.shapes())
		}
		shape = s
	}
	below := r.Below
	if below <= 0 {
		below = 8
	}
	_, hi := limits(in.DType)
	below = int(min(int64(below), hi+1))
	h := fnv.New64a()
	h.Write([]byte(in.Name))
	rng := rand.New(rand.NewPCG(r.Seed, h.Sum64()))
	return in.fill(shape, func() float64 {
		if in.DType.IsFloat() {
			return float64(float16.Round(float32(rng.NormFloat64())))
		}
		return float64(rng.IntN(below))
	})
}

// restore sets the states of a model and returns the arrays that are no
// states of it.
func (m *Model) restore(st runner.State, given map[string]*Array) (extra []*Array, err error) {
	var missing []string
	for _, name := range st.Names() {
		a := given[name]
		if a == nil {
			missing = append(missing, name)
			continue
		}
		now, err := st.Read(name)
		if err != nil {
			return nil, err
		}
		if !slices.Equal(now.Shape, a.Shape) {
			return nil, fmt.Errorf("state %q: array %v has the shape %v, want %v", name, a, a.Shape, now.Shape)
		}
		t, _, err := m.tensor(a, now.DType, a.Shape)
		if err == nil {
			err = st.Write(name, t)
		}
		if err != nil {
			return nil, fmt.Errorf("state %q: array %v: %w", name, a, err)
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("the given states lack %s", strings.Join(missing, ", "))
	}
	if len(st.Names()) == 0 {
		return nil, errors.New("states are given, but the model has none")
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(st.Names(), name) {
			extra = append(extra, given[name])
		}
	}
	return extra, nil
}

// InputValues returns the inputs in the form in which they are stored.
func (r *Result) InputValues() []Value {
	var vs []Value
	for _, x := range r.Inputs {
		vs = append(vs, pack(x.Name, x.Tensor, r.half))
	}
	return vs
}

// OutputValues returns the outputs in the form in which they are stored.
func (r *Result) OutputValues() []Value { return values(r.Outputs, r.half) }

// StateValues returns the states in the form in which they are stored, and
// with them the states that were given but belong to other models. Their file
// must still be open.
func (r *Result) StateValues() ([]Value, error) {
	vs := values(r.States, r.half)
	for _, a := range r.Extra {
		v, err := a.value()
		if err != nil {
			return nil, fmt.Errorf("state %v: %w", a, err)
		}
		vs = append(vs, v)
	}
	return vs, nil
}

func values(outs []Output, half bool) []Value {
	var vs []Value
	for _, o := range outs {
		t := o.Tensor
		if o.All != nil {
			t = o.All
		}
		vs = append(vs, pack(o.Name, t, half))
	}
	return vs
}

// value returns an array as it is, in memory of its own.
func (a *Array) value() (Value, error) {
	v := Value{Name: a.Name, DType: a.DType, Shape: a.Shape}
	if !a.text {
		b, err := a.data()
		v.Data = slices.Clone(b)
		return v, err
	}
	t, err := a.Tensor()
	if err != nil {
		return v, err
	}
	return pack(a.Name, t, true), nil
}

// Stats sums up a tensor. The extremes and the mean are those of the finite
// elements.
type Stats struct {
	N              int
	NaN, Inf       int
	Min, Max, Mean float64 // zero if no element is finite
}

// Finite returns the number of finite elements.
func (s Stats) Finite() int { return s.N - s.NaN - s.Inf }

func finite(t *runner.Tensor) bool {
	for _, x := range t.Float {
		if x-x != 0 {
			return false
		}
	}
	return true
}

func measure(t *runner.Tensor) Stats {
	s := Stats{N: t.Len(), Min: math.Inf(1), Max: math.Inf(-1)}
	sum := 0.0
	one := func(f float64) {
		switch {
		case math.IsNaN(f):
			s.NaN++
		case math.IsInf(f, 0):
			s.Inf++
		default:
			s.Min, s.Max = min(s.Min, f), max(s.Max, f)
			sum += f
		}
	}
	for _, f := range t.Float {
		one(float64(f))
	}
	for _, i := range t.Int {
		one(float64(i))
	}
	if n := s.Finite(); n > 0 {
		s.Mean = sum / float64(n)
	} else {
		s.Min, s.Max = 0, 0
	}
	return s
}
