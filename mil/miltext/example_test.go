package miltext_test

import (
	"fmt"
	"os"

	"anemone/mil"
	"anemone/mil/miltext"
)

// A program printed in the older dialect.
func ExamplePrint() {
	b := mil.NewBuilder("main", mil.CoreML7)
	x := b.Input("x", mil.TensorOf(mil.Float16, 1, 2))
	b.Output("y", b.Op("mul", mil.A("x", x), mil.A("y", b.Const(mil.Half(0.5)))))
	f, err := b.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	p := &mil.Program{Functions: []*mil.Function{f}}
	if err := miltext.Print(os.Stdout, p, miltext.PrintOptions{Dialect: miltext.V10}); err != nil {
		fmt.Println(err)
	}
	// Output:
	// program(1.0)
	// {
	//     func main<ios17>(tensor<fp16, [1, 2]> x) {
	//             tensor<fp16, []> c_fp16_0_5 = const()[name = tensor<string, []>("c_fp16_0_5"), val = tensor<fp16, []>(0x1p-1)];
	//             tensor<fp16, [1, 2]> y = mul(x = x, y = c_fp16_0_5)[name = tensor<string, []>("mul")];
	//         } -> (y);
	// }
}

// A text read, with the weights that it refers to as promises.
func ExampleParse() {
	text := `program(1.3)
{
    func main<ios18>(tensor<fp16, [4]> x) {
            tensor<fp16, [4]> w = const()[name = string("w"), val = tensor<fp16, [4]>(BLOBFILE(path = string("@model_path/weights/weight.bin"), offset = uint64(64)))];
            tensor<fp16, [4]> y = add(x = x, y = w)[name = string("y")];
        } -> (y);
}`
	p, err := miltext.Parse([]byte(text), miltext.ParseOptions{
		Weight: func(ref miltext.BlobRef, t mil.Type) (mil.Weight, error) {
			fmt.Println("weight of type", t, "in", ref.File, "at", ref.Offset)
			return mil.PromiseWeight(t, nil), nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, op := range p.Function("main").Body.Ops {
		fmt.Println(op.Results[0].Name, "is a", op.Type)
	}
	_, err = miltext.Parse([]byte(text[:170]), miltext.ParseOptions{})
	fmt.Println(err)
	// Output:
	// weight of type tensor<fp16, [4]> in @model_path/weights/weight.bin at 64
	// w is a const
	// y is a add
	// line 4, column 110 (function "main"): string has no end
}
