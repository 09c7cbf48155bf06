package vocab_test

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"anemone/internal/testutil"
	"anemone/internal/tokenizer"
	"anemone/internal/tokenizer/tokenizertest"
	"anemone/internal/tokenizer/vocab"
)

// goldens is testdata/goldens.json.gz; testdata/make.py says what is in it.
type goldens struct {
	More   []string
	Models []*model
	Pre    []struct{ Name, Hashes string }
}

type model struct {
	Name     string
	Model    []byte
	Hashes   string
	IDs      map[string]int
	Pieces   [][3]json.RawMessage // text, bits of the score, type; every 40th
	Count    int
	Prefix   bool
	Extra    bool
	CharsMap int
}

// loaded is the golden data and the strings that it is about.
type loaded struct {
	goldens
	strings []string
}

var load = sync.OnceValues(func() (*loaded, error) {
	l := new(loaded)
	if err := readGolden(filepath.Join("testdata", "goldens.json.gz"), &l.goldens); err != nil {
		return nil, err
	}
	var shared struct{ Strings []string }
	if err := readGolden(filepath.Join("..", "testdata", "goldens.json.gz"), &shared); err != nil {
		return nil, err
	}
	if len(shared.Strings) < 720 {
		return nil, fmt.Errorf("%d strings", len(shared.Strings))
	}
	l.strings = slices.Concat(l.More, shared.Strings[:300], shared.Strings[640:720])
	return l, nil
})

func readGolden(name string, to any) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	return json.NewDecoder(z).Decode(to)
}

func golden(t testing.TB) *loaded {
	t.Helper()
	l, err := load()
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Models) < 6 || len(l.Pre) < 7 || len(l.strings) < 390 {
		t.Fatalf("golden data is incomplete: %d models, %d pre-tokenizers, %d strings", len(l.Models), len(l.Pre), len(l.strings))
	}
	return l
}

// noHash is the hash where nothing is expected.
const noHash = "------"

// compare reports how many strings have other ids than a list of hashes says.
func (l *loaded) compare(t *testing.T, tok *tokenizer.Tokenizer, hashes string) {
	t.Helper()
	if len(hashes) != 6*len(l.strings) {
		t.Fatalf("%d bytes of hashes for %d strings", len(hashes), len(l.strings))
	}
	compared, wrong := 0, 0
	for i, s := range l.strings {
		want := hashes[6*i : 6*i+6]
		if want == noHash {
			continue
		}
		compared++
		ids := tok.Encode(s, false)
		b, err := binary.Append(nil, binary.LittleEndian, ids)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%x", sha256.Sum256(b))[:6]; got != want {
			if wrong++; wrong < 10 {
				t.Errorf("Encode(%+q) = %v with hash %s, want %s", s, ids, got, want)
			}
		}
	}
	if wrong > 0 || compared < 380 {
		t.Errorf("%d of %d strings differ", wrong, compared)
	}
}

// parse makes a tokenizer.json and reads it.
func parse(t testing.TB, v *vocab.Vocabulary) *tokenizer.Tokenizer {
	t.Helper()
	data, err := v.TokenizerJSON()
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if p := tok.Problems(); len(p) > 0 {
		t.Errorf("problems: %q", p)
	}
	return tok
}

// TestSentencePiece: a tokenizer.model read, written as tokenizer.json and read
// again gives the ids that sentencepiece gives.
func TestSentencePiece(t *testing.T) {
	l := golden(t)
	for _, m := range l.Models {
		t.Run(m.Name, func(t *testing.T) {
			v, err := vocab.ReadSentencePiece(m.Model)
			if err != nil {
				t.Fatal(err)
			}
			kind, _, _ := strings.Cut(m.Name, " ")
			if want := map[bool]string{true: "unigram", false: "llama"}[kind == "unigram"]; v.Model != want {
				t.Errorf("model %q, want %q", v.Model, want)
			}
			got := map[string]int{"bos": v.BOS, "eos": v.EOS, "unk": v.Unknown, "pad": v.Padding}
			for name, want := range m.IDs {
				if got[name] != want {
					t.Errorf("%s = %d, want %d", name, got[name], want)
				}
			}
			if len(v.Tokens) != m.Count || v.AddSpacePrefix != m.Prefix || v.RemoveExtraSpaces != m.Extra || len(v.CharsMap) != m.CharsMap {
				t.Errorf("%d pieces, prefix %v, extra spaces %v, %d bytes of table; want %d, %v, %v, %d",
					len(v.Tokens), v.AddSpacePrefix, v.RemoveExtraSpaces, len(v.CharsMap), m.Count, m.Prefix, m.Extra, m.CharsMap)
			}
			for i, p := range m.Pieces {
				var text string
				var bits, kind uint32
				for j, to := range []any{&text, &bits, &kind} {
					if err := json.Unmarshal(p[j], to); err != nil {
						t.Fatal(err)
					}
				}
				want := vocab.Token{Text: text, Score: math.Float32frombits(bits), Kind: vocab.Kind(kind)}
				if i*40 >= len(v.Tokens) || v.Tokens[i*40] != want {
					t.Errorf("piece %d = %+v, want %+v", i*40, v.Tokens[i*40], want)
				}
			}
			l.compare(t, parse(t, v), m.Hashes)
		})
	}
}

