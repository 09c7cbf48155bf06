package stored

import (
	"io"
	"slices"
	"testing"

	"anemone/mil"
)

func promise(d mil.DType, shape ...int) mil.Weight {
	return mil.PromiseWeight(mil.TensorOf(d, shape...), func(io.Writer) error { panic("a weight was read") })
}

func imm(d mil.DType, shape ...int) *mil.Value { return mil.ImmWeight(promise(d, shape...)) }

// constexpr returns the result of a constexpr operation.
func constexpr(typ string, result mil.Type, args []mil.Arg, attrs ...mil.Attribute) *mil.Value {
	op := &mil.Operation{Type: "constexpr_" + typ, Args: args, Attributes: attrs}
	v := &mil.Value{Name: "w", Type: result, Op: op}
	op.Results = []*mil.Value{v}
	return v
}

func TestEncoding(t *testing.T) {
	half := func(shape ...int) mil.Type { return mil.TensorOf(mil.Float16, shape...) }
	lut := func(result mil.Type, lut *mil.Value, bits mil.DType) *mil.Value {
		return constexpr("lut_to_dense", result, []mil.Arg{mil.A("indices", imm(bits, result.Shape...)), mil.A("lut", lut)})
	}
	shape := []int{64, 128, 1, 1}
	linear := func(data *mil.Value, scale ...int) *mil.Value {
		return constexpr("blockwise_shift_scale", half(data.Type.Shape...), []mil.Arg{mil.A("data", data), mil.A("scale", imm(mil.Float16, scale...))})
	}
	for _, c := range []struct {
		v    *mil.Value
		want string
	}{
		{&mil.Value{Type: half(4)}, "fp16"},
		{&mil.Value{Type: mil.TensorOf(mil.Float32, 4), Op: &mil.Operation{Type: "const"}}, "fp32"},
		{lut(half(shape...), imm(mil.Float16, 8, 1, 1, 1, 16, 1), mil.UInt4), "lut4, 8 rows per table"},
		{lut(half(shape...), imm(mil.Float16, 64, 1, 1, 1, 64, 1), mil.UInt6), "lut6, 1 row per table"},
		{lut(half(shape...), imm(mil.Float16, 1, 1, 1, 1, 8, 1), mil.UInt3), "lut3, one table"},
		{lut(half(shape...), imm(mil.Float16, 1, 4, 1, 1, 4, 1), mil.UInt2), "lut2, 4 tables"},
		{lut(half(shape...), linear(imm(mil.Int8, 8, 1, 1, 1, 16, 1), 1, 1, 1, 1, 1, 1), mil.UInt4), "lut4, 8 rows per table, scaled"},
		// Before iOS 18: one table, and the operands are attributes.
		{constexpr("lut_to_dense", half(shape...), nil, mil.Attribute{Name: "lut", Value: imm(mil.Float16, 256)}), "lut8, one table"},
		{constexpr("affine_dequantize", half(shape...), nil, mil.Attribute{Name: "quantized_data", Value: imm(mil.UInt8, shape...)}), "uint8, linear"},
		{linear(imm(mil.Int8, shape...), 64, 1, 1, 1), "int8, linear"},
		{linear(imm(mil.Int4, shape...), 64, 4, 1, 1), "int4, linear, blocks of 32"},
		{linear(lut(half(shape...), imm(mil.Float16, 8, 1, 1, 1, 16, 1), mil.UInt4), 64, 1, 1, 1), "lut4, 8 rows per table, scaled"},
		{constexpr("sparse_to_dense", half(shape...), []mil.Arg{mil.A("nonzero_data", imm(mil.Float16, 10)), mil.A("mask", imm(mil.UInt1, shape...))}), "sparse fp16"},
		{constexpr("cast", mil.TensorOf(mil.Float32, 4), nil, mil.Attribute{Name: "source_val", Value: imm(mil.Float16, 4)}), "fp16"},
		{constexpr("of_tomorrow", half(4), nil), "of_tomorrow"},
		{constexpr("lut_to_dense", half(4), nil), "lut0, one table"}, // hostile: no operands
	} {
		if got := EncodingOf(c.v).String(); got != c.want {
			t.Errorf("%s %v: %q, want %q", c.v.Op.Type, c.v.Type, got, c.want)
		}
	}
	// A chain without an end.
	loop := constexpr("sparse_to_dense", half(4), nil)
	loop.Op.Args = []mil.Arg{mil.A("nonzero_data", loop)}
	if got := EncodingOf(loop).Kind; got != Sparse {
		t.Errorf("a constexpr of itself: %v", got)
	}
}

// where is a file that has weights at offsets.
type where map[mil.Weight]uint64

func (w where) WeightRef(x mil.Weight) (string, uint64, bool) {
	o, ok := w[x]
	return "weights.bin", o, ok
}
func (w where) WeightFile(string) (string, bool) { return "", false }

