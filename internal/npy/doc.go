// Package npy reads and writes arrays in NumPy's file formats: .npy, one
// array behind a header that is a Python dictionary, and .npz, a ZIP archive
// of such files.
//
// # What is read
//
// Versions 1.0 to 3.0 of the format; booleans, integers of 8 to 64 bits and
// floating-point numbers of 16 to 64 bits, in either byte order, stored by
// rows (C order) or by columns (Fortran order). [Decode] always gives
// row-major little-endian bytes. Strings, dates, complex numbers, records
// and Python objects (which are pickles: programs) are refused by name.
//
// Archives may be stored or deflated, with or without ZIP64.
//
// # What is checked
//
// Files come from strangers. Headers have a size limit and are parsed
// strictly, shapes are multiplied without overflow, and no memory is taken
// that the file's size, or for deflated entries the caller ([Entry.Read]
// after [Entry.Header]), does not vouch for.
//
// # What is written
//
// Version 1.0, row-major, little endian, padded as NumPy pads: the same bytes
// as numpy.save. [WriteZip] stores its entries without compression, as
// numpy.savez does.
package npy
