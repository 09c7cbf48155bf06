// Package gemmatest holds what the tests of Gemma's architectures share: what
// every package with a window of local attention has to do, whether its local
// cache is whole or shifts.
package gemmatest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"anemone/coreml"
	"anemone/internal/anemll"
	"anemone/internal/arch"
	"anemone/internal/arch/archtest"
	"anemone/internal/arch/dense"
	"anemone/internal/runner"
	"anemone/internal/session"
)

// Model is a checkpoint, and the batch of the packages that are made of it.
type Model struct {
	Architecture arch.Architecture
	Dir          string
	Window       int
	Batch        int
	Remainders   []int // tokens of further functions, the most first; may be nil
}

// Whole is the longest context with a whole local cache.
func (m Model) Whole() int { return m.Window + 2*m.Batch }

// Options returns those of a package.
func (m Model) Options(context, chunks int) anemll.Options {
	return anemll.Options{Context: context, Batch: m.Batch, Remainders: m.Remainders, Chunks: chunks, SplitHead: 3, Format: anemll.MLPackage}
}

// convert returns a package in the engine.
func (m Model) convert(t testing.TB, o anemll.Options) *session.Session {
	t.Helper()
	_, s := archtest.Convert(t, m.Architecture, m.Dir, o)
	return s
}

// tokens returns some of the vocabulary.
func (m Model) tokens(t testing.TB, n int, seed uint64) []int32 {
	t.Helper()
	return archtest.Tokens(t, m.Architecture, m.Dir, n, seed)
}

// TestPrefillIsInfer feeds prompts of every length up to four batches, and
// those around the window, through functions for a batch, for fewer tokens of
// all sizes or of one, and for a single token: logits have the same bits as
// those of the same tokens one by one, and so have those of the next token.
func (m Model) TestPrefillIsInfer(t *testing.T) {
	w, b := m.Window, m.Batch
	var lengths []int
	for n := 1; n <= 4*b; n++ {
		if !testing.Short() || n%b < 2 || n%b == b-1 {
			lengths = append(lengths, n)
		}
	}
	for _, n := range []int{w - 1, w, w + 1, 2 * w, 3 * w, 3*w + 1, 5*w - 17, 5*w - 1} {
		if n > 4*b {
			lengths = append(lengths, n)
		}
	}
	for _, c := range []struct {
		name    string
		context int
		full    bool
	}{{"whole", m.Whole(), false}, {"shifting", 4 * m.Whole(), false}, {"full local cache", 4 * m.Whole(), true}} {
		t.Run(c.name, func(t *testing.T) {
			ids := m.tokens(t, min(c.context, 5*w), 1)
			var want dense.Matrix
			for i, remainders := range [][]int{m.Remainders, nil, m.Remainders[min(1, len(m.Remainders)):]} {
				if i == 2 && len(m.Remainders) == 0 {
					continue
				}
				o := m.Options(c.context, 1+i)
				o.FullLocalCache, o.Remainders = c.full, remainders
				s := m.convert(t, o)
				if want.Data == nil {
					want, _ = archtest.Each(t, s, ids, session.InferOnly)
				}
				what := fmt.Sprintf("%d chunks, remainders %v", o.Chunks, remainders)
				archtest.TestPrompts(t, what, s, ids, want, lengths, append([]int{b}, remainders...)...)
			}
		})
	}
}

// TestPrefillInsideBlocks continues with batches that begin inside a block,
// and calls of fewer tokens that begin there and may end in the next, as later
// turns of a conversation do. Their keys stand elsewhere then, so that sums are
// taken in another order: in float32, a millionth of the logits.
func (m Model) TestPrefillInsideBlocks(t *testing.T) {
	s := m.convert(t, m.Options(4*m.Whole(), 2))
	ids := m.tokens(t, 4*m.Window-8, 2)
	want, _ := archtest.Each(t, s, ids, session.InferOnly)
	worst, step := 0.0, max(1, m.Batch/5)
	for first := 1; first < 2*m.Batch; first += step {
		for _, turn := range []int{len(ids), m.Batch - 1} {
			s.Reset()
			archtest.Each(t, s, ids[:first], session.InferOnly)
			for p := first; p < len(ids); p += turn {
				logits, at := archtest.Each(t, s, ids[p:min(p+turn, len(ids))], session.Contract)
				for _, i := range at {
					worst = max(worst, archtest.Difference(logits.Row(i), want.Row(p+i)))
				}
			}
		}
	}
	t.Logf("largest difference %g", worst)
	if !(worst <= 1e-4) {
		t.Errorf("batches inside blocks: logits differ by %g", worst)
	}
}

