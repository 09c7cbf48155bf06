package miltext

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"anemone/internal/testutil"
	"anemone/mil"
)

// place is a weight that knows its place, and nothing else.
type place struct {
	t   mil.Type
	ref BlobRef
}

func (p *place) Type() mil.Type                          { return p.t }
func (p *place) WriteTo(io.Writer) (int64, error)        { return 0, errors.New("no bytes") }
func placed(ref BlobRef, t mil.Type) (mil.Weight, error) { return &place{t, ref}, nil }

func refOf(w mil.Weight) (BlobRef, error) {
	if p, ok := w.(*place); ok {
		return p.ref, nil
	}
	return BlobRef{}, errors.New("not placed")
}

func parse(t testing.TB, text string) *mil.Program {
	t.Helper()
	p, err := Parse([]byte(text), ParseOptions{Weight: placed})
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return p
}

func print(t testing.TB, p *mil.Program, d Dialect) string {
	t.Helper()
	var b bytes.Buffer
	if err := Print(&b, p, PrintOptions{Dialect: d, Blob: refOf}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestSamples parses every model.mil of the samples and prints it again.
func TestSamples(t *testing.T) {
	root := testutil.Shared(t, "samples", "mlmodelc")
	all, same := 0, 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "model.mil" {
			return err
		}
		all++
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		dialect, err := ParseDialect(text)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			return nil
		}
		p, err := Parse(text, ParseOptions{Weight: placed})
		if err != nil {
			t.Errorf("%s: %v", path, err)
			return nil
		}
		if filepath.Base(filepath.Dir(path)) == "coremltools__add_model.mlmodelc" {
			text = bytes.TrimSuffix(text, []byte("\n")) // which its repository added
		}
		if got := print(t, p, dialect); got == string(text) {
			same++
		} else {
			t.Errorf("%s: %s", path, difference(got, string(text)))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if all != 58 || same != all {
		t.Errorf("%d of %d texts printed as they were, want 58 of 58", same, all)
	}
}

func difference(got, want string) string {
	i := 0
	for i < len(got) && i < len(want) && got[i] == want[i] {
		i++
	}
	return fmt.Sprintf("differs at byte %d: %.60q, want %.60q", i, got[i:], want[i:])
}

// golden holds one of everything, in both dialects. It is written by hand
// after the format's description.
var golden = map[Dialect]string{
	V13: `program(1.3)
[buildInfo = dict<string, string>({{"a", "1"}, {"b", "2"}})]
{
    func infer<ios18>(tensor<fp16, [1, ?]> x, state<tensor<fp16, [2, 3]>> z) [info = tuple<string, list<tensor<int32, [2]>, ?>, dict<string, tensor<int32, [?]>>>(("r", [[0, 4], [1, 1]], {{"x", [1, 4]}, {"y", []}}))] {
            bool yes = const()[name = string("op_yes"), val = bool(true)];
            tensor<fp16, [2, 3]> w = const()[name = string("w"), val = tensor<fp16, [2, 3]>(BLOBFILE(path = string("@model_path/weights/weight.bin"), offset = uint64(64)))];
            tensor<fp16, [2, 3]> lut = constexpr_lut_to_dense(indices = tensor<uint6, [2, 3]>(BLOBFILE(path = string("@model_path/weights/weight.bin"), offset = uint64(192))), lut = tensor<fp16, [1, 1, 64, 1]>(BLOBFILE(path = string("@model_path/weights/weight.bin"), offset = uint64(320))))[name = string("lut")];
            tensor<fp16, [2, 3]> old = read_state(input = z)[name = string("old")];
            tensor<fp16, [4, 3]> both = concat(axis = int32(0), interleave = bool(false), values = (old, lut))[name = string("both")];
            tensor<fp16, [2, 3]> one = concat(axis = int32(0), interleave = bool(false), values = (w));
            tensor<fp16, [4, 1]> best, tensor<uint16, [4, 1]> where = topk(axis = int32(1), k = int32(1), x = both)[name = string("topk \"1\"\\\n\t")];
            write_state(data = one, input = z)[name = string("write")];
        } -> (best, where, x);
    func prefill<ios17>() {
            tensor<string, [2]> s = const()[val = tensor<string, [2]>(["a", "é"])];
            tensor<fp32, [8]> f = const()[val = tensor<fp32, [8]>([0x0p+0, -0x0p+0, 0x1p-1, -0x1.388p+13, 0x1.fffffep+127, inf, -inf, nan])];
            tensor<fp16, [3]> h = const()[val = tensor<fp16, [3]>([0x1p-24, 0x1.5p-17, 0x1.ffcp+15])];
            tensor<int8, [2, 2]> i = const()[val = tensor<int8, [2, 2]>([[0, -128], [127, 1]])];
            tensor<int64, [2]> l = const()[val = tensor<int64, [2]>([-9223372036854775808, 9223372036854775807])];
            uint64 u = const()[val = uint64(18446744073709551615)];
            tensor<bool, [2]> b = const()[val = tensor<bool, [2]>([true, false])];
            tensor<int32, [0]> e = const()[val = tensor<int32, [0]>([])];
            tensor<int32, [2, 0, 3]> e2 = const()[val = tensor<int32, [2, 0, 3]>([[], []])];
        } -> (s, f);
}`,
	V10: `program(1.0)
[buildInfo = dict<tensor<string, []>, tensor<string, []>>({{"a", "1"}})]
{
    func main<ios16>(tensor<fp32, [4]> x) {
            tensor<int32, []> axis = const()[name = tensor<string, []>("axis"), val = tensor<int32, []>(-1)];
            tensor<fp32, [2, 2]> w = constexpr_affine_dequantize()[axis = tensor<int32, []>(0), name = tensor<string, []>("w"), quantized_data = tensor<int8, [2, 2]>(BLOBFILE(path = tensor<string, []>("@model_path/weights/weight.bin"), offset = tensor<uint64, []>(64))), scale = tensor<fp32, []>(0x1p-1), zero_point = tensor<int8, []>(-1)];
            tensor<fp32, []> y = reduce_sum(axes = tensor<int32, [1]>([0]), keep_dims = tensor<bool, []>(false), x = x)[name = tensor<string, []>("y")];
        } -> (y);
}`,
}

func TestGolden(t *testing.T) {
	for d, text := range golden {
		p := parse(t, text)
		if got := print(t, p, d); got != text {
			t.Errorf("%v: %s", d, difference(got, text))
		}
		if got, err := ParseDialect([]byte(text)); got != d || err != nil {
			t.Errorf("dialect %v, %v; want %v", got, err, d)
		}
		// The other dialect is read as the same program.
		other := V10 + V13 - d
		if got := print(t, parse(t, print(t, p, other)), d); got != text {
			t.Errorf("%v by way of %v: %s", d, other, difference(got, text))
		}
	}
}

// TestMeaning looks at what the golden text says.
func TestMeaning(t *testing.T) {
	p := parse(t, golden[V13])
	if len(p.Functions) != 2 || p.Functions[0].Name != "infer" || p.Functions[0].Opset != mil.CoreML8 || p.Functions[1].Opset != mil.CoreML7 {
		t.Fatalf("functions %+v", p.Functions)
	}
	f := p.Function("infer")
	if got := f.Input("z").Type; !got.Equal(mil.StateOf(mil.Float16, 2, 3)) {
		t.Errorf("state %v", got)
	}
	if got := f.Input("x").Type; !got.Equal(mil.TensorOf(mil.Float16, 1, mil.Dynamic)) {
		t.Errorf("input %v", got)
	}
	op := map[string]*mil.Operation{}
	for _, o := range f.Body.Ops {
		if len(o.Results) > 0 {
			op[o.Results[0].Name] = o
		}
	}
	if o := op["yes"]; o.Name != "op_yes" || !o.Results[0].Literal.Bools[0] || len(o.Attributes) != 0 || o.Results[0].Op != o {
		t.Errorf("yes: %+v", o)
	}
	if v := op["both"].Arg("values"); len(v) != 2 || v[0] != op["old"].Results[0] || v[1] != op["lut"].Results[0] {
		t.Errorf("both: %+v", v)
	}
	if v := op["both"].Value("axis"); v.Name != "" || !v.Type.Equal(mil.TensorOf(mil.Int32)) || v.Literal.Ints[0] != 0 {
		t.Errorf("axis: %+v", v)
	}
	if w := op["lut"].Value("lut").Weight.(*place); w.ref != (BlobRef{"@model_path/weights/weight.bin", 320}) || !w.t.Equal(mil.TensorOf(mil.Float16, 1, 1, 64, 1)) {
		t.Errorf("lut: %+v", w)
	}
	if got := op["best"]; len(got.Results) != 2 || got.Results[1].Name != "where" || got.Name != "topk \"1\"\\\n\t" {
		t.Errorf("topk: %+v", got)
	}
	if last := f.Body.Ops[len(f.Body.Ops)-1]; last.Type != "write_state" || len(last.Results) != 0 {
		t.Errorf("last: %+v", last)
	}
	if out := f.Body.Outputs; len(out) != 3 || out[2] != f.Input("x") {
		t.Errorf("outputs %v", out)
	}
	info := f.Attributes[0].Value.Literal
	if got := info.Items[1].Items[1].Ints; len(got) != 2 || got[0] != 1 || got[1] != 1 {
		t.Errorf("list: %v", got)
	}
	if y := info.Items[2].Items[3]; !y.Type.Equal(mil.TensorOf(mil.Int32, 0)) {
		t.Errorf("empty element of a dict: %v", y.Type)
	}
	lit := func(name string) *mil.Literal {
		for _, o := range p.Function("prefill").Body.Ops {
			if o.Results[0].Name == name {
				return o.Results[0].Literal
			}
		}
		return nil
	}
	fl := lit("f").Floats
	want := []float64{0, math.Copysign(0, -1), 0.5, -10000, math.MaxFloat32, math.Inf(1), math.Inf(-1)}
	for i, w := range want {
		if fl[i] != w || math.Signbit(fl[i]) != math.Signbit(w) {
			t.Errorf("float %d is %v, want %v", i, fl[i], w)
		}
	}
	if !math.IsNaN(fl[7]) {
		t.Errorf("float 7 is %v", fl[7])
	}
	if h := lit("h").Floats; h[0] != 5.960464477539063e-08 || h[1] != 1.3125/131072 || h[2] != 65504 {
		t.Errorf("halves %v", h)
	}
	if u := lit("u").Ints[0]; u != -1 {
		t.Errorf("uint64 %d", u)
	}
	if s := lit("s").Strings; s[1] != "é" {
		t.Errorf("strings %q", s)
	}
}

// TestBlocks has the layout of operations with blocks.
func TestBlocks(t *testing.T) {
	const text = `program(1.3)
{
    func main<ios17>(bool p, tensor<fp32, [4]> x) {
            int32 zero = const()[val = int32(0)];
            int32 two = const()[val = int32(2)];
            int32 end, tensor<fp32, [4]> looped = while_loop(loop_vars = (zero, x))[name = string("loop")]
                (int32 i, tensor<fp32, [4]> carried) {
                    bool go = less(x = i, y = two);
                } -> (go)
                (int32 i, tensor<fp32, [4]> carried) {
                    int32 next = add(x = i, y = int32(1));
                    tensor<fp32, [4]> inner = cond(pred = p)
                        () {
                            tensor<fp32, [4]> r = add(x = carried, y = x);
                        } -> (r)
                        () {
                            tensor<fp32, [4]> r = sub(x = carried, y = x);
                        } -> (r);
                } -> (next, inner);
        } -> (looped);
}`
	p := parse(t, text)
	if got := print(t, p, V13); got != text {
		t.Error(difference(got, text))
	}
	if err := mil.Verify(p); err != nil && !errors.Is(err, mil.ErrUnknownOp) {
		t.Error(err)
	}
	loop := p.Functions[0].Body.Ops[2]
	if len(loop.Blocks) != 2 || loop.Name != "loop" || loop.Blocks[1].Inputs[0].Name != "i" {
		t.Errorf("loop: %+v", loop)
	}
	inner := loop.Blocks[1].Ops[1]
	if len(inner.Blocks) != 2 || len(inner.Blocks[0].Inputs) != 0 || inner.Blocks[0].Ops[0].Value("x") != loop.Blocks[1].Inputs[1] {
		t.Errorf("cond: %+v", inner)
	}
}

// TestSharing: two references to the same place are one weight, unless they
// differ in type; white space and order are free.
func TestSharing(t *testing.T) {
	const blob = `BLOBFILE(path=string("@model_path/w"),offset=uint64(64))`
	calls := 0
	text := "program(1.3) {func main<ios18>() {\n" +
		"tensor<fp16,[4]>a=const()[val=tensor<fp16,[4]>(" + blob + "),name=string(\"n\")];" +
		"\ttensor<fp16,[4]>b = add(y = tensor<fp16, [4]>(" + strings.ReplaceAll(blob, "string(", "tensor<string, []>(") + ") , x=a ) ;\r\n" +
		"tensor<uint16,[4]>c=const()[val=tensor<uint16,[4]>(" + blob + ")];" +
		"}->(b);}\n"
	p, err := Parse([]byte(text), ParseOptions{Weight: func(ref BlobRef, t mil.Type) (mil.Weight, error) {
		calls++
		return placed(ref, t)
	}})
	if err != nil {
		t.Fatal(err)
	}
	ops := p.Functions[0].Body.Ops
	a, b, c := ops[0].Results[0].Weight, ops[1].Value("y").Weight, ops[2].Results[0].Weight
	if a != b || a == c || calls != 2 {
		t.Errorf("weights %p %p %p in %d calls", a, b, c, calls)
	}
	if args := ops[1].Args; args[0].Name != "x" || args[1].Name != "y" {
		t.Errorf("arguments not sorted: %+v", args)
	}
	if ops[0].Name != "n" {
		t.Errorf("name %q", ops[0].Name)
	}
}

// TestParseErrors has texts that are refused, with the place and the reason.
func TestParseErrors(t *testing.T) {
	body := func(s string) string {
		return "program(1.3)\n{\n func main<ios18>(tensor<fp16, [2]> x) {\n" + s + "\n } -> (x);\n}"
	}
	deepTypes := strings.Repeat("list<", 70)
	nest := func(n int) string {
		s := ""
		for range n {
			s += "cond(pred = x) () {"
		}
		return s
	}
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "line 1, column 1: not the text of an ML Program: want \"program\", found the end of the text"},
		{"other text", "{}", "line 1, column 1: not the text of an ML Program: want \"program\", found \"{\""},
		{"later version", "program(1.4){}", "line 1, column 9: text of version 1.4; this program knows 1.0 and 1.3"},
		{"no version", "program(){}", "want the version of the text"},
		{"no end", "program(1.3){", "line 1, column 14: want \"func\", found the end of the text"},
		{"after the end", "program(1.3){} x", "line 1, column 16: want the end of the text, found \"x\""},
		{"null byte", "program(1.3){}\x00", "want the end of the text"},
		{"opset", "program(1.3){func f<ios26>(){}->();}", "line 1, column 21 (function \"f\"): operation set \"ios26\" is not known; this program knows ios15 to ios19"},
		{"two functions", "program(1.3){func f<ios18>(){}->(); func f<ios18>(){}->();}", "line 1, column 42: two functions are named \"f\""},
		{"input twice", "program(1.3){func f<ios18>(bool a, bool a){}->();}", "column 41 (function \"f\"): value \"a\" is defined twice"},
		{"comma at the end", "program(1.3){func f<ios18>(bool a,){}->();}", "want a type, found \")\""},
		{"undefined", body("bool a = foo(x = b);"), "line 4, column 18 (function \"main\"): value \"b\" is not defined"},
		{"cycle", body("bool a = foo(x = b);\nbool b = foo(x = a);"), "line 4, column 18 (function \"main\"): value \"b\" is not defined yet: line 5 defines it"},
		{"own result", body("tensor<bool, [1]> a = foo(x = a);"), "value \"a\" is not defined"},
		{"second result", body("bool a = foo(x = c);\nbool b, tensor<bool, [1]> c = foo(x = x);"), "value \"c\" is not defined yet: line 5 defines it"},
		{"output", "program(1.3){func f<ios18>(){}->(y);}", "value \"y\" is not defined"},
		{"defined twice", body("bool x = foo();"), "line 4, column 6 (function \"main\"): value \"x\" is defined twice"},
		{"no type", body("float32 a = foo();"), "line 4, column 1 (function \"main\"): there is no type \"float32\""},
		{"no element type", body("tensor<fp8, [1]> a = foo();"), "line 4, column 8 (function \"main\"): there is no element type \"fp8\""},
		{"negative dimension", body("tensor<fp16, [-1]> a = foo();"), "want a dimension or '?', found \"-\""},
		{"large dimension", body("tensor<fp16, [99999999999999999999]> a = foo();"), "line 4, column 15 (function \"main\"): dimension is too large"},
		{"rank", body("tensor<fp16, [" + strings.Repeat("1, ", 16) + "1]> a = foo();"), "tensor of more than 16 dimensions"},
		{"state of a list", body("state<list<bool, 1>> a = foo();"), "state of type list<bool, 1>, want a tensor"},
		{"dict of three", body("dict<bool, bool, bool> a = foo();"), "a dict has two element types, found 3"},
		{"deep type", body(deepTypes), "nested more than 64 deep"},
		{"deep blocks", body(nest(70)), "nested more than 64 deep"},
		{"argument twice", body("bool a = foo(x = x, x = x);"), "argument \"x\" is given twice"},
		{"attribute twice", body("bool a = foo()[n = bool(true), m = bool(true), n = bool(true)];"), "attribute \"n\" is given twice"},
		{"name of another type", body("bool a = foo()[name = bool(true)];"), "line 4, column 1 (function \"main\"): attribute \"name\" is of type bool, want a string"},
		{"const without value", body("bool a = const()[name = string(\"a\")];"), "a const has an attribute \"val\", one result and no argument"},
		{"const of another type", body("bool a = const()[val = int32(1)];"), "value \"a\" of type bool is given a constant of type int32"},
		{"no semicolon", body("bool a = foo()"), "line 5, column 2 (function \"main\"): want \";\" after the operation, found \"}\""},
		{"no file of weights", body("tensor<fp16, [1]> a = const()[val = tensor<fp16, [1]>(BLOBFILE(path = string(\"w\"), offset = uint64(64)))];"), ""},
		{"weight of strings", body("tensor<string, [1]> a = const()[val = tensor<string, [1]>(BLOBFILE(path = string(\"w\"), offset = uint64(64)))];"), "weight in \"w\" at offset 64: type tensor<string, [1]> cannot be stored there"},
		{"weight of unknown size", body("tensor<fp16, [?]> a = const()[val = tensor<fp16, [?]>(BLOBFILE(path = string(\"w\"), offset = uint64(64)))];"), "cannot be stored there"},
		{"negative offset", body("fp16 a = const()[val = fp16(BLOBFILE(path = string(\"w\"), offset = uint64(-1)))];"), "\"-1\" is no uint64 number"},
		{"offset of another type", body("fp16 a = const()[val = fp16(BLOBFILE(path = string(\"w\"), offset = int32(64)))];"), "an offset is of type int32, want uint64"},
		{"path of another type", body("fp16 a = const()[val = fp16(BLOBFILE(path = bool(true), offset = uint64(64)))];"), "a path is of type bool, want string"},
		{"too few elements", body("tensor<int32, [3]> a = const()[val = tensor<int32, [3]>([1, 2])];"), "line 4, column 57 (function \"main\"): 2 elements in dimension 0 of a literal of type tensor<int32, [3]>"},
		{"too many elements", body("tensor<int32, [1]> a = const()[val = tensor<int32, [1]>([1, 2])];"), "more than 1 elements in dimension 0"},
		{"flat for nested", body("tensor<int32, [1, 1]> a = const()[val = tensor<int32, [1, 1]>([1])];"), "want \"[\" before the elements of a tensor, found \"1\""},
		{"unknown dimension", body("tensor<int32, [?]> a = const()[val = tensor<int32, [?]>([1])];"), "constant of type tensor<int32, [?]>, whose dimensions are not all known"},
		{"huge and empty", body("tensor<int32, [9000000000000000000, 0]> a = const()[val = tensor<int32, [9000000000000000000, 0]>([])];"), "0 elements in dimension 0"},
		{"out of range", body("uint6 a = const()[val = uint6(64)];"), "line 4, column 31 (function \"main\"): \"64\" is no uint6 number"},
		{"float for int", body("int32 a = const()[val = int32(1.5)];"), "\"1.5\" is no int32 number"},
		{"word for number", body("fp16 a = const()[val = fp16(one)];"), "\"one\" is no fp16 number"},
		{"large half", body("fp16 a = const()[val = fp16(0x1p+16)];"), "\"0x1p+16\" is out of the range of fp16"},
		{"large double", body("fp64 a = const()[val = fp64(1e999)];"), "is no fp64 number"},
		{"long number", body("int32 a = const()[val = int32(" + strings.Repeat("0", 100) + "x)];"), "\"" + strings.Repeat("0", 32) + "\"... is no int32 number"},
		{"number for bool", body("bool a = const()[val = bool(1)];"), "want true or false, found \"1\""},
		{"string without end", body("string a = const()[val = string(\"abc)];"), "line 4, column 33 (function \"main\"): string has no end"},
		{"escape", body(`string a = const()[val = string("\x41")];`), `escape \x in a string is not known`},
		{"not UTF-8", body("string a = const()[val = string(\"\xff\")];"), "string is not UTF-8"},
		{"list too short", body("int32 a = foo()[l = list<int32, 2>([1])];"), "1 elements, want 2 of list<int32, 2>"},
		{"tuple too short", body("int32 a = foo()[l = tuple<int32, int32>((1))];"), "want \",\" between the elements of a tuple"},
		{"value of a state", body("int32 a = foo()[l = state<int32>(1)];"), "a value of type state<int32> cannot be written in the program"},
	} {
		opt := ParseOptions{Weight: placed}
		if c.name == "no file of weights" {
			opt.Weight, c.want = nil, "line 4, column 37 (function \"main\"): weight in \"w\" at offset 64: there is no file of weights"
		}
		_, err := Parse([]byte(c.text), opt)
		var e *Error
		if err == nil || !strings.Contains(err.Error(), c.want) || !errors.As(err, &e) {
			t.Errorf("%s: %v\nwant %s", c.name, err, c.want)
		}
	}
	// What the caller's function says comes through.
	_, err := Parse([]byte(golden[V10]), ParseOptions{Weight: func(BlobRef, mil.Type) (mil.Weight, error) { return nil, io.ErrUnexpectedEOF }})
	if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), `weight in "@model_path/weights/weight.bin" at offset 64`) {
		t.Error(err)
	}
	_, err = Parse([]byte(golden[V10]), ParseOptions{Weight: func(BlobRef, mil.Type) (mil.Weight, error) { return nil, nil }})
	if err == nil || !strings.Contains(err.Error(), "not of type tensor<int8, [2, 2]>") {
		t.Error(err)
	}
}

