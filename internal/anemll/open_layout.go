package anemll

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
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
	CausalMask   = "causal_mask"   // fp16 [1, 1, T, mask width]: 0 where column <= row, -inf elsewhere
	CurrentPos   = "current_pos"   // int32 [1]: p
	// UpdateMask is fp16 [1, 1, positions, T]: 1 where token t of the call
	// belongs to the position p + t, else 0. Graphs that write their caches by
	// a matrix product in place of a slice take it.
	UpdateMask = "update_mask"

	OutputHiddenStates = "output_hidden_states"

	// ArgmaxIndex (int32 [N]) and ArgmaxValue (fp16 [N]) are what a head with
	// argmax_in_model gives: the best token of each of the N parts of the
	// vocabulary, counted from the part's first one, and its logit.
	ArgmaxIndex = "argmax_idx"
	ArgmaxValue = "argmax_val"
)

// maxElements bounds the masks and hidden states that a runtime allocates by
// the shapes in a file.
const maxElements = 1 << 27

// Layout is what the models of a package say: every shape and name that a
// runtime needs.
type Layout struct {
	// ContextLength is the number of positions that can be used: the width of
	// causal_mask, unless the caches hold fewer.
	ContextLength int
	MaskWidth     int // of causal_mask
	StateLength   int // positions that the largest KV cache has room for
	// HiddenSize is the width of hidden states; 0 if a monolithic model does
	// not show them.
	HiddenSize int
	// VocabSize is the number of logits: the sum of LogitsWidths.
	VocabSize int
	// Logits names the outputs of logits in the order of the vocabulary;
	// LogitsWidths are their widths. With Argmax there are no such outputs, and
	// LogitsWidths are the widths of the parts that argmax_idx counts in.
	Logits       []string
	LogitsWidths []int
	// Argmax says that the head gives argmax_idx and argmax_val in place of
	// logits.
	Argmax bool

	// EmbeddingsFunction, InferFunction and HeadFunction are the functions to
	// call; the first and the last are empty in a monolithic package.
	// InferFunction processes one token.
	EmbeddingsFunction, InferFunction, HeadFunction string
	// PrefillFunction processes BatchSize tokens; both are zero when prompts
	// have to go token by token, and NoPrefill says why.
	PrefillFunction string
	BatchSize       int
	NoPrefill       string
	// PrefillLimit is the number of positions that PrefillFunction can write:
	// no batch may reach beyond it.
	PrefillLimit int
	// Remainders are further functions like PrefillFunction for fewer tokens, the
	// largest first: prefill_N for N tokens, a divisor of BatchSize. What a
	// prompt leaves behind its last whole batch goes through them in place of
	// going token by token. They are an addition of this program's to the layout:
	// runtimes that do not know them ignore them.
	Remainders []Prefill
	// LastTokenOutput says that the last chunk's prefill returns the normed
	// hidden state of the batch's last token, from which logits may be taken,
	// or a monolithic model's the logits themselves.
	LastTokenOutput bool

	// Window is the length of caches that are rotated: from this position on,
	// InferRotateFunction takes the place of InferFunction. 0 if no cache is.
	//
	// Each of its calls drops the oldest row, so a token must not be fed to it
	// twice, and no earlier position can be gone back to. PrefillRotateFunction
	// (empty if there is none) shifts by a whole batch before any of its tokens
	// looks: tokens see later ones of their batch. It is for showing what
	// ANEMLL's runtimes compute.
	Window                int
	InferRotateFunction   string
	PrefillRotateFunction string

	// States are the states of all chunks, sorted by name: once each if they
	// are shared, else once per chunk that has it.
	States []coreml.Feature
	// StateOwner is the first chunk that declares all of States, so that one
	// state object serves every chunk; -1 if each needs its own.
	StateOwner int
}

// Prefill is a function of the decoder that processes several tokens.
type Prefill struct {
	Function string
	Tokens   int // of each call
}

// Prefills returns the functions that process several tokens and may be used,
// the one for the most tokens first.
func (l *Layout) Prefills() []Prefill {
	if l.PrefillFunction == "" || l.BatchSize < 2 {
		return nil
	}
	return append([]Prefill{{l.PrefillFunction, l.BatchSize}}, l.Remainders...)
}

// DecoderFunctions returns the functions of the decoder that may be called.
func (l *Layout) DecoderFunctions() []string {
	list := []string{l.InferFunction, l.PrefillFunction}
	for _, r := range l.Remainders {
		list = append(list, r.Function)
	}
	list = append(list, l.InferRotateFunction, l.PrefillRotateFunction)
	return slices.DeleteFunc(list, func(f string) bool { return f == "" })
}

