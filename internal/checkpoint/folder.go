package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"anemone/internal/checkpoint/safetensors"
)

const (
	singleFile = "model.safetensors"
	indexFile  = "model.safetensors.index.json"

	// maxIndex bounds the index, in bytes: a checkpoint of 100,000 tensors
	// takes some 15 million.
	maxIndex = 64 << 20
)

// openFolder opens a Hugging Face model folder.
func (c *Checkpoint) openFolder() error {
	c.files.dir = c.Dir
	if err := c.readConfigs(); errors.Is(err, fs.ErrNotExist) {
		if files, _ := c.ggufFiles(); len(files) > 0 {
			return fmt.Errorf("%s has no %s, but %s", c.Dir, configFile, c.instead(files))
		}
		return fmt.Errorf("%s has no %s; want a Hugging Face model folder or a GGUF file", c.Dir, configFile)
	} else if err != nil {
		return err
	}
	if err := c.files.check(); err != nil {
		return err
	}
	c.useSentencePiece()
	return c.openWeights()
}

// ggufFiles lists the GGUF files of the folder.
func (c *Checkpoint) ggufFiles() (names []string, err error) {
	entries, err := os.ReadDir(c.Dir)
	for _, e := range entries {
		if name := e.Name(); !strings.HasPrefix(name, ".") && strings.EqualFold(filepath.Ext(name), ".gguf") {
			names = append(names, name)
		}
	}
	return names, err
}

// instead says which GGUF files there are, and to open one of them.
func (c *Checkpoint) instead(files []string) string {
	path := filepath.Join(c.Dir, files[0])
	if len(files) == 1 {
		return fmt.Sprintf("a GGUF file: give that in place of the folder, %s", path)
	}
	return fmt.Sprintf("%s: give one of these files in place of the folder, such as %s", list(files, 3), path)
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
		case strings.HasSuffix(name, ".bin") || strings.HasSuffix(name, ".pth"):
			others = append(others, name)
		}
	}
	switch {
	case len(weights) == 1:
		return weights[0], nil
	case len(weights) > 1:
		return "", fmt.Errorf("%s has %s, but neither %s nor %s, which says which of them holds what", c.Dir, list(weights, 3), singleFile, indexFile)
	}
	if files, err := c.ggufFiles(); err == nil && len(files) > 0 {
		return "", fmt.Errorf("%s has no .safetensors file, but %s", c.Dir, c.instead(files))
	}
	if len(others) > 0 {
		return "", fmt.Errorf("%s has no .safetensors file, only %s: convert those to safetensors first", c.Dir, list(others, 3))
	}
	if _, err := os.Stat(filepath.Join(c.Dir, "meta.yaml")); err == nil {
		return "", fmt.Errorf("%s has no .safetensors file, but a meta.yaml: it is a package; give the checkpoint that it was made of", c.Dir)
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
	c.weights = append(c.weights, f)
	for _, t := range f.Tensors() {
		c.tensors[t.Name] = tensorIn(f, t)
	}
	c.format = f.Metadata()["format"]
	return nil
}

// tensorIn returns a tensor of a safetensors file.
func tensorIn(f *safetensors.File, info safetensors.Info) Tensor {
	t := Tensor{Name: info.Name, DType: info.DType, Shape: info.Shape, File: f.Path(), Stored: string(info.DType), size: info.Size}
	if info.Size > 0 {
		t.n = int(info.Size * 8 / int64(info.DType.Bits()))
	}
	t.bytes = func() ([]byte, error) { return f.Bytes(info.Name) }
	return t
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
	formats := make(map[string]bool)
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
		c.format = f.Metadata()["format"]
		formats[c.format] = true
		c.weights = append(c.weights, f)
	}
	for _, name := range slices.Sorted(maps.Keys(weightMap)) {
		f := files[weightMap[name]]
		info, ok := f.Lookup(name)
		if !ok {
			return fmt.Errorf("%s assigns tensor %q to %s, which does not hold it: the index is stale or the file is not the one it was made for", path, name, weightMap[name])
		}
		c.tensors[name] = tensorIn(f, info)
	}
	if len(formats) > 1 {
		c.format = ""
	}
	for _, shard := range slices.Sorted(maps.Keys(files)) {
		for _, t := range files[shard].Tensors() {
			if !c.Has(t.Name) {
				c.unindexed[t.Name] = files[shard].Path()
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
