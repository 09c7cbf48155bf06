package session_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"anemone/coreml"
	"anemone/internal/anemll"
	"anemone/internal/engine"
	"anemone/internal/runner"
	"anemone/internal/session"
	"anemone/internal/session/sessiontest"
)

// recorder writes down the calls of the decoder.
type recorder struct {
	runner.Model
	mu  *sync.Mutex
	log *[]string
}

func (r recorder) Predict(ctx context.Context, f string, in, out runner.Values, st runner.State) error {
	if pos := in[anemll.CurrentPos]; pos != nil {
		r.mu.Lock()
		*r.log = append(*r.log, fmt.Sprintf("%s@%d", f, pos.Int[0]))
		r.mu.Unlock()
	}
	return r.Model.Predict(ctx, f, in, out, st)
}

// openSynthetic writes, opens and loads a synthetic package. calls returns the
// calls of the decoder's first chunk since it was asked last.
func openSynthetic(t *testing.T, s *sessiontest.Package) (m *session.Model, calls func() string) {
	t.Helper()
	m, calls, err := loadFolder(t, s.Write(t), max(s.Chunks, 1))
	if err != nil {
		t.Fatal(err)
	}
	return m, calls
}

func loadFolder(t *testing.T, dir string, chunks int) (m *session.Model, calls func() string, err error) {
	t.Helper()
	p, err := anemll.Open(dir)
	if err != nil {
		return nil, nil, err
	}
	t.Cleanup(func() { p.Close() })
	var mu sync.Mutex
	var log []string
	m, err = session.Load(p, func(c *coreml.Model) (runner.Model, error) {
		e, err := engine.New(c, engine.Options{})
		return recorder{e, &mu, &log}, err
	})
	if err != nil {
		return nil, nil, err
	}
	t.Cleanup(func() { m.Close() })
	return m, func() string {
		var first []string
		for i, c := range log {
			if i%chunks == 0 { // every chunk is called in turn
				first = append(first, c)
			}
		}
		log = nil
		return strings.Join(first, " ")
	}, nil
}

// farthest returns the largest difference of two rows of logits.
func farthest(got []float32, want []float64) float64 {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	d := 0.0
	for i, v := range got {
		d = max(d, math.Abs(float64(v)-want[i]))
	}
	return d
}

// holdScores compares what a session has after its last token with logits.
func holdScores(t *testing.T, s *session.Session, argmax bool, want []float64) {
	t.Helper()
	const near = 1e-4 // of logits of about 10: float32 sums
	best, err := s.Best()
	if err != nil {
		t.Fatal(err)
	}
	if w := slices.Index(want, slices.Max(want)); int(best) != w {
		t.Errorf("position %d: best token %d, want %d", s.Pos()-1, best, w)
	}
	if !argmax {
		if d := farthest(s.Logits(), want); !(d <= near) {
			t.Errorf("position %d: logits differ by %v", s.Pos()-1, d)
		}
		return
	}
	index, value := s.Argmax()
	at := 0
	for i, n := range sessiontest.Widths {
		part := want[at : at+n]
		top := slices.Max(part)
		if int(index[i]) != slices.Index(part, top) || !(math.Abs(float64(value[i])-top) <= near) {
			t.Errorf("position %d: part %d has its best at %d (%v), want %d (%v)", s.Pos()-1, i, index[i], value[i], slices.Index(part, top), top)
		}
		at += n
	}
	if s.Logits() != nil {
		t.Error("a package without logits gave some")
	}
}

