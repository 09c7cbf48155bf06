package check

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"anemone/internal/anemll"
	"anemone/internal/session"
	"anemone/mil"
)

// BenchOptions are choices of a measurement. Zero fields stand for the
// defaults that their comments name.
type BenchOptions struct {
	Prompt  int           // tokens; as many full batches as come near 256, or what half the context holds
	Decode  int           // tokens; 32, or what the context has room for
	Repeats int           // 5
	Budget  time.Duration // no repeat begins after it; one minute
	// Progress, if not nil, is called before each repeat.
	Progress func(done, total int)
}

// BenchReport is the outcome of a measurement. Rates are those of greedy
// decoding of one sequence, LM head and choice of the token included.
type BenchReport struct {
	// LoadSeconds is the time from opening the package to a session that can
	// be called; FirstSeconds is that of the first calls of each function,
	// which a runner may use to prepare weights.
	LoadSeconds  float64 `json:"load_seconds"`
	FirstSeconds float64 `json:"first_call_seconds"`

	PromptTokens int   `json:"prompt_tokens"`
	DecodeTokens int   `json:"decode_tokens"`
	Repeats      int   `json:"repeats"`
	Prefill      Rates `json:"prefill_tokens_per_second"`
	Decode       Rates `json:"decode_tokens_per_second"`

	// PeakBytes is the largest resident memory of this process so far, mapped
	// weights that have been read included; 0 where the system does not say.
	PeakBytes int64 `json:"peak_bytes"`
	// WeightBytes is the size of the stored weights of all parts, StateBytes
	// that of one context's states, both as the package has them.
	WeightBytes int64  `json:"weight_bytes"`
	StateBytes  int64  `json:"state_bytes"`
	Cores       int    `json:"cores"` // that Go may use
	Platform    string `json:"platform"`
	// Problems says what kept a figure from being measured.
	Problems []string `json:"problems,omitempty"`
}

// Rates sums up the rates of the repeats, in tokens per second.
type Rates struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func rates(v []float64) Rates {
	if len(v) == 0 {
		return Rates{}
	}
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	return Rates{Median: (v[(n-1)/2] + v[n/2]) / 2, Min: v[0], Max: v[n-1]}
}

// Bench measures a package. open opens and loads it, for Bench to time; what
// it returns stays the caller's to close.
func Bench(ctx context.Context, open func() (*session.Model, error), o BenchOptions) (*BenchReport, error) {
	start := time.Now()
	m, err := open()
	if err != nil {
		return nil, err
	}
	s, err := m.NewSession()
	if err != nil {
		return nil, err
	}
	p := m.Package()
	r := &BenchReport{
		LoadSeconds: time.Since(start).Seconds(), WeightBytes: StoredBytes(p), StateBytes: p.StateBytes(),
		Cores: runtime.GOMAXPROCS(0), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	if err := o.fill(p); err != nil {
		return nil, err
	}
	r.PromptTokens, r.DecodeTokens = o.Prompt, o.Decode

	// Ids do not matter for the time; always the same ones, though.
	rng := rand.New(rand.NewPCG(1, 2))
	prompt := make([]int32, o.Prompt)
	for i := range prompt {
		prompt[i] = int32(rng.IntN(p.VocabSize))
	}

	// The first calls: of each function for several tokens, and for one.
	start = time.Now()
	sizes := []int{1}
	for _, f := range p.Prefills() {
		sizes = append(sizes, f.Tokens)
	}
	for _, n := range sizes {
		s.Reset()
		if err := s.Each(ctx, make([]int32, n), session.Contract, ignore); err != nil {
			return nil, err
		}
	}
	r.FirstSeconds = time.Since(start).Seconds()

	var prefill, decode []float64
	begin := time.Now()
	for i := range o.Repeats {
		if i > 0 && time.Since(begin) > o.Budget {
			break
		}
		if o.Progress != nil {
			o.Progress(i, o.Repeats)
		}
		s.Reset()
		start := time.Now()
		if _, err := s.Feed(ctx, prompt); err != nil {
			return nil, err
		}
		prefill = append(prefill, float64(o.Prompt)/time.Since(start).Seconds())
		start = time.Now()
		for range o.Decode {
			t, err := s.Best()
			if err != nil {
				r.Problems = []string{fmt.Sprintf("the logits are not numbers: %v", err)}
				t = 0
			}
			if _, err = s.Feed(ctx, []int32{t}); err != nil {
				return nil, err
			}
		}
		if o.Decode > 0 {
			decode = append(decode, float64(o.Decode)/time.Since(start).Seconds())
		}
		r.Repeats++
	}
	r.Prefill, r.Decode = rates(prefill), rates(decode)
	r.PeakBytes = peakMemory()
	return r, nil
}

func ignore(int, []float32) error { return nil }

// fill replaces zero options by defaults and checks that they fit.
func (o *BenchOptions) fill(p *anemll.Package) error {
	if o.Repeats <= 0 {
		o.Repeats = 5
	}
	if o.Budget <= 0 {
		o.Budget = time.Minute
	}
	asked := o.Prompt + o.Decode
	if o.Prompt <= 0 {
		o.Prompt = max(1, min(256, p.ContextLength/2))
		if b := p.BatchSize; b > 1 {
			o.Prompt = max(b, o.Prompt/b*b)
		}
	}
	if o.Decode <= 0 {
		o.Decode = max(0, min(32, p.ContextLength-o.Prompt))
	}
	if o.Prompt+o.Decode > p.ContextLength {
		return fmt.Errorf("%d tokens to measure (%d asked for) do not fit the context of %d positions", o.Prompt+o.Decode, asked, p.ContextLength)
	}
	return nil
}

// StoredBytes returns the size of the stored weights of all parts of a
// package: what functions share counts once.
func StoredBytes(p *anemll.Package) (n int64) {
	for _, part := range p.Parts() {
		part.Model.Program.Weights(func(_ *mil.Value, w mil.Weight) {
			size, _ := w.Type().ByteSize()
			n += size
		})
	}
	return n
}
