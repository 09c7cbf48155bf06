package check

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	"anemone/coreml"
	"anemone/internal/anemll"
	"anemone/internal/arch"
	"anemone/internal/arch/nn"
	"anemone/internal/checkpoint/safetensors"
	"anemone/internal/engine"
	"anemone/internal/testutil"
	"anemone/mil"
)

// layered holds a package to a checkpoint, layer by layer.
func layered(t testing.TB, p *anemll.Package, ck string, o Options) *Report {
	t.Helper()
	o.Layers, o.Load = true, loader
	prompt := golden(t, testutil.Data(t, "goldens", "tiny-qwen3.safetensors")).Tokens()[:24]
	for i := range prompt {
		prompt[i] %= int32(p.VocabSize)
	}
	return run(t, loadPackage(t, p, engine.Options{}), &Greedy{source(t, ck), prompt}, o)
}

// places writes where a report compares the stream: "-1 0 1 1n".
func places(r *Report) string {
	var s []string
	for _, l := range r.Layers {
		x := fmt.Sprint(l.Layer)
		if l.FinalNorm {
			x += "n"
		}
		s = append(s, x)
	}
	return strings.Join(s, " ")
}

// agrees checks that every place of a report agrees with the reference, at as many
// positions as the sequence has in infer, and as given in prefill.
func agrees(t *testing.T, name string, r *Report, prefill int, relative float64) {
	t.Helper()
	for _, l := range r.Layers {
		if h := l.Infer; h == nil || h.Positions != r.Tokens || h.NonFinite != 0 || h.Cosine.Min < 0.99999 || h.Relative.Max > relative {
			t.Errorf("%s: %s, layer %d (normed: %v), infer: %+v", name, l.Part, l.Layer, l.FinalNorm, h)
		} else if (h.Added != nil) != (l.Layer >= 0 && !l.FinalNorm) || h.Added != nil && h.Added.Max > 5*relative {
			t.Errorf("%s: %s, layer %d, added: %+v", name, l.Part, l.Layer, h.Added)
		}
		want := prefill
		if l.FinalNorm {
			want /= r.Batch
		}
		if h := l.Prefill; h == nil || h.Positions != want || h.NonFinite != 0 || h.Cosine.Min < 0.99999 || h.Relative.Max > relative {
			t.Errorf("%s: %s, layer %d (normed: %v), prefill: %+v", name, l.Part, l.Layer, l.FinalNorm, h)
		}
	}
	if i := r.Parting(); i != -1 || !r.Passed {
		t.Errorf("%s: parting at %d, passed %v", name, i, r.Passed)
	}
}

// Every layer of every architecture is compared, however many a chunk has, and
// what is found does not depend on the chunks.
func TestLayers(t *testing.T) {
	slow(t)
	t.Parallel()
	for _, c := range []struct {
		checkpoint string
		chunks     []int
		layers     int
		relative   float64
	}{
		{"tiny-qwen3", []int{1, 3, 4}, 4, 1e-3},
		{"tiny-gemma4", []int{1, 2}, 9, 3e-3},
		{"tiny-qwen35", []int{1, 3}, 8, 3e-3},
		{"tiny-qwen35-moe-fused", []int{1}, 4, 5e-3},
		// Its packages carry a sixteenth of the stream. Random weights with sharp
		// attention: roundings to fp16 grow more than in the others.
		{"../arch/gemma3/testdata/outer", []int{1, 2}, 4, 5e-3},
	} {
		t.Run(path.Base(c.checkpoint), func(t *testing.T) {
			ck := c.checkpoint
			if !strings.Contains(ck, "/") {
				ck = testutil.Data(t, "checkpoints", ck)
			}
			want := "-1"
			for l := range c.layers {
				want += fmt.Sprintf(" %d", l)
			}
			want += fmt.Sprintf(" %dn", c.layers-1)
			var first *Report
			for _, chunks := range c.chunks {
				name := fmt.Sprintf("%d chunks", chunks)
				p := open(t, convert(t, ck, anemll.Options{Context: 64, Batch: 16, Chunks: chunks}))
				r := layered(t, p, ck, Options{Tokens: 10})
				if len(r.Notes) != 0 || places(r) != want {
					t.Errorf("%s: notes %q, places %s, want %s", name, r.Notes, places(r), want)
				}
				agrees(t, name, r, 32, c.relative)
				if first == nil {
					first = r
				}
				for i, l := range r.Layers {
					if d := math.Abs(l.Infer.Relative.Mean - first.Layers[i].Infer.Relative.Mean); d > c.relative/5 {
						t.Errorf("%s: layer %d errs by %v, in %d chunks by %v", name, l.Layer, l.Infer.Relative, c.chunks[0], first.Layers[i].Infer.Relative)
					}
				}
			}
		})
	}
}

