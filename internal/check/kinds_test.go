package check

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"anemone/internal/checkpoint/safetensors"
	"anemone/internal/engine"
	"anemone/internal/session"
	"anemone/internal/session/sessiontest"
	"anemone/internal/testutil"
)

// The indices and values of ANEMLL's own argmax head.
func TestArgmaxPeer(t *testing.T) {
	slow(t)
	t.Parallel()
	const name = "qwen3-lut6-argmax-c2"
	m := load(t, testutil.Shared(t, "peers", name), engine.Options{})
	r := run(t, m, golden(t, testutil.Shared(t, "peers", name+".golden.safetensors")), Options{})
	for what, f := range map[string]*Figures{"contract": r.Contract, "infer": r.Infer, "prefill": r.Prefill} {
		if f == nil || f.Positions != 22 || f.Index == nil || *f.Index != 1 || f.Top1 != 1 || !(f.MaxDiff < 2e-3) {
			t.Errorf("%s: %+v", what, f)
		}
	}
	if !r.Passed || r.Bits != 6 || !strings.Contains(strings.Join(r.Notes, "\n"), "the best token of each of 16 parts of the vocabulary") {
		t.Errorf("passed %v (%q), %d bits, notes %q", r.Passed, r.Failures, r.Bits, r.Notes)
	}
	// Of goldens with logits, the best of each part is compared.
	r = run(t, m, golden(t, testutil.Shared(t, "peers", "qwen3-checkpoint.golden.safetensors")), Options{})
	if r.Infer.Positions != 150 || r.Infer.Index == nil || !(*r.Infer.Index > 0.8) || !(r.Infer.Cosine.Mean > 0.98) {
		t.Errorf("against the checkpoint: %s, indices %v", line(r.Infer), *r.Infer.Index)
	}
	// And a package with logits is not held to indices.
	logits := load(t, testutil.Shared(t, "peers", "qwen3-fp16-c2"), engine.Options{})
	if _, err := Run(t.Context(), logits, golden(t, testutil.Shared(t, "peers", name+".golden.safetensors")), Options{}); err == nil || !strings.Contains(err.Error(), "the package gives logits") {
		t.Errorf("%v", err)
	}
}

// kindGolden writes what float64 computes of a synthetic package.
func kindGolden(t *testing.T, p *sessiontest.Package, tokens []int32, change func(index []int32, value []float32)) string {
	t.Helper()
	var logits, value []float32
	var index []int32
	for _, row := range p.Reference(tokens) {
		at := 0
		for _, n := range sessiontest.Widths {
			best := at
			for i := at; i < at+n; i++ {
				logits = append(logits, float32(row[i]))
				if row[i] > row[best] {
					best = i
				}
			}
			index, value = append(index, int32(best-at)), append(value, float32(row[best]))
			at += n
		}
	}
	n := len(tokens)
	ids := named("tokens", safetensors.I32, i32s(tokens...), n)
	if !p.Argmax {
		return writeGolden(t, ids, named("logits", safetensors.F32, f32s(logits...), n, sessiontest.Vocab))
	}
	if change != nil {
		change(index, value)
	}
	return writeGolden(t, ids, named("argmax_idx", safetensors.I32, i32s(index...), n, len(sessiontest.Widths)),
		named("argmax_val", safetensors.F32, f32s(value...), n, len(sessiontest.Widths)))
}

