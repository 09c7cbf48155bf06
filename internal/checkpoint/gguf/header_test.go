package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// builder puts a file together, right or wrong.
type builder []byte

func (b *builder) u32(v uint32) *builder { *b = binary.LittleEndian.AppendUint32(*b, v); return b }
func (b *builder) u64(v uint64) *builder { *b = binary.LittleEndian.AppendUint64(*b, v); return b }
func (b *builder) raw(s string) *builder { *b = append(*b, s...); return b }
func (b *builder) str(s string) *builder { return b.u64(uint64(len(s))).raw(s) }

// pad appends zeros up to a multiple of n, then data zeros.
func (b *builder) pad(n, data int) []byte {
	return append(*b, make([]byte, (n-len(*b)%n)%n+data)...)
}

// begin starts a file of version 3.
func begin(tensors, entries uint64) *builder {
	return new(builder).raw("GGUF").u32(3).u64(tensors).u64(entries)
}

// tensor appends what a header says of a tensor; dims begin with the one whose
// elements are neighbours.
func (b *builder) tensor(name string, typ Type, offset uint64, dims ...uint64) *builder {
	b.str(name).u32(uint32(len(dims)))
	for _, d := range dims {
		b.u64(d)
	}
	return b.u32(uint32(typ)).u64(offset)
}

// entry appends a key and the type of its value.
func (b *builder) entry(key string, k kind) *builder { return b.str(key).u32(uint32(k)) }

// array appends a key and the beginning of its array.
func (b *builder) array(key string, elem kind, n uint64) *builder {
	return b.entry(key, kindArray).u32(uint32(elem)).u64(n)
}

const cut = ": it is cut off or damaged"

