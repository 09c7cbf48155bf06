package mlpackage

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"anemone/coreml"
	"anemone/coreml/modelproto/modelpb"
	"anemone/internal/testutil"
	"anemone/mil"
	"anemone/mil/blob"
	"anemone/mil/milproto/milpb"
)

// bundles returns every package and every specification of an ML Program in
// the shared material, with the folder that its weights are in ("" if it is a
// package).
func bundles(t testing.TB) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, pattern := range []string{"peers/*/*.mlpackage", "samples/mlmodelc/*.mlpackage", "samples/mlmodelc/*.input.mlmodel"} {
		paths, err := filepath.Glob(filepath.Join(testutil.Shared(t), filepath.FromSlash(pattern)))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range paths {
			out[p] = ""
			if stem, ok := strings.CutSuffix(p, ".input.mlmodel"); ok {
				out[p] = filepath.Join(stem+".mlmodelc", "weights")
			}
		}
	}
	return out
}

func readSpec(t testing.TB, path string) *modelpb.Model {
	t.Helper()
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		path = filepath.Join(path, "Data", "com.apple.CoreML", "model.mlmodel")
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m := &modelpb.Model{}
	if err := proto.Unmarshal(b, m); err != nil {
		t.Fatal(err)
	}
	return m
}

// normalise replaces every place of a weight by a digest of what is there, so
// that two specifications can be compared whose weights lie in another order.
// dir is the folder of the specification.
func normalise(t testing.TB, m *modelpb.Model, dir string) *modelpb.Model {
	t.Helper()
	files := map[string][]byte{}
	var value func(v *milpb.Value)
	value = func(v *milpb.Value) {
		ref := v.GetBlobFileValue()
		if ref == nil {
			return
		}
		b := files[ref.FileName]
		if b == nil {
			var err error
			if b, err = os.ReadFile(filepath.Join(dir, filepath.FromSlash(strings.TrimPrefix(ref.FileName, "@model_path/")))); err != nil {
				t.Fatal(err)
			}
			files[ref.FileName] = b
		}
		r, err := blob.NewReader(b)
		if err != nil {
			t.Fatal(err)
		}
		rec, err := r.Record(ref.Offset)
		if err != nil {
			t.Fatal(err)
		}
		ref.FileName = fmt.Sprintf("%v %x", rec.Code, sha256.Sum256(b[rec.Data:][:rec.Size]))
		ref.Offset = 0
	}
	var block func(b *milpb.Block)
	block = func(b *milpb.Block) {
		for _, op := range b.Operations {
			for _, a := range op.Inputs {
				for _, x := range a.Arguments {
					value(x.GetValue())
				}
			}
			for _, a := range op.Attributes {
				value(a)
			}
			for _, n := range op.Blocks {
				block(n)
			}
		}
	}
	for _, f := range m.GetMlProgram().GetFunctions() {
		for _, b := range f.BlockSpecializations {
			block(b)
		}
	}
	if m.Description.Metadata == nil {
		m.Description.Metadata = &modelpb.Metadata{}
	}
	return m
}

