package qwen35

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"anemone/coreml/mlpackage"
	"anemone/internal/anemll"
	"anemone/internal/arch"
	"anemone/internal/arch/archtest"
	"anemone/internal/arch/dense"
	"anemone/internal/compress"
	"anemone/internal/engine"
	"anemone/internal/session"
	"anemone/internal/testutil"
	"anemone/mil"
)

func convert(t testing.TB, dir string, o anemll.Options) (string, *anemll.Report) {
	t.Helper()
	o.Format, o.Name = anemll.MLPackage, "test"
	return archtest.Write(t, Architecture, dir, o)
}

// load opens a package in the engine and returns an empty session.
func load(t testing.TB, dir string, n engine.Numerics) (*anemll.Package, *session.Session) {
	t.Helper()
	m := archtest.Load(t, dir, n)
	return m.Package(), archtest.Session(t, m)
}

// holds holds logits at some positions to the golden's: the lowest cosine and
// the mean, and how many best tokens may differ.
func holds(t *testing.T, what string, g archtest.Golden, logits dense.Matrix, at []int, lowest, mean float64, others int) {
	t.Helper()
	low, sum, diff, wrong := 1.0, 0.0, 0.0, 0
	for _, i := range at {
		c := archtest.Cosine(logits.Row(i), g.Logits.Row(i))
		low, sum, diff = min(low, c), sum+c, max(diff, archtest.Difference(logits.Row(i), g.Logits.Row(i)))
		a, err := arch.Argmax(logits.Row(i))
		if err != nil {
			t.Fatalf("%s: token %d: %v", what, i, err)
		}
		if b, _ := arch.Argmax(g.Logits.Row(i)); a != b {
			wrong++
		}
	}
	t.Logf("%s: %d positions, lowest cosine %.7f, mean %.7f, largest difference %.4f, %d other tokens", what, len(at), low, sum/float64(len(at)), diff, wrong)
	if len(at) == 0 || !(low >= lowest) || !(sum/float64(len(at)) >= mean) || wrong > others {
		t.Errorf("%s: want a cosine of at least %g, %g in the mean, and at most %d other tokens", what, lowest, mean, others)
	}
}

var modes = map[session.Mode]string{session.Contract: "contract", session.InferOnly: "infer only"}

// TestPackageGolden holds packages to transformers' logits: dense and with
// experts, in the contract's sequence and token by token, in any number of
// chunks, with every result rounded to fp16 and not. With as many chunks as
// layers, each has layers of one kind and reads states that it does not use.
func TestPackageGolden(t *testing.T) {
	for _, c := range trained {
		g := archtest.OpenGolden(t, testutil.Data(t, "goldens", c.golden))
		options := []anemll.Options{{Batch: 64, Chunks: 1}, {Batch: 32, Chunks: 3}, {Batch: 64, Chunks: 4, GDNChunk: 16}}
		if testing.Short() {
			options = options[:1]
		}
		for _, o := range options {
			o.Context = 256
			dir, _ := convert(t, testutil.Data(t, "checkpoints", c.checkpoint), o)
			for _, n := range []engine.Numerics{engine.Float32, engine.Float16} {
				if n == engine.Float16 && o.Chunks != 1 {
					continue
				}
				_, s := load(t, dir, n)
				for mode, name := range modes {
					s.Reset()
					logits, at := archtest.Each(t, s, g.Tokens, mode)
					lowest, mean, others := 0.9999, 0.9999, 0
					if n == engine.Float16 {
						lowest, mean, others = 0.999, 0.9999, 2
					}
					holds(t, fmt.Sprintf("%s, batch %d, %d chunks, %s, half %t", c.checkpoint, o.Batch, o.Chunks, name, n == engine.Float16), g, logits, at, lowest, mean, others)
				}
			}
		}
	}
}

