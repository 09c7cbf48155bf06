package tokenizer

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
)

// A splitter cuts pieces of text into smaller ones. It appends to dst and
// leaves out empty pieces. first says that the piece is the start of the text;
// the result says the same of what was appended first.
type splitter interface {
	split(dst []string, piece string, first bool) ([]string, bool)
}

// A matcher finds what a Split looks for: each calls found for the matches in
// s from left to right, start and end in bytes.
type matcher interface {
	each(s string, found func(start, end int))
}

func (sc *scanner) each(s string, found func(start, end int)) {
	for i := 0; i < len(s); {
		end := sc.next(s, i)
		found(i, end)
		i = end
	}
}

// text matches itself.
type text string

func (t text) each(s string, found func(start, end int)) {
	for i := 0; ; {
		n := strings.Index(s[i:], string(t))
		if n < 0 {
			return
		}
		found(i+n, i+n+len(t))
		i += n + len(t)
	}
}

// spaces matches runs of at least two spaces, as " {2,}" does.
type spaces struct{}

func (spaces) each(s string, found func(start, end int)) {
	for i := 0; ; {
		n := strings.Index(s[i:], "  ")
		if n < 0 {
			return
		}
		start := i + n
		i = start + 2
		for i < len(s) && s[i] == ' ' {
			i++
		}
		found(start, i)
	}
}

// margins matches the spaces at both ends of a text, as `\A +| +\z` does.
type margins struct{}

func (margins) each(s string, found func(start, end int)) {
	start := len(s) - len(strings.TrimLeft(s, " "))
	if start > 0 {
		found(0, start)
	}
	if end := len(strings.TrimRight(s[start:], " ")) + start; end < len(s) {
		found(end, len(s))
	}
}

// whitespace matches single characters of white space.
type whitespace struct{}

func (whitespace) each(s string, found func(start, end int)) {
	t := classes()
	for i := 0; i < len(s); {
		c, n := t.at(s, i)
		if c == classSpace || c == classNewline {
			found(i, i+n)
		}
		i += n
	}
}

// number matches single characters of \p{N}.
type number struct{}

func (number) each(s string, found func(start, end int)) {
	t := classes()
	for i := 0; i < len(s); {
		c, n := t.at(s, i)
		if c == classNumber {
			found(i, i+n)
		}
		i += n
	}
}

// matchTimeout ends the search for one match of an unknown pattern. A pattern
// that needs as long backtracks without end.
const matchTimeout = 10 * time.Second

// pattern is any regular expression that has no scanner. tokenizer.json is
// written for Oniguruma in its Ruby syntax; regexp2 is the nearest engine: the
// same look-around, lazy and atomic groups, \p{..} by Go's Unicode tables.
type pattern struct{ re *regexp2.Regexp }

func compilePattern(expr string) (*pattern, error) {
	if len(expr) > maxPattern {
		return nil, fmt.Errorf("regular expression of %d bytes: more than %d are not accepted", len(expr), maxPattern)
	}
	// In Ruby's syntax ^ and $ always match at lines.
	re, err := regexp2.Compile(expr, regexp2.Multiline, regexp2.OptionMaxBacktrackingStackSize(maxBacktracking))
	if err != nil {
		return nil, fmt.Errorf("regular expression %q: %w", expr, err)
	}
	if n := len(re.GetGroupNumbers()) - 1; n > maxGroups {
		return nil, fmt.Errorf("regular expression with %d groups: more than %d are not accepted", n, maxGroups)
	}
	re.MatchTimeout = matchTimeout
	return &pattern{re}, nil
}

// each stops early if the pattern runs into its time limit; what is left of s
// then counts as unmatched.
func (p *pattern) each(s string, found func(start, end int)) {
	m, err := p.re.FindStringMatch(s)
	runes, pos := 0, 0 // where the last match ended, in characters and bytes
	forward := func(n int) int {
		for runes < n && pos < len(s) {
			_, w := utf8.DecodeRuneInString(s[pos:])
			pos += w
			runes++
		}
		return pos
	}
	for err == nil && m != nil {
		start := forward(m.RuneIndex)
		found(start, forward(m.RuneIndex+m.RuneLength))
		m, err = p.re.FindNextMatch(m)
	}
}

