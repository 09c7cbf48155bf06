package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"anemone/internal/anemll"
	"anemone/internal/arch"
	"anemone/internal/arch/qwen3"
	"anemone/internal/check"
	"anemone/internal/checkpoint/safetensors"
	"anemone/internal/testutil"
)

// checkCommand runs `check` and returns what it prints and its exit status.
func checkCommand(t *testing.T, a ...string) (out string, status int, err error) {
	t.Helper()
	var stdout bytes.Buffer
	cmd := newCheck()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetOut(&stdout)
	cmd.SetErr(&bytes.Buffer{})
	cmd.SetArgs(a)
	if err = cmd.ExecuteContext(t.Context()); err != nil {
		status = exitFailed
		var se *statusError
		if errors.As(err, &se) {
			status = se.status
		}
	}
	return stdout.String(), status, err
}

func tinyPackage(t *testing.T) (dir, checkpoint string) {
	t.Helper()
	checkpoint = testutil.Data(t, "checkpoints", "tiny-qwen3")
	dir = filepath.Join(t.TempDir(), "tiny-ane")
	if _, err := anemll.Convert(t.Context(), arch.Registry{qwen3.Architecture}, checkpoint, dir, anemll.Options{Context: 256, Batch: 64, Chunks: 2}); err != nil {
		t.Fatal(err)
	}
	return dir, checkpoint
}

