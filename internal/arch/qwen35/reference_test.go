package qwen35

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"anemone/internal/arch"
	"anemone/internal/arch/archtest"
	"anemone/internal/arch/dense"
	"anemone/internal/checkpoint"
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

// The trained checkpoints, dense and with experts, and the goldens of
// transformers in float32.
var trained = []struct{ checkpoint, golden string }{
	{"tiny-qwen35", "tiny-qwen35.safetensors"},
	{"tiny-qwen35-moe-fused", "tiny-qwen35-moe.safetensors"},
}

// The random checkpoints in testdata; see make.py.
var random = []string{"flat-untied", "nested-linear", "moe-fused", "moe-split"}

// The goldens of the trained checkpoints are those of transformers, whose
// float32 sums are rounded at every step; the bound is some ten times what
// that comes to. The others are computed in float64 by testdata/make.py.
func TestReferenceGolden(t *testing.T) {
	check := func(name, dir, file string, bound float64) {
		t.Run(name, func(t *testing.T) {
			archtest.TestGolden(t, openReference(t, dir), archtest.OpenGolden(t, file), bound)
		})
	}
	for _, c := range trained {
		check(c.checkpoint, testutil.Data(t, "checkpoints", c.checkpoint), testutil.Data(t, "goldens", c.golden), 1e-4)
	}
	for _, name := range random {
		check(name, filepath.Join("testdata", name), filepath.Join("testdata", name, "golden.safetensors"), 2e-5)
	}
	t.Run("experts apart", func(t *testing.T) {
		check("tiny-qwen35-moe", testutil.Shared(t, "fixtures", "checkpoints", "tiny-qwen35-moe"), testutil.Data(t, "goldens", "tiny-qwen35-moe.safetensors"), 1e-4)
	})
}

// What an observer sees is what the other implementation computed at the same
// place, and the memories are its too.
func TestObserve(t *testing.T) {
	for _, name := range random {
		t.Run(name, func(t *testing.T) {
			ref := openReference(t, filepath.Join("testdata", name))
			g := archtest.OpenGolden(t, filepath.Join("testdata", name, "golden.safetensors"))
			hidden := g.Matrix(t, "hidden")
			n, layers := len(g.Tokens), ref.cfg.Layers
			inputs, served := map[string]int{}, map[int]int{}
			ref.Observe(arch.Observer{
				Hidden: func(layer int, x dense.Matrix) {
					if d := archtest.Difference(x.Data, hidden.Slice((layer+1)*n, (layer+2)*n).Data); d > 2e-5 {
						t.Errorf("hidden states after layer %d differ by %g", layer, d)
					}
				},
				Linear: func(layer int, tensor string, x dense.Matrix) {
					inputs[tensor]++
					if strings.Contains(tensor, ".experts.") {
						if strings.Contains(tensor, "down_proj") {
							served[layer] += x.Rows
						}
						return // of some tokens only
					}
					want := hidden.Slice((layers+1)*n, (layers+2)*n)
					if layer >= 0 {
						want = g.Matrix(t, "input."+tensor)
					}
					if d := archtest.Difference(x.Data, want.Data); d > 2e-5 || x.Rows != n {
						t.Errorf("the input of %s differs by %g", tensor, d)
					}
				},
			})
			archtest.Feed(t, ref, g.Tokens)
			for tensor, times := range inputs {
				if times != 1 && !strings.Contains(tensor, "gate_up_proj[") {
					t.Errorf("the input of %s was seen %d times", tensor, times)
				}
			}
			// Every matrix that takes part is seen; experts by the number of
			// tokens that they serve.
			for _, l := range ref.w.Layers {
				var want []*checkpoint.Tensor
				if a := l.Attention; a != nil {
					want = append(want, a.Q, a.K, a.V, a.O)
				} else {
					want = append(want, l.Delta.QKV, l.Delta.Z, l.Delta.B, l.Delta.A, l.Delta.Out)
				}
				if m := l.MLP; m != nil {
					want = append(want, m.Gate, m.Up, m.Down)
				} else {
					want = append(want, l.Experts.Router, l.Experts.SharedGate, l.Experts.Shared.Down)
				}
				for _, w := range want {
					if inputs[w.Name] == 0 {
						t.Errorf("the input of %s was not seen", w.Name)
					}
				}
			}
			if m := ref.cfg.MoE; m != nil {
				for l := range layers {
					if served[l] != n*m.PerToken {
						t.Errorf("layer %d: %d rows for experts, want %d for each of %d tokens", l, served[l], m.PerToken, n)
					}
				}
			}
			for i, full := range ref.cfg.Full {
				if full {
					continue
				}
				for what, got := range map[string][]float32{"memory": ref.now[i].s, "conv": ref.now[i].conv} {
					if d := archtest.Difference(got, g.Matrix(t, fmt.Sprintf("%s.%d", what, i)).Data); d > 2e-5 {
						t.Errorf("%s of layer %d differs by %g", what, i, d)
					}
				}
			}
		})
	}
}