// behavior says what becomes of the matches of a Split.
type behavior int

const (
	removed behavior = iota
	isolated
	mergedWithPrevious
	mergedWithNext
	contiguous
)

var behaviors = map[string]behavior{
	"Removed": removed, "Isolated": isolated, "MergedWithPrevious": mergedWithPrevious,
	"MergedWithNext": mergedWithNext, "Contiguous": contiguous,
}

// split is a Split pre-tokenizer.
type split struct {
	matcher  matcher
	behavior behavior
	invert   bool
}

// span is a stretch of a piece that is a match or lies between matches.
type span struct {
	start, end int
	match      bool
}

func (sp *split) split(dst []string, s string, first bool) ([]string, bool) {
	if sc, ok := sp.matcher.(*scanner); ok && (sp.behavior == isolated || sp.behavior == removed && sp.invert) {
		for i := 0; i < len(s); { // every stretch is a match
			end := sc.next(s, i)
			dst = append(dst, s[i:end])
			i = end
		}
		return dst, first
	}
	had := len(dst)
	var spans []span
	last := 0
	sp.matcher.each(s, func(start, end int) {
		if start > last {
			spans = append(spans, span{last, start, sp.invert})
		}
		spans = append(spans, span{start, end, !sp.invert})
		last = end
	})
	if last < len(s) {
		spans = append(spans, span{last, len(s), sp.invert})
	}
	merge := func(i int) bool { return false } // whether spans[i] continues spans[i-1]
	switch sp.behavior {
	case mergedWithPrevious:
		merge = func(i int) bool { return spans[i].match && !spans[i-1].match }
	case mergedWithNext:
		merge = func(i int) bool { return spans[i-1].match && !spans[i].match }
	case contiguous:
		merge = func(i int) bool { return spans[i-1].match == spans[i].match }
	}
	for i := 0; i < len(spans); {
		if sp.behavior == removed && spans[i].match {
			i++
			continue
		}
		j := i + 1
		for j < len(spans) && merge(j) {
			j++
		}
		if start, end := spans[i].start, spans[j-1].end; start < end {
			first = first && (start == 0 || len(dst) > had)
			dst = append(dst, s[start:end])
		}
		i = j
	}
	return dst, first && len(dst) > had
}

// prefixSpace is the add_prefix_space of ByteLevel: every piece starts with a
// space afterwards.
type prefixSpace struct{}

func (prefixSpace) split(dst []string, s string, first bool) ([]string, bool) {
	if !strings.HasPrefix(s, " ") {
		s = " " + s
	}
	return append(dst, s), first
}

// metaspace is a Metaspace pre-tokenizer: spaces are spelled as another
// character, one is put before a piece, and words are cut apart. It is a
// decoder too.
type metaspace struct {
	space  string // how a space is spelled: one character
	prefix prefixing
	words  bool // each space starts a new piece
}

// prefixing says which pieces get a space before them, if they do not start
// with one.
type prefixing int

const (
	prefixNone  prefixing = iota
	prefixFirst           // the one at the start of the text, if its first character was not dropped
	prefixAll             // each
)

func (m *metaspace) split(dst []string, s string, start bool) ([]string, bool) {
	s = strings.ReplaceAll(s, " ", m.space)
	if (m.prefix == prefixAll || m.prefix == prefixFirst && start) && !strings.HasPrefix(s, m.space) {
		s = m.space + s
	}
	if !m.words {
		return append(dst, s), start
	}
	for s != "" {
		n := len(m.space)
		if !strings.HasPrefix(s, m.space) {
			n = 0
		}
		if i := strings.Index(s[n:], m.space); i >= 0 {
			n += i
		} else {
			n = len(s)
		}
		dst = append(dst, s[:n])
		s = s[n:]
	}
	return dst, start
}

// decode returns the text of a token. In the first one there is no space, but
// for those that the text has.
func (m *metaspace) decode(token string, start bool) string {
	space := " "
	if start && m.prefix != prefixNone {
		space = ""
	}
	return strings.ReplaceAll(token, m.space, space)
}
