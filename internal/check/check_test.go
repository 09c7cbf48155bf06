package check

import (
	"context"
	"path/filepath"
	"testing"

	"anemone/coreml"
	"anemone/internal/anemll"
	"anemone/internal/checkpoint"
	"anemone/internal/engine"
	"anemone/internal/runner"
	"anemone/internal/session"
	"anemone/internal/testutil"
)

func tinyCheckpoint(t testing.TB) string { return testutil.Data(t, "checkpoints", "tiny-qwen3") }

// load opens a package in the engine.
func load(t testing.TB, dir string, o engine.Options) *session.Model {
	t.Helper()
	return loadPackage(t, open(t, dir), o)
}

func open(t testing.TB, dir string) *anemll.Package {
	t.Helper()
	p, err := anemll.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// loader loads models as load does.
func loader(m *coreml.Model) (runner.Model, error) {
	return engine.New(m, engine.Options{Workers: 1})
}

func loadPackage(t testing.TB, p *anemll.Package, o engine.Options) *session.Model {
	t.Helper()
	if o.Workers == 0 {
		o.Workers = 1 // these models are too small for more
	}
	m, err := session.Load(p, func(m *coreml.Model) (runner.Model, error) { return engine.New(m, o) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// source opens the reference of a checkpoint.
func source(t testing.TB, dir string) *Source {
	t.Helper()
	ck, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ck.Close() })
	m, err := registry.Open(ck)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSource(filepath.Base(dir), m)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func golden(t testing.TB, path string) *Golden {
	t.Helper()
	g, err := OpenGolden(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g
}

func run(t testing.TB, m *session.Model, target Target, o Options) *Report {
	t.Helper()
	r, err := Run(context.Background(), m, target, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// slow skips a test that takes minutes under the race detector; what runs
// without it has every kind of call.
func slow(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
}
