package qwen35

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"anemone/coreml"
	"anemone/internal/arch"
	"anemone/internal/arch/nn"
	"anemone/internal/engine"
	"anemone/internal/runner"
	"anemone/mil"
)

// rule is a Gated DeltaNet alone, as the graph has it, with projections that
// only choose channels: what goes in is what a test wants to see there.
type rule struct {
	t      testing.TB
	cfg    *Config
	scale  []float32 // -exp(A_log) of each head
	bias   []float32 // dt_bias
	model  *engine.Model
	state  runner.State
	hidden int
}

// newRule builds functions over one token and over a batch.
func newRule(t testing.TB, cfg Config, batch, chunk int, n engine.Numerics, aLog, bias []float32) *rule {
	t.Helper()
	cfg.Layers, cfg.Full, cfg.Eps = 1, []bool{false}, 1e-6
	r := &rule{t: t, cfg: &cfg, bias: bias}
	c := r.cfg
	// Channels: what the convolution sees, the gates, rates, decays.
	r.hidden = c.ConvSize() + c.ValueSize() + 2*c.ValueHeads
	pick := func(name string, first, n int) *nn.Weight {
		return nn.Made(name, nn.Vector, []int{n, r.hidden, 1, 1}, func(dst []float32, _ int) {
			clear(dst)
			for i := range n {
				dst[i*r.hidden+first+i] = 1
			}
		}, nil)
	}
	constant := func(name string, v []float32, shape ...int) *nn.Weight {
		return nn.Constant(name, shape, func(dst []float32) { copy(dst, v) })
	}
	for _, a := range aLog {
		r.scale = append(r.scale, max(negExp(a), -65504)) // as a package stores it
	}
	taps := make([]float32, c.ConvSize()*c.Kernel)
	for i := range c.ConvSize() {
		taps[(i+1)*c.Kernel-1] = 1
	}
	ones := make([]float32, c.ValueDim)
	for i := range ones {
		ones[i] = 1
	}
	d := &delta{
		qkv: pick("qkv", 0, c.ConvSize()), z: pick("z", c.ConvSize(), c.ValueSize()),
		rate:  pick("rate", c.ConvSize()+c.ValueSize(), c.ValueHeads),
		decay: pick("decay", c.ConvSize()+c.ValueSize()+c.ValueHeads, c.ValueHeads),
		bias:  constant("bias", bias, c.ValueHeads), scale: constant("scale", r.scale, 1, c.ValueHeads, 1, 1),
		conv: constant("conv", taps, c.ConvSize(), 1, 1, c.Kernel), norm: constant("norm", ones, c.ValueDim),
		out: nn.Made("out", nn.Vector, []int{c.ValueSize(), c.ValueSize(), 1, 1}, func(dst []float32, _ int) {
			clear(dst)
			for i := range c.ValueSize() {
				dst[i*c.ValueSize()+i] = 1
			}
		}, nil),
	}
	masks := newMasks(chunk)
	build := func(name string, tokens int) *mil.Function {
		b := mil.NewBuilder(name, mil.CoreML8)
		f := function{m: &Model{cfg: c}, o: arch.Options{Batch: batch}, masks: masks, b: b, t: tokens}
		x := b.Input("x", mil.TensorOf(mil.Float16, 1, r.hidden, 1, tokens))
		for _, s := range c.states(f.o) {
			v := nn.NewRows(b, b.Input(s.Name, mil.StateOf(mil.Float16, s.Shape...)))
			if s.Name == arch.StateGDN {
				f.memory = v
			} else {
				f.window = v
			}
		}
		b.Output("y", f.delta(d, 0, x))
		fn, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		return fn
	}
	m := &coreml.Model{SpecVersion: 9, DefaultFunction: "infer", Program: &mil.Program{Functions: []*mil.Function{build("infer", 1), build("prefill", batch)}}}
	for _, f := range m.Program.Functions {
		m.Functions = append(m.Functions, coreml.Describe(f))
	}
	var err error
	if r.model, err = engine.New(m, engine.Options{Numerics: n}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.model.Close() })
	if r.state, err = r.model.NewState(); err != nil {
		t.Fatal(err)
	}
	return r
}

// token is what a Gated DeltaNet sees of a token: inputs of the convolution,
// gates, logits of the rates, and what softplus is taken of without the bias.
type token struct{ qkv, z, b, a []float32 }

