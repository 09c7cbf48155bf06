package qwen3

import (
	"context"
	"encoding/binary"
	"math"
	"testing"

	"anemone/internal/arch"
	"anemone/internal/checkpoint"
	"anemone/internal/checkpoint/safetensors"
	"anemone/internal/testutil"
)

// golden is what another implementation says about a checkpoint.
type golden struct {
	prompt, tokens []int32
	logits         [][]float32 // after each of tokens
}

func readGolden(t testing.TB, path string) golden {
	t.Helper()
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	words := func(name string, want safetensors.DType) []uint32 {
		info, ok := f.Lookup(name)
		if !ok {
			return nil
		}
		if info.DType != want {
			t.Fatalf("%s: %s has type %s", path, name, info.DType)
		}
		b, err := f.Bytes(name)
		if err != nil {
			t.Fatal(err)
		}
		w := make([]uint32, len(b)/4)
		for i := range w {
			w[i] = binary.LittleEndian.Uint32(b[4*i:])
		}
		return w
	}
	ints := func(name string) (out []int32) {
		for _, w := range words(name, safetensors.I32) {
			out = append(out, int32(w))
		}
		return out
	}
	g := golden{prompt: ints("prompt"), tokens: ints("tokens")}
	flat := words("logits", safetensors.F32)
	if len(g.tokens) == 0 || len(flat) == 0 || len(flat)%len(g.tokens) != 0 {
		t.Fatalf("%s: %d tokens and %d logits", path, len(g.tokens), len(flat))
	}
	vocab := len(flat) / len(g.tokens)
	for i := range g.tokens {
		row := make([]float32, vocab)
		for j := range row {
			row[j] = math.Float32frombits(flat[i*vocab+j])
		}
		g.logits = append(g.logits, row)
	}
	return g
}

func open(t testing.TB, dir string) arch.Reference {
	t.Helper()
	ck, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ck.Close() })
	m, err := Open(ck)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := m.Reference()
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// worst feeds the golden's tokens and returns the largest difference between
// its logits and the reference's.
func worst(t *testing.T, ref arch.Reference, g golden) float64 {
	t.Helper()
	if len(g.logits[0]) != ref.VocabSize() {
		t.Fatalf("%d logits in the golden, %d in the reference", len(g.logits[0]), ref.VocabSize())
	}
	var w float64
	n := 0
	err := ref.Forward(context.Background(), g.tokens, nil, func(i int, logits []float32) error {
		if i != n {
			t.Errorf("logits of token %d come after those of %d", i, n-1)
		}
		n++
		for j, v := range logits {
			d := math.Abs(float64(v) - float64(g.logits[i][j]))
			if !(d <= w) {
				w = d
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n != len(g.tokens) {
		t.Fatalf("logits after %d of %d tokens", n, len(g.tokens))
	}
	return w
}

// The goldens are those of transformers in float32. It rounds every product
// sum to float32 in an order of its own; the bound is about ten times what
// that comes to.
func TestReferenceGolden(t *testing.T) {
	for _, c := range []struct {
		name             string
		checkpoint, file func(*testing.T) string
		bound            float64
	}{
		{"tiny-qwen3",
			func(t *testing.T) string { return testutil.Data(t, "checkpoints", "tiny-qwen3") },
			func(t *testing.T) string { return testutil.Data(t, "goldens", "tiny-qwen3.safetensors") }, 1e-4},
		{"peer",
			func(t *testing.T) string { return testutil.Shared(t, "peers", "qwen3-checkpoint") },
			func(t *testing.T) string { return testutil.Shared(t, "peers", "qwen3-checkpoint.golden.safetensors") }, 1e-4},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := worst(t, open(t, c.checkpoint(t)), readGolden(t, c.file(t)))
			t.Logf("largest difference %.2g", w)
			if !(w <= c.bound) {
				t.Errorf("largest difference %g, want at most %g", w, c.bound)
			}
		})
	}
}
