package tokenizer

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// decoding is the decoder of a tokenizer.json, reduced to what its components
// can do together.
type decoding struct {
	set          bool           // there is a decoder; without one, tokens are words
	byteLevel    bool           // tokens are bytes in GPT-2's alphabet
	steps        []tokenDecoder // for each token
	byteFallback bool           // "<0x41>" is a byte
	fused        bool
	strip        int    // how many of the characters stripped go from the start of the text
	stripped     string // one character
}

// tokenDecoder turns the spelling of a token into its text. start says that the
// token is the first.
type tokenDecoder interface {
	decode(token string, start bool) string
}

func (r replaceText) decode(token string, _ bool) string { return r.normalize(token) }

// bytes appends the bytes of one token, the way it stands inside a text.
func (d *decoding) bytes(dst []byte, token string) []byte {
	if d.byteLevel {
		return appendByteLevel(dst, token)
	}
	for _, step := range d.steps {
		token = step.decode(token, false)
	}
	if b, ok := d.fallback(token); ok {
		return append(dst, b)
	}
	return append(dst, token...)
}

// fallback returns the byte that a token like "<0x41>" stands for.
func (d *decoding) fallback(token string) (byte, bool) {
	if !d.byteFallback || len(token) != 6 || token[:3] != "<0x" || token[5] != '>' {
		return 0, false
	}
	n, err := strconv.ParseUint(token[3:5], 16, 8)
	return byte(n), err == nil
}

// Decoder turns ids into text one by one. What it has returned never changes
// with what comes after: bytes of a character that is not complete are held
// back. All that Push and Flush return, put together, is what Decode returns.
//
// A byte-fallback vocabulary decides only at the end of a run of byte tokens
// whether the run is text (as the reference does: one bad byte spoils all of
// it), so a Decoder holds the whole run back.
//
// A Decoder is for one goroutine.
type Decoder struct {
	t           *Tokenizer
	skipSpecial bool
	pending     []byte // not yet returned
	run         []byte // of byte tokens
	tokens      int    // so far
	strip       int    // characters to strip that may still come
	out         []byte
}

// NewDecoder returns a Decoder. With skipSpecial it leaves special tokens out.
func (t *Tokenizer) NewDecoder(skipSpecial bool) *Decoder {
	return &Decoder{t: t, skipSpecial: skipSpecial, strip: t.decode.strip}
}

// Push takes one more id and returns the text that is now certain, which may
// be empty. An id that no token has adds nothing.
func (d *Decoder) Push(id int32) string {
	d.out = d.out[:0]
	d.push(id)
	return string(d.out)
}

// Flush returns the text for bytes held back, U+FFFD if they are no character,
// and makes the Decoder ready for another text.
func (d *Decoder) Flush() string {
	d.out = d.out[:0]
	d.flush()
	return string(d.out)
}

func (d *Decoder) push(id int32) {
	token, special, ok := d.t.lookup(id)
	if !ok || special && d.skipSpecial {
		return
	}
	e := &d.t.decode
	switch {
	case !e.set:
		if d.tokens++; d.tokens > 1 {
			d.out = append(d.out, ' ')
		}
		d.out = append(d.out, token...)
	case e.byteLevel:
		d.pending = appendByteLevel(d.pending, token)
		var rest []byte
		d.out, rest = appendLossy(d.out, d.pending, false)
		d.pending = d.pending[:copy(d.pending, rest)]
	default:
		for _, step := range e.steps {
			token = step.decode(token, d.tokens == 0)
		}
		d.tokens++
		if b, ok := e.fallback(token); ok {
			d.run = append(d.run, b)
			return
		}
		d.endRun()
		d.text(token)
	}
}

// endRun writes a run of byte tokens: text if all of it is, else U+FFFD for
// each byte.
func (d *Decoder) endRun() {
	if len(d.run) == 0 {
		return
	}
	if utf8.Valid(d.run) {
		d.text(string(d.run))
	} else {
		d.text(strings.Repeat(replacement, len(d.run)))
	}
	d.run = d.run[:0]
}

// text writes text after stripping.
func (d *Decoder) text(s string) {
	for d.strip > 0 && s != "" {
		rest, ok := strings.CutPrefix(s, d.t.decode.stripped)
		if !ok {
			d.strip = 0
			break
		}
		d.strip--
		s = rest
	}
	d.out = append(d.out, s...)
}

func (d *Decoder) flush() {
	d.endRun()
	d.out, _ = appendLossy(d.out, d.pending, true)
	d.pending = d.pending[:0]
	d.tokens = 0
	d.strip = d.t.decode.strip
}

// Decode returns the text of ids. With skipSpecial it leaves special tokens
// out. Bytes that are not UTF-8 become U+FFFD; ids that no token has are left out.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	d := t.NewDecoder(skipSpecial)
	d.out = make([]byte, 0, 5*len(ids)+8)
	for _, id := range ids {
		d.push(id)
	}
	d.flush()
	return string(d.out)
}
