package engine

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"anemone/internal/float16"
	"anemone/internal/runner"
	"anemone/mil"
)

// TestHalfWeights uses a constant that stays fp16 in every way that a view
// of it may be used, and holds the results to float64.
func TestHalfWeights(t *testing.T) {
	const rows, cols = 160, 128 // more than inlineElements
	r := rand.New(rand.NewPCG(81, 82))
	dense := fill(r, rows*cols)
	float16.RoundAll(dense)
	for _, n := range []int{1, 3} {
		b := mil.NewBuilder("main", mil.CoreML8)
		w := b.Weight("w", stored(t, mil.TensorOf(mil.Float16, rows, cols), halfBytes(dense)))
		x := b.Input("x", mil.TensorOf(mil.Float16, n, cols))
		y := b.Input("y", mil.TensorOf(mil.Float16, n, rows))
		ints := func(v ...int) *mil.Value { return b.Const(mil.Ints(v...)) }
		part := b.Op("slice_by_index", mil.A("x", w), mil.A("begin", ints(10, 0)), mil.A("end", ints(100, cols)))
		narrow := b.Op("slice_by_index", mil.A("x", w), mil.A("begin", ints(10, 8)), mil.A("end", ints(100, 40)))
		turned := b.Op("transpose", mil.A("x", w), mil.A("perm", ints(1, 0)))
		flag := b.Const(mil.Flag(true))
		xs := b.Op("slice_by_index", mil.A("x", x), mil.A("begin", ints(0, 8)), mil.A("end", ints(n, 40)))
		b.Output("linear", b.Op("linear", mil.A("x", x), mil.A("weight", w)))
		b.Output("matmul", b.Op("matmul", mil.A("x", x), mil.A("y", w), mil.A("transpose_y", flag)))
		b.Output("upright", b.Op("matmul", mil.A("x", y), mil.A("y", w)))
		b.Output("turned", b.Op("matmul", mil.A("x", x), mil.A("y", turned)))
		b.Output("part", b.Op("matmul", mil.A("x", x), mil.A("y", part), mil.A("transpose_y", flag)))
		b.Output("narrow", b.Op("matmul", mil.A("x", xs), mil.A("y", narrow), mil.A("transpose_y", flag)))
		b.Output("left", b.Op("matmul", mil.A("x", w), mil.A("y", x), mil.A("transpose_y", flag)))
		b.Output("gather", b.Op("gather", mil.A("x", w), mil.A("indices", ints(7, 159, 0)), mil.A("axis", b.Const(mil.Int(0)))))
		b.Output("columns", b.Op("gather", mil.A("x", w), mil.A("indices", ints(7, 127)), mil.A("axis", b.Const(mil.Int(1)))))
		b.Output("sum", b.Op("reduce_sum", mil.A("x", narrow), mil.A("axes", ints(0, 1))))
		w4 := b.Op("expand_dims", mil.A("x", part), mil.A("axes", ints(2)))
		x3 := b.Op("expand_dims", mil.A("x", b.Op("transpose", mil.A("x", x), mil.A("perm", ints(1, 0)))), mil.A("axes", ints(0)))
		b.Output("conv", b.Op("conv", mil.A("x", x3), mil.A("weight", w4)))
		f, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		m := modelOf(t, f, Options{Workers: 2})
		xd, yd := fill(r, n*cols), fill(r, n*rows)
		out := predict(t, m, "main", runner.Values{"x": runner.Floats(mil.Float16, xd, n, cols), "y": runner.Floats(mil.Float16, yd, n, rows)}, nil)

		at := func(i, j int) float64 { return float64(dense[i*cols+j]) }
		product := func(r0, r1, c0, c1 int) []float64 {
			var p []float64
			for q := range n {
				for i := r0; i < r1; i++ {
					s := 0.0
					for j := c0; j < c1; j++ {
						s += float64(xd[q*cols+j]) * at(i, j)
					}
					p = append(p, s)
				}
			}
			return p
		}
		all := product(0, rows, 0, cols)
		tenth := product(10, 100, 0, cols)
		var upright, left, conv, columns []float64
		for q := range n {
			for j := range cols {
				s := 0.0
				for i := range rows {
					s += float64(yd[q*rows+i]) * at(i, j)
				}
				upright = append(upright, s)
			}
		}
		for i := range rows {
			for q := range n {
				left = append(left, all[q*rows+i])
			}
			columns = append(columns, at(i, 7), at(i, 127))
		}
		for i := range 90 {
			for q := range n {
				conv = append(conv, tenth[q*90+i])
			}
		}
		sum := 0.0
		for i := 10; i < 100; i++ {
			for j := 8; j < 40; j++ {
				sum += at(i, j)
			}
		}
		for name, want := range map[string][]float64{"linear": all, "matmul": all, "turned": all, "upright": upright, "part": tenth,
			"narrow": product(10, 100, 8, 40), "left": left, "conv": conv, "columns": columns, "sum": {sum}} {
			closeTo(t, name, out[name].Float, want, 3e-5)
		}
		if got := out["gather"].Float; !slices.Equal(got, slices.Concat(dense[7*cols:8*cols], dense[159*cols:], dense[:cols])) {
			t.Error("gathered rows differ")
		}
	}
}

