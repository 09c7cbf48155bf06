package predict

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"anemone/internal/runner"
	"anemone/mil"
)

func TestParseJSON(t *testing.T) {
	arrays, err := parseJSON([]byte(`
	{ "list": [[1, 2, 3], [4, 5, 6]], "scalar": -7, "float": [1, 2.5e-1], "flags" : [[true], [false]],
	  "empty": [], "empties": [[], []], "none": [[[]]], "ünamed \"x\"": NaN,
	  "flat": {"shape": [2, 1, 2], "data": [1, 2, 3, 4]},
	  "nested": {"data": [[1, 2], [3, 4]], "dtype": "fp16", "shape": [4]},
	  "object scalar": {"shape": [], "data": 3}, "object one": {"shape": [], "data": [3.5]},
	  "object empty": {"shape": [3, 0, 1000000000000], "data": [], "dtype": "float32"},
	  "words": ["NaN", "Infinity", "-Infinity", Infinity, -Infinity, "inf"]
	} `))
	if err != nil {
		t.Fatal(err)
	}
	want := []struct {
		name  string
		dtype mil.DType
		shape []int
		n     int
	}{
		{"list", mil.Int64, []int{2, 3}, 6},
		{"scalar", mil.Int64, nil, 1},
		{"float", mil.Float64, []int{2}, 2},
		{"flags", mil.Bool, []int{2, 1}, 2},
		{"empty", mil.Int64, []int{0}, 0},
		{"empties", mil.Int64, []int{2, 0}, 0},
		{"none", mil.Int64, []int{1, 1, 0}, 0},
		{"ünamed \"x\"", mil.Float64, nil, 1},
		{"flat", mil.Int64, []int{2, 1, 2}, 4},
		{"nested", mil.Float16, []int{4}, 4},
		{"object scalar", mil.Int64, []int{}, 1},
		{"object one", mil.Float64, []int{}, 1},
		{"object empty", mil.Float32, []int{3, 0, 1e12}, 0},
		{"words", mil.Float64, []int{6}, 6},
	}
	if len(arrays) != len(want) {
		t.Fatalf("%d arrays, want %d", len(arrays), len(want))
	}
	for i, w := range want {
		a := arrays[i]
		v, _, err := a.floats(false)
		if err != nil || a.Name != w.name || a.DType != w.dtype || !slices.Equal(a.Shape, w.shape) || len(v) != w.n {
			t.Errorf("%q %v %v %v, %v; want %+v", a.Name, a.DType, a.Shape, v, err, w)
		}
	}
	if v, err := arrays[0].ints(mil.Int32); err != nil || !slices.Equal(v, []int32{1, 2, 3, 4, 5, 6}) {
		t.Errorf("%v, %v", v, err)
	}
}

