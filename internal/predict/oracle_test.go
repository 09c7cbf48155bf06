package predict

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"anemone/internal/anemll"
	"anemone/internal/arch"
	"anemone/internal/arch/qwen3"
	"anemone/internal/compress"
	"anemone/internal/testutil"
)

// TestOracle runs every function of every model of some packages on random
// inputs, twice on one state, and holds outputs and states to an independent
// program, which reads the inputs that were stored.
func TestOracle(t *testing.T) {
	python := os.Getenv("ANEMONE_PYTHON")
	if python == "" {
		t.Skip("needs ANEMONE_PYTHON, a Python with coremltools, numpy and safetensors")
	}
	oracle := testutil.Shared(t, "oracle")
	dir := t.TempDir()
	ours := filepath.Join(dir, "ours")
	lut := compress.Encoding{Bits: 6, Group: 8}
	if _, err := anemll.Convert(t.Context(), arch.Registry{qwen3.Architecture}, testutil.Data(t, "checkpoints", "tiny-qwen3"), ours,
		anemll.Options{Context: 256, Batch: 64, Chunks: 2, FFN: lut}); err != nil {
		t.Fatal(err)
	}
	type job struct {
		Model    string `json:"model"`
		Function string `json:"function"`
		Calls    int    `json:"calls"`
		Inputs   string `json:"inputs"`
		Outputs  string `json:"outputs"`
		res      *Result
	}
	var jobs []job
	for _, pkg := range []string{ours, testutil.Shared(t, "peers", "qwen3-lut4-lut6-c2")} {
		paths, err := filepath.Glob(filepath.Join(pkg, "*.mlpackage"))
		if err != nil || len(paths) != 4 {
			t.Fatalf("%s: %v, %v", pkg, paths, err)
		}
		for _, path := range paths {
			m := open(t, path, Options{})
			for _, f := range m.Functions() {
				j := job{Model: path, Function: f.Name, Calls: 2,
					Inputs: filepath.Join(dir, fmt.Sprintf("%d.in.safetensors", len(jobs))), Outputs: filepath.Join(dir, fmt.Sprintf("%d.out.safetensors", len(jobs)))}
				if j.res, err = m.Run(t.Context(), Request{Function: f.Name, Random: &Random{Seed: uint64(len(jobs))}, Repeat: j.Calls, Last: true}); err != nil {
					t.Fatal(err)
				}
				if err := WriteFile(j.Inputs, j.res.InputValues()); err != nil {
					t.Fatal(err)
				}
				jobs = append(jobs, j)
			}
		}
	}
	in, err := json.Marshal(jobs)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, filepath.Join("testdata", "oracle.py"), oracle)
	cmd.Stdin = strings.NewReader(string(in))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	worst, n := 0.0, 0
	for _, j := range jobs {
		want := set(t, j.Outputs)
		for i, o := range slices.Concat(j.res.Outputs, j.res.States) {
			name := o.Name
			if i >= len(j.res.Outputs) {
				name = "state." + name
			}
			a := want[name]
			if a == nil || !slices.Equal(a.Shape, o.Tensor.Shape) {
				t.Errorf("%s, %s: %q has the shape %v, the oracle gives %v", j.Model, j.Function, name, o.Tensor.Shape, a)
				continue
			}
			w, _, err := a.floats(false)
			if err != nil {
				t.Fatal(err)
			}
			// Relative to the largest value: sums have other orders.
			diff, scale := 0.0, 0.0
			for k, x := range w {
				scale = max(scale, math.Abs(float64(x)))
				diff = max(diff, math.Abs(float64(x)-float64(o.Tensor.Float[k])))
			}
			if e := diff / scale; !(e <= 1e-5) {
				t.Errorf("%s, %s: %q differs from the oracle by %.2g of %.3g", j.Model, j.Function, name, diff, scale)
			} else {
				worst = max(worst, e)
			}
			n++
		}
	}
	t.Logf("%d functions, %d outputs and states: within %.2g of the oracle's largest value", len(jobs), n, worst)
	if n < len(jobs) {
		t.Errorf("%d comparisons of %d functions", n, len(jobs))
	}
}

// TestOptional runs a model of coremltools' with an input that has a default.
func TestOptional(t *testing.T) {
	python := os.Getenv("ANEMONE_PYTHON")
	if python == "" {
		t.Skip("needs ANEMONE_PYTHON, a Python with coremltools")
	}
	path := filepath.Join(t.TempDir(), "optional.mlpackage")
	if out, err := exec.Command(python, filepath.Join("testdata", "optional.py"), path).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	m := open(t, path, Options{})
	for _, c := range []struct {
		in   string
		want []float32
	}{{`{"x": [1, 2]}`, []float32{3.5, 4.5}}, {`{"x": [1, 2], "c": [0, 1]}`, []float32{1, 3}}} {
		res, err := m.Run(t.Context(), Request{Inputs: set(t, c.in)})
		if err != nil || !slices.Equal(floats(t, res, "y"), c.want) {
			t.Errorf("%s: %v, %v, want %v", c.in, res, err, c.want)
		}
	}
}
