package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"anemone/internal/anemll"
	"anemone/internal/arch"
	"anemone/internal/arch/dense"
	"anemone/internal/session"
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

// layerWatch compares the residual stream of a package with the reference's.
type layerWatch struct {
	points []point
	// behind has, for the embeddings and each chunk, the point that its output
	// shows; -1 if none.
	behind []int
	shown  *shown         // nil if only the outputs of the parts are seen
	model  *session.Model // of shown; nil without it
	layers int
	width  int
	scale  float32 // of the package's stream, as against the reference's
	notes  []string
	lane   *lane // whose call is in progress

	base   int            // position of the first row of latest
	latest []dense.Matrix // of the reference, for each point
	spare  [][][]float32  // hidden of results, to be used again

	infer, prefill []hiddenCollector
}

type hiddenCollector struct {
	n, nonFinite       int
	cosine, rel, added []float64
	diff               float64
}

// add compares the stream at one point and position. before are the streams at
// the point before, nil if there is none.
func (c *hiddenCollector) add(want, got, wantBefore, gotBefore []float32) {
	c.n++
	if firstNonFinite(got) >= 0 {
		c.nonFinite++
		return
	}
	cos, diff, rel := vectors(want, got)
	c.cosine, c.rel = append(c.cosine, cos), append(c.rel, rel)
	c.diff = max(c.diff, diff)
	if wantBefore != nil && firstNonFinite(gotBefore) < 0 {
		c.added = append(c.added, addedError(want, got, wantBefore, gotBefore))
	}
}

// addedError returns the relative error of what was added to the stream
// between two points.
func addedError(want, got, wantBefore, gotBefore []float32) float64 {
	var ww, dd float64
	for i := range want {
		w := float64(want[i]) - float64(wantBefore[i])
		d := float64(got[i]) - float64(gotBefore[i]) - w
		ww += w * w
		dd += d * d
	}
	switch {
	case ww > 0:
		return math.Sqrt(dd / ww)
	case dd > 0:
		return 1
	}
	return 0
}

func (c *hiddenCollector) figures() *HiddenFigures {
	if c.n == 0 {
		return nil
	}
	f := &HiddenFigures{Positions: c.n, NonFinite: c.nonFinite, Cosine: spread(c.cosine), MaxDiff: c.diff, Relative: spread(c.rel)}
	if len(c.added) > 0 {
		a := spread(c.added)
		f.Added = &a
	}
	return f
}

// watchLayers gets ready for comparing layers. The package is loaded once more
// by load, with its functions showing what leaves each layer; where that does
// not go, or load is nil, what leaves the parts is compared.
func (w *walker) watchLayers(t Target, load session.Loader) (*layerWatch, error) {
	s := sourceOf(t)
	if s == nil {
		return nil, errors.New("hidden states can only be compared with the reference of a checkpoint")
	}
	p := w.pkg
	if s.Layers < len(p.Chunks) {
		return nil, fmt.Errorf("the package has %d chunks, the checkpoint only %d layers", len(p.Chunks), s.Layers)
	}
	l := &layerWatch{layers: s.Layers, width: s.Hidden, scale: cmp.Or(float32(s.StreamScale), 1)}
	last, note := ends(p, s.Layers)
	if note != "" {
		l.notes = append(l.notes, note)
	}
	first := make([]int, len(last))
	for i := range last[1:] {
		first[i+1] = last[i] + 1
	}
	told := make([]string, len(p.Chunks)) // why a chunk is not looked into
	var inner []point
	if load == nil {
		for i := range told {
			told[i] = "nothing was given to load its model with"
		}
	} else {
		l.shown = show(p, first, last, l.width)
		inner, told = l.shown.points, l.shown.told
		l.notes = append(l.notes, l.shown.notes...)
	}
	for i, why := range told {
		if why != "" && (last[i] > first[i] || p.Monolithic()) {
			l.notes = append(l.notes, fmt.Sprintf("%s: its layers %d to %d are only compared together: %s", p.Chunks[i].Name, first[i], last[i], why))
		}
	}
	if p.Monolithic() {
		if len(inner) == 0 {
			return nil, fmt.Errorf("a monolithic package shows no hidden states between its parts, and inside: %s", told[0])
		}
		l.points = inner
	} else {
		// The points of the parts go where they belong, the others follow.
		l.points = append(l.points, point{part: p.Embeddings.Name, layer: -1})
		l.behind = append(l.behind, 0)
		moved := make([]int, len(inner))
		for i, c := range p.Chunks {
			for k, x := range inner {
				if x.part == c.Name {
					moved[k] = len(l.points)
					l.points = append(l.points, x)
				}
			}
			l.behind = append(l.behind, len(l.points))
			l.points = append(l.points, point{part: c.Name, layer: last[i], norm: i == len(p.Chunks)-1})
		}
		if l.shown != nil {
			l.shown.move(moved)
		}
	}
	n := len(l.points)
	l.latest = make([]dense.Matrix, n)
	l.infer, l.prefill = make([]hiddenCollector, n), make([]hiddenCollector, n)
	if len(inner) > 0 {
		l.shown.sink = func(point int, x []float32) { l.lane.keep(point, x) }
		var err error
		if l.model, err = session.Load(l.shown.pkg, l.shown.loader(load)); err != nil {
			return nil, fmt.Errorf("with the residual stream as further outputs: %w", err)
		}
	}
	return l, nil
}

