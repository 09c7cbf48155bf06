package kernels

// The portable products keep four sums: more, and the compiler spills them,
// which costs a factor of two. Every sum runs through its elements in order.

// dotInOrder returns the product of a and the first len(a) elements of b,
// summed from the first to the last.
func dotInOrder(a, b []float32) float32 {
	b = b[:len(a)]
	var s float32
	for i, x := range a {
		s += x * b[i]
	}
	return s
}

// dot1x4 sets dst[i] to the product of x and row i of w, four rows that are
// ldw apart.
func dot1x4(dst *[4]float32, x, w []float32, ldw int) {
	n := len(x)
	w0, w1, w2, w3 := w[:n], w[ldw:ldw+n], w[2*ldw:2*ldw+n], w[3*ldw:3*ldw+n]
	var s0, s1, s2, s3 float32
	for i, a := range x {
		s0 += a * w0[i]
		s1 += a * w1[i]
		s2 += a * w2[i]
		s3 += a * w3[i]
	}
	*dst = [4]float32{s0, s1, s2, s3}
}

// dot2x2 returns the products of two rows of x and two of w.
func dot2x2(x0, x1, w0, w1 []float32) (s00, s01, s10, s11 float32) {
	n := len(x0)
	x1, w0, w1 = x1[:n], w0[:n], w1[:n]
	for i := range x0 {
		a, b := x0[i], x1[i]
		p, q := w0[i], w1[i]
		s00 += a * p
		s10 += b * p
		s01 += a * q
		s11 += b * q
	}
	return
}

// mulVecF32 sets dst[i] to the product of row i of w, which are ldw apart,
// and x.
func mulVecF32(dst, x, w []float32, ldw int) {
	k := len(x)
	i := 0
	for ; i+4 <= len(dst); i += 4 {
		dot1x4((*[4]float32)(dst[i:]), x, w[i*ldw:], ldw)
	}
	for ; i < len(dst); i++ {
		dst[i] = dotInOrder(w[i*ldw:i*ldw+k], x)
	}
}

// MulNT multiplies x, m rows of k elements that are ldx apart, by the
// transpose of w, n rows of k elements that are ldw apart: dst[i*ldd+j] is
// the product of row i of x and row j of w.
func MulNT(dst []float32, ldd int, x []float32, ldx, m int, w []float32, ldw, n, k int) {
	i := 0
	for ; i+2 <= m; i += 2 {
		x0, x1 := x[i*ldx:i*ldx+k], x[(i+1)*ldx:(i+1)*ldx+k]
		d0, d1 := dst[i*ldd:i*ldd+n], dst[(i+1)*ldd:(i+1)*ldd+n]
		j := 0
		for ; j+2 <= n; j += 2 {
			d0[j], d0[j+1], d1[j], d1[j+1] = dot2x2(x0, x1, w[j*ldw:], w[(j+1)*ldw:])
		}
		if j < n {
			d0[j] = dotInOrder(x0, w[j*ldw:])
			d1[j] = dotInOrder(x1, w[j*ldw:])
		}
	}
	if i < m {
		mulVecF32(dst[i*ldd:i*ldd+n], x[i*ldx:i*ldx+k], w, ldw)
	}
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

// AddRows adds to d the rows of w, ld apart, each times its element of x,
// eight at a time.
func AddRows(d, x, w []float32, ld int) {
	n := len(d)
	i := 0
	for ; i+8 <= len(x); i += 8 {
		a := (*[8]float32)(x[i:])
		w := w[i*ld:]
		w0, w1, w2, w3 := w[:n], w[ld:ld+n], w[2*ld:2*ld+n], w[3*ld:3*ld+n]
		w4, w5, w6, w7 := w[4*ld:4*ld+n], w[5*ld:5*ld+n], w[6*ld:6*ld+n], w[7*ld:7*ld+n]
		a0, a1, a2, a3, a4, a5, a6, a7 := a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]
		for j := range d {
			d[j] += ((a0*w0[j] + a1*w1[j]) + (a2*w2[j] + a3*w3[j])) + ((a4*w4[j] + a5*w5[j]) + (a6*w6[j] + a7*w7[j]))
		}
	}
	for ; i < len(x); i++ {
		a := x[i]
		w0 := w[i*ld : i*ld+n]
		for j := range d {
			d[j] += a * w0[j]
		}
	}
}

// Dot returns the product of a and the first len(a) elements of b, in four
// sums that are added at the end.
func Dot(a, b []float32) float32 {
	b = b[:len(a)]
	var s0, s1, s2, s3 float32
	for len(a) >= 4 && len(b) >= 4 {
		x, y := (*[4]float32)(a), (*[4]float32)(b)
		s0 += x[0] * y[0]
		s1 += x[1] * y[1]
		s2 += x[2] * y[2]
		s3 += x[3] * y[3]
		a, b = a[4:], b[4:]
	}
	for i, x := range a {
		s0 += x * b[i]
	}
	return (s0 + s1) + (s2 + s3)
}