// TestBadWeights refuses constants that are not what they say.
func TestBadWeights(t *testing.T) {
	half := func(n int) *mil.Literal {
		return &mil.Literal{Type: mil.TensorOf(mil.Float16, n), Floats: make([]float64, n)}
	}
	for _, c := range []struct {
		name, want string
		indices    mil.Type
		lut        mil.Type
	}{
		{"tables do not divide", "", mil.TensorOf(mil.UInt4, 6, 8), mil.TensorOf(mil.Float16, 4, 1, 16, 1)},
		{"rank", "", mil.TensorOf(mil.UInt4, 6, 8), mil.TensorOf(mil.Float16, 2, 1, 16)},
		{"too few entries", "", mil.TensorOf(mil.UInt4, 6, 8), mil.TensorOf(mil.Float16, 2, 1, 8, 1)},
		{"no entries", "", mil.TensorOf(mil.UInt4, 6, 8), mil.TensorOf(mil.Float16, 2, 1, 16, 0)},
		{"wide indices", "", mil.TensorOf(mil.UInt16, 6, 8), mil.TensorOf(mil.Float16, 2, 1, 16, 1)},
	} {
		op := &mil.Operation{Type: "constexpr_lut_to_dense", Name: "w"}
		n, _ := c.lut.NumElements()
		zero := &mil.Literal{Type: c.indices, Ints: make([]int64, 48)}
		lut := half(n)
		lut.Type = c.lut
		op.Args = []mil.Arg{mil.A("indices", mil.Imm(zero)), mil.A("lut", mil.Imm(lut))}
		w := &mil.Value{Name: "w", Type: mil.TensorOf(mil.Float16, 6, 8), Op: op}
		op.Results = []*mil.Value{w}
		id := &mil.Operation{Type: "identity", Name: "out", Args: []mil.Arg{mil.A("x", w)}}
		out := &mil.Value{Name: "out", Type: w.Type, Op: id}
		id.Results = []*mil.Value{out}
		f := &mil.Function{Name: "main", Opset: mil.CoreML8, Body: &mil.Block{Ops: []*mil.Operation{op, id}, Outputs: []*mil.Value{out}}}
		err := planOnly(t, f)
		if err == nil || !strings.Contains(err.Error(), `constexpr_lut_to_dense "w"`) {
			t.Errorf("%s: error %v", c.name, err)
		}
	}
}

