package mlmodelc

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"anemone/coreml"
	"anemone/coreml/internal/bundle"
	"anemone/coreml/modelproto"
	"anemone/mil"
	"anemone/mil/miltext"
)

// Options are choices of [Write], [Compile] and [Decompile]. The zero value
// is fine.
type Options struct {
	// Overwrite replaces a bundle that is already there.
	Overwrite bool
	// Progress, if not nil, is called as the files of weights grow: done of
	// total bytes, at present the weight (or file) of that name.
	Progress func(done, total int64, name string)
	// WeightsFrom is a file of weights that was written for the same model,
	// as the package beside the bundle has one. It is compared record by
	// record and then taken over, if possible without a copy; no weight is
	// asked for its bytes. Compile and Decompile ignore it.
	WeightsFrom string
	// Keep takes over the files of weights of the model that was read, under
	// their names and with every weight at its offset. All weights of the
	// program must be in them. Compile and Decompile set it.
	Keep coreml.Stored
	// Details are what the bundle says beside its model. Decompile ignores
	// them.
	Details Details
}

// Write writes m as the bundle at path. The same model gives the same bytes.
// Weights are asked for their bytes once each, in the order of their first
// use, and not kept; a weight that several functions use is stored once, at
// the offset where package mlpackage puts it. The bundle appears at path
// whole or, if Write fails or ctx is done before the end, not at all.
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
	name := strings.TrimSuffix(filepath.Base(filepath.Clean(path)), ".mlmodelc")
	files, weights, err := encode(m, name, opt)
	if err != nil {
		return err
	}
	return bundle.Create(ctx, path, opt.Overwrite, func(dir string) error {
		if err := weights.Write(ctx, dir, opt.Progress); err != nil {
			return err
		}
		for _, f := range files {
			if err := bundle.WriteFile(filepath.Join(dir, filepath.FromSlash(f.name)), bundle.Bytes(f.content)); err != nil {
				return err
			}
		}
		return nil
	})
}

// part is a file of a bundle.
type part struct {
	name    string
	content []byte
}

// encode returns the files of a bundle of the given name, and those of the
// weights.
func encode(m *coreml.Model, name string, opt Options) ([]part, *bundle.Weights, error) {
	if err := modelproto.Check(m); err != nil {
		return nil, nil, err
	}
	weights, err := bundle.PlanWeights(m.Program, opt.WeightsFrom, opt.Keep)
	if err != nil {
		return nil, nil, err
	}
	for _, f := range weights.Files() {
		if slices.Contains([]string{dataName, textName, metadataName, analyticsName, "analytics"}, f) {
			return nil, nil, fmt.Errorf("a file of weights cannot be named %q in a compiled model", f)
		}
	}
	d := opt.Details
	if d.ComponentVersion == "" {
		d.ComponentVersion = DefaultComponentVersion
	}
	if d.Version == "" {
		d.Version = DefaultVersion
	}
	if d.ClassName == "" {
		d.ClassName = className(name)
	}
	if d.ModelName == "" {
		d.ModelName = "model"
	}
	if d.ModelHash == "" {
		spec, err := bundle.Spec(m, weights)
		if err != nil {
			return nil, nil, err
		}
		d.ModelHash = hashOf(spec)
	}
	data, err := description(m, &d)
	if err != nil {
		return nil, nil, err
	}
	text, err := program(m, &d, weights)
	if err != nil {
		return nil, nil, err
	}
	meta, err := metadata(m, &d)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", metadataName, err)
	}
	return []part{
		{dataName, data},
		{textName, text},
		{metadataName, meta},
		{analyticsName, appendAnalytics(nil, d.analytics())},
	}, weights, nil
}

// description returns the content of coremldata.bin.
func description(m *coreml.Model, d *Details) ([]byte, error) {
	pb, err := modelproto.EncodeDescription(m)
	if err != nil {
		return nil, err
	}
	b, err := marshalDescription(pb, d.UserOrder)
	if err != nil {
		return nil, err
	}
	c, err := newContainer(m.SpecVersion, b, len(pb.GetFunctions()))
	if err != nil {
		return nil, err
	}
	return c.append(nil), nil
}

// program returns the content of model.mil: the program with what the
// compiler adds to it.
func program(m *coreml.Model, d *Details, weights *bundle.Weights) ([]byte, error) {
	p := &mil.Program{}
	var err error
	if p.Attributes, err = joinBuildInfo(m.Program, d); err != nil {
		return nil, err
	}
	for _, f := range m.Program.Functions {
		attrs := slices.DeleteFunc(slices.Clone(f.Attributes), func(a mil.Attribute) bool { return a.Name == flexibleInfo })
		if fd := m.Function(f.Name); fd != nil {
			v, err := flexible(fd, d.ShapeKeys[f.Name])
			if err != nil {
				return nil, err
			}
			if v != nil {
				attrs = append(attrs, mil.Attribute{Name: flexibleInfo, Value: v})
			}
		}
		p.Functions = append(p.Functions, &mil.Function{Name: f.Name, Opset: f.Opset, Inputs: f.Inputs, Body: f.Body, Attributes: attrs})
	}
	var b bytes.Buffer
	err = miltext.Print(&b, p, miltext.PrintOptions{
		Dialect: miltext.DialectOf(m.SpecVersion),
		Blob: func(w mil.Weight) (miltext.BlobRef, error) {
			ref, err := weights.Ref(w)
			return miltext.BlobRef(ref), err
		},
	})
	return b.Bytes(), err
}
