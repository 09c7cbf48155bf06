// Package nn has the pieces that the graphs of several architectures share,
// as short functions over a [mil.Builder], in the forms that the Neural
// Engine runs well and exactly enough:
//
//   - RMSNorm as layer_norm over [x, -x]: the mean of that is exactly zero,
//     so the variance is the mean square, and the engine's own fused
//     normalization accumulates it with more than fp16;
//   - linear layers as 1x1 convolutions over [1, channels, 1, tokens];
//   - sigmoid and SiLU through tanh, since the engine's sigmoid is coarse;
//   - caches as one state, updated by one slice per key and per value.
//
// Shapes are written [a, b, c] in the comments; T is the number of tokens of
// a call, H the hidden size, C the length of the context.
package nn
