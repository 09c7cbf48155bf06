package gemma3

import (
	"encoding/binary"
	"fmt"
	"math"
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
	"anemone/internal/checkpoint/checkpointtest"
	"anemone/internal/checkpoint/safetensors"
	"anemone/internal/engine"
	"anemone/internal/runner"
	"anemone/internal/session"
	"anemone/mil"
)

// TestPackageGolden holds packages to transformers' logits: whole and shifting
// caches, in the contract's sequence and token by token, windows that are a
// multiple of the batch and that are not, one chunk and one for each layer,
// which then reads a state that it does not use.
func TestPackageGolden(t *testing.T) {
	for _, name := range random {
		g := gemmatest.OpenGolden(t, folder(name))
		m := openModel(t, folder(name))
		for _, o := range []anemll.Options{
			{Context: 12, Batch: 4, Chunks: 1},
			{Context: 64, Batch: 4, Chunks: m.cfg.Layers},
			{Context: 64, Batch: 6, Chunks: 1},
			{Context: 64, Batch: 32, Chunks: 1},
			{Context: 64, Batch: 4, Chunks: 1, FullLocalCache: true},
			{Context: 1024, Batch: 50, Chunks: 2},
		} {
			o.SplitHead, o.Format = 3, anemll.MLPackage
			p, s := archtest.Convert(t, Architecture, folder(name), o)
			want := 0
			if n := m.cfg.Window + 2*o.Batch; o.Context > n && !o.FullLocalCache {
				want = n
			}
			if got := p.Meta.LocalCacheLength; got != want || p.Rewindable() != (want == 0) {
				t.Errorf("%s, context %d, batch %d: local_cache_length %d, rewindable %t, want %d", name, o.Context, o.Batch, got, p.Rewindable(), want)
			}
			what := fmt.Sprintf("%s, context %d, batch %d, full %t", name, o.Context, o.Batch, o.FullLocalCache)
			// fp16 has eleven bits: with each of the hundred roundings of a
			// row turning it by some 2e-4, the cosine stays above 0.99999.
			if n := g.TestSession(t, what, s, o.Context, 0.9999); n == 0 {
				t.Errorf("%s: nothing was compared", what)
			}
		}
	}
}

// models are checkpoints for tests of the local cache.
func models() []gemmatest.Model {
	return []gemmatest.Model{
		{Architecture: Architecture, Dir: folder("text"), Window: 8, Batch: 4, Remainders: []int{2}},
		{Architecture: Architecture, Dir: folder("outer"), Window: 12, Batch: 5},
		{Architecture: Architecture, Dir: folder("outer"), Window: 12, Batch: 8, Remainders: []int{4, 2}},
	}
}

func TestPrefillIsInfer(t *testing.T) {
	for _, m := range models() {
		m.TestPrefillIsInfer(t)
	}
}

func TestPrefillInsideBlocks(t *testing.T) {
	for _, m := range models() {
		m.TestPrefillInsideBlocks(t)
	}
}

func TestRemainderWeights(t *testing.T) { models()[2].TestRemainderWeights(t) }

func TestContextsAgree(t *testing.T) {
	for _, m := range models() {
		m.TestContextsAgree(t)
	}
}

func TestRestart(t *testing.T) {
	for _, m := range models() {
		m.TestRestart(t)
	}
}

func TestBlocks(t *testing.T) {
	m := models()
	m[0].TestBlocks(t, 2, 4, 6)
	m[1].TestBlocks(t, 3, 2, 8)
	m[2].TestBlocks(t, 3, 2, 8)
}

func TestOneUpdatePerLayer(t *testing.T) {
	m := openModel(t, folder("outer")) // sliding, sliding, full, sliding
	for _, c := range []struct {
		context, first, last, local, global int
	}{{22, 0, 4, 3, 1}, {64, 0, 4, 4, 1}, {64, 0, 2, 3, 0}, {64, 2, 3, 0, 1}, {64, 2, 4, 2, 1}} {
		want := map[string]int{}
		for name, n := range map[string]int{arch.StateLocal: c.local, arch.StateGlobal: c.global} {
			if n > 0 {
				want[name] = n
			}
		}
		gemmatest.TestUpdates(t, m, arch.Options{Context: c.context, Batch: 5}, c.first, c.last, want)
	}
	for _, c := range [][2]int{{-1, 2}, {2, 2}, {3, 5}} {
		if _, err := m.Chunk(arch.Options{Context: 64, Batch: 5}, c[0], c[1]); err == nil {
			t.Errorf("layers %d to %d: no error", c[0], c[1])
		}
	}
}

