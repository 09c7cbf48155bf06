package gguf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
)

var (
	// ErrMissing is what the error of a key that the file does not have wraps.
	ErrMissing = errors.New("missing")

	// ErrType is what the error of a key whose value is of another type than
	// the one asked for wraps, and that of a value that does not fit an int.
	ErrType = errors.New("wrong type")
)

// kind is the type of a value of the metadata, by the format's numbers.
type kind uint32

const (
	kindUint8 kind = iota
	kindInt8
	kindUint16
	kindInt16
	kindUint32
	kindInt32
	kindFloat32
	kindBool
	kindString
	kindArray
	kindUint64
	kindInt64
	kindFloat64
)

// kinds gives names, and widths in bytes: zero for those that vary.
var kinds = [...]struct {
	name  string
	width int
}{
	kindUint8:   {"uint8", 1},
	kindInt8:    {"int8", 1},
	kindUint16:  {"uint16", 2},
	kindInt16:   {"int16", 2},
	kindUint32:  {"uint32", 4},
	kindInt32:   {"int32", 4},
	kindFloat32: {"float32", 4},
	kindBool:    {"bool", 1},
	kindString:  {"string", 0},
	kindArray:   {"array", 0},
	kindUint64:  {"uint64", 8},
	kindInt64:   {"int64", 8},
	kindFloat64: {"float64", 8},
}

func (k kind) known() bool { return uint64(k) < uint64(len(kinds)) }

func (k kind) integer() bool {
	switch k {
	case kindUint8, kindInt8, kindUint16, kindInt16, kindUint32, kindInt32, kindUint64, kindInt64:
		return true
	}
	return false
}

// int decodes an integer; ok is false when it does not fit.
func (k kind) int(b []byte) (n int, ok bool) {
	var v int64
	switch k {
	case kindUint8:
		v = int64(b[0])
	case kindInt8:
		v = int64(int8(b[0]))
	case kindUint16:
		v = int64(binary.LittleEndian.Uint16(b))
	case kindInt16:
		v = int64(int16(binary.LittleEndian.Uint16(b)))
	case kindUint32:
		v = int64(binary.LittleEndian.Uint32(b))
	case kindInt32:
		v = int64(int32(binary.LittleEndian.Uint32(b)))
	case kindUint64:
		u := binary.LittleEndian.Uint64(b)
		if u > math.MaxInt64 {
			return 0, false
		}
		v = int64(u)
	case kindInt64:
		v = int64(binary.LittleEndian.Uint64(b))
	}
	return int(v), int64(int(v)) == v
}

// float decodes a floating-point number.
func (k kind) float(b []byte) float64 {
	if k == kindFloat32 {
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(b))
}

// value says where a value of the metadata is.
type value struct {
	kind  kind
	elem  kind // of an array
	count int  // of an array
	// The value's bytes are [at, end) of the file. A string begins with its
	// length, an array with its first element.
	at, end int
}

func (v value) String() string {
	if v.kind == kindArray {
		return fmt.Sprintf("array of %d %s", v.count, kinds[v.elem].name)
	}
	return kinds[v.kind].name
}

// value checks the value that comes next and says where it is.
func (r *reader) value() (value, error) {
	k, err := r.kind("type of the value")
	if err != nil {
		return value{}, err
	}
	v := value{kind: k, at: r.at}
	if k == kindArray {
		if v.elem, err = r.kind("type of the elements"); err != nil {
			return value{}, err
		}
		n, err := r.u64("number of elements")
		if err != nil {
			return value{}, err
		}
		v.at = r.at
		if v.count, err = r.array(v.elem, n); err != nil {
			return value{}, err
		}
	} else if err := r.scalar(k); err != nil {
		return value{}, err
	}
	v.end = r.at
	return v, nil
}

func (r *reader) kind(what string) (kind, error) {
	n, err := r.u32(what)
	if err != nil {
		return 0, err
	}
	if k := kind(n); k.known() {
		return k, nil
	}
	return 0, fmt.Errorf("%s at byte %d is %d, want at most %d: the file is damaged or newer than this program", what, r.at-4, n, len(kinds)-1)
}

func (r *reader) scalar(k kind) error {
	start := r.at
	if k == kindString {
		n, err := r.u64("length of the string")
		if err != nil {
			return err
		}
		_, err = r.take(n, "string")
		return err
	}
	b, err := r.take(uint64(kinds[k].width), kinds[k].name)
	if err == nil && k == kindBool && b[0] > 1 {
		return fmt.Errorf("bool at byte %d is %d, want 0 or 1", start, b[0])
	}
	return err
}

// array checks n elements and returns their number.
func (r *reader) array(elem kind, n uint64) (int, error) {
	least := uint64(kinds[elem].width)
	switch elem {
	case kindArray:
		// The format has them, but no key that anyone uses does, and ggml
		// refuses them too.
		return 0, errors.New("arrays of arrays are not supported")
	case kindString:
		least = 8
	}
	if n > uint64(r.left())/least {
		return 0, fmt.Errorf("array of %d %s at byte %d reaches past the end of the file, which has %d bytes: it is cut off or damaged", n, kinds[elem].name, r.at, len(r.b))
	}
	if n > maxElements {
		return 0, fmt.Errorf("array of %d %s at byte %d: more than %d elements are not supported", n, kinds[elem].name, r.at, maxElements)
	}
	switch elem {
	case kindString, kindBool:
		for i := range n {
			if err := r.scalar(elem); err != nil {
				return 0, fmt.Errorf("element %d: %w", i, err)
			}
		}
	default:
		r.at += int(n * least)
	}
	return int(n), nil
}

