package anemone_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"anemone"
)

// Convert a checkpoint, hold the package to it, and let it tell a story.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "anemone")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	const checkpoint = "testdata/checkpoints/tiny-qwen3"
	out := filepath.Join(dir, "package")

	if _, err := anemone.Convert(ctx, checkpoint, out, anemone.DefaultConvertOptions()); err != nil {
		log.Fatal(err)
	}
	pkg, err := anemone.Open(out, anemone.OpenOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer pkg.Close()

	report, err := pkg.Check(ctx, anemone.CheckOptions{Checkpoint: checkpoint})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("passed:", report.Passed)

	s, err := pkg.NewSession()
	if err != nil {
		log.Fatal(err)
	}
	zero := 0.0
	text, err := anemone.Text(s.Generate(ctx, anemone.Request{
		Messages:  []anemone.Message{{Role: "user", Content: "Tell me a story about a fox and a lantern."}},
		Sampling:  anemone.Sampling{Temperature: &zero},
		MaxTokens: 13,
	}))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(text)
	// Output:
	// passed: true
	// Once upon a time, a proud fox named Zane lived near a
}

func ExampleParseEncoding() {
	for _, s := range []string{"none", "6", "4,16", "4,0"} {
		e, err := anemone.ParseEncoding(s)
		fmt.Println(e.Bits, e.Group, err)
	}
	// Output:
	// 0 0 <nil>
	// 6 8 <nil>
	// 4 16 <nil>
	// 4 0 <nil>
}

func ExampleInspect() {
	r, err := anemone.Inspect("testdata/checkpoints/tiny-qwen3")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Kind, r.Checkpoint.ModelType, r.Checkpoint.Parameters, "parameters")
	// Output:
	// checkpoint qwen3 1115776 parameters
}
