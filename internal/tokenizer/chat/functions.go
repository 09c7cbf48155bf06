package chat

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ardanlabs/jinja"
	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// RaiseError is what a template says with raise_exception: the conversation
// is not one that it can render.
type RaiseError struct{ Message string }

func (e *RaiseError) Error() string {
	return "the chat template refuses the conversation: " + e.Message
}

// Names that the rewritten template uses for functions of this package. What a
// template itself may use starts with no such prefix.
const (
	filterPrefix = "anemone_f_"
	testPrefix   = "anemone_t_"
	notPrefix    = "anemone_n_"
	methodPrefix = "anemone_m_"
	outName      = "anemone_out"
	keepName     = "anemone_keep"
	stepName     = "anemone_step"
	enterName    = "anemone_enter"
	leaveName    = "anemone_leave"
	scratchName  = "anemone_x"
)

// arguments are those of one call: args[0] is what stands before the bar, the
// dot or "is".
type arguments struct {
	args   []jinja.Value
	kwargs map[string]jinja.Value
}

// get returns the argument at a place or of a name, or undefined.
func (a arguments) get(i int, name string) jinja.Value {
	if i < len(a.args) {
		return a.args[i]
	}
	if v, ok := a.kwargs[name]; ok {
		return v
	}
	return jinja.Undefined()
}

func (a arguments) text(i int, name, otherwise string) (string, error) {
	v := a.get(i, name)
	if v.IsUndefined() {
		return otherwise, nil
	}
	return toString(v)
}

func (a arguments) number(i int, name string, otherwise int) (int, error) {
	v := a.get(i, name)
	switch {
	case v.IsUndefined() || v.IsNone():
		return otherwise, nil
	case v.IsInt() && v.AsInt() >= math.MinInt32 && v.AsInt() <= math.MaxInt32:
		return int(v.AsInt()), nil
	case v.IsBool():
		return truth(v.AsBool()), nil
	}
	return 0, fmt.Errorf("argument %q is %s, want a small integer", name, describe(v))
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}

// check refuses arguments that a function does not know: ignoring them would
// give another text than jinja2.
func (a arguments) check(names ...string) error {
	if len(a.args)-1 > len(names) {
		return fmt.Errorf("%d arguments, want at most %d", len(a.args)-1, len(names))
	}
	for name := range a.kwargs {
		if !slices.Contains(names, name) {
			return fmt.Errorf("argument %q is not supported", name)
		}
	}
	return nil
}

func describe(v jinja.Value) string {
	switch {
	case v.IsUndefined():
		return "undefined"
	case v.IsNone():
		return "None"
	case v.IsBool():
		return "a boolean"
	case v.IsNumber():
		return "a number"
	case v.IsString():
		return "a string"
	case v.IsList():
		return "a list"
	case v.IsDict():
		return "a dictionary"
	}
	if _, ok := integer(v); ok {
		return "a large integer"
	}
	return "a function"
}

func str(s string) (jinja.Value, error) {
	if len(s) > maxValue {
		return jinja.Undefined(), errTooLong
	}
	return jinja.NewString(s), nil
}

type function func(a arguments) (jinja.Value, error)

// textFilter makes a function of one that maps text to text.
func textFilter(f func(string) string) function {
	return func(a arguments) (jinja.Value, error) {
		if err := a.check(); err != nil {
			return jinja.Undefined(), err
		}
		s, err := toString(a.args[0])
		if err != nil {
			return jinja.Undefined(), err
		}
		return str(f(s))
	}
}

// items lists what a loop over a value would see.
func items(v jinja.Value) ([]jinja.Value, error) {
	switch {
	case v.IsUndefined():
		return nil, nil
	case v.IsList():
		return v.AsList().Items, nil
	case v.IsString():
		out := make([]jinja.Value, 0, len(v.AsString()))
		for _, r := range v.AsString() {
			out = append(out, jinja.NewString(string(r)))
		}
		return out, nil
	case v.IsDict():
		out := make([]jinja.Value, 0, v.AsDict().Len())
		for _, key := range v.AsDict().Keys {
			out = append(out, jinja.NewString(key))
		}
		return out, nil
	}
	return nil, fmt.Errorf("%s is not iterable", describe(v))
}

// attribute is jinja2's environment.getitem for "a.b" and numbers.
func attribute(v jinja.Value, path string) jinja.Value {
	for _, name := range strings.Split(path, ".") {
		switch {
		case v.IsDict():
			if w, ok := v.AsDict().Get(name); ok {
				v = w
				continue
			}
		case v.IsList():
			if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < v.AsList().Len() {
				v = v.AsList().Get(i)
				continue
			}
		}
		return jinja.Undefined()
	}
	return v
}

// order compares as Python does: numbers with numbers, text with text, lists
// with lists.
func order(a, b jinja.Value) (int, error) {
	numeric := func(v jinja.Value) (float64, bool) {
		switch {
		case v.IsInt():
			return float64(v.AsInt()), true
		case v.IsFloat():
			return v.AsFloat(), true
		case v.IsBool():
			return float64(truth(v.AsBool())), true
		}
		return 0, false
	}
	if a.IsInt() && b.IsInt() {
		return compare(a.AsInt(), b.AsInt()), nil
	}
	if x, ok := numeric(a); ok {
		if y, ok := numeric(b); ok {
			return compare(x, y), nil
		}
	}
	if a.IsString() && b.IsString() {
		return strings.Compare(a.AsString(), b.AsString()), nil
	}
	if a.IsList() && b.IsList() {
		x, y := a.AsList().Items, b.AsList().Items
		for i := range min(len(x), len(y)) {
			if c, err := order(x[i], y[i]); c != 0 || err != nil {
				return c, err
			}
		}
		return compare(len(x), len(y)), nil
	}
	return 0, fmt.Errorf("%s and %s have no order", describe(a), describe(b))
}

