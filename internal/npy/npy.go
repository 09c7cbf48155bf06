package npy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"anemone/mil"
)

const (
	magic = "\x93NUMPY"
	// maxHeader bounds the header's dictionary. NumPy itself refuses more
	// than 10,000 bytes unless told otherwise.
	maxHeader = 10_000
	// maxRank is NumPy's own limit on dimensions.
	maxRank = 64
	// align is the multiple at which the data begins.
	align = 64
	// growth is the number of digits that NumPy leaves room for, so that the
	// dimension that grows can be rewritten in place.
	growth = 21
)

// Header describes a stored array.
type Header struct {
	// DType is the type of the elements: Bool, an integer of 8 to 64 bits,
	// Float16, Float32 or Float64.
	DType mil.DType
	Shape []int // empty for a scalar
	// Fortran says that the elements are stored by columns: the first index
	// runs fastest.
	Fortran bool
	// BigEndian says that the bytes of an element begin with the highest.
	BigEndian bool
}

// Bytes returns the size of the elements in bytes; false if it fits no int.
func (h *Header) Bytes() (int, bool) {
	n, ok := mil.NumElements(h.Shape)
	size := h.DType.Bits() / 8
	if !ok || size == 0 || n > math.MaxInt/size {
		return 0, false
	}
	return n * size, true
}

// Array is an array in memory.
type Array struct {
	DType mil.DType
	Shape []int  // empty for a scalar
	Data  []byte // row-major, little endian
}

var dtypes = map[string]mil.DType{
	"b1": mil.Bool,
	"i1": mil.Int8, "i2": mil.Int16, "i4": mil.Int32, "i8": mil.Int64,
	"u1": mil.UInt8, "u2": mil.UInt16, "u4": mil.UInt32, "u8": mil.UInt64,
	"f2": mil.Float16, "f4": mil.Float32, "f8": mil.Float64,
}

// descr returns the way in which NumPy writes an element type.
func descr(d mil.DType) (string, bool) {
	for code, t := range dtypes {
		if t == d {
			if d.Bits() == 8 {
				return "|" + code, true
			}
			return "<" + code, true
		}
	}
	return "", false
}

// ReadHeader reads the header of a .npy file from r, which then stands at the
// first element.
func ReadHeader(r io.Reader) (*Header, error) {
	var b [12]byte
	if _, err := io.ReadFull(r, b[:10]); err != nil {
		return nil, cutOff(err)
	}
	if string(b[:6]) != magic {
		return nil, fmt.Errorf("not a .npy file: begins with %q, want %q", b[:6], magic)
	}
	major := b[6]
	n := int(binary.LittleEndian.Uint16(b[8:]))
	switch major {
	case 1:
	case 2, 3:
		if _, err := io.ReadFull(r, b[10:12]); err != nil {
			return nil, cutOff(err)
		}
		v := binary.LittleEndian.Uint32(b[8:])
		if v > maxHeader {
			return nil, fmt.Errorf("header of %d bytes exceeds the limit of %d", v, maxHeader)
		}
		n = int(v)
	default:
		return nil, fmt.Errorf("format version %d.%d is unknown, want 1.0 to 3.0", major, b[7])
	}
	if b[7] != 0 {
		return nil, fmt.Errorf("format version %d.%d is unknown, want 1.0 to 3.0", major, b[7])
	}
	if n > maxHeader {
		return nil, fmt.Errorf("header of %d bytes exceeds the limit of %d", n, maxHeader)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, cutOff(err)
	}
	h, err := parseHeader(string(text))
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	return h, nil
}

func cutOff(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the file ends inside the header: it is cut off or is no .npy file")
	}
	return err
}

