package vocab_test

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"anemone/internal/tokenizer"
	"anemone/internal/tokenizer/vocab"
)

// small is a vocabulary of SentencePiece's byte pair encoding.
func small() *vocab.Vocabulary {
	return &vocab.Vocabulary{
		Model: "llama",
		Tokens: []vocab.Token{
			{Text: "<unk>", Kind: vocab.Unknown}, {Text: "<s>", Kind: vocab.Control}, {Text: "</s>", Kind: vocab.Control},
			{Text: "▁", Score: -10, Kind: vocab.Normal}, {Text: "a", Score: -11, Kind: vocab.Normal}, {Text: "b", Score: -12, Kind: vocab.Normal},
			{Text: "ab", Score: -1, Kind: vocab.Normal}, {Text: "▁a", Score: 0, Kind: vocab.Normal}, {Text: "▁ab", Score: -2, Kind: vocab.Normal},
			{Text: "<x y>", Score: -1000, Kind: vocab.UserDefined}, {Text: "spare", Kind: vocab.Unused},
		},
		BOS: 1, EOS: 2, Unknown: 0, Padding: -1, AddBOS: true,
	}
}

// TestLlama: ids by hand. The merge of the highest score goes first: "▁a" (0)
// before "ab" (-1).
func TestLlama(t *testing.T) {
	plain := small()
	prefixed := small()
	prefixed.AddSpacePrefix, prefixed.AddEOS = true, true
	for _, c := range []struct {
		v    *vocab.Vocabulary
		text string
		want []int32
	}{
		{plain, "", []int32{1}},
		{plain, "ab", []int32{1, 6}},
		{plain, " ab", []int32{1, 8}},
		{plain, "aab", []int32{1, 4, 6}},
		{plain, "ac", []int32{1, 4, 0}},
		{plain, "accca", []int32{1, 4, 0, 4}}, // unknown characters together are one
		{plain, "a<x y>b", []int32{1, 4, 9, 5}},
		{plain, "</s>a", []int32{1, 2, 4}},
		{plain, "<unk>", []int32{1, 0}},
		{prefixed, "", []int32{1, 2}},
		{prefixed, "ab", []int32{1, 8, 2}},
		{prefixed, " ab", []int32{1, 3, 8, 2}},
		{prefixed, "ab</s>ab", []int32{1, 8, 2, 8, 2}}, // before each stretch
	} {
		tok := parse(t, c.v)
		if got := tok.Encode(c.text, true); !slices.Equal(got, c.want) {
			t.Errorf("prefix %v: Encode(%q) = %v, want %v", c.v.AddSpacePrefix, c.text, got, c.want)
		}
	}
	tok := parse(t, plain)
	if _, ok := tok.ID("spare"); ok {
		t.Error("an unused token is in the file")
	}
	if s := parse(t, prefixed).Decode([]int32{1, 8, 9, 8}, true); s != "ab<x y> ab" {
		t.Errorf("Decode = %q", s)
	}
}

// TestExtraSpaces: what RemoveExtraSpaces does, by its description.
func TestExtraSpaces(t *testing.T) {
	for _, model := range []string{"llama", "unigram", "t5"} {
		v := small()
		v.Model, v.RemoveExtraSpaces, v.AddSpacePrefix = model, true, true
		tok := parse(t, v)
		want := tok.Encode("a b", false)
		if len(want) < 3 {
			t.Fatalf("ids %v", want)
		}
		for _, s := range []string{" a b", "   a    b  ", "a  b "} {
			if got := tok.Encode(s, false); !slices.Equal(got, want) {
				t.Errorf("%s: Encode(%q) = %v, want %v", model, s, got, want)
			}
		}
		if got := tok.Encode("   ", false); len(got) != 0 {
			t.Errorf("%s: spaces alone have ids %v", model, got)
		}
	}
}

