package gemma3

import (
	"context"
	"fmt"
	"math"

	"anemone/internal/arch"
	"anemone/internal/arch/dense"
	"anemone/internal/checkpoint"
)

// Reference computes a Gemma 3 checkpoint in float32; see [arch.Reference].
// It keeps the keys and values of all positions, also those that sliding
// layers cannot see any more.
type Reference struct {
	cfg *Config
	w   *WeightSet
	obs arch.Observer

	pos   int
	cache []dense.KV // one for each layer
	// frequencies of the rotary embeddings of each kind of layers, in radians
	// per position.
	frequencies [2][]float32
}

var _ arch.Reference = (*Reference)(nil)

// Reference returns the float32 computation of the model, with no tokens fed.
// The checkpoint must stay open while it is used.
func (m *Model) Reference() (arch.Reference, error) { return newReference(m.cfg, m.set), nil }

func newReference(cfg *Config, w *WeightSet) *Reference {
	r := &Reference{cfg: cfg, w: w, cache: make([]dense.KV, cfg.Layers)}
	for _, k := range []Kind{Sliding, Full} {
		rope := cfg.Rope(k)
		f := dense.Frequencies(rope.Theta, cfg.HeadDim, cfg.HeadDim/2)
		for i := range f {
			f[i] /= float32(rope.Factor)
		}
		r.frequencies[k] = f
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
		r.cache[i].Truncate(n, r.cfg.KVSize())
	}
	return nil
}

// Forward implements [arch.Reference].
func (r *Reference) Forward(ctx context.Context, tokens []int32, want func(i int) bool, visit func(i int, logits []float32) error) (err error) {
	c := r.cfg
	if err := arch.CheckTokens(tokens, r.pos, c.Vocab); err != nil {
		return err
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

	x := dense.New(len(tokens), c.Hidden)
	scale := float32(math.Sqrt(float64(c.Hidden)))
	for i, t := range tokens {
		row := x.Row(i)
		r.w.Embed.Float32(row, int(t)*c.Hidden)
		for j := range row {
			row[j] *= scale
		}
	}
	r.obs.SeeHidden(-1, x)
	var rot [2]dense.Rotations
	for k, f := range r.frequencies {
		rot[k] = dense.NewRotations(f, r.pos, len(tokens))
	}
	for l := range c.Layers {
		if err := r.layer(ctx, l, x, &rot[c.Kinds[l]]); err != nil {
			return fmt.Errorf("layer %d: %w", l, err)
		}
		r.obs.SeeHidden(l, x)
	}
	normed := dense.New(len(tokens), c.Hidden)
	r.norm(normed, x, r.w.FinalNorm)
	r.obs.SeeHidden(c.Layers, normed)
	r.pos += len(tokens)
	if visit == nil {
		return nil
	}
	see := func(x dense.Matrix) { r.obs.SeeLinear(-1, r.w.Head.Name, x) }
	return dense.Head(ctx, normed, r.w.Head, c.Vocab, want, see, func(i int, logits []float32) error {
		dense.Softcap(logits, c.Softcap)
		return visit(i, logits)
	})
}

// layer replaces the residual stream x by what leaves layer l, and appends
// the keys and values of the new tokens to the layer's cache.
func (r *Reference) layer(ctx context.Context, l int, x dense.Matrix, rot *dense.Rotations) error {
	c, w := r.cfg, &r.w.Layers[l]
	n := x.Rows
	normed, branch := dense.New(n, c.Hidden), dense.New(n, c.Hidden)

	// Attention.
	r.norm(normed, x, w.InputNorm)
	q, k, v := dense.New(n, c.QuerySize()), dense.New(n, c.KVSize()), dense.New(n, c.KVSize())
	if err := r.linear(ctx, l, q, normed, w.Q, w.QBias); err != nil {
		return err
	}
	if err := r.linear(ctx, l, k, normed, w.K, w.KBias); err != nil {
		return err
	}
	if err := r.linear(ctx, l, v, normed, w.V, w.VBias); err != nil {
		return err
	}
	r.normHeads(q, w.QNorm, rot)
	r.normHeads(k, w.KNorm, rot)
	r.cache[l].Append(k, v)
	attention := dense.Attention{Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, Scale: 1 / math.Sqrt(c.QueryScalar)}
	if c.Kinds[l] == Sliding {
		attention.Window = c.Window
	}
	if err := attention.Attend(ctx, q, q, &r.cache[l], r.pos, nil); err != nil {
		return err
	}
	if err := r.linear(ctx, l, branch, q, w.O, w.OBias); err != nil {
		return err
	}
	r.norm(branch, branch, w.PostNorm)
	dense.Add(x, x, branch)

	// Gated MLP.
	r.norm(normed, x, w.PreFFNorm)
	gate, up := dense.New(n, c.Intermediate), dense.New(n, c.Intermediate)
	if err := r.linear(ctx, l, gate, normed, w.Gate, nil); err != nil {
		return err
	}
	if err := r.linear(ctx, l, up, normed, w.Up, nil); err != nil {
		return err
	}
	if err := dense.Gate(ctx, gate, gate, up, dense.GELU); err != nil {
		return err
	}
	if err := r.linear(ctx, l, branch, gate, w.Down, nil); err != nil {
		return err
	}
	r.norm(branch, branch, w.PostFFNorm)
	dense.Add(x, x, branch)
	return nil
}

// linear sets y to the output of a linear layer, after the observer has seen
// its input. bias may be nil.
func (r *Reference) linear(ctx context.Context, layer int, y, x dense.Matrix, w, bias *checkpoint.Tensor) error {
	r.obs.SeeLinear(layer, w.Name, x)
	return dense.Linear(ctx, y, x, w, dense.Vector(bias))
}

// norm sets the rows of y to those of x, normed. y may be x.
func (r *Reference) norm(y, x dense.Matrix, weight *checkpoint.Tensor) {
	dense.NormRows(y, x, dense.FromOne(weight), r.cfg.Eps)
}

// normHeads norms each head in the rows of x, and rotates it to the token's
// position.
func (r *Reference) normHeads(x dense.Matrix, weight *checkpoint.Tensor, rot *dense.Rotations) {
	dense.NormHeads(x, x, r.cfg.HeadDim, dense.FromOne(weight), r.cfg.Eps)
	rot.RotateHeads(x, r.cfg.HeadDim, r.cfg.HeadDim)
}
