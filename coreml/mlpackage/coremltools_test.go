package mlpackage

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"anemone/coreml"
	"anemone/internal/float16"
	"anemone/mil"
	"anemone/mil/blob"
)

// coremltools runs testdata/coremltools_check.py with the Python that
// ANEMONE_PYTHON names, one that has coremltools.
func coremltools(t *testing.T, args ...string) []byte {
	t.Helper()
	python := os.Getenv("ANEMONE_PYTHON")
	if python == "" {
		t.Skip("ANEMONE_PYTHON does not name a Python with coremltools")
	}
	cmd := exec.Command(python, append([]string{filepath.Join("testdata", "coremltools_check.py")}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, stderr.String())
	}
	return out
}

// element returns element i of a stored tensor. It is written without the
// code under test: bit by bit.
func element(d mil.DType, b []byte, i int) float64 {
	bits := d.Bits()
	var v uint64
	for k := range bits {
		at := i*bits + k
		v |= uint64(b[at/8]>>(at%8)&1) << k
	}
	switch {
	case d == mil.Float16:
		return float64(float16.ToFloat32(uint16(v)))
	case d == mil.Float32:
		return float64(math.Float32frombits(uint32(v)))
	case !d.IsUnsigned() && v>>(bits-1) == 1:
		return float64(int64(v) - 1<<bits)
	}
	return float64(v)
}

// digest is the digest that the script takes of a constant.
func digest(t *testing.T, v *mil.Value) string {
	t.Helper()
	var xs []float64
	if v.Weight != nil {
		b, err := mil.WeightBytes(v.Weight)
		if err != nil {
			t.Fatal(err)
		}
		n, _ := v.Type.NumElements()
		for i := range n {
			xs = append(xs, element(v.Type.DType, b, i))
		}
	} else {
		xs = append(xs, v.Literal.Floats...)
		for _, x := range v.Literal.Ints {
			xs = append(xs, float64(x))
		}
		for _, x := range v.Literal.Bools {
			if x {
				xs = append(xs, 1)
			} else {
				xs = append(xs, 0)
			}
		}
	}
	var b []byte
	for _, x := range xs {
		u := uint64(int64(x))
		if v.Type.DType.IsFloat() {
			u = math.Float64bits(x)
		}
		b = binary.LittleEndian.AppendUint64(b, u)
	}
	return fmt.Sprintf("%x", sha256.Sum256(b))
}

// loaded is what the script says about a package.
type loaded struct {
	Version   int
	Default   string
	Functions map[string]struct {
		Inputs     map[string][2]any
		Outputs    []string
		Operations int
		Constants  map[string]string
	}
	Described map[string][3][]string
	User      map[string]string
	Short     string
}

// TestCoremltoolsLoads has coremltools load packages that we wrote, and
// compares what it finds, every constant included, with the model.
func TestCoremltoolsLoads(t *testing.T) {
	if os.Getenv("ANEMONE_PYTHON") == "" {
		t.Skip("ANEMONE_PYTHON does not name a Python with coremltools")
	}
	dir := t.TempDir()
	models := map[string]*coreml.Model{}
	add := func(m *coreml.Model) {
		path := filepath.Join(dir, fmt.Sprintf("m%d.mlpackage", len(models)))
		if err := Write(context.Background(), path, m, Options{}); err != nil {
			t.Fatal(err)
		}
		models[path] = m
	}
	add(model(t))
	if _, err := os.Stat(filepath.Join("..", "..", "..", "shared", "peers")); err == nil {
		for path := range bundles(t) {
			if strings.HasSuffix(path, ".mlpackage") {
				p, err := Open(path)
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				add(p.Model)
			}
		}
	}
	var out map[string]loaded
	if err := json.Unmarshal(coremltools(t, append([]string{"load"}, slices.Sorted(maps.Keys(models))...)...), &out); err != nil {
		t.Fatal(err)
	}
	constants := 0
	for path, m := range models {
		got := out[path]
		if got.Version != m.SpecVersion || got.Default != m.DefaultFunction || got.Short != m.Metadata.ShortDescription || !maps.Equal(got.User, m.Metadata.User) {
			t.Errorf("%s: coremltools found %d %q %q %v", path, got.Version, got.Default, got.Short, got.User)
		}
		if len(got.Functions) != len(m.Functions) {
			t.Errorf("%s: coremltools found %d functions, want %d", path, len(got.Functions), len(m.Functions))
		}
		for _, fd := range m.Functions {
			f := got.Functions[fd.Name]
			if d, ok := got.Described[fd.Name]; ok || m.DefaultFunction != "" {
				for i, want := range [][]coreml.Feature{fd.Inputs, fd.Outputs, fd.States} {
					if len(d[i]) != len(want) {
						t.Errorf("%s: %s: features %v, want %v", path, fd.Name, d[i], want)
						continue
					}
					for k := range want {
						if d[i][k] != want[k].Name {
							t.Errorf("%s: %s: feature %q, want %q", path, fd.Name, d[i][k], want[k].Name)
						}
					}
				}
			}
			ops := 0
			m.Program.Function(fd.Name).Body.Walk(func(op *mil.Operation) bool {
				check := func(name string, v *mil.Value) {
					if v == nil || v.Type.DType == mil.String {
						return
					}
					constants++
					if d, ok := f.Constants[name]; !ok || d != digest(t, v) {
						t.Errorf("%s: %s: coremltools found another %q", path, fd.Name, name)
					}
				}
				switch {
				case op.Type == "const":
					check(op.Results[0].Name, op.Results[0])
					return true
				case op.Type == "constexpr_lut_to_dense" && m.SpecVersion >= 9:
					check(op.Results[0].Name+".indices", op.Value("indices"))
					check(op.Results[0].Name+".lut", op.Value("lut"))
				}
				// coremltools makes one operation of a write_state and the
				// read_state behind it.
				if op.Type != "write_state" {
					ops++
				}
				return true
			})
			if f.Operations != ops || len(f.Outputs) != len(fd.Outputs) || len(f.Inputs) != len(fd.Inputs)+len(fd.States) {
				t.Errorf("%s: %s: coremltools found %d operations, %d inputs, outputs %v; want %d", path, fd.Name, f.Operations, len(f.Inputs), f.Outputs, ops)
			}
		}
	}
	t.Logf("%d packages, %d constants", len(models), constants)
}

