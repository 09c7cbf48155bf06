package dense

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
)

type mem []float32

func (m mem) Float32(dst []float32, offset int) { copy(dst, m[offset:offset+len(dst)]) }

func BenchmarkLinear(b *testing.B) {
	const in, out = 1024, 3072
	r := rand.New(rand.NewPCG(1, 2))
	w := make(mem, in*out)
	for i := range w {
		w[i] = float32(r.NormFloat64())
	}
	for _, tokens := range []int{1, 2, 4, 32, 150} {
		x, y := New(tokens, in), New(tokens, out)
		for i := range x.Data {
			x.Data[i] = float32(r.NormFloat64())
		}
		b.Run(fmt.Sprint(tokens), func(b *testing.B) {
			for b.Loop() {
				if err := Linear(context.Background(), y, x, w, nil); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(in*out*tokens)*float64(b.N)/1e9/b.Elapsed().Seconds(), "GMAC/s")
		})
	}
}