// Rewindable reports whether positions may be overwritten at any time; see
// [Meta.Rewindable]. Rotated caches can only go back as long as they were not
// rotated.
func (p *Package) Rewindable() bool { return p.Meta.Rewindable() && p.Window == 0 }

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
	if p.Meta == nil || len(p.Chunks) == 0 || (p.Embeddings == nil) != (p.Head == nil) || p.Embeddings == nil && len(p.Chunks) > 1 {
		return errors.New("a part is missing: a package has embeddings, one or more chunks and an LM head, or one monolithic model")
	}
	for _, part := range p.Parts() {
		if part.Model == nil {
			return fmt.Errorf("a part is missing: %s has no model", part.Name)
		}
	}
	if p.Head != nil {
		if err := p.inspectHead(); err != nil {
			return fmt.Errorf("%s: %w", p.Head.Name, err)
		}
		f, err := onlyFunction(p.Embeddings.Model)
		if err != nil {
			return fmt.Errorf("%s: %w", p.Embeddings.Name, err)
		}
		p.EmbeddingsFunction = f.Name
	}
	if err := p.chooseFunctions(); err != nil {
		return err
	}
	if p.Head == nil {
		_, f := p.Decoder(0, p.InferFunction)
		if err := p.inspectScores(p.Chunks[0], f); err != nil {
			return fmt.Errorf("%s: %w", p.Chunks[0].Name, err)
		}
	}
	c, err := p.follow(p.InferFunction, 1)
	if err != nil {
		return err
	}
	if c.rows > 1 {
		return fmt.Errorf("function %s of %s gives %d tokens, wanted 1", p.InferFunction, p.Chunks[len(p.Chunks)-1].Name, c.rows)
	}
	p.MaskWidth, p.ContextLength = c.mask, c.mask
	if c.update > 0 {
		p.ContextLength = min(p.ContextLength, c.update)
	}
	if err := p.inspectPrefill(); err != nil {
		return err
	}
	if err := p.inspectStates(); err != nil {
		return err
	}
	if err := p.inspectWindow(); err != nil {
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
	in := feature(f.Inputs, HiddenStates)
	if in == nil || len(f.Inputs) != 1 {
		return fmt.Errorf("function %s takes %s, wanted %s", f.Name, names(f.Inputs), HiddenStates)
	}
	h, err := hiddenShape(in, 1)
	if err != nil {
		return err
	}
	p.HiddenSize = h
	return p.inspectScores(p.Head, f)
}

// inspectScores finds the logits, or the best tokens, among the outputs of a
// function.
func (p *Package) inspectScores(part *Part, f *coreml.Function) error {
	if feature(f.Outputs, ArgmaxIndex) != nil || feature(f.Outputs, ArgmaxValue) != nil {
		return p.inspectArgmax(part, f)
	}
	outs := logitsOf(f)
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
		if !o.DType.IsFloat() {
			return fmt.Errorf("output %s has shape %v and type %v, wanted floating-point [1, 1, width]", o.Name, o.Shape, o.DType)
		}
		if err := p.addLogits(o.Name, width); err != nil {
			return err
		}
		p.Logits = append(p.Logits, o.Name)
	}
	if p.Meta.ArgmaxInModel {
		p.problem("meta.yaml says argmax_in_model, but %s gives logits", part.Name)
	}
	return nil
}

// logitsOf returns the outputs of logits by their numbers: logits1..logitsN,
// or one for all.
func logitsOf(f *coreml.Function) map[int]*coreml.Feature {
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
	return outs
}

func (p *Package) addLogits(name string, width int) error {
	if width < 1 || width > maxVocab || p.VocabSize > maxVocab-width {
		return fmt.Errorf("output %s has a part of the vocabulary that is %d wide, wanted 1 to %d for all", name, width, maxVocab)
	}
	p.LogitsWidths = append(p.LogitsWidths, width)
	p.VocabSize += width
	return nil
}

