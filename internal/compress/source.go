package compress

import (
	"fmt"
	"math"

	"anemone/internal/float16"
)

// Source is a dense matrix to be compressed. It is read by ranges of rows,
// by several goroutines at a time, possibly more than once.
type Source interface {
	// Rows is the number of output channels.
	Rows() int
	// Cols is the number of weights of each.
	Cols() int
	// Float16 sets dst to the rows from row0 on, rounded to fp16, and returns
	// what the rounding lost. The length of dst is a multiple of Cols. The
	// values are finite: larger ones are clamped, and NaN is an error.
	Float16(dst []uint16, row0 int) (Loss, error)
}

// Float32Source is a Source that can also give its values before they are
// rounded to fp16. [Dense] uses it to report the error of rounding.
type Float32Source interface {
	Source
	// Float32 sets dst to the rows from row0 on.
	Float32(dst []float32, row0 int) error
}

// Importance says how much an error of each weight matters, relative to the
// others: the diagonal of the loss's Hessian ("Fisher information"), or of
// the activations' second moments. Like a Source it is read by ranges of
// rows, by several goroutines at a time.
type Importance interface {
	// Float32 sets dst to the importance of the weights of the rows from row0
	// on; finite, and not negative.
	Float32(dst []float32, row0 int) error
}

// Loss counts the values that fp16 cannot hold.
type Loss struct {
	Overflow  int64 // beyond ±65504; they became the nearest finite value
	Underflow int64 // not zero, but became zero
}

func (l *Loss) add(m Loss) {
	l.Overflow += m.Overflow
	l.Underflow += m.Underflow
}

// FromFloat16 returns a Source over fp16 bit patterns in memory, in rows of
// cols values.
func FromFloat16(data []uint16, cols int) Source { return &memory16{data, cols} }

// FromFloat32 returns a Source over float32 values in memory, in rows of cols
// values.
func FromFloat32(data []float32, cols int) Float32Source { return &memory32{data, cols} }

type memory16 struct {
	data []uint16
	cols int
}

func (m *memory16) Rows() int { return rowsOf(len(m.data), m.cols) }
func (m *memory16) Cols() int { return m.cols }
func (m *memory16) Float16(dst []uint16, row0 int) (Loss, error) {
	copy(dst, m.data[row0*m.cols:])
	return Loss{}, nil
}

type memory32 struct {
	data []float32
	cols int
}

func (m *memory32) Rows() int { return rowsOf(len(m.data), m.cols) }
func (m *memory32) Cols() int { return m.cols }
func (m *memory32) Float32(dst []float32, row0 int) error {
	copy(dst, m.data[row0*m.cols:])
	return nil
}

func (m *memory32) Float16(dst []uint16, row0 int) (loss Loss, err error) {
	for i, f := range m.data[row0*m.cols:][:len(dst)] {
		h := float16.FromFloat32(f)
		switch {
		case f != f:
			return loss, fmt.Errorf("row %d, column %d is not a number", row0+i/m.cols, i%m.cols)
		case h&0x7fff == float16.Inf:
			h-- // the largest finite value
			loss.Overflow++
		case h&0x7fff == 0 && f != 0:
			loss.Underflow++
		}
		dst[i] = h
	}
	return loss, nil
}

func rowsOf(n, cols int) int {
	if cols <= 0 {
		return 0
	}
	return n / cols
}

// checkFinite returns an error if w, rows of cols values from row0 on, has an
// infinity or NaN.
func checkFinite(w []uint16, cols, row0 int) error {
	var bad uint16
	for _, h := range w {
		bad |= (h&0x7c00 + 0x0400) & 0x8000 // all bits of the exponent set
	}
	if bad == 0 {
		return nil
	}
	for i, h := range w {
		if h&0x7c00 == 0x7c00 {
			return fmt.Errorf("row %d, column %d is %v, want a finite number", row0+i/cols, i%cols, float16.ToFloat32(h))
		}
	}
	return nil
}

// checkImportance returns an error if w has a value that cannot weigh
// anything.
func checkImportance(w []float32, cols, row0 int) error {
	for i, f := range w {
		if !(f >= 0 && f <= math.MaxFloat32) {
			return fmt.Errorf("importance of row %d, column %d is %v, want a finite number that is not negative", row0+i/cols, i%cols, f)
		}
	}
	return nil
}
