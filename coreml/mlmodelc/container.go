package mlmodelc

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"anemone/coreml/modelproto"
	"anemone/coreml/modelproto/modelpb"
)

// container is the content of a coremldata.bin: little-endian, packed, no
// alignment; a string is its length (u64) and its bytes.
//
//	u32      kind of model
//	version  of the compiled format
//	version  of the specification
//	string   the description, protobuf
//	...      16 bytes for each function: u32 kind, zeros
type container struct {
	Kind        modelproto.Kind
	Format      version
	Spec        version
	Description []byte
	Rest        []byte
}

// version is three numbers (u64) and a string.
type version struct {
	Major, Minor, Patch uint64
	Variant             string
}

// cursor reads a container. After the first error it gives zeros.
type cursor struct {
	b   []byte
	at  int
	err error
}

func (c *cursor) take(n uint64, what string) []byte {
	if c.err != nil {
		return nil
	}
	if left := uint64(len(c.b) - c.at); n > left {
		c.err = fmt.Errorf("%s at offset %d: want %d bytes, %d are left", what, c.at, n, left)
		return nil
	}
	b := c.b[c.at:][:n]
	c.at += int(n)
	return b
}

func (c *cursor) u32(what string) uint32 {
	if b := c.take(4, what); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) u64(what string) uint64 {
	if b := c.take(8, what); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (c *cursor) bytes(what string) []byte { return c.take(c.u64(what), what) }

func (c *cursor) str(what string) string {
	b := c.bytes(what)
	if c.err == nil && !utf8.Valid(b) {
		c.err = fmt.Errorf("%s: not UTF-8", what)
	}
	return string(b)
}

func (c *cursor) version(what string) version {
	return version{c.u64(what), c.u64(what), c.u64(what), c.str(what)}
}

// isPointer reports whether a file is what Git leaves in place of a large
// one that was not downloaded.
func isPointer(b []byte) bool { return bytes.HasPrefix(b, []byte("version https://git-lfs")) }

var errPointer = errors.New("it is a Git LFS pointer, not the file itself; download it with \"git lfs pull\"")

// parseContainer reads a coremldata.bin. Its slices are those of b.
func parseContainer(b []byte) (*container, error) {
	if isPointer(b) {
		return nil, errPointer
	}
	r := &cursor{b: b}
	c := &container{Kind: modelproto.Kind(r.u32("kind of model"))}
	c.Format = r.version("version of the compiled format")
	c.Spec = r.version("version of the specification")
	c.Description = r.bytes("description")
	if r.err != nil {
		return nil, r.err
	}
	c.Rest = b[r.at:]
	return c, nil
}

func appendString(b []byte, s string) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(len(s)))
	return append(b, s...)
}

func (v version) append(b []byte) []byte {
	for _, n := range []uint64{v.Major, v.Minor, v.Patch} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return appendString(b, v.Variant)
}

func (c *container) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(c.Kind))
	b = c.Format.append(b)
	b = c.Spec.append(b)
	b = appendString(b, string(c.Description))
	return append(b, c.Rest...)
}

// formatOf is the version of the compiled format that Apple's compiler gives
// a model of a specification version. It is not that version, only often the
// same number.
var formatOf = map[int]uint64{6: 5, 7: 5, 8: 8, 9: 9, 10: 9}

// newContainer returns the container of an ML Program.
func newContainer(specVersion int, description []byte, functions int) (*container, error) {
	format, ok := formatOf[specVersion]
	if !ok {
		return nil, fmt.Errorf("specification version %d has no compiled form that this program knows; known are 6 to 10", specVersion)
	}
	c := &container{
		Kind:        modelproto.MLProgram,
		Format:      version{Major: format, Variant: "generic"},
		Spec:        version{Major: uint64(specVersion)},
		Description: description,
	}
	for range max(1, functions) {
		c.Rest = binary.LittleEndian.AppendUint32(c.Rest, uint32(modelproto.MLProgram))
		c.Rest = append(c.Rest, make([]byte, 12)...)
	}
	return c, nil
}

