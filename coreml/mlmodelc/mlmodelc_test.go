package mlmodelc

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"anemone/coreml"
	"anemone/coreml/internal/bundle"
	"anemone/coreml/mlpackage"
	"anemone/coreml/modelproto"
	"anemone/coreml/modelproto/modelpb"
	"anemone/internal/testutil"
	"anemone/mil"
	"anemone/mil/blob"
	"anemone/mil/milproto"
	"anemone/mil/milproto/milpb"
	"anemone/mil/miltext"
)

// small returns a model of one function without weights.
func small(t testing.TB) *coreml.Model {
	t.Helper()
	b := mil.NewBuilder("main", mil.CoreML7)
	x := b.Input("x", mil.TensorOf(mil.Float16, 1, 2))
	b.Output("y", b.Op("mul", mil.A("x", x), mil.A("y", b.Const(mil.Half(0.5)))))
	f, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return &coreml.Model{SpecVersion: 7 + 1, Functions: []coreml.Function{coreml.Describe(f)}, Program: &mil.Program{Functions: []*mil.Function{f}}}
}

// large returns a model that has everything: two functions over the same
// weights, a state, enumerated and ranged shapes, metadata, information on its
// build. opened counts how often a weight was asked for its bytes.
func large(t testing.TB, opened *int) *coreml.Model {
	t.Helper()
	weight := func(ty mil.Type, seed byte) mil.Weight {
		return mil.PromiseWeight(ty, func(w io.Writer) error {
			if opened != nil {
				*opened++
			}
			n, _ := ty.ByteSize()
			b := make([]byte, n)
			for i := range b {
				b[i] = seed + byte(i)
			}
			_, err := w.Write(b)
			return err
		})
	}
	indices := weight(mil.TensorOf(mil.UInt4, 8, 5), 1)
	lut := weight(mil.TensorOf(mil.Float16, 1, 1, 16, 1), 2)
	bias := weight(mil.TensorOf(mil.Float16, 8), 3)
	function := func(name string, t0 int) (*mil.Function, error) {
		b := mil.NewBuilder(name, mil.CoreML8)
		x := b.Input("x", mil.TensorOf(mil.Float16, t0, 5)) // not in the order of names
		a := b.Input("a", mil.TensorOf(mil.Float16, t0, 8))
		s := b.Input("cache", mil.StateOf(mil.Float16, t0, 8))
		w := b.Constexpr("constexpr_lut_to_dense", "w", mil.A("indices", mil.ImmWeight(indices)), mil.A("lut", mil.ImmWeight(lut)))
		y := b.Op("linear", mil.A("x", x), mil.A("weight", w), mil.A("bias", b.Weight("bias", bias)))
		old := b.Op("read_state", mil.A("input", s))
		sum := b.Op("add", mil.A("x", old), mil.A("y", y))
		b.OpAll("write_state", mil.A("input", s), mil.A("data", sum))
		b.Output("y", b.Op("concat", mil.A("values", sum, a), mil.A("axis", b.Const(mil.Int(0))), mil.A("interleave", b.Const(mil.Flag(false)))))
		return b.Build()
	}
	infer, err := function("infer", 1)
	if err != nil {
		t.Fatal(err)
	}
	prefill, err := function("prefill", 4)
	if err != nil {
		t.Fatal(err)
	}
	b := mil.NewBuilder("embed", mil.CoreML7)
	ids := b.Input("ids", mil.TensorOf(mil.Int32, 1, mil.Dynamic))
	more := b.Input("more", mil.TensorOf(mil.Int32, mil.Dynamic))
	b.Output("z", b.Op("add", mil.A("x", ids), mil.A("y", more)))
	embed, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	m := &coreml.Model{
		SpecVersion:     9,
		DefaultFunction: "infer",
		// Not in the order of names either.
		Functions: []coreml.Function{coreml.Describe(prefill), coreml.Describe(infer), coreml.Describe(embed)},
		Metadata:  coreml.Metadata{ShortDescription: "a \"model\"", Version: "1", Author: "me", License: "MIT", User: map[string]string{"b": "1", "a": "", "c": "x/y"}},
		Program:   &mil.Program{Functions: []*mil.Function{prefill, infer, embed}},
	}
	e := &m.Functions[2]
	e.Inputs[0].Shape, e.Inputs[0].Shapes = []int{1, 1}, [][]int{{1, 1}, {1, 4}}
	e.Inputs[1].Shape, e.Inputs[1].Ranges = []int{1}, []coreml.Range{{Min: 1, Max: 4}}
	e.Inputs[1].Description = "how many"
	str := mil.TensorOf(mil.String)
	m.Program.Attributes = []mil.Attribute{{Name: "buildInfo", Value: mil.Imm(&mil.Literal{
		Type: mil.Type{Kind: mil.DictKind, Elems: []mil.Type{str, str}}, Items: []*mil.Literal{mil.Str("anemone"), mil.Str("1")}})}}
	if err := mil.Verify(m.Program); err != nil {
		t.Fatal(err)
	}
	return m
}

