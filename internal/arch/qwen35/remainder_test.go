package qwen35

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"anemone/internal/anemll"
	"anemone/internal/arch/archtest"
	"anemone/internal/compress"
	"anemone/internal/engine"
	"anemone/internal/session"
	"anemone/internal/testutil"
)

// TestRemainderCalls: prompts of every kind of remainder give, with functions
// for fewer tokens than a batch, the logits and states of their tokens one by
// one, whatever the chunk of the delta rule, under every encoding.
func TestRemainderCalls(t *testing.T) {
	const batch = 64
	r := rand.New(rand.NewPCG(21, 22))
	ids := make([]int32, 3*batch)
	for i := range ids {
		ids[i] = int32(r.IntN(1024))
	}
	lengths := []int{2, 3, 4, 7, 15, 16, 17, 20, 33, 48, 61, 62, 63, 64, 65, 66, 80, 97, 110, 126, 127, 128, 130, 147, 191}
	for _, c := range trained {
		for i, o := range []anemll.Options{
			{Chunks: 1, Remainders: []int{16, 4}},
			{Chunks: 3, Remainders: []int{2, 8, 32}, GDNChunk: 16, FFN: compress.Encoding{Bits: 4, Group: 8}, Head: compress.Encoding{Bits: 6, Group: 8}},
			{Chunks: 2, Remainders: []int{16}, GDNChunk: 4},
		} {
			if testing.Short() && i > 0 {
				continue
			}
			o.Context, o.Batch = 256, batch
			what := fmt.Sprintf("%s, remainders %v, delta chunk %d", c.checkpoint, o.Remainders, o.GDNChunk)
			dir, _ := convert(t, testutil.Data(t, "checkpoints", c.checkpoint), o)
			p, s := load(t, dir, engine.Float32)
			want := slices.Sorted(slices.Values(o.Remainders))
			slices.Reverse(want)
			var got []int
			for _, f := range p.Remainders {
				got = append(got, f.Tokens)
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%s: the package has functions for %v tokens", what, got)
			}
			single := map[int]map[string][]float32{} // after so many tokens one by one
			for _, n := range lengths {
				archtest.Each(t, s, ids[s.Pos():n], session.InferOnly)
				single[n] = snapshot(t, s)
			}
			for _, n := range lengths {
				s.Reset()
				if _, err := s.Feed(t.Context(), ids[:n]); err != nil {
					t.Fatal(err)
				}
				for name, x := range snapshot(t, s) {
					if d := relative(x, single[n][name]); !(d <= 1e-3) {
						t.Errorf("%s: after %d tokens %s differs by %.2g of it", what, n, name, d)
					}
				}
			}
		}
	}
}

// TestRemainderGolden holds the sequence with such functions to transformers'
// logits, with every result rounded to fp16 and not.
func TestRemainderGolden(t *testing.T) {
	for _, c := range trained {
		g := archtest.OpenGolden(t, testutil.Data(t, "goldens", c.golden))
		dir, _ := convert(t, testutil.Data(t, "checkpoints", c.checkpoint), anemll.Options{Context: 256, Batch: 64, Chunks: 2, Remainders: []int{32, 16, 4, 2}})
		for _, n := range []engine.Numerics{engine.Float32, engine.Float16} {
			_, s := load(t, dir, n)
			for _, length := range []int{63, 127, len(g.Tokens)} {
				s.Reset()
				logits, at := archtest.Each(t, s, g.Tokens[:length], session.Contract)
				lowest, mean, others := 0.9999, 0.9999, 0
				if n == engine.Float16 {
					lowest, mean, others = 0.999, 0.9999, 2
				}
				if n == engine.Float32 && length < 128 && len(at) > 8 {
					t.Errorf("%s: %d tokens took %d calls", c.checkpoint, length, len(at))
				}
				holds(t, fmt.Sprintf("%s, %d tokens, half %t", c.checkpoint, length, n == engine.Float16), g, logits, at, lowest, mean, others)
			}
		}
	}
}

// TestRemainderWeights: such functions store nothing but the small constants of
// the delta rule, and change nothing of infer and prefill.
func TestRemainderWeights(t *testing.T) {
	// Three masks and one for each doubling, n by n of fp16, each with a record
	// of 64 bytes and to a multiple of 64.
	masks := func(n int) (bytes int64) {
		count := int64(3)
		for w := 1; w < n; w *= 2 {
			count++
		}
		return count * (64 + int64(2*n*n+63)/64*64)
	}
	for _, c := range trained {
		o := anemll.Options{Context: 128, Batch: 64, Chunks: 2, FFN: compress.Encoding{Bits: 6, Group: 8}}
		plain, _ := convert(t, testutil.Data(t, "checkpoints", c.checkpoint), o)
		o.Remainders = []int{16, 4}
		more, _ := convert(t, testutil.Data(t, "checkpoints", c.checkpoint), o)
		size := func(dir, part string) int64 {
			st, err := os.Stat(filepath.Join(dir, part+".mlpackage", "Data", "com.apple.CoreML", "weights", "weight.bin"))
			if err != nil {
				t.Fatal(err)
			}
			return st.Size()
		}
		for _, part := range []string{"qwen35_embeddings", "qwen35_lm_head", "qwen35_FFN_PF_lut6_chunk_01of02", "qwen35_FFN_PF_lut6_chunk_02of02"} {
			want := int64(0)
			if strings.Contains(part, "chunk") {
				want = masks(16) + masks(4) - 32 // nothing follows the last one, of 32 bytes
			}
			if got := size(more, part) - size(plain, part); got != want {
				t.Errorf("%s: %s is %d bytes larger of %d, want %d", c.checkpoint, part, got, size(plain, part), want)
			}
		}
		ids := make([]int32, 100)
		for i := range ids {
			ids[i] = int32(7 * i % 1024)
		}
		_, a := load(t, plain, engine.Float32)
		_, b := load(t, more, engine.Float32)
		for mode, tokens := range map[session.Mode][]int32{session.InferOnly: ids, session.Contract: ids[:65]} {
			a.Reset()
			b.Reset()
			x, _ := archtest.Each(t, a, tokens, mode)
			y, _ := archtest.Each(t, b, tokens, mode)
			if !slices.Equal(x.Data, y.Data) {
				t.Errorf("%s: other logits, %s", c.checkpoint, modes[mode])
			}
		}
	}
}

// BenchmarkRemainders measures what such functions gain with 4-bit tables.
func BenchmarkRemainders(b *testing.B) {
	archtest.BenchmarkRemainders(b, Architecture, testutil.Data(b, "checkpoints", "tiny-qwen35"))
}
