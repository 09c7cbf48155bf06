package anemll

import (
	"os"
	"path/filepath"
)

// HasTokenizer reports whether there is a tokenizer.json in the package's
// folder or where meta.yaml says that the tokenizer is.
func (p *Package) HasTokenizer() bool {
	dirs := []string{p.Dir}
	if p.Meta != nil && p.Meta.TokenizerPath != "" {
		dirs = append(dirs, p.Meta.TokenizerPath, filepath.Join(p.Dir, p.Meta.TokenizerPath))
	}
	for _, dir := range dirs {
		if st, err := os.Stat(filepath.Join(dir, "tokenizer.json")); err == nil && st.Mode().IsRegular() {
			return true
		}
	}
	return false
}