// TestRemainderWeights: functions for fewer tokens than a batch store nothing of
// their own.
func (m Model) TestRemainderWeights(t *testing.T) {
	archtest.TestRemainderWeights(t, m.Architecture, m.Dir, m.Options(4*m.Whole(), 2))
}

// TestContextsAgree compares packages that differ in their context, and so in
// the form of the local cache; see TestPrefillInsideBlocks for the bound.
func (m Model) TestContextsAgree(t *testing.T) {
	// The shortest context holds the tokens before the window has moved, the
	// others all of them: the window moves by a dozen blocks.
	ids := m.tokens(t, m.Whole()+12*m.Batch+m.Batch/2, 3)
	o := m.Options(2*len(ids), 1)
	o.FullLocalCache = true
	want, _ := archtest.Each(t, m.convert(t, o), ids, session.InferOnly)
	for _, context := range []int{m.Whole(), m.Whole() + m.Batch/2, len(ids), 4 * len(ids)} {
		n := min(context, len(ids))
		p, s := archtest.Convert(t, m.Architecture, m.Dir, m.Options(context, 1))
		if shifts := p.Meta.LocalCacheLength > 0; shifts != (context > m.Whole()) {
			t.Errorf("with context %d the local cache shifts: %t", context, shifts)
		}
		for _, mode := range []session.Mode{session.InferOnly, session.Contract} {
			s.Reset()
			got, at := archtest.Each(t, s, ids[:n], mode)
			for _, i := range at {
				if d := archtest.Difference(got.Row(i), want.Row(i)); !(d <= 1e-4) {
					t.Errorf("with context %d, mode %d, the logits after token %d differ by %g", context, mode, i, d)
				}
			}
		}
	}
}

// TestRestart begins again at position 0 with states that have been used: the
// logits are those of a fresh state.
func (m Model) TestRestart(t *testing.T) {
	ids := m.tokens(t, m.Whole()-4, 5)
	for _, context := range []int{m.Whole(), 4 * m.Whole()} {
		s := m.convert(t, m.Options(context, 2))
		for _, mode := range []session.Mode{session.Contract, session.InferOnly} {
			s.Reset()
			want, _ := archtest.Each(t, s, ids, mode)
			for _, used := range []int{1, m.Whole()/2 + 5, 3*m.Whole() + 8} {
				s.Reset()
				archtest.Each(t, s, m.tokens(t, min(used, context), 6), session.Contract)
				before := States(t, s)
				s.Reset()
				for name, x := range before {
					if err := s.States()[0].Write(name, x); err != nil {
						t.Fatal(err)
					}
				}
				if got, _ := archtest.Each(t, s, ids, mode); !archtest.Same(got.Data, want.Data) {
					t.Errorf("context %d, after %d tokens: logits from position 0 differ by %g", context, used, archtest.Difference(got.Data, want.Data))
				}
			}
		}
	}
}

// States returns copies of a session's states, by their names.
func States(t testing.TB, s *session.Session) map[string]*runner.Tensor {
	t.Helper()
	if n := len(s.States()); n != 1 {
		t.Fatalf("%d states, want 1 for all chunks", n)
	}
	states := map[string]*runner.Tensor{}
	for _, name := range s.States()[0].Names() {
		x, err := s.States()[0].Read(name)
		if err != nil {
			t.Fatal(err)
		}
		states[name] = x
	}
	if len(states) != 2 || states[arch.StateLocal] == nil || states[arch.StateGlobal] == nil {
		t.Fatalf("states %v", s.States()[0].Names())
	}
	return states
}

