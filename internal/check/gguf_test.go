package check

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"anemone/internal/checkpoint"
	"anemone/internal/checkpoint/gguf"
	"anemone/internal/checkpoint/gguftest"
	"anemone/internal/engine"
	"anemone/internal/tokenizer/chat"
)

// TestGGUF: a package that was made of the folder is held to the GGUF file of
// the same values, whose reference is the same.
func TestGGUF(t *testing.T) {
	m := gguftest.Convert(t, tinyCheckpoint(t), gguf.F32)
	o := lut(0)
	o.Context = 128
	pkg := load(t, convert(t, tinyCheckpoint(t), o), engine.Options{})
	// Its eps went through float32, which is far below what fp16 weights make of
	// the logits.
	want, err := Package(context.Background(), registry, pkg, PackageOptions{Checkpoint: tinyCheckpoint(t), Options: Options{Tokens: 8}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := Package(context.Background(), registry, pkg, PackageOptions{Checkpoint: m.Write(t), Options: Options{Tokens: 8}})
	if err != nil || !got.Passed || !strings.HasPrefix(got.Target, "model.gguf (") || !slices.Equal(got.Sequence, want.Sequence) {
		t.Fatalf("%+v, %v", got, err)
	}
	if d := got.Infer.MaxDiff - want.Infer.MaxDiff; d > 1e-4 || d < -1e-4 {
		t.Errorf("largest difference %g, of the folder %g", got.Infer.MaxDiff, want.Infer.MaxDiff)
	}
}

func TestGGUFTokenizer(t *testing.T) {
	m := gguftest.Convert(t, tinyCheckpoint(t), gguf.F16)
	open := func() *checkpoint.Checkpoint {
		ck, err := checkpoint.Open(m.Write(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ck.Close() })
		return ck
	}
	if tok, err := findTokenizer(t.TempDir(), open()); err != nil || len(tok.Encode("letter", true)) == 0 {
		t.Errorf("%v", err)
	}
	m.Set("tokenizer.ggml.pre", "nobody-knows")
	if _, err := findTokenizer("", open()); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "nobody-knows") {
		t.Errorf("a tokenizer that is not known: %v", err)
	}
}

func TestFindTemplate(t *testing.T) {
	hf, empty := tinyCheckpoint(t), t.TempDir()
	m := gguftest.Convert(t, hf, gguf.F16)
	m.Set("tokenizer.chat_template", "{{ eos_token }}{{ messages[0].content }}")
	with := m.Write(t)
	m.Set("tokenizer.ggml.model", nil)
	bare := m.Write(t)
	m.Set("tokenizer.chat_template", "{% if %}")
	bad := m.Write(t)
	m.Set("tokenizer.chat_template", nil)
	without := m.Write(t)
	eos := "[PAD1023]" // what the tiny checkpoint's config.json calls the end
	for _, c := range []struct {
		name, dir, path, want string // of the message "x"; "" for no template
		err                   string
	}{
		{"of the package", hf, with, "<|im_start|>user\nx<|im_end|>\n", ""},
		{"of the folder", empty, hf, "<|im_start|>user\nx<|im_end|>\n", ""},
		{"of the file", empty, with, eos + "x", ""},
		{"of a file without a tokenizer", empty, bare, "x", ""},
		{"of a file, broken", empty, bad, "", bad},
		{"a file without", empty, without, "", ""},
		{"a folder without", empty, empty, "", ""},
		{"no checkpoint", empty, "", "", ""},
	} {
		tpl, err := FindTemplate(c.dir, c.path)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: error %v does not name %s", c.name, err, c.err)
			}
			continue
		}
		if err != nil || (tpl == nil) != (c.want == "") {
			t.Errorf("%s: %v, %v", c.name, tpl, err)
			continue
		}
		if tpl == nil {
			continue
		}
		got, err := tpl.Render([]chat.Message{{Role: "user", Content: "x"}}, chat.Options{})
		if err != nil || got != c.want {
			t.Errorf("%s: %q, %v; want %q", c.name, got, err, c.want)
		}
	}
}