// feed runs a function over as many tokens as it takes and returns its
// outputs, token by token.
func (r *rule) feed(function string, tokens []token) [][]float32 {
	r.t.Helper()
	n := len(tokens)
	x := make([]float32, r.hidden*n)
	for t, tok := range tokens {
		ch := 0
		for _, part := range [][]float32{tok.qkv, tok.z, scaled(tok.b, 0.5), tok.a} {
			for _, v := range part {
				x[ch*n+t] = v
				ch++
			}
		}
	}
	out := runner.Values{}
	if err := r.model.Predict(r.t.Context(), function, runner.Values{"x": runner.Floats(mil.Float16, x, 1, r.hidden, 1, n)}, out, r.state); err != nil {
		r.t.Fatal(err)
	}
	y := make([][]float32, n)
	for t := range y {
		for ch := range r.cfg.ValueSize() {
			y[t] = append(y[t], out["y"].Float[ch*n+t])
		}
	}
	return y
}

func scaled(x []float32, s float32) []float32 {
	y := make([]float32, len(x))
	for i, v := range x {
		y[i] = s * v
	}
	return y
}

// memory returns the state, as the contract has it.
func (r *rule) memory() []float32 {
	x, err := r.state.Read(arch.StateGDN)
	if err != nil {
		r.t.Fatal(err)
	}
	return x.Float
}

// plain runs the recurrence in float64: outputs of every token, and after
// them sqrt(d_k) S.
func (r *rule) plain(tokens []token) (out [][]float32, memory []float32) {
	c := r.cfg
	dk, dv, group := c.KeyDim, c.ValueDim, c.ValueHeads/c.KeyHeads
	silu := func(x float32) float64 { return float64(x) / (1 + math.Exp(-float64(x))) }
	unit := func(x []float32) []float64 {
		y, sum := make([]float64, len(x)), l2Eps
		for i, v := range x {
			y[i] = silu(v)
			sum += y[i] * y[i]
		}
		for i := range y {
			y[i] /= math.Sqrt(sum)
		}
		return y
	}
	s := make([][]float64, c.ValueHeads*dk)
	for i := range s {
		s[i] = make([]float64, dv)
	}
	for _, tok := range tokens {
		var y []float32
		for h := range c.ValueHeads {
			q, k := unit(tok.qkv[h/group*dk:][:dk]), unit(tok.qkv[c.KeySize()+h/group*dk:][:dk])
			v := tok.qkv[2*c.KeySize()+h*dv:][:dv]
			beta := 1 / (1 + math.Exp(-float64(tok.b[h])))
			decay := math.Exp(float64(r.scale[h]) * softplus(float64(tok.a[h])+float64(r.bias[h])))
			mem := s[h*dk : (h+1)*dk]
			o, sum := make([]float64, dv), 0.0
			for j := range dv {
				recalled := 0.0
				for i := range dk {
					mem[i][j] *= decay
					recalled += mem[i][j] * k[i]
				}
				u := beta * (silu(v[j]) - recalled)
				for i := range dk {
					mem[i][j] += k[i] * u
					o[j] += mem[i][j] * q[i] / math.Sqrt(float64(dk))
				}
				sum += o[j] * o[j]
			}
			for j := range dv {
				y = append(y, float32(o[j]/math.Sqrt(sum/float64(dv)+c.Eps)*silu(tok.z[h*dv+j])))
			}
		}
		out = append(out, y)
	}
	for _, row := range s {
		for _, v := range row {
			memory = append(memory, float32(v*math.Sqrt(float64(dk))))
		}
	}
	return out, memory
}

// stress lists what has broken chunked delta rules.
var stress = []struct {
	name  string
	aLog  float32
	bias  float32
	a     float64 // spread of what is added to the bias
	b     float64 // mean of the rates' logits
	alike float64 // part of a key that all keys have in common
	zero  int     // every so many tokens, key, query and value are zero
	size  float64 // of queries, keys and values
}{
	{name: "as trained", aLog: 1, bias: -3, a: 1, size: 1},
	{name: "no decay", aLog: -20, bias: -3, a: 1, b: 5, size: 1},
	{name: "slow decay", aLog: 0, bias: -7, a: 0.5, size: 1},
	{name: "decay 1e-12", aLog: float32(math.Log(27.6)), bias: 0.54, a: 0, size: 1},
	{name: "decays from 1 to nothing", aLog: 2, bias: 0, a: 8, size: 1},
	{name: "A_log far out", aLog: 15, bias: 0, a: 4, size: 1},
	{name: "A_log far out, dt_bias too", aLog: 15, bias: 60000, a: 1000, size: 1},
	{name: "dt_bias far out", aLog: 3, bias: 60000, a: 0, size: 1},
	{name: "dt_bias far below", aLog: 3, bias: -60000, a: 0, b: 3, size: 1},
	{name: "A_log far below, dt_bias far out", aLog: -60, bias: 60000, a: 0, size: 1},
	{name: "keys alike", aLog: 0, bias: -6, a: 0.3, b: 8, alike: 0.999, size: 2},
	{name: "keys all the same", aLog: -20, bias: -3, a: 0, b: 20, alike: 1, size: 2},
	{name: "keys all the same, rates low", aLog: -20, bias: -3, a: 0, b: -4, alike: 1, size: 2},
	{name: "zero keys", aLog: 0, bias: -3, a: 1, zero: 1, size: 1},
	{name: "zero keys among others", aLog: 0, bias: -5, a: 1, b: 2, zero: 3, size: 1},
	{name: "tiny", aLog: 0, bias: -5, a: 1, size: 1e-3},
	{name: "large", aLog: 0, bias: -5, a: 1, b: 2, size: 60},
	{name: "rates of 1", aLog: -2, bias: -5, a: 1, b: 100, size: 1},
	{name: "rates of 0", aLog: -2, bias: -5, a: 1, b: -100, size: 1}, // e^-100,
}

