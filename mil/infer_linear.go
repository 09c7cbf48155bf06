package mil

import (
	"fmt"
	"slices"
)

func inferMatmul(c *call) ([]Type, error) {
	x, y := c.t("x"), c.t("y")
	d := x.DType
	if c.since(CoreML7) {
		// The types may differ where one side is a constant: the other
		// side's is that of the result.
		vx, vy := c.op.Operand("x").IsConst(), c.op.Operand("y").IsConst()
		switch {
		case vx != vy && vx:
			d = y.DType
		case vx == vy && x.DType != y.DType:
			return nil, fmt.Errorf("%q is %v and %q is %v, want one element type", "x", x, "y", y)
		}
	}
	tx, err := c.flag("transpose_x")
	if err != nil {
		return nil, err
	}
	ty, err := c.flag("transpose_y")
	if err != nil {
		return nil, err
	}
	xs, ys := slices.Clone(x.Shape), slices.Clone(y.Shape)
	if len(xs) == 0 || len(ys) == 0 {
		return nil, fmt.Errorf("matmul of %v and %v needs at least rank 1", x, y)
	}
	vx, vy := len(xs) == 1, len(ys) == 1
	if vx && tx || vy && ty {
		return nil, fmt.Errorf("matmul of %v and %v: a vector cannot be transposed", x, y)
	}
	if vx {
		xs = []int{1, xs[0]}
	} else if tx {
		xs[len(xs)-1], xs[len(xs)-2] = xs[len(xs)-2], xs[len(xs)-1]
	}
	if vy {
		ys = []int{ys[0], 1}
	} else if ty {
		ys[len(ys)-1], ys[len(ys)-2] = ys[len(ys)-2], ys[len(ys)-1]
	}
	m, k1 := xs[len(xs)-2], xs[len(xs)-1]
	k2, n := ys[len(ys)-2], ys[len(ys)-1]
	if !sameDim(k1, k2) {
		return nil, fmt.Errorf("inner dimensions %d and %d of %v and %v differ", k1, k2, x, y)
	}
	out, err := Broadcast(xs[:len(xs)-2], ys[:len(ys)-2])
	if err != nil {
		return nil, err
	}
	if !vx {
		out = append(out, m)
	}
	if !vy {
		out = append(out, n)
	}
	return one(d, out...)
}

func inferLinear(c *call) ([]Type, error) {
	x, w := c.t("x"), c.t("weight")
	if w.Rank() != 2 || x.Rank() < 1 {
		return nil, fmt.Errorf("linear of %v with weight %v", x, w)
	}
	if !sameDim(x.Shape[x.Rank()-1], w.Shape[1]) {
		return nil, fmt.Errorf("weight %v does not fit %v", w, x)
	}
	if err := c.optShaped("bias", w.Shape[0]); err != nil {
		return nil, err
	}
	out := slices.Clone(x.Shape)
	out[len(out)-1] = w.Shape[0]
	return one(x.DType, out...)
}

// inferEinsum knows the two equations of Core ML: "nchw,nwhr->nchr" and
// "chw,whr->chr", with any letters.
func inferEinsum(c *call) ([]Type, error) {
	vals := c.op.Arg("values")
	eq, err := c.str("equation")
	if err != nil {
		return nil, err
	}
	if len(vals) != 2 {
		return nil, fmt.Errorf("einsum of %d values, want 2", len(vals))
	}
	x, y := vals[0].Type, vals[1].Type
	var pattern []int // letters by order of first use
	for i, r := range eq {
		if i > 20 {
			break
		}
		switch j := slices.Index([]rune(eq), r); {
		case r == ',' || r == '-' || r == '>':
			pattern = append(pattern, -int(r))
		default:
			pattern = append(pattern, j)
		}
	}
	like := func(form string) bool {
		var p []int
		for _, r := range form {
			if r == ',' || r == '-' || r == '>' {
				p = append(p, -int(r))
			} else {
				p = append(p, slices.Index([]rune(form), r))
			}
		}
		return slices.Equal(p, pattern)
	}
	rank := 0
	switch {
	case like("nchw,nwhr->nchr"):
		rank = 4
	case like("chw,whr->chr"):
		rank = 3
	default:
		return nil, fmt.Errorf("equation %q, want one like %q or %q", eq, "nchw,nwhr->nchr", "chw,whr->chr")
	}
	if x.Rank() != rank || y.Rank() != rank {
		return nil, fmt.Errorf("equation %q of %v and %v", eq, x, y)
	}
	xs, ys := x.Shape[rank-3:], y.Shape[rank-3:]
	if !sameDim(xs[2], ys[0]) {
		return nil, fmt.Errorf("inner dimensions %d and %d of %v and %v differ", xs[2], ys[0], x, y)
	}
	h, err := Broadcast(xs[1:2], ys[1:2])
	if err != nil {
		return nil, err
	}
	n, err := Broadcast(x.Shape[:rank-3], y.Shape[:rank-3])
	if err != nil {
		return nil, err
	}
	return one(x.DType, append(n, xs[0], h[0], ys[2])...)
}

