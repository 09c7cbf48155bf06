package compress

import (
	"slices"
	"testing"

	"anemone/internal/float16"
)

func TestKeyOrdersValues(t *testing.T) {
	last := float32(0)
	for k := range 1 << 16 {
		h := pattern(uint16(k))
		if key(h) != uint16(k) {
			t.Fatalf("key(pattern(%#x)) = %#x", k, key(h))
		}
		if h&0x7fff > float16.Inf {
			continue // not a number
		}
		v := float16.ToFloat32(h)
		if h != 0xfc00 && v < last || v == last && h != 0 {
			t.Fatalf("key %#x is %v, after %v", k, v, last)
		}
		last = v
	}
	if key(0x8000) != negativeZero || key(0) != negativeZero+1 {
		t.Errorf("zeros have the keys %#x and %#x", key(0x8000), key(0))
	}
}

// patterns converts numbers to fp16 bit patterns.
func patterns(f ...float32) []uint16 {
	p := make([]uint16, len(f))
	float16.Narrow(p, f)
	return p
}

var negZero = float16.ToFloat32(0x8000)

// TestFindByHand has tables that can be seen without computing.
func TestFindByHand(t *testing.T) {
	for _, c := range []struct {
		name       string
		nbits      int
		w          []float32
		importance []float32
		lut        []float32
		index      []uint8
	}{
		{"two lumps", 1, []float32{5, 1, 7, 3, 1, 3}, nil, []float32{2, 6}, []uint8{1, 0, 1, 0, 0, 0}},
		{"one value", 2, []float32{3, 3, 3}, nil, []float32{3, 3, 3, 3}, []uint8{0, 0, 0}},
		{"all zero", 1, []float32{0, 0}, nil, []float32{0, 0}, []uint8{0, 0}},
		{"all negative zero", 1, []float32{negZero, negZero}, nil, []float32{0, 0}, []uint8{0, 0}},
		{"both zeros are one value", 1, []float32{negZero, 0, 4, negZero}, nil, []float32{0, 4}, []uint8{0, 0, 1, 0}},
		{"both zeros have one entry", 2, []float32{4, 0, negZero}, nil, []float32{0, 4, 4, 4}, []uint8{1, 0, 0}},
		{"negative zero before positive", 1, []float32{0, negZero, -4}, nil, []float32{-4, 0}, []uint8{1, 1, 0}},
		{"negative", 1, []float32{-1, -2, -9, -10}, nil, []float32{-9.5, -1.5}, []uint8{1, 1, 0, 0}},
		{"fewer values than entries", 2, []float32{9, -1, 9, 2}, nil, []float32{-1, 2, 9, 9}, []uint8{2, 0, 2, 1}},
		{"as many values as entries", 1, []float32{9, -1, 9}, nil, []float32{-1, 9}, []uint8{1, 0, 1}},
		{"largest values", 1, []float32{65504, -65504, 65472}, nil, []float32{-65504, 65472}, []uint8{1, 0, 1}}, // the mean 65488 rounds to even
		{"smallest values", 1, []float32{0x1p-24, 0x1p-23, 1}, nil, []float32{0x1p-23, 1}, []uint8{0, 0, 1}},    // 1.5 rounds to 2
		// {0, 3} costs 9*1/10*3^2 = 8.1, {3, 7} 1*2/3*4^2 = 10.7.
		{"importance moves means", 1, []float32{0, 3, 7}, []float32{9, 1, 2}, []float32{0.3, 7}, []uint8{0, 0, 1}},
		// {0, 3} costs 8.1, {3, 7} 1*1/2*4^2 = 8; without weights 4.5 and 8.
		{"importance moves clusters", 1, []float32{0, 3, 7}, []float32{9, 1, 1}, []float32{0, 5}, []uint8{0, 1, 1}},
		{"importance of 0 is next to none", 1, []float32{0, 1, 2}, []float32{1, 0, 1}, []float32{0, 2}, []uint8{0, 0, 1}},
		// Mean importance 1/4, so 0 weighs 4 and the others 1e-6 each. {0, 5, 6}
		// costs 61e-6, {5, 6, 20} 141e-6; 11e-6/4 is 46 times the smallest value.
		{"importance of 0 is not nothing", 1, []float32{0, 5, 6, 20}, []float32{1, 0, 0, 0}, []float32{46 * 0x1p-24, 20}, []uint8{0, 0, 0, 1}},
		{"no importance anywhere", 1, []float32{0, 1, 9}, []float32{0, 0, 0}, []float32{0.5, 9}, []uint8{0, 0, 1}},
		// Evenly spaced: several clusterings are best.
		{"even", 2, []float32{0, 1, 2, 3, 4, 5, 6, 7}, nil, []float32{0.5, 2.5, 4.5, 6.5}, []uint8{0, 0, 1, 1, 2, 2, 3, 3}},
	} {
		w := patterns(c.w...)
		var h histogram
		var p palette
		for range 2 { // the second time with used memory
			h.reset(c.importance != nil)
			h.add(w, c.importance)
			p.find(c.nbits, &h)
			index := make([]uint8, len(w))
			p.assign(index, w)
			if want := patterns(c.lut...); !slices.Equal(p.lut, want) {
				got := make([]float32, len(p.lut))
				float16.Widen(got, p.lut)
				t.Errorf("%s: table %v, want %v", c.name, got, c.lut)
			}
			if !slices.Equal(index, c.index) {
				t.Errorf("%s: indices %v, want %v", c.name, index, c.index)
			}
		}
	}
}

// TestNearest compares with a search over the whole table.
func TestNearest(t *testing.T) {
	lut := patterns(-7, -2, -2, 0, 1, 4, 4, 4)
	n := nearest{lut: lut}
	for x := -10.0; x < 10; x += 0.25 {
		want, best := 0, 1e9
		for i, h := range lut {
			d := x - float64(float16.ToFloat32(h))
			if d*d < best {
				want, best = i, d*d
			}
		}
		if got := n.next(x); int(got) != want {
			t.Errorf("%g is nearest to entry %d, got %d", x, want, got)
		}
	}
}

func TestHistogramParts(t *testing.T) {
	w := normal(3, 5000, false)
	imp := make([]float32, len(w))
	for i := range imp {
		imp[i] = float32(i%7) + 0.5
	}
	for _, importance := range [][]float32{nil, imp} {
		var whole, a, b histogram
		for _, h := range []*histogram{&whole, &a, &b} {
			h.reset(importance != nil)
		}
		whole.add(w, importance)
		if importance == nil {
			a.add(w[:1234], nil)
			b.add(w[1234:], nil)
		} else {
			a.add(w[:1234], importance[:1234])
			b.add(w[1234:], importance[1234:])
		}
		var p, q palette
		p.find(4, &whole)
		q.find(4, &a, &b)
		if !slices.Equal(p.lut, q.lut) {
			t.Errorf("tables of the whole and of parts differ: %v, %v", p.lut, q.lut)
		}
	}
}
