package check

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"anemone/internal/checkpoint/safetensors"
	"anemone/internal/float16"
)

func i32s(v ...int32) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, uint32(x))
	}
	return b
}

func i64s(v ...int64) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint64(b, uint64(x))
	}
	return b
}

func f32s(v ...float32) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

func f16s(v ...float32) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint16(b, float16.FromFloat32(x))
	}
	return b
}

func named(name string, d safetensors.DType, data []byte, shape ...int) safetensors.Named {
	return safetensors.Named{Name: name, DType: d, Shape: shape, Data: data}
}

func writeGolden(t testing.TB, tensors ...safetensors.Named) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "golden.safetensors")
	if err := safetensors.Write(path, tensors, nil); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestGoldenForms(t *testing.T) {
	g := golden(t, writeGolden(t,
		named("tokens", safetensors.I64, i64s(7, 8, 9), 3),
		named("logits", safetensors.F16, f16s(1, 2, 3, 4), 2, 2),
		named("position", safetensors.I64, i64s(2, 0), 2),
		named("prompt", safetensors.I32, i32s(7), 1),
		named("state.kv", safetensors.BF16, []byte{0x80, 0x3f, 0, 0xc0}, 1, 2),
	))
	if got := g.Tokens(); len(got) != 3 || got[0] != 7 || got[2] != 9 {
		t.Errorf("tokens %v", got)
	}
	row := make([]float32, 2)
	g.logits.floats(row, g.row[0]*g.vocab)
	if row[0] != 3 || row[1] != 4 || len(g.row) != 2 || g.row[2] != 0 {
		t.Errorf("row of token 0: %v; rows %v", row, g.row)
	}
	a := g.states["kv"]
	a.floats(row, 0)
	if row[0] != 1 || row[1] != -2 {
		t.Errorf("state %v", row)
	}
}

func TestGoldenErrors(t *testing.T) {
	tokens := named("tokens", safetensors.I32, i32s(1, 2), 2)
	logits := named("logits", safetensors.F32, f32s(1, 2, 3, 4), 2, 2)
	for _, c := range []struct {
		want string
		file []safetensors.Named
	}{
		{"no tensor tokens", []safetensors.Named{logits}},
		{"no tensor logits", []safetensors.Named{tokens}},
		{"a tensor argmax_idx, but no argmax_val", []safetensors.Named{tokens, named("argmax_idx", safetensors.I32, i32s(1), 1, 1)}},
		{"have the shapes [1 1] and [1 2]", []safetensors.Named{tokens, named("argmax_idx", safetensors.I32, i32s(1), 1, 1), named("argmax_val", safetensors.F32, f32s(1, 2), 1, 2)}},
		{"element 0 of tensor argmax_idx is -1", []safetensors.Named{tokens, named("argmax_idx", safetensors.I32, i32s(-1), 1, 1), named("argmax_val", safetensors.F32, f32s(1), 1, 1)}},
		{"argmax_val is I32", []safetensors.Named{tokens, named("argmax_idx", safetensors.I32, i32s(1), 1, 1), named("argmax_val", safetensors.I32, i32s(1), 1, 1)}},
		{"argmax_val has 1 rows for 2 tokens", []safetensors.Named{tokens, named("argmax_idx", safetensors.I32, i32s(1), 1, 1), named("argmax_val", safetensors.F32, f32s(1), 1, 1)}},
		{"tokens has shape [2 1], wanted 1 dimensions", []safetensors.Named{named("tokens", safetensors.I32, i32s(1, 2), 2, 1), logits}},
		{"tokens is F32, wanted I32 or I64", []safetensors.Named{named("tokens", safetensors.F32, f32s(1, 2), 2), logits}},
		{"element 1 of tensor tokens is -2", []safetensors.Named{named("tokens", safetensors.I32, i32s(1, -2), 2), logits}},
		{"element 0 of tensor tokens is 2147483648", []safetensors.Named{named("tokens", safetensors.I64, i64s(1<<31, 1), 2), logits}},
		{"tokens is empty", []safetensors.Named{named("tokens", safetensors.I32, nil, 0), logits}},
		{"logits has shape [4], wanted 2 dimensions", []safetensors.Named{tokens, named("logits", safetensors.F32, f32s(1, 2, 3, 4), 4)}},
		{"logits is I32", []safetensors.Named{tokens, named("logits", safetensors.I32, i32s(1, 2, 3, 4), 2, 2)}},
		{"there is nothing to compare", []safetensors.Named{tokens, named("logits", safetensors.F32, nil, 0, 2)}},
		{"there is nothing to compare", []safetensors.Named{tokens, named("logits", safetensors.F32, nil, 2, 0)}},
		{"logits has 1 rows for 2 tokens", []safetensors.Named{tokens, named("logits", safetensors.F32, f32s(1, 2), 1, 2)}},
		{"position has 1 elements, but logits 2 rows", []safetensors.Named{tokens, logits, named("position", safetensors.I32, i32s(1), 1)}},
		{"element 1 of tensor position is 2, wanted 0 to 1", []safetensors.Named{tokens, logits, named("position", safetensors.I32, i32s(0, 2), 2)}},
		{"names position 1 twice, in elements 0 and 1", []safetensors.Named{tokens, logits, named("position", safetensors.I32, i32s(1, 1), 2)}},
		{"position is F32", []safetensors.Named{tokens, logits, named("position", safetensors.F32, f32s(0, 1), 2)}},
		{"state.kv is U8", []safetensors.Named{tokens, logits, named("state.kv", safetensors.U8, []byte{1}, 1)}},
	} {
		path := writeGolden(t, c.file...)
		_, err := OpenGolden(path)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%v, want an error with %q and the file's name", err, c.want)
		}
	}
	if _, err := OpenGolden(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
}

