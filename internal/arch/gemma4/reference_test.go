package gemma4

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"anemone/internal/arch"
	"anemone/internal/arch/archtest"
	"anemone/internal/arch/dense"
	"anemone/internal/arch/gemma/gemmatest"
	"anemone/internal/testutil"
)

func openModel(t testing.TB, dir string) *Model {
	t.Helper()
	return archtest.Open(t, Architecture, dir).(*Model)
}

func openReference(t testing.TB, dir string) *Reference {
	t.Helper()
	return archtest.Reference(t, Architecture, dir).(*Reference)
}

// tiny returns the reference of the trained test checkpoint, and its golden.
func tiny(t testing.TB) (*Reference, archtest.Golden) {
	t.Helper()
	return openReference(t, tinyDir(t)), archtest.OpenGolden(t, testutil.Data(t, "goldens", "tiny-gemma4.safetensors"))
}

// The random checkpoints in testdata; see make.py.
var random = []string{"released", "text", "long"}

// The tiny checkpoint's golden is that of transformers, whose float32 sums are
// rounded at every step; the bound is some ten times what that comes to.
func TestReferenceGolden(t *testing.T) {
	ref, g := tiny(t)
	archtest.TestGolden(t, ref, g, 1e-4)
}

// The other goldens were computed in float64.
func TestReferenceRandom(t *testing.T) {
	for _, name := range random {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join("testdata", name)
			gemmatest.OpenGolden(t, dir).TestReference(t, openReference(t, dir), 5e-5)
		})
	}
}

func TestReference(t *testing.T) {
	ref, g := tiny(t)
	archtest.TestReference(t, ref, g.Tokens[:67])
}

// Every linear layer is shown with its name, those of layers that share keys
// without them.
func TestObserve(t *testing.T) {
	for _, name := range random[:2] {
		ref := openReference(t, filepath.Join("testdata", name))
		var seen []string
		ref.Observe(arch.Observer{Linear: func(layer int, tensor string, x dense.Matrix) {
			seen = append(seen, fmt.Sprint(layer, " ", strings.TrimPrefix(tensor, ref.w.Prefix)))
			if want := map[bool]int{true: 1, false: 2}[layer == -1 && !strings.Contains(tensor, "per_layer")]; x.Rows != want {
				t.Errorf("%s sees %d tokens, want %d", tensor, x.Rows, want)
			}
		}})
		want := []string{"-1 per_layer_model_projection.weight"}
		for l := range ref.cfg.Layers {
			parts := []string{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "per_layer_input_gate", "per_layer_projection"}
			if l >= ref.cfg.Layers-3 {
				parts = slices.Delete(parts, 1, 3)
			}
			for _, p := range parts {
				want = append(want, fmt.Sprintf("%d layers.%d.%s.weight", l, l, p))
			}
		}
		head := map[string]string{"released": "-1 embed_tokens.weight", "text": "-1 lm_head.weight"}[name]
		if err := ref.Forward(t.Context(), []int32{3, 4}, func(i int) bool { return i == 1 }, func(int, []float32) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(seen, append(want, head)) {
			t.Errorf("%s: seen %q, want %q", name, seen, append(want, head))
		}
	}
}

// The tiny checkpoint's golden goes on greedily after its prompt.
func TestGreedy(t *testing.T) {
	ref, g := tiny(t)
	archtest.TestGreedy(t, ref, g)
}

func BenchmarkForward(b *testing.B) {
	archtest.BenchmarkReference(b, Architecture, tinyDir(b))
}
