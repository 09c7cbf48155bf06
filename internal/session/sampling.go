package session

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Sampling says how the next token is drawn from logits. The steps and their
// order are those of transformers' generate:
//
//  1. the repetition penalty, on the logits of tokens that occurred;
//  2. temperature: the logits are divided by it;
//  3. top-k: the k largest remain (and those equal to the k-th);
//  4. top-p: of these, the most probable ones remain until their probability
//     reaches p (the token that crosses p included);
//  5. min-p: of these, those at least p times as probable as the best;
//  6. one of the rest is drawn by its probability.
//
// The zero value is greedy: the token with the largest logit, the smallest id
// of equal ones.
type Sampling struct {
	// Temperature divides the logits; 0 is greedy, and only the repetition
	// penalty matters then.
	Temperature float64
	TopK        int     // 0: no limit
	TopP        float64 // in (0, 1); 0 and 1: no limit
	MinP        float64 // in (0, 1]; 0: no limit
	// RepetitionPenalty divides the positive logits of tokens that occurred
	// in the prompt or since, and multiplies their negative ones; 0 and 1: none.
	RepetitionPenalty float64
	// Seed makes draws repeatable: the same seed and logits give the same
	// tokens on machines of one kind.
	Seed uint64
}

// Greedy reports whether the best token is always taken.
func (s Sampling) Greedy() bool { return s.Temperature == 0 }

func (s Sampling) check() error {
	for _, c := range []struct {
		name   string
		v      float64
		lo, hi float64
		want   string
	}{
		{"temperature", s.Temperature, 0, 1e6, "0 or more"},
		{"top_k", float64(s.TopK), 0, math.MaxInt32, "0 or more"},
		{"top_p", s.TopP, 0, 1, "0 to 1"},
		{"min_p", s.MinP, 0, 1, "0 to 1"},
		{"repetition_penalty", s.RepetitionPenalty, 0, 1e6, "more than 0"},
	} {
		if !(c.v >= c.lo && c.v <= c.hi) {
			return fmt.Errorf("%s: found %v, wanted %s", c.name, c.v, c.want)
		}
	}
	return nil
}

// ErrLogits is matched by errors about logits from which no token can be
// drawn: NaN, +Inf, or nothing but -Inf.
var ErrLogits = errors.New("logits are unusable")

// Candidate is a token that may be drawn.
type Candidate struct {
	ID int32
	P  float64 // probability among the candidates
}

// Sampler draws tokens. It is not safe for concurrent use.
type Sampler struct {
	opt  Sampling
	rng  *rand.Rand
	seen []bool // by token
	list []int32
	work []float32
	heap []float32
	cand []Candidate
}

// NewSampler returns a sampler for a vocabulary of the given size.
func NewSampler(opt Sampling, vocab int) (*Sampler, error) {
	if err := opt.check(); err != nil {
		return nil, err
	}
	if opt.TopP == 0 {
		opt.TopP = 1
	}
	if opt.RepetitionPenalty == 0 {
		opt.RepetitionPenalty = 1
	}
	s := &Sampler{opt: opt, rng: rand.New(rand.NewPCG(opt.Seed, 0x9e3779b97f4a7c15))}
	if opt.RepetitionPenalty != 1 {
		s.seen = make([]bool, vocab)
		s.work = make([]float32, vocab)
	}
	return s, nil
}

// plain reports whether the token with the largest logit is always taken.
func (s *Sampler) plain() bool { return s.opt.Greedy() && s.opt.RepetitionPenalty == 1 }

// See notes that tokens occurred, for the repetition penalty.
func (s *Sampler) See(tokens ...int32) {
	for _, t := range tokens {
		if t >= 0 && int(t) < len(s.seen) && !s.seen[t] {
			s.seen[t] = true
			s.list = append(s.list, t)
		}
	}
}

