package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"anemone/internal/testutil"
)

func parse(t *testing.T, text string) *Config {
	t.Helper()
	c, err := ParseConfig("config.json", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// wantError checks that err says all the parts.
func wantError(t *testing.T, what string, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error, want one with %q", what, parts)
		return
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%s: error %q does not say %q", what, err, p)
		}
	}
}

const getters = `{
	"int": 7, "negative": -3, "whole": 128.0, "exponent": 1e3, "half": 0.5, "big": 9223372036854775807, "huge": 9223372036854775808, "beyond": 1e400,
	"yes": true, "no": false, "null": null, "text": "a\u00fc", "quoted": "7",
	"strings": ["a", "b"], "ints": [1, 2.0], "mixed": ["a", 1], "empty": [], "object": {"x": {"y": "z", "n": null}, "list": [1, "2"]},
	"twice": 1, "twice": 2, "nan": NaN, "inf": [-Infinity, "NaN \" Infinity", Infinity]
}`

func TestConfigGetters(t *testing.T) {
	c := parse(t, getters)
	// The getters as one kind of function: value or error as text.
	str := func(v any, err error) string {
		if err != nil {
			return "error: " + err.Error()
		}
		return fmt.Sprintf("%v", v)
	}
	for _, k := range []struct{ name, got, want string }{
		{"Int int", str(c.Int("int")), "7"},
		{"Int negative", str(c.Int("negative")), "-3"},
		{"Int whole", str(c.Int("whole")), "128"},
		{"Int exponent", str(c.Int("exponent")), "1000"},
		{"Int big", str(c.Int("big")), "9223372036854775807"},
		{"Int twice", str(c.Int("twice")), "2"},
		{"Int half", str(c.Int("half")), "error: config.json: half: found the number 0.5, want an integer"},
		{"Int huge", str(c.Int("huge")), "error: config.json: huge: found the number 9223372036854775808, want an integer"},
		{"Int quoted", str(c.Int("quoted")), `error: config.json: quoted: found the string "7", want an integer`},
		{"Int yes", str(c.Int("yes")), "error: config.json: yes: found true, want an integer"},
		{"Int strings", str(c.Int("strings")), `error: config.json: strings: found the array ["a", "b"], want an integer`},
		{"Int object", str(c.Int("object")), "error: config.json: object: found an object, want an integer"},
		{"Int null", str(c.Int("null")), "error: config.json: null: missing, want an integer"},
		{"Int absent", str(c.Int("absent")), "error: config.json: absent: missing, want an integer"},
		{"IntOr null", str(c.IntOr("null", 5)), "5"},
		{"IntOr int", str(c.IntOr("int", 5)), "7"},
		{"IntOr text", str(c.IntOr("quoted", 5)), `error: config.json: quoted: found the string "7", want an integer`},
		{"Size", str(c.Size("int", 7)), "7"},
		{"Size beyond", str(c.Size("int", 6)), "error: config.json: int: found 7, want 1 to 6"},
		{"Size negative", str(c.Size("negative", 9)), "error: config.json: negative: found -3, want 1 to 9"},
		{"Size half", str(c.Size("half", 9)), "error: config.json: half: found the number 0.5, want an integer"},
		{"Size absent", str(c.Size("absent", 9)), "error: config.json: absent: missing, want an integer"},
		{"SizeOr null", str(c.SizeOr("null", 5, 9)), "5"},
		{"SizeOr bad default", str(c.SizeOr("null", 0, 9)), "error: config.json: null: found 0, want 1 to 9"},
		{"SizeOr beyond", str(c.SizeOr("int", 1, 6)), "error: config.json: int: found 7, want 1 to 6"},
		{"Float half", str(c.Float("half")), "0.5"},
		{"Float int", str(c.Float("int")), "7"},
		{"Float exponent", str(c.Float("exponent")), "1000"},
		{"Float beyond", str(c.Float("beyond")), "error: config.json: beyond: found the number 1e400, want a number"},
		{"Float nan", str(c.Float("nan")), `error: config.json: nan: found the string "NaN", want a number`},
		{"Float absent", str(c.Float("absent")), "error: config.json: absent: missing, want a number"},
		{"FloatOr absent", str(c.FloatOr("absent", 0.25)), "0.25"},
		{"FloatOr yes", str(c.FloatOr("yes", 1)), "error: config.json: yes: found true, want a number"},
		{"Bool yes", str(c.Bool("yes")), "true"},
		{"Bool no", str(c.Bool("no")), "false"},
		{"Bool int", str(c.Bool("int")), "error: config.json: int: found the number 7, want true or false"},
		{"Bool null", str(c.Bool("null")), "error: config.json: null: missing, want true or false"},
		{"BoolOr null", str(c.BoolOr("null", true)), "true"},
		{"BoolOr no", str(c.BoolOr("no", true)), "false"},
		{"String text", str(c.String("text")), "aü"},
		{"String int", str(c.String("int")), "error: config.json: int: found the number 7, want a string"},
		{"StringOr absent", str(c.StringOr("absent", "d")), "d"},
		{"Strings", str(c.Strings("strings")), "[a b]"},
		{"Strings empty", str(c.Strings("empty")), "[]"},
		{"Strings mixed", str(c.Strings("mixed")), "error: config.json: mixed[1]: found the number 1, want a string"},
		{"Strings text", str(c.Strings("text")), `error: config.json: text: found the string "a\u00fc", want an array of strings`},
		{"Strings inf", str(c.Strings("inf")), `[-Infinity NaN " Infinity Infinity]`},
		{"Strings absent", str(c.Strings("absent")), "error: config.json: absent: missing, want an array of strings"},
		{"Ints", str(c.Ints("ints")), "[1 2]"},
		{"Ints mixed", str(c.Ints("mixed")), `error: config.json: mixed[0]: found the string "a", want an integer`},
	} {
		if k.got != k.want {
			t.Errorf("%s:\n got %s\nwant %s", k.name, k.got, k.want)
		}
	}
	if _, err := c.Int("absent"); !errors.Is(err, ErrMissing) {
		t.Errorf("an absent key gives %v, which is not ErrMissing", err)
	}
	if _, err := c.Int("half"); errors.Is(err, ErrMissing) {
		t.Error("a wrong value is ErrMissing")
	}
	if !c.Has("int") || c.Has("null") || c.Has("absent") {
		t.Error("Has is wrong about int, null or absent")
	}
}

