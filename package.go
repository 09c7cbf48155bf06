package anemone

import (
	"context"
	"errors"
	"iter"

	"anemone/internal/engine"
	"anemone/internal/generate"
	"anemone/internal/session"
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
type Package struct {
	m    *generate.Model
	load session.Loader
}

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
	return &Package{m, g.Loader()}, nil
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

// Recurrent reports whether the model has states that every token changes for
// good. Where the context of such a package is full, dropping the oldest tokens
// means processing all that are kept once more.
func (p *Package) Recurrent() bool { return p.m.Package.Meta.RecurrentState }

// GreedyOnly reports whether the LM head gives only the best token, and no
// probabilities: then requests that ask for tokens to be drawn fail.
func (p *Package) GreedyOnly() bool { return p.m.Package.Argmax }

// Recommended returns how the makers of the model want tokens to be drawn, as
// the package's files say it; without a word about it the temperature is 0.
// Requests need not repeat it.
func (p *Package) Recommended() (Sampling, error) {
	s, err := p.m.Recommended()
	if err != nil {
		return Sampling{}, err
	}
	return Sampling{Temperature: &s.Temperature, TopK: &s.TopK, TopP: &s.TopP, MinP: &s.MinP, RepetitionPenalty: &s.RepetitionPenalty}, nil
}

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

// Generate answers a request. What the session has seen already of the
// request's tokens is not processed again. The sequence ends with an EventEnd
// or with an error.
func (s *Session) Generate(ctx context.Context, r Request) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for e, err := range s.p.m.Generate(ctx, s.s, r.internal()) {
			if !yield(event(e), err) {
				return
			}
		}
	}
}

// Feed appends tokens to the context and returns the logits after the last
// one. They are valid until the next call.
func (s *Session) Feed(ctx context.Context, tokens []int32) ([]float32, error) {
	return s.s.Feed(ctx, tokens)
}

// Reset empties the context.
func (s *Session) Reset() { s.s.Reset() }

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

// ErrContextFull is matched by errors about prompts that are longer than the
// context.
var ErrContextFull = session.ErrContextFull

// ErrUnsupported is matched by errors about packages and checkpoints of kinds
// that are known but not supported.
var ErrUnsupported = errors.ErrUnsupported
