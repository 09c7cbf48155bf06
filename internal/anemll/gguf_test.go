package anemll

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"anemone/internal/arch/all"
	"anemone/internal/checkpoint"
	"anemone/internal/checkpoint/gguf"
	"anemone/internal/checkpoint/gguftest"
	"anemone/internal/compress"
	"anemone/internal/testutil"
	"anemone/internal/tokenizer"
)

// convertTo converts a checkpoint and returns the package's folder.
func convertTo(t *testing.T, path string, o Options) (string, *Report) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	r, err := Convert(t.Context(), all.Registry, path, out, o)
	if err != nil {
		t.Fatal(err)
	}
	return out, r
}

// TestGGUFSameBytes converts GGUF files and the folders that they stand for:
// everything but the files about text is the same, byte by byte.
func TestGGUFSameBytes(t *testing.T) {
	llama3 := map[string]any{"rope_parameters": map[string]any{
		"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 8192, "rope_theta": 500000}}
	for _, c := range []struct {
		name string
		dir  string
		typ  gguf.Type
	}{
		{"trained", testutil.Data(t, "checkpoints", "tiny-qwen3"), gguf.F16},
		{"trained", testutil.Data(t, "checkpoints", "tiny-qwen3"), gguf.F32},
		{"trained", testutil.Data(t, "checkpoints", "tiny-qwen3"), gguf.Q8_0},
		{"llama", gguftest.Random(t, "llama", nil), gguf.F16},
		{"llama3", gguftest.Random(t, "llama", llama3), gguf.Q4_0},
		{"qwen2", gguftest.Random(t, "qwen2", nil), gguf.BF16},
		{"qwen3", gguftest.Random(t, "qwen3", nil), gguf.Q4_0},
		{"gemma3", gguftest.Random(t, "gemma3_text", nil), gguf.Q8_0},
	} {
		t.Run(fmt.Sprintf("%s %s", c.name, c.typ), func(t *testing.T) {
			m := gguftest.Convert(t, c.dir, c.typ)
			o := Options{Name: "same", Context: 64, Batch: 32, SplitHead: 2, FFN: compress.Encoding{Bits: 4, Group: 8}}
			fromFolder, want := convertTo(t, m.Folder(t, c.dir), o)
			fromFile, got := convertTo(t, m.Write(t), o)
			a, b := testutil.Hashes(t, fromFolder), testutil.Hashes(t, fromFile)
			models := 0
			for name, h := range a {
				if strings.Contains(name, ".ml") || name == MetaFile {
					models++
					if b[name] != h {
						t.Errorf("%s differs", name)
					}
				}
				delete(b, name)
			}
			if models < 10 {
				t.Errorf("only %d files of models", models)
			}
			for _, name := range slices.Sorted(maps.Keys(b)) {
				switch name {
				case "generation_config.json", "tokenizer_config.json": // a folder may do without
				default:
					t.Errorf("the package of the file has %s, that of the folder has not", name)
				}
			}
			if fmt.Sprint(got.Unused) != fmt.Sprint(want.Unused) || got.Bytes != want.Bytes || fmt.Sprint(got.Warnings) != fmt.Sprint(want.Warnings) && c.name == "trained" {
				t.Errorf("report: unused %v, %d bytes, warnings %v; of the folder: %v, %d, %v", got.Unused, got.Bytes, got.Warnings, want.Unused, want.Bytes, want.Warnings)
			}
		})
	}
}

// TestGGUFBiases: llama.cpp adds every bias that a file has. transformers'
// Llama has those of all four projections or none, and a model with some only
// is not converted without them.
func TestGGUFBiases(t *testing.T) {
	llama := gguftest.Random(t, "llama", nil)
	without := func(parts ...string) func(*gguftest.Model) {
		return func(m *gguftest.Model) {
			m.Tensors = slices.DeleteFunc(m.Tensors, func(x gguftest.Tensor) bool {
				return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(x.Name, p) && strings.HasSuffix(x.Name, ".bias") })
			})
		}
	}
	add := func(name string, rows int) func(*gguftest.Model) {
		return func(m *gguftest.Model) {
			data, _ := gguftest.Quantize(gguf.F32, make([]float32, rows))
			m.Tensors = append(m.Tensors, gguftest.Tensor{Name: name, Type: gguf.F32, Shape: []int{rows}, Data: data})
		}
	}
	for _, c := range []struct {
		name   string
		change func(*gguftest.Model)
		want   string
	}{
		{"all", func(*gguftest.Model) {}, ""},
		{"none", without(""), ""},
		{"those of the attention", without("ffn_"), ""},
		{"all but the output's", without("attn_output"), `tensor "blk.0.attn_k.bias" (model.layers.0.self_attn.k_proj.bias)`},
		{"queries alone", without("attn_k", "attn_v", "attn_output", "ffn_"), `tensor "blk.0.attn_q.bias"`},
		{"all but that of down", without("ffn_down"), `tensor "blk.0.ffn_gate.bias"`},
		{"one layer's", without("blk.0."), `tensor "blk.1.ffn_down.bias"`},
		{"the head's", add("output.bias", 50), `tensor "output.bias" (lm_head.bias)`},
		{"a norm's", add("blk.0.attn_norm.bias", 64), `tensor "blk.0.attn_norm.bias"`},
		{"of nothing known", add("blk.0.attn_rot_embd.weight", 1), `tensor "blk.0.attn_rot_embd.weight"`},
	} {
		m := gguftest.Convert(t, llama, gguf.F16)
		c.change(m)
		out := filepath.Join(t.TempDir(), "out")
		r, err := Convert(t.Context(), all.Registry, m.Write(t), out, Options{Context: 64, Batch: 32, SplitHead: 2})
		switch {
		case c.want == "":
			if err != nil || len(r.Unused) > 0 {
				t.Errorf("%s: %v", c.name, err)
			}
		case err == nil || !strings.Contains(err.Error(), c.want):
			t.Errorf("%s: error %v does not say %s", c.name, err, c.want)
		}
		if _, err := os.Stat(out); (err == nil) != (c.want == "") {
			t.Errorf("%s: output: %v", c.name, err)
		}
	}
}

