package check_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"anemone/coreml"
	"anemone/internal/anemll"
	"anemone/internal/arch"
	"anemone/internal/arch/qwen3"
	"anemone/internal/check"
	"anemone/internal/engine"
	"anemone/internal/runner"
	"anemone/internal/session"
)

// A package that has just been converted is held to its checkpoint.
func ExamplePackage() {
	ctx := context.Background()
	registry := arch.Registry{qwen3.Architecture}
	checkpoint := filepath.Join("..", "..", "testdata", "checkpoints", "tiny-qwen3")
	dir, err := os.MkdirTemp("", "check")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "package")
	if _, err := anemll.Convert(ctx, registry, checkpoint, out, anemll.Options{Context: 256, Batch: 64}); err != nil {
		panic(err)
	}

	p, err := anemll.Open(out)
	if err != nil {
		panic(err)
	}
	defer p.Close()
	m, err := session.Load(p, func(m *coreml.Model) (runner.Model, error) { return engine.New(m, engine.Options{}) })
	if err != nil {
		panic(err)
	}
	defer m.Close()
	r, err := check.Package(ctx, registry, m, check.PackageOptions{Checkpoint: checkpoint, Prompt: "Once upon a time"})
	if err != nil {
		panic(err)
	}
	fmt.Printf("passed: %v, cosine at least %.4f, same best token at %.0f %% of %d positions\n",
		r.Passed, r.Infer.Cosine.Min, 100*r.Infer.Top1, r.Infer.Positions)
	// Output:
	// passed: true, cosine at least 1.0000, same best token at 100 % of 68 positions
}