// TestCoremltoolsBlobs compares a file of weights with the one that
// coremltools writes of the same values.
func TestCoremltoolsBlobs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weight.bin")
	coremltools(t, "blobs", path)
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const n = 13
	p := &blob.Plan{}
	for _, c := range []struct {
		d     mil.DType
		value func(i int) int
	}{
		{mil.Float16, nil}, {mil.Float32, nil},
		{mil.UInt8, func(i int) int { return i }},
		{mil.Int8, func(i int) int { return i - 5 }},
		{mil.Int16, func(i int) int { return i - 5 }},
		{mil.UInt16, func(i int) int { return i }},
		{mil.Int4, func(i int) int { return i - 6 }},
		{mil.UInt1, func(i int) int { return i % 2 }},
		{mil.UInt2, func(i int) int { return i % 4 }},
		{mil.UInt4, func(i int) int { return i }},
		{mil.UInt3, func(i int) int { return i % 8 }},
		{mil.UInt6, func(i int) int { return i + 50 }},
		{mil.Int32, func(i int) int { return i - 5 }},
		{mil.UInt32, func(i int) int { return i }},
	} {
		typ := mil.TensorOf(c.d, n)
		size, _ := typ.ByteSize()
		b := make([]byte, size)
		for i := range n {
			var v uint64
			switch c.d {
			case mil.Float16:
				v = uint64(float16.FromFloat32(float32(i)))
			case mil.Float32:
				v = uint64(math.Float32bits(float32(i)))
			default:
				v = uint64(c.value(i))
			}
			for k := range c.d.Bits() {
				at := i*c.d.Bits() + k
				b[at/8] |= byte(v>>k&1) << (at % 8)
			}
		}
		w, err := mil.NewWeight(typ, b)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Add(c.d.String(), w); err != nil {
			t.Fatal(err)
		}
	}
	var got bytes.Buffer
	if err := p.Write(context.Background(), &got, nil); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%d bytes that are not the %d that coremltools writes", got.Len(), len(want))
	}
}

// TestCoremltoolsPackage reads a package that coremltools has just made.
func TestCoremltoolsPackage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "made.mlpackage")
	coremltools(t, "make", path)
	p, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	m := p.Model
	if err := mil.Verify(m.Program); err != nil {
		t.Error(err)
	}
	f := m.Functions[0]
	if f.Name != "main" || m.DefaultFunction != "" || f.Input("x") == nil || f.State("kv") == nil || f.Output("out") == nil || m.Metadata.User["com.anemll.info"] != "made by a test" {
		t.Errorf("model %+v", m)
	}
	out := filepath.Join(t.TempDir(), "again.mlpackage")
	if err := Write(context.Background(), out, m, Options{}); err != nil {
		t.Fatal(err)
	}
	a, b := folder(t, path), folder(t, out)
	const weights = "Data/com.apple.CoreML/weights/weight.bin"
	if !bytes.Equal(a[weights], b[weights]) {
		t.Error("the weights written again differ from coremltools' bytes")
	}
}
