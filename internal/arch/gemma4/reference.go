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
	cfg *Config
	w   *WeightSet
	obs arch.Observer

	pos   int
	cache []dense.KV // one for each layer; empty for layers that share
	// frequencies of the rotary embeddings of each kind, in radians per
	// position, for the pairs of dimensions that rotate.
	frequencies [2][]float32
}

var _ arch.Reference = (*Reference)(nil)

// Reference returns the float32 computation of the model, with no tokens fed.
// The checkpoint must stay open while it is used.
func (m *Model) Reference() (arch.Reference, error) { return newReference(m.cfg, m.set), nil }

func newReference(cfg *Config, w *WeightSet) *Reference {
	r := &Reference{cfg: cfg, w: w, cache: make([]dense.KV, cfg.Layers)}
	for _, k := range []Kind{Sliding, Full} {
		a := cfg.Attention(k)
		r.frequencies[k] = dense.Frequencies(a.Theta, a.HeadDim, a.Rotated)
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
		r.cache[i].Truncate(n, r.cfg.KVSize(i))
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
	inputs, err := r.perLayerInputs(ctx, tokens, x)
	if err != nil {
		return fmt.Errorf("per-layer inputs: %w", err)
	}
	var angles [2]dense.Rotations
	for k, f := range r.frequencies {
		angles[k] = dense.NewRotations(f, r.pos, len(tokens))
	}
	for l := range c.Layers {
		if err := r.layer(ctx, l, x, inputs, &angles[c.Kinds[l]]); err != nil {
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

// perLayerInputs returns, for every token, the inputs of all layers side by
// side, from the token's row of the second table and the projection of its
// scaled embedding.
func (r *Reference) perLayerInputs(ctx context.Context, tokens []int32, x dense.Matrix) (dense.Matrix, error) {
	c := r.cfg
	width := c.Layers * c.PerLayer
	out := dense.New(len(tokens), width)
	if err := r.linear(ctx, -1, out, x, r.w.PerLayerModel); err != nil {
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
	if err := r.linear(ctx, l, q, normed, w.Q); err != nil {
		return err
	}
	r.normHeads(l, q, dense.Vector(w.QNorm), rot)
	if !c.Shares(l) {
		k, v := dense.New(n, c.KVSize(l)), dense.New(n, c.KVSize(l))
		if err := r.linear(ctx, l, k, normed, w.K); err != nil {
			return err
		}
		if err := r.linear(ctx, l, v, normed, w.V); err != nil {
			return err
		}
		r.normHeads(l, k, dense.Vector(w.KNorm), rot)
		r.normHeads(l, v, nil, nil)
		r.cache[l].Append(k, v)
	}
	// The scores are not scaled: the queries' norm does that.
	attention := dense.Attention{Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.Attention(c.Kinds[l]).HeadDim, Scale: 1}
	if c.Kinds[l] == Sliding {
		attention.Window = c.Window
	}
	if err := attention.Attend(ctx, q, q, &r.cache[c.Producer(l)], r.pos, nil); err != nil {
		return err
	}
	if err := r.linear(ctx, l, branch, q, w.O); err != nil {
		return err
	}
	add(w.PostNorm)

	// Gated MLP.
	r.norm(normed, x, w.PreFFNorm)
	gate, up := dense.New(n, c.MLPSize(l)), dense.New(n, c.MLPSize(l))
	if err := r.linear(ctx, l, gate, normed, w.Gate); err != nil {
		return err
	}
	if err := r.linear(ctx, l, up, normed, w.Up); err != nil {
		return err
	}
	if err := dense.Gate(ctx, gate, gate, up, dense.GELU); err != nil {
		return err
	}
	if err := r.linear(ctx, l, branch, gate, w.Down); err != nil {
		return err
	}
	add(w.PostFFNorm)

	// The layer's input of its own.
	own := dense.New(n, c.PerLayer)
	if err := r.linear(ctx, l, own, x, w.PLEGate); err != nil {
		return err
	}
	for t := range n {
		own, in := own.Row(t), inputs.Row(t)[l*c.PerLayer:][:c.PerLayer]
		for i := range own {
			own[i] = dense.GELU(own[i]) * in[i]
		}
	}
	if err := r.linear(ctx, l, branch, own, w.PLEProject); err != nil {
		return err
	}
	add(w.PostPLENorm)

	scalar := dense.Vector(w.Scalar)[0]
	for i := range x.Data {
		x.Data[i] *= scalar
	}
	return nil
}

// linear sets y to the output of a linear layer, after the observer has seen
// its input.
func (r *Reference) linear(ctx context.Context, layer int, y, x dense.Matrix, w *checkpoint.Tensor) error {
	r.obs.SeeLinear(layer, w.Name, x)
	return dense.Linear(ctx, y, x, w, nil)
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
