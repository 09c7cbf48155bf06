package session

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"
)

// Decoder turns tokens into text bit by bit, holding back what is not yet a
// whole character. The tokenizer's Decoder is one.
type Decoder interface {
	Push(token int32) string
	Flush() string
}

// Options are the choices of one generation. The zero value is greedy and
// ends when the context is full.
type Options struct {
	Sampling Sampling
	// MaxTokens ends the generation after so many tokens. 0 means as many as
	// the context still has room for.
	MaxTokens int
	// Stop are the tokens that end it; see [StopTokens].
	Stop []int32
	// Pinned is the number of tokens at the start of the prompt (the system
	// prompt, usually) that are kept when the context is full.
	Pinned int
	// Turn is the number of tokens at the start of the prompt that a later
	// prompt is likely to begin with: those of the messages, without the ones
	// that open the answer, as templates that leave out the thinking of earlier
	// turns open it in another way afterwards. It matters where states cannot be
	// rewound; see [Snapshots]. 0 stands for all but the last 8.
	Turn int
	// NoShift makes a full context the end, in place of dropping the oldest
	// tokens.
	NoShift bool
	// Decoder makes the text of events; nil leaves it empty.
	Decoder Decoder
}

// EventKind tells what an event is about.
type EventKind int

const (
	// Prefill reports that Done of Total tokens of the prompt are in the
	// context.
	Prefill EventKind = iota
	// Token reports a new token and the text that is now certain.
	Token
	// Shift reports that the context was full: Dropped tokens behind the
	// pinned ones were dropped, Kept remain and are processed again.
	Shift
	// End is the last event: the Reason, the rest of the Text, and Stats.
	End
)

// Reason tells why a generation ended.
type Reason int

// Reasons.
const (
	Stopped   Reason = iota // a stop token
	MaxTokens               // Options.MaxTokens
	Full                    // no position left in the context
)

// String returns "stop", "length" or "context full".
func (r Reason) String() string {
	return [...]string{"stop", "length", "context full"}[r]
}

// Event is one thing that happened during a generation. Which fields are set
// depends on Kind.
type Event struct {
	Kind          EventKind
	Done, Total   int    // Prefill
	Token         int32  // Token; for End the stop token, -1 without
	Text          string // Token, End
	Dropped, Kept int    // Shift
	Reason        Reason // End
	Stats         Stats  // End
}

// Stats are figures of one generation.
type Stats struct {
	Prompt    int // tokens of the prompt, as it was when fed
	Reused    int // of these, tokens that were in the context already
	Generated int // tokens, without a stop token
	Shifts    int // how often the context was full

	FirstToken time.Duration // from the start to the first token
	Prefill    time.Duration // processing the prompt
	Shift      time.Duration // processing again after shifts
	Decode     time.Duration // the calls for generated tokens, sampling included
	Decoded    int           // the number of those calls
}

// PrefillRate returns prompt tokens per second, reused ones not counted.
func (s *Stats) PrefillRate() float64 { return rate(s.Prompt-s.Reused, s.Prefill) }

// DecodeRate returns generated tokens per second.
func (s *Stats) DecodeRate() float64 { return rate(s.Decoded, s.Decode) }

func rate(n int, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

// Generate continues a prompt. It feeds what the context does not hold yet
// (where the prompt departs from the tokens in the context, a plain KV cache
// goes back to that point, a recurrent state or a cache that shifts to the longest
// of its [Snapshots] with which the prompt begins, or to the start), then draws
// tokens until a stop token, the limit, an error, or the consumer's break. The last
// token drawn is not in the context when it ends; a next prompt that includes
// it feeds it.
//
// When the context is full, half of the tokens behind the pinned ones are
// dropped, the oldest first, and the rest is processed again at its new
// positions; a Shift event says so. The same happens to a prompt that is longer
// than the context.
//
// The sequence ends with an End event, or with an error, in which case the
// event is the zero Event.
func (s *Session) Generate(ctx context.Context, prompt []int32, opt Options) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		g := generation{Session: s, ctx: ctx, opt: opt, yield: yield, start: time.Now()}
		if err := g.run(prompt); err != nil && !g.done {
			yield(Event{}, err)
		}
	}
}

type generation struct {
	*Session
	ctx   context.Context
	opt   Options
	yield func(Event, error) bool
	done  bool // the consumer has enough
	one   [1]int32
	start time.Time
	stats Stats
}

func (g *generation) emit(e Event) bool {
	g.done = g.done || !g.yield(e, nil)
	return !g.done
}

