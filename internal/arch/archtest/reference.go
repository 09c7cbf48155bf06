package archtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"anemone/internal/arch"
	"anemone/internal/arch/dense"
	"anemone/internal/checkpoint"
)

// Open opens the checkpoint in a folder as a model of an architecture.
func Open(t testing.TB, a arch.Architecture, dir string) arch.Model {
	t.Helper()
	ck, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ck.Close() })
	m, err := arch.Registry{a}.Open(ck)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Reference returns the reference of the checkpoint in a folder.
func Reference(t testing.TB, a arch.Architecture, dir string) arch.Reference {
	t.Helper()
	ref, err := Open(t, a, dir).Reference()
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// Feed returns the logits after each of tokens.
func Feed(t testing.TB, ref arch.Reference, tokens []int32) dense.Matrix {
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

// TestReference holds a reference, with nothing fed, to what [arch.Reference]
// promises, whatever it computes. It needs 40 tokens.
func TestReference(t *testing.T, ref arch.Reference, tokens []int32) {
	if len(tokens) < 40 {
		t.Fatalf("%d tokens, want 40", len(tokens))
	}
	back := func(t *testing.T, n int) {
		t.Helper()
		ref.Observe(arch.Observer{})
		if err := ref.Truncate(n); err != nil {
			t.Fatal(err)
		}
	}
	all := Feed(t, ref, tokens)

	// A row's bits must not depend on how many rows there are, nor on how
	// many cores.
	t.Run("RowsAreIndependent", func(t *testing.T) {
		n := len(tokens)
		for _, split := range [][]int{{1}, {2}, {3, 1, 7}, {n - 1, 1}, {16, n - 16}} {
			for _, cores := range []int{1, 3} {
				old := runtime.GOMAXPROCS(cores)
				back(t, 0)
				for at, i := 0, 0; at < n; i++ {
					n := min(split[i%len(split)], n-at)
					part := Feed(t, ref, tokens[at:at+n])
					if !Same(part.Data, all.Slice(at, at+n).Data) {
						t.Errorf("fed as %v on %d cores: the logits of tokens %d to %d have other bits", split, cores, at, at+n-1)
					}
					at += n
				}
				runtime.GOMAXPROCS(old)
			}
		}
	})

	t.Run("Want", func(t *testing.T) {
		back(t, 0)
		var seen []int
		err := ref.Forward(t.Context(), tokens[:9], func(i int) bool { return i%4 == 0 }, func(i int, logits []float32) error {
			seen = append(seen, i)
			if !Same(logits, all.Row(i)) {
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
		err = ref.Forward(t.Context(), tokens[:9], func(int) bool { return false }, func(int, []float32) error {
			t.Error("logits that nobody wanted")
			return nil
		})
		if err != nil || ref.Pos() != 18 {
			t.Errorf("error %v, position %d", err, ref.Pos())
		}
		if err := ref.Forward(t.Context(), tokens[:9], nil, nil); err != nil || ref.Pos() != 27 {
			t.Errorf("without logits: error %v, position %d", err, ref.Pos())
		}
	})

	t.Run("Truncate", func(t *testing.T) {
		back(t, 0)
		Feed(t, ref, tokens[:40])
		if ref.Pos() != 40 {
			t.Fatalf("position %d after 40 tokens", ref.Pos())
		}
		for _, keep := range []int{39, 17, 1, 0} {
			back(t, keep)
			if ref.Pos() != keep {
				t.Fatalf("position %d, want %d", ref.Pos(), keep)
			}
			// Something else in between, taken back again.
			Feed(t, ref, []int32{5, 6, 7})
			back(t, keep)
			if got := Feed(t, ref, tokens[keep:40]); !Same(got.Data, all.Slice(keep, 40).Data) {
				t.Errorf("after keeping %d tokens the logits have other bits", keep)
			}
		}
		for _, n := range []int{-1, 41} {
			if err := ref.Truncate(n); err == nil || ref.Pos() != 40 {
				t.Errorf("keeping %d tokens of 40: error %v, position %d", n, err, ref.Pos())
			}
		}
	})

	// Whatever stops Forward, the tokens of that call leave no trace.
	t.Run("ForwardErrors", func(t *testing.T) {
		back(t, 0)
		Feed(t, ref, tokens[:10])
		boom := errors.New("boom")
		ignore := func(int, []float32) error { return nil }
		vocab := int32(ref.VocabSize())
		for _, c := range []struct {
			name   string
			tokens []int32
			cancel int // before the linear layer of this number
			visit  func(int, []float32) error
			want   string
		}{
			{"negative token", []int32{3, -1}, -1, ignore, "token -1 at position 11"},
			{"unknown token", []int32{3, vocab}, -1, ignore, fmt.Sprintf("token %d at position 11", vocab)},
			{"canceled at once", tokens[10:30], 0, ignore, "context canceled"},
			{"canceled later", tokens[10:30], 12, ignore, "context canceled"},
			{"visit fails", tokens[10:30], -1, func(i int, _ []float32) error {
				if i == 3 {
					return boom
				}
				return nil
			}, "boom"},
		} {
			ctx, cancel := context.WithCancel(t.Context())
			n := 0
			ref.Observe(arch.Observer{Linear: func(int, string, dense.Matrix) {
				if n == c.cancel {
					cancel()
				}
				n++
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
			if got := Feed(t, ref, tokens[10:30]); !Same(got.Data, all.Slice(10, 30).Data) {
				t.Errorf("%s: the next logits have other bits", c.name)
			}
			back(t, 10)
		}
		if err := ref.Forward(t.Context(), nil, nil, ignore); err != nil || ref.Pos() != 10 {
			t.Errorf("no tokens: error %v, position %d", err, ref.Pos())
		}
	})
	back(t, 0)
}

// TestGreedy has a reference go on as a golden does after its prompt, whatever
// is drafted.
func TestGreedy(t *testing.T, ref arch.Reference, g Golden) {
	want := g.Tokens[len(g.Prompt):]
	if len(want) < 50 {
		t.Fatalf("the golden goes on for %d tokens only", len(want))
	}
	good := func(context []int32, k int) ([]int32, error) {
		at := min(len(context), len(g.Tokens))
		return slices.Clone(g.Tokens[at:min(at+k, len(g.Tokens))]), nil
	}
	for _, c := range []struct {
		name  string
		draft arch.Draft
	}{
		{"alone", nil},
		{"good draft", good},
		{"draft that errs", func(context []int32, k int) ([]int32, error) {
			guess, _ := good(context, k)
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
			got, err := arch.Greedy(t.Context(), ref, g.Prompt, len(want), c.draft)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// BenchmarkReference measures a reference of the checkpoint in a folder, over
// 1, 32 and 150 tokens. ANEMONE_BENCH_CHECKPOINT names another one, such as one
// of a real model's shapes.
func BenchmarkReference(b *testing.B, a arch.Architecture, dir string) {
	if other := os.Getenv("ANEMONE_BENCH_CHECKPOINT"); other != "" {
		dir = other
	}
	ref := Reference(b, a, dir)
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