// TestRoundTrip reads every package that we have, by coremltools, ANEMLL and
// others, writes it again, and compares the specification message by message
// and the weights byte by byte.
func TestRoundTrip(t *testing.T) {
	done := 0
	for path, weights := range bundles(t) {
		if strings.Contains(path, "__pipeline") {
			if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "the model is a pipeline (type 202)") {
				t.Errorf("a pipeline: %v", err)
			}
			continue
		}
		t.Run(filepath.Base(filepath.Dir(path))+"/"+filepath.Base(path), func(t *testing.T) {
			dir := filepath.Join(path, "Data", "com.apple.CoreML")
			if weights != "" {
				// A lone specification: its weights must lie beside it.
				dir = t.TempDir()
				b, err := os.ReadFile(path)
				if err == nil {
					path = filepath.Join(dir, "model.mlmodel")
					err = os.WriteFile(path, b, 0o666)
				}
				if _, e := os.Stat(weights); e == nil && err == nil {
					err = os.CopyFS(filepath.Join(dir, "weights"), os.DirFS(weights))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			p, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			out := filepath.Join(t.TempDir(), "again.mlpackage")
			if err := Write(context.Background(), out, p.Model, Options{}); err != nil {
				t.Fatal(err)
			}
			want := normalise(t, readSpec(t, path), dir)
			got := normalise(t, readSpec(t, out), filepath.Join(out, "Data", "com.apple.CoreML"))
			if !proto.Equal(got, want) {
				t.Error("the specification is not the same")
			}
			// What we wrote we read, and write the same again.
			q, err := Open(out)
			if err != nil {
				t.Fatal(err)
			}
			defer q.Close()
			out2 := filepath.Join(t.TempDir(), "third.mlpackage")
			if err := Write(context.Background(), out2, q.Model, Options{}); err != nil {
				t.Fatal(err)
			}
			sameFolder(t, out, out2)
			done++
		})
	}
	t.Logf("%d packages", done)
	if done < 36 {
		t.Errorf("only %d packages were compared", done)
	}
}

// folder returns the files of a folder.
func folder(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	m := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		b, err := os.ReadFile(path)
		m[filepath.ToSlash(rel)] = b
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func sameFolder(t testing.TB, a, b string) {
	t.Helper()
	x, y := folder(t, a), folder(t, b)
	if !maps.EqualFunc(x, y, bytes.Equal) {
		t.Errorf("%s and %s differ", a, b)
	}
}

// model returns a model of two functions that share a weight and a state.
func model(t testing.TB) *coreml.Model {
	t.Helper()
	lut, err := mil.NewWeight(mil.TensorOf(mil.Float16, 1, 1, 4, 1), []byte{0, 0x3c, 0, 0x40, 0, 0x42, 0, 0x44}) // 1 2 3 4
	if err != nil {
		t.Fatal(err)
	}
	indices, err := mil.NewWeight(mil.TensorOf(mil.UInt2, 4, 4), []byte{0xe4, 0x1b, 0xe4, 0x1b})
	if err != nil {
		t.Fatal(err)
	}
	bias := mil.PromiseWeight(mil.TensorOf(mil.Float16, 4), func(w io.Writer) error {
		_, err := w.Write([]byte{0, 0x3c, 0, 0, 0, 0x3c, 0, 0})
		return err
	})
	function := func(name string, n int) *mil.Function {
		x := &mil.Value{Name: "x", Type: mil.TensorOf(mil.Float16, n, 4)}
		kv := &mil.Value{Name: "kv", Type: mil.StateOf(mil.Float16, n, 4)}
		b := &mil.Block{}
		op := func(typ, name string, t mil.Type, args ...mil.Arg) *mil.Value {
			o := &mil.Operation{Type: typ, Name: name, Args: args}
			v := &mil.Value{Name: name, Type: t, Op: o}
			o.Results = []*mil.Value{v}
			b.Ops = append(b.Ops, o)
			return v
		}
		bv := op("const", "bias", bias.Type())
		bv.Weight = bias
		w := op("constexpr_lut_to_dense", "w", mil.TensorOf(mil.Float16, 4, 4), mil.A("indices", mil.ImmWeight(indices)), mil.A("lut", mil.ImmWeight(lut)))
		y := op("linear", "y", x.Type, mil.A("bias", bv), mil.A("weight", w), mil.A("x", x))
		old := op("read_state", "old", kv.Type.Tensor(), mil.A("input", kv))
		sum := op("add", "sum", x.Type, mil.A("x", old), mil.A("y", y))
		b.Ops = append(b.Ops, &mil.Operation{Type: "write_state", Name: "set", Args: []mil.Arg{mil.A("data", sum), mil.A("input", kv)}})
		b.Outputs = []*mil.Value{op("read_state", "out", x.Type, mil.A("input", kv))}
		return &mil.Function{Name: name, Opset: mil.CoreML8, Inputs: []*mil.Value{x, kv}, Body: b}
	}
	m := &coreml.Model{
		SpecVersion:     9,
		DefaultFunction: "infer",
		Program:         &mil.Program{Functions: []*mil.Function{function("infer", 1), function("prefill", 3)}},
		Metadata:        coreml.Metadata{ShortDescription: "test", User: map[string]string{"b": "2", "a": "1"}},
	}
	for _, f := range m.Program.Functions {
		m.Functions = append(m.Functions, coreml.Describe(f))
	}
	return m
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.mlpackage")
	var calls []string
	err := Write(context.Background(), path, model(t), Options{Progress: func(done, total int64, name string) {
		calls = append(calls, fmt.Sprint(name, " ", done, "/", total))
	}})
	if err != nil {
		t.Fatal(err)
	}
	files := folder(t, path)
	want := []string{"Data/com.apple.CoreML/model.mlmodel", "Data/com.apple.CoreML/weights/weight.bin", "Manifest.json"}
	if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, want) {
		t.Errorf("files %q, want %q", got, want)
	}
	// Three blobs for the six uses, in the order of their use.
	if last := calls[len(calls)-1]; last != "w.lut 392/392" {
		t.Errorf("last progress %q, want the third weight at the end of 392 bytes", last)
	}
	r, err := blob.NewReader(files[want[1]])
	if err != nil {
		t.Fatal(err)
	}
	var codes []string
	for rec, err := range r.Records() {
		if err != nil {
			t.Fatal(err)
		}
		codes = append(codes, fmt.Sprint(rec.Code, " at ", rec.Offset))
	}
	if !slices.Equal(codes, []string{"fp16 at 64", "uint2 at 192", "fp16 at 320"}) {
		t.Errorf("blobs: %q", codes)
	}

	var m struct {
		Version string                       `json:"fileFormatVersion"`
		Items   map[string]map[string]string `json:"itemInfoEntries"`
		Root    string                       `json:"rootModelIdentifier"`
	}
	if err := json.Unmarshal(files["Manifest.json"], &m); err != nil {
		t.Fatal(err)
	}
	uuidRE := regexp.MustCompile(`^[0-9A-F]{8}-[0-9A-F]{4}-5[0-9A-F]{3}-[89AB][0-9A-F]{3}-[0-9A-F]{12}$`)
	for id, it := range m.Items {
		if !uuidRE.MatchString(id) {
			t.Errorf("%q is not a UUID of version 5", id)
		}
		wantItem := map[string]string{"author": "com.apple.CoreML", "description": "CoreML Model Weights", "name": "weights", "path": "com.apple.CoreML/weights"}
		if id == m.Root {
			wantItem = map[string]string{"author": "com.apple.CoreML", "description": "CoreML Model Specification", "name": "model.mlmodel", "path": "com.apple.CoreML/model.mlmodel"}
		}
		if !maps.Equal(it, wantItem) {
			t.Errorf("item %v, want %v", it, wantItem)
		}
	}
	if len(m.Items) != 2 || m.Version != "1.0.0" {
		t.Errorf("manifest %+v", m)
	}

	// The same model gives the same bytes, another model other identifiers.
	path2 := filepath.Join(dir, "b.mlpackage")
	if err := Write(context.Background(), path2, model(t), Options{}); err != nil {
		t.Fatal(err)
	}
	sameFolder(t, path, path2)
	other := model(t)
	other.Metadata.Author = "someone"
	path3 := filepath.Join(dir, "c.mlpackage")
	if err := Write(context.Background(), path3, other, Options{}); err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(folder(t, path3)["Manifest.json"], files["Manifest.json"]) {
		t.Error("two models have the same identifiers")
	}

	p, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	got := p.Model
	if len(p.Files) != 1 || p.Files[0].Size != 392 || p.WeightBytes() != 392 || p.Files[0].Name != "@model_path/weights/weight.bin" {
		t.Errorf("files %+v", p.Files)
	}
	if got.DefaultFunction != "infer" || got.SpecVersion != 9 || got.Functions[1].Name != "prefill" || got.Program.Functions[1].Name != "prefill" || got.Metadata.User["a"] != "1" {
		t.Errorf("model came back as %+v", got)
	}
	n := 0
	got.Program.Weights(func(*mil.Value, mil.Weight) { n++ })
	if n != 3 {
		t.Errorf("%d distinct weights came back, want 3 that two functions share", n)
	}
	if err := mil.Verify(got.Program); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 3 {
		t.Errorf("%d entries in the folder, want the three packages only", len(left))
	}
}

// TestFlexible writes the forms that the other tests do not have: a single
// function, flexible shapes, no weights.
func TestFlexible(t *testing.T) {
	ids := &mil.Value{Name: "ids", Type: mil.TensorOf(mil.Int32, 1, mil.Dynamic)}
	x := &mil.Value{Name: "x", Type: mil.TensorOf(mil.Float32, mil.Dynamic, 4)}
	a, b := &mil.Value{Name: "a", Type: ids.Type}, &mil.Value{Name: "b", Type: x.Type}
	f := &mil.Function{Name: "main", Opset: mil.CoreML7, Inputs: []*mil.Value{ids, x}, Body: &mil.Block{Outputs: []*mil.Value{a, b}, Ops: []*mil.Operation{
		{Type: "identity", Args: []mil.Arg{mil.A("x", ids)}, Results: []*mil.Value{a}},
		{Type: "identity", Args: []mil.Arg{mil.A("x", x)}, Results: []*mil.Value{b}},
	}}}
	m := &coreml.Model{SpecVersion: 8, Program: &mil.Program{Functions: []*mil.Function{f}}, Functions: []coreml.Function{coreml.Describe(f)}}
	in := m.Functions[0].Inputs
	in[0].Shape, in[0].Shapes = []int{1, 1}, [][]int{{1, 1}, {1, 64}}
	in[1].Shape, in[1].Ranges = []int{2, 4}, []coreml.Range{{Min: 1, Max: -1}, {Min: 4, Max: 4}}
	path := filepath.Join(t.TempDir(), "f.mlpackage")
	if err := Write(context.Background(), path, m, Options{}); err != nil {
		t.Fatal(err)
	}
	files := folder(t, path)
	if len(files) != 2 || strings.Contains(string(files["Manifest.json"]), "weights") {
		t.Errorf("package without weights: files %q, manifest %s", slices.Sorted(maps.Keys(files)), files["Manifest.json"])
	}
	spec := readSpec(t, path)
	if d := spec.Description; len(d.Functions) != 0 || d.DefaultFunctionName != "" || len(d.Input) != 2 || len(d.Output) != 2 {
		t.Errorf("description %v", d)
	}
	if e := spec.Description.Input[0].Type.GetMultiArrayType().GetEnumeratedShapes().GetShapes(); len(e) != 2 || !slices.Equal(e[1].Shape, []int64{1, 64}) {
		t.Errorf("enumerated shapes %v", e)
	}
	if r := spec.Description.Input[1].Type.GetMultiArrayType().GetShapeRange().GetSizeRanges(); len(r) != 2 || r[0].LowerBound != 1 || r[0].UpperBound != -1 {
		t.Errorf("ranges %v", r)
	}
	if s := spec.Description.Output[0].Type.GetMultiArrayType().GetShape(); len(s) != 0 {
		t.Errorf("output of unknown shape is described as %v", s)
	}
	p, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if len(p.Files) != 0 || p.WeightBytes() != 0 {
		t.Errorf("files %v", p.Files)
	}
	if got := p.Model.Functions[0].Inputs; fmt.Sprint(got) != fmt.Sprint(in) {
		t.Errorf("inputs came back as %v, want %v", got, in)
	}
	if got := p.Model.Program.Function("main").Input("x").Type; !got.Equal(x.Type) {
		t.Errorf("x came back as %v", got)
	}
}

// TestWriteFails checks that a package appears whole or not at all.
func TestWriteFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.mlpackage")
	empty := func() {
		t.Helper()
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Fatalf("%d entries are left behind", len(left))
		}
	}
	setBias := func(m *coreml.Model, w mil.Weight) *coreml.Model {
		for _, f := range m.Program.Functions {
			f.Body.Ops[0].Results[0].Weight = w
		}
		return m
	}
	typ := mil.TensorOf(mil.Float16, 4)
	boom := errors.New("boom")
	err := Write(context.Background(), path, setBias(model(t), mil.PromiseWeight(typ, func(io.Writer) error { return boom })), Options{})
	if !errors.Is(err, boom) || !strings.Contains(err.Error(), `weight "bias"`) || !strings.Contains(err.Error(), path) {
		t.Errorf("failing weight: %v", err)
	}
	empty()

	ctx, cancel := context.WithCancel(context.Background())
	stop := mil.PromiseWeight(typ, func(w io.Writer) error {
		cancel()
		_, err := w.Write(make([]byte, 8))
		return err
	})
	if err := Write(ctx, path, setBias(model(t), stop), Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	empty()
	if err := Write(ctx, path, model(t), Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before the start: %v", err)
	}
	empty()

	bad := model(t)
	bad.Program.Functions[0].Body.Ops[2].Results[0].Name = "state"
	if err := Write(context.Background(), path, bad, Options{}); err == nil || !strings.Contains(err.Error(), "reserved word") {
		t.Errorf("reserved name: %v", err)
	}
	bad = model(t)
	bad.Program.Functions[0].Body.Ops[2].Args[0].Values[0] = &mil.Value{Name: "bias", Type: typ}
	if err := Write(context.Background(), path, bad, Options{}); err == nil || !strings.Contains(err.Error(), "another value") {
		t.Errorf("another value of that name: %v", err)
	}
	bad = model(t)
	bad.Program.Attributes = []mil.Attribute{{Name: "w", Value: mil.ImmWeight(stop)}}
	if err := Write(context.Background(), path, bad, Options{}); err == nil || !strings.Contains(err.Error(), "only operations") {
		t.Errorf("weight as an attribute of the program: %v", err)
	}
	bad = setBias(model(t), mil.PromiseWeight(mil.TensorOf(mil.Int64, 4), nil))
	if err := Write(context.Background(), path, bad, Options{}); err == nil || !strings.Contains(err.Error(), `"bias"`) {
		t.Errorf("weight that cannot be stored: %v", err)
	}
	bad = model(t)
	bad.Metadata.Author = "\xff"
	if err := Write(context.Background(), path, bad, Options{}); err == nil || !strings.Contains(err.Error(), "UTF-8") {
		t.Errorf("text that is not UTF-8: %v", err)
	}
	if err := Write(context.Background(), filepath.Join(dir, "no", "such", "folder.mlpackage"), model(t), Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing folder: %v", err)
	}
	empty()

	// An existing package stays as it is, unless it is to be overwritten.
	if err := Write(context.Background(), path, model(t), Options{}); err != nil {
		t.Fatal(err)
	}
	before := folder(t, path)
	other := model(t)
	other.Metadata.Author = "someone"
	if err := Write(context.Background(), path, other, Options{}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("existing package: %v", err)
	}
	if err := Write(context.Background(), path, setBias(model(t), mil.PromiseWeight(typ, func(io.Writer) error { return boom })), Options{Overwrite: true}); !errors.Is(err, boom) {
		t.Errorf("failing overwrite: %v", err)
	}
	if !maps.EqualFunc(before, folder(t, path), bytes.Equal) {
		t.Error("a failed write changed the package")
	}
	if err := Write(context.Background(), path, other, Options{Overwrite: true}); err != nil {
		t.Fatal(err)
	}
	if maps.EqualFunc(before, folder(t, path), bytes.Equal) {
		t.Error("the package was not overwritten")
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("%d entries in the folder, want 1", len(left))
	}
	// Overwriting the very package that is read.
	p, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "windows" { // where a mapped file cannot be removed
		if err := Write(context.Background(), path, p.Model, Options{Overwrite: true}); err != nil {
			t.Error(err)
		}
	}
	p.Close()
}

