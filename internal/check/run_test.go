package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"anemone/coreml"
	"anemone/internal/anemll"
	"anemone/internal/checkpoint/safetensors"
	"anemone/internal/compress"
	"anemone/internal/engine"
	"anemone/internal/runner"
	"anemone/internal/session"
	"anemone/internal/testutil"
	"anemone/mil"
)

func lut(bits int) anemll.Options {
	o := anemll.Options{Context: 256, Batch: 64, Chunks: 2}
	if bits > 0 {
		o.FFN, o.Head = compress.Encoding{Bits: bits, Group: 8}, compress.Encoding{Bits: 6, Group: 8}
	}
	return o
}

// line writes figures as the oracle does.
func line(f *Figures) string {
	return fmt.Sprintf("positions %d  cosine min %.6f mean %.6f  max|d| %.4f  KL mean %.6f  top1 %.4f", f.Positions, f.Cosine.Min, f.Cosine.Mean, f.MaxDiff, f.KL.Mean, f.Top1)
}

// sameLine compares two such lines to four digits.
func sameLine(t *testing.T, what, got, want string) {
	t.Helper()
	read := func(s string) (n int, v [5]float64) {
		if _, err := fmt.Sscanf(s, "positions %d  cosine min %f mean %f  max|d| %f  KL mean %f  top1 %f", &n, &v[0], &v[1], &v[2], &v[3], &v[4]); err != nil {
			t.Fatalf("%s: %q: %v", what, s, err)
		}
		return n, v
	}
	n, g := read(got)
	m, w := read(want)
	for i := range g {
		if n != m || !near(g[i], w[i], 1.5e-4) {
			t.Errorf("%s\n got %s\nwant %s", what, got, want)
			return
		}
	}
}

// TestOracleFigures holds the figures to those of an independent program,
// recorded with
//
//	anemone convert testdata/checkpoints/tiny-qwen3 -o OUT --context 256 --batch 64 --chunks 2 --lut-ffn none --lut-lm-head none (6,8 6,8; 4,8 6,8)
//	python ../shared/oracle/run_package.py OUT testdata/goldens/tiny-qwen3.safetensors [--infer-only]
func TestOracleFigures(t *testing.T) {
	slow(t)
	t.Parallel()
	g := golden(t, testutil.Data(t, "goldens", "tiny-qwen3.safetensors"))
	for _, c := range []struct {
		bits            int
		contract, infer string
	}{
		{0, "positions 34  cosine min 1.000000 mean 1.000000  max|d| 0.0017  KL mean 0.000000  top1 1.0000",
			"positions 160  cosine min 1.000000 mean 1.000000  max|d| 0.0031  KL mean 0.000000  top1 1.0000"},
		{6, "positions 34  cosine min 0.997697 mean 0.999775  max|d| 0.3512  KL mean 0.000216  top1 0.9118",
			"positions 160  cosine min 0.996593 mean 0.999757  max|d| 0.3512  KL mean 0.000165  top1 0.9375"},
		{4, "positions 34  cosine min 0.920994 mean 0.995914  max|d| 0.7795  KL mean 0.000646  top1 0.8824",
			"positions 160  cosine min 0.906958 mean 0.996996  max|d| 0.7795  KL mean 0.000417  top1 0.9187"},
	} {
		r := run(t, load(t, convert(t, tinyCheckpoint(t), lut(c.bits)), engine.Options{}), g, Options{})
		sameLine(t, fmt.Sprintf("%d bits, contract", c.bits), line(r.Contract), c.contract)
		sameLine(t, fmt.Sprintf("%d bits, infer only", c.bits), line(r.Infer), c.infer)
		if !r.Passed || r.Bits != max(c.bits, 16*((16-c.bits)/16)) {
			t.Errorf("%d bits: passed %v, %d bits found, %q", c.bits, r.Passed, r.Bits, r.Failures)
		}
		if r.Prefill.Cosine.Min < 0.999999 || r.Prefill.Positions != 34 {
			t.Errorf("%d bits: prefill against infer: %s", c.bits, line(r.Prefill))
		}
	}
}