// Packages of every kind pass against float64, and what ANEMLL's own sequence
// makes of rotated caches is shown beside it.
func TestKinds(t *testing.T) {
	for _, c := range []struct {
		name     string
		p        sessiontest.Package
		contract int // positions with scores in the contract sequence
		anemll   int // positions
	}{
		{"chunks", sessiontest.Package{Context: 24, Batch: 4, Chunks: 2}, 3, 0},
		{"argmax", sessiontest.Package{Context: 24, Batch: 4, Chunks: 2, Argmax: true, LastToken: true}, 8, 0},
		{"monolithic", sessiontest.Package{Context: 24, Batch: 4, PrefillGives: "all", LastToken: true}, 8, 0},
		{"monolithic, no use of prefill's logits", sessiontest.Package{Context: 24, Batch: 4, PrefillGives: "first", UpdateMask: true}, 3, 0},
		{"rotated", sessiontest.Package{Context: 40, Window: 12, Batch: 4, Chunks: 2, Rotate: true, LastToken: true}, 24, 16},
		{"rotated, a window that batches do not divide", sessiontest.Package{Context: 40, Window: 10, Batch: 4, Chunks: 2, Rotate: true}, 25, 0},
		{"rotated, split, short", sessiontest.Package{Context: 32, Window: 16, Batch: 4, Chunks: 1, Rotate: true, Split: true}, 15, 15},
		{"rotated, monolithic, argmax", sessiontest.Package{Context: 40, Window: 8, Batch: 4, Rotate: true, Argmax: true, PrefillGives: "hidden"}, 25, 16},
	} {
		t.Run(c.name, func(t *testing.T) {
			tokens := sessiontest.Tokens(min(c.p.Context-1, 33))
			m := load(t, c.p.Write(t), engine.Options{})
			r := run(t, m, golden(t, kindGolden(t, &c.p, tokens, nil)), Options{})
			if !r.Passed {
				t.Errorf("failures %q", r.Failures)
			}
			if r.Infer.Positions != len(tokens) || !(r.Infer.MaxDiff < 1e-4) || r.Infer.Top1 != 1 || !(r.Contract.MaxDiff < 1e-4) || !(r.Prefill.MaxDiff < 1e-4) {
				t.Errorf("infer %s, contract %s, prefill %s", line(r.Infer), line(r.Contract), line(r.Prefill))
			}
			if (r.Infer.Index != nil) != c.p.Argmax || c.p.Argmax && *r.Infer.Index != 1 {
				t.Errorf("indices %v", r.Infer.Index)
			}
			if got, want := r.Contract.Positions, c.contract; got != want {
				t.Errorf("the contract sequence gave scores at %d positions, want %d", got, want)
			}
			if (r.Anemll != nil) != (c.anemll > 0) {
				t.Fatalf("ANEMLL's sequence: %+v", r.Anemll)
			}
			notes := strings.Join(r.Notes, "\n")
			if r.Anemll != nil && (r.Anemll.Positions != c.anemll || !(r.Anemll.MaxDiff > 0.02) || !strings.Contains(notes, "ANEMLL's own call sequence")) {
				t.Errorf("ANEMLL's sequence: %s, notes %q", line(r.Anemll), r.Notes)
			}
			if r.Anemll == nil && strings.Contains(notes, "ANEMLL's own") != strings.Contains(c.name, "divide") {
				t.Errorf("notes %q", r.Notes)
			}
			// It can be measured, too.
			b, err := Bench(t.Context(), func() (*session.Model, error) { return m, nil }, BenchOptions{Prompt: 9, Decode: 5, Repeats: 1})
			if err != nil || len(b.Problems) != 0 || b.DecodeTokens != 5 {
				t.Errorf("bench: %+v, %v", b, err)
			}
			if _, err := Run(t.Context(), m, Tokens(tokens), Options{Layers: true}); err == nil {
				t.Error("hidden states without a reference")
			}
		})
	}
}

// Wrong indices and values of an argmax head are found.
func TestArgmaxDamage(t *testing.T) {
	p := sessiontest.Package{Context: 24, Batch: 4, Chunks: 1, Argmax: true}
	m := load(t, p.Write(t), engine.Options{})
	tokens := sessiontest.Tokens(20)
	for _, c := range []struct {
		name   string
		change func(index []int32, value []float32)
		want   string
	}{
		{"indices", func(index []int32, _ []float32) {
			for i := range index {
				if i%3 == 1 {
					index[i] = (index[i] + 1) % 4
				}
			}
		}, "of the best tokens of the vocabulary's parts are the same"},
		{"values", func(_ []int32, value []float32) {
			for i := range value {
				if i%3 == 0 {
					value[i] -= 9
				}
			}
		}, "cosine"},
	} {
		r := run(t, m, golden(t, kindGolden(t, &p, tokens, c.change)), Options{})
		if r.Passed || !strings.Contains(strings.Join(r.Failures, "\n"), c.want) {
			t.Errorf("%s: passed %v, failures %q", c.name, r.Passed, r.Failures)
		}
	}
	nan := float32(math.NaN())
	path := kindGolden(t, &p, tokens, func(_ []int32, value []float32) { value[4] = nan })
	if _, err := Run(t.Context(), m, golden(t, path), Options{}); err == nil || !strings.Contains(err.Error(), "nothing can be held to it") {
		t.Errorf("%s with NaN: %v", filepath.Base(path), err)
	}
}
