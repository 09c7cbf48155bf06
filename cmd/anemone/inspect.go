package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"anemone"
	"anemone/internal/inspect"
	"anemone/internal/lint"
)

// inspectFlags are the flags of inspect.
type inspectFlags struct {
	json, operations, weights, mil, full bool
	function                             string
	lint, strict, deep                   bool
	os                                   string
	ignore                               []string
}

func newInspect() *cobra.Command {
	var f inspectFlags
	cmd := &cobra.Command{
		Use:   "inspect PATH",
		Short: "Say what a package, a Core ML model or a checkpoint holds, and lint it",
		Long: `Inspect says what lies at PATH: a package (its parts, functions, inputs, outputs,
states, weights by encoding, an estimate of the memory it takes, what meta.yaml
says of recurrent states, experts, windows and the like, and whatever is odd
about it, such as a meta.yaml that the models contradict), a single .mlpackage,
.mlmodel or .mlmodelc, or a checkpoint (a Hugging Face folder or a GGUF file) and
whether it can be converted. Files of weights are mapped, not read.

--mil prints the program as text, --weights a tree of all weights, --lint what is
known to go wrong on the Neural Engine: each in place of the summary.

With --lint the exit status is 1 if there are errors, with --strict also if there
are warnings, and 2 if nothing could be looked at. docs/lint.md lists the rules.`,
		Example: `  anemone inspect Qwen3-0.6B-ane
  anemone inspect Qwen3-0.6B-ane/qwen_lm_head_lut6.mlmodelc --operations
  anemone inspect chunk.mlpackage --mil --function infer | less
  anemone inspect Qwen3-0.6B-ane --weights
  anemone inspect Qwen3-0.6B-ane --lint --os ios18 --strict
  anemone inspect Qwen3-0.6B --json
  anemone inspect SmolLM2-135M-Instruct.Q4_1.gguf`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, a []string) error {
			o, err := f.options()
			if err != nil {
				return &statusError{exitUsage, err}
			}
			r, err := anemone.InspectWith(cmd.Context(), a[0], o)
			if err != nil {
				if _, bad := os.Stat(a[0]); bad == nil {
					if hint := checkpointHint(a[0]); hint != nil {
						err = hint
					}
				}
				if f.lint {
					// Nothing was found, neither good nor bad.
					return &statusError{exitUsage, err}
				}
				return err
			}
			if f.json {
				err = writeJSON(cmd.OutOrStdout(), r)
			} else {
				f.print(cmd.OutOrStdout(), r)
			}
			if err == nil && r.Lint != nil && (r.Lint.Errors > 0 || f.strict && r.Lint.Warnings > 0) {
				return &statusError{exitFailed, nil}
			}
			return err
		},
	}
	fs := cmd.Flags()
	fs.BoolVar(&f.json, "json", false, "print JSON")
	fs.BoolVar(&f.operations, "operations", false, "count the operations of every function by type")
	fs.BoolVar(&f.mil, "mil", false, "print the program as text")
	fs.StringVar(&f.function, "function", "", "with --mil: print only the function of this `NAME`")
	fs.BoolVar(&f.weights, "weights", false, "print all weights: encodings, shapes, sizes, and which functions share them")
	fs.BoolVar(&f.full, "full", false, "shorten nothing: long literals, layers that are alike, places that are alike")
	fs.BoolVar(&f.lint, "lint", false, "look for what is known to go wrong")
	fs.BoolVar(&f.strict, "strict", false, "with --lint: exit with status 1 for warnings too")
	fs.BoolVar(&f.deep, "deep", false, "with --lint: also read the weights")
	fs.StringVar(&f.os, "os", "", "with --lint: the oldest `SYSTEM` that must load it, such as ios18 or macos15")
	fs.StringSliceVar(&f.ignore, "ignore", nil, "with --lint: leave these `RULES` out")
	fs.SortFlags = false
	var names []string
	for _, r := range lint.Rules() {
		names = append(names, r.Name)
	}
	complete(cmd, "ignore", names...)
	complete(cmd, "os", "ios18", "ios26", "macos15", "macos26")
	return cmd
}

// options turns flags into what the library takes.
func (f *inspectFlags) options() (anemone.InspectOptions, error) {
	o := anemone.InspectOptions{Weights: f.weights, MIL: f.mil, Function: f.function, Full: f.full}
	for flag, given := range map[string]bool{"strict": f.strict, "deep": f.deep, "os": f.os != "", "ignore": len(f.ignore) > 0} {
		if given && !f.lint {
			return o, fmt.Errorf("--%s is for --lint", flag)
		}
	}
	if f.function != "" && !f.mil {
		return o, fmt.Errorf("--function is for --mil")
	}
	if f.lint {
		o.Lint = &anemone.LintOptions{Deep: f.deep, Ignore: f.ignore}
		if f.os != "" {
			var err error
			if o.Lint.OS, err = lint.ParseOS(f.os); err != nil {
				return o, fmt.Errorf("--os: %w", err)
			}
		}
	}
	return o, nil
}

