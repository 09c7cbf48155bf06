package vocab

// Kind says what a token is for. The numbers are those of GGUF's
// tokenizer.ggml.token_type and of the piece types of SentencePiece.
type Kind uint8

const (
	Normal      Kind = 1 // text
	Unknown     Kind = 2 // stands for what the vocabulary lacks
	Control     Kind = 3 // structure, such as "<s>": never made from text
	UserDefined Kind = 4 // text that is always one token
	Unused      Kind = 5 // a place held free
	Byte        Kind = 6 // "<0x41>": one byte
)

// Token is one entry of a vocabulary; its place is its id.
type Token struct {
	Text  string // GPT-2's alphabet of bytes for "gpt2" models, "▁" for a space in the others
	Score float32
	Kind  Kind
}

// Vocabulary is a raw vocabulary and what its source says about its use.
// Source of the field names in parentheses: the metadata of GGUF, all after
// "tokenizer.ggml.", and SentencePiece's ModelProto.
type Vocabulary struct {
	// Model is how tokens are found (model): "gpt2", byte-level byte pair
	// encoding with merges; "llama", SentencePiece's byte pair encoding by scores;
	// "unigram" (in GGUF also "t5"), SentencePiece's unigram model.
	Model string
	// Pre names the pre-tokenizer of a "gpt2" model (pre): see PreTokenizers.
	Pre string

	Tokens []Token  // tokens, scores, token_type
	Merges []string // merges, "a b"; only for "gpt2"

	// Ids, -1 for none (bos_token_id, eos_token_id, unknown_token_id,
	// padding_token_id).
	BOS, EOS, Unknown, Padding int

	AddBOS, AddEOS bool // add_bos_token, add_eos_token
	// AddSpacePrefix puts a space before a text (add_space_prefix,
	// normalizer_spec.add_dummy_prefix). SentencePiece's default is true.
	AddSpacePrefix bool
	// RemoveExtraSpaces drops spaces at both ends and makes one of several
	// (remove_extra_whitespaces).
	RemoveExtraSpaces bool
	// CharsMap is SentencePiece's compiled normalization
	// (precompiled_charsmap), empty for none.
	CharsMap []byte
}
