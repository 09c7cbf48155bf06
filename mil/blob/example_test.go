package blob_test

import (
	"bytes"
	"context"
	"fmt"

	"anemone/mil"
	"anemone/mil/blob"
)

// A file of two weights: planned, written, read.
func Example() {
	scale, _ := mil.NewWeight(mil.TensorOf(mil.Float16, 2), []byte{0x00, 0x3c, 0x00, 0x40})
	index, _ := mil.NewWeight(mil.TensorOf(mil.UInt4, 3), []byte{0x21, 0x03})

	var plan blob.Plan
	for i, w := range []mil.Weight{scale, index, scale} {
		off, err := plan.Add(fmt.Sprint("weight ", i), w)
		fmt.Println(w.Type(), "at", off, err)
	}
	var file bytes.Buffer
	if err := plan.Write(context.Background(), &file, nil); err != nil {
		fmt.Println(err)
	}

	r, err := blob.NewReader(file.Bytes())
	if err != nil {
		fmt.Println(err)
		return
	}
	w, err := r.Weight(192, mil.TensorOf(mil.UInt4, 3))
	if err != nil {
		fmt.Println(err)
		return
	}
	b, _ := mil.WeightBytes(w)
	fmt.Printf("%v: % x\n", w.Type(), b)
	_, err = r.Weight(192, mil.TensorOf(mil.UInt4, 30))
	fmt.Println(err)
	// Output:
	// tensor<fp16, [2]> at 64 <nil>
	// tensor<uint4, [3]> at 192 <nil>
	// tensor<fp16, [2]> at 64 <nil>
	// tensor<uint4, [3]>: 21 03
	// record at offset 192: holds 2 bytes, the program wants tensor<uint4, [30]> of 15 bytes
}
