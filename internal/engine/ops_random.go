package engine

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// Random numbers come from a PCG generator for every piece of randomPiece
// elements, seeded with the operation's seed and the number of the piece:
// the same seed gives the same numbers in every call and for any number of
// workers. They are not those of Core ML, whose generator is not documented.
// Without a seed, or with a negative one, every call has others.
const randomPiece = 1 << 12

// random emits a step that draws the elements of out, which has n of them,
// or rows of n with the function that draws one.
func (o *opCtx) random(out *val, reads []*val, pieces int, draw func(c *call, r *rand.PCG, piece int)) error {
	seed, err := o.intOr("seed", -1)
	if err != nil {
		return err
	}
	body := func(c *call, piece, _ int) {
		var r rand.PCG
		r.Seed(c.seed, uint64(piece))
		draw(c, &r, piece)
	}
	return o.p.emit(bufsOf(reads...), bufsOf(out), func(c *call) {
		if c.seed = uint64(seed); seed < 0 {
			c.seed = rand.Uint64()
		}
		c.parallel(pieces, body)
	})
}

// unit returns a number of [0, 1) with 53 bits.
func unit(r *rand.PCG) float64 { return float64(r.Uint64()>>11) * 0x1p-53 }

// randomOp draws every element from a distribution with two parameters.
func randomOp(first, second string, def [2]float32, draw func(r *rand.PCG, a, b float64) float64) builder {
	return func(o *opCtx) error {
		ts, err := o.infer()
		if err != nil {
			return err
		}
		shape, err := o.mustInts("shape")
		if err != nil {
			return err
		}
		var p [2]float64
		for i, name := range []string{first, second} {
			if name == "" {
				continue
			}
			f, err := o.floatOr(name, def[i])
			if err != nil {
				return err
			}
			p[i] = float64(f)
		}
		out, err := o.p.fresh(ts[0].DType, shape, false)
		if err != nil {
			return err
		}
		n := out.size()
		err = o.random(out, nil, (n+randomPiece-1)/randomPiece, func(c *call, r *rand.PCG, piece int) {
			d := c.f32(out.buf)[piece*randomPiece : min((piece+1)*randomPiece, n)]
			for i := range d {
				d[i] = float32(draw(r, p[0], p[1]))
			}
		})
		if err != nil {
			return err
		}
		return o.give(out, true)
	}
}

func bernoulli(r *rand.PCG, p, _ float64) float64 {
	if unit(r) < p {
		return 1
	}
	return 0
}

func normal(r *rand.PCG, mean, deviation float64) float64 {
	u, v := 1-unit(r), unit(r)
	return mean + deviation*math.Sqrt(-2*math.Log(u))*math.Cos(2*math.Pi*v)
}

// uniform stays below high also where rounding to float32 would reach it.
func uniform(r *rand.PCG, low, high float64) float64 {
	x := low + (high-low)*unit(r)
	if high > low && float64(float32(x)) >= high {
		return float64(math.Nextafter32(float32(high), float32(low)))
	}
	return x
}

// buildCategorical draws indices of the last axis by their weights: x, or
// its exponential.
func buildCategorical(o *opCtx) error {
	shape, err := o.shapeOf()
	if err != nil {
		return err
	}
	mode, err := o.strOr("mode", "logits")
	if err != nil {
		return err
	}
	x, err := o.dense32(o.x("x"))
	if err != nil {
		return err
	}
	out, err := o.p.fresh(x.dt, shape, false)
	if err != nil {
		return err
	}
	n, size := x.shape()[len(x.shape())-1], shape[len(shape)-1]
	if n == 0 {
		return fmt.Errorf("x of shape %v has no weights", x.shape())
	}
	rows := out.size() / size
	logits := mode == "logits"
	err = o.random(out, []*val{x}, rows, func(c *call, r *rand.PCG, row int) {
		w := c.f32of(x)[row*n : (row+1)*n]
		top := math.Inf(-1)
		for _, v := range w {
			top = max(top, float64(v))
		}
		weight := func(v float32) float64 {
			if logits {
				return math.Exp(float64(v) - top)
			}
			return max(0, float64(v))
		}
		total := 0.0
		for _, v := range w {
			total += weight(v)
		}
		for j := range size {
			left, pick := unit(r)*total, n-1
			for i, v := range w {
				if left -= weight(v); left < 0 {
					pick = i
					break
				}
			}
			c.f32(out.buf)[row*size+j] = float32(pick)
		}
	})
	if err != nil {
		return err
	}
	return o.give(out, true)
}
