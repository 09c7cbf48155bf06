package tokenizer

// The regular expressions that models in use put into their pre-tokenizer,
// letter for letter as tokenizer.json has them.
const (
	patternGPT2   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	patternLlama3 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternQwen2  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternQwen35 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// scanner runs one of the known patterns without a regular expression engine:
// one pass, no backtracking. Each of them matches any text from end to end.
type scanner struct {
	classes *classTable
	gpt2    bool
	marks   bool // marks count as letters
	digits  int  // longest run of numbers taken at once
}

// newScanner returns the scanner for a pattern, or nil if there is none.
func newScanner(pattern string) *scanner {
	switch pattern {
	case patternGPT2:
		return &scanner{classes: classes(), gpt2: true}
	case patternLlama3:
		return &scanner{classes: classes(), digits: 3}
	case patternQwen2:
		return &scanner{classes: classes(), digits: 1}
	case patternQwen35:
		return &scanner{classes: classes(), digits: 1, marks: true}
	}
	return nil
}

// next returns the end of the match that starts at s[i]. s is valid UTF-8, i
// is inside it and at the start of a character; the result is larger than i.
func (sc *scanner) next(s string, i int) int {
	if sc.gpt2 {
		return sc.nextGPT2(s, i)
	}
	// (?i:'s|'t|'re|'ve|'m|'ll|'d)
	if s[i] == '\'' {
		if n := contraction(s[i+1:], true); n > 0 {
			return i + 1 + n
		}
	}
	c, n := sc.classes.at(s, i)
	switch {
	case sc.isLetter(c):
		// [^\r\n\p{L}\p{N}]?\p{L}+ : a mark that could be the optional first
		// character is part of the run itself where marks are letters.
		return sc.letters(s, i+n)
	case c == classNumber:
		// \p{N}{1,digits}
		end := i + n
		for k := 1; k < sc.digits && end < len(s); k++ {
			c, n := sc.classes.at(s, end)
			if c != classNumber {
				break
			}
			end += n
		}
		return end
	case c != classNewline && i+n < len(s):
		// [^\r\n\p{L}\p{N}]?\p{L}+ with its first character
		if c, m := sc.classes.at(s, i+n); sc.isLetter(c) {
			return sc.letters(s, i+n+m)
		}
	}
	//  ?[^\s\p{L}\p{N}]+[\r\n]*
	end := i
	if s[i] == ' ' {
		end++
	}
	if end = sc.others(s, end); end > i+1 || end == i+1 && s[i] != ' ' {
		for end < len(s) && (s[end] == '\r' || s[end] == '\n') {
			end++
		}
		return end
	}
	return sc.spaces(s, i, true)
}

func (sc *scanner) nextGPT2(s string, i int) int {
	// 's|'t|'re|'ve|'m|'ll|'d
	if s[i] == '\'' {
		if n := contraction(s[i+1:], false); n > 0 {
			return i + 1 + n
		}
	}
	start := i
	if s[i] == ' ' && i+1 < len(s) {
		start++
	}
	c, n := sc.classes.at(s, start)
	switch c {
	case classLetter, classNumber:
		//  ?\p{L}+| ?\p{N}+
		end := start + n
		for end < len(s) {
			d, n := sc.classes.at(s, end)
			if d != c {
				break
			}
			end += n
		}
		return end
	case classOther, classMark:
		//  ?[^\s\p{L}\p{N}]+
		return sc.others(s, start)
	}
	return sc.spaces(s, i, false)
}

func (sc *scanner) isLetter(c class) bool {
	return c == classLetter || sc.marks && c == classMark
}

// letters returns the end of the run of letters at s[i], which may be empty.
func (sc *scanner) letters(s string, i int) int {
	for i < len(s) {
		c, n := sc.classes.at(s, i)
		if !sc.isLetter(c) {
			break
		}
		i += n
	}
	return i
}

// others returns the end of the run of what is neither space nor letter nor
// number at s[i], which may be empty.
func (sc *scanner) others(s string, i int) int {
	for i < len(s) {
		c, n := sc.classes.at(s, i)
		if c != classOther && (c != classMark || sc.marks) {
			break
		}
		i += n
	}
	return i
}

// spaces matches \s*[\r\n]+ (if lines is set), \s+(?!\S) and \s+ at s[i], where
// a space is known to be. Taken together: up to and with the last line break
// of the run; else the run without its last character, which belongs to what
// follows; else the run.
func (sc *scanner) spaces(s string, i int, lines bool) int {
	end, last, newline := i, i, -1
	for end < len(s) {
		c, n := sc.classes.at(s, end)
		if c != classSpace && c != classNewline {
			break
		}
		last = end
		end += n
		if c == classNewline {
			newline = end
		}
	}
	switch {
	case lines && newline > 0:
		return newline
	case end < len(s) && last > i:
		return last
	}
	return end
}

// contraction returns the length of s, t, re, ve, m, ll or d at the start of
// s, or 0. Ignoring case includes U+017F, the long s, as Unicode folds it.
func contraction(s string, fold bool) int {
	if s == "" {
		return 0
	}
	if fold && len(s) >= 2 && s[0] == 0xC5 && s[1] == 0xBF {
		return 2
	}
	lower := func(b byte) byte {
		if fold && 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		return b
	}
	a := lower(s[0])
	switch a {
	case 's', 't', 'm', 'd':
		return 1
	case 'r', 'v', 'l':
		if len(s) > 1 {
			if b := lower(s[1]); b == 'e' && a != 'l' || b == 'l' && a == 'l' {
				return 2
			}
		}
	}
	return 0
}
