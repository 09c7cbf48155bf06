package mil_test

import (
	"errors"
	"fmt"

	"anemone/mil"
)

func ExampleLookupOpIn() {
	for _, s := range []mil.Opset{mil.CoreML5, mil.CoreML8} {
		d, err := mil.LookupOpIn("gather", s)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Print(s, ":")
		for _, p := range d.Params {
			fmt.Print(" ", p.Name)
		}
		fmt.Println()
	}
	_, err := mil.LookupOpIn("slice_update", mil.CoreML7)
	fmt.Println(err)
	// Output:
	// CoreML5: x indices axis
	// CoreML8: x indices axis batch_dims validate_indices
	// operation of a later operation set: slice_update needs CoreML8 (iOS 18), the function is in CoreML7 (iOS 17)
}

func ExampleOpDef_Default() {
	x := &mil.Value{Name: "x", Type: mil.TensorOf(mil.Float16, 1, 64, 32, 32)}
	op := &mil.Operation{Type: "conv", Args: []mil.Arg{mil.A("x", x)}}
	d, _ := mil.LookupOp(op.Type)
	fmt.Println(d.Default(op, "strides").Ints, d.Default(op, "pad_type").Strings, d.Default(op, "bias") == nil)
	// Output: [1 1] [valid] true
}

func ExampleVerify() {
	x := &mil.Value{Name: "x", Type: mil.TensorOf(mil.Float16, 2, 3)}
	op := &mil.Operation{Type: "transpose", Name: "y", Args: []mil.Arg{mil.A("perm", mil.Imm(mil.Ints(1, 0))), mil.A("x", x)}}
	op.Results = []*mil.Value{{Name: "y", Type: mil.TensorOf(mil.Float16, 2, 3), Op: op}}
	p := &mil.Program{Functions: []*mil.Function{{
		Name: "main", Opset: mil.CoreML8, Inputs: []*mil.Value{x},
		Body: &mil.Block{Ops: []*mil.Operation{op}, Outputs: op.Results},
	}}}
	err := mil.Verify(p)
	fmt.Println(err)
	var at *mil.Error
	fmt.Println(errors.As(err, &at), at.Op)
	// Output:
	// function "main": transpose "y": result "y" is declared tensor<fp16, [2, 3]>, but the operands give tensor<fp16, [3, 2]>
	// true transpose
}

func ExampleBuilder() {
	b := mil.NewBuilder("main", mil.CoreML8)
	x := b.Input("x", mil.TensorOf(mil.Float16, 1, 8))
	y := b.Op("mul", mil.A("x", x), mil.A("y", b.Const(mil.Half(0.5))))
	b.Output("out", b.Op("relu", mil.A("x", y)))
	f, err := b.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, op := range f.Body.Ops {
		fmt.Println(op.Type, op.Results[0].Name, op.Results[0].Type)
	}
	// Output:
	// const c_fp16_0_5 fp16
	// mul mul tensor<fp16, [1, 8]>
	// relu out tensor<fp16, [1, 8]>
}
