package anemone_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// rooms says which packages of the module the code of a room may import; a
// name stands for the package and all below it, a room may import itself.
// What serves everybody (float16, platform, ane, npy) is not listed.
var rooms = []struct {
	room string
	may  string
}{
	{"mil", ""},
	{"coreml", "mil"},
	{"internal/float16", ""},
	{"internal/platform", ""},
	{"internal/checkpoint", "internal/tokenizer/vocab"},
	{"internal/tokenizer", ""},
	{"internal/compress", "mil"},
	// Graph and reference: nn and dense must not know each other.
	{"internal/arch/dense", "internal/checkpoint"},
	{"internal/arch/nn", "mil internal/checkpoint internal/compress"},
	{"internal/arch", "mil internal/checkpoint"},
	{"internal/runner", "mil coreml"},
	{"internal/engine", "mil coreml internal/runner"},
	{"internal/anemll", "mil coreml internal/checkpoint internal/arch internal/compress"},
	// Neither asks which runner it holds: no engine here.
	{"internal/session", "mil coreml internal/anemll internal/checkpoint internal/runner"},
	{"internal/check", "mil coreml internal/runner internal/anemll internal/arch internal/checkpoint internal/session internal/tokenizer"},
}

var common = []string{"internal/float16", "internal/platform", "internal/ane", "internal/npy"}

func within(pkg, room string) bool { return pkg == room || strings.HasPrefix(pkg, room+"/") }

// TestImports holds the code, without its tests, to the architecture.
func TestImports(t *testing.T) {
	checked := 0
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		file = filepath.ToSlash(file)
		if d.IsDir() {
			if name := d.Name(); name == "testdata" || name == "tools" || file != "." && strings.ContainsAny(name[:1], "._") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		pkg := path.Dir(file)
		// Packages for tests only.
		if strings.HasSuffix(path.Base(pkg), "test") || pkg == "internal/testutil" {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range f.Imports {
			p, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			p, ours := strings.CutPrefix(p, "anemone/")
			if !ours {
				continue
			}
			checked++
			if why := refuse(pkg, file, p); why != "" {
				t.Errorf("%s imports %s: %s", file, p, why)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if checked < 100 {
		t.Errorf("only %d imports were seen", checked)
	}
}

// refuse says why a file must not import a package, "" if it may.
func refuse(pkg, file, imported string) string {
	// The two computations of an architecture share no code.
	switch base := path.Base(file); {
	case !within(pkg, "internal/arch"):
	case base == "reference.go" && within(imported, "internal/arch/nn"):
		return "the reference shares nothing with the graph"
	case base == "graph.go" && within(imported, "internal/arch/dense"):
		return "the graph shares nothing with the reference"
	}
	for _, c := range common {
		if within(imported, c) {
			return ""
		}
	}
	for _, r := range rooms {
		if !within(pkg, r.room) {
			continue
		}
		if r.room == "internal/arch/dense" || r.room == "internal/arch/nn" {
			if imported == "internal/arch" {
				return "the pieces do not know the registry"
			}
		} else if within(imported, r.room) {
			return ""
		}
		for m := range strings.FieldsSeq(r.may) {
			if within(imported, m) {
				return ""
			}
		}
		return r.room + " may import only " + r.may
	}
	return "" // commands and what puts everything together
}
