package tokenizer

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// unigramGoldens is testdata/unigram.json.gz; testdata/make_unigram.py says
// what is in it.
type unigramGoldens struct {
	More     []string
	Strings  []int
	Base     map[string]json.RawMessage
	Picks    [][]int32
	Variants []struct {
		Name   string
		Patch  map[string]json.RawMessage
		Hashes string
	}
}

// patched is patched of make_unigram.py.
func (u *unigramGoldens) patched(t *testing.T, patch map[string]json.RawMessage) []byte {
	t.Helper()
	decode := func(data []byte, to any) {
		t.Helper()
		if err := json.Unmarshal(data, to); err != nil {
			t.Fatal(err)
		}
	}
	encode := func(v any) json.RawMessage {
		t.Helper()
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	file, model := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	for key, value := range u.Base {
		file[key] = value
	}
	decode(file["model"], &model)
	var vocab [][2]any
	decode(model["vocab"], &vocab)
	for key, value := range patch {
		switch {
		case key == "model" && string(value) == `"bpe"`:
			var gemma struct{ Model map[string]json.RawMessage }
			decode(golden(t).Gemma, &gemma)
			model = gemma.Model
		case key == "model":
			decode(value, &model)
		case key == "append":
			var more [][2]any
			decode(value, &more)
			model["vocab"] = encode(append(vocab, more...))
		case key == "raise":
			var by float64
			decode(value, &by)
			for i := range vocab {
				vocab[i][1] = vocab[i][1].(float64) + by
			}
			model["vocab"] = encode(vocab)
		default:
			file[key] = value
		}
	}
	file["model"] = encode(model)
	var charsMap struct {
		Data json.RawMessage `json:"precompiled_charsmap"`
	}
	decode(u.Base["normalizer"], &charsMap)
	return bytes.ReplaceAll(encode(file), []byte(`"BASE"`), charsMap.Data)
}

func loadUnigram(t *testing.T) *unigramGoldens {
	t.Helper()
	u := new(unigramGoldens)
	if err := readGoldens("unigram.json.gz", u); err != nil {
		t.Fatal(err)
	}
	return u
}

// digest is the start of a hash of ids and what they are decoded to.
func digest(ids []int32, text string) string {
	b, err := binary.Append(nil, binary.LittleEndian, ids)
	if err != nil {
		panic(err) // not for numbers
	}
	return textHash(string(b) + text)[:6]
}

func TestGoldenUnigram(t *testing.T) {
	u, g := loadUnigram(t), golden(t)
	texts := u.More
	for i := 0; i < len(u.Strings); i += 2 {
		texts = append(texts, g.Strings[u.Strings[i]:u.Strings[i+1]]...)
	}
	if len(texts) < 500 || len(u.Variants) < 18 || len(u.Picks) < 60 {
		t.Fatalf("golden data is incomplete: %d strings, %d variants, %d picks", len(texts), len(u.Variants), len(u.Picks))
	}
	for _, v := range u.Variants {
		t.Run(v.Name, func(t *testing.T) {
			tok, err := Parse(u.patched(t, v.Patch))
			if err != nil {
				t.Fatal(err)
			}
			hashes := v.Hashes
			if len(hashes) != 6*(len(texts)+len(u.Picks)) {
				t.Fatalf("%d bytes of hashes", len(hashes))
			}
			wrong := 0
			for _, s := range texts {
				// To the reference, pieces of one character that became
				// several are all at the start of the text.
				if s == "\ufdfa" && v.Name == "words apart, first" || s == "½" && v.Name == "pieces, first" {
					hashes = hashes[6:]
					continue
				}
				ids := tok.Encode(s, true)
				text := tok.Decode(ids, true)
				if got := digest(ids, text); got != hashes[:6] {
					if wrong++; wrong < 10 {
						t.Errorf("Encode(%+q) = %v, decoded %+q: hash %s, want %s", s, ids, text, got, hashes[:6])
					}
				}
				hashes = hashes[6:]
			}
			for _, ids := range u.Picks {
				if text := tok.Decode(ids, false); digest(nil, text) != hashes[:6] {
					if wrong++; wrong < 10 {
						t.Errorf("Decode(%v) = %+q: hash %s, want %s", ids, text, digest(nil, text), hashes[:6])
					}
				}
				hashes = hashes[6:]
			}
			if wrong > 0 {
				t.Errorf("%d of %d differ", wrong, len(texts)+len(u.Picks))
			}
		})
	}
}

// TestUnigramAgainstPlain compares with the definition: of all ways to cut a
// text, the one with the largest sum of scores.
func TestUnigramAgainstPlain(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	alphabet := []string{"a", "b", "é", "漢"}
	word := func(n int) string {
		var b strings.Builder
		for range n {
			b.WriteString(alphabet[rng.IntN(len(alphabet))])
		}
		return b.String()
	}
	texts, cuts := 0, 0
	for range 60 {
		var vocab []string
		vocab = append(vocab, `["<unk>",0]`)
		for b := range 256 {
			vocab = append(vocab, fmt.Sprintf(`["<0x%02X>",0]`, b))
		}
		scores := map[string]float64{}
		ids := map[string]int32{}
		for range 1 + rng.IntN(25) {
			w := word(1 + rng.IntN(4))
			if _, ok := ids[w]; ok {
				continue
			}
			ids[w] = int32(len(vocab))
			scores[w] = -float64(rng.IntN(1000)) / 64
			vocab = append(vocab, fmt.Sprintf("[%q,%v]", w, scores[w]))
		}
		lowest := 0.0
		for _, s := range scores {
			lowest = min(lowest, s)
		}
		tok, err := Parse([]byte(`{"model":{"type":"Unigram","unk_id":0,"byte_fallback":true,"vocab":[` + strings.Join(vocab, ",") + `]}}`))
		if err != nil {
			t.Fatal(err)
		}
		for range 40 {
			s := word(rng.IntN(30))
			var ends []int // of the characters
			for i, r := range s {
				ends = append(ends, i+utf8.RuneLen(r))
			}
			// The best sum over the rest of the text, from its end. Scores are
			// multiples of 1/64: sums are exact in any order.
			best := map[int]float64{len(s): 0}
			for i := len(ends) - 1; i >= 0; i-- {
				start := ends[i] - utf8.RuneLen([]rune(s)[i])
				best[start] = math.Inf(-1)
				for _, end := range ends[i:] {
					score, ok := scores[s[start:end]]
					if !ok && end == ends[i] {
						score, ok = lowest-10, true
					}
					if ok {
						best[start] = max(best[start], score+best[end])
					}
				}
			}
			got, at := 0.0, 0
			for _, id := range tok.Encode(s, false) {
				token, _ := tok.Token(id)
				if strings.HasPrefix(token, "<0x") { // a byte of an unknown character
					if utf8.RuneStart(s[at]) {
						got += lowest - 10
					}
					at++
					continue
				}
				if !strings.HasPrefix(s[at:], token) {
					t.Fatalf("%q: token %q does not fit at %d", s, token, at)
				}
				at += len(token)
				got += scores[token]
				cuts++
			}
			texts++
			if at != len(s) || got != best[0] {
				t.Errorf("%q: sum of scores %v up to byte %d, want %v up to %d; ids %v of %v", s, got, at, best[0], len(s), tok.Encode(s, false), vocab[257:])
			}
		}
	}
	if texts != 2400 || cuts < 2400 {
		t.Errorf("%d texts, %d tokens", texts, cuts)
	}
}

func TestUnigramErrors(t *testing.T) {
	const head = `{"model":{"type":"Unigram","unk_id":0,"vocab":`
	for _, c := range []struct{ data, want string }{
		{`{"model":{"type":"Unigram","unk_id":0}}`, `"vocab" is missing`},
		{head + `[]}}`, "no tokens"},
		{head + `{"a":0}}}`, "want an array"},
		{head + `["a"]}}`, "want an array"},
		{head + `[["a"]]}}`, "found 1 parts"},
		{head + `[["a",1,2]]}}`, "more than a token and its score"},
		{head + `[["a","b"]]}}`, "bad number"},
		{head + `[["a",01]]}}`, "want a comma"},
		{head + `[["a",1e999]]}}`, "number 1e999: value out of range"},
		{head + `[[1,1]]}}`, "want a string"},
		{head + `[["` + strings.Repeat("a", maxSoughtLength+1) + `",1]]}}`, "token of 513 bytes: more than 512 are not accepted in a unigram model"},
		{head + `[["a",1]],"byte_fallback":1}}`, "byte_fallback"},
		{`{"model":{"type":"Unigram","vocab":[["a",1]]}}`, "unk_id: null or none is not supported"},
		{`{"model":{"type":"Unigram","unk_id":null,"vocab":[["a",1]]}}`, "unk_id: null or none is not supported"},
		{`{"model":{"type":"Unigram","unk_id":1,"vocab":[["a",1]]}}`, "unk_id: 1, but the vocabulary has 1 tokens"},
		{`{"model":{"type":"Unigram","unk_id":-1,"vocab":[["a",1]]}}`, "unk_id: -1"},
		{`{"model":{"type":"Unigram","unk_id":0.5,"vocab":[["a",1]]}}`, "unk_id: "},
	} {
		_, err := Parse([]byte(c.data))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Parse(%.100s) = %v, want an error with %q", c.data, err, c.want)
		}
	}
	tok, err := Parse([]byte(head + `[["a",1],["b",1],["a",2]]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if p := tok.Problems(); len(p) != 1 || !strings.Contains(p[0], `"a" is token 0 and token 2`) {
		t.Errorf("problems %q", p)
	}
}

// smallCharsMap is a table by hand: "a" becomes "xyz", "É" nothing. Nodes have
// blocks of 256 units, as in chars_map of make_classes.py.
func smallCharsMap() []byte {
	units := make([]uint32, 4*256)
	jump := func(at, to uint32) uint32 { return (at ^ to) >> 8 << 10 }
	const root, a, c3, c389 = 0, 1<<8 | 'a', 1<<8 | 0xC3, 3<<8 | 0xC3 ^ 0x89
	units[root] = jump(root, 1<<8) | 1<<9
	units[a] = 'a' | 1<<8 | jump(a, 2<<8|'a') | 1<<9
	units[2<<8|'a'] = 1<<31 | 0
	units[c3] = 0xC3 | jump(c3, 3<<8|0xC3) | 1<<9
	units[c389] = 0x89 | 1<<8 | jump(c389, 2<<8|c389&0xFF) | 1<<9
	units[2<<8|c389&0xFF] = 1<<31 | 4
	return charsMapBytes(units, "xyz\x00\x00")
}

func charsMapBytes(units []uint32, texts string) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(4*len(units)))
	for _, u := range units {
		b = binary.LittleEndian.AppendUint32(b, u)
	}
	return append(b, texts...)
}

func TestCharsMap(t *testing.T) {
	m, err := newCharsMap(smallCharsMap())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ in, want string }{
		{"", ""}, {"b", "b"}, {"a", "xyz"}, {"baab", "bxyzxyzb"}, {"É", ""}, {"Éa\xc3", "xyz\xc3"}, {"éÉé", "éé"},
		{"a\u0301", "xyz"}, // a cluster of three bytes
		{"a\u0301\u0302\u0303", "xyz\u0301\u0302\u0303"}, // one of seven
		{"\u0600a", "\u0600xyz"}, {"a\x00", "xyz\x00"}, {"\r\na", "\r\nxyz"},
	} {
		if got := m.normalize(c.in); got != c.want {
			t.Errorf("normalize(%+q) = %+q, want %+q", c.in, got, c.want)
		}
	}
	if m.growth != 3 {
		t.Errorf("growth %d, want 3", m.growth)
	}
	tok, err := Parse([]byte(`{"model":{"type":"BPE","vocab":{"a":0},"merges":[]},"normalizer":{"type":"Precompiled","precompiled_charsmap":"` +
		base64.StdEncoding.EncodeToString(smallCharsMap()) + `"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := tok.normalize("Éab"); got != "xyzb" {
		t.Errorf("normalize = %q, want xyzb", got)
	}
}

// TestHostileCharsMap: tables that lead out of themselves, around in circles or
// into the middle of a character.
func TestHostileCharsMap(t *testing.T) {
	const far = 1 << 20
	circle := make([]uint32, 256)
	wide := make([]uint32, 21<<8)
	for i := uint32(1); i < 256; i++ {
		circle[i] = i | i<<10 // back to the start
	}
	for i := range uint32(20 << 8) {
		wide[i] = i&0xFF | (i^(i>>8+1)<<8)<<10 // all lead to the next block
	}
	wide[0] = 0
	leaf := func(value uint32) []uint32 {
		u := make([]uint32, 1<<9)
		u[0] = (1<<8)>>8<<10 | 1<<9
		u[1<<8|'a'] = 'a' | 1<<8 | 1<<10 // its value is in the next unit
		u[(1<<8|'a')^1] = 1<<31 | value
		return u
	}
	outside := leaf(0)
	outside[1<<8|'a'] = 'a' | 1<<8 | far<<10&(1<<31-1)
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"short":      {[]byte{1, 2, 3}, "want 4 and more"},
		"size":       {[]byte{8, 0, 0, 0, 1, 2, 3, 4}, "says that its trie has 8 bytes, and 4 follow"},
		"large size": {[]byte{0xFC, 0xFF, 0xFF, 0xFF, 1, 2, 3, 4}, "4294967292"},
		"odd size":   {[]byte{3, 0, 0, 0, 1, 2, 3, 4}, "has 3 bytes"},
		"no trie":    {[]byte{0, 0, 0, 0}, "has 0 bytes"},
		"not UTF-8":  {charsMapBytes(leaf(0), "\xff"), "not UTF-8"},
		"far text":   {charsMapBytes(leaf(3), "é"), "starts at byte 3 of 2"},
		"inside":     {charsMapBytes(leaf(1), "é"), "starts at byte 1 of 2, or inside of a character"},
		"long":       {charsMapBytes(leaf(0), strings.Repeat("a", 257)), "more than 256 times longer"},
		"outside":    {charsMapBytes(outside, "é"), "outside of it"},
	} {
		start := time.Now()
		_, err := newCharsMap(c.data)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", name, err, c.want)
		}
		if d := time.Since(start); d > 10*time.Second {
			t.Errorf("%s took %v", name, d)
		}
	}
	for name, units := range map[string][]uint32{"circle": circle, "wide": wide} {
		start := time.Now()
		m, err := newCharsMap(charsMapBytes(units, "é"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		text := strings.Repeat("a", 1<<16)
		if got := m.normalize(text); got != text {
			t.Errorf("%s changes a text", name)
		}
		if d := time.Since(start); d > 10*time.Second {
			t.Errorf("%s took %v", name, d)
		}
	}
	m, err := newCharsMap(charsMapBytes(leaf(2), "é"))
	if err != nil || m.normalize("xay") != "xy" { // a text at the very end is empty
		t.Errorf("value at the end: %v", err)
	}
}
