package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"anemone/internal/checkpoint/gguf"
	"anemone/internal/checkpoint/safetensors"
	"anemone/internal/platform"
)

// Checkpoint is an open checkpoint. Its methods may be called from several
// goroutines at once, except that Close must come after all use.
type Checkpoint struct {
	Dir        string            // the path given to [Open]
	Config     *Config           // config.json
	Generation *GenerationConfig // generation_config.json, never nil

	files     files             // beside the weights
	weights   []weightFile      // open, by name
	tensors   map[string]Tensor // those that can be used
	unindexed map[string]string // in a file, whose path this is, but in no index
	format    string            // see Format
	eos       []int

	mu   sync.Mutex
	used map[string]bool
}

// weightFile is an open file of weights.
type weightFile interface {
	Path() string
	Close() error
}

// Open opens the checkpoint at path, a model folder: reads config.json and
// generation_config.json, and checks the header of every file of weights.
// Whether the weights are ones that anyone can use is for
// [Config.CheckSupported] and the arch packages to say.
func Open(path string) (_ *Checkpoint, err error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("open checkpoint: %w", err)
	}
	c := &Checkpoint{Dir: path, tensors: map[string]Tensor{}, unindexed: map[string]string{}, used: map[string]bool{}}
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	switch {
	case st.IsDir():
		err = c.openFolder()
	case gguf.IsFile(path):
		err = c.openGGUF()
	default:
		err = notGGUF(path)
	}
	if err != nil {
		return nil, fmt.Errorf("open checkpoint: %w", err)
	}
	return c, nil
}

// notGGUF says what is wrong with a file that was given as a checkpoint and does
// not begin as GGUF files do.
func notGGUF(path string) error {
	f, err := platform.Open(path) // may be no regular file, or not for us to read
	if err != nil {
		return err
	}
	f.Close()
	if strings.EqualFold(filepath.Ext(path), ".gguf") {
		g, err := gguf.Open(path) // says what it begins with
		if err == nil {
			g.Close()
		}
		return err
	}
	dir := filepath.Dir(path)
	if _, err := os.Stat(filepath.Join(dir, configFile)); err != nil {
		return fmt.Errorf("%s is a file, but no GGUF file; want the folder with config.json and the weights, or a GGUF file", path)
	}
	return fmt.Errorf("%s is a file, but no GGUF file; want the folder with config.json and the weights, %s", path, dir)
}

