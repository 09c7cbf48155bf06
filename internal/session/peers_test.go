package session_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"anemone/coreml"
	"anemone/coreml/mlmodelc"
	"anemone/internal/anemll"
	"anemone/internal/checkpoint/safetensors"
	"anemone/internal/engine"
	"anemone/internal/float16"
	"anemone/internal/runner"
	"anemone/internal/session"
	"anemone/internal/testutil"
)

func loadEngine(m *coreml.Model) (runner.Model, error) { return engine.New(m, engine.Options{}) }

func openPeer(t *testing.T, name string) *session.Model {
	t.Helper()
	p, err := anemll.Open(testutil.Shared(t, "peers", name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	m, err := session.Load(p, loadEngine)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// golden holds what another implementation computed.
type golden struct {
	tokens    []int32
	positions []int32
	logits    []float32
	index     []int32   // of a head with argmax_in_model, in place of logits
	value     []float32 // likewise
	states    map[string][]float32
}

func readGolden(t *testing.T, elem ...string) golden {
	t.Helper()
	return readGoldenFile(t, testutil.Shared(t, elem...))
}

func readGoldenFile(t *testing.T, path string) golden {
	t.Helper()
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	g := golden{states: map[string][]float32{}}
	le := binary.LittleEndian
	for _, info := range f.Tensors() {
		b, err := f.Bytes(info.Name)
		if err != nil {
			t.Fatal(err)
		}
		var ints []int32
		var floats []float32
		switch info.DType {
		case safetensors.I32:
			for i := 0; i < len(b); i += 4 {
				ints = append(ints, int32(le.Uint32(b[i:])))
			}
		case safetensors.F32:
			for i := 0; i < len(b); i += 4 {
				floats = append(floats, math.Float32frombits(le.Uint32(b[i:])))
			}
		case safetensors.F16:
			for i := 0; i < len(b); i += 2 {
				floats = append(floats, float16.ToFloat32(le.Uint16(b[i:])))
			}
		}
		switch info.Name {
		case "tokens":
			g.tokens = ints
		case "position":
			g.positions = ints
		case "logits":
			g.logits = floats
		case "argmax_idx":
			g.index = ints
		case "argmax_val":
			g.value = floats
		default:
			g.states[info.Name] = floats
		}
	}
	return g
}

// ANEMLL's own packages, through the engine: the oracle's logits within 2e-3,
// and its states within fp16 rounding.
func TestPeersAgainstGoldens(t *testing.T) {
	for _, name := range []string{"qwen3-fp16-c2", "qwen3-lut4-lut6-c2"} {
		m := openPeer(t, name)
		g := readGolden(t, "peers", name+".golden.safetensors")
		s, err := m.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		vocab, worst := m.Package().VocabSize, 0.0
		var positions []int32
		err = s.Each(t.Context(), g.tokens, session.Contract, func(pos int, logits []float32) error {
			want := g.logits[len(positions)*vocab:][:vocab]
			for i := range want {
				worst = max(worst, math.Abs(float64(logits[i]-want[i])))
			}
			positions = append(positions, int32(pos))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(positions, g.positions) {
			t.Errorf("%s: logits at %v, want %v", name, positions, g.positions)
		}
		if !(worst <= 2e-3) {
			t.Errorf("%s: logits differ by %v", name, worst)
		}
		st, err := s.States()[0].Read("model_model_kv_cache_0")
		if err != nil {
			t.Fatal(err)
		}
		off := 0.0
		want := g.states["state.model_model_kv_cache_0"]
		if len(st.Float) != len(want) {
			t.Fatalf("%s: state of %d elements, want %d", name, len(st.Float), len(want))
		}
		for i, w := range want {
			off = max(off, math.Abs(float64(st.Float[i]-w))/max(1, math.Abs(float64(w))))
		}
		if !(off <= 1e-3) { // half a unit of fp16's last place is 5e-4
			t.Errorf("%s: the state differs by %v", name, off)
		}
		t.Logf("%s: logits within %.2g, state within %.2g", name, worst, off)
	}
}

// The indices and values of ANEMLL's argmax head. An index may only differ
// where two logits of its part are as good as equal, which these never are.
func TestArgmaxPeerAgainstGolden(t *testing.T) {
	const name = "qwen3-lut6-argmax-c2"
	m := openPeer(t, name)
	g := readGolden(t, "peers", name+".golden.safetensors")
	s, err := m.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	parts := len(m.Package().LogitsWidths)
	if parts != 16 || len(g.index) != parts*len(g.positions) || len(g.value) != len(g.index) {
		t.Fatalf("%d parts, %d and %d elements for %d positions", parts, len(g.index), len(g.value), len(g.positions))
	}
	var positions []int32
	worst := 0.0
	err = s.Each(t.Context(), g.tokens, session.Contract, func(pos int, logits []float32) error {
		at := len(positions) * parts
		positions = append(positions, int32(pos))
		index, value := s.Argmax()
		best := 0
		for i := range parts {
			if index[i] != g.index[at+i] {
				t.Errorf("position %d: part %d has its best at %d, want %d (%v)", pos, i, index[i], g.index[at+i], g.value[at+i])
			}
			worst = max(worst, math.Abs(float64(value[i]-g.value[at+i])))
			if g.value[at+i] > g.value[at+best] {
				best = i
			}
		}
		token, err := s.Best()
		if want := int32(best*32) + g.index[at+best]; err != nil || token != want {
			t.Errorf("position %d: best token %d, want %d; %v", pos, token, want, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(positions, g.positions) {
		t.Errorf("scores at %v, want %v", positions, g.positions)
	}
	if !(worst <= 2e-3) {
		t.Errorf("values differ by %v", worst)
	}
	t.Logf("%d positions, values within %.2g", len(positions), worst)
}

// Old packages have seven keys in their meta.yaml, no names and no flags: the
// parts are found by prefix and bits, and prompts go token by token. What the
// peer's goldens say at every position that they have holds there, too.
func TestPeerWithOldMeta(t *testing.T) {
	for name, luts := range map[string][3]string{"qwen3-fp16-c2": {"none", "none", "none"}, "qwen3-lut4-lut6-c2": {"none", "4", "6"}} {
		peer := testutil.Shared(t, "peers", name)
		dir := t.TempDir()
		entries, err := os.ReadDir(peer)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if filepath.Ext(e.Name()) == ".mlpackage" {
				if err := os.Symlink(filepath.Join(peer, e.Name()), filepath.Join(dir, e.Name())); err != nil {
					t.Skipf("no symbolic links here: %v", err)
				}
			}
		}
		meta := fmt.Sprintf("model_info:\n  name: old\n  something_new: 1\n  parameters:\n    context_length: 256\n    batch_size: 64\n"+
			"    lut_embeddings: %s\n    lut_ffn: %s\n    lut_lmhead: %s\n    num_chunks: 2\n    model_prefix: qwen\n    of_the_future: [1, {a: b}]\n", luts[0], luts[1], luts[2])
		if err := os.WriteFile(filepath.Join(dir, anemll.MetaFile), []byte(meta), 0o666); err != nil {
			t.Fatal(err)
		}
		m, calls, err := loadFolder(t, dir, 2)
		if err != nil {
			t.Fatal(err)
		}
		if p := m.Package(); len(p.Problems) != 0 || p.PrefillFunction != "" || !slices.Equal(p.Meta.Unknown(), []string{"of_the_future", "something_new"}) {
			t.Errorf("%s: problems %q, prefill %q, unknown keys %q", name, p.Problems, p.PrefillFunction, p.Meta.Unknown())
		}
		g := readGolden(t, "peers", name+".golden.safetensors")
		s, err := m.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		worst, seen, vocab := 0.0, 0, m.Package().VocabSize
		err = s.Each(t.Context(), g.tokens, session.Contract, func(pos int, logits []float32) error {
			if k := slices.Index(g.positions, int32(pos)); k >= 0 {
				seen++
				for i, w := range g.logits[k*vocab:][:vocab] {
					worst = max(worst, math.Abs(float64(logits[i]-w)))
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		// Token by token adds up in another order than a batch does.
		if seen != len(g.positions) || !(worst <= 4e-3) {
			t.Errorf("%s: logits differ by %v at %d of %d positions", name, worst, seen, len(g.positions))
		}
		if got := calls(); got != ones(0, len(g.tokens)) {
			t.Errorf("%s: calls %s", name, got)
		}
	}
}

// A compiled peer gives its logits to the bit.
func TestCompiledPeer(t *testing.T) {
	for _, name := range []string{"qwen3-lut4-lut6-c2", "qwen3-lut6-argmax-c2"} {
		peer := testutil.Shared(t, "peers", name)
		dir := t.TempDir()
		entries, err := os.ReadDir(peer)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if filepath.Ext(e.Name()) == ".mlpackage" {
				if _, err := mlmodelc.Compile(t.Context(), filepath.Join(peer, e.Name()), dir, mlmodelc.Options{}); err != nil {
					t.Fatal(err)
				}
			}
		}
		meta, err := os.ReadFile(filepath.Join(peer, anemll.MetaFile))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, anemll.MetaFile), meta, 0o666); err != nil {
			t.Fatal(err)
		}
		compiled, _, err := loadFolder(t, dir, 2)
		if err != nil {
			t.Fatal(err)
		}
		if p := compiled.Package(); filepath.Ext(p.Chunks[0].Path) != ".mlmodelc" || len(p.Problems) != 0 {
			t.Errorf("%s: problems %q", p.Chunks[0].Path, p.Problems)
		}
		g := readGolden(t, "peers", name+".golden.safetensors")
		run := func(m *session.Model) (out []float32) {
			s, err := m.NewSession()
			if err != nil {
				t.Fatal(err)
			}
			err = s.Each(t.Context(), g.tokens, session.Contract, func(_ int, logits []float32) error {
				_, value := s.Argmax()
				out = append(append(out, logits...), value...)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		a, b := run(compiled), run(openPeer(t, name))
		if len(a) == 0 || !slices.Equal(a, b) {
			t.Errorf("%s: other logits than those of the package (%d and %d)", name, len(a), len(b))
		}
	}
}

// Prompts of every length from 1 to 2 batches + 1: prefill and infer together
// give what infer alone gives.
func TestPeerPrefillEqualsInfer(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	m := openPeer(t, "qwen3-fp16-c2")
	g := readGolden(t, "peers", "qwen3-fp16-c2.golden.safetensors")
	s, err := m.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	n := 2*m.Package().BatchSize + 1
	var alone [][]float32
	if err := s.Each(t.Context(), g.tokens[:n], session.InferOnly, func(_ int, logits []float32) error {
		alone = append(alone, slices.Clone(logits))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	least := 1.0
	for k := 1; k <= n; k++ {
		s.Reset()
		got, err := s.Feed(t.Context(), g.tokens[:k])
		if err != nil {
			t.Fatal(err)
		}
		c := cosine(got, alone[k-1])
		if least = min(least, c); !(c >= 0.999999) {
			t.Errorf("%d tokens: cosine %v", k, c)
		}
	}
	t.Logf("least cosine %.9f over %d lengths", least, n)
}

func cosine(a, b []float32) float64 {
	var ab, aa, bb float64
	for i := range a {
		x, y := float64(a[i]), float64(b[i])
		ab, aa, bb = ab+x*y, aa+x*x, bb+y*y
	}
	return ab / math.Sqrt(aa*bb)
}

func TestPeerGenerates(t *testing.T) {
	m := openPeer(t, "qwen3-lut4-lut6-c2")
	g := readGolden(t, "peers", "qwen3-lut4-lut6-c2.golden.safetensors")
	s, err := m.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	// 250 of 256 positions are taken, so the context gets full.
	prompt := append(slices.Clone(g.tokens), g.tokens[:100]...)
	run := func(seed uint64) (out []int32, shifts int) {
		opt := session.Options{MaxTokens: 12, Pinned: 8, Sampling: session.Sampling{Temperature: 4, TopK: 200, TopP: 0.99, Seed: seed}}
		for e, err := range s.Generate(t.Context(), prompt, opt) {
			if err != nil {
				t.Fatal(err)
			}
			switch e.Kind {
			case session.Token:
				out = append(out, e.Token)
			case session.Shift:
				shifts++
			}
		}
		return out, shifts
	}
	a, shifts := run(1)
	if len(a) != 12 || shifts != 1 {
		t.Errorf("%d tokens with %d shifts, want 12 with 1", len(a), shifts)
	}
	b, _ := run(1)
	if !slices.Equal(a, b) {
		t.Errorf("the same seed gave %v, then %v", a, b)
	}
	if c, _ := run(2); slices.Equal(a, c) {
		t.Error("another seed gave the same tokens")
	}
}
