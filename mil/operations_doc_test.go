package mil_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"anemone/internal/testutil"
	"anemone/mil"
)

var update = flag.Bool("update", false, "write docs/operations.md")

// TestOperationsDoc holds docs/operations.md to the table of operations and
// to the registry of the engine.
func TestOperationsDoc(t *testing.T) {
	path := filepath.Join(testutil.Root(t), "docs", "operations.md")
	want := operationsDoc(engineOps(t))
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		a, b := strings.Split(string(got), "\n"), strings.Split(want, "\n")
		i := 0
		for i < len(a) && i < len(b) && a[i] == b[i] {
			i++
		}
		line := func(s []string) string {
			if i < len(s) {
				return s[i]
			}
			return "(end)"
		}
		t.Errorf("docs/operations.md differs from the table in line %d; run go test ./mil -run TestOperationsDoc -update\nhas:  %s\nwant: %s", i+1, line(a), line(b))
	}
}

// engineOps reads the names in the engine's registry from its source: the
// table of documentation must not need what the engine is built of.
//
// What of an operation it refuses is in another map there.
func engineOps(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(testutil.Root(t), "internal", "engine", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	ops, partly := map[string]string{}, map[string]string{}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			v, ok := n.(*ast.ValueSpec)
			if !ok || len(v.Names) != 1 || v.Names[0].Name != "builders" && v.Names[0].Name != "partly" || len(v.Values) != 1 {
				return true
			}
			lit, ok := v.Values[0].(*ast.CompositeLit)
			if !ok {
				return true
			}
			for _, e := range lit.Elts {
				if kv, ok := e.(*ast.KeyValueExpr); ok {
					if key, ok := kv.Key.(*ast.BasicLit); ok {
						name, err := strconv.Unquote(key.Value)
						if err != nil {
							t.Fatal(err)
						}
						if v.Names[0].Name == "builders" {
							ops[name] = "runs"
						} else if why, ok := kv.Value.(*ast.BasicLit); ok {
							if partly[name], err = strconv.Unquote(why.Value); err != nil {
								t.Fatal(err)
							}
						}
					}
				}
			}
			return true
		})
	}
	if len(ops) < 50 {
		t.Fatalf("found %d operations in the engine's registry", len(ops))
	}
	for name := range ops {
		if _, ok := mil.LookupOp(name); !ok {
			t.Errorf("the engine has %q, which is not in the table", name)
		}
	}
	ops["const"] = "runs"
	for name, why := range partly {
		if ops[name] == "" {
			t.Errorf("the engine refuses part of %q, but does not run it", name)
		}
		ops[name] = "runs; " + why
	}
	return ops
}

const docHead = `# Operations

Every operation of ML Programs that this project knows, from its one table in ` + "`mil/ops_table.go`" + `. This page is made from
the table by ` + "`go test ./mil -run TestOperationsDoc -update`" + `; a test keeps the two alike.

The table covers what coremltools 9 writes for iOS 15 to iOS 18 (operation sets CoreML5 to CoreML8). Tests hold it to records of
coremltools' own builder (` + "`mil/testdata/coremltools`" + `): parameters, element types, defaults and result types, in every
operation set.

An operation with several rows changed: each row says since when it has the form, and a later row which arguments are new or
different then. What a function may use follows from its operation set.

- *since*: the first system, thus the first operation set, with the operation in this form: iOS 15 is CoreML5, iOS 18 is CoreML8.
- *const*: known before the program runs: a constant, or computed from constants only. Arguments of other kinds may be constants too.
- ` + "`= value`" + `: the argument may be missing and then has this value; *(words)* say what its absence means.
- *as ` + "`x`" + `*: of the same element type as that argument. Defaults that coremltools writes as fp32 beside fp16 operands are taken too.
- *engine*: whether ` + "`internal/engine`" + ` runs it.

`

const docTail = `
## What is not in the table

| Operation | State | Why |
|---|---|---|
| ` + "`classify`" + ` | refused | gives a string or int64 and a dictionary: a head of classifiers, not arithmetic on tensors; the probabilities are its argument |
| ` + "`custom_layer`" + ` | refused | its arithmetic is code of the app that runs the model, not in the package |
| image inputs and outputs | not operations | they are types of the model's description; inside the program they are tensors |
| operations on strings and lists of strings | none | coremltools has none but ` + "`classify`" + `; strings occur as constant arguments |
| ` + "`complex`, `complex_real`, `complex_imag`, `complex_shape`, `complex_abs`, `complex_fft`, `complex_fftn`, `complex_rfft`, `complex_rfftn`, `complex_ifft`, `complex_ifftn`, `complex_irfft`, `complex_irfftn`, `complex_stft`" + ` | never in a file | coremltools takes them apart into operations of the table before it writes |
| ` + "`torch_upsample_nearest_neighbor`, `torch_upsample_bilinear`, `torch_tensor_assign`, `tf_make_list`, `tf_lstm_block`, `tf_lstm_block_cell`" + ` | never in a file | the same |

` + "`coreml_update_state`" + ` is written as ` + "`write_state`" + ` followed by ` + "`read_state`" + `. ` + "`acosh`" + ` and ` + "`asinh`" + ` are not known to coremltools.
Lists of tensors (` + "`make_list`" + ` and ` + "`list_*`" + `) are checked like all else; what converters make of TensorFlow's tensor arrays needs them.
`

