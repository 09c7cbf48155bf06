// Package llama is the architecture of Llama 1 to 3.3 and of the many models
// made like them (TinyLlama, SmolLM2, Yi, DeepSeek's distillations), and of
// Mistral without its sliding window: the shared [decoder], with frequencies
// of the rotary embedding as Llama 3.1 scales them.
package llama