func (f *inspectFlags) print(w io.Writer, r *anemone.Inspection) {
	if f.operations || !f.mil && !f.weights && !f.lint {
		printInspection(w, r, f.operations)
	}
	if f.mil {
		printMIL(w, r)
	}
	if f.weights {
		for _, m := range r.Models() {
			printTree(w, m, f.full)
		}
	}
	if r.Lint != nil {
		printLint(w, r.Lint, f.full)
	}
}

func printInspection(w io.Writer, r *anemone.Inspection, ops bool) {
	switch {
	case r.Package != nil:
		p := r.Package
		fmt.Fprintf(w, "%s: package %s\n", r.Path, oneLine(p.Name))
		batches := fmt.Sprintf("prefill in batches of %d", p.Batch)
		if len(p.Remainders) > 0 {
			batches += fmt.Sprintf(", what is left in calls of %s", strings.ReplaceAll(strings.Trim(fmt.Sprint(p.Remainders), "[]"), " ", ", "))
		}
		rows := [][]string{
			{"architecture", p.Architecture},
			{"context", fmt.Sprintf("%d positions, %s", p.Context, batches)},
			{"sizes", fmt.Sprintf("hidden %d, vocabulary %d", p.Hidden, p.Vocab)},
			{"weights", bytesText(p.WeightBytes)},
			{"states", bytesText(p.Memory.State) + " for one context"},
			{"memory", fmt.Sprintf("portable engine: about %s, weights once and the states in float32", bytesText(p.Memory.Engine))},
			{"", fmt.Sprintf("Neural Engine: %s of weights, a copy for each function; states and activations (below) not counted", bytesText(p.Memory.NeuralEngine))},
		}
		if p.Extension != nil {
			rows = append(rows, p.Extension.Rows()...)
		}
		table(w, "  ", rows)
		for i := range p.Parts {
			fmt.Fprintln(w)
			printModel(w, &p.Parts[i], ops)
		}
		fmt.Fprintln(w)
		for _, s := range p.Problems {
			fmt.Fprintf(w, "problem: %s\n", s)
		}
		if len(p.Problems) == 0 {
			fmt.Fprintln(w, "no problems found")
		}
	case r.Model != nil:
		printModel(w, r.Model, ops)
	case r.Checkpoint != nil:
		c := r.Checkpoint
		kind := fmt.Sprintf("model type %q", c.ModelType)
		if c.ModelType == "" && c.Architecture != "" {
			kind = fmt.Sprintf("architecture %q", c.Architecture)
		}
		fmt.Fprintf(w, "%s: checkpoint of %s, %d tensors, %d parameters, %s\n", r.Path, kind, c.Tensors, c.Parameters, bytesText(c.Bytes))
		var types []string
		for _, t := range c.Types {
			types = append(types, fmt.Sprintf("%s %d", t.Name, t.Tensors))
		}
		rows := [][]string{{"format", c.Format}, {"tensors", strings.Join(types, ", ")}}
		for _, row := range [][]string{{"architecture", c.Architecture}, {"name", c.Name}, {"tokenizer", c.Tokenizer}} {
			if row[1] != "" {
				rows = append(rows, row)
			}
		}
		if c.Context > 0 {
			rows = append(rows, []string{"context", fmt.Sprintf("%d positions", c.Context)})
		}
		table(w, "  ", append(rows, []string{"files", strings.Join(c.Files, ", ")}))
		for _, u := range c.Unused {
			fmt.Fprintf(w, "  not used: %s\n", oneLine(u))
		}
		for _, s := range c.Problems {
			fmt.Fprintf(w, "problem: %s\n", s)
		}
		if c.Supported {
			fmt.Fprintf(w, "can be converted: anemone convert %s\n", r.Path)
		} else {
			fmt.Fprintf(w, "cannot be converted: %s\n", c.Why)
		}
	}
}

