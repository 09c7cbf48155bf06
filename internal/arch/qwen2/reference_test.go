package qwen2

import (
	"path/filepath"
	"testing"

	"anemone/internal/arch/archtest"
)

// The random checkpoints in testdata; see llama/testdata/make.py. What their goldens say is
// transformers', in float32.
var random = []string{"gqa-tied", "mha-untied"}

// The bound is some ten times what float32 sums that are rounded at every step
// come to.
func TestTransformer(t *testing.T) {
	for _, name := range random {
		t.Run(name, func(t *testing.T) {
			archtest.TestTransformer(t, Architecture, filepath.Join("testdata", name), 1e-4)
		})
	}
}
