package mil

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestLookupOpIn(t *testing.T) {
	for _, c := range []struct {
		name string
		in   Opset
		want string // since, or part of the error after "!"
	}{
		{"gather", CoreML5, "CoreML5"},
		{"gather", CoreML6, "CoreML6"},
		{"gather", CoreML7, "CoreML7"},
		{"gather", CoreML8, "CoreML7"},
		{"gather", "CoreML9", "CoreML7"},
		{"gather", "", "CoreML7"},
		{"slice_update", CoreML8, "CoreML8"},
		{"slice_update", CoreML7, "!slice_update needs CoreML8 (iOS 18), the function is in CoreML7 (iOS 17)"},
		{"resize", CoreML5, "!resize needs CoreML7 (iOS 17), the function is in CoreML5 (iOS 15)"},
		{"constexpr_lut_to_dense", CoreML5, "!constexpr_lut_to_dense needs CoreML6 (iOS 16)"},
		{"constexpr_lut_to_dense", CoreML7, "CoreML6"},
		{"frobnicate", CoreML8, `!unknown operation "frobnicate"`},
	} {
		d, err := LookupOpIn(c.name, c.in)
		if msg, bad := strings.CutPrefix(c.want, "!"); bad {
			if err == nil || !strings.Contains(err.Error(), msg) {
				t.Errorf("%s in %q: error is %v, want one with %q", c.name, c.in, err, msg)
			}
			if later := c.name != "frobnicate"; errors.Is(err, ErrLaterOp) != later || errors.Is(err, ErrUnknownOp) == later {
				t.Errorf("%s in %q: %v is the wrong error", c.name, c.in, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s in %q: %v", c.name, c.in, err)
		} else if string(d.Since) != c.want {
			t.Errorf("%s in %q: form since %s, want %s", c.name, c.in, d.Since, c.want)
		}
	}
	newest, _ := LookupOp("topk")
	if p := newest.Param("sort"); p.Since != CoreML6 {
		t.Errorf("sort came with %s", p.Since)
	}
	if p := newest.Param("axis"); p.Since != CoreML5 {
		t.Errorf("axis came with %s", p.Since)
	}
	n := 0
	for d := newest; d != nil; d = d.Older() {
		n++
	}
	if n != 3 {
		t.Errorf("topk has %d forms, want 3", n)
	}
}

func TestOpsetBefore(t *testing.T) {
	if !CoreML5.Before(CoreML8) || CoreML8.Before(CoreML8) || CoreML8.Before("CoreML5") || !CoreML8.Before("CoreML10") ||
		Opset("").Before(CoreML8) || Opset("CoreMLx").Before(CoreML8) || CoreML5.Before("ios18") {
		t.Error("order of operation sets")
	}
	if s := CoreML7.System() + Opset("CoreML9").System() + Opset("x").System(); s != "iOS 17iOS 26" {
		t.Error(s)
	}
}

func TestClassString(t *testing.T) {
	for want, c := range map[string]Class{
		"fp16 or fp32 tensor":        Floats,
		"fp16, fp32 or int32 tensor": num,
		"bool tensor":                Booleans,
		"tensor":                     Any,
		"tensor, list or dictionary": Any | Lists | Dicts,
		"integer tensor":             Integers,
		"tensor of numbers":          Numbers,
		"string":                     Strings,
		"state":                      States,
		"uint1, uint2, uint3, uint4, uint6 or uint8 tensor": narrow,
	} {
		if got := c.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if Floats.Contains(StateOf(Float16, 1)) || Any.Contains(Type{Kind: ListKind}) || !Lists.Contains(Type{Kind: ListKind}) || Any.Contains(Type{}) {
		t.Error("kinds are mixed up")
	}
}

// TestInferForms holds operations to their form of each operation set, to
// hostile operands, and to what coremltools does not check.
func TestInferForms(t *testing.T) {
	of := func(d DType, shape ...int) *Value { return val(TensorOf(d, shape...)) }
	f := func(shape ...int) *Value { return of(Float16, shape...) }
	n := func(v int) *Value { return Imm(Int(v)) }
	i := func(v ...int) *Value { return Imm(Ints(v...)) }
	flag := func(b bool) *Value { return Imm(Flag(b)) }
	s := func(v string) *Value { return Imm(Str(v)) }
	const big = math.MaxInt
	for _, c := range []struct {
		name string
		in   Opset
		op   string
		args []Arg
		want string // result types joined by spaces, or part of the error after "!"
	}{
		{"later argument", CoreML5, "gather", []Arg{A("x", f(2, 3)), A("indices", of(Int32, 2)), A("batch_dims", n(0))}, "!needs CoreML6 (iOS 16)"},
		{"later argument of a later form", CoreML6, "topk", []Arg{A("x", f(2)), A("output_indices_dtype", s("int32"))}, "!needs CoreML7 (iOS 17)"},
		{"earlier argument", CoreML8, "constexpr_lut_to_dense", []Arg{A("indices", ImmWeight(&bytesWeight{t: TensorOf(UInt4, 2)})), A("lut", ImmWeight(&bytesWeight{t: TensorOf(Float16, 1, 16, 1)})), A("shape", i(2))},
			`!"shape" is no longer there since CoreML8 (iOS 18)`},
		{"later element type", CoreML6, "cast", []Arg{A("x", f(2)), A("dtype", s("int8"))}, `!want "fp16", "fp32", "int32" or "bool"`},
		{"0 in its place", CoreML6, "reshape", []Arg{A("x", f(2, 6)), A("shape", i(0, -1))}, "tensor<fp16, [2, 6]>"},
		{"0 from the end", CoreML7, "reshape", []Arg{A("x", f(2, 3, 4)), A("shape", i(-1, 0))}, "tensor<fp16, [6, 4]>"},
		{"0 in its place of three", CoreML6, "reshape", []Arg{A("x", f(2, 3, 4)), A("shape", i(-1, 0))}, "!not the rank"},

		{"product too large", CoreML8, "add", []Arg{A("x", f(1<<40, 1)), A("y", f(1, 1<<40))}, "!too large"},
		{"sum too large", CoreML8, "concat", []Arg{A("values", f(big), f(big)), A("axis", n(0))}, "!too large"},
		{"tile too large", CoreML8, "tile", []Arg{A("x", f(4)), A("reps", i(big))}, "!too large"},
		{"pad too large", CoreML8, "pad", []Arg{A("x", f(4)), A("pad", i(0, big))}, "!too large"},
		{"flatten too large", CoreML8, "flatten2d", []Arg{A("x", f(1<<40, 1<<40, 2)), A("axis", n(2))}, "!too large"},
		{"blocks too large", CoreML8, "space_to_depth", []Arg{A("x", f(1, 1, 4, 4)), A("block_size", n(1<<39))}, "!blocks of"},
		{"batches too large", CoreML8, "space_to_batch", []Arg{A("x", f(1<<40, 1, 4, 4)), A("block_shape", i(1<<30, 1<<30)), A("paddings", Imm(&Literal{Type: TensorOf(Int32, 2, 2), Ints: make([]int64, 4)}))}, "!too large"},
		{"pool stride too large", CoreML8, "max_pool", []Arg{A("x", f(1, 1, 4)), A("kernel_sizes", i(2)), A("strides", i(big)), A("pad_type", s("valid"))}, "!has the value"},
		{"conv of groups too large", CoreML8, "conv", []Arg{A("x", f(1, 4, 4)), A("weight", f(4, 1<<40, 1)), A("groups", n(1<<30))}, "!too large"},
		{"dilation too large", CoreML8, "conv", []Arg{A("x", f(1, 4, 1<<39)), A("weight", Imm(&Literal{Type: TensorOf(Float16, 4, 4, 3), Floats: make([]float64, 48)})), A("dilations", i(1<<40))}, "!too large"},
		{"conv_transpose too large", CoreML8, "conv_transpose", []Arg{A("x", f(1, 4, 1<<39)), A("weight", f(4, 4, 3)), A("strides", i(1<<39))}, "!sizes along"},
		{"hidden state too large", CoreML8, "gru", []Arg{A("x", f(1, 1, 1)), A("initial_h", f(1, 1)), A("weight_ih", Imm(&Literal{Type: TensorOf(Float16, 3, 1), Floats: make([]float64, 3)})),
			A("weight_hh", ImmWeight(&bytesWeight{t: TensorOf(Float16, 3, big)}))}, "!too large"},
		{"packed indices too large", CoreML6, "constexpr_lut_to_dense", []Arg{A("indices", ImmWeight(&bytesWeight{t: TensorOf(UInt8, 20)})), A("lut", Imm(&Literal{Type: TensorOf(Float16, 16), Floats: make([]float64, 16)})),
			A("shape", Imm(&Literal{Type: TensorOf(UInt32, 2), Ints: []int64{math.MaxUint32, math.MaxUint32}}))}, "!want constants"},
		{"range too long", CoreML8, "range_1d", []Arg{A("start", Imm(Float(0))), A("end", Imm(Float(1e30))), A("step", Imm(Float(1e-30)))}, "!too long"},
		{"range without step", CoreML8, "range_1d", []Arg{A("start", n(0)), A("end", n(1)), A("step", n(0))}, "!step is 0"},
		{"range of nothing", CoreML8, "range_1d", []Arg{A("start", n(5)), A("end", n(1)), A("step", n(2))}, "tensor<int32, [0]>"},
		{"scale too large", CoreML8, "upsample_bilinear", []Arg{A("x", f(1, 4, 4)), A("scale_factor_height", Imm(Float(1e30)))}, "!for a dimension of 4"},
		{"scale that rounds both ways", CoreML8, "upsample_bilinear", []Arg{A("x", f(1, 10, 4)), A("scale_factor_height", Imm(Float(0.7))), A("scale_factor_width", Imm(Float(1)))}, "tensor<fp16, [1, ?, 4]>"},
		{"rank too large", CoreML8, "reshape", []Arg{A("x", f(1)), A("shape", Imm(Ints(slices.Repeat([]int{1}, 40)...)))}, "!more than 32"},
		{"operand of a rank too large", CoreML8, "tanh", []Arg{A("x", f(slices.Repeat([]int{1}, 40)...))}, "!more than 32"},
		{"split into too many", CoreML8, "split", []Arg{A("x", f(1<<20)), A("axis", n(0)), A("num_splits", n(1<<20))}, "!does not split"},
		{"split sizes too large", CoreML8, "split", []Arg{A("x", f(Dynamic)), A("axis", n(0)), A("split_sizes", i(big, big))}, "!too large"},
		{"split sizes", CoreML8, "split", []Arg{A("x", f(7)), A("axis", n(0)), A("split_sizes", i(3, 3))}, "!do not sum"},
		{"split of an open axis", CoreML8, "split", []Arg{A("x", f(Dynamic)), A("axis", n(0)), A("num_splits", n(2))}, "tensor<fp16, [?]> tensor<fp16, [?]>"},
		{"split of neither", CoreML8, "split", []Arg{A("x", f(8)), A("axis", n(0))}, "!neither"},
		{"stride of the smallest integer", CoreML8, "slice_by_index", []Arg{A("x", f(8)), A("begin", i(7)), A("end", i(0)), A("stride", Imm(&Literal{Type: TensorOf(Int32, 1), Ints: []int64{math.MinInt64}}))}, "tensor<fp16, [1]>"},
		{"stride of the largest integer", CoreML8, "slice_by_index", []Arg{A("x", f(8)), A("begin", i(3)), A("end", i(8)), A("stride", i(big))}, "tensor<fp16, [1]>"},
		{"stride 0", CoreML8, "slice_by_index", []Arg{A("x", f(8)), A("begin", i(3)), A("end", i(8)), A("stride", i(0))}, "!stride is 0"},
		{"mask too short", CoreML8, "slice_by_index", []Arg{A("x", f(8, 2)), A("begin", i(3, 0)), A("end", i(8, 1)), A("end_mask", Imm(Bools(true)))}, "!2 constant bools"},
		{"scalar of an open axis", CoreML8, "slice_by_index", []Arg{A("x", f(Dynamic)), A("begin", i(-1)), A("end", i(0)), A("end_mask", Imm(Bools(true)))}, "tensor<fp16, [1]>"},
		{"begin behind the end", CoreML8, "slice_by_size", []Arg{A("x", f(8)), A("begin", i(9)), A("size", i(-1))}, "!outside"},
		{"size behind the end", CoreML8, "slice_by_size", []Arg{A("x", f(8)), A("begin", i(7)), A("size", i(2))}, "!outside"},
		{"gather batch", CoreML8, "gather", []Arg{A("x", f(2, 3)), A("indices", of(Int32, 4, 2)), A("axis", n(1)), A("batch_dims", n(1))}, "!do not share"},
		{"gather_nd batch", CoreML8, "gather_nd", []Arg{A("x", f(2, 3)), A("indices", of(Int32, 4, 1)), A("batch_dims", n(1))}, "!do not fit"},
		{"gather_nd open depth", CoreML8, "gather_nd", []Arg{A("x", f(2, 3)), A("indices", of(Int32, 4, Dynamic))}, "!do not fit"},
		{"index outside", CoreML8, "gather_nd", []Arg{A("x", f(2, 3)), A("indices", Imm(&Literal{Type: TensorOf(Int32, 1, 2), Ints: []int64{1, 3}})), A("validate_indices", flag(true))}, "!index 3 is outside an axis of 3"},
		{"index not validated", CoreML8, "gather_nd", []Arg{A("x", f(2, 3)), A("indices", Imm(&Literal{Type: TensorOf(Int32, 1, 2), Ints: []int64{1, 3}}))}, "tensor<fp16, [1]>"},
		{"einsum with spaces", CoreML8, "einsum", []Arg{A("values", f(1, 2, 3), f(3, 2, 4)), A("equation", s("chw, whr -> chr"))}, "!equation"},
		{"einsum letters", CoreML8, "einsum", []Arg{A("values", f(1, 2, 3), f(3, 2, 4)), A("equation", s("éhw,whr->éhr"))}, "tensor<fp16, [1, 2, 4]>"},
		{"einsum of three", CoreML8, "einsum", []Arg{A("values", f(1, 2, 3), f(3, 2, 4), f(1)), A("equation", s("chw,whr->chr"))}, "!3 values"},
		{"missing axis", CoreML8, "dequantize", []Arg{A("input", of(Int8, 2, 3)), A("scale", Imm(&Literal{Type: TensorOf(Float16, 3), Floats: []float64{1, 2, 3}}))}, "!missing"},
		{"lut vectors", CoreML8, "constexpr_lut_to_dense", []Arg{A("indices", ImmWeight(&bytesWeight{t: TensorOf(UInt1, 4, 6)})), A("lut", ImmWeight(&bytesWeight{t: TensorOf(Float16, 1, 1, 2, 1<<60)})), A("vector_axis", n(1))}, "!too large"},
		{"alpha differs", CoreML8, "prelu", []Arg{A("x", f(1, 2, 3)), A("alpha", Imm(&Literal{Type: TensorOf(Float16, 2), Floats: []float64{1, 2}}))}, "!alpha differs"},
		{"one_hot from the end", CoreML8, "one_hot", []Arg{A("indices", of(Int32, 2, 3)), A("one_hot_vector_size", n(5)), A("axis", n(-2))}, "tensor<int32, [2, 5, 3]>"},
		{"non_zero of a constant", CoreML8, "non_zero", []Arg{A("x", Imm(Bools(true, false, true)))}, "tensor<int32, [2, 1]>"},
		{"make_list of states", CoreML8, "make_list", []Arg{A("elem_shape", n(-2))}, "!constant dimensions"},
		{"list of two types", CoreML8, "list_read", []Arg{A("ls", &Value{Name: "l", Type: Type{Kind: ListKind}}), A("index", n(0))}, "!list of tensors"},
		{"cond without blocks", CoreML8, "cond", []Arg{A("pred", val(TensorOf(Bool)))}, "!has 0 blocks"},
		{"axis twice", CoreML8, "reduce_sum", []Arg{A("x", f(2, 3)), A("axes", i(1, -1))}, "!twice"},
		{"reshape of too many", CoreML8, "reshape", []Arg{A("x", f(big, big)), A("shape", i(-1, 2))}, "!too large"},
		{"values differ", CoreML8, "stack", []Arg{A("values", f(2), of(Float32, 2)), A("axis", n(0))}, "!one element type"},
		{"default in fp32", CoreML5, "instance_norm", []Arg{A("x", f(1, 2, 3)), A("epsilon", Imm(Float(1e-5)))}, "tensor<fp16, [1, 2, 3]>"},
		{"epsilon in fp32", CoreML5, "instance_norm", []Arg{A("x", f(1, 2, 3)), A("epsilon", Imm(Float(1e-4)))}, "!one element type"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := LookupOpIn(c.op, c.in)
			if err != nil {
				t.Fatal(err)
			}
			types, err := d.Infer(&Operation{Type: c.op, Args: c.args})
			if msg, bad := strings.CutPrefix(c.want, "!"); bad {
				if err == nil || !strings.Contains(err.Error(), msg) {
					t.Fatalf("error is %v (result %v), want one with %q", err, types, msg)
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

func TestDefault(t *testing.T) {
	x := val(TensorOf(Float16, 1, 4, 9, 9))
	for _, c := range []struct {
		op, param string
		args      []Arg
		want      *Literal
	}{
		{"conv", "strides", []Arg{A("x", x)}, Ints(1, 1)},
		{"conv", "pad", []Arg{A("x", x)}, Ints(0, 0, 0, 0)},
		{"conv", "bias", []Arg{A("x", x)}, nil},
		{"conv", "weight", []Arg{A("x", x)}, nil},
		{"conv", "nothing", []Arg{A("x", x)}, nil},
		{"conv", "strides", nil, Ints()},
		{"rsqrt", "epsilon", []Arg{A("x", x)}, Half(1e-12)},
		{"rsqrt", "epsilon", []Arg{A("x", val(TensorOf(Float32, 1)))}, Float(1e-12)},
		{"layer_norm", "axes", []Arg{A("x", x)}, Ints(0, 1, 2, 3)},
		{"reduce_sum", "axes", []Arg{A("x", x)}, Ints(0, 1, 2, 3)},
		{"slice_update", "end_mask", []Arg{A("x", x)}, Bools(false, false, false, false)},
		{"upsample_bilinear", "half_pixel_centers", []Arg{A("x", x)}, Flag(false)},
		{"upsample_bilinear", "half_pixel_centers", []Arg{A("x", x), A("align_corners", Imm(Flag(false)))}, Flag(true)},
		{"scatter", "mode", []Arg{A("data", x)}, Str("add")},
	} {
		d, _ := LookupOp(c.op)
		got := d.Default(&Operation{Type: c.op, Args: c.args}, c.param)
		if (got == nil) != (c.want == nil) {
			t.Errorf("%s %s: got %v, want %v", c.op, c.param, got, c.want)
		} else if got != nil && (!got.Type.Equal(c.want.Type) || !slices.Equal(got.Ints, c.want.Ints) || !slices.Equal(got.Floats, c.want.Floats) ||
			!slices.Equal(got.Bools, c.want.Bools) || !slices.Equal(got.Strings, c.want.Strings)) {
			t.Errorf("%s %s: got %v, want %v", c.op, c.param, got, c.want)
		}
	}
}

func TestConstIntsOfWeights(t *testing.T) {
	for _, c := range []struct {
		d    DType
		b    []byte
		want []int
	}{
		{Int8, []byte{1, 0xff}, []int{1, -1}},
		{UInt8, []byte{1, 0xff}, []int{1, 255}},
		{Int16, []byte{1, 0, 0xfe, 0xff}, []int{1, -2}},
		{UInt16, []byte{1, 2}, []int{513}},
		{Int32, []byte{1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}, []int{1, -1}},
		{UInt32, []byte{0xff, 0xff, 0xff, 0xff}, []int{math.MaxUint32}},
		{Int64, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, []int{-1}},
	} {
		w, err := NewWeight(TensorOf(c.d, len(c.want)), c.b)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := ConstInts(ImmWeight(w)); !ok || !slices.Equal(got, c.want) {
			t.Errorf("%v: got %v %v, want %v", c.d, got, ok, c.want)
		}
	}
	for _, typ := range []Type{TensorOf(UInt4, 2), TensorOf(Float16, 2), TensorOf(Int8, maxConsts+1), TensorOf(Int32, 2)} {
		if got, ok := ConstInts(ImmWeight(&bytesWeight{t: typ})); ok {
			t.Errorf("%v: got %v", typ, got)
		}
	}
}

// TestKnownOperands checks that what constants make is one, and that asking
// does not take long.
func TestKnownOperands(t *testing.T) {
	result := func(typ string, args ...*Value) *Value {
		v := &Value{Name: typ, Type: TensorOf(Float16, 2, 2)}
		v.Op = &Operation{Type: typ, Args: []Arg{A("x", args...)}, Results: []*Value{v}}
		return v
	}
	c := ImmWeight(&bytesWeight{t: TensorOf(Float16, 2, 2)})
	in := val(TensorOf(Float16, 2, 2))
	deep := result("transpose", c)
	for range 2000 {
		deep = result("transpose", deep)
	}
	loop := result("transpose", c)
	loop.Op.Args = []Arg{A("x", loop)}
	wide := c
	for range 60 {
		wide = result("add", wide, wide)
	}
	block := result("cond", c)
	block.Op.Blocks = []*Block{{}, {}}
	for name, k := range map[string]struct {
		v    *Value
		want bool
	}{
		"constant":                     {c, true},
		"input":                        {in, false},
		"transposed constant":          {result("transpose", c), true},
		"transposed input":             {result("transpose", in), false},
		"constexpr":                    {result("constexpr_cast", in), true},
		"random":                       {result("random_normal", c), false},
		"state":                        {result("read_state", c), false},
		"no operands":                  {&Value{Name: "f", Op: &Operation{Type: "fill"}}, false},
		"control flow":                 {block, false},
		"too deep":                     {deep, false},
		"itself":                       {loop, false},
		"two to the sixtieth of these": {wide, false},
	} {
		if got := k.v.isKnown(); got != k.want {
			t.Errorf("%s: known is %v", name, got)
		}
	}
}

func TestVerifyOpsets(t *testing.T) {
	in := &Value{Name: "x", Type: TensorOf(Float16, 1, 3, 4, 4)}
	op := &Operation{Type: "pixel_unshuffle", Name: "u", Args: []Arg{A("downscale_factor", Imm(&Literal{Type: TensorOf(UInt32), Ints: []int64{2}})), A("x", in)}}
	op.Results = []*Value{{Name: "u", Type: TensorOf(Float16, 1, 12, 2, 2), Op: op}}
	for opset, want := range map[Opset]string{
		CoreML5:   `function "main": pixel_unshuffle "u": operation of a later operation set: pixel_unshuffle needs CoreML6 (iOS 16), the function is in CoreML5 (iOS 15)`,
		CoreML6:   "",
		CoreML8:   "",
		"":        "",
		"CoreML9": "",
		"iOS18":   `operation set is "iOS18"`,
		"CoreML":  `operation set is "CoreML"`,
	} {
		err := VerifyFunction(&Function{Name: "main", Opset: opset, Inputs: []*Value{in}, Body: &Block{Ops: []*Operation{op}, Outputs: op.Results}})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: error is %v, want %q", opset, err, want)
		}
		if errors.Is(err, ErrLaterOp) != (opset == CoreML5) {
			t.Errorf("%q: %v is ErrLaterOp: %v", opset, err, errors.Is(err, ErrLaterOp))
		}
	}
	b := NewBuilder("main", CoreML6)
	b.Op("resize", A("x", b.Input("x", TensorOf(Float16, 1, 3, 4, 4))))
	if err := b.Err(); !errors.Is(err, ErrLaterOp) {
		t.Errorf("builder's error is %v, want ErrLaterOp", err)
	}
}

// TestVerifyBlocks checks control flow.
func TestVerifyBlocks(t *testing.T) {
	unary := func(typ, name string, x *Value) *Operation {
		op := &Operation{Type: typ, Name: name, Args: []Arg{A("x", x)}}
		op.Results = []*Value{{Name: name, Type: x.Type, Op: op}}
		return op
	}
	block := func(ops ...*Operation) *Block {
		return &Block{Ops: ops, Outputs: ops[len(ops)-1].Results}
	}
	p, x := &Value{Name: "p", Type: TensorOf(Bool)}, &Value{Name: "x", Type: TensorOf(Float16, 2, Dynamic)}
	y := &Value{Name: "y", Type: TensorOf(Float16, 2, 3)}
	cond := func(typ Type, a, b *Block) *Operation {
		op := &Operation{Type: "cond", Name: "c", Args: []Arg{A("pred", p)}, Blocks: []*Block{a, b}}
		op.Results = []*Value{{Name: "c", Type: typ, Op: op}}
		return op
	}
	loop := func(in Type, body func(v *Value) []*Operation) *Operation {
		v, w := &Value{Name: "v", Type: in}, &Value{Name: "v", Type: in}
		test := &Operation{Type: "const", Name: "go", Results: []*Value{{Name: "go", Type: TensorOf(Bool), Literal: Flag(false)}}}
		op := &Operation{Type: "while_loop", Name: "w", Args: []Arg{A("loop_vars", x)}}
		op.Blocks = []*Block{{Inputs: []*Value{w}, Ops: []*Operation{test}, Outputs: test.Results}, block(body(v)...)}
		op.Blocks[1].Inputs = []*Value{v}
		op.Results = []*Value{{Name: "w", Type: in, Op: op}}
		return op
	}
	deep := unary("tanh", "d", x)
	for i := range 120 {
		a, b := unary("tanh", strings.Repeat("a", i+1), x), deep
		deep = cond(x.Type, block(b), block(a))
	}
	inner := unary("tanh", "a", x)
	var self *Operation
	self = cond(x.Type, nil, block(unary("tanh", "b", x)))
	self.Blocks[0] = block(unary("tanh", "a", self.Results[0]))
	for name, c := range map[string]struct {
		ops  []*Operation
		want string
	}{
		"cond":                 {[]*Operation{cond(x.Type, block(unary("tanh", "a", x)), block(unary("relu", "b", x)))}, ""},
		"same names":           {[]*Operation{cond(x.Type, block(unary("tanh", "a", x)), block(unary("relu", "a", x)))}, ""},
		"one side knows more":  {[]*Operation{cond(x.Type, block(unary("tanh", "a", x)), block(unary("relu", "b", y)))}, ""},
		"types of the blocks":  {[]*Operation{cond(x.Type, block(unary("tanh", "a", x)), block(unary("logical_not", "b", p)))}, "output 0 is a tensor<fp16, [2, ?]> of the block for true, but a bool"},
		"declared type":        {[]*Operation{cond(TensorOf(Float16, 3, 3), block(unary("tanh", "a", x)), block(unary("relu", "b", x)))}, "declared tensor<fp16, [3, 3]>"},
		"one block":            {[]*Operation{{Type: "cond", Name: "c", Args: []Arg{A("pred", p)}, Blocks: []*Block{block(unary("tanh", "a", x))}}}, "has 1 blocks"},
		"nil block":            {[]*Operation{cond(x.Type, nil, block(unary("relu", "b", x)))}, "block is nil"},
		"numbers of outputs":   {[]*Operation{cond(x.Type, &Block{}, block(unary("relu", "b", x)))}, "0 outputs"},
		"used outside":         {[]*Operation{cond(x.Type, block(inner), block(unary("relu", "b", x))), unary("tanh", "z", inner.Results[0])}, `uses "a", which is not defined before`},
		"its own result":       {[]*Operation{self}, `uses "c", which is not defined before`},
		"blocks of a sum":      {[]*Operation{{Type: "tanh", Name: "t", Args: []Arg{A("x", x)}, Blocks: []*Block{{}}}}, "has 1 blocks, want none"},
		"too deep":             {[]*Operation{deep}, "more than 100 deep"},
		"while_loop":           {[]*Operation{loop(x.Type, func(v *Value) []*Operation { return []*Operation{unary("tanh", "b", v)} })}, ""},
		"loop of another type": {[]*Operation{loop(x.Type, func(v *Value) []*Operation { return []*Operation{unary("logical_not", "b", p)} })}, `input "v" of block 0 is a tensor<fp16, [2, ?]>, but gets a bool`},
		"loop of more":         {[]*Operation{loop(TensorOf(Float16, 3, 3), func(v *Value) []*Operation { return []*Operation{unary("tanh", "b", v)} })}, `input "v" of block 0`},
		"loop condition": {[]*Operation{func() *Operation {
			op := loop(x.Type, func(v *Value) []*Operation { return []*Operation{unary("tanh", "b", v)} })
			op.Blocks[0].Outputs = op.Blocks[0].Inputs
			return op
		}()}, "want one bool"},
	} {
		last := c.ops[len(c.ops)-1]
		err := VerifyFunction(&Function{Name: "main", Opset: CoreML8, Inputs: []*Value{p, x, y}, Body: &Block{Ops: c.ops, Outputs: last.Results}})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error is %v, want %q", name, err, c.want)
		}
	}
}

func TestVerifyTypes(t *testing.T) {
	for _, typ := range []Type{{}, {Kind: TensorKind}, TensorOf(numDTypes), TensorOf(Float16, -2), {Kind: ListKind}, {Kind: DictKind, Elems: []Type{TensorOf(String)}},
		{Kind: ListKind, Elems: []Type{{}}}} {
		op := &Operation{Type: "identity", Args: []Arg{A("x", Imm(Int(0)))}, Results: []*Value{{Name: "y", Type: typ}}}
		if err := VerifyFunction(&Function{Name: "main", Body: &Block{Ops: []*Operation{op}}}); err == nil {
			t.Errorf("the type %v was accepted", typ)
		}
	}
	for _, l := range []*Literal{
		{Type: TensorOf(Int8, 1), Ints: []int64{128}},
		{Type: TensorOf(UInt8, 1), Ints: []int64{-1}},
		{Type: TensorOf(UInt1, 1), Ints: []int64{2}},
		{Type: TensorOf(Int4, 1), Ints: []int64{-9}},
		{Type: TensorOf(Int32), Ints: []int64{1 << 31}},
	} {
		v := &Value{Name: "c", Type: l.Type, Literal: l}
		v.Op = &Operation{Type: "const", Name: "c", Results: []*Value{v}}
		err := VerifyFunction(&Function{Name: "main", Body: &Block{Ops: []*Operation{v.Op}}})
		if err == nil || !strings.Contains(err.Error(), "outside") {
			t.Errorf("%v: error is %v", l, err)
		}
	}
	ok := &Literal{Type: TensorOf(Int4, 2), Ints: []int64{-8, 7}}
	v := &Value{Name: "c", Type: ok.Type, Literal: ok}
	v.Op = &Operation{Type: "const", Name: "c", Results: []*Value{v}}
	if err := VerifyFunction(&Function{Name: "main", Body: &Block{Ops: []*Operation{v.Op}}}); err != nil {
		t.Error(err)
	}
}