// TestStoredTypes reads constants of every element type.
func TestStoredTypes(t *testing.T) {
	le := binary.LittleEndian
	u16 := func(v ...uint16) (b []byte) {
		for _, x := range v {
			b = le.AppendUint16(b, x)
		}
		return b
	}
	u32 := func(v ...uint32) (b []byte) {
		for _, x := range v {
			b = le.AppendUint32(b, x)
		}
		return b
	}
	u64 := func(v ...uint64) (b []byte) {
		for _, x := range v {
			b = le.AppendUint64(b, x)
		}
		return b
	}
	neg := func(x int64) uint64 { return uint64(x) }
	for _, c := range []struct {
		d      mil.DType
		stored []byte
		floats []float32
		ints   []int32
	}{
		{mil.Float16, u16(0x3c00, 0xc000, 0x0001, 0x7c00), []float32{1, -2, 0x1p-24, float32(math.Inf(1))}, nil},
		{mil.BFloat16, u16(0x3f80, 0xc000, 0x4049), []float32{1, -2, 3.140625}, nil},
		{mil.Float32, u32(math.Float32bits(1.1), math.Float32bits(-1e30)), []float32{1.1, -1e30}, nil},
		{mil.Float64, u64(math.Float64bits(1.1), math.Float64bits(-3)), []float32{1.1, -3}, nil},
		{mil.Bool, []byte{0, 1, 2}, nil, []int32{0, 1, 1}},
		{mil.Int8, []byte{0x7f, 0x80, 0xff}, nil, []int32{127, -128, -1}},
		{mil.UInt8, []byte{0x7f, 0x80, 0xff}, nil, []int32{127, 128, 255}},
		{mil.Int16, u16(0x7fff, 0x8000), nil, []int32{32767, -32768}},
		{mil.UInt16, u16(0x7fff, 0x8000), nil, []int32{32767, 32768}},
		{mil.Int32, u32(5, 0xffffffff), nil, []int32{5, -1}},
		{mil.UInt32, u32(5, 7), nil, []int32{5, 7}},
		{mil.Int64, u64(5, neg(-5), 1<<40, neg(-1<<40)), nil, []int32{5, -5, math.MaxInt32, math.MinInt32}},
		{mil.UInt64, u64(5, 1<<40), nil, []int32{5, math.MaxInt32}},
		{mil.UInt1, []byte{0b101}, nil, []int32{1, 0, 1}},
		{mil.UInt2, []byte{0b11_01_10}, nil, []int32{2, 1, 3}},
		{mil.UInt3, []byte{0b11_010_001, 0}, nil, []int32{1, 2, 3}},
		{mil.UInt4, []byte{0x21, 0x0f}, nil, []int32{1, 2, 15}},
		{mil.Int4, []byte{0x81, 0x0f}, nil, []int32{1, -8, -1}},
		{mil.UInt6, []byte{0b01_000001, 0}, nil, []int32{1, 1}},
	} {
		n := max(len(c.floats), len(c.ints))
		// Aligned and not: a file may hold a weight anywhere.
		for shift := range 2 {
			mem := append(make([]byte, shift, shift+len(c.stored)), c.stored...)[shift:]
			p := &planner{m: &Model{}, plan: &plan{}}
			v, err := p.constant(mil.ImmWeight(stored(t, mil.TensorOf(c.d, n), mem)))
			if err != nil {
				t.Errorf("%v: %v", c.d, err)
				continue
			}
			if !slices.Equal(v.buf.f, c.floats) || !slices.Equal(v.buf.i, c.ints) {
				t.Errorf("%v: got %v %v, want %v %v", c.d, v.buf.f, v.buf.i, c.floats, c.ints)
			}
		}
	}
	// Literals of the same types.
	l := &mil.Literal{Type: mil.TensorOf(mil.UInt64, 2), Ints: []int64{7, 1 << 40}}
	p := &planner{m: &Model{}, plan: &plan{}}
	if v, err := p.constant(mil.Imm(l)); err != nil || !slices.Equal(v.buf.i, []int32{7, math.MaxInt32}) {
		t.Errorf("literal: %v, %v", v, err)
	}
	// What is not there, or too short.
	for name, v := range map[string]*mil.Value{
		"short literal": {Type: mil.TensorOf(mil.Int32, 3), Literal: mil.Ints(1)},
		"list":          {Type: mil.Type{Kind: mil.ListKind}, Literal: mil.Ints(1)},
		"huge":          {Type: mil.TensorOf(mil.Int32, 1<<30, 1<<30), Literal: mil.Ints(1)},
		"failing":       mil.ImmWeight(mil.PromiseWeight(mil.TensorOf(mil.Float16, 3), func(io.Writer) error { return errors.New("no disk") })),
		"short weight":  mil.ImmWeight(shortWeight{}),
	} {
		if _, err := p.constant(v); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// shortWeight has fewer bytes than its type says.
type shortWeight struct{ mil.Weight }

func (shortWeight) Type() mil.Type         { return mil.TensorOf(mil.Float16, 3) }
func (shortWeight) Bytes() ([]byte, error) { return make([]byte, 5), nil }

func TestTruncate(t *testing.T) {
	for x, want := range map[float32]int32{0: 0, 1.9: 1, -1.9: -1, 3e9: math.MaxInt32, -3e9: math.MinInt32, 1 << 31: math.MaxInt32, -1 << 31: math.MinInt32, 2147483520: 2147483520} {
		if got := truncate(x); got != want {
			t.Errorf("truncate(%v) = %d, want %d", x, got, want)
		}
	}
	if got := truncate(float32(math.NaN())); got != 0 {
		t.Errorf("truncate(NaN) = %d", got)
	}
	for _, c := range [][3]int32{{2, 10, 1024}, {-3, 3, -27}, {1, -5, 1}, {-1, -5, -1}, {-1, -4, 1}, {3, -1, 0}, {0, 0, 1}} {
		if got := powI(c[0], c[1]); got != c[2] {
			t.Errorf("%d to the power %d is %d, want %d", c[0], c[1], got, c[2])
		}
	}
	for _, c := range [][4]int32{{7, 2, 3, 1}, {-7, 2, -4, 1}, {7, -2, -4, -1}, {-7, -2, 3, -1}, {6, 3, 2, 0}, {-6, 3, -2, 0}, {5, 0, 0, 0}, {math.MinInt32, -1, math.MinInt32, 0}} {
		if q, r := floorDiv(c[0], c[1]), floorMod(c[0], c[1]); q != c[2] || r != c[3] {
			t.Errorf("%d by %d is %d rest %d, want %d rest %d", c[0], c[1], q, r, c[2], c[3])
		}
	}
}
