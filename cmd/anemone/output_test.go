package main

import (
	"strings"
	"testing"
)

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"":                             "",
		"a\tb\nü €\n":                  "a\tb\nü €\n",
		"\x1b[2Jx\r\n\x00":             `\x1b[2Jx\x0d` + "\n" + `\x00`,
		"\u009b31m\x7f":                `\x9b31m\x7f`,
		"\xff\xfe\x1b\xe2\x82":         "\xff\xfe" + `\x1b` + "\xe2\x82", // not UTF-8: left alone
		"\x1b]0;title\x07 and \x1b[0m": `\x1b]0;title\x07 and \x1b[0m`,
	} {
		if got := printable(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// TestTable: a name with an end of line does not begin a line of its own.
func TestTable(t *testing.T) {
	var b strings.Builder
	table(&b, "  ", [][]string{{"name", "a\nwarning: b"}, {"size", "1\t2"}})
	if want := "  name  a\\nwarning: b\n  size  1\\t2\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}
