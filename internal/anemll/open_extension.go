package anemll

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"anemone/coreml"
	"anemone/internal/arch"
	"anemone/mil"
)

// PerLayerInputs is the second output of the embeddings of some models, fp16
// [1, T, width], which every chunk takes.
const PerLayerInputs = "per_layer_inputs"

// contractStates is the layout of the contract's states: the kind of the layers
// that own slices of them, and how many slices a layer has on the first axis; 0
// for a number that only the model knows.
var contractStates = map[string]struct {
	kind   string
	slices int
}{
	arch.StateKV: {"full", 2}, arch.StateGDN: {"linear", 0}, arch.StateConv: {"linear", 1}, arch.StateLocal: {"sliding", 1}, arch.StateGlobal: {"full", 1},
}

// layerKinds are the values of layer_types.
var layerKinds = []string{"linear", "full", "sliding"}

// metaTypes are the values of a state's dtype.
var metaTypes = map[string]mil.DType{"float16": mil.Float16, "fp16": mil.Float16, "float32": mil.Float32, "fp32": mil.Float32}

// compareExtension notes where the extension keys of meta.yaml disagree with the
// models or with each other.
func (p *Package) compareExtension() {
	p.compareStates()
	p.compareLayers()
	p.compareRules()
	p.compareWindow()
	p.compareShared()
	p.compareInputs()
	p.compareExperts()
	p.compareSoftcap()
}

// state returns the models' state of a name, nil if they have none.
func (p *Package) state(name string) *coreml.Feature { return feature(p.States, name) }

// compareStates holds the list of states to the models.
func (p *Package) compareStates() {
	m := p.Meta
	listed := map[string]bool{}
	for _, s := range m.States {
		f := p.state(s.Name)
		switch {
		case listed[s.Name]:
			p.problem("meta.yaml lists the state %s twice", s.Name)
			continue
		case f == nil:
			p.problem("meta.yaml lists the state %s, which no chunk declares", s.Name)
		case !slices.Equal(f.Shape, s.Shape):
			p.problem("meta.yaml says that the state %s is %v, the models say %v", s.Name, s.Shape, f.Shape)
		case s.DType != "" && metaTypes[s.DType] != f.DType:
			p.problem("meta.yaml says that the state %s is %.40q, the models say %v", s.Name, s.DType, f.DType)
		}
		listed[s.Name] = true
	}
	if !m.Given("states") {
		return
	}
	for _, f := range p.States {
		if !listed[f.Name] {
			p.problem("meta.yaml does not list the state %s %v, which the models declare", f.Name, f.Shape)
			listed[f.Name] = true // chunks may each have their own
		}
	}
}

// layers returns the number of layers that the models' metadata give, 0 if they
// do not say: those of the chunks, one range behind the other.
func (p *Package) layers() int {
	next := 0
	for _, c := range p.Chunks {
		a, b, ok := strings.Cut(c.Model.Metadata.User["com.anemll.layers"], "-")
		first, err1 := strconv.Atoi(a)
		last, err2 := strconv.Atoi(b)
		if !ok || err1 != nil || err2 != nil || first != next || last < first || last >= maxLayers {
			return 0
		}
		next = last + 1
	}
	return next
}

