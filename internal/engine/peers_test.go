package engine

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"anemone/coreml/mlpackage"
	"anemone/internal/checkpoint/safetensors"
	"anemone/internal/float16"
	"anemone/internal/runner"
	"anemone/internal/testutil"
	"anemone/mil"
)

// peer is a package that ANEMLL wrote, called as its runtimes call it.
type peer struct {
	t          testing.TB
	emb, head  *Model
	chunks     []*Model
	ctx, batch int
	st         runner.State
}

func openModel(t testing.TB, path string, o Options) *Model {
	t.Helper()
	p, err := mlpackage.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(p.Model, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close(); p.Close() })
	return m
}

func openPeer(t testing.TB, dir, emb, ffn, head string, ctx, batch int, o Options) *peer {
	p := &peer{t: t, ctx: ctx, batch: batch}
	p.emb = openModel(t, filepath.Join(dir, emb+".mlpackage"), o)
	p.head = openModel(t, filepath.Join(dir, head+".mlpackage"), o)
	for i := range 2 {
		p.chunks = append(p.chunks, openModel(t, filepath.Join(dir, fmt.Sprintf("%s_chunk_%02dof02.mlpackage", ffn, i+1)), o))
	}
	st, err := p.chunks[0].NewState()
	if err != nil {
		t.Fatal(err)
	}
	p.st = st
	return p
}

func predict(t testing.TB, m *Model, fn string, in runner.Values, st runner.State) runner.Values {
	t.Helper()
	out := runner.Values{}
	if err := m.Predict(context.Background(), fn, in, out, st); err != nil {
		t.Fatal(err)
	}
	return out
}

func (p *peer) call(fn string, ids []int32, pos int) *runner.Tensor {
	p.t.Helper()
	n := len(ids)
	emb := predict(p.t, p.emb, p.emb.Functions()[0].Name, runner.Values{"input_ids": runner.Ints(ids, 1, n)}, nil)
	h := emb["hidden_states"]
	q := make([]int32, n)
	mask := make([]float32, n*p.ctx)
	for i := range q {
		q[i] = int32(pos + i)
		for j := pos + i + 1; j < p.ctx; j++ {
			mask[i*p.ctx+j] = float32(math.Inf(-1))
		}
	}
	for _, c := range p.chunks {
		out := predict(p.t, c, fn, runner.Values{
			"hidden_states": h,
			"position_ids":  runner.Ints(q, n),
			"causal_mask":   runner.Floats(mil.Float16, mask, 1, 1, n, p.ctx),
			"current_pos":   runner.Ints([]int32{int32(pos)}, 1),
		}, p.st)
		h = out["output_hidden_states"]
	}
	return h
}

func (p *peer) logits(h *runner.Tensor) []float32 {
	p.t.Helper()
	out := predict(p.t, p.head, p.head.Functions()[0].Name, runner.Values{"hidden_states": h}, nil)
	var l []float32
	for i := range len(out) {
		l = append(l, out[fmt.Sprintf("logits%d", i+1)].Float...)
	}
	return l
}

// golden reads a tensor of a safetensors file.
func golden(t testing.TB, f *safetensors.File, name string) (floats []float32, ints []int32) {
	t.Helper()
	info, ok := f.Lookup(name)
	if !ok {
		t.Fatalf("golden has no tensor %q", name)
	}
	b, err := f.Bytes(name)
	if err != nil {
		t.Fatal(err)
	}
	le := binary.LittleEndian
	switch d := fmt.Sprint(info.DType); d {
	case "F32":
		for i := 0; i < len(b); i += 4 {
			floats = append(floats, math.Float32frombits(le.Uint32(b[i:])))
		}
	case "F16":
		for i := 0; i < len(b); i += 2 {
			floats = append(floats, float16.ToFloat32(le.Uint16(b[i:])))
		}
	case "I32":
		for i := 0; i < len(b); i += 4 {
			ints = append(ints, int32(le.Uint32(b[i:])))
		}
	default:
		t.Fatalf("golden %q has elements of type %v", name, d)
	}
	return floats, ints
}

func maxDiff(t testing.TB, got, want []float32) float64 {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %d values, want %d", len(got), len(want))
	}
	d := 0.0
	for i := range got {
		if got[i] == want[i] {
			continue
		}
		e := math.Abs(float64(got[i]) - float64(want[i]))
		if math.IsNaN(e) {
			return e
		}
		d = max(d, e)
	}
	return d
}

