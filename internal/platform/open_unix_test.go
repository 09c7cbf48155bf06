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
