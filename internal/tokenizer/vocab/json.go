package vocab

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"anemone/internal/tokenizer"
)

// TokenizerJSON returns the tokenizer.json that gives texts the ids that the
// vocabulary means. It has the form that Hugging Face's converters give to the
// same vocabulary.
//
//   - "gpt2": the pre-tokenizer that Pre names, the merges as they are.
//   - "llama": the merges are all ways to make a token of two others, ordered by
//     the score of the token; byte tokens make a fallback. A space prefix is put
//     before each stretch of text between special tokens, as llama.cpp and
//     Hugging Face's Llama files have it; SentencePiece itself, which knows no
//     special tokens, puts one before the whole.
//   - "unigram": the scores as they are.
//
// User-defined and control tokens are found in texts wherever they stand.
// Unused tokens are left out where their ids are not needed by others.
func (v *Vocabulary) TokenizerJSON() ([]byte, error) {
	if err := v.check(); err != nil {
		return nil, err
	}
	if err := v.checkCharsMap(); err != nil {
		return nil, err
	}
	size := 1 << 12
	for _, t := range v.Tokens {
		size += 5*len(t.Text) + 32
	}
	b := make([]byte, 0, size)
	b = append(b, `{"version":"1.0","truncation":null,"padding":null,"added_tokens":`...)
	b = v.appendAdded(b)
	var err error
	switch v.Model {
	case "gpt2":
		b, err = v.appendGPT2(b)
	case "llama":
		b, err = v.appendLlama(b)
	case "unigram", "t5":
		b = v.appendUnigram(b)
	default:
		err = fmt.Errorf("vocab: model %.100q is not known; known: gpt2, llama, unigram (t5)", v.Model)
	}
	if err != nil {
		return nil, err
	}
	return append(b, "}\n"...), nil
}

// checkCharsMap has the table of normalization read by who will have to.
func (v *Vocabulary) checkCharsMap() error {
	if len(v.CharsMap) == 0 || v.Model == "gpt2" {
		return nil
	}
	b := []byte(`{"model":{"type":"Unigram","unk_id":0,"vocab":[["a",0]]},"normalizer":{"type":"Precompiled","precompiled_charsmap":"`)
	b = append(base64.StdEncoding.AppendEncode(b, v.CharsMap), `"}}`...)
	if _, err := tokenizer.Parse(b); err != nil {
		return fmt.Errorf("vocab: %w", err)
	}
	return nil
}

// special reports whether a token is left out when text is wanted.
func (v *Vocabulary) special(id int) bool {
	kind := v.Tokens[id].Kind
	return kind == Control || kind == Unknown || id == v.BOS || id == v.EOS || id == v.Unknown || id == v.Padding
}

// added reports whether a token is one of added_tokens.
func (v *Vocabulary) added(id int) bool {
	return v.Tokens[id].Text != "" && (v.special(id) || v.Tokens[id].Kind == UserDefined)
}

func (v *Vocabulary) appendAdded(b []byte) []byte {
	b = append(b, '[')
	for id := range v.Tokens {
		if !v.added(id) {
			continue
		}
		special, text := v.special(id), v.text(id)
		// The text between added tokens is searched for spaces before they
		// are spelled, unless the token asks to be looked for afterwards. Runs of
		// nothing but spaces are merged instead, as in Gemma's file.
		normalized := v.Model != "gpt2" && !special && !v.AddSpacePrefix && strings.Contains(text, space) &&
			strings.Trim(text, space) != ""
		b = fmt.Appendf(b, `{"id":%d,"content":`, id)
		b = appendString(b, text)
		b = fmt.Appendf(b, `,"single_word":false,"lstrip":false,"rstrip":false,"normalized":%v,"special":%v},`, normalized, special)
	}
	return closeList(b, ']')
}

// closeList ends a list whose last element may be followed by a comma.
func closeList(b []byte, end byte) []byte {
	if b[len(b)-1] == ',' {
		b = b[:len(b)-1]
	}
	return append(b, end)
}

