package gemma4

import (
	"context"
	"fmt"
	"math"

	"anemone/internal/arch"
	"anemone/internal/arch/dense"
	"anemone/internal/checkpoint"
)

// Reference computes a Gemma 4 checkpoint in float32; see [arch.Reference].
// It keeps the keys and values of all positions, also those that sliding
// layers cannot see any more.
type Reference struct {
	arch.Cached // layers that share have no rows

	cfg *Config
	w   *WeightSet
	// frequencies of the rotary embeddings of each kind, in radians per
	// position, for the pairs of dimensions that rotate.
	frequencies [2][]float32
}

var _ arch.Reference = (*Reference)(nil)

// Reference returns the float32 computation of the model, with no tokens fed.
// The checkpoint must stay open while it is used.
func (m *Model) Reference() (arch.Reference, error) { return newReference(m.cfg, m.set), nil }

func newReference(cfg *Config, w *WeightSet) *Reference {
	widths := make([]int, cfg.Layers)
	for l := range widths {
		widths[l] = cfg.KVSize(l)
	}
	r := &Reference{Cached: arch.NewCached(w.Head, cfg.Softcap, widths), cfg: cfg, w: w}
	for _, k := range []Kind{Sliding, Full} {
		a := cfg.Attention(k)
		r.frequencies[k] = dense.Frequencies(a.Theta, a.HeadDim, a.Rotated)
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
		inputs, err := r.perLayerInputs(ctx, tokens, x)
		if err != nil {
			return x, fmt.Errorf("per-layer inputs: %w", err)
		}
		var angles [2]dense.Rotations
		for k, f := range r.frequencies {
			angles[k] = dense.NewRotations(f, r.Pos(), len(tokens))
		}
		for l := range c.Layers {
			if err := r.layer(ctx, l, x, inputs, &angles[c.Kinds[l]]); err != nil {
				return x, fmt.Errorf("layer %d: %w", l, err)
			}
			r.SeeHidden(l, x)
		}
		r.norm(x, x, r.w.FinalNorm)
		return x, nil
	})
}

// perLayerInputs returns, for every token, the inputs of all layers side by
// side, from the token's row of the second table and the projection of its
// scaled embedding.
func (r *Reference) perLayerInputs(ctx context.Context, tokens []int32, x dense.Matrix) (dense.Matrix, error) {
	c := r.cfg
	width := c.Layers * c.PerLayer
	out := dense.New(len(tokens), width)
	if err := r.Linear(ctx, -1, out, x, r.w.PerLayerModel, nil); err != nil {
		return out, err
	}
	scale, root := math.Pow(float64(c.Hidden), -0.5), math.Sqrt(float64(c.PerLayer))
	weight, row := dense.Vector(r.w.PerLayerNorm), make([]float32, width)
	for i, t := range tokens {
		r.w.PerLayerEmbed.Float32(row, int(t)*width)
		p := out.Row(i)
		for j := range p {
			p[j] = float32(float64(p[j]) * scale)
		}
		for l := 0; l < width; l += c.PerLayer {
			dense.RMSNorm(p[l:l+c.PerLayer], p[l:l+c.PerLayer], weight, c.Eps)
		}
		for j := range p {
			p[j] = float32((float64(p[j]) + float64(row[j])*root) * math.Sqrt(0.5))
		}
	}
	return out, nil
}

// layer replaces the residual stream x by what leaves layer l, and appends
// the keys and values of the new tokens to the layer's cache if it has one.
func (r *Reference) layer(ctx context.Context, l int, x, inputs dense.Matrix, rot *dense.Rotations) error {
	c, w := r.cfg, &r.w.Layers[l]
	n := x.Rows
	normed, branch := dense.New(n, c.Hidden), dense.New(n, c.Hidden)
	// add adds branch, normed, to the residual stream.
	add := func(weight *checkpoint.Tensor) {
		r.norm(branch, branch, weight)
		dense.Add(x, x, branch)
	}

	// Attention.
	r.norm(normed, x, w.InputNorm)
	q := dense.New(n, c.QuerySize(l))
	if err := r.Linear(ctx, l, q, normed, w.Q, nil); err != nil {
		return err
	}
	r.normHeads(l, q, dense.Vector(w.QNorm), rot)
	if !c.Shares(l) {
		k, v := dense.New(n, c.KVSize(l)), dense.New(n, c.KVSize(l))
		if err := r.Linear(ctx, l, k, normed, w.K, nil); err != nil {
			return err
		}
		if err := r.Linear(ctx, l, v, normed, w.V, nil); err != nil {
			return err
		}
		r.normHeads(l, k, dense.Vector(w.KNorm), rot)
		r.normHeads(l, v, nil, nil)
		r.KV[l].Append(k, v)
	}
	// The scores are not scaled: the queries' norm does that.
	attention := dense.Attention{Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.Attention(c.Kinds[l]).HeadDim, Scale: 1}
	if c.Kinds[l] == Sliding {
		attention.Window = c.Window
	}
	if err := attention.Attend(ctx, q, q, &r.KV[c.Producer(l)], r.Pos(), nil); err != nil {
		return err
	}
	if err := r.Linear(ctx, l, branch, q, w.O, nil); err != nil {
		return err
	}
	add(w.PostNorm)

	// Gated MLP.
	r.norm(normed, x, w.PreFFNorm)
	gate, up := dense.New(n, c.MLPSize(l)), dense.New(n, c.MLPSize(l))
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
	add(w.PostFFNorm)

	// The layer's input of its own.
	own := dense.New(n, c.PerLayer)
	if err := r.Linear(ctx, l, own, x, w.PLEGate, nil); err != nil {
		return err
	}
	for t := range n {
		own, in := own.Row(t), inputs.Row(t)[l*c.PerLayer:][:c.PerLayer]
		for i := range own {
			own[i] = dense.GELU(own[i]) * in[i]
		}
	}
	if err := r.Linear(ctx, l, branch, own, w.PLEProject, nil); err != nil {
		return err
	}
	add(w.PostPLENorm)

	scalar := dense.Vector(w.Scalar)[0]
	for i := range x.Data {
		x.Data[i] *= scalar
	}
	return nil
}

// norm sets the rows of y to those of x, normed. y may be x.
func (r *Reference) norm(y, x dense.Matrix, weight *checkpoint.Tensor) {
	dense.NormRows(y, x, dense.Vector(weight), r.cfg.Eps)
}

// normHeads norms each head in the rows of x, and rotates it to the token's
// position unless rot is nil. A nil weight is one of ones.
func (r *Reference) normHeads(layer int, x dense.Matrix, weight []float32, rot *dense.Rotations) {
	d := r.cfg.Attention(r.cfg.Kinds[layer]).HeadDim
	dense.NormHeads(x, x, d, weight, r.cfg.Eps)
	if rot != nil {
		rot.RotateHeads(x, d, d)
	}
}
