package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"sort"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ardanlabs/jinja"
)

// Templates see what Python's json.loads would give them: dictionaries in the
// order of the text, integers and floats told apart, integers of any size.

// integerName marks a callable that stands for an integer beyond 64 bits,
// which the engine has no kind of value for.
const integerName = "integer "

// decodeJSON returns the value of a JSON text.
func decodeJSON(data []byte) (jinja.Value, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := decodeValue(d, 0)
	if err != nil {
		return v, err
	}
	if d.More() {
		return v, errors.New("text after the JSON value")
	}
	return v, nil
}

func decodeValue(d *json.Decoder, depth int) (jinja.Value, error) {
	if depth > maxNesting {
		return jinja.Undefined(), fmt.Errorf("JSON nested more than %d deep", maxNesting)
	}
	t, err := d.Token()
	if err != nil {
		return jinja.Undefined(), err
	}
	switch t := t.(type) {
	case nil:
		return jinja.None(), nil
	case bool:
		return jinja.NewBool(t), nil
	case string:
		return jinja.NewString(t), nil
	case json.Number:
		return number(t.String())
	case json.Delim:
		if t == '[' {
			var items []jinja.Value
			for d.More() {
				v, err := decodeValue(d, depth+1)
				if err != nil {
					return v, err
				}
				items = append(items, v)
			}
			_, err := d.Token()
			return jinja.NewList(items), err
		}
		dict := jinja.NewDict()
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return dict, err
			}
			v, err := decodeValue(d, depth+1)
			if err != nil {
				return v, err
			}
			dict.AsDict().Set(key.(string), v) // the decoder lets only strings through
		}
		_, err := d.Token()
		return dict, err
	}
	return jinja.Undefined(), fmt.Errorf("unexpected %v", t)
}

func number(s string) (jinja.Value, error) {
	if !strings.ContainsAny(s, ".eE") {
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			return jinja.NewInt(n), nil
		}
		n, ok := new(big.Int).SetString(s, 10)
		if !ok || len(s) > 4300 { // Python's limit
			return jinja.Undefined(), fmt.Errorf("bad integer of %d digits", len(s))
		}
		return jinja.NewCallable(integerName+n.String(), func([]jinja.Value, map[string]jinja.Value) (jinja.Value, error) {
			return jinja.Undefined(), errors.New("an integer is not callable")
		}), nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !math.IsInf(f, 0) {
		return jinja.Undefined(), err
	}
	return jinja.NewFloat(f), nil
}

// integer returns the digits of an integer beyond 64 bits.
func integer(v jinja.Value) (string, bool) {
	if !v.IsCallable() {
		return "", false
	}
	return strings.CutPrefix(v.AsCallable().Name, integerName)
}

// formatFloat is Python's repr of a float: the shortest digits that give it
// back, and always a point or an exponent.
func formatFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 0):
		return strings.TrimPrefix(strconv.FormatFloat(f, 'g', -1, 64), "+")
	}
	s := strconv.FormatFloat(f, 'e', -1, 64)
	exp, err := strconv.Atoi(s[strings.IndexByte(s, 'e')+1:])
	if err != nil || exp < -4 || exp >= 16 {
		return s
	}
	s = strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// writer builds text up to a limit.
type writer struct {
	strings.Builder
}

var errTooLong = fmt.Errorf("a value has more than %d bytes as text", maxValue)

func (w *writer) add(s string) error {
	if w.Len()+len(s) > maxValue {
		return errTooLong
	}
	w.WriteString(s)
	return nil
}

// toString is Python's str().
func toString(v jinja.Value) (string, error) {
	switch {
	case v.IsString():
		return v.AsString(), nil
	case v.IsUndefined():
		return "", nil
	}
	var w writer
	if err := w.repr(v); err != nil {
		return "", err
	}
	return w.String(), nil
}

