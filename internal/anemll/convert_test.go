package anemll

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"anemone/coreml"
	"anemone/coreml/mlpackage"
	"anemone/internal/arch"
	"anemone/internal/arch/qwen3"
	"anemone/internal/checkpoint"
	"anemone/internal/checkpoint/checkpointtest"
	"anemone/internal/checkpoint/safetensors"
	"anemone/internal/compress"
	"anemone/internal/testutil"
	"anemone/mil"
)

var registry = arch.Registry{qwen3.Architecture}

// tiny converts the trained test checkpoint and returns the package's folder.
func tiny(t *testing.T, o Options) (string, *Report) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	r, err := Convert(t.Context(), registry, testutil.Data(t, "checkpoints", "tiny-qwen3"), out, o)
	if err != nil {
		t.Fatal(err)
	}
	return out, r
}

func model(t *testing.T, path string) *coreml.Model {
	t.Helper()
	p, err := mlpackage.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p.Model
}

// TestContract holds a package to the tables of the contract: names, shapes
// and types of every feature of every part, and their order.
func TestContract(t *testing.T) {
	out, _ := tiny(t, Options{Context: 128, Batch: 32, Chunks: 2, SplitHead: 3, FFN: compress.Encoding{Bits: 4, Group: 8}})
	text := func(f coreml.Function) string {
		var b strings.Builder
		list := func(kind string, fs []coreml.Feature) {
			for _, x := range fs {
				fmt.Fprintf(&b, "%s %s %v %v", kind, x.Name, x.DType, x.Shape)
				if x.Shapes != nil {
					fmt.Fprintf(&b, " of %v", x.Shapes)
				}
				b.WriteString("\n")
			}
		}
		list("in", f.Inputs)
		list("out", f.Outputs)
		list("state", f.States)
		return b.String()
	}
	chunk := func(tokens, outTokens int) string {
		return fmt.Sprintf(`in hidden_states fp16 [1 %d 128]
in position_ids int32 [%d]
in causal_mask fp16 [1 1 %d 128]
in current_pos int32 [1]
out output_hidden_states fp16 [1 %d 128]
state model_model_kv_cache_0 fp16 [8 2 128 64]
`, tokens, tokens, tokens, outTokens)
	}
	for _, c := range []struct{ file, function, want string }{
		{"qwen_embeddings", "main", "in input_ids int32 [1 1] of [[1 1] [1 32]]\nout hidden_states fp16 []\n"},
		{"qwen_FFN_PF_lut4_chunk_01of02", "infer", chunk(1, 1)},
		{"qwen_FFN_PF_lut4_chunk_01of02", "prefill", chunk(32, 32)},
		{"qwen_FFN_PF_lut4_chunk_02of02", "infer", chunk(1, 1)},
		{"qwen_FFN_PF_lut4_chunk_02of02", "prefill", chunk(32, 1)},
		{"qwen_lm_head", "main", "in hidden_states fp16 [1 1 128]\nout logits1 fp16 [1 1 342]\nout logits2 fp16 [1 1 341]\nout logits3 fp16 [1 1 341]\n"},
	} {
		m := model(t, filepath.Join(out, c.file+".mlpackage"))
		if m.SpecVersion != 9 {
			t.Errorf("%s: specification version %d, want 9", c.file, m.SpecVersion)
		}
		if want := map[bool]string{true: "infer", false: ""}[strings.Contains(c.file, "chunk")]; m.DefaultFunction != want {
			t.Errorf("%s: default function %q, want %q", c.file, m.DefaultFunction, want)
		}
		f := m.Function(c.function)
		if f == nil {
			t.Errorf("%s: no function %s", c.file, c.function)
			continue
		}
		if got := text(*f); got != c.want {
			t.Errorf("%s, %s:\n%swant\n%s", c.file, c.function, got, c.want)
		}
		if op := m.Program.Function(c.function); op == nil || op.Opset != mil.CoreML8 {
			t.Errorf("%s, %s: not in opset CoreML8", c.file, c.function)
		}
		if err := mil.Verify(m.Program); err != nil {
			t.Errorf("%s: %v", c.file, err)
		}
	}
	m := model(t, filepath.Join(out, "qwen_FFN_PF_lut4_chunk_02of02.mlpackage"))
	for k, want := range map[string]string{
		"com.anemll.context_length": "128", "com.anemll.batch_size": "32", "com.anemll.num_chunks": "2",
		"com.anemll.chunk_no": "2", "com.anemll.lut_bits": "4", "com.anemll.layers": "2-3",
	} {
		if got := m.Metadata.User[k]; got != want {
			t.Errorf("metadata %s is %q, want %q", k, got, want)
		}
	}
}

