package chat

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"anemone/internal/testutil"
	"anemone/internal/tokenizer/tokenizertest"
)

// goldens is testdata/goldens.json.gz; testdata/make_goldens.py says what is in it.
type goldens struct {
	Conversations map[string][]json.RawMessage
	Tools         []json.RawMessage
	Special       map[string]string
	Templates     map[string]string
	Renders       []struct {
		Name         string
		Template     string // of compare files
		Conversation string
		Tools        bool
		Options      struct {
			Generate bool  `json:"add_generation_prompt"`
			Thinking *bool `json:"enable_thinking"`
		}
		result
	}
	Variables map[string]json.RawMessage
	Snippets  []struct {
		Template string
		result
	}
}

// result is what jinja2 did.
type result struct {
	Text    *string
	Hash    string
	Error   string
	Message string
}

// now is the time in the golden data.
var now = time.Date(2026, 3, 5, 7, 8, 9, 0, time.UTC)

var loadGoldens = sync.OnceValues(func() (*goldens, error) {
	f, err := os.Open(filepath.Join("testdata", "goldens.json.gz"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	g := new(goldens)
	return g, json.NewDecoder(z).Decode(g)
})

func golden(t testing.TB) *goldens {
	t.Helper()
	g, err := loadGoldens()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// messages turns the dictionaries of the golden data into Messages.
func messages(t testing.TB, raw []json.RawMessage) []Message {
	t.Helper()
	var out []Message
	for _, r := range raw {
		var m struct {
			Role, Name, Reasoning_content, Tool_call_id string
			Content                                     json.RawMessage
			Reasoning, Tool_responses                   any
			Tool_calls                                  []struct {
				ID       string
				Function struct {
					Name      string
					Arguments json.RawMessage
				}
			}
		}
		if err := json.Unmarshal(r, &m); err != nil {
			t.Fatal(err)
		}
		msg := Message{Role: m.Role, Name: m.Name, Reasoning: m.Reasoning_content, ToolCallID: m.Tool_call_id}
		for name, v := range map[string]any{"reasoning": m.Reasoning, "tool_responses": m.Tool_responses} {
			if v != nil {
				if msg.Extra == nil {
					msg.Extra = map[string]any{}
				}
				msg.Extra[name] = v
			}
		}
		if err := json.Unmarshal(m.Content, &msg.Content); err != nil {
			if err := json.Unmarshal(m.Content, &msg.Parts); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range m.Tool_calls {
			msg.ToolCalls = append(msg.ToolCalls, ToolCall{c.ID, c.Function.Name, c.Function.Arguments})
		}
		out = append(out, msg)
	}
	return out
}

// check compares one rendering with jinja2's.
func (r *result) check(t *testing.T, what, text string, err error) {
	t.Helper()
	var raised *RaiseError
	switch {
	case r.Error == "raised":
		if !errors.As(err, &raised) || raised.Message != r.Message {
			t.Errorf("%s: %q, %v, want the template to raise %q", what, text, err, r.Message)
		}
	case r.Error != "":
		if err == nil {
			t.Errorf("%s: %q, want an error like %s: %s", what, text, r.Error, r.Message)
		} else if errors.As(err, &raised) {
			t.Errorf("%s: %v, but the template raises nothing", what, err)
		}
	case err != nil:
		t.Errorf("%s: %v, want %q", what, err, *r.Text)
	case r.Text != nil && text != *r.Text:
		t.Errorf("%s:\n got %q\nwant %q", what, text, *r.Text)
	case r.Hash != "" && fmt.Sprintf("%x", sha256.Sum256([]byte(text))) != r.Hash:
		t.Errorf("%s: %q has another hash than jinja2's", what, text)
	}
}

func (g *goldens) testRenders(t *testing.T, name string, tmpl *Template, maxLoose int) {
	t.Helper()
	n, raised, loose := 0, 0, 0
	for _, r := range g.Renders {
		if r.Name != name {
			continue
		}
		o := Options{AddGenerationPrompt: r.Options.Generate, EnableThinking: r.Options.Thinking, Now: now}
		if r.Tools {
			o.Tools = g.Tools
		}
		text, err := tmpl.Render(messages(t, g.Conversations[r.Conversation]), o)
		thinking := "nil"
		if r.Options.Thinking != nil {
			thinking = fmt.Sprint(*r.Options.Thinking)
		}
		what := fmt.Sprintf("%s, tools %v, generate %v, thinking %s", r.Conversation, r.Tools, r.Options.Generate, thinking)
		if lenient := r.Error == "TypeError" || r.Error == "UndefinedError"; lenient && err == nil {
			// jinja2 fails for want of an attribute or at adding text to
			// something else, which the engine does not mind.
			loose++
			continue
		}
		r.check(t, what, text, err)
		if n++; r.Error == "raised" {
			raised++
		}
	}
	t.Logf("%s: %d renderings compared, %d of them refused by the template; %d more fail in jinja2 only", name, n, raised, loose)
	if n < 90 || loose > maxLoose {
		t.Errorf("%s: %d renderings compared, %d fail in jinja2 only", name, n, loose)
	}
}

func TestGoldenTemplates(t *testing.T) {
	g := golden(t)
	for name, source := range g.Templates {
		t.Run(name, func(t *testing.T) {
			tmpl, err := New(source, g.Special)
			if err != nil {
				t.Fatal(err)
			}
			g.testRenders(t, name, tmpl, 8)
		})
	}
}

func TestGoldenTinyQwen3(t *testing.T) {
	tmpl, err := Load(testutil.Data(t, "checkpoints", "tiny-qwen3"))
	if err != nil {
		t.Fatal(err)
	}
	golden(t).testRenders(t, "tiny-qwen3", tmpl, 8)
}

func TestGoldenQwen3(t *testing.T) {
	tmpl, err := Load(tokenizertest.Qwen3(t))
	if err != nil {
		t.Fatal(err)
	}
	golden(t).testRenders(t, "qwen3", tmpl, 8)
}

// TestCompare compares with a file made by testdata/make_goldens.py --compare.
func TestCompare(t *testing.T) {
	name := os.Getenv("ANEMONE_CHAT_COMPARE")
	if name == "" {
		t.Skip("run with a file made by testdata/make_goldens.py --compare")
	}
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	g := new(goldens)
	if err := json.Unmarshal(data, g); err != nil {
		t.Fatal(err)
	}
	done := map[string]bool{}
	for _, r := range g.Renders {
		if done[r.Name] {
			continue
		}
		done[r.Name] = true
		t.Run(r.Name, func(t *testing.T) {
			tmpl, err := New(r.Template, g.Special)
			if err != nil {
				t.Fatal(err)
			}
			g.testRenders(t, r.Name, tmpl, 100)
		})
	}
}

// knownDifferences are snippets that jinja2 renders in another way, by the
// part of them that decides. Where the value is an error, this package
// refuses the template; where it is a text, that is what it renders.
var knownDifferences = map[string]struct{ text, err string }{
	// Items of dictionaries are lists here, where they are tuples in Python.
	"{{ d | items | list }} {{ missing | items | list }}": {text: "[['b', 1], ['a', 2], ['C', {'x': [1, 2]}], ['get', 'g']] []"},
	"{{ d | dictsort | list }}":                           {text: "[['a', 2], ['b', 1], ['C', {'x': [1, 2]}], ['get', 'g']]"},
	"{{ d | dictsort(true) | list }}":                     {text: "[['C', {'x': [1, 2]}], ['a', 2], ['b', 1], ['get', 'g']]"},
	"{{ {'b': 1, 'a': 2} | dictsort(by='value') | list }} {{ {'b': 1, 'a': 2} | dictsort(reverse=true) | list }}": {text: "[['b', 1], ['a', 2]] [['b', 1], ['a', 2]]"},
	// Not supported.
	"{{ {'a': 1, 2: 3} }}": {err: "a number as key"},
	"{{ 2 ** 3 }}":         {err: "** is not supported"},
	// The engine is more lenient than Python.
	"{{ 'a'.b.c }}":              {text: ""},
	"{{ missing.x }}":            {text: ""},
	"{{ missing.x.y }}":          {text: ""},
	"{{ 'a' + 1 }}":              {text: "a1"},
	"{{ nil + 'a' }}":            {text: "a"},
	"{{ people[loop_missing] }}": {text: "{'name': 'Bo', 'age': 30, 'tags': ['x']}"},
}

// TestSnippets runs small templates for one feature each.
func TestSnippets(t *testing.T) {
	g := golden(t)
	extra := map[string]any{}
	for name, v := range g.Variables {
		extra[name] = v
	}
	for _, s := range g.Snippets {
		what := fmt.Sprintf("%q", s.Template)
		tmpl, err := New(s.Template, nil)
		var text string
		if err == nil {
			text, err = tmpl.Render([]Message{{Role: "user", Content: "x"}}, Options{Extra: extra, Now: now})
		}
		known, ok := knownDifferences[s.Template]
		switch {
		case !ok:
			s.check(t, what, text, err)
		case known.err != "":
			if err == nil || !strings.Contains(err.Error(), known.err) {
				t.Errorf("%s: %q, %v, want an error with %q", what, text, err, known.err)
			}
		case err != nil || text != known.text:
			t.Errorf("%s: %q, %v, want %q", what, text, err, known.text)
		case s.Text != nil && text == *s.Text:
			t.Errorf("%s: no difference any more", what)
		}
	}
	if len(g.Snippets) < 250 {
		t.Errorf("golden data has only %d snippets", len(g.Snippets))
	}
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLoad(t *testing.T) {
	const config = "tokenizer_config.json"
	for _, c := range []struct {
		name  string
		files map[string]string
		tools bool
		want  string // of the template's output, or
		err   string
	}{
		{name: "file", files: map[string]string{"chat_template.jinja": "{{ bos_token }}f", config: `{"bos_token": "<s>", "chat_template": "c"}`}, want: "<s>f"},
		{name: "file without config", files: map[string]string{"chat_template.jinja": "[{{ bos_token }}]"}, want: "[]"},
		{name: "json file", files: map[string]string{"chat_template.json": `{"chat_template": "j"}`, config: `{"chat_template": "c"}`}, want: "j"},
		{name: "config", files: map[string]string{config: `{"chat_template": "{{ eos_token }}c", "eos_token": {"content": "</s>", "lstrip": false}}`}, want: "</s>c"},
		{name: "null tokens", files: map[string]string{config: `{"chat_template": "{{ bos_token is defined }}{{ add_bos_token is defined }}", "bos_token": null, "add_bos_token": true}`}, want: "FalseFalse"},
		{name: "list", files: map[string]string{config: `{"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]}`}, want: "d"},
		{name: "list with tools", files: map[string]string{config: `{"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]}`}, tools: true, want: "t"},
		{name: "no tool_use", files: map[string]string{config: `{"chat_template": [{"name": "default", "template": "d"}]}`}, tools: true, want: "d"},
		{name: "list without default", files: map[string]string{config: `{"chat_template": [{"name": "rag", "template": "t"}]}`}, err: `found ["rag"], want one named "default"`},
		{name: "number", files: map[string]string{config: `{"chat_template": 5}`}, err: "want a string or a list"},
		{name: "bad config", files: map[string]string{config: `{`}, err: config},
		{name: "bad json file", files: map[string]string{"chat_template.json": `[]`}, err: "chat_template.json"},
		{name: "bad template", files: map[string]string{"chat_template.jinja": "a\n{% if %}"}, err: "chat_template.jinja: line 2: if does not end"},
		{name: "bad tool_use", files: map[string]string{config: `{"chat_template": [{"name": "tool_use", "template": "{%"}, {"name": "default", "template": "d"}]}`}, err: "tool_use: line 1"},
		{name: "null", files: map[string]string{config: `{"chat_template": null}`}, err: ErrNoTemplate.Error()},
		{name: "nothing", err: ErrNoTemplate.Error()},
		{name: "huge", files: map[string]string{"chat_template.jinja": strings.Repeat("a", maxTemplateSize+1)}, err: "not accepted"},
		{name: "latin 1", files: map[string]string{"chat_template.jinja": "\xe9"}, err: "not valid UTF-8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, c.files)
			open := func(name string) (io.ReadCloser, error) {
				if text, ok := c.files[name]; ok {
					return io.NopCloser(strings.NewReader(text)), nil
				}
				return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
			}
			for where, load := range map[string]func() (*Template, error){
				dir: func() (*Template, error) { return Load(dir) }, "elsewhere": func() (*Template, error) { return LoadFrom("elsewhere", open) },
			} {
				tmpl, err := load()
				if c.err != "" {
					if err == nil || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), where) {
						t.Fatalf("error %v, want one with %q and %s", err, c.err, where)
					}
					if is := errors.Is(err, ErrNoTemplate); is != (c.err == ErrNoTemplate.Error()) {
						t.Errorf("errors.Is(%v, ErrNoTemplate) = %v", err, is)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				var o Options
				if c.tools {
					o.Tools = []json.RawMessage{[]byte(`{}`)}
				}
				if text, err := tmpl.Render(nil, o); err != nil || text != c.want {
					t.Errorf("%s: Render = %q, %v, want %q", where, text, err, c.want)
				}
			}
		})
	}
}

func TestRenderErrors(t *testing.T) {
	tmpl, err := New("{% for m in messages %}{{ m | tojson }}{% endfor %}{{ tools }}{{ x }}", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		msg  Message
		o    Options
		want string
	}{
		{"tool", Message{}, Options{Tools: []json.RawMessage{[]byte("{}"), []byte("{")}}, "tool 1: "},
		{"two values", Message{}, Options{Tools: []json.RawMessage{[]byte("{} {}")}}, "tool 0: text after"},
		{"deep tool", Message{}, Options{Tools: []json.RawMessage{[]byte(strings.Repeat("[", 1000))}}, "deep"},
		{"arguments", Message{ToolCalls: []ToolCall{{Arguments: []byte("nul")}}}, Options{}, "message 0: arguments of tool call 0: "},
		{"part", Message{Parts: []json.RawMessage{[]byte("")}}, Options{}, "message 0: part 0: "},
		{"extra", Message{Extra: map[string]any{"f": func() {}}}, Options{}, "message 0: f: "},
		{"variable", Message{}, Options{Extra: map[string]any{"x": make(chan int)}}, `variable "x": `},
		{"name", Message{}, Options{Extra: map[string]any{"anemone_out": 1}}, "the name is taken"},
		{"digits", Message{}, Options{Extra: map[string]any{"x": json.RawMessage(strings.Repeat("9", 5000))}}, "5000 digits"},
	} {
		if text, err := tmpl.Render([]Message{c.msg}, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %q, %v, want an error with %q", c.name, text, err, c.want)
		}
	}
}

// TestMessage shows what a template sees of a message.
func TestMessage(t *testing.T) {
	tmpl, err := New("{{ messages[0] | tojson }}", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		msg  Message
		want string
	}{
		{Message{Role: "user", Content: "x"}, `{"role": "user", "content": "x"}`},
		{Message{Role: "assistant"}, `{"role": "assistant", "content": ""}`},
		{Message{Role: "user", Parts: []json.RawMessage{[]byte(`{"type":"text","text":"x"}`)}}, `{"role": "user", "content": [{"type": "text", "text": "x"}]}`},
		{Message{Role: "assistant", Reasoning: "r", ToolCalls: []ToolCall{{"1", "f", []byte(`{"z":1.0,"a":1}`)}, {"", "g", nil}, {"", "h", []byte(`"{}"`)}}},
			`{"role": "assistant", "content": "", "reasoning_content": "r", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": {"z": 1.0, "a": 1}}}, {"type": "function", "function": {"name": "g", "arguments": {}}}, {"type": "function", "function": {"name": "h", "arguments": "{}"}}]}`},
		{Message{Role: "tool", Content: "r", Name: "f", ToolCallID: "1", Extra: map[string]any{"b": 1, "a": json.RawMessage(`{"y":0,"x":0}`), "content": nil}},
			`{"role": "tool", "content": null, "name": "f", "tool_call_id": "1", "a": {"y": 0, "x": 0}, "b": 1}`},
	} {
		if text, err := tmpl.Render([]Message{c.msg}, Options{}); err != nil || text != c.want {
			t.Errorf("%+v:\n got %s, %v\nwant %s", c.msg, text, err, c.want)
		}
	}
}

// TestUnsupported: what neither the engine nor this package does is refused
// when the template is read, with the line.
func TestUnsupported(t *testing.T) {
	for _, c := range []struct{ source, want string }{
		{"{% for x in y recursive %}{% endfor %}", "recursive"},
		{"{% for x in y %}{{ loop(x) }}{% endfor %}", `"loop" is not supported here`},
		{"{% for x in y %}{{ loop.depth }}{% endfor %}", "loop.depth"},
		{"{% for x in y %}{{ loop.changed(x) }}{% endfor %}", "changed"},
		{"{% for a, b, c in y %}{% endfor %}", "one name, or two"},
		{"{% for x in 1, 2 %}{% endfor %}", "list without brackets"},
		{"{% for k, v in d.items() if v %}{{ loop.index }}{% endfor %}", "two names, a condition"},
		{"{% set a, b = 1, 2 %}", `"," after the name`},
		{"{% set x | upper %}a{% endset %}", "after the name"},
		{"{{ 'x%s' % 1 }}", "formatting"},
		{"{{ a * b }}", "* is supported once"},
		{"{{ 'x' * 1000 }}", "* is supported once"},
		{"{{ a, b }}", `"," is not expected`},
		{"{{ x.encode() }}", `method "encode"`},
		{"{{ x | random }}", `filter "random"`},
		{"{{ x is filter }}", `test "filter"`},
		{"{% macro m(a=[1, 2]) %}{% endmacro %}", "the default of a"},
		{"{% macro m() %}{{ varargs }}{% endmacro %}", "varargs"},
		{"{% import 'x' as y %}", `statement "import"`},
		{"{% block x %}{% endblock %}", `statement "block"`},
		{"{{ anemone_out }}", "not supported here"},
		{"{% set anemone_x = 1 %}", "want a name"},
		{"{{ 0x1F }}", "number"},
		{"{{ 99999999999999999999 }}", "number"},
		{`{{ '\N{BULLET}' }}`, `\N`},
		{"{{ é }}", "not expected in a tag"},
		{strings.Repeat("{% if x %}", 100), "nested more than"},
		{"{{ " + strings.Repeat("(", 100), "nested more than"},
		{"{{ " + strings.Repeat("not ", 5000) + "x }}", "more than 2048 words"},
		{"{{ " + strings.Repeat("a + ", 500) + "x }}", "more than 128 + and ~"},
	} {
		_, err := New("\n\n"+c.source, nil)
		var bad *TemplateError
		if !errors.As(err, &bad) || bad.Line != 3 || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60s: %v, want an error in line 3 with %q", c.source, err, c.want)
		}
	}
}

// TestEngineLine: errors that only the engine finds name the line too.
func TestEngineLine(t *testing.T) {
	if _, err := New("a\nb {{ 1 }}\n\n{{- a b }}", nil); err == nil || !strings.Contains(err.Error(), "line 4") {
		t.Errorf("error %v, want one in line 4", err)
	}
}

// TestRunaway: programs that do not end, or eat all memory.
func TestRunaway(t *testing.T) {
	for _, c := range []struct{ source, want string }{
		{"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nest deeper"},
		{"{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}", "nest deeper"},
		{"{% macro f(n) %}{% if n > 0 %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(100) }}", "never end"},
		{"{{ range(100000) | list }}", "more than 65536 numbers"},
		{"{{ range(9999999999) }}", "small integer"},
		{"{% for i in range(60000) %}{% for j in range(60000) %}{% endfor %}{% endfor %}", "passes"},
		{"{% set ns = namespace(s='xxxxxxxxxxxxxxxx') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", "too large"},
		{"{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", "too large"},
		{"{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}", "too large"},
		{"{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s == ns.s }}", "too large"},
		{"{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}", "within itself"},
		{"{% set ns = namespace() %}{% set ns.a = [{'b': [ns]}] %}{{ ns | tojson }}", "within itself"},
		{"{% set ns = namespace(l=[]) %}{% set _ = ns.l.append([ns]) %}{% set ns.b = ns.l %}{{ ns == ns }}", "within itself"},
		{"{% set l = [] %}{% set _ = l.append(l) %}{{ l }}", "within itself"},
		{"{% set l = [] %}{% set m = [l] %}{% set _ = l.append(m) %}{{ l == m }}", "within itself"},
		{"{% set ns = namespace(x=[]) %}{% for i in range(60000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}", "nested more than 1000 deep"},
		{"{% set l = [1] %}{% set ns = namespace(a=[l, l]) %}{{ ns.a }}", ""},
		{strings.Repeat("{% macro f() %}{% endmacro %}", 5000), "more than 8192 are not accepted"},
		{"{% set s = 'x' * 64 %}{% set s = s * 64 %}{% set s = s * 64 %}{{ s | replace('x', s) }}", "bytes as text"},
		{"{% set s = 'x' * 64 %}{% set s = s * 64 %}{% set s = s * 64 %}{% for i in range(1000) %}{{ s }}{% endfor %}", "more than 67108864 bytes"},
		{"{% set s = 'x\n' * 64 %}{% set s = s * 64 %}{% set s = s * 64 %}{{ s | indent(200) }}", "bytes as text"},
		{"{{ 'x' | indent(99999999) }}", "width"},
		{"{{ [1] | tojson(indent=2000000000) }}", ""},
		{"{{ 'x' * -1 }}", ""},
		{"{{ [] | select('nothing') | list }}{{ [] | selectattr | list }}", ""},
	} {
		tmpl, err := New(c.source, nil)
		var text string
		if err == nil {
			text, err = tmpl.Render(nil, Options{})
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %.40q, %v, want an error with %q", c.source, text, err, c.want)
		}
		if len(text) > 1000 {
			t.Errorf("%s: %d bytes", c.source, len(text))
		}
	}
}

// TestTime: a template whose steps are few but long is stopped by the clock.
func TestTime(t *testing.T) {
	tmpl, err := New("{% set l = range(65000) | list %}{% for i in range(65000) %}{% if -1 in l %}{% endif %}{% endfor %}", nil)
	if err != nil {
		t.Fatal(err)
	}
	tmpl.limit = 100 * time.Millisecond
	start := time.Now()
	if _, err := tmpl.Render(nil, Options{}); err == nil || !strings.Contains(err.Error(), "takes more than 100ms") {
		t.Errorf("error %v", err)
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("stopped after %v", d)
	}
}

func TestConcurrent(t *testing.T) {
	g := golden(t)
	tmpl, err := New(g.Templates["qwen-like"], g.Special)
	if err != nil {
		t.Fatal(err)
	}
	msgs := messages(t, g.Conversations["tool"])
	want, err := tmpl.Render(msgs, Options{Tools: g.Tools})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				if text, err := tmpl.Render(msgs, Options{Tools: g.Tools}); err != nil || text != want {
					t.Errorf("%q, %v", text, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestFormatFloat(t *testing.T) {
	// Python's repr of the same numbers.
	for f, want := range map[float64]string{
		0: "0.0", 1: "1.0", -1.5: "-1.5", 0.1: "0.1", 1e15: "1000000000000000.0", 1e16: "1e+16", 123456789012345678: "1.2345678901234568e+17",
		0.0001: "0.0001", 0.00001: "1e-05", 1e-7: "1e-07", 1.5e300: "1.5e+300", 5e-324: "5e-324", 1e100: "1e+100", 2.5: "2.5",
	} {
		if got := formatFloat(f); got != want {
			t.Errorf("formatFloat(%g) = %s, want %s", f, got, want)
		}
	}
}

// FuzzLoad feeds tokenizer_config.json and what follows from it.
func FuzzLoad(f *testing.F) {
	for _, s := range []string{
		`{"chat_template": "{{ bos_token }}{% for m in messages %}{{ m.role }}{% endfor %}", "bos_token": "<s>"}`,
		`{"chat_template": [{"name": "default", "template": "{{ tools | tojson }}"}, {"name": "tool_use", "template": "x"}], "eos_token": {"content": "</s>"}}`,
		`{"chat_template": null, "pad_token": null, "add_bos_token": false}`,
		`{"chat_template": 1}`, `[]`, ``,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parseConfig(data)
		if err != nil || c.template == nil {
			return
		}
		tmpl, err := c.build()
		if err != nil {
			return
		}
		render(t, tmpl)
	})
}

// FuzzTemplate feeds templates.
func FuzzTemplate(f *testing.F) {
	g := golden(f)
	for _, s := range g.Snippets {
		f.Add(s.Template)
	}
	f.Fuzz(func(t *testing.T, source string) {
		if len(source) > 4096 {
			return
		}
		tmpl, err := New(source, map[string]string{"bos_token": "<s>"})
		if err != nil {
			return
		}
		render(t, tmpl)
	})
}

func render(t *testing.T, tmpl *Template) {
	o := Options{Tools: []json.RawMessage{[]byte(`{"a": [1.0, 99999999999999999999]}`)}, Extra: map[string]any{
		"s": "Hello, World", "n": 7, "f": 2.5, "t": true, "list": []int{3, 1, 2}, "d": map[string]any{"b": 1, "a": nil}, "w": " x\n",
	}}
	text, err := tmpl.Render([]Message{{Role: "user", Content: "x"}, {Role: "assistant", ToolCalls: []ToolCall{{Name: "f"}}}}, o)
	if err != nil && text != "" {
		t.Fatalf("text %q with error %v", text, err)
	}
	if len(text) > maxOutput {
		t.Fatalf("%d bytes", len(text))
	}
}
