package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"anemone/internal/engine"
	"anemone/internal/predict"
)

func newPredict() *cobra.Command {
	p := predictor{numerics: numericsFlag(engine.Float32)}
	cmd := &cobra.Command{
		Use:   "predict MODEL",
		Short: "Run a function of any Core ML model on arrays from files",
		Long: `Predict runs a function of a single model (.mlpackage, .mlmodel or .mlmodelc, ours
or not) and prints or stores what it gives. What a model takes is shown by
'anemone inspect MODEL', and by predict itself when an input is missing.

Inputs are arrays, found by their names in the files given with --input:
  FILE.safetensors, FILE.npz   any number of arrays
  NAME=FILE.npy                one array
  FILE.json, - or '{...}'      {"NAME": nested lists, ...}; a number alone; or
                               {"NAME": {"shape": [...], "data": [...]}, ...};
                               NaN, "Infinity", "-Infinity" where JSON has no number
Types change only where that is exact (int64 to int32 in range, whole floats to
integers), apart from rounding of floating-point numbers, which is reported.
With --numerics fp32, floating-point inputs, outputs and states are float32, as
they are inside; with fp16 they have the types that the model declares.

The states begin at zero, or where --state-in says, and --state-out keeps them:
a sequence may be fed in one go or call by call with the same result, bit by
bit. States in the file that belong to other models stay in it. With --repeat N
the function is called N times on the same states; an array with a first
dimension of N more than the model wants gives each call its part, and outputs
are stacked the same way.`,
		Example: `  anemone predict model.mlpackage --input inputs.npz --output outputs.npz
  anemone predict model.mlmodelc --random 7                    does it run, is it finite?
  anemone predict embeddings.mlpackage --input '{"input_ids": [[1, 2, 3]]}' -o hidden.safetensors
  anemone predict chunk.mlpackage --function infer --input step.npz --state-in kv.safetensors --state-out kv.safetensors
  anemone predict chunk_02.mlpackage --input chunk_01.npz --input rest.json --rename output_hidden_states=hidden_states
  anemone predict model.mlpackage --random 1 --repeat 100 --last --json   time per call`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, a []string) error { return p.run(cmd, a[0]) },
	}
	f := cmd.Flags()
	f.StringVar(&p.function, "function", "", "function to run (default: the model's default)")
	f.StringArrayVarP(&p.inputs, "input", "i", nil, "where inputs are: a file, NAME=FILE.npy, JSON itself, or - for JSON from standard input (repeatable)")
	f.StringArrayVar(&p.rename, "rename", nil, "OLD=NEW: take array OLD of the files as input NEW (repeatable)")
	f.StringVar(&p.random, "random", "", "fill inputs that are not given with random values of this seed")
	f.IntVar(&p.below, "random-below", 8, "random integers are from 0 to this, exclusive")
	f.StringArrayVar(&p.shapes, "shape", nil, "NAME=1,64: shape of a random input that may have several (repeatable)")
	f.StringVarP(&p.output, "output", "o", "", "store outputs in a .safetensors, .npz or .json file, or - for JSON on standard output")
	f.StringVar(&p.inputOut, "input-out", "", "store the inputs as they were used")
	f.StringVar(&p.stateIn, "state-in", "", "file with the states to begin with")
	f.StringVar(&p.stateOut, "state-out", "", "file that keeps the states; may be the same")
	f.IntVar(&p.repeat, "repeat", 1, "number of calls")
	f.BoolVar(&p.last, "last", false, "keep the outputs of the last call only")
	f.Var(&p.numerics, "numerics", "arithmetic: fp32, or fp16 to round every result as a GPU stores it")
	f.IntVar(&p.jobs, "jobs", 0, "`CORES` to use (default: all)")
	f.BoolVar(&p.asJSON, "json", false, "print the summary as JSON")
	f.SortFlags = false
	complete(cmd, "numerics", "fp32", "fp16")
	return cmd
}

// predictor is one call of the command.
type predictor struct {
	function               string
	inputs, rename, shapes []string
	random                 string
	below                  int
	output, inputOut       string
	stateIn, stateOut      string
	repeat                 int
	last, asJSON           bool
	numerics               numericsFlag
	jobs                   int
}

