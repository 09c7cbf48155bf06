package anemll

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"anemone/coreml"
	"anemone/internal/testutil"
	"anemone/mil"

	"github.com/google/go-cmp/cmp"
)

// fakeFolder makes a package folder whose models are empty folders.
func fakeFolder(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range files {
		if err := os.MkdirAll(filepath.Join(dir, f), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func parseParams(t *testing.T, params ...string) *Meta {
	t.Helper()
	text := "model_info:\n  parameters:\n"
	for _, p := range params {
		text += "    " + p + "\n"
	}
	m, err := ParseMeta([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestFindParts(t *testing.T) {
	for _, c := range []struct {
		name     string
		params   []string
		files    []string
		want     []string // embeddings, chunks, head
		problems int
		err      string
	}{
		{name: "names of compiled bundles", params: []string{"embeddings: q_embeddings.mlmodelc", "lm_head: q_lm_head_lut6.mlmodelc", "ffn: q_FFN_PF_lut4_chunk_01of02.mlmodelc", "num_chunks: 2"},
			files: []string{"q_embeddings.mlpackage", "q_lm_head_lut6.mlpackage", "q_FFN_PF_lut4_chunk_01of02.mlpackage", "q_FFN_PF_lut4_chunk_02of02.mlpackage"},
			want:  []string{"q_embeddings.mlpackage", "q_FFN_PF_lut4_chunk_01of02.mlpackage", "q_FFN_PF_lut4_chunk_02of02.mlpackage", "q_lm_head_lut6.mlpackage"}},
		{name: "rebuilt from prefix and bits", params: []string{"model_prefix: qwen3-0.6B", "lut_ffn: 4", "lut_lmhead: 6", "num_chunks: 1"},
			files: []string{"qwen3-0.6B_embeddings.mlpackage", "qwen3-0.6B_lm_head_lut6.mlpackage", "qwen3-0.6B_FFN_PF_lut4_chunk_01of01.mlpackage"},
			want:  []string{"qwen3-0.6B_embeddings.mlpackage", "qwen3-0.6B_FFN_PF_lut4_chunk_01of01.mlpackage", "qwen3-0.6B_lm_head_lut6.mlpackage"}},
		{name: "dots in given names", params: []string{"embeddings: a.b_embeddings", "lm_head: a.b_lm_head", "ffn: a.b_FFN_PF_chunk_01of01"},
			files: []string{"a.b_embeddings.mlpackage", "a.b_lm_head.mlpackage", "a.b_FFN_PF_chunk_01of01.mlpackage", "a.mlpackage"},
			want:  []string{"a.b_embeddings.mlpackage", "a.b_FFN_PF_chunk_01of01.mlpackage", "a.b_lm_head.mlpackage"}},
		{name: "both forms there", params: []string{"model_prefix: q"},
			files: []string{"q_embeddings.mlpackage", "q_embeddings.mlmodelc", "q_lm_head.mlmodelc", "q_lm_head.mlpackage", "q_FFN_PF_chunk_01of01.mlpackage", "q_FFN_PF_chunk_01of01.mlmodelc"},
			want:  []string{"q_embeddings.mlmodelc", "q_FFN_PF_chunk_01of01.mlmodelc", "q_lm_head.mlmodelc"}},
		{name: "compiled beside a name of a package", params: []string{"embeddings: q_embeddings.mlpackage", "lm_head: q_lm_head.mlpackage", "ffn: q_FFN_PF_chunk_01of01.mlpackage"},
			files: []string{"q_embeddings.mlmodelc", "q_lm_head.mlmodelc", "q_FFN_PF_chunk_01of01.mlmodelc"},
			want:  []string{"q_embeddings.mlmodelc", "q_FFN_PF_chunk_01of01.mlmodelc", "q_lm_head.mlmodelc"}},
		{name: "each part in another form", params: []string{"model_prefix: q", "num_chunks: 2"},
			files: []string{"q_embeddings.mlmodelc", "q_lm_head.mlpackage", "q_FFN_PF_chunk_01of02.mlpackage", "q_FFN_PF_chunk_02of02.mlmodelc"},
			want:  []string{"q_embeddings.mlmodelc", "q_FFN_PF_chunk_01of02.mlpackage", "q_FFN_PF_chunk_02of02.mlmodelc", "q_lm_head.mlpackage"}},
		{name: "split rotate", params: []string{"model_prefix: q", "num_chunks: 2", "split_rotate: true", "ffn: q_FFN_PF_chunk_01of02.mlmodelc", "pf: q_FFN_PF_chunk_01of02_rot.mlmodelc"},
			files: []string{"q_embeddings.mlpackage", "q_lm_head.mlpackage", "q_FFN_PF_chunk_01of02.mlpackage", "q_FFN_PF_chunk_02of02.mlpackage", "q_FFN_PF_chunk_01of02_rot.mlpackage", "q_FFN_PF_chunk_02of02_rot.mlpackage"},
			want:  []string{"q_embeddings.mlpackage", "q_FFN_PF_chunk_01of02.mlpackage", "q_FFN_PF_chunk_02of02.mlpackage", "q_FFN_PF_chunk_01of02_rot.mlpackage", "q_FFN_PF_chunk_02of02_rot.mlpackage", "q_lm_head.mlpackage"}},
		{name: "split rotate that meta.yaml is silent about", params: []string{"model_prefix: q", "lut_ffn: 4"},
			files: []string{"q_embeddings.mlpackage", "q_lm_head.mlpackage", "q_FFN_PF_lut4_chunk_01of01.mlpackage", "q_FFN_PF_lut4_chunk_01of01_rot.mlmodelc"},
			want:  []string{"q_embeddings.mlpackage", "q_FFN_PF_lut4_chunk_01of01.mlpackage", "q_FFN_PF_lut4_chunk_01of01_rot.mlmodelc", "q_lm_head.mlpackage"}},
		{name: "split rotate by the old names", params: []string{"model_prefix: q", "split_rotate: true", "lut_ffn: 6"},
			files: append(append(chunkFiles("q_FFN_PF_lut6", 3), chunkFiles("q_PF_lut6", 3)...), "q_embeddings.mlpackage", "q_lm_head.mlpackage"),
			want:  slices.Concat([]string{"q_embeddings.mlpackage"}, chunkFiles("q_FFN_PF_lut6", 3), chunkFiles("q_PF_lut6", 3), []string{"q_lm_head.mlpackage"})},
		{name: "split rotate, one model without a number", params: []string{"model_prefix: q", "ffn: decoder.mlmodelc", "pf: turned.mlmodelc"},
			files: []string{"q_embeddings.mlpackage", "q_lm_head.mlpackage", "decoder.mlpackage", "turned.mlmodelc"},
			want:  []string{"q_embeddings.mlpackage", "decoder.mlpackage", "turned.mlmodelc", "q_lm_head.mlpackage"}},
		{name: "split rotate without its files", params: []string{"model_prefix: q", "split_rotate: true", "pf: q_FFN_PF_chunk_01of01_rot.mlmodelc"},
			files: []string{"q_embeddings.mlpackage", "q_lm_head.mlpackage", "q_FFN_PF_chunk_01of01.mlpackage"}, problems: 1,
			want: []string{"q_embeddings.mlpackage", "q_FFN_PF_chunk_01of01.mlpackage", "q_lm_head.mlpackage"}},
		{name: "a rotated chunk is missing", params: []string{"model_prefix: q", "num_chunks: 2"},
			files: append(chunkFiles("q_FFN_PF", 2), "q_embeddings.mlpackage", "q_lm_head.mlpackage", "q_FFN_PF_chunk_02of02_rot.mlpackage"),
			err:   "pf: q_FFN_PF_chunk_01of02_rot is missing; 1 of 2 of its kind are there"},
		{name: "pf out of the folder", params: []string{"model_prefix: q", "pf: ../x_chunk_01of01"},
			files: []string{"q_embeddings.mlpackage", "q_lm_head.mlpackage", "q_FFN_PF_chunk_01of01.mlpackage"},
			err:   `pf: found "../x_chunk_01of01", wanted the name of a file`},
		{name: "monolithic", params: []string{"model_prefix: q", "monolithic_model: q_monolithic_full_lut4.mlmodelc"},
			files: []string{"q_monolithic_full_lut4.mlpackage", "q_monolithic_full.mlpackage"}, want: []string{"q_monolithic_full_lut4.mlpackage"}},
		{name: "monolithic, rebuilt from prefix and bits", params: []string{"model_type: monolithic", "model_prefix: q.5", "lut_bits: 6"},
			files: []string{"q.5_monolithic_full_lut6.mlmodelc", "q.5_monolithic_full_lut4.mlmodelc"}, want: []string{"q.5_monolithic_full_lut6.mlmodelc"}},
		{name: "monolithic, default prefix", params: []string{"model_type: monolithic", "lut_bits: none"},
			files: []string{"qwen_monolithic_full.mlmodelc"}, want: []string{"qwen_monolithic_full.mlmodelc"}},
		{name: "monolithic, one function", params: []string{"model_type: monolithic", "model_prefix: q", "lut_bits: 4"},
			files: []string{"q_monolithic_lut4.mlpackage", "q_monolithic_prefill_lut4.mlpackage"}, want: []string{"q_monolithic_lut4.mlpackage"}},
		{name: "monolithic, bits that meta.yaml lost", params: []string{"model_type: monolithic", "model_prefix: q", "monolithic_model: q_monolithic_full.mlmodelc"},
			files: []string{"q_monolithic_full_LUT4_CTX512_ATT512.mlpackage"}, problems: 1, want: []string{"q_monolithic_full_LUT4_CTX512_ATT512.mlpackage"}},
		{name: "monolithic, wrong name", params: []string{"model_prefix: q", "monolithic_model: r.mlmodelc"},
			files: []string{"q_monolithic_full.mlpackage"}, problems: 1, want: []string{"q_monolithic_full.mlpackage"}},
		{name: "monolithic, meta.yaml is silent", params: []string{"model_prefix: q", "context_length: 512"},
			files: []string{"q_monolithic_full_lut4.mlpackage"}, problems: 1, want: []string{"q_monolithic_full_lut4.mlpackage"}},
		{name: "parts beside a monolithic model", params: []string{"model_prefix: q"},
			files: []string{"q_monolithic_full.mlpackage", "q_embeddings.mlpackage", "q_lm_head.mlpackage", "q_FFN_PF_chunk_01of01.mlpackage"},
			want:  []string{"q_embeddings.mlpackage", "q_FFN_PF_chunk_01of01.mlpackage", "q_lm_head.mlpackage"}},
		{name: "monolithic, nothing there", params: []string{"model_type: monolithic", "model_prefix: q", "lut_bits: 4"},
			files: []string{"q_monolithic_rotate.mlpackage"},
			err:   "monolithic_model: wanted q_monolithic_full_lut4.mlmodelc (or .mlpackage) or"},
		{name: "monolithic out of the folder", params: []string{"monolithic_model: /etc/passwd"}, err: `monolithic_model: found "/etc/passwd", wanted the name of a file`},
		{name: "twelve chunks in order", params: []string{"model_prefix: q", "num_chunks: 12"},
			files: append(chunkFiles("q_FFN_PF", 12), "q_embeddings.mlpackage", "q_lm_head.mlpackage"),
			want:  slices.Concat([]string{"q_embeddings.mlpackage"}, chunkFiles("q_FFN_PF", 12), []string{"q_lm_head.mlpackage"})},
		{name: "two sets, num_chunks decides", params: []string{"model_prefix: q", "num_chunks: 2"},
			files: append(append(chunkFiles("q_FFN_PF", 2), chunkFiles("q_FFN_PF", 3)...), "q_embeddings.mlpackage", "q_lm_head.mlpackage"),
			want:  slices.Concat([]string{"q_embeddings.mlpackage"}, chunkFiles("q_FFN_PF", 2), []string{"q_lm_head.mlpackage"})},
		{name: "two sets, nothing decides", params: []string{"model_prefix: q"},
			files: append(append(chunkFiles("q_FFN_PF", 2), chunkFiles("q_FFN_PF", 3)...), "q_embeddings.mlpackage", "q_lm_head.mlpackage"),
			err:   "q_FFN_PF_chunk_* in sets of [2 3]"},
		{name: "num_chunks is wrong", params: []string{"model_prefix: q", "num_chunks: 4"},
			files: append(chunkFiles("q_FFN_PF", 2), "q_embeddings.mlpackage", "q_lm_head.mlpackage"), problems: 1,
			want: slices.Concat([]string{"q_embeddings.mlpackage"}, chunkFiles("q_FFN_PF", 2), []string{"q_lm_head.mlpackage"})},
		{name: "a chunk is missing", params: []string{"model_prefix: q", "num_chunks: 3"},
			files: append(chunkFiles("q_FFN_PF", 3)[:2], "q_embeddings.mlpackage", "q_lm_head.mlpackage"),
			err:   "chunk 3 of 3 is missing: wanted q_FFN_PF_chunk_03of03.mlmodelc (or .mlpackage); 2 of them are there"},
		{name: "nothing there", params: []string{"model_prefix: q", "lut_embeddings: 4"},
			files: []string{"z.mlpackage"},
			err:   "embeddings: wanted q_embeddings_lut4.mlmodelc (or .mlpackage) or q_embeddings.mlmodelc (or .mlpackage); in the folder: z.mlpackage"},
		{name: "embeddings without their suffix", params: []string{"model_prefix: q", "lut_embeddings: 4"},
			files: []string{"q_embeddings.mlpackage", "q_lm_head.mlpackage", "q_FFN_PF_chunk_01of01.mlpackage"},
			want:  []string{"q_embeddings.mlpackage", "q_FFN_PF_chunk_01of01.mlpackage", "q_lm_head.mlpackage"}},
		{name: "suffix that meta.yaml lost", params: []string{"model_prefix: q", "lut_ffn: 4", "lm_head: q_lm_head.mlmodelc"},
			files: []string{"q_embeddings.mlpackage", "q_lm_head_lut6.mlpackage", "q_FFN_PF_lut6_chunk_01of01.mlpackage"}, problems: 2,
			want: []string{"q_embeddings.mlpackage", "q_FFN_PF_lut6_chunk_01of01.mlpackage", "q_lm_head_lut6.mlpackage"}},
		{name: "linear quantization", params: []string{"model_prefix: q", "quant_ffn: int4,32", "quant_lmhead: int8", "lut_ffn: none"},
			files: []string{"q_embeddings.mlpackage", "q_lm_head_int8.mlpackage", "q_FFN_PF_int4_chunk_01of01.mlpackage"},
			want:  []string{"q_embeddings.mlpackage", "q_FFN_PF_int4_chunk_01of01.mlpackage", "q_lm_head_int8.mlpackage"}},
		{name: "infer only, not combined", params: []string{"model_prefix: q"},
			files: []string{"q_embeddings.mlpackage", "q_lm_head.mlpackage", "q_FFN_chunk_01of01.mlpackage"},
			want:  []string{"q_embeddings.mlpackage", "q_FFN_chunk_01of01.mlpackage", "q_lm_head.mlpackage"}},
		{name: "one model without a number", params: []string{"model_prefix: q", "ffn: decoder.mlmodelc"},
			files: []string{"q_embeddings.mlpackage", "q_lm_head.mlpackage", "decoder.mlpackage"},
			want:  []string{"q_embeddings.mlpackage", "decoder.mlpackage", "q_lm_head.mlpackage"}},
		{name: "ffn without its chunk number", params: []string{"model_prefix: q", "ffn: other.mlmodelc"},
			files: append(chunkFiles("other", 2), "q_embeddings.mlpackage", "q_lm_head.mlpackage"),
			want:  slices.Concat([]string{"q_embeddings.mlpackage"}, chunkFiles("other", 2), []string{"q_lm_head.mlpackage"})},
		{name: "given name is wrong", params: []string{"model_prefix: q", "embeddings: elsewhere.mlmodelc"},
			files: []string{"q_embeddings.mlpackage", "q_lm_head.mlpackage", "q_FFN_PF_chunk_01of01.mlpackage"}, problems: 1,
			want: []string{"q_embeddings.mlpackage", "q_FFN_PF_chunk_01of01.mlpackage", "q_lm_head.mlpackage"}},
		{name: "out of the folder", params: []string{"embeddings: ../../etc/passwd"}, err: `found "../../etc/passwd", wanted the name of a file in the package folder`},
		{name: "prefix out of the folder", params: []string{"model_prefix: ../q"}, err: `wanted the name of a file in the package folder`},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := listFolder(fakeFolder(t, c.files...))
			if err != nil {
				t.Fatal(err)
			}
			p := &Package{Meta: parseParams(t, c.params...)}
			got, err := find(f, p)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("error %v, want one with %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("found %q, want %q", got, c.want)
			}
			if len(p.Problems) != c.problems {
				t.Errorf("problems %q, want %d", p.Problems, c.problems)
			}
		})
	}
}

// find looks for the files of a package as Open does.
func find(f folder, p *Package) (got []string, err error) {
	m := p.Meta
	mono, err := f.findMonolithic(p)
	if err != nil {
		return nil, err
	}
	if mono != "" {
		return []string{mono}, nil
	}
	e, err := f.find(p, "embeddings", m.Embeddings, m.EmbeddingsName(), m.ModelPrefix+"_embeddings")
	if err != nil {
		return nil, err
	}
	chunks, err := f.findChunks(p)
	if err != nil {
		return nil, err
	}
	beside, err := f.findBeside(p, chunks)
	if err != nil {
		return nil, err
	}
	h, err := f.find(p, "lm_head", m.LMHead, m.LMHeadName(), m.ModelPrefix+"_lm_head")
	return slices.Concat([]string{e}, chunks, slices.Concat(beside...), []string{h}), err
}

func chunkFiles(base string, n int) (out []string) {
	for i := range n {
		out = append(out, chunkName(base, i, n)+".mlpackage")
	}
	return out
}

func fp16(name string, shape ...int) coreml.Feature {
	return coreml.Feature{Name: name, DType: mil.Float16, Shape: shape}
}

func i32(name string, shape ...int) coreml.Feature {
	return coreml.Feature{Name: name, DType: mil.Int32, Shape: shape}
}

// toy is a package of two chunks: hidden size 8, context 32, batch 4,
// vocabulary 5 + 4.
type toy struct {
	meta       *Meta
	embeddings *coreml.Model
	chunks     []*coreml.Model
	head       *coreml.Model
}

func newToy() *toy {
	const h, ctx, b = 8, 32, 4
	y := &toy{meta: &Meta{ModelPrefix: "toy", PrefillDynamicSlice: true, PrefillLastTokenOutput: true}}
	ids := i32(InputIDs, 1, 1)
	ids.Shapes = [][]int{{1, 1}, {1, b}}
	y.embeddings = &coreml.Model{Functions: []coreml.Function{{Name: "main", Inputs: []coreml.Feature{ids}, Outputs: []coreml.Feature{{Name: HiddenStates, DType: mil.Float16}}}}}
	for i := range 2 {
		rows := b
		if i == 1 {
			rows = 1
		}
		kv := []coreml.Feature{fp16("model_model_kv_cache_0", 4, 1, 48, 2)}
		y.chunks = append(y.chunks, &coreml.Model{DefaultFunction: "infer", Functions: []coreml.Function{
			{Name: "infer", States: kv, Outputs: []coreml.Feature{fp16(OutputHiddenStates, 1, 1, h)},
				Inputs: []coreml.Feature{fp16(HiddenStates, 1, 1, h), i32(PositionIDs, 1), fp16(CausalMask, 1, 1, 1, ctx), i32(CurrentPos, 1)}},
			{Name: "prefill", States: kv, Outputs: []coreml.Feature{fp16(OutputHiddenStates, 1, rows, h)},
				Inputs: []coreml.Feature{fp16(HiddenStates, 1, b, h), i32(PositionIDs, b), fp16(CausalMask, 1, 1, b, ctx), i32(CurrentPos, 1)}},
		}})
	}
	y.head = &coreml.Model{Functions: []coreml.Function{{Name: "main", Inputs: []coreml.Feature{fp16(HiddenStates, 1, 1, h)},
		Outputs: []coreml.Feature{fp16("logits2", 1, 1, 4), fp16("logits1", 1, 1, 5)}}}}
	return y
}

// caches gives all caches another length.
func (y *toy) caches(n int) {
	for _, c := range y.chunks {
		for i := range c.Functions {
			c.Functions[i].States = []coreml.Feature{fp16("model_model_kv_cache_0", 4, 1, n, 2)}
		}
	}
}

// local adds a cache of n positions.
func (y *toy) local(n int) {
	for _, c := range y.chunks {
		for i := range c.Functions {
			c.Functions[i].States = append(slices.Clone(c.Functions[i].States), fp16("model_model_kv_cache_local", 4, 1, n, 2))
		}
	}
}

// rotate adds the functions for rotated caches.
func (y *toy) rotate() {
	for _, c := range y.chunks {
		for _, f := range c.Functions[:2] {
			f.Name += "_rotate"
			f.Inputs = slices.Clone(f.Inputs)
			c.Functions = append(c.Functions, f)
		}
	}
}

// argmax makes the head give the best of n parts of the vocabulary.
func (y *toy) argmax(n int) {
	y.head.Functions[0].Outputs = []coreml.Feature{i32(ArgmaxIndex, n), fp16(ArgmaxValue, n)}
}

func (y *toy) assemble() (*Package, error) {
	return Assemble(y.meta, y.embeddings, y.chunks, y.head)
}

func TestLayout(t *testing.T) {
	p, err := newToy().assemble()
	if err != nil {
		t.Fatal(err)
	}
	want := Layout{ContextLength: 32, MaskWidth: 32, PrefillLimit: 32, StateLength: 48, HiddenSize: 8, VocabSize: 9, Logits: []string{"logits1", "logits2"}, LogitsWidths: []int{5, 4},
		EmbeddingsFunction: "main", InferFunction: "infer", HeadFunction: "main", PrefillFunction: "prefill", BatchSize: 4, LastTokenOutput: true,
		States: []coreml.Feature{fp16("model_model_kv_cache_0", 4, 1, 48, 2)}}
	if d := cmp.Diff(want, p.Layout); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if len(p.Problems) != 0 {
		t.Errorf("problems: %q", p.Problems)
	}
	if got := p.StateBytes(); got != 4*48*2*2 {
		t.Errorf("StateBytes() = %d", got)
	}
	if got := len(p.Parts()); got != 4 {
		t.Errorf("%d parts", got)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// remainder adds a function for n tokens to every chunk, and their shape to the
// embeddings.
func (y *toy) remainder(n int) {
	batch := y.chunks[0].Functions[1].Inputs[0].Shape[1]
	for _, c := range y.chunks {
		f := c.Functions[1]
		f.Name = fmt.Sprintf("prefill_%d", n)
		f.Inputs, f.Outputs, f.States = slices.Clone(f.Inputs), slices.Clone(f.Outputs), slices.Clone(f.States)
		for _, list := range [][]coreml.Feature{f.Inputs, f.Outputs} {
			for i := range list {
				list[i].Shape = slices.Clone(list[i].Shape)
				for k, d := range list[i].Shape {
					if d == batch {
						list[i].Shape[k] = n
					}
				}
			}
		}
		c.Functions = append(c.Functions, f)
	}
	ids := &y.embeddings.Functions[0].Inputs[0]
	ids.Shapes = append(slices.Clone(ids.Shapes), []int{1, n})
}

// wide makes batches of n tokens.
func (y *toy) wide(n int) {
	y.remainder(n)
	for _, c := range y.chunks {
		c.Functions[2].Name = "prefill"
		c.Functions = append(c.Functions[:1], c.Functions[2])
	}
}

// TestRemainders: functions for fewer tokens than a batch are found by their
// names; one that does not fit costs nothing but itself.
func TestRemainders(t *testing.T) {
	last := func(y *toy, chunk int) *coreml.Function {
		fs := y.chunks[chunk].Functions
		return &fs[len(fs)-1]
	}
	for _, c := range []struct {
		name    string
		change  func(*toy)
		want    []Prefill
		problem string // "" for none
	}{
		{"none", func(y *toy) {}, nil, ""},
		{"one", func(y *toy) { y.remainder(2) }, []Prefill{{"prefill_2", 2}}, ""},
		{"other names", func(y *toy) {
			y.remainder(2)
			for i, name := range []string{"prefill_02", "prefill_2_rotate"} {
				y.chunks[i].Functions[2].Name = name
			}
		}, nil, ""},
		{"one token", func(y *toy) { y.remainder(1) }, nil, "prefill_1 takes 1 tokens, wanted a divisor of the batch, 4, from 2 on and less than it: prefill_1 is not used"},
		{"not a divisor", func(y *toy) { y.remainder(3) }, nil, "prefill_3 takes 3 tokens, wanted a divisor of the batch, 4"},
		{"a batch", func(y *toy) { y.remainder(2); last(y, 0).Name = "prefill_4"; last(y, 1).Name = "prefill_4" }, nil, "prefill_4 takes 4 tokens"},
		{"more than a batch", func(y *toy) { y.remainder(8) }, nil, "prefill_8 takes 8 tokens"},
		{"a number out of all bounds", func(y *toy) { y.remainder(2); last(y, 0).Name = "prefill_999999999" }, nil, "prefill_999999999 takes 999999999 tokens"},
		{"longer than any number", func(y *toy) {
			y.remainder(2)
			y.chunks[0].Functions[2].Name = "prefill_" + strings.Repeat("9", 30)
			y.chunks[1].Functions = y.chunks[1].Functions[:2]
		}, nil, ""},
		{"another name than shape", func(y *toy) { y.remainder(3); last(y, 0).Name = "prefill_2"; last(y, 1).Name = "prefill_2" }, nil, "input_ids takes [[1 1] [1 4] [1 3]], wanted [1, 2] for prefill_2"},
		{"another shape of hidden states", func(y *toy) { y.remainder(2); last(y, 1).Inputs[0].Shape = []int{1, 4, 8} }, nil, "input hidden_states is fp16 [1 4 8], wanted fp16 [1, 2, hidden size]: prefill_2 is not used"},
		{"in one chunk only", func(y *toy) { y.remainder(2); y.chunks[0].Functions = y.chunks[0].Functions[:2] }, nil, "has no function prefill_2, which other chunks have"},
		{"embeddings that do not take it", func(y *toy) {
			y.remainder(2)
			y.embeddings.Functions[0].Inputs[0].Shapes = y.embeddings.Functions[0].Inputs[0].Shapes[:2]
		}, nil, "wanted [1, 2] for prefill_2"},
		{"a state is missing", func(y *toy) { y.remainder(2); last(y, 1).States = nil }, nil, "function prefill_2 has the states nothing, wanted model_model_kv_cache_0 fp16 [4 1 48 2] as in prefill"},
		{"a state of another shape", func(y *toy) { y.remainder(2); last(y, 0).States[0].Shape = []int{4, 1, 32, 2} }, nil, "wanted model_model_kv_cache_0 fp16 [4 1 48 2]"},
		{"a state more", func(y *toy) { y.remainder(2); last(y, 0).States = append(last(y, 0).States, fp16("other", 2)) }, nil, "has the states model_model_kv_cache_0, other, wanted model_model_kv_cache_0 as in prefill"},
		{"a mask of another width", func(y *toy) {
			y.remainder(2)
			for i := range 2 {
				for k := range last(y, i).Inputs {
					if x := &last(y, i).Inputs[k]; x.Name == CausalMask {
						x.Shape[3] = 16
					}
				}
			}
		}, nil, "are 16 and 0 wide in prefill_2, wanted 32 and 0 as in prefill"},
		{"all tokens in place of the last", func(y *toy) { y.remainder(2); last(y, 1).Outputs[0].Shape = []int{1, 2, 8} }, nil, "prefill_2 of the last chunk gives 2 tokens, wanted the last one as of prefill"},
		{"an input that nobody knows", func(y *toy) { y.remainder(2); last(y, 0).Inputs = append(last(y, 0).Inputs, fp16("what", 1)) }, nil, "input what is not known"},
		{"prefill that must not be used", func(y *toy) { y.remainder(2); y.meta.InferOnly = true }, nil, ""},
		{"a batch for which there is no room", func(y *toy) { y.remainder(2); y.local(3); y.rotate() }, nil, "prefill takes 4 tokens, but there is room for 3 positions only"},
	} {
		t.Run(c.name, func(t *testing.T) {
			y := newToy()
			c.change(y)
			p, err := y.assemble()
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(p.Remainders, c.want) || (len(p.Problems) > 0) != (c.problem != "") || !strings.Contains(strings.Join(p.Problems, "\n"), c.problem) {
				t.Errorf("found %v, problems %q; want %v, %q", p.Remainders, p.Problems, c.want, c.problem)
			}
			if p.InferFunction != "infer" || c.problem != "" && c.name != "a batch for which there is no room" && p.PrefillFunction != "prefill" {
				t.Errorf("infer is %q, prefill %q", p.InferFunction, p.PrefillFunction)
			}
		})
	}
	// Several, the largest first whatever their order, and with all others.
	y := newToy()
	y.wide(12)
	for _, n := range []int{2, 6, 3} {
		y.remainder(n)
	}
	p, err := y.assemble()
	if err != nil {
		t.Fatal(err)
	}
	want := []Prefill{{"prefill", 12}, {"prefill_6", 6}, {"prefill_3", 3}, {"prefill_2", 2}}
	if !slices.Equal(p.Prefills(), want) || !slices.Equal(p.DecoderFunctions(), []string{"infer", "prefill", "prefill_6", "prefill_3", "prefill_2"}) {
		t.Errorf("%v, %v, problems %q; want %v", p.Prefills(), p.DecoderFunctions(), p.Problems, want)
	}
}

// Each case changes the toy in one way.
func TestLayoutVariants(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*toy)
		check  func(*Package) bool
	}{
		{"not allowed by meta.yaml", func(y *toy) { y.meta.PrefillDynamicSlice = false },
			func(p *Package) bool {
				return p.PrefillFunction == "" && p.BatchSize == 0 && strings.Contains(p.NoPrefill, "prefill_dynamic_slice")
			}},
		{"infer_only", func(y *toy) { y.meta.InferOnly = true },
			func(p *Package) bool { return p.PrefillFunction == "" && strings.Contains(p.NoPrefill, "infer_only") }},
		{"no prefill function", func(y *toy) {
			for _, c := range y.chunks {
				c.Functions = c.Functions[:1]
			}
		}, func(p *Package) bool { return p.PrefillFunction == "" && p.NoPrefill != "" && len(p.Problems) == 0 }},
		{"prefill in one chunk only", func(y *toy) { y.chunks[1].Functions = y.chunks[1].Functions[:1] },
			func(p *Package) bool { return p.PrefillFunction == "" && len(p.Problems) == 1 }},
		{"single function chunks", func(y *toy) {
			for _, c := range y.chunks {
				c.Functions, c.DefaultFunction = c.Functions[:1], ""
				c.Functions[0].Name = "main"
			}
		}, func(p *Package) bool { return p.InferFunction == "main" }},
		{"update mask", func(y *toy) {
			f := &y.chunks[0].Functions[1]
			f.Inputs = append(f.Inputs, fp16(UpdateMask, 1, 1, 24, 4))
			y.meta.PrefillDynamicSlice, y.meta.UpdateMaskPrefill = false, true
		}, func(p *Package) bool {
			return p.PrefillFunction == "prefill" && p.PrefillLimit == 24 && p.ContextLength == 32
		}},
		{"update mask that is not taken", func(y *toy) { y.meta.PrefillDynamicSlice, y.meta.UpdateMaskPrefill = false, true },
			func(p *Package) bool {
				return p.PrefillFunction == "" && strings.Contains(p.NoPrefill, "takes no update_mask") && len(p.Problems) == 1
			}},
		{"update mask in infer", func(y *toy) {
			f := &y.chunks[1].Functions[0]
			f.Inputs = append(f.Inputs, fp16(UpdateMask, 1, 1, 30, 1))
		}, func(p *Package) bool { return p.ContextLength == 30 && p.MaskWidth == 32 }},
		{"mask wider than the cache", func(y *toy) { y.caches(16) },
			func(p *Package) bool { return p.ContextLength == 16 && p.MaskWidth == 32 && len(p.Problems) == 1 }},
		{"a short cache that nothing rotates", func(y *toy) { y.local(8) },
			func(p *Package) bool {
				return p.ContextLength == 8 && p.Window == 0 && p.PrefillLimit == 8 && len(p.Problems) == 1
			}},
		{"a short cache that the graph shifts", func(y *toy) { y.local(8); y.meta.LocalCacheLength = 8 },
			func(p *Package) bool { return p.ContextLength == 32 && p.Window == 0 && len(p.Problems) == 0 }},
		{"a short cache that is rotated", func(y *toy) { y.local(8); y.rotate() },
			func(p *Package) bool {
				return p.ContextLength == 32 && p.Window == 8 && p.PrefillLimit == 8 && p.InferRotateFunction == "infer_rotate" && p.PrefillRotateFunction == "prefill_rotate" && !p.Rewindable()
			}},
		{"nothing but a short cache that is rotated", func(y *toy) { y.caches(8); y.rotate() },
			func(p *Package) bool { return p.ContextLength == 32 && p.Window == 8 }},
		{"one cache and rotate functions", func(y *toy) { y.caches(32); y.rotate(); y.meta.SlidingWindow = 12 },
			func(p *Package) bool { return p.ContextLength == 32 && p.Window == 12 && p.PrefillLimit == 12 }},
		{"one cache for a window", func(y *toy) { y.meta.SingleCache, y.meta.SlidingWindow = true, 12 },
			func(p *Package) bool {
				return p.ContextLength == 32 && len(p.Problems) == 1 && strings.Contains(p.Problems[0], "single_cache")
			}},
		{"rotate functions that are never reached", func(y *toy) { y.rotate(); y.meta.SlidingWindow = 32 },
			func(p *Package) bool {
				return p.Window == 0 && p.InferRotateFunction == "" && p.PrefillLimit == 32 && p.Rewindable()
			}},
		{"rotate functions in one chunk only", func(y *toy) { y.local(8); y.rotate(); y.chunks[1].Functions = y.chunks[1].Functions[:2] },
			func(p *Package) bool { return p.Window == 0 && p.ContextLength == 8 && len(p.Problems) == 2 }},
		{"a batch longer than the short cache", func(y *toy) { y.local(3); y.rotate() },
			func(p *Package) bool {
				return p.Window == 3 && p.PrefillFunction == "" && p.PrefillRotateFunction == "" && len(p.Problems) == 1
			}},
		{"argmax", func(y *toy) { y.argmax(3); y.meta.LMHeadChunkSizes = []int{5, 4, 4} },
			func(p *Package) bool {
				return p.Argmax && p.VocabSize == 13 && slices.Equal(p.LogitsWidths, []int{5, 4, 4}) && len(p.Problems) == 1
			}},
		{"argmax, widths by the rule", func(y *toy) { y.argmax(4); y.meta.VocabSize = 14 },
			func(p *Package) bool { return slices.Equal(p.LogitsWidths, []int{4, 4, 3, 3}) }},
		{"argmax without shapes", func(y *toy) {
			y.argmax(0)
			y.head.Functions[0].Outputs[0].Shape, y.head.Functions[0].Outputs[1].Shape = nil, nil
			y.meta.SplitLMHead, y.meta.VocabSize = 2, 9
		}, func(p *Package) bool { return slices.Equal(p.LogitsWidths, []int{5, 4}) }},
		{"argmax that meta.yaml promises only", func(y *toy) { y.meta.ArgmaxInModel = true },
			func(p *Package) bool { return !p.Argmax && p.VocabSize == 9 && len(p.Problems) == 1 }},
		{"chunks with states of one name and different shapes", func(y *toy) {
			for i := range 2 {
				y.chunks[1].Functions[i].States = []coreml.Feature{fp16("model_model_kv_cache_0", 2, 1, 48, 2)}
			}
		}, func(p *Package) bool { return p.StateOwner == -1 && p.StateBytes() == 4*48*2*2+2*48*2*2 }},
		{"ANEMLL's prefill output", func(y *toy) { y.meta.PrefillLastTokenOutput = false },
			func(p *Package) bool { return p.PrefillFunction == "prefill" && !p.LastTokenOutput }},
		{"last token claimed, batch given", func(y *toy) { y.chunks[1].Functions[1].Outputs[0].Shape = []int{1, 4, 8} },
			func(p *Package) bool { return !p.LastTokenOutput && len(p.Problems) == 1 }},
		{"per-layer inputs flow from the embeddings", func(y *toy) {
			f := &y.embeddings.Functions[0]
			f.Outputs = append(f.Outputs, fp16("per_layer_inputs", 1, 1, 6))
			for _, c := range y.chunks {
				c.Functions[0].Inputs = append(c.Functions[0].Inputs, fp16("per_layer_inputs", 1, 1, 6))
				c.Functions[1].Inputs = append(c.Functions[1].Inputs, fp16("per_layer_inputs", 1, 4, 6))
			}
		}, func(p *Package) bool { return p.PrefillFunction == "prefill" }},
		{"states differ between chunks", func(y *toy) {
			for i := range 2 {
				y.chunks[1].Functions[i].States = []coreml.Feature{fp16("other", 2)}
			}
		}, func(p *Package) bool { return p.StateOwner == -1 && len(p.States) == 2 }},
		{"the second chunk has all states", func(y *toy) {
			for i := range 2 {
				y.chunks[1].Functions[i].States = append(slices.Clone(y.chunks[1].Functions[i].States), fp16("other", 2))
			}
		}, func(p *Package) bool { return p.StateOwner == 1 }},
		{"per_chunk_state", func(y *toy) { y.meta.PerChunkState = true }, func(p *Package) bool { return p.StateOwner == -1 }},
		{"one output of logits", func(y *toy) { y.head.Functions[0].Outputs = []coreml.Feature{fp16("output_logits", 1, 1, 7)} },
			func(p *Package) bool { return p.VocabSize == 7 && p.Logits[0] == "output_logits" }},
		{"logits without shapes", func(y *toy) {
			for i := range 2 {
				y.head.Functions[0].Outputs[i].Shape = nil
			}
			y.meta.LMHeadChunkSizes = []int{3, 2}
		}, func(p *Package) bool { return p.VocabSize == 5 }},
		{"flexible ids", func(y *toy) {
			y.embeddings.Functions[0].Inputs[0].Shapes = nil
			y.embeddings.Functions[0].Inputs[0].Ranges = []coreml.Range{{Min: 1, Max: 1}, {Min: 1, Max: -1}}
		}, func(p *Package) bool { return p.BatchSize == 4 }},
		{"a chunk without attention", func(y *toy) {
			for i := range 2 {
				f := &y.chunks[0].Functions[i]
				f.Inputs = f.Inputs[:1]
			}
		}, func(p *Package) bool { return p.ContextLength == 32 }},
		{"embeddings with a shape", func(y *toy) { y.embeddings.Functions[0].Outputs[0].Shape = []int{1, 1, 8} },
			func(p *Package) bool { return p.BatchSize == 4 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			y := newToy()
			c.change(y)
			p, err := y.assemble()
			if err != nil {
				t.Fatal(err)
			}
			if !c.check(p) {
				t.Errorf("%+v problems %q", p.Layout, p.Problems)
			}
		})
	}
}

func TestLayoutErrors(t *testing.T) {
	in := func(y *toy, chunk, fn int, name string) *coreml.Feature {
		return feature(y.chunks[chunk].Functions[fn].Inputs, name)
	}
	for _, c := range []struct {
		name   string
		change func(*toy)
		want   string
	}{
		{"no chunks", func(y *toy) { y.chunks = nil }, "a part is missing"},
		{"a gap in the logits", func(y *toy) { y.head.Functions[0].Outputs[0].Name = "logits3" }, "no logits2"},
		{"wide logits", func(y *toy) { y.head.Functions[0].Outputs[0].Shape = []int{1, 2, 4} }, "logits2 has shape [1 2 4]"},
		{"no logits", func(y *toy) { y.head.Functions[0].Outputs = nil }, "gives nothing, wanted logits1"},
		{"hidden size", func(y *toy) { in(y, 1, 0, HiddenStates).Shape = []int{1, 1, 9} }, "toy_FFN_PF_chunk_02of02: function infer: input hidden_states is fp16 [1 1 9], wanted [1, 1, 8]"},
		{"embeddings too narrow", func(y *toy) { y.embeddings.Functions[0].Outputs[0].Shape = []int{1, 1, 7} }, "wanted [1 1 7], which toy_embeddings gives"},
		{"chunks do not fit", func(y *toy) { y.chunks[0].Functions[1].Outputs[0].Shape = []int{1, 1, 8} }, "wanted [1 1 8], which toy_FFN_PF_chunk_01of02 gives"},
		{"masks differ", func(y *toy) { in(y, 1, 0, CausalMask).Shape = []int{1, 1, 1, 16} }, "a width of 32"},
		{"masks differ between functions", func(y *toy) {
			in(y, 0, 1, CausalMask).Shape = []int{1, 1, 4, 16}
			in(y, 1, 1, CausalMask).Shape = []int{1, 1, 4, 16}
		}, "causal_mask is 16 wide in prefill and 32 in infer"},
		{"mask of a wrong rank", func(y *toy) { in(y, 0, 0, CausalMask).Shape = []int{1, 32} }, "wanted fp16 [1, 1, 1, context]"},
		{"no mask", func(y *toy) {
			for i := range 2 {
				y.chunks[i].Functions[0].Inputs = y.chunks[i].Functions[0].Inputs[:1]
			}
		}, "no chunk takes a causal_mask"},
		{"positions as floats", func(y *toy) { in(y, 0, 0, PositionIDs).DType = mil.Float16 }, "input position_ids is fp16 [1], wanted int32 [1]"},
		{"current_pos", func(y *toy) { in(y, 0, 1, CurrentPos).Shape = []int{4} }, "wanted int32 [1]"},
		{"unknown input", func(y *toy) { in(y, 0, 0, PositionIDs).Name = "pixel_values" }, "input pixel_values is not known"},
		{"no hidden_states", func(y *toy) { y.chunks[0].Functions[0].Inputs = y.chunks[0].Functions[0].Inputs[1:] }, "wanted hidden_states too"},
		{"no infer", func(y *toy) { y.chunks[1].Functions[0].Name = "decode" }, "toy_FFN_PF_chunk_02of02: found the functions decode, prefill, wanted infer"},
		{"embeddings for single tokens only", func(y *toy) { y.embeddings.Functions[0].Inputs[0].Shapes = nil }, "input_ids takes [1 1], wanted [1, 4] for prefill"},
		{"embeddings take something else", func(y *toy) { y.embeddings.Functions[0].Inputs[0].Name = "tokens" }, "takes tokens, wanted int32 input_ids"},
		{"states differ", func(y *toy) {
			y.chunks[1].Functions[0].States = []coreml.Feature{fp16("model_model_kv_cache_0", 4, 1, 64, 2)}
		}, "state model_model_kv_cache_0 is fp16 [4 1 64 2] in toy_FFN_PF_chunk_02of02 (infer) and fp16 [4 1 48 2]"},
		{"rotation without a window", func(y *toy) { y.rotate() }, "says from which position on it is to be called"},
		{"rotate function of another shape", func(y *toy) {
			y.local(8)
			y.rotate()
			feature(y.chunks[1].Functions[2].Inputs, CausalMask).Shape = []int{1, 1, 1, 8}
		}, "function infer_rotate: input causal_mask is fp16 [1 1 1 8], wanted a width of 32"},
		{"argmax, one output", func(y *toy) { y.argmax(2); y.head.Functions[0].Outputs = y.head.Functions[0].Outputs[:1] }, "wanted both argmax_idx and argmax_val"},
		{"argmax, lengths", func(y *toy) { y.argmax(2); y.head.Functions[0].Outputs[1].Shape = []int{3} }, "have shapes [2] and [3]"},
		{"argmax, types", func(y *toy) { y.argmax(2); y.head.Functions[0].Outputs[0].DType = mil.Float16 }, "are fp16 and fp16, wanted int32 and floating point"},
		{"argmax, huge", func(y *toy) {
			y.argmax(2)
			for i := range 2 {
				y.head.Functions[0].Outputs[i].Shape = []int{1 << 30}
			}
		}, "have shapes [1073741824] and [1073741824]"},
		{"argmax, no widths", func(y *toy) { y.argmax(2) }, "neither the graph nor meta.yaml"},
		{"update mask of a wrong rank", func(y *toy) {
			y.chunks[0].Functions[1].Inputs = append(y.chunks[0].Functions[1].Inputs, fp16(UpdateMask, 32, 4))
		}, "input update_mask is fp16 [32 4], wanted fp16 [1, 1, positions, 4]"},
		{"update masks differ", func(y *toy) {
			for i, n := range []int{32, 24} {
				y.chunks[i].Functions[1].Inputs = append(y.chunks[i].Functions[1].Inputs, fp16(UpdateMask, 1, 1, n, 4))
			}
		}, "wanted 32 positions, as the chunks before it have"},
		{"a head without embeddings", func(y *toy) { y.embeddings = nil }, "a part is missing: toy_embeddings has no model"},
		{"huge", func(y *toy) {
			for i := range 4 {
				m := feature(y.chunks[i/2].Functions[i%2].Inputs, CausalMask)
				m.Shape[3] = 1 << 28
			}
		}, "wanted fp16 [1, 1, 1, context]"},
		{"output of a wrong shape", func(y *toy) { y.chunks[1].Functions[0].Outputs[0].Shape = []int{1, 8} }, "wanted [1, 1, 8]"},
		{"output of unknown name", func(y *toy) { y.chunks[0].Functions[0].Outputs = []coreml.Feature{fp16("a"), fp16("b")} }, "has no output output_hidden_states"},
	} {
		t.Run(c.name, func(t *testing.T) {
			y := newToy()
			c.change(y)
			p, err := y.assemble()
			if err == nil {
				t.Fatalf("no error: %+v", p.Layout)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %q, want one with %q", err, c.want)
			}
		})
	}
}

func TestMetaAgainstModels(t *testing.T) {
	y := newToy()
	y.meta = parseParams(t, "model_prefix: toy", "prefill_dynamic_slice: true", "context_length: 64", "batch_size: 8", "hidden_size: 16", "vocab_size: 10",
		"split_lm_head: 16", "lm_head_chunk_sizes: [5, 5]", "states: [{name: gone, shape: [1]}, {name: model_model_kv_cache_0, shape: [1, 2]}]")
	y.chunks[1].Metadata.User = map[string]string{"com.anemll.context_length": "512", "com.anemll.chunk_no": "2", "com.anemll.num_chunks": "two"}
	p, err := y.assemble()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"meta.yaml says context_length: 64, the models say 32",
		"meta.yaml says batch_size: 8, the models say 4",
		"meta.yaml says hidden_size: 16, the models say 8",
		"meta.yaml says vocab_size: 10, the models say 9",
		"meta.yaml says split_lm_head: 16, the models say 2",
		"meta.yaml says lm_head_chunk_sizes: [5 5], the models say [5 4]",
		"meta.yaml lists the state gone, which no chunk declares",
		"meta.yaml says that the state model_model_kv_cache_0 is [1 2], the models say [4 1 48 2]",
		"toy_FFN_PF_chunk_02of02: its metadata say com.anemll.context_length: 512, it is 32",
		"toy_FFN_PF_chunk_02of02: its metadata say com.anemll.num_chunks: two, it is 2",
	}
	if d := cmp.Diff(want, p.Problems); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestOpenPeers(t *testing.T) {
	for _, peer := range []string{"qwen3-fp16-c2", "qwen3-lut4-lut6-c2"} {
		dir := testutil.Shared(t, "peers", peer)
		for _, path := range []string{dir, filepath.Join(dir, MetaFile)} {
			p, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			want := Layout{ContextLength: 256, MaskWidth: 256, PrefillLimit: 256, StateLength: 256, HiddenSize: 96, VocabSize: 512,
				EmbeddingsFunction: "main", InferFunction: "infer", HeadFunction: "main", PrefillFunction: "prefill", BatchSize: 64,
				States: []coreml.Feature{fp16("model_model_kv_cache_0", 8, 2, 256, 32)}}
			for i := range 16 {
				want.Logits, want.LogitsWidths = append(want.Logits, fmt.Sprintf("logits%d", i+1)), append(want.LogitsWidths, 32)
			}
			if d := cmp.Diff(want, p.Layout); d != "" {
				t.Errorf("%s (-want +got)\n%s", peer, d)
			}
			if len(p.Problems) != 0 || len(p.Chunks) != 2 || !strings.HasSuffix(p.Chunks[1].Name, "_chunk_02of02") {
				t.Errorf("%s: problems %q, chunks %v", peer, p.Problems, p.Chunks)
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	p, err := Open(testutil.Shared(t, "peers", "qwen3-lut6-argmax-c2"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	// The widths are those of the graph: without meta.yaml's word there is no
	// problem either.
	if !p.Argmax || len(p.Logits) != 0 || !slices.Equal(p.LogitsWidths, slices.Repeat([]int{32}, 16)) || p.VocabSize != 512 || len(p.Problems) != 0 {
		t.Errorf("argmax package: %+v, problems %q", p.Layout, p.Problems)
	}
	_, err = Open(testutil.Shared(t, "peers", "qwen3-checkpoint"))
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "convert it first") {
		t.Errorf("checkpoint: %v", err)
	}
}

// A package whose folder was tampered with fails with the name of what is
// wrong, and closes what it had opened.
func TestOpenDamagedPeer(t *testing.T) {
	peer := testutil.Shared(t, "peers", "qwen3-fp16-c2")
	meta, err := os.ReadFile(filepath.Join(peer, MetaFile))
	if err != nil {
		t.Fatal(err)
	}
	link := func(names ...string) string {
		dir := t.TempDir()
		for _, n := range names {
			if err := os.Symlink(filepath.Join(peer, n), filepath.Join(dir, n)); err != nil {
				t.Skipf("no symbolic links here: %v", err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, MetaFile), meta, 0o666); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	const c1, c2, e, h = "qwen_FFN_PF_chunk_01of02.mlpackage", "qwen_FFN_PF_chunk_02of02.mlpackage", "qwen_embeddings.mlpackage", "qwen_lm_head.mlpackage"
	p, err := Open(link(c1, c2, e, h))
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	for want, dir := range map[string]string{
		"chunk 2 of 2 is missing":           link(c1, e, h),
		"embeddings: wanted qwen_embedding": link(c1, c2, h),
		"lm_head: wanted qwen_lm_head":      link(c1, c2, e),
	} {
		if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), dir) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	dir := link(c1, e, h)
	if err := os.MkdirAll(filepath.Join(dir, c2), 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), c2) {
		t.Errorf("empty bundle: %v", err)
	}
	// The chunks swapped: the first gives one token where the batch is due.
	dir = link(e, h)
	os.Symlink(filepath.Join(peer, c1), filepath.Join(dir, c2))
	os.Symlink(filepath.Join(peer, c2), filepath.Join(dir, c1))
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "which qwen_FFN_PF_chunk_01of02 gives") {
		t.Errorf("swapped chunks: %v", err)
	}
}

func TestOpenNothing(t *testing.T) {
	if _, err := Open(t.TempDir()); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "no meta.yaml in it") {
		t.Errorf("%v", err)
	}
	dir := t.TempDir()
	os.WriteFile(filepath.Join(dir, MetaFile), []byte("model_info:\n  model_type: monolithic\n  parameters:\n    monolithic_model: q_monolithic_full.mlmodelc\n"), 0o666)
	if _, err := Open(dir); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "monolithic_model: wanted q_monolithic_full.mlmodelc") {
		t.Errorf("%v", err)
	}
}

func TestCutChunk(t *testing.T) {
	for in, want := range map[string][]any{
		"q_FFN_PF_lut4_chunk_01of02":      {"q_FFN_PF_lut4", 1, 2, true},
		"q_chunk_1of2_chunk_03of12":       {"q_chunk_1of2", 3, 12, true},
		"q_FFN_PF_chunk_01of02_rot":       {"q_FFN_PF_chunk_01of02_rot", 0, 0, false},
		"q_chunk_03of02":                  {"q", 3, 2, false},
		"q_chunk_00of02":                  {"q", 0, 2, false},
		"_chunk_01of01":                   {"_chunk_01of01", 0, 0, false},
		"q_chunk_99999999999999999999of2": {"q_chunk_99999999999999999999of2", 0, 0, false},
	} {
		b, i, n, ok := cutChunk(in)
		if got := []any{b, i, n, ok}; !reflect.DeepEqual(got, want) {
			t.Errorf("cutChunk(%q) = %v, want %v", in, got, want)
		}
	}
}

// Whatever meta.yaml names, what is found is in the folder.
func FuzzFind(f *testing.F) {
	f.Add("q", "q_FFN_PF_chunk_01of02.mlmodelc", "q_FFN_PF_chunk_01of02_rot.mlmodelc", "", "q_embeddings.mlpackage\nq_lm_head.mlmodelc\nq_FFN_PF_chunk_01of02.mlpackage\nq_FFN_PF_chunk_02of02.mlpackage\nq_FFN_PF_chunk_01of02_rot.mlpackage\nq_FFN_PF_chunk_02of02_rot.mlpackage", true)
	f.Add("q", "", "", "q_monolithic_full.mlmodelc", "q_monolithic_full_lut4.mlpackage", false)
	f.Add("../q", "x_chunk_9999of9999", "/etc_chunk_1of1", "a/b", "x.mlpackage", true)
	f.Add("\xe2", "0", "0", "", "0", true)
	f.Add("q", "q_chunk_0of0", "pf", "", "q_embeddings.mlmodelc\nq_lm_head.mlmodelc\nq_FFN_chunk_01of01.mlmodelc\npf.mlpackage", false)
	f.Fuzz(func(t *testing.T, prefix, ffn, pf, mono, files string, split bool) {
		folder, there := folder{}, map[string]bool{}
		for name := range strings.SplitSeq(files, "\n") {
			if base, ext := cutExt(name); ext != "" && base != "" && !there[name] {
				folder[base] = append(folder[base], ext)
				there[name] = true
			}
		}
		m := &Meta{ModelPrefix: prefix, FFN: ffn, PF: pf, MonolithicModel: mono, SplitRotate: split, NumChunks: 1}
		got, err := find(folder, &Package{Meta: m})
		if err != nil {
			return
		}
		for _, name := range got {
			if !there[name] || strings.ContainsAny(name, `/\`) {
				t.Errorf("found %q, which is not in the folder", name)
			}
		}
	})
}
