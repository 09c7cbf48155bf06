package predict

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"anemone/coreml"
	"anemone/coreml/mlmodelc"
	"anemone/coreml/mlpackage"
	"anemone/coreml/modelproto"
	"anemone/internal/checkpoint/gguf"
	"anemone/internal/engine"
	"anemone/internal/runner"
	"anemone/mil"
)

// Options say how a model is run.
type Options struct {
	Numerics engine.Numerics // float32 unless set
	Workers  int             // cores; 0 is all
}

// Model is a single Core ML model that is ready to run. Its methods may be
// called from several goroutines as long as no two calls share a state.
type Model struct {
	Path      string
	runner    runner.Model
	bundle    io.Closer
	functions []Function
	half      bool
}

// Function describes an entry point.
type Function struct {
	Name                    string
	Inputs, Outputs, States []Feature
}

// Feature describes an input, output or state.
type Feature struct {
	Name  string
	DType mil.DType
	// Shape is the default shape; nil if it is not known before a call.
	Shape []int
	// Shapes lists the alternatives of an input with enumerated shapes.
	Shapes [][]int
	// Ranges gives the bounds of every dimension of a flexible input.
	Ranges []coreml.Range
	// Optional says that an input may be left out. Then all its elements are
	// Default.
	Optional bool
	Default  float64
}

// Open loads the model at path: a .mlpackage, a lone .mlmodel, or a compiled
// .mlmodelc. What it is shows in its files; the name does not matter.
func Open(path string, o Options) (_ *Model, err error) {
	m := &Model{Path: path, half: o.Numerics == engine.Float16}
	core, err := m.open()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			m.bundle.Close()
		}
	}()
	if m.runner, err = engine.New(core, engine.Options{Numerics: o.Numerics, Workers: o.Workers}); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if m.functions, err = functions(core, m.runner); err != nil {
		m.runner.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

func (m *Model) open() (*coreml.Model, error) {
	st, err := os.Stat(m.Path)
	if err != nil {
		return nil, err
	}
	has := func(name string) bool {
		_, err := os.Stat(filepath.Join(m.Path, name))
		return err == nil
	}
	switch {
	case !st.IsDir() && strings.EqualFold(filepath.Base(m.Path), "meta.yaml"), st.IsDir() && has("meta.yaml"):
		return nil, fmt.Errorf("%s is a package of several models: name one of them%s", m.Path, models(m.Path, st))
	case gguf.IsFile(m.Path):
		return nil, fmt.Errorf("%s is a GGUF file, not a Core ML model: convert it first, and name a model in the folder that this makes", m.Path)
	case !st.IsDir() || has("Manifest.json"):
		p, err := mlpackage.Open(m.Path)
		if err != nil {
			return nil, err
		}
		m.bundle = p
		return p.Model, nil
	case has("coremldata.bin"), has("model.mil"):
		p, err := mlmodelc.Open(m.Path)
		if err != nil {
			return nil, err
		}
		m.bundle = p
		return p.Model, nil
	}
	return nil, fmt.Errorf("%s is no model: neither a .mlpackage (no Manifest.json) nor a .mlmodelc (no coremldata.bin)", m.Path)
}

// models lists the models in a folder, for an error.
func models(path string, st fs.FileInfo) string {
	if !st.IsDir() {
		path = filepath.Dir(path)
	}
	var names []string
	for _, ext := range []string{"*.mlmodelc", "*.mlpackage"} {
		found, _ := filepath.Glob(filepath.Join(path, ext))
		for _, f := range found {
			names = append(names, filepath.Base(f))
		}
	}
	if len(names) == 0 {
		return ""
	}
	if n := len(names) - 8; n > 0 {
		names = append(names[:8], fmt.Sprintf("and %d more", n))
	}
	return ": " + strings.Join(names, ", ")
}

// Close releases the model.
func (m *Model) Close() error {
	return errors.Join(m.runner.Close(), m.bundle.Close())
}

// Functions describes the functions; the first is the default.
func (m *Model) Functions() []Function { return slices.Clone(m.functions) }

// Function returns the description of one function; of the default one if
// name is empty.
func (m *Model) Function(name string) (*Function, error) {
	var names []string
	for i := range m.functions {
		f := m.functions[i]
		if f.Name == name || name == "" {
			return &f, nil
		}
		names = append(names, f.Name)
	}
	return nil, fmt.Errorf("%s has no function %q, it has %s", m.Path, name, strings.Join(names, ", "))
}

// NewState returns the states of all functions, zero.
func (m *Model) NewState() (runner.State, error) { return m.runner.NewState() }

// Predict runs a function; see [runner.Model].
func (m *Model) Predict(ctx context.Context, function string, in, out runner.Values, st runner.State) error {
	return m.runner.Predict(ctx, function, in, out, st)
}

// Call runs a function, the default one if its name is empty, on tensors, and
// returns new outputs. Optional inputs may be left out; a nil state is a new
// one.
func (m *Model) Call(ctx context.Context, function string, in runner.Values, st runner.State) (runner.Values, error) {
	f, err := m.Function(function)
	if err != nil {
		return nil, err
	}
	in = maps.Clone(in)
	for _, x := range f.Inputs {
		if in[x.Name] != nil || !x.Optional {
			continue
		}
		v := Input{Feature: x}
		if err := v.fill(x.Shape, func() float64 { return x.Default }); err != nil {
			return nil, fmt.Errorf("%s: function %q: %w", m.Path, f.Name, err)
		}
		if in == nil {
			in = runner.Values{}
		}
		in[x.Name] = v.Tensor
	}
	if st == nil {
		if st, err = m.NewState(); err != nil {
			return nil, err
		}
	}
	out := runner.Values{}
	if err := m.Predict(ctx, f.Name, in, out, st); err != nil {
		return nil, fmt.Errorf("%s: %w", m.Path, err)
	}
	return out, nil
}

// functions joins what the runner knows of the functions with what only the
// model's description says.
func functions(m *coreml.Model, r runner.Model) ([]Function, error) {
	defaults, err := defaults(m)
	if err != nil {
		return nil, err
	}
	var all []Function
	for _, sig := range r.Functions() {
		d := m.Function(sig.Name)
		if d == nil && len(m.Functions) == 1 && len(m.Program.Functions) == 1 {
			d = &m.Functions[0] // the older form, without names
		}
		features := func(fs []runner.Feature, find func(string) *coreml.Feature) []Feature {
			var out []Feature
			for _, f := range fs {
				x := Feature{Name: f.Name, DType: f.DType, Shape: f.Shape, Shapes: f.Shapes}
				if d != nil {
					if c := find(f.Name); c != nil {
						x.Ranges, x.Optional = c.Ranges, c.Optional
						x.Default = defaults[[2]string{d.Name, f.Name}]
					}
				}
				out = append(out, x)
			}
			return out
		}
		all = append(all, Function{
			Name:    sig.Name,
			Inputs:  features(sig.Inputs, d.Input),
			Outputs: features(sig.Outputs, d.Output),
			States:  features(sig.States, d.State),
		})
	}
	return all, nil
}

// defaults reads the values that optional inputs have when they are left out,
// by function and input. They are in none of coreml.Model's fields.
func defaults(m *coreml.Model) (map[[2]string]float64, error) {
	if len(m.RawDescription) == 0 {
		return nil, nil
	}
	d, err := modelproto.UnmarshalDescription(m.RawDescription)
	if err != nil {
		return nil, err
	}
	all := map[[2]string]float64{}
	for _, f := range d.GetInput() {
		if v, ok := defaultValue(f.GetType().GetMultiArrayType().ProtoReflect().GetUnknown()); ok {
			all[[2]string{"main", f.GetName()}] = v
		}
	}
	for _, fn := range d.GetFunctions() {
		for _, f := range fn.GetInput() {
			if v, ok := defaultValue(f.GetType().GetMultiArrayType().ProtoReflect().GetUnknown()); ok {
				all[[2]string{fn.GetName(), f.GetName()}] = v
			}
		}
	}
	return all, nil
}

// defaultValue reads the default among the fields of ArrayFeatureType that
// modelpb leaves out: intDefaultValue = 41, floatDefaultValue = 51 and
// doubleDefaultValue = 61.
func defaultValue(b []byte) (v float64, ok bool) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return v, ok
		}
		b = b[n:]
		switch {
		case num == 41 && typ == protowire.VarintType:
			x, n := protowire.ConsumeVarint(b)
			if n >= 0 {
				v, ok = float64(int32(x)), true
			}
		case num == 51 && typ == protowire.Fixed32Type:
			x, n := protowire.ConsumeFixed32(b)
			if n >= 0 {
				v, ok = float64(math.Float32frombits(x)), true
			}
		case num == 61 && typ == protowire.Fixed64Type:
			x, n := protowire.ConsumeFixed64(b)
			if n >= 0 {
				v, ok = math.Float64frombits(x), true
			}
		}
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return v, ok
		}
		b = b[n:]
	}
	return v, ok
}

