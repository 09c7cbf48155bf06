package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// UnsupportedError says that a tokenizer.json has a component that this package
// does not implement.
type UnsupportedError struct {
	Part string // where: "pre_tokenizer", "model.dropout" ...
	Type string // what was found
	Want string // what is implemented
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("%s: %s is not supported; supported: %s", e.Part, e.Type, e.Want)
}

// Parse reads the contents of a tokenizer.json.
func Parse(data []byte) (*Tokenizer, error) {
	t, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	return t, nil
}

func parse(data []byte) (*Tokenizer, error) {
	if len(data) > maxFileSize {
		return nil, fmt.Errorf("%d bytes: more than %d are not accepted", len(data), maxFileSize)
	}
	if !utf8.Valid(data) {
		return nil, fmt.Errorf("invalid UTF-8 at byte %d", validPrefix(data))
	}
	// One walk notes where the parts are: they may come in any order, and
	// each needs another one (merges the vocabulary, added tokens the
	// normalizer).
	r := &jsonReader{data: data}
	parts, model := map[string]part{}, map[string]part{}
	note := func(into map[string]part, key []byte) error {
		name, ok := partNames[string(key)]
		r.peek()
		start := r.pos
		raw, err := r.raw()
		if err == nil && ok {
			into[name] = part{raw, start}
		}
		return err
	}
	err := r.object(func(key []byte) error {
		if string(key) != "model" || r.peek() != '{' {
			return note(parts, key)
		}
		return r.object(func(key []byte) error { return note(model, key) })
	})
	if err != nil {
		return nil, err
	}
	if r.peek(); r.pos < len(data) {
		return nil, r.errorf("found %s after the end", r.found())
	}
	t := &Tokenizer{}
	p := &parser{t: t}
	if err := p.model(data, model); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	for _, step := range []struct {
		name  string
		parse func(json.RawMessage) error
	}{
		{"normalizer", p.normalizer},
		{"pre_tokenizer", p.preTokenizer},
		{"decoder", p.decoder},
		{"post_processor", p.postProcessor},
	} {
		raw := parts[step.name].raw
		if len(raw) == 0 || string(raw) == "null" {
			continue
		}
		if len(raw) > maxComponentSize {
			return nil, fmt.Errorf("%s: %d bytes: more than %d are not accepted", step.name, len(raw), maxComponentSize)
		}
		if err := step.parse(raw); err != nil {
			return nil, fmt.Errorf("%s: %w", step.name, err)
		}
	}
	if err := p.addedTokens(data, parts["added_tokens"]); err != nil {
		return nil, fmt.Errorf("added_tokens: %w", err)
	}
	for _, id := range t.prefix {
		if _, ok := t.Token(id); !ok {
			t.problems = append(t.problems, fmt.Sprintf("post_processor adds id %d, which no token has", id))
		}
	}
	if t.unigram == nil {
		t.bpe.finish(t.byteLevel)
	}
	t.scratch = sync.Pool{New: func() any { return new(scratch) }}
	return t, nil
}

// partNames are the keys that matter, of the file and of its model. Others are
// read over; truncation and padding concern batches for training.
var partNames = func() map[string]string {
	names := map[string]string{}
	for _, name := range []string{
		"added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder",
		"type", "vocab", "merges", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
		"fuse_unk", "byte_fallback", "ignore_merges", "unk_id",
	} {
		names[name] = name
	}
	return names
}()

// part is a value in the file: its text and where that starts.
type part struct {
	raw   []byte
	start int
}

func (p part) missing() bool { return len(p.raw) == 0 || string(p.raw) == "null" }

// at returns a reader of the part whose errors give places in the whole file.
func (p part) at(data []byte) *jsonReader {
	return &jsonReader{data: data[:p.start+len(p.raw)], pos: p.start}
}

// str returns the value of a string; a part that is missing is empty.
func (p part) str() (s string, err error) {
	if !p.missing() {
		err = json.Unmarshal(p.raw, &s)
	}
	return s, err
}