// TestGPT2Unused: a token marked as unused stays if merges need it.
func TestGPT2Unused(t *testing.T) {
	v := &vocab.Vocabulary{Model: "gpt2", Pre: "gpt-2", BOS: -1, EOS: -1, Unknown: -1, Padding: -1,
		Tokens: []vocab.Token{{Text: "a", Kind: vocab.Normal}, {Text: "b", Kind: vocab.Unused}, {Text: "ab", Kind: vocab.Normal},
			{Text: "[PAD3]", Kind: vocab.Unused}, {Text: "[PAD3]", Kind: vocab.Unused}, {Text: "<end>", Kind: vocab.Control}},
		Merges: []string{"a b"}}
	tok := parse(t, v)
	if got := tok.Encode("ab<end>b", false); !slices.Equal(got, []int32{2, 5, 1}) {
		t.Errorf("ids %v, want [2 5 1]", got)
	}
	if _, ok := tok.ID("[PAD3]"); ok {
		t.Error("[PAD3] is in the file")
	}
	if n := tok.VocabSize(); n != 6 {
		t.Errorf("VocabSize() = %d, want 6", n)
	}
}

func TestTokenizerConfig(t *testing.T) {
	v := small()
	v.MaxLength = 32768
	data, err := v.TokenizerConfig(`{{ "<s>" }}`)
	if err != nil {
		t.Fatal(err)
	}
	want := `{
  "add_bos_token": true,
  "add_eos_token": false,
  "bos_token": "<s>",
  "chat_template": "{{ \"<s>\" }}",
  "clean_up_tokenization_spaces": false,
  "eos_token": "</s>",
  "model_max_length": 32768,
  "tokenizer_class": "PreTrainedTokenizerFast",
  "unk_token": "<unk>"
}
`
	if string(data) != want {
		t.Errorf("TokenizerConfig:\n%s\nwant:\n%s", data, want)
	}
	v.MaxLength, v.BOS, v.AddBOS = 0, -1, false
	if data, err = v.TokenizerConfig(""); err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	if fields["model_max_length"] != 1e30 || fields["bos_token"] != nil || fields["chat_template"] != nil {
		t.Errorf("without values: %s", data)
	}
	if _, err := v.TokenizerConfig("\xff"); err == nil || !strings.Contains(err.Error(), "UTF-8") {
		t.Errorf("template that is not UTF-8: %v", err)
	}
}

func TestDefaults(t *testing.T) {
	for _, c := range []struct {
		model, pre               string
		bos, eos, unk, pad       int
		addBOS, addEOS, addSpace bool
	}{
		{"llama", "default", 1, 2, 0, -1, true, false, true},
		{"gpt2", "llama-bpe", -1, -1, -1, -1, true, false, false},
		{"gpt2", "qwen2", -1, -1, -1, -1, false, false, false},
		{"t5", "", -1, 1, 2, 0, false, true, true},
		{"bert", "", -1, -1, -1, -1, false, false, false},
	} {
		v := vocab.Defaults(c.model, c.pre)
		if v.Model != c.model || v.Pre != c.pre || v.BOS != c.bos || v.EOS != c.eos || v.Unknown != c.unk || v.Padding != c.pad ||
			v.AddBOS != c.addBOS || v.AddEOS != c.addEOS || v.AddSpacePrefix != c.addSpace {
			t.Errorf("Defaults(%q, %q) = %+v", c.model, c.pre, v)
		}
	}
}

