package gemma3

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
)

// The random checkpoints in testdata; see make.py.
var random = []string{"text", "outer", "long"}

func folder(name string) string { return filepath.Join("testdata", name) }

func openModel(t testing.TB, dir string) *Model {
	t.Helper()
	return archtest.Open(t, Architecture, dir).(*Model)
}

// The goldens are those of transformers, whose float32 sums are rounded at
// every step; the bound is some ten times what that comes to.
func TestReferenceGolden(t *testing.T) {
	for _, name := range random {
		t.Run(name, func(t *testing.T) {
			g := gemmatest.OpenGolden(t, folder(name))
			g.TestReference(t, archtest.Reference(t, Architecture, folder(name)), 5e-5)
		})
	}
}

func TestReference(t *testing.T) {
	for _, name := range random {
		t.Run(name, func(t *testing.T) {
			g := gemmatest.OpenGolden(t, folder(name))
			archtest.TestReference(t, archtest.Reference(t, Architecture, folder(name)), g.Tokens[:min(len(g.Tokens), 60)])
		})
	}
}

// Every linear layer is shown with its name; the head sees what was wanted.
func TestObserve(t *testing.T) {
	for name, head := range map[string]string{"outer": "embed_tokens.weight", "long": "lm_head.weight"} {
		m := openModel(t, folder(name))
		ref := newReference(m.cfg, m.set)
		var seen []string
		ref.Observe(arch.Observer{Linear: func(layer int, tensor string, x dense.Matrix) {
			seen = append(seen, fmt.Sprint(layer, " ", strings.TrimPrefix(tensor, m.set.Prefix)))
			if want := map[bool]int{true: 1, false: 2}[layer == -1]; x.Rows != want {
				t.Errorf("%s sees %d tokens, want %d", tensor, x.Rows, want)
			}
		}})
		var want []string
		for l := range m.cfg.Layers {
			for _, p := range []string{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"} {
				want = append(want, fmt.Sprintf("%d layers.%d.%s.weight", l, l, p))
			}
		}
		if err := ref.Forward(t.Context(), []int32{3, 4}, func(i int) bool { return i == 1 }, func(int, []float32) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if want = append(want, "-1 "+head); !slices.Equal(seen, want) {
			t.Errorf("%s: seen %q, want %q", name, seen, want)
		}
	}
}
