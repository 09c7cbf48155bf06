//go:build unix

package platform

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOpen: a pipe that nobody writes to is refused at once, as is all else
// that is no file.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	pipe, link, file := filepath.Join(dir, "pipe"), filepath.Join(dir, "link"), filepath.Join(dir, "file")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, dir, os.DevNull} {
		if f, err := Open(path); err == nil || !strings.Contains(err.Error(), path+": not a regular file") {
			f.Close()
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := Open(filepath.Join(dir, "absent")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
	for _, path := range []string{file, link} {
		f, err := Open(path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if b, err := io.ReadAll(f); string(b) != "text" || err != nil {
			t.Errorf("%s: %q, %v", path, b, err)
		}
		f.Close()
	}
}

// TestGuard reads a map of a file that is cut off meanwhile.
func TestGuard(t *testing.T) {
	page := os.Getpagesize()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, make([]byte, 4*page), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := Mmap(f)
	if err != nil {
		t.Fatal(err)
	}
	defer Munmap(b)
	sum := 0
	read := func(at int) error { return Guard(func() { sum += int(b[at]) }) }
	if err := read(3 * page); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, int64(page)); err != nil {
		t.Fatal(err)
	}
	if err := read(3 * page); err == nil || !strings.Contains(err.Error(), "cut off") {
		t.Errorf("beyond the end: %v", err)
	}
	if err := read(0); err != nil {
		t.Errorf("before the end: %v", err)
	}
	for name, f := range map[string]func(){
		"a panic":         func() { panic("mine") },
		"a nil map":       func() { map[int]int(nil)[0] = 1 },
		"a nil pointer":   func() { sum += *(*int)(nil) },
		"an index beyond": func() { sum += int(b[sum+len(b)]) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s is swallowed", name)
				}
			}()
			Guard(f)
		}()
	}
}
