package mlpackage

import (
	"context"
	"crypto/sha256"
	"fmt"
	"path/filepath"

	"anemone/coreml"
	"anemone/coreml/internal/bundle"
	"anemone/coreml/modelproto"
)

// Options are choices of [Write]. The zero value is fine.
type Options struct {
	// Overwrite replaces a package that is already there.
	Overwrite bool
	// Progress, if not nil, is called as the file of weights grows: done of
	// total bytes, at present the weight of that name.
	Progress func(done, total int64, name string)
	// WeightsFrom is a file of weights that was written for the same model,
	// as the compiled bundle beside the package has one. It is compared
	// record by record and then taken over, if possible without a copy (see
	// the package comment); no weight is asked for its bytes.
	WeightsFrom string
	// Keep takes over the files of weights of the model that was read, under
	// their names and with every weight at its offset. All weights of the
	// program must be in them.
	Keep coreml.Stored
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
	spec, weights, err := encode(m, opt)
	if err != nil {
		return err
	}
	digest := sha256.Sum256(spec)
	manifest, err := newManifest(digest[:], weights.Files())
	if err != nil {
		return err
	}
	return bundle.Create(ctx, path, opt.Overwrite, func(dir string) error {
		model := filepath.Join(dir, dataFolder, author)
		if err := weights.Write(ctx, model, opt.Progress); err != nil {
			return err
		}
		if err := bundle.WriteFile(filepath.Join(model, specName), bundle.Bytes(spec)); err != nil {
			return err
		}
		return bundle.WriteFile(filepath.Join(dir, manifestName), bundle.Bytes(manifest))
	})
}

// encode returns the bytes of the specification, and the files of weights
// that it refers to.
func encode(m *coreml.Model, opt Options) ([]byte, *bundle.Weights, error) {
	if err := modelproto.Check(m); err != nil {
		return nil, nil, err
	}
	weights, err := bundle.PlanWeights(m.Program, opt.WeightsFrom, opt.Keep)
	if err != nil {
		return nil, nil, err
	}
	spec, err := bundle.Spec(m, weights)
	return spec, weights, err
}