func TestParseJSONErrors(t *testing.T) {
	for _, c := range []struct{ err, text string }{
		{"the text ends where '{' should be", ""},
		{"found '[', want '{'", "[1]"},
		{"the text ends where '\"' should be", "{"},
		{"found '1', want '\"'", "{1: 2}"},
		{"want ':'", `{"a" 1}`},
		{"where a number should be", `{"a":`},
		{"found ',', want a number", `{"a": ,}`},
		{"where '}' should be", `{"a": 1`},
		{"found ']', want '}'", `{"a": 1]`},
		{"where ']' should be", `{"a": [1`},
		{"where a number should be", `{"a": [1,`},
		{"found ']', want a number", `{"a": [1,]}`},
		{"found '}', want ']'", `{"a": [1}`},
		{"text after the object", `{"a": 1} 2`},
		{"text after the object", "{}\x00"},
		{`array "a" is given twice`, `{"a": 1, "a": 2}`},
		{"the text ends inside a string", `{"a`},
		{"the text ends inside a string", `{"a\`},
		{"is not a string", `{"a\q": 1}`},
		{"is not a string", "{\"a\xff\": 1}"},
		{"is not a string", "{\"a\n\": 1}"},
		{"null is not a number", `{"a": null}`},
		{`"text" is not a number`, `{"a": ["text"]}`},
		{"01 is not a number", `{"a": 01}`},
		{"+1 is not a number", `{"a": +1}`},
		{".5 is not a number", `{"a": .5}`},
		{"1. is not a number", `{"a": [1.]}`},
		{"1e is not a number", `{"a": [1e]}`},
		{"0x10 is not a number", `{"a": 0x10}`},
		{"1_0 is not a number", `{"a": 1_0}`},
		{"nan is not a number", `{"a": nan}`},
		{"- is not a number", `{"a": -}`},
		{"both numbers and true", `{"a": [1, true]}`},
		{"their lengths differ (2 and 1)", `{"a": [[1, 2], [3]]}`},
		{"their lengths differ (0 and 1)", `{"a": [[], [3]]}`},
		{"lengths differ", `{"a": [1, [2]]}`},
		{"lengths differ", `{"a": [[1], 2]}`},
		{"lengths differ", `{"a": [[], 2]}`},
		{"lengths differ", `{"a": [[[]], [1]]}`},
		{"lengths differ", `{"a": [[1], [[]]]}`},
		{"deeper than 32", `{"a": ` + strings.Repeat("[", 33) + strings.Repeat("]", 33) + `}`},
		{"deeper than 32", `{"a": ` + strings.Repeat("[", 1<<20)},
		{"want both shape and data", `{"a": {}}`},
		{"want both shape and data", `{"a": {"data": [1]}}`},
		{`"data" is given twice`, `{"a": {"data": 1, "data": 2}}`},
		{`key "values" is unknown`, `{"a": {"values": 1}}`},
		{`dtype "f17" is unknown`, `{"a": {"dtype": "f17"}}`},
		{`dtype "string" is unknown`, `{"a": {"dtype": "string"}}`},
		{"2 elements, but shape [3]", `{"a": {"shape": [3], "data": [1, 2]}}`},
		{"0 elements, but shape", `{"a": {"shape": [9223372036854775807, 9223372036854775807], "data": []}}`},
		{"not a list of numbers", `{"a": {"shape": 3, "data": [1]}}`},
		{"not a list of numbers", `{"a": {"shape": [[3]], "data": [1]}}`},
		{"not a list of numbers", `{"a": {"shape": [true], "data": [1]}}`},
		{"not a list of numbers", `{"a": {"shape": [1.0], "data": [1]}}`},
		{"dimension -1 is no size", `{"a": {"shape": [-1], "data": [1]}}`},
		{"dimension 1e+20 is no size", `{"a": {"shape": [100000000000000000000], "data": [1]}}`},
		{"33 dimensions", `{"a": {"shape": [1` + strings.Repeat(",1", 32) + `], "data": [1]}}`},
		{"line 3: x is not", "{\"a\": [\n1,\n x{"},
	} {
		_, err := parseJSON([]byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), "line ") && !strings.Contains(c.err, "twice") {
			t.Errorf("%.60q: error %v does not say %q", c.text, err, c.err)
		}
	}
}

// TestWriteJSON holds what is written to the standard library's parser.
func TestWriteJSON(t *testing.T) {
	half := &runner.Tensor{DType: mil.Float16, Shape: []int{2, 3}, Float: []float32{1, -0.5, inf, -inf, 0x1p-24, 65504}}
	values := []Value{
		pack("h", half, true),
		pack("f", &runner.Tensor{DType: mil.Float32, Shape: nil, Float: []float32{math.Float32frombits(0x15ae43fd)}}, false),
		pack("<i> & \"ü\"", &runner.Tensor{DType: mil.Int32, Shape: []int{2}, Int: []int32{math.MinInt32, 7}}, false),
		pack("b", &runner.Tensor{DType: mil.Bool, Shape: []int{1, 2}, Int: []int32{1, 0}}, false),
		pack("e", &runner.Tensor{DType: mil.Float32, Shape: []int{2, 0}}, false),
		pack("n", &runner.Tensor{DType: mil.Float32, Shape: []int{1}, Float: []float32{float32(math.NaN())}}, false),
	}
	var b bytes.Buffer
	if err := WriteJSON(&b, values); err != nil {
		t.Fatal(err)
	}
	var got map[string]struct {
		DType string
		Shape []int
		Data  []any
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatalf("%v in\n%s", err, b.Bytes())
	}
	want := map[string]string{
		"h":           "{fp16 [2 3] [1 -0.5 Infinity -Infinity 5.9604645e-08 65504]}",
		"f":           "{fp32 [] [7.038531e-26]}",
		"<i> & \"ü\"": "{int32 [2] [-2.147483648e+09 7]}",
		"b":           "{bool [1 2] [true false]}",
		"e":           "{fp32 [2 0] []}",
		"n":           "{fp32 [1] [NaN]}",
	}
	if len(got) != len(want) {
		t.Errorf("%d arrays, want %d", len(got), len(want))
	}
	for k, w := range want {
		if s := fmt.Sprint(got[k]); s != w {
			t.Errorf("%q: %s, want %s", k, s, w)
		}
	}
	f, err := ParseJSON("x.json", b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range f.Arrays {
		v, err := a.value()
		if err != nil || v.Name != values[i].Name || v.DType != values[i].DType || !slices.Equal(v.Shape, values[i].Shape) {
			t.Errorf("%+v, %v, want %+v", v, err, values[i])
			continue
		}
		if a.Name != "n" && !bytes.Equal(v.Data, values[i].Data) {
			t.Errorf("%q: read back % x, want % x", v.Name, v.Data, values[i].Data)
		}
	}
	b.Reset()
	if err := WriteJSON(&b, nil); err != nil || !json.Valid(b.Bytes()) {
		t.Errorf("no arrays: %q, %v", b.Bytes(), err)
	}
}

// lax matches the words that are no JSON but Python's.
var lax = regexp.MustCompile(`NaN|Infinity`)

func FuzzJSON(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"a": 1}`, `{"a": [[1, 2], [3, 4]], "b": true}`, `{"a": {"shape": [1, 2], "data": [1.5, -0e3], "dtype": "fp16"}}`,
		`{"a": [NaN, "Infinity", -Infinity]}`, `{"a": [], "b": [[], []], "\u00e9\n": 1e400}`, `{"a": {"shape": [0, 9999999999], "data": []}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		arrays, err := parseJSON(b)
		if err != nil {
			return
		}
		if !json.Valid(b) && !lax.Match(b) {
			t.Fatalf("%q is not JSON", b)
		}
		var values []Value
		for _, a := range arrays {
			n, ok := mil.NumElements(a.Shape)
			if !ok {
				t.Fatalf("%q: shape %v", a.Name, a.Shape)
			}
			x, _, err := a.floats(false)
			if err != nil || len(x) != n {
				t.Fatalf("%q of shape %v has %d elements, %v", a.Name, a.Shape, len(x), err)
			}
			if ints, err := a.ints(mil.Int32); err == nil {
				for i := range x {
					if x[i] != float32(ints[i]) {
						t.Fatalf("%q: %v and %v", a.Name, x, ints)
					}
				}
			}
			values = append(values, Pack(a.Name, &runner.Tensor{DType: mil.Float32, Shape: a.Shape, Float: x}))
		}
		var out bytes.Buffer
		if err := WriteJSON(&out, values); err != nil || !json.Valid(out.Bytes()) {
			t.Fatalf("%q, %v", out.Bytes(), err)
		}
		back, err := parseJSON(out.Bytes())
		if err != nil || len(back) != len(values) {
			t.Fatalf("%q: %v", out.Bytes(), err)
		}
		for i, a := range back {
			v, err := a.value()
			if err != nil || v.Name != values[i].Name || !slices.Equal(v.Shape, values[i].Shape) || !bytes.Equal(v.Data, values[i].Data) && !bytes.Contains(out.Bytes(), []byte(`"NaN"`)) {
				t.Fatalf("wrote %+v, read %+v, %v", values[i], v, err)
			}
		}
	})
}
