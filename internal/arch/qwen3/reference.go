package qwen3

import (
	"context"
	"fmt"
	"math"

	"anemone/internal/arch"
	"anemone/internal/arch/dense"
	"anemone/internal/checkpoint"
)

// Reference computes a Qwen3 checkpoint in float32; see [arch.Reference].
type Reference struct {
	cfg *Config
	w   *WeightSet
	obs arch.Observer

	pos   int
	cache []kvCache // one for each layer
	// frequencies of the rotary embedding, in radians per position, for each
	// pair of dimensions.
	frequencies []float32
}

// kvCache holds what a layer remembers of each token: its keys, normed and
// rotated, and its values, [tokens, KVHeads*HeadDim] each.
type kvCache struct{ k, v []float32 }

var _ arch.Reference = (*Reference)(nil)

// Reference returns the float32 computation of the model, with no tokens fed.
// The checkpoint must stay open while it is used.
func (m *Model) Reference() (arch.Reference, error) { return newReference(m.cfg, m.set), nil }

func newReference(cfg *Config, w *WeightSet) *Reference {
	r := &Reference{cfg: cfg, w: w, cache: make([]kvCache, cfg.Layers), frequencies: make([]float32, cfg.HeadDim/2)}
	// Every step is rounded to float32, as in the framework that the model
	// was trained and is served with. It matters: at position 10,000 the
	// rounding of a frequency near 1 moves the angle by half a thousandth.
	for i := range r.frequencies {
		exponent := float32(2*i) / float32(cfg.HeadDim)
		r.frequencies[i] = 1 / float32(math.Pow(cfg.RopeTheta, float64(exponent)))
	}
	return r
}

// VocabSize implements [arch.Reference].
func (r *Reference) VocabSize() int { return r.cfg.Vocab }

// Pos implements [arch.Reference].
func (r *Reference) Pos() int { return r.pos }

// Observe implements [arch.Reference].
func (r *Reference) Observe(o arch.Observer) { r.obs = o }

// Truncate implements [arch.Reference].
func (r *Reference) Truncate(n int) error {
	if n < 0 || n > r.pos {
		return fmt.Errorf("cannot keep %d tokens of %d", n, r.pos)
	}
	r.pos = n
	for i := range r.cache {
		c := &r.cache[i]
		c.k, c.v = c.k[:min(len(c.k), n*r.cfg.KVSize())], c.v[:min(len(c.v), n*r.cfg.KVSize())]
	}
	return nil
}

// Forward implements [arch.Reference].
func (r *Reference) Forward(ctx context.Context, tokens []int32, want func(i int) bool, visit func(i int, logits []float32) error) (err error) {
	for i, t := range tokens {
		if t < 0 || int(t) >= r.cfg.Vocab {
			return fmt.Errorf("token %d at position %d is not in the vocabulary of %d", t, r.pos+i, r.cfg.Vocab)
		}
	}
	if len(tokens) == 0 {
		return nil
	}
	first := r.pos
	defer func() {
		if err != nil {
			r.Truncate(first) // also what some layers have cached
		}
	}()

	a := r.newActivations(len(tokens), false)
	for i, t := range tokens {
		r.w.Embed.Float32(a.In.Row(i), int(t)*r.cfg.Hidden)
	}
	r.hidden(-1, a.In)
	for l := range r.cfg.Layers {
		if err := r.layer(ctx, l, a); err != nil {
			return fmt.Errorf("layer %d: %w", l, err)
		}
		r.hidden(l, a.Out)
		a.In = a.Out // the same already, but that is newActivations' secret
	}
	normed := a.AttnIn
	r.norm(normed, a.In, r.w.FinalNorm)
	r.hidden(r.cfg.Layers, normed)
	r.pos += len(tokens)
	if visit == nil {
		return nil
	}
	return r.head(ctx, normed, want, visit)
}

func (r *Reference) hidden(layer int, x dense.Matrix) {
	if r.obs.Hidden != nil {
		r.obs.Hidden(layer, x)
	}
}

// maxLogits is the number of logits that are computed at a time (32 MB).
const maxLogits = 8 << 20

// head calls visit with the logits of the rows of x, the states after the
// final norm, that are wanted.
func (r *Reference) head(ctx context.Context, x dense.Matrix, want func(i int) bool, visit func(i int, logits []float32) error) error {
	var wanted []int
	for i := range x.Rows {
		if want == nil || want(i) {
			wanted = append(wanted, i)
		}
	}
	block := min(len(wanted), max(1, maxLogits/r.cfg.Vocab))
	in, logits := dense.New(block, x.Cols), dense.New(block, r.cfg.Vocab)
	for len(wanted) > 0 {
		now := wanted[:min(block, len(wanted))]
		wanted = wanted[len(now):]
		in, logits := in.Slice(0, len(now)), logits.Slice(0, len(now))
		for j, i := range now {
			copy(in.Row(j), x.Row(i))
		}
		if err := r.linear(ctx, -1, logits, in, r.w.Head, nil); err != nil {
			return err
		}
		for j, i := range now {
			if err := visit(i, logits.Row(j)); err != nil {
				return err
			}
		}
	}
	return nil
}

