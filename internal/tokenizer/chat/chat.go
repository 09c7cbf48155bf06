package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ardanlabs/jinja"

	"anemone/internal/platform"
)

// ErrNoTemplate says that a checkpoint has no chat template: it is a base
// model, or its template is elsewhere.
var ErrNoTemplate = errors.New("no chat template: neither chat_template.jinja, chat_template.json nor a chat_template in tokenizer_config.json")

// Message is one turn of a conversation. A template sees it as transformers
// would show it: a dictionary with "role" and "content", and those of the others that
// are not empty.
type Message struct {
	Role       string // "system", "user", "assistant", "tool"
	Content    string
	Parts      []json.RawMessage // content in parts ({"type": "text", ...}), instead of Content
	Reasoning  string            // "reasoning_content": what an assistant thought
	ToolCalls  []ToolCall        // "tool_calls" of an assistant
	Name       string            // "name": of the tool that a tool message answers for
	ToolCallID string            // "tool_call_id": which call it answers
	Extra      map[string]any    // anything else a template knows, by name
}

// ToolCall is a call of a tool by an assistant.
type ToolCall struct {
	ID   string
	Name string
	// Arguments is JSON: an object, as most templates want it, or a string.
	// A template sees what is given; clients of the OpenAI API send a string
	// that holds an object.
	Arguments json.RawMessage
}

// Options are what a rendering depends on besides the messages.
type Options struct {
	// AddGenerationPrompt ends the text with the beginning of an assistant's turn.
	AddGenerationPrompt bool
	// EnableThinking is "enable_thinking"; nil leaves it undefined, which
	// templates take for their default.
	EnableThinking *bool
	// Tools are descriptions of tools, JSON objects. Their keys keep their
	// order and their numbers their form.
	Tools []json.RawMessage
	// Extra sets any other variable of the template. Values are converted by
	// way of JSON; json.RawMessage keeps the order of keys.
	Extra map[string]any
	// Now is the time for templates that print a date; zero means the present.
	Now time.Time
}

// Template is a chat template. It does not change and may be used by any
// number of goroutines.
type Template struct {
	name    string // where it is from, for errors
	engine  *jinja.Template
	toolUse *jinja.Template        // used if there are tools, or nil
	special map[string]jinja.Value // bos_token ...
	limit   time.Duration          // of a rendering
}

// New returns a template from its text. special holds the special tokens by the name
// under which templates know them: "bos_token", "eos_token" ...
func New(source string, special map[string]string) (*Template, error) {
	t := &Template{name: "chat template", special: map[string]jinja.Value{}, limit: maxTime}
	for name, token := range special {
		t.special[name] = jinja.NewString(token)
	}
	var err error
	if t.engine, err = compile(source); err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	return t, nil
}

func compile(source string) (t *jinja.Template, err error) {
	// The engine's own mistakes stay in here.
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the template engine failed: %v", p)
		}
	}()
	prepared, err := prepare(source)
	if err != nil {
		return nil, err
	}
	return jinja.Compile(prepared)
}

// Load reads the chat template of a checkpoint's folder: chat_template.jinja,
// chat_template.json, or "chat_template" in tokenizer_config.json, a text or a
// list of named ones ("default", and "tool_use" for conversations with tools).
// The special tokens are those of tokenizer_config.json.
func Load(dir string) (*Template, error) {
	path := func(name string) string { return filepath.Join(dir, name) }
	open := func(name string) (io.ReadCloser, error) { return platform.Open(path(name)) }
	return load(dir, path, open)
}

// LoadFrom is [Load] for files that do not lie in a folder, such as those that
// stand for what a GGUF file holds: open opens one by its name, and the error
// for one that is not there wraps [fs.ErrNotExist]. where is what errors call
// the place.
func LoadFrom(where string, open func(name string) (io.ReadCloser, error)) (*Template, error) {
	return load(where, func(name string) string { return where + ": " + name }, open)
}

func load(where string, path func(name string) string, open func(name string) (io.ReadCloser, error)) (*Template, error) {
	read := func(name string, limit int64) ([]byte, error) {
		f, err := open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		data, err := io.ReadAll(io.LimitReader(f, limit+1))
		if err != nil {
			return nil, err
		}
		if int64(len(data)) > limit {
			return nil, fmt.Errorf("%s: more than %d bytes are not accepted", path(name), limit)
		}
		return data, nil
	}
	const configFile = "tokenizer_config.json"
	c := new(config)
	data, err := read(configFile, maxConfigSize)
	if err == nil {
		if c, err = parseConfig(data); err != nil {
			return nil, fmt.Errorf("%s: %w", path(configFile), err)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	name := path(configFile)
	for _, file := range []string{"chat_template.jinja", "chat_template.json"} {
		data, err := read(file, 2*maxTemplateSize)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("chat template: %w", err)
		}
		source := string(data)
		if strings.HasSuffix(file, ".json") {
			var f struct {
				Template string `json:"chat_template"`
			}
			if err := json.Unmarshal(data, &f); err != nil {
				return nil, fmt.Errorf("%s: %w", path(file), err)
			}
			source = f.Template
		}
		name, c.template, c.toolUse = path(file), &source, nil
		break
	}
	if c.template == nil {
		return nil, fmt.Errorf("%s: %w", where, ErrNoTemplate)
	}
	t, err := c.build()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	t.name = name
	return t, nil
}

// config is what tokenizer_config.json has for chat.
type config struct {
	template *string
	toolUse  *string
	special  map[string]string
}

// parseConfig reads a tokenizer_config.json. Keys that it does not know may
// hold anything.
func parseConfig(data []byte) (*config, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	c := &config{special: map[string]string{}}
	for key, raw := range all {
		if !strings.HasSuffix(key, "_token") {
			continue
		}
		// "<s>", {"content": "<s>", ...}, null, or a flag such as add_bos_token.
		var token string
		var object struct{ Content *string }
		if json.Unmarshal(raw, &token) == nil && string(raw) != "null" {
			c.special[key] = token
		} else if json.Unmarshal(raw, &object) == nil && object.Content != nil {
			c.special[key] = *object.Content
		}
	}
	raw := all["chat_template"]
	if len(raw) == 0 || string(raw) == "null" {
		return c, nil
	}
	var text string
	if err := json.Unmarshal(raw, &text); err == nil {
		c.template = &text
		return c, nil
	}
	var list []struct{ Name, Template string }
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, errors.New("chat_template: want a string or a list of objects with name and template")
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name)
		switch e.Name {
		case "default":
			c.template = &e.Template
		case "tool_use":
			c.toolUse = &e.Template
		}
	}
	if c.template == nil {
		return nil, fmt.Errorf(`chat_template: found %q, want one named "default"`, names[:min(len(names), 16)])
	}
	return c, nil
}