// Every kind of package, in every mode, gives the logits of the definition at
// every position that it gives any for.
func TestPackagesOfEveryKind(t *testing.T) {
	for _, c := range []struct {
		name string
		s    sessiontest.Package
		// feed is the calls that 15 tokens take, each those of the mode Contract.
		feed, each string
	}{
		{"chunked", sessiontest.Package{Context: 16, Batch: 4, Chunks: 2},
			"prefill@0 prefill@4 prefill@8 infer@12 infer@13 infer@14", "prefill@0 prefill@4 prefill@8 infer@12 infer@13 infer@14"},
		{"one chunk, compiled", sessiontest.Package{Context: 16, Batch: 5, Chunks: 1, Forms: []string{".mlmodelc"}},
			"prefill@0 prefill@5 infer@10 infer@11 infer@12 infer@13 infer@14", "prefill@0 prefill@5 prefill@10"},
		{"last token's state", sessiontest.Package{Context: 16, Batch: 5, Chunks: 2, LastToken: true},
			"prefill@0 prefill@5 prefill@10", "prefill@0 prefill@5 prefill@10"},
		{"state longer than the context", sessiontest.Package{Context: 16, State: 40, Batch: 4, Chunks: 2, Params: []string{"state_length: 40"}},
			"prefill@0 prefill@4 prefill@8 infer@12 infer@13 infer@14", "prefill@0 prefill@4 prefill@8 infer@12 infer@13 infer@14"},
		{"no prefill_dynamic_slice", sessiontest.Package{Context: 16, Batch: 4, Chunks: 2, OneAtATime: true}, ones(0, 15), ones(0, 15)},
		{"update_mask_prefill", sessiontest.Package{Context: 16, Batch: 4, Chunks: 2, UpdateMask: true},
			"prefill@0 prefill@4 prefill@8 infer@12 infer@13 infer@14", "prefill@0 prefill@4 prefill@8 infer@12 infer@13 infer@14"},
		{"argmax", sessiontest.Package{Context: 16, Batch: 7, Chunks: 2, Argmax: true},
			"prefill@0 prefill@7 infer@14", "prefill@0 prefill@7 infer@14"},
		{"monolithic, logits of all tokens", sessiontest.Package{Context: 16, Batch: 5, PrefillGives: "all"},
			"prefill@0 prefill@5 infer@10 infer@11 infer@12 infer@13 infer@14", "prefill@0 prefill@5 prefill@10"},
		{"monolithic, logits of all tokens to be used", sessiontest.Package{Context: 16, Batch: 5, PrefillGives: "all", LastToken: true, Forms: []string{".mlmodelc"}},
			"prefill@0 prefill@5 prefill@10", "prefill@0 prefill@5 prefill@10"},
		{"monolithic, logits of the first token", sessiontest.Package{Context: 16, Batch: 5, PrefillGives: "first"},
			"prefill@0 prefill@5 infer@10 infer@11 infer@12 infer@13 infer@14", "prefill@0 prefill@5 prefill@10"},
		{"monolithic, hidden state", sessiontest.Package{Context: 16, Batch: 4, PrefillGives: "hidden", Argmax: true, UpdateMask: true},
			"prefill@0 prefill@4 prefill@8 infer@12 infer@13 infer@14", "prefill@0 prefill@4 prefill@8 infer@12 infer@13 infer@14"},
		{"monolithic, main", sessiontest.Package{Context: 16, Batch: 4, OnlyMain: true}, strings.ReplaceAll(ones(0, 15), "infer", "main"), strings.ReplaceAll(ones(0, 15), "infer", "main")},
		{"window that nothing rotates", sessiontest.Package{Context: 24, Window: 16, Batch: 4, Chunks: 2},
			"prefill@0 prefill@4 prefill@8 infer@12 infer@13 infer@14", "prefill@0 prefill@4 prefill@8 infer@12 infer@13 infer@14"},
		{"rotated", sessiontest.Package{Context: 24, Window: 8, Batch: 4, Chunks: 2, Rotate: true},
			"prefill@0 prefill@4 " + turned(8, 15), "prefill@0 prefill@4 " + turned(8, 15)},
		{"rotated, no batch across the window", sessiontest.Package{Context: 24, Window: 10, Batch: 4, Chunks: 1, Rotate: true},
			"prefill@0 prefill@4 infer@8 infer@9 " + turned(10, 15), "prefill@0 prefill@4 infer@8 infer@9 " + turned(10, 15)},
		{"rotated, split", sessiontest.Package{Context: 24, Window: 8, Batch: 4, Chunks: 2, Rotate: true, Split: true, Forms: []string{".mlmodelc"}},
			"prefill@0 prefill@4 " + turned(8, 15), "prefill@0 prefill@4 " + turned(8, 15)},
		{"rotated, split, named", sessiontest.Package{Context: 24, Window: 8, Batch: 4, Chunks: 2, Rotate: true, Split: true,
			Params: []string{"ffn: syn_FFN_PF_chunk_01of02.mlmodelc", "pf: syn_FFN_PF_chunk_01of02_rot.mlmodelc"}},
			"prefill@0 prefill@4 " + turned(8, 15), "prefill@0 prefill@4 " + turned(8, 15)},
		{"rotated, update_mask", sessiontest.Package{Context: 24, Window: 8, Batch: 4, Chunks: 2, Rotate: true, UpdateMask: true},
			"prefill@0 prefill@4 " + turned(8, 15), "prefill@0 prefill@4 " + turned(8, 15)},
		{"rotated, monolithic", sessiontest.Package{Context: 24, Window: 8, Batch: 4, Rotate: true, PrefillGives: "hidden"},
			"prefill@0 prefill@4 " + turned(8, 15), "prefill@0 prefill@4 " + turned(8, 15)},
		{"rotated, last token's state, argmax", sessiontest.Package{Context: 24, Window: 8, Batch: 4, Chunks: 2, Rotate: true, LastToken: true, Argmax: true},
			"prefill@0 prefill@4 " + turned(8, 15), "prefill@0 prefill@4 " + turned(8, 15)},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, calls := openSynthetic(t, &c.s)
			if len(m.Package().Problems) > 1 || len(m.Package().Problems) == 1 && !strings.Contains(c.name, "nothing rotates") {
				t.Errorf("problems: %q", m.Package().Problems)
			}
			if got, want := m.Package().ContextLength, min(c.s.Context, 24); got != want && !(c.s.Window == 16 && got == 16) {
				t.Errorf("a context of %d, want %d", got, want)
			}
			s, err := m.NewSession()
			if err != nil {
				t.Fatal(err)
			}
			tokens := sessiontest.Tokens(15)
			want := c.s.Reference(tokens)

			// At once, and what is before it in prompts of every length.
			if _, err := s.Feed(t.Context(), tokens); err != nil {
				t.Fatal(err)
			}
			if got := calls(); got != c.feed {
				t.Errorf("Feed: calls %s, want %s", got, c.feed)
			}
			holdScores(t, s, c.s.Argmax, want[14])
			for n := 1; n < 15; n++ {
				s.Reset()
				if _, err := s.Feed(t.Context(), tokens[:n]); err != nil {
					t.Fatal(err)
				}
				holdScores(t, s, c.s.Argmax, want[n-1])
				if _, err := s.Feed(t.Context(), tokens[n:]); err != nil { // the rest behind it
					t.Fatal(err)
				}
				holdScores(t, s, c.s.Argmax, want[14])
			}
			calls()
			for _, mode := range []session.Mode{session.Contract, session.InferOnly} {
				s.Reset()
				n := 0
				err := s.Each(t.Context(), tokens, mode, func(pos int, logits []float32) error {
					if pos != s.Pos()-1 || (logits == nil) != c.s.Argmax {
						return fmt.Errorf("position %d, logits %v at %d", pos, logits, s.Pos())
					}
					holdScores(t, s, c.s.Argmax, want[pos])
					n++
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				got := calls()
				if mode == session.Contract && got != c.each {
					t.Errorf("Each: calls %s, want %s", got, c.each)
				}
				if mode == session.InferOnly && n != 15 {
					t.Errorf("infer only gave scores at %d of 15 positions", n)
				}
			}
		})
	}
}