// The figures of a package are the same whether or not its layers are compared,
// and a text that is read gives what writing it gave.
func TestLayersChangeNothing(t *testing.T) {
	slow(t)
	t.Parallel()
	ck := tinyCheckpoint(t)
	p := open(t, convert(t, ck, lut(0)))
	m := loadPackage(t, p, engine.Options{})
	with := layered(t, p, ck, Options{})
	without := run(t, m, &Greedy{source(t, ck), with.Sequence[:24]}, Options{})
	text := run(t, m, &Text{source(t, ck), with.Sequence}, Options{Layers: true, Load: loader})
	for _, r := range []*Report{without, text} {
		if !reflect.DeepEqual(r.Infer, with.Infer) || !reflect.DeepEqual(r.Contract, with.Contract) || !slices.Equal(r.Sequence, with.Sequence) {
			t.Errorf("%s: %s, with layers %s", r.Target, line(r.Infer), line(with.Infer))
		}
	}
	if !reflect.DeepEqual(text.Layers, with.Layers) || len(without.Layers) != 0 {
		t.Errorf("reading gives\n%+v\nwriting\n%+v", text.Layers, with.Layers)
	}
	// Without a way to load it again, the parts are seen.
	parts := run(t, m, &Text{source(t, ck), with.Sequence}, Options{Layers: true})
	if got := places(parts); got != "-1 1 3n" || len(parts.Notes) != 2 || !strings.Contains(parts.Notes[0], "layers 0 to 1 are only compared together") {
		t.Errorf("parts: %s, notes %q", got, parts.Notes)
	}
	agrees(t, "parts", parts, 64, 1e-3)
	for _, l := range parts.Layers {
		for _, f := range with.Layers {
			if f.Layer == l.Layer && f.FinalNorm == l.FinalNorm && !reflect.DeepEqual(f.Infer.Relative, l.Infer.Relative) {
				t.Errorf("%s: %+v, with layers %+v", l.Part, l.Infer, f.Infer)
			}
		}
	}
}

// TestParting finds exactly the layer that is damaged, in packages of one
// chunk.
func TestParting(t *testing.T) {
	slow(t)
	t.Parallel()
	ck := tinyCheckpoint(t)
	tensors := []string{"self_attn.o_proj", "self_attn.q_proj", "mlp.down_proj", "mlp.gate_proj"}
	for layer := range 4 {
		o := lut(0)
		if layer == 2 { // coarse weights part a little everywhere
			o = lut(4)
		}
		o.Chunks = 1
		name := fmt.Sprintf("model.layers.%d.%s.weight", layer, tensors[layer])
		dir := damaged(t, func(all map[string]*safetensors.Named) { scramble(all[name].Data) }, nil)
		r := layered(t, assemble(t, dir, o), ck, Options{Tokens: 42})
		if i := r.Parting(); r.Passed || i != layer+1 || r.Layers[i].Layer != layer || r.Layers[i].Part != r.Layers[1].Part {
			t.Errorf("%s is damaged; passed %v, parting at %d of %s", name, r.Passed, i, places(r))
		}
		if layer > 0 && r.Layers[layer].Infer.Cosine.Min < 0.95 {
			t.Errorf("%s is damaged; the layer before has %+v", name, r.Layers[layer].Infer)
		}
	}
	// The norm behind the layers, and what comes in front of them.
	for name, want := range map[string]int{"model.norm.weight": 5, "model.embed_tokens.weight": 0} {
		dir := damaged(t, func(all map[string]*safetensors.Named) { scramble(all[name].Data) }, nil)
		r := layered(t, assemble(t, dir, anemll.Options{Context: 64, Batch: 16, Chunks: 1}), ck, Options{Tokens: 8})
		if i := r.Parting(); r.Passed || i != want {
			t.Errorf("%s is damaged; passed %v, parting at %d of %s", name, r.Passed, i, places(r))
		}
	}
}

