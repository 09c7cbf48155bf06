package milproto

import (
	"errors"
	"fmt"
	"math"

	"anemone/mil"
	"anemone/mil/milproto/milpb"
)

const (
	// maxRank is far above the 5 or 6 dimensions that Core ML computes with.
	maxRank = 16
	// maxDepth bounds nesting: of blocks, of types and of literals.
	maxDepth = 64
)

var errDepth = fmt.Errorf("nested more than %d deep", maxDepth)

var toPB = map[mil.DType]milpb.DataType{
	mil.Bool:     milpb.DataType_BOOL,
	mil.String:   milpb.DataType_STRING,
	mil.Float16:  milpb.DataType_FLOAT16,
	mil.Float32:  milpb.DataType_FLOAT32,
	mil.Float64:  milpb.DataType_FLOAT64,
	mil.BFloat16: milpb.DataType_BFLOAT16,
	mil.Int4:     milpb.DataType_INT4,
	mil.Int8:     milpb.DataType_INT8,
	mil.Int16:    milpb.DataType_INT16,
	mil.Int32:    milpb.DataType_INT32,
	mil.Int64:    milpb.DataType_INT64,
	mil.UInt1:    milpb.DataType_UINT1,
	mil.UInt2:    milpb.DataType_UINT2,
	mil.UInt3:    milpb.DataType_UINT3,
	mil.UInt4:    milpb.DataType_UINT4,
	mil.UInt6:    milpb.DataType_UINT6,
	mil.UInt8:    milpb.DataType_UINT8,
	mil.UInt16:   milpb.DataType_UINT16,
	mil.UInt32:   milpb.DataType_UINT32,
	mil.UInt64:   milpb.DataType_UINT64,
}

var fromPB = func() map[milpb.DataType]mil.DType {
	m := make(map[milpb.DataType]mil.DType, len(toPB))
	for d, p := range toPB {
		m[p] = d
	}
	return m
}()

func encodeType(t mil.Type, depth int) (*milpb.ValueType, error) {
	if depth > maxDepth {
		return nil, errDepth
	}
	elems := make([]*milpb.ValueType, len(t.Elems))
	for i, e := range t.Elems {
		var err error
		if elems[i], err = encodeType(e, depth+1); err != nil {
			return nil, err
		}
	}
	wrong := func() (*milpb.ValueType, error) {
		return nil, fmt.Errorf("type of kind %d has %d element types", t.Kind, len(elems))
	}
	switch t.Kind {
	case mil.TensorKind, mil.StateKind:
		d, ok := toPB[t.DType]
		if !ok {
			return nil, fmt.Errorf("element type %v has no stored form", t.DType)
		}
		if len(t.Shape) > maxRank {
			return nil, fmt.Errorf("type %v has %d dimensions, at most %d are possible", t, len(t.Shape), maxRank)
		}
		tt := &milpb.TensorType{DataType: d, Rank: int64(len(t.Shape))}
		for _, n := range t.Shape {
			tt.Dimensions = append(tt.Dimensions, encodeDim(n))
		}
		v := &milpb.ValueType{Type: &milpb.ValueType_TensorType{TensorType: tt}}
		if t.Kind == mil.StateKind {
			v = &milpb.ValueType{Type: &milpb.ValueType_StateType{StateType: &milpb.StateType{WrappedType: v}}}
		}
		return v, nil
	case mil.ListKind:
		if len(elems) != 1 {
			return wrong()
		}
		return &milpb.ValueType{Type: &milpb.ValueType_ListType{ListType: &milpb.ListType{Type: elems[0], Length: encodeDim(t.Length)}}}, nil
	case mil.DictKind:
		if len(elems) != 2 {
			return wrong()
		}
		return &milpb.ValueType{Type: &milpb.ValueType_DictionaryType{DictionaryType: &milpb.DictionaryType{KeyType: elems[0], ValueType: elems[1]}}}, nil
	case mil.TupleKind:
		return &milpb.ValueType{Type: &milpb.ValueType_TupleType{TupleType: &milpb.TupleType{Types: elems}}}, nil
	}
	return nil, errors.New("no type")
}

