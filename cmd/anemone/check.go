package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"anemone/internal/anemll"
	"anemone/internal/arch/all"
	"anemone/internal/check"
	"anemone/internal/engine"
	"anemone/internal/generate"
	"anemone/internal/session"
	"anemone/internal/tokenizer/chat"
)

// maxText is the longest file that --text reads, in bytes.
const maxText = 16 << 20

func newCheck() *cobra.Command {
	var c checker
	c.numerics = numericsFlag(engine.Float32)
	cmd := &cobra.Command{
		Use:   "check PACKAGE (--hf CHECKPOINT | --golden FILE | --text FILE | --bench | --plan)",
		Short: "Hold a package to its checkpoint, measure it, see where it runs",
		Long: `Check proves that a package computes what its checkpoint (a Hugging Face folder
or a GGUF file) computes. The checkpoint's own float32 computation writes a
greedy answer to a prompt; the same tokens then go through the package, and
their logits are compared at every position: in the contract's sequence (full
batches through prefill, which gives logits for the last token of each, the rest
through infer) and token by token (infer only). Prefill is also held to infer.

With --golden, logits made elsewhere take the place of the checkpoint: a
safetensors file with tokens, logits, and position if only some tokens have
logits. With --text alone, prefill is held to infer.

  cosine, KL   of the logits; KL(reference || package) in nats
  top-1        both have the same best token
  top-5        the reference's best token is among the package's best five
  overlap      share of the reference's best five among the package's
  max|d|       largest difference of a logit

--layers also follows the residual stream from layer to layer, whatever the
number of chunks, and marks where package and checkpoint part.

The package passes if the figures keep the limits, which depend on its narrowest
weights (shown below the table; see --min-cosine, --max-kl and --min-top1).

Exit status: 0 the package is within the limits, 1 it is not, 2 the comparison
could not be made.`,
		Example: `  anemone check Qwen3-0.6B-ane --hf Qwen3-0.6B
  anemone check Qwen3-0.6B-ane --hf Qwen3-0.6B --text essay.txt --layers
  anemone check SmolLM2-ane --hf SmolLM2-135M-Instruct.Q4_1.gguf
  anemone check Qwen3-0.6B-ane --golden logits.safetensors --numerics fp16
  anemone check Qwen3-0.6B-ane --bench
  anemone check Qwen3-0.6B-ane --plan`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, a []string) error {
			err := c.run(cmd, a[0])
			var se *statusError
			if err == nil || errors.As(err, &se) {
				return err
			}
			return &statusError{exitUsage, err}
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.o.Checkpoint, "hf", "", "checkpoint (Hugging Face folder or GGUF file) that the package was made of")
	f.StringVar(&c.o.Golden, "golden", "", "safetensors file with tokens and logits, in place of a checkpoint")
	f.IntVar(&c.o.Tokens, "tokens", 0, "tokens that the checkpoint writes behind the prompt, or number compared of a text or golden file (default 64, or all)")
	f.StringVar(&c.o.Prompt, "prompt", "", "user message that the checkpoint answers, through the chat template if there is one (default: a built-in one)")
	f.BoolVar(&c.raw, "raw", false, "use the prompt as it is, without the chat template")
	f.StringVar(&c.text, "text", "", "file with text that both read, in place of a prompt that is answered; without --hf, prefill is compared with infer on it")
	f.BoolVar(&c.o.Layers, "layers", false, "compare what leaves every decoder layer as well, and show where the package and the checkpoint part")
	f.Var(&c.numerics, "numerics", "arithmetic: fp32, or fp16 to round every result as a GPU stores it")
	f.Float64Var(&c.limits.MinCosine, "min-cosine", 0, "lowest cosine that passes, at any position (default: by the weights' bits)")
	f.Float64Var(&c.limits.MaxKL, "max-kl", 0, "highest mean KL that passes, in nats (default: by the weights' bits)")
	f.Float64Var(&c.limits.MinTop1, "min-top1", 0, "lowest share of equal best tokens that passes, 0 to 1 (default: by the weights' bits)")
	f.BoolVar(&c.bench, "bench", false, "measure load time, prefill and decode rate and memory")
	f.BoolVar(&c.plan, "plan", false, "show which device would run each operation, as predicted by rules")
	f.IntVar(&c.jobs, "jobs", 0, "cores to use (default all)")
	f.BoolVar(&c.asJSON, "json", false, "print everything as JSON")
	f.BoolVarP(&c.verbose, "verbose", "v", false, "list every operation of the plan")
	complete(cmd, "numerics", "fp32", "fp16")
	return cmd
}

