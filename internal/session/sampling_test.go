package session

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

var (
	inf = float32(math.Inf(1))
	nan = float32(math.NaN())
)

// lg is a logit whose probability is proportional to p.
func lg(p float64) float32 { return float32(math.Log(p)) }

// Distributions worked out by hand. The logits of the first cases are those of
// the probabilities 0.5, 0.3, 0.15 and 0.05.
func TestCandidates(t *testing.T) {
	p4 := []float32{lg(0.05), lg(0.5), lg(0.15), lg(0.3)}
	for _, c := range []struct {
		name   string
		opt    Sampling
		seen   []int32
		logits []float32
		want   []Candidate
	}{
		{"plain", Sampling{Temperature: 1}, nil, p4, []Candidate{{0, 0.05}, {1, 0.5}, {2, 0.15}, {3, 0.3}}},
		{"temperature 0.5 squares", Sampling{Temperature: 0.5}, nil, []float32{lg(0.5), lg(0.3), lg(0.2)}, []Candidate{{0, 25. / 38}, {1, 9. / 38}, {2, 4. / 38}}},
		{"temperature 2 takes roots", Sampling{Temperature: 2}, nil, []float32{lg(0.64), lg(0.36)}, []Candidate{{0, 8. / 14}, {1, 6. / 14}}},
		{"top-k", Sampling{Temperature: 1, TopK: 2}, nil, p4, []Candidate{{1, 0.625}, {3, 0.375}}},
		{"top-k of all", Sampling{Temperature: 1, TopK: 4}, nil, p4, []Candidate{{0, 0.05}, {1, 0.5}, {2, 0.15}, {3, 0.3}}},
		{"top-k keeps ties of the k-th", Sampling{Temperature: 1, TopK: 2}, nil, []float32{1, 1, 2, 1}, tied()},
		{"top-p keeps the token that crosses", Sampling{Temperature: 1, TopP: 0.7}, nil, p4, []Candidate{{1, 0.625}, {3, 0.375}}},
		{"top-p just reached", Sampling{Temperature: 1, TopP: 0.4999}, nil, p4, []Candidate{{1, 1}}},
		{"top-p keeps one at least", Sampling{Temperature: 1, TopP: 1e-9}, nil, p4, []Candidate{{1, 1}}},
		{"top-p 0.9", Sampling{Temperature: 1, TopP: 0.9}, nil, p4, []Candidate{{1, 0.5 / 0.95}, {3, 0.3 / 0.95}, {2, 0.15 / 0.95}}},
		{"top-p after top-k: 0.625 of what is left", Sampling{Temperature: 1, TopK: 2, TopP: 0.6}, nil, p4, []Candidate{{1, 1}}},
		{"top-p after temperature: 25/38 > 0.65", Sampling{Temperature: 0.5, TopP: 0.65}, nil, []float32{lg(0.5), lg(0.3), lg(0.2)}, []Candidate{{0, 1}}},
		{"min-p against the best: 0.15 and 0.05 are less than 0.4 of 0.5", Sampling{Temperature: 1, MinP: 0.4}, nil, p4, []Candidate{{1, 0.625}, {3, 0.375}}},
		{"min-p 1", Sampling{Temperature: 1, MinP: 1}, nil, p4, []Candidate{{1, 1}}},
		{"min-p after temperature", Sampling{Temperature: 0.5, MinP: 0.3}, nil, []float32{lg(0.5), lg(0.3), lg(0.2)}, []Candidate{{0, 25. / 34}, {1, 9. / 34}}},
		{"equal ones by id", Sampling{Temperature: 1, TopP: 0.5}, nil, []float32{0, 0, 0, 0}, []Candidate{{0, 0.5}, {1, 0.5}}},
		{"-Inf is never drawn", Sampling{Temperature: 1}, nil, []float32{negInf, 0, negInf, 0}, []Candidate{{1, 0.5}, {3, 0.5}}},
		{"top-k of more than there are", Sampling{Temperature: 1, TopK: 3}, nil, []float32{negInf, 0, negInf, 0}, []Candidate{{1, 0.5}, {3, 0.5}}},
		// Penalty 2 halves log 4 to log 2 and doubles -log 2 to -log 4.
		{"repetition penalty", Sampling{Temperature: 1, RepetitionPenalty: 2}, []int32{0, 2, 0, 2}, []float32{lg(4), 0, -lg(2), -lg(2)},
			[]Candidate{{0, 2 / 3.75}, {1, 1 / 3.75}, {2, 0.25 / 3.75}, {3, 0.5 / 3.75}}},
		{"penalty below one rewards", Sampling{Temperature: 1, RepetitionPenalty: 0.5}, []int32{0}, []float32{lg(2), 0}, []Candidate{{0, 0.8}, {1, 0.2}}},
		{"penalty before temperature", Sampling{Temperature: 0.5, RepetitionPenalty: 2}, []int32{0}, []float32{lg(4), 0}, []Candidate{{0, 0.8}, {1, 0.2}}},
		{"greedy", Sampling{TopK: 3}, nil, p4, []Candidate{{1, 1}}},
		{"very cold", Sampling{Temperature: 1e-300}, nil, []float32{1, 3, 2}, []Candidate{{0, 0}, {1, 1}, {2, 0}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := NewSampler(c.opt, len(c.logits))
			if err != nil {
				t.Fatal(err)
			}
			s.See(c.seen...)
			before := slices.Clone(c.logits)
			for range 2 { // buffers are used again
				got, err := s.Candidates(c.logits)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.EqualFunc(got, c.want, func(a, b Candidate) bool { return a.ID == b.ID && math.Abs(a.P-b.P) < 1e-6 }) {
					t.Errorf("got %v, want %v", got, c.want)
				}
			}
			if !slices.Equal(before, c.logits) {
				t.Error("the logits were changed")
			}
		})
	}
}

