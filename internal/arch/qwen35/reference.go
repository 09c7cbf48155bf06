package qwen35

import (
	"context"
	"fmt"
	"math"

	"anemone/internal/arch"
	"anemone/internal/arch/dense"
	"anemone/internal/checkpoint"
)

// Reference computes a Qwen3.5 checkpoint in float32; see [arch.Reference].
// Gated DeltaNets are computed token by token.
//
// What they remember cannot be rewound. The reference keeps what it was before
// the last tokens that were fed; to go back to a position behind that, the
// tokens in between are computed again, together with the next ones. To go
// back further, all are. Nobody sees them again.
//
// Of a mixture of experts, an [arch.Observer] sees the rows of those tokens
// only that an expert serves. The weight of an expert that shares a tensor with
// others is called after the tensor and its number, as in "...down_proj[3]".
type Reference struct {
	cfg *Config
	w   *WeightSet
	obs arch.Observer

	tokens []int32    // fed so far
	cache  []dense.KV // of each layer, keys normed and rotated; empty for Gated DeltaNets
	// now are the memories after the first nowAt tokens; old those after the
	// first oldAt, which are nil for 0.
	now, old     []memory
	nowAt, oldAt int
	// frequencies of the rotary embedding, in radians per position, for each
	// pair of dimensions.
	frequencies []float32
}

// memory is what a Gated DeltaNet remembers; attention layers have an empty
// one.
type memory struct {
	s    []float32 // S [ValueHeads, KeyDim, ValueDim]
	conv []float32 // the last inputs of the convolution, [Kernel-1, ConvSize]
}

var _ arch.Reference = (*Reference)(nil)

// Reference returns the float32 computation of the model, with no tokens fed.
// The checkpoint must stay open while it is used.
func (m *Model) Reference() (arch.Reference, error) { return newReference(m.cfg, m.set), nil }

func newReference(cfg *Config, w *WeightSet) *Reference {
	r := &Reference{cfg: cfg, w: w, cache: make([]dense.KV, cfg.Layers), now: make([]memory, cfg.Layers), frequencies: dense.Frequencies(cfg.RopeTheta, cfg.Rotary, cfg.Rotary/2)}
	for i, full := range cfg.Full {
		if !full {
			r.now[i] = memory{make([]float32, cfg.ValueHeads*cfg.KeyDim*cfg.ValueDim), make([]float32, (cfg.Kernel-1)*cfg.ConvSize())}
		}
	}
	return r
}

// VocabSize implements [arch.Reference].
func (r *Reference) VocabSize() int { return r.cfg.Vocab }

// Pos implements [arch.Reference].
func (r *Reference) Pos() int { return len(r.tokens) }

// Observe implements [arch.Reference].
func (r *Reference) Observe(o arch.Observer) { r.obs = o }

// Truncate implements [arch.Reference].
func (r *Reference) Truncate(n int) error {
	if n < 0 || n > len(r.tokens) {
		return fmt.Errorf("cannot keep %d tokens of %d", n, len(r.tokens))
	}
	r.tokens = r.tokens[:n]
	if n < r.nowAt {
		r.back(n)
	}
	return nil
}

// back makes the memories those of n tokens or fewer.
func (r *Reference) back(n int) {
	if n < r.oldAt {
		r.old, r.oldAt = nil, 0
	}
	for i := range r.now {
		if r.old != nil {
			copy(r.now[i].s, r.old[i].s)
			copy(r.now[i].conv, r.old[i].conv)
		} else {
			clear(r.now[i].s)
			clear(r.now[i].conv)
		}
	}
	r.nowAt = r.oldAt
	for i := range r.cache {
		r.cache[i].Truncate(r.nowAt, r.cfg.KVSize())
	}
}

