package gguf

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func openMeta(t *testing.T) *File {
	t.Helper()
	f, err := Open(filepath.Join("testdata", "meta.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// TestReference reads a file by gguf-py; testdata/make.py has the values.
func TestReference(t *testing.T) {
	f := openMeta(t)
	if f.Version() != 3 || f.Path() != filepath.Join("testdata", "meta.gguf") {
		t.Errorf("version %d, path %q", f.Version(), f.Path())
	}
	checkFile(t, f)
	get := func(v any, err error) any {
		if err != nil {
			return err
		}
		return v
	}
	of := func(get func(string) any, keys ...string) (all []any) {
		for _, k := range keys {
			all = append(all, get(k))
		}
		return all
	}
	for _, c := range []struct{ got, want any }{
		{of(func(k string) any { return get(f.Int(k)) }, "u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "ключ", "general.alignment"),
			[]any{255, -128, 65535, -32768, 1<<32 - 1, -1 << 31, math.MaxInt64, math.MinInt64, 1, 64}},
		{of(func(k string) any { return get(f.Float(k)) }, "f32", "f64"), []any{float64(float32(1e-6)), 1e-6}},
		{of(func(k string) any { return get(f.Bool(k)) }, "yes", "no"), []any{true, false}},
		{of(func(k string) any { return get(f.String(k)) }, "general.architecture", "text"), []any{"llama", "Zürich\n🜁"}},
		{get(f.Strings("strings")), []string{"<s>", "", "▁a", "\x00"}},
		{of(func(k string) any { return get(f.Ints(k)) }, "ints", "bytes"), []any{[]int{3, -1, 7}, []int{0, 127, 255}}},
		{get(f.Floats("floats")), []float64{0.5, -1000}},
		{get(f.Bools("bools")), []bool{true, false, true}},
		{of(func(k string) any { return get(f.Len(k)) }, "strings", "ints", "bools", "bytes"), []any{4, 3, 3, 3}},
		{f.Keys()[:3], []string{"general.architecture", "general.alignment", "u8"}},
		{len(f.Keys()), 23},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("got %#v, want %#v", c.got, c.want)
		}
	}

	var all []string
	for _, info := range f.Tensors() {
		b, err := f.Bytes(info.Name)
		if err != nil {
			t.Fatal(err)
		}
		if int64(cap(b)) != info.Size {
			t.Errorf("%s: view of %d bytes can grow to %d", info.Name, len(b), cap(b))
		}
		all = append(all, fmt.Sprint(info.Name, " ", info.Type, info.Shape, " ", info.Offset%64, " ", b[:min(len(b), 8)]))
	}
	if want := []string{
		"matrix F32 [2 3] 0 [0 0 0 0 0 0 128 63]",
		"cube F16 [2 3 4] 0 [0 0 0 60 0 64 0 66]",
		"ints I32 [2] 0 [1 0 0 0 254 255 255 255]",
		"one F32 [1] 0 [0 0 224 64]",
	}; !slices.Equal(all, want) {
		t.Errorf("tensors\n%s\nwant\n%s", strings.Join(all, "\n"), strings.Join(want, "\n"))
	}
	if _, ok := f.Lookup("absent"); ok {
		t.Error("found a tensor that is not there")
	}
	if _, err := f.Bytes("absent"); err == nil || err.Error() != f.Path()+`: no tensor "absent"` {
		t.Errorf("Bytes of an absent tensor: %v", err)
	}
}

// TestVersion2: versions 2 and 3 differ in the number only.
func TestVersion2(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "meta.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	data[4] = 2
	path := filepath.Join(t.TempDir(), "v2.gguf")
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if three := openMeta(t); f.Version() != 2 || !slices.Equal(f.Keys(), three.Keys()) || !reflect.DeepEqual(f.Tensors(), three.Tensors()) {
		t.Errorf("version %d, %v, %v", f.Version(), f.Keys(), f.Tensors())
	}
}

// TestWrongKey: a key that is missing, of another type, or too large.
func TestWrongKey(t *testing.T) {
	f := openMeta(t)
	for _, c := range []struct {
		err  error
		is   error
		want string
	}{
		{second(f.Int("absent")), ErrMissing, `key "absent": missing`},
		{second(f.Strings("absent")), ErrMissing, `key "absent": missing`},
		{second(f.Int("f32")), ErrType, `key "f32": wrong type: found float32, want an integer`},
		{second(f.Int("yes")), ErrType, `key "yes": wrong type: found bool, want an integer`},
		{second(f.Int("ints")), ErrType, `key "ints": wrong type: found array of 3 int32, want an integer`},
		{second(f.Int("u64 too large")), ErrType, `key "u64 too large": wrong type: 9223372036854775808 does not fit an int`},
		{second(f.Ints("longs")), ErrType, `key "longs": wrong type: 9223372036854775808 does not fit an int`},
		{second(f.Ints("floats")), ErrType, `key "floats": wrong type: found array of 2 float32, want an array of integers`},
		{second(f.Ints("u8")), ErrType, `key "u8": wrong type: found uint8, want an array of integers`},
		{second(f.Float("i32")), ErrType, `key "i32": wrong type: found int32, want a floating-point number`},
		{second(f.Floats("bools")), ErrType, `key "bools": wrong type: found array of 3 bool, want an array of floating-point numbers`},
		{second(f.Bool("u8")), ErrType, `key "u8": wrong type: found uint8, want a bool`},
		{second(f.Bools("bytes")), ErrType, `key "bytes": wrong type: found array of 3 uint8, want an array of bools`},
		{second(f.String("strings")), ErrType, `key "strings": wrong type: found array of 4 string, want a string`},
		{second(f.Strings("text")), ErrType, `key "text": wrong type: found string, want an array of strings`},
		{second(f.Len("text")), ErrType, `key "text": wrong type: found string, want an array`},
	} {
		if !errors.Is(c.err, c.is) || c.err.Error() != f.Path()+": "+c.want {
			t.Errorf("got  %v\nwant %s: %s", c.err, f.Path(), c.want)
		}
	}
	if f.Has("absent") || !f.Has("text") {
		t.Error("Has is wrong")
	}
}

func second[T any](_ T, err error) error { return err }

func TestClose(t *testing.T) {
	f := openMeta(t)
	text, err := f.Strings("strings")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, err := range []error{second(f.Bytes("matrix")), second(f.Int("u8")), second(f.Strings("strings"))} {
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
	if text[2] != "▁a" {
		t.Errorf("a string changed to %q", text[2])
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]string{
		dir:                         "not a regular file",
		filepath.Join(dir, "a\x00"): "invalid",
		filepath.Join(dir, "none"):  "no such file",
		filepath.Join("testdata", "big-endian.gguf"): "the file is big-endian (version 0x3000000,",
		filepath.Join("testdata", "make.py"):         `begins with "\"\"\"W", want "GGUF"`,
	} {
		_, err := Open(path)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("Open(%q): %v; want %q and the path", path, err, want)
		}
	}
}

func TestIsFile(t *testing.T) {
	short := filepath.Join(t.TempDir(), "short")
	if err := os.WriteFile(short, []byte("GGU"), 0o666); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		filepath.Join("testdata", "meta.gguf"):       true,
		filepath.Join("testdata", "big-endian.gguf"): true, // Open says why not
		filepath.Join("testdata", "make.py"):         false,
		filepath.Join("testdata", "absent"):          false,
		"testdata":                                   false,
		short:                                        false,
	} {
		if got := IsFile(path); got != want {
			t.Errorf("IsFile(%q) = %v", path, got)
		}
	}
}

func TestType(t *testing.T) {
	for _, c := range []struct {
		typ             Type
		name            string
		elements, bytes int
		ok              bool
	}{
		{F32, "F32", 1, 4, true}, {F16, "F16", 1, 2, true}, {BF16, "BF16", 1, 2, true},
		{Q4_0, "Q4_0", 32, 18, true}, {Q4_1, "Q4_1", 32, 20, true}, {Q5_0, "Q5_0", 32, 22, true}, {Q5_1, "Q5_1", 32, 24, true}, {Q8_0, "Q8_0", 32, 34, true},
		{Q2_K, "Q2_K", 256, 84, true}, {Q3_K, "Q3_K", 256, 110, true}, {Q4_K, "Q4_K", 256, 144, true}, {Q5_K, "Q5_K", 256, 176, true}, {Q6_K, "Q6_K", 256, 210, true},
		{IQ4_NL, "IQ4_NL", 32, 18, true},
		{23, "IQ4_XS", 256, 136, false}, {39, "MXFP4", 32, 17, false}, {31, "Q4_0_4_4", 0, 0, false}, {1000, "type 1000", 0, 0, false},
	} {
		elements, bytes, ok := c.typ.Block()
		if c.typ.String() != c.name || elements != c.elements || bytes != c.bytes || ok != c.ok {
			t.Errorf("type %d: %s, %d, %d, %v; want %v", uint32(c.typ), c.typ, elements, bytes, ok, c)
		}
	}
}
