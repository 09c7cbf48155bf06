package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"anemone"
	"anemone/internal/testutil"
)

// command runs a command line and returns everything it says.
func command(t *testing.T, stdin string, a ...string) (out, log string, status int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	status = execute(t.Context(), a, strings.NewReader(stdin), &stdout, &stderr)
	return stdout.String(), stderr.String(), status
}

func TestRun(t *testing.T) {
	dir, _ := tinyPackage(t)
	bare := filepath.Join(t.TempDir(), "bare")
	if err := os.CopyFS(bare, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(bare, "tokenizer.json")); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("a lantern ", 200)
	for _, c := range []struct {
		stdin  string
		args   []string
		status int
		out    string // at the beginning of standard output
		log    string // somewhere on standard error
	}{
		{"", []string{"Tell", "me", "a story.", "-n", "4", "--temperature", "0"}, 0, "Once upon a time", "4 tokens out"},
		{"", []string{"hi", "-n", "1"}, 0, "Once\n", "1 token out"},
		{"Tell me a story.\n", []string{"-n", "4", "-q"}, 0, "Once upon a time\n", ""},
		{"Tell me a story.\n", []string{"-", "-n", "4", "-q"}, 0, "Once upon a time\n", ""},
		{"", []string{"hi", "-n", "2", "--json"}, 0, "{", ""},
		{"", []string{""}, 2, "", "the prompt is empty"},
		{"\n", nil, 2, "", "the prompt on standard input is empty"},
		{"", []string{"hi", "-n", "-4"}, 2, "", "--max-tokens -4: want 0 or more"},
		{"", []string{"hi", "--jobs", "-1"}, 2, "", "--jobs -1: want 0 or more"},
		{"", []string{"hi", "--top-p", "3"}, 2, "", "--top-p 3: want 0 to 1"},
		{"", []string{"hi", "--top-k", "-1"}, 2, "", "--top-k -1: want 0 or more"},
		{"", []string{"hi", "--temperature", "-1"}, 2, "", "--temperature -1: want 0 or more"},
		{"", []string{"hi", "--temperature", "x"}, 2, "", `--temperature "x": want a number`},
		{"", []string{"hi", "--top-k", "1.5"}, 2, "", `--top-k "1.5": want a whole number`},
		{"", []string{"hi", "--seed", "-1"}, 2, "", `--seed "-1": want a whole number, 0 or more`},
		{"", []string{"hi", "--raw", "--system", "x"}, 2, "", "--system needs the chat template"},
		{"", []string{"hi", "--shift", "--no-shift"}, 2, "", "contradict"},
		{"", []string{long}, 1, "", "tokens, more than the package's context of 256 positions: shorten it, convert the checkpoint with a longer --context, or drop its oldest tokens (--shift)"},
		{"", []string{long, "--shift", "-n", "1"}, 0, "", "128 kept"},
	} {
		out, log, status := command(t, c.stdin, append([]string{"run", dir}, c.args...)...)
		if status != c.status || !strings.HasPrefix(out, c.out) || !strings.Contains(log, c.log) {
			t.Errorf("run %.60q: status %d, want %d\n%s%s", c.args, status, c.status, out, log)
		}
	}
	for _, c := range []struct{ dir, log string }{
		{bare, "has no tokenizer.json, without which a text has no tokens: put the checkpoint's into the folder\n"},
		{filepath.Join(dir, "nope"), "nope: no such folder\n"},
		{testutil.Data(t, "checkpoints", "tiny-qwen3"), "(if it is a checkpoint, convert it first)\n"},
	} {
		if _, log, status := command(t, "", "run", c.dir, "hi"); status != 1 || !strings.HasSuffix(log, c.log) {
			t.Errorf("%s: status %d, %q", c.dir, status, log)
		}
	}
}

// A full context of a model with recurrent states is an error in front of the
// first token that does not fit, unless --shift lets it read what is kept again.
func TestRunRecurrent(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tiny-ane")
	o := anemone.DefaultConvertOptions()
	o.Context, o.Batch, o.FFN, o.Head, o.Remainders, o.Format = 64, 32, anemone.Encoding{}, anemone.Encoding{}, []int{8, 2}, anemone.FormatMLPackage
	if _, err := anemone.Convert(t.Context(), testutil.Data(t, "checkpoints", "tiny-qwen35"), dir, o); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   []string
		status int
		log    []string
	}{
		{[]string{"-n", "100"}, 1, []string{"(context full)", "the context is full: the answer ends there, before 100 tokens; convert the checkpoint with a longer --context, or let the model read the latest ones again with a new state (--shift)"}},
		{[]string{"-n", "100", "--shift"}, 0, []string{"[context full: the oldest ", "100 tokens out"}},
		{[]string{"-n", "100", "--no-shift"}, 0, []string{"(context full)"}},
		{nil, 0, []string{"(context full)"}},
		{[]string{"-n", "10"}, 0, []string{"10 tokens out"}},
		{[]string{"-n", "100", "--json"}, 1, []string{"the answer ends there"}},
	} {
		out, log, status := command(t, "", append([]string{"run", dir, "hi", "--ignore-eos", "--temperature", "0"}, c.args...)...)
		for _, want := range c.log {
			if !strings.Contains(log, want) {
				t.Errorf("%q: no %q in\n%s", c.args, want, log)
			}
		}
		if status != c.status || out == "" {
			t.Errorf("%q: status %d, want %d, printed %q", c.args, status, c.status, out)
		}
	}
}