func TestPartingRule(t *testing.T) {
	at := func(bits int, errs ...float64) *Report {
		r := &Report{Bits: bits}
		for _, e := range errs {
			l := LayerFigures{}
			switch {
			case math.IsInf(e, 1):
				l.Infer = &HiddenFigures{NonFinite: 1}
			case e >= 0:
				l.Infer = &HiddenFigures{Relative: Spread{Mean: e / 2}, Added: &Spread{Mean: e}}
			}
			r.Layers = append(r.Layers, l)
		}
		return r
	}
	for _, c := range []struct {
		r    *Report
		want int
	}{
		{at(16), -1},
		{at(16, 0, 1e-4, 2e-4, 5e-3), -1},
		{at(16, 0, 1e-3, 0.3, 0.6, 1.4), 2}, // and more later
		{at(16, 0, 1e-3, 0.04, 1.4), 3},     // half precision of a hard layer is no damage
		{at(16, 0, 0.9, 1.2, 1.4), 1},
		{at(16, 1.4, 1.4, 1.4), 0},
		{at(16, 0, 0.002, math.Inf(1), math.Inf(1)), 2},
		{at(16, 0, -1, 0.5), 2}, // what was not seen
		{at(4, 0, 0.17, 0.2, 0.31, 0.29, 0.4), -1},
		{at(4, 0, 0.17, 0.2, 1.1, 0.9), 3},
		{at(4, 0, 1.1, 0.9, 1.2), 1},
		{at(6, 0, 0.03, 0.05, 0.08, 0.09), -1},
		{at(6, 0, 0.03, 0.5, 0.6), 2},
	} {
		if got := c.r.Parting(); got != c.want {
			t.Errorf("%d bits: %d, want %d", c.r.Bits, got, c.want)
		}
		// If infer has nothing to say, prefill does.
		for i := range c.r.Layers {
			l := &c.r.Layers[i]
			l.Infer, l.Prefill = nil, l.Infer
		}
		if got := c.r.Parting(); got != c.want {
			t.Errorf("%d bits, prefill: %d, want %d", c.r.Bits, got, c.want)
		}
	}
	before := 0.0
	for bits := 16; bits > 0; bits-- {
		if e := expectedError(bits); e < before || e >= 1 {
			t.Errorf("%d bits: %v, more bits %v", bits, e, before)
		} else {
			before = e
		}
	}
}

// ANEMLL's own packages, layer by layer against their checkpoint.
func TestLayersOfPeers(t *testing.T) {
	slow(t)
	ck := testutil.Shared(t, "peers", "qwen3-checkpoint")
	for _, c := range []struct {
		name   string
		cosine float64
	}{{"qwen3-fp16-c2", 0.99999}, {"qwen3-lut6-argmax-c2", 0.98}, {"qwen3-lut4-lut6-c2", 0.8}} {
		p := open(t, testutil.Shared(t, "peers", c.name))
		r := layered(t, p, ck, Options{Tokens: 42})
		if places(r) != "-1 0 1 2 3 3n" || !r.Passed || r.Parting() != -1 {
			t.Errorf("%s: places %s, passed %v, parting at %d", c.name, places(r), r.Passed, r.Parting())
		}
		for i, l := range r.Layers {
			if l.Infer.Positions != 66 || l.Infer.Cosine.Min < c.cosine || (l.Prefill == nil) != l.FinalNorm || !l.FinalNorm && (l.Prefill.Positions != 64 || l.Prefill.Cosine.Min < c.cosine) {
				t.Errorf("%s: layer %d: infer %+v, prefill %+v", c.name, l.Layer, l.Infer, l.Prefill)
			}
			if want := p.Parts()[max(0, (i+1)/2)]; i < 5 && l.Part != want.Name {
				t.Errorf("%s: layer %d is said to be in %s, want %s", c.name, l.Layer, l.Part, want.Name)
			}
		}
	}
}

// inline repeats the operations of f in b, with its inputs given, and returns
// its outputs. Its constants are literals and weights.
func inline(b *mil.Builder, f *mil.Function, in map[string]*mil.Value) []*mil.Value {
	now := map[*mil.Value]*mil.Value{}
	for _, v := range f.Inputs {
		now[v] = in[v.Name]
	}
	for _, op := range f.Body.Ops {
		if op.Type == "const" {
			v := op.Results[0]
			if v.Weight != nil {
				now[v] = b.Weight(v.Name, v.Weight)
			} else {
				now[v] = b.Const(v.Literal)
			}
			continue
		}
		var args []mil.Arg
		for _, a := range op.Args {
			var values []*mil.Value
			for _, v := range a.Values {
				if w := now[v]; w != nil {
					v = w
				}
				values = append(values, v)
			}
			args = append(args, mil.A(a.Name, values...))
		}
		for i, r := range b.OpAll(op.Type, args...) {
			now[op.Results[i]] = r
		}
	}
	var out []*mil.Value
	for _, v := range f.Body.Outputs {
		out = append(out, now[v])
	}
	return out
}

