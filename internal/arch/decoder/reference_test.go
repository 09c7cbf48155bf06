package decoder

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"anemone/internal/arch/archtest"
	"anemone/internal/arch/dense"
	"anemone/internal/checkpoint"
)

// openReference opens one of Qwen3's random checkpoints: the option that it
// has and others lack are the norms of heads.
func openReference(t testing.TB, dir string) *Reference {
	t.Helper()
	ck, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ck.Close() })
	cfg, err := ReadConfig(ck.Config, &Family{Name: "Test", MaxPositions: 512})
	if err != nil {
		t.Fatal(err)
	}
	cfg.HeadNorms, cfg.QKVBias, cfg.OBias, cfg.MLPBias = true, BiasIfStored, BiasIfStored, BiasIfStored
	m, err := Open(ck, &Family{}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := m.Reference()
	if err != nil {
		t.Fatal(err)
	}
	return ref.(*Reference)
}

// Activations that are kept must be those of the computation that works in
// place, and each must still be what it is called.
func TestKeptActivations(t *testing.T) {
	ctx := context.Background()
	g := archtest.OpenGolden(t, "../qwen3/testdata/bias-untied/golden.safetensors")
	ref := openReference(t, "../qwen3/testdata/bias-untied")
	archtest.Feed(t, ref, g.Tokens[:5])
	n := len(g.Tokens) - 5
	inPlace, kept := ref.newActivations(n, false), ref.newActivations(n, true)
	for i, tok := range g.Tokens[5:] {
		ref.w.Embed.Float32(kept.In.Row(i), int(tok)*ref.cfg.Hidden)
	}
	in := kept.In.Clone()
	copy(inPlace.In.Data, in.Data)
	if err := ref.layer(ctx, 0, inPlace); err != nil {
		t.Fatal(err)
	}
	if err := ref.Truncate(5); err != nil {
		t.Fatal(err)
	}
	if err := ref.layer(ctx, 0, kept); err != nil {
		t.Fatal(err)
	}
	if !archtest.Same(inPlace.Out.Data, kept.Out.Data) {
		t.Error("the layer's output has other bits when its activations are kept")
	}
	if !archtest.Same(kept.In.Data, in.Data) {
		t.Error("the layer's input was overwritten")
	}
	for _, c := range []struct {
		what string
		got  dense.Matrix
		want string
	}{
		{"AttnIn", kept.AttnIn, "q_proj"}, {"Context", kept.Context, "o_proj"}, {"MLPIn", kept.MLPIn, "gate_proj"}, {"Act", kept.Act, "down_proj"},
	} {
		part := "self_attn."
		if strings.HasPrefix(c.want, "gate") || strings.HasPrefix(c.want, "down") {
			part = "mlp."
		}
		want := g.Matrix(t, "input.model.layers.0."+part+c.want)
		if d := archtest.Difference(c.got.Data, want.Slice(5, want.Rows).Data); d > 2e-5 {
			t.Errorf("%s differs by %g", c.what, d)
		}
	}
	// Act = silu(Gate) * Up, with a gate that was not overwritten.
	for i, gate := range kept.Gate.Data {
		want := float64(gate) / (1 + math.Exp(-float64(gate))) * float64(kept.Up.Data[i])
		if d := math.Abs(want - float64(kept.Act.Data[i])); d > 1e-6*(1+math.Abs(want)) {
			t.Fatalf("Act[%d] is %g, want %g", i, kept.Act.Data[i], want)
		}
	}
	for i, p := range kept.Probs {
		if want := 5 + i/ref.cfg.Heads + 1; len(p) != want {
			t.Fatalf("%d probabilities for token %d, want %d", len(p), i/ref.cfg.Heads, want)
		}
		var sum float64
		for _, v := range p {
			sum += float64(v)
		}
		if math.Abs(sum-1) > 1e-5 {
			t.Errorf("the probabilities of token %d add up to %g", i/ref.cfg.Heads, sum)
		}
	}
	// Rotations keep lengths, so those of K are its norm's alone; and they
	// differ from the projection's.
	weight := dense.Vector(ref.w.Layers[0].KNorm)
	for row := range n {
		for h := range ref.cfg.KVHeads {
			d := ref.cfg.HeadDim
			k, proj := kept.K.Row(row)[h*d:][:d], slices.Clone(kept.KProj.Row(row)[h*d:][:d])
			dense.RMSNorm(proj, proj, weight, ref.cfg.Eps)
			if a, b := dense.Dot(k, k), dense.Dot(proj, proj); math.Abs(a-b) > 1e-5*b {
				t.Errorf("key %d of token %d has squared length %g, want %g", h, row, a, b)
			}
		}
	}
}

