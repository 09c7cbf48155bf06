package compress

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"anemone/internal/float16"
)

// bruteForce is the plain dynamic program over all splits, with the squared
// errors taken point by point around each mean: no prefix sums, no monotony.
func bruteForce(x, w []float64, k int) float64 {
	n := len(x)
	k = min(k, n)
	cost := make([][]float64, n) // cost[i][j]: points i..j
	for i := range n {
		cost[i] = make([]float64, n)
		var sw, swx float64
		for j := i; j < n; j++ {
			sw += w[j]
			swx += w[j] * (x[j] - x[i])
			mean := x[i] + swx/sw
			for m := i; m <= j; m++ {
				cost[i][j] += w[m] * (x[m] - mean) * (x[m] - mean)
			}
		}
		cost[i][i] = 0
	}
	prev := make([]float64, n+1)
	for j := 1; j <= n; j++ {
		prev[j] = cost[0][j-1]
	}
	for c := 2; c <= k; c++ {
		cur := make([]float64, n+1)
		for j := 1; j <= n; j++ {
			cur[j] = math.Inf(1)
			for i := 0; i < j; i++ {
				cur[j] = min(cur[j], prev[i]+cost[i][j-1])
			}
		}
		prev = cur
	}
	return prev[n]
}

func errorOf(x, w []float64, bounds []int32) float64 {
	var sum float64
	for c := 1; c < len(bounds); c++ {
		i, j := bounds[c-1], bounds[c]
		if j == i+1 {
			continue
		}
		var sw, swx float64
		for m := i; m < j; m++ {
			sw += w[m]
			swx += w[m] * (x[m] - x[i])
		}
		for m := i; m < j; m++ {
			d := x[m] - x[i] - swx/sw
			sum += w[m] * d * d
		}
	}
	return sum
}

var shapes = []struct {
	name string
	draw func(r *rand.Rand) float64
}{
	{"normal", func(r *rand.Rand) float64 { return r.NormFloat64() * 0.03 }},
	{"bf16", func(r *rand.Rand) float64 {
		return float64(float16.BFloat16ToFloat32(float16.BFloat16FromFloat32(float32(r.NormFloat64() * 0.03))))
	}},
	{"positive", func(r *rand.Rand) float64 { return 1 + r.Float64() }},
	{"negative", func(r *rand.Rand) float64 { return -1 - r.ExpFloat64() }},
	{"even", func(r *rand.Rand) float64 { return float64(r.IntN(60)) }},
	{"ends", func(r *rand.Rand) float64 { return math.Copysign(float64(r.IntN(20)), r.Float64()-0.5) * 0.25 }},
	{"outliers", func(r *rand.Rand) float64 {
		if r.IntN(40) == 0 {
			return math.Copysign(65504, r.Float64()-0.5)
		}
		return r.NormFloat64() * 0.01
	}},
	{"subnormal", func(r *rand.Rand) float64 { return r.NormFloat64() * 0x1p-20 }},
	{"heavy", func(r *rand.Rand) float64 { return r.NormFloat64() * math.Exp(3*r.NormFloat64()) * 0.01 }},
	{"two lumps", func(r *rand.Rand) float64 { return float64(r.IntN(2))*2 - 1 + r.NormFloat64()*0.01 }},
}

// sample draws m fp16 values and returns the different ones with their
// weights: counts, or sums of random importances.
func sample(r *rand.Rand, m int, draw func(*rand.Rand) float64, weighted bool) (x, w []float64) {
	sum := map[float64]float64{}
	for range m {
		v := float64(float16.Round(float32(draw(r))))
		v = max(min(v, float16.Max), -float16.Max)
		i := 1.0
		if weighted {
			i = math.Exp(2 * r.NormFloat64())
		}
		sum[v+0] += i
	}
	for v := range sum {
		x = append(x, v)
	}
	slices.Sort(x)
	for _, v := range x {
		w = append(w, sum[v])
	}
	return x, w
}

