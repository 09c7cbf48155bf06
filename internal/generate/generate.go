// Package generate puts the pieces of text generation together: a package, a
// runner, its tokenizer and its chat template. Text and messages go in, text
// comes out.
package generate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"

	"anemone/coreml"
	"anemone/internal/anemll"
	"anemone/internal/checkpoint"
	"anemone/internal/engine"
	"anemone/internal/runner"
	"anemone/internal/session"
	"anemone/internal/tokenizer"
	"anemone/internal/tokenizer/chat"
)

// Options say how a package is run.
type Options struct {
	Numerics engine.Numerics // float32 unless set
	Workers  int             // cores; 0 is all
}

// Model is a package that is ready to talk.
type Model struct {
	Package   *anemll.Package
	Session   *session.Model
	Tokenizer *tokenizer.Tokenizer
	// Template is the chat template; nil if the package has none.
	Template *chat.Template
	// Stop are the tokens that end an answer.
	Stop []int32

	defaults []session.Preferences
}

// Loader loads models into the portable engine.
func (o Options) Loader() session.Loader {
	return func(m *coreml.Model) (runner.Model, error) {
		return engine.New(m, engine.Options{Numerics: o.Numerics, Workers: o.Workers})
	}
}

// said is an error in words of its own.
type said struct {
	text string
	err  error
}

func (e *said) Error() string { return e.text }
func (e *said) Unwrap() error { return e.err }

// Load opens the parts of a package and loads them into the portable engine.
func Load(dir string, o Options) (*anemll.Package, *session.Model, error) {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil, &said{fmt.Sprintf("package %s: no such folder", dir), err}
	}
	p, err := anemll.Open(dir)
	if err != nil {
		return nil, nil, err
	}
	m, err := session.Load(p, o.Loader())
	if err != nil {
		p.Close()
		return nil, nil, err
	}
	return p, m, nil
}

// Open loads a package with its tokenizer and chat template.
func Open(dir string, o Options) (_ *Model, err error) {
	p, s, err := Load(dir, o)
	if err != nil {
		return nil, err
	}
	m := &Model{Package: p, Session: s}
	defer func() {
		if err != nil {
			m.Close()
		}
	}()
	if m.Tokenizer, err = tokenizer.Open(p.Dir); errors.Is(err, fs.ErrNotExist) {
		return nil, &said{fmt.Sprintf("package %s has no tokenizer.json, without which a text has no tokens: put the checkpoint's into the folder", p.Dir), err}
	} else if err != nil {
		return nil, err
	}
	if m.Template, err = chat.Load(p.Dir); err != nil && !errors.Is(err, chat.ErrNoTemplate) {
		return nil, err
	}
	if m.Stop, err = session.StopTokens(p.Dir, m.Tokenizer.ID); err != nil {
		return nil, err
	}
	g, err := checkpoint.Generation(p.Dir)
	if err != nil {
		return nil, err
	}
	m.defaults = []session.Preferences{session.Recommended(p.Meta.RecommendedSampling), session.Generation(g)}
	return m, nil
}

// Close releases everything.
func (m *Model) Close() error { return errors.Join(m.Session.Close(), m.Package.Close()) }

// Request is one turn: a prompt as it is, or messages for the template.
type Request struct {
	Prompt   string // used if there are no messages
	Messages []chat.Message
	Chat     chat.Options // AddGenerationPrompt is set by Prepare

	Sampling  session.Preferences // over the package's own recommendations
	MaxTokens int                 // 0: as many as fit
	IgnoreEOS bool                // go on past stop tokens
	NoShift   bool                // end when the context is full
	// Trim drops the oldest tokens of a prompt that is longer than the
	// context. Without it such a prompt is an error.
	Trim bool
}

// PromptError says that a prompt is longer than the context.
type PromptError struct{ Tokens, Context int }

