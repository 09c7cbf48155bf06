package gemmatest

import (
	"path/filepath"
	"slices"
	"testing"

	"anemone/internal/arch"
	"anemone/internal/arch/archtest"
	"anemone/internal/arch/dense"
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
	f := archtest.OpenTensors(t, filepath.Join(dir, "golden.safetensors"))
	positions := func(name string, or []int) []int {
		list := f.Ints(t, name)
		if list == nil {
			return or
		}
		at := make([]int, len(list))
		for i, p := range list {
			at[i] = int(p)
		}
		return at
	}
	g := Golden{Tokens: f.Ints(t, "tokens"), Hidden: f.Matrix(t, "hidden"), Logits: f.Matrix(t, "logits")}
	all := make([]int, len(g.Tokens))
	for i := range all {
		all[i] = i
	}
	g.At = positions("position", all)
	g.HiddenAt = positions("hidden_position", g.At)
	if len(g.At) == 0 || g.Logits.Rows != len(g.At) || len(g.HiddenAt) == 0 || g.Hidden.Rows%len(g.HiddenAt) != 0 {
		t.Fatalf("%s: %d tokens, %d positions, logits of %d, %d rows of hidden states", dir, len(g.Tokens), len(g.At), g.Logits.Rows, g.Hidden.Rows)
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