// description returns the description and the specification version of a
// container, which must be that of an ML Program.
func (c *container) description() (*modelpb.ModelDescription, int, error) {
	if c.Kind != modelproto.MLProgram {
		return nil, 0, fmt.Errorf("the model is a %v (type %d); only ML Programs (type %d) are supported", c.Kind, int(c.Kind), int(modelproto.MLProgram))
	}
	if v := c.Spec.Major; v == 0 || v > math.MaxInt32 {
		return nil, 0, fmt.Errorf("specification version %d", v)
	}
	d, err := modelproto.UnmarshalDescription(c.Description)
	return d, int(c.Spec.Major), err
}

// Numbers of fields of the description that are written here one by one.
const (
	metadataField    protowire.Number = 100 // of the description
	userDefinedField protowire.Number = 100 // of the metadata
)

// marshalDescription is like [modelproto.MarshalDescription], with the free
// entries of the metadata in the given order, and those it does not name
// behind, by name.
func marshalDescription(d *modelpb.ModelDescription, order []string) ([]byte, error) {
	b, err := modelproto.MarshalDescription(d)
	if err != nil || len(order) == 0 || len(d.GetMetadata().GetUserDefined()) == 0 {
		return b, err
	}
	at := map[string]int{}
	for i, name := range order {
		if _, ok := at[name]; !ok {
			at[name] = i
		}
	}
	var out []byte
	err = fields(b, func(num protowire.Number, field, value []byte) {
		if num == metadataField {
			field = protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), sortUser(value, at))
		}
		out = append(out, field...)
	})
	return out, err
}

// sortUser puts the free entries of stored metadata, which come by name, in
// the given order; those that it does not have stay behind.
func sortUser(md []byte, at map[string]int) []byte {
	type entry struct {
		at    int
		field []byte
	}
	var head, tail []byte
	var entries []entry
	fields(md, func(num protowire.Number, field, value []byte) {
		switch {
		case num == userDefinedField:
			e := entry{len(at), field}
			if i, ok := at[userName(value)]; ok {
				e.at = i
			}
			entries = append(entries, e)
		case len(entries) == 0:
			head = append(head, field...)
		default:
			tail = append(tail, field...)
		}
	})
	slices.SortStableFunc(entries, func(a, b entry) int { return cmp.Compare(a.at, b.at) })
	for _, e := range entries {
		head = append(head, e.field...)
	}
	return append(head, tail...)
}

// userName returns the name of a stored free entry.
func userName(e []byte) (name string) {
	fields(e, func(num protowire.Number, _, value []byte) {
		if num == 1 {
			name = string(value)
		}
	})
	return name
}

// parseUserOrder returns the names of the free entries of the metadata in the
// order of a stored description.
func parseUserOrder(description []byte) []string {
	var names []string
	fields(description, func(num protowire.Number, _, md []byte) {
		if num == metadataField {
			fields(md, func(num protowire.Number, _, e []byte) {
				if num == userDefinedField {
					names = append(names, userName(e))
				}
			})
		}
	})
	return names
}

// fields calls visit with every field of a stored message, whole and, if it
// is text, bytes or a message, its content.
func fields(b []byte, visit func(num protowire.Number, field, value []byte)) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		m := protowire.ConsumeFieldValue(num, typ, b[n:])
		if m < 0 {
			return protowire.ParseError(m)
		}
		var value []byte
		if typ == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(b[n:])
		}
		visit(num, b[:n+m], value)
		b = b[n+m:]
	}
	return nil
}

// section is a part of analytics/coremldata.bin: a name and its entries.
type section struct {
	Name    string
	Entries [][2]string
}

// parseAnalytics reads an analytics/coremldata.bin: sections until its end.
func parseAnalytics(b []byte) ([]section, error) {
	if isPointer(b) {
		return nil, errPointer
	}
	r := &cursor{b: b}
	var out []section
	for r.at < len(b) && r.err == nil {
		s := section{Name: r.str("name of a section")}
		for n := r.u64("number of entries"); n > 0 && r.err == nil; n-- {
			s.Entries = append(s.Entries, [2]string{r.str("key"), r.str("value")})
		}
		out = append(out, s)
	}
	if r.err != nil {
		return nil, r.err
	}
	return out, nil
}

func appendAnalytics(b []byte, sections []section) []byte {
	for _, s := range sections {
		b = appendString(b, s.Name)
		b = binary.LittleEndian.AppendUint64(b, uint64(len(s.Entries)))
		for _, e := range s.Entries {
			b = appendString(appendString(b, e[0]), e[1])
		}
	}
	return b
}
