// Package testdata embeds the small trained checkpoint that the demo converts
// and that tests use: a Qwen3 of four layers, hidden size 128 and 1024 tokens,
// trained on generated stories.
//
// The checkpoints of the other architectures are for tests only; their large
// files are packed, and gunzip makes a checkpoint of them again.
package testdata

import "embed"

// TinyQwen3 holds the checkpoint's files below checkpoints/tiny-qwen3.
//
//go:embed checkpoints/tiny-qwen3
var TinyQwen3 embed.FS
