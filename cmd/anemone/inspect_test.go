package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"anemone/coreml"
	"anemone/coreml/mlpackage"
	"anemone/internal/anemll"
	"anemone/internal/arch"
	"anemone/internal/arch/all"
	"anemone/internal/arch/qwen3"
	"anemone/internal/compress"
	"anemone/internal/testutil"
	"anemone/mil"
)

var updateGolden = flag.Bool("update", false, "write the golden files of inspect")

// inspectCommand runs `inspect` and returns what it prints and its exit
// status.
func inspectCommand(t *testing.T, a ...string) (out string, status int, err error) {
	t.Helper()
	var stdout bytes.Buffer
	cmd := newInspect()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetOut(&stdout)
	cmd.SetErr(&bytes.Buffer{})
	cmd.SetArgs(append([]string{}, a...))
	if err = cmd.ExecuteContext(t.Context()); err != nil {
		status = exitFailed
		var se *statusError
		if errors.As(err, &se) {
			status = se.status
		}
	}
	return stdout.String(), status, err
}

// inspectPackage is a package that there is something to say about: a short
// context, small groups.
func inspectPackage(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tiny-ane")
	o := anemll.Options{Context: 64, Batch: 32, Chunks: 2, FFN: compress.Encoding{Bits: 3, Group: 2}, Format: anemll.MLPackage}
	if _, err := anemll.Convert(t.Context(), arch.Registry{qwen3.Architecture}, testutil.Data(t, "checkpoints", "tiny-qwen3"), dir, o); err != nil {
		t.Fatal(err)
	}
	return dir
}

