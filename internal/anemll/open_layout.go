package anemll

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"anemone/coreml"
	"anemone/mil"
)

// Names of features that the layout gives a meaning.
const (
	InputIDs     = "input_ids"     // int32 [1, T]: tokens
	HiddenStates = "hidden_states" // fp16 [1, T, hidden size]
	PositionIDs  = "position_ids"  // int32 [T]: p, p+1, ...
	CausalMask   = "causal_mask"   // fp16 [1, 1, T, context]: 0 where column <= row, -inf elsewhere
	CurrentPos   = "current_pos"   // int32 [1]: p
	UpdateMask   = "update_mask"   // of gemma3's static prefill; not supported

	OutputHiddenStates = "output_hidden_states"
)

// maxElements bounds the masks and hidden states that a runtime allocates by
// the shapes in a file.
const maxElements = 1 << 27

// Layout is what the models of a package say: every shape and name that a
// runtime needs.
type Layout struct {
	ContextLength int // positions: the width of causal_mask
	StateLength   int // positions that the KV cache has room for, at least ContextLength
	HiddenSize    int
	// VocabSize is the number of logits: the sum of LogitsWidths.
	VocabSize int
	// Logits names the LM head's outputs in the order of the vocabulary;
	// LogitsWidths are their widths.
	Logits       []string
	LogitsWidths []int

	// EmbeddingsFunction, InferFunction and HeadFunction are the functions to
	// call. InferFunction processes one token.
	EmbeddingsFunction, InferFunction, HeadFunction string
	// PrefillFunction processes BatchSize tokens; both are zero when prompts
	// have to go token by token, and NoPrefill says why.
	PrefillFunction string
	BatchSize       int
	NoPrefill       string
	// LastTokenOutput says that the last chunk's prefill returns the normed
	// hidden state of the batch's last token, from which logits may be taken.
	LastTokenOutput bool

	// States are the states of all chunks, sorted by name.
	States []coreml.Feature
	// StateOwner is the first chunk that declares all of States, so that one
	// state object serves every chunk; -1 if each needs its own.
	StateOwner int
}

// StateBytes returns the memory that the states of one context take.
func (l *Layout) StateBytes() (n int64) {
	for _, s := range l.States {
		if b, ok := mil.TensorOf(s.DType, s.Shape...).ByteSize(); ok {
			n += b
		}
	}
	return n
}

// HiddenOutput returns the output of f that the next part takes as
// hidden_states.
func HiddenOutput(f *coreml.Function) (*coreml.Feature, error) {
	for _, name := range []string{OutputHiddenStates, HiddenStates} {
		for i := range f.Outputs {
			if f.Outputs[i].Name == name {
				return &f.Outputs[i], nil
			}
		}
	}
	if len(f.Outputs) == 1 {
		return &f.Outputs[0], nil
	}
	return nil, fmt.Errorf("function %s has no output %s or %s", f.Name, OutputHiddenStates, HiddenStates)
}

// inspect fills in the layout, checks that the parts fit each other, and
// notes where meta.yaml disagrees.
func (p *Package) inspect() error {
	if p.Meta == nil || p.Embeddings.Model == nil || p.Head.Model == nil || len(p.Chunks) == 0 {
		return errors.New("a part is missing: a package has embeddings, one or more chunks and an LM head")
	}
	if err := p.inspectHead(); err != nil {
		return fmt.Errorf("%s: %w", p.Head.Name, err)
	}
	f, err := onlyFunction(p.Embeddings.Model)
	if err != nil {
		return fmt.Errorf("%s: %w", p.Embeddings.Name, err)
	}
	p.EmbeddingsFunction = f.Name
	if err := p.chooseFunctions(); err != nil {
		return err
	}
	ctx, rows, err := p.follow(p.InferFunction, 1)
	if err != nil {
		return err
	}
	if rows > 1 {
		return fmt.Errorf("function %s of %s gives %d tokens, wanted 1", p.InferFunction, p.Chunks[len(p.Chunks)-1].Name, rows)
	}
	p.ContextLength = ctx
	if err := p.inspectPrefill(); err != nil {
		return err
	}
	if err := p.inspectStates(); err != nil {
		return err
	}
	p.compareMeta()
	return nil
}

