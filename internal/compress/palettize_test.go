package compress

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"anemone/internal/float16"
	"anemone/mil"
)

// normal returns fp16 patterns of normal numbers, as from a bfloat16
// checkpoint or as from one of higher precision.
func normal(seed uint64, n int, bf16 bool) []uint16 {
	r := rand.New(rand.NewPCG(seed, 0))
	w := make([]uint16, n)
	for i := range w {
		f := float32(r.NormFloat64() * 0.03)
		if bf16 {
			f = float16.BFloat16ToFloat32(float16.BFloat16FromFloat32(f))
		}
		w[i] = float16.FromFloat32(f)
	}
	return w
}

func mustPalettize(t testing.TB, src Source, shape []int, e Encoding, opts Options) *Palettized {
	t.Helper()
	p, err := Palettize(src, shape, e, opts)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func stored(t testing.TB, w mil.Weight) []byte {
	t.Helper()
	var b bytes.Buffer
	n, err := w.WriteTo(&b)
	if err != nil {
		t.Fatal(err)
	}
	if size, ok := w.Type().ByteSize(); !ok || n != size || b.Len() != int(size) {
		t.Fatalf("WriteTo returned %d and wrote %d bytes of %v, want %d", n, b.Len(), w.Type(), size)
	}
	return b.Bytes()
}

// dequantize does what constexpr_lut_to_dense says: the first dimensions of
// the table divide those of the indices, and each block of the indices that
// results has its own table.
func dequantize(indices, lut mil.Type, ib, lb []byte) []float64 {
	n, _ := indices.NumElements()
	entries := lut.Shape[len(lut.Shape)-2]
	idx := unpack(ib, n, indices.DType.Bits())
	out := make([]float64, n)
	pos := make([]int, len(indices.Shape))
	for i := range out {
		table := 0
		for d, size := range indices.Shape {
			table = table*lut.Shape[d] + pos[d]/(size/lut.Shape[d])
		}
		out[i] = float64(float16.ToFloat32(binary.LittleEndian.Uint16(lb[2*(table*entries+int(idx[i])):])))
		for d := len(pos) - 1; d >= 0; d-- {
			if pos[d]++; pos[d] < indices.Shape[d] {
				break
			}
			pos[d] = 0
		}
	}
	return out
}

// TestPalettize checks types, bytes and figures: every weight has the nearest
// entry of its table, and every entry is the mean of its weights.
func TestPalettize(t *testing.T) {
	for _, c := range []struct {
		shape []int
		e     Encoding
		group int // in use
	}{
		{[]int{16, 32, 1, 1}, Encoding{4, 8}, 8},
		{[]int{16, 32, 1, 1}, Encoding{6, 8}, 8},
		{[]int{16, 32, 1, 1}, Encoding{8, 4}, 4},
		{[]int{16, 32, 1, 1}, Encoding{4, 0}, 16},
		{[]int{16, 32, 1}, Encoding{4, 1}, 1},
		{[]int{16, 32}, Encoding{2, 16}, 16},
		{[]int{16, 32}, Encoding{1, 8}, 8},
		{[]int{24, 3, 5, 2}, Encoding{3, 8}, 8},
		{[]int{15, 7}, Encoding{3, 5}, 5},  // groups end within bytes
		{[]int{21, 5}, Encoding{6, 8}, 7},  // and do not divide
		{[]int{13, 3}, Encoding{1, 1}, 1},  //
		{[]int{22, 9}, Encoding{3, 8}, 11}, //
		{[]int{37, 6}, Encoding{4, 8}, 1},  // fewer weights than entries
		{[]int{3}, Encoding{4, 8}, 3},
		{[]int{1, 1}, Encoding{8, 8}, 1},
	} {
		t.Run(fmt.Sprint(c.shape, c.e), func(t *testing.T) {
			n, _ := mil.NumElements(c.shape)
			rows := c.shape[0]
			w := normal(7, n, false)
			var r Report
			progress := 0
			p := mustPalettize(t, FromFloat16(w, n/rows), c.shape, c.e, Options{
				Name: "w", Report: &r, Progress: func(n int) { progress += n },
			})
			it, lt := p.Indices.Type(), p.LUT.Type()
			wantLUT := append([]int{rows / c.group}, slices.Repeat([]int{1}, len(c.shape)-1)...)
			wantLUT = append(wantLUT, 1<<c.e.Bits, 1)
			if !slices.Equal(it.Shape, c.shape) || it.DType.String() != fmt.Sprintf("uint%d", c.e.Bits) {
				t.Errorf("indices are %v", it)
			}
			if !slices.Equal(lt.Shape, wantLUT) || lt.DType != mil.Float16 {
				t.Errorf("table is %v, want fp16 %v", lt, wantLUT)
			}
			if want := (Encoding{c.e.Bits, c.group}); p.Encoding != want {
				t.Errorf("encoding in use is %v, want %v", p.Encoding, want)
			}
			ib, lb := stored(t, p.Indices), stored(t, p.LUT)
			q := dequantize(it, lt, ib, lb)
			idx := unpack(ib, n, c.e.Bits)

			var squared, energy, maxErr float64
			size := 1 << c.e.Bits
			per := n / rows * c.group
			for g := 0; g < rows/c.group; g++ {
				table := make([]float64, size)
				sum, count := make([]float64, size), make([]float64, size)
				different := map[uint16]bool{}
				for e := range table {
					table[e] = float64(float16.ToFloat32(binary.LittleEndian.Uint16(lb[2*(g*size+e):])))
				}
				if !slices.IsSorted(table) {
					t.Errorf("table %d is not ascending: %v", g, table)
				}
				for i := g * per; i < (g+1)*per; i++ {
					x := float64(float16.ToFloat32(w[i]))
					best := 0
					for e := range table {
						if math.Abs(x-table[e]) < math.Abs(x-table[best]) {
							best = e
						}
					}
					if int(idx[i]) != best {
						t.Fatalf("weight %d (%g) has entry %d of %v, want %d", i, x, idx[i], table, best)
					}
					d := x - q[i]
					squared += d * d
					energy += x * x
					maxErr = max(maxErr, math.Abs(d))
					sum[best] += x
					count[best]++
					different[w[i]] = true
				}
				for e := range table {
					if count[e] > 0 && math.Abs(sum[e]/count[e]-table[e]) > 0x1p-10*math.Abs(table[e])+0x1p-24 {
						t.Errorf("entry %d of table %d is %g, the mean of its weights is %g", e, g, table[e], sum[e]/count[e])
					}
				}
				if len(different) <= size && !slices.Equal(table[len(different)-1:], slices.Repeat(table[len(different)-1:][:1], size-len(different)+1)) {
					t.Errorf("table %d of %d values does not repeat the last: %v", g, len(different), table)
				}
			}
			if progress != n {
				t.Errorf("progress reported %d weights, want %d", progress, n)
			}
			s := r.Summary()
			if len(s.Weights) != 1 {
				t.Fatalf("report has %d weights", len(s.Weights))
			}
			e := s.Weights[0]
			wantAsked := 0
			if c.e.Group != 0 && c.e.Group != c.group {
				wantAsked = c.e.Group
			}
			if e.Name != "w" || !slices.Equal(e.Shape, c.shape) || e.Encoding != fmt.Sprintf("lut%d", c.e.Bits) || e.Method != "kmeans" ||
				e.Group != c.group || e.GroupAsked != wantAsked || e.Elements != int64(n) || e.Bytes != int64(len(ib)+len(lb)) {
				t.Errorf("report: %+v", e)
			}
			if math.Abs(e.RelativeError-squared/energy) > 1e-12 || e.MaxError != maxErr {
				t.Errorf("report: relative error %g, max %g; measured %g, %g", e.RelativeError, e.MaxError, squared/energy, maxErr)
			}
		})
	}
}

// TestAgainstCoremltools: no error is above that of coremltools' tables for
// the same matrix (testdata/make_goldens.py).
func TestAgainstCoremltools(t *testing.T) {
	var goldens []struct {
		Matrix   string
		Rows     int
		Bits     int
		Group    int
		LUTShape []int `json:"lut_shape"`
		Squared  float64
		Energy   float64
	}
	text, err := os.ReadFile(filepath.Join("testdata", "goldens.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &goldens); err != nil {
		t.Fatal(err)
	}
	if len(goldens) < 20 {
		t.Fatalf("%d goldens", len(goldens))
	}
	for _, g := range goldens {
		raw, err := os.ReadFile(filepath.Join("testdata", g.Matrix+".f16"))
		if err != nil {
			t.Fatal(err)
		}
		w := make([]uint16, len(raw)/2)
		for i := range w {
			w[i] = binary.LittleEndian.Uint16(raw[2*i:])
		}
		p := mustPalettize(t, FromFloat16(w, len(w)/g.Rows), []int{g.Rows, len(w) / g.Rows}, Encoding{g.Bits, g.Group}, Options{})
		q := dequantize(p.Indices.Type(), p.LUT.Type(), stored(t, p.Indices), stored(t, p.LUT))
		var squared, energy float64
		for i, h := range w {
			x := float64(float16.ToFloat32(h))
			squared += (x - q[i]) * (x - q[i])
			energy += x * x
		}
		if math.Abs(energy/g.Energy-1) > 1e-12 {
			t.Fatalf("%s: energy %g, golden %g: not the same matrix", g.Matrix, energy, g.Energy)
		}
		if !slices.Equal(p.LUT.Type().Shape, g.LUTShape) {
			t.Errorf("%s %d,%d: table shape %v, coremltools has %v", g.Matrix, g.Bits, g.Group, p.LUT.Type().Shape, g.LUTShape)
		}
		if squared > g.Squared*(1+1e-12) {
			t.Errorf("%s %d,%d: error %g, coremltools has %g", g.Matrix, g.Bits, g.Group, squared, g.Squared)
		}
		t.Logf("%s %d,%d: squared error %.4f of coremltools'", g.Matrix, g.Bits, g.Group, squared/g.Squared)
	}
}

// forms lets a test run the same matrix through both ways of reading it.
var forms = []struct {
	name  string
	large int
}{{"group by group", math.MaxInt}, {"block by block", 1}}

// TestSameBytes: neither the number of workers, nor the order of writing, nor
// the way of reading changes a byte.
func TestSameBytes(t *testing.T) {
	const rows, cols = 60, 35
	w := normal(9, rows*cols, true)
	imp := make([]float32, rows*cols)
	for i := range imp {
		imp[i] = float32(i*i%17) / 4 // sums are exact
	}
	for _, e := range []Encoding{{3, 5}, {4, 12}, {6, 0}} {
		for _, importance := range []Importance{nil, &memory32{imp, cols}} {
			var first [2][]byte
			for _, form := range forms {
				for _, workers := range []int{1, 2, 7} {
					for _, lutFirst := range []bool{false, true} {
						p := mustPalettize(t, FromFloat16(w, cols), []int{rows, cols}, e, Options{Workers: workers, Importance: importance})
						j := p.Indices.(*promise).j
						j.large = form.large
						var got [2][]byte
						for range 2 { // the second time from scratch
							if lutFirst {
								got[1] = stored(t, p.LUT)
								got[0] = stored(t, p.Indices)
							} else {
								got[0] = stored(t, p.Indices)
								got[1] = stored(t, p.LUT)
							}
							if j.tables != nil || j.packed != nil {
								t.Error("results are kept after both have been written")
							}
							if first[0] == nil {
								first = got
							}
							if !bytes.Equal(got[0], first[0]) || !bytes.Equal(got[1], first[1]) {
								t.Errorf("%v, %s, %d workers, LUT first %v: other bytes", e, form.name, workers, lutFirst)
							}
						}
						// One of them twice.
						again := stored(t, p.Indices)
						if !bytes.Equal(again, first[0]) || !bytes.Equal(stored(t, p.Indices), first[0]) {
							t.Errorf("%v: other indices when written twice", e)
						}
					}
				}
			}
		}
	}
}

// source is a Source that makes its values up, and may fail.
type source struct {
	rows, cols int
	value      func(row, col int) uint16
	fail       func(row0 int) error
	reads      atomic.Int64
}

func (s *source) Rows() int { return s.rows }
func (s *source) Cols() int { return s.cols }
func (s *source) Float16(dst []uint16, row0 int) (Loss, error) {
	s.reads.Add(1)
	if s.fail != nil {
		if err := s.fail(row0); err != nil {
			return Loss{}, err
		}
	}
	for i := range dst {
		dst[i] = s.value(row0+i/s.cols, i%s.cols)
	}
	return Loss{Overflow: int64(len(dst)), Underflow: 1}, nil
}

// TestNothingIsReadBefore: a promise costs nothing before it is written.
func TestNothingIsReadBefore(t *testing.T) {
	s := &source{rows: 8, cols: 4, value: func(r, c int) uint16 { return uint16(r * c) }}
	var r Report
	p := mustPalettize(t, s, []int{8, 4}, Encoding{4, 8}, Options{Report: &r})
	if _, err := Dense(s, []int{8, 4}, Options{Report: &r}); err != nil {
		t.Fatal(err)
	}
	if n := s.reads.Load(); n != 0 {
		t.Errorf("%d reads before anything is written", n)
	}
	if n := len(r.Summary().Weights); n != 0 {
		t.Errorf("%d weights in the report before anything is written", n)
	}
	stored(t, p.Indices)
	if n := s.reads.Load(); n != 1 {
		t.Errorf("%d reads for the indices, want 1", n)
	}
	stored(t, p.LUT)
	if n := s.reads.Load(); n != 1 {
		t.Errorf("%d reads for both, want 1", n)
	}
}

func TestLossIsReported(t *testing.T) {
	for _, form := range forms {
		s := &source{rows: 8, cols: 4, value: func(r, c int) uint16 { return uint16(r * c) }}
		var r Report
		p := mustPalettize(t, s, []int{8, 4}, Encoding{4, 4}, Options{Report: &r})
		p.Indices.(*promise).j.large = form.large
		stored(t, p.Indices)
		if e := r.Summary().Weights[0]; e.Overflow != 32 || e.Underflow != 2 {
			t.Errorf("%s: overflow %d, underflow %d, want 32 and 2", form.name, e.Overflow, e.Underflow)
		}
	}
}

func TestPalettizeRefuses(t *testing.T) {
	ok := FromFloat16(make([]uint16, 32), 4)
	for _, c := range []struct {
		src   Source
		shape []int
		e     Encoding
		want  string
	}{
		{ok, []int{8, 4}, Encoding{}, "Bits: 0"},
		{ok, []int{8, 4}, Encoding{5, 8}, "Bits: 5"},
		{ok, []int{8, 4}, Encoding{4, -1}, "Group: -1"},
		{ok, []int{8, 5}, Encoding{4, 8}, "shape [8 5] of a matrix of 8 rows and 4 columns"},
		{ok, []int{4, 8}, Encoding{4, 8}, "first dimension"},
		{ok, nil, Encoding{4, 8}, "shape []"},
		{ok, []int{-8, -4}, Encoding{4, 8}, "shape [-8 -4]"},
		{ok, []int{math.MaxInt, math.MaxInt}, Encoding{4, 8}, "shape"},
		{FromFloat16(nil, 4), []int{0, 4}, Encoding{4, 8}, "at least one"},
	} {
		_, err := Palettize(c.src, c.shape, c.e, Options{Name: "model.w"})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "model.w") {
			t.Errorf("Palettize(%v, %v): error %v, want one with %q and the name", c.shape, c.e, err, c.want)
		}
	}
}

// brokenMethod gives the results that do.
type brokenMethod struct {
	start error
	do    func(g *Group) error
}

func (b brokenMethod) Name() string { return "broken" }
func (b brokenMethod) Start(context.Context, Matrix) (func(*Group) error, error) {
	return b.do, b.start
}

type limitedWriter struct{ n int }

var errFull = errors.New("disk full")

func (l *limitedWriter) Write(p []byte) (int, error) {
	if len(p) > l.n {
		n := l.n
		l.n = 0
		return n, errFull
	}
	l.n -= len(p)
	return len(p), nil
}

func TestErrorsWhileWriting(t *testing.T) {
	const rows, cols = 64, 16
	good := func(r, c int) uint16 { return uint16(r*cols + c) }
	done, cancel := context.WithCancel(context.Background())
	cancel()
	gone := errors.New("shard 3 is gone")
	ones := make([]float32, rows*cols)
	for i := range ones {
		ones[i] = 1
	}
	bad := func(i int, f float64) Importance {
		imp := slices.Clone(ones)
		imp[i] = float32(f)
		return &memory32{imp, cols}
	}
	for _, c := range []struct {
		name string
		src  *source
		opts Options
		w    io.Writer
		want string
		is   error
	}{
		{"infinity", &source{value: func(r, c int) uint16 {
			if r == 9 && c == 3 {
				return 0xfc00
			}
			return 1
		}}, Options{}, nil, "row 9, column 3 is -Inf", nil},
		{"NaN", &source{value: func(r, c int) uint16 {
			if r >= 63 && c == 15 {
				return 0x7e01
			}
			return 1
		}}, Options{}, nil, "row 63, column 15 is NaN", nil},
		{"source", &source{value: good, fail: func(row0 int) error {
			if row0 > 0 {
				return gone
			}
			return nil
		}}, Options{}, nil, "shard 3", gone},
		{"writer", &source{value: good}, Options{}, &limitedWriter{100}, "disk full", errFull},
		{"cancelled", &source{value: good}, Options{Context: done}, nil, "canceled", context.Canceled},
		{"NaN importance", &source{value: good}, Options{Importance: bad(3*cols+2, math.NaN())}, nil, "importance of row 3, column 2 is NaN", nil},
		{"negative importance", &source{value: good}, Options{Importance: bad(63*cols, -1)}, nil, "importance of row 63, column 0 is -1", nil},
		{"infinite importance", &source{value: good}, Options{Importance: bad(0, math.Inf(1))}, nil, "is +Inf", nil},
		{"method start", &source{value: good}, Options{Method: brokenMethod{start: gone}}, nil, "shard 3", gone},
		{"method", &source{value: good}, Options{Method: brokenMethod{do: func(*Group) error { return gone }}}, nil, "rows from 0: shard 3", gone},
		{"method index", &source{value: good}, Options{Method: brokenMethod{do: func(g *Group) error {
			clear(g.LUT)
			g.Indices[len(g.Indices)-1] = 16
			return nil
		}}}, nil, "beyond the table of 16", nil},
		{"method table order", &source{value: good}, Options{Method: brokenMethod{do: func(g *Group) error {
			g.LUT[3] = 0xbc00
			return nil
		}}}, nil, "not finite and ascending", nil},
		{"method table NaN", &source{value: good}, Options{Method: brokenMethod{do: func(g *Group) error {
			g.LUT[15] = 0x7e00
			return nil
		}}}, nil, "not finite and ascending", nil},
	} {
		for _, form := range forms {
			for _, lut := range []bool{false, true} {
				c.src.rows, c.src.cols = rows, cols
				var r Report
				c.opts.Name, c.opts.Report, c.opts.Workers = "w", &r, 3
				p := mustPalettize(t, c.src, []int{rows, cols}, Encoding{4, 8}, c.opts)
				p.Indices.(*promise).j.large = form.large
				w := c.w
				if w == nil {
					w = io.Discard
				} else {
					w = &limitedWriter{100}
				}
				weight := p.Indices
				if lut {
					weight = p.LUT
				}
				_, err := weight.WriteTo(w)
				if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "weight w: ") {
					t.Errorf("%s, %s: error %v, want one with %q", c.name, form.name, err, c.want)
				}
				if c.is != nil && !errors.Is(err, c.is) {
					t.Errorf("%s: error %v is not %v", c.name, err, c.is)
				}
				if c.name != "writer" && len(r.Summary().Weights) != 0 {
					t.Errorf("%s: the weight is reported in spite of the error", c.name)
				}
				// A failure leaves nothing behind that a later write would use.
				if j := p.Indices.(*promise).j; j.tables != nil || j.packed != nil {
					t.Errorf("%s: results are kept in spite of the error", c.name)
				}
			}
		}
	}
}

