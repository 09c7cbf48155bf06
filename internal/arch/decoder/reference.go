package decoder

import (
	"context"
	"fmt"
	"math"
	"slices"

	"anemone/internal/arch"
	"anemone/internal/arch/dense"
	"anemone/internal/checkpoint"
)

// Reference computes a checkpoint in float32; see [arch.Reference].
type Reference struct {
	arch.Cached // keys are normed and rotated

	cfg *Config
	w   *WeightSet
	// frequencies of the rotary embedding, in radians per position, for each
	// pair of dimensions.
	frequencies []float32
}

var _ arch.Reference = (*Reference)(nil)

// Reference returns the float32 computation of the model, with no tokens fed.
// The checkpoint must stay open while it is used.
func (m *Model) Reference() (arch.Reference, error) { return newReference(m.cfg, m.set), nil }

func newReference(cfg *Config, w *WeightSet) *Reference {
	widths := slices.Repeat([]int{cfg.KVSize()}, cfg.Layers)
	return &Reference{Cached: arch.NewCached(w.Head, 0, widths), cfg: cfg, w: w, frequencies: frequencies(cfg)}
}

// frequencies returns those of the rotary embedding. The scaled ones too are
// rounded to float32 at every step, in the order of transformers.
func frequencies(c *Config) []float32 {
	f, s := dense.Frequencies(c.RopeTheta, c.HeadDim, c.HeadDim/2), &c.Scaling
	for i := range f {
		switch s.Type {
		case Linear:
			f[i] /= float32(s.Factor)
		case Llama3:
			f[i] = llama3(f[i], s)
		}
	}
	return f
}

// llama3 scales a frequency by its wavelength in positions.
func llama3(f float32, s *Scaling) float32 {
	original, factor := float32(s.Original), float32(s.Factor)
	wavelength := 1 / f * float32(2*math.Pi)
	switch {
	case wavelength < float32(float64(s.Original)/s.HighFreq):
		return f
	case wavelength > float32(float64(s.Original)/s.LowFreq):
		return f / factor
	}
	smooth := (float32(1/wavelength*original) - float32(s.LowFreq)) / float32(s.HighFreq-s.LowFreq)
	kept := float32(smooth * f)
	return (1-smooth)*f/factor + kept
}

// Forward implements [arch.Reference].
func (r *Reference) Forward(ctx context.Context, tokens []int32, want func(i int) bool, visit func(i int, logits []float32) error) error {
	return r.Feed(ctx, tokens, want, visit, func() (dense.Matrix, error) {
		a := r.newActivations(len(tokens), false)
		for i, t := range tokens {
			r.w.Embed.Float32(a.In.Row(i), int(t)*r.cfg.Hidden)
		}
		r.SeeHidden(-1, a.In)
		for l := range r.cfg.Layers {
			if err := r.layer(ctx, l, a); err != nil {
				return a.In, fmt.Errorf("layer %d: %w", l, err)
			}
			r.SeeHidden(l, a.Out)
			a.In = a.Out // the same already, but that is newActivations' secret
		}
		r.norm(a.AttnIn, a.In, r.w.FinalNorm)
		return a.AttnIn, nil
	})
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
	Probs   [][]float32  // softmax of the scores, at token*Heads+head; nil if not kept
	Context dense.Matrix // Probs-weighted values: input of O     [Heads*HeadDim]
	Mid     dense.Matrix // In + O's output                       [Hidden]
	MLPIn   dense.Matrix // normed: input of Gate, Up             [Hidden]
	Gate    dense.Matrix // Gate's output                         [Intermediate]
	Up      dense.Matrix // Up's output                           [Intermediate]
	Act     dense.Matrix // silu(Gate) * Up: input of Down        [Intermediate]
	Out     dense.Matrix // Mid + Down's output                   [Hidden]

	rotations dense.Rotations // of the tokens
	branch    dense.Matrix    // scratch: what is added to In and Mid [Hidden]
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

		rotations: dense.NewRotations(r.frequencies, r.Pos(), tokens),
	}
	a.Q, a.K, a.Act = a.QProj, a.KProj, a.Gate
	a.Mid, a.Out, a.MLPIn = a.In, a.In, a.AttnIn
	if keep {
		a.Q, a.K, a.Act = dense.New(tokens, c.QuerySize()), dense.New(tokens, c.KVSize()), dense.New(tokens, c.Intermediate)
		a.Mid, a.Out, a.MLPIn = dense.New(tokens, c.Hidden), dense.New(tokens, c.Hidden), dense.New(tokens, c.Hidden)
		a.Probs = make([][]float32, tokens*c.Heads)
		for i := range a.Probs {
			a.Probs[i] = make([]float32, r.Pos()+i/c.Heads+1)
		}
	}
	return a
}

// layer computes layer l for the new tokens from a.In to a.Out, and appends
// their keys and values to the layer's cache.
func (r *Reference) layer(ctx context.Context, l int, a *activations) error {
	w := &r.w.Layers[l]

	// Attention.
	r.norm(a.AttnIn, a.In, w.InputNorm)
	if err := r.Linear(ctx, l, a.QProj, a.AttnIn, w.Q, w.QBias); err != nil {
		return err
	}
	if err := r.Linear(ctx, l, a.KProj, a.AttnIn, w.K, w.KBias); err != nil {
		return err
	}
	if err := r.Linear(ctx, l, a.V, a.AttnIn, w.V, w.VBias); err != nil {
		return err
	}
	r.normAndRotate(a.Q, a.QProj, w.QNorm, a)
	r.normAndRotate(a.K, a.KProj, w.KNorm, a)
	r.KV[l].Append(a.K, a.V)
	c := r.cfg
	attention := dense.Attention{Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, Scale: 1 / math.Sqrt(float64(c.HeadDim))}
	if err := attention.Attend(ctx, a.Context, a.Q, &r.KV[l], r.Pos(), a.Probs); err != nil {
		return err
	}
	if err := r.Linear(ctx, l, a.branch, a.Context, w.O, w.OBias); err != nil {
		return err
	}
	dense.Add(a.Mid, a.In, a.branch)

	// Gated MLP.
	r.norm(a.MLPIn, a.Mid, w.PostNorm)
	if err := r.Linear(ctx, l, a.Gate, a.MLPIn, w.Gate, w.GateBias); err != nil {
		return err
	}
	if err := r.Linear(ctx, l, a.Up, a.MLPIn, w.Up, w.UpBias); err != nil {
		return err
	}
	if err := dense.Gate(ctx, a.Act, a.Gate, a.Up, dense.SiLU); err != nil {
		return err
	}
	if err := r.Linear(ctx, l, a.branch, a.Act, w.Down, w.DownBias); err != nil {
		return err
	}
	dense.Add(a.Out, a.Mid, a.branch)
	return nil
}

// norm sets the rows of y to those of x, normed. y may be x.
func (r *Reference) norm(y, x dense.Matrix, weight *checkpoint.Tensor) {
	dense.NormRows(y, x, dense.Vector(weight), r.cfg.Eps)
}

// normAndRotate sets the heads in the rows of y to those of x, normed if
// there is a weight, and rotated to the token's position. y may be x.
func (r *Reference) normAndRotate(y, x dense.Matrix, weight *checkpoint.Tensor, a *activations) {
	if weight != nil {
		dense.NormHeads(y, x, r.cfg.HeadDim, dense.Vector(weight), r.cfg.Eps)
	} else {
		copy(y.Data, x.Data)
	}
	a.rotations.RotateHeads(y, r.cfg.HeadDim, r.cfg.HeadDim)
}