// tinyQwen3 is the vocabulary of the test checkpoint as a GGUF file would have it.
func tinyQwen3(t testing.TB) *vocab.Vocabulary {
	t.Helper()
	data, err := os.ReadFile(testutil.Data(t, "checkpoints", "tiny-qwen3", "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	v := fromJSON(t, data)
	v.Model, v.Pre = "gpt2", "qwen2"
	return v
}

// fromJSON takes the tokens and merges out of a tokenizer.json.
func fromJSON(t testing.TB, data []byte) *vocab.Vocabulary {
	t.Helper()
	var file struct {
		AddedTokens []struct {
			ID      int
			Content string
			Special bool
		} `json:"added_tokens"`
		Model struct {
			Vocab  map[string]int
			Merges [][2]string
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	size := 0
	for _, id := range file.Model.Vocab {
		size = max(size, id+1)
	}
	for _, a := range file.AddedTokens {
		size = max(size, a.ID+1)
	}
	v := &vocab.Vocabulary{Tokens: make([]vocab.Token, size), BOS: -1, EOS: -1, Unknown: -1, Padding: -1}
	for text, id := range file.Model.Vocab {
		v.Tokens[id] = vocab.Token{Text: text, Kind: vocab.Normal}
	}
	for _, a := range file.AddedTokens {
		v.Tokens[a.ID] = vocab.Token{Text: a.Content, Kind: vocab.UserDefined}
		if a.Special {
			v.Tokens[a.ID].Kind = vocab.Control
		}
	}
	for _, m := range file.Model.Merges {
		v.Merges = append(v.Merges, m[0]+" "+m[1])
	}
	return v
}

// TestPreTokenizers: the ids with a pre-tokenizer by name are those that the
// reference finds with the one that the model's own tokenizer.json has.
func TestPreTokenizers(t *testing.T) {
	l := golden(t)
	for _, p := range l.Pre {
		t.Run(p.Name, func(t *testing.T) {
			v := tinyQwen3(t)
			v.Pre = p.Name
			l.compare(t, parse(t, v), p.Hashes)
		})
	}
}

// TestGemma3 rebuilds the tokenizer of Gemma 3 from its tokens and scores: all
// 514,906 merges, in order. The scores are taken from the order of the merges, as
// GGUF files have them: minus the place among the normal tokens that are merged.
func TestGemma3(t *testing.T) {
	dir := tokenizertest.Gemma3(t)
	data, err := os.ReadFile(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	v := fromJSON(t, data)
	v.Tokens = v.Tokens[:262144] // the last one is not of the model
	defined := map[string]bool{}
	for _, tok := range v.Tokens {
		defined[tok.Text] = tok.Kind != vocab.Normal
	}
	scores := map[string]float32{}
	for _, m := range v.Merges {
		text := strings.Replace(m, " ", "", 1)
		if _, ok := scores[text]; !ok && !defined[text] {
			scores[text] = -float32(len(scores))
		}
	}
	for i, tok := range v.Tokens {
		switch {
		case tok.Kind != vocab.Normal:
			v.Tokens[i].Text = strings.ReplaceAll(tok.Text, "▁", " ") // as GGUF has it
			v.Tokens[i].Score = -1000
		case len(tok.Text) == 6 && strings.HasPrefix(tok.Text, "<0x"):
			v.Tokens[i].Kind = vocab.Byte
		default:
			v.Tokens[i].Score = scores[tok.Text]
		}
	}
	merges := v.Merges
	v.Model, v.Merges = "llama", nil
	v.BOS, v.EOS, v.Unknown, v.Padding, v.AddBOS = 2, 1, 3, 0, true
	made, err := v.TokenizerJSON()
	if err != nil {
		t.Fatal(err)
	}
	if got := fromJSON(t, made).Merges; !slices.Equal(got, merges) {
		n := 0
		for n < min(len(got), len(merges)) && got[n] == merges[n] {
			n++
		}
		t.Errorf("%d merges, want %d; merge %d is the first to differ", len(got), len(merges), n)
	}
	ours, err := tokenizer.Parse(made)
	if err != nil {
		t.Fatal(err)
	}
	real, err := tokenizer.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range golden(t).strings {
		if got, want := ours.Encode(s, true), real.Encode(s, true); !slices.Equal(got, want) {
			t.Errorf("Encode(%+q) = %v, want %v", s, got, want)
		}
	}
}

// TestWrite is the Go half of testdata/make.py --check, which sets the
// environment variable to a folder.
func TestWrite(t *testing.T) {
	dir := os.Getenv("ANEMONE_VOCAB_WRITE")
	if dir == "" {
		t.Skip("run by testdata/make.py --check")
	}
	l := golden(t)
	all := map[string]*vocab.Vocabulary{}
	for _, m := range l.Models {
		v, err := vocab.ReadSentencePiece(m.Model)
		if err != nil {
			t.Fatal(err)
		}
		all[m.Name] = v
	}
	for _, p := range l.Pre {
		v := tinyQwen3(t)
		v.Pre = p.Name
		all[p.Name] = v
	}
	for name, v := range all {
		data, err := v.TokenizerJSON()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name+".json"), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
