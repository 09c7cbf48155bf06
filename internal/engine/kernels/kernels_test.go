package kernels

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"anemone/internal/float16"
)

func random(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// dot64 is the product in float64, and the sum of its terms' sizes, which
// errors are relative to.
func dot64(a, b []float32) (s, size float64) {
	for i := range a {
		p := float64(a[i]) * float64(b[i])
		s += p
		size += math.Abs(p)
	}
	return s, size
}

const eps = 0x1p-24

// near reports whether got is a float32 product as exact as chunked sums of
// n terms are.
func near(got float32, a, b []float32) bool {
	want, size := dot64(a, b)
	return math.Abs(float64(got)-want) <= eps*size*float64(min(len(a), sumChunk)+len(a)/sumChunk+2)/2
}

// lut makes a random matrix of indices, its tables and its dense form.
func lut(t testing.TB, r *rand.Rand, rows, cols, width, rowBlock, colBlock int) (*LUT, []float32) {
	t.Helper()
	perRow := (cols + colBlock - 1) / colBlock
	tables := random(r, rows/rowBlock*perRow<<width)
	m, err := NewLUT(rows, cols, width, rowBlock, colBlock, tables)
	if err != nil {
		t.Fatal(err)
	}
	dense := make([]float32, rows*cols)
	idx := make([]uint8, cols)
	for i := range rows {
		for j := range idx {
			idx[j] = uint8(r.IntN(1 << width))
			tab := i/rowBlock*perRow + j/colBlock
			dense[i*cols+j] = tables[tab<<width+int(idx[j])]
		}
		m.Pack(i, idx)
	}
	return m, dense
}

func checkMatrix(t *testing.T, m Matrix, dense []float32, r *rand.Rand) {
	t.Helper()
	rows, cols := m.Rows(), m.Cols()
	x := random(r, cols)
	scratch := make([]float32, rows*cols)
	if got := m.Panel(scratch, 0, rows); !slices.Equal(got, dense) {
		t.Errorf("panel differs")
	}
	all := make([]float32, rows)
	m.MulVec(scratch, all, x, 0, rows)
	for i, y := range all {
		if !near(y, dense[i*cols:(i+1)*cols], x) {
			want, _ := dot64(dense[i*cols:(i+1)*cols], x)
			t.Errorf("row %d: got %v, want %v", i, y, want)
			return
		}
	}
	// Any split of the rows gives the same bits.
	for range 4 {
		r0 := r.IntN(rows)
		r1 := r0 + 1 + r.IntN(rows-r0)
		part := make([]float32, r1-r0)
		m.MulVec(scratch, part, x, r0, r1)
		if !slices.Equal(part, all[r0:r1]) {
			t.Errorf("rows %d to %d differ from the same rows among all", r0, r1)
		}
		if got := m.Panel(scratch, r0, r1); !slices.Equal(got, dense[r0*cols:r1*cols]) {
			t.Errorf("panel of rows %d to %d differs", r0, r1)
		}
	}
}

func TestLUT(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, width := range []int{1, 2, 3, 4, 6, 8} {
		for _, c := range []struct{ rows, cols, rowBlock, colBlock int }{
			{1, 1, 1, 1}, {3, 5, 1, 5}, {8, 128, 8, 128}, {16, 256, 8, 256}, {24, 300, 8, 300}, {10, 127, 5, 127},
			{12, 512, 4, 128}, {7, 384, 7, 384}, {6, 768, 2, 256}, {5, 129, 1, 129}, {9, 16, 3, 16}, {32, 1024, 32, 1024},
		} {
			t.Run(fmt.Sprintf("%d bits %v", width, c), func(t *testing.T) {
				m, dense := lut(t, r, c.rows, c.cols, width, c.rowBlock, c.colBlock)
				checkMatrix(t, m, dense, r)
				if m.Bits() != width {
					t.Errorf("Bits() = %d", m.Bits())
				}
			})
		}
	}
}

// TestLUTHolds checks that memory stays what the indices take: the reason
// for packing.
func TestLUTHolds(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for width, want := range map[int]float64{1: 1, 2: 2, 3: 3, 4: 4, 6: 6, 8: 8} {
		m, _ := lut(t, r, 1024, 1024, width, 1024, 1024)
		if got := float64(m.Bytes()) * 8 / (1 << 20); got > want+0.02 {
			t.Errorf("%d bits take %.2f bits per weight", width, got)
		}
	}
}

func TestNewLUTRefuses(t *testing.T) {
	for _, c := range []struct{ rows, cols, width, rowBlock, colBlock, tables int }{
		{4, 4, 5, 4, 4, 32}, {4, 4, 0, 4, 4, 1}, {4, 4, 9, 4, 4, 512}, {4, 4, -1, 4, 4, 1}, {4, 4, 4, 3, 4, 16}, {4, 4, 4, 4, 4, 15},
		{0, 4, 4, 4, 4, 16}, {4, 0, 4, 4, 4, 16}, {4, 256, 4, 4, 64, 64}, {4, 300, 4, 4, 128, 48}, {4, 4, 4, 0, 4, 16}, {4, 4, 4, 4, 0, 16},
	} {
		if _, err := NewLUT(c.rows, c.cols, c.width, c.rowBlock, c.colBlock, make([]float32, c.tables)); err == nil {
			t.Errorf("%v: no error", c)
		}
	}
}

func TestDense(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, c := range [][2]int{{1, 1}, {3, 7}, {4, 8}, {9, 130}, {17, 1000}} {
		rows, cols := c[0], c[1]
		f := random(r, rows*cols)
		checkMatrix(t, NewF32(f, rows, cols), f, r)
		h := make([]uint16, rows*cols)
		float16.Narrow(h, f)
		float16.Widen(f, h)
		checkMatrix(t, NewF16(h, rows, cols), f, r)
	}
}

func TestWiden(t *testing.T) {
	for h := range 1 << 16 {
		var d [1]float32
		Widen(d[:], []uint16{uint16(h)})
		want := float16.ToFloat32(uint16(h))
		if d[0] != want && !(d[0] != d[0] && want != want) {
			t.Fatalf("%#x: got %v, want %v", h, d[0], want)
		}
	}
}

func TestProducts(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, c := range [][3]int{{1, 1, 1}, {1, 5, 3}, {2, 4, 8}, {3, 3, 129}, {5, 7, 300}, {64, 9, 64}, {2, 1, 16}, {1, 8, 8}, {7, 2, 17}} {
		m, n, k := c[0], c[1], c[2]
		ldx, ldw, ldd := k+3, k+1, n+2
		x, w := random(r, m*ldx), random(r, n*ldw)
		dst := make([]float32, m*ldd)
		MulNT(dst, ldd, x, ldx, m, w, ldw, n, k)
		for i := range m {
			one := make([]float32, n)
			MulNT(one, n, x[i*ldx:], ldx, 1, w, ldw, n, k)
			for j := range n {
				if !near(dst[i*ldd+j], x[i*ldx:i*ldx+k], w[j*ldw:j*ldw+k]) {
					t.Fatalf("MulNT %v: element %d,%d", c, i, j)
				}
				if one[j] != dst[i*ldd+j] {
					t.Fatalf("MulNT %v: row %d alone differs from the row among others", c, i)
				}
			}
		}
		// w as k rows of n.
		wt := make([]float32, k*(n+4))
		for j := range n {
			for l := range k {
				wt[l*(n+4)+j] = w[j*ldw+l]
			}
		}
		MulNN(dst, ldd, x, ldx, m, wt, n+4, n, k)
		for i := range m {
			for j := range n {
				if want, size := dot64(x[i*ldx:i*ldx+k], w[j*ldw:j*ldw+k]); math.Abs(float64(dst[i*ldd+j])-want) > eps*size*float64(k/8+8)/2 {
					t.Fatalf("MulNN %v: element %d,%d is %v, want %v", c, i, j, dst[i*ldd+j], want)
				}
			}
		}
		if got := Dot(x[:k], w[:k]); !near(got, x[:k], w[:k]) {
			t.Errorf("Dot of %d", k)
		}
	}
	MulNT(nil, 0, nil, 0, 0, nil, 0, 0, 5)
}

// worst returns the largest relative error of f against g over a range.
func worst(f func(float32) float32, g func(float64) float64, lo, hi float32) (rel float64, at float32) {
	const n = 1 << 18
	for i := range n {
		x := lo + (hi-lo)*float32(i)/n
		got, want := float64(f(x)), g(float64(x))
		if e := math.Abs(got-want) / math.Abs(want); want != 0 && e > rel {
			rel, at = e, x
		}
	}
	return rel, at
}

func TestFunctions(t *testing.T) {
	sigmoid := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	for _, c := range []struct {
		name   string
		f      func(float32) float32
		g      func(float64) float64
		lo, hi float32
		bound  float64
	}{
		{"exp", Exp, math.Exp, -87, 88.7, 1.2e-7},
		{"exp near 0", Exp, math.Exp, -1, 1, 1.2e-7},
		{"tanh", Tanh, math.Tanh, -9, 9, 1.6e-7},
		{"tanh near 0", Tanh, math.Tanh, -0.7, 0.7, 1.6e-7},
		{"tanh tiny", Tanh, math.Tanh, 1e-9, 1e-3, 1e-7},
		{"sigmoid", Sigmoid, sigmoid, -80, 20, 2.5e-7},
		{"silu", Silu, func(x float64) float64 { return x * sigmoid(x) }, -80, 20, 3e-7},
		{"softplus", Softplus, func(x float64) float64 { return math.Log1p(math.Exp(x)) }, -80, 20, 2e-7},
		{"gelu", GeluExact, func(x float64) float64 { return 0.5 * x * math.Erfc(-x/math.Sqrt2) }, -3, 8, 2e-7},
		{"gelu tanh", GeluTanh, func(x float64) float64 { return 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x))) }, -1, 8, 6e-7},
		{"gelu sigmoid", GeluSigmoid, func(x float64) float64 { return x * sigmoid(1.702*x) }, -8, 8, 1e-6},
		{"erf", Erf, math.Erf, -4, 4, 1e-7},
	} {
		if rel, at := worst(c.f, c.g, c.lo, c.hi); rel > c.bound {
			t.Errorf("%s: relative error %.3g at %v, want at most %.3g", c.name, rel, at, c.bound)
		}
	}
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		name      string
		got, want float32
	}{
		{"exp(-inf)", Exp(-inf), 0}, {"exp(inf)", Exp(inf), inf}, {"exp(nan)", Exp(nan), nan}, {"exp(0)", Exp(0), 1}, {"exp(-200)", Exp(-200), 0},
		{"exp(-100)", Exp(-100), float32(math.Exp(-100))}, {"exp(89)", Exp(89), inf}, {"exp(88.5)", Exp(88.5), 2.723088e+38},
		{"tanh(inf)", Tanh(inf), 1}, {"tanh(-inf)", Tanh(-inf), -1}, {"tanh(nan)", Tanh(nan), nan}, {"tanh(100)", Tanh(100), 1},
		{"sigmoid(-inf)", Sigmoid(-inf), 0}, {"sigmoid(inf)", Sigmoid(inf), 1}, {"sigmoid(nan)", Sigmoid(nan), nan},
	} {
		if !(c.got == c.want || c.got != c.got && c.want != c.want || math.Abs(float64(c.got-c.want)) < 3e-7*math.Abs(float64(c.want))) {
			t.Errorf("%s = %v, want %v", c.name, c.got, c.want)
		}
	}
}

