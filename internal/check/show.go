package check

import (
	"context"
	"fmt"
	"slices"

	"anemone/coreml"
	"anemone/internal/anemll"
	"anemone/internal/runner"
	"anemone/internal/session"
	"anemone/mil"
)

// shown is a package whose decoder functions also give the residual stream
// behind every layer, as further outputs. Everything else is that of the
// package that it was made of; the weights are shared.
type shown struct {
	pkg *anemll.Package
	// points are the places that the further outputs show, in order.
	points []point
	// told has, for each chunk, the reason why it could not be looked into, ""
	// if it could.
	told []string
	// notes says which functions do not show what others do.
	notes []string
	// sink gets what the outputs give, during a call.
	sink func(point int, x []float32)

	taps   map[*coreml.Model]map[string][]tap
	copies map[*anemll.Part]*coreml.Model // of parts of the package it was made of
}

// point is a place on the residual stream.
type point struct {
	part  string // that it is in, or behind
	layer int    // that it is behind; -1: in front of the first
	norm  bool   // behind the final norm, too
}

// tap is an output that was added.
type tap struct {
	output string
	point  int
}

// show makes such a package. first and last are the layers of each chunk, width
// that of the stream. Of all chunks but the last, what their last layer gives
// is their output anyway; a monolithic model also shows the embeddings.
func show(p *anemll.Package, first, last []int, width int) *shown {
	s := &shown{told: make([]string, len(p.Chunks)), taps: map[*coreml.Model]map[string][]tap{}, copies: map[*anemll.Part]*coreml.Model{}}
	q := *p
	s.pkg = &q
	q.Chunks = slices.Clone(p.Chunks)
	q.Beside = slices.Clone(p.Beside)
	for i := range q.Beside {
		q.Beside[i] = slices.Clone(p.Beside[i])
	}
	for i := range p.Chunks {
		if err := s.chunk(p, i, first[i], last[i], width); err != nil {
			s.told[i] = err.Error()
		}
	}
	return s
}

// chunk adds the outputs of one chunk's functions.
func (s *shown) chunk(p *anemll.Package, chunk, first, last, width int) error {
	layers, isLast := last-first+1, chunk == len(p.Chunks)-1
	wanted, perLayer := 0, 0 // points of this chunk
	var names []string
	base := len(s.points)
	for _, name := range p.DecoderFunctions() {
		part, d := p.Decoder(chunk, name)
		if part == nil {
			continue
		}
		var f *mil.Function
		if p := part.Model.Program; p != nil {
			f = p.Function(name)
		}
		values, n, err := residuals(f, d, layers, perLayer, isLast, p.Monolithic(), width)
		switch {
		case name == p.InferFunction:
			if err != nil {
				return err
			}
			if wanted, perLayer = len(values), n; wanted == 0 {
				return nil // its output shows its only layer
			}
			for k := range wanted {
				layer := first + k
				if p.Monolithic() {
					layer--
				}
				s.points = append(s.points, point{part: p.Chunks[chunk].Name, layer: layer})
				names = append(names, fmt.Sprintf("anemone_stream_%d", layer+1))
			}
		case err != nil || len(values) == 0:
			if err != nil {
				s.notes = append(s.notes, fmt.Sprintf("%s: the layers inside of %s are not compared: %v", part.Name, name, err))
			}
			continue
		}
		m := s.copyOf(p, part)
		g, desc := addOutputs(f, d, values, names)
		m.Program.Functions[slices.Index(m.Program.Functions, f)] = g
		for i := range m.Functions {
			if m.Functions[i].Name == name {
				m.Functions[i] = desc
			}
		}
		for k := range values {
			s.taps[m][name] = append(s.taps[m][name], tap{names[k], base + k})
		}
	}
	return nil
}