func TestReference(t *testing.T) {
	for _, c := range trained {
		t.Run(c.checkpoint, func(t *testing.T) {
			tokens := archtest.OpenGolden(t, testutil.Data(t, "goldens", c.golden)).Tokens
			archtest.TestReference(t, openReference(t, testutil.Data(t, "checkpoints", c.checkpoint)), tokens[:67])
		})
	}
}

// TestTruncate goes back and on at random, and compares with what was computed
// in one go. Nobody sees a token twice.
func TestTruncate(t *testing.T) {
	for _, c := range trained {
		t.Run(c.checkpoint, func(t *testing.T) {
			ref, g := openReference(t, testutil.Data(t, "checkpoints", c.checkpoint)), archtest.OpenGolden(t, testutil.Data(t, "goldens", c.golden))
			const n = 40
			all := archtest.Feed(t, ref, g.Tokens[:n])
			rows := 0 // of the call in progress
			ref.Observe(arch.Observer{
				Hidden: func(layer int, x dense.Matrix) {
					if x.Rows != rows {
						t.Errorf("an observer sees %d tokens in layer %d, want %d", x.Rows, layer, rows)
					}
				},
				Linear: func(layer int, tensor string, x dense.Matrix) {
					if x.Rows > rows || x.Rows == 0 {
						t.Errorf("an observer sees %d tokens at %s of %d", x.Rows, tensor, rows)
					}
				},
			})
			r := rand.New(rand.NewPCG(5, 6))
			steps := 60
			if testing.Short() {
				steps = 20
			}
			for step := range steps {
				keep := r.IntN(ref.Pos() + 1)
				if step%3 == 0 { // as with drafts that are mostly right
					keep = max(0, ref.Pos()-1-r.IntN(4))
				}
				if err := ref.Truncate(keep); err != nil {
					t.Fatal(err)
				}
				if r.IntN(2) == 0 {
					// Something else in between, taken back again.
					rows = 3
					archtest.Feed(t, ref, []int32{5, 6, 7})
					if err := ref.Truncate(keep); err != nil {
						t.Fatal(err)
					}
				}
				if ref.Pos() != keep {
					t.Fatalf("position %d, want %d", ref.Pos(), keep)
				}
				if keep == n {
					continue
				}
				rows = 1 + r.IntN(n-keep)
				if got := archtest.Feed(t, ref, g.Tokens[keep:keep+rows]); !archtest.Same(got.Data, all.Slice(keep, keep+rows).Data) {
					t.Fatalf("step %d: after keeping %d tokens the logits of the next %d have other bits", step, keep, rows)
				}
			}
			pos := ref.Pos()
			for _, n := range []int{-1, pos + 1} {
				if err := ref.Truncate(n); err == nil || ref.Pos() != pos {
					t.Errorf("keeping %d tokens of %d: error %v, position %d", n, pos, err, ref.Pos())
				}
			}
		})
	}
}

