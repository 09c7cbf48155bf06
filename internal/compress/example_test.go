package compress_test

import (
	"fmt"

	"anemone/internal/compress"
	"anemone/mil"
)

func ExamplePalettize() {
	// Two rows of weights that share a table of four values.
	src := compress.FromFloat32([]float32{
		-1, 0.5, 0.5, 2,
		2.25, -1, -1, 0,
	}, 4)
	e, err := compress.ParseEncoding("2,2")
	if err != nil {
		fmt.Println(err)
		return
	}
	var report compress.Report
	p, err := compress.Palettize(src, []int{2, 4, 1, 1}, e, compress.Options{Name: "w", Report: &report})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(p.Indices.Type(), p.LUT.Type())
	indices, _ := mil.WeightBytes(p.Indices)
	lut, _ := mil.WeightBytes(p.LUT)
	fmt.Printf("%08b\n%04x\n", indices, lut)
	fmt.Printf("%.4f\n", report.Summary().Weights[0].RelativeError)
	// Output:
	// tensor<uint2, [2, 4, 1, 1]> tensor<fp16, [1, 1, 1, 1, 4, 1]>
	// [11101000 01000011]
	// 00bc000000384040
	// 0.0025
}
