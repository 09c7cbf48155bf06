package session

import (
	"context"
	"errors"
	"fmt"
	"slices"

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
	m        *Model
	perChunk []runner.State
	states   []runner.State // distinct ones
	infer    *step
	rotate   *step // infer behind the window; nil if no cache is rotated
	prefill  *step // nil if prompts go token by token
	// batches are the steps for several tokens, prefill among them, the one for
	// the most tokens first.
	batches []*step
	// prefillRotate is made when it is needed first, which is in
	// AnemllSequence only.
	prefillRotate *step
	scores        *scores

	tokens  []int32 // fed so far
	fresh   bool    // scores are those after the last token
	stale   bool
	rotated bool // a cache was shifted: positions are where they are
	// skewed says that the states are not what tokens gives: a rotated cache got
	// a token twice, as ANEMLL's runtimes do it.
	skewed bool
	saved  snapshots
	tap    Tap
}

// NewSession returns an empty context. It allocates everything that calls
// will need.
func (m *Model) NewSession() (*Session, error) {
	p := m.pkg
	s := &Session{m: m, scores: newScores(&p.Layout), tokens: make([]int32, 0, min(p.ContextLength, 1<<16)), perChunk: make([]runner.State, len(p.Chunks))}
	s.saved.limits = DefaultSnapshots()
	newState := func(chunk int) (runner.State, error) {
		c := p.Chunks[chunk]
		st, err := m.runners[c].NewState()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		s.states = append(s.states, st)
		return st, nil
	}
	if p.StateOwner >= 0 {
		st, err := newState(p.StateOwner)
		if err != nil {
			return nil, err
		}
		for i := range s.perChunk {
			s.perChunk[i] = st
		}
	} else {
		for i := range p.Chunks {
			st, err := newState(i)
			if err != nil {
				return nil, err
			}
			s.perChunk[i] = st
		}
	}
	var err error
	if s.infer, err = m.newStep(p.InferFunction, 1, s.perChunk, s.scores); err != nil {
		return nil, err
	}
	if p.Window > 0 {
		if s.rotate, err = m.newStep(p.InferRotateFunction, 1, s.perChunk, s.scores); err != nil {
			return nil, err
		}
	}
	var to *scores
	if p.LastTokenOutput {
		to = s.scores
	}
	for _, f := range p.Prefills() {
		st, err := m.newStep(f.Function, f.Tokens, s.perChunk, to)
		if err != nil {
			return nil, err
		}
		s.batches = append(s.batches, st)
	}
	if len(s.batches) > 0 {
		s.prefill = s.batches[0]
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
// They are valid until the next call. A package with argmax_in_model has none;
// see [Session.Argmax].
func (s *Session) Logits() []float32 {
	if !s.fresh {
		return nil
	}
	return s.scores.logits
}

// Argmax returns what a package with argmax_in_model says after the last
// token in place of logits, if it is known, else nil: for each part of the
// vocabulary the best token, counted from the part's first one, and its logit.
// They are valid until the next call.
func (s *Session) Argmax() (index []int32, value []float32) {
	if !s.fresh {
		return nil, nil
	}
	return s.scores.index, s.scores.value
}

// Best returns the likeliest token to come after the last one, the one with
// the lowest id of those with equal logits. It needs no logits. Scores of which
// none is best are an error that matches [ErrLogits].
func (s *Session) Best() (int32, error) {
	if !s.fresh {
		return 0, errors.New("no scores are known after the last token: feed it")
	}
	return s.scores.best(s.m.pkg.LogitsWidths)
}

// best returns the token with the largest logit. widths are those of the parts
// of the vocabulary.
func (s *scores) best(widths []int) (int32, error) {
	if s.index == nil {
		best, err := maxLogit(s.logits)
		if err != nil {
			return 0, err
		}
		return int32(slices.Index(s.logits, best)), nil
	}
	// Ties go to the first part, as its tokens have the lower ids.
	best, err := maxLogit(s.value)
	if err != nil {
		return 0, err
	}
	at := 0
	for i, v := range s.value {
		if v == best {
			if k := int(s.index[i]); k < 0 || k >= widths[i] {
				return 0, fmt.Errorf("%w: the best token of part %d of the vocabulary is number %d of %d", ErrLogits, i, k, widths[i])
			}
			return int32(at) + s.index[i], nil
		}
		at += widths[i]
	}
	return 0, ErrLogits // not reached: best is one of them
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

// Reset empties the context: every state is zero again. Snapshots remain.
func (s *Session) Reset() {
	for _, st := range s.states {
		st.Reset()
	}
	s.tokens = s.tokens[:0]
	s.fresh, s.stale, s.rotated, s.skewed = false, false, false, false
}

// CanRewind reports whether [Session.Rewind] can go back to a position.
func (s *Session) CanRewind(pos int) bool {
	return s.goesBack(pos) || pos > 0 && pos < len(s.tokens) && s.saved.at(s.tokens[:pos]) != nil
}

// goesBack reports whether a position can be gone back to without a snapshot.
func (s *Session) goesBack(pos int) bool {
	meta := s.m.pkg.Meta
	switch {
	case pos < 0 || pos > len(s.tokens):
		return false
	case pos == len(s.tokens):
		return true
	case meta.Rewindable():
		// A cache that was rotated has lost its oldest rows. From position 0 on
		// all rows are written again before any token sees them.
		return !s.rotated || pos == 0
	}
	// A cache that shifts within the graph is taken for empty at position 0.
	return pos == 0 && !meta.RecurrentState && !s.stale
}

// Rewind drops the tokens from position pos on. Recurrent states and caches
// that shift can go back only where there is a [Session.Snapshot] of exactly
// the tokens to keep, and caches that shift to position 0; elsewhere such a
// session is Reset and fed again.
func (s *Session) Rewind(pos int) error {
	switch {
	case pos == len(s.tokens):
		return nil
	case pos < 0 || pos > len(s.tokens):
		return fmt.Errorf("rewind to position %d of %d", pos, len(s.tokens))
	case s.goesBack(pos):
		s.cut(pos)
		return nil
	}
	if x := s.saved.at(s.tokens[:pos]); pos > 0 && x != nil {
		return s.restore(x)
	}
	return errors.New("the package's states cannot be rewound to where there is no snapshot; reset the session and feed the tokens to keep")
}

// cut drops tokens, to a position that goesBack allows.
func (s *Session) cut(pos int) {
	if pos == len(s.tokens) {
		return
	}
	s.tokens = s.tokens[:pos]
	s.fresh = false
	s.rotated = s.rotated && pos > 0
	s.skewed = s.skewed && pos > 0
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
// one, which are valid until the next call; a package with argmax_in_model has
// none, and [Session.Best] tells what comes next. If the tokens do not fit,
// nothing is fed and the error matches [ErrContextFull]. After any other error,
// the context holds the tokens that [Session.Tokens] says.
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
	return s.scores.logits, nil
}

// feedSome makes one call: a batch or one token. If that is all of tokens,
// the scores are computed too.
func (s *Session) feedSome(ctx context.Context, tokens []int32) (n int, err error) {
	st := s.next(len(tokens))
	from := s.Pos()
	if err := s.advance(ctx, st, tokens[:st.rows]); err != nil {
		return 0, err
	}
	if st.rows == len(tokens) {
		err = s.head(ctx, st)
	}
	if e := s.saved.limits.Every; e > 0 && st.rows > 1 && from/e != s.Pos()/e {
		s.keep()
	}
	return st.rows, err
}

// next returns the step for the next of n tokens to feed, after which scores
// are wanted.
func (s *Session) next(n int) *step {
	for _, st := range s.batches {
		if s.fits(st, n) && (n > st.rows || st.scores) {
			return st
		}
	}
	return s.single()
}

// single returns the step for one token at the current position.
func (s *Session) single() *step {
	if s.rotate != nil && s.Pos() >= s.m.pkg.Window {
		return s.rotate
	}
	return s.infer
}

// fits reports whether n tokens hold a batch of a step that may be prefilled
// at the current position.
func (s *Session) fits(st *step, n int) bool {
	return n >= st.rows && s.Pos()+st.rows <= s.m.pkg.PrefillLimit
}

// most returns the step of the mode Contract for the next of n tokens.
func (s *Session) most(n int) *step {
	for _, st := range s.batches {
		if s.fits(st, n) {
			return st
		}
	}
	return s.single()
}

// NextCall returns how many of n > 0 tokens the next call of the mode Contract
// takes: a batch, what a function for fewer tokens takes, or one.
func (s *Session) NextCall(n int) int { return s.most(n).rows }

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
	if st.update != nil {
		st.update.move(pos)
	}
	s.fresh = false
	touched := false // a state may have changed
	for i := range st.stages {
		g := &st.stages[i]
		err := ctx.Err()
		if err == nil {
			err = g.run(ctx)
			touched = touched || g.decoder
		}
		if err != nil {
			s.stale = s.stale || touched && (st.rotates || !s.m.pkg.Meta.Rewindable())
			return fmt.Errorf("position %d: %w", pos, err)
		}
		if s.tap != nil && g.hidden != nil {
			s.tap(i, pos, g.rows, g.hidden.Float)
		}
	}
	s.rotated = s.rotated || st.rotates
	s.tokens = append(s.tokens, tokens...)
	return nil
}

// head computes the scores after the step's last token.
func (s *Session) head(ctx context.Context, st *step) error {
	if st.head != nil {
		if err := st.head.run(ctx); err != nil {
			return fmt.Errorf("position %d: %w", s.Pos()-1, err)
		}
	}
	if st.all != nil {
		st.takeLast(s.scores)
	}
	s.fresh = true
	return nil
}

// Mode is a way to send known tokens through a package.
type Mode int

const (
	// Contract feeds as the contract's call sequence does: full batches
	// through prefill, the rest through the package's functions for fewer tokens,
	// if it has any, and through infer. Logits exist after every infer, and after
	// the last token of a batch if the package returns that token's state.
	Contract Mode = iota
	// InferOnly feeds one token at a time: logits exist after every token.
	InferOnly
	// AnemllSequence feeds tokens as ANEMLL's runtimes feed a prompt: full
	// batches through prefill, behind the window of rotated caches through
	// prefill_rotate, the rest one by one; then the last token a second time,
	// after which alone there are logits. With plain caches that gives what
	// Contract gives. Rotated caches are shifted once too often, and tokens see
	// later ones of their batch; this mode is there to show by how much that
	// matters. What is fed afterwards finds the states as ANEMLL has them.
	AnemllSequence
)

// Each feeds tokens and calls visit with the logits after every token for
// which the mode gives any; pos is that token's position. logits are valid
// during the call only. A package with argmax_in_model has none (nil);
// [Session.Argmax] and [Session.Best] tell in visit what it has. An error of
// visit ends it.
//
// Unlike Feed, Contract takes every batch that fits, also where it ends at the
// last token and gives no logits.
func (s *Session) Each(ctx context.Context, tokens []int32, mode Mode, visit func(pos int, logits []float32) error) error {
	if err := s.check(tokens); err != nil {
		return err
	}
	if mode == AnemllSequence {
		if !s.m.pkg.Meta.Rewindable() {
			return fmt.Errorf("ANEMLL's sequence feeds a prompt's last token twice, which the states of this package do not allow: %w", errors.ErrUnsupported)
		}
		if err := s.anemll(ctx, tokens); err != nil {
			return err
		}
		return visit(s.Pos()-1, s.scores.logits)
	}
	for len(tokens) > 0 {
		st := s.single()
		if mode == Contract {
			st = s.most(len(tokens))
		}
		if err := s.advance(ctx, st, tokens[:st.rows]); err != nil {
			return err
		}
		tokens = tokens[st.rows:]
		if !st.scores {
			continue
		}
		if err := s.head(ctx, st); err != nil {
			return err
		}
		if err := visit(s.Pos()-1, s.scores.logits); err != nil {
			return err
		}
	}
	return nil
}

// anemll feeds a prompt as ANEMLL 0.3.5's chat.py does.
func (s *Session) anemll(ctx context.Context, tokens []int32) error {
	p := s.m.pkg
	for rest := tokens; len(rest) > 0; {
		st := s.single()
		if s.prefill != nil && len(rest) >= s.prefill.rows && s.Pos()+s.prefill.rows <= s.Context() {
			switch {
			case p.Window > 0 && s.Pos() >= p.Window:
				if err := s.needPrefillRotate(); err != nil {
					return err
				}
				if s.prefillRotate != nil {
					st = s.prefillRotate
				}
			case p.Window > 0 && p.Monolithic() && s.Pos()+s.prefill.rows > p.Window:
				// Here, and not with chunks, it stops at the window.
			default:
				st = s.prefill
			}
		}
		if err := s.advance(ctx, st, rest[:st.rows]); err != nil {
			return err
		}
		rest = rest[st.rows:]
	}
	last := tokens[len(tokens)-1:]
	s.skewed = s.skewed || s.rotated
	s.tokens = s.tokens[:len(s.tokens)-1]
	st := s.single()
	if err := s.advance(ctx, st, last); err != nil {
		// The states hold a token that is not among ours.
		s.stale = s.stale || s.rotated || !p.Meta.Rewindable()
		return err
	}
	return s.head(ctx, st)
}

func (s *Session) needPrefillRotate() (err error) {
	if p := s.m.pkg; s.prefillRotate == nil && p.PrefillRotateFunction != "" {
		s.prefillRotate, err = s.m.newStep(p.PrefillRotateFunction, p.BatchSize, s.perChunk, nil)
	}
	return err
}