func inferSDPA(c *call) ([]Type, error) {
	q, k, v := c.t("query"), c.t("key"), c.t("value")
	r := q.Rank()
	if r < 3 || k.Rank() != r || v.Rank() != r {
		return nil, fmt.Errorf("attention of %v, %v, %v", q, k, v)
	}
	if !sameDim(q.Shape[r-1], k.Shape[r-1]) || !sameDim(k.Shape[r-2], v.Shape[r-2]) ||
		!fits(q.Shape[:r-2], k.Shape[:r-2]) || !fits(q.Shape[:r-2], v.Shape[:r-2]) {
		return nil, fmt.Errorf("attention of %v, %v, %v: dimensions differ", q, k, v)
	}
	if c.has("attn_mask") {
		m := c.t("attn_mask")
		if m.Rank() < 1 || !sameDim(m.Shape[m.Rank()-1], k.Shape[r-2]) {
			return nil, fmt.Errorf("mask is a %v, want %d as the last dimension", m, k.Shape[r-2])
		}
		if _, err := Broadcast(q.Shape[:r-1], m.Shape[:m.Rank()-1]); err != nil {
			return nil, fmt.Errorf("mask is a %v for the query %v: %w", m, q, err)
		}
	}
	out := slices.Clone(q.Shape)
	out[r-1] = v.Shape[r-1]
	return one(q.DType, out...)
}

// window is the geometry that convolutions and pooling share.
type window struct {
	strides, dilations, pad []int
	padType                 string
}

