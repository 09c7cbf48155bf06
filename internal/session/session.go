package session

import (
	"context"
	"errors"
	"fmt"

	"anemone/internal/runner"
)

// ErrContextFull is matched by errors about tokens for which the context has
// no positions left.
var ErrContextFull = errors.New("the context is full")

// ErrStale is matched by errors about a session whose state is unknown since
// a call failed or was cancelled, and that has to be Reset. Packages with
// plain KV caches never get there: what a failed call may have written lies
// behind the end of the context and is overwritten.
var ErrStale = errors.New("the state is lost since an earlier call failed; reset the session")

// Session is one context on a [Model]. It is not safe for concurrent use.
type Session struct {
	m       *Model
	states  []runner.State // distinct ones
	infer   *step
	prefill *step // nil if prompts go token by token
	logits  []float32

	tokens []int32 // fed so far
	fresh  bool    // logits are those after the last token
	stale  bool
	tap    Tap
}

// NewSession returns an empty context. It allocates everything that calls
// will need.
func (m *Model) NewSession() (*Session, error) {
	p := m.pkg
	s := &Session{m: m, logits: make([]float32, p.VocabSize), tokens: make([]int32, 0, min(p.ContextLength, 1<<16))}
	perChunk := make([]runner.State, len(m.chunks))
	if p.StateOwner >= 0 {
		st, err := m.chunks[p.StateOwner].NewState()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.Chunks[p.StateOwner].Name, err)
		}
		s.states = []runner.State{st}
		for i := range perChunk {
			perChunk[i] = st
		}
	} else {
		for i, c := range m.chunks {
			st, err := c.NewState()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p.Chunks[i].Name, err)
			}
			s.states = append(s.states, st)
			perChunk[i] = st
		}
	}
	var err error
	if s.infer, err = m.newStep(p.InferFunction, 1, perChunk, s.logits); err != nil {
		return nil, err
	}
	if p.PrefillFunction != "" && p.BatchSize > 1 {
		var logits []float32
		if p.LastTokenOutput {
			logits = s.logits
		}
		if s.prefill, err = m.newStep(p.PrefillFunction, p.BatchSize, perChunk, logits); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Pos returns the number of tokens in the context, which is the position of
// the next one.
func (s *Session) Pos() int { return len(s.tokens) }

// Context returns the number of positions of the context.
func (s *Session) Context() int { return s.m.pkg.ContextLength }

// Tokens returns the tokens in the context. The slice is valid until the next
// call and not to be changed.
func (s *Session) Tokens() []int32 { return s.tokens }

// States returns the states, one for all chunks unless each has its own, for
// reading what they hold.
func (s *Session) States() []runner.State { return s.states }

// Logits returns the logits after the last token if they are known, else nil.
// They are valid until the next call.
func (s *Session) Logits() []float32 {
	if !s.fresh {
		return nil
	}
	return s.logits
}

// A Tap sees the hidden states that leave a part: part 0 is the embeddings,
// part i the i-th chunk, whose output is the residual stream (final-normed
// behind the last). hidden holds rows x hidden size values for the positions
// from pos on; the last chunk's prefill gives one row whatever the batch.
// hidden is valid during the call only.
type Tap func(part, pos, rows int, hidden []float32)

// SetTap makes every following call show its hidden states to tap; nil ends
// it.
func (s *Session) SetTap(tap Tap) { s.tap = tap }

// Reset empties the context: every state is zero again.
func (s *Session) Reset() {
	for _, st := range s.states {
		st.Reset()
	}
	s.tokens = s.tokens[:0]
	s.fresh, s.stale = false, false
}

// Rewind drops the tokens from position pos on. Packages with recurrent
// states or block-shifting caches cannot go back; they are Reset and fed
// again.
func (s *Session) Rewind(pos int) error {
	switch {
	case pos == len(s.tokens):
		return nil
	case pos < 0 || pos > len(s.tokens):
		return fmt.Errorf("rewind to position %d of %d", pos, len(s.tokens))
	case !s.m.pkg.Meta.Rewindable():
		return errors.New("the package's states cannot be rewound; reset the session and feed the tokens to keep")
	}
	s.tokens = s.tokens[:pos]
	s.fresh = false
	return nil
}

// check reports whether tokens can be fed.
func (s *Session) check(tokens []int32) error {
	if s.stale {
		return ErrStale
	}
	if len(tokens) == 0 {
		return errors.New("no tokens to feed")
	}
	if err := s.checkIDs(tokens); err != nil {
		return err
	}
	if len(tokens) > s.Context()-s.Pos() {
		return fmt.Errorf("%d tokens at position %d: %w: it has %d positions", len(tokens), s.Pos(), ErrContextFull, s.Context())
	}
	return nil
}

func (s *Session) checkIDs(tokens []int32) error {
	// The head may have lost rows that the embeddings still have.
	vocab := max(s.m.pkg.VocabSize, s.m.pkg.Meta.VocabSize)
	for i, t := range tokens {
		if t < 0 || int(t) >= vocab {
			return fmt.Errorf("token %d is %d, wanted 0 to %d", i, t, vocab-1)
		}
	}
	return nil
}

// Feed appends tokens to the context and returns the logits after the last
// one, which are valid until the next call. If they do not fit, nothing is
// fed and the error matches [ErrContextFull]. After any other error, the
// context holds the tokens that [Session.Tokens] says.
func (s *Session) Feed(ctx context.Context, tokens []int32) ([]float32, error) {
	if err := s.check(tokens); err != nil {
		return nil, err
	}
	for len(tokens) > 0 {
		n, err := s.feedSome(ctx, tokens)
		if err != nil {
			return nil, err
		}
		tokens = tokens[n:]
	}
	return s.logits, nil
}

// feedSome makes one call: a batch or one token. If that is all of tokens,
// the logits are computed too.
func (s *Session) feedSome(ctx context.Context, tokens []int32) (n int, err error) {
	st := s.infer
	if s.fits(len(tokens)) && (len(tokens) > s.prefill.rows || s.prefill.head != nil) {
		st = s.prefill
	}
	if err := s.advance(ctx, st, tokens[:st.rows]); err != nil {
		return 0, err
	}
	if st.rows == len(tokens) {
		err = s.head(ctx, st)
	}
	return st.rows, err
}

// fits reports whether n tokens hold a batch that may be prefilled at the
// current position.
func (s *Session) fits(n int) bool {
	return s.prefill != nil && n >= s.prefill.rows && s.Pos()+s.prefill.rows <= s.Context()
}

// advance sends as many tokens as the step takes through embeddings and
// chunks.
func (s *Session) advance(ctx context.Context, st *step, tokens []int32) error {
	pos := len(s.tokens)
	copy(st.ids, tokens)
	for i := range st.position {
		st.position[i] = int32(pos + i)
	}
	st.current[0] = int32(pos)
	st.mask.move(pos)
	s.fresh = false
	for i := range st.stages {
		g := &st.stages[i]
		touched := i > 1 // a chunk has run, and its states have changed
		err := ctx.Err()
		if err == nil {
			err = g.run(ctx)
			touched = i > 0
		}
		if err != nil {
			s.stale = s.stale || touched && !s.m.pkg.Meta.Rewindable()
			return fmt.Errorf("position %d: %w", pos, err)
		}
		if s.tap != nil && g.hidden != nil {
			s.tap(i, pos, g.rows, g.hidden.Float)
		}
	}
	s.tokens = append(s.tokens, tokens...)
	return nil
}

// head computes the logits after the step's last token.
func (s *Session) head(ctx context.Context, st *step) error {
	if err := st.head.run(ctx); err != nil {
		return fmt.Errorf("position %d: %w", s.Pos()-1, err)
	}
	s.fresh = true
	return nil
}

// Mode is a way to send known tokens through a package.
type Mode int

const (
	// Contract feeds as the contract's call sequence does: full batches
	// through prefill, the rest through infer. Logits exist after every
	// infer, and after the last token of a batch if the package returns that
	// token's state.
	Contract Mode = iota
	// InferOnly feeds one token at a time: logits exist after every token.
	InferOnly
)

// Each feeds tokens and calls visit with the logits after every token for
// which the mode gives any; pos is that token's position. logits are valid
// during the call only. An error of visit ends it.
//
// Unlike Feed, Contract takes every batch that fits, also where it ends at the
// last token and gives no logits.
func (s *Session) Each(ctx context.Context, tokens []int32, mode Mode, visit func(pos int, logits []float32) error) error {
	if err := s.check(tokens); err != nil {
		return err
	}
	for len(tokens) > 0 {
		st := s.infer
		if mode == Contract && s.fits(len(tokens)) {
			st = s.prefill
		}
		if err := s.advance(ctx, st, tokens[:st.rows]); err != nil {
			return err
		}
		tokens = tokens[st.rows:]
		if st.head == nil {
			continue
		}
		if err := s.head(ctx, st); err != nil {
			return err
		}
		if err := visit(s.Pos()-1, s.logits); err != nil {
			return err
		}
	}
	return nil
}
