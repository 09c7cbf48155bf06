package engine_test

import (
	"context"
	"fmt"
	"log"

	"anemone/coreml"
	"anemone/internal/engine"
	"anemone/internal/runner"
	"anemone/mil"
)

// A counter: a function that adds to a state and returns the sum.
func ExampleNew() {
	b := mil.NewBuilder("count", mil.CoreML8)
	x := b.Input("x", mil.TensorOf(mil.Float16, 2))
	st := b.Input("total", mil.StateOf(mil.Float16, 2))
	sum := b.Op("add", mil.A("x", b.Op("read_state", mil.A("input", st))), mil.A("y", x))
	b.Output("sum", b.Op("coreml_update_state", mil.A("state", st), mil.A("value", sum)))
	f, err := b.Build()
	if err != nil {
		log.Fatal(err)
	}
	m, err := engine.New(&coreml.Model{Program: &mil.Program{Functions: []*mil.Function{f}}}, engine.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	state, err := m.NewState()
	if err != nil {
		log.Fatal(err)
	}
	out := runner.Values{}
	for range 3 {
		in := runner.Values{"x": runner.Floats(mil.Float16, []float32{1, 10}, 2)}
		if err := m.Predict(context.Background(), "count", in, out, state); err != nil {
			log.Fatal(err)
		}
		fmt.Println(out["sum"].Float)
	}
	// Output:
	// [1 10]
	// [2 20]
	// [3 30]
}
