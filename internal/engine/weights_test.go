package engine

import (
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