// TestFunctionsShareWeights compares what both functions of a chunk use with
// what the file holds.
func TestFunctionsShareWeights(t *testing.T) {
	out, _ := tiny(t, Options{Context: 64, Batch: 32, Chunks: 1})
	p, err := mlpackage.Open(filepath.Join(out, "qwen_FFN_PF_chunk_01of01.mlpackage"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	both := storedSize(p.Model.Program)
	for _, f := range p.Model.Program.Functions {
		if one := storedSize(&mil.Program{Functions: []*mil.Function{f}}); one != both {
			t.Errorf("function %s uses %d bytes of weights, both together %d", f.Name, one, both)
		}
	}
	// 4 layers of 128*(256+128+128+256) + 3*128*384 weights and their norms,
	// two tables of 64*64, the final norm: 2 bytes each, plus records.
	want := int64(2 * (4*(128*(256+128+128)+256*128+3*128*384+2*128+2*64) + 2*64*64 + 128))
	if both != want {
		t.Errorf("the chunk stores %d bytes, want %d", both, want)
	}
	if size := p.WeightBytes(); size < want || size > want+128*60 {
		t.Errorf("the file has %d bytes for %d bytes of weights", size, want)
	}
}

func TestSameInputSameBytes(t *testing.T) {
	o := DefaultOptions()
	o.Jobs = 1
	a, _ := tiny(t, o)
	o.Jobs = 3
	b, _ := tiny(t, o)
	if x, y := testutil.Hashes(t, a), testutil.Hashes(t, b); !reflect.DeepEqual(x, y) {
		t.Errorf("two conversions differ: %v and %v", x, y)
	}
}

// TestGroupsThatDoNotDivide asks for groups of 8 in parts of 79 and 78 rows.
func TestGroupsThatDoNotDivide(t *testing.T) {
	_, r := tiny(t, Options{SplitHead: 13, Head: compress.Encoding{Bits: 6, Group: 8}})
	n := 0
	for _, e := range r.Weights.Summary().Weights {
		if e.Encoding == "lut6" {
			n++
			if e.Shape[0]%e.Group != 0 {
				t.Errorf("%s: group %d does not divide %d rows", e.Name, e.Group, e.Shape[0])
			}
		}
	}
	if n != 13 {
		t.Errorf("%d weights are palettized, want 13", n)
	}
}

func TestProgress(t *testing.T) {
	o := DefaultOptions()
	var last Progress
	calls := 0
	o.Progress = func(p Progress) {
		if p.Done < last.Done || p.Bytes < last.Bytes {
			t.Errorf("progress goes back from %v to %v", last, p)
		}
		last = p
		calls++
	}
	_, r := tiny(t, o)
	if calls == 0 || last.Done < 0.999 || last.Bytes != r.Bytes {
		t.Errorf("after %d calls the progress ends at %v of %d bytes", calls, last, r.Bytes)
	}
}

func entries(t *testing.T, dir string) (names []string) {
	t.Helper()
	es, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range es {
		names = append(names, e.Name())
	}
	return names
}

func TestInterruptLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	o := DefaultOptions()
	calls := 0
	o.Progress = func(Progress) {
		if calls++; calls == 20 {
			cancel()
		}
	}
	_, err := Convert(ctx, registry, testutil.Data(t, "checkpoints", "tiny-qwen3"), filepath.Join(dir, "out"), o)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v, want context.Canceled", err)
	}
	if got := entries(t, dir); len(got) > 0 {
		t.Errorf("left behind: %v", got)
	}
}

