// Package safetensors reads and writes the safetensors file format: eight
// bytes of header length (little endian), a JSON header that gives each
// tensor's type, shape and byte range, then the bytes of all tensors back to
// back, row-major and little endian.
//
// # What is checked
//
// Files come from strangers, so everything a header says is checked before
// anything is read or allocated by it: the header's length against
// [MaxHeader] and the file, its JSON (strictly; a name given twice is an
// error, which other readers let pass), types, shapes and ranges without
// overflow, each range against its shape, and all ranges together, which
// must cover the rest of the file without overlap, hole or tail. A file that
// was cut off, or that is a Git LFS pointer, fails with a message that says
// so.
//
// # Reading
//
// [Open] maps the file into memory and [File.Bytes] returns views into the
// map: opening a checkpoint of any size costs its header only. Pages that
// were read count as the process's memory until [anemone/internal/platform.Discard] gives them
// back.
//
// # Writing
//
// [Write] gives the same bytes for the same tensors, whatever their order:
// wide types first, then by name, with the header padded to a multiple of
// eight. That is the order of the reference implementation, and with the
// same metadata the files are identical.
package safetensors
