package mlmodelc_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"anemone/coreml"
	"anemone/coreml/mlmodelc"
	"anemone/coreml/mlpackage"
	"anemone/mil"
)

// A model written as a package, compiled, and opened.
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
	}

	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	pkg := filepath.Join(dir, "scale.mlpackage")
	if err := mlpackage.Write(ctx, pkg, m, mlpackage.Options{}); err != nil {
		fmt.Println(err)
		return
	}
	path, err := mlmodelc.Compile(ctx, pkg, dir, mlmodelc.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}

	p, err := mlmodelc.Open(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer p.Close()
	fmt.Println(filepath.Base(path), "by compiler", p.Details.Version)
	p.Model.Program.Weights(func(v *mil.Value, w mil.Weight) {
		file, offset, _ := p.WeightRef(w)
		fmt.Println(v.Name, w.Type(), "in", file, "at", offset)
	})
	// Output:
	// scale.mlmodelc by compiler 3500.32.1
	// scale tensor<fp16, [2]> in @model_path/weights/weight.bin at 64
}
