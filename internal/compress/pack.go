package compress

import (
	"encoding/binary"
	"io"
)

// pack stores indices of nbits bits each, element i at bit i*nbits counted
// from the lowest bit of the first byte, appending to dst. The bits that
// remain of the last byte are 0.
func pack(dst []byte, index []uint8, nbits int) []byte {
	if nbits == 8 {
		return append(dst, index...)
	}
	// Eight elements make nbits bytes.
	for len(index) >= 8 {
		b := index[:8:8]
		v := uint64(b[0]) |
			uint64(b[1])<<(nbits&63) |
			uint64(b[2])<<(2*nbits&63) |
			uint64(b[3])<<(3*nbits&63) |
			uint64(b[4])<<(4*nbits&63) |
			uint64(b[5])<<(5*nbits&63) |
			uint64(b[6])<<(6*nbits&63) |
			uint64(b[7])<<(7*nbits&63)
		n := len(dst) + nbits
		dst = binary.LittleEndian.AppendUint64(dst, v)[:n]
		index = index[8:]
	}
	if len(index) > 0 {
		var v uint64
		for i, x := range index {
			v |= uint64(x) << (i * nbits)
		}
		n := len(dst) + packedLen(len(index), nbits)
		dst = binary.LittleEndian.AppendUint64(dst, v)[:n]
	}
	return dst
}

// packedLen returns the number of bytes of n elements of nbits bits.
func packedLen(n, nbits int) int { return (n*nbits + 7) / 8 }

// bitWriter joins packed runs that need not end at a byte.
type bitWriter struct {
	w     io.Writer
	n     int64 // bytes written
	carry uint  // bits that wait for the rest of their byte
	have  uint  // how many
	buf   []byte
}

// write appends the first nbits bits of p.
func (b *bitWriter) write(p []byte, nbits int64) error {
	if b.have == 0 && nbits%8 == 0 {
		n, err := b.w.Write(p)
		b.n += int64(n)
		return err
	}
	b.buf = b.buf[:0]
	for _, x := range p {
		m := uint(min(nbits, 8))
		b.carry |= uint(x) << b.have
		if b.have += m; b.have >= 8 {
			b.buf = append(b.buf, byte(b.carry))
			b.carry >>= 8
			b.have -= 8
		}
		nbits -= int64(m)
	}
	n, err := b.w.Write(b.buf)
	b.n += int64(n)
	return err
}

// flush writes the last byte, if there is an unfinished one.
func (b *bitWriter) flush() error {
	if b.have == 0 {
		return nil
	}
	n, err := b.w.Write([]byte{byte(b.carry)})
	b.n += int64(n)
	b.carry, b.have = 0, 0
	return err
}