func compare[T int | int64 | float64](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// equal is ==: numbers by value, True is 1.
func equal(a, b jinja.Value) bool {
	if c, err := order(a, b); err == nil && !a.IsList() {
		return c == 0
	}
	if x, ok := integer(a); ok {
		y, ok := integer(b)
		return ok && x == y
	}
	return a.Equals(b)
}

// fold is jinja2's ignore_case for sorting.
func fold(v jinja.Value, sensitive bool) jinja.Value {
	if v.IsString() && !sensitive {
		return jinja.NewString(lower(v.AsString()))
	}
	return v
}

// sorted sorts by a key, stable.
func sorted(list []jinja.Value, reverse bool, key func(jinja.Value) jinja.Value) ([]jinja.Value, error) {
	out := slices.Clone(list)
	keys := make(map[int]jinja.Value, len(out))
	index := make([]int, len(out))
	for i := range out {
		index[i], keys[i] = i, key(out[i])
	}
	var failed error
	slices.SortStableFunc(index, func(i, j int) int {
		if keys[i].IsUndefined() && keys[j].IsUndefined() {
			return 0 // the attribute is missing in both
		}
		c, err := order(keys[i], keys[j])
		if err != nil {
			failed = err
		}
		if reverse {
			c = -c
		}
		return c
	})
	for k, i := range index {
		out[k] = list[i]
	}
	return out, failed
}

func pairs(d *jinja.Dict) []jinja.Value {
	out := make([]jinja.Value, 0, d.Len())
	for _, key := range d.Keys {
		out = append(out, jinja.NewList([]jinja.Value{jinja.NewString(key), d.Data[key]}))
	}
	return out
}

func list(v []jinja.Value, err error) (jinja.Value, error) {
	if err == nil && len(v) > maxValue/64 {
		err = fmt.Errorf("a list has more than %d elements", maxValue/64)
	}
	return jinja.NewList(v), err
}

func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1C && r <= 0x1F } // Python counts the separators

// strip is Python's str.strip and its two halves.
func strip(left, right bool) function {
	return func(a arguments) (jinja.Value, error) {
		if err := a.check("chars"); err != nil {
			return jinja.Undefined(), err
		}
		s, err := toString(a.args[0])
		if err != nil {
			return jinja.Undefined(), err
		}
		cut := isSpace
		if v := a.get(1, "chars"); !v.IsUndefined() && !v.IsNone() {
			chars, err := toString(v)
			if err != nil {
				return jinja.Undefined(), err
			}
			cut = func(r rune) bool { return strings.ContainsRune(chars, r) }
		}
		if left {
			s = strings.TrimLeftFunc(s, cut)
		}
		if right {
			s = strings.TrimRightFunc(s, cut)
		}
		return str(s)
	}
}

// upper and lower are Python's: the full case mappings of Unicode ("ß" gives
// "SS").
func upper(s string) string { return cases.Upper(language.Und).String(s) }

func lower(s string) string { return cases.Lower(language.Und).String(s) }

func capitalize(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	if n == 0 {
		return s
	}
	return string(unicode.ToTitle(r)) + lower(s[n:])
}

// titleFilter is jinja2's filter: words are divided by white space and -([{<.
func titleFilter(s string) string {
	var b strings.Builder
	start := true
	for _, r := range s {
		switch {
		case isSpace(r) || strings.ContainsRune("-([{<", r):
			start = true
			b.WriteRune(r)
		case start:
			start = false
			b.WriteRune(unicode.ToUpper(r))
		default:
			b.WriteRune(unicode.ToLower(r))
		}
	}
	return b.String()
}

// titleMethod is Python's str.title: letters after a letter are small.
func titleMethod(s string) string {
	var b strings.Builder
	inside := false
	for _, r := range s {
		if inside {
			b.WriteRune(unicode.ToLower(r))
		} else {
			b.WriteRune(unicode.ToTitle(r))
		}
		inside = unicode.IsLetter(r)
	}
	return b.String()
}

func replaceText(s, old, new string, count int) (string, error) {
	n := strings.Count(s, old)
	if count >= 0 {
		n = min(n, count)
	}
	if grow := len(new) - len(old); grow > 0 && n > (maxValue-min(len(s), maxValue))/grow {
		return "", errTooLong
	}
	return strings.Replace(s, old, new, count), nil
}

func replace(a arguments) (jinja.Value, error) {
	if err := a.check("old", "new", "count"); err != nil {
		return jinja.Undefined(), err
	}
	var part [3]string
	for i, name := range []string{"", "old", "new"} {
		v := a.get(i, name)
		if v.IsUndefined() && i > 0 {
			return v, fmt.Errorf("argument %q is missing", name)
		}
		var err error
		if part[i], err = toString(v); err != nil {
			return v, err
		}
	}
	count, err := a.number(3, "count", -1)
	if err != nil {
		return jinja.Undefined(), err
	}
	s, err := replaceText(part[0], part[1], part[2], count)
	if err != nil {
		return jinja.Undefined(), err
	}
	return str(s)
}

// filters returns those of jinja2 that chat templates use. A template that uses
// another one is refused when it is loaded. (A function, since "map" looks up
// filters: a variable would depend on itself.)
func filters() map[string]function {
	return map[string]function{
		"tojson": toJSON, "items": filterItems, "join": filterJoin, "default": filterDefault, "d": filterDefault,
		"trim": strip(true, true), "lower": textFilter(lower), "upper": textFilter(upper),
		"title": textFilter(titleFilter), "capitalize": textFilter(capitalize), "string": textFilter(func(s string) string { return s }),
		"safe":   textFilter(func(s string) string { return s }),
		"escape": textFilter(escape), "e": textFilter(escape),
		"first": filterFirst, "last": filterLast, "length": filterLength, "count": filterLength, "reverse": filterReverse,
		"sort": filterSort, "unique": filterUnique, "list": filterList, "dictsort": filterDictsort, "int": filterInt, "float": filterFloat,
		"abs": filterAbs, "round": filterRound, "replace": replace, "map": filterMap, "indent": filterIndent,
		"select": selecting(false, true), "reject": selecting(false, false), "selectattr": selecting(true, true), "rejectattr": selecting(true, false),
		"max": extreme(1), "min": extreme(-1), "sum": filterSum, "batch": filterBatch, "attr": filterAttr, "wordcount": filterWordcount,
	}
}

