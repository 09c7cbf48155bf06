package qwen35

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
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

// The random checkpoints in testdata; see make.py.
var random = []string{"flat-untied", "nested-linear", "moe-fused", "moe-split"}

// The goldens of the trained checkpoints are those of transformers, whose
// float32 sums are rounded at every step; the bound is some ten times what
// that comes to. The others are computed in float64 by testdata/make.py.
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
			g := openGolden(t, filepath.Join("testdata", name, "golden.safetensors"))
			hidden := g.matrix(t, "hidden")
			n, layers := len(g.tokens), ref.cfg.Layers
			inputs, served := map[string]int{}, map[int]int{}
			ref.Observe(arch.Observer{
				Hidden: func(layer int, x dense.Matrix) {
					if d := difference(x.Data, hidden.Slice((layer+1)*n, (layer+2)*n).Data); d > 2e-5 {
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
						want = g.matrix(t, "input."+tensor)
					}
					if d := difference(x.Data, want.Data); d > 2e-5 || x.Rows != n {
						t.Errorf("the input of %s differs by %g", tensor, d)
					}
				},
			})
			feed(t, ref, g.tokens)
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
					if d := difference(got, g.matrix(t, fmt.Sprintf("%s.%d", what, i)).Data); d > 2e-5 {
						t.Errorf("%s of layer %d differs by %g", what, i, d)
					}
				}
			}
		})
	}
}

// A row's bits must not depend on how many rows there are, nor on how many
// cores.
func TestRowsAreIndependent(t *testing.T) {
	for _, c := range trained {
		t.Run(c.checkpoint, func(t *testing.T) {
			ref, g := openReference(t, testutil.Data(t, "checkpoints", c.checkpoint)), openGolden(t, testutil.Data(t, "goldens", c.golden))
			tokens := g.tokens[:67]
			all := feed(t, ref, tokens)
			splits := [][]int{{1}, {2}, {3, 1, 7}, {66, 1}, {16, 51}}
			if testing.Short() {
				splits = splits[2:]
			}
			for _, split := range splits {
				for _, cores := range []int{1, 3} {
					old := runtime.GOMAXPROCS(cores)
					if err := ref.Truncate(0); err != nil {
						t.Fatal(err)
					}
					for at, i := 0, 0; at < len(tokens); i++ {
						n := min(split[i%len(split)], len(tokens)-at)
						part := feed(t, ref, tokens[at:at+n])
						if !same(part.Data, all.Slice(at, at+n).Data) {
							t.Errorf("fed as %v on %d cores: the logits of tokens %d to %d have other bits", split, cores, at, at+n-1)
						}
						at += n
					}
					runtime.GOMAXPROCS(old)
				}
			}
		})
	}
}