// Decode reads a whole .npy file. The array's data is a part of b where b
// has it row-major and little endian already.
func Decode(b []byte) (*Array, error) {
	r := bytes.NewReader(b)
	h, err := ReadHeader(r)
	if err != nil {
		return nil, err
	}
	n, ok := h.Bytes()
	if !ok {
		return nil, fmt.Errorf("an array of shape %v and type %v is too large", h.Shape, h.DType)
	}
	b = b[len(b)-r.Len():]
	switch {
	case len(b) < n:
		return nil, fmt.Errorf("shape %v and type %v take %d bytes, but only %d follow the header: the file is cut off", h.Shape, h.DType, n, len(b))
	case len(b) > n:
		return nil, fmt.Errorf("%d bytes follow the array", len(b)-n)
	}
	return h.array(b[:n:n]), nil
}

// array puts stored elements, of the right size, into canonical order. It
// copies where the order differs.
func (h *Header) array(b []byte) *Array {
	a := &Array{DType: h.DType, Shape: h.Shape, Data: b}
	size := h.DType.Bits() / 8
	if h.BigEndian && size > 1 {
		a.Data = make([]byte, len(b))
		for i := 0; i < len(b); i += size {
			for k := range size {
				a.Data[i+k] = b[i+size-1-k]
			}
		}
	}
	if h.Fortran && len(h.Shape) > 1 && len(b) > size {
		a.Data = transpose(a.Data, h.Shape, size)
	}
	return a
}

// transpose returns row-major elements of a column-major array.
func transpose(src []byte, shape []int, size int) []byte {
	dst := make([]byte, len(src))
	stride := make([]int, len(shape)) // of src, in bytes
	s := size
	for i, d := range shape {
		stride[i] = s
		s *= d
	}
	index := make([]int, len(shape))
	off := 0
	for k := 0; k < len(dst); k += size {
		copy(dst[k:k+size], src[off:off+size])
		for i := len(shape) - 1; i >= 0; i-- {
			index[i]++
			off += stride[i]
			if index[i] < shape[i] {
				break
			}
			off -= index[i] * stride[i]
			index[i] = 0
		}
	}
	return dst
}

// Check reports whether the data has the size that type and shape say.
func (a *Array) Check() error {
	if _, ok := descr(a.DType); !ok {
		return fmt.Errorf("arrays of type %v cannot be stored in this format", a.DType)
	}
	if len(a.Shape) > maxRank {
		return fmt.Errorf("%d dimensions, more than the %d of the format", len(a.Shape), maxRank)
	}
	h := Header{DType: a.DType, Shape: a.Shape}
	if n, ok := h.Bytes(); !ok || n != len(a.Data) {
		return fmt.Errorf("array of shape %v and type %v has %d bytes of data", a.Shape, a.DType, len(a.Data))
	}
	return nil
}

// Encode writes a as a .npy file.
func Encode(w io.Writer, a *Array) error {
	if err := a.Check(); err != nil {
		return err
	}
	if _, err := w.Write(a.header()); err != nil {
		return err
	}
	_, err := w.Write(a.Data)
	return err
}

// header returns the bytes of the file before the data.
func (a *Array) header() []byte {
	code, _ := descr(a.DType)
	var b strings.Builder
	fmt.Fprintf(&b, "{'descr': '%s', 'fortran_order': False, 'shape': (", code)
	for i, d := range a.Shape {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprint(&b, d)
		if i < len(a.Shape)-1 || i == 0 {
			b.WriteByte(',')
		}
	}
	b.WriteString("), }")
	if len(a.Shape) > 0 {
		b.WriteString(strings.Repeat(" ", growth-len(fmt.Sprint(a.Shape[0]))))
	}
	const fixed = len(magic) + 2 + 2
	n := b.Len() + 1
	n += align - (fixed+n)%align
	out := make([]byte, 0, fixed+n)
	out = append(out, magic+"\x01\x00"...)
	out = binary.LittleEndian.AppendUint16(out, uint16(n))
	out = append(out, b.String()...)
	for len(out) < fixed+n-1 {
		out = append(out, ' ')
	}
	return append(out, '\n')
}