// TestPrintErrors has programs that have no text form.
func TestPrintErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(p *mil.Program)
		want string
	}{
		{"nil function", func(p *mil.Program) { p.Functions = append(p.Functions, nil) }, "a function is missing"},
		{"two functions", func(p *mil.Program) { p.Functions = append(p.Functions, p.Functions[0]) }, `two functions are named "main"`},
		{"no body", func(p *mil.Program) { p.Functions[0].Body = nil }, "no body"},
		{"function's name", func(p *mil.Program) { p.Functions[0].Name = "a b" }, `it is named "a b"; the text form needs a letter or '_'`},
		{"opset", func(p *mil.Program) { p.Functions[0].Opset = "CoreML99" }, `operation set "CoreML99" has no name in the text form`},
		{"inputs of the body", func(p *mil.Program) { p.Functions[0].Body.Inputs = p.Functions[0].Inputs }, "its body has inputs of its own"},
		{"nil input", func(p *mil.Program) { p.Functions[0].Inputs[0] = nil }, "an input is missing"},
		{"input's name", func(p *mil.Program) { p.Functions[0].Inputs[0].Name = "1" }, `a value is named "1"`},
		{"input's type", func(p *mil.Program) { p.Functions[0].Inputs[0].Type = mil.Type{} }, `value "x": no type`},
		{"defined twice", func(p *mil.Program) { p.Functions[0].Body.Ops[0].Results[0].Name = "x" }, `value "x" is defined twice`},
		{"attribute of a block", func(p *mil.Program) {
			p.Functions[0].Body.Attributes = []mil.Attribute{{Name: "a", Value: mil.Imm(mil.Int(1))}}
		}, `the block has an attribute "a"`},
		{"nil operation", func(p *mil.Program) { p.Functions[0].Body.Ops[0] = nil }, "operation 0 is missing"},
		{"operation's type", func(p *mil.Program) { p.Functions[0].Body.Ops[1].Type = "" }, `the operation is named ""`},
		{"nil argument", func(p *mil.Program) { p.Functions[0].Body.Ops[1].Args[0].Values[0] = nil }, `argument "x": value is missing`},
		{"argument's name", func(p *mil.Program) { p.Functions[0].Body.Ops[1].Args[0].Name = "" }, `an argument is named ""`},
		{"argument twice", func(p *mil.Program) { p.Functions[0].Body.Ops[1].Args[1].Name = "x" }, `argument "x" is given twice`},
		{"undefined", func(p *mil.Program) { p.Functions[0].Body.Ops = p.Functions[0].Body.Ops[1:] }, `value "two" is not defined before its use`},
		{"another of the name", func(p *mil.Program) {
			p.Functions[0].Body.Ops[1].Args[0].Values[0] = &mil.Value{Name: "x", Type: mil.TensorOf(mil.Float16, 2)}
		}, `another value than the one meant is named "x" here`},
		{"no value", func(p *mil.Program) { p.Functions[0].Body.Ops[0].Results[0].Literal = nil }, "want one result that holds a literal or a weight"},
		{"value elsewhere", func(p *mil.Program) { p.Functions[0].Body.Ops[1].Results[0].Literal = mil.Int(1) }, "but not the result of a const operation"},
		{"types differ", func(p *mil.Program) { p.Functions[0].Body.Ops[0].Results[0].Literal = mil.Int(1) }, "holds a constant of type int32"},
		{"reserved attribute", func(p *mil.Program) {
			p.Functions[0].Body.Ops[1].Attributes = []mil.Attribute{{Name: "name", Value: mil.Imm(mil.Int(1))}}
		}, `attribute "name" is reserved`},
		{"empty attribute", func(p *mil.Program) {
			p.Attributes = []mil.Attribute{{Name: "a"}}
		}, `attribute "a": not a constant`},
		{"not a value of the type", func(p *mil.Program) { p.Functions[0].Body.Ops[0].Results[0].Literal.Floats[0] = 1e-30 }, "1e-30 is not an fp16 value (the nearest is 0)"},
		{"number of elements", func(p *mil.Program) { p.Functions[0].Body.Ops[0].Results[0].Literal.Floats = nil }, "it holds 0 elements, want 1"},
		{"integer out of range", func(p *mil.Program) {
			p.Attributes = []mil.Attribute{{Name: "a", Value: mil.Imm(&mil.Literal{Type: mil.TensorOf(mil.UInt8), Ints: []int64{256}})}}
		}, "element 0: 256 is out of range"},
		{"string", func(p *mil.Program) { p.Functions[0].Body.Ops[0].Name = "\xff" }, `string "\xff" is not UTF-8`},
		{"brackets without end", func(p *mil.Program) {
			p.Attributes = []mil.Attribute{{Name: "a", Value: mil.Imm(&mil.Literal{Type: mil.TensorOf(mil.Int32, 1<<40, 0)})}}
		}, "has no elements, but more than 65536 brackets"},
		{"rank", func(p *mil.Program) { p.Functions[0].Inputs[0].Type = mil.TensorOf(mil.Int32, make([]int, 17)...) }, "17 dimensions, at most 16 are possible"},
		{"dict", func(p *mil.Program) {
			s := mil.TensorOf(mil.String)
			p.Attributes = []mil.Attribute{{Name: "a", Value: mil.Imm(&mil.Literal{Type: mil.Type{Kind: mil.DictKind, Elems: []mil.Type{s, s}}, Items: []*mil.Literal{mil.Str("a")}})}}
		}, "has 1 items"},
		{"weight without a file", func(p *mil.Program) {
			w := mil.PromiseWeight(mil.TensorOf(mil.Float16), nil)
			v := p.Functions[0].Body.Ops[0].Results[0]
			v.Literal, v.Weight = nil, w
		}, "weight of type fp16: not placed"},
		{"deep", func(p *mil.Program) {
			b := &mil.Block{}
			for range 70 {
				b = &mil.Block{Ops: []*mil.Operation{{Type: "cond", Blocks: []*mil.Block{b}}}}
			}
			p.Functions[0].Body = b
		}, "nested more than 64 deep"},
	} {
		p := parse(t, "program(1.3){func main<ios18>(tensor<fp16, [2]> x) { fp16 two = const()[val = fp16(2)]; tensor<fp16, [2]> y = mul(x = x, y = two); } -> (y);}")
		c.edit(p)
		err := Print(io.Discard, p, PrintOptions{Blob: refOf})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant %s", c.name, err, c.want)
		}
	}
	if err := Print(io.Discard, &mil.Program{}, PrintOptions{Dialect: 9}); err == nil {
		t.Error("a dialect that does not exist is printed")
	}
	p := parse(t, golden[V13])
	if err := Print(io.Discard, p, PrintOptions{}); err == nil || !strings.Contains(err.Error(), "there is no file of weights") {
		t.Error(err)
	}
	w := &failing{left: 100}
	if err := Print(w, p, PrintOptions{Blob: refOf}); !errors.Is(err, io.ErrShortWrite) {
		t.Error(err)
	}
}

