// Package checkpointtest makes checkpoints for tests out of others.
package checkpointtest

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"anemone/internal/checkpoint/safetensors"
)

// Variant copies a checkpoint, its config.json and model.safetensors, into a
// temporary folder of the test, with changes to either; both may be nil.
// Tensors are by their names, which are the keys.
func Variant(t testing.TB, src string, config func(map[string]any), tensors func(map[string]*safetensors.Named)) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(src, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var c map[string]any
	if err := json.Unmarshal(b, &c); err != nil {
		t.Fatal(err)
	}
	if config != nil {
		config(c)
	}
	if b, err = json.Marshal(c); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), b, 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Open(filepath.Join(src, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	byName := map[string]*safetensors.Named{}
	for _, i := range f.Tensors() {
		data, err := f.Bytes(i.Name)
		if err != nil {
			t.Fatal(err)
		}
		byName[i.Name] = &safetensors.Named{Name: i.Name, DType: i.DType, Shape: i.Shape, Data: bytes.Clone(data)}
	}
	if tensors != nil {
		tensors(byName)
	}
	var list []safetensors.Named
	for _, n := range slices.Sorted(maps.Keys(byName)) {
		x := *byName[n]
		x.Name = n
		list = append(list, x)
	}
	if err := safetensors.Write(filepath.Join(dir, "model.safetensors"), list, f.Metadata()); err != nil {
		t.Fatal(err)
	}
	return dir
}
