package npy

import (
	"archive/zip"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"anemone/mil"
)

var numpyNames = map[string]mil.DType{
	"bool": mil.Bool, "int8": mil.Int8, "int16": mil.Int16, "int32": mil.Int32, "int64": mil.Int64,
	"uint8": mil.UInt8, "uint16": mil.UInt16, "uint32": mil.UInt32, "uint64": mil.UInt64,
	"float16": mil.Float16, "float32": mil.Float32, "float64": mil.Float64,
}

// wanted is what NumPy says that its arrays hold; see testdata/make.py.
func wanted(t testing.TB) map[string]Array {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "want.json"))
	if err != nil {
		t.Fatal(err)
	}
	var raw map[string][3]any
	if err := json.Unmarshal(b, &raw); err != nil {
		t.Fatal(err)
	}
	want := map[string]Array{}
	for k, v := range raw {
		a := Array{DType: numpyNames[v[0].(string)]}
		for _, d := range v[1].([]any) {
			a.Shape = append(a.Shape, int(d.(float64)))
		}
		if a.Data, err = hex.DecodeString(v[2].(string)); err != nil {
			t.Fatal(err)
		}
		want[k] = a
	}
	return want
}

// entriesOf returns the bytes of the .npy files in an archive, in its order.
func entriesOf(t testing.TB, path string) (names []string, files map[string][]byte) {
	t.Helper()
	z, err := zip.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	files = map[string][]byte{}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, strings.TrimSuffix(f.Name, ".npy"))
		files[strings.TrimSuffix(f.Name, ".npy")] = b
	}
	return names, files
}

func TestReadNumPy(t *testing.T) {
	want := wanted(t)
	for _, name := range []string{"stored.npz", "deflated.npz"} {
		z, err := OpenZip(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		defer z.Close()
		if len(z.Entries()) != len(want) {
			t.Errorf("%s: %d arrays, want %d", name, len(z.Entries()), len(want))
		}
		for k, w := range want {
			e := z.Entry(k)
			if e == nil {
				t.Errorf("%s: no array %q", name, k)
				continue
			}
			a, err := e.Read()
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if a.DType != w.DType || !slices.Equal(a.Shape, w.Shape) || !bytes.Equal(a.Data, w.Data) {
				t.Errorf("%s: %q is %v %v %x, want %v %v %x", name, k, a.DType, a.Shape, a.Data, w.DType, w.Shape, w.Data)
			}
			if e.Header.Fortran != strings.Contains(k, "fortran") || e.Header.BigEndian != strings.HasPrefix(k, "big") {
				t.Errorf("%q: %+v", k, e.Header)
			}
		}
		if z.Entry("absent") != nil {
			t.Error("found an array that is not there")
		}
	}
}

func TestVersions(t *testing.T) {
	want := wanted(t)["i4"]
	for _, v := range []string{"v1.npy", "v2.npy", "v3.npy"} {
		b, err := os.ReadFile(filepath.Join("testdata", v))
		if err != nil {
			t.Fatal(err)
		}
		a, err := Decode(b)
		if err != nil || a.DType != want.DType || !slices.Equal(a.Shape, want.Shape) || !bytes.Equal(a.Data, want.Data) {
			t.Errorf("%s: %+v, %v", v, a, err)
		}
	}
}

// TestWriteNumPy writes the arrays again: .npy files must have NumPy's bytes.
func TestWriteNumPy(t *testing.T) {
	want := wanted(t)
	order, files := entriesOf(t, filepath.Join("testdata", "stored.npz"))
	var named []Named
	for _, k := range order {
		a := want[k]
		named = append(named, Named{k, a})
		var b bytes.Buffer
		if err := Encode(&b, &a); err != nil {
			t.Errorf("%q: %v", k, err)
		}
		if canonical := !strings.Contains(k, "fortran") && !strings.Contains(k, "big"); canonical && !bytes.Equal(b.Bytes(), files[k]) {
			t.Errorf("%q: wrote\n%q, NumPy writes\n%q", k, b.Bytes(), files[k])
		}
		if back, err := Decode(b.Bytes()); err != nil || back.DType != a.DType || !slices.Equal(back.Shape, a.Shape) || !bytes.Equal(back.Data, a.Data) {
			t.Errorf("%q: read back %+v, %v", k, back, err)
		}
	}
	path := filepath.Join(t.TempDir(), "x.npz")
	var b bytes.Buffer
	if err := WriteZip(&b, named); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	// The standard library's reader compares the checksums.
	back, ours := entriesOf(t, path)
	if !slices.Equal(back, order) {
		t.Errorf("entries %q, want %q", back, order)
	}
	for k := range want {
		if a, err := Decode(ours[k]); err != nil || !bytes.Equal(a.Data, want[k].Data) {
			t.Errorf("%q: %v, %v", k, a, err)
		}
	}
	z, err := OpenZip(path)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	for _, e := range z.Entries() {
		if a, err := e.Read(); err != nil || !bytes.Equal(a.Data, want[e.Name].Data) {
			t.Errorf("%q: %v, %v", e.Name, a, err)
		}
	}
	var again bytes.Buffer
	if err := WriteZip(&again, named); err != nil || !bytes.Equal(again.Bytes(), b.Bytes()) {
		t.Errorf("two archives of the same arrays differ (%v)", err)
	}
}

func TestRefused(t *testing.T) {
	z, err := OpenZip(filepath.Join("testdata", "refused.npz"))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	for name, want := range map[string]string{
		"text": "strings", "bytes": "strings", "complex": "complex numbers", "object": "never loaded", "date": "dates",
		"record": "records", "void": "bfloat16", "long": "wide floating-point",
	} {
		_, err := z.Entry(name).Read()
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v does not say %q", name, err, want)
		}
	}
	if a, err := z.Entry("fine").Read(); err != nil || hex.EncodeToString(a.Data) != "0100000002000000" {
		t.Errorf("an array beside unreadable ones: %v, %v", a, err)
	}
	if z.Entry("readme.txt") != nil || z.Entry("readme") != nil {
		t.Error("a text counts as array")
	}
}