func TestList(t *testing.T) {
	idx, tab, gain, scale := promise(mil.UInt4, 8, 16), promise(mil.Float16, 1, 1, 16, 1), promise(mil.Float16, 16), promise(mil.Float16, 8, 1)
	build := func(name string, gain mil.Weight, scaled bool) *mil.Function {
		b := mil.NewBuilder(name, mil.CoreML8)
		x := b.Input("x", mil.TensorOf(mil.Float16, 1, 16))
		w := b.Constexpr("constexpr_lut_to_dense", "w", mil.A("indices", mil.ImmWeight(idx)), mil.A("lut", mil.ImmWeight(tab)))
		if scaled {
			w = b.Constexpr("constexpr_blockwise_shift_scale", "scaled", mil.A("data", w), mil.A("scale", mil.ImmWeight(scale)))
		}
		y := b.Op("linear", mil.A("x", b.Op("mul", mil.A("x", x), mil.A("y", b.Weight("gain", gain)))), mil.A("weight", w))
		b.Output("y", y)
		f, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	other := promise(mil.Float16, 16)
	p := &mil.Program{Functions: []*mil.Function{build("a", gain, false), build("b", other, false), build("c", gain, true), nil, {Name: "d"}}}
	ts := List(p, where{idx: 64, tab: 192, gain: 320, other: 448})
	type entry struct {
		name, encoding string
		bytes          int64
		functions      []string
		roles          []string
	}
	want := []entry{
		{"w", "lut4, one table", 8*16/2 + 32, []string{"a", "b"}, []string{"indices", "lut"}},
		{"gain", "fp16", 32, []string{"a", "c"}, []string{""}},
		{"gain", "fp16", 32, []string{"b"}, []string{""}},
		{"scaled", "lut4, one table, scaled", 8*16/2 + 32 + 16, []string{"c"}, []string{"data.indices", "data.lut", "scale"}},
	}
	if len(ts) != len(want) {
		t.Fatalf("%d weights, want %d: %+v", len(ts), len(want), ts)
	}
	for i, w := range want {
		x := ts[i]
		var roles []string
		for _, p := range x.Pieces {
			roles = append(roles, p.Role)
		}
		got := entry{x.Name, x.Encoding.String(), x.Bytes(), x.Functions, roles}
		if got.name != w.name || got.encoding != w.encoding || got.bytes != w.bytes || !slices.Equal(got.functions, w.functions) || !slices.Equal(roles, w.roles) {
			t.Errorf("weight %d is %+v, want %+v", i, got, w)
		}
	}
	if p := ts[0].Pieces[1]; p.File != "weights.bin" || p.Offset != 192 || !p.Known {
		t.Errorf("the table lies at %+v", p)
	}
	if p := ts[3].Pieces[2]; p.Known {
		t.Errorf("the scale is in no file, but at %+v", p)
	}
	if n, want := Total(ts), int64(64+32+32+32+16); n != want {
		t.Errorf("%d bytes in all, want %d", n, want)
	}
	if n, want := Total(Of(ts, "b")), int64(64+32+32); n != want {
		t.Errorf("%d bytes of function b, want %d", n, want)
	}
}

// TestImmediate finds weights that stand in the arguments of operations, and
// uses that go on inside the chain and out of it.
func TestImmediate(t *testing.T) {
	x := &mil.Value{Name: "x", Type: mil.TensorOf(mil.Float16, 4)}
	y := &mil.Value{Name: "y", Type: mil.TensorOf(mil.Float16, 4)}
	c := &mil.Value{Name: "c", Type: mil.TensorOf(mil.Float16, 4), Weight: promise(mil.Float16, 4)}
	c.Op = &mil.Operation{Type: "const", Results: []*mil.Value{c}}
	lit := &mil.Value{Name: "l", Type: mil.TensorOf(mil.Int32), Literal: mil.Int(1)}
	lit.Op = &mil.Operation{Type: "const", Results: []*mil.Value{lit}}
	e := constexpr("cast", mil.TensorOf(mil.Float32, 4), []mil.Arg{mil.A("source_val", c)})
	f := &mil.Function{Name: "main", Inputs: []*mil.Value{x}, Body: &mil.Block{Ops: []*mil.Operation{
		c.Op, lit.Op, e.Op, {Type: "mul", Name: "product", Args: []mil.Arg{mil.A("x", x), mil.A("y", imm(mil.Float16, 4))}, Results: []*mil.Value{y}},
	}, Outputs: []*mil.Value{y, c}}}
	var names []string
	for _, t := range List(&mil.Program{Functions: []*mil.Function{f}}, nil) {
		names = append(names, t.Name)
	}
	if want := []string{"c", "w", "product.y"}; !slices.Equal(names, want) {
		t.Errorf("weights %q, want %q", names, want)
	}
}
