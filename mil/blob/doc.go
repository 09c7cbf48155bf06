// Package blob reads and writes files of weights ("weight.bin"), the storage
// format of version 2 that lies beside an ML Program.
//
// # The file
//
// All numbers are little-endian. A header of 64 bytes (u32 number of blobs,
// u32 version 2, zeros) is followed by the blobs, each at the next multiple
// of 64. A blob is a record of 64 bytes and the data:
//
//	 0  u32    0xDEADBEEF
//	 4  u32    type code, see [Code]
//	 8  u64    size of the data in bytes
//	16  u64    offset of the data from the start of the file
//	24  u64    unused bits at the end of the last byte
//	32  4 u64  zero
//
// A program refers to a blob by the offset of its record. Elements smaller
// than a byte are packed without gaps, the first in the lowest bits.
//
// # Writing
//
// A [Plan] gives every weight its place before a byte is known, so that the
// program can be written first; [Plan.Write] then asks each weight for its
// bytes once, in order, and keeps none of them.
//
// # Reading
//
// A [Reader] works on the bytes of the file, as a rule mapped into memory.
// The weights it gives are slices of them.
package blob