// npy1 makes a file of version 1.0.
func npy1(header, data string) []byte {
	return []byte(magic + "\x01\x00" + string([]byte{byte(len(header)), byte(len(header) >> 8)}) + header + data)
}

func TestDecodeErrors(t *testing.T) {
	for _, c := range []struct {
		err string
		b   []byte
	}{
		{"ends inside the header", nil},
		{"ends inside the header", []byte(magic)},
		{"ends inside the header", []byte(magic + "\x01\x00\xff\x00{")},
		{"ends inside the header", []byte(magic + "\x02\x00\x04\x00")},
		{"begins with \"PK\\x03\\x04..\"", []byte("PK\x03\x04........")},
		{"version 4.0 is unknown", []byte(magic + "\x04\x00\x00\x00")},
		{"version 1.7 is unknown", []byte(magic + "\x01\x07\x00\x00")},
		{"header of 4294967295 bytes exceeds", []byte(magic + "\x02\x00\xff\xff\xff\xff")},
		{"header of 65535 bytes exceeds", []byte(magic + "\x01\x00\xff\xff")},
		{"ends where '{' should be", npy1("", "")},
		{"no key \"descr\"", npy1("{}", "")},
		{"no key \"shape\"", npy1("{'descr': '<f4', 'fortran_order': False}", "")},
		{"occurs twice", npy1("{'descr': '<f4', 'descr': '<f4'}", "")},
		{"unknown key", npy1("{'order': 'C'}", "")},
		{"want True or False", npy1("{'fortran_order': 1}", "")},
		{"want a string", npy1("{descr: 1}", "")},
		{"ends inside a string", npy1("{'descr", "")},
		{"backslashes", npy1(`{'\x64escr': '<f4'}`, "")},
		{"want ':'", npy1("{'descr' '<f4'}", "")},
		{"want a dimension", npy1("{'shape': (-1,)}", "")},
		{"want a dimension", npy1("{'shape': (,)}", "")},
		{"want a tuple", npy1("{'shape': (3)}", "")},
		{"want '('", npy1("{'shape': [3]}", "")},
		{"want ')'", npy1("{'shape': (3, 4 5)}", "")},
		{"dimension is too large", npy1("{'shape': (9223372036854775808,)}", "")},
		{"more than 64 dimensions", npy1("{'shape': ("+strings.Repeat("1,", 65)+")}", "")},
		{"data after the dictionary", npy1("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x", "")},
		{"is too large", npy1("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4)}", "")},
		{"is too large", npy1("{'descr': '<f8', 'fortran_order': False, 'shape': (4611686018427387904,)}", "")},
		{"but only 3 follow", npy1("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", "abc")},
		{"but only 0 follow", npy1("{'descr': '<f4', 'fortran_order': True, 'shape': (1000000000000,)}", "")},
		{"1 bytes follow", npy1("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", "abcde")},
		{"unknown type", npy1("{'descr': '', 'fortran_order': False, 'shape': (1,)}", "")},
		{"unknown type", npy1("{'descr': '<q4', 'fortran_order': False, 'shape': (1,)}", "")},
		{"type \"<b1x\" is not supported", npy1("{'descr': '<b1x', 'fortran_order': False, 'shape': (1,)}", "")},
	} {
		_, err := Decode(c.b)
		if err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q: error %v does not say %q", c.b, err, c.err)
		}
	}
}