// The cases of TestParse; err is the whole error, empty when the file is fine.
var cases = []struct {
	name string
	data []byte
	err  string
}{
	// Files that are fine.
	{"nothing in it", *begin(0, 0), ""},
	{"version 2", *new(builder).raw("GGUF").u32(2).u64(0).u64(0), ""},
	{"one tensor", begin(1, 0).tensor("a", F32, 0, 3).pad(32, 12), ""},
	{"scalar", begin(1, 0).tensor("a", F32, 0).pad(32, 4), ""},
	{"four dimensions", begin(1, 0).tensor("a", Q4_0, 0, 32, 2, 3, 1).pad(32, 6*18), ""},
	{"empty tensor", begin(2, 0).tensor("a", F32, 0, 4, 0).tensor("b", F32, 0, 1).pad(32, 4), ""},
	{"out of order", begin(2, 0).tensor("a", F32, 32, 1).tensor("b", F32, 0, 8).pad(32, 36), ""},
	{"gap and tail", begin(2, 0).tensor("a", F32, 64, 1).tensor("b", F32, 0, 1).pad(32, 100), ""},
	{"type without decoder", begin(1, 0).tensor("a", 26, 0, 2).pad(32, 8), ""},
	{"alignment 1", append(*begin(1, 1).entry("general.alignment", kindUint32).u32(1).tensor("a", F32, 0, 1), 0, 0, 0, 0), ""},
	{"large alignment", begin(1, 1).entry("general.alignment", kindUint32).u32(4096).tensor("a", F32, 0, 1).pad(4096, 4), ""},
	{"empty array", *begin(0, 1).array("k", kindString, 0), ""},
	{"empty key and name", begin(1, 1).entry("", kindUint8).raw("x").tensor("", F32, 0).pad(32, 4), ""},
	{"value that is not UTF-8", *begin(0, 1).entry("k", kindString).str("\xff"), ""},
	{"one split", *begin(0, 1).entry("split.count", kindUint16).raw("\x01\x00"), ""},

	// Not this format.
	{"no byte", nil, `begins with "", want "GGUF": this is no GGUF file`},
	{"three bytes", []byte("GGU"), `begins with "GGU", want "GGUF": this is no GGUF file`},
	{"ggjt", []byte("tjgg\x03\x00\x00\x00"), `begins with "tjgg", want "GGUF": this is no GGUF file`},
	{"zip", []byte("PK\x03\x04\x00\x00\x08\x08"), `begins with "PK\x03\x04", want "GGUF": this is no GGUF file`},
	{"git lfs", []byte("version https://git-lfs.github.com/spec/v1\noid sha256:00\n"), "this is a Git LFS pointer, not the file itself: fetch it with `git lfs pull`"},
	{"version 0", *new(builder).raw("GGUF").u32(0), "found version 0 of the format, want 2 or 3"},
	{"version 1", *new(builder).raw("GGUF").u32(1).u32(0).u32(0), "found version 1 of the format, which was in use for some days of August 2023 only; want 2 or 3: convert the model again"},
	{"version 4", *new(builder).raw("GGUF").u32(4), "found version 4 of the format, want 2 or 3"},
	{"big-endian", []byte("GGUF\x00\x00\x00\x03"), "the file is big-endian (version 0x3000000, the bytes reversed); want little-endian: gguf's own gguf_convert_endian.py turns one into the other"},

	// Cut off, at every kind of place.
	{"magic only", []byte("GGUF"), "version of 4 bytes at byte 4 reaches past the end of the file, which has 4" + cut},
	{"no counts", *new(builder).raw("GGUF").u32(3), "number of tensors of 8 bytes at byte 8 reaches past the end of the file, which has 8" + cut},
	{"half the counts", *new(builder).raw("GGUF").u32(3).u64(0), "number of metadata entries of 8 bytes at byte 16 reaches past the end of the file, which has 16" + cut},
	{"entries announced", *begin(0, 1), "1 metadata entries announced, but the file of 24 bytes has room for at most 0" + cut},
	{"many entries", *begin(0, math.MaxUint64).raw(strings.Repeat("x", 40)), "18446744073709551615 metadata entries announced, but the file of 64 bytes has room for at most 3" + cut},
	{"tensors announced", *begin(1, 0), "1 tensors announced, but the file of 24 bytes has room for at most 0" + cut},
	{"many tensors", *begin(1<<63, 0).raw(strings.Repeat("x", 48)), "9223372036854775808 tensors announced, but the file of 72 bytes has room for at most 2" + cut},
	{"cut key", *begin(0, 1).u64(20).raw("general.name"), "metadata entry 1 of 1: key of 20 bytes at byte 32 reaches past the end of the file, which has 44" + cut},
	{"cut type", *begin(0, 1).str("abcd").raw("\x04"), "metadata entry 1 of 1: key \"abcd\": type of the value of 4 bytes at byte 36 reaches past the end of the file, which has 37" + cut},
	{"cut number", *begin(0, 1).entry("k", kindUint64).raw("\x00"), "metadata entry 1 of 1: key \"k\": uint64 of 8 bytes at byte 37 reaches past the end of the file, which has 38" + cut},
	{"cut length", *begin(0, 1).entry("k", kindString).raw("\x00"), "metadata entry 1 of 1: key \"k\": length of the string of 8 bytes at byte 37 reaches past the end of the file, which has 38" + cut},
	{"cut string", *begin(0, 1).entry("k", kindString).u64(3).raw("ab"), "metadata entry 1 of 1: key \"k\": string of 3 bytes at byte 45 reaches past the end of the file, which has 47" + cut},
	{"long string", *begin(0, 1).entry("k", kindString).u64(math.MaxUint64), "metadata entry 1 of 1: key \"k\": string of 18446744073709551615 bytes at byte 45 reaches past the end of the file, which has 45" + cut},
	{"cut element type", *begin(0, 1).entry("k", kindArray).raw("\x00"), "metadata entry 1 of 1: key \"k\": type of the elements of 4 bytes at byte 37 reaches past the end of the file, which has 38" + cut},
	{"cut element count", *begin(0, 1).entry("k", kindArray).u32(0), "metadata entry 1 of 1: key \"k\": number of elements of 8 bytes at byte 41 reaches past the end of the file, which has 41" + cut},
	{"cut array", *begin(0, 1).array("k", kindInt32, 2).u32(1).raw("abc"), "metadata entry 1 of 1: key \"k\": array of 2 int32 at byte 49 reaches past the end of the file, which has 56 bytes" + cut},
	{"array overflows", *begin(0, 1).array("k", kindUint64, 1<<61), "metadata entry 1 of 1: key \"k\": array of 2305843009213693952 uint64 at byte 49 reaches past the end of the file, which has 49 bytes" + cut},
	{"many strings", *begin(0, 1).array("k", kindString, 1<<40).u64(0), "metadata entry 1 of 1: key \"k\": array of 1099511627776 string at byte 49 reaches past the end of the file, which has 57 bytes" + cut},
	{"cut in an array", *begin(0, 1).array("k", kindString, 2).str("a").u64(9).raw("b"), "metadata entry 1 of 1: key \"k\": element 1: string of 9 bytes at byte 66 reaches past the end of the file, which has 67" + cut},
	{"cut name", *begin(1, 0).u64(40).raw("0123456789abcdef"), "tensor 1 of 1: name of 40 bytes at byte 32 reaches past the end of the file, which has 48" + cut},
	{"cut dimensions", *begin(1, 0).str("abcdefgh").u32(2).u64(1), "tensor 1 of 1: \"abcdefgh\": dimension of 8 bytes at byte 52 reaches past the end of the file, which has 52" + cut},
	{"cut tensor type", *begin(1, 0).str("abcdefgh").u32(1).u64(1), "tensor 1 of 1: \"abcdefgh\": type of 4 bytes at byte 52 reaches past the end of the file, which has 52" + cut},
	{"cut offset", *begin(1, 0).str("abcdefgh").u32(1).u64(1).u32(0), "tensor 1 of 1: \"abcdefgh\": offset of 8 bytes at byte 56 reaches past the end of the file, which has 56" + cut},
	{"no data", *begin(1, 0).tensor("a", F32, 0, 3), "tensor \"a\" ends at byte 76, but the file has only 57: it is cut off (19 bytes are missing)"},
	{"data cut", begin(2, 0).tensor("b", F32, 32, 3).tensor("a", F32, 0, 3).pad(32, 43), "tensor \"b\" ends at byte 140, but the file has only 139: it is cut off (1 bytes are missing)"},
	{"empty beyond", begin(1, 0).tensor("a", F32, 64, 0).pad(32, 32), "tensor \"a\" ends at byte 128, but the file has only 96: it is cut off (32 bytes are missing)"},

	// Entries that cannot be.
	{"long key", *begin(0, 1).u64(65536).raw(strings.Repeat("k", 65536)), "metadata entry 1 of 1: key of 65536 bytes at byte 24 exceeds the limit of 65535: the file is damaged"},
	{"bad key", *begin(0, 1).entry("\xff", kindUint8).raw("x"), "metadata entry 1 of 1: key \"\\xff\" at byte 24 is not UTF-8"},
	{"key twice", *begin(0, 2).entry("k", kindUint8).raw("x").entry("k", kindBool).raw("x"), "metadata entry 2 of 2: key \"k\" at byte 38 occurs twice"},
	{"unknown type", *begin(0, 1).entry("k", 13).u64(0), "metadata entry 1 of 1: key \"k\": type of the value at byte 33 is 13, want at most 12: the file is damaged or newer than this program"},
	{"unknown element type", *begin(0, 1).array("k", math.MaxUint32, 0), "metadata entry 1 of 1: key \"k\": type of the elements at byte 37 is 4294967295, want at most 12: the file is damaged or newer than this program"},
	{"array of arrays", *begin(0, 1).array("k", kindArray, 1).u32(0).u64(0), "metadata entry 1 of 1: key \"k\": arrays of arrays are not supported"},
	{"bool 2", *begin(0, 1).entry("k", kindBool).raw("\x02"), "metadata entry 1 of 1: key \"k\": bool at byte 37 is 2, want 0 or 1"},
	{"bool 255 in an array", *begin(0, 1).array("k", kindBool, 3).raw("\x01\xff\x00"), "metadata entry 1 of 1: key \"k\": element 1: bool at byte 50 is 255, want 0 or 1"},
	{"alignment 0", *begin(0, 1).entry("general.alignment", kindUint32).u32(0), "key \"general.alignment\": found 0, want a power of two"},
	{"alignment 48", *begin(0, 1).entry("general.alignment", kindUint32).u32(48), "key \"general.alignment\": found 48, want a power of two"},
	{"alignment of another type", *begin(0, 1).entry("general.alignment", kindUint64).u64(32), "key \"general.alignment\": found uint64, want uint32"},
	{"alignments", *begin(0, 1).array("general.alignment", kindUint32, 1).u32(32), "key \"general.alignment\": found array of 1 uint32, want uint32"},
	{"split", *begin(0, 1).entry("split.count", kindUint16).raw("\x03\x00"), "this is one of 3 files that a model was split into (key \"split.count\"): join them first with `llama-gguf-split --merge FIRST-FILE WHOLE.gguf`"},

	// Tensors that cannot be.
	{"bad name", *begin(1, 0).tensor("\xff", F32, 0, 1), "tensor 1 of 1: name \"\\xff\" at byte 24 is not UTF-8"},
	{"name twice", *begin(2, 0).tensor("a", F32, 0, 1).tensor("a", F32, 32, 1), "tensor 2 of 2: name \"a\" at byte 57 occurs twice"},
	{"five dimensions", *begin(1, 0).tensor("a", F32, 0, 1, 1, 1, 1, 1), "tensor 1 of 1: \"a\": found 5 dimensions, want at most 4"},
	{"a billion dimensions", *begin(1, 0).str("a").u32(1 << 30).u64(0).u64(0), "tensor 1 of 1: \"a\": found 1073741824 dimensions, want at most 4"},
	{"negative dimension", *begin(1, 0).tensor("a", F32, 0, math.MaxUint64), "tensor 1 of 1: \"a\": dimension 18446744073709551615 is too large"},
	{"elements overflow", *begin(1, 0).tensor("a", F32, 0, 1<<32, 1<<32), "tensor 1 of 1: \"a\": its number of elements overflows"},
	{"elements overflow before a zero", *begin(1, 0).tensor("a", F32, 0, 1<<62, 4, 0), "tensor 1 of 1: \"a\": its number of elements overflows"},
	{"size overflows", *begin(1, 0).tensor("a", F32, 0, 1<<61), "tensor 1 of 1: \"a\": F32 of shape [2305843009213693952]: its size overflows"},
	{"size overflows 64 bits", *begin(1, 0).tensor("a", 28, 0, 1<<62), "tensor 1 of 1: \"a\": F64 of shape [4611686018427387904]: its size overflows"},
	{"odd rows", *begin(1, 0).tensor("a", Q4_K, 0, 288, 8), "tensor 1 of 1: \"a\": Q4_K of shape [8 288]: rows of 288 are no whole number of blocks of 256"},
	{"quantized scalar", *begin(1, 0).tensor("a", Q8_0, 0), "tensor 1 of 1: \"a\": Q8_0 of shape []: rows of 1 are no whole number of blocks of 32"},
	{"unknown tensor type", *begin(1, 0).tensor("a", 42, 0, 32), "tensor 1 of 1: \"a\": type 42 is unknown: the file is damaged or newer than this program"},
	{"dropped tensor type", *begin(1, 0).tensor("a", 31, 0, 32), "tensor 1 of 1: \"a\": ggml reads no Q4_0_4_4 from files (any more): convert the model again"},
	{"offset of 2^63", *begin(1, 0).tensor("a", F32, 1<<63, 1), "tensor 1 of 1: \"a\": offset 9223372036854775808 is too large"},
	{"offset overflows", *begin(1, 0).tensor("a", F32, 1<<63-32, 1), "tensor \"a\": offset 9223372036854775776 and size 4 overflow"},
	{"offset and size overflow", *begin(1, 0).tensor("a", F32, 1<<62, 1<<60), "tensor \"a\": offset 4611686018427387904 and size 4611686018427387904 overflow"},
	{"far offset", *begin(1, 0).tensor("a", F32, 1<<40, 1), "tensor \"a\" ends at byte 1099511627844, but the file has only 57: it is cut off (1099511627787 bytes are missing)"},
	{"crooked offset", begin(1, 0).tensor("a", F32, 4, 1).pad(32, 32), "tensor \"a\": offset 4 is no multiple of the alignment, 32"},
	{"crooked for its alignment", begin(1, 1).entry("general.alignment", kindUint32).u32(64).tensor("a", F32, 32, 1).pad(64, 64), "tensor \"a\": offset 32 is no multiple of the alignment, 64"},
	{"overlap", begin(2, 0).tensor("a", F32, 32, 1).tensor("b", F32, 0, 9).pad(32, 64), "tensor \"a\" begins at byte 128, inside tensor \"b\", which ends at 132"},
	{"same place", begin(2, 0).tensor("b", F32, 0, 1).tensor("a", F32, 0, 1).pad(32, 4), "tensor \"a\" begins at byte 96, inside tensor \"b\", which ends at 100"},
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	for _, c := range cases {
		path := filepath.Join(dir, "x.gguf")
		if err := os.WriteFile(path, c.data, 0o666); err != nil {
			t.Fatal(err)
		}
		f, err := Open(path)
		if c.err != "" {
			if want := path + ": " + c.err; err == nil || err.Error() != want {
				t.Errorf("%s:\n got %v\nwant %s", c.name, err, want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		checkFile(t, f)
		f.Close()
	}
}

// TestBounds: files that are nearly all holes, which have the room that their
// headers ask for.
func TestBounds(t *testing.T) {
	data := make([]byte, 1<<29) // of which a few pages are touched
	for _, c := range []struct {
		name  string
		begin []byte
		err   string
	}{
		{"string", *begin(0, 1).entry("k", kindString).u64(1 << 28), `metadata entry 1 of 1: key "k": string of 268435456 bytes at byte 45: headers of more than 268435456 bytes are not supported`},
		{"strings", *begin(0, 1).array("k", kindString, 1<<24+1), `metadata entry 1 of 1: key "k": array of 16777217 string at byte 49: more than 16777216 elements are not supported`},
		{"bools", *begin(0, 1).array("k", kindBool, 1<<28), `metadata entry 1 of 1: key "k": array of 268435456 bool at byte 49: more than 16777216 elements are not supported`},
		{"numbers", *begin(0, 1).array("k", kindUint64, 1<<25), `metadata entry 1 of 1: key "k": array of 33554432 uint64 at byte 49: more than 16777216 elements are not supported`},
		{"a long string in an array", *begin(0, 1).array("k", kindString, 2).u64(1 << 28), `metadata entry 1 of 1: key "k": element 0: string of 268435456 bytes at byte 57: headers of more than 268435456 bytes are not supported`},
	} {
		clear(data[:64])
		copy(data, c.begin)
		if _, err := parse(data); err == nil || err.Error() != c.err {
			t.Errorf("%s:\n got %v\nwant %s", c.name, err, c.err)
		}
	}
	// Names of files are not to fill the screen.
	long := strings.Repeat("k", 60000)
	for name, data := range map[string][]byte{
		"key":            *begin(0, 2).entry(long, kindUint8).raw("x").entry(long, kindUint8).raw("x"),
		"value":          *begin(0, 1).entry(long, 13).u64(0),
		"key not UTF-8":  *begin(0, 1).entry(long+"\xff", kindUint8).raw("x"),
		"name":           *begin(2, 0).tensor(long, F32, 0, 1).tensor(long, F32, 0, 1),
		"type":           *begin(1, 0).tensor(long, 42, 0, 1),
		"crooked offset": *begin(1, 0).tensor(long, F32, 4, 1),
		"no data":        *begin(1, 0).tensor(long, F32, 0, 1),
		"overlap":        begin(2, 0).tensor(long, F32, 32, 1).tensor(long[1:], F32, 0, 9).pad(32, 64),
	} {
		if _, err := parse(data); err == nil || len(err.Error()) > 400 {
			t.Errorf("%s: %.500v", name, err)
		}
	}
}

// TestCut: no beginning of a good file is a good file, and none ends the
// program.
func TestCut(t *testing.T) {
	for _, name := range []string{"meta.gguf", "quants.gguf"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		h, err := parse(data)
		if err != nil {
			t.Fatal(err)
		}
		last := h.tensors[len(h.tensors)-1]
		for n := range last.Offset + last.Size {
			if _, err := parse(data[:n]); err == nil {
				t.Fatalf("%s: the first %d of %d bytes are accepted", name, n, len(data))
			}
		}
	}
}

// checkFile checks what every accepted header promises, and reads everything.
func checkFile(t *testing.T, f *File) {
	t.Helper()
	place := make([]int8, len(f.data))
	for _, info := range f.Tensors() {
		n := int64(1)
		for _, d := range info.Shape {
			n *= int64(d)
		}
		elements, size, ok := info.Type.Block()
		b, err := f.Bytes(info.Name)
		if again, found := f.Lookup(info.Name); err != nil || !found || again.Offset != info.Offset || int64(len(b)) != info.Size || info.Size != n/int64(elements)*int64(size) {
			t.Errorf("%+v: %d bytes, %v; %+v, %v", info, len(b), err, again, found)
		}
		for i := range info.Size {
			if place[info.Offset+i]++; place[info.Offset+i] > 1 {
				t.Fatalf("%+v overlaps another tensor", info)
			}
		}
		if ok && n < 1<<16 {
			info.Type.Dequantize(make([]float32, n), b)
		}
	}
	for _, key := range f.Keys() {
		if !f.Has(key) {
			t.Errorf("key %q is lost", key)
		}
		v, taken := f.header.values[key], 0
		count := func(n int, err error) {
			if err == nil {
				if taken++; n != v.count {
					t.Errorf("key %q: %d elements, want %d", key, n, v.count)
				}
			} else if !strings.HasPrefix(err.Error(), fmt.Sprintf("%s: key %q: wrong type: ", f.path, key)) {
				t.Errorf("key %q: %v", key, err)
			}
		}
		_, err := f.Int(key)
		tooLarge := err != nil && v.kind.integer()
		count(0, err)
		_, err = f.Float(key)
		count(0, err)
		_, err = f.Bool(key)
		count(0, err)
		_, err = f.String(key)
		count(0, err)
		ints, err := f.Ints(key)
		tooLarge = tooLarge || err != nil && v.kind == kindArray && v.elem.integer()
		count(len(ints), err)
		floats, err := f.Floats(key)
		count(len(floats), err)
		bools, err := f.Bools(key)
		count(len(bools), err)
		strs, err := f.Strings(key)
		count(len(strs), err)
		if taken != 1 && !tooLarge {
			t.Errorf("key %q, %s: read as %d types", key, v, taken)
		}
		if n, err := f.Len(key); (err == nil) != (v.kind == kindArray) || n != v.count {
			t.Errorf("key %q, %s: Len %d, %v", key, v, n, err)
		}
	}
}

func FuzzOpen(f *testing.F) {
	for _, c := range cases {
		if len(c.data) < 1000 {
			f.Add(c.data)
		}
	}
	for _, name := range []string{"meta.gguf", "quants.gguf"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := parse(data)
		if err != nil {
			return
		}
		h.checkWhole(data)
		checkFile(t, &File{path: "x", header: h, data: data})
	})
}

// BenchmarkParse opens a file with the vocabulary of Gemma 3 and 1000 tensors.
func BenchmarkParse(b *testing.B) {
	const words, tensors = 262144, 1000
	w := begin(tensors, 3)
	w.array("tokenizer.ggml.tokens", kindString, words)
	for i := range words {
		w.str(fmt.Sprint("▁", i))
	}
	w.array("tokenizer.ggml.scores", kindFloat32, words).raw(strings.Repeat("\x00", 4*words))
	w.array("tokenizer.ggml.token_type", kindInt32, words).raw(strings.Repeat("\x00", 4*words))
	for i := range tensors {
		w.tensor(fmt.Sprintf("blk.%d.ffn_gate.weight", i), F32, 32*uint64(i), 8)
	}
	data := w.pad(32, 32*tensors)
	b.Run("open", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := parse(data); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("strings", func(b *testing.B) {
		b.ReportAllocs()
		h, err := parse(data)
		if err != nil {
			b.Fatal(err)
		}
		f := &File{header: h, data: data}
		for b.Loop() {
			if s, err := f.Strings("tokenizer.ggml.tokens"); err != nil || s[words-1] != "▁262143" {
				b.Fatal(err)
			}
		}
	})
}