func (e *PromptError) Error() string {
	return fmt.Sprintf("the prompt has %d tokens, more than the package's context of %d positions", e.Tokens, e.Context)
}

// Unwrap returns [session.ErrContextFull].
func (e *PromptError) Unwrap() error { return session.ErrContextFull }

// Prepare returns the tokens of a request and the options of its generation.
func (m *Model) Prepare(r Request) (prompt []int32, o session.Options, err error) {
	if len(r.Messages) > 0 {
		if m.Template == nil {
			return nil, o, fmt.Errorf("%s has no chat template: give a raw prompt", m.Package.Dir)
		}
		r.Chat.AddGenerationPrompt = true
		text, err := m.Template.Render(r.Messages, r.Chat)
		if err != nil {
			return nil, o, err
		}
		prompt = m.Tokenizer.Encode(text, false) // the template has the bos
		o.Pinned = m.pinned(r, prompt)
		o.Turn = m.common(r, r.Messages, prompt)
	} else {
		prompt = m.Tokenizer.Encode(r.Prompt, true)
	}
	if len(prompt) == 0 {
		return nil, o, errors.New("the prompt is empty")
	}
	if n := m.Package.ContextLength; len(prompt) > n && !r.Trim {
		return nil, o, &PromptError{Tokens: len(prompt), Context: n}
	}
	if o.Sampling, err = m.sampling(r.Sampling); err != nil {
		return nil, o, err
	}
	o.MaxTokens, o.NoShift = r.MaxTokens, r.NoShift
	o.Decoder = m.Tokenizer.NewDecoder(true)
	if !r.IgnoreEOS {
		o.Stop = m.Stop
	}
	return prompt, o, nil
}

// sampling settles how tokens are drawn. A package that gives nothing but the
// best token is greedy whatever is recommended, unless the request insists.
func (m *Model) sampling(asked session.Preferences) (session.Sampling, error) {
	s, err := session.Resolve(append([]session.Preferences{asked}, m.defaults...)...)
	if err != nil || !m.Package.Argmax {
		return s, err
	}
	if s, err = session.Resolve(asked); err != nil {
		return s, err
	}
	if !s.Greedy() || s.RepetitionPenalty > 0 && s.RepetitionPenalty != 1 {
		return s, fmt.Errorf("the package's LM head gives only the best token, no probabilities (argmax_in_model), so that tokens cannot be drawn: leave temperature, top-k, top-p, min-p and the repetition penalty out: %w", errors.ErrUnsupported)
	}
	return s, nil
}

// Recommended returns how tokens are drawn if a request does not say: what the
// package's files recommend, even if its head does not allow it.
func (m *Model) Recommended() (session.Sampling, error) { return session.Resolve(m.defaults...) }

// pinned counts the tokens of the system prompt, which stay when the context
// is full: those that the prompt has in common with the system message alone.
func (m *Model) pinned(r Request, prompt []int32) int {
	if r.Messages[0].Role != "system" {
		return 0
	}
	return m.common(r, r.Messages[:1], prompt)
}

// common counts the tokens at the start of the prompt that messages give
// without what opens an answer: a later prompt begins with the same ones.
func (m *Model) common(r Request, messages []chat.Message, prompt []int32) int {
	c := r.Chat
	c.AddGenerationPrompt = false
	text, err := m.Template.Render(messages, c)
	if err != nil {
		return 0 // some templates want a user message
	}
	n := 0
	for i, t := range m.Tokenizer.Encode(text, false) {
		if i >= len(prompt) || prompt[i] != t {
			break
		}
		n++
	}
	return n
}

// Generate answers a request in a session.
func (m *Model) Generate(ctx context.Context, s *session.Session, r Request) iter.Seq2[session.Event, error] {
	prompt, o, err := m.Prepare(r)
	if err != nil {
		return func(yield func(session.Event, error) bool) { yield(session.Event{}, err) }
	}
	return s.Generate(ctx, prompt, o)
}