// Keys returns the keys of the metadata in the order of the file.
func (f *File) Keys() []string { return slices.Clone(f.header.keys) }

// Has reports whether there is a value for the key, of any type.
func (f *File) Has(key string) bool {
	_, ok := f.header.values[key]
	return ok
}

// value finds the value of a key; wanted says what the caller can take, and
// want names it for the error.
func (f *File) value(key, want string, wanted func(value) bool) (value, []byte, error) {
	v, ok := f.header.values[key]
	switch {
	case !ok:
		return v, nil, fmt.Errorf("%s: key %q: %w", f.path, key, ErrMissing)
	case !wanted(v):
		return v, nil, fmt.Errorf("%s: key %q: %w: found %s, want %s", f.path, key, ErrType, v, want)
	case f.closed.Load():
		return v, nil, fmt.Errorf("%s: key %q: %w", f.path, key, os.ErrClosed)
	}
	return v, f.data[v.at:v.end], nil
}

// Int returns an integer of any width. Errors of this and the following
// methods wrap [ErrMissing] or [ErrType].
func (f *File) Int(key string) (int, error) {
	v, b, err := f.value(key, "an integer", func(v value) bool { return v.kind.integer() })
	if err != nil {
		return 0, err
	}
	return f.int(key, v.kind, b)
}

func (f *File) int(key string, k kind, b []byte) (int, error) {
	n, ok := k.int(b)
	if !ok {
		return 0, fmt.Errorf("%s: key %q: %w: %d does not fit an int", f.path, key, ErrType, binary.LittleEndian.Uint64(b))
	}
	return n, nil
}

// Float returns a floating-point number. One that is stored as float32 is
// widened: where 1e-6 was meant, that is not 1e-6.
func (f *File) Float(key string) (float64, error) {
	v, b, err := f.value(key, "a floating-point number", func(v value) bool { return v.kind == kindFloat32 || v.kind == kindFloat64 })
	if err != nil {
		return 0, err
	}
	return v.kind.float(b), nil
}

// Bool returns a truth value.
func (f *File) Bool(key string) (bool, error) {
	_, b, err := f.value(key, "a bool", func(v value) bool { return v.kind == kindBool })
	if err != nil {
		return false, err
	}
	return b[0] == 1, nil
}

// String returns a string. The format wants UTF-8, which is not checked here.
func (f *File) String(key string) (string, error) {
	_, b, err := f.value(key, "a string", func(v value) bool { return v.kind == kindString })
	if err != nil {
		return "", err
	}
	return string(b[8:]), nil
}

// array returns the function that accepts arrays of what elem accepts.
func array(elem func(kind) bool) func(value) bool {
	return func(v value) bool { return v.kind == kindArray && elem(v.elem) }
}

// Len returns the number of elements of an array of any type.
func (f *File) Len(key string) (int, error) {
	v, _, err := f.value(key, "an array", array(func(kind) bool { return true }))
	if err != nil {
		return 0, err
	}
	return v.count, nil
}

// Ints returns an array of integers of any width.
func (f *File) Ints(key string) ([]int, error) {
	v, b, err := f.value(key, "an array of integers", array(kind.integer))
	if err != nil {
		return nil, err
	}
	out := make([]int, v.count)
	width := kinds[v.elem].width
	for i := range out {
		if out[i], err = f.int(key, v.elem, b[i*width:]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Floats returns an array of floating-point numbers; see [File.Float].
func (f *File) Floats(key string) ([]float64, error) {
	v, b, err := f.value(key, "an array of floating-point numbers", array(func(k kind) bool { return k == kindFloat32 || k == kindFloat64 }))
	if err != nil {
		return nil, err
	}
	out := make([]float64, v.count)
	width := kinds[v.elem].width
	for i := range out {
		out[i] = v.elem.float(b[i*width:])
	}
	return out, nil
}

// Bools returns an array of truth values.
func (f *File) Bools(key string) ([]bool, error) {
	v, b, err := f.value(key, "an array of bools", array(func(k kind) bool { return k == kindBool }))
	if err != nil {
		return nil, err
	}
	out := make([]bool, v.count)
	for i := range out {
		out[i] = b[i] == 1
	}
	return out, nil
}

// Strings returns an array of strings; see [File.String]. They share one
// piece of memory and outlive the file.
func (f *File) Strings(key string) ([]string, error) {
	v, b, err := f.value(key, "an array of strings", array(func(k kind) bool { return k == kindString }))
	if err != nil {
		return nil, err
	}
	out := make([]string, v.count)
	var all strings.Builder
	all.Grow(len(b) - 8*v.count)
	at := 0
	for range out {
		n := int(binary.LittleEndian.Uint64(b[at:]))
		all.Write(b[at+8 : at+8+n])
		at += 8 + n
	}
	rest := all.String()
	at = 0
	for i := range out {
		n := int(binary.LittleEndian.Uint64(b[at:]))
		out[i], rest = rest[:n], rest[n:]
		at += 8 + n
	}
	return out, nil
}