func TestSoftmaxOfMaskedRow(t *testing.T) {
	inf := float32(math.Inf(-1))
	d := make([]float32, 3)
	if Softmax(d, []float32{inf, inf, inf}); d[0] == d[0] || d[2] == d[2] {
		t.Errorf("fully masked row gives %v, want NaN", d)
	}
	if Softmax(d, []float32{inf, 2, inf}); !slices.Equal(d, []float32{0, 1, 0}) {
		t.Errorf("one key gives %v", d)
	}
	if Softmax(d, []float32{1000, 1000, inf}); !slices.Equal(d, []float32{0.5, 0.5, 0}) {
		t.Errorf("large scores give %v", d)
	}
}

func TestRows(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for _, n := range []int{1, 2, 7, 8, 9, 31, 200} {
		x := random(r, n)
		var sum, size, largest float64
		largest = math.Inf(-1)
		for _, v := range x {
			sum += float64(v)
			size += math.Abs(float64(v))
			largest = max(largest, float64(v))
		}
		if got := Sum(x); math.Abs(float64(got)-sum) > eps*size*float64(n/8+4) {
			t.Errorf("sum of %d: %v, want %v", n, got, sum)
		}
		if got := Max(x); float64(got) != largest {
			t.Errorf("max of %d: %v, want %v", n, got, largest)
		}
		gamma, beta := random(r, n), random(r, n)
		mean, square := sum/float64(n), 0.0
		for _, v := range x {
			square += (float64(v) - mean) * (float64(v) - mean)
		}
		d := math.Sqrt(square/float64(n) + 0.25)
		got, plain := make([]float32, n), make([]float32, n)
		LayerNorm(got, x, gamma, beta, 0.25)
		LayerNorm(plain, x, nil, nil, 0.25)
		for i, v := range x {
			want := (float64(v) - mean) / d
			if math.Abs(float64(plain[i])-want) > 2e-6 || math.Abs(float64(got[i])-(want*float64(gamma[i])+float64(beta[i]))) > 6e-6 {
				t.Errorf("norm of %d: element %d is %v, want %v", n, i, plain[i], want)
				break
			}
		}
		x[n/2] = float32(math.NaN())
		if got := Max(x); got == got {
			t.Errorf("max of %d with NaN is %v", n, got)
		}
	}
	if got := Max(nil); !math.IsInf(float64(got), -1) {
		t.Errorf("max of nothing is %v", got)
	}
}

