package llama

import (
	"path/filepath"
	"testing"

	"anemone/internal/arch/archtest"
)

// The random checkpoints in testdata; see make.py. What their goldens say is
// transformers', in float32.
var random = []string{"linear-biases", "llama3", "mistral"}

// The bound is some ten times what float32 sums that are rounded at every step
// come to. The positions go past the original
// contexts.
func TestTransformer(t *testing.T) {
	for _, name := range random {
		t.Run(name, func(t *testing.T) {
			archtest.TestTransformer(t, Architecture, filepath.Join("testdata", name), 1e-4)
		})
	}
}

func BenchmarkRemainders(b *testing.B) {
	archtest.BenchmarkRemainders(b, Architecture, filepath.Join("testdata", random[0]))
}
