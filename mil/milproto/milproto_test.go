package milproto

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"anemone/mil"
	"anemone/mil/milproto/milpb"
)

func parse(t testing.TB, text string) *milpb.Program {
	t.Helper()
	p := &milpb.Program{}
	if err := prototext.Unmarshal([]byte(text), p); err != nil {
		t.Fatal(err)
	}
	return p
}

// program wraps the text of a block's content into a program.
func program(block string) string {
	return `version: 1 functions { key: "main" value { opset: "CoreML8"
		inputs { name: "x" type { tensor_type { data_type: FLOAT16 rank: 1 dimensions { constant { size: 4 } } } } }
		block_specializations { key: "CoreML8" value {` + block + `} } } }`
}

const (
	fp16x4 = `type { tensor_type { data_type: FLOAT16 rank: 1 dimensions { constant { size: 4 } } } } `
	int32s = `type { tensor_type { data_type: INT32 } } `
	str    = `type { tensor_type { data_type: STRING } } `
	boolT  = `type { tensor_type { data_type: BOOL } } `
	relu   = `operations { type: "relu" inputs { key: "x" value { arguments { name: "x" } } } outputs { name: "y" ` + fp16x4 + `} } outputs: "y"`
)

// memory gives weights of whatever is asked for.
func memory(ref BlobRef, t mil.Type) (mil.Weight, error) {
	return mil.PromiseWeight(t, func(io.Writer) error { return errors.New("no bytes") }), nil
}

// everything is a program with each kind of thing in it.
const everything = `
version: 1 doc_string: "doc"
attributes { key: "buildInfo" value {
	type { dictionary_type { key_type { tensor_type { data_type: STRING } } value_type { tensor_type { data_type: STRING } } } }
	immediate_value { dictionary { values { key { ` + str + ` immediate_value { tensor { strings { values: "tool" } } } } value { ` + str + ` immediate_value { tensor { strings { values: "1.0" } } } } } } } } }
functions { key: "b" value {
	opset: "CoreML7"
	inputs { name: "x" ` + fp16x4 + ` }
	block_specializations { key: "CoreML7" value { outputs: "x" } } } }
functions { key: "a" value {
	opset: "CoreML8"
	attributes { key: "note" value { ` + int32s + ` immediate_value { tensor { ints { values: 7 } } } } }
	inputs { name: "x" type { tensor_type { data_type: FLOAT16 rank: 2 dimensions { unknown { } } dimensions { constant { size: 4 } } } } }
	inputs { name: "s" type { state_type { wrapped_type { tensor_type { data_type: FLOAT16 rank: 1 dimensions { constant { size: 4 } } } } } } }
	block_specializations { key: "CoreML7" value { outputs: "nonsense" } }
	block_specializations { key: "CoreML8" value {
		attributes { key: "note" value { ` + boolT + ` immediate_value { tensor { bools { values: true } } } } }
		operations { type: "const" outputs { name: "w" ` + fp16x4 + ` }
			attributes { key: "name" value { ` + str + ` immediate_value { tensor { strings { values: "op_w" } } } } }
			attributes { key: "val" value { ` + fp16x4 + ` blob_file_value { file_name: "@model_path/weights/weight.bin" offset: 64 } } } }
		operations { type: "const" outputs { name: "w2" ` + fp16x4 + ` }
			attributes { key: "val" value { ` + fp16x4 + ` blob_file_value { file_name: "@model_path/weights/weight.bin" offset: 64 } } } }
		operations { type: "const" outputs { name: "w3" type { tensor_type { data_type: FLOAT16 rank: 2 dimensions { constant { size: 2 } } dimensions { constant { size: 2 } } } } }
			attributes { key: "val" value { type { tensor_type { data_type: FLOAT16 rank: 2 dimensions { constant { size: 2 } } dimensions { constant { size: 2 } } } }
				blob_file_value { file_name: "@model_path/weights/weight.bin" offset: 64 } } } }
		operations { type: "const" outputs { name: "flag" ` + boolT + ` }
			attributes { key: "val" value { ` + boolT + ` immediate_value { tensor { bools { values: true } } } } } }
		operations { type: "read_state" inputs { key: "input" value { arguments { name: "s" } } } outputs { name: "r" ` + fp16x4 + ` } }
		operations { type: "constexpr_lut_to_dense" outputs { name: "dense" ` + fp16x4 + ` }
			inputs { key: "lut" value { arguments { value { ` + fp16x4 + ` blob_file_value { file_name: "@model_path/weights/weight.bin" offset: 64 } } } } }
			inputs { key: "indices" value { arguments { value { type { tensor_type { data_type: UINT2 rank: 1 dimensions { constant { size: 4 } } } } immediate_value { tensor { bytes { values: "\xe4" } } } } } } } }
		operations { type: "old_constexpr" outputs { name: "dense2" ` + fp16x4 + ` }
			attributes { key: "shape" value { type { tensor_type { data_type: UINT32 rank: 1 dimensions { constant { size: 1 } } } } immediate_value { tensor { bytes { values: "\x04\x00\x00\x00" } } } } } }
		operations { type: "concat" outputs { name: "c" ` + fp16x4 + ` }
			inputs { key: "values" value { arguments { name: "r" } arguments { name: "dense" } } }
			inputs { key: "axis" value { arguments { value { ` + int32s + ` immediate_value { tensor { ints { values: -1 } } } } } } } }
		operations { type: "cond" outputs { name: "k" ` + fp16x4 + ` } inputs { key: "pred" value { arguments { name: "flag" } } }
			blocks { operations { type: "relu" inputs { key: "x" value { arguments { name: "c" } } } outputs { name: "inner" ` + fp16x4 + ` } } outputs: "inner" }
			blocks { inputs { name: "p" ` + fp16x4 + ` } operations { type: "tanh" inputs { key: "x" value { arguments { name: "p" } } } outputs { name: "inner" ` + fp16x4 + ` } } outputs: "inner" outputs: "c" } }
		operations { type: "topk" inputs { key: "x" value { arguments { name: "k" } } } outputs { name: "t1" ` + fp16x4 + ` } outputs { name: "t2" ` + int32s + ` } }
		operations { type: "write_state" inputs { key: "data" value { arguments { name: "k" } } } inputs { key: "input" value { arguments { name: "s" } } } }
		operations { type: "make_list" outputs { name: "l" type { list_type { type { tensor_type { data_type: INT32 } } length { unknown { } } } } }
			inputs { key: "init" value { arguments { value { type { list_type { type { tensor_type { data_type: INT32 } } length { constant { size: 2 } } } }
				immediate_value { list { values { ` + int32s + ` immediate_value { tensor { ints { values: 1 } } } } values { ` + int32s + ` immediate_value { tensor { ints { values: 2 } } } } } } } } } }
			inputs { key: "pair" value { arguments { value { type { tuple_type { types { tensor_type { data_type: INT32 } } types { tensor_type { data_type: BOOL } } } }
				immediate_value { tuple { values { ` + int32s + ` immediate_value { tensor { ints { values: 1 } } } } values { ` + boolT + ` immediate_value { tensor { bools { values: false } } } } } } } } } } }
		outputs: "t1" outputs: "x"
	} } } }
`

