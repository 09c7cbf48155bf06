package check

import (
	"encoding/json"
	"math"
	"testing"
)

var (
	nan = float32(math.NaN())
	inf = float32(math.Inf(1))
)

func near(a, b, tolerance float64) bool { return math.Abs(a-b) <= tolerance }

func TestCompare(t *testing.T) {
	ln := func(x float64) float32 { return float32(math.Log(x)) }
	for _, c := range []struct {
		name string
		r, l []float32
		want Point
	}{
		// softmax r = (1/2, 1/2), softmax l = (3/4, 1/4): KL = 1/2 ln(2/3) + 1/2 ln 2
		{"half and half", []float32{0, 0}, []float32{ln(3), 0}, Point{Cosine: 0, KL: math.Log(4.0/3) / 2, MaxDiff: math.Log(3), Top1: true, Top5: true, Overlap: 1}},
		// (1, 0) and (1, 1) are 45 degrees apart; p = e/(1+e).
		{"45 degrees", []float32{1, 0}, []float32{1, 1}, Point{
			Cosine: math.Sqrt2 / 2,
			KL:     math.E/(1+math.E)*math.Log(2*math.E/(1+math.E)) + 1/(1+math.E)*math.Log(2/(1+math.E)), MaxDiff: 1, Top1: true, Top5: true, Overlap: 1}},
		{"opposite", []float32{1, -1}, []float32{-1, 1}, Point{Cosine: -1, KL: 2 * math.Tanh(1), MaxDiff: 2, Top5: true, Overlap: 1}},
		// A constant changes no probability.
		{"shifted", []float32{1, 2, 3}, []float32{11, 12, 13}, Point{Cosine: 74 / math.Sqrt(14*434), MaxDiff: 10, Top1: true, Top5: true, Overlap: 1}},
		{"equal", []float32{3, -1, 2}, []float32{3, -1, 2}, Point{Cosine: 1, Top1: true, Top5: true, Overlap: 1}},
		{"zeros", []float32{0, 0}, []float32{0, 0}, Point{Cosine: 1, Top1: true, Top5: true, Overlap: 1}},
		// The best of the target is fifth, then sixth; three and two of five are common.
		{"fifth", []float32{9, 8, 7, 6, 5, 0, 0, 0}, []float32{5, 0, 0, 6, 7, 9, 8, 0}, Point{Cosine: 116 / 255.0, KL: -1, MaxDiff: 9, Top5: true, Overlap: 3. / 5}},
		{"sixth", []float32{9, 8, 7, 6, 5, 0, 0, 0}, []float32{5, 0, 0, 6, 7, 9, 8, 6}, Point{Cosine: 116 / math.Sqrt(255*291), KL: -1, MaxDiff: 9, Overlap: 2. / 5}},
		// Of equal logits the lower index is better.
		{"ties", []float32{1, 2, 2, 0}, []float32{1, 2, 2, 0}, Point{Cosine: 1, Top1: true, Top5: true, Overlap: 1}},
		{"ties broken", []float32{1, 2, 2, 0}, []float32{1, 2, 2.5, 0}, Point{Cosine: 10 / math.Sqrt(9*11.25), KL: -1, MaxDiff: 0.5, Top5: true, Overlap: 1}},
		{"large", []float32{1e30, 0}, []float32{1e30, 0}, Point{Cosine: 1, Top1: true, Top5: true, Overlap: 1}},
		{"one logit", []float32{4}, []float32{2}, Point{Cosine: 1, MaxDiff: 2, Top1: true, Top5: true, Overlap: 1}},
		{"NaN", []float32{1, 2}, []float32{1, nan}, Point{NonFinite: true}},
		{"Inf", []float32{1, 2}, []float32{inf, 1}, Point{NonFinite: true}},
		{"-Inf", []float32{1, 2}, []float32{-inf, 1}, Point{NonFinite: true}},
	} {
		var cmp comparer
		got := cmp.compare(c.r, c.l)
		if c.want.KL < 0 { // left to the formula
			c.want.KL = klByFormula(c.r, c.l)
		}
		if !near(got.Cosine, c.want.Cosine, 1e-7) || !near(got.KL, c.want.KL, 1e-7) || !near(got.MaxDiff, c.want.MaxDiff, 1e-6) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
		got.Cosine, got.KL, got.MaxDiff = c.want.Cosine, c.want.KL, c.want.MaxDiff
		if got.Overlap = math.Round(got.Overlap*1e6) / 1e6; got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// klByFormula is the definition, without care for large numbers.
func klByFormula(r, l []float32) (kl float64) {
	var rs, ls float64
	for i := range r {
		rs += math.Exp(float64(r[i]))
		ls += math.Exp(float64(l[i]))
	}
	for i := range r {
		p, q := math.Exp(float64(r[i]))/rs, math.Exp(float64(l[i]))/ls
		kl += p * math.Log(p/q)
	}
	return kl
}

func TestSpread(t *testing.T) {
	count := func(n int) []float64 {
		v := make([]float64, n)
		for i := range v {
			v[i] = float64((i*7)%n + 1) // 1 to n in another order, for n not divisible by 7
		}
		return v
	}
	for _, c := range []struct {
		n    int
		want Spread
	}{
		{1, Spread{1, 1, 1, 1, 1}},
		{50, Spread{1, 1, 25.5, 50, 50}},
		{100, Spread{1, 1, 50.5, 99, 100}},
		{101, Spread{1, 2, 51, 100, 101}},
		{200, Spread{1, 2, 100.5, 198, 200}},
	} {
		if got := spread(count(c.n)); got != c.want {
			t.Errorf("spread of 1 to %d: %+v, want %+v", c.n, got, c.want)
		}
	}
	if got := spread(nil); got != (Spread{}) {
		t.Errorf("spread of nothing: %+v", got)
	}
}

func TestCollector(t *testing.T) {
	var c Collector
	if c.Figures() != nil {
		t.Error("figures of nothing")
	}
	c.Add(3, Point{Cosine: 0.5, KL: 0.2, MaxDiff: 1, Top1: true, Top5: true, Overlap: 1}, nil)
	c.Add(4, Point{NonFinite: true}, &Where{Position: 4, Part: "chunk", Function: "infer"})
	c.Add(5, Point{NonFinite: true}, nil)
	c.Add(6, Point{Cosine: 0.25, KL: 0.4, MaxDiff: 3, Top5: true, Overlap: 0.5}, nil)
	f := c.Figures()
	if f.Positions != 4 || f.NonFinite != 2 || f.First.String() != "at position 4, out of chunk (infer)" {
		t.Errorf("%+v, first %v", f, f.First)
	}
	if f.Cosine.Min != 0.25 || f.Cosine.Mean != 0.375 || !near(f.KL.Mean, 0.3, 1e-15) || f.MaxDiff != 3 || f.Top1 != 0.5 || f.Top5 != 1 || f.Overlap != 0.75 {
		t.Errorf("%+v", f)
	}
	if f.WorstCosine != 6 || f.WorstKL != 6 {
		t.Errorf("worst at %d and %d, want 6", f.WorstCosine, f.WorstKL)
	}
	if _, err := json.Marshal(f); err != nil {
		t.Error(err)
	}
	var none Collector
	none.Add(0, Point{NonFinite: true}, nil)
	if f := none.Figures(); f.NonFinite != 1 || f.Cosine.Min != 0 || f.First.String() != "at position 0" {
		t.Errorf("%+v", f)
	}
}

func TestVectors(t *testing.T) {
	for _, c := range []struct {
		want, got      []float32
		cos, diff, rel float64
	}{
		{[]float32{3, 4}, []float32{3, 4}, 1, 0, 0},
		{[]float32{3, 4}, []float32{4, 3}, 24. / 25, 1, math.Sqrt2 / 5},
		{[]float32{0, 0}, []float32{0, 2}, 0, 2, 1},
		{[]float32{0, 0}, []float32{0, 0}, 1, 0, 0},
	} {
		cos, diff, rel := vectors(c.want, c.got)
		if !near(cos, c.cos, 1e-12) || diff != c.diff || !near(rel, c.rel, 1e-12) {
			t.Errorf("vectors(%v, %v) = %v, %v, %v", c.want, c.got, cos, diff, rel)
		}
	}
}

func BenchmarkCompare(b *testing.B) {
	r, l := make([]float32, 151936), make([]float32, 151936)
	for i := range r {
		r[i] = float32(math.Sin(float64(i)))
		l[i] = float32(math.Sin(float64(i) + 0.001))
	}
	var c comparer
	for b.Loop() {
		c.compare(r, l)
	}
}

// TestLargeLogits: far from zero KL still says what separates the rows.
func TestLargeLogits(t *testing.T) {
	var c comparer
	r, l := []float32{3e38, 0, -3e38}, []float32{-3e38, 0, 3e38}
	if p := c.compare(r, l); !(p.KL > 1e38) || p.Top1 {
		t.Errorf("opposite rows: KL %v, top-1 %v", p.KL, p.Top1)
	}
	if p := c.compare(r, r); p.KL != 0 {
		t.Errorf("a row and itself: KL %v", p.KL)
	}
	// 1e6 and 1e6 + 1 against equal logits: p = 1/(1+e), e/(1+e), q = 1/2.
	e := math.E
	want := 1/(1+e)*math.Log(2/(1+e)) + e/(1+e)*math.Log(2*e/(1+e))
	if p := c.compare([]float32{1e6, 1e6 + 1}, []float32{5e6, 5e6}); math.Abs(p.KL-want) > 1e-12 {
		t.Errorf("KL %v, want %v", p.KL, want)
	}
}
