package check

import (
	"testing"

	"anemone/internal/anemll"
	"anemone/internal/engine"
	"anemone/internal/testutil"
	"anemone/mil"
)

// TestRemainders: the contract's sequence uses functions for fewer tokens than a
// batch, which are held to infer and to the checkpoint as prefill is; what is
// wrong with one is seen, and in which layer.
func TestRemainders(t *testing.T) {
	slow(t)
	t.Parallel()
	ck := testutil.Data(t, "checkpoints", "tiny-qwen35")
	g := golden(t, testutil.Data(t, "goldens", "tiny-qwen35.safetensors"))
	dir := convert(t, ck, anemll.Options{Context: 256, Batch: 64, Chunks: 2, Remainders: []int{16, 4}})
	p := open(t, dir)
	m := loadPackage(t, p, engine.Options{})
	// 64 + 2*16 + 3*4 + 3: logits after each call.
	ids := g.Tokens()[:64+47]
	r := run(t, m, Tokens(ids), Options{})
	if !r.Passed || r.Prefill.Positions != 1+2+3+3 || r.Prefill.Cosine.Min < 0.999999 || len(r.Notes) != 0 {
		t.Errorf("prefill against infer: %s, %q, %q", line(r.Prefill), r.Failures, r.Notes)
	}
	// Less than a batch.
	if r := run(t, m, Tokens(ids[:31]), Options{}); !r.Passed || r.Prefill.Positions != 1+3+3 || len(r.Notes) != 0 {
		t.Errorf("less than a batch: %s, %q, %q", line(r.Prefill), r.Failures, r.Notes)
	}
	r = run(t, m, g, Options{Tokens: 111})
	if !r.Passed || r.Contract.Positions != 9 || r.Contract.Cosine.Min < 0.9999 || r.Contract.Top1 != 1 {
		t.Errorf("against the golden: %s, %q", line(r.Contract), r.Failures)
	}
	layers := run(t, m, &Text{source(t, ck), ids[:63]}, Options{Layers: true, Load: loader})
	agreesAt(t, layers, 3*16+3*4)

	// A function that computes something else: its sigmoids are others.
	for _, chunk := range p.Chunks {
		chunk.Model.Program.Function("prefill_16").Body.Walk(func(op *mil.Operation) bool {
			if op.Type == "tanh" {
				op.Type = "cos"
			}
			return true
		})
	}
	bad := loadPackage(t, p, engine.Options{})
	if r := run(t, bad, Tokens(ids), Options{}); r.Passed || r.Prefill.Cosine.Min > 0.99 {
		t.Errorf("a damaged prefill_16: %s, passed", line(r.Prefill))
	}
	if r := run(t, bad, Tokens(ids[:64+15]), Options{}); !r.Passed {
		t.Errorf("a damaged prefill_16 that is not used: %q", r.Failures)
	}
}

// agreesAt holds what prefill functions give behind every layer to the
// reference, at so many positions; behind the final norm they give fewer.
func agreesAt(t *testing.T, r *Report, positions int) {
	t.Helper()
	if !r.Passed || len(r.Layers) != 10 || len(r.Notes) != 0 {
		t.Errorf("layers: passed %v, %d places, notes %q", r.Passed, len(r.Layers), r.Notes)
	}
	for _, l := range r.Layers {
		want := positions
		if l.FinalNorm {
			want = 6 // calls
		}
		if h := l.Prefill; h == nil || h.Positions != want || h.Cosine.Min < 0.9999 {
			t.Errorf("layer %d (normed: %v): %+v, want %d positions", l.Layer, l.FinalNorm, h, want)
		}
	}
}
