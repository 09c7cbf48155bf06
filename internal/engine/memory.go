package engine

import (
	"unsafe"

	"anemone/mil"
)

// elem is how a buffer keeps its elements.
type elem uint8

const (
	elemF32 elem = iota // every floating-point value that is computed
	elemI32             // every integer and bool value
	elemF16             // large fp16 constants, as they are stored
)

// elemOf returns how computed values of a type are kept.
func elemOf(d mil.DType) elem {
	if d.IsFloat() {
		return elemF32
	}
	return elemI32
}

// space is where a buffer lives.
type space uint8

const (
	spaceArena space = iota // of the call
	spaceConst              // of the plan
	spaceInput              // the caller's tensor
	spaceState              // the caller's state
)

// buf is a stretch of memory. Arena buffers get their place when all steps
// are known; until then they are told apart by pointer.
type buf struct {
	elem  elem
	space space
	n     int
	off   int // in the arena
	idx   int // of the input or state
	// constants
	f []float32
	i []int32
	h []uint16
	// steps that touch an arena buffer first and last
	first, last int
	counted     bool // in the heap of an interpreted call
}

// f32 returns the elements of a float buffer.
func (c *call) f32(b *buf) []float32 {
	switch b.space {
	case spaceArena:
		return c.f[b.off : b.off+b.n : b.off+b.n]
	case spaceConst:
		return b.f
	case spaceInput:
		return c.in[b.idx].Float
	}
	return c.st[b.idx].f
}

// i32 returns the elements of an integer buffer.
func (c *call) i32(b *buf) []int32 {
	switch b.space {
	case spaceArena:
		return c.i[b.off : b.off+b.n : b.off+b.n]
	case spaceConst:
		return b.i
	case spaceInput:
		return c.in[b.idx].Int
	}
	return c.st[b.idx].i
}

// f32of and i32of return the elements of a straight value.
func (c *call) f32of(v *val) []float32 { return c.f32(v.buf)[v.v.off:] }
func (c *call) i32of(v *val) []int32   { return c.i32(v.buf)[v.v.off:] }

// number is an element type that steps compute with.
type number interface{ float32 | int32 }

// data returns the elements of a buffer that keeps T.
func data[T number](c *call, b *buf) []T {
	if b.elem == elemI32 {
		s := c.i32(b)
		return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(s))), len(s))
	}
	s := c.f32(b)
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(s))), len(s))
}

// temp returns n elements of the slot's scratch memory as T.
func temp[T number](c *call, slot, at, n int) []T {
	s := c.scratch[slot][at : at+n : at+n]
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(s))), len(s))
}

// castF16 and castF32 reinterpret the bytes of a mapped file, if they are
// aligned. All systems that Go code for this program is built for are
// little-endian, like the files.
func castF16(b []byte, n int) ([]uint16, bool) {
	if len(b) < 2*n || n == 0 || uintptr(unsafe.Pointer(unsafe.SliceData(b)))%2 != 0 {
		return nil, false
	}
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(b))), n), true
}

func castF32(b []byte, n int) ([]float32, bool) {
	if len(b) < 4*n || n == 0 || uintptr(unsafe.Pointer(unsafe.SliceData(b)))%4 != 0 {
		return nil, false
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), n), true
}

// bytesOf returns scratch memory as n bytes.
func bytesOf(s []float32, n int) []uint8 {
	return unsafe.Slice((*uint8)(unsafe.Pointer(unsafe.SliceData(s))), 4*len(s))[:n]
}
