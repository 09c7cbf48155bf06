// Package qwen3 is the architecture of the dense Qwen3 models: the shared
// [decoder] with a norm on each query and key head before the rotary
// embedding.
package qwen3
