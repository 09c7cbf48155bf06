package anemll

import (
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"anemone/coreml"
	"anemone/internal/arch"
	"anemone/internal/arch/gemma4"
	"anemone/internal/arch/qwen35"
	"anemone/internal/testutil"
)

// extended converts a checkpoint whose packages have extension keys, in two
// chunks.
func extended(t testing.TB, checkpoint string) *Package {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "out")
	r := arch.Registry{qwen35.Architecture, gemma4.Architecture}
	o := Options{Context: 256, Batch: 16, Chunks: 2, SplitHead: 2, Format: MLPackage, Name: "test"}
	if _, err := Convert(t.Context(), r, testutil.Data(t, "checkpoints", checkpoint), dir, o); err != nil {
		t.Fatal(err)
	}
	p, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// again assembles the models of a package with another meta.yaml.
func again(p *Package, meta *Meta) (*Package, error) {
	var chunks []*coreml.Model
	for _, c := range p.Chunks {
		chunks = append(chunks, c.Model)
	}
	return Assemble(meta, p.Embeddings.Model, chunks, p.Head.Model)
}

// TestExtensionKeys changes single keys of meta.yaml: what then disagrees with
// the models, or with another key, is said, and nothing else.
func TestExtensionKeys(t *testing.T) {
	for _, c := range []struct {
		checkpoint string
		cases      []struct{ old, new, problem string } // "" for no problem
	}{
		// layer_types [linear, linear, linear, full], states of layers [3], [0, 1, 2] and [0, 1, 2].
		{"tiny-qwen35-moe-fused", []struct{ old, new, problem string }{
			{"", "", ""},
			{"recurrent_state: true", "", "the models have the state model_model_conv_state_0, which cannot be rewound, but meta.yaml does not say recurrent_state"},
			{"recurrent_state: true", "recurrent_state: false", "the models have the state model_model_conv_state_0, which cannot be rewound, but meta.yaml does not say recurrent_state"},
			{"prefill_full_batches_only: true", "", "meta.yaml says recurrent_state, but not prefill_full_batches_only: runtimes that fill the last batch up would feed what they fill it with to the states"},
			{"gdn_chunk_size: 16", "gdn_chunk_size: 8", ""},
			{"gdn_chunk_size: 16", "gdn_chunk_size: 12", "meta.yaml says gdn_chunk_size: 12, which does not divide the 16 tokens that the models' prefill takes"},
			{"gdn_chunk_size: 16", "gdn_chunk_size: 4096", "meta.yaml says gdn_chunk_size: 4096, which does not divide the 16 tokens that the models' prefill takes"},
			{"experts: 8,", "experts: 9,", "meta.yaml says moe.experts: 9, but the routers of the models choose among [8]"},
			{"experts_per_token: 2", "experts_per_token: 9", "meta.yaml says moe.experts_per_token: 9 of moe.experts: 8"},
			{"moe: {experts: 8, experts_per_token: 2, evaluation: dense}", "", ""},
			{"num_layers: 4", "num_layers: 5", "meta.yaml says num_layers: 5, the models' com.anemll.layers say 4"},
			{"linear, full]", "full]", "meta.yaml says layer_types for 3 layers, there are 4"},
			{"linear, full]", "linear, full, full]", "meta.yaml says layer_types for 5 layers, there are 4"},
			{"linear, full]", "lunar, full]", `meta.yaml says layer_types[2]: "lunar", wanted one of linear, full, sliding`},
			{"[linear, linear, linear, full]", "[]", "meta.yaml says layer_types for 0 layers, there are 4"},
			{"linear, full]", "full, linear]", "meta.yaml says that layer 3 owns a slice of the state model_model_kv_cache_0 of full layers, and in layer_types that it is linear|" +
				"meta.yaml says that layer 2 owns a slice of the state model_model_gdn_state_0 of linear layers, and in layer_types that it is full|" +
				"meta.yaml says that layer 2 owns a slice of the state model_model_conv_state_0 of linear layers, and in layer_types that it is full"},
			{"layers: [3]", "layers: [4]", "meta.yaml says that layer 4 owns a slice of the state model_model_kv_cache_0, but there are 4 layers"},
			{"layers: [3]", "layers: [4095]", "meta.yaml says that layer 4095 owns a slice of the state model_model_kv_cache_0, but there are 4 layers"},
			{"layers: [3]", "layers: [2]", "meta.yaml says that layer 2 owns a slice of the state model_model_kv_cache_0 of full layers, and in layer_types that it is linear"},
			{"layers: [3]", "layers: [3, 3]", "meta.yaml says that layer 3 owns a slice of the state model_model_kv_cache_0 behind layer 3: wanted each once, in order|" +
				"meta.yaml says that 2 layers own the state model_model_kv_cache_0, for which it would be 4 long; the models say [2 2 256 64]"},
			{"layers: [3]", "", ""},
			{"shape: [3, 3, 256]\n        dtype: float16\n        layers: [0, 1, 2]", "shape: [3, 3, 256]\n        layers: [0, 1]",
				"meta.yaml says in layer_types that layer 2 is linear, but not that it owns a slice of the state model_model_conv_state_0|" +
					"meta.yaml says that 2 layers own the state model_model_conv_state_0, for which it would be 2 long; the models say [3 3 256]"},
			{"shape: [2, 2, 256, 64]", "shape: [2, 2, 512, 64]", "meta.yaml says that the state model_model_kv_cache_0 is [2 2 512 64], the models say [2 2 256 64]"},
			{"shape: [2, 2, 256, 64]", "shape: [2147483647, 2147483647, 2147483647, 2147483647]", "meta.yaml says that the state model_model_kv_cache_0 is [2147483647 2147483647 2147483647 2147483647], the models say [2 2 256 64]"},
			{"dtype: float16\n        layers: [3]", "dtype: float32\n        layers: [3]", `meta.yaml says that the state model_model_kv_cache_0 is "float32", the models say fp16`},
			{"dtype: float16\n        layers: [3]", "dtype: " + strings.Repeat("x", 500) + "\n        layers: [3]", `meta.yaml says that the state model_model_kv_cache_0 is "` + strings.Repeat("x", 40) + `", the models say fp16`},
			{"name: model_model_conv_state_0", "name: model_model_cow_state_0", "meta.yaml lists the state model_model_cow_state_0, which no chunk declares|" +
				"meta.yaml does not list the state model_model_conv_state_0 [3 3 256], which the models declare"},
			{"name: model_model_conv_state_0", "name: model_model_gdn_state_0", "meta.yaml lists the state model_model_gdn_state_0 twice|" +
				"meta.yaml does not list the state model_model_conv_state_0 [3 3 256], which the models declare"},
			{"recurrent_state: true", "recurrent_state: true\n    per_layer_inputs: 64", "meta.yaml says per_layer_inputs: 64, but test_embeddings does not give it|meta.yaml says per_layer_inputs: 64, test_FFN_PF_chunk_01of02 takes 0"},
			{"recurrent_state: true", "recurrent_state: true\n    final_logit_softcap: 30", "meta.yaml says final_logit_softcap: 30, but test_lm_head does not bound the logits (no tanh)"},
			{"recurrent_state: true", "recurrent_state: true\n    local_attention_window: 64", "meta.yaml says local_attention_window: 64, but none of layer_types is sliding"},
			{"recurrent_state: true", "recurrent_state: true\n    local_cache_length: 64", "meta.yaml says local_cache_length: 64, but the models have no state model_model_kv_cache_local"},
			{"recurrent_state: true", "recurrent_state: true\n    kv_shared_layers: {3: 0}", "meta.yaml says in kv_shared_layers that layer 3 reads the keys and values of layer 0, and in layer_types that they are full and linear"},
		}},
		// Layers sliding, sliding, full and so on, 9; [0, 1, 3, 4] and [2, 5] own keys and values.
		{"tiny-gemma4", []struct{ old, new, problem string }{
			{"", "", ""},
			{"local_attention_window: 32", "", ""},
			{"local_attention_window: 32", "local_attention_window: 49", "meta.yaml says local_cache_length: 64, which is too short for local_attention_window: 49 and the batches of 16 tokens that the models' prefill takes"},
			{"local_cache_length: 64", "local_cache_length: 63", "meta.yaml says local_cache_length: 63, the models' state model_model_kv_cache_local is [4 2 64 32]"},
			{"final_logit_softcap: 30.0", "final_logit_softcap: 20.0", "meta.yaml says final_logit_softcap: 20, test_lm_head bounds the logits by 30"},
			{"final_logit_softcap: 30.0", "", "meta.yaml does not say final_logit_softcap, but test_lm_head bounds the logits by 30"},
			{"per_layer_inputs: 288", "per_layer_inputs: 289", "meta.yaml says per_layer_inputs: 289, test_embeddings gives 288|meta.yaml says per_layer_inputs: 289, test_FFN_PF_chunk_01of02 takes 288|meta.yaml says per_layer_inputs: 289, which 9 layers do not divide among them"},
			{"per_layer_inputs: 288", "", "meta.yaml does not say per_layer_inputs, which test_embeddings gives"},
			{"7: 4", "7: 7", "meta.yaml says in kv_shared_layers that layer 7 reads the keys and values of layer 7, which is not an earlier one"},
			{"7: 4", "7: 8", "meta.yaml says in kv_shared_layers that layer 7 reads the keys and values of layer 8, which is not an earlier one"},
			{"7: 4", "7: 6", "meta.yaml says in kv_shared_layers that layer 7 reads the keys and values of layer 6, which has none of its own either"},
			{"7: 4", "7: 5", "meta.yaml says in kv_shared_layers that layer 7 reads the keys and values of layer 5, and in layer_types that they are sliding and full"},
			{"7: 4", "7: 4, 9: 4", "meta.yaml says in kv_shared_layers that layer 9 reads the keys and values of layer 4, but there are 9 layers"},
			{"7: 4", "7: 4, 4095: 0", "meta.yaml says in kv_shared_layers that layer 4095 reads the keys and values of layer 0, but there are 9 layers"},
			{"7: 4, ", "", "meta.yaml says in layer_types that layer 7 is sliding, but not that it owns a slice of the state model_model_kv_cache_local"},
			{"layers: [0, 1, 3, 4]", "layers: [0, 1, 2, 4]", "meta.yaml says that layer 2 owns a slice of the state model_model_kv_cache_local of sliding layers, and in layer_types that it is full"},
			{"layers: [0, 1, 3, 4]", "layers: [0, 1, 3, 6]", "meta.yaml says in layer_types that layer 4 is sliding, but not that it owns a slice of the state model_model_kv_cache_local|" +
				"meta.yaml says in kv_shared_layers that layer 6 reads the keys and values of layer 4, but in states that this one owns no slice of any"},
			{"layers: [0, 1, 3, 4]", "layers: [0, 1, 3, 4, 6]", "meta.yaml says that 5 layers own the state model_model_kv_cache_local, for which it would be 5 long; the models say [4 2 64 32]|" +
				"meta.yaml says in kv_shared_layers that layer 6 reads the keys and values of layer 4, and in states that it owns a slice of model_model_kv_cache_local"},
			{"final_logit_softcap", "recurrent_state: true\n    prefill_full_batches_only: true\n    final_logit_softcap", "meta.yaml says recurrent_state, but all states of the models are caches of keys and values"},
			{"final_logit_softcap", "gdn_chunk_size: 16\n    final_logit_softcap", "meta.yaml says gdn_chunk_size: 16, but the models have no state model_model_gdn_state_0"},
		}},
	} {
		p := extended(t, c.checkpoint)
		text := strings.ReplaceAll(string(p.Meta.Encode()), "model_prefix: "+p.Meta.ModelPrefix, "model_prefix: test")
		for _, x := range c.cases {
			t.Run(c.checkpoint+"/"+x.new, func(t *testing.T) {
				if x.old != "" && strings.Count(text, x.old) != 1 {
					t.Fatalf("%q is %d times in\n%s", x.old, strings.Count(text, x.old), text)
				}
				m, err := ParseMeta([]byte(strings.Replace(text, x.old, x.new, 1)))
				if err != nil {
					t.Fatal(err)
				}
				q, err := again(p, m)
				if err != nil {
					t.Fatal(err)
				}
				var want []string
				if x.problem != "" {
					want = strings.Split(x.problem, "|")
				}
				if d := cmp.Diff(want, q.Problems); d != "" {
					t.Errorf("(-want +got)\n%s", d)
				}
			})
		}
		// Without the list of states, their slices still count.
		m, err := ParseMeta([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		m.States, m.given = nil, map[string]bool{"layer_types": true}
		q, err := again(p, m)
		if err != nil || len(q.Problems) > 0 {
			t.Errorf("%s without states: %q, %v", c.checkpoint, q.Problems, err)
		}
		m.LayerTypes = slices.Clone(m.LayerTypes)
		slices.Reverse(m.LayerTypes)
		m.LayerTypes[0] = m.LayerTypes[1]
		m.KVSharedLayers = nil
		if q, err = again(p, m); err != nil || len(q.Problems) == 0 || !strings.Contains(strings.Join(q.Problems, ""), "does not fit") {
			t.Errorf("%s without states and with other layers: %q, %v", c.checkpoint, q.Problems, err)
		}
	}
}

// TestExtensionHostile: whatever the extension keys say, a package opens with a
// bounded number of problems of bounded length, or does not open.
func TestExtensionHostile(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, checkpoint := range []string{"tiny-qwen35-moe-fused", "tiny-gemma4"} {
		p := extended(t, checkpoint)
		numbers := []int{-1 << 31, -1, 0, 1, 2, 3, 4, 15, 16, 64, 255, 256, 4095, 4096, 1<<31 - 1}
		number := func() int { return numbers[r.IntN(len(numbers))] }
		list := func() []int {
			l := make([]int, r.IntN(6))
			for i := range l {
				l[i] = number()
			}
			return l
		}
		opened := 0
		for range 2000 {
			m := *p.Meta
			m.given = map[string]bool{}
			for _, k := range []string{"states", "layer_types", "num_layers", "per_layer_inputs"} {
				m.given[k] = r.IntN(2) == 0
			}
			m.LayerTypes, m.States, m.KVSharedLayers = slices.Clone(m.LayerTypes), slices.Clone(m.States), map[int]int{}
			for range 1 + r.IntN(4) {
				switch r.IntN(12) {
				case 0:
					m.NumLayers = number()
				case 1:
					m.GDNChunkSize = number()
				case 2:
					m.MoE = &MoE{Experts: number(), ExpertsPerToken: number(), Evaluation: strings.Repeat("\x00", r.IntN(100))}
				case 3:
					m.LocalAttentionWindow, m.LocalCacheLength = number(), number()
				case 4:
					m.PerLayerInputs = number()
				case 5:
					m.FinalLogitSoftcap = float64(number())
				case 6:
					for range 3 {
						m.KVSharedLayers[number()] = number()
					}
				case 7:
					m.LayerTypes = append(m.LayerTypes[:r.IntN(len(m.LayerTypes)+1)], strings.Repeat("\x1b", r.IntN(1000)))
				case 8:
					if len(m.States) > 0 {
						m.States[r.IntN(len(m.States))].Layers = list()
					}
				case 9:
					if len(m.States) > 0 {
						m.States[r.IntN(len(m.States))].Shape = list()
					}
				case 10:
					m.States = append(m.States, StateInfo{Name: arch.StateConv, Shape: list(), Layers: list()})
				default:
					m.RecurrentState, m.PrefillFullBatchesOnly = !m.RecurrentState, r.IntN(2) == 0
				}
			}
			q, err := again(p, &m)
			if err != nil {
				continue
			}
			opened++
			if len(q.Problems) > 40 || len(strings.Join(q.Problems, "")) > 20000 {
				t.Errorf("%d problems: %.2000q", len(q.Problems), q.Problems)
			}
		}
		if opened < 500 {
			t.Errorf("%s: %d opened", checkpoint, opened)
		}
	}
}