// TestDecodeSpellings reads headers that NumPy would read too.
func TestDecodeSpellings(t *testing.T) {
	for _, h := range []string{
		"{'descr': '<i2', 'fortran_order': False, 'shape': (2,), }   \n",
		"{\"shape\":(2,),\"descr\":\"<i2\",\"fortran_order\":True}",
		"{ 'shape' : ( 2L , 1L ) , 'descr' : 'i2' , 'fortran_order' : False , }\x00",
		"{'descr': '=i2', 'fortran_order': False, 'shape': (1, 2)}",
	} {
		a, err := Decode(npy1(h, "\x01\x00\x02\x00"))
		if err != nil || a.DType != mil.Int16 || string(a.Data) != "\x01\x00\x02\x00" {
			t.Errorf("%q: %+v, %v", h, a, err)
		}
	}
}

func TestEncodeErrors(t *testing.T) {
	for _, c := range []struct {
		err string
		a   Array
	}{
		{"type bf16 cannot", Array{mil.BFloat16, []int{1}, make([]byte, 2)}},
		{"type int4 cannot", Array{mil.Int4, []int{2}, make([]byte, 1)}},
		{"has 3 bytes", Array{mil.Float32, []int{1}, make([]byte, 3)}},
		{"has 0 bytes", Array{mil.Float32, []int{-1}, nil}},
		{"has 0 bytes", Array{mil.Float32, []int{math.MaxInt, 2}, nil}},
		{"65 dimensions", Array{mil.Int8, make([]int, 65), nil}},
	} {
		if err := Encode(io.Discard, &c.a); err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%+v: error %v does not say %q", c.a, err, c.err)
		}
		if err := WriteZip(io.Discard, []Named{{"x", c.a}}); err == nil || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), `"x"`) {
			t.Errorf("archive of %+v: error %v does not say %q", c.a, err, c.err)
		}
	}
	one := Array{mil.Int8, nil, []byte{1}}
	if err := WriteZip(io.Discard, []Named{{"x", one}, {"x", one}}); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("a name given twice: %v", err)
	}
}

