package archtest

import (
	"encoding/json"
	"strings"
	"testing"

	"anemone/internal/arch"
	"anemone/internal/checkpoint"
	"anemone/internal/checkpoint/checkpointtest"
	"anemone/internal/checkpoint/safetensors"
)

// Change maps keys of a config.json to other values; nil removes a key.
type Change = map[string]any

// Edit returns a JSON object with a change made.
func Edit(t testing.TB, object string, c Change) []byte {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(object), &m); err != nil {
		t.Fatal(err)
	}
	Apply(m, c)
	return Encode(t, m)
}

// Apply makes a change of an object.
func Apply(object map[string]any, c Change) {
	for k, v := range c {
		if object[k] = v; v == nil {
			delete(object, k)
		}
	}
}

// Encode returns v as JSON.
func Encode(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Parse parses the text of a config.json.
func Parse[C any](data []byte, parse func(*checkpoint.Config) (C, error)) (C, error) {
	c, err := checkpoint.ParseConfig("config.json", data)
	if err != nil {
		var none C
		return none, err
	}
	return parse(c)
}

// Taken is a change of a config.json and what it does to the configuration.
type Taken[C any] = struct {
	Name   string
	Change Change
	Want   func(*C)
}

// TestTaken parses a config.json with each change made and holds the result
// to base, changed likewise.
func TestTaken[C comparable](t *testing.T, object string, parse func(*checkpoint.Config) (*C, error), base C, cases []Taken[C]) {
	for _, c := range cases {
		want := base
		c.Want(&want)
		got, err := Parse(Edit(t, object, c.Change), parse)
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
		} else if *got != want {
			t.Errorf("%s: got %+v, want %+v", c.Name, *got, want)
		}
	}
}

// Refused is a change of a config.json that makes it one to refuse.
type Refused = struct {
	Name   string
	Change Change
	Want   string // parts of the error, separated by |; the file's name is one anyway
}

// TestRefused parses a config.json with each change made and holds the errors
// to what they have to name.
func TestRefused[C any](t *testing.T, object string, parse func(*checkpoint.Config) (C, error), cases []Refused) {
	for _, c := range cases {
		got, err := Parse(Edit(t, object, c.Change), parse)
		if err == nil {
			t.Errorf("%s: no error, got %+v", c.Name, got)
			continue
		}
		Names(t, c.Name, err, "config.json|"+c.Want)
	}
}

// Names reports an error that does not contain all of the parts, which are
// separated by |.
func Names(t testing.TB, what string, err error, parts string) {
	t.Helper()
	for part := range strings.SplitSeq(parts, "|") {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s: error %q does not name %q", what, err, part)
		}
	}
}

// Opened is a checkpoint with changes, and what opening it says.
type Opened = struct {
	Name    string
	Config  func(map[string]any)                // changes config.json; may be nil
	Tensors func(map[string]*safetensors.Named) // changes the tensors; may be nil
	Want    string                              // parts of the error, separated by |; "" if there is none
}

// TestOpen opens variants of the checkpoint in a folder and holds the errors to
// what they have to name.
func TestOpen(t *testing.T, a arch.Architecture, dir string, cases []Opened) {
	t.Helper()
	for _, c := range cases {
		ck, err := checkpoint.Open(checkpointtest.Variant(t, dir, c.Config, c.Tensors))
		if err != nil {
			t.Fatal(err)
		}
		_, err = a.Open(ck)
		ck.Close()
		switch {
		case c.Want == "" && err != nil:
			t.Errorf("%s: %v", c.Name, err)
		case c.Want != "" && err == nil:
			t.Errorf("%s: no error", c.Name)
		case c.Want != "":
			Names(t, c.Name, err, c.Want)
		}
	}
}

// Set returns a change of config.json that sets a key, for [TestOpen]; nil
// removes it.
func Set(key string, value any) func(map[string]any) {
	return func(m map[string]any) { Apply(m, Change{key: value}) }
}

// Without returns a change of tensors that removes one, for [TestOpen].
func Without(name string) func(map[string]*safetensors.Named) {
	return func(m map[string]*safetensors.Named) { delete(m, name) }
}
