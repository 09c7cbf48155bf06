package qwen35

import (
	"fmt"
	"math"

	"anemone/internal/arch"
	"anemone/internal/arch/nn"
	"anemone/mil"
)

// The Gated DeltaNet as a graph. Its memory is kept as M = sqrt(d_k) S. With
// keys and queries that have the length s sqrt(d_k) in place of 1, s being
// the power of two that brings this nearest to 1 from above, the rule
//
//	S = e^g S;  S += k (beta (v - S'k))';  o = S'q / sqrt(d_k)
//
// becomes
//
//	M = e^g M;  M += k u';  u = beta (v/s - f M'k);  o = M'q / (s d_k^1.5)
//
// with f = 1 / (s² d_k). For every released model, all these factors but the
// last are powers of two, which fp16 multiplies by exactly; the last one goes
// into the epsilon of the norm that follows.
//
// The chunked form. Write D[t,i] for e^(g_i+1 + ... + g_t), P_t for e^(g_1 +
// ... + g_t), both within a chunk that begins with the memory M. Then
//
//	u_t = beta_t v_t/s - f beta_t P_t M'k_t - sum_{i<t} A[t,i] u_i,  A[t,i] = f beta_t D[t,i] k_t'k_i
//
// so with T = (1 + A)^-1, as rows U = T (beta v/s) - T (f beta P k) M, and
//
//	O = (P q) M + (D q k') U  (D for i <= t),  M = P_C M + (D_C k)' U.
//
// Nothing here is large: k_t'k_i is at most about 2, every D and P at most 1,
// and so is every element of T, more or less, as its rows are what products of
// contractions leave. Powers of A on the other hand are large for keys that are
// alike, so T is found by doubling: if X holds the inverses of the diagonal
// blocks of n rows, those of 2n rows are X - X (A below them) X.

// minDecay bounds the logarithm of a decay from below: e^-64 is nothing, and
// the sums of a chunk of 1023 tokens stay within fp16.
const minDecay = -64

// defaultChunk is the number of tokens of a chunk unless the batch asks for
// another one.
const defaultChunk = 64

// maxChunk keeps sums of decays within fp16.
const maxChunk = 1023

// chunkSize returns the number of tokens that the delta rule takes at a time:
// the one asked for, which divides the batch, or else the largest divisor of
// the batch up to 64.
func chunkSize(o arch.Options) (int, error) {
	if n := o.GDNChunk; n != 0 {
		if n < 1 || n > min(o.Batch, maxChunk) || o.Batch%n != 0 {
			return 0, fmt.Errorf("chunks of %d tokens for the delta rule: want a divisor of the batch, %d, up to %d", n, o.Batch, maxChunk)
		}
		return n, nil
	}
	return divisor(o.Batch, defaultChunk), nil
}

// divisor returns the largest divisor of t up to n.
func divisor(t, n int) int {
	n = max(1, min(n, t))
	for t%n != 0 {
		n--
	}
	return n
}

// keyScale returns s, the factor of normed keys.
func (c *Config) keyScale() float64 {
	return math.Exp2(-math.Floor(math.Log2(float64(c.KeyDim)) / 2))
}

// masks are the constant matrices of the chunked form, n by n.
type masks struct {
	n         int
	one       *nn.Weight   // identity, [1, 1, n, n] like the others
	upTo      *nn.Weight   // [t, i] is 1 for i <= t
	below     *nn.Weight   // [t, i] is 1 for i < t; [n, n]
	blocks    []*nn.Weight // of doubling from 1, 2, 4, ... rows
	blockRows []int
}

func newMasks(n int) *masks {
	square := func(name string, shape []int, on func(t, i int) bool) *nn.Weight {
		return nn.Constant(name, shape, func(dst []float32) {
			for k := range dst {
				dst[k] = 0
				if on(k/n, k%n) {
					dst[k] = 1
				}
			}
		})
	}
	m := &masks{n: n}
	four := []int{1, 1, n, n}
	m.one = square("delta_one", four, func(t, i int) bool { return t == i })
	m.upTo = square("delta_up_to", four, func(t, i int) bool { return i <= t })
	m.below = square("delta_below", []int{n, n}, func(t, i int) bool { return i < t })
	for w := 1; w < n; w *= 2 {
		// The lower left blocks of w rows in those of 2w.
		m.blocks = append(m.blocks, square(fmt.Sprintf("delta_block_%d", w), four, func(t, i int) bool { return t/w == i/w+1 && t/w%2 == 1 }))
		m.blockRows = append(m.blockRows, w)
	}
	return m
}

