package bundle

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := WriteFile(path, Bytes([]byte(content))); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestClone(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	src := filepath.Join(dir, "src")
	put(t, src, "content")
	var done, total int64
	dst := filepath.Join(dir, "deep", "down", "dst")
	if err := Clone(ctx, dst, src, func(d, n int64) { done, total = d, n }); err != nil {
		t.Fatal(err)
	}
	if got := get(t, dst); got != "content" || done != 7 || total != 7 {
		t.Errorf("%q after %d of %d bytes", got, done, total)
	}
	if err := Clone(ctx, dst, src, nil); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over a file: %v", err)
	}
	if got := get(t, dst); got != "content" {
		t.Errorf("what was there is now %q", got)
	}
	// The new name stays when the old one goes.
	if err := os.Remove(src); err != nil {
		t.Fatal(err)
	}
	if got := get(t, dst); got != "content" {
		t.Errorf("%q", got)
	}
	if err := Clone(ctx, filepath.Join(dir, "x"), src, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := Clone(ctx, filepath.Join(dir, "x"), dir, nil); err == nil {
		t.Error("a folder was cloned")
	}
	if _, err := os.Stat(filepath.Join(dir, "x")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("something is left")
	}
}

// TestCopy is the way where blocks cannot be shared and links not be made.
func TestCopy(t *testing.T) {
	dir := t.TempDir()
	content := bytes.Repeat([]byte("0123456789"), 1<<20) // more than one piece
	var last int64
	calls := 0
	err := copyFile(context.Background(), filepath.Join(dir, "a"), bytes.NewReader(content), int64(len(content)), func(done, total int64) {
		if done <= last || total != int64(len(content)) {
			t.Errorf("%d after %d, of %d", done, last, total)
		}
		last = done
		calls++
	})
	if err != nil || last != int64(len(content)) || calls < 3 {
		t.Errorf("%d bytes in %d calls, %v", last, calls, err)
	}
	if get(t, filepath.Join(dir, "a")) != string(content) {
		t.Error("the copy differs")
	}
	ctx, cancel := context.WithCancel(context.Background())
	err = copyFile(ctx, filepath.Join(dir, "b"), bytes.NewReader(content), int64(len(content)), func(int64, int64) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	err = copyFile(context.Background(), filepath.Join(dir, "b"), io.MultiReader(bytes.NewReader(content[:10]), failing{}), 20, func(int64, int64) {})
	if !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "b")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("half a copy is left")
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestLocal(t *testing.T) {
	for path, want := range map[string]bool{
		"weights/weight.bin": true, "w": true, "a/../w": true, "": false, ".": false, "a/..": false, "..": false,
		"../w": false, "a/../../w": false, "/w": false, `a\w`: false, `..\w`: false,
	} {
		if got := Local(path); got != want {
			t.Errorf("%q: %v", path, got)
		}
	}
	for name, want := range map[string]string{
		"@model_path/weights/weight.bin": "weights/weight.bin", "@model_path/./a/../w": "w",
		"weights/weight.bin": "", "@model_path/": "", "@model_path/../w": "", "@model_path//w": "",
	} {
		if got, err := WeightPath(name); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", name, got, err)
		}
	}
}

// TestCreate: whatever happens, there is the old folder or the new one, and
// nothing beside it.
func TestCreate(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	fill := func(content string) func(string) error {
		return func(d string) error {
			put(t, filepath.Join(d, "sub", "file"), content)
			return nil
		}
	}
	broken := errors.New("broken")
	stopped, stop := context.WithCancelCause(ctx)
	stop(broken)
	for i, c := range []struct {
		ctx       context.Context
		overwrite bool
		fill      func(string) error
		err       error
		want      string
	}{
		{ctx, false, func(string) error { return broken }, broken, ""},
		{stopped, false, fill("0"), broken, ""},
		{ctx, false, fill("1"), nil, "1"},
		{ctx, false, fill("2"), fs.ErrExist, "1"},
		{ctx, true, func(d string) error { fill("3")(d); return broken }, broken, "1"},
		{stopped, true, fill("4"), broken, "1"},
		{ctx, true, fill("5"), nil, "5"},
	} {
		if err := Create(c.ctx, path, c.overwrite, c.fill); !errors.Is(err, c.err) {
			t.Errorf("%d: %v, want %v", i, err, c.err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if c.want == "" {
			if len(entries) != 0 {
				t.Errorf("%d: left behind %v", i, entries)
			}
			continue
		}
		if got := get(t, filepath.Join(path, "sub", "file")); got != c.want || len(entries) != 1 {
			t.Errorf("%d: %q, want %q; beside it %v", i, got, c.want, entries)
		}
	}
	if err := Create(ctx, filepath.Join(dir, "none", "x"), false, fill("6")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