// checker is one call of the command.
type checker struct {
	o        check.PackageOptions
	limits   check.Limits
	numerics numericsFlag
	text     string
	raw      bool
	bench    bool
	plan     bool
	jobs     int
	asJSON   bool
	verbose  bool
}

// checkOutput is what --json prints: the fields of the comparison, if there
// was one, and the other reports.
type checkOutput struct {
	Package  string   `json:"package"`
	Numerics string   `json:"numerics"`
	Problems []string `json:"problems"` // what is odd about the package
	*check.Report
	Bench *check.BenchReport `json:"bench,omitempty"`
	Plan  *check.PlanReport  `json:"plan,omitempty"`
}

func (c *checker) run(cmd *cobra.Command, dir string) error {
	compare := c.o.Checkpoint != "" || c.o.Golden != "" || c.text != ""
	if !compare && !c.bench && !c.plan {
		return &statusError{exitUsage, fmt.Errorf("nothing to do: give --hf CHECKPOINT or --golden FILE to compare with, --text FILE to compare prefill with infer, --bench or --plan\nSee '%s --help'", cmd.CommandPath())}
	}
	if err := c.limitsOK(cmd); err != nil {
		return &statusError{exitUsage, err}
	}
	out := checkOutput{Package: dir, Numerics: c.numerics.String(), Problems: []string{}}
	bar := newProgress(cmd.ErrOrStderr(), c.asJSON)
	defer bar.done()

	var p *anemll.Package
	var m *session.Model
	defer func() {
		if m != nil {
			m.Close()
		}
		if p != nil {
			p.Close()
		}
	}()
	load := func() (_ *session.Model, err error) {
		if m == nil {
			p, m, err = generate.Load(dir, generate.Options{Numerics: engine.Numerics(c.numerics), Workers: c.jobs})
		}
		return m, err
	}
	var err error
	// First, so that load time and memory are those of the package alone.
	if c.bench {
		o := check.BenchOptions{Progress: func(done, total int) {
			bar.update(func() string { return fmt.Sprintf("measuring: %d of %d", done+1, total) })
		}}
		if out.Bench, err = check.Bench(cmd.Context(), load, o); err != nil {
			return err
		}
		if c.jobs > 0 {
			out.Bench.Cores = c.jobs
		}
	}
	if compare {
		if _, err := load(); err != nil {
			return err
		}
		if out.Report, err = c.compare(cmd, m, bar); err != nil {
			return err
		}
	}
	if c.plan {
		if p == nil {
			if p, err = anemll.Open(dir); err != nil {
				return err
			}
		}
		out.Plan = check.Plan(p)
	}
	bar.done()
	out.Problems = append(out.Problems, p.Problems...)
	if c.asJSON {
		err = writeJSON(cmd.OutOrStdout(), out)
	} else {
		c.print(cmd.OutOrStdout(), &out)
	}
	if err == nil && out.Report != nil && !out.Passed {
		return &statusError{exitFailed, nil}
	}
	return err
}

