package gemma4

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"anemone/coreml"
	"anemone/internal/anemll"
	"anemone/internal/arch/archtest"
	"anemone/internal/arch/dense"
	"anemone/internal/checkpoint"
	"anemone/internal/compress"
	"anemone/internal/engine"
	"anemone/internal/runner"
	"anemone/internal/session"
)

// large is the environment variable that allows tests of real models' shapes.
// "fp16" or an encoding such as "6,8" says how the decoder is stored:
//
//	ANEMONE_LARGE=6,8 go test ./internal/arch/gemma4 -run RealShapes -v -timeout 60m
//
// It takes up to 15 GB of disk.
const large = "ANEMONE_LARGE"

// status returns a figure of /proc/self/status in bytes.
func status(t *testing.T, key string) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip("needs /proc: ", err)
	}
	for line := range strings.Lines(string(b)) {
		var kb int64
		if rest, ok := strings.CutPrefix(line, key+":"); ok {
			fmt.Sscan(rest, &kb)
			return kb << 10
		}
	}
	t.Fatalf("/proc/self/status does not say %s", key)
	return 0
}

// filled are the tokens whose rows of the tables are not zero: the tables of
// the checkpoint are sparse files otherwise.
var filled = []int32{0, 5, 131072, 239674, 262143}

// makeE2B writes a checkpoint of E2B's shapes with random weights.
func makeE2B(t *testing.T, dir string) {
	t.Helper()
	config := wrap(e2b())
	if err := os.WriteFile(filepath.Join(dir, "config.json"), archtest.Encode(t, config), 0o666); err != nil {
		t.Fatal(err)
	}
	cfg, err := parse(archtest.Encode(t, config))
	if err != nil {
		t.Fatal(err)
	}
	type tensor struct {
		name  string
		shape []int
	}
	var list []tensor
	add := func(name string, shape ...int) { list = append(list, tensor{prefixes[0] + name, shape}) }
	add("embed_tokens.weight", cfg.Vocab, cfg.Hidden)
	add("embed_tokens_per_layer.weight", cfg.PerLayerVocab, cfg.Layers*cfg.PerLayer)
	add("per_layer_model_projection.weight", cfg.Layers*cfg.PerLayer, cfg.Hidden)
	add("per_layer_projection_norm.weight", cfg.PerLayer)
	add("norm.weight", cfg.Hidden)
	for i := range cfg.Layers {
		p, d := fmt.Sprintf("layers.%d.", i), cfg.Attention(cfg.Kinds[i]).HeadDim
		add(p+"self_attn.q_proj.weight", cfg.QuerySize(i), cfg.Hidden)
		add(p+"self_attn.k_proj.weight", cfg.KVSize(i), cfg.Hidden)
		add(p+"self_attn.v_proj.weight", cfg.KVSize(i), cfg.Hidden)
		add(p+"self_attn.o_proj.weight", cfg.Hidden, cfg.QuerySize(i))
		add(p+"self_attn.q_norm.weight", d)
		add(p+"self_attn.k_norm.weight", d)
		add(p+"mlp.gate_proj.weight", cfg.MLPSize(i), cfg.Hidden)
		add(p+"mlp.up_proj.weight", cfg.MLPSize(i), cfg.Hidden)
		add(p+"mlp.down_proj.weight", cfg.Hidden, cfg.MLPSize(i))
		add(p+"per_layer_input_gate.weight", cfg.PerLayer, cfg.Hidden)
		add(p+"per_layer_projection.weight", cfg.Hidden, cfg.PerLayer)
		add(p+"layer_scalar", 1)
		for _, n := range []string{"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm", "post_per_layer_input_norm"} {
			add(p+n+".weight", cfg.Hidden)
		}
	}
	header := map[string]any{"__metadata__": map[string]string{"format": "pt"}}
	at := int64(0)
	offsets := make([]int64, len(list))
	for i, x := range list {
		size := int64(2)
		for _, d := range x.shape {
			size *= int64(d)
		}
		header[x.name] = map[string]any{"dtype": "BF16", "shape": x.shape, "data_offsets": []int64{at, at + size}}
		offsets[i] = at
		at += size
	}
	head, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(8 + int64(len(head)) + at); err != nil {
		t.Fatal(err)
	}
	put := func(b []byte, off int64) {
		if _, err := f.WriteAt(b, off); err != nil {
			t.Fatal(err)
		}
	}
	put(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), 0)
	put(head, 8)
	base := 8 + int64(len(head))

	// A stretch of normal numbers that all matrices repeat, each from another
	// place.
	rng := rand.New(rand.NewPCG(1, 2))
	normal := make([]float64, 1<<20|1)
	for i := range normal {
		normal[i] = rng.NormFloat64()
	}
	bf16 := func(n int, first int64, scale, offset float64) []byte {
		b := make([]byte, 2*n)
		for i := range n {
			v := float32(offset + scale*normal[(first+int64(i))%int64(len(normal))])
			binary.LittleEndian.PutUint16(b[2*i:], uint16(math.Float32bits(v)>>16))
		}
		return b
	}
	for i, x := range list {
		off := base + offsets[i]
		switch {
		case strings.Contains(x.name, "embed_tokens"):
			for _, tok := range filled {
				put(bf16(x.shape[1], int64(tok)*977, 0.03, 0), off+2*int64(tok)*int64(x.shape[1]))
			}
		case len(x.shape) == 1:
			put(bf16(x.shape[0], offsets[i], 0.1, 1), off)
		default:
			n := x.shape[0] * x.shape[1]
			for from := 0; from < n; from += 1 << 20 {
				k := min(1<<20, n-from)
				put(bf16(k, offsets[i]+int64(from), 0.7/math.Sqrt(float64(x.shape[1])), 0), off+2*int64(from))
			}
		}
	}
}

