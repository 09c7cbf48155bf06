package bundle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"anemone/coreml"
	"anemone/coreml/modelproto"
	"anemone/coreml/modelproto/modelpb"
	"anemone/mil"
	"anemone/mil/blob"
	"anemone/mil/milproto"
)

const (
	// ModelPath is what the name of every file of weights starts with: the
	// folder of the model.
	ModelPath = "@model_path/"
	// WeightFile is where a new file of weights is put.
	WeightFile = "weights/weight.bin"
)

// Progress is called as the files of weights grow: done of total bytes, at
// present the weight of that name.
type Progress func(done, total int64, name string)

// WeightPath returns the path, relative to the model's folder and with
// slashes, of the file of weights that a program calls name.
func WeightPath(name string) (string, error) {
	rel, ok := strings.CutPrefix(name, ModelPath)
	if !ok || !Local(rel) {
		return "", fmt.Errorf("a file of weights is named %q, want a path below %s", name, ModelPath)
	}
	return path.Clean(rel), nil
}

// Weights is where the weights of a program go.
type Weights struct {
	Plan *blob.Plan // of a new file
	from string     // that file exists already
	// Files that are taken over as they are: relative path to source.
	files map[string]string
	refs  map[mil.Weight]milproto.BlobRef
}

// PlanWeights gives every weight of p its place: in one new file, which may
// be copied from the file from if that is not empty; or, if keep is not nil,
// where it lies in the files of another model, which are then taken over.
func PlanWeights(p *mil.Program, from string, keep coreml.Stored) (*Weights, error) {
	w := &Weights{Plan: &blob.Plan{}, from: from, files: map[string]string{}, refs: map[mil.Weight]milproto.BlobRef{}}
	if from != "" && keep != nil {
		return nil, errors.New("weights can be taken from a file or from a model, not from both")
	}
	var err error
	names := weightNames(p)
	p.Weights(func(_ *mil.Value, x mil.Weight) {
		if err != nil {
			return
		}
		if keep != nil {
			err = w.keep(keep, x, names[x])
			return
		}
		var off uint64
		off, err = w.Plan.Add(names[x], x)
		w.refs[x] = milproto.BlobRef{File: ModelPath + WeightFile, Offset: off}
	})
	if err != nil {
		return nil, err
	}
	if from != "" && w.Plan.Len() > 0 {
		if err := w.compare(from); err != nil {
			return nil, fmt.Errorf("take the weights from %s: %w", from, err)
		}
		w.files[WeightFile] = from
	}
	return w, nil
}

func (w *Weights) keep(s coreml.Stored, x mil.Weight, name string) error {
	file, off, ok := s.WeightRef(x)
	if !ok {
		return fmt.Errorf("weight %q is not one of the model whose files are to be kept", name)
	}
	rel, err := WeightPath(file)
	if err != nil {
		return err
	}
	src, ok := s.WeightFile(file)
	if !ok {
		return fmt.Errorf("weight %q: there is no file %q", name, file)
	}
	w.files[rel] = src
	w.refs[x] = milproto.BlobRef{File: file, Offset: off}
	return nil
}

// compare makes sure that the records of a file are those of the plan.
func (w *Weights) compare(file string) error {
	f, err := OpenRegular(file)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := blob.OpenFile(f)
	if err != nil {
		return err
	}
	defer r.Close()
	if r.Len() != w.Plan.Len() {
		return fmt.Errorf("it holds %d weights, the model has %d: not written for this model", r.Len(), w.Plan.Len())
	}
	for i := range w.Plan.Len() {
		if i%16 == 0 {
			r.Release()
		}
		want, name := w.Plan.Record(i)
		have, err := r.Record(want.Offset)
		if err != nil {
			return fmt.Errorf("weight %q: %w", name, err)
		}
		if have != want {
			return fmt.Errorf("weight %q at offset %d: it holds %d bytes of %v, the model has %d of %v: not written for this model",
				name, want.Offset, have.Size, have.Code, want.Size, want.Code)
		}
	}
	return nil
}

// Files returns the relative paths of the files of weights, sorted.
func (w *Weights) Files() []string {
	if len(w.files) == 0 && w.Plan.Len() > 0 {
		return []string{WeightFile}
	}
	return slices.Sorted(maps.Keys(w.files))
}

// Ref returns the place of a weight.
func (w *Weights) Ref(x mil.Weight) (milproto.BlobRef, error) {
	ref, ok := w.refs[x]
	if !ok {
		return ref, errors.New("only operations can hold weights")
	}
	return ref, nil
}

// Write puts the files of weights into the folder of a model.
func (w *Weights) Write(ctx context.Context, dir string, progress Progress) error {
	if len(w.files) == 0 && w.Plan.Len() > 0 {
		return WriteFile(filepath.Join(dir, filepath.FromSlash(WeightFile)), func(f io.Writer) error {
			return w.Plan.Write(ctx, f, blob.Progress(progress))
		})
	}
	for _, rel := range w.Files() {
		var report func(done, total int64)
		if progress != nil {
			report = func(done, total int64) { progress(done, total, rel) }
		}
		if err := Clone(ctx, filepath.Join(dir, filepath.FromSlash(rel)), w.files[rel], report); err != nil {
			return fmt.Errorf("%s: %w", rel, err)
		}
	}
	return nil
}

// Spec returns the bytes of the specification of m, whose weights are where
// w puts them.
func Spec(m *coreml.Model, w *Weights) ([]byte, error) {
	prog, err := milproto.Encode(m.Program, w.Ref)
	if err != nil {
		return nil, err
	}
	desc, err := modelproto.EncodeDescription(m)
	if err != nil {
		return nil, err
	}
	return modelproto.Marshal(&modelpb.Model{
		SpecificationVersion: int32(m.SpecVersion),
		Description:          desc,
		Type:                 &modelpb.Model_MlProgram{MlProgram: prog},
	})
}

// weightNames gives each weight a name for messages: that of the value that
// holds it, or of the result and the parameter it is an argument for.
func weightNames(p *mil.Program) map[mil.Weight]string {
	names := map[mil.Weight]string{}
	for _, f := range p.Functions {
		if f.Body == nil {
			continue
		}
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
