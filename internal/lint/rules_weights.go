package lint

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"anemone/internal/ane"
	"anemone/internal/inspect/stored"
	"anemone/mil"
)

// use calls visit for the operations that take a weight, in every function.
func (m *model) use(t *stored.Tensor, visit func(f *function, op *mil.Operation, arg string)) {
	for i, name := range t.Functions {
		for _, f := range m.functions {
			if f.f.Name != name {
				continue
			}
			for _, op := range f.users[t.Values[i]] {
				for _, a := range op.Args {
					if slices.Contains(a.Values, t.Values[i]) {
						visit(f, op, a.Name)
					}
				}
			}
		}
	}
}

// in returns the place of a weight: in a function if only one has it.
func (m *model) in(t *stored.Tensor) at {
	w := m.at(t.Name)
	if len(t.Functions) == 1 && len(m.functions) > 1 {
		w.function = t.Functions[0]
	}
	return w
}

// tensors calls visit for the weights with a kind of encoding.
func (m *model) tensors(kind stored.Kind, visit func(t *stored.Tensor)) {
	for i := range m.weights {
		if m.weights[i].Encoding.Kind == kind {
			visit(&m.weights[i])
		}
	}
}

func weightLinear(p *pass, m *model) {
	m.tensors(stored.Linear, func(t *stored.Tensor) { p.report(m.in(t), "%v", t.Encoding) })
}

func lutScaled(p *pass, m *model) {
	m.tensors(stored.LUT, func(t *stored.Tensor) {
		if t.Encoding.Scaled {
			p.report(m.in(t), "%v", t.Encoding)
		}
	})
}

func lutGroup(p *pass, m *model) {
	m.tensors(stored.LUT, func(t *stored.Tensor) {
		if n := t.Encoding.Rows; n > 0 && n < ane.FastRows && t.Encoding.Tables > 1 {
			s := Info
			if n <= 2 {
				s = p.rule.Severity
			}
			p.reportAs(s, m.in(t), "%v", t.Encoding)
		}
	})
}

func lut3Bit(p *pass, m *model) {
	m.tensors(stored.LUT, func(t *stored.Tensor) {
		if t.Encoding.Bits == 3 {
			p.report(m.in(t), "%v", t.Encoding)
		}
	})
}

// lookup says what a palettized table that a gather looks up is for.
type lookup int

const (
	noLookup lookup = iota
	tokens
	positions
	anything
)

var ropeName = regexp.MustCompile(`(?i)(^|_)(cos|sin|rope|rotary|inv_freq)(_|$)`)

// lookup returns the use of a palettized table.
func (m *model) lookup(t *stored.Tensor) lookup {
	kind := noLookup
	m.use(t, func(_ *function, op *mil.Operation, arg string) {
		if !strings.HasPrefix(op.Type, "gather") || arg != "x" {
			return
		}
		from := origins(op.Value("indices"))
		k := anything
		switch {
		case from["input_ids"]:
			k = tokens
		case from["position_ids"], from["current_pos"], ropeName.MatchString(t.Name):
			k = positions
		}
		if kind == noLookup || k < kind {
			kind = k
		}
	})
	if kind == noLookup && t.Type.Rank() >= 2 && ropeName.MatchString(t.Name) {
		return positions // sliced in place of looked up
	}
	return kind
}

func (m *model) tables(p *pass, kind lookup) {
	m.tensors(stored.LUT, func(t *stored.Tensor) {
		if m.lookup(t) == kind {
			dense, _ := t.Type.ByteSize()
			p.report(m.in(t), "%v %v, %s when decompressed", t.Encoding, t.Type.Shape, size(dense))
		}
	})
}

func embeddingsPalettized(p *pass, m *model) { m.tables(p, tokens) }
func ropePalettized(p *pass, m *model)       { m.tables(p, positions) }
func gatherPalettized(p *pass, m *model)     { m.tables(p, anything) }

// groups returns the number of groups of a convolution.
func groups(op *mil.Operation) int {
	if g, ok := mil.ConstInts(op.Value("groups")); ok && len(g) == 1 {
		return g[0]
	}
	return 1
}

func depthwisePalettized(p *pass, m *model) {
	m.tensors(stored.LUT, func(t *stored.Tensor) {
		m.use(t, func(_ *function, op *mil.Operation, arg string) {
			if g := groups(op); op.Type == "conv" && arg == "weight" && g > 1 && len(t.Type.Shape) > 1 && t.Type.Shape[1] == 1 {
				p.report(m.in(t), "%v %v in a convolution of %d groups", t.Encoding, t.Type.Shape, g)
			}
		})
	})
}

