package inspect

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"anemone/internal/anemll"
	"anemone/internal/arch"
	"anemone/internal/arch/qwen35"
	"anemone/internal/lint"
	"anemone/internal/testutil"
)

func join(rows [][]string) string {
	var b strings.Builder
	for _, r := range rows {
		b.WriteString(strings.Join(r, ": ") + "\n")
	}
	return b.String()
}

// TestExtensionText reads the contract's own examples of the extension keys, and
// others, and holds what is said about them to texts that people have read.
func TestExtensionText(t *testing.T) {
	linear := func(n int) (l []string) {
		for i := range n {
			if i%4 == 3 {
				l = append(l, "full")
			} else {
				l = append(l, "linear")
			}
		}
		return l
	}
	for _, c := range []struct{ name, params, want string }{
		{"plain", "context_length: 512\nnum_layers: 28\nhidden_size: 1024\nrecommended_sampling: {top_k: 3}", ""},
		{"qwen3_5", `recurrent_state: true
prefill_full_batches_only: true
gdn_chunk_size: 64
moe: {experts: 16, experts_per_token: 4, evaluation: dense}
layer_types: [` + strings.Join(linear(24), ", ") + `]
states:
  - name: model_model_kv_cache_0
    shape: [12, 2, 512, 256]
    dtype: float16
    layers: [3, 7, 11, 15, 19, 23]
  - name: model_model_gdn_state_0
    shape: [288, 128, 128]
    dtype: float16
    layers: [0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 16, 17, 18, 20, 21, 22]`, `layers: 24: 6 full, 18 linear; in order (3 linear, 1 full) 6 times
calls: recurrent state: every token once and in order, no going back without a snapshot
: prefill takes full batches only, none that are filled up
delta rule: 64 tokens at a time in prefill
experts: 16, 4 of them for each token, evaluation dense
state: model_model_kv_cache_0 float16 [12 2 512 256], of layers 3, 7, 11, 15, 19, 23
state: model_model_gdn_state_0 float16 [288 128 128], of layers 0-2, 4-6, 8-10, 12-14, 16-18, 20-22
`},
		{"gemma4", `local_attention_window: 512
local_cache_length: 640
final_logit_softcap: 30.0
per_layer_inputs: 8960
kv_shared_layers: {15: 13, 16: 14, 17: 13, 18: 13, 19: 14}
layer_types: [sliding, sliding, full, sliding, full]
states:
  - {name: model_model_kv_cache_local, shape: [12, 2, 512, 256], dtype: float16, layers: [0]}`, `layers: 5: 2 full, 3 sliding; in order 2 sliding, 1 full, 1 sliding, 1 full
local window: 512 positions
local cache: 640 positions, shifted by blocks: no going back without a snapshot
layer inputs: 8960 values for each token, 1792 for each layer
shared keys: 5 layers read keys and values of others: 15, 17, 18 those of 13; 16, 19 those of 14
logits: bounded by 30
state: model_model_kv_cache_local float16 [12 2 512 256], of layer 0
`},
		{"one kind", "layer_types: [full, full, full]\nprefill_full_batches_only: true", "layers: 3: 3 full; in order all full\ncalls: prefill takes full batches only, none that are filled up\n"},
		{"keys of others", "novelty: 3\n\"\\e[2J\": {a: b}", "other keys: novelty, \x1b[2J\n"}, // the command makes it printable
		{"hostile", "layer_types: [" + strings.Repeat("a,b,", 1000) + "c]\nkv_shared_layers: {4095: 4095}\nper_layer_inputs: 1\nmoe: {}\nstates: [{name: x, shape: [2147483647, 2147483647]}]",
			"layers: 2001: 1000 a, 1000 b, 1 c; in order 1 a, 1 b, 1 a, 1 b, 1 a, 1 b, 1 a, 1 b, 1 a, 1 b, and 1991 more\nexperts: 0, 0 of them for each token\nlayer inputs: 1 values for each token\nshared keys: 1 layers read keys and values of others: 4095 those of 4095\nstate: x  [2147483647 2147483647]\n"},
	} {
		m, err := anemll.ParseMeta([]byte("model_info:\n  parameters:\n    " + strings.ReplaceAll(c.params, "\n", "\n    ") + "\n"))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		x := extension(m)
		if x == nil {
			x = &Extension{}
		}
		if got := join(x.Rows()); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
}

func TestRanges(t *testing.T) {
	many := make([]int, 100)
	for i := range many {
		many[i] = 2 * i
	}
	for _, c := range []struct {
		in   []int
		want string
	}{
		{nil, ""},
		{[]int{5}, "5"},
		{[]int{5, 6}, "5, 6"},
		{[]int{5, 6, 7}, "5-7"},
		{[]int{0, 2, 3, 4, 5, 9, 8}, "0, 2-5, 9, 8"},
		{[]int{math.MaxInt, math.MinInt}, fmt.Sprintf("%d, %d", math.MaxInt, math.MinInt)},
		{many, "0, 2, 4, 6, 8, 10, 12, 14, 16, 18, and 90 more"},
	} {
		if got := ranges(c.in); got != c.want {
			t.Errorf("%v: %q, want %q", c.in, got, c.want)
		}
	}
}

// TestExtended inspects a package with every function and key that Qwen3.5 has,
// whole and with a meta.yaml that is wrong.
func TestExtended(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	o := anemll.Options{Context: 256, Batch: 32, Chunks: 2, Remainders: []int{8, 2}, Format: anemll.MLPackage}
	if _, err := anemll.Convert(t.Context(), arch.Registry{qwen35.Architecture}, testutil.Data(t, "checkpoints", "tiny-qwen35-moe-fused"), dir, o); err != nil {
		t.Fatal(err)
	}
	r, err := Open(t.Context(), dir, registry, Options{Lint: &lint.Options{}, Weights: true})
	if err != nil {
		t.Fatal(err)
	}
	p := r.Package
	if len(p.Problems) != 0 || !slices.Equal(p.Remainders, []int{8, 2}) || p.Extension == nil || p.Extension.MoE.Experts != 8 {
		t.Errorf("%+v", p)
	}
	// The functions for what does not fill a batch change no finding but that of
	// their memory.
	if r.Lint.Errors != 0 || r.Lint.Warnings != 0 {
		t.Errorf("lint: %+v", r.Lint.Findings)
	}
	var names []string
	for _, f := range p.Parts[1].Functions {
		names = append(names, f.Name)
		if f.WeightBytes*10 < 9*p.Parts[1].WeightBytes {
			t.Errorf("%s uses %d of %d bytes: all functions share the weights", f.Name, f.WeightBytes, p.Parts[1].WeightBytes)
		}
	}
	if want := []string{"infer", "prefill", "prefill_8", "prefill_2"}; !slices.Equal(names, want) {
		t.Errorf("functions %v, want %v", names, want)
	}
	// Matrices are used by all of them and stored once; what only one uses are
	// the small masks of the delta rule.
	for _, x := range p.Parts[1].Tensors {
		if len(x.Functions) != 4 && !strings.Contains(x.Name, "delta_") {
			t.Errorf("%s is used by %v only", x.Name, x.Functions)
		}
	}

	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Package struct {
			Remainders []int `json:"prefill_remainders"`
			Extension  struct {
				Recurrent bool `json:"recurrent_state"`
				Full      bool `json:"prefill_full_batches_only"`
				Chunk     int  `json:"gdn_chunk_size"`
				MoE       struct {
					Experts    int
					PerToken   int `json:"experts_per_token"`
					Evaluation string
				}
				Types  []string `json:"layer_types"`
				States []struct {
					Name   string
					Shape  []int
					DType  string
					Layers []int
				}
			}
		}
	}
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(v.Package); got != "{[8 2] {true true 32 {8 2 dense} [linear linear linear full] [{model_model_kv_cache_0 [2 2 256 64] float16 [3]} {model_model_gdn_state_0 [12 32 32] float16 [0 1 2]} {model_model_conv_state_0 [3 3 256] float16 [0 1 2]}]}}" {
		t.Errorf("JSON says %s", got)
	}

	path := filepath.Join(dir, anemll.MetaFile)
	meta, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{"gdn_chunk_size: 32": "gdn_chunk_size: 5", "layers: [3]": "layers: [2]"} {
		meta = []byte(strings.Replace(string(meta), from, to, 1))
	}
	if err := os.WriteFile(path, meta, 0o666); err != nil {
		t.Fatal(err)
	}
	if r, err = Open(t.Context(), dir, registry, Options{}); err != nil {
		t.Fatal(err)
	}
	if got := r.Package.Problems; len(got) != 2 || !strings.Contains(got[0], "layer 2 owns a slice of the state model_model_kv_cache_0") || !strings.Contains(got[1], "gdn_chunk_size: 5, which does not divide the 32 tokens") {
		t.Errorf("problems %q", got)
	}
}
