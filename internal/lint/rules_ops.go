package lint

import (
	"strings"

	"anemone/internal/ane"
	"anemone/internal/inspect/stored"
	"anemone/mil"
)

// each calls visit for the operations that the Neural Engine might run.
func (f *function) each(visit func(op *mil.Operation)) {
	if f.m.Embeddings {
		return // the CPU looks rows up
	}
	for _, op := range f.ops {
		if !ane.Folded(op.Type) {
			visit(op)
		}
	}
}

func coarseSigmoid(p *pass, f *function) {
	f.each(func(op *mil.Operation) {
		if ane.Coarse(op.Type) {
			p.report(f.at(opName(op)), "%s", op.Type)
		}
	})
}

func cumsum(p *pass, f *function) {
	f.each(func(op *mil.Operation) {
		if op.Type == "cumsum" {
			p.report(f.at(opName(op)), "cumsum")
		}
	})
}

func noCode(p *pass, f *function) {
	f.each(func(op *mil.Operation) {
		if op.Type != "cumsum" && !ane.HasCode(op.Type) {
			p.report(f.at(opName(op)), "%s", op.Type)
		}
	})
}

// large reports the tensors for which above says a dimension. The table of a
// look-up is not looked at: it is read, not computed with.
func large(p *pass, f *function, above func(mil.Type) int) {
	f.each(func(op *mil.Operation) {
		check := func(v *mil.Value) bool {
			if v.Type.Kind != mil.TensorKind {
				return false
			}
			n := above(v.Type)
			if n > 0 {
				p.report(f.at(opName(op)), "%s: %v", op.Type, v.Type)
			}
			return n > 0
		}
		for _, a := range op.Args {
			if op.Type == "gather" && a.Name == "x" {
				continue
			}
			for _, v := range a.Values {
				if check(v) {
					return
				}
			}
		}
		for _, v := range op.Results {
			if check(v) {
				return
			}
		}
	})
}

func largeTensor(p *pass, f *function) { large(p, f, ane.TooLarge) }

func largeTensorOlder(p *pass, f *function) {
	large(p, f, func(t mil.Type) int {
		if ane.TooLarge(t) > 0 {
			return 0 // said already
		}
		return ane.TooLargeOlder(t)
	})
}

func sliceOffset(p *pass, f *function) {
	f.each(func(op *mil.Operation) {
		if n := ane.SliceOffset(op); n > ane.MaxOffsetOlder {
			p.report(f.at(opName(op)), "%s begins at %d", op.Type, n)
		}
	})
}

func isFP32(op *mil.Operation) bool {
	for _, v := range op.Results {
		if v.Type.Kind == mil.TensorKind && v.Type.DType == mil.Float32 {
			return true
		}
	}
	return false
}

func fp32Compute(p *pass, f *function) {
	f.each(func(op *mil.Operation) {
		// Conversions at the edges, and what only moves elements, come with
		// something else that is reported or with an fp32 input.
		if op.Type != "cast" && !ane.Moves(op.Type) && isFP32(op) {
			p.report(f.at(opName(op)), "fp32")
		}
	})
}

func cpuOperations(p *pass, f *function) {
	f.each(func(op *mil.Operation) {
		d, why := ane.Place(op, false)
		switch {
		case d != ane.CPU, !ane.HasCode(op.Type), isFP32(op) && op.Type != "cast":
			return
		}
		for _, t := range ane.Tensors(op) {
			if ane.TooLarge(t) > 0 {
				return
			}
		}
		p.report(f.at(opName(op)), "%s", why)
	})
}

func scaleAfterConv(p *pass, f *function) {
	f.each(func(op *mil.Operation) {
		if op.Type != "mul" && op.Type != "real_div" {
			return
		}
		x, y := op.Value("x"), op.Value("y")
		if x == nil || y == nil {
			return
		}
		if op.Type == "mul" && x.Literal != nil {
			x, y = y, x
		}
		if y.Literal == nil || y.Literal.Len() != 1 || x.Op == nil || x.Op.Type != "conv" || len(f.users[x]) != 1 || f.outputs[x] {
			return
		}
		if w := x.Op.Value("weight"); w != nil && stored.EncodingOf(w).Kind == stored.LUT {
			p.report(f.at(opName(op)), "%s of the result of %s by %v", op.Type, opName(x.Op), y.Literal.Floats)
		}
	})
}

func inputUnused(p *pass, f *function) {
	for _, in := range f.f.Inputs {
		if in != nil && in.Type.Kind == mil.TensorKind && len(f.users[in]) == 0 && !f.outputs[in] {
			p.report(f.at(in.Name), "%v is not used", in.Type)
		}
	}
}

// origins returns the names of the inputs that v is computed from, as far as a
// look at the nearest operations tells.
func origins(v *mil.Value) map[string]bool {
	const most = 200
	names := map[string]bool{}
	seen := map[*mil.Value]bool{}
	todo := []*mil.Value{v}
	for len(todo) > 0 && len(seen) < most {
		v := todo[0]
		todo = todo[1:]
		if v == nil || seen[v] || v.IsConst() {
			continue
		}
		seen[v] = true
		if v.Op == nil {
			names[v.Name] = true
			continue
		}
		for _, a := range v.Op.Args {
			todo = append(todo, a.Values...)
		}
	}
	return names
}

// badName says why a name cannot be written in the text form.
func badName(name string) string {
	switch {
	case mil.Reserved(name):
		return "a reserved word"
	case name == "":
		return "no name"
	case name[0] >= '0' && name[0] <= '9' || name[0] == '@':
		return "does not begin with a letter or '_'"
	case strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '@')
	}):
		return "has characters other than letters, digits, '_' and '@'"
	}
	return ""
}

func reservedName(p *pass, f *function) {
	check := func(what, name string) {
		if why := badName(name); why != "" {
			p.report(f.at(name), "%s: %s", what, why)
		}
	}
	check("function", f.f.Name)
	for _, v := range f.f.Inputs {
		if v != nil {
			check("input", v.Name)
		}
	}
	for _, op := range f.ops {
		for _, v := range op.Results {
			check("result of "+op.Type, v.Name)
		}
	}
}