// activations holds every value of a layer's computation, in the order in
// which it arises, so that the derivatives can be taken beside it. Each
// matrix has a row for each new token.
type activations struct {
	In      dense.Matrix // residual stream before the layer      [Hidden]
	AttnIn  dense.Matrix // normed: input of Q, K, V              [Hidden]
	QProj   dense.Matrix // Q's output                            [Heads*HeadDim]
	KProj   dense.Matrix // K's output                            [KVHeads*HeadDim]
	V       dense.Matrix // V's output                            [KVHeads*HeadDim]
	Q       dense.Matrix // QProj, each head normed and rotated   [Heads*HeadDim]
	K       dense.Matrix // KProj, each head normed and rotated   [KVHeads*HeadDim]
	Probs   [][]float32  // softmax of the scores; see probs
	Context dense.Matrix // Probs-weighted values: input of O     [Heads*HeadDim]
	Mid     dense.Matrix // In + O's output                       [Hidden]
	MLPIn   dense.Matrix // normed: input of Gate, Up             [Hidden]
	Gate    dense.Matrix // Gate's output                         [Intermediate]
	Up      dense.Matrix // Up's output                           [Intermediate]
	Act     dense.Matrix // silu(Gate) * Up: input of Down        [Intermediate]
	Out     dense.Matrix // Mid + Down's output                   [Hidden]

	cos, sin dense.Matrix // of the tokens' rotations             [HeadDim/2]
	branch   dense.Matrix // scratch: what is added to In and Mid [Hidden]
}

// newActivations returns activations for tokens that come at the current
// position. With keep, each value has memory of its own and lasts until the
// next call of layer. Without it, values that are needed once share theirs:
// every step can work in place, and long sequences of wide models take less
// than half the memory.
func (r *Reference) newActivations(tokens int, keep bool) *activations {
	c := r.cfg
	a := &activations{
		In:      dense.New(tokens, c.Hidden),
		AttnIn:  dense.New(tokens, c.Hidden),
		QProj:   dense.New(tokens, c.QuerySize()),
		KProj:   dense.New(tokens, c.KVSize()),
		V:       dense.New(tokens, c.KVSize()),
		Context: dense.New(tokens, c.QuerySize()),
		Gate:    dense.New(tokens, c.Intermediate),
		Up:      dense.New(tokens, c.Intermediate),
		branch:  dense.New(tokens, c.Hidden),
		cos:     dense.New(tokens, c.HeadDim/2),
		sin:     dense.New(tokens, c.HeadDim/2),
	}
	a.Q, a.K, a.Act = a.QProj, a.KProj, a.Gate
	a.Mid, a.Out, a.MLPIn = a.In, a.In, a.AttnIn
	if keep {
		a.Q, a.K, a.Act = dense.New(tokens, c.QuerySize()), dense.New(tokens, c.KVSize()), dense.New(tokens, c.Intermediate)
		a.Mid, a.Out, a.MLPIn = dense.New(tokens, c.Hidden), dense.New(tokens, c.Hidden), dense.New(tokens, c.Hidden)
		a.Probs = make([][]float32, tokens*c.Heads)
		for i := range a.Probs {
			a.Probs[i] = make([]float32, r.pos+i/c.Heads+1)
		}
	}
	for t := range tokens {
		cos, sin := a.cos.Row(t), a.sin.Row(t)
		for i, f := range r.frequencies {
			angle := float64(float32(r.pos+t) * f)
			cos[i], sin[i] = float32(math.Cos(angle)), float32(math.Sin(angle))
		}
	}
	return a
}

// probs returns the memory for the attention of a token's head to all tokens
// up to it: that of activations that are kept, or scratch.
func (a *activations) probs(token, head, heads int, scratch []float32, n int) []float32 {
	if a.Probs != nil {
		return a.Probs[token*heads+head]
	}
	return scratch[:n]
}