// close releases the package that was loaded for comparing layers.
func (l *layerWatch) close() error {
	if l == nil || l.model == nil {
		return nil
	}
	return l.model.Close()
}

// see keeps the reference's hidden states at the points. base is the position
// of the first row of x.
func (l *layerWatch) see(base, layer int, x dense.Matrix) error {
	l.base = base
	for i, p := range l.points {
		if at := p.layer; at == layer && !p.norm || p.norm && layer == l.layers {
			if x.Cols != l.width {
				return fmt.Errorf("the reference's hidden states are %d wide, the package's %d", x.Cols, l.width)
			}
			l.latest[i] = x.Clone()
			if !p.norm && l.scale != 1 {
				for j := range l.latest[i].Data {
					l.latest[i].Data[j] *= l.scale
				}
			}
		}
	}
	return nil
}

// reference returns the reference's hidden state at each point for the token
// at a position. They stay as they are.
func (l *layerWatch) reference(pos int) ([][]float32, error) {
	rows := make([][]float32, len(l.latest))
	for i, m := range l.latest {
		k := pos - l.base
		if k < 0 || k >= m.Rows {
			return nil, fmt.Errorf("the reference did not show its hidden state %v at position %d", l.points[i], pos)
		}
		rows[i] = m.Row(k)
	}
	return rows, nil
}

// rows returns row k of what a package's call of n tokens gave at a point, and
// of what the reference has there; nil if it gave no such rows.
func (l *layerWatch) rows(point int, got [][]float32, n, k int) []float32 {
	if point < 0 || point >= len(got) || len(got[point]) != n*l.width {
		return nil
	}
	return got[point][k*l.width:][:l.width]
}

// before returns the point that the addition of a point begins at; -1 if that
// is not the stream.
func (l *layerWatch) before(point int) int {
	if l.points[point].norm {
		return -1
	}
	return point - 1
}

// add compares what a call of n tokens gave for its token k.
func (l *layerWatch) add(to []hiddenCollector, ref, got [][]float32, n, k int) {
	for i, want := range ref {
		x := l.rows(i, got, n, k)
		if x == nil || n > 1 && l.points[i].norm {
			continue
		}
		var wantBefore, before []float32
		if b := l.before(i); b >= 0 {
			if before = l.rows(b, got, n, k); before != nil {
				wantBefore = ref[b]
			}
		}
		to[i].add(want, x, wantBefore, before)
	}
}

func (l *layerWatch) addInfer(ref, got [][]float32) { l.add(l.infer, ref, got, 1, 0) }

