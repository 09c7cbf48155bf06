package tokenizer

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"anemone/internal/testutil"
	"anemone/internal/tokenizer/tokenizertest"
)

// goldens is testdata/goldens.json.gz; testdata/make_goldens.py says what is in it.
type goldens struct {
	Fragments []string
	Strings   []string
	Bytes     []string
	Gemma     json.RawMessage
	Text      struct {
		Bytes int
		Hash  string
	}
	Sets     map[string]goldenSet
	Variants []struct {
		Name    string
		Patch   map[string]json.RawMessage
		IDs     []string
		Decoded []string
	}
}

type goldenSet struct {
	IDs     [][]int32
	Bytes   [][]int32
	Decoded []string
	Picks   [][]int32
	Picked  []string
	Skipped []string
	Long    longGolden
}

// longGolden is what becomes of the long text: the number of ids, hashes of
// all of them and of each ten thousand, and of the text decoded again.
type longGolden struct {
	Count   int
	Hash    string
	Parts   []string
	Decoded string
}

var loadGoldens = sync.OnceValues(func() (*goldens, error) {
	g := new(goldens)
	return g, readGoldens("goldens.json.gz", g)
})

func golden(t testing.TB) *goldens {
	t.Helper()
	g, err := loadGoldens()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// readGoldens reads a file of golden data from testdata.
func readGoldens(name string, to any) error {
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := json.NewDecoder(z).Decode(to); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func textHash(s string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(s))) }