// inspectArgmax finds out how many tokens each part of the vocabulary has: by
// the graph, which computes the best of each; or else by meta.yaml and the
// model's metadata; or else by the rule that the first parts are one wider.
func (p *Package) inspectArgmax(part *Part, f *coreml.Function) error {
	idx, val := feature(f.Outputs, ArgmaxIndex), feature(f.Outputs, ArgmaxValue)
	switch {
	case idx == nil || val == nil:
		return fmt.Errorf("function %s gives %s, wanted both %s and %s", f.Name, names(f.Outputs), ArgmaxIndex, ArgmaxValue)
	case idx.DType != mil.Int32 || !val.DType.IsFloat():
		return fmt.Errorf("outputs %s and %s are %v and %v, wanted int32 and floating point", ArgmaxIndex, ArgmaxValue, idx.DType, val.DType)
	}
	n, ok := mil.NumElements(idx.Shape)
	m, ok2 := mil.NumElements(val.Shape)
	if len(idx.Shape) == 0 && len(val.Shape) == 0 {
		n, m = p.Meta.SplitLMHead, p.Meta.SplitLMHead
	}
	if !ok || !ok2 || n != m || n < 1 || n > maxSplit {
		return fmt.Errorf("outputs %s and %s have shapes %v and %v, wanted [parts of the vocabulary] twice", ArgmaxIndex, ArgmaxValue, idx.Shape, val.Shape)
	}
	p.Argmax = true
	widths := argmaxWidths(part.Model, f.Name)
	if len(widths) != n {
		if widths != nil {
			return fmt.Errorf("output %s has %d elements, but the graph takes the best of %d parts", ArgmaxIndex, n, len(widths))
		}
		switch v := p.Meta.VocabSize; {
		case len(p.Meta.LMHeadChunkSizes) == n:
			widths = p.Meta.LMHeadChunkSizes
		case v >= n:
			for i := range n {
				w := v / n
				if i < v%n {
					w++
				}
				widths = append(widths, w)
			}
		default:
			return fmt.Errorf("neither the graph nor meta.yaml (lm_head_chunk_sizes, vocab_size) says how wide the %d parts of the vocabulary are that %s counts in", n, ArgmaxIndex)
		}
		p.problem("%s does not show how wide the %d parts of the vocabulary are; the widths %v are those of meta.yaml", part.Name, n, shorten(widths))
	}
	for _, w := range widths {
		if err := p.addLogits(ArgmaxIndex, w); err != nil {
			return err
		}
	}
	if p.Meta.Given("argmax_in_model") && !p.Meta.ArgmaxInModel {
		p.problem("meta.yaml says argmax_in_model: false, but %s gives the best tokens and no logits", part.Name)
	}
	return nil
}

func shorten(v []int) any {
	if len(v) > 16 {
		return fmt.Sprintf("%v and %d more", v[:16], len(v)-16)
	}
	return v
}

// argmaxWidths returns what the graph of a function says about the widths of
// the parts that argmax_idx counts in; nil if it does not look like that.
func argmaxWidths(m *coreml.Model, function string) []int {
	if m.Program == nil {
		return nil
	}
	f := m.Program.Function(function)
	if f == nil && len(m.Program.Functions) == 1 {
		f = m.Program.Functions[0]
	}
	if f == nil || f.Body == nil {
		return nil
	}
	// back follows a value to the operation that computes its numbers.
	back := func(v *mil.Value) *mil.Operation {
		for range 64 { // no graph has more of these in a row
			if v == nil || v.Op == nil {
				return nil
			}
			switch v.Op.Type {
			case "cast", "identity", "squeeze", "expand_dims", "reshape", "transpose":
				v = v.Op.Value("x")
			default:
				return v.Op
			}
		}
		return nil
	}
	var widths []int
	for _, out := range f.Body.Outputs {
		if out.Name != ArgmaxIndex {
			continue
		}
		op := back(out)
		if op == nil {
			return nil
		}
		values := []*mil.Value{out}
		if op.Type == "concat" || op.Type == "stack" {
			values = op.Arg("values")
		}
		for _, v := range values {
			op := back(v)
			if op == nil || op.Type != "reduce_argmax" {
				return nil
			}
			x := op.Value("x")
			if x == nil {
				return nil
			}
			axis := -1
			if a := op.Operand("axis"); a != nil && a.Literal != nil && len(a.Literal.Ints) == 1 {
				axis = int(a.Literal.Ints[0])
			}
			if axis < 0 {
				axis += x.Type.Rank()
			}
			if axis < 0 || axis >= x.Type.Rank() || x.Type.Shape[axis] < 1 {
				return nil
			}
			widths = append(widths, x.Type.Shape[axis])
		}
	}
	return widths
}