// onlyFunction returns the function of an embeddings or head model.
func onlyFunction(m *coreml.Model) (*coreml.Function, error) {
	if len(m.Functions) == 1 {
		return &m.Functions[0], nil
	}
	name := m.DefaultFunction
	if name == "" {
		name = "main"
	}
	if f := m.Function(name); f != nil {
		return f, nil
	}
	return nil, fmt.Errorf("found %d functions, none of them named %q", len(m.Functions), name)
}

func (p *Package) inspectHead() error {
	f, err := onlyFunction(p.Head.Model)
	if err != nil {
		return err
	}
	p.HeadFunction = f.Name
	if p.Meta.ArgmaxInModel || slices.ContainsFunc(f.Outputs, func(o coreml.Feature) bool { return strings.HasPrefix(o.Name, "argmax_") }) {
		return fmt.Errorf("the LM head gives the best token of each part (argmax_in_model) in place of logits, which this version cannot run; convert without --argmax: %w", errors.ErrUnsupported)
	}
	in := feature(f.Inputs, HiddenStates)
	if in == nil || len(f.Inputs) != 1 {
		return fmt.Errorf("function %s takes %s, wanted %s", f.Name, names(f.Inputs), HiddenStates)
	}
	h, err := hiddenShape(in, 1)
	if err != nil {
		return err
	}
	p.HiddenSize = h

	// logits1..logitsN, or one output for all.
	outs := map[int]*coreml.Feature{}
	for i := range f.Outputs {
		o := &f.Outputs[i]
		if s, ok := strings.CutPrefix(o.Name, "logits"); ok {
			if n, err := strconv.Atoi(s); err == nil && n >= 1 {
				outs[n] = o
			}
		}
	}
	for _, name := range []string{"logits", "output_logits"} {
		if o := feature(f.Outputs, name); o != nil && len(outs) == 0 {
			outs[1] = o
		}
	}
	if len(outs) == 0 {
		return fmt.Errorf("function %s gives %s, wanted logits1, logits2, ...", f.Name, names(f.Outputs))
	}
	for n := 1; n <= len(outs); n++ {
		o := outs[n]
		if o == nil {
			return fmt.Errorf("found %d outputs of logits, but no logits%d", len(outs), n)
		}
		width := 0
		switch {
		case len(o.Shape) > 0:
			w, ok := mil.NumElements(o.Shape)
			if last := o.Shape[len(o.Shape)-1]; !ok || w != last {
				return fmt.Errorf("output %s has shape %v, wanted [1, 1, width]", o.Name, o.Shape)
			}
			width = w
		case n <= len(p.Meta.LMHeadChunkSizes):
			width = p.Meta.LMHeadChunkSizes[n-1]
		default:
			return fmt.Errorf("output %s has no shape, and meta.yaml has no lm_head_chunk_sizes to say its width", o.Name)
		}
		if width < 1 || width > maxVocab || p.VocabSize > maxVocab-width || !o.DType.IsFloat() {
			return fmt.Errorf("output %s has shape %v and type %v, wanted floating-point [1, 1, width]", o.Name, o.Shape, o.DType)
		}
		p.Logits = append(p.Logits, o.Name)
		p.LogitsWidths = append(p.LogitsWidths, width)
		p.VocabSize += width
	}
	return nil
}

