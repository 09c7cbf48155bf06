package tokenizer

import (
	"slices"
	"testing"

	"anemone/internal/tokenizer/tokenizertest"
)

// gemma3Goldens is testdata/gemma3.json.gz; testdata/make_gemma3.py says what
// is in it.
type gemma3Goldens struct {
	Hashes string
	IDs    [][]int32
	Picks  [][]int32
	Picked string
	Long   longGolden
}

// TestGoldenGemma3 compares with the real tokenizer of Gemma 3 the ids of the
// strings and the long text that Qwen3's are compared on.
func TestGoldenGemma3(t *testing.T) {
	tok, err := Open(tokenizertest.Gemma3(t))
	if err != nil {
		t.Fatal(err)
	}
	g := golden(t)
	var want gemma3Goldens
	if err := readGoldens("gemma3.json.gz", &want); err != nil {
		t.Fatal(err)
	}
	if len(want.Hashes) != 6*len(g.Strings) || len(want.IDs) != (len(g.Strings)+19)/20 || len(want.Picks) < 200 || len(want.Picked) != 6*len(want.Picks) {
		t.Fatalf("golden data is incomplete: %d bytes of hashes for %d strings", len(want.Hashes), len(g.Strings))
	}
	if problems := tok.Problems(); len(problems) != 0 {
		t.Errorf("problems: %q", problems)
	}
	if n := tok.VocabSize(); n != 262145 {
		t.Errorf("VocabSize() = %d, want 262145", n)
	}
	for i, s := range g.Strings {
		ids := tok.Encode(s, true)
		if i%20 == 0 && !slices.Equal(ids, want.IDs[i/20]) {
			t.Errorf("Encode(%+q) = %v, want %v", s, ids, want.IDs[i/20])
			continue
		}
		text := tok.Decode(ids, true)
		if got := digest(ids, text); got != want.Hashes[6*i:6*i+6] {
			t.Errorf("Encode(%+q) = %v, decoded %+q: hash %s, want %s", s, ids, text, got, want.Hashes[6*i:6*i+6])
		}
	}
	for i, ids := range want.Picks {
		if text := tok.Decode(ids, false); digest(nil, text) != want.Picked[6*i:6*i+6] {
			t.Errorf("Decode(%v) = %+q, want a text with hash %s", ids, text, want.Picked[6*i:6*i+6])
		}
	}
	testLong(t, tok, want.Long)
}
