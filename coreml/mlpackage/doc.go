// Package mlpackage reads and writes .mlpackage bundles, the form in which
// Xcode and coremltools exchange Core ML models.
//
//	X.mlpackage/
//	  Manifest.json
//	  Data/com.apple.CoreML/model.mlmodel          the specification
//	  Data/com.apple.CoreML/weights/weight.bin     the weights, if any
//
// Only ML Programs are supported. Core ML itself compiles a package when it
// is loaded; other programs, and ours, read it as it is. Package mlmodelc
// reads and writes the compiled form.
//
// A file of weights that exists already ([Options.WeightsFrom],
// [Options.Keep]) is taken over as a copy that shares its blocks (APFS,
// btrfs, XFS), else as a hard link, and only on another file system by
// copying. A hard link is the same file under two names: replace such a file,
// do not change it in place.
package mlpackage
