package float16

import (
	"math"
	"testing"
)

// value is the definition of a binary16 number, written out.
func value(h uint16) float64 {
	s := 1.0
	if h&0x8000 != 0 {
		s = -1
	}
	e, m := int(h>>10&0x1f), float64(h&0x3ff)
	switch e {
	case 0:
		return s * math.Ldexp(m, -24)
	case 31:
		if m != 0 {
			return math.NaN()
		}
		return math.Inf(int(s))
	}
	return s * math.Ldexp(1024+m, e-25)
}

func TestEveryPattern(t *testing.T) {
	for i := range 1 << 16 {
		h := uint16(i)
		want, got := value(h), float64(ToFloat32(h))
		if want != got && !(math.IsNaN(want) && math.IsNaN(got)) {
			t.Fatalf("ToFloat32(%#04x) = %v, want %v", h, got, want)
		}
		back := FromFloat32(float32(want))
		if math.IsNaN(want) {
			if !math.IsNaN(float64(ToFloat32(back))) {
				t.Fatalf("NaN %#04x came back as %#04x", h, back)
			}
		} else if back != h {
			t.Fatalf("%#04x came back as %#04x", h, back)
		}
	}
}

// TestRounding checks every midpoint between neighbours and the float32
// values just below and above it.
func TestRounding(t *testing.T) {
	for i := range uint16(0x7bff) {
		lo, hi := value(i), value(i+1)
		mid := float32((lo + hi) / 2) // exact: 12 significant bits
		even := i + i&1
		for _, c := range []struct {
			f    float32
			want uint16
		}{{mid, even}, {math.Nextafter32(mid, 0), i}, {math.Nextafter32(mid, math.MaxFloat32), i + 1}} {
			if got := FromFloat32(c.f); got != c.want {
				t.Fatalf("FromFloat32(%v) = %#04x, want %#04x", c.f, got, c.want)
			}
			if got := FromFloat32(-c.f); got != c.want|0x8000 {
				t.Fatalf("FromFloat32(%v) = %#04x, want %#04x", -c.f, got, c.want|0x8000)
			}
		}
	}
	for f, want := range map[float32]uint16{65519: 0x7bff, 65520: Inf, 1e9: Inf, float32(math.Inf(1)): Inf, 0x1p-25: 0, 0x1.8p-25: 1} {
		if got := FromFloat32(f); got != want {
			t.Errorf("FromFloat32(%v) = %#04x, want %#04x", f, got, want)
		}
	}
}

func TestBFloat16(t *testing.T) {
	for i := range 1 << 16 {
		h := uint16(i)
		f := BFloat16ToFloat32(h)
		if back := BFloat16FromFloat32(f); back != h && f == f {
			t.Fatalf("%#04x came back as %#04x", h, back)
		}
	}
	// 1 + 2^-8 lies midway between 1 and 1 + 2^-7: ties to even.
	if got := BFloat16FromFloat32(1 + 0x1p-8); got != 0x3f80 {
		t.Errorf("midpoint rounds to %#04x, want 0x3f80", got)
	}
	if got := BFloat16FromFloat32(1 + 0x1p-8 + 0x1p-20); got != 0x3f81 {
		t.Errorf("above the midpoint rounds to %#04x, want 0x3f81", got)
	}
}
