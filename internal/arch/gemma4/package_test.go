package gemma4

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"anemone/coreml"
	"anemone/coreml/mlpackage"
	"anemone/internal/anemll"
	"anemone/internal/arch"
	"anemone/internal/arch/dense"
	"anemone/internal/arch/gemma"
	"anemone/internal/checkpoint"
	"anemone/internal/compress"
	"anemone/internal/engine"
	"anemone/internal/runner"
	"anemone/internal/session"
	"anemone/internal/testutil"
	"anemone/mil"
)

var registry = arch.Registry{Architecture}

// firstVersion makes packages of the first version of the layout.
var firstVersion = arch.Registry{{ModelTypes: Architecture.ModelTypes, Open: func(ck *checkpoint.Checkpoint) (arch.Model, error) {
	m, err := Open(ck)
	if err == nil {
		m.(*Model).caches.Dropping = true
	}
	return m, err
}}}

func tinyDir(t testing.TB) string { return testutil.Data(t, "checkpoints", "tiny-gemma4") }

// The tiny checkpoint has a window of 32 positions. With batches of 16, caches
// of up to 64 positions are whole and longer ones are windows of 64.
const (
	tinyWindow = 32
	tinyBatch  = 16
)

func convertWith(t testing.TB, r arch.Registry, dir string, o anemll.Options) (string, *anemll.Report) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	report, err := anemll.Convert(t.Context(), r, dir, out, o)
	if err != nil {
		t.Fatal(err)
	}
	return out, report
}

func options(context, chunks int) anemll.Options {
	return anemll.Options{Context: context, Batch: tinyBatch, Chunks: chunks, Format: anemll.MLPackage}
}

// load opens a package in the engine.
func load(t testing.TB, dir string) *session.Session {
	t.Helper()
	_, s := loadPackage(t, dir)
	return s
}

