// Package qwen2 is the architecture of the dense Qwen2 and Qwen2.5 models, and
// of what was distilled into them: the shared [decoder] with biases of the
// projections to queries, keys and values.
package qwen2