func write1(t testing.TB, m *coreml.Model, opt Options) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "A b.mlmodelc")
	if err := Write(context.Background(), path, m, opt); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t testing.TB, path string) *Package {
	t.Helper()
	p, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// TestWriteBytes compares the files of a small model with bytes written down
// by hand, after the description of the format.
func TestWriteBytes(t *testing.T) {
	m := small(t)
	m.Metadata.Author = "me"
	m.Metadata.User = map[string]string{"k": "v"}
	path := write1(t, m, Options{Details: Details{ComponentVersion: "1.2", Version: "3", ModelHash: "hash", ModelName: "model"}})
	want := strings.Join(strings.Fields(`
		f6010000
		0800000000000000 0000000000000000 0000000000000000  0700000000000000 67656e65726963
		0800000000000000 0000000000000000 0000000000000000  0000000000000000
		3200000000000000
		0a 0f  0a 01 78  1a 0a 2a 08  0a 02 01 02  10 90 80 04
		52 0f  0a 01 79  1a 0a 2a 08  0a 02 01 02  10 90 80 04
		a2 06 0d  1a 02 6d 65  a2 06 06  0a 01 6b  12 01 76
		f6010000 0000000000000000 00000000`), "")
	if got := hex.EncodeToString(read(t, path, dataName)); got != strings.ReplaceAll(want, " ", "") {
		t.Errorf("%s:\n%s\nwant\n%s", dataName, got, want)
	}
	if got, want := string(read(t, path, textName)), `program(1.0)
[buildInfo = dict<tensor<string, []>, tensor<string, []>>({{"coremlc-component-MIL", "1.2"}, {"coremlc-version", "3"}})]
{
    func main<ios17>(tensor<fp16, [1, 2]> x) {
            tensor<fp16, []> c_fp16_0_5 = const()[name = tensor<string, []>("c_fp16_0_5"), val = tensor<fp16, []>(0x1p-1)];
            tensor<fp16, [1, 2]> y = mul(x = x, y = c_fp16_0_5)[name = tensor<string, []>("mul")];
        } -> (y);
}`; got != want {
		t.Errorf("%s:\n%s\nwant\n%s", textName, got, want)
	}
	if got, want := string(read(t, path, analyticsName)), ""+
		"\x19\x00\x00\x00\x00\x00\x00\x00NeuralNetworkModelDetails\x02\x00\x00\x00\x00\x00\x00\x00"+
		"\x13\x00\x00\x00\x00\x00\x00\x00containsCustomLayer\x01\x00\x00\x00\x00\x00\x00\x000"+
		"\x0e\x00\x00\x00\x00\x00\x00\x00modelDimension\x01\x00\x00\x00\x00\x00\x00\x000"+
		"\x14\x00\x00\x00\x00\x00\x00\x00SpecificationDetails\x02\x00\x00\x00\x00\x00\x00\x00"+
		"\x09\x00\x00\x00\x00\x00\x00\x00modelHash\x04\x00\x00\x00\x00\x00\x00\x00hash"+
		"\x09\x00\x00\x00\x00\x00\x00\x00modelName\x05\x00\x00\x00\x00\x00\x00\x00model"; got != want {
		t.Errorf("%s:\n%q\nwant\n%q", analyticsName, got, want)
	}
	if got, want := string(read(t, path, metadataName)), `[
  {
    "metadataOutputVersion" : "3.0",
    "specificationVersion" : 8,
    "modelType" : {
      "name" : "MLModelType_mlProgram"
    },
    "availability" : {
      "macOS" : "14.0",
      "tvOS" : "17.0",
      "visionOS" : "1.0",
      "watchOS" : "10.0",
      "iOS" : "17.0",
      "macCatalyst" : "17.0"
    },
    "author" : "me",
    "inputSchema" : [
      {
        "name" : "x",
        "shortDescription" : "",
        "type" : "MultiArray",
        "dataType" : "Float16",
        "formattedType" : "MultiArray (Float16 1 × 2)",
        "shape" : "[1, 2]",
        "isOptional" : "0",
        "hasShapeFlexibility" : "0"
      }
    ],
    "outputSchema" : [
      {
        "name" : "y",
        "shortDescription" : "",
        "type" : "MultiArray",
        "dataType" : "Float16",
        "formattedType" : "MultiArray (Float16 1 × 2)",
        "shape" : "[1, 2]",
        "isOptional" : "0",
        "hasShapeFlexibility" : "0"
      }
    ],
    "stateSchema" : [

    ],
    "computePrecision" : "Float16",
    "mlProgramOperationTypeHistogram" : {
      "Ios17.mul" : 1
    },
    "userDefinedMetadata" : {
      "k" : "v"
    },
    "generatedClassName" : "A_b",
    "isUpdatable" : "0",
    "method" : "predict",
    "modelParameters" : [

    ]
  }
]`; got != want {
		t.Errorf("%s:\n%s\nwant\n%s", metadataName, got, want)
	}
	if got := files(t, path); len(got) != 4 {
		t.Errorf("files %q", got)
	}
}

// TestText has the text of a model with everything in it: its functions and
// inputs are sorted, and the function with flexible inputs repeats them.
func TestText(t *testing.T) {
	path := write1(t, large(t, nil), Options{})
	text := string(read(t, path, textName))
	for _, want := range []string{
		"program(1.3)\n[buildInfo = dict<string, string>({{\"anemone\", \"1\"}, {\"coremlc-component-MIL\", \"3510.2.1\"}, {\"coremlc-version\", \"3500.32.1\"}})]\n{\n    func embed<ios17>(",
		"func embed<ios17>(tensor<int32, [1, ?]> ids, tensor<int32, [?]> more) [FlexibleShapeInformation = tuple<tuple<string, dict<string, tensor<int32, [?]>>>, tuple<string, dict<string, dict<string, tensor<int32, [?]>>>>, tuple<string, dict<string, list<tensor<int32, [2]>, ?>>>>(((\"DefaultShapes\", {{\"ids\", [1, 1]}, {\"more\", [1]}}), (\"EnumeratedShapes\", {{\"",
		"(\"RangeDims\", {{\"more\", [[1, 4]]}})))] {\n",
		"func infer<ios18>(tensor<fp16, [1, 8]> a, state<tensor<fp16, [1, 8]>> cache, tensor<fp16, [1, 5]> x) {\n",
		"indices = tensor<uint4, [8, 5]>(BLOBFILE(path = string(\"@model_path/weights/weight.bin\"), offset = uint64(64)))",
		"lut = tensor<fp16, [1, 1, 16, 1]>(BLOBFILE(path = string(\"@model_path/weights/weight.bin\"), offset = uint64(192)))",
		"            write_state(data = add, input = cache)[name = string(\"write_state\")];\n",
		"concat(axis = c_int32_0, interleave = c_bool_f, values = (add, a))",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("not in the text: %s\n%s", want, text)
		}
	}
	if strings.Index(text, "func infer") > strings.Index(text, "func prefill") {
		t.Error("functions are not sorted")
	}
	// 16-byte records at the end, one for each function.
	if b := read(t, path, dataName); !bytes.HasSuffix(b, bytes.Repeat(append([]byte{0xf6, 1}, make([]byte, 14)...), 3)) {
		t.Errorf("container ends in %x", b[len(b)-64:])
	}
	var meta []map[string]any
	if err := json.Unmarshal(read(t, path, metadataName), &meta); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintln(meta[0]["storagePrecision"], meta[0]["computePrecision"], len(meta[0]["functions"].([]any)), meta[0]["defaultFunctionName"], meta[0]["shortDescription"]); got != `Mixed (Float16, Palettized (4 bits), UInt4) Mixed (Float16, Int32) 3 infer a "model"`+"\n" {
		t.Errorf("metadata: %s", got)
	}
	embed := meta[0]["functions"].([]any)[2].(map[string]any)["inputSchema"].([]any)
	if got := fmt.Sprintln(embed[0].(map[string]any)["enumeratedShapes"], embed[0].(map[string]any)["shapeFlexibility"], embed[1].(map[string]any)["shapeRange"], embed[1].(map[string]any)["shapeFlexibility"]); got != "[[1, 1], [1, 4]] 1 × 1 | 1 × 4 [[1, 4]] 1...4\n" {
		t.Errorf("metadata of flexible inputs: %s", got)
	}
}

