// Package qwen35 knows the models of Qwen3.5, 3.6 and 3.8: hybrids in which
// most layers are Gated DeltaNets, whose memory is a matrix of fixed size, and
// every fourth attends to the whole context; dense, or with a mixture of
// experts.
//
// A Gated DeltaNet head keeps S [d_k, d_v]. With a key k and a query q of unit
// length, a value v, a decay e^g and a rate beta, each token does
//
//	S = e^g S;  S += k (beta (v - S'k))';  o = S'q / sqrt(d_k)
//
// The reference computes just that. The graph's infer function does it with
// sqrt(d_k) S in place of S, so that products stay in the normal range of fp16,
// and its prefill function takes the tokens in chunks; see delta.go.
package qwen35
