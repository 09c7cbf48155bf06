package stored

import (
	"fmt"
	"strings"

	"anemone/mil"
)

// Kind is a way to store a weight.
type Kind string

// Kinds.
const (
	Dense  Kind = "dense"  // element by element
	LUT    Kind = "lut"    // indices into tables
	Linear Kind = "linear" // small integers, with a scale and perhaps an offset
	Sparse Kind = "sparse" // a mask, and what is not zero
	Other  Kind = "other"
)

// Encoding says how a weight is stored.
type Encoding struct {
	Kind Kind `json:"kind"`
	// DType is the type of the elements: for Linear, the integers'.
	DType mil.DType `json:"-"`
	// Bits of an index or integer.
	Bits int `json:"bits"`
	// Tables is the number of look-up tables, Rows the number of rows (of the
	// first dimension) that share one, 0 if they are shared in another way.
	Tables int `json:"tables,omitempty"`
	Rows   int `json:"rows_per_table,omitempty"`
	// Block is the number of elements that share a scale along the last
	// dimension where they do, for Linear: 0 if one scale is for all of a row,
	// or for all of the tensor.
	Block int `json:"block,omitempty"`
	// Scaled says that there are scales around the tables, or that the tables
	// themselves are integers with scales.
	Scaled bool `json:"scaled,omitempty"`
	// Op is the type of the operation, for what has no other name.
	Op string `json:"-"`
}

// String returns what people call it, such as "fp16" or "lut4, 8 rows per
// table".
func (e Encoding) String() string {
	var s string
	switch e.Kind {
	case Dense:
		return e.DType.String()
	case LUT:
		s = fmt.Sprintf("lut%d", e.Bits)
		switch {
		case e.Tables == 1:
			s += ", one table"
		case e.Rows == 1:
			s += ", 1 row per table"
		case e.Rows > 0:
			s += fmt.Sprintf(", %d rows per table", e.Rows)
		default:
			s += fmt.Sprintf(", %d tables", e.Tables)
		}
		if e.Scaled {
			s += ", scaled"
		}
	case Linear:
		s = e.DType.String() + ", linear"
		if e.Block > 0 {
			s += fmt.Sprintf(", blocks of %d", e.Block)
		}
	case Sparse:
		s = "sparse " + e.DType.String()
	default:
		s = strings.TrimPrefix(e.Op, "constexpr_")
	}
	return s
}

// EncodingOf says how a constant is stored.
func EncodingOf(v *mil.Value) Encoding { return encodingOf(v, 0) }

func encodingOf(v *mil.Value, depth int) Encoding {
	if v.Op == nil || !IsConstexpr(v.Op) || depth == maxDepth {
		return Encoding{Kind: Dense, DType: v.Type.DType, Bits: v.Type.DType.Bits()}
	}
	op := v.Op
	operand := func(name string) *mil.Value {
		if o := op.Operand(name); o != nil {
			return o
		}
		return &mil.Value{}
	}
	inner := func(name string) Encoding { return encodingOf(operand(name), depth+1) }
	switch op.Type {
	case "constexpr_lut_to_dense", "constexpr_lut_to_sparse":
		e := lut(operand("lut").Type, v.Type)
		e.Scaled = inner("lut").Kind == Linear
		return e
	case "constexpr_blockwise_shift_scale":
		if e := inner("data"); e.Kind != Dense {
			e.Scaled = true
			return e
		}
		d, s := operand("data").Type, operand("scale").Type
		e := Encoding{Kind: Linear, DType: d.DType, Bits: d.DType.Bits()}
		if n := len(s.Shape); n > 0 && n == len(d.Shape) {
			for i := n - 1; i >= 0; i-- {
				if s.Shape[i] > 1 && i > 0 && d.Shape[i] > 0 {
					e.Block = d.Shape[i] / s.Shape[i]
					break
				}
			}
		}
		return e
	case "constexpr_affine_dequantize":
		d := operand("quantized_data").Type.DType
		return Encoding{Kind: Linear, DType: d, Bits: d.Bits()}
	case "constexpr_sparse_to_dense":
		if e := inner("nonzero_data"); e.Kind != Dense {
			return e
		}
		d := operand("nonzero_data").Type.DType
		return Encoding{Kind: Sparse, DType: d, Bits: d.Bits()}
	case "constexpr_sparse_blockwise_shift_scale":
		d := operand("nonzero_data").Type.DType
		return Encoding{Kind: Linear, DType: d, Bits: d.Bits()}
	case "constexpr_cast":
		return Encoding{Kind: Dense, DType: operand("source_val").Type.DType, Bits: operand("source_val").Type.DType.Bits()}
	}
	return Encoding{Kind: Other, Op: op.Type}
}

// lut describes tables of a type for a weight of type t: the last two
// dimensions are the entries and what one entry holds; before iOS 18 there is
// one table without further dimensions.
func lut(tables, t mil.Type) Encoding {
	e := Encoding{Kind: LUT, DType: tables.DType, Tables: 1}
	s := tables.Shape
	entries := 0
	switch {
	case len(s) >= 2 && len(s) == t.Rank()+2:
		entries = s[len(s)-2]
		for _, n := range s[:len(s)-2] {
			e.Tables *= n
		}
	case len(s) == 1:
		entries = s[0]
	}
	for e.Bits < 16 && 1<<e.Bits < entries {
		e.Bits++
	}
	if t.Rank() > 0 && len(s) == t.Rank()+2 && s[0] > 0 && e.Tables == s[0] {
		e.Rows = t.Shape[0] / s[0]
	}
	return e
}
