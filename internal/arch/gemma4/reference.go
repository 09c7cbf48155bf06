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
	cache []kvCache // one for each layer; empty for layers that share
	// frequencies of the rotary embeddings of each kind, in radians per
	// position, for the pairs of dimensions that rotate.
	frequencies [2][]float32
}

// kvCache holds what a layer remembers of each token: its keys, normed and
// rotated, and its values, normed, [tokens, KVSize] each.
type kvCache struct{ k, v []float32 }

var _ arch.Reference = (*Reference)(nil)

// Reference returns the float32 computation of the model, with no tokens fed.
// The checkpoint must stay open while it is used.
func (m *Model) Reference() (arch.Reference, error) { return newReference(m.cfg, m.set), nil }

func newReference(cfg *Config, w *WeightSet) *Reference {
	r := &Reference{cfg: cfg, w: w, cache: make([]kvCache, cfg.Layers)}
	// Every step is rounded to float32, as in the framework that the model
	// was trained and is served with. It matters: at position 10,000 the
	// rounding of a frequency near 1 moves the angle by half a thousandth.
	for _, k := range []Kind{Sliding, Full} {
		a := cfg.Attention(k)
		for i := range a.Rotated {
			exponent := float32(2*i) / float32(a.HeadDim)
			r.frequencies[k] = append(r.frequencies[k], 1/float32(math.Pow(a.Theta, float64(exponent))))
		}
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
		c, size := &r.cache[i], r.cfg.KVSize(i)
		c.k, c.v = c.k[:min(len(c.k), n*size)], c.v[:min(len(c.v), n*size)]
	}
	return nil
}

// Forward implements [arch.Reference].
func (r *Reference) Forward(ctx context.Context, tokens []int32, want func(i int) bool, visit func(i int, logits []float32) error) (err error) {
	c := r.cfg
	for i, t := range tokens {
		if t < 0 || int(t) >= c.Vocab {
			return fmt.Errorf("token %d at position %d is not in the vocabulary of %d", t, r.pos+i, c.Vocab)
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

	x := dense.New(len(tokens), c.Hidden)
	scale := float32(math.Sqrt(float64(c.Hidden)))
	for i, t := range tokens {
		row := x.Row(i)
		r.w.Embed.Float32(row, int(t)*c.Hidden)
		for j := range row {
			row[j] *= scale
		}
	}
	r.hidden(-1, x)
	inputs, err := r.perLayerInputs(ctx, tokens, x)
	if err != nil {
		return fmt.Errorf("per-layer inputs: %w", err)
	}
	angles := [2]rotations{r.rotations(Sliding, len(tokens)), r.rotations(Full, len(tokens))}
	for l := range c.Layers {
		if err := r.layer(ctx, l, x, inputs, &angles[c.Kinds[l]]); err != nil {
			return fmt.Errorf("layer %d: %w", l, err)
		}
		r.hidden(l, x)
	}
	normed := dense.New(len(tokens), c.Hidden)
	r.norm(normed, x, r.w.FinalNorm)
	r.hidden(c.Layers, normed)
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
	weight, row := vector(r.w.PerLayerNorm), make([]float32, width)
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
		if err := r.linear(ctx, -1, logits, in, r.w.Head); err != nil {
			return err
		}
		for j, i := range now {
			row := logits.Row(j)
			if limit := r.cfg.Softcap; limit > 0 {
				for k, v := range row {
					row[k] = float32(limit * math.Tanh(float64(v)/limit))
				}
			}
			if err := visit(i, row); err != nil {
				return err
			}
		}
	}
	return nil
}

// rotations holds the cosines and sines of the tokens' rotations, for the
// pairs of dimensions that rotate.
type rotations struct{ cos, sin dense.Matrix }

// rotations returns those of tokens that come at the current position.
func (r *Reference) rotations(k Kind, tokens int) rotations {
	f := r.frequencies[k]
	a := rotations{dense.New(tokens, len(f)), dense.New(tokens, len(f))}
	for t := range tokens {
		cos, sin := a.cos.Row(t), a.sin.Row(t)
		for i, f := range f {
			angle := float64(float32(r.pos+t) * f)
			cos[i], sin[i] = float32(math.Cos(angle)), float32(math.Sin(angle))
		}
	}
	return a
}

// layer replaces the residual stream x by what leaves layer l, and appends
// the keys and values of the new tokens to the layer's cache if it has one.
func (r *Reference) layer(ctx context.Context, l int, x, inputs dense.Matrix, rot *rotations) error {
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
	r.normHeads(l, q, vector(w.QNorm), rot)
	if !c.Shares(l) {
		k, v := dense.New(n, c.KVSize(l)), dense.New(n, c.KVSize(l))
		if err := r.linear(ctx, l, k, normed, w.K); err != nil {
			return err
		}
		if err := r.linear(ctx, l, v, normed, w.V); err != nil {
			return err
		}
		r.normHeads(l, k, vector(w.KNorm), rot)
		r.normHeads(l, v, nil, nil)
		cache := &r.cache[l]
		cache.k, cache.v = append(cache.k, k.Data...), append(cache.v, v.Data...)
	}
	attended := dense.New(n, c.QuerySize(l))
	if err := r.attend(ctx, l, attended, q); err != nil {
		return err
	}
	if err := r.linear(ctx, l, branch, attended, w.O); err != nil {
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
	if err := dense.Parallel(ctx, n, func(t int) error {
		gate, up := gate.Row(t), up.Row(t)
		for i := range gate {
			gate[i] = gelu(gate[i]) * up[i]
		}
		return nil
	}); err != nil {
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
			own[i] = gelu(own[i]) * in[i]
		}
	}
	if err := r.linear(ctx, l, branch, own, w.PLEProject); err != nil {
		return err
	}
	add(w.PostPLENorm)

	scalar := vector(w.Scalar)[0]
	for i := range x.Data {
		x.Data[i] *= scalar
	}
	return nil
}

// gelu is the tanh form of the Gaussian error linear unit.
func gelu(x float32) float32 {
	v := float64(x)
	return float32(0.5 * v * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v))))
}