// Forward implements [arch.Reference].
func (r *Reference) Forward(ctx context.Context, tokens []int32, want func(i int) bool, visit func(i int, logits []float32) error) (err error) {
	pos := len(r.tokens)
	if err := arch.CheckTokens(tokens, pos, r.cfg.Vocab); err != nil {
		return err
	}
	if len(tokens) == 0 {
		return nil
	}
	again := r.tokens[r.nowAt:]
	p := &pass{r: r, from: len(again), old: make([]memory, r.cfg.Layers)}
	r.tokens = append(r.tokens, tokens...)
	defer func() {
		if err != nil {
			r.tokens = r.tokens[:pos]
			r.back(min(pos, r.nowAt))
		}
	}()

	all := r.tokens[r.nowAt:]
	p.alloc(len(all))
	for i, t := range all {
		r.w.Embed.Float32(p.x.Row(i), int(t)*r.cfg.Hidden)
	}
	p.hidden(-1, p.x)
	for l := range r.cfg.Layers {
		if err := p.layer(ctx, l); err != nil {
			return fmt.Errorf("layer %d: %w", l, err)
		}
		p.hidden(l, p.x)
	}
	p.norm(p.in, p.x, r.w.FinalNorm)
	p.hidden(r.cfg.Layers, p.in)
	if visit != nil {
		see := func(x dense.Matrix) { p.r.obs.SeeLinear(-1, r.w.Head.Name, x) }
		if err := dense.Head(ctx, p.in.Slice(p.from, p.in.Rows), r.w.Head, r.cfg.Vocab, want, see, visit); err != nil {
			return err
		}
	}
	r.old, r.oldAt = p.old, pos
	r.nowAt = len(r.tokens)
	return nil
}

// pass is the computation of some tokens: those from the row `from` on are
// new, those before it have been computed before.
type pass struct {
	r    *Reference
	from int
	// old gets the memories before the first new token.
	old []memory

	x      dense.Matrix // the residual stream [Hidden]
	in     dense.Matrix // normed [Hidden]
	branch dense.Matrix // what is added to x [Hidden]

	rotations dense.Rotations // of the tokens
}

func (p *pass) alloc(n int) {
	c := p.r.cfg
	p.x, p.in, p.branch = dense.New(n, c.Hidden), dense.New(n, c.Hidden), dense.New(n, c.Hidden)
	p.rotations = dense.NewRotations(p.r.frequencies, p.r.nowAt, n)
}

func (p *pass) hidden(layer int, x dense.Matrix) {
	p.r.obs.SeeHidden(layer, x.Slice(p.from, x.Rows))
}

// linear sets y to the output of a linear layer, after the observer has seen
// the rows of x that belong to new tokens.
func (p *pass) linear(ctx context.Context, layer int, y, x dense.Matrix, w *checkpoint.Tensor) error {
	p.r.obs.SeeLinear(layer, w.Name, x.Slice(p.from, x.Rows))
	return dense.Linear(ctx, y, x, w, nil)
}

// norm sets the rows of y to those of x, normed. y may be x.
func (p *pass) norm(y, x dense.Matrix, weight *checkpoint.Tensor) {
	dense.NormRows(y, x, dense.FromOne(weight), p.r.cfg.Eps)
}

// layer computes layer l in place.
func (p *pass) layer(ctx context.Context, l int) error {
	w := &p.r.w.Layers[l]
	p.norm(p.in, p.x, w.InputNorm)
	err := ctx.Err()
	switch {
	case err != nil:
	case w.Attention != nil:
		err = p.attention(ctx, l, w.Attention)
	default:
		err = p.delta(ctx, l, w.Delta)
	}
	if err != nil {
		return err
	}
	dense.Add(p.x, p.x, p.branch)
	p.norm(p.in, p.x, w.PostNorm)
	if w.MLP != nil {
		err = p.mlp(ctx, l, p.branch, w.MLP)
	} else {
		err = p.experts(ctx, l, w.Experts)
	}
	if err != nil {
		return err
	}
	dense.Add(p.x, p.x, p.branch)
	return nil
}

