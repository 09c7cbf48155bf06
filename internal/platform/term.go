package platform

import (
	"os"

	"golang.org/x/term"
)

// DefaultWidth is what [TerminalWidth] returns for a file that is no
// terminal, in columns.
const DefaultWidth = 80

// IsTerminal reports whether f is a terminal.
func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// TerminalWidth returns the width of the terminal f in columns, and
// [DefaultWidth] when f is none or does not tell.
func TerminalWidth(f *os.File) int {
	if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
		return w
	}
	return DefaultWidth
}
