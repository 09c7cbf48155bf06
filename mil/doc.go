// Package mil holds ML Programs in memory: the intermediate language of Core
// ML models ("MIL"), as data that other packages build, check, write, read
// and run.
//
// # The parts
//
// A [Program] is a list of named [Function]s. A function has typed inputs
// (some of them states, which live from one call to the next) and a [Block]
// of [Operation]s in execution order. An operation takes named arguments and
// gives named [Value]s; a value is used by pointing at it. Values that are
// known before the program runs are constants: a [Literal] if they are
// written in the program itself, a [Weight] if they are written in a file of
// blobs beside it.
//
// One table, [Ops], says for every operation which arguments it takes and
// which types it gives. [Builder], [Verify] and the executors all read it.
//
// # Weights are promises
//
// A weight says its type at once and its bytes only when it is written: it
// may stand for a slice of a checkpoint that is not read before then. Peak
// memory of a conversion is thus a few tensors, whatever the size of the
// model. Two uses of the same Weight (the same pointer) are one blob.
//
// # What this package does not know
//
// No architecture, no file layout, no arithmetic: those are the packages
// around it. mil/milproto and mil/blob are the two halves of the stored form.
package mil