// chooseFunctions finds the functions of the decoder that process one token
// and a batch.
func (p *Package) chooseFunctions() error {
	p.InferFunction = "infer"
	with, without := "", ""
	for _, c := range p.Chunks {
		if c.Model == nil {
			return fmt.Errorf("%s: no model", c.Name)
		}
		for _, f := range c.Model.Functions {
			if strings.HasSuffix(f.Name, "_rotate") {
				return fmt.Errorf("%s: it has the function %s (a sliding-window cache that is rotated), which this version cannot run: %w", c.Name, f.Name, errors.ErrUnsupported)
			}
		}
		if c.Model.Function("prefill") != nil {
			with = c.Name
		} else {
			without = c.Name
		}
	}
	if p.Chunks[0].Model.Function("infer") == nil {
		// The parts before ANEMLL combines them: a model of one function.
		if f, err := onlyFunction(p.Chunks[0].Model); err == nil && f.Name != "prefill" {
			p.InferFunction = f.Name
		}
	}
	for _, c := range p.Chunks {
		if c.Model.Function(p.InferFunction) == nil {
			var have []string
			for _, f := range c.Model.Functions {
				have = append(have, f.Name)
			}
			return fmt.Errorf("%s: found the functions %s, wanted infer", c.Name, strings.Join(have, ", "))
		}
	}
	switch {
	case with == "":
		p.NoPrefill = "the chunks have no function prefill"
		if p.Meta.PF != "" {
			p.problem("prefill is a model of its own (%s), which is not used: prompts go token by token", p.Meta.PF)
		}
	case without != "":
		p.NoPrefill = fmt.Sprintf("%s has a function prefill, %s has none", with, without)
		p.problem("%s: prompts go token by token", p.NoPrefill)
	case !p.Meta.PrefillAllowed():
		p.NoPrefill = "meta.yaml has neither prefill_dynamic_slice nor update_mask_prefill"
		if p.Meta.InferOnly {
			p.NoPrefill = "meta.yaml says infer_only"
		}
	}
	return nil
}

func (p *Package) inspectPrefill() error {
	if p.NoPrefill != "" {
		return nil
	}
	first := p.Chunks[0].Model.Function("prefill")
	if in := feature(first.Inputs, HiddenStates); in != nil && len(in.Shape) == 3 {
		p.BatchSize = in.Shape[1]
	}
	for _, c := range p.Chunks {
		if feature(c.Model.Function("prefill").Inputs, UpdateMask) != nil {
			p.NoPrefill = "prefill takes an update_mask, which this version does not make"
			p.BatchSize = 0
			p.problem("%s: prompts go token by token", p.NoPrefill)
			return nil
		}
	}
	if p.BatchSize < 1 || p.BatchSize > maxBatch {
		return fmt.Errorf("%s: function prefill: wanted an input %s of shape [1, batch size, %d]", p.Chunks[0].Name, HiddenStates, p.HiddenSize)
	}
	if p.BatchSize > p.ContextLength {
		return fmt.Errorf("%s: function prefill takes %d tokens, more than the %d of the context", p.Chunks[0].Name, p.BatchSize, p.ContextLength)
	}
	ctx, rows, err := p.follow("prefill", p.BatchSize)
	if err != nil {
		return err
	}
	if ctx != p.ContextLength {
		return fmt.Errorf("%s is %d wide in prefill and %d in %s", CausalMask, ctx, p.ContextLength, p.InferFunction)
	}
	p.PrefillFunction = "prefill"
	p.LastTokenOutput = p.Meta.PrefillLastTokenOutput
	if p.LastTokenOutput && rows > 1 {
		p.LastTokenOutput = false
		p.problem("meta.yaml says prefill_last_token_output, but prefill of the last chunk gives %d tokens: no logits are taken from it", rows)
	}
	return nil
}

