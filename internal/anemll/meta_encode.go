package anemll

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Encode returns the text of meta.yaml in the shape of ANEMLL's own
// generator, which its distribution script parses with grep and cut: two and
// four spaces of indentation, unquoted scalars wherever that is safe, lists on
// one line, the conversion parameters as comments at the end. Keys stand in
// the order of the contract and only those that apply. The result needs no
// more of YAML than hand-written readers know: no anchors, tags or values over
// several lines other than the description.
//
// ParseMeta(m.Encode()) gives m again if m holds values that ParseMeta
// accepts.
func (m *Meta) Encode() []byte {
	w := &metaWriter{}
	w.WriteString("model_info:\n")
	w.indent = "  "
	w.str("name", m.Name)
	w.str("version", m.Version)
	w.text("description", m.Description)
	w.str("license", m.License)
	w.str("author", m.Author)
	w.str("framework", m.Framework)
	w.str("language", m.Language)
	w.str("architecture", m.Architecture)
	w.str("model_type", m.ModelType)
	w.WriteString("  parameters:\n")
	w.indent = "    "

	w.int("context_length", m.ContextLength)
	w.int("state_length", m.StateLength)
	w.int("attention_size", m.AttentionSize)
	w.int("batch_size", m.BatchSize)
	mono := m.Monolithic()
	w.lut("lut_embeddings", m.LUTEmbeddings, !mono)
	w.lut("lut_ffn", m.LUTFFN, !mono)
	w.lut("lut_lmhead", m.LUTLMHead, !mono)
	w.lut("lut_bits", m.LUTMonolithic, mono)
	w.int("num_chunks", m.NumChunks)
	w.str("model_prefix", m.ModelPrefix)
	w.str("embeddings", m.Embeddings)
	w.str("lm_head", m.LMHead)
	w.str("ffn", m.FFN)
	w.str("pf", m.PF)
	w.str("monolithic_model", m.MonolithicModel)
	w.int("split_lm_head", m.SplitLMHead)
	w.int("num_logits", m.NumLogits)
	w.bool("argmax_in_model", m.ArgmaxInModel)
	w.int("vocab_size", m.VocabSize)
	w.ints("lm_head_chunk_sizes", m.LMHeadChunkSizes)
	w.bool("split_rotate", m.SplitRotate)
	w.int("sliding_window", m.SlidingWindow)
	w.bool("update_mask_prefill", m.UpdateMaskPrefill)
	w.bool("prefill_dynamic_slice", m.PrefillDynamicSlice)
	w.bool("single_cache", m.SingleCache)
	w.strs("functions", m.Functions)
	w.str("tokenizer_path", m.TokenizerPath)
	w.bool("per_chunk_state", m.PerChunkState)
	w.bool("infer_only", m.InferOnly)

	w.bool("prefill_last_token_output", m.PrefillLastTokenOutput)
	w.int("hidden_size", m.HiddenSize)
	w.int("num_layers", m.NumLayers)
	if s := m.RecommendedSampling; s != nil {
		var kv []string
		if s.DoSample != nil {
			kv = append(kv, fmt.Sprintf("do_sample: %t", *s.DoSample))
		}
		for _, f := range []struct {
			key string
			v   *float64
		}{{"temperature", s.Temperature}, {"top_p", s.TopP}} {
			if f.v != nil {
				kv = append(kv, f.key+": "+formatFloat(*f.v, 1))
			}
		}
		if s.TopK != nil {
			kv = append(kv, fmt.Sprintf("top_k: %d", *s.TopK))
		}
		for _, f := range []struct {
			key string
			v   *float64
		}{{"min_p", s.MinP}, {"repetition_penalty", s.RepetitionPenalty}} {
			if f.v != nil {
				kv = append(kv, f.key+": "+formatFloat(*f.v, 1))
			}
		}
		w.raw("recommended_sampling", "{"+strings.Join(kv, ", ")+"}")
	}

	w.bool("recurrent_state", m.RecurrentState)
	w.bool("prefill_full_batches_only", m.PrefillFullBatchesOnly)
	w.int("gdn_chunk_size", m.GDNChunkSize)
	if e := m.MoE; e != nil {
		var kv []string
		if e.Experts != 0 {
			kv = append(kv, fmt.Sprintf("experts: %d", e.Experts))
		}
		if e.ExpertsPerToken != 0 {
			kv = append(kv, fmt.Sprintf("experts_per_token: %d", e.ExpertsPerToken))
		}
		if e.Evaluation != "" {
			kv = append(kv, "evaluation: "+quote(e.Evaluation, true))
		}
		w.raw("moe", "{"+strings.Join(kv, ", ")+"}")
	}
	w.int("local_attention_window", m.LocalAttentionWindow)
	w.int("local_cache_length", m.LocalCacheLength)
	if m.FinalLogitSoftcap != 0 {
		w.raw("final_logit_softcap", formatFloat(m.FinalLogitSoftcap, 1))
	}
	w.int("per_layer_inputs", m.PerLayerInputs)
	if len(m.KVSharedLayers) > 0 {
		var kv []string
		for _, k := range slices.Sorted(maps.Keys(m.KVSharedLayers)) {
			kv = append(kv, fmt.Sprintf("%d: %d", k, m.KVSharedLayers[k]))
		}
		w.raw("kv_shared_layers", "{"+strings.Join(kv, ", ")+"}")
	}
	w.str("quant_embeddings", m.QuantEmbeddings)
	w.str("quant_ffn", m.QuantFFN)
	w.str("quant_lmhead", m.QuantLMHead)
	if m.LUTFFNMixed != 0 {
		w.raw("lut_ffn_mixed", formatFloat(m.LUTFFNMixed, 2))
	}
	w.strs("layer_types", m.LayerTypes)
	if len(m.States) > 0 {
		w.WriteString("    states:\n")
		for _, s := range m.States {
			w.indent = "      - "
			w.str("name", s.Name)
			w.indent = "        "
			w.ints("shape", s.Shape)
			w.str("dtype", s.DType)
			w.ints("layers", s.Layers)
		}
	}

	if len(m.Conversion) > 0 {
		rule := "# " + strings.Repeat("=", 77) + "\n"
		w.WriteString("\n" + rule + "# " + notesTitle + "\n" + rule + "#\n")
		for _, n := range m.Conversion {
			w.WriteString(strings.TrimRight("# "+oneLine(n.Key)+": "+oneLine(n.Value), " ") + "\n")
		}
		w.WriteString(rule)
	}
	return w.Bytes()
}

