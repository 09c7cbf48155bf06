package predict

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"anemone/internal/checkpoint/safetensors"
	"anemone/internal/float16"
	"anemone/internal/npy"
	"anemone/internal/platform"
	"anemone/internal/runner"
	"anemone/mil"
)

// File is an open file of arrays.
type File struct {
	Path   string
	Arrays []*Array // in the order of the file
	close  func() error
}

// Close closes the file. Its arrays cannot be read after it.
func (f *File) Close() error { return f.close() }

// Format is a file format for arrays.
type Format string

// Formats, by the extension of their files.
const (
	Safetensors Format = ".safetensors"
	NPZ         Format = ".npz"
	NPY         Format = ".npy" // one array, named like the file
	JSON        Format = ".json"
)

// FormatOf returns the format that the extension of a path names.
func FormatOf(path string) (Format, error) {
	switch f := Format(strings.ToLower(filepath.Ext(path))); f {
	case Safetensors, NPZ, NPY, JSON:
		return f, nil
	}
	return "", fmt.Errorf("%s: the name does not end in .safetensors, .npz, .npy or .json", path)
}

// OpenFile opens a file of arrays in the format that its extension names.
// Elements are not read before they are used. Errors begin with the path.
func OpenFile(path string) (*File, error) {
	format, err := FormatOf(path)
	if err != nil {
		return nil, err
	}
	f := &File{Path: path}
	switch format {
	case Safetensors:
		err = f.openSafetensors()
	case NPZ:
		err = f.openNPZ()
	default:
		err = f.openMapped(format)
	}
	if err != nil {
		return nil, err
	}
	for _, a := range f.Arrays {
		a.File = path
	}
	return f, nil
}

