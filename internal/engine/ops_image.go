package engine

import (
	"fmt"
	"math"
	"slices"

	"anemone/mil"
)

// sampler tells where the elements of a result lie in an axis that it was
// made from: i is the element, in and out are the sizes. Sizes may be
// fractions, where the axis is a part of another.
type sampler func(i int, in, out float64) float64

// samplers are the sampling modes of MIL's documentation.
var samplers = map[string]sampler{
	"STRICT_ALIGN_CORNERS": func(i int, in, out float64) float64 {
		if out == 1 {
			return 0
		}
		return float64(i) * (in - 1) / (out - 1)
	},
	"ALIGN_CORNERS": func(i int, in, out float64) float64 {
		if out == 1 {
			return (in - 1) / 2
		}
		return float64(i) * (in - 1) / (out - 1)
	},
	"DEFAULT": func(i int, in, out float64) float64 { return float64(i) * in / out },
	"OFFSET_CORNERS": func(i int, in, out float64) float64 {
		d := max(1, in-1) / out
		return 0.5*d + float64(i)*d
	},
	"UNALIGN_CORNERS": func(i int, in, out float64) float64 {
		s := in / out
		return float64(i)*s + 0.5*s - 0.5
	},
}

func (o *opCtx) sampler() (sampler, string, error) {
	mode, err := o.strOr("sampling_mode", "DEFAULT")
	if err != nil {
		return nil, "", err
	}
	s := samplers[mode]
	if s == nil {
		return nil, "", fmt.Errorf("sampling_mode is %q", mode)
	}
	return s, mode, nil
}

// taps are the elements of an axis that an element of the result is made of:
// (1-w) times lo plus w times hi.
type taps struct {
	lo, hi []int
	w      []float32
}

// grid1 computes the taps of an axis that is resized from in to out.
func grid1(s sampler, in, out int) taps {
	t := taps{make([]int, out), make([]int, out), make([]float32, out)}
	for i := range out {
		x := min(max(s(i, float64(in), float64(out)), 0), float64(in-1))
		t.lo[i] = int(x)
		t.hi[i] = min(t.lo[i]+1, in-1)
		t.w[i] = float32(x - float64(t.lo[i]))
	}
	return t
}

// pick is how the one element of a place between two is chosen.
type pick uint8

const (
	both    pick = iota // none is: both count
	before              // as resize_nearest_neighbor does
	closest             // as resize does
)

// nearest1 is grid1 for single elements.
func nearest1(s sampler, p pick, in, out int) []int {
	idx := make([]int, out)
	for i := range out {
		x := s(i, float64(in), float64(out))
		if p == closest {
			x += 0.5
		}
		idx[i] = int(min(max(math.Floor(x), 0), float64(in-1)))
	}
	return idx
}

// resizeAxis interpolates along one axis.
func (o *opCtx) resizeAxis(x *val, axis int, t taps) (*val, error) {
	n, m := x.shape()[axis], len(t.lo)
	inner, outer := product(x.shape()[axis+1:]), product(x.shape()[:axis])
	shape := slices.Clone(x.shape())
	shape[axis] = m
	out, err := o.p.fresh(x.dt, shape, o.constant)
	if err != nil || out.size() == 0 {
		return out, err
	}
	return out, o.each(outer*m, grain/max(inner, 1), []*val{x}, []*val{out}, func(c *call, _, lo, hi int) {
		src, dst := c.f32of(x), c.f32(out.buf)
		for r := lo; r < hi; r++ {
			i, base := r%m, r/m*n
			a := src[(base+t.lo[i])*inner : (base+t.lo[i]+1)*inner]
			b := src[(base+t.hi[i])*inner : (base+t.hi[i]+1)*inner]
			d, w := dst[r*inner:(r+1)*inner], t.w[i]
			if w == 0 {
				copy(d, a)
				continue
			}
			for j, v := range a {
				d[j] = v + (b[j]-v)*w
			}
		}
	})
}

// pickAxis takes the named elements of one axis.
func pickAxis[T number](o *opCtx, x *val, axis int, idx []int) (*val, error) {
	n, m := x.shape()[axis], len(idx)
	inner, outer := product(x.shape()[axis+1:]), product(x.shape()[:axis])
	shape := slices.Clone(x.shape())
	shape[axis] = m
	out, err := o.p.fresh(x.dt, shape, o.constant)
	if err != nil || out.size() == 0 {
		return out, err
	}
	xo := x.v.off
	return out, o.each(outer*m, grain/max(inner, 1), []*val{x}, []*val{out}, func(c *call, _, lo, hi int) {
		src, dst := data[T](c, x.buf)[xo:], data[T](c, out.buf)
		for r := lo; r < hi; r++ {
			copy(dst[r*inner:(r+1)*inner], src[(r/m*n+idx[r%m])*inner:])
		}
	})
}

