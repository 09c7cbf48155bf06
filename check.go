package anemone

import (
	"context"

	"anemone/internal/check"
	"anemone/internal/tokenizer/chat"
)

// CheckOptions say what a package is held to, and how. One of Checkpoint and
// Golden is given.
type CheckOptions struct {
	// Checkpoint is the model folder or GGUF file that the package was made of.
	// Its own float32 computation is what the package is compared with.
	Checkpoint string
	// Golden is a safetensors file with tokens and logits made elsewhere, and
	// with the positions that they belong to if not all have logits.
	Golden string

	// Prompt is the user's message that the checkpoint answers; empty is one
	// that is built in.
	Prompt string
	// Text, if not empty, is read by both, in place of an answer.
	Text string
	// Template writes the message as the model wants it; nil is the package's
	// chat template.
	Template func(message string) (string, error)

	// Tokens is how many the checkpoint writes behind the prompt, or how many
	// of a text or golden file are compared; 0 is 64, or all.
	Tokens int
	// Layers compares the hidden states behind the layers as well.
	Layers bool
	// Limits is what the figures must reach; nil takes those that go with the
	// package's narrowest weights.
	Limits *CheckLimits
	// Progress, if not nil, is called now and then.
	Progress func(CheckProgress)
}

// CheckReport is the outcome of a check. Passed tells whether the figures keep
// the Limits, Failures which of them do not, one sentence each, and Notes what
// else there is to know. Contract compares the logits of the contract's
// sequence of calls (prefill, then infer) with the target's, Infer those of
// infer alone, Generated the part of these behind the prompt; Prefill compares
// the package's two ways with each other. Each has Positions, the Cosine of the
// logits (Min, Mean), the KL divergence in nats (Mean, P99), and Top1, Top5 and
// Overlap: shares from 0 to 1. Layers has what was asked about hidden states,
// Sequence the tokens that were compared.
type CheckReport = check.Report

// CheckLimits are the figures that a package must reach: MinCosine at any
// position, MinMeanCosine and MaxKL (in nats) on average, and MinTop1, the
// share of positions where both have the same best token.
type CheckLimits = check.Limits

// CheckProgress says how far a check is: Done of Total tokens, the time Elapsed
// and, once it can be told, what is Left. While a checkpoint computes, it has
// done Layer of Layers.
type CheckProgress = check.Progress

// Check holds the package to its checkpoint's float32 computation, or to
// logits made elsewhere. An error means that the comparison could not be
// made; a package that is not good enough has a report that has not Passed.
func (p *Package) Check(ctx context.Context, o CheckOptions) (*CheckReport, error) {
	c := check.PackageOptions{Checkpoint: o.Checkpoint, Golden: o.Golden, Prompt: o.Prompt, Text: o.Text, Template: o.Template}
	c.Tokens, c.Layers, c.Limits, c.Progress, c.Load = o.Tokens, o.Layers, o.Limits, o.Progress, p.load
	if c.Template == nil && p.m.Template != nil && o.Golden == "" {
		c.Template = func(message string) (string, error) {
			return p.m.Template.Render([]chat.Message{{Role: "user", Content: message}}, chat.Options{AddGenerationPrompt: true})
		}
	}
	return check.Package(ctx, registry, p.m.Session, c)
}
