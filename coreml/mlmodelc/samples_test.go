package mlmodelc

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"anemone/internal/testutil"
	"anemone/mil"
	"anemone/mil/blob"
	"anemone/mil/miltext"
)

// sample is a compiled model in the shared material.
type sample struct {
	name   string
	path   string
	source string // that it was compiled from, "" if not there
}

// samples returns the ML Programs among the samples, those inside pipelines
// included.
func samples(t testing.TB) []sample {
	t.Helper()
	root := testutil.Shared(t, "samples", "mlmodelc")
	var out []sample
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != textName {
			return err
		}
		dir := filepath.Dir(path)
		rel, err := filepath.Rel(root, dir)
		if err != nil {
			return err
		}
		s := sample{name: filepath.ToSlash(rel), path: dir}
		for _, ext := range []string{".mlpackage", ".input.mlmodel"} {
			src := strings.TrimSuffix(dir, ".mlmodelc") + ext
			if _, err := os.Stat(src); err == nil {
				s.source = src
			}
		}
		out = append(out, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func read(t testing.TB, path ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestSamplesRebuilt compiles the source of every sample that has one and
// compares all files with those of Apple's compiler. What a compiler is free
// to choose is taken from the sample: its version, the order of free metadata,
// the keys of enumerated shapes, the name of the class.
func TestSamplesRebuilt(t *testing.T) {
	tried, same := 0, 0
	for _, s := range samples(t) {
		if s.source == "" {
			continue
		}
		tried++
		t.Run(s.name, func(t *testing.T) {
			p, err := Open(s.path)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			free := p.Details
			free.ModelHash, free.ModelName = "", "" // these follow from the source
			src := s.source
			if strings.HasSuffix(src, ".input.mlmodel") {
				src = besideWeights(t, s)
			}
			got, err := Compile(context.Background(), src, t.TempDir(), Options{Details: free})
			if err != nil {
				t.Fatal(err)
			}
			if sameBundle(t, got, s.path) {
				same++
			}
		})
	}
	if tried != 24 || same != 24 {
		t.Errorf("%d of %d bundles rebuilt, want 24 of 24", same, tried)
	}
}

// besideWeights returns a copy of the source of a sample as it was compiled:
// under the name input.mlmodel, with its weights beside it.
func besideWeights(t *testing.T, s sample) string {
	dir := t.TempDir()
	src := filepath.Join(dir, "input.mlmodel")
	if err := os.WriteFile(src, read(t, s.source), 0o666); err != nil {
		t.Fatal(err)
	}
	weights := filepath.Join(s.path, "weights")
	if _, err := os.Stat(weights); err == nil {
		if err := os.CopyFS(filepath.Join(dir, "weights"), os.DirFS(weights)); err != nil {
			t.Fatal(err)
		}
	}
	return src
}

// sameBundle compares two bundles, file by file: byte by byte, and
// metadata.json, whose keys Apple's compiler writes in no order, as JSON.
func sameBundle(t *testing.T, got, want string) bool {
	t.Helper()
	ok := true
	names := files(t, want)
	if g := files(t, got); !slices.Equal(g, names) {
		t.Errorf("files %q, want %q", g, names)
		return false
	}
	for _, name := range names {
		a, err := os.Stat(filepath.Join(got, name))
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.Stat(filepath.Join(want, name)); err != nil {
			t.Fatal(err)
		} else if os.SameFile(a, b) {
			continue // a hard link; some are large
		}
		g, w := read(t, got, name), read(t, want, name)
		if name == metadataName {
			var a, b any
			if err := json.Unmarshal(g, &a); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if err := json.Unmarshal(w, &b); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(a, b) {
				t.Errorf("%s:\n%s\nwant\n%s", name, g, w)
				ok = false
			}
			continue
		}
		if !bytes.Equal(g, w) {
			i := 0
			for i < len(g) && i < len(w) && g[i] == w[i] {
				i++
			}
			t.Errorf("%s: %d bytes, want %d; they differ at %d: %.80q, want %.80q", name, len(g), len(w), i, g[i:], w[i:])
			ok = false
		}
	}
	return ok
}

func files(t testing.TB, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			var rel string
			rel, err = filepath.Rel(dir, path)
			out = append(out, filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestSamplesWritten opens every sample and writes it again, with the details
// that were read: all its files come out as they were. This holds the reader
// to account too, as a writer can only write what was read.
func TestSamplesWritten(t *testing.T) {
	tried, same := 0, 0
	for _, s := range samples(t) {
		tried++
		t.Run(s.name, func(t *testing.T) {
			whole := complete(t, s)
			p, err := Open(whole)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			got := filepath.Join(t.TempDir(), "x.mlmodelc")
			if err := Write(context.Background(), got, p.Model, Options{Details: p.Details, Keep: p}); err != nil {
				t.Fatal(err)
			}
			if sameBundle(t, got, whole) {
				same++
			}
		})
	}
	if tried != 58 || same != tried {
		t.Errorf("%d of %d samples written as they were, want 58 of 58", same, tried)
	}
}

// complete returns the path of a whole bundle. Some samples lack what Git LFS
// did not download: the description is there under another name, of the
// weights the records can be told from the program (that of nothing else is
// looked at), and the other two files are of use to tools only. Models inside
// pipelines lack metadata.json and half of the analytics.
func complete(t *testing.T, s sample) string {
	t.Helper()
	part := strings.Contains(s.name, "/")
	_, err := os.Stat(filepath.Join(s.path, dataName+".restored"))
	pointers := err == nil
	newline := s.name == "coremltools__add_model.mlmodelc" // added to the text by its repository
	if !part && !pointers && !newline {
		return s.path
	}
	dir := filepath.Join(t.TempDir(), "whole.mlmodelc")
	if err := os.CopyFS(dir, os.DirFS(s.path)); err != nil {
		t.Fatal(err)
	}
	put := func(name string, b []byte) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if newline {
		put(textName, bytes.TrimSuffix(read(t, s.path, textName), []byte("\n")))
		return dir
	}
	if pointers {
		put(dataName, read(t, s.path, dataName+".restored"))
		if err := os.Remove(filepath.Join(dir, dataName+".restored")); err != nil {
			t.Fatal(err)
		}
		sparseWeights(t, filepath.Join(dir, "weights", "weight.bin"), read(t, s.path, textName))
	}
	// What only tools read is made here, from the bundle itself.
	p, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	d := p.Details
	if d.ModelHash == "" {
		d.ModelHash, d.ModelName = hashOf(nil), "none"
		put(analyticsName, appendAnalytics(nil, d.analytics()))
	}
	if part {
		d.ClassName = "part"
		b, err := metadata(p.Model, &d)
		if err != nil {
			t.Fatal(err)
		}
		put(metadataName, b)
		// Descriptions of parts have no metadata unless their source had.
		c, err := parseContainer(read(t, s.path, dataName))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(c.Description, []byte{0xa2, 0x06}) {
			c.Description = append(slices.Clip(c.Description), 0xa2, 0x06, 0)
			put(dataName, c.append(nil))
		}
	}
	return dir
}

// sparseWeights replaces a pointer to a file of weights by a file of its size
// with the records that a program refers to, and no data. The records must
// fill the file.
func sparseWeights(t *testing.T, path string, text []byte) {
	t.Helper()
	pointer := read(t, path)
	var size int64
	if _, tail, ok := bytes.Cut(pointer, []byte("size ")); !ok {
		t.Fatalf("%s is no pointer", path)
	} else if _, err := fmt.Sscan(string(tail), &size); err != nil {
		t.Fatal(err)
	}
	types := map[uint64]mil.Type{}
	_, err := miltext.Parse(text, miltext.ParseOptions{Weight: func(ref miltext.BlobRef, t mil.Type) (mil.Weight, error) {
		types[ref.Offset] = t
		return mil.PromiseWeight(t, nil), nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	put := func(b []byte, off uint64) {
		if _, err := f.WriteAt(b, int64(off)); err != nil {
			t.Fatal(err)
		}
	}
	head := binary.LittleEndian.AppendUint32(nil, uint32(len(types)))
	put(binary.LittleEndian.AppendUint32(head, 2), 0)
	end := uint64(64)
	for _, off := range slices.Sorted(maps.Keys(types)) {
		if want := (end + 63) &^ 63; off != want {
			t.Fatalf("a record at %d, want the next at %d", off, want)
		}
		ty := types[off]
		n, _ := ty.ByteSize()
		elems, _ := ty.NumElements()
		code, ok := blob.CodeOf(ty.DType)
		if !ok {
			t.Fatalf("no code for %v", ty)
		}
		r := binary.LittleEndian.AppendUint32(nil, 0xdeadbeef)
		r = binary.LittleEndian.AppendUint32(r, uint32(code))
		for _, v := range []uint64{uint64(n), off + 64, uint64(int(n)*8 - elems*ty.DType.Bits())} {
			r = binary.LittleEndian.AppendUint64(r, v)
		}
		put(r, off)
		end = off + 64 + uint64(n)
	}
	if end != uint64(size) && (end+63)&^63 != uint64(size) {
		t.Errorf("the records end at %d, the file at %d", end, size)
	}
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
}

// TestSampleContainers parses every coremldata.bin of the samples and writes
// it again.
func TestSampleContainers(t *testing.T) {
	root := testutil.Shared(t, "samples", "mlmodelc")
	models, analytics := 0, 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasPrefix(d.Name(), dataName) || filepath.Base(filepath.Dir(path)) == "modelNames" {
			return err
		}
		b := read(t, path)
		var again []byte
		if filepath.Base(filepath.Dir(path)) == "analytics" {
			var s []section
			if s, err = parseAnalytics(b); err == nil {
				again = appendAnalytics(nil, s)
				analytics++
			}
		} else {
			var c *container
			if c, err = parseContainer(b); err == nil {
				again = c.append(nil)
				models++
			}
		}
		if errors.Is(err, errPointer) {
			return nil
		}
		if err != nil {
			t.Errorf("%s: %v", path, err)
		} else if !bytes.Equal(again, b) {
			t.Errorf("%s: written as\n%x\nwant\n%x", path, again, b)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// 51 bundles and 15 parts of pipelines, of which 12 lack the analytics.
	if models != 66 || analytics != 54 {
		t.Errorf("%d containers and %d analytics, want 66 and 54", models, analytics)
	}
}

// TestSamplePipelines asks for the whole pipelines, which are refused.
func TestSamplePipelines(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(testutil.Shared(t), "samples", "mlmodelc", "*pipeline*.mlmodelc"))
	if err != nil || len(paths) != 8 {
		t.Fatalf("%d pipelines, %v; want 8", len(paths), err)
	}
	for _, path := range paths {
		_, err := Open(path)
		if err == nil || !strings.Contains(err.Error(), "the model is a pipeline (type 202); only ML Programs (type 502) are supported") {
			t.Errorf("%s: %v", filepath.Base(path), err)
		}
	}
}
