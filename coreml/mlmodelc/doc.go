// Package mlmodelc reads and writes .mlmodelc bundles, the compiled form in
// which Core ML loads models.
//
//	X.mlmodelc/
//	  coremldata.bin             the description, in a container
//	  model.mil                  the program as text (package miltext)
//	  weights/weight.bin         the weights, if any
//	  metadata.json              what Xcode and other tools show
//	  analytics/coremldata.bin   counters
//
// Only ML Programs are supported. Compiling one optimises nothing: the text
// is the program of a package, operation by operation, and the file of
// weights is the same file. [Compile] and [Decompile] go from one form to the
// other, [Open] and [Write] from and to a model in memory.
//
// A reader needs the first three; the others are made for the sake of tools,
// some of which refuse a bundle that lacks one. What Apple's compiler puts in
// them that a model does not decide (its own version, a hash) is in
// [Details].
//
// A file of weights that exists already ([Options.WeightsFrom],
// [Options.Keep], and what Compile and Decompile do) is taken over as a copy
// that shares its blocks (APFS, btrfs, XFS), else as a hard link, and only on
// another file system by copying. A hard link is the same file under two
// names: replace such a file, do not change it in place.
package mlmodelc
