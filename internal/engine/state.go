package engine

import (
	"errors"
	"fmt"
	"slices"

	"anemone/internal/runner"
	"anemone/mil"
)

type stateSpec struct {
	name  string
	dtype mil.DType
	shape []int
}

func (s stateSpec) equal(t stateSpec) bool {
	return s.name == t.name && s.dtype == t.dtype && slices.Equal(s.shape, t.shape)
}

// stateData is one state. Floating-point states are float32 in memory.
type stateData struct {
	stateSpec
	f []float32
	i []int32
}

// state implements [runner.State].
type state struct {
	names []string
	data  map[string]*stateData
}

// NewState returns the states of all functions, zero.
func (m *Model) NewState() (runner.State, error) {
	s := &state{data: map[string]*stateData{}}
	for _, spec := range m.states {
		n, _ := mil.NumElements(spec.shape)
		d := &stateData{stateSpec: spec}
		if spec.dtype.IsFloat() {
			d.f = make([]float32, n)
		} else {
			d.i = make([]int32, n)
		}
		s.names = append(s.names, spec.name)
		s.data[spec.name] = d
	}
	return s, nil
}

func (s *state) Names() []string { return slices.Clone(s.names) }

func (s *state) find(name string) (*stateData, error) {
	d := s.data[name]
	if d == nil {
		return nil, fmt.Errorf("there is no state %q (there are %q)", name, s.names)
	}
	return d, nil
}

func (s *state) Read(name string) (*runner.Tensor, error) {
	d, err := s.find(name)
	if err != nil {
		return nil, err
	}
	return &runner.Tensor{DType: d.dtype, Shape: slices.Clone(d.shape), Float: slices.Clone(d.f), Int: slices.Clone(d.i)}, nil
}

func (s *state) Write(name string, t *runner.Tensor) error {
	d, err := s.find(name)
	if err != nil {
		return err
	}
	if t == nil {
		return fmt.Errorf("state %q: no tensor to write", name)
	}
	if err := t.Check(); err != nil {
		return fmt.Errorf("state %q: %w", name, err)
	}
	if !slices.Equal(t.Shape, d.shape) || t.DType.IsFloat() != d.dtype.IsFloat() {
		return fmt.Errorf("state %q is a %v of %v, got a %v of %v", name, d.dtype, d.shape, t.DType, t.Shape)
	}
	copy(d.f, t.Float)
	copy(d.i, t.Int)
	return nil
}

// ReadRows implements [runner.RowState].
func (s *state) ReadRows(name string, axis int, t *runner.Tensor) error {
	return s.rows(name, axis, t, false)
}

// WriteRows implements [runner.RowState].
func (s *state) WriteRows(name string, axis int, t *runner.Tensor) error {
	return s.rows(name, axis, t, true)
}

func (s *state) rows(name string, axis int, t *runner.Tensor, write bool) error {
	d, err := s.find(name)
	if err != nil {
		return err
	}
	if t == nil {
		return fmt.Errorf("state %q: no tensor for its rows", name)
	}
	if err := t.Check(); err != nil {
		return fmt.Errorf("state %q: %w", name, err)
	}
	if axis < 0 || axis >= len(d.shape) || len(t.Shape) != len(d.shape) || t.DType.IsFloat() != d.dtype.IsFloat() || t.Shape[axis] > d.shape[axis] {
		return fmt.Errorf("state %q is a %v of %v, got rows along axis %d that are a %v of %v", name, d.dtype, d.shape, axis, t.DType, t.Shape)
	}
	outer, inner := 1, 1
	for i, n := range d.shape {
		switch {
		case i == axis:
			continue
		case n != t.Shape[i]:
			return fmt.Errorf("state %q is a %v of %v, got rows along axis %d of shape %v", name, d.dtype, d.shape, axis, t.Shape)
		case i < axis:
			outer *= n
		default:
			inner *= n
		}
	}
	whole, part := d.shape[axis]*inner, t.Shape[axis]*inner
	copyRows(d.f, t.Float, outer, whole, part, write)
	copyRows(d.i, t.Int, outer, whole, part, write)
	return nil
}

// copyRows copies the first part elements of each run of whole elements from a
// state to rows, or back, the rest of the run being cleared.
func copyRows[T any](state, rows []T, outer, whole, part int, write bool) {
	if len(state) == 0 {
		return
	}
	for o := range outer {
		run, r := state[o*whole:(o+1)*whole], rows[o*part:(o+1)*part]
		if write {
			clear(run[copy(run, r):])
		} else {
			copy(r, run)
		}
	}
}

func (s *state) Reset() {
	for _, d := range s.data {
		clear(d.f)
		clear(d.i)
	}
}

// bindStates finds the states of a call.
func (m *Model) bindStates(c *call, fn *function, st runner.State) error {
	if len(fn.states) == 0 {
		return nil
	}
	s, ok := st.(*state)
	if !ok {
		if st == nil {
			return errors.New("it has states, but none were given")
		}
		return fmt.Errorf("the states were made by another kind of runner (%T)", st)
	}
	if len(c.st) < len(fn.states) {
		c.st = make([]*stateData, len(fn.states))
	}
	for i, v := range fn.states {
		d := s.data[v.Name]
		if d == nil {
			return fmt.Errorf("state %q is missing (given: %q)", v.Name, s.names)
		}
		if !slices.Equal(d.shape, v.Type.Shape) || d.dtype.IsFloat() != v.Type.DType.IsFloat() {
			return fmt.Errorf("state %q is a %v of %v, want %v of %v", v.Name, d.dtype, d.shape, v.Type.DType, v.Type.Shape)
		}
		c.st[i] = d
	}
	return nil
}
