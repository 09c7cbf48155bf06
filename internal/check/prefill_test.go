package check

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"anemone/internal/anemll"
	"anemone/internal/engine"
	"anemone/internal/session"
)

// sweep is the environment variable that makes tests try everything rather
// than a sample:
//
//	ANEMONE_SWEEP=1 go test ./internal/check -run 'Prefill|Damages' -v -timeout 30m
const sweep = "ANEMONE_SWEEP"

// TestPrefillLengths feeds prompts of every length up to two batches and a
// token: whatever the length, the context and the batch, the logits are those
// of the same tokens one by one, and so are those of the tokens behind.
func TestPrefillLengths(t *testing.T) {
	slow(t)
	t.Parallel()
	contexts, batches := []int{64, 1024}, []int{16, 64}
	if os.Getenv(sweep) != "" {
		contexts, batches = []int{64, 128, 192, 256, 512, 768, 1024}, []int{16, 24, 32, 48, 64}
	}
	rng := rand.New(rand.NewPCG(5, 6))
	for _, context := range contexts {
		for _, batch := range batches {
			m := loadPackage(t, assemble(t, tinyCheckpoint(t), anemll.Options{Context: context, Batch: batch, Chunks: 2}), engine.Options{})
			longest := min(2*batch+1, context)
			ids := make([]int32, min(longest+2, context))
			for i := range ids {
				ids[i] = int32(rng.IntN(m.Package().VocabSize))
			}
			s, err := m.NewSession()
			if err != nil {
				t.Fatal(err)
			}
			want := make([][]float32, len(ids))
			if err := s.Each(t.Context(), ids, session.InferOnly, func(pos int, logits []float32) error {
				want[pos] = append([]float32(nil), logits...)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			var cmp comparer
			lowest, n := 1.0, 0
			compare := func(length, pos int, logits []float32) {
				p := cmp.compare(want[pos], logits)
				lowest, n = min(lowest, p.Cosine), n+1
				if p.NonFinite || p.Cosine < 0.999999 {
					t.Fatalf("context %d, batch %d, prompt of %d: after token %d the cosine is %.7f", context, batch, length, pos, p.Cosine)
				}
			}
			for length := 1; length <= longest; length++ {
				// A sample: around the batches, and one in nine otherwise.
				if r := length % batch; os.Getenv(sweep) == "" && r > 1 && r < batch-1 && length%9 != 0 {
					continue
				}
				s.Reset()
				logits, err := s.Feed(t.Context(), ids[:length])
				if err != nil {
					t.Fatal(err)
				}
				compare(length, length-1, logits)
				if length < len(ids) {
					if logits, err = s.Feed(t.Context(), ids[length:length+1]); err != nil {
						t.Fatal(err)
					}
					compare(length, length, logits)
				}
			}
			t.Log(fmt.Sprintf("context %4d, batch %2d: prompts of 1 to %d tokens, %d comparisons, lowest cosine %.9f", context, batch, longest, n, lowest))
		}
	}
}