// memory is a safetensors file in memory.
type memory struct {
	data []byte
	h    *safetensors.Header
}

func (m memory) Tensors() []safetensors.Info { return m.h.Tensors }

func (m memory) Bytes(name string) ([]byte, error) {
	for _, t := range m.h.Tensors {
		if t.Name == name {
			return m.data[t.Offset : t.Offset+t.Size], nil
		}
	}
	return nil, errors.New("no such tensor")
}

// FuzzGolden reads damaged golden files: whatever is accepted can be walked.
func FuzzGolden(f *testing.F) {
	for _, file := range [][]safetensors.Named{
		{named("tokens", safetensors.I32, i32s(1, 2), 2), named("logits", safetensors.F32, f32s(1, 2, 3, 4), 2, 2)},
		{named("tokens", safetensors.I64, i64s(1, 2, 3), 3), named("logits", safetensors.F16, f16s(1, 2, 3, 4), 2, 2), named("position", safetensors.I32, i32s(2, 1), 2)},
		{named("tokens", safetensors.U32, i32s(1), 1), named("logits", safetensors.BF16, f16s(1), 1, 1), named("state.kv", safetensors.F16, f16s(1, 2), 2)},
		{named("tokens", safetensors.I32, i32s(1), 1), named("argmax_idx", safetensors.I32, i32s(1), 1, 1)},
		{named("tokens", safetensors.I32, i32s(1), 1), named("argmax_idx", safetensors.I64, i64s(1, 2), 1, 2), named("argmax_val", safetensors.F16, f16s(1, 2), 1, 2)},
	} {
		b, err := os.ReadFile(writeGolden(f, file...))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := safetensors.Parse(data, int64(len(data)))
		if err != nil {
			return
		}
		g, err := readGolden("fuzz", memory{data, h})
		if err != nil {
			return
		}
		l := limits{context: 8, vocab: g.vocab}
		if g.argmax {
			l.parts = g.vocab
		}
		seq, err := g.plan(l)
		if err == nil && (seq.total < 1 || seq.total > min(8, len(g.tokens))) {
			t.Fatalf("a sequence of %d tokens", seq.total)
		}
		row := make([]float32, g.vocab)
		for p, r := range g.row {
			if p < 0 || p >= len(g.tokens) {
				t.Fatalf("position %d of %d", p, len(g.tokens))
			}
			g.logits.floats(row, r*g.vocab)
			if g.argmax {
				g.index.numbers(row, r*g.vocab)
			}
		}
		for _, a := range g.states {
			n := 1
			for _, d := range a.shape {
				n *= d
			}
			a.floats(make([]float32, n), 0)
		}
	})
}
