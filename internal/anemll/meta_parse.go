package anemll

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds on what a meta.yaml may hold. Real files are 2 to 6 KB; the parser's
// memory grows faster than linearly with nesting and with keys, hence the
// small numbers.
const (
	maxMetaBytes = 64 << 10
	maxMetaKeys  = 1024 // mapping keys in the whole file
	maxMetaDepth = 8    // nested flow collections, or "- - -" on a line
	maxMetaList  = 1 << 14

	maxPositions = 1 << 24 // context, state and mask lengths
	maxBatch     = 1 << 16
	maxChunks    = 999
	maxVocab     = 1 << 24
	maxSplit     = 1 << 12
	maxWidth     = 1 << 24 // hidden sizes and the like
	maxLayers    = 1 << 12
)

// ParseMeta reads a meta.yaml. Keys of model_info.parameters may also stand
// directly under model_info; unknown keys are ignored; absent keys get the
// defaults that the comments of [Meta] give. Errors name the line, the key,
// what was found and what was wanted.
//
// Anchors, aliases and tags are refused (no ANEMLL file has any), as are
// files above 64 KiB.
func ParseMeta(data []byte) (m *Meta, err error) {
	defer func() { // the YAML parser is not ours
		if r := recover(); r != nil {
			m, err = nil, fmt.Errorf("%s: not readable as YAML: %v", MetaFile, r)
		}
	}()
	if len(data) > maxMetaBytes {
		return nil, fmt.Errorf("%s: %d bytes long; at most %d are read", MetaFile, len(data), maxMetaBytes)
	}
	if !utf8.Valid(data) {
		return nil, fmt.Errorf("%s: not UTF-8 text", MetaFile)
	}
	text := strings.TrimPrefix(string(data), "\ufeff")
	tokens := lexer.Tokenize(text)
	if err := checkTokens(tokens); err != nil {
		return nil, fmt.Errorf("%s:%w", MetaFile, err)
	}
	file, err := parser.Parse(tokens, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: not readable as YAML: %s", MetaFile, firstLine(err))
	}
	var root *mapping
	for _, doc := range file.Docs {
		if doc.Body != nil {
			if root, err = newMapping("", doc.Body); err != nil {
				return nil, fmt.Errorf("%s:%w", MetaFile, err)
			}
			break
		}
	}
	m, err = decodeMeta(root)
	if err != nil {
		return nil, fmt.Errorf("%s:%w", MetaFile, err)
	}
	m.Conversion = parseNotes(text)
	return m, nil
}

// checkTokens refuses what would make the parser slow or needs more of YAML
// than a meta.yaml does.
func checkTokens(tokens token.Tokens) error {
	flow, keys, run, line := 0, 0, 0, 0
	for _, t := range tokens {
		if t.Position != nil && t.Position.Line != line {
			line, run = t.Position.Line, 0
		}
		switch t.Type {
		case token.AnchorType, token.AliasType:
			return fmt.Errorf("%d: found an anchor or alias (%q); write the value out instead", line, t.Value)
		case token.TagType, token.MergeKeyType, token.DirectiveType, token.MappingKeyType:
			return fmt.Errorf("%d: found %q; tags, directives, merge keys and explicit keys are not read", line, t.Value)
		case token.MappingStartType, token.SequenceStartType:
			flow++
		case token.MappingEndType, token.SequenceEndType:
			flow--
		case token.SequenceEntryType:
			run++
		case token.MappingValueType:
			keys++
		}
		if flow > maxMetaDepth || run > maxMetaDepth {
			return fmt.Errorf("%d: lists or maps nested more than %d deep", line, maxMetaDepth)
		}
		if keys > maxMetaKeys {
			return fmt.Errorf("%d: more than %d keys", line, maxMetaKeys)
		}
	}
	return nil
}

func firstLine(err error) string {
	s, _, _ := strings.Cut(err.Error(), "\n")
	if len(s) > 200 {
		s = s[:200]
	}
	return s
}

// mapping is a YAML map with its keys in order.
type mapping struct {
	path string // of the map, such as "model_info."
	keys []string
	vals map[string]ast.Node
}