// String says what a feature is, with all the shapes that it may have.
func (f Feature) String() string {
	s := fmt.Sprintf("%s %v %s", f.Name, f.DType, f.shapes())
	if f.Optional {
		s += fmt.Sprintf(" (optional, otherwise %v)", f.Default)
	}
	return s
}

func (f *Feature) shapes() string {
	switch {
	case len(f.Shapes) > 0:
		var s []string
		for _, x := range f.Shapes {
			s = append(s, fmt.Sprint(x))
		}
		return strings.Join(s, " or ")
	case len(f.Ranges) > 0:
		var s []string
		for _, r := range f.Ranges {
			switch {
			case r.Max < 0:
				s = append(s, fmt.Sprintf("%d..", r.Min))
			case r.Min == r.Max:
				s = append(s, fmt.Sprint(r.Min))
			default:
				s = append(s, fmt.Sprintf("%d..%d", r.Min, r.Max))
			}
		}
		return "[" + strings.Join(s, " ") + "]"
	case f.Shape == nil:
		return "of any shape"
	}
	return fmt.Sprint(f.Shape)
}

// accepts reports whether an array of that shape may be given for f.
func (f *Feature) accepts(shape []int) bool {
	switch {
	case len(f.Shapes) > 0:
		return slices.ContainsFunc(f.Shapes, func(s []int) bool { return slices.Equal(s, shape) })
	case len(f.Ranges) > 0:
		if len(shape) != len(f.Ranges) {
			return false
		}
		for i, r := range f.Ranges {
			if shape[i] < r.Min || r.Max >= 0 && shape[i] > r.Max {
				return false
			}
		}
		return true
	case f.Shape == nil:
		return true
	}
	return slices.Equal(f.Shape, shape)
}

// fit returns the shape that f has for an array of the given one: the same,
// or the only one of f's that differs by dimensions of size 1.
func (f *Feature) fit(shape []int) ([]int, bool) {
	if f.accepts(shape) {
		return shape, true
	}
	if len(f.Ranges) > 0 {
		return nil, false
	}
	alternatives := f.Shapes
	if len(alternatives) == 0 {
		alternatives = [][]int{f.Shape}
	}
	var found []int
	for _, s := range alternatives {
		if slices.Equal(squeezed(s), squeezed(shape)) {
			if found != nil {
				return nil, false
			}
			found = s
		}
	}
	return found, found != nil
}
