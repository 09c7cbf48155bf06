package gemma4

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"anemone/coreml/mlpackage"
	"anemone/internal/anemll"
	"anemone/internal/arch"
	"anemone/internal/arch/archtest"
	"anemone/internal/arch/dense"
	"anemone/internal/arch/gemma/gemmatest"
	"anemone/internal/checkpoint"
	"anemone/internal/checkpoint/checkpointtest"
	"anemone/internal/compress"
	"anemone/internal/engine"
	"anemone/internal/runner"
	"anemone/internal/session"
	"anemone/internal/testutil"
	"anemone/mil"
)

var registry = arch.Registry{Architecture}

// firstVersion makes packages of the first version of the layout.
var firstVersion = arch.Architecture{ModelTypes: Architecture.ModelTypes, Open: func(ck *checkpoint.Checkpoint) (arch.Model, error) {
	m, err := Open(ck)
	if err == nil {
		m.(*Model).caches.Dropping = true
	}
	return m, err
}}

func tinyDir(t testing.TB) string { return testutil.Data(t, "checkpoints", "tiny-gemma4") }

// The tiny checkpoint has a window of 32 positions. With batches of 16, caches
// of up to 64 positions are whole and longer ones are windows of 64.
const (
	tinyWindow = 32
	tinyBatch  = 16
)

// suite has the tests of the local cache.
func suite(t testing.TB) gemmatest.Model {
	t.Helper()
	return gemmatest.Model{Architecture: Architecture, Dir: tinyDir(t), Window: tinyWindow, Batch: tinyBatch, Remainders: []int{8, 4, 2}}
}

