package anemll

import (
	"fmt"
	"strings"
)

// MetaFile is the name of the file that makes a folder a package.
const MetaFile = "meta.yaml"

// FormatVersion is the version of ANEMLL whose layout this package writes.
const FormatVersion = "0.3.5"

// Meta is the contents of meta.yaml: model_info and model_info.parameters in
// one struct. Keys that ANEMLL's runtimes do not know (the contract's own
// keys and extensions) come last. A zero field means that the key is absent
// unless its comment says otherwise.
//
// Nothing here is needed to know a shape: [Open] takes shapes from the models
// and reports where meta.yaml disagrees.
type Meta struct {
	// Keys of model_info.

	Name         string // such as "anemll-Qwen-Qwen3-0.6B-ctx512"
	Version      string // of the format; "0.1.1" is an older, different one
	Description  string // without the final newline
	License      string
	Author       string
	Framework    string // "Core ML"
	Language     string // "Python" in ANEMLL's files
	Architecture string // model_type of config.json, such as "qwen3"
	ModelType    string // "monolithic", or "" for a package in parts

	// Keys of model_info.parameters that ANEMLL knows.

	ContextLength int // positions; absent: 2048
	StateLength   int // positions of the KV cache; 0: ContextLength
	AttentionSize int // mask width; 0: ContextLength
	BatchSize     int // tokens of a prefill call; absent: 64

	LUTEmbeddings LUT // keys lut_embeddings, lut_embeddings_per_channel
	LUTFFN        LUT // keys lut_ffn, lut_ffn_per_channel
	LUTLMHead     LUT // keys lut_lmhead, lut_lmhead_per_channel
	LUTMonolithic LUT // keys lut_bits, lut_per_channel

	NumChunks   int    // absent: 1
	ModelPrefix string // of every file name; absent: "llama" (monolithic: "qwen")

	// File names of the parts, usually ending in .mlmodelc whatever is there.
	Embeddings      string
	LMHead          string
	FFN             string // the first chunk
	PF              string // the first prefill chunk, when that is a file of its own
	MonolithicModel string

	SplitLMHead       int // logits outputs; absent: 8 (monolithic qwen: 16)
	NumLogits         int // legacy form of SplitLMHead
	ArgmaxInModel     bool
	VocabSize         int
	LMHeadChunkSizes  []int // width of each logits output
	SplitRotate       bool
	SlidingWindow     int // positions; absent: 512 for the prefix gemma3, else none
	UpdateMaskPrefill bool
	// PrefillDynamicSlice says that prefill writes the cache at current_pos.
	// Without it (and without UpdateMaskPrefill) prefill is not to be used.
	PrefillDynamicSlice bool
	SingleCache         bool
	Functions           []string // informational
	TokenizerPath       string   // absent: the package folder
	PerChunkState       bool     // every chunk declares states of its own
	InferOnly           bool     // the chunks have no prefill function

	// Keys of the contract.

	// PrefillLastTokenOutput says that prefill of the last chunk returns the
	// normed state of the batch's last token, ready for the LM head. ANEMLL's
	// own packages return the raw state of the first token.
	PrefillLastTokenOutput bool
	HiddenSize             int
	NumLayers              int
	RecommendedSampling    *RecommendedSampling

	// Extensions: recurrent and windowed architectures.

	// RecurrentState says that states cannot be rewound: every token is fed
	// exactly once.
	RecurrentState bool
	// PrefillFullBatchesOnly forbids padding in a prefill call.
	PrefillFullBatchesOnly bool
	GDNChunkSize           int // tokens; informational
	MoE                    *MoE
	LayerTypes             []string // "linear", "full", "sliding"
	LocalAttentionWindow   int      // positions; applied inside the graph
	// LocalCacheLength is set when the cache of the sliding-window layers is a
	// block-shifting window, which cannot be rewound either.
	LocalCacheLength  int
	FinalLogitSoftcap float64 // applied inside the LM head
	PerLayerInputs    int     // width of the per_layer_inputs tensor
	KVSharedLayers    map[int]int
	States            []StateInfo

	// Linear quantization, such as "int8" or "int4,32", in place of a LUT.
	QuantEmbeddings string
	QuantFFN        string
	QuantLMHead     string
	LUTFFNMixed     float64 // average bits of a mixed-width FFN

	// Conversion is the block of comments at the end of the file.
	Conversion []Note

	given   map[string]bool
	unknown []string
}

