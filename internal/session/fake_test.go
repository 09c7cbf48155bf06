package session

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"anemone/coreml"
	"anemone/internal/anemll"
	"anemone/internal/runner"
	"anemone/mil"
)

// The toy is a package whose arithmetic is small integers, so that results are
// exact and every token, position and mask entry matters. Chunk c keeps
// x[p], its input at position p, and gives
//
//	y[p] = sum over j <= p of (j+1) x[j]  mod 251
//
// with x = token+1 in the first chunk. Its models check the inputs that the
// contract fixes, and write down the calls.
type toy struct {
	t        *testing.T
	ctx, b   int
	meta     *anemll.Meta
	pkg      *anemll.Package
	parts    map[*coreml.Model]*toyModel
	log      []string // "P0" prefill at 0, "P2@4" prefill_2 at 4, "I4" infer at 4, "H" the head
	fail     func(call string) error
	strict   bool // every position once and in order, as for recurrent states
	closed   int
	perLayer bool
	saves    bool
	// failWrite makes the next writes of states fail.
	failWrite error
}

const (
	toyVocab  = 11 // in two outputs of 6 and 5
	toyHidden = 3
	toyMod    = 251
)

type toyOptions struct {
	ctx, batch      int
	lastToken       bool
	noPrefill       bool // not allowed by meta.yaml
	recurrent       bool
	chunkStates     bool
	perLayer        bool
	batchOutput     bool // prefill of the last chunk gives the whole batch
	unshapedOutputs bool
	saves           bool // the states can be read and written
	remainders      []int
}

func fp16(name string, shape ...int) coreml.Feature {
	return coreml.Feature{Name: name, DType: mil.Float16, Shape: shape}
}

func i32(name string, shape ...int) coreml.Feature {
	return coreml.Feature{Name: name, DType: mil.Int32, Shape: shape}
}

func newToy(t *testing.T, o toyOptions) *toy {
	t.Helper()
	y := &toy{t: t, ctx: o.ctx, b: o.batch, strict: o.recurrent, perLayer: o.perLayer, saves: o.saves, parts: map[*coreml.Model]*toyModel{}}
	y.meta = &anemll.Meta{ModelPrefix: "toy", PrefillDynamicSlice: !o.noPrefill, PrefillLastTokenOutput: o.lastToken, RecurrentState: o.recurrent}
	add := func(kind string, chunk int, m *coreml.Model) *coreml.Model {
		y.parts[m] = &toyModel{toy: y, kind: kind, chunk: chunk, m: m}
		return m
	}
	ids := i32(anemll.InputIDs, 1, 1)
	ids.Shapes = [][]int{{1, 1}, {1, o.batch}}
	for _, n := range o.remainders {
		ids.Shapes = append(ids.Shapes, []int{1, n})
	}
	outs := []coreml.Feature{{Name: anemll.HiddenStates, DType: mil.Float16}}
	if o.perLayer {
		outs = append(outs, coreml.Feature{Name: "per_layer_inputs", DType: mil.Float16})
	}
	emb := add("embeddings", 0, &coreml.Model{Functions: []coreml.Function{{Name: "main", Inputs: []coreml.Feature{ids}, Outputs: outs}}})
	var chunks []*coreml.Model
	for c := range 2 {
		name := "kv"
		if o.chunkStates {
			name = fmt.Sprintf("kv%d", c)
		}
		fn := func(function string, rows, out int) coreml.Function {
			f := coreml.Function{Name: function, States: []coreml.Feature{fp16(name, 2, o.ctx)},
				Outputs: []coreml.Feature{fp16(anemll.OutputHiddenStates, 1, out, toyHidden)},
				Inputs:  []coreml.Feature{fp16(anemll.HiddenStates, 1, rows, toyHidden), i32(anemll.PositionIDs, rows), fp16(anemll.CausalMask, 1, 1, rows, o.ctx), i32(anemll.CurrentPos, 1)}}
			if o.perLayer {
				f.Inputs = append(f.Inputs, fp16("per_layer_inputs", 1, rows, 5))
			}
			if o.unshapedOutputs {
				f.Outputs[0].Shape = nil
			}
			return f
		}
		out := func(rows int) int {
			if c == 1 && !o.batchOutput {
				return 1
			}
			return rows
		}
		m := &coreml.Model{Functions: []coreml.Function{fn("infer", 1, 1), fn("prefill", o.batch, out(o.batch))}, DefaultFunction: "infer"}
		for _, n := range o.remainders {
			m.Functions = append(m.Functions, fn(fmt.Sprintf("prefill_%d", n), n, out(n)))
		}
		chunks = append(chunks, add("chunk", c, m))
	}
	head := add("head", 0, &coreml.Model{Functions: []coreml.Function{{Name: "main", Inputs: []coreml.Feature{fp16(anemll.HiddenStates, 1, 1, toyHidden)},
		Outputs: []coreml.Feature{fp16("logits1", 1, 1, 6), fp16("logits2", 1, 1, 5)}}}})
	var err error
	if y.pkg, err = anemll.Assemble(y.meta, emb, chunks, head); err != nil {
		t.Fatal(err)
	}
	return y
}

