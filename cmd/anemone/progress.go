package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"anemone/internal/platform"
)

// progress shows one line about long work. On a terminal the line is written
// over again and again; elsewhere a plain line is printed now and then, so
// that a log stays short.
type progress struct {
	mu    sync.Mutex
	w     io.Writer
	tty   bool
	width int
	every time.Duration
	last  time.Time
	shown bool
}

// newProgress returns a progress on w. It is silent when quiet.
func newProgress(w io.Writer, quiet bool) *progress {
	p := &progress{w: w, every: 5 * time.Second, last: time.Now()}
	if quiet {
		p.w = nil
		return p
	}
	if f, ok := w.(*os.File); ok && platform.IsTerminal(f) {
		p.tty, p.width, p.every, p.last = true, platform.TerminalWidth(f), 100*time.Millisecond, time.Time{}
	}
	return p
}

// update shows a line, unless the last one is too fresh.
func (p *progress) update(line func() string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.w == nil || time.Since(p.last) < p.every {
		return
	}
	p.last = time.Now()
	s := line()
	if !p.tty {
		fmt.Fprintln(p.w, s)
		return
	}
	if r := []rune(s); len(r) >= p.width {
		s = string(r[:max(0, p.width-1)])
	}
	fmt.Fprintf(p.w, "\r\x1b[K%s", s)
	p.shown = true
}

// done removes the line from a terminal.
func (p *progress) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
}

// bytesText writes a size the way people read it.
func bytesText(n int64) string {
	switch f := float64(n); {
	case n >= 1e9:
		return fmt.Sprintf("%.2f GB", f/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f MB", f/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%.1f kB", f/1e3)
	}
	return fmt.Sprintf("%d bytes", n)
}

// durationText writes a time left or taken.
func durationText(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f min", d.Minutes())
}

// oneLine returns a name that a file has given to something with its ends of
// lines written out, so that what follows them does not pass for ours.
func oneLine(s string) string {
	return strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(s)
}

// table writes rows with aligned columns. What is in a cell stays in its line.
func table(w io.Writer, indent string, rows [][]string) {
	var width []int
	for _, r := range rows {
		for i := range r {
			if i == len(width) {
				width = append(width, 0)
			}
			r[i] = oneLine(r[i])
			width[i] = max(width[i], len([]rune(r[i])))
		}
	}
	for _, r := range rows {
		var b strings.Builder
		for i, s := range r {
			if i > 0 {
				b.WriteString("  ")
			}
			b.WriteString(s)
			if i < len(r)-1 {
				b.WriteString(strings.Repeat(" ", width[i]-len([]rune(s))))
			}
		}
		fmt.Fprintln(w, strings.TrimRight(indent+b.String(), " "))
	}
}
