package dense

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"sync/atomic"
	"testing"
)

// stored is a Weight in memory that counts how often each element is read.
type stored struct {
	data []float32
	read []atomic.Int32
}

func newStored(data []float32) *stored {
	return &stored{data: data, read: make([]atomic.Int32, len(data))}
}

func (s *stored) Float32(dst []float32, offset int) {
	copy(dst, s.data[offset:offset+len(dst)])
	for i := range dst {
		s.read[offset+i].Add(1)
	}
}

func normal(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64() * math.Exp(r.NormFloat64()))
	}
	return x
}

// exact returns bias + the sum of products, correctly rounded.
func exact(w, x []float32, bias float32) float32 {
	sum := new(big.Float).SetPrec(600).SetFloat64(float64(bias))
	for i := range w {
		p := new(big.Float).SetPrec(600).SetFloat64(float64(w[i]))
		sum.Add(sum, p.Mul(p, new(big.Float).SetFloat64(float64(x[i]))))
	}
	f, _ := sum.Float32()
	return f
}

func TestLinear(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, in := range []int{1, 2, 3, 255, 256, 257, 700} {
		for _, out := range []int{1, 2, 5, 15, 16, 17, 33} {
			for _, tokens := range []int{0, 1, 2, 3, 6} {
				name := fmt.Sprintf("%d tokens from %d to %d", tokens, in, out)
				w, bias := newStored(normal(r, in*out)), normal(r, out)
				x, y, plain := Matrix{tokens, in, normal(r, tokens*in)}, New(tokens, out), New(tokens, out)
				if err := Linear(t.Context(), y, x, w, bias); err != nil {
					t.Fatal(err)
				}
				for i := range w.read {
					if n := w.read[i].Load(); n != 1 && tokens > 0 {
						t.Fatalf("%s: weight %d was read %d times, want once", name, i, n)
					}
				}
				if err := Linear(t.Context(), plain, x, w, nil); err != nil {
					t.Fatal(err)
				}
				for i := range tokens {
					for o := range out {
						row := w.data[o*in : (o+1)*in]
						// 700 float64 roundings are far below one of float32;
						// only a sum that ends near a boundary may go the
						// other way.
						for _, c := range []struct{ got, want float32 }{
							{y.Row(i)[o], exact(row, x.Row(i), bias[o])},
							{plain.Row(i)[o], exact(row, x.Row(i), 0)},
						} {
							if c.got != c.want && c.got != math.Nextafter32(c.want, c.got) {
								t.Errorf("%s: [%d, %d] is %g, want %g", name, i, o, c.got, c.want)
							}
						}
					}
					alone := New(1, out)
					if err := Linear(t.Context(), alone, x.Slice(i, i+1), w, bias); err != nil {
						t.Fatal(err)
					}
					for o, v := range alone.Data {
						if math.Float32bits(v) != math.Float32bits(y.Row(i)[o]) {
							t.Fatalf("%s: [%d, %d] is %g, and %g for the token alone", name, i, o, y.Row(i)[o], v)
						}
					}
				}
			}
		}
	}
}

// Sums whose terms cancel are where float32 sums go wrong.
func TestLinearCancels(t *testing.T) {
	w := newStored([]float32{3e7, 1.5, -3e7, 0.25})
	x := Matrix{2, 4, []float32{1, 1, 1, 1, 2, 1, 2, -1}}
	y := New(2, 1)
	if err := Linear(t.Context(), y, x, w, []float32{0.0625}); err != nil {
		t.Fatal(err)
	}
	if y.Data[0] != 1.8125 || y.Data[1] != 1.3125 {
		t.Errorf("got %v, want [1.8125 1.3125]", y.Data)
	}
}

func TestLinearErrors(t *testing.T) {
	w := newStored(make([]float32, 12))
	for _, c := range []struct {
		name string
		y, x Matrix
		bias []float32
	}{
		{"rows", New(2, 4), New(3, 3), nil},
		{"bias", New(2, 4), New(2, 3), make([]float32, 3)},
	} {
		if err := Linear(t.Context(), c.y, c.x, w, c.bias); err == nil {
			t.Errorf("%s: sizes that do not fit are no error", c.name)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Linear(ctx, New(2, 4), New(2, 3), w, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: error %v", err)
	}
}

func BenchmarkLinear(b *testing.B) {
	const in, out = 1024, 3072
	r := rand.New(rand.NewPCG(1, 2))
	w := memory(normal(r, in*out))
	for _, tokens := range []int{1, 2, 4, 32, 150} {
		x, y := Matrix{tokens, in, normal(r, tokens*in)}, New(tokens, out)
		b.Run(fmt.Sprint(tokens), func(b *testing.B) {
			for b.Loop() {
				if err := Linear(b.Context(), y, x, w, nil); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(in*out*float64(tokens)*float64(b.N)/1e9/b.Elapsed().Seconds(), "GMAC/s")
		})
	}
}

type memory []float32

func (m memory) Float32(dst []float32, offset int) { copy(dst, m[offset:offset+len(dst)]) }
