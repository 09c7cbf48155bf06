package anemll

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"anemone/coreml"
	"anemone/coreml/mlmodelc"
	"anemone/coreml/mlpackage"
	"anemone/internal/checkpoint/gguf"
	"anemone/internal/platform"
)

// Part is one Core ML model of a package.
type Part struct {
	Name  string // of the file, without extension
	Path  string
	Model *coreml.Model

	close func() error
}

// Close releases the part's files; its weights cannot be read after it.
func (p *Part) Close() error {
	if p == nil || p.close == nil {
		return nil
	}
	return p.close()
}

// Package is a model in ANEMLL's layout: three kinds of parts that a token
// passes in turn, and what meta.yaml says about them. A monolithic package has
// one part, its only chunk, that turns token ids into logits: Embeddings and
// Head are nil.
type Package struct {
	Dir  string // empty if it was assembled from models
	Meta *Meta

	Embeddings *Part   // token ids to hidden states
	Chunks     []*Part // decoder layers, in order
	Head       *Part   // final hidden state to logits
	// Beside holds further models of the chunks: those of a split-rotate
	// package have infer_rotate and prefill_rotate in files of their own. Each
	// element has one model per chunk.
	Beside [][]*Part

	// Layout is what the models themselves say about shapes and names.
	Layout

	// Problems lists what is odd about the package but does not keep it from
	// running: above all, where meta.yaml disagrees with the models.
	Problems []string
}

// Close releases every part.
func (p *Package) Close() error {
	var errs []error
	for _, part := range p.Parts() {
		errs = append(errs, part.Close())
	}
	return errors.Join(errs...)
}

func (p *Package) problem(format string, args ...any) {
	p.Problems = append(p.Problems, fmt.Sprintf(format, args...))
}

// Parts returns all parts in the order in which a token passes them; those
// beside the chunks follow the chunks.
func (p *Package) Parts() []*Part {
	var parts []*Part
	if p.Embeddings != nil {
		parts = append(parts, p.Embeddings)
	}
	parts = append(parts, p.Chunks...)
	for _, set := range p.Beside {
		parts = append(parts, set...)
	}
	if p.Head != nil {
		parts = append(parts, p.Head)
	}
	return parts
}

// Monolithic reports whether one model does everything.
func (p *Package) Monolithic() bool { return p.Embeddings == nil && p.Head == nil }

// HeadPart returns the part that gives the logits: the LM head, or the model
// of a monolithic package.
func (p *Package) HeadPart() *Part {
	if p.Head != nil {
		return p.Head
	}
	return p.Chunks[len(p.Chunks)-1]
}

// Decoder returns a function of a chunk and the part that has it: the chunk
// itself, or a model beside it. It is nil if neither has it.
func (p *Package) Decoder(chunk int, function string) (*Part, *coreml.Function) {
	parts := []*Part{p.Chunks[chunk]}
	for _, set := range p.Beside {
		parts = append(parts, set[chunk])
	}
	for _, part := range parts {
		if part.Model == nil {
			continue
		}
		if f := part.Model.Function(function); f != nil {
			return part, f
		}
	}
	return nil, nil
}

// Open opens the package in a folder (or that a meta.yaml belongs to). Parts
// are found as ANEMLL's runtimes find them: by the names in meta.yaml, whose
// extensions do not matter, or else by the prefix and the bits of the LUT;
// chunks by their numbers, all of which must be there. Of a part that is there
// as .mlmodelc and as .mlpackage, the compiled one is taken if it can be read.
// Shapes come from the models, and the parts must fit each other; see [Layout].
func Open(dir string) (*Package, error) {
	if filepath.Base(dir) == MetaFile {
		dir = filepath.Dir(dir)
	}
	p, err := open(dir)
	if err != nil {
		return nil, fmt.Errorf("package %s: %w", dir, err)
	}
	return p, nil
}

// ReadMeta reads the meta.yaml in a folder.
func ReadMeta(dir string) (*Meta, error) {
	f, err := platform.Open(filepath.Join(dir, MetaFile))
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			if _, e := os.Stat(filepath.Join(dir, "config.json")); e == nil {
				return nil, fmt.Errorf("no %s in it: this is no ANEMLL package (if it is a checkpoint, convert it first): %w", MetaFile, os.ErrNotExist)
			}
			return nil, fmt.Errorf("no %s in it: this is no ANEMLL package: %w", MetaFile, os.ErrNotExist)
		}
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxMetaBytes+1))
	if err != nil {
		return nil, err
	}
	return ParseMeta(data)
}