// tests returns those of jinja2.
func tests() map[string]function {
	kind := func(f func(v jinja.Value) bool) function {
		return func(a arguments) (jinja.Value, error) { return jinja.NewBool(f(a.args[0])), a.check() }
	}
	compared := func(f func(c int) bool) function {
		return func(a arguments) (jinja.Value, error) {
			if len(a.args) != 2 {
				return jinja.Undefined(), fmt.Errorf("%d arguments, want 1", len(a.args)-1)
			}
			c, err := order(a.args[0], a.args[1])
			return jinja.NewBool(f(c)), err
		}
	}
	equality := func(want bool) function {
		return func(a arguments) (jinja.Value, error) {
			if len(a.args) != 2 {
				return jinja.Undefined(), fmt.Errorf("%d arguments, want 1", len(a.args)-1)
			}
			return jinja.NewBool(equal(a.args[0], a.args[1]) == want), nil
		}
	}
	large := func(v jinja.Value) bool { _, ok := integer(v); return ok }
	remainder := func(n, of int64) function {
		return func(a arguments) (jinja.Value, error) {
			if !a.args[0].IsInt() {
				return jinja.Undefined(), fmt.Errorf("%s, want an integer", describe(a.args[0]))
			}
			return jinja.NewBool((a.args[0].AsInt()%of+of)%of == n), a.check()
		}
	}
	cased := func(to func(string) string, not func(rune) bool) function {
		return kind(func(v jinja.Value) bool {
			s, err := toString(v)
			return err == nil && strings.ContainsFunc(s, unicode.IsLetter) && !strings.ContainsFunc(s, not) && to(s) == s
		})
	}
	all := map[string]function{
		"defined": kind(func(v jinja.Value) bool { return !v.IsUndefined() }), "undefined": kind(jinja.Value.IsUndefined),
		"none": kind(jinja.Value.IsNone), "boolean": kind(jinja.Value.IsBool), "string": kind(jinja.Value.IsString), "mapping": kind(jinja.Value.IsDict),
		"true":     kind(func(v jinja.Value) bool { return v.IsBool() && v.AsBool() }),
		"false":    kind(func(v jinja.Value) bool { return v.IsBool() && !v.AsBool() }),
		"integer":  kind(func(v jinja.Value) bool { return v.IsInt() || large(v) }),
		"float":    kind(jinja.Value.IsFloat),
		"number":   kind(func(v jinja.Value) bool { return v.IsNumber() || v.IsBool() || large(v) }),
		"callable": kind(func(v jinja.Value) bool { return v.IsCallable() && !large(v) }),
		"iterable": kind(func(v jinja.Value) bool { return v.IsList() || v.IsDict() || v.IsString() || v.IsUndefined() }),
		"sequence": kind(func(v jinja.Value) bool { return v.IsList() || v.IsDict() || v.IsString() || v.IsUndefined() }),
		"upper":    cased(upper, unicode.IsLower), "lower": cased(lower, unicode.IsUpper),
		"odd": remainder(1, 2), "even": remainder(0, 2), "divisibleby": divisibleBy,
		"in": func(a arguments) (jinja.Value, error) {
			if len(a.args) != 2 {
				return jinja.Undefined(), fmt.Errorf("%d arguments, want 1", len(a.args)-1)
			}
			return contains(a.args[1], a.args[0])
		},
	}
	for name, f := range map[string]function{
		"eq": equality(true), "ne": equality(false),
		"lt": compared(func(c int) bool { return c < 0 }), "le": compared(func(c int) bool { return c <= 0 }),
		"gt": compared(func(c int) bool { return c > 0 }), "ge": compared(func(c int) bool { return c >= 0 }),
	} {
		all[name] = f
	}
	for alias, name := range map[string]string{
		"equalto": "eq", "lessthan": "lt", "greaterthan": "gt",
	} {
		all[alias] = all[name]
	}
	return all
}

// methods returns those of Python's str and dict, and append of list.
func methods() map[string]function {
	all := map[string]function{
		"strip": strip(true, true), "lstrip": strip(true, false), "rstrip": strip(false, true),
		"upper": textFilter(upper), "lower": textFilter(lower), "title": textFilter(titleMethod), "capitalize": textFilter(capitalize),
		"replace": replace, "split": splitting(false), "rsplit": splitting(true), "splitlines": splitLines,
		"startswith": affix(strings.HasPrefix), "endswith": affix(strings.HasSuffix), "join": methodJoin,
		"removeprefix": cutting(strings.TrimPrefix), "removesuffix": cutting(strings.TrimSuffix),
		"count": methodCount, "find": finding(strings.Index), "rfind": finding(strings.LastIndex),
		"isdigit": textTest(unicode.IsDigit), "isalpha": textTest(unicode.IsLetter), "isspace": textTest(isSpace),
		"items": onDict(pairs), "append": methodAppend, "get": methodGet,
		"keys":   onDict(keysOf),
		"values": onDict(valuesOf),
	}
	for _, name := range []string{"strip", "lstrip", "rstrip", "upper", "lower", "title", "capitalize", "replace"} {
		all[name] = onString(all[name])
	}
	return all
}

// onString limits a function that takes anything to strings, as methods are.
func onString(f function) function {
	return func(a arguments) (jinja.Value, error) {
		if !a.args[0].IsString() {
			return jinja.Undefined(), fmt.Errorf("%s has no such method", describe(a.args[0]))
		}
		return f(a)
	}
}

func onDict(f func(*jinja.Dict) []jinja.Value) function {
	return func(a arguments) (jinja.Value, error) {
		if !a.args[0].IsDict() {
			return jinja.Undefined(), fmt.Errorf("%s has no such method", describe(a.args[0]))
		}
		if err := a.check(); err != nil {
			return jinja.Undefined(), err
		}
		return list(f(a.args[0].AsDict()), nil)
	}
}

func keysOf(d *jinja.Dict) []jinja.Value {
	out := make([]jinja.Value, 0, d.Len())
	for _, key := range d.Keys {
		out = append(out, jinja.NewString(key))
	}
	return out
}

func valuesOf(d *jinja.Dict) []jinja.Value {
	out := make([]jinja.Value, 0, d.Len())
	for _, key := range d.Keys {
		out = append(out, d.Data[key])
	}
	return out
}

