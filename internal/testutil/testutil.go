// Package testutil holds what tests of several packages share: finding the
// repository root, the shared material beside it, and the project's own
// test data.
package testutil

import (
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Root returns the repository root: the nearest parent folder of the test's
// working directory that holds go.mod.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no go.mod above the test's folder")
		}
		dir = parent
	}
}

// Shared returns the path of a file or folder in the shared material that
// lies beside the repository (../shared), and skips the test when it is
// not there: a clone of the repository alone does not have it.
func Shared(t testing.TB, elem ...string) string {
	t.Helper()
	path := filepath.Join(append([]string{Root(t), "..", "shared"}, elem...)...)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("needs %s, which is not part of the repository: %v", filepath.Join(elem...), err)
	}
	return path
}

// Data returns the path of a file or folder in the repository's own
// testdata folder, which every clone has, as [Unpacked] gives it.
func Data(t testing.TB, elem ...string) string {
	t.Helper()
	return Unpacked(t, filepath.Join(append([]string{Root(t), "testdata"}, elem...)...))
}

// Unpacked returns a path that holds the file or folder at path with nothing
// packed: a file that lies there as NAME.gz (numbers of large fixtures do, so
// that the repository stays small) is unpacked into a temporary folder of the
// test, a folder with such files is copied there with them unpacked, and
// whatever has nothing packed is used where it lies. The last element of the
// path stays the same, and nothing may be written below it.
func Unpacked(t testing.TB, path string) string {
	t.Helper()
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		out := filepath.Join(t.TempDir(), filepath.Base(path))
		if unpackErr := unpack(out, path+".gz"); errors.Is(unpackErr, fs.ErrNotExist) {
			t.Fatalf("test data is missing: %v", err)
		} else if unpackErr != nil {
			t.Fatal(unpackErr)
		}
		return out
	case err != nil:
		t.Fatal(err)
	case !info.IsDir():
		return path
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	packed := func(e fs.DirEntry) bool { return strings.HasSuffix(e.Name(), ".gz") }
	if !slices.ContainsFunc(entries, packed) {
		return path
	}
	out := filepath.Join(t.TempDir(), filepath.Base(path))
	if err := os.Mkdir(out, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		from, to := filepath.Join(path, e.Name()), filepath.Join(out, strings.TrimSuffix(e.Name(), ".gz"))
		if packed(e) {
			err = unpack(to, from)
		} else {
			err = write(to, from, func(r io.Reader) (io.Reader, error) { return r, nil })
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func unpack(to, from string) error {
	return write(to, from, func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) })
}

// write makes the file to of what decode makes of the file from.
func write(to, from string, decode func(io.Reader) (io.Reader, error)) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	r, err := decode(in)
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, r); err != nil {
		out.Close()
		return fmt.Errorf("%s: %w", from, err)
	}
	return out.Close()
}

// Hashes returns the SHA-256 of every file below a folder, by their paths
// within it, with slashes.
func Hashes(t testing.TB, dir string) map[string][sha256.Size]byte {
	t.Helper()
	h := map[string][sha256.Size]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		h[filepath.ToSlash(rel)] = sha256.Sum256(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}