// TestFrequencies holds those of graph and reference to what transformers
// computed in float32 for the checkpoints with and without scaling. torch's
// power has an error of one unit in the last place, and one of the graph's is
// rounded once rather than three times: two units of 2^-24 to 2^-23 each way.
func TestFrequencies(t *testing.T) {
	all := &Family{Name: "Test", MaxPositions: 512, Scalings: []string{Linear, Llama3}}
	for name, kinds := range map[string]string{"linear-biases": Linear, "llama3": Llama3, "mistral": ""} {
		ck, err := checkpoint.Open("../llama/testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		defer ck.Close()
		cfg, err := ReadConfig(ck.Config, all)
		if err != nil {
			t.Fatal(err)
		}
		if cfg.Scaling.Type != kinds {
			t.Errorf("%s: scaling %q, want %q", name, cfg.Scaling.Type, kinds)
		}
		want := archtest.OpenGolden(t, "../llama/testdata/"+name+"/golden.safetensors").Matrix(t, "inv_freq").Data
		for what, got := range map[string][]float32{"graph": invFreq(cfg), "reference": frequencies(cfg)} {
			if len(got) != len(want) {
				t.Fatalf("%s, %s: %d frequencies, want %d", name, what, len(got), len(want))
			}
			for i := range got {
				if d := math.Abs(float64(got[i])/float64(want[i]) - 1); d > 2.5e-7 {
					t.Errorf("%s, %s: frequency %d is %g, want %g (relative difference %g)", name, what, i, got[i], want[i], d)
				}
			}
		}
	}
}

// Every region of Llama 3's scaling, at the values of Llama 3.2: 131072
// positions from 8192 by a factor of 32. What turns 4 times within 8192
// positions or more stays, what turns once or less is divided, and half way,
// at 2.5 times, it is the mean of both.
func TestLlama3(t *testing.T) {
	c := &Config{RopeTheta: 500000, HeadDim: 64, Scaling: Scaling{Type: Llama3, Factor: 32, LowFreq: 1, HighFreq: 4, Original: 8192}}
	turns := func(n float64) float32 { return float32(n * 2 * math.Pi / 8192) }
	for _, k := range []struct{ turns, want float64 }{
		{1000, 1000}, {4.001, 4.001}, {2.5, 2.5 * (0.5 + 0.5/32)}, {1.75, 1.75 * (0.25 + 0.75/32)}, {0.999, 0.999 / 32}, {0.01, 0.01 / 32},
	} {
		if got := llama3(turns(k.turns), &c.Scaling); math.Abs(float64(got)/float64(turns(k.want))-1) > 1e-6 {
			t.Errorf("%g turns become %g, want %g", k.turns, float64(got)*8192/(2*math.Pi), k.want)
		}
	}
	// Both computations agree over a whole model, on either side of the edges.
	a, b := invFreq(c), frequencies(c)
	for i := range a {
		if math.Abs(float64(a[i])/float64(b[i])-1) > 1e-6 {
			t.Errorf("frequency %d: graph %g, reference %g", i, a[i], b[i])
		}
	}
}