// TestPackageRandom holds packages of checkpoints with other shapes to what
// was computed in float64, logits and states: heads whose size is no power of
// two, three values for a key, chunks of the delta rule of any size.
func TestPackageRandom(t *testing.T) {
	for _, name := range random {
		g := archtest.OpenGolden(t, filepath.Join("testdata", name, "golden.safetensors"))
		for _, o := range []anemll.Options{
			{Batch: 33, Chunks: 1}, // of which the chunk is all
			{Batch: 8, Chunks: 2},
			{Batch: 12, Chunks: 1, GDNChunk: 4},
			{Batch: 12, Chunks: 2, GDNChunk: 3},
			{Batch: 10, Chunks: 1, GDNChunk: 5},
			{Batch: 11, Chunks: 1, GDNChunk: 1},
			{Batch: 2, Chunks: 1},
		} {
			o.Context, o.SplitHead = 64, 3
			dir, _ := convert(t, filepath.Join("testdata", name), o)
			p, s := load(t, dir, engine.Float32)
			for mode, how := range modes {
				s.Reset()
				logits, at := archtest.Each(t, s, g.Tokens, mode)
				what := fmt.Sprintf("%s, batch %d, delta chunk %d, %s", name, o.Batch, p.Meta.GDNChunkSize, how)
				holds(t, what, g, logits, at, 0.9999, 0.9999, 0)
				checkStates(t, what, name, g, s)
			}
		}
	}
}

// checkStates compares the states after the golden's last token with the
// golden's memories.
func checkStates(t *testing.T, what, name string, g archtest.Golden, s *session.Session) {
	t.Helper()
	c := openModel(t, filepath.Join("testdata", name)).cfg
	state := func(name string) []float32 {
		x, err := s.States()[0].Read(name)
		if err != nil {
			t.Fatal(err)
		}
		return x.Float
	}
	memory, conv := state(arch.StateGDN), state(arch.StateConv)
	n, m := (c.Kernel-1)*c.ConvSize(), c.ValueHeads*c.KeyDim*c.ValueDim
	for j, l := range c.LinearLayers() {
		want := g.Matrix(t, fmt.Sprintf("memory.%d", l)).Clone().Data
		for i := range want {
			want[i] *= float32(math.Sqrt(float64(c.KeyDim)))
		}
		for part, x := range map[string][2][]float32{
			"memory": {memory[j*m : (j+1)*m], want}, "conv": {conv[j*n : (j+1)*n], g.Matrix(t, fmt.Sprintf("conv.%d", l)).Data},
		} {
			// Weights are rounded to fp16.
			if d := relative(x[0], x[1]); !(d <= 2e-3) {
				t.Errorf("%s: the %s of layer %d differs by %.2g of it", what, part, l, d)
			}
		}
	}
}

// relative returns the difference of a from b as a part of b, as norms; of
// nearly nothing, the difference.
func relative(a, b []float32) float64 {
	if len(a) != len(b) {
		return math.Inf(1)
	}
	d := make([]float32, len(a))
	for i := range d {
		d[i] = a[i] - b[i]
	}
	n := math.Sqrt(dense.Dot(b, b))
	if n < 1e-12 {
		n = 1
	}
	return math.Sqrt(dense.Dot(d, d)) / n
}

// snapshot returns the logits after the last token and the contents of the
// states.
func snapshot(t *testing.T, s *session.Session) map[string][]float32 {
	t.Helper()
	m := map[string][]float32{"logits": slices.Clone(s.Logits())}
	st := s.States()[0]
	for _, name := range st.Names() {
		x, err := st.Read(name)
		if err != nil {
			t.Fatal(err)
		}
		m[name] = x.Float
	}
	return m
}

// TestPrefillIsInfer: after every batch the states are those of the same
// tokens one by one, and so are the next logits, whatever the chunk of the
// delta rule, under every encoding.
func TestPrefillIsInfer(t *testing.T) {
	const batch = 64
	r := rand.New(rand.NewPCG(9, 10))
	ids := make([]int32, 3*batch+5)
	for i := range ids {
		ids[i] = int32(r.IntN(1024))
	}
	for _, c := range trained {
		for _, e := range []compress.Encoding{{}, {Bits: 6, Group: 8}, {Bits: 4, Group: 8}} {
			sizes := []int{16, 32, 64}
			if c.checkpoint != "tiny-qwen35" || testing.Short() {
				sizes = []int{32}
			}
			var single []map[string][]float32 // after every batch, of tokens one by one
			var last [][]float32              // logits of each size after the last token
			for _, n := range sizes {
				dir, _ := convert(t, testutil.Data(t, "checkpoints", c.checkpoint), anemll.Options{Context: 256, Batch: batch, Chunks: 2, GDNChunk: n, FFN: e, Head: e})
				_, s := load(t, dir, engine.Float32)
				if single == nil {
					for part := range slices.Chunk(ids, batch) {
						archtest.Each(t, s, part, session.InferOnly)
						single = append(single, snapshot(t, s))
					}
					s.Reset()
				}
				i := 0
				for part := range slices.Chunk(ids, batch) {
					if _, err := s.Feed(t.Context(), part); err != nil {
						t.Fatal(err)
					}
					got := snapshot(t, s)
					for name, want := range single[i] {
						if d := relative(got[name], want); !(d <= 1e-3) {
							t.Errorf("%s, %v, delta chunk %d: after %d tokens %s differs by %.2g of it", c.checkpoint, e, n, s.Pos(), name, d)
						}
					}
					if i++; i == len(single) {
						last = append(last, got["logits"])
					}
				}
			}
			for i := range last {
				if d := archtest.Difference(last[i], last[0]); !(d <= 1e-3) {
					t.Errorf("%s, %v: logits of delta chunks %d and %d differ by %g", c.checkpoint, e, sizes[0], sizes[i], d)
				}
			}
		}
	}
}