// spec returns the protobuf form of a model with every reference to a weight
// replaced by a digest of its bytes: two models are the same program exactly
// if these are equal.
func spec(t testing.TB, m *coreml.Model) *modelpb.Model {
	t.Helper()
	prog, err := milproto.Encode(m.Program, func(w mil.Weight) (milproto.BlobRef, error) {
		b, err := mil.WeightBytes(w)
		return milproto.BlobRef{File: hashOf(b)}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	d, err := modelproto.EncodeDescription(m)
	if err != nil {
		t.Fatal(err)
	}
	return &modelpb.Model{SpecificationVersion: int32(m.SpecVersion), Description: d, Type: &modelpb.Model_MlProgram{MlProgram: prog}}
}

// TestBothForms: a model written as a package and as a bundle is the same
// model when read, with the same file of weights; compiling the one gives the
// other, byte for byte, and decompiling gives the first.
func TestBothForms(t *testing.T) {
	for name, m := range map[string]*coreml.Model{"small": small(t), "large": large(t, nil)} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			dir := t.TempDir()
			pkg, bundle := filepath.Join(dir, "m.mlpackage"), filepath.Join(dir, "m.mlmodelc")
			if err := mlpackage.Write(ctx, pkg, m, mlpackage.Options{}); err != nil {
				t.Fatal(err)
			}
			if err := Write(ctx, bundle, m, Options{}); err != nil {
				t.Fatal(err)
			}
			a, err := mlpackage.Open(pkg)
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			b := open(t, bundle)
			want := spec(t, m)
			if got := spec(t, a.Model); !proto.Equal(got, want) {
				t.Errorf("from the package:\n%v\nwant\n%v", got, want)
			}
			if got := spec(t, b.Model); !proto.Equal(got, want) {
				t.Errorf("from the bundle:\n%v\nwant\n%v", got, want)
			}
			if a.WeightBytes() != b.WeightBytes() || len(a.Files) != len(b.Files) {
				t.Errorf("%d and %d bytes of weights", a.WeightBytes(), b.WeightBytes())
			}
			for i := range a.Files {
				if !bytes.Equal(read(t, a.Files[i].Path), read(t, b.Files[i].Path)) {
					t.Error("the files of weights differ")
				}
			}

			compiled, err := Compile(ctx, pkg, filepath.Join(dir, "new", "out"), Options{})
			if err != nil {
				t.Fatal(err)
			}
			if compiled != filepath.Join(dir, "new", "out", "m.mlmodelc") {
				t.Errorf("compiled to %s", compiled)
			}
			sameFiles(t, compiled, bundle)
			back := filepath.Join(dir, "new too", "back.mlpackage")
			if err := Decompile(ctx, bundle, back, Options{}); err != nil {
				t.Fatal(err)
			}
			sameFiles(t, back, pkg)
		})
	}
}

// sameFiles compares two folders, byte by byte.
func sameFiles(t *testing.T, got, want string) {
	t.Helper()
	names := files(t, want)
	if g := files(t, got); !slices.Equal(g, names) {
		t.Errorf("files %q, want %q", g, names)
		return
	}
	for _, name := range names {
		if g, w := read(t, got, name), read(t, want, name); !bytes.Equal(g, w) {
			t.Errorf("%s:\n%q\nwant\n%q", name, g, w)
		}
	}
}

// TestPeers compiles every package of the shared material and decompiles it
// again: the program, the description and the places of the weights stay.
func TestPeers(t *testing.T) {
	var paths []string
	for _, pattern := range []string{"peers/*/*.mlpackage", "samples/mlmodelc/*.mlpackage"} {
		p, err := filepath.Glob(filepath.Join(testutil.Shared(t), filepath.FromSlash(pattern)))
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, p...)
	}
	if len(paths) < 20 {
		t.Fatalf("%d packages", len(paths))
	}
	ctx := context.Background()
	for _, path := range paths {
		t.Run(filepath.Base(filepath.Dir(path))+"/"+filepath.Base(path), func(t *testing.T) {
			dir := t.TempDir()
			compiled, err := Compile(ctx, path, dir, Options{})
			if err != nil {
				t.Fatal(err)
			}
			back := filepath.Join(dir, "back.mlpackage")
			if err := Decompile(ctx, compiled, back, Options{}); err != nil {
				t.Fatal(err)
			}
			a, err := mlpackage.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			b, err := mlpackage.Open(back)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			c := open(t, compiled)
			want := specOf(t, a.Model, a)
			if got := specOf(t, b.Model, b); !proto.Equal(got, want) {
				t.Error("the package is another one after compiling and decompiling")
			}
			if got := specOf(t, c.Model, c); !proto.Equal(got, want) {
				t.Error("the bundle is another model than the package")
			}
			for i, f := range a.Files {
				if b.Files[i].Name != f.Name || !bytes.Equal(read(t, b.Files[i].Path), read(t, f.Path)) {
					t.Errorf("file of weights %q is another one", f.Name)
				}
			}
		})
	}
}

