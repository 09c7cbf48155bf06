package check

import (
	"context"
	"errors"
	"fmt"

	"anemone/internal/arch"
	"anemone/internal/arch/dense"
)

// DefaultTokens is the number of tokens that a reference writes unless
// another is asked for.
const DefaultTokens = 64

// Target knows a sequence of tokens and what a package's logits after them
// are held to. There are four: [Greedy], [Text], [Golden] and [Tokens].
type Target interface {
	// Describe names the target for people.
	Describe() string

	// plan decides how long the sequence is.
	plan(limits) (sequence, error)
	// walk shows the sequence to w, token by token, in order.
	walk(context.Context, sequence, *walker) error
}

// limits are what a sequence has to respect.
type limits struct {
	context, batch, vocab int
	hidden                int // 0 if the package does not show its hidden states
	layers                int // 0 if the package does not say
	parts                 int // of the vocabulary, if the package gives the best token of each; else 0
	tokens                int // asked for; 0 leaves it to the target
}

// sequence is what a target is going to show.
type sequence struct {
	prompt int // tokens that are given
	total  int // tokens with those that the reference adds
	notes  []string
}

// Source is a checkpoint's own float32 computation.
type Source struct {
	Name   string // of the checkpoint, for people
	Ref    arch.Reference
	Hidden int // width of the residual stream
	Layers int
	// StreamScale is what the residual stream of a package is of Ref's; 0
	// means 1.
	StreamScale float64
}

// NewSource returns the reference of a model, with no tokens fed. The
// checkpoint must stay open while it is used.
func NewSource(name string, m arch.Model) (*Source, error) {
	ref, err := m.Reference()
	if err != nil {
		return nil, err
	}
	s := &Source{Name: name, Ref: ref, Hidden: m.Info().Hidden, Layers: m.Info().Layers}
	if scaled, ok := m.(arch.Scaled); ok {
		s.StreamScale = scaled.StreamScale()
	}
	return s, nil
}

// sourceOf returns the reference of a target, nil if it has none.
func sourceOf(t Target) *Source {
	switch t := t.(type) {
	case *Greedy:
		return t.Source
	case *Text:
		return t.Source
	}
	return nil
}

func (s *Source) fits(l limits) error {
	if v := s.Ref.VocabSize(); v != l.vocab {
		return fmt.Errorf("the checkpoint %s has %d tokens in its vocabulary, the package has logits for %d: it was made of another one", s.Name, v, l.vocab)
	}
	if l.hidden != 0 && s.Hidden != l.hidden {
		return fmt.Errorf("the checkpoint %s is %d wide, the package %d: it was made of another one", s.Name, s.Hidden, l.hidden)
	}
	if l.layers != 0 && s.Layers != l.layers {
		return fmt.Errorf("the checkpoint %s has %d layers, the package says that it has %d (num_layers in meta.yaml): it was made of another one", s.Name, s.Layers, l.layers)
	}
	if s.Ref.Pos() != 0 {
		return errors.New("the reference has been used")
	}
	return nil
}

// observe makes w see the hidden states of the reference.
func (s *Source) observe(w *walker) {
	s.Ref.Observe(arch.Observer{Hidden: func(layer int, x dense.Matrix) { w.hidden(layer, s.Layers, x) }})
}

// Greedy is a reference that writes on a prompt, taking the likeliest token
// each time.
type Greedy struct {
	*Source
	Prompt []int32
}

// Describe implements [Target].
func (g *Greedy) Describe() string {
	return fmt.Sprintf("%s (float32 reference, greedy after %d tokens)", g.Name, len(g.Prompt))
}

func (g *Greedy) plan(l limits) (sequence, error) {
	s := sequence{prompt: len(g.Prompt)}
	if err := g.fits(l); err != nil {
		return s, err
	}
	p := len(g.Prompt)
	if p == 0 {
		return s, errors.New("the prompt has no tokens")
	}
	room := l.context - p
	if room < 0 {
		return s, fmt.Errorf("the prompt has %d tokens, the context only %d positions: take a shorter prompt, or convert with a longer context", p, l.context)
	}
	n := l.tokens
	switch {
	case n > room:
		return s, fmt.Errorf("a prompt of %d tokens and %d more do not fit the context of %d positions: ask for at most %d tokens", p, n, l.context, room)
	case n == 0:
		// Enough that a batch goes through prefill and one token behind it
		// through infer.
		n = max(DefaultTokens, l.batch+1-p)
		if n > room {
			n = room
			s.notes = append(s.notes, fmt.Sprintf("the context of %d positions left room for %d tokens behind the prompt's %d", l.context, n, p))
		}
	}
	s.total = p + n
	return s, nil
}

func (g *Greedy) walk(ctx context.Context, s sequence, w *walker) error {
	g.observe(w)
	defer g.Ref.Observe(arch.Observer{})
	c := arch.Continuation{Ref: w.referenceOf(g.Source), Visit: w.visit}
	if w.pkg.Rewindable() {
		c.Draft = w.draft
	}
	_, err := c.Greedy(ctx, g.Prompt, s.total-s.prompt)
	return err
}

// Text is a reference that reads a given sequence.
type Text struct {
	*Source
	IDs []int32
}

// Describe implements [Target].
func (t *Text) Describe() string { return fmt.Sprintf("%s (float32 reference, given text)", t.Name) }

func (t *Text) plan(l limits) (sequence, error) {
	s, err := planGiven(t.IDs, l)
	if err != nil {
		return s, err
	}
	return s, t.fits(l)
}

func (t *Text) walk(ctx context.Context, s sequence, w *walker) error {
	t.observe(w)
	defer t.Ref.Observe(arch.Observer{})
	ids, base := t.IDs[:s.total], t.Ref.Pos()
	// All at once: each weight is read once.
	return w.referenceOf(t.Source).Forward(ctx, ids, nil, func(i int, logits []float32) error {
		return w.visit(base+i, ids[i], logits)
	})
}

// Tokens is a sequence without logits: the package is only held to itself,
// prefill against infer. There must be enough of them for a batch.
type Tokens []int32

// Describe implements [Target].
func (t Tokens) Describe() string { return "itself" }

func (t Tokens) plan(l limits) (sequence, error) { return planGiven(t, l) }

func (t Tokens) walk(ctx context.Context, s sequence, w *walker) error {
	for i, id := range t[:s.total] {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := w.visit(i, id, nil); err != nil {
			return err
		}
	}
	return nil
}

// planGiven takes as much of a given sequence as the context holds.
func planGiven(ids []int32, l limits) (sequence, error) {
	if len(ids) == 0 {
		return sequence{}, errors.New("the text has no tokens")
	}
	n := len(ids)
	if l.tokens > 0 {
		n = min(n, l.tokens)
	}
	s := sequence{prompt: n, total: n}
	if n > l.context {
		s.prompt, s.total = l.context, l.context
		s.notes = append(s.notes, fmt.Sprintf("the text has %d tokens, the context %d positions: only the first %d tokens were compared", len(ids), l.context, l.context))
	}
	return s, nil
}