// limitsOK refuses numbers that would let everything pass, or nothing.
func (c *checker) limitsOK(cmd *cobra.Command) error {
	for _, l := range []struct {
		flag      string
		v, lo, hi float64
	}{{"min-cosine", c.limits.MinCosine, -1, 1}, {"max-kl", c.limits.MaxKL, 0, math.MaxFloat64}, {"min-top1", c.limits.MinTop1, 0, 1}} {
		if cmd.Flags().Changed(l.flag) && !(l.v >= l.lo && l.v <= l.hi) {
			if l.hi > 1 {
				return fmt.Errorf("--%s %v: want a number from %v on", l.flag, l.v, l.lo)
			}
			return fmt.Errorf("--%s %v: want a number from %v to %v", l.flag, l.v, l.lo, l.hi)
		}
	}
	if c.jobs < 0 {
		return fmt.Errorf("--jobs %d: want 0 or more", c.jobs)
	}
	if c.o.Tokens < 0 {
		return fmt.Errorf("--tokens %d: want 0 or more", c.o.Tokens)
	}
	return nil
}

func (c *checker) compare(cmd *cobra.Command, m *session.Model, bar *progress) (*check.Report, error) {
	o := c.o
	if c.text != "" {
		b, err := readText(c.text)
		if err != nil {
			return nil, err
		}
		if o.Text = string(b); o.Text == "" {
			return nil, fmt.Errorf("%s is empty", c.text)
		}
	}
	if !c.raw && o.Golden == "" {
		t, err := check.FindTemplate(m.Package().Dir, o.Checkpoint)
		if err != nil {
			return nil, err
		}
		if t != nil {
			o.Template = func(message string) (string, error) {
				return t.Render([]chat.Message{{Role: "user", Content: message}}, chat.Options{AddGenerationPrompt: true})
			}
		}
	}
	l := check.DefaultLimits(check.WeightBits(m.Package()))
	if cmd.Flags().Changed("min-cosine") {
		// Who says how low it may be at any position says so of the mean.
		l.MinCosine, l.MinMeanCosine = c.limits.MinCosine, c.limits.MinCosine
	}
	if cmd.Flags().Changed("max-kl") {
		l.MaxKL = c.limits.MaxKL
	}
	if cmd.Flags().Changed("min-top1") {
		l.MinTop1 = c.limits.MinTop1
	}
	o.Limits = &l
	o.Load = generate.Options{Numerics: engine.Numerics(c.numerics), Workers: c.jobs}.Loader()
	o.Progress = func(p check.Progress) { bar.update(func() string { return checkLine(p) }) }
	return check.Package(cmd.Context(), all.Registry, m, o)
}

func readText(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxText+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxText {
		return nil, fmt.Errorf("%s has more than %d MiB: a context does not hold that much", path, maxText>>20)
	}
	return b, nil
}

func checkLine(p check.Progress) string {
	left := "estimating"
	if p.Left > 0 {
		left = durationText(p.Left) + " left"
	}
	s := fmt.Sprintf("%d of %d tokens, %.1f tokens/s, %s", p.Done, p.Total, float64(p.Done)/max(p.Elapsed.Seconds(), 1e-3), left)
	if p.Layers > 0 {
		s += fmt.Sprintf("  reference: layer %d of %d", p.Layer, p.Layers)
	}
	return s
}

func (c *checker) print(w io.Writer, o *checkOutput) {
	if o.Report != nil {
		printComparison(w, o)
	}
	if o.Bench != nil {
		printBench(w, o.Bench)
	}
	if o.Plan != nil {
		printPlan(w, o.Plan, c.verbose)
	}
	for _, p := range o.Problems {
		fmt.Fprintln(w, "note:", p)
	}
}

