package anemone_test

import (
	"context"
	"fmt"
	"log"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"anemone"
	"anemone/mil"
)

// Look up two tokens in the embeddings of a package.
func ExampleOpenModel() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "anemone")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	o := anemone.DefaultConvertOptions()
	if _, err := anemone.Convert(ctx, "testdata/checkpoints/tiny-qwen3", filepath.Join(dir, "package"), o); err != nil {
		log.Fatal(err)
	}

	m, err := anemone.OpenModel(filepath.Join(dir, "package", "qwen_embeddings.mlpackage"), anemone.OpenOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	for _, f := range m.Functions() {
		fmt.Println(f.Name, f.Inputs)
	}
	ids := make([]int32, o.Batch)
	ids[0], ids[1] = 65, 66
	out, err := m.Predict(ctx, "", map[string]*anemone.Tensor{
		"input_ids": {DType: mil.Int32, Shape: []int{1, o.Batch}, Int: ids},
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	h := out["hidden_states"]
	fmt.Println(h.DType, h.Shape, h.Float[:2], h.Float[128:130])
	// Output:
	// main [input_ids int32 [1 1] or [1 64]]
	// fp16 [1 64 128] [-0.29101562 0.083496094] [-0.265625 0.096191406]
}

func TestTensors(t *testing.T) {
	want := map[string]*anemone.Tensor{
		"x": {DType: mil.Float16, Shape: []int{1, 3}, Float: []float32{0.1, float32(math.Inf(-1)), 2}},
		"i": {DType: mil.Int32, Shape: []int{2}, Int: []int32{-7, math.MaxInt32}},
		"b": {DType: mil.Bool, Shape: []int{2}, Int: []int32{1, 0}},
	}
	for _, name := range []string{"t.safetensors", "t.npz", "t.json"} {
		path := filepath.Join(t.TempDir(), name)
		if err := anemone.WriteTensors(path, want); err != nil {
			t.Fatal(err)
		}
		got, err := anemone.ReadTensors(path)
		if err != nil || len(got) != len(want) {
			t.Fatalf("%s: %v, %v", name, got, err)
		}
		for k, w := range want {
			g, d := got[k], w.DType
			if d == mil.Float16 {
				d = mil.Float32 // so that 0.1 stays what it is
			}
			if g.DType != d || !slices.Equal(g.Shape, w.Shape) || !slices.Equal(g.Float, w.Float) || !slices.Equal(g.Int, w.Int) {
				t.Errorf("%s: %q is %+v, want %+v", name, k, g, w)
			}
		}
	}
	for _, bad := range []map[string]*anemone.Tensor{{"x": nil}, {"x": {DType: mil.Float32, Shape: []int{2}, Float: []float32{1}}}} {
		if err := anemone.WriteTensors(filepath.Join(t.TempDir(), "t.npz"), bad); err == nil || !strings.Contains(err.Error(), `"x"`) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	path := filepath.Join(t.TempDir(), "t.json")
	if err := os.WriteFile(path, []byte(`{"x": 3000000000}`), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := anemone.ReadTensors(path); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "3000000000 is not an integer") {
		t.Errorf("too large an integer: %v", err)
	}
	if _, err := anemone.OpenModel(path, anemone.OpenOptions{Half: true}); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("no model: %v", err)
	}
}
