// Package gguftest makes GGUF files for tests: of entries and tensors as they
// are given ([Encode]), or of a Hugging Face folder, as llama.cpp's converter
// makes them ([Convert]). It shares no code with the packages that read them.
package gguftest
