package kernels

// The portable products keep four sums: more, and the compiler spills them,
// which costs a factor of two. Every sum runs through its elements in order,
// a chunk at a time, and the sums of chunks are added in order: that keeps
// the rounding errors of long sums small.
const sumChunk = 128

// dotInOrder returns the product of a and the first len(a) elements of b.
func dotInOrder(a, b []float32) float32 {
	b = b[:len(a)]
	var sum float32
	for len(a) > 0 {
		n := min(sumChunk, len(a))
		var s float32
		y := b[:n]
		for i, x := range a[:n] {
			s += x * y[i]
		}
		sum += s
		a, b = a[n:], b[n:]
	}
	return sum
}

// dot1x4 sets dst[i] to the product of x and row i of w, four rows that are
// ldw apart.
func dot1x4(dst *[4]float32, x, w []float32, ldw int) {
	*dst = [4]float32{}
	for at := 0; at < len(x); at += sumChunk {
		n := min(sumChunk, len(x)-at)
		w := w[at:]
		w0, w1, w2, w3 := w[:n], w[ldw:ldw+n], w[2*ldw:2*ldw+n], w[3*ldw:3*ldw+n]
		var s0, s1, s2, s3 float32
		for i, a := range x[at : at+n] {
			s0 += a * w0[i]
			s1 += a * w1[i]
			s2 += a * w2[i]
			s3 += a * w3[i]
		}
		dst[0] += s0
		dst[1] += s1
		dst[2] += s2
		dst[3] += s3
	}
}

// dot2x2 sets d0 and d1 to the products of x0 and x1 with two rows of w.
func dot2x2(d0, d1 *[2]float32, x0, x1, w0, w1 []float32) {
	*d0, *d1 = [2]float32{}, [2]float32{}
	for at := 0; at < len(x0); at += sumChunk {
		n := min(sumChunk, len(x0)-at)
		a0, a1, b0, b1 := x0[at:at+n], x1[at:at+n], w0[at:at+n], w1[at:at+n]
		var s00, s01, s10, s11 float32
		for i := range a0 {
			a, b := a0[i], a1[i]
			p, q := b0[i], b1[i]
			s00 += a * p
			s10 += b * p
			s01 += a * q
			s11 += b * q
		}
		d0[0] += s00
		d0[1] += s01
		d1[0] += s10
		d1[1] += s11
	}
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
			dot2x2((*[2]float32)(d0[j:]), (*[2]float32)(d1[j:]), x0, x1, w[j*ldw:j*ldw+k], w[(j+1)*ldw:(j+1)*ldw+k])
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