// TestCheckpointCutOff: a checkpoint that is cut off while it is converted, as
// one that is downloaded anew, is an error like others.
func TestCheckpointCutOff(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files in use cannot be cut off")
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(testutil.Data(t, "checkpoints", "tiny-qwen3"))); err != nil {
		t.Fatal(err)
	}
	weights := filepath.Join(dir, "model.safetensors")
	if err := os.Chmod(weights, 0o644); err != nil {
		t.Fatal(err)
	}
	parent := t.TempDir()
	_, err := Convert(t.Context(), registry, dir, filepath.Join(parent, "out"), Options{Context: 64, Batch: 32, Progress: func(Progress) {
		if err := os.Truncate(weights, 100); err != nil {
			t.Error(err)
		}
	}})
	if err == nil || !strings.Contains(err.Error(), "cut off while it was in use") {
		t.Errorf("error %v", err)
	}
	if got := entries(t, parent); len(got) > 0 {
		t.Errorf("left behind: %v", got)
	}
}

// TestOverwriteCheckpoint: a folder that is or holds the checkpoint is not
// replaced, though it may look like a package.
func TestOverwriteCheckpoint(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	src := filepath.Join(out, "a", "b")
	if err := os.CopyFS(src, os.DirFS(testutil.Data(t, "checkpoints", "tiny-qwen3"))); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{out, src} {
		if err := os.WriteFile(filepath.Join(folder, MetaFile), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(src, link); err != nil {
		t.Skip(err)
	}
	for _, c := range [][2]string{{src, out}, {src, src}, {link, out}, {link, src}} {
		_, err := Convert(t.Context(), registry, c[0], c[1], Options{Overwrite: true})
		if err == nil || !strings.Contains(err.Error(), "holds the checkpoint") {
			t.Errorf("%v: error %v", c, err)
		}
		if _, err := os.Stat(filepath.Join(src, "model.safetensors")); err != nil {
			t.Fatal(err)
		}
	}
	// In the checkpoint is worth a word.
	for _, into := range []string{src, link} {
		r, err := Convert(t.Context(), registry, into, filepath.Join(src, "package"), Options{Overwrite: true})
		if err != nil || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "lies in the checkpoint") {
			t.Errorf("%+v, %v", r, err)
		}
	}
}

func TestOverwrite(t *testing.T) {
	dir := t.TempDir()
	src, out := testutil.Data(t, "checkpoints", "tiny-qwen3"), filepath.Join(dir, "out")
	convert := func(overwrite bool) error {
		_, err := Convert(t.Context(), registry, src, out, Options{Overwrite: overwrite})
		return err
	}
	if err := os.Mkdir(out, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := convert(false); err != nil {
		t.Fatalf("an empty folder: %v", err)
	}
	if err := convert(false); !errors.Is(err, ErrExists) {
		t.Errorf("error is %v, want ErrExists", err)
	}
	if err := os.WriteFile(filepath.Join(out, "stale"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := convert(true); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(out, "stale")); err == nil {
		t.Error("overwriting left an old file")
	}
	if got := entries(t, dir); len(got) != 1 {
		t.Errorf("left behind: %v", got)
	}
	// A folder that is no package is never replaced.
	if err := os.Remove(filepath.Join(out, MetaFile)); err != nil {
		t.Fatal(err)
	}
	if err := convert(true); !errors.Is(err, ErrExists) {
		t.Errorf("error is %v, want ErrExists", err)
	}
}

// variant copies the test checkpoint with changes to config.json and tensors.
func variant(t *testing.T, config map[string]any, change func(map[string]*safetensors.Named)) string {
	t.Helper()
	return checkpointtest.Variant(t, testutil.Data(t, "checkpoints", "tiny-qwen3"), func(c map[string]any) { maps.Copy(c, config) }, change)
}

// TestRefusals are checkpoints that must fail before any work, with a reason
// that names what is wrong.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		config map[string]any
		change func(map[string]*safetensors.Named)
		opts   Options
		want   []string
	}{
		"unknown model_type":   {config: map[string]any{"model_type": "phi3"}, want: []string{"config.json", `"phi3"`, "qwen3"}},
		"no model_type":        {config: map[string]any{"model_type": nil}, want: []string{"model_type"}},
		"quantized":            {config: map[string]any{"quantization_config": map[string]any{"quant_method": "gptq"}}, want: []string{"quantization_config", "gptq"}},
		"rope type":            {config: map[string]any{"rope_parameters": map[string]any{"rope_type": "yarn", "rope_theta": 1e6, "factor": 4}}, want: []string{"rope", "yarn"}},
		"no rope theta":        {config: map[string]any{"rope_parameters": nil}, want: []string{"rope_theta"}},
		"missing tensor":       {change: func(m map[string]*safetensors.Named) { delete(m, "model.layers.2.mlp.up_proj.weight") }, want: []string{"model.layers.2.mlp.up_proj.weight"}},
		"wrong shape":          {change: func(m map[string]*safetensors.Named) { m["model.norm.weight"].Shape = []int{64, 2} }, want: []string{"model.norm.weight", "[64 2]"}},
		"default batch, too":   {opts: Options{Context: 32, Remainders: []int{32}}, want: []string{"prefill-remainder 32", "the batch, 32"}},
		"batch beyond context": {opts: Options{Context: 64, Batch: 128}, want: []string{"batch 128"}},
		"too many chunks":      {opts: Options{Chunks: 5}, want: []string{"chunks 5", "4"}},
		"prefix with a slash":  {opts: Options{Prefix: "../x"}, want: []string{"prefix"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			_, err := Convert(t.Context(), registry, variant(t, c.config, c.change), filepath.Join(dir, "out"), c.opts)
			if err == nil {
				t.Fatal("it was converted")
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q does not say %q", err, w)
				}
			}
			if got := entries(t, dir); len(got) > 0 {
				t.Errorf("left behind: %v", got)
			}
		})
	}
}

