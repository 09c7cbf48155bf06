package blob

import (
	"encoding/binary"
	"fmt"

	"anemone/mil"
)

const (
	align      = 64 // of every record and of its data
	headerSize = 64
	recordSize = 64
	version    = 2
	sentinel   = 0xDEADBEEF
)

// Code says the element type of a stored blob.
type Code uint32

// codes maps each storable element type to its code. Not storable are bool,
// string, fp64, int64 and uint64. Codes 16 and 17 are 8-bit floats, which
// this program does not know.
var codes = map[mil.DType]Code{
	mil.Float16:  1,
	mil.Float32:  2,
	mil.UInt8:    3,
	mil.Int8:     4,
	mil.BFloat16: 5,
	mil.Int16:    6,
	mil.UInt16:   7,
	mil.Int4:     8,
	mil.UInt1:    9,
	mil.UInt2:    10,
	mil.UInt4:    11,
	mil.UInt3:    12,
	mil.UInt6:    13,
	mil.Int32:    14,
	mil.UInt32:   15,
}

// CodeOf returns the code of an element type; ok is false if blobs of that
// type do not exist.
func CodeOf(d mil.DType) (c Code, ok bool) {
	c, ok = codes[d]
	return c, ok
}

// DType returns the element type, [mil.InvalidDType] if c is unknown.
func (c Code) DType() mil.DType {
	for d, x := range codes {
		if x == c {
			return d
		}
	}
	return mil.InvalidDType
}

// String returns the name of the element type.
func (c Code) String() string {
	switch d := c.DType(); {
	case d != mil.InvalidDType:
		return d.String()
	case c == 16:
		return "fp8e4m3fn"
	case c == 17:
		return "fp8e5m2"
	}
	return fmt.Sprintf("unknown type code %d", uint32(c))
}

// Record describes one blob of a file.
type Record struct {
	Offset uint64 // of the record: what a program refers to
	Code   Code
	Size   uint64 // of the data in bytes
	Data   uint64 // offset of the data from the start of the file
	// UnusedBits is the number of bits at the end of the last byte that
	// belong to no element: 0 to 7, and only where elements are smaller than
	// a byte.
	UnusedBits uint64
}

func (r Record) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, sentinel)
	b = binary.LittleEndian.AppendUint32(b, uint32(r.Code))
	b = binary.LittleEndian.AppendUint64(b, r.Size)
	b = binary.LittleEndian.AppendUint64(b, r.Data)
	b = binary.LittleEndian.AppendUint64(b, r.UnusedBits)
	return append(b, make([]byte, 32)...)
}

// parseRecord reads the record at off of a file with the bytes b and checks
// that its data lies in the file.
func parseRecord(b []byte, off uint64) (Record, error) {
	size := uint64(len(b))
	bad := func(format string, args ...any) (Record, error) {
		return Record{}, fmt.Errorf("record at offset %d: "+format, append([]any{off}, args...)...)
	}
	switch {
	case off%align != 0 || off < headerSize:
		return bad("records lie at multiples of %d behind the header", align)
	case off > size || size-off < recordSize:
		return bad("beyond the end of the file (%d bytes)", size)
	}
	p := b[off:][:recordSize]
	if s := binary.LittleEndian.Uint32(p); s != sentinel {
		return bad("starts with %#08x, want %#08x: no record there", s, uint32(sentinel))
	}
	r := Record{
		Offset:     off,
		Code:       Code(binary.LittleEndian.Uint32(p[4:])),
		Size:       binary.LittleEndian.Uint64(p[8:]),
		Data:       binary.LittleEndian.Uint64(p[16:]),
		UnusedBits: binary.LittleEndian.Uint64(p[24:]),
	}
	switch {
	case r.Data%align != 0 || r.Data < off+recordSize:
		return bad("its data is at offset %d, want a multiple of %d behind the record", r.Data, align)
	case r.Data > size || r.Size > size-r.Data:
		return bad("its data (%d bytes at offset %d) goes beyond the end of the file (%d bytes)", r.Size, r.Data, size)
	}
	return r, nil
}

// bitsUnused returns how many bits of the last byte of n elements of d stay
// unused.
func bitsUnused(d mil.DType, n int, size int64) uint64 {
	if d.Bits() >= 8 {
		return 0
	}
	return uint64(size*8 - int64(n)*int64(d.Bits()))
}
