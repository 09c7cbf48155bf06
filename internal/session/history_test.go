package session

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

var saving = toyOptions{ctx: 32, batch: 4, lastToken: true, recurrent: true, saves: true}

// What is fed when a prompt departs from what a recurrent state has seen. The
// toy refuses every position that is not the next one.
func TestGoesOnFromSnapshots(t *testing.T) {
	prompt := tokens(9) // and an answer of 3, of which 2 are fed: 11 in the context
	for _, c := range []struct {
		name   string
		limits Snapshots
		pinned int
		next   func(done []int32) []int32 // of the tokens in the context
		calls  string
		reused int

		remainders []int
	}{
		{"goes on", DefaultSnapshots(), 0, func(d []int32) []int32 { return append(d, 1, 2) }, "I11 I12 H", 11, nil},
		{"the same", DefaultSnapshots(), 0, func(d []int32) []int32 { return d }, "", 11, nil},
		{"another answer", DefaultSnapshots(), 0, func(d []int32) []int32 { return append(d[:9], d[9]+1, 1, 2, 3, 4) }, "P9 I13 H", 9, nil},
		{"the prompt again", DefaultSnapshots(), 0, func(d []int32) []int32 { return d[:9] }, "", 9, nil},
		{"the prompt but for its last token", DefaultSnapshots(), 0, func(d []int32) []int32 { return d[:8] }, "P0 P4 H", 0, nil},
		{"the same pinned", DefaultSnapshots(), 5, func(d []int32) []int32 { return append(d[:6], d[6]+1, 3, 4, 5) }, "P4 I8 I9 H", 4, nil},
		{"after each batch", Snapshots{Max: 8, Bytes: 1 << 20, Every: 1}, 0, func(d []int32) []int32 { return d[:8] }, "P4 H", 4, nil},
		{"after every second batch", Snapshots{Max: 8, Bytes: 1 << 20, Every: 8}, 0, func(d []int32) []int32 { return append(d[:8], d[8]+1) }, "I8 H", 8, nil},
		{"only the latest", Snapshots{Max: 1, Bytes: 1 << 20}, 0, func(d []int32) []int32 { return d[:9] }, "P0 P4 I8 H", 0, nil},
		{"none", Snapshots{}, 4, func(d []int32) []int32 { return d[:9] }, "P0 P4 I8 H", 0, nil},
		{"too little memory", Snapshots{Max: 8, Bytes: 100}, 4, func(d []int32) []int32 { return d[:9] }, "P0 P4 I8 H", 0, nil},
		{"goes on, by twos", DefaultSnapshots(), 0, func(d []int32) []int32 { return append(d, 1, 2, 3) }, "P2@11 I13 H", 11, []int{2}},
		{"another answer, by twos", DefaultSnapshots(), 0, func(d []int32) []int32 { return append(d[:9], d[9]+1, 1, 2, 3, 4, 5, 6) }, "P9 P2@13 I15 H", 9, []int{2}},
		{"the prompt but for two tokens, by twos", DefaultSnapshots(), 0, func(d []int32) []int32 { return d[:7] }, "P0 P2@4 I6 H", 0, []int{2}},
		{"after each call, by twos", Snapshots{Max: 8, Bytes: 1 << 20, Every: 1}, 0, func(d []int32) []int32 { return append(d[:7], 1, 2) }, "P4 I8 H", 4, []int{2}},
	} {
		for _, perChunk := range []bool{false, true} {
			o := saving
			o.remainders = c.remainders
			o.chunkStates = perChunk
			y := newToy(t, o)
			s := y.session()
			s.SetSnapshots(c.limits)
			opt := Options{MaxTokens: 3, Pinned: c.pinned}
			if tr := generate(s, t.Context(), prompt, opt); tr.err != nil {
				t.Fatal(tr.err)
			}
			next := c.next(slices.Clone(s.Tokens()))
			for i := range next {
				next[i] %= toyVocab
			}
			y.calls()
			opt.MaxTokens = 1
			tr := generate(s, t.Context(), next, opt)
			if tr.err != nil {
				t.Fatal(tr.err)
			}
			if got := strings.Join(y.calls(), " "); got != c.calls || tr.end.Stats.Reused != c.reused {
				t.Errorf("%s: calls %q, %d reused, want %q, %d", c.name, got, tr.end.Stats.Reused, c.calls, c.reused)
			}
			if want := greedy(next, 1); !slices.Equal(tr.tokens, want) {
				t.Errorf("%s: token %v, want %v", c.name, tr.tokens, want)
			}
		}
	}
}

