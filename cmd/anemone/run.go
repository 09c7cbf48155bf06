package main

import (
	"errors"
	"fmt"
	"io"

	"strings"

	"github.com/spf13/cobra"

	"anemone"
	"anemone/internal/engine"
)

func newRun() *cobra.Command {
	var (
		system    string
		raw       bool
		think     bool
		maxTokens int
		noShift   bool
		ignoreEOS bool
		numerics  = numericsFlag(engine.Float32)
		jobs      int
		quiet     bool
		asJSON    bool
		s         samplingFlags
	)
	cmd := &cobra.Command{
		Use:   "run PACKAGE [PROMPT...]",
		Short: "Answer a prompt with a package",
		Long: `Run answers a prompt with a package, on any system: the package's own chat
template, stop tokens and recommended sampling apply unless flags say otherwise.
Without a PROMPT it is read from standard input. The answer goes to standard
output as it is made, figures to standard error.`,
		Example: `  anemone run Qwen3-0.6B-ane "Why is the sky blue?"
  anemone run Qwen3-0.6B-ane --think=false --temperature 0 < question.txt
  anemone run Qwen3-0.6B-ane --raw "Once upon a time" --max-tokens 100 --seed 7`,
		Args: args(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, a []string) error {
			prompt := strings.Join(a[1:], " ")
			if len(a) == 1 {
				b, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), 16<<20))
				if err != nil {
					return err
				}
				prompt = strings.TrimRight(string(b), "\r\n")
			}
			if prompt == "" {
				return &statusError{exitUsage, errors.New("the prompt is empty")}
			}
			pkg, err := anemone.Open(a[0], anemone.OpenOptions{Half: engine.Numerics(numerics) == engine.Float16, Workers: jobs})
			if err != nil {
				return err
			}
			defer pkg.Close()
			if !quiet {
				for _, p := range pkg.Problems() {
					fmt.Fprintln(cmd.ErrOrStderr(), "note:", p)
				}
			}
			r := anemone.Request{MaxTokens: maxTokens, NoShift: noShift, IgnoreEOS: ignoreEOS, Sampling: s.preferences(cmd)}
			if raw || !pkg.HasTemplate() {
				if !raw {
					fmt.Fprintln(cmd.ErrOrStderr(), "note: the package has no chat template: the prompt is used as it is")
				}
				r.Prompt = prompt
			} else {
				if system != "" {
					r.Messages = append(r.Messages, anemone.Message{Role: "system", Content: system})
				}
				r.Messages = append(r.Messages, anemone.Message{Role: "user", Content: prompt})
				if cmd.Flags().Changed("think") {
					r.Chat.EnableThinking = &think
				}
			}
			sess, err := pkg.NewSession()
			if err != nil {
				return err
			}
			return answer(cmd, sess, r, quiet, asJSON)
		},
	}
	f := cmd.Flags()
	f.StringVar(&system, "system", "", "system prompt")
	f.BoolVar(&raw, "raw", false, "use the prompt as it is, without the chat template")
	f.BoolVar(&think, "think", true, "let a model that can think do so (enable_thinking of the template)")
	f.IntVarP(&maxTokens, "max-tokens", "n", 0, "end after so many tokens (default: as many as fit)")
	f.BoolVar(&noShift, "no-shift", false, "end when the context is full, instead of dropping the oldest tokens")
	f.BoolVar(&ignoreEOS, "ignore-eos", false, "go on past stop tokens")
	f.Var(&numerics, "numerics", "arithmetic: fp32, or fp16 to round every result as a GPU stores it")
	f.IntVar(&jobs, "jobs", 0, "cores to use (default all)")
	f.BoolVarP(&quiet, "quiet", "q", false, "print nothing but the answer")
	f.BoolVar(&asJSON, "json", false, "print the answer and the figures as JSON")
	s.register(cmd)
	return cmd
}

// answer streams one generation.
func answer(cmd *cobra.Command, sess *anemone.Session, r anemone.Request, quiet, asJSON bool) error {
	out, log := cmd.OutOrStdout(), cmd.ErrOrStderr()
	bar := newProgress(log, quiet || asJSON)
	defer bar.done()
	var text strings.Builder
	var tokens []int32
	for e, err := range sess.Generate(cmd.Context(), r) {
		if err != nil {
			return err
		}
		switch e.Kind {
		case anemone.EventPrefill:
			bar.update(func() string { return fmt.Sprintf("reading the prompt: %d of %d tokens", e.Done, e.Total) })
		case anemone.EventShift:
			bar.done()
			if !quiet {
				fmt.Fprintf(log, "\n[context full: the oldest %d tokens were dropped, %d are kept]\n", e.Dropped, e.Kept)
			}
		case anemone.EventToken:
			bar.done()
			tokens = append(tokens, e.Token)
			text.WriteString(e.Text)
			if !asJSON {
				fmt.Fprint(out, e.Text)
			}
		case anemone.EventEnd:
			bar.done()
			text.WriteString(e.Text)
			st := e.Stats
			if asJSON {
				return writeJSON(out, map[string]any{
					"text": text.String(), "tokens": tokens, "finish_reason": e.Reason.String(),
					"prompt_tokens": st.Prompt, "generated_tokens": st.Generated, "context_shifts": st.Shifts,
					"first_token_seconds":       st.FirstToken.Seconds(),
					"prefill_tokens_per_second": st.PrefillRate(),
					"decode_tokens_per_second":  st.DecodeRate(),
				})
			}
			fmt.Fprintln(out, e.Text)
			if !quiet {
				fmt.Fprintf(log, "%d tokens in at %.1f/s, first answer after %s, %d tokens out at %.1f/s (%s)\n",
					st.Prompt, st.PrefillRate(), durationText(st.FirstToken), st.Generated, st.DecodeRate(), e.Reason)
			}
		}
	}
	return nil
}

// samplingFlags are the flags of everything that draws tokens.
type samplingFlags struct {
	temperature, topP, minP, penalty float64
	topK                             int
	seed                             uint64
}

func (s *samplingFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.Float64Var(&s.temperature, "temperature", 0, "randomness; 0 takes the likeliest token (default: the package's)")
	f.IntVar(&s.topK, "top-k", 0, "draw from the K likeliest tokens; 0 is all (default: the package's)")
	f.Float64Var(&s.topP, "top-p", 1, "draw from the likeliest tokens that have this much probability together (default: the package's)")
	f.Float64Var(&s.minP, "min-p", 0, "drop tokens less likely than this share of the likeliest (default: the package's)")
	f.Float64Var(&s.penalty, "repetition-penalty", 1, "above 1 makes tokens that occurred less likely (default: the package's)")
	f.Uint64Var(&s.seed, "seed", 0, "seed of the random numbers: the same seed gives the same answer (default: a new one)")
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
