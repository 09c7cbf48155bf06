package lint

import (
	"anemone/internal/ane"
	"anemone/mil"
)

// states calls visit for the states of a function.
func (f *function) states(visit func(v *mil.Value)) {
	for _, in := range f.f.Inputs {
		if in != nil && in.Type.Kind == mil.StateKind {
			visit(in)
		}
	}
}

func last(t mil.Type) int {
	if len(t.Shape) == 0 {
		return 0
	}
	return t.Shape[len(t.Shape)-1]
}

func stateAxis3(p *pass, f *function) {
	f.states(func(v *mil.Value) {
		if last(v.Type) == 3 {
			p.report(f.at(v.Name), "shape %v", v.Type.Shape)
		}
	})
}

func stateMultiple(p *pass, f *function) {
	f.states(func(v *mil.Value) {
		if n := last(v.Type); n%ane.StateMultiple != 0 && n != 3 {
			p.report(f.at(v.Name), "shape %v: %d is no multiple of %d", v.Type.Shape, n, ane.StateMultiple)
		}
	})
}

func stateDType(p *pass, f *function) {
	f.states(func(v *mil.Value) {
		if v.Type.DType != mil.Float16 {
			p.report(f.at(v.Name), "a state of %v", v.Type.DType)
		}
	})
}

func stateUnread(p *pass, f *function) {
	f.states(func(v *mil.Value) {
		written := ""
		for _, op := range f.users[v] {
			switch op.Type {
			case "read_state":
				return
			case "write_state", "coreml_update_state":
				written = ", only written"
			}
		}
		p.report(f.at(v.Name), "never read%s", written)
	})
}

// write returns the state that an operation writes and what it writes, or
// nil.
func write(op *mil.Operation) (state, data *mil.Value) {
	switch op.Type {
	case "write_state":
		return op.Value("input"), op.Value("data")
	case "coreml_update_state":
		return op.Value("state"), op.Value("value")
	}
	return nil, nil
}

// reshapes are operations that keep all elements.
var reshapes = map[string]bool{"reshape": true, "transpose": true, "squeeze": true, "expand_dims": true, "cast": true, "identity": true}

// cuts are operations that keep some.
var cuts = map[string]bool{"slice_by_index": true, "slice_by_size": true, "split": true, "gather": true}

// back follows v to what it was made of by operations of the given kinds.
func back(v *mil.Value, kinds ...map[string]bool) *mil.Value {
	for range 64 { // a longer chain is none that is looked for
		if v == nil || v.Op == nil {
			return v
		}
		through := false
		for _, k := range kinds {
			through = through || k[v.Op.Type]
		}
		if !through {
			return v
		}
		v = v.Op.Value("x")
	}
	return v
}

func stateShift(p *pass, f *function) {
	for _, op := range f.ops {
		state, data := write(op)
		if state == nil {
			continue
		}
		c := back(data, reshapes)
		if c == nil || c.Op == nil || c.Op.Type != "concat" {
			continue
		}
		for _, v := range c.Op.Arg("values") {
			if r := back(v, reshapes, cuts); r != nil && r.Op != nil && (r.Op.Type == "read_state" && r.Op.Value("input") == state || r.Op.Type == "coreml_update_state" && r.Op.Value("state") == state) {
				p.report(f.at(opName(c.Op)), "becomes the whole of state %s %v", state.Name, state.Type.Shape)
				break
			}
		}
	}
}

func updateDType(p *pass, f *function) {
	for _, op := range f.ops {
		into, data := write(op)
		if op.Type == "slice_update" {
			into, data = op.Value("x"), op.Value("update")
		}
		if into == nil || data == nil {
			continue
		}
		if d, e := into.Type.DType, data.Type.DType; d != e {
			name := opName(op)
			if name == "" {
				name = into.Name
			}
			p.report(f.at(name), "%s writes %v into %v", op.Type, e, d)
		}
	}
}
