package tokenizer

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
)

// A splitter cuts pieces of text into smaller ones. It appends to dst and
// leaves out empty pieces.
type splitter interface {
	split(dst []string, piece string) []string
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

func (sp *split) split(dst []string, s string) []string {
	if sc, ok := sp.matcher.(*scanner); ok && (sp.behavior == isolated || sp.behavior == removed && sp.invert) {
		for i := 0; i < len(s); { // every stretch is a match
			end := sc.next(s, i)
			dst = append(dst, s[i:end])
			i = end
		}
		return dst
	}
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
			dst = append(dst, s[start:end])
		}
		i = j
	}
	return dst
}

// prefixSpace is the add_prefix_space of ByteLevel: every piece starts with a
// space afterwards.
type prefixSpace struct{}

func (prefixSpace) split(dst []string, s string) []string {
	if !strings.HasPrefix(s, " ") {
		s = " " + s
	}
	return append(dst, s)
}