// delta is the Gated DeltaNet of a layer, the slot-th of its kind, over
// channels [1, H, 1, T].
func (f *function) delta(w *delta, slot int, h *mil.Value) *mil.Value {
	b, c := f.b, f.m.cfg

	// The convolution sees the inputs of the last calls, then those of this one.
	x := nn.FromChannels(b, nn.Project(b, h, w.qkv, nil)) // [1, T, D]
	x = nn.Concat(b, 1, f.window.Read(slot, slot+1), x)
	f.window.Write(slot, slot+1, nn.Slice(b, x, 1, f.t, f.t+c.Kernel-1))
	x = nn.SiLU(b, nn.DepthwiseConv(b, nn.ToChannels(b, x), w.conv))

	// Queries and keys side by side; each head of theirs serves several of the
	// values'.
	qk := nn.Heads(b, nn.Slice(b, x, 1, 0, 2*c.KeySize()), 2*c.KeyHeads, c.KeyDim)
	qk = nn.RepeatHeads(b, nn.L2Norm(b, qk, l2Eps, c.keyScale()), c.ValueHeads/c.KeyHeads)
	q, k := nn.Slice(b, qk, 1, 0, c.ValueHeads), nn.Slice(b, qk, 1, c.ValueHeads, 2*c.ValueHeads)
	v := nn.Heads(b, nn.Slice(b, x, 1, 2*c.KeySize(), c.ConvSize()), c.ValueHeads, c.ValueDim)

	beta := nn.SigmoidOfHalf(b, nn.Project(b, h, w.rate, nil)) // [1, heads, 1, T]
	g := nn.Mul(b, nn.Softplus(b, nn.Project(b, h, w.decay, w.bias)), nn.Use(b, w.scale))
	g = nn.AtLeast(b, g, minDecay)

	from, to := slot*c.ValueHeads, (slot+1)*c.ValueHeads
	memory := f.memory.Read(from, to)
	var o *mil.Value
	if f.t == 1 {
		o, memory = f.step(memory, q, k, v, g, beta)
	} else {
		o, memory = f.chunks(memory, q, k, v, g, beta)
	}
	f.memory.Write(from, to, nn.Reshape(b, memory, c.ValueHeads, c.KeyDim, c.ValueDim))

	// o is larger than the reference's, and so is its epsilon.
	larger := c.keyScale() * math.Pow(float64(c.KeyDim), 1.5)
	o = nn.MergeHeads(b, nn.RMSNorm(b, o, w.norm, c.Eps*larger*larger))
	o = nn.Mul(b, o, nn.SiLU(b, nn.Project(b, h, w.z, nil)))
	return nn.Project(b, o, w.out, nil)
}

// step is the rule for one token: q, k, v [1, heads, 1, dim], g and beta
// [1, heads, 1, 1].
func (f *function) step(memory, q, k, v, g, beta *mil.Value) (o, after *mil.Value) {
	b, c := f.b, f.m.cfg
	s := c.keyScale()
	m := nn.Mul(b, nn.Reshape(b, memory, 1, c.ValueHeads, c.KeyDim, c.ValueDim), nn.Exp(b, g))
	recalled := f.times(nn.Matmul(b, k, m), 1/(s*s*float64(c.KeyDim)))
	u := nn.Mul(b, nn.Sub(b, nn.Scale(b, v, 1/s), recalled), beta)
	m = nn.Add(b, m, nn.Mul(b, nn.Reshape(b, k, 1, c.ValueHeads, c.KeyDim, 1), u))
	return nn.Matmul(b, q, m), m
}

