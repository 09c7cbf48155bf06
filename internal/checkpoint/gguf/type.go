package gguf

import "fmt"

// Type says how a tensor's elements are stored. The numbers are ggml's.
type Type uint32

// The types that [Type.Dequantize] implements.
const (
	F32    Type = 0
	F16    Type = 1
	Q4_0   Type = 2
	Q4_1   Type = 3
	Q5_0   Type = 6
	Q5_1   Type = 7
	Q8_0   Type = 8
	Q2_K   Type = 10
	Q3_K   Type = 11
	Q4_K   Type = 12
	Q5_K   Type = 13
	Q6_K   Type = 14
	IQ4_NL Type = 20
	BF16   Type = 30
)

// layout describes a type: a row is cut into blocks of some elements, each of
// which takes some bytes.
type layout struct {
	name            string
	elements, bytes int // zero for a type that no file may have
	decode          func(dst []float32, src []byte)
}

// layouts lists the types by number: first those that are read, then those
// that are known by name and size only, then those that ggml has dropped or
// never writes.
var layouts = map[Type]layout{
	F32:    {"F32", 1, 4, decodeF32},
	F16:    {"F16", 1, 2, decodeF16},
	BF16:   {"BF16", 1, 2, decodeBF16},
	Q4_0:   {"Q4_0", 32, 2 + 16, decodeQ4_0},
	Q4_1:   {"Q4_1", 32, 2 + 2 + 16, decodeQ4_1},
	Q5_0:   {"Q5_0", 32, 2 + 4 + 16, decodeQ5_0},
	Q5_1:   {"Q5_1", 32, 2 + 2 + 4 + 16, decodeQ5_1},
	Q8_0:   {"Q8_0", 32, 2 + 32, decodeQ8_0},
	Q2_K:   {"Q2_K", 256, 16 + 64 + 2 + 2, decodeQ2_K},
	Q3_K:   {"Q3_K", 256, 32 + 64 + 12 + 2, decodeQ3_K},
	Q4_K:   {"Q4_K", 256, 2 + 2 + 12 + 128, decodeQ4_K},
	Q5_K:   {"Q5_K", 256, 2 + 2 + 12 + 32 + 128, decodeQ5_K},
	Q6_K:   {"Q6_K", 256, 128 + 64 + 16 + 2, decodeQ6_K},
	IQ4_NL: {"IQ4_NL", 32, 2 + 16, decodeIQ4_NL},

	16: {name: "IQ2_XXS", elements: 256, bytes: 66},
	17: {name: "IQ2_XS", elements: 256, bytes: 74},
	18: {name: "IQ3_XXS", elements: 256, bytes: 98},
	19: {name: "IQ1_S", elements: 256, bytes: 50},
	21: {name: "IQ3_S", elements: 256, bytes: 110},
	22: {name: "IQ2_S", elements: 256, bytes: 82},
	23: {name: "IQ4_XS", elements: 256, bytes: 136},
	24: {name: "I8", elements: 1, bytes: 1},
	25: {name: "I16", elements: 1, bytes: 2},
	26: {name: "I32", elements: 1, bytes: 4},
	27: {name: "I64", elements: 1, bytes: 8},
	28: {name: "F64", elements: 1, bytes: 8},
	29: {name: "IQ1_M", elements: 256, bytes: 56},
	34: {name: "TQ1_0", elements: 256, bytes: 54},
	35: {name: "TQ2_0", elements: 256, bytes: 66},
	39: {name: "MXFP4", elements: 32, bytes: 17},
	40: {name: "NVFP4", elements: 64, bytes: 36},
	41: {name: "Q1_0", elements: 128, bytes: 18},

	4:  {name: "Q4_2"},
	5:  {name: "Q4_3"},
	9:  {name: "Q8_1"},
	15: {name: "Q8_K"},
	31: {name: "Q4_0_4_4"},
	32: {name: "Q4_0_4_8"},
	33: {name: "Q4_0_8_8"},
	36: {name: "IQ4_NL_4_4"},
	37: {name: "IQ4_NL_4_8"},
	38: {name: "IQ4_NL_8_8"},
}

// String returns ggml's name for the type.
func (t Type) String() string {
	if l, ok := layouts[t]; ok {
		return l.name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// Block returns how many elements make a block of the type and how many bytes
// it takes, both 0 for a type of which that is not known; a row is a whole
// number of blocks. ok reports whether [Type.Dequantize] implements the type.
func (t Type) Block() (elements, bytes int, ok bool) {
	l := layouts[t]
	return l.elements, l.bytes, l.decode != nil
}

// Dequantize sets dst to the values of the blocks in src. They are those of
// ggml's reference, bit for bit: every product and sum is rounded to float32
// on its own. Which bits a NaN has is the processor's business.
//
// src holds whole blocks and dst has room for exactly their elements. All
// else, and a type that is not implemented, is a mistake of the caller, who
// has [Type.Block]: it panics.
func (t Type) Dequantize(dst []float32, src []byte) {
	l := layouts[t]
	if l.decode == nil {
		panic(fmt.Sprintf("gguf: %s is not implemented", t))
	}
	if len(src)%l.bytes != 0 || len(dst)%l.elements != 0 || len(src)/l.bytes != len(dst)/l.elements {
		panic(fmt.Sprintf("gguf: %s: %d bytes for %d elements; a block of %d takes %d bytes", t, len(src), len(dst), l.elements, l.bytes))
	}
	l.decode(dst, src)
}