// flag returns the value of a boolean; a part that is missing is false.
func (p part) flag() (b bool, err error) {
	if !p.missing() {
		err = json.Unmarshal(p.raw, &b)
	}
	return b, err
}

type parser struct {
	t          *Tokenizer
	components int
	growth     int // how many times longer the normalizers can make a text
	decoded    int // and the decoder a token
}

// grow checks that a normalizer that makes a text up to factor times longer
// is within bounds, together with those before it.
func (p *parser) grow(factor int) error {
	if p.growth = max(1, p.growth) * max(1, factor); p.growth > maxGrowth {
		return fmt.Errorf("the normalizers can make a text more than %d times longer", maxGrowth)
	}
	return nil
}

// component is any normalizer, pre-tokenizer, post-processor or decoder, with
// the fields that some of them have.
type component struct {
	Type           string            `json:"type"`
	Normalizers    []json.RawMessage `json:"normalizers"`
	PreTokenizers  []json.RawMessage `json:"pretokenizers"`
	Processors     []json.RawMessage `json:"processors"`
	Decoders       []json.RawMessage `json:"decoders"`
	Pattern        json.RawMessage   `json:"pattern"`
	Content        string            `json:"content"`
	Prepend        string            `json:"prepend"`
	Behavior       string            `json:"behavior"`
	Invert         bool              `json:"invert"`
	AddPrefixSpace *bool             `json:"add_prefix_space"`
	UseRegex       *bool             `json:"use_regex"`
	Individual     bool              `json:"individual_digits"`
	Replacement    string            `json:"replacement"`
	PrependScheme  string            `json:"prepend_scheme"`
	Split          *bool             `json:"split"`
	StripLeft      bool              `json:"strip_left"`
	StripRight     bool              `json:"strip_right"`
	CharsMap       []byte            `json:"precompiled_charsmap"` // base64
	Start          int               `json:"start"`
	Stop           int               `json:"stop"`
	Single         []json.RawMessage `json:"single"`
	SpecialTokens  map[string]struct {
		IDs []int64 `json:"ids"`
	} `json:"special_tokens"`
}

func (p *parser) component(raw json.RawMessage) (*component, error) {
	if p.components++; p.components > maxComponents {
		return nil, fmt.Errorf("more than %d components", maxComponents)
	}
	c := new(component)
	if err := json.Unmarshal(raw, c); err != nil {
		return nil, err
	}
	if c.Type == "" {
		return nil, errors.New(`"type" is missing`)
	}
	return c, nil
}

// sequence calls parse for each member of a Sequence.
func sequence(list []json.RawMessage, parse func(json.RawMessage) error) error {
	for i, raw := range list {
		if err := parse(raw); err != nil {
			return fmt.Errorf("Sequence[%d]: %w", i, err)
		}
	}
	return nil
}

