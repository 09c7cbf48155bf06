package generate

import (
	"encoding/binary"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"anemone/internal/anemll"
	"anemone/internal/arch"
	"anemone/internal/arch/qwen3"
	"anemone/internal/checkpoint/safetensors"
	"anemone/internal/session"
	"anemone/internal/testutil"
	"anemone/internal/tokenizer/chat"
)

func open(t *testing.T, context int) *Model {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	_, err := anemll.Convert(t.Context(), arch.Registry{qwen3.Architecture}, testutil.Data(t, "checkpoints", "tiny-qwen3"), out, anemll.Options{Context: context, Batch: 32})
	if err != nil {
		t.Fatal(err)
	}
	m, err := Open(out, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// answer returns the text of a generation and its last event.
func answer(t *testing.T, m *Model, s *session.Session, r Request) (string, session.Event) {
	t.Helper()
	zero := 0.0
	r.Sampling.Temperature = &zero
	text := ""
	var last session.Event
	for e, err := range m.Generate(t.Context(), s, r) {
		if err != nil {
			t.Fatal(err)
		}
		text += e.Text
		last = e
	}
	return text, last
}

// TestStory: the answer is the one that transformers gives greedily, which
// the golden file of the checkpoint holds token by token; it ends at the
// end-of-turn token.
func TestStory(t *testing.T) {
	m := open(t, 256)
	s, err := m.Session.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	user := chat.Message{Role: "user", Content: "Tell me a story about a fox and a lantern."}
	text, end := answer(t, m, s, Request{Messages: []chat.Message{user}})
	g, err := safetensors.Open(testutil.Data(t, "goldens", "tiny-qwen3.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	ids := func(name string) (v []int32) {
		b, err := g.Bytes(name)
		if err != nil {
			t.Fatal(err)
		}
		for ; len(b) > 0; b = b[4:] {
			v = append(v, int32(binary.LittleEndian.Uint32(b)))
		}
		return v
	}
	golden := ids("tokens")[len(ids("prompt")):]
	turn, ok := m.Tokenizer.ID("<|im_end|>")
	if !ok || !slices.Contains(m.Stop, turn) {
		t.Fatalf("the end of a turn, %d, is not among the stop tokens %v", turn, m.Stop)
	}
	golden = golden[:slices.Index(golden, turn)]
	want := m.Tokenizer.Decode(golden, true)
	if text != want {
		t.Errorf("got %q", text)
	}
	if end.Reason != session.Stopped {
		t.Errorf("ended by %v", end.Reason)
	}
	// A second turn only reads what is new.
	_, end = answer(t, m, s, Request{Messages: []chat.Message{user, {Role: "assistant", Content: text}, {Role: "user", Content: "And then?"}}, MaxTokens: 3})
	if end.Stats.Reused < 80 || end.Stats.Prompt-end.Stats.Reused > 40 {
		t.Errorf("of %d tokens %d were reused", end.Stats.Prompt, end.Stats.Reused)
	}
}

func TestSystemPromptIsPinned(t *testing.T) {
	m := open(t, 256)
	system := chat.Message{Role: "system", Content: "You tell stories about foxes."}
	prompt, o, err := m.Prepare(Request{Messages: []chat.Message{system, {Role: "user", Content: "Hello"}}})
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Tokenizer.Decode(prompt[:o.Turn], false); !strings.HasSuffix(got, "<|im_start|>user\nHello<|im_end|>\n") {
		t.Errorf("the turn: %q", got)
	}
	if got := m.Tokenizer.Decode(prompt[:o.Pinned], false); got != "<|im_start|>system\nYou tell stories about foxes.<|im_end|>\n" {
		t.Errorf("pinned: %q", got)
	}
	if _, o, err = m.Prepare(Request{Messages: []chat.Message{{Role: "user", Content: "Hello"}}}); err != nil || o.Pinned != 0 {
		t.Errorf("without a system prompt %d tokens are pinned, %v", o.Pinned, err)
	}
}

func TestContextShift(t *testing.T) {
	m := open(t, 64)
	s, err := m.Session.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	shifts := 0
	zero := 0.0
	r := Request{Prompt: "Once upon a time", MaxTokens: 150, IgnoreEOS: true}
	r.Sampling.Temperature = &zero
	tokens := 0
	for e, err := range m.Generate(t.Context(), s, r) {
		if err != nil {
			t.Fatal(err)
		}
		switch e.Kind {
		case session.Shift:
			shifts++
		case session.Token:
			tokens++
		}
	}
	if tokens != 150 || shifts < 2 {
		t.Errorf("%d tokens with %d shifts, want 150 with at least 2", tokens, shifts)
	}
}

func TestErrors(t *testing.T) {
	m := open(t, 64)
	if _, _, err := m.Prepare(Request{}); err == nil || !strings.Contains(err.Error(), "empty") {
		t.Errorf("empty prompt: %v", err)
	}
	m.Template = nil
	if _, _, err := m.Prepare(Request{Messages: []chat.Message{{Role: "user", Content: "x"}}}); err == nil || !strings.Contains(err.Error(), "template") {
		t.Errorf("no template: %v", err)
	}
	if _, err := Open(t.TempDir(), Options{}); err == nil {
		t.Error("an empty folder was opened")
	}
}

// TestFormsAreEqual: a package of compiled bundles and one of .mlpackage
// bundles give the same bits.
func TestFormsAreEqual(t *testing.T) {
	logits := map[anemll.Format][]float32{}
	for _, f := range []anemll.Format{anemll.MLPackage, anemll.MLModelC} {
		out := filepath.Join(t.TempDir(), "out")
		o := anemll.DefaultOptions()
		o.Context, o.Batch, o.Format = 128, 16, f
		if _, err := anemll.Convert(t.Context(), arch.Registry{qwen3.Architecture}, testutil.Data(t, "checkpoints", "tiny-qwen3"), out, o); err != nil {
			t.Fatal(err)
		}
		p, m, err := Load(out, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		defer m.Close()
		for _, part := range p.Parts() {
			if !strings.HasSuffix(part.Path, "."+string(f)) {
				t.Fatalf("%s is not a .%s", part.Path, f)
			}
		}
		s, err := m.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		tokens := make([]int32, 40)
		for i := range tokens {
			tokens[i] = int32(i * 17 % 800)
		}
		l, err := s.Feed(t.Context(), tokens)
		if err != nil {
			t.Fatal(err)
		}
		logits[f] = slices.Clone(l)
	}
	if !slices.Equal(logits[anemll.MLPackage], logits[anemll.MLModelC]) {
		t.Error("the logits differ")
	}
}

// TestLongPrompt: a prompt that does not fit is an error with the numbers,
// unless the request lets its oldest tokens go.
func TestLongPrompt(t *testing.T) {
	m := open(t, 64)
	r := Request{Prompt: strings.Repeat("a lantern ", 50)}
	n := len(m.Tokenizer.Encode(r.Prompt, true))
	_, _, err := m.Prepare(r)
	var pe *PromptError
	if !errors.As(err, &pe) || pe.Tokens != n || pe.Context != 64 || !errors.Is(err, session.ErrContextFull) {
		t.Errorf("error %v, want one about %d tokens and 64 positions", err, n)
	}
	s, err := m.Session.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	r.Trim, r.MaxTokens = true, 1
	if _, end := answer(t, m, s, r); end.Stats.Prompt != 32 || end.Stats.Shifts != 1 {
		t.Errorf("%+v, want half of the context to be left of the prompt", end.Stats)
	}
}

// TestArgmax: a head that gives the best token is greedy whatever the files
// recommend, and only those who ask for more get an error.
func TestArgmax(t *testing.T) {
	m, err := Open(testutil.Shared(t, "peers", "qwen3-lut6-argmax-c2"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if s, err := m.Recommended(); err != nil || s.Greedy() {
		t.Errorf("recommended: %+v, %v; want draws", s, err)
	}
	zero, half, seed, three, one := 0.0, 0.5, uint64(3), 3, 1.0
	for _, c := range []struct {
		p  session.Preferences
		ok bool
	}{
		{session.Preferences{}, true},
		{session.Preferences{Seed: &seed, Temperature: &zero, RepetitionPenalty: &one}, true},
		{session.Preferences{Temperature: &half}, false},
		{session.Preferences{TopK: &three}, false},
		{session.Preferences{RepetitionPenalty: &half}, false},
	} {
		_, o, err := m.Prepare(Request{Prompt: "hi", Sampling: c.p})
		if c.ok && (err != nil || !o.Sampling.Greedy()) {
			t.Errorf("%+v: %+v, %v", c.p, o.Sampling, err)
		}
		if !c.ok && (!errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "only the best token")) {
			t.Errorf("%+v: error %v", c.p, err)
		}
	}
}
