package gguftest

import (
	"encoding/binary"
	"fmt"
	"math"

	"anemone/internal/checkpoint/gguf"
	"anemone/internal/float16"
)

// Quantize returns values as a tensor of the type stores them, and the values
// that they have become. F32, F16, BF16, Q8_0 and Q4_0 are known; rows of the
// last two are multiples of 32.
func Quantize(t gguf.Type, values []float32) (data []byte, became []float32) {
	became = make([]float32, len(values))
	half := func(v uint16) { data = binary.LittleEndian.AppendUint16(data, v) }
	switch t {
	case gguf.F32:
		for i, v := range values {
			data, became[i] = binary.LittleEndian.AppendUint32(data, math.Float32bits(v)), v
		}
	case gguf.F16:
		for i, v := range values {
			h := float16.FromFloat32(v)
			half(h)
			became[i] = float16.ToFloat32(h)
		}
	case gguf.BF16:
		for i, v := range values {
			h := float16.BFloat16FromFloat32(v)
			half(h)
			became[i] = float16.BFloat16ToFloat32(h)
		}
	case gguf.Q8_0, gguf.Q4_0:
		if len(values)%32 != 0 {
			panic(fmt.Sprintf("gguftest: %d values are no blocks of %s", len(values), t))
		}
		most := float32(127)
		if t == gguf.Q4_0 {
			most = 7
		}
		for at := 0; at < len(values); at += 32 {
			block, q := values[at:at+32], [32]int{}
			largest := float32(0)
			for _, v := range block {
				largest = max(largest, float32(math.Abs(float64(v))))
			}
			h := float16.FromFloat32(largest / most)
			scale := float16.ToFloat32(h)
			for i, v := range block {
				if scale > 0 {
					q[i] = int(min(max(float32(math.Round(float64(v/scale))), -most), most))
				}
				became[at+i] = float32(q[i]) * scale
			}
			half(h)
			if t == gguf.Q8_0 {
				for _, n := range q {
					data = append(data, byte(int8(n)))
				}
				continue
			}
			for i := range 16 {
				data = append(data, byte(q[i]+8)|byte(q[16+i]+8)<<4)
			}
		}
	default:
		panic(fmt.Sprintf("gguftest: quantizing to %s is not known", t))
	}
	return data, became
}
