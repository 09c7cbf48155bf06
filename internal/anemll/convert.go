package anemll

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"anemone/coreml"
	"anemone/coreml/mlmodelc"
	"anemone/coreml/mlpackage"
	"anemone/internal/arch"
	"anemone/internal/checkpoint"
	"anemone/internal/compress"
	"anemone/internal/platform"
)

// Progress says how far a conversion is. Work is counted in units that take
// about equal time, so that a fraction of it is a fraction of the time left.
type Progress struct {
	Part     string  // file that is being written
	Weight   string  // tensor that is being written, "" between tensors
	Done     float64 // fraction of the work, 0 to 1
	Bytes    int64   // of weights written so far
	Elapsed  time.Duration
	Estimate time.Duration // time left; 0 until it can be told
}

// Report is what a conversion did.
type Report struct {
	Output   string           `json:"output"`
	Parts    []PartReport     `json:"parts"`
	Weights  *compress.Report `json:"weights"`
	Unused   []string         `json:"unused_tensors"`
	Aside    []string         `json:"set_aside"` // what a package has no place for, such as a vision tower
	Warnings []string         `json:"warnings"`
	Bytes    int64            `json:"bytes"` // of all weights
	Seconds  float64          `json:"seconds"`
}

// PartReport describes one model of the package.
type PartReport struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"` // of its weights
}

// Convert makes a package of a checkpoint, a folder or a GGUF file. The output
// folder appears whole when everything has been written, or not at all: an
// error, or ctx being done, leaves nothing behind.
func Convert(ctx context.Context, registry arch.Registry, checkpointPath, output string, o Options) (*Report, error) {
	start := time.Now()
	output = filepath.Clean(output)
	ck, err := checkpoint.Open(checkpointPath)
	if err != nil {
		return nil, err
	}
	defer ck.Close()
	model, err := registry.Open(ck)
	if err != nil {
		return nil, err
	}
	weights := &compress.Report{}
	p, err := newPlan(ctx, ck, model, o, weights)
	if err != nil {
		return nil, err
	}
	for _, check := range []func() error{
		func() error { return free(output, o.Overwrite) },
		func() error { return apart(checkpointPath, output) },
		ctx.Err,
	} {
		if err := check(); err != nil {
			return nil, err
		}
	}

	if Within(output, checkpointPath) {
		p.warnings = append(p.warnings, fmt.Sprintf("the package lies in the checkpoint, %s: whoever copies or uploads that takes the package along", checkpointPath))
	}
	parents, err := makeParents(output)
	if err != nil {
		return nil, err
	}
	published := false
	defer func() {
		if !published {
			// Only while they are empty, the innermost first.
			for _, dir := range parents {
				os.Remove(dir)
			}
		}
	}()
	tmp, err := sibling(output)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	if err := p.write(ctx, tmp, start); err != nil {
		return nil, fmt.Errorf("convert %s: %w", checkpointPath, err)
	}
	if err := publish(tmp, output, o.Overwrite); err != nil {
		return nil, err
	}
	published = true
	unused, aside := setAside(model, ck.Unused())
	r := &Report{Output: output, Weights: weights, Unused: unused, Aside: aside, Warnings: slices.Concat(p.warnings, groupWarnings(weights.Summary().Weights), unusedWarning(unused)), Seconds: time.Since(start).Seconds()}
	for _, part := range p.parts {
		r.Parts = append(r.Parts, PartReport{part.name, part.size})
		r.Bytes += part.size
	}
	return r, nil
}

// ErrExists is wrapped by the error for an output folder that is there.
var ErrExists = errors.New("already exists")

// free checks that the output folder may be made.
func free(output string, overwrite bool) error {
	st, err := os.Lstat(output)
	switch {
	case errors.Is(err, os.ErrNotExist):
		if parent, err := os.Stat(filepath.Dir(output)); err == nil && !parent.IsDir() {
			return fmt.Errorf("output %s: %s is not a folder", output, filepath.Dir(output))
		}
		return nil
	case err != nil:
		return err
	case !st.IsDir():
		return fmt.Errorf("output %s %w and is not a folder", output, ErrExists)
	}
	entries, err := os.ReadDir(output)
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		return nil
	}
	if !overwrite {
		return fmt.Errorf("output folder %s %w and is not empty: choose another, or overwrite it (--overwrite)", output, ErrExists)
	}
	// Overwriting is for packages: a mistyped path must not cost a home folder.
	if _, err := os.Stat(filepath.Join(output, MetaFile)); err != nil {
		return fmt.Errorf("output folder %s %w and holds no package (no %s), so it is not overwritten", output, ErrExists, MetaFile)
	}
	return nil
}

// Within reports whether path, which need not be there, lies in the folder dir.
func Within(path, dir string) bool {
	dir, err := realPath(dir)
	if err != nil {
		return false
	}
	if path, err = filepath.Abs(path); err != nil {
		return false
	}
	// Links are followed as far as there is something.
	for up, rest := path, ""; ; up, rest = filepath.Dir(up), filepath.Join(filepath.Base(up), rest) {
		if real, err := filepath.EvalSymlinks(up); err == nil {
			path = filepath.Join(real, rest)
			break
		}
		if up == filepath.Dir(up) {
			break
		}
	}
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != "." && filepath.IsLocal(rel)
}

// realPath returns the absolute path of a folder without links.
func realPath(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}

