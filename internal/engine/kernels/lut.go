package kernels

import (
	"fmt"
	"math/bits"
)

// LUT is a matrix whose elements are indices into small tables of float32
// values. A table serves a block of rows, and of columns.
type LUT struct {
	rows, cols   int
	bits         int
	rowBlock     int // rows that share tables
	colBlock     int // columns that share a table; cols if all do
	stride       int // floats per table in tables
	tables       []float32
	p4           []uint32 // planes, see the package's documentation
	p2           []uint16
	p1           []uint8
	p8           []uint8
	blocks       int // of 128 columns per row, the last perhaps not full
	tablesPerRow int
}

const blockCols = 128

// planes maps the widths that have a packed form to the size that their
// tables have in memory: kernels index them without checking bounds.
var planes = [9]int{1: 64, 2: 64, 3: 64, 4: 16, 6: 64, 8: 256}

// LUTFits reports whether a matrix can be packed: whether its tables change
// only between blocks of 128 columns.
func LUTFits(cols, colBlock int) bool { return colBlock >= cols || colBlock%blockCols == 0 }

// NewLUT returns an empty matrix with the given tables: one for every
// colBlock columns of every rowBlock rows, row-major, each of 1<<width
// entries. Rows are filled in by Pack.
func NewLUT(rows, cols, width, rowBlock, colBlock int, tables []float32) (*LUT, error) {
	if width < 1 || width > 8 || planes[width] == 0 {
		return nil, fmt.Errorf("no tables of %d bits", width)
	}
	m := &LUT{rows: rows, cols: cols, bits: width, rowBlock: rowBlock, colBlock: min(colBlock, cols), stride: planes[width]}
	if rows < 1 || cols < 1 || rowBlock < 1 || colBlock < 1 || rows%rowBlock != 0 || cols%m.colBlock != 0 || !LUTFits(cols, colBlock) {
		return nil, fmt.Errorf("tables for %dx%d do not fit a matrix of %dx%d", rowBlock, colBlock, rows, cols)
	}
	m.tablesPerRow = cols / m.colBlock
	entries := 1 << width
	n := rows / rowBlock * m.tablesPerRow
	if len(tables) != n*entries {
		return nil, fmt.Errorf("%d table entries, want %d", len(tables), n*entries)
	}
	m.tables = make([]float32, n*m.stride)
	for i := range n {
		copy(m.tables[i*m.stride:], tables[i*entries:(i+1)*entries])
	}
	m.blocks = (cols + blockCols - 1) / blockCols
	n = rows * m.blocks * 16
	switch width {
	case 1:
		m.p1 = make([]uint8, n)
	case 2:
		m.p2 = make([]uint16, n)
	case 3:
		m.p1, m.p2 = make([]uint8, n), make([]uint16, n)
	case 4:
		m.p4 = make([]uint32, n)
	case 6:
		m.p4, m.p2 = make([]uint32, n), make([]uint16, n)
	case 8:
		m.p8 = make([]uint8, rows*cols)
	}
	return m, nil
}

// Pack stores the indices of one row. Rows may be packed concurrently.
func (m *LUT) Pack(row int, idx []uint8) {
	if m.p8 != nil {
		copy(m.p8[row*m.cols:(row+1)*m.cols], idx)
		return
	}
	for b := range m.blocks {
		var part [blockCols]uint8
		copy(part[:], idx[b*blockCols:min((b+1)*blockCols, m.cols)])
		at := (row*m.blocks + b) * 16
		if m.p4 != nil {
			for l := range 16 {
				m.p4[at+l] = uint32(part[l]&15) | uint32(part[l+16]&15)<<4 | uint32(part[l+32]&15)<<8 | uint32(part[l+48]&15)<<12 |
					uint32(part[l+64]&15)<<16 | uint32(part[l+80]&15)<<20 | uint32(part[l+96]&15)<<24 | uint32(part[l+112]&15)<<28
			}
			for i := range part {
				part[i] >>= 4
			}
		}
		if m.p2 != nil {
			for l := range 16 {
				m.p2[at+l] = uint16(part[l]&3) | uint16(part[l+16]&3)<<2 | uint16(part[l+32]&3)<<4 | uint16(part[l+48]&3)<<6 |
					uint16(part[l+64]&3)<<8 | uint16(part[l+80]&3)<<10 | uint16(part[l+96]&3)<<12 | uint16(part[l+112]&3)<<14
			}
			for i := range part {
				part[i] >>= 2
			}
		}
		if m.p1 != nil {
			for l := range 16 {
				var u uint8
				for j := range 8 {
					u |= part[l+16*j] & 1 << j
				}
				m.p1[at+l] = u
			}
		}
	}
}