// specOf returns the protobuf form of a model with the places of its weights.
// The build information is a dict, which the text has in the order of its
// keys.
func specOf(t testing.TB, m *coreml.Model, s coreml.Stored) *modelpb.Model {
	t.Helper()
	w, err := bundle.PlanWeights(m.Program, "", s)
	if err != nil {
		t.Fatal(err)
	}
	b, err := bundle.Spec(m, w)
	if err != nil {
		t.Fatal(err)
	}
	pb := &modelpb.Model{}
	if err := proto.Unmarshal(b, pb); err != nil {
		t.Fatal(err)
	}
	if info := pb.GetMlProgram().GetAttributes()["buildInfo"]; info != nil {
		slices.SortFunc(info.GetImmediateValue().GetDictionary().GetValues(), func(a, b *milpb.DictionaryValue_KeyValuePair) int {
			return strings.Compare(a.GetKey().String(), b.GetKey().String())
		})
	}
	return pb
}

// TestTakeOver: a file of weights written once serves both forms; the weights
// are asked for their bytes once.
func TestTakeOver(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	opened := 0
	m := large(t, &opened)
	pkg := filepath.Join(dir, "m.mlpackage")
	if err := mlpackage.Write(ctx, pkg, m, mlpackage.Options{}); err != nil {
		t.Fatal(err)
	}
	if opened != 3 {
		t.Errorf("%d weights were asked for their bytes, want 3", opened)
	}
	weights := filepath.Join(pkg, "Data", "com.apple.CoreML", "weights", "weight.bin")
	var calls []string
	taken := filepath.Join(dir, "taken.mlmodelc")
	if err := Write(ctx, taken, m, Options{WeightsFrom: weights, Progress: func(done, total int64, name string) {
		calls = append(calls, fmt.Sprint(done == total, " ", name))
	}}); err != nil {
		t.Fatal(err)
	}
	if opened != 3 {
		t.Errorf("taking over asked %d weights for their bytes", opened-3)
	}
	if len(calls) != 1 || calls[0] != "true weights/weight.bin" {
		t.Errorf("progress %q", calls)
	}
	if a, b := read(t, weights), read(t, taken, "weights", "weight.bin"); !bytes.Equal(a, b) {
		t.Error("the file is another one")
	}
	if runtime.GOOS == "linux" { // a hard link, or else shared blocks, which cannot be seen
		a, _ := os.Stat(weights)
		b, _ := os.Stat(filepath.Join(taken, "weights", "weight.bin"))
		t.Logf("the same file: %v", os.SameFile(a, b))
	}
	// The reverse, and through a symbolic link.
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(taken, "weights", "weight.bin"), link); err == nil {
		again := filepath.Join(dir, "again.mlpackage")
		if err := mlpackage.Write(ctx, again, m, mlpackage.Options{WeightsFrom: link}); err != nil {
			t.Fatal(err)
		}
		sameFiles(t, again, pkg)
		if st, err := os.Lstat(filepath.Join(again, "Data", "com.apple.CoreML", "weights", "weight.bin")); err != nil || !st.Mode().IsRegular() {
			t.Errorf("the file of weights is %v, %v", st.Mode(), err)
		}
	}

	// Files that are not those of the model.
	other := large(t, nil)
	w, _ := mil.NewWeight(mil.TensorOf(mil.Float16, 8), make([]byte, 16))
	other.Program.Functions[0].Body.Walk(func(op *mil.Operation) bool {
		if op.Type == "const" && op.Results[0].Weight != nil {
			op.Results[0].Weight = w
		}
		return true
	})
	bad := filepath.Join(dir, "bad.mlmodelc")
	truncated := filepath.Join(dir, "truncated.bin")
	if err := os.WriteFile(truncated, read(t, weights)[:200], 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		m    *coreml.Model
		opt  Options
		want string
	}{
		{"not there", m, Options{WeightsFrom: filepath.Join(dir, "none")}, "no such file"},
		{"other model", other, Options{WeightsFrom: weights}, "it holds 3 weights, the model has 4: not written for this model"},
		{"damaged", m, Options{WeightsFrom: truncated}, "take the weights from"},
		{"not of the model", m, Options{Keep: open(t, taken)}, "is not one of the model whose files are to be kept"},
		{"both", m, Options{Keep: open(t, taken), WeightsFrom: weights}, "not from both"},
		{"a folder", m, Options{WeightsFrom: dir}, "not a regular file"},
	} {
		err := Write(ctx, bad, c.m, c.opt)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
		if _, err := os.Lstat(bad); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: something was written", c.name)
		}
	}
}

