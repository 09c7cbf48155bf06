package engine

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"anemone/internal/runner"
	"anemone/mil"
)

var benchPackage = flag.String("package", "", "folder of a package to measure")

// openAny opens the parts of a package by their names' usual pieces.
func openAny(t testing.TB, dir string, o Options) *peer {
	t.Helper()
	one := func(pattern string) []string {
		m, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(m) == 0 {
			t.Fatalf("no %s in %s", pattern, dir)
		}
		return m
	}
	p := &peer{t: t}
	p.emb = openModel(t, one("*_embeddings*.mlpackage")[0], o)
	p.head = openModel(t, one("*_lm_head*.mlpackage")[0], o)
	for _, c := range one("*_FFN_PF*chunk_*.mlpackage") {
		p.chunks = append(p.chunks, openModel(t, c, o))
	}
	for _, in := range p.chunks[0].Function("prefill").Inputs {
		if strings.HasPrefix(in.Name, "causal") {
			p.batch, p.ctx = in.Shape[2], in.Shape[3]
		}
	}
	st, err := p.chunks[0].NewState()
	if err != nil {
		t.Fatal(err)
	}
	p.st = st
	return p
}

// BenchmarkPackage measures decoding and prefill of a whole package:
//
//	go test -run - -bench Package -package DIR ./internal/engine
func BenchmarkPackage(b *testing.B) {
	if *benchPackage == "" {
		b.Skip("needs -package DIR")
	}
	p := openAny(b, *benchPackage, Options{})
	ids := make([]int32, p.batch)
	var h *runner.Tensor
	b.Run("prefill", func(b *testing.B) {
		p.t = b
		h = p.call("prefill", ids, 0)
		start := time.Now()
		for b.Loop() {
			p.call("prefill", ids, 0)
		}
		b.ReportMetric(float64(b.N*p.batch)/time.Since(start).Seconds(), "tokens/s")
	})
	b.Run("decode", func(b *testing.B) {
		p.t = b
		p.logits(p.call("infer", ids[:1], p.batch))
		start := time.Now()
		for b.Loop() {
			h = p.call("infer", ids[:1], p.batch)
			p.logits(h)
		}
		b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "tokens/s")
	})
	var sum Stats
	for _, m := range append([]*Model{p.emb, p.head}, p.chunks...) {
		s := m.Stats()
		sum.Mapped += s.Mapped
		sum.Packed += s.Packed
		sum.Constants += s.Constants
		sum.Arenas += s.Arenas
		sum.State = max(sum.State, s.State)
		sum.Plans += s.Plans
	}
	b.Logf("MiB: %d mapped, %d packed, %d constants, %d arenas, %d state; %d plans",
		sum.Mapped>>20, sum.Packed>>20, sum.Constants>>20, sum.Arenas>>20, sum.State>>20, sum.Plans)
}

// BenchmarkPool measures what it costs to divide work.
func BenchmarkPool(b *testing.B) {
	for _, workers := range []int{1, 2} {
		b.Run(fmt.Sprintf("%d workers", workers), func(b *testing.B) {
			m := &Model{pool: newPool(workers)}
			defer m.Close()
			c := m.newCall()
			body := func(*call, int, int) {}
			for b.Loop() {
				c.parallel(8, body)
			}
		})
	}
}

// BenchmarkForms measures products of one column with stored constants that
// are decompressed row by row.
func BenchmarkForms(b *testing.B) {
	m := &formMaker{b, rand.New(rand.NewPCG(1, 2))}
	shape := []int{1024, 1024}
	for _, f := range []form{
		m.blockwise(mil.Int4, mil.Float16, shape, []int{1024, 32}, false),
		m.blockwise(mil.Int8, mil.Float16, shape, []int{1024, 32}, true),
		m.blockwise(mil.Int8, mil.Float16, shape, []int{1024, 1}, true),
		m.sparse(0.4, shape),
		m.sparseTables(shape, []int{1, 1}, 4),
	} {
		p := mil.NewBuilder("main", mil.CoreML8)
		w := f.build(p)
		p.Output("out", p.Op("linear", mil.A("x", p.Input("x", mil.TensorOf(w.Type.DType, 1, shape[1]))), mil.A("weight", w)))
		fn, err := p.Build()
		if err != nil {
			b.Fatal(err)
		}
		e := modelOf(b, fn, Options{Workers: 1})
		in, out := runner.Values{"x": runner.Floats(w.Type.DType, make([]float32, shape[1]), 1, shape[1])}, runner.Values{}
		b.Run(f.name, func(b *testing.B) {
			for b.Loop() {
				if err := e.Predict(b.Context(), "main", in, out, nil); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(shape[0]*shape[1])*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mweights/s")
		})
	}
}
