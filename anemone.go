// Package anemone converts Hugging Face checkpoints and GGUF files into Core ML
// packages for Apple's Neural Engine, in the layout of ANEMLL 0.3.5, runs such
// packages on any system, and checks that they compute what the checkpoint
// computes.
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
	"os"
	"path/filepath"
	"time"

	"anemone/coreml/mlmodelc"
	"anemone/internal/anemll"
	"anemone/internal/arch/all"
	"anemone/internal/compress"
)

// Version is the version of Anemone.
const Version = anemll.Version

// registry lists the architectures that can be converted.
var registry = all.Registry

// ConvertOptions say what kind of package a conversion makes. A zero field
// stands for the default that its comment names, but for the encodings, whose
// zero value is fp16: start from [DefaultConvertOptions].
type ConvertOptions struct {
	Context int // positions of the cache, in tokens; 512
	Batch   int // tokens of a prefill call; 64, or the context if that is less

	FFN        Encoding // of the weights of the decoder
	Head       Encoding // of those of the LM head
	Embeddings Encoding // of those of the embeddings, which are better left in fp16

	Chunks    int    // models that the decoder is divided into; 0: by size
	ChunkSize int64  // bytes that each of them stays under if Chunks is 0; 950 MiB
	SplitHead int    // outputs that the logits are divided into; 16
	Format    Format // FormatBoth
	Prefix    string // start of the file names; the architecture's, such as "qwen"
	Name      string // of the package in meta.yaml; made of the checkpoint's name
	Overwrite bool   // replaces a package that is in the output folder
	Jobs      int    // cores used; all

	// FullLocalCache (Gemma 3 and 4) gives the layers that attend to a window of
	// positions caches of the whole context, which can be rewound. Without it
	// they have a window that shifts by blocks, in less memory.
	FullLocalCache bool
	// GDNChunk (Qwen3.5) is the number of tokens that prefill takes at a time
	// through the delta rule, a divisor of Batch; the largest up to 64.
	GDNChunk int
	// Remainders are the tokens of further prefill functions, for what
	// a prompt leaves behind its last whole batch, which goes token by token
	// without them: divisors of Batch, such as 16 and 4. They share the weights
	// in the package, but each costs a copy on the Neural Engine.
	Remainders []int
	// LargeMoE (mixtures of experts) allows those of any size, although a
	// package computes all experts for every token.
	LargeMoE bool

	// Progress, if not nil, is called from time to time: on any goroutine, but
	// never on two at once.
	Progress func(Progress)
}

// Progress says how far a conversion is.
type Progress struct {
	Part   string // the model that is being written
	Weight string // the tensor that is being written; "" between tensors
	// Done is the fraction of the work, 0 to 1: of its time, not of the bytes,
	// as weights with tables take longer.
	Done     float64
	Bytes    int64 // of weights, written so far
	Elapsed  time.Duration
	Estimate time.Duration // time left; 0 until it can be told
}

// ConvertReport says what a conversion did. Output is the folder, Parts lists
// the models with their Name and the Bytes of their weights, Bytes is the sum
// and Seconds the time. Weights.Summary().Weights has an entry for every
// weight: its Name, Shape, Encoding ("fp16" or "lut6"), Group (and GroupAsked,
// where that did not divide its channels), Bytes, RelativeError (the sum of
// squared errors over that of squared weights) and MaxError, and how many values
// fp16 could not hold (Overflow: clamped; Underflow: now 0). Unused names the
// tensors of the checkpoint that nothing needed, Aside what a package has no
// place for, such as a vision tower, and Warnings what the user may want to
// change.
type ConvertReport = anemll.Report

// Encoding is a way to store the weights of a part. The zero value is fp16.
type Encoding struct {
	// Bits is the width of an index into a table of 2^Bits values: 1, 2, 3, 4,
	// 6 or 8; 0 is fp16 without a table.
	Bits int
	// Group is the number of output channels that share a table; 0 is one
	// table for the whole tensor.
	Group int
}

// String returns the notation of [ParseEncoding].
func (e Encoding) String() string { return compress.Encoding(e).String() }

