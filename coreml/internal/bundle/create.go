package bundle

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"anemone/internal/platform"
)

// ErrExists is what a writer answers when something is at its place already.
var ErrExists = fmt.Errorf("%w; choose another name, or overwrite it", fs.ErrExist)

// Create makes a folder at path with the content that fill puts into it. The
// folder appears whole or, if fill fails or ctx is done, not at all; until
// then it is a hidden sibling. With overwrite, what is at path is replaced in
// the same way.
func Create(ctx context.Context, path string, overwrite bool, fill func(dir string) error) error {
	path = filepath.Clean(path)
	if _, err := os.Lstat(path); err == nil && !overwrite {
		return ErrExists
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	tmp, err := tempSibling(path)
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp) // nothing is left of it after the rename
	if err := fill(tmp); err != nil {
		return err
	}
	if err := syncTree(tmp); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return install(tmp, path, overwrite)
}

// syncTree flushes the entries of all folders below dir, the deepest first.
func syncTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := syncTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return platform.SyncDir(dir)
}

// tempSibling makes a folder beside path.
func tempSibling(path string) (string, error) {
	for {
		dir := sibling(path, "tmp")
		err := os.Mkdir(dir, 0o777)
		if !errors.Is(err, fs.ErrExist) {
			return dir, err
		}
	}
}

func sibling(path, what string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"."+what+"-"+rand.Text()[:8])
}

// install moves the folder tmp to path.
func install(tmp, path string, overwrite bool) error {
	if !overwrite {
		if _, err := os.Lstat(path); err == nil {
			return ErrExists
		}
	}
	old := ""
	if overwrite {
		old = sibling(path, "old")
		if err := os.Rename(path, old); errors.Is(err, fs.ErrNotExist) {
			old = ""
		} else if err != nil {
			return err
		}
	}
	if err := os.Rename(tmp, path); err != nil {
		if old != "" {
			err = errors.Join(err, os.Rename(old, path))
		}
		return err
	}
	if old != "" {
		if err := os.RemoveAll(old); err != nil {
			return err
		}
	}
	return platform.SyncDir(filepath.Dir(path))
}

// WriteFile makes a file that is not there yet, with the folders above it,
// and flushes it to disk. If it fails the file is not there.
func WriteFile(path string, content func(io.Writer) error) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			os.Remove(path)
		}
	}()
	w := bufio.NewWriterSize(f, 1<<20)
	if err := content(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Sync()
}

// Bytes is the content of a file that is at hand.
func Bytes(b []byte) func(io.Writer) error {
	return func(w io.Writer) error { _, err := w.Write(b); return err }
}

// OpenRegular opens a file that is one: opening a pipe would wait for ever.
func OpenRegular(path string) (*os.File, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, &os.PathError{Op: "open", Path: path, Err: errors.New("not a regular file")}
	}
	return os.Open(path)
}

// Local reports whether a slash-separated path stays below where it starts,
// on every system.
func Local(p string) bool {
	return p != "" && !strings.Contains(p, `\`) && !path.IsAbs(p) && path.Clean(p) != "." && filepath.IsLocal(filepath.FromSlash(p))
}