// tied is three tokens at e^1 and one at e^2.
func tied() []Candidate {
	z := 3 + math.E
	return []Candidate{{0, 1 / z}, {1, 1 / z}, {2, math.E / z}, {3, 1 / z}}
}

func TestGreedy(t *testing.T) {
	s, err := NewSampler(Sampling{}, 4)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Sample([]float32{1, 5, 5, 2}); err != nil || got != 1 {
		t.Errorf("got %d, %v; want the first of the best", got, err)
	}
	s, _ = NewSampler(Sampling{RepetitionPenalty: 10}, 4)
	s.See(1, 1, 99, -1)
	if got, err := s.Sample([]float32{1, 5, 3, 2}); err != nil || got != 2 {
		t.Errorf("got %d, %v; want 2, as 1 was seen", got, err)
	}
}

func TestSampleErrors(t *testing.T) {
	for want, logits := range map[string][]float32{
		"token 1 has NaN":  {0, nan, 1},
		"token 2 has +Inf": {0, 1, inf},
		"all of 2 are":     {negInf, negInf},
		"all of 0 are":     {},
	} {
		for _, temp := range []float64{0, 1} {
			s, err := NewSampler(Sampling{Temperature: temp, TopK: 1}, 3)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Sample(logits); !errors.Is(err, ErrLogits) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v at temperature %v: %v, want %q", logits, temp, err, want)
			}
		}
	}
	for want, opt := range map[string]Sampling{
		"temperature":        {Temperature: -1},
		"temperature: found": {Temperature: math.NaN()},
		"top_k":              {TopK: -1},
		"top_p":              {TopP: 1.5},
		"min_p":              {MinP: -0.1},
		"repetition_penalty": {RepetitionPenalty: math.Inf(1)},
	} {
		if _, err := NewSampler(opt, 3); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", opt, err)
		}
	}
}