// TestPromptLengths: a prompt of any length, whatever its remainder, gives the
// logits of its tokens one by one, and so does what follows it; two sessions
// that take turns do not see each other.
func TestPromptLengths(t *testing.T) {
	const batch = 32
	r := rand.New(rand.NewPCG(11, 12))
	ids := make([]int32, 131)
	for i := range ids {
		ids[i] = int32(r.IntN(1024))
	}
	lengths := []int{1, 2, 3, 4, 5, 31, 32, 33, 34, 63, 64, 65, 96, 97, 127, 128, 129, 130}
	for _, c := range trained {
		dir, _ := convert(t, testutil.Data(t, "checkpoints", c.checkpoint), anemll.Options{Context: 256, Batch: batch, Chunks: 2})
		m := archtest.Load(t, dir, engine.Float32)
		a, b := archtest.Session(t, m), archtest.Session(t, m)
		want, _ := archtest.Each(t, a, ids, session.InferOnly)
		for _, n := range lengths {
			a.Reset()
			b.Reset()
			got, err := a.Feed(t.Context(), ids[:n])
			if err != nil {
				t.Fatal(err)
			}
			if d := archtest.Difference(got, want.Row(n-1)); !(d <= 1e-3) {
				t.Errorf("%s: after a prompt of %d the logits differ by %g", c.checkpoint, n, d)
			}
			// Something else elsewhere.
			if _, err := b.Feed(t.Context(), ids[131-n:]); err != nil {
				t.Fatal(err)
			}
			if got, err = a.Feed(t.Context(), ids[n:n+1]); err != nil {
				t.Fatal(err)
			}
			if d := archtest.Difference(got, want.Row(n)); !(d <= 1e-3) {
				t.Errorf("%s: a token after a prompt of %d the logits differ by %g", c.checkpoint, n, d)
			}
		}
	}
}

// TestFusedIsSplit: how a checkpoint holds its experts makes no difference to
// the package.
func TestFusedIsSplit(t *testing.T) {
	o := anemll.Options{Context: 64, Batch: 16, Chunks: 2, SplitHead: 2, FFN: compress.Encoding{Bits: 4, Group: 8}}
	compare := func(t *testing.T, fused, split string, whole bool) {
		a, _ := convert(t, fused, o)
		b, _ := convert(t, split, o)
		x, y := testutil.Hashes(t, a), testutil.Hashes(t, b)
		for name := range x {
			if !whole && !strings.HasSuffix(name, "weight.bin") {
				continue // the prefixes of the names differ, and config.json
			}
			if x[name] != y[name] {
				t.Errorf("%s differs", name)
			}
		}
		if len(x) != len(y) || len(x) < 14 {
			t.Errorf("%d files and %d files", len(x), len(y))
		}
	}
	t.Run("trained", func(t *testing.T) {
		compare(t, testutil.Data(t, "checkpoints", "tiny-qwen35-moe-fused"), testutil.Shared(t, "fixtures", "checkpoints", "tiny-qwen35-moe"), true)
	})
	t.Run("random", func(t *testing.T) { compare(t, "testdata/moe-fused", "testdata/moe-split", false) })
}

