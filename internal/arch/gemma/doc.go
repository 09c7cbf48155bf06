// Package gemma has what Gemma 3 and Gemma 4 share: how config.json describes
// a text model (config.go), and, for their graphs, layers of two kinds, those
// that attend to a sliding window and those that see the whole context, each
// kind with a cache, a mask and a rotation of its own.
//
// For contexts much longer than the window, the cache of the sliding layers
// is a block-shifting window; see [window]. A package then cannot be rewound.
package gemma
