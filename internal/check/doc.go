// Package check proves that a package computes what its checkpoint computes,
// and measures how fast.
//
// # Teacher forcing
//
// A [Target] knows a sequence of tokens and the logits that belong after each
// of them: [Greedy] lets the float32 reference write the sequence, [Text]
// lets it read one, and [Golden] takes both from a file. [Run] sends the same
// tokens through the package in two ways at once and holds the logits of each
// to the target's at every position where both exist:
//
//   - the contract sequence: full batches through prefill, the rest through
//     infer, as a runtime would, over the whole sequence;
//   - infer only, token by token;
//
// and these two to each other. The reference runs ahead by a batch at most,
// so memory is that of a batch of logits whatever the length of the sequence.
//
// # Figures
//
// All figures are computed in float64 from the float32 logits r of the target
// and l of the package: the cosine r·l/(|r||l|), the Kullback-Leibler
// divergence KL(softmax r || softmax l) in nats, the largest |r-l|, whether
// both have the same best token (top-1), whether the target's best token is
// among the package's best five (top-5), and which part of the target's best
// five is among the package's best five (overlap). Of equal logits the one
// with the lower index is better. A row that holds a NaN or an infinity has
// no figures: such positions are counted on their own and never pass.
//
// # Layers
//
// With [Options].Layers, the residual stream behind every decoder layer is held
// to the reference's as well, in packages as they are, however many layers a
// chunk has. The stream is found in the program without knowing the
// architecture (see findStream), and the decoder's functions are given further
// outputs for it, in a copy that any runner loads like every other model.
//
// [Bench] measures rates, [Plan] says which device would run each operation.
package check
