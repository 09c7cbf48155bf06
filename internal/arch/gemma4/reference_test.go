package gemma4

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

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

// tiny returns the reference of the trained test checkpoint, and its golden.
func tiny(t testing.TB) (*Reference, golden) {
	t.Helper()
	return openReference(t, testutil.Data(t, "checkpoints", "tiny-gemma4")), openGolden(t, testutil.Data(t, "goldens", "tiny-gemma4.safetensors"))
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

// The random checkpoints in testdata; see make.py.
var random = []string{"released", "text", "long"}

// The tiny checkpoint's golden is that of transformers, whose float32 sums are
// rounded at every step; the bound is some ten times what that comes to.
func TestReferenceGolden(t *testing.T) {
	ref, g := tiny(t)
	worst := difference(feed(t, ref, g.tokens).Data, g.logits.Data)
	t.Logf("largest difference %.2g", worst)
	if !(worst <= 1e-4) {
		t.Errorf("largest difference of a logit %g, want at most %g", worst, 1e-4)
	}
}

// openRandom returns the golden of a random checkpoint, and the positions that
// it has logits for.
func openRandom(t testing.TB, name string) (g golden, at []int32) {
	t.Helper()
	f, err := safetensors.Open(filepath.Join("testdata", name, "golden.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	g.file = f
	g.tokens, g.logits = g.ints(t, "tokens"), g.matrix(t, "logits")
	return g, g.ints(t, "position")
}

// The other goldens were computed in float64: logits, and what an observer
// sees of the layers.
func TestReferenceRandom(t *testing.T) {
	for _, name := range random {
		t.Run(name, func(t *testing.T) {
			g, at := openRandom(t, name)
			ref := openReference(t, filepath.Join("testdata", name))
			hidden := g.matrix(t, "hidden")
			var layers []int
			ref.Observe(arch.Observer{Hidden: func(layer int, x dense.Matrix) {
				layers = append(layers, layer)
				for i, p := range at {
					if d := difference(x.Row(int(p)), hidden.Row((layer+1)*len(at)+i)); !(d <= 5e-5) {
						t.Fatalf("what leaves layer %d differs by %g at position %d", layer, d, p)
					}
				}
			}})
			n := 0
			err := ref.Forward(t.Context(), g.tokens, func(i int) bool { return slices.Contains(at, int32(i)) }, func(i int, logits []float32) error {
				if d := difference(logits, g.logits.Row(n)); !(d <= 5e-5) {
					t.Errorf("after token %d logits differ by %g", i, d)
				}
				n++
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if n != len(at) || len(layers) != ref.cfg.Layers+2 || layers[0] != -1 || layers[len(layers)-1] != ref.cfg.Layers {
				t.Errorf("%d logits, layers %v", n, layers)
			}
		})
	}
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

// A row's bits must not depend on how many rows there are, nor on how many
// cores.
func TestRowsAreIndependent(t *testing.T) {
	ref, g := tiny(t)
	tokens := g.tokens[:67]
	all := feed(t, ref, tokens)
	for _, split := range [][]int{{1}, {2}, {3, 1, 7}, {66, 1}, {16, 51}} {
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
}

func TestWant(t *testing.T) {
	ref, g := tiny(t)
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
	err = ref.Forward(t.Context(), tokens, func(int) bool { return false }, func(int, []float32) error {
		t.Error("logits that nobody wanted")
		return nil
	})
	if err != nil || ref.Pos() != 18 {
		t.Errorf("error %v, position %d", err, ref.Pos())
	}
}

func TestTruncate(t *testing.T) {
	ref, g := tiny(t)
	all := feed(t, ref, g.tokens[:40])
	if ref.Pos() != 40 {
		t.Fatalf("position %d after 40 tokens", ref.Pos())
	}
	for _, keep := range []int{39, 17, 1, 0} {
		if err := ref.Truncate(keep); err != nil {
			t.Fatal(err)
		}
		if ref.Pos() != keep {
			t.Fatalf("position %d, want %d", ref.Pos(), keep)
		}
		// Something else in between, taken back again.
		feed(t, ref, []int32{5, 6, 7})
		if err := ref.Truncate(keep); err != nil {
			t.Fatal(err)
		}
		if got := feed(t, ref, g.tokens[keep:40]); !same(got.Data, all.Slice(keep, 40).Data) {
			t.Errorf("after keeping %d tokens the logits have other bits", keep)
		}
	}
	for _, n := range []int{-1, 41} {
		if err := ref.Truncate(n); err == nil || ref.Pos() != 40 {
			t.Errorf("keeping %d tokens of 40: error %v, position %d", n, err, ref.Pos())
		}
	}
}

// Whatever stops Forward, the tokens of that call leave no trace.
func TestForwardErrors(t *testing.T) {
	ref, g := tiny(t)
	all := feed(t, ref, g.tokens[:30])
	if err := ref.Truncate(10); err != nil {
		t.Fatal(err)
	}
	boom := errors.New("boom")
	ignore := func(int, []float32) error { return nil }
	for _, c := range []struct {
		name   string
		tokens []int32
		cancel int // in the layer of this number
		visit  func(int, []float32) error
		want   string
	}{
		{"negative token", []int32{3, -1}, -1, ignore, "token -1 at position 11"},
		{"unknown token", []int32{3, 1024}, -1, ignore, "token 1024 at position 11"},
		{"canceled at once", g.tokens[10:30], 0, ignore, "context canceled"},
		{"canceled later", g.tokens[10:30], 2, ignore, "context canceled"},
		{"visit fails", g.tokens[10:30], -1, func(i int, _ []float32) error {
			if i == 3 {
				return boom
			}
			return nil
		}, "boom"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		ref.Observe(arch.Observer{Linear: func(layer int, tensor string, _ dense.Matrix) {
			if layer == c.cancel && strings.Contains(tensor, "down_proj") {
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

// The tiny checkpoint's golden goes on greedily after its prompt.
func TestGreedy(t *testing.T) {
	ref, g := tiny(t)
	want := g.tokens[len(g.prompt):]
	if len(want) < 50 {
		t.Fatalf("the golden goes on for %d tokens only", len(want))
	}
	good := func(context []int32, k int) ([]int32, error) {
		at := min(len(context), len(g.tokens))
		return g.tokens[at:min(at+k, len(g.tokens))], nil
	}
	for _, c := range []struct {
		name  string
		draft arch.Draft
	}{
		{"alone", nil},
		{"good draft", good},
		{"draft that errs", func(context []int32, k int) ([]int32, error) {
			guess, _ := good(context, k)
			guess = slices.Clone(guess)
			for i := range guess {
				if (len(context)+i)%5 == 0 {
					guess[i] = (guess[i] + 1) % int32(ref.VocabSize())
				}
			}
			return guess, nil
		}},
		{"bad draft", func(context []int32, k int) ([]int32, error) { return make([]int32, k), nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := ref.Truncate(0); err != nil {
				t.Fatal(err)
			}
			got, err := arch.Greedy(t.Context(), ref, g.prompt, len(want), c.draft)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

func BenchmarkForward(b *testing.B) {
	// A real model's shape, such as bench/make_random.py writes, can be named
	// in the environment.
	dir := os.Getenv("ANEMONE_BENCH_CHECKPOINT")
	if dir == "" {
		dir = testutil.Data(b, "checkpoints", "tiny-gemma4")
	}
	ref := openReference(b, dir)
	for _, n := range []int{1, 32, 150} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			tokens := make([]int32, n)
			for i := range tokens {
				tokens[i] = int32(i*7919+1) % int32(ref.VocabSize())
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			for b.Loop() {
				if err := ref.Truncate(0); err != nil {
					b.Fatal(err)
				}
				if err := ref.Forward(b.Context(), tokens, nil, func(int, []float32) error { return nil }); err != nil {
					b.Fatal(err)
				}
			}
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(n*b.N)/time.Since(start).Seconds(), "tokens/s")
			b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/float64(b.N)/(1<<20), "MB/op")
		})
	}
}
