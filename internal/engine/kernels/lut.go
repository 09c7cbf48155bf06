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
	entries      int // per table, 1 << bits
	tables       []float32
	p4           []uint32 // planes, see the package's documentation
	p2           []uint16
	p1           []uint8
	p8           []uint8
	blocks       int // of 128 columns per row
	tablesPerRow int
}

const blockCols = 128

// LUTFits reports whether a matrix can be packed: whether its tables change
// only between blocks of 128 columns.
func LUTFits(cols, colBlock int) bool { return colBlock >= cols || colBlock%blockCols == 0 }

// NewLUT returns an empty matrix with the given tables: one for every
// colBlock columns of every rowBlock rows, row-major, each of 1<<width
// entries. Rows are filled in by Pack.
func NewLUT(rows, cols, width, rowBlock, colBlock int, tables []float32) (*LUT, error) {
	m := &LUT{rows: rows, cols: cols, bits: width, rowBlock: rowBlock, colBlock: min(colBlock, cols), entries: 1 << width, tables: tables}
	if rows < 1 || cols < 1 || rowBlock < 1 || colBlock < 1 || rows%rowBlock != 0 || cols%m.colBlock != 0 || !LUTFits(cols, colBlock) {
		return nil, fmt.Errorf("tables for %dx%d do not fit a matrix of %dx%d", rowBlock, colBlock, rows, cols)
	}
	m.tablesPerRow = cols / m.colBlock
	if len(tables) != rows/rowBlock*m.tablesPerRow*m.entries {
		return nil, fmt.Errorf("%d table entries, want %d", len(tables), rows/rowBlock*m.tablesPerRow*m.entries)
	}
	m.blocks = (cols + blockCols - 1) / blockCols
	n := rows * m.blocks * 16
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
	default:
		return nil, fmt.Errorf("no tables of %d bits", width)
	}
	return m, nil
}

// Pack stores the indices of one row. Rows may be packed concurrently.
func (m *LUT) Pack(row int, idx []uint8) {
	if m.p8 != nil {
		copy(m.p8[row*m.cols:(row+1)*m.cols], idx)
		return
	}
	base := row * m.blocks * 16
	for c, k := range idx[:m.cols] {
		at := base + c/blockCols*16 + c%16
		j := c % blockCols / 16
		switch m.bits {
		case 1:
			m.p1[at] |= k & 1 << j
		case 2:
			m.p2[at] |= uint16(k&3) << (2 * j)
		case 3:
			m.p2[at] |= uint16(k&3) << (2 * j)
			m.p1[at] |= k >> 2 & 1 << j
		case 4:
			m.p4[at] |= uint32(k&15) << (4 * j)
		case 6:
			m.p4[at] |= uint32(k&15) << (4 * j)
			m.p2[at] |= uint16(k>>4&3) << (2 * j)
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

// index returns the index at step j of lane position at.
func (m *LUT) index(at, j int) int {
	switch m.bits {
	case 1:
		return int(m.p1[at] >> j & 1)
	case 2:
		return int(m.p2[at] >> (2 * j) & 3)
	case 3:
		return int(m.p2[at]>>(2*j)&3 | uint16(m.p1[at]>>j&1)<<2)
	case 4:
		return int(m.p4[at] >> (4 * j) & 15)
	}
	return int(m.p4[at]>>(4*j)&15 | uint32(m.p2[at]>>(2*j)&3)<<4)
}

// table returns the table of a row at a block of columns.
func (m *LUT) table(row, block int) []float32 {
	t := row/m.rowBlock*m.tablesPerRow + min(block*blockCols/m.colBlock, m.tablesPerRow-1)
	return m.tables[t*m.entries : (t+1)*m.entries]
}

func (m *LUT) Panel(scratch []float32, r0, r1 int) []float32 {
	for r := r0; r < r1; r++ {
		m.expand(scratch[(r-r0)*m.cols:(r-r0+1)*m.cols], r)
	}
	return scratch[:(r1-r0)*m.cols]
}

func (m *LUT) MulVec(dst, x []float32, r0, r1 int) {
	for r := r0; r < r1; r++ {
		dst[r-r0] = m.dot(r, x)
	}
}

func (m *LUT) expand(dst []float32, row int) {
	for b := range m.blocks {
		t := m.table(row, b)
		d := dst[b*blockCols : min((b+1)*blockCols, m.cols)]
		if m.p8 != nil {
			src := m.p8[row*m.cols+b*blockCols:]
			for i := range d {
				d[i] = t[src[i]]
			}
			continue
		}
		base := (row*m.blocks + b) * 16
		for i := range d {
			d[i] = t[m.index(base+i%16, i/16)]
		}
	}
}

func (m *LUT) dot(row int, x []float32) float32 {
	var s [4]float32
	for b := range m.blocks {
		t := m.table(row, b)
		xs := x[b*blockCols : min((b+1)*blockCols, m.cols)]
		if m.p8 != nil {
			src := m.p8[row*m.cols+b*blockCols:]
			for i, v := range xs {
				s[i&3] += t[src[i]] * v
			}
			continue
		}
		base := (row*m.blocks + b) * 16
		for i, v := range xs {
			s[i&3] += t[m.index(base+i%16, i/16)] * v
		}
	}
	return (s[0] + s[1]) + (s[2] + s[3])
}

// UnpackIndices writes n indices of the given width, packed with the first
// in the lowest bits as programs store them, from element first on.
func UnpackIndices(dst []uint8, packed []byte, width, first, n int) {
	dst = dst[:n]
	if width == 8 {
		copy(dst, packed[first:first+n])
		return
	}
	mask := uint16(1)<<width - 1
	for i := range dst {
		bit := (first + i) * width
		w := uint16(packed[bit>>3])
		if bit&7+width > 8 {
			w |= uint16(packed[bit>>3+1]) << 8
		}
		dst[i] = uint8(w >> (bit & 7) & mask)
	}
}

// Log2 returns the width of indices into a table of n entries, ok if n is a
// power of two.
func Log2(n int) (int, bool) {
	return bits.TrailingZeros(uint(n)), n > 0 && n&(n-1) == 0
}
