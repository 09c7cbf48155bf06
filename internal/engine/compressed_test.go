package engine

import (
	"encoding/binary"
	"fmt"
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

// form is a stored constant of some form, and its dense elements, computed
// here from the form's definition.
type form struct {
	name  string
	shape []int
	build func(b *mil.Builder) *mil.Value
	dense []float32
	lut   bool // kept as look-up tables
}

// formMaker makes random forms.
type formMaker struct {
	t testing.TB
	r *rand.Rand
}

// ints returns n numbers of a type, and a weight that stores them.
func (m *formMaker) ints(d mil.DType, shape ...int) ([]float64, mil.Weight) {
	n, _ := mil.NumElements(shape)
	bits := d.Bits()
	raw := make([]int, n)
	vals := make([]float64, n)
	for i := range raw {
		raw[i] = m.r.IntN(1 << bits)
		vals[i] = float64(raw[i])
		if !d.IsUnsigned() && raw[i] >= 1<<(bits-1) {
			vals[i] -= float64(int(1) << bits)
		}
	}
	return vals, stored(m.t, mil.TensorOf(d, shape...), packBits(raw, bits))
}

// floats is ints for fp16 and fp32.
func (m *formMaker) floats(d mil.DType, shape ...int) ([]float64, mil.Weight) {
	n, _ := mil.NumElements(shape)
	vals := make([]float64, n)
	var b []byte
	for i := range vals {
		x := float16.Round(float32(0.02 + 0.05*m.r.Float64()))
		if vals[i] = float64(x); d == mil.Float16 {
			b = binary.LittleEndian.AppendUint16(b, float16.FromFloat32(x))
		} else {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
		}
	}
	return vals, stored(m.t, mil.TensorOf(d, shape...), b)
}

// blockOf returns the number of the block that an element lies in.
func blockOf(i int, shape, groups []int) int {
	b, stride := 0, 1
	for a := len(shape) - 1; a >= 0; a-- {
		k := i % shape[a]
		i /= shape[a]
		b += k / (shape[a] / groups[a]) * stride
		stride *= groups[a]
	}
	return b
}

func (m *formMaker) blockwise(data, dt mil.DType, shape, groups []int, offset bool) form {
	q, qw := m.ints(data, shape...)
	s, sw := m.floats(dt, groups...)
	args := []mil.Arg{mil.A("data", mil.ImmWeight(qw)), mil.A("scale", mil.ImmWeight(sw))}
	var o []float64
	if offset {
		var ow mil.Weight
		o, ow = m.ints(data, groups...)
		args = append(args, mil.A("offset", mil.ImmWeight(ow)))
	}
	f := form{name: fmt.Sprintf("blocks of %v, %v by %v, offset %t", data, shape, groups, offset), shape: shape}
	for i, x := range q {
		b := blockOf(i, shape, groups)
		if offset {
			x -= o[b]
		}
		v := float32(x) * float32(s[b])
		if dt == mil.Float16 {
			v = float16.Round(v)
		}
		f.dense = append(f.dense, v)
	}
	f.build = func(b *mil.Builder) *mil.Value {
		return b.Constexpr("constexpr_blockwise_shift_scale", "w", args...)
	}
	return f
}

// mask returns a random mask of a shape.
func (m *formMaker) mask(part float64, shape ...int) (set []bool, n int, w mil.Weight) {
	k, _ := mil.NumElements(shape)
	raw := make([]int, k)
	set = make([]bool, k)
	for i := range raw {
		if set[i] = m.r.Float64() < part; set[i] {
			raw[i] = 1
			n++
		}
	}
	return set, n, stored(m.t, mil.TensorOf(mil.UInt1, shape...), packBits(raw, 1))
}

func (m *formMaker) sparse(part float64, shape []int) form {
	set, n, mw := m.mask(part, shape...)
	v, vw := m.floats(mil.Float16, n)
	f := form{name: fmt.Sprintf("sparse %v, %d set", shape, n), shape: shape}
	k := 0
	for _, on := range set {
		x := float32(0)
		if on {
			x = float32(v[k])
			k++
		}
		f.dense = append(f.dense, x)
	}
	f.build = func(b *mil.Builder) *mil.Value {
		return b.Constexpr("constexpr_sparse_to_dense", "w", mil.A("nonzero_data", mil.ImmWeight(vw)), mil.A("mask", mil.ImmWeight(mw)))
	}
	return f
}

func (m *formMaker) sparseBlocks(shape, groups []int) form {
	set, n, mw := m.mask(0.4, shape...)
	q, qw := m.ints(mil.Int8, n)
	s, sw := m.floats(mil.Float32, groups...)
	f := form{name: fmt.Sprintf("sparse blocks %v by %v", shape, groups), shape: shape}
	k := 0
	for i, on := range set {
		x := float32(0)
		if on {
			x = float32(q[k]) * float32(s[blockOf(i, shape, groups)])
			k++
		}
		f.dense = append(f.dense, x)
	}
	f.build = func(b *mil.Builder) *mil.Value {
		r := b.OpAll("constexpr_sparse_blockwise_shift_scale", mil.A("data_mask", mil.ImmWeight(mw)), mil.A("nonzero_data", mil.ImmWeight(qw)), mil.A("scale", mil.ImmWeight(sw)))
		if len(r) != 2 {
			m.t.Fatal(b.Err())
		}
		return b.Constexpr("constexpr_sparse_to_dense", "w", mil.A("nonzero_data", r[1]), mil.A("mask", r[0]))
	}
	return f
}

func (m *formMaker) sparseTables(shape, groups []int, width int) form {
	set, n, mw := m.mask(0.6, shape...)
	d, _ := mil.ParseDType(fmt.Sprintf("uint%d", width))
	q, qw := m.ints(d, n)
	tables, tw := m.floats(mil.Float16, append(slices.Clone(groups), 1<<width, 1)...)
	f := form{name: fmt.Sprintf("sparse tables %v by %v, %d bits", shape, groups, width), shape: shape}
	k := 0
	for i, on := range set {
		x := float32(0)
		if on {
			x = float32(tables[blockOf(i, shape, groups)<<width+int(q[k])])
			k++
		}
		f.dense = append(f.dense, x)
	}
	f.build = func(b *mil.Builder) *mil.Value {
		r := b.OpAll("constexpr_lut_to_sparse", mil.A("indices_mask", mil.ImmWeight(mw)), mil.A("indices_nonzero_data", mil.ImmWeight(qw)), mil.A("lut", mil.ImmWeight(tw)))
		if len(r) != 2 {
			m.t.Fatal(b.Err())
		}
		return b.Constexpr("constexpr_sparse_to_dense", "w", mil.A("nonzero_data", r[1]), mil.A("mask", r[0]))
	}
	return f
}

// scaledTables is a table of int8 with scales around it.
func (m *formMaker) scaledTables(shape, tables, scales []int, width int) form {
	d, _ := mil.ParseDType(fmt.Sprintf("uint%d", width))
	q, qw := m.ints(d, shape...)
	lut, lw := m.ints(mil.Int8, append(slices.Clone(tables), 1<<width, 1)...)
	s, sw := m.floats(mil.Float16, scales...)
	f := form{name: fmt.Sprintf("tables %v of int8 with scales %v for %v, %d bits", tables, scales, shape, width), shape: shape}
	for i, x := range q {
		v := lut[blockOf(i, shape, tables)<<width+int(x)]
		f.dense = append(f.dense, float16.Round(float32(v)*float32(s[blockOf(i, shape, scales)])))
	}
	f.build = func(b *mil.Builder) *mil.Value {
		x := b.Constexpr("constexpr_lut_to_dense", "idx", mil.A("indices", mil.ImmWeight(qw)), mil.A("lut", mil.ImmWeight(lw)))
		return b.Constexpr("constexpr_blockwise_shift_scale", "w", mil.A("data", x), mil.A("scale", mil.ImmWeight(sw)))
	}
	return f
}

func forms(t testing.TB) []form {
	m := &formMaker{t, rand.New(rand.NewPCG(81, 82))}
	tables := func(f form) form {
		f.lut = true
		return f
	}
	return []form{
		m.blockwise(mil.Int4, mil.Float16, []int{24, 160}, []int{24, 5}, false),
		m.blockwise(mil.UInt4, mil.Float16, []int{24, 160}, []int{24, 5}, true),
		m.blockwise(mil.Int8, mil.Float16, []int{24, 160}, []int{6, 32}, true),
		tables(m.blockwise(mil.Int4, mil.Float16, []int{24, 160}, []int{24, 1}, false)),
		tables(m.blockwise(mil.Int4, mil.Float32, []int{24, 256}, []int{12, 2}, true)),
		tables(m.blockwise(mil.Int8, mil.Float16, []int{16, 1280}, []int{16, 1}, true)),
		tables(m.blockwise(mil.UInt8, mil.Float32, []int{64, 160}, []int{1, 1}, true)),
		m.blockwise(mil.UInt8, mil.Float32, []int{24, 40}, []int{24, 1}, false),
		m.sparse(0.3, []int{40, 130}), m.sparse(1, []int{16, 96}), m.sparse(0.01, []int{64, 160}),
		m.sparseBlocks([]int{40, 130}, []int{40, 1}), m.sparseBlocks([]int{40, 130}, []int{5, 13}),
		m.sparseTables([]int{40, 130}, []int{1, 1}, 4), m.sparseTables([]int{40, 130}, []int{8, 2}, 2), m.sparseTables([]int{24, 160}, []int{24, 1}, 6),
		tables(m.scaledTables([]int{24, 160}, []int{1, 1}, []int{24, 1}, 4)), tables(m.scaledTables([]int{24, 160}, []int{6, 1}, []int{4, 1}, 2)), m.scaledTables([]int{24, 160}, []int{24, 1}, []int{1, 20}, 4),
	}
}

// TestForms uses stored constants of every form as weights, whole, and by
// rows, with one column and with several.
func TestForms(t *testing.T) {
	r := rand.New(rand.NewPCG(83, 84))
	for _, f := range forms(t) {
		rows, cols := f.shape[0], f.shape[1]
		for _, n := range []int{1, 5} {
			x, y := fill(r, n*cols), fill(r, n*rows)
			want, turned := make([]float64, n*rows), make([]float64, n*cols)
			for i := range n {
				for j := range rows {
					for k := range cols {
						w := float64(f.dense[j*cols+k])
						want[i*rows+j] += float64(x[i*cols+k]) * w
						turned[i*cols+k] += float64(y[i*rows+j]) * w
					}
				}
			}
			b := mil.NewBuilder("main", mil.CoreML8)
			w := f.build(b)
			xi, yi := b.Input("x", mil.TensorOf(w.Type.DType, n, cols)), b.Input("y", mil.TensorOf(w.Type.DType, n, rows))
			b.Output("linear", b.Op("linear", mil.A("x", xi), mil.A("weight", w)))
			b.Output("turned", b.Op("matmul", mil.A("x", yi), mil.A("y", w)))
			b.Output("dense", b.Op("identity", mil.A("x", w)))
			b.Output("rows", b.Op("gather", mil.A("x", w), mil.A("indices", b.Const(mil.Ints(rows-1, 0, rows/2))), mil.A("axis", b.Const(mil.Int(0)))))
			fn, err := b.Build()
			if err != nil {
				t.Fatalf("%s: %v", f.name, err)
			}
			in := runner.Values{"x": runner.Floats(w.Type.DType, x, n, cols), "y": runner.Floats(w.Type.DType, y, n, rows)}
			var first runner.Values
			for _, workers := range []int{1, 3} {
				m := modelOf(t, fn, Options{Workers: workers})
				out := predict(t, m, "main", in, nil)
				what := fmt.Sprintf("%s, %d columns: ", f.name, n)
				for name, w := range map[string][]float64{"linear": want, "turned": turned} {
					size := 1.0 // of the largest sum: what cancels has errors of its size
					for _, v := range w {
						size = max(size, math.Abs(v))
					}
					closeTo(t, what+name, out[name].Float, w, 2e-6*size)
				}
				if !slices.Equal(out["dense"].Float, f.dense) {
					t.Errorf("%sdense form differs", what)
				}
				if got := out["rows"].Float; !slices.Equal(got, slices.Concat(f.dense[(rows-1)*cols:], f.dense[:cols], f.dense[rows/2*cols:(rows/2+1)*cols])) {
					t.Errorf("%sgathered rows differ", what)
				}
				if first == nil {
					first = out
				}
				for name := range out {
					if !slices.Equal(out[name].Float, first[name].Float) {
						t.Errorf("%s%s has other bits with %d workers", what, name, workers)
					}
				}
				if packed := m.Stats().Packed > 0; packed != f.lut {
					t.Errorf("%skept as tables is %t", what, packed)
				}
				if n := testing.AllocsPerRun(5, func() { m.Predict(t.Context(), "main", in, out, nil) }); n > 0 {
					t.Errorf("%sallocates %v times", what, n)
				}
			}
		}
	}
}

// TestFormsRefused holds stored constants to what fits together, without
// the checks of mil.
func TestFormsRefused(t *testing.T) {
	m := &formMaker{t, rand.New(rand.NewPCG(85, 86))}
	half := mil.TensorOf(mil.Float16, mil.Dynamic, mil.Dynamic)
	q := func(d mil.DType, shape ...int) *mil.Value {
		_, w := m.ints(d, shape...)
		return mil.ImmWeight(w)
	}
	s := func(shape ...int) *mil.Value {
		_, w := m.floats(mil.Float16, shape...)
		return mil.ImmWeight(w)
	}
	short := func(d mil.DType, shape ...int) *mil.Value {
		t := mil.TensorOf(d, shape...)
		return &mil.Value{Type: t, Weight: cutWeight{t}}
	}
	set, n, mw := m.mask(0.5, 4, 8)
	_ = set
	mask := mil.ImmWeight(mw)
	for _, c := range []struct {
		name, want string
		op         *mil.Operation
	}{
		{"no data", `argument "data" is missing`, node("constexpr_blockwise_shift_scale", "op", half, mil.A("scale", s(4, 1)))},
		{"no scale", "scale is missing", node("constexpr_blockwise_shift_scale", "op", half, mil.A("data", q(mil.Int4, 4, 8)))},
		{"scales that do not divide", "does not divide", node("constexpr_blockwise_shift_scale", "op", half, mil.A("data", q(mil.Int4, 4, 8)), mil.A("scale", s(3, 1)))},
		{"scales of another rank", "for data of shape", node("constexpr_blockwise_shift_scale", "op", half, mil.A("data", q(mil.Int4, 4, 8)), mil.A("scale", s(4)))},
		{"offsets of another shape", "offset has the shape", node("constexpr_blockwise_shift_scale", "op", half, mil.A("data", q(mil.Int4, 4, 8)), mil.A("scale", s(4, 1)), mil.A("offset", q(mil.Int4, 4, 2)))},
		{"short data", "has 3 bytes", node("constexpr_blockwise_shift_scale", "op", half, mil.A("data", short(mil.Int4, 4, 8)), mil.A("scale", s(4, 1)))},
		{"data of strings", "not supported here", node("constexpr_blockwise_shift_scale", "op", half, mil.A("data", mil.Imm(mil.Ints(1, 2))), mil.A("scale", s(1)))},
		{"tables of another size", "do not fit indices", node("constexpr_lut_to_dense", "op", half, mil.A("indices", q(mil.UInt4, 4, 8)), mil.A("lut", s(1, 1, 8, 1)))},
		{"tables that do not divide", "does not divide", node("constexpr_lut_to_dense", "op", half, mil.A("indices", q(mil.UInt4, 4, 8)), mil.A("lut", s(3, 1, 16, 1)))},
		{"vectors without an axis", "vector_axis", node("constexpr_lut_to_dense", "op", half, mil.A("indices", q(mil.UInt4, 4, 8)), mil.A("lut", s(1, 1, 16, 2)))},
		{"vectors along no axis", "vector_axis", node("constexpr_lut_to_dense", "op", half, mil.A("indices", q(mil.UInt4, 4, 8)), mil.A("lut", s(1, 1, 16, 2)), mil.A("vector_axis", mil.Imm(mil.Int(2))))},
		{"short indices", "has 3 bytes", node("constexpr_lut_to_dense", "op", half, mil.A("indices", short(mil.UInt4, 4, 8)), mil.A("lut", s(1, 1, 16, 1)))},
		{"too few values", "the mask has", node("constexpr_sparse_to_dense", "op", half, mil.A("mask", mask), mil.A("nonzero_data", s(n-1)))},
		{"short mask", "has 3 bytes", node("constexpr_sparse_to_dense", "op", half, mil.A("mask", short(mil.UInt1, 4, 8)), mil.A("nonzero_data", s(n)))},
		{"mask of bytes", "want uint1", node("constexpr_sparse_to_dense", "op", half, mil.A("mask", q(mil.UInt8, 4, 8)), mil.A("nonzero_data", s(n)))},
		{"old form with few indices", "needs", node("constexpr_lut_to_dense", "op", half, mil.A("indices", q(mil.UInt8, 3)), mil.A("lut", s(16)), mil.A("shape", mil.Imm(mil.Ints(4, 8))))},
		{"old form of a huge shape", "too large", node("constexpr_lut_to_dense", "op", half, mil.A("indices", q(mil.UInt8, 3)), mil.A("lut", s(16)), mil.A("shape", mil.Imm(mil.Ints(1<<30, 1<<30))))},
		{"axis of nothing", "axis is", node("constexpr_affine_dequantize", "op", half, mil.A("quantized_data", q(mil.Int8, 4, 8)), mil.A("scale", s(4)), mil.A("zero_point", q(mil.Int8, 4)), mil.A("axis", mil.Imm(mil.Int(2))))},
		{"scales of another axis", "has the shape [4], want [] or [8]", node("constexpr_affine_dequantize", "op", half, mil.A("quantized_data", q(mil.Int8, 4, 8)), mil.A("scale", s(4)), mil.A("zero_point", q(mil.Int8, 4)), mil.A("axis", mil.Imm(mil.Int(1))))},
	} {
		f := &mil.Function{Name: "main", Opset: mil.CoreML8, Body: &mil.Block{Ops: []*mil.Operation{c.op}, Outputs: c.op.Results}}
		err := planOnly(t, f)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), `"op"`) {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
	}
}

// cutWeight has fewer bytes than its type says.
type cutWeight struct{ t mil.Type }

func (w cutWeight) Type() mil.Type         { return w.t }
func (w cutWeight) Bytes() ([]byte, error) { return make([]byte, 3), nil }

func (w cutWeight) WriteTo(io.Writer) (int64, error) { return 0, io.ErrShortWrite }
