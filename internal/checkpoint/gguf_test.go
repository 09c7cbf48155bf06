package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"anemone/internal/checkpoint/gguf"
	"anemone/internal/checkpoint/gguftest"
	"anemone/internal/checkpoint/safetensors"
	"anemone/internal/testutil"
)

// tinyGGUF writes tiny-qwen3 as a GGUF file.
func tinyGGUF(t testing.TB, typ gguf.Type, set map[string]any) (path string, m *gguftest.Model) {
	t.Helper()
	m = gguftest.Convert(t, testutil.Data(t, "checkpoints", "tiny-qwen3"), typ)
	for key, v := range set {
		m.Set(key, v)
	}
	return m.Write(t), m
}

// TestGGUF opens a GGUF file and the folder that it stands for.
func TestGGUF(t *testing.T) {
	original := testutil.Data(t, "checkpoints", "tiny-qwen3")
	for _, typ := range []gguf.Type{gguf.F32, gguf.F16, gguf.BF16, gguf.Q8_0, gguf.Q4_0} {
		t.Run(typ.String(), func(t *testing.T) {
			path, m := tinyGGUF(t, typ, nil)
			file, folder := open(t, path), open(t, m.Folder(t, original))
			if !reflect.DeepEqual(file.Names(), folder.Names()) {
				t.Fatalf("names %v, want %v", file.Names(), folder.Names())
			}
			for _, name := range folder.Names() {
				want, _ := folder.Lookup(name)
				x, err := file.Tensor(name, want.Shape...)
				if err != nil {
					t.Fatal(err)
				}
				stored := typ
				if len(x.Shape) == 1 {
					stored = gguf.F32
				}
				if x.Stored != stored.String() || x.Len() != want.Len() || x.File != path || x.Size() != int64(len(x.Raw())) {
					t.Errorf("%s: %+v", name, x)
				}
				if plain := stored == gguf.F16 || stored == gguf.BF16; plain && x.DType != safetensors.DType(x.Stored) || !plain && x.DType != safetensors.F32 {
					t.Errorf("%s: type %s of values stored as %s", name, x.DType, x.Stored)
				}
				// Parts that begin and end anywhere; 5000 is more than Float16
				// reads at a time.
				for _, part := range [][2]int{{0, x.Len()}, {1, 1}, {x.Len() / 3, min(x.Len()/3+5000, x.Len())}} {
					n := part[1] - part[0]
					a, b := make([]float32, n), make([]float32, n)
					x.Float32(a, part[0])
					want.Float32(b, part[0])
					ha, hb := make([]uint16, n), make([]uint16, n)
					la, lb := x.Float16(ha, part[0]), want.Float16(hb, part[0])
					if !reflect.DeepEqual(a, b) || !reflect.DeepEqual(ha, hb) || la != lb {
						t.Errorf("%s %v differs", name, part)
					}
				}
				x.Release()
			}
			if u := file.Unused(); len(u) > 0 {
				t.Errorf("unused: %v", u)
			}
			if w := file.Weights(); !reflect.DeepEqual(w, []string{"model.gguf"}) || file.Format() != "" || len(file.Unindexed()) > 0 {
				t.Errorf("weights %v, format %q", w, file.Format())
			}
			if got := file.EOS(); !reflect.DeepEqual(got, []int{1023}) {
				t.Errorf("EOS %v", got)
			}
			if file.Config.ModelType() != "qwen3" || file.Config.CheckSupported() != nil {
				t.Errorf("config of %q, %v", file.Config.ModelType(), file.Config.CheckSupported())
			}
		})
	}
}

