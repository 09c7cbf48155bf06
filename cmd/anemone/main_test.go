package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"

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
		{[]string{"convert", checkpoint, "-o", out, "--chunks", "9"}, exitFailed},
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
