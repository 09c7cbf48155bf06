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
	ids      []int32
	position []int32
	current  []int32
	mask     *mask
	stages   []stage // embeddings, then the chunks
	// head computes the logits after the call's last token; nil if the last
	// chunk does not return that token's state.
	head *stage
}

// stage is the call of one part.
type stage struct {
	name     string // of the part
	model    runner.Model
	function string
	in, out  runner.Values
	want     map[string]*runner.Tensor // of out, those that later parts read
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
// chunks. states has one state per chunk. If logits is not nil, the last
// chunk's output goes on to the LM head, which writes there.
func (m *Model) newStep(function string, rows int, states []runner.State, logits []float32) (*step, error) {
	p := m.pkg
	s := &step{rows: rows, ids: make([]int32, rows), position: make([]int32, rows), current: make([]int32, 1), mask: newMask(rows, p.ContextLength)}

	embed := p.Embeddings.Model.Function(p.EmbeddingsFunction)
	funcs := []*coreml.Function{embed}
	for _, c := range p.Chunks {
		funcs = append(funcs, c.Model.Function(function))
	}
	made := map[string]*buffer{} // latest output of each name
	var hidden *buffer
	for i, f := range funcs {
		st := stage{in: runner.Values{}, out: runner.Values{}, want: map[string]*runner.Tensor{}, function: f.Name}
		if i == 0 {
			st.name, st.model = p.Embeddings.Name, m.embeddings
		} else {
			st.name, st.model, st.state = p.Chunks[i-1].Name, m.chunks[i-1], states[i-1]
		}
		for _, in := range f.Inputs {
			switch in.Name {
			case anemll.InputIDs:
				st.in[in.Name] = runner.Ints(s.ids, 1, rows)
			case anemll.HiddenStates:
				st.in[in.Name] = hidden.tensor(in.DType)
			case anemll.PositionIDs:
				st.in[in.Name] = runner.Ints(s.position, rows)
			case anemll.CurrentPos:
				st.in[in.Name] = runner.Ints(s.current, 1)
			case anemll.CausalMask:
				st.in[in.Name] = runner.Floats(in.DType, s.mask.data, 1, 1, rows, p.ContextLength)
			default:
				if b := made[in.Name]; b != nil {
					st.in[in.Name] = b.tensor(in.DType)
				} else if !in.Optional {
					return nil, fmt.Errorf("%s: input %s is not known and no earlier part gives it", st.name, in.Name)
				}
			}
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
			case len(shape) == 0 && logits != nil:
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
			if consumer != nil || isChain && logits != nil {
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
		if st.hidden == nil && (i < len(funcs)-1 || logits != nil) {
			return nil, fmt.Errorf("%s: output %s is %v, wanted a floating-point type", st.name, chain.Name, chain.DType)
		}
		s.stages = append(s.stages, st)
	}
	if logits != nil {
		var err error
		if s.head, err = m.newHead(s, logits); err != nil {
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

// newHead wires the LM head to the output of a step's last chunk; the parts
// of the logits lie side by side in logits.
func (m *Model) newHead(s *step, logits []float32) (*stage, error) {
	p := m.pkg
	f := p.Head.Model.Function(p.HeadFunction)
	last := s.stages[len(s.stages)-1]
	if last.rows != 1 {
		return nil, fmt.Errorf("%s gives %d tokens, the LM head takes 1", last.name, last.rows)
	}
	h := &stage{name: p.Head.Name, model: m.head, function: f.Name, in: runner.Values{}, out: runner.Values{}, want: map[string]*runner.Tensor{}}
	h.in[anemll.HiddenStates] = runner.Floats(f.Inputs[0].DType, last.hidden.Float, f.Inputs[0].Shape...)
	at := 0
	for i, name := range p.Logits {
		w := p.LogitsWidths[i]
		d := mil.Float16
		for _, o := range f.Outputs {
			if o.Name == name {
				d = o.DType
			}
		}
		t := runner.Floats(d, logits[at:at+w:at+w], 1, 1, w)
		h.out[name], h.want[name] = t, t
		at += w
	}
	return h, nil
}