// appendTemplate appends the post_processor that puts BOS and EOS around a
// text, after the processors in first, each followed by a comma.
func (v *Vocabulary) appendTemplate(b []byte, first string) []byte {
	b = append(b, `,"post_processor":`...)
	if !v.AddBOS && !v.AddEOS {
		if first == "" {
			return append(b, "null"...)
		}
		return append(b, strings.TrimSuffix(first, ",")...)
	}
	if first != "" {
		b = append(append(b, `{"type":"Sequence","processors":[`...), first...)
	}
	piece := func(id, kind int) {
		b = append(b, `{"SpecialToken":{"id":`...)
		b = appendString(b, v.text(id))
		b = fmt.Appendf(b, `,"type_id":%d}},`, kind)
	}
	sequence := func(name string, kind int) {
		if v.AddBOS {
			piece(v.BOS, kind)
		}
		b = fmt.Appendf(b, `{"Sequence":{"id":%q,"type_id":%d}},`, name, kind)
		if v.AddEOS {
			piece(v.EOS, kind)
		}
	}
	b = append(b, `{"type":"TemplateProcessing","single":[`...)
	sequence("A", 0)
	b = append(closeList(b, ']'), `,"pair":[`...)
	sequence("A", 0)
	sequence("B", 1)
	b = append(closeList(b, ']'), `,"special_tokens":{`...)
	define := func(id int) {
		name := appendString(nil, v.text(id))
		b = fmt.Appendf(b, `%s:{"id":%s,"ids":[%d],"tokens":[%s]},`, name, name, id, name)
	}
	if v.AddBOS {
		define(v.BOS)
	}
	if v.AddEOS && !(v.AddBOS && v.BOS == v.EOS) {
		define(v.EOS)
	}
	b = append(closeList(b, '}'), '}')
	if first != "" {
		b = append(b, "]}"...)
	}
	return b
}

// ids maps the texts of all tokens that go into the file to their ids. Unused
// tokens for which keep is false do not.
func (v *Vocabulary) ids(keep func(text string) bool) (map[string]int32, error) {
	ids := make(map[string]int32, len(v.Tokens))
	for id, t := range v.Tokens {
		text := v.text(id)
		if t.Kind == Unused && !v.special(id) && !keep(text) {
			continue
		}
		if other, ok := ids[text]; ok {
			return nil, fmt.Errorf("vocab: tokens %d and %d are both %.100q", other, id, text)
		}
		ids[text] = int32(id)
	}
	return ids, nil
}

func (v *Vocabulary) appendVocab(b []byte, ids map[string]int32) []byte {
	b = append(b, `"vocab":{`...)
	for id := range v.Tokens {
		text := v.text(id)
		if n, ok := ids[text]; !ok || int(n) != id {
			continue
		}
		b = append(appendString(b, text), ':')
		b = append(strconv.AppendInt(b, int64(id), 10), ',')
	}
	return append(closeList(b, '}'), `,"merges":[`...)
}

func appendMerge(b []byte, left, right string) []byte {
	b = append(appendString(append(b, '['), left), ',')
	return append(appendString(b, right), "],"...)
}

func (v *Vocabulary) appendGPT2(b []byte) ([]byte, error) {
	pre, err := v.preTokenizer()
	if err != nil {
		return nil, err
	}
	if len(v.Merges) > maxMerges {
		return nil, fmt.Errorf("vocab: %d merges: more than %d are not accepted", len(v.Merges), maxMerges)
	}
	needed := map[string]bool{}
	merges := make([][2]string, len(v.Merges))
	for i, m := range v.Merges {
		cut := -1
		if m != "" {
			cut = strings.IndexByte(m[1:], ' ') + 1
		}
		if cut <= 0 || cut == len(m)-1 {
			return nil, fmt.Errorf("vocab: merge %d is %.100q; want two tokens with a space between them", i, m)
		}
		merges[i] = [2]string{m[:cut], m[cut+1:]}
		needed[m[:cut]], needed[m[cut+1:]], needed[m[:cut]+m[cut+1:]] = true, true, true
	}
	ids, err := v.ids(func(text string) bool { return needed[text] })
	if err != nil {
		return nil, err
	}
	for i, m := range merges {
		for _, text := range []string{m[0], m[1], m[0] + m[1]} {
			if _, ok := ids[text]; !ok {
				return nil, fmt.Errorf("vocab: merge %d of %.100q and %.100q: %.100q is not among the tokens", i, m[0], m[1], text)
			}
		}
	}
	b = append(b, `,"normalizer":`...)
	if pre.nfc {
		b = append(b, `{"type":"NFC"}`...)
	} else {
		b = append(b, "null"...)
	}
	b = append(b, `,"pre_tokenizer":`...)
	b = pre.appendJSON(b)
	b = v.appendTemplate(b, `{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":false,"use_regex":true},`)
	b = append(b, `,"decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}`...)
	b = append(b, `,"model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,"end_of_word_suffix":null,`...)
	b = fmt.Appendf(b, `"fuse_unk":false,"byte_fallback":false,"ignore_merges":%v,`, pre.ignoreMerges)
	b = v.appendVocab(b, ids)
	for _, m := range merges {
		b = appendMerge(b, m[0], m[1])
	}
	return append(closeList(b, ']'), '}'), nil
}

