package modelproto

import (
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"anemone/coreml"
	"anemone/coreml/modelproto/modelpb"
	"anemone/mil"
	"anemone/mil/milproto/milpb"
)

// full is a model with every kind of feature.
func full() *coreml.Model {
	return &coreml.Model{
		SpecVersion:     9,
		DefaultFunction: "infer",
		Functions: []coreml.Function{
			{
				Name: "prefill",
				Inputs: []coreml.Feature{
					{Name: "ids", DType: mil.Int32, Shape: []int{1, 1}, Shapes: [][]int{{1, 1}, {1, 64}}, Optional: true, Description: "tokens"},
					{Name: "x", DType: mil.Float32, Shape: []int{1, 2}, Ranges: []coreml.Range{{Min: 1, Max: 1}, {Min: 2, Max: -1}}},
				},
				Outputs: []coreml.Feature{{Name: "y", DType: mil.Float64}},
				States:  []coreml.Feature{{Name: "kv", DType: mil.Float16, Shape: []int{4, 2, 8}}},
			},
			{Name: "infer", Inputs: []coreml.Feature{{Name: "x", DType: mil.Float16, Shape: []int{1}}}},
		},
		Metadata: coreml.Metadata{ShortDescription: "short", Version: "1", Author: "me", License: "MIT", User: map[string]string{"com.anemll.layers": "0-3", "a": ""}},
	}
}

func TestDescriptionRoundTrip(t *testing.T) {
	want := full()
	d, err := EncodeDescription(want)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Marshal(&modelpb.Model{Description: d})
	if err != nil {
		t.Fatal(err)
	}
	m := &modelpb.Model{}
	if err := proto.Unmarshal(b, m); err != nil {
		t.Fatal(err)
	}
	got := &coreml.Model{SpecVersion: 9}
	if err := DecodeDescription(got, m.Description); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("came back as\n%+v\nwant\n%+v", got, want)
	}

	single := &coreml.Model{Functions: []coreml.Function{{Name: "main", Inputs: want.Functions[0].Inputs, Outputs: want.Functions[0].Outputs, States: want.Functions[0].States}}}
	if d, err = EncodeDescription(single); err != nil {
		t.Fatal(err)
	}
	if len(d.Functions) != 0 || len(d.Input) != 2 || len(d.Output) != 1 || len(d.State) != 1 {
		t.Errorf("single-function form: %v", d)
	}
	got = &coreml.Model{}
	if err := DecodeDescription(got, d); err != nil || !reflect.DeepEqual(got, single) {
		t.Errorf("single-function form came back as %+v (%v), want %+v", got, err, single)
	}
}

// TestWire compares the stored form with bytes written out by hand, the ones
// that the research on compiled bundles found in Apple's own files: an input
// "x" [1, 10] fp16, a state, and two functions.
func TestWire(t *testing.T) {
	hs := func(n int) []coreml.Feature {
		return []coreml.Feature{{Name: "hs", DType: mil.Float16, Shape: []int{1, n}}}
	}
	m := &coreml.Model{
		DefaultFunction: "infer",
		Functions: []coreml.Function{
			{Name: "infer", Inputs: hs(10), States: []coreml.Feature{{Name: "kv", DType: mil.Float16, Shape: []int{56, 8, 2048, 128}}}},
			{Name: "p", Inputs: []coreml.Feature{{Name: "i", DType: mil.Int32, Shape: []int{1}}}},
		},
	}
	d, err := EncodeDescription(m)
	if err != nil {
		t.Fatal(err)
	}
	got, err := proto.MarshalOptions{Deterministic: true}.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	fn0 := "\x0a\x05infer" +
		"\x12\x10\x0a\x02hs\x1a\x0a\x2a\x08\x0a\x02\x01\x0a\x10\x90\x80\x04" +
		"\x32\x16\x0a\x02kv\x1a\x10\x42\x0e\x0a\x0c\x0a\x06\x38\x08\x80\x10\x80\x01\x10\x90\x80\x04"
	fn1 := "\x0a\x01p" + "\x12\x0e\x0a\x01i\x1a\x09\x2a\x07\x0a\x01\x01\x10\xa0\x80\x08"
	want := "\xa2\x01" + string(byte(len(fn0))) + fn0 +
		"\xa2\x01" + string(byte(len(fn1))) + fn1 +
		"\xaa\x01\x05infer" +
		"\xa2\x06\x00" // empty metadata
	if string(got) != want {
		t.Errorf("stored as\n%x\nwant\n%x", got, want)
	}
}