func newMapping(path string, n ast.Node) (*mapping, error) {
	m := &mapping{path: path, vals: map[string]ast.Node{}}
	var entries []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.MappingNode:
		entries = n.Values
	case *ast.MappingValueNode:
		entries = []*ast.MappingValueNode{n}
	case *ast.NullNode:
	default:
		where := strings.TrimSuffix(path, ".")
		if where == "" {
			where = "the file"
		}
		return nil, wrong(n, where, "a map")
	}
	for _, e := range entries {
		k := e.Key.GetToken().Value
		if _, dup := m.vals[k]; dup {
			return nil, fmt.Errorf("%d: %s%s occurs twice", lineOf(e), path, k)
		}
		m.keys = append(m.keys, k)
		m.vals[k] = e.Value
	}
	return m, nil
}

func lineOf(n ast.Node) int {
	if n != nil {
		if t := n.GetToken(); t != nil && t.Position != nil {
			return t.Position.Line
		}
	}
	return 0
}

// wrong is the error for a value that is not what it should be.
func wrong(n ast.Node, path, want string) error {
	found := "nothing"
	switch v := n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		found = "a map"
	case *ast.SequenceNode:
		found = "a list"
	case *ast.LiteralNode:
		found = "a block of text"
	case nil:
	default:
		found = v.GetToken().Value
		if len(found) > 60 {
			found = found[:60] + "..."
		}
		found = strconv.Quote(found)
	}
	return fmt.Errorf("%d: %s: found %s, wanted %s", lineOf(n), path, found, want)
}

// reader reads the values of one or more maps (the first that has a key
// wins) into Go variables. The first error sticks.
type reader struct {
	in   []*mapping
	used map[string]bool
	err  error
}

// node returns the value of a key; nil if it is absent or null.
func (r *reader) node(key string) (ast.Node, string) {
	r.used[key] = true
	for _, m := range r.in {
		if n, ok := m.vals[key]; ok {
			if _, null := n.(*ast.NullNode); null || n == nil {
				return nil, ""
			}
			return n, m.path + key
		}
	}
	return nil, ""
}

func (r *reader) fail(n ast.Node, path, want string) {
	if r.err == nil {
		r.err = wrong(n, path, want)
	}
}

// scalar returns the text of a scalar as it stands in the file.
func scalar(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.StringNode:
		return n.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode, *ast.NullNode:
		return n.GetToken().Value, true
	}
	return "", false
}

func (r *reader) str(key string, dst *string) {
	n, path := r.node(key)
	if n == nil {
		return
	}
	s, ok := scalar(n)
	if !ok {
		r.fail(n, path, "text")
		return
	}
	*dst = s
}

func toInt(n ast.Node) (int, bool) {
	s, ok := scalar(n)
	if !ok {
		return 0, false
	}
	v, err := strconv.ParseInt(strings.TrimSpace(s), 10, 32)
	return int(v), err == nil
}

func (r *reader) int(key string, dst *int, lo, hi int) bool {
	n, path := r.node(key)
	if n == nil {
		return false
	}
	v, ok := toInt(n)
	if !ok || v < lo || v > hi {
		r.fail(n, path, fmt.Sprintf("a whole number from %d to %d", lo, hi))
		return false
	}
	*dst = v
	return true
}