// rotateHostile adds a cache of n rows and the functions that rotate it; none
// of it is run.
func (y *toy) rotateHostile(n int) {
	for _, p := range y.pkg.Chunks {
		for _, f := range p.Model.Functions {
			f.Name += "_rotate"
			p.Model.Functions = append(p.Model.Functions, f)
		}
		for i := range p.Model.Functions {
			f := &p.Model.Functions[i]
			f.States = append(f.States[:1:1], fp16("model_model_kv_cache_local", 2, 1, n, 4))
		}
	}
}

// monolithic returns the description of a model for everything.
func (y *toy) monolithic(argmax bool) *coreml.Model {
	m := &coreml.Model{DefaultFunction: "infer"}
	for _, rows := range []int{1, y.b} {
		f := coreml.Function{Name: "infer", States: []coreml.Feature{fp16("model_model_kv_cache_0", 2, 1, y.ctx, 4)},
			Inputs:  []coreml.Feature{i32(anemll.InputIDs, 1, rows), i32(anemll.PositionIDs, rows), fp16(anemll.CausalMask, 1, 1, rows, y.ctx), i32(anemll.CurrentPos, 1)},
			Outputs: []coreml.Feature{fp16("logits1", 1, rows, 6), fp16("logits2", 1, rows, 5)}}
		if rows > 1 {
			f.Name = "prefill"
		} else if argmax {
			f.Outputs = []coreml.Feature{i32(anemll.ArgmaxIndex, 2), fp16(anemll.ArgmaxValue, 2)}
			y.meta.LMHeadChunkSizes = []int{6, 5}
		}
		m.Functions = append(m.Functions, f)
	}
	return m
}

func (y *toy) load(m *coreml.Model) (runner.Model, error) { return y.parts[m], nil }

func (y *toy) model() *Model {
	y.t.Helper()
	m, err := Load(y.pkg, y.load)
	if err != nil {
		y.t.Fatal(err)
	}
	return m
}

func (y *toy) session() *Session {
	y.t.Helper()
	s, err := y.model().NewSession()
	if err != nil {
		y.t.Fatal(err)
	}
	return s
}

// calls returns the log and empties it.
func (y *toy) calls() []string {
	l := y.log
	y.log = nil
	return l
}

// toyLogits computes the logits after the last of tokens in another way than
// the models do.
func toyLogits(tokens []int32) []float32 {
	x := make([]int, len(tokens))
	for i, t := range tokens {
		x[i] = int(t) + 1
	}
	for range 2 {
		sum := 0
		for i := range x {
			sum = (sum + (i+1)*x[i]) % toyMod
			x[i] = sum
		}
	}
	out := make([]float32, toyVocab)
	for i := range out {
		out[i] = toyLogit(x[len(x)-1], i)
	}
	return out
}

func toyLogit(h, i int) float32 { return -float32((h*7+i*13)%101) / 8 }

type toyModel struct {
	*toy
	kind  string
	chunk int
	m     *coreml.Model
}

func (m *toyModel) Functions() []runner.Signature          { return nil }
func (m *toyModel) Function(name string) *runner.Signature { return nil }
func (m *toyModel) Close() error                           { m.closed++; return nil }
func (m *toyModel) Memory() int64                          { return 1000 }

type toyState struct {
	toy   *toy
	names []string
	x     [2][]float32
	next  [2]int
}

func (m *toyModel) NewState() (runner.State, error) {
	return &toyState{toy: m.toy, names: []string{m.m.Functions[0].States[0].Name}, x: [2][]float32{make([]float32, m.ctx), make([]float32, m.ctx)}}, nil
}
func (s *toyState) Names() []string { return s.names }
func (s *toyState) Reset()          { clear(s.x[0]); clear(s.x[1]); s.next = [2]int{} }

