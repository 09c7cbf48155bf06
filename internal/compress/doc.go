// Package compress turns dense weight matrices into the forms in which Core
// ML programs store them: fp16 as it is, or indices into look-up tables
// ("palettization", the operation constexpr_lut_to_dense of iOS 18).
//
// # Tables
//
// A matrix has one row per output channel. Neighbouring rows form groups;
// each group has a table of 2^N fp16 values, and each weight is stored as the
// N-bit number of an entry of its group's table. [Palettize] finds the tables
// by exact one-dimensional k-means: no other table of that size gives a
// smaller squared error, up to the rounding of its entries to fp16. A
// [Method] can replace k-means, and an [Importance] can say which weights
// matter more than others.
//
// # Promises
//
// Nothing is read or computed before a blob is written: [Palettize] and
// [Dense] return promises ([mil.Weight]). Indices are written while the
// groups are being clustered, by all cores, and in order; only the tables
// (and a few groups per core) are in memory. The bytes depend neither on the
// number of cores nor on the machine.
//
// What was done to every weight, and what it cost in precision, is collected
// in a [Report].
package compress
