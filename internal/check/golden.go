package check

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"anemone/internal/checkpoint/safetensors"
	"anemone/internal/float16"
)

// maxSequence bounds the tokens of a golden file: more than any context.
const maxSequence = 1 << 24

// statePrefix begins the names of a golden file's states.
const statePrefix = "state."

// Golden is a file of logits made elsewhere: safetensors with
//
//	tokens    integers [n]: the sequence
//	logits    floating point [m, vocabulary]: scores of the token to come next
//	position  integers [m]: which token each row comes after; may be absent
//	          if every token has a row
//	argmax_idx, argmax_val
//	          integers and floating point [m, parts of the vocabulary], in place
//	          of logits: what a head with argmax_in_model gives
//	state.*   what the states of that name hold after the last token; may be
//	          absent
//
// Everything else in the file is ignored.
type Golden struct {
	name   string
	tokens []int32
	row    map[int]int // of a position
	vocab  int
	logits array
	index  array // with logits those of the best tokens; vocab is the number of parts
	argmax bool
	states map[string]array
	close  func() error
}

// array is a tensor of the file that is decoded when it is needed.
type array struct {
	dtype safetensors.DType
	data  []byte
	shape []int
}

// tensors is what a golden is read from.
type tensors interface {
	Tensors() []safetensors.Info
	Bytes(name string) ([]byte, error)
}

// OpenGolden opens a golden file and checks it. It stays mapped until Close.
func OpenGolden(path string) (*Golden, error) {
	f, err := safetensors.Open(path)
	if err != nil {
		return nil, fmt.Errorf("golden %w", err)
	}
	g, err := readGolden(path, f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("golden %s: %w", path, err), f.Close())
	}
	g.close = f.Close
	return g, nil
}

// Close releases the file.
func (g *Golden) Close() error {
	if g.close == nil {
		return nil
	}
	return g.close()
}

// Tokens returns the sequence; the caller must not change it.
func (g *Golden) Tokens() []int32 { return g.tokens }

func readGolden(name string, f tensors) (*Golden, error) {
	g := &Golden{name: name, row: map[int]int{}, states: map[string]array{}}
	all := map[string]safetensors.Info{}
	var names []string
	for _, t := range f.Tensors() {
		all[t.Name] = t
		names = append(names, t.Name)
	}
	slices.Sort(names)
	get := func(name string, rank int) (a array, ok bool, err error) {
		t, ok := all[name]
		if !ok {
			return a, false, nil
		}
		if rank >= 0 && len(t.Shape) != rank {
			return a, true, fmt.Errorf("tensor %s has shape %v, wanted %d dimensions", name, t.Shape, rank)
		}
		b, err := f.Bytes(name)
		return array{t.DType, b, t.Shape}, true, err
	}

	t, ok, err := get("tokens", 1)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("no tensor tokens (found %s): wanted tokens, logits and perhaps position", list(names))
	}
	if g.tokens, err = t.ints("tokens", 0, math.MaxInt32); err != nil {
		return nil, err
	}
	if len(g.tokens) == 0 {
		return nil, errors.New("tensor tokens is empty")
	}

	what := "logits"
	if g.logits, ok, err = get("logits", 2); err != nil {
		return nil, err
	}
	if !ok {
		what = "argmax_val"
		if g.index, g.argmax, err = get("argmax_idx", 2); err != nil {
			return nil, err
		}
		if !g.argmax {
			return nil, fmt.Errorf("no tensor logits (found %s): wanted tokens, logits and perhaps position", list(names))
		}
		if g.logits, ok, err = get("argmax_val", 2); err != nil {
			return nil, err
		}
		if !ok {
			return nil, fmt.Errorf("a tensor argmax_idx, but no argmax_val (found %s)", list(names))
		}
		if !slices.Equal(g.index.shape, g.logits.shape) {
			return nil, fmt.Errorf("tensors argmax_idx and argmax_val have the shapes %v and %v, wanted the same", g.index.shape, g.logits.shape)
		}
		if _, err := g.index.ints("argmax_idx", 0, 1<<24); err != nil {
			return nil, err
		}
	}
	if err := g.logits.float(what); err != nil {
		return nil, err
	}
	rows := g.logits.shape[0]
	g.vocab = g.logits.shape[1]
	if rows == 0 || g.vocab == 0 {
		return nil, fmt.Errorf("tensor %s has shape %v: there is nothing to compare", what, g.logits.shape)
	}

	p, ok, err := get("position", 1)
	switch {
	case err != nil:
		return nil, err
	case ok:
		at, err := p.ints("position", 0, int32(len(g.tokens)-1))
		if err != nil {
			return nil, err
		}
		if len(at) != rows {
			return nil, fmt.Errorf("tensor position has %d elements, but %s %d rows", len(at), what, rows)
		}
		for i, q := range at {
			if j, twice := g.row[int(q)]; twice {
				return nil, fmt.Errorf("tensor position names position %d twice, in elements %d and %d", q, j, i)
			}
			g.row[int(q)] = i
		}
	case rows != len(g.tokens):
		return nil, fmt.Errorf("%s has %d rows for %d tokens, and there is no tensor position to say which rows these are", what, rows, len(g.tokens))
	default:
		for i := range rows {
			g.row[i] = i
		}
	}

	for _, n := range names {
		state, ok := strings.CutPrefix(n, statePrefix)
		if !ok {
			continue
		}
		a, _, err := get(n, -1)
		if err != nil {
			return nil, err
		}
		if err := a.float(n); err != nil {
			return nil, err
		}
		g.states[state] = a
	}
	return g, nil
}