// A head that gives only the best token is followed, whatever is recommended;
// only those who insist on drawing are told that it cannot be.
func TestRunArgmax(t *testing.T) {
	dir := testutil.Shared(t, "peers", "qwen3-lut6-argmax-c2")
	for _, c := range []struct {
		args   []string
		status int
		log    string
	}{
		{nil, 0, "note: the package's LM head gives only the best token, so the recommended sampling cannot be followed"},
		{[]string{"--temperature", "0", "--seed", "3"}, 0, ""},
		{[]string{"--temperature", "0.5"}, 2, "the package's LM head gives only the best token"},
		{[]string{"--top-k", "3"}, 2, "the package's LM head gives only the best token"},
		{[]string{"--repetition-penalty", "1.1"}, 2, "the package's LM head gives only the best token"},
	} {
		out, log, status := command(t, "", append([]string{"run", dir, "hi", "-n", "3"}, c.args...)...)
		if status != c.status || !strings.Contains(log, c.log) || (out == "") != (status != 0) {
			t.Errorf("%q: status %d\n%s%s", c.args, status, out, log)
		}
	}
}

// broken is a stream that takes so many bytes.
type broken struct {
	left int
	err  error
}

func (b *broken) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, b.err
	}
	return len(p), nil
}

// What cannot be printed is never a success, and neither a pass nor a failure
// of what was looked at.
func TestOutputFails(t *testing.T) {
	dir, checkpoint := tinyPackage(t)
	full := &os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.ENOSPC}
	for _, c := range []struct {
		args   []string
		left   int
		status int
	}{
		{[]string{"--help"}, 0, 1},
		{[]string{"version"}, 0, 1},
		{[]string{"completion", "bash"}, 0, 1},
		{[]string{"inspect", dir}, 0, 1},
		{[]string{"inspect", dir}, 300, 1},
		{[]string{"inspect", dir, "--json"}, 300, 1},
		{[]string{"inspect", dir, "--mil"}, 300, 1},
		{[]string{"inspect", dir, "--lint"}, 0, 2},
		{[]string{"check", dir, "--plan"}, 300, 2},
		{[]string{"run", dir, "hi"}, 20, 1},
		{[]string{"run", dir, "hi", "--json"}, 0, 1},
		{[]string{"convert", checkpoint, "-o", filepath.Join(t.TempDir(), "a")}, 0, 1},
		{[]string{"demo"}, 1000, 1},
	} {
		var log bytes.Buffer
		if status := execute(t.Context(), c.args, strings.NewReader(""), &broken{c.left, full}, &log); status != c.status || !strings.Contains(log.String(), "anemone: standard output: /dev/stdout: no space left on device\n") {
			t.Errorf("%q: status %d, want %d\n%s", c.args, status, c.status, log.String())
		}
	}
	var log bytes.Buffer
	if status := execute(t.Context(), []string{"inspect", dir}, nil, &broken{100, &os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.EPIPE}}, &log); status != 1 || log.Len() > 0 {
		t.Errorf("a closed pipe: status %d\n%s", status, log.String())
	}
}

