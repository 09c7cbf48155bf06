package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"anemone/coreml"
	"anemone/coreml/mlmodelc"
	"anemone/coreml/mlpackage"
	"anemone/internal/checkpoint/safetensors"
	"anemone/internal/runner"
	"anemone/internal/testutil"
	"anemone/mil"
)

// sampleJob is a call of a function of a sample, for the judge too.
type sampleJob struct {
	Model    string `json:"model"` // package that the judge reads
	Function string `json:"function"`
	Inputs   string `json:"inputs"`
	Outputs  string `json:"outputs"`
	name     string
	out      runner.Values
}

// TestSamples runs every sample of compiled bundles that is whole, those
// inside pipelines too, on random inputs, and holds the outputs to the
// judge. It reads what a bundle was compiled from, where that is there, else
// the package that this project makes of the bundle.
func TestSamples(t *testing.T) {
	python := os.Getenv("ANEMONE_PYTHON")
	if python == "" {
		t.Skip("needs ANEMONE_PYTHON, a Python with coremltools, numpy and safetensors")
	}
	dir := testutil.Shared(t, "samples", "mlmodelc")
	oracle := testutil.Shared(t, "oracle", "mil_numpy.py")
	var jobs []*sampleJob
	tmp := t.TempDir()
	pointers, whole, made := 0, 0, 0
	var bundles []string
	for _, pattern := range []string{"*.mlmodelc", filepath.Join("*.mlmodelc", "model[0-9]*")} {
		m, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		bundles = append(bundles, m...)
	}
	for _, path := range bundles {
		if _, err := os.Stat(filepath.Join(path, "model.mil")); err != nil {
			continue // a pipeline, whose parts come by themselves
		}
		name, _ := filepath.Rel(dir, path)
		b, err := mlmodelc.Open(path)
		if err != nil {
			if strings.Contains(err.Error(), "Git LFS pointer") {
				t.Logf("%s: not judged: only a pointer to its weights is there", name)
				pointers++
				continue
			}
			t.Errorf("%s: %v", name, err)
			continue
		}
		whole++
		base, weights := strings.TrimSuffix(path, ".mlmodelc"), 0
		b.Model.Program.Weights(func(*mil.Value, mil.Weight) { weights++ })
		source := base + ".mlpackage"
		if _, err := os.Stat(source); err != nil && weights == 0 {
			source = base + ".input.mlmodel"
		}
		if _, err := os.Stat(source); err != nil {
			made++
			source = filepath.Join(tmp, fmt.Sprintf("%d.mlpackage", len(jobs)))
			if err := mlpackage.Write(context.Background(), source, b.Model, mlpackage.Options{}); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		jobs = append(jobs, runSample(t, name, b.Model, source, tmp, len(jobs))...)
		b.Close()
	}
	in, err := json.Marshal(jobs)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "judge_models.py", oracle)
	cmd.Dir = "testdata"
	cmd.Stdin = bytes.NewReader(in)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, stderr.String())
	}
	answers := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(answers) != len(jobs) {
		t.Fatalf("%d answers to %d jobs", len(answers), len(jobs))
	}
	outputs := 0
	for i, j := range jobs {
		if answers[i] != "ok" {
			t.Errorf("%s, %s: the judge: %s", j.name, j.Function, answers[i])
			continue
		}
		f, err := safetensors.Open(j.Outputs)
		if err != nil {
			t.Fatal(err)
		}
		for _, info := range f.Tensors() {
			want := &runner.Tensor{DType: mil.Float32}
			for _, d := range info.Shape {
				want.Shape = append(want.Shape, int(d))
			}
			if want.Float, want.Int = golden(t, f, info.Name); want.Float == nil && fmt.Sprint(info.DType) == "I32" {
				want.DType = mil.Int32
			}
			// Deep programs, and the judge rounds too: 1e-5 of the largest.
			if err := compare(j.name+", "+j.Function+", "+info.Name, j.out[info.Name], want, 1e-5); err != nil {
				t.Error(err)
			}
			outputs++
		}
		f.Close()
	}
	t.Logf("%d bundles, %d calls, %d outputs; the judge read the sources of %d, and packages made of the others; %d bundles are pointers", whole, len(jobs), outputs, whole-made, pointers)
	if whole == 0 || outputs < whole {
		t.Errorf("%d outputs of %d bundles", outputs, whole)
	}
}

// runSample calls every function of a model on random inputs.
func runSample(t *testing.T, name string, model *coreml.Model, source, tmp string, n int) (jobs []*sampleJob) {
	m, err := New(model, Options{})
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return nil
	}
	defer m.Close()
	r := rand.New(rand.NewPCG(uint64(n), 5))
	for k, sig := range m.Functions() {
		for turn := range 2 {
			j := &sampleJob{Model: source, Function: sig.Name, name: name, out: runner.Values{}}
			j.Inputs = filepath.Join(tmp, fmt.Sprintf("%d.%d.%d.in", n, k, turn))
			j.Outputs = strings.TrimSuffix(j.Inputs, "in") + "out"
			in, named := runner.Values{}, []safetensors.Named{}
			open := 2 + 3*turn // every open dimension alike, as programs want them
			for q, x := range sig.Inputs {
				shape := []int{}
				for i, d := range m.funcs[k].f.Inputs[m.funcs[k].inputs[q]].Type.Shape {
					if d < 0 {
						d = open
						if b := m.funcs[k].ranges[q]; i < len(b) {
							d = max(d, b[i].Min)
							if b[i].Max >= 0 {
								d = min(d, b[i].Max)
							}
						}
					}
					shape = append(shape, d)
				}
				if len(x.Shapes) > 0 {
					shape = x.Shapes[turn%len(x.Shapes)]
				}
				size, _ := mil.NumElements(shape)
				v := &runner.Tensor{DType: x.DType, Shape: shape}
				nt := safetensors.Named{Name: x.Name, Shape: shape}
				for range size {
					if x.DType.IsFloat() {
						f := float32(r.NormFloat64() / 4)
						if x.DType == mil.Float16 {
							f = roundOne(f)
						}
						v.Float = append(v.Float, f)
						nt.Data = binary.LittleEndian.AppendUint32(nt.Data, math.Float32bits(f))
					} else {
						v.Int = append(v.Int, int32(r.IntN(2)))
						nt.Data = binary.LittleEndian.AppendUint32(nt.Data, uint32(v.Int[len(v.Int)-1]))
					}
				}
				nt.DType = safetensors.F32
				if !x.DType.IsFloat() {
					nt.DType = safetensors.I32
				}
				in[x.Name] = v
				named = append(named, nt)
			}
			if err := safetensors.Write(j.Inputs, named, nil); err != nil {
				t.Fatal(err)
			}
			st, err := m.NewState()
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Predict(context.Background(), sig.Name, in, j.out, st); err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			jobs = append(jobs, j)
		}
	}
	return jobs
}

func roundOne(f float32) float32 {
	x := []float32{f}
	roundHalf(x)
	return x[0]
}