// TestWholeOrNot: what fails or is stopped leaves nothing behind.
func TestWholeOrNot(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m.mlmodelc")
	left := func(what string) {
		t.Helper()
		if e, err := os.ReadDir(dir); err != nil || len(e) != 0 {
			t.Errorf("%s: left behind %v, %v", what, e, err)
		}
	}
	m := large(t, nil)
	broken := errors.New("broken")
	w := mil.PromiseWeight(mil.TensorOf(mil.Float16, 8), func(io.Writer) error { return broken })
	m.Program.Functions[0].Body.Walk(func(op *mil.Operation) bool {
		if op.Type == "const" && op.Results[0].Weight != nil {
			op.Results[0].Weight = w
		}
		return true
	})
	if err := Write(context.Background(), path, m, Options{}); !errors.Is(err, broken) || !strings.Contains(err.Error(), `weight "bias"`) {
		t.Error(err)
	}
	left("a weight that fails")
	ctx, cancel := context.WithCancel(context.Background())
	if err := Write(ctx, path, large(t, nil), Options{Progress: func(int64, int64, string) { cancel() }}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	left("stopped")
	m = small(t)
	m.Functions[0].Inputs[0].Name = "z"
	if err := Write(context.Background(), path, m, Options{}); err == nil {
		t.Error("a description of another program was written")
	}
	left("a wrong description")

	if err := Write(context.Background(), path, small(t), Options{}); err != nil {
		t.Fatal(err)
	}
	if err := Write(context.Background(), path, large(t, nil), Options{}); !errors.Is(err, fs.ErrExist) {
		t.Error(err)
	}
	if p := open(t, path); p.Model.SpecVersion != 8 || p.Format != 8 {
		t.Error("the first model is gone")
	}
	if err := Write(context.Background(), path, large(t, nil), Options{Overwrite: true}); err != nil {
		t.Fatal(err)
	}
	if p := open(t, path); p.Model.SpecVersion != 9 {
		t.Error("the second model is not there")
	}
	if e, _ := os.ReadDir(dir); len(e) != 1 {
		t.Errorf("left behind %v", e)
	}
}

// TestDeterministic: the same model gives the same bytes.
func TestDeterministic(t *testing.T) {
	a, b := write1(t, large(t, nil), Options{}), write1(t, large(t, nil), Options{})
	sameFiles(t, a, b)
}

// TestWriteErrors has models that have no compiled form.
func TestWriteErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(*coreml.Model, *Options)
		want string
	}{
		{"no program", func(m *coreml.Model, _ *Options) { m.Program = nil }, "model without a program"},
		{"version", func(m *coreml.Model, _ *Options) { m.SpecVersion = 11 }, "specification version 11"},
		{"build information", func(m *coreml.Model, _ *Options) { m.Program.Attributes[0].Value = mil.Imm(mil.Int(1)) }, `attribute "buildInfo" of the program is not a dict of strings`},
		{"number of keys", func(_ *coreml.Model, o *Options) { o.Details.ShapeKeys = map[string][]string{"embed": {"a"}} }, `function "embed": 1 keys for 2 enumerated shapes`},
		{"same keys", func(_ *coreml.Model, o *Options) { o.Details.ShapeKeys = map[string][]string{"embed": {"a", "a"}} }, `two enumerated shapes have the key "a"`},
		{"shapes that do not go together", func(m *coreml.Model, _ *Options) {
			in := &m.Functions[2].Inputs[1]
			in.Shapes, in.Ranges = [][]int{{1}, {2}, {4}}, nil
		}, "inputs have 2 and 3 enumerated shapes; several must have as many each"},
	} {
		m, opt := large(t, nil), Options{}
		c.edit(m, &opt)
		err := Write(context.Background(), filepath.Join(t.TempDir(), "m.mlmodelc"), m, opt)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
}

