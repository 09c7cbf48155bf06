package mlmodelc

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"anemone/coreml/mlpackage"
)

// Compile writes the model at src, a .mlpackage folder or a .mlmodel file, as
// a compiled bundle in the folder outDir, under the name of src, and returns
// its path: what Apple's "coremlcompiler compile" does for ML Programs. Other
// kinds of models are refused.
//
// The file of weights is taken over as it is (see the package comment).
func Compile(ctx context.Context, src, outDir string, opt Options) (string, error) {
	dst, err := compile(ctx, src, outDir, opt)
	if err != nil {
		return "", fmt.Errorf("compile model: %w", err)
	}
	return dst, nil
}

func compile(ctx context.Context, src, outDir string, opt Options) (string, error) {
	p, err := mlpackage.Open(src)
	if err != nil {
		return "", err
	}
	defer p.Close()
	d := &opt.Details
	if d.ModelHash == "" {
		spec, err := os.ReadFile(p.Spec)
		if err != nil {
			return "", err
		}
		d.ModelHash = hashOf(spec)
	}
	if d.ModelName == "" {
		d.ModelName = stem(p.Spec)
	}
	opt.Keep, opt.WeightsFrom = p, ""
	if err := os.MkdirAll(outDir, 0o777); err != nil {
		return "", err
	}
	abs, err := filepath.Abs(src) // "." has no name
	if err != nil {
		return "", err
	}
	dst := filepath.Join(outDir, stem(abs)+".mlmodelc")
	return dst, Write(ctx, dst, p.Model, opt)
}

// stem returns the name of a file without its folder and extension.
func stem(path string) string {
	base := filepath.Base(path)
	return strings.TrimSuffix(base, filepath.Ext(base))
}

// Decompile writes the compiled bundle at src as the package dst. Its weights
// keep their places in their files, which are taken over as they are (see the
// package comment). Compiling the package again gives the bundle again, apart
// from what [Details] lists.
func Decompile(ctx context.Context, src, dst string, opt Options) error {
	p, err := Open(src)
	if err != nil {
		return fmt.Errorf("decompile model: %w", err)
	}
	defer p.Close()
	if err := os.MkdirAll(filepath.Dir(dst), 0o777); err != nil {
		return fmt.Errorf("decompile model: %w", err)
	}
	if err := mlpackage.Write(ctx, dst, p.Model, mlpackage.Options{Overwrite: opt.Overwrite, Progress: opt.Progress, Keep: p}); err != nil {
		return fmt.Errorf("decompile model: %w", err)
	}
	return nil
}