// TestMeta reads meta.yaml back.
func TestMeta(t *testing.T) {
	for _, c := range []struct {
		checkpoint string
		o          anemll.Options
		want       string
		aside      string
	}{
		{"tiny-qwen35", anemll.Options{Context: 128, Batch: 48},
			"qwen3_5 qwen35 true true 48 <nil> [linear linear linear full linear linear linear full] [{model_model_kv_cache_0 [4 2 128 64] float16 [3 7]} {model_model_gdn_state_0 [24 32 32] float16 [0 1 2 4 5 6]} {model_model_conv_state_0 [6 3 256] float16 [0 1 2 4 5 6]}]",
			"[the image encoder (model.visual.*): 21 tensors set aside]"},
		{"tiny-qwen35-moe-fused", anemll.Options{Context: 256, Batch: 128},
			"qwen3_5 qwen35 true true 64 &{8 2 dense} [linear linear linear full] [{model_model_kv_cache_0 [2 2 256 64] float16 [3]} {model_model_gdn_state_0 [12 32 32] float16 [0 1 2]} {model_model_conv_state_0 [3 3 256] float16 [0 1 2]}]",
			"[the image encoder (model.visual.*): 21 tensors set aside]"},
		{"nested-linear", anemll.Options{Context: 64, Batch: 60, GDNChunk: 20},
			"qwen3_5 qwen35 true true 20 <nil> [linear linear] [{model_model_gdn_state_0 [4 16 8] float16 [0 1]} {model_model_conv_state_0 [2 1 80] float16 [0 1]}]",
			"[the image encoder (model.visual.*): 1 tensors set aside the heads that predict several tokens (mtp.*): 1 tensors set aside]"},
		{"moe-split", anemll.Options{Context: 64, Batch: 62, SplitHead: 2},
			"qwen3_5 qwen35 true true 62 &{5 3 dense} [full linear linear] [{model_model_kv_cache_0 [2 2 64 8] float16 [0]} {model_model_gdn_state_0 [4 8 12] float16 [1 2]} {model_model_conv_state_0 [2 3 40] float16 [1 2]}]",
			"[a head beside the embedding that is one already (lm_head.weight): 1 tensors set aside]"},
	} {
		from := filepath.Join("testdata", c.checkpoint)
		if strings.HasPrefix(c.checkpoint, "tiny") {
			from = testutil.Data(t, "checkpoints", c.checkpoint)
		}
		dir, r := convert(t, from, c.o)
		p, s := load(t, dir, engine.Float32)
		m := p.Meta
		moe := "<nil>"
		if m.MoE != nil {
			moe = fmt.Sprintf("%v", m.MoE)
		}
		if got := fmt.Sprint(m.Architecture, " ", m.ModelPrefix, " ", m.RecurrentState, " ", m.PrefillFullBatchesOnly, " ", m.GDNChunkSize, " ", moe, " ", m.LayerTypes, " ", m.States); got != c.want {
			t.Errorf("%s: meta.yaml says\n%s\nwant\n%s", c.checkpoint, got, c.want)
		}
		if got := fmt.Sprint(r.Aside); got != c.aside || len(r.Unused) > 0 {
			t.Errorf("%s: set aside %s, unused %q, want %s", c.checkpoint, got, r.Unused, c.aside)
		}
		archtest.Each(t, s, []int32{1, 2}, session.InferOnly)
		if s.CanRewind(1) || s.Rewind(0) == nil {
			t.Errorf("%s: the session says that it can be rewound", c.checkpoint)
		}
	}
}

// TestEncodings: small matrices and the convolution keep fp16 when the rest is
// palettized.
func TestEncodings(t *testing.T) {
	for _, c := range trained {
		_, r := convert(t, testutil.Data(t, "checkpoints", c.checkpoint), anemll.Options{Context: 64, Batch: 32, FFN: compress.Encoding{Bits: 4, Group: 8}, Head: compress.Encoding{Bits: 6, Group: 8}})
		n := map[string]int{}
		for _, e := range r.Weights.Summary().Weights {
			n[e.Encoding]++
			want := "fp16"
			for _, name := range []string{"in_proj_qkv", "in_proj_z", "out_proj", "q_proj.weight[query]", "q_proj.weight[gate]", "k_proj", "v_proj", "o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "experts.gate_proj", "experts.up_proj", "experts.down_proj", "shared_expert.gate_proj", "shared_expert.up_proj", "shared_expert.down_proj"} {
				if strings.Contains(e.Name, name) {
					want = "lut4"
				}
			}
			if strings.HasPrefix(e.Name, "model.language_model.embed_tokens.weight[") {
				want = "lut6" // the head
			}
			if e.Encoding != want {
				t.Errorf("%s: %s is stored as %s, want %s", c.checkpoint, e.Name, e.Encoding, want)
			}
		}
		if n["lut4"] < 30 || n["lut6"] != 16 || n["fp16"] < 40 {
			t.Errorf("%s: weights by encoding: %v", c.checkpoint, n)
		}
	}
}