// resizedTo gives x with its last axes, that many, in the sizes of shape.
func (o *opCtx) resizedTo(shape []int, last int, mode string, p pick) error {
	s, nearest := samplers[mode], p != both
	x, err := o.p.straight(o.x("x"))
	if err != nil {
		return err
	}
	d := x.dt
	if len(shape) != len(x.shape()) || slices.Contains(x.shape(), 0) {
		return fmt.Errorf("x of shape %v does not resize to %v", x.shape(), shape)
	}
	for _, n := range shape {
		if n > maxElements/8 || n < 0 {
			return fmt.Errorf("shape %v", shape)
		}
	}
	if !nearest && !d.IsFloat() {
		if x, err = unary(o, x, mil.Float32, func(dst []float32, x []int32) {
			for i, v := range x {
				dst[i] = float32(v)
			}
		}); err != nil {
			return err
		}
	}
	for a := len(shape) - last; a < len(shape); a++ {
		n, in := shape[a], x.shape()[a]
		if in == n && (nearest || mode != "OFFSET_CORNERS") {
			continue // every mode but that gives x itself
		}
		if int64(n) > o.p.m.opts.maxBytes()/32 {
			return o.p.m.opts.tooBig("a resized axis", int64(n)*32)
		}
		switch {
		case !nearest:
			x, err = o.resizeAxis(x, a, grid1(s, in, n))
		case d.IsFloat():
			x, err = pickAxis[float32](o, x, a, nearest1(s, p, in, n))
		default:
			x, err = pickAxis[int32](o, x, a, nearest1(s, p, in, n))
		}
		if err != nil {
			return err
		}
	}
	if !nearest && !d.IsFloat() {
		if x, err = unary(o, x, d, func(dst []int32, x []float32) {
			for i, v := range x {
				dst[i] = wrap(d, truncate(v))
			}
		}); err != nil {
			return err
		}
	}
	return o.give(x, true)
}

// scaledShape is the shape of the result of an upsampling: sizes times
// factors, rounded down. Where single precision decides how, the declared
// shape does.
func (o *opCtx) scaledShape() ([]int, error) {
	ts, err := o.infer()
	if err != nil {
		return nil, err
	}
	shape := slices.Clone(ts[0].Shape)
	declared := o.op.Results[0].Type.Shape
	for i, name := range []string{"scale_factor_height", "scale_factor_width"} {
		k := len(shape) - 2 + i
		if shape[k] >= 0 {
			continue
		}
		f, err := o.floatOr(name, 1)
		if err != nil {
			return nil, err
		}
		shape[k] = int(math.Floor(float64(f * float32(o.x("x").shape()[k]))))
		if len(declared) == len(shape) && declared[k] >= 0 {
			shape[k] = declared[k]
		}
		if shape[k] < 0 || shape[k] > maxElements {
			return nil, fmt.Errorf("argument %q is %v", name, f)
		}
	}
	return shape, nil
}

func buildUpsampleNearest(o *opCtx) error {
	shape, err := o.scaledShape()
	if err != nil {
		return err
	}
	return o.resizedTo(shape, 2, "DEFAULT", before)
}

func buildUpsampleBilinear(o *opCtx) error {
	shape, err := o.scaledShape()
	if err != nil {
		return err
	}
	align, err := o.boolOr("align_corners", true)
	if err != nil {
		return err
	}
	half, err := o.boolOr("half_pixel_centers", !align)
	if err != nil {
		return err
	}
	mode := "DEFAULT"
	switch {
	case align && half:
		return fmt.Errorf("align_corners and half_pixel_centers exclude each other")
	case align:
		mode = "STRICT_ALIGN_CORNERS"
	case half:
		mode = "UNALIGN_CORNERS"
	}
	return o.resizedTo(shape, 2, mode, both)
}

func buildResizeNearest(o *opCtx) error {
	shape, err := o.shapeOf()
	if err != nil {
		return err
	}
	return o.resizedTo(shape, 2, "DEFAULT", before)
}

func buildResizeBilinear(o *opCtx) error {
	shape, err := o.shapeOf()
	if err != nil {
		return err
	}
	_, mode, err := o.sampler()
	if err != nil {
		return err
	}
	return o.resizedTo(shape, 2, mode, both)
}