func encodeDim(n int) *milpb.Dimension {
	if n < 0 {
		return &milpb.Dimension{Dimension: &milpb.Dimension_Unknown_{Unknown: &milpb.Dimension_Unknown{}}}
	}
	return &milpb.Dimension{Dimension: &milpb.Dimension_Constant_{Constant: &milpb.Dimension_Constant{Size: uint64(n)}}}
}

func decodeType(v *milpb.ValueType, depth int) (mil.Type, error) {
	if depth > maxDepth {
		return mil.Type{}, errDepth
	}
	switch x := v.GetType().(type) {
	case *milpb.ValueType_TensorType:
		return decodeTensorType(x.TensorType)
	case *milpb.ValueType_StateType:
		t, err := decodeType(x.StateType.GetWrappedType(), depth+1)
		if err != nil {
			return mil.Type{}, err
		}
		if t.Kind != mil.TensorKind {
			return mil.Type{}, fmt.Errorf("state of type %v, want a tensor", t)
		}
		t.Kind = mil.StateKind
		return t, nil
	case *milpb.ValueType_ListType:
		e, err := decodeType(x.ListType.GetType(), depth+1)
		if err != nil {
			return mil.Type{}, err
		}
		n, err := decodeDim(x.ListType.GetLength())
		if err != nil {
			return mil.Type{}, fmt.Errorf("length of list: %w", err)
		}
		return mil.Type{Kind: mil.ListKind, Elems: []mil.Type{e}, Length: n}, nil
	case *milpb.ValueType_DictionaryType:
		k, err := decodeType(x.DictionaryType.GetKeyType(), depth+1)
		if err != nil {
			return mil.Type{}, err
		}
		e, err := decodeType(x.DictionaryType.GetValueType(), depth+1)
		if err != nil {
			return mil.Type{}, err
		}
		return mil.Type{Kind: mil.DictKind, Elems: []mil.Type{k, e}}, nil
	case *milpb.ValueType_TupleType:
		t := mil.Type{Kind: mil.TupleKind}
		for _, e := range x.TupleType.GetTypes() {
			d, err := decodeType(e, depth+1)
			if err != nil {
				return mil.Type{}, err
			}
			t.Elems = append(t.Elems, d)
		}
		return t, nil
	}
	return mil.Type{}, errors.New("no type, or one of an unknown kind")
}

func decodeTensorType(t *milpb.TensorType) (mil.Type, error) {
	d, ok := fromPB[t.GetDataType()]
	if !ok {
		return mil.Type{}, fmt.Errorf("element type %v is not supported", t.GetDataType())
	}
	dims := t.GetDimensions()
	switch {
	case t.GetRank() < 0:
		return mil.Type{}, errors.New("tensor of unknown rank is not supported")
	case t.GetRank() != int64(len(dims)):
		return mil.Type{}, fmt.Errorf("tensor of rank %d with %d dimensions", t.GetRank(), len(dims))
	case len(dims) > maxRank:
		return mil.Type{}, fmt.Errorf("tensor of rank %d, at most %d is possible", len(dims), maxRank)
	case len(t.GetAttributes()) != 0:
		return mil.Type{}, errors.New("attributes of a tensor type are not supported")
	}
	var shape []int
	for i, p := range dims {
		n, err := decodeDim(p)
		if err != nil {
			return mil.Type{}, fmt.Errorf("dimension %d: %w", i, err)
		}
		shape = append(shape, n)
	}
	return mil.TensorOf(d, shape...), nil
}

func decodeDim(d *milpb.Dimension) (int, error) {
	switch x := d.GetDimension().(type) {
	case *milpb.Dimension_Constant_:
		if n := x.Constant.GetSize(); n <= math.MaxInt {
			return int(n), nil
		}
		return 0, fmt.Errorf("%d is too large", x.Constant.GetSize())
	case *milpb.Dimension_Unknown_:
		if x.Unknown.GetVariadic() {
			return 0, errors.New("stands for any number of dimensions, which is not supported")
		}
		return mil.Dynamic, nil
	}
	return 0, errors.New("neither a size nor marked as unknown")
}
