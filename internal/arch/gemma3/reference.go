package gemma3

import (
	"context"
	"fmt"
	"math"
	"slices"

	"anemone/internal/arch"
	"anemone/internal/arch/dense"
	"anemone/internal/checkpoint"
)

// Reference computes a Gemma 3 checkpoint in float32; see [arch.Reference].
// It keeps the keys and values of all positions, also those that sliding
// layers cannot see any more.
type Reference struct {
	arch.Cached

	cfg *Config
	w   *WeightSet
	// frequencies of the rotary embeddings of each kind of layers, in radians
	// per position.
	frequencies [2][]float32
}

var _ arch.Reference = (*Reference)(nil)

// Reference returns the float32 computation of the model, with no tokens fed.
// The checkpoint must stay open while it is used.
func (m *Model) Reference() (arch.Reference, error) { return newReference(m.cfg, m.set), nil }

func newReference(cfg *Config, w *WeightSet) *Reference {
	widths := slices.Repeat([]int{cfg.KVSize()}, cfg.Layers)
	r := &Reference{Cached: arch.NewCached(w.Head, cfg.Softcap, widths), cfg: cfg, w: w}
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

// Forward implements [arch.Reference].
func (r *Reference) Forward(ctx context.Context, tokens []int32, want func(i int) bool, visit func(i int, logits []float32) error) error {
	c := r.cfg
	return r.Feed(ctx, tokens, want, visit, func() (dense.Matrix, error) {
		x := dense.New(len(tokens), c.Hidden)
		scale := float32(math.Sqrt(float64(c.Hidden)))
		for i, t := range tokens {
			row := x.Row(i)
			r.w.Embed.Float32(row, int(t)*c.Hidden)
			for j := range row {
				row[j] *= scale
			}
		}
		r.SeeHidden(-1, x)
		var rot [2]dense.Rotations
		for k, f := range r.frequencies {
			rot[k] = dense.NewRotations(f, r.Pos(), len(tokens))
		}
		for l := range c.Layers {
			if err := r.layer(ctx, l, x, &rot[c.Kinds[l]]); err != nil {
				return x, fmt.Errorf("layer %d: %w", l, err)
			}
			r.SeeHidden(l, x)
		}
		r.norm(x, x, r.w.FinalNorm)
		return x, nil
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
	if err := r.Linear(ctx, l, q, normed, w.Q, w.QBias); err != nil {
		return err
	}
	if err := r.Linear(ctx, l, k, normed, w.K, w.KBias); err != nil {
		return err
	}
	if err := r.Linear(ctx, l, v, normed, w.V, w.VBias); err != nil {
		return err
	}
	r.normHeads(q, w.QNorm, rot)
	r.normHeads(k, w.KNorm, rot)
	r.KV[l].Append(k, v)
	attention := dense.Attention{Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, Scale: 1 / math.Sqrt(c.QueryScalar)}
	if c.Kinds[l] == Sliding {
		attention.Window = c.Window
	}
	if err := attention.Attend(ctx, q, q, &r.KV[l], r.Pos(), nil); err != nil {
		return err
	}
	if err := r.Linear(ctx, l, branch, q, w.O, w.OBias); err != nil {
		return err
	}
	r.norm(branch, branch, w.PostNorm)
	dense.Add(x, x, branch)

	// Gated MLP.
	r.norm(normed, x, w.PreFFNorm)
	gate, up := dense.New(n, c.Intermediate), dense.New(n, c.Intermediate)
	if err := r.Linear(ctx, l, gate, normed, w.Gate, nil); err != nil {
		return err
	}
	if err := r.Linear(ctx, l, up, normed, w.Up, nil); err != nil {
		return err
	}
	if err := dense.Gate(ctx, gate, gate, up, dense.GELU); err != nil {
		return err
	}
	if err := r.Linear(ctx, l, branch, gate, w.Down, nil); err != nil {
		return err
	}
	r.norm(branch, branch, w.PostFFNorm)
	dense.Add(x, x, branch)
	return nil
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