// chooseFunctions finds the functions of the decoder that process one token
// and a batch.
func (p *Package) chooseFunctions() error {
	p.InferFunction = "infer"
	all := func(function string) (with, without string) {
		for i, c := range p.Chunks {
			if part, _ := p.Decoder(i, function); part != nil {
				with = part.Name
			} else {
				without = c.Name
			}
		}
		return with, without
	}
	if p.Chunks[0].Model.Function("infer") == nil {
		// The parts before ANEMLL combines them: a model of one function.
		if f, err := onlyFunction(p.Chunks[0].Model); err == nil && f.Name != "prefill" {
			p.InferFunction = f.Name
		}
	}
	for i, c := range p.Chunks {
		if part, _ := p.Decoder(i, p.InferFunction); part == nil {
			var have []string
			for _, f := range c.Model.Functions {
				have = append(have, f.Name)
			}
			return fmt.Errorf("%s: found the functions %s, wanted infer", c.Name, strings.Join(have, ", "))
		}
	}
	// odd notes a function that some chunks have and some do not.
	odd := func(function string) bool {
		with, without := all(function)
		if with != "" && without != "" {
			p.problem("%s has a function %s, %s has none: it is not used", with, function, without)
		}
		return with != "" && without == ""
	}
	switch with, without := all("prefill"); {
	case with == "":
		p.NoPrefill = "the chunks have no function prefill"
	case without != "":
		p.NoPrefill = fmt.Sprintf("%s has a function prefill, %s has none", with, without)
		p.problem("%s: prompts go token by token", p.NoPrefill)
	case !p.Meta.PrefillAllowed():
		p.NoPrefill = "meta.yaml has neither prefill_dynamic_slice nor update_mask_prefill"
		if p.Meta.InferOnly {
			p.NoPrefill = "meta.yaml says infer_only"
		}
	}
	if odd("infer_rotate") {
		p.InferRotateFunction = "infer_rotate"
		if odd("prefill_rotate") {
			p.PrefillRotateFunction = "prefill_rotate"
		}
	}
	return nil
}

func (p *Package) inspectPrefill() error {
	if p.NoPrefill != "" {
		return nil
	}
	part, first := p.Decoder(0, "prefill")
	want := fmt.Sprintf("%s of shape [1, batch size, %d]", HiddenStates, p.HiddenSize)
	if p.Embeddings != nil {
		if in := feature(first.Inputs, HiddenStates); in != nil && len(in.Shape) == 3 {
			p.BatchSize = in.Shape[1]
		}
	} else {
		want = fmt.Sprintf("%s of shape [1, batch size]", InputIDs)
		if in := feature(first.Inputs, InputIDs); in != nil && len(in.Shape) == 2 {
			p.BatchSize = in.Shape[1]
		}
	}
	if p.BatchSize < 1 || p.BatchSize > maxBatch {
		return fmt.Errorf("%s: function prefill: wanted an input %s", part.Name, want)
	}
	if p.BatchSize > p.ContextLength {
		return fmt.Errorf("%s: function prefill takes %d tokens, more than the %d of the context", part.Name, p.BatchSize, p.ContextLength)
	}
	c, err := p.follow("prefill", p.BatchSize)
	if err != nil {
		return err
	}
	if c.mask != p.MaskWidth {
		return fmt.Errorf("%s is %d wide in prefill and %d in %s", CausalMask, c.mask, p.MaskWidth, p.InferFunction)
	}
	if !p.Meta.PrefillDynamicSlice && c.update == 0 {
		// meta.yaml promises an update_mask, without which prefill would write
		// its caches at position 0.
		p.NoPrefill = "meta.yaml says update_mask_prefill and not prefill_dynamic_slice, but prefill takes no update_mask"
		p.BatchSize = 0
		p.problem("%s: prompts go token by token", p.NoPrefill)
		return nil
	}
	p.PrefillFunction = "prefill"
	p.inspectRemainders(c)
	p.PrefillLimit = p.MaskWidth
	if c.update > 0 {
		p.PrefillLimit = min(p.PrefillLimit, c.update)
	}
	p.LastTokenOutput = p.Meta.PrefillLastTokenOutput
	switch {
	case !p.LastTokenOutput:
	case p.Embeddings == nil:
		if !p.prefillScores() {
			p.LastTokenOutput = false
			p.problem("meta.yaml says prefill_last_token_output, but prefill gives no logits: none are taken from it")
		}
	case c.rows > 1:
		p.LastTokenOutput, p.Remainders = false, nil // whose outputs are like that one's
		p.problem("meta.yaml says prefill_last_token_output, but prefill of the last chunk gives %d tokens: no logits are taken from it", c.rows)
	}
	return nil
}

// remainderPattern matches the names of functions for fewer tokens than a
// batch.
var remainderPattern = regexp.MustCompile(`^prefill_([1-9][0-9]{0,8})$`)

