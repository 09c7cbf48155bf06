package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"anemone"
)

// conversation is a chat on a terminal, a line for a message. The session
// remembers what it has seen, so that each turn reads only what is new.
type conversation struct {
	r     *talker
	req   anemone.Request // with the conversation so far
	lines chan string     // closed at the end of the input
	// stop tells of interrupts, which end an answer and not the program.
	stop chan os.Signal
}

func newConversation(r *talker, in io.Reader, req anemone.Request) *conversation {
	lines := make(chan string)
	go func() {
		defer close(lines)
		s := bufio.NewScanner(in)
		s.Buffer(nil, maxPrompt)
		for s.Scan() {
			lines <- s.Text()
		}
	}()
	return &conversation{r: r, req: req, lines: lines, stop: make(chan os.Signal, 1)}
}

// run chats until the input ends, /bye, or an interrupt while nothing is being
// answered.
func (c *conversation) run(ctx context.Context) error {
	signal.Notify(c.stop, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(c.stop)
	// The program's own context ends at the first interrupt.
	ctx = context.WithoutCancel(ctx)
	log := c.r.log
	if !c.r.quiet {
		fmt.Fprintln(log, "each line is a message; Ctrl-C stops an answer, /bye or Ctrl-D ends the chat")
	}
	for {
		fmt.Fprint(log, "> ")
		select {
		case <-c.stop:
			fmt.Fprintln(log)
			return &statusError{exitInterrupted, nil}
		case line, ok := <-c.lines:
			line = strings.TrimSpace(line)
			switch {
			case !ok:
				fmt.Fprintln(log)
				return nil
			case line == "":
				continue
			case line == "/bye":
				return nil
			case strings.HasPrefix(line, "/"):
				fmt.Fprintf(log, "there is no command %s, only /bye\n", line)
				continue
			}
			if end, err := c.turn(ctx, line); end || err != nil {
				return err
			}
		}
	}
}

// turn answers one message. It reports whether the program is to end.
func (c *conversation) turn(ctx context.Context, line string) (end bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var got os.Signal
	done := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case got = <-c.stop:
			cancel()
		case <-done:
		}
	}()
	before := c.req.Messages
	c.req.Messages = append(before[:len(before):len(before)], anemone.Message{Role: "user", Content: line})
	text, err := c.r.answer(ctx, c.req)
	for dropped := 0; errors.Is(err, anemone.ErrContextFull); {
		n := c.forget()
		if n == 0 {
			break
		}
		dropped += n
		c.r.opening = fmt.Sprintf("[context full: the oldest %s dropped]", were(dropped, "message"))
		text, err = c.r.answer(ctx, c.req)
	}
	close(done)
	<-watched
	switch {
	case got == syscall.SIGTERM:
		return true, &statusError{exitInterrupted, nil}
	case got != nil:
		fmt.Fprintln(c.r.log, "\n[stopped]")
	case errors.Is(err, anemone.ErrContextFull):
		what := "message"
		if c.req.Messages[0].Role == "system" {
			what = "message or the system prompt"
		}
		fmt.Fprintf(c.r.log, "%s: shorten the %s\n", message(err), what)
		c.req.Messages = before // forgetting did not help
		return false, nil
	case err != nil:
		return true, err
	}
	c.req.Messages = append(c.req.Messages, anemone.Message{Role: "assistant", Content: text})
	return false, nil
}

// forget drops the older half of the turns before the last message, at least
// one, and returns the number of messages dropped.
func (c *conversation) forget() int {
	m := c.req.Messages
	first := 0
	if m[0].Role == "system" {
		first = 1
	}
	turns := (len(m) - 1 - first) / 2 // a question and its answer each
	n := 2 * ((turns + 1) / 2)
	c.req.Messages = append(m[:first:first], m[first+n:]...)
	return n
}
