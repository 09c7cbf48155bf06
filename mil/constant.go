package mil

import (
	"bytes"
	"fmt"
	"io"

	"anemone/internal/float16"
)

// Literal is a constant that is written in the program itself. Exactly one of
// the slices is used, chosen by the type: Floats for every floating-point
// type (each value exactly representable in it), Ints for every integer type
// (uint64 by bit pattern), Bools, Strings, in row-major order; Items for the
// elements of lists and tuples and the alternating keys and values of
// dictionaries.
type Literal struct {
	Type    Type
	Floats  []float64
	Ints    []int64
	Bools   []bool
	Strings []string
	Items   []*Literal
}

// Len returns the number of elements that l holds.
func (l *Literal) Len() int {
	return len(l.Floats) + len(l.Ints) + len(l.Bools) + len(l.Strings) + len(l.Items)
}

// Imm returns an immediate value that holds l.
func Imm(l *Literal) *Value { return &Value{Type: l.Type, Literal: l} }

// ImmWeight returns an immediate value that stands for w.
func ImmWeight(w Weight) *Value { return &Value{Type: w.Type(), Weight: w} }

// Ints returns the literal of an int32 vector.
func Ints(v ...int) *Literal {
	l := &Literal{Type: TensorOf(Int32, len(v)), Ints: make([]int64, len(v))}
	for i, x := range v {
		l.Ints[i] = int64(x)
	}
	return l
}

// Int returns the literal of an int32 scalar.
func Int(v int) *Literal { return &Literal{Type: TensorOf(Int32), Ints: []int64{int64(v)}} }

// Bools returns the literal of a bool vector.
func Bools(v ...bool) *Literal { return &Literal{Type: TensorOf(Bool, len(v)), Bools: v} }

// Flag returns the literal of a bool scalar.
func Flag(v bool) *Literal { return &Literal{Type: TensorOf(Bool), Bools: []bool{v}} }

// Str returns the literal of a string scalar.
func Str(v string) *Literal { return &Literal{Type: TensorOf(String), Strings: []string{v}} }

// Half returns the literal of an fp16 scalar, rounded to nearest.
func Half(v float64) *Literal {
	return &Literal{Type: TensorOf(Float16), Floats: []float64{float64(float16.Round(float32(v)))}}
}

// Float returns the literal of an fp32 scalar, rounded to nearest.
func Float(v float64) *Literal {
	return &Literal{Type: TensorOf(Float32), Floats: []float64{float64(float32(v))}}
}

// Weight is a constant whose bytes are written to a file of blobs. It is a
// promise: the type is known at once, the bytes are made when they are asked
// for, and not kept.
//
// Weights are compared with ==; implementations are pointers.
type Weight interface {
	// Type returns the tensor type. Every dimension is known.
	Type() Type
	// WriteTo writes the stored form: row-major, little-endian, sub-byte
	// elements packed with the first element in the lowest bits. It writes
	// exactly Type().ByteSize() bytes, or fails.
	WriteTo(w io.Writer) (int64, error)
}

// A Byter is a weight whose stored form is at hand, as it is when it comes
// from a mapped file. The bytes are not to be changed.
type Byter interface {
	Bytes() ([]byte, error)
}

// WeightBytes returns the stored form of w, without copying if w has it at
// hand.
func WeightBytes(w Weight) ([]byte, error) {
	if b, ok := w.(Byter); ok {
		return b.Bytes()
	}
	var buf bytes.Buffer
	if n, ok := w.Type().ByteSize(); ok && n < 1<<40 {
		buf.Grow(int(n))
	}
	if _, err := w.WriteTo(&buf); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

type bytesWeight struct {
	t Type
	b []byte
}

// NewWeight returns a weight that is held in memory, in its stored form.
func NewWeight(t Type, stored []byte) (Weight, error) {
	if n, ok := t.ByteSize(); !ok || n != int64(len(stored)) {
		return nil, fmt.Errorf("weight of type %v needs %d bytes, got %d", t, n, len(stored))
	}
	return &bytesWeight{t, stored}, nil
}

func (w *bytesWeight) Type() Type             { return w.t }
func (w *bytesWeight) Bytes() ([]byte, error) { return w.b, nil }
func (w *bytesWeight) WriteTo(dst io.Writer) (int64, error) {
	n, err := dst.Write(w.b)
	return int64(n), err
}

type funcWeight struct {
	t     Type
	write func(io.Writer) error
}

// PromiseWeight returns a weight whose stored form is made by write each time
// it is asked for.
func PromiseWeight(t Type, write func(io.Writer) error) Weight { return &funcWeight{t, write} }

func (w *funcWeight) Type() Type { return w.t }
func (w *funcWeight) WriteTo(dst io.Writer) (int64, error) {
	c := &countWriter{w: dst}
	err := w.write(c)
	if want, ok := w.t.ByteSize(); err == nil && (!ok || c.n != want) {
		err = fmt.Errorf("weight of type %v wrote %d bytes, want %d", w.t, c.n, want)
	}
	return c.n, err
}

type countWriter struct {
	w io.Writer
	n int64
}

func (c *countWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
