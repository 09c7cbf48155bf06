package mlpackage

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"anemone/coreml"
	"anemone/coreml/internal/bundle"
	"anemone/coreml/modelproto"
	"anemone/internal/platform"
	"anemone/mil"
	"anemone/mil/blob"
	"anemone/mil/milproto"
)

// Package is an open model.
type Package struct {
	Path string
	// Spec is the path of the specification, the .mlmodel file.
	Spec  string
	Model *coreml.Model
	// Files are the files of weights that the program refers to, by name.
	Files []File

	readers map[string]*blob.Reader
	refs    map[mil.Weight]milproto.BlobRef
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

// File is a file of weights.
type File struct {
	Name string // as the program names it, such as "@model_path/weights/weight.bin"
	Path string // on this machine
	Size int64  // in bytes
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

// Open reads a .mlpackage folder, or a lone .mlmodel file, whose weights then
// lie in folders beside it. The files of weights are mapped into memory, not
// read; the model's weights are slices of them, so the package must stay
// open as long as they are in use.
//
// Paths in the package that lead out of it are refused. Symbolic links are
// followed wherever they lead, as the caches of download tools are made of
// them.
func Open(path string) (*Package, error) {
	p := &Package{Path: path, readers: map[string]*blob.Reader{}}
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
	spec := p.Path
	if st.IsDir() {
		if spec, err = specOfPackage(p.Path); err != nil {
			return err
		}
	}
	p.Spec = spec
	f, err := bundle.OpenRegular(spec)
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := platform.Mmap(f)
	if err != nil {
		return err
	}
	err = p.decode(b, filepath.Dir(spec))
	if err := errors.Join(err, platform.Munmap(b)); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(spec), err)
	}
	return nil
}

// specOfPackage returns the path of the specification of a package.
func specOfPackage(dir string) (string, error) {
	f, err := bundle.OpenRegular(filepath.Join(dir, manifestName))
	if err != nil {
		return "", fmt.Errorf("not a package: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err == nil && len(b) > maxManifest {
		err = fmt.Errorf("larger than %d bytes", maxManifest)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", manifestName, err)
	}
	m, err := parseManifest(b)
	if err != nil {
		return "", fmt.Errorf("%s: %w", manifestName, err)
	}
	for id, it := range m.Items {
		if _, err := os.Stat(filepath.Join(dir, dataFolder, filepath.FromSlash(*it.Path))); err != nil {
			return "", fmt.Errorf("%s: item %q: %w", manifestName, id, err)
		}
	}
	return filepath.Join(dir, dataFolder, filepath.FromSlash(*m.Items[m.Root].Path)), nil
}

// decode reads a specification; dir is the folder it lies in.
func (p *Package) decode(b []byte, dir string) error {
	pb, err := modelproto.Unmarshal(b)
	if err != nil {
		return err
	}
	m := &coreml.Model{SpecVersion: int(pb.GetSpecificationVersion())}
	if err := modelproto.DecodeDescription(m, pb.GetDescription()); err != nil {
		return err
	}
	p.refs = map[mil.Weight]milproto.BlobRef{}
	opt := milproto.DecodeOptions{
		Weight: func(ref milproto.BlobRef, t mil.Type) (mil.Weight, error) {
			r, err := p.reader(ref.File, dir)
			if err != nil {
				return nil, err
			}
			w, err := r.Weight(ref.Offset, t)
			if err == nil {
				p.refs[w] = ref
			}
			return w, err
		},
	}
	for _, f := range m.Functions {
		opt.Order = append(opt.Order, f.Name)
	}
	if m.Program, err = milproto.Decode(pb.GetMlProgram(), opt); err != nil {
		return err
	}
	if err := modelproto.CheckNames(m); err != nil {
		return err
	}
	slices.SortFunc(p.Files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	p.Model = m
	return nil
}

// reader maps the file of weights that the program calls name.
func (p *Package) reader(name, dir string) (*blob.Reader, error) {
	if r := p.readers[name]; r != nil {
		return r, nil
	}
	rel, err := bundle.WeightPath(name)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, filepath.FromSlash(rel))
	f, err := bundle.OpenRegular(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := blob.OpenFile(f)
	if err != nil {
		return nil, err
	}
	p.readers[name] = r
	p.Files = append(p.Files, File{Name: name, Path: file, Size: r.Size()})
	return r, nil
}
