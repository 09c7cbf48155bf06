// Package qwen3 is the architecture of the dense Qwen3 models: what their
// config.json and tensors have to be (config.go, weights.go), the graph that
// goes into a package (graph.go), and the float32 computation that packages
// are held to (reference.go). The last two share the configuration and the
// weights and nothing else.
//
// A layer is x += attention(norm(x)), x += mlp(norm(x)): grouped-query
// attention with a norm on each query and key head before the rotary
// embedding, which turns whole heads, and a SiLU-gated MLP.
package qwen3
