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
