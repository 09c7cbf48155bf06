package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"anemone/internal/checkpoint/gguf"
	"anemone/internal/checkpoint/gguftest"
	"anemone/internal/testutil"
)

// TestGGUF goes the whole way with a GGUF file: inspect, convert under the
// default name, run, check; and what can be got wrong on it.
func TestGGUF(t *testing.T) {
	hf := testutil.Data(t, "checkpoints", "tiny-qwen3")
	m := gguftest.Convert(t, hf, gguf.Q8_0)
	dir := t.TempDir()
	write := func(name string, data []byte) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("Tiny.Q8_0.gguf", m.File())
	write("folder/Tiny.gguf", m.File())
	write("models--A--B/snapshots/01/Tiny.gguf", m.File())
	m.Set("tokenizer.ggml.pre", "nobody-knows")
	write("odd.gguf", m.File())
	m.Set("general.architecture", "phi3")
	write("phi.gguf", m.File())
	write("cut.gguf", m.File()[:1000])
	write("not.gguf", []byte("<html>"))
	write("lfs.gguf", []byte("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"))
	write("several/A.gguf", m.File())
	write("several/B.gguf", m.File())
	t.Chdir(dir)
	for _, c := range []struct {
		args   []string
		status int
		want   []string // somewhere in what is printed
	}{
		{[]string{"inspect", "Tiny.Q8_0.gguf"}, 0, []string{
			`checkpoint of model type "qwen3", 46 tensors`, "GGUF 3", "Q8_0 29, F32 17", "architecture  qwen3", "gpt2 (qwen2), 1024 tokens", "4096 positions", "can be converted: anemone convert Tiny.Q8_0.gguf"}},
		{[]string{"inspect", "Tiny.Q8_0.gguf", "--json"}, 0, []string{`"format": "GGUF 3"`, `"context_length": 4096`, `"name": "Q8_0"`, `"supported": true`, `"problems": []`}},
		{[]string{"inspect", "phi.gguf"}, 0, []string{`checkpoint of architecture "phi3", 46 tensors`, "cannot be converted: ", `found "phi3", want one of`, "gemma3, llama, qwen2, qwen3"}},
		{[]string{"inspect", "odd.gguf"}, 0, []string{"problem: no tokenizer.json can be made", "nobody-knows"}},
		{[]string{"inspect", "Tiny.Q8_0.gguf", "--lint"}, 2, []string{"convert it first"}},
		{[]string{"inspect", "cut.gguf"}, 1, []string{"cut.gguf", "cut off"}},
		{[]string{"inspect", "not.gguf"}, 1, []string{"no GGUF file"}},
		{[]string{"inspect", "folder"}, 1, []string{"give the file itself, " + filepath.Join("folder", "Tiny.gguf")}},
		{[]string{"convert", "Tiny.Q8_0.gguf", "--context", "256"}, 0, []string{"Tiny.Q8_0-ane: 1.3 MB of weights"}},
		{[]string{"inspect", "Tiny.Q8_0-ane"}, 0, []string{"package anemll-Tiny.Q8_0-ctx256", "no problems found"}},
		{[]string{"run", "Tiny.Q8_0-ane", "Once upon a time", "--max-tokens", "5"}, 0, []string{"5 tokens out"}},
		{[]string{"check", "Tiny.Q8_0-ane", "--hf", "Tiny.Q8_0.gguf", "--tokens", "8"}, 0, []string{"pass: Tiny.Q8_0-ane agrees with Tiny.Q8_0.gguf"}},
		{[]string{"convert", "odd.gguf"}, 0, []string{"warning: no tokenizer.json can be made", "nobody-knows", "into the package"}},
		{[]string{"check", "odd-ane", "--hf", "odd.gguf"}, 2, []string{"neither the package nor the checkpoint has a tokenizer.json", "nobody-knows"}},
		{[]string{"convert", "phi.gguf"}, 1, []string{"phi.gguf", `"general.architecture"`, `"phi3"`}},
		{[]string{"convert", "cut.gguf"}, 1, []string{"cut.gguf", "cut off"}},
		{[]string{"convert", "not.gguf"}, 1, []string{`not.gguf: begins with "<htm", want "GGUF": this is no GGUF file`}},
		{[]string{"convert", "lfs.gguf"}, 1, []string{"lfs.gguf: this is a Git LFS pointer"}},
		{[]string{"inspect", "lfs.gguf"}, 1, []string{"lfs.gguf: this is a Git LFS pointer"}},
		{[]string{"predict", "Tiny.Q8_0.gguf"}, 1, []string{"Tiny.Q8_0.gguf is a GGUF file, not a Core ML model: convert it first"}},
		{[]string{"convert", "several"}, 1, []string{"a folder with 2 GGUF files: give one of them, such as " + filepath.Join("several", "A.gguf")}},
		{[]string{"convert", "Tiny.Q8_0-ane", "-o", "x"}, 1, []string{"Tiny.Q8_0-ane has no .safetensors file, but a meta.yaml: it is a package; give the checkpoint that it was made of"}},
		{[]string{"convert", filepath.Join("Tiny.Q8_0-ane", "tokenizer.json")}, 1, []string{"is a file, but no GGUF file; want the folder with config.json and the weights, Tiny.Q8_0-ane\n"}},
		{[]string{"convert", "folder"}, 1, []string{"give the file itself, " + filepath.Join("folder", "Tiny.gguf")}},
		{[]string{"convert", "models--A--B"}, 1, []string{"give the GGUF file in it: " + filepath.Join("models--A--B", "snapshots", "01", "Tiny.gguf")}},
		{[]string{"convert", "a/nope.gguf"}, 1, []string{"checkpoint a/nope.gguf: no such file\n"}},
		{[]string{"convert", "Tiny.Q8_0.gguf", "-o", "Tiny.Q8_0.gguf", "--overwrite"}, 1, []string{"already exists and is not a folder"}},
		{[]string{"help", "convert"}, 0, []string{".gguf -o"}},
	} {
		out, log, status := command(t, "", c.args...)
		if status != c.status {
			t.Errorf("anemone %q: status %d, want %d\n%s%s", c.args, status, c.status, out, log)
		}
		for _, w := range c.want {
			if !strings.Contains(out+log, w) {
				t.Errorf("anemone %q: no %q in\n%s%s", c.args, w, out, log)
			}
		}
	}
}
