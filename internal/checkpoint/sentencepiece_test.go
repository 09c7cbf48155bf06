package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"reflect"
	"testing"

	"anemone/internal/tokenizer/vocab"
)

// piece is an entry of a tokenizer.model.
type piece struct {
	text  string
	score float32
	kind  vocab.Kind
}

// sentencePieceModel returns a ModelProto of a byte pair encoding model: its
// pieces (1: piece, 2: score, 3: type), trainer_spec (3: model_type) and
// normalizer_spec (4: no extra spaces removed).
func sentencePieceModel(pieces []piece) string {
	field := func(b []byte, number, wire byte, payload []byte) []byte {
		b = append(b, number<<3|wire)
		if wire == 2 {
			b = binary.AppendUvarint(b, uint64(len(payload)))
		}
		return append(b, payload...)
	}
	var model []byte
	for _, p := range pieces {
		var b []byte
		b = field(b, 1, 2, []byte(p.text))
		b = field(b, 2, 5, binary.LittleEndian.AppendUint32(nil, math.Float32bits(p.score)))
		b = field(b, 3, 0, []byte{byte(p.kind)})
		model = field(model, 1, 2, b)
	}
	model = field(model, 2, 2, field(nil, 3, 0, []byte{2}))
	return string(field(model, 3, 2, field(nil, 4, 0, []byte{0})))
}

var pieces = []piece{
	{"<unk>", 0, vocab.Unknown}, {"<s>", 0, vocab.Control}, {"</s>", 0, vocab.Control},
	{"▁a", -1, vocab.Normal}, {"▁", -2, vocab.Normal}, {"a", -3, vocab.Normal},
}