func buildResize(o *opCtx) error {
	shape, err := o.shapeOf()
	if err != nil {
		return err
	}
	_, mode, err := o.sampler()
	if err != nil {
		return err
	}
	last, err := o.intOr("resized_dims", 0)
	if err != nil {
		return err
	}
	kind, err := o.strOr("interpolation_mode", "LINEAR")
	if err != nil {
		return err
	}
	if kind == "NEAREST_NEIGHBOR" {
		return o.resizedTo(shape, last, mode, closest)
	}
	return o.resizedTo(shape, last, mode, both)
}

func buildCrop(o *opCtx) error {
	shape, err := o.shapeOf()
	if err != nil {
		return err
	}
	x, err := o.movable(o.x("x"))
	if err != nil {
		return err
	}
	for i, name := range []string{"crop_height", "crop_width"} {
		c, err := o.mustInts(name)
		if err != nil {
			return err
		}
		axis := len(shape) - 2 + i
		if x, err = o.sliced(x, axis, c[0], shape[axis], 1); err != nil {
			return err
		}
	}
	return o.give(x, false)
}

// outsider tells what the elements beyond the edges of a picture are.
type outsider uint8

const (
	padded    outsider = iota // a constant
	clamped                   // the nearest element
	reflected                 // mirrored at the centers of the outermost elements
	symmetric                 // mirrored at their outer edges
)

// fold brings a coordinate into an axis of n elements; padded ones stay as
// they are.
func (e outsider) fold(x float64, n int) float64 {
	last := float64(n - 1)
	switch e {
	case padded:
		return x
	case reflected:
		if n == 1 {
			return 0
		}
		x = math.Mod(math.Abs(x), 2*last)
		if x > last {
			x = 2*last - x
		}
	case symmetric:
		x = math.Mod(math.Abs(x+0.5), 2*float64(n))
		if x > float64(n) {
			x = 2*float64(n) - x
		}
		x -= 0.5
	}
	if x != x {
		return 0
	}
	return min(max(x, 0), last)
}

// picture is one channel of h by w elements.
type picture struct {
	p    []float32
	h, w int
	edge outsider
	pad  float32
}

func (p *picture) at(y, x int) float32 {
	if y < 0 || y >= p.h || x < 0 || x >= p.w {
		return p.pad
	}
	return p.p[y*p.w+x]
}

// far keeps coordinates that are outside in any case within the range of an
// integer.
func far(x float64, n int) int {
	if !(x > -2) { // or not a number
		return -2
	}
	return int(min(x, float64(n+1)))
}

func (p *picture) bilinear(y, x float64) float32 {
	y, x = p.edge.fold(y, p.h), p.edge.fold(x, p.w)
	fy, fx := math.Floor(y), math.Floor(x)
	if !(fy >= -1 && fy <= float64(p.h) && fx >= -1 && fx <= float64(p.w)) {
		return p.pad
	}
	wy, wx := float32(y-fy), float32(x-fx)
	iy, ix := int(fy), int(fx)
	return (p.at(iy, ix)*(1-wx)+p.at2(iy, ix+1)*wx)*(1-wy) + (p.at2(iy+1, ix)*(1-wx)+p.at2(iy+1, ix+1)*wx)*wy
}

// at2 is at, but for folded coordinates never outside: the last element has
// no neighbour, whose part is 0 anyway.
func (p *picture) at2(y, x int) float32 {
	if p.edge != padded {
		y, x = min(y, p.h-1), min(x, p.w-1)
	}
	return p.at(y, x)
}

func (p *picture) nearest(y, x float64) float32 {
	y, x = p.edge.fold(y, p.h), p.edge.fold(x, p.w)
	return p.at(far(math.RoundToEven(y), p.h), far(math.RoundToEven(x), p.w))
}

// pixel returns a coordinate of -1 to 1, or of 0 to 1, in elements.
func pixel(x float64, n int, mode string, align bool) float64 {
	switch mode {
	case "normalized_minus_one_to_one":
		x = (x + 1) / 2
	case "normalized_zero_to_one":
	default:
		return x
	}
	if align {
		return x * float64(n-1)
	}
	return x*float64(n) - 0.5
}