// inspectRemainders finds the functions for fewer tokens than a batch. prefill
// is what the models say about calls of that function. Prompts can do without
// them, so what is wrong with one is a problem of the package and no error.
func (p *Package) inspectRemainders(prefill call) {
	if p.Embeddings == nil || p.BatchSize < 2 {
		return // nobody makes such models
	}
	seen := map[string]bool{}
	for _, chunk := range p.Chunks {
		for _, f := range chunk.Model.Functions {
			m := remainderPattern.FindStringSubmatch(f.Name)
			if m == nil || seen[f.Name] {
				continue
			}
			seen[f.Name] = true
			n, _ := strconv.Atoi(m[1])
			if err := p.checkRemainder(f.Name, n, prefill); err != nil {
				p.problem("%v: %s is not used", err, f.Name)
				continue
			}
			p.Remainders = append(p.Remainders, Prefill{f.Name, n})
		}
	}
	slices.SortFunc(p.Remainders, func(a, b Prefill) int { return b.Tokens - a.Tokens })
}

// checkRemainder checks that a function does for n tokens what prefill does for
// a batch.
func (p *Package) checkRemainder(function string, n int, prefill call) error {
	if n < 2 || n >= p.BatchSize || p.BatchSize%n != 0 {
		return fmt.Errorf("%s takes %d tokens, wanted a divisor of the batch, %d, from 2 on and less than it", function, n, p.BatchSize)
	}
	for i, chunk := range p.Chunks {
		_, f := p.Decoder(i, function)
		if f == nil {
			return fmt.Errorf("%s has no function %s, which other chunks have", chunk.Name, function)
		}
		_, like := p.Decoder(i, "prefill")
		for _, s := range like.States {
			if x := feature(f.States, s.Name); x == nil || !sameState(*x, s) {
				return fmt.Errorf("%s: function %s has the states %s, wanted %s %v %v as in prefill", chunk.Name, function, names(f.States), s.Name, s.DType, s.Shape)
			}
		}
		if len(f.States) != len(like.States) {
			return fmt.Errorf("%s: function %s has the states %s, wanted %s as in prefill", chunk.Name, function, names(f.States), names(like.States))
		}
	}
	c, err := p.follow(function, n)
	if err != nil {
		return err
	}
	if c.mask != prefill.mask || c.update != prefill.update {
		return fmt.Errorf("%s and %s are %d and %d wide in %s, wanted %d and %d as in prefill", CausalMask, UpdateMask, c.mask, c.update, function, prefill.mask, prefill.update)
	}
	if c.rows > 1 && p.Meta.PrefillLastTokenOutput {
		return fmt.Errorf("%s of the last chunk gives %d tokens, wanted the last one as of prefill", function, c.rows)
	}
	return nil
}

// prefillScores reports whether prefill of a monolithic model gives what
// infer gives, for one token or for all.
func (p *Package) prefillScores() bool {
	_, f := p.Decoder(0, "prefill")
	if p.Argmax {
		idx, val := feature(f.Outputs, ArgmaxIndex), feature(f.Outputs, ArgmaxValue)
		fits := func(o *coreml.Feature) bool {
			n, ok := mil.NumElements(o.Shape)
			return ok && (len(o.Shape) == 0 || n == len(p.LogitsWidths))
		}
		return idx != nil && val != nil && idx.DType == mil.Int32 && val.DType.IsFloat() && fits(idx) && fits(val)
	}
	for i, name := range p.Logits {
		o := feature(f.Outputs, name)
		if o == nil || !o.DType.IsFloat() || len(o.Shape) != 3 || o.Shape[0] != 1 || o.Shape[2] != p.LogitsWidths[i] || (o.Shape[1] != 1 && o.Shape[1] != p.BatchSize) {
			return false
		}
		if o.Shape[1] != feature(f.Outputs, p.Logits[0]).Shape[1] {
			return false
		}
	}
	return p.VocabSize <= maxElements/p.BatchSize
}

// call is what the models say about calls of one function of all chunks.
type call struct {
	mask   int // width of causal_mask
	update int // positions of update_mask; 0 if no chunk takes one
	rows   int // tokens that come out of the last chunk; 0 if it does not say
}

