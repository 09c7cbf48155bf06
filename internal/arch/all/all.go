// Package all lists the architectures that Anemone knows, once for the library
// and the commands.
package all

import (
	"anemone/internal/arch"
	"anemone/internal/arch/gemma3"
	"anemone/internal/arch/gemma4"
	"anemone/internal/arch/llama"
	"anemone/internal/arch/qwen2"
	"anemone/internal/arch/qwen3"
	"anemone/internal/arch/qwen35"
)

// Registry holds every architecture.
var Registry = arch.Registry{llama.Architecture, qwen2.Architecture, qwen3.Architecture, qwen35.Architecture, gemma3.Architecture, gemma4.Architecture}