func TestErrors(t *testing.T) {
	long := strings.Repeat("a", 257)
	for _, c := range []struct {
		name   string
		change func(v *vocab.Vocabulary)
		want   string
	}{
		{"no tokens", func(v *vocab.Vocabulary) { v.Tokens = nil }, "no tokens"},
		{"model", func(v *vocab.Vocabulary) { v.Model = "bert" }, `model "bert" is not known; known: gpt2, llama, unigram (t5)`},
		{"pre", func(v *vocab.Vocabulary) { v.Model, v.Pre = "gpt2", "viking" }, `pre-tokenizer "viking" is not known; known: default, gpt-2, llama-bpe, `},
		{"UTF-8", func(v *vocab.Vocabulary) { v.Tokens[4].Text = "\xc3" }, `token 4, "\xc3", is not UTF-8`},
		{"kind 0", func(v *vocab.Vocabulary) { v.Tokens[4].Kind = 0 }, "of kind 0; want 1 (normal) to 6 (byte)"},
		{"kind 7", func(v *vocab.Vocabulary) { v.Tokens[4].Kind = 7 }, "of kind 7"},
		{"NaN", func(v *vocab.Vocabulary) { v.Tokens[4].Score = float32(math.NaN()) }, "score NaN"},
		{"infinite", func(v *vocab.Vocabulary) { v.Tokens[4].Score = float32(math.Inf(-1)) }, "score -Inf"},
		{"same", func(v *vocab.Vocabulary) { v.Tokens[5].Text = "a" }, `tokens 4 and 5 are both "a"`},
		{"same after spelling", func(v *vocab.Vocabulary) { v.Tokens[9].Text = " " }, `tokens 3 and 9 are both "▁"`},
		{"BOS", func(v *vocab.Vocabulary) { v.BOS = 11 }, "the BOS token is 11 of 11 tokens"},
		{"padding", func(v *vocab.Vocabulary) { v.Padding = -2 }, "the padding token is -2 of"},
		{"EOS", func(v *vocab.Vocabulary) { v.EOS, v.AddEOS = -1, true }, "the EOS token is needed"},
		{"unknown", func(v *vocab.Vocabulary) { v.Model, v.Unknown = "unigram", -1 }, "the unknown token is needed"},
		{"long control token", func(v *vocab.Vocabulary) { v.Tokens[1].Text = strings.Repeat("a", 513) }, "token 1 has 513 bytes: more than 512"},
		{"long user-defined token", func(v *vocab.Vocabulary) { v.Tokens[9].Text = strings.Repeat(" ", 171) }, "token 9 has 513 bytes: more than 512"},
		{"long unigram token", func(v *vocab.Vocabulary) { v.Model, v.Tokens[4].Text = "unigram", strings.Repeat("a", 513) }, "token 4 has 513 bytes: more than 512"},
		{"much text", func(v *vocab.Vocabulary) {
			v.Model = "gpt2"
			v.Tokens = append(v.Tokens, slices.Repeat([]vocab.Token{{Text: strings.Repeat("a", 1<<15), Kind: vocab.Normal}}, 1024)...)
		}, "more than 33554432 bytes in all"},
		{"much text in merges", func(v *vocab.Vocabulary) {
			v.Model, v.Merges = "gpt2", slices.Repeat([]string{strings.Repeat("a", 1<<15)}, 1025)
		}, "merges of more than 33554432 bytes in all"},
		{"much to look for", func(v *vocab.Vocabulary) {
			for i := range 1 << 15 {
				v.Tokens = append(v.Tokens, vocab.Token{Text: strings.Repeat("a", 250) + strconv.Itoa(100_000+i), Kind: vocab.Normal})
			}
		}, "too many and too long to look for merges"},
		{"name of a model without end", func(v *vocab.Vocabulary) { v.Model = strings.Repeat("x", 9999) }, `model "` + strings.Repeat("x", 100) + `" is not known`},
		{"long token", func(v *vocab.Vocabulary) { v.Tokens[4].Text = strings.Repeat("a", 1<<16+1) }, "token 4 has 65537 bytes"},
		{"long merge", func(v *vocab.Vocabulary) { v.Tokens[4].Text = long }, "token 4 has 257 bytes: more than 256"},
		{"table that is cut off", func(v *vocab.Vocabulary) { v.CharsMap = []byte{8, 0, 0, 0, 1} }, "precompiled_charsmap says that its trie has 8 bytes, and 1 follow"},
		{"table", func(v *vocab.Vocabulary) { v.CharsMap = make([]byte, 750_001) }, "charsmap of 750001 bytes"},
		{"merge without space", func(v *vocab.Vocabulary) { v.Model, v.Pre, v.Merges = "gpt2", "gpt-2", []string{"a b", "ab"} }, `merge 1 is "ab"; want two tokens`},
		{"empty merge", func(v *vocab.Vocabulary) { v.Model, v.Pre, v.Merges = "gpt2", "gpt-2", []string{""} }, `merge 0 is ""`},
		{"half a merge", func(v *vocab.Vocabulary) { v.Model, v.Pre, v.Merges = "gpt2", "gpt-2", []string{"a "} }, `merge 0 is "a "`},
		{"other half", func(v *vocab.Vocabulary) { v.Model, v.Pre, v.Merges = "gpt2", "gpt-2", []string{" a"} }, `merge 0 is " a"`},
		{"merge of three", func(v *vocab.Vocabulary) { v.Model, v.Pre, v.Merges = "gpt2", "gpt-2", []string{"a b a"} }, `"b a" is not among the tokens`},
		{"unknown merge", func(v *vocab.Vocabulary) { v.Model, v.Pre, v.Merges = "gpt2", "gpt-2", []string{"b a"} }, `merge 0 of "b" and "a": "ba" is not among the tokens`},
		{"many control", func(v *vocab.Vocabulary) {
			v.Tokens = append(v.Tokens, slices.Repeat([]vocab.Token{{Kind: vocab.Control}}, 1<<16)...)
		}, "more than 65536 control"},
		{"many tokens", func(v *vocab.Vocabulary) { v.Tokens = slices.Repeat(v.Tokens, 100_000) }, "1100000 tokens: more than 1048576"},
		{"many merges", func(v *vocab.Vocabulary) {
			v.Model, v.Pre, v.Merges = "gpt2", "gpt-2", slices.Repeat([]string{"a b"}, 1<<20+1)
		}, "1048577 merges"},
		{"many made merges", func(v *vocab.Vocabulary) {
			// Each token of n letters is made in n - 1 ways.
			for i := range 1 << 15 {
				v.Tokens = append(v.Tokens, vocab.Token{Text: strings.Repeat(string(rune(0x4E00+i/85)), i%85+1), Kind: vocab.Normal})
			}
		}, "more than 1048576 merges"},
	} {
		v := small()
		c.change(v)
		data, err := v.TokenizerJSON()
		if err == nil || data != nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "vocab: ") {
			t.Errorf("%s: %.200v, want an error with %q", c.name, err, c.want)
		}
	}
	v := small()
	v.EOS = 100
	if _, err := v.TokenizerConfig(""); err == nil || !strings.Contains(err.Error(), "EOS") {
		t.Errorf("TokenizerConfig: %v", err)
	}
}

