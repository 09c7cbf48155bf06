package anemll

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"anemone/coreml"
	"anemone/internal/ane"
	"anemone/internal/arch"
	"anemone/internal/arch/nn"
	"anemone/internal/checkpoint"
	"anemone/internal/compress"
	"anemone/mil"
)

// Options say what a conversion makes. The zero value of a field stands for
// the default that its comment names.
type Options struct {
	Context   int   // positions of the cache; 512
	Batch     int   // tokens of a prefill call; 64, or the context if that is less
	Chunks    int   // decoder models; 0 chooses by size
	ChunkSize int64 // bytes that a decoder model stays under when Chunks is 0; 950 MiB
	SplitHead int   // logits outputs of the LM head; 16
	// FullLocalCache gives the layers that attend to a window of positions
	// caches of the whole context, whatever its length. Without it they have a
	// block-shifting window where that is shorter, which cannot be rewound.
	FullLocalCache bool
	// GDNChunk is the number of tokens that prefill takes at a time through the
	// delta rule of recurrent models, a divisor of Batch; 0 is the largest
	// divisor up to 64.
	GDNChunk int
	// Remainders are the tokens of further prefill functions, for what a prompt
	// leaves behind its last whole batch and would go token by token: divisors
	// of Batch, less than it. Each takes its own copy of the decoder's weights
	// on the Neural Engine; in the package all functions share them. Runtimes
	// that do not know such functions ignore them.
	Remainders []int
	// LargeMoE allows mixtures of experts of any size. The experts are all
	// computed for every token, so those with many are unreasonable.
	LargeMoE bool

	Embeddings compress.Encoding // of each part; the zero value is fp16
	FFN        compress.Encoding
	Head       compress.Encoding

	Format    Format // of the models; both
	Prefix    string // of the file names; the architecture's
	Name      string // of the model; derived from the checkpoint's
	Overwrite bool   // replace an existing output folder
	Jobs      int    // cores used; all

	// Progress is called from time to time, on any goroutine but never on
	// two at once.
	Progress func(Progress)
}

// Format says in which form the models are written.
type Format string

// Formats. Core ML loads compiled models; packages are what Xcode, coremltools
// and people exchange. Both together take no more room than one: they share
// the file of weights where the file system lets them.
const (
	Both      Format = "both"
	MLPackage Format = "mlpackage"
	MLModelC  Format = "mlmodelc"
)

// ParseFormat reads the form that the command line uses.
func ParseFormat(s string) (Format, error) {
	switch f := Format(s); f {
	case Both, MLPackage, MLModelC:
		return f, nil
	}
	return "", fmt.Errorf("format %q: want mlpackage, mlmodelc or both", s)
}

// DefaultOptions are what `anemone convert` does unless told otherwise: six
// bits with one table per eight output channels, the embeddings in fp16.
func DefaultOptions() Options {
	return Options{
		Context: 512, Batch: 64, SplitHead: 16, Format: Both,
		FFN:  compress.Encoding{Bits: 6, Group: 8},
		Head: compress.Encoding{Bits: 6, Group: 8},
	}
}

// chunkSize is the size in bytes that `auto` keeps a decoder chunk under: the
// Neural Engine has trouble with models of a gigabyte and more, and ANEMLL's
// own tools use the same figure.
const chunkSize = 950 << 20

// writtenChunks is as many chunks as the two digits in a file name count; more
// would not sort, which some runtimes rely on.
const writtenChunks = 99

// Generator is how packages name the program that made them.
const Generator = "Anemone"

// Version is the version of the converter that packages record.
const Version = "0.1.0"

// plan is a conversion before any weight is read.
type plan struct {
	ck    *checkpoint.Checkpoint
	info  arch.Info
	opts  Options
	arch  arch.Options
	parts []*part
	meta  *Meta
	// warnings are things that a user may want to change.
	warnings []string
	// Units of work: all, and what has been done.
	work int64
	done atomic.Int64
}

// part is one model of the package to be.
type part struct {
	name  string // of the bundle, without extension
	model *coreml.Model
	size  int64 // of the weights, in bytes
}