func ones(from, to int) string { return callsOf("infer", from, to) }

func turned(from, to int) string { return callsOf("infer_rotate", from, to) }

func callsOf(f string, from, to int) string {
	var s []string
	for i := from; i < to; i++ {
		s = append(s, fmt.Sprintf("%s@%d", f, i))
	}
	return strings.Join(s, " ")
}

// ANEMLL's own sequence, as its float64 twin computes it: the same as ours with
// plain caches, another result with rotated ones.
func TestAnemllSequence(t *testing.T) {
	for _, c := range []struct {
		name  string
		s     sessiontest.Package
		n     int
		calls string
		// simulate feeds the tokens as ANEMLL does, all but the repetition.
		simulate func(m *sessiontest.Simulator, tokens []int32)
		wrong    bool
	}{
		{"plain", sessiontest.Package{Context: 24, Batch: 4, Chunks: 2}, 8, "prefill@0 prefill@4 infer@7", oneByOne, false},
		{"plain, one by one", sessiontest.Package{Context: 24, Batch: 4, Chunks: 2, OneAtATime: true}, 3, "infer@0 infer@1 infer@2 infer@2", oneByOne, false},
		{"within the window", sessiontest.Package{Context: 24, Window: 8, Batch: 4, Chunks: 2, Rotate: true}, 7, "prefill@0 infer@4 infer@5 infer@6 infer@6", oneByOne, false},
		{"behind it", sessiontest.Package{Context: 24, Window: 8, Batch: 4, Chunks: 2, Rotate: true}, 11,
			"prefill@0 prefill@4 infer_rotate@8 infer_rotate@9 infer_rotate@10 infer_rotate@10", oneByOne, true},
		{"a batch behind it", sessiontest.Package{Context: 24, Window: 8, Batch: 4, Chunks: 2, Rotate: true}, 13,
			"prefill@0 prefill@4 prefill_rotate@8 infer_rotate@12 infer_rotate@12", func(m *sessiontest.Simulator, tokens []int32) {
				oneByOne(m, tokens[:8])
				m.RotateBatch(tokens[8:12], 8)
				m.Append(tokens[12], 12)
			}, true},
		{"monolithic", sessiontest.Package{Context: 24, Window: 10, Batch: 4, Rotate: true, PrefillGives: "hidden"}, 14,
			"prefill@0 prefill@4 infer@8 infer@9 prefill_rotate@10 infer_rotate@13", func(m *sessiontest.Simulator, tokens []int32) {
				oneByOne(m, tokens[:10])
				m.RotateBatch(tokens[10:14], 10)
			}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, calls := openSynthetic(t, &c.s)
			s, err := m.NewSession()
			if err != nil {
				t.Fatal(err)
			}
			tokens := sessiontest.Tokens(c.n + 3)
			sim := sessiontest.NewSimulator(&c.s)
			c.simulate(sim, tokens[:c.n])
			want := sim.Append(tokens[c.n-1], c.n-1)
			true_ := c.s.Reference(tokens)
			visits := 0
			err = s.Each(t.Context(), tokens[:c.n], session.AnemllSequence, func(pos int, logits []float32) error {
				visits++
				if pos != c.n-1 {
					t.Errorf("logits at %d", pos)
				}
				if d := farthest(logits, want); !(d <= 1e-4) {
					t.Errorf("logits differ from ANEMLL's sequence in float64 by %v", d)
				}
				if d := farthest(logits, true_[pos]); (d > 0.02) != c.wrong {
					t.Errorf("logits differ from the definition by %v", d)
				}
				return nil
			})
			if err != nil || visits != 1 {
				t.Fatalf("%d visits, %v", visits, err)
			}
			if got := calls(); got != c.calls {
				t.Errorf("calls %s, want %s", got, c.calls)
			}
			// What follows sees the states as ANEMLL has them.
			for i := c.n; i < c.n+3; i++ {
				logits, err := s.Feed(t.Context(), tokens[i:i+1])
				if err != nil {
					t.Fatal(err)
				}
				if d := farthest(logits, sim.Append(tokens[i], i)); !(d <= 1e-4) {
					t.Errorf("afterwards, at %d: logits differ by %v", i, d)
				}
			}
			// And our own sequence gives the definition.
			s.Reset()
			logits, err := s.Feed(t.Context(), tokens)
			if err != nil {
				t.Fatal(err)
			}
			if d := farthest(logits, true_[c.n+2]); !(d <= 1e-4) {
				t.Errorf("ours: logits differ by %v", d)
			}
		})
	}
}