func TestEncodeDescriptionErrors(t *testing.T) {
	f := func(x coreml.Feature) *coreml.Model {
		x.Name = "x"
		return &coreml.Model{Functions: []coreml.Function{{Name: "main", Inputs: []coreml.Feature{x}}}}
	}
	for _, c := range []struct {
		m    *coreml.Model
		want string
	}{
		{&coreml.Model{}, "0 functions"},
		{&coreml.Model{Functions: make([]coreml.Function, 2)}, "no default function"},
		{f(coreml.Feature{DType: mil.UInt8}), "uint8 cannot be features"},
		{f(coreml.Feature{DType: mil.Int32, Shape: []int{-1}}), "unknown dimension"},
		{f(coreml.Feature{DType: mil.Int32, Shapes: [][]int{{-1}}}), "unknown dimension"},
		{f(coreml.Feature{DType: mil.Int32, Shapes: [][]int{{1}}, Ranges: []coreml.Range{{}}}), "both"},
		{f(coreml.Feature{DType: mil.Int32, Ranges: []coreml.Range{{Min: 2, Max: 1}}}), "no range from 2 to 1"},
		{&coreml.Model{Functions: []coreml.Function{{States: []coreml.Feature{{DType: mil.Float16, Shapes: [][]int{{1}}}}}}}, "one shape"},
		{&coreml.Model{Functions: []coreml.Function{{Outputs: []coreml.Feature{{DType: mil.String}}}}}, "output"},
	} {
		if _, err := EncodeDescription(c.m); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want one with %q", c.m, err, c.want)
		}
	}
}

func TestDecodeDescriptionErrors(t *testing.T) {
	array := func(a *modelpb.ArrayFeatureType) *modelpb.ModelDescription {
		return &modelpb.ModelDescription{Input: []*modelpb.FeatureDescription{{Name: "x", Type: &modelpb.FeatureType{Type: &modelpb.FeatureType_MultiArrayType{MultiArrayType: a}}}}}
	}
	// An image is field 4 of a feature's type, which is not in our schema.
	image := &modelpb.FeatureType{}
	if err := proto.Unmarshal([]byte{0x22, 0x00}, image); err != nil {
		t.Fatal(err)
	}
	i32 := modelpb.ArrayFeatureType_INT32
	for _, c := range []struct {
		d    *modelpb.ModelDescription
		want string
	}{
		{&modelpb.ModelDescription{Input: []*modelpb.FeatureDescription{{Name: "x", Type: image}}}, `input "x" is not a multi-array`},
		{&modelpb.ModelDescription{State: []*modelpb.FeatureDescription{{Name: "x"}}}, `state "x" is not a multi-array`},
		{array(&modelpb.ArrayFeatureType{}), "unknown type 0"},
		{array(&modelpb.ArrayFeatureType{DataType: 7}), "unknown type 7"},
		{array(&modelpb.ArrayFeatureType{DataType: i32, Shape: []int64{-1}}), "out of range"},
		{array(&modelpb.ArrayFeatureType{DataType: i32, ShapeFlexibility: &modelpb.ArrayFeatureType_EnumeratedShapes_{EnumeratedShapes: &modelpb.ArrayFeatureType_EnumeratedShapes{Shapes: []*modelpb.ArrayFeatureType_Shape{{Shape: []int64{-1}}}}}}), "out of range"},
		{array(&modelpb.ArrayFeatureType{DataType: i32, ShapeFlexibility: &modelpb.ArrayFeatureType_ShapeRange_{ShapeRange: &modelpb.ArrayFeatureType_ShapeRange{SizeRanges: []*modelpb.SizeRange{{LowerBound: 3, UpperBound: 2}}}}}), "no range from 3 to 2"},
		{array(&modelpb.ArrayFeatureType{DataType: i32, ShapeFlexibility: &modelpb.ArrayFeatureType_ShapeRange_{ShapeRange: &modelpb.ArrayFeatureType_ShapeRange{SizeRanges: []*modelpb.SizeRange{{LowerBound: 1 << 63, UpperBound: -1}}}}}), "no range"},
		{&modelpb.ModelDescription{Functions: []*modelpb.FunctionDescription{{Name: "f"}}, Input: []*modelpb.FeatureDescription{{}}}, "one of the two"},
	} {
		if err := DecodeDescription(&coreml.Model{}, c.d); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: error %v, want one with %q", c.d, err, c.want)
		}
	}
	m := &coreml.Model{}
	if err := DecodeDescription(m, &modelpb.ModelDescription{Functions: []*modelpb.FunctionDescription{{Name: "f"}}}); err != nil || m.DefaultFunction != "f" {
		t.Errorf("functions without a default: %v, %q", err, m.DefaultFunction)
	}
}

