package compress

import (
	"math/bits"

	"anemone/internal/float16"
)

// histogram counts fp16 values. Their bit patterns are the bins, in an order
// that is also that of the values, so that nothing needs sorting.
type histogram struct {
	count [1 << 16]uint32   // by key
	seen  [1 << 10]uint64   // a bit per key with a count
	sum   *[1 << 16]float64 // importance by key; nil if all are 1
}

// key maps a bit pattern to its place in the order of values: negative ones
// (with the sign bit) are inverted, others get the sign bit. -0 comes right
// before +0.
func key(h uint16) uint16 { return h ^ (uint16(int16(h)>>15) | 0x8000) }

// pattern is the inverse of key.
func pattern(k uint16) uint16 { return k ^ (uint16(int16(^k)>>15) | 0x8000) }

const negativeZero = 0x7fff // as a key; positive zero is one more

// reset empties h.
func (h *histogram) reset(weighted bool) {
	for i, word := range h.seen {
		if word == 0 {
			continue
		}
		for ; word != 0; word &= word - 1 {
			k := i<<6 | bits.TrailingZeros64(word)
			h.count[k] = 0
			if h.sum != nil {
				h.sum[k] = 0
			}
		}
		h.seen[i] = 0
	}
	switch {
	case !weighted:
		h.sum = nil
	case h.sum == nil:
		h.sum = new([1 << 16]float64)
	}
}

// add counts w. importance is as long as w, or nil.
func (h *histogram) add(w []uint16, importance []float32) {
	for _, v := range w {
		k := key(v)
		h.count[k]++
		h.seen[k>>6] |= 1 << (k & 63)
	}
	if importance != nil {
		importance = importance[:len(w)]
		for i, v := range w {
			h.sum[key(v)] += float64(importance[i])
		}
	}
}

// palette is the table of a group, and the memory to find it.
type palette struct {
	solver solver
	x, w   []float64
	keys   []uint16
	lut    []uint16       // ascending fp16 patterns
	index  [1 << 16]uint8 // number of the entry for each pattern that occurs
}

// minImportance is the least that a weight counts, in units of the mean
// importance: a weight that nothing was seen to depend on is still to be
// kept, if it costs nothing.
const minImportance = 1e-6

// find finds the best table of 2^nbits entries for what the histograms counted
// together. The result is exact: entries are the means of optimal clusters,
// rounded to fp16, in ascending order; each value is assigned to the nearest
// entry as rounded, of two equally near ones to the first. Where there are
// fewer different values than entries, every value has its own, and the last
// is repeated.
func (p *palette) find(nbits int, parts ...*histogram) {
	p.x, p.w, p.keys = p.x[:0], p.w[:0], p.keys[:0]
	var total, sum float64 // of counts, of importances
	weighted := parts[0].sum != nil
	for i := range parts[0].seen {
		var word uint64
		for _, h := range parts {
			word |= h.seen[i]
		}
		for ; word != 0; word &= word - 1 {
			k := i<<6 | bits.TrailingZeros64(word)
			var n, s float64
			for _, h := range parts {
				n += float64(h.count[k])
				if weighted {
					s += h.sum[k]
				}
			}
			total += n
			sum += s
			if k == negativeZero {
				k++ // the two zeros are one value
			}
			if last := len(p.keys) - 1; last >= 0 && int(p.keys[last]) == k {
				p.w[last] += n
				if weighted {
					p.x[last] += s
				}
				continue
			}
			p.keys = append(p.keys, uint16(k))
			p.w = append(p.w, n)
			if weighted {
				p.x = append(p.x, s) // a sum, until it has gone into the weight below
			} else {
				p.x = append(p.x, 0)
			}
		}
	}
	if weighted && sum > 0 {
		mean := sum / total
		for i, s := range p.x {
			p.w[i] = s/mean + float64(minImportance*p.w[i])
		}
	}
	for i, k := range p.keys {
		p.x[i] = float64(float16.ToFloat32(pattern(k)))
	}

	size := 1 << nbits
	bounds := p.solver.cluster(p.x, p.w, size)
	p.lut = p.lut[:0]
	for c := 1; c < len(bounds); c++ {
		i, j := bounds[c-1], bounds[c]
		h := pattern(p.keys[i])
		if j > i+1 {
			h = float16.FromFloat32(float32(p.solver.mean(i, j)))
		}
		if h == 0x8000 {
			h = 0 // no negative zeros
		}
		p.lut = append(p.lut, h)
	}
	for len(p.lut) < size {
		p.lut = append(p.lut, p.lut[len(p.lut)-1])
	}

	assign := nearest{lut: p.lut}
	for i, x := range p.x {
		p.index[pattern(p.keys[i])] = assign.next(x)
	}
	p.index[0x8000] = p.index[0]
}

// nearest finds the entries that are nearest to ascending values.
type nearest struct {
	lut []uint16 // ascending
	e   int
}

// next returns the number of the entry nearest to x, of two equally near ones
// the first. x is not less than in the call before.
func (n *nearest) next(x float64) uint8 {
	here := float64(float16.ToFloat32(n.lut[n.e]))
	for e := n.e + 1; e < len(n.lut); e++ {
		there := float64(float16.ToFloat32(n.lut[e]))
		if there == here {
			continue
		}
		if there-x >= x-here {
			break
		}
		n.e, here = e, there
	}
	return uint8(n.e)
}

// assign sets dst to the entries of the values w, which occurred in what the
// table was found for.
func (p *palette) assign(dst []uint8, w []uint16) {
	dst = dst[:len(w)]
	for i, v := range w {
		dst[i] = p.index[v]
	}
}