// newPlan builds every graph and decides every encoding. Its errors are all
// that a conversion has, but for reading and writing.
func newPlan(ctx context.Context, ck *checkpoint.Checkpoint, m arch.Model, o Options, report *compress.Report) (*plan, error) {
	p := &plan{ck: ck, info: m.Info(), opts: o}
	if err := p.fill(); err != nil {
		return nil, err
	}
	p.arch = arch.Options{Context: p.opts.Context, Batch: p.opts.Batch, SplitHead: p.opts.SplitHead, FullLocalCache: p.opts.FullLocalCache, GDNChunk: p.opts.GDNChunk, Remainders: p.opts.Remainders}
	enc := &encoder{ctx: ctx, report: report, jobs: o.Jobs, done: map[*nn.Weight]*encoded{}, work: &p.done}

	var ext arch.Extension
	if x, ok := m.(arch.Extended); ok {
		ext = x.Extension(p.arch)
	}
	if err := p.checkExtension(ext); err != nil {
		return nil, err
	}
	chunks := p.opts.Chunks
	if chunks == 0 {
		n, err := p.autoChunks(m)
		if err != nil {
			return nil, err
		}
		chunks = n
	}
	p.meta = p.newMeta(chunks)
	extendMeta(p.meta, ext)
	if o.FullLocalCache && ext.LocalAttentionWindow == 0 {
		p.warnings = append(p.warnings, fmt.Sprintf("a full local cache was asked for, but %s has no layers with a local window", p.info.Architecture))
	}

	f, err := m.Embeddings(p.arch)
	if err != nil {
		return nil, err
	}
	if err := p.add(enc, p.meta.EmbeddingsName(), o.Embeddings, p.embeddingsMeta(), f); err != nil {
		return nil, err
	}
	bounds := arch.SplitLayers(p.info.Layers, chunks)
	var large []string
	for i := range chunks {
		fs, err := m.Chunk(p.arch, bounds[i], bounds[i+1])
		if err != nil {
			return nil, err
		}
		md := p.chunkMeta(i, chunks, bounds[i], bounds[i+1])
		if err := p.add(enc, p.meta.ChunkName(i, chunks), o.FFN, md, fs...); err != nil {
			return nil, err
		}
		if s := tooLarge(fs[0]); s != "" {
			large = append(large, fmt.Sprintf("%s: %s", p.meta.ChunkName(i, chunks), s))
		}
	}
	if len(large) > 0 {
		more := ""
		if n := len(large) - 1; n > 0 {
			more = fmt.Sprintf(", and so in %d more", n)
		}
		p.warnings = append(p.warnings, fmt.Sprintf("%s%s: the Neural Engine takes at most %d elements in a dimension and leaves these operations to others (mixtures of many experts are too wide for it)", large[0], more, ane.MaxSide))
	}
	if f, err = m.Head(p.arch); err != nil {
		return nil, err
	}
	if err := p.add(enc, p.meta.LMHeadName(), o.Head, p.headMeta(), f); err != nil {
		return nil, err
	}
	return p, nil
}

// tooLarge says which operations of a function have results that the Neural
// Engine cannot take, "" if none has.
func tooLarge(f *mil.Function) string {
	n, first := 0, ""
	f.Body.Walk(func(op *mil.Operation) bool {
		for _, v := range op.Results {
			if ane.Folded(op.Type) || v.Type.Kind != mil.TensorKind || ane.TooLarge(v.Type) == 0 {
				continue
			}
			if n++; n == 1 {
				first = fmt.Sprintf("%s, %v", op.Type, v.Type)
			}
		}
		return true
	})
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d operations with results as wide as %s", n, first)
}

// OptionError is an error about the value of an option.
type OptionError struct {
	Option string // as the command line has it, without dashes
	Detail string // what it is and what it should be
}

func (e *OptionError) Error() string { return e.Option + " " + e.Detail }

func badOption(option, format string, args ...any) error {
	return &OptionError{option, fmt.Sprintf(format, args...)}
}

