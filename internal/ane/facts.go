package ane

import (
	"strings"

	"anemone/mil"
)

// Limits.
const (
	// MaxSide bounds each of the last three dimensions of a tensor: channels,
	// height and width.
	MaxSide = 65536
	// MaxSideOlder bounds height and width, the last two dimensions, before
	// A16 and M4.
	MaxSideOlder = 16384
	// MaxOffsetOlder is the largest offset of a slice on M1 and M2; larger ones
	// saturate.
	MaxOffsetOlder = 4094
	// StateMultiple divides the last dimension of a state that works
	// everywhere: with 270 a model failed that worked with 256 (macOS 15, M4).
	StateMultiple = 32
	// MinContext is the shortest KV cache that ANEMLL makes without being
	// forced to.
	MinContext = 256
	// MaxBundle is the size of a model's weights, in bytes, above which it was
	// seen not to run on the Neural Engine; MaxBundlePhone is the same on
	// iPhones, where it falls to the GPU without a word.
	MaxBundle      = 2 << 30
	MaxBundlePhone = 1_400_000_000
	// FastRows is the number of output channels that share a look-up table in
	// the fastest form: with 2 of them decoding is about a quarter slower, with
	// 1 it takes twice as long (Qwen3-0.6B, M5 Max).
	FastRows = 8
)

// offEngine lists operations that have no implementation on the Neural
// Engine.
var offEngine = map[string]bool{
	"cumsum": true, "mod": true, "logical_and": true, "logical_or": true, "logical_xor": true, "reduce_prod": true,
}

// HasCode reports whether the Neural Engine implements an operation of the
// given type, as far as is known.
func HasCode(op string) bool { return !offEngine[op] }

// moves are operations that only move elements about. They follow their
// surroundings, also for the integers of a position: the published plan of a
// Qwen3 of 28 layers has 7 operations of 2340 beside the Neural Engine, and
// there are 112 of these.
var moves = map[string]bool{
	"concat": true, "reshape": true, "expand_dims": true, "squeeze": true, "transpose": true, "slice_by_index": true,
	"slice_by_size": true, "split": true, "stack": true, "tile": true, "read_state": true, "write_state": true,
	"coreml_update_state": true, "slice_update": true, "gather": true,
}

// Moves reports whether an operation of the given type computes nothing and
// only moves elements about.
func Moves(op string) bool { return moves[op] }

// Coarse reports whether the Neural Engine's version of an operation is off by
// far more than fp16 rounds: sigmoid, by up to 0.015, and what is made of it.
func Coarse(op string) bool { return op == "sigmoid" || op == "silu" }

// Folded reports whether operations of a type are no work at run time:
// constants and compressed weights.
func Folded(op string) bool { return op == "const" || strings.HasPrefix(op, "constexpr_") }

// LUTBytes estimates what the indices of a palettized weight take on the
// Neural Engine: as much as in the file, but those of 3 bits as much as those
// of 4 (4 layers of Qwen3.8-27B: 0.81 GB beside 0.84 GB; with 2 bits 0.47 GB).
func LUTBytes(bits int, stored int64) int64 {
	if bits == 3 {
		return stored / 3 * 4
	}
	return stored
}

// TooLarge returns the first dimension of a tensor that the Neural Engine
// cannot take, or 0.
func TooLarge(t mil.Type) int { return above(t, 3, MaxSide) }

// TooLargeOlder returns the first dimension that it could not take before A16
// and M4, or 0.
func TooLargeOlder(t mil.Type) int { return above(t, 2, MaxSideOlder) }

func above(t mil.Type, last, limit int) int {
	for _, n := range t.Shape[max(0, len(t.Shape)-last):] {
		if n > limit {
			return n
		}
	}
	return 0
}

// SliceOffset returns the largest constant offset at which an operation
// begins to slice, 0 if it is no slice or the offset is computed.
func SliceOffset(op *mil.Operation) (most int) {
	if op.Type != "slice_by_index" && op.Type != "slice_by_size" {
		return 0
	}
	begin, ok := mil.ConstInts(op.Value("begin"))
	if !ok {
		return 0
	}
	for _, n := range begin {
		most = max(most, n)
	}
	return most
}
