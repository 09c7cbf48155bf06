package inspect

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"anemone/internal/anemll"
	"anemone/internal/arch"
	"anemone/internal/arch/qwen3"
	"anemone/internal/checkpoint/gguf"
	"anemone/internal/checkpoint/gguftest"
	"anemone/internal/compress"
	"anemone/internal/testutil"
)

var registry = arch.Registry{qwen3.Architecture}

func TestPackage(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	o := anemll.Options{Context: 64, Batch: 32, Chunks: 1, FFN: compress.Encoding{Bits: 4, Group: 8}}
	conv, err := anemll.Convert(t.Context(), registry, testutil.Data(t, "checkpoints", "tiny-qwen3"), out, o)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Open(t.Context(), out, registry, Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := r.Package
	if r.Kind != "package" || p == nil || len(p.Parts) != 3 || len(p.Problems) != 0 {
		t.Fatalf("got %+v", r)
	}
	if p.Context != 64 || p.Batch != 32 || p.Hidden != 128 || p.Vocab != 1024 || p.WeightBytes != conv.Bytes {
		t.Errorf("got %+v, converted %d bytes", p, conv.Bytes)
	}
	// 2 x 4 layers, 2 heads, 64 positions, 64 elements of fp16.
	if want := int64(8 * 2 * 64 * 64 * 2); p.Memory.State != want {
		t.Errorf("state is %d bytes, want %d", p.Memory.State, want)
	}
	chunk := p.Parts[1]
	elements := int64(4 * (128*(256+128+128) + 256*128 + 3*128*384))
	if w := chunk.Weights[0]; w.Name != "lut4, 8 rows per table" || w.Count != 28 || w.Elements != elements {
		t.Errorf("largest encoding is %+v, want lut4 of 28 weights, %d elements", w, elements)
	}
	infer := chunk.Functions[0]
	if infer.Operations["slice_update"] != 8 || infer.Operations["conv"] != 28 || infer.Operations["write_state"] != 8 {
		t.Errorf("operations are %v, want 8 slice_update, 28 conv, 8 write_state", infer.Operations)
	}
	if infer.WeightBytes != chunk.WeightBytes {
		t.Errorf("infer uses %d of %d bytes: both functions use all", infer.WeightBytes, chunk.WeightBytes)
	}
	one, err := Open(t.Context(), filepath.Join(out, "qwen_lm_head.mlpackage"), registry, Options{})
	if err != nil || one.Kind != "model" || len(one.Model.Functions[0].Outputs) != 16 {
		t.Errorf("the head is %+v, %v", one, err)
	}
}

func TestCheckpoint(t *testing.T) {
	r, err := Open(t.Context(), testutil.Data(t, "checkpoints", "tiny-qwen3"), registry, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if c := r.Checkpoint; c == nil || !c.Supported || c.ModelType != "qwen3" || c.Tensors != 46 {
		t.Errorf("got %+v", r.Checkpoint)
	}
	r, err = Open(t.Context(), testutil.Data(t, "checkpoints", "tiny-qwen3"), nil, Options{})
	if err != nil || r.Checkpoint.Supported || !strings.Contains(r.Checkpoint.Why, "qwen3") {
		t.Errorf("without architectures: %+v, %v", r.Checkpoint, err)
	}
}

// TestGGUF describes what can be converted and what cannot.
func TestGGUF(t *testing.T) {
	m := gguftest.Convert(t, testutil.Data(t, "checkpoints", "tiny-qwen3"), gguf.Q8_0)
	path := m.Write(t)
	r, err := Open(t.Context(), path, registry, Options{})
	if err != nil {
		t.Fatal(err)
	}
	// 46 tensors of 1115776 elements (the sum over the shapes in the folder's
	// header), 17 of them vectors in float32; blocks of 32 take 34 bytes.
	const vectors, matrices = 1664, 1114112
	want := &Checkpoint{
		Format: "GGUF 3", ModelType: "qwen3", Architecture: "qwen3", Name: "a name that says nothing", Context: 4096, Tokenizer: "gpt2 (qwen2), 1024 tokens",
		Supported: true, Files: []string{path}, Tensors: 46, Parameters: vectors + matrices, Bytes: 4*vectors + matrices/32*34,
		Types: []Type{{"Q8_0", 29, matrices / 32 * 34}, {"F32", 17, 4 * vectors}}, Problems: []string{},
	}
	if r.Kind != "checkpoint" || !reflect.DeepEqual(r.Checkpoint, want) {
		t.Errorf("got %+v, want %+v", r.Checkpoint, want)
	}
	m.Tensors = append(m.Tensors, gguftest.Tensor{Name: "extra", Type: gguf.F16, Shape: []int{3}, Data: make([]byte, 6)})
	if r, err = Open(t.Context(), m.Write(t), registry, Options{}); err != nil || r.Checkpoint.Supported || !strings.Contains(r.Checkpoint.Why, `"extra"`) || r.Checkpoint.Tensors != 47 {
		t.Errorf("with another tensor: %+v, %v", r.Checkpoint, err)
	}
	if r, err = Open(t.Context(), path, nil, Options{}); err != nil || r.Checkpoint.Supported || !strings.Contains(r.Checkpoint.Why, "qwen3") {
		t.Errorf("without architectures: %+v, %v", r.Checkpoint, err)
	}
	if _, err = Open(t.Context(), path, registry, Options{MIL: true}); err == nil || !strings.Contains(err.Error(), "convert it first") {
		t.Errorf("a program of a GGUF file: %v", err)
	}
	m.Set("general.architecture", nil)
	m.Set("tokenizer.ggml.tokens", "none")
	if r, err = Open(t.Context(), m.Write(t), registry, Options{}); err != nil || r.Checkpoint.Supported || !strings.Contains(r.Checkpoint.Why, "general.architecture") || r.Checkpoint.Tokenizer != "gpt2 (qwen2)" {
		t.Errorf("without an architecture: %+v, %v", r, err)
	}
}

func TestNothing(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(t.Context(), dir, registry, Options{}); err == nil {
		t.Error("an empty folder was described")
	}
	if err := os.Mkdir(filepath.Join(dir, "x.mlmodel"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), filepath.Join(dir, "x.mlmodel"), registry, Options{}); err == nil {
		t.Error("a folder was read as a model")
	}
}
