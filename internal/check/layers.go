package check

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"anemone/internal/anemll"
	"anemone/internal/arch"
	"anemone/internal/arch/dense"
)

// layersKey is the metadata of a chunk that says which layers it holds, as
// "first-last".
const layersKey = "com.anemll.layers"

// ends returns the last layer of every chunk of a model of n layers: by the
// chunks' own metadata, or if they say nothing or nothing consistent, by the
// rule that all converters follow. note says what was odd.
func ends(p *anemll.Package, n int) (last []int, note string) {
	next := 0
	for i, c := range p.Chunks {
		s, ok := c.Model.Metadata.User[layersKey]
		if !ok {
			break
		}
		a, b, _ := strings.Cut(s, "-")
		first, err1 := strconv.Atoi(a)
		end, err2 := strconv.Atoi(b)
		if err1 != nil || err2 != nil || first != next || end < first {
			note = fmt.Sprintf("%s: its metadata say %s: %.40s, which does not continue the chunks before; the layers are taken as evenly split", c.Name, layersKey, s)
			break
		}
		last = append(last, end)
		next = end + 1
		if i == len(p.Chunks)-1 && next == n {
			return last, ""
		}
	}
	bounds := arch.SplitLayers(n, len(p.Chunks))
	last = last[:0]
	for _, b := range bounds[1:] {
		last = append(last, b-1)
	}
	if note == "" && next != 0 {
		note = fmt.Sprintf("the chunks' metadata speak of %d layers, the checkpoint has %d; they are taken as evenly split", next, n)
	}
	return last, note
}

// layerWatch compares what leaves the parts with the reference.
type layerWatch struct {
	names  []string // of the parts: embeddings and chunks
	ends   []int    // the decoder layer that each part ends with, -1 for the embeddings
	layers int
	width  int
	note   string

	base   int            // position of the first row of latest
	latest []dense.Matrix // of the reference, for each part

	infer, prefill []hiddenCollector
}

type hiddenCollector struct {
	n, nonFinite int
	cosine, rel  []float64
	diff         float64
}

func (c *hiddenCollector) add(want, got []float32) {
	c.n++
	if firstNonFinite(got) >= 0 {
		c.nonFinite++
		return
	}
	cos, diff, rel := vectors(want, got)
	c.cosine, c.rel = append(c.cosine, cos), append(c.rel, rel)
	c.diff = max(c.diff, diff)
}

func (c *hiddenCollector) figures() *HiddenFigures {
	if c.n == 0 {
		return nil
	}
	return &HiddenFigures{Positions: c.n, NonFinite: c.nonFinite, Cosine: spread(c.cosine), MaxDiff: c.diff, Relative: spread(c.rel)}
}

func (w *walker) watchLayers(t Target) error {
	var s *Source
	switch t := t.(type) {
	case *Greedy:
		s = t.Source
	case *Text:
		s = t.Source
	default:
		return errors.New("hidden states can only be compared with the reference of a checkpoint")
	}
	if w.pkg.Monolithic() {
		return errors.New("a monolithic package shows no hidden states between its parts")
	}
	if s.Layers < len(w.pkg.Chunks) {
		return fmt.Errorf("the package has %d chunks, the checkpoint only %d layers", len(w.pkg.Chunks), s.Layers)
	}
	l := &layerWatch{layers: s.Layers, width: w.pkg.HiddenSize, names: []string{w.pkg.Embeddings.Name}, ends: []int{-1}}
	last, note := ends(w.pkg, s.Layers)
	for i, c := range w.pkg.Chunks {
		l.names, l.ends = append(l.names, c.Name), append(l.ends, last[i])
	}
	l.note = note
	l.latest = make([]dense.Matrix, len(l.names))
	l.infer, l.prefill = make([]hiddenCollector, len(l.names)), make([]hiddenCollector, len(l.names))
	w.layers = l
	return nil
}

// see keeps the reference's hidden states behind the parts. base is the
// position of the first row of x.
func (l *layerWatch) see(base, layer int, x dense.Matrix) error {
	l.base = base
	for i, end := range l.ends {
		if i == len(l.ends)-1 {
			end = l.layers // after the final norm
		}
		if end != layer {
			continue
		}
		if x.Cols != l.width {
			return fmt.Errorf("the reference's hidden states are %d wide, the package's %d", x.Cols, l.width)
		}
		l.latest[i] = x.Clone()
	}
	return nil
}

// reference returns the reference's hidden state behind each part for the
// token at a position. They stay as they are.
func (l *layerWatch) reference(pos int) ([][]float32, error) {
	rows := make([][]float32, len(l.latest))
	for i, m := range l.latest {
		k := pos - l.base
		if k < 0 || k >= m.Rows {
			return nil, fmt.Errorf("the reference did not show its hidden state behind %s at position %d", l.names[i], pos)
		}
		rows[i] = m.Row(k)
	}
	return rows, nil
}

func (l *layerWatch) addInfer(ref, got [][]float32) {
	for i, want := range ref {
		if i < len(got) && len(got[i]) == len(want) {
			l.infer[i].add(want, got[i])
		}
	}
}

// addPrefill compares what a prefill call gave for a batch. The last part
// gives one state, which is of use if it is the last token's.
func (l *layerWatch) addPrefill(batch []*pending, got [][]float32, lastToken bool) {
	for i := range l.names {
		if i >= len(got) {
			return
		}
		switch rows := len(got[i]) / l.width; {
		case i == len(l.names)-1:
			if rows == 1 && lastToken {
				l.prefill[i].add(batch[len(batch)-1].ref[i], got[i])
			}
		case rows == len(batch):
			for k, p := range batch {
				l.prefill[i].add(p.ref[i], got[i][k*l.width:][:l.width])
			}
		}
	}
}

func (w *walker) layerFigures() []LayerFigures {
	l := w.layers
	if l == nil {
		return nil
	}
	var out []LayerFigures
	for i, name := range l.names {
		out = append(out, LayerFigures{
			Part: name, Layer: l.ends[i], FinalNorm: i == len(l.names)-1,
			Infer: l.infer[i].figures(), Prefill: l.prefill[i].figures(),
		})
	}
	return out
}

// Parting returns the index in Layers of the part behind which the package
// leaves the reference: the first whose output is not finite, or whose
// relative error exceeds 1 % and half the largest of any part. (Coarse
// weights err by some percent from the first layer on; what is broken errs by
// much more, and later layers keep it.) It is -1 if there is none.
func (r *Report) Parting() int {
	step := func(get func(*LayerFigures) *HiddenFigures) int {
		largest := 0.0
		for i := range r.Layers {
			if h := get(&r.Layers[i]); h != nil {
				largest = max(largest, h.Relative.Mean)
			}
		}
		for i := range r.Layers {
			h := get(&r.Layers[i])
			if h != nil && (h.NonFinite > 0 || h.Relative.Mean > 0.01 && h.Relative.Mean > largest/2) {
				return i
			}
		}
		return -1
	}
	i := step(func(l *LayerFigures) *HiddenFigures { return l.Infer })
	if i < 0 {
		i = step(func(l *LayerFigures) *HiddenFigures { return l.Prefill })
	}
	return i
}