// linear sets y to the output of a linear layer, after the observer has seen
// its input.
func (r *Reference) linear(ctx context.Context, layer int, y, x dense.Matrix, w *checkpoint.Tensor) error {
	if r.obs.Linear != nil {
		r.obs.Linear(layer, w.Name, x)
	}
	return dense.Linear(ctx, y, x, w, nil)
}

// vector reads a small tensor.
func vector(t *checkpoint.Tensor) []float32 {
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

// normHeads norms each head in the rows of x, and rotates it to the token's
// position unless rot is nil. A nil weight is one of ones.
func (r *Reference) normHeads(layer int, x dense.Matrix, weight []float32, rot *rotations) {
	d := r.cfg.Attention(r.cfg.Kinds[layer]).HeadDim
	if weight == nil {
		weight = make([]float32, d)
		for i := range weight {
			weight[i] = 1
		}
	}
	for t := range x.Rows {
		for h := 0; h < x.Cols; h += d {
			head := x.Row(t)[h : h+d]
			dense.RMSNorm(head, head, weight, r.cfg.Eps)
			if rot != nil {
				rotate(head, rot.cos.Row(t), rot.sin.Row(t))
			}
		}
	}
}

// rotate turns each pair of dimensions (i, i + half of all) by its angle, as
// far as there are angles.
func rotate(x, cos, sin []float32) {
	lo, hi := x[:len(x)/2], x[len(x)/2:]
	for i := range cos {
		u, v, c, s := float64(lo[i]), float64(hi[i]), float64(cos[i]), float64(sin[i])
		lo[i] = float32(u*c - v*s)
		hi[i] = float32(v*c + u*s)
	}
}

// attend sets out, for each new token and query head, to the values of the
// tokens that layer l attends to, weighted by the softmax of their keys'
// products with the query.
func (r *Reference) attend(ctx context.Context, l int, out, query dense.Matrix) error {
	c := r.cfg
	cache := &r.cache[c.Producer(l)]
	d, width, group := c.Attention(c.Kinds[l]).HeadDim, c.KVSize(l), c.Heads/c.KVHeads
	type scratch struct {
		probs []float32
		sums  []float64
	}
	newScratch := func() *scratch { return &scratch{make([]float32, r.pos+query.Rows), make([]float64, d)} }
	return dense.ParallelScratch(ctx, query.Rows*c.Heads, newScratch, func(s *scratch, i int) error {
		token, head := i/c.Heads, i%c.Heads
		last := r.pos + token
		first := 0
		if c.Kinds[l] == Sliding {
			first = max(0, last-c.Window+1)
		}
		at := head / group * d // of the head's keys and values in a cache row
		q := query.Row(token)[head*d:][:d]
		probs := s.probs[:last-first+1]
		for j := range probs {
			probs[j] = float32(dense.Dot(q, cache.k[(first+j)*width+at:][:d]))
		}
		dense.Softmax(probs)
		clear(s.sums)
		for j, p := range probs {
			for k, v := range cache.v[(first+j)*width+at:][:d] {
				s.sums[k] += float64(p) * float64(v)
			}
		}
		for k, v := range s.sums {
			out.Row(token)[head*d+k] = float32(v)
		}
		return nil
	})
}
