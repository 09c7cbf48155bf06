package vocab

import "errors"

// TokenizerJSON returns the tokenizer.json that gives texts the ids that the
// vocabulary means.
func (v *Vocabulary) TokenizerJSON() ([]byte, error) {
	return nil, errors.New("vocab: TokenizerJSON is not implemented yet")
}

// TokenizerConfig returns the tokenizer_config.json that belongs beside
// TokenizerJSON's result: the special tokens by name and, if it is not empty, the chat template.
func (v *Vocabulary) TokenizerConfig(chatTemplate string) ([]byte, error) {
	return nil, errors.New("vocab: TokenizerConfig is not implemented yet")
}