// message is a protocol buffer message with one field.
func message(num protowire.Number, typ protowire.Type, value any) []byte {
	b := protowire.AppendTag(nil, num, typ)
	switch v := value.(type) {
	case string:
		return protowire.AppendString(b, v)
	case []byte:
		return protowire.AppendBytes(b, v)
	case int:
		return protowire.AppendVarint(b, uint64(v))
	}
	return protowire.AppendFixed32(b, math.Float32bits(value.(float32)))
}

func piece(text string, score float32, kind int) []byte {
	return message(1, protowire.BytesType, bytes.Join([][]byte{
		message(1, protowire.BytesType, text), message(2, protowire.Fixed32Type, score), message(3, protowire.VarintType, kind)}, nil))
}

func TestReadSentencePieceDefaults(t *testing.T) {
	// Nothing but pieces: all else has the value that the format says, and
	// unknown fields are read over.
	data := slices.Concat(piece("<unk>", 0, 2), piece("<s>", 0, 3), piece("</s>", 0, 1), piece("<pad>", 0, 3),
		message(1, protowire.BytesType, message(1, protowire.BytesType, "a")), message(99, protowire.VarintType, 5))
	v, err := vocab.ReadSentencePiece(data)
	if err != nil {
		t.Fatal(err)
	}
	if v.Model != "unigram" || !v.AddSpacePrefix || !v.RemoveExtraSpaces || v.AddBOS || v.AddEOS || v.CharsMap != nil {
		t.Errorf("read %+v", v)
	}
	// "</s>" is no control token here, so it does not end a text.
	if v.Unknown != 0 || v.BOS != 1 || v.EOS != -1 || v.Padding != 3 {
		t.Errorf("ids %d, %d, %d, %d; want 0, 1, -1, 3", v.Unknown, v.BOS, v.EOS, v.Padding)
	}
	if want := (vocab.Token{Text: "a", Kind: vocab.Normal}); v.Tokens[4] != want {
		t.Errorf("piece 4 = %+v, want %+v", v.Tokens[4], want)
	}
}