// residuals returns the values of a function to be shown: the stream behind
// each layer, but for the last layer of a chunk that gives it anyway. perLayer
// is the number of additions per layer, 0 if it is to be found.
func residuals(f *mil.Function, d *coreml.Function, layers, perLayer int, isLast, monolithic bool, width int) (values []*mil.Value, n int, err error) {
	if f == nil || f.Body == nil {
		return nil, 0, fmt.Errorf("the program has no function %s", d.Name)
	}
	from := starts(f, anemll.HiddenStates, anemll.InputIDs)
	if len(from) == 0 {
		return nil, 0, fmt.Errorf("function %s takes no %s", f.Name, anemll.HiddenStates)
	}
	s := findStream(f, from...)
	if perLayer == 0 {
		if perLayer, err = s.perLayer(layers); err != nil {
			return nil, 0, err
		}
	}
	// The end of the last layer may be left out where nothing reads it.
	if adds := len(s.after) - 1; adds > layers*perLayer || adds <= (layers-1)*perLayer || !isLast && adds != layers*perLayer {
		return nil, 0, fmt.Errorf("%d additions to the residual stream were found for %d layers of %d each", adds, layers, perLayer)
	}
	values = s.layers(layers, perLayer)
	if !isLast {
		out, err := anemll.HiddenOutput(d)
		if err != nil {
			return nil, 0, err
		}
		k := slices.IndexFunc(f.Body.Outputs, func(v *mil.Value) bool { return v.Name == out.Name })
		if k < 0 || !s.on[f.Body.Outputs[k]] {
			return nil, 0, fmt.Errorf("the residual stream of function %s does not end in its output %s", f.Name, out.Name)
		}
		values = values[:layers-1]
	}
	if monolithic {
		values = slices.Insert(values, 0, s.after[0])
	}
	for _, v := range values {
		if shape := v.Type.Shape; len(shape) == 0 || shape[len(shape)-1] != width {
			return nil, 0, fmt.Errorf("the residual stream of function %s is a %v, wanted %d wide", f.Name, v.Type, width)
		}
	}
	return values, perLayer, nil
}

// copyOf returns the model that stands in for a part's: a copy, made when it is
// first asked for, whose functions can be replaced.
func (s *shown) copyOf(p *anemll.Package, part *anemll.Part) *coreml.Model {
	if m := s.copies[part]; m != nil {
		return m
	}
	m, prog := *part.Model, *part.Model.Program
	prog.Functions = slices.Clone(prog.Functions)
	m.Functions = slices.Clone(m.Functions)
	m.Program, m.RawDescription = &prog, nil
	s.copies[part], s.taps[&m] = &m, map[string][]tap{}
	changed := *part
	changed.Model = &m
	put := func(to, of []*anemll.Part) {
		if i := slices.Index(of, part); i >= 0 {
			to[i] = &changed
		}
	}
	put(s.pkg.Chunks, p.Chunks)
	for i, set := range p.Beside {
		put(s.pkg.Beside[i], set)
	}
	return &m
}

// addOutputs returns a function that also gives values, under the given names,
// and its description.
func addOutputs(f *mil.Function, d *coreml.Function, values []*mil.Value, names []string) (*mil.Function, coreml.Function) {
	g, body, desc := *f, *f.Body, *d
	g.Body = &body
	body.Ops, body.Outputs, desc.Outputs = slices.Clip(body.Ops), slices.Clip(body.Outputs), slices.Clip(desc.Outputs)
	for i, v := range values {
		// A name of its own, which no input of a later part has.
		o := &mil.Value{Name: names[i], Type: v.Type}
		o.Op = &mil.Operation{Type: "identity", Name: names[i], Args: []mil.Arg{mil.A("x", v)}, Results: []*mil.Value{o}}
		body.Ops, body.Outputs = append(body.Ops, o.Op), append(body.Outputs, o)
		desc.Outputs = append(desc.Outputs, coreml.Feature{Name: o.Name, DType: o.Type.DType, Shape: slices.Clone(o.Type.Shape)})
	}
	return &g, desc
}

// move gives the points other numbers.
func (s *shown) move(to []int) {
	for _, functions := range s.taps {
		for _, taps := range functions {
			for i := range taps {
				taps[i].point = to[taps[i].point]
			}
		}
	}
}

// loader returns what loads the parts of the shown package by load.
func (s *shown) loader(load session.Loader) session.Loader {
	return func(m *coreml.Model) (runner.Model, error) {
		r, err := load(m)
		if taps := s.taps[m]; err == nil && taps != nil {
			return &spy{r, s, taps}, nil
		}
		return r, err
	}
}

// spy is a model whose added outputs go to the sink.
type spy struct {
	runner.Model
	s    *shown
	taps map[string][]tap
}

// Predict implements [runner.Model].
func (y *spy) Predict(ctx context.Context, function string, in, out runner.Values, st runner.State) error {
	if err := y.Model.Predict(ctx, function, in, out, st); err != nil {
		return err
	}
	for _, t := range y.taps[function] {
		x := out[t.output]
		if x == nil || !x.DType.IsFloat() {
			return fmt.Errorf("function %s did not give the output %s that was added to it", function, t.output)
		}
		if y.s.sink != nil {
			y.s.sink(t.point, x.Float)
		}
	}
	return nil
}