func printModel(w io.Writer, m *inspect.Model, ops bool) {
	fmt.Fprintf(w, "%s: specification %d, ", m.Name, m.SpecVersion)
	if c := m.Compiled; c != nil {
		fmt.Fprintf(w, "compiled (format %d", c.Format)
		if c.Compiler != "" {
			fmt.Fprintf(w, ", coremlc %s", c.Compiler)
		}
		fmt.Fprint(w, "), ")
	}
	fmt.Fprintf(w, "weights %s", bytesText(m.WeightBytes))
	if m.Description != "" {
		fmt.Fprintf(w, ", %q", m.Description)
	}
	fmt.Fprintln(w)
	for _, f := range m.Functions {
		mark := ""
		if f.Name == m.DefaultFunction {
			mark = " (default)"
		}
		n := 0
		for _, c := range f.Operations {
			n += c
		}
		fmt.Fprintf(w, "  function %s%s: %s, %s, uses %s of weights\n", f.Name, mark, f.Opset, counted(n, "operation"), bytesText(f.WeightBytes))
		var rows [][]string
		for _, l := range []struct {
			kind string
			fs   []inspect.Feature
		}{{"input", f.Inputs}, {"output", f.Outputs}, {"state", f.States}} {
			for _, x := range l.fs {
				rows = append(rows, []string{l.kind, x.String()})
			}
		}
		// A head has many outputs alike.
		if len(rows) > 12 && !ops {
			rows = append(rows[:6], []string{"...", fmt.Sprintf("%d more", len(rows)-7)}, rows[len(rows)-1])
		}
		e := f.Memory
		memory := fmt.Sprintf("about %s on the Neural Engine when it runs: weights %s, activations %s, inputs and outputs %s", bytesText(e.Total()), bytesText(e.Weights), bytesText(e.Activations), bytesText(e.InOut))
		if e.Weights == 0 && f.WeightBytes > 0 {
			memory = "weights stay in the mapped file, rows are read as they are looked up"
		}
		if e.State > 0 {
			memory += ", states " + bytesText(e.State)
		}
		table(w, "    ", append(rows, []string{"memory", memory}))
		if ops {
			var list [][]string
			for _, name := range slices.Sorted(maps.Keys(f.Operations)) {
				list = append(list, []string{fmt.Sprint(f.Operations[name]), name})
			}
			table(w, "      ", list)
		}
	}
	var rows [][]string
	for _, e := range m.Weights {
		rows = append(rows, []string{e.Name, counted(e.Count, "weight"), fmt.Sprintf("%d elements", e.Elements), bytesText(e.Bytes)})
	}
	table(w, "  ", rows)
}

// printMIL prints programs; where there are several, under the names of their
// models.
func printMIL(w io.Writer, r *anemone.Inspection) {
	for _, m := range r.Models() {
		if m.MIL == "" {
			continue
		}
		if r.Model == nil {
			fmt.Fprintf(w, "// %s\n", m.Name)
		}
		io.WriteString(w, m.MIL)
	}
}

func printTree(w io.Writer, m *inspect.Model, full bool) {
	fmt.Fprintf(w, "%s: %s, %s\n", m.Name, counted(len(m.Tensors), "weight"), bytesText(m.WeightBytes))
	var rows [][]string
	for _, r := range inspect.Tree(m.Tensors, full) {
		name := strings.Repeat("  ", r.Depth) + r.Name
		t := r.Tensor
		if t == nil {
			size := bytesText(r.Bytes)
			if r.Alike > 1 {
				name += fmt.Sprintf(" (%d alike)", r.Alike)
				size += " each"
			}
			rows = append(rows, []string{name, "", "", size})
			continue
		}
		row := []string{name, fmt.Sprint(t.Shape), t.Encoding, bytesText(r.Bytes)}
		if len(m.Functions) > 1 {
			row = append(row, strings.Join(t.Functions, ", "))
		}
		if full {
			var at []string
			for _, p := range t.Pieces {
				s := fmt.Sprintf("@%d", p.Offset)
				if p.Role != "" {
					s = p.Role + " " + s
				}
				at = append(at, s)
			}
			row = append(row, strings.Join(at, ", "))
		}
		rows = append(rows, row)
	}
	table(w, "  ", rows)
}

func printLint(w io.Writer, l *inspect.Lint, full bool) {
	const places = 6
	for _, g := range lint.Groups(l.Findings) {
		fmt.Fprintf(w, "%s: %s\n", g.Severity, g.Rule)
		for i, f := range g.Findings {
			if i == places && len(g.Findings) > places+1 && !full {
				fmt.Fprintf(w, "  and %d more\n", len(g.Findings)-places)
				break
			}
			name := f.Name
			switch {
			case full && len(f.More) > 0:
				name += ", " + strings.Join(f.More, ", ")
			case len(f.More) > 0:
				name += fmt.Sprintf(" and %d more", len(f.More))
			}
			var parts []string
			for _, s := range []string{f.Where(), name, f.Found} {
				if s != "" {
					parts = append(parts, s)
				}
			}
			fmt.Fprintf(w, "  %s\n", strings.Join(parts, ": "))
		}
		fmt.Fprintf(w, "  why: %s\n  fix: %s\n", g.Why, g.Fix)
	}
	if len(l.Findings) == 0 {
		fmt.Fprintln(w, "nothing found")
		return
	}
	fmt.Fprintf(w, "%s, %s, %s\n", counted(l.Errors, "error"), counted(l.Warnings, "warning"), counted(l.Infos, "info"))
}

// counted writes a number of things.
func counted(n int, one string) string {
	if n != 1 {
		one += "s"
	}
	return fmt.Sprintf("%d %s", n, one)
}

// were writes that a number of things were something.
func were(n int, one string) string {
	if n == 1 {
		return counted(n, one) + " was"
	}
	return counted(n, one) + " were"
}

// complete names the values of a flag to shells.
func complete(cmd *cobra.Command, flag string, values ...string) {
	// The only error is that there is no such flag, which a test would see.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}