func (m *LUT) Rows() int { return m.rows }
func (m *LUT) Cols() int { return m.cols }

// Bits returns the width of the indices.
func (m *LUT) Bits() int { return m.bits }

func (m *LUT) Bytes() int64 {
	return int64(4*len(m.tables) + 4*len(m.p4) + 2*len(m.p2) + len(m.p1) + len(m.p8))
}

// table returns the table of a row at a block of columns.
func (m *LUT) table(row, block int) []float32 {
	t := row/m.rowBlock*m.tablesPerRow + min(block*blockCols/m.colBlock, m.tablesPerRow-1)
	return m.tables[t*m.stride : (t+1)*m.stride]
}

// lane returns the 8 indices of a lane, the first in the lowest byte.
func (m *LUT) lane(at int) uint64 {
	switch m.bits {
	case 1:
		return spread1(m.p1[at])
	case 2:
		return spread2(m.p2[at])
	case 3:
		return spread2(m.p2[at]) | spread1(m.p1[at])<<2
	case 4:
		return spread4(m.p4[at])
	}
	return spread4(m.p4[at]) | spread2(m.p2[at])<<4
}

// spread4 puts the 4-bit fields of u in a byte each; spread2 and spread1 do
// so for narrower fields.
func spread4(u uint32) uint64 {
	x := uint64(u)
	x = (x | x<<16) & 0x0000ffff0000ffff
	x = (x | x<<8) & 0x00ff00ff00ff00ff
	return (x | x<<4) & 0x0f0f0f0f0f0f0f0f
}

func spread2(u uint16) uint64 {
	x := uint64(u)
	x = (x | x<<24) & 0x000000ff000000ff
	x = (x | x<<12) & 0x000f000f000f000f
	return (x | x<<6) & 0x0303030303030303
}

func spread1(u uint8) uint64 {
	x := uint64(u)
	x = (x | x<<28) & 0x0000000f0000000f
	x = (x | x<<14) & 0x0003000300030003
	return (x | x<<7) & 0x0101010101010101
}

func (m *LUT) Panel(scratch []float32, r0, r1 int) []float32 {
	for r := r0; r < r1; r++ {
		d := scratch[(r-r0)*m.cols : (r-r0+1)*m.cols]
		for b := range m.blocks {
			m.expand(d[b*blockCols:min((b+1)*blockCols, m.cols)], r, b)
		}
	}
	return scratch[:(r1-r0)*m.cols]
}

// expand writes the elements of a block of a row; d is shorter than a block
// where the row ends.
func (m *LUT) expand(d []float32, row, block int) {
	t := m.table(row, block)
	at := (row*m.blocks + block) * 16
	switch {
	case m.bits == 8:
		t := (*[256]float32)(t)
		for i, k := range m.p8[row*m.cols+block*blockCols:][:len(d)] {
			d[i] = t[k]
		}
	case len(d) < blockCols:
		for i := range d {
			d[i] = t[m.lane(at+i%16)>>(8*(i/16))&0xff]
		}
	case m.bits == 4:
		t, d := (*[16]float32)(t), (*[blockCols]float32)(d)
		for l, u := range m.p4[at : at+16] {
			l &= 15
			d[l] = t[u&15]
			d[l+16] = t[u>>4&15]
			d[l+32] = t[u>>8&15]
			d[l+48] = t[u>>12&15]
			d[l+64] = t[u>>16&15]
			d[l+80] = t[u>>20&15]
			d[l+96] = t[u>>24&15]
			d[l+112] = t[u>>28&15]
		}
	default:
		t, d := (*[64]float32)(t), (*[blockCols]float32)(d)
		for l := range 16 {
			u := m.lane(at + l)
			for j := l; j < blockCols; j += 16 {
				d[j] = t[u&63]
				u >>= 8
			}
		}
	}
}

func (m *LUT) Scratch(n int) int { return n * m.cols }

func (m *LUT) MulVec(_, dst, x []float32, r0, r1 int) {
	x = x[:m.cols]
	var rows [4]int
	var sum [4]float32
	for r := r0; r < r1; r += 4 {
		// Rows beyond the end repeat the last one.
		for i := range rows {
			rows[i] = min(r+i, r1-1)
		}
		sum = [4]float32{}
		switch m.bits {
		case 4:
			m.mul4(&sum, &rows, x)
		case 6:
			m.mul6(&sum, &rows, x)
		case 8:
			m.mul8(&sum, &rows, x)
		default:
			m.mulLanes(&sum, &rows, x)
		}
		copy(dst[r-r0:r1-r0], sum[:])
	}
}

