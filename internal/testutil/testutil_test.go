package testutil

import (
	"bytes"
	"compress/gzip"
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
