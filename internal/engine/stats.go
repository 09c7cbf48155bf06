package engine

import "anemone/mil"

// Stats says how much memory a model takes, in bytes.
type Stats struct {
	// Mapped is the stored size of all weights of the program. They are
	// read where they lie, in a mapped file if they come from one; only the
	// parts that are used are in memory, and the system may drop them.
	Mapped int64
	// Packed is what was made of them: indices and tables laid out for the
	// kernels. The stored indices are then not read any more.
	Packed int64
	// Constants are small weights in float32, what was computed from
	// constants when planning, and compressed weights that an operation
	// needed whole.
	Constants int64
	// State is the size of one set of states.
	State int64
	// Arenas is the memory for values and scratch of all calls.
	Arenas int64
	// Plans is the number of functions times shapes that have run.
	Plans int
}

// Held returns the memory that the model itself holds: all but mapped
// weights and states.
func (s Stats) Held() int64 { return s.Packed + s.Constants + s.Arenas }

// Memory returns how many bytes the model holds at present; see
// [Stats.Held].
func (m *Model) Memory() int64 { return m.Stats().Held() }

// Stats returns the present memory use.
func (m *Model) Stats() Stats {
	s := Stats{Packed: m.weights.held.Load(), Constants: m.weights.consts.Load(), Arenas: m.arenas.Load()}
	seen := map[mil.Weight]bool{}
	for _, f := range m.funcs {
		for _, p := range *f.plans.Load() {
			s.Plans++
			s.Constants += p.consts
		}
		p := mil.Program{Functions: []*mil.Function{f.f}}
		p.Weights(func(_ *mil.Value, w mil.Weight) {
			if n, ok := w.Type().ByteSize(); ok && !seen[w] {
				seen[w] = true
				s.Mapped += n
			}
		})
	}
	for _, st := range m.states {
		n, _ := mil.NumElements(st.shape)
		s.State += 4 * int64(n)
	}
	return s
}