// repr writes Python's repr().
func (w *writer) repr(v jinja.Value) error {
	switch {
	case v.IsUndefined():
		return w.add("Undefined")
	case v.IsNone():
		return w.add("None")
	case v.IsBool():
		if v.AsBool() {
			return w.add("True")
		}
		return w.add("False")
	case v.IsInt():
		return w.add(strconv.FormatInt(v.AsInt(), 10))
	case v.IsFloat():
		f := formatFloat(v.AsFloat())
		return w.add(strings.TrimSuffix(strings.Replace(f, "Inf", "inf", 1), "+"))
	case v.IsString():
		return w.add(quote(v.AsString()))
	case v.IsList():
		if err := w.add("["); err != nil {
			return err
		}
		for i, item := range v.AsList().Items {
			if i > 0 {
				if err := w.add(", "); err != nil {
					return err
				}
			}
			if err := w.repr(item); err != nil {
				return err
			}
		}
		return w.add("]")
	case v.IsDict():
		if err := w.add("{"); err != nil {
			return err
		}
		d := v.AsDict()
		for i, key := range d.Keys {
			if i > 0 {
				if err := w.add(", "); err != nil {
					return err
				}
			}
			if err := w.add(quote(key) + ": "); err != nil {
				return err
			}
			if err := w.repr(d.Data[key]); err != nil {
				return err
			}
		}
		return w.add("}")
	}
	if digits, ok := integer(v); ok {
		return w.add(digits)
	}
	return errors.New("the template prints a function")
}

// quote is Python's repr of a string.
func quote(s string) string {
	q := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		q = '"'
	}
	b := []byte{q}
	for _, r := range s {
		switch {
		case r == rune(q) || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\r':
			b = append(b, `\r`...)
		case r == '\t':
			b = append(b, `\t`...)
		case r == ' ' || unicode.IsPrint(r):
			b = utf8.AppendRune(b, r)
		case r < 0x100:
			b = fmt.Appendf(b, `\x%02x`, r)
		case r < 0x10000:
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = fmt.Appendf(b, `\U%08x`, r)
		}
	}
	return string(append(b, q))
}

// jsonStyle is how tojson writes.
type jsonStyle struct {
	item, key string // separators
	indent    string // of one level; without one, all in a line
	pretty    bool
	sorted    bool
	ascii     bool
}

// json writes Python's json.dumps().
func (w *writer) json(v jinja.Value, style *jsonStyle, depth int) error {
	switch {
	case v.IsUndefined():
		return errors.New("tojson: undefined value")
	case v.IsNone():
		return w.add("null")
	case v.IsBool():
		return w.add(strconv.FormatBool(v.AsBool()))
	case v.IsFloat():
		switch f := v.AsFloat(); {
		case math.IsNaN(f):
			return w.add("NaN")
		case math.IsInf(f, 1):
			return w.add("Infinity")
		case math.IsInf(f, -1):
			return w.add("-Infinity")
		default:
			return w.add(formatFloat(f))
		}
	case v.IsString():
		return w.add(jsonString(v.AsString(), style.ascii))
	case v.IsList():
		items := v.AsList().Items
		return w.jsonList("[", "]", len(items), style, depth, func(i int) error {
			return w.json(items[i], style, depth+1)
		})
	case v.IsDict():
		d := v.AsDict()
		keys := d.Keys
		if style.sorted {
			keys = d.OrderedKeys()
			sort.Strings(keys)
		}
		return w.jsonList("{", "}", len(keys), style, depth, func(i int) error {
			if err := w.add(jsonString(keys[i], style.ascii) + style.key); err != nil {
				return err
			}
			return w.json(d.Data[keys[i]], style, depth+1)
		})
	case v.IsCallable():
		if _, ok := integer(v); !ok {
			return errors.New("tojson: a function is not JSON")
		}
	}
	return w.repr(v)
}

func (w *writer) jsonList(open, end string, n int, style *jsonStyle, depth int, item func(i int) error) error {
	line := func(depth int) error {
		if !style.pretty {
			return nil
		}
		if depth*len(style.indent) > maxValue {
			return errTooLong
		}
		return w.add("\n" + strings.Repeat(style.indent, depth))
	}
	if n == 0 {
		return w.add(open + end)
	}
	if err := w.add(open); err != nil {
		return err
	}
	for i := range n {
		if i > 0 {
			if err := w.add(style.item); err != nil {
				return err
			}
		}
		if err := line(depth + 1); err != nil {
			return err
		}
		if err := item(i); err != nil {
			return err
		}
	}
	if err := line(depth); err != nil {
		return err
	}
	return w.add(end)
}

func jsonString(s string, ascii bool) string {
	b := []byte{'"'}
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\r':
			b = append(b, `\r`...)
		case r == '\t':
			b = append(b, `\t`...)
		case r == '\f':
			b = append(b, `\f`...)
		case r == '\b':
			b = append(b, `\b`...)
		case r < ' ' || ascii && r > '~' && r < 0x10000:
			b = fmt.Appendf(b, `\u%04x`, r)
		case ascii && r > '~':
			r -= 0x10000
			b = fmt.Appendf(b, `\u%04x\u%04x`, 0xD800+r>>10, 0xDC00+r&0x3FF)
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return string(append(b, '"'))
}
