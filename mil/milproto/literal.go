package milproto

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"anemone/internal/float16"
	"anemone/mil"
	"anemone/mil/milproto/milpb"
)

// encodeLiteral gives the stored form that coremltools writes: of tensors,
// fp16, bf16, uint32 and everything of a byte and less as bytes, int16 and
// uint16 as 32-bit integers, the others as what they are.
func encodeLiteral(l *mil.Literal, depth int) (*milpb.Value, error) {
	if depth > maxDepth {
		return nil, errDepth
	}
	if l == nil {
		return nil, errors.New("no literal")
	}
	t, err := encodeType(l.Type, depth)
	if err != nil {
		return nil, err
	}
	imm := &milpb.Value_Immediate{}
	if l.Type.Kind == mil.TensorKind {
		tv, err := encodeTensor(l)
		if err != nil {
			return nil, fmt.Errorf("literal of type %v: %w", l.Type, err)
		}
		imm.Value = &milpb.Value_Immediate_Tensor{Tensor: tv}
	} else {
		if err := checkItems(l); err != nil {
			return nil, err
		}
		items := make([]*milpb.Value, len(l.Items))
		for i, it := range l.Items {
			if items[i], err = encodeLiteral(it, depth+1); err != nil {
				return nil, err
			}
		}
		switch l.Type.Kind {
		case mil.ListKind:
			imm.Value = &milpb.Value_Immediate_List{List: &milpb.ListValue{Values: items}}
		case mil.TupleKind:
			imm.Value = &milpb.Value_Immediate_Tuple{Tuple: &milpb.TupleValue{Values: items}}
		case mil.DictKind:
			d := &milpb.DictionaryValue{}
			for i := 0; i < len(items); i += 2 {
				d.Values = append(d.Values, &milpb.DictionaryValue_KeyValuePair{Key: items[i], Value: items[i+1]})
			}
			imm.Value = &milpb.Value_Immediate_Dictionary{Dictionary: d}
		}
	}
	return &milpb.Value{Type: t, Value: &milpb.Value_ImmediateValue{ImmediateValue: imm}}, nil
}

// checkItems reports whether the items of a list, tuple or dictionary are of
// the number and types that its type says.
func checkItems(l *mil.Literal) error {
	t, n := l.Type, len(l.Items)
	elem := func(i int) mil.Type { return t.Elems[i] }
	ok := false
	switch t.Kind {
	case mil.ListKind:
		ok = len(t.Elems) == 1 && (t.Length < 0 || t.Length == n)
		elem = func(int) mil.Type { return t.Elems[0] }
	case mil.TupleKind:
		ok = len(t.Elems) == n
	case mil.DictKind:
		ok = len(t.Elems) == 2 && n%2 == 0
		elem = func(i int) mil.Type { return t.Elems[i%2] }
	default:
		return fmt.Errorf("a value of type %v cannot be written in the program", t)
	}
	if !ok {
		return fmt.Errorf("literal of type %v has %d items", t, n)
	}
	for i, it := range l.Items {
		if it == nil || !elem(i).Accepts(it.Type) {
			return fmt.Errorf("literal of type %v: item %d is not of type %v", t, i, elem(i))
		}
	}
	return nil
}

// count returns the number of elements of a literal tensor.
func count(t mil.Type) (int, error) {
	n, ok := t.NumElements()
	if !ok {
		return 0, errors.New("the number of its elements is unknown or too large")
	}
	return n, nil
}

