package inspect

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"anemone/internal/anemll"
	"anemone/internal/compress"
	"anemone/internal/testutil"
	"anemone/mil"
	"anemone/mil/miltext"
)

func TestShorten(t *testing.T) {
	numbers := func(n int) string {
		var s []string
		for i := range n {
			s = append(s, fmt.Sprint(i))
		}
		return strings.Join(s, ", ")
	}
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{"func f(tensor<fp16, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18]> x) {", ""},
		{"val = tensor<int32, [16]>([" + numbers(16) + "])];", ""},
		{"val = tensor<int32, [17]>([" + numbers(17) + "])];", "val = tensor<int32, [17]>([" + numbers(8) + ", ... 9 more])];"},
		{"a([" + numbers(1000) + "]), b([" + numbers(20) + "]), c([1])", "a([" + numbers(8) + ", ... 992 more]), b([" + numbers(8) + ", ... 12 more]), c([1])"},
		{"a([[" + numbers(5) + "], [" + numbers(5) + "], [" + numbers(10) + "]])", "a([[" + numbers(5) + "], [0, 1, 2, ... 12 more]])"},
		{`s(["a, b, c]", "d\"([", ` + numbers(15) + "])", `s(["a, b, c]", "d\"([", 0, 1, 2, 3, 4, 5, ... 9 more])`},
		{`name = string("x([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18])")`, ""},
		{"values = (a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r)", ""},
	} {
		if c.want == "" {
			c.want = c.in
		}
		for _, step := range []int{1, 7, len(c.in) + 1} { // however it is cut into writes
			var b bytes.Buffer
			w := bufio.NewWriter(&b)
			s := &shortener{w: w}
			for part := range slices.Chunk([]byte(c.in), step) {
				if n, err := s.Write(part); n != len(part) || err != nil {
					t.Fatalf("wrote %d of %d, %v", n, len(part), err)
				}
			}
			w.Flush()
			if b.String() != c.want {
				t.Errorf("%q\n gives %q\n want  %q", c.in, b.String(), c.want)
			}
		}
	}
}

// TestMILOfApple prints bundles that Apple's compiler wrote: the text is the
// bundle's own, apart from what the compiler says of itself.
func TestMILOfApple(t *testing.T) {
	for _, name := range []string{"coremltools__add_model", "mobius__unified_256ms_int8", "mlmodelc-export__quantized-constexpr"} {
		dir := testutil.Shared(t, "samples", "mlmodelc", name+".mlmodelc")
		r, err := Open(t.Context(), dir, nil, Options{MIL: true, Full: true})
		if err != nil {
			t.Error(err)
			continue
		}
		want, err := os.ReadFile(filepath.Join(dir, "model.mil"))
		if err != nil {
			t.Fatal(err)
		}
		rest := func(s string) string { _, s, _ = strings.Cut(s, "\n{\n"); return strings.TrimSpace(s) }
		if got := rest(r.Model.MIL); got != rest(string(want)) || len(got) < 100 {
			t.Errorf("%s: the text is another one:\n%.300s", name, got)
		}
		if r.Model.Compiled == nil || r.Model.Compiled.Format == 0 || !strings.Contains(string(want), `"`+r.Model.Compiled.Compiler+`"`) {
			t.Errorf("%s: compiled %+v", name, r.Model.Compiled)
		}
	}
}

