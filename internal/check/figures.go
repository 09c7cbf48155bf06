package check

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Best is the number of best tokens that top-5 and overlap look at.
const Best = 5

// Point is how the logits of a package compare with the target's at one
// position. See the package comment for what the figures are.
type Point struct {
	Cosine  float64
	KL      float64 // nats
	MaxDiff float64 // largest |difference| of a logit
	Top1    bool
	Top5    bool
	Overlap float64 // 0 to 1
	// Index is, of a package that gives the best token of each part of the
	// vocabulary, the fraction of the parts with the same best token.
	Index float64
	// NonFinite says that the package's logits hold a NaN or an infinity; the
	// figures are zero then.
	NonFinite bool
}

// comparer compares rows of logits. It keeps scratch memory between calls.
type comparer struct {
	best [2][]int
}

// compare returns the figures of l, the package's logits, against r, the
// target's, which are as many and finite.
func (c *comparer) compare(r, l []float32) Point {
	if firstNonFinite(l) >= 0 {
		return Point{NonFinite: true}
	}
	p := Point{}
	var rl, rr, ll float64
	rMax, lMax := math.Inf(-1), math.Inf(-1)
	for i, rv := range r {
		a, b := float64(rv), float64(l[i])
		rl += a * b
		rr += a * a
		ll += b * b
		rMax, lMax = max(rMax, a), max(lMax, b)
		p.MaxDiff = max(p.MaxDiff, math.Abs(a-b))
	}
	p.Cosine = cosine(rl, rr, ll)
	var rSum, lSum float64
	for i, rv := range r {
		rSum += math.Exp(float64(rv) - rMax)
		lSum += math.Exp(float64(l[i]) - lMax)
	}
	// log p - log q, each from its own maximum: the difference of two large
	// logits would lose what is to be measured.
	rLog, lLog := math.Log(rSum), math.Log(lSum)
	for i, rv := range r {
		a, b := float64(rv)-rMax, float64(l[i])-lMax
		p.KL += math.Exp(a) / rSum * ((a - rLog) - (b - lLog))
	}
	// It is never negative but for rounding.
	p.KL = max(p.KL, 0)

	c.best[0] = top(c.best[0], r)
	c.best[1] = top(c.best[1], l)
	rBest, lBest := c.best[0], c.best[1]
	if len(rBest) == 0 {
		return p
	}
	p.Top1 = rBest[0] == lBest[0]
	p.Top5 = slices.Contains(lBest, rBest[0])
	common := 0
	for _, i := range rBest {
		if slices.Contains(lBest, i) {
			common++
		}
	}
	p.Overlap = float64(common) / float64(len(rBest))
	return p
}

// cosine returns the cosine of two vectors by their products. Two zero
// vectors are alike, one is unlike anything else.
func cosine(ab, aa, bb float64) float64 {
	switch {
	case aa == 0 && bb == 0:
		return 1
	case aa == 0 || bb == 0:
		return 0
	}
	return max(-1, min(1, ab/math.Sqrt(aa)/math.Sqrt(bb)))
}

// top returns the indices of the Best largest of x (all of them if there are
// fewer), best first, the lower index first of equals.
func top(into []int, x []float32) []int {
	into = into[:0]
	for i, v := range x {
		if len(into) == Best && v <= x[into[Best-1]] {
			continue
		}
		if len(into) < Best {
			into = append(into, i)
		} else {
			into[Best-1] = i
		}
		for k := len(into) - 1; k > 0 && v > x[into[k-1]]; k-- {
			into[k], into[k-1] = into[k-1], into[k]
		}
	}
	return into
}

// firstNonFinite returns the index of the first NaN or infinity, -1 if there
// is none.
func firstNonFinite(x []float32) int {
	for i, v := range x {
		if v-v != 0 {
			return i
		}
	}
	return -1
}

// Spread sums up a figure over the positions.
type Spread struct {
	Min  float64 `json:"min"`
	P01  float64 `json:"p01"` // one in a hundred is lower
	Mean float64 `json:"mean"`
	P99  float64 `json:"p99"` // one in a hundred is higher
	Max  float64 `json:"max"`
}

// spread sums up values. Percentiles are those of the nearest rank.
func spread(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	v := slices.Clone(values)
	slices.Sort(v)
	n := len(v)
	sum := 0.0
	for _, x := range values {
		sum += x
	}
	return Spread{Min: v[0], P01: v[(n-1)/100], Mean: sum / float64(n), P99: v[n-1-n/100], Max: v[n-1]}
}

