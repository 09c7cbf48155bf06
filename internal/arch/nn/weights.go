package nn

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"

	"anemone/internal/checkpoint"
	"anemone/internal/compress"
	"anemone/internal/platform"
	"anemone/mil"
)

// Kind says what a weight is for, and so how it may be stored.
type Kind uint8

const (
	// Vector is a norm, a bias or a table of the graph: always fp16.
	Vector Kind = iota
	// Matrix multiplies activations: it may be palettized.
	Matrix
	// Table is looked up by row, as the embeddings are.
	Table
)

// Weight is a promise of rows of a checkpoint's tensor (or of computed
// values), in fp16. It is a [mil.Weight]; the compressor reads it by rows
// instead and chooses another stored form.
type Weight struct {
	name  string
	kind  Kind
	shape []int // stored shape
	rows  int
	cols  int // elements per row
	fill  func(dst []float32, row int)

	release func()
}

// Name returns the name of the tensor that the weight comes from.
func (w *Weight) Name() string { return w.name }

// Kind returns what the weight is for.
func (w *Weight) Kind() Kind { return w.kind }

// Rows returns the number of rows: the output channels of a matrix.
func (w *Weight) Rows() int { return w.rows }

// Cols returns the number of elements of a row.
func (w *Weight) Cols() int { return w.cols }

// Type returns an fp16 tensor type.
func (w *Weight) Type() mil.Type { return mil.TensorOf(mil.Float16, w.shape...) }

// Float32 sets dst to the rows from row on; its length is a multiple of
// Cols.
func (w *Weight) Float32(dst []float32, row int) error {
	return platform.Guard(func() {
		for ; len(dst) > 0; row++ {
			w.fill(dst[:w.cols], row)
			dst = dst[w.cols:]
		}
	})
}

// Float16 sets dst to the rows from row on, rounded to fp16, and returns what
// the rounding lost.
func (w *Weight) Float16(dst []uint16, row int) (compress.Loss, error) {
	var loss compress.Loss
	f := make([]float32, w.cols)
	for ; len(dst) > 0; row++ {
		if err := platform.Guard(func() { w.fill(f, row) }); err != nil {
			return loss, fmt.Errorf("row %d: %w", row, err)
		}
		l, err := compress.FromFloat32(f, w.cols).Float16(dst[:w.cols], 0)
		if err != nil {
			return loss, fmt.Errorf("row %d: %w", row, err)
		}
		loss.Overflow += l.Overflow
		loss.Underflow += l.Underflow
		dst = dst[w.cols:]
	}
	return loss, nil
}

// Release tells the system that the checkpoint's pages that were read for the
// weight are not needed any more. Without it a conversion would, page by page,
// hold the whole checkpoint in memory.
func (w *Weight) Release() {
	if w.release != nil {
		w.release()
	}
}

// WriteTo writes the weight as fp16, as it is when no compressor chooses
// another form.
func (w *Weight) WriteTo(dst io.Writer) (int64, error) {
	h := make([]uint16, w.cols)
	b := make([]byte, 2*w.cols)
	var n int64
	for r := range w.Rows() {
		if _, err := w.Float16(h, r); err != nil {
			return n, fmt.Errorf("%s: %w", w.name, err)
		}
		for i, x := range h {
			binary.LittleEndian.PutUint16(b[2*i:], x)
		}
		m, err := dst.Write(b)
		n += int64(m)
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// Scaled returns the weight times s.
func (w *Weight) Scaled(s float32) *Weight {
	c := *w
	c.fill = func(dst []float32, row int) {
		w.fill(dst, row)
		for i := range dst {
			dst[i] *= s
		}
	}
	return &c
}

// rowsOf reads rows [from, from+...) of a rank-2 tensor.
func rowsOf(t *checkpoint.Tensor, from, cols int) func([]float32, int) {
	return func(dst []float32, row int) { t.Float32(dst, (from+row)*cols) }
}

// Linear returns rows [from, to) of the tensor [out, in] as the weight
// [to-from, in, 1, 1] of a 1x1 convolution.
func Linear(t *checkpoint.Tensor, from, to int) *Weight {
	in := t.Shape[1]
	name := t.Name
	if to-from < t.Shape[0] {
		name = fmt.Sprintf("%s[%d:%d]", name, from, to)
	}
	return &Weight{name: name, kind: Matrix, shape: []int{to - from, in, 1, 1}, rows: to - from, cols: in, fill: rowsOf(t, from, in), release: t.Release}
}

// LinearAll returns the whole tensor [out, in] as the weight of a 1x1
// convolution.
func LinearAll(t *checkpoint.Tensor) *Weight { return Linear(t, 0, t.Shape[0]) }

// Lookup returns the tensor [rows, cols] as a table that is looked up by row.
func Lookup(t *checkpoint.Tensor) *Weight {
	return &Weight{name: t.Name, kind: Table, shape: slices.Clone(t.Shape), rows: t.Shape[0], cols: t.Shape[1], fill: rowsOf(t, 0, t.Shape[1]), release: t.Release}
}

// Vec returns a tensor of one dimension, such as the weight of a norm.
// A nil tensor gives nil.
func Vec(t *checkpoint.Tensor) *Weight {
	if t == nil {
		return nil
	}
	return vector(t.Name, t.Len(), func(dst []float32) { t.Float32(dst, 0) })
}

// A vector is one row, whatever its shape says.
func vector(name string, n int, fill func([]float32)) *Weight {
	return &Weight{name: name, kind: Vector, shape: []int{n}, rows: 1, cols: n, fill: func(dst []float32, _ int) { fill(dst) }}
}

// RotaryTables returns the cosines and sines [length, 2*len(invFreq)] of
// rotary positions 0..length-1, each frequency standing in both halves of a
// row, as rotate-half wants it. Angles are computed in float64 from the
// float32 product that the reference implementations use.
func RotaryTables(name string, length int, invFreq []float32) (cos, sin *Weight) {
	d := len(invFreq)
	table := func(suffix string, f func(float64) float64) *Weight {
		return &Weight{name: name + suffix, kind: Vector, shape: []int{length, 2 * d}, rows: length, cols: 2 * d, fill: func(dst []float32, pos int) {
			for i, q := range invFreq {
				v := float32(f(float64(float32(pos) * q)))
				dst[i], dst[d+i] = v, v
			}
		}}
	}
	return table("_cos", math.Cos), table("_sin", math.Sin)
}

// InvFreq returns the inverse frequencies theta^(-2i/dim), i < dim/2, of
// default rotary embeddings, in float32 as transformers computes them.
func InvFreq(theta float64, dim int) []float32 {
	f := make([]float32, dim/2)
	for i := range f {
		f[i] = float32(1 / math.Pow(theta, float64(float32(2*i)/float32(dim))))
	}
	return f
}

var (
	_ mil.Weight             = (*Weight)(nil)
	_ compress.Float32Source = (*Weight)(nil)
)

func (w *Weight) String() string { return fmt.Sprintf("%s %v", w.name, w.shape) }