func TestUnmarshalKinds(t *testing.T) {
	field := func(n int) []byte {
		b := protowire.AppendTag([]byte{0x08, 0x09}, protowire.Number(n), protowire.BytesType) // specificationVersion 9
		return protowire.AppendBytes(b, nil)
	}
	for _, c := range []struct {
		b    []byte
		want string
	}{
		{field(502), ""},
		{field(500), "the model is a neural network (type 500)"},
		{field(202), "the model is a pipeline (type 202)"},
		{field(3000), "the model is a serialized model (type 3000)"},
		{append(field(500), field(502)...), ""},
		{append(field(502), field(402)...), "tree ensemble classifier"},
		{field(777), "no model of a known kind"},
		{nil, "no model of a known kind"},
		{[]byte("PK\x03\x04"), "not a model specification"},
		{field(502)[:4], "not a model specification"},
		{protowire.AppendBytes(protowire.AppendTag(nil, 502, protowire.BytesType), []byte{0x08}), "damaged"},
	} {
		m, err := Unmarshal(c.b)
		switch {
		case c.want == "" && (err != nil || m.GetSpecificationVersion() != 9 || m.GetMlProgram() == nil):
			t.Errorf("%x: %v, %v", c.b, m, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%x: error %v, want one with %q", c.b, err, c.want)
		}
	}
	if k := Kind(12); k.String() != "kind 12" {
		t.Errorf("unknown kind is %q", k)
	}
	// Nesting without end must not exhaust the stack.
	v := &milpb.Value{}
	for range 2000 {
		v = &milpb.Value{Value: &milpb.Value_ImmediateValue{ImmediateValue: &milpb.Value_Immediate{Value: &milpb.Value_Immediate_List{List: &milpb.ListValue{Values: []*milpb.Value{v}}}}}}
	}
	b, err := Marshal(&modelpb.Model{Type: &modelpb.Model_MlProgram{MlProgram: &milpb.Program{Attributes: map[string]*milpb.Value{"a": v}}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Unmarshal(b); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("6000 levels: %v", err)
	}
}

// TestUnknownFieldsPass checks that what our schema leaves out survives.
func TestUnknownFieldsPass(t *testing.T) {
	b := protowire.AppendTag(nil, 502, protowire.BytesType)
	b = protowire.AppendBytes(b, nil)
	b = protowire.AppendTag(b, 4242, protowire.BytesType)
	b = protowire.AppendBytes(b, []byte("new"))
	m, err := Unmarshal(b)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Marshal(m); err != nil || string(got) != string(b) {
		t.Errorf("%x became %x (%v)", b, got, err)
	}
}

// valid is a model that passes every check; each case below breaks one.
func valid() *coreml.Model {
	fp16 := func(name string, shape ...int) *mil.Value {
		return &mil.Value{Name: name, Type: mil.TensorOf(mil.Float16, shape...)}
	}
	ids := &mil.Value{Name: "ids", Type: mil.TensorOf(mil.Int32, 1, mil.Dynamic)}
	kv := &mil.Value{Name: "kv", Type: mil.StateOf(mil.Float16, 2, 4)}
	y := fp16("y", 1, mil.Dynamic)
	return &coreml.Model{
		SpecVersion:     9,
		DefaultFunction: "infer",
		Functions: []coreml.Function{{
			Name: "infer",
			Inputs: []coreml.Feature{
				{Name: "ids", DType: mil.Int32, Shape: []int{1, 1}, Shapes: [][]int{{1, 1}, {1, 64}}},
				{Name: "x", DType: mil.Float16, Shape: []int{3, 5}, Ranges: []coreml.Range{{Min: 3, Max: 3}, {Min: 1, Max: -1}}},
			},
			Outputs: []coreml.Feature{{Name: "y", DType: mil.Float16}},
			States:  []coreml.Feature{{Name: "kv", DType: mil.Float16, Shape: []int{2, 4}}},
		}},
		Program: &mil.Program{Functions: []*mil.Function{{
			Name: "infer", Opset: mil.CoreML8,
			Inputs: []*mil.Value{ids, fp16("x", 3, mil.Dynamic), kv},
			Body:   &mil.Block{Ops: []*mil.Operation{{Type: "foo", Results: []*mil.Value{y}}}, Outputs: []*mil.Value{y}},
		}}},
	}
}

func TestCheck(t *testing.T) {
	fd := func(m *coreml.Model) *coreml.Function { return &m.Functions[0] }
	fn := func(m *coreml.Model) *mil.Function { return m.Program.Functions[0] }
	named := func(name string) func(m *coreml.Model) {
		return func(m *coreml.Model) { fd(m).Inputs[1].Name, fn(m).Inputs[1].Name = name, name }
	}
	loop := &mil.Block{}
	loop.Ops = []*mil.Operation{{Type: "cond", Blocks: []*mil.Block{loop}}}
	cases := []struct {
		name   string
		damage func(m *coreml.Model)
		want   string
	}{
		{"fine", func(m *coreml.Model) {}, ""},
		{"no program", func(m *coreml.Model) { m.Program = nil }, "without a program"},
		{"no function", func(m *coreml.Model) { m.Functions = nil }, "without a function"},
		{"single form by another name", func(m *coreml.Model) { m.DefaultFunction = "" }, `named "main"`},
		{"default function missing", func(m *coreml.Model) { m.DefaultFunction = "prefill" }, `"prefill" does not exist`},
		{"function described twice", func(m *coreml.Model) { m.Functions = append(m.Functions, m.Functions[0]) }, "described twice"},
		{"described function missing", func(m *coreml.Model) { m.Functions = append(m.Functions, coreml.Function{Name: "f"}) }, `"f" is described but not`},
		{"function not described", func(m *coreml.Model) {
			m.Program.Functions = append(m.Program.Functions, &mil.Function{Name: "f", Opset: mil.CoreML8, Body: &mil.Block{}})
		}, `"f" of the program is not`},
		{"function twice", func(m *coreml.Model) { m.Program.Functions = append(m.Program.Functions, fn(m)) }, "two functions"},
		{"nil function", func(m *coreml.Model) { m.Program.Functions[0] = nil }, "nil"},
		{"nil body", func(m *coreml.Model) { fn(m).Body = nil }, "nil"},
		{"nil operation", func(m *coreml.Model) { fn(m).Body.Ops = append(fn(m).Body.Ops, nil) }, "operation 1 is nil"},
		{"nil result", func(m *coreml.Model) { fn(m).Body.Ops[0].Results = []*mil.Value{nil} }, "is nil"},
		{"nil argument", func(m *coreml.Model) { fn(m).Body.Ops[0].Args = []mil.Arg{mil.A("x", nil)} }, "is nil"},
		{"nil attribute", func(m *coreml.Model) { fn(m).Body.Ops[0].Attributes = []mil.Attribute{{Name: "a"}} }, "is nil"},
		{"nil output", func(m *coreml.Model) { fn(m).Body.Outputs[0] = nil }, "nil"},
		{"nil input", func(m *coreml.Model) { fn(m).Inputs[0] = nil }, "nil"},
		{"block in itself", func(m *coreml.Model) { fn(m).Body = loop }, "nested"},
		{"input missing in the program", func(m *coreml.Model) { fn(m).Inputs = fn(m).Inputs[1:] }, `input "ids" of the description`},
		{"input missing in the description", func(m *coreml.Model) { fd(m).Inputs = fd(m).Inputs[1:] }, `input "ids" of the program`},
		{"input described twice", func(m *coreml.Model) { fd(m).Inputs = append(fd(m).Inputs, fd(m).Inputs[0]) }, "twice"},
		{"output missing", func(m *coreml.Model) { fd(m).Outputs[0].Name = "z" }, `output "z" of the description`},
		{"output not described", func(m *coreml.Model) { fd(m).Outputs = nil }, `output "y" of the program`},
		{"state as input", func(m *coreml.Model) { fd(m).Inputs, fd(m).States = append(fd(m).Inputs, fd(m).States...), nil }, `input "kv"`},
		{"input as state", func(m *coreml.Model) {
			fd(m).Inputs, fd(m).States = fd(m).Inputs[:1], append(fd(m).States, fd(m).Inputs[1])
		}, `state "x"`},
		{"dtype", func(m *coreml.Model) { fd(m).Inputs[1].DType = mil.Float32 }, "described as fp32"},
		{"output dtype", func(m *coreml.Model) { fd(m).Outputs[0].DType = mil.Float32 }, "described as fp32"},
		{"output shape", func(m *coreml.Model) { fd(m).Outputs[0].Shape = []int{2, 7} }, "described with shape [2 7]"},
		{"output shape that fits", func(m *coreml.Model) { fd(m).Outputs[0].Shape = []int{1, 7} }, ""},
		{"state shape", func(m *coreml.Model) { fd(m).States[0].Shape = []int{2, 5} }, "described with shape [2 5]"},
		{"static input", func(m *coreml.Model) { fn(m).Inputs[0].Type.Shape = []int{1, 1} }, "tensor<int32, [1, ?]>, not tensor<int32, [1, 1]>"},
		{"range of another rank", func(m *coreml.Model) { fd(m).Inputs[1].Ranges = fd(m).Inputs[1].Ranges[1:] }, "1 ranges"},
		{"default outside its range", func(m *coreml.Model) { fd(m).Inputs[1].Shape[0] = 4 }, "not within 3 to 3"},
		{"default not enumerated", func(m *coreml.Model) { fd(m).Inputs[0].Shapes = [][]int{{1, 2}, {1, 3}} }, "not among"},
		{"enumerated of another rank", func(m *coreml.Model) { fd(m).Inputs[0].Shapes[1] = []int{1} }, "rank"},
		{"specification 8", func(m *coreml.Model) { m.SpecVersion = 8 }, "need version 9"},
		{"specification 11", func(m *coreml.Model) { m.SpecVersion = 11 }, "unknown"},
		{"opset too new", func(m *coreml.Model) { fn(m).Opset = "CoreML9" }, "needs specification version 10"},
		{"opset unknown", func(m *coreml.Model) { fn(m).Opset = "CoreML4" }, "unknown opset"},
		{"input named state", named("state"), "reserved word"},
		{"input named fp16", named("fp16"), "reserved word"},
		{"input named uint4", named("uint4"), "reserved word"},
		{"input with a dot", named("a.b"), "the name is not"},
		{"input with a digit first", named("1a"), "the name is not"},
		{"input without a name", named(""), "the name is not"},
		{"input with an @", named("_a@2"), ""},
		{"result named tensor", func(m *coreml.Model) {
			fn(m).Body.Ops = append(fn(m).Body.Ops, &mil.Operation{Type: "bar", Results: []*mil.Value{{Name: "tensor"}}})
		}, `value "tensor" of operation bar`},
		{"value of a block named list", func(m *coreml.Model) {
			fn(m).Body.Ops = append(fn(m).Body.Ops, &mil.Operation{Type: "cond", Blocks: []*mil.Block{{Inputs: []*mil.Value{{Name: "list"}}}}})
		}, `value "list" of operation cond`},
		{"function named func", func(m *coreml.Model) { m.DefaultFunction, fd(m).Name, fn(m).Name = "func", "func", "func" }, "reserved word"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := valid()
			c.damage(m)
			err := Check(m)
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
	// CheckNames is content with types that disagree.
	m := valid()
	fd(m).Inputs[1].DType = mil.Float32
	if err := CheckNames(m); err != nil {
		t.Error(err)
	}
	if m.Program = nil; CheckNames(m) == nil {
		t.Error("model without a program passes")
	}
}
