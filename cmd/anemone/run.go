package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"anemone"
	"anemone/internal/engine"
	"anemone/internal/platform"
)

// maxPrompt bounds what is read from standard input, in bytes.
const maxPrompt = 16 << 20

func newRun() *cobra.Command {
	r := talker{numerics: numericsFlag(engine.Float32)}
	cmd := &cobra.Command{
		Use:   "run PACKAGE [PROMPT...]",
		Short: "Answer a prompt with a package, or chat with it",
		Long: `Run answers a prompt with a package, on any system: the package's own chat
template, stop tokens and recommended sampling apply unless flags say otherwise.
The answer goes to standard output as it is made, figures to standard error.

Without a PROMPT, or with -, it is read from standard input; on a terminal run
chats instead: each line is a message, Ctrl-C stops an answer, /bye or Ctrl-D
ends the chat. A chat that no longer fits the context goes on without its older
half, but with the system prompt.

A prompt that is longer than the context is an error unless --shift drops its
oldest tokens. An answer ends when the context is full, unless --max-tokens asks
for more: then the oldest tokens are dropped to make room. Models with recurrent
states would have to read all that is kept again, so for these a full context is
an error then, unless --shift allows it.`,
		Example: `  anemone run Qwen3-0.6B-ane "Why is the sky blue?"
  anemone run Qwen3-0.6B-ane                              chat
  anemone run Qwen3-0.6B-ane --think=false --temperature 0 < question.txt
  anemone run Qwen3-0.6B-ane --raw "Once upon a time" --max-tokens 100 --seed 7`,
		Args: args(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, a []string) error { return r.run(cmd, a[0], a[1:]) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&r.system, "system", "", "system prompt")
	f.BoolVar(&r.think, "think", true, "let a model that can think do so (enable_thinking of the template)")
	f.IntVarP(&r.maxTokens, "max-tokens", "n", 0, "end after so many `TOKENS` (default: as many as fit)")
	r.s.register(cmd)
	f.BoolVar(&r.raw, "raw", false, "use the prompt as it is, without the chat template")
	f.BoolVar(&r.shift, "shift", false, "drop the oldest tokens of a prompt that is longer than the context; with recurrent states, also those of an answer that needs more room")
	f.BoolVar(&r.noShift, "no-shift", false, "end when the context is full, even if --max-tokens asks for more")
	f.BoolVar(&r.ignoreEOS, "ignore-eos", false, "go on past stop tokens")
	f.Var(&r.numerics, "numerics", "arithmetic: fp32, or fp16 to round every result as a GPU stores it")
	f.IntVar(&r.jobs, "jobs", 0, "`CORES` to use (default: all)")
	f.BoolVarP(&r.quiet, "quiet", "q", false, "print nothing but the answer")
	f.BoolVar(&r.asJSON, "json", false, "print the answer and the figures as JSON")
	complete(cmd, "numerics", "fp32", "fp16")
	return cmd
}

// talker is one call of the command.
type talker struct {
	system         string
	raw, think     bool
	maxTokens      int
	shift, noShift bool
	ignoreEOS      bool
	numerics       numericsFlag
	jobs           int
	quiet, asJSON  bool
	s              samplingFlags
	out, log       io.Writer
	sess           *anemone.Session
	drawing        bool   // flags ask for tokens to be drawn
	recurrent      bool   // the package has states that cannot be rewound
	full           bool   // the latest answer ended for want of room
	opening        string // what to log if the next answer begins
}

func (r *talker) run(cmd *cobra.Command, dir string, words []string) error {
	r.out, r.log = cmd.OutOrStdout(), cmd.ErrOrStderr()
	if err := r.check(cmd); err != nil {
		return &statusError{exitUsage, err}
	}
	in := cmd.InOrStdin()
	tty := false
	if f, ok := in.(*os.File); ok {
		tty = platform.IsTerminal(f)
	}
	prompt := strings.Join(words, " ")
	if len(words) > 0 && prompt == "" {
		return &statusError{exitUsage, errors.New("the prompt is empty")}
	}
	stdin := len(words) == 0 || prompt == "-"
	if stdin && !tty { // before anything else, so that a package is not opened for nothing
		var err error
		if prompt, err = readPrompt(cmd.Context(), in); err != nil {
			return err
		}
	}

	pkg, err := anemone.Open(dir, anemone.OpenOptions{Half: engine.Numerics(r.numerics) == engine.Float16, Workers: r.jobs})
	if err != nil {
		return err
	}
	defer pkg.Close()
	for _, p := range pkg.Problems() {
		r.note("%s", p)
	}
	if pkg.GreedyOnly() {
		if r.drawing {
			return &statusError{exitUsage, errors.New("the package's LM head gives only the best token, no probabilities (argmax_in_model): tokens cannot be drawn. Leave --temperature, --top-k, --top-p, --min-p and --repetition-penalty out")}
		}
		if s, err := pkg.Recommended(); err == nil && (*s.Temperature > 0 || *s.RepetitionPenalty > 0 && *s.RepetitionPenalty != 1) {
			r.note("the package's LM head gives only the best token, so the recommended sampling cannot be followed")
		}
	}
	if !r.raw && !pkg.HasTemplate() {
		r.raw = true
		r.note("the package has no chat template: the prompt is used as it is")
		if r.system != "" {
			return errors.New("--system needs a chat template, which the package does not have")
		}
	}
	if r.sess, err = pkg.NewSession(); err != nil {
		return err
	}

	r.recurrent = pkg.Recurrent()
	req := anemone.Request{MaxTokens: r.maxTokens, NoShift: r.noShift || r.recurrent && !r.shift, Trim: r.shift, IgnoreEOS: r.ignoreEOS, Sampling: r.s.preferences(cmd)}
	if cmd.Flags().Changed("think") {
		req.Chat.EnableThinking = &r.think
	}
	if r.system != "" {
		req.Messages = append(req.Messages, anemone.Message{Role: "system", Content: r.system})
	}
	if stdin && tty {
		if len(words) == 0 && !r.raw && !r.asJSON {
			return newConversation(r, in, req).run(cmd.Context())
		}
		fmt.Fprintln(r.log, "type the prompt; Ctrl-D on a line of its own ends it, Ctrl-C gives up")
		if prompt, err = readPrompt(cmd.Context(), in); err != nil {
			return err
		}
	}
	if r.raw {
		req.Prompt = prompt
	} else {
		req.Messages = append(req.Messages, anemone.Message{Role: "user", Content: prompt})
	}
	_, err = r.answer(cmd.Context(), req)
	if errors.Is(err, anemone.ErrContextFull) && !r.shift {
		err = fmt.Errorf("%w: shorten it, convert the checkpoint with a longer --context, or drop its oldest tokens (--shift)", err)
	}
	if err == nil && r.full && r.recurrent && !r.noShift {
		err = fmt.Errorf("%w: the answer ends there, before %s; convert the checkpoint with a longer --context, or let the model read the latest ones again with a new state (--shift)", anemone.ErrContextFull, counted(r.maxTokens, "token"))
	}
	return err
}

// check looks at the values of flags.
func (r *talker) check(cmd *cobra.Command) error {
	switch {
	case r.maxTokens < 0:
		return fmt.Errorf("--max-tokens %d: want 0 or more", r.maxTokens)
	case r.jobs < 0:
		return fmt.Errorf("--jobs %d: want 0 or more", r.jobs)
	case r.raw && r.system != "":
		return errors.New("--system needs the chat template, which --raw leaves out")
	case r.raw && cmd.Flags().Changed("think"):
		return errors.New("--think is for the chat template, which --raw leaves out")
	case r.shift && r.noShift:
		return errors.New("--shift and --no-shift contradict each other")
	}
	p := r.s.preferences(cmd)
	yes := func(v *float64, none float64) bool { return v != nil && *v != none }
	r.drawing = yes(p.RepetitionPenalty, 1) || yes(p.Temperature, 0) || p.Temperature == nil && (p.TopK != nil || p.TopP != nil || p.MinP != nil)
	return r.s.check()
}

func (r *talker) note(format string, args ...any) {
	if !r.quiet {
		fmt.Fprintf(r.log, "note: "+format+"\n", args...)
	}
}

// readPrompt reads a prompt from a stream, until its end or until ctx ends:
// a terminal may have nothing to read for ever.
func readPrompt(ctx context.Context, in io.Reader) (string, error) {
	type result struct {
		b   []byte
		err error
	}
	c := make(chan result, 1)
	go func() {
		b, err := io.ReadAll(io.LimitReader(in, maxPrompt+1))
		c <- result{b, err}
	}()
	select {
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case r := <-c:
		prompt := strings.TrimRight(string(r.b), "\r\n")
		switch {
		case r.err != nil:
			return "", fmt.Errorf("standard input: %w", r.err)
		case len(r.b) > maxPrompt:
			return "", fmt.Errorf("standard input has more than %d MiB: no context holds that much", maxPrompt>>20)
		case prompt == "":
			return "", &statusError{exitUsage, errors.New("the prompt on standard input is empty")}
		}
		return prompt, nil
	}
}

// answer streams one generation and returns its text, whatever there is of it
// if it fails.
func (r *talker) answer(ctx context.Context, req anemone.Request) (string, error) {
	bar := newProgress(r.log, r.quiet || r.asJSON)
	defer bar.done()
	var text strings.Builder
	tokens := []int32{}
	opening := r.opening
	r.opening = ""
	for e, err := range r.sess.Generate(ctx, req) {
		if err != nil {
			return text.String(), err
		}
		if opening != "" && !r.quiet {
			fmt.Fprintln(r.log, opening)
		}
		opening = ""
		text.WriteString(e.Text)
		switch e.Kind {
		case anemone.EventPrefill:
			bar.update(func() string { return fmt.Sprintf("reading the prompt: %d of %d tokens", e.Done, e.Total) })
		case anemone.EventShift:
			bar.done()
			if !r.quiet {
				fmt.Fprintf(r.log, "\n[context full: the oldest %s dropped, %d kept]\n", were(e.Dropped, "token"), e.Kept)
			}
		case anemone.EventToken:
			bar.done()
			tokens = append(tokens, e.Token)
			if !r.asJSON {
				if _, err := io.WriteString(r.out, e.Text); err != nil {
					return text.String(), err
				}
			}
		case anemone.EventEnd:
			bar.done()
			st := e.Stats
			r.full = e.Reason == anemone.ReasonContextFull && st.Generated < r.maxTokens
			if r.asJSON {
				return text.String(), writeJSON(r.out, map[string]any{
					"text": text.String(), "tokens": tokens, "finish_reason": e.Reason,
					"prompt_tokens": st.Prompt, "generated_tokens": st.Generated, "context_shifts": st.Shifts,
					"first_token_seconds":       st.FirstToken.Seconds(),
					"prefill_tokens_per_second": st.PrefillRate,
					"decode_tokens_per_second":  st.DecodeRate,
				})
			}
			fmt.Fprintln(r.out, e.Text)
			if !r.quiet {
				known := ""
				if st.Reused > 0 { // they took no time
					known = fmt.Sprintf(" (%d known before)", st.Reused)
				}
				fmt.Fprintf(r.log, "%s in%s at %.1f/s, first answer after %s, %s out at %.1f/s (%s)\n",
					counted(st.Prompt-st.Reused, "token"), known, st.PrefillRate, durationText(st.FirstToken), counted(st.Generated, "token"), st.DecodeRate, e.Reason)
			}
		}
	}
	return text.String(), nil
}

// samplingFlags are the flags of everything that draws tokens.
type samplingFlags struct {
	temperature, topP, minP, penalty float64
	topK                             int
	seed                             uint64
}

func (s *samplingFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	// The values do not matter as long as the flags are not given, and zeros
	// keep help from claiming other defaults.
	f.Float64Var(&s.temperature, "temperature", 0, "randomness; 0 takes the likeliest token (default: the package's)")
	f.IntVar(&s.topK, "top-k", 0, "draw from the `K` likeliest tokens; 0 is all (default: the package's)")
	f.Float64Var(&s.topP, "top-p", 0, "draw from the likeliest tokens that have this much probability together, 0 to 1 (default: the package's)")
	f.Float64Var(&s.minP, "min-p", 0, "drop tokens less likely than this share of the likeliest, 0 to 1 (default: the package's)")
	f.Float64Var(&s.penalty, "repetition-penalty", 0, "above 1 makes tokens that occurred less likely; 1 is none (default: the package's)")
	f.Uint64Var(&s.seed, "seed", 0, "seed of the random numbers: the same seed gives the same answer (default: a new one)")
}

// check looks at the values that were given.
func (s *samplingFlags) check() error {
	for _, f := range []struct {
		flag  string
		v, hi float64
		want  string
	}{
		{"temperature", s.temperature, 1e6, "0 or more"},
		{"top-k", float64(s.topK), 1 << 31, "0 or more"},
		{"top-p", s.topP, 1, "0 to 1"},
		{"min-p", s.minP, 1, "0 to 1"},
		{"repetition-penalty", s.penalty, 1e6, "more than 0"},
	} {
		if !(f.v >= 0 && f.v <= f.hi) {
			return fmt.Errorf("--%s %v: want %s", f.flag, f.v, f.want)
		}
	}
	return nil
}

// preferences holds the flags that were given.
func (s *samplingFlags) preferences(cmd *cobra.Command) (p anemone.Sampling) {
	given := func(name string) bool { return cmd.Flags().Changed(name) }
	if given("temperature") {
		p.Temperature = &s.temperature
	}
	if given("top-k") {
		p.TopK = &s.topK
	}
	if given("top-p") {
		p.TopP = &s.topP
	}
	if given("min-p") {
		p.MinP = &s.minP
	}
	if given("repetition-penalty") {
		p.RepetitionPenalty = &s.penalty
	}
	if given("seed") {
		p.Seed = &s.seed
	}
	return p
}

// numericsFlag reads the engine's arithmetic.
type numericsFlag engine.Numerics

func (n *numericsFlag) String() string {
	if engine.Numerics(*n) == engine.Float16 {
		return "fp16"
	}
	return "fp32"
}
func (n *numericsFlag) Type() string { return "fp32|fp16" }
func (n *numericsFlag) Set(s string) error {
	switch s {
	case "fp32":
		*n = numericsFlag(engine.Float32)
	case "fp16":
		*n = numericsFlag(engine.Float16)
	default:
		return fmt.Errorf("want fp32 or fp16")
	}
	return nil
}