// archive makes a ZIP file of entries, as given.
func archive(t testing.TB, method uint16, names []string, data ...[]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i, n := range names {
		w, err := z.CreateHeader(&zip.FileHeader{Name: n, Method: method})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestArchiveErrors(t *testing.T) {
	good := npy1("{'descr': '<i2', 'fortran_order': False, 'shape': (2,)}", "\x01\x00\x02\x00")
	open := func(b []byte) (*Archive, error) { return NewArchive(bytes.NewReader(b), int64(len(b))) }
	if _, err := open([]byte("nothing of the kind")); err == nil || !strings.Contains(err.Error(), "not a .npz file") {
		t.Errorf("no archive: %v", err)
	}
	if _, err := open(archive(t, zip.Store, []string{"a.npy", "a.npy"}, good, good)); err == nil || !strings.Contains(err.Error(), `array "a" occurs twice`) {
		t.Errorf("a name twice: %v", err)
	}
	if _, err := OpenZip(t.TempDir()); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a folder: %v", err)
	}
	if _, err := OpenZip(filepath.Join(t.TempDir(), "absent")); !os.IsNotExist(err) {
		t.Errorf("no file: %v", err)
	}
	// Entries that are wrong do not keep others from being read.
	for _, c := range []struct {
		err string
		b   []byte
	}{
		{"ends inside the header", nil},
		{"take 4 bytes, but the entry has 3", good[:len(good)-1]},
		{"take 4 bytes, but the entry has 5", append(slices.Clone(good), 0)},
		{"is too large", npy1("{'descr': '<f8', 'fortran_order': False, 'shape': (4611686018427387904,)}", "")},
		{"take 8000000000 bytes, but the entry has 0", npy1("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000,)}", "")},
	} {
		z, err := open(archive(t, zip.Deflate, []string{"bad.npy", "../good.npy"}, c.b, good))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := z.Entry("bad").Read(); err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("error %v does not say %q", err, c.err)
		}
		if a, err := z.Entry("../good").Read(); err != nil || string(a.Data) != "\x01\x00\x02\x00" {
			t.Errorf("the good one: %v, %v", a, err)
		}
		if err := z.Close(); err != nil {
			t.Error(err)
		}
	}
	// A flipped bit shows in the checksum.
	b := archive(t, zip.Store, []string{"a.npy"}, good)
	b[bytes.Index(b, good)+len(good)-1] ^= 1
	z, err := open(b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := z.Entry("a").Read(); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("a flipped bit: %v", err)
	}
	// An entry that claims a terabyte costs nothing.
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	head := npy1("{'descr': '|i1', 'fortran_order': False, 'shape': (1000000000000,)}", "")
	r, err := w.CreateRaw(&zip.FileHeader{Name: "a.npy", Method: zip.Deflate, UncompressedSize64: uint64(1e12) + uint64(len(head)), CompressedSize64: uint64(len(head) + 5)})
	if err != nil {
		t.Fatal(err)
	}
	r.Write(append([]byte{0, byte(len(head)), 0, ^byte(len(head)), 255}, head...)) // a stored block, not the last
	w.Close()
	if z, err = open(buf.Bytes()); err != nil {
		t.Fatal(err)
	}
	allocated := testing.AllocsPerRun(1, func() {
		if _, err := z.Entry("a").Read(); err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("a claim of a terabyte: %v", err)
		}
	})
	if allocated > 1000 {
		t.Errorf("%v allocations", allocated)
	}
	if e := z.Entry("a"); e.Err != nil || e.Header.Shape[0] != 1e12 {
		t.Errorf("%+v", e)
	}
}

func FuzzDecode(f *testing.F) {
	_, files := entriesOf(f, filepath.Join("testdata", "stored.npz"))
	_, refused := entriesOf(f, filepath.Join("testdata", "refused.npz"))
	for _, m := range []map[string][]byte{files, refused} {
		for _, b := range m {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := Decode(b)
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := Encode(&out, a); err != nil {
			t.Fatalf("%+v cannot be written: %v", a, err)
		}
		back, err := Decode(out.Bytes())
		if err != nil || back.DType != a.DType || !slices.Equal(back.Shape, a.Shape) || !bytes.Equal(back.Data, a.Data) {
			t.Fatalf("%+v read back as %+v, %v", a, back, err)
		}
	})
}

func FuzzArchive(f *testing.F) {
	for _, name := range []string{"stored.npz", "deflated.npz", "refused.npz"} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		z, err := NewArchive(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		for _, e := range z.Entries() {
			if e.Err == nil && e.size > 1<<24 {
				continue // as a caller would
			}
			a, err := e.Read()
			if err == nil && a.Check() != nil {
				t.Fatalf("%q: %v", e.Name, a.Check())
			}
		}
	})
}

func ExampleOpenZip() {
	z, err := OpenZip(filepath.Join("testdata", "deflated.npz"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer z.Close()
	e := z.Entry("i4")
	fmt.Println(e.Header.DType, e.Header.Shape)
	a, err := e.Read()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(a.Data[:8])
	// Output:
	// int32 [2 3]
	// [253 255 255 255 254 255 255 255]
}

func ExampleEncode() {
	var b bytes.Buffer
	if err := Encode(&b, &Array{DType: mil.Int16, Shape: []int{2}, Data: []byte{1, 0, 2, 0}}); err != nil {
		fmt.Println(err)
		return
	}
	a, err := Decode(b.Bytes())
	fmt.Println(a.DType, a.Shape, a.Data, err)
	// Output: int16 [2] [1 0 2 0] <nil>
}
