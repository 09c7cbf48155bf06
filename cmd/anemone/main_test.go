package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"anemone"
	"anemone/internal/testutil"
)

// What is said about an interrupted command fits the command.
func TestInterrupted(t *testing.T) {
	const written = "interrupted: nothing was left half-written"
	want := map[string]string{"convert": written, "compile": written, "decompile": written, "predict": written}
	for _, c := range newRoot().Commands() {
		w := want[c.Name()]
		if w == "" {
			w = "interrupted"
		}
		if got := interrupted(c); got != w {
			t.Errorf("%s: %q, want %q", c.Name(), got, w)
		}
		delete(want, c.Name())
	}
	if len(want) > 0 {
		t.Errorf("no commands %v", want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	checkpoint := testutil.Data(t, "checkpoints", "tiny-qwen3")
	if got := run(ctx, []string{"convert", checkpoint, "-o", filepath.Join(t.TempDir(), "out")}); got != 130 {
		t.Errorf("interrupted conversion: exit status %d, want 130", got)
	}
}

// Scripts tell by the exit status whether they called the command wrongly (2)
// or the work failed (1).
func TestExitStatus(t *testing.T) {
	checkpoint := testutil.Data(t, "checkpoints", "tiny-qwen3")
	out := filepath.Join(t.TempDir(), "a", "b", "out")
	for _, c := range []struct {
		args   []string
		status int
	}{
		{[]string{"--version"}, 0},
		{[]string{"convert", "--help"}, 0},
		{[]string{"nonsense"}, exitUsage},
		{[]string{"convert"}, exitUsage},
		{[]string{"convert", "--nonsense"}, exitUsage},
		{[]string{"convert", checkpoint, "-o", out, "--lut-ffn", "5"}, exitUsage},
		{[]string{"convert", checkpoint, "-o", out, "--format", "onnx"}, exitUsage},
		{[]string{"convert", checkpoint, "-o", out, "--chunks", "0"}, exitUsage},
		{[]string{"convert", checkpoint, "-o", out, "--context", "0"}, exitUsage},
		{[]string{"convert", checkpoint, "-o", out, "--batch", "-1"}, exitUsage},
		{[]string{"convert", checkpoint, "-o", out, "--jobs", "-1"}, exitUsage},
		{[]string{"convert", filepath.Join(checkpoint, "missing"), "-o", out}, exitFailed},
		{[]string{"convert", checkpoint, "-o", out, "--chunks", "9"}, exitUsage},
		{[]string{"run", checkpoint, "hello"}, exitFailed},
	} {
		if got := run(t.Context(), c.args); got != c.status {
			t.Errorf("anemone %q: exit status %d, want %d", c.args, got, c.status)
		}
	}
	if _, err := os.Stat(filepath.Dir(filepath.Dir(out))); err == nil {
		t.Error("conversions that failed left the folders above their output")
	}
}

// What people see when they get something wrong: in their words, with what to
// do, and without those of Go.
func TestMessages(t *testing.T) {
	checkpoint := testutil.Data(t, "checkpoints", "tiny-qwen3")
	dir := t.TempDir()
	path := func(name ...string) string { return filepath.Join(append([]string{dir}, name...)...) }
	files := os.DirFS(checkpoint)
	for _, to := range []string{path("ck"), path("bare"), path("models--A--B", "snapshots", "0123")} {
		if err := os.CopyFS(to, files); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(path("bare", "tokenizer.json")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for _, c := range []struct {
		args   []string
		status int
		want   string // somewhere in what is printed
	}{
		{[]string{"convert", "ck"}, 0, "ck-ane: 1.3 MB of weights"},
		{[]string{"convert", "ck/"}, 1, "output folder ck-ane already exists and is not empty: choose another, or overwrite it (--overwrite)\n"},
		{[]string{"convert", "ck", "--batch", "64", "--context", "32"}, 2, "--batch 64: want 2 to the context length, 32\n"},
		{[]string{"convert", "ck", "--context", "1"}, 2, "--context 1: want 2 or more\n"},
		{[]string{"convert", "ck", "--output="}, 2, "--output is empty: want the FOLDER to make\n"},
		{[]string{"convert", "ck", "--chunks", "9"}, 2, "--chunks 9: want 1 to 4 for 4 layers\n"},
		{[]string{"run", filepath.Join("ck", "config.json"), "hi"}, 1, "config.json: this is a file, not the folder of a package\n"},
		{[]string{"convert", "ck", "--gdn-chunk", "-1"}, 2, "--gdn-chunk -1: want 0 or more\n"},
		{[]string{"convert", "ck", "--gdn-chunk", "16"}, 2, "--gdn-chunk 16: qwen3 has no Gated DeltaNets"},
		{[]string{"convert", "ck", "--prefill-remainder", "16,5"}, 2, "--prefill-remainder 5: want divisors of the batch, 64, from 2 on and less than it"},
		{[]string{"convert", "ck", "--prefill-remainder", "16,8,16"}, 2, "--prefill-remainder 16 twice"},
		{[]string{"convert", "ck", "-o", "rest", "--prefill-remainder", "4,16"}, 0, "rest: 1.3 MB of weights"},
		{[]string{"inspect", "rest"}, 0, "what is left in calls of 16, 4"},
		{[]string{"convert", "ck", "--context", "x"}, 2, `--context "x": want a whole number`},
		{[]string{"convert", "ck", "--lut-ffn", "5"}, 2, `--lut-ffn "5": 5 bits are not a width`},
		{[]string{"convert", "ck", "--format", "onnx"}, 2, `--format "onnx": want mlpackage, mlmodelc or both`},
		{[]string{"convert", "ck", "-o", "slow", "--lut-ffn", "4,3"}, 0, "warning: groups of 3 do not divide the output channels of 20 weights"},
		{[]string{"convert", "bare"}, 0, "warning: the checkpoint has no tokenizer.json"},
		{[]string{"inspect", "bare"}, 0, "problem: there is no tokenizer.json"},
		{[]string{"inspect", "bare-ane"}, 0, "problem: there is no tokenizer.json"},
		{[]string{"inspect", "bare-ane", "--lint"}, 0, "warning: no-tokenizer"},
		{[]string{"convert", "Qwen/Qwen3-0.6B"}, 1, "download it first: hf download Qwen/Qwen3-0.6B --local-dir Qwen3-0.6B\n"},
		{[]string{"convert", "nope"}, 1, "anemone: checkpoint nope: no such folder\n"},
		{[]string{"convert", "models--A--B"}, 1, "the checkpoint is " + filepath.Join("models--A--B", "snapshots", "0123") + "\n"},
		{[]string{"inspect", "models--A--B"}, 1, "the checkpoint is " + filepath.Join("models--A--B", "snapshots", "0123") + "\n"},
		{[]string{"convert", filepath.Join("models--A--B", "snapshots", "0123")}, 0, "A-B-ane: 1.3 MB of weights"},
		{[]string{"inspect", "nope"}, 1, "anemone: nope: no such file or folder\n"},
		{[]string{"inspect", "ck", "--lint"}, 2, "convert it first\n"},
		{[]string{"predict", "nope", "--jobs", "-1"}, 2, "--jobs -1: want 0 or more\n"},
		{[]string{"predict", "nope"}, 1, "nope: no such file or folder\n"},
		{[]string{"check", "nope", "--bench"}, 2, "anemone: package nope: no such folder\n"},
		{[]string{"run", "nope", "hi"}, 1, "anemone: package nope: no such folder\n"},
		{[]string{"compile", "nope"}, 1, "anemone: nope: no such file or folder\n"},
		{[]string{"compile", "ck-ane"}, 1, "ck-ane holds several models: give them, " + filepath.Join("ck-ane", "*.mlpackage")},
		{[]string{"compile", "ck"}, 1, "ck: want a .mlpackage or .mlmodel\n"},
		{[]string{"compile", "ck/config.json"}, 1, "ck/config.json: want a .mlpackage or .mlmodel\n"},
		{[]string{"compile", "ck-ane/qwen_embeddings.mlmodelc"}, 1, "is already compiled\n"},
		{[]string{"compile", "ck-ane/qwen_embeddings.mlpackage"}, 1, "is there already: choose another folder (-o) or replace it (--overwrite)\n"},
		{[]string{"compile", "ck-ane/qwen_embeddings.mlpackage", "--overwrite"}, 0, ""},
		{[]string{"decompile", "ck-ane/qwen_embeddings.mlpackage"}, 1, "is already a package\n"},
		{[]string{"decompile", "ck-ane/qwen_embeddings.mlmodelc"}, 1, "is there already: choose another folder (-o) or replace it (--overwrite)\n"},
		{[]string{"decompile", "ck-ane/qwen_embeddings.mlmodelc", "-o", "new/folder"}, 0, filepath.Join("new", "folder", "qwen_embeddings.mlpackage") + "\n"},
		{[]string{"decompile", "ck"}, 1, "ck: want a compiled bundle (.mlmodelc)\n"},
		{[]string{"demo", "--keep", "kept"}, 0, "the package in " + filepath.Join("kept", "tiny-qwen3-ane")},
		{[]string{"demo", "--keep", "kept"}, 0, "the package in " + filepath.Join("kept", "tiny-qwen3-ane")},
		{[]string{"demo", "x"}, 2, `anemone demo takes no arguments, found "x"`},
		{[]string{"convert"}, 2, "anemone: CHECKPOINT is missing\nUsage: anemone convert"},
		{[]string{"convert", "a", "b"}, 2, `want one CHECKPOINT, found "a" and "b"`},
		{[]string{"run"}, 2, "anemone: PACKAGE is missing"},
		{[]string{"bogus"}, 2, `unknown command "bogus"`},
		{[]string{"help", "bogus"}, 2, `there is no command "bogus"`},
		{[]string{"help", "run"}, 0, "anemone run PACKAGE"},
		{[]string{"completion", "bogus"}, 2, "want a shell: bash, zsh, fish or powershell"},
		{[]string{"completion", "fish"}, 0, "anemone"},
		{[]string{"version"}, 0, "anemone " + anemone.Version},
	} {
		out, log, status := command(t, "", c.args...)
		if status != c.status || !strings.Contains(out+log, c.want) {
			t.Errorf("anemone %q: status %d, want %d and %q\n%s%s", c.args, status, c.status, c.want, out, log)
		}
		for _, go_ := range []string{"strconv", "unsupported operation", "not supported:", "arg(s)", "file does not exist", "stat ", "open nope"} {
			if strings.Contains(log, go_) {
				t.Errorf("anemone %q says %q: %s", c.args, go_, log)
			}
		}
	}
	t.Chdir(path("ck"))
	if _, log, status := command(t, "", "convert", "."); status != 2 || !strings.Contains(log, "such as -o "+filepath.Join("..", "ck-ane")+"\n") {
		t.Errorf("in the checkpoint: status %d\n%s", status, log)
	}
	if _, _, status := command(t, "", "convert", ".", "-o", "../other"); status != 0 {
		t.Errorf("beside the checkpoint: status %d", status)
	}
}

// Lines about fp16 are there only if there is something to say, and percent
// and bytes do not contradict each other.
func TestConversionTexts(t *testing.T) {
	line := progressLine(anemone.Progress{Part: "qwen_lm_head", Done: 0.42, Bytes: 349e6, Elapsed: 10 * time.Second, Estimate: 24 * time.Second})
	if line != "42 % done, 24 s left; 349.0 MB written, 34.9 MB/s: qwen_lm_head" {
		t.Errorf("progress %q", line)
	}
	dir := t.TempDir()
	r, err := anemone.Convert(t.Context(), testutil.Data(t, "checkpoints", "tiny-qwen3"), filepath.Join(dir, "out"), anemone.DefaultConvertOptions())
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	printConversion(&b, r, true)
	for _, s := range []string{"fp16 could", "clamped", "tiny value"} {
		if strings.Contains(b.String(), s) {
			t.Errorf("%q in\n%s", s, b.String())
		}
	}
	if !strings.Contains(b.String(), "model.layers.3.self_attn.k_norm.weight ") {
		t.Errorf("not every weight is listed:\n%s", b.String())
	}
}
