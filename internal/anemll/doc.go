// Package anemll knows the layout of ANEMLL 0.3.5 packages: the folder of
// Core ML models, meta.yaml and tokenizer files that ANEMLL's runtimes,
// oxinfer and this project load. What such a folder promises to a runtime
// (files, inputs, outputs, states, call sequence) is written down once, here.
//
// [Meta] is meta.yaml as a Go type; [ParseMeta] reads it the way lenient
// runtimes do, [Meta.Encode] writes the exact shape that ANEMLL's own scripts
// expect. [Open] finds the parts of a package, reads every shape from the
// models (never from meta.yaml) and checks that the parts fit each other.
package anemll