// groupWarnings says which weights did not get the groups that were asked for,
// and which have groups so small that they are slow.
func groupWarnings(weights []compress.Entry) (out []string) {
	type change struct{ asked, got int }
	changed := map[change]int{}
	var order []change
	example := map[change]string{}
	small, smallest := 0, fastGroup
	for _, e := range weights {
		if e.Group == 0 || len(e.Shape) > 0 && e.Group >= e.Shape[0] {
			continue // fp16, or one table for everything
		}
		if e.Group < fastGroup {
			small++
			smallest = min(smallest, e.Group)
		}
		if c := (change{e.GroupAsked, e.Group}); c.asked > 0 && c.asked != c.got {
			if changed[c]++; changed[c] == 1 {
				order = append(order, c)
				example[c] = e.Name
			}
		}
	}
	for _, c := range order {
		what := fmt.Sprintf("%d weights, such as %s: they have", changed[c], example[c])
		if changed[c] == 1 {
			what = example[c] + ": it has"
		}
		out = append(out, fmt.Sprintf("groups of %d do not divide the output channels of %s groups of %d", c.asked, what, c.got))
	}
	if small > 0 {
		what := fmt.Sprintf("%d weights have", small)
		if small == 1 {
			what = "1 weight has"
		}
		out = append(out, fmt.Sprintf("%s tables for fewer than %d output channels (down to %d): the Neural Engine is slower with them (measured with 4 bits: by a quarter with 2 channels to a table, by half with 1)", what, fastGroup, smallest))
	}
	return out
}

// fastGroup is the number of output channels to a table below which the Neural
// Engine slows down: the contract's figures.
const fastGroup = 8

// fill replaces zero options by defaults and checks the rest.
func (p *plan) fill() error {
	o, d := &p.opts, DefaultOptions()
	for _, f := range []struct {
		v   *int
		def int
	}{{&o.Context, d.Context}, {&o.SplitHead, d.SplitHead}} {
		if *f.v == 0 {
			*f.v = f.def
		}
	}
	if o.Batch == 0 {
		o.Batch = min(d.Batch, o.Context)
	}
	if o.Prefix == "" {
		o.Prefix = p.info.Prefix
	}
	if o.Format == "" {
		o.Format = d.Format
	}
	if _, err := ParseFormat(string(o.Format)); err != nil {
		return err
	}
	if o.Name == "" {
		name, err := ModelName(p.ck.Dir)
		if err != nil {
			return err
		}
		o.Name = fmt.Sprintf("anemll-%s-ctx%d", name, o.Context)
	}
	switch {
	case strings.ContainsAny(o.Prefix, `/\: `) || strings.HasPrefix(o.Prefix, "."):
		return badOption("prefix", "%q: want the start of a file name", o.Prefix)
	case o.Context < 2 || o.Context > 1<<20: // a batch has at least 2 tokens
		return badOption("context", "%d: want 2 to %d positions", o.Context, 1<<20)
	case o.Batch < 2 || o.Batch > o.Context:
		return badOption("batch", "%d: want 2 to the context length, %d", o.Batch, o.Context)
	case o.Chunks < 0 || o.Chunks > min(p.info.Layers, writtenChunks):
		return badOption("chunks", "%d: want 1 to %d for %d layers", o.Chunks, min(p.info.Layers, writtenChunks), p.info.Layers)
	case o.SplitHead < 1 || o.SplitHead > min(p.info.Vocab, 1024):
		return badOption("split-lm-head", "%d: want 1 to %d", o.SplitHead, min(p.info.Vocab, 1024))
	}
	o.Remainders = slices.Clone(o.Remainders)
	slices.SortFunc(o.Remainders, func(a, b int) int { return b - a })
	for i, n := range o.Remainders {
		if n < 2 || n >= o.Batch || o.Batch%n != 0 {
			return badOption("prefill-remainder", "%d: want divisors of the batch, %d, from 2 on and less than it", n, o.Batch)
		}
		if i > 0 && n == o.Remainders[i-1] {
			return badOption("prefill-remainder", "%d twice", n)
		}
	}
	if !slices.Contains(p.ck.Files(), "tokenizer.json") {
		p.warnings = append(p.warnings, noTokenizer(p.ck))
	}
	p.warnings = append(p.warnings, p.ck.Generation.Problems...)
	if p.ck.Format() == "mlx" {
		p.warnings = append(p.warnings, "the weights were written by MLX, which lays some of them out differently: check the package against the original checkpoint")
	}
	for _, name := range p.ck.Unindexed() {
		p.warnings = append(p.warnings, fmt.Sprintf("tensor %s is in a file but not in the index, which decides: it is not used", name))
	}
	if o.Context > p.info.MaxContext {
		p.warnings = append(p.warnings, fmt.Sprintf("context %d is longer than the %d positions the model was made for", o.Context, p.info.MaxContext))
	}
	if o.Context%32 != 0 {
		p.warnings = append(p.warnings, fmt.Sprintf("context %d is not a multiple of 32: the Neural Engine may refuse the cache; %d would do", o.Context, (o.Context+31)/32*32))
	}
	if w := (p.info.Vocab + o.SplitHead - 1) / o.SplitHead; w > 16384 {
		p.warnings = append(p.warnings, fmt.Sprintf("%d logits in one output: older Neural Engines take at most 16384; --split-lm-head %d would do", w, (p.info.Vocab+16383)/16384))
	}
	return nil
}

