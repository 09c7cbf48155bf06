package session

import (
	"context"
	"fmt"
	"math"
	"slices"

	"anemone/coreml"
	"anemone/internal/anemll"
	"anemone/internal/runner"
	"anemone/mil"
)

// step is everything that a call for a fixed number of tokens needs: the
// tensors are made once, an output of one part being the input of the next.
type step struct {
	rows     int
	rotates  bool // each call shifts a cache
	ids      []int32
	position []int32
	current  []int32
	mask     *mask
	update   *updateMask // nil if no part takes one
	stages   []stage     // embeddings, then the chunks
	// head computes the scores after the call's last token; nil if the last
	// chunk does not return that token's state, or gives the scores itself.
	head *stage
	// scores says that there are scores after the call's last token, once head
	// has run if there is one. They are in the session's scores already, unless
	// the model gives those of all tokens: then they have to be taken from all.
	scores bool
	all    []*runner.Tensor // [1, rows, width] each
}

// scores is where the LM head writes: logits, or the best token of each part
// of the vocabulary with its logit.
type scores struct {
	logits []float32
	index  []int32
	value  []float32
}

func newScores(l *anemll.Layout) *scores {
	if l.Argmax {
		return &scores{index: make([]int32, len(l.LogitsWidths)), value: make([]float32, len(l.LogitsWidths))}
	}
	return &scores{logits: make([]float32, l.VocabSize)}
}

// tensor returns the place of an output of one row of scores, nil if it is
// none.
func (s *scores) tensor(l *anemll.Layout, o *coreml.Feature) *runner.Tensor {
	if l.Argmax {
		switch o.Name {
		case anemll.ArgmaxIndex:
			return runner.Ints(s.index, len(s.index))
		case anemll.ArgmaxValue:
			return runner.Floats(o.DType, s.value, len(s.value))
		}
		return nil
	}
	at := 0
	for i, name := range l.Logits {
		w := l.LogitsWidths[i]
		if name == o.Name {
			return runner.Floats(o.DType, s.logits[at:at+w:at+w], 1, 1, w)
		}
		at += w
	}
	return nil
}

// takeLast copies the logits of a call's last token to scores.
func (s *step) takeLast(to *scores) {
	at := 0
	for _, t := range s.all {
		w := t.Len() / s.rows
		at += copy(to.logits[at:], t.Float[t.Len()-w:])
	}
}

// stage is the call of one part.
type stage struct {
	name     string // of the part
	model    runner.Model
	function string
	in, out  runner.Values
	want     map[string]*runner.Tensor // of out, those that are read
	decoder  bool                      // it is a chunk, whose states a call changes
	state    runner.State
	hidden   *runner.Tensor // of out; nil if nothing reads it
	rows     int            // of hidden
}

func (s *stage) run(ctx context.Context) error {
	if err := s.model.Predict(ctx, s.function, s.in, s.out, s.state); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	// A runner that put another tensor in the place of ours found ours too
	// small or too large; what reads it would read stale numbers.
	for name, t := range s.want {
		if got := s.out[name]; got != t {
			return fmt.Errorf("%s: function %s gave %s of shape %v, wanted %v", s.name, s.function, name, got.Shape, t.Shape)
		}
	}
	return nil
}

// mask holds rows of a causal mask: 0 where column <= row, -inf elsewhere.
// Row r stands for position at+r.
type mask struct {
	rows, width int
	at          int
	data        []float32
}

var negInf = float32(math.Inf(-1))

func newMask(rows, width int) *mask {
	m := &mask{rows: rows, width: width, at: -rows, data: make([]float32, rows*width)}
	for i := range m.data {
		m.data[i] = negInf
	}
	return m
}

// move makes row 0 stand for position p. It writes only what changes.
func (m *mask) move(p int) {
	for r := range m.rows {
		row := m.data[r*m.width : (r+1)*m.width]
		was := min(max(m.at+r+1, 0), m.width)
		is := min(max(p+r+1, 0), m.width)
		for i := was; i < is; i++ {
			row[i] = 0
		}
		for i := is; i < was; i++ {
			row[i] = negInf
		}
	}
	m.at = p
}

