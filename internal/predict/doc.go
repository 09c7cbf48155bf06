// Package predict runs a function of a single Core ML model on arrays from
// files, and puts what it gives into files: what a .mlpackage, a .mlmodel or
// a compiled .mlmodelc computes can be tried and compared without writing a
// program.
//
// # Files
//
// [OpenFile] reads safetensors, NumPy's .npz and .npy, and JSON; [WriteFile]
// writes all but .npy. In JSON an array is a nested list, a number alone, or
// an object with its shape and its elements:
//
//	{
//	  "input_ids":   [[1, 2, 3]],
//	  "current_pos": 7,
//	  "causal_mask": {"shape": [1, 1, 1, 4], "data": [0, 0, "-Infinity", "-Infinity"]}
//	}
//
// NaN, Infinity and -Infinity, which JSON has no numbers for, are strings, or
// bare words as Python writes them.
//
// # Conversions
//
// An array becomes an input if that loses nothing, apart from rounding of
// floating-point numbers, which is counted ([Conversion]): int64 becomes int32
// if every value is in range, float64 becomes int32 if every value is whole,
// integers become fp16 if every value is one. Dimensions of size 1 may be
// added and left out where that fits but one shape of the model. All else is an error
// that names the value.
//
// With float32 arithmetic floating-point inputs, outputs and states are
// float32 whatever the model declares, as they are inside; with fp16 arithmetic
// they have the declared type. Either way, what is written can be read back as
// an input or state without changing a bit.
package predict