// follow checks one function of all chunks for calls of t tokens: that every
// input is known and has the shape that the parts before it give.
func (p *Package) follow(function string, t int) (r call, err error) {
	type source struct {
		part  string
		shape []int // nil if the model does not say
	}
	earlier := map[string]source{}
	var hidden source
	if p.Embeddings != nil {
		emb := p.Embeddings.Model.Function(p.EmbeddingsFunction)
		ids := feature(emb.Inputs, InputIDs)
		if ids == nil || len(emb.Inputs) != 1 || ids.DType != mil.Int32 {
			return r, fmt.Errorf("%s: function %s takes %s, wanted int32 %s", p.Embeddings.Name, emb.Name, names(emb.Inputs), InputIDs)
		}
		if !takes(ids, []int{1, t}) {
			return r, fmt.Errorf("%s: %s takes %s, wanted [1, %d] for %s", p.Embeddings.Name, InputIDs, shapesOf(ids), t, function)
		}
		out, err := HiddenOutput(emb)
		if err != nil {
			return r, fmt.Errorf("%s: %w", p.Embeddings.Name, err)
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
		hidden = earlier[out.Name]
	}

	for i := range p.Chunks {
		c, f := p.Decoder(i, function)
		where := fmt.Sprintf("%s: function %s", c.Name, function)
		first := HiddenStates
		if p.Embeddings == nil {
			first = InputIDs
		}
		if feature(f.Inputs, first) == nil {
			return r, fmt.Errorf("%s takes %s, wanted %s too", where, names(f.Inputs), first)
		}
		for j := range f.Inputs {
			in := &f.Inputs[j]
			bad := func(want string) error {
				return fmt.Errorf("%s: input %s is %v %s, wanted %s", where, in.Name, in.DType, shapesOf(in), want)
			}
			switch {
			case in.Name == InputIDs && p.Embeddings == nil:
				if in.DType != mil.Int32 || !takes(in, []int{1, t}) {
					return r, bad(fmt.Sprintf("int32 [1, %d]", t))
				}
			case in.Name == HiddenStates && p.Embeddings != nil:
				h, err := hiddenShape(in, t)
				if err != nil {
					return r, fmt.Errorf("%s: %w", where, err)
				}
				if h != p.HiddenSize {
					return r, bad(fmt.Sprintf("[1, %d, %d], as the LM head takes it", t, p.HiddenSize))
				}
				if hidden.shape != nil && !takes(in, hidden.shape) {
					return r, bad(fmt.Sprintf("%v, which %s gives", hidden.shape, hidden.part))
				}
			case in.Name == PositionIDs:
				if in.DType != mil.Int32 || !takes(in, []int{t}) {
					return r, bad(fmt.Sprintf("int32 [%d]", t))
				}
			case in.Name == CurrentPos:
				if in.DType != mil.Int32 || !takes(in, []int{1}) {
					return r, bad("int32 [1]")
				}
			case in.Name == CausalMask:
				s := in.Shape
				if !in.DType.IsFloat() || len(s) != 4 || s[0] != 1 || s[1] != 1 || s[2] != t || s[3] < 1 || s[3] > maxPositions {
					return r, bad(fmt.Sprintf("fp16 [1, 1, %d, context]", t))
				}
				if r.mask != 0 && r.mask != s[3] {
					return r, bad(fmt.Sprintf("a width of %d, as the chunks before it have", r.mask))
				}
				r.mask = s[3]
			case in.Name == UpdateMask:
				s := in.Shape
				if !in.DType.IsFloat() || len(s) != 4 || s[0] != 1 || s[1] != 1 || s[2] < 1 || s[2] > maxPositions || s[3] != t {
					return r, bad(fmt.Sprintf("fp16 [1, 1, positions, %d]", t))
				}
				if r.update != 0 && r.update != s[2] {
					return r, bad(fmt.Sprintf("%d positions, as the chunks before it have", r.update))
				}
				r.update = s[2]
			default:
				src, ok := earlier[in.Name]
				if !ok {
					if in.Optional {
						continue
					}
					return r, fmt.Errorf("%s: input %s is not known and no earlier part gives it", where, in.Name)
				}
				if n, ok := mil.NumElements(in.Shape); !ok || n > maxElements || !in.DType.IsFloat() {
					return r, bad("floating-point values of a fixed shape")
				}
				if src.shape != nil && !takes(in, src.shape) {
					return r, bad(fmt.Sprintf("%v, which %s gives", src.shape, src.part))
				}
			}
		}
		if p.Embeddings == nil {
			break // what comes out is not hidden states
		}
		out, err := HiddenOutput(f)
		if err != nil {
			return r, fmt.Errorf("%s: %w", c.Name, err)
		}
		if i < len(p.Chunks)-1 && !out.DType.IsFloat() {
			return r, fmt.Errorf("%s: output %s is %v, wanted floating point", where, out.Name, out.DType)
		}
		for j := range f.Outputs {
			earlier[f.Outputs[j].Name] = source{c.Name, f.Outputs[j].Shape}
		}
		hidden = source{c.Name, out.Shape}
		if i == len(p.Chunks)-1 && len(out.Shape) > 0 {
			if len(out.Shape) != 3 || out.Shape[0] != 1 || out.Shape[2] != p.HiddenSize || (out.Shape[1] != 1 && out.Shape[1] != t) {
				return r, fmt.Errorf("%s: output %s has shape %v, wanted [1, 1, %d]", where, out.Name, out.Shape, p.HiddenSize)
			}
			r.rows = out.Shape[1]
		}
	}
	switch {
	case r.mask == 0:
		return r, fmt.Errorf("function %s of no chunk takes a %s, whose width is the length of the context", function, CausalMask)
	case t > maxElements/r.mask || t > maxElements/max(p.HiddenSize, r.update, 1):
		return r, fmt.Errorf("function %s takes %d tokens at a context of %d and a width of %d: more than this program handles", function, t, r.mask, p.HiddenSize)
	}
	return r, nil
}

// inspectStates checks that chunks and functions agree on the states.
func (p *Package) inspectStates() error {
	all := map[string]coreml.Feature{}
	perChunk := make([]map[string]coreml.Feature, len(p.Chunks))
	shared := !p.Meta.PerChunkState
	for i, c := range p.Chunks {
		perChunk[i] = map[string]coreml.Feature{}
		own := map[string]bool{} // states of the model that makes the chunk's states
		for _, f := range c.Model.Functions {
			for _, s := range f.States {
				own[s.Name] = true
			}
		}
		from := map[string]string{}
		for _, fn := range p.DecoderFunctions() {
			part, f := p.Decoder(i, fn)
			for _, s := range f.States {
				where := fmt.Sprintf("%s (%s)", part.Name, fn)
				if old, ok := perChunk[i][s.Name]; ok && !sameState(old, s) {
					return fmt.Errorf("state %s is %v %v in %s and %v %v in %s", s.Name, old.DType, old.Shape, from[s.Name], s.DType, s.Shape, where)
				}
				if _, ok := mil.TensorOf(s.DType, s.Shape...).ByteSize(); !ok {
					return fmt.Errorf("state %s in %s has shape %v", s.Name, where, s.Shape)
				}
				if part != c && !own[s.Name] {
					return fmt.Errorf("state %s in %s is not one of %s, which goes with it", s.Name, where, c.Name)
				}
				perChunk[i][s.Name], from[s.Name] = s, where
			}
		}
		for name, s := range perChunk[i] {
			if old, ok := all[name]; ok && !sameState(old, s) {
				shared = false // as in packages with a state object per chunk
			}
			all[name] = s
			// Caches are [.., .., positions, head size].
			if isCache(s) {
				p.StateLength = max(p.StateLength, s.Shape[2])
			}
		}
	}
	p.StateOwner = -1
	if shared {
		p.StateOwner = slices.IndexFunc(perChunk, func(s map[string]coreml.Feature) bool { return len(s) == len(all) })
	}
	if p.StateOwner >= 0 {
		perChunk = perChunk[p.StateOwner : p.StateOwner+1]
	}
	for _, states := range perChunk {
		for _, s := range states {
			p.States = append(p.States, s)
		}
	}
	slices.SortStableFunc(p.States, func(a, b coreml.Feature) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), slices.Compare(a.Shape, b.Shape))
	})
	return nil
}

