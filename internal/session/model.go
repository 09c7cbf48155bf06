package session

import (
	"errors"
	"fmt"

	"anemone/coreml"
	"anemone/internal/anemll"
	"anemone/internal/runner"
)

// Loader makes a Core ML model runnable.
type Loader func(*coreml.Model) (runner.Model, error)

// Model is a package whose parts are loaded. Any number of sessions may run
// on it, at the same time too.
type Model struct {
	pkg *anemll.Package
	// runners has one entry per part of the package.
	runners map[*anemll.Part]runner.Model
	order   []runner.Model
}

// Load loads the parts of a package. The package must stay open as long as
// the model is in use, and remains the caller's to close.
func Load(p *anemll.Package, load Loader) (_ *Model, err error) {
	m := &Model{pkg: p, runners: map[*anemll.Part]runner.Model{}}
	defer func() {
		if err != nil {
			m.Close()
		}
	}()
	for _, part := range p.Parts() {
		r, err := load(part.Model)
		if err != nil {
			return nil, fmt.Errorf("load %s: %w", part.Name, err)
		}
		m.runners[part] = r
		m.order = append(m.order, r)
	}
	return m, nil
}

// Package returns the package that m was loaded from.
func (m *Model) Package() *anemll.Package { return m.pkg }

// Close releases the parts. Sessions cannot be used after it.
func (m *Model) Close() error {
	var errs []error
	for _, r := range m.order {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}

// Memory is an estimate in bytes.
type Memory struct {
	// Weights is what the loaded parts hold, by their own account; 0 if the
	// runner does not say.
	Weights int64
	// State is what the states of one session take, as declared (fp16).
	State int64
}

// Memory returns what m takes, and each session on it.
func (m *Model) Memory() Memory {
	mem := Memory{State: m.pkg.StateBytes()}
	for _, r := range m.order {
		if u, ok := r.(interface{ Memory() int64 }); ok {
			mem.Weights += u.Memory()
		}
	}
	return mem
}
