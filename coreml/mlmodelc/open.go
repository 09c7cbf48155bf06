package mlmodelc

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"anemone/coreml"
	"anemone/coreml/internal/bundle"
	"anemone/coreml/mlpackage"
	"anemone/coreml/modelproto"
	"anemone/internal/platform"
	"anemone/mil"
	"anemone/mil/blob"
	"anemone/mil/miltext"
)

const (
	dataName      = "coremldata.bin"
	textName      = "model.mil"
	metadataName  = "metadata.json"
	analyticsName = "analytics/coremldata.bin"
	// maxExtra bounds the files that only tools need, which are kilobytes.
	maxExtra = 1 << 22
)

// File is a file of weights.
type File = mlpackage.File

// Package is an open model.
type Package struct {
	Path  string
	Model *coreml.Model
	// Format is the version of the compiled format. A system refuses what is
	// newer than its own: 5 is iOS 15, 8 iOS 17, 9 iOS 18.
	Format int
	// Files are the files of weights that the program refers to, by name.
	Files []File
	// Details are what the bundle says beside its model. What only the files
	// for tools hold is empty where those are absent or damaged.
	Details Details

	readers map[string]*blob.Reader
	refs    map[mil.Weight]miltext.BlobRef
}

var _ coreml.Stored = (*Package)(nil)

// WeightRef returns where a weight of the model lies: the name of the file as
// the program has it, and the offset of its record there.
func (p *Package) WeightRef(w mil.Weight) (file string, offset uint64, ok bool) {
	ref, ok := p.refs[w]
	return ref.File, ref.Offset, ok
}

// WeightFile returns the path of a file of weights.
func (p *Package) WeightFile(name string) (path string, ok bool) {
	for _, f := range p.Files {
		if f.Name == name {
			return f.Path, true
		}
	}
	return "", false
}

// WeightBytes returns the size of all files of weights.
func (p *Package) WeightBytes() (n int64) {
	for _, f := range p.Files {
		n += f.Size
	}
	return n
}