// uniform is a Method with tables of even steps.
type uniform struct{ starts *[]Matrix }

func (uniform) Name() string { return "uniform" }
func (u uniform) Start(_ context.Context, m Matrix) (func(*Group) error, error) {
	*u.starts = append(*u.starts, m)
	return func(g *Group) error {
		if len(g.Weights) != g.Rows*g.Cols || len(g.Importance) != len(g.Weights) || len(g.LUT) != 1<<m.Bits {
			return fmt.Errorf("group of %d x %d: %d weights, %d importances, %d entries", g.Rows, g.Cols, len(g.Weights), len(g.Importance), len(g.LUT))
		}
		for e := range g.LUT {
			g.LUT[e] = float16.FromFloat32(float32(g.Row0 + e))
		}
		for i, h := range g.Weights {
			g.Indices[i] = uint8(float16.ToFloat32(h)+g.Importance[i]) - uint8(g.Row0)
		}
		return nil
	}, nil
}

func TestOtherMethod(t *testing.T) {
	const rows, cols = 6, 3
	src := &source{rows: rows, cols: cols, value: func(r, c int) uint16 { return float16.FromFloat32(float32(r + c)) }}
	imp := &memory32{slices.Repeat([]float32{0.25}, rows*cols), cols}
	var starts []Matrix
	var r Report
	p := mustPalettize(t, src, []int{rows, cols}, Encoding{3, 2}, Options{Name: "w", Method: uniform{&starts}, Importance: imp, Report: &r})
	p.Indices.(*promise).j.large = 1 // does not matter to other methods
	q := dequantize(p.Indices.Type(), p.LUT.Type(), stored(t, p.Indices), stored(t, p.LUT))
	for i, x := range q {
		if want := float64(i/cols + i%cols); x != want {
			t.Errorf("weight %d is %g, want %g", i, x, want)
		}
	}
	if len(starts) != 1 || starts[0].Name != "w" || starts[0].Source != src || starts[0].Importance != imp || starts[0].Bits != 3 || starts[0].Group != 2 {
		t.Errorf("started with %+v", starts)
	}
	if e := r.Summary().Weights[0]; e.Method != "uniform" || e.RelativeError != 0 {
		t.Errorf("report: %+v", e)
	}
}

