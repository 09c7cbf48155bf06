package check

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"anemone/internal/anemll"
	"anemone/internal/testutil"
	"anemone/mil"
)

// TestPlace looks at single operations.
func TestPlace(t *testing.T) {
	half := func(shape ...int) *mil.Value { return &mil.Value{Name: "v", Type: mil.TensorOf(mil.Float16, shape...)} }
	of := func(d mil.DType, shape ...int) *mil.Value {
		return &mil.Value{Name: "v", Type: mil.TensorOf(d, shape...)}
	}
	state := &mil.Value{Name: "s", Type: mil.StateOf(mil.Float16, 4, 2, 64, 48)}
	for _, c := range []struct {
		op         string
		result     *mil.Value
		args       []mil.Arg
		embeddings bool
		device     Device
		why        string // part of the reason, or of the risk
	}{
		{"conv", half(1, 16384, 1, 1), []mil.Arg{mil.A("x", half(1, 64, 1, 1)), mil.A("weight", half(16384, 64, 1, 1))}, false, NeuralEngine, ""},
		// The output channels of a weight are no dimension of an image.
		{"conv", half(1, 65536, 1, 1), []mil.Arg{mil.A("x", half(1, 64, 1, 1)), mil.A("weight", half(65536, 64, 1, 1))}, false, NeuralEngine, ""},
		{"conv", half(1, 151936, 1, 1), []mil.Arg{mil.A("x", half(1, 64, 1, 1)), mil.A("weight", half(151936, 64, 1, 1))}, false, CPU, "more than 65536"},
		{"transpose", half(1, 1, 18992), []mil.Arg{mil.A("x", half(1, 18992, 1))}, false, NeuralEngine, "before A16 and M4 at most 16384"},
		{"transpose", half(1, 1, 65537), []mil.Arg{mil.A("x", half(1, 65537, 1))}, false, CPU, "more than 65536"},
		{"cumsum", half(1, 4), []mil.Arg{mil.A("x", half(1, 4))}, false, CPU, "no implementation"},
		{"mod", half(1, 4), []mil.Arg{mil.A("x", half(1, 4)), mil.A("y", half(1, 4))}, false, CPU, "no implementation"},
		{"logical_and", of(mil.Bool, 4), []mil.Arg{mil.A("x", of(mil.Bool, 4)), mil.A("y", of(mil.Bool, 4))}, false, CPU, "no implementation"},
		{"add", of(mil.Int32, 1), []mil.Arg{mil.A("x", of(mil.Int32, 1)), mil.A("y", of(mil.Int32, 1))}, false, CPU, "arithmetic on int32"},
		{"concat", of(mil.Int32, 4), []mil.Arg{mil.A("values", of(mil.Int32, 1), of(mil.Int32, 3))}, false, NeuralEngine, ""},
		{"greater_equal", of(mil.Bool, 1), []mil.Arg{mil.A("x", of(mil.Int32, 1)), mil.A("y", of(mil.Int32))}, false, CPU, "arithmetic on int32"},
		{"greater_equal", of(mil.Bool, 1), []mil.Arg{mil.A("x", half(1)), mil.A("y", half())}, false, NeuralEngine, ""},
		{"select", half(1, 4), []mil.Arg{mil.A("cond", of(mil.Bool, 1, 4)), mil.A("a", half(1, 4)), mil.A("b", half(1, 4))}, false, NeuralEngine, ""},
		{"cast", of(mil.Int16, 1), []mil.Arg{mil.A("x", of(mil.Int32, 1))}, false, CPU, "arithmetic on int32"},
		{"cast", of(mil.Float32, 1, 4), []mil.Arg{mil.A("x", half(1, 4))}, false, CPU, "computes in fp32"},
		{"gather", half(1, 64, 128), []mil.Arg{mil.A("x", half(512, 128)), mil.A("indices", of(mil.Int16, 1, 64))}, false, NeuralEngine, ""},
		{"gather", half(1, 64, 128), []mil.Arg{mil.A("x", half(151936, 128)), mil.A("indices", of(mil.Int32, 1, 64))}, false, CPU, "more than 65536"},
		{"gather", half(1, 1, 128), []mil.Arg{mil.A("x", half(512, 128)), mil.A("indices", of(mil.Int16, 1, 1))}, true, CPU, "table of all tokens"},
		{"mul", half(1, 1, 128), []mil.Arg{mil.A("x", half(1, 1, 128)), mil.A("y", half())}, true, CPU, "embeddings"},
		{"silu", half(1, 4), []mil.Arg{mil.A("x", half(1, 4))}, false, NeuralEngine, "0.015"},
		{"read_state", half(4, 2, 64, 48), []mil.Arg{mil.A("input", state)}, false, NeuralEngine, "48, is no multiple of 32"},
		{"slice_by_index", half(1, 4), []mil.Arg{mil.A("x", half(1, 8192)), mil.A("begin", mil.Imm(mil.Ints(0, 4096))), mil.A("end", mil.Imm(mil.Ints(1, 4100)))}, false, NeuralEngine, "begins at 4096"},
		{"reshape", half(1, mil.Dynamic), []mil.Arg{mil.A("x", half(1, 4))}, false, CPU, "unknown shape"},
		{"const", half(4, 4), nil, false, NoDevice, ""},
		{"constexpr_lut_to_dense", half(4, 4), nil, false, NoDevice, ""},
		{"constexpr_blockwise_shift_scale", half(4, 4), nil, false, NoDevice, "only look-up tables"},
	} {
		p := place(&mil.Operation{Type: c.op, Args: c.args, Results: []*mil.Value{c.result}}, c.embeddings)
		if p.Device != c.device || !strings.Contains(p.Reason+p.Risk, c.why) || c.why == "" && p.Reason+p.Risk != "" {
			t.Errorf("%s to %v: on %s, %q%q; want %s, %q", c.op, c.result.Type, p.Device, p.Reason, p.Risk, c.device, c.why)
		}
		if (p.Reason != "") != (p.Device == CPU) || p.Type != c.op || p.Name != "v" || p.Output != c.result.Type.String() {
			t.Errorf("%s: %+v", c.op, p)
		}
	}
}