// mul4 multiplies four rows of 4-bit indices.
func (m *LUT) mul4(sum *[4]float32, rows *[4]int, x []float32) {
	for b := range m.cols / blockCols {
		var a0, a1, b0, b1, c0, c1, d0, d1 float32
		ta, tb := (*[16]float32)(m.table(rows[0], b)), (*[16]float32)(m.table(rows[1], b))
		tc, td := (*[16]float32)(m.table(rows[2], b)), (*[16]float32)(m.table(rows[3], b))
		wa, wb := (*[16]uint32)(m.p4[(rows[0]*m.blocks+b)*16:]), (*[16]uint32)(m.p4[(rows[1]*m.blocks+b)*16:])
		wc, wd := (*[16]uint32)(m.p4[(rows[2]*m.blocks+b)*16:]), (*[16]uint32)(m.p4[(rows[3]*m.blocks+b)*16:])
		xs := (*[blockCols]float32)(x[b*blockCols:])
		for l := range 16 {
			ua, ub, uc, ud := wa[l], wb[l], wc[l], wd[l]
			v := xs[l]
			a0 += ta[ua&15] * v
			b0 += tb[ub&15] * v
			c0 += tc[uc&15] * v
			d0 += td[ud&15] * v
			v = xs[l+16]
			a1 += ta[ua>>4&15] * v
			b1 += tb[ub>>4&15] * v
			c1 += tc[uc>>4&15] * v
			d1 += td[ud>>4&15] * v
			v = xs[l+32]
			a0 += ta[ua>>8&15] * v
			b0 += tb[ub>>8&15] * v
			c0 += tc[uc>>8&15] * v
			d0 += td[ud>>8&15] * v
			v = xs[l+48]
			a1 += ta[ua>>12&15] * v
			b1 += tb[ub>>12&15] * v
			c1 += tc[uc>>12&15] * v
			d1 += td[ud>>12&15] * v
			v = xs[l+64]
			a0 += ta[ua>>16&15] * v
			b0 += tb[ub>>16&15] * v
			c0 += tc[uc>>16&15] * v
			d0 += td[ud>>16&15] * v
			v = xs[l+80]
			a1 += ta[ua>>20&15] * v
			b1 += tb[ub>>20&15] * v
			c1 += tc[uc>>20&15] * v
			d1 += td[ud>>20&15] * v
			v = xs[l+96]
			a0 += ta[ua>>24&15] * v
			b0 += tb[ub>>24&15] * v
			c0 += tc[uc>>24&15] * v
			d0 += td[ud>>24&15] * v
			v = xs[l+112]
			a1 += ta[ua>>28&15] * v
			b1 += tb[ub>>28&15] * v
			c1 += tc[uc>>28&15] * v
			d1 += td[ud>>28&15] * v
		}
		sum[0] += a0 + a1
		sum[1] += b0 + b1
		sum[2] += c0 + c1
		sum[3] += d0 + d1
	}
	m.mulTail(sum, rows, x)
}

// mulLanes multiplies four rows of indices that take several planes.
func (m *LUT) mulLanes(sum *[4]float32, rows *[4]int, x []float32) {
	for k := range m.cols / blockCols {
		var a, b, c, d float32
		ta, tb := (*[64]float32)(m.table(rows[0], k)), (*[64]float32)(m.table(rows[1], k))
		tc, td := (*[64]float32)(m.table(rows[2], k)), (*[64]float32)(m.table(rows[3], k))
		pa, pb := (rows[0]*m.blocks+k)*16, (rows[1]*m.blocks+k)*16
		pc, pd := (rows[2]*m.blocks+k)*16, (rows[3]*m.blocks+k)*16
		xs := (*[blockCols]float32)(x[k*blockCols:])
		for l := range 16 {
			ua, ub, uc, ud := m.lane(pa+l), m.lane(pb+l), m.lane(pc+l), m.lane(pd+l)
			for j := l; j < blockCols; j += 16 {
				v := xs[j]
				a += ta[ua&63] * v
				b += tb[ub&63] * v
				c += tc[uc&63] * v
				d += td[ud&63] * v
				ua >>= 8
				ub >>= 8
				uc >>= 8
				ud >>= 8
			}
		}
		sum[0] += a
		sum[1] += b
		sum[2] += c
		sum[3] += d
	}
	m.mulTail(sum, rows, x)
}

