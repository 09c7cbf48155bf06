package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// transcript is a generation in short: "prefill 0/5", "7", "shift -6=10",
// "end stop".
type transcript struct {
	events []string
	tokens []int32
	text   string
	end    Event
	err    error
}

func generate(s *Session, ctx context.Context, prompt []int32, opt Options) (tr transcript) {
	for e, err := range s.Generate(ctx, prompt, opt) {
		if err != nil {
			tr.err = err
			continue
		}
		switch e.Kind {
		case Prefill:
			tr.events = append(tr.events, fmt.Sprintf("prefill %d/%d", e.Done, e.Total))
		case Token:
			tr.events = append(tr.events, fmt.Sprint(e.Token))
			tr.tokens = append(tr.tokens, e.Token)
			tr.text += e.Text
		case Shift:
			tr.events = append(tr.events, fmt.Sprintf("shift -%d=%d", e.Dropped, e.Kept))
		case End:
			tr.events = append(tr.events, "end "+e.Reason.String())
			tr.text += e.Text
			tr.end = e
		}
	}
	return tr
}

// greedy continues tokens by the definition, without any session.
func greedy(tokens []int32, n int) (out []int32) {
	all := slices.Clone(tokens)
	for range n {
		l := toyLogits(all)
		best := int32(slices.Index(l, slices.Max(l)))
		out, all = append(out, best), append(all, best)
	}
	return out
}

func TestGenerate(t *testing.T) {
	y := newToy(t, toyOptions{ctx: 32, batch: 4, lastToken: true})
	s := y.session()
	prompt := tokens(6)
	want := greedy(prompt, 5)
	tr := generate(s, t.Context(), prompt, Options{MaxTokens: 5})
	if tr.err != nil {
		t.Fatal(tr.err)
	}
	events := []string{"prefill 0/6", "prefill 4/6", "prefill 5/6", "prefill 6/6"}
	for _, w := range want {
		events = append(events, fmt.Sprint(w))
	}
	if events = append(events, "end length"); !slices.Equal(tr.events, events) {
		t.Errorf("events %q, want %q", tr.events, events)
	}
	if got := strings.Join(y.calls(), " "); got != "P0 I4 I5 H I6 H I7 H I8 H I9 H" {
		t.Errorf("calls %s", got)
	}
	// The last token is not fed.
	if s.Pos() != 10 || !slices.Equal(s.Tokens(), append(slices.Clone(prompt), want[:4]...)) {
		t.Errorf("context %v", s.Tokens())
	}
	st := tr.end.Stats
	if st.Prompt != 6 || st.Reused != 0 || st.Generated != 5 || st.Decoded != 4 || st.Shifts != 0 || st.FirstToken <= 0 || st.Prefill <= 0 || st.Decode <= 0 {
		t.Errorf("stats %+v", st)
	}
	if st.PrefillRate() <= 0 || st.DecodeRate() <= 0 || (&Stats{}).DecodeRate() != 0 {
		t.Errorf("rates of %+v", st)
	}
}

func TestGenerateStops(t *testing.T) {
	prompt := tokens(6)
	want := greedy(prompt, 8)
	stop := want[3]
	n := slices.Index(want, stop) // its first time
	y := newToy(t, toyOptions{ctx: 32, batch: 4, lastToken: true})
	tr := generate(y.session(), t.Context(), prompt, Options{MaxTokens: 8, Stop: []int32{99, stop}})
	if tr.err != nil || !slices.Equal(tr.tokens, want[:n]) || tr.end.Reason != Stopped || tr.end.Token != stop || tr.end.Stats.Generated != n {
		t.Errorf("%v, %v, %+v; want %v and the end by %d", tr.tokens, tr.err, tr.end, want[:n], stop)
	}
	// Without a limit, the context's end is one: 10 positions hold 6 tokens
	// and 4 more, and the fifth need not be fed.
	y = newToy(t, toyOptions{ctx: 10, batch: 4, lastToken: true})
	tr = generate(y.session(), t.Context(), prompt, Options{})
	if tr.err != nil || !slices.Equal(tr.tokens, want[:5]) || tr.end.Reason != Full || tr.end.Token != -1 {
		t.Errorf("%v, %v, %+v; want %v", tr.tokens, tr.err, tr.end, want[:5])
	}
	tr = generate(y.session(), t.Context(), prompt, Options{MaxTokens: 9, NoShift: true})
	if tr.err != nil || !slices.Equal(tr.tokens, want[:5]) || tr.end.Reason != Full {
		t.Errorf("without shifts: %v, %v, %+v", tr.tokens, tr.err, tr.end)
	}
	// A consumer that has enough.
	n = 0
	for e, err := range newToy(t, toyOptions{ctx: 32, batch: 4}).session().Generate(t.Context(), prompt, Options{}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == Token {
			if n++; n == 2 {
				break
			}
		}
	}
	if n != 2 {
		t.Errorf("%d tokens before the break", n)
	}
}