func encodeTensor(l *mil.Literal) (*milpb.TensorValue, error) {
	d := l.Type.DType
	n, err := count(l.Type)
	if err != nil {
		return nil, err
	}
	have := 0
	switch {
	case d == mil.Bool:
		have = len(l.Bools)
	case d == mil.String:
		have = len(l.Strings)
	case d.IsFloat():
		have = len(l.Floats)
	case d.IsInt():
		have = len(l.Ints)
	}
	if have != n || l.Len() != n {
		return nil, fmt.Errorf("%d elements, want %d", l.Len(), n)
	}
	for i, v := range l.Ints {
		if !intFits(v, d) {
			return nil, fmt.Errorf("element %d: %d is out of range", i, v)
		}
	}
	for i, v := range l.Floats {
		if r := roundFloat(v, d); r != v && v == v {
			return nil, fmt.Errorf("element %d: %v is not an %v value (the nearest is %v)", i, v, d, r)
		}
	}
	switch d {
	case mil.Bool:
		return &milpb.TensorValue{Value: &milpb.TensorValue_Bools_{Bools: &milpb.TensorValue_Bools{Values: l.Bools}}}, nil
	case mil.String:
		return &milpb.TensorValue{Value: &milpb.TensorValue_Strings_{Strings: &milpb.TensorValue_Strings{Values: l.Strings}}}, nil
	case mil.Float32:
		f := make([]float32, n)
		for i, v := range l.Floats {
			f[i] = float32(v)
		}
		return &milpb.TensorValue{Value: &milpb.TensorValue_Floats_{Floats: &milpb.TensorValue_Floats{Values: f}}}, nil
	case mil.Float64:
		return &milpb.TensorValue{Value: &milpb.TensorValue_Doubles_{Doubles: &milpb.TensorValue_Doubles{Values: l.Floats}}}, nil
	case mil.Int16, mil.UInt16, mil.Int32:
		v := make([]int32, n)
		for i, x := range l.Ints {
			v[i] = int32(x)
		}
		return &milpb.TensorValue{Value: &milpb.TensorValue_Ints_{Ints: &milpb.TensorValue_Ints{Values: v}}}, nil
	case mil.Int64, mil.UInt64:
		return &milpb.TensorValue{Value: &milpb.TensorValue_LongInts_{LongInts: &milpb.TensorValue_LongInts{Values: l.Ints}}}, nil
	}
	b := make([]byte, (n*d.Bits()+7)/8)
	for i := range n {
		var v uint64
		switch d {
		case mil.Float16:
			v = uint64(float16.FromFloat32(float32(l.Floats[i])))
		case mil.BFloat16:
			v = uint64(float16.BFloat16FromFloat32(float32(l.Floats[i])))
		default:
			v = uint64(l.Ints[i])
		}
		putBits(b, i, d.Bits(), v)
	}
	return &milpb.TensorValue{Value: &milpb.TensorValue_Bytes_{Bytes: &milpb.TensorValue_Bytes{Values: b}}}, nil
}

// putBits stores the low bits of v as element i of packed little-endian
// elements; the bits there are zero before.
func putBits(b []byte, i, bits int, v uint64) {
	for k, at := 0, i*bits; k < bits; {
		m := min(bits-k, 8-at%8)
		b[at/8] |= byte(v>>k) & (1<<m - 1) << (at % 8)
		k, at = k+m, at+m
	}
}

// getBits returns element i of packed little-endian elements.
func getBits(b []byte, i, bits int) (v uint64) {
	for k, at := 0, i*bits; k < bits; {
		m := min(bits-k, 8-at%8)
		v |= uint64(b[at/8]>>(at%8)&(1<<m-1)) << k
		k, at = k+m, at+m
	}
	return v
}

func intFits(v int64, d mil.DType) bool {
	bits := d.Bits()
	switch {
	case bits == 64:
		return true
	case d.IsUnsigned():
		return v >= 0 && v < 1<<bits
	}
	return v >= -1<<(bits-1) && v < 1<<(bits-1)
}

// roundFloat returns v rounded to d.
func roundFloat(v float64, d mil.DType) float64 {
	switch d {
	case mil.Float16:
		return float64(float16.Round(float32(v)))
	case mil.BFloat16:
		return float64(float16.BFloat16ToFloat32(float16.BFloat16FromFloat32(float32(v))))
	case mil.Float32:
		return float64(float32(v))
	}
	return v
}

// decodeLiteral reads an immediate value whose type has been read already.
func decodeLiteral(t mil.Type, imm *milpb.Value_Immediate, depth int) (*mil.Literal, error) {
	if depth > maxDepth {
		return nil, errDepth
	}
	l := &mil.Literal{Type: t}
	kind := mil.InvalidKind
	var items []*milpb.Value
	switch x := imm.GetValue().(type) {
	case *milpb.Value_Immediate_Tensor:
		if t.Kind != mil.TensorKind {
			return nil, fmt.Errorf("value of type %v is written as a tensor", t)
		}
		if err := decodeTensor(l, x.Tensor); err != nil {
			return nil, fmt.Errorf("value of type %v: %w", t, err)
		}
		return l, nil
	case *milpb.Value_Immediate_Tuple:
		kind, items = mil.TupleKind, x.Tuple.GetValues()
	case *milpb.Value_Immediate_List:
		kind, items = mil.ListKind, x.List.GetValues()
	case *milpb.Value_Immediate_Dictionary:
		kind = mil.DictKind
		for _, kv := range x.Dictionary.GetValues() {
			items = append(items, kv.GetKey(), kv.GetValue())
		}
	}
	if kind != t.Kind {
		return nil, fmt.Errorf("value of type %v has no content of that kind", t)
	}
	for i, p := range items {
		it, err := decodeType(p.GetType(), depth+1)
		if err != nil {
			return nil, fmt.Errorf("item %d: %w", i, err)
		}
		x, ok := p.GetValue().(*milpb.Value_ImmediateValue)
		if !ok {
			return nil, fmt.Errorf("item %d of a value of type %v is not written in the program", i, t)
		}
		v, err := decodeLiteral(it, x.ImmediateValue, depth+1)
		if err != nil {
			return nil, fmt.Errorf("item %d: %w", i, err)
		}
		l.Items = append(l.Items, v)
	}
	return l, checkItems(l)
}