// Read gives what the state holds, the positions that it has seen included, as
// the state of the first name; there is nothing else.
func (s *toyState) Read(string) (*runner.Tensor, error) {
	if s.toy == nil || !s.toy.saves {
		return nil, errors.ErrUnsupported
	}
	all := slices.Concat(s.x[0], s.x[1], []float32{float32(s.next[0]), float32(s.next[1])})
	return runner.Floats(mil.Float16, all, len(all)), nil
}

func (s *toyState) Write(_ string, t *runner.Tensor) error {
	if err := s.toy.failWrite; err != nil {
		return err
	}
	n := len(s.x[0])
	copy(s.x[0], t.Float)
	copy(s.x[1], t.Float[n:])
	s.next = [2]int{int(t.Float[2*n]), int(t.Float[2*n+1])}
	return nil
}

func (m *toyModel) bad(format string, args ...any) error { return fmt.Errorf("toy: "+format, args...) }

func (m *toyModel) Predict(ctx context.Context, function string, in, out runner.Values, st runner.State) error {
	for name, t := range in {
		if err := t.Check(); err != nil {
			return m.bad("input %s: %v", name, err)
		}
	}
	switch m.kind {
	case "embeddings":
		ids := in[anemll.InputIDs].Int
		h := out[anemll.HiddenStates].Float
		if len(h) != len(ids)*toyHidden {
			return m.bad("room for %d hidden values for %d tokens", len(h), len(ids))
		}
		clear(h)
		for i, id := range ids {
			h[i*toyHidden] = float32(id + 1)
			if m.perLayer {
				out["per_layer_inputs"].Float[i*5] = float32(id + 1)
			}
		}
	case "head":
		if m.log = append(m.log, "H"); m.fail != nil {
			if err := m.fail("H"); err != nil {
				return err
			}
		}
		h := int(in[anemll.HiddenStates].Float[0])
		for i := range 6 {
			out["logits1"].Float[i] = toyLogit(h, i)
		}
		for i := range 5 {
			out["logits2"].Float[i] = toyLogit(h, 6+i)
		}
	case "chunk":
		pos := int(in[anemll.CurrentPos].Int[0])
		rows := 1
		letter := "I"
		if function == "prefill" {
			rows, letter = m.b, "P"
		} else if n, ok := strings.CutPrefix(function, "prefill_"); ok {
			rows, _ = strconv.Atoi(n)
			letter = "P" + n + "@"
		}
		call := fmt.Sprintf("%s%d", letter, pos)
		if m.chunk == 0 {
			m.log = append(m.log, call)
		}
		if m.fail != nil {
			if err := m.fail(fmt.Sprintf("%s/%d", call, m.chunk)); err != nil {
				return err
			}
		}
		s := st.(*toyState)
		if m.strict && s.next[m.chunk] != pos {
			return m.bad("position %d, but the state has seen %d", pos, s.next[m.chunk])
		}
		s.next[m.chunk] = pos + rows
		h, mask := in[anemll.HiddenStates].Float, in[anemll.CausalMask].Float
		if len(mask) != rows*m.ctx || len(h) != rows*toyHidden || pos+rows > m.ctx {
			return m.bad("%d mask and %d hidden values for %d rows at %d", len(mask), len(h), rows, pos)
		}
		for r := range rows {
			if got := in[anemll.PositionIDs].Int[r]; int(got) != pos+r {
				return m.bad("position_ids[%d] = %d, want %d", r, got, pos+r)
			}
			for c := range m.ctx {
				want := float32(0)
				if c > pos+r {
					want = float32(math.Inf(-1))
				}
				if got := mask[r*m.ctx+c]; got != want {
					return m.bad("mask[%d][%d] = %v at position %d", r, c, got, pos)
				}
			}
			if m.perLayer && m.chunk == 0 && in["per_layer_inputs"].Float[r*5] != h[r*toyHidden] {
				return m.bad("per_layer_inputs of row %d are another token's", r)
			}
			s.x[m.chunk][pos+r] = h[r*toyHidden]
		}
		o := out[anemll.OutputHiddenStates]
		if o == nil {
			return nil
		}
		y := o.Float
		clear(y)
		for r := range rows {
			sum := 0
			for j := 0; j <= pos+r; j++ {
				sum = (sum + (j+1)*int(s.x[m.chunk][j])) % toyMod
			}
			switch {
			case len(y) == rows*toyHidden:
				y[r*toyHidden] = float32(sum)
			case m.meta.PrefillLastTokenOutput && r == rows-1, !m.meta.PrefillLastTokenOutput && r == 0:
				y[0] = float32(sum)
			}
		}
	}
	return nil
}