// Close releases the files. Tensors must not be read afterwards.
func (c *Checkpoint) Close() error {
	var errs []error
	for _, f := range c.weights {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

func (c *Checkpoint) collectEOS() ([]int, error) {
	all := slices.Clone(c.Generation.EOS)
	objects := []*Config{c.Config}
	if text, ok := c.Config.Sub("text_config"); ok {
		objects = append(objects, text)
	}
	for _, o := range objects {
		ids, err := o.EOS()
		if err != nil {
			return nil, err
		}
		all = append(all, ids...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// EOS returns every token that ends a text by config.json, its text_config or
// generation_config.json, in ascending order. The tokenizer may know more.
func (c *Checkpoint) EOS() []int { return slices.Clone(c.eos) }

// readConfigs reads config.json and generation_config.json.
func (c *Checkpoint) readConfigs() (err error) {
	read := func(name string) (*Config, error) {
		data, err := c.files.read(name, maxConfig)
		if err != nil {
			return nil, err
		}
		return ParseConfig(c.files.path(name), data)
	}
	if c.Config, err = read(configFile); err != nil {
		return err
	}
	g, err := read(generationFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if c.Generation, err = parseGeneration(g); err != nil {
		return err
	}
	c.eos, err = c.collectEOS()
	return err
}

// Format returns how the files of weights call their layout: "pt" for
// Hugging Face's own, "mlx" for a conversion by MLX, whose tensors can have
// the same names and other contents; "" when they don't say or disagree.
func (c *Checkpoint) Format() string { return c.format }

// Weights returns the names of the opened files of weights, with slashes,
// relative to the folder.
func (c *Checkpoint) Weights() []string {
	var names []string
	for _, f := range c.weights {
		names = append(names, c.relative(f.Path()))
	}
	return names
}

// relative returns the path of a file of weights relative to the folder.
func (c *Checkpoint) relative(path string) string {
	rel, err := filepath.Rel(c.Dir, path)
	switch {
	case err != nil:
		return path
	case rel == ".": // the checkpoint is that file
		return filepath.Base(path)
	}
	return filepath.ToSlash(rel)
}

// Has reports whether there is a tensor of that name.
func (c *Checkpoint) Has(name string) bool {
	_, ok := c.tensors[name]
	return ok
}

// Names returns the names of all tensors in order.
func (c *Checkpoint) Names() []string { return slices.Sorted(maps.Keys(c.tensors)) }

// Unused returns the names of the tensors that [Checkpoint.Tensor] was never
// asked for, in order.
func (c *Checkpoint) Unused() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var names []string
	for name := range c.tensors {
		if !c.used[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// CheckUsed is for who has asked for all tensors that a model has. It refuses a
// GGUF file with others, such as biases of some projections only: converters
// write down what the computation needs, which is another one then. Folders
// have all kinds of things beside; see [Checkpoint.Unused].
func (c *Checkpoint) CheckUsed() error {
	for _, name := range c.Unused() {
		if t := c.tensors[name]; t.gguf {
			return fmt.Errorf("%s: tensor %s takes part in what llama.cpp computes, and in no model of type %q: convert from the original checkpoint", t.File, t.label(), c.Config.ModelType())
		}
	}
	return nil
}

// Unindexed returns the names of tensors that lie in an opened file but are
// not in the index, in order: the index may be older than the file.
func (c *Checkpoint) Unindexed() []string { return slices.Sorted(maps.Keys(c.unindexed)) }

// Lookup returns a tensor of any type and shape without marking it as used.
func (c *Checkpoint) Lookup(name string) (*Tensor, bool) {
	t, ok := c.tensors[name]
	if !ok {
		return nil, false
	}
	t.Shape = slices.Clone(t.Shape)
	return &t, true
}

// Tensor returns the tensor of that name and marks it as used. It must be of
// type F32, F16 or BF16 and have the given shape, where -1 stands for any
// size.
func (c *Checkpoint) Tensor(name string, shape ...int) (*Tensor, error) {
	t, ok := c.Lookup(name)
	if !ok {
		return nil, c.notFound(name)
	}
	c.mu.Lock()
	c.used[name] = true
	c.mu.Unlock()
	fits := len(shape) == len(t.Shape)
	for i := range min(len(shape), len(t.Shape)) {
		fits = fits && (shape[i] == -1 || shape[i] == t.Shape[i])
	}
	if !fits {
		return nil, fmt.Errorf("%s: tensor %s: found shape %v, want %s", t.File, t.label(), t.Shape, wanted(shape))
	}
	switch t.DType {
	case safetensors.F32, safetensors.F16, safetensors.BF16:
		return t, nil
	}
	want := "F32, F16 or BF16"
	if t.gguf {
		want = "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K or IQ4_NL"
	}
	return nil, fmt.Errorf("%s: tensor %s: found type %s, want %s; convert from the original checkpoint if this one is quantized", t.File, t.label(), t.DType, want)
}

// wanted writes a shape with * for any size.
func wanted(shape []int) string {
	parts := make([]string, len(shape))
	for i, d := range shape {
		if parts[i] = fmt.Sprint(d); d == -1 {
			parts[i] = "*"
		}
	}
	return "[" + strings.Join(parts, " ") + "]"
}

// notFound is the error for a tensor that is not there.
func (c *Checkpoint) notFound(name string) error {
	if f, ok := c.unindexed[name]; ok {
		return fmt.Errorf("%s: tensor %q is missing from the index although %s holds it: the index is stale", filepath.Join(c.Dir, indexFile), name, c.relative(f))
	}
	where := "in no file"
	if len(c.weights) == 1 {
		where = "not in " + c.relative(c.weights[0].Path())
	} else if len(c.weights) > 1 {
		where = fmt.Sprintf("in none of the %d files", len(c.weights))
	}
	hint := ""
	if near := near(name, c.tensors); len(near) > 0 {
		hint = "; near names: " + strings.Join(near, ", ")
	}
	return fmt.Errorf("%s: tensor %q is missing: it is %s%s", c.Dir, name, where, hint)
}

// near returns up to three names that differ least from name: by the number
// of parts between dots that one has and the other lacks, then by the letters
// that beginnings and ends have in common.
func near[V any](name string, names map[string]V) []string {
	parts := strings.Split(name, ".")
	type candidate struct {
		name              string
		distance, letters int
	}
	var found []candidate
	for n := range names {
		if len(n) > 256 {
			continue // no name, but noise
		}
		other := strings.Split(n, ".")
		common := commonSubsequence(parts, other)
		// Sharing only "weight" and one more part is no likeness.
		if d := len(parts) + len(other) - 2*common; common >= 2 && d <= len(parts) {
			found = append(found, candidate{n, d, commonEnds(name, n)})
		}
	}
	slices.SortFunc(found, func(a, b candidate) int {
		if a.distance != b.distance {
			return a.distance - b.distance
		}
		if a.letters != b.letters {
			return b.letters - a.letters
		}
		return strings.Compare(a.name, b.name)
	})
	var out []string
	for _, f := range found[:min(3, len(found))] {
		out = append(out, f.name)
	}
	return out
}

// commonEnds returns the lengths of the common beginning and end together.
func commonEnds(a, b string) int {
	n := min(len(a), len(b))
	i, j := 0, 0
	for i < n && a[i] == b[i] {
		i++
	}
	for j < n && a[len(a)-1-j] == b[len(b)-1-j] {
		j++
	}
	return i + j
}

// commonSubsequence returns the length of the longest common subsequence.
func commonSubsequence(a, b []string) int {
	row := make([]int, len(b)+1)
	for _, x := range a {
		diagonal := 0
		for j, y := range b {
			above := row[j+1]
			if x == y {
				row[j+1] = diagonal + 1
			} else {
				row[j+1] = max(above, row[j])
			}
			diagonal = above
		}
	}
	return row[len(b)]
}