func TestReadSentencePieceErrors(t *testing.T) {
	ok := piece("<unk>", 0, 2)
	trainer := func(b []byte) []byte { return append(ok, message(2, protowire.BytesType, b)...) }
	normalizer := func(b []byte) []byte { return append(ok, message(3, protowire.BytesType, b)...) }
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{"empty", nil, "no pieces"},
		{"text", []byte("{\"model\": 1}"), "at byte"},
		{"only others", message(99, protowire.VarintType, 5), "no pieces"},
		{"cut off", ok[:len(ok)-3], "field 1 at byte 0"},
		{"length", []byte{0x0A, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F}, "field 1 at byte 0"},
		{"wire type", message(1, protowire.VarintType, 1), "wire type 0, want 2"},
		{"piece cut off", message(1, protowire.BytesType, []byte{0x0A, 9}), "piece 0: field 1 at byte 0"},
		{"piece kind", piece("a", 0, 7), "piece 0: type 7; want 1 (NORMAL) to 6 (BYTE)"},
		{"piece kind 0", piece("a", 0, 0), "piece 0: type 0"},
		{"score as text", message(1, protowire.BytesType, message(2, protowire.BytesType, "1")), "field 2 at byte 0 has wire type 2, want 5"},
		{"word model", trainer(message(3, protowire.VarintType, 3)), "trainer_spec: model type 3 (WORD) is not supported"},
		{"model 9", trainer(message(3, protowire.VarintType, 9)), "model type 9 () is not supported"},
		{"suffix", trainer(message(24, protowire.VarintType, 1)), "treat_whitespace_as_suffix"},
		{"spaces", normalizer(message(5, protowire.VarintType, 0)), "escape_whitespaces"},
		{"group", append(ok, 0x1B), "field 3 at byte"},
	} {
		_, err := vocab.ReadSentencePiece(c.data)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "tokenizer.model: ") {
			t.Errorf("%s: %v, want an error with %q", c.name, err, c.want)
		}
	}
}

// use writes what was read, if that is possible, and encodes a text with it.
func use(t *testing.T, v *vocab.Vocabulary) {
	if _, err := v.TokenizerConfig("x"); err != nil {
		return
	}
	data, err := v.TokenizerJSON()
	if err != nil {
		return
	}
	if !json.Valid(data) {
		t.Fatalf("not JSON: %s", data)
	}
	tok, err := tokenizer.Parse(data)
	if err != nil {
		t.Fatalf("cannot be read: %v\n%s", err, data)
	}
	for _, id := range tok.Encode("ab <x> é\n  a", true) {
		if _, ok := tok.Token(id); !ok {
			t.Fatalf("id %d has no token", id)
		}
	}
}

func FuzzReadSentencePiece(f *testing.F) {
	l, err := load()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(slices.Concat(piece("<unk>", 0, 2), piece("▁a", -1, 1), piece("<x>", 0, 4), piece("<0x41>", 0, 6)))
	for _, m := range l.Models {
		f.Add(m.Model)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := vocab.ReadSentencePiece(data)
		if err != nil {
			return
		}
		use(t, v)
	})
}

// FuzzTokenizerJSON makes vocabularies of lines: the kind, the score, the text.
func FuzzTokenizerJSON(f *testing.F) {
	// The unknown token and the end of a text are unused tokens.
	f.Add("llama", "", "1 0 a\n5 0 z", "", int16(1), byte(0xFF))
	for _, model := range []string{"llama", "unigram", "gpt2"} {
		f.Add(model, "gpt-2", "2 0 <unk>\n3 0 <s>\n1 5 a\n1 4 b\n1 9 ab\n4 1 <x y>\n5 0 z\n6 0 <0x41>\n1 1 \"\\\x01", "a b", int16(0), byte(0xFF))
	}
	f.Add("gpt2", "smollm", "1 0 a\n1 0 Ġ\n1 0 Ġa", "Ġ a\na b", int16(-1), byte(0))
	f.Fuzz(func(t *testing.T, model, pre, lines, merges string, special int16, flags byte) {
		v := &vocab.Vocabulary{Model: model, Pre: pre, Merges: strings.Split(merges, "\n"),
			BOS: int(special), EOS: int(special), Unknown: int(special), Padding: int(special), AddBOS: flags&1 != 0, AddEOS: flags&2 != 0,
			AddSpacePrefix: flags&4 != 0, RemoveExtraSpaces: flags&8 != 0}
		for line := range strings.SplitSeq(lines, "\n") {
			if len(line) > 4 {
				v.Tokens = append(v.Tokens, vocab.Token{Kind: vocab.Kind(line[0] - '0'), Score: float32(int8(line[2])), Text: line[4:]})
			}
		}
		use(t, v)
	})
}