// noTokenizer is the warning for a checkpoint without tokenizer.json.
func noTokenizer(ck *checkpoint.Checkpoint) string {
	why, where := "the checkpoint has no tokenizer.json", "beside config.json and convert again, or into the package"
	if err := ck.TokenizerProblem(); err != nil {
		why = fmt.Sprintf("no tokenizer.json can be made of the checkpoint's tokenizer (%v)", err)
	}
	if st, err := os.Stat(ck.Dir); err == nil && !st.IsDir() {
		where = "into the package"
	}
	return fmt.Sprintf("%s, so the package has none and cannot be run on text (anemone run, ANEMLL's apps): put the model's tokenizer.json %s", why, where)
}

// ModelName names a model after its checkpoint: the folder, or the GGUF file
// without its extension. In the cache of huggingface_hub a folder is
// models--ORG--NAME/snapshots/REVISION.
func ModelName(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if st, err := os.Stat(path); err == nil && !st.IsDir() && strings.EqualFold(filepath.Ext(path), ".gguf") {
		if name := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)); name != "" {
			return name, nil
		}
	}
	return modelName(path), nil
}

func modelName(dir string) string {
	parent := filepath.Dir(dir)
	if filepath.Base(parent) == "snapshots" {
		if name, ok := strings.CutPrefix(filepath.Base(filepath.Dir(parent)), "models--"); ok {
			return strings.ReplaceAll(name, "--", "-")
		}
	}
	return filepath.Base(dir)
}

// autoChunks returns the smallest number of chunks of which none is larger
// than the limit. Layers need not be equally large, and what layers share is
// in every chunk, so chunks are built to see.
func (p *plan) autoChunks(m arch.Model) (int, error) {
	limit := p.opts.ChunkSize
	if limit <= 0 {
		limit = chunkSize
	}
	size := func(first, last int) (int64, error) {
		fs, err := m.Chunk(p.arch, first, last)
		if err != nil {
			return 0, err
		}
		prog := &mil.Program{Functions: fs}
		scratch := &encoder{report: &compress.Report{}, done: map[*nn.Weight]*encoded{}}
		if _, err := scratch.encode(prog, p.opts.FFN); err != nil {
			return 0, err
		}
		return storedSize(prog), nil
	}
	all, err := size(0, p.info.Layers)
	if err != nil {
		return 0, err
	}
	most := min(p.info.Layers, writtenChunks)
	for n := int(min((all+limit-1)/limit, int64(most))); n < most; n++ {
		bounds, fits := arch.SplitLayers(p.info.Layers, n), true
		for i := 0; i < n && fits; i++ {
			one, err := size(bounds[i], bounds[i+1])
			if err != nil {
				return 0, err
			}
			fits = one <= limit
		}
		if fits {
			return n, nil
		}
	}
	return most, nil
}

// storedSize returns the bytes of all weights of a program.
func storedSize(prog *mil.Program) int64 {
	var n int64
	prog.Weights(func(_ *mil.Value, w mil.Weight) {
		size, _ := w.Type().ByteSize()
		n += size
	})
	return n
}

// add makes a part of functions that share their weights.
func (p *plan) add(enc *encoder, name string, e compress.Encoding, md coreml.Metadata, fs ...*mil.Function) error {
	prog := &mil.Program{Functions: fs}
	work, err := enc.encode(prog, e)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	m := &coreml.Model{SpecVersion: 9, Metadata: md, Program: prog}
	for _, f := range fs {
		m.Functions = append(m.Functions, coreml.Describe(f))
	}
	if len(fs) > 1 {
		m.DefaultFunction = fs[0].Name
	} else if in := m.Functions[0].Input("input_ids"); in != nil {
		in.Shape = []int{1, 1}
		in.Shapes = [][]int{{1, 1}, {1, p.opts.Batch}}
		for _, n := range p.opts.Remainders {
			in.Shapes = append(in.Shapes, []int{1, n})
		}
	}
	p.work += work
	p.parts = append(p.parts, &part{name: name, model: m, size: storedSize(prog)})
	return nil
}