func printComparison(w io.Writer, o *checkOutput) {
	r := o.Report
	if r.Passed {
		fmt.Fprintf(w, "pass: %s agrees with %s\n", o.Package, r.Target)
	} else {
		fmt.Fprintf(w, "FAIL: %s does not agree with %s\n", o.Package, r.Target)
		for _, f := range r.Failures {
			fmt.Fprintln(w, "  "+f)
		}
	}
	batch := "no prefill"
	if r.Batch > 0 {
		batch = fmt.Sprintf("batches of %d", r.Batch)
	}
	fmt.Fprintf(w, "%d tokens (%d given), context %d, %s, narrowest weights %d bits, %s arithmetic, %s\n",
		r.Tokens, r.PromptTokens, r.Context, batch, r.Bits, o.Numerics, durationText(time.Duration(r.Seconds*float64(time.Second))))

	rows := [][]string{{"", "positions", "cosine min", "mean", "KL mean", "p99", "top-1", "top-5", "overlap", "max|d|"}}
	for _, x := range []struct {
		name string
		f    *check.Figures
	}{{"contract sequence", r.Contract}, {"infer only", r.Infer}, {"  of these generated", r.Generated}, {"prefill against infer", r.Prefill}} {
		f := x.f
		if f == nil {
			continue
		}
		n := fmt.Sprint(f.Positions)
		if f.NonFinite > 0 {
			n = fmt.Sprintf("%d (%d NaN or Inf)", f.Positions, f.NonFinite)
		}
		if f.NonFinite == f.Positions {
			rows = append(rows, []string{x.name, n})
			continue
		}
		rows = append(rows, []string{x.name, n, fmt.Sprintf("%.6f", f.Cosine.Min), fmt.Sprintf("%.6f", f.Cosine.Mean), fmt.Sprintf("%.6f", f.KL.Mean),
			fmt.Sprintf("%.6f", f.KL.P99), fmt.Sprintf("%.4f", f.Top1), fmt.Sprintf("%.4f", f.Top5), fmt.Sprintf("%.4f", f.Overlap), fmt.Sprintf("%.4f", f.MaxDiff)})
	}
	l := r.Limits
	rows = append(rows, []string{"limits", "", fmt.Sprint(l.MinCosine), fmt.Sprint(l.MinMeanCosine), fmt.Sprint(l.MaxKL), "", fmt.Sprint(l.MinTop1), "", "", ""})
	table(w, "  ", rows)

	if len(r.Layers) > 0 {
		printLayers(w, r)
	}
	for _, s := range r.States {
		fmt.Fprintf(w, "  state %s: cosine %.6f, max|d| %.4f\n", s.Name, s.Cosine, s.MaxDiff)
	}
	for _, n := range r.Notes {
		fmt.Fprintln(w, "note:", n)
	}
}

// printLayers prints a row for each place on the residual stream.
func printLayers(w io.Writer, r *check.Report) {
	title := []string{"behind", "in", "cosine min", "relative error", "added", "max|d|"}
	prefill := false
	for _, x := range r.Layers {
		prefill = prefill || x.Prefill != nil
	}
	if prefill {
		title = append(title, "prefill: cosine min", "relative error", "added", "max|d|")
	}
	rows := [][]string{title}
	parting := -1
	if !r.Passed {
		parting = r.Parting()
	}
	for i, x := range r.Layers {
		row := []string{fmt.Sprintf("layer %d", x.Layer), x.Part}
		switch {
		case x.FinalNorm:
			row[0] = "final norm"
		case x.Layer < 0:
			row[0] = "embeddings"
		}
		for k, h := range []*check.HiddenFigures{x.Infer, x.Prefill} {
			if k == 1 && !prefill {
				break
			}
			switch {
			case h == nil:
				row = append(row, "", "", "", "")
			case h.NonFinite > 0:
				row = append(row, fmt.Sprintf("%d of %d NaN or Inf", h.NonFinite, h.Positions), "", "", "")
			default:
				added := ""
				if h.Added != nil {
					added = fmt.Sprintf("%.1e", h.Added.Mean)
				}
				row = append(row, fmt.Sprintf("%.6f", h.Cosine.Min), fmt.Sprintf("%.1e", h.Relative.Mean), added, fmt.Sprintf("%.4f", h.MaxDiff))
			}
		}
		if i == parting {
			row = append(row, "<- here they part")
		}
		rows = append(rows, row)
	}
	table(w, "  ", rows)
	fmt.Fprintln(w, "  relative error: of the residual stream, mean; added: of what was added to it since the row above")
	if !r.Passed && parting < 0 {
		fmt.Fprintln(w, "  no layer stands out")
	}
}

