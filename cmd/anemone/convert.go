package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"anemone"
	"anemone/internal/anemll"
)

func newConvert() *cobra.Command {
	o := anemone.DefaultConvertOptions()
	var (
		output  string
		chunks  string
		asJSON  bool
		verbose bool
	)
	cmd := &cobra.Command{
		Use:   "convert CHECKPOINT",
		Short: "Make a package of a Hugging Face checkpoint or a GGUF file",
		Long: `Convert makes a Core ML package in ANEMLL's layout of a Hugging Face model folder
(config.json, *.safetensors, tokenizer files), or of a GGUF file: its weights are
dequantized as they are read, and configuration, tokenizer and chat template come
from its metadata.

Weights are palettized: a table of 2^BITS values serves GROUP output channels.
BITS is 1, 2, 3, 4, 6 or 8; GROUP is 8 unless given, 0 makes one table per
tensor; "none" keeps fp16. Small groups are more accurate, but below 8 the
Neural Engine slows down. The embeddings are better left in fp16: Core ML maps
them and reads only the rows it needs.

The output folder appears when it is complete; interrupting leaves nothing. What
may need a change is said in lines that begin with "warning:".`,
		Example: `  anemone convert Qwen3-0.6B -o Qwen3-0.6B-ane
  anemone convert Qwen3-0.6B -o out --context 2048 --lut-ffn 4 --lut-lm-head 6
  anemone convert Qwen3-0.6B -o out --lut-ffn none --lut-lm-head none   # all fp16
  anemone convert SmolLM2-135M-Instruct.Q4_1.gguf -o SmolLM2-ane`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, a []string) error {
			for _, f := range []struct {
				name     string
				v, least int
			}{{"context", o.Context, 2}, {"batch", o.Batch, 1}, {"split-lm-head", o.SplitHead, 1}, {"gdn-chunk", o.GDNChunk, 0}, {"jobs", o.Jobs, 0}} {
				if f.v < f.least { // to the library, 0 means the default
					return &statusError{exitUsage, fmt.Errorf("--%s %d: want %d or more", f.name, f.v, f.least)}
				}
			}
			if !cmd.Flags().Changed("batch") {
				o.Batch = 0 // the context may be less
			}
			o.Chunks = 0
			if chunks != "auto" {
				n, err := strconv.Atoi(chunks)
				if err != nil || n < 1 {
					return &statusError{exitUsage, fmt.Errorf("--chunks %q: want a number from 1 on, or auto", chunks)}
				}
				o.Chunks = n
			}
			if err := checkpointHint(a[0]); err != nil {
				return err
			}
			if output == "" && cmd.Flags().Changed("output") {
				return &statusError{exitUsage, errors.New("--output is empty: want the FOLDER to make")}
			}
			if output == "" {
				name, err := anemll.ModelName(a[0])
				if err != nil {
					return err
				}
				output = name + "-ane"
				if anemll.Within(output, a[0]) {
					return &statusError{exitUsage, fmt.Errorf("this folder is in the checkpoint, which is no place for its package: say where that is to go, such as -o %s", filepath.Join("..", output))}
				}
			}
			bar := newProgress(cmd.ErrOrStderr(), asJSON)
			o.Progress = func(p anemone.Progress) {
				bar.update(func() string { return progressLine(p) })
			}
			r, err := anemone.Convert(cmd.Context(), a[0], output, o)
			bar.done()
			var oe *anemll.OptionError
			if errors.As(err, &oe) {
				return &statusError{exitUsage, fmt.Errorf("--%s %s", oe.Option, oe.Detail)}
			}
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), r)
			}
			printConversion(cmd.OutOrStdout(), r, verbose)
			return nil
		},
	}
	f := cmd.Flags()
	f.SortFlags = false // the common ones come first
	f.StringVarP(&output, "output", "o", "", "`FOLDER` to make (default: the checkpoint's name with -ane, here)")
	f.BoolVar(&o.Overwrite, "overwrite", false, "replace the package in the output folder")
	f.IntVar(&o.Context, "context", o.Context, "context length in `TOKENS`: the size of the cache")
	f.Var(encodingFlag{&o.FFN}, "lut-ffn", "encoding of the decoder layers: none or BITS[,GROUP]")
	f.Var(encodingFlag{&o.Head}, "lut-lm-head", "encoding of the LM head: none or BITS[,GROUP]")
	f.Var(encodingFlag{&o.Embeddings}, "lut-embeddings", "encoding of the embeddings: none or BITS[,GROUP]")
	f.Var(formatFlag{&o.Format}, "format", "models to write: mlmodelc (what Core ML loads), mlpackage (what tools exchange) or both, sharing the weights")
	f.BoolVarP(&verbose, "verbose", "v", false, "list every weight with its encoding and error")
	f.BoolVar(&asJSON, "json", false, "print the report as JSON")
	f.StringVar(&o.Name, "name", "", "`NAME` of the package in meta.yaml (default: anemll-CHECKPOINT-ctxN)")
	f.StringVar(&o.Prefix, "prefix", "", "start of the file names (default: the architecture's, such as qwen)")
	f.IntVar(&o.Batch, "batch", o.Batch, "`TOKENS` of a prefill call")
	f.StringVar(&chunks, "chunks", "auto", "`NUMBER` of decoder models, or auto: as few as stay below 950 MiB each")
	f.IntVar(&o.SplitHead, "split-lm-head", o.SplitHead, "`NUMBER` of logits outputs of the LM head")
	f.IntVar(&o.Jobs, "jobs", 0, "`CORES` to use (default: all)")
	f.BoolVar(&o.FullLocalCache, "full-local-cache", false, "Gemma 3 and 4: let layers with a local window keep the whole context, so that it can be rewound, in more memory")
	f.IntVar(&o.GDNChunk, "gdn-chunk", 0, "Qwen3.5: `TOKENS` that prefill takes at a time through the delta rule, a divisor of the batch (default: the largest up to 64)")
	f.IntSliceVar(&o.Remainders, "prefill-remainder", nil, "further prefill functions of so many `TOKENS`, such as 16,4, for what a prompt leaves behind its last whole batch; each takes another copy of the weights on the Neural Engine, none in the package")
	f.BoolVar(&o.LargeMoE, "allow-large-moe", false, "mixtures of experts: convert them whatever their size, although every token computes all experts")
	complete(cmd, "format", "both", "mlmodelc", "mlpackage")
	for _, flag := range []string{"lut-ffn", "lut-lm-head", "lut-embeddings"} {
		complete(cmd, flag, "none", "8", "6", "4", "3", "2")
	}
	return cmd
}