func loadPackage(t testing.TB, dir string) (*anemll.Package, *session.Session) {
	t.Helper()
	p, err := anemll.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	if len(p.Problems) > 0 {
		t.Errorf("the package has problems: %q", p.Problems)
	}
	m, err := session.Load(p, func(m *coreml.Model) (runner.Model, error) { return engine.New(m, engine.Options{}) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	s, err := m.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	return p, s
}

// each feeds tokens and returns the logits after those for which there are
// any, in rows of the tokens' positions; the others are zero.
func each(t testing.TB, s *session.Session, tokens []int32, mode session.Mode) (logits dense.Matrix, at []int) {
	t.Helper()
	first := s.Pos()
	err := s.Each(t.Context(), tokens, mode, func(pos int, l []float32) error {
		if logits.Data == nil {
			logits = dense.New(len(tokens), len(l))
		}
		copy(logits.Row(pos-first), l)
		at = append(at, pos-first)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return logits, at
}

func cosine(a, b []float32) float64 {
	return dense.Dot(a, b) / math.Sqrt(dense.Dot(a, a)*dense.Dot(b, b))
}

func randomTokens(n int, seed uint64) []int32 {
	rng := rand.New(rand.NewPCG(seed, 4))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(rng.IntN(1024))
	}
	return ids
}

// holds holds logits at some positions to the golden's.
func holds(t *testing.T, what string, g golden, logits dense.Matrix, at []int) {
	t.Helper()
	lowest, worst := 1.0, 0.0
	for _, i := range at {
		lowest = min(lowest, cosine(logits.Row(i), g.logits.Row(i)))
		worst = max(worst, difference(logits.Row(i), g.logits.Row(i)))
		a, err := arch.Argmax(logits.Row(i))
		if err != nil {
			t.Fatalf("%s: token %d: %v", what, i, err)
		}
		if b, _ := arch.Argmax(g.logits.Row(i)); a != b {
			t.Errorf("%s: after token %d the best is %d, want %d", what, i, a, b)
		}
	}
	t.Logf("%s: %d positions, lowest cosine %.7f, largest difference %.4f", what, len(at), lowest, worst)
	if !(lowest >= 0.9999) || !(worst < 0.02) {
		t.Errorf("%s: lowest cosine %g, largest difference of a logit %g", what, lowest, worst)
	}
}

// TestPackageGolden holds packages to transformers' logits: whole and shifting
// caches, in the contract's sequence and token by token, in any number of
// chunks (with nine, each has one layer, and reads of a state it does not
// use).
func TestPackageGolden(t *testing.T) {
	_, g := tiny(t)
	for _, c := range []struct{ context, chunks int }{{64, 1}, {64, 3}, {256, 1}, {256, 3}, {256, 9}} {
		dir, _ := convertWith(t, registry, tinyDir(t), options(c.context, c.chunks))
		p, s := loadPackage(t, dir)
		want := 0
		if c.context > tinyWindow+2*tinyBatch {
			want = tinyWindow + 2*tinyBatch
		}
		if got := p.Meta.LocalCacheLength; got != want {
			t.Errorf("context %d: local_cache_length %d, want %d", c.context, got, want)
		}
		tokens := g.tokens[:min(len(g.tokens), c.context)]
		for mode, name := range map[session.Mode]string{session.Contract: "contract", session.InferOnly: "infer only"} {
			s.Reset()
			logits, at := each(t, s, tokens, mode)
			holds(t, fmt.Sprintf("context %d, %d chunks, %s", c.context, c.chunks, name), g, logits, at)
		}
	}
}

// TestPackageRandom holds packages of checkpoints with other shapes to what
// was computed in float64: as few as one batch in a context that takes the
// whole local cache, windows that are no multiple of the batch, positions
// beyond 1000.
func TestPackageRandom(t *testing.T) {
	for _, name := range random {
		g, at := openRandom(t, name)
		for _, o := range []anemll.Options{
			{Context: 12, Batch: 4, Chunks: 2},
			{Context: 64, Batch: 4, Chunks: 3},
			{Context: 64, Batch: 6, Chunks: 1},
			{Context: 64, Batch: 32, Chunks: 1},
			{Context: 2048, Batch: 50, Chunks: 2},
		} {
			o.SplitHead, o.Format = 3, anemll.MLPackage
			dir, _ := convertWith(t, registry, filepath.Join("testdata", name), o)
			s := load(t, dir)
			tokens := g.tokens[:min(len(g.tokens), o.Context)]
			for _, mode := range []session.Mode{session.Contract, session.InferOnly} {
				s.Reset()
				logits, got := each(t, s, tokens, mode)
				n, lowest := 0, 1.0
				for i, p := range at {
					if !slices.Contains(got, int(p)) {
						continue
					}
					n++
					lowest = min(lowest, cosine(logits.Row(int(p)), g.logits.Row(i)))
					if c := cosine(logits.Row(int(p)), g.logits.Row(i)); !(c >= 0.9998) {
						t.Errorf("%s, context %d, batch %d, mode %d: cosine %g after token %d", name, o.Context, o.Batch, mode, c, p)
					}
				}
				t.Logf("%s, context %d, batch %d, mode %d: %d positions, lowest cosine %.6f", name, o.Context, o.Batch, mode, n, lowest)
				if n == 0 && name != "long" {
					t.Errorf("%s, context %d, batch %d, mode %d: nothing was compared", name, o.Context, o.Batch, mode)
				}
			}
		}
	}
}

// TestPrefillIsInfer feeds prompts of every length up to four batches, and
// those around the window: logits have the same bits as those of the same
// tokens one by one, and so have those of the next token.
func TestPrefillIsInfer(t *testing.T) {
	for _, c := range []struct {
		name    string
		context int
		full    bool
	}{{"whole", 64, false}, {"shifting", 256, false}, {"full local cache", 256, true}} {
		t.Run(c.name, func(t *testing.T) {
			o := options(c.context, 2)
			o.FullLocalCache = c.full
			dir, _ := convertWith(t, registry, tinyDir(t), o)
			s := load(t, dir)
			ids := randomTokens(min(c.context, 160), 1)
			want, _ := each(t, s, ids, session.InferOnly)
			var lengths []int
			for n := 1; n <= 4*tinyBatch && n <= c.context; n++ {
				if !testing.Short() || n%tinyBatch < 2 || n%tinyBatch == tinyBatch-1 {
					lengths = append(lengths, n)
				}
			}
			if c.context > 64 {
				lengths = append(lengths, 3*tinyWindow, 3*tinyWindow+1, 143, 159)
			}
			for _, n := range lengths { // window-1, window, window+1, 2 window are among them
				s.Reset()
				logits, err := s.Feed(t.Context(), ids[:n])
				if err != nil {
					t.Fatal(err)
				}
				if !same(logits, want.Row(n-1)) {
					t.Errorf("a prompt of %d: the logits differ by %g", n, difference(logits, want.Row(n-1)))
				}
				if n == len(ids) {
					continue
				}
				if logits, err = s.Feed(t.Context(), ids[n:n+1]); err != nil {
					t.Fatal(err)
				}
				if !same(logits, want.Row(n)) {
					t.Errorf("a prompt of %d and a token: the logits differ by %g", n, difference(logits, want.Row(n)))
				}
			}
		})
	}
}

// TestPrefillInsideBlocks continues with batches that begin inside a block,
// as later turns of a conversation do.
func TestPrefillInsideBlocks(t *testing.T) {
	dir, _ := convertWith(t, registry, tinyDir(t), options(256, 2))
	s := load(t, dir)
	ids := randomTokens(120, 2)
	want, _ := each(t, s, ids, session.InferOnly)
	worst := 0.0
	for first := 1; first < 2*tinyBatch; first += 3 {
		s.Reset()
		each(t, s, ids[:first], session.InferOnly)
		logits, at := each(t, s, ids[first:], session.Contract)
		for _, i := range at {
			worst = max(worst, difference(logits.Row(i), want.Row(first+i)))
		}
	}
	t.Logf("largest difference %g", worst)
	if !(worst <= 1e-4) {
		t.Errorf("batches inside blocks: logits differ by %g", worst)
	}
}

// TestContextsAgree compares packages that differ in their context, and so in
// the form of the local cache.
func TestContextsAgree(t *testing.T) {
	ids := randomTokens(64, 3)
	var want dense.Matrix
	for _, context := range []int{64, 96, 256, 1024} {
		dir, _ := convertWith(t, registry, tinyDir(t), options(context, 1))
		s := load(t, dir)
		got, _ := each(t, s, ids, session.InferOnly)
		if want.Data == nil {
			want = got
		}
		if d := difference(got.Data, want.Data); !(d <= 1e-4) {
			t.Errorf("with context %d the logits differ by %g", context, d)
		}
	}
}

// TestRestart begins again at position 0 with states that have been used: the
// logits are those of a fresh state.
func TestRestart(t *testing.T) {
	for _, context := range []int{64, 256} {
		for _, r := range []arch.Registry{registry, firstVersion} {
			dir, _ := convertWith(t, r, tinyDir(t), options(context, 2))
			s := load(t, dir)
			ids := randomTokens(60, 5)
			for _, mode := range []session.Mode{session.Contract, session.InferOnly} {
				s.Reset()
				want, _ := each(t, s, ids, mode)
				for _, used := range []int{1, 37, 200} {
					s.Reset()
					each(t, s, randomTokens(min(used, context), 6), session.Contract)
					before := states(t, s)
					s.Reset()
					for _, x := range before {
						if err := s.States()[0].Write(x.name, x.data); err != nil {
							t.Fatal(err)
						}
					}
					if got, _ := each(t, s, ids, mode); !same(got.Data, want.Data) {
						t.Errorf("context %d, after %d tokens: logits from position 0 differ by %g", context, used, difference(got.Data, want.Data))
					}
				}
			}
		}
	}
}

type namedState struct {
	name string
	data *runner.Tensor
}

// states returns copies of a session's states.
func states(t *testing.T, s *session.Session) (list []namedState) {
	t.Helper()
	if n := len(s.States()); n != 1 {
		t.Fatalf("%d states, want 1 for all chunks", n)
	}
	for _, name := range s.States()[0].Names() {
		x, err := s.States()[0].Read(name)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, namedState{name, x})
	}
	if len(list) != 2 {
		t.Fatalf("states %v", list)
	}
	return list
}

// TestBlocks looks into the cache: after every call, slot j of the shifting
// window holds position (e/batch + 1)*batch - length + j, with the keys and
// values that a whole cache has at that position.
func TestBlocks(t *testing.T) {
	dir, _ := convertWith(t, registry, tinyDir(t), options(256, 3))
	shifting := load(t, dir)
	o := options(256, 3)
	o.FullLocalCache = true
	dir, _ = convertWith(t, registry, tinyDir(t), o)
	full := load(t, dir)
	ids := randomTokens(130, 7)
	const length = tinyWindow + 2*tinyBatch
	for _, split := range [][]int{{130}, {1, 129}, {20, 16, 16, 1, 48, 29}, {15, 1, 16, 3, 17, 64, 14}} {
		shifting.Reset()
		full.Reset()
		for at, i := 0, 0; at < len(ids); i++ {
			now := ids[at : at+split[i]]
			at += len(now)
			each(t, shifting, now, session.Contract)
			each(t, full, now, session.Contract)
			a, b := states(t, shifting)[1].data, states(t, full)[1].data
			if !slices.Equal(a.Shape, []int{4, 2, length, 32}) || !slices.Equal(b.Shape, []int{4, 2, 256, 32}) {
				t.Fatalf("local caches of shapes %v and %v", a.Shape, b.Shape)
			}
			e := at - 1
			base := (e/tinyBatch+1)*tinyBatch - length
			for row := range 4 * 2 {
				for j := range length {
					p := base + j
					if p < 0 || p > e {
						continue
					}
					x, y := a.Float[(row*length+j)*32:][:32], b.Float[(row*256+p)*32:][:32]
					if d := difference(x, y); !(d <= 2e-3) {
						t.Fatalf("fed as %v: after position %d, row %d, slot %d: position %d differs by %g", split, e, row, j, p, d)
					}
				}
			}
		}
	}
}

// TestFirstVersion runs a package of the first version of the layout, whose
// cache drops as many positions as a call has tokens, by the same rules.
func TestFirstVersion(t *testing.T) {
	_, g := tiny(t)
	for _, chunks := range []int{1, 3} {
		dir, _ := convertWith(t, firstVersion, tinyDir(t), options(256, chunks))
		p, s := loadPackage(t, dir)
		if p.Meta.LocalCacheLength != tinyWindow+tinyBatch || p.Rewindable() {
			t.Errorf("local_cache_length %d, rewindable %t; want %d, false", p.Meta.LocalCacheLength, p.Rewindable(), tinyWindow+tinyBatch)
		}
		for mode, name := range map[session.Mode]string{session.Contract: "contract", session.InferOnly: "infer only"} {
			s.Reset()
			logits, at := each(t, s, g.tokens, mode)
			holds(t, fmt.Sprintf("%d chunks, %s", chunks, name), g, logits, at)
		}
		// Its prefill and infer sum in different orders.
		ids := randomTokens(120, 8)
		s.Reset()
		want, _ := each(t, s, ids, session.InferOnly)
		for first := 0; first < 2*tinyBatch; first += 5 {
			s.Reset()
			if first > 0 {
				each(t, s, ids[:first], session.InferOnly)
			}
			logits, at := each(t, s, ids[first:], session.Contract)
			for _, i := range at {
				if d := difference(logits.Row(i), want.Row(first+i)); !(d <= 1e-4) {
					t.Errorf("%d tokens one by one, then batches: token %d differs by %g", first, first+i, d)
				}
			}
		}
	}
}

// TestContract holds a package to the tables of the contract: names, shapes
// and types of every feature of every part, and their order.
func TestContract(t *testing.T) {
	o := options(256, 2)
	o.SplitHead = 3
	o.FFN = compress.Encoding{Bits: 4, Group: 8}
	o.Embeddings = compress.Encoding{Bits: 4, Group: 8}
	dir, _ := convertWith(t, registry, tinyDir(t), o)
	text := func(f coreml.Function) string {
		var b strings.Builder
		list := func(kind string, fs []coreml.Feature) {
			for _, x := range fs {
				fmt.Fprintf(&b, "%s %s %v %v", kind, x.Name, x.DType, x.Shape)
				if x.Shapes != nil {
					fmt.Fprintf(&b, " of %v", x.Shapes)
				}
				b.WriteString("\n")
			}
		}
		list("in", f.Inputs)
		list("out", f.Outputs)
		list("state", f.States)
		return b.String()
	}
	chunk := func(tokens, outTokens int) string {
		return fmt.Sprintf(`in hidden_states fp16 [1 %d 128]
in position_ids int32 [%d]
in causal_mask fp16 [1 1 %d 256]
in current_pos int32 [1]
in per_layer_inputs fp16 [1 %d 288]
out output_hidden_states fp16 [1 %d 128]
state model_model_kv_cache_local fp16 [4 2 64 32]
state model_model_kv_cache_global fp16 [2 2 256 64]
`, tokens, tokens, tokens, tokens, outTokens)
	}
	for _, c := range []struct{ file, function, want string }{
		{"gemma4_embeddings_lut4", "main", "in input_ids int32 [1 1] of [[1 1] [1 16]]\nout hidden_states fp16 []\nout per_layer_inputs fp16 []\n"},
		{"gemma4_FFN_PF_lut4_chunk_01of02", "infer", chunk(1, 1)},
		{"gemma4_FFN_PF_lut4_chunk_01of02", "prefill", chunk(16, 16)},
		{"gemma4_FFN_PF_lut4_chunk_02of02", "infer", chunk(1, 1)},
		{"gemma4_FFN_PF_lut4_chunk_02of02", "prefill", chunk(16, 1)},
		{"gemma4_lm_head", "main", "in hidden_states fp16 [1 1 128]\nout logits1 fp16 [1 1 342]\nout logits2 fp16 [1 1 341]\nout logits3 fp16 [1 1 341]\n"},
	} {
		p, err := mlpackage.Open(filepath.Join(dir, c.file+".mlpackage"))
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		f := p.Model.Function(c.function)
		if f == nil {
			t.Errorf("%s: no function %s", c.file, c.function)
			continue
		}
		if got := text(*f); got != c.want {
			t.Errorf("%s, %s:\n%swant\n%s", c.file, c.function, got, c.want)
		}
		if err := mil.Verify(p.Model.Program); err != nil {
			t.Errorf("%s: %v", c.file, err)
		}
		if strings.Contains(c.file, "embeddings") {
			// The second table stays fp16, whatever the part's encoding.
			lut, dense := 0, 0
			for _, op := range p.Model.Program.Functions[0].Body.Ops {
				if op.Type == "constexpr_lut_to_dense" {
					lut++
				}
				if op.Type == "const" && slices.Equal(op.Results[0].Type.Shape, []int{1024, 288}) {
					dense++
				}
			}
			if lut != 2 || dense != 1 {
				t.Errorf("embeddings with %d palettized weights and %d tables in fp16, want 2 and 1", lut, dense)
			}
		}
	}
	meta, err := os.ReadFile(filepath.Join(dir, "meta.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`
    local_attention_window: 32
    local_cache_length: 64
    final_logit_softcap: 30.0
    per_layer_inputs: 288
    kv_shared_layers: {6: 4, 7: 4, 8: 5}
    layer_types: [sliding, sliding, full, sliding, sliding, full, sliding, sliding, full]
    states:
      - name: model_model_kv_cache_local
        shape: [4, 2, 64, 32]
        dtype: float16
        layers: [0, 1, 3, 4]
      - name: model_model_kv_cache_global
        shape: [2, 2, 256, 64]
        dtype: float16
        layers: [2, 5]
`, "\n  architecture: gemma4\n", "\n    model_prefix: gemma4\n", "\n    prefill_last_token_output: true\n"} {
		if !strings.Contains(string(meta), want) {
			t.Errorf("meta.yaml does not say%s; it is\n%s", want, meta)
		}
	}
	if strings.Contains(string(meta), "recurrent_state") || strings.Contains(string(meta), "prefill_full_batches_only") {
		t.Errorf("meta.yaml says that the model is recurrent:\n%s", meta)
	}
}

// TestEmbeddings holds the inputs of all layers, which the embeddings model
// computes, to the reference. The graph has another epsilon than the
// configuration, as it leaves out a factor before the norm; with a large one
// that shows.
func TestEmbeddings(t *testing.T) {
	for _, eps := range []float64{1e-6, 0.05} {
		src := variant(t, filepath.Join("testdata", "released"), func(c change) { c["text_config"].(change)["rms_norm_eps"] = eps }, nil)
		o := anemll.Options{Context: 64, Batch: 4, Chunks: 1, SplitHead: 1, Format: anemll.MLPackage}
		dir, _ := convertWith(t, registry, src, o)
		p, _ := loadPackage(t, dir)
		m, err := engine.New(p.Embeddings.Model, engine.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		tokens := []int32{3, 0, 40, 17}
		out := runner.Values{}
		if err := m.Predict(t.Context(), "main", runner.Values{"input_ids": runner.Ints(tokens, 1, 4)}, out, nil); err != nil {
			t.Fatal(err)
		}
		ref := openReference(t, src)
		var x dense.Matrix
		ref.Observe(arch.Observer{Hidden: func(layer int, h dense.Matrix) {
			if layer == -1 {
				x = h.Clone()
			}
		}})
		if err := ref.Forward(t.Context(), tokens, nil, nil); err != nil {
			t.Fatal(err)
		}
		want, err := ref.perLayerInputs(t.Context(), tokens, x)
		if err != nil {
			t.Fatal(err)
		}
		hidden, inputs := out["hidden_states"], out["per_layer_inputs"]
		if !slices.Equal(hidden.Shape, []int{1, 4, 20}) || !slices.Equal(inputs.Shape, []int{1, 4, 42}) {
			t.Fatalf("shapes %v and %v", hidden.Shape, inputs.Shape)
		}
		if d := difference(hidden.Float, x.Data); !(d <= 2e-3) {
			t.Errorf("eps %g: the embeddings differ by %g", eps, d)
		}
		if d := difference(inputs.Float, want.Data); !(d <= 5e-3) {
			t.Errorf("eps %g: the inputs differ by %g", eps, d)
		}
	}
}

// TestOneUpdatePerLayer counts the updates of the caches: one for each layer
// that stores keys and values, and one that shifts the local cache.
func TestOneUpdatePerLayer(t *testing.T) {
	m := openModel(t, tinyDir(t))
	for _, c := range []struct {
		context, first, last int
		want                 map[string]int
	}{
		{64, 0, 9, map[string]int{gemma.LocalState: 4, gemma.GlobalState: 2}},
		{256, 0, 9, map[string]int{gemma.LocalState: 5, gemma.GlobalState: 2}},
		{256, 3, 6, map[string]int{gemma.LocalState: 3, gemma.GlobalState: 1}},
		{256, 6, 9, map[string]int{}},
		{256, 2, 3, map[string]int{gemma.GlobalState: 1}},
	} {
		infer, prefill, err := m.Chunk(arch.Options{Context: c.context, Batch: tinyBatch}, c.first, c.last)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range []*mil.Function{infer, prefill} {
			writes, reads := map[string]int{}, map[string]int{}
			for _, op := range f.Body.Ops {
				switch op.Type {
				case "write_state":
					writes[op.Value("input").Name]++
					if u := op.Value("data").Op; u == nil || u.Type != "slice_update" {
						t.Errorf("%s: a state is written by other than a slice update", f.Name)
					}
				case "read_state":
					reads[op.Value("input").Name]++
				}
			}
			if fmt.Sprint(writes) != fmt.Sprint(c.want) {
				t.Errorf("context %d, layers %d to %d, %s: updates %v, want %v", c.context, c.first, c.last, f.Name, writes, c.want)
			}
			if reads[gemma.LocalState] == 0 || reads[gemma.GlobalState] == 0 {
				t.Errorf("context %d, layers %d to %d, %s: reads %v of the states, want some of each", c.context, c.first, c.last, f.Name, reads)
			}
		}
	}
}

func hashes(t *testing.T, dir string) map[string][32]byte {
	t.Helper()
	h := map[string][32]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		h[rel] = sha256.Sum256(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}
