package kernels

import "math"

// Exp returns e to the power x, to within 1.2e-7 relative. It keeps to
// operations that vector units have, in an order that they can follow.
func Exp(x float32) float32 {
	const (
		log2e = 1.44269504088896341
		hi    = 0.693359375 // ln 2 = hi + lo; hi has few bits, so n*hi is exact
		lo    = -2.12194440e-4
		magic = 3 << 22 // adding 1.5*2^23 rounds to an integer
	)
	if !(x > -104 && x < 89) { // also NaN
		switch {
		case x >= 89:
			return float32(math.Inf(1))
		case x <= -104:
			return 0
		}
		return x
	}
	n := float32(x*log2e) + magic
	k := int32(math.Float32bits(n)) - int32(math.Float32bits(magic))
	n -= magic
	r := float32(x-float32(n*hi)) - float32(n*lo)
	p := float32(1.9875691500e-4)
	p = float32(p*r) + 1.3981999507e-3
	p = float32(p*r) + 8.3334519073e-3
	p = float32(p*r) + 4.1665795894e-2
	p = float32(p*r) + 1.6666665459e-1
	p = float32(p*r) + 5.0000001201e-1
	p = float32(float32(p*r)*r) + r + 1
	// 2^k in two factors, as k alone may leave the range of the exponent.
	h := k >> 1
	return p * math.Float32frombits(uint32(h+127)<<23) * math.Float32frombits(uint32(k-h+127)<<23)
}

// Tanh returns the hyperbolic tangent of x.
func Tanh(x float32) float32 {
	a := x
	if a < 0 {
		a = -a
	}
	if a < 0.625 {
		z := float32(x * x)
		p := float32(-5.70498872745e-3)
		p = float32(p*z) + 2.06390887954e-2
		p = float32(p*z) - 5.37397155531e-2
		p = float32(p*z) + 1.33314422036e-1
		p = float32(p*z) - 3.33332819422e-1
		return float32(float32(p*z)*x) + x
	}
	t := 1 - 2/(Exp(2*a)+1)
	if x < 0 {
		return -t
	}
	return t
}

// Sigmoid returns 1 / (1 + exp(-x)).
func Sigmoid(x float32) float32 {
	if x >= 0 {
		return 1 / (1 + Exp(-x))
	}
	e := Exp(x)
	return e / (1 + e)
}

// Softplus returns log(1 + exp(x)).
func Softplus(x float32) float32 {
	y := float32(math.Log1p(math.Exp(-math.Abs(float64(x)))))
	if x > 0 {
		y += x
	}
	return y
}

// Erf returns the error function of x.
func Erf(x float32) float32 { return float32(math.Erf(float64(x))) }

// GeluExact returns x times the normal distribution function of x.
func GeluExact(x float32) float32 {
	return float32(0.5 * float64(x) * (1 + math.Erf(float64(x)*(1/math.Sqrt2))))
}

// GeluTanh returns the approximation of GeluExact by a hyperbolic tangent.
func GeluTanh(x float32) float32 {
	const c = 0.7978845608028654 // sqrt(2/pi)
	return 0.5 * x * (1 + Tanh(c*(x+0.044715*x*x*x)))
}

// GeluSigmoid returns the approximation of GeluExact by a sigmoid.
func GeluSigmoid(x float32) float32 { return x * Sigmoid(1.702*x) }

// Silu returns x times its sigmoid.
func Silu(x float32) float32 { return x * Sigmoid(x) }
