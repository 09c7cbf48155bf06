package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"anemone/internal/anemll"
	"anemone/internal/arch"
	"anemone/internal/arch/qwen3"
	"anemone/internal/predict"
	"anemone/internal/runner"
	"anemone/internal/testutil"
	"anemone/mil"
)

// predictCommand runs `predict` and returns what it prints.
func predictCommand(t *testing.T, stdin string, a ...string) (out, notes string, status int, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := newPredict()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetArgs(a)
	if err = cmd.ExecuteContext(t.Context()); err != nil {
		status = exitFailed
		var se *statusError
		if errors.As(err, &se) {
			status = se.status
		}
	}
	return stdout.String(), stderr.String(), status, err
}

// tinyModels converts the tiny checkpoint, in fp16, and returns the paths of
// its models: embeddings, two chunks, head.
func tinyModels(t *testing.T) (emb, c1, c2, head string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tiny-ane")
	o := anemll.Options{Context: 256, Batch: 64, Chunks: 2}
	if _, err := anemll.Convert(t.Context(), arch.Registry{qwen3.Architecture}, testutil.Data(t, "checkpoints", "tiny-qwen3"), dir, o); err != nil {
		t.Fatal(err)
	}
	path := func(name string) string { return filepath.Join(dir, name+".mlpackage") }
	return path("qwen_embeddings"), path("qwen_FFN_PF_chunk_01of02"), path("qwen_FFN_PF_chunk_02of02"), path("qwen_lm_head")
}

