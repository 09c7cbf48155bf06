package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"anemone/internal/checkpoint/safetensors"
	"anemone/internal/platform"
)

const (
	singleFile = "model.safetensors"
	indexFile  = "model.safetensors.index.json"

	// maxIndex bounds the index, in bytes: a checkpoint of 100,000 tensors
	// takes some 15 million.
	maxIndex = 64 << 20
)

// copied lists the files that a package takes over from the checkpoint.
var copied = []string{
	"tokenizer.json",
	"tokenizer_config.json",
	"tokenizer.model",
	"vocab.json",
	"merges.txt",
	"chat_template.jinja",
	"added_tokens.json",
	"special_tokens_map.json",
	generationFile,
	"preprocessor_config.json",
}

// Checkpoint is an open model folder. Its methods may be called from several
// goroutines at once, except that Close must come after all use.
type Checkpoint struct {
	Dir        string
	Config     *Config           // config.json
	Generation *GenerationConfig // generation_config.json, never nil

	files     []*safetensors.File          // open, by name
	tensors   map[string]*safetensors.File // where each usable tensor lies
	unindexed map[string]*safetensors.File // in a file, but in no index
	eos       []int

	mu   sync.Mutex
	used map[string]bool
}

// Open opens the model folder dir: reads config.json and
// generation_config.json, and checks the header of every file of weights.
// Whether the weights are ones that anyone can use is for
// [Config.CheckSupported] and the arch packages to say.
func Open(dir string) (*Checkpoint, error) {
	st, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("open checkpoint: %w", err)
	}
	if !st.IsDir() {
		return nil, fmt.Errorf("open checkpoint: %s is a file; want the folder with config.json and the weights", dir)
	}
	c := &Checkpoint{Dir: dir, tensors: map[string]*safetensors.File{}, unindexed: map[string]*safetensors.File{}, used: map[string]bool{}}
	c.Config, err = readConfig(filepath.Join(dir, configFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("open checkpoint: %s has no %s; want a Hugging Face model folder", dir, configFile)
	}
	if err != nil {
		return nil, fmt.Errorf("open checkpoint: %w", err)
	}
	if c.Generation, err = Generation(dir); err != nil {
		return nil, fmt.Errorf("open checkpoint: %w", err)
	}
	if c.eos, err = c.collectEOS(); err != nil {
		return nil, fmt.Errorf("open checkpoint: %w", err)
	}
	if err := c.checkFiles(); err != nil {
		return nil, fmt.Errorf("open checkpoint: %w", err)
	}
	if err := c.openWeights(); err != nil {
		c.Close()
		return nil, fmt.Errorf("open checkpoint: %w", err)
	}
	return c, nil
}

// Close releases the files. Tensors must not be read afterwards.
func (c *Checkpoint) Close() error {
	var errs []error
	for _, f := range c.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// checkFiles refuses files that are there by name only, such as a link of an
// interrupted download that leads nowhere: without them the package would
// have no tokenizer, and nobody would say so.
func (c *Checkpoint) checkFiles() error {
	for _, name := range copied {
		path := filepath.Join(c.Dir, name)
		if _, err := os.Lstat(path); err != nil {
			continue
		}
		f, err := platform.Open(path)
		if err != nil {
			return err
		}
		f.Close()
	}
	return nil
}

func (c *Checkpoint) openWeights() error {
	// A link that leads nowhere, as an interrupted download leaves it, counts
	// as there: opening it gives the error that the user needs.
	exists := func(name string) bool {
		_, err := os.Lstat(filepath.Join(c.Dir, name))
		return err == nil
	}
	switch {
	case exists(indexFile):
		return c.openIndexed()
	case exists(singleFile):
		return c.openSingle(singleFile)
	}
	name, err := c.onlyWeights()
	if err != nil {
		return err
	}
	return c.openSingle(name)
}

// onlyWeights finds the one .safetensors file of a folder without the
// standard names.
func (c *Checkpoint) onlyWeights() (string, error) {
	entries, err := os.ReadDir(c.Dir)
	if err != nil {
		return "", err
	}
	var weights, others []string
	for _, e := range entries {
		switch name := e.Name(); {
		case name == "adapter_config.json":
			return "", fmt.Errorf("%s is a LoRA adapter, not a model: merge it into its base model first", c.Dir)
		case strings.HasPrefix(name, "."):
		case strings.HasSuffix(name, ".safetensors"):
			weights = append(weights, name)
		case strings.HasSuffix(name, ".bin") || strings.HasSuffix(name, ".pth") || strings.HasSuffix(name, ".gguf"):
			others = append(others, name)
		}
	}
	switch {
	case len(weights) == 1:
		return weights[0], nil
	case len(weights) > 1:
		return "", fmt.Errorf("%s has %s, but neither %s nor %s, which says which of them holds what", c.Dir, list(weights, 3), singleFile, indexFile)
	case len(others) > 0:
		return "", fmt.Errorf("%s has no .safetensors file, only %s: convert those to safetensors first", c.Dir, list(others, 3))
	}
	return "", fmt.Errorf("%s has no .safetensors file", c.Dir)
}

// list joins at most n names.
func list(names []string, n int) string {
	if len(names) <= n {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:n], ", "), len(names)-n)
}

func (c *Checkpoint) openSingle(name string) error {
	f, err := safetensors.Open(filepath.Join(c.Dir, name))
	if err != nil {
		return err
	}
	c.files = append(c.files, f)
	for _, t := range f.Tensors() {
		c.tensors[t.Name] = f
	}
	return nil
}

