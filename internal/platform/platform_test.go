package platform

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestMmap(t *testing.T) {
	// Sizes around a page, so that the last partial page is seen too.
	page := os.Getpagesize()
	for _, size := range []int{0, 1, page - 1, page, page + 1, 3*page + 17} {
		want := make([]byte, size)
		for i := range want {
			want[i] = byte(i*7 + i>>8)
		}
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, want, 0o666); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Mmap(f)
		if err != nil {
			t.Fatalf("size %d: %v", size, err)
		}
		f.Close() // the map must outlive the file
		if got == nil || !bytes.Equal(got, want) {
			t.Errorf("size %d: the map differs from the file (nil: %t)", size, got == nil)
		}
		Discard(got)
		if size > page {
			Discard(got[page-3 : page+1]) // starts and ends inside pages
		}
		if !bytes.Equal(got, want) {
			t.Errorf("size %d: the map changed when it was discarded", size)
		}
		if err := Munmap(got); err != nil {
			t.Errorf("size %d: %v", size, err)
		}
	}
}

func TestMmapFolder(t *testing.T) {
	f, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := Mmap(f); err == nil {
		t.Error("a folder was mapped")
	}
}

func TestSyncDir(t *testing.T) {
	dir := t.TempDir()
	if err := SyncDir(dir); err != nil {
		t.Error(err)
	}
	if err := SyncDir(filepath.Join(dir, "absent")); err == nil {
		t.Error("no error for a folder that is not there")
	}
}

func TestNotATerminal(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if IsTerminal(f) {
		t.Error("a regular file passes for a terminal")
	}
	if w := TerminalWidth(f); w != DefaultWidth {
		t.Errorf("width %d, want %d", w, DefaultWidth)
	}
}