// times returns x times a constant, x itself if that is 1.
func (f *function) times(x *mil.Value, s float64) *mil.Value {
	if s == 1 {
		return x
	}
	return nn.Scale(f.b, x, s)
}

// chunks is the rule for T tokens: q, k, v [1, heads, T, dim], g and beta
// [1, heads, 1, T].
func (f *function) chunks(memory, q, k, v, g, beta *mil.Value) (o, after *mil.Value) {
	b, c, heads, n := f.b, f.m.cfg, f.m.cfg.ValueHeads, f.masks.n
	s := c.keyScale()

	// What does not depend on the memory is computed for all chunks at once:
	// the first two axes are 1 and the heads, or the heads and the chunks.
	count := f.t / n
	batch := []int{1, heads}
	if count > 1 {
		batch = []int{heads, count}
	}
	shaped := func(x *mil.Value, rows, cols int) *mil.Value {
		if s := x.Type.Shape; len(s) == 4 && s[0] == batch[0] && s[1] == batch[1] && s[2] == rows && s[3] == cols {
			return x
		}
		return nn.Reshape(b, x, batch[0], batch[1], rows, cols)
	}
	q, k, v = shaped(q, n, c.KeyDim), shaped(k, n, c.KeyDim), shaped(v, n, c.ValueDim)
	g, beta = shaped(g, 1, n), shaped(beta, n, 1)

	// Decays. Each exponent is a sum of those between two tokens: differences
	// of sums from the chunk's beginning would cancel.
	terms := nn.Mul(b, g, nn.Use(b, f.masks.upTo))                      // [t, i] is g_i for i <= t
	between := nn.Exp(b, nn.Matmul(b, terms, nn.Use(b, f.masks.below))) // [t, i] for i <= t, else 1
	start := nn.Exp(b, nn.Sum(b, terms, -1))                            // from the beginning, a column
	end := shaped(nn.Slice(b, between, 2, n-1, n), n, 1)                // to the end, a column
	all := nn.Slice(b, start, 2, n-1, n)                                // from the one to the other
	scores := nn.Mul(b, nn.MatmulT(b, q, k), nn.Mul(b, between, nn.Use(b, f.masks.upTo)))

	kb := nn.Mul(b, k, f.times(beta, 1/(s*s*float64(c.KeyDim))))
	u := nn.Mul(b, v, nn.Scale(b, beta, 1/s))
	w := nn.Mul(b, kb, start)
	if n > 1 {
		inverse := f.inverse(nn.Mul(b, nn.MatmulT(b, kb, k), between))
		u, w = nn.Matmul(b, inverse, u), nn.Matmul(b, inverse, w)
	}
	q, k = nn.Mul(b, q, start), nn.Mul(b, k, end)

	// One chunk after the other.
	m := nn.Reshape(b, memory, batch[0], heads/batch[0], c.KeyDim, c.ValueDim)
	var out []*mil.Value
	for i := range count {
		of := func(x *mil.Value) *mil.Value {
			if count == 1 {
				return x
			}
			return nn.Slice(b, x, 1, i, i+1)
		}
		added := nn.Sub(b, of(u), nn.Matmul(b, of(w), m))
		out = append(out, nn.Add(b, nn.Matmul(b, of(q), m), nn.Matmul(b, of(scores), added)))
		m = nn.Add(b, nn.Mul(b, m, of(all)), nn.TMatmul(b, of(k), added))
	}
	o = out[0]
	if count > 1 {
		o = nn.Reshape(b, nn.Concat(b, 1, out...), 1, heads, f.t, c.ValueDim)
	}
	return o, m
}

// inverse returns (1 + a)^-1, where only what is below the diagonal of a
// counts.
func (f *function) inverse(a *mil.Value) *mil.Value {
	b := f.b
	var x *mil.Value
	for i, block := range f.masks.blocks {
		below := nn.Mul(b, a, nn.Use(b, block))
		if i == 0 {
			x = nn.Sub(b, nn.Use(b, f.masks.one), below)
			continue
		}
		x = nn.Sub(b, x, nn.Matmul(b, nn.Matmul(b, x, below), x))
	}
	return x
}
