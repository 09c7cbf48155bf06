package anemone_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"anemone"
)

// What is known to go wrong with a package on the Neural Engine, before a
// device says so.
func ExampleInspectWith() {
	dir, err := os.MkdirTemp("", "anemone")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx, out := context.Background(), filepath.Join(dir, "tiny-ane")
	o := anemone.DefaultConvertOptions()
	o.Context = 128
	if _, err := anemone.Convert(ctx, "testdata/checkpoints/tiny-qwen3", out, o); err != nil {
		log.Fatal(err)
	}
	r, err := anemone.InspectWith(ctx, out, anemone.InspectOptions{Lint: &anemone.LintOptions{}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Lint.Errors, "errors,", r.Lint.Warnings, "warnings")
	for _, f := range r.Lint.Findings {
		if f.Rule == "context-256" {
			fmt.Printf("%s: %s: %s\n", f.Severity, f.Name, f.Found)
		}
	}
	// Output:
	// 0 errors, 0 warnings
	// info: context_length: 128 positions
}