// oracle runs the independent program on a package and returns the logits and
// states that it computes, and the line that it prints.
func oracle(t *testing.T, dir, golden string, args ...string) (logits *Golden, line string) {
	t.Helper()
	python := os.Getenv("ANEMONE_PYTHON")
	if python == "" {
		t.Skip("needs ANEMONE_PYTHON, a Python with coremltools, numpy, safetensors and pyyaml")
	}
	script := testutil.Shared(t, "oracle", "run_package.py")
	save := filepath.Join(t.TempDir(), "oracle.safetensors")
	cmd := exec.Command(python, append([]string{script, dir, golden, "--min-cosine", "-1", "--save", save}, args...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, stderr.String())
	}
	g, err := OpenGolden(save)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g, strings.TrimSpace(string(out))
}

// TestOracleLogits compares every logit of the engine with the oracle's, in
// both sequences, and the states.
func TestOracleLogits(t *testing.T) {
	slow(t)
	path := testutil.Data(t, "goldens", "tiny-qwen3.safetensors")
	g := golden(t, path)
	for _, bits := range []int{0, 4} {
		dir := convert(t, tinyCheckpoint(t), lut(bits))
		m := load(t, dir, engine.Options{})
		check := run(t, m, g, Options{})
		for _, c := range []struct {
			args []string
			f    func(*Report) *Figures
		}{
			{nil, func(r *Report) *Figures { return r.Contract }},
			{[]string{"--infer-only"}, func(r *Report) *Figures { return r.Infer }},
		} {
			logits, printed := oracle(t, dir, path, c.args...)
			sameLine(t, fmt.Sprintf("%d bits %v", bits, c.args), line(c.f(check)), printed)
			r := run(t, m, logits, Options{})
			f := c.f(r)
			t.Logf("%d bits %v against the oracle: cosine min %.9f, max|d| %.2e", bits, c.args, f.Cosine.Min, f.MaxDiff)
			if f.MaxDiff > 2e-3 || f.Cosine.Min < 0.999999 {
				t.Errorf("%d bits %v: %s, want every logit within 2e-3", bits, c.args, line(f))
			}
			// States are saved as fp16.
			if len(r.States) != 1 || r.States[0].Name != "model_model_kv_cache_0" || r.States[0].Relative > 1e-3 || r.States[0].Cosine < 0.999999 {
				t.Errorf("states %+v", r.States)
			}
		}
	}
}

// TestPeers holds packages that ANEMLL's own converter wrote to their
// goldens.
func TestPeers(t *testing.T) {
	slow(t)
	t.Parallel()
	for _, name := range []string{"qwen3-fp16-c2", "qwen3-lut4-lut6-c2"} {
		g := golden(t, testutil.Shared(t, "peers", name+".golden.safetensors"))
		m := load(t, testutil.Shared(t, "peers", name), engine.Options{})
		r := run(t, m, g, Options{})
		if !r.Passed {
			t.Errorf("%s: %q", name, r.Failures)
		}
		for what, f := range map[string]*Figures{"contract": r.Contract, "infer": r.Infer} {
			if f.Positions != 22 || f.MaxDiff > 2e-3 || f.Cosine.Min < 0.999999 {
				t.Errorf("%s, %s: %s", name, what, line(f))
			}
		}
		if len(r.States) != 1 || r.States[0].MaxDiff > 4e-3 || r.States[0].Cosine < 0.999999 {
			t.Errorf("%s: states %+v", name, r.States)
		}
		if !strings.Contains(strings.Join(r.Notes, "\n"), "prefill gives no logits") {
			t.Errorf("%s: notes %q", name, r.Notes)
		}
		// Two whole batches: the last one must not vanish.
		r = run(t, m, Tokens(g.Tokens()[:128]), Options{})
		if r.Prefill == nil || r.Prefill.Positions != 64 || r.Prefill.Cosine.Min < 0.999999 || r.Infer != nil || !r.Passed {
			t.Errorf("%s, two batches: %+v", name, r.Prefill)
		}
	}
	// Their checkpoint, as transformers computes it.
	g := golden(t, testutil.Shared(t, "peers", "qwen3-checkpoint.golden.safetensors"))
	m := load(t, testutil.Shared(t, "peers", "qwen3-fp16-c2"), engine.Options{})
	if r := run(t, m, g, Options{}); !r.Passed || r.Infer.Positions != 150 {
		t.Errorf("against the checkpoint: %s, %q", line(r.Infer), r.Failures)
	}
}