func TestPrefixReuse(t *testing.T) {
	prompt := tokens(9)
	for _, c := range []struct {
		name    string
		opt     toyOptions
		next    func(done []int32) []int32 // of the tokens in the context
		calls   string
		reused  int
		prefill string
	}{
		{"goes on", toyOptions{ctx: 32, batch: 4, lastToken: true}, func(d []int32) []int32 { return append(slices.Clone(d), 1, 2) }, "I11 I12 H", 11, "prefill 11/13"},
		{"goes on with a batch", toyOptions{ctx: 32, batch: 4, lastToken: true}, func(d []int32) []int32 { return append(slices.Clone(d), 1, 2, 3, 4) }, "P11 H", 11, "prefill 11/15"},
		{"departs", toyOptions{ctx: 32, batch: 4, lastToken: true}, func(d []int32) []int32 { return append(slices.Clone(d[:7]), d[7]+1, 0) }, "I7 I8 H", 7, "prefill 7/9"},
		{"the same", toyOptions{ctx: 32, batch: 4, lastToken: true}, func(d []int32) []int32 { return slices.Clone(d) }, "", 11, "prefill 11/11"},
		{"shorter", toyOptions{ctx: 32, batch: 4, lastToken: true}, func(d []int32) []int32 { return slices.Clone(d[:5]) }, "I4 H", 4, "prefill 4/5"},
		{"nothing in common", toyOptions{ctx: 32, batch: 4, lastToken: true}, func(d []int32) []int32 { return []int32{d[0] + 1, 5} }, "I0 I1 H", 0, "prefill 0/2"},
		{"recurrent goes on", toyOptions{ctx: 32, batch: 4, lastToken: true, recurrent: true}, func(d []int32) []int32 { return append(slices.Clone(d), 1, 2) }, "I11 I12 H", 11, "prefill 11/13"},
		{"recurrent, the same", toyOptions{ctx: 32, batch: 4, lastToken: true, recurrent: true}, func(d []int32) []int32 { return slices.Clone(d) }, "", 11, "prefill 11/11"},
		{"recurrent departs", toyOptions{ctx: 32, batch: 4, lastToken: true, recurrent: true}, func(d []int32) []int32 { return append(slices.Clone(d[:7]), d[7]+1, 0) }, "P0 P4 I8 H", 0, "prefill 0/9"},
		{"recurrent, shorter", toyOptions{ctx: 32, batch: 4, lastToken: true, recurrent: true}, func(d []int32) []int32 { return slices.Clone(d[:5]) }, "P0 I4 H", 0, "prefill 0/5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			y := newToy(t, c.opt)
			s := y.session()
			if tr := generate(s, t.Context(), prompt, Options{MaxTokens: 3}); tr.err != nil {
				t.Fatal(tr.err)
			}
			next := c.next(s.Tokens())
			for i := range next {
				next[i] %= toyVocab
			}
			y.calls()
			tr := generate(s, t.Context(), next, Options{MaxTokens: 1})
			if tr.err != nil {
				t.Fatal(tr.err)
			}
			if got := strings.Join(y.calls(), " "); got != c.calls {
				t.Errorf("calls %q, want %q", got, c.calls)
			}
			if tr.events[0] != c.prefill || tr.end.Stats.Reused != c.reused {
				t.Errorf("events %q, reused %d, want %d", tr.events, tr.end.Stats.Reused, c.reused)
			}
			if want := greedy(next, 1); !slices.Equal(tr.tokens, want) {
				t.Errorf("token %v, want %v", tr.tokens, want)
			}
		})
	}
}