// altered copies a checkpoint; the elements of the matrices that which names
// have another order there.
func altered(t *testing.T, checkpoint, name string, which func(tensor string) bool) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	if err := os.CopyFS(dir, os.DirFS(checkpoint)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "model.safetensors")
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range f.Tensors() {
		if len(info.Shape) == 2 && which(info.Name) {
			data := b[info.Offset:][:info.Size]
			copy(data, append(bytes.Clone(data[len(data)/3&^1:]), data[:len(data)/3&^1]...))
		}
	}
	path = filepath.Join(dir, "altered")
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, filepath.Join(dir, "model.safetensors")); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestCheck(t *testing.T) {
	dir, hf := tinyPackage(t)
	gold := testutil.Data(t, "goldens", "tiny-qwen3.safetensors")
	text := filepath.Join(t.TempDir(), "text.txt")
	if err := os.WriteFile(text, []byte(strings.Repeat("Once upon a time there was a letter. ", 40)), 0o666); err != nil {
		t.Fatal(err)
	}
	short := filepath.Join(t.TempDir(), "short.txt")
	if err := os.WriteFile(short, []byte("Once upon a time."), 0o666); err != nil {
		t.Fatal(err)
	}
	other := altered(t, hf, "other", func(string) bool { return true })
	broken := altered(t, hf, "broken", func(name string) bool { return name == "model.layers.1.mlp.down_proj.weight" })
	for _, c := range []struct {
		args   []string
		status int
		want   []string // in the output, or in the error
	}{
		{[]string{"--hf", hf}, 0, []string{"pass: " + dir + " agrees with tiny-qwen3 (float32 reference, greedy", "contract sequence", "infer only", "of these generated", "prefill against infer", "limits"}},
		{[]string{"--hf", hf, "--prompt", "Tell me a story.", "--tokens", "70", "--layers"}, 0, []string{"layer 2     qwen_FFN_PF_chunk_02of02", "final norm", "embeddings"}},
		{[]string{"--hf", hf, "--text", text}, 0, []string{"given text", "note: the text has", "only the first 256"}},
		{[]string{"--golden", gold, "--numerics", "fp16"}, 0, []string{"pass: ", gold, "fp16 arithmetic", "160 tokens"}},
		{[]string{"--golden", gold, "--min-cosine", "0.99999999"}, 1, []string{"FAIL: " + dir + " does not agree with", "infer only: cosine", "is below 0.99999999"}},
		{[]string{"--golden", gold, "--max-kl", "0"}, 1, []string{"mean KL", "is above 0"}},
		{[]string{"--golden", gold, "--min-top1", "1.5"}, 2, []string{"--min-top1 1.5: want a number from 0 to 1"}},
		{[]string{"--golden", gold, "--min-cosine", "nan"}, 2, []string{"--min-cosine NaN"}},
		{[]string{"--golden", gold, "--max-kl", "-1"}, 2, []string{"--max-kl -1: want a number from 0 on"}},
		{[]string{"--bench"}, 0, []string{"bench: ", "prefill", "tokens/s", "decode", "peak memory", "weights", "states"}},
		{[]string{"--bench", "--jobs", "1", "--json"}, 0, []string{`"cores": 1`, `"problems": []`}},
		{[]string{"--plan"}, 0, []string{"plan (predicted by rules", "qwen_lm_head", "not on the Neural Engine:", "table of all tokens", "arithmetic on int32"}},
		{[]string{"--plan", "-v", "--golden", gold}, 0, []string{"pass: ", "ANE  conv"}},
		{[]string{"--text", text}, 0, []string{"pass: " + dir + " agrees with itself", "prefill against infer"}},
		{[]string{"--text", short}, 2, []string{"none went through prefill, which takes 64 at a time"}},
		{[]string{"--hf", other, "--layers"}, 1, []string{"FAIL: " + dir + " does not agree with other", "embeddings  qwen_embeddings", "<- here they part", "note: hardly anything agrees: the package was probably made of another checkpoint than other"}},
		{[]string{"--hf", broken}, 1, []string{"FAIL: " + dir + " does not agree with broken"}},
		{[]string{"--hf", filepath.Join(testutil.Root(t), "internal", "arch", "qwen3", "testdata", "wide-heads")}, 2, []string{"wide-heads has 33 tokens in its vocabulary, the package has logits for 1024: it was made of another one"}},
		{[]string{"--hf", testutil.Data(t, "checkpoints", "tiny-qwen35")}, 2, []string{"tiny-qwen35 has 8 layers, the package says that it has 4"}},
		{nil, 2, []string{"nothing to do: give --hf CHECKPOINT"}},
		{[]string{"--hf", hf, "--golden", gold}, 2, []string{"not to both"}},
		{[]string{"--hf", hf, "--prompt", "a", "--text", text}, 2, []string{"give one of them"}},
		{[]string{"--hf", hf, "--text", filepath.Dir(text)}, 2, []string{"directory"}},
		{[]string{"--hf", hf, "--tokens", "1000"}, 2, []string{"do not fit the context of 256"}},
		{[]string{"--hf", dir}, 2, []string{"open checkpoint"}},
		{[]string{"--golden", text}, 2, []string{"golden", "text.txt"}},
		{[]string{"--golden", gold, "--prompt", "a"}, 2, []string{"brings its own tokens"}},
		{[]string{"--golden", gold, "--layers"}, 2, []string{"reference of a checkpoint"}},
	} {
		out, status, err := checkCommand(t, append([]string{dir}, c.args...)...)
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
	// The mark is in the row of what is broken.
	for hf, row := range map[string]string{other: "embeddings", broken: "layer 1 "} {
		out, _, _ := checkCommand(t, dir, "--hf", hf, "--layers", "--tokens", "8", "--prompt", "Tell me a story.")
		for _, l := range strings.Split(out, "\n") {
			if strings.Contains(l, "here they part") != strings.HasPrefix(strings.TrimSpace(l), row) {
				t.Errorf("%s: %q, want a mark in the row of %s", filepath.Base(hf), l, row)
			}
		}
	}
	if _, status, err := checkCommand(t, hf, "--bench"); status != 2 || !strings.Contains(err.Error(), "convert it first") {
		t.Errorf("a checkpoint in place of a package: status %d, %v", status, err)
	}
}

// TestCheckJSON reads what --json prints: figures at the top, as bench's
// scripts read them.
func TestCheckJSON(t *testing.T) {
	dir, hf := tinyPackage(t)
	for _, golden := range []bool{true, false} {
		a := []string{dir, "--json", "--bench", "--plan", "--hf", hf, "--layers"}
		if golden {
			a = []string{dir, "--json", "--golden", testutil.Data(t, "goldens", "tiny-qwen3.safetensors")}
		}
		out, status, err := checkCommand(t, a...)
		if status != 0 {
			t.Fatalf("status %d, %v", status, err)
		}
		type figures struct {
			Positions int
			Cosine    struct{ Min, Mean float64 }
			KL        struct{ Mean float64 }
			MaxDiff   *float64 `json:"max_abs_diff"`
			Top1      float64
		}
		var v struct {
			Package, Numerics, Target string
			Passed                    bool
			Failures, Notes           []string
			Contract, Infer           *figures
			Prefill                   *figures `json:"prefill_against_infer"`
			Bench                     map[string]any
			Plan                      struct{ Functions []any }
			Layers                    []any
		}
		if err := json.Unmarshal([]byte(out), &v); err != nil {
			t.Fatalf("%v in\n%s", err, out)
		}
		if v.Package != dir || v.Numerics != "fp32" || !v.Passed || v.Failures == nil || v.Notes == nil {
			t.Errorf("%+v", v)
		}
		for _, f := range []*figures{v.Contract, v.Infer, v.Prefill} {
			if f == nil || f.Positions == 0 || f.Cosine.Min < 0.9999 || f.Cosine.Mean < f.Cosine.Min || f.MaxDiff == nil || *f.MaxDiff > 0.01 || f.Top1 != 1 {
				t.Errorf("%+v", f)
			}
		}
		if golden {
			continue
		}
		if v.Bench["weight_bytes"] == nil || len(v.Plan.Functions) != 6 || len(v.Layers) != 6 {
			t.Errorf("bench %v, %d functions, %d layers", v.Bench, len(v.Plan.Functions), len(v.Layers))
		}
	}
}

// A context that a batch fills has no room for an answer.
func TestBenchNoDecode(t *testing.T) {
	var b strings.Builder
	printBench(&b, &check.BenchReport{PromptTokens: 16})
	if !strings.Contains(b.String(), "decode   not measured ") {
		t.Errorf("%s", b.String())
	}
}