// ParseJSON reads arrays from JSON in memory. name stands for a path.
func ParseJSON(name string, b []byte) (*File, error) {
	arrays, err := parseJSON(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for _, a := range arrays {
		a.File = name
	}
	return &File{Path: name, Arrays: arrays, close: func() error { return nil }}, nil
}

var safetensorsTypes = map[mil.DType]safetensors.DType{
	mil.Bool: safetensors.Bool,
	mil.Int8: safetensors.I8, mil.Int16: safetensors.I16, mil.Int32: safetensors.I32, mil.Int64: safetensors.I64,
	mil.UInt8: safetensors.U8, mil.UInt16: safetensors.U16, mil.UInt32: safetensors.U32, mil.UInt64: safetensors.U64,
	mil.Float16: safetensors.F16, mil.BFloat16: safetensors.BF16, mil.Float32: safetensors.F32, mil.Float64: safetensors.F64,
}

func (f *File) openSafetensors() error {
	s, err := safetensors.Open(f.Path)
	if err != nil {
		return err
	}
	f.close = s.Close
	for _, t := range s.Tensors() {
		a := &Array{Name: t.Name, Shape: t.Shape, err: fmt.Errorf("type %s: %w", t.DType, errType)}
		for d, name := range safetensorsTypes {
			if name == t.DType {
				a.DType, a.err = d, nil
			}
		}
		a.load = func() ([]byte, error) { return s.Bytes(t.Name) }
		f.Arrays = append(f.Arrays, a)
	}
	return nil
}

func (f *File) openNPZ() error {
	z, err := npy.OpenZip(f.Path)
	if err != nil {
		return err
	}
	f.close = z.Close
	for _, e := range z.Entries() {
		f.Arrays = append(f.Arrays, &Array{Name: e.Name, DType: e.Header.DType, Shape: e.Header.Shape, err: e.Err, load: func() ([]byte, error) {
			a, err := e.Read()
			if err != nil {
				return nil, err
			}
			return a.Data, nil
		}})
	}
	return nil
}

// openMapped opens a file that is read where it lies.
func (f *File) openMapped(format Format) (err error) {
	file, err := os.Open(f.Path)
	if err != nil {
		return err
	}
	defer file.Close()
	b, err := platform.Mmap(file)
	if err != nil {
		return err
	}
	f.close = func() error { return platform.Munmap(b) }
	if format == JSON {
		f.Arrays, err = parseJSON(b)
	} else {
		var a *npy.Array
		if a, err = npy.Decode(b); err == nil {
			name := filepath.Base(f.Path)
			f.Arrays = []*Array{{
				Name: name[:len(name)-len(NPY)], DType: a.DType, Shape: a.Shape,
				load: func() ([]byte, error) { return a.Data, nil },
			}}
		}
	}
	if err != nil {
		f.close()
		return fmt.Errorf("%s: %w", f.Path, err)
	}
	return nil
}

// Value is an array to be written.
type Value struct {
	Name  string
	DType mil.DType // Bool, Float16, Float32, or an integer
	Shape []int
	Data  []byte // row-major, little endian
}

// Pack returns the stored form of a tensor, with floating-point ones as fp32.
func Pack(name string, t *runner.Tensor) Value { return pack(name, t, false) }

// pack returns the stored form of a tensor: floating-point ones as fp16 if
// half is set and the tensor is declared so, else as fp32. Integers have their
// declared type, int32 where a value does not fit it.
func pack(name string, t *runner.Tensor, half bool) Value {
	v := Value{Name: name, DType: t.DType, Shape: t.Shape}
	le := binary.LittleEndian
	if t.DType.IsFloat() {
		if !half || t.DType != mil.Float16 {
			v.DType = mil.Float32
			v.Data = make([]byte, 0, 4*len(t.Float))
			for _, x := range t.Float {
				v.Data = le.AppendUint32(v.Data, math.Float32bits(x))
			}
			return v
		}
		v.Data = make([]byte, 0, 2*len(t.Float))
		for _, x := range t.Float {
			v.Data = le.AppendUint16(v.Data, float16.FromFloat32(x))
		}
		return v
	}
	lo, hi := limits(t.DType)
	for _, x := range t.Int {
		if int64(x) < lo || int64(x) > hi {
			v.DType = mil.Int32
		}
	}
	switch v.DType.Bits() {
	case 8:
		for _, x := range t.Int {
			v.Data = append(v.Data, byte(x))
		}
	case 16:
		for _, x := range t.Int {
			v.Data = le.AppendUint16(v.Data, uint16(x))
		}
	default:
		v.DType = mil.Int32
		for _, x := range t.Int {
			v.Data = le.AppendUint32(v.Data, uint32(x))
		}
	}
	return v
}

// WriteFile writes arrays to a file in the format that its extension names.
// The file appears whole or not at all, and replaces one that was there.
func WriteFile(path string, values []Value) error {
	format, err := OutputFormat(path)
	if err != nil {
		return err
	}
	switch format {
	case Safetensors:
		named := make([]safetensors.Named, len(values))
		for i, v := range values {
			named[i] = safetensors.Named{Name: v.Name, DType: safetensorsTypes[v.DType], Shape: v.Shape, Data: v.Data}
		}
		return safetensors.Write(path, named, nil)
	case NPZ:
		return replace(path, func(w io.Writer) error { return writeNPZ(w, values) })
	}
	return replace(path, func(w io.Writer) error { return WriteJSON(w, values) })
}

// OutputFormat returns the format that WriteFile uses for a path.
func OutputFormat(path string) (Format, error) {
	f, err := FormatOf(path)
	if err != nil || f == NPY {
		return "", fmt.Errorf("%s: the name does not end in .safetensors, .npz or .json", path)
	}
	return f, nil
}

func writeNPZ(w io.Writer, values []Value) error {
	named := make([]npy.Named, len(values))
	for i, v := range values {
		named[i] = npy.Named{Name: v.Name, Array: npy.Array{DType: v.DType, Shape: v.Shape, Data: v.Data}}
	}
	return npy.WriteZip(w, named)
}

// WriteJSON writes arrays as JSON, each as an object of its dtype, shape and
// data. Numbers have as many digits as it takes to read the same value back.
func WriteJSON(w io.Writer, values []Value) error {
	b := []byte{'{'}
	for i := range values {
		v := &values[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, "\n  "...)
		b = appendString(b, v.Name)
		b = fmt.Appendf(b, `: {"dtype": "%v", "shape": [`, v.DType)
		for k, d := range v.Shape {
			if k > 0 {
				b = append(b, ", "...)
			}
			b = fmt.Append(b, d)
		}
		b = append(b, `], "data": [`...)
		b = appendJSON(b, v)
		b = append(b, "]}"...)
		if _, err := w.Write(b); err != nil {
			return err
		}
		b = b[:0]
	}
	_, err := w.Write(append(b, "\n}\n"...))
	return err
}

// replace lets write fill a temporary file beside path, flushes it to disk
// and renames it to path.
func replace(path string, write func(io.Writer) error) (err error) {
	f, err := createBeside(path)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	w := bufio.NewWriterSize(f, 1<<16)
	if err := write(w); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return platform.SyncDir(filepath.Dir(path))
}

// createBeside is os.CreateTemp with the permissions of os.Create.
func createBeside(path string) (*os.File, error) {
	dir, name := filepath.Split(path)
	for range 100 {
		temp := filepath.Join(dir, fmt.Sprintf(".%s.%08x.tmp", name, rand.Uint32()))
		f, err := os.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
		if !errors.Is(err, os.ErrExist) {
			return f, err
		}
	}
	return nil, fmt.Errorf("no free name for a temporary file beside %s", path)
}
