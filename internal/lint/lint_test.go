package lint

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"anemone/coreml"
	"anemone/internal/anemll"
	"anemone/internal/float16"
	"anemone/mil"
)

// build is a function that is being built, and how the tests say things.
type build struct {
	*mil.Builder
}

func (b build) op(typ string, args ...mil.Arg) *mil.Value { return b.Op(typ, args...) }
func (b build) ints(v ...int) *mil.Value                  { return b.Const(mil.Ints(v...)) }
func (b build) int(v int) *mil.Value                      { return b.Const(mil.Int(v)) }
func (b build) half(v float64) *mil.Value                 { return b.Const(mil.Half(v)) }

// x is an input of halves.
func (b build) x(shape ...int) *mil.Value { return b.Input("x", mil.TensorOf(mil.Float16, shape...)) }

// halves returns a weight that holds values, or 1, 2, 3, 1, ... where there
// are none.
func halves(shape []int, values ...float64) mil.Weight {
	n, _ := mil.NumElements(shape)
	var b []byte
	for i := range n {
		v := float64(1 + i%3)
		if i < len(values) {
			v = values[i]
		}
		b = binary.LittleEndian.AppendUint16(b, float16.FromFloat32(float32(v)))
	}
	w, err := mil.NewWeight(mil.TensorOf(mil.Float16, shape...), b)
	if err != nil {
		panic(err)
	}
	return w
}

// ints8 returns a weight of bytes 1, 2, 3, 1, ...
func ints8(d mil.DType, shape ...int) mil.Weight {
	t := mil.TensorOf(d, shape...)
	n, _ := t.ByteSize()
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(1 + i%3)
	}
	w, err := mil.NewWeight(t, b)
	if err != nil {
		panic(err)
	}
	return w
}

// lut palettizes a weight: tables of 1<<bits entries, one for each rows rows
// (0: one for all). Of one table the first entry may be given.
func (b build) lut(name string, bits, rows int, shape []int, entries ...float64) *mil.Value {
	groups := 1
	if rows > 0 {
		groups = shape[0] / rows
	}
	ls := []int{groups}
	for range len(shape) - 1 {
		ls = append(ls, 1)
	}
	ls = append(ls, 1<<bits, 1)
	d := map[int]mil.DType{1: mil.UInt1, 2: mil.UInt2, 3: mil.UInt3, 4: mil.UInt4, 6: mil.UInt6, 8: mil.UInt8}[bits]
	return b.Constexpr("constexpr_lut_to_dense", name,
		mil.A("indices", mil.ImmWeight(ints8(d, shape...))), mil.A("lut", mil.ImmWeight(halves(ls, entries...))))
}

// linear quantizes a weight to int8 by rows.
func (b build) linear(name string, shape ...int) *mil.Value {
	s := slices.Repeat([]int{1}, len(shape))
	s[0] = shape[0]
	return b.Constexpr("constexpr_blockwise_shift_scale", name,
		mil.A("data", mil.ImmWeight(ints8(mil.Int8, shape...))), mil.A("scale", mil.ImmWeight(halves(s))))
}

func (b build) conv(x, w *mil.Value, groups int) *mil.Value {
	return b.op("conv", mil.A("x", x), mil.A("weight", w), mil.A("strides", b.ints(1, 1)), mil.A("pad_type", b.Const(mil.Str("valid"))),
		mil.A("pad", b.ints(0, 0, 0, 0)), mil.A("dilations", b.ints(1, 1)), mil.A("groups", b.int(groups)))
}

func (b build) gather(table, indices *mil.Value) *mil.Value {
	return b.op("gather", mil.A("x", table), mil.A("indices", indices), mil.A("axis", b.int(0)),
		mil.A("batch_dims", b.int(0)), mil.A("validate_indices", b.Const(mil.Flag(false))))
}

func (b build) state(shape ...int) *mil.Value {
	return b.Input("cache", mil.StateOf(mil.Float16, shape...))
}
func (b build) read(s *mil.Value) *mil.Value { return b.op("read_state", mil.A("input", s)) }
func (b build) write(s, data *mil.Value) {
	b.OpAll("write_state", mil.A("input", s), mil.A("data", data))
}
func (b build) mul(x, y *mil.Value) *mil.Value { return b.op("mul", mil.A("x", x), mil.A("y", y)) }

func (b build) sliceUpdate(x, update *mil.Value, begin, end []int) *mil.Value {
	return b.op("slice_update", mil.A("x", x), mil.A("update", update), mil.A("begin", b.ints(begin...)), mil.A("end", b.ints(end...)))
}
func (b build) slice(x *mil.Value, begin, end []int) *mil.Value {
	return b.op("slice_by_index", mil.A("x", x), mil.A("begin", b.ints(begin...)), mil.A("end", b.ints(end...)))
}
func (b build) concat(axis int, values ...*mil.Value) *mil.Value {
	return b.op("concat", mil.A("values", values...), mil.A("axis", b.int(axis)), mil.A("interleave", b.Const(mil.Flag(false))))
}

