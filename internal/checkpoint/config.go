package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"anemone/internal/platform"
)

const (
	configFile     = "config.json"
	generationFile = "generation_config.json"

	// maxConfig bounds config.json and generation_config.json, in bytes. Real
	// ones have a few kilobytes.
	maxConfig = 4 << 20
)

// ErrMissing is wrapped by the errors for a key that is absent or null.
var ErrMissing = errors.New("missing")

// Config is a JSON object of config.json with typed getters: the whole file,
// or an object within it (see [Config.Sub]).
//
// Int, Float, Bool, String, Strings, Ints and Object fail with an error that
// wraps [ErrMissing] when the key is absent; the getters with Or return the
// given value instead. A value of the wrong type is always an error.
type Config struct {
	file string // for errors
	path string // of this object within the file, "" or ending in "."
	m    map[string]json.RawMessage
}

// ParseConfig parses the JSON of a config.json. file is the name that errors
// give it.
func ParseConfig(file string, data []byte) (*Config, error) {
	m, err := parseObject(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return &Config{file: file, m: m}, nil
}

// readFile reads a regular file of at most limit bytes.
func readFile(path string, limit int64) ([]byte, error) {
	f, err := platform.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readLimited(f, path, limit)
}

func parseObject(data []byte) (map[string]json.RawMessage, error) {
	data = quoteNonFinite(data)
	var m map[string]json.RawMessage
	if err := json.Unmarshal(data, &m); err != nil {
		var syntax *json.SyntaxError
		var kind *json.UnmarshalTypeError
		switch {
		case errors.As(err, &syntax):
			line := 1 + bytes.Count(data[:min(max(syntax.Offset-1, 0), int64(len(data)))], []byte("\n"))
			return nil, fmt.Errorf("not valid JSON: line %d: %w", line, err)
		case errors.As(err, &kind):
			return nil, fmt.Errorf("found %s, want a JSON object", kindOf(bytes.TrimSpace(data)))
		}
		return nil, err
	}
	if m == nil {
		return nil, errors.New("found null, want a JSON object")
	}
	return m, nil
}

// quoteNonFinite puts quotes around NaN, Infinity and -Infinity outside of
// strings: Python writes them although they are no JSON. As strings they
// harm only who asks for them.
func quoteNonFinite(data []byte) []byte {
	if !bytes.Contains(data, []byte("NaN")) && !bytes.Contains(data, []byte("Infinity")) {
		return data
	}
	var out []byte
	inString := false
	for i := 0; i < len(data); i++ {
		c := data[i]
		switch {
		case inString && c == '\\' && i+1 < len(data):
			out = append(out, c)
			i++
			c = data[i]
		case c == '"':
			inString = !inString
		case !inString:
			for _, word := range []string{"NaN", "Infinity", "-Infinity"} {
				if bytes.HasPrefix(data[i:], []byte(word)) {
					out = append(out, '"')
					out = append(out, word...)
					i += len(word) - 1
					c = '"'
					break
				}
			}
		}
		out = append(out, c)
	}
	return out
}

// kindOf says in words what a JSON value is.
func kindOf(v []byte) string {
	if len(v) == 0 {
		return "nothing"
	}
	text := string(v)
	if len(text) > 40 {
		text = strings.ToValidUTF8(text[:40], "") + "..."
	}
	switch v[0] {
	case '{':
		return "an object"
	case '[':
		return "the array " + text
	case '"':
		return "the string " + text
	case 't', 'f', 'n':
		return text
	}
	return "the number " + text
}

// get returns the value of a key, nil if it is absent or null.
func (c *Config) get(key string) json.RawMessage {
	if v := bytes.TrimSpace(c.m[key]); string(v) != "null" {
		return v
	}
	return nil
}

// found is the error for a value that is not what was wanted.
func (c *Config) found(key string, v []byte, want string) error {
	return fmt.Errorf("%s%s: found %s, want %s", c.At(), key, kindOf(v), want)
}

func (c *Config) missing(key, want string) error {
	return fmt.Errorf("%s%s: %w, want %s", c.At(), key, ErrMissing, want)
}

// File returns the name of the file that the object came from.
func (c *Config) File() string { return c.file }

// At returns what errors about a key of the object begin with: the name of the
// file and the path of the object in it, such as "config.json: text_config.".
func (c *Config) At() string { return c.file + ": " + c.path }

// Keys returns the object's keys in order, those with null left out.
func (c *Config) Keys() []string {
	keys := make([]string, 0, len(c.m))
	for k := range maps.Keys(c.m) {
		if c.Has(k) {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

// Has reports whether the key is there with a value other than null.
func (c *Config) Has(key string) bool { return c.get(key) != nil }

// Null reports whether the key is there with the value null, for keys that mean
// something else when they are missing.
func (c *Config) Null(key string) bool { return c.m[key] != nil && !c.Has(key) }

// Int returns an integer. A number like 128.0 is one too: Python writes
// integers so when they went through a division.
func (c *Config) Int(key string) (int, error) {
	v := c.get(key)
	if v == nil {
		return 0, c.missing(key, "an integer")
	}
	n, ok := parseInt(v)
	if !ok {
		return 0, c.found(key, v, "an integer")
	}
	return n, nil
}

// IntOr is [Config.Int] with a value for an absent key.
func (c *Config) IntOr(key string, def int) (int, error) {
	if !c.Has(key) {
		return def, nil
	}
	return c.Int(key)
}

// Size is [Config.Int] for a number of something, from 1 to max.
func (c *Config) Size(key string, max int) (int, error) {
	n, err := c.Int(key)
	return n, c.checkSize(key, n, max, err)
}

// SizeOr is [Config.Size] with a value for an absent key, which is held to the
// bounds as well.
func (c *Config) SizeOr(key string, def, max int) (int, error) {
	n, err := c.IntOr(key, def)
	return n, c.checkSize(key, n, max, err)
}

func (c *Config) checkSize(key string, n, max int, err error) error {
	if err == nil && (n < 1 || n > max) {
		err = fmt.Errorf("%s%s: found %d, want 1 to %d", c.At(), key, n, max)
	}
	return err
}

func parseInt(v []byte) (int, bool) {
	if n, err := strconv.Atoi(string(v)); err == nil {
		return n, true
	}
	f, ok := parseFloat(v)
	// Up to 2^53 every integer has its own float64, so none was rounded.
	if !ok || f != math.Trunc(f) || math.Abs(f) > 1<<53 || int64(f) != int64(int(f)) {
		return 0, false
	}
	return int(f), true
}

// parseFloat parses a JSON number: what strconv takes beyond those (hex,
// underscores, infinities) starts otherwise or did not pass the parser.
func parseFloat(v []byte) (float64, bool) {
	if len(v) == 0 || v[0] != '-' && (v[0] < '0' || v[0] > '9') {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(v), 64)
	return f, err == nil
}

// Float returns a number.
func (c *Config) Float(key string) (float64, error) {
	v := c.get(key)
	if v == nil {
		return 0, c.missing(key, "a number")
	}
	f, ok := parseFloat(v)
	if !ok {
		return 0, c.found(key, v, "a number")
	}
	return f, nil
}

// FloatOr is [Config.Float] with a value for an absent key.
func (c *Config) FloatOr(key string, def float64) (float64, error) {
	if !c.Has(key) {
		return def, nil
	}
	return c.Float(key)
}

// Bool returns true or false.
func (c *Config) Bool(key string) (bool, error) {
	switch v := c.get(key); string(v) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	case "":
		return false, c.missing(key, "true or false")
	default:
		return false, c.found(key, v, "true or false")
	}
}

// BoolOr is [Config.Bool] with a value for an absent key.
func (c *Config) BoolOr(key string, def bool) (bool, error) {
	if !c.Has(key) {
		return def, nil
	}
	return c.Bool(key)
}

// String returns a string.
func (c *Config) String(key string) (string, error) {
	v := c.get(key)
	if v == nil {
		return "", c.missing(key, "a string")
	}
	var s string
	if v[0] != '"' || json.Unmarshal(v, &s) != nil {
		return "", c.found(key, v, "a string")
	}
	return s, nil
}

// StringOr is [Config.String] with a value for an absent key.
func (c *Config) StringOr(key, def string) (string, error) {
	if !c.Has(key) {
		return def, nil
	}
	return c.String(key)
}

// array returns the elements of an array.
func (c *Config) array(key, want string) ([]json.RawMessage, error) {
	v := c.get(key)
	if v == nil {
		return nil, c.missing(key, want)
	}
	var a []json.RawMessage
	if v[0] != '[' || json.Unmarshal(v, &a) != nil {
		return nil, c.found(key, v, want)
	}
	return a, nil
}

// Strings returns an array of strings.
func (c *Config) Strings(key string) ([]string, error) {
	const want = "an array of strings"
	a, err := c.array(key, want)
	if err != nil {
		return nil, err
	}
	out := make([]string, len(a))
	for i, v := range a {
		if v = bytes.TrimSpace(v); v[0] != '"' || json.Unmarshal(v, &out[i]) != nil {
			return nil, c.found(fmt.Sprintf("%s[%d]", key, i), v, "a string")
		}
	}
	return out, nil
}

// Ints returns an array of integers.
func (c *Config) Ints(key string) ([]int, error) {
	a, err := c.array(key, "an array of integers")
	if err != nil {
		return nil, err
	}
	out := make([]int, len(a))
	for i, v := range a {
		v = bytes.TrimSpace(v)
		n, ok := parseInt(v)
		if !ok {
			return nil, c.found(fmt.Sprintf("%s[%d]", key, i), v, "an integer")
		}
		out[i] = n
	}
	return out, nil
}

// Object returns the object under key. Its errors give the whole path.
func (c *Config) Object(key string) (*Config, error) {
	v := c.get(key)
	if v == nil {
		return nil, c.missing(key, "an object")
	}
	if v[0] != '{' {
		return nil, c.found(key, v, "an object")
	}
	m, err := parseObject(v)
	if err != nil {
		return nil, fmt.Errorf("%s%s: %w", c.At(), key, err)
	}
	return &Config{file: c.file, path: c.path + key + ".", m: m}, nil
}

// Sub is [Config.Object] for who only wants to know whether it is there.
func (c *Config) Sub(key string) (*Config, bool) {
	sub, err := c.Object(key)
	return sub, err == nil
}

// ModelType returns model_type, "" if there is none.
func (c *Config) ModelType() string {
	s, _ := c.String("model_type")
	return s
}

// Architectures returns the class names under architectures, nil if there
// are none.
func (c *Config) Architectures() []string {
	s, _ := c.Strings("architectures")
	return s
}

// EOS returns the tokens under eos_token_id of this object: an integer, a
// list or null, as transformers writes it.
func (c *Config) EOS() ([]int, error) {
	const key = "eos_token_id"
	v := c.get(key)
	var ids []int
	switch {
	case v == nil:
		return nil, nil
	case v[0] == '[':
		var err error
		if ids, err = c.Ints(key); err != nil {
			return nil, err
		}
	default:
		id, ok := parseInt(v)
		if !ok {
			return nil, c.found(key, v, "an integer or an array of integers")
		}
		ids = []int{id}
	}
	for _, id := range ids {
		if id < 0 {
			return nil, c.found(key, v, "token numbers, which are not negative")
		}
	}
	return ids, nil
}

// CheckSupported refuses what no architecture can read: weights that are
// stored quantized.
func (c *Config) CheckSupported() error {
	objects := []*Config{c}
	if text, ok := c.Sub("text_config"); ok {
		objects = append(objects, text)
	}
	for _, o := range objects {
		// transformers writes the first, older compressed-tensors the second,
		// MLX the third (and often the first too).
		for _, key := range []string{"quantization_config", "compression_config", "quantization"} {
			if !o.Has(key) {
				continue
			}
			what := ""
			if q, ok := o.Sub(key); ok {
				for _, name := range []string{"quant_method", "format", "bits", "weight_block_size"} {
					if v := q.get(name); v != nil {
						what += fmt.Sprintf(", %s %s", name, bytes.Trim(v, `"`))
					}
				}
			}
			return fmt.Errorf("%s%s: the weights are quantized already%s; convert from the original checkpoint in BF16, F16 or F32 instead",
				o.At(), key, what)
		}
	}
	return nil
}

// GenerationConfig holds the sampling settings that a model's makers
// recommend. What the file does not say is nil.
type GenerationConfig struct {
	EOS               []int // eos_token_id
	DoSample          *bool
	Temperature       *float64
	TopP              *float64
	TopK              *int // 0 means no limit
	MinP              *float64
	RepetitionPenalty *float64 // 1 means none

	// Problems names settings that no one can sample with, such as a negative
	// temperature. They are left out: a recommendation is nothing to fail for.
	Problems []string
}

// Generation reads generation_config.json in dir. Without that file, nothing
// is recommended.
func Generation(dir string) (*GenerationConfig, error) {
	path := filepath.Join(dir, generationFile)
	data, err := readFile(path, maxConfig)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return &GenerationConfig{}, nil
	case err != nil:
		return nil, err
	}
	c, err := ParseConfig(path, data)
	if err != nil {
		return nil, err
	}
	return parseGeneration(c)
}

// parseGeneration reads the settings of generation_config.json; nil stands for
// a file that is not there.
func parseGeneration(c *Config) (_ *GenerationConfig, err error) {
	g := &GenerationConfig{}
	if c == nil {
		return g, nil
	}
	if g.EOS, err = c.EOS(); err != nil {
		return nil, err
	}
	if err := optional(&g.DoSample, c, "do_sample", c.Bool); err != nil {
		return nil, err
	}
	if err := recommended(g, &g.TopK, c, "top_k", c.Int, 0, maxTopK); err != nil {
		return nil, err
	}
	for _, f := range []struct {
		key    string
		into   **float64
		lo, hi float64
	}{
		{"temperature", &g.Temperature, 0, maxTemperature}, {"top_p", &g.TopP, 0, 1}, {"min_p", &g.MinP, 0, 1},
		{"repetition_penalty", &g.RepetitionPenalty, 1 / maxPenalty, maxPenalty},
	} {
		if err := recommended(g, f.into, c, f.key, c.Float, f.lo, f.hi); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// What recommendations may be: what meta.yaml can say of them.
const (
	maxTopK        = 1 << 24
	maxTemperature = 1000
	maxPenalty     = 1e6
)

// recommended is optional for a number from lo to hi.
func recommended[T int | float64](g *GenerationConfig, into **T, c *Config, key string, get func(string) (T, error), lo, hi T) error {
	err := optional(into, c, key, get)
	if v := *into; v != nil && !(*v >= lo && *v <= hi) {
		g.Problems = append(g.Problems, fmt.Sprintf("%s%s: found %v, want %v to %v: left out of the recommended sampling", c.At(), key, *v, lo, hi))
		*into = nil
	}
	return err
}

// optional sets *into if the key is there.
func optional[T any](into **T, c *Config, key string, get func(string) (T, error)) error {
	if !c.Has(key) {
		return nil
	}
	v, err := get(key)
	if err != nil {
		return err
	}
	*into = &v
	return nil
}