func (p *parser) normalizer(raw json.RawMessage) error {
	c, err := p.component(raw)
	if err != nil {
		return err
	}
	t := p.t
	switch c.Type {
	case "Sequence":
		return sequence(c.Normalizers, p.normalizer)
	case "NFC":
		t.normalizers = append(t.normalizers, unicodeForm{norm.NFC})
		return p.grow(1)
	case "NFD":
		t.normalizers = append(t.normalizers, unicodeForm{norm.NFD})
		return p.grow(3)
	case "NFKC":
		t.normalizers = append(t.normalizers, unicodeForm{norm.NFKC})
		return p.grow(11) // U+FDFA
	case "NFKD":
		t.normalizers = append(t.normalizers, unicodeForm{norm.NFKD})
		return p.grow(11)
	case "Prepend":
		if len(c.Prepend) > maxPrepend {
			return fmt.Errorf("Prepend of %d bytes: more than %d are not accepted", len(c.Prepend), maxPrepend)
		}
		t.normalizers = append(t.normalizers, prepend{c.Prepend})
	case "Strip":
		t.normalizers = append(t.normalizers, strip{c.StripLeft, c.StripRight})
	case "StripAccents":
		t.normalizers = append(t.normalizers, stripAccents{})
	case "Lowercase":
		t.normalizers = append(t.normalizers, lowercase{})
		return p.grow(2) // U+023A: from two bytes to three
	case "Precompiled":
		m, err := newCharsMap(c.CharsMap)
		if err != nil {
			return fmt.Errorf("Precompiled: %w", err)
		}
		t.normalizers = append(t.normalizers, m)
		return p.grow(m.growth)
	case "Replace":
		m, err := parsePattern(c.Pattern)
		if err != nil {
			return fmt.Errorf("Replace: %w", err)
		}
		switch m := m.(type) {
		case text:
			t.normalizers = append(t.normalizers, replaceText{string(m), c.Content})
			return p.grow((len(c.Content) + len(m) - 1) / len(m))
		case spaces:
			t.normalizers = append(t.normalizers, replacePattern{m, c.Content})
			return p.grow((len(c.Content) + 1) / 2)
		default: // may match nothing between any two characters
			t.normalizers = append(t.normalizers, replacePattern{m, c.Content})
			return p.grow(1 + len(c.Content))
		}
	default:
		return &UnsupportedError{"type", fmt.Sprintf("%q", c.Type), "Sequence, NFC, NFD, NFKC, NFKD, Replace, Prepend, Strip, StripAccents, Lowercase, Precompiled"}
	}
	return nil
}

// parsePattern reads {"String": ...} or {"Regex": ...}.
func parsePattern(raw json.RawMessage) (matcher, error) {
	var p struct{ String, Regex *string }
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, fmt.Errorf("pattern: %w", err)
	}
	switch {
	case p.Regex != nil:
		if sc := newScanner(*p.Regex); sc != nil {
			return sc, nil
		}
		switch *p.Regex {
		case ` {2,}`:
			return spaces{}, nil
		case `\A +| +\z`:
			return margins{}, nil
		}
		return compilePattern(*p.Regex)
	case p.String == nil:
		return nil, errors.New(`pattern: neither "String" nor "Regex"`)
	case *p.String == "":
		return nil, errors.New("pattern: empty string")
	}
	return text(*p.String), nil
}

func (p *parser) preTokenizer(raw json.RawMessage) error {
	c, err := p.component(raw)
	if err != nil {
		return err
	}
	t := p.t
	if t.byteLevel && c.Type != "Sequence" {
		return &UnsupportedError{"type", fmt.Sprintf("%q after ByteLevel", c.Type), "ByteLevel as the last pre-tokenizer"}
	}
	switch c.Type {
	case "Sequence":
		return sequence(c.PreTokenizers, p.preTokenizer)
	case "Split":
		b, ok := behaviors[c.Behavior]
		if !ok {
			return &UnsupportedError{"Split", fmt.Sprintf("behavior %q", c.Behavior),
				"Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous"}
		}
		m, err := parsePattern(c.Pattern)
		if err != nil {
			return fmt.Errorf("Split: %w", err)
		}
		t.splitters = append(t.splitters, &split{m, b, c.Invert})
	case "Digits":
		b := contiguous
		if c.Individual {
			b = isolated
		}
		t.splitters = append(t.splitters, &split{number{}, b, false})
	case "ByteLevel":
		// Both fields are true where they are missing.
		if c.AddPrefixSpace == nil || *c.AddPrefixSpace {
			t.splitters = append(t.splitters, prefixSpace{})
		}
		if c.UseRegex == nil || *c.UseRegex {
			t.splitters = append(t.splitters, &split{newScanner(patternGPT2), isolated, false})
		}
		t.byteLevel = true
	case "WhitespaceSplit":
		t.splitters = append(t.splitters, &split{whitespace{}, removed, false})
	case "Metaspace":
		m, err := p.metaspace(c)
		if err != nil {
			return err
		}
		for _, s := range t.splitters {
			if _, ok := s.(*metaspace); ok {
				return &UnsupportedError{"Metaspace", "a second one", "one"}
			}
		}
		t.splitters = append(t.splitters, m)
		t.needsFirst = m.prefix == prefixFirst
	default:
		return &UnsupportedError{"type", fmt.Sprintf("%q", c.Type), "Sequence, Split, Digits, ByteLevel, WhitespaceSplit, Metaspace"}
	}
	return nil
}