func open(dir string) (_ *Package, err error) {
	if gguf.IsFile(dir) {
		return nil, errors.New("this is a GGUF file, not a package: convert it first, and name the folder that this makes")
	}
	if st, err := os.Stat(dir); err == nil && !st.IsDir() {
		return nil, errors.New("this is a file, not the folder of a package")
	}
	meta, err := ReadMeta(dir)
	if err != nil {
		return nil, err
	}
	f, err := listFolder(dir)
	if err != nil {
		return nil, err
	}
	p := &Package{Dir: dir, Meta: meta}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	one := func(name string) (*Part, error) { return p.openPart(f, name) }

	mono, err := f.findMonolithic(p)
	if err != nil {
		return nil, err
	}
	if mono != "" {
		c, err := one(mono)
		if err != nil {
			return nil, err
		}
		p.Chunks = []*Part{c}
		return p, p.inspect()
	}
	emb, err := f.find(p, "embeddings", meta.Embeddings, meta.EmbeddingsName(), meta.ModelPrefix+"_embeddings")
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
	head, err := f.find(p, "lm_head", meta.LMHead, meta.LMHeadName(), meta.ModelPrefix+"_lm_head")
	if err != nil {
		return nil, err
	}
	if p.Embeddings, err = one(emb); err != nil {
		return nil, err
	}
	for _, name := range chunks {
		c, err := one(name)
		if err != nil {
			return nil, err
		}
		p.Chunks = append(p.Chunks, c)
	}
	for i, set := range beside {
		p.Beside = append(p.Beside, nil)
		for _, name := range set {
			c, err := one(name)
			if err != nil {
				return nil, err
			}
			p.Beside[i] = append(p.Beside[i], c)
		}
	}
	if p.Head, err = one(head); err != nil {
		return nil, err
	}
	return p, p.inspect()
}

// Assemble makes a package of models that are at hand; meta.yaml's file names
// play no part. Embeddings and head are nil for a monolithic model. The models
// stay the caller's: Close does not release them.
func Assemble(meta *Meta, embeddings *coreml.Model, chunks []*coreml.Model, head *coreml.Model) (*Package, error) {
	p := &Package{Meta: meta}
	mono := embeddings == nil && head == nil && len(chunks) == 1
	if !mono {
		p.Embeddings = &Part{Name: meta.EmbeddingsName(), Model: embeddings}
		p.Head = &Part{Name: meta.LMHeadName(), Model: head}
	}
	for i, c := range chunks {
		name := meta.ChunkName(i, len(chunks))
		if mono {
			name = meta.MonolithicName()
		}
		p.Chunks = append(p.Chunks, &Part{Name: name, Model: c})
	}
	if err := p.inspect(); err != nil {
		return nil, err
	}
	return p, nil
}

// openPart opens a bundle. Where both forms of it are there and the first
// cannot be read, the other one is taken.
func (p *Package) openPart(f folder, name string) (*Part, error) {
	base, ext := cutExt(name)
	part, err := openBundle(p.Dir, base, ext)
	if err == nil {
		return part, nil
	}
	for _, other := range bundleExts {
		if other == ext || !slices.Contains(f[base], other) {
			continue
		}
		part, err2 := openBundle(p.Dir, base, other)
		if err2 != nil {
			return nil, fmt.Errorf("%w (and %s: %w)", err, base+other, err2)
		}
		p.problem("%s cannot be read, %s is taken: %v", name, base+other, err)
		return part, nil
	}
	return nil, err
}

func openBundle(dir, base, ext string) (*Part, error) {
	path := filepath.Join(dir, base+ext)
	part := &Part{Name: base, Path: path}
	if ext == compiledExt {
		b, err := mlmodelc.Open(path)
		if err != nil {
			return nil, err
		}
		part.Model, part.close = b.Model, b.Close
		return part, nil
	}
	b, err := mlpackage.Open(path)
	if err != nil {
		return nil, err
	}
	part.Model, part.close = b.Model, b.Close
	return part, nil
}

const (
	packageExt  = ".mlpackage"
	compiledExt = ".mlmodelc"
)

// bundleExts are the forms of a model, first the one that is taken if both are
// there: ANEMLL's runtimes look for that one first.
var bundleExts = []string{compiledExt, packageExt}