// A conversation whose template leaves out the thinking of earlier turns: each
// prompt departs from what was generated before its answer, and where the answer
// was opened.
func TestThinkingIsLeftOut(t *testing.T) {
	for _, c := range []struct {
		turn  func(n int) int // of a prompt of n tokens, the last 3 of which open the answer
		calls []string
	}{
		{func(n int) int { return n - 3 }, []string{"P0 P4 P8 I12 I13 I14 H", "P12 P16 P20 I24 I25 H", "P20 P24 P28 P32 I36 H"}},
		// All but the last 8.
		{func(int) int { return 0 }, []string{"P0 P4 P8 I12 I13 I14 H", "P4 P8 P12 P16 P20 I24 I25 H", "P16 P20 P24 P28 P32 I36 H"}},
	} {
		o := saving
		o.ctx = 64
		y := newToy(t, o)
		s := y.session()
		history := tokens(12)
		for i, want := range c.calls {
			prompt := append(slices.Clone(history), 7, 8, 9)
			tr := generate(s, t.Context(), prompt, Options{MaxTokens: 1, Turn: c.turn(len(prompt))})
			if got := strings.Join(y.calls(), " "); tr.err != nil || got != want || !slices.Equal(tr.tokens, greedy(prompt, 1)) {
				t.Errorf("turn %d: %v, %v by %s, want %s", i, tr.tokens, tr.err, got, want)
			}
			// What was thought: in the context, but not in the history.
			if _, err := s.Feed(t.Context(), []int32{1, 2, 3, 4, 5}); err != nil {
				t.Fatal(err)
			}
			y.calls()
			history = append(history, 7, 0, 6, 5, 4, 3, 2, 1, 0, 1, 2)
		}
	}
}

// Thousands of edits, failures and cancellations: the tokens are those of the
// definition, no position is fed twice or out of order, and memory is bounded.
func TestHistoriesByDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	boom := errors.New("boom")
	for round := range 20 {
		o := saving
		o.recurrent = round%4 != 3
		o.lastToken = round%3 != 2
		o.chunkStates = round%2 == 1
		if round%5 > 2 {
			o.remainders = []int{2}
		}
		y := newToy(t, o)
		s := y.session()
		limits := Snapshots{Max: r.IntN(6), Bytes: int64(r.IntN(3000)), Every: r.IntN(9)}
		s.SetSnapshots(limits)
		random := func(n int) []int32 {
			out := make([]int32, n)
			for i := range out {
				out[i] = int32(r.IntN(toyVocab))
			}
			return out
		}
		history := random(5)
		branches := [][]int32{history}
		failures := 0
		for range 200 {
			switch r.IntN(4) {
			case 0:
				history = history[:1+r.IntN(len(history))]
			case 1:
				history[r.IntN(len(history))] = int32(r.IntN(toyVocab))
			case 2:
				from := branches[r.IntN(len(branches))]
				history = append(slices.Clone(from[:1+r.IntN(len(from))]), random(r.IntN(5))...)
			default:
				history = append(history, random(1+r.IntN(9))...)
			}
			history = slices.Clone(history[:min(len(history), o.ctx-6)])
			branches = append(branches, slices.Clone(history))
			n := 1 + r.IntN(5)

			y.fail = nil
			ctx, cancel := context.WithCancel(t.Context())
			if r.IntN(4) == 0 { // a call fails, or the user has enough
				left, stops := r.IntN(12), r.IntN(2) == 0
				y.fail = func(string) error {
					if left--; left >= 0 {
						return nil
					}
					if stops {
						cancel()
						return ctx.Err()
					}
					return boom
				}
			}
			y.failWrite = nil
			if r.IntN(10) == 0 {
				y.failWrite = boom // going on without the snapshot
			}
			tr := generate(s, ctx, history, Options{MaxTokens: n, Pinned: r.IntN(9)})
			cancel()
			want := greedy(history, n)
			switch {
			case tr.err == nil && !slices.Equal(tr.tokens, want):
				t.Fatalf("round %d: after %v: %v, want %v", round, history, tr.tokens, want)
			case tr.err != nil && y.fail == nil:
				t.Fatalf("round %d: %v", round, tr.err)
			case tr.err != nil && (!errors.Is(tr.err, boom) && !errors.Is(tr.err, context.Canceled) || !slices.Equal(tr.tokens, want[:len(tr.tokens)])):
				t.Fatalf("round %d: %v, %v; want the beginning of %v", round, tr.err, tr.tokens, want)
			case tr.err != nil:
				failures++
			}
			count, bytes := s.SnapshotMemory()
			sum := int64(0)
			for _, x := range s.saved.list {
				sum += x.bytes
			}
			if count > limits.Max || bytes > limits.Bytes || bytes != sum {
				t.Fatalf("round %d: %d snapshots of %d bytes (%d added up), limits %+v", round, count, bytes, sum, limits)
			}
			if !o.recurrent && count > 0 {
				t.Fatalf("round %d: snapshots of a plain cache", round)
			}
		}
		if failures == 0 {
			t.Errorf("round %d: nothing failed", round)
		}
	}
}