// TestGGUFText: tokens, template and end of text come through.
func TestGGUFText(t *testing.T) {
	dir := testutil.Data(t, "checkpoints", "tiny-qwen3")
	m := gguftest.Convert(t, dir, gguf.F16)
	m.Set("tokenizer.ggml.eos_token_id", uint32(839))
	out, r := convertTo(t, m.Write(t), Options{Context: 64, Batch: 32})
	if len(r.Warnings) > 0 {
		t.Errorf("warnings: %v", r.Warnings)
	}
	want, err := tokenizer.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	got, err := tokenizer.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"", " ", "Once upon a time, there was a letter.", "It's 12345 o'clock;\n\n\tnaïve “café” \r\n  x", "<|im_start|>user\nhi<|im_end|>\n<|endoftext|>", "日本語 🙂 e\u0301",
	} {
		a, b := want.Encode(text, true), got.Encode(text, true)
		if !slices.Equal(a, b) {
			t.Errorf("%q: tokens %v, want %v", text, b, a)
		}
		if d := got.Decode(b, false); d != want.Decode(a, false) {
			t.Errorf("%q: decoded %q", text, d)
		}
	}
	for _, name := range []string{"chat_template.jinja"} {
		a, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(filepath.Join(out, name)); err != nil || string(a) != string(b) {
			t.Errorf("%s is %q, %v", name, b, err)
		}
	}
	g, err := checkpoint.Generation(out)
	if err != nil || !slices.Equal(g.EOS, []int{839}) {
		t.Errorf("generation %+v, %v", g, err)
	}
	p, err := Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if p.Meta.Name != "anemll-model-ctx64" || !p.HasTokenizer() || len(p.Problems) > 0 {
		t.Errorf("name %q, problems %v", p.Meta.Name, p.Problems)
	}
}