// window reads the geometry over n spatial axes.
func (c *call) window(n int) (w window, err error) {
	if w.strides, err = c.vecOf("strides", n, 1); err != nil {
		return w, err
	}
	w.dilations = slices.Repeat([]int{1}, n)
	if c.d.Param("dilations") != nil {
		if w.dilations, err = c.vecOf("dilations", n, 1); err != nil {
			return w, err
		}
	}
	if w.padType, err = c.str("pad_type"); err != nil {
		return w, err
	}
	if c.d.Param("pad_type").AnyCase {
		w.padType = lower(w.padType)
	}
	w.pad = make([]int, 2*n)
	if w.padType == "custom" {
		w.pad, err = c.vecOf("pad", 2*n, 0)
	}
	return w, err
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

// out returns the number of places of a kernel of size k along spatial axis
// i of size d. With ceil, a place may lie partly outside, but not start
// behind the input.
func (w *window) out(i, d, k int, ceil bool) (int, error) {
	if d < 0 || k < 0 {
		return Dynamic, nil
	}
	if d > maxDim || k > maxDim {
		return 0, fmt.Errorf("spatial axis %d has the size %d and the kernel %d, more than %d", i, d, k, maxDim)
	}
	s := w.strides[i]
	if w.padType == "same" || w.padType == "same_lower" {
		if d == 0 {
			return 0, fmt.Errorf("spatial axis %d is empty", i)
		}
		return (d-1)/s + 1, nil
	}
	if k > 1 {
		if w.dilations[i] > maxDim/(k-1) {
			return 0, fmt.Errorf("kernel of %d with dilation %d along spatial axis %d is too large", k, w.dilations[i], i)
		}
		k = (k-1)*w.dilations[i] + 1
	}
	pad := w.pad[2*i] + w.pad[2*i+1]
	room := d + pad - k
	if room < 0 && !ceil || room <= -s {
		return 0, fmt.Errorf("kernel of %d does not fit into %d along spatial axis %d", k, d+pad, i)
	}
	if !ceil {
		return room/s + 1, nil
	}
	n := (room+s-1)/s + 1
	if pad > 0 && 2*(n-1)*s >= 2*d+pad {
		n--
	}
	if n < 1 {
		return 0, fmt.Errorf("kernel of %d does not fit into %d along spatial axis %d", k, d+pad, i)
	}
	return n, nil
}

func inferConv(c *call) ([]Type, error) {
	x, w := c.t("x"), c.t("weight")
	n := x.Rank() - 2
	if n < 1 || w.Rank() != x.Rank() {
		return nil, fmt.Errorf("conv of %v with weight %v", x, w)
	}
	groups, err := c.size("groups", 1)
	if err != nil {
		return nil, err
	}
	in, err := times(w.Shape[1], groups)
	if err != nil {
		return nil, err
	}
	if w.Shape[0] >= 0 && w.Shape[0]%groups != 0 || !sameDim(x.Shape[1], in) {
		return nil, fmt.Errorf("weight %v in %d groups does not fit %v", w, groups, x)
	}
	if err := c.optShaped("bias", w.Shape[0]); err != nil {
		return nil, err
	}
	win, err := c.window(n)
	if err != nil {
		return nil, err
	}
	if !c.op.Operand("weight").isKnown() && slices.Max(win.dilations) > 1 {
		return nil, fmt.Errorf("weight is not a constant: it cannot be dilated")
	}
	out := []int{x.Shape[0], w.Shape[0]}
	for i := range n {
		d, err := win.out(i, x.Shape[2+i], w.Shape[2+i], false)
		if err != nil {
			return nil, fmt.Errorf("%w (%v with weight %v)", err, x, w)
		}
		out = append(out, d)
	}
	return one(x.DType, out...)
}

func inferConvTranspose(c *call) ([]Type, error) {
	x, w := c.t("x"), c.t("weight")
	n := x.Rank() - 2
	if n < 1 || w.Rank() != x.Rank() || !sameDim(x.Shape[1], w.Shape[0]) {
		return nil, fmt.Errorf("conv_transpose of %v with weight %v", x, w)
	}
	groups, err := c.size("groups", 1)
	if err != nil {
		return nil, err
	}
	if w.Shape[0] >= 0 && w.Shape[0]%groups != 0 {
		return nil, fmt.Errorf("weight %v does not divide into %d groups", w, groups)
	}
	channels, err := times(w.Shape[1], groups)
	if err != nil {
		return nil, err
	}
	if err := c.optShaped("bias", channels); err != nil {
		return nil, err
	}
	win, err := c.window(n)
	if err != nil {
		return nil, err
	}
	if c.has("output_shape") {
		out, err := c.vecOf("output_shape", x.Rank(), 1)
		if err != nil {
			return nil, err
		}
		if !fits(out[:2], []int{x.Shape[0], channels}) {
			return nil, fmt.Errorf("output_shape is %s, want it to begin with %s", dims(out), dims([]int{x.Shape[0], channels}))
		}
		return one(x.DType, out...)
	}
	out := []int{x.Shape[0], channels}
	for i := range n {
		d, k, s := x.Shape[2+i], w.Shape[2+i], win.strides[i]
		switch {
		case d < 0 || k < 0:
			out = append(out, Dynamic)
			continue
		case d < 1 || k < 1 || d > maxDim/s || k > maxDim/win.dilations[i]:
			return nil, fmt.Errorf("conv_transpose of %v with weight %v: sizes along spatial axis %d", x, w, i)
		case win.padType == "same":
			out = append(out, s*d)
			continue
		}
		d = s*(d-1) + (k-1)*win.dilations[i] + 1 - win.pad[2*i] - win.pad[2*i+1]
		if d < 1 {
			return nil, fmt.Errorf("padding is larger than the result along spatial axis %d", i)
		}
		out = append(out, d)
	}
	return one(x.DType, out...)
}

func inferPool(c *call) ([]Type, error) {
	x := c.t("x")
	n := x.Rank() - 2
	if n < 1 || n > 3 || n > 2 && c.d.Name == "l2_pool" {
		return nil, fmt.Errorf("%s of a %v", c.d.Name, x)
	}
	kernel, err := c.vecOf("kernel_sizes", n, 1)
	if err != nil {
		return nil, err
	}
	win, err := c.window(n)
	if err != nil {
		return nil, err
	}
	ceil, err := c.flag("ceil_mode")
	if err != nil {
		return nil, err
	}
	if ceil {
		if n > 2 || win.padType == "same" {
			return nil, fmt.Errorf("ceil_mode is for one or two spatial axes, without pad_type %q", "same")
		}
		for i := range n {
			if win.pad[2*i] != win.pad[2*i+1] {
				return nil, fmt.Errorf("ceil_mode needs symmetric padding, got %v", win.pad)
			}
		}
	}
	out := slices.Clone(x.Shape[:2])
	for i := range n {
		d, err := win.out(i, x.Shape[2+i], kernel[i], ceil)
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return one(x.DType, out...)
}