func buildAffine(o *opCtx) error {
	shape, err := o.shapeOf()
	if err != nil {
		return err
	}
	x, err := o.dense32(o.x("x"))
	if err != nil {
		return err
	}
	m, err := o.dense32(o.x("transform_matrix"))
	if err != nil {
		return err
	}
	align, err := o.boolOr("align_corners", true)
	if err != nil {
		return err
	}
	out, err := o.p.fresh(x.dt, shape, o.constant)
	if err != nil {
		return err
	}
	n, ch, h, w := shape[0], shape[1], shape[2], shape[3]
	ih, iw := x.shape()[2], x.shape()[3]
	shared := m.shape()[0] == 1
	err = o.each(n*ch, 1, []*val{x, m}, []*val{out}, func(c *call, _, lo, hi int) {
		for r := lo; r < hi; r++ {
			k := c.f32of(m)
			if !shared {
				k = k[r/ch*6:]
			}
			p := picture{p: c.f32of(x)[r*ih*iw:], h: ih, w: iw}
			dst := c.f32(out.buf)[r*h*w:]
			for i := range h {
				for j := range w {
					u, v := spread1(j, w, align), spread1(i, h, align)
					px := float64(k[0])*u + float64(k[1])*v + float64(k[2])
					py := float64(k[3])*u + float64(k[4])*v + float64(k[5])
					dst[i*w+j] = p.bilinear(pixel(py, ih, "normalized_minus_one_to_one", align), pixel(px, iw, "normalized_minus_one_to_one", align))
				}
			}
		}
	})
	if err != nil {
		return err
	}
	return o.give(out, true)
}

// spread1 returns where element i of n lies between -1 and 1.
func spread1(i, n int, align bool) float64 {
	if align {
		if n == 1 {
			return -1
		}
		return 2*float64(i)/float64(n-1) - 1
	}
	return (2*float64(i)+1)/float64(n) - 1
}

func buildResample(o *opCtx) error {
	shape, err := o.shapeOf()
	if err != nil {
		return err
	}
	x, err := o.dense32(o.x("x"))
	if err != nil {
		return err
	}
	at, err := o.p.straight(o.x("coordinates"))
	if err != nil {
		return err
	}
	kind, err := o.strOr("sampling_mode", "")
	if err != nil {
		return err
	}
	edge, err := o.strOr("padding_mode", "")
	if err != nil {
		return err
	}
	mode, err := o.strOr("coordinates_mode", "")
	if err != nil {
		return err
	}
	align, err := o.boolOr("align_corners", false)
	if err != nil {
		return err
	}
	pad, err := o.floatOr("padding_value", 0)
	if err != nil {
		return err
	}
	mode = lower(mode)
	e := map[string]outsider{"constant": padded, "border": clamped, "reflection": reflected, "symmetric": symmetric}[lower(edge)]
	nearest := lower(kind) == "nearest"
	out, err := o.p.fresh(x.dt, shape, o.constant)
	if err != nil {
		return err
	}
	ch, size := shape[1], shape[2]*shape[3]
	ih, iw := x.shape()[2], x.shape()[3]
	if ih == 0 || iw == 0 {
		return fmt.Errorf("x of shape %v has no elements", x.shape())
	}
	ints := !at.dt.IsFloat()
	err = o.each(shape[0]*ch, 1, []*val{x, at}, []*val{out}, func(c *call, _, lo, hi int) {
		for r := lo; r < hi; r++ {
			p := picture{p: c.f32of(x)[r*ih*iw:], h: ih, w: iw, edge: e, pad: pad}
			dst := c.f32(out.buf)[r*size : (r+1)*size]
			base := r / ch * size * 2
			for i := range dst {
				var px, py float64
				if ints {
					k := c.i32of(at)[base+2*i:]
					px, py = float64(k[0]), float64(k[1])
				} else {
					k := c.f32of(at)[base+2*i:]
					px, py = float64(k[0]), float64(k[1])
				}
				px, py = pixel(px, iw, mode, align), pixel(py, ih, mode, align)
				if nearest {
					dst[i] = p.nearest(py, px)
				} else {
					dst[i] = p.bilinear(py, px)
				}
			}
		}
	})
	if err != nil {
		return err
	}
	return o.give(out, true)
}