// TestGGUFTokenizer: a vocabulary that cannot be written as tokenizer.json does
// not keep the model from being converted, but is told.
func TestGGUFTokenizer(t *testing.T) {
	m := gguftest.Convert(t, testutil.Data(t, "checkpoints", "tiny-qwen3"), gguf.F16)
	m.Set("tokenizer.ggml.pre", "nobody-knows")
	out, r := convertTo(t, m.Write(t), Options{Context: 64, Batch: 32})
	if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "nobody-knows") || !strings.Contains(r.Warnings[0], "tokenizer.json into the package") {
		t.Errorf("warnings %q", r.Warnings)
	}
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		if _, err := os.Stat(filepath.Join(out, name)); err == nil {
			t.Errorf("there is a %s", name)
		}
	}
}

// TestGGUFSampling: a recommendation that no one can follow is left out, and
// does not make a package that cannot be opened.
func TestGGUFSampling(t *testing.T) {
	m := gguftest.Convert(t, gguftest.Random(t, "qwen3", nil), gguf.F32)
	m.Set("general.sampling.temp", float32(-1))
	m.Set("general.sampling.top_p", float32(0.5))
	m.Set("general.sampling.top_k", int32(3))
	out, r := convertTo(t, m.Write(t), Options{Context: 64, Batch: 32, SplitHead: 2})
	if !strings.Contains(strings.Join(r.Warnings, "\n"), "(as generation_config.json): temperature: found -1, want 0 to 1000") {
		t.Errorf("warnings: %q", r.Warnings)
	}
	p, err := Open(out)
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	if g, err := checkpoint.Generation(out); err != nil || g.Temperature != nil || *g.TopP != 0.5 || *g.TopK != 3 {
		t.Errorf("generation config: %+v, %v", g, err)
	}
}

// TestGGUFMemory converts a file whose embedding would take 102 MB if it were
// dequantized at once, and the head the same again. What Go holds at any time
// is a few groups of rows for each core, whatever their number.
func TestGGUFMemory(t *testing.T) {
	const rows, limit = 400_000, 40 << 20
	m := gguftest.Convert(t, gguftest.Random(t, "qwen3", map[string]any{"tie_word_embeddings": true}), gguf.Q8_0)
	e := m.Tensor("token_embd.weight")
	e.Data = bytes.Repeat(e.Data, rows/e.Shape[0])
	e.Shape = []int{rows, 64}
	path := m.Write(t)
	*m = gguftest.Model{}
	peak := uint64(0)
	o := Options{Context: 64, Batch: 32, SplitHead: 32, Head: compress.Encoding{Bits: 4, Group: 8}, Jobs: 2, Format: MLModelC}
	o.Progress = func(Progress) {
		var s runtime.MemStats
		runtime.GC() // what is in use, not what was
		runtime.ReadMemStats(&s)
		peak = max(peak, s.HeapAlloc)
	}
	runtime.GC()
	_, r := convertTo(t, path, o)
	t.Logf("%d bytes of weights, at most %d bytes of memory in use", r.Bytes, peak)
	if r.Bytes < rows*64*2 || peak == 0 || peak > limit {
		t.Errorf("%d bytes in use, want at most %d", peak, limit)
	}
}

func TestGGUFModelName(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ file, want string }{
		{"SmolLM2.Q4_1.gguf", "SmolLM2.Q4_1"}, {"Model.GGUF", "Model"}, {".gguf", ".gguf"}, {"other", "other"},
	} {
		path := filepath.Join(dir, c.file)
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if name, err := ModelName(path); err != nil || name != c.want {
			t.Errorf("%s: %q, %v; want %q", c.file, name, err, c.want)
		}
	}
	// Folders keep their names, whatever they look like.
	path := filepath.Join(dir, "folder.gguf")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if name, err := ModelName(path); err != nil || name != "folder.gguf" {
		t.Errorf("a folder: %q, %v", name, err)
	}
}

// A GGUF file where a package is wanted is called what it is.
func TestGGUFIsNoPackage(t *testing.T) {
	path := gguftest.Convert(t, gguftest.Random(t, "qwen3", nil), gguf.F16).Write(t)
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), path+": this is a GGUF file, not a package: convert it first") {
		t.Errorf("error %v", err)
	}
}
