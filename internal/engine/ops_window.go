package engine

import (
	"fmt"
	"math"
	"slices"

	"anemone/internal/engine/kernels"
	"anemone/mil"
)

// place turns a number into a position in axes of the given sizes.
func place(at *[maxRank]int, k int, sizes []int) {
	for i := len(sizes) - 1; i >= 0; i-- {
		at[i] = k % sizes[i]
		k /= sizes[i]
	}
}

func product(sizes []int) int {
	n, _ := mil.NumElements(sizes)
	return n
}

// pooling is a reduction of windows: of the elements that lie inside, one by
// one, and of the sum at the end.
type pooling struct {
	start float64
	add   func(acc, x float64) float64
	end   func(acc float64, inside, all int) float64
}

func poolOp(kind string) builder {
	return func(o *opCtx) error {
		x, err := o.dense32(o.x("x"))
		if err != nil {
			return err
		}
		shape, err := o.shapeOf()
		if err != nil {
			return err
		}
		w, err := o.poolWindow(x.shape()[2:], shape[2:])
		if err != nil {
			return err
		}
		exclude, err := o.boolOr("exclude_padding_from_average", false)
		if err != nil {
			return err
		}
		out, err := o.p.fresh(x.dt, shape, o.constant)
		if err != nil {
			return err
		}
		if out.size() == 0 {
			return o.give(out, true)
		}
		rows, n, m := product(shape[:2]), product(w.in), product(w.out)
		taps := 1 // at most, of a window
		for i, k := range w.kernel {
			taps *= min(k, w.in[i])
		}
		var f pooling
		switch kind {
		case "max":
			f = pooling{math.Inf(-1), func(a, x float64) float64 {
				if x > a || x != x {
					return x
				}
				return a
			}, func(a float64, _, _ int) float64 { return a }}
		case "avg":
			f = pooling{0, func(a, x float64) float64 { return a + x }, func(a float64, inside, all int) float64 {
				if exclude {
					all = inside
				}
				return a / float64(all)
			}}
		default: // l2
			f = pooling{0, func(a, x float64) float64 { return a + x*x }, func(a float64, _, _ int) float64 { return math.Sqrt(a) }}
		}
		err = o.each(rows*m, max(1, grain/8/max(taps, 1)), []*val{x}, []*val{out}, func(c *call, _, lo, hi int) {
			src, dst := c.f32of(x), c.f32(out.buf)
			var at, tap, from, count [maxRank]int
			r := len(w.in)
			for k := lo; k < hi; k++ {
				place(&at, k%m, w.out)
				base, acc, inside, all := k/m*n, f.start, 1, 1
				for i, d := range w.in {
					// What of the window lies in x. Padding counts for the
					// average; what a rounded up size adds does not.
					start := at[i]*w.stride[i] - w.lo[i]
					from[i] = max(start, 0)
					count[i] = max(0, min(start+w.kernel[i], d)-from[i])
					inside *= count[i]
					all *= max(0, min(w.kernel[i], d+w.hi[i]-start))
					tap[i] = 0
				}
				for range inside {
					pos := 0
					for i, d := range w.in {
						pos = pos*d + from[i] + tap[i]
					}
					acc = f.add(acc, float64(src[base+pos]))
					for i := r - 1; i >= 0; i-- {
						if tap[i]++; tap[i] < count[i] {
							break
						}
						tap[i] = 0
					}
				}
				dst[k] = float32(f.end(acc, inside, all))
			}
		})
		if err != nil {
			return err
		}
		return o.give(out, true)
	}
}

// window is what a kernel covers along the spatial axes.
type window struct {
	in, out, kernel, stride, dilation, lo, hi []int
}

// poolWindow reads the window of a pooling operation whose result has the
// given size.
func (o *opCtx) poolWindow(in, out []int) (*window, error) {
	n := len(in)
	w := &window{in: in, out: out, dilation: slices.Repeat([]int{1}, n), lo: make([]int, n), hi: make([]int, n)}
	var err error
	if w.kernel, err = o.mustInts("kernel_sizes"); err != nil {
		return nil, err
	}
	if w.stride, err = o.mustInts("strides"); err != nil {
		return nil, err
	}
	return w, o.padding(w, false)
}

// padding sets what is added before and behind every axis.
func (o *opCtx) padding(w *window, transposed bool) error {
	kind, err := o.strOr("pad_type", "valid")
	if err != nil {
		return err
	}
	pad, err := o.mustInts("pad")
	if err != nil {
		return err
	}
	for i, d := range w.in {
		span := (w.kernel[i]-1)*w.dilation[i] + 1
		switch kind := lower(kind); kind {
		case "custom":
			w.lo[i], w.hi[i] = pad[2*i], pad[2*i+1]
		case "same", "same_lower":
			total := (w.out[i]-1)*w.stride[i] + span - d
			if transposed {
				total = (d-1)*w.stride[i] + span - w.out[i]
			}
			total = max(0, total)
			w.lo[i], w.hi[i] = total/2, total-total/2
			if kind == "same_lower" {
				w.lo[i], w.hi[i] = w.hi[i], w.lo[i]
			}
		}
	}
	return nil
}