func TestShift(t *testing.T) {
	for _, recurrent := range []bool{false, true} {
		y := newToy(t, toyOptions{ctx: 16, batch: 4, lastToken: true, recurrent: recurrent})
		s := y.session()
		prompt := tokens(12)
		tr := generate(s, t.Context(), prompt, Options{MaxTokens: 9, Pinned: 4})
		if tr.err != nil {
			t.Fatal(tr.err)
		}
		// By the definition: five tokens until the context's 16 positions are
		// taken and one more is known; of these 17, the first 4 and the last
		// (16-4)/2 = 6 remain.
		want := greedy(prompt, 5)
		all := append(slices.Clone(prompt), want...)
		kept := slices.Concat(all[:4], all[len(all)-6:])
		rest := greedy(kept, 4)
		want = append(want, rest...)
		if !slices.Equal(tr.tokens, want) {
			t.Errorf("tokens %v, want %v", tr.tokens, want)
		}
		calls := "P0 P4 P8 H I12 H I13 H I14 H I15 H "
		if recurrent {
			calls += "P0 P4 I8 I9 H I10 H I11 H I12 H"
		} else { // the pinned tokens stay where they are
			calls += "P4 I8 I9 H I10 H I11 H I12 H"
		}
		if got := strings.Join(y.calls(), " "); got != calls {
			t.Errorf("calls %s, want %s", got, calls)
		}
		if !slices.Contains(tr.events, "shift -7=10") || tr.end.Stats.Shifts != 1 || tr.end.Stats.Shift <= 0 || tr.end.Stats.Decoded != 7 {
			t.Errorf("events %q, stats %+v", tr.events, tr.end.Stats)
		}
		if want := append(kept, rest[:3]...); !slices.Equal(s.Tokens(), want) {
			t.Errorf("context %v, want %v", s.Tokens(), want)
		}
	}

	// It goes on for ever, and every token is that of the definition.
	y := newToy(t, toyOptions{ctx: 12, batch: 4})
	s := y.session()
	context, n := tokens(3), 0
	for e, err := range s.Generate(t.Context(), context, Options{MaxTokens: 200, Pinned: 2}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == Token {
			if want := greedy(context, 1)[0]; e.Token != want {
				t.Fatalf("token %d is %d, want %d", n, e.Token, want)
			}
			n++
			if context = append(context, e.Token); len(context) > 12 {
				context = slices.Concat(context[:2], context[len(context)-5:])
			}
		}
	}
	if n != 200 {
		t.Errorf("%d tokens", n)
	}
}

func TestLongPrompt(t *testing.T) {
	y := newToy(t, toyOptions{ctx: 16, batch: 4, lastToken: true})
	s := y.session()
	prompt := tokens(40)
	kept := slices.Concat(prompt[:3], prompt[34:])
	tr := generate(s, t.Context(), prompt, Options{MaxTokens: 2, Pinned: 3})
	if tr.err != nil || !slices.Equal(tr.tokens, greedy(kept, 2)) {
		t.Errorf("%v, %v, want %v", tr.tokens, tr.err, greedy(kept, 2))
	}
	if tr.events[0] != "shift -31=9" || tr.end.Stats.Prompt != 9 || tr.end.Stats.Shifts != 1 {
		t.Errorf("events %q, stats %+v", tr.events, tr.end.Stats)
	}
	// Exactly full.
	tr = generate(s, t.Context(), prompt[:16], Options{})
	if tr.err != nil || !slices.Equal(tr.tokens, greedy(prompt[:16], 1)) || tr.end.Reason != Full {
		t.Errorf("full prompt: %v, %v", tr.tokens, tr.err)
	}
	for name, opt := range map[string]Options{
		"no shifts":             {NoShift: true},
		"everything is pinned":  {Pinned: 40},
		"all but one is pinned": {Pinned: 15},
	} {
		tr := generate(s, t.Context(), prompt, opt)
		if !errors.Is(tr.err, ErrContextFull) || len(tr.tokens) != 0 {
			t.Errorf("%s: %v, %v", name, tr.tokens, tr.err)
		}
	}
}

