package anemll

import (
	"strings"
	"testing"

	"anemone/internal/arch"
	"anemone/internal/compress"
	"anemone/mil"
)

// TestCheckExtension: what is refused, and what is only said.
func TestCheckExtension(t *testing.T) {
	// Qwen3.5-35B-A3B: 40 layers of 256 experts of width 512 in 2048.
	large := &arch.MoE{Experts: 256, ExpertsPerToken: 8, Evaluation: "dense", Parameters: 40 * 256 * 3 * 512 * 2048}
	small := &arch.MoE{Experts: 32, ExpertsPerToken: 4, Evaluation: "dense", Parameters: 8 * 32 * 3 * 512 * 1024}
	four := compress.Encoding{Bits: 4, Group: 8}
	for _, c := range []struct {
		name    string
		x       arch.Extension
		o       Options
		err     string // parts of it, separated by |
		warning string
	}{
		{"plain", arch.Extension{}, Options{Batch: 64}, "", ""},
		{"chunks of a plain transformer", arch.Extension{}, Options{Batch: 64, GDNChunk: 32}, "gdn-chunk 32|qwen3 has no Gated DeltaNets", ""},
		{"chunks that do not divide", arch.Extension{RecurrentState: true}, Options{Batch: 64, GDNChunk: 48}, "gdn-chunk 48|64", ""},
		{"chunks", arch.Extension{RecurrentState: true, GDNChunkSize: 32}, Options{Batch: 64, GDNChunk: 32}, "", ""},
		{"small chunks", arch.Extension{RecurrentState: true, GDNChunkSize: 13}, Options{Batch: 65}, "", "batches of 65 tokens go through the delta rule 13 at a time"},
		{"small batches", arch.Extension{RecurrentState: true, GDNChunkSize: 8}, Options{Batch: 8}, "", ""},
		{"few experts", arch.Extension{MoE: small}, Options{Batch: 64}, "", ""},
		{"many experts", arch.Extension{MoE: large}, Options{Batch: 64}, "32.2 billion weights|64.4 GB|all 256 experts|takes 8|--allow-large-moe", ""},
		{"many experts of four bits", arch.Extension{MoE: large}, Options{Batch: 64, FFN: four}, "16.1 GB", ""},
		{"many experts, allowed", arch.Extension{MoE: large}, Options{Batch: 64, LargeMoE: true}, "", ""},
	} {
		p := &plan{opts: c.o, info: arch.Info{Architecture: "qwen3"}}
		err := p.checkExtension(c.x)
		if (err == nil) != (c.err == "") {
			t.Errorf("%s: error %v, want %q", c.name, err, c.err)
		}
		for _, part := range strings.Split(c.err, "|") {
			if err != nil && !strings.Contains(err.Error(), part) {
				t.Errorf("%s: error %q does not say %q", c.name, err, part)
			}
		}
		if got := strings.Join(p.warnings, "\n"); (got == "") != (c.warning == "") || !strings.Contains(got, c.warning) {
			t.Errorf("%s: warnings %q, want %q", c.name, got, c.warning)
		}
	}
}

// TestTooLarge: results that the Neural Engine cannot take are counted, large
// constants and states are not.
func TestTooLarge(t *testing.T) {
	build := func(channels int) *mil.Function {
		b := mil.NewBuilder("infer", mil.CoreML8)
		x := b.Input("x", mil.TensorOf(mil.Float16, 1, channels, 1, 1))
		y := b.Op("tanh", mil.A("x", x))
		b.Output("y", b.Op("add", mil.A("x", y), mil.A("y", x)))
		f, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for channels, want := range map[int]string{65536: "", 65537: "2 operations with results as wide as tanh, tensor<fp16, [1, 65537, 1, 1]>"} {
		if got := tooLarge(build(channels)); got != want {
			t.Errorf("%d channels: %q, want %q", channels, got, want)
		}
	}
}
