package main

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"anemone"
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
		Short: "Make a package of a Hugging Face checkpoint",
		Long: `Convert makes a Core ML package in ANEMLL's layout of a Hugging Face model folder
(config.json, *.safetensors, tokenizer files).

Weights are palettized: a table of 2^BITS values serves GROUP output channels.
BITS is 1, 2, 3, 4, 6 or 8; GROUP is 8 unless given, 0 makes one table per
tensor; "none" keeps fp16. Small groups are more accurate, but below 8 the
Neural Engine slows down. The embeddings are better left in fp16: Core ML maps
them and reads only the rows it needs.

The output folder appears when it is complete; interrupting leaves nothing.`,
		Example: `  anemone convert Qwen3-0.6B -o Qwen3-0.6B-ane
  anemone convert Qwen3-0.6B -o out --context 2048 --lut-ffn 4 --lut-lm-head 6
  anemone convert Qwen3-0.6B -o out --lut-ffn none --lut-lm-head none   # all fp16`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, a []string) error {
			for _, f := range []struct {
				name     string
				v, least int
			}{{"context", o.Context, 1}, {"batch", o.Batch, 1}, {"split-lm-head", o.SplitHead, 1}, {"jobs", o.Jobs, 0}} {
				if f.v < f.least { // to the library, 0 means the default
					return &statusError{exitUsage, fmt.Errorf("--%s %d: want %d or more", f.name, f.v, f.least)}
				}
			}
			o.Chunks = 0
			if chunks != "auto" {
				n, err := strconv.Atoi(chunks)
				if err != nil || n < 1 {
					return &statusError{exitUsage, fmt.Errorf("--chunks %q: want a number from 1 on, or auto", chunks)}
				}
				o.Chunks = n
			}
			if output == "" {
				output = filepath.Base(filepath.Clean(a[0])) + "-ane"
			}
			bar := newProgress(cmd.ErrOrStderr(), asJSON)
			o.Progress = func(p anemone.Progress) {
				bar.update(func() string { return progressLine(p) })
			}
			r, err := anemone.Convert(cmd.Context(), a[0], output, o)
			bar.done()
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
	f.StringVarP(&output, "output", "o", "", "folder to make (default CHECKPOINT's name with -ane)")
	f.IntVar(&o.Context, "context", o.Context, "context length in tokens: the size of the cache")
	f.IntVar(&o.Batch, "batch", o.Batch, "tokens of a prefill call")
	f.StringVar(&chunks, "chunks", "auto", "number of decoder models, or auto: as few as stay below 950 MB each")
	f.Var(encodingFlag{&o.FFN}, "lut-ffn", "encoding of the decoder layers: none or BITS[,GROUP]")
	f.Var(encodingFlag{&o.Head}, "lut-lm-head", "encoding of the LM head: none or BITS[,GROUP]")
	f.Var(encodingFlag{&o.Embeddings}, "lut-embeddings", "encoding of the embeddings: none or BITS[,GROUP]")
	f.Var(formatFlag{&o.Format}, "format", "models to write: mlmodelc (what Core ML loads), mlpackage (what tools exchange) or both, sharing the weights")
	f.BoolVar(&o.FullLocalCache, "full-local-cache", false, "let layers with a local window keep the whole context (Gemma 4: contexts that can be rewound, in more memory)")
	f.IntVar(&o.GDNChunk, "gdn-chunk", 0, "tokens that prefill takes at a time through the delta rule of recurrent models, a divisor of the batch (default: the largest up to 64)")
	f.BoolVar(&o.LargeMoE, "allow-large-moe", false, "convert mixtures of experts of any size, although every token computes all experts")
	f.IntVar(&o.SplitHead, "split-lm-head", o.SplitHead, "number of logits outputs of the LM head")
	f.StringVar(&o.Prefix, "prefix", "", "start of the file names (default: the architecture's, such as qwen)")
	f.StringVar(&o.Name, "name", "", "name of the package in meta.yaml (default anemll-CHECKPOINT-ctxN)")
	f.BoolVar(&o.Overwrite, "overwrite", false, "replace the package in the output folder")
	f.IntVar(&o.Jobs, "jobs", 0, "cores to use (default all)")
	f.BoolVar(&asJSON, "json", false, "print the report as JSON")
	f.BoolVarP(&verbose, "verbose", "v", false, "list every weight with its encoding and error")
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
func (f encodingFlag) Set(s string) (err error) {
	*f.e, err = anemone.ParseEncoding(s)
	return err
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
func (f formatFlag) Set(s string) (err error) {
	*f.f, err = anemone.ParseFormat(s)
	return err
}

func progressLine(p anemone.Progress) string {
	rate := float64(p.Bytes) / max(p.Elapsed.Seconds(), 1e-3)
	left := "estimating"
	if p.Estimate > 0 {
		left = durationText(p.Estimate) + " left"
	}
	return fmt.Sprintf("%3.0f %%  %s written, %s/s, %s  %s", 100*p.Done, bytesText(p.Bytes), bytesText(int64(rate)), left, p.Part)
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
		rows = append(rows, []string{e.Name, key, bytesText(e.Bytes), fmt.Sprintf("%.3g", e.RelativeError), fmt.Sprintf("%.3g", e.MaxError)})
	}
	slices.Sort(names)
	fmt.Fprintln(w, "weights by encoding (error: squared, relative to the weights'):")
	sum := [][]string{}
	for _, n := range names {
		g := groups[n]
		sum = append(sum, []string{n, fmt.Sprintf("%d weights", g.n), fmt.Sprintf("%.2f bits each", 8*float64(g.bytes)/float64(max(g.elements, 1))), bytesText(g.bytes), fmt.Sprintf("worst error %.3g in %s", g.worst, g.worstOf)})
	}
	table(w, "  ", sum)
	if verbose {
		table(w, "  ", rows)
	}
	if overflow+underflow > 0 {
		fmt.Fprintf(w, "fp16 could not hold %d values (clamped to ±65504) and lost %d small ones (now 0)\n", overflow, underflow)
	}
	for _, s := range r.Aside {
		fmt.Fprintf(w, "%s\n", s)
	}
	for _, u := range r.Unused {
		fmt.Fprintf(w, "not used: tensor %s\n", u)
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
