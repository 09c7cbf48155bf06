package tokenizer

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// addedToken is an entry of added_tokens: text that is one token whatever the
// model would make of it.
type addedToken struct {
	id         int32
	content    string
	text       string // what is looked for: content, normalized if the token is
	special    bool   // left out when decoding on demand
	singleWord bool   // only between characters that are not of a word
	lstrip     bool   // takes the white space before it
	rstrip     bool   // takes the white space after it
	normalized bool   // looked for in normalized text
}

// addedTokens finds them.
type addedTokens struct {
	byID       map[int32]*addedToken
	byContent  map[string]int32
	plain      tokenSet // not normalized
	normalized tokenSet
}

func (a *addedTokens) finish() error {
	ids := make([]int32, 0, len(a.byID))
	for id := range a.byID {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		t := a.byID[id]
		if t.normalized {
			a.normalized.tokens = append(a.normalized.tokens, t)
		} else {
			a.plain.tokens = append(a.plain.tokens, t)
		}
	}
	if err := a.plain.finish(); err != nil {
		return err
	}
	return a.normalized.finish()
}

// tokenSet finds the leftmost longest occurrence of any of its tokens.
type tokenSet struct {
	tokens []*addedToken
	trie   *trie     // of their texts; the values are places in tokens
	first  [256]bool // whether a token starts with the byte
	only   int       // the byte that all of them start with, or -1
}

func (s *tokenSet) finish() (err error) {
	s.tokens = slices.DeleteFunc(s.tokens, func(t *addedToken) bool { return t.text == "" })
	places := make(map[string]int32, len(s.tokens))
	for i, t := range s.tokens {
		if _, ok := places[t.text]; !ok { // normalized, two can be the same
			places[t.text] = int32(i)
		}
		s.first[t.text[0]] = true
		if i == 0 {
			s.only = int(t.text[0])
		} else if s.only != int(t.text[0]) {
			s.only = -1
		}
	}
	s.trie, err = newTrie(places)
	return err
}

// find returns the first occurrence at or after from and its token, or nil.
func (s *tokenSet) find(text string, from int) (int, *addedToken) {
	for i := from; i < len(text); i++ {
		if s.only >= 0 {
			n := strings.IndexByte(text[i:], byte(s.only))
			if n < 0 {
				break
			}
			i += n
		} else if !s.first[text[i]] {
			continue
		}
		if t := s.longest(text[i:]); t != nil {
			return i, t
		}
	}
	return 0, nil
}

// longest returns the longest token that text starts with, or nil.
func (s *tokenSet) longest(text string) *addedToken {
	var best *addedToken
	node := uint32(0)
	for i := range len(text) {
		if node = s.trie.step(node, text[i]); node == 0 {
			break
		}
		if place := s.trie.value[node]; place >= 0 {
			best = s.tokens[place]
		}
	}
	return best
}

// split cuts the tokens of the set out of text: between is called with the
// stretches without one, found with the tokens, in order.
func (s *tokenSet) split(text string, between func(string), found func(*addedToken)) {
	if len(s.tokens) == 0 {
		if text != "" {
			between(text)
		}
		return
	}
	done := 0 // what is dealt with
	for i := 0; ; {
		start, t := s.find(text, i)
		if t == nil {
			break
		}
		end := start + len(t.text)
		i = end
		if t.singleWord && (endsWord(text[:start]) || startsWord(text[end:])) {
			continue
		}
		if t.lstrip {
			start = max(done, len(strings.TrimRightFunc(text[:start], unicode.IsSpace)))
		}
		if t.rstrip {
			end = len(text) - len(strings.TrimLeftFunc(text[end:], unicode.IsSpace))
		}
		if done < start {
			between(text[done:start])
		}
		found(t)
		done = end
	}
	if done < len(text) {
		between(text[done:])
	}
}

func endsWord(s string) bool {
	r, n := utf8.DecodeLastRuneInString(s)
	return n > 0 && isWordCharacter(r)
}

func startsWord(s string) bool {
	r, n := utf8.DecodeRuneInString(s)
	return n > 0 && isWordCharacter(r)
}
