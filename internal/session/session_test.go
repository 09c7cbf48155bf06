package session

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"anemone/coreml"
	"anemone/internal/anemll"
	"anemone/internal/runner"
	"anemone/mil"
)

func tokens(n int) []int32 {
	t := make([]int32, n)
	for i := range t {
		t[i] = int32((i*5 + i*i*3) % toyVocab)
	}
	return t
}

// wantCalls writes down the call sequence from position pos on: batches, calls
// of the sizes that follow (the largest first), single tokens, then the head.
func wantCalls(pos, n, ctx int, lastToken bool, sizes []int) []string {
	var calls []string
	for i, size := range append(sizes, 1) {
		for n >= size && pos+size <= ctx && (lastToken || n > size || size == 1) {
			switch {
			case size == 1:
				calls = append(calls, fmt.Sprintf("I%d", pos))
			case i == 0:
				calls = append(calls, fmt.Sprintf("P%d", pos))
			default:
				calls = append(calls, fmt.Sprintf("P%d@%d", size, pos))
			}
			pos, n = pos+size, n-size
		}
	}
	return append(calls, "H")
}

func TestFeedSequenceByHand(t *testing.T) {
	for _, c := range []struct {
		name string
		opt  toyOptions
		feed []int
		want string
	}{
		{"one token", toyOptions{ctx: 16, batch: 4, lastToken: true}, []int{1}, "I0 H"},
		{"a batch", toyOptions{ctx: 16, batch: 4, lastToken: true}, []int{4}, "P0 H"},
		{"a batch, ANEMLL's output", toyOptions{ctx: 16, batch: 4}, []int{4}, "I0 I1 I2 I3 H"},
		{"a batch and one", toyOptions{ctx: 16, batch: 4}, []int{5}, "P0 I4 H"},
		{"two batches, ANEMLL's output", toyOptions{ctx: 16, batch: 4}, []int{8}, "P0 I4 I5 I6 I7 H"},
		{"two batches and two", toyOptions{ctx: 16, batch: 4, lastToken: true}, []int{10}, "P0 P4 I8 I9 H"},
		{"no prefill", toyOptions{ctx: 16, batch: 4, noPrefill: true}, []int{5}, "I0 I1 I2 I3 I4 H"},
		{"a batch must not pass the end", toyOptions{ctx: 10, batch: 4, lastToken: true}, []int{10}, "P0 P4 I8 I9 H"},
		{"a batch may touch the end", toyOptions{ctx: 8, batch: 4, lastToken: true}, []int{8}, "P0 P4 H"},
		{"from an odd position", toyOptions{ctx: 16, batch: 4, lastToken: true}, []int{3, 5, 4}, "I0 I1 I2 H P3 I7 H P8 H"},
		{"from an odd position to the end", toyOptions{ctx: 10, batch: 4, lastToken: true}, []int{3, 4, 3}, "I0 I1 I2 H P3 H I7 I8 I9 H"},
		{"recurrent", toyOptions{ctx: 16, batch: 4, lastToken: true, recurrent: true}, []int{4, 1, 6}, "P0 H I4 H P5 I9 I10 H"},
		{"recurrent, ANEMLL's output", toyOptions{ctx: 16, batch: 4, recurrent: true}, []int{8, 5}, "P0 I4 I5 I6 I7 H P8 I12 H"},
		{"a rest", toyOptions{ctx: 32, batch: 12, lastToken: true, recurrent: true, remainders: []int{6, 4, 2}}, []int{12 + 11}, "P0 P6@12 P4@18 I22 H"},
		{"nothing but a rest", toyOptions{ctx: 32, batch: 12, lastToken: true, recurrent: true, remainders: []int{2, 6, 4}}, []int{11, 4, 5}, "P6@0 P4@6 I10 H P4@11 H P4@15 I19 H"},
		{"a rest that ends in a call", toyOptions{ctx: 32, batch: 12, lastToken: true, remainders: []int{6, 3}}, []int{12 + 9}, "P0 P6@12 P3@18 H"},
		{"the same, ANEMLL's output", toyOptions{ctx: 32, batch: 12, remainders: []int{6, 3}}, []int{12 + 9, 6, 3}, "P0 P6@12 I18 I19 I20 H P3@21 I24 I25 I26 H I27 I28 I29 H"},
		{"a batch, ANEMLL's output, and its parts", toyOptions{ctx: 32, batch: 12, remainders: []int{6, 3}}, []int{12}, "P6@0 P3@6 I9 I10 I11 H"},
		{"at the end of the context", toyOptions{ctx: 19, batch: 12, lastToken: true, recurrent: true, remainders: []int{6, 4, 2}}, []int{9, 10}, "P6@0 P2@6 I8 H P6@9 P4@15 H"},
		{"no prefill, no parts", toyOptions{ctx: 16, batch: 4, noPrefill: true, remainders: []int{2}}, []int{3}, "I0 I1 I2 H"},
	} {
		t.Run(c.name, func(t *testing.T) {
			y := newToy(t, c.opt)
			s := y.session()
			all := tokens(c.opt.ctx)
			at := 0
			for _, n := range c.feed {
				got, err := s.Feed(t.Context(), all[at:at+n])
				if err != nil {
					t.Fatal(err)
				}
				at += n
				if want := toyLogits(all[:at]); !slices.Equal(got, want) {
					t.Errorf("logits after %d tokens: %v, want %v", at, got, want)
				}
				if s.Pos() != at || !slices.Equal(s.Tokens(), all[:at]) || s.Logits() == nil {
					t.Errorf("after %d tokens: position %d, tokens %v", at, s.Pos(), s.Tokens())
				}
			}
			if got := strings.Join(y.calls(), " "); got != c.want {
				t.Errorf("calls %s, want %s", got, c.want)
			}
		})
	}
}

