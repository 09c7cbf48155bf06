package mlpackage

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"anemone/coreml"
	"anemone/coreml/modelproto"
	"anemone/coreml/modelproto/modelpb"
	"anemone/internal/platform"
	"anemone/mil"
	"anemone/mil/blob"
	"anemone/mil/milproto"
)

// Options are choices of [Write]. The zero value is fine.
type Options struct {
	// Overwrite replaces a package that is already there.
	Overwrite bool
	// Progress, if not nil, is called as the file of weights grows: done of
	// total bytes, at present the weight of that name.
	Progress func(done, total int64, name string)
}

// Write writes m as the package at path. The same model gives the same bytes.
// Weights are asked for their bytes once each, in the order of their first
// use, and not kept; a weight that several functions use is stored once. The
// package appears at path whole or, if Write fails or ctx is done before the
// end, not at all.
//
// The model must pass [modelproto.Check]; whether its operations make sense
// is not checked here.
func Write(ctx context.Context, path string, m *coreml.Model, opt Options) error {
	if err := write(ctx, path, m, opt); err != nil {
		return fmt.Errorf("write model %s: %w", path, err)
	}
	return nil
}

func write(ctx context.Context, path string, m *coreml.Model, opt Options) error {
	path = filepath.Clean(path)
	if _, err := os.Lstat(path); err == nil && !opt.Overwrite {
		return errExists
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	spec, plan, err := encode(m)
	if err != nil {
		return err
	}
	digest := sha256.Sum256(spec)
	manifest, err := newManifest(digest[:], plan.Len() > 0)
	if err != nil {
		return err
	}
	tmp, err := tempSibling(path)
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp) // nothing is left of it after the rename
	model := filepath.Join(tmp, dataFolder, author)
	if err := os.MkdirAll(model, 0o777); err != nil {
		return err
	}
	if plan.Len() > 0 {
		file := filepath.Join(model, filepath.FromSlash(weightFile))
		if err := os.Mkdir(filepath.Dir(file), 0o777); err != nil {
			return err
		}
		err := writeFile(file, func(w io.Writer) error { return plan.Write(ctx, w, opt.Progress) })
		if err == nil {
			err = platform.SyncDir(filepath.Dir(file))
		}
		if err != nil {
			return err
		}
	}
	bytes := func(b []byte) func(io.Writer) error {
		return func(w io.Writer) error { _, err := w.Write(b); return err }
	}
	if err := writeFile(filepath.Join(model, "model.mlmodel"), bytes(spec)); err != nil {
		return err
	}
	if err := writeFile(filepath.Join(tmp, manifestName), bytes(manifest)); err != nil {
		return err
	}
	for _, dir := range []string{model, filepath.Dir(model), tmp} {
		if err := platform.SyncDir(dir); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	return install(tmp, path, opt.Overwrite)
}

var errExists = fmt.Errorf("%w; choose another name, or overwrite it", fs.ErrExist)

// encode returns the bytes of the specification, and the layout of the file
// of weights that it refers to.
func encode(m *coreml.Model) ([]byte, *blob.Plan, error) {
	if err := modelproto.Check(m); err != nil {
		return nil, nil, err
	}
	plan := &blob.Plan{}
	var err error
	names := weightNames(m.Program)
	m.Program.Weights(func(_ *mil.Value, w mil.Weight) {
		if err == nil {
			_, err = plan.Add(names[w], w)
		}
	})
	if err != nil {
		return nil, nil, err
	}
	prog, err := milproto.Encode(m.Program, func(w mil.Weight) (milproto.BlobRef, error) {
		off, ok := plan.Offset(w)
		if !ok {
			return milproto.BlobRef{}, errors.New("only operations can hold weights")
		}
		return milproto.BlobRef{File: modelPath + weightFile, Offset: off}, nil
	})
	if err != nil {
		return nil, nil, err
	}
	desc, err := modelproto.EncodeDescription(m)
	if err != nil {
		return nil, nil, err
	}
	spec, err := modelproto.Marshal(&modelpb.Model{
		SpecificationVersion: int32(m.SpecVersion),
		Description:          desc,
		Type:                 &modelpb.Model_MlProgram{MlProgram: prog},
	})
	return spec, plan, err
}

// weightNames gives each weight a name for messages: that of the value that
// holds it, or of the result and the parameter it is an argument for.
func weightNames(p *mil.Program) map[mil.Weight]string {
	names := map[mil.Weight]string{}
	for _, f := range p.Functions {
		f.Body.Walk(func(op *mil.Operation) bool {
			result := op.Name
			if len(op.Results) > 0 {
				result = op.Results[0].Name
			}
			name := func(v *mil.Value, as string) {
				if v == nil || v.Weight == nil {
					return
				}
				if _, ok := names[v.Weight]; !ok {
					names[v.Weight] = as
				}
			}
			for _, v := range op.Results {
				name(v, v.Name)
			}
			for _, a := range op.Args {
				for _, v := range a.Values {
					name(v, result+"."+a.Name)
				}
			}
			for _, a := range op.Attributes {
				name(a.Value, result+"."+a.Name)
			}
			return true
		})
	}
	return names
}

// tempSibling makes a folder beside path.
func tempSibling(path string) (string, error) {
	for {
		dir := sibling(path, "tmp")
		err := os.Mkdir(dir, 0o777)
		if !errors.Is(err, fs.ErrExist) {
			return dir, err
		}
	}
}

func sibling(path, what string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"."+what+"-"+rand.Text()[:8])
}

func writeFile(path string, content func(io.Writer) error) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriterSize(f, 1<<20)
	if err := content(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Sync()
}

// install moves the folder tmp to path.
func install(tmp, path string, overwrite bool) error {
	if !overwrite {
		if _, err := os.Lstat(path); err == nil {
			return errExists
		}
	}
	old := ""
	if overwrite {
		old = sibling(path, "old")
		if err := os.Rename(path, old); errors.Is(err, fs.ErrNotExist) {
			old = ""
		} else if err != nil {
			return err
		}
	}
	if err := os.Rename(tmp, path); err != nil {
		if old != "" {
			err = errors.Join(err, os.Rename(old, path))
		}
		return err
	}
	if old != "" {
		if err := os.RemoveAll(old); err != nil {
			return err
		}
	}
	return platform.SyncDir(filepath.Dir(path))
}
