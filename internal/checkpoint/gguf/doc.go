// Package gguf reads the GGUF file format, in which llama.cpp and its kin
// keep models: one file with the settings, the vocabulary and the weights,
// most of them quantized. It knows nothing of any architecture.
//
// # Layout
//
// All numbers are little endian. A string is a uint64, its length in bytes,
// and the bytes; nothing is padded but the data of tensors.
//
//	"GGUF"  uint32 version  uint64 tensors  uint64 entries
//	entries times:  string key  uint32 type  value
//	tensors times:  string name  uint32 n  n times uint64 dimension  uint32 type  uint64 offset
//	zeros up to a multiple of the alignment
//	data
//
// A value is a number of 8 to 64 bits, a bool of one byte, a string, or an
// array: the type of its elements, their number as uint64, and the elements.
// The alignment is the value of general.alignment, else 32. Offsets count
// from the beginning of the data and are multiples of the alignment.
// Dimensions begin with the one whose elements are neighbours; [Info] has
// them the other way round, as Hugging Face does.
//
// Versions 2 and 3 are read. They do not differ, but that files of version 3
// may be big-endian: those are refused, and so is version 1, which had
// lengths of 32 bits and lasted for days. A model that was split into several
// files is refused with the command that joins them: models are split for
// being larger than a site allows, tens of gigabytes, and the ones that this
// program is for are far smaller.
//
// # What is checked
//
// Files come from strangers, so all of the header is checked when it is
// opened, before anything is allocated by what it says: counts and lengths
// against the file and against bounds for the header as a whole and for each
// array, keys and names (UTF-8, given once, of bounded length),
// types, bools, dimensions and sizes without overflow, rows that are whole
// blocks, offsets that keep the alignment, and tensors, which must lie within
// the file and apart from each other. Gaps between them, and bytes after the
// last, are let pass. A file that was cut off, or that is a Git LFS pointer,
// fails with a message that says so.
//
// # Reading
//
// [Open] maps the file into memory. Values of the metadata are found but not
// decoded: a vocabulary costs nothing until [File.Strings] is called. What is
// decoded takes at most a few times the bytes it has in the file.
// [File.Bytes] returns views into the map; pages that were read count as the
// process's memory until [anemone/internal/platform.Discard] gives them back.
//
// # Quantized types
//
// A row of a quantized tensor is a sequence of blocks of 32 or 256 elements.
// A block of 32 has a scale in fp16 and, in the types _1, a minimum. In the
// types _K, a block of 256 has runs of 16 or 32 elements, whose scales and
// minima are small integers, to be multiplied by the block's two fp16
// numbers. [Type.Dequantize] gives the values as ggml's own reference (the
// Python package gguf) computes them, bit for bit.
package gguf