// follow checks one function of all chunks for calls of t tokens: that every
// input is known and has the shape that the parts before it give. It returns
// the width of the mask and the number of tokens that come out, 0 if the last
// chunk does not say.
func (p *Package) follow(function string, t int) (ctx, rows int, err error) {
	emb := p.Embeddings.Model.Function(p.EmbeddingsFunction)
	ids := feature(emb.Inputs, InputIDs)
	if ids == nil || len(emb.Inputs) != 1 || ids.DType != mil.Int32 {
		return 0, 0, fmt.Errorf("%s: function %s takes %s, wanted int32 %s", p.Embeddings.Name, emb.Name, names(emb.Inputs), InputIDs)
	}
	if !takes(ids, []int{1, t}) {
		return 0, 0, fmt.Errorf("%s: %s takes %s, wanted [1, %d] for %s", p.Embeddings.Name, InputIDs, shapesOf(ids), t, function)
	}
	type source struct {
		part  string
		shape []int // nil if the model does not say
	}
	earlier := map[string]source{}
	out, err := HiddenOutput(emb)
	if err != nil {
		return 0, 0, fmt.Errorf("%s: %w", p.Embeddings.Name, err)
	}
	for i := range emb.Outputs {
		o := &emb.Outputs[i]
		// The shape is that of the default input, one token; the second
		// dimension is what a call makes it.
		s := slices.Clone(o.Shape)
		if len(s) == 3 {
			s[1] = t
		} else {
			s = nil
		}
		earlier[o.Name] = source{p.Embeddings.Name, s}
	}
	hidden := earlier[out.Name]

	for i, c := range p.Chunks {
		f := c.Model.Function(function)
		where := fmt.Sprintf("%s: function %s", c.Name, function)
		if feature(f.Inputs, HiddenStates) == nil {
			return 0, 0, fmt.Errorf("%s takes %s, wanted %s too", where, names(f.Inputs), HiddenStates)
		}
		for j := range f.Inputs {
			in := &f.Inputs[j]
			bad := func(want string) error {
				return fmt.Errorf("%s: input %s is %v %s, wanted %s", where, in.Name, in.DType, shapesOf(in), want)
			}
			switch in.Name {
			case HiddenStates:
				h, err := hiddenShape(in, t)
				if err != nil {
					return 0, 0, fmt.Errorf("%s: %w", where, err)
				}
				if h != p.HiddenSize {
					return 0, 0, bad(fmt.Sprintf("[1, %d, %d], as the LM head takes it", t, p.HiddenSize))
				}
				if hidden.shape != nil && !takes(in, hidden.shape) {
					return 0, 0, bad(fmt.Sprintf("%v, which %s gives", hidden.shape, hidden.part))
				}
			case PositionIDs:
				if in.DType != mil.Int32 || !takes(in, []int{t}) {
					return 0, 0, bad(fmt.Sprintf("int32 [%d]", t))
				}
			case CurrentPos:
				if in.DType != mil.Int32 || !takes(in, []int{1}) {
					return 0, 0, bad("int32 [1]")
				}
			case CausalMask:
				s := in.Shape
				if !in.DType.IsFloat() || len(s) != 4 || s[0] != 1 || s[1] != 1 || s[2] != t || s[3] < 1 || s[3] > maxPositions {
					return 0, 0, bad(fmt.Sprintf("fp16 [1, 1, %d, context]", t))
				}
				if ctx != 0 && ctx != s[3] {
					return 0, 0, bad(fmt.Sprintf("a width of %d, as the chunks before it have", ctx))
				}
				ctx = s[3]
			default:
				src, ok := earlier[in.Name]
				if !ok {
					if in.Optional {
						continue
					}
					return 0, 0, fmt.Errorf("%s: input %s is not known and no earlier part gives it", where, in.Name)
				}
				if n, ok := mil.NumElements(in.Shape); !ok || n > maxElements || !in.DType.IsFloat() {
					return 0, 0, bad("floating-point values of a fixed shape")
				}
				if src.shape != nil && !takes(in, src.shape) {
					return 0, 0, bad(fmt.Sprintf("%v, which %s gives", src.shape, src.part))
				}
			}
		}
		out, err := HiddenOutput(f)
		if err != nil {
			return 0, 0, fmt.Errorf("%s: %w", c.Name, err)
		}
		for j := range f.Outputs {
			earlier[f.Outputs[j].Name] = source{c.Name, f.Outputs[j].Shape}
		}
		hidden = source{c.Name, out.Shape}
		if i == len(p.Chunks)-1 && len(out.Shape) > 0 {
			if len(out.Shape) != 3 || out.Shape[0] != 1 || out.Shape[2] != p.HiddenSize || (out.Shape[1] != 1 && out.Shape[1] != t) {
				return 0, 0, fmt.Errorf("%s: output %s has shape %v, wanted [1, 1, %d]", where, out.Name, out.Shape, p.HiddenSize)
			}
			rows = out.Shape[1]
		}
	}
	switch {
	case ctx == 0:
		return 0, 0, fmt.Errorf("function %s of no chunk takes a %s, whose width is the length of the context", function, CausalMask)
	case t > maxElements/ctx || t > maxElements/p.HiddenSize:
		return 0, 0, fmt.Errorf("function %s takes %d tokens at a context of %d and a width of %d: more than this program handles", function, t, ctx, p.HiddenSize)
	}
	return ctx, rows, nil
}

