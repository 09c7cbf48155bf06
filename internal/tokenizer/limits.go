package tokenizer

// What a tokenizer.json may ask for. The largest vocabularies in use have
// about 262 thousand tokens (Gemma); the limits leave a wide margin and keep a
// hostile file from asking for memory by writing a large number.
const (
	maxFileSize      = 256 << 20 // bytes of tokenizer.json; Gemma's has 33 MB
	maxVocabulary    = 1 << 20   // tokens in model.vocab
	maxMerges        = 1 << 20   // entries of model.merges
	maxID            = 1<<24 - 1 // largest token id
	maxAddedTokens   = 1 << 16   // entries of added_tokens; Gemma has 6415
	maxTokenLength   = 1 << 16   // bytes of one token
	maxSoughtLength  = 1 << 9    // bytes of a token that is looked for at every place of a text: an added one, or one of a unigram model
	maxPattern       = 1 << 14   // bytes of a regular expression
	maxGroups        = 100       // captures of a regular expression, which each match records
	maxBacktracking  = 1 << 21   // entries of the stack of a regular expression of 8 bytes
	maxGrowth        = 256       // how many times longer normalizers may make a text, and a decoder a token
	maxTrie          = 1 << 24   // different beginnings of the tokens of a unigram model
	maxPrepend       = 256       // bytes of a Prepend
	maxProblems      = 16        // oddities remembered
	maxComponentSize = 1 << 20   // bytes of the normalizer, the pre-tokenizer ...
	maxComponents    = 64        // normalizers, pre-tokenizers, ... in all
	maxSpecialIDs    = 1024      // ids that a post-processor adds
	maxDepth         = 64        // nesting of JSON
	maxCacheKey      = 128       // bytes of a piece that the cache keeps
	maxCacheEntries  = 1 << 15   // pieces in one cache
)
