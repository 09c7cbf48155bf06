package anemone

import (
	"context"

	"anemone/internal/inspect"
	"anemone/internal/lint"
)

// Inspection describes a package, a Core ML model or a checkpoint.
type Inspection = inspect.Report

// InspectOptions say what to report beyond a summary: the program as text,
// every weight and where it lies, what the linter finds.
type InspectOptions = inspect.Options

// LintOptions are choices of the linter: the oldest system that the models
// are for, whether weights are read, which rules are left out.
type LintOptions = lint.Options

// Inspect says what lies at path: a package, a Core ML model (.mlpackage,
// .mlmodel or .mlmodelc), or a checkpoint that could be converted. It reads no
// weights.
func Inspect(path string) (*Inspection, error) {
	return InspectWith(context.Background(), path, InspectOptions{})
}

// InspectWith is like [Inspect], with more in the report.
func InspectWith(ctx context.Context, path string, o InspectOptions) (*Inspection, error) {
	return inspect.Open(ctx, path, registry, o)
}