// TestReference lets the reference write, and compares with what transformers
// wrote on the same prompt.
func TestReference(t *testing.T) {
	t.Parallel()
	g := golden(t, testutil.Data(t, "goldens", "tiny-qwen3.safetensors"))
	m := load(t, convert(t, tinyCheckpoint(t), lut(4)), engine.Options{})
	want := run(t, m, g, Options{})
	prompt := g.Tokens()[:24]

	shown := 0
	greedy := run(t, m, &Greedy{source(t, tinyCheckpoint(t)), prompt}, Options{Tokens: 136, Progress: func(p Progress) {
		shown++
		if p.Done < 0 || p.Done > p.Total || p.Total != 160 || p.Layer < 0 || p.Layer > p.Layers {
			t.Errorf("progress %+v", p)
		}
	}})
	if !slices.Equal(greedy.Sequence, g.Tokens()) {
		t.Fatalf("the reference wrote %v, want %v", greedy.Sequence, g.Tokens())
	}
	if greedy.PromptTokens != 24 || greedy.Tokens != 160 || greedy.Generated.Positions != 136 {
		t.Errorf("%+v", greedy)
	}
	if testing.Short() {
		return
	}
	text := run(t, m, &Text{source(t, tinyCheckpoint(t)), g.Tokens()}, Options{})
	for name, r := range map[string]*Report{"greedy": greedy, "text": text} {
		sameLine(t, name+", contract", line(r.Contract), line(want.Contract))
		sameLine(t, name+", infer", line(r.Infer), line(want.Infer))
		sameLine(t, name+", prefill", line(r.Prefill), line(want.Prefill))
	}

	// The drafts have no influence.
	p := m.Package()
	p.Meta.RecurrentState = true
	defer func() { p.Meta.RecurrentState = false }()
	plain := run(t, m, &Greedy{source(t, tinyCheckpoint(t)), prompt}, Options{Tokens: 136})
	plain.Seconds, plain.Notes = greedy.Seconds, greedy.Notes
	if !reflect.DeepEqual(plain, greedy) {
		t.Errorf("without drafts:\n%+v\nwith them:\n%+v", plain, greedy)
	}
}