// TestNames: a file of weights must not be taken for another file of the
// bundle.
func TestNames(t *testing.T) {
	m := large(t, nil)
	src := open(t, write1(t, m, Options{}))
	for _, name := range []string{"model.mil", "coremldata.bin", "analytics/coremldata.bin", "../w", "/w", ""} {
		err := Write(context.Background(), filepath.Join(t.TempDir(), "m.mlmodelc"), src.Model, Options{Keep: renamed{src, name}})
		if err == nil || !strings.Contains(err.Error(), "cannot be named") && !strings.Contains(err.Error(), "want a path below @model_path/") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestOtherNames: files of weights keep their names in both forms.
func TestOtherNames(t *testing.T) {
	ctx := context.Background()
	src := open(t, write1(t, large(t, nil), Options{}))
	for _, name := range []string{"weights/weights.bin", "other/deep/w.bin", "w.bin"} {
		dir := t.TempDir()
		first, pkg := filepath.Join(dir, "first.mlmodelc"), filepath.Join(dir, "second.mlpackage")
		if err := Write(ctx, first, src.Model, Options{Keep: renamed{src, name}}); err != nil {
			t.Fatal(err)
		}
		if err := Decompile(ctx, first, pkg, Options{}); err != nil {
			t.Fatal(err)
		}
		second, err := Compile(ctx, pkg, dir, Options{Details: Details{ClassName: "first"}})
		if err != nil {
			t.Fatal(err)
		}
		sameFiles(t, second, first)
		if p := open(t, second); p.Files[0].Name != bundle.ModelPath+name || p.Files[0].Path != filepath.Join(second, filepath.FromSlash(name)) {
			t.Errorf("files %+v", p.Files)
		}
	}
}

// renamed is a model with its weights in a file of another name.
type renamed struct {
	*Package
	name string
}

func (r renamed) WeightRef(w mil.Weight) (string, uint64, bool) {
	_, off, ok := r.Package.WeightRef(w)
	return bundle.ModelPath + r.name, off, ok
}

func (r renamed) WeightFile(string) (string, bool) { return r.Files[0].Path, true }

// TestDetails: what was read from a bundle writes it again.
func TestDetails(t *testing.T) {
	d := Details{
		ComponentVersion: "1", Version: "2", ModelHash: "h", ModelName: "n", ClassName: "C",
		UserOrder: []string{"c", "a", "b"}, ShapeKeys: map[string][]string{"embed": {"ffffffff", "00000000"}},
	}
	m := large(t, nil)
	path := write1(t, m, Options{Details: d})
	p := open(t, path)
	if got, want := fmt.Sprint(p.Details), fmt.Sprint(d); got != want {
		t.Errorf("details %v, want %v", got, want)
	}
	sameFiles(t, write1(t, p.Model, Options{Details: p.Details, Keep: p}), path)
	if b := read(t, path, dataName); !bytes.Contains(b, []byte("\x0a\x01c\x12\x03x/y\xa2\x06")) {
		t.Errorf("metadata is not in the given order: %q", b)
	}
	if got := p.Model.Program.Attributes; len(got) != 1 || len(got[0].Value.Literal.Items) != 2 {
		t.Errorf("attributes of the program: %+v", got)
	}
	if got := p.Model.Program.Function("embed").Attributes; got != nil {
		t.Errorf("attributes of a function: %+v", got)
	}
	// Without the files for tools, and with damaged ones, a model can be read.
	for _, content := range []string{"", "{", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "\xff\xff\xff\xff\xff\xff\xff\xff"} {
		for _, name := range []string{metadataName, analyticsName} {
			if err := os.WriteFile(filepath.Join(path, name), []byte(content), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if q := open(t, path); q.Details.ClassName != "" || q.Details.ModelHash != "" || q.Details.Version != "2" {
			t.Errorf("%q: %+v", content, q.Details)
		}
	}
	for _, name := range []string{metadataName, "analytics"} {
		if err := os.RemoveAll(filepath.Join(path, name)); err != nil {
			t.Fatal(err)
		}
	}
	open(t, path)
}

// TestRawDescription: what the model has no fields for passes through.
func TestRawDescription(t *testing.T) {
	m := large(t, nil)
	path := write1(t, m, Options{})
	p := open(t, path)
	if p.Model.RawDescription != nil {
		t.Errorf("a description of ours is kept raw: %x", p.Model.RawDescription)
	}
	// predictedFeatureName of a function, a default value of an input (61).
	pb, err := modelproto.EncodeDescription(p.Model)
	if err != nil {
		t.Fatal(err)
	}
	pb.Functions[0].PredictedFeatureName = "y"
	pb.Functions[0].Input[0].Type.GetMultiArrayType().ProtoReflect().SetUnknown([]byte{0xe9, 0x03, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f})
	pb.Functions[0].Input[0].Type.IsOptional = true
	pb.DefaultFunctionName = "infer"
	desc, err := marshalDescription(pb, []string{"c"})
	if err != nil {
		t.Fatal(err)
	}
	c, err := newContainer(9, desc, 3)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path, dataName), c.append(nil), 0o666); err != nil {
		t.Fatal(err)
	}
	p = open(t, path)
	again := write1(t, p.Model, Options{Details: p.Details, Keep: p})
	if got := read(t, again, dataName); !bytes.Equal(got, c.append(nil)) {
		t.Errorf("written as\n%x\nwant\n%x", got, c.append(nil))
	}
	// Other metadata replaces the old, other features the whole.
	p.Model.Metadata.Author = "you"
	if got := read(t, write1(t, p.Model, Options{Keep: p}), dataName); !bytes.Contains(got, []byte("you")) || !bytes.Contains(got, []byte{0xe9, 0x03, 0, 0}) {
		t.Errorf("%q", got)
	}
	p.Model.Functions[0].Inputs[0].Description = "new"
	if got := read(t, write1(t, p.Model, Options{Keep: p}), dataName); !bytes.Contains(got, []byte("new")) || bytes.Contains(got, []byte{0xe9, 0x03, 0, 0}) {
		t.Errorf("%q", got)
	}
}

// TestBroken has bundles that are refused, each with one clear error: by Open
// or, where each part is readable but the program makes no sense, by Verify.
func TestBroken(t *testing.T) {
	whole := write1(t, large(t, nil), Options{})
	text := func(old, new string) func(map[string][]byte) {
		return func(f map[string][]byte) {
			b := string(f[textName])
			if !strings.Contains(b, old) {
				t.Errorf("the text has no %q", old)
			}
			f[textName] = []byte(strings.ReplaceAll(b, old, new))
		}
	}
	data := func(edit func(b []byte) []byte) func(map[string][]byte) {
		return func(f map[string][]byte) { f[dataName] = edit(f[dataName]) }
	}
	const weights = "weights/weight.bin"
	kind := func(k uint16) func(map[string][]byte) {
		return data(func(b []byte) []byte { b[0], b[1] = byte(k), byte(k>>8); return b })
	}
	for _, c := range []struct {
		name string
		edit func(f map[string][]byte)
		want string
	}{
		{"no description", func(f map[string][]byte) { delete(f, dataName) }, "not a whole compiled model: "},
		{"no text", func(f map[string][]byte) { delete(f, textName) }, "not a whole compiled model: "},
		{"empty description", data(func([]byte) []byte { return nil }), "coremldata.bin: kind of model at offset 0: want 4 bytes, 0 are left"},
		{"truncated in a version", data(func(b []byte) []byte { return b[:10] }), "coremldata.bin: version of the compiled format at offset 4: want 8 bytes, 6 are left"},
		{"truncated in the description", data(func(b []byte) []byte { return b[:200] }), "coremldata.bin: description at offset 83: want "},
		{"truncated inside", data(func(b []byte) []byte { b[0x4b] -= 3; return b }), "coremldata.bin: damaged model description"},
		{"huge length", data(func(b []byte) []byte { b[0x4b+7] = 0xff; return b }), "coremldata.bin: description at offset 83: want 18374686479671"},
		{"pointer for the description", data(func([]byte) []byte { return []byte("version https://git-lfs.github.com/spec/v1\n") }), "coremldata.bin: it is a Git LFS pointer, not the file itself"},
		{"pointer for the text", func(f map[string][]byte) { f[textName] = []byte("version https://git-lfs.github.com/spec/v1\n") }, "model.mil: it is a Git LFS pointer"},
		{"pointer for the weights", func(f map[string][]byte) {
			f[weights] = []byte("version https://git-lfs.github.com/spec/v1\noid sha256:0000000000\n")
		}, "it is a Git LFS pointer"},
		{"pipeline", kind(202), "the model is a pipeline (type 202); only ML Programs (type 502) are supported"},
		{"neural network", kind(500), "the model is a neural network (type 500); only ML Programs"},
		{"classifier", kind(403), "the model is a neural network classifier (type 403)"},
		{"unknown kind", kind(999), "the model is a kind 999 (type 999)"},
		{"specification version 0", data(func(b []byte) []byte { b[0x2b] = 0; return b }), "coremldata.bin: specification version 0"},
		{"later text", text("program(1.3)", "program(2.0)"), "model.mil: line 1, column 9: text of version 2.0; this program knows 1.0 and 1.3"},
		{"later operation set", text("infer<ios18>", "infer<ios27>"), `operation set "ios27" is not known`},
		{"truncated text", func(f map[string][]byte) { f[textName] = f[textName][:len(f[textName])/2] }, "model.mil: line "},
		{"empty text", func(f map[string][]byte) { f[textName] = nil }, "not the text of an ML Program"},
		{"no weights", func(f map[string][]byte) { delete(f, weights) }, `weight in "@model_path/weights/weight.bin" at offset 64: `},
		{"empty weights", func(f map[string][]byte) { f[weights] = nil }, "file of weights: 0 bytes, want at least the header of 64"},
		{"offset outside", text("offset = uint64(192)", "offset = uint64(6400000)"), "at offset 6400000: record at offset 6400000: beyond the end of the file (400 bytes)"},
		{"offset of no record", text("offset = uint64(192)", "offset = uint64(128)"), "record at offset 128: starts with "},
		{"odd offset", text("offset = uint64(192)", "offset = uint64(193)"), "records lie at multiples of 64"},
		{"weights cut off", func(f map[string][]byte) { f[weights] = f[weights][:390] }, "goes beyond the end of the file (390 bytes)"},
		{"weight of another type", text("tensor<fp16, [1, 1, 16, 1]>(BLOBFILE", "tensor<fp32, [1, 1, 16, 1]>(BLOBFILE"), "record at offset 192: holds fp16, the program wants tensor<fp32, [1, 1, 16, 1]>"},
		{"weight of another size", text("tensor<fp16, [1, 1, 16, 1]>(BLOBFILE", "tensor<fp16, [1, 1, 17, 1]>(BLOBFILE"), "holds 32 bytes, the program wants tensor<fp16, [1, 1, 17, 1]> of 34 bytes"},
		{"weights outside", text("@model_path/weights/weight.bin", "@model_path/../weight.bin"), `a file of weights is named "@model_path/../weight.bin", want a path below @model_path/`},
		{"weights elsewhere", text("@model_path/weights/weight.bin", "/etc/passwd"), `a file of weights is named "/etc/passwd"`},
		{"cycle", text("read_state(input = cache)", "read_state(input = add)"), `value "add" is not defined yet: line `},
		{"undefined", text("read_state(input = cache)", "read_state(input = cash)"), `(function "infer"): value "cash" is not defined`},
		{"described function missing", text("func infer", "func other"), `function "infer" is described but not in the program`},
		{"described input missing", text(" a,", " b,"), `value "a" is not defined`},
		{"other input", func(f map[string][]byte) {
			text(" a,", " b,")(f)
			text("(add, a)", "(add, b)")(f)
		}, `input "a" of the description is not in the program`},
		{"output missing", text("} -> (y)", "} -> (add)"), `output "y" of the description is not in the program`},
		{"wrong type", text("tensor<fp16, [1, 8]> add =", "tensor<fp16, [1, 9]> add ="), "is declared tensor<fp16, [1, 9]>, but the operands give tensor<fp16, [1, 8]>"},
		{"wrong element type", text("tensor<fp16, [1, 8]> add =", "tensor<fp32, [1, 8]> add ="), "is declared tensor<fp32, [1, 8]>, but the operands give tensor<fp16, [1, 8]>"},
		{"unknown operation", text("linear(", "linear9("), `unknown operation "linear9"`},
		{"operation of a later version", text(" z = add(", " z = slice_update("), "operation of a later operation set: slice_update needs CoreML8 (iOS 18), the function is in CoreML7 (iOS 17)"},
		{"argument missing", text("interleave = c_bool_f, values = (add, a)", "interleave = c_bool_f"), `argument "values" is missing`},
		{"not a state", text("read_state(input = cache)", "read_state(input = x)"), `argument "input" is a tensor<fp16, [4, 5]>, want a state`},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := map[string][]byte{}
			for _, name := range files(t, whole) {
				f[name] = read(t, whole, name)
			}
			c.edit(f)
			dir := filepath.Join(t.TempDir(), "broken.mlmodelc")
			for name, b := range f {
				if err := bundle.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), bundle.Bytes(b)); err != nil {
					t.Fatal(err)
				}
			}
			p, err := Open(dir)
			if err == nil {
				defer p.Close()
				err = mil.Verify(p.Model.Program)
			} else if !strings.HasPrefix(err.Error(), "open model "+dir+": ") {
				t.Errorf("the file is not named: %v", err)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 1000 || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v\nwant %s", err, c.want)
			}
		})
	}
	if _, err := Open(filepath.Join(whole, textName)); err == nil || !strings.Contains(err.Error(), "not a folder") {
		t.Error(err)
	}
	if _, err := Open(whole + "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := Compile(context.Background(), whole, t.TempDir(), Options{}); err == nil {
		t.Error("a bundle was compiled")
	}
}

