package testutil

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func pack(t *testing.T, data string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(data)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestUnpacked(t *testing.T) {
	dir := t.TempDir()
	for name, data := range map[string][]byte{
		"plain/a":         []byte("as it is"),
		"mixed/b":         []byte("beside"),
		"mixed/c.data.gz": pack(t, "packed"),
		"alone.gz":        pack(t, "by itself"),
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	plain, file := filepath.Join(dir, "plain"), filepath.Join(dir, "plain", "a")
	if got := Unpacked(t, plain); got != plain {
		t.Errorf("a folder with nothing packed is %s, want %s", got, plain)
	}
	if got := Unpacked(t, file); got != file {
		t.Errorf("a file is %s, want %s", got, file)
	}
	mixed := Unpacked(t, filepath.Join(dir, "mixed"))
	if filepath.Base(mixed) != "mixed" {
		t.Errorf("the folder's name became %s", mixed)
	}
	entries, err := os.ReadDir(mixed)
	if err != nil || len(entries) != 2 {
		t.Errorf("the unpacked folder has %v (%v), want b and c.data", entries, err)
	}
	for path, want := range map[string]string{
		filepath.Join(mixed, "b"):                             "beside",
		filepath.Join(mixed, "c.data"):                        "packed",
		Unpacked(t, filepath.Join(dir, "alone")):              "by itself",
		Unpacked(t, filepath.Join(dir, "mixed", "c.data")):    "packed",
		Unpacked(t, filepath.Join(dir, "mixed", "c.data.gz")): string(pack(t, "packed")),
	} {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s: %q (%v), want %q", path, got, err, want)
		}
	}
}

// By sha256sum: an empty file, and "abc".
func TestHashes(t *testing.T) {
	dir := t.TempDir()
	for name, data := range map[string]string{"a": "", "b/c": "abc"} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(data), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	h := Hashes(t, dir)
	for name, want := range map[string]string{
		"a":   "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		"b/c": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
	} {
		if got := fmt.Sprintf("%x", h[name]); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if len(h) != 2 {
		t.Errorf("%d files, want 2", len(h))
	}
}