func (p *plan) newMeta(chunks int) *Meta {
	o, info := p.opts, p.info
	lut := func(e compress.Encoding) LUT { return LUT{Bits: e.Bits, Group: e.Group} }
	m := &Meta{
		Name: o.Name, Version: FormatVersion,
		Description: fmt.Sprintf("%s for Apple's Neural Engine\nContext length: %d\nBatch size: %d\nChunks: %d", filepath.Base(o.Name), o.Context, o.Batch, chunks),
		License:     "see the source model", Author: Generator, Framework: "Core ML", Language: "Go",
		Architecture: info.Architecture, ContextLength: o.Context, BatchSize: o.Batch,
		LUTEmbeddings: lut(o.Embeddings), LUTFFN: lut(o.FFN), LUTLMHead: lut(o.Head),
		NumChunks: chunks, ModelPrefix: o.Prefix,
		SplitLMHead: o.SplitHead, VocabSize: info.Vocab, LMHeadChunkSizes: arch.SplitVocab(info.Vocab, o.SplitHead),
		PrefillDynamicSlice: true, PrefillLastTokenOutput: true, HiddenSize: info.Hidden, NumLayers: info.Layers,
	}
	m.Embeddings, m.LMHead = m.EmbeddingsName()+".mlmodelc", m.LMHeadName()+".mlmodelc"
	m.FFN = m.ChunkName(0, chunks) + ".mlmodelc"
	if g := p.ck.Generation; g != nil && g.Temperature != nil && g.TopP != nil && g.TopK != nil {
		m.RecommendedSampling = &RecommendedSampling{DoSample: g.DoSample, Temperature: g.Temperature, TopP: g.TopP, TopK: g.TopK, MinP: g.MinP, RepetitionPenalty: g.RepetitionPenalty}
	}
	m.Conversion = []Note{
		{"converter", Generator + " " + Version},
		{"model", filepath.Base(o.Name)},
		{"context_length", strconv.Itoa(o.Context)}, {"batch_size", strconv.Itoa(o.Batch)}, {"num_chunks", strconv.Itoa(chunks)},
		{"lut_part1", o.Embeddings.String()}, {"lut_part2", o.FFN.String()}, {"lut_part3", o.Head.String()},
		{"lut_method", "exact k-means"},
		{"prefix", o.Prefix}, {"architecture", info.Architecture}, {"anemll_version", FormatVersion},
	}
	if len(o.Remainders) > 0 {
		m.Conversion = append(m.Conversion, Note{"prefill_remainder", strings.Trim(fmt.Sprint(o.Remainders), "[]")})
	}
	return m
}

// expertLimit is the size in bytes of all experts together above which a
// package is refused: every token reads and multiplies all of them.
const expertLimit = 4 << 30

// checkExtension refuses options that do not go with the model.
func (p *plan) checkExtension(x arch.Extension) error {
	o := p.opts
	if o.GDNChunk != 0 && x.GDNChunkSize == 0 {
		if !x.RecurrentState {
			return badOption("gdn-chunk", "%d: %s has no Gated DeltaNets, whose delta rule that would divide", o.GDNChunk, p.info.Architecture)
		}
		return badOption("gdn-chunk", "%d: want a divisor of the batch, %d", o.GDNChunk, o.Batch)
	}
	if n := x.GDNChunkSize; n > 0 && n < 16 && n < o.Batch {
		p.warnings = append(p.warnings, fmt.Sprintf("batches of %d tokens go through the delta rule %d at a time: a batch that is a multiple of 64 would be faster", o.Batch, n))
	}
	if e := x.MoE; e != nil && !o.LargeMoE {
		bits := int64(o.FFN.Bits)
		if bits == 0 {
			bits = 16
		}
		if size := e.Parameters / 8 * bits; size > expertLimit {
			return fmt.Errorf("the experts of all layers hold %.1f billion weights, %.1f GB as they would be stored: a package computes all %d experts for every token, where the model takes %d, and keeps all of them in memory, once for each function; choose a smaller model, or allow it (--allow-large-moe)",
				float64(e.Parameters)/1e9, float64(size)/1e9, e.Experts, e.ExpertsPerToken)
		}
	}
	return nil
}