// TestPrograms holds every function to what the Neural Engine needs: no
// operation that it lacks or does coarsely, no rank above five, no state with
// three elements in its last axis, and a read of every state.
func TestPrograms(t *testing.T) {
	forbidden := []string{"cumsum", "sigmoid", "silu", "softplus", "topk", "sigmoid_hard", "mod", "logical_and", "logical_or", "gather_nd", "reduce_prod", "where", "gather_along_axis"}
	for _, name := range []string{"tiny-qwen35", "tiny-qwen35-moe-fused"} {
		for _, o := range []anemll.Options{{Chunks: 1, Remainders: []int{16, 2}}, {Chunks: 4, GDNChunk: 16}} {
			o.Context, o.Batch = 128, 64
			dir, _ := convert(t, testutil.Data(t, "checkpoints", name), o)
			for i := range o.Chunks {
				p, err := mlpackage.Open(filepath.Join(dir, fmt.Sprintf("qwen35_FFN_PF_chunk_%02dof%02d.mlpackage", i+1, o.Chunks)))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { p.Close() })
				if len(p.Model.Program.Functions) != 2+len(o.Remainders) {
					t.Fatalf("%d functions", len(p.Model.Program.Functions))
				}
				for _, f := range p.Model.Program.Functions {
					read := map[string]bool{}
					f.Body.Walk(func(op *mil.Operation) bool {
						if slices.Contains(forbidden, op.Type) {
							t.Errorf("%s, chunk %d, %s: operation %s", name, i, f.Name, op.Type)
						}
						if op.Type == "read_state" {
							read[op.Value("input").Name] = true
						}
						for _, r := range op.Results {
							if !op.Results[0].IsConst() && r.Type.Rank() > 5 {
								t.Errorf("%s, chunk %d, %s: %s has the type %v", name, i, f.Name, r.Name, r.Type)
							}
						}
						return true
					})
					states := 0
					for _, in := range f.Inputs {
						if in.Type.Kind != mil.StateKind {
							continue
						}
						states++
						if !read[in.Name] {
							t.Errorf("%s, chunk %d, %s: the state %s is not read", name, i, f.Name, in.Name)
						}
						if in.Type.Shape[len(in.Type.Shape)-1] == 3 {
							t.Errorf("the state %s has the shape %v", in.Name, in.Type.Shape)
						}
					}
					if states != 3 {
						t.Errorf("%s, chunk %d, %s: %d states, want 3", name, i, f.Name, states)
					}
				}
			}
		}
	}
}

// TestFunctionsShareWeights: but for the masks of the chunked form, infer uses
// what prefill uses.
func TestFunctionsShareWeights(t *testing.T) {
	for _, c := range trained {
		m := openModel(t, testutil.Data(t, "checkpoints", c.checkpoint))
		fs, err := m.Chunk(arch.Options{Context: 128, Batch: 64}, 0, m.cfg.Layers)
		if err != nil {
			t.Fatal(err)
		}
		of := func(f *mil.Function) map[mil.Weight]string {
			w := map[mil.Weight]string{}
			(&mil.Program{Functions: []*mil.Function{f}}).Weights(func(v *mil.Value, x mil.Weight) { w[x] = v.Name })
			return w
		}
		a, b := of(fs[0]), of(fs[1])
		for w, name := range a {
			if b[w] == "" {
				t.Errorf("%s: only infer uses %s", c.checkpoint, name)
			}
		}
		for w, name := range b {
			if a[w] == "" && !strings.HasPrefix(name, "delta_") {
				t.Errorf("%s: only prefill uses %s", c.checkpoint, name)
			}
		}
	}
}