type failing struct{ left int }

func (f *failing) Write(b []byte) (int, error) {
	if f.left -= len(b); f.left < 0 {
		return 0, io.ErrShortWrite
	}
	return len(b), nil
}

// TestFloats compares the printer and the parser with what %a gives.
func TestFloats(t *testing.T) {
	for _, c := range []struct {
		d    mil.DType
		v    float64
		want string
	}{
		{mil.Float32, 1, "0x1p+0"},
		{mil.Float32, 0.1, ""}, // not a float32
		{mil.Float32, float64(float32(0.1)), "0x1.99999ap-4"},
		{mil.Float64, 0.1, "0x1.999999999999ap-4"},
		{mil.Float64, 5e-324, "0x1p-1074"},
		{mil.Float64, math.MaxFloat64, "0x1.fffffffffffffp+1023"},
		{mil.Float32, math.SmallestNonzeroFloat32, "0x1p-149"},
		{mil.Float16, 0x1p-24 * 3, "0x1.8p-23"},
		{mil.Float16, -1024, "-0x1p+10"},
		{mil.BFloat16, 0x1.02p+100, "0x1.02p+100"},
		{mil.Float64, math.Copysign(math.NaN(), -1), "-nan"},
	} {
		pr := &printer{}
		err := pr.float(c.v, c.d)
		if (err != nil) != (c.want == "") || string(pr.b) != c.want {
			t.Errorf("%v is printed %q, %v; want %q", c.v, pr.b, err, c.want)
		}
		if c.want == "" {
			continue
		}
		p := &parser{b: []byte(c.want)}
		if v, err := p.float(c.d); err != nil || math.Float64bits(v)&^(1<<51-1) != math.Float64bits(c.v)&^(1<<51-1) && v != c.v {
			t.Errorf("%q is read %v, %v; want %v", c.want, v, err, c.v)
		}
	}
	for text, want := range map[string]float64{"1.5": 1.5, "-2": -2, "1e3": 1000, "0x1.8p1": 3, "+inf": math.Inf(1), "0x2p0": 2, "0x1.00000000000000p+0": 1, "0X1P+1": 2} {
		p := &parser{b: []byte(text)}
		if v, err := p.float(mil.Float64); err != nil || v != want {
			t.Errorf("%q is read %v, %v; want %v", text, v, err, want)
		}
	}
}