// LUT says how a part is palettized.
type LUT struct {
	Bits  int // index width, 1 to 8; 0: not palettized ("none")
	Group int // output channels that share one table; 0: the whole tensor
}

// String returns the form that flags and comments use: "none", "6" or "6,8".
func (l LUT) String() string {
	switch {
	case l.Bits == 0:
		return "none"
	case l.Group == 0:
		return fmt.Sprint(l.Bits)
	}
	return fmt.Sprintf("%d,%d", l.Bits, l.Group)
}

// RecommendedSampling is how the model's authors want tokens to be drawn;
// absent keys are nil.
type RecommendedSampling struct {
	DoSample    *bool
	Temperature *float64
	TopP        *float64
	TopK        *int
	MinP        *float64
	// RepetitionPenalty divides positive logits of tokens that occurred and
	// multiplies negative ones.
	RepetitionPenalty *float64
}

// MoE describes the experts of a mixture model; informational.
type MoE struct {
	Experts         int
	ExpertsPerToken int
	Evaluation      string // "dense"
}

// StateInfo describes one Core ML state and the layers that own slices of it.
type StateInfo struct {
	Name   string
	Shape  []int
	DType  string // "float16"
	Layers []int
}

// Note is one line "# Key: Value" of the comments at the end of meta.yaml.
type Note struct{ Key, Value string }

// Given reports whether the file had the key ("context_length") that m was
// read from, as opposed to a default. It is false for every key of a Meta
// that was not made by [ParseMeta].
func (m *Meta) Given(key string) bool { return m.given[key] }

// Unknown returns the keys of the file that have no field here, in the order
// of the file. Runtimes ignore them.
func (m *Meta) Unknown() []string { return m.unknown }

// Monolithic reports whether the package is one model for everything.
func (m *Meta) Monolithic() bool {
	return strings.EqualFold(m.ModelType, "monolithic") || m.MonolithicModel != ""
}

// PrefillAllowed reports whether a runtime may use the prefill functions.
func (m *Meta) PrefillAllowed() bool {
	return !m.InferOnly && (m.PrefillDynamicSlice || m.UpdateMaskPrefill)
}

// Rewindable reports whether positions may be overwritten: true for plain KV
// caches, false when a state depends on every token that was ever fed.
func (m *Meta) Rewindable() bool { return !m.RecurrentState && m.LocalCacheLength == 0 }

// suffix returns what a file name says about the encoding of its weights.
func suffix(l LUT, quant string) string {
	kind, _, _ := strings.Cut(quant, ",")
	switch {
	case kind != "":
		return "_" + kind
	case l.Bits != 0:
		return fmt.Sprintf("_lut%d", l.Bits)
	}
	return ""
}

// EmbeddingsName returns the file name, without extension, that the
// embeddings have by the layout's rules: <prefix>_embeddings[_lutN].
func (m *Meta) EmbeddingsName() string {
	return m.ModelPrefix + "_embeddings" + suffix(m.LUTEmbeddings, m.QuantEmbeddings)
}

// LMHeadName returns the file name, without extension, that the LM head has
// by the layout's rules: <prefix>_lm_head[_lutN].
func (m *Meta) LMHeadName() string {
	return m.ModelPrefix + "_lm_head" + suffix(m.LUTLMHead, m.QuantLMHead)
}

// ChunkName returns the file name, without extension, that decoder chunk i of
// n (counting from 0) has by the layout's rules:
// <prefix>_FFN_PF[_lutN]_chunk_01of02.
func (m *Meta) ChunkName(i, n int) string {
	return chunkName(m.ModelPrefix+"_FFN_PF"+suffix(m.LUTFFN, m.QuantFFN), i, n)
}

// MonolithicName returns the file name, without extension, that a monolithic
// model has by the layout's rules: <prefix>_monolithic_full[_lutN].
func (m *Meta) MonolithicName() string {
	return m.ModelPrefix + "_monolithic_full" + suffix(m.LUTMonolithic, "")
}

func chunkName(base string, i, n int) string { return fmt.Sprintf("%s_chunk_%02dof%02d", base, i+1, n) }