// mlp sets out to the gated MLP of p.in.
func (p *pass) mlp(ctx context.Context, l int, out dense.Matrix, w *MLP) error {
	gate, up := dense.New(p.in.Rows, w.Gate.Shape[0]), dense.New(p.in.Rows, w.Gate.Shape[0])
	if err := p.linear(ctx, l, gate, p.in, w.Gate); err != nil {
		return err
	}
	if err := p.linear(ctx, l, up, p.in, w.Up); err != nil {
		return err
	}
	if err := dense.Gate(ctx, gate, gate, up, dense.SiLU); err != nil {
		return err
	}
	return p.linear(ctx, l, out, gate, w.Down)
}

// attention sets p.branch to the full attention of p.in.
func (p *pass) attention(ctx context.Context, l int, w *Attention) error {
	c, n := p.r.cfg, p.in.Rows
	both := dense.New(n, 2*c.QuerySize())
	q, gate := dense.New(n, c.QuerySize()), dense.New(n, c.QuerySize())
	k, v := dense.New(n, c.KVSize()), dense.New(n, c.KVSize())
	for _, f := range []struct {
		y dense.Matrix
		w *checkpoint.Tensor
	}{{both, w.Q}, {k, w.K}, {v, w.V}} {
		if err := p.linear(ctx, l, f.y, p.in, f.w); err != nil {
			return err
		}
	}
	for t := range n {
		for h := range c.Heads {
			head := both.Row(t)[2*h*c.HeadDim:]
			copy(q.Row(t)[h*c.HeadDim:], head[:c.HeadDim])
			copy(gate.Row(t)[h*c.HeadDim:], head[c.HeadDim:2*c.HeadDim])
		}
	}
	p.normAndRotate(q, dense.FromOne(w.QNorm))
	p.normAndRotate(k, dense.FromOne(w.KNorm))
	p.r.cache[l].Append(k, v)
	attention := dense.Attention{Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, Scale: 1 / math.Sqrt(float64(c.HeadDim))}
	if err := attention.Attend(ctx, q, q, &p.r.cache[l], p.r.nowAt, nil); err != nil {
		return err
	}
	for i, g := range gate.Data {
		q.Data[i] = float32(float64(q.Data[i]) * dense.Sigmoid(g))
	}
	return p.linear(ctx, l, p.branch, q, w.O)
}

// normAndRotate norms each head in the rows of x and rotates its first
// dimensions to the token's position.
func (p *pass) normAndRotate(x dense.Matrix, weight []float32) {
	c := p.r.cfg
	dense.NormHeads(x, x, c.HeadDim, weight, c.Eps)
	p.rotations.RotateHeads(x, c.HeadDim, c.Rotary)
}

// delta sets p.branch to the Gated DeltaNet of p.in, and its memory to that
// after the last token.
func (p *pass) delta(ctx context.Context, l int, w *Delta) error {
	c, n := p.r.cfg, p.in.Rows
	qkv, z := dense.New(n, c.ConvSize()), dense.New(n, c.ValueSize())
	rate, decay := dense.New(n, c.ValueHeads), dense.New(n, c.ValueHeads)
	for _, f := range []struct {
		y dense.Matrix
		w *checkpoint.Tensor
	}{{qkv, w.QKV}, {z, w.Z}, {rate, w.B}, {decay, w.A}} {
		if err := p.linear(ctx, l, f.y, p.in, f.w); err != nil {
			return err
		}
	}
	m, old := &p.r.now[l], &p.old[l]
	*old = memory{make([]float32, len(m.s)), make([]float32, len(m.conv))}
	p.convolve(qkv, dense.Vector(w.Conv), m, old)
	for i, b := range rate.Data {
		rate.Data[i] = float32(dense.Sigmoid(b))
	}
	aLog, bias := dense.Vector(w.ALog), dense.Vector(w.DTBias)
	for t := range n {
		for h := range decay.Row(t) {
			decay.Row(t)[h] = float32(math.Exp(-math.Exp(float64(aLog[h])) * softplus(float64(decay.Row(t)[h]+bias[h]))))
		}
	}
	o := dense.New(n, c.ValueSize())
	if err := p.recur(ctx, o, qkv, rate, decay, m, old); err != nil {
		return err
	}
	dense.NormHeads(o, o, c.ValueDim, dense.Vector(w.Norm), c.Eps)
	for i, g := range z.Data {
		o.Data[i] *= dense.SiLU(g)
	}
	return p.linear(ctx, l, p.branch, o, w.Out)
}

