// Package mlpackage reads and writes .mlpackage bundles, the form in which
// Xcode and coremltools exchange Core ML models.
//
//	X.mlpackage/
//	  Manifest.json
//	  Data/com.apple.CoreML/model.mlmodel          the specification
//	  Data/com.apple.CoreML/weights/weight.bin     the weights, if any
//
// Only ML Programs are supported. Core ML itself compiles a package when it
// is loaded; other programs, and ours, read it as it is.
package mlpackage