func TestLog2(t *testing.T) {
	for n, want := range map[int]int{1: 0, 2: 1, 16: 4, 256: 8, 0: -1, 3: -1, -4: -1} {
		if got, ok := Log2(n); ok != (want >= 0) || ok && got != want {
			t.Errorf("Log2(%d) = %d, %v", n, got, ok)
		}
	}
}

func TestUnpackIndices(t *testing.T) {
	// First element in the lowest bits: 1, 2, 3 of 3 bits are 0b11_010_001.
	got := make([]uint8, 3)
	if UnpackIndices(got, []byte{0xd1, 0}, 3, 0, 3); !slices.Equal(got, []uint8{1, 2, 3}) {
		t.Errorf("3 bits: %v", got)
	}
	r := rand.New(rand.NewPCG(7, 8))
	for _, width := range []int{1, 2, 3, 4, 6, 8} {
		const n = 101
		want := make([]uint8, n)
		packed := make([]byte, (n*width+7)/8)
		for i := range want {
			want[i] = uint8(r.IntN(1 << width))
			for b := range width {
				if want[i]>>b&1 != 0 {
					packed[(i*width+b)/8] |= 1 << ((i*width + b) % 8)
				}
			}
		}
		for range 20 {
			first := r.IntN(n)
			m := r.IntN(n - first + 1)
			got := make([]uint8, m)
			if UnpackIndices(got, packed, width, first, m); !slices.Equal(got, want[first:first+m]) {
				t.Fatalf("%d bits, %d from %d: %v, want %v", width, m, first, got, want[first:first+m])
			}
		}
	}
}