// extendMeta writes down what an extended architecture says about a package.
func extendMeta(m *Meta, x arch.Extension) {
	m.RecurrentState, m.PrefillFullBatchesOnly, m.GDNChunkSize = x.RecurrentState, x.PrefillFullBatchesOnly, x.GDNChunkSize
	if e := x.MoE; e != nil {
		m.MoE = &MoE{Experts: e.Experts, ExpertsPerToken: e.ExpertsPerToken, Evaluation: e.Evaluation}
	}
	m.LocalAttentionWindow, m.LocalCacheLength = x.LocalAttentionWindow, x.LocalCacheLength
	m.FinalLogitSoftcap, m.PerLayerInputs, m.KVSharedLayers = x.FinalLogitSoftcap, x.PerLayerInputs, x.KVSharedLayers
	m.LayerTypes = x.LayerTypes
	for _, s := range x.States {
		m.States = append(m.States, StateInfo{Name: s.Name, Shape: s.Shape, DType: "float16", Layers: s.Layers})
	}
}

// setAside divides the tensors that were not used into those that belong to
// something a package has no place for, of which it says how many there are,
// and the rest.
func setAside(m arch.Model, unused []string) (rest, said []string) {
	x, ok := m.(arch.Partial)
	if !ok {
		return unused, nil
	}
	count := map[string]int{}
	var order []string
	for _, name := range unused {
		what := x.Aside(name)
		if what == "" {
			rest = append(rest, name)
			continue
		}
		if count[what]++; count[what] == 1 {
			order = append(order, what)
		}
	}
	for _, what := range order {
		said = append(said, fmt.Sprintf("%s: %d tensors set aside", what, count[what]))
	}
	return rest, said
}

// unusedWarning says that there are tensors that nothing has a place for: a
// model that another architecture's name was put on would lose its own so.
func unusedWarning(names []string) []string {
	if len(names) == 0 {
		return nil
	}
	list := strings.Join(names[:min(len(names), 3)], ", ")
	if n := len(names) - 3; n > 0 {
		list += fmt.Sprintf(" and %d more (--json lists them)", n)
	}
	return []string{fmt.Sprintf("not used, as nothing in this architecture reads it: %s; a model that needs it would be another one", list)}
}

// metadata returns what every part says about itself, the way ANEMLL does.
func (p *plan) metadata(kind string) coreml.Metadata {
	return coreml.Metadata{
		ShortDescription: "Anemll Model" + kind,
		Version:          FormatVersion,
		Author:           fmt.Sprintf("Converted with %s v%s", Generator, Version),
		User: map[string]string{
			"com.anemll.info":           fmt.Sprintf("Converted with %s v%s", Generator, Version),
			"com.anemll.context_length": strconv.Itoa(p.opts.Context),
		},
	}
}

func lutBits(md coreml.Metadata, e compress.Encoding) {
	if e.Bits != 0 {
		md.User["com.anemll.lut_bits"] = strconv.Itoa(e.Bits)
	}
}

func (p *plan) embeddingsMeta() coreml.Metadata {
	md := p.metadata(" (Embeddings) converted to CoreML")
	lutBits(md, p.opts.Embeddings)
	return md
}

func (p *plan) chunkMeta(i, n, first, last int) coreml.Metadata {
	md := p.metadata(": Multifunction FFN+Prefill")
	lutBits(md, p.opts.FFN)
	md.User["com.anemll.batch_size"] = strconv.Itoa(p.opts.Batch)
	md.User["com.anemll.num_chunks"] = strconv.Itoa(n)
	md.User["com.anemll.chunk_no"] = strconv.Itoa(i + 1)
	md.User["com.anemll.layers"] = fmt.Sprintf("%d-%d", first, last-1)
	return md
}

func (p *plan) headMeta() coreml.Metadata {
	md := p.metadata(" (LM Head) converted to CoreML")
	lutBits(md, p.opts.Head)
	md.User["com.anemll.vocab_size"] = strconv.Itoa(p.info.Vocab)
	var s []string
	for _, w := range p.meta.LMHeadChunkSizes {
		s = append(s, strconv.Itoa(w))
	}
	md.User["com.anemll.lm_head_chunk_sizes"] = strings.Join(s, ",")
	return md
}