// compareLayers holds layer_types to the number of layers, and the layers of
// each state to their kinds and to the state's slices.
func (p *Package) compareLayers() {
	m, n := p.Meta, p.layers()
	if n > 0 && m.Given("num_layers") && m.NumLayers != n {
		p.problem("meta.yaml says num_layers: %d, the models' com.anemll.layers say %d", m.NumLayers, n)
	}
	if n == 0 {
		n = m.NumLayers
	}
	kinds := m.LayerTypes
	if m.Given("layer_types") && n > 0 && len(kinds) != n {
		p.problem("meta.yaml says layer_types for %d layers, there are %d", len(kinds), n)
		kinds = nil
	}
	for i, k := range kinds {
		if !slices.Contains(layerKinds, k) {
			p.problem("meta.yaml says layer_types[%d]: %.40q, wanted one of %s", i, k, strings.Join(layerKinds, ", "))
			kinds = nil
			break
		}
	}
	if len(kinds) > 0 {
		n = len(kinds)
	}
	for _, s := range m.States {
		if len(s.Layers) == 0 {
			continue
		}
		rule, known := contractStates[s.Name]
		p.compareOwners(s, n, kinds, rule.kind)
		f := p.state(s.Name)
		if f == nil || len(f.Shape) == 0 {
			continue
		}
		is, want := f.Shape[0], rule.slices*len(s.Layers)
		switch {
		case known && want > 0 && is != want:
			p.problem("meta.yaml says that %d layers own the state %s, for which it would be %d long; the models say %v", len(s.Layers), s.Name, want, f.Shape)
		case is%len(s.Layers) != 0:
			p.problem("meta.yaml says that %d layers own the state %s, among which the models' %v does not divide", len(s.Layers), s.Name, f.Shape)
		}
	}
	// Without a list of states, their slices still count the layers of a kind.
	if m.Given("states") || len(kinds) == 0 {
		return
	}
	count := map[string]int{}
	for _, k := range kinds {
		count[k]++
	}
	for _, f := range p.States {
		rule, known := contractStates[f.Name]
		if c := count[rule.kind]; known && len(f.Shape) > 0 && len(m.KVSharedLayers) == 0 && (c == 0 || f.Shape[0]%c != 0 || rule.slices > 0 && f.Shape[0] != rule.slices*c) {
			p.problem("meta.yaml says layer_types with %d %s layers, which the models' state %s %v does not fit", c, rule.kind, f.Name, f.Shape)
		}
	}
}

// compareOwners checks the layers that own slices of a state: in order, each
// once, in the model, and of the state's kind. One complaint is enough.
func (p *Package) compareOwners(s StateInfo, layers int, kinds []string, kind string) {
	for i, l := range s.Layers {
		switch {
		case i > 0 && l <= s.Layers[i-1]:
			p.problem("meta.yaml says that layer %d owns a slice of the state %s behind layer %d: wanted each once, in order", l, s.Name, s.Layers[i-1])
			return
		case l < 0 || layers > 0 && l >= layers:
			p.problem("meta.yaml says that layer %d owns a slice of the state %s, but there are %d layers", l, s.Name, layers)
			return
		case kind != "" && l < len(kinds) && kinds[l] != kind:
			p.problem("meta.yaml says that layer %d owns a slice of the state %s of %s layers, and in layer_types that it is %s", l, s.Name, kind, kinds[l])
			return
		}
	}
	if kind == "" || len(kinds) == 0 {
		return
	}
	for l, k := range kinds {
		if _, shared := p.Meta.KVSharedLayers[l]; k == kind && !shared && !slices.Contains(s.Layers, l) {
			p.problem("meta.yaml says in layer_types that layer %d is %s, but not that it owns a slice of the state %s", l, kind, s.Name)
			return
		}
	}
}

// compareRules holds the rules of calling to what the models keep.
func (p *Package) compareRules() {
	m := p.Meta
	recurrent := ""
	for _, name := range []string{arch.StateGDN, arch.StateConv} {
		if p.state(name) != nil {
			recurrent = name
		}
	}
	switch {
	case recurrent != "" && !m.RecurrentState:
		p.problem("the models have the state %s, which cannot be rewound, but meta.yaml does not say recurrent_state", recurrent)
	case m.RecurrentState && len(p.States) > 0 && !slices.ContainsFunc(p.States, func(f coreml.Feature) bool { return !isCache(f) }):
		p.problem("meta.yaml says recurrent_state, but all states of the models are caches of keys and values")
	}
	if m.RecurrentState && !m.PrefillFullBatchesOnly && p.PrefillFunction != "" {
		p.problem("meta.yaml says recurrent_state, but not prefill_full_batches_only: runtimes that fill the last batch up would feed what they fill it with to the states")
	}
	if n := m.GDNChunkSize; n > 0 {
		switch {
		case p.BatchSize > 0 && p.BatchSize%n != 0:
			p.problem("meta.yaml says gdn_chunk_size: %d, which does not divide the %d tokens that the models' prefill takes", n, p.BatchSize)
		case p.state(arch.StateGDN) == nil:
			p.problem("meta.yaml says gdn_chunk_size: %d, but the models have no state %s", n, arch.StateGDN)
		}
	}
}