// large returns a text of about n bytes like that of a large model.
func large(n int) []byte {
	var b bytes.Buffer
	b.WriteString("program(1.3)\n{\n    func main<ios18>(tensor<fp16, [1, 2048, 1, 1]> x0) {\n")
	i := 0
	for ; b.Len() < n; i++ {
		fmt.Fprintf(&b, "            tensor<fp16, [2048, 2048, 1, 1]> w%d = constexpr_lut_to_dense(indices = tensor<uint6, [2048, 2048, 1, 1]>(BLOBFILE(path = string(\"@model_path/weights/weight.bin\"), offset = uint64(%d))), lut = tensor<fp16, [512, 1, 1, 1, 64, 1]>(BLOBFILE(path = string(\"@model_path/weights/weight.bin\"), offset = uint64(%d))))[name = string(\"model_layers_%d_weight_palettized\")];\n", i, 64+128*i, 128*i+128, i)
		fmt.Fprintf(&b, "            tensor<int32, [4]> s%d = const()[name = string(\"shape_%d\"), val = tensor<int32, [4]>([1, 2048, 1, %d])];\n", i, i, i)
		fmt.Fprintf(&b, "            fp16 c%d = const()[name = string(\"c_%d\"), val = fp16(0x1.%xp-3)];\n", i, i, i%15+1)
		fmt.Fprintf(&b, "            tensor<fp16, [1, 2048, 1, 1]> x%d = conv(dilations = s%d, weight = w%d, x = x%d)[name = string(\"layers_%d\")];\n", i+1, i, i, i, i)
	}
	fmt.Fprintf(&b, "        } -> (x%d);\n}", i)
	return b.Bytes()
}