// TestClusterIsOptimal compares the error of clusterings with brute force.
func TestClusterIsOptimal(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, sh := range shapes {
		for trial := range 60 {
			weighted := trial%2 == 1
			x, w := sample(r, 1+r.IntN(180), sh.draw, weighted)
			k := []int{1, 2, 3, 4, 8, 16, 64, 256, 1 + r.IntN(len(x)+2)}[trial%9]
			var s solver
			bounds := s.cluster(x, w, k)
			if want := min(k, len(x)); len(bounds) != want+1 || bounds[0] != 0 || int(bounds[want]) != len(x) {
				t.Fatalf("%s/%d: %d points into %d: bounds %v", sh.name, trial, len(x), k, bounds)
			}
			for c := 1; c < len(bounds); c++ {
				if bounds[c] <= bounds[c-1] {
					t.Fatalf("%s/%d: empty cluster: %v", sh.name, trial, bounds)
				}
			}
			got, want := errorOf(x, w, bounds), bruteForce(x, w, k)
			if got > want*(1+1e-9)+1e-300 {
				t.Errorf("%s/%d: %d points into %d: error %g, brute force %g (ratio-1 %g)", sh.name, trial, len(x), k, got, want, got/want-1)
			}
		}
	}
}

func BenchmarkCluster(b *testing.B) {
	for _, kind := range shapes[:2] {
		for _, k := range []int{4, 16, 64, 256} {
			for _, m := range []int{8 * 1024, 8 * 3072} {
				b.Run(fmt.Sprintf("%s/k=%d/m=%d", kind.name, k, m), func(b *testing.B) {
					r := rand.New(rand.NewPCG(3, 4))
					type set struct{ x, w []float64 }
					var sets []set
					for range 8 {
						x, w := sample(r, m, kind.draw, false)
						sets = append(sets, set{x, w})
					}
					var s solver
					b.ResetTimer()
					for i := range b.N {
						s.cluster(sets[i%8].x, sets[i%8].w, k)
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(m), "ns/weight")
					b.ReportMetric(float64(s.sweeps)/float64(b.N), "sweeps")
					b.ReportMetric(float64(len(sets[0].x)), "points")
				})
			}
		}
	}
}

// quadratic is the error of the best clustering by the layered dynamic
// program over all splits, for sets too large for bruteForce.
func quadratic(x, w []float64, k int) float64 {
	n := len(x)
	var total, mean float64
	for i := range x {
		total += w[i]
		mean += w[i] * x[i]
	}
	mean /= total
	s0, s1, s2 := make([]float64, n+1), make([]float64, n+1), make([]float64, n+1)
	for i := range x {
		d := x[i] - mean
		s0[i+1], s1[i+1], s2[i+1] = s0[i]+w[i], s1[i]+w[i]*d, s2[i]+w[i]*d*d
	}
	cost := func(i, j int) float64 {
		d := s1[j] - s1[i]
		return s2[j] - s2[i] - d*d/(s0[j]-s0[i])
	}
	prev := make([]float64, n+1)
	for j := 1; j <= n; j++ {
		prev[j] = cost(0, j)
	}
	for c := 2; c <= k; c++ {
		cur := make([]float64, n+1)
		for j := c; j <= n; j++ {
			cur[j] = math.Inf(1)
			for i := c - 1; i < j; i++ {
				cur[j] = min(cur[j], prev[i]+cost(i, j))
			}
		}
		prev = cur
	}
	return prev[n]
}

// TestClusterGroups is TestClusterIsOptimal at the size of real groups.
func TestClusterGroups(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	for _, sh := range shapes[:2] {
		for i, k := range []int{2, 16, 64} {
			x, w := sample(r, 4000, sh.draw, i == 1)
			if len(x) < 1000 {
				t.Fatalf("%s: %d points", sh.name, len(x))
			}
			var s solver
			got, want := errorOf(x, w, s.cluster(x, w, k)), quadratic(x, w, k)
			if math.Abs(got/want-1) > 1e-9 {
				t.Errorf("%s: %d points into %d: error %g, want %g", sh.name, len(x), k, got, want)
			}
		}
	}
}

