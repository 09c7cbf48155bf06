package gemmatest

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"anemone/internal/checkpoint/safetensors"
)

// Encode returns v as JSON.
func Encode(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Variant copies a checkpoint, its config.json and model.safetensors, with
// changes to either; both may be nil. Tensors are by their names, which are
// the keys.
func Variant(t testing.TB, src string, config func(map[string]any), tensors func(map[string]*safetensors.Named)) string {
	t.Helper()
	dir := t.TempDir()
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
	if err := os.WriteFile(filepath.Join(dir, "config.json"), Encode(t, c), 0o666); err != nil {
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
	if err := safetensors.Write(filepath.Join(dir, "model.safetensors"), list, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Hashes returns the SHA-256 of every file in a folder, by their paths within.
func Hashes(t testing.TB, dir string) map[string][32]byte {
	t.Helper()
	h := map[string][32]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		h[rel] = sha256.Sum256(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}