func tinyPackage(t *testing.T, o anemll.Options) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	if _, err := anemll.Convert(t.Context(), registry, testutil.Data(t, "checkpoints", "tiny-qwen3"), out, o); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestMIL(t *testing.T) {
	out := tinyPackage(t, anemll.Options{Context: 256, Batch: 64, Chunks: 1, FFN: compress.Encoding{Bits: 4, Group: 8}})
	r, err := Open(t.Context(), out, registry, Options{MIL: true, Full: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range r.Models() {
		p, err := miltext.Parse([]byte(m.MIL), miltext.ParseOptions{Weight: func(ref miltext.BlobRef, t mil.Type) (mil.Weight, error) {
			return mil.PromiseWeight(t, nil), nil
		}})
		if err != nil {
			t.Errorf("%s: %v", m.Name, err)
			continue
		}
		for _, f := range m.Functions {
			n := 0
			p.Function(f.Name).Body.Walk(func(op *mil.Operation) bool {
				if op.Type == "conv" {
					n++
				}
				return true
			})
			if n != f.Operations["conv"] {
				t.Errorf("%s, %s: %d convolutions in the text, %d counted", m.Name, f.Name, n, f.Operations["conv"])
			}
		}
	}
	r, err = Open(t.Context(), out, registry, Options{MIL: true, Function: "prefill"})
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range r.Models() {
		if has := strings.Contains(m.MIL, "func prefill<"); has != (i == 1) || strings.Contains(m.MIL, "func infer<") {
			t.Errorf("%s: prefill in the text: %v; infer: %v", m.Name, has, strings.Contains(m.MIL, "func infer<"))
		}
	}
	for _, path := range []string{out, r.Package.Parts[1].Path} {
		if _, err := Open(t.Context(), path, registry, Options{MIL: true, Function: "chat"}); err == nil || !strings.Contains(err.Error(), `no function "chat"; there are `) || !strings.Contains(err.Error(), "infer, prefill") {
			t.Errorf("%s: a function that is not there: %v", path, err)
		}
	}
	part, err := openPart(r.Package.Parts[1].Path)
	if err != nil {
		t.Fatal(err)
	}
	defer part.close()
	if err := WriteMIL(&bytes.Buffer{}, part.model, nil, "", false); err == nil || !strings.Contains(err.Error(), "in none of the model's files") {
		t.Errorf("weights without a file: %v", err)
	}
}

func TestPath(t *testing.T) {
	for in, want := range map[string]string{
		"model_layers_3_self_attn_q_proj_weight":                "layers/3/self_attn/q_proj_weight",
		"model_model_layers_27_mlp_down_proj_weight_palettized": "layers/27/mlp/down_proj_weight",
		"layers_0_input_layernorm_weight":                       "layers/0/input_layernorm_weight",
		"model_layers_1_mlp_experts_7_gate_proj_weight":         "layers/1/mlp/experts/7_gate_proj_weight",
		"model_norm_weight":                                     "model_norm_weight",
		"lm_head_weight":                                        "lm_head_weight",
		"rotary_cos":                                            "rotary_cos",
		"encoder_layers_2_attn_w":                               "layers/2/attn/w",
		"layers_":                                               "layers_",
		"":                                                      "",
		"mlp_mlp_mlp_mlp_mlp_w":                                 "mlp/mlp/mlp/mlp_mlp_w",
	} {
		if got := strings.Join(path(in), "/"); got != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}
}

func lines(rows []Row) []string {
	var out []string
	for _, r := range rows {
		s := fmt.Sprintf("%s%s %d", strings.Repeat(" ", r.Depth), r.Name, r.Bytes)
		if r.Alike > 1 {
			s += fmt.Sprintf(" x%d", r.Alike)
		}
		out = append(out, s)
	}
	return out
}

func TestTree(t *testing.T) {
	w := func(name string, bytes int64, rows int) Tensor {
		return Tensor{Name: name, Path: path(name), Shape: []int{rows, 8}, Encoding: "fp16", Bytes: bytes}
	}
	ts := []Tensor{w("embed", 10, 4)}
	for _, i := range []int{0, 1, 2, 10, 3} { // as a map would give them
		ts = append(ts, w(fmt.Sprintf("layers_%d_norm", i), 1, 1), w(fmt.Sprintf("layers_%d_mlp_up", i), 4, 4))
	}
	ts = append(ts, w("layers_4_norm", 1, 1), w("layers_4_mlp_up", 8, 8), w("norm", 2, 1))
	want := []string{
		"embed 10",
		"layers 34",
		" 0 to 3 5 x4", "  norm 1", "  mlp 4", "   up 4",
		" 4 9", "  norm 1", "  mlp 8", "   up 8",
		" 10 5", "  norm 1", "  mlp 4", "   up 4",
		"norm 2",
	}
	if got := lines(Tree(ts, false)); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := lines(Tree(ts, true)); len(got) != 1+1+6*4+1 || got[6] != " 1 5" {
		t.Errorf("in full\n%s", strings.Join(got, "\n"))
	}
	// Layers that are used by other functions are not alike.
	for i := range ts[:5] {
		ts[i].Functions = []string{"infer"}
	}
	if got := lines(Tree(ts, false)); got[2] != " 0 to 1 5 x2" || got[6] != " 2 to 3 5 x2" {
		t.Errorf("with other functions\n%s", strings.Join(got, "\n"))
	}
}

// TestTensors looks at where the weights of a package lie: every record of the
// file once, and both functions at the same one.
func TestTensors(t *testing.T) {
	out := tinyPackage(t, anemll.Options{Context: 256, Batch: 64, Chunks: 1, FFN: compress.Encoding{Bits: 4, Group: 8}})
	r, err := Open(t.Context(), out, registry, Options{Weights: true})
	if err != nil {
		t.Fatal(err)
	}
	chunk := r.Package.Parts[1]
	var sum int64
	offsets := map[uint64]bool{}
	for _, x := range chunk.Tensors {
		if !slices.Equal(x.Functions, []string{"infer", "prefill"}) {
			t.Errorf("%s is used by %v", x.Name, x.Functions)
		}
		for _, p := range x.Pieces {
			if offsets[p.Offset] || p.Offset < 64 || p.Offset%64 != 0 || p.File != "@model_path/weights/weight.bin" {
				t.Errorf("%s: %+v", x.Name, p)
			}
			offsets[p.Offset] = true
			sum += p.Bytes
		}
	}
	if sum != chunk.WeightBytes {
		t.Errorf("pieces take %d bytes, the model says %d", sum, chunk.WeightBytes)
	}
	i := slices.IndexFunc(chunk.Tensors, func(x Tensor) bool { return strings.Join(x.Path, "/") == "layers/2/self_attn/k_proj_weight" })
	if i < 0 {
		t.Fatal("no k_proj of layer 2")
	}
	if x := chunk.Tensors[i]; !slices.Equal(x.Shape, []int{128, 128, 1, 1}) ||
		x.Encoding != "lut4, 8 rows per table" || x.Bytes != 128*128/2+16*16*2 || len(x.Pieces) != 2 {
		t.Errorf("k_proj of layer 2 is %+v", x)
	}
}

// TestActivations adds up by hand.
func TestActivations(t *testing.T) {
	b := mil.NewBuilder("main", mil.CoreML8)
	x := b.Input("x", mil.TensorOf(mil.Float16, 1, 100))
	s := b.Input("s", mil.StateOf(mil.Float16, 10, 100))
	old := b.Op("read_state", mil.A("input", s))                                                                                     // the state itself
	a := b.Op("tanh", mil.A("x", x))                                                                                                 // 200 bytes
	c := b.Op("tanh", mil.A("x", a))                                                                                                 // 200, and a dies after it
	d := b.Op("concat", mil.A("values", c, c, c), mil.A("axis", b.Const(mil.Int(0))), mil.A("interleave", b.Const(mil.Flag(false)))) // 600 beside c
	e := b.Op("slice_by_index", mil.A("x", d), mil.A("begin", b.Const(mil.Ints(0, 0))), mil.A("end", b.Const(mil.Ints(1, 100))))     // 200 beside d
	u := b.Op("slice_update", mil.A("x", old), mil.A("update", e), mil.A("begin", b.Const(mil.Ints(3, 0))), mil.A("end", b.Const(mil.Ints(4, 100))))
	b.OpAll("write_state", mil.A("input", s), mil.A("data", u)) // in place
	b.Output("y", b.Op("tanh", mil.A("x", e)))                  // an output
	f, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	if n := activations(f); n != 800 {
		t.Errorf("%d bytes of activations, want 800", n)
	}
}

func TestErrors(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	text := write("notes.txt", "hello")
	write("empty.mlmodelc/x", "")
	write("bad.mlmodelc/coremldata.bin", "no")
	write("empty.mlpackage/x", "")
	model := write("bad.mlmodel", "\x08\xff\xff")
	broken := filepath.Dir(write("broken/meta.yaml", "model_info: ["))
	checkpoint := testutil.Data(t, "checkpoints", "tiny-qwen3")
	for _, c := range []struct {
		path string
		o    Options
		want string
	}{
		{filepath.Join(dir, "missing"), Options{}, "missing"},
		{filepath.Join(dir, "missing.mlpackage"), Options{}, "missing.mlpackage"},
		{"", Options{}, ""},
		{dir, Options{}, "is neither a package"},
		{text, Options{}, "is neither a package"},
		{filepath.Join(dir, "empty.mlmodelc"), Options{}, "coremldata.bin"},
		{filepath.Join(dir, "bad.mlmodelc"), Options{}, "coremldata.bin"},
		{filepath.Join(dir, "empty.mlpackage"), Options{}, "Manifest.json"},
		{model, Options{}, "bad.mlmodel"},
		{broken, Options{}, "meta.yaml"},
		{checkpoint, Options{MIL: true}, "is a checkpoint, which does not have a program"},
		{checkpoint, Options{Weights: true}, "a tree of weights: convert it first"},
	} {
		r, err := Open(t.Context(), c.path, registry, c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %+v, %v; want an error with %q", c.path, r, err, c.want)
		}
	}
}