func oneByOne(m *sessiontest.Simulator, tokens []int32) {
	for i, t := range tokens {
		m.Append(t, i)
	}
}

// A rotated cache goes back only as long as it was not rotated.
func TestRewindRotated(t *testing.T) {
	syn := sessiontest.Package{Context: 24, Window: 8, Batch: 4, Chunks: 2, Rotate: true}
	m, _ := openSynthetic(t, &syn)
	s, err := m.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	tokens := sessiontest.Tokens(20)
	want := syn.Reference(tokens)
	feed := func(from, to int) {
		t.Helper()
		if _, err := s.Feed(t.Context(), tokens[from:to]); err != nil {
			t.Fatal(err)
		}
		holdScores(t, s, false, want[to-1])
	}
	feed(0, 8)
	if !s.CanRewind(3) {
		t.Error("it cannot go back before it was rotated")
	}
	if err := s.Rewind(3); err != nil {
		t.Fatal(err)
	}
	feed(3, 9) // over the window
	for _, pos := range []int{8, 5, 1} {
		if err := s.Rewind(pos); s.CanRewind(pos) || err == nil || !strings.Contains(err.Error(), "cannot be rewound") {
			t.Errorf("rewind to %d: %v", pos, err)
		}
	}
	feed(9, 20)
	if err := s.Rewind(0); err != nil {
		t.Fatal(err)
	}
	if s.Pos() != 0 || !s.CanRewind(0) {
		t.Errorf("at %d", s.Pos())
	}
	feed(0, 6)
	if !s.CanRewind(5) {
		t.Error("from the start it is as new")
	}
	feed(6, 20)
	s.Reset()
	feed(0, 7)
}

