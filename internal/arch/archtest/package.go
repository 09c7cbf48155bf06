package archtest

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"anemone/coreml"
	"anemone/internal/anemll"
	"anemone/internal/arch"
	"anemone/internal/arch/dense"
	"anemone/internal/compress"
	"anemone/internal/engine"
	"anemone/internal/runner"
	"anemone/internal/session"
)

// Write converts the checkpoint in a folder and returns the package's.
func Write(t testing.TB, a arch.Architecture, dir string, o anemll.Options) (string, *anemll.Report) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	report, err := anemll.Convert(t.Context(), arch.Registry{a}, dir, out, o)
	if err != nil {
		t.Fatal(err)
	}
	return out, report
}

// Load opens a package, with which nothing may be wrong, in the engine.
func Load(t testing.TB, dir string, n engine.Numerics) *session.Model {
	t.Helper()
	p, err := anemll.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	if len(p.Problems) > 0 {
		t.Errorf("the package has problems: %q", p.Problems)
	}
	m, err := session.Load(p, func(m *coreml.Model) (runner.Model, error) { return engine.New(m, engine.Options{Numerics: n}) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// Session returns an empty session.
func Session(t testing.TB, m *session.Model) *session.Session {
	t.Helper()
	s, err := m.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Convert is Write, Load and Session, with values in float32.
func Convert(t testing.TB, a arch.Architecture, dir string, o anemll.Options) (*anemll.Package, *session.Session) {
	t.Helper()
	out, _ := Write(t, a, dir, o)
	m := Load(t, out, engine.Float32)
	return m.Package(), Session(t, m)
}

// Tokens returns n tokens at random of the vocabulary of the checkpoint in a
// folder.
func Tokens(t testing.TB, a arch.Architecture, dir string, n int, seed uint64) []int32 {
	t.Helper()
	vocab := Open(t, a, dir).Info().Vocab
	rng := rand.New(rand.NewPCG(seed, 4))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(rng.IntN(vocab))
	}
	return ids
}

// Each feeds tokens and returns the logits after those for which there are
// any, in rows of the tokens' positions (the others are zero), and which those
// are.
func Each(t testing.TB, s *session.Session, tokens []int32, mode session.Mode) (logits dense.Matrix, at []int) {
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

// TestPrompts feeds prompts of the first so many tokens, each followed by one
// token more, to a package whose functions take the given numbers of tokens, the
// largest first: its calls are as large as what is left allows, and the logits
// after each of them have the bits of want's rows, those of the same tokens one
// by one.
func TestPrompts(t testing.TB, what string, s *session.Session, tokens []int32, want dense.Matrix, lengths []int, sizes ...int) {
	t.Helper()
	for _, n := range lengths {
		if n < 1 || n > len(tokens) {
			continue
		}
		var calls []int // the positions of their last tokens
		p := 0
		for _, size := range append(sizes, 1) {
			for ; n-p >= size; p += size {
				calls = append(calls, p+size-1)
			}
		}
		s.Reset()
		logits, at := Each(t, s, tokens[:n], session.Contract)
		if !slices.Equal(at, calls) {
			t.Errorf("%s: a prompt of %d: calls ended at %v, want %v", what, n, at, calls)
		}
		for _, i := range at {
			if !Same(logits.Row(i), want.Row(i)) {
				t.Errorf("%s: a prompt of %d: the logits after token %d differ by %g", what, n, i, Difference(logits.Row(i), want.Row(i)))
			}
		}
		if n == len(tokens) {
			continue
		}
		next, err := s.Feed(t.Context(), tokens[n:n+1])
		if err != nil {
			t.Fatal(err)
		}
		if !Same(next, want.Row(n)) {
			t.Errorf("%s: a prompt of %d and a token: the logits differ by %g", what, n, Difference(next, want.Row(n)))
		}
	}
}

// TestRemainders holds packages of the checkpoint in a folder with functions
// for fewer tokens than a batch to single tokens, for prompts of every length
// up to four batches.
func TestRemainders(t *testing.T, a arch.Architecture, dir string) {
	const batch = 8
	tokens := Tokens(t, a, dir, 4*batch+1, 1)
	lengths := make([]int, 4*batch)
	for i := range lengths {
		lengths[i] = i + 1
	}
	var want dense.Matrix
	for _, o := range []anemll.Options{{Chunks: 1, Remainders: []int{4, 2}}, {Chunks: Open(t, a, dir).Info().Layers, Remainders: []int{2}}} {
		o.Context, o.Batch, o.SplitHead, o.Format = 64, batch, 3, anemll.MLPackage
		TestRemainderWeights(t, a, dir, o)
		_, s := Convert(t, a, dir, o)
		if want.Data == nil {
			want, _ = Each(t, s, tokens, session.InferOnly)
		}
		TestPrompts(t, fmt.Sprintf("%d chunks, remainders %v", o.Chunks, o.Remainders), s, tokens, want, lengths, append([]int{batch}, o.Remainders...)...)
	}
}

// TestRemainderWeights holds the files of weights of a package with functions
// for fewer tokens than a batch to those of one without: they are the same.
func TestRemainderWeights(t testing.TB, a arch.Architecture, dir string, o anemll.Options) {
	t.Helper()
	more, _ := Write(t, a, dir, o)
	functions := len(Load(t, more, engine.Float32).Package().Remainders)
	if functions != len(o.Remainders) || functions == 0 {
		t.Errorf("%d functions for fewer tokens than a batch, want some for %v", functions, o.Remainders)
	}
	o.Remainders = nil
	plain, _ := Write(t, a, dir, o)
	files, err := filepath.Glob(filepath.Join(plain, "*.mlpackage", "Data", "com.apple.CoreML", "weights", "weight.bin"))
	if err != nil || len(files) != o.Chunks+2 {
		t.Fatalf("%d files of weights, want %d; %v", len(files), o.Chunks+2, err)
	}
	for _, file := range files {
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		rest, err := filepath.Rel(plain, file)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(more, rest)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, want the same %d; %v", rest, len(got), len(want), err)
		}
	}
}

// TestPackage holds fp16 packages of the checkpoint in a folder, in one chunk
// and in one for each layer, to a golden file: in the contract's sequence and
// token by token, the cosine of the logits is at least 0.9999 at every position
// and the best token is the same. fp16 has eleven bits, so that each rounding
// turns a vector by some 2e-4 radians; a hundred of them at random come to
// 2e-3, a cosine of 0.999998.
//
// Neither chunks nor batches may change a bit: a token's results are the same
// sums in the same order.
func TestPackage(t *testing.T, a arch.Architecture, dir string, g Golden) {
	layers := Open(t, a, dir).Info().Layers
	var first dense.Matrix
	for _, chunks := range []int{1, layers} {
		_, s := Convert(t, a, dir, anemll.Options{Context: 64, Batch: 16, Chunks: chunks, SplitHead: 3, Format: anemll.MLPackage})
		for _, mode := range []session.Mode{session.InferOnly, session.Contract} {
			s.Reset()
			logits, at := Each(t, s, g.Tokens, mode)
			what := fmt.Sprintf("%d chunks, token by token", chunks)
			least := len(g.Tokens)
			if mode == session.Contract {
				what, least = fmt.Sprintf("%d chunks, in batches", chunks), least/16
			}
			if len(at) < least {
				t.Errorf("%s: logits after %d of %d tokens", what, len(at), len(g.Tokens))
			}
			if first.Data == nil {
				first = logits
			}
			lowest := 1.0
			for _, i := range at {
				if !Same(logits.Row(i), first.Row(i)) {
					t.Errorf("%s: the logits after token %d have other bits, and differ by %g", what, i, Difference(logits.Row(i), first.Row(i)))
				}
				lowest = min(lowest, Cosine(logits.Row(i), g.Logits.Row(i)))
				got, err := arch.Argmax(logits.Row(i))
				if err != nil {
					t.Fatalf("%s: token %d: %v", what, i, err)
				}
				if want, _ := arch.Argmax(g.Logits.Row(i)); got != want {
					t.Errorf("%s: after token %d the best is %d, want %d", what, i, got, want)
				}
			}
			t.Logf("%s: %d positions, lowest cosine %.7f", what, len(at), lowest)
			if !(lowest >= 0.9999) {
				t.Errorf("%s: lowest cosine %g, want at least 0.9999", what, lowest)
			}
		}
	}
}

// TestTransformer runs the suites for plain transformers on the checkpoint in a
// folder, which holds a golden.safetensors beside it: [TestGolden] to within a
// bound, [TestReference], [TestPackage] and [TestRemainders].
func TestTransformer(t *testing.T, a arch.Architecture, dir string, bound float64) {
	g := OpenGolden(t, filepath.Join(dir, "golden.safetensors"))
	t.Run("Golden", func(t *testing.T) { TestGolden(t, Reference(t, a, dir), g, bound) })
	t.Run("Reference", func(t *testing.T) { TestReference(t, Reference(t, a, dir), Tokens(t, a, dir, 67, 1)) })
	t.Run("Package", func(t *testing.T) { TestPackage(t, a, dir, g) })
	t.Run("Remainders", func(t *testing.T) { TestRemainders(t, a, dir) })
}

// BenchmarkRemainders measures prompts of one to two batches of 64, but for one
// token, with functions for 16 and 4 tokens and without, alternating on one
// model with 4-bit tables: ratio is that of the times. ANEMONE_CHECKPOINT names
// another folder with a checkpoint of the architecture.
func BenchmarkRemainders(b *testing.B, a arch.Architecture, dir string) {
	const batch = 64
	if s := os.Getenv("ANEMONE_CHECKPOINT"); s != "" {
		dir = s
	}
	e := compress.Encoding{Bits: 4, Group: 8}
	out, _ := Write(b, a, dir, anemll.Options{Context: 512, Batch: batch, Chunks: 1, Remainders: []int{16, 4}, FFN: e, Head: e, Format: anemll.MLPackage})
	m := Load(b, out, engine.Float32)
	p := m.Package()
	all := p.Remainders
	p.Remainders = nil // of the sessions made from here on
	without := Session(b, m)
	for n := 1; n <= len(all); n++ {
		p.Remainders = all[:n]
		with := Session(b, m)
		name := "by"
		for _, f := range p.Remainders {
			name += fmt.Sprintf("-%d", f.Tokens)
		}
		for _, length := range []int{batch - 1, batch + batch/2 - 1, batch + batch/2, 2*batch - 1} {
			ids := make([]int32, length)
			feed := func(s *session.Session) time.Duration {
				s.Reset()
				start := time.Now()
				if _, err := s.Feed(b.Context(), ids); err != nil {
					b.Fatal(err)
				}
				return time.Since(start)
			}
			b.Run(fmt.Sprintf("%s/%d", name, length), func(b *testing.B) {
				feed(without) // the first calls prepare weights
				feed(with)
				// The fastest of each: others use the machine as well.
				before, now := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
				for b.Loop() {
					before = min(before, feed(without))
					now = min(now, feed(with))
				}
				b.ReportMetric(float64(length)/before.Seconds(), "tokens/s-without")
				b.ReportMetric(float64(length)/now.Seconds(), "tokens/s-with")
				b.ReportMetric(before.Seconds()/now.Seconds(), "ratio")
			})
		}
	}
}
