package check

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"anemone/internal/checkpoint"
	"anemone/internal/engine"
	"anemone/internal/tokenizer"
)

func TestPackage(t *testing.T) {
	slow(t)
	ck := tinyCheckpoint(t)
	o := lut(0)
	o.Context = 128
	dir := convert(t, ck, o)
	m := load(t, dir, engine.Options{})
	tok, err := tokenizer.Open(ck)
	if err != nil {
		t.Fatal(err)
	}
	asked := ""
	template := func(s string) (string, error) {
		asked = s
		return "<|im_start|>user\n" + s + "<|im_end|>\n", nil
	}
	for _, c := range []struct {
		name   string
		o      PackageOptions
		prompt string // text at the start of the sequence
		given  int    // tokens of it
	}{
		// The tiny vocabulary makes the default prompt too long for 128.
		{"default", PackageOptions{}, shortPrompt, len(tok.Encode(shortPrompt, true))},
		{"templated", PackageOptions{Template: template}, "<|im_start|>user\n" + shortPrompt + "<|im_end|>\n", 0},
		{"prompt", PackageOptions{Prompt: "The letter", Options: Options{Tokens: 3}}, "The letter", len(tok.Encode("The letter", true))},
		{"text", PackageOptions{Text: "The letter arrived.", Template: template}, "The letter arrived.", len(tok.Encode("The letter arrived.", true))},
	} {
		c.o.Checkpoint = ck
		r, err := Package(context.Background(), registry, m, c.o)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		want := tok.Encode(c.prompt, c.o.Template == nil || c.o.Text != "")
		if !r.Passed || len(r.Sequence) < len(want) || !slices.Equal(r.Sequence[:len(want)], want) || r.PromptTokens != len(want) || c.given != 0 && r.PromptTokens != c.given {
			t.Errorf("%s: passed %v, %d of %d tokens given, %q", c.name, r.Passed, r.PromptTokens, r.Tokens, tok.Decode(r.Sequence, false))
		}
		if r.Context != 128 || r.Batch != 64 {
			t.Errorf("%s: context %d, batch %d", c.name, r.Context, r.Batch)
		}
	}
	if asked != shortPrompt {
		t.Errorf("the template got %q last, want no text", asked)
	}

	// Without a checkpoint, prefill is held to infer.
	itself, err := Package(context.Background(), registry, m, PackageOptions{Text: strings.Repeat("The letter arrived. ", 20)})
	if err != nil || !itself.Passed || itself.Target != "itself" || itself.Infer != nil || itself.Prefill.Positions < 2 || itself.Prefill.Cosine.Min < 0.999999 {
		t.Errorf("held to itself: %+v, %v", itself, err)
	}

	bad := errors.New("bad template")
	empty := t.TempDir()
	for _, c := range []struct {
		o    PackageOptions
		want string
	}{
		{PackageOptions{}, "want a checkpoint, a golden file, or a text"},
		{PackageOptions{Prompt: "x"}, "want a checkpoint, a golden file, or a text"},
		{PackageOptions{Text: "The letter arrived."}, "none went through prefill, which takes 64 at a time"},
		{PackageOptions{Text: "x", Options: Options{Layers: true}}, "reference of a checkpoint"},
		{PackageOptions{Checkpoint: ck, Golden: "x"}, "not to both"},
		{PackageOptions{Golden: "x", Text: "y"}, "brings its own tokens"},
		{PackageOptions{Golden: "x", Prompt: "y"}, "brings its own tokens"},
		{PackageOptions{Golden: filepath.Join(empty, "x")}, "no such file"},
		{PackageOptions{Checkpoint: ck, Prompt: "x", Text: "y"}, "give one of them"},
		{PackageOptions{Checkpoint: empty}, "open checkpoint"},
		{PackageOptions{Checkpoint: ck, Prompt: strings.Repeat("x y z ", 100)}, "take a shorter prompt"},
		{PackageOptions{Checkpoint: ck, Template: func(string) (string, error) { return "", bad }}, "bad template"},
	} {
		if _, err := Package(context.Background(), registry, m, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want an error with %q", c.o, err, c.want)
		}
	}
}

func TestFindTokenizer(t *testing.T) {
	ck, err := checkpoint.Open(tinyCheckpoint(t))
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	empty := t.TempDir()
	for _, dir := range []string{empty, ""} {
		if tok, err := findTokenizer(dir, ck); err != nil || len(tok.Encode("letter", true)) == 0 {
			t.Errorf("%q: %v", dir, err)
		}
	}
	if _, err := findTokenizer(empty, nil); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "golden file") {
		t.Errorf("no tokenizer: %v", err)
	}
	if err := os.WriteFile(filepath.Join(empty, "tokenizer.json"), []byte("{"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := findTokenizer(empty, ck); err == nil || !strings.Contains(err.Error(), filepath.Join(empty, "tokenizer.json")) {
		t.Errorf("a broken tokenizer: %v", err)
	}
}