// Every prompt length of 1 to 2 batches + 1, at every way to start, gives the
// logits of the definition; the models check masks and positions.
func TestFeedEveryLength(t *testing.T) {
	for _, opt := range []toyOptions{
		{ctx: 11, batch: 4, lastToken: true},
		{ctx: 11, batch: 4},
		{ctx: 9, batch: 4, noPrefill: true},
		{ctx: 12, batch: 4, lastToken: true, recurrent: true},
		{ctx: 12, batch: 5, lastToken: true, chunkStates: true},
		{ctx: 12, batch: 3, lastToken: true, perLayer: true},
		{ctx: 12, batch: 4, batchOutput: true},
		{ctx: 12, batch: 4, lastToken: true, unshapedOutputs: true},
		{ctx: 12, batch: 4, unshapedOutputs: true},
		{ctx: 6, batch: 1, lastToken: true},
		{ctx: 6, batch: 6, lastToken: true},
		{ctx: 27, batch: 12, lastToken: true, recurrent: true, remainders: []int{6, 4, 3, 2}},
		{ctx: 27, batch: 12, chunkStates: true, recurrent: true, remainders: []int{3, 2}},
		{ctx: 27, batch: 12, lastToken: true, perLayer: true, unshapedOutputs: true, remainders: []int{4}},
		{ctx: 27, batch: 12, batchOutput: true, remainders: []int{4}},
	} {
		for start := range opt.batch + 1 {
			for n := 1; n <= 2*opt.batch+1 && start+n <= opt.ctx; n++ {
				y := newToy(t, opt)
				s := y.session()
				all := tokens(start + n)
				if start > 0 {
					if _, err := s.Feed(t.Context(), all[:start]); err != nil {
						t.Fatal(err)
					}
				}
				y.calls()
				got, err := s.Feed(t.Context(), all[start:])
				if err != nil {
					t.Fatalf("%+v, %d tokens at %d: %v", opt, n, start, err)
				}
				if want := toyLogits(all); !slices.Equal(got, want) {
					t.Errorf("%+v, %d tokens at %d: logits %v, want %v", opt, n, start, got, want)
				}
				var sizes []int
				if !opt.noPrefill && opt.batch > 1 {
					sizes = append([]int{opt.batch}, opt.remainders...)
				}
				want := wantCalls(start, n, opt.ctx, opt.lastToken && !opt.batchOutput, sizes)
				if got := y.calls(); !slices.Equal(got, want) {
					t.Errorf("%+v, %d tokens at %d: calls %v, want %v", opt, n, start, got, want)
				}
			}
		}
	}
}

