package chat

// What a template may take. Real templates have 20 KB, nest six deep and
// render in a few thousand steps.
const (
	maxConfigSize   = 64 << 20 // bytes of tokenizer_config.json
	maxTemplateSize = 1 << 20  // bytes of a template
	maxTagTokens    = 2048     // names, operators, literals in one tag
	maxTagJoins     = 128      // + and ~ in one tag
	maxNesting      = 64       // brackets in a tag, and blocks
	maxFactor       = 64       // number in a * b
	maxSteps        = 1 << 20  // passes through loops in one rendering
	maxMacroDepth   = 128      // macros inside macros
	maxRange        = 1 << 16  // elements of range()
	maxValue        = 16 << 20 // bytes of a string, elements of a list that a template keeps
	maxOutput       = 64 << 20 // bytes of a rendering
)
