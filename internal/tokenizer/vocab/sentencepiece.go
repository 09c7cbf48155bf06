package vocab

import "errors"

// ReadSentencePiece reads a tokenizer.model: SentencePiece's ModelProto.
func ReadSentencePiece(data []byte) (*Vocabulary, error) {
	return nil, errors.New("vocab: ReadSentencePiece is not implemented yet")
}