// TestLarge: 10 MB are read in well under a second, and hostile texts in time
// that grows with their length.
func TestLarge(t *testing.T) {
	many := strings.Repeat
	for _, c := range []struct {
		name string
		text []byte
		ok   bool
	}{
		{"a large model", large(10 << 20), true},
		{"many functions after a large one", []byte("program(1.3){func a<ios18>(){" + manyOps(50000) + "}->();" + manyFuncs(50000) + "}"), true},
		{"a large literal", []byte("program(1.3){func a<ios18>(){tensor<fp32, [1000000]> a = const()[val = tensor<fp32, [1000000]>([0x1.5p-17" + many(", 0x1.5p-17", 999999) + "])];}->(a);}"), true},
		{"arguments the wrong way round", []byte("program(1.3){func a<ios18>(bool x){bool y = f(" + reversed(200000) + ");}->();}"), true},
		{"brackets", []byte("program(1.3){func a<ios18>(){tensor<fp32, [1]> a = const()[val = tensor<fp32, [1]>(" + many("[", 5<<20)), false},
		{"white space", []byte(many(" \n", 5<<20)), false},
		{"a long name", []byte("program(1.3){func " + many("a", 10<<20)), false},
		{"a long string", []byte("program(1.3)[a = string(\"" + many("\\n", 5<<20)), false},
		{"a huge shape", []byte("program(1.3){func a<ios18>(){tensor<fp32, [999999999999]> a = const()[val = tensor<fp32, [999999999999]>([0])];}->(a);}"), false},
	} {
		start := time.Now()
		_, err := Parse(c.text, ParseOptions{Weight: placed})
		if took := time.Since(start); took > 5*time.Second { // far above the 0.3 s of a quiet machine
			t.Errorf("%s: %d bytes took %v", c.name, len(c.text), took)
		}
		if (err == nil) != c.ok {
			t.Errorf("%s: %.200v", c.name, err)
		}
		if err != nil && len(err.Error()) > 1500 {
			t.Errorf("%s: message of %d bytes", c.name, len(err.Error()))
		}
	}
}

