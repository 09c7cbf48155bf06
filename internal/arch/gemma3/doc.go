// Package gemma3 converts and computes the text models of Gemma 3, from 270M
// to 27B. What they have beyond a plain transformer:
//
//   - Two kinds of attention: sliding layers see a window of positions, full
//     layers the whole context, and rotate by other frequencies. Each kind has
//     a cache of its own, as in Gemma 4; see package gemma.
//   - Norms after the attention and the MLP as well as before them, all with
//     factors that are stored as their distance from 1.
//   - Embeddings that are scaled by the square root of their width.
//   - A residual stream that grows beyond what fp16 holds; see [streamScale].
//
// Left out is the vision tower, and refused are models that look at later
// tokens (use_bidirectional_attention: EmbeddingGemma) or cap the attention's
// scores (attn_logit_softcapping).
package gemma3