func sameState(a, b coreml.Feature) bool { return a.DType == b.DType && slices.Equal(a.Shape, b.Shape) }

// isCache reports whether a state keeps a row per position, as
// [.., .., positions, head size].
func isCache(s coreml.Feature) bool {
	return strings.Contains(s.Name, "kv_cache") && len(s.Shape) == 4
}

// inspectWindow finds out from which position on caches are rotated, and how
// many positions can be used in all.
func (p *Package) inspectWindow() error {
	local := 0 // the shortest cache, if it is shorter than the mask
	for _, s := range p.States {
		if isCache(s) && s.Shape[2] < p.MaskWidth && (local == 0 || s.Shape[2] < local) {
			local = s.Shape[2]
		}
	}
	limit := p.ContextLength
	switch inGraph := p.Meta.LocalCacheLength != 0; {
	case p.InferRotateFunction != "":
		// The cache that is rotated is shorter than the others, or the only one.
		if p.Window = local; local == 0 {
			p.Window = p.Meta.SlidingWindow
		}
		switch {
		case p.Window == 0:
			return fmt.Errorf("%s: it has the function %s, but neither a cache shorter than the context nor sliding_window in meta.yaml says from which position on it is to be called", p.Chunks[0].Name, p.InferRotateFunction)
		case p.Meta.Given("sliding_window") && p.Meta.SlidingWindow != p.Window:
			p.problem("meta.yaml says sliding_window: %d, the models say %d", p.Meta.SlidingWindow, p.Window)
		}
		if p.StateLength > p.Window {
			limit = min(limit, p.StateLength)
		}
	case local != 0 && !inGraph:
		// Nothing makes room in the shortest cache.
		limit = min(limit, local)
	case p.StateLength != 0 && !inGraph:
		limit = min(limit, p.StateLength)
	}
	if limit < p.ContextLength {
		p.problem("%s is %d wide, but there is room for %d positions only: the context ends there", CausalMask, p.MaskWidth, limit)
		p.ContextLength = limit
	}
	if p.Window >= p.ContextLength { // never reached
		p.Window = 0
	}
	if w := p.Meta.SlidingWindow; p.Meta.SingleCache && p.Window == 0 && w > 0 && w < p.ContextLength {
		p.problem("meta.yaml says single_cache and sliding_window: %d; in ANEMLL's graphs of that kind all layers see the whole context, so that what follows position %d is not what the model would say", w, w)
	}
	if p.Window == 0 {
		p.InferRotateFunction, p.PrefillRotateFunction = "", ""
	} else if err := p.inspectRotate(); err != nil {
		return err
	}
	if p.PrefillFunction == "" {
		return nil
	}
	if p.PrefillLimit = min(p.PrefillLimit, p.ContextLength); p.Window != 0 {
		p.PrefillLimit = min(p.PrefillLimit, p.Window)
	}
	if p.BatchSize > p.PrefillLimit {
		p.NoPrefill = fmt.Sprintf("prefill takes %d tokens, but there is room for %d positions only", p.BatchSize, p.PrefillLimit)
		p.problem("%s: prompts go token by token", p.NoPrefill)
		p.PrefillFunction, p.PrefillRotateFunction, p.Remainders, p.BatchSize, p.PrefillLimit, p.LastTokenOutput = "", "", nil, 0, 0, false
	}
	return nil
}