func manyOps(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "bool a%d = f();", i)
	}
	return b.String()
}

func manyFuncs(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "func f%d<ios18>(){}->();", i)
	}
	return b.String()
}

func reversed(n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "a%07d = x", n-i)
	}
	return b.String()
}

func BenchmarkParse(b *testing.B) {
	text := large(10 << 20)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(text, ParseOptions{Weight: placed}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPrint(b *testing.B) {
	text := large(10 << 20)
	p := parse(b, string(text))
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if err := Print(io.Discard, p, PrintOptions{Blob: refOf}); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzParse: what is read can be printed, in either dialect, and is read again
// as the same.
func FuzzParse(f *testing.F) {
	for _, text := range golden {
		f.Add([]byte(text))
	}
	f.Add([]byte("program(1.3){func a<ios15>(){tensor<fp32, [2, 0]> a = const()[val = tensor<fp32, [2, 0]>([[], []])];}->(a);}"))
	f.Add([]byte("program(1.0){func a<ios19>(bool b){bool c = cond(pred = b)(){}->(b)(){bool state = f(x = (), y = state<fp16>(1));}->(state);}->(c, c);}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := Parse(text, ParseOptions{Weight: placed})
		if err != nil {
			if len(err.Error()) > 2000 {
				t.Fatalf("message of %d bytes", len(err.Error()))
			}
			return
		}
		var first bytes.Buffer
		if err := Print(&first, p, PrintOptions{Dialect: V13, Blob: refOf}); err != nil {
			if strings.Contains(err.Error(), "brackets") || strings.Contains(err.Error(), "two functions") {
				return
			}
			t.Fatalf("%v: %s", err, text)
		}
		for _, d := range []Dialect{V10, V13} {
			again := print(t, parse(t, print(t, p, d)), V13)
			if again != first.String() {
				t.Fatalf("%v: %s", d, difference(again, first.String()))
			}
		}
	})
}