func (c *Checkpoint) openIndexed() error {
	path := filepath.Join(c.Dir, indexFile)
	data, err := readFile(path, maxIndex)
	if err != nil {
		return err
	}
	weightMap, err := parseIndex(data)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	files := make(map[string]*safetensors.File)
	for _, shard := range slices.Sorted(maps.Values(weightMap)) {
		if files[shard] != nil {
			continue
		}
		f, err := safetensors.Open(filepath.Join(c.Dir, filepath.FromSlash(shard)))
		if errors.Is(err, os.ErrNotExist) {
			hint := "download it"
			if _, err := os.Stat(filepath.Join(c.Dir, singleFile)); err == nil {
				hint = fmt.Sprintf("download it, or remove the index if %s holds the whole model", singleFile)
			}
			return fmt.Errorf("%s names %s, which is missing: %s", path, shard, hint)
		}
		if err != nil {
			return err
		}
		files[shard] = f
		c.files = append(c.files, f)
	}
	for _, name := range slices.Sorted(maps.Keys(weightMap)) {
		f := files[weightMap[name]]
		if _, ok := f.Lookup(name); !ok {
			return fmt.Errorf("%s assigns tensor %q to %s, which does not hold it: the index is stale or the file is not the one it was made for", path, name, weightMap[name])
		}
		c.tensors[name] = f
	}
	for _, f := range c.files {
		for _, t := range f.Tensors() {
			if c.tensors[t.Name] == nil {
				c.unindexed[t.Name] = f
			}
		}
	}
	return nil
}

// parseIndex returns the weight_map of an index, with file names checked to
// stay within the folder.
func parseIndex(data []byte) (map[string]string, error) {
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(data, &index); err != nil {
		return nil, fmt.Errorf("want a JSON object with weight_map, from tensors to files: %w", err)
	}
	if len(index.WeightMap) == 0 {
		return nil, errors.New("weight_map is missing or empty")
	}
	for _, name := range slices.Sorted(maps.Keys(index.WeightMap)) {
		// A backslash or colon leaves the folder on Windows only, but an index
		// must mean the same everywhere.
		shard := index.WeightMap[name]
		if !filepath.IsLocal(filepath.FromSlash(shard)) || strings.ContainsAny(shard, "\\:\x00") {
			return nil, fmt.Errorf("weight_map[%q]: file name %q leads out of the folder", name, shard)
		}
	}
	return index.WeightMap, nil
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

// Format returns how the files of weights call their layout: "pt" for
// Hugging Face's own, "mlx" for a conversion by MLX, whose tensors can have
// the same names and other contents; "" when they don't say or disagree.
func (c *Checkpoint) Format() string {
	format := ""
	for i, f := range c.files {
		switch v := f.Metadata()["format"]; {
		case i == 0:
			format = v
		case v != format:
			return ""
		}
	}
	return format
}

// Files returns the names of the tokenizer, template and generation files
// that the folder has and that a package takes over, in a fixed order.
func (c *Checkpoint) Files() []string {
	var names []string
	for _, name := range copied {
		if st, err := os.Stat(filepath.Join(c.Dir, name)); err == nil && st.Mode().IsRegular() {
			names = append(names, name)
		}
	}
	return names
}

// Weights returns the names of the opened files of weights, with slashes,
// relative to the folder.
func (c *Checkpoint) Weights() []string {
	var names []string
	for _, f := range c.files {
		names = append(names, c.relative(f))
	}
	return names
}

func (c *Checkpoint) relative(f *safetensors.File) string {
	if rel, err := filepath.Rel(c.Dir, f.Path()); err == nil {
		return filepath.ToSlash(rel)
	}
	return f.Path()
}

// Has reports whether there is a tensor of that name.
func (c *Checkpoint) Has(name string) bool { return c.tensors[name] != nil }

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

// Unindexed returns the names of tensors that lie in an opened file but are
// not in the index, in order: the index may be older than the file.
func (c *Checkpoint) Unindexed() []string { return slices.Sorted(maps.Keys(c.unindexed)) }

// Lookup returns a tensor of any type and shape without marking it as used.
func (c *Checkpoint) Lookup(name string) (*Tensor, bool) {
	f := c.tensors[name]
	if f == nil {
		return nil, false
	}
	info, _ := f.Lookup(name)
	return &Tensor{Name: name, DType: info.DType, Shape: slices.Clone(info.Shape), File: f.Path(), file: f, info: info}, true
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
		return nil, fmt.Errorf("%s: tensor %q: found shape %v, want %s", t.File, name, t.Shape, wanted(shape))
	}
	switch t.DType {
	case safetensors.F32, safetensors.F16, safetensors.BF16:
		return t, nil
	}
	return nil, fmt.Errorf("%s: tensor %q: found type %s, want F32, F16 or BF16; convert from the original checkpoint if this one is quantized", t.File, name, t.DType)
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
	if f := c.unindexed[name]; f != nil {
		return fmt.Errorf("%s: tensor %q is missing from the index although %s holds it: the index is stale", filepath.Join(c.Dir, indexFile), name, c.relative(f))
	}
	where := "in no file"
	if len(c.files) == 1 {
		where = "not in " + c.relative(c.files[0])
	} else if len(c.files) > 1 {
		where = fmt.Sprintf("in none of the %d files", len(c.files))
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