func TestSentencePiece(t *testing.T) {
	one := tensors{byteTensor("a", 1)}
	model := sentencePieceModel(pieces)
	c := open(t, folder(t, map[string]any{"model.safetensors": one, "tokenizer.model": model,
		"added_tokens.json":     map[string]int{"<|im_start|>": 6, "plain": 7},
		"tokenizer_config.json": `{"add_eos_token": true, "bos_token": {"content": "<|im_start|>"}, "eos_token": "</s>", "added_tokens_decoder": {"0": {"content": "<unk>", "special": true}, "6": {"content": "<|im_start|>", "special": true}, "8": {"content": "more", "special": false}}}`}))
	if err := c.TokenizerProblem(); err != nil {
		t.Fatal(err)
	}
	if got, want := c.Files(), []string{"tokenizer.json", "tokenizer_config.json", "tokenizer.model", "added_tokens.json"}; !reflect.DeepEqual(got, want) {
		t.Errorf("files %v, want %v", got, want)
	}
	if data, err := c.ReadFile("tokenizer.model"); err != nil || string(data) != model {
		t.Errorf("tokenizer.model: %d bytes, %v", len(data), err)
	}
	// The folder's own file stays.
	if data, err := c.ReadFile("tokenizer_config.json"); err != nil || !json.Valid(data) || !contains(data, `"add_eos_token": true`) {
		t.Errorf("tokenizer_config.json %s, %v", data, err)
	}
	data, err := c.ReadFile("tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Added []struct {
			ID      int    `json:"id"`
			Content string `json:"content"`
			Special bool   `json:"special"`
		} `json:"added_tokens"`
		Model struct {
			Type  string         `json:"type"`
			Vocab map[string]int `json:"vocab"`
		} `json:"model"`
		Processor json.RawMessage `json:"post_processor"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	special := map[string]bool{}
	for _, a := range file.Added {
		special[a.Content] = a.Special
	}
	want := map[string]bool{"<unk>": true, "<s>": true, "</s>": true, "<|im_start|>": true, "plain": false, "more": false}
	if file.Model.Type != "BPE" || file.Model.Vocab["▁a"] != 3 || !reflect.DeepEqual(special, want) {
		t.Errorf("model %+v, added %v, want %v", file.Model, special, want)
	}
	if !contains(file.Processor, "<|im_start|>") || !contains(file.Processor, "</s>") {
		t.Errorf("post-processor %s", file.Processor)
	}

	// A tokenizer.json is taken in place of tokenizer.model, be that broken.
	c = open(t, folder(t, map[string]any{"model.safetensors": one, "tokenizer.model": "x", "tokenizer.json": "{}"}))
	if data, err := c.ReadFile("tokenizer.json"); err != nil || string(data) != "{}" || c.TokenizerProblem() != nil {
		t.Errorf("%s, %v, %v", data, err, c.TokenizerProblem())
	}
	// Without tokenizer_config.json, there is one.
	c = open(t, folder(t, map[string]any{"model.safetensors": one, "tokenizer.model": model}))
	if data, err := c.ReadFile("tokenizer_config.json"); err != nil || !contains(data, `"bos_token": "<s>"`) {
		t.Errorf("tokenizer_config.json %s, %v", data, err)
	}
}

func contains(data []byte, s string) bool { return bytes.Contains(data, []byte(s)) }

func TestSentencePieceErrors(t *testing.T) {
	one := tensors{byteTensor("a", 1)}
	model := sentencePieceModel(pieces)
	for _, c := range []struct {
		name  string
		files map[string]any
		want  []string
	}{
		{"broken", map[string]any{"tokenizer.model": "\xff"}, []string{"tokenizer.model"}},
		{"empty", map[string]any{"tokenizer.model": ""}, []string{"tokenizer.model"}},
		{"gap", map[string]any{"tokenizer.model": model, "added_tokens.json": map[string]int{"x": 9}}, []string{`"x" has id 9`}},
		{"added tokens a list", map[string]any{"tokenizer.model": model, "added_tokens.json": "[]"}, []string{"added_tokens.json", "from tokens to ids"}},
		{"config not JSON", map[string]any{"tokenizer.model": model, "tokenizer_config.json": "{"}, []string{"tokenizer_config.json: not valid JSON"}},
		{"id a word", map[string]any{"tokenizer.model": model, "tokenizer_config.json": `{"added_tokens_decoder": {"one": {"content": "x"}}}`}, []string{"tokenizer_config.json", "added_tokens_decoder.one"}},
		{"flag a number", map[string]any{"tokenizer.model": model, "tokenizer_config.json": `{"add_bos_token": 1}`}, []string{"tokenizer_config.json", "add_bos_token"}},
	} {
		c.files["model.safetensors"] = one
		dir := folder(t, c.files)
		k := open(t, dir)
		wantError(t, c.name, k.TokenizerProblem(), append(c.want, dir)...)
		for _, name := range k.Files() {
			if name == "tokenizer.json" {
				t.Errorf("%s: there is a tokenizer.json", c.name)
			}
		}
	}
}

func FuzzComplete(f *testing.F) {
	f.Add([]byte(`{"added_tokens_decoder": {"0": {"content": "<unk>", "special": true}, "3": {"content": "x"}}, "bos_token": {"content": "x"}, "add_bos_token": true}`), []byte(`{"y": 4}`))
	f.Add([]byte(`{"tokenizer_class": "GemmaTokenizer", "eos_token": null, "pad_token": "<unk>"}`), []byte(`{}`))
	f.Fuzz(func(t *testing.T, configText, addedText []byte) {
		config, err := ParseConfig("tokenizer_config.json", configText)
		var added map[string]int
		if err != nil || json.Unmarshal(addedText, &added) != nil {
			return
		}
		v := &vocab.Vocabulary{Model: "llama", Tokens: []vocab.Token{{Text: "<unk>", Kind: vocab.Unknown}, {Text: "a", Kind: vocab.Normal}}, BOS: -1, EOS: -1, Padding: -1}
		if complete(v, config, added) != nil {
			return
		}
		if n := len(v.Tokens); n > 2+len(configText)+len(addedText) {
			t.Errorf("%d tokens of %d bytes", n, len(configText)+len(addedText))
		}
		for _, id := range []int{v.BOS, v.EOS, v.Unknown, v.Padding} {
			if id < -1 || id >= len(v.Tokens) {
				t.Errorf("token %d of %d", id, len(v.Tokens))
			}
		}
	})
}