// Draws follow the distribution, and a seed repeats them.
func TestSampleFollowsDistribution(t *testing.T) {
	logits := []float32{lg(0.05), lg(0.5), lg(0.15), lg(0.3)}
	const n = 40000
	draw := func(seed uint64) (all []int32) {
		s, err := NewSampler(Sampling{Temperature: 1, TopP: 0.96, Seed: seed}, 4)
		if err != nil {
			t.Fatal(err)
		}
		for range n {
			id, err := s.Sample(logits)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, id)
		}
		return all
	}
	a := draw(7)
	count := make([]float64, 4)
	for _, id := range a {
		count[id]++
	}
	chi2 := 0.0
	for i, p := range []float64{0.05, 0.5, 0.15, 0.3} {
		chi2 += (count[i] - n*p) * (count[i] - n*p) / (n * p)
	}
	if chi2 > 16.27 { // three degrees of freedom, 0.1 %
		t.Errorf("chi square %v for counts %v", chi2, count)
	}
	if !slices.Equal(a, draw(7)) {
		t.Error("the same seed gave other tokens")
	}
	if slices.Equal(a, draw(8)) {
		t.Error("another seed gave the same tokens")
	}
}

// slowCandidates is the definition with a full sort, as transformers has it.
func slowCandidates(o Sampling, logits []float32) map[int32]float64 {
	type sp struct {
		id int32
		v  float64
	}
	var all []sp
	for i, v := range logits {
		all = append(all, sp{int32(i), float64(v) / o.Temperature})
	}
	slices.SortStableFunc(all, func(a, b sp) int {
		switch {
		case a.v > b.v:
			return -1
		case a.v < b.v:
			return 1
		}
		return 0
	})
	if o.TopK > 0 && o.TopK < len(all) {
		kth := all[o.TopK-1].v
		for len(all) > 0 && all[len(all)-1].v < kth {
			all = all[:len(all)-1]
		}
	}
	probs := func() (p []float64) {
		sum := 0.0
		for _, a := range all {
			p = append(p, math.Exp(a.v-all[0].v))
			sum += p[len(p)-1]
		}
		for i := range p {
			p[i] /= sum
		}
		return p
	}
	if o.TopP > 0 && o.TopP < 1 {
		p := probs()
		sum, n := 0.0, 0
		for n < len(p) && (n == 0 || sum < o.TopP) {
			sum += p[n]
			n++
		}
		all = all[:n]
	}
	if o.MinP > 0 {
		p := probs()
		n := 0
		for n < len(p) && p[n] >= o.MinP*p[0] {
			n++
		}
		all = all[:n]
	}
	out := map[int32]float64{}
	for i, p := range probs() {
		out[all[i].id] = p
	}
	return out
}

func TestCandidatesAgainstSorting(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 300 {
		n := 1 + r.IntN(400)
		logits := make([]float32, n)
		for i := range logits {
			logits[i] = float32(math.Round(r.NormFloat64()*12) / 4) // ties
		}
		o := Sampling{Temperature: 0.3 + 2*r.Float64()}
		if r.IntN(2) == 0 {
			o.TopK = 1 + r.IntN(2*n)
		}
		if r.IntN(3) > 0 {
			o.TopP = 0.01 + 0.98*r.Float64()
		}
		if r.IntN(2) == 0 {
			o.MinP = r.Float64()
		}
		s, err := NewSampler(o, n)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Candidates(logits)
		if err != nil {
			t.Fatal(err)
		}
		want := slowCandidates(o, logits)
		if len(got) != len(want) {
			t.Fatalf("round %d, %+v: %d candidates, want %d", round, o, len(got), len(want))
		}
		for i, c := range got {
			if w, ok := want[c.ID]; !ok || math.Abs(w-c.P) > 1e-9 {
				t.Fatalf("round %d, %+v: token %d has %v, want %v", round, o, c.ID, c.P, w)
			}
			if o.TopP > 0 && i > 0 && c.P > got[i-1].P {
				t.Fatalf("round %d: not in order of probability", round)
			}
		}
	}
}

func p[T any](v T) *T { return &v }