func TestSequenceLengths(t *testing.T) {
	slow(t)
	t.Parallel()
	g := golden(t, testutil.Data(t, "goldens", "tiny-qwen3.safetensors"))
	o := lut(0)
	o.Context, o.Batch = 96, 32
	m := loadPackage(t, assemble(t, tinyCheckpoint(t), o), engine.Options{})
	ids := g.Tokens()
	src := func() *Source { return source(t, tinyCheckpoint(t)) }
	for _, c := range []struct {
		name   string
		target func() Target
		tokens int
		// wanted: tokens compared, contract positions, a note; or an error
		n, contract int
		note, err   string
	}{
		{"defaults", func() Target { return &Greedy{src(), ids[:24]} }, 0, 88, 2 + 24, "", ""},
		{"what fits", func() Target { return &Greedy{src(), ids[:60]} }, 0, 96, 3, "left room for 36 tokens", ""},
		{"a whole context", func() Target { return &Greedy{src(), ids[:60]} }, 36, 96, 3, "", ""},
		{"too many", func() Target { return &Greedy{src(), ids[:60]} }, 37, 0, 0, "", "ask for at most 36"},
		{"no room", func() Target { return &Greedy{src(), ids[:96]} }, 0, 96, 3, "left room for 0 tokens", ""},
		{"too long", func() Target { return &Greedy{src(), ids[:97]} }, 0, 0, 0, "", "97 tokens, the context only 96"},
		{"no prompt", func() Target { return &Greedy{src(), nil} }, 0, 0, 0, "", "no tokens"},
		{"short", func() Target { return &Greedy{src(), ids[:3]} }, 5, 8, 8, "shorter than a batch of 32", ""},
		{"one batch", func() Target { return &Text{src(), ids[:32]} }, 0, 32, 1, "", ""},
		{"long text", func() Target { return &Text{src(), ids} }, 0, 96, 3, "only the first 96", ""},
		{"part of a text", func() Target { return &Text{src(), ids} }, 40, 40, 1 + 8, "", ""},
		{"no text", func() Target { return &Text{src(), nil} }, 0, 0, 0, "", "no tokens"},
		{"golden", func() Target { return g }, 0, 96, 3, "only the first 96", ""},
		{"part of a golden", func() Target { return g }, 65, 65, 3, "", ""},
		{"negative", func() Target { return g }, -1, 0, 0, "", "-1 tokens"},
		{"bad token", func() Target { return Tokens{1, 2, 1024} }, 0, 0, 0, "", "wanted 0 to 1023"},
	} {
		r, err := Run(context.Background(), m, c.target(), Options{Tokens: c.tokens})
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want an error with %q", c.name, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if r.Tokens != c.n || len(r.Sequence) != c.n || r.Infer.Positions != c.n || r.Contract.Positions != c.contract || !r.Passed {
			t.Errorf("%s: %d tokens, %d and %d positions, %q; want %d, %d and %d", c.name, r.Tokens, r.Infer.Positions, r.Contract.Positions, r.Failures, c.n, c.n, c.contract)
		}
		if notes := strings.Join(r.Notes, "\n"); !strings.Contains(notes, c.note) || c.note == "" && notes != "" {
			t.Errorf("%s: notes %q, want %q", c.name, notes, c.note)
		}
	}
}