func toJSON(a arguments) (jinja.Value, error) {
	if err := a.check("ensure_ascii", "indent", "separators", "sort_keys"); err != nil { // the order in transformers
		return jinja.Undefined(), err
	}
	style := jsonStyle{item: ", ", key: ": ", ascii: a.get(1, "ensure_ascii").IsTruthy(), sorted: a.get(4, "sort_keys").IsTruthy()}
	if v := a.get(2, "indent"); v.IsString() {
		style.pretty, style.indent = true, v.AsString()
	} else if !v.IsUndefined() && !v.IsNone() {
		n, err := a.number(2, "indent", 0)
		if err != nil {
			return v, err
		}
		style.pretty, style.indent = true, strings.Repeat(" ", min(max(n, 0), 64))
	}
	if style.pretty {
		style.item = ","
	}
	if v := a.get(3, "separators"); !v.IsUndefined() && !v.IsNone() {
		if !v.IsList() || v.AsList().Len() != 2 || !v.AsList().Get(0).IsString() || !v.AsList().Get(1).IsString() {
			return v, errors.New("separators are not two strings")
		}
		style.item, style.key = v.AsList().Get(0).AsString(), v.AsList().Get(1).AsString()
	}
	var w writer
	if err := w.json(a.args[0], &style, 0); err != nil {
		return jinja.Undefined(), err
	}
	return str(w.String())
}

func filterItems(a arguments) (jinja.Value, error) {
	switch v := a.args[0]; {
	case v.IsUndefined():
		return jinja.NewList(nil), a.check()
	case v.IsDict():
		return list(pairs(v.AsDict()), a.check())
	default:
		return v, fmt.Errorf("%s is not a mapping", describe(v))
	}
}

func filterJoin(a arguments) (jinja.Value, error) {
	if err := a.check("d", "attribute"); err != nil {
		return jinja.Undefined(), err
	}
	sep, err := a.text(1, "d", "")
	if err != nil {
		return jinja.Undefined(), err
	}
	path, err := a.text(2, "attribute", "")
	if err != nil {
		return jinja.Undefined(), err
	}
	all, err := items(a.args[0])
	if err != nil {
		return jinja.Undefined(), err
	}
	var w writer
	for i, v := range all {
		if path != "" {
			v = attribute(v, path)
		}
		s, err := toString(v)
		if err == nil && i > 0 {
			err = w.add(sep)
		}
		if err == nil {
			err = w.add(s)
		}
		if err != nil {
			return jinja.Undefined(), err
		}
	}
	return str(w.String())
}

func filterDefault(a arguments) (jinja.Value, error) {
	v := a.args[0]
	if v.IsUndefined() || a.get(2, "boolean").IsTruthy() && !v.IsTruthy() {
		if v = a.get(1, "default_value"); v.IsUndefined() && len(a.args) < 2 {
			v = jinja.NewString("")
		}
	}
	return v, a.check("default_value", "boolean")
}

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", ">", "&gt;", "<", "&lt;", "'", "&#39;", `"`, "&#34;").Replace(s)
}

func filterFirst(a arguments) (jinja.Value, error) {
	all, err := items(a.args[0])
	if len(all) == 0 || err != nil {
		return jinja.Undefined(), err
	}
	return all[0], a.check()
}

func filterLast(a arguments) (jinja.Value, error) {
	all, err := items(a.args[0])
	if len(all) == 0 || err != nil {
		return jinja.Undefined(), err
	}
	return all[len(all)-1], a.check()
}

func filterLength(a arguments) (jinja.Value, error) {
	v := a.args[0]
	switch {
	case v.IsUndefined():
		return jinja.NewInt(0), a.check()
	case v.IsString():
		return jinja.NewInt(int64(utf8.RuneCountInString(v.AsString()))), a.check()
	case v.IsList():
		return jinja.NewInt(int64(v.AsList().Len())), a.check()
	case v.IsDict():
		return jinja.NewInt(int64(v.AsDict().Len())), a.check()
	}
	return v, fmt.Errorf("%s has no length", describe(v))
}

func filterReverse(a arguments) (jinja.Value, error) {
	all, err := items(a.args[0])
	if err != nil {
		return jinja.Undefined(), err
	}
	all = slices.Clone(all)
	slices.Reverse(all)
	if !a.args[0].IsString() {
		return list(all, a.check())
	}
	var b strings.Builder
	for _, v := range all {
		b.WriteString(v.AsString())
	}
	return str(b.String())
}

func filterSort(a arguments) (jinja.Value, error) {
	if err := a.check("reverse", "case_sensitive", "attribute"); err != nil {
		return jinja.Undefined(), err
	}
	all, err := items(a.args[0])
	if err != nil {
		return jinja.Undefined(), err
	}
	path, err := a.text(3, "attribute", "")
	if err == nil && strings.Contains(path, ",") {
		err = errors.New("several attributes are not supported")
	}
	if err != nil {
		return jinja.Undefined(), err
	}
	sensitive := a.get(2, "case_sensitive").IsTruthy()
	return list(sorted(all, a.get(1, "reverse").IsTruthy(), func(v jinja.Value) jinja.Value {
		if path != "" {
			v = attribute(v, path)
		}
		return fold(v, sensitive)
	}))
}

func filterDictsort(a arguments) (jinja.Value, error) {
	if err := a.check("case_sensitive", "by", "reverse"); err != nil {
		return jinja.Undefined(), err
	}
	if !a.args[0].IsDict() {
		return jinja.Undefined(), fmt.Errorf("%s is not a mapping", describe(a.args[0]))
	}
	by, err := a.text(2, "by", "key")
	if err != nil || by != "key" && by != "value" {
		return jinja.Undefined(), errors.Join(err, fmt.Errorf(`by is %q, want "key" or "value"`, by))
	}
	sensitive := a.get(1, "case_sensitive").IsTruthy()
	return list(sorted(pairs(a.args[0].AsDict()), a.get(3, "reverse").IsTruthy(), func(v jinja.Value) jinja.Value {
		return fold(v.AsList().Get(truth(by == "value")), sensitive)
	}))
}