// compareWindow holds what is said of local caches to their states.
func (p *Package) compareWindow() {
	m := p.Meta
	f := p.state(arch.StateLocal)
	if n := m.LocalCacheLength; n > 0 {
		switch {
		case f == nil || len(f.Shape) != 4:
			p.problem("meta.yaml says local_cache_length: %d, but the models have no state %s", n, arch.StateLocal)
		case f.Shape[2] != n:
			p.problem("meta.yaml says local_cache_length: %d, the models' state %s is %v", n, arch.StateLocal, f.Shape)
		case m.LocalAttentionWindow > 0 && n < m.LocalAttentionWindow+p.BatchSize:
			p.problem("meta.yaml says local_cache_length: %d, which is too short for local_attention_window: %d and the batches of %d tokens that the models' prefill takes", n, m.LocalAttentionWindow, p.BatchSize)
		}
	}
	if n := m.LocalAttentionWindow; n > 0 && len(m.LayerTypes) > 0 && !slices.Contains(m.LayerTypes, "sliding") {
		p.problem("meta.yaml says local_attention_window: %d, but none of layer_types is sliding", n)
	}
}

// compareShared checks that every layer without keys and values of its own
// reads those of an earlier layer of its kind that has some.
func (p *Package) compareShared() {
	m := p.Meta
	layers := max(p.layers(), len(m.LayerTypes), m.NumLayers)
	owners := map[int]string{}
	for _, s := range m.States {
		for _, l := range s.Layers {
			owners[l] = s.Name
		}
	}
	for _, l := range slices.Sorted(maps.Keys(m.KVSharedLayers)) {
		from := m.KVSharedLayers[l]
		says := fmt.Sprintf("meta.yaml says in kv_shared_layers that layer %d reads the keys and values of layer %d", l, from)
		_, chained := m.KVSharedLayers[from]
		switch {
		case l < 0 || layers > 0 && l >= layers:
			p.problem("%s, but there are %d layers", says, layers)
		case from < 0 || from >= l:
			p.problem("%s, which is not an earlier one", says)
		case chained:
			p.problem("%s, which has none of its own either", says)
		case l < len(m.LayerTypes) && m.LayerTypes[l] != m.LayerTypes[from]:
			p.problem("%s, and in layer_types that they are %.40s and %.40s", says, m.LayerTypes[l], m.LayerTypes[from])
		case len(owners) > 0 && owners[from] == "":
			p.problem("%s, but in states that this one owns no slice of any", says)
		case owners[l] != "":
			p.problem("%s, and in states that it owns a slice of %s", says, owners[l])
		default:
			continue
		}
		return // of a wrong list, many entries are wrong
	}
}

// compareInputs holds per_layer_inputs to the models that give it and take it.
func (p *Package) compareInputs() {
	m := p.Meta
	n := m.PerLayerInputs
	last := func(shape []int) int {
		if len(shape) == 0 {
			return 0
		}
		return shape[len(shape)-1]
	}
	var out *coreml.Feature
	given := 0 // by the embeddings; 0 if they do not say
	if p.Embeddings != nil {
		out = feature(p.Embeddings.Model.Function(p.EmbeddingsFunction).Outputs, PerLayerInputs)
	}
	if out != nil {
		given = last(out.Shape)
		// An output whose length is the input's has its width in the program only.
		if prog := p.Embeddings.Model.Program; given == 0 && prog != nil {
			if f := prog.Function(p.EmbeddingsFunction); f != nil && f.Body != nil {
				for _, v := range f.Body.Outputs {
					if v.Name == PerLayerInputs {
						given = max(last(v.Type.Shape), 0)
					}
				}
			}
		}
	}
	if n == 0 {
		if out != nil && m.Given("states") { // one of the contract's, not of somebody's own
			p.problem("meta.yaml does not say %s, which %s gives", PerLayerInputs, p.Embeddings.Name)
		}
		return
	}
	if p.Embeddings != nil && out == nil {
		p.problem("meta.yaml says %s: %d, but %s does not give it", PerLayerInputs, n, p.Embeddings.Name)
	} else if given > 0 && given != n {
		p.problem("meta.yaml says %s: %d, %s gives %d", PerLayerInputs, n, p.Embeddings.Name, given)
	}
	for i, c := range p.Chunks {
		_, f := p.Decoder(i, p.InferFunction)
		w := 0
		if in := feature(f.Inputs, PerLayerInputs); in != nil {
			w = last(in.Shape)
		}
		if w != n {
			p.problem("meta.yaml says %s: %d, %s takes %d", PerLayerInputs, n, c.Name, w)
			break
		}
	}
	if layers := max(p.layers(), len(m.LayerTypes)); layers > 0 && n%layers != 0 {
		p.problem("meta.yaml says %s: %d, which %d layers do not divide among them", PerLayerInputs, n, layers)
	}
}

