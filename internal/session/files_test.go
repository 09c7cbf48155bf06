package session

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"anemone/internal/anemll"
	"anemone/internal/checkpoint"
	"anemone/internal/testutil"
)

func TestStopTokens(t *testing.T) {
	vocab := map[string]int32{"<|im_end|>": 2, "<|endoftext|>": 0, "</s>": 9, "<eos>": 10}
	for _, c := range []struct {
		name  string
		files map[string]string
		vocab map[string]int32
		want  []int32
		err   string
	}{
		{name: "no files, no vocabulary", want: []int32{}},
		{name: "well-known strings", vocab: vocab, want: []int32{0, 2}},
		{name: "Gemma's turns, of generations 3 and 4", vocab: map[string]int32{"<end_of_turn>": 7, "<turn|>": 106, "<|turn>": 105, "<bos>": 2}, want: []int32{7, 106}},
		// What the released Gemma 4 says in its two files, whose union ends a turn.
		{name: "Gemma 4", vocab: map[string]int32{"<eos>": 1, "<turn|>": 106, "<|turn>": 105}, want: []int32{1, 50, 106}, files: map[string]string{
			"config.json":            `{"text_config": {"eos_token_id": 1}}`,
			"generation_config.json": `{"eos_token_id": [1, 106, 50]}`,
		}},
		{name: "every place", vocab: vocab, want: []int32{0, 1, 2, 3, 4, 5, 6, 9}, files: map[string]string{
			"config.json":            `{"eos_token_id": 3, "text_config": {"eos_token_id": [4, 5]}}`,
			"generation_config.json": `{"eos_token_id": [6, 1, 3]}`,
			"tokenizer_config.json":  `{"eos_token": "</s>"}`,
		}},
		{name: "an added token", vocab: vocab, want: []int32{0, 2, 10}, files: map[string]string{
			"tokenizer_config.json": `{"eos_token": {"content": "<eos>", "lstrip": false}}`,
		}},
		{name: "null and unknown", vocab: vocab, want: []int32{0, 2}, files: map[string]string{
			"config.json":           `{"eos_token_id": null, "text_config": null}`,
			"tokenizer_config.json": `{"eos_token": "<|nope|>"}`,
		}},
		{name: "the stub of a package", vocab: vocab, want: []int32{0, 2}, files: map[string]string{
			"config.json": `{"tokenizer_class": "Qwen2Tokenizer", "model_type": "qwen3"}`,
		}},
		{name: "text for an id", files: map[string]string{"generation_config.json": `{"eos_token_id": "x"}`}, err: "eos_token_id"},
		{name: "broken", files: map[string]string{"config.json": `{`}, err: "config.json"},
		{name: "a number for a token", files: map[string]string{"tokenizer_config.json": `{"eos_token": 5}`}, err: "eos_token"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range c.files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			got, err := StopTokens(dir, func(s string) (int32, bool) { id, ok := c.vocab[s]; return id, ok })
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want one with %q", err, c.err)
				}
				return
			}
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("got %v, %v; want %v", got, err, c.want)
			}
		})
	}
}

func TestPeerFiles(t *testing.T) {
	dir := testutil.Shared(t, "peers", "qwen3-fp16-c2")
	got, err := StopTokens(dir, func(s string) (int32, bool) { return 7, s == "<|im_end|>" })
	if err != nil || !slices.Equal(got, []int32{2, 7}) {
		t.Errorf("stop tokens %v, %v; want 2 of generation_config.json and 7 of tokenizer_config.json", got, err)
	}
	g, err := checkpoint.Generation(dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Resolve(Preferences{Seed: p(uint64(1))}, Recommended(nil), Generation(g))
	if want := (Sampling{Temperature: 0.6, TopK: 20, TopP: 0.95, Seed: 1}); err != nil || s != want {
		t.Errorf("sampling %+v, %v; want %+v", s, err, want)
	}
}

func TestPreferencesOfFiles(t *testing.T) {
	// transformers samples only with do_sample: true.
	g := Generation(&checkpoint.GenerationConfig{Temperature: p(0.6)})
	if s, err := Resolve(g); err != nil || !s.Greedy() {
		t.Errorf("generation_config without do_sample: %+v, %v", s, err)
	}
	if s, err := Resolve(Generation(nil), Generation(&checkpoint.GenerationConfig{DoSample: p(true), TopK: p(3), RepetitionPenalty: p(1.2)})); err != nil || s.TopK != 3 || s.RepetitionPenalty != 1.2 || s.Temperature != 1 {
		t.Errorf("generation_config: %+v, %v", s, err)
	}
	r := Recommended(&anemll.RecommendedSampling{Temperature: p(0.7), TopP: p(0.8), TopK: p(20), MinP: p(0.1), RepetitionPenalty: p(1.1)})
	s, err := Resolve(Preferences{Seed: p(uint64(3))}, r, g)
	if want := (Sampling{Temperature: 0.7, TopK: 20, TopP: 0.8, MinP: 0.1, RepetitionPenalty: 1.1, Seed: 3}); err != nil || s != want {
		t.Errorf("recommended: %+v, %v; want %+v", s, err, want)
	}
}
