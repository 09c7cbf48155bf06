package compress

import "math"

// solver finds optimal clusterings of numbers on a line. It keeps its working
// memory from one problem to the next; the zero solver is ready.
//
// # Method
//
// The best k clusters of n sorted points are runs of neighbours, so the
// problem is a shortest path from 0 to n with exactly k edges, where the edge
// (i, j) costs the squared error of points i..j-1 around their mean. The
// textbook way is a dynamic program of k layers. We do better: that cost has
// the quadrangle inequality (it is "Monge"), hence the optimal cost is convex
// in k, and the constraint on the number of edges can be traded for a price
// lambda per edge. For a fixed price the shortest path takes one sweep, in
// which the best last edge only moves forward; the price at which the path
// has k edges takes a few sweeps, however large k is.
//
// A path that is shortest at some price and has k edges is an optimal
// clustering into k: this is exact, not an approximation. Where the optimal
// cost is linear in k around the wanted k (evenly spaced points, say), no
// price singles k out; then two shortest paths of the same price with fewer
// and with more edges are spliced into one with k edges and the same price
// (Aggarwal, Schieber and Tokuyama 1994).
type solver struct {
	node []node    // positions between points, one more than points
	sxx  []float64 // prefix sums of w*x*x at them
	// candidates for the last edge, as a queue: cand[h] is the best start of
	// an edge that ends in from[h] .. from[h+1]-1.
	cand, from []int32
	few, many  []int32 // paths that bracket the wanted one
	path       []int32

	sweeps int // made since the solver was made, for tests and tuning
}

// node is a position between two points: what the sweep needs of it, in one
// half of a cache line.
type node struct {
	w, wx float64 // prefix sums of the weights and weights times values
	g     float64 // length of the best path that ends here, less the prefix sum of w*x*x
	last  int32   // where its last edge starts
	edges int32   // how many it has
}

// Products are converted to float64 before they are added, here and below:
// the language then forbids fusing the two, and every machine gives the same
// clusters.

// cluster splits the points x (ascending, all different) with the weights w
// (positive) into k runs whose squared error around their weighted means is
// least. It returns their bounds: run c is points bounds[c] to bounds[c+1]-1.
// With k points or fewer every point is a run of its own. The result is valid
// until the next call.
func (s *solver) cluster(x, w []float64, k int) []int32 {
	n := len(x)
	if n <= k {
		s.path = s.path[:0]
		for i := range n + 1 {
			s.path = append(s.path, int32(i))
		}
		return s.path
	}
	s.load(x, w)
	if k == 1 {
		s.path = append(s.path[:0], 0, int32(n))
		return s.path
	}
	s.search(k, s.price(x, k))
	return s.path
}

// load computes the prefix sums. They start at the point nearest to zero and
// grow outwards in both directions: the sums around small values are then
// small, and keep their precision beside outliers. (fp16 values are spaced
// in proportion to their size, so that is where precision is needed; sums
// centred on the mean would lose it.)
func (s *solver) load(x, w []float64) {
	n := len(x)
	s.node = grow(s.node, n+1)
	s.sxx = grow(s.sxx, n+1)
	s.cand = grow(s.cand, n+1)
	s.from = grow(s.from, n+1)
	zero := 0
	for zero < n && x[zero] < 0 {
		zero++
	}
	var a, b, c float64
	s.node[zero] = node{}
	s.sxx[zero] = 0
	for i := zero; i < n; i++ {
		wx := float64(w[i] * x[i]) // rounded, so that no processor adds the exact product
		a += w[i]
		b += wx
		c += float64(wx * x[i])
		s.node[i+1] = node{w: a, wx: b}
		s.sxx[i+1] = c
	}
	a, b, c = 0, 0, 0
	for i := zero - 1; i >= 0; i-- {
		wx := float64(w[i] * x[i]) // rounded, so that no processor adds the exact product
		a -= w[i]
		b -= wx
		c -= float64(wx * x[i])
		s.node[i] = node{w: a, wx: b}
		s.sxx[i] = c
	}
	s.node[0].g = -s.sxx[0]
}

// price guesses the price at which the shortest path has k edges. At high
// resolution the error of the best k-level quantiser of a density p is
// (integral of p^(1/3))^3 / (12 k^2) (Panter and Dite 1951); the price is
// minus its derivative.
func (s *solver) price(x []float64, k int) float64 {
	const bins = 64
	n := len(x)
	node := s.node
	var sum float64
	for b := range bins {
		i, j := n*b/bins, n*(b+1)/bins
		if i < j {
			width := x[min(j, n-1)] - x[i]
			mass := node[j].w - node[i].w
			sum += math.Cbrt(float64(mass*width) * width)
		}
	}
	return coarsen(sum * sum * sum / (6 * float64(k) * float64(k) * float64(k)))
}

// coarsen drops the lower bits of a guess, so that differences between the
// mathematical functions of machines do not matter.
func coarsen(f float64) float64 {
	return math.Float64frombits(math.Float64bits(f) &^ (1<<40 - 1))
}