// Format says in which form a package's models are written.
type Format string

// Formats. Both together share the file of weights where the file system
// lets them.
const (
	FormatBoth      Format = "both"
	FormatMLPackage Format = "mlpackage" // what Xcode and coremltools exchange
	FormatMLModelC  Format = "mlmodelc"  // compiled: what Core ML loads
)

// ParseFormat reads the form that the command line uses: "mlpackage",
// "mlmodelc" or "both".
func ParseFormat(s string) (Format, error) {
	f, err := anemll.ParseFormat(s)
	return Format(f), err
}

// DefaultConvertOptions returns context 512, batches of 64, decoder and LM
// head with 6-bit tables per 8 output channels, fp16 embeddings, and as many
// decoder chunks as their size asks for.
func DefaultConvertOptions() ConvertOptions {
	d := anemll.DefaultOptions()
	return ConvertOptions{Context: d.Context, Batch: d.Batch, SplitHead: d.SplitHead, Format: Format(d.Format), FFN: Encoding(d.FFN), Head: Encoding(d.Head)}
}

// ParseEncoding reads the form that the command line uses: "none" for fp16,
// or the number of bits (1, 2, 3, 4, 6 or 8) and, after a comma, the number
// of output channels that share a table (8 if absent, 0 for one table per
// tensor), as in "4,16".
func ParseEncoding(s string) (Encoding, error) {
	e, err := compress.ParseEncoding(s)
	return Encoding(e), err
}

// Compile writes the ML Program at src, a .mlpackage folder or .mlmodel file,
// as a compiled .mlmodelc bundle in the folder outDir and returns its path:
// what `xcrun coremlcompiler compile` does, on any system. The weights are
// shared with src where the file system lets them, else copied.
func Compile(ctx context.Context, src, outDir string, o CompileOptions) (string, error) {
	return mlmodelc.Compile(ctx, src, outDir, mlmodelc.Options{Overwrite: o.Overwrite, Progress: o.Progress})
}

// Decompile writes the compiled bundle at src as the package dst, and makes the
// folders above that if need be.
func Decompile(ctx context.Context, src, dst string, o CompileOptions) error {
	if _, err := os.Stat(src); err != nil {
		return err // before a folder is made for nothing
	}
	if err := os.MkdirAll(filepath.Dir(dst), 0o777); err != nil {
		return err
	}
	return mlmodelc.Decompile(ctx, src, dst, mlmodelc.Options{Overwrite: o.Overwrite, Progress: o.Progress})
}

// CompileOptions are choices of Compile and Decompile.
type CompileOptions struct {
	Overwrite bool // replace what is there
	// Progress, if not nil, is called as weights are copied.
	Progress func(done, total int64, name string)
}

// Convert makes a package of a checkpoint: a Hugging Face model folder, or a
// GGUF file, whose weights are dequantized as they are read and whose metadata
// stand for config.json and the tokenizer. Both give the same models if the
// folder holds what the file holds. The output folder appears whole or not at
// all. Peak memory is that of a few tensors, whatever the size of the model.
func Convert(ctx context.Context, checkpoint, output string, o ConvertOptions) (*ConvertReport, error) {
	return anemll.Convert(ctx, registry, checkpoint, output, o.internal())
}

func (o *ConvertOptions) internal() anemll.Options {
	a := anemll.Options{
		Context: o.Context, Batch: o.Batch, Chunks: o.Chunks, ChunkSize: o.ChunkSize, SplitHead: o.SplitHead,
		FullLocalCache: o.FullLocalCache, GDNChunk: o.GDNChunk, Remainders: o.Remainders, LargeMoE: o.LargeMoE,
		Embeddings: compress.Encoding(o.Embeddings), FFN: compress.Encoding(o.FFN), Head: compress.Encoding(o.Head),
		Format: anemll.Format(o.Format), Prefix: o.Prefix, Name: o.Name, Overwrite: o.Overwrite, Jobs: o.Jobs,
	}
	if show := o.Progress; show != nil {
		a.Progress = func(p anemll.Progress) { show(Progress(p)) }
	}
	return a
}