// TestRefuseCompile: other kinds of models are refused by name.
func TestRefuseCompile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.mlmodel")
	if err := os.WriteFile(path, []byte{0x08, 4, 0xa2, 0x1f, 0}, 0o666); err != nil { // field 500
		t.Fatal(err)
	}
	out := t.TempDir()
	_, err := Compile(context.Background(), path, out, Options{})
	if err == nil || !strings.Contains(err.Error(), "the model is a neural network (type 500)") {
		t.Error(err)
	}
	if e, _ := os.ReadDir(out); len(e) != 0 {
		t.Errorf("left behind %v", e)
	}
}

// TestOpLabel has names that compiled models show.
func TestOpLabel(t *testing.T) {
	for _, c := range []struct {
		op   string
		set  mil.Opset
		want string
	}{
		{"slice_update", mil.CoreML8, "Ios18.sliceUpdate"},
		{"relu", mil.CoreML7, "Ios16.relu"},
		{"relu", mil.CoreML5, "Relu"},
		{"expand_dims", mil.CoreML6, "ExpandDims"},
		{"expand_dims", mil.CoreML7, "Ios17.expandDims"},
		{"constexpr_lut_to_dense", mil.CoreML7, "Ios16.constexprLutToDense"},
		{"select", mil.CoreML8, "Select"},
		{"range_1d", mil.CoreML7, "Range1d"},
		{"_", mil.CoreML8, "Ios18."},
	} {
		if got := opLabel(c.op, c.set); got != c.want {
			t.Errorf("%s in %s: %s, want %s", c.op, c.set, got, c.want)
		}
	}
}

