package gguf_test

import (
	"errors"
	"fmt"

	"anemone/internal/checkpoint/gguf"
)

func ExampleOpen() {
	f, err := gguf.Open("testdata/quants.gguf")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()
	architecture, err := f.String("general.architecture")
	fmt.Println(architecture, err)
	_, err = f.Int("none.block_count")
	fmt.Println(errors.Is(err, gguf.ErrMissing))
	t, _ := f.Lookup("Q4_K")
	fmt.Println(t.Type, t.Shape, t.Size)
	// Output:
	// none <nil>
	// true
	// Q4_K [4 768] 1728
}

// A block of Q8_0 is a scale in fp16, here 0.5, and 32 signed bytes.
func ExampleType_Dequantize() {
	elements, bytes, _ := gguf.Q8_0.Block()
	block := make([]byte, bytes)
	copy(block, []byte{0x00, 0x38, 1, 2, 0xff})
	values := make([]float32, elements)
	gguf.Q8_0.Dequantize(values, block)
	fmt.Println(values[:4])
	// Output: [0.5 1 -0.5 0]
}