// Sample draws a token. The logits are not changed, and the token is not
// noted as seen.
func (s *Sampler) Sample(logits []float32) (int32, error) {
	if s.opt.Greedy() {
		scores, best, err := s.scores(logits)
		if err != nil {
			return 0, err
		}
		return int32(slices.Index(scores, best)), nil
	}
	cand, err := s.Candidates(logits)
	if err != nil {
		return 0, err
	}
	u := s.rng.Float64()
	for _, c := range cand {
		if u -= c.P; u < 0 {
			return c.ID, nil
		}
	}
	return cand[len(cand)-1].ID, nil // the probabilities add up to 1 - rounding
}

// scores returns the logits after the repetition penalty, and the largest.
func (s *Sampler) scores(logits []float32) (scores []float32, best float32, err error) {
	scores = logits
	if len(s.list) > 0 {
		scores = append(s.work[:0], logits...)
		s.work = scores
		f := float32(s.opt.RepetitionPenalty)
		for _, t := range s.list {
			if int(t) >= len(scores) {
				continue
			}
			if scores[t] < 0 {
				scores[t] *= f
			} else {
				scores[t] /= f
			}
		}
	}
	best, err = maxLogit(scores)
	return scores, best, err
}

// maxLogit returns the largest of logits that can be used.
func maxLogit(logits []float32) (best float32, err error) {
	best = negInf
	for i, v := range logits {
		if v > best {
			best = v
		} else if v != v {
			return 0, fmt.Errorf("%w: token %d has NaN", ErrLogits, i)
		}
	}
	switch {
	case best == negInf:
		return 0, fmt.Errorf("%w: all of %d are -Inf", ErrLogits, len(logits))
	case math.IsInf(float64(best), 1):
		return 0, fmt.Errorf("%w: token %d has +Inf", ErrLogits, slices.Index(logits, best))
	}
	return best, nil
}

// Candidates returns the tokens that may be drawn with their probabilities,
// which add up to 1: in order of probability if top-p is in use, else in order
// of their ids. The slice is valid until the next call.
func (s *Sampler) Candidates(logits []float32) ([]Candidate, error) {
	scores, best, err := s.scores(logits)
	if err != nil {
		return nil, err
	}
	cand := s.cand[:0]
	if s.opt.Greedy() {
		cand = append(cand, Candidate{int32(slices.Index(scores, best)), 1})
		s.cand = cand
		return cand, nil
	}
	least := negInf
	if k := s.opt.TopK; k > 0 && k < len(scores) {
		least = s.kth(scores, k)
	}
	total := 0.0
	for i, v := range scores {
		if v < least || v == negInf {
			continue
		}
		p := math.Exp((float64(v) - float64(best)) / s.opt.Temperature)
		cand = append(cand, Candidate{int32(i), p})
		total += p
	}
	s.cand = cand
	if s.opt.TopP < 1 {
		cand = topP(cand, s.opt.TopP*total)
	}
	if s.opt.MinP > 0 { // the best has p = 1 here
		cand = slices.DeleteFunc(cand, func(c Candidate) bool { return c.P < s.opt.MinP })
	}
	total = 0
	for _, c := range cand {
		total += c.P
	}
	for i := range cand {
		cand[i].P /= total
	}
	return cand, nil
}

// kth returns the k-th largest of scores, which has more than k elements.
func (s *Sampler) kth(scores []float32, k int) float32 {
	h := append(s.heap[:0], scores[:k]...) // smallest on top
	s.heap = h
	down := func(i int) {
		for {
			c := 2*i + 1
			if c >= k {
				return
			}
			if c+1 < k && h[c+1] < h[c] {
				c++
			}
			if h[i] <= h[c] {
				return
			}
			h[i], h[c] = h[c], h[i]
			i = c
		}
	}
	for i := k/2 - 1; i >= 0; i-- {
		down(i)
	}
	for _, v := range scores[k:] {
		if v > h[0] {
			h[0] = v
			down(0)
		}
	}
	return h[0]
}

