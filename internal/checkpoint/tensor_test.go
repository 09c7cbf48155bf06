package checkpoint

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"anemone/internal/checkpoint/safetensors"
	"anemone/internal/float16"
)

// tensorOf opens a checkpoint with one tensor.
func tensorOf(t testing.TB, dtype safetensors.DType, data []byte) *Tensor {
	t.Helper()
	path := t.TempDir() + "/model.safetensors"
	if err := safetensors.Write(path, []safetensors.Named{{Name: "x", DType: dtype, Shape: []int{len(data) / dtype.Size()}, Data: data}}, nil); err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	info, _ := f.Lookup("x")
	x := tensorIn(f, info)
	return &x
}

func data16(v []uint16) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint16(b, x)
	}
	return b
}

func data32(v []float32) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// TestFloat16Edges has the results of numpy (testdata/values.py), except that
// what numpy makes infinite is clamped.
func TestFloat16Edges(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		value float32
		want  uint16
		loss  Loss
	}{
		{0, 0, Loss{}},
		{float32(math.Copysign(0, -1)), 0x8000, Loss{}},
		{65504, 0x7bff, Loss{}},
		{65519.99, 0x7bff, Loss{}},
		{65520, 0x7bff, Loss{Overflow: 1}},
		{-65520, 0xfbff, Loss{Overflow: 1}},
		{1e9, 0x7bff, Loss{Overflow: 1}},
		{math.MaxFloat32, 0x7bff, Loss{Overflow: 1}},
		{inf, 0x7bff, Loss{Overflow: 1}},
		{-inf, 0xfbff, Loss{Overflow: 1}},
		{nan, 0x7e00, Loss{NaN: 1}},
		{6.103515625e-05, 0x0400, Loss{}},
		{6.0e-05, 0x03ef, Loss{}},
		{0x1p-24, 0x0001, Loss{}},
		{0x1p-25, 0x0000, Loss{Underflow: 1}},
		{-0x1p-25, 0x8000, Loss{Underflow: 1}},
		{0x1p-25 * 1.0000001, 0x0001, Loss{}},
		{1e-30, 0x0000, Loss{Underflow: 1}},
		{math.SmallestNonzeroFloat32, 0x0000, Loss{Underflow: 1}},
		{0.1, 0x2e66, Loss{}},
		{1.0009765625, 0x3c01, Loss{}},
		{1.00048828125, 0x3c00, Loss{}},
	} {
		dst := make([]uint16, 1)
		if loss := tensorOf(t, safetensors.F32, data32([]float32{c.value})).Float16(dst, 0); dst[0] != c.want || loss != c.loss {
			t.Errorf("%v: %#04x, %+v; want %#04x, %+v", c.value, dst[0], loss, c.want, c.loss)
		}
	}
}

// slow converts one value by the definition, through the checked package
// float16.
func slow(f float32, loss *Loss) uint16 {
	h := float16.FromFloat32(f)
	switch {
	case f != f:
		loss.NaN++
	case math.Abs(float64(f)) >= 65520:
		loss.Overflow++
		h = 0x7bff | h&0x8000
	case f != 0 && h&0x7fff == 0:
		loss.Underflow++
	}
	return h
}

