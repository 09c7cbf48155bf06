package chat

import "time"

// What a template may take. Real templates have 20 KB, nest six deep and
// render in a few thousand steps.
const (
	maxConfigSize   = 64 << 20         // bytes of tokenizer_config.json
	maxTemplateSize = 1 << 20          // bytes of a template
	maxSegments     = 1 << 13          // tags, and texts between them
	maxTagTokens    = 2048             // names, operators, literals in one tag
	maxTagJoins     = 128              // + and ~ in one tag
	maxNesting      = 64               // brackets in a tag, and blocks
	maxFactor       = 64               // number in a * b
	maxSteps        = 1 << 20          // passes through loops in one rendering
	maxMacroDepth   = 128              // macros inside macros
	maxRange        = 1 << 16          // elements of range()
	maxValue        = 16 << 20         // bytes of a string that a template keeps
	maxOutput       = 64 << 20         // bytes of a rendering
	maxElements     = 1 << 18          // of a list or dictionary that a template keeps, with all within
	maxDepth        = 1000             // lists and dictionaries within each other
	maxTime         = 10 * time.Second // of a rendering; looked at between passes through loops
)