func toFloat(n ast.Node) (float64, bool) {
	s, ok := scalar(n)
	if !ok {
		return 0, false
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	return v, err == nil && !math.IsNaN(v) && !math.IsInf(v, 0)
}

func (r *reader) float(key string, dst *float64, lo, hi float64) bool {
	n, path := r.node(key)
	if n == nil {
		return false
	}
	v, ok := toFloat(n)
	if !ok || v < lo || v > hi {
		r.fail(n, path, fmt.Sprintf("a number from %g to %g", lo, hi))
		return false
	}
	*dst = v + 0 // no negative zero
	return true
}

func (r *reader) bool(key string, dst *bool) bool {
	n, path := r.node(key)
	if n == nil {
		return false
	}
	s, ok := scalar(n)
	switch strings.ToLower(s) {
	case "true", "yes", "on": // YAML 1.1, which PyYAML reads
		*dst = true
	case "false", "no", "off":
		*dst = false
	default:
		ok = false
	}
	if !ok {
		r.fail(n, path, "true or false")
	}
	return ok
}

// list returns the elements of a list, or of the string "a, b, c" (also in
// brackets) that older tools write in place of one.
func (r *reader) list(key string) (items []string, n ast.Node, path string, ok bool) {
	n, path = r.node(key)
	if n == nil {
		return nil, nil, "", false
	}
	if seq, isSeq := n.(*ast.SequenceNode); isSeq {
		if len(seq.Values) > maxMetaList {
			r.fail(n, path, fmt.Sprintf("at most %d elements", maxMetaList))
			return nil, nil, "", false
		}
		for _, v := range seq.Values {
			s, ok := scalar(v)
			if !ok {
				r.fail(v, path, "a list of scalars")
				return nil, nil, "", false
			}
			items = append(items, s)
		}
		return items, n, path, true
	}
	s, isScalar := scalar(n)
	if !isScalar {
		r.fail(n, path, "a list")
		return nil, nil, "", false
	}
	s = strings.TrimSpace(s)
	if t, open := strings.CutPrefix(s, "["); open {
		s = strings.TrimSuffix(t, "]")
	}
	if strings.TrimSpace(s) == "" {
		return nil, n, path, true
	}
	if strings.Count(s, ",") >= maxMetaList {
		r.fail(n, path, fmt.Sprintf("at most %d elements", maxMetaList))
		return nil, nil, "", false
	}
	for e := range strings.SplitSeq(s, ",") {
		items = append(items, strings.TrimSpace(e))
	}
	return items, n, path, true
}

func (r *reader) ints(key string, dst *[]int, lo, hi int) {
	items, n, path, ok := r.list(key)
	if !ok {
		return
	}
	var out []int
	for _, s := range items {
		v, err := strconv.ParseInt(strings.TrimSpace(s), 10, 32)
		if err != nil || int(v) < lo || int(v) > hi {
			if r.err == nil {
				r.err = fmt.Errorf("%d: %s: found the element %.60q, wanted whole numbers from %d to %d", lineOf(n), path, s, lo, hi)
			}
			return
		}
		out = append(out, int(v))
	}
	*dst = out
}

func (r *reader) strs(key string, dst *[]string) {
	items, _, _, ok := r.list(key)
	if ok {
		*dst = items
	}
}

// lut reads "none" or a number of bits; "6,8" gives the group too.
func (r *reader) lut(key, groupKey string, dst *LUT) {
	n, path := r.node(key)
	if n != nil {
		s, ok := scalar(n)
		s = strings.TrimSpace(s)
		bits, group, both := strings.Cut(s, ",")
		switch {
		case !ok:
			r.fail(n, path, "none or a number of bits")
		case s == "" || strings.EqualFold(s, "none") || strings.EqualFold(s, "null"):
		default:
			b, err := strconv.ParseInt(strings.TrimSpace(bits), 10, 32)
			g := int64(0)
			if err == nil && both {
				g, err = strconv.ParseInt(strings.TrimSpace(group), 10, 32)
			}
			if err != nil || b < 1 || b > 8 || g < 0 || g > maxWidth {
				r.fail(n, path, "none or a number of bits from 1 to 8")
				return
			}
			*dst = LUT{int(b), int(g)}
		}
	}
	r.int(groupKey, &dst.Group, 0, maxWidth)
}

// sub returns a reader of the map under key, or nil.
func (r *reader) sub(key string) *reader {
	n, path := r.node(key)
	if n == nil {
		return nil
	}
	m, err := newMapping(path+".", n)
	if err != nil {
		if r.err == nil {
			r.err = err
		}
		return nil
	}
	return &reader{in: []*mapping{m}, used: map[string]bool{}}
}

func ptr[T any](v T) *T { return &v }

func decodeMeta(root *mapping) (*Meta, error) {
	if root == nil {
		return nil, errors.New(" the file is empty; wanted the key model_info")
	}
	n, ok := root.vals["model_info"]
	if !ok {
		return nil, errors.New(" the key model_info is missing: this is not the meta.yaml of an ANEMLL package")
	}
	info, err := newMapping("model_info.", n)
	if err != nil {
		return nil, err
	}
	in := []*mapping{info}
	if n, ok := info.vals["parameters"]; ok {
		params, err := newMapping("model_info.parameters.", n)
		if err != nil {
			return nil, err
		}
		in = []*mapping{params, info}
	}

	m := &Meta{ContextLength: 2048, BatchSize: 64, NumChunks: 1}
	ri := &reader{in: []*mapping{info}, used: map[string]bool{"parameters": true}}
	ri.str("name", &m.Name)
	ri.str("version", &m.Version)
	ri.str("description", &m.Description)
	m.Description = strings.TrimRight(m.Description, "\n")
	ri.str("license", &m.License)
	ri.str("author", &m.Author)
	ri.str("framework", &m.Framework)
	ri.str("language", &m.Language)
	if ri.err != nil {
		return nil, ri.err
	}

	r := &reader{in: in, used: ri.used}
	r.str("architecture", &m.Architecture)
	r.str("model_type", &m.ModelType)
	if strings.EqualFold(m.ModelType, "chunked") {
		m.ModelType = ""
	}
	r.int("context_length", &m.ContextLength, 1, maxPositions)
	r.int("state_length", &m.StateLength, 1, maxPositions)
	r.int("attention_size", &m.AttentionSize, 1, maxPositions)
	r.int("batch_size", &m.BatchSize, 1, maxBatch)
	r.lut("lut_embeddings", "lut_embeddings_per_channel", &m.LUTEmbeddings)
	r.lut("lut_ffn", "lut_ffn_per_channel", &m.LUTFFN)
	r.lut("lut_lmhead", "lut_lmhead_per_channel", &m.LUTLMHead)
	r.lut("lut_bits", "lut_per_channel", &m.LUTMonolithic)
	r.int("num_chunks", &m.NumChunks, 1, maxChunks)
	r.str("model_prefix", &m.ModelPrefix)
	r.str("embeddings", &m.Embeddings)
	r.str("lm_head", &m.LMHead)
	r.str("ffn", &m.FFN)
	r.str("pf", &m.PF)
	r.str("monolithic_model", &m.MonolithicModel)
	if m.ModelPrefix == "" {
		if m.ModelPrefix = "llama"; m.Monolithic() {
			m.ModelPrefix = "qwen"
		}
	}
	if m.SplitLMHead = 8; m.Monolithic() && strings.Contains(m.ModelPrefix, "qwen") {
		m.SplitLMHead = 16
	}
	if r.int("num_logits", &m.NumLogits, 1, maxSplit) {
		m.SplitLMHead = m.NumLogits
	}
	r.int("split_lm_head", &m.SplitLMHead, 1, maxSplit)
	r.bool("argmax_in_model", &m.ArgmaxInModel)
	r.int("vocab_size", &m.VocabSize, 1, maxVocab)
	r.ints("lm_head_chunk_sizes", &m.LMHeadChunkSizes, 1, maxVocab)
	r.bool("split_rotate", &m.SplitRotate)
	if strings.HasPrefix(m.ModelPrefix, "gemma3") {
		m.SlidingWindow = 512
	}
	r.int("sliding_window", &m.SlidingWindow, 1, maxPositions)
	r.bool("update_mask_prefill", &m.UpdateMaskPrefill)
	r.bool("prefill_dynamic_slice", &m.PrefillDynamicSlice)
	r.bool("single_cache", &m.SingleCache)
	r.strs("functions", &m.Functions)
	r.str("tokenizer_path", &m.TokenizerPath)
	r.bool("per_chunk_state", &m.PerChunkState)
	r.bool("infer_only", &m.InferOnly)

	r.bool("prefill_last_token_output", &m.PrefillLastTokenOutput)
	r.int("hidden_size", &m.HiddenSize, 1, maxWidth)
	r.int("num_layers", &m.NumLayers, 1, maxLayers)
	m.RecommendedSampling = r.sampling("recommended_sampling")

	r.bool("recurrent_state", &m.RecurrentState)
	r.bool("prefill_full_batches_only", &m.PrefillFullBatchesOnly)
	r.int("gdn_chunk_size", &m.GDNChunkSize, 1, maxBatch)
	m.MoE = r.moe("moe")
	r.strs("layer_types", &m.LayerTypes)
	r.int("local_attention_window", &m.LocalAttentionWindow, 1, maxPositions)
	r.int("local_cache_length", &m.LocalCacheLength, 1, maxPositions)
	r.float("final_logit_softcap", &m.FinalLogitSoftcap, 0, 1e6)
	r.int("per_layer_inputs", &m.PerLayerInputs, 1, maxWidth)
	m.KVSharedLayers = r.layerMap("kv_shared_layers")
	m.States = r.states("states")
	r.str("quant_embeddings", &m.QuantEmbeddings)
	r.str("quant_ffn", &m.QuantFFN)
	r.str("quant_lmhead", &m.QuantLMHead)
	r.float("lut_ffn_mixed", &m.LUTFFNMixed, 0, 32)
	if r.err != nil {
		return nil, r.err
	}

	m.given = map[string]bool{}
	for i, mp := range append(in, root) {
		for _, k := range mp.keys {
			switch {
			case i < len(in) && r.used[k]:
				m.given[k] = true
			case k != "model_info":
				m.unknown = append(m.unknown, k)
			}
		}
	}
	return m, nil
}

func (r *reader) sampling(key string) *RecommendedSampling {
	sub := r.sub(key)
	if sub == nil {
		return nil
	}
	s := &RecommendedSampling{}
	number := func(dst **float64, lo, hi float64, keys ...string) {
		for _, k := range keys {
			if v := 0.0; *dst == nil && sub.float(k, &v, lo, hi) {
				*dst = &v
			}
		}
	}
	if b := false; sub.bool("do_sample", &b) || sub.bool("doSample", &b) {
		s.DoSample = &b
	}
	number(&s.Temperature, 0, 1000, "temperature")
	number(&s.TopP, 0, 1, "top_p", "topP")
	if k := 0; sub.int("top_k", &k, 0, maxVocab) || sub.int("topK", &k, 0, maxVocab) {
		s.TopK = ptr(k)
	}
	number(&s.MinP, 0, 1, "min_p", "minP")
	number(&s.RepetitionPenalty, 1e-6, 1e6, "repetition_penalty", "repetitionPenalty")
	if r.err == nil {
		r.err = sub.err
	}
	return s
}

func (r *reader) moe(key string) *MoE {
	sub := r.sub(key)
	if sub == nil {
		return nil
	}
	m := &MoE{}
	sub.int("experts", &m.Experts, 1, maxWidth)
	sub.int("experts_per_token", &m.ExpertsPerToken, 1, maxWidth)
	sub.str("evaluation", &m.Evaluation)
	if r.err == nil {
		r.err = sub.err
	}
	return m
}

func (r *reader) layerMap(key string) map[int]int {
	n, path := r.node(key)
	if n == nil {
		return nil
	}
	m, err := newMapping(path+".", n)
	if err != nil {
		if r.err == nil {
			r.err = err
		}
		return nil
	}
	out := map[int]int{}
	for _, k := range m.keys {
		from, err := strconv.ParseInt(strings.TrimSpace(k), 10, 32)
		to, ok := toInt(m.vals[k])
		if err != nil || !ok || from < 0 || to < 0 || from >= maxLayers || to >= maxLayers {
			r.fail(m.vals[k], m.path+k, "layer: layer")
			return nil
		}
		out[int(from)] = to
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

func (r *reader) states(key string) []StateInfo {
	n, path := r.node(key)
	if n == nil {
		return nil
	}
	seq, ok := n.(*ast.SequenceNode)
	if !ok || len(seq.Values) > 64 {
		r.fail(n, path, "a list of at most 64 states")
		return nil
	}
	var out []StateInfo
	for i, v := range seq.Values {
		m, err := newMapping(fmt.Sprintf("%s[%d].", path, i), v)
		if err != nil {
			if r.err == nil {
				r.err = err
			}
			return nil
		}
		sub := &reader{in: []*mapping{m}, used: map[string]bool{}}
		var s StateInfo
		sub.str("name", &s.Name)
		sub.ints("shape", &s.Shape, 1, math.MaxInt32)
		sub.str("dtype", &s.DType)
		sub.ints("layers", &s.Layers, 0, maxLayers-1)
		if sub.err == nil && (s.Name == "" || len(s.Shape) == 0 || len(s.Shape) > 8) {
			sub.err = wrong(v, fmt.Sprintf("%s[%d]", path, i), "a map with name and shape (1 to 8 dimensions)")
		}
		if r.err == nil {
			r.err = sub.err
		}
		out = append(out, s)
	}
	return out
}

const notesTitle = "Conversion Parameters (for troubleshooting)"

// parseNotes reads the comments that ANEMLL puts at the end of the file.
func parseNotes(text string) []Note {
	_, text, ok := strings.Cut(text, "\n# "+notesTitle+"\n")
	if !ok {
		return nil
	}
	var notes []Note
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimRight(line, "\r")
		body, ok := strings.CutPrefix(line, "#")
		if !ok {
			break
		}
		if strings.HasPrefix(body, " ===") {
			if notes != nil {
				break
			}
			continue
		}
		k, v, ok := strings.Cut(body, ":")
		if k = oneLine(k); ok && k != "" && !strings.HasPrefix(k, "===") {
			notes = append(notes, Note{k, oneLine(v)})
		}
	}
	return notes
}
