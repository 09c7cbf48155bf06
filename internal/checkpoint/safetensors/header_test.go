package safetensors

import (
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var corpus = flag.String("corpus", "", "folder to write the cases of TestParse to, for testdata/judge.py")

// file puts a header before n bytes of data.
func file(header string, n int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	b = append(b, header...)
	return append(b, make([]byte, n)...)
}

// length replaces the header length of a file.
func length(b []byte, n uint64) []byte {
	binary.LittleEndian.PutUint64(b, n)
	return b
}

const good = `{"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]}}`

// The cases of TestParse. err is a part of the error, empty when the file is
// fine. python is the verdict of the reference implementation, as judge.py
// prints it; where it differs from ours, why says why we do.
var cases = []struct {
	name   string
	data   []byte
	err    string
	python string
	why    string
}{
	// Files that are fine.
	{name: "good", data: file(good, 32), python: "ok"},
	{name: "padded", data: file(good+"   \n\t\r", 32), python: "ok"},
	{name: "reordered", data: file(`{"b":{"data_offsets":[4,8],"dtype":"F32","shape":[1]},"a":{"shape":[1],"dtype":"I32","data_offsets":[0,4]}}`, 8), python: "ok"},
	{name: "no tensors", data: file(`{}`, 0), python: "ok"},
	{name: "metadata only", data: file(`{"__metadata__":{"format":"pt"}}`, 0), python: "ok"},
	{name: "metadata null", data: file(`{"__metadata__":null}`, 0), python: "ok"},
	{name: "scalar", data: file(`{"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}`, 4), python: "ok"},
	{name: "empty tensor", data: file(`{"e":{"dtype":"F32","shape":[0,4],"data_offsets":[0,0]}}`, 0), python: "ok"},
	{name: "empty between", data: file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"e":{"dtype":"U8","shape":[0],"data_offsets":[2,2]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}`, 3), python: "ok"},
	{name: "unknown field", data: file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":[1.5e3,{"y":null},true,"z"]}}`, 1), python: "ok"},
	{name: "escapes", data: file(`{"a\u00fc\ud83d\ude00\n\"\\\/":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1), python: "ok"},
	{name: "half bytes", data: file(`{"a":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}}`, 2), python: "ok"},
	{name: "float 8", data: file(`{"a":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]}}`, 4), python: "ok"},
	{name: "space first", data: file(` {}`, 0), python: "ok"},

	// Too short, too long, not this format.
	{name: "nothing", data: nil, err: "too short", python: "refused"},
	{name: "seven bytes", data: make([]byte, 7), err: "too short", python: "refused"},
	{name: "no header", data: make([]byte, 8), err: "ends where", python: "refused"},
	{name: "header beyond file", data: length(file(good, 32), 1000), err: "cut off or is no safetensors file", python: "refused"},
	{name: "header over limit", data: length(file(good, 32), 100_000_001), err: "exceeds the limit", python: "refused"},
	{name: "header length overflows", data: length(file(good, 32), 1<<64-1), err: "exceeds the limit", python: "refused"},
	{name: "header length overflows with 8", data: length(file(good, 32), 1<<64-8), err: "exceeds the limit", python: "refused"},
	{name: "header cut", data: file(good, 32)[:60], err: "cut off", python: "refused"},
	{name: "data cut", data: file(good, 31), err: "(1 bytes are missing)", python: "refused"},
	{name: "data gone", data: file(good, 0), err: "(32 bytes are missing)", python: "refused"},
	{name: "tail", data: file(good, 33), err: "1 bytes follow the last tensor", python: "refused"},
	{name: "git lfs", data: []byte("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"), err: "Git LFS pointer", python: "refused"},
	{name: "zip", data: []byte("PK\x03\x04\x00\x00\x08\x08\x00\x00\x00\x00\x00\x00"), err: "exceeds the limit", python: "refused"},

	// Not JSON, or not the JSON it should be.
	{name: "array", data: file(`[]`, 0), err: `want '{'`, python: "refused"},
	{name: "cut object", data: file(`{"a":`, 0), err: "header ends", python: "refused"},
	{name: "cut string", data: file(`{"a`, 0), err: "ends inside a string", python: "refused"},
	{name: "cut escape", data: file(`{"a\`, 0), err: "ends inside a string", python: "refused"},
	{name: "cut unicode", data: file(`{"a\u00`, 0), err: "ends inside a string", python: "refused"},
	{name: "bad unicode", data: file(`{"a\u00zz":1}`, 0), err: "bad \\u escape", python: "refused"},
	{name: "bad escape", data: file(`{"a\x":1}`, 0), err: "unknown escape", python: "refused"},
	{name: "lone surrogate", data: file(`{"\ud800":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1), err: "surrogate", python: "refused"},
	{name: "wrong surrogate", data: file(`{"\ud800\u0041":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1), err: "surrogate", python: "refused"},
	{name: "control character", data: file("{\"a\n\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1), err: "control character", python: "refused"},
	{name: "not utf-8", data: file("{\"\xff\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1), err: "not UTF-8", python: "refused"},
	{name: "not utf-8 after escape", data: file("{\"\\n\xff\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1), err: "not UTF-8", python: "refused"},
	{name: "trailing comma", data: file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},}`, 1), err: `want '"'`, python: "refused"},
	{name: "missing comma", data: file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}"b":{}}`, 1), err: `want '}'`, python: "refused"},
	{name: "two objects", data: file(`{}{}`, 0), err: "data after", python: "refused"},
	{name: "zeros after", data: file("{}\x00\x00", 0), err: "data after", python: "refused"},
	{name: "NaN", data: file(`{"a":NaN}`, 0), err: `tensor "a"`, python: "refused"},
	{name: "deep", data: file(`{"a":{"x":`+strings.Repeat("[", 1000)+strings.Repeat("]", 1000)+`}}`, 0), err: "too deep", python: "refused"},
	{name: "bad number in unknown field", data: file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1.}}`, 1), err: "bad number", python: "refused"},
	{name: "metadata number", data: file(`{"__metadata__":{"format":1}}`, 0), err: "__metadata__", python: "refused"},
	{name: "metadata array", data: file(`{"__metadata__":[]}`, 0), err: "__metadata__", python: "refused"},

	// Keys given twice.
	{name: "tensor twice", data: file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1), err: `key "a" occurs twice`, python: "ok", why: "the format forbids it, and which one counts is anyone's guess"},
	{name: "tensor twice by escape", data: file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"\u0061":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1), err: `key "a" occurs twice`, python: "ok", why: "as above"},
	{name: "metadata twice", data: file(`{"__metadata__":{},"__metadata__":{}}`, 0), err: "occurs twice", python: "refused"},
	{name: "metadata key twice", data: file(`{"__metadata__":{"a":"1","a":"2"}}`, 0), err: "occurs twice", python: "ok", why: "as above"},
	{name: "dtype twice", data: file(`{"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1), err: "dtype occurs twice", python: "refused"},

	// Entries.
	{name: "entry null", data: file(`{"a":null}`, 0), err: `tensor "a"`, python: "refused"},
	{name: "no dtype", data: file(`{"a":{"shape":[1],"data_offsets":[0,1]}}`, 1), err: "no dtype", python: "refused"},
	{name: "no shape", data: file(`{"a":{"dtype":"U8","data_offsets":[0,1]}}`, 1), err: "no shape", python: "refused"},
	{name: "no offsets", data: file(`{"a":{"dtype":"U8","shape":[1]}}`, 1), err: "no data_offsets", python: "refused"},
	{name: "odd dtype", data: file(`{"a":{"dtype":"F31","shape":[1],"data_offsets":[0,1]}}`, 1), err: `unknown dtype "F31"`, python: "refused"},
	{name: "dtype lower case", data: file(`{"a":{"dtype":"f32","shape":[1],"data_offsets":[0,4]}}`, 4), err: `unknown dtype "f32"`, python: "refused"},
	{name: "dtype number", data: file(`{"a":{"dtype":1,"shape":[1],"data_offsets":[0,1]}}`, 1), err: "dtype", python: "refused"},
	{name: "negative dimension", data: file(`{"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}}`, 1), err: "unsigned integer", python: "refused"},
	{name: "fraction", data: file(`{"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}}`, 1), err: "without fraction", python: "refused"},
	{name: "exponent", data: file(`{"a":{"dtype":"U8","shape":[1e0],"data_offsets":[0,1]}}`, 1), err: "without fraction", python: "refused"},
	{name: "leading zero", data: file(`{"a":{"dtype":"U8","shape":[01],"data_offsets":[0,1]}}`, 1), err: "leading zero", python: "refused"},
	{name: "shape overflows", data: file(`{"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}}`, 0), err: "overflows", python: "refused"},
	{name: "size overflows", data: file(`{"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}}`, 0), err: "overflows", python: "refused"},
	{name: "dimension over 64 bits", data: file(`{"a":{"dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,0]}}`, 0), err: "overflows", python: "refused"},
	{name: "dimension over int", data: file(`{"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,0]}}`, 0), err: "too large", python: "refused"},
	{name: "odd nibbles", data: file(`{"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}}`, 1), err: "whole number of bytes", python: "refused"},
	{name: "range too small", data: file(`{"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,23]}}`, 23), err: "hold 23 bytes", python: "refused"},
	{name: "range too large", data: file(`{"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,25]}}`, 25), err: "hold 25 bytes", python: "refused"},
	{name: "begin after end", data: file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}}`, 1), err: "after their end", python: "refused"},
	{name: "one offset", data: file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}}`, 1), err: "want a begin and an end", python: "refused"},
	{name: "three offsets", data: file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}}`, 1), err: "more than two", python: "refused"},
	{name: "offsets near the limit", data: file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[9223372036854775806,9223372036854775807]}}`, 1), err: "no file can hold", python: "refused"},
	{name: "negative offset", data: file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[-1,0]}}`, 1), err: "unsigned integer", python: "refused"},

	// Ranges together.
	{name: "overlap", data: file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, 3), err: `inside tensor "a"`, python: "refused"},
	{name: "same range", data: file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`, 2), err: `inside tensor "a"`, python: "refused"},
	{name: "hole", data: file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}`, 3), err: "after a hole that begins at 1", python: "refused"},
	{name: "hole at start", data: file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2), err: "after a hole that begins at 0", python: "refused"},
	{name: "empty inside", data: file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"e":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}}`, 2), err: `inside tensor "a"`, python: "refused"},
	{name: "empty beyond", data: file(`{"e":{"dtype":"U8","shape":[0],"data_offsets":[5,5]}}`, 0), err: "hole", python: "refused"},
}