// metaspace reads the fields of a Metaspace, pre-tokenizer or decoder.
func (p *parser) metaspace(c *component) (*metaspace, error) {
	if utf8.RuneCountInString(c.Replacement) != 1 {
		return nil, fmt.Errorf("Metaspace: replacement %q: want one character", c.Replacement)
	}
	m := &metaspace{space: c.Replacement, words: c.Split == nil || *c.Split}
	switch c.PrependScheme {
	case "always", "":
		m.prefix = prefixAll
	case "first":
		m.prefix = prefixFirst
	case "never":
	default:
		return nil, &UnsupportedError{"Metaspace", fmt.Sprintf("prepend_scheme %q", c.PrependScheme), "always, first, never"}
	}
	if c.AddPrefixSpace != nil && !*c.AddPrefixSpace && m.prefix != prefixNone {
		return nil, fmt.Errorf(`Metaspace: add_prefix_space is false, but prepend_scheme is %q: want "never"`, c.PrependScheme)
	}
	return m, nil
}

func (p *parser) decoder(raw json.RawMessage) error {
	c, err := p.component(raw)
	if err != nil {
		return err
	}
	d := &p.t.decode
	if d.byteLevel && c.Type != "Sequence" || c.Type == "ByteLevel" && d.set {
		return &UnsupportedError{"type", fmt.Sprintf("ByteLevel together with %q", c.Type), "ByteLevel alone"}
	}
	switch c.Type {
	case "Sequence":
		if err := sequence(c.Decoders, p.decoder); err != nil {
			return err
		}
	case "ByteLevel":
		d.byteLevel = true
	case "Replace":
		m, err := parsePattern(c.Pattern)
		if err != nil {
			return fmt.Errorf("Replace: %w", err)
		}
		old, ok := m.(text)
		if !ok || d.byteFallback || d.fused {
			return &UnsupportedError{"Replace", "a regular expression, or after ByteFallback or Fuse",
				"a String pattern before both"}
		}
		if p.decoded = max(1, p.decoded) * max(1, (len(c.Content)+len(old)-1)/len(old)); p.decoded > maxGrowth {
			return fmt.Errorf("Replace: the decoder can make a token more than %d times longer", maxGrowth)
		}
		d.steps = append(d.steps, replaceText{string(old), c.Content})
	case "Metaspace":
		m, err := p.metaspace(c)
		if err != nil {
			return err
		}
		if d.byteFallback || d.fused {
			return &UnsupportedError{"Metaspace", "its place after ByteFallback or Fuse", "before both"}
		}
		d.steps = append(d.steps, m)
	case "ByteFallback":
		if d.fused {
			return &UnsupportedError{"ByteFallback", "its place after Fuse", "before Fuse"}
		}
		d.byteFallback = true
	case "Fuse":
		d.fused = true
	case "Strip":
		if !d.fused || c.Stop != 0 || c.Start < 0 || utf8.RuneCountInString(c.Content) != 1 || d.strip != 0 {
			return &UnsupportedError{"Strip", "its place or its values", `one character at the start ("stop": 0), once, after Fuse`}
		}
		d.strip, d.stripped = c.Start, c.Content
	default:
		return &UnsupportedError{"type", fmt.Sprintf("%q", c.Type), "Sequence, ByteLevel, Metaspace, Replace, ByteFallback, Fuse, Strip"}
	}
	d.set = true
	return nil
}

