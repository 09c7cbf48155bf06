package ane

import (
	"strings"
	"testing"

	"anemone/mil"
)

func TestPlace(t *testing.T) {
	of := func(d mil.DType, shape ...int) *mil.Value {
		return &mil.Value{Name: "v", Type: mil.TensorOf(d, shape...)}
	}
	half := func(shape ...int) *mil.Value { return of(mil.Float16, shape...) }
	for _, c := range []struct {
		op         string
		result     *mil.Value
		args       []mil.Arg
		embeddings bool
		want       Device
		why        string
	}{
		{"conv", half(1, 16384, 1, 1), []mil.Arg{mil.A("x", half(1, 64, 1, 1)), mil.A("weight", half(16384, 64, 1, 1))}, false, Engine, ""},
		// The output channels of a weight are no dimension of an image.
		{"conv", half(1, 65536, 1, 1), []mil.Arg{mil.A("weight", half(151936, 64, 1, 1))}, false, Engine, ""},
		{"conv", half(1, 65537, 1, 1), nil, false, CPU, "more than 65536"},
		{"cumsum", half(1, 4), nil, false, CPU, "no implementation"},
		{"logical_xor", of(mil.Bool, 4), nil, false, CPU, "no implementation"},
		{"add", of(mil.Int32, 1), nil, false, CPU, "arithmetic on int32"},
		{"concat", of(mil.Int32, 4), nil, false, Engine, ""},
		{"greater", of(mil.Bool, 1), []mil.Arg{mil.A("x", of(mil.Int32, 1))}, false, CPU, "arithmetic on int32"},
		{"greater", of(mil.Bool, 1), []mil.Arg{mil.A("x", half(1))}, false, Engine, ""},
		{"cast", of(mil.Float32, 1), []mil.Arg{mil.A("x", half(1))}, false, CPU, "computes in fp32"},
		{"reshape", half(1, mil.Dynamic), nil, false, CPU, "unknown shape"},
		{"gather", half(1, 1, 128), nil, true, CPU, "table of all tokens"},
		{"mul", half(1, 1, 128), nil, true, CPU, "embeddings"},
		{"const", half(4), nil, false, None, ""},
		{"constexpr_lut_to_dense", half(4), nil, true, None, ""},
	} {
		d, why := Place(&mil.Operation{Type: c.op, Args: c.args, Results: []*mil.Value{c.result}}, c.embeddings)
		if d != c.want || !strings.Contains(why, c.why) || (why == "") != (c.why == "") {
			t.Errorf("%s to %v: on %s, %q; want %s, %q", c.op, c.result.Type, d, why, c.want, c.why)
		}
	}
}

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		shape      []int
		all, older int
	}{
		{nil, 0, 0},
		{[]int{65536, 65536}, 0, 65536},
		{[]int{65537}, 65537, 65537},
		{[]int{100000, 1, 1, 1}, 0, 0},
		{[]int{1, 65537, 1, 1}, 65537, 0},
		{[]int{1, 20000, 16384, 16384}, 0, 0},
		{[]int{1, 1, 16385, 1}, 0, 16385},
	} {
		x := mil.TensorOf(mil.Float16, c.shape...)
		if a, o := TooLarge(x), TooLargeOlder(x); a != c.all || o != c.older {
			t.Errorf("%v: too large %d, for older chips %d; want %d, %d", c.shape, a, o, c.all, c.older)
		}
	}
	slice := &mil.Operation{Type: "slice_by_index", Args: []mil.Arg{mil.A("begin", mil.Imm(mil.Ints(0, 4095, -1)))}}
	if n := SliceOffset(slice); n != 4095 {
		t.Errorf("offset %d, want 4095", n)
	}
	slice.Type = "split"
	if n := SliceOffset(slice); n != 0 {
		t.Errorf("offset %d of no slice", n)
	}
	if n := LUTBytes(3, 300); n != 400 {
		t.Errorf("3 bits of 300 bytes take %d, want as much as 4 bits, 400", n)
	}
	if n := LUTBytes(6, 300); n != 300 {
		t.Errorf("6 bits of 300 bytes take %d", n)
	}
}

func TestIsEmbeddings(t *testing.T) {
	ids := &mil.Value{Name: "input_ids", Type: mil.TensorOf(mil.Int32, 1, 1)}
	cache := &mil.Value{Name: "kv", Type: mil.StateOf(mil.Float16, 1, 32)}
	out := func(name string) *mil.Block { return &mil.Block{Outputs: []*mil.Value{{Name: name}}} }
	for _, c := range []struct {
		f    *mil.Function
		want bool
	}{
		{&mil.Function{Inputs: []*mil.Value{ids}, Body: out("hidden_states")}, true},
		{&mil.Function{Inputs: []*mil.Value{ids}, Body: out("logits1")}, false},
		{&mil.Function{Inputs: []*mil.Value{ids, cache}, Body: out("hidden_states")}, false},
		{&mil.Function{Inputs: []*mil.Value{cache}, Body: out("hidden_states")}, false},
		{&mil.Function{Inputs: []*mil.Value{ids}}, false},
	} {
		if got := IsEmbeddings(c.f); got != c.want {
			t.Errorf("%+v: %v", c.f, got)
		}
	}
}