// A prompt that never ends does not keep the program from ending.
func TestPromptInterrupted(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := readPrompt(ctx, r); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// conversing returns a chat with a package, and what it prints.
func conversing(t *testing.T, dir, lines string, req anemone.Request) (c *conversation, out, log *bytes.Buffer) {
	t.Helper()
	p, err := anemone.Open(dir, anemone.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	s, err := p.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	out, log = &bytes.Buffer{}, &bytes.Buffer{}
	zero := 0.0
	req.Sampling.Temperature = &zero
	return newConversation(&talker{out: out, log: log, sess: s}, strings.NewReader(lines), req), out, log
}

func roles(c *conversation) (s string) {
	for _, m := range c.req.Messages {
		s += m.Role[:1]
	}
	return s
}

func TestChat(t *testing.T) {
	dir, _ := tinyPackage(t)
	c, out, log := conversing(t, dir, "Tell me a story about a fox.\n\n/nonsense\nAnd then?\n/bye\nnot this\n", anemone.Request{})
	if err := c.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	answers := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(answers) != 2 || !strings.HasPrefix(answers[0], "Once upon a time") || roles(c) != "uaua" || c.req.Messages[1].Content != answers[0] {
		t.Errorf("answers %q, messages %s", answers, roles(c))
	}
	if !strings.Contains(log.String(), "there is no command /nonsense, only /bye") {
		t.Errorf("log\n%s", log)
	}
	if len(c.req.Messages) == 4 && c.req.Messages[3].Content != answers[1] {
		t.Errorf("the second answer is %q in the conversation", c.req.Messages[3].Content)
	}
}

// When the conversation is longer than the context, the older half of it goes
// and the system prompt stays; a message that is too long by itself is refused
// and forgotten.
func TestChatForgets(t *testing.T) {
	dir, _ := tinyPackage(t)
	lines := strings.Repeat("Tell me a story about a fox.\n", 7) + strings.Repeat("a lantern ", 200) + "\nhi\n"
	c, out, log := conversing(t, dir, lines, anemone.Request{Messages: []anemone.Message{{Role: "system", Content: "Be brief."}}})
	if err := c.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "Once upon a time"); n < 7 {
		t.Errorf("%d answers\n%s", n, out)
	}
	if r := roles(c); !strings.HasPrefix(r, "sua") || len(r) > 9 || !strings.HasSuffix(r, "ua") {
		t.Errorf("messages %s", r)
	}
	for _, w := range []string{"[context full: the oldest ", "messages were dropped]", "more than the package's context of 256 positions: shorten the message or the system prompt"} {
		if !strings.Contains(log.String(), w) {
			t.Errorf("no %q in\n%s", w, log)
		}
	}
}

// A message that is too long by itself leaves the conversation as it was, and
// the next one is answered behind it.
func TestChatTooLong(t *testing.T) {
	dir, _ := tinyPackage(t)
	c, _, log := conversing(t, dir, "hi\n"+strings.Repeat("a lantern ", 200)+"\nand then?\n", anemone.Request{})
	if err := c.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if roles(c) != "uaua" || c.req.Messages[0].Content != "hi" || c.req.Messages[2].Content != "and then?" {
		t.Errorf("messages %s", roles(c))
	}
	for _, w := range []string{"256 positions: shorten the message\n", "in (92 known before) at "} {
		if !strings.Contains(log.String(), w) {
			t.Errorf("no %q in\n%s", w, log)
		}
	}
	if strings.Contains(log.String(), "dropped") {
		t.Errorf("log\n%s", log)
	}
}

// An interrupt stops an answer, which stays in the conversation as far as it
// came; the next one ends the chat.
func TestChatInterrupted(t *testing.T) {
	dir, _ := tinyPackage(t)
	r, w := io.Pipe()
	defer w.Close()
	c, out, log := conversing(t, dir, "", anemone.Request{IgnoreEOS: true, MaxTokens: 1 << 20})
	c.lines = newConversation(c.r, r, c.req).lines
	started := &notice{w: out, c: make(chan bool, 1)}
	c.r.out = started
	done := make(chan error, 1)
	go func() { done <- c.run(context.WithoutCancel(t.Context())) }()
	io.WriteString(w, "hi\n")
	<-started.c
	c.stop <- os.Interrupt
	// The prompt comes back, and the next interrupt is for the program.
	time.Sleep(200 * time.Millisecond)
	c.stop <- os.Interrupt
	var se *statusError
	if err := <-done; !errors.As(err, &se) || se.status != exitInterrupted {
		t.Errorf("error %v", err)
	}
	if roles(c) != "ua" || !strings.HasPrefix(out.String(), c.req.Messages[1].Content) || !strings.Contains(log.String(), "[stopped]") {
		t.Errorf("messages %s\n%s%s", roles(c), out, log)
	}
}

// notice tells of the first write.
type notice struct {
	w io.Writer
	c chan bool
}

func (n *notice) Write(b []byte) (int, error) {
	select {
	case n.c <- true:
	default:
	}
	return n.w.Write(b)
}

// Every flag that takes one of a few words names them to shells.
func TestCompletion(t *testing.T) {
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"run", "p", "--numerics", ""}, []string{"fp32", "fp16"}},
		{[]string{"predict", "p", "--numerics", ""}, []string{"fp32", "fp16"}},
		{[]string{"convert", "p", "--format", ""}, []string{"both", "mlmodelc", "mlpackage"}},
		{[]string{"convert", "p", "--lut-ffn", ""}, []string{"none", "4", "6"}},
		{[]string{"inspect", "p", "--ignore", ""}, []string{"lut-group", "no-tokenizer"}},
		{[]string{"inspect", "p", "--os", ""}, []string{"ios18", "macos15"}},
		{[]string{"help", ""}, []string{"convert", "run"}},
	} {
		out, _, status := command(t, "", append([]string{"__complete"}, c.args...)...)
		got := strings.Fields(out)
		for _, w := range c.want {
			if status != 0 || !slices.Contains(got, w) {
				t.Errorf("%q: %q, want %q", c.args, got, c.want)
			}
		}
	}
}