// TestContract holds a package to the tables of the contract: names, shapes
// and types of every feature of every part, and their order.
func TestContract(t *testing.T) {
	o := anemll.Options{Context: 64, Batch: 5, Chunks: 2, SplitHead: 3, Format: anemll.MLPackage}
	dir, report := archtest.Write(t, Architecture, folder("outer"), o)
	if len(report.Aside) != 1 || !strings.HasPrefix(report.Aside[0], "vision tower (packages take text only): ") || len(report.Unused) > 0 {
		t.Errorf("set aside: %q, not used: %q", report.Aside, report.Unused)
	}
	chunk := func(tokens, outTokens int) string {
		return fmt.Sprintf(`in hidden_states fp16 [1 %d 20]
in position_ids int32 [%d]
in causal_mask fp16 [1 1 %d 64]
in current_pos int32 [1]
out output_hidden_states fp16 [1 %d 20]
state model_model_kv_cache_local fp16 [3 2 22 8]
state model_model_kv_cache_global fp16 [1 2 64 8]
`, tokens, tokens, tokens, outTokens)
	}
	for _, c := range []struct{ file, function, want string }{
		{"gemma3_embeddings", "main", "in input_ids int32 [1 1] of [[1 1] [1 5]]\nout hidden_states fp16 []\n"},
		{"gemma3_FFN_PF_chunk_01of02", "infer", chunk(1, 1)},
		{"gemma3_FFN_PF_chunk_01of02", "prefill", chunk(5, 5)},
		{"gemma3_FFN_PF_chunk_02of02", "infer", chunk(1, 1)},
		{"gemma3_FFN_PF_chunk_02of02", "prefill", chunk(5, 1)},
		{"gemma3_lm_head", "main", "in hidden_states fp16 [1 1 20]\nout logits1 fp16 [1 1 17]\nout logits2 fp16 [1 1 17]\nout logits3 fp16 [1 1 16]\n"},
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
	}
	meta, err := os.ReadFile(filepath.Join(dir, "meta.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`
    local_attention_window: 12
    local_cache_length: 22
    layer_types: [sliding, sliding, full, sliding]
    states:
      - name: model_model_kv_cache_local
        shape: [3, 2, 22, 8]
        dtype: float16
        layers: [0, 1, 3]
      - name: model_model_kv_cache_global
        shape: [1, 2, 64, 8]
        dtype: float16
        layers: [2]
`, "\n  architecture: gemma3_text\n", "\n    model_prefix: gemma3\n", "\n    prefill_last_token_output: true\n"} {
		if !strings.Contains(string(meta), want) {
			t.Errorf("meta.yaml does not say%s; it is\n%s", want, meta)
		}
	}
	for _, other := range []string{"recurrent_state", "prefill_full_batches_only", "per_layer_inputs", "kv_shared_layers", "final_logit_softcap"} {
		if strings.Contains(string(meta), other) {
			t.Errorf("meta.yaml speaks of %s:\n%s", other, meta)
		}
	}
	m := openModel(t, folder("long"))
	if x := m.Extension(arch.Options{Context: 20, Batch: 8}); x.FinalLogitSoftcap != 6 || x.LocalCacheLength != 0 || !slices.Equal(x.LayerTypes, []string{"sliding", "full", "sliding"}) {
		t.Errorf("extension %+v", x)
	}
}

// convertHalf opens a package in the engine, which rounds every result to
// fp16.
func convertHalf(t *testing.T, src string, o anemll.Options) *session.Session {
	t.Helper()
	out, _ := archtest.Write(t, Architecture, src, o)
	return archtest.Session(t, archtest.Load(t, out, engine.Float16))
}

// TestLargeStream runs a model whose residual stream leaves fp16, as that of
// the released ones does, with every result rounded to fp16. The stream is
// made large by the norms behind the MLPs, so that its shape stays.
func TestLargeStream(t *testing.T) {
	const factor = 20000
	src := checkpointtest.Variant(t, folder("text"), nil, func(m map[string]*safetensors.Named) {
		for name, x := range m {
			if !strings.HasSuffix(name, "post_feedforward_layernorm.weight") {
				continue
			}
			for d := x.Data; len(d) > 0; d = d[4:] {
				w := math.Float32frombits(binary.LittleEndian.Uint32(d))
				binary.LittleEndian.PutUint32(d, math.Float32bits(factor*(1+w)-1))
			}
		}
	})
	m := openModel(t, src)
	tokens := gemmatest.OpenGolden(t, folder("text")).Tokens
	ref := newReference(m.cfg, m.set)
	var peak float64
	ref.Observe(arch.Observer{Hidden: func(layer int, x dense.Matrix) {
		if layer < m.cfg.Layers {
			for _, v := range x.Data {
				peak = max(peak, math.Abs(float64(v)))
			}
		}
	}})
	want := archtest.Feed(t, ref, tokens)
	if peak < 100000 {
		t.Fatalf("the stream only reaches %g", peak)
	}
	s := convertHalf(t, src, anemll.Options{Context: 64, Batch: 4, Chunks: 2, SplitHead: 3, Format: anemll.MLPackage})
	logits, at := archtest.Each(t, s, tokens, session.Contract)
	lowest := 1.0
	for _, i := range at {
		lowest = min(lowest, archtest.Cosine(logits.Row(i), want.Row(i)))
	}
	t.Logf("the stream reaches %.0f; %d positions, lowest cosine %.6f", peak, len(at), lowest)
	if len(at) == 0 || !(lowest >= 0.999) {
		t.Errorf("lowest cosine %g at %d positions", lowest, len(at))
	}
}

// TestEpsilon has an epsilon that counts: that of the stream's norms is scaled
// as the stream is.
func TestEpsilon(t *testing.T) {
	src := checkpointtest.Variant(t, folder("text"), func(c change) { c["rms_norm_eps"] = 0.3 }, nil)
	tokens := gemmatest.OpenGolden(t, folder("text")).Tokens
	want := archtest.Feed(t, archtest.Reference(t, Architecture, src), tokens)
	s := convertHalf(t, src, anemll.Options{Context: 64, Batch: 16, Chunks: 1, SplitHead: 1, Format: anemll.MLPackage})
	logits, at := archtest.Each(t, s, tokens, session.Contract)
	lowest := 1.0
	for _, i := range at {
		lowest = min(lowest, archtest.Cosine(logits.Row(i), want.Row(i)))
	}
	small := archtest.Feed(t, archtest.Reference(t, Architecture, folder("text")), tokens)
	if c := archtest.Cosine(small.Data, want.Data); c > 0.999 {
		t.Errorf("the epsilon does not count: cosine %g", c)
	}
	if !(lowest >= 0.999) || len(at) == 0 {
		t.Errorf("lowest cosine %g", lowest)
	}
}

// TestStreamScale holds what leaves the embeddings model to the reference.
func TestStreamScale(t *testing.T) {
	p, _ := archtest.Convert(t, Architecture, folder("outer"), anemll.Options{Context: 64, Batch: 4, Chunks: 1, SplitHead: 1, Format: anemll.MLPackage})
	m, err := engine.New(p.Embeddings.Model, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	tokens := []int32{3, 0, 49, 17}
	out := runner.Values{}
	if err := m.Predict(t.Context(), "main", runner.Values{"input_ids": runner.Ints(tokens, 1, 4)}, out, nil); err != nil {
		t.Fatal(err)
	}
	model := openModel(t, folder("outer"))
	ref := newReference(model.cfg, model.set)
	var want []float32
	ref.Observe(arch.Observer{Hidden: func(layer int, x dense.Matrix) {
		if layer == -1 {
			for _, v := range x.Data {
				want = append(want, v*float32(model.StreamScale()))
			}
		}
	}})
	if err := ref.Forward(t.Context(), tokens, nil, nil); err != nil {
		t.Fatal(err)
	}
	// A rounding to fp16 of numbers below 0.5.
	if d := archtest.Difference(out["hidden_states"].Float, want); !(d <= 1.0/8192) {
		t.Errorf("the embeddings differ by %g", d)
	}
}