// cutExt removes the extensions of Core ML bundles and nothing else: a prefix
// such as qwen3-0.6B has dots of its own.
func cutExt(name string) (base, ext string) {
	for _, ext := range bundleExts {
		if base, ok := strings.CutSuffix(name, ext); ok {
			return base, ext
		}
	}
	return name, ""
}

// folder is the list of bundles in a package folder: base name to the
// extensions that are there.
type folder map[string][]string

func listFolder(dir string) (folder, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	f := folder{}
	for _, e := range entries {
		if base, ext := cutExt(e.Name()); ext != "" && base != "" {
			f[base] = append(f[base], ext)
		}
	}
	return f, nil
}

// bundle returns the file of a base name, in the preferred form if both are
// there; "" if there is none.
func (f folder) bundle(base string) string {
	for _, ext := range bundleExts {
		if slices.Contains(f[base], ext) {
			return base + ext
		}
	}
	return ""
}

// find looks for the embeddings or LM head: the name that meta.yaml gives,
// the one by the rules, the one without a suffix, and at last the only file
// that differs from it in nothing but the suffix. (ANEMLL's generator writes
// "none" for parts that were not compiled when it ran.)
func (f folder) find(p *Package, key, given, rule, bare string) (string, error) {
	var names []string
	if given != "" {
		base, _ := cutExt(given)
		if err := checkName(key, base); err != nil {
			return "", err
		}
		names = append(names, base)
	}
	if err := checkName("model_prefix", rule); err != nil {
		return "", err
	}
	for _, n := range []string{rule, bare} {
		if !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	for i, n := range names {
		b := f.bundle(n)
		if b == "" {
			continue
		}
		if i > 0 && given != "" {
			p.problem("meta.yaml names %s as %s, which is not there; %s is taken", given, key, b)
		}
		return b, nil
	}
	re := regexp.MustCompile(`^` + regexp.QuoteMeta(bare) + `_(lut|int)\d+$`)
	var like []string
	for base := range f {
		if re.MatchString(base) {
			like = append(like, base)
		}
	}
	slices.Sort(like)
	if len(like) == 1 {
		b := f.bundle(like[0])
		p.problem("meta.yaml leads to %s for %s, which is not there; %s is taken", names[0], key, b)
		return b, nil
	}
	return "", f.missing(key, names)
}

func (f folder) missing(key string, names []string) error {
	for i := range names {
		names[i] += compiledExt + " (or " + packageExt + ")"
	}
	var have []string
	for base, exts := range f {
		for _, e := range exts {
			have = append(have, base+e)
		}
	}
	slices.Sort(have)
	there := strings.Join(have, ", ")
	if len(have) == 0 {
		there = "no Core ML model"
	} else if len(have) > 12 {
		there = strings.Join(have[:12], ", ") + fmt.Sprintf(" and %d more", len(have)-12)
	}
	return fmt.Errorf("%s: wanted %s; in the folder: %s: %w", key, strings.Join(names, " or "), there, os.ErrNotExist)
}

// checkName refuses names that lead out of the folder.
func checkName(key, name string) error {
	if name == "" || name == "." || strings.ContainsAny(name, "/\\\x00") || !filepath.IsLocal(name) || !utf8.ValidString(name) {
		return fmt.Errorf("%s: %s: found %q, wanted the name of a file in the package folder", MetaFile, key, name)
	}
	return nil
}

var chunkPattern = regexp.MustCompile(`^(.+)_chunk_(\d{1,4})of(\d{1,4})$`)

// cutChunk splits <base>_chunk_01of02.
func cutChunk(name string) (base string, i, n int, ok bool) {
	m := chunkPattern.FindStringSubmatch(name)
	if m == nil {
		return name, 0, 0, false
	}
	i, _ = strconv.Atoi(m[2])
	n, _ = strconv.Atoi(m[3])
	return m[1], i, n, i >= 1 && i <= n && n <= maxChunks
}

// chunkSet is a set of files <base>_chunk_<i>of<n>; the _rot files of a
// split-rotate package do not match.
type chunkSet struct {
	base string
	n    int
}

func (f folder) findChunks(p *Package) ([]string, error) {
	m := p.Meta
	sets := map[chunkSet]map[int]string{} // number of the chunk to base name
	for base := range f {
		if b, i, n, ok := cutChunk(base); ok {
			k := chunkSet{b, n}
			if sets[k] == nil {
				sets[k] = map[int]string{}
			}
			sets[k][i] = base
		}
	}
	// The bases to look for, best first.
	var bases, tried []string
	wantN := 0
	if m.FFN != "" {
		name, _ := cutExt(m.FFN)
		if err := checkName("ffn", name); err != nil {
			return nil, err
		}
		b, _, n, ok := cutChunk(name)
		if ok {
			wantN = n
		} else if b := f.bundle(name); b != "" {
			p.checkCount(1)
			return []string{b}, nil
		}
		bases = append(bases, b)
		tried = append(tried, name)
	}
	if err := checkName("model_prefix", m.ModelPrefix); err != nil {
		return nil, err
	}
	sfx := suffix(m.LUTFFN, m.QuantFFN)
	for _, kind := range []string{"_FFN_PF", "_FFN"} {
		for _, s := range []string{sfx, ""} {
			if b := m.ModelPrefix + kind + s; !slices.Contains(bases, b) {
				bases = append(bases, b)
			}
		}
	}
	tried = append(tried, m.ChunkName(0, m.NumChunks))

	pick := func(base string) (set chunkSet, ok bool, err error) {
		var ns []int
		for k := range sets {
			if k.base == base {
				ns = append(ns, k.n)
			}
		}
		slices.Sort(ns)
		switch {
		case len(ns) == 0:
			return chunkSet{}, false, nil
		case slices.Contains(ns, wantN):
			return chunkSet{base, wantN}, true, nil
		case slices.Contains(ns, m.NumChunks) && m.Given("num_chunks"):
			return chunkSet{base, m.NumChunks}, true, nil
		case len(ns) == 1:
			return chunkSet{base, ns[0]}, true, nil
		}
		return chunkSet{}, false, fmt.Errorf("ffn: the folder has %s_chunk_* in sets of %v, and meta.yaml does not say which one", base, ns)
	}
	for i, b := range bases {
		set, ok, err := pick(b)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		if m.FFN != "" && (i > 0 || wantN != 0 && set.n != wantN) {
			p.problem("meta.yaml names %s as ffn, which is not there; %s is taken", m.FFN, chunkName(set.base, 0, set.n))
		}
		return f.wholeSet(p, set, sets[set])
	}
	// A single model without a number.
	for _, b := range bases {
		if name := f.bundle(b); name != "" {
			p.checkCount(1)
			return []string{name}, nil
		}
	}
	// Any decoder of this prefix, whatever its suffix.
	re := regexp.MustCompile(`^` + regexp.QuoteMeta(m.ModelPrefix) + `_FFN(_PF)?_(lut|int)\d+$`)
	var like []chunkSet
	for k := range sets {
		if re.MatchString(k.base) {
			like = append(like, k)
		}
	}
	if len(like) == 1 {
		p.problem("meta.yaml leads to %s for ffn, which is not there; %s is taken", tried[0], chunkName(like[0].base, 0, like[0].n))
		return f.wholeSet(p, like[0], sets[like[0]])
	}
	return nil, f.missing("ffn", tried)
}

// wholeSet returns the files of a set of chunks, all of which must be there.
func (f folder) wholeSet(p *Package, set chunkSet, found map[int]string) ([]string, error) {
	files := make([]string, set.n)
	for i := range files {
		base, ok := found[i+1]
		if !ok {
			return nil, fmt.Errorf("ffn: chunk %d of %d is missing: wanted %s; %d of them are there: %w",
				i+1, set.n, chunkName(set.base, i, set.n)+compiledExt+" (or "+packageExt+")", len(found), os.ErrNotExist)
		}
		files[i] = f.bundle(base)
	}
	p.checkCount(set.n)
	return files, nil
}

// monolithicPattern matches what may stand between the prefix of a monolithic
// model and the end of its name: the encoding, and what ANEMLL's --decorate
// adds. The parts before ANEMLL combines them (_rotate, _prefill) do not match.
const monolithicPattern = `_monolithic(_full|_combined)?(_(lut|LUT|int)\d+|_FP16)?(_CTX\d+)?(_ATT\d+)?$`

// findMonolithic returns the file of a monolithic package, "" if it is a
// package in parts. A meta.yaml that says nothing of either kind (those of old
// packages) is believed to mean parts if there are any.
func (f folder) findMonolithic(p *Package) (string, error) {
	m := p.Meta
	if err := checkName("model_prefix", m.ModelPrefix); err != nil {
		return "", err
	}
	re := regexp.MustCompile(`^` + regexp.QuoteMeta(m.ModelPrefix) + monolithicPattern)
	var like []string
	parts := false
	for base := range f {
		if re.MatchString(base) {
			like = append(like, base)
		}
		_, _, _, chunk := cutChunk(base)
		parts = parts || chunk || strings.Contains(base, "_embeddings")
	}
	slices.Sort(like)
	if !m.Monolithic() {
		if parts || len(like) != 1 || m.Embeddings != "" || m.FFN != "" {
			return "", nil
		}
		b := f.bundle(like[0])
		p.problem("meta.yaml does not say model_type: monolithic; there is nothing but %s, which is taken", b)
		return b, nil
	}
	var names []string
	if m.MonolithicModel != "" {
		base, _ := cutExt(m.MonolithicModel)
		if err := checkName("monolithic_model", base); err != nil {
			return "", err
		}
		names = append(names, base)
	}
	sfx := suffix(m.LUTMonolithic, "")
	for _, n := range []string{m.MonolithicName(), m.ModelPrefix + "_monolithic_full", m.ModelPrefix + "_monolithic" + sfx, m.ModelPrefix + "_monolithic"} {
		if !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	for i, n := range names {
		if b := f.bundle(n); b != "" {
			if i > 0 && m.MonolithicModel != "" {
				p.problem("meta.yaml names %s as monolithic_model, which is not there; %s is taken", m.MonolithicModel, b)
			}
			return b, nil
		}
	}
	if len(like) == 1 {
		b := f.bundle(like[0])
		p.problem("meta.yaml leads to %s for monolithic_model, which is not there; %s is taken", names[0], b)
		return b, nil
	}
	return "", f.missing("monolithic_model", names)
}

var chunkNumber = regexp.MustCompile(`_chunk_\d{1,4}of\d{1,4}`)

// findBeside looks for the models that hold further functions of the chunks:
// those that meta.yaml names as pf, the chunks' own names with _rot, and, where
// meta.yaml speaks of split_rotate, <prefix>_PF[_lutN]_chunk_01of02. Of a set
// that is there, all must be.
func (f folder) findBeside(p *Package, chunks []string) (sets [][]string, err error) {
	m, n := p.Meta, len(chunks)
	var rules []func(i int) string
	if m.PF != "" {
		pf, _ := cutExt(m.PF)
		if err := checkName("pf", pf); err != nil {
			return nil, err
		}
		rules = append(rules, func(i int) string {
			if loc := chunkNumber.FindStringIndex(pf); loc != nil {
				return chunkName(pf[:loc[0]], i, n) + pf[loc[1]:]
			} else if n == 1 {
				return pf
			}
			return chunkName(pf, i, n)
		})
	}
	rules = append(rules, func(i int) string {
		base, _ := cutExt(chunks[i])
		return base + "_rot"
	})
	if m.SplitRotate {
		for _, s := range []string{suffix(m.LUTFFN, m.QuantFFN), ""} {
			rules = append(rules, func(i int) string { return chunkName(m.ModelPrefix+"_PF"+s, i, n) })
		}
	}
	seen := map[string]bool{}
	for _, c := range chunks {
		base, _ := cutExt(c)
		seen[base] = true
	}
	for _, rule := range rules {
		if seen[rule(0)] {
			continue
		}
		set := make([]string, 0, n)
		missing := ""
		for i := range n {
			name := rule(i)
			seen[name] = true
			if b := f.bundle(name); b != "" {
				set = append(set, b)
			} else if missing == "" {
				missing = name
			}
		}
		switch {
		case len(set) == n:
			sets = append(sets, set)
		case len(set) > 0:
			return nil, fmt.Errorf("pf: %s is missing; %d of %d of its kind are there: %w", missing, len(set), n, os.ErrNotExist)
		}
	}
	if len(sets) == 0 && (m.PF != "" || m.SplitRotate) {
		name := rules[0](0)
		p.problem("meta.yaml speaks of a second set of chunks (%s), which is not there", name)
	}
	return sets, nil
}

func (p *Package) checkCount(n int) {
	if p.Meta.Given("num_chunks") && p.Meta.NumChunks != n {
		p.problem("meta.yaml says num_chunks: %d, the folder has %d", p.Meta.NumChunks, n)
	}
}
