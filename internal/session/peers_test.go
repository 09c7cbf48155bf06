package session_test

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"anemone/coreml"
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
	states    map[string][]float32
}

func readGolden(t *testing.T, elem ...string) golden {
	t.Helper()
	f, err := safetensors.Open(testutil.Shared(t, elem...))
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
