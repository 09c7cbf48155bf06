package modelproto

import (
	"encoding/hex"
	"testing"

	"google.golang.org/protobuf/proto"

	"anemone/coreml/modelproto/modelpb"
)

// TestAscending compares with bytes written down by hand: the type of a
// feature (5) stands before its optionality (1000), and a field that this
// program does not know (an input's default value, 41) before a later one.
func TestAscending(t *testing.T) {
	array := &modelpb.ArrayFeatureType{Shape: []int64{1, 2}, DataType: modelpb.ArrayFeatureType_FLOAT16}
	array.ProtoReflect().SetUnknown([]byte{0xc8, 0x02, 7})
	typ := &modelpb.FeatureType{IsOptional: true, Type: &modelpb.FeatureType_MultiArrayType{MultiArrayType: array}}
	typ.ProtoReflect().SetUnknown([]byte{0x38, 1}) // field 7
	d := &modelpb.ModelDescription{Input: []*modelpb.FeatureDescription{{Name: "x", Type: typ}}, Metadata: &modelpb.Metadata{}}
	got, err := MarshalDescription(d)
	if err != nil {
		t.Fatal(err)
	}
	want := "0a17" + "0a0178" + "1a12" + "2a0b" + "0a020102" + "10908004" + "c80207" + "3801" + "c03e01" + "a20600"
	if hex.EncodeToString(got) != want {
		t.Errorf("%x, want %s", got, want)
	}
	again, err := UnmarshalDescription(got)
	if err != nil || !proto.Equal(again, d) {
		t.Errorf("came back as %v, %v; want %v", again, err, d)
	}
	if _, err := UnmarshalDescription([]byte{0x0a, 5, 0}); err == nil {
		t.Error("a description cut off was read")
	}
}