// tensors reads the arrays of a file.
func tensors(t *testing.T, path string) map[string]*runner.Tensor {
	t.Helper()
	f, err := predict.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := map[string]*runner.Tensor{}
	for _, a := range f.Arrays {
		if all[a.Name], err = a.Tensor(); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// TestPredictSequence feeds a text to a package with nothing but `predict`
// and files: part after part for all tokens at once, and token by token with
// the states in a file between any two commands. Both give the same bits, and
// the logits of the checkpoint in another implementation.
func TestPredictSequence(t *testing.T) {
	const tokens, context = 14, 256
	gold := tensors(t, testutil.Data(t, "goldens", "tiny-qwen3.safetensors"))
	ids := gold["tokens"].Int[:tokens]
	vocab := gold["logits"].Shape[1]
	emb, c1, c2, head := tinyModels(t)
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	call := func(a ...string) {
		t.Helper()
		if out, notes, status, err := predictCommand(t, "", a...); status != 0 {
			t.Fatalf("predict %q: %v\n%s%s", a, err, out, notes)
		}
	}
	mask := make([]float32, tokens*context)
	positions := make([]int32, tokens)
	for i := range tokens {
		positions[i] = int32(i)
		for j := i + 1; j < context; j++ {
			mask[i*context+j] = float32(math.Inf(-1))
		}
	}
	// step holds what the chunks want beside hidden states, for some tokens.
	step := func(name string, i, n int) string {
		t.Helper()
		err := predict.WriteFile(path(name), []predict.Value{
			predict.Pack("position_ids", runner.Ints(positions[i:i+n], n, 1)),
			predict.Pack("current_pos", runner.Ints(positions[i:i+n], n, 1)),
			predict.Pack("causal_mask", runner.Floats(mil.Float16, mask[i*context:(i+n)*context], n, 1, 1, 1, context)),
			predict.Pack("input_ids", runner.Ints(ids[i:i+n], n, 1)),
		})
		if err != nil {
			t.Fatal(err)
		}
		return path(name)
	}
	for _, numerics := range []string{"fp32", "fp16"} {
		num := "--numerics=" + numerics
		n := fmt.Sprint(tokens)
		steps := step("steps.npz", 0, tokens)
		call(emb, num, "-i", steps, "--repeat", n, "-o", path("h0.npz"))
		call(c1, num, "--function", "infer", "-i", path("h0.npz"), "-i", steps, "--repeat", n, "-o", path("h1.safetensors"), "--state-out", path("s1.safetensors"))
		call(c2, num, "--function", "infer", "-i", path("h1.safetensors"), "--rename", "output_hidden_states=hidden_states", "-i", steps, "--repeat", n,
			"-o", path("h2.json"), "--state-in", path("s1.safetensors"), "--state-out", path("s2.npz"))
		call(head, num, "-i", path("h2.json"), "--rename", "output_hidden_states=hidden_states", "--repeat", n, "-o", path("whole.safetensors"))

		// Token by token; another format each time.
		var got [][]float32
		state := ""
		for i := range tokens {
			ext := []string{".safetensors", ".npz", ".json"}[i%3]
			one := step("step"+ext, i, 1)
			call(emb, num, "-i", one, "-o", path("a"+ext))
			next := path("state" + ext)
			args := []string{c1, num, "--function", "infer", "-i", path("a" + ext), "-i", one, "-o", path("b" + ext), "--state-out", next}
			if state != "" {
				args = append(args, "--state-in", state)
			}
			call(args...)
			state = next
			call(c2, num, "--function", "infer", "-i", path("b"+ext), "--rename", "output_hidden_states=hidden_states", "-i", one, "-o", path("c"+ext), "--state-in", state, "--state-out", state)
			call(head, num, "-i", path("c"+ext), "--rename", "output_hidden_states=hidden_states", "-o", path("logits"+ext))
			got = append(got, logits(t, tensors(t, path("logits"+ext)), 1)[0])
		}
		want := logits(t, tensors(t, path("whole.safetensors")), tokens)
		worst := 0.0
		for i := range tokens {
			if len(got[i]) != vocab || !slices.Equal(got[i], want[i]) {
				t.Errorf("%s: the logits of token %d differ between call by call and all at once", numerics, i)
			}
			for k, x := range got[i] {
				worst = max(worst, math.Abs(float64(x)-float64(gold["logits"].Float[i*vocab+k])))
			}
		}
		a, b := tensors(t, state), tensors(t, path("s2.npz"))
		if len(a) != 1 || len(b) != 1 {
			t.Errorf("%d and %d states", len(a), len(b))
		}
		for name := range a {
			if b[name] == nil || !slices.Equal(a[name].Float, b[name].Float) || finiteMax(a[name].Float) == 0 {
				t.Errorf("%s: state %q differs between call by call and all at once", numerics, name)
			}
		}
		t.Logf("%s: logits within %.2g of transformers' in float32", numerics, worst)
		if limit := map[string]float64{"fp32": 2e-3, "fp16": 0.05}[numerics]; !(worst <= limit) {
			t.Errorf("%s: logits differ by %v from transformers', want at most %v", numerics, worst, limit)
		}
	}
}

func finiteMax(x []float32) (m float32) {
	for _, v := range x {
		m = max(m, v)
	}
	return m
}

// logits joins the head's outputs, of n calls.
func logits(t *testing.T, out map[string]*runner.Tensor, n int) [][]float32 {
	t.Helper()
	rows := make([][]float32, n)
	for k := range len(out) {
		x := out[fmt.Sprintf("logits%d", k+1)]
		if x == nil {
			t.Fatalf("no logits%d", k+1)
		}
		w := x.Len() / n
		for i := range n {
			rows[i] = append(rows[i], x.Float[i*w:(i+1)*w]...)
		}
	}
	return rows
}

func TestPredictCommand(t *testing.T) {
	emb, c1, _, _ := tinyModels(t)
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	token := `{"input_ids": [[65]]}`
	for _, c := range []struct {
		args   []string
		stdin  string
		status int
		want   []string // in what is printed, or the error
	}{
		{[]string{emb, "-i", token}, "", 0, []string{emb + ": function main, fp32 arithmetic, loaded in ", "called in ", "input_ids", "int32", "the command line", "hidden_states", "[1 1 128]", "min -", "mean "}},
		{[]string{emb, "-i", "-", "-o", "-"}, `{"input_ids": 65, "extra": 1}`, 0, []string{`{"dtype": "fp32", "shape": [1, 1, 128], "data": [`, `note: array "extra" is no input`}},
		{[]string{emb, "-i", `{"input_ids": [65]}`}, "", 0, []string{`note: input "input_ids": shape [1] was taken as [1 1]`}},
		{[]string{emb, "-i", token, "--repeat", "3", "--numerics", "fp16", "-o", path("a.npz"), "--input-out", path("in.json")}, "", 0, []string{"fp16 arithmetic", "3 calls: the first in", "written: " + path("a.npz"), "written: " + path("in.json")}},
		{[]string{c1, "--random", "3", "--state-out", path("s.npz")}, "", 0, []string{"function infer", "random", "state", "kv_cache", "written: " + path("s.npz")}},
		{[]string{c1, "--random", "3", "--function", "prefill", "--state-in", path("s.npz")}, "", 0, []string{"function prefill"}},
		{[]string{emb, "--random", "3", "--shape", "input_ids=1,64"}, "", 0, []string{"[1 64 128]"}},
		{[]string{emb}, "", 1, []string{"input input_ids int32 [1 1] or [1 64] is missing"}},
		{[]string{c1}, "", 1, []string{"4 inputs are missing", "causal_mask fp16 [1 1 1 256]"}},
		{[]string{emb, "-i", `{"input_ids": [[65.5]]}`, "-o", path("none.npz")}, "", 1, []string{"65.5 at [0 0] is not an integer"}},
		{[]string{emb, "-i", `{"input_ids": [[99999]]}`, "-o", path("none.npz")}, "", 1, []string{"gather"}},
		{[]string{emb, "-i", token, "--function", "other"}, "", 1, []string{`has no function "other", it has main`}},
		{[]string{emb, "-i", token, "-i", token}, "", 1, []string{`"input_ids" is both`}},
		{[]string{emb, "-i", token, "--rename", "ids=input_ids"}, "", 1, []string{`there is no array "ids"`}},
		{[]string{emb, "-i", token, "--state-out", path("none.npz")}, "", 1, []string{"has no states to keep"}},
		{[]string{c1, "--random", "1", "--state-in", path("in.json")}, "", 1, []string{"the given states lack"}},
		{[]string{emb, "-i", path("absent.npz")}, "", 1, []string{"absent.npz"}},
		{[]string{path("absent.mlpackage")}, "", 1, []string{"absent.mlpackage"}},
		{[]string{filepath.Dir(emb)}, "", 1, []string{"is a package of several models"}},
		{[]string{emb, "-i", token, "-o", filepath.Join(dir, "no", "x.npz")}, "", 1, []string{"no such file"}},
		{[]string{emb, "-i", token, "-o", path("x.txt")}, "", 2, []string{"--output", "does not end in .safetensors, .npz or .json"}},
		{[]string{emb, "--state-out", "-"}, "", 2, []string{"--state-out"}},
		{[]string{emb, "-o", path("x.npz"), "--state-out", dir + "/./x.npz"}, "", 2, []string{"--output and --state-out both name"}},
		{[]string{emb, "-o", "-", "--json"}, "", 2, []string{"both print to standard output"}},
		{[]string{emb, "--repeat", "0"}, "", 2, []string{"--repeat 0"}},
		{[]string{emb, "--random", "x"}, "", 2, []string{`--random "x"`}},
		{[]string{emb, "--random", "1", "--random-below", "0"}, "", 2, []string{"--random-below 0"}},
		{[]string{emb, "--shape", "a=1"}, "", 2, []string{"give --random SEED"}},
		{[]string{emb, "--random", "1", "--shape", "a=1,x"}, "", 2, []string{"want NAME=1,64"}},
		{[]string{emb, "--rename", "a"}, "", 2, []string{"want OLD=NEW"}},
		{[]string{emb, "--rename", "a=b", "--rename", "a=c"}, "", 2, []string{"each OLD once"}},
		{nil, "", 2, []string{"MODEL is missing"}},
	} {
		out, notes, status, err := predictCommand(t, c.stdin, c.args...)
		if err != nil {
			out += err.Error()
		}
		if status != c.status {
			t.Errorf("%q: status %d, want %d\n%s", c.args, status, c.status, out)
		}
		for _, w := range c.want {
			if !strings.Contains(out+notes, w) {
				t.Errorf("%q: no %q in\n%s%s", c.args, w, out, notes)
			}
		}
	}
	if x := tensors(t, path("a.npz"))["hidden_states"]; x == nil || !slices.Equal(x.Shape, []int{3, 1, 1, 128}) || x.DType != mil.Float16 {
		t.Errorf("outputs of three calls: %+v", x)
	}
	if x := tensors(t, path("in.json"))["input_ids"]; x == nil || !slices.Equal(x.Int, []int32{65}) {
		t.Errorf("inputs as used: %+v", x)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 3 {
		t.Errorf("the folder holds %v, %v", entries, err)
	}
}

// TestPredictJSON reads what --json prints.
func TestPredictJSON(t *testing.T) {
	_, c1, _, _ := tinyModels(t)
	state := filepath.Join(t.TempDir(), "s.safetensors")
	out, notes, status, err := predictCommand(t, "", c1, "--random", "1", "--repeat", "2", "--json", "--state-out", state, "-i", `{"causal_mask": {"shape": [1, 1, 1, 256], "data": [`+strings.Repeat(`"-Infinity",`, 255)+`"-Infinity"]}}`)
	if status != 0 || notes != "" {
		t.Fatalf("%v\n%s", err, notes)
	}
	var v struct {
		Model, Function, Numerics string
		Calls                     int
		Load                      float64 `json:"load_seconds"`
		First                     float64 `json:"first_seconds"`
		Mean                      float64 `json:"mean_seconds"`
		Inputs                    []struct {
			Name, DType, Source string
			Shape               []int
		}
		Outputs, States []struct {
			Name, DType    string
			Shape          []int
			Min, Max, Mean float64
			NaN, Inf       int
			First          []any
		}
		Notes    []string
		StateOut string `json:"state_out"`
	}
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatalf("%v in\n%s", err, out)
	}
	if v.Model != c1 || v.Function != "infer" || v.Numerics != "fp32" || v.Calls != 2 || v.Load <= 0 || v.First <= 0 || v.Mean <= 0 || len(v.Inputs) != 4 || len(v.Outputs) != 1 || len(v.States) != 1 || v.StateOut != state {
		t.Errorf("%+v", v)
	}
	for _, in := range v.Inputs {
		if want := map[bool]string{true: "the command line", false: "random"}[in.Name == "causal_mask"]; in.Source != want {
			t.Errorf("%+v", in)
		}
	}
	// All keys are masked: the softmax is 0/0, and that is said.
	o := v.Outputs[0]
	if o.NaN != 128 || len(o.First) != 8 || o.First[0] != "NaN" || !strings.Contains(fmt.Sprint(v.Notes), "128 NaN of 128 values") {
		t.Errorf("%+v, notes %q", o, v.Notes)
	}
}