// inspectStates checks that chunks and functions agree on the states.
func (p *Package) inspectStates() error {
	all := map[string]coreml.Feature{}
	from := map[string]string{}
	perChunk := make([]map[string]bool, len(p.Chunks))
	for i, c := range p.Chunks {
		perChunk[i] = map[string]bool{}
		for _, fn := range []string{p.InferFunction, p.PrefillFunction} {
			f := c.Model.Function(fn)
			if f == nil {
				continue
			}
			for _, s := range f.States {
				where := fmt.Sprintf("%s (%s)", c.Name, fn)
				if old, ok := all[s.Name]; ok && (!slices.Equal(old.Shape, s.Shape) || old.DType != s.DType) {
					return fmt.Errorf("state %s is %v %v in %s and %v %v in %s", s.Name, old.DType, old.Shape, from[s.Name], s.DType, s.Shape, where)
				}
				if _, ok := mil.TensorOf(s.DType, s.Shape...).ByteSize(); !ok {
					return fmt.Errorf("state %s in %s has shape %v", s.Name, where, s.Shape)
				}
				all[s.Name], from[s.Name] = s, where
				perChunk[i][s.Name] = true
			}
		}
	}
	for _, s := range all {
		p.States = append(p.States, s)
		// Caches are [.., .., positions, head size].
		if strings.Contains(s.Name, "kv_cache") && len(s.Shape) == 4 {
			p.StateLength = max(p.StateLength, s.Shape[2])
		}
	}
	slices.SortFunc(p.States, func(a, b coreml.Feature) int { return strings.Compare(a.Name, b.Name) })
	p.StateOwner = -1
	if !p.Meta.PerChunkState {
		p.StateOwner = slices.IndexFunc(perChunk, func(s map[string]bool) bool { return len(s) == len(all) })
	}
	if p.StateLength != 0 && p.StateLength < p.ContextLength {
		return fmt.Errorf("the KV cache has room for %d positions, the mask for %d", p.StateLength, p.ContextLength)
	}
	return nil
}