func filterUnique(a arguments) (jinja.Value, error) {
	if err := a.check("case_sensitive"); err != nil {
		return jinja.Undefined(), err
	}
	all, err := items(a.args[0])
	if err != nil {
		return jinja.Undefined(), err
	}
	sensitive := a.get(1, "case_sensitive").IsTruthy()
	seen := map[string]bool{}
	var out []jinja.Value
	for _, v := range all {
		key := fold(v, sensitive)
		switch { // 1, 1.0 and True are equal
		case key.IsInt():
			key = jinja.NewFloat(float64(key.AsInt()))
		case key.IsBool():
			key = jinja.NewFloat(float64(truth(key.AsBool())))
		}
		var w writer
		if err := w.repr(key); err != nil {
			return v, err
		}
		if !seen[w.String()] {
			seen[w.String()] = true
			out = append(out, v)
		}
	}
	return list(out, nil)
}

func filterList(a arguments) (jinja.Value, error) {
	all, err := items(a.args[0])
	if err != nil {
		return jinja.Undefined(), err
	}
	return list(slices.Clone(all), a.check())
}

// filterInt is jinja2's int(value, default=0, base=10): what Python's int makes of it, or of its
// float, or the default.
func filterInt(a arguments) (jinja.Value, error) {
	if err := a.check("default"); err != nil {
		return jinja.Undefined(), err
	}
	v, otherwise := a.args[0], a.get(1, "default")
	if otherwise.IsUndefined() {
		otherwise = jinja.NewInt(0)
	}
	var f float64
	switch {
	case v.IsInt():
		return v, nil
	case v.IsBool():
		return jinja.NewInt(int64(truth(v.AsBool()))), nil
	case v.IsFloat():
		f = v.AsFloat()
	case v.IsString():
		s := strings.TrimFunc(v.AsString(), isSpace)
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			return jinja.NewInt(n), nil
		}
		var err error
		if f, err = strconv.ParseFloat(s, 64); err != nil {
			return otherwise, nil
		}
	default:
		if _, ok := integer(v); ok {
			return v, nil
		}
		return otherwise, nil
	}
	if f = math.Trunc(f); !(math.Abs(f) < 1<<62) {
		return otherwise, nil
	}
	return jinja.NewInt(int64(f)), nil
}

func filterFloat(a arguments) (jinja.Value, error) {
	if err := a.check("default"); err != nil {
		return jinja.Undefined(), err
	}
	v, otherwise := a.args[0], a.get(1, "default")
	if otherwise.IsUndefined() {
		otherwise = jinja.NewFloat(0)
	}
	switch {
	case v.IsFloat():
		return v, nil
	case v.IsInt():
		return jinja.NewFloat(float64(v.AsInt())), nil
	case v.IsBool():
		return jinja.NewFloat(float64(truth(v.AsBool()))), nil
	case v.IsString():
		if f, err := strconv.ParseFloat(strings.TrimFunc(v.AsString(), isSpace), 64); err == nil {
			return jinja.NewFloat(f), nil
		}
	}
	return otherwise, nil
}

func filterAbs(a arguments) (jinja.Value, error) {
	v := a.args[0]
	switch {
	case v.IsInt() && v.AsInt() < 0:
		return jinja.NewInt(-v.AsInt()), a.check()
	case v.IsInt():
		return v, a.check()
	case v.IsFloat():
		return jinja.NewFloat(math.Abs(v.AsFloat())), a.check()
	}
	return v, fmt.Errorf("%s is not a number", describe(v))
}

func filterRound(a arguments) (jinja.Value, error) {
	if err := a.check("precision", "method"); err != nil {
		return jinja.Undefined(), err
	}
	n, err := a.number(1, "precision", 0)
	if err != nil {
		return jinja.Undefined(), err
	}
	method, err := a.text(2, "method", "common")
	if err != nil {
		return jinja.Undefined(), err
	}
	v := a.args[0]
	var f float64
	switch {
	case v.IsInt():
		f = float64(v.AsInt())
		if method == "common" && n >= 0 {
			return v, nil // Python's round keeps integers
		}
	case v.IsFloat():
		f = v.AsFloat()
	default:
		return v, fmt.Errorf("%s is not a number", describe(v))
	}
	switch method {
	case "common": // half to even, as Python rounds: the exact decimal value decides
		if n < 0 || n > 20 {
			return v, fmt.Errorf("precision %d is not supported", n)
		}
		f, err = strconv.ParseFloat(strconv.FormatFloat(f, 'f', n, 64), 64)
	case "ceil":
		f = math.Ceil(f*math.Pow10(n)) / math.Pow10(n)
	case "floor":
		f = math.Floor(f*math.Pow10(n)) / math.Pow10(n)
	default:
		err = fmt.Errorf("method %q is not known", method)
	}
	return jinja.NewFloat(f), err
}

// filterMap applies another filter, or takes an attribute.
func filterMap(a arguments) (jinja.Value, error) {
	all, err := items(a.args[0])
	if err != nil {
		return jinja.Undefined(), err
	}
	out := make([]jinja.Value, len(all))
	if path, ok := a.kwargs["attribute"]; ok {
		if err := a.check("attribute", "default"); err != nil || len(a.args) > 1 {
			return jinja.Undefined(), errors.Join(err, errors.New("map with an attribute and a filter"))
		}
		name, err := toString(path)
		if err != nil {
			return path, err
		}
		for i, v := range all {
			if out[i] = attribute(v, name); out[i].IsUndefined() {
				out[i] = a.get(99, "default")
			}
		}
		return list(out, nil)
	}
	if len(a.args) < 2 || !a.args[1].IsString() {
		return jinja.Undefined(), errors.New("map without a filter")
	}
	f, ok := filters()[a.args[1].AsString()]
	if !ok {
		return jinja.Undefined(), fmt.Errorf("filter %q is not supported", a.args[1].AsString())
	}
	for i, v := range all {
		if out[i], err = f(arguments{append([]jinja.Value{v}, a.args[2:]...), a.kwargs}); err != nil {
			return v, err
		}
	}
	return list(out, nil)
}

