// Package testutil holds what tests of several packages share: finding the
// repository root, the shared material beside it, and the project's own
// test data.
package testutil

import (
	"os"
	"path/filepath"
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
// testdata folder, which every clone has.
func Data(t testing.TB, elem ...string) string {
	t.Helper()
	path := filepath.Join(append([]string{Root(t), "testdata"}, elem...)...)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("test data is missing: %v", err)
	}
	return path
}
