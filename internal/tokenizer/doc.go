// Package tokenizer turns text into the token ids that a model was trained on
// and back, as described by the tokenizer.json of a Hugging Face checkpoint.
//
// It implements byte pair encoding in its two current forms, over bytes (the
// ByteLevel components: GPT-2, Llama 3, Qwen) and over characters with a
// fallback to bytes (Gemma, Llama 2), and SentencePiece's unigram model. The ids
// are those of the PyPI package tokenizers 0.23, character class tables and
// normalization included; golden data made with it pins that down. A component
// that this package does not know is an error that names it, never a guess.
// Package vocab makes a tokenizer.json of vocabularies in other forms.
//
// # How text becomes ids
//
// Text that is not valid UTF-8 is first repaired as Python's errors="replace"
// does it. Added tokens that are not normalized ("<|im_start|>") are cut out;
// the rest is normalized, added tokens that are normalized are cut out, and
// what remains is split into pieces by the pre-tokenizer. The model looks at
// each piece on its own, so equal pieces get equal ids and a small cache serves
// most of a text.
//
// The regular expressions in use (GPT-2, Llama 3, Qwen 2 and 3, Qwen 3.5) are
// recognised by their text and run as hand-written scanners in linear time.
// Any other expression runs on a backtracking engine.
//
// # Limits
//
// A tokenizer.json is input like any other: sizes are checked before they
// are allocated (see the constants in limits.go), and a hostile file gives an
// error.
package tokenizer
