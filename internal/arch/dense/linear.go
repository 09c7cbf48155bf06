package dense

import (
	"context"
	"fmt"
)

// Weight is a matrix that lies elsewhere, row-major: its elements are read
// and widened when they are needed. *checkpoint.Tensor is one.
type Weight interface {
	// Float32 sets dst to the elements from offset on. It may be called from
	// several goroutines at once.
	Float32(dst []float32, offset int)
}

const (
	// panelRows weight rows are read at a time, and blockCols of their
	// columns multiplied at a time: 16*256 float64 values are 32 KB, which
	// stay in the first-level cache while all tokens pass by.
	panelRows = 16
	blockCols = 256
)

// Linear sets y = x wᵀ + bias: the linear layer whose weight w is stored as
// [out, in], with in = x.Cols and out = y.Cols, and whose bias, if not nil,
// has out elements. Every weight is read once. Beside x and y it needs, per
// core, memory for 16 rows of w in float32 and 128 bytes for each row of x.
func Linear(ctx context.Context, y, x Matrix, w Weight, bias []float32) error {
	in, out, tokens := x.Cols, y.Cols, x.Rows
	if y.Rows != tokens || bias != nil && len(bias) != out {
		return fmt.Errorf("linear layer from %dx%d to %dx%d with %d biases: the sizes do not fit", x.Rows, in, y.Rows, out, len(bias))
	}
	if tokens == 0 {
		return nil
	}
	panels := (out + panelRows - 1) / panelRows
	return ParallelScratch(ctx, panels, func() *scratch { return newScratch(in, tokens) }, func(s *scratch, p int) error {
		r0 := p * panelRows
		rows := min(panelRows, out-r0)
		w.Float32(s.raw[:rows*in], r0*in)
		s.multiply(x, rows)
		for t := range tokens {
			dst := y.Row(t)[r0:][:rows]
			for r := range dst {
				v := s.sums[t*panelRows+r]
				if bias != nil {
					v += float64(bias[r0+r])
				}
				dst[r] = float32(v)
			}
		}
		return nil
	})
}

// scratch is what one goroutine needs to multiply a panel of weight rows.
type scratch struct {
	raw  []float32 // panelRows x in: the weights as read
	sums []float64 // tokens (an even number) x panelRows
	w    []float64 // panelRows x blockCols: a block of raw, widened
	x    []float64 // 2 x blockCols: the same columns of two tokens
}

func newScratch(in, tokens int) *scratch {
	return &scratch{
		raw:  make([]float32, panelRows*in),
		sums: make([]float64, (tokens+1)/2*2*panelRows),
		w:    make([]float64, panelRows*blockCols),
		x:    make([]float64, 2*blockCols),
	}
}

// multiply sets s.sums to the products of the rows in s.raw with the tokens
// in x. Whatever the shape of the tile, each sum starts at zero and grows by
// one product per column, from the first column to the last.
func (s *scratch) multiply(x Matrix, rows int) {
	in := x.Cols
	clear(s.sums)
	for c0 := 0; c0 < in; c0 += blockCols {
		n := min(blockCols, in-c0)
		x0, x1 := s.x[:n], s.x[blockCols:][:n]
		if x.Rows == 1 {
			// Too few products to widen the weights for.
			widen(x0, x.Data[c0:][:n])
			for r := 0; r < rows; r += 4 {
				// Rows beyond the last hold something older; nobody
				// looks at their sums.
				w := s.raw[r*in+c0:]
				dot4(s.sums[r:], w[:n], w[in:][:n], w[2*in:][:n], w[3*in:][:n], x0)
			}
			continue
		}
		for r := range rows {
			widen(s.w[r*blockCols:][:n], s.raw[r*in+c0:][:n])
		}
		for t := 0; t < x.Rows; t += 2 {
			widen(x0, x.Row(t)[c0:][:n])
			if t+1 < x.Rows {
				widen(x1, x.Row(t + 1)[c0:][:n])
			}
			sums := s.sums[t*panelRows:][:2*panelRows]
			for r := 0; r < rows; r += 2 {
				w := s.w[r*blockCols:][:2*blockCols]
				dot2x2(sums[r:], sums[panelRows+r:], w[:n], w[blockCols:][:n], x0, x1)
			}
		}
	}
}

// dot2x2 adds the products of two weight rows with two tokens: s0 holds the
// sums of the first token, s1 those of the second. More sums at a time make
// the compiler spill registers; 2x2 and unrolled was the fastest tile.
func dot2x2(s0, s1, w0, w1, x0, x1 []float64) {
	n := len(w0)
	w1, x0, x1 = w1[:n], x0[:n], x1[:n]
	s0, s1 = s0[:2], s1[:2]
	a, b, c, d := s0[0], s0[1], s1[0], s1[1]
	k := 0
	for ; k < n-1; k += 2 {
		u, v, p, q := w0[k], w1[k], x0[k], x1[k]
		a += u * p
		b += v * p
		c += u * q
		d += v * q
		u, v, p, q = w0[k+1], w1[k+1], x0[k+1], x1[k+1]
		a += u * p
		b += v * p
		c += u * q
		d += v * q
	}
	for ; k < n; k++ {
		u, v, p, q := w0[k], w1[k], x0[k], x1[k]
		a += u * p
		b += v * p
		c += u * q
		d += v * q
	}
	s0[0], s0[1], s1[0], s1[1] = a, b, c, d
}

// dot4 adds the products of four weight rows with one token to s.
func dot4(s []float64, w0, w1, w2, w3 []float32, x []float64) {
	n := len(x)
	w0, w1, w2, w3 = w0[:n], w1[:n], w2[:n], w3[:n]
	s = s[:4]
	a, b, c, d := s[0], s[1], s[2], s[3]
	for k, v := range x {
		a += float64(w0[k]) * v
		b += float64(w1[k]) * v
		c += float64(w2[k]) * v
		d += float64(w3[k]) * v
	}
	s[0], s[1], s[2], s[3] = a, b, c, d
}

func widen(dst []float64, src []float32) {
	dst = dst[:len(src)]
	for i, v := range src {
		dst[i] = float64(v)
	}
}
