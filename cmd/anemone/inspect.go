package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"anemone"
	"anemone/internal/inspect"
)

func newInspect() *cobra.Command {
	var asJSON, ops bool
	cmd := &cobra.Command{
		Use:   "inspect PATH",
		Short: "Say what a package, a Core ML model or a checkpoint holds",
		Long: `Inspect says what lies at PATH: a package (its parts, functions, inputs, outputs,
states, weights by encoding, an estimate of the memory it takes, and whatever is
odd about it), a single .mlpackage, or a checkpoint and whether it can be
converted. Weights are not read.`,
		Example: `  anemone inspect Qwen3-0.6B-ane
  anemone inspect Qwen3-0.6B-ane/qwen_lm_head_lut6.mlpackage --operations
  anemone inspect Qwen3-0.6B --json`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, a []string) error {
			r, err := anemone.Inspect(a[0])
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), r)
			}
			printInspection(cmd.OutOrStdout(), r, ops)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&ops, "operations", false, "count the operations of every function by type")
	return cmd
}

func printInspection(w io.Writer, r *anemone.Inspection, ops bool) {
	switch {
	case r.Package != nil:
		p := r.Package
		fmt.Fprintf(w, "%s: package %s\n", r.Path, p.Name)
		table(w, "  ", [][]string{
			{"architecture", p.Architecture},
			{"context", fmt.Sprintf("%d positions, prefill in batches of %d", p.Context, p.Batch)},
			{"sizes", fmt.Sprintf("hidden %d, vocabulary %d", p.Hidden, p.Vocab)},
			{"weights", bytesText(p.WeightBytes)},
			{"memory", fmt.Sprintf("state %s; portable engine about %s; Neural Engine about %s (a copy of the weights for each function)",
				bytesText(p.Memory.State), bytesText(p.Memory.Engine), bytesText(p.Memory.NeuralEngine))},
		})
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
		fmt.Fprintf(w, "%s: checkpoint of model type %q, %d tensors, %d parameters, %s\n", r.Path, c.ModelType, c.Tensors, c.Parameters, bytesText(c.Bytes))
		fmt.Fprintf(w, "  files: %s\n", strings.Join(c.Files, ", "))
		for _, u := range c.Unused {
			fmt.Fprintf(w, "  not used: %s\n", u)
		}
		if c.Supported {
			fmt.Fprintf(w, "can be converted: anemone convert %s\n", r.Path)
		} else {
			fmt.Fprintf(w, "cannot be converted: %s\n", c.Why)
		}
	}
}

func printModel(w io.Writer, m *inspect.Model, ops bool) {
	fmt.Fprintf(w, "%s: specification %d, weights %s", m.Name, m.SpecVersion, bytesText(m.WeightBytes))
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
		fmt.Fprintf(w, "  function %s%s: %s, %d operations, uses %s of weights\n", f.Name, mark, f.Opset, n, bytesText(f.WeightBytes))
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
		table(w, "    ", rows)
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
		rows = append(rows, []string{e.Name, fmt.Sprintf("%d weights", e.Count), fmt.Sprintf("%d elements", e.Elements), bytesText(e.Bytes)})
	}
	table(w, "  ", rows)
}
