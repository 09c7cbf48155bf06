// Package decoder is the transformer that Llama, Mistral, Qwen2 and Qwen3
// share, each an architecture of its own that says which options it has: the
// configuration (config.go, rope.go), the tensors (weights.go), the graph that
// goes into a package (graph.go), and the float32 computation that packages
// are held to (reference.go). The last two share the configuration and the
// weights and nothing else.
//
// A layer is x += attention(norm(x)), x += mlp(norm(x)): grouped-query
// attention whose rotary embedding turns whole heads, and a SiLU-gated MLP.
// Options are a norm on each query and key head before the rotation, biases
// of the linear layers, and frequencies that are scaled for longer contexts.
package decoder
