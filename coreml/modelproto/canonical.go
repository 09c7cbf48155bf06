package modelproto

import (
	"cmp"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"anemone/coreml/modelproto/modelpb"
)

// MarshalDescription returns the bytes of a description as compiled models
// hold them: the fields of every message in ascending order, as protobuf's
// C++ library writes them. (Go's puts the members of a oneof, and fields that
// it does not know, last.) Entries of maps come sorted by key.
func MarshalDescription(d *modelpb.ModelDescription) ([]byte, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(d)
	if err == nil {
		b, err = ascending(b, d.ProtoReflect().Descriptor())
	}
	if err != nil {
		return nil, fmt.Errorf("model description: %w", err)
	}
	return b, nil
}

// ascending sorts the fields of a message, and of the messages in it, by
// number; fields of the same number keep their order. A description is not
// recursive, so neither is this without end.
func ascending(b []byte, md protoreflect.MessageDescriptor) ([]byte, error) {
	type field struct {
		num protowire.Number
		b   []byte
	}
	var fields []field
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		m := protowire.ConsumeFieldValue(num, typ, b[n:])
		if m < 0 {
			return nil, protowire.ParseError(m)
		}
		f := field{num, b[:n+m]}
		if fd := md.Fields().ByNumber(num); fd != nil && fd.Message() != nil && !fd.IsMap() && typ == protowire.BytesType {
			v, k := protowire.ConsumeBytes(b[n:])
			if k < 0 {
				return nil, protowire.ParseError(k)
			}
			v, err := ascending(v, fd.Message())
			if err != nil {
				return nil, err
			}
			f.b = protowire.AppendBytes(protowire.AppendTag(nil, num, typ), v)
		}
		fields = append(fields, f)
		b = b[n+m:]
	}
	slices.SortStableFunc(fields, func(x, y field) int { return cmp.Compare(x.num, y.num) })
	var out []byte
	for _, f := range fields {
		out = append(out, f.b...)
	}
	return out, nil
}