func (v *Vocabulary) appendLlama(b []byte) ([]byte, error) {
	ids, err := v.ids(func(string) bool { return false })
	if err != nil {
		return nil, err
	}
	merges, err := v.scoredMerges(ids)
	if err != nil {
		return nil, err
	}
	b = v.appendSpaces(b)
	b = v.appendTemplate(b, "")
	b = v.appendDecoder(b)
	b = append(b, `,"model":{"type":"BPE","dropout":null,"unk_token":`...)
	if v.Unknown >= 0 {
		b = appendString(b, v.text(v.Unknown))
	} else {
		b = append(b, "null"...)
	}
	b = fmt.Appendf(b, `,"continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":true,"byte_fallback":%v,"ignore_merges":false,`, v.byteFallback())
	b = v.appendVocab(b, ids)
	for _, m := range merges {
		text := v.text(int(m.token))
		b = appendMerge(b, text[:m.cut], text[m.cut:])
	}
	return append(closeList(b, ']'), '}'), nil
}

func (v *Vocabulary) byteFallback() bool {
	return slices.ContainsFunc(v.Tokens, func(t Token) bool { return t.Kind == Byte })
}

// merge is a way to make a token of two others.
type merge struct {
	token       int32
	cut         int32 // bytes of the left one
	left, right int32 // characters of both
	score       float32
}

// scoredMerges returns all merges that a vocabulary with scores has, best
// first: the higher score, the longer left part, the longer right part, the
// lower id.
func (v *Vocabulary) scoredMerges(ids map[string]int32) ([]merge, error) {
	var merges []merge
	work := 0
	for id, t := range v.Tokens {
		score := t.Score
		switch {
		case t.Kind == UserDefined:
			// Found in a text as it stands, merges or not; but a run of spaces is
			// only found once they are spelled. Before all others.
			if score = 0; len(t.Text) > maxMergedLength {
				continue
			}
		case t.Kind != Normal:
			continue
		case len(t.Text) > maxMergedLength:
			return nil, fmt.Errorf("vocab: token %d has %d bytes: more than %d are not accepted of a token made by merges", id, len(t.Text), maxMergedLength)
		}
		text := v.text(id)
		if work += len(text) * len(text); work > maxMergeWork {
			return nil, fmt.Errorf("vocab: the tokens are too many and too long to look for merges in all of them")
		}
		chars := utf8.RuneCountInString(text)
		for cut, left := 0, 0; cut < len(text); left++ {
			if cut > 0 {
				if _, ok := ids[text[:cut]]; ok {
					if _, ok := ids[text[cut:]]; ok {
						if len(merges) == maxMerges {
							return nil, fmt.Errorf("vocab: more than %d merges", maxMerges)
						}
						merges = append(merges, merge{int32(id), int32(cut), int32(left), int32(chars - left), score})
					}
				}
			}
			_, n := utf8.DecodeRuneInString(text[cut:])
			cut += n
		}
	}
	slices.SortStableFunc(merges, func(a, b merge) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(b.left, a.left), cmp.Compare(b.right, a.right))
	})
	return merges, nil
}