func TestEverything(t *testing.T) {
	pb := parse(t, everything)
	p, err := Decode(pb, DecodeOptions{Weight: memory, Order: []string{"missing", "b", "b"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Functions) != 2 || p.Functions[0].Name != "b" || p.Functions[1].Name != "a" {
		t.Fatalf("functions are not in the order asked for")
	}
	if p.Doc != "doc" || len(p.Attributes) != 1 || p.Attributes[0].Name != "buildInfo" {
		t.Errorf("program says %q and has attributes %v", p.Doc, p.Attributes)
	}
	info := p.Attributes[0].Value.Literal
	if info.Type.String() != "dict<string, string>" || info.Items[0].Strings[0] != "tool" || info.Items[1].Strings[0] != "1.0" {
		t.Errorf("buildInfo is %+v", info)
	}
	a := p.Function("a")
	if a.Opset != mil.CoreML8 || a.Input("x").Type.String() != "tensor<fp16, [?, 4]>" || a.Input("s").Type.String() != "state<tensor<fp16, [4]>>" {
		t.Errorf("function a: %+v", a)
	}
	if len(a.Attributes) != 1 || a.Attributes[0].Value.Literal.Ints[0] != 7 || len(a.Body.Attributes) != 1 {
		t.Errorf("attributes %+v, %+v", a.Attributes, a.Body.Attributes)
	}
	ops := map[string]*mil.Operation{}
	values := map[string]*mil.Value{}
	a.Body.Walk(func(op *mil.Operation) bool {
		ops[op.Type] = op
		for _, r := range op.Results {
			values[r.Name] = r
			if r.Op != op {
				t.Errorf("value %q does not point at its operation", r.Name)
			}
		}
		return true
	})
	w := values["w"]
	if w.Weight == nil || w.Weight != values["w2"].Weight || w.Op.Name != "op_w" || values["w2"].Op.Name != "" {
		t.Errorf("w and w2 do not share their weight, or w is not named: %+v, %+v", w, values["w2"])
	}
	if values["w3"].Weight == w.Weight {
		t.Error("weights of different types are one")
	}
	lut := ops["constexpr_lut_to_dense"]
	if lut.Args[0].Name != "indices" || lut.Args[1].Name != "lut" {
		t.Errorf("arguments are not sorted: %+v", lut.Args)
	}
	if lut.Value("lut").Weight != w.Weight {
		t.Error("an immediate does not share the weight of a const")
	}
	if got := lut.Value("indices").Literal.Ints; !reflect.DeepEqual(got, []int64{0, 1, 2, 3}) {
		t.Errorf("indices are %v", got)
	}
	if got := ops["old_constexpr"].Operand("shape").Literal.Ints; !reflect.DeepEqual(got, []int64{4}) {
		t.Errorf("shape is %v", got)
	}
	if c := ops["concat"].Arg("values"); len(c) != 2 || c[0] != values["r"] || c[1] != values["dense"] {
		t.Errorf("values of concat are %+v", c)
	}
	cond := ops["cond"]
	if cond.Blocks[0].Outputs[0] == cond.Blocks[1].Outputs[0] || cond.Blocks[1].Outputs[1] != values["c"] || cond.Blocks[1].Ops[0].Value("x") != cond.Blocks[1].Inputs[0] {
		t.Error("values of nested blocks are mixed up")
	}
	if l := ops["make_list"]; l.Results[0].Type.String() != "list<int32, ?>" || l.Value("init").Type.String() != "list<int32, 2>" || l.Value("pair").Type.String() != "tuple<int32, bool>" {
		t.Errorf("list operation: %+v", l)
	}

	// And back again. The block of another opset is not kept.
	delete(pb.Functions["a"].BlockSpecializations, "CoreML7")
	asked := map[mil.Weight]int{}
	back, err := Encode(p, func(w mil.Weight) (BlobRef, error) {
		asked[w]++
		return BlobRef{"@model_path/weights/weight.bin", 64}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(pb, back) {
		t.Errorf("encoded again:\n%s\nwant\n%s", prototext.Format(back), prototext.Format(pb))
	}
	if asked[w.Weight] != 3 || len(asked) != 2 {
		t.Errorf("asked for weights %v", asked)
	}
	if _, err := Encode(p, nil); err == nil || !strings.Contains(err.Error(), `function "a": operation 0 (const "op_w")`) {
		t.Errorf("weights without a file: %v", err)
	}
	if _, err := Decode(pb, DecodeOptions{}); err == nil || !strings.Contains(err.Error(), `operation 0 (const giving "w")`) {
		t.Errorf("weights without a file: %v", err)
	}
}

// TestBytesAreStable checks that the same program gives the same bytes.
func TestBytesAreStable(t *testing.T) {
	var first []byte
	for range 20 {
		p, err := Decode(parse(t, everything), DecodeOptions{Weight: memory})
		if err != nil {
			t.Fatal(err)
		}
		if p.Functions[0].Name != "a" || p.Functions[1].Name != "b" {
			t.Fatal("functions without an order are not sorted")
		}
		pb, err := Encode(p, func(mil.Weight) (BlobRef, error) { return BlobRef{"f", 1}, nil })
		if err != nil {
			t.Fatal(err)
		}
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(pb)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = b
		}
		if !bytes.Equal(first, b) {
			t.Fatal("two encodings differ")
		}
	}
}

// TestLiterals checks the stored form of every element type, as coremltools
// writes it, and that the other forms that a type can have are read as well.
func TestLiterals(t *testing.T) {
	ints := func(v ...int64) *mil.Literal { return &mil.Literal{Ints: v} }
	floats := func(v ...float64) *mil.Literal { return &mil.Literal{Floats: v} }
	cases := []struct {
		d      mil.DType
		l      *mil.Literal
		stored string
		others []string // other forms of the same value
	}{
		{mil.Bool, &mil.Literal{Bools: []bool{true, false, true}}, `bools { values: [true, false, true] }`, []string{`bytes { values: "\x01\x00\x01" }`}},
		{mil.String, &mil.Literal{Strings: []string{"a", "", "\u00e9"}}, `strings { values: ["a", "", "\u00e9"] }`, nil},
		{mil.Float16, floats(1, -2, 65504), `bytes { values: "\x00\x3c\x00\xc0\xff\x7b" }`, []string{`floats { values: [1, -2, 65504] }`, `doubles { values: [1, -2, 65504] }`, `floats { values: [1, -2, 65503.5] }`}},
		{mil.Float16, floats(math.Inf(1), 0x1p-24, math.Inf(-1)), `bytes { values: "\x00\x7c\x01\x00\x00\xfc" }`, []string{`floats { values: [inf, 5.9604644775390625e-8, -inf] }`}},
		{mil.BFloat16, floats(1, -2, 0x1.fep127), `bytes { values: "\x80\x3f\x00\xc0\x7f\x7f" }`, nil},
		{mil.Float32, floats(1, -2, 0x1.99999ap-4), `floats { values: [1, -2, 0.1] }`, []string{`doubles { values: [1, -2, 0.1] }`, `bytes { values: "\x00\x00\x80\x3f\x00\x00\x00\xc0\xcd\xcc\xcc\x3d" }`}},
		{mil.Float64, floats(1, -2, 0.1), `doubles { values: [1, -2, 0.1] }`, []string{`bytes { values: "\x00\x00\x00\x00\x00\x00\xf0\x3f\x00\x00\x00\x00\x00\x00\x00\xc0\x9a\x99\x99\x99\x99\x99\xb9\x3f" }`}},
		{mil.Int8, ints(1, -128, 127), `bytes { values: "\x01\x80\x7f" }`, []string{`ints { values: [1, -128, 127] }`, `long_ints { values: [1, -128, 127] }`}},
		{mil.UInt8, ints(1, 0, 255), `bytes { values: "\x01\x00\xff" }`, []string{`ints { values: [1, 0, 255] }`}},
		{mil.Int16, ints(1, -32768, 32767), `ints { values: [1, -32768, 32767] }`, []string{`bytes { values: "\x01\x00\x00\x80\xff\x7f" }`}},
		{mil.UInt16, ints(1, 0, 65535), `ints { values: [1, 0, 65535] }`, []string{`bytes { values: "\x01\x00\x00\x00\xff\xff" }`}},
		{mil.Int32, ints(1, -1<<31, 1<<31-1), `ints { values: [1, -2147483648, 2147483647] }`, []string{`bytes { values: "\x01\x00\x00\x00\x00\x00\x00\x80\xff\xff\xff\x7f" }`, `long_ints { values: [1, -2147483648, 2147483647] }`}},
		{mil.UInt32, ints(1, 0, 1<<32-1), `bytes { values: "\x01\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff" }`, []string{`long_ints { values: [1, 0, 4294967295] }`}},
		{mil.Int64, ints(1, -1<<63, 1<<63-1), `long_ints { values: [1, -9223372036854775808, 9223372036854775807] }`, []string{`bytes { values: "\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80\xff\xff\xff\xff\xff\xff\xff\x7f" }`}},
		{mil.UInt64, ints(1, 0, -1), `long_ints { values: [1, 0, -1] }`, nil},
		// 1 | -8<<4, then 7.
		{mil.Int4, ints(1, -8, 7), `bytes { values: "\x81\x07" }`, []string{`ints { values: [1, -8, 7] }`}},
		{mil.UInt1, ints(1, 0, 1), `bytes { values: "\x05" }`, nil},
		{mil.UInt2, ints(1, 0, 3), `bytes { values: "\x31" }`, nil},
		// 1 | 6<<3 | 7<<6: 9 bits.
		{mil.UInt3, ints(1, 6, 7), `bytes { values: "\xf1\x01" }`, nil},
		{mil.UInt4, ints(1, 0, 15), `bytes { values: "\x01\x0f" }`, nil},
		// 1 | 33<<6 | 63<<12: 18 bits.
		{mil.UInt6, ints(1, 33, 63), `bytes { values: "\x41\xf8\x03" }`, nil},
	}
	seen := map[mil.DType]bool{}
	for _, c := range cases {
		seen[c.d] = true
		c.l.Type = mil.TensorOf(c.d, 3, 1)
		got, err := encodeLiteral(c.l, 0)
		if err != nil {
			t.Errorf("%v: %v", c.d, err)
			continue
		}
		for i, form := range append([]string{c.stored}, c.others...) {
			want := &milpb.Value{}
			text := fmt.Sprintf("type { tensor_type { data_type: %v rank: 2 dimensions { constant { size: 3 } } dimensions { constant { size: 1 } } } } immediate_value { tensor { %s } }", toPB[c.d], form)
			if err := prototext.Unmarshal([]byte(text), want); err != nil {
				t.Fatal(err)
			}
			if i == 0 && !proto.Equal(got, want) {
				t.Errorf("%v: encoded as\n%s\nwant\n%s", c.d, prototext.Format(got), prototext.Format(want))
			}
			l, err := decodeLiteral(c.l.Type, want.GetImmediateValue(), 0)
			if err != nil || !reflect.DeepEqual(l, c.l) {
				t.Errorf("%v: %s is read as %+v (%v), want %+v", c.d, form, l, err, c.l)
			}
		}
	}
	for d := range toPB {
		if !seen[d] {
			t.Errorf("no case for %v", d)
		}
	}
	// NaN stays NaN.
	l := &mil.Literal{Type: mil.TensorOf(mil.Float16), Floats: []float64{math.NaN()}}
	pb, err := encodeLiteral(l, 0)
	if err != nil {
		t.Fatal(err)
	}
	if l, err = decodeLiteral(l.Type, pb.GetImmediateValue(), 0); err != nil || !math.IsNaN(l.Floats[0]) {
		t.Errorf("NaN came back as %+v, %v", l, err)
	}
	// Nothing, in an empty tensor.
	empty := &mil.Literal{Type: mil.TensorOf(mil.Int32, 0)}
	if pb, err = encodeLiteral(empty, 0); err != nil || pb.GetImmediateValue().GetTensor().GetInts() == nil {
		t.Errorf("empty tensor: %v, %v", pb, err)
	}
	for _, v := range []*milpb.TensorValue{{}, pb.GetImmediateValue().GetTensor()} {
		if l, err := decodeLiteral(empty.Type, &milpb.Value_Immediate{Value: &milpb.Value_Immediate_Tensor{Tensor: v}}, 0); err != nil || l.Len() != 0 {
			t.Errorf("empty tensor: %+v, %v", l, err)
		}
	}
}

func TestLiteralErrors(t *testing.T) {
	vec := func(d mil.DType, n int) mil.Type { return mil.TensorOf(d, n) }
	list := mil.Type{Kind: mil.ListKind, Elems: []mil.Type{mil.TensorOf(mil.Int32)}, Length: 2}
	deep := &mil.Literal{Type: mil.Type{Kind: mil.TupleKind}}
	for range 100 {
		deep = &mil.Literal{Type: mil.Type{Kind: mil.TupleKind, Elems: []mil.Type{deep.Type}}, Items: []*mil.Literal{deep}}
	}
	for _, c := range []struct {
		l    *mil.Literal
		want string
	}{
		{nil, "no literal"},
		{&mil.Literal{}, "no type"},
		{&mil.Literal{Type: vec(mil.Int32, 2), Ints: []int64{1}}, "1 elements, want 2"},
		{&mil.Literal{Type: vec(mil.Int32, 2), Floats: []float64{1, 2}}, "2 elements, want 2"},
		{&mil.Literal{Type: vec(mil.Int32, 1), Ints: []int64{1}, Bools: []bool{true}}, "2 elements, want 1"},
		{&mil.Literal{Type: vec(mil.Int32, mil.Dynamic)}, "unknown"},
		{&mil.Literal{Type: mil.TensorOf(mil.UInt8, 1<<31, 1<<31, 4)}, "too large"},
		{&mil.Literal{Type: vec(mil.Int8, 1), Ints: []int64{128}}, "out of range"},
		{&mil.Literal{Type: vec(mil.Int8, 1), Ints: []int64{-129}}, "out of range"},
		{&mil.Literal{Type: vec(mil.UInt6, 1), Ints: []int64{64}}, "out of range"},
		{&mil.Literal{Type: vec(mil.UInt6, 1), Ints: []int64{-1}}, "out of range"},
		{&mil.Literal{Type: vec(mil.Int32, 1), Ints: []int64{1 << 31}}, "out of range"},
		{&mil.Literal{Type: vec(mil.Float16, 1), Floats: []float64{0.1}}, "not an fp16 value"},
		{&mil.Literal{Type: vec(mil.Float16, 1), Floats: []float64{65520}}, "not an fp16 value"},
		{&mil.Literal{Type: vec(mil.Float32, 1), Floats: []float64{0.1}}, "not an fp32 value"},
		{&mil.Literal{Type: mil.StateOf(mil.Int32), Ints: []int64{1}}, "cannot be written"},
		{&mil.Literal{Type: list, Items: []*mil.Literal{mil.Int(1)}}, "has 1 items"},
		{&mil.Literal{Type: list, Items: []*mil.Literal{mil.Int(1), mil.Half(1)}}, "item 1 is not of type int32"},
		{&mil.Literal{Type: list, Items: []*mil.Literal{mil.Int(1), nil}}, "item 1 is not"},
		{&mil.Literal{Type: mil.Type{Kind: mil.DictKind}}, "0 element types"},
		{&mil.Literal{Type: mil.TensorOf(mil.Int32, make([]int, 17)...)}, "17 dimensions"},
		{deep, "nested"},
	} {
		if _, err := encodeLiteral(c.l, 0); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want one with %q", c.l, err, c.want)
		}
	}
}

func TestDecodeErrors(t *testing.T) {
	constant := func(typ, value string) string {
		return `operations { type: "const" outputs { name: "c" ` + typ + ` } attributes { key: "val" value { ` + typ + value + ` } } }`
	}
	imm := func(typ, value string) string { return constant(typ, `immediate_value { tensor { `+value+` } }`) }
	tensor := func(s string) string { return `type { tensor_type { ` + s + ` } } ` }
	nested := `outputs: "x"`
	for range 70 {
		nested = `operations { type: "cond" blocks { ` + nested + ` } } outputs: "x"`
	}
	list := `type { tensor_type { data_type: INT32 } } `
	for range 70 {
		list = `type { list_type { ` + list + ` length { constant { size: 1 } } } } `
	}
	cases := []struct{ name, text, want string }{
		{"fine", program(relu), ""},
		{"no version", `doc_string: "x"`, "version 0"},
		{"newer version", `version: 2`, "version 2"},
		{"function without a name", `version: 1 functions { key: "" value { opset: "CoreML8" } }`, "no name"},
		{"no opset", `version: 1 functions { key: "f" value { block_specializations { key: "" value { } } } }`, "no opset"},
		{"no block for the opset", `version: 1 functions { key: "f" value { opset: "CoreML8" block_specializations { key: "CoreML7" value { } } } }`, `["CoreML7"]`},
		{"inputs of the body", program(`inputs { name: "z" ` + fp16x4 + ` }`), "inputs of its own"},
		{"unknown value", program(`operations { type: "relu" inputs { key: "x" value { arguments { name: "nope" } } } }`), `function "main": operation 0 (relu): argument "x": value "nope" is not defined`},
		{"later value", program(`operations { type: "relu" inputs { key: "x" value { arguments { name: "y" } } } } ` + relu), `operation 0 (relu): argument "x": value "y" is not defined yet: operation 1 (relu) defines it`},
		{"own result", program(`operations { type: "relu" inputs { key: "x" value { arguments { name: "y" } } } outputs { name: "y" ` + fp16x4 + `} }`), "not defined yet: operation 0"},
		{"value twice", program(relu + strings.Replace(relu, `outputs: "y"`, "", 1)), `operation 1 (relu giving "y"): value "y" is defined twice`},
		{"value named like an input", program(`operations { type: "relu" outputs { name: "x" ` + fp16x4 + `} }`), `value "x" is defined twice`},
		{"value of a block named like one around it", program(`operations { type: "cond" blocks { inputs { name: "x" ` + fp16x4 + ` } } }`), `block 0: inputs: value "x" is defined twice`},
		{"value of a block used outside", program(`operations { type: "cond" blocks { inputs { name: "z" ` + fp16x4 + ` } } } outputs: "z"`), `output 0: value "z" is not defined`},
		{"value without a name", program(`operations { type: "relu" outputs { ` + fp16x4 + `} }`), "without a name"},
		{"value without a type", program(`operations { type: "relu" outputs { name: "y" } }`), "no type"},
		{"operation without a type", program(`operations { }`), "no type"},
		{"unknown output", program(`outputs: "y"`), `output 0: value "y" is not defined`},
		{"argument bound to nothing", program(`operations { type: "relu" inputs { key: "x" value { arguments { } } } }`), "bound to nothing"},
		{"argument without a name", program(`operations { type: "relu" inputs { key: "" value { arguments { name: "x" } } } }`), "without a name"},
		{"attribute without a name", program(`operations { type: "relu" attributes { key: "" value { ` + int32s + `immediate_value { tensor { ints { values: 1 } } } } } }`), "without a name"},
		{"name is a number", program(`operations { type: "relu" attributes { key: "name" value { ` + int32s + `immediate_value { tensor { ints { values: 1 } } } } } }`), "want a string"},
		{"name is a vector", program(`operations { type: "relu" attributes { key: "name" value { ` + tensor(`data_type: STRING rank: 1 dimensions { constant { size: 1 } }`) + `immediate_value { tensor { strings { values: "a" } } } } } }`), "want a string"},
		{"const without a value", program(`operations { type: "const" outputs { name: "c" ` + int32s + ` } }`), `attribute "val"`},
		{"const with a name only", program(`operations { type: "const" attributes { key: "val" value { ` + int32s + `immediate_value { tensor { ints { values: 1 } } } } } }`), "0 results"},
		{"const of another type", program(`operations { type: "const" outputs { name: "c" ` + fp16x4 + ` } attributes { key: "val" value { ` + int32s + `immediate_value { tensor { ints { values: 1 } } } } } }`), `"c" of type tensor<fp16, [4]> is given a constant of type int32`},
		{"value without content", program(constant(int32s, ``)), "no content"},
		{"too few elements", program(imm(fp16x4, `floats { values: [1, 2] }`)), "2 elements, want 4"},
		{"too many elements", program(imm(int32s, `ints { values: [1, 2] }`)), "2 elements, want 1"},
		{"too few bytes", program(imm(fp16x4, `bytes { values: "1234567" }`)), "7 bytes, want 8"},
		{"no element", program(imm(int32s, ``)), "nothing"},
		{"wrong form", program(imm(int32s, `floats { values: 1 }`)), "written as floats"},
		{"bytes for strings", program(imm(str, `bytes { values: "a" }`)), "written as bytes"},
		{"element out of range", program(imm(tensor(`data_type: UINT8`), `ints { values: 256 }`)), "out of range"},
		{"negative unsigned", program(imm(tensor(`data_type: UINT32`), `ints { values: -1 }`)), "out of range"},
		{"huge shape", program(imm(tensor(`data_type: UINT8 rank: 2 dimensions { constant { size: 4294967296 } } dimensions { constant { size: 4294967296 } }`), `bytes { values: "a" }`)), "too large"},
		{"huge literal", program(imm(tensor(`data_type: UINT8 rank: 1 dimensions { constant { size: 1099511627776 } }`), `bytes { values: "a" }`)), "want 1099511627776"},
		{"literal of unknown size", program(imm(tensor(`data_type: UINT8 rank: 1 dimensions { unknown { } }`), `bytes { values: "a" }`)), "unknown"},
		{"tuple for a tensor", program(constant(int32s, `immediate_value { tuple { } }`)), "no content of that kind"},
		{"tensor for a tuple", program(constant(`type { tuple_type { } } `, `immediate_value { tensor { } }`)), "written as a tensor"},
		{"list of another length", program(constant(`type { list_type { type { tensor_type { data_type: INT32 } } length { constant { size: 3 } } } } `, `immediate_value { list { } }`)), "has 0 items"},
		{"list without a length", program(constant(`type { list_type { type { tensor_type { data_type: INT32 } } } } `, `immediate_value { list { } }`)), "neither"},
		{"item in a file", program(constant(`type { tuple_type { types { tensor_type { data_type: INT32 } } } } `, `immediate_value { tuple { values { `+int32s+` blob_file_value { } } } }`)), "item 0"},
		{"weight that is a list", program(constant(`type { tuple_type { } } `, `blob_file_value { file_name: "w" offset: 64 }`)), "cannot be stored"},
		{"weight of unknown size", program(constant(tensor(`data_type: UINT8 rank: 1 dimensions { unknown { } }`), `blob_file_value { file_name: "w" offset: 64 }`)), "cannot be stored"},
		{"weight that is not there", program(constant(fp16x4, `blob_file_value { file_name: "gone" offset: 64 }`)), `"gone": no such weight`},
		{"rank without dimensions", program(imm(tensor(`data_type: INT32 rank: 1`), `ints { values: 1 }`)), "rank 1 with 0"},
		{"unknown rank", program(imm(tensor(`data_type: INT32 rank: -1`), `ints { values: 1 }`)), "unknown rank"},
		{"rank 17", program(imm(tensor(`data_type: INT32 rank: 17 `+strings.Repeat(`dimensions { constant { size: 1 } } `, 17)), `ints { values: 1 }`)), "rank 17"},
		{"dimension of no size", program(imm(tensor(`data_type: INT32 rank: 1 dimensions { }`), `ints { values: 1 }`)), "neither"},
		{"variadic dimension", program(imm(tensor(`data_type: INT32 rank: 1 dimensions { unknown { variadic: true } }`), `ints { values: 1 }`)), "any number"},
		{"dimension of 2^64-1", program(imm(tensor(`data_type: INT32 rank: 1 dimensions { constant { size: 18446744073709551615 } }`), `ints { values: 1 }`)), "too large"},
		{"8-bit float", program(imm(tensor(`data_type: FLOAT8E5M2`), `bytes { values: "a" }`)), "FLOAT8E5M2 is not supported"},
		{"unknown element type", program(imm(tensor(`data_type: 77`), `bytes { values: "a" }`)), "77 is not supported"},
		{"attributes of a type", program(imm(tensor(`data_type: INT32 attributes { key: "a" value { } }`), `ints { values: 1 }`)), "attributes"},
		{"state of a tuple", program(constant(`type { state_type { wrapped_type { tuple_type { } } } } `, ``)), "want a tensor"},
		{"blocks too deep", program(nested), "nested more than 64"},
		{"types too deep", program(constant(list, ``)), "nested more than 64"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			pb := parse(t, c.text)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Decode(pb, DecodeOptions{Weight: func(ref BlobRef, typ mil.Type) (mil.Weight, error) {
				if ref.File == "gone" {
					return nil, errors.New("no such weight")
				}
				return memory(ref, typ)
			}})
			runtime.ReadMemStats(&after)
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("error %v, want one with %q", err, c.want)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
				t.Errorf("%d bytes were allocated", n)
			}
		})
	}
	if _, err := Decode(nil, DecodeOptions{}); err == nil {
		t.Error("nil program decoded")
	}
	// A resolver that gives something else than it was asked for.
	pb := parse(t, program(constant(fp16x4, `blob_file_value { file_name: "w" offset: 64 }`)))
	for _, w := range []mil.Weight{nil, mil.PromiseWeight(mil.TensorOf(mil.Float16, 5), nil)} {
		if _, err := Decode(pb, DecodeOptions{Weight: func(BlobRef, mil.Type) (mil.Weight, error) { return w, nil }}); err == nil || !strings.Contains(err.Error(), "not of type") {
			t.Errorf("resolver gave %v: %v", w, err)
		}
	}
}