// selecting makes select, reject, selectattr and rejectattr.
func selecting(byAttribute, keep bool) function {
	return func(a arguments) (jinja.Value, error) {
		all, err := items(a.args[0])
		if err != nil {
			return jinja.Undefined(), err
		}
		rest, path := a.args[1:], ""
		if byAttribute {
			if len(rest) == 0 {
				return jinja.Undefined(), errors.New("the attribute is missing")
			}
			if path, err = toString(rest[0]); err != nil {
				return jinja.Undefined(), err
			}
			rest = rest[1:]
		}
		test := func(v jinja.Value) (bool, error) { return v.IsTruthy(), nil }
		if len(rest) > 0 {
			name, err := toString(rest[0])
			if err != nil {
				return jinja.Undefined(), err
			}
			f, ok := tests()[testName(name)]
			if !ok {
				return jinja.Undefined(), fmt.Errorf("test %q is not supported", name)
			}
			test = func(v jinja.Value) (bool, error) {
				r, err := f(arguments{append([]jinja.Value{v}, rest[1:]...), a.kwargs})
				return r.IsTruthy(), err
			}
		}
		var out []jinja.Value
		for _, v := range all {
			of := v
			if byAttribute {
				of = attribute(v, path)
			}
			ok, err := test(of)
			if err != nil {
				return v, err
			}
			if ok == keep {
				out = append(out, v)
			}
		}
		return list(out, nil)
	}
}

// testName returns the name of a test that is spelled as an operator.
func testName(name string) string {
	if s, ok := map[string]string{"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}[name]; ok {
		return s
	}
	return name
}

func filterIndent(a arguments) (jinja.Value, error) {
	if err := a.check("width", "first", "blank"); err != nil {
		return jinja.Undefined(), err
	}
	s, err := toString(a.args[0])
	if err != nil {
		return jinja.Undefined(), err
	}
	pad := ""
	if v := a.get(1, "width"); v.IsString() {
		pad = v.AsString()
	} else {
		n, err := a.number(1, "width", 4)
		if err != nil || n > 256 {
			return v, errors.Join(err, errors.New("width: want a number up to 256"))
		}
		pad = strings.Repeat(" ", max(n, 0))
	}
	// As jinja2: a line break at the end is no line of its own without "blank".
	s += "\n"
	lines := splitKeeping(s)
	if len(lines)*len(pad) > maxValue {
		return jinja.Undefined(), errTooLong
	}
	blank := a.get(3, "blank").IsTruthy()
	var b strings.Builder
	for i, line := range lines {
		if i > 0 {
			b.WriteByte('\n')
			if line != "" || blank {
				b.WriteString(pad)
			}
		} else if a.get(2, "first").IsTruthy() {
			b.WriteString(pad)
		}
		b.WriteString(line)
	}
	return str(b.String())
}

// splitKeeping is Python's str.splitlines.
func splitKeeping(s string) []string {
	var out []string
	start := 0
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == '\r' && i+1 < len(s) && s[i+1] == '\n' {
			n = 2
		}
		switch r {
		case '\n', '\r', '\v', '\f', 0x1C, 0x1D, 0x1E, 0x85, 0x2028, 0x2029:
			out = append(out, s[start:i])
			start = i + n
		}
		i += n
	}
	if start < len(s) {
		out = append(out, s[start:])
	}
	return out
}

// extreme makes max and min.
func extreme(sign int) function {
	return func(a arguments) (jinja.Value, error) {
		if err := a.check("case_sensitive", "attribute"); err != nil {
			return jinja.Undefined(), err
		}
		all, err := items(a.args[0])
		if err != nil || len(all) == 0 {
			return jinja.Undefined(), err
		}
		path, err := a.text(2, "attribute", "")
		if err != nil {
			return jinja.Undefined(), err
		}
		sensitive := a.get(1, "case_sensitive").IsTruthy()
		key := func(v jinja.Value) jinja.Value {
			if path != "" {
				v = attribute(v, path)
			}
			return fold(v, sensitive)
		}
		best := all[0]
		for _, v := range all[1:] {
			c, err := order(key(v), key(best))
			if err != nil {
				return v, err
			}
			if c*sign > 0 {
				best = v
			}
		}
		return best, nil
	}
}

func filterSum(a arguments) (jinja.Value, error) {
	if err := a.check("attribute"); err != nil {
		return jinja.Undefined(), err
	}
	all, err := items(a.args[0])
	if err != nil {
		return jinja.Undefined(), err
	}
	path, err := a.text(1, "attribute", "")
	if err != nil {
		return jinja.Undefined(), err
	}
	whole, n, f := true, int64(0), 0.0
	for _, v := range all {
		if path != "" {
			v = attribute(v, path)
		}
		switch {
		case v.IsInt():
			n += v.AsInt()
			f += float64(v.AsInt())
		case v.IsFloat():
			whole = false
			f += v.AsFloat()
		default:
			return v, fmt.Errorf("%s is not a number", describe(v))
		}
	}
	if whole {
		return jinja.NewInt(n), nil
	}
	return jinja.NewFloat(f), nil
}

func filterBatch(a arguments) (jinja.Value, error) {
	if err := a.check("linecount"); err != nil {
		return jinja.Undefined(), err
	}
	all, err := items(a.args[0])
	if err != nil {
		return jinja.Undefined(), err
	}
	n, err := a.number(1, "linecount", 0)
	if err != nil || n < 1 {
		return jinja.Undefined(), errors.Join(err, errors.New("linecount: want a positive number"))
	}
	var out []jinja.Value
	for chunk := range slices.Chunk(all, n) {
		out = append(out, jinja.NewList(slices.Clone(chunk)))
	}
	return list(out, nil)
}

func filterAttr(a arguments) (jinja.Value, error) {
	// jinja2 looks for Python attributes only; dictionaries and lists of a
	// conversation have none that a template could want.
	return jinja.Undefined(), errors.New("the attr filter is not supported: write value['name']")
}

func filterWordcount(a arguments) (jinja.Value, error) {
	s, err := toString(a.args[0])
	if err != nil {
		return jinja.Undefined(), err
	}
	n := len(strings.FieldsFunc(s, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsNumber(r) }))
	return jinja.NewInt(int64(n)), a.check()
}