func (p *parser) postProcessor(raw json.RawMessage) error {
	c, err := p.component(raw)
	if err != nil {
		return err
	}
	t := p.t
	switch c.Type {
	case "Sequence":
		return sequence(c.Processors, p.postProcessor)
	case "ByteLevel": // moves offsets only
	case "TemplateProcessing":
		sequences := 0
		for i, raw := range c.Single {
			var piece struct {
				Sequence     *struct{ ID string }
				SpecialToken *struct{ ID string }
			}
			if err := json.Unmarshal(raw, &piece); err != nil {
				return fmt.Errorf("TemplateProcessing: single[%d]: %w", i, err)
			}
			if piece.Sequence != nil {
				sequences++
				continue
			}
			if piece.SpecialToken == nil {
				return fmt.Errorf("TemplateProcessing: single[%d] is neither a Sequence nor a SpecialToken", i)
			}
			special, ok := c.SpecialTokens[piece.SpecialToken.ID]
			if !ok {
				return fmt.Errorf("TemplateProcessing: single[%d]: %q is not in special_tokens", i, piece.SpecialToken.ID)
			}
			into := &t.prefix
			if sequences > 0 {
				into = &t.suffix
			}
			for _, id := range special.IDs {
				if id < 0 || id > maxID {
					return fmt.Errorf("TemplateProcessing: id %d of %q: want 0 to %d", id, piece.SpecialToken.ID, maxID)
				}
				if len(*into) >= maxSpecialIDs {
					return fmt.Errorf("TemplateProcessing: more than %d ids", maxSpecialIDs)
				}
				*into = append(*into, int32(id))
			}
		}
		if sequences != 1 {
			return fmt.Errorf("TemplateProcessing: %d sequences in single, want 1", sequences)
		}
	default:
		return &UnsupportedError{"type", fmt.Sprintf("%q", c.Type), "Sequence, TemplateProcessing, ByteLevel"}
	}
	return nil
}