// TestBlocks looks into the cache: after every call, slot j of the shifting
// window holds position (e/batch + 1)*batch - length + j, with the keys and
// values that a whole cache has at that position, of the given shapes. Values
// of a few units differ by a rounding to fp16 at most.
func (m Model) TestBlocks(t *testing.T, slots, heads, dim int) {
	o := m.Options(4*m.Whole(), 3)
	shifting := m.convert(t, o)
	o.FullLocalCache = true
	full := m.convert(t, o)
	b, length := m.Batch, m.Whole()
	total := 4*m.Window + 2
	ids := m.tokens(t, total, 7)
	for _, split := range [][]int{{total}, {1, total}, {b + 4, b, b, 1, 3 * b, total}, {b - 1, 1, b, 3, b + 1, 4 * b, total}} {
		shifting.Reset()
		full.Reset()
		for at, i := 0, 0; at < len(ids); i++ {
			now := ids[at:min(at+split[i], total)]
			at += len(now)
			archtest.Each(t, shifting, now, session.Contract)
			archtest.Each(t, full, now, session.Contract)
			x, y := States(t, shifting)[arch.StateLocal], States(t, full)[arch.StateLocal]
			if !slices.Equal(x.Shape, []int{slots, heads, length, dim}) || !slices.Equal(y.Shape, []int{slots, heads, o.Context, dim}) {
				t.Fatalf("local caches of shapes %v and %v", x.Shape, y.Shape)
			}
			e := at - 1
			base := (e/b+1)*b - length
			for row := range slots * heads {
				for j := range length {
					p := base + j
					if p < 0 || p > e {
						continue
					}
					x, y := x.Float[(row*length+j)*dim:][:dim], y.Float[(row*o.Context+p)*dim:][:dim]
					if d := archtest.Difference(x, y); !(d <= 2e-3) {
						t.Fatalf("fed as %v: after position %d, row %d, slot %d: position %d differs by %g", split, e, row, j, p, d)
					}
				}
			}
		}
	}
}

// Features lists the inputs, outputs and states of a function, one a line, as
// the contract's tables do.
func Features(f coreml.Function) string {
	var b strings.Builder
	list := func(kind string, fs []coreml.Feature) {
		for _, x := range fs {
			fmt.Fprintf(&b, "%s %s %v %v", kind, x.Name, x.DType, x.Shape)
			if x.Shapes != nil {
				fmt.Fprintf(&b, " of %v", x.Shapes)
			}
			b.WriteString("\n")
		}
	}
	list("in", f.Inputs)
	list("out", f.Outputs)
	list("state", f.States)
	return b.String()
}

// TestUpdates counts the updates of the caches in the functions of layers
// [first, last), by the names of the states: one for each layer that stores
// keys and values, and one that shifts the local cache. Each is one of a
// slice, and no state is left unread.
func TestUpdates(t *testing.T, m arch.Model, o arch.Options, first, last int, want map[string]int) {
	t.Helper()
	functions, err := m.Chunk(o, first, last)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range functions {
		writes, reads := map[string]int{}, map[string]int{}
		for _, op := range f.Body.Ops {
			switch op.Type {
			case "write_state":
				writes[op.Value("input").Name]++
				if u := op.Value("data").Op; u == nil || u.Type != "slice_update" {
					t.Errorf("%s: a state is written by other than a slice update", f.Name)
				}
			case "read_state":
				reads[op.Value("input").Name]++
			}
		}
		if fmt.Sprint(writes) != fmt.Sprint(want) {
			t.Errorf("context %d, layers %d to %d, %s: updates %v, want %v", o.Context, first, last, f.Name, writes, want)
		}
		if reads[arch.StateLocal] == 0 || reads[arch.StateGlobal] == 0 {
			t.Errorf("context %d, layers %d to %d, %s: reads %v of the states, want some of each", o.Context, first, last, f.Name, reads)
		}
	}
}