// compareMeta notes where meta.yaml, and the models' own metadata, say
// something else than the models' shapes.
func (p *Package) compareMeta() {
	m := p.Meta
	differ := func(key string, says, is int) {
		if m.Given(key) && says != is {
			p.problem("meta.yaml says %s: %d, the models say %d", key, says, is)
		}
	}
	mask := m.ContextLength
	maskKey := "context_length"
	for _, alt := range []struct {
		key string
		v   int
	}{{"attention_size", m.AttentionSize}, {"state_length", m.StateLength}} {
		if alt.v != 0 {
			mask, maskKey = alt.v, alt.key
			break
		}
	}
	differ(maskKey, mask, p.ContextLength)
	if p.PrefillFunction != "" {
		differ("batch_size", m.BatchSize, p.BatchSize)
	}
	differ("hidden_size", m.HiddenSize, p.HiddenSize)
	differ("vocab_size", m.VocabSize, p.VocabSize)
	if m.Given("split_lm_head") {
		differ("split_lm_head", m.SplitLMHead, len(p.Logits))
	}
	if m.Given("lm_head_chunk_sizes") && !slices.Equal(m.LMHeadChunkSizes, p.LogitsWidths) {
		p.problem("meta.yaml says lm_head_chunk_sizes: %v, the models say %v", m.LMHeadChunkSizes, p.LogitsWidths)
	}
	if m.Given("per_layer_inputs") {
		width := 0
		for _, in := range p.Chunks[0].Model.Function(p.InferFunction).Inputs {
			if in.Name == "per_layer_inputs" && len(in.Shape) > 0 {
				width = in.Shape[len(in.Shape)-1]
			}
		}
		differ("per_layer_inputs", m.PerLayerInputs, width)
	}
	for _, s := range m.States {
		i := slices.IndexFunc(p.States, func(f coreml.Feature) bool { return f.Name == s.Name })
		switch {
		case i < 0:
			p.problem("meta.yaml lists the state %s, which no chunk declares", s.Name)
		case !slices.Equal(p.States[i].Shape, s.Shape):
			p.problem("meta.yaml says that the state %s is %v, the models say %v", s.Name, s.Shape, p.States[i].Shape)
		}
	}
	for i, part := range p.Chunks {
		for _, e := range []struct {
			key string
			is  int
		}{{"context_length", p.ContextLength}, {"batch_size", p.BatchSize}, {"num_chunks", len(p.Chunks)}, {"chunk_no", i + 1}} {
			s, ok := part.Model.Metadata.User["com.anemll."+e.key]
			if n, err := strconv.Atoi(s); ok && (err != nil || n != e.is) && !(e.key == "batch_size" && p.BatchSize == 0) {
				p.problem("%s: its metadata say com.anemll.%s: %.40s, it is %d", part.Name, e.key, s, e.is)
			}
		}
	}
}

func feature(list []coreml.Feature, name string) *coreml.Feature {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}

func names(list []coreml.Feature) string {
	s := make([]string, len(list))
	for i, f := range list {
		s[i] = f.Name
	}
	if len(s) == 0 {
		return "nothing"
	}
	return strings.Join(s, ", ")
}

// takes reports whether an input accepts the given shape.
func takes(f *coreml.Feature, shape []int) bool {
	if len(f.Shapes) > 0 {
		return slices.ContainsFunc(f.Shapes, func(s []int) bool { return slices.Equal(s, shape) })
	}
	if len(f.Ranges) > 0 {
		if len(f.Ranges) != len(shape) {
			return false
		}
		for i, r := range f.Ranges {
			if shape[i] < r.Min || (r.Max >= 0 && shape[i] > r.Max) {
				return false
			}
		}
		return true
	}
	return slices.Equal(f.Shape, shape)
}

func shapesOf(f *coreml.Feature) string {
	if len(f.Shapes) > 0 {
		return fmt.Sprint(f.Shapes)
	}
	return fmt.Sprint(f.Shape)
}

// hiddenShape checks that f is a floating-point [1, t, width] and returns the
// width.
func hiddenShape(f *coreml.Feature, t int) (int, error) {
	s := f.Shape
	if !f.DType.IsFloat() || len(s) != 3 || s[0] != 1 || s[1] != t || s[2] < 1 || s[2] > maxWidth {
		return 0, fmt.Errorf("input %s is %v %v, wanted fp16 [1, %d, hidden size]", f.Name, f.DType, s, t)
	}
	return s[2], nil
}
