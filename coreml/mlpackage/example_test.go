package mlpackage_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"anemone/coreml"
	"anemone/coreml/mlpackage"
	"anemone/mil"
)

// A model of one function, written and opened.
func Example() {
	b := mil.NewBuilder("main", mil.CoreML8)
	x := b.Input("x", mil.TensorOf(mil.Float16, 1, 2))
	w, _ := mil.NewWeight(mil.TensorOf(mil.Float16, 2), []byte{0x00, 0x3c, 0x00, 0x40}) // 1, 2
	b.Output("y", b.Op("mul", mil.A("x", x), mil.A("y", b.Weight("scale", w))))
	f, err := b.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	m := &coreml.Model{
		SpecVersion: 9,
		Functions:   []coreml.Function{coreml.Describe(f)},
		Program:     &mil.Program{Functions: []*mil.Function{f}},
		Metadata:    coreml.Metadata{Author: "an example"},
	}

	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "scale.mlpackage")
	if err := mlpackage.Write(context.Background(), path, m, mlpackage.Options{}); err != nil {
		fmt.Println(err)
		return
	}

	p, err := mlpackage.Open(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer p.Close()
	for _, f := range p.Model.Functions {
		fmt.Println(f.Name, f.Inputs[0].Name, f.Inputs[0].Shape, "->", f.Outputs[0].Name, f.Outputs[0].Shape)
	}
	p.Model.Program.Weights(func(v *mil.Value, w mil.Weight) {
		b, _ := mil.WeightBytes(w)
		fmt.Printf("%s %v % x\n", v.Name, w.Type(), b)
	})
	fmt.Println(p.WeightBytes(), "bytes of weights")
	// Output:
	// main x [1 2] -> y [1 2]
	// scale tensor<fp16, [2]> 00 3c 00 40
	// 132 bytes of weights
}
