package qwen3

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"anemone/internal/arch"
	"anemone/internal/arch/archtest"
	"anemone/internal/arch/dense"
	"anemone/internal/testutil"
)

func openReference(t testing.TB, dir string) arch.Reference {
	t.Helper()
	return archtest.Reference(t, Architecture, dir)
}

// tiny returns the reference of the trained test checkpoint, and its golden.
func tiny(t testing.TB) (arch.Reference, archtest.Golden) {
	t.Helper()
	return openReference(t, testutil.Data(t, "checkpoints", "tiny-qwen3")), archtest.OpenGolden(t, testutil.Data(t, "goldens", "tiny-qwen3.safetensors"))
}

// The random checkpoints in testdata; see make.py.
var random = []string{"bias-untied", "mha-tied", "wide-heads"}

// These goldens are those of transformers, whose float32 sums are rounded at
// every step; the bound is some ten times what that comes to.
func TestReferenceGolden(t *testing.T) {
	t.Run("tiny-qwen3", func(t *testing.T) {
		ref, g := tiny(t)
		archtest.TestGolden(t, ref, g, 1e-4)
	})
	t.Run("peer", func(t *testing.T) {
		ref := openReference(t, testutil.Shared(t, "peers", "qwen3-checkpoint"))
		archtest.TestGolden(t, ref, archtest.OpenGolden(t, testutil.Shared(t, "peers", "qwen3-checkpoint.golden.safetensors")), 1e-4)
	})
}

// The goldens of the random checkpoints are computed in float64.
func TestTransformer(t *testing.T) {
	for _, name := range random {
		t.Run(name, func(t *testing.T) {
			archtest.TestTransformer(t, Architecture, filepath.Join("testdata", name), 2e-5)
		})
	}
}

// What an observer sees is what the other implementation computed at the same
// place.
func TestObserve(t *testing.T) {
	for _, name := range random {
		t.Run(name, func(t *testing.T) {
			ref := openReference(t, filepath.Join("testdata", name))
			g := archtest.OpenGolden(t, filepath.Join("testdata", name, "golden.safetensors"))
			hidden := g.Matrix(t, "hidden")
			n, layers := len(g.Tokens), archtest.Open(t, Architecture, filepath.Join("testdata", name)).Info().Layers
			last := hidden.Slice((layers+1)*n, (layers+2)*n)

			var seen []string
			ref.Observe(arch.Observer{
				Hidden: func(layer int, x dense.Matrix) {
					seen = append(seen, fmt.Sprint("hidden ", layer))
					if d := archtest.Difference(x.Data, hidden.Slice((layer+1)*n, (layer+2)*n).Data); d > 2e-5 {
						t.Errorf("hidden states after layer %d differ by %g", layer, d)
					}
				},
				Linear: func(layer int, tensor string, x dense.Matrix) {
					seen = append(seen, fmt.Sprint(layer, " ", tensor))
					if layer == -1 {
						want := append(slices.Clone(last.Row(3)), last.Row(n-1)...)
						if d := archtest.Difference(x.Data, want); d > 2e-5 || x.Rows != 2 {
							t.Errorf("the input of the head differs by %g", d)
						}
						return
					}
					// Those of k and v are q's, that of up is gate's.
					golden := strings.NewReplacer("k_proj", "q_proj", "v_proj", "q_proj", "up_proj", "gate_proj", ".weight", "").Replace(tensor)
					if d := archtest.Difference(x.Data, g.Matrix(t, "input."+golden).Data); d > 2e-5 || x.Rows != n {
						t.Errorf("the input of %s differs by %g", tensor, d)
					}
				},
			})
			want := []string{"hidden -1"}
			for l := range layers {
				for _, p := range []string{"self_attn.q", "self_attn.k", "self_attn.v", "self_attn.o", "mlp.gate", "mlp.up", "mlp.down"} {
					want = append(want, fmt.Sprintf("%d model.layers.%d.%s_proj.weight", l, l, p))
				}
				want = append(want, fmt.Sprint("hidden ", l))
			}
			want = append(want, fmt.Sprint("hidden ", layers))
			head := "-1 model.embed_tokens.weight"
			if name == "bias-untied" {
				head = "-1 lm_head.weight"
			}
			some := func(i int) bool { return i == 3 || i == n-1 }
			ignore := func(int, []float32) error { return nil }
			if err := ref.Forward(t.Context(), g.Tokens, some, ignore); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(seen, append(slices.Clone(want), head)) {
				t.Errorf("seen %q, want %q", seen, append(want, head))
			}

			// Without logits the head is not computed.
			if err := ref.Truncate(0); err != nil {
				t.Fatal(err)
			}
			seen = nil
			if err := ref.Forward(t.Context(), g.Tokens, some, nil); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(seen, want) {
				t.Errorf("without logits: seen %q, want %q", seen, want)
			}
			seen = nil
			ref.Observe(arch.Observer{})
			archtest.Feed(t, ref, g.Tokens)
			if len(seen) != 0 {
				t.Errorf("the observer sees %q after it was taken away", seen)
			}
		})
	}
}

func TestReference(t *testing.T) {
	ref, g := tiny(t)
	archtest.TestReference(t, ref, g.Tokens[:67])
}

// The tiny checkpoint's golden goes on greedily after its prompt.
func TestGreedy(t *testing.T) {
	ref, g := tiny(t)
	archtest.TestGreedy(t, ref, g)
}

func BenchmarkForward(b *testing.B) {
	archtest.BenchmarkReference(b, Architecture, testutil.Data(b, "checkpoints", "tiny-qwen3"))
}
