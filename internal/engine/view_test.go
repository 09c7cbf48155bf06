package engine

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"anemone/internal/runner"
	"anemone/mil"
)

// elements lists a view's elements by walking it.
func elements(v view, mem []int) []int {
	d := dense(v.shape)
	ns, _, ok := weave(v, d)
	if !ok {
		return nil
	}
	out := make([]int, v.size())
	if len(out) == 0 {
		return out
	}
	last := ns.loops[len(ns.loops)-1]
	w := ns.seek(0)
	for range ns.rows() {
		for i := range last.n {
			out[w.off[1]+i*last.s[1]] = mem[w.off[0]+i*last.s[0]]
		}
		ns.next(&w)
	}
	return out
}

func seq(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}

// TestViews builds chains of views and compares the elements with the ones
// that the same operations on lists would give.
func TestViews(t *testing.T) {
	r := rand.New(rand.NewPCG(91, 92))
	shared := 0 // reshapes of views that are not dense, without a copy
	for range 3000 {
		shape := []int{1 + r.IntN(3), 1 + r.IntN(4), 1 + r.IntN(4)}
		v := dense(shape)
		mem := seq(v.size())
		want := slices.Clone(mem)
		for range 1 + r.IntN(6) {
			switch rank := len(v.shape); r.IntN(5) {
			case 0: // permute
				perm := r.Perm(rank)
				v, want = v.permute(perm), permuted(want, v.shape, perm)
			case 1: // slice
				a := r.IntN(rank)
				b := r.IntN(v.shape[a])
				n := 1 + r.IntN(v.shape[a]-b)
				step := 1
				if n > 1 && r.IntN(2) == 0 {
					step = 2
					n = (n + 1) / 2
				}
				if w, ok := v.slice(a, b, n, step); ok {
					v, want = w, cut(want, v.shape, a, b, n, step)
				}
			case 2: // repeat
				if v.size() > 500 {
					continue
				}
				a, n := r.IntN(rank), 1+r.IntN(3)
				v, want = v.repeat(a, n), repeated(want, v.shape, a, n)
			case 3: // reshape
				var s []int
				for rest := v.size(); ; {
					var div []int
					for d := 1; d <= rest; d++ {
						if rest%d == 0 {
							div = append(div, d)
						}
					}
					d := div[r.IntN(len(div))]
					s = append(s, d)
					if rest /= d; rest == 1 || len(s) == 4 {
						s[len(s)-1] *= rest
						break
					}
				}
				tangled := !v.contiguous()
				if w, ok := v.reshape(s); ok {
					v = w
					if tangled {
						shared++
					}
				}
			case 4: // broadcast
				if v.size() > 500 {
					continue
				}
				s := append([]int{1 + r.IntN(2)}, v.shape...)
				w, ok := v.broadcast(s)
				if !ok {
					t.Fatalf("%v does not broadcast to %v", v.shape, s)
				}
				want = slices.Repeat(want, s[0])
				v = w
			}
		}
		got := elements(v, mem)
		if got == nil {
			continue
		}
		if !slices.Equal(got, want) {
			t.Fatalf("view %+v has %v, want %v", v, got, want)
		}
		if v.contiguous() {
			for i, x := range want {
				if x != mem[v.off+i] {
					t.Fatalf("view %+v is not contiguous", v)
				}
			}
		}
		if w := v.like(); !slices.Equal(w.shape, v.shape) || w.size() > 0 && !isDense(w) {
			t.Fatalf("like of %+v is %+v", v, w)
		}
		if offs, ok := v.offsets(len(v.shape), 1<<20); !ok || len(offs) != len(want) {
			t.Fatalf("view %+v has %d offsets", v, len(offs))
		} else {
			for i, o := range offs {
				if mem[o] != want[i] {
					t.Fatalf("offsets of %+v are wrong", v)
				}
			}
		}
	}
	if shared < 100 {
		t.Errorf("only %d reshapes of strided views", shared)
	}
}

// isDense reports whether a view covers 0 to size-1 once.
func isDense(v view) bool {
	offs, ok := v.offsets(len(v.shape), 1<<20)
	slices.Sort(offs)
	return ok && slices.Equal(offs, seq(v.size()))
}

func permuted(x, shape, perm []int) []int {
	n := len(shape)
	var out []int
	at := make([]int, n)
	var walk func(k int)
	walk = func(k int) {
		if k == n {
			i := 0
			for a := range n {
				i = i*shape[a] + at[a]
			}
			out = append(out, x[i])
			return
		}
		for at[perm[k]] = 0; at[perm[k]] < shape[perm[k]]; at[perm[k]]++ {
			walk(k + 1)
		}
	}
	walk(0)
	return out
}

// around splits a shape at an axis.
func around(shape []int, axis int) (outer, n, inner int) {
	outer, inner = 1, 1
	for i, d := range shape {
		switch {
		case i < axis:
			outer *= d
		case i > axis:
			inner *= d
		}
	}
	return outer, shape[axis], inner
}

