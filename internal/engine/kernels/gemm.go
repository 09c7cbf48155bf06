package kernels

// Dot returns the product of a and the first len(a) elements of b.
func Dot(a, b []float32) float32 {
	b = b[:len(a)]
	var s0, s1, s2, s3, s4, s5, s6, s7 float32
	for len(a) >= 8 && len(b) >= 8 {
		x, y := (*[8]float32)(a), (*[8]float32)(b)
		s0 += x[0] * y[0]
		s1 += x[1] * y[1]
		s2 += x[2] * y[2]
		s3 += x[3] * y[3]
		s4 += x[4] * y[4]
		s5 += x[5] * y[5]
		s6 += x[6] * y[6]
		s7 += x[7] * y[7]
		a, b = a[8:], b[8:]
	}
	for i, x := range a {
		s0 += x * b[i]
	}
	return ((s0 + s4) + (s1 + s5)) + ((s2 + s6) + (s3 + s7))
}

// mulVecF32 sets dst[i] to the product of row i of w and x.
func mulVecF32(dst, x, w []float32, cols int) {
	for i := range dst {
		dst[i] = Dot(w[i*cols:(i+1)*cols], x)
	}
}

// MulNT multiplies x, m rows of k elements that are ldx apart, by the
// transpose of w, n rows of k elements that are ldw apart: dst[i*ldd+j] is
// the product of row i of x and row j of w.
func MulNT(dst []float32, ldd int, x []float32, ldx, m int, w []float32, ldw, n, k int) {
	if k == 0 {
		for i := range m {
			clear(dst[i*ldd : i*ldd+n])
		}
		return
	}
	for j := 0; j < n; j += 4 {
		nb := min(4, n-j)
		for i := 0; i < m; i += 2 {
			mb := min(2, m-i)
			if nb == 4 && mb == 2 {
				dot2x4(dst[i*ldd+j:], ldd, x[i*ldx:], ldx, w[j*ldw:], ldw, k)
				continue
			}
			for a := i; a < i+mb; a++ {
				for b := j; b < j+nb; b++ {
					dst[a*ldd+b] = dotTail(x[a*ldx:a*ldx+k], w[b*ldw:b*ldw+k])
				}
			}
		}
	}
}

// dotTail sums in the order of dot2x4.
func dotTail(a, b []float32) float32 {
	b = b[:len(a)]
	var s float32
	for i, x := range a {
		s += x * b[i]
	}
	return s
}

func dot2x4(dst []float32, ldd int, x []float32, ldx int, w []float32, ldw, k int) {
	x0 := x[:k]
	x1 := x[ldx : ldx+k][:len(x0)]
	w0 := w[:k][:len(x0)]
	w1 := w[ldw : ldw+k][:len(x0)]
	w2 := w[2*ldw : 2*ldw+k][:len(x0)]
	w3 := w[3*ldw : 3*ldw+k][:len(x0)]
	var s00, s01, s02, s03, s10, s11, s12, s13 float32
	for i, a := range x0 {
		b := x1[i]
		c := w0[i]
		s00 += a * c
		s10 += b * c
		c = w1[i]
		s01 += a * c
		s11 += b * c
		c = w2[i]
		s02 += a * c
		s12 += b * c
		c = w3[i]
		s03 += a * c
		s13 += b * c
	}
	d0, d1 := dst[:4], dst[ldd:ldd+4]
	d0[0], d0[1], d0[2], d0[3] = s00, s01, s02, s03
	d1[0], d1[1], d1[2], d1[3] = s10, s11, s12, s13
}

// MulNN multiplies x, m rows of k elements that are ldx apart, by w, k rows
// of n elements that are ldw apart: dst[i*ldd+j] is the sum over l of
// x[i*ldx+l] * w[l*ldw+j].
func MulNN(dst []float32, ldd int, x []float32, ldx, m int, w []float32, ldw, n, k int) {
	for i := range m {
		d := dst[i*ldd : i*ldd+n]
		clear(d)
		AddRows(d, x[i*ldx:i*ldx+k], w, ldw)
	}
}

// AddRows adds to d the rows of w, ld apart, each times its element of x.
func AddRows(d, x, w []float32, ld int) {
	n := len(d)
	i := 0
	for ; i+4 <= len(x); i += 4 {
		a0, a1, a2, a3 := x[i], x[i+1], x[i+2], x[i+3]
		w0 := w[i*ld : i*ld+n][:len(d)]
		w1 := w[(i+1)*ld : (i+1)*ld+n][:len(d)]
		w2 := w[(i+2)*ld : (i+2)*ld+n][:len(d)]
		w3 := w[(i+3)*ld : (i+3)*ld+n][:len(d)]
		for j := range d {
			d[j] += (a0*w0[j] + a1*w1[j]) + (a2*w2[j] + a3*w3[j])
		}
	}
	for ; i < len(x); i++ {
		a := x[i]
		w0 := w[i*ld : i*ld+n][:len(d)]
		for j := range d {
			d[j] += a * w0[j]
		}
	}
}
