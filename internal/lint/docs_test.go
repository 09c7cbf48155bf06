package lint

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"anemone/internal/testutil"
)

var update = flag.Bool("update", false, "write docs/lint.md")

const docHead = "# What `anemone inspect --lint` looks for\n" + `
Rules look at the description and the program of a model, and at a package as
a whole. A finding says where it is, what was found, why that matters and what to
do. Errors are what does not load, does not run on the Neural Engine or computes
something else there; warnings are slower, larger or less exact than need be, or
fail on some systems; notes are worth knowing. The exit status is 1 if there are
errors, with ` + "`--strict`" + ` also if there are warnings.

Rules marked "OS" need to be told the oldest system that the model is for
(` + "`--os ios18`, `--os macos15`" + `); those marked "deep" read the weights and run
with ` + "`--deep`" + `. ` + "`--ignore RULE,...`" + ` leaves rules out.

What is known of the Neural Engine is known from measurements and bug reports, not
from Apple: a rule says what was seen, not what must happen.

This table is made from the rules themselves: go test ./internal/lint -update
`

// doc returns the text of docs/lint.md.
func doc() string {
	var b strings.Builder
	b.WriteString(docHead)
	b.WriteString("\n| rule | severity | needs | finds | why it matters | what to do |\n|---|---|---|---|---|---|\n")
	cell := strings.NewReplacer("|", "\\|", "\n", " ", "*", "\\*").Replace
	for _, r := range Rules() {
		var needs []string
		if r.NeedsOS {
			needs = append(needs, "OS")
		}
		if r.Deep {
			needs = append(needs, "deep")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", r.Name, r.Severity, strings.Join(needs, ", "), cell(r.Finds), cell(r.Why), cell(r.Fix))
	}
	return b.String()
}

// TestDocs keeps docs/lint.md in step with the rules.
func TestDocs(t *testing.T) {
	path := filepath.Join(testutil.Root(t), "docs", "lint.md")
	if *update {
		if err := os.WriteFile(path, []byte(doc()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != doc() {
		t.Errorf("docs/lint.md is not what the rules say; run go test ./internal/lint -update")
	}
}

// TestRuleTable looks at the rules as a reader will.
func TestRuleTable(t *testing.T) {
	name := regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	seen := map[string]bool{}
	for _, r := range rules {
		if !name.MatchString(r.Name) || seen[r.Name] {
			t.Errorf("rule %q: not a name in small letters, or there twice", r.Name)
		}
		seen[r.Name] = true
		if r.Severity.rank() < 0 {
			t.Errorf("rule %s: severity %q", r.Name, r.Severity)
		}
		for _, s := range []string{r.Finds, r.Why, r.Fix} {
			if len(s) < 10 || strings.TrimSpace(s) != s {
				t.Errorf("rule %s: says %q", r.Name, s)
			}
		}
		n := 0
		for _, is := range []bool{r.function != nil, r.model != nil, r.target != nil} {
			if is {
				n++
			}
		}
		if n != 1 {
			t.Errorf("rule %s: looks at %d kinds of things, want one", r.Name, n)
		}
	}
}