// TestDeltaRule compares both functions with the recurrence in float64, for
// one to three batches, and with all results rounded to fp16.
func TestDeltaRule(t *testing.T) {
	cfgs := []Config{
		{KeyHeads: 2, ValueHeads: 4, KeyDim: 32, ValueDim: 16, Kernel: 4},
		{KeyHeads: 1, ValueHeads: 3, KeyDim: 20, ValueDim: 12, Kernel: 2}, // no powers of two
	}
	for _, c := range stress {
		for i, cfg := range cfgs {
			for _, size := range []struct{ batch, chunk int }{{64, 64}, {32, 16}} {
				if i > 0 && size.chunk == 64 {
					continue
				}
				t.Run(fmt.Sprintf("%s/%d of %d", c.name, size.chunk, size.batch), func(t *testing.T) {
					rng := rand.New(rand.NewPCG(uint64(i), 11))
					normal := func(n int, mean, spread float64) []float32 {
						x := make([]float32, n)
						for i := range x {
							x[i] = half(mean + spread*rng.NormFloat64())
						}
						return x
					}
					common := normal(2*cfg.KeySize(), 0, 1)
					tokens := make([]token, 3*size.batch)
					for n := range tokens {
						tok := token{qkv: normal(cfg.ConvSize(), 0, c.size), z: normal(cfg.ValueSize(), 0.5, 1), b: normal(cfg.ValueHeads, c.b, 0.5), a: normal(cfg.ValueHeads, 0, c.a)}
						for j := range common {
							tok.qkv[j] = half((1-c.alike)*float64(tok.qkv[j]) + c.alike*c.size*float64(common[j]))
						}
						if c.zero > 0 && n%c.zero == 0 {
							clear(tok.qkv)
						}
						tokens[n] = tok
					}
					fill := func(v float32) []float32 {
						x := make([]float32, cfg.ValueHeads)
						for i := range x {
							x[i] = v
						}
						return x
					}
					aLog, bias := fill(c.aLog), fill(half(float64(c.bias)))
					for _, n := range []engine.Numerics{engine.Float32, engine.Float16} {
						bound := 1e-3
						if n == engine.Float16 {
							bound = 1e-2 // every step of a long recurrence is rounded
						}
						batches := newRule(t, cfg, size.batch, size.chunk, n, aLog, bias)
						single := newRule(t, cfg, size.batch, size.chunk, n, aLog, bias)
						for k := range 3 {
							part := tokens[k*size.batch : (k+1)*size.batch]
							var got [2][][]float32
							got[0] = batches.feed("prefill", part)
							for i := range part {
								got[1] = append(got[1], single.feed("infer", part[i:i+1])[0])
							}
							want, memory := single.plain(tokens[:(k+1)*size.batch])
							for j, how := range []string{"prefill", "infer"} {
								m := [...]*rule{batches, single}[j].memory()
								if d := relative(m, memory); !(d <= bound) || !finite(m) {
									t.Errorf("half %t, %s: after %d batches the memory differs by %.2g of it", n == engine.Float16, how, k+1, d)
								}
								worst := 0.0
								for i, y := range got[j] {
									if !finite(y) {
										t.Fatalf("half %t, %s: the output of token %d is %v", n == engine.Float16, how, i, y)
									}
									worst = max(worst, relative(y, want[k*size.batch+i]))
								}
								// Outputs are normed, so that those that are nearly
								// nothing, as those of queries that no key is like,
								// are as wrong as their difference from it is small.
								if n == engine.Float32 && !(worst <= 1e-2) {
									t.Errorf("%s: after %d batches the output of a token differs by %.2g of it", how, k+1, worst)
								}
							}
						}
					}
				})
			}
		}
	}
}

func half(x float64) float32 { return float32(mil.Half(x).Floats[0]) }

func finite(x []float32) bool {
	for _, v := range x {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return false
		}
	}
	return true
}