func (p *predictor) run(cmd *cobra.Command, path string) error {
	r := predict.Request{Function: p.function, Repeat: p.repeat, Last: p.last}
	rename, err := p.check(&r)
	if err != nil {
		return &statusError{exitUsage, err}
	}
	start := time.Now()
	m, err := predict.Open(path, predict.Options{Numerics: engine.Numerics(p.numerics), Workers: p.jobs})
	if err != nil {
		return err
	}
	defer m.Close()
	loaded := time.Since(start)

	var in, states predict.Set
	defer in.Close()
	defer states.Close()
	for _, source := range p.inputs {
		if err := in.Add(source, cmd.InOrStdin(), rename); err != nil {
			return err
		}
	}
	if p.stateIn != "" {
		if err := states.Add(p.stateIn, nil, nil); err != nil {
			return err
		}
		r.States = states.Arrays
	}
	for old := range rename {
		if !in.Has(old) {
			return fmt.Errorf("--rename: there is no array %q in the files given", old)
		}
	}
	r.Inputs = in.Arrays
	if st, err := m.NewState(); err != nil {
		return err
	} else if p.stateOut != "" && len(st.Names()) == 0 {
		return fmt.Errorf("%s has no states to keep in %s", path, p.stateOut)
	}
	bar := newProgress(cmd.ErrOrStderr(), p.asJSON || p.output == "-")
	r.Progress = func(done, total int) {
		bar.update(func() string { return fmt.Sprintf("call %d of %d", done, total) })
	}
	res, err := m.Run(cmd.Context(), r)
	bar.done()
	if err != nil {
		return err
	}
	if err := p.store(cmd, res, &in, &states); err != nil {
		return err
	}
	report := m.Report(res)
	switch {
	case p.asJSON:
		return writeJSON(cmd.OutOrStdout(), predictOutput{report, loaded.Seconds(), p.output, p.stateOut})
	case p.output != "-":
		printPrediction(cmd.OutOrStdout(), report, loaded)
		for _, f := range []string{p.output, p.stateOut, p.inputOut} {
			if f != "" {
				fmt.Fprintf(cmd.OutOrStdout(), "written: %s\n", f)
			}
		}
	}
	for _, n := range report.Notes {
		fmt.Fprintf(cmd.ErrOrStderr(), "note: %s\n", n)
	}
	return nil
}

// predictOutput is what --json prints.
type predictOutput struct {
	*predict.Report
	LoadSeconds float64 `json:"load_seconds"`
	Output      string  `json:"output,omitempty"`
	StateOut    string  `json:"state_out,omitempty"`
}

// check reads the flags that need it, before anything else happens.
func (p *predictor) check(r *predict.Request) (rename map[string]string, err error) {
	if p.repeat < 1 {
		return nil, fmt.Errorf("--repeat %d: want a number from 1 on", p.repeat)
	}
	if p.jobs < 0 {
		return nil, fmt.Errorf("--jobs %d: want 0 or more", p.jobs)
	}
	if p.below < 1 {
		return nil, fmt.Errorf("--random-below %d: want a number from 1 on", p.below)
	}
	if p.output == "-" && p.asJSON {
		return nil, errors.New("--output - and --json both print to standard output: store the outputs in a file")
	}
	written := map[string]string{}
	for _, f := range []struct{ flag, path string }{{"--output", p.output}, {"--input-out", p.inputOut}, {"--state-out", p.stateOut}} {
		if f.path == "" || f.path == "-" && f.flag == "--output" {
			continue
		}
		if _, err := predict.OutputFormat(f.path); err != nil {
			return nil, fmt.Errorf("%s %w", f.flag, err)
		}
		if other := written[filepath.Clean(f.path)]; other != "" {
			return nil, fmt.Errorf("%s and %s both name %s", other, f.flag, f.path)
		}
		written[filepath.Clean(f.path)] = f.flag
	}
	rename = map[string]string{}
	for _, s := range p.rename {
		old, to, ok := strings.Cut(s, "=")
		if _, twice := rename[old]; !ok || old == "" || to == "" || twice {
			return nil, fmt.Errorf("--rename %q: want OLD=NEW, each OLD once", s)
		}
		rename[old] = to
	}
	if p.random == "" {
		if len(p.shapes) > 0 {
			return nil, errors.New("--shape is for random inputs: give --random SEED")
		}
		return rename, nil
	}
	seed, err := strconv.ParseUint(p.random, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("--random %q: want a seed, a number from 0 on", p.random)
	}
	r.Random = &predict.Random{Seed: seed, Below: p.below, Shapes: map[string][]int{}}
	for _, s := range p.shapes {
		name, list, ok := strings.Cut(s, "=")
		shape := []int{}
		for d := range strings.SplitSeq(list, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(d))
			if err != nil || n < 0 {
				ok = false
			}
			shape = append(shape, n)
		}
		if !ok || name == "" {
			return nil, fmt.Errorf("--shape %q: want NAME=1,64", s)
		}
		r.Random.Shapes[name] = shape
	}
	return rename, nil
}