// body returns the operations of a function of a part; none if they are not
// known.
func body(part *Part, function string) []*mil.Operation {
	if part == nil || part.Model.Program == nil {
		return nil
	}
	if f := part.Model.Program.Function(function); f != nil && f.Body != nil {
		return f.Body.Ops
	}
	return nil
}

// compareExperts looks for the router's softmax, whatever its layout.
func (p *Package) compareExperts() {
	e := p.Meta.MoE
	if e == nil || e.Experts == 0 {
		return
	}
	if e.ExpertsPerToken > e.Experts {
		p.problem("meta.yaml says moe.experts_per_token: %d of moe.experts: %d", e.ExpertsPerToken, e.Experts)
	}
	over := map[int]bool{} // lengths of the axes that a softmax goes over
	for i := range p.Chunks {
		part, _ := p.Decoder(i, p.InferFunction)
		for _, op := range body(part, p.InferFunction) {
			x := op.Value("x")
			if op.Type != "softmax" || x == nil {
				continue
			}
			axis := []int{-1}
			if a, ok := mil.ConstInts(op.Value("axis")); ok && len(a) == 1 {
				axis = a
			}
			k := axis[0]
			if k < 0 {
				k += x.Type.Rank()
			}
			if k >= 0 && k < x.Type.Rank() {
				over[x.Type.Shape[k]] = true
			}
		}
	}
	if over[e.Experts] {
		return
	}
	// Those of attention go over caches.
	delete(over, p.MaskWidth)
	delete(over, p.Meta.LocalCacheLength)
	if len(over) > 0 {
		p.problem("meta.yaml says moe.experts: %d, but the routers of the models choose among %v", e.Experts, shorten(slices.Sorted(maps.Keys(over))))
	}
}

// compareSoftcap looks for the bound of the logits in the head: a tanh, and the
// product with a constant behind it.
func (p *Package) compareSoftcap() {
	limit := p.Meta.FinalLogitSoftcap
	part := p.HeadPart()
	function := p.HeadFunction
	if p.Head == nil {
		return // a monolithic model has tanh elsewhere, too
	}
	ops := body(part, function)
	if ops == nil {
		return
	}
	bounded, factor := false, 0.0
	for _, op := range ops {
		bounded = bounded || op.Type == "tanh"
		if op.Type != "mul" {
			continue
		}
		for _, names := range [][2]string{{"x", "y"}, {"y", "x"}} {
			v, c := op.Value(names[0]), op.Value(names[1])
			if v != nil && v.Op != nil && v.Op.Type == "tanh" && c != nil && c.Literal != nil && len(c.Literal.Floats) == 1 {
				factor = float64(c.Literal.Floats[0])
			}
		}
	}
	switch {
	case limit != 0 && !bounded:
		p.problem("meta.yaml says final_logit_softcap: %v, but %s does not bound the logits (no tanh)", limit, part.Name)
	case limit != 0 && factor != 0 && math.Abs(factor-limit) > limit/1000: // fp16 rounds
		p.problem("meta.yaml says final_logit_softcap: %v, %s bounds the logits by %v", limit, part.Name, factor)
	case limit == 0 && factor != 0 && p.Meta.Given("states"):
		p.problem("meta.yaml does not say final_logit_softcap, but %s bounds the logits by %v", part.Name, factor)
	}
}