func list(names []string) string {
	switch {
	case len(names) == 0:
		return "none at all"
	case len(names) > 8:
		return strings.Join(names[:8], ", ") + fmt.Sprintf(" and %d more", len(names)-8)
	}
	return strings.Join(names, ", ")
}

// ints decodes a vector of integers, each from lo to hi.
func (a *array) ints(name string, lo, hi int32) ([]int32, error) {
	size := 4
	switch a.dtype {
	case safetensors.I32, safetensors.U32:
	case safetensors.I64, safetensors.U64:
		size = 8
	default:
		return nil, fmt.Errorf("tensor %s is %s, wanted I32 or I64", name, a.dtype)
	}
	n := len(a.data) / size
	if n > maxSequence {
		return nil, fmt.Errorf("tensor %s has %d elements, more than %d", name, n, maxSequence)
	}
	v := make([]int32, n)
	for i := range v {
		var x int64
		switch b := a.data[i*size:]; a.dtype {
		case safetensors.I32:
			x = int64(int32(binary.LittleEndian.Uint32(b)))
		case safetensors.U32:
			x = int64(binary.LittleEndian.Uint32(b))
		default:
			x = int64(binary.LittleEndian.Uint64(b))
		}
		if x < int64(lo) || x > int64(hi) {
			return nil, fmt.Errorf("element %d of tensor %s is %d, wanted %d to %d", i, name, x, lo, hi)
		}
		v[i] = int32(x)
	}
	return v, nil
}

// numbers decodes integers that ints has accepted, from the given one on.
func (a *array) numbers(dst []float32, from int) {
	for i := range dst {
		switch a.dtype {
		case safetensors.I32, safetensors.U32:
			dst[i] = float32(binary.LittleEndian.Uint32(a.data[4*(from+i):]))
		default:
			dst[i] = float32(binary.LittleEndian.Uint64(a.data[8*(from+i):]))
		}
	}
}

// float reports whether the elements are of a type that floats decodes.
func (a *array) float(name string) error {
	switch a.dtype {
	case safetensors.F32, safetensors.F16, safetensors.BF16:
		return nil
	}
	return fmt.Errorf("tensor %s is %s, wanted F32, F16 or BF16", name, a.dtype)
}

// floats decodes elements from the given one on into dst.
func (a *array) floats(dst []float32, from int) {
	switch a.dtype {
	case safetensors.F32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(a.data[4*(from+i):]))
		}
	case safetensors.F16:
		for i := range dst {
			dst[i] = float16.ToFloat32(binary.LittleEndian.Uint16(a.data[2*(from+i):]))
		}
	case safetensors.BF16:
		for i := range dst {
			dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(a.data[2*(from+i):])) << 16)
		}
	}
}

// Describe implements [Target].
func (g *Golden) Describe() string { return g.name }

func (g *Golden) plan(l limits) (sequence, error) {
	s := sequence{prompt: len(g.tokens), total: len(g.tokens)}
	switch {
	case g.argmax && l.parts == 0:
		return s, fmt.Errorf("golden %s has the best tokens of %d parts of the vocabulary, the package gives logits: hold it to a golden with logits", g.name, g.vocab)
	case g.argmax && l.parts != g.vocab:
		return s, fmt.Errorf("golden %s has the best tokens of %d parts of the vocabulary, the package of %d: they are not of the same model", g.name, g.vocab, l.parts)
	case !g.argmax && l.vocab != g.vocab:
		return s, fmt.Errorf("golden %s has %d logits per token, the package has %d: they are not of the same model", g.name, g.vocab, l.vocab)
	}
	want := len(g.tokens)
	if l.tokens > 0 {
		want = min(want, l.tokens)
	}
	if want > l.context {
		want = l.context
		s.notes = append(s.notes, fmt.Sprintf("the golden has %d tokens, the context %d positions: only the first %d tokens were compared", len(g.tokens), l.context, want))
	}
	s.prompt, s.total = want, want
	for p := range g.row {
		if p < want {
			return s, nil
		}
	}
	return s, fmt.Errorf("golden %s has no logits for any of the first %d tokens", g.name, want)
}

func (g *Golden) walk(ctx context.Context, s sequence, w *walker) error {
	row := make([]float32, g.vocab)
	if g.argmax {
		row = make([]float32, 2*g.vocab)
	}
	for i, t := range g.tokens[:s.total] {
		if err := ctx.Err(); err != nil {
			return err
		}
		var have []float32
		if r, ok := g.row[i]; ok {
			g.logits.floats(row[:g.vocab], r*g.vocab)
			if g.argmax {
				g.index.numbers(row[g.vocab:], r*g.vocab)
			}
			have = row
		}
		visit := w.visit
		if g.argmax {
			visit = w.visitRow
		}
		if err := visit(i, t, have); err != nil {
			return err
		}
	}
	return nil
}
