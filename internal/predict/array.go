package predict

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"anemone/internal/float16"
	"anemone/internal/runner"
	"anemone/mil"
)

// Array is an array of a file. Its elements are read when they are used.
type Array struct {
	Name string
	File string // that it comes from
	// DType is the stored type. In JSON it is what the numbers look like:
	// Int64 if all are whole, Float64, or Bool.
	DType mil.DType
	Shape []int // empty for a scalar

	text bool // load gives JSON
	load func() ([]byte, error)
	err  error // why it cannot be read
}

func (a *Array) String() string { return fmt.Sprintf("%q of %s", a.Name, a.File) }

// data returns the elements: row-major and little endian, or as JSON.
func (a *Array) data() ([]byte, error) {
	if a.err != nil {
		return nil, a.err
	}
	b, err := a.load()
	if err != nil {
		return nil, err
	}
	if size, ok := mil.TensorOf(a.DType, a.Shape...).ByteSize(); !a.text && (!ok || size != int64(len(b))) {
		return nil, fmt.Errorf("%d bytes for shape %v and type %v", len(b), a.Shape, a.DType)
	}
	return b, nil
}

// Conversion counts what became of floating-point values whose type changed.
// Decimals in JSON have no type: they become the nearest value and count only
// where they fall off the range.
type Conversion struct {
	Rounded   int `json:"rounded,omitempty"`   // to a value near by
	Overflow  int `json:"overflow,omitempty"`  // finite, became infinite
	Underflow int `json:"underflow,omitempty"` // not zero, became zero
}

// Any reports whether any value changed.
func (c Conversion) Any() bool { return c != Conversion{} }

// String says what changed, such as "12 values rounded".
func (c Conversion) String() string {
	s := ""
	for _, x := range []struct {
		n    int
		what string
	}{{c.Rounded, "rounded"}, {c.Overflow, "became infinite"}, {c.Underflow, "became zero"}} {
		if x.n == 0 {
			continue
		}
		if s != "" {
			s += ", "
		}
		s += fmt.Sprintf("%d %s", x.n, x.what)
	}
	return s
}

// narrow returns x as an fp16 or fp32 value and counts what that changes;
// roundings only if typed.
func (c *Conversion) narrow(x float64, half, typed bool) float32 {
	y := float32(x)
	if half {
		y = toHalf(x)
	}
	switch f := float64(y); {
	case f == x || x != x:
	case math.IsInf(f, 0):
		c.Overflow++
	case f == 0:
		c.Underflow++
	case typed:
		c.Rounded++
	}
	return y
}

// toHalf rounds to fp16 once. (By way of float32 it would be twice: a value
// just above the middle of two fp16 values would first become the middle.)
func toHalf(x float64) float32 {
	y := float32(x)
	if f := float64(y); f != x && x == x && !math.IsInf(f, 0) {
		// Towards zero, with the lowest bit set: on the right side of any
		// middle.
		b := math.Float32bits(y)
		if math.Abs(f) > math.Abs(x) {
			b--
		}
		y = math.Float32frombits(b | 1)
	}
	return float16.Round(y)
}

// number is one element: a float if float is set, else an integer, i or (if
// it is above all int64) u.
type number struct {
	float bool
	f     float64
	i     int64
	u     uint64
}

func (n number) String() string {
	switch {
	case n.float:
		return strconv.FormatFloat(n.f, 'g', -1, 64)
	case n.u > 0:
		return strconv.FormatUint(n.u, 10)
	}
	return strconv.FormatInt(n.i, 10)
}

func whole(i int64) number { return number{i: i} }

func unsigned(u uint64) number {
	if u > math.MaxInt64 {
		return number{u: u}
	}
	return number{i: int64(u)}
}

// value returns n as a float64, and whether it is exactly that.
func (n number) value() (float64, bool) {
	switch {
	case n.float:
		return n.f, true
	case n.u > 0:
		f := float64(n.u)
		return f, f < 1<<64 && uint64(f) == n.u
	}
	f := float64(n.i)
	return f, f < 1<<63 && int64(f) == n.i
}

// integer returns n as an int64 if it is one.
func (n number) integer() (int64, bool) {
	switch {
	case n.float:
		return int64(n.f), n.f >= -1<<63 && n.f < 1<<63 && n.f == math.Trunc(n.f)
	case n.u > 0:
		return 0, false
	}
	return n.i, true
}

var errType = errors.New("elements of this type cannot be used: want bool, integers, or floating-point numbers of 16 to 64 bits")

