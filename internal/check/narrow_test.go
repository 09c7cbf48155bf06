package check

import "testing"

// Tables are a reason to name only where nothing else is wrong.
func TestNarrow(t *testing.T) {
	report := func(change func(*Report)) *Report {
		figures := func(cosine float64) *Figures {
			return &Figures{Positions: 9, Cosine: Spread{Min: cosine, Mean: cosine}}
		}
		r := &Report{Bits: 6, Limits: DefaultLimits(6), Contract: figures(0.8), Infer: figures(0.8), Prefill: figures(1)}
		change(r)
		return r
	}
	for _, c := range []struct {
		name   string
		change func(*Report)
		want   bool
	}{
		{"6 bits", func(*Report) {}, true},
		{"no prefill", func(r *Report) { r.Prefill = nil }, true},
		{"passed", func(r *Report) { r.Passed = true }, false},
		{"no tables", func(r *Report) { r.Bits = 16 }, false},
		{"NaN", func(r *Report) { r.Infer.NonFinite = 1 }, false},
		{"NaN in prefill", func(r *Report) { r.Contract.NonFinite = 1 }, false},
		{"prefill is another", func(r *Report) { r.Prefill.Cosine.Min = 0.99 }, false},
		{"held to itself", func(r *Report) { r.Infer = nil }, false},
	} {
		if got := report(c.change).narrow(); got != c.want {
			t.Errorf("%s: %t, want %t", c.name, got, c.want)
		}
	}
}