// TestImportanceHelps: tables for the importance have a lower weighted error
// than tables without, which have a lower plain one.
func TestImportanceHelps(t *testing.T) {
	const rows, cols = 16, 64
	w := normal(11, rows*cols, true)
	r := rand.New(rand.NewPCG(12, 0))
	imp := make([]float32, rows*cols)
	for i := range imp {
		imp[i] = float32(math.Exp(2 * r.NormFloat64()))
	}
	measure := func(o Options) (plain, weighted float64) {
		p := mustPalettize(t, FromFloat16(w, cols), []int{rows, cols}, Encoding{3, 8}, o)
		q := dequantize(p.Indices.Type(), p.LUT.Type(), stored(t, p.Indices), stored(t, p.LUT))
		for i := range q {
			d := q[i] - float64(float16.ToFloat32(w[i]))
			plain += d * d
			weighted += float64(imp[i]) * d * d
		}
		return
	}
	p0, w0 := measure(Options{})
	p1, w1 := measure(Options{Importance: &memory32{imp, cols}})
	if !(w1 < 0.95*w0) || !(p0 < 0.95*p1) {
		t.Errorf("plain and weighted error: %g, %g without importance, %g, %g with", p0, w0, p1, w1)
	}
}

// TestMemory palettizes 16 million weights (32 MB, 8 MB packed) in little
// memory, both in small groups and with one table.
func TestMemory(t *testing.T) {
	const rows, cols = 4096, 4096
	src := &source{rows: rows, cols: cols, value: func(r, c int) uint16 {
		x := uint32(r*cols+c) * 2654435761
		return uint16(x>>16)&0x83ff | 0x2000
	}}
	for _, e := range []Encoding{{4, 8}, {4, 0}} {
		var before, now runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		var peak uint64
		calls := 0
		p := mustPalettize(t, src, []int{rows, cols}, e, Options{Workers: 2, Progress: func(int) {
			if calls++; calls%8 == 0 {
				runtime.GC()
				runtime.ReadMemStats(&now)
				peak = max(peak, now.HeapAlloc)
			}
		}})
		if _, err := p.Indices.WriteTo(io.Discard); err != nil {
			t.Fatal(err)
		}
		// One table: 16 histograms of 264 KiB, two blocks of 3 MiB, four
		// packed blocks of 512 KiB.
		if used := int64(peak) - int64(before.HeapAlloc); used > 20<<20 || calls < 8 {
			t.Errorf("%v: %d KiB in use, want less than 20 MiB", e, used>>10)
		} else {
			t.Logf("%v: %d KiB in use", e, used>>10)
		}
	}
}

