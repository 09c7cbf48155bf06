// Package vocab turns vocabularies that are not a tokenizer.json into one.
//
// The metadata of a GGUF file and SentencePiece's tokenizer.model both hold a
// list of tokens with scores and kinds, and leave to the program that reads
// them how text is split. [Vocabulary] is what they have in common;
// [Vocabulary.TokenizerJSON] writes down what the program is meant to do in the
// form that Hugging Face's libraries, Apple-side runtimes and package tokenizer
// read, with [Vocabulary.TokenizerConfig] beside it.
//
//	GGUF metadata ----------------> Vocabulary --> tokenizer.json, tokenizer_config.json
//	tokenizer.model (ReadSentencePiece) --^
package vocab