// mul6 is mulLanes for 6-bit indices.
func (m *LUT) mul6(sum *[4]float32, rows *[4]int, x []float32) {
	for k := range m.cols / blockCols {
		var a, b, c, d float32
		ta, tb := (*[64]float32)(m.table(rows[0], k)), (*[64]float32)(m.table(rows[1], k))
		tc, td := (*[64]float32)(m.table(rows[2], k)), (*[64]float32)(m.table(rows[3], k))
		pa, pb := (rows[0]*m.blocks+k)*16, (rows[1]*m.blocks+k)*16
		pc, pd := (rows[2]*m.blocks+k)*16, (rows[3]*m.blocks+k)*16
		ha := (*[16]uint16)(m.p2[pa:])
		wa := (*[16]uint32)(m.p4[pa:])
		hb := (*[16]uint16)(m.p2[pb:])
		wb := (*[16]uint32)(m.p4[pb:])
		hc := (*[16]uint16)(m.p2[pc:])
		wc := (*[16]uint32)(m.p4[pc:])
		hd := (*[16]uint16)(m.p2[pd:])
		wd := (*[16]uint32)(m.p4[pd:])
		xs := (*[blockCols]float32)(x[k*blockCols:])
		for l := range 16 {
			ua, ub := spread4(wa[l])|spread2(ha[l])<<4, spread4(wb[l])|spread2(hb[l])<<4
			uc, ud := spread4(wc[l])|spread2(hc[l])<<4, spread4(wd[l])|spread2(hd[l])<<4
			for j := l; j < blockCols; j += 16 {
				v := xs[j]
				a += ta[ua&63] * v
				b += tb[ub&63] * v
				c += tc[uc&63] * v
				d += td[ud&63] * v
				ua >>= 8
				ub >>= 8
				uc >>= 8
				ud >>= 8
			}
		}
		sum[0] += a
		sum[1] += b
		sum[2] += c
		sum[3] += d
	}
	m.mulTail(sum, rows, x)
}

// mulTail adds the columns beyond the last full block.
func (m *LUT) mulTail(sum *[4]float32, rows *[4]int, x []float32) {
	k := m.cols / blockCols
	x = x[k*blockCols:]
	if len(x) == 0 {
		return
	}
	var e [blockCols]float32
	for i, r := range rows {
		m.expand(e[:len(x)], r, k)
		sum[i] += dotInOrder(e[:len(x)], x)
	}
}

// mul8 multiplies four rows of bytes.
func (m *LUT) mul8(sum *[4]float32, rows *[4]int, x []float32) {
	for at := 0; at < m.cols; at += blockCols {
		k := at / blockCols
		ta, tb := (*[256]float32)(m.table(rows[0], k)), (*[256]float32)(m.table(rows[1], k))
		tc, td := (*[256]float32)(m.table(rows[2], k)), (*[256]float32)(m.table(rows[3], k))
		xs := x[at:min(at+blockCols, m.cols)]
		wa, wb := m.p8[rows[0]*m.cols+at:][:len(xs)], m.p8[rows[1]*m.cols+at:][:len(xs)]
		wc, wd := m.p8[rows[2]*m.cols+at:][:len(xs)], m.p8[rows[3]*m.cols+at:][:len(xs)]
		var a, b, c, d float32
		for i, v := range xs {
			a += ta[wa[i]] * v
			b += tb[wb[i]] * v
			c += tc[wc[i]] * v
			d += td[wd[i]] * v
		}
		sum[0] += a
		sum[1] += b
		sum[2] += c
		sum[3] += d
	}
}

// UnpackIndices writes n indices of the given width, packed with the first
// in the lowest bits as programs store them, from element first on.
func UnpackIndices(dst []uint8, packed []byte, width, first, n int) {
	dst = dst[:n]
	bit := first * width
	switch {
	case width == 8:
		copy(dst, packed[first:first+n])
		return
	case width == 4 && bit&7 == 0:
		src := packed[bit>>3:][:n/2]
		for i, b := range src {
			d := dst[2*i : 2*i+2]
			d[0], d[1] = b&15, b>>4
		}
		dst = dst[n&^1:]
		bit += n &^ 1 * 4
	case width == 6 && bit&7 == 0:
		src := packed[bit>>3:]
		for len(dst) >= 4 && len(src) >= 3 {
			u := uint32(src[0]) | uint32(src[1])<<8 | uint32(src[2])<<16
			dst[0], dst[1], dst[2], dst[3] = uint8(u&63), uint8(u>>6&63), uint8(u>>12&63), uint8(u>>18)
			dst, src = dst[4:], src[3:]
			bit += 24
		}
	}
	mask := uint16(1)<<width - 1
	for i := range dst {
		w := uint16(packed[bit>>3])
		if bit&7+width > 8 {
			w |= uint16(packed[bit>>3+1]) << 8
		}
		dst[i] = uint8(w >> (bit & 7) & mask)
		bit += width
	}
}

// Log2 returns the width of indices into a table of n entries, ok if n is a
// power of two.
func Log2(n int) (int, bool) {
	return bits.TrailingZeros(uint(n)), n > 0 && n&(n-1) == 0
}
