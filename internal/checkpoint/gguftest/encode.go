package gguftest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"anemone/internal/checkpoint/gguf"
)

// Entry is an entry of the metadata. Value is a uint32, int32, uint64,
// float32, bool or string, or a slice of int32, float32, bool or string.
type Entry struct {
	Key   string
	Value any
}

// Tensor is a tensor, as it is stored.
type Tensor struct {
	Name  string
	Type  gguf.Type
	Shape []int // row-major
	Data  []byte
}

const alignment = 32

// Encode returns a GGUF file of version 3.
func Encode(entries []Entry, tensors []Tensor) []byte {
	var b bytes.Buffer
	put := func(v any) {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			panic(fmt.Sprintf("gguftest: %T: %v", v, err))
		}
	}
	text := func(s string) {
		put(uint64(len(s)))
		b.WriteString(s)
	}
	b.WriteString("GGUF")
	put(uint32(3))
	put(uint64(len(tensors)))
	put(uint64(len(entries)))
	for _, e := range entries {
		text(e.Key)
		switch v := e.Value.(type) {
		case uint32:
			put(uint32(4))
			put(v)
		case int32:
			put(uint32(5))
			put(v)
		case float32:
			put(uint32(6))
			put(v)
		case bool:
			put(uint32(7))
			put(v)
		case string:
			put(uint32(8))
			text(v)
		case uint64:
			put(uint32(10))
			put(v)
		case []string:
			put([]uint32{9, 8})
			put(uint64(len(v)))
			for _, s := range v {
				text(s)
			}
		case []int32:
			put([]uint32{9, 5})
			put(uint64(len(v)))
			put(v)
		case []float32:
			put([]uint32{9, 6})
			put(uint64(len(v)))
			put(v)
		case []bool:
			put([]uint32{9, 7})
			put(uint64(len(v)))
			put(v)
		default:
			panic(fmt.Sprintf("gguftest: key %q has a %T", e.Key, v))
		}
	}
	at := 0
	for _, t := range tensors {
		text(t.Name)
		put(uint32(len(t.Shape)))
		for _, d := range slices.Backward(t.Shape) {
			put(uint64(d))
		}
		put(uint32(t.Type))
		put(uint64(at))
		at += (len(t.Data) + alignment - 1) / alignment * alignment
	}
	pad := func() { b.Write(make([]byte, (alignment-b.Len()%alignment)%alignment)) }
	pad()
	for _, t := range tensors {
		b.Write(t.Data)
		pad()
	}
	return b.Bytes()
}
