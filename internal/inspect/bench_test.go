package inspect

import (
	"os"
	"testing"

	"anemone/internal/lint"
)

// BenchmarkOpen describes the package that ANEMONE_PACKAGE names. Its weights
// are mapped, not read: the time goes into the programs.
func BenchmarkOpen(b *testing.B) {
	path := os.Getenv("ANEMONE_PACKAGE")
	if path == "" {
		b.Skip("ANEMONE_PACKAGE names no package")
	}
	for _, c := range []struct {
		name string
		o    Options
	}{{"summary", Options{}}, {"weights", Options{Weights: true}}, {"lint", Options{Lint: &lint.Options{}}}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				if _, err := Open(b.Context(), path, nil, c.o); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
