package safetensors

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"anemone/internal/testutil"
)

// TestOpenReference reads a file by the reference implementation; the values
// are what testdata/make.py printed.
func TestOpenReference(t *testing.T) {
	f, err := Open(filepath.Join("testdata", "mixed.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want := []struct{ name, dtype, shape, data string }{
		{"i64", "I64", "[2]", "ffffffffffffffff0000000000000040"},
		{"f64", "F64", "[1]", "9a9999999999b93f"},
		{"c64", "C64", "[1]", "0000803f00000040"},
		{"empty", "F32", "[0 4]", ""},
		{"f32", "F32", "[2 3]", "0000c03f000000c000004040000080400000a0400000c840"},
		{"scalar", "F32", "[]", "0000e040"},
		{"a/ü <&> \"quoted\" \\ \n", "I32", "[1]", "09000000"},
		{"i32", "I32", "[1]", "f7ffffff"},
		{"bf16", "BF16", "[3]", "803f004040c0"},
		{"f16", "F16", "[3]", "003cfffb0100"},
		{"u16", "U16", "[1]", "ffff"},
		{"f8", "F8_E4M3", "[3]", "384044"},
		{"f8_2", "F8_E5M2", "[1]", "3c"},
		{"u8", "U8", "[3]", "010203"},
		{"bool", "BOOL", "[2]", "0100"},
	}
	all := f.Tensors()
	if len(all) != len(want) {
		t.Fatalf("%d tensors, want %d", len(all), len(want))
	}
	for i, w := range want {
		if all[i].Name != w.name {
			t.Errorf("tensor %d is %q, want %q", i, all[i].Name, w.name)
		}
		info, ok := f.Lookup(w.name)
		data, err := f.Bytes(w.name)
		if !ok || err != nil || string(info.DType) != w.dtype || fmt.Sprint(info.Shape) != w.shape || hex.EncodeToString(data) != w.data {
			t.Errorf("%q: %v %v, %x, %v; want %v", w.name, info, ok, data, err, w)
		}
	}
	if got := f.Metadata()["format"]; got != "pt" {
		t.Errorf("format %q, want pt", got)
	}
	if _, ok := f.Lookup("absent"); ok {
		t.Error("found a tensor that is not there")
	}
	if _, err := f.Bytes("absent"); err == nil || !strings.Contains(err.Error(), `no tensor "absent"`) {
		t.Errorf("Bytes of an absent tensor: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if _, err := f.Bytes("f32"); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Bytes after Close: %v", err)
	}
}

// TestWriteReference rewrites files of the reference implementation: ours
// must have the same bytes, whatever the order in which tensors are given.
func TestWriteReference(t *testing.T) {
	for _, path := range []string{
		filepath.Join("testdata", "mixed.safetensors"),
		testutil.Data(t, "checkpoints", "tiny-qwen3", "model.safetensors"),
		testutil.Data(t, "goldens", "tiny-qwen3.safetensors"),
	} {
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var named []Named
		for _, info := range f.Tensors() {
			data, err := f.Bytes(info.Name)
			if err != nil {
				t.Fatal(err)
			}
			named = append(named, Named{info.Name, info.DType, info.Shape, data})
		}
		rand.New(rand.NewPCG(1, 2)).Shuffle(len(named), func(i, j int) { named[i], named[j] = named[j], named[i] })
		out := filepath.Join(t.TempDir(), "out.safetensors")
		if err := Write(out, named, f.Metadata()); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: rewritten file differs (%d bytes, want %d)", path, len(got), len(want))
		}
	}
}

func TestWriteReplaces(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.safetensors")
	for _, v := range []byte{1, 2} {
		if err := Write(path, []Named{{"t", U8, nil, []byte{v}}}, nil); err != nil {
			t.Fatal(err)
		}
		f, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := f.Bytes("t")
		if err != nil || len(got) != 1 || got[0] != v {
			t.Errorf("read %v, %v; want %d", got, err, v)
		}
		f.Close()
	}
	// A write that fails leaves the old file and nothing else.
	if err := Write(path, []Named{{"t", U8, nil, nil}}, nil); err == nil {
		t.Error("no error for missing data")
	}
	if err := replace(path, func(io.Writer) error { return errors.New("disk on fire") }); err == nil {
		t.Error("no error from a failed write")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "x.safetensors" {
		t.Errorf("folder holds %v, %v", entries, err)
	}
	if err := Write(filepath.Join(dir, "absent", "x"), nil, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("write into a folder that is not there: %v", err)
	}
}

func TestWriteRefuses(t *testing.T) {
	one := []byte{1}
	for _, c := range []struct {
		err     string
		tensors []Named
		meta    map[string]string
	}{
		{"given twice", []Named{{"a", U8, nil, one}, {"a", I8, nil, one}}, nil},
		{"__metadata__", []Named{{"__metadata__", U8, nil, one}}, nil},
		{"unknown dtype", []Named{{"a", "F31", nil, one}}, nil},
		{"takes 4", []Named{{"a", F32, nil, one}}, nil},
		{"negative dimension", []Named{{"a", U8, []int{-1}, nil}}, nil},
		{"overflows", []Named{{"a", U8, []int{math.MaxInt, math.MaxInt}, nil}}, nil},
		{"not UTF-8", []Named{{"\xff", U8, nil, one}}, nil},
		{"not UTF-8", nil, map[string]string{"a": "\xff"}},
	} {
		path := filepath.Join(t.TempDir(), "x")
		err := Write(path, c.tensors, c.meta)
		if err == nil || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), path) {
			t.Errorf("%v: error %v does not say %q and the path", c.tensors, err, c.err)
		}
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%v: a file was written", c.tensors)
		}
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	cut := filepath.Join(dir, "cut.safetensors")
	if err := os.WriteFile(cut, file(good, 20), 0o666); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(dir, "empty.safetensors")
	if err := os.WriteFile(empty, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		cut:                         "12 bytes are missing",
		empty:                       "too short",
		dir:                         "not a regular file",
		filepath.Join(dir, "a\x00"): "invalid",
		filepath.Join(dir, "none"):  "no such file",
	} {
		_, err := Open(path)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("Open(%q): %v; want %q and the path", path, err, want)
		}
	}
}

func ExampleOpen() {
	f, err := Open(filepath.Join("testdata", "mixed.safetensors"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()
	t, _ := f.Lookup("f32")
	fmt.Println(t.DType, t.Shape, t.Size)
	// Output: F32 [2 3] 24
}

func ExampleWrite() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "logits.safetensors")
	err = Write(path, []Named{{Name: "position", DType: I32, Shape: []int{1}, Data: []byte{7, 0, 0, 0}}}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	f, err := Open(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()
	data, err := f.Bytes("position")
	fmt.Println(data, err)
	// Output: [7 0 0 0] <nil>
}

// BenchmarkParse reads the header of a checkpoint of 20,000 tensors.
func BenchmarkParse(b *testing.B) {
	var named []Named
	for i := range 20000 {
		named = append(named, Named{fmt.Sprintf("model.language_model.layers.%d.mlp.experts.%d.gate_proj.weight", i/256, i%256), BF16, []int{0, 2048}, nil})
	}
	_, header, err := encode(named, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(header)))
	for b.Loop() {
		if _, err := Parse(header, int64(len(header))); err != nil {
			b.Fatal(err)
		}
	}
}
