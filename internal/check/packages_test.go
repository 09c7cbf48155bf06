package check

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"anemone/coreml"
	"anemone/internal/anemll"
	"anemone/internal/arch"
	"anemone/internal/arch/all"
	"anemone/internal/arch/nn"
	"anemone/internal/checkpoint"
	"anemone/internal/compress"
	"anemone/mil"
)

var registry = all.Registry

// converted has the packages of the repository's own checkpoints: what several
// tests look at is converted once. Converting waits for the disk.
var converted struct {
	sync.Mutex
	root string
	dirs map[string]string
}

func TestMain(m *testing.M) {
	code := m.Run()
	if converted.root != "" {
		os.RemoveAll(converted.root)
	}
	os.Exit(code)
}

// convert makes a package of a checkpoint and returns its folder, which is not
// to be changed.
func convert(t testing.TB, ck string, o anemll.Options) string {
	t.Helper()
	if o.Format == "" {
		o.Format = anemll.MLPackage
	}
	out, key := filepath.Join(t.TempDir(), "package"), ""
	if strings.Contains(ck, filepath.Join("testdata", "checkpoints")) {
		converted.Lock()
		defer converted.Unlock()
		key = fmt.Sprintf("%s %+v", ck, o)
		if dir := converted.dirs[key]; dir != "" {
			return dir
		}
		if converted.dirs == nil {
			var err error
			if converted.root, err = os.MkdirTemp("", "check"); err != nil {
				t.Fatal(err)
			}
			converted.dirs = map[string]string{}
		}
		out = filepath.Join(converted.root, fmt.Sprint(len(converted.dirs)))
	}
	if _, err := anemll.Convert(context.Background(), registry, ck, out, o); err != nil {
		t.Fatal(err)
	}
	if key != "" {
		converted.dirs[key] = out
	}
	return out
}

// assemble makes a package like convert, of a checkpoint of a plain transformer
// in its own chunks, without writing it.
func assemble(t testing.TB, dir string, o anemll.Options) *anemll.Package {
	t.Helper()
	ck, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ck.Close() })
	m, err := registry.Open(ck)
	if err != nil {
		t.Fatal(err)
	}
	info, ao := m.Info(), arch.Options{Context: o.Context, Batch: o.Batch, SplitHead: 16}
	model := func(e compress.Encoding, err error, fs ...*mil.Function) *coreml.Model {
		if err != nil {
			t.Fatal(err)
		}
		c := &coreml.Model{SpecVersion: 9, Program: &mil.Program{Functions: fs}}
		for _, f := range fs {
			palettize(t, f, e)
			c.Functions = append(c.Functions, coreml.Describe(f))
		}
		if in := c.Functions[0].Input(anemll.InputIDs); in != nil {
			in.Shape, in.Shapes = []int{1, 1}, [][]int{{1, 1}, {1, o.Batch}}
		}
		if len(fs) > 1 {
			c.DefaultFunction = fs[0].Name
		}
		return c
	}
	f, err := m.Embeddings(ao)
	embeddings := model(o.Embeddings, err, f)
	var chunks []*coreml.Model
	bounds := arch.SplitLayers(info.Layers, max(o.Chunks, 1))
	for i, first := range bounds[:len(bounds)-1] {
		fs, err := m.Chunk(ao, first, bounds[i+1])
		chunks = append(chunks, model(o.FFN, err, fs...))
	}
	f, err = m.Head(ao)
	head := model(o.Head, err, f)
	meta := &anemll.Meta{ModelPrefix: info.Prefix, PrefillDynamicSlice: true, PrefillLastTokenOutput: true, NumLayers: info.Layers}
	p, err := anemll.Assemble(meta, embeddings, chunks, head)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// palettized has what matrices became in other packages, by encoding and
// contents: those of damaged checkpoints differ in one of them.
var palettized sync.Map // of string to [2]mil.Weight

// palettize replaces the matrices of a function by look-up tables, if e has any
// bits.
func palettize(t testing.TB, f *mil.Function, e compress.Encoding) {
	t.Helper()
	for _, op := range f.Body.Ops {
		if op.Type != "const" || e.Bits == 0 {
			continue
		}
		v := op.Results[0]
		w, ok := v.Weight.(*nn.Weight)
		if !ok || w.Kind() == nn.Vector {
			continue
		}
		data, err := mil.WeightBytes(w)
		if err != nil {
			t.Fatal(err)
		}
		key := fmt.Sprintf("%+v %v %x", e, w.Type(), sha256.Sum256(data))
		now, ok := palettized.Load(key)
		if !ok {
			p, err := compress.Palettize(w, w.Type().Shape, e, compress.Options{Name: w.Name()})
			if err != nil {
				t.Fatal(err)
			}
			now, _ = palettized.LoadOrStore(key, [2]mil.Weight{keep(t, p.Indices), keep(t, p.LUT)})
		}
		p := now.([2]mil.Weight)
		op.Type, v.Weight = "constexpr_lut_to_dense", nil
		op.Args = []mil.Arg{mil.A("indices", mil.ImmWeight(p[0])), mil.A("lut", mil.ImmWeight(p[1]))}
	}
}

// keep makes good on a promise.
func keep(t testing.TB, w mil.Weight) mil.Weight {
	t.Helper()
	b, err := mil.WeightBytes(w)
	if err != nil {
		t.Fatal(err)
	}
	if w, err = mil.NewWeight(w.Type(), b); err != nil {
		t.Fatal(err)
	}
	return w
}

// What is assembled is what is converted.
func TestAssemble(t *testing.T) {
	for _, bits := range []int{0, 4} {
		want := open(t, convert(t, tinyCheckpoint(t), lut(bits)))
		got := assemble(t, tinyCheckpoint(t), lut(bits))
		if a, b := fmt.Sprintf("%+v", want.Layout), fmt.Sprintf("%+v", got.Layout); a != b {
			t.Errorf("%d bits: layouts\n%s\nand\n%s", bits, a, b)
		}
		for i, part := range want.Parts() {
			var weights [2][]byte
			for k, m := range []*coreml.Model{part.Model, got.Parts()[i].Model} {
				m.Program.Weights(func(v *mil.Value, w mil.Weight) {
					b, err := mil.WeightBytes(w)
					if err != nil {
						t.Fatal(err)
					}
					weights[k] = append(weights[k], b...)
				})
			}
			if len(weights[0]) == 0 || string(weights[0]) != string(weights[1]) {
				t.Errorf("%d bits: %s has %d and %d bytes of weights, or others", bits, part.Name, len(weights[0]), len(weights[1]))
			}
		}
	}
}