func rate(b *testing.B, flops float64) {
	b.ReportMetric(flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
}

func BenchmarkMulVec(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	const rows, cols = 1024, 1024
	x, dst := random(r, cols), make([]float32, rows)
	run := func(name string, m Matrix) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				m.MulVec(nil, dst, x, 0, rows)
			}
			rate(b, 2*rows*cols)
		})
	}
	for _, width := range []int{1, 2, 3, 4, 6, 8} {
		m, _ := lut(b, r, rows, cols, width, 8, cols)
		run(fmt.Sprintf("lut%d", width), m)
	}
	f := random(r, rows*cols)
	run("f32", NewF32(f, rows, cols))
	h := make([]uint16, rows*cols)
	float16.Narrow(h, f)
	run("f16", NewF16(h, rows, cols))
}

func BenchmarkPanel(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	const rows, cols, columns = 32, 1024, 64
	x, dst, scratch := random(r, columns*cols), make([]float32, columns*rows), make([]float32, rows*cols)
	run := func(name string, m Matrix) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				MulNT(dst, rows, x, cols, columns, m.Panel(scratch, 0, rows), cols, rows, cols)
			}
			rate(b, 2*rows*cols*columns)
		})
	}
	for _, width := range []int{4, 6} {
		m, _ := lut(b, r, rows, cols, width, 8, cols)
		run(fmt.Sprintf("lut%d", width), m)
	}
	f := random(r, rows*cols)
	run("f32", NewF32(f, rows, cols))
	h := make([]uint16, rows*cols)
	float16.Narrow(h, f)
	run("f16", NewF16(h, rows, cols))
}

func BenchmarkMulNN(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	const m, n, k = 64, 128, 1024
	x, w, dst := random(r, m*k), random(r, k*n), make([]float32, m*n)
	for b.Loop() {
		MulNN(dst, n, x, k, m, w, n, n, k)
	}
	rate(b, 2*m*n*k)
}

func BenchmarkSoftmax(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	x, dst := random(r, 1024), make([]float32, 1024)
	for b.Loop() {
		Softmax(dst, x)
	}
	b.ReportMetric(float64(b.N)*1024/b.Elapsed().Seconds()/1e6, "M/s")
}
