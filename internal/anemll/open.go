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

	"anemone/coreml"
	"anemone/coreml/mlpackage"
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
// passes in turn, and what meta.yaml says about them.
type Package struct {
	Dir  string // empty if it was assembled from models
	Meta *Meta

	Embeddings *Part   // token ids to hidden states
	Chunks     []*Part // decoder layers, in order
	Head       *Part   // final hidden state to logits

	// Layout is what the models themselves say about shapes and names.
	Layout

	// Problems lists what is odd about the package but does not keep it from
	// running: above all, where meta.yaml disagrees with the models.
	Problems []string
}

// Close releases every part.
func (p *Package) Close() error {
	errs := []error{p.Embeddings.Close(), p.Head.Close()}
	for _, c := range p.Chunks {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

func (p *Package) problem(format string, args ...any) {
	p.Problems = append(p.Problems, fmt.Sprintf(format, args...))
}

// Parts returns all parts in the order in which a token passes them.
func (p *Package) Parts() []*Part {
	return append(append([]*Part{p.Embeddings}, p.Chunks...), p.Head)
}

// Open opens the package in a folder (or that a meta.yaml belongs to). Parts
// are found as ANEMLL's runtimes find them: by the names in meta.yaml, whose
// extensions do not matter, or else by the prefix and the bits of the LUT;
// chunks by their numbers, all of which must be there. Shapes come from the
// models, and the parts must fit each other; see [Layout].
//
// Kinds of packages that cannot be run yet are errors that match
// [errors.ErrUnsupported].
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
	f, err := os.Open(filepath.Join(dir, MetaFile))
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
	meta, err := ReadMeta(dir)
	if err != nil {
		return nil, err
	}
	if meta.Monolithic() {
		return nil, fmt.Errorf("it is monolithic (one model for embeddings, decoder and LM head); this version runs packages in parts: %w", errors.ErrUnsupported)
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

	emb, err := f.find(p, "embeddings", meta.Embeddings, meta.EmbeddingsName(), meta.ModelPrefix+"_embeddings")
	if err != nil {
		return nil, err
	}
	chunks, err := f.findChunks(p)
	if err != nil {
		return nil, err
	}
	head, err := f.find(p, "lm_head", meta.LMHead, meta.LMHeadName(), meta.ModelPrefix+"_lm_head")
	if err != nil {
		return nil, err
	}
	if p.Embeddings, err = openPart(dir, emb); err != nil {
		return nil, err
	}
	for _, name := range chunks {
		c, err := openPart(dir, name)
		if err != nil {
			return nil, err
		}
		p.Chunks = append(p.Chunks, c)
	}
	if p.Head, err = openPart(dir, head); err != nil {
		return nil, err
	}
	return p, p.inspect()
}

// Assemble makes a package of models that are at hand; meta.yaml's file names
// play no part. The models stay the caller's: Close does not release them.
func Assemble(meta *Meta, embeddings *coreml.Model, chunks []*coreml.Model, head *coreml.Model) (*Package, error) {
	p := &Package{Meta: meta}
	p.Embeddings = &Part{Name: meta.EmbeddingsName(), Model: embeddings}
	for i, c := range chunks {
		p.Chunks = append(p.Chunks, &Part{Name: meta.ChunkName(i, len(chunks)), Model: c})
	}
	p.Head = &Part{Name: meta.LMHeadName(), Model: head}
	if err := p.inspect(); err != nil {
		return nil, err
	}
	return p, nil
}

func openPart(dir, name string) (*Part, error) {
	path := filepath.Join(dir, name)
	b, err := mlpackage.Open(path)
	if err != nil {
		return nil, err
	}
	base, _ := cutExt(name)
	return &Part{Name: base, Path: path, Model: b.Model, close: b.Close}, nil
}

const (
	packageExt  = ".mlpackage"
	compiledExt = ".mlmodelc"
)

// cutExt removes the extensions of Core ML bundles and nothing else: a prefix
// such as qwen3-0.6B has dots of its own.
func cutExt(name string) (base, ext string) {
	for _, ext := range []string{packageExt, compiledExt} {
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

// bundle returns the file of a base name that this version can open.
func (f folder) bundle(base string) (string, error) {
	exts := f[base]
	switch {
	case slices.Contains(exts, packageExt):
		return base + packageExt, nil
	case slices.Contains(exts, compiledExt):
		return "", fmt.Errorf("found only %s%s; this version reads %s: %w", base, compiledExt, packageExt, errors.ErrUnsupported)
	}
	return "", os.ErrNotExist
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
		b, err := f.bundle(n)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", key, err)
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
		b, err := f.bundle(like[0])
		if err != nil {
			return "", fmt.Errorf("%s: %w", key, err)
		}
		p.problem("meta.yaml leads to %s for %s, which is not there; %s is taken", names[0], key, b)
		return b, nil
	}
	return "", f.missing(key, names)
}

func (f folder) missing(key string, names []string) error {
	for i := range names {
		names[i] += packageExt
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
	if name == "" || name == "." || strings.ContainsAny(name, "/\\\x00") || !filepath.IsLocal(name) {
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
		} else if _, err := f.bundle(name); err == nil || !errors.Is(err, os.ErrNotExist) {
			if err != nil {
				return nil, fmt.Errorf("ffn: %w", err)
			}
			p.checkCount(1)
			return []string{name + packageExt}, nil
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
		if name, err := f.bundle(b); err == nil {
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
				i+1, set.n, chunkName(set.base, i, set.n)+packageExt, len(found), os.ErrNotExist)
		}
		name, err := f.bundle(base)
		if err != nil {
			return nil, fmt.Errorf("ffn: %w", err)
		}
		files[i] = name
	}
	p.checkCount(set.n)
	return files, nil
}

func (p *Package) checkCount(n int) {
	if p.Meta.Given("num_chunks") && p.Meta.NumChunks != n {
		p.problem("meta.yaml says num_chunks: %d, the folder has %d", p.Meta.NumChunks, n)
	}
}
