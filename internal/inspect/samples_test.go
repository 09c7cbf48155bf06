package inspect

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"anemone/internal/lint"
	"anemone/internal/testutil"
)

// TestLintSamples lints models that others made: what is known of them is
// found, nothing that Apple's compiler took is called invalid, and both forms of
// a model say the same.
func TestLintSamples(t *testing.T) {
	dir := testutil.Shared(t, "samples", "mlmodelc")
	rules := func(path string) []string {
		r, err := Open(t.Context(), path, nil, Options{Lint: &lint.Options{Deep: true}, Weights: true, MIL: true})
		if err != nil {
			if msg := err.Error(); !strings.Contains(msg, "LFS pointer") && !strings.Contains(msg, "pipeline") {
				t.Error(err)
			}
			return nil
		}
		if !strings.HasPrefix(r.Model.MIL, "program(1.") {
			t.Errorf("%s: the text begins with %.40q", path, r.Model.MIL)
		}
		out := []string{}
		for _, f := range r.Lint.Findings {
			out = append(out, fmt.Sprintf("%s %s %s %s %v: %s", f.Severity, f.Rule, f.Function, f.Name, f.More, f.Found))
			if f.Rule == "program-invalid" || f.Rule == "reserved-name" || f.Rule == "spec-version" || f.Rule == "update-dtype" {
				t.Errorf("%s: %s %s: %s", path, f.Rule, f.Name, f.Found)
			}
		}
		return out
	}
	bundles, err := filepath.Glob(filepath.Join(dir, "*.mlmodelc"))
	if err != nil || len(bundles) == 0 {
		t.Fatalf("%d bundles, %v", len(bundles), err)
	}
	n := 0
	for _, path := range bundles {
		found := rules(path)
		if found == nil {
			continue
		}
		n++
		has := func(rule string) bool {
			return slices.ContainsFunc(found, func(s string) bool { return strings.Contains(s, " "+rule+" ") })
		}
		name := filepath.Base(path)
		if linear := strings.Contains(name, "int8") || strings.Contains(name, "mixed") || strings.Contains(name, "quantized"); has("weight-linear") != linear {
			t.Errorf("%s: linear weights found: %v", name, has("weight-linear"))
		}
		if voice := strings.Contains(name, "mobius"); has("sigmoid") != voice {
			t.Errorf("%s: sigmoid found: %v", name, has("sigmoid"))
		}
		source := strings.TrimSuffix(path, ".mlmodelc") + ".mlpackage"
		if _, err := os.Stat(source); errors.Is(err, os.ErrNotExist) {
			continue
		}
		if other := rules(source); !slices.Equal(found, other) {
			t.Errorf("%s: found %q, and in the package %q", name, found, other)
		}
	}
	if n < 20 {
		t.Errorf("only %d bundles were looked at", n)
	}
}

// TestLintPeers lints packages of ANEMLL's own converter.
func TestLintPeers(t *testing.T) {
	for _, c := range []struct {
		name string
		want []string // rules, in order
	}{
		{"qwen3-fp16-c2", []string{"sigmoid", "cpu-operations", "multifunction-memory", "part-not-compiled"}},
		{"qwen3-lut4-lut6-c2", []string{"sigmoid", "cpu-operations", "multifunction-memory", "part-not-compiled"}},
		{"qwen3-lut6-argmax-c2", []string{"sigmoid", "cpu-operations", "lut-group", "multifunction-memory", "part-not-compiled"}},
	} {
		r, err := Open(t.Context(), testutil.Shared(t, "peers", c.name), nil, Options{Lint: &lint.Options{Deep: true}})
		if err != nil {
			t.Error(err)
			continue
		}
		var got []string
		for _, g := range lint.Groups(r.Lint.Findings) {
			got = append(got, g.Rule)
		}
		if !slices.Equal(got, c.want) || r.Lint.Errors != 0 {
			t.Errorf("%s: found %q, %d errors; want %q", c.name, got, r.Lint.Errors, c.want)
		}
	}
}