func (p *parser) model(data []byte, fields map[string]part) error {
	kind, err := fields["type"].str() // files from before 2020 have none
	if err != nil {
		return fmt.Errorf("type: %w", err)
	}
	switch kind {
	case "BPE":
	case "Unigram":
		return p.unigram(data, fields)
	case "":
		if fields["merges"].missing() && !fields["unk_id"].missing() {
			return p.unigram(data, fields)
		}
	default:
		return &UnsupportedError{"type", fmt.Sprintf("%q", kind), "BPE, Unigram"}
	}
	if fields["vocab"].missing() || fields["merges"].missing() {
		return errors.New(`"vocab" or "merges" is missing: this is not byte pair encoding, or the file is cut off`)
	}
	for _, name := range []string{"continuing_subword_prefix", "end_of_word_suffix"} {
		s, err := fields[name].str()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if s != "" {
			return &UnsupportedError{name, fmt.Sprintf("%q", s), "null or empty"}
		}
	}
	if f := fields["dropout"]; !f.missing() {
		var p float64
		if err := json.Unmarshal(f.raw, &p); err != nil {
			return fmt.Errorf("dropout: %w", err)
		}
		if p != 0 {
			return &UnsupportedError{"dropout", fmt.Sprint(p), "null or 0: it makes ids random"}
		}
	}
	m := &p.t.bpe
	m.unk = -1
	unk, err := fields["unk_token"].str()
	if err != nil {
		return fmt.Errorf("unk_token: %w", err)
	}
	for _, f := range []struct {
		name string
		to   *bool
	}{{"fuse_unk", &m.fuseUnk}, {"byte_fallback", &m.byteFallback}, {"ignore_merges", &m.ignoreMerges}} {
		if *f.to, err = fields[f.name].flag(); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	if err := p.vocab(fields["vocab"].at(data)); err != nil {
		return fmt.Errorf("vocab: %w", err)
	}
	if unk != "" {
		id, ok := p.t.vocab.ids[unk]
		if !ok {
			return fmt.Errorf("unk_token: %q is not in the vocabulary", unk)
		}
		m.unk = id
	}
	if err := p.merges(fields["merges"].at(data)); err != nil {
		return fmt.Errorf("merges: %w", err)
	}
	m.vocab = &p.t.vocab
	return nil
}

// vocab reads {"token": id, ...}. All tokens share one string.
func (p *parser) vocab(r *jsonReader) error {
	type entry struct{ end, id int32 }
	var all []byte
	var entries []entry
	largest := int32(-1)
	err := r.object(func(key []byte) error {
		if len(key) > maxTokenLength {
			return r.errorf("token of %d bytes: more than %d are not accepted", len(key), maxTokenLength)
		}
		if len(entries) == maxVocabulary {
			return r.errorf("more than %d tokens", maxVocabulary)
		}
		all = append(all, key...)
		id, err := r.id()
		entries = append(entries, entry{int32(len(all)), id})
		largest = max(largest, id)
		p.t.size = max(p.t.size, int(id)+1)
		return err
	})
	if err != nil {
		return err
	}
	v := &p.t.vocab
	v.ids = make(map[string]int32, len(entries))
	v.tokens.grow(len(entries), largest)
	text, start := string(all), int32(0)
	for _, e := range entries {
		token := text[start:e.end]
		start = e.end
		v.ids[token] = e.id // as in the reference, the last of equal keys counts
	}
	// From the map, so that a token replaced above leaves no trace; in
	// order, so that of two tokens with one id the same one always wins.
	start = 0
	for _, e := range entries {
		token := text[start:e.end]
		start = e.end
		if v.ids[token] != e.id {
			continue
		}
		if other, ok := v.tokens.get(e.id); ok && other != token {
			p.t.problem("vocab: id %d belongs to %q and %q", e.id, other, token)
			continue
		}
		v.tokens.set(e.id, token)
	}
	return nil
}

// merges reads ["a b", ...] or [["a", "b"], ...].
func (p *parser) merges(r *jsonReader) error {
	ids := p.t.vocab.ids
	var joined []byte
	type merge struct {
		key uint64
		to  int32
	}
	var list []merge
	pairs := -1 // 1 if the first entry is a pair, 0 if it is a string
	err := r.array(func(int) error {
		var half [2][]byte
		form := 0
		if r.peek() == '[' {
			form = 1
		}
		if pairs < 0 {
			pairs = form
		}
		if form != pairs {
			return r.errorf("strings and pairs mixed")
		}
		joined = joined[:0]
		if form == 1 {
			n, cut := 0, 0
			err := r.array(func(int) error {
				s, err := r.str(r.key[:0])
				joined = append(joined, s...)
				if n++; n == 1 {
					cut = len(joined)
				}
				return err
			})
			if err != nil {
				return err
			}
			if n != 2 {
				return r.errorf("found %d parts, want 2", n)
			}
			half = [2][]byte{joined[:cut], joined[cut:]}
		} else {
			s, err := r.str(r.key[:0])
			if err != nil {
				return err
			}
			if bytes.HasPrefix(s, []byte("#version")) {
				return nil // the first line of a merges.txt
			}
			cut := -1
			for i, c := range s {
				if c == ' ' {
					if cut >= 0 {
						return r.errorf("%q has more than one space", s)
					}
					cut = i
				}
			}
			if cut < 0 {
				return r.errorf("%q has no space", s)
			}
			joined = append(append(joined, s[:cut]...), s[cut+1:]...)
			half = [2][]byte{joined[:cut], joined[cut:]}
		}
		if len(list) == maxMerges {
			return r.errorf("more than %d merges", maxMerges)
		}
		a, ok1 := ids[string(half[0])]
		b, ok2 := ids[string(half[1])]
		to, ok3 := ids[string(joined)]
		switch {
		case !ok1 || !ok2:
			return r.errorf("merge %d of %q and %q: one of them is not in the vocabulary", len(list), half[0], half[1])
		case !ok3:
			return r.errorf("merge %d of %q and %q: the result is not in the vocabulary", len(list), half[0], half[1])
		}
		list = append(list, merge{pairKey(a, b), to})
		return nil
	})
	if err != nil {
		return err
	}
	p.t.bpe.merges = newPairTable(len(list))
	for rank, m := range list {
		p.t.bpe.merges.put(m.key, pairValue{uint32(rank), m.to})
	}
	return nil
}

// addedTokens reads the list and gives the tokens their ids the way the
// reference does it: the id in the vocabulary, else the next free one. It does not
// look at the "id" in the file, which agrees in any file that it wrote itself.
func (p *parser) addedTokens(data []byte, list part) error {
	t := p.t
	t.added.byID = map[int32]*addedToken{}
	if list.missing() {
		return nil
	}
	next := int32(len(t.vocab.ids))
	byContent := map[string]int32{}
	r := list.at(data)
	err := r.array(func(i int) error {
		if i == maxAddedTokens {
			return r.errorf("more than %d tokens", maxAddedTokens)
		}
		raw, err := r.raw()
		if err != nil {
			return err
		}
		var a struct {
			ID         *int64
			Content    string
			SingleWord bool `json:"single_word"`
			LStrip     bool
			RStrip     bool
			Normalized *bool
			Special    bool
		}
		if err := json.Unmarshal(raw, &a); err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
		if a.Content == "" {
			return nil
		}
		if len(a.Content) > maxSoughtLength {
			return fmt.Errorf("entry %d has %d bytes: more than %d are not accepted", i, len(a.Content), maxSoughtLength)
		}
		token := &addedToken{
			content: a.Content, special: a.Special, singleWord: a.SingleWord, lstrip: a.LStrip, rstrip: a.RStrip,
			normalized: a.Normalized != nil && *a.Normalized || a.Normalized == nil && !a.Special,
		}
		id, ok := byContent[a.Content]
		if !ok {
			id, ok = t.vocab.ids[a.Content]
		}
		if !ok {
			id = next
			next++
		}
		if id > maxID {
			return fmt.Errorf("entry %d: token id %d is larger than %d", i, id, maxID)
		}
		if a.ID == nil || *a.ID != int64(id) {
			found := "no id"
			if a.ID != nil {
				found = fmt.Sprintf("id %d", *a.ID)
			}
			t.problem("added_tokens: %q has %s in the file; counting from the vocabulary its id is %d, which is used", a.Content, found, id)
		}
		token.id = id
		token.text = a.Content
		if token.normalized {
			token.text = t.normalize(a.Content)
			if len(token.text) > maxSoughtLength {
				return fmt.Errorf("entry %d has %d bytes when it is normalized: more than %d are not accepted", i, len(token.text), maxSoughtLength)
			}
		}
		byContent[a.Content] = id
		t.size = max(t.size, int(id)+1)
		t.added.byID[id] = token
		return nil
	})
	if err != nil {
		return err
	}
	t.added.byContent = byContent
	return t.added.finish()
}

// pairTable maps pairs of token ids to values. It is a hash table with open
// addressing whose hash differs from run to run, so that no file can be made to
// fill one place.
type pairTable struct {
	slots []pairSlot
	shift uint
	seed  uint64
}

type pairSlot struct {
	key   uint64
	value pairValue
}

// pairValue is the rank of a merge and the token that it makes.
type pairValue struct {
	rank uint32
	to   int32
}

// noPair is the key of an empty slot; no pair of ids has it.
const noPair = ^uint64(0)

func pairKey(a, b int32) uint64 { return uint64(uint32(a))<<32 | uint64(uint32(b)) }

func newPairTable(n int) *pairTable {
	size := max(1, bits.Len(uint(n+n/2))) // always an empty slot, two thirds full at most
	p := &pairTable{slots: make([]pairSlot, 1<<size), shift: uint(64 - size), seed: newSeed()}
	for i := range p.slots {
		p.slots[i].key = noPair
	}
	return p
}

func (p *pairTable) slot(key uint64) *pairSlot {
	i := key * p.seed >> (p.shift & 63)
	for {
		s := &p.slots[i]
		if s.key == key || s.key == noPair {
			return s
		}
		if i++; i == uint64(len(p.slots)) {
			i = 0
		}
	}
}

// put sets a value. There may be no more keys than newPairTable was told of.
func (p *pairTable) put(key uint64, v pairValue) { *p.slot(key) = pairSlot{key, v} }

func (p *pairTable) get(key uint64) (pairValue, bool) {
	s := p.slot(key)
	return s.value, s.key != noPair
}
