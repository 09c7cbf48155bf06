package tokenizer_test

import (
	"os"
	"path/filepath"
	"testing"

	"anemone/internal/tokenizer"
	"anemone/internal/tokenizer/tokenizertest"
)

// BenchmarkQwen3 and BenchmarkGemma3 are the rates on full vocabularies;
// testdata/compare.py puts those of the PyPI package tokenizers beside them.
func BenchmarkQwen3(b *testing.B) { benchmark(b, tokenizertest.Qwen3(b)) }

func BenchmarkGemma3(b *testing.B) { benchmark(b, tokenizertest.Gemma3(b)) }

func benchmark(b *testing.B, dir string) {
	text, err := os.ReadFile("tokenizer_test.go")
	if err != nil {
		b.Fatal(err)
	}
	tok, err := tokenizer.Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	ids := tok.Encode(string(text), false)
	b.Run("Open", func(b *testing.B) {
		info, err := os.Stat(filepath.Join(dir, "tokenizer.json"))
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(info.Size())
		for b.Loop() {
			if _, err := tokenizer.Open(dir); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Encode", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			tok.Encode(string(text), false)
		}
	})
	b.Run("Decode", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			tok.Decode(ids, false)
		}
	})
}
