package blob

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"anemone/internal/testutil"
	"anemone/mil"
)

func mustWeight(t testing.TB, b []byte, d mil.DType, shape ...int) mil.Weight {
	t.Helper()
	w, err := mil.NewWeight(mil.TensorOf(d, shape...), b)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func mustPlan(t testing.TB, ws ...mil.Weight) *Plan {
	t.Helper()
	p := &Plan{}
	for i, w := range ws {
		if _, err := p.Add(fmt.Sprintf("w%d", i), w); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func write(t testing.TB, p *Plan) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := p.Write(context.Background(), &b, nil); err != nil {
		t.Fatal(err)
	}
	if int64(b.Len()) != p.Size() {
		t.Fatalf("wrote %d bytes, plan says %d", b.Len(), p.Size())
	}
	return b.Bytes()
}

// golden is a file of two blobs, written out by hand from the format's
// description: three fp16 values, and five 3-bit values (15 bits, so one bit
// of the second byte is unused).
var golden = fromHex(`
	02000000 02000000 0000000000000000 00000000000000000000000000000000
	0000000000000000000000000000000000000000000000000000000000000000

	efbeadde 01000000 0600000000000000 8000000000000000 0000000000000000
	0000000000000000000000000000000000000000000000000000000000000000

	003c 00c0 ff7b 0000000000000000000000000000000000000000000000000000
	0000000000000000000000000000000000000000000000000000000000000000

	efbeadde 0c000000 0200000000000000 0001000000000000 0100000000000000
	0000000000000000000000000000000000000000000000000000000000000000

	d15a`)

func fromHex(s string) []byte {
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		panic(err)
	}
	return b
}

// goldenWeights are the blobs of golden: 1, -2, 65504, and 1 2 3 5 5 (bits
// 001 010 011 101 101 from the lowest: 1101_0001 and 0101_1010).
func goldenWeights(t testing.TB) []mil.Weight {
	return []mil.Weight{
		mustWeight(t, []byte{0x00, 0x3c, 0x00, 0xc0, 0xff, 0x7b}, mil.Float16, 3),
		mustWeight(t, []byte{0xd1, 0x5a}, mil.UInt3, 5),
	}
}

func TestGolden(t *testing.T) {
	if n := len(golden); n != 258 {
		t.Fatalf("golden has %d bytes", n)
	}
	ws := goldenWeights(t)
	p := mustPlan(t, ws[0], ws[1], ws[0])
	if got := write(t, p); !bytes.Equal(got, golden) {
		t.Errorf("wrote\n%s\nwant\n%s", hex.Dump(got), hex.Dump(golden))
	}
	for i, want := range []uint64{64, 192} {
		if off, ok := p.Offset(ws[i]); !ok || off != want {
			t.Errorf("offset of blob %d is %d, want %d", i, off, want)
		}
		if r, name := p.Record(i); r.Offset != want || name != fmt.Sprintf("w%d", i) {
			t.Errorf("Record(%d) = %+v, %q", i, r, name)
		}
	}
	if p.Len() != 2 {
		t.Errorf("%d blobs, want 2: the third is the first again", p.Len())
	}

	r, err := NewReader(golden)
	if err != nil {
		t.Fatal(err)
	}
	var recs []Record
	for rec, err := range r.Records() {
		if err != nil {
			t.Fatal(err)
		}
		recs = append(recs, rec)
	}
	want := []Record{{64, 1, 6, 128, 0}, {192, 12, 2, 256, 1}}
	if !slices.Equal(recs, want) {
		t.Errorf("records %+v, want %+v", recs, want)
	}
	for i, w := range ws {
		got, err := r.Weight(want[i].Offset, w.Type())
		if err != nil {
			t.Fatal(err)
		}
		b, err := mil.WeightBytes(got)
		wb, _ := mil.WeightBytes(w)
		if err != nil || !bytes.Equal(b, wb) || !got.Type().Equal(w.Type()) {
			t.Errorf("blob %d is %x of type %v (%v), want %x of type %v", i, b, got.Type(), err, wb, w.Type())
		}
		if &b[0] != &golden[want[i].Data] {
			t.Errorf("blob %d was copied", i)
		}
		var copied bytes.Buffer
		if n, err := got.WriteTo(&copied); err != nil || n != int64(len(wb)) || !bytes.Equal(copied.Bytes(), wb) {
			t.Errorf("WriteTo gave %x (%d bytes, %v), want %x", copied.Bytes(), n, err, wb)
		}
	}
}

func TestEmptyPlan(t *testing.T) {
	p := &Plan{}
	b := write(t, p)
	if want := append([]byte{0, 0, 0, 0, 2}, make([]byte, 59)...); !bytes.Equal(b, want) {
		t.Errorf("empty file is %x, want %x", b, want)
	}
	r, err := NewReader(b)
	if err != nil || r.Len() != 0 {
		t.Errorf("reader of an empty file: %v, %d blobs", err, r.Len())
	}
	for range r.Records() {
		t.Error("an empty file has a record")
	}
}

// TestEveryType writes one blob of every storable type and checks code, size
// and unused bits against the numbers of the format, worked out by hand for
// 5 elements.
func TestEveryType(t *testing.T) {
	cases := []struct {
		d            mil.DType
		code         Code
		size, unused uint64
	}{
		{mil.Float16, 1, 10, 0}, {mil.Float32, 2, 20, 0}, {mil.UInt8, 3, 5, 0}, {mil.Int8, 4, 5, 0},
		{mil.BFloat16, 5, 10, 0}, {mil.Int16, 6, 10, 0}, {mil.UInt16, 7, 10, 0}, {mil.Int4, 8, 3, 4},
		{mil.UInt1, 9, 1, 3}, {mil.UInt2, 10, 2, 6}, {mil.UInt4, 11, 3, 4}, {mil.UInt3, 12, 2, 1},
		{mil.UInt6, 13, 4, 2}, {mil.Int32, 14, 20, 0}, {mil.UInt32, 15, 20, 0},
	}
	if len(cases) != len(codes) {
		t.Errorf("%d cases for %d codes", len(cases), len(codes))
	}
	for _, c := range cases {
		t.Run(c.d.String(), func(t *testing.T) {
			w := mustWeight(t, bytes.Repeat([]byte{0xa5}, int(c.size)), c.d, 5)
			b := write(t, mustPlan(t, w))
			r, err := NewReader(b)
			if err != nil {
				t.Fatal(err)
			}
			rec, err := r.Record(64)
			if want := (Record{64, c.code, c.size, 128, c.unused}); err != nil || rec != want {
				t.Errorf("record %+v (%v), want %+v", rec, err, want)
			}
			if code, ok := CodeOf(c.d); !ok || code != c.code || code.DType() != c.d || code.String() != c.d.String() {
				t.Errorf("CodeOf = %d, %v; back %v", code, ok, code.DType())
			}
			if _, err := r.Weight(64, mil.TensorOf(c.d, 5)); err != nil {
				t.Error(err)
			}
		})
	}
	for _, d := range []mil.DType{mil.Bool, mil.String, mil.Float64, mil.Int64, mil.UInt64} {
		if _, err := new(Plan).Add("x", mil.PromiseWeight(mil.TensorOf(d, 1), nil)); err == nil {
			t.Errorf("%v can be stored", d)
		}
	}
	for c, want := range map[Code]string{16: "fp8e4m3fn", 17: "fp8e5m2", 99: "unknown type code 99"} {
		if c.String() != want || c.DType() != mil.InvalidDType {
			t.Errorf("code %d is %q (%v), want %q", uint32(c), c, c.DType(), want)
		}
	}
}

// TestCorrupt damages the golden file in every field.
func TestCorrupt(t *testing.T) {
	fp16, uint3 := mil.TensorOf(mil.Float16, 3), mil.TensorOf(mil.UInt3, 5)
	set := func(at int, s string) func([]byte) []byte {
		return func(b []byte) []byte { copy(b[at:], fromHex(s)); return b }
	}
	same := func(b []byte) []byte { return b }
	cases := []struct {
		name   string
		damage func([]byte) []byte
		offset uint64
		typ    mil.Type
		want   string // part of the error
	}{
		{"intact", same, 64, fp16, ""},
		{"short file", func(b []byte) []byte { return b[:63] }, 64, fp16, "63 bytes"},
		{"empty file", func(b []byte) []byte { return nil }, 64, fp16, "0 bytes"},
		{"version 1", set(4, "01"), 64, fp16, "version 1"},
		{"count too large", set(0, "05"), 64, fp16, "5 blobs"},
		{"sentinel", set(64, "ee"), 64, fp16, "no record"},
		{"type code of another type", set(68, "02"), 64, fp16, "holds fp32"},
		{"unknown type code", set(68, "63"), 64, fp16, "type code 99"},
		{"size one larger", set(72, "07"), 64, fp16, "holds 7 bytes"},
		{"size beyond the file", set(72, "ff"), 64, fp16, "beyond the end"},
		{"size 2^64-1", set(72, "ffffffffffffffff"), 64, fp16, "beyond the end"},
		{"data offset unaligned", set(80, "81"), 64, fp16, "multiple of 64"},
		{"data offset before the record", set(80, "40"), 64, fp16, "behind the record"},
		{"data offset in the header", set(80, "00"), 64, fp16, "behind the record"},
		{"data offset beyond the file", set(80, "4001"), 64, fp16, "beyond the end"},
		{"data offset near 2^64", set(80, "c0ffffffffffffff"), 64, fp16, "beyond the end"},
		{"data offset and size wrap", set(72, "4000000000000000c0ffffffffffffff"), 64, fp16, "beyond the end"},
		{"unused bits", set(216, "02"), 192, uint3, "unused"},
		{"unused bits of fp16 are not looked at", set(88, "0102030405060708"), 64, fp16, ""},
		{"reserved words are not looked at", set(96, "0102030405060708"), 64, fp16, ""},
		{"data cut", func(b []byte) []byte { return b[:257] }, 192, uint3, "beyond the end"},
		{"record cut", func(b []byte) []byte { return b[:255] }, 192, uint3, "beyond the end"},
		{"offset of the data", same, 128, fp16, "no record"},
		{"offset 0", same, 0, fp16, "behind the header"},
		{"offset unaligned", same, 65, fp16, "multiples of 64"},
		{"offset beyond", same, 1 << 40, fp16, "beyond the end"},
		{"offset near 2^64", same, 1<<64 - 64, fp16, "beyond the end"},
		{"other dtype", same, 64, mil.TensorOf(mil.BFloat16, 3), "holds fp16"},
		{"other size", same, 64, mil.TensorOf(mil.Float16, 4), "holds 6 bytes"},
		{"shape of the same size", same, 64, mil.TensorOf(mil.Float16, 3, 1), ""},
		{"huge shape", same, 64, mil.TensorOf(mil.Float16, 1<<40, 1<<40), "cannot be"},
		{"unknown shape", same, 64, mil.TensorOf(mil.Float16, mil.Dynamic), "cannot be"},
		{"state", same, 64, mil.StateOf(mil.Float16, 3), "cannot be"},
		{"string", same, 64, mil.TensorOf(mil.String, 3), "cannot be"},
		{"no type", same, 64, mil.Type{}, "cannot be"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r, err := NewReader(c.damage(slices.Clone(golden)))
			if err == nil {
				_, err = r.Weight(c.offset, c.typ)
			}
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
	// A walk stops at damage, and says where.
	r, err := NewReader(set(192, "00")(slices.Clone(golden)))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err = range r.Records() {
		n++
	}
	if n != 2 || err == nil || !strings.Contains(err.Error(), "blob 2 of 2: record at offset 192") {
		t.Errorf("walk over a damaged second record: %d steps, %v", n, err)
	}
}

// TestWriteErrors checks that weights that do not keep their promise are
// found, by name.
func TestWriteErrors(t *testing.T) {
	typ := mil.TensorOf(mil.UInt8, 4)
	boom := errors.New("boom")
	for _, c := range []struct {
		name  string
		write func(io.Writer) error
		want  string
	}{
		{"short", func(w io.Writer) error { _, err := w.Write(make([]byte, 3)); return err }, "3 bytes, want 4"},
		{"long", func(w io.Writer) error { _, err := w.Write(make([]byte, 5)); return err }, errTooLong.Error()},
		{"long in two pieces", func(w io.Writer) error {
			w.Write(make([]byte, 4))
			_, err := w.Write(make([]byte, 1))
			return err
		}, errTooLong.Error()},
		{"long and silent", func(w io.Writer) error { w.Write(make([]byte, 5)); return nil }, "0 bytes, want 4"},
		{"fails", func(io.Writer) error { return boom }, "boom"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := mustPlan(t, goldenWeights(t)...)
			if _, err := p.Add("layers.3.up", rawWeight{typ, c.write}.promise()); err != nil {
				t.Fatal(err)
			}
			err := p.Write(context.Background(), io.Discard, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), `"layers.3.up"`) {
				t.Errorf("error %v, want one with %q and the name", err, c.want)
			}
			if c.name == "fails" && !errors.Is(err, boom) {
				t.Errorf("%v does not wrap the weight's error", err)
			}
		})
	}
	if _, err := new(Plan).Add("x", nil); err == nil {
		t.Error("nil weight accepted")
	}
	if _, err := new(Plan).Add("x", mil.PromiseWeight(mil.TensorOf(mil.Int8, mil.Dynamic), nil)); err == nil {
		t.Error("weight of unknown size accepted")
	}
	if _, err := new(Plan).Add("x", mil.PromiseWeight(mil.StateOf(mil.Int8, 1), nil)); err == nil {
		t.Error("state accepted")
	}
	diskFull := errors.New("disk full")
	err := mustPlan(t, goldenWeights(t)...).Write(context.Background(), &failAfter{130, diskFull}, nil)
	if !errors.Is(err, diskFull) {
		t.Errorf("error %v, want the writer's", err)
	}
}

// rawWeight is a weight that does not check itself.
type rawWeight struct {
	t     mil.Type
	write func(io.Writer) error
}

func (w rawWeight) promise() mil.Weight { return &w }

func (w *rawWeight) Type() mil.Type { return w.t }

func (w *rawWeight) WriteTo(dst io.Writer) (int64, error) {
	c := &counter{w: dst}
	err := w.write(c)
	return c.n, err
}

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

type failAfter struct {
	n   int
	err error
}

func (f *failAfter) Write(b []byte) (int, error) {
	if f.n -= len(b); f.n < 0 {
		return 0, f.err
	}
	return len(b), nil
}

func TestOnceAndInOrder(t *testing.T) {
	var calls []string
	p := &Plan{}
	var ws []mil.Weight
	for i := range 5 {
		name := fmt.Sprint(i)
		w := mil.PromiseWeight(mil.TensorOf(mil.UInt8, i), func(w io.Writer) error {
			calls = append(calls, name)
			_, err := w.Write(make([]byte, i))
			return err
		})
		ws = append(ws, w)
		if _, err := p.Add(name, w); err != nil {
			t.Fatal(err)
		}
	}
	for _, w := range ws { // again, and to no effect
		if off, err := p.Add("again", w); err != nil || off == 0 {
			t.Fatal(off, err)
		}
	}
	var seen []string
	last := int64(-1)
	err := p.Write(context.Background(), io.Discard, func(done, total int64, name string) {
		if done <= last && name != "0" || total != p.Size() {
			t.Errorf("progress %d of %d after %d", done, total, last)
		}
		last = done
		if len(seen) == 0 || seen[len(seen)-1] != name {
			seen = append(seen, name)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(calls, ""); got != "01234" {
		t.Errorf("weights were asked in the order %s, want 01234", got)
	}
	if last != p.Size() || !slices.Equal(seen, []string{"", "0", "1", "2", "3", "4"}) {
		t.Errorf("progress ended at %d of %d and named %q", last, p.Size(), seen)
	}
}

func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("interrupted")
	written := 0
	w := mil.PromiseWeight(mil.TensorOf(mil.UInt8, 1000), func(w io.Writer) error {
		for range 1000 {
			if written == 10 {
				cancel(why)
			}
			if _, err := w.Write([]byte{1}); err != nil {
				return err
			}
			written++
		}
		return nil
	})
	if err := mustPlan(t, w).Write(ctx, io.Discard, nil); !errors.Is(err, why) {
		t.Errorf("error %v, want %v", err, why)
	}
	if written != 10 {
		t.Errorf("the weight wrote %d bytes after the stop", written-10)
	}
	if err := mustPlan(t, w).Write(ctx, io.Discard, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("write with a context that is done: %v", err)
	}
}

// zeros is a weight of n zero bytes.
func zeros(n int) mil.Weight {
	return mil.PromiseWeight(mil.TensorOf(mil.UInt8, n), func(w io.Writer) error {
		b := make([]byte, 64<<20)
		for n := n; n > 0; n -= len(b) {
			if _, err := w.Write(b[:min(n, len(b))]); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestBeyond4GiB writes and reads blobs behind the 32-bit limit. The file is
// sparse: all but two pages are a hole, and opening it reads none of it.
func TestBeyond4GiB(t *testing.T) {
	const big = 5 << 30
	last := mustWeight(t, []byte{1, 2, 3, 4}, mil.Int32, 1)
	p := mustPlan(t, zeros(big), last)
	const want = 128 + big // 5 GiB is a multiple of 64
	if off, _ := p.Offset(last); off != want {
		t.Fatalf("second record at %d, want %d", off, uint64(want))
	}
	path := filepath.Join(t.TempDir(), "weight.bin")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Write(context.Background(), &sparseWriter{f: f}, nil); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	w, err := r.Weight(want, last.Type())
	if err != nil {
		t.Fatal(err)
	}
	if b, err := mil.WeightBytes(w); err != nil || !bytes.Equal(b, []byte{1, 2, 3, 4}) {
		t.Errorf("read %x, %v", b, err)
	}
	if r.Size() != p.Size() || r.Len() != 2 {
		t.Errorf("size %d, %d blobs, want %d, 2", r.Size(), r.Len(), p.Size())
	}
	p = &Plan{}
	for i := range 9 { // 2^60 - 64 bytes each
		if _, err = p.Add("huge", mil.PromiseWeight(mil.TensorOf(mil.UInt8, 1<<60-64), nil)); err != nil {
			if i != 7 || !strings.Contains(err.Error(), "2^63") {
				t.Errorf("weight %d: %v", i, err)
			}
			return
		}
	}
	t.Error("a file larger than 2^63 bytes was planned")
}

// sparseWriter leaves holes for large pieces of zeros.
type sparseWriter struct{ f *os.File }

func (s *sparseWriter) Write(b []byte) (int, error) {
	if len(b) >= 1<<20 && b[0] == 0 && b[len(b)-1] == 0 {
		_, err := s.f.Seek(int64(len(b)), io.SeekCurrent)
		return len(b), err
	}
	return s.f.Write(b)
}

func TestClose(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weight.bin")
	if err := os.WriteFile(path, golden, 0o666); err != nil {
		t.Fatal(err)
	}
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	w, err := r.Weight(64, mil.TensorOf(mil.Float16, 3))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := mil.WeightBytes(w); !errors.Is(err, os.ErrClosed) {
		t.Errorf("bytes of a closed file: %v", err)
	}
	if _, err := w.WriteTo(io.Discard); !errors.Is(err, os.ErrClosed) {
		t.Errorf("writing from a closed file: %v", err)
	}
	if _, err := r.Weight(64, mil.TensorOf(mil.Float16, 3)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("weight of a closed file: %v", err)
	}
	if _, err := Open(path + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	if err := os.WriteFile(path, golden[:10], 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "weight.bin") {
		t.Errorf("short file: %v", err)
	}
}

// TestSamples walks files of weights by coremltools and Apple from end to
// end, and writes them again.
func TestSamples(t *testing.T) {
	var files []string
	for _, dir := range []string{"peers", "samples"} {
		root := testutil.Shared(t, dir)
		err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
			if filepath.Base(filepath.Dir(path)) == "weights" {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	read, blobs := 0, 0
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.HasPrefix(b, []byte("version https://git-lfs")) {
			continue
		}
		r, err := Open(path)
		if err != nil {
			t.Error(err)
			continue
		}
		p := &Plan{}
		for rec, err := range r.Records() {
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			d := rec.Code.DType()
			n := (rec.Size*8 - rec.UnusedBits) / uint64(d.Bits())
			if d.Bits() >= 8 {
				n = rec.Size * 8 / uint64(d.Bits())
			}
			w, err := r.Weight(rec.Offset, mil.TensorOf(d, int(n)))
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			if off, err := p.Add("", w); err != nil || off != rec.Offset {
				t.Fatalf("%s: planned at %d (%v), found at %d", path, off, err, rec.Offset)
			}
			blobs++
		}
		got := write(t, p)
		// Files may be padded to a multiple of 64.
		if rest := b[min(len(got), len(b)):]; len(rest) >= align || !bytes.Equal(rest, make([]byte, len(rest))) || !bytes.Equal(got, b[:len(got)]) {
			t.Errorf("%s: written again differs", path)
		}
		read++
		r.Close()
	}
	t.Logf("%d files, %d blobs", read, blobs)
	if read < 40 || blobs < 300 {
		t.Errorf("only %d files with %d blobs were read", read, blobs)
	}
}

// FuzzReader checks that no file makes the reader panic or reach outside.
func FuzzReader(f *testing.F) {
	f.Add(golden, uint64(64), uint8(mil.Float16), 3, 1)
	f.Add(golden, uint64(192), uint8(mil.UInt3), 5, 1)
	f.Add(golden[:200], uint64(192), uint8(mil.UInt3), -1, 1<<62)
	f.Fuzz(func(t *testing.T, b []byte, off uint64, d uint8, n, m int) {
		r, err := NewReader(b)
		if err != nil {
			return
		}
		check := func(off uint64, typ mil.Type) {
			w, err := r.Weight(off, typ)
			if err != nil {
				return
			}
			got, err := mil.WeightBytes(w)
			size, ok := typ.ByteSize()
			if err != nil || !ok || int64(len(got)) != size || cap(got) != len(got) {
				t.Fatalf("weight of type %v has %d bytes (%v)", typ, len(got), err)
			}
		}
		check(off, mil.TensorOf(mil.DType(d), n, m))
		walked := 0
		for rec, err := range r.Records() {
			if walked++; err != nil {
				break
			}
			if rec.Data+rec.Size > uint64(len(b)) {
				t.Fatalf("record %+v leads out of %d bytes", rec, len(b))
			}
			check(rec.Offset, mil.TensorOf(rec.Code.DType(), int(rec.Size)))
		}
		if walked > len(b)/align {
			t.Fatalf("%d records in %d bytes", walked, len(b))
		}
	})
}