// appendSpaces appends the normalizer and the pre_tokenizer of a SentencePiece
// model.
func (v *Vocabulary) appendSpaces(b []byte) []byte {
	b = append(b, `,"normalizer":{"type":"Sequence","normalizers":[`...)
	if len(v.CharsMap) > 0 {
		b = append(b, `{"type":"Precompiled","precompiled_charsmap":"`...)
		b = base64.StdEncoding.AppendEncode(b, v.CharsMap)
		b = append(b, `"},`...)
	}
	if v.RemoveExtraSpaces {
		b = append(b, `{"type":"Replace","pattern":{"Regex":"\\A +| +\\z"},"content":""},`...)
		b = append(b, `{"type":"Replace","pattern":{"Regex":" {2,}"},"content":" "},`...)
	}
	if v.AddSpacePrefix {
		b = append(b, `{"type":"Prepend","prepend":"▁"},`...)
	}
	b = append(b, `{"type":"Replace","pattern":{"String":" "},"content":"▁"}]},"pre_tokenizer":`...)
	switch {
	case v.unigram():
		// Words apart, so that one found before need not be looked at again:
		// it changes nothing where no token goes on behind a space.
		words := !slices.ContainsFunc(v.Tokens, func(t Token) bool {
			return t.Kind == Normal && strings.Contains(strings.TrimPrefix(t.Text, space), space)
		})
		return fmt.Appendf(b, `{"type":"Metaspace","replacement":"▁","prepend_scheme":"never","split":%v}`, words)
	case !v.AddSpacePrefix:
		// Gemma's, which never finds a space to split at.
		return append(b, `{"type":"Split","pattern":{"String":" "},"behavior":"MergedWithPrevious","invert":false}`...)
	}
	return append(b, "null"...)
}

func (v *Vocabulary) appendDecoder(b []byte) []byte {
	b = append(b, `,"decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},`...)
	if v.byteFallback() {
		b = append(b, `{"type":"ByteFallback"},`...)
	}
	b = append(b, `{"type":"Fuse"},`...)
	if v.AddSpacePrefix {
		b = append(b, `{"type":"Strip","content":" ","start":1,"stop":0},`...)
	}
	return append(closeList(b, ']'), '}')
}

func (v *Vocabulary) appendUnigram(b []byte) []byte {
	b = v.appendSpaces(b)
	b = v.appendTemplate(b, "")
	b = v.appendDecoder(b)
	b = fmt.Appendf(b, `,"model":{"type":"Unigram","unk_id":%d,"vocab":[`, v.Unknown)
	for id, t := range v.Tokens {
		b = append(appendString(append(b, '['), v.text(id)), ',')
		b = append(strconv.AppendFloat(b, float64(t.Score), 'g', -1, 64), "],"...)
	}
	return fmt.Appendf(closeList(b, ']'), `,"byte_fallback":%v}`, v.byteFallback())
}

// appendString appends a JSON string. s is UTF-8.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ':
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// unlimited is what Hugging Face's libraries write for a length that is not
// known.
const unlimited = "1000000000000000019884624838656"

// TokenizerConfig returns the tokenizer_config.json that belongs beside
// TokenizerJSON's result: the special tokens by name and, if it is not empty,
// the chat template (Jinja).
func (v *Vocabulary) TokenizerConfig(chatTemplate string) ([]byte, error) {
	if err := v.check(); err != nil {
		return nil, err
	}
	config := struct {
		AddBOS    bool        `json:"add_bos_token"`
		AddEOS    bool        `json:"add_eos_token"`
		BOS       string      `json:"bos_token,omitempty"`
		Template  string      `json:"chat_template,omitempty"`
		CleanUp   bool        `json:"clean_up_tokenization_spaces"`
		EOS       string      `json:"eos_token,omitempty"`
		MaxLength json.Number `json:"model_max_length"`
		Padding   string      `json:"pad_token,omitempty"`
		// The class that takes tokenizer.json as it is.
		Class   string `json:"tokenizer_class"`
		Unknown string `json:"unk_token,omitempty"`
	}{AddBOS: v.AddBOS, AddEOS: v.AddEOS, Template: chatTemplate, MaxLength: unlimited, Class: "PreTrainedTokenizerFast"}
	if !utf8.ValidString(chatTemplate) {
		return nil, fmt.Errorf("vocab: the chat template is not UTF-8")
	}
	for _, s := range []struct {
		to *string
		id int
	}{{&config.BOS, v.BOS}, {&config.EOS, v.EOS}, {&config.Padding, v.Padding}, {&config.Unknown, v.Unknown}} {
		if s.id >= 0 {
			*s.to = v.text(s.id)
		}
	}
	if v.MaxLength > 0 {
		config.MaxLength = json.Number(strconv.Itoa(v.MaxLength))
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(config); err != nil {
		return nil, fmt.Errorf("vocab: tokenizer_config.json: %w", err)
	}
	return []byte(b.String()), nil
}
