package inspect

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"anemone/internal/anemll"
)

// Extension is what meta.yaml says about an architecture beyond a plain
// transformer, under the contract's keys. What is not said is left out.
type Extension struct {
	RecurrentState         bool        `json:"recurrent_state,omitempty"`
	PrefillFullBatchesOnly bool        `json:"prefill_full_batches_only,omitempty"`
	GDNChunkSize           int         `json:"gdn_chunk_size,omitempty"`
	MoE                    *MoE        `json:"moe,omitempty"`
	LocalAttentionWindow   int         `json:"local_attention_window,omitempty"`
	LocalCacheLength       int         `json:"local_cache_length,omitempty"`
	FinalLogitSoftcap      float64     `json:"final_logit_softcap,omitempty"`
	PerLayerInputs         int         `json:"per_layer_inputs,omitempty"`
	KVSharedLayers         map[int]int `json:"kv_shared_layers,omitempty"`
	LayerTypes             []string    `json:"layer_types,omitempty"`
	States                 []State     `json:"states,omitempty"`
	// Unknown are keys of meta.yaml that mean nothing here.
	Unknown []string `json:"unknown_keys,omitempty"`
}

// MoE describes the experts of a mixture model.
type MoE struct {
	Experts         int    `json:"experts"`
	ExpertsPerToken int    `json:"experts_per_token"`
	Evaluation      string `json:"evaluation,omitempty"`
}

// State describes a state and the layers that own slices of it.
type State struct {
	Name   string `json:"name"`
	Shape  []int  `json:"shape"`
	DType  string `json:"dtype,omitempty"`
	Layers []int  `json:"layers,omitempty"`
}

// extension returns the extension keys of a meta.yaml, nil if it has none.
func extension(m *anemll.Meta) *Extension {
	x := &Extension{
		RecurrentState: m.RecurrentState, PrefillFullBatchesOnly: m.PrefillFullBatchesOnly, GDNChunkSize: m.GDNChunkSize,
		LocalAttentionWindow: m.LocalAttentionWindow, LocalCacheLength: m.LocalCacheLength, FinalLogitSoftcap: m.FinalLogitSoftcap,
		PerLayerInputs: m.PerLayerInputs, KVSharedLayers: m.KVSharedLayers, LayerTypes: m.LayerTypes, Unknown: m.Unknown(),
	}
	if e := m.MoE; e != nil {
		x.MoE = &MoE{e.Experts, e.ExpertsPerToken, e.Evaluation}
	}
	for _, s := range m.States {
		x.States = append(x.States, State{s.Name, s.Shape, s.DType, s.Layers})
	}
	if len(x.Rows()) == 0 {
		return nil
	}
	return x
}

// Rows returns the lines of a table that says all of it: what it is about, and
// what there is to say.
func (x *Extension) Rows() [][]string {
	var rows [][]string
	add := func(what, format string, args ...any) {
		rows = append(rows, []string{what, fmt.Sprintf(format, args...)})
	}
	if n := len(x.LayerTypes); n > 0 {
		count := map[string]int{}
		for _, k := range x.LayerTypes {
			count[k]++
		}
		var kinds []string
		for _, k := range slices.Sorted(maps.Keys(count)) {
			kinds = append(kinds, fmt.Sprintf("%d %s", count[k], k))
		}
		add("layers", "%d: %s; in order %s", n, firsts(kinds, ", "), order(x.LayerTypes))
	}
	if x.RecurrentState {
		add("calls", "recurrent state: every token once and in order, no going back without a snapshot")
	}
	if x.PrefillFullBatchesOnly {
		what := "calls"
		if x.RecurrentState {
			what = ""
		}
		add(what, "prefill takes full batches only, none that are filled up")
	}
	if n := x.GDNChunkSize; n > 0 {
		add("delta rule", "%d tokens at a time in prefill", n)
	}
	if e := x.MoE; e != nil {
		how := ""
		if e.Evaluation != "" {
			how = ", evaluation " + e.Evaluation
		}
		add("experts", "%d, %d of them for each token%s", e.Experts, e.ExpertsPerToken, how)
	}
	if n := x.LocalAttentionWindow; n > 0 {
		add("local window", "%d positions", n)
	}
	if n := x.LocalCacheLength; n > 0 {
		add("local cache", "%d positions, shifted by blocks: no going back without a snapshot", n)
	}
	if n := x.PerLayerInputs; n > 0 {
		of := ""
		if l := len(x.LayerTypes); l > 0 && n%l == 0 {
			of = fmt.Sprintf(", %d for each layer", n/l)
		}
		add("layer inputs", "%d values for each token%s", n, of)
	}
	if len(x.KVSharedLayers) > 0 {
		by := map[int][]int{}
		for l, from := range x.KVSharedLayers {
			by[from] = append(by[from], l)
		}
		var parts []string
		for _, from := range slices.Sorted(maps.Keys(by)) {
			slices.Sort(by[from])
			parts = append(parts, fmt.Sprintf("%s those of %d", ranges(by[from]), from))
		}
		add("shared keys", "%d layers read keys and values of others: %s", len(x.KVSharedLayers), firsts(parts, "; "))
	}
	if v := x.FinalLogitSoftcap; v != 0 {
		add("logits", "bounded by %v", v)
	}
	for _, s := range x.States {
		of := ""
		if len(s.Layers) > 0 {
			of = ", of layers " + ranges(s.Layers)
			if len(s.Layers) == 1 {
				of = ", of layer " + ranges(s.Layers)
			}
		}
		add("state", "%s %s %v%s", s.Name, s.DType, s.Shape, of)
	}
	if len(x.Unknown) > 0 {
		add("other keys", "%s", firsts(x.Unknown, ", "))
	}
	return rows
}

// shown is how many things a line names before it only counts them.
const shown = 12

// firsts joins words, and says how many there are of those that are too many.
func firsts(words []string, sep string) string {
	if len(words) > shown {
		return strings.Join(words[:shown-2], sep) + fmt.Sprintf("%sand %d more", sep, len(words)-shown+2)
	}
	return strings.Join(words, sep)
}

// ranges writes numbers in order, runs of three and more as "4-9".
func ranges(v []int) string {
	var parts []string
	for i := 0; i < len(v); {
		j := i
		for j+1 < len(v) && v[j+1] == v[j]+1 {
			j++
		}
		if j-i >= 2 {
			parts = append(parts, fmt.Sprintf("%d-%d", v[i], v[j]))
		} else {
			for k := i; k <= j; k++ {
				parts = append(parts, fmt.Sprint(v[k]))
			}
		}
		i = j + 1
	}
	return firsts(parts, ", ")
}

// order writes the kinds of layers, what repeats itself once: "(3 linear, 1
// full) 6 times".
func order(kinds []string) string {
	n := len(kinds)
	for period := 1; period <= n/2; period++ {
		if n%period == 0 && slices.Equal(kinds[period:], kinds[:n-period]) {
			if period == 1 {
				return "all " + kinds[0]
			}
			return fmt.Sprintf("(%s) %d times", runs(kinds[:period]), n/period)
		}
	}
	return runs(kinds)
}

// runs writes what stands several times in a row once.
func runs(kinds []string) string {
	var parts []string
	for i := 0; i < len(kinds); {
		j := i
		for j < len(kinds) && kinds[j] == kinds[i] {
			j++
		}
		parts = append(parts, fmt.Sprintf("%d %s", j-i, kinds[i]))
		i = j
	}
	return firsts(parts, ", ")
}