func printBench(w io.Writer, b *check.BenchReport) {
	fmt.Fprintf(w, "bench: %s, %d cores, median of %d\n", b.Platform, b.Cores, b.Repeats)
	rate := func(r check.Rates) string {
		return fmt.Sprintf("%.1f tokens/s (%.1f to %.1f)", r.Median, r.Min, r.Max)
	}
	rows := [][]string{
		{"prefill", rate(b.Prefill), fmt.Sprintf("prompt of %d tokens", b.PromptTokens)},
		{"decode", rate(b.Decode), fmt.Sprintf("%d tokens behind it", b.DecodeTokens)},
		{"load", fmt.Sprintf("%.2f s", b.LoadSeconds), fmt.Sprintf("and %.2f s for the first calls", b.FirstSeconds)},
	}
	if b.DecodeTokens == 0 {
		rows[1] = []string{"decode", "not measured", "the prompt fills the context"}
	}
	if b.PeakBytes > 0 {
		rows = append(rows, []string{"peak memory", bytesText(b.PeakBytes), "resident, mapped weights included"})
	}
	rows = append(rows, []string{"weights", bytesText(b.WeightBytes), "stored"}, []string{"states", bytesText(b.StateBytes), "of one context"})
	table(w, "  ", rows)
	for _, p := range b.Problems {
		fmt.Fprintln(w, "note:", p)
	}
}

func printPlan(w io.Writer, p *check.PlanReport, verbose bool) {
	how := "told by Core ML"
	if p.Predicted {
		how = "predicted by rules; only Core ML can tell"
	}
	fmt.Fprintf(w, "plan (%s): %.2f %% of the operations on the Neural Engine\n", how, 100*p.Share())
	rows := [][]string{{"part", "function", "ANE", "CPU", "data"}}
	for _, f := range p.Functions {
		rows = append(rows, []string{f.Part, f.Function, fmt.Sprint(f.Counts[check.NeuralEngine]), fmt.Sprint(f.Counts[check.CPU]), fmt.Sprint(f.Counts[check.NoDevice])})
	}
	table(w, "  ", rows)
	printOps(w, p, "not on the Neural Engine:", func(o *check.Placement) string { return o.Reason })
	printOps(w, p, "at risk:", func(o *check.Placement) string { return o.Risk })
	if !verbose {
		return
	}
	for _, f := range p.Functions {
		fmt.Fprintf(w, "%s, %s:\n", f.Part, f.Function)
		rows := [][]string{}
		for _, o := range f.Ops {
			if o.Type != "const" {
				rows = append(rows, []string{string(o.Device), o.Type, o.Name, o.Output, strings.TrimSpace(o.Reason + " " + o.Risk)})
			}
		}
		table(w, "  ", rows)
	}
}

// printOps lists the operations about which there is something to say, those
// of one kind in one line.
func printOps(w io.Writer, p *check.PlanReport, title string, say func(*check.Placement) string) {
	type kind struct{ part, function, op, what string }
	n := map[kind]int{}
	first := map[kind]string{}
	var order []kind
	for _, f := range p.Functions {
		for _, o := range f.Ops {
			what := say(&o)
			if what == "" {
				continue
			}
			k := kind{f.Part, f.Function, o.Type, what}
			if n[k]++; n[k] == 1 {
				order = append(order, k)
				first[k] = o.Name
			}
		}
	}
	if len(order) == 0 {
		return
	}
	fmt.Fprintln(w, title)
	rows := [][]string{}
	for _, k := range order {
		name := first[k]
		if n[k] > 1 {
			name += fmt.Sprintf(" and %d more", n[k]-1)
		}
		rows = append(rows, []string{k.part, k.function, k.op, name, k.what})
	}
	table(w, "  ", rows)
}