// updateMask holds a 1 where a token of a call belongs to a position, as
// [positions, rows]; the rest is 0.
type updateMask struct {
	rows, positions int
	at              int
	data            []float32
}

func newUpdateMask(rows, positions int) *updateMask {
	return &updateMask{rows: rows, positions: positions, at: -rows, data: make([]float32, rows*positions)}
}

// move makes the first token belong to position p. It writes only what
// changes.
func (m *updateMask) move(p int) {
	m.write(m.at, 0)
	m.write(p, 1)
	m.at = p
}

func (m *updateMask) write(p int, v float32) {
	for r := range m.rows {
		if q := p + r; q >= 0 && q < m.positions {
			m.data[q*m.rows+r] = v
		}
	}
}

// buffer is data that several tensors (of different declared types) share.
type buffer struct {
	shape []int
	f     []float32
}

func newBuffer(shape []int) (*buffer, error) {
	n, ok := mil.NumElements(shape)
	if !ok {
		return nil, fmt.Errorf("no tensor has the shape %v", shape)
	}
	return &buffer{slices.Clone(shape), make([]float32, n)}, nil
}

func (b *buffer) tensor(d mil.DType) *runner.Tensor { return runner.Floats(d, b.f, b.shape...) }

// newStep wires the parts for calls of rows tokens through a function of the
// chunks. states has one state per chunk. If to is not nil, there are to be
// scores after the call's last token: the last chunk's output goes on to the LM
// head, or the model gives them itself.
func (m *Model) newStep(function string, rows int, states []runner.State, to *scores) (*step, error) {
	p := m.pkg
	s := &step{
		rows: rows, ids: make([]int32, rows), position: make([]int32, rows), current: make([]int32, 1),
		mask: newMask(rows, p.MaskWidth), scores: to != nil, rotates: p.Window > 0 && (function == p.InferRotateFunction || function == p.PrefillRotateFunction),
	}
	var parts []*anemll.Part
	var funcs []*coreml.Function
	if p.Embeddings != nil {
		parts, funcs = append(parts, p.Embeddings), append(funcs, p.Embeddings.Model.Function(p.EmbeddingsFunction))
	}
	chunk0 := len(parts)
	for i := range p.Chunks {
		part, f := p.Decoder(i, function)
		if f == nil {
			return nil, fmt.Errorf("%s has no function %s", p.Chunks[i].Name, function)
		}
		parts, funcs = append(parts, part), append(funcs, f)
	}
	made := map[string]*buffer{} // latest output of each name
	var hidden *buffer
	for i, f := range funcs {
		st := stage{name: parts[i].Name, model: m.runners[parts[i]], function: f.Name, in: runner.Values{}, out: runner.Values{}, want: map[string]*runner.Tensor{}}
		if i >= chunk0 {
			st.state, st.decoder = states[i-chunk0], true
		}
		for _, in := range f.Inputs {
			switch {
			case in.Name == anemll.InputIDs:
				st.in[in.Name] = runner.Ints(s.ids, 1, rows)
			case in.Name == anemll.HiddenStates && hidden != nil:
				st.in[in.Name] = hidden.tensor(in.DType)
			case in.Name == anemll.PositionIDs:
				st.in[in.Name] = runner.Ints(s.position, rows)
			case in.Name == anemll.CurrentPos:
				st.in[in.Name] = runner.Ints(s.current, 1)
			case in.Name == anemll.CausalMask:
				st.in[in.Name] = runner.Floats(in.DType, s.mask.data, 1, 1, rows, p.MaskWidth)
			case in.Name == anemll.UpdateMask:
				if s.update == nil {
					s.update = newUpdateMask(rows, in.Shape[2])
				}
				st.in[in.Name] = runner.Floats(in.DType, s.update.data, 1, 1, s.update.positions, rows)
			default:
				if b := made[in.Name]; b != nil {
					st.in[in.Name] = b.tensor(in.DType)
				} else if !in.Optional {
					return nil, fmt.Errorf("%s: input %s is not known and no earlier part gives it", st.name, in.Name)
				}
			}
		}
		if p.Monolithic() {
			if to != nil {
				if err := s.bindScores(&p.Layout, &st, f, to); err != nil {
					return nil, err
				}
			}
			s.stages = append(s.stages, st)
			return s, nil
		}
		chain, err := anemll.HiddenOutput(f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", st.name, err)
		}
		for _, o := range f.Outputs {
			isChain := o.Name == chain.Name
			consumer := consumerOf(funcs[i+1:], o.Name, isChain)
			shape := o.Shape
			switch {
			case consumer != nil:
				shape = consumer.Shape
			case !isChain || !o.DType.IsFloat():
				continue // nobody reads it; the runner finds a place
			case len(shape) == 0 && to != nil:
				shape = []int{1, 1, p.HiddenSize}
			case len(shape) == 0:
				continue
			}
			if !o.DType.IsFloat() {
				return nil, fmt.Errorf("%s: output %s is %v, wanted a floating-point type", st.name, o.Name, o.DType)
			}
			b, err := newBuffer(shape)
			if err != nil {
				return nil, fmt.Errorf("%s: output %s: %w", st.name, o.Name, err)
			}
			t := b.tensor(o.DType)
			st.out[o.Name] = t
			if consumer != nil || isChain && to != nil {
				st.want[o.Name] = t
			}
			made[o.Name] = b
			if isChain {
				hidden, st.hidden = b, t
				if st.rows = 1; len(shape) == 3 {
					st.rows = shape[1]
				}
			}
		}
		if st.hidden == nil && (i < len(funcs)-1 || to != nil) {
			return nil, fmt.Errorf("%s: output %s is %v, wanted a floating-point type", st.name, chain.Name, chain.DType)
		}
		s.stages = append(s.stages, st)
	}
	if to != nil {
		var err error
		if s.head, err = m.newHead(s, to); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// consumerOf returns the input that reads an output: the next part's
// hidden_states for the output that carries the chain, or the first input of
// the same name.
func consumerOf(later []*coreml.Function, name string, chain bool) *coreml.Feature {
	if chain && len(later) > 0 {
		name, later = anemll.HiddenStates, later[:1]
	}
	for _, f := range later {
		for i := range f.Inputs {
			if f.Inputs[i].Name == name {
				return &f.Inputs[i]
			}
		}
	}
	return nil
}

// bindScores makes a stage write its outputs of scores to their place: one
// row directly, those of a whole batch to tensors of their own.
func (s *step) bindScores(l *anemll.Layout, st *stage, f *coreml.Function, to *scores) error {
	n := 0
	for i := range f.Outputs {
		o := &f.Outputs[i]
		t := to.tensor(l, o)
		if t == nil {
			continue
		}
		n++
		if !l.Argmax && len(o.Shape) == 3 && o.Shape[1] > 1 {
			b, err := newBuffer(o.Shape)
			if err != nil {
				return fmt.Errorf("%s: output %s: %w", st.name, o.Name, err)
			}
			t = b.tensor(o.DType)
		}
		st.out[o.Name], st.want[o.Name] = t, t
	}
	want := len(l.Logits)
	if l.Argmax {
		want = 2
	}
	if n != want {
		return fmt.Errorf("%s: function %s gives %d of %d outputs of scores", st.name, f.Name, n, want)
	}
	if !l.Argmax && s.rows > 1 && st.out[l.Logits[0]].Shape[1] == s.rows {
		for _, name := range l.Logits {
			s.all = append(s.all, st.out[name])
		}
	}
	return nil
}

// newHead wires the LM head to the output of a step's last chunk.
func (m *Model) newHead(s *step, to *scores) (*stage, error) {
	p := m.pkg
	f := p.Head.Model.Function(p.HeadFunction)
	last := s.stages[len(s.stages)-1]
	if last.rows != 1 {
		return nil, fmt.Errorf("%s gives %d tokens, the LM head takes 1", last.name, last.rows)
	}
	h := &stage{name: p.Head.Name, model: m.runners[p.Head], function: f.Name, in: runner.Values{}, out: runner.Values{}, want: map[string]*runner.Tensor{}}
	h.in[anemll.HiddenStates] = runner.Floats(f.Inputs[0].DType, last.hidden.Float, f.Inputs[0].Shape...)
	return h, s.bindScores(&p.Layout, h, f, to)
}
