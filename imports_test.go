package anemone_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
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

// graphs are the packages with pieces of graphs.
var graphs = []string{"internal/arch/nn", "internal/arch/gemma"}

// TestGraphAndReference holds the two computations of an architecture apart
// within its package: of what the files with pieces of the graph declare,
// reference.go uses nothing but the Model that it belongs to, and they use
// nothing of what it declares.
func TestGraphAndReference(t *testing.T) {
	references, err := filepath.Glob("internal/arch/*/reference.go")
	if err != nil {
		t.Fatal(err)
	}
	references = slices.DeleteFunc(references, func(file string) bool { return strings.HasSuffix(filepath.Dir(file), "test") })
	if len(references) < 4 {
		t.Fatalf("only %d references", len(references))
	}
	for _, reference := range references {
		files, err := filepath.Glob(filepath.Join(filepath.Dir(reference), "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		// Of the reference, and of all files of the graph.
		var declared, used [2]map[string]bool
		for i := range declared {
			declared[i], used[i] = map[string]bool{}, map[string]bool{}
		}
		for _, file := range files {
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			side := 0
			if file != reference {
				if side = 1; strings.HasSuffix(file, "_test.go") || !slices.ContainsFunc(f.Imports, func(s *ast.ImportSpec) bool {
					return slices.Contains(graphs, strings.TrimPrefix(strings.Trim(s.Path.Value, `"`), "anemone/"))
				}) || path.Base(filepath.ToSlash(file)) == "config.go" {
					continue
				}
			}
			for _, d := range f.Decls {
				for _, name := range names(d) {
					declared[side][name] = true
				}
			}
			for _, id := range f.Unresolved {
				used[side][id.Name] = true
			}
		}
		if len(declared[0]) == 0 || !declared[1]["Model"] {
			t.Errorf("%s: no reference, or no Model beside it", reference)
		}
		for side, name := range []string{"the reference", "the graph"} {
			for id := range used[side] {
				if declared[1-side][id] && id != "Model" && id != "_" {
					t.Errorf("%s: %s uses %s of the other's", filepath.Dir(reference), name, id)
				}
			}
		}
	}
}

// names lists what a declaration adds to the scope of its package.
func names(d ast.Decl) (names []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			names = append(names, d.Name.Name)
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				names = append(names, s.Name.Name)
			case *ast.ValueSpec:
				for _, id := range s.Names {
					names = append(names, id.Name)
				}
			}
		}
	}
	return names
}

// refuse says why a file must not import a package, "" if it may.
func refuse(pkg, file, imported string) string {
	// The two computations of an architecture share no code.
	switch base := path.Base(file); {
	case !within(pkg, "internal/arch"):
	case base == "reference.go" && slices.ContainsFunc(graphs, func(g string) bool { return within(imported, g) }):
		return "the reference shares nothing with the graph"
	case base != "reference.go" && within(imported, "internal/arch/dense") && !within(pkg, "internal/arch/dense"):
		return "the graph shares nothing with the reference, which alone computes"
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
