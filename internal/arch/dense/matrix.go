package dense

// Matrix is a row-major float32 matrix without padding; in the references a
// row belongs to a token.
type Matrix struct {
	Rows, Cols int
	// Data holds Rows*Cols elements.
	Data []float32
}

// New returns a zero matrix.
func New(rows, cols int) Matrix {
	return Matrix{Rows: rows, Cols: cols, Data: make([]float32, rows*cols)}
}

// Row returns row i. It shares memory with m.
func (m Matrix) Row(i int) []float32 {
	return m.Data[i*m.Cols : (i+1)*m.Cols : (i+1)*m.Cols]
}

// Slice returns the rows from lo up to hi. They share memory with m.
func (m Matrix) Slice(lo, hi int) Matrix {
	return Matrix{Rows: hi - lo, Cols: m.Cols, Data: m.Data[lo*m.Cols : hi*m.Cols : hi*m.Cols]}
}

// Clone returns a copy of m.
func (m Matrix) Clone() Matrix {
	m.Data = append([]float32(nil), m.Data...)
	return m
}

// Add sets y = a + b, element by element. All have the same shape; y may be
// a or b.
func Add(y, a, b Matrix) {
	for i, v := range b.Data {
		y.Data[i] = a.Data[i] + v
	}
}