// element returns the function that reads stored elements of type d.
func element(d mil.DType) (func(b []byte) number, error) {
	le := binary.LittleEndian
	float := func(f float64) number { return number{float: true, f: f} }
	switch d {
	case mil.Bool:
		return func(b []byte) number {
			if b[0] != 0 {
				return whole(1)
			}
			return whole(0)
		}, nil
	case mil.Int8:
		return func(b []byte) number { return whole(int64(int8(b[0]))) }, nil
	case mil.Int16:
		return func(b []byte) number { return whole(int64(int16(le.Uint16(b)))) }, nil
	case mil.Int32:
		return func(b []byte) number { return whole(int64(int32(le.Uint32(b)))) }, nil
	case mil.Int64:
		return func(b []byte) number { return whole(int64(le.Uint64(b))) }, nil
	case mil.UInt8:
		return func(b []byte) number { return whole(int64(b[0])) }, nil
	case mil.UInt16:
		return func(b []byte) number { return whole(int64(le.Uint16(b))) }, nil
	case mil.UInt32:
		return func(b []byte) number { return whole(int64(le.Uint32(b))) }, nil
	case mil.UInt64:
		return func(b []byte) number { return unsigned(le.Uint64(b)) }, nil
	case mil.Float16:
		return func(b []byte) number { return float(float64(float16.ToFloat32(le.Uint16(b)))) }, nil
	case mil.BFloat16:
		return func(b []byte) number { return float(float64(float16.BFloat16ToFloat32(le.Uint16(b)))) }, nil
	case mil.Float32:
		return func(b []byte) number { return float(float64(math.Float32frombits(le.Uint32(b)))) }, nil
	case mil.Float64:
		return func(b []byte) number { return float(math.Float64frombits(le.Uint64(b))) }, nil
	}
	return nil, errType
}

// each calls visit with every element, in order. bits is the precision to
// which decimals of JSON are read.
func (a *Array) each(b []byte, bits int, visit func(i int, n number) error) error {
	if a.text {
		return eachJSON(b, bits, visit)
	}
	get, err := element(a.DType)
	if err != nil {
		return err
	}
	size := a.DType.Bits() / 8
	for i := 0; i*size < len(b); i++ {
		if err := visit(i, get(b[i*size:])); err != nil {
			return err
		}
	}
	return nil
}

// floats returns the elements as fp16 or fp32 values.
func (a *Array) floats(half bool) ([]float32, Conversion, error) {
	var c Conversion
	b, err := a.data()
	if err != nil {
		return nil, c, err
	}
	n, _ := mil.NumElements(a.Shape)
	dst := make([]float32, n)
	if a.DType == mil.Float32 && !a.text && !half { // the usual case
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
		return dst, c, nil
	}
	bits := 32
	if half {
		bits = 64
	}
	err = a.each(b, bits, func(i int, x number) error {
		f, exact := x.value()
		dst[i] = c.narrow(f, half, !a.text)
		if !x.float && (!exact || float64(dst[i]) != f) && !a.text {
			t := mil.Float32
			if half {
				t = mil.Float16
			}
			return fmt.Errorf("%v%s is an integer that %v cannot hold: convert the array to floating point if rounding is meant", x, a.place(i), t)
		}
		return nil
	})
	return dst, c, err
}

// limits of the integer types of features.
func limits(d mil.DType) (lo, hi int64) {
	switch {
	case d == mil.Bool:
		return 0, 1
	case d.IsUnsigned() && d.Bits() < 32:
		return 0, 1<<d.Bits() - 1
	case d.IsInt() && d.Bits() < 32:
		return -1 << (d.Bits() - 1), 1<<(d.Bits()-1) - 1
	}
	return math.MinInt32, math.MaxInt32
}

// ints returns the elements as integers of a type.
func (a *Array) ints(d mil.DType) ([]int32, error) {
	b, err := a.data()
	if err != nil {
		return nil, err
	}
	n, _ := mil.NumElements(a.Shape)
	dst := make([]int32, n)
	lo, hi := limits(d)
	err = a.each(b, 64, func(i int, x number) error {
		v, ok := x.integer()
		if !ok || v < lo || v > hi {
			return fmt.Errorf("%v%s is not an integer from %d to %d, as %v needs", x, a.place(i), lo, hi, d)
		}
		dst[i] = int32(v)
		return nil
	})
	return dst, err
}

// place says where an element is: " at [0 3]", nothing for a scalar.
func (a *Array) place(i int) string {
	if len(a.Shape) == 0 {
		return ""
	}
	at := make([]int, len(a.Shape))
	for k := len(at) - 1; k >= 0; k-- {
		at[k] = i % a.Shape[k]
		i /= a.Shape[k]
	}
	return fmt.Sprintf(" at %v", at)
}

// Tensor reads the array as it is, in the types that tensors have: float64 is
// rounded to float32, and integers have to fit int32.
func (a *Array) Tensor() (*runner.Tensor, error) {
	t := &runner.Tensor{DType: a.DType, Shape: a.Shape}
	var err error
	switch {
	case a.err != nil:
		return nil, a.err
	case a.DType.IsFloat():
		if a.DType != mil.Float16 {
			t.DType = mil.Float32
		}
		t.Float, _, err = a.floats(a.DType == mil.Float16)
	default:
		if a.DType != mil.Bool {
			t.DType = mil.Int32
		}
		t.Int, err = a.ints(t.DType)
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

// squeezed returns a shape without its dimensions of size 1.
func squeezed(shape []int) []int {
	return slices.DeleteFunc(slices.Clone(shape), func(d int) bool { return d == 1 })
}
