// Package anemone converts Hugging Face checkpoints into Core ML packages for
// Apple's Neural Engine, in the layout of ANEMLL 0.3.5, runs such packages on
// any system, and checks that they compute what the checkpoint computes.
//
// The two main entry points are [Convert] and [Open]:
//
//	report, err := anemone.Convert(ctx, "Qwen3-0.6B", "Qwen3-0.6B-ane", anemone.DefaultConvertOptions())
//	...
//	pkg, err := anemone.Open("Qwen3-0.6B-ane", anemone.OpenOptions{})
//	...
//	defer pkg.Close()
//
// The packages mil and coreml are the programs and models underneath.
package anemone

import (
	"context"

	"anemone/coreml/mlmodelc"
	"anemone/internal/anemll"
	"anemone/internal/arch/all"
	"anemone/internal/compress"
)

// Version is the version of Anemone.
const Version = anemll.Version

// registry lists the architectures that can be converted.
var registry = all.Registry

// ConvertOptions say what kind of package a conversion makes.
type ConvertOptions = anemll.Options

// Progress says how far a conversion is.
type Progress = anemll.Progress

// ConvertReport says what a conversion did to every weight.
type ConvertReport = anemll.Report

// Encoding is a way to store the weights of a part: fp16 (the zero value), or
// tables of 2^Bits values, each shared by Group output channels.
type Encoding = compress.Encoding

// Format says in which form a package's models are written.
type Format = anemll.Format

// Formats. Both together share the file of weights where the file system
// lets them.
const (
	FormatBoth      = anemll.Both
	FormatMLPackage = anemll.MLPackage // what Xcode and coremltools exchange
	FormatMLModelC  = anemll.MLModelC  // compiled: what Core ML loads
)

// ParseFormat reads the form that the command line uses: "mlpackage",
// "mlmodelc" or "both".
func ParseFormat(s string) (Format, error) { return anemll.ParseFormat(s) }

// DefaultConvertOptions returns context 512, batches of 64, decoder and LM
// head with 6-bit tables per 8 output channels, fp16 embeddings, and as many
// decoder chunks as their size asks for.
func DefaultConvertOptions() ConvertOptions { return anemll.DefaultOptions() }

// ParseEncoding reads the form that the command line uses: "none" for fp16,
// or the number of bits (1, 2, 3, 4, 6 or 8) and, after a comma, the number
// of output channels that share a table (8 if absent, 0 for one table per
// tensor), as in "4,16".
func ParseEncoding(s string) (Encoding, error) { return compress.ParseEncoding(s) }

// Compile writes the ML Program at src, a .mlpackage folder or .mlmodel file,
// as a compiled .mlmodelc bundle in the folder outDir and returns its path:
// what `xcrun coremlcompiler compile` does, on any system. The weights are
// shared with src where the file system lets them, else copied.
func Compile(ctx context.Context, src, outDir string, o CompileOptions) (string, error) {
	return mlmodelc.Compile(ctx, src, outDir, mlmodelc.Options{Overwrite: o.Overwrite, Progress: o.Progress})
}

// Decompile writes the compiled bundle at src as the package dst.
func Decompile(ctx context.Context, src, dst string, o CompileOptions) error {
	return mlmodelc.Decompile(ctx, src, dst, mlmodelc.Options{Overwrite: o.Overwrite, Progress: o.Progress})
}

// CompileOptions are choices of Compile and Decompile.
type CompileOptions struct {
	Overwrite bool // replace what is there
	// Progress, if not nil, is called as weights are copied.
	Progress func(done, total int64, name string)
}

// Convert makes a package of the checkpoint in a Hugging Face model folder.
// The output folder appears whole or not at all. Peak memory is that of a few
// tensors, whatever the size of the model.
func Convert(ctx context.Context, checkpoint, output string, o ConvertOptions) (*ConvertReport, error) {
	return anemll.Convert(ctx, registry, checkpoint, output, o)
}