// buildCropResize samples boxes of pictures. Before iOS 17 the boxes are
// "roi", with the number of the picture before them, or else for all
// pictures; since then the numbers are an argument of their own.
func buildCropResize(o *opCtx) error {
	shape, err := o.shapeOf()
	if err != nil {
		return err
	}
	x, err := o.dense32(o.x("x"))
	if err != nil {
		return err
	}
	ih, iw := x.shape()[2], x.shape()[3]
	batch, ch := x.shape()[0], x.shape()[1]
	if ih == 0 || iw == 0 || batch == 0 {
		return fmt.Errorf("x of shape %v has no elements", x.shape())
	}
	s, _, err := o.sampler()
	if err != nil {
		return err
	}
	normal, err := o.boolOr("normalized_coordinates", false)
	if err != nil {
		return err
	}
	scale, err := o.floatOr("spatial_scale", 1)
	if err != nil {
		return err
	}
	mode, err := o.strOr("box_coordinate_mode", "CORNERS_HEIGHT_FIRST")
	if err != nil {
		return err
	}
	pad, err := o.floatOr("pad_value", 0)
	if err != nil {
		return err
	}
	boxes, index := o.x("boxes"), o.x("box_indices")
	per, first := 1, 0 // pictures for each box; where its numbers begin
	stride := 4
	if boxes == nil {
		boxes = o.x("roi")
		stride = boxes.shape()[2]
		switch {
		case stride == 5:
			first = 1
			shape[1] = 1 // one picture each
		case stride == 4:
			per = batch
		default:
			return fmt.Errorf("roi has the shape %v, want 4 or 5 numbers for each box", boxes.shape())
		}
	}
	if boxes, err = o.p.straight(boxes); err != nil {
		return err
	}
	n := boxes.shape()[0]
	if boxes.size() != n*stride {
		return fmt.Errorf("boxes of shape %v, want %d numbers each", boxes.shape(), stride)
	}
	if index != nil {
		if index, err = o.p.straight(index); err != nil {
			return err
		}
	}
	out, err := o.p.fresh(x.dt, shape, o.constant)
	if err != nil {
		return err
	}
	r := len(shape)
	h, w := shape[r-2], shape[r-1]
	reads := []*val{x, boxes, index}
	err = o.each(n*per*ch, 1, reads, []*val{out}, func(c *call, _, lo, hi int) {
		for k := lo; k < hi; k++ {
			box, pic := k/ch/per, k/ch%per
			var v [5]float64
			for i := range stride {
				if boxes.dt.IsFloat() {
					v[i] = float64(c.f32of(boxes)[box*stride+i])
				} else {
					v[i] = float64(c.i32of(boxes)[box*stride+i])
				}
			}
			switch {
			case index != nil:
				pic = int(c.i32of(index)[box])
			case first == 1:
				if pic = -1; v[0] >= 0 && v[0] < float64(batch) {
					pic = int(v[0])
				}
			case per == 1:
				pic = box
			}
			if pic < 0 || pic >= batch {
				c.fail(fmt.Errorf("box %d is of a picture that is not among the %d", box, batch))
				return
			}
			y0, y1, x0, x1 := corners(mode, v[first:first+4])
			for _, p := range []*float64{&y0, &y1, &x0, &x1} {
				*p *= float64(scale)
			}
			if normal {
				y0, y1 = y0*float64(ih-1), y1*float64(ih-1)
				x0, x1 = x0*float64(iw-1), x1*float64(iw-1)
			}
			p := picture{p: c.f32of(x)[(pic*ch+k%ch)*ih*iw:], h: ih, w: iw, edge: clamped}
			dst := c.f32(out.buf)[k*h*w:]
			for i := range h {
				y := inBox(s, i, h, y0, y1)
				for j := range w {
					u := inBox(s, j, w, x0, x1)
					if y >= 0 && y <= float64(ih-1) && u >= 0 && u <= float64(iw-1) {
						dst[i*w+j] = p.bilinear(y, u)
					} else {
						dst[i*w+j] = pad
					}
				}
			}
		}
	})
	if err != nil {
		return err
	}
	return o.give(out, true)
}

// inBox returns where element i of n lies in an axis of which a box from lo
// to hi, the centers of its outermost elements, is taken.
func inBox(s sampler, i, n int, lo, hi float64) float64 {
	x := s(i, hi-lo+1, float64(n))
	return lo + min(max(x, min(0, hi-lo)), max(0, hi-lo))
}

// corners returns the first and last row and column of a box.
func corners(mode string, v []float64) (y0, y1, x0, x1 float64) {
	switch mode {
	case "CORNERS_WIDTH_FIRST":
		return v[1], v[3], v[0], v[2]
	case "CENTER_SIZE_HEIGHT_FIRST":
		return v[0] - v[2]/2, v[0] + v[2]/2, v[1] - v[3]/2, v[1] + v[3]/2
	case "CENTER_SIZE_WIDTH_FIRST":
		return v[1] - v[3]/2, v[1] + v[3]/2, v[0] - v[2]/2, v[0] + v[2]/2
	}
	return v[0], v[2], v[1], v[3]
}
