package compress

import (
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"anemone/internal/float16"
)

// normal returns fp16 patterns of normal numbers, as from a bfloat16
// checkpoint or as from one of higher precision.
func normal(seed uint64, n int, bf16 bool) []uint16 {
	r := rand.New(rand.NewPCG(seed, 0))
	w := make([]uint16, n)
	for i := range w {
		f := float32(r.NormFloat64() * 0.03)
		if bf16 {
			f = float16.BFloat16ToFloat32(float16.BFloat16FromFloat32(f))
		}
		w[i] = float16.FromFloat32(f)
	}
	return w
}

func BenchmarkPalettize(b *testing.B) {
	const rows, cols = 1024, 1024
	for _, bf16 := range []bool{true, false} {
		src := FromFloat16(normal(1, rows*cols, bf16), cols)
		kind := "fp16"
		if bf16 {
			kind = "bf16"
		}
		for _, e := range []Encoding{{4, 8}, {6, 8}, {8, 8}, {4, 0}, {4, 1}, {2, 8}} {
			b.Run(fmt.Sprintf("%s/%v", kind, e), func(b *testing.B) {
				p, err := Palettize(src, []int{rows, cols, 1, 1}, e, Options{Workers: 1})
				if err != nil {
					b.Fatal(err)
				}
				for range b.N {
					if _, err := p.Indices.WriteTo(io.Discard); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/rows/cols, "ns/weight")
			})
		}
	}
}