func TestClassName(t *testing.T) {
	for in, want := range map[string]string{"qwen_FFN_PF_lut6_chunk_01of02": "qwen_FFN_PF_lut6_chunk_01of02", "silero-vad v6.0": "silero_vad_v6_0", "é": "_"} {
		if got := className(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// TestOpenReadsNoWeights opens a bundle with 6 GiB of weights that are not
// there: a sparse file.
func TestOpenReadsNoWeights(t *testing.T) {
	const n = 3 << 30
	m := large(t, nil)
	path := write1(t, m, Options{})
	at := (400 + 63) &^ 63
	w := mil.PromiseWeight(mil.TensorOf(mil.Float16, n), nil)
	v := &mil.Value{Name: "big", Type: w.Type(), Weight: w}
	v.Op = &mil.Operation{Type: "const", Results: []*mil.Value{v}}
	body := m.Program.Functions[0].Body
	body.Ops = append(body.Ops, v.Op)
	plan := &blob.Plan{}
	m.Program.Weights(func(v *mil.Value, w mil.Weight) {
		if _, err := plan.Add(v.Name, w); err != nil {
			t.Fatal(err)
		}
	})
	text := strings.Replace(string(read(t, path, textName)), "            write_state",
		fmt.Sprintf("            tensor<fp16, [%d]> big = const()[val = tensor<fp16, [%d]>(BLOBFILE(path = string(\"@model_path/weights/weight.bin\"), offset = uint64(%d)))];\n            write_state", n, n, at), 1)
	if err := os.WriteFile(filepath.Join(path, textName), []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(path, "weights", "weight.bin"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rec := []byte{0xef, 0xbe, 0xad, 0xde, 1, 0, 0, 0, 0, 0, 0, 0x80, 1, 0, 0, 0} // 0x180000000 bytes of fp16
	rec = append(rec, byte(at+64), byte((at+64)>>8))
	if _, err := f.WriteAt([]byte{4}, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(rec, int64(at)); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(int64(at) + 64 + 2*n); err != nil {
		t.Skipf("no sparse files here: %v", err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	p := open(t, path)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("opening %d bytes of weights allocated %d", p.WeightBytes(), n)
	}
	if p.WeightBytes() < 2*n {
		t.Errorf("%d bytes of weights", p.WeightBytes())
	}
}

// FuzzContainer: what is read is written again.
func FuzzContainer(f *testing.F) {
	path := write1(f, large(f, nil), Options{})
	f.Add(read(f, path, dataName))
	f.Add(read(f, path, analyticsName))
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := parseContainer(b); err == nil {
			if got := c.append(nil); !bytes.Equal(got, b) {
				t.Fatalf("written as %x", got)
			}
			if d, _, err := c.description(); err == nil {
				order := parseUserOrder(c.Description)
				one, err := marshalDescription(d, order)
				if err != nil {
					return // text that is not UTF-8
				}
				two, err := marshalDescription(d, order)
				if err != nil || !bytes.Equal(one, two) {
					t.Fatalf("%v: %x, then %x", err, one, two)
				}
				again, err := modelproto.UnmarshalDescription(one)
				if err != nil || !proto.Equal(again, d) {
					t.Fatalf("%v: %v\nwant %v", err, again, d)
				}
			}
		}
		if s, err := parseAnalytics(b); err == nil {
			if got := appendAnalytics(nil, s); !bytes.Equal(got, b) {
				t.Fatalf("written as %x", got)
			}
		}
	})
}

// FuzzOpen feeds the three files of a bundle. What can be opened and passes
// the checks can be written and is the same when read again.
func FuzzOpen(f *testing.F) {
	for _, m := range []*coreml.Model{small(f), large(f, nil)} {
		path := write1(f, m, Options{})
		var weights []byte
		if len(files(f, path)) == 5 {
			weights = read(f, path, "weights/weight.bin")
		}
		f.Add(read(f, path, dataName), read(f, path, textName), weights)
	}
	dir := f.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "weights"), 0o777); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data, text, weights []byte) {
		for name, b := range map[string][]byte{dataName: data, textName: text, "weights/weight.bin": weights} {
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		p, err := Open(dir)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 && len(data)+len(text) < 1<<16 {
			t.Fatalf("%d bytes were allocated for an input of %d", n, len(data)+len(text))
		}
		if err != nil {
			return
		}
		defer p.Close()
		if err := modelproto.Check(p.Model); err != nil {
			return
		}
		parts, _, err := encode(p.Model, "x", Options{Keep: p, Details: p.Details})
		if err != nil {
			return // for example too many brackets
		}
		again, err := miltext.Parse(parts[1].content, miltext.ParseOptions{Weight: func(_ miltext.BlobRef, t mil.Type) (mil.Weight, error) {
			return mil.PromiseWeight(t, nil), nil
		}})
		if err != nil {
			t.Fatalf("%v\n%s", err, parts[1].content)
		}
		if len(again.Functions) != len(p.Model.Program.Functions) {
			t.Fatalf("%d functions, want %d", len(again.Functions), len(p.Model.Program.Functions))
		}
		_ = mil.Verify(p.Model.Program)
	})
}
