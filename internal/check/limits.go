package check

import (
	"fmt"

	"anemone/internal/anemll"
	"anemone/mil"
)

// Limits is what the figures of a package have to keep.
type Limits struct {
	// MinCosine is the lowest cosine at any position, MinMeanCosine that of
	// the mean over the positions, MaxKL the highest mean of KL in nats: each
	// both in the contract sequence and in infer only.
	MinCosine     float64 `json:"min_cosine"`
	MinMeanCosine float64 `json:"min_mean_cosine"`
	MaxKL         float64 `json:"max_kl"`
	// MinTop1 is the lowest fraction of positions with the same best token in
	// infer only, which gives logits at every position. (The few positions of
	// the contract sequence would make one near-tie a failure.) Of a package
	// that gives the best token of each part of the vocabulary, it is the
	// lowest fraction of equal ones, too.
	MinTop1 float64 `json:"min_top1"`
	// MinPrefill is the lowest cosine at any position between the contract
	// sequence and infer only, both of the package.
	MinPrefill float64 `json:"min_prefill_cosine"`
}

// DefaultLimits returns what is asked of a package whose narrowest weights
// have the given number of bits.
//
// With 16 bits, a package computes what the checkpoint computes: published
// packages have a mean cosine of 0.9998 and better and 97 to 99 % of the best
// tokens on the Neural Engine, and the engine stays well inside. Narrower
// weights compute a neighbour of the checkpoint. There the limits lie somewhat
// below the figures published for look-up tables by plain k-means (6 bits:
// mean cosine 0.997, top-1 93 %, KL 0.02; 4 bits: 0.954, 72 %, about 0.3), and
// at 6 bits below those of SmolLM2-135M, about the smallest model in use
// (docs/quality.md: 0.996, 88 %, 0.03; over a prompt of 37 tokens 0.981), whose
// lowest cosine is 0.86, forty times as far from 1 as the mean. With 3 bits and fewer, only packages that are broken outright
// fail. Prefill and infer share their weights, so they agree whatever the
// bits.
func DefaultLimits(bits int) Limits {
	l := Limits{MinPrefill: 0.999}
	switch {
	case bits > 8:
		l.MinCosine, l.MinMeanCosine, l.MaxKL, l.MinTop1 = 0.999, 0.9995, 0.005, 0.95
	case bits > 6:
		l.MinCosine, l.MinMeanCosine, l.MaxKL, l.MinTop1 = 0.98, 0.998, 0.01, 0.92
	case bits > 4:
		l.MinCosine, l.MinMeanCosine, l.MaxKL, l.MinTop1 = 0.75, 0.97, 0.1, 0.80
	case bits > 3:
		l.MinCosine, l.MinMeanCosine, l.MaxKL, l.MinTop1 = 0.30, 0.90, 0.75, 0.50
	case bits > 2:
		l.MinCosine, l.MinMeanCosine, l.MaxKL, l.MinTop1 = 0, 0.75, 1.5, 0.25
	default:
		l.MinCosine, l.MinMeanCosine, l.MaxKL, l.MinTop1 = -1, 0.3, 5, 0.02
	}
	return l
}

// WeightBits returns the width in bits of a package's narrowest compressed
// weights: that of the indices of look-up tables, or of linearly quantized
// values; 16 if no weight is compressed.
func WeightBits(p *anemll.Package) int {
	bits := 16
	for _, part := range p.Parts() {
		for _, f := range part.Model.Program.Functions {
			f.Body.Walk(func(op *mil.Operation) bool {
				for _, name := range []string{"indices", "data", "quantized_data"} {
					switch op.Type {
					case "constexpr_lut_to_dense", "constexpr_blockwise_shift_scale", "constexpr_affine_dequantize":
						if v := op.Operand(name); v != nil && v.Type.DType.IsInt() {
							bits = min(bits, v.Type.DType.Bits())
						}
					}
				}
				return true
			})
		}
	}
	return bits
}

// judge holds the figures to the limits.
func (r *Report) judge() {
	fail := func(format string, a ...any) { r.Failures = append(r.Failures, fmt.Sprintf(format, a...)) }
	l := r.Limits
	finite := func(name string, f *Figures) bool {
		if f.NonFinite > 0 {
			fail("%s: not finite at %d of %d positions, first %v", name, f.NonFinite, f.Positions, f.First)
		}
		return f.NonFinite < f.Positions
	}
	for _, s := range []struct {
		name string
		f    *Figures
	}{{"contract sequence", r.Contract}, {"infer only", r.Infer}} {
		if s.f == nil || !finite(s.name, s.f) {
			continue
		}
		if s.f.Cosine.Min < l.MinCosine {
			fail("%s: cosine %.6f at position %d is below %v", s.name, s.f.Cosine.Min, s.f.WorstCosine, l.MinCosine)
		}
		if s.f.Cosine.Mean < l.MinMeanCosine {
			fail("%s: mean cosine %.6f is below %v", s.name, s.f.Cosine.Mean, l.MinMeanCosine)
		}
		if s.f.KL.Mean > l.MaxKL {
			fail("%s: mean KL %.6f is above %v", s.name, s.f.KL.Mean, l.MaxKL)
		}
		if s.f == r.Infer && s.f.Top1 < l.MinTop1 {
			fail("%s: the best token is the same at %.4f of the positions, below %v", s.name, s.f.Top1, l.MinTop1)
		}
		if s.f.Index != nil && *s.f.Index < l.MinTop1 {
			fail("%s: %.4f of the best tokens of the vocabulary's parts are the same, below %v", s.name, *s.f.Index, l.MinTop1)
		}
	}
	if r.Prefill != nil && finite("prefill against infer", r.Prefill) && r.Prefill.Cosine.Min < l.MinPrefill {
		fail("prefill against infer: cosine %.6f at position %d is below %v", r.Prefill.Cosine.Min, r.Prefill.WorstCosine, l.MinPrefill)
	}
	for _, s := range r.States {
		if s.Cosine < l.MinCosine {
			fail("state %s: cosine %.6f is below %v", s.Name, s.Cosine, l.MinCosine)
		}
	}
	r.Passed = len(r.Failures) == 0
}