func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// buildConvTranspose adds to every element of the result the products of
// those inputs whose kernel covers it.
func buildConvTranspose(o *opCtx) error {
	shape, err := o.shapeOf()
	if err != nil {
		return err
	}
	x, wt := o.x("x"), o.x("weight")
	n := len(shape) - 2
	groups, err := o.intOr("groups", 1)
	if err != nil {
		return err
	}
	w := &window{in: x.shape()[2:], out: shape[2:], kernel: wt.shape()[2:], lo: make([]int, n), hi: make([]int, n)}
	if w.stride, err = o.mustInts("strides"); err != nil {
		return err
	}
	if w.dilation, err = o.mustInts("dilations"); err != nil {
		return err
	}
	if err := o.padding(w, true); err != nil {
		return err
	}
	inC, outC := x.shape()[1], shape[1]
	bias, err := o.optional32("bias", outC)
	if err != nil {
		return err
	}
	// Channels last, so that products are over elements side by side: of x
	// [n, in..., channels], of the weight [kernel..., out, in of a group].
	perm, back := []int{0}, []int{0, n + 1}
	wperm := []int{}
	for i := range n {
		perm = append(perm, 2+i)
		back = append(back, 1+i)
		wperm = append(wperm, 2+i)
	}
	if x, err = o.p.plain(x); err != nil {
		return err
	}
	if x, err = o.dense32(x.with(x.v.permute(append(perm, 1)))); err != nil {
		return err
	}
	if wt, err = o.p.plain(wt); err != nil {
		return err
	}
	if wt, err = o.dense32(wt.with(wt.v.permute(append(wperm, 1, 0)))); err != nil {
		return err
	}
	out, err := o.p.fresh(x.dt, append(append([]int{shape[0]}, w.out...), outC), o.constant)
	if err != nil {
		return err
	}
	result := out.with(out.v.permute(back))
	if out.size() == 0 {
		return o.give(result, true)
	}
	perIn, perOut := inC/groups, outC/groups
	taps, positions, size := product(w.kernel), product(w.out), product(w.in)
	err = o.each(shape[0]*positions, 1, []*val{x, wt, bias}, []*val{out}, func(c *call, _, lo, hi int) {
		src, k := c.f32of(x), c.f32of(wt)
		var at, tap [maxRank]int
		for p := lo; p < hi; p++ {
			dst := c.f32(out.buf)[p*outC : (p+1)*outC]
			clear(dst)
			if bias != nil {
				copy(dst, c.f32of(bias))
			}
			place(&at, p%positions, w.out)
			for t := range taps {
				place(&tap, t, w.kernel)
				pos, in := 0, true
				for i, d := range w.in {
					a := at[i] + w.lo[i] - tap[i]*w.dilation[i]
					in = in && a >= 0 && a%w.stride[i] == 0 && a/w.stride[i] < d
					pos = pos*d + a/w.stride[i]
				}
				if !in {
					continue
				}
				row := src[(p/positions*size+pos)*inC:]
				for oc := range dst {
					g := oc / perOut
					kr := k[(t*perOut+oc%perOut)*inC+g*perIn:]
					dst[oc] += kernels.Dot(row[g*perIn:(g+1)*perIn], kr)
				}
			}
		}
	})
	if err != nil {
		return err
	}
	return o.give(result, true)
}

// buildConvQuantized is a convolution with a weight of bytes: element x is
// x * quant_scale + quant_bias, perhaps with a scale for each row.
func buildConvQuantized(o *opCtx) error {
	kind, err := o.strOr("quantization_type", "linear")
	if err != nil {
		return err
	}
	bits, err := o.intOr("nbits", 8)
	if err != nil {
		return err
	}
	w, err := o.p.straight(o.x("weight"))
	if err != nil {
		return err
	}
	if kind != "linear" || bits != 8 || o.x("bias") != nil || len(w.shape()) == 0 || w.dt.IsFloat() {
		return fmt.Errorf("quantization_type %q of %d bits, with bias: %t: only linear quantization of 8 bits without bias is defined", kind, bits, o.x("bias") != nil)
	}
	rows := w.shape()[0]
	var parts [2][]float32
	for i, name := range []string{"quant_scale", "quant_bias"} {
		f, err := o.floats(name)
		if err != nil {
			return err
		}
		if len(f) == 1 {
			f = slices.Repeat(f, rows)
		}
		if len(f) != rows {
			return fmt.Errorf("argument %q has %d elements, want 1 or %d", name, len(f), rows)
		}
		parts[i] = f
	}
	wide, err := o.p.fresh(o.x("x").dt, w.shape(), w.isConst())
	if err != nil {
		return err
	}
	per := w.size() / max(rows, 1)
	err = o.each(w.size(), grain, []*val{w}, []*val{wide}, func(c *call, _, lo, hi int) {
		src, dst := c.i32of(w), c.f32(wide.buf)
		for i := lo; i < hi; i++ {
			dst[i] = float32(src[i])*parts[0][i/per] + parts[1][i/per]
		}
	})
	if err != nil {
		return err
	}
	o.args["weight"] = wide
	return buildConv(o)
}