// layer computes layer l for the new tokens from a.In to a.Out, and appends
// their keys and values to the layer's cache.
func (r *Reference) layer(ctx context.Context, l int, a *activations) error {
	w := &r.w.Layers[l]

	// Attention.
	r.norm(a.AttnIn, a.In, w.InputNorm)
	if err := r.linear(ctx, l, a.QProj, a.AttnIn, w.Q, w.QBias); err != nil {
		return err
	}
	if err := r.linear(ctx, l, a.KProj, a.AttnIn, w.K, w.KBias); err != nil {
		return err
	}
	if err := r.linear(ctx, l, a.V, a.AttnIn, w.V, w.VBias); err != nil {
		return err
	}
	r.normAndRotate(a.Q, a.QProj, w.QNorm, a)
	r.normAndRotate(a.K, a.KProj, w.KNorm, a)
	cache := &r.cache[l]
	cache.k = append(cache.k, a.K.Data...)
	cache.v = append(cache.v, a.V.Data...)
	if err := r.attend(ctx, cache, a); err != nil {
		return err
	}
	if err := r.linear(ctx, l, a.branch, a.Context, w.O, w.OBias); err != nil {
		return err
	}
	dense.Add(a.Mid, a.In, a.branch)

	// Gated MLP.
	r.norm(a.MLPIn, a.Mid, w.PostNorm)
	if err := r.linear(ctx, l, a.Gate, a.MLPIn, w.Gate, w.GateBias); err != nil {
		return err
	}
	if err := r.linear(ctx, l, a.Up, a.MLPIn, w.Up, w.UpBias); err != nil {
		return err
	}
	if err := dense.Parallel(ctx, a.Act.Rows, func(t int) error {
		act, gate, up := a.Act.Row(t), a.Gate.Row(t), a.Up.Row(t)
		for i := range act {
			act[i] = dense.SiLU(gate[i]) * up[i]
		}
		return nil
	}); err != nil {
		return err
	}
	if err := r.linear(ctx, l, a.branch, a.Act, w.Down, w.DownBias); err != nil {
		return err
	}
	dense.Add(a.Out, a.Mid, a.branch)
	return nil
}

// linear sets y to the output of a linear layer, after the observer has seen
// its input. bias may be nil.
func (r *Reference) linear(ctx context.Context, layer int, y, x dense.Matrix, w, bias *checkpoint.Tensor) error {
	if r.obs.Linear != nil {
		r.obs.Linear(layer, w.Name, x)
	}
	return dense.Linear(ctx, y, x, w, vector(bias))
}

// vector reads a small tensor; nil gives nil.
func vector(t *checkpoint.Tensor) []float32 {
	if t == nil {
		return nil
	}
	v := make([]float32, t.Len())
	t.Float32(v, 0)
	return v
}

// norm sets the rows of y to those of x, normed. y may be x.
func (r *Reference) norm(y, x dense.Matrix, weight *checkpoint.Tensor) {
	w := vector(weight)
	for t := range x.Rows {
		dense.RMSNorm(y.Row(t), x.Row(t), w, r.cfg.Eps)
	}
}

// normAndRotate sets the heads in the rows of y to those of x, normed and
// rotated to the token's position. y may be x.
func (r *Reference) normAndRotate(y, x dense.Matrix, weight *checkpoint.Tensor, a *activations) {
	w, d := vector(weight), r.cfg.HeadDim
	for t := range x.Rows {
		cos, sin := a.cos.Row(t), a.sin.Row(t)
		for h := 0; h < x.Cols; h += d {
			head := y.Row(t)[h : h+d]
			dense.RMSNorm(head, x.Row(t)[h:h+d], w, r.cfg.Eps)
			rotate(head, cos, sin)
		}
	}
}

// rotate turns each pair of dimensions (i, i + half) by its angle.
func rotate(x, cos, sin []float32) {
	lo, hi := x[:len(cos)], x[len(cos):]
	for i := range cos {
		u, v, c, s := float64(lo[i]), float64(hi[i]), float64(cos[i]), float64(sin[i])
		lo[i] = float32(u*c - v*s)
		hi[i] = float32(v*c + u*s)
	}
}

// attend sets a.Context: for each new token and query head, the values of
// all tokens up to it, weighted by the softmax of their keys' products with
// the query.
func (r *Reference) attend(ctx context.Context, cache *kvCache, a *activations) error {
	c := r.cfg
	d, width, group := c.HeadDim, c.KVSize(), c.Heads/c.KVHeads
	scale := 1 / math.Sqrt(float64(d))
	type scratch struct {
		probs []float32
		sums  []float64
	}
	newScratch := func() *scratch { return &scratch{make([]float32, r.pos+a.Q.Rows), make([]float64, d)} }
	return dense.ParallelScratch(ctx, a.Q.Rows*c.Heads, newScratch, func(s *scratch, i int) error {
		token, head := i/c.Heads, i%c.Heads
		n := r.pos + token + 1
		at := head / group * d // of the head's keys and values in a cache row
		q := a.Q.Row(token)[head*d:][:d]
		probs := a.probs(token, head, c.Heads, s.probs, n)
		for j := range probs {
			probs[j] = float32(dense.Dot(q, cache.k[j*width+at:][:d]) * scale)
		}
		dense.Softmax(probs)
		clear(s.sums)
		for j, p := range probs {
			for k, v := range cache.v[j*width+at:][:d] {
				s.sums[k] += float64(p) * float64(v)
			}
		}
		for k, v := range s.sums {
			a.Context.Row(token)[head*d+k] = float32(v)
		}
		return nil
	})
}
