package qwen35

import (
	"context"
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"anemone/internal/arch"
	"anemone/internal/arch/dense"
	"anemone/internal/checkpoint"
	"anemone/internal/checkpoint/safetensors"
	"anemone/internal/testutil"
)

// golden is what another implementation says about a checkpoint.
type golden struct {
	file           *safetensors.File
	prompt, tokens []int32
	logits         dense.Matrix // after each of tokens
}

func openGolden(t testing.TB, path string) golden {
	t.Helper()
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	g := golden{file: f}
	g.prompt, g.tokens = g.ints(t, "prompt"), g.ints(t, "tokens")
	if g.logits = g.matrix(t, "logits"); g.logits.Rows != len(g.tokens) || len(g.tokens) == 0 {
		t.Fatalf("%s: %d tokens, but logits for %d", path, len(g.tokens), g.logits.Rows)
	}
	return g
}

// words returns the elements of a tensor of 32-bit elements, nil if there is
// none.
func (g golden) words(t testing.TB, name string, want safetensors.DType) []uint32 {
	t.Helper()
	info, ok := g.file.Lookup(name)
	if !ok {
		return nil
	}
	if info.DType != want {
		t.Fatalf("%s: %s has type %s, want %s", g.file.Path(), name, info.DType, want)
	}
	b, err := g.file.Bytes(name)
	if err != nil {
		t.Fatal(err)
	}
	w := make([]uint32, len(b)/4)
	for i := range w {
		w[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return w
}

func (g golden) ints(t testing.TB, name string) []int32 {
	var out []int32
	for _, w := range g.words(t, name, safetensors.I32) {
		out = append(out, int32(w))
	}
	return out
}

// matrix returns a tensor as a matrix with all but its last dimension as
// rows.
func (g golden) matrix(t testing.TB, name string) dense.Matrix {
	t.Helper()
	info, ok := g.file.Lookup(name)
	if !ok || len(info.Shape) < 2 {
		t.Fatalf("%s: no matrix %s", g.file.Path(), name)
	}
	words := g.words(t, name, safetensors.F32)
	cols := info.Shape[len(info.Shape)-1]
	m := dense.New(len(words)/cols, cols)
	for i, w := range words {
		m.Data[i] = math.Float32frombits(w)
	}
	return m
}

// difference returns the largest absolute difference, infinity if the
// lengths differ or something is not a number.
func difference(a, b []float32) float64 {
	if len(a) != len(b) {
		return math.Inf(1)
	}
	var worst float64
	for i := range a {
		d := math.Abs(float64(a[i]) - float64(b[i]))
		if math.IsNaN(d) {
			return math.Inf(1)
		}
		worst = max(worst, d)
	}
	return worst
}

// same reports whether a and b have the same bits.
func same(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

func openModel(t testing.TB, dir string) *Model {
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
	return m.(*Model)
}

func openReference(t testing.TB, dir string) *Reference {
	t.Helper()
	ref, err := openModel(t, dir).Reference()
	if err != nil {
		t.Fatal(err)
	}
	return ref.(*Reference)
}

// feed returns the logits after each of tokens.
func feed(t testing.TB, ref arch.Reference, tokens []int32) dense.Matrix {
	t.Helper()
	out := dense.New(len(tokens), ref.VocabSize())
	n := 0
	err := ref.Forward(context.Background(), tokens, nil, func(i int, logits []float32) error {
		if i != n {
			t.Errorf("logits of token %d come when those of %d are due", i, n)
		}
		copy(out.Row(i), logits)
		n++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n != len(tokens) {
		t.Fatalf("logits after %d of %d tokens", n, len(tokens))
	}
	return out
}

// The trained checkpoints, dense and with experts, and the goldens of
// transformers in float32.
var trained = []struct{ checkpoint, golden string }{
	{"tiny-qwen35", "tiny-qwen35.safetensors"},
	{"tiny-qwen35-moe-fused", "tiny-qwen35-moe.safetensors"},
}

func TestReferenceGolden(t *testing.T) {
	check := func(name, dir, file string, bound float64) {
		t.Run(name, func(t *testing.T) {
			g := openGolden(t, file)
			worst := difference(feed(t, openReference(t, dir), g.tokens).Data, g.logits.Data)
			t.Logf("largest difference %.2g", worst)
			if !(worst <= bound) {
				t.Errorf("largest difference of a logit %g, want at most %g", worst, bound)
			}
		})
	}
	for _, c := range trained {
		check(c.checkpoint, testutil.Data(t, "checkpoints", c.checkpoint), testutil.Data(t, "goldens", c.golden), 1e-4)
	}
	t.Run("experts apart", func(t *testing.T) {
		check("tiny-qwen35-moe", testutil.Shared(t, "fixtures", "checkpoints", "tiny-qwen35-moe"), testutil.Data(t, "goldens", "tiny-qwen35-moe.safetensors"), 1e-4)
	})
}