// A failed call of a rotated cache leaves no one knows what.
func TestFailureRotated(t *testing.T) {
	syn := sessiontest.Package{Context: 24, Window: 8, Batch: 4, Chunks: 2, Rotate: true}
	dir := syn.Write(t)
	p, err := anemll.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	boom := errors.New("boom")
	fail := ""
	n := 0
	m, err := session.Load(p, func(c *coreml.Model) (runner.Model, error) {
		e, err := engine.New(c, engine.Options{})
		n++
		if n == 3 { // the second chunk
			return failing{e, func(call string) error {
				if call == fail {
					return boom
				}
				return nil
			}}, err
		}
		return e, err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	tokens := sessiontest.Tokens(20)
	want := syn.Reference(tokens)
	for _, c := range []struct {
		call  string
		stale bool
	}{{"infer@5", false}, {"infer_rotate@9", true}} {
		s, err := m.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		fail = c.call
		if err := s.Each(t.Context(), tokens[:12], session.InferOnly, func(int, []float32) error { return nil }); !errors.Is(err, boom) {
			t.Fatalf("%s: %v", c.call, err)
		}
		fail = ""
		at := s.Pos()
		_, err = s.Feed(t.Context(), tokens[at:12])
		if errors.Is(err, session.ErrStale) != c.stale {
			t.Errorf("%s: afterwards %v", c.call, err)
		}
		if c.stale {
			s.Reset()
			if _, err = s.Feed(t.Context(), tokens[:12]); err != nil {
				t.Fatal(err)
			}
		}
		holdScores(t, s, false, want[11])
	}
	// The repetition in ANEMLL's sequence, too: the token is in the cache, and
	// not among the session's tokens.
	s, err := m.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	seen := 0
	s.SetTap(func(part, pos, rows int, _ []float32) {
		if part == 2 && pos == 8 {
			if seen++; seen == 1 {
				cancel() // before the second time
			}
		}
	})
	err = s.Each(ctx, tokens[:9], session.AnemllSequence, func(int, []float32) error { return nil })
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled: %v", err)
	}
	if _, err := s.Feed(t.Context(), tokens[8:10]); !errors.Is(err, session.ErrStale) {
		t.Errorf("after a cancelled repetition: %v", err)
	}
}

type failing struct {
	runner.Model
	fail func(call string) error
}

func (f failing) Predict(ctx context.Context, fn string, in, out runner.Values, st runner.State) error {
	if err := f.Model.Predict(ctx, fn, in, out, st); err != nil {
		return err
	}
	return f.fail(fmt.Sprintf("%s@%d", fn, in[anemll.CurrentPos].Int[0]))
}

// Greedy generation over a full context, of packages with and without logits
// and of rotated caches: every token is the best by the definition, given the
// tokens that the context holds.
func TestGenerateEveryKind(t *testing.T) {
	for _, c := range []struct {
		name string
		s    sessiontest.Package
	}{
		{"logits", sessiontest.Package{Context: 16, Batch: 4, Chunks: 2}},
		{"argmax", sessiontest.Package{Context: 16, Batch: 4, Chunks: 2, Argmax: true}},
		{"rotated", sessiontest.Package{Context: 16, Window: 6, Batch: 4, Chunks: 2, Rotate: true, Split: true}},
		{"rotated, monolithic, argmax", sessiontest.Package{Context: 16, Window: 6, Batch: 4, Rotate: true, Argmax: true, PrefillGives: "hidden"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, _ := openSynthetic(t, &c.s)
			s, err := m.NewSession()
			if err != nil {
				t.Fatal(err)
			}
			for round := range 2 { // the second prompt departs from the context
				prompt := sessiontest.Tokens(9 + round)
				seq := slices.Clone(prompt) // what the context should hold
				tokens, shifts := 0, 0
				for e, err := range s.Generate(t.Context(), prompt, session.Options{MaxTokens: 24, Pinned: 3}) {
					if err != nil {
						t.Fatal(err)
					}
					switch e.Kind {
					case session.Token:
						l := c.s.Reference(seq)
						want := l[len(l)-1]
						if w := slices.Index(want, slices.Max(want)); int(e.Token) != w {
							t.Fatalf("token %d is %d, want %d", tokens, e.Token, w)
						}
						seq = append(seq, e.Token)
						tokens++
					case session.Shift:
						seq = append(seq[:3:3], seq[len(seq)-(e.Kept-3):]...)
						shifts++
					}
				}
				if tokens != 24 || shifts < 2 {
					t.Errorf("%d tokens, %d shifts", tokens, shifts)
				}
			}
		})
	}
}

func TestArgmaxDoesNotSample(t *testing.T) {
	m, calls := openSynthetic(t, &sessiontest.Package{Context: 16, Batch: 4, Chunks: 1, Argmax: true})
	s, err := m.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Best(); err == nil {
		t.Error("a best token before any was fed")
	}
	for _, o := range []session.Sampling{{Temperature: 0.7}, {RepetitionPenalty: 1.1}} {
		for _, err := range s.Generate(t.Context(), sessiontest.Tokens(3), session.Options{Sampling: o}) {
			if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "argmax_in_model") || !strings.Contains(err.Error(), "temperature 0") {
				t.Errorf("%+v: %v", o, err)
			}
		}
	}
	if got := calls(); got != "" {
		t.Errorf("it ran %s first", got)
	}
}

