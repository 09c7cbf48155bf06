package gguf

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"anemone/internal/npy"
)

// implemented lists the types that Dequantize has.
func implemented() []Type {
	var types []Type
	for t, l := range layouts {
		if l.decode != nil {
			types = append(types, t)
		}
	}
	slices.Sort(types)
	return types
}

// TestDequantize compares with gguf-py's values, bit for bit: testdata/make.py
// says which blocks there are. Any NaN stands for any other.
func TestDequantize(t *testing.T) {
	f, err := Open(filepath.Join("testdata", "quants.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	golden, err := npy.OpenZip(filepath.Join("testdata", "quants.npz"))
	if err != nil {
		t.Fatal(err)
	}
	defer golden.Close()
	types := implemented()
	if len(types) != 14 || len(f.Tensors()) != len(types) {
		t.Fatalf("%d types, %d tensors, want 14 of each", len(types), len(f.Tensors()))
	}
	for _, typ := range types {
		t.Run(typ.String(), func(t *testing.T) {
			info, ok := f.Lookup(typ.String())
			if !ok || info.Type != typ {
				t.Fatalf("tensor %+v, %v", info, ok)
			}
			src, err := f.Bytes(info.Name)
			if err != nil {
				t.Fatal(err)
			}
			want, err := golden.Entry(info.Name).Read()
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(info.Shape, want.Shape) {
				t.Fatalf("shape %v, want %v", info.Shape, want.Shape)
			}
			n := info.Shape[0] * info.Shape[1]
			got := make([]float32, n+1)
			got[n] = 42
			typ.Dequantize(got[:n], src)
			if got[n] != 42 {
				t.Error("wrote past the end")
			}
			elements, _, _ := typ.Block()
			wrong, finite := 0, 0
			for i, g := range got[:n] {
				w := math.Float32frombits(binary.LittleEndian.Uint32(want.Data[4*i:]))
				if w-w == 0 {
					finite++
				}
				if math.Float32bits(g) != math.Float32bits(w) && (g == g || w == w) {
					if wrong++; wrong <= 5 {
						t.Errorf("block %d, element %d: %v (%#x), want %v (%#x)", i/elements, i%elements, g, math.Float32bits(g), w, math.Float32bits(w))
					}
				}
			}
			if wrong > 5 {
				t.Errorf("%d of %d wrong", wrong, n)
			}
			if finite < n/2 {
				t.Errorf("only %d of %d values say something", finite, n)
			}
			// Blocks are independent of each other: one at a time gives the same.
			one := make([]float32, elements)
			for b := range n / elements {
				typ.Dequantize(one, src[b*len(src)*elements/n:][:len(src)*elements/n])
				for i, g := range one {
					if w := got[b*elements+i]; math.Float32bits(g) != math.Float32bits(w) && g == g {
						t.Fatalf("block %d alone, element %d: %v, want %v", b, i, g, w)
					}
				}
			}
		})
	}
}

// TestDequantizeByHand has blocks whose values are worked out on paper.
func TestDequantizeByHand(t *testing.T) {
	zeros := make([]byte, 16)
	for _, c := range []struct {
		typ  Type
		src  []byte
		want map[int]float32 // of some elements
	}{
		// 0x3800 is 0.5, 0x3c00 is 1, 0x4000 is 2.
		{Q4_0, append([]byte{0x00, 0x38, 0xf0}, zeros[:15]...), map[int]float32{0: -4, 16: 3.5, 1: -4, 31: -4}},
		{Q4_1, append([]byte{0x00, 0x38, 0x00, 0x40, 0xf0}, zeros[:15]...), map[int]float32{0: 2, 16: 9.5, 1: 2}},
		{Q5_0, append([]byte{0x00, 0x3c, 0x01, 0x00, 0x02, 0x00, 0x32}, zeros[:15]...), map[int]float32{0: 2, 16: -13, 1: -16, 17: 0}},
		{Q5_1, append([]byte{0x00, 0x3c, 0x00, 0x40, 0x01, 0x00, 0x02, 0x00, 0x32}, zeros[:15]...), map[int]float32{0: 20, 16: 5, 1: 2, 17: 18}},
		{Q8_0, append([]byte{0x00, 0x40, 0x80, 0x7f, 0x01}, make([]byte, 29)...), map[int]float32{0: -256, 1: 254, 2: 2, 3: 0}},
		{IQ4_NL, append([]byte{0x00, 0x3c, 0xf0}, zeros[:15]...), map[int]float32{0: -127, 16: 113, 1: -127}},
		{F16, []byte{0x00, 0xc0}, map[int]float32{0: -2}},
		{BF16, []byte{0x20, 0xc0}, map[int]float32{0: -2.5}},
		{F32, []byte{0, 0, 0x20, 0xc0}, map[int]float32{0: -2.5}},
	} {
		elements, _, _ := c.typ.Block()
		dst := make([]float32, elements)
		c.typ.Dequantize(dst, c.src)
		for i, w := range c.want {
			if dst[i] != w {
				t.Errorf("%s: element %d is %v, want %v", c.typ, i, dst[i], w)
			}
		}
	}
}

func TestDequantizePanics(t *testing.T) {
	for _, c := range []struct {
		typ      Type
		dst, src int
		want     string
	}{
		{Q4_0, 32, 17, "17 bytes for 32 elements"},
		{Q4_0, 31, 18, "18 bytes for 31 elements"},
		{Q4_0, 64, 18, "18 bytes for 64 elements"},
		{Q4_0, 32, 36, "36 bytes for 32 elements"},
		{23, 256, 136, "IQ4_XS is not implemented"},
		{99, 1, 1, "type 99 is not implemented"},
	} {
		func() {
			defer func() {
				if r := fmt.Sprint(recover()); !strings.Contains(r, c.want) {
					t.Errorf("%s: panic %q does not say %q", c.typ, r, c.want)
				}
			}()
			c.typ.Dequantize(make([]float32, c.dst), make([]byte, c.src))
		}()
	}
}

var model = flag.String("model", "", "GGUF file of which to print all, values as SHA-256, for testdata/judge.py")

// TestPrint prints what testdata/judge.py prints of the same file.
func TestPrint(t *testing.T) {
	if *model == "" {
		t.Skip("wants -model")
	}
	f, err := Open(*model)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for _, key := range f.Keys() {
		var parts []string
		switch v := f.header.values[key]; {
		case v.kind.integer():
			n, err := f.Int(key)
			parts = append(parts, fmt.Sprint(n, err))
		case v.kind == kindFloat32 || v.kind == kindFloat64:
			x, err := f.Float(key)
			parts = append(parts, fmt.Sprintf("%x %v", math.Float64bits(x), err))
		case v.kind == kindBool:
			b, err := f.Bool(key)
			parts = append(parts, fmt.Sprint(b, err))
		case v.kind == kindString:
			s, err := f.String(key)
			parts = append(parts, fmt.Sprint(s, " ", err))
		case v.elem.integer():
			all, err := f.Ints(key)
			for _, n := range all {
				parts = append(parts, fmt.Sprint(n, err))
			}
		case v.elem == kindFloat32 || v.elem == kindFloat64:
			all, err := f.Floats(key)
			for _, x := range all {
				parts = append(parts, fmt.Sprintf("%x %v", math.Float64bits(x), err))
			}
		case v.elem == kindBool:
			all, err := f.Bools(key)
			for _, b := range all {
				parts = append(parts, fmt.Sprint(b, err))
			}
		case v.elem == kindString:
			all, err := f.Strings(key)
			for _, s := range all {
				parts = append(parts, fmt.Sprint(s, " ", err))
			}
		}
		fmt.Fprintf(out, "%s [%d] %x\n", key, len(parts), sha256.Sum256([]byte(strings.Join(parts, "\x00"))))
	}
	for _, info := range f.Tensors() {
		src, err := f.Bytes(info.Name)
		if err != nil {
			t.Fatal(err)
		}
		elements, size, ok := info.Type.Block()
		if !ok {
			t.Fatalf("%s: %s", info.Name, info.Type)
		}
		h := sha256.New()
		dst, b := make([]float32, 4096), make([]byte, 4*4096)
		for len(src) > 0 {
			n := min(4096, len(src)/size*elements)
			info.Type.Dequantize(dst[:n], src[:n/elements*size])
			src = src[n/elements*size:]
			for i, x := range dst[:n] {
				binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(x))
			}
			h.Write(b[:4*n])
		}
		fmt.Fprintf(out, "%s %s %v %x\n", info.Name, info.Type, info.Shape, h.Sum(nil))
	}
}

// BenchmarkDequantize gives the rate of float32 output of one core.
func BenchmarkDequantize(b *testing.B) {
	for _, typ := range implemented() {
		b.Run(typ.String(), func(b *testing.B) {
			const n = 1 << 16
			elements, size, _ := typ.Block()
			src := make([]byte, n/elements*size)
			r := rand.New(rand.NewPCG(1, 2))
			for i := range src {
				src[i] = byte(r.Uint32())
			}
			dst := make([]float32, n)
			b.SetBytes(4 * n)
			for b.Loop() {
				typ.Dequantize(dst, src)
			}
		})
	}
}