func decodeTensor(l *mil.Literal, tv *milpb.TensorValue) error {
	d := l.Type.DType
	n, err := count(l.Type)
	if err != nil {
		return err
	}
	have := -1 // elements; -1 until the form is known to suit the type
	form := "nothing"
	switch x := tv.GetValue().(type) {
	case nil:
		if n == 0 {
			have = 0
		}
	case *milpb.TensorValue_Floats_:
		form = "floats"
		if f := x.Floats.GetValues(); d.IsFloat() {
			have = len(f)
			for _, v := range f {
				l.Floats = append(l.Floats, roundFloat(float64(v), d))
			}
		}
	case *milpb.TensorValue_Doubles_:
		form = "doubles"
		if f := x.Doubles.GetValues(); d.IsFloat() {
			have = len(f)
			for _, v := range f {
				l.Floats = append(l.Floats, roundFloat(v, d))
			}
		}
	case *milpb.TensorValue_Ints_:
		form = "ints"
		if v := x.Ints.GetValues(); d.IsInt() {
			have = len(v)
			for _, v := range v {
				l.Ints = append(l.Ints, int64(v))
			}
		}
	case *milpb.TensorValue_LongInts_:
		form = "long ints"
		if d.IsInt() {
			l.Ints = x.LongInts.GetValues()
			have = len(l.Ints)
		}
	case *milpb.TensorValue_Bools_:
		form = "bools"
		if d == mil.Bool {
			l.Bools = x.Bools.GetValues()
			have = len(l.Bools)
		}
	case *milpb.TensorValue_Strings_:
		form = "strings"
		if d == mil.String {
			l.Strings = x.Strings.GetValues()
			have = len(l.Strings)
		}
	case *milpb.TensorValue_Bytes_:
		form = "bytes"
		b := x.Bytes.GetValues()
		size, ok := l.Type.ByteSize()
		if !ok { // strings
			break
		}
		if size != int64(len(b)) {
			return fmt.Errorf("%d bytes, want %d", len(b), size)
		}
		have = n
		decodeBytes(l, b, n)
	}
	if have < 0 {
		return fmt.Errorf("written as %s, which does not suit it", form)
	}
	if have != n {
		return fmt.Errorf("%d elements, want %d", have, n)
	}
	for i, v := range l.Ints {
		if !intFits(v, d) {
			return fmt.Errorf("element %d: %d is out of range", i, v)
		}
	}
	return nil
}

// decodeBytes sets the n elements of l from their packed form.
func decodeBytes(l *mil.Literal, b []byte, n int) {
	d := l.Type.DType
	switch {
	case n == 0:
	case d == mil.Bool:
		l.Bools = make([]bool, n)
		for i := range l.Bools {
			l.Bools[i] = b[i] != 0
		}
	case d.IsFloat():
		l.Floats = make([]float64, n)
		for i := range l.Floats {
			switch d {
			case mil.Float16:
				l.Floats[i] = float64(float16.ToFloat32(binary.LittleEndian.Uint16(b[2*i:])))
			case mil.BFloat16:
				l.Floats[i] = float64(float16.BFloat16ToFloat32(binary.LittleEndian.Uint16(b[2*i:])))
			case mil.Float32:
				l.Floats[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
			case mil.Float64:
				l.Floats[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
			}
		}
	default:
		l.Ints = make([]int64, n)
		bits := d.Bits()
		for i := range l.Ints {
			v := int64(getBits(b, i, bits))
			if !d.IsUnsigned() {
				v = v << (64 - bits) >> (64 - bits)
			}
			l.Ints[i] = v
		}
	}
}