func TestEach(t *testing.T) {
	for _, c := range []struct {
		name      string
		opt       toyOptions
		n         int
		mode      Mode
		positions []int
		calls     string
	}{
		{"infer only", toyOptions{ctx: 16, batch: 4, lastToken: true}, 5, InferOnly, []int{0, 1, 2, 3, 4}, "I0 H I1 H I2 H I3 H I4 H"},
		{"contract", toyOptions{ctx: 16, batch: 4, lastToken: true}, 10, Contract, []int{3, 7, 8, 9}, "P0 H P4 H I8 H I9 H"},
		{"contract, on the boundary", toyOptions{ctx: 16, batch: 4, lastToken: true}, 8, Contract, []int{3, 7}, "P0 H P4 H"},
		{"contract, ANEMLL's output", toyOptions{ctx: 16, batch: 4}, 9, Contract, []int{8}, "P0 P4 I8 H"},
		{"contract, ANEMLL's output, on the boundary", toyOptions{ctx: 16, batch: 4}, 8, Contract, nil, "P0 P4"},
		{"contract, no prefill", toyOptions{ctx: 16, batch: 4, noPrefill: true}, 2, Contract, []int{0, 1}, "I0 H I1 H"},
		{"contract to the end", toyOptions{ctx: 6, batch: 4, lastToken: true}, 6, Contract, []int{3, 4, 5}, "P0 H I4 H I5 H"},
	} {
		t.Run(c.name, func(t *testing.T) {
			y := newToy(t, c.opt)
			s := y.session()
			all := tokens(c.n)
			var positions []int
			err := s.Each(t.Context(), all, c.mode, func(pos int, logits []float32) error {
				positions = append(positions, pos)
				if want := toyLogits(all[:pos+1]); !slices.Equal(logits, want) {
					t.Errorf("position %d: %v, want %v", pos, logits, want)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(positions, c.positions) {
				t.Errorf("positions %v, want %v", positions, c.positions)
			}
			if got := strings.Join(y.calls(), " "); got != c.calls {
				t.Errorf("calls %s, want %s", got, c.calls)
			}
		})
	}
	stop := errors.New("enough")
	y := newToy(t, toyOptions{ctx: 16, batch: 4})
	if err := y.session().Each(t.Context(), tokens(3), InferOnly, func(int, []float32) error { return stop }); err != stop {
		t.Errorf("error of visit: %v", err)
	}
}

func TestFeedRefuses(t *testing.T) {
	y := newToy(t, toyOptions{ctx: 8, batch: 4, lastToken: true})
	s := y.session()
	if _, err := s.Feed(t.Context(), tokens(6)); err != nil {
		t.Fatal(err)
	}
	y.calls()
	for want, bad := range map[string][]int32{
		"3 tokens at position 6: the context is full: it has 8 positions": {1, 2, 3},
		"no tokens":                           {},
		"token 1 is 11, wanted 0 to 10":       {1, 11},
		"token 0 is -1, wanted 0 to 10":       {-1},
		"4 tokens at position 6: the context": {1, 2, 3, 4},
	} {
		_, err := s.Feed(t.Context(), bad)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Feed(%v): %v, want %q", bad, err, want)
		}
		if full := strings.Contains(want, "context"); full != errors.Is(err, ErrContextFull) {
			t.Errorf("Feed(%v): errors.Is(ErrContextFull) = %v", bad, !full)
		}
	}
	if s.Pos() != 6 || len(y.calls()) != 0 || s.Logits() == nil {
		t.Error("refused tokens left a trace")
	}
	if got, err := s.Feed(t.Context(), tokens(8)[6:]); err != nil || !slices.Equal(got, toyLogits(tokens(8))) {
		t.Errorf("after refusals: %v, %v", got, err)
	}
}

func TestRewindAndReset(t *testing.T) {
	y := newToy(t, toyOptions{ctx: 16, batch: 4, lastToken: true})
	s := y.session()
	if _, err := s.Feed(t.Context(), tokens(12)); err != nil {
		t.Fatal(err)
	}
	if err := s.Rewind(5); err != nil {
		t.Fatal(err)
	}
	if s.Logits() != nil || s.Pos() != 5 {
		t.Error("logits are still there after a rewind")
	}
	all := append(slices.Clone(tokens(5)), 9, 8, 7)
	if got, err := s.Feed(t.Context(), all[5:]); err != nil || !slices.Equal(got, toyLogits(all)) {
		t.Errorf("after a rewind: %v, %v, want %v", got, err, toyLogits(all))
	}
	if err := s.Rewind(9); err == nil {
		t.Error("rewound to the future")
	}
	s.Reset()
	if got, err := s.Feed(t.Context(), tokens(7)); err != nil || !slices.Equal(got, toyLogits(tokens(7))) {
		t.Errorf("after a reset: %v, %v", got, err)
	}

	y = newToy(t, toyOptions{ctx: 16, batch: 4, lastToken: true, recurrent: true})
	s = y.session()
	if _, err := s.Feed(t.Context(), tokens(6)); err != nil {
		t.Fatal(err)
	}
	if err := s.Rewind(5); err == nil || !strings.Contains(err.Error(), "cannot be rewound") {
		t.Errorf("recurrent rewind: %v", err)
	}
	if err := s.Rewind(6); err != nil {
		t.Errorf("rewind to where it is: %v", err)
	}
	s.Reset()
	if got, err := s.Feed(t.Context(), tokens(3)); err != nil || !slices.Equal(got, toyLogits(tokens(3))) {
		t.Errorf("recurrent after a reset: %v, %v", got, err)
	}
}

// A call that fails leaves a plain cache usable; a recurrent state is lost.
func TestFailure(t *testing.T) {
	boom := errors.New("boom")
	for _, recurrent := range []bool{false, true} {
		y := newToy(t, toyOptions{ctx: 16, batch: 4, lastToken: true, recurrent: recurrent})
		s := y.session()
		y.fail = func(call string) error {
			if call == "P4/1" {
				return boom
			}
			return nil
		}
		_, err := s.Feed(t.Context(), tokens(12))
		if !errors.Is(err, boom) || !strings.Contains(err.Error(), "position 4: toy_FFN_PF_chunk_02of02: boom") {
			t.Fatalf("error %v", err)
		}
		if s.Pos() != 4 || s.Logits() != nil {
			t.Errorf("position %d after the failure, want 4", s.Pos())
		}
		y.fail = nil
		got, err := s.Feed(t.Context(), tokens(12)[4:])
		if recurrent {
			if !errors.Is(err, ErrStale) {
				t.Errorf("recurrent: %v", err)
			}
			s.Reset()
			got, err = s.Feed(t.Context(), tokens(12))
		}
		if err != nil || !slices.Equal(got, toyLogits(tokens(12))) {
			t.Errorf("after the failure: %v, %v", got, err)
		}
	}
	// Nothing has run when the context is done before the first call.
	y := newToy(t, toyOptions{ctx: 16, batch: 4, lastToken: true, recurrent: true})
	s := y.session()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Feed(ctx, tokens(5)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := s.Feed(t.Context(), tokens(5)); err != nil {
		t.Errorf("after a cancelled start: %v", err)
	}
}

func TestTap(t *testing.T) {
	y := newToy(t, toyOptions{ctx: 16, batch: 4, lastToken: true})
	s := y.session()
	var got []string
	s.SetTap(func(part, pos, rows int, hidden []float32) {
		got = append(got, fmt.Sprintf("%d@%d:%d=%v", part, pos, rows, hidden[(rows-1)*toyHidden]))
	})
	all := []int32{1, 2, 3, 4, 5}
	if _, err := s.Feed(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	// First chunk: 1*2, + 2*3, + 3*4, + 4*5 = 40, + 5*6 = 70. Second, over its
	// inputs 2, 8, 20, 40, 70: 2 + 16 + 60 + 160 = 238, + 350 = 588 = 86 mod 251.
	want := []string{"0@0:4=5", "1@0:4=40", "2@0:1=238", "0@4:1=6", "1@4:1=70", "2@4:1=86"}
	if !slices.Equal(got, want) {
		t.Errorf("tap saw %v, want %v", got, want)
	}
	s.SetTap(nil)
	if _, err := s.Feed(t.Context(), all[:1]); err != nil || len(got) != len(want) {
		t.Error("the tap was not removed")
	}
}

func TestModel(t *testing.T) {
	y := newToy(t, toyOptions{ctx: 16, batch: 4})
	m := y.model()
	if got, want := m.Memory(), (Memory{Weights: 4000, State: 2 * 16 * 2}); got != want {
		t.Errorf("Memory() = %+v, want %+v", got, want)
	}
	if m.Package() != y.pkg {
		t.Error("Package() is another one")
	}
	// Sessions do not share their contexts.
	a, _ := m.NewSession()
	b, _ := m.NewSession()
	if _, err := a.Feed(t.Context(), tokens(9)); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Feed(t.Context(), []int32{3}); err != nil || !slices.Equal(got, toyLogits([]int32{3})) {
		t.Errorf("second session: %v, %v", got, err)
	}
	if len(a.States()) != 1 {
		t.Errorf("%d states, want one for all chunks", len(a.States()))
	}
	if err := m.Close(); err != nil || y.closed != 4 {
		t.Errorf("Close: %v, %d parts closed", err, y.closed)
	}

	y = newToy(t, toyOptions{ctx: 16, batch: 4, chunkStates: true})
	if s := y.session(); len(s.States()) != 2 {
		t.Errorf("%d states, want one per chunk", len(s.States()))
	}

	// What was loaded before a failure is closed.
	boom := errors.New("boom")
	y = newToy(t, toyOptions{ctx: 16, batch: 4})
	n := 0
	_, err := Load(y.pkg, func(m *coreml.Model) (runner.Model, error) {
		if n++; n == 3 {
			return nil, boom
		}
		return y.load(m)
	})
	if !errors.Is(err, boom) || !strings.Contains(err.Error(), "load toy_FFN_PF_chunk_02of02") || y.closed != 2 {
		t.Errorf("failed load: %v, %d closed", err, y.closed)
	}
}

// replacer gives its outputs in tensors of its own.
type replacer struct{ runner.Model }

func (r replacer) Predict(ctx context.Context, f string, in, out runner.Values, st runner.State) error {
	if err := r.Model.Predict(ctx, f, in, out, st); err != nil {
		return err
	}
	out[anemll.OutputHiddenStates] = runner.Floats(out[anemll.OutputHiddenStates].DType, make([]float32, 8), 1, 1, 8)
	return nil
}

func TestOutputOfAnotherSize(t *testing.T) {
	y := newToy(t, toyOptions{ctx: 16, batch: 4})
	m, err := Load(y.pkg, func(c *coreml.Model) (runner.Model, error) {
		r, err := y.load(c)
		if y.parts[c].kind == "chunk" {
			return replacer{r}, err
		}
		return r, err
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Feed(t.Context(), tokens(1)); err == nil || !strings.Contains(err.Error(), "gave output_hidden_states of shape [1 1 8], wanted [1 1 3]") {
		t.Errorf("error %v", err)
	}
}

func TestUpdateMask(t *testing.T) {
	m := newUpdateMask(3, 7)
	for _, p := range []int{0, 1, 4, 2, 5, 6, 0, 3} {
		m.move(p)
		for q := range 7 {
			for r := range 3 {
				want := float32(0)
				if q == p+r {
					want = 1
				}
				if got := m.data[q*3+r]; got != want {
					t.Fatalf("at %d: mask[%d][%d] = %v, want %v", p, q, r, got, want)
				}
			}
		}
	}
}

// The best token of a head that gives the best of each part.
func TestBestOfParts(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, c := range []struct {
		index []int32
		value []float32
		want  int32
		err   string
	}{
		{[]int32{4, 0, 2}, []float32{1, 3, 2}, 5, ""},
		{[]int32{4, 0, 2}, []float32{1, 3, 4}, 11, ""}, // 5 + 4 + 2
		{[]int32{4, 3, 2}, []float32{-1, -2, -3}, 4, ""},
		{[]int32{4, 3, 2}, []float32{2, 2, 2}, 4, ""}, // a tie: the first part
		{[]int32{4, 3, 2}, []float32{1, 2, 2}, 8, ""},
		{[]int32{4, 3, 2}, []float32{negInf, 0, 0}, 8, ""},
		{[]int32{4, 3, 2}, []float32{1, nan, 2}, 0, "NaN"},
		{[]int32{4, 3, 2}, []float32{1, inf, 2}, 0, "+Inf"},
		{[]int32{4, 3, 2}, []float32{negInf, negInf, negInf}, 0, "all of 3 are -Inf"},
		{[]int32{4, 4, 2}, []float32{1, 2, 0}, 0, "the best token of part 1 of the vocabulary is number 4 of 4"},
		{[]int32{4, -1, 2}, []float32{1, 2, 0}, 0, "number -1 of 4"},
	} {
		s := &scores{index: c.index, value: c.value}
		got, err := s.best([]int{5, 4, 4})
		if c.err != "" {
			if !errors.Is(err, ErrLogits) || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v %v: %v, want an error with %q", c.index, c.value, err, c.err)
			}
		} else if err != nil || got != c.want {
			t.Errorf("%v %v: %d, %v, want %d", c.index, c.value, got, err, c.want)
		}
	}
	s := &scores{logits: []float32{1, 3, 3, nan}}
	if _, err := s.best(nil); !errors.Is(err, ErrLogits) {
		t.Errorf("NaN: %v", err)
	}
	s.logits[3] = -7
	if got, err := s.best(nil); err != nil || got != 1 {
		t.Errorf("%d, %v, want 1", got, err)
	}
}

func TestMask(t *testing.T) {
	m := newMask(3, 7)
	for _, p := range []int{0, 1, 4, 2, 0, 3} {
		m.move(p)
		for r := range 3 {
			for c := range 7 {
				want := negInf
				if c <= p+r {
					want = 0
				}
				if got := m.data[r*7+c]; got != want {
					t.Fatalf("at %d: mask[%d][%d] = %v, want %v", p, r, c, got, want)
				}
			}
		}
	}
}

func TestFeedDoesNotAllocate(t *testing.T) {
	y := newToy(t, toyOptions{ctx: 512, batch: 4, lastToken: true})
	m, err := Load(y.pkg, func(*coreml.Model) (runner.Model, error) { return silent{}, nil })
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	one, ctx := []int32{1}, t.Context()
	if n := testing.AllocsPerRun(100, func() {
		if _, err := s.Feed(ctx, one); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations per token", n)
	}
	batch := tokens(4)
	if n := testing.AllocsPerRun(50, func() {
		if _, err := s.Feed(ctx, batch); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations per batch", n)
	}
}

// silent runs nothing.
type silent struct{}

func (silent) Functions() []runner.Signature     { return nil }
func (silent) Function(string) *runner.Signature { return nil }
func (silent) NewState() (runner.State, error)   { return &toyState{}, nil }
func (silent) Close() error                      { return nil }
func (silent) Predict(context.Context, string, runner.Values, runner.Values, runner.State) error {
	return nil
}

// Whatever the models declare, a package is refused or a session on it is
// made, without a panic and without memory by an unchecked number.
func TestHostileLayouts(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	names := []string{anemll.InputIDs, anemll.HiddenStates, anemll.PositionIDs, anemll.CausalMask, anemll.CurrentPos, anemll.UpdateMask,
		anemll.OutputHiddenStates, "per_layer_inputs", "logits1", "logits2", "logits", "argmax_idx", "argmax_val", "kv", "model_model_kv_cache_0", "model_model_kv_cache_local", ""}
	functions := []string{"main", "infer", "prefill", "infer_rotate", "prefill_rotate", "prefill_2", "prefill_1", "prefill_3", "prefill_8", "prefill_999999999", "prefill_2x", ""}
	dims := []int{-1, 0, 1, 2, 3, 4, 5, 16, 1 << 20, 1 << 40, math.MaxInt}
	made, kinds := 0, map[string]int{}
	for range 4000 {
		y := newToy(t, toyOptions{ctx: 16, batch: 4, lastToken: r.IntN(2) == 0, perLayer: r.IntN(2) == 0, remainders: [][]int{nil, {2}}[r.IntN(2)]})
		parts := y.pkg.Parts()
		if r.IntN(3) == 0 {
			y.rotateHostile(r.IntN(12))
		}
		mono := r.IntN(4) == 0
		if mono {
			parts = []*anemll.Part{{Model: y.monolithic(r.IntN(2) == 0)}}
		}
		for range 1 + r.IntN(3) {
			m := parts[r.IntN(len(parts))].Model
			f := &m.Functions[r.IntN(len(m.Functions))]
			list := []*[]coreml.Feature{&f.Inputs, &f.Outputs, &f.States}[r.IntN(3)]
			if r.IntN(8) == 0 {
				f.Name = functions[r.IntN(len(functions))]
			}
			if r.IntN(8) == 0 {
				*list = append(slices.Clone(*list), fp16(names[r.IntN(len(names))], dims[r.IntN(len(dims))]))
			}
			if len(*list) == 0 {
				continue
			}
			*list = slices.Clone(*list)
			x := &(*list)[r.IntN(len(*list))]
			switch r.IntN(6) {
			case 0:
				x.Name = names[r.IntN(len(names))]
			case 1:
				x.DType = []mil.DType{mil.Float16, mil.Int32, mil.Float32, mil.String}[r.IntN(4)]
			case 2:
				x.Shape = nil
			case 3:
				x.Ranges = []coreml.Range{{Min: 0, Max: -1}, {Min: dims[r.IntN(len(dims))], Max: dims[r.IntN(len(dims))]}}
			default:
				if x.Shape = slices.Clone(x.Shape); len(x.Shape) > 0 {
					x.Shape[r.IntN(len(x.Shape))] = dims[r.IntN(len(dims))]
				}
			}
		}
		var p *anemll.Package
		var err error
		if mono {
			p, err = anemll.Assemble(y.meta, nil, []*coreml.Model{parts[0].Model}, nil)
		} else {
			p, err = anemll.Assemble(y.meta, parts[0].Model, []*coreml.Model{parts[1].Model, parts[2].Model}, parts[3].Model)
		}
		if err != nil {
			continue
		}
		kinds[fmt.Sprintf("mono %v window %v argmax %v", mono, p.Window > 0, p.Argmax)]++
		if len(p.Remainders) > 0 {
			kinds["remainders"]++
		}
		m, err := Load(p, func(*coreml.Model) (runner.Model, error) { return silent{}, nil })
		if err != nil {
			t.Fatal(err)
		}
		s, err := m.NewSession()
		if err != nil {
			continue
		}
		made++
		for _, mode := range []Mode{Contract, InferOnly, AnemllSequence} {
			s.Reset()
			if err := s.Each(t.Context(), make([]int32, min(13, s.Context())), mode, func(int, []float32) error { return nil }); err != nil {
				t.Errorf("%+v: %v", p.Layout, err)
			}
		}
	}
	if made < 100 || len(kinds) < 5 || kinds["remainders"] < 50 {
		t.Errorf("only %d packages of %v were taken, so this says little", made, kinds)
	}
}