func options(context, chunks int) anemll.Options {
	return anemll.Options{Context: context, Batch: tinyBatch, Chunks: chunks, Format: anemll.MLPackage}
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
func holds(t *testing.T, what string, g archtest.Golden, logits dense.Matrix, at []int) {
	t.Helper()
	lowest, worst := 1.0, 0.0
	for _, i := range at {
		lowest = min(lowest, archtest.Cosine(logits.Row(i), g.Logits.Row(i)))
		worst = max(worst, archtest.Difference(logits.Row(i), g.Logits.Row(i)))
		a, err := arch.Argmax(logits.Row(i))
		if err != nil {
			t.Fatalf("%s: token %d: %v", what, i, err)
		}
		if b, _ := arch.Argmax(g.Logits.Row(i)); a != b {
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
		o := options(c.context, c.chunks)
		if c.chunks == 3 {
			o.Remainders = []int{8, 2}
		}
		p, s := archtest.Convert(t, Architecture, tinyDir(t), o)
		want := 0
		if c.context > tinyWindow+2*tinyBatch {
			want = tinyWindow + 2*tinyBatch
		}
		if got := p.Meta.LocalCacheLength; got != want {
			t.Errorf("context %d: local_cache_length %d, want %d", c.context, got, want)
		}
		tokens := g.Tokens[:min(len(g.Tokens), c.context)-1] // no whole batches
		for mode, name := range map[session.Mode]string{session.Contract: "contract", session.InferOnly: "infer only"} {
			s.Reset()
			logits, at := archtest.Each(t, s, tokens, mode)
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
		g := gemmatest.OpenGolden(t, filepath.Join("testdata", name))
		for _, o := range []anemll.Options{
			{Context: 12, Batch: 4, Chunks: 2},
			{Context: 64, Batch: 4, Chunks: 3},
			{Context: 64, Batch: 6, Chunks: 1},
			{Context: 64, Batch: 32, Chunks: 1},
			{Context: 2048, Batch: 50, Chunks: 2},
		} {
			o.SplitHead, o.Format = 3, anemll.MLPackage
			_, s := archtest.Convert(t, Architecture, filepath.Join("testdata", name), o)
			n := g.TestSession(t, fmt.Sprintf("%s, context %d, batch %d", name, o.Context, o.Batch), s, o.Context, 0.9998)
			if n == 0 {
				t.Errorf("%s, context %d, batch %d: nothing was compared", name, o.Context, o.Batch)
			}
		}
	}
}

func TestPrefillIsInfer(t *testing.T)      { suite(t).TestPrefillIsInfer(t) }
func TestPrefillInsideBlocks(t *testing.T) { suite(t).TestPrefillInsideBlocks(t) }
func TestRemainderWeights(t *testing.T)    { suite(t).TestRemainderWeights(t) }
func TestContextsAgree(t *testing.T)       { suite(t).TestContextsAgree(t) }
func TestBlocks(t *testing.T)              { suite(t).TestBlocks(t, 4, 2, 32) }

func TestRestart(t *testing.T) {
	m := suite(t)
	m.TestRestart(t)
	m.Architecture = firstVersion
	m.TestRestart(t)
}

// TestFirstVersion runs a package of the first version of the layout, whose
// cache drops as many positions as a call has tokens, by the same rules.
func TestFirstVersion(t *testing.T) {
	_, g := tiny(t)
	for _, chunks := range []int{1, 3} {
		o := options(256, chunks)
		if chunks == 3 {
			o.Remainders = []int{8, 2}
		}
		p, s := archtest.Convert(t, firstVersion, tinyDir(t), o)
		if p.Meta.LocalCacheLength != tinyWindow+tinyBatch || p.Rewindable() {
			t.Errorf("local_cache_length %d, rewindable %t; want %d, false", p.Meta.LocalCacheLength, p.Rewindable(), tinyWindow+tinyBatch)
		}
		for mode, name := range map[session.Mode]string{session.Contract: "contract", session.InferOnly: "infer only"} {
			s.Reset()
			logits, at := archtest.Each(t, s, g.Tokens, mode)
			holds(t, fmt.Sprintf("%d chunks, %s", chunks, name), g, logits, at)
		}
		// Its prefill and infer sum in different orders.
		ids := randomTokens(120, 8)
		s.Reset()
		want, _ := archtest.Each(t, s, ids, session.InferOnly)
		for first := 0; first < 2*tinyBatch; first += 5 {
			s.Reset()
			if first > 0 {
				archtest.Each(t, s, ids[:first], session.InferOnly)
			}
			logits, at := archtest.Each(t, s, ids[first:], session.Contract)
			for _, i := range at {
				if d := archtest.Difference(logits.Row(i), want.Row(first+i)); !(d <= 1e-4) {
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
	dir, _ := archtest.Write(t, Architecture, tinyDir(t), o)
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
		if got := gemmatest.Features(*f); got != c.want {
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
		src := checkpointtest.Variant(t, filepath.Join("testdata", "released"), func(c change) { c["text_config"].(change)["rms_norm_eps"] = eps }, nil)
		o := anemll.Options{Context: 64, Batch: 4, Chunks: 1, SplitHead: 1, Format: anemll.MLPackage}
		p, _ := archtest.Convert(t, Architecture, src, o)
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
		if d := archtest.Difference(hidden.Float, x.Data); !(d <= 2e-3) {
			t.Errorf("eps %g: the embeddings differ by %g", eps, d)
		}
		if d := archtest.Difference(inputs.Float, want.Data); !(d <= 5e-3) {
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
		{64, 0, 9, map[string]int{arch.StateLocal: 4, arch.StateGlobal: 2}},
		{256, 0, 9, map[string]int{arch.StateLocal: 5, arch.StateGlobal: 2}},
		{256, 3, 6, map[string]int{arch.StateLocal: 3, arch.StateGlobal: 1}},
		{256, 6, 9, map[string]int{}},
		{256, 2, 3, map[string]int{arch.StateGlobal: 1}},
	} {
		gemmatest.TestUpdates(t, m, arch.Options{Context: c.context, Batch: tinyBatch, Remainders: []int{8, 2}}, c.first, c.last, c.want)
	}
}