// fn builds a function whose output is what body returns.
func fn(t *testing.T, name string, body func(b build) *mil.Value) *mil.Function {
	t.Helper()
	b := mil.NewBuilder(name, mil.CoreML8)
	out := "y"
	if name == "head" {
		name, out = "main", "logits1"
		b = mil.NewBuilder(name, mil.CoreML8)
	}
	b.Output(out, body(build{b}))
	f, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// modelOf returns a model of functions.
func modelOf(fs ...*mil.Function) *coreml.Model {
	m := &coreml.Model{SpecVersion: 9, Program: &mil.Program{Functions: fs}}
	for _, f := range fs {
		m.Functions = append(m.Functions, coreml.Describe(f))
	}
	if len(fs) > 1 {
		m.DefaultFunction = fs[0].Name
	}
	return m
}

// raw is a function of operations that no builder would make.
func raw(ops ...*mil.Operation) *mil.Function {
	f := &mil.Function{Name: "main", Opset: mil.CoreML8, Body: &mil.Block{Ops: ops}}
	for _, op := range ops {
		for _, v := range op.Results {
			v.Op = op
		}
	}
	return f
}

func val(name string, t mil.Type) *mil.Value { return &mil.Value{Name: name, Type: t} }

func named(f *mil.Function, edit func(f *mil.Function)) *mil.Function { edit(f); return f }

// big is a weight that nobody will read.
func big(bytes int) mil.Weight {
	return mil.PromiseWeight(mil.TensorOf(mil.Float16, bytes/2/1024, 1024, 1, 1), func(io.Writer) error { return errors.New("read") })
}

func systems(t *testing.T, name string) OS {
	t.Helper()
	o, err := ParseOS(name)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

type ruleCase struct {
	rule string
	// want is part of "severity | where | name | found" of a finding of the
	// rule; with "" it must find nothing.
	want   string
	target Target
	opt    Options
}

func cases(t *testing.T) []ruleCase {
	half, i32 := mil.Float16, mil.Int32
	one := func(f *mil.Function) Target {
		return Target{Models: []Model{{Part: "part", Content: modelOf(f)}}}
	}
	several := func(fs ...*mil.Function) Target {
		return Target{Models: []Model{{Part: "part", Content: modelOf(fs...)}}}
	}
	with := func(t Target, edit func(m *Model)) Target { edit(&t.Models[0]); return t }
	main := func(body func(b build) *mil.Value) Target { return one(fn(t, "main", body)) }
	// A state that is read and written as it should.
	stateOf := func(shape ...int) Target {
		return main(func(b build) *mil.Value {
			s := b.state(shape...)
			v := b.mul(b.read(s), b.half(2))
			b.write(s, v)
			return v
		})
	}
	simple := func(typ string) Target {
		return main(func(b build) *mil.Value { return b.op(typ, mil.A("x", b.x(1, 64))) })
	}
	convOf := func(w func(b build) *mil.Value) Target {
		return main(func(b build) *mil.Value { return b.conv(b.x(1, 64, 1, 1), w(b), 1) })
	}
	dense := func(shape ...int) func(b build) *mil.Value {
		return func(b build) *mil.Value { return b.Weight("w", halves(shape)) }
	}
	lut := func(bits, rows int, entries ...float64) func(b build) *mil.Value {
		return func(b build) *mil.Value { return b.lut("w", bits, rows, []int{64, 64, 1, 1}, entries...) }
	}
	update := func(d mil.DType) *mil.Function {
		x, u := val("x", mil.TensorOf(half, 4)), val("u", mil.TensorOf(d, 1))
		f := raw(&mil.Operation{Type: "slice_update", Args: []mil.Arg{mil.A("x", x), mil.A("update", u)}, Results: []*mil.Value{val("y", x.Type)}})
		f.Inputs = []*mil.Value{x, u}
		return f
	}
	lookup := func(input string, d mil.DType, table func(b build) *mil.Value) Target {
		return main(func(b build) *mil.Value {
			i := b.Input(input, mil.TensorOf(d, 4))
			if d == i32 {
				i = b.op("cast", mil.A("x", i), mil.A("dtype", b.Const(mil.Str("int16"))))
			}
			return b.gather(table(b), i)
		})
	}
	denseTable := func(b build) *mil.Value { return b.Weight("table", halves([]int{64, 64})) }
	lutTable := func(b build) *mil.Value { return b.lut("table", 4, 0, []int{64, 64}) }
	scaled := func(sole bool) Target {
		return main(func(b build) *mil.Value {
			c := b.conv(b.x(1, 64, 1, 1), lut(4, 8)(b), 1)
			y := b.mul(c, b.half(0.5))
			if !sole {
				y = b.op("add", mil.A("x", y), mil.A("y", c))
			}
			return y
		})
	}
	depthwise := func(w func(b build) *mil.Value) Target {
		return main(func(b build) *mil.Value { return b.conv(b.x(1, 64, 1, 4), w(b), 64) })
	}
	// Two functions that multiply by a weight each.
	two := func(first, second mil.Weight) Target {
		f := func(name string, w mil.Weight) *mil.Function {
			return fn(t, name, func(b build) *mil.Value { return b.conv(b.x(1, 64, 1, 1), b.Weight("w", w), 1) })
		}
		return several(f("infer", first), f("prefill", second))
	}
	shared := halves([]int{64, 64, 1, 1})
	other := halves([]int{64, 64, 1, 1}, 9)
	head := func(bits int) Target {
		return one(fn(t, "head", func(b build) *mil.Value { return b.conv(b.x(1, 64, 1, 1), lut(bits, 8)(b), 1) }))
	}
	sized := func(n int) Target { return convOfWeight(t, big(n)) }
	shift := func(through bool) Target {
		return main(func(b build) *mil.Value {
			s := b.state(1, 2, 256, 64)
			old := b.read(s)
			c := b.concat(2, b.slice(old, []int{0, 0, 1, 0}, []int{1, 2, 256, 64}), b.x(1, 2, 1, 64))
			if through {
				c = b.sliceUpdate(old, c, []int{0, 0, 0, 0}, []int{1, 2, 256, 64})
			}
			b.write(s, c)
			return b.mul(c, b.half(1))
		})
	}
	pkg := func(edit func(p *anemll.Package)) Target {
		p := &anemll.Package{
			Meta: &anemll.Meta{}, Embeddings: &anemll.Part{Name: "e", Path: "e.mlmodelc", Model: &coreml.Model{}},
			Chunks: []*anemll.Part{{Name: "c", Path: "c.mlmodelc", Model: &coreml.Model{}}}, Head: &anemll.Part{Name: "h", Path: "h.mlmodelc", Model: &coreml.Model{}},
		}
		p.ContextLength, p.BatchSize = 512, 64
		edit(p)
		return Target{Package: p}
	}
	user := func(k, v string) Target {
		return pkg(func(p *anemll.Package) { p.Chunks[0].Model.Metadata.User = map[string]string{k: v} })
	}
	both := t.TempDir()
	for _, name := range []string{"a.mlpackage", "a.mlmodelc", "b.mlpackage"} {
		if err := os.Mkdir(filepath.Join(both, name), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	tokens := t.TempDir()
	if err := os.WriteFile(filepath.Join(tokens, "tokenizer.json"), []byte("{}"), 0o666); err != nil {
		t.Fatal(err)
	}
	deep := Options{Deep: true}

	return []ruleCase{
		{rule: "state-axis-3", want: "error | part, main | cache | shape [18 6144 3]", target: stateOf(18, 6144, 3)},
		{rule: "state-axis-3", target: stateOf(18, 3, 6144)},
		{rule: "state-multiple-32", want: "warning | part, main | cache | shape [1 256 270]: 270 is no multiple", target: stateOf(1, 256, 270)},
		{rule: "state-multiple-32", target: stateOf(1, 270, 256)},
		{rule: "state-multiple-32", target: stateOf(18, 6144, 3)}, // said by another rule
		{rule: "state-dtype", want: "cache | a state of fp32", target: one(named(raw(), func(f *mil.Function) {
			f.Inputs = []*mil.Value{val("cache", mil.StateOf(mil.Float32, 1, 32))}
		}))},
		{rule: "state-dtype", target: stateOf(1, 32)},
		{rule: "state-unread", want: "error | part, main | cache | never read, only written", target: main(func(b build) *mil.Value {
			y := b.mul(b.x(1, 32), b.half(2))
			b.write(b.state(1, 32), y)
			return y
		})},
		{rule: "state-unread", want: "cache | never read", target: main(func(b build) *mil.Value { b.state(1, 32); return b.mul(b.x(1), b.half(2)) })},
		{rule: "state-unread", target: stateOf(1, 32)},
		{rule: "state-shift", want: "warning | part, main | concat | becomes the whole of state cache", target: shift(false)},
		{rule: "state-shift", target: shift(true)},
		{rule: "state-shift", target: stateOf(1, 32)},
		{rule: "update-dtype", want: "error | part, main | y | slice_update writes fp32 into fp16", target: one(update(mil.Float32))},
		{rule: "update-dtype", target: one(update(half))},
		{rule: "update-dtype", want: "cache | write_state writes fp32 into fp16", target: one(raw(&mil.Operation{Type: "write_state",
			Args: []mil.Arg{mil.A("input", val("cache", mil.StateOf(half, 1, 32))), mil.A("data", val("d", mil.TensorOf(mil.Float32, 1, 32)))}}))},

		{rule: "sigmoid", want: "warning | part, main | y | sigmoid", target: simple("sigmoid")},
		{rule: "sigmoid", want: "y | silu", target: simple("silu")},
		{rule: "sigmoid", target: simple("tanh")},
		{rule: "cumsum", want: "warning | part, main | y | cumsum", target: simple("cumsum")},
		{rule: "cumsum", target: simple("tanh")},
		{rule: "no-ane-code", want: "y | mod", target: main(func(b build) *mil.Value { return b.op("mod", mil.A("x", b.x(4)), mil.A("y", b.half(2))) })},
		{rule: "no-ane-code", want: "y | reduce_prod", target: main(func(b build) *mil.Value { return b.op("reduce_prod", mil.A("x", b.x(1, 4)), mil.A("axes", b.ints(-1))) })},
		{rule: "no-ane-code", target: main(func(b build) *mil.Value { return b.op("reduce_sum", mil.A("x", b.x(1, 4)), mil.A("axes", b.ints(-1))) })},
		{rule: "large-tensor", want: "error | part, main | y | tanh: tensor<fp16, [1, 65537]>", target: main(func(b build) *mil.Value { return b.op("tanh", mil.A("x", b.x(1, 65537))) })},
		{rule: "large-tensor", target: main(func(b build) *mil.Value { return b.op("tanh", mil.A("x", b.x(1, 65536))) })},
		{rule: "large-tensor", target: main(func(b build) *mil.Value { // rows of a table
			return b.gather(b.x(100000, 4), b.Input("i", mil.TensorOf(mil.Int32, 2)))
		})},
		{rule: "large-tensor-older", want: "warning | part, main | y | tanh: tensor<fp16, [1, 1, 18992]>", target: main(func(b build) *mil.Value { return b.op("tanh", mil.A("x", b.x(1, 1, 18992))) })},
		{rule: "large-tensor-older", target: main(func(b build) *mil.Value { return b.op("tanh", mil.A("x", b.x(1, 18992, 1, 16384))) })},
		{rule: "slice-offset", want: "y | slice_by_index begins at 4095", target: main(func(b build) *mil.Value { return b.slice(b.x(1, 8192), []int{0, 4095}, []int{1, 8192}) })},
		{rule: "slice-offset", target: main(func(b build) *mil.Value { return b.slice(b.x(1, 8192), []int{0, 4094}, []int{1, 8192}) })},
		{rule: "fp32-compute", want: "warning | part, main | y | fp32", target: main(func(b build) *mil.Value { return b.op("tanh", mil.A("x", b.Input("x", mil.TensorOf(mil.Float32, 4)))) })},
		{rule: "fp32-compute", target: main(func(b build) *mil.Value {
			return b.op("cast", mil.A("x", b.op("tanh", mil.A("x", b.x(4)))), mil.A("dtype", b.Const(mil.Str("fp32"))))
		})},
		{rule: "cpu-operations", want: "info | part, main | y | arithmetic on int32", target: main(func(b build) *mil.Value {
			return b.op("add", mil.A("x", b.Input("p", mil.TensorOf(i32, 1))), mil.A("y", b.int(1)))
		})},
		{rule: "cpu-operations", target: simple("tanh")},
		{rule: "cpu-operations", target: simple("cumsum")}, // said by another rule
		{rule: "scale-after-conv", want: "info | part, main | y | mul of the result of conv by [0.5]", target: scaled(true)},
		{rule: "scale-after-conv", target: scaled(false)},
		{rule: "scale-after-conv", target: main(func(b build) *mil.Value {
			return b.mul(b.conv(b.x(1, 64, 1, 1), dense(64, 64, 1, 1)(b), 1), b.half(0.5))
		})},
		{rule: "input-unused", want: "info | part, main | position_ids | tensor<int32, [1]> is not used", target: main(func(b build) *mil.Value {
			b.Input("position_ids", mil.TensorOf(i32, 1))
			return b.mul(b.x(1), b.half(2))
		})},
		{rule: "input-unused", target: simple("tanh")},

		{rule: "program-invalid", want: `error | part | `, target: one(raw(&mil.Operation{Type: "frobnicate", Results: []*mil.Value{val("y", mil.TensorOf(half, 1))}}))},
		{rule: "program-invalid", want: "frobnicate", target: one(raw(&mil.Operation{Type: "frobnicate", Results: []*mil.Value{val("y", mil.TensorOf(half, 1))}}))},
		{rule: "program-invalid", want: "no program", target: Target{Models: []Model{{Part: "part", Content: &coreml.Model{}}}}},
		{rule: "program-invalid", target: simple("tanh")},
		{rule: "reserved-name", want: "error | part, main | state | result of tanh: a reserved word", target: one(raw(&mil.Operation{Type: "tanh", Results: []*mil.Value{val("state", mil.TensorOf(half, 1))}}))},
		{rule: "reserved-name", want: "layers.0 | input: has characters other than", target: one(named(raw(), func(f *mil.Function) { f.Inputs = []*mil.Value{val("layers.0", mil.TensorOf(half, 1))} }))},
		{rule: "reserved-name", want: "9lives | function: does not begin", target: one(named(raw(), func(f *mil.Function) { f.Name = "9lives" }))},
		{rule: "reserved-name", target: simple("tanh")},
		{rule: "spec-version", want: "error | part, main |  | operation set CoreML8 needs version 9 (iOS 18 and macOS 15), the model has 8", target: with(simple("tanh"), func(m *Model) { m.Content.SpecVersion = 8 })},
		{rule: "spec-version", want: "cache | states need version 9", target: with(stateOf(1, 32), func(m *Model) { m.Content.SpecVersion = 8 })},
		{rule: "spec-version", want: "part |  | several functions need version 9", target: with(two(shared, shared), func(m *Model) { m.Content.SpecVersion = 8 })},
		{rule: "spec-version", target: two(shared, shared)},
		{rule: "default-function", want: "error | part | defaultFunctionName | 2 functions and no default one", target: with(two(shared, shared), func(m *Model) { m.Content.DefaultFunction = "" })},
		{rule: "default-function", want: `"chat" does not exist`, target: with(two(shared, shared), func(m *Model) { m.Content.DefaultFunction = "chat" })},
		{rule: "default-function", target: two(shared, shared)},
		{rule: "default-function", target: simple("tanh")},
		{rule: "os-spec", want: "error | part | specificationVersion | 9 is for iOS 18 and macOS 15 and later; macOS 14 loads up to 8", target: simple("tanh"), opt: Options{OS: systems(t, "macos14")}},
		{rule: "os-spec", target: simple("tanh"), opt: Options{OS: systems(t, "macos15")}},
		{rule: "os-spec", target: simple("tanh")},
		{rule: "os-compiler", want: "error | part | coremldata.bin | compiled format 9 (by coremlc 3500.32.1); iOS 17 knows up to 8", target: with(simple("tanh"), func(m *Model) { m.Format, m.Compiler = 9, "3500.32.1" }), opt: Options{OS: systems(t, "ios17")}},
		{rule: "os-compiler", target: with(simple("tanh"), func(m *Model) { m.Format, m.Compiler = 9, "3520.5.1" }), opt: Options{OS: systems(t, "ios18")}},

		{rule: "weight-linear", want: "error | part | w | int8, linear", target: convOf(func(b build) *mil.Value { return b.linear("w", 64, 64, 1, 1) })},
		{rule: "weight-linear", want: "w | uint8, linear", target: one(named(raw(&mil.Operation{Type: "constexpr_affine_dequantize", Results: []*mil.Value{val("w", mil.TensorOf(half, 4, 4))},
			Attributes: []mil.Attribute{{Name: "quantized_data", Value: mil.ImmWeight(ints8(mil.UInt8, 4, 4))}, {Name: "scale", Value: mil.ImmWeight(halves([]int{4}))}}}), func(*mil.Function) {}))},
		{rule: "weight-linear", target: convOf(lut(4, 8))},
		{rule: "lut-scaled", want: "error | part | w | lut4, 8 rows per table, scaled", target: convOf(func(b build) *mil.Value {
			return b.Constexpr("constexpr_blockwise_shift_scale", "w", mil.A("data", b.lut("inner", 4, 8, []int{64, 64, 1, 1})), mil.A("scale", mil.ImmWeight(halves([]int{64, 1, 1, 1}))))
		})},
		{rule: "lut-scaled", target: convOf(lut(4, 8))},
		{rule: "lut-scaled", target: convOf(func(b build) *mil.Value { return b.linear("w", 64, 64, 1, 1) })},
		{rule: "lut-group", want: "warning | part | w | lut4, 1 row per table", target: convOf(lut(4, 1))},
		{rule: "lut-group", want: "warning | part | w | lut6, 2 rows per table", target: convOf(lut(6, 2))},
		{rule: "lut-group", want: "info | part | w | lut4, 4 rows per table", target: convOf(lut(4, 4))},
		{rule: "lut-group", target: convOf(lut(4, 8))},
		{rule: "lut-group", target: convOf(lut(4, 0))},
		{rule: "lut-3bit", want: "info | part | w | lut3, 8 rows", target: convOf(lut(3, 8))},
		{rule: "lut-3bit", target: convOf(lut(4, 8))},
		{rule: "embeddings-palettized", want: "warning | part | table | lut4, one table [64 64], 8.2 kB when decompressed", target: lookup("input_ids", i32, lutTable)},
		{rule: "embeddings-palettized", target: lookup("input_ids", i32, denseTable)},
		{rule: "embeddings-palettized", target: lookup("position_ids", i32, lutTable)},
		{rule: "rope-palettized", want: "error | part | table | lut4", target: lookup("position_ids", i32, lutTable)},
		{rule: "rope-palettized", want: "rotary_cos | lut4", target: lookup("i", mil.Int16, func(b build) *mil.Value { return b.lut("rotary_cos", 4, 0, []int{64, 64}) })},
		{rule: "rope-palettized", target: lookup("position_ids", i32, denseTable)},
		{rule: "rope-palettized", target: lookup("input_ids", i32, lutTable)},
		{rule: "gather-palettized", want: "warning | part | table | lut4", target: lookup("experts", mil.Int16, lutTable)},
		{rule: "gather-palettized", target: lookup("experts", mil.Int16, denseTable)},
		{rule: "gather-palettized", target: convOf(lut(4, 8))},
		{rule: "depthwise-palettized", want: "warning | part | w | lut4, 8 rows per table [64 1 1 4] in a convolution of 64 groups", target: depthwise(func(b build) *mil.Value { return b.lut("w", 4, 8, []int{64, 1, 1, 4}) })},
		{rule: "depthwise-palettized", target: depthwise(dense(64, 1, 1, 4))},
		{rule: "depthwise-palettized", target: convOf(lut(4, 8))},
		{rule: "lut-missing", want: "warning | part | w | fp16 [64 64 1 1], not lut4", target: with(convOf(dense(64, 64, 1, 1)), func(m *Model) { m.LUT = 4 })},
		{rule: "lut-missing", target: convOf(dense(64, 64, 1, 1))},
		{rule: "lut-missing", target: with(convOf(dense(16, 64, 1, 1)), func(m *Model) { m.LUT = 4 })}, // small
		{rule: "lut-missing", target: with(depthwise(dense(64, 1, 1, 4)), func(m *Model) { m.LUT = 4 })},
		{rule: "lut-missing", target: with(convOf(lut(6, 8)), func(m *Model) { m.LUT = 4 })},
		{rule: "head-bits", want: "info | part | w | lut4", target: head(4)},
		{rule: "head-bits", target: head(6)},
		{rule: "head-bits", target: convOf(lut(4, 8))},
		{rule: "head-bits", want: "w | lut4", target: with(convOf(lut(4, 8)), func(m *Model) { m.Head = true })},
		{rule: "weight-fp32", want: "warning | part | w | fp32", target: main(func(b build) *mil.Value {
			return b.mul(b.Input("x", mil.TensorOf(mil.Float32, 4)), b.Weight("w", mil.PromiseWeight(mil.TensorOf(mil.Float32, 4), nil)))
		})},
		{rule: "weight-fp32", target: convOf(dense(64, 64, 1, 1))},
		{rule: "functions-unshared", want: "warning | part, prefill |  | 1 weights of the names and types that infer has are stored again: 8.2 kB", target: two(shared, other)},
		{rule: "functions-unshared", target: two(shared, shared)},
		{rule: "multifunction-memory", want: "info | part |  | 2 functions: 8.2 kB on disk, about 16.4 kB on the Neural Engine", target: two(shared, shared)},
		{rule: "multifunction-memory", target: convOf(dense(64, 64, 1, 1))},
		{rule: "bundle-2gb", want: "warning | part |  | 2.15 GB of weights", target: sized(2<<30 + 2048)},
		{rule: "bundle-2gb", target: sized(2 << 30)},
		{rule: "bundle-2gb", target: with(sized(3<<30), func(m *Model) { m.Embeddings = true })},
		{rule: "bundle-phone", want: "warning | part |  | 1.50 GB of weights", target: sized(1500000256), opt: Options{OS: systems(t, "ios18")}},
		{rule: "bundle-phone", want: "info | part |  | 1.50 GB of weights", target: sized(1500000256)},
		{rule: "bundle-phone", target: sized(1500000256), opt: Options{OS: systems(t, "macos15")}},
		{rule: "bundle-phone", target: sized(1399998464)},

		{rule: "weight-nonfinite", want: "error | part | w | 1 of 4096 values are NaN", target: convOfWeight(t, halves([]int{64, 64, 1, 1}, 1, math.NaN())), opt: deep},
		{rule: "weight-nonfinite", want: "w | 2 of 4096 values are infinite", target: convOfWeight(t, halves([]int{64, 64, 1, 1}, math.Inf(1), math.Inf(-1))), opt: deep},
		{rule: "weight-nonfinite", want: "w | 1 of 128 values of its lut are infinite", target: convOf(lut(4, 8, math.Inf(-1))), opt: deep},
		{rule: "weight-nonfinite", want: "cannot be read: read", target: convOfWeight(t, big(2048)), opt: deep},
		{rule: "weight-nonfinite", target: main(func(b build) *mil.Value { // a mask
			return b.op("add", mil.A("x", b.x(1, 4)), mil.A("y", b.Weight("m", halves([]int{1, 4}, 0, math.Inf(-1)))))
		}), opt: deep},
		{rule: "weight-nonfinite", target: convOf(lut(4, 8)), opt: deep},
		{rule: "weight-nonfinite", target: convOfWeight(t, halves([]int{64, 64, 1, 1}, math.NaN()))}, // not deep
		{rule: "weight-zero", want: "warning | part | w | 1 of 64 rows are zero, the first is 0", target: convOfWeight(t, halves([]int{64, 64, 1, 1}, make([]float64, 64)...)), opt: deep},
		{rule: "weight-zero", want: "w | [64 64 1 1]: all zero", target: convOfWeight(t, halves([]int{64, 64, 1, 1}, make([]float64, 4096)...)), opt: deep},
		// Indices repeat 0x01 0x02 0x03: of 4 bits 1 0 2 0 3 0.
		{rule: "weight-zero", want: "w | 8 of 64 rows are zero, the first is 0", target: convOf(lut(4, 8, 0, 0, 0, 0)), opt: deep},
		{rule: "weight-zero", target: convOf(lut(4, 8, 0, 0, 0)), opt: deep},
		{rule: "weight-zero", target: convOf(lut(4, 8)), opt: deep},
		{rule: "weight-zero", want: "info | part | table | 1 of 64 rows are zero, the first is 0", target: lookup("input_ids", i32, func(b build) *mil.Value { return b.Weight("table", halves([]int{64, 64}, make([]float64, 64)...)) }), opt: deep},
		{rule: "weight-zero", target: lookup("position_ids", i32, func(b build) *mil.Value { return b.Weight("sin", halves([]int{64, 64}, make([]float64, 64)...)) }), opt: deep},
		{rule: "weight-zero", want: "gain | [4]: all zero", target: main(func(b build) *mil.Value { return b.mul(b.x(1, 4), b.Weight("gain", halves([]int{4}, 0, 0, 0, 0))) }), opt: deep},
		{rule: "weight-zero", target: main(func(b build) *mil.Value {
			return b.op("add", mil.A("x", b.x(1, 4)), mil.A("y", b.Weight("bias", halves([]int{4}, 0, 0, 0, 0))))
		}), opt: deep},
		{rule: "weight-duplicate", want: "warning | part, prefill | w | the same 8.2 kB as w", target: two(shared, halves([]int{64, 64, 1, 1})), opt: deep},
		{rule: "weight-duplicate", target: two(shared, other), opt: deep},
		{rule: "weight-duplicate", target: two(shared, shared), opt: deep},

		{rule: "meta", want: "warning |  |  | num_chunks is wrong", target: pkg(func(p *anemll.Package) { p.Problems = []string{"num_chunks is wrong"} })},
		{rule: "meta", target: pkg(func(*anemll.Package) {})},
		{rule: "metadata", want: `warning | c | com.anemll.context_length | says "256", the package has 512`, target: user("com.anemll.context_length", "256")},
		{rule: "metadata", want: `com.anemll.chunk_no | says "2", the package has 1`, target: user("com.anemll.chunk_no", "2")},
		{rule: "metadata", want: `com.anemll.batch_size | says "many", the package has 64`, target: user("com.anemll.batch_size", "many")},
		{rule: "metadata", target: user("com.anemll.context_length", "512")},
		{rule: "no-tokenizer", want: "warning |  |  | no tokenizer.json", target: pkg(func(p *anemll.Package) { p.Dir = both })},
		{rule: "no-tokenizer", target: pkg(func(p *anemll.Package) { p.Dir, p.Meta = both, &anemll.Meta{TokenizerPath: tokens} })},
		{rule: "no-tokenizer", target: pkg(func(p *anemll.Package) { p.Dir = tokens })},
		{rule: "no-tokenizer", target: pkg(func(p *anemll.Package) {})}, // assembled from models
		{rule: "no-prefill", want: "info |  |  | no prefill_dynamic_slice", target: pkg(func(p *anemll.Package) { p.NoPrefill = "no prefill_dynamic_slice" })},
		{rule: "no-prefill", target: pkg(func(*anemll.Package) {})},
		{rule: "context-256", want: "info |  | context_length | 128 positions", target: pkg(func(p *anemll.Package) { p.ContextLength = 128 })},
		{rule: "context-256", target: pkg(func(*anemll.Package) {})},
		{rule: "part-not-compiled", want: "info |  | b.mlpackage | no .mlmodelc beside it", target: pkg(func(p *anemll.Package) { p.Head.Path = filepath.Join(both, "b.mlpackage") })},
		{rule: "part-not-compiled", target: pkg(func(p *anemll.Package) { p.Head.Path = filepath.Join(both, "a.mlpackage") })},
	}
}

func convOfWeight(t *testing.T, w mil.Weight) Target {
	s := w.Type().Shape
	f := fn(t, "main", func(b build) *mil.Value { return b.conv(b.x(1, s[1], 1, 1), b.Weight("w", w), 1) })
	return Target{Models: []Model{{Part: "part", Content: modelOf(f)}}}
}

func line(f *Finding) string {
	return strings.Join([]string{string(f.Severity), f.Where(), f.Name, f.Found}, " | ")
}

// TestRules runs every rule on programs that break it and on some that do
// not.
func TestRules(t *testing.T) {
	breaks, keeps := map[string]bool{}, map[string]bool{}
	for _, c := range cases(t) {
		fs, err := Check(t.Context(), c.target, c.opt)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i := range fs {
			if fs[i].Rule == c.rule {
				got = append(got, line(&fs[i]))
			}
		}
		if c.want == "" {
			keeps[c.rule] = true
			if len(got) > 0 {
				t.Errorf("%s: found %q, want nothing", c.rule, got)
			}
			continue
		}
		breaks[c.rule] = true
		if !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, c.want) }) {
			t.Errorf("%s: found %q, want %q", c.rule, got, c.want)
		}
	}
	for _, r := range Rules() {
		if !breaks[r.Name] || !keeps[r.Name] {
			t.Errorf("rule %s: tests that break it: %v, that keep it: %v; want both", r.Name, breaks[r.Name], keeps[r.Name])
		}
	}
}

// TestQuiet looks at a function that nothing is wrong with.
func TestQuiet(t *testing.T) {
	f := fn(t, "main", func(b build) *mil.Value {
		s := b.state(4, 2, 256, 64)
		c := b.sliceUpdate(b.read(s), b.x(1, 2, 1, 64), []int{0, 0, 7, 0}, []int{1, 2, 8, 64})
		b.write(s, c)
		return b.op("tanh", mil.A("x", b.slice(c, []int{0, 0, 0, 0}, []int{1, 2, 256, 64})))
	})
	fs, err := Check(t.Context(), Target{Models: []Model{{Part: "part", Content: modelOf(f)}}}, Options{Deep: true, OS: systems(t, "ios18")})
	if err != nil || len(fs) != 0 {
		t.Errorf("found %+v, %v", fs, err)
	}
}

// TestMore joins findings that differ in the name only, and sorts the worst
// first.
func TestMore(t *testing.T) {
	f := fn(t, "main", func(b build) *mil.Value {
		x := b.x(1, 64)
		for range 3 {
			x = b.Named("s", "sigmoid", mil.A("x", x))
		}
		b.state(1, 3)
		return b.op("silu", mil.A("x", x))
	})
	fs, err := Check(t.Context(), Target{Models: []Model{{Part: "p", Content: modelOf(f)}}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range fs {
		got = append(got, string(f.Severity)+" "+f.Rule+" "+strings.Join(append([]string{f.Name}, f.More...), ","))
	}
	want := []string{"error state-axis-3 cache", "error state-unread cache", "warning sigmoid s,s_1,s_2", "warning sigmoid y"}
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	if Count(fs, Error) != 2 || Count(fs, Warning) != 2 || Count(fs, Info) != 0 {
		t.Errorf("counted %d errors, %d warnings", Count(fs, Error), Count(fs, Warning))
	}
	fs, err = Check(t.Context(), Target{Models: []Model{{Part: "p", Content: modelOf(f)}}}, Options{Ignore: []string{"sigmoid", "state-unread"}})
	if err != nil || len(fs) != 1 {
		t.Errorf("without two rules: %+v, %v", fs, err)
	}
}

func TestCheckErrors(t *testing.T) {
	if _, err := Check(t.Context(), Target{}, Options{Ignore: []string{"nonsense"}}); err == nil || !strings.Contains(err.Error(), `"nonsense"`) {
		t.Errorf("an unknown rule: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Check(ctx, Target{}, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	// Whatever is missing, nothing panics.
	for _, m := range []*coreml.Model{nil, {}, {Program: &mil.Program{}}, {Program: &mil.Program{Functions: []*mil.Function{{}, {Body: &mil.Block{}}}}}} {
		fs, err := Check(t.Context(), Target{Models: []Model{{Content: m}}}, Options{Deep: true, OS: systems(t, "ios15")})
		if err != nil {
			t.Errorf("%+v: %v", m, err)
		}
		if (m == nil || m.Program == nil) && Count(fs, Error) == 0 {
			t.Errorf("%+v: found %+v, want an error", m, fs)
		}
	}
}

func TestParseOS(t *testing.T) {
	for _, c := range []struct {
		in           string
		name         string
		spec, format int
		phone        bool
		err          string
	}{
		{in: "ios18", name: "iOS 18", spec: 9, format: 9, phone: true},
		{in: "iOS 17.4.1", name: "iOS 17", spec: 8, format: 8, phone: true},
		{in: "ios20", name: "iOS 20", spec: 9, format: 9, phone: true}, // there is none
		{in: "ios26", name: "iOS 26", spec: 10, format: 9, phone: true},
		{in: "iPadOS16", name: "iPadOS 16", spec: 7, format: 5},
		{in: "tvos15", name: "tvOS 15", spec: 6, format: 5},
		{in: "macOS 15.2", name: "macOS 15", spec: 9, format: 9},
		{in: "macos12", name: "macOS 12", spec: 6, format: 5},
		{in: "visionos1", name: "visionOS 1", spec: 8, format: 8},
		{in: "watchos11", name: "watchOS 11", spec: 9, format: 9},
		{in: "macos30", name: "macOS 30", spec: 1 << 30, format: 1 << 30},
		{in: "ios14", err: "came with iOS 15"},
		{in: "macos11", err: "came with macOS 12"},
		{in: "visionos0", err: "came with visionOS 1"},
		{in: "linux6", err: "no system"},
		{in: "ios", err: "no system"},
		{in: "", err: "no system"},
		{in: "ios99999999999999999999", err: "no version"},
	} {
		o, err := ParseOS(c.in)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q: %+v, %v; want an error with %q", c.in, o, err, c.err)
			}
			continue
		}
		if err != nil || o != (OS{c.name, c.spec, c.format, c.phone}) {
			t.Errorf("%q: %+v, %v; want %+v", c.in, o, err, c)
		}
	}
}
