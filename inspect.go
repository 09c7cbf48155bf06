package anemone

import "anemone/internal/inspect"

// Inspection describes a package, a Core ML model or a checkpoint.
type Inspection = inspect.Report

// Inspect says what lies at path: a package, a .mlpackage, or a checkpoint
// that could be converted. It reads no weights.
func Inspect(path string) (*Inspection, error) { return inspect.Open(path, registry) }