func divisibleBy(a arguments) (jinja.Value, error) {
	if len(a.args) != 2 || !a.args[0].IsInt() || !a.args[1].IsInt() || a.args[1].AsInt() == 0 {
		return jinja.Undefined(), errors.New("want two integers, the second not 0")
	}
	return jinja.NewBool(a.args[0].AsInt()%a.args[1].AsInt() == 0), nil
}

func contains(in, v jinja.Value) (jinja.Value, error) {
	switch {
	case in.IsString() && v.IsString():
		return jinja.NewBool(strings.Contains(in.AsString(), v.AsString())), nil
	case in.IsDict():
		return jinja.NewBool(v.IsString() && in.AsDict().Has(v.AsString())), nil
	case in.IsList():
		return jinja.NewBool(slices.ContainsFunc(in.AsList().Items, func(w jinja.Value) bool { return equal(v, w) })), nil
	}
	return jinja.Undefined(), fmt.Errorf("%s in %s", describe(v), describe(in))
}

// splitting makes split and rsplit.
func splitting(right bool) function {
	return onString(func(a arguments) (jinja.Value, error) {
		if err := a.check("sep", "maxsplit"); err != nil {
			return jinja.Undefined(), err
		}
		n, err := a.number(2, "maxsplit", -1)
		if err != nil {
			return jinja.Undefined(), err
		}
		s := a.args[0].AsString()
		var parts []string
		switch v := a.get(1, "sep"); {
		case v.IsUndefined() || v.IsNone():
			if n >= 0 {
				return v, errors.New("maxsplit without a separator is not supported")
			}
			parts = strings.FieldsFunc(s, isSpace)
		case !v.IsString() || v.AsString() == "":
			return v, errors.New("the separator is no text")
		case n < 0:
			parts = strings.Split(s, v.AsString())
		case right:
			for ; n > 0; n-- {
				i := strings.LastIndex(s, v.AsString())
				if i < 0 {
					break
				}
				parts = append(parts, s[i+len(v.AsString()):])
				s = s[:i]
			}
			parts = append(parts, s)
			slices.Reverse(parts)
		default:
			parts = strings.SplitN(s, v.AsString(), n+1)
		}
		out := make([]jinja.Value, len(parts))
		for i, p := range parts {
			out[i] = jinja.NewString(p)
		}
		return list(out, nil)
	})
}

var splitLines = onString(func(a arguments) (jinja.Value, error) {
	var out []jinja.Value
	for _, line := range splitKeeping(a.args[0].AsString()) {
		out = append(out, jinja.NewString(line))
	}
	return list(out, a.check())
})

// affix makes startswith and endswith, which also take a tuple.
func affix(has func(s, affix string) bool) function {
	return onString(func(a arguments) (jinja.Value, error) {
		v := a.get(1, "prefix")
		all := []jinja.Value{v}
		if v.IsList() {
			all = v.AsList().Items
		}
		for _, w := range all {
			if !w.IsString() {
				return w, fmt.Errorf("%s, want a string", describe(w))
			}
			if has(a.args[0].AsString(), w.AsString()) {
				return jinja.NewBool(true), nil
			}
		}
		return jinja.NewBool(false), a.check("prefix")
	})
}

func cutting(cut func(s, affix string) string) function {
	return onString(func(a arguments) (jinja.Value, error) {
		s, err := a.text(1, "prefix", "")
		if err != nil {
			return jinja.Undefined(), err
		}
		return jinja.NewString(cut(a.args[0].AsString(), s)), a.check("prefix")
	})
}

var methodCount = onString(func(a arguments) (jinja.Value, error) {
	s, err := a.text(1, "sub", "")
	if err != nil {
		return jinja.Undefined(), err
	}
	return jinja.NewInt(int64(strings.Count(a.args[0].AsString(), s))), a.check("sub")
})

func finding(find func(s, part string) int) function {
	return onString(func(a arguments) (jinja.Value, error) {
		part, err := a.text(1, "sub", "")
		if err != nil {
			return jinja.Undefined(), err
		}
		s := a.args[0].AsString()
		n := find(s, part)
		if n > 0 {
			n = utf8.RuneCountInString(s[:n])
		}
		return jinja.NewInt(int64(n)), a.check("sub")
	})
}

func textTest(f func(rune) bool) function {
	return onString(func(a arguments) (jinja.Value, error) {
		s := a.args[0].AsString()
		return jinja.NewBool(s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !f(r) })), a.check()
	})
}

var methodJoin = onString(func(a arguments) (jinja.Value, error) {
	if err := a.check("iterable"); err != nil {
		return jinja.Undefined(), err
	}
	return filterJoin(arguments{[]jinja.Value{a.get(1, "iterable"), a.args[0]}, nil})
})

func methodAppend(a arguments) (jinja.Value, error) {
	if !a.args[0].IsList() || len(a.args) != 2 {
		return jinja.Undefined(), fmt.Errorf("append to %s", describe(a.args[0]))
	}
	l := a.args[0].AsList()
	if l.Len() >= maxElements {
		return jinja.Undefined(), fmt.Errorf("a list has more than %d elements", maxElements)
	}
	if err := bound(a.args[1], a.args[0]); err != nil {
		return jinja.Undefined(), err
	}
	l.Append(a.args[1])
	return jinja.None(), a.check("object")
}

func methodGet(a arguments) (jinja.Value, error) {
	if !a.args[0].IsDict() {
		return jinja.Undefined(), fmt.Errorf("%s has no such method", describe(a.args[0]))
	}
	if key := a.get(1, "key"); key.IsString() {
		if v, ok := a.args[0].AsDict().Get(key.AsString()); ok {
			return v, a.check("key", "default")
		}
	}
	if v := a.get(2, "default"); !v.IsUndefined() {
		return v, a.check("key", "default")
	}
	return jinja.None(), a.check("key", "default")
}

