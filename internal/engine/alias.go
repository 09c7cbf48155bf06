package engine

import (
	"anemone/mil"
)

// aliases is what the order of a function's operations says about states. A
// value that was read from a state, and every view of it, lies in the
// state's own memory, and an update writes only the rows that change. That
// is right as long as nothing reads the old contents afterwards; where
// something does, the old value is copied in time.
//
// The contents of a state have versions: every write makes a new one. A
// value belongs to the version at which it was read.
type aliases struct {
	// inPlace has the slice updates that write into a state, and which.
	inPlace map[*mil.Operation]*mil.Value
	// written has the writes of a state whose value already lies there.
	written map[*mil.Operation]bool
	// copied has the values that outlive their version.
	copied map[*mil.Value]bool
}

// viewOps are the operations whose results may share memory with the
// operand of the given name.
var viewOps = map[string]string{
	"reshape": "x", "transpose": "x", "expand_dims": "x", "squeeze": "x", "identity": "x", "cast": "x",
	"slice_by_index": "x", "slice_by_size": "x", "tile": "x", "split": "x", "reverse": "x",
}

// member is a value that lies in a state.
type member struct {
	state   *mil.Value
	version int
	whole   bool // it is the state as it stands
	away    bool // it is a view of a copy
}

func analyse(f *mil.Function) *aliases {
	a := &aliases{inPlace: map[*mil.Operation]*mil.Value{}, written: map[*mil.Operation]bool{}, copied: map[*mil.Value]bool{}}
	ops := f.Body.Ops
	pos := make(map[*mil.Operation]int, len(ops))
	touch := map[*mil.Value][]int{} // operations on a state itself
	for i, op := range ops {
		pos[op] = i
		if s := stateOf(op); s != nil {
			touch[s] = append(touch[s], i)
		}
	}
	if len(touch) == 0 {
		return a
	}
	members := map[*mil.Value]member{}
	version := map[*mil.Value]int{}
	ends := map[*mil.Value][]int{} // operation that ends each version
	bump := func(s *mil.Value, at int) int {
		ends[s] = append(ends[s], at)
		version[s]++
		return version[s]
	}
	for i, op := range ops {
		switch op.Type {
		case "read_state":
			s := stateOf(op)
			members[op.Results[0]] = member{state: s, version: version[s], whole: true}
		case "write_state", "coreml_update_state":
			s, data := stateOf(op), op.Value("data")
			if data == nil {
				data = op.Value("value")
			}
			v := version[s]
			if m, ok := members[data]; ok && m.state == s && m.version == v && m.whole {
				a.written[op] = true
			} else {
				v = bump(s, i)
			}
			if len(op.Results) > 0 {
				members[op.Results[0]] = member{state: s, version: v, whole: true}
			}
		case "slice_update":
			m, ok := members[op.Value("x")]
			if !ok || !m.whole || m.version != version[m.state] || !isWritten(op, i, pos, touch[m.state], ops) {
				continue
			}
			a.inPlace[op] = m.state
			members[op.Results[0]] = member{state: m.state, version: bump(m.state, i), whole: true}
		default:
			arg, ok := viewOps[op.Type]
			if !ok {
				continue
			}
			if m, ok := members[op.Value(arg)]; ok {
				m.whole = m.whole && op.Type == "identity"
				for _, r := range op.Results {
					members[r] = m
				}
			}
		}
	}
	late := func(v *mil.Value, at int, harmless bool) {
		m, ok := members[v]
		if !ok || m.version >= len(ends[m.state]) {
			return
		}
		if end := ends[m.state][m.version]; at > end || at == end && !harmless {
			a.copied[v] = true
		}
	}
	for i, op := range ops {
		for _, arg := range op.Args {
			for _, v := range arg.Values {
				late(v, i, a.inPlace[op] != nil && arg.Name == "x" && v == op.Value("x"))
			}
		}
		if len(op.Blocks) > 0 {
			for _, v := range operands(op) {
				late(v, i, false)
			}
		}
	}
	for _, o := range f.Body.Outputs {
		late(o, len(ops), false)
	}
	// A view of a copy is no longer in the state.
	for _, op := range ops {
		arg, ok := viewOps[op.Type]
		if !ok {
			continue
		}
		if x := op.Value(arg); a.copied[x] || members[x].away {
			for _, r := range op.Results {
				delete(a.copied, r)
				members[r] = member{away: true}
			}
		}
	}
	return a
}

// stateOf returns the state that an operation reads or writes as a whole.
func stateOf(op *mil.Operation) *mil.Value {
	switch op.Type {
	case "read_state", "write_state":
		return op.Value("input")
	case "coreml_update_state":
		return op.Value("state")
	}
	return nil
}

// isWritten reports whether the result of the slice update at position i,
// perhaps after further slice updates, is what the state holds when it is
// next touched.
func isWritten(op *mil.Operation, i int, pos map[*mil.Operation]int, touch []int, ops []*mil.Operation) bool {
	lo, hi := 0, len(touch)
	for lo < hi {
		if mid := (lo + hi) / 2; touch[mid] > i {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	if lo == len(touch) {
		return false
	}
	next := ops[touch[lo]]
	data := next.Value("data")
	if next.Type == "coreml_update_state" {
		data = next.Value("value")
	}
	for range 64 {
		if data == nil || data.Op == nil {
			return false
		}
		if data.Op == op {
			return true
		}
		if (data.Op.Type != "slice_update" && data.Op.Type != "identity") || pos[data.Op] < i {
			return false
		}
		data = data.Op.Value("x")
	}
	return false
}