func TestGenerateErrors(t *testing.T) {
	y := newToy(t, toyOptions{ctx: 16, batch: 4, lastToken: true, recurrent: true})
	s := y.session()
	for name, c := range map[string]struct {
		prompt []int32
		opt    Options
	}{
		"empty":    {nil, Options{}},
		"bad id":   {[]int32{1, 50}, Options{}},
		"limit":    {[]int32{1}, Options{MaxTokens: -1}},
		"sampling": {[]int32{1}, Options{Sampling: Sampling{TopP: 2}}},
	} {
		if tr := generate(s, t.Context(), c.prompt, c.opt); tr.err == nil || len(tr.events) != 0 {
			t.Errorf("%s: %q, %v", name, tr.events, tr.err)
		}
	}
	// A cancelled generation, and the next one from the lost state.
	ctx, cancel := context.WithCancel(t.Context())
	y.fail = func(call string) error {
		if call == "I7/1" {
			cancel()
			return ctx.Err()
		}
		return nil
	}
	tr := generate(s, ctx, tokens(6), Options{MaxTokens: 5})
	if !errors.Is(tr.err, context.Canceled) || len(tr.tokens) != 2 {
		t.Errorf("cancelled: %v, %v", tr.tokens, tr.err)
	}
	y.fail = nil
	tr = generate(s, t.Context(), tokens(6), Options{MaxTokens: 5})
	if tr.err != nil || !slices.Equal(tr.tokens, greedy(tokens(6), 5)) || tr.end.Stats.Reused != 0 {
		t.Errorf("after it: %v, %v", tr.tokens, tr.err)
	}
	// A head that fails leaves the token in the context; the next generation
	// processes it again.
	y = newToy(t, toyOptions{ctx: 16, batch: 4, lastToken: true})
	s = y.session()
	boom := errors.New("boom")
	y.fail = func(call string) error {
		if call == "H" {
			return boom
		}
		return nil
	}
	if tr := generate(s, t.Context(), tokens(6), Options{MaxTokens: 1}); !errors.Is(tr.err, boom) || s.Pos() != 6 {
		t.Errorf("failed head: %v at %d", tr.err, s.Pos())
	}
	y.fail = nil
	y.calls()
	if tr := generate(s, t.Context(), tokens(6), Options{MaxTokens: 1}); tr.err != nil || !slices.Equal(tr.tokens, greedy(tokens(6), 1)) {
		t.Errorf("after it: %v, %v", tr.tokens, tr.err)
	}
	if got := strings.Join(y.calls(), " "); got != "I5 H" {
		t.Errorf("calls %s", got)
	}
}

// bytesDecoder holds back the first half of every pair of tokens.
type bytesDecoder struct{ held string }

func (d *bytesDecoder) Push(t int32) string {
	if d.held == "" {
		d.held = fmt.Sprintf("<%d", t)
		return ""
	}
	s := d.held + fmt.Sprintf(",%d>", t)
	d.held = ""
	return s
}

func (d *bytesDecoder) Flush() string { s := d.held; d.held = ""; return s }

func TestDecoderGetsEveryToken(t *testing.T) {
	y := newToy(t, toyOptions{ctx: 16, batch: 4, lastToken: true})
	prompt := tokens(3)
	w := greedy(prompt, 3)
	tr := generate(y.session(), t.Context(), prompt, Options{MaxTokens: 3, Decoder: &bytesDecoder{}})
	if want := fmt.Sprintf("<%d,%d><%d", w[0], w[1], w[2]); tr.text != want {
		t.Errorf("text %q, want %q", tr.text, want)
	}
}

// The penalty counts the prompt, reused or not, and what was generated.
func TestGeneratePenalty(t *testing.T) {
	y := newToy(t, toyOptions{ctx: 32, batch: 4, lastToken: true})
	s := y.session()
	prompt := tokens(7)
	opt := Options{MaxTokens: 6, Sampling: Sampling{RepetitionPenalty: 50}}
	sampler, err := NewSampler(opt.Sampling, toyVocab)
	if err != nil {
		t.Fatal(err)
	}
	sampler.See(prompt...)
	all := slices.Clone(prompt)
	for range 6 {
		id, err := sampler.Sample(toyLogits(all))
		if err != nil {
			t.Fatal(err)
		}
		sampler.See(id)
		all = append(all, id)
	}
	for range 2 { // the second time, the prompt is in the context
		if tr := generate(s, t.Context(), prompt, opt); tr.err != nil || !slices.Equal(tr.tokens, all[7:]) {
			t.Errorf("%v, %v, want %v", tr.tokens, tr.err, all[7:])
		}
	}
	if plain := greedy(prompt, 6); slices.Equal(plain, all[7:]) {
		t.Error("the penalty changes nothing here, so this test says nothing")
	}
}