// TestGGUFFiles reads the files that a GGUF file stands for.
func TestGGUFFiles(t *testing.T) {
	path, _ := tinyGGUF(t, gguf.F16, map[string]any{"general.sampling.temp": float32(0.5)})
	c := open(t, path)
	if got, want := c.Files(), []string{"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"}; !reflect.DeepEqual(got, want) {
		t.Errorf("files %v, want %v", got, want)
	}
	if err := c.TokenizerProblem(); err != nil {
		t.Error(err)
	}
	for _, name := range append(c.Files(), "config.json") {
		data, err := c.ReadFile(name)
		if err != nil || len(data) == 0 {
			t.Errorf("%s: %d bytes, %v", name, len(data), err)
		}
		if strings.HasSuffix(name, ".json") && !json.Valid(data) {
			t.Errorf("%s is no JSON", name)
		}
	}
	template, err := os.ReadFile(filepath.Join(testutil.Data(t, "checkpoints", "tiny-qwen3"), "chat_template.jinja"))
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := c.ReadFile("chat_template.jinja"); string(got) != string(template) {
		t.Errorf("template %q", got)
	}
	if c.Generation.Temperature == nil || *c.Generation.Temperature != 0.5 {
		t.Errorf("generation %+v", c.Generation)
	}
	for _, name := range []string{"tokenizer.model", "vocab.json", "secret", "../model.gguf", "model.gguf", ""} {
		if _, err := c.OpenFile(name); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v", name, err)
		}
	}

	path, _ = tinyGGUF(t, gguf.F16, map[string]any{"tokenizer.ggml.model": nil, "tokenizer.chat_template": nil})
	c = open(t, path)
	if got := c.Files(); !reflect.DeepEqual(got, []string{"generation_config.json"}) {
		t.Errorf("without a tokenizer: %v", got)
	}
	wantError(t, "tokenizer", c.TokenizerProblem(), path, "tokenizer.ggml.model", "missing")
	path, _ = tinyGGUF(t, gguf.F16, map[string]any{"tokenizer.ggml.model": "rwkv"})
	wantError(t, "tokenizer", open(t, path).TokenizerProblem(), path, "rwkv")
}

