// Package archtest holds what the tests of architectures share: golden files,
// and the suites that every reference and every package of a plain transformer
// has to pass.
package archtest

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"anemone/internal/arch/dense"
	"anemone/internal/checkpoint/safetensors"
)

// Golden is what another implementation says about a checkpoint.
type Golden struct {
	file *safetensors.File
	// Prompt is what Tokens begins with, where the rest was generated; nil
	// where nothing was.
	Prompt, Tokens []int32
	Logits         dense.Matrix // after each of Tokens
}

// OpenGolden opens a golden file: a safetensors file with the tensors tokens
// [n] and logits [n, vocab], perhaps prompt, and whatever [Golden.Matrix] is
// asked for.
func OpenGolden(t testing.TB, path string) Golden {
	t.Helper()
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	g := Golden{file: f}
	g.Prompt, g.Tokens = g.ints(t, "prompt"), g.ints(t, "tokens")
	if g.Logits = g.Matrix(t, "logits"); g.Logits.Rows != len(g.Tokens) || len(g.Tokens) == 0 {
		t.Fatalf("%s: %d tokens, but logits for %d", path, len(g.Tokens), g.Logits.Rows)
	}
	return g
}

// words returns the elements of a tensor of 32-bit elements, nil if there is
// none.
func (g Golden) words(t testing.TB, name string, want safetensors.DType) []uint32 {
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

func (g Golden) ints(t testing.TB, name string) []int32 {
	t.Helper()
	var out []int32
	for _, w := range g.words(t, name, safetensors.I32) {
		out = append(out, int32(w))
	}
	return out
}

// Matrix returns a float32 tensor as a matrix with all but its last dimension
// as rows.
func (g Golden) Matrix(t testing.TB, name string) dense.Matrix {
	t.Helper()
	info, ok := g.file.Lookup(name)
	if !ok || len(info.Shape) < 1 {
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

// Difference returns the largest absolute difference, infinity if the
// lengths differ or something is not a number.
func Difference(a, b []float32) float64 {
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

// Same reports whether a and b have the same bits.
func Same(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

// Cosine returns the cosine of the angle between a and b.
func Cosine(a, b []float32) float64 {
	return dense.Dot(a, b) / math.Sqrt(dense.Dot(a, a)*dense.Dot(b, b))
}