// TestConvertAll converts every 16-bit pattern, and float32 values of every
// exponent.
func TestConvertAll(t *testing.T) {
	every := make([]uint16, 1<<16)
	for i := range every {
		every[i] = uint16(i)
	}
	var singles []float32
	r := rand.New(rand.NewPCG(3, 4))
	for exponent := range uint32(256) {
		for range 300 {
			singles = append(singles, math.Float32frombits(r.Uint32()&0x807fffff|exponent<<23))
		}
	}
	for h := range uint16(0x7c00) { // around each fp16 number and each midpoint
		lo, hi := float16.ToFloat32(h), float16.ToFloat32(min(h+1, 0x7bff))
		mid := lo/2 + hi/2
		singles = append(singles, lo, mid, -mid, math.Nextafter32(mid, 0), math.Nextafter32(mid, 1e9))
	}
	for _, c := range []struct {
		name   string
		tensor *Tensor
		value  func(i int) float32
	}{
		{"BF16", tensorOf(t, safetensors.BF16, data16(every)), func(i int) float32 { return float16.BFloat16ToFloat32(uint16(i)) }},
		{"F16", tensorOf(t, safetensors.F16, data16(every)), func(i int) float32 { return float16.ToFloat32(uint16(i)) }},
		{"F32", tensorOf(t, safetensors.F32, data32(singles)), func(i int) float32 { return singles[i] }},
	} {
		n := c.tensor.Len()
		got, half := make([]float32, n), make([]uint16, n)
		c.tensor.Float32(got, 0)
		loss := c.tensor.Float16(half, 0)
		var want Loss
		bad := 0
		for i := range n {
			v := c.value(i)
			h := slow(v, &want)
			if math.Float32bits(got[i]) != math.Float32bits(v) && v == v || v != v && got[i] == got[i] || half[i] != h {
				if bad++; bad < 10 {
					t.Errorf("%s element %d, %v: Float32 %v, Float16 %#04x; want %#04x", c.name, i, v, got[i], half[i], h)
				}
			}
		}
		if loss != want {
			t.Errorf("%s: %v, want %v", c.name, loss, want)
		}
		if loss.NaN == 0 || loss.Overflow == 0 || (loss.Underflow == 0) != (c.name == "F16") {
			t.Errorf("%s: the values did not reach every case: %v", c.name, loss)
		}
		// Parts give what the whole gave.
		part, partHalf := make([]float32, 1000), make([]uint16, 1000)
		for _, offset := range []int{0, 1, 777, n - 1000} {
			c.tensor.Float32(part, offset)
			c.tensor.Float16(partHalf, offset)
			for i := range part {
				if math.Float32bits(part[i]) != math.Float32bits(got[offset+i]) || partHalf[i] != half[offset+i] {
					t.Fatalf("%s: element %d of the part at %d differs", c.name, i, offset)
				}
			}
		}
	}
}

func TestLoss(t *testing.T) {
	var l Loss
	if l.Any() || l.String() != "none" {
		t.Errorf("nothing lost, but %v", l)
	}
	l.Add(Loss{1, 2, 3})
	l.Add(Loss{Overflow: 1})
	if !l.Any() || l.String() != "2 clamped to ±65504, 2 became zero, 3 NaN" {
		t.Errorf("got %q", l)
	}
}

// TestMisuse checks that mistakes of the caller panic with a message rather
// than read other tensors' bytes or unmapped memory.
func TestMisuse(t *testing.T) {
	x := tensorOf(t, safetensors.F32, data32([]float32{1, 2, 3}))
	bytes := tensorOf(t, safetensors.U8, []byte{1})
	x.Float32(nil, 3)                // nothing, at the end
	x.Float32(make([]float32, 0), 0) // nothing
	for name, call := range map[string]func(){
		"beyond":     func() { x.Float32(make([]float32, 4), 0) },
		"at the end": func() { x.Float16(make([]uint16, 1), 3) },
		"negative":   func() { x.Float32(make([]float32, 1), -1) },
		"overflow":   func() { x.Float32(make([]float32, 1), math.MaxInt) },
		"type":       func() { bytes.Float32(make([]float32, 1), 0) },
		"type half":  func() { bytes.Float16(make([]uint16, 1), 0) },
		"closed": func() {
			k := open(t, folder(t, map[string]any{"model.safetensors": tensors{byteTensor("x", 1)}}))
			y, _ := k.Lookup("x")
			k.Close()
			y.Raw()
			y.Float32(make([]float32, 1), 0)
		},
	} {
		func() {
			defer func() {
				if s, ok := recover().(string); !ok || !strings.HasPrefix(s, "checkpoint: ") {
					t.Errorf("%s: no panic with a message", name)
				}
			}()
			call()
		}()
	}
}

func BenchmarkFloat16(b *testing.B) {
	const n = 1 << 20
	r := rand.New(rand.NewPCG(5, 6))
	f, bf := make([]float32, n), make([]uint16, n)
	for i := range f {
		f[i] = float32(r.NormFloat64()) * 0.02
		bf[i] = float16.BFloat16FromFloat32(f[i])
	}
	dst := make([]uint16, n)
	for _, c := range []struct {
		name string
		x    *Tensor
	}{{"F32", tensorOf(b, safetensors.F32, data32(f))}, {"BF16", tensorOf(b, safetensors.BF16, data16(bf))}} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(2 * n)
			for b.Loop() {
				c.x.Float16(dst, 0)
			}
		})
	}
}

func BenchmarkFloat32(b *testing.B) {
	const n = 1 << 20
	dst := make([]float32, n)
	for _, d := range []safetensors.DType{safetensors.F32, safetensors.BF16, safetensors.F16} {
		x := tensorOf(b, d, make([]byte, n*d.Size()))
		b.Run(string(d), func(b *testing.B) {
			b.SetBytes(4 * n)
			for b.Loop() {
				x.Float32(dst, 0)
			}
		})
	}
}
