package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"

	"anemone/internal/checkpoint/safetensors"
	"anemone/internal/float16"
	"anemone/internal/platform"
)

// Tensor is one tensor of an open checkpoint. Nothing is read from disk
// before its values are asked for. It may be read from several goroutines at
// once, until the checkpoint is closed.
type Tensor struct {
	Name   string
	DType  safetensors.DType // of its values: F32 for what is dequantized as it is read
	Shape  []int             // row-major; empty for a scalar
	File   string            // path of the file that holds it
	Stored string            // the type in the file: DType, or one like "Q4_K"

	gguf  bool   // the file is GGUF
	alias string // its name in the file, where that is another
	n     int    // elements
	size  int64  // bytes in the file
	bytes func() ([]byte, error)
	// read, if not nil, sets dst to the elements from offset on, which are
	// in the tensor; without it the bytes are elements of type DType.
	read func(dst []float32, offset int) error
}

// label is what errors call the tensor.
func (t *Tensor) label() string {
	if t.alias != "" {
		return fmt.Sprintf("%q (%s)", t.alias, t.Name)
	}
	return fmt.Sprintf("%q", t.Name)
}

// Len returns the number of elements.
func (t *Tensor) Len() int { return t.n }

// Size returns the number of bytes that the tensor takes in the file.
func (t *Tensor) Size() int64 { return t.size }

// Raw returns the tensor's bytes as they are in the file: row-major, little
// endian, not aligned, read-only, valid until the checkpoint is closed. They
// are elements of the type Stored, in the file's own order of rows.
// It panics if the checkpoint is closed already, which is a mistake of the
// caller.
func (t *Tensor) Raw() []byte {
	b, err := t.bytes()
	if err != nil {
		panic(fmt.Sprintf("checkpoint: %v", err))
	}
	return b
}

// Release takes the tensor's bytes out of the process's resident memory. They
// are read from disk again when next used.
func (t *Tensor) Release() { platform.Discard(t.Raw()) }

// check panics unless the tensor has the elements [offset, offset+n).
func (t *Tensor) check(offset, n int) {
	if offset < 0 || offset > t.n-n {
		panic(fmt.Sprintf("checkpoint: tensor %q: elements [%d, %d) of %d", t.Name, offset, offset+n, t.n))
	}
}

// elements returns the bytes of the elements [offset, offset+n) of a tensor
// with the given width in bytes.
func (t *Tensor) elements(offset, n, width int) []byte {
	t.check(offset, n)
	return t.Raw()[offset*width : (offset+n)*width]
}

// decode is read with the checks of elements.
func (t *Tensor) decode(dst []float32, offset int) {
	t.check(offset, len(dst))
	if err := t.read(dst, offset); err != nil {
		panic(fmt.Sprintf("checkpoint: %v", err))
	}
}

// Float32 sets dst to the values of the elements [offset, offset+len(dst)),
// which is exact. Elements that the tensor does not have, and a type other
// than F32, F16 and BF16 (which [Checkpoint.Tensor] refuses), are mistakes of
// the caller: it panics.
func (t *Tensor) Float32(dst []float32, offset int) {
	if t.read != nil {
		t.decode(dst, offset)
		return
	}
	switch t.DType {
	case safetensors.F32:
		src := t.elements(offset, len(dst), 4)
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case safetensors.BF16:
		src := t.elements(offset, len(dst), 2)
		for i := range dst {
			dst[i] = float16.BFloat16ToFloat32(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case safetensors.F16:
		src := t.elements(offset, len(dst), 2)
		for i := range dst {
			dst[i] = float16.ToFloat32(binary.LittleEndian.Uint16(src[2*i:]))
		}
	default:
		panic(fmt.Sprintf("checkpoint: tensor %q has type %s", t.Name, t.DType))
	}
}

// Loss counts the values that a conversion to fp16 could not keep. Rounding
// within fp16's precision is not counted.
type Loss struct {
	Overflow  int // beyond ±65504 after rounding, infinities included: became ±65504
	Underflow int // not zero, but nearer to zero than to ±2^-24: became zero
	NaN       int // stayed NaN
}

// Add adds o's counts to l's.
func (l *Loss) Add(o Loss) {
	l.Overflow += o.Overflow
	l.Underflow += o.Underflow
	l.NaN += o.NaN
}

// Any reports whether anything was lost.
func (l Loss) Any() bool { return l != Loss{} }

// String says what was lost, "none" if nothing.
func (l Loss) String() string {
	if !l.Any() {
		return "none"
	}
	return fmt.Sprintf("%d clamped to ±%d, %d became zero, %d NaN", l.Overflow, float16.Max, l.Underflow, l.NaN)
}

// Float16 sets dst to the elements [offset, offset+len(dst)), rounded to fp16
// (to nearest, ties to even), and counts what that lost. It panics where
// [Tensor.Float32] does.
func (t *Tensor) Float16(dst []uint16, offset int) Loss {
	var loss Loss
	if t.read != nil {
		t.check(offset, len(dst)) // before any part is read
		buf := make([]float32, min(len(dst), 4096))
		for len(dst) > 0 {
			part := buf[:min(len(buf), len(dst))]
			t.decode(part, offset)
			for i, v := range part {
				dst[i] = loss.round(math.Float32bits(v))
			}
			dst, offset = dst[len(part):], offset+len(part)
		}
		return loss
	}
	switch t.DType {
	case safetensors.F32:
		src := t.elements(offset, len(dst), 4)
		for i := range dst {
			dst[i] = loss.round(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case safetensors.BF16:
		src := t.elements(offset, len(dst), 2)
		for i := range dst {
			h := uint32(binary.LittleEndian.Uint16(src[2*i:]))
			// As above; seven bits of mantissa need no rounding.
			if abs := h & 0x7fff; abs-0x3880 < 0x4780-0x3880 {
				dst[i] = uint16(h&0x8000 | (abs-0x3800)<<3)
			} else {
				dst[i] = loss.narrow(float16.BFloat16ToFloat32(uint16(h)))
			}
		}
	case safetensors.F16:
		src := t.elements(offset, len(dst), 2)
		for i := range dst {
			h := binary.LittleEndian.Uint16(src[2*i:])
			if h&float16.Inf == float16.Inf {
				h = loss.narrow(float16.ToFloat32(h))
			}
			dst[i] = h
		}
	default:
		panic(fmt.Sprintf("checkpoint: tensor %q has type %s", t.Name, t.DType))
	}
	return loss
}

// round rounds a value, given by its bits, to fp16 and counts what that loses.
func (l *Loss) round(b uint32) uint16 {
	// From 2^-14 to below 65520, which is nearly all there is in a model, the
	// result is a normal number: round the mantissa and move the exponent.
	if abs := b & 0x7fffffff; abs-0x38800000 < 0x477ff000-0x38800000 {
		return uint16(b>>16&0x8000 | (abs+0xfff+(abs>>13&1)-0x38000000)>>13)
	}
	return l.narrow(math.Float32frombits(b))
}

// narrow rounds any value to fp16 and counts what that loses.
func (l *Loss) narrow(f float32) uint16 {
	h := float16.FromFloat32(f)
	switch abs := h &^ 0x8000; {
	case abs == 0:
		if f != 0 {
			l.Underflow++
		}
	case abs == float16.Inf:
		l.Overflow++
		h-- // the largest finite number, with the sign kept
	case abs > float16.Inf:
		l.NaN++
	}
	return h
}