type metaWriter struct {
	bytes.Buffer
	indent string
}

func (w *metaWriter) raw(key, value string) {
	w.WriteString(w.indent + key + ": " + value + "\n")
}

func (w *metaWriter) str(key, v string) {
	if v != "" {
		w.raw(key, quote(v, false))
	}
}

// text writes a block scalar, or a quoted one for text that a block cannot
// hold without further marks.
func (w *metaWriter) text(key, v string) {
	v = strings.TrimRight(v, "\n")
	if v == "" {
		return
	}
	first, _, _ := strings.Cut(v, "\n")
	bad := strings.TrimSpace(first) == "" || first[0] == ' '
	for line := range strings.SplitSeq(v, "\n") {
		bad = bad || strings.HasSuffix(line, " ")
	}
	if bad || !utf8.ValidString(v) || strings.ContainsFunc(v, func(r rune) bool { return r != '\n' && special(r) }) {
		w.raw(key, doubleQuote(v))
		return
	}
	w.WriteString(w.indent + key + ": |\n")
	for line := range strings.SplitSeq(v, "\n") {
		if line != "" {
			w.WriteString(w.indent + "  " + line)
		}
		w.WriteByte('\n')
	}
}

func (w *metaWriter) int(key string, v int) {
	if v != 0 {
		w.raw(key, strconv.Itoa(v))
	}
}

func (w *metaWriter) bool(key string, v bool) {
	if v {
		w.raw(key, "true")
	}
}

func (w *metaWriter) lut(key string, l LUT, always bool) {
	group := strings.TrimSuffix(key, "_bits") + "_per_channel"
	switch {
	case l.Bits != 0:
		w.int(key, l.Bits)
	case always:
		w.raw(key, "none")
	}
	w.int(group, l.Group)
}

func (w *metaWriter) ints(key string, v []int) {
	if len(v) == 0 {
		return
	}
	s := make([]string, len(v))
	for i, x := range v {
		s[i] = strconv.Itoa(x)
	}
	w.raw(key, "["+strings.Join(s, ", ")+"]")
}

func (w *metaWriter) strs(key string, v []string) {
	if len(v) == 0 {
		return
	}
	s := make([]string, len(v))
	for i, x := range v {
		s[i] = quote(x, true)
	}
	w.raw(key, "["+strings.Join(s, ", ")+"]")
}

// formatFloat avoids the exponents that YAML 1.1 readers take for text.
func formatFloat(v float64, decimals int) string {
	s := strconv.FormatFloat(v, 'f', -1, 64)
	_, frac, _ := strings.Cut(s, ".")
	if len(frac) < decimals && !math.IsInf(v, 0) && !math.IsNaN(v) {
		return strconv.FormatFloat(v, 'f', decimals, 64)
	}
	return s
}

// oneLine makes s fit for a comment.
func oneLine(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if special(r) {
			return ' '
		}
		return r
	}, s))
}

// special reports runes that YAML readers treat as line breaks, refuse, or
// drop.
func special(r rune) bool {
	return r < ' ' || (r >= 0x7f && r <= 0x9f) || r == 0x2028 || r == 0x2029 || r == 0xfeff || r == 0xfffd ||
		(r >= 0xfff0 && r <= 0xffff)
}

// quote returns s as a scalar: plain if every reader takes it for the same
// text. In a flow list or map the brackets and commas are special too.
func quote(s string, flow bool) string {
	if plainSafe(s, flow) {
		return s
	}
	return doubleQuote(s)
}

func plainSafe(s string, flow bool) bool {
	if s == "" || s != strings.TrimSpace(s) {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '_', c == '/', c >= '0' && c <= '9':
		case c == '.', c == '-', c == '+', c == '(', c == ')', c == ';', c == ' ':
			if i == 0 {
				return false
			}
		case c == ',', c == '=':
			if i == 0 || flow {
				return false
			}
		default: // quotes, ':', '#', '{' ... and everything beyond ASCII
			return false
		}
	}
	switch strings.ToLower(s) {
	case "null", "true", "false", "yes", "no", "on", "off", "y", "n":
		return false
	}
	// Anything that some reader might take for a number or a date; a version
	// such as 0.3.5 is none.
	if s[0] >= '0' && s[0] <= '9' && strings.Trim(s, "0123456789abcdefABCDEFoxOX_.+-: ,") == "" {
		return strings.Count(s, ".") >= 2 && strings.Trim(s, "0123456789.") == ""
	}
	return true
}

func doubleQuote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case r < 0x100 && special(r):
			fmt.Fprintf(&b, `\x%02x`, r)
		case special(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