func TestConfigSub(t *testing.T) {
	c := parse(t, getters)
	object, ok := c.Sub("object")
	if !ok {
		t.Fatal("no object")
	}
	x, ok := object.Sub("x")
	if !ok {
		t.Fatal("no object.x")
	}
	if s, err := x.String("y"); s != "z" || err != nil {
		t.Errorf("object.x.y = %q, %v", s, err)
	}
	if got := x.Keys(); !reflect.DeepEqual(got, []string{"y"}) {
		t.Errorf("keys %v, want [y]: n is null", got)
	}
	_, err := x.Int("y")
	wantError(t, "object.x.y", err, `config.json: object.x.y: found the string "z", want an integer`)
	_, err = x.Int("q")
	wantError(t, "object.x.q", err, "config.json: object.x.q: missing")
	_, err = object.Ints("list")
	wantError(t, "object.list", err, "config.json: object.list[1]")
	for _, key := range []string{"absent", "null", "int", "strings"} {
		if _, ok := c.Sub(key); ok {
			t.Errorf("%s passes for an object", key)
		}
	}
	_, err = c.Object("strings")
	wantError(t, "strings", err, "want an object")
}

func TestParseConfigErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "not valid JSON",
		"{":                          "not valid JSON: line 1",
		"{\n\"a\": 1,\n\"b\" 2\n}":   "not valid JSON: line 3",
		"[1]":                        "found the array [1], want a JSON object",
		"null":                       "found null",
		"7":                          "found the number 7",
		`{"a": 1} x`:                 "not valid JSON",
		strings.Repeat("[", 1000000): "not valid JSON",
		"NaN":                        `found the string "NaN"`,
		`{"a": -NaN}`:                "not valid JSON",
	} {
		_, err := ParseConfig("f.json", []byte(text))
		wantError(t, text[:min(len(text), 20)], err, "f.json: ", want)
	}
}