// search leaves the shortest path with k edges, 1 < k < n, in s.path, starting
// from a guess of the price.
func (s *solver) search(k int, price float64) {
	n := len(s.node) - 1
	// few and many are shortest paths with less and with more than k edges,
	// at the prices fewP and manyP. To begin with they are the paths with the
	// fewest and the most edges of all, whose prices are unknown (0).
	few := append(s.few[:0], 0, int32(n))
	many := s.many[:0]
	for i := range n + 1 {
		many = append(many, int32(i))
	}
	defer func() { s.few, s.many = few, many }()
	var fewP, manyP float64
	// The number of edges goes about with the third root of the price.
	power := 3.0
	chord := false
	for step := 1; ; step++ {
		if chord || !(price > 0) || math.IsInf(price, 0) {
			// Both paths are equally long at this price. Either a path in
			// between is shorter, or all are equal. Each step narrows the
			// bracket, so that the search ends.
			price = (s.cost(few) - s.cost(many)) / float64(len(many)-len(few))
			chord = true
		}
		s.sweep(price)
		got := int(s.node[n].edges)
		if got == k {
			s.path = s.trace(s.path)
			return
		}
		inside := len(few)-1 < got && got < len(many)-1
		switch {
		case !inside && chord:
			s.splice(few, many, k)
			return
		case inside && got < k:
			few, fewP = s.trace(few), price
		case inside:
			many, manyP = s.trace(many), price
		}
		a, b := len(few)-1, len(many)-1
		chord = !inside || b-a <= 3
		switch {
		case chord:
		case fewP > 0 && manyP > 0:
			t := 0.5 // now and then, lest the steps become small
			if step%3 != 0 {
				t = math.Log(float64(k)/float64(a)) / math.Log(float64(b)/float64(a))
			}
			price = coarsen(fewP * math.Pow(manyP/fewP, t))
		default:
			price = coarsen(price * math.Pow(float64(got)/float64(k), power))
			power *= 2 // be bolder if that was not enough
		}
	}
}

// cost returns the squared error of a clustering.
func (s *solver) cost(path []int32) float64 {
	var sum float64
	for c := 1; c < len(path); c++ {
		i, j := path[c-1], path[c]
		if j == i+1 {
			continue
		}
		d := s.node[j].wx - s.node[i].wx
		sum += s.sxx[j] - s.sxx[i] - float64(d*d/(s.node[j].w-s.node[i].w))
	}
	return sum
}

// sweep finds the shortest paths to all nodes when each edge costs price more
// than its squared error. Among equal ones it takes the one whose last edge
// starts first.
func (s *solver) sweep(price float64) {
	s.sweeps++
	p := s.node
	n := len(p) - 1
	cand, from := s.cand[:n+1], s.from[:n+1]
	head, tail := 0, 0
	cand[0], from[0] = 0, 1
	for j := 1; j <= n; j++ {
		for head < tail && int(from[head+1]) <= j {
			head++
		}
		i := cand[head]
		pi, pj := &p[i], &p[j]
		d0, d1 := pj.w-pi.w, pj.wx-pi.wx
		pj.g = pi.g - d1*d1/d0 + price
		pj.last = i
		pj.edges = pi.edges + 1

		// Put j in the queue: it beats the candidates before it from some
		// end on, if at all.
		for {
			b := &p[cand[tail]]
			t := max(int(from[tail]), j+1)
			if t > n {
				break // j is the end, or too late for any
			}
			if beats(pj, b, &p[t]) {
				if tail > head {
					tail--
					continue
				}
				cand[tail], from[tail] = int32(j), int32(j+1)
				break
			}
			// Not at lo, but at hi, if hi <= n.
			lo, hi, step := t, t+1, 1
			for hi <= n && !beats(pj, b, &p[hi]) {
				lo = hi
				step *= 2
				hi += step
			}
			hi = min(hi, n+1)
			for lo+1 < hi {
				mid := int(uint(lo+hi) / 2)
				if beats(pj, b, &p[mid]) {
					hi = mid
				} else {
					lo = mid
				}
			}
			if hi <= n {
				tail++
				cand[tail], from[tail] = int32(j), int32(hi)
			}
			break
		}
	}
}

// beats reports whether the best path to t whose last edge starts at a is
// shorter than that from b, which lies before a. Lengths are g - d1^2/d0 plus
// what both have in common; the divisions are multiplied away.
func beats(a, b, t *node) bool {
	a0, a1 := t.w-a.w, t.wx-a.wx
	b0, b1 := t.w-b.w, t.wx-b.wx
	return float64((a.g-b.g)*float64(a0*b0)) < float64(float64(a1*a1)*b0)-float64(float64(b1*b1)*a0)
}

// trace returns the path to the last node that the last sweep found.
func (s *solver) trace(buf []int32) []int32 {
	j := int32(len(s.node) - 1)
	k := int(s.node[j].edges)
	buf = grow(buf, k+1)
	for c := k; c > 0; c-- {
		buf[c] = j
		j = s.node[j].last
	}
	buf[0] = 0
	return buf
}

// splice makes a path of k edges out of two with fewer and with more. Some
// edge of few contains the edge of many that is as much further along as k
// is more than few has: go there with many, continue with few. By the
// quadrangle inequality the two new paths are together no longer than the
// two old ones.
func (s *solver) splice(few, many []int32, k int) {
	x := k - (len(few) - 1)
	for i := 0; i+1 < len(few); i++ {
		if few[i] <= many[i+x] && many[i+x+1] <= few[i+1] {
			s.path = append(append(s.path[:0], many[:i+x+1]...), few[i+1:]...)
			return
		}
	}
	panic("compress: paths do not nest") // both are increasing, from 0 to n
}

// mean returns the weighted mean of points i to j-1 of the loaded problem.
func (s *solver) mean(i, j int32) float64 {
	n := s.node
	return (n[j].wx - n[i].wx) / (n[j].w - n[i].w)
}

// grow returns a slice of length n, with undefined contents, in the memory of
// s if that is large enough.
func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n+n/4)[:n]
	}
	return s[:n]
}