// store writes the files. The states come last: if anything fails before,
// the call can be made again.
func (p *predictor) store(cmd *cobra.Command, res *predict.Result, in, states *predict.Set) error {
	outputs, inputs := res.OutputValues(), res.InputValues()
	kept, err := res.StateValues()
	if err != nil {
		return err
	}
	// Files may be written over those that were read, which some systems
	// allow only when these are closed.
	if err := errors.Join(in.Close(), states.Close()); err != nil {
		return err
	}
	if err := cmd.Context().Err(); err != nil {
		return err
	}
	if p.inputOut != "" {
		if err := predict.WriteFile(p.inputOut, inputs); err != nil {
			return err
		}
	}
	switch p.output {
	case "":
	case "-":
		if err := predict.WriteJSON(cmd.OutOrStdout(), outputs); err != nil {
			return err
		}
	default:
		if err := predict.WriteFile(p.output, outputs); err != nil {
			return err
		}
	}
	if p.stateOut != "" {
		return predict.WriteFile(p.stateOut, kept)
	}
	return nil
}

func printPrediction(w io.Writer, r *predict.Report, loaded time.Duration) {
	ms := func(s float64) string { return fmt.Sprintf("%.3g ms", 1000*s) }
	fmt.Fprintf(w, "%s: function %s, %s arithmetic, loaded in %s, ", r.Model, r.Function, r.Numerics, ms(loaded.Seconds()))
	if r.Calls == 1 {
		fmt.Fprintf(w, "called in %s\n", ms(r.FirstSeconds))
	} else {
		fmt.Fprintf(w, "%d calls: the first in %s, the others in %s each\n", r.Calls, ms(r.FirstSeconds), ms(r.MeanSeconds))
	}
	rows := [][]string{}
	for _, x := range r.Inputs {
		rows = append(rows, []string{"input", x.Name, x.DType, fmt.Sprint(x.Shape), x.Source})
	}
	for _, l := range []struct {
		kind string
		ts   []predict.TensorReport
	}{{"output", r.Outputs}, {"state", r.States}} {
		for _, x := range l.ts {
			row := []string{l.kind, x.Name, x.DType, fmt.Sprint(x.Shape)}
			if len(x.First) > 0 {
				figures := ""
				if len(x.First) > 1 {
					figures = fmt.Sprintf("min %v  max %v  mean %v", x.Min, x.Max, x.Mean)
				}
				if x.NaN+x.Inf > 0 {
					figures += fmt.Sprintf("  NaN %d  Inf %d", x.NaN, x.Inf)
				}
				row = append(row, figures, firstText(x))
			}
			rows = append(rows, row)
		}
	}
	table(w, "  ", rows)
}

// firstText lists the first elements.
func firstText(x predict.TensorReport) string {
	var s []string
	total := 1
	for _, d := range x.Shape {
		total *= d
	}
	for _, f := range x.First {
		s = append(s, f.String())
	}
	if total > len(s) {
		s = append(s, "...")
	}
	return strings.Join(s, " ")
}