func (c *config) build() (*Template, error) {
	t, err := New(*c.template, c.special)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	if c.toolUse != nil {
		if t.toolUse, err = compile(*c.toolUse); err != nil {
			return nil, fmt.Errorf("tool_use: %w", err)
		}
	}
	return t, nil
}

// Render returns the text of a conversation. If the template refuses it
// (raise_exception), the error is a *RaiseError.
func (t *Template) Render(msgs []Message, o Options) (text string, err error) {
	engine := t.engine
	if len(o.Tools) > 0 && t.toolUse != nil {
		engine = t.toolUse
	}
	now := o.Now
	if now.IsZero() {
		now = time.Now()
	}
	data := environment(now, t.limit)
	for name, token := range t.special {
		data[name] = token
	}
	data["documents"] = jinja.None()
	data["add_generation_prompt"] = jinja.NewBool(o.AddGenerationPrompt)
	if o.EnableThinking != nil {
		data["enable_thinking"] = jinja.NewBool(*o.EnableThinking)
	}
	data["tools"] = jinja.None()
	if len(o.Tools) > 0 {
		tools, err := rawList(o.Tools)
		if err != nil {
			return "", fmt.Errorf("tool %w", err)
		}
		data["tools"] = tools
	}
	for name, v := range o.Extra {
		if strings.HasPrefix(name, "anemone") {
			return "", fmt.Errorf("variable %q: the name is taken", name)
		}
		if data[name], err = fromAny(v); err != nil {
			return "", fmt.Errorf("variable %q: %w", name, err)
		}
	}
	list := make([]jinja.Value, len(msgs))
	for i, m := range msgs {
		if list[i], err = m.value(); err != nil {
			return "", fmt.Errorf("message %d: %w", i, err)
		}
	}
	data["messages"] = jinja.NewList(list)
	defer func() {
		if p := recover(); p != nil {
			text, err = "", fmt.Errorf("%s: the template engine failed: %v", t.name, p)
		}
	}()
	text, err = engine.RenderValues(data)
	var raised *RaiseError
	if errors.As(err, &raised) {
		return "", err
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", t.name, err)
	}
	return text, nil
}

func rawList(list []json.RawMessage) (jinja.Value, error) {
	out := make([]jinja.Value, len(list))
	for i, raw := range list {
		v, err := decodeJSON(raw)
		if err != nil {
			return v, fmt.Errorf("%d: %w", i, err)
		}
		out[i] = v
	}
	return jinja.NewList(out), nil
}

func fromAny(v any) (jinja.Value, error) {
	raw, ok := v.(json.RawMessage)
	if !ok {
		var err error
		if raw, err = json.Marshal(v); err != nil {
			return jinja.Undefined(), err
		}
	}
	return decodeJSON(raw)
}

// value is the dictionary of a message.
func (m *Message) value() (jinja.Value, error) {
	v := jinja.NewDict()
	d := v.AsDict()
	text := func(key, s string) {
		if s != "" {
			d.Set(key, jinja.NewString(s))
		}
	}
	d.Set("role", jinja.NewString(m.Role))
	d.Set("content", jinja.NewString(m.Content))
	if m.Parts != nil {
		parts, err := rawList(m.Parts)
		if err != nil {
			return v, fmt.Errorf("part %w", err)
		}
		d.Set("content", parts)
	}
	text("reasoning_content", m.Reasoning)
	if len(m.ToolCalls) > 0 {
		calls := make([]jinja.Value, len(m.ToolCalls))
		for i, c := range m.ToolCalls {
			call, function := jinja.NewDict(), jinja.NewDict()
			if c.ID != "" {
				call.AsDict().Set("id", jinja.NewString(c.ID))
			}
			call.AsDict().Set("type", jinja.NewString("function"))
			function.AsDict().Set("name", jinja.NewString(c.Name))
			arguments := jinja.NewDict()
			if len(c.Arguments) > 0 {
				var err error
				if arguments, err = decodeJSON(c.Arguments); err != nil {
					return v, fmt.Errorf("arguments of tool call %d: %w", i, err)
				}
			}
			function.AsDict().Set("arguments", arguments)
			call.AsDict().Set("function", function)
			calls[i] = call
		}
		d.Set("tool_calls", jinja.NewList(calls))
	}
	text("name", m.Name)
	text("tool_call_id", m.ToolCallID)
	names := make([]string, 0, len(m.Extra))
	for name := range m.Extra {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		x, err := fromAny(m.Extra[name])
		if err != nil {
			return v, fmt.Errorf("%s: %w", name, err)
		}
		d.Set(name, x)
	}
	return v, nil
}
