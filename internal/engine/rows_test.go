package engine

import (
	"slices"
	"testing"

	"anemone/internal/runner"
	"anemone/mil"
)

// Rows of a state along each axis, by hand.
func TestStateRows(t *testing.T) {
	all := []float32{0, 1, 10, 11, 20, 21, 100, 101, 110, 111, 120, 121}
	used := func() runner.RowState {
		return &state{names: []string{"kv"}, data: map[string]*stateData{"kv": {stateSpec{"kv", mil.Float16, []int{2, 3, 2}}, slices.Clone(all), nil}}}
	}
	for _, c := range []struct {
		axis  int
		shape []int
		read  []float32
		wrote []float32 // with all values of read negated
	}{
		{0, []int{1, 3, 2}, all[:6], []float32{0, -1, -10, -11, -20, -21, 0, 0, 0, 0, 0, 0}},
		{1, []int{2, 1, 2}, []float32{0, 1, 100, 101}, []float32{0, -1, 0, 0, 0, 0, -100, -101, 0, 0, 0, 0}},
		{1, []int{2, 2, 2}, []float32{0, 1, 10, 11, 100, 101, 110, 111}, []float32{0, -1, -10, -11, 0, 0, -100, -101, -110, -111, 0, 0}},
		{2, []int{2, 3, 1}, []float32{0, 10, 20, 100, 110, 120}, []float32{0, 0, -10, 0, -20, 0, -100, 0, -110, 0, -120, 0}},
		{1, []int{2, 0, 2}, []float32{}, make([]float32, 12)},
		{1, []int{2, 3, 2}, all, []float32{0, -1, -10, -11, -20, -21, -100, -101, -110, -111, -120, -121}},
	} {
		s := used()
		rows := runner.Floats(mil.Float16, make([]float32, len(c.read)), c.shape...)
		if err := s.ReadRows("kv", c.axis, rows); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(rows.Float, c.read) {
			t.Errorf("axis %d, %v: read %v, want %v", c.axis, c.shape, rows.Float, c.read)
		}
		for i := range rows.Float {
			rows.Float[i] *= -1
		}
		if err := s.WriteRows("kv", c.axis, rows); err != nil {
			t.Fatal(err)
		}
		if got, _ := s.Read("kv"); !slices.Equal(got.Float, c.wrote) {
			t.Errorf("axis %d, %v: wrote %v, want %v", c.axis, c.shape, got.Float, c.wrote)
		}
	}
	for what, c := range map[string]struct {
		name string
		axis int
		t    *runner.Tensor
	}{
		"another name":    {"v", 1, runner.Floats(mil.Float16, make([]float32, 4), 2, 1, 2)},
		"no tensor":       {"kv", 1, nil},
		"no such axis":    {"kv", 3, runner.Floats(mil.Float16, make([]float32, 4), 2, 1, 2)},
		"a negative axis": {"kv", -1, runner.Floats(mil.Float16, make([]float32, 4), 2, 1, 2)},
		"another rank":    {"kv", 1, runner.Floats(mil.Float16, make([]float32, 4), 2, 2)},
		"another shape":   {"kv", 0, runner.Floats(mil.Float16, make([]float32, 4), 2, 1, 2)},
		"too many rows":   {"kv", 1, runner.Floats(mil.Float16, make([]float32, 16), 2, 4, 2)},
		"integers":        {"kv", 1, runner.Ints(make([]int32, 4), 2, 1, 2)},
		"too little data": {"kv", 1, runner.Floats(mil.Float16, make([]float32, 3), 2, 1, 2)},
		"negative rows":   {"kv", 1, runner.Floats(mil.Float16, nil, 2, -1, 2)},
	} {
		s := used()
		if s.ReadRows(c.name, c.axis, c.t) == nil || s.WriteRows(c.name, c.axis, c.t) == nil {
			t.Errorf("%s: no error", what)
		}
		if got, _ := s.Read("kv"); !slices.Equal(got.Float, all) {
			t.Errorf("%s: it changed the state", what)
		}
	}
}
