package qwen2

import (
	"path/filepath"
	"testing"

	"anemone/internal/arch"
	"anemone/internal/arch/archtest"
)

// The random checkpoints in testdata; see llama/testdata/make.py. What their
// goldens say is transformers', in float32.
var random = []string{"gqa-tied", "mha-untied"}

func golden(t testing.TB, name string) archtest.Golden {
	t.Helper()
	return archtest.OpenGolden(t, filepath.Join("testdata", name, "golden.safetensors"))
}

func reference(t testing.TB, name string) arch.Reference {
	t.Helper()
	return archtest.Reference(t, Architecture, filepath.Join("testdata", name))
}

// The bound is some ten times what float32 sums that are rounded at every step
// come to.
func TestReferenceGolden(t *testing.T) {
	for _, name := range random {
		t.Run(name, func(t *testing.T) { archtest.TestGolden(t, reference(t, name), golden(t, name), 1e-4) })
	}
}

func TestReference(t *testing.T) {
	for _, name := range random {
		t.Run(name, func(t *testing.T) { archtest.TestReference(t, reference(t, name), golden(t, name).Tokens) })
	}
}

func TestPackage(t *testing.T) {
	for _, name := range random {
		t.Run(name, func(t *testing.T) {
			archtest.TestPackage(t, Architecture, filepath.Join("testdata", name), golden(t, name))
		})
	}
}

func TestRemainders(t *testing.T) {
	for _, name := range random {
		t.Run(name, func(t *testing.T) {
			archtest.TestRemainders(t, Architecture, filepath.Join("testdata", name))
		})
	}
}
