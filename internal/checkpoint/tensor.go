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
	Name  string
	DType safetensors.DType
	Shape []int  // row-major; empty for a scalar
	File  string // path of the file that holds it

	file *safetensors.File
	info safetensors.Info
}

// Len returns the number of elements.
func (t *Tensor) Len() int {
	if t.info.Size == 0 {
		return 0
	}
	return int(t.info.Size * 8 / int64(t.DType.Bits()))
}

// Raw returns the tensor's bytes as they are in the file: row-major, little
// endian, not aligned, read-only, valid until the checkpoint is closed.
// It panics if it is closed already, which is a mistake of the caller.
func (t *Tensor) Raw() []byte {
	b, err := t.file.Bytes(t.Name)
	if err != nil {
		panic(fmt.Sprintf("checkpoint: %v", err))
	}
	return b
}

// Release takes the tensor's bytes out of the process's resident memory. They
// are read from disk again when next used.
func (t *Tensor) Release() { platform.Discard(t.Raw()) }

// elements returns the bytes of the elements [offset, offset+n) of a tensor
// with the given width in bytes.
func (t *Tensor) elements(offset, n, width int) []byte {
	if offset < 0 || offset > t.Len()-n {
		panic(fmt.Sprintf("checkpoint: tensor %q: elements [%d, %d) of %d", t.Name, offset, offset+n, t.Len()))
	}
	return t.Raw()[offset*width : (offset+n)*width]
}

// Float32 sets dst to the values of the elements [offset, offset+len(dst)),
// which is exact. Elements that the tensor does not have, and a type other
// than F32, F16 and BF16 (which [Checkpoint.Tensor] refuses), are mistakes of
// the caller: it panics.
func (t *Tensor) Float32(dst []float32, offset int) {
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
	switch t.DType {
	case safetensors.F32:
		src := t.elements(offset, len(dst), 4)
		for i := range dst {
			b := binary.LittleEndian.Uint32(src[4*i:])
			// From 2^-14 to below 65520, which is nearly all there is in a
			// model, the result is a normal number: round the mantissa and
			// move the exponent.
			if abs := b & 0x7fffffff; abs-0x38800000 < 0x477ff000-0x38800000 {
				dst[i] = uint16(b>>16&0x8000 | (abs+0xfff+(abs>>13&1)-0x38000000)>>13)
			} else {
				dst[i] = loss.narrow(math.Float32frombits(b))
			}
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
