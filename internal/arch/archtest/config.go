package archtest

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"anemone/internal/checkpoint"
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
	maps.Copy(m, c)
	maps.DeleteFunc(m, func(k string, v any) bool {
		_, changed := c[k]
		return changed && v == nil
	})
	b, err := json.Marshal(m)
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

// Altered returns a copy of the checkpoint in a folder with a text of its
// config.json replaced, which has to be there unless it is "", without one
// tensor, and with those in add.
func Altered(t testing.TB, dir, old, replacement, without string, add ...safetensors.Named) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	config := strings.Replace(string(b), old, replacement, 1)
	if old != "" && config == string(b) {
		t.Fatalf("the config of %s does not hold %s", dir, old)
	}
	src, err := safetensors.Open(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	tensors := add
	for _, info := range src.Tensors() {
		b, err := src.Bytes(info.Name)
		if err != nil {
			t.Fatal(err)
		}
		if info.Name != without {
			tensors = append(tensors, safetensors.Named{Name: info.Name, DType: info.DType, Shape: info.Shape, Data: b})
		}
	}
	out := t.TempDir()
	if err := os.WriteFile(filepath.Join(out, "config.json"), []byte(config), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := safetensors.Write(filepath.Join(out, "model.safetensors"), tensors, nil); err != nil {
		t.Fatal(err)
	}
	return out
}
