// Package session runs the call sequence of a package: which model is called
// with what, token after token.
//
// A [Model] is a package whose parts are loaded by some runner; it never asks
// which one. A [Session] is one context (a sequence of tokens and the states
// that remember it): [Session.Feed] appends tokens and gives the logits after
// the last one, [Session.Each] gives the logits after every one (teacher
// forcing), and [Session.Generate] does what a chat needs: it feeds only what
// is new of a prompt, samples, stops, makes room when the context is full,
// and reports all of it as events.
//
// # The sequence
//
// Full batches of a prompt go through the decoder's prefill function, the
// rest token by token through infer; where the package has functions prefill_N
// for fewer tokens, as much of the rest as fills their calls goes through these
// first, the largest N in front. Every token is processed exactly once
// and in order, which holds for recurrent states and plain caches alike.
// Logits after the last token come from the call that processed it. Where the
// package's prefill does not return the last token's state (ANEMLL's own
// packages return the first one's), the last token therefore always goes
// through infer: a prompt of n tokens takes (n-1)/B batches rather than n/B
// and a repetition.
//
// No partial batch is ever padded, and no batch passes the end of the
// context.
//
// # Going back
//
// A plain KV cache goes back to any position: what lies behind is masked, and
// written again. Recurrent states and caches that shift within the graph cannot,
// and neither do rotated ones. For these a session keeps [Snapshots]: copies of the
// states, of full-length caches the rows so far only, bounded in number and
// bytes. A prompt that departs from what the context holds goes on from the longest
// snapshot with which it begins, or from position 0, and the rest is fed; so does a
// context that is full, and one that a failed call has left unknown. Callers
// give whole prompts and positions are the session's affair: no call exists that
// feeds one twice or out of order, other than [AnemllSequence], which packages of
// that kind refuse.
//
// # Rotated caches
//
// Packages with a sliding window may keep only its keys and values, in caches
// that infer_rotate shifts by one row per call from position W = the window on.
// Below W everything is as above, and no batch reaches across W. From W on
// tokens go one by one through infer_rotate, as the prefill_rotate that ANEMLL
// makes lets tokens see later ones of their batch. The last token of a prompt
// is not repeated, which would shift the caches twice. [AnemllSequence] does all
// of that as ANEMLL's runtimes do, so that the difference can be measured.
//
// # Heads without logits
//
// A head converted with argmax_in_model gives the best token of each part of
// the vocabulary and its logit. [Session.Best] is the best of all of them,
// which is all that greedy generation needs; tokens cannot be drawn.
package session