func TestWrongTarget(t *testing.T) {
	m := load(t, convert(t, tinyCheckpoint(t), lut(0)), engine.Options{})
	logits := make([]float32, 1024)
	row := func(v float32) []byte { logits[3] = v; return f32s(logits...) }
	for _, c := range []struct{ want, path string }{
		{"2 logits per token, the package has 1024", writeGolden(t, named("tokens", safetensors.I32, i32s(1), 1), named("logits", safetensors.F32, f32s(1, 2), 1, 2))},
		{"logit 3 after token 0 is NaN", writeGolden(t, named("tokens", safetensors.I32, i32s(1), 1), named("logits", safetensors.F32, row(nan), 1, 1024))},
		{"logit 3 after token 0 is -Inf", writeGolden(t, named("tokens", safetensors.I32, i32s(1), 1), named("logits", safetensors.F32, row(-inf), 1, 1024))},
		{"no logits for any of the first 1 tokens", writeGolden(t, named("tokens", safetensors.I32, i32s(1, 2), 2), named("logits", safetensors.F32, row(1), 1, 1024), named("position", safetensors.I32, i32s(1), 1))},
		{"state model_model_kv_cache_0 has shape [8 2 256 64], the golden's [2]", writeGolden(t, named("tokens", safetensors.I32, i32s(1), 1), named("logits", safetensors.F32, row(1), 1, 1024), named("state.model_model_kv_cache_0", safetensors.F32, f32s(1, 2), 2))},
		{"none of the package's", writeGolden(t, named("tokens", safetensors.I32, i32s(1), 1), named("logits", safetensors.F32, row(1), 1, 1024), named("state.other", safetensors.F32, f32s(1, 2), 2))},
	} {
		o := Options{Tokens: 1}
		if _, err := Run(context.Background(), m, golden(t, c.path), o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want an error with %q", err, c.want)
		}
	}
	// A checkpoint of another model.
	peer := source(t, testutil.Shared(t, "peers", "qwen3-checkpoint"))
	if _, err := Run(context.Background(), m, &Greedy{peer, []int32{1}}, Options{}); err == nil || !strings.Contains(err.Error(), "512 tokens in its vocabulary, the package has logits for 1024") {
		t.Errorf("another checkpoint: %v", err)
	}
	if _, err := Run(context.Background(), m, Tokens{1}, Options{Layers: true}); err == nil || !strings.Contains(err.Error(), "reference of a checkpoint") {
		t.Errorf("layers of nothing: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Run(ctx, m, Tokens{1}, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestDamages makes packages of damaged checkpoints: every one of them must
// fail against the whole checkpoint. Of the layers' tensors it damages those of
// the first; see sweep for how to try all of them.
func TestDamages(t *testing.T) {
	slow(t)
	all := os.Getenv(sweep) != ""
	for _, d := range damages {
		if !all && d.layer > 0 {
			continue
		}
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			g := golden(t, testutil.Data(t, "goldens", "tiny-qwen3.safetensors"))
			dir := damaged(t, d.edit, d.config)
			fails := func(bits, tokens int) {
				o := lut(bits)
				o.Context, o.Batch = 160, 32
				if r := run(t, loadPackage(t, assemble(t, dir, o), engine.Options{}), g, Options{Tokens: tokens}); r.Passed {
					t.Errorf("%d bits: passed with %s", r.Bits, line(r.Infer))
				}
			}
			fails(0, 48)
			// Coarse weights hide what is damaged a little; what is damaged
			// badly has to be seen.
			if d.coarse && (all || !strings.HasPrefix(d.name, "zeroed")) {
				fails(4, 160)
			}
		})
	}
}

// TestBitsPass holds the whole checkpoint to its limits at all widths, where
// TestOracleFigures does not.
func TestBitsPass(t *testing.T) {
	slow(t)
	t.Parallel()
	g := golden(t, testutil.Data(t, "goldens", "tiny-qwen3.safetensors"))
	for _, bits := range []int{8, 6, 4, 3} {
		p := assemble(t, tinyCheckpoint(t), lut(bits))
		if bits == 8 || bits == 3 {
			if r := run(t, loadPackage(t, p, engine.Options{}), g, Options{}); !r.Passed || r.Bits != min(bits, 6) {
				t.Errorf("%d bits, of which %d were found: %q", bits, r.Bits, r.Failures)
			}
		}
		if r := run(t, loadPackage(t, p, engine.Options{Numerics: engine.Float16}), g, Options{Tokens: 70}); !r.Passed {
			t.Errorf("%d bits, fp16 arithmetic: %q", bits, r.Failures)
		}
	}
	half := run(t, loadPackage(t, assemble(t, tinyCheckpoint(t), lut(0)), engine.Options{Numerics: engine.Float16}), g, Options{})
	if !half.Passed || half.Infer.Cosine.Min < 0.999 || half.Contract.Cosine.Min < 0.999 || half.Infer.MaxDiff < 0.004 {
		t.Errorf("fp16 arithmetic: %s, %q", line(half.Infer), half.Failures)
	}
}

// TestPrefillAlone breaks only the prefill function.
func TestPrefillAlone(t *testing.T) {
	slow(t)
	t.Parallel()
	g := golden(t, testutil.Data(t, "goldens", "tiny-qwen3.safetensors"))
	p := assemble(t, tinyCheckpoint(t), lut(0))
	wrong := assemble(t, damaged(t, nil, func(s string) string { return strings.Replace(s, "1000000.0", "10000.0", 1) }), lut(0))
	var chunks []*coreml.Model
	for i, c := range p.Chunks {
		m := *c.Model
		m.Program = &mil.Program{}
		for _, f := range c.Model.Program.Functions {
			if f.Name == "prefill" {
				f = wrong.Chunks[i].Model.Program.Function("prefill")
			}
			m.Program.Functions = append(m.Program.Functions, f)
		}
		chunks = append(chunks, &m)
	}
	mixed, err := anemll.Assemble(p.Meta, p.Embeddings.Model, chunks, p.Head.Model)
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, loadPackage(t, mixed, engine.Options{}), g, Options{})
	if r.Passed || r.Infer.Cosine.Min < 0.9999 {
		t.Errorf("passed %v, infer %s", r.Passed, line(r.Infer))
	}
	failures := strings.Join(r.Failures, "\n")
	if !strings.Contains(failures, "contract sequence: cosine") || !strings.Contains(failures, "prefill against infer: cosine") || strings.Contains(failures, "infer only") {
		t.Errorf("failures %q", r.Failures)
	}
	// Without a target, too.
	if r := run(t, loadPackage(t, mixed, engine.Options{}), Tokens(g.Tokens()), Options{}); r.Passed || r.Infer != nil || r.Contract != nil {
		t.Errorf("against itself: %+v", r)
	}
}

