// Package engine runs ML Programs on any machine. It runs any verified
// function made of the operations of its registry and knows no
// architecture.
//
// # Plan and run
//
// The first call of a function with inputs of some shapes makes a plan: the
// shape of every value, a list of steps, and the place of every value in one
// stretch of memory. What depends on constants only is computed then and
// there. A step is a closure over buffers that have their places; running it
// allocates nothing.
//
// A value is a buffer and a [view] of it, whose axes are nests of strided
// loops. Operations that move elements about (reshape, transpose, slices,
// tile, broadcasting) only change the view; a consumer that needs its
// operand dense copies it then. So the repeated heads of grouped-query
// attention are never copied, and a 1x1 convolution over [1, C, 1, T] works
// on rows of channels, which transposes around it merely rename.
//
// # Weights
//
// Constants stay in the form in which they are stored: fp16 tensors in the
// mapped file, look-up tables with their indices packed once for the
// kernels. A product with one column reads them as they are; one with many
// expands a panel of rows at a time.
//
// # States
//
// A state lies in memory of its own, float32. Reading it gives a view, and a
// slice update that is then written back changes only its rows, if nothing
// reads the old contents later; see [aliases].
//
// # Parallelism
//
// Steps run one after another; each is divided into pieces whose bounds do
// not depend on the number of workers, so results do not either, bit by bit.
package engine