// environment returns what one rendering, which may take so long, can call.
func environment(now time.Time, limit time.Duration) map[string]jinja.Value {
	env := map[string]jinja.Value{}
	add := func(name, called string, f function) {
		env[name] = jinja.NewCallable(called, func(args []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error) {
			v, err := f(arguments{args, kwargs})
			var raised *RaiseError
			if err != nil && !errors.As(err, &raised) {
				err = fmt.Errorf("%s: %w", called, err)
			}
			return v, err
		})
	}
	for name, f := range filters() {
		add(filterPrefix+name, name, f)
	}
	for name, f := range methods() {
		add(methodPrefix+name, name+"()", f)
	}
	for name, f := range tests() {
		add(testPrefix+name, "is "+name, f)
		add(notPrefix+name, "is not "+name, func(a arguments) (jinja.Value, error) {
			v, err := f(a)
			return jinja.NewBool(!v.IsTruthy()), err
		})
	}
	steps, depth, written := 0, 0, 0
	add(outName, "output", func(a arguments) (jinja.Value, error) {
		s, err := toString(a.args[0])
		if err != nil {
			return jinja.Undefined(), err
		}
		if written += len(s); written > maxOutput {
			return jinja.Undefined(), fmt.Errorf("more than %d bytes", maxOutput)
		}
		return jinja.NewString(s), nil
	})
	add(keepName, "set", func(a arguments) (jinja.Value, error) {
		into := jinja.Undefined()
		if len(a.args) > 1 {
			into = a.args[1]
		}
		return a.args[0], bound(a.args[0], into)
	})
	deadline := time.Now().Add(limit)
	late := func() error {
		if steps++; steps%256 == 0 && time.Now().After(deadline) {
			return fmt.Errorf("the template takes more than %v", limit)
		}
		return nil
	}
	add(stepName, "for", func(arguments) (jinja.Value, error) {
		if err := late(); err != nil {
			return jinja.Undefined(), err
		}
		if steps > maxSteps {
			return jinja.Undefined(), fmt.Errorf("more than %d passes", maxSteps)
		}
		return jinja.None(), nil
	})
	add(enterName, "macro", func(arguments) (jinja.Value, error) {
		if err := late(); err != nil {
			return jinja.Undefined(), err
		}
		if depth++; depth > maxMacroDepth || steps > maxSteps {
			return jinja.Undefined(), fmt.Errorf("calls nest deeper than %d, or never end", maxMacroDepth)
		}
		return jinja.None(), nil
	})
	add(leaveName, "macro", func(arguments) (jinja.Value, error) {
		depth--
		return jinja.None(), nil
	})
	add("raise_exception", "raise_exception", func(a arguments) (jinja.Value, error) {
		if len(a.args) != 1 {
			return jinja.Undefined(), errors.New("want one message")
		}
		s, err := toString(a.args[0])
		if err == nil {
			err = &RaiseError{s}
		}
		return jinja.Undefined(), err
	})
	add("strftime_now", "strftime_now", func(a arguments) (jinja.Value, error) {
		if len(a.args) != 1 || !a.args[0].IsString() {
			return jinja.Undefined(), errors.New("want one format")
		}
		s, err := strftime(a.args[0].AsString(), now)
		return jinja.NewString(s), err
	})
	add("range", "range", rangeOf)
	add("dict", "dict", func(a arguments) (jinja.Value, error) {
		if len(a.args) > 0 || len(a.kwargs) > 1 {
			// The engine hands over keyword arguments without their order.
			return jinja.Undefined(), errors.New("more than one entry is not supported: write {'a': 1, 'b': 2}")
		}
		d := jinja.NewDict()
		for k, v := range a.kwargs {
			d.AsDict().Set(k, v)
		}
		return d, nil
	})
	return env
}

func rangeOf(a arguments) (jinja.Value, error) {
	var n [3]int
	var err error
	if len(a.args) < 1 || len(a.args) > 3 || len(a.kwargs) > 0 {
		return jinja.Undefined(), errors.New("want one to three numbers")
	}
	for i := range a.args {
		if a.args[i].IsUndefined() || a.args[i].IsNone() {
			return a.args[i], fmt.Errorf("%s, want a number", describe(a.args[i]))
		}
		if n[i], err = a.number(i, "range", 0); err != nil {
			return jinja.Undefined(), err
		}
	}
	start, stop, step := n[0], n[1], n[2]
	switch len(a.args) {
	case 1:
		start, stop, step = 0, n[0], 1
	case 2:
		step = 1
	}
	if step == 0 {
		return jinja.Undefined(), errors.New("step is 0")
	}
	var out []jinja.Value
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		if len(out) == maxRange {
			return jinja.Undefined(), fmt.Errorf("more than %d numbers", maxRange)
		}
		out = append(out, jinja.NewInt(int64(i)))
	}
	return jinja.NewList(out), nil
}

// strftime is Python's, in English, for the directives that dates need.
func strftime(format string, t time.Time) (string, error) {
	layouts := map[byte]string{
		'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM",
		'A': "Monday", 'a': "Mon", 'B': "January", 'b': "Jan", 'h': "Jan", 'j': "002", 'z': "-0700", 'Z': "MST", 'e': "_2",
		'F': "2006-01-02", 'T': "15:04:05", 'R': "15:04", 'D': "01/02/06",
	}
	short := map[byte]string{'m': "1", 'd': "2", 'I': "3"}
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		c := format[i]
		if c != '%' {
			b.WriteByte(c)
			continue
		}
		if i++; i == len(format) {
			return "", errors.New("% at the end of the format")
		}
		c = format[i]
		from := layouts
		if c == '-' && i+1 < len(format) {
			i++
			c, from = format[i], short
			if c == 'H' || c == 'M' || c == 'S' {
				b.WriteString(strconv.Itoa(map[byte]int{'H': t.Hour(), 'M': t.Minute(), 'S': t.Second()}[c]))
				continue
			}
		}
		switch layout, ok := from[c]; {
		case ok:
			b.WriteString(t.Format(layout))
		case c == '%':
			b.WriteByte('%')
		case c == 'f':
			fmt.Fprintf(&b, "%06d", t.Nanosecond()/1000)
		default:
			return "", fmt.Errorf("directive %%%c is not supported", c)
		}
	}
	return b.String(), nil
}