// topP sorts the most probable candidates to the front, until their mass
// reaches mass, and returns them. There are often few of them among very
// many, so they are taken from a heap one by one.
func topP(c []Candidate, mass float64) []Candidate {
	before := func(a, b Candidate) bool {
		if a.P != b.P {
			return a.P > b.P
		}
		return a.ID < b.ID
	}
	// The heap lies at the end of c, root last, and shrinks towards it, so that
	// what is taken can stay at the front.
	at := func(i int) *Candidate { return &c[len(c)-1-i] }
	n := len(c)
	down := func(i int) {
		for {
			k := 2*i + 1
			if k >= n {
				return
			}
			if k+1 < n && before(*at(k + 1), *at(k)) {
				k++
			}
			if !before(*at(k), *at(i)) {
				return
			}
			*at(i), *at(k) = *at(k), *at(i)
			i = k
		}
	}
	for i := n/2 - 1; i >= 0; i-- {
		down(i)
	}
	taken := 0
	for sum := 0.0; n > 0 && (taken == 0 || sum < mass); {
		top := *at(0)
		n--
		*at(0) = *at(n) // at(n) is c[taken], now free
		c[taken] = top
		taken++
		down(0)
		sum += top.P
	}
	return c[:taken]
}

// Preferences are sampling settings of which some may be missing: flags of a
// command, fields of a request, what a model's files recommend.
type Preferences struct {
	DoSample          *bool
	Temperature       *float64
	TopK              *int
	TopP              *float64
	MinP              *float64
	RepetitionPenalty *float64
	Seed              *uint64
}

// wants reports what p says about drawing at all; nil if nothing.
func (p *Preferences) wants() *bool {
	yes, no := true, false
	switch {
	case p.Temperature != nil && *p.Temperature == 0, p.TopP != nil && *p.TopP == 0:
		return &no
	case p.DoSample != nil:
		return p.DoSample
	case p.Temperature != nil || p.TopK != nil || p.TopP != nil || p.MinP != nil:
		return &yes
	}
	return nil
}

// Resolve settles preferences, strongest first: flags, then what the package
// recommends ([Recommended]), then generation_config.json ([Generation]). Each
// setting comes from the first that has it. Whether to sample at all is
// decided by the first that says something about it: do_sample, or a
// temperature of 0 (no), or any of temperature, top-k, top-p and min-p (yes).
// If none does, the result is greedy. Without any seed, one is drawn; it
// stands in the result.
func Resolve(strongestFirst ...Preferences) (Sampling, error) {
	var s Sampling
	var p Preferences
	sample, decided := false, false
	for i := range strongestFirst {
		q := &strongestFirst[i]
		if w := q.wants(); w != nil && !decided {
			sample, decided = *w, true
		}
		p.Temperature = cmp.Or(p.Temperature, q.Temperature)
		p.TopK = cmp.Or(p.TopK, q.TopK)
		p.TopP = cmp.Or(p.TopP, q.TopP)
		p.MinP = cmp.Or(p.MinP, q.MinP)
		p.RepetitionPenalty = cmp.Or(p.RepetitionPenalty, q.RepetitionPenalty)
		p.Seed = cmp.Or(p.Seed, q.Seed)
	}
	s.Seed = or(p.Seed, 0)
	if p.Seed == nil {
		s.Seed = rand.Uint64()
	}
	if p.RepetitionPenalty != nil {
		if s.RepetitionPenalty = *p.RepetitionPenalty; s.RepetitionPenalty == 0 {
			return s, fmt.Errorf("repetition_penalty: found 0, wanted more than 0 (1 is none)")
		}
	}
	if sample {
		// A weaker recommendation may name 0, which is no temperature to
		// sample with.
		if s.Temperature = or(p.Temperature, 1); s.Temperature == 0 {
			s.Temperature = 1
		}
		s.TopK = or(p.TopK, 0)
		s.TopP = or(p.TopP, 0)
		s.MinP = or(p.MinP, 0)
	}
	return s, s.check()
}

func or[T any](p *T, def T) T {
	if p != nil {
		return *p
	}
	return def
}