// poison is a model whose output turns bad at a position.
type poison struct {
	runner.Model
	function string
	at       int32
	value    float32
	row      int
}

func (p *poison) Predict(ctx context.Context, function string, in, out runner.Values, st runner.State) error {
	if err := p.Model.Predict(ctx, function, in, out, st); err != nil {
		return err
	}
	if pos := in["current_pos"]; function == p.function && (pos == nil || pos.Int[0] == p.at) {
		for _, o := range out {
			o.Float[p.row*o.Shape[len(o.Shape)-1]] = p.value
		}
	}
	return nil
}

func TestNotFinite(t *testing.T) {
	slow(t)
	t.Parallel()
	g := golden(t, testutil.Data(t, "goldens", "tiny-qwen3.safetensors"))
	p := assemble(t, tinyCheckpoint(t), lut(0))
	for _, c := range []struct {
		part          int // of p.Parts
		function      string
		at            int32
		row           int
		value         float32
		infer         string // failures that must and must not be there
		contract      string
		inferN, contN int
	}{
		// A NaN in the residual stream stays in the cache for good.
		{1, "infer", 100, 0, nan, "infer only: not finite at 60 of 160 positions, first at position 100, out of qwen_FFN_PF_chunk_01of02 (infer)", "", 60, 0},
		{2, "infer", 150, 0, nan, "first at position 150, out of qwen_FFN_PF_chunk_02of02 (infer)", "first at position 150, out of qwen_FFN_PF_chunk_02of02 (infer)", 1, 1},
		{1, "prefill", 64, 7, nan, "", "contract sequence: not finite at 33 of 34 positions, first at position 71, out of qwen_FFN_PF_chunk_01of02 (prefill)", 0, 33},
		{2, "prefill", 64, 0, inf, "", "first at position 127, out of qwen_FFN_PF_chunk_02of02 (prefill)", 0, 1},
		{3, "main", 0, 0, -inf, "infer only: not finite at 160 of 160 positions, first at position 0, out of qwen_lm_head (main)", "contract sequence: not finite at 34 of 34", 160, 34},
	} {
		part := p.Parts()[c.part]
		m, err := session.Load(p, func(m *coreml.Model) (runner.Model, error) {
			e, err := engine.New(m, engine.Options{})
			if err == nil && m == part.Model {
				return &poison{e, c.function, c.at, c.value, c.row}, nil
			}
			return e, err
		})
		if err != nil {
			t.Fatal(err)
		}
		r := run(t, m, g, Options{})
		m.Close()
		failures := strings.Join(r.Failures, "\n")
		if r.Passed || !strings.Contains(failures, c.infer) || !strings.Contains(failures, c.contract) {
			t.Errorf("%+v: failures %q", c, r.Failures)
		}
		if r.Infer.NonFinite != c.inferN || r.Contract.NonFinite != c.contN {
			t.Errorf("%+v: %d and %d positions not finite", c, r.Infer.NonFinite, r.Contract.NonFinite)
		}
		if r.Prefill.NonFinite == 0 {
			t.Errorf("%+v: prefill against infer is finite", c)
		}
		if _, err := json.Marshal(r); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestEnds(t *testing.T) {
	for _, c := range []struct {
		metadata []string // of each chunk; "-" is none
		layers   int
		want     []int
		note     string
	}{
		{[]string{"0-1", "2-3"}, 4, []int{1, 3}, ""},
		{[]string{"0-0", "1-3"}, 4, []int{0, 3}, ""},
		{[]string{"-", "-", "-"}, 7, []int{2, 4, 6}, ""}, // the first get the extra layers
		{[]string{"0-1", "1-3"}, 4, []int{1, 3}, "does not continue"},
		{[]string{"0-1", "2-2"}, 4, []int{1, 3}, "speak of 3 layers, the checkpoint has 4"},
		{[]string{"x"}, 2, []int{1}, "does not continue"},
		{[]string{"0-1", "-"}, 4, []int{1, 3}, "speak of 2 layers"},
	} {
		p := &anemll.Package{}
		for i, s := range c.metadata {
			m := &coreml.Model{Metadata: coreml.Metadata{User: map[string]string{}}}
			if s != "-" {
				m.Metadata.User[layersKey] = s
			}
			p.Chunks = append(p.Chunks, &anemll.Part{Name: fmt.Sprint(i), Model: m})
		}
		got, note := ends(p, c.layers)
		if !slices.Equal(got, c.want) || !strings.Contains(note, c.note) || c.note == "" && note != "" {
			t.Errorf("%q of %d layers: %v, %q; want %v, %q", c.metadata, c.layers, got, note, c.want, c.note)
		}
	}
}

func TestJudge(t *testing.T) {
	fine := func() *Report {
		f := func() *Figures {
			return &Figures{Positions: 10, Cosine: Spread{Min: 0.9, Mean: 0.95}, KL: Spread{Mean: 0.1}, Top1: 0.8}
		}
		return &Report{Contract: f(), Infer: f(), Prefill: f(), Limits: Limits{MinCosine: 0.9, MinMeanCosine: 0.95, MaxKL: 0.1, MinTop1: 0.8, MinPrefill: 0.9}}
	}
	r := fine()
	if r.judge(); !r.Passed {
		t.Errorf("figures on the limits: %q", r.Failures)
	}
	for _, c := range []struct {
		want  string
		spoil func(*Report)
	}{
		{"infer only: cosine 0.899900 at position 0 is below 0.9", func(r *Report) { r.Infer.Cosine.Min = 0.8999 }},
		{"contract sequence: cosine", func(r *Report) { r.Contract.Cosine.Min = 0.8999 }},
		{"contract sequence: mean cosine", func(r *Report) { r.Contract.Cosine.Mean = 0.9499 }},
		{"infer only: mean KL", func(r *Report) { r.Infer.KL.Mean = 0.11 }},
		{"infer only: the best token", func(r *Report) { r.Infer.Top1 = 0.79 }},
		{"", func(r *Report) { r.Contract.Top1 = 0.1 }},
		{"prefill against infer: cosine", func(r *Report) { r.Prefill.Cosine.Min = 0.8 }},
		{"prefill against infer: not finite at 1 of 10", func(r *Report) { r.Prefill.NonFinite, r.Prefill.First = 1, &Where{} }},
		{"infer only: not finite at 10 of 10", func(r *Report) { r.Infer = &Figures{Positions: 10, NonFinite: 10, First: &Where{}} }},
		{"state kv", func(r *Report) { r.States = []StateFigures{{Name: "kv", Cosine: 0.5}} }},
		{"", func(r *Report) { r.Contract, r.Prefill = nil, nil }},
	} {
		r := fine()
		c.spoil(r)
		r.judge()
		if got := strings.Join(r.Failures, "\n"); r.Passed != (c.want == "") || !strings.HasPrefix(got, c.want) || len(r.Failures) > 1 {
			t.Errorf("passed %v, %q; want %q", r.Passed, got, c.want)
		}
	}
}

func TestLimitsOrder(t *testing.T) {
	before := DefaultLimits(16)
	for bits := 8; bits > 0; bits-- {
		l := DefaultLimits(bits)
		if l.MinCosine > before.MinCosine || l.MinMeanCosine > before.MinMeanCosine || l.MaxKL < before.MaxKL || l.MinTop1 > before.MinTop1 || l.MinPrefill != before.MinPrefill {
			t.Errorf("%d bits ask for more than the width above: %+v, %+v", bits, l, before)
		}
		before = l
	}
	if l := DefaultLimits(16); l.MinCosine < 0.999 || math.IsNaN(l.MaxKL) {
		t.Errorf("fp16: %+v", l)
	}
}
