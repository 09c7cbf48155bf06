// Package archtest holds what the tests of architectures share: golden files,
// and the suites that every reference and every package of a plain transformer
// has to pass.
package archtest

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"anemone/internal/arch"
	"anemone/internal/arch/dense"
	"anemone/internal/checkpoint/safetensors"
)

// Tensors is an open safetensors file of a test.
type Tensors struct{ file *safetensors.File }

// OpenTensors opens a safetensors file for the time of the test.
func OpenTensors(t testing.TB, path string) Tensors {
	t.Helper()
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return Tensors{f}
}

// words returns the elements of a tensor of 32-bit elements, nil if there is
// none.
func (f Tensors) words(t testing.TB, name string, want safetensors.DType) []uint32 {
	t.Helper()
	info, ok := f.file.Lookup(name)
	if !ok {
		return nil
	}
	if info.DType != want {
		t.Fatalf("%s: %s has type %s, want %s", f.file.Path(), name, info.DType, want)
	}
	b, err := f.file.Bytes(name)
	if err != nil {
		t.Fatal(err)
	}
	w := make([]uint32, len(b)/4)
	for i := range w {
		w[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return w
}

// Ints returns the elements of an int32 tensor, nil if there is none.
func (f Tensors) Ints(t testing.TB, name string) []int32 {
	t.Helper()
	var out []int32
	for _, w := range f.words(t, name, safetensors.I32) {
		out = append(out, int32(w))
	}
	return out
}

// Matrix returns a float32 tensor as a matrix with all but its last dimension
// as rows.
func (f Tensors) Matrix(t testing.TB, name string) dense.Matrix {
	t.Helper()
	info, ok := f.file.Lookup(name)
	if !ok || len(info.Shape) < 1 {
		t.Fatalf("%s: no matrix %s", f.file.Path(), name)
	}
	words := f.words(t, name, safetensors.F32)
	cols := info.Shape[len(info.Shape)-1]
	m := dense.New(len(words)/cols, cols)
	for i, w := range words {
		m.Data[i] = math.Float32frombits(w)
	}
	return m
}

// Golden is what another implementation says about a checkpoint.
type Golden struct {
	Tensors
	// Prompt is what Tokens begins with, where the rest was generated; nil
	// where nothing was.
	Prompt, Tokens []int32
	Logits         dense.Matrix // after each of Tokens
}

// OpenGolden opens a golden file: a safetensors file with the tensors tokens
// [n] and logits [n, vocab], perhaps prompt, and whatever [Tensors.Matrix] is
// asked for.
func OpenGolden(t testing.TB, path string) Golden {
	t.Helper()
	g := Golden{Tensors: OpenTensors(t, path)}
	g.Prompt, g.Tokens = g.Ints(t, "prompt"), g.Ints(t, "tokens")
	if g.Logits = g.Matrix(t, "logits"); g.Logits.Rows != len(g.Tokens) || len(g.Tokens) == 0 {
		t.Fatalf("%s: %d tokens, but logits for %d", path, len(g.Tokens), g.Logits.Rows)
	}
	return g
}

// TestGolden holds a reference to a golden file: every logit, to within a
// bound.
func TestGolden(t *testing.T, ref arch.Reference, g Golden, bound float64) {
	t.Helper()
	worst := Difference(Feed(t, ref, g.Tokens).Data, g.Logits.Data)
	t.Logf("largest difference %.2g", worst)
	if !(worst <= bound) {
		t.Errorf("largest difference of a logit %g, want at most %g", worst, bound)
	}
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