// A turn that failed has lost the state; the next one comes back to a
// snapshot.
func TestSnapshotAfterFailure(t *testing.T) {
	y := newToy(t, saving)
	s := y.session()
	boom := errors.New("boom")
	y.fail = func(call string) error {
		if call == "I11/1" {
			return boom
		}
		return nil
	}
	prompt := tokens(10)
	if tr := generate(s, t.Context(), prompt, Options{MaxTokens: 5}); !errors.Is(tr.err, boom) || len(tr.tokens) != 2 {
		t.Fatalf("%v, %v", tr.tokens, tr.err)
	}
	if _, err := s.Feed(t.Context(), tokens(1)); !errors.Is(err, ErrStale) {
		t.Errorf("Feed: %v", err)
	}
	if err := s.Snapshot(); !errors.Is(err, ErrStale) {
		t.Errorf("Snapshot: %v", err)
	}
	y.fail = nil
	y.calls()
	next := append(slices.Clone(prompt), 1, 2)
	tr := generate(s, t.Context(), next, Options{MaxTokens: 1})
	if got := strings.Join(y.calls(), " "); tr.err != nil || got != "I10 I11 H" || !slices.Equal(tr.tokens, greedy(next, 1)) {
		t.Errorf("%v, %v by %s", tr.tokens, tr.err, got)
	}
	// Rewind, too.
	if err := s.Rewind(10); err != nil || !slices.Equal(s.Logits(), toyLogits(prompt)) {
		t.Errorf("back to the prompt: %v, logits %v", err, s.Logits())
	}
	if err := s.Rewind(7); err == nil || !strings.Contains(err.Error(), "cannot be rewound") {
		t.Errorf("to where there is no snapshot: %v", err)
	}
	// States that cannot be written: the session is empty, not half of two.
	feedAll := func(ids []int32) {
		t.Helper()
		if got, err := s.Feed(t.Context(), ids); err != nil || !slices.Equal(got, toyLogits(s.Tokens())) {
			t.Errorf("%v, %v", got, err)
		}
	}
	feedAll([]int32{3})
	n, _ := s.SnapshotMemory()
	y.failWrite = boom
	if err := s.Rewind(10); !errors.Is(err, boom) || s.Pos() != 0 {
		t.Errorf("%v, at %d", err, s.Pos())
	}
	if now, _ := s.SnapshotMemory(); now != n-1 {
		t.Errorf("%d of %d snapshots remain", now, n)
	}
	feedAll(prompt)
	if tr := generate(s, t.Context(), next, Options{MaxTokens: 1}); tr.err != nil || !slices.Equal(tr.tokens, greedy(next, 1)) {
		t.Errorf("%v, %v", tr.tokens, tr.err)
	}
	// States that cannot be read.
	o := saving
	o.saves = false
	s = newToy(t, o).session()
	feedAll(prompt)
	if err := s.Snapshot(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Snapshot: %v", err)
	}
	if n, bytes := s.SnapshotMemory(); n != 0 || bytes != 0 {
		t.Errorf("%d snapshots of %d bytes", n, bytes)
	}
}