func TestEncodeErrors(t *testing.T) {
	x := &mil.Value{Name: "x", Type: mil.TensorOf(mil.Float16, 4)}
	other := &mil.Value{Name: "x", Type: mil.TensorOf(mil.Float16, 4)}
	y := func() *mil.Value { return &mil.Value{Name: "y", Type: mil.TensorOf(mil.Float16, 4)} }
	one := mil.Imm(mil.Int(1))
	function := func(ops []*mil.Operation, outputs ...*mil.Value) *mil.Program {
		return &mil.Program{Functions: []*mil.Function{{Name: "main", Opset: mil.CoreML8, Inputs: []*mil.Value{x}, Body: &mil.Block{Ops: ops, Outputs: outputs}}}}
	}
	op := func(o mil.Operation) *mil.Program {
		if o.Type == "" {
			o.Type = "relu"
		}
		return function([]*mil.Operation{&o})
	}
	loop := &mil.Block{}
	loop.Ops = []*mil.Operation{{Type: "cond", Blocks: []*mil.Block{loop}}}
	f := &mil.Function{Name: "f", Opset: mil.CoreML8, Body: &mil.Block{}}
	weight := mil.ImmWeight(mil.PromiseWeight(mil.TensorOf(mil.Float16, 4), nil))
	cases := []struct {
		name string
		p    *mil.Program
		want string
	}{
		{"fine", function([]*mil.Operation{{Type: "relu", Args: []mil.Arg{mil.A("x", x)}, Results: []*mil.Value{y()}}}, x), ""},
		{"nil function", &mil.Program{Functions: []*mil.Function{nil}}, "without a name"},
		{"function twice", &mil.Program{Functions: []*mil.Function{f, f}}, `two functions named "f"`},
		{"no opset", &mil.Program{Functions: []*mil.Function{{Name: "f", Body: &mil.Block{}}}}, "no opset"},
		{"no body", &mil.Program{Functions: []*mil.Function{{Name: "f", Opset: mil.CoreML8}}}, "no body"},
		{"inputs of the body", &mil.Program{Functions: []*mil.Function{{Name: "f", Opset: mil.CoreML8, Body: &mil.Block{Inputs: []*mil.Value{x}}}}}, "inputs of its own"},
		{"nil input", &mil.Program{Functions: []*mil.Function{{Name: "f", Opset: mil.CoreML8, Inputs: []*mil.Value{nil}, Body: &mil.Block{}}}}, "missing"},
		{"nil operation", function([]*mil.Operation{nil}), "missing"},
		{"no type", function([]*mil.Operation{{}}), "no type"},
		{"another value of that name", op(mil.Operation{Args: []mil.Arg{mil.A("x", other)}}), "another value"},
		{"undefined value", op(mil.Operation{Args: []mil.Arg{mil.A("x", y())}}), `"y" is not defined before`},
		{"nil value", op(mil.Operation{Args: []mil.Arg{mil.A("x", nil)}}), "missing"},
		{"nameless value", op(mil.Operation{Args: []mil.Arg{mil.A("x", &mil.Value{})}}), "without a name"},
		{"argument twice", op(mil.Operation{Args: []mil.Arg{mil.A("x", x), mil.A("x", x)}}), `"x" is given twice`},
		{"value twice", op(mil.Operation{Results: []*mil.Value{y(), y()}}), "defined twice"},
		{"nil result", op(mil.Operation{Results: []*mil.Value{nil}}), "missing"},
		{"untyped result", op(mil.Operation{Results: []*mil.Value{{Name: "y"}}}), "no type"},
		{"attribute twice", op(mil.Operation{Attributes: []mil.Attribute{{Name: "a", Value: one}, {Name: "a", Value: one}}}), "given twice"},
		{"attribute that is no constant", op(mil.Operation{Attributes: []mil.Attribute{{Name: "a", Value: x}}}), "not a constant"},
		{"nil attribute", op(mil.Operation{Attributes: []mil.Attribute{{Name: "a"}}}), "not a constant"},
		{"attribute in the place of the name", op(mil.Operation{Name: "n", Attributes: []mil.Attribute{{Name: "name", Value: one}}}), "reserved"},
		{"constant result of another operation", op(mil.Operation{Results: []*mil.Value{{Name: "y", Type: one.Type, Literal: one.Literal}}}), "not the result of a const"},
		{"const without a value", op(mil.Operation{Type: "const", Results: []*mil.Value{y()}}), "literal or a weight"},
		{"const of another type", op(mil.Operation{Type: "const", Results: []*mil.Value{{Name: "y", Type: x.Type, Literal: one.Literal}}}), "constant of type int32"},
		{"literal and weight", op(mil.Operation{Attributes: []mil.Attribute{{Name: "a", Value: &mil.Value{Literal: one.Literal, Weight: weight.Weight}}}}), "both"},
		{"weight without a place", op(mil.Operation{Args: []mil.Arg{mil.A("x", weight)}}), "no place"},
		{"nil block", op(mil.Operation{Blocks: []*mil.Block{nil}}), "missing"},
		{"block in itself", op(mil.Operation{Blocks: []*mil.Block{loop}}), "nested"},
		{"undefined output", function(nil, y()), `output 0: value "y"`},
		{"nil output", function(nil, nil), "output 0"},
		{"program attribute", &mil.Program{Attributes: []mil.Attribute{{Value: one}}}, "no name"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := Encode(c.p, func(mil.Weight) (BlobRef, error) { return BlobRef{}, errors.New("no place") })
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

// FuzzDecode feeds bytes as protobuf messages: whatever is decoded can be
// encoded, and stays the same from then on.
func FuzzDecode(f *testing.F) {
	for _, text := range []string{everything, program(relu), "version: 1"} {
		b, err := proto.Marshal(parse(f, text))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		pb := &milpb.Program{}
		if err := (proto.UnmarshalOptions{RecursionLimit: 1000}).Unmarshal(b, pb); err != nil {
			return
		}
		refs := map[mil.Weight]BlobRef{}
		opt := DecodeOptions{Weight: func(ref BlobRef, typ mil.Type) (mil.Weight, error) {
			w, err := memory(ref, typ)
			refs[w] = ref
			return w, err
		}}
		place := func(w mil.Weight) (BlobRef, error) { return refs[w], nil }
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		p, err := Decode(pb, opt)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 && len(b) < 1<<16 {
			t.Fatalf("%d bytes were allocated for an input of %d", n, len(b))
		}
		if err != nil {
			return
		}
		one, err := Encode(p, place)
		if err != nil {
			t.Fatalf("decoded but not encoded: %v\n%s", err, hex.Dump(b))
		}
		if p, err = Decode(one, opt); err != nil {
			t.Fatalf("encoded but not decoded: %v", err)
		}
		two, err := Encode(p, place)
		if err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(one, two) {
			t.Fatalf("changed on the second way:\n%s\n%s", prototext.Format(one), prototext.Format(two))
		}
	})
}