// TestPeers runs packages that ANEMLL 0.3.5 wrote and holds every logit and
// the states to what the numpy interpreter of the same packages gave, in
// float32.
func TestPeers(t *testing.T) {
	for _, c := range []struct{ dir, emb, ffn, head string }{
		{"qwen3-fp16-c2", "qwen_embeddings", "qwen_FFN_PF", "qwen_lm_head"},
		{"qwen3-lut4-lut6-c2", "qwen_embeddings", "qwen_FFN_PF_lut4", "qwen_lm_head_lut6"},
	} {
		t.Run(c.dir, func(t *testing.T) {
			g, err := safetensors.Open(testutil.Shared(t, "peers", c.dir+".golden.safetensors"))
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			_, tokens := golden(t, g, "tokens")
			_, position := golden(t, g, "position")
			want, _ := golden(t, g, "logits")
			row := map[int][]float32{}
			vocab := len(want) / len(position)
			for i, p := range position {
				row[int(p)] = want[i*vocab : (i+1)*vocab]
			}
			p := openPeer(t, testutil.Shared(t, "peers", c.dir), c.emb, c.ffn, c.head, 256, 64, Options{})
			pos := 0
			for ; pos+p.batch <= len(tokens); pos += p.batch {
				p.call("prefill", tokens[pos:pos+p.batch], pos)
			}
			worst := 0.0
			for ; pos < len(tokens); pos++ {
				got := p.logits(p.call("infer", tokens[pos:pos+1], pos))
				if w := row[pos]; w != nil {
					d := maxDiff(t, got, w)
					if !(d <= 2e-3) {
						t.Errorf("position %d: logits differ by up to %g", pos, d)
					}
					worst = max(worst, d)
					delete(row, pos)
				}
			}
			if len(row) > 0 {
				t.Errorf("%d positions of the golden were not reached", len(row))
			}
			t.Logf("logits differ by up to %g", worst)
			for _, info := range g.Tensors() {
				name, ok := strings.CutPrefix(info.Name, "state.")
				if !ok {
					continue
				}
				want, _ := golden(t, g, info.Name)
				st, err := p.st.Read(name)
				if err != nil {
					t.Fatal(err)
				}
				worst := 0.0
				for i, x := range st.Float {
					// The golden's states were rounded to fp16.
					half := math.Abs(float64(want[i])) * 0x1p-11
					worst = max(worst, math.Abs(float64(x-want[i]))-half)
				}
				t.Logf("state %s differs by up to %g beyond rounding", name, worst)
				if !(worst <= 1e-4) {
					t.Errorf("state %s differs by up to %g beyond rounding", name, worst)
				}
			}
		})
	}
}

// TestPeerArgmax runs a package whose head returns the largest logit of each
// part and its place, instead of logits.
func TestPeerArgmax(t *testing.T) {
	const dir = "qwen3-lut6-argmax-c2"
	g, err := safetensors.Open(testutil.Shared(t, "peers", dir+".golden.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	_, tokens := golden(t, g, "tokens")
	_, position := golden(t, g, "position")
	_, idx := golden(t, g, "argmax_idx")
	vals, _ := golden(t, g, "argmax_val")
	p := openPeer(t, testutil.Shared(t, "peers", dir), "qwen_embeddings", "qwen_FFN_PF_lut6", "qwen_lm_head_lut6", 256, 64, Options{})
	parts := len(idx) / len(position)
	for at := 0; at+p.batch <= int(position[0]); at += p.batch {
		p.call("prefill", tokens[at:at+p.batch], at)
	}
	for i, pos := range position {
		h := p.call("infer", tokens[pos:pos+1], int(pos))
		out := predict(t, p.head, p.head.Functions()[0].Name, runner.Values{"hidden_states": h}, nil)
		if d := maxDiff(t, out["argmax_val"].Float, vals[i*parts:(i+1)*parts]); !(d <= 2e-3) {
			t.Errorf("position %d: largest logits differ by up to %g", pos, d)
		}
		for k, got := range out["argmax_idx"].Int {
			if want := idx[i*parts+k]; got != want {
				t.Errorf("position %d, part %d: largest logit is at %d, want %d", pos, k, got, want)
			}
		}
	}
}