// Where is a place in the sequence.
type Where struct {
	Position int `json:"position"` // of the token, from 0
	// Part names the first model whose output was not finite, and Function
	// the function that gave it.
	Part     string `json:"part,omitempty"`
	Function string `json:"function,omitempty"`
}

func (w *Where) String() string {
	if w.Part == "" {
		return fmt.Sprintf("at position %d", w.Position)
	}
	return fmt.Sprintf("at position %d, out of %s (%s)", w.Position, w.Part, w.Function)
}

// Figures sums up how the logits of a package compare with a target's.
type Figures struct {
	// Positions is the number of positions compared; NonFinite is how many of
	// them have a NaN or an infinity in the package's logits. The other
	// figures are over the rest.
	Positions int    `json:"positions"`
	NonFinite int    `json:"non_finite"`
	First     *Where `json:"first_non_finite,omitempty"`

	Cosine Spread `json:"cosine"`
	KL     Spread `json:"kl"`
	// MaxDiff is the largest |difference| of any logit, Diff sums up the
	// largest of each position.
	MaxDiff float64 `json:"max_abs_diff"`
	Diff    Spread  `json:"abs_diff"`
	Top1    float64 `json:"top1"` // fraction of the positions
	Top5    float64 `json:"top5"`
	Overlap float64 `json:"top5_overlap"`

	// Index is, of a package that gives the best token of each part of the
	// vocabulary in place of logits, the fraction of the parts with the same
	// best token. The other figures are then over the logits of these tokens;
	// top-5 and overlap are about parts.
	Index *float64 `json:"argmax_index,omitempty"`

	// WorstCosine and WorstKL are the positions of the lowest cosine and of
	// the highest KL.
	WorstCosine int `json:"worst_cosine_position"`
	WorstKL     int `json:"worst_kl_position"`
}

// Collector gathers points into figures.
type Collector struct {
	n, nonFinite     int
	first            *Where
	at               []int
	cosine, kl, diff []float64
	top1, top5       int
	overlap          float64
	argmax           bool // points have an Index
	index            float64
}

// Add adds the point at a position of the sequence. where says more about a
// point that is not finite; it may be nil.
func (c *Collector) Add(position int, p Point, where *Where) {
	c.n++
	if p.NonFinite {
		c.nonFinite++
		if c.first == nil {
			if where == nil {
				where = &Where{Position: position}
			}
			c.first = where
		}
		return
	}
	c.at = append(c.at, position)
	c.cosine, c.kl, c.diff = append(c.cosine, p.Cosine), append(c.kl, p.KL), append(c.diff, p.MaxDiff)
	if p.Top1 {
		c.top1++
	}
	if p.Top5 {
		c.top5++
	}
	c.overlap += p.Overlap
	c.index += p.Index
}

// Figures returns what has been gathered, nil if nothing has.
func (c *Collector) Figures() *Figures {
	if c.n == 0 {
		return nil
	}
	f := &Figures{Positions: c.n, NonFinite: c.nonFinite, First: c.first, Cosine: spread(c.cosine), KL: spread(c.kl), Diff: spread(c.diff)}
	f.MaxDiff = f.Diff.Max
	if n := float64(len(c.at)); n > 0 {
		f.Top1, f.Top5, f.Overlap = float64(c.top1)/n, float64(c.top5)/n, c.overlap/n
		f.WorstCosine = c.at[extreme(c.cosine, -1)]
		f.WorstKL = c.at[extreme(c.kl, 1)]
		if c.argmax {
			index := c.index / n
			f.Index = &index
		}
	}
	return f
}

// extreme returns the index of the first lowest (sign < 0) or highest value.
func extreme(v []float64, sign int) int {
	best := 0
	for i, x := range v {
		if cmp.Compare(x, v[best])*sign > 0 {
			best = i
		}
	}
	return best
}

// vectors compares hidden states: cosine, largest difference, and the norm of
// the difference relative to that of want (1 if want is zero and got is not).
func vectors(want, got []float32) (cos, diff, rel float64) {
	var wg, ww, gg, dd float64
	for i, w := range want {
		a, b := float64(w), float64(got[i])
		wg += a * b
		ww += a * a
		gg += b * b
		d := math.Abs(a - b)
		dd += d * d
		diff = max(diff, d)
	}
	switch {
	case ww > 0:
		rel = math.Sqrt(dd / ww)
	case dd > 0:
		rel = 1
	}
	return cosine(wg, ww, gg), diff, rel
}
