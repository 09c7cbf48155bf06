package arch

import (
	"context"
	"errors"
	"fmt"
	"math"

	"anemone/internal/arch/dense"
	"anemone/internal/checkpoint"
)

// A Reference computes what a checkpoint computes, in float32, straight from
// the checkpoint's tensors: layer by layer with matrix products and plain
// loops, without the graph that it is there to judge. Each architecture has
// one.
//
// It holds a growing sequence of tokens and what later ones need of them
// (keys, values, recurrent states), never the weights: those are read from
// the mapped files a few rows at a time, each once per [Reference.Forward].
//
// What a token's logits are depends, bit for bit, on the tokens up to it and
// on nothing else: not on how many are fed at once, nor on the number of
// cores. So a caller may feed guesses, keep those that turn out right and
// take the others back with Truncate; see [Continuation].
//
// A Reference is not safe for concurrent use.
type Reference interface {
	// VocabSize is the number of logits.
	VocabSize() int
	// Pos is the number of tokens fed so far.
	Pos() int
	// Forward appends tokens to the sequence and calls visit, in order, with
	// the logits after tokens[i] for each i that want approves. Each logit
	// is the score of one token to come next. A nil want approves all; with
	// a nil visit no logits are computed. visit must not keep the slice.
	//
	// When Forward fails, be it because ctx is done or because visit
	// returned an error, none of the tokens has been appended.
	//
	// While it runs it needs, for each token, some six times the width of
	// the widest layer in float32; afterwards the keys and values remain.
	Forward(ctx context.Context, tokens []int32, want func(i int) bool, visit func(i int, logits []float32) error) error
	// Truncate keeps the first n tokens of the sequence and forgets the
	// others. n is not above Pos.
	Truncate(n int) error
	// Observe sets what is called while Forward runs; the zero Observer ends
	// that.
	Observe(Observer)
}

// Observer holds optional functions that see what a Reference computes. They
// are called on the goroutine that called Forward, one at a time. The
// matrices have a row for each token that Forward was given, in order, and
// are valid during the call only.
type Observer struct {
	// Hidden sees the residual stream: layer -1 is what enters the first
	// layer, 0 to n-1 what leaves that layer, and n, the number of layers,
	// is the last one's output after the final norm, which enters the head.
	Hidden func(layer int, x dense.Matrix)
	// Linear sees the input of every linear layer before the product:
	// tensor is the name of its weight in the checkpoint. Layers that share
	// their input see the same x. The head has layer -1, only sees the
	// tokens whose logits were wanted, and may see them in several calls.
	Linear func(layer int, tensor string, x dense.Matrix)
}

// SeeHidden calls Hidden if there is one.
func (o Observer) SeeHidden(layer int, x dense.Matrix) {
	if o.Hidden != nil {
		o.Hidden(layer, x)
	}
}

// SeeLinear calls Linear if there is one.
func (o Observer) SeeLinear(layer int, tensor string, x dense.Matrix) {
	if o.Linear != nil {
		o.Linear(layer, tensor, x)
	}
}

// CheckTokens refuses tokens, of which the first is to stand at position pos,
// that are not in a vocabulary.
func CheckTokens(tokens []int32, pos, vocab int) error {
	for i, t := range tokens {
		if t < 0 || int(t) >= vocab {
			return fmt.Errorf("token %d at position %d is not in the vocabulary of %d", t, pos+i, vocab)
		}
	}
	return nil
}

// Cached is what a [Reference] consists of, but for its layers, if these
// remember keys and values of each token and nothing else. References embed it.
type Cached struct {
	KV []dense.KV // of each layer, with a row for each token so far

	head    *checkpoint.Tensor
	softcap float64
	widths  []int
	pos     int
	obs     Observer
}

// NewCached returns it with no tokens fed. head is the weight of the LM head,
// [vocab, hidden], softcap the bound of the logits or 0; widths has, for each
// layer, that of a row of keys, and of values.
func NewCached(head *checkpoint.Tensor, softcap float64, widths []int) Cached {
	return Cached{KV: make([]dense.KV, len(widths)), head: head, softcap: softcap, widths: widths}
}

// VocabSize implements [Reference].
func (c *Cached) VocabSize() int { return c.head.Shape[0] }

// Pos implements [Reference].
func (c *Cached) Pos() int { return c.pos }

// Observe implements [Reference].
func (c *Cached) Observe(o Observer) { c.obs = o }

// Truncate implements [Reference].
func (c *Cached) Truncate(n int) error {
	if n < 0 || n > c.pos {
		return fmt.Errorf("cannot keep %d tokens of %d", n, c.pos)
	}
	c.pos = n
	for i, width := range c.widths {
		c.KV[i].Truncate(n, width)
	}
	return nil
}

// Feed is the frame of Forward: layers returns the tokens' states after the
// final norm, [tokens, hidden], and appends to the caches. While it runs, Pos is
// the position of the first token.
func (c *Cached) Feed(ctx context.Context, tokens []int32, want func(i int) bool, visit func(i int, logits []float32) error, layers func() (dense.Matrix, error)) (err error) {
	if err := CheckTokens(tokens, c.pos, c.VocabSize()); err != nil {
		return err
	}
	if len(tokens) == 0 {
		return nil
	}
	first := c.pos
	defer func() {
		if err != nil {
			c.Truncate(first) // also what some layers have cached
		}
	}()
	normed, err := layers()
	if err != nil {
		return err
	}
	c.SeeHidden(len(c.widths), normed)
	c.pos += len(tokens)
	if visit == nil {
		return nil
	}
	see := func(x dense.Matrix) { c.obs.SeeLinear(-1, c.head.Name, x) }
	return dense.Head(ctx, normed, c.head, c.VocabSize(), want, see, func(i int, logits []float32) error {
		dense.Softcap(logits, c.softcap)
		return visit(i, logits)
	})
}