// monolithic makes one model for everything of a package in one chunk.
func monolithic(t *testing.T, p *anemll.Package) *anemll.Package {
	t.Helper()
	m := &coreml.Model{SpecVersion: 9, DefaultFunction: "infer", Program: &mil.Program{}}
	for _, name := range []string{"infer", "prefill"} {
		f := p.Chunks[0].Model.Program.Function(name)
		b := mil.NewBuilder(name, mil.CoreML8)
		in := map[string]*mil.Value{}
		rows := f.Input(anemll.HiddenStates).Type.Shape[1]
		ids := b.Input(anemll.InputIDs, mil.TensorOf(mil.Int32, 1, rows))
		for _, v := range f.Inputs {
			if v.Name != anemll.HiddenStates {
				in[v.Name] = b.Input(v.Name, v.Type)
			}
		}
		in[anemll.HiddenStates] = inline(b, p.Embeddings.Model.Program.Functions[0], map[string]*mil.Value{anemll.InputIDs: ids})[0]
		x := inline(b, f, in)[0]
		head := p.Head.Model.Program.Functions[0]
		for i, y := range inline(b, head, map[string]*mil.Value{anemll.HiddenStates: x}) {
			b.Output(head.Body.Outputs[i].Name, y)
		}
		g, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		m.Program.Functions = append(m.Program.Functions, g)
		m.Functions = append(m.Functions, coreml.Describe(g))
	}
	meta := *p.Meta
	meta.ModelType = "monolithic"
	mono, err := anemll.Assemble(&meta, nil, []*coreml.Model{m}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return mono
}

// One model for everything is looked into as well, from its embeddings on.
func TestLayersOfMonolithic(t *testing.T) {
	ck := tinyCheckpoint(t)
	p := assemble(t, ck, anemll.Options{Context: 64, Batch: 16, Chunks: 1})
	mono := monolithic(t, p)
	r := layered(t, mono, ck, Options{Tokens: 10})
	if len(r.Notes) != 0 || places(r) != "-1 0 1 2 3" {
		t.Errorf("notes %q, places %s", r.Notes, places(r))
	}
	agrees(t, "monolithic", r, 32, 1e-3)
	parts := layered(t, p, ck, Options{Tokens: 10})
	for i, l := range r.Layers {
		if w := parts.Layers[i].Infer; math.Abs(l.Infer.Relative.Mean-w.Relative.Mean) > 1e-4 {
			t.Errorf("layer %d: %+v, in parts %+v", l.Layer, l.Infer, w)
		}
	}
	// Without a way in, there is nothing to see.
	_, err := Run(t.Context(), loadPackage(t, mono, engine.Options{}), &Greedy{source(t, ck), []int32{1}}, Options{Layers: true, Tokens: 1})
	if err == nil || !strings.Contains(err.Error(), "shows no hidden states between its parts, and inside: nothing was given to load its model with") {
		t.Errorf("%v", err)
	}
}

// replaced returns a package whose chunk has another function of a name.
func replaced(t *testing.T, p *anemll.Package, chunk int, f *mil.Function) *anemll.Package {
	t.Helper()
	var chunks []*coreml.Model
	for i, c := range p.Chunks {
		m := *c.Model
		prog := *m.Program
		prog.Functions = slices.Clone(prog.Functions)
		m.Program = &prog
		if i == chunk {
			k := slices.IndexFunc(prog.Functions, func(g *mil.Function) bool { return g.Name == f.Name })
			prog.Functions[k] = f
		}
		chunks = append(chunks, &m)
	}
	q, err := anemll.Assemble(p.Meta, p.Embeddings.Model, chunks, p.Head.Model)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// A chunk whose layers cannot be told apart is compared as a whole, the others
// layer by layer, and the report says why.
func TestLayersNotFound(t *testing.T) {
	slow(t)
	ck := tinyCheckpoint(t)
	p := assemble(t, ck, anemll.Options{Context: 64, Batch: 16, Chunks: 2})
	// more is a function with a further addition to the stream, of nothing.
	more := func(f *mil.Function) *mil.Function {
		b := mil.NewBuilder(f.Name, mil.CoreML8)
		in := map[string]*mil.Value{}
		for _, v := range f.Inputs {
			in[v.Name] = b.Input(v.Name, v.Type)
		}
		x := in[anemll.HiddenStates]
		in[anemll.HiddenStates] = nn.Add(b, x, b.Op("tanh", mil.A("x", nn.Scale(b, x, 0))))
		b.Output(anemll.OutputHiddenStates, inline(b, f, in)[0])
		g, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	function := func(chunk int, name string) *mil.Function { return p.Chunks[chunk].Model.Program.Function(name) }
	for _, c := range []struct {
		name, want, note string
		p                *anemll.Package
		inPrefill        string // layers that prefill shows
	}{
		{"infer", "-1 1 2 3 3n", "qwen_FFN_PF_chunk_01of02: its layers 0 to 1 are only compared together: 5 additions to the residual stream were found for 2 layers",
			replaced(t, p, 0, more(function(0, "infer"))), "-1 1 2 3 3"},
		{"prefill", "-1 0 1 2 3 3n", "qwen_FFN_PF_chunk_02of02: the layers inside of prefill are not compared: 5 additions to the residual stream were found for 2 layers of 2 each",
			replaced(t, p, 1, more(function(1, "prefill"))), "-1 0 1 3"},
	} {
		r := layered(t, c.p, ck, Options{Tokens: 10})
		if places(r) != c.want || len(r.Notes) != 1 || r.Notes[0] != c.note || !r.Passed {
			t.Errorf("%s: places %s, notes %q, passed %v", c.name, places(r), r.Notes, r.Passed)
		}
		var seen []string
		for _, l := range r.Layers {
			if l.Infer.Cosine.Min < 0.99999 || l.Prefill != nil && l.Prefill.Cosine.Min < 0.99999 {
				t.Errorf("%s: layer %d: %+v, prefill %+v", c.name, l.Layer, l.Infer, l.Prefill)
			}
			if l.Prefill != nil {
				seen = append(seen, fmt.Sprint(l.Layer))
			}
		}
		if got := strings.Join(seen, " "); got != c.inPrefill {
			t.Errorf("%s: prefill shows %s, want %s", c.name, got, c.inPrefill)
		}
	}
}

// counter is a reference that writes down how it is called.
type counter struct {
	arch.Reference
	pos  int
	log  []string
	fail int // the call that fails
}

func (c *counter) Pos() int { return c.pos }

func (c *counter) Truncate(n int) error {
	c.log, c.pos = append(c.log, fmt.Sprintf("to %d", n)), n
	return nil
}

var errCounter = errors.New("enough")

func (c *counter) Forward(_ context.Context, tokens []int32, want func(int) bool, visit func(int, []float32) error) error {
	c.log = append(c.log, fmt.Sprint(tokens))
	if c.fail--; c.fail == 0 {
		return errCounter
	}
	for i := range tokens {
		if want == nil || want(i) {
			if err := visit(i, []float32{float32(tokens[i])}); err != nil {
				return err
			}
		}
	}
	c.pos += len(tokens)
	return nil
}

func TestBlocks(t *testing.T) {
	tokens := []int32{10, 11, 12, 13, 14, 15, 16}
	seen := ""
	visit := func(i int, logits []float32) error {
		if float32(tokens[i]) != logits[0] {
			t.Errorf("token %d has the logits of %v", i, logits[0])
		}
		seen += fmt.Sprint(i)
		return nil
	}
	c := &counter{pos: 5}
	if err := (blocks{c, 3}).Forward(t.Context(), tokens, func(i int) bool { return i%2 == 0 }, visit); err != nil || seen != "0246" || c.pos != 12 {
		t.Errorf("%v, seen %s, at %d", err, seen, c.pos)
	}
	if got := strings.Join(c.log, " "); got != "[10 11 12] [13 14 15] [16]" {
		t.Errorf("calls %s", got)
	}
	c, seen = &counter{pos: 5, fail: 2}, ""
	if err := (blocks{c, 3}).Forward(t.Context(), tokens, nil, visit); !errors.Is(err, errCounter) || c.pos != 5 || seen != "012" {
		t.Errorf("%v, seen %s, at %d: want an error and nothing appended", err, seen, c.pos)
	}
	// Memory is bounded by the block.
	for _, x := range []struct{ width, points, want int }{{128, 6, 256}, {1024, 30, 256}, {5120, 66, 49}, {1 << 20, 100, 16}} {
		l := &layerWatch{width: x.width, points: make([]point, x.points)}
		if got := l.block(); got != x.want {
			t.Errorf("%d places %d wide: %d tokens, want %d", x.points, x.width, got, x.want)
		}
	}
}

func TestAddedError(t *testing.T) {
	a, b := []float32{1, 2}, []float32{4, 6} // 3, 4 is added: of norm 5
	for _, c := range []struct {
		before, after []float32
		want          float64
	}{
		{a, b, 0},
		{[]float32{7, 7}, []float32{10, 11}, 0}, // whatever there was before
		{a, a, 1},
		{a, []float32{4, 7}, 0.2},
	} {
		if got := addedError(b, c.after, a, c.before); !near(got, c.want, 1e-12) {
			t.Errorf("%v to %v: %v, want %v", c.before, c.after, got, c.want)
		}
	}
	if got := addedError(a, a, a, a); got != 0 {
		t.Errorf("nothing added: %v", got)
	}
	if got := addedError(a, b, a, a); got != 1 {
		t.Errorf("something added to nothing: %v", got)
	}
}

func TestCheckpointsOfOtherShapes(t *testing.T) {
	ck := tinyCheckpoint(t)
	m := loadPackage(t, assemble(t, ck, anemll.Options{Context: 64, Batch: 16, Chunks: 1}), engine.Options{})
	src := func() *Source { return source(t, ck) }
	for _, c := range []struct {
		name, want string
		change     func(*Source)
	}{
		{"width", "the checkpoint tiny-qwen3 is 96 wide, the package 128: it was made of another one", func(s *Source) { s.Hidden = 96 }},
		{"layers", "the checkpoint tiny-qwen3 has 5 layers, the package says that it has 4 (num_layers in meta.yaml): it was made of another one", func(s *Source) { s.Layers = 5 }},
		{"vocabulary", "the checkpoint tiny-qwen3 has 1000 tokens in its vocabulary, the package has logits for 1024: it was made of another one", func(s *Source) { s.Ref = vocabulary{s.Ref, 1000} }},
	} {
		for _, target := range []func(*Source) Target{
			func(s *Source) Target { return &Greedy{s, []int32{1, 2}} },
			func(s *Source) Target { return &Text{s, []int32{1, 2}} },
		} {
			s := src()
			c.change(s)
			if _, err := Run(t.Context(), m, target(s), Options{}); err == nil || err.Error() != c.want {
				t.Errorf("%s: %v, want %s", c.name, err, c.want)
			}
		}
	}
}

type vocabulary struct {
	arch.Reference
	n int
}

func (v vocabulary) VocabSize() int { return v.n }

// Of another checkpoint of the same shape, a package does not pass, and the
// report says what that looks like.
func TestOtherCheckpoint(t *testing.T) {
	slow(t)
	other := damaged(t, func(all map[string]*safetensors.Named) {
		for _, a := range all {
			if len(a.Shape) == 2 {
				scramble(a.Data)
			}
		}
	}, nil)
	p := assemble(t, other, anemll.Options{Context: 64, Batch: 16, Chunks: 1})
	r := layered(t, p, tinyCheckpoint(t), Options{Tokens: 10})
	notes := strings.Join(r.Notes, "\n")
	if r.Passed || r.Parting() != 0 || !strings.Contains(notes, "hardly anything agrees: the package was probably made of another checkpoint than tiny-qwen3") {
		t.Errorf("passed %v, parting at %d, notes %q", r.Passed, r.Parting(), r.Notes)
	}
	// What is merely broken is not called another checkpoint.
	broken := damaged(t, func(all map[string]*safetensors.Named) { scramble(all["model.layers.2.mlp.up_proj.weight"].Data) }, nil)
	r = layered(t, assemble(t, broken, anemll.Options{Context: 64, Batch: 16, Chunks: 1}), tinyCheckpoint(t), Options{Tokens: 10})
	if r.Passed || len(r.Notes) != 0 {
		t.Errorf("broken: passed %v, %s, notes %q", r.Passed, line(r.Infer), r.Notes)
	}
}