// operationsDoc is the page.
func operationsDoc(runs map[string]string) string {
	var b strings.Builder
	b.WriteString(docHead)
	total, running := 0, 0
	for _, name := range mil.OpNames() {
		total++
		if runs[name] != "" {
			running++
		}
	}
	fmt.Fprintf(&b, "%d operations; the engine runs %d of them.\n", total, running)
	for _, family := range mil.Families() {
		fmt.Fprintf(&b, "\n## %s\n\n| Operation | Since | Arguments | Results | Engine |\n|---|---|---|---|---|\n", family)
		for _, row := range docRows(family, runs) {
			b.WriteString(row)
		}
	}
	b.WriteString(docTail)
	return b.String()
}

// docRows gives the rows of a family. Operations that differ in nothing but
// their names share rows.
func docRows(family string, runs map[string]string) []string {
	var keys []string
	names := map[string][]string{}
	for _, name := range mil.OpNames() {
		d, _ := mil.LookupOp(name)
		if d.Family != family {
			continue
		}
		var forms []*mil.OpDef
		for f := d; f != nil; f = f.Older() {
			forms = append(forms, f)
		}
		slices.Reverse(forms)
		rows := ""
		for i, f := range forms {
			args, gives := docArgs(f, nil), f.Gives
			if i > 0 {
				args = docArgs(f, forms[i-1])
				if gives == forms[i-1].Gives {
					gives = ""
				}
			}
			label, state := "", ""
			if i == 0 {
				label, state = "NAMES", "refused: not built yet"
				if runs[name] != "" {
					state = runs[name]
				}
			}
			rows += fmt.Sprintf("| %s | %s | %s | %s | %s |\n", label, f.Since.System(), args, gives, state)
		}
		if names[rows] == nil {
			keys = append(keys, rows)
		}
		names[rows] = append(names[rows], "`"+name+"`")
	}
	var out []string
	for _, k := range keys {
		out = append(out, strings.Replace(k, "NAMES", strings.Join(names[k], ", "), 1))
	}
	return out
}

// docArgs describes the parameters of a form; of a newer one, what changed.
func docArgs(d, old *mil.OpDef) string {
	var out []string
	first := map[string]string{} // parameter of each group
	for i := range d.Params {
		p := &d.Params[i]
		s := docArg(p, first[p.Group])
		if p.Group != "" && first[p.Group] == "" {
			first[p.Group] = p.Name
		}
		if old != nil {
			q := old.Param(p.Name)
			if q != nil && q.Accepts == p.Accepts && q.Group == p.Group && q.Const == p.Const && q.Optional == p.Optional && slices.Equal(q.Values, p.Values) {
				continue
			}
			if q == nil {
				s = "new: " + s
			}
		}
		out = append(out, s)
	}
	if old != nil {
		for _, q := range old.Params {
			if d.Param(q.Name) == nil {
				out = append(out, "no `"+q.Name+"`")
			}
		}
		if len(out) == 0 {
			return "(as before)"
		}
	}
	if d.Name == "cond" {
		out = append(out, "two blocks without inputs")
	}
	if d.Name == "while_loop" {
		out = append(out, "two blocks with `loop_vars` as inputs: one gives a bool, one the next `loop_vars`")
	}
	return strings.Join(out, "; ")
}

func docArg(p *mil.Param, as string) string {
	s := "`" + p.Name + "`"
	if p.Const {
		s += " const"
	}
	switch {
	case p.Variadic:
		s += " any number of " + docClass(p.Accepts)
	case as != "":
		s += " as `" + as + "`"
	case len(p.Values) > 0:
		s += " \"" + strings.Join(p.Values, "\"/\"") + "\""
		if p.AnyCase {
			s += " (in any case)"
		}
	default:
		s += " " + docClass(p.Accepts)
	}
	switch l := p.Default; {
	case l == nil && p.Absent != "":
		s += " (" + p.Absent + ")"
	case l != nil:
		v := ""
		switch {
		case len(l.Ints) > 0:
			v = fmt.Sprint(l.Ints[0])
		case len(l.Floats) > 0:
			v = strconv.FormatFloat(l.Floats[0], 'g', -1, 32)
		case len(l.Bools) > 0:
			v = fmt.Sprint(l.Bools[0])
		case len(l.Strings) > 0:
			v = strconv.Quote(l.Strings[0])
		}
		s += " `= " + v + "`"
	}
	return s
}

// docClass writes a class as its element types.
func docClass(c mil.Class) string {
	var s []string
	switch {
	case c&mil.Any == mil.Any:
		s = append(s, "tensor")
	default:
		for _, d := range c.DTypes() {
			s = append(s, d.String())
		}
	}
	for _, k := range []struct {
		c    mil.Class
		name string
	}{{mil.States, "state"}, {mil.Lists, "list"}, {mil.Dicts, "dictionary"}} {
		if c&k.c != 0 {
			s = append(s, k.name)
		}
	}
	return strings.Join(s, "/")
}