// Of two forms the compiled one is taken, unless it cannot be read.
func TestBothForms(t *testing.T) {
	syn := sessiontest.Package{Context: 16, Batch: 4, Chunks: 2, Forms: []string{".mlpackage", ".mlmodelc"}}
	dir := syn.Write(t)
	tokens := sessiontest.Tokens(7)
	want := syn.Reference(tokens)
	hold := func(problems int) *anemll.Package {
		t.Helper()
		m, _, err := loadFolder(t, dir, 2)
		if err != nil {
			t.Fatal(err)
		}
		s, err := m.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Feed(t.Context(), tokens); err != nil {
			t.Fatal(err)
		}
		holdScores(t, s, false, want[6])
		if len(m.Package().Problems) != problems {
			t.Errorf("problems %q, want %d", m.Package().Problems, problems)
		}
		return m.Package()
	}
	for _, part := range hold(0).Parts() {
		if filepath.Ext(part.Path) != ".mlmodelc" {
			t.Errorf("%s was taken", part.Path)
		}
	}
	// ANEMLL's generator of meta.yaml only looks whether there is a folder.
	broken := filepath.Join(dir, "syn_lm_head.mlmodelc")
	if err := errors.Join(os.RemoveAll(broken), os.Mkdir(broken, 0o777)); err != nil {
		t.Fatal(err)
	}
	p := hold(1)
	if filepath.Ext(p.Head.Path) != ".mlpackage" || !strings.Contains(p.Problems[0], "syn_lm_head.mlmodelc cannot be read, syn_lm_head.mlpackage is taken") {
		t.Errorf("%s was taken, problems %q", p.Head.Path, p.Problems)
	}
	if err := os.RemoveAll(filepath.Join(dir, "syn_lm_head.mlpackage")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := loadFolder(t, dir, 2); err == nil || !strings.Contains(err.Error(), "syn_lm_head.mlmodelc") {
		t.Errorf("nothing but a broken bundle: %v", err)
	}
}

func TestNoAllocationsInAnyKind(t *testing.T) {
	for _, c := range []struct {
		name string
		s    sessiontest.Package
	}{
		{"update mask", sessiontest.Package{Context: 512, Batch: 4, Chunks: 2, UpdateMask: true}},
		{"argmax", sessiontest.Package{Context: 512, Batch: 4, Chunks: 2, Argmax: true}},
		{"rotated", sessiontest.Package{Context: 512, Window: 8, Batch: 4, Chunks: 2, Rotate: true}},
		{"monolithic", sessiontest.Package{Context: 512, Batch: 4, PrefillGives: "all", LastToken: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := anemll.Open(c.s.Write(t))
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			m, err := session.Load(p, loadEngine)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			s, err := m.NewSession()
			if err != nil {
				t.Fatal(err)
			}
			ctx := t.Context()
			for _, n := range []int{1, 4, 5} {
				tokens := sessiontest.Tokens(n)
				feed := func() {
					if _, err := s.Feed(ctx, tokens); err != nil {
						t.Fatal(err)
					}
					if _, err := s.Best(); err != nil {
						t.Fatal(err)
					}
				}
				for range 10 { // over the window
					feed()
				}
				if a := testing.AllocsPerRun(20, feed); a != 0 {
					t.Errorf("%v allocations for %d tokens", a, n)
				}
			}
		})
	}
}

// Sessions of one model run at the same time.
func TestParallelRotatedSessions(t *testing.T) {
	syn := sessiontest.Package{Context: 24, Window: 8, Batch: 4, Chunks: 2, Rotate: true, Split: true}
	m, _ := openSynthetic(t, &syn)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			tokens := sessiontest.Tokens(12 + i)
			want := syn.Reference(tokens)
			s, err := m.NewSession()
			if err != nil {
				t.Error(err)
				return
			}
			for range 3 {
				s.Reset()
				logits, err := s.Feed(t.Context(), tokens)
				if err != nil {
					t.Error(err)
				} else if d := farthest(logits, want[len(want)-1]); !(d <= 1e-4) {
					t.Errorf("session %d: logits differ by %v", i, d)
				}
			}
		})
	}
	wg.Wait()
}
