package kernels

// Matrix is a constant matrix in the form in which it is kept in memory.
type Matrix interface {
	Rows() int
	Cols() int
	// Scratch returns how many elements of scratch memory Panel needs for n
	// rows. What MulVec needs is that of one row.
	Scratch(n int) int
	// MulVec sets dst[i] to the product of row r0+i and x, for rows r0 to
	// r1. x has Cols() elements, dst r1-r0.
	MulVec(scratch, dst, x []float32, r0, r1 int)
	// Panel returns rows r0 to r1 as float32, row-major. They may lie in
	// scratch.
	Panel(scratch []float32, r0, r1 int) []float32
	// Bytes returns how much memory the matrix holds that is its own, which
	// does not count bytes of a mapped file.
	Bytes() int64
}

// F32 is a float32 matrix.
type F32 struct {
	data       []float32
	rows, cols int
}

// NewF32 returns a matrix over data, which is kept.
func NewF32(data []float32, rows, cols int) *F32 { return &F32{data[:rows*cols], rows, cols} }

func (m *F32) Rows() int    { return m.rows }
func (m *F32) Cols() int    { return m.cols }
func (m *F32) Bytes() int64 { return 0 }

func (m *F32) Scratch(int) int { return 0 }

func (m *F32) MulVec(_, dst, x []float32, r0, r1 int) {
	mulVecF32(dst[:r1-r0], x[:m.cols], m.data[r0*m.cols:r1*m.cols], m.cols)
}

func (m *F32) Panel(_ []float32, r0, r1 int) []float32 {
	return m.data[r0*m.cols : r1*m.cols]
}

// F16 is a matrix of fp16 bit patterns.
type F16 struct {
	data       []uint16
	rows, cols int
}

// NewF16 returns a matrix over data, which is kept.
func NewF16(data []uint16, rows, cols int) *F16 { return &F16{data[:rows*cols], rows, cols} }

func (m *F16) Rows() int    { return m.rows }
func (m *F16) Cols() int    { return m.cols }
func (m *F16) Bytes() int64 { return 0 }

func (m *F16) Scratch(n int) int { return n * m.cols }

func (m *F16) MulVec(_, dst, x []float32, r0, r1 int) {
	var sum [4]float32
	for r := r0; r < r1; {
		if r+4 <= r1 {
			dotF16((*[4]float32)(dst[r-r0:]), x[:m.cols], m.data[r*m.cols:], m.cols)
			r += 4
			continue
		}
		dotF16(&sum, x[:m.cols], m.data[r*m.cols:], 0) // one row, four times
		dst[r-r0] = sum[0]
		r++
	}
}

func (m *F16) Panel(scratch []float32, r0, r1 int) []float32 {
	src := m.data[r0*m.cols : r1*m.cols]
	scratch = scratch[:len(src)]
	Widen(scratch, src)
	return scratch
}
