package mil

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

func TestTypeString(t *testing.T) {
	for want, typ := range map[string]Type{
		"tensor<fp16, [1, 64, ?]>":         TensorOf(Float16, 1, 64, Dynamic),
		"int32":                            TensorOf(Int32),
		"state<tensor<fp16, [2, 3]>>":      StateOf(Float16, 2, 3),
		"dict<string, tensor<int32, [?]>>": {Kind: DictKind, Elems: []Type{TensorOf(String), TensorOf(Int32, Dynamic)}},
		"list<tensor<int32, [2]>, ?>":      {Kind: ListKind, Elems: []Type{TensorOf(Int32, 2)}, Length: Dynamic},
	} {
		if got := typ.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestByteSize(t *testing.T) {
	for _, c := range []struct {
		t    Type
		want int64
		ok   bool
	}{
		{TensorOf(UInt6, 2048, 2048, 1, 1), 2048 * 2048 * 6 / 8, true},
		{TensorOf(UInt3, 3), 2, true},
		{TensorOf(UInt1, 9), 2, true},
		{TensorOf(Float16), 2, true},
		{TensorOf(Float16, 0, 5), 0, true},
		{TensorOf(Float16, Dynamic), 0, false},
		{TensorOf(String, 1), 0, false},
		{TensorOf(Float32, 1<<31, 1<<31, 4), 0, false},
	} {
		if got, ok := c.t.ByteSize(); got != c.want || ok != c.ok {
			t.Errorf("%v: %d %v, want %d %v", c.t, got, ok, c.want, c.ok)
		}
	}
}

func val(t Type) *Value { return &Value{Name: "v", Type: t} }

// TestInfer holds the table to shapes worked out by hand from MIL's
// documentation.
func TestInfer(t *testing.T) {
	f := func(shape ...int) *Value { return val(TensorOf(Float16, shape...)) }
	i := func(v ...int) *Value { return Imm(Ints(v...)) }
	flag := func(b bool) *Value { return Imm(Flag(b)) }
	for _, c := range []struct {
		name string
		op   string
		args []Arg
		want string // result types joined by spaces, or part of the error after "!"
	}{
		{"broadcast", "add", []Arg{A("x", f(2, 1, 3)), A("y", f(4, 1))}, "tensor<fp16, [2, 4, 3]>"},
		{"broadcast dynamic", "add", []Arg{A("x", f(Dynamic, 3)), A("y", f(1))}, "tensor<fp16, [?, 3]>"},
		{"no broadcast", "add", []Arg{A("x", f(2)), A("y", f(3))}, "!do not broadcast"},
		{"mixed types", "add", []Arg{A("x", f(2)), A("y", val(TensorOf(Float32, 2)))}, "!one element type"},
		{"compare", "less", []Arg{A("x", f(2)), A("y", f(1))}, "tensor<bool, [2]>"},
		{"missing", "add", []Arg{A("x", f(2))}, `!argument "y" is missing`},
		{"unknown argument", "tanh", []Arg{A("x", f(2)), A("z", f(2))}, `!unknown argument "z"`},
		{"cast", "cast", []Arg{A("x", f(2)), A("dtype", Imm(Str("int16")))}, "tensor<int16, [2]>"},
		{"cast to nothing", "cast", []Arg{A("x", f(2)), A("dtype", Imm(Str("int5")))}, "!int5"},
		{"matmul", "matmul", []Arg{A("x", f(1, 4, 1, 32)), A("y", f(1, 4, 256, 32)), A("transpose_y", flag(true))}, "tensor<fp16, [1, 4, 1, 256]>"},
		{"matmul inner", "matmul", []Arg{A("x", f(2, 3)), A("y", f(4, 5))}, "!inner dimensions"},
		{"conv 1x1", "conv", []Arg{A("x", f(1, 96, 1, 64)), A("weight", f(128, 96, 1, 1))}, "tensor<fp16, [1, 128, 1, 64]>"},
		{"conv custom", "conv", []Arg{A("x", f(1, 4, 10)), A("weight", f(4, 1, 4)), A("groups", Imm(Int(4))), A("pad_type", Imm(Str("custom"))), A("pad", i(3, 0)), A("strides", i(2))}, "tensor<fp16, [1, 4, 5]>"},
		{"conv channels", "conv", []Arg{A("x", f(1, 90, 1, 64)), A("weight", f(128, 96, 1, 1))}, "!does not fit"},
		{"reshape", "reshape", []Arg{A("x", f(2, 6)), A("shape", i(3, -1))}, "tensor<fp16, [3, 4]>"},
		{"reshape keep", "reshape", []Arg{A("x", f(2, 6)), A("shape", i(3, 2, 0))}, "!does not reshape"},
		{"reshape keep from the end", "reshape", []Arg{A("x", f(2, 6)), A("shape", i(0, 2, 0))}, "tensor<fp16, [1, 2, 6]>"},
		{"reshape keep from the end, 1 in front", "reshape", []Arg{A("x", f(2, 50)), A("shape", i(1, 0, -1, 0))}, "tensor<fp16, [1, 1, 2, 50]>"},
		{"reshape bad", "reshape", []Arg{A("x", f(2, 6)), A("shape", i(5, -1))}, "!does not reshape"},
		{"transpose", "transpose", []Arg{A("x", f(2, 3, 4)), A("perm", i(0, 2, 1))}, "tensor<fp16, [2, 4, 3]>"},
		{"transpose twice", "transpose", []Arg{A("x", f(2, 3)), A("perm", i(0, 0))}, "!twice"},
		{"expand_dims", "expand_dims", []Arg{A("x", f(2, 3)), A("axes", i(0, -1))}, "tensor<fp16, [1, 2, 3, 1]>"},
		{"squeeze", "squeeze", []Arg{A("x", f(2, 1, 1)), A("axes", i(-1))}, "tensor<fp16, [2, 1]>"},
		{"squeeze all", "squeeze", []Arg{A("x", f(2, 1, 1))}, "tensor<fp16, [2]>"},
		{"concat", "concat", []Arg{A("values", f(2, 3), f(2, 4)), A("axis", Imm(Int(-1)))}, "tensor<fp16, [2, 7]>"},
		{"split", "split", []Arg{A("x", f(2, 6)), A("axis", Imm(Int(1))), A("split_sizes", i(2, 4))}, "tensor<fp16, [2, 2]> tensor<fp16, [2, 4]>"},
		{"slice with masks", "slice_by_index", []Arg{A("x", f(1, 4, 1, 32)), A("begin", i(0, 0, 0, 16)), A("end", i(1, 4, 1, 32)), A("end_mask", Imm(Bools(true, true, true, true)))}, "tensor<fp16, [1, 4, 1, 16]>"},
		{"slice end only valid with its mask", "slice_by_index", []Arg{A("x", f(8, 2)), A("begin", i(7, 0)), A("end", i(1, 2)), A("end_mask", Imm(Bools(true, false))), A("squeeze_mask", Imm(Bools(false, true)))}, "tensor<fp16, [1]>"},
		{"slice negative stride", "slice_by_index", []Arg{A("x", f(8)), A("begin", i(-1)), A("end", i(0)), A("stride", i(-3))}, "tensor<fp16, [3]>"},
		{"slice dynamic", "slice_by_index", []Arg{A("x", f(8)), A("begin", val(TensorOf(Int32, 1))), A("end", i(1))}, "tensor<fp16, [?]>"},
		{"slice_update dtype", "slice_update", []Arg{A("x", f(8)), A("update", val(TensorOf(Float32, 1))), A("begin", i(0)), A("end", i(1))}, "!one element type"},
		{"slice_update size", "slice_update", []Arg{A("x", f(8)), A("update", f(2)), A("begin", i(0)), A("end", i(1))}, "!the slice"},
		{"gather", "gather", []Arg{A("x", f(1, 512, 32)), A("indices", val(TensorOf(Int16, 64))), A("axis", Imm(Int(1)))}, "tensor<fp16, [1, 64, 32]>"},
		{"gather scalar", "gather", []Arg{A("x", f(5, 3)), A("indices", val(TensorOf(Int32))), A("axis", Imm(Int(0)))}, "tensor<fp16, [3]>"},
		{"lut", "constexpr_lut_to_dense", []Arg{A("indices", ImmWeight(&bytesWeight{t: TensorOf(UInt4, 16, 3, 1, 1)})), A("lut", ImmWeight(&bytesWeight{t: TensorOf(Float16, 2, 1, 1, 1, 16, 1)}))}, "tensor<fp16, [16, 3, 1, 1]>"},
		{"lut groups", "constexpr_lut_to_dense", []Arg{A("indices", ImmWeight(&bytesWeight{t: TensorOf(UInt4, 16, 3)})), A("lut", ImmWeight(&bytesWeight{t: TensorOf(Float16, 3, 1, 16, 1)}))}, "!do not divide"},
		{"lut entries", "constexpr_lut_to_dense", []Arg{A("indices", ImmWeight(&bytesWeight{t: TensorOf(UInt4, 16, 3)})), A("lut", ImmWeight(&bytesWeight{t: TensorOf(Float16, 2, 1, 8, 1)}))}, "!16 for uint4"},
		{"lut not constant", "constexpr_lut_to_dense", []Arg{A("indices", val(TensorOf(UInt4, 16, 3))), A("lut", f(2, 1, 16, 1))}, "!must be a constant"},
		{"topk", "topk", []Arg{A("x", f(2, 9)), A("k", Imm(Int(3)))}, "tensor<fp16, [2, 3]> tensor<int32, [2, 3]>"},
		{"argmax", "reduce_argmax", []Arg{A("x", f(2, 9)), A("axis", Imm(Int(1))), A("output_dtype", Imm(Str("uint16")))}, "tensor<uint16, [2]>"},
		{"reduce keep", "reduce_sum", []Arg{A("x", f(2, 9)), A("axes", i(-1)), A("keep_dims", flag(true))}, "tensor<fp16, [2, 1]>"},
		{"range", "range_1d", []Arg{A("start", Imm(Int(1))), A("end", Imm(Int(8))), A("step", Imm(Int(3)))}, "tensor<int32, [3]>"},
		{"pad", "pad", []Arg{A("x", f(2, 3)), A("pad", i(1, 2))}, "tensor<fp16, [2, 6]>"},
		{"tile", "tile", []Arg{A("x", f(1, 2, 1)), A("reps", i(1, 2, 4))}, "tensor<fp16, [1, 4, 4]>"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, ok := LookupOp(c.op)
			if !ok {
				t.Fatalf("no operation %q", c.op)
			}
			types, err := d.Infer(&Operation{Type: c.op, Args: c.args})
			if msg, bad := strings.CutPrefix(c.want, "!"); bad {
				if err == nil || !strings.Contains(err.Error(), msg) {
					t.Fatalf("error is %v, want one with %q", err, msg)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, x := range types {
				got = append(got, x.String())
			}
			if s := strings.Join(got, " "); s != c.want {
				t.Errorf("got %s, want %s", s, c.want)
			}
		})
	}
}

// TestSliceBounds compares with the elements that a plain loop over Python's
// rules picks.
func TestSliceBounds(t *testing.T) {
	for n := range 5 {
		for b := -6; b <= 6; b++ {
			for e := -6; e <= 6; e++ {
				for _, s := range []int{1, 2, 3, -1, -2} {
					var want []int
					norm := func(i, lo, hi int) int {
						if i < 0 {
							i += n
						}
						if i < lo {
							i = lo
						}
						if i > hi {
							i = hi
						}
						return i
					}
					if s > 0 {
						for i := norm(b, 0, n); i < norm(e, 0, n); i += s {
							want = append(want, i)
						}
					} else {
						for i := norm(b, -1, n-1); i > norm(e, -1, n-1); i += s {
							want = append(want, i)
						}
					}
					first, count := SliceBounds(n, b, e, s, false, false)
					var got []int
					for i := range count {
						got = append(got, first+i*s)
					}
					if !slices.Equal(got, want) {
						t.Fatalf("range(%d)[%d:%d:%d] = %v, want %v", n, b, e, s, got, want)
					}
				}
			}
		}
	}
}

func TestBuilder(t *testing.T) {
	b := NewBuilder("main", CoreML8)
	x := b.Input("x", TensorOf(Float16, 2, 3))
	w := PromiseWeight(TensorOf(Float16, 4, 3), func(w io.Writer) error {
		_, err := w.Write(make([]byte, 24))
		return err
	})
	y := b.Op("linear", A("x", x), A("weight", b.Weight("a.weight", w)))
	z := b.Op("linear", A("x", x), A("weight", b.Weight("again", w)))
	s := b.Op("add", A("x", y), A("y", z))
	one, two := b.Const(Half(1)), b.Const(Half(1))
	if one != two {
		t.Error("equal literals gave two values")
	}
	b.Output("out", b.Op("mul", A("x", s), A("y", one)))
	f, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, op := range f.Body.Ops {
		names = append(names, op.Type+":"+op.Results[0].Name)
	}
	want := "const:a_weight linear:linear linear:linear_1 add:add const:c_fp16_1 mul:out"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("operations are %s, want %s", got, want)
	}
	n := 0
	(&Program{Functions: []*Function{f}}).Weights(func(*Value, Weight) { n++ })
	if n != 1 {
		t.Errorf("program has %d weights, want 1", n)
	}
}

func TestBuilderKeepsTheFirstError(t *testing.T) {
	b := NewBuilder("main", CoreML8)
	x := b.Input("x", TensorOf(Float16, 2))
	y := b.Op("frobnicate", A("x", x))
	y = b.Op("tanh", A("x", y))
	b.Output("y", y)
	if _, err := b.Build(); !errors.Is(err, ErrUnknownOp) {
		t.Errorf("error is %v, want ErrUnknownOp", err)
	}
	b = NewBuilder("main", CoreML8)
	b.Input("state", TensorOf(Float16, 2))
	if b.Err() == nil {
		t.Error("a reserved input name was accepted")
	}
}

func TestVerify(t *testing.T) {
	in := &Value{Name: "x", Type: TensorOf(Float16, 2)}
	tanh := func(name string, x *Value) *Operation {
		op := &Operation{Type: "tanh", Name: name, Args: []Arg{A("x", x)}}
		op.Results = []*Value{{Name: name, Type: TensorOf(Float16, 2), Op: op}}
		return op
	}
	late := tanh("late", in)
	cases := map[string]struct {
		ops  []*Operation
		out  *Value
		want string
	}{
		"used before it is defined": {[]*Operation{tanh("y", late.Results[0]), late}, in, `"late", which is not defined before`},
		"named twice":               {[]*Operation{tanh("y", in), tanh("y", in)}, in, "defined twice"},
		"wrong declared type": {[]*Operation{{Type: "tanh", Args: []Arg{A("x", in)}, Results: []*Value{{Name: "y", Type: TensorOf(Float16, 3)}}}}, in,
			"declared tensor<fp16, [3]>, but the operands give tensor<fp16, [2]>"},
		"unknown operation":  {[]*Operation{{Type: "frobnicate", Name: "f"}}, in, `frobnicate "f": unknown operation`},
		"output not defined": {nil, late.Results[0], "output \"late\" is not defined"},
		"literal too short": {[]*Operation{{Type: "const", Results: []*Value{{Name: "c", Type: TensorOf(Float16, 3), Literal: &Literal{Type: TensorOf(Float16, 3), Floats: []float64{1}}}}}}, in,
			"holds 1 elements"},
		"const without value": {[]*Operation{{Type: "const", Results: []*Value{{Name: "c", Type: TensorOf(Float16, 3)}}}}, in, "no value"},
	}
	for name, c := range cases {
		err := Verify(&Program{Functions: []*Function{{Name: "main", Inputs: []*Value{in}, Body: &Block{Ops: c.ops, Outputs: []*Value{c.out}}}}})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error is %v, want one with %q", name, err, c.want)
		}
		if err != nil && !strings.Contains(err.Error(), `"main"`) {
			t.Errorf("%s: error %v does not name the function", name, err)
		}
	}
}

func TestPromiseWeightChecksItsLength(t *testing.T) {
	w := PromiseWeight(TensorOf(Float16, 2), func(w io.Writer) error {
		_, err := w.Write([]byte{1, 2, 3})
		return err
	})
	if _, err := w.WriteTo(io.Discard); err == nil {
		t.Error("a short weight was accepted")
	}
	b, err := NewWeight(TensorOf(UInt4, 3), []byte{0x21, 0x03})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := WeightBytes(b); err != nil || !bytes.Equal(got, []byte{0x21, 0x03}) {
		t.Errorf("bytes are %v, %v", got, err)
	}
	if _, err := NewWeight(TensorOf(UInt4, 3), []byte{1}); err == nil {
		t.Error("a weight of the wrong size was accepted")
	}
}
