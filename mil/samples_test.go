package mil_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"anemone/internal/testutil"
	"anemone/mil"
	"anemone/mil/miltext"
)

// TestVerifySamples holds the table to programs that others made and Apple's
// compiler wrote.
func TestVerifySamples(t *testing.T) {
	root := testutil.Shared(t, "samples", "mlmodelc")
	n := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "model.mil" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		p, err := miltext.Parse(text, miltext.ParseOptions{Weight: func(_ miltext.BlobRef, t mil.Type) (mil.Weight, error) {
			return mil.PromiseWeight(t, func(io.Writer) error { return errors.New("not at hand") }), nil
		}})
		if err != nil {
			t.Errorf("%s: %v", path, err)
			return nil
		}
		n++
		if err := mil.Verify(p); err != nil {
			t.Errorf("%s: %v", strings.TrimPrefix(path, root), err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n < 40 {
		t.Errorf("only %d programs", n)
	}
}
