// Package kernels is the arithmetic of the engine: loops over slices that
// know nothing of programs, shapes or threads.
//
// Every kernel sums in an order that depends only on the length of what it
// sums, never on how the caller splits rows between goroutines: the same row
// gives the same bits whether it is computed alone or with others. The order
// differs between kernels and between tiers of one kernel (portable Go,
// assembly), so equality across those holds within a tolerance only.
//
// # Matrices
//
// A [Matrix] is a constant weight in the form in which it is kept in memory:
// float32, fp16, or look-up tables with packed indices. Its rows are output
// channels. Multiplying it by one column reads the stored form directly
// ([Matrix.MulVec]); for many columns a caller expands a few rows at a time
// ([Matrix.Panel]) and multiplies those with [MulNT].
//
// # Packed indices
//
// LUT indices are stored in blocks of 128 columns, each block as 16 lanes by
// 8 steps: column 16*j+l is step j of lane l. Widths that are sums of 4, 2
// and 1 bits are kept in planes of these: a 4-bit plane has 16 uint32 lanes
// per block with step j in bits 4j to 4j+3, a 2-bit plane 16 uint16 lanes
// with step j in bits 2j and 2j+1, a 1-bit plane 16 bytes with step j in bit
// j. Indices of 8 bits are plain bytes in the order of the columns. So
// vector code loads a plane's lanes into 16 32-bit lanes, and shifts by a
// constant to get 16 neighbouring columns, whatever the width.
package kernels
