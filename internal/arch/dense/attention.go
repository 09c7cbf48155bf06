package dense

import (
	"context"
	"fmt"
)

// KV is what an attention layer remembers of each token: a row of keys and a
// row of values, those of all heads side by side.
type KV struct{ K, V []float32 }

// Append adds a row for each row of k and v.
func (c *KV) Append(k, v Matrix) {
	c.K = append(c.K, k.Data...)
	c.V = append(c.V, v.Data...)
}

// Truncate keeps the first n rows of the given width, or all if there are
// fewer.
func (c *KV) Truncate(n, width int) {
	c.K, c.V = c.K[:min(len(c.K), n*width)], c.V[:min(len(c.V), n*width)]
}

// Attention is grouped-query attention: consecutive groups of Heads/KVHeads
// query heads share a head of keys and values.
type Attention struct {
	Heads, KVHeads, HeadDim int
	Scale                   float64 // of the products of queries and keys
	Window                  int     // tokens that one attends to, itself included; 0 for all up to it
}

// Attend sets out, for each row of q and each query head in it, to the values
// of the tokens up to it, weighted by the softmax of their keys' scaled
// products with the query. The rows of q are those of tokens from position
// pos on, which the cache holds already. out may be q.
//
// probs, if not nil, has memory for the weights of each row and head, at
// row*Heads+head, where they stay.
func (a Attention) Attend(ctx context.Context, out, q Matrix, cache *KV, pos int, probs [][]float32) error {
	d, width, group := a.HeadDim, a.KVHeads*a.HeadDim, a.Heads/a.KVHeads
	if held := (pos + q.Rows) * width; len(cache.K) < held || len(cache.V) < held {
		return fmt.Errorf("attention of tokens %d to %d: the cache holds %d rows of keys and %d of values", pos, pos+q.Rows-1, len(cache.K)/width, len(cache.V)/width)
	}
	type scratch struct {
		probs []float32
		sums  []float64
	}
	newScratch := func() *scratch { return &scratch{make([]float32, pos+q.Rows), make([]float64, d)} }
	return ParallelScratch(ctx, q.Rows*a.Heads, newScratch, func(s *scratch, i int) error {
		token, head := i/a.Heads, i%a.Heads
		last := pos + token
		first := 0
		if a.Window > 0 {
			first = max(0, last-a.Window+1)
		}
		at := head / group * d // of the head's keys and values in a cache row
		query := q.Row(token)[head*d:][:d]
		p := s.probs[:last-first+1]
		if probs != nil {
			p = probs[i]
		}
		for j := range p {
			p[j] = float32(Dot(query, cache.K[(first+j)*width+at:][:d]) * a.Scale)
		}
		Softmax(p)
		clear(s.sums)
		for j, w := range p {
			for k, v := range cache.V[(first+j)*width+at:][:d] {
				s.sums[k] += float64(w) * float64(v)
			}
		}
		to := out.Row(token)[head*d:][:d]
		for k, v := range s.sums {
			to[k] = float32(v)
		}
		return nil
	})
}