func TestParse(t *testing.T) {
	for i, c := range cases {
		if *corpus != "" {
			path := filepath.Join(*corpus, fmt.Sprintf("%03d %s.safetensors", i, c.name))
			if err := os.WriteFile(path, c.data, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		h, err := Parse(c.data, int64(len(c.data)))
		switch {
		case c.err == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.err != "" && err == nil:
			t.Errorf("%s: no error, want one with %q", c.name, c.err)
		case c.err != "" && !strings.Contains(err.Error(), c.err):
			t.Errorf("%s: error %q does not say %q", c.name, err, c.err)
		case err == nil:
			checkHeader(t, h, int64(len(c.data)))
		}
		if ok := c.err == ""; ok != (c.python == "ok") && c.why == "" {
			t.Errorf("%s: we differ from the reference implementation without a reason", c.name)
		}
	}
}

// checkHeader checks what every accepted header promises.
func checkHeader(t *testing.T, h *Header, size int64) {
	t.Helper()
	next := h.Size
	for _, info := range h.Tensors {
		n := int64(1)
		for _, d := range info.Shape {
			n *= int64(d)
		}
		if info.Offset != next || info.Size != n*int64(info.DType.Bits())/8 {
			t.Errorf("tensor %q at %d with %d bytes: want %d, and a size that fits %s %v", info.Name, info.Offset, info.Size, next, info.DType, info.Shape)
		}
		next += info.Size
	}
	if next != size {
		t.Errorf("tensors end at %d, the file at %d", next, size)
	}
}

func TestParseValues(t *testing.T) {
	h, err := Parse(file(`{"__metadata__":{"k":"v"},`+good[1:], 32), 8+25+int64(len(good))+32)
	if err != nil {
		t.Fatal(err)
	}
	start := int64(8 + 25 + len(good))
	if got, want := fmt.Sprint(h.Tensors, h.Metadata, h.Size), fmt.Sprintf("[{a F32 [2 3] %d 24} {b BF16 [4] %d 8}] map[k:v] %d", start, start+24, start); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for name, want := range map[string]string{
		`"a\u00fc\ud83d\ude00\n\"\\\/"`: "aü😀\n\"\\/",
		`"\b\f\r\t"`:                    "\b\f\r\t",
		`"plain"`:                       "plain",
		`"\uFFFD"`:                      "\uFFFD",
	} {
		s := scanner{b: []byte(name)}
		if got, err := s.string(); err != nil || got != want {
			t.Errorf("string %s = %q, %v; want %q", name, got, err, want)
		}
	}
}

func TestDType(t *testing.T) {
	for _, c := range []struct {
		d          DType
		bits, size int
	}{{F32, 32, 4}, {BF16, 16, 2}, {I64, 64, 8}, {Bool, 8, 1}, {F4, 4, 0}, {F6E2M3, 6, 0}, {F8E4M3, 8, 1}, {C64, 64, 8}, {"X", 0, 0}} {
		if c.d.Bits() != c.bits || c.d.Size() != c.size {
			t.Errorf("%s: %d bits, %d bytes; want %d, %d", c.d, c.d.Bits(), c.d.Size(), c.bits, c.size)
		}
	}
}

func FuzzOpen(f *testing.F) {
	for _, c := range cases {
		f.Add(c.data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := Parse(data, int64(len(data)))
		if err != nil {
			return
		}
		checkHeader(t, h, int64(len(data)))
		// What was read can be written, and reads the same again.
		var named []Named
		for _, info := range h.Tensors {
			named = append(named, Named{info.Name, info.DType, info.Shape, data[info.Offset : info.Offset+info.Size]})
		}
		order, header, err := encode(named, h.Metadata)
		if err != nil {
			t.Fatalf("accepted but cannot be written: %v", err)
		}
		size := int64(len(header))
		for _, n := range order {
			size += int64(len(n.Data))
		}
		again, err := Parse(header, size)
		if err != nil {
			t.Fatalf("written but not accepted: %v", err)
		}
		if len(again.Tensors) != len(h.Tensors) || len(again.Metadata) != len(h.Metadata) {
			t.Fatalf("%d tensors and %d metadata became %d and %d", len(h.Tensors), len(h.Metadata), len(again.Tensors), len(again.Metadata))
		}
	})
}