// inspectRotate checks the functions for the positions behind the window.
func (p *Package) inspectRotate() error {
	c, err := p.follow(p.InferRotateFunction, 1)
	if err != nil {
		return err
	}
	if c.rows > 1 || c.mask != p.MaskWidth {
		return fmt.Errorf("function %s gives %d tokens for a mask of %d, wanted 1 for %d as %s does", p.InferRotateFunction, c.rows, c.mask, p.MaskWidth, p.InferFunction)
	}
	if p.Embeddings == nil {
		if err := p.sameScores(p.InferRotateFunction); err != nil {
			return err
		}
	}
	if p.PrefillFunction == "" || p.PrefillRotateFunction == "" {
		p.PrefillRotateFunction = ""
		return nil
	}
	if c, err = p.follow(p.PrefillRotateFunction, p.BatchSize); err != nil {
		return err
	}
	if c.mask != p.MaskWidth {
		return fmt.Errorf("%s is %d wide in %s and %d in %s", CausalMask, c.mask, p.PrefillRotateFunction, p.MaskWidth, p.InferFunction)
	}
	return nil
}

// sameScores checks that a function of a monolithic model gives the logits
// that its infer gives.
func (p *Package) sameScores(function string) error {
	_, a := p.Decoder(0, p.InferFunction)
	part, b := p.Decoder(0, function)
	want := p.Logits
	if p.Argmax {
		want = []string{ArgmaxIndex, ArgmaxValue}
	}
	for _, name := range want {
		x, y := feature(a.Outputs, name), feature(b.Outputs, name)
		if y == nil || x.DType != y.DType || !slices.Equal(x.Shape, y.Shape) {
			return fmt.Errorf("%s: function %s gives %s, wanted the %s that %s gives", part.Name, function, names(b.Outputs), name, p.InferFunction)
		}
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
	// The mask is what attention sees; hand-made files may say that it is
	// narrower than the context, or the cache longer.
	differ("attention_size", m.AttentionSize, p.MaskWidth)
	differ("state_length", m.StateLength, p.StateLength)
	if m.AttentionSize != p.ContextLength && (p.ContextLength == p.MaskWidth || m.ContextLength != p.MaskWidth) {
		differ("context_length", m.ContextLength, p.ContextLength)
	}
	if p.PrefillFunction != "" {
		differ("batch_size", m.BatchSize, p.BatchSize)
	}
	if p.HiddenSize != 0 {
		differ("hidden_size", m.HiddenSize, p.HiddenSize)
	}
	differ("vocab_size", m.VocabSize, p.VocabSize)
	if m.Given("split_lm_head") {
		differ("split_lm_head", m.SplitLMHead, len(p.LogitsWidths))
	}
	if m.Given("lm_head_chunk_sizes") && !slices.Equal(m.LMHeadChunkSizes, p.LogitsWidths) {
		p.problem("meta.yaml says lm_head_chunk_sizes: %v, the models say %v", m.LMHeadChunkSizes, p.LogitsWidths)
	}
	p.compareExtension()
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