func BenchmarkPalettize(b *testing.B) {
	const rows, cols = 1024, 1024
	for _, bf16 := range []bool{true, false} {
		src := FromFloat16(normal(1, rows*cols, bf16), cols)
		kind := "fp16"
		if bf16 {
			kind = "bf16"
		}
		for _, e := range []Encoding{{4, 8}, {6, 8}, {8, 8}, {2, 8}, {4, 1}, {4, 0}} {
			b.Run(fmt.Sprintf("%s/%v", kind, e), func(b *testing.B) {
				p := mustPalettize(b, src, []int{rows, cols, 1, 1}, e, Options{Workers: 1})
				for range b.N {
					if _, err := p.Indices.WriteTo(io.Discard); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/rows/cols, "ns/weight")
			})
		}
	}
}

// pool is a Source that shows the same values again and again.
type pool struct {
	rows, cols int
	data       []uint16
}

func (p *pool) Rows() int { return p.rows }
func (p *pool) Cols() int { return p.cols }
func (p *pool) Float16(dst []uint16, row0 int) (Loss, error) {
	for at := row0 * p.cols; len(dst) > 0; {
		n := copy(dst, p.data[at%len(p.data):])
		dst = dst[n:]
		at += n
	}
	return Loss{}, nil
}

// BenchmarkModel compresses a model of the shape of Qwen3-0.6B, as from a
// bfloat16 checkpoint: 440 million weights of the layers with 4 bits and 156
// million of the head with 6, groups of 8, on all cores.
func BenchmarkModel(b *testing.B) {
	data := normal(2, 1<<24+8, true) // not a multiple of a row
	for range b.N {
		var weights int
		one := func(rows, cols int, e Encoding) {
			p := mustPalettize(b, &pool{rows, cols, data}, []int{rows, cols, 1, 1}, e, Options{})
			if _, err := p.Indices.WriteTo(io.Discard); err != nil {
				b.Fatal(err)
			}
			weights += rows * cols
		}
		for range 28 {
			for _, s := range [][2]int{{2048, 1024}, {1024, 1024}, {1024, 1024}, {1024, 2048}, {3072, 1024}, {3072, 1024}, {1024, 3072}} {
				one(s[0], s[1], Encoding{4, 8})
			}
		}
		one(151936, 1024, Encoding{6, 8})
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(weights), "ns/weight")
	}
}

// TestSameOnEveryMachine: a processor that fuses multiplications and additions
// must not find other tables. The sums are those of amd64.
func TestSameOnEveryMachine(t *testing.T) {
	for _, c := range []struct {
		e    Encoding
		want string
	}{
		{Encoding{2, 8}, "7fc54de74d9d2f16"},
		{Encoding{4, 8}, "75d9b426e994fae5"},
		{Encoding{6, 16}, "3d561f10c91fc3a7"},
		{Encoding{8, 0}, "917b6cd08bdcb821"},
	} {
		sum := sha256.New()
		for _, bf16 := range []bool{true, false} {
			p := mustPalettize(t, FromFloat16(normal(40, 256*256, bf16), 256), []int{256, 256}, c.e, Options{})
			sum.Write(stored(t, p.Indices))
			sum.Write(stored(t, p.LUT))
		}
		if got := fmt.Sprintf("%x", sum.Sum(nil)[:8]); got != c.want {
			t.Errorf("%v: %s, want %s", c.e, got, c.want)
		}
	}
}