func TestUnusedTensorsAreListed(t *testing.T) {
	dir := variant(t, nil, func(m map[string]*safetensors.Named) {
		m["model.extra.weight"] = &safetensors.Named{Name: "model.extra.weight", DType: "F16", Shape: []int{1}, Data: []byte{0, 0}}
	})
	r, err := Convert(t.Context(), registry, dir, filepath.Join(t.TempDir(), "out"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(r.Unused, " "); got != "model.extra.weight" {
		t.Errorf("unused tensors are %q", got)
	}
	if want := []string{"not used, as nothing in this architecture reads it: model.extra.weight; a model that needs it would be another one"}; !slices.Equal(r.Warnings[1:], want) { // the first is on the tokenizer
		t.Errorf("warnings %q", r.Warnings)
	}
	if got := strings.Join(unusedWarning([]string{"a", "b", "c", "d", "e"}), ""); !strings.Contains(got, "a, b, c and 2 more") {
		t.Errorf("warning %q", got)
	}
}

func TestValuesBeyondFP16AreCounted(t *testing.T) {
	dir := variant(t, nil, func(m map[string]*safetensors.Named) {
		x := m["model.layers.0.mlp.down_proj.weight"]
		copy(x.Data[0:2], []byte{0x00, 0x48}) // bfloat16 131072
		copy(x.Data[2:4], []byte{0x00, 0x2f}) // bfloat16 1.16e-10
	})
	r, err := Convert(t.Context(), registry, dir, filepath.Join(t.TempDir(), "out"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range r.Weights.Summary().Weights {
		want := int64(0)
		if e.Name == "model.layers.0.mlp.down_proj.weight" {
			want = 1
		}
		if e.Overflow != want || (want == 1 && e.Underflow < 1) {
			t.Errorf("%s: %d overflows, %d underflows", e.Name, e.Overflow, e.Underflow)
		}
	}
}

// TestAutoChunks: a layer has 492,288 bytes as fp16, the rotary tables, which
// every chunk has, 131,072, and the final norm, which the last one has, 256.
// The first of three chunks has two layers.
func TestAutoChunks(t *testing.T) {
	for limit, want := range map[int64]int{0: 1, 2_100_480: 1, 2_100_479: 2, 1_115_904: 2, 1_115_903: 3, 1_115_647: 4, 1: 4} {
		_, r := tiny(t, Options{ChunkSize: limit})
		if got := len(r.Parts) - 2; got != want {
			t.Errorf("limit %d: %d chunks, want %d", limit, got, want)
		}
	}
}

func TestModelName(t *testing.T) {
	for dir, want := range map[string]string{
		"/x/Qwen3-0.6B": "Qwen3-0.6B",
		"/c/hub/models--Qwen--Qwen3-0.6B/snapshots/c1899de289a04d12100db370d81485cdf75e47ca": "Qwen-Qwen3-0.6B",
		"/c/snapshots/x": "x",
	} {
		if got := modelName(filepath.FromSlash(dir)); got != want {
			t.Errorf("%s: %q, want %q", dir, got, want)
		}
	}
}

func TestPackageConfig(t *testing.T) {
	for in, want := range map[string]string{
		`{}`:                                "{\n  \"tokenizer_class\": \"Q\"\n}\n",
		"{\"a\": 1}\n":                      "{\"a\": 1,\n  \"tokenizer_class\": \"Q\"\n}\n",
		`{"tokenizer_class": null, "a": 1}`: `{"tokenizer_class": "Q", "a": 1}`,
		`{"tokenizer_class": "T"}`:          `{"tokenizer_class": "T"}`,
		`{"a": NaN}`:                        "{\"a\": NaN,\n  \"tokenizer_class\": \"Q\"\n}\n",
	} {
		c, err := checkpoint.ParseConfig("config.json", []byte(in))
		if err != nil {
			t.Fatal(err)
		}
		if got := string(packageConfig(c, []byte(in), "Q")); got != want {
			t.Errorf("%s became %s, want %s", in, got, want)
		}
	}
}

// TestWithin: links are followed, and what is not there yet counts.
func TestWithin(t *testing.T) {
	dir := t.TempDir()
	ck := filepath.Join(dir, "ck")
	if err := os.Mkdir(ck, 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(ck, link); err != nil {
		t.Skip(err)
	}
	for _, c := range []struct {
		path, dir string
		want      bool
	}{
		{filepath.Join(ck, "out"), ck, true},
		{filepath.Join(ck, "a", "b"), link, true},
		{filepath.Join(link, "a", "b"), ck, true},
		{filepath.Join(ck, "..", "out"), ck, false},
		{filepath.Join(dir, "ck-ane"), ck, false},
		{filepath.Join(dir, "..."), ck, false},
		{ck, ck, false},
		{dir, ck, false},
		{filepath.Join(ck, "out"), filepath.Join(dir, "missing"), false},
	} {
		if got := Within(c.path, c.dir); got != c.want {
			t.Errorf("%s in %s: %v", c.path, c.dir, got)
		}
	}
}

// TestGroupWarnings: what did not get the groups that were asked for is
// counted, and slow groups are called that.
func TestGroupWarnings(t *testing.T) {
	r, err := Convert(t.Context(), registry, testutil.Data(t, "checkpoints", "tiny-qwen3"), filepath.Join(t.TempDir(), "out"), Options{FFN: compress.Encoding{Bits: 4, Group: 3}})
	if err != nil {
		t.Fatal(err)
	}
	// 7 matrices in each of 4 layers; only gate and up have channels (384) that 3
	// divides.
	want := []string{
		"groups of 3 do not divide the output channels of 20 weights, such as model.layers.0.self_attn.q_proj.weight: they have groups of 2",
		"28 weights have tables for fewer than 8 output channels (down to 2): the Neural Engine is slower with them (measured with 4 bits: by a quarter with 2 channels to a table, by half with 1)",
	}
	if !slices.Equal(r.Warnings, want) {
		t.Errorf("warnings %q", r.Warnings)
	}
	for _, c := range []struct {
		e    compress.Entry
		want int
	}{
		{compress.Entry{Shape: []int{64, 8}}, 0},
		{compress.Entry{Shape: []int{64, 8}, Group: 8}, 0},
		{compress.Entry{Shape: []int{64, 8}, Group: 64}, 0},
		{compress.Entry{Shape: []int{4, 8}, Group: 4, GroupAsked: 8}, 0}, // one table is all that it can have
		{compress.Entry{Shape: []int{60, 8}, Group: 10, GroupAsked: 8}, 1},
		{compress.Entry{Shape: []int{60, 8}, Group: 4}, 1},
	} {
		if got := groupWarnings([]compress.Entry{c.e}); len(got) != c.want {
			t.Errorf("%+v: %q", c.e, got)
		}
	}
}

// TestNoTokenizer: a package without it is one, but not for text.
func TestNoTokenizer(t *testing.T) {
	src := filepath.Join(t.TempDir(), "ck")
	if err := os.CopyFS(src, os.DirFS(testutil.Data(t, "checkpoints", "tiny-qwen3"))); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(src, "tokenizer.json")); err != nil {
		t.Fatal(err)
	}
	r, err := Convert(t.Context(), registry, src, filepath.Join(t.TempDir(), "out"), Options{})
	if err != nil || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "no tokenizer.json") {
		t.Errorf("%+v, %v", r, err)
	}
}