// longText is long_text of make_goldens.py.
func (g *goldens) longText() string {
	var b strings.Builder
	n := uint64(len(g.Fragments))
	alphabets := [][2]uint64{{0x61, 26}, {0x41, 26}, {0x430, 32}, {0x4E00, 5000}, {0xE0, 24}, {0xAC00, 2000}}
	for state := uint64(1); b.Len() < 2_000_000; {
		state = state*6364136223846793005 + 1442695040888963407
		pick := (state >> 33) % (n + 16)
		switch {
		case pick < n:
			b.WriteString(g.Fragments[pick])
		case pick < n+4:
			b.WriteString(strconv.FormatUint(state>>44, 10) + " ")
		default:
			a := alphabets[pick%6]
			for k := range 1 + (state>>60)%8 {
				b.WriteRune(rune(a[0] + state>>(7*k)%a[1]))
			}
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// TestLongText makes sure that Go and Python mean the same text.
func TestLongText(t *testing.T) {
	g := golden(t)
	text := g.longText()
	if hash := textHash(text); len(text) != g.Text.Bytes || hash != g.Text.Hash {
		t.Fatalf("the generator made %d bytes with hash %s, want %d with %s", len(text), hash, g.Text.Bytes, g.Text.Hash)
	}
}

func TestGoldenQwen3(t *testing.T) {
	tok, err := Open(tokenizertest.Qwen3(t))
	if err != nil {
		t.Fatal(err)
	}
	testGoldens(t, tok, "qwen3")
	if n := tok.VocabSize(); n != 151669 {
		t.Errorf("VocabSize() = %d, want 151669", n)
	}
}

func TestGoldenTinyQwen3(t *testing.T) {
	tok, err := Open(testutil.Data(t, "checkpoints", "tiny-qwen3"))
	if err != nil {
		t.Fatal(err)
	}
	testGoldens(t, tok, "tiny-qwen3")
}

// TestGoldenGemma covers characters with byte fallback.
func TestGoldenGemma(t *testing.T) {
	tok, err := Parse(golden(t).Gemma)
	if err != nil {
		t.Fatal(err)
	}
	testGoldens(t, tok, "gemma")
}

func testGoldens(t *testing.T, tok *Tokenizer, name string) {
	g := golden(t)
	set := g.Sets[name]
	if len(g.Strings) < 900 || len(set.IDs) != len(g.Strings) || len(set.Bytes) != len(g.Bytes) || len(set.Picks) < 300 {
		t.Fatalf("golden data is incomplete: %d strings, %d ids", len(g.Strings), len(set.IDs))
	}
	for _, p := range tok.Problems() {
		t.Error("problem:", p)
	}
	wrong := 0
	for i, s := range g.Strings {
		if ids := tok.Encode(s, false); !slices.Equal(ids, set.IDs[i]) {
			t.Errorf("Encode(%+q) = %v, want %v", s, ids, set.IDs[i])
			wrong++
		}
		if s := tok.Decode(set.IDs[i], false); s != set.Decoded[i] {
			t.Errorf("Decode(%v) = %+q, want %+q", set.IDs[i], s, set.Decoded[i])
			wrong++
		}
	}
	t.Logf("%d of %d strings differ", wrong, len(g.Strings))
	for i, s := range g.Bytes {
		b, err := hex.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		if ids := tok.Encode(string(b), false); !slices.Equal(ids, set.Bytes[i]) {
			t.Errorf("Encode of bytes %s = %v, want %v", s, ids, set.Bytes[i])
		}
	}
	for i, ids := range set.Picks {
		for _, want := range []struct {
			skip bool
			text string
		}{{false, set.Picked[i]}, {true, set.Skipped[i]}} {
			if s := tok.Decode(ids, want.skip); s != want.text {
				t.Errorf("Decode(%v, %v) = %+q, want %+q", ids, want.skip, s, want.text)
			}
			d := tok.NewDecoder(want.skip)
			for round := range 2 { // Flush leaves a Decoder as new
				var b strings.Builder
				for _, id := range ids {
					b.WriteString(d.Push(id))
				}
				b.WriteString(d.Flush())
				if b.String() != want.text {
					t.Errorf("Decoder(%v) of %v, round %d: %+q, want %+q", want.skip, ids, round, b.String(), want.text)
				}
			}
		}
	}
	testLong(t, tok, set.Long)
}

func testLong(t *testing.T, tok *Tokenizer, want longGolden) {
	t.Helper()
	ids := tok.Encode(golden(t).longText(), false)
	if len(ids) != want.Count || idsHash(ids) != want.Hash {
		t.Errorf("the long text has %d ids, want %d", len(ids), want.Count)
		for i, hash := range want.Parts {
			part := ids[min(i*10000, len(ids)):min(i*10000+10000, len(ids))]
			if idsHash(part)[:8] != hash {
				t.Errorf("first difference in ids %d to %d: %+q", i*10000, i*10000+10000, tok.Decode(part, false))
				break
			}
		}
	}
	if hash := textHash(tok.Decode(ids, false)); hash != want.Decoded {
		t.Error("the decoded long text differs")
	}
}

// patched is tiny-qwen3's tokenizer.json with parts replaced, as variant() in
// make_goldens.py does it.
func patched(t testing.TB, patch map[string]json.RawMessage) []byte {
	t.Helper()
	data, err := os.ReadFile(testutil.Data(t, "checkpoints", "tiny-qwen3", "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file, model map[string]json.RawMessage
	decode := func(data []byte, to any) {
		t.Helper()
		if err := json.Unmarshal(data, to); err != nil {
			t.Fatal(err)
		}
	}
	decode(data, &file)
	decode(file["model"], &model)
	for key, value := range patch {
		switch key {
		case "model":
			var fields map[string]json.RawMessage
			decode(value, &fields)
			for k, v := range fields {
				model[k] = v
			}
		case "merges":
			var pairs [][]string
			decode(model["merges"], &pairs)
			lines := make([]string, len(pairs))
			for i, p := range pairs {
				lines[i] = strings.Join(p, " ")
			}
			model["merges"], err = json.Marshal(lines)
		default:
			file[key] = value
		}
	}
	if err == nil {
		file["model"], err = json.Marshal(model)
	}
	if err == nil {
		data, err = json.Marshal(file)
	}
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestGoldenVariants(t *testing.T) {
	g := golden(t)
	if len(g.Variants) < 25 {
		t.Fatalf("golden data has %d variants", len(g.Variants))
	}
	for _, v := range g.Variants {
		t.Run(v.Name, func(t *testing.T) {
			tok, err := Parse(patched(t, v.Patch))
			if err != nil {
				t.Fatal(err)
			}
			if len(v.IDs) == 0 {
				t.Fatal("no golden ids")
			}
			for i, want := range v.IDs {
				s := g.Strings[i]
				ids := tok.Encode(s, true)
				if got := idsHash(ids)[:8]; got != want {
					t.Errorf("Encode(%+q) = %v with hash %s, want hash %s", s, ids, got, want)
					continue
				}
				text := tok.Decode(ids, true)
				if got := textHash(text)[:8]; got != v.Decoded[i] {
					t.Errorf("Decode(%v) = %+q with hash %s, want hash %s", ids, text, got, v.Decoded[i])
				}
			}
		})
	}
}