// smallModel writes a model that shows what inspect has to say: two functions
// over one table, a state, and some things to complain about.
func smallModel(t *testing.T) string {
	t.Helper()
	weight := func(d mil.DType, shape ...int) mil.Weight {
		typ := mil.TensorOf(d, shape...)
		n, _ := typ.ByteSize()
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(1 + i%7)
		}
		w, err := mil.NewWeight(typ, b)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	indices, table, mask := weight(mil.UInt4, 32, 32, 1, 1), weight(mil.Float16, 32, 1, 1, 1, 16, 1), weight(mil.Float16, 1, 32)
	function := func(name string, tokens int) *mil.Function {
		b := mil.NewBuilder(name, mil.CoreML8)
		x := b.Input("x", mil.TensorOf(mil.Float16, 1, 32, 1, tokens))
		b.Input("position_ids", mil.TensorOf(mil.Int32, tokens))
		s := b.Input("cache", mil.StateOf(mil.Float16, 1, 32, 3))
		w := b.Constexpr("constexpr_lut_to_dense", "model_layers_0_mlp_up_proj_weight", mil.A("indices", mil.ImmWeight(indices)), mil.A("lut", mil.ImmWeight(table)))
		y := b.Op("conv", mil.A("x", x), mil.A("weight", w), mil.A("strides", b.Const(mil.Ints(1, 1))), mil.A("pad_type", b.Const(mil.Str("valid"))),
			mil.A("pad", b.Const(mil.Ints(0, 0, 0, 0))), mil.A("dilations", b.Const(mil.Ints(1, 1))), mil.A("groups", b.Const(mil.Int(1))))
		y = b.Named("gate", "silu", mil.A("x", y))
		if tokens > 1 {
			y = b.Named("sums", "cumsum", mil.A("x", y), mil.A("axis", b.Const(mil.Int(3))), mil.A("exclusive", b.Const(mil.Flag(false))), mil.A("reverse", b.Const(mil.Flag(false))))
		}
		old := b.Op("read_state", mil.A("input", s))
		b.OpAll("write_state", mil.A("input", s), mil.A("data", b.Op("mul", mil.A("x", old), mil.A("y", b.Const(mil.Half(0.5))))))
		order := make([]int, 32)
		for i := range order {
			order[i] = 31 - i
		}
		flat := b.Op("gather", mil.A("x", b.Weight("mask", mask)), mil.A("indices", b.Const(mil.Ints(order...))), mil.A("axis", b.Const(mil.Int(1))),
			mil.A("batch_dims", b.Const(mil.Int(0))), mil.A("validate_indices", b.Const(mil.Flag(false))))
		b.Output("y", b.Op("add", mil.A("x", y), mil.A("y", b.Op("reshape", mil.A("x", flat), mil.A("shape", b.Const(mil.Ints(1, 32, 1, 1)))))))
		f, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	m := &coreml.Model{SpecVersion: 9, DefaultFunction: "infer", Program: &mil.Program{}, Metadata: coreml.Metadata{ShortDescription: "a small model"}}
	for _, f := range []*mil.Function{function("infer", 1), function("prefill", 8)} {
		m.Program.Functions = append(m.Program.Functions, f)
		m.Functions = append(m.Functions, coreml.Describe(f))
	}
	path := filepath.Join(t.TempDir(), "small.mlpackage")
	if err := mlpackage.Write(t.Context(), path, m, mlpackage.Options{}); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestInspectGolden holds what is printed to files that people have read.
func TestInspectGolden(t *testing.T) {
	path := smallModel(t)
	for _, c := range []struct {
		name   string
		args   []string
		status int
	}{
		{"summary", []string{"--operations"}, 0},
		{"weights", []string{"--weights"}, 0},
		{"weights-full", []string{"--weights", "--full"}, 0},
		{"lint", []string{"--lint", "--os", "macos14"}, 1},
		{"mil", []string{"--mil", "--function", "infer"}, 0},
	} {
		out, status, err := inspectCommand(t, append([]string{path}, c.args...)...)
		if status != c.status {
			t.Errorf("%s: status %d, want %d: %v", c.name, status, c.status, err)
		}
		file := filepath.Join("testdata", "inspect", c.name+".golden")
		if *updateGolden {
			if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(out), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if out != string(want) {
			t.Errorf("%s: printed\n%s\nwant\n%s", c.name, out, want)
		}
	}
}

func TestInspectStatus(t *testing.T) {
	dir := inspectPackage(t)
	one := filepath.Join(dir, "qwen_embeddings.mlpackage")
	checkpoint := testutil.Data(t, "checkpoints", "tiny-qwen3")
	for _, c := range []struct {
		args   []string
		status int
		want   []string // in the output, or in the error
	}{
		{[]string{dir}, 0, []string{"package anemll-", "no problems found"}},
		{[]string{one, "--operations"}, 0, []string{"1  gather", "qwen_embeddings: specification 9"}},
		{[]string{checkpoint}, 0, []string{"can be converted"}},
		{[]string{dir, "--lint"}, 0, []string{"warning: lut-group", "0 errors, 2 warnings, "}},
		{[]string{dir, "--lint", "--strict"}, 1, []string{"warning: lut-group"}},
		{[]string{dir, "--lint", "--strict", "--ignore", "lut-group", "--os", "ios18"}, 0, []string{"0 errors, 0 warnings, "}},
		{[]string{dir, "--lint", "--os", "ios17"}, 1, []string{"error: os-spec", "iOS 17 loads up to 8"}},
		{[]string{dir, "--lint", "--deep", "--full"}, 0, []string{"model_layers_0_self_attn_k_proj_weight"}},
		{[]string{one, "--lint"}, 0, []string{"nothing found"}},
		{[]string{one, "--mil"}, 0, []string{"program(1.3)\n{\n    func main<ios18>("}},
		{[]string{one, "--weights", "--full"}, 0, []string{"model_embed_tokens_weight  [1024 128]  fp16  262.1 kB  @64"}},
		{[]string{dir, "--strict"}, 2, []string{"--strict is for --lint"}},
		{[]string{dir, "--os", "ios18"}, 2, []string{"--os is for --lint"}},
		{[]string{dir, "--function", "infer"}, 2, []string{"--function is for --mil"}},
		{[]string{dir, "--lint", "--os", "beos5"}, 2, []string{`--os: "beos5" is no system`}},
		{[]string{dir, "--lint", "--ignore", "nonsense"}, 2, []string{`no lint rule "nonsense"`}},
		{[]string{dir, "--mil", "--function", "chat"}, 1, []string{`no function "chat"; there are main, infer, prefill`}},
		{[]string{checkpoint, "--lint"}, 2, []string{"is a checkpoint"}},
		{[]string{filepath.Join(dir, "missing")}, 1, []string{"missing"}},
		{[]string{filepath.Join(dir, "missing"), "--lint"}, 2, []string{"missing"}},
		{[]string{filepath.Join(dir, "config.json")}, 1, []string{"is neither a package"}},
		{nil, 2, []string{"PATH is missing"}},
	} {
		out, status, err := inspectCommand(t, c.args...)
		if err != nil {
			out += err.Error()
		}
		if status != c.status {
			t.Errorf("%q: status %d, want %d\n%s", c.args, status, c.status, out)
		}
		for _, w := range c.want {
			if !strings.Contains(out, w) {
				t.Errorf("%q: no %q in\n%s", c.args, w, out)
			}
		}
	}
}

// TestInspectExtension prints what meta.yaml says beyond a plain transformer, and
// where that is not what the models say.
func TestInspectExtension(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tiny-ane")
	o := anemll.Options{Context: 256, Batch: 64, Chunks: 1, Remainders: []int{16, 4}, Format: anemll.MLPackage, Name: "tiny"}
	if _, err := anemll.Convert(t.Context(), all.Registry, testutil.Data(t, "checkpoints", "tiny-qwen35"), dir, o); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, anemll.MetaFile)
	meta, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, bytes.Replace(meta, []byte("gdn_chunk_size: 64"), []byte("gdn_chunk_size: 48\n    \"\\e[2J\": 1"), 1), 0o666); err != nil {
		t.Fatal(err)
	}
	out, status, err := inspectCommand(t, dir)
	if status != 0 {
		t.Fatal(err)
	}
	from, _, ok1 := strings.Cut(out, "\n\nqwen35_embeddings: ")
	_, to, ok2 := strings.Cut(out, "\nproblem: ")
	got := from + "\n...\nproblem: " + to
	want := dir + `: package tiny
  architecture  qwen3_5
  context       256 positions, prefill in batches of 64, what is left in calls of 16, 4
  sizes         hidden 128, vocabulary 1024
  weights       3.9 MB
  states        320.5 kB for one context
  memory        portable engine: about 4.6 MB, weights once and the states in float32
                Neural Engine: 13.6 MB of weights, a copy for each function; states and activations (below) not counted
  layers        8: 2 full, 6 linear; in order (3 linear, 1 full) 2 times
  calls         recurrent state: every token once and in order, no going back without a snapshot
                prefill takes full batches only, none that are filled up
  delta rule    48 tokens at a time in prefill
  state         model_model_kv_cache_0 float16 [4 2 256 64], of layers 3, 7
  state         model_model_gdn_state_0 float16 [24 32 32], of layers 0-2, 4-6
  state         model_model_conv_state_0 float16 [6 3 256], of layers 0-2, 4-6
  other keys    \x1b[2J
...
problem: meta.yaml says gdn_chunk_size: 48, which does not divide the 64 tokens that the models' prefill takes
`
	if printable(got) != want || !ok1 || !ok2 {
		t.Errorf("printed\n%s\nwant\n%s", printable(got), want)
	}
}

func TestInspectJSON(t *testing.T) {
	dir := inspectPackage(t)
	out, status, err := inspectCommand(t, dir, "--json", "--lint", "--weights", "--mil", "--function", "infer")
	if status != 0 || err != nil {
		t.Fatalf("status %d, %v", status, err)
	}
	var v struct {
		Kind    string
		Package struct {
			Parts []struct {
				Name, MIL string
				Functions []struct{ Memory map[string]int64 }
				Tensors   []struct {
					Path   []string
					Shape  []int
					Pieces []struct {
						Role   string
						Offset uint64
					}
				}
			}
		}
		Lint struct {
			Errors, Warnings int
			Findings         []struct{ Rule, Severity, Part, Name, Found, Why, Fix string }
		}
	}
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatalf("%v in\n%s", err, out)
	}
	if v.Kind != "package" || len(v.Package.Parts) != 4 || v.Lint.Errors != 0 || v.Lint.Warnings != 2 || len(v.Lint.Findings) < 4 {
		t.Fatalf("%+v", v)
	}
	for _, f := range v.Lint.Findings {
		if f.Rule == "" || f.Severity == "" || f.Found == "" || f.Why == "" || f.Fix == "" {
			t.Errorf("finding %+v", f)
		}
	}
	p := v.Package.Parts[1]
	if !strings.Contains(p.MIL, "func infer<") || len(p.Tensors) == 0 || len(p.Tensors[0].Pieces) == 0 || p.Tensors[0].Pieces[0].Offset == 0 || p.Functions[0].Memory["weights"] == 0 {
		t.Errorf("part %+v", p)
	}
	if v.Package.Parts[0].MIL != "" {
		t.Error("the embeddings have a text, but no function infer")
	}
}