// softplus returns log(1 + e^x).
func softplus(x float64) float64 { return math.Max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

// convolve replaces each row of x by the convolution of it and the ones before
// it, activated. The last inputs go to m, those before the first new token to
// old.
func (p *pass) convolve(x dense.Matrix, w []float32, m, old *memory) {
	kernel, d := p.r.cfg.Kernel, x.Cols
	seen := append(append(make([]float32, 0, len(m.conv)+len(x.Data)), m.conv...), x.Data...)
	for t := range x.Rows {
		row := x.Row(t)
		for ch := range row {
			var sum float64
			for k := range kernel {
				sum += float64(seen[(t+k)*d+ch]) * float64(w[ch*kernel+k])
			}
			row[ch] = dense.SiLU(float32(sum))
		}
	}
	copy(old.conv, seen[p.from*d:])
	copy(m.conv, seen[x.Rows*d:])
}

// recur runs the delta rule over rows of queries, keys and values, with a
// rate and a decay for each head. The rows of o get its outputs.
func (p *pass) recur(ctx context.Context, o, qkv, rate, decay dense.Matrix, m, old *memory) error {
	c := p.r.cfg
	dk, dv, size := c.KeyDim, c.ValueDim, c.KeyDim*c.ValueDim
	group := c.ValueHeads / c.KeyHeads
	scale := 1 / math.Sqrt(float64(dk))
	type scratch struct {
		q, k []float32
		sum  []float64
	}
	newScratch := func() *scratch { return &scratch{make([]float32, dk), make([]float32, dk), make([]float64, dv)} }
	return dense.ParallelScratch(ctx, c.ValueHeads, newScratch, func(s *scratch, h int) error {
		mem := m.s[h*size : (h+1)*size]
		for t := range o.Rows {
			if t == p.from {
				copy(old.s[h*size:], mem)
			}
			row, at := qkv.Row(t), h/group*dk
			unit(s.q, row[at:at+dk])
			unit(s.k, row[c.KeySize()+at:][:dk])
			v, out := row[2*c.KeySize()+h*dv:][:dv], o.Row(t)[h*dv:][:dv]
			e, beta := decay.Row(t)[h], float64(rate.Row(t)[h])
			// What the memory, decayed, has under the key.
			clear(s.sum)
			for i, k := range s.k {
				r := mem[i*dv : (i+1)*dv]
				for j := range r {
					r[j] *= e
					s.sum[j] += float64(k) * float64(r[j])
				}
			}
			for j := range out {
				out[j] = float32(beta * (float64(v[j]) - s.sum[j]))
			}
			// The update, and the output of what results.
			clear(s.sum)
			for i, k := range s.k {
				r, q := mem[i*dv:(i+1)*dv], float64(s.q[i])
				for j := range r {
					r[j] = float32(float64(r[j]) + float64(k)*float64(out[j]))
					s.sum[j] += q * float64(r[j])
				}
			}
			for j, v := range s.sum {
				out[j] = float32(v * scale)
			}
		}
		return nil
	})
}

// unit sets dst to x / sqrt(sum x² + 1e-6).
func unit(dst, x []float32) {
	f := 1 / math.Sqrt(dense.Dot(x, x)+l2Eps)
	for i, v := range x {
		dst[i] = float32(float64(v) * f)
	}
}

// experts sets p.branch to the mixture of experts of p.in.
func (p *pass) experts(ctx context.Context, l int, w *Experts) error {
	c, m, n := p.r.cfg, p.r.cfg.MoE, p.in.Rows
	// The expert of all tokens.
	if err := p.mlp(ctx, l, p.branch, &w.Shared); err != nil {
		return err
	}
	share, router := dense.New(n, 1), dense.New(n, m.Experts)
	if err := p.linear(ctx, l, share, p.in, w.SharedGate); err != nil {
		return err
	}
	if err := p.linear(ctx, l, router, p.in, w.Router); err != nil {
		return err
	}
	for t := range n {
		s := dense.Sigmoid(share.Data[t])
		row := p.branch.Row(t)
		for i, v := range row {
			row[i] = float32(float64(v) * s)
		}
	}
	for t := range n {
		choose(router.Row(t), m.PerToken)
	}
	// The others, in their order, so that the sums do not depend on which
	// tokens are computed together.
	for e := range m.Experts {
		var rows []int
		seen := 0 // of those before the first new token
		for t := range n {
			if router.Row(t)[e] > 0 {
				if rows = append(rows, t); t < p.from {
					seen++
				}
			}
		}
		if len(rows) == 0 {
			continue
		}
		in := dense.New(len(rows), c.Hidden)
		for i, t := range rows {
			copy(in.Row(i), p.in.Row(t))
		}
		out, err := p.expert(ctx, l, w, e, in, seen)
		if err != nil {
			return err
		}
		for i, t := range rows {
			weight, row := float64(router.Row(t)[e]), p.branch.Row(t)
			for j, v := range out.Row(i) {
				row[j] = float32(float64(row[j]) + weight*float64(v))
			}
		}
	}
	return nil
}

// choose replaces the logits of a router by the weights of the k experts that
// it chooses, 0 for the others. Of equal probabilities the first counts as
// larger.
func choose(x []float32, k int) {
	dense.Softmax(x)
	kept := make([]bool, len(x))
	var sum float64
	for range k {
		best := -1
		for e, p := range x {
			if !kept[e] && (best < 0 || p > x[best]) {
				best = e
			}
		}
		kept[best] = true
		sum += float64(x[best])
	}
	for e, p := range x {
		if x[e] = 0; kept[e] {
			x[e] = float32(float64(p) / sum)
		}
	}
}

// expert returns what an expert makes of rows, of which the observer sees
// those from the row `from` on.
func (p *pass) expert(ctx context.Context, l int, w *Experts, e int, in dense.Matrix, from int) (dense.Matrix, error) {
	c, width := p.r.cfg, p.r.cfg.MoE.Intermediate
	gate, up, out := dense.New(in.Rows, width), dense.New(in.Rows, width), dense.New(in.Rows, c.Hidden)
	linear := func(y, x dense.Matrix, w dense.Weight, name string) error {
		if from < x.Rows {
			p.r.obs.SeeLinear(l, name, x.Slice(from, x.Rows))
		}
		return dense.Linear(ctx, y, x, w, nil)
	}
	gateW, upW, downW, gateName, upName, downName := w.expert(e, width, c.Hidden)
	if err := linear(gate, in, gateW, gateName); err != nil {
		return out, err
	}
	if err := linear(up, in, upW, upName); err != nil {
		return out, err
	}
	if err := dense.Gate(ctx, gate, gate, up, dense.SiLU); err != nil {
		return out, err
	}
	return out, linear(out, gate, downW, downName)
}

// expert returns the weights of an expert and their names.
func (w *Experts) expert(e, width, hidden int) (gate, up, down dense.Weight, gateName, upName, downName string) {
	if w.GateUp == nil {
		x := &w.Split[e]
		return x.Gate, x.Up, x.Down, x.Gate.Name, x.Up.Name, x.Down.Name
	}
	both, name := 2*width*hidden, fmt.Sprintf("%s[%d]", w.GateUp.Name, e)
	return part{w.GateUp, e * both}, part{w.GateUp, e*both + both/2}, part{w.Down, e * width * hidden},
		name, name, fmt.Sprintf("%s[%d]", w.Down.Name, e)
}

// part is a matrix that begins at an element of a tensor.
type part struct {
	t     *checkpoint.Tensor
	first int
}

// Float32 implements [dense.Weight].
func (p part) Float32(dst []float32, offset int) { p.t.Float32(dst, p.first+offset) }