func (g *generation) run(prompt []int32) error {
	if len(prompt) == 0 {
		return fmt.Errorf("the prompt has no tokens")
	}
	if err := g.checkIDs(prompt); err != nil {
		return err
	}
	if g.opt.MaxTokens < 0 || g.opt.Pinned < 0 || g.opt.Turn < 0 {
		return fmt.Errorf("a limit of %d tokens, %d pinned and a turn of %d: wanted 0 or more", g.opt.MaxTokens, g.opt.Pinned, g.opt.Turn)
	}
	sampler, err := NewSampler(g.opt.Sampling, g.m.pkg.VocabSize)
	if err != nil {
		return err
	}
	if g.m.pkg.Argmax && !sampler.plain() {
		return fmt.Errorf("the package gives the best token of each part of the vocabulary and no logits (argmax_in_model), so that tokens cannot be drawn: take temperature 0 and no repetition penalty, or a package converted without --argmax: %w", errors.ErrUnsupported)
	}
	sampler.See(prompt...)

	if len(prompt) > g.Context() {
		if prompt, err = g.shift(prompt); err != nil || g.done {
			return err
		}
	}
	g.stats.Prompt = len(prompt)
	t := time.Now()
	if g.stats.Reused, err = g.sync(prompt); err != nil || g.done {
		return err
	}
	g.stats.Prefill = time.Since(t)
	g.keep()
	defer g.keep()

	limit := g.opt.MaxTokens
	if limit == 0 {
		limit = g.Context() - g.Pos() + 1 // the last is not fed
	}
	for {
		t := time.Now()
		token, err := g.draw(sampler)
		if err != nil {
			return fmt.Errorf("position %d: %w", g.Pos(), err)
		}
		if g.stats.FirstToken == 0 {
			g.stats.FirstToken = time.Since(g.start)
		} else {
			g.stats.Decode += time.Since(t)
		}
		if slices.Contains(g.opt.Stop, token) {
			g.end(Stopped, token)
			return nil
		}
		sampler.See(token)
		g.stats.Generated++
		e := Event{Kind: Token, Token: token}
		if g.opt.Decoder != nil {
			e.Text = g.opt.Decoder.Push(token)
		}
		if !g.emit(e) {
			return nil
		}
		if g.stats.Generated >= limit {
			reason := MaxTokens
			if g.opt.MaxTokens == 0 {
				reason = Full
			}
			g.end(reason, -1)
			return nil
		}
		if g.Pos() == g.Context() {
			if g.opt.NoShift {
				g.end(Full, -1)
				return nil
			}
			t := time.Now()
			keep, err := g.shift(append(slices.Clone(g.tokens), token))
			if err != nil || g.done {
				return err
			}
			if _, err := g.sync(keep); err != nil || g.done {
				return err
			}
			g.stats.Shift += time.Since(t)
			continue
		}
		t = time.Now()
		g.one[0] = token
		if _, err := g.Feed(g.ctx, g.one[:]); err != nil {
			return err
		}
		g.stats.Decode += time.Since(t)
		g.stats.Decoded++
	}
}

func (g *generation) draw(s *Sampler) (int32, error) {
	if g.m.pkg.Argmax {
		return g.Best()
	}
	return s.Sample(g.scores.logits)
}

func (g *generation) end(r Reason, token int32) {
	e := Event{Kind: End, Reason: r, Token: token, Stats: g.stats}
	if g.opt.Decoder != nil {
		e.Text = g.opt.Decoder.Flush()
	}
	g.emit(e)
}

// shift returns the tokens to go on with when there are more than the
// context holds.
func (g *generation) shift(tokens []int32) ([]int32, error) {
	pinned := min(g.opt.Pinned, len(tokens))
	recent := (g.Context() - pinned) / 2
	if g.opt.NoShift || recent < 1 {
		return nil, fmt.Errorf("%d tokens, %d of them pinned: %w: it has %d positions", len(tokens), pinned, ErrContextFull, g.Context())
	}
	keep := slices.Concat(tokens[:pinned], tokens[len(tokens)-recent:])
	g.stats.Shifts++
	g.emit(Event{Kind: Shift, Dropped: len(tokens) - len(keep), Kept: len(keep)})
	return keep, nil
}

// answerOpening is as many tokens as a template needs at most to open an
// answer: "<|im_start|>assistant\n<think>\n" are 5.
const answerOpening = 8

// sync makes the context hold exactly tokens, with the logits after the last
// one, and returns how many it held already, or held in a snapshot.
func (g *generation) sync(tokens []int32) (reused int, err error) {
	n := len(tokens)
	reused = g.goTo(tokens)
	if reused == n {
		g.emit(Event{Kind: Prefill, Done: n, Total: n})
		return n, nil
	}
	if err := g.check(tokens[reused:]); err != nil {
		return reused, err
	}
	turn := g.opt.Turn
	if turn == 0 {
		turn = n - answerOpening
	}
	for at := reused; at < n; {
		if !g.emit(Event{Kind: Prefill, Done: at, Total: n}) {
			return reused, nil
		}
		// The last boundary within the pinned tokens, to which a full context or
		// another conversation comes back, and the last within the turn.
		ends := at + g.next(n-at).rows
		if pinned := g.opt.Pinned; at <= pinned && pinned < ends || at <= turn && turn < ends {
			g.keep()
		}
		k, err := g.feedSome(g.ctx, tokens[at:])
		if err != nil {
			return reused, err
		}
		at += k
	}
	g.emit(Event{Kind: Prefill, Done: n, Total: n})
	return reused, nil
}