// Drafts, right or wrong, do not change what is written, nor what is seen.
func TestDrafts(t *testing.T) {
	ref, g := openReference(t, testutil.Data(t, "checkpoints", "tiny-qwen35")), archtest.OpenGolden(t, testutil.Data(t, "goldens", "tiny-qwen35.safetensors"))
	n := len(g.Tokens) - len(g.Prompt)
	r := rand.New(rand.NewPCG(7, 8))
	var seen []int32
	c := arch.Continuation{
		Ref: ref,
		Draft: func(context []int32, k int) ([]int32, error) {
			guess := slices.Clone(g.Tokens[len(context):min(len(context)+k, len(g.Tokens))])
			if len(guess) > 0 && r.IntN(3) > 0 {
				guess[r.IntN(len(guess))]++
			}
			return guess, nil
		},
		Visit: func(pos int, token int32, _ []float32) error {
			if pos != len(seen) {
				t.Errorf("token %d is seen when token %d is due", pos, len(seen))
			}
			seen = append(seen, token)
			return nil
		},
	}
	got, err := c.Greedy(t.Context(), g.Prompt, n)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, g.Tokens[len(g.Prompt):]) || !slices.Equal(seen, g.Tokens) {
		t.Errorf("wrote %v, want %v", got, g.Tokens[len(g.Prompt):])
	}
}

// Wherever Forward is stopped, the tokens of that call leave no trace.
func TestCancel(t *testing.T) {
	ref, g := openReference(t, testutil.Data(t, "checkpoints", "tiny-qwen35-moe-fused")), archtest.OpenGolden(t, testutil.Data(t, "goldens", "tiny-qwen35-moe.safetensors"))
	all := archtest.Feed(t, ref, g.Tokens[:30])
	if err := ref.Truncate(10); err != nil {
		t.Fatal(err)
	}
	// When the input of this tensor is seen.
	for _, at := range []string{"layers.0.linear_attn.in_proj_qkv", "layers.1.linear_attn.out_proj", "layers.2.mlp.experts", "layers.3.self_attn.o_proj", "embed_tokens"} {
		ctx, cancel := context.WithCancel(t.Context())
		ref.Observe(arch.Observer{Linear: func(_ int, tensor string, _ dense.Matrix) {
			if strings.Contains(tensor, at) {
				cancel()
			}
		}})
		err := ref.Forward(ctx, g.Tokens[10:30], nil, func(int, []float32) error { return nil })
		cancel()
		ref.Observe(arch.Observer{})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: error %v, want that it was canceled", at, err)
		}
		if ref.Pos() != 10 {
			t.Fatalf("%s: position %d, want 10", at, ref.Pos())
		}
		if got := archtest.Feed(t, ref, g.Tokens[10:30]); !archtest.Same(got.Data, all.Slice(10, 30).Data) {
			t.Errorf("%s: the next logits have other bits", at)
		}
		if err := ref.Truncate(10); err != nil {
			t.Fatal(err)
		}
	}
}

// TestChoose: probabilities that are equal in float32 are told apart by their
// places, as torch.topk does.
func TestChoose(t *testing.T) {
	for _, c := range []struct {
		x    []float32
		k    int
		want []float32
	}{
		{[]float32{1, 1, 1, 1}, 2, []float32{0.5, 0.5, 0, 0}},
		{[]float32{0, 1, 1, 1}, 1, []float32{0, 1, 0, 0}},
		{[]float32{-200, -300, 0, 0}, 3, []float32{0, 0, 0.5, 0.5}}, // the first of two that are 0
		{[]float32{0, 2, 0, 2}, 3, []float32{0.063379, 0.468311, 0, 0.468311}},
		{[]float32{3, 1, 2}, 3, []float32{0.665241, 0.090031, 0.244728}},
	} {
		got := slices.Clone(c.x)
		choose(got, c.k)
		if d := archtest.Difference(got, c.want); d > 1e-6 {
			t.Errorf("%d of %v: %v, want %v", c.k, c.x, got, c.want)
		}
	}
	nan := float32(math.NaN())
	x := []float32{nan, 1, nan}
	choose(x, 2) // must not fail
	if x[2] != 0 {
		t.Errorf("of three that are not numbers the last was chosen: %v", x)
	}
}