// addPrefill compares what a prefill call gave for a batch. Behind the final
// norm it gives one state, which is of use if it is the last token's.
func (l *layerWatch) addPrefill(batch []*pending, got [][]float32, lastToken bool) {
	n := len(batch)
	for k, p := range batch {
		l.add(l.prefill, p.ref, got, n, k)
	}
	if end := len(l.points) - 1; n > 1 && l.points[end].norm && lastToken {
		if x := l.rows(end, got, 1, 0); x != nil {
			l.prefill[end].add(batch[n-1].ref[end], x, nil, nil)
		}
	}
}

// layerBytes is about how much memory the reference's states may take that are
// kept for comparing.
const layerBytes = 64 << 20

// block returns the number of tokens that a reference may work on at a time.
func (l *layerWatch) block() int {
	return min(max(layerBytes/(4*l.width*len(l.points)), 16), 256)
}

// blocks is a reference that works on a limited number of tokens at a time.
type blocks struct {
	arch.Reference
	n int
}

// Forward implements [arch.Reference].
func (b blocks) Forward(ctx context.Context, tokens []int32, want func(i int) bool, visit func(i int, logits []float32) error) error {
	base := b.Pos()
	for at := 0; at < len(tokens); at += b.n {
		now := tokens[at:min(at+b.n, len(tokens))]
		w, v := want, visit
		if want != nil {
			w = func(i int) bool { return want(at + i) }
		}
		if visit != nil {
			v = func(i int, logits []float32) error { return visit(at+i, logits) }
		}
		if err := b.Reference.Forward(ctx, now, w, v); err != nil {
			if e := b.Truncate(base); e != nil {
				err = errors.Join(err, e)
			}
			return err
		}
	}
	return nil
}

// referenceOf returns a target's reference for w.
func (w *walker) referenceOf(s *Source) arch.Reference {
	if w.layers == nil {
		return s.Ref
	}
	return blocks{s.Ref, w.layers.block()}
}

func (w *walker) layerFigures() []LayerFigures {
	l := w.layers
	if l == nil {
		return nil
	}
	var out []LayerFigures
	for i, p := range l.points {
		out = append(out, LayerFigures{Part: p.part, Layer: p.layer, FinalNorm: p.norm, Infer: l.infer[i].figures(), Prefill: l.prefill[i].figures()})
	}
	return out
}

// expectedError is about by how much, relatively, weights of so many bits make
// a layer err, as seen in packages that are as they should be.
func expectedError(bits int) float64 {
	switch {
	case bits > 8:
		return 0.002
	case bits > 6:
		return 0.01
	case bits > 4:
		return 0.05
	case bits > 3:
		return 0.2
	case bits > 2:
		return 0.4
	}
	return 0.7
}

// Parting returns the index in Layers of the place where the package leaves
// the reference, -1 if no place stands out: in infer, or if all is well there,
// in prefill.
//
// It is the first place where something is not finite, or where what is added
// to the stream errs by at least 1 %, twice as much as at all places before and
// as weights of that width make it, and more than the geometric mean of this
// and of the largest error anywhere. (Behind what is broken, all layers err, as
// what they work on is wrong; some of them more than the broken one.)
func (r *Report) Parting() int {
	if i := r.parting(func(l *LayerFigures) *HiddenFigures { return l.Infer }); i >= 0 {
		return i
	}
	return r.parting(func(l *LayerFigures) *HiddenFigures { return l.Prefill })
}

func (r *Report) parting(get func(*LayerFigures) *HiddenFigures) int {
	errs := make([]float64, len(r.Layers))
	for i := range r.Layers {
		switch h := get(&r.Layers[i]); {
		case h == nil:
		case h.NonFinite > 0:
			errs[i] = math.Inf(1)
		case h.Added != nil:
			errs[i] = h.Added.Mean
		default:
			errs[i] = h.Relative.Mean
		}
	}
	largest := 0.0
	for _, e := range errs {
		if !math.IsInf(e, 1) {
			largest = max(largest, e)
		}
	}
	before := expectedError(r.Bits)
	floor := max(0.01, math.Sqrt(before*largest))
	for i, e := range errs {
		if e > floor && e > 2*before {
			return i
		}
		before = max(before, e)
	}
	return -1
}