// apart checks that overwriting the output folder does not cost the
// checkpoint, which may be that folder or lie in it.
func apart(checkpointPath, output string) error {
	out, err := os.Stat(output)
	if err != nil {
		return nil // nothing there to be overwritten
	}
	dir, err := filepath.Abs(checkpointPath)
	if err != nil {
		return err
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	for {
		if st, err := os.Stat(dir); err == nil && os.SameFile(st, out) {
			return fmt.Errorf("output folder %s holds the checkpoint, %s, which would be lost: choose another", output, checkpointPath)
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return nil
		}
		dir = parent
	}
}

// makeParents makes the folders above path and returns those that were not
// there, the innermost first.
func makeParents(path string) (made []string, err error) {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			break
		}
		made = append(made, dir)
	}
	return made, os.MkdirAll(filepath.Dir(path), 0o777)
}

// sibling makes a folder beside path, on the same file system.
func sibling(path string) (string, error) {
	tmp, err := os.MkdirTemp(filepath.Dir(path), "."+filepath.Base(path)+".part-")
	if err != nil {
		return "", fmt.Errorf("output folder %s: cannot write beside it: %w", path, err)
	}
	return tmp, nil
}

// publish moves a finished folder to its place.
func publish(tmp, output string, overwrite bool) error {
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	if err := platform.SyncDir(tmp); err != nil {
		return err
	}
	old := ""
	if _, err := os.Lstat(output); err == nil {
		entries, err := os.ReadDir(output)
		if err != nil {
			return err
		}
		if len(entries) > 0 && !overwrite {
			return fmt.Errorf("output folder %s %w", output, ErrExists)
		}
		// Out of the way in one step, and back if the new one cannot move in.
		old = filepath.Join(filepath.Dir(output), "."+filepath.Base(output)+".old-"+rand.Text())
		if err := os.Rename(output, old); err != nil {
			return err
		}
	}
	if err := os.Rename(tmp, output); err != nil {
		if old != "" {
			err = errors.Join(err, os.Rename(old, output))
		}
		return err
	}
	if old != "" {
		if err := os.RemoveAll(old); err != nil {
			return fmt.Errorf("the package is complete, but its predecessor could not be removed: %w", err)
		}
	}
	return platform.SyncDir(filepath.Dir(output))
}

// write writes the whole package into dir.
func (p *plan) write(ctx context.Context, dir string, start time.Time) error {
	var written int64 // bytes of the parts that are done
	for _, part := range p.parts {
		// done counts the file, which has a header and padding as well.
		progress := func(done, _ int64, name string) {
			if p.opts.Progress == nil {
				return
			}
			pr := Progress{Part: part.name, Weight: name, Bytes: written + min(done, part.size), Elapsed: time.Since(start)}
			if p.work > 0 {
				pr.Done = min(1, float64(p.done.Load())/float64(p.work))
			}
			if pr.Done > 0.01 {
				pr.Estimate = time.Duration(float64(pr.Elapsed) * (1 - pr.Done) / pr.Done)
			}
			p.opts.Progress(pr)
		}
		if err := writeModel(ctx, filepath.Join(dir, part.name), part.model, p.opts.Format, progress); err != nil {
			return err
		}
		written += part.size
	}
	config, err := p.ck.ReadFile("config.json")
	if err != nil {
		return err
	}
	config = packageConfig(p.ck.Config, config, p.info.TokenizerClass)
	if err := writeFile(filepath.Join(dir, "config.json"), bytes.NewReader(config)); err != nil {
		return err
	}
	for _, name := range p.ck.Files() {
		f, err := p.ck.OpenFile(name)
		if err != nil {
			return err
		}
		if err := errors.Join(writeFile(filepath.Join(dir, name), f), f.Close()); err != nil {
			return err
		}
	}
	// meta.yaml last: a folder without it is no package.
	return writeFile(filepath.Join(dir, MetaFile), bytes.NewReader(p.meta.Encode()))
}

// writeModel writes a model in the wanted forms. The second one takes over the
// weights of the first, which are only asked for once.
func writeModel(ctx context.Context, base string, m *coreml.Model, f Format, progress func(done, total int64, name string)) error {
	weights := ""
	if f != MLModelC {
		path := base + ".mlpackage"
		if err := mlpackage.Write(ctx, path, m, mlpackage.Options{Progress: progress}); err != nil {
			return err
		}
		weights, progress = filepath.Join(path, "Data", "com.apple.CoreML", "weights", "weight.bin"), nil
	}
	if f == MLPackage {
		return nil
	}
	return mlmodelc.Write(ctx, base+".mlmodelc", m, mlmodelc.Options{Progress: progress, WeightsFrom: weights})
}

func writeFile(path string, r io.Reader) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Sync(), f.Close())
}

// packageConfig returns the text of the checkpoint's config.json with a
// tokenizer_class, which ANEMLL's runtimes look for: added at the end if there
// is none, in place of null if it is that. Everything else stays as it is,
// down to the NaN and Infinity that Python writes.
func packageConfig(c *checkpoint.Config, data []byte, class string) []byte {
	end := bytes.LastIndexByte(data, '}')
	if c.Has("tokenizer_class") || end < 0 {
		return data
	}
	if m := nullClass.FindSubmatchIndex(data); m != nil {
		return slices.Concat(data[:m[2]], fmt.Appendf(nil, "%q", class), data[m[3]:])
	}
	head := bytes.TrimRight(data[:end], " \t\r\n")
	sep := ","
	if bytes.HasSuffix(head, []byte("{")) {
		sep = ""
	}
	return slices.Concat(head, fmt.Appendf(nil, "%s\n  \"tokenizer_class\": %q\n}\n", sep, class))
}

var nullClass = regexp.MustCompile(`"tokenizer_class"\s*:\s*(null)`)
