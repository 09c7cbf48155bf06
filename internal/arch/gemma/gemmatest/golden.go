package gemmatest

import (
	"encoding/binary"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"anemone/internal/arch"
	"anemone/internal/arch/archtest"
	"anemone/internal/arch/dense"
	"anemone/internal/checkpoint/safetensors"
	"anemone/internal/session"
)

// Golden is what another implementation says about a checkpoint, at some
// positions of a text.
type Golden struct {
	Tokens []int32

	Logits dense.Matrix // after some tokens
	At     []int        // the positions of its rows
	// Hidden has, for what enters the first layer, leaves each of them, and
	// follows the final norm, a row for each of HiddenAt.
	Hidden   dense.Matrix
	HiddenAt []int
}

// OpenGolden opens golden.safetensors in a folder: tokens [n], logits of all of
// them [n, vocab] or, with position [k], of some; hidden [layers + 2, k, width]
// with hidden_position [k], without which it is of the positions of the logits.
func OpenGolden(t testing.TB, dir string) Golden {
	t.Helper()
	f, err := safetensors.Open(filepath.Join(dir, "golden.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	words := func(name string) (list []uint32, cols int) {
		info, ok := f.Lookup(name)
		if !ok {
			return nil, 0
		}
		if info.DType != safetensors.F32 && info.DType != safetensors.I32 {
			t.Fatalf("%s: %s has type %s, want 32 bits", f.Path(), name, info.DType)
		}
		b, err := f.Bytes(name)
		if err != nil {
			t.Fatal(err)
		}
		for ; len(b) > 0; b = b[4:] {
			list = append(list, binary.LittleEndian.Uint32(b))
		}
		return list, info.Shape[len(info.Shape)-1]
	}
	matrix := func(name string) dense.Matrix {
		list, cols := words(name)
		if cols == 0 {
			t.Fatalf("%s: no matrix %s", f.Path(), name)
		}
		m := dense.New(len(list)/cols, cols)
		for i, w := range list {
			m.Data[i] = math.Float32frombits(w)
		}
		return m
	}
	positions := func(name string, or []int) []int {
		list, cols := words(name)
		if cols == 0 {
			return or
		}
		at := make([]int, len(list))
		for i, w := range list {
			at[i] = int(w)
		}
		return at
	}
	g := Golden{Hidden: matrix("hidden"), Logits: matrix("logits")}
	for _, id := range positions("tokens", nil) {
		g.Tokens = append(g.Tokens, int32(id))
	}
	all := make([]int, len(g.Tokens))
	for i := range all {
		all[i] = i
	}
	g.At = positions("position", all)
	g.HiddenAt = positions("hidden_position", g.At)
	if len(g.At) == 0 || g.Logits.Rows != len(g.At) || len(g.HiddenAt) == 0 || g.Hidden.Rows%len(g.HiddenAt) != 0 {
		t.Fatalf("%s: %d tokens, %d positions, logits of %d, %d rows of hidden states", f.Path(), len(g.Tokens), len(g.At), g.Logits.Rows, g.Hidden.Rows)
	}
	return g
}

// TestReference holds a reference to the golden: the logits, and what an
// observer sees of the layers, to within a bound.
func (g Golden) TestReference(t *testing.T, ref arch.Reference, bound float64) {
	t.Helper()
	var layers []int
	worst := 0.0
	ref.Observe(arch.Observer{Hidden: func(layer int, x dense.Matrix) {
		layers = append(layers, layer)
		for i, p := range g.HiddenAt {
			d := archtest.Difference(x.Row(p), g.Hidden.Row((layer+1)*len(g.HiddenAt)+i))
			if worst = max(worst, d); !(d <= bound) {
				t.Fatalf("what leaves layer %d differs by %g at position %d", layer, d, p)
			}
		}
	}})
	defer ref.Observe(arch.Observer{})
	n := 0
	err := ref.Forward(t.Context(), g.Tokens, func(i int) bool { return slices.Contains(g.At, i) }, func(i int, logits []float32) error {
		d := archtest.Difference(logits, g.Logits.Row(n))
		if worst = max(worst, d); !(d <= bound) {
			t.Errorf("after token %d logits differ by %g", i, d)
		}
		n++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("largest difference %.2g", worst)
	want := g.Hidden.Rows/len(g.HiddenAt) - 2
	if n != len(g.At) || len(layers) != want+2 || layers[0] != -1 || layers[len(layers)-1] != want {
		t.Errorf("%d logits, layers %v of %d", n, layers, want)
	}
}

// TestSession feeds the tokens that fit into a package's context, in the
// contract's sequence and one by one, and holds the logits to the golden: the
// lowest cosine, and the best token. It returns the number of those that were
// compared.
func (g Golden) TestSession(t *testing.T, what string, s *session.Session, context int, bound float64) (compared int) {
	t.Helper()
	tokens := g.Tokens[:min(len(g.Tokens), context)]
	for _, mode := range []session.Mode{session.Contract, session.InferOnly} {
		s.Reset()
		logits, got := archtest.Each(t, s, tokens, mode)
		n, lowest := 0, 1.0
		for i, p := range g.At {
			if !slices.Contains(got, p) {
				continue
			}
			n++
			c := archtest.Cosine(logits.Row(p), g.Logits.Row(i))
			lowest = min(lowest, c)
			best, err := arch.Argmax(logits.Row(p))
			if err != nil {
				t.Fatalf("%s, mode %d: after token %d: %v", what, mode, p, err)
			}
			if want, _ := arch.Argmax(g.Logits.Row(i)); best != want {
				t.Errorf("%s, mode %d: after token %d the best is %d, want %d", what, mode, p, best, want)
			}
			if !(c >= bound) {
				t.Errorf("%s, mode %d: cosine %g after token %d", what, mode, c, p)
			}
		}
		t.Logf("%s, mode %d: %d positions, lowest cosine %.7f", what, mode, n, lowest)
		compared += n
	}
	return compared
}
