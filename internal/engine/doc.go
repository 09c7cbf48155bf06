// Package engine runs ML Programs on any machine. It runs any verified
// function made of the operations of its registry, which has all of mil's
// table, and knows no architecture.
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
// Flexible inputs have a plan for every shape that they come in; inputs are
// held to the ranges and alternatives of the model's description.
//
// # Control flow
//
// The blocks of cond and while_loop are part of the list of steps, with
// jumps between them; see control.go. A loop ends with its context at the
// latest.
//
// Where an inner shape depends on a value (non_zero, a computed reshape, a
// variable of a loop that grows, a list of tensors) there can be no plan.
// Such functions are interpreted: see [interpreter].
//
// # Weights
//
// Constants stay in the form in which they are stored: fp16 tensors in the
// mapped file, look-up tables with their indices packed once for the
// kernels, blocks with scales and sparse weights as bytes of the file; see
// compressed.go. A product with one column reads them as they are, or a row
// at a time; one with many expands a panel of rows at a time. Scales around
// bytes or around a look-up table become tables where these are small.
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
//
// # Numbers
//
// Floating-point values are float32 whatever type is declared, unless
// [Float16] is asked for. Stored constants are what their definition gives
// in the declared type: an fp16 weight made of bytes and scales is rounded
// to fp16.
//
// Integers of all widths are kept in 32 bits and wrap in their own width.
// Division rounds down, as numpy's floor_divide does, real_div of integers
// too; division by 0 and its remainder are 0. Means and roots of integers
// are cut off. A cast to an integer cuts off, and saturates at 32 bits
// before it wraps to fewer; not a number gives 0. Indices may count from the
// end; those that are out of range are an error, also where MIL leaves them
// undefined.
//
// # What MIL leaves open
//
// Where MIL's documentation does not say what an operation gives, numbers
// that Apple published with coremltools decide, and testdata/judge.py checks
// itself against them: which corners resample and resize mean, that gru
// without reset_after applies the gate before the product, that
// non_maximum_suppression keeps the best box even below the threshold, that
// a reversed recurrence gives its states in its own order. Without such
// numbers are: hard_sigmoid and scaled_tanh in recurrent layers (0.2x + 0.5,
// and 1.7159 tanh(2x/3)); which of two equally near elements resize takes
// (the latter); boxes of crop_resize in other modes than those that align
// corners; "same" padding of conv_transpose with an output_shape (split like
// that of conv); the size of windows of local_response_norm (as its
// documentation and PyTorch have it, though one published example differs);
// random numbers, which are the engine's own.
package engine