// TestHalvedGates: projections that a sigmoid follows hold half their weights,
// so that no scale follows them, which Core ML would fold into the weights.
func TestHalvedGates(t *testing.T) {
	for _, c := range trained {
		m := openModel(t, testutil.Data(t, "checkpoints", c.checkpoint))
		fs, err := m.Chunk(arch.Options{Context: 128, Batch: 64}, 0, m.cfg.Layers)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range fs {
			users := map[*mil.Value][]string{}
			gates := map[*mil.Value]string{}
			f.Body.Walk(func(op *mil.Operation) bool {
				for _, a := range op.Args {
					for _, v := range a.Values {
						users[v] = append(users[v], op.Type)
					}
				}
				if op.Type == "conv" {
					w := op.Value("weight").Name
					if strings.Contains(w, "_gate_") && strings.Contains(w, "q_proj") || strings.Contains(w, "in_proj_b") || strings.Contains(w, "shared_expert_gate_weight") {
						gates[op.Results[0]] = w
					}
				}
				return true
			})
			want := len(m.cfg.Full) // an output gate or a rate for each layer
			if m.cfg.MoE != nil {
				want *= 2
			}
			if len(gates) != want {
				t.Errorf("%s, %s: %d gates, want %d", c.checkpoint, f.Name, len(gates), want)
			}
			for v, w := range gates {
				if !slices.Equal(users[v], []string{"tanh"}) {
					t.Errorf("%s, %s: what follows %s is %q, want tanh", c.checkpoint, f.Name, w, users[v])
				}
			}
		}
		for i, l := range m.layers {
			if l.attention == nil {
				continue
			}
			// The last row of the gates is the last row of the tensor.
			q, hidden := m.set.Layers[i].Attention.Q, m.cfg.Hidden
			got, want := make([]float32, hidden), make([]float32, hidden)
			if err := l.attention.gate.Float32(got, m.cfg.QuerySize()-1); err != nil {
				t.Fatal(err)
			}
			q.Float32(want, q.Len()-hidden)
			if !archtest.Same(got, scaled(want, 0.5)) {
				t.Errorf("%s: the gate of layer %d is not half of its rows", c.checkpoint, i)
			}
		}
	}
}

func TestOptionErrors(t *testing.T) {
	for _, c := range []struct {
		o    anemll.Options
		want string
	}{
		{anemll.Options{Batch: 64, GDNChunk: 48}, "gdn-chunk 48|divisor of the batch, 64"},
		{anemll.Options{Batch: 64, GDNChunk: -1}, "gdn-chunk -1"},
		{anemll.Options{Batch: 32, GDNChunk: 64}, "gdn-chunk 64|32"},
	} {
		c.o.Context = 128
		for _, chunks := range []int{0, 1} {
			c.o.Chunks = chunks
			_, err := anemll.Convert(t.Context(), arch.Registry{Architecture}, testutil.Data(t, "checkpoints", "tiny-qwen35"), filepath.Join(t.TempDir(), "out"), c.o)
			for _, part := range strings.Split(c.want, "|") {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("%+v: error %v does not say %q", c.o, err, part)
				}
			}
		}
	}
	m := openModel(t, "testdata/flat-untied")
	if _, err := m.Chunk(arch.Options{Context: 64, Batch: 32, GDNChunk: 5}, 0, 4); err == nil || !strings.Contains(err.Error(), "divisor of the batch, 32") {
		t.Errorf("chunks of 5 in batches of 32: error %v", err)
	}
	for _, r := range [][2]int{{-1, 1}, {0, 5}, {2, 2}} {
		if _, err := m.Chunk(arch.Options{Context: 64, Batch: 32}, r[0], r[1]); err == nil {
			t.Errorf("layers %d to %d: no error", r[0], r[1])
		}
	}
	if _, err := m.Head(arch.Options{SplitHead: 100}); err == nil {
		t.Error("a head of 57 in 100 parts: no error")
	}
}

func TestChunkSize(t *testing.T) {
	for batch, want := range map[int]int{2: 2, 32: 32, 64: 64, 65: 13, 96: 48, 128: 64, 100: 50, 127: 1, 640: 64} {
		if got, err := chunkSize(arch.Options{Batch: batch}); got != want || err != nil {
			t.Errorf("batch %d: %d, %v, want %d", batch, got, err, want)
		}
	}
}