func TestRope(t *testing.T) {
	for _, c := range []struct{ name, config, want, err string }{
		{name: "qwen3 of transformers 4", config: `{"rope_theta": 1000000, "rope_scaling": null}`, want: "default 1e+06 0 map[]"},
		{name: "qwen3 of transformers 5", config: `{"rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"}}`, want: "default 1e+06 0 map[rope_theta:1e+06 rope_type:default]"},
		{name: "theta outside", config: `{"rope_parameters": {"rope_type": "default"}, "rope_theta": 5}`, want: "default 5 0 map[rope_type:default]"},
		{name: "empty parameters", config: `{"rope_parameters": {}, "rope_theta": 5}`, want: "default 5 0 map[]"},
		{name: "null parameters", config: `{"rope_parameters": null, "rope_theta": 5}`, want: "default 5 0 map[]"},
		{name: "partial", config: `{"rope_parameters": {"rope_theta": 1e7, "partial_rotary_factor": 0.25, "mrope_section": [3, 3, 2]}}`, want: "default 1e+07 0.25 map[mrope_section:[3 3 2] partial_rotary_factor:0.25 rope_theta:1e+07]"},
		{name: "partial outside", config: `{"rope_theta": 10, "partial_rotary_factor": 0.5}`, want: "default 10 0.5 map[]"},
		{name: "yarn by type", config: `{"rope_theta": 1e6, "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}`, want: "yarn 1e+06 0 map[factor:4 original_max_position_embeddings:32768 type:yarn]"},
		{name: "llama3 by rope_type", config: `{"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", "factor": 8}}`, want: "llama3 500000 0 map[factor:8 rope_type:llama3]"},
		{name: "rope_type wins", config: `{"rope_theta": 1, "rope_scaling": {"type": "linear", "rope_type": "dynamic"}}`, want: "dynamic 1 0 map[rope_type:dynamic type:linear]"},
		{name: "mrope", config: `{"rope_theta": 1, "rope_scaling": {"type": "mrope", "mrope_section": [1]}}`, want: "default 1 0 map[mrope_section:[1] type:mrope]"},
		{name: "su", config: `{"rope_theta": 1, "rope_scaling": {"type": "su"}}`, want: "longrope 1 0 map[type:su]"},
		{name: "both alike", config: `{"rope_theta": 2, "rope_scaling": {"type": "default"}, "rope_parameters": {"rope_theta": 2.0, "rope_type": "default"}}`, want: "default 2 0 map[rope_theta:2 rope_type:default]"},
		{name: "unknown", config: `{"rope_theta": 1, "rope_scaling": {"rope_type": "spiral"}}`, want: "spiral 1 0 map[rope_type:spiral]"},

		{name: "nothing", config: `{}`, err: "config.json: rope_theta: missing"},
		{name: "null theta", config: `{"rope_theta": null}`, err: "rope_theta: missing"},
		{name: "no theta with parameters", config: `{"rope_parameters": {"rope_type": "default"}}`, err: "rope_theta: missing"},
		{name: "theta text", config: `{"rope_theta": "1e6"}`, err: `rope_theta: found the string "1e6"`},
		{name: "theta zero", config: `{"rope_theta": 0}`, err: "want a number above 0"},
		{name: "theta negative", config: `{"rope_parameters": {"rope_theta": -1}}`, err: "rope_parameters.rope_theta: found the number -1"},
		{name: "parameters list", config: `{"rope_parameters": [1], "rope_theta": 1}`, err: "rope_parameters: found the array [1], want an object"},
		{name: "scaling text", config: `{"rope_scaling": "yarn", "rope_theta": 1}`, err: "rope_scaling: found"},
		{name: "type number", config: `{"rope_scaling": {"type": 3}, "rope_theta": 1}`, err: "rope_scaling.type: found the number 3"},
		{name: "partial zero", config: `{"rope_theta": 1, "partial_rotary_factor": 0}`, err: "at most 1"},
		{name: "partial large", config: `{"rope_theta": 1, "partial_rotary_factor": 1.5}`, err: "at most 1"},
		{name: "thetas differ", config: `{"rope_theta": 2, "rope_parameters": {"rope_theta": 1}}`, err: "remove the wrong one"},
		{name: "types differ", config: `{"rope_theta": 1, "rope_scaling": {"type": "yarn"}, "rope_parameters": {"rope_theta": 1}}`, err: "remove the wrong one"},
		{name: "per kind", config: `{"rope_parameters": {"full_attention": {"rope_theta": 1}, "sliding_attention": {"rope_theta": 2}}}`, err: "full_attention, sliding_attention"},
		{name: "param beyond", config: `{"rope_theta": 1, "rope_scaling": {"factor": 1e999}}`, err: "rope_scaling.factor"},
	} {
		r, err := parse(t, c.config).Rope()
		if c.err != "" {
			wantError(t, c.name, err, c.err, "config.json: ")
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := fmt.Sprintf("%s %g %g %v", r.Type, r.Theta, r.PartialRotaryFactor, r.Params); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func TestRopeOr(t *testing.T) {
	for _, c := range []struct{ config, want, err string }{
		{`{}`, "default 10000 0", ""},
		{`{"rope_theta": null, "partial_rotary_factor": 0.5}`, "default 10000 0.5", ""},
		{`{"rope_scaling": {"type": "linear", "factor": 8}}`, "linear 10000 0", ""},
		{`{"rope_parameters": {"rope_type": "llama3"}}`, "llama3 10000 0", ""},
		{`{"rope_theta": 5}`, "default 5 0", ""},
		{`{"rope_scaling": {"rope_theta": 6}}`, "default 6 0", ""},
		{`{"rope_parameters": {"rope_theta": 7}}`, "default 7 0", ""},
		{`{"rope_parameters": {}, "rope_scaling": {"rope_theta": 6}}`, "", "rope_theta: missing"},
		{`{"rope_parameters": {"rope_type": "default"}, "rope_scaling": {"type": "linear"}}`, "", "remove the wrong one"},
		{`{"rope_theta": "x"}`, "", "rope_theta: found the string"},
		{`{"rope_parameters": {"full_attention": {"rope_type": "linear"}}}`, "", "per kind of layer"},
	} {
		r, err := parse(t, c.config).RopeOr(1e4)
		if c.err != "" {
			wantError(t, c.config, err, c.err, "config.json: ")
			continue
		}
		if got := fmt.Sprintf("%s %g %g", r.Type, r.Theta, r.PartialRotaryFactor); err != nil || got != c.want {
			t.Errorf("%s: got %s, %v, want %s", c.config, got, err, c.want)
		}
	}
}

func TestRopeFor(t *testing.T) {
	const kinds = `{"rope_theta": 9, "rope_parameters": {
		"full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0, "rope_type": "proportional"},
		"sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
		"bare": {"rope_type": "default"}}}`
	for _, c := range []struct{ config, kind, want, err string }{
		{kinds, "full_attention", "proportional 1e+06 0.25", ""},
		{kinds, "sliding_attention", "default 10000 0", ""},
		{kinds, "absent", "", "rope_parameters.absent: missing"},
		{kinds, "bare", "", "rope_parameters.bare.rope_theta: missing"},
		{`{"rope_theta": 3}`, "full_attention", "default 3 0", ""},
		{`{"rope_parameters": {"rope_theta": 4}}`, "full_attention", "default 4 0", ""},
	} {
		r, err := parse(t, c.config).RopeFor(c.kind)
		if c.err != "" {
			wantError(t, c.kind, err, c.err)
			continue
		}
		if got := fmt.Sprintf("%s %g %g", r.Type, r.Theta, r.PartialRotaryFactor); err != nil || got != c.want {
			t.Errorf("%s: got %s, %v; want %s", c.kind, got, err, c.want)
		}
	}
}

func TestConfigEOS(t *testing.T) {
	for _, c := range []struct{ config, want, err string }{
		{`{"eos_token_id": 7}`, "[7]", ""},
		{`{"eos_token_id": [1, 106, 50]}`, "[1 106 50]", ""},
		{`{"eos_token_id": []}`, "[]", ""},
		{`{"eos_token_id": null}`, "[]", ""},
		{`{}`, "[]", ""},
		{`{"eos_token_id": "</s>"}`, "", `eos_token_id: found the string "</s>"`},
		{`{"eos_token_id": [1, null]}`, "", "eos_token_id[1]: found null"},
		{`{"eos_token_id": -1}`, "", "not negative"},
		{`{"eos_token_id": [5, -1]}`, "", "not negative"},
	} {
		ids, err := parse(t, c.config).EOS()
		if c.err != "" {
			wantError(t, c.config, err, c.err)
		} else if got := fmt.Sprint(ids); err != nil || got != c.want {
			t.Errorf("%s: got %s, %v; want %s", c.config, got, err, c.want)
		}
	}
}

func TestCheckSupported(t *testing.T) {
	for _, c := range []struct {
		config string
		err    []string
	}{
		{`{}`, nil},
		{`{"quantization_config": null}`, nil},
		{`{"text_config": {"quantization_config": null}}`, nil},
		{`{"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}`, []string{"quantization_config", "quant_method fp8", "[128, 128]", "original checkpoint"}},
		{`{"text_config": {"quantization_config": {"quant_method": "gptq", "bits": 4}}}`, []string{"text_config.quantization_config", "quant_method gptq", "bits 4"}},
		{`{"quantization": {"group_size": 64, "bits": 4}}`, []string{"quantization: ", "bits 4"}},
		{`{"compression_config": {"format": "pack-quantized"}}`, []string{"compression_config", "format pack-quantized"}},
		{`{"quantization_config": {}}`, []string{"quantization_config"}},
		{`{"quantization_config": 4}`, []string{"quantization_config"}},
	} {
		err := parse(t, c.config).CheckSupported()
		if c.err == nil && err != nil {
			t.Errorf("%s: %v", c.config, err)
		}
		if c.err != nil {
			wantError(t, c.config, err, append(c.err, "config.json: ")...)
		}
	}
}

func TestGeneration(t *testing.T) {
	write := func(text string) string {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "generation_config.json"), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	g, err := Generation(t.TempDir())
	if err != nil || !reflect.DeepEqual(*g, GenerationConfig{}) {
		t.Errorf("no file: %v, %v", g, err)
	}
	g, err = Generation(write(`{"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": null, "repetition_penalty": 1, "eos_token_id": [151645, 151643], "x": 1}`))
	if err != nil {
		t.Fatal(err)
	}
	if !*g.DoSample || *g.Temperature != 0.6 || *g.TopK != 20 || *g.TopP != 0.95 || g.MinP != nil || *g.RepetitionPenalty != 1 || !reflect.DeepEqual(g.EOS, []int{151645, 151643}) {
		t.Errorf("got %+v", g)
	}
	// As some repositories and GGUF files have them.
	g, err = Generation(write(`{"temperature": -1, "top_k": -1, "top_p": 1.5, "min_p": -0.1, "repetition_penalty": 0, "do_sample": true}`))
	if err != nil || g.Temperature != nil || g.TopK != nil || g.TopP != nil || g.MinP != nil || g.RepetitionPenalty != nil || !*g.DoSample || len(g.Problems) != 5 {
		t.Errorf("out of range: %+v, %v", g, err)
	}
	if want := "generation_config.json: top_k: found -1, want 0 to 16777216"; !strings.Contains(strings.Join(g.Problems, "\n"), want) {
		t.Errorf("problems %q, want %q", g.Problems, want)
	}
	for text, want := range map[string]string{
		`{"top_k": 1.5}`:             "top_k: found the number 1.5",
		`{"do_sample": 1}`:           "do_sample: found the number 1",
		`{"temperature": "hot"}`:     `temperature: found the string "hot"`,
		`{"eos_token_id": {"a": 1}}`: "eos_token_id: found an object",
		`{`:                          "not valid JSON",
	} {
		_, err := Generation(write(text))
		wantError(t, text, err, want, "generation_config.json")
	}
}

func TestReadFileErrors(t *testing.T) {
	dir := t.TempDir()
	big := filepath.Join(dir, "big.json")
	if err := os.WriteFile(big, []byte(`{"a": "`+strings.Repeat("x", maxConfig)+`"}`), 0o666); err != nil {
		t.Fatal(err)
	}
	sparse := filepath.Join(dir, "sparse.json")
	if err := os.WriteFile(sparse, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(sparse, 100<<20); err != nil {
		t.Fatal(err)
	}
	_, err := readFile(big, maxConfig)
	wantError(t, "big", err, big, "exceeds the limit of 4194304")
	_, err = readFile(sparse, maxConfig)
	wantError(t, "sparse", err, sparse, "104857600 bytes", "exceeds the limit")
	_, err = readFile(dir, maxConfig)
	wantError(t, "folder", err, dir, "not a regular file")
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte(getters))
	f.Add([]byte(`{"rope_theta": 1000000, "rope_scaling": {"type": "yarn", "factor": 4}, "eos_token_id": [1]}`))
	f.Add([]byte(`{"text_config": {"quantization_config": {"bits": 4}, "rope_parameters": {"full_attention": {"rope_theta": 1}}}}`))
	f.Add([]byte(`{"a": NaN, "b": [-Infinity, "\\\"NaN"]}`))
	for _, name := range []string{"config.json", "generation_config.json"} {
		if data, err := os.ReadFile(filepath.Join(testutil.Data(f, "checkpoints", "tiny-qwen3"), name)); err == nil {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseConfig("config.json", data)
		if err != nil {
			return
		}
		visit(t, c, 0)
	})
}

// visit calls every getter on every key: none may panic, and a getter that
// fails has said so for Or too.
func visit(t *testing.T, c *Config, depth int) {
	c.ModelType()
	c.Architectures()
	c.EOS()
	c.CheckSupported()
	if r, err := c.Rope(); err == nil && !(r.Theta > 0) {
		t.Errorf("rope theta %v", r.Theta)
	}
	c.RopeFor("full_attention")
	for _, key := range c.Keys() {
		if !c.Has(key) {
			t.Errorf("key %q is listed but not there", key)
		}
		n, err := c.Int(key)
		if m, errOr := c.IntOr(key, 1); m != n || (err == nil) != (errOr == nil) {
			t.Errorf("Int(%q) = %d, %v; IntOr %d, %v", key, n, err, m, errOr)
		}
		if f, ferr := c.Float(key); err == nil && (ferr != nil || float64(n) != f && int64(n) < 1<<53 && int64(n) > -1<<53) {
			t.Errorf("Int(%q) = %d but Float %v, %v", key, n, f, ferr)
		}
		c.Bool(key)
		c.String(key)
		c.Strings(key)
		c.Ints(key)
		if sub, ok := c.Sub(key); ok && depth < 20 {
			visit(t, sub, depth+1)
		}
	}
}

func ExampleConfig() {
	c, err := ParseConfig("config.json", []byte(`{"model_type": "qwen3", "hidden_size": 1024, "rope_theta": 1e6, "rope_scaling": null}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	hidden, err := c.Int("hidden_size")
	fmt.Println(c.ModelType(), hidden, err)
	rope, err := c.Rope()
	fmt.Println(rope.Type, rope.Theta, err)
	_, err = c.Int("head_dim")
	fmt.Println(err)
	// Output:
	// qwen3 1024 <nil>
	// default 1e+06 <nil>
	// config.json: head_dim: missing, want an integer
}

func TestConfigNull(t *testing.T) {
	c, err := ParseConfig("config.json", []byte(`{"a": null, "b": 1, "c": {"d":  null }}`))
	if err != nil {
		t.Fatal(err)
	}
	inner, err := c.Object("c")
	if err != nil {
		t.Fatal(err)
	}
	for _, got := range []struct {
		key        string
		null, want bool
	}{{"a", c.Null("a"), true}, {"b", c.Null("b"), false}, {"missing", c.Null("missing"), false}, {"c.d", inner.Null("d"), true}} {
		if got.null != got.want {
			t.Errorf("%s: null is %v, want %v", got.key, got.null, got.want)
		}
	}
}