// TestTruncate goes back and on at random, and compares with what was computed
// in one go. Nobody sees a token twice.
func TestTruncate(t *testing.T) {
	for _, c := range trained {
		t.Run(c.checkpoint, func(t *testing.T) {
			ref, g := openReference(t, testutil.Data(t, "checkpoints", c.checkpoint)), openGolden(t, testutil.Data(t, "goldens", c.golden))
			const n = 40
			all := feed(t, ref, g.tokens[:n])
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
					feed(t, ref, []int32{5, 6, 7})
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
				if got := feed(t, ref, g.tokens[keep:keep+rows]); !same(got.Data, all.Slice(keep, keep+rows).Data) {
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
	ref, g := openReference(t, testutil.Data(t, "checkpoints", "tiny-qwen35")), openGolden(t, testutil.Data(t, "goldens", "tiny-qwen35.safetensors"))
	n := len(g.tokens) - len(g.prompt)
	r := rand.New(rand.NewPCG(7, 8))
	var seen []int32
	c := arch.Continuation{
		Ref: ref,
		Draft: func(context []int32, k int) ([]int32, error) {
			guess := slices.Clone(g.tokens[len(context):min(len(context)+k, len(g.tokens))])
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
	got, err := c.Greedy(t.Context(), g.prompt, n)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, g.tokens[len(g.prompt):]) || !slices.Equal(seen, g.tokens) {
		t.Errorf("wrote %v, want %v", got, g.tokens[len(g.prompt):])
	}
}

func TestWant(t *testing.T) {
	ref, g := openReference(t, "testdata/flat-untied"), openGolden(t, "testdata/flat-untied/golden.safetensors")
	tokens := g.tokens[:9]
	all := feed(t, ref, tokens)
	if err := ref.Truncate(0); err != nil {
		t.Fatal(err)
	}
	var seen []int
	err := ref.Forward(t.Context(), tokens, func(i int) bool { return i%4 == 0 }, func(i int, logits []float32) error {
		seen = append(seen, i)
		if !same(logits, all.Row(i)) {
			t.Errorf("the logits of token %d have other bits", i)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []int{0, 4, 8}; !slices.Equal(seen, want) {
		t.Errorf("logits after tokens %v, want %v", seen, want)
	}
	if err := ref.Forward(t.Context(), tokens, nil, nil); err != nil || ref.Pos() != 18 {
		t.Errorf("without logits: error %v, position %d", err, ref.Pos())
	}
}

// Whatever stops Forward, the tokens of that call leave no trace.
func TestForwardErrors(t *testing.T) {
	ref, g := openReference(t, testutil.Data(t, "checkpoints", "tiny-qwen35-moe-fused")), openGolden(t, testutil.Data(t, "goldens", "tiny-qwen35-moe.safetensors"))
	all := feed(t, ref, g.tokens[:30])
	if err := ref.Truncate(10); err != nil {
		t.Fatal(err)
	}
	boom := errors.New("boom")
	ignore := func(int, []float32) error { return nil }
	for _, c := range []struct {
		name   string
		tokens []int32
		cancel string // when the input of this tensor is seen
		visit  func(int, []float32) error
		want   string
	}{
		{"negative token", []int32{3, -1}, "", ignore, "token -1 at position 11"},
		{"unknown token", []int32{3, 1024}, "", ignore, "token 1024 at position 11"},
		{"canceled at once", g.tokens[10:30], "layers.0.linear_attn.in_proj_qkv", ignore, "context canceled"},
		{"canceled in a recurrent layer", g.tokens[10:30], "layers.1.linear_attn.out_proj", ignore, "context canceled"},
		{"canceled among experts", g.tokens[10:30], "layers.2.mlp.experts", ignore, "context canceled"},
		{"canceled in attention", g.tokens[10:30], "layers.3.self_attn.o_proj", ignore, "context canceled"},
		{"canceled in the head", g.tokens[10:30], "embed_tokens", ignore, "context canceled"},
		{"visit fails", g.tokens[10:30], "", func(i int, _ []float32) error {
			if i == 3 {
				return boom
			}
			return nil
		}, "boom"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		ref.Observe(arch.Observer{Linear: func(layer int, tensor string, _ dense.Matrix) {
			if c.cancel != "" && strings.Contains(tensor, c.cancel) {
				cancel()
			}
		}})
		err := ref.Forward(ctx, c.tokens, nil, c.visit)
		cancel()
		ref.Observe(arch.Observer{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one about %q", c.name, err, c.want)
		}
		if ref.Pos() != 10 {
			t.Fatalf("%s: position %d, want 10", c.name, ref.Pos())
		}
		if got := feed(t, ref, g.tokens[10:30]); !same(got.Data, all.Slice(10, 30).Data) {
			t.Errorf("%s: the next logits have other bits", c.name)
		}
		if err := ref.Truncate(10); err != nil {
			t.Fatal(err)
		}
	}
	if err := ref.Forward(t.Context(), nil, nil, ignore); err != nil || ref.Pos() != 10 {
		t.Errorf("no tokens: error %v, position %d", err, ref.Pos())
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
		if d := difference(got, c.want); d > 1e-6 {
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
