// Package gemma4 converts and computes the text models of Gemma 4, E2B and
// E4B. What they have beyond a plain transformer:
//
//   - Per-layer inputs: a second embedding table with a row of every layer for
//     every token, and a projection of the token's own embedding, together
//     enter each layer after its MLP. The embeddings model computes them for
//     all layers at once.
//   - Two kinds of attention: sliding layers see a window of positions, full
//     layers the whole context, with wider heads and a rotation of a part of
//     their dimensions. Each kind has a cache of its own.
//   - Shared keys and values: the last layers compute queries only and read
//     what the last layer of their kind before them has stored.
//
// For contexts much longer than the window, the cache of the sliding layers
// is a block-shifting window; see [gemma.Caches]. A package then cannot be
// rewound.
//
// Left out are the vision and audio towers, and refused are models with
// shared projections for keys and values (attention_k_eq_v: 12B and 31B) and
// with experts (enable_moe_block: 26B-A4B).
package gemma4
