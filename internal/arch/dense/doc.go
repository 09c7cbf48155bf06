// Package dense holds what the float32 references of all architectures are
// made of: row-major matrices, products of a matrix with a weight that stays
// on disk, and the few vector functions of a decoder layer. Plain loops, no
// graph, nothing shared with what the references judge.
//
// # Numerics
//
// Values between operations are float32, as in the framework that the
// checkpoints come from. Within an operation every sum is a float64 sum of
// exact products: a float32 product has at most 48 significant bits, so it
// fits float64 without rounding, and fusing the multiplication with the
// addition changes nothing. Sums are therefore the same on every CPU, and
// within half a float32 unit of the true value unless they cancel nearly
// completely. In scalar code float64 costs no more than float32.
//
// # Rows are independent
//
// Every function computes a row of its result from the same row of its
// argument with the same additions in the same order, however many rows
// there are and however many goroutines work. Feeding tokens one by one or
// all at once gives the same bits.
package dense
