package checkpoint

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"anemone/internal/checkpoint/safetensors"
	"anemone/internal/testutil"
)

func open(t *testing.T, dir string) *Checkpoint {
	t.Helper()
	c, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// The values of TestTinyQwen3 are what testdata/values.py printed.
func TestTinyQwen3(t *testing.T) {
	c := open(t, testutil.Data(t, "checkpoints", "tiny-qwen3"))
	if n := len(c.Names()); n != 46 {
		t.Errorf("%d tensors, want 46", n)
	}
	for _, w := range []struct {
		name        string
		shape       []int
		first, last []float32
		sum         float64
		half        []uint16
		checksum    uint32
	}{
		{"model.embed_tokens.weight", []int{1024, 128}, []float32{-0.271484375, 0.08056640625, -0.0189208984375, -0.0125732421875}, []float32{0.0225830078125, 0.0263671875},
			-2229.4509620964527, []uint16{0xb458, 0x2d28, 0xa4d8, 0xa270}, 3495398273},
		{"model.layers.3.mlp.down_proj.weight", []int{128, 384}, []float32{0.046142578125, 0.0556640625, -0.10009765625, 0.07177734375}, []float32{0.12158203125, -0.0242919921875},
			9.781192380934954, []uint16{0x29e8, 0x2b20, 0xae68, 0x2c98}, 1619733518},
		{"model.norm.weight", []int{128}, []float32{1.1796875, 1.0, 1.0234375, 1.1875}, []float32{1.078125, 1.15625},
			144.765625, []uint16{0x3cb8, 0x3c00, 0x3c18, 0x3cc0}, 127925456},
	} {
		x, err := c.Tensor(w.name, w.shape...)
		if err != nil {
			t.Error(err)
			continue
		}
		all := make([]float32, x.Len())
		x.Float32(all, 0)
		sum := 0.0
		for _, v := range all {
			sum += float64(v)
		}
		if math.Abs(sum-w.sum) > 1e-9 {
			t.Errorf("%s: sum %v, want %v", w.name, sum, w.sum)
		}
		last := make([]float32, 2)
		x.Float32(last, x.Len()-2)
		if !reflect.DeepEqual(all[:4], w.first) || !reflect.DeepEqual(last, w.last) {
			t.Errorf("%s: begins %v and ends %v, want %v and %v", w.name, all[:4], last, w.first, w.last)
		}
		half := make([]uint16, x.Len())
		if loss := x.Float16(half, 0); loss.Any() {
			t.Errorf("%s: lost %v", w.name, loss)
		}
		var checksum uint64
		for i, h := range half {
			checksum += uint64(h) * uint64(i%65521+1)
		}
		if !reflect.DeepEqual(half[:4], w.half) || uint32(checksum) != w.checksum {
			t.Errorf("%s: fp16 begins %x with checksum %d, want %x and %d", w.name, half[:4], uint32(checksum), w.half, w.checksum)
		}
		x.Release()
		if again := make([]float32, 4); len(x.Raw()) != 2*x.Len() {
			t.Errorf("%s: %d bytes", w.name, len(x.Raw()))
		} else if x.Float32(again, 0); !reflect.DeepEqual(again, w.first) {
			t.Errorf("%s: begins %v after Release", w.name, again)
		}
	}
	if n := len(c.Unused()); n != 43 {
		t.Errorf("%d tensors unused, want 43", n)
	}
	if got := c.EOS(); !reflect.DeepEqual(got, []int{839, 1023}) { // generation_config.json, config.json
		t.Errorf("EOS %v", got)
	}
	if got, want := c.Files(), []string{"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"}; !reflect.DeepEqual(got, want) {
		t.Errorf("files %v, want %v", got, want)
	}
	if c.Format() != "pt" || !reflect.DeepEqual(c.Weights(), []string{"model.safetensors"}) {
		t.Errorf("format %q, weights %v", c.Format(), c.Weights())
	}
	if rope, err := c.Config.Rope(); err != nil || rope.Theta != 1e6 || rope.Type != "default" {
		t.Errorf("rope %v, %v", rope, err)
	}
	if err := c.Config.CheckSupported(); err != nil {
		t.Error(err)
	}
	if c.Config.ModelType() != "qwen3" || !reflect.DeepEqual(c.Config.Architectures(), []string{"Qwen3ForCausalLM"}) {
		t.Errorf("model type %q, architectures %v", c.Config.ModelType(), c.Config.Architectures())
	}
}

// TestShared opens the checkpoints beside the repository: other
// architectures, and a config by transformers 4.
func TestShared(t *testing.T) {
	for _, w := range []struct {
		dir       string
		tensors   int
		modelType string
		eos       []int
		text      bool
	}{
		{"fixtures/checkpoints/tiny-qwen35", 129, "qwen3_5", []int{839, 1023}, true},
		{"fixtures/checkpoints/tiny-gemma4", 165, "gemma4", []int{1, 5}, true},
		{"peers/qwen3-checkpoint", 46, "qwen3", []int{2}, false},
	} {
		c := open(t, testutil.Shared(t, filepath.FromSlash(w.dir)))
		config := c.Config
		if w.text {
			config, _ = config.Sub("text_config")
		}
		rope, err := config.RopeFor("full_attention")
		if err != nil || rope.Theta < 1e6 {
			t.Errorf("%s: rope %v, %v", w.dir, rope, err)
		}
		if len(c.Names()) != w.tensors || c.Config.ModelType() != w.modelType || !reflect.DeepEqual(c.EOS(), w.eos) {
			t.Errorf("%s: %d tensors, %q, eos %v; want %v", w.dir, len(c.Names()), c.Config.ModelType(), c.EOS(), w)
		}
	}
}

// folder makes a checkpoint folder. A value is the content of a file: text,
// tensors, or anything else as JSON.
func folder(t *testing.T, files map[string]any) string {
	t.Helper()
	dir := t.TempDir()
	if _, ok := files["config.json"]; !ok {
		files["config.json"] = `{"model_type": "test"}`
	}
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		var err error
		switch content := content.(type) {
		case string:
			err = os.WriteFile(path, []byte(content), 0o666)
		case []safetensors.Named:
			err = safetensors.Write(path, content, nil)
		case nil: // left out
		default:
			var data []byte
			if data, err = json.Marshal(content); err == nil {
				err = os.WriteFile(path, data, 0o666)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// byteTensor makes a U8 tensor that holds one value.
func byteTensor(name string, v byte) safetensors.Named {
	return safetensors.Named{Name: name, DType: safetensors.U8, Shape: []int{1}, Data: []byte{v}}
}

type index map[string]map[string]string

func indexOf(pairs ...string) index {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return index{"weight_map": m}
}

type tensors = []safetensors.Named

func TestWhichFile(t *testing.T) {
	for _, c := range []struct {
		name      string
		files     map[string]any
		want      string // tensor:value pairs in order
		weights   string
		unindexed string
	}{
		{name: "single", files: map[string]any{"model.safetensors": tensors{byteTensor("a", 1)}, "other.safetensors": tensors{byteTensor("b", 2)}},
			want: "a:1", weights: "[model.safetensors]"},
		{name: "odd name", files: map[string]any{"weights.safetensors": tensors{byteTensor("a", 1)}, ".hidden.safetensors": "junk"},
			want: "a:1", weights: "[weights.safetensors]"},
		{name: "shards", files: map[string]any{
			"1.safetensors":                tensors{byteTensor("a", 1)},
			"2.safetensors":                tensors{byteTensor("b", 2)},
			"model.safetensors.index.json": indexOf("a", "1.safetensors", "b", "2.safetensors")},
			want: "a:1 b:2", weights: "[1.safetensors 2.safetensors]"},
		{name: "index decides between copies", files: map[string]any{
			"1.safetensors":                tensors{byteTensor("a", 1), byteTensor("b", 9)},
			"2.safetensors":                tensors{byteTensor("a", 8), byteTensor("b", 2)},
			"model.safetensors.index.json": indexOf("a", "1.safetensors", "b", "2.safetensors")},
			want: "a:1 b:2", weights: "[1.safetensors 2.safetensors]"},
		{name: "stray shard is not opened", files: map[string]any{
			"1.safetensors":                tensors{byteTensor("a", 1)},
			"2.safetensors":                "junk",
			"model.safetensors":            "junk",
			"model.safetensors.index.json": indexOf("a", "1.safetensors")},
			want: "a:1", weights: "[1.safetensors]"},
		{name: "in no index", files: map[string]any{
			"1.safetensors":                tensors{byteTensor("a", 1), byteTensor("z", 3), byteTensor("y", 3)},
			"model.safetensors.index.json": indexOf("a", "1.safetensors")},
			want: "a:1", weights: "[1.safetensors]", unindexed: "[y z]"},
		{name: "index of a single file", files: map[string]any{
			"model.safetensors":            tensors{byteTensor("a", 1)},
			"model.safetensors.index.json": indexOf("a", "model.safetensors")},
			want: "a:1", weights: "[model.safetensors]"},
		{name: "shard below", files: map[string]any{
			"sub/1.safetensors":            tensors{byteTensor("a", 1)},
			"model.safetensors.index.json": indexOf("a", "sub/1.safetensors")},
			want: "a:1", weights: "[sub/1.safetensors]"},
	} {
		k := open(t, folder(t, c.files))
		var got []string
		for _, name := range k.Names() {
			x, ok := k.Lookup(name)
			if !ok || !k.Has(name) {
				t.Errorf("%s: %s is listed but not there", c.name, name)
				continue
			}
			got = append(got, fmt.Sprintf("%s:%d", name, x.Raw()[0]))
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s: tensors %s, want %s", c.name, s, c.want)
		}
		if s := fmt.Sprint(k.Weights()); s != c.weights {
			t.Errorf("%s: weights %s, want %s", c.name, s, c.weights)
		}
		if c.unindexed == "" {
			c.unindexed = "[]"
		}
		if s := fmt.Sprint(k.Unindexed()); s != c.unindexed {
			t.Errorf("%s: unindexed %s, want %s", c.name, s, c.unindexed)
		}
		if n := len(k.Unused()); n != len(got) {
			t.Errorf("%s: %d unused after Lookup, want %d", c.name, n, len(got))
		}
	}
}

// TestSharded splits tiny-qwen3 in three and compares every tensor.
func TestSharded(t *testing.T) {
	whole := open(t, testutil.Data(t, "checkpoints", "tiny-qwen3"))
	shards := make([]tensors, 3)
	var pairs []string
	for i, name := range whole.Names() {
		x, _ := whole.Lookup(name)
		s := i % len(shards)
		shards[s] = append(shards[s], safetensors.Named{Name: name, DType: x.DType, Shape: x.Shape, Data: x.Raw()})
		pairs = append(pairs, name, fmt.Sprintf("model-%05d-of-00003.safetensors", s+1))
	}
	files := map[string]any{"model.safetensors.index.json": indexOf(pairs...)}
	for s := range shards {
		files[fmt.Sprintf("model-%05d-of-00003.safetensors", s+1)] = shards[s]
	}
	dir := folder(t, files)
	split := open(t, dir)
	if !reflect.DeepEqual(split.Names(), whole.Names()) || len(split.Weights()) != 3 {
		t.Fatalf("%d tensors in %v", len(split.Names()), split.Weights())
	}
	for _, name := range whole.Names() {
		a, _ := whole.Lookup(name)
		b, err := split.Tensor(name, a.Shape...)
		if err != nil {
			t.Error(err)
			continue
		}
		if string(a.Raw()) != string(b.Raw()) || a.DType != b.DType {
			t.Errorf("%s differs", name)
		}
	}
	if u := split.Unused(); len(u) != 0 {
		t.Errorf("unused: %v", u)
	}

	// The same folder, broken in one way at a time.
	shard := filepath.Join(dir, "model-00002-of-00003.safetensors")
	data, err := os.ReadFile(shard)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(shard, data[:len(data)-1000], 0o666); err != nil {
		t.Fatal(err)
	}
	_, err = Open(dir)
	wantError(t, "cut shard", err, shard, "1000 bytes are missing")
	if err := os.Remove(shard); err != nil {
		t.Fatal(err)
	}
	_, err = Open(dir)
	wantError(t, "missing shard", err, "model.safetensors.index.json", "model-00002-of-00003.safetensors", "missing: download it")
	if err := safetensors.Write(shard, tensors{byteTensor("other", 1)}, nil); err != nil {
		t.Fatal(err)
	}
	_, err = Open(dir)
	wantError(t, "stale index", err, "model.safetensors.index.json", `"model.layers.`, "model-00002-of-00003.safetensors", "stale")
}

func TestOpenErrors(t *testing.T) {
	one := tensors{byteTensor("a", 1)}
	for _, c := range []struct {
		name  string
		files map[string]any
		err   []string
	}{
		{"no config", map[string]any{"config.json": nil, "model.safetensors": one}, []string{"has no config.json", "Hugging Face"}},
		{"config is a folder", map[string]any{"config.json": nil, "config.json/x": "y"}, []string{"config.json", "not a regular file"}},
		{"config not JSON", map[string]any{"config.json": "hidden: 1"}, []string{"config.json: not valid JSON"}},
		{"config an array", map[string]any{"config.json": "[]"}, []string{"config.json: found the array []"}},
		{"config too large", map[string]any{"config.json": `{"a":"` + strings.Repeat("x", 5<<20) + `"}`}, []string{"config.json", "exceeds the limit"}},
		{"generation not JSON", map[string]any{"generation_config.json": "{", "model.safetensors": one}, []string{"generation_config.json: not valid JSON"}},
		{"eos text", map[string]any{"config.json": `{"text_config": {"eos_token_id": "x"}}`, "model.safetensors": one}, []string{"text_config.eos_token_id"}},
		{"no weights", map[string]any{}, []string{"no .safetensors file"}},
		{"torch weights", map[string]any{"pytorch_model.bin": "x"}, []string{"pytorch_model.bin", "convert"}},
		{"adapter", map[string]any{"adapter_config.json": "{}", "adapter_model.safetensors": one}, []string{"LoRA"}},
		{"several without index", map[string]any{"1.safetensors": one, "2.safetensors": one}, []string{"1.safetensors, 2.safetensors", "neither"}},
		{"cut", map[string]any{"model.safetensors": "\x10\x00\x00\x00\x00\x00\x00\x00{}"}, []string{"model.safetensors", "cut off"}},
		{"lfs", map[string]any{"model.safetensors": "version https://git-lfs.github.com/spec/v1\noid sha256:0\n"}, []string{"model.safetensors", "git lfs pull"}},
		{"index not JSON", map[string]any{"model.safetensors.index.json": "x", "model.safetensors": one}, []string{"model.safetensors.index.json", "weight_map"}},
		{"index without map", map[string]any{"model.safetensors.index.json": "{}", "model.safetensors": one}, []string{"model.safetensors.index.json", "missing or empty"}},
		{"index of numbers", map[string]any{"model.safetensors.index.json": `{"weight_map": {"a": 1}}`}, []string{"model.safetensors.index.json", "weight_map"}},
		{"old index beside a single file", map[string]any{"model.safetensors.index.json": indexOf("a", "1.safetensors"), "model.safetensors": one},
			[]string{"model.safetensors.index.json", "1.safetensors", "missing", "remove the index if model.safetensors"}},
		{"up", map[string]any{"model.safetensors.index.json": indexOf("a", "../1.safetensors")}, []string{"model.safetensors.index.json", `"../1.safetensors"`, "out of the folder"}},
		{"up within", map[string]any{"model.safetensors.index.json": indexOf("a", "x/../../1.safetensors")}, []string{"out of the folder"}},
		{"absolute", map[string]any{"model.safetensors.index.json": indexOf("a", "/etc/1.safetensors")}, []string{"out of the folder"}},
		{"backslash", map[string]any{"model.safetensors.index.json": indexOf("a", `..\1.safetensors`)}, []string{"out of the folder"}},
		{"drive", map[string]any{"model.safetensors.index.json": indexOf("a", `C:1.safetensors`)}, []string{"out of the folder"}},
		{"zero", map[string]any{"model.safetensors.index.json": indexOf("a", "1\x00")}, []string{"out of the folder"}},
		{"no file name", map[string]any{"model.safetensors.index.json": indexOf("a", "")}, []string{"out of the folder"}},
		{"folder as tokenizer", map[string]any{"model.safetensors": one, "tokenizer.json/x": "y"}, []string{"tokenizer.json", "not a regular file"}},
		{"folder as shard", map[string]any{"model.safetensors.index.json": indexOf("a", ".")}, []string{"not a regular file"}},
	} {
		dir := folder(t, c.files)
		k, err := Open(dir)
		if err == nil {
			k.Close()
		}
		wantError(t, c.name, err, append(c.err, dir)...)
	}
	// A link of an interrupted download.
	dir := folder(t, map[string]any{"model.safetensors": one})
	if err := os.Symlink("../blobs/0", filepath.Join(dir, "tokenizer.json")); err == nil {
		_, err := Open(dir)
		wantError(t, "broken link", err, filepath.Join(dir, "tokenizer.json"), "no such file")
	}
	_, err := Open(filepath.Join(t.TempDir(), "absent"))
	wantError(t, "absent folder", err, "absent", "no such file")
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	_, err = Open(path)
	wantError(t, "file", err, path, "is a file", "want the folder")
}

func TestTensorErrors(t *testing.T) {
	dir := folder(t, map[string]any{"x.safetensors": tensors{
		{Name: "model.layers.0.self_attn.q_proj.weight", DType: safetensors.BF16, Shape: []int{2, 3}, Data: make([]byte, 12)},
		{Name: "model.layers.0.self_attn.k_proj.weight", DType: safetensors.F32, Shape: []int{2, 3}, Data: make([]byte, 24)},
		{Name: "model.layers.0.mlp.gate.weight", DType: safetensors.I32, Shape: []int{1}, Data: make([]byte, 4)},
		{Name: "model.layers.1.mlp.gate.weight", DType: safetensors.F8E4M3, Shape: []int{1}, Data: make([]byte, 1)},
		{Name: "scalar", DType: safetensors.F16, Data: make([]byte, 2)},
	}})
	c := open(t, dir)
	const q = "model.layers.0.self_attn.q_proj.weight"
	for _, shape := range [][]int{{2, 3}, {-1, 3}, {2, -1}, {-1, -1}} {
		if _, err := c.Tensor(q, shape...); err != nil {
			t.Error(err)
		}
	}
	if x, err := c.Tensor("scalar"); err != nil || x.Len() != 1 {
		t.Errorf("scalar: %v, %v", x, err)
	}
	for _, w := range []struct {
		name  string
		shape []int
		err   []string
	}{
		{q, []int{3, 2}, []string{"x.safetensors", q, "found shape [2 3], want [3 2]"}},
		{q, []int{-1, 4}, []string{"found shape [2 3], want [* 4]"}},
		{q, []int{6}, []string{"found shape [2 3], want [6]"}},
		{q, nil, []string{"found shape [2 3], want []"}},
		{"scalar", []int{1}, []string{"found shape [], want [1]"}},
		{"model.layers.0.mlp.gate.weight", []int{1}, []string{"x.safetensors", "model.layers.0.mlp.gate.weight", "found type I32, want F32, F16 or BF16"}},
		{"model.layers.1.mlp.gate.weight", []int{1}, []string{"found type F8_E4M3", "original checkpoint"}},
		{"model.layers.0.self_attn.qproj.weight", []int{1}, []string{dir, "missing", "not in x.safetensors", "near names: " + q + ", model.layers.0.self_attn.k_proj.weight"}},
		{"model.language_model.layers.0.self_attn.q_proj.weight", []int{1}, []string{"near names: " + q}},
		{"lm_head.weight", []int{1}, []string{"not in x.safetensors"}},
	} {
		_, err := c.Tensor(w.name, w.shape...)
		wantError(t, w.name, err, w.err...)
	}
	noise := open(t, folder(t, map[string]any{"x.safetensors": tensors{byteTensor("model.layers."+strings.Repeat("x", 1000)+".weight", 1)}}))
	if _, err := noise.Tensor("model.layers.0.weight", 1); err == nil || strings.Contains(err.Error(), "xxx") {
		t.Errorf("noise is near: %.200v", err)
	}
	if _, err := c.Tensor("lm_head.weight", 1); strings.Contains(err.Error(), "near") {
		t.Errorf("nothing is near, but: %v", err)
	}
	if got, want := c.Unused(), []string{"model.layers.0.self_attn.k_proj.weight"}; !reflect.DeepEqual(got, want) {
		t.Errorf("unused %v, want %v", got, want)
	}

	stale := open(t, folder(t, map[string]any{
		"1.safetensors":                tensors{byteTensor("a", 1), byteTensor("b", 1)},
		"2.safetensors":                tensors{byteTensor("c", 1)},
		"model.safetensors.index.json": indexOf("a", "1.safetensors", "c", "2.safetensors")}))
	_, err := stale.Tensor("b", 1)
	wantError(t, "unindexed", err, "model.safetensors.index.json", `"b"`, "1.safetensors holds it", "stale")
	_, err = stale.Tensor("d", 1)
	wantError(t, "absent", err, `"d"`, "in none of the 2 files")
	if stale.Has("b") || !stale.Has("a") {
		t.Error("Has is wrong")
	}
}

func TestEOSUnion(t *testing.T) {
	c := open(t, folder(t, map[string]any{
		"config.json":            `{"eos_token_id": [1, 106], "text_config": {"eos_token_id": 1}}`,
		"generation_config.json": `{"eos_token_id": [1, 106, 50]}`,
		"model.safetensors":      tensors{byteTensor("a", 1)}}))
	if got := c.EOS(); !reflect.DeepEqual(got, []int{1, 50, 106}) {
		t.Errorf("got %v, want [1 50 106]", got)
	}
}

func TestFormat(t *testing.T) {
	dir := folder(t, map[string]any{"model.safetensors.index.json": indexOf("a", "1.safetensors", "b", "2.safetensors")})
	for _, c := range []struct{ one, two, want string }{{"mlx", "mlx", "mlx"}, {"pt", "mlx", ""}, {"", "", ""}} {
		for i, format := range []string{c.one, c.two} {
			meta := map[string]string{"format": format}
			if err := safetensors.Write(filepath.Join(dir, fmt.Sprintf("%d.safetensors", i+1)), tensors{byteTensor(string(rune('a'+i)), 1)}, meta); err != nil {
				t.Fatal(err)
			}
		}
		if got := open(t, dir).Format(); got != c.want {
			t.Errorf("%v: %q", c, got)
		}
	}
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"metadata": {"total_size": 1}, "weight_map": {"a": "1.safetensors"}}`))
	f.Add([]byte(`{"weight_map": {"a": "../x", "b": "/x", "c": "x\\y", "d": "C:x", "e": "a/../b"}}`))
	f.Add([]byte(`{"weight_map": null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parseIndex(data)
		if err != nil {
			return
		}
		for _, shard := range m {
			rel, err := filepath.Rel("/model", filepath.Join("/model", shard))
			if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
				t.Errorf("%q leads to %q, %v", shard, rel, err)
			}
		}
	})
}

func ExampleOpen() {
	c, err := Open(filepath.Join("..", "..", "testdata", "checkpoints", "tiny-qwen3"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	w, err := c.Tensor("model.norm.weight", 128)
	if err != nil {
		fmt.Println(err)
		return
	}
	row := make([]float32, 4)
	w.Float32(row, 0)
	fmt.Println(w.DType, w.Shape, row)
	_, err = c.Tensor("model.norm.weight", 256)
	fmt.Println(err != nil)
	// Output:
	// BF16 [128] [1.1796875 1 1.0234375 1.1875]
	// true
}