func TestResolve(t *testing.T) {
	flags := func(f func(*Preferences)) Preferences { q := Preferences{}; f(&q); return q }
	rec := Preferences{DoSample: p(true), Temperature: p(0.6), TopP: p(0.95), TopK: p(20)}
	for _, c := range []struct {
		name string
		in   []Preferences
		want Sampling
	}{
		{"nothing is greedy", nil, Sampling{}},
		{"recommended", []Preferences{{}, rec}, Sampling{Temperature: 0.6, TopP: 0.95, TopK: 20}},
		{"a flag over recommended", []Preferences{flags(func(q *Preferences) { q.Temperature = p(0.9) }), rec}, Sampling{Temperature: 0.9, TopP: 0.95, TopK: 20}},
		{"temperature 0 wins", []Preferences{flags(func(q *Preferences) { q.Temperature = p(0.) }), rec}, Sampling{}},
		{"top-p 0 is greedy", []Preferences{flags(func(q *Preferences) { q.TopP = p(0.) }), rec}, Sampling{}},
		{"recommended over generation_config", []Preferences{{}, rec, {DoSample: p(true), Temperature: p(1.), MinP: p(0.1), RepetitionPenalty: p(1.1)}},
			Sampling{Temperature: 0.6, TopP: 0.95, TopK: 20, MinP: 0.1, RepetitionPenalty: 1.1}},
		{"recommended says greedy", []Preferences{{}, {DoSample: p(false), Temperature: p(0.6)}, {DoSample: p(true)}}, Sampling{}},
		{"a flag asks for sampling where files say greedy", []Preferences{flags(func(q *Preferences) { q.TopK = p(5) }), {DoSample: p(false)}}, Sampling{Temperature: 1, TopK: 5}},
		{"weak temperature 0 does not spoil it", []Preferences{flags(func(q *Preferences) { q.TopK = p(5) }), {Temperature: p(0.)}}, Sampling{Temperature: 1, TopK: 5}},
		{"a seed alone asks for nothing", []Preferences{{Seed: p(uint64(4))}, {}}, Sampling{}},
		{"penalty alone is greedy", []Preferences{{RepetitionPenalty: p(1.3)}}, Sampling{RepetitionPenalty: 1.3}},
		{"do_sample alone", []Preferences{{DoSample: p(true)}}, Sampling{Temperature: 1}},
	} {
		in := c.in
		if len(in) == 0 || in[0].Seed == nil {
			in = append(slices.Clone(in), Preferences{Seed: p(uint64(4))})
		}
		c.want.Seed = 4
		got, err := Resolve(in...)
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", c.name, got, err, c.want)
		}
	}
	if _, err := Resolve(Preferences{Temperature: p(-1.)}); err == nil {
		t.Error("a negative temperature was taken")
	}
	if _, err := Resolve(Preferences{RepetitionPenalty: p(0.)}); err == nil {
		t.Error("a penalty of 0 was taken")
	}
	a, _ := Resolve()
	b, _ := Resolve()
	if a.Seed == b.Seed {
		t.Error("two seeds are the same")
	}
}

func BenchmarkSample(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	logits := make([]float32, 151936)
	for i := range logits {
		logits[i] = float32(r.NormFloat64() * 3)
	}
	for name, o := range map[string]Sampling{
		"greedy":    {},
		"plain":     {Temperature: 1},
		"top-k":     {Temperature: 0.6, TopK: 20, TopP: 0.95},
		"top-p":     {Temperature: 1, TopP: 0.95},
		"penalized": {Temperature: 0.6, TopK: 20, TopP: 0.95, RepetitionPenalty: 1.1},
	} {
		b.Run(name, func(b *testing.B) {
			s, err := NewSampler(o, len(logits))
			if err != nil {
				b.Fatal(err)
			}
			s.See(1, 2, 3)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Sample(logits); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func ExampleResolve() {
	temperature, seed := 0.8, uint64(1) // flags
	s, err := Resolve(Preferences{Temperature: &temperature, Seed: &seed}, Preferences{TopK: new(int)})
	fmt.Printf("%+v %v\n", s, err)
	// Output:
	// {Temperature:0.8 TopK:0 TopP:0 MinP:0 RepetitionPenalty:0 Seed:1} <nil>
}
