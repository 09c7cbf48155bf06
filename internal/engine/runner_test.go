package engine_test

import (
	"testing"

	"anemone/coreml"
	"anemone/internal/engine"
	"anemone/internal/runner"
	"anemone/internal/runner/runnertest"
)

func TestRunner(t *testing.T) {
	for name, o := range map[string]engine.Options{
		"float32": {}, "float16": {Numerics: engine.Float16}, "one worker": {Workers: 1}, "without fusion": {NoFusion: true},
	} {
		t.Run(name, func(t *testing.T) {
			runnertest.Run(t, func(t testing.TB, m *coreml.Model) runner.Model {
				e, err := engine.New(m, o)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { e.Close() })
				return e
			})
		})
	}
}