// encodingFlag reads an encoding from the command line.
type encodingFlag struct{ e *anemone.Encoding }

func (f encodingFlag) String() string {
	if f.e == nil {
		return ""
	}
	return f.e.String()
}
func (f encodingFlag) Type() string { return "encoding" }
func (f encodingFlag) Set(s string) error {
	e, err := anemone.ParseEncoding(s)
	if err != nil { // the flag says already what it is about
		return errors.New(strings.TrimPrefix(err.Error(), fmt.Sprintf("compression %q: ", s)))
	}
	*f.e = e
	return nil
}

// formatFlag reads the form of the models.
type formatFlag struct{ f *anemone.Format }

func (f formatFlag) String() string {
	if f.f == nil {
		return ""
	}
	return string(*f.f)
}
func (f formatFlag) Type() string { return "format" }
func (f formatFlag) Set(s string) error {
	v, err := anemone.ParseFormat(s)
	if err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), fmt.Sprintf("format %q: ", s)))
	}
	*f.f = v
	return nil
}

// progressLine says how much of the work is done, which is not how many of the
// bytes: those with tables take longer.
func progressLine(p anemone.Progress) string {
	left := "estimating"
	if p.Estimate > 0 {
		left = durationText(p.Estimate) + " left"
	}
	rate := float64(p.Bytes) / max(p.Elapsed.Seconds(), 1e-3)
	return fmt.Sprintf("%.0f %% done, %s; %s written, %s/s: %s", 100*p.Done, left, bytesText(p.Bytes), bytesText(int64(rate)), p.Part)
}

func printConversion(w io.Writer, r *anemone.ConvertReport, verbose bool) {
	fmt.Fprintf(w, "%s: %s of weights in %s\n", r.Output, bytesText(r.Bytes), durationText(time.Duration(r.Seconds*float64(time.Second))))
	var rows [][]string
	for _, p := range r.Parts {
		rows = append(rows, []string{p.Name, bytesText(p.Bytes)})
	}
	table(w, "  ", rows)
	s := r.Weights.Summary()
	type group struct {
		n        int
		elements int64
		bytes    int64
		worst    float64
		worstOf  string
	}
	groups := map[string]*group{}
	var names []string
	var overflow, underflow int64
	rows = [][]string{{"weight", "encoding", "size", "relative error", "largest error"}}
	for _, e := range s.Weights {
		key := e.Encoding
		if e.Group > 0 {
			key = fmt.Sprintf("%s,%d", e.Encoding, e.Group)
		}
		g := groups[key]
		if g == nil {
			g = &group{}
			groups[key] = g
			names = append(names, key)
		}
		g.n++
		g.elements += e.Elements
		g.bytes += e.Bytes
		if e.RelativeError >= g.worst {
			g.worst, g.worstOf = e.RelativeError, e.Name
		}
		overflow += e.Overflow
		underflow += e.Underflow
		if e.GroupAsked > 0 && e.GroupAsked != e.Group {
			key += fmt.Sprintf(" (asked %d)", e.GroupAsked)
		}
		row := []string{e.Name, key, bytesText(e.Bytes), fmt.Sprintf("%.3g", e.RelativeError), fmt.Sprintf("%.3g", e.MaxError)}
		if e.Overflow > 0 {
			row = append(row, fmt.Sprintf("%d clamped", e.Overflow))
		}
		rows = append(rows, row)
	}
	slices.Sort(names)
	fmt.Fprintln(w, "weights by encoding (error: squared, relative to the weights'):")
	sum := [][]string{}
	for _, n := range names {
		g := groups[n]
		sum = append(sum, []string{n, counted(g.n, "weight"), fmt.Sprintf("%.2f bits each", 8*float64(g.bytes)/float64(max(g.elements, 1))), bytesText(g.bytes), fmt.Sprintf("worst error %.3g in %s", g.worst, g.worstOf)})
	}
	table(w, "  ", sum)
	if verbose {
		table(w, "  ", rows)
	}
	if overflow > 0 {
		fmt.Fprintf(w, "warning: %s too large for fp16 and clamped to ±65504 (-v shows the weights)\n", were(int(overflow), "value"))
	}
	if underflow > 0 {
		fmt.Fprintf(w, "%s became 0 in fp16\n", counted(int(underflow), "tiny value"))
	}
	for _, s := range r.Aside {
		fmt.Fprintf(w, "%s\n", s)
	}
	for _, s := range r.Warnings {
		fmt.Fprintf(w, "warning: %s\n", s)
	}
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
