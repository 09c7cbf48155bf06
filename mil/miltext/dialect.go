package miltext

import (
	"fmt"

	"anemone/mil"
)

// Dialect is a variant of the text form.
type Dialect uint8

// The dialects.
const (
	// V10 is program(1.0), of models up to specification version 8: a scalar
	// is a tensor without dimensions, "tensor<int32, []>".
	V10 Dialect = iota + 1
	// V13 is program(1.3), of models from specification version 9 on: a
	// scalar's type is that of its element, "int32".
	V13
)

// DialectOf returns the dialect that Apple's compiler writes for a model of
// the given specification version.
func DialectOf(specVersion int) Dialect {
	if specVersion >= 9 {
		return V13
	}
	return V10
}

// String returns the word that starts a text of the dialect.
func (d Dialect) String() string {
	switch d {
	case V10:
		return "program(1.0)"
	case V13:
		return "program(1.3)"
	}
	return fmt.Sprintf("dialect(%d)", uint8(d))
}

// BlobRef says where a weight is stored.
type BlobRef struct {
	// File is the name as the program has it, such as
	// "@model_path/weights/weight.bin".
	File string
	// Offset is that of the weight's record in the file.
	Offset uint64
}

const (
	// maxRank is far above the 5 or 6 dimensions that Core ML computes with.
	maxRank = 16
	// maxDepth bounds nesting: of blocks, of types and of literals.
	maxDepth = 64
)

var errDepth = fmt.Errorf("nested more than %d deep", maxDepth)

// opsets pairs the operation sets with their names in the text.
var opsets = []struct {
	opset mil.Opset
	name  string
}{
	{mil.CoreML5, "ios15"},
	{mil.CoreML6, "ios16"},
	{mil.CoreML7, "ios17"},
	{mil.CoreML8, "ios18"},
	{"CoreML9", "ios19"},
}

func opsetName(o mil.Opset) (string, error) {
	for _, x := range opsets {
		if x.opset == o {
			return x.name, nil
		}
	}
	return "", fmt.Errorf("operation set %q has no name in the text form (known: CoreML5 to CoreML9)", o)
}

func parseOpset(name []byte) (mil.Opset, error) {
	for _, x := range opsets {
		if x.name == string(name) {
			return x.opset, nil
		}
	}
	return "", fmt.Errorf("operation set %q is not known; this program knows ios15 to ios19", name)
}

// isName reports whether s can be a name in the text.
func isName(s string) bool {
	for i := range len(s) {
		if !isNameByte(s[i], i == 0) {
			return false
		}
	}
	return s != ""
}

func isNameByte(c byte, first bool) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || !first && (c >= '0' && c <= '9' || c == '@')
}