func plan(t *testing.T, dir string) (*PlanReport, *anemll.Package) {
	t.Helper()
	p, err := anemll.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return Plan(p), p
}

// off counts the operations of a function that are not on the Neural Engine.
func off(f *FunctionPlan) map[string]int {
	n := map[string]int{}
	for _, o := range f.Ops {
		if o.Device == CPU {
			n[o.Type]++
		}
	}
	return n
}

func TestPlan(t *testing.T) {
	r, p := plan(t, convert(t, tinyCheckpoint(t), lut(4)))
	if !r.Predicted || len(r.Functions) != 6 {
		t.Fatalf("%d functions", len(r.Functions))
	}
	for i := range r.Functions {
		f := &r.Functions[i]
		var want map[string]int
		switch {
		case f.Part == p.Embeddings.Name:
			want = map[string]int{"cast": 1, "gather": 1}
		case f.Part == p.Head.Name:
			want = map[string]int{}
		default: // the position and its end
			want = map[string]int{"cast": 1, "add": 1}
		}
		if got := off(f); !maps.Equal(got, want) {
			t.Errorf("%s, %s: on the CPU are %v, want %v", f.Part, f.Function, got, want)
		}
		n := 0
		for _, c := range f.Counts {
			n += c
		}
		if n != len(f.Ops) || f.Counts[NoDevice] == 0 {
			t.Errorf("%s, %s: %v of %d operations", f.Part, f.Function, f.Counts, len(f.Ops))
		}
	}
	// 10 operations on the CPU, of about 800.
	if s := r.Share(); s < 0.98 || s >= 1 {
		t.Errorf("share %v", s)
	}
	if s := (&PlanReport{}).Share(); s != 1 {
		t.Errorf("share of nothing: %v", s)
	}
}

// TestPlanPublished counts what is off the Neural Engine in ANEMLL's Qwen3.
// The published plan of its release of Qwen3-0.6B, one chunk of 28 layers,
// has 2333 of 2340 operations on it: the same seven are missing here.
func TestPlanPublished(t *testing.T) {
	r, _ := plan(t, testutil.Shared(t, "peers", "qwen3-fp16-c2"))
	seen := 0
	for i := range r.Functions {
		f := &r.Functions[i]
		if f.Function != "infer" {
			continue
		}
		seen++
		if got := fmt.Sprint(off(f)); got != "map[add:2 cast:2 greater_equal:1 identity:1 select:1]" {
			t.Errorf("%s: %s", f.Part, got)
		}
	}
	if seen != 2 {
		t.Errorf("%d functions infer, want 2", seen)
	}
}