func cut(x, shape []int, axis, begin, n, step int) []int {
	outer, d, inner := around(shape, axis)
	var out []int
	for o := range outer {
		for k := range n {
			at := (o*d + begin + k*step) * inner
			out = append(out, x[at:at+inner]...)
		}
	}
	return out
}

func repeated(x, shape []int, axis, n int) []int {
	outer, d, inner := around(shape, axis)
	var out []int
	for o := range outer {
		for range n {
			out = append(out, x[o*d*inner:(o+1)*d*inner]...)
		}
	}
	return out
}

// TestChains compares random chains of operations with the same chains when
// every value is copied to memory of its own.
func TestChains(t *testing.T) {
	r := rand.New(rand.NewPCG(93, 94))
	for run := range 300 {
		b := mil.NewBuilder("main", mil.CoreML8)
		in := runner.Values{}
		var vals []*mil.Value
		for i := range 2 {
			name := string(rune('a' + i))
			shape := []int{1 + r.IntN(2), 2 * (1 + r.IntN(2)), 1 + r.IntN(4), 4}
			n, _ := mil.NumElements(shape)
			in[name] = runner.Floats(mil.Float32, fill(r, n), shape...)
			vals = append(vals, b.Input(name, mil.TensorOf(mil.Float32, shape...)))
		}
		ints := func(v ...int) *mil.Value { return b.Const(mil.Ints(v...)) }
		add := func(op string, args ...mil.Arg) {
			if v := b.Op(op, args...); v != nil {
				if n, _ := v.Type.NumElements(); n <= 4000 {
					vals = append(vals, v)
				}
			}
		}
		for range 3 + r.IntN(8) {
			x := vals[max(0, len(vals)-1-r.IntN(3))]
			s := x.Type.Shape
			rank := len(s)
			n, _ := x.Type.NumElements()
			a := r.IntN(max(1, rank))
			switch k := r.IntN(14); {
			case rank == 0 || n > 2000:
			case k < 2:
				add("transpose", mil.A("x", x), mil.A("perm", ints(r.Perm(rank)...)))
			case k < 4:
				// Merge two axes, or split one.
				shape := slices.Clone(s)
				if a+1 < rank {
					shape[a] *= shape[a+1]
					shape = slices.Delete(shape, a+1, a+2)
				} else if shape[a]%2 == 0 && rank < 6 {
					shape[a] /= 2
					shape = append(shape, 2)
				}
				add("reshape", mil.A("x", x), mil.A("shape", ints(shape...)))
			case k == 4:
				begin, end := make([]int, rank), slices.Clone(s)
				begin[a] = r.IntN(s[a])
				end[a] = begin[a] + 1 + r.IntN(s[a]-begin[a])
				add("slice_by_index", mil.A("x", x), mil.A("begin", ints(begin...)), mil.A("end", ints(end...)))
			case k == 5:
				reps := slices.Repeat([]int{1}, rank)
				reps[a] = 2
				add("tile", mil.A("x", x), mil.A("reps", ints(reps...)))
			case k == 6:
				add("expand_dims", mil.A("x", x), mil.A("axes", ints(r.IntN(rank+1))))
			case k == 7:
				add("squeeze", mil.A("x", x))
			case k == 8:
				add("reverse", mil.A("x", x), mil.A("axes", ints(a)))
			case k == 9:
				y := vals[r.IntN(len(vals))]
				if _, ok := broadcastShapes(s, y.Type.Shape); ok {
					add("mul", mil.A("x", x), mil.A("y", y))
				}
			case k == 10:
				add("softmax", mil.A("x", x), mil.A("axis", b.Const(mil.Int(a))))
			case k == 11:
				add("concat", mil.A("values", x, x), mil.A("axis", b.Const(mil.Int(a))))
			case k == 12 && rank >= 2:
				add("matmul", mil.A("x", x), mil.A("y", x), mil.A("transpose_x", b.Const(mil.Flag(r.IntN(2) == 0))), mil.A("transpose_y", b.Const(mil.Flag(true))))
				if b.Err() != nil { // only square ones fit
					b = nil
				}
			case k == 13:
				add("reduce_mean", mil.A("x", x), mil.A("axes", ints(a)), mil.A("keep_dims", b.Const(mil.Flag(true))))
			}
			if b == nil {
				break
			}
		}
		if b == nil {
			continue
		}
		last := vals[len(vals)-1]
		b.Output("out", b.Op("identity", mil.A("x", last)))
		f, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		m := modelOf(t, f, Options{Workers: 1})
		got := predict(t, m, "main", in, nil)["out"]
		plain := modelOf(t, f, Options{Workers: 1})
		plain.copyAll = true
		want := predict(t, plain, "main", in, nil)["out"]
		if !slices.Equal(got.Shape, want.Shape) {
			t.Fatalf("run %d: shapes %v and %v", run, got.Shape, want.Shape)
		}
		for i := range got.Float {
			g, w := float64(got.Float[i]), float64(want.Float[i])
			if !agree(g, w, 1e-5) && !(math.IsInf(w, 0) || math.IsNaN(w)) {
				t.Fatalf("run %d: element %d is %v through views, %v through copies\n%s", run, i, g, w, listing(f))
			}
		}
	}
}