// TestRealShapes converts a checkpoint of E2B's shapes in less than 1 GB of
// memory, and runs a token with less than 100 MB for the embeddings, whose
// tables take 5.5 GB.
func TestRealShapes(t *testing.T) {
	form := os.Getenv(large)
	if form == "" {
		t.Skipf("takes minutes and 15 GB of disk: set %s", large)
	}
	var e compress.Encoding
	if form != "fp16" {
		var err error
		if e, err = compress.ParseEncoding(form); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	src, out := filepath.Join(dir, "src"), filepath.Join(dir, "out")
	if err := os.Mkdir(src, 0o777); err != nil {
		t.Fatal(err)
	}
	makeE2B(t, src)
	runtime.GC()
	t.Logf("memory before: %d MB", status(t, "VmHWM")>>20)

	start := time.Now()
	report, err := anemll.Convert(t.Context(), registry, src, out, anemll.Options{Context: 8192, Format: anemll.MLPackage, FFN: e, Head: e})
	if err != nil {
		t.Fatal(err)
	}
	peak := status(t, "VmHWM")
	t.Logf("%.1f GB in %.0f s, peak memory %d MB", float64(report.Bytes)/1e9, time.Since(start).Seconds(), peak>>20)
	if peak >= 1<<30 {
		t.Errorf("the conversion took %d MB of memory, want less than 1024", peak>>20)
	}
	for _, p := range report.Parts {
		t.Logf("%s: %.2f GB", p.Name, float64(p.Bytes)/1e9)
	}

	p, err := anemll.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if p.Meta.LocalCacheLength != 640 {
		t.Errorf("local_cache_length %d, want 640", p.Meta.LocalCacheLength)
	}
	runtime.GC()
	before := status(t, "VmRSS")
	em, err := engine.New(p.Embeddings.Model, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ck, err := checkpoint.Open(src)
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	m, err := Open(ck)
	if err != nil {
		t.Fatal(err)
	}
	ref := newReference(m.(*Model).cfg, m.(*Model).set)
	results := map[int32]runner.Values{}
	for _, tok := range filled {
		o := runner.Values{}
		if err := em.Predict(t.Context(), "main", runner.Values{"input_ids": runner.Ints([]int32{tok}, 1, 1)}, o, nil); err != nil {
			t.Fatal(err)
		}
		results[tok] = o
	}
	grown := status(t, "VmRSS") - before
	t.Logf("the embeddings take %d MB after a few tokens", grown>>20)
	if grown >= 100<<20 {
		t.Errorf("the embeddings take %d MB of memory, want less than 100", grown>>20)
	}
	for tok, o := range results {
		x := dense.New(1, ref.cfg.Hidden)
		ref.w.Embed.Float32(x.Data, int(tok)*ref.cfg.Hidden)
		for i := range x.Data {
			x.Data[i] *= float32(math.Sqrt(float64(ref.cfg.Hidden)))
		}
		want, err := ref.perLayerInputs(t.Context(), []int32{tok}, x)
		if err != nil {
			t.Fatal(err)
		}
		if d := archtest.Difference(o["hidden_states"].Float, x.Data); !(d <= 2e-3) {
			t.Errorf("the embedding of token %d differs by %g", tok, d)
		}
		if d := archtest.Difference(o["per_layer_inputs"].Float, want.Data); !(d <= 1e-2) {
			t.Errorf("the inputs of token %d differ by %g", tok, d)
		}
		if archtest.Cosine(o["per_layer_inputs"].Float, want.Data) < 0.99999 {
			t.Errorf("the inputs of token %d point elsewhere", tok)
		}
	}
	if err := em.Close(); err != nil {
		t.Fatal(err)
	}

	sm, err := session.Load(p, func(m *coreml.Model) (runner.Model, error) { return engine.New(m, engine.Options{}) })
	if err != nil {
		t.Fatal(err)
	}
	defer sm.Close()
	s, err := sm.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	var times bytes.Buffer
	for _, tok := range filled {
		start := time.Now()
		logits, err := s.Feed(t.Context(), []int32{tok})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&times, " %.2f", time.Since(start).Seconds())
		for _, v := range logits {
			if math.IsNaN(float64(v)) || v > 30 || v < -30 {
				t.Fatalf("a logit of %g", v)
			}
		}
	}
	t.Logf("seconds per token:%s; memory %d MB, of which %d MB not from files", times.String(), status(t, "VmRSS")>>20, status(t, "RssAnon")>>20)
}