func TestManifest(t *testing.T) {
	const fine = `{"fileFormatVersion":"1.0.0","itemInfoEntries":{"A":{"author":"a","description":"","name":"n","path":"m"}},"rootModelIdentifier":"A"}`
	edit := func(old, new string) string {
		if !strings.Contains(fine, old) {
			t.Fatalf("%q is not in the manifest", old)
		}
		return strings.Replace(fine, old, new, 1)
	}
	for _, c := range []struct{ text, want string }{
		{fine, ""},
		{edit(`1.0.0`, `0.9.9`), ""},
		{edit(`1.0.0`, `1.0.1`), "newer"},
		{edit(`1.0.0`, `2.0.0`), "newer"},
		{edit(`1.0.0`, `1.0`), "three numbers"},
		{edit(`1.0.0`, `1.0.0.0`), "three numbers"},
		{edit(`1.0.0`, `1.0.x`), "three numbers"},
		{edit(`1.0.0`, `1.0.-1`), "three numbers"},
		{edit(`1.0.0`, `1.0.99999999999999999999`), "three numbers"},
		{edit(`"fileFormatVersion":"1.0.0",`, ``), "three numbers"},
		{edit(`"author":"a",`, ``), `"author"`},
		{edit(`"description":"",`, ``), `"description"`},
		{edit(`"name":"n",`, ``), `"name"`},
		{edit(`,"path":"m"`, ``), `"path"`},
		{edit(`"path":"m"`, `"path":null`), `"path"`},
		{edit(`"path":"m"`, `"path":5`), "cannot unmarshal"},
		{edit(`"path":"m"`, `"path":""`), "out of the package"},
		{edit(`"path":"m"`, `"path":"."`), "out of the package"},
		{edit(`"path":"m"`, `"path":"../m"`), "out of the package"},
		{edit(`"path":"m"`, `"path":"a/../../m"`), "out of the package"},
		{edit(`"path":"m"`, `"path":"/m"`), "out of the package"},
		{edit(`"path":"m"`, `"path":"a\\..\\..\\m"`), "out of the package"},
		{edit(`"path":"m"`, `"path":"a/../m"`), ""},
		{edit(`,"rootModelIdentifier":"A"`, ``), "rootModelIdentifier"},
		{edit(`"rootModelIdentifier":"A"`, `"rootModelIdentifier":"B"`), "not among"},
		{`{}`, "three numbers"},
		{``, "unexpected end"},
		{`[]`, "cannot unmarshal"},
		{fine[:40], "unexpected end"},
	} {
		m, err := parseManifest([]byte(c.text))
		switch {
		case c.want == "" && (err != nil || m.Root != "A"):
			t.Errorf("%s: %v", c.text, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: error %v, want one with %q", c.text, err, c.want)
		}
	}
}

// TestOpenErrors damages a package on disk.
func TestOpenErrors(t *testing.T) {
	const spec, weights = "Data/com.apple.CoreML/model.mlmodel", "Data/com.apple.CoreML/weights/weight.bin"
	good := filepath.Join(t.TempDir(), "good.mlpackage")
	if err := Write(context.Background(), good, model(t), Options{}); err != nil {
		t.Fatal(err)
	}
	field := func(num protowire.Number) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), nil)
	}
	edit := func(change func(m *modelpb.Model)) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			m := readSpec(t, dir)
			change(m)
			b, err := proto.Marshal(m)
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, spec), b, 0o666)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	put := func(name string, b []byte) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(name string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	bias := func(m *modelpb.Model) *milpb.Value_BlobFile {
		return m.GetMlProgram().Functions["infer"].BlockSpecializations["CoreML8"].Operations[0].Attributes["val"].GetBlobFileValue()
	}
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, dir string)
		want   string
	}{
		{"intact", func(*testing.T, string) {}, ""},
		{"no folder", remove(""), "no such file"},
		{"no manifest", remove("Manifest.json"), "Manifest.json"},
		{"manifest is a folder", func(t *testing.T, dir string) {
			remove("Manifest.json")(t, dir)
			os.Mkdir(filepath.Join(dir, "Manifest.json"), 0o777)
		}, "not a regular file"},
		{"manifest of 2 MiB", put("Manifest.json", bytes.Repeat([]byte(" "), 2<<20)), "larger than"},
		{"manifest damaged", put("Manifest.json", []byte("{")), "Manifest.json: unexpected end"},
		{"no weights folder", remove("Data/com.apple.CoreML/weights"), "item"},
		{"no weights file", remove(weights), "weight.bin"},
		{"no specification", remove(spec), "model.mlmodel"},
		{"empty specification", put(spec, nil), "no model of a known kind"},
		{"text", put(spec, []byte("Not a model, but a text file.")), "not a model specification"},
		{"neural network", put(spec, field(500)), "neural network (type 500)"},
		{"empty weights", put(weights, nil), "0 bytes"},
		{"weights of version 1", put(weights, append([]byte{1, 0, 0, 0, 1}, make([]byte, 400)...)), "version 1"},
		{"weights are a git-lfs pointer", put(weights, []byte("version https://git-lfs.github.com/spec/v1\noid sha256:0123456789012345678901234567890123456789012345678901234567890123\nsize 1\n")), "version"},
		{"weight at another offset", edit(func(m *modelpb.Model) { bias(m).Offset = 128 }), `function "infer": operation 0 (const giving "bias")`},
		{"weight in another folder", edit(func(m *modelpb.Model) { bias(m).FileName = "@model_path/../model.mlmodel" }), "below @model_path/"},
		{"weight of the system", edit(func(m *modelpb.Model) { bias(m).FileName = "/etc/passwd" }), "below @model_path/"},
		{"weight in a folder", edit(func(m *modelpb.Model) { bias(m).FileName = "@model_path/weights" }), "not a regular file"},
		{"program of version 2", edit(func(m *modelpb.Model) { m.GetMlProgram().Version = 2 }), "version 2"},
		{"function not described", edit(func(m *modelpb.Model) { m.Description.Functions = m.Description.Functions[1:] }), `"infer" does not exist`},
		{"described function missing", edit(func(m *modelpb.Model) { m.Description.Functions[0].Name = "f" }), `"infer" does not exist`},
		{"input missing", edit(func(m *modelpb.Model) { m.Description.Functions[0].Input[0].Name = "z" }), `input "z"`},
		{"no description", edit(func(m *modelpb.Model) { m.Description = nil }), `"main" is described but not`},
		{"description of other types is read", edit(func(m *modelpb.Model) {
			m.Description.Functions[0].Input[0].Type.GetMultiArrayType().DataType = modelpb.ArrayFeatureType_FLOAT32
		}), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "p.mlpackage")
			if err := os.CopyFS(dir, os.DirFS(good)); err != nil {
				t.Fatal(err)
			}
			c.damage(t, dir)
			p, err := Open(dir)
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), dir)):
				t.Errorf("error %v, want one with %q and the path", err, c.want)
			}
			if err == nil {
				p.Close()
			}
		})
	}
}