func TestFolderFiles(t *testing.T) {
	dir := folder(t, map[string]any{"model.safetensors": tensors{byteTensor("a", 1)}, "tokenizer.json": "{}", "secret": "x"})
	c := open(t, dir)
	if data, err := c.ReadFile("tokenizer.json"); err != nil || string(data) != "{}" {
		t.Errorf("%q, %v", data, err)
	}
	if data, err := c.ReadFile("config.json"); err != nil || !strings.Contains(string(data), "model_type") {
		t.Errorf("%q, %v", data, err)
	}
	for _, name := range []string{"secret", "../" + filepath.Base(dir) + "/tokenizer.json", "chat_template.jinja"} {
		if _, err := c.ReadFile(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if c.TokenizerProblem() != nil {
		t.Error(c.TokenizerProblem())
	}
}

func TestGGUFErrors(t *testing.T) {
	path, _ := tinyGGUF(t, gguf.F16, nil)
	c := open(t, path)
	_, err := c.Tensor("model.layers.1.mlp.up_proj.weight", 3, 4)
	wantError(t, "shape", err, path, `"blk.1.ffn_up.weight" (model.layers.1.mlp.up_proj.weight)`, "found shape [384 128], want [3 4]")
	_, err = c.Tensor("model.layers.4.mlp.up_proj.weight", 3, 4)
	wantError(t, "missing", err, path, `"model.layers.4.mlp.up_proj.weight" is missing`, "not in model.gguf", "near names: model.layers.0.mlp.up_proj.weight")

	// A type that has no block of elements here.
	m := gguftest.Convert(t, testutil.Data(t, "checkpoints", "tiny-qwen3"), gguf.F16)
	x := m.Tensor("blk.0.ffn_up.weight")
	x.Type, x.Shape, x.Data = 28, []int{2, 2}, make([]byte, 32) // F64
	c = open(t, m.Write(t))
	_, err = c.Tensor("model.layers.0.mlp.up_proj.weight", 2, 2)
	wantError(t, "type", err, c.Dir, `"blk.0.ffn_up.weight"`, "found type F64", "Q2_K to Q6_K", "original checkpoint")

	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("a.gguf", "GGUF")
	_, err = Open(filepath.Join(dir, "a.gguf"))
	wantError(t, "cut", err, "open checkpoint", filepath.Join(dir, "a.gguf"))
	_, err = Open(dir)
	wantError(t, "folder with a file", err, "has no config.json", "give that in place of the folder", filepath.Join(dir, "a.gguf"))
	write("b.GGUF", "GGUF")
	_, err = Open(dir)
	wantError(t, "folder with files", err, "a.gguf, b.GGUF", "one of these files", filepath.Join(dir, "a.gguf"))
	write("config.json", `{"model_type": "llama"}`)
	_, err = Open(dir)
	wantError(t, "folder with files and config.json", err, "no .safetensors file", "one of these files")
	write("no.gguf", "no")
	_, err = Open(filepath.Join(dir, "no.gguf"))
	wantError(t, "no GGUF", err, "no GGUF file")
}

// TestGGUFMisuse: mistakes of the caller panic with a message, for tensors that
// are decoded too.
func TestGGUFMisuse(t *testing.T) {
	path, _ := tinyGGUF(t, gguf.Q8_0, nil)
	c := open(t, path)
	x, _ := c.Lookup("model.norm.weight")
	q, _ := c.Lookup("model.embed_tokens.weight")
	q.Float32(nil, q.Len())
	for name, call := range map[string]func(){
		"beyond":      func() { q.Float32(make([]float32, 2), q.Len()-1) },
		"beyond half": func() { q.Float16(make([]uint16, 10000), q.Len()-9999) },
		"negative":    func() { q.Float32(make([]float32, 1), -1) },
		"overflow":    func() { q.Float32(make([]float32, 1), math.MaxInt) },
		"plain":       func() { x.Float32(make([]float32, 1), x.Len()) },
		"closed": func() {
			d, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			y, _ := d.Lookup("model.embed_tokens.weight")
			d.Close()
			y.Float32(make([]float32, 1), 0)
		},
	} {
		func() {
			defer func() {
				if s, ok := recover().(string); !ok || !strings.HasPrefix(s, "checkpoint: ") {
					t.Errorf("%s: no panic with a message", name)
				}
			}()
			call()
		}()
	}
}

// TestGGUFAtOnce reads from many goroutines, files and tensors.
func TestGGUFAtOnce(t *testing.T) {
	path, _ := tinyGGUF(t, gguf.Q4_0, nil)
	c := open(t, path)
	const name = "model.layers.2.mlp.down_proj.weight"
	x, err := c.Tensor(name, 128, 384)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]float32, x.Len())
	x.Float32(want, 0)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			y, err := c.Tensor(name, 128, 384)
			if err != nil {
				t.Error(err)
				return
			}
			row := make([]float32, 384)
			for r := i; r < 128; r += 3 {
				y.Float32(row, r*384)
				if !reflect.DeepEqual(row, want[r*384:(r+1)*384]) {
					t.Errorf("row %d differs", r)
				}
			}
			f, err := c.OpenFile("tokenizer.json")
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			if n, err := io.Copy(io.Discard, f); err != nil || n == 0 {
				t.Errorf("%d bytes, %v", n, err)
			}
		})
	}
	wg.Wait()
}

// TestGGUFAllocations: rows are decoded where they are wanted, without memory
// of their own.
func TestGGUFAllocations(t *testing.T) {
	for _, typ := range []gguf.Type{gguf.F32, gguf.F16, gguf.Q8_0, gguf.Q4_0} {
		path, _ := tinyGGUF(t, typ, nil)
		x, err := open(t, path).Tensor("model.embed_tokens.weight", 1024, 128)
		if err != nil {
			t.Fatal(err)
		}
		row := make([]float32, 128)
		if n := testing.AllocsPerRun(10, func() { x.Float32(row, 77*128) }); n != 0 {
			t.Errorf("%s: a row takes %g allocations", typ, n)
		}
	}
}

func BenchmarkGGUF(b *testing.B) {
	for _, typ := range []gguf.Type{gguf.F16, gguf.Q8_0, gguf.Q4_0} {
		path, _ := tinyGGUF(b, typ, nil)
		c, err := Open(path)
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		x, _ := c.Lookup("model.embed_tokens.weight")
		row := make([]float32, 128)
		b.Run(fmt.Sprintf("rows of %s", typ), func(b *testing.B) {
			b.SetBytes(int64(4 * len(row)))
			for i := 0; b.Loop(); i++ {
				x.Float32(row, i%1024*128)
			}
		})
	}
}
