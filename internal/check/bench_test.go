package check

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"anemone/internal/anemll"
	"anemone/internal/engine"
	"anemone/internal/session"
	"anemone/internal/testutil"
)

func TestBench(t *testing.T) {
	m := load(t, convert(t, tinyCheckpoint(t), anemll.Options{Context: 128, Batch: 32, Chunks: 2}), engine.Options{})
	calls := 0
	r, err := Bench(t.Context(), func() (*session.Model, error) { return m, nil }, BenchOptions{Repeats: 3, Progress: func(done, total int) {
		if done != calls || total != 3 {
			t.Errorf("progress %d of %d, want %d of 3", done, total, calls)
		}
		calls++
	}})
	if err != nil {
		t.Fatal(err)
	}
	if r.PromptTokens != 64 || r.DecodeTokens != 32 || r.Repeats != 3 || calls != 3 || len(r.Problems) != 0 {
		t.Errorf("%+v", r)
	}
	for _, x := range []Rates{r.Prefill, r.Decode} {
		if x.Min <= 0 || x.Median < x.Min || x.Max < x.Median {
			t.Errorf("rates %+v", x)
		}
	}
	if r.LoadSeconds <= 0 || r.FirstSeconds <= 0 {
		t.Errorf("load %v s, first calls %v s", r.LoadSeconds, r.FirstSeconds)
	}
	// 4 layers of keys and values, 2 heads of 64, 128 positions, 2 bytes.
	if want := int64(2 * 4 * 2 * 64 * 128 * 2); r.StateBytes != want {
		t.Errorf("states of %d bytes, want %d", r.StateBytes, want)
	}
	// The checkpoint's bf16 file holds the same weights once, the package has
	// the tied head a second time and two tables of 128 x 64 for each chunk.
	const checkpoint, head, tables = 2236448, 1024 * 128 * 2, 2 * 2 * 128 * 64 * 2
	if over := r.WeightBytes - checkpoint - head - tables; over > 0 || over < -10000 {
		t.Errorf("weights of %d bytes, want those of the checkpoint", r.WeightBytes)
	}
	if runtime.GOOS == "linux" && (r.PeakBytes < r.WeightBytes || r.PeakBytes > 8<<30) {
		t.Errorf("peak of %d bytes", r.PeakBytes)
	}
}

func TestBenchOptions(t *testing.T) {
	for _, c := range []struct {
		context, batch int
		o              BenchOptions
		prompt, decode int
		err            string
	}{
		{512, 64, BenchOptions{}, 256, 32, ""},
		{1024, 48, BenchOptions{}, 240, 32, ""},
		{128, 128, BenchOptions{}, 128, 0, ""},
		{64, 0, BenchOptions{}, 32, 32, ""},
		{1, 0, BenchOptions{}, 1, 0, ""},
		{512, 64, BenchOptions{Prompt: 500, Decode: 12}, 500, 12, ""},
		{512, 64, BenchOptions{Prompt: 500, Decode: 13}, 0, 0, "do not fit the context of 512"},
	} {
		p := &anemll.Package{Layout: anemll.Layout{ContextLength: c.context, BatchSize: c.batch}}
		err := c.o.fill(p)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%+v: %v, want an error with %q", c, err, c.err)
			}
			continue
		}
		if err != nil || c.o.Prompt != c.prompt || c.o.Decode != c.decode {
			t.Errorf("context %d, batch %d: %d and %d tokens, %v; want %d and %d", c.context, c.batch, c.o.Prompt, c.o.Decode, err, c.prompt, c.decode)
		}
	}
}

func TestBenchErrors(t *testing.T) {
	broken := errors.New("broken")
	if _, err := Bench(t.Context(), func() (*session.Model, error) { return nil, broken }, BenchOptions{}); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	m := load(t, convert(t, tinyCheckpoint(t), anemll.Options{Context: 64, Batch: 32}), engine.Options{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Bench(ctx, func() (*session.Model, error) { return m, nil }, BenchOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestRates(t *testing.T) {
	for _, c := range []struct {
		v    []float64
		want Rates
	}{
		{nil, Rates{}},
		{[]float64{3}, Rates{3, 3, 3}},
		{[]float64{9, 1}, Rates{5, 1, 9}},
		{[]float64{9, 1, 2}, Rates{2, 1, 9}},
	} {
		if got := rates(c.v); got != c.want {
			t.Errorf("rates(%v) = %v, want %v", c.v, got, c.want)
		}
	}
}

// TestBenchPeer measures a package whose prefill gives no logits.
func TestBenchPeer(t *testing.T) {
	m := load(t, testutil.Shared(t, "peers", "qwen3-fp16-c2"), engine.Options{})
	r, err := Bench(t.Context(), func() (*session.Model, error) { return m, nil }, BenchOptions{Repeats: 1, Prompt: 64, Decode: 2})
	if err != nil || r.Repeats != 1 || r.Prefill.Median <= 0 {
		t.Errorf("%+v, %v", r, err)
	}
}
