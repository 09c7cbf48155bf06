package checkpoint

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"anemone/internal/platform"
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

// files are those beside the weights: files of a folder, and made ones, which
// stand in for files that the folder, if there is one, does not have.
type files struct {
	dir  string // "" if there is none
	from string // path of what the made files are made of
	made map[string][]byte
	// tokenizer makes tokenizer.json and what belongs to it, once; nil if
	// there is nothing to make them of.
	tokenizer func() (map[string][]byte, error)
}

// path returns what errors call a file.
func (f *files) path(name string) string {
	if f.real(name) || f.from == "" {
		return filepath.Join(f.dir, name)
	}
	return fmt.Sprintf("%s (as %s)", f.from, name)
}

// real reports whether the folder has an entry of that name, be it a link
// that leads nowhere.
func (f *files) real(name string) bool {
	if f.dir == "" {
		return false
	}
	_, err := os.Lstat(filepath.Join(f.dir, name))
	return err == nil
}

// content returns the content of a made file, nil if there is none of that
// name.
func (f *files) content(name string) []byte {
	if data, ok := f.made[name]; ok {
		return data
	}
	if f.tokenizer == nil || name == configFile || name == generationFile {
		return nil
	}
	m, err := f.tokenizer()
	if err != nil {
		return nil
	}
	return m[name]
}

// open opens a file; the error for one that is not there is [fs.ErrNotExist].
func (f *files) open(name string) (io.ReadCloser, error) {
	if f.dir != "" && (f.real(name) || f.content(name) == nil) {
		return platform.Open(filepath.Join(f.dir, name))
	}
	if data := f.content(name); data != nil {
		return io.NopCloser(bytes.NewReader(data)), nil
	}
	return nil, &fs.PathError{Op: "open", Path: f.path(name), Err: fs.ErrNotExist}
}

// read returns the content of a file of at most limit bytes.
func (f *files) read(name string, limit int64) ([]byte, error) {
	r, err := f.open(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return readLimited(r, f.path(name), limit)
}

// check refuses files that are there by name only, such as a link of an
// interrupted download that leads nowhere: without them the package would
// have no tokenizer, and nobody would say so.
func (f *files) check() error {
	for _, name := range copied {
		if !f.real(name) {
			continue
		}
		r, err := platform.Open(filepath.Join(f.dir, name))
		if err != nil {
			return err
		}
		r.Close()
	}
	return nil
}

// Files returns the names of the tokenizer, template and generation files
// that the checkpoint has and that a package takes over, in a fixed order.
// Those that it has in another form, such as a GGUF file's tokenizer, count:
// [Checkpoint.OpenFile] gives them.
func (c *Checkpoint) Files() []string {
	var names []string
	for _, name := range copied {
		st, err := os.Stat(filepath.Join(c.files.dir, name))
		if c.files.dir != "" && err == nil && st.Mode().IsRegular() || !c.files.real(name) && c.files.content(name) != nil {
			names = append(names, name)
		}
	}
	return names
}

// TokenizerProblem says why a tokenizer that the checkpoint has in another form
// than tokenizer.json could not be written in that form; nil if it could, or if
// there is nothing of the kind.
func (c *Checkpoint) TokenizerProblem() error {
	if c.files.tokenizer == nil {
		return nil
	}
	_, err := c.files.tokenizer()
	return err
}

// OpenFile opens config.json or one of the [Checkpoint.Files]. The error for a
// file that is not there wraps [fs.ErrNotExist].
func (c *Checkpoint) OpenFile(name string) (io.ReadCloser, error) {
	if name != configFile && !slices.Contains(copied, name) {
		return nil, &fs.PathError{Op: "open", Path: c.files.path(name), Err: fs.ErrNotExist}
	}
	return c.files.open(name)
}

// ReadFile returns the content of a file that [Checkpoint.OpenFile] opens.
func (c *Checkpoint) ReadFile(name string) ([]byte, error) {
	r, err := c.OpenFile(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return readLimited(r, c.files.path(name), maxFile)
}

// maxFile bounds the files that are read whole, in bytes. The largest real one,
// a tokenizer.json of 262144 tokens with their merges, has 33 million.
const maxFile = 256 << 20

// readLimited reads at most limit bytes; name is what errors call them.
func readLimited(r io.Reader, name string, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if size := int64(len(data)); size > limit {
		if st, ok := r.(interface{ Stat() (fs.FileInfo, error) }); ok {
			if st, err := st.Stat(); err == nil {
				size = max(size, st.Size())
			}
		}
		return nil, fmt.Errorf("%s: file of %d bytes exceeds the limit of %d", name, size, limit)
	}
	return data, nil
}