// SeeHidden shows the observer the residual stream.
func (c *Cached) SeeHidden(layer int, x dense.Matrix) { c.obs.SeeHidden(layer, x) }

// Linear sets y to the output of a linear layer, after the observer has seen
// its input. bias may be nil.
func (c *Cached) Linear(ctx context.Context, layer int, y, x dense.Matrix, w, bias *checkpoint.Tensor) error {
	c.obs.SeeLinear(layer, w.Name, x)
	return dense.Linear(ctx, y, x, w, dense.Vector(bias))
}

// Draft guesses how a sequence goes on. context is the prompt and what has
// been added to it, not to be modified or kept; the answer holds up to k
// tokens, or none. Guesses may be wrong: they only cost time. What goes
// beyond k, or follows a token outside of the vocabulary, is ignored.
type Draft func(context []int32, k int) ([]int32, error)

// Greedy returns the n tokens that ref, taking the likeliest token each time
// (of equals the first), appends to prompt. It is [Continuation.Greedy]
// without a visitor.
func Greedy(ctx context.Context, ref Reference, prompt []int32, n int, draft Draft) ([]int32, error) {
	c := Continuation{Ref: ref, Draft: draft}
	return c.Greedy(ctx, prompt, n)
}

// Continuation writes on a sequence with a reference.
type Continuation struct {
	Ref Reference
	// Draft, if not nil, proposes tokens, of which the reference judges many
	// in one pass over its weights. Reading a weight costs about twice as
	// much as multiplying it, and far more if it comes from disk, so a
	// draft that is mostly right (the converted package is the natural one)
	// makes the work about three times faster. It has no influence on the
	// result.
	Draft Draft
	// Visit, if not nil, sees every token of the sequence in order, prompt
	// included, with the logits after it. pos counts from the beginning of
	// the reference's sequence. It must not keep logits.
	Visit func(pos int, token int32, logits []float32) error
}

const (
	firstDraft = 8  // tokens that are drafted first; doubled when all were right
	maxDraft   = 64 // at most
)

// Greedy feeds prompt, which has at least one token, to the reference and
// returns the n tokens that follow when the likeliest one (of equals the
// first) is appended each time. The reference then holds the prompt and all
// tokens but the last; with a Visit function the last one too. After an
// error it may hold any part of them.
func (c *Continuation) Greedy(ctx context.Context, prompt []int32, n int) ([]int32, error) {
	if len(prompt) == 0 {
		return nil, errors.New("greedy continuation: the prompt has no tokens")
	}
	if n < 0 {
		return nil, fmt.Errorf("greedy continuation: %d tokens wanted", n)
	}
	ref := c.Ref
	seq := append([]int32(nil), prompt...) // what Draft sees
	base := ref.Pos()                      // of seq[0]

	// The prompt. Its last token's logits say the first new one.
	var next int32
	err := ref.Forward(ctx, prompt, func(i int) bool { return c.Visit != nil || i == len(prompt)-1 }, func(i int, logits []float32) (err error) {
		if next, err = Argmax(logits); err != nil {
			return fmt.Errorf("after token %d of the sequence: %w", base+i, err)
		}
		if c.Visit != nil {
			return c.Visit(base+i, prompt[i], logits)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}

	k := firstDraft
	for len(seq)-len(prompt) < n {
		// Here the reference holds seq, and next comes after it.
		seq = append(seq, next)
		// How many more need to be fed: without a visitor, the last token
		// doesn't.
		left := n - (len(seq) - len(prompt))
		if c.Visit == nil {
			left--
		}
		if left < 0 {
			break
		}
		batch := []int32{next}
		if ask := min(k, left); c.Draft != nil && ask > 0 {
			guess, err := c.Draft(seq, ask)
			if err != nil {
				return nil, fmt.Errorf("draft: %w", err)
			}
			for _, t := range guess[:min(len(guess), ask)] {
				if t < 0 || int(t) >= ref.VocabSize() {
					break
				}
				batch = append(batch, t)
			}
		}
		right := 0 // how many of the batch belong to the sequence
		err := ref.Forward(ctx, batch, nil, func(i int, logits []float32) (err error) {
			if i > 0 && (right < i || batch[i] != next) {
				return nil // what follows a wrong guess means nothing
			}
			right = i + 1
			pos := base + len(seq) - 1 + i
			if next, err = Argmax(logits); err != nil {
				return fmt.Errorf("after token %d of the sequence: %w", pos, err)
			}
			if c.Visit != nil {
				return c.Visit(pos, batch[i], logits)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		seq = append(seq, batch[1:right]...)
		if right == len(batch) {
			if len(batch) > k {
				k = min(2*k, maxDraft)
			}
			continue
		}
		if err := ref.Truncate(base + len(seq)); err != nil {
			return nil, err
		}
		k = max(firstDraft/2, right)
	}
	return seq[len(prompt):], nil
}

// Argmax returns the index of the largest logit, the first of equals. It is
// an error if one is not a number, or if there are none.
func Argmax(logits []float32) (int32, error) {
	best := -1
	for i, v := range logits {
		if math.IsNaN(float64(v)) {
			return 0, fmt.Errorf("logit %d of %d is not a number", i, len(logits))
		}
		if best < 0 || v > logits[best] {
			best = i
		}
	}
	if best < 0 {
		return 0, errors.New("no logits")
	}
	return int32(best), nil
}
