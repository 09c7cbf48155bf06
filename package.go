package anemone

import (
	"context"
	"errors"
	"iter"

	"anemone/internal/check"
	"anemone/internal/engine"
	"anemone/internal/generate"
	"anemone/internal/session"
	"anemone/internal/tokenizer/chat"
)

// OpenOptions say how a package is run.
type OpenOptions struct {
	// Half rounds every result to fp16, to show what a GPU would give. The
	// default is float32.
	Half bool
	// Workers is the number of cores used; 0 is all. It does not change any
	// result.
	Workers int
}

// Package is a package that is ready to run: models, tokenizer, chat
// template.
type Package struct{ m *generate.Model }

// Open loads the package in a folder: one that [Convert] made, or one of
// ANEMLL's own.
func Open(dir string, o OpenOptions) (*Package, error) {
	g := generate.Options{Workers: o.Workers}
	if o.Half {
		g.Numerics = engine.Float16
	}
	m, err := generate.Open(dir, g)
	if err != nil {
		return nil, err
	}
	return &Package{m}, nil
}

// Close releases the package. Its sessions cannot be used after it.
func (p *Package) Close() error { return p.m.Close() }

// Problems lists what is odd about the package but does not keep it from
// running, such as a meta.yaml that disagrees with the models.
func (p *Package) Problems() []string { return p.m.Package.Problems }

// ContextLength returns the number of positions of a session.
func (p *Package) ContextLength() int { return p.m.Package.ContextLength }

// HasTemplate reports whether the package has a chat template. Without one,
// requests hold a Prompt.
func (p *Package) HasTemplate() bool { return p.m.Template != nil }

// Encode returns the tokens of a text, as a prompt without template has them.
func (p *Package) Encode(text string) []int32 { return p.m.Tokenizer.Encode(text, true) }

// Decode returns the text of tokens, leaving out special ones.
func (p *Package) Decode(tokens []int32) string { return p.m.Tokenizer.Decode(tokens, true) }

// Session is one context of a package: the tokens it has seen, and the
// states that remember them. It is not safe for concurrent use; several
// sessions of one package are.
type Session struct {
	p *Package
	s *session.Session
}

// NewSession returns an empty context.
func (p *Package) NewSession() (*Session, error) {
	s, err := p.m.Session.NewSession()
	if err != nil {
		return nil, err
	}
	return &Session{p, s}, nil
}

// Requests, and what they are made of.
type (
	// Request is one turn: messages for the chat template, or a prompt.
	Request = generate.Request
	// Message is one message of a conversation.
	Message = chat.Message
	// ChatOptions are options of the chat template.
	ChatOptions = chat.Options
	// Sampling are preferences about how tokens are drawn. What is left nil
	// is as the package recommends.
	Sampling = session.Preferences
)

// Event is one thing that happens during a generation: see [EventKind].
type Event = session.Event

// EventKind tells what an event is about.
type EventKind = session.EventKind

// Kinds of events.
const (
	EventPrefill = session.Prefill // Done of Total tokens of the prompt were read
	EventToken   = session.Token   // Token was drawn; Text is now certain
	EventShift   = session.Shift   // the context was full: Dropped tokens went, Kept stay
	EventEnd     = session.End     // the Reason, and Stats
)

// Generate answers a request. What the session has seen already of the
// request's tokens is not processed again. The sequence ends with an EventEnd
// or with an error.
func (s *Session) Generate(ctx context.Context, r Request) iter.Seq2[Event, error] {
	return s.p.m.Generate(ctx, s.s, r)
}

// Feed appends tokens to the context and returns the logits after the last
// one. They are valid until the next call.
func (s *Session) Feed(ctx context.Context, tokens []int32) ([]float32, error) {
	return s.s.Feed(ctx, tokens)
}

// Reset empties the context.
func (s *Session) Reset() { s.s.Reset() }

// CheckOptions say what a package is held to, and how.
type CheckOptions = check.PackageOptions

// CheckReport is the outcome of a check.
type CheckReport = check.Report

// CheckLimits are the figures that a package must reach.
type CheckLimits = check.Limits

// Check holds the package to its checkpoint's float32 computation, or to
// logits made elsewhere. An error means that the comparison could not be
// made; a package that is not good enough has a report that has not Passed.
func (p *Package) Check(ctx context.Context, o CheckOptions) (*CheckReport, error) {
	if o.Template == nil && p.m.Template != nil && o.Golden == "" {
		o.Template = func(message string) (string, error) {
			return p.m.Template.Render([]chat.Message{{Role: "user", Content: message}}, chat.Options{AddGenerationPrompt: true})
		}
	}
	return check.Package(ctx, registry, p.m.Session, o)
}

// Text collects the text of a generation.
func Text(events iter.Seq2[Event, error]) (string, error) {
	text := ""
	for e, err := range events {
		if err != nil {
			return text, err
		}
		text += e.Text
	}
	return text, nil
}

// ErrUnsupported is matched by errors about packages and checkpoints of kinds
// that are known but not supported.
var ErrUnsupported = errors.ErrUnsupported