// projection reports whether a weight is the matrix of a projection.
func (m *model) projection(t *stored.Tensor) bool {
	is := false
	m.use(t, func(_ *function, op *mil.Operation, arg string) {
		switch op.Type {
		case "conv":
			is = is || arg == "weight" && groups(op) == 1
		case "linear":
			is = is || arg == "weight"
		case "matmul":
			is = true
		}
	})
	return is
}

// lutThreshold is the number of elements from which coremltools palettizes.
const lutThreshold = 2048

func lutMissing(p *pass, m *model) {
	if m.LUT == 0 {
		return
	}
	m.tensors(stored.Dense, func(t *stored.Tensor) {
		if n, ok := t.Type.NumElements(); ok && n > lutThreshold && m.projection(t) {
			p.report(m.in(t), "%v %v, not lut%d", t.Encoding, t.Type.Shape, m.LUT)
		}
	})
}

func headBits(p *pass, m *model) {
	if !m.head() {
		return
	}
	m.tensors(stored.LUT, func(t *stored.Tensor) {
		if t.Encoding.Bits < 6 && m.projection(t) {
			p.report(m.in(t), "%v", t.Encoding)
		}
	})
}

// head reports whether the model is an LM head and nothing else: it gives
// logits and has no states.
func (m *model) head() bool {
	if m.Head {
		return true
	}
	for _, f := range m.functions {
		states := false
		f.states(func(*mil.Value) { states = true })
		if !states && len(f.f.Body.Outputs) > 0 && (strings.HasPrefix(f.f.Body.Outputs[0].Name, "logits") || strings.HasPrefix(f.f.Body.Outputs[0].Name, "argmax")) {
			return true
		}
	}
	return false
}

func weightFP32(p *pass, m *model) {
	m.tensors(stored.Dense, func(t *stored.Tensor) {
		if t.Encoding.DType == mil.Float32 || t.Encoding.DType == mil.Float64 {
			p.report(m.in(t), "%v", t.Encoding)
		}
	})
}

func functionsUnshared(p *pass, m *model) {
	type key struct{ name, typ string }
	first := map[key]*stored.Tensor{}
	type pair struct{ a, b string }
	count := map[pair]int{}
	bytes := map[pair]int64{}
	var pairs []pair
	for i := range m.weights {
		t := &m.weights[i]
		k := key{t.Name, t.Type.String()}
		o := first[k]
		if o == nil {
			first[k] = t
			continue
		}
		if slices.Contains(o.Functions, t.Functions[0]) {
			continue // the same function uses both: they are two weights
		}
		x := pair{o.Functions[0], t.Functions[0]}
		if count[x] == 0 {
			pairs = append(pairs, x)
		}
		count[x]++
		bytes[x] += t.Bytes()
	}
	for _, x := range pairs {
		p.report(at{m.Part, x.b, ""}, "%d weights of the names and types that %s has are stored again: %s", count[x], x.a, size(bytes[x]))
	}
}

func multifunctionMemory(p *pass, m *model) {
	if len(m.functions) < 2 || m.Embeddings {
		return
	}
	disk := stored.Total(m.weights)
	var all int64
	for _, f := range m.functions {
		all += Footprint(stored.Of(m.weights, f.f.Name))
	}
	if disk > 0 {
		p.report(m.at(""), "%d functions: %s on disk, about %s on the Neural Engine", len(m.functions), size(disk), size(all))
	}
}

// Footprint estimates what weights take on the Neural Engine, in bytes: as
// much as in the file, apart from what package ane says of 3 bits.
func Footprint(ts []stored.Tensor) int64 {
	n := stored.Total(ts)
	for i := range ts {
		t := &ts[i]
		if t.Encoding.Kind != stored.LUT {
			continue
		}
		for _, piece := range t.Pieces {
			if piece.Role == "indices" {
				n += ane.LUTBytes(t.Encoding.Bits, piece.Bytes) - piece.Bytes
			}
		}
	}
	return n
}

func bundleLarge(p *pass, m *model) {
	if n := stored.Total(m.weights); n > ane.MaxBundle && !m.Embeddings {
		p.report(m.at(""), "%s of weights", size(n))
	}
}

func bundlePhone(p *pass, m *model) {
	n := stored.Total(m.weights)
	if n <= ane.MaxBundlePhone || m.Embeddings {
		return
	}
	s := Info
	if p.opt.OS.Phone {
		s = p.rule.Severity
	} else if !p.opt.OS.IsZero() {
		return
	}
	p.reportAs(s, m.at(""), "%s of weights", size(n))
}

// size writes a number of bytes the way people read it.
func size(n int64) string {
	switch f := float64(n); {
	case n >= 1e9:
		return fmt.Sprintf("%.2f GB", f/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f MB", f/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%.1f kB", f/1e3)
	}
	return fmt.Sprintf("%d bytes", n)
}