// TestSweeps: the search for the price is short, whatever the data.
func TestSweeps(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 32))
	for _, sh := range shapes {
		worst, sum, runs := 0, 0, 0
		for trial := range 150 {
			m := []int{30, 300, 3000, 10000}[trial%4]
			x, w := sample(r, m, sh.draw, trial%2 == 1)
			for _, k := range []int{2, 4, 8, 16, 64, 256, len(x) - 1, len(x) - 2, len(x) / 2} {
				if k < 2 || k >= len(x) {
					continue
				}
				var s solver
				bounds := s.cluster(x, w, k)
				if len(bounds) != k+1 {
					t.Fatalf("%s: %d clusters, want %d", sh.name, len(bounds)-1, k)
				}
				worst = max(worst, s.sweeps)
				sum += s.sweeps
				runs++
			}
		}
		t.Logf("%s: %.1f sweeps, at most %d", sh.name, float64(sum)/float64(runs), worst)
		if worst > 40 {
			t.Errorf("%s: %d sweeps, want at most 40", sh.name, worst)
		}
	}
}

// FuzzTable compares tables of arbitrary fp16 values with brute force.
func FuzzTable(f *testing.F) {
	f.Add([]byte{0, 0x3c, 0, 0x40, 0, 0x42, 0, 0x44, 0, 0xbc}, uint8(1), false)
	f.Add([]byte{0, 0x80, 0, 0, 1, 0, 2, 0, 3, 0, 0xff, 0x7b, 0xff, 0xfb}, uint8(2), true)
	f.Add([]byte("some text that is a set of small and large numbers, too"), uint8(3), false)
	f.Add([]byte("aaaaaabbbbbbccccccddddddeeeeeeffffffgggggghhhhhh"), uint8(0), true)
	f.Fuzz(func(t *testing.T, data []byte, bits uint8, weighted bool) {
		nbits := []int{1, 2, 3, 4}[bits%4]
		var w []uint16
		var imp []float32
		for i := 0; i+1 < min(len(data), 160); i += 2 {
			h := uint16(data[i]) | uint16(data[i+1])<<8
			if h&0x7c00 == 0x7c00 {
				h &^= 0x4000
			}
			w = append(w, h)
			if weighted {
				imp = append(imp, float32(data[i]%16+1))
			}
		}
		if len(w) == 0 {
			return
		}
		var h histogram
		var p palette
		h.reset(weighted)
		h.add(w, imp)
		p.find(nbits, &h)
		index := make([]uint8, len(w))
		p.assign(index, w)
		var got float64
		set := map[float64]float64{}
		var total float64
		for i, v := range w {
			weight := 1.0
			if weighted {
				weight = float64(imp[i])
			}
			x := float64(float16.ToFloat32(v))
			set[x+0] += weight
			total += weight
			d := x - float64(float16.ToFloat32(p.lut[index[i]]))
			got += weight * d * d
		}
		var xs, ws []float64
		for x := range set {
			xs = append(xs, x)
		}
		slices.Sort(xs)
		for _, x := range xs {
			ws = append(ws, set[x])
		}
		want := bruteForce(xs, ws, 1<<nbits)
		// Rounding an entry to fp16 adds at most its squared rounding error
		// for each weight. The floor of the importance moves means a little.
		var rounding float64
		for i, v := range w {
			weight := 1.0
			if weighted {
				weight = float64(imp[i])
			}
			e := math.Abs(float64(float16.ToFloat32(p.lut[index[i]])))*0x1p-11 + 0x1p-25
			_ = v
			rounding += weight * e * e
		}
		if got > want*(1+1e-5)+2*rounding {
			t.Errorf("error %g, brute force %g, rounding %g, %d values, table %x", got, want, rounding, len(xs), p.lut)
		}
	})
}
