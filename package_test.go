package anemone_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"anemone"
)

// The session of the library feeds what Generate does: the greedy text is that
// of taking the largest logit by hand.
func TestSession(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "package")
	o := anemone.DefaultConvertOptions()
	o.Context, o.Batch = 128, 16
	if _, err := anemone.Convert(t.Context(), "testdata/checkpoints/tiny-qwen3", dir, o); err != nil {
		t.Fatal(err)
	}
	pkg, err := anemone.Open(dir, anemone.OpenOptions{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer pkg.Close()
	if p := pkg.Problems(); len(p) > 0 {
		t.Errorf("problems: %q", p)
	}
	if n := pkg.ContextLength(); n != 128 {
		t.Errorf("context length %d, want 128", n)
	}
	if !pkg.HasTemplate() {
		t.Error("the chat template is missing")
	}
	const prompt = "Once upon a time"
	ids := pkg.Encode(prompt)
	if got := pkg.Decode(ids); got != prompt {
		t.Errorf("decoded %q, want %q", got, prompt)
	}

	s, err := pkg.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	var byHand []int32
	next := ids
	for range 12 {
		logits, err := s.Feed(t.Context(), next)
		if err != nil {
			t.Fatal(err)
		}
		if len(logits) != 1024 {
			t.Fatalf("%d logits, want 1024", len(logits))
		}
		next = []int32{int32(slices.Index(logits, slices.Max(logits)))}
		byHand = append(byHand, next...)
	}

	s.Reset()
	zero := 0.0
	got, err := anemone.Text(s.Generate(t.Context(), anemone.Request{
		Prompt: prompt, MaxTokens: 12, IgnoreEOS: true, Sampling: anemone.Sampling{Temperature: &zero},
	}))
	if err != nil {
		t.Fatal(err)
	}
	if want := pkg.Decode(byHand); got != want {
		t.Errorf("generated %q, by hand %q", got, want)
	}
}

// Architectures that are not known match the library's error.
func TestUnsupported(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"config.json": `{"model_type":"phi3"}`, "model.safetensors": "\x02\x00\x00\x00\x00\x00\x00\x00{}"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	_, err := anemone.Convert(t.Context(), dir, filepath.Join(t.TempDir(), "out"), anemone.DefaultConvertOptions())
	if !errors.Is(err, anemone.ErrUnsupported) {
		t.Errorf("error %v does not match ErrUnsupported", err)
	}
}
