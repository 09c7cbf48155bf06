package chat

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// TemplateError says what is wrong with a template, or what of it is not
// supported.
type TemplateError struct {
	Line int
	Text string
}

func (e *TemplateError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Text) }

// kind of a token or a segment.
type kind uint8

const (
	nameToken kind = iota
	stringToken
	integerToken
	floatToken
	operatorToken

	textSegment
	outputSegment
	statementSegment
)

type token struct {
	kind kind
	text string // of a string: its value
}

func (t token) is(text string) bool {
	return t.text == text && (t.kind == nameToken || t.kind == operatorToken)
}

// segment is text, {{ output }} or a {% statement %}. Comments and raw blocks
// are gone, and so is all white space that trim_blocks, lstrip_blocks and the
// signs take away.
type segment struct {
	kind   kind
	line   int
	text   string
	tokens []token
}

// lexer divides a template as jinja2 does with trim_blocks and lstrip_blocks,
// which transformers sets.
type lexer struct {
	source string
	pos    int
	out    []segment
}

func (l *lexer) errorf(format string, args ...any) error {
	return &TemplateError{1 + strings.Count(l.source[:min(l.pos, len(l.source))], "\n"), fmt.Sprintf(format, args...)}
}

func lex(source string) ([]segment, error) {
	source = strings.ReplaceAll(source, "\r\n", "\n")
	source = strings.ReplaceAll(source, "\r", "\n")
	source = strings.TrimSuffix(source, "\n") // keep_trailing_newline is off
	l := &lexer{source: source}
	lineStart := true // whether the text begins at the start of a line
	line, counted := 1, 0
	at := func(pos int) int {
		line += strings.Count(source[counted:pos], "\n")
		counted = pos
		return line
	}
	text := func(s string, sign byte, output bool) {
		switch {
		case sign == '-':
			s = strings.TrimRightFunc(s, isSpace)
		case sign != '+' && !output:
			start := strings.LastIndexByte(s, '\n') + 1
			if (start > 0 || lineStart) && strings.TrimFunc(s[start:], isSpace) == "" {
				s = s[:start]
			}
		}
		if s != "" {
			l.out = append(l.out, segment{kind: textSegment, line: line, text: s})
		}
	}
	for l.pos < len(source) {
		start := l.pos
		at(start)
		open := nextTag(source[start:])
		if open < 0 {
			l.out = append(l.out, segment{kind: textSegment, line: line, text: source[start:]})
			break
		}
		open += start
		tag := source[open+1]
		l.pos = open + 2
		sign := l.sign()
		text(source[start:open], sign, tag == '{')
		var err error
		switch {
		case tag == '#':
			end := strings.Index(source[l.pos:], "#}")
			if end < 0 {
				return nil, l.errorf("the comment does not end")
			}
			content := l.pos
			l.pos += end
			if end > 0 && (source[l.pos-1] == '-' || source[l.pos-1] == '+') && l.pos-1 >= content {
				l.pos--
			}
			lineStart, err = l.close("#}")
		case tag == '%' && l.word("raw"):
			// Up to the start of {% endraw %}, text is text.
			s := l.sign()
			if s == '+' || !strings.HasPrefix(source[l.pos:], "%}") {
				return nil, l.errorf("raw: found %q, want %%}", peek(source[l.pos-1:]))
			}
			l.pos += 2
			if s == '-' {
				l.spaces()
			}
			at(l.pos)
			start := l.pos
			end, content := -1, 0
			for end < 0 {
				n := strings.Index(source[l.pos:], "{%")
				if n < 0 {
					l.pos = start
					return nil, l.errorf("the raw block does not end")
				}
				content = l.pos + n
				l.pos = content + 2
				sign = l.sign()
				if l.word("endraw") {
					end = content
				}
			}
			lineStart = false
			text(source[start:end], sign, false)
			lineStart, err = l.close("%}")
		default:
			s := segment{kind: statementSegment, line: at(open)}
			end := "%}"
			if tag == '{' {
				s.kind, end = outputSegment, "}}"
			}
			if s.tokens, err = l.tokens(end); err == nil {
				l.out = append(l.out, s)
				lineStart, err = l.close(end)
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return l.out, nil
}

// nextTag returns where the first tag begins, or -1.
func nextTag(s string) int {
	for i := 0; ; i++ {
		n := strings.IndexByte(s[i:], '{')
		if n < 0 || i+n+1 >= len(s) {
			return -1
		}
		i += n
		if c := s[i+1]; c == '{' || c == '%' || c == '#' {
			return i
		}
	}
}

func peek(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	if n == 0 {
		return "the end of the template"
	}
	return string(r)
}

// sign takes a - or +.
func (l *lexer) sign() byte {
	if l.pos < len(l.source) {
		if c := l.source[l.pos]; c == '-' || c == '+' {
			l.pos++
			return c
		}
	}
	return 0
}

func (l *lexer) spaces() {
	l.pos = len(l.source) - len(strings.TrimLeftFunc(l.source[l.pos:], isSpace))
}

// word takes a word with the white space around it.
func (l *lexer) word(w string) bool {
	s := strings.TrimLeftFunc(l.source[l.pos:], isSpace)
	rest, ok := strings.CutPrefix(s, w)
	rest = strings.TrimLeftFunc(rest, isSpace)
	if !ok || !strings.HasPrefix(strings.TrimLeft(rest, "-+"), "%}") {
		return false
	}
	l.pos = len(l.source) - len(rest)
	return true
}

// close takes the end of a tag, with the white space that goes with it, and
// reports whether a new line begins there.
func (l *lexer) close(end string) (bool, error) {
	sign := l.sign()
	if !strings.HasPrefix(l.source[l.pos:], end) || sign == '+' && end == "}}" {
		return false, l.errorf("found %q, want %s", peek(l.source[l.pos:]), end)
	}
	l.pos += len(end)
	switch {
	case sign == '-':
		l.spaces()
	case sign == 0 && end != "}}" && strings.HasPrefix(l.source[l.pos:], "\n"):
		l.pos++
	}
	return l.source[l.pos-1] == '\n', nil
}

// tokens reads what is inside a tag, up to its end.
func (l *lexer) tokens(end string) ([]token, error) {
	var out []token
	var brackets []byte
	for {
		l.spaces()
		if l.pos >= len(l.source) {
			return nil, l.errorf("the tag does not end")
		}
		rest := l.source[l.pos:]
		if len(brackets) == 0 && (strings.HasPrefix(rest, end) || len(rest) > 2 && (rest[0] == '-' || rest[0] == '+' && end == "%}") && strings.HasPrefix(rest[1:], end)) {
			return out, nil
		}
		if len(out) == maxTagTokens {
			return nil, l.errorf("a tag of more than %d words is not supported", maxTagTokens)
		}
		c := rest[0]
		switch {
		case c == '\'' || c == '"':
			s, n, err := unquote(rest)
			if err != nil {
				return nil, l.errorf("%v", err)
			}
			l.pos += n
			if last := len(out) - 1; last >= 0 && out[last].kind == stringToken {
				out[last].text += s // 'a' 'b' is one string
				continue
			}
			out = append(out, token{stringToken, s})
		case isDigit(c):
			t, n, err := numeral(rest, len(out) > 0 && out[len(out)-1].is("."))
			if err != nil {
				return nil, l.errorf("%v", err)
			}
			l.pos += n
			out = append(out, t)
		case isLetter(c):
			n := 1
			for n < len(rest) && (isLetter(rest[n]) || isDigit(rest[n])) {
				n++
			}
			l.pos += n
			out = append(out, token{nameToken, rest[:n]})
		default:
			n := 1
			if len(rest) > 1 && slices.Contains([]string{"**", "//", "==", "!=", "<=", ">="}, rest[:2]) {
				n = 2
			} else if !strings.ContainsRune("+-*/%~[](){}<>=.:|,", rune(c)) {
				return nil, l.errorf("%q is not expected in a tag", peek(rest))
			}
			switch c {
			case '(', '[', '{':
				if brackets = append(brackets, c); len(brackets) > maxNesting {
					return nil, l.errorf("brackets nested more than %d deep", maxNesting)
				}
			case ')', ']', '}':
				last := len(brackets) - 1
				if last < 0 || strings.IndexByte("([{", brackets[last]) != strings.IndexByte(")]}", c) {
					return nil, l.errorf("%q closes nothing", string(c))
				}
				brackets = brackets[:last]
			}
			l.pos += n
			out = append(out, token{operatorToken, rest[:n]})
		}
	}
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isLetter(c byte) bool { return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// numeral reads a number. After a dot (a.0.b) it is an index, never a float.
func numeral(s string, index bool) (token, int, error) {
	n, float := 0, false
	digits := func() {
		for n < len(s) && (isDigit(s[n]) || s[n] == '_' && n+1 < len(s) && isDigit(s[n+1])) {
			n++
		}
	}
	digits()
	if !index && n+1 < len(s) && s[n] == '.' && isDigit(s[n+1]) {
		float = true
		n++
		digits()
	}
	if !index && n < len(s) && (s[n] == 'e' || s[n] == 'E') {
		k := n + 1
		if k < len(s) && (s[k] == '+' || s[k] == '-') {
			k++
		}
		if k < len(s) && isDigit(s[k]) {
			float, n = true, k
			digits()
		}
	}
	text := strings.ReplaceAll(s[:n], "_", "")
	if n < len(s) && isLetter(s[n]) {
		return token{}, 0, fmt.Errorf("number %q is not supported", s[:n+1])
	}
	if float {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return token{}, 0, fmt.Errorf("number %s is not supported", text)
		}
		text = strconv.FormatFloat(f, 'f', -1, 64) // the engine reads no 1e9
		if !strings.Contains(text, ".") {
			text += ".0"
		}
		return token{floatToken, text}, n, nil
	}
	if _, err := strconv.ParseInt(text, 10, 64); err != nil || len(text) > 1 && text[0] == '0' {
		return token{}, 0, fmt.Errorf("number %.40s is not supported", text)
	}
	return token{integerToken, text}, n, nil
}

// unquote reads a string with Python's escapes.
func unquote(s string) (string, int, error) {
	quote := s[0]
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		c := s[i]
		if c == quote {
			return b.String(), i + 1, nil
		}
		if c != '\\' {
			b.WriteByte(c)
			continue
		}
		if i++; i == len(s) {
			break
		}
		switch c = s[i]; c {
		case '\\', '\'', '"':
			b.WriteByte(c)
		case 'n', 't', 'r', 'a', 'b', 'f', 'v':
			b.WriteByte("\n\t\r\a\b\f\v"[strings.IndexByte("ntrabfv", c)])
		case '\n':
		case 'x', 'u', 'U':
			n := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
			if i+n >= len(s) {
				return "", 0, fmt.Errorf("bad escape \\%c", c)
			}
			r, err := strconv.ParseUint(s[i+1:i+1+n], 16, 32)
			if err != nil || !utf8.ValidRune(rune(r)) {
				return "", 0, fmt.Errorf("bad escape \\%s", s[i:i+1+n])
			}
			b.WriteRune(rune(r))
			i += n
		case '0', '1', '2', '3', '4', '5', '6', '7':
			n := 1
			for n < 3 && i+n < len(s) && s[i+n] >= '0' && s[i+n] <= '7' {
				n++
			}
			r, _ := strconv.ParseUint(s[i:i+n], 8, 32) // three octal digits at most
			b.WriteRune(rune(r))
			i += n - 1
		case 'N':
			return "", 0, fmt.Errorf(`escape \N is not supported`)
		default:
			b.WriteByte('\\')
			b.WriteByte(c)
		}
	}
	return "", 0, fmt.Errorf("the string does not end")
}

// literal writes a string the way the engine reads it back unchanged.
func literal(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}

// block is a statement that is open.
type block struct {
	name   string   // "for", "if" ...
	index  int      // of its first segment
	sets   []string // variables that the body sets, for it alone
	loop   bool     // the body of a loop uses "loop"
	branch bool     // there is an else
	extra  string   // what to write before the end
}

// rewriter turns segments into a template for the engine.
type rewriter struct {
	segments []segment
	scopes   map[int]*block // what a first pass found out about blocks, by their first segment
	open     []*block
	out      strings.Builder
	written  int // lines
	line     int
	filters  map[string]function
	tests    map[string]function
	methods  map[string]function
}

func (r *rewriter) errorf(format string, args ...any) error {
	return &TemplateError{r.line, fmt.Sprintf(format, args...)}
}

// prepare returns a template that means to the engine what source means to
// jinja2.
func prepare(source string) (string, error) {
	if len(source) > maxTemplateSize {
		return "", fmt.Errorf("the template has %d bytes: more than %d are not accepted", len(source), maxTemplateSize)
	}
	if !utf8.ValidString(source) {
		return "", fmt.Errorf("the template is not valid UTF-8")
	}
	segments, err := lex(source)
	if err != nil {
		return "", err
	}
	if len(segments) > maxSegments {
		return "", fmt.Errorf("the template has %d tags and texts between them: more than %d are not accepted", len(segments), maxSegments)
	}
	r := &rewriter{segments: segments, scopes: map[int]*block{}, written: 1, filters: filters(), tests: tests(), methods: methods()}
	if err := r.survey(); err != nil {
		return "", err
	}
	for i := range segments {
		s := &segments[i]
		r.line = s.line
		switch s.kind {
		case textSegment:
			r.emit("{{" + literal(s.text) + "|" + outName + "}}")
		case outputSegment:
			e, err := r.expression(s.tokens)
			if err != nil {
				return "", err
			}
			r.emit("{{ (" + e + ") | " + outName + " }}")
		default:
			if err := r.statement(i, s.tokens); err != nil {
				return "", err
			}
		}
	}
	return r.out.String(), nil
}

// emit writes to the result, keeping lines where they were so that errors of
// the engine name the right one.
func (r *rewriter) emit(s string) {
	if n := r.line - r.written; n > 0 {
		r.out.WriteString("{#" + strings.Repeat("\n", n) + "#}")
		r.written = r.line
	}
	r.out.WriteString(s)
	r.written += strings.Count(s, "\n")
}

// survey matches blocks and finds out which variables each loop sets.
func (r *rewriter) survey() error {
	var open []*block
	for i, s := range r.segments {
		r.line = s.line
		for _, t := range s.tokens {
			if t.kind == nameToken && t.text == "loop" {
				for _, b := range open {
					b.loop = true
				}
			}
		}
		if s.kind != statementSegment {
			continue
		}
		if len(s.tokens) == 0 || s.tokens[0].kind != nameToken {
			return r.errorf("a statement without a name")
		}
		name := s.tokens[0].text
		top := func() *block {
			if len(open) == 0 {
				return &block{}
			}
			return open[len(open)-1]
		}
		switch name {
		case "set":
			if len(s.tokens) > 1 && !(len(s.tokens) > 2 && s.tokens[2].is(".")) {
				// It is gone at the end of the innermost of these.
				for k := len(open) - 1; k >= 0; k-- {
					if n := open[k].name; n == "for" || n == "set" || n == "filter" {
						open[k].sets = append(open[k].sets, s.tokens[1].text)
					}
					if open[k].name != "if" && open[k].name != "generation" {
						break
					}
				}
			}
			if blockSet(s.tokens) {
				open = append(open, &block{name: "set", index: i})
				r.scopes[i] = top()
			}
		case "for", "if", "macro", "call", "filter", "generation":
			if open = append(open, &block{name: name, index: i}); len(open) > maxNesting {
				return r.errorf("blocks nested more than %d deep", maxNesting)
			}
			r.scopes[i] = top()
		case "elif":
			if top().name != "if" || top().branch {
				return r.errorf("elif without if")
			}
		case "else":
			if b := top(); b.name != "if" && b.name != "for" || b.branch {
				return r.errorf("else without if or for")
			}
			top().branch = true
		case "break", "continue":
			// Inside a loop, with nothing between that the engine renders apart.
			k := len(open) - 1
			for k >= 0 && open[k].name == "if" || k >= 0 && open[k].name == "generation" {
				k--
			}
			if k < 0 || open[k].name != "for" || open[k].branch {
				return r.errorf("%s outside of a loop", name)
			}
		case "endset", "endfor", "endif", "endmacro", "endcall", "endfilter", "endgeneration":
			if top().name != strings.TrimPrefix(name, "end") {
				return r.errorf("%s without %s", name, strings.TrimPrefix(name, "end"))
			}
			open = open[:len(open)-1]
		default:
			return r.errorf("statement %q is not supported", name)
		}
		if len(open) > maxNesting {
			return r.errorf("blocks nested more than %d deep", maxNesting)
		}
	}
	if n := len(open); n > 0 {
		r.line = r.segments[open[n-1].index].line
		return r.errorf("%s does not end", open[n-1].name)
	}
	return nil
}

// blockSet reports whether {% set ... %} has its value in a block.
func blockSet(t []token) bool {
	return !slices.ContainsFunc(t, func(t token) bool { return t.is("=") })
}

func (r *rewriter) push(b *block) { r.open = append(r.open, b) }

func (r *rewriter) pop() *block {
	b := r.open[len(r.open)-1] // survey has matched them
	r.open = r.open[:len(r.open)-1]
	return b
}

func (r *rewriter) statement(index int, t []token) error {
	name, rest := t[0].text, t[1:]
	switch name {
	case "if", "elif":
		e, err := r.expression(rest)
		if err != nil {
			return err
		}
		r.emit("{% " + name + " (" + e + ") %}")
		if name == "if" {
			r.push(&block{name: name})
		}
		return nil
	case "for":
		return r.forLoop(index, rest)
	case "set":
		return r.set(index, rest)
	case "macro":
		return r.macro(rest)
	case "call":
		return r.call(rest)
	case "filter":
		// Rendered to a variable, which is then filtered.
		to := fmt.Sprintf("anemone_b%d", index)
		e, err := r.expression(append([]token{{nameToken, "anemone"}, {operatorToken, "|"}}, rest...))
		if err != nil {
			return err
		}
		save, restore := r.saving(index)
		r.emit(save + "{% set " + to + " %}")
		r.push(&block{name: name, extra: restore + "{{ (" + strings.Replace(e, "anemone", to, 1) + ") | " + outName + " }}"})
		return nil
	case "generation", "endgeneration": // marks what is trained on; nothing else
		if len(rest) > 0 {
			return r.errorf("%s with arguments", name)
		}
		return nil
	}
	if len(rest) > 0 && name != "endmacro" { // which may repeat the name
		return r.errorf("%q after %s", rest[0].text, name)
	}
	switch name {
	case "endfor":
		b := r.pop()
		r.emit(b.extra + "{% endfor %}")
	case "endmacro":
		r.pop()
		r.emit("{% set " + scratchName + " = " + leaveName + "() %}{% endmacro %}")
	case "endfilter", "endset":
		b := r.pop()
		r.emit("{% endset %}" + b.extra)
	case "else":
		r.emit("{% else %}")
	case "break", "continue":
		r.emit("{% " + name + " %}")
	default:
		r.pop()
		r.emit("{% " + name + " %}")
	}
	return nil
}

// names reads a, b, c with or without parentheses.
func names(t []token) ([]string, bool) {
	if n := len(t); n > 1 && t[0].is("(") && t[n-1].is(")") {
		t = t[1 : n-1]
	}
	var out []string
	for i, x := range t {
		if i%2 == 1 {
			if !x.is(",") {
				return nil, false
			}
			continue
		}
		if x.kind != nameToken || reserved(x.text) {
			return nil, false
		}
		out = append(out, x.text)
	}
	return out, len(t)%2 == 1
}

// reserved reports whether a name has a meaning of its own.
func reserved(name string) bool {
	switch name {
	case "true", "false", "none", "True", "False", "None", "null", "not", "and", "or", "if", "else", "in", "is", "loop", "caller", "self", "super":
		return true
	}
	return strings.HasPrefix(name, "anemone")
}

// forLoop writes a loop. A variable that the body sets starts each pass with
// the value it had before the loop, as in jinja2; the engine would keep that of
// the pass before.
func (r *rewriter) forLoop(index int, t []token) error {
	in := slices.IndexFunc(t, func(t token) bool { return t.is("in") })
	if in < 0 {
		return r.errorf("for without in")
	}
	vars, ok := names(t[:in])
	if !ok || len(vars) > 2 {
		return r.errorf("for: want one name, or two, before in")
	}
	t = t[in+1:]
	depth, filter := 0, -1
	for i, x := range t {
		switch {
		case x.is("(") || x.is("[") || x.is("{"):
			depth++
		case x.is(")") || x.is("]") || x.is("}"):
			depth--
		case depth == 0 && x.is("if") && filter < 0:
			filter = i
		case depth == 0 && x.is(","):
			return r.errorf("for: a list without brackets is not supported")
		case depth == 0 && x.is("recursive"):
			return r.errorf("for: recursive is not supported")
		}
	}
	var condition string
	var err error
	if filter >= 0 {
		if condition, err = r.expression(t[filter+1:]); err != nil {
			return err
		}
		t = t[:filter]
	}
	list, err := r.expression(t)
	if err != nil {
		return err
	}
	seen := r.scopes[index]
	b := &block{name: "for"}
	start := "{% set " + scratchName + " = " + stepName + "() %}"
	before, restore := r.saving(index, vars...)
	start += restore
	head := "{% for " + strings.Join(vars, ", ") + " in (" + list + ")"
	switch {
	case condition != "" && len(vars) == 2:
		// The engine sets only the second variable for the condition.
		if seen.loop || seen.branch {
			return r.errorf("for with two names, a condition, and loop or else is not supported")
		}
		start = "{% if (" + condition + ") %}" + start
		b.extra = "{% endif %}"
	case condition != "":
		head += " if (" + condition + ")"
	}
	r.emit(before + head + " %}" + start)
	r.push(b)
	return nil
}

// saving returns what saves the variables that a block sets, and what restores
// them.
func (r *rewriter) saving(index int, except ...string) (save, restore string) {
	sets := slices.Clone(r.scopes[index].sets)
	slices.Sort(sets)
	for _, v := range slices.Compact(sets) {
		if !slices.Contains(except, v) && !reserved(v) {
			saved := fmt.Sprintf("anemone_s%d_%s", index, v)
			save += "{% set " + saved + " = " + v + " %}"
			restore += "{% set " + v + " = " + saved + " %}"
		}
	}
	return save, restore
}

func (r *rewriter) set(index int, t []token) error {
	if len(t) == 0 || t[0].kind != nameToken || reserved(t[0].text) {
		return r.errorf("set: want a name")
	}
	target, rest, into := t[0].text, t[1:], ""
	if len(rest) > 1 && rest[0].is(".") && rest[1].kind == nameToken {
		into = "(" + target + ")"
		target += "." + rest[1].text
		rest = rest[2:]
	}
	if len(rest) == 0 {
		if strings.Contains(target, ".") {
			return r.errorf("set: a block for an attribute is not supported")
		}
		save, restore := r.saving(index, target)
		r.emit(save + "{% set " + target + " %}")
		r.push(&block{name: "set", extra: restore})
		return nil
	}
	if !rest[0].is("=") {
		return r.errorf("set: %q after the name is not supported", rest[0].text)
	}
	e, err := r.expression(rest[1:])
	if err != nil {
		return err
	}
	r.emit("{% set " + target + " = (" + e + ") | " + keepName + into + " %}")
	return nil
}

func (r *rewriter) macro(t []token) error {
	if len(t) < 3 || t[0].kind != nameToken || reserved(t[0].text) || !t[1].is("(") || !t[len(t)-1].is(")") {
		return r.errorf("macro: want a name and parameters")
	}
	var params []string
	for t, name := t[2:len(t)-1], t[0].text; len(t) > 0; {
		if t[0].kind != nameToken || reserved(t[0].text) {
			return r.errorf("macro %s: %q is no parameter", name, t[0].text)
		}
		param := t[0].text
		end := slices.IndexFunc(t, func(t token) bool { return t.is(",") })
		if end < 0 {
			end = len(t)
		}
		switch value := t[1:end]; {
		case len(value) == 0:
		case value[0].is("=") && simple(value[1:]):
			e, err := r.expression(value[1:])
			if err != nil {
				return err
			}
			param += " = " + e
		default:
			// The engine divides parameters at every comma.
			return r.errorf("macro %s: the default of %s is not supported: want a literal or a name", name, param)
		}
		params = append(params, param)
		t = t[min(end+1, len(t)):]
	}
	r.emit("{% macro " + t[0].text + "(" + strings.Join(params, ", ") + ") %}{% set " + scratchName + " = " + enterName + "() %}")
	r.push(&block{name: "macro"})
	return nil
}

// simple reports whether an expression is one that can be written anywhere.
func simple(t []token) bool {
	switch {
	case len(t) == 1:
		return t[0].kind != operatorToken && !(t[0].kind == stringToken && strings.ContainsAny(t[0].text, ",=()"))
	case len(t) == 2:
		return t[0].is("-") && t[1].kind != operatorToken || t[0].is("[") && t[1].is("]") || t[0].is("{") && t[1].is("}")
	}
	return false
}

func (r *rewriter) call(t []token) error {
	args := ""
	if len(t) > 0 && t[0].is("(") {
		end := slices.IndexFunc(t, func(t token) bool { return t.is(")") })
		if end > 1 {
			list, ok := names(t[1:end])
			if !ok {
				return r.errorf("call: want names in parentheses")
			}
			args = strings.Join(list, ", ")
		}
		args = "(" + args + ") "
		t = t[end+1:] // brackets are matched
	}
	if len(t) < 3 || t[0].kind != nameToken || !t[1].is("(") || !t[len(t)-1].is(")") {
		return r.errorf("call: want a macro with arguments")
	}
	e, err := r.expression(t)
	if err != nil {
		return err
	}
	r.emit("{% call " + args + e + " %}")
	r.push(&block{name: "call"})
	return nil
}

// expression writes an expression for the engine.
func (r *rewriter) expression(t []token) (string, error) {
	if len(t) == 0 {
		return "", r.errorf("an expression is missing")
	}
	var b strings.Builder
	joins, products := 0, 0
	var brackets []string
	at := func(i int) token {
		if i < 0 || i >= len(t) {
			return token{kind: operatorToken}
		}
		return t[i]
	}
	put := func(s string) {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(s)
	}
	for i := 0; i < len(t); i++ {
		x, next := t[i], at(i+1)
		switch {
		case x.kind == stringToken:
			put(literal(x.text))
		case x.kind == integerToken || x.kind == floatToken:
			if n := len(brackets); n > 0 && brackets[n-1] == "{" && next.is(":") {
				return "", r.errorf("a number as key of a dictionary is not supported")
			}
			put(x.text)
		case x.is("|"):
			f := r.filters[next.text]
			if next.kind != nameToken || f == nil {
				return "", r.errorf("filter %q is not supported", next.text)
			}
			put("| " + filterPrefix + next.text)
			i++
		case x.is("is"):
			prefix := testPrefix
			if next.is("not") {
				prefix = notPrefix
				i++
				next = at(i + 1)
			}
			name := testName(next.text)
			if next.kind == stringToken || r.tests[name] == nil {
				return "", r.errorf("test %q is not supported", next.text)
			}
			put("| " + prefix + name)
			i++
			n := r.operand(t[i+1:])
			switch arg := at(i + 1); {
			case n == 0 || arg.is("("):
			case arg.is("is"):
				return "", r.errorf("one test after another")
			default: // x is divisibleby 3
				e, err := r.expression(t[i+1 : i+1+n])
				if err != nil {
					return "", err
				}
				put("(" + e + ")")
				i += n
			}
		case x.is(".") && next.kind == integerToken:
			put("[ " + next.text + " ]")
			i++
		case x.is(".") && next.kind == nameToken && at(i+2).is("("):
			switch {
			case r.methods[next.text] != nil:
				put("| " + methodPrefix + next.text)
			case next.text == "cycle":
				put("." + next.text)
			default:
				return "", r.errorf("method %q is not supported", next.text)
			}
			i++
		case x.is("."):
			if next.kind != nameToken {
				return "", r.errorf("%q after a dot", next.text)
			}
			if at(i-1).is("loop") && (strings.HasPrefix(next.text, "depth") || next.text == "changed") {
				return "", r.errorf("loop.%s is not supported", next.text)
			}
			put("." + next.text)
			i++
		case x.kind == nameToken:
			if strings.HasPrefix(x.text, "anemone") && !(i == 0 && x.text == "anemone") || x.text == "varargs" || x.text == "kwargs" || x.is("loop") && next.is("(") {
				return "", r.errorf("the name %q is not supported here", x.text)
			}
			if x.text == "null" { // to jinja2 a variable like any other
				x.text = "anemone_null"
			}
			put(x.text)
		case x.is("-") && (next.kind == integerToken || next.kind == floatToken) && !r.value(at(i-1)):
			put("(-" + next.text + ")") // binds before a filter
			i++
		case x.is("%") && at(i-1).kind == stringToken:
			return "", r.errorf("formatting with %% is not supported")
		case x.is("*"):
			// The engine repeats text as often as told.
			small := func(t token) bool {
				n, err := strconv.Atoi(t.text)
				return t.kind == integerToken && err == nil && n <= maxFactor
			}
			if products++; products > 1 || !small(at(i-1)) && !small(next) {
				return "", r.errorf("* is supported once, with a number up to %d", maxFactor)
			}
			put("*")
		case x.is("+") || x.is("~"):
			if joins++; joins > maxTagJoins {
				return "", r.errorf("more than %d + and ~ in an expression", maxTagJoins)
			}
			put(x.text)
		default:
			switch {
			case x.is("(") || x.is("[") || x.is("{"):
				brackets = append(brackets, x.text)
			case x.is(")") || x.is("]") || x.is("}"):
				brackets = brackets[:len(brackets)-1] // matched by the lexer
			case len(brackets) == 0 && (x.is(",") || x.is("=") || x.is(":")):
				return "", r.errorf("%q is not expected here", x.text)
			case x.is("**"):
				return "", r.errorf("** is not supported") // the engine makes a float of it
			}
			put(x.text)
		}
	}
	return b.String(), nil
}

// value reports whether a token ends a value, so that a minus after it subtracts.
func (r *rewriter) value(t token) bool {
	switch t.kind {
	case operatorToken:
		return t.is(")") || t.is("]") || t.is("}")
	case nameToken:
		switch t.text {
		case "and", "or", "not", "in", "is", "if", "else":
			return false
		}
	}
	return true
}

// operand returns the number of tokens of a value with its attributes and
// brackets at the start of t: the argument of a test without parentheses.
func (r *rewriter) operand(t []token) int {
	if len(t) == 0 {
		return 0
	}
	group := func(i int) int { // the end of a bracket
		depth := 0
		for ; i < len(t); i++ {
			switch {
			case t[i].is("(") || t[i].is("[") || t[i].is("{"):
				depth++
			case t[i].is(")") || t[i].is("]") || t[i].is("}"):
				if depth--; depth == 0 {
					return i + 1
				}
			}
		}
		return i
	}
	i := 0
	switch x := t[0]; {
	case x.is("else") || x.is("or") || x.is("and") || x.is(")") || x.is("]") || x.is("}"):
		return 0
	case x.is("(") || x.is("[") || x.is("{"):
		i = group(0)
	case x.kind == operatorToken:
		return 0
	default:
		i = 1
	}
	for i < len(t) {
		switch {
		case t[i].is(".") && i+1 < len(t):
			i += 2
		case t[i].is("[") || t[i].is("("):
			i = group(i)
		default:
			return i
		}
	}
	return i
}