// TestOpenReadsNoWeights opens a package with 6 GiB of weights that are not
// there: a sparse file.
func TestOpenReadsNoWeights(t *testing.T) {
	const big = 6 << 30
	m := model(t)
	w := mil.PromiseWeight(mil.TensorOf(mil.Float16, big/2), nil)
	x := &mil.Value{Name: "big", Type: w.Type(), Weight: w}
	x.Op = &mil.Operation{Type: "const", Results: []*mil.Value{x}}
	body := m.Program.Functions[0].Body
	body.Ops = append([]*mil.Operation{x.Op}, body.Ops...)
	spec, weights, err := encode(m, Options{})
	if err != nil {
		t.Fatal(err)
	}
	plan := weights.Plan
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "weights"), 0o777); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "weights", "weight.bin"))
	if err != nil {
		t.Fatal(err)
	}
	// The records are there, the data is a hole.
	var head bytes.Buffer
	if err := (&blob.Plan{}).Write(context.Background(), &head, nil); err != nil {
		t.Fatal(err)
	}
	at := func(off uint64, b []byte) {
		if _, err := f.WriteAt(b, int64(off)); err != nil {
			t.Fatal(err)
		}
	}
	at(0, append([]byte{byte(plan.Len())}, head.Bytes()[1:]...))
	for i := range plan.Len() {
		rec, _ := plan.Record(i)
		b := make([]byte, 0, 64)
		b = append(b, 0xef, 0xbe, 0xad, 0xde, byte(rec.Code), 0, 0, 0)
		for _, v := range []uint64{rec.Size, rec.Data, rec.UnusedBits} {
			for k := range 8 {
				b = append(b, byte(v>>(8*k)))
			}
		}
		at(rec.Offset, b)
	}
	if err := f.Truncate(plan.Size()); err != nil {
		t.Fatal(err)
	}
	f.Close()
	path := filepath.Join(dir, "model.mlmodel")
	if err := os.WriteFile(path, spec, 0o666); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	p, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("opening %d bytes of weights allocated %d", p.WeightBytes(), n)
	}
	if p.WeightBytes() < big {
		t.Errorf("%d bytes of weights", p.WeightBytes())
	}
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"fileFormatVersion":"1.0.0","itemInfoEntries":{"A":{"author":"a","description":"","name":"n","path":"m"}},"rootModelIdentifier":"A"}`))
	b, err := newManifest([]byte("x"), []string{"weights/weight.bin"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseManifest(b)
		if err != nil {
			return
		}
		for _, it := range m.Items {
			if rel, err := filepath.Rel("/data", filepath.Join("/data", filepath.FromSlash(*it.Path))); err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
				t.Fatalf("path %q leads out", *it.Path)
			}
		}
	})
}

// FuzzSpec feeds bytes as a whole specification, with a file of weights
// beside it. What can be read and passes the checks can be written.
func FuzzSpec(f *testing.F) {
	m := model(f)
	spec, plan, err := encode(m, Options{})
	if err != nil {
		f.Fatal(err)
	}
	var weights bytes.Buffer
	if err := plan.Plan.Write(context.Background(), &weights, nil); err != nil {
		f.Fatal(err)
	}
	dir := f.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "weights"), 0o777); err != nil {
		f.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "weights", "weight.bin"), weights.Bytes(), 0o666); err != nil {
		f.Fatal(err)
	}
	f.Add(spec)
	f.Fuzz(func(t *testing.T, b []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		p := &Package{readers: map[string]*blob.Reader{}}
		defer p.Close()
		err := p.decode(b, dir)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 && len(b) < 1<<16 {
			t.Fatalf("%d bytes were allocated for an input of %d", n, len(b))
		}
		if err != nil {
			return
		}
		if _, _, err := encode(p.Model, Options{}); err != nil {
			return // for example a name that we do not write
		}
		if err := mil.Verify(p.Model.Program); err != nil {
			return
		}
	})
}
