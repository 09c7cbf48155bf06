package anemone

import (
	"context"

	"anemone/internal/inspect"
	"anemone/internal/lint"
)

// Inspection describes what lies at a Path; Kind is "package", "model" or
// "checkpoint", and the field of that name is set.
//
// A Package has its Name, Architecture, Context, Batch, Hidden and Vocab sizes,
// Parts (models), WeightBytes, estimates of the Memory it takes, and Problems:
// what is odd about it. A Model has its Name, Functions (with Inputs, Outputs,
// States, Operations by type and Memory), Weights by encoding, and, if asked
// for, Tensors and the program as text in MIL. A Checkpoint has its Format,
// ModelType, Context, Tokenizer, Files, number of Tensors (also by the Types that
// they are stored in) and Parameters, whether it is Supported and, if not, Why,
// the tensors that are Unused, and Problems. Lint has the Findings of the linter,
// if asked for, and how many of them are Errors, Warnings and Infos.
type Inspection = inspect.Report

// InspectOptions say what to report beyond a summary: Weights asks for every
// weight and where it lies, MIL for the program as text (of one Function only,
// if its name is given, and without shortening anything if Full is set), Lint
// for what the linter finds.
type InspectOptions = inspect.Options

// LintOptions are choices of the linter: OS is the oldest system that the models
// are for, Deep reads the weights, Ignore names rules that are left out.
type LintOptions = lint.Options

// Inspect says what lies at path: a package, a Core ML model (.mlpackage,
// .mlmodel or .mlmodelc), or a checkpoint that could be converted, which is a
// folder or a GGUF file. It reads no weights.
func Inspect(path string) (*Inspection, error) {
	return InspectWith(context.Background(), path, InspectOptions{})
}

// InspectWith is like [Inspect], with more in the report.
func InspectWith(ctx context.Context, path string, o InspectOptions) (*Inspection, error) {
	return inspect.Open(ctx, path, registry, o)
}