// Close releases the mapped files. The weights of the model cannot be read
// after it.
func (p *Package) Close() error {
	var errs []error
	for _, r := range p.readers {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}

// Open reads a .mlmodelc folder. The files of weights are mapped into memory,
// not read; the model's weights are slices of them, so the package must stay
// open as long as they are in use.
//
// The model is the one that was compiled: functions and inputs are in the
// order of the description, and what the compiler added to the program (its
// version, the repetition of flexible shapes) is not part of it; see
// [Package.Details]. Whether its operations make sense is [mil.Verify]'s to
// say.
//
// Paths in the program that lead out of the bundle are refused. Symbolic links
// are followed wherever they lead, as the caches of download tools are made
// of them.
func Open(path string) (*Package, error) {
	p := &Package{Path: path, readers: map[string]*blob.Reader{}, refs: map[mil.Weight]miltext.BlobRef{}}
	if err := p.open(); err != nil {
		p.Close()
		return nil, fmt.Errorf("open model %s: %w", path, err)
	}
	return p, nil
}

func (p *Package) open() error {
	st, err := os.Stat(p.Path)
	if err != nil {
		return err
	}
	if !st.IsDir() {
		return errors.New("not a compiled model: not a folder")
	}
	m := &coreml.Model{}
	err = p.mapped(dataName, func(b []byte) error {
		c, err := parseContainer(b)
		if err != nil {
			return err
		}
		d, spec, err := c.description()
		if err != nil {
			return err
		}
		m.SpecVersion = spec
		p.Format = int(min(c.Format.Major, math.MaxInt32))
		p.Details.UserOrder = parseUserOrder(c.Description)
		return modelproto.DecodeDescription(m, d)
	})
	if err != nil {
		return err
	}
	if err := p.mapped(textName, func(b []byte) error { return p.program(m, b) }); err != nil {
		return err
	}
	if err := modelproto.CheckNames(m); err != nil {
		return err
	}
	p.extras()
	slices.SortFunc(p.Files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	p.Model = m
	return nil
}

// mapped reads a file of the bundle. Nothing of its bytes may be kept.
func (p *Package) mapped(name string, read func([]byte) error) error {
	f, err := bundle.OpenRegular(filepath.Join(p.Path, filepath.FromSlash(name)))
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("not a whole compiled model: %w", err)
		}
		return err
	}
	defer f.Close()
	b, err := platform.Mmap(f)
	if err != nil {
		return err
	}
	if err := errors.Join(read(b), platform.Munmap(b)); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// program reads the text and takes out what the compiler added.
func (p *Package) program(m *coreml.Model, text []byte) error {
	if isPointer(text) {
		return errPointer
	}
	prog, err := miltext.Parse(text, miltext.ParseOptions{
		Weight: func(ref miltext.BlobRef, t mil.Type) (mil.Weight, error) {
			r, err := p.reader(ref.File)
			if err != nil {
				return nil, err
			}
			w, err := r.Weight(ref.Offset, t)
			if err == nil {
				p.refs[w] = ref
			}
			return w, err
		},
	})
	if err != nil {
		return err
	}
	// The description has the order of functions and inputs.
	at := map[string]int{}
	for i, f := range m.Functions {
		at[f.Name] = i
	}
	place := func(at map[string]int, name string) int {
		if i, ok := at[name]; ok {
			return i
		}
		return len(at)
	}
	slices.SortStableFunc(prog.Functions, func(a, b *mil.Function) int {
		return cmp.Or(cmp.Compare(place(at, a.Name), place(at, b.Name)), strings.Compare(a.Name, b.Name))
	})
	for _, f := range prog.Functions {
		d := m.Function(f.Name)
		if keys := splitFlexible(f, d); keys != nil {
			if p.Details.ShapeKeys == nil {
				p.Details.ShapeKeys = map[string][]string{}
			}
			p.Details.ShapeKeys[f.Name] = keys
		}
		if d == nil {
			continue
		}
		at := map[string]int{}
		for _, in := range slices.Concat(d.Inputs, d.States) {
			if _, ok := at[in.Name]; !ok {
				at[in.Name] = len(at)
			}
		}
		slices.SortStableFunc(f.Inputs, func(a, b *mil.Value) int {
			return cmp.Compare(place(at, a.Name), place(at, b.Name))
		})
	}
	splitBuildInfo(prog, &p.Details)
	m.Program = prog
	return nil
}

// reader maps the file of weights that the program calls name.
func (p *Package) reader(name string) (*blob.Reader, error) {
	if r := p.readers[name]; r != nil {
		return r, nil
	}
	rel, err := bundle.WeightPath(name)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(p.Path, filepath.FromSlash(rel))
	f, err := bundle.OpenRegular(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	head := make([]byte, 64)
	if n, _ := f.ReadAt(head, 0); isPointer(head[:n]) {
		return nil, errPointer
	}
	r, err := blob.OpenFile(f)
	if err != nil {
		return nil, err
	}
	p.readers[name] = r
	p.Files = append(p.Files, File{Name: name, Path: file, Size: r.Size()})
	return r, nil
}

// extras reads what the files for tools say. A model works without them.
func (p *Package) extras() {
	if b := p.extra(metadataName); b != nil {
		p.Details.ClassName = readClassName(b)
	}
	sections, err := parseAnalytics(p.extra(analyticsName))
	if err != nil {
		return
	}
	for _, s := range sections {
		for _, e := range s.Entries {
			switch {
			case s.Name == specSection && e[0] == "modelHash":
				p.Details.ModelHash = e[1]
			case s.Name == specSection && e[0] == "modelName":
				p.Details.ModelName = e[1]
			}
		}
	}
}

func (p *Package) extra(name string) []byte {
	f, err := bundle.OpenRegular(filepath.Join(p.Path, filepath.FromSlash(name)))
	if err != nil {
		return nil
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxExtra))
	if err != nil {
		return nil
	}
	return b
}
