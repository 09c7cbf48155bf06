package compress

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"sync"

	"anemone/internal/float16"
	"anemone/mil"
)

// Options are what Palettize and Dense need beside the weight. The zero
// Options are valid.
type Options struct {
	// Name is that of the weight, for errors and the report.
	Name string
	// Report gets an entry when the weight has been written.
	Report *Report
	// Method finds the tables; nil means KMeans.
	Method Method
	// Importance of each weight; nil if every one matters as much.
	Importance Importance
	// Workers is the number of goroutines; 0 means one per core.
	Workers int
	// Context stops the work early. It is that of the conversion in which
	// the weight is written, and is kept here because a promise is asked for
	// without one. nil means never.
	Context context.Context
	// Progress, if not nil, is told how many more weights have been written,
	// by the goroutine that writes.
	Progress func(weights int)
}

func (o *Options) context() context.Context {
	if o.Context == nil {
		return context.Background()
	}
	return o.Context
}

// maxWorkers is more than any machine has cores; each costs memory.
const maxWorkers = 1024

func (o *Options) workers() int {
	if o.Workers <= 0 {
		return runtime.GOMAXPROCS(0)
	}
	return min(o.Workers, maxWorkers)
}

func (o *Options) progress(n int) {
	if o.Progress != nil {
		o.Progress(n)
	}
}

// wrap adds the name of the weight to an error.
func (o *Options) wrap(err error) error {
	if err == nil || o.Name == "" {
		return err
	}
	return fmt.Errorf("weight %s: %w", o.Name, err)
}

// Palettized is a weight as the operands of constexpr_lut_to_dense.
//
// The tables are found when one of the two is written, and the result is
// kept only until the other one has been written too. Writing the indices
// first, as coremltools and the canonical order of arguments do, needs less
// memory: they are passed on as they are found, and only the tables are
// kept. Each is meant to be written once; writing one again repeats all the
// work, and gives the same bytes.
type Palettized struct {
	// Indices are unsigned integers of Encoding.Bits bits, in the shape of
	// the weight.
	Indices mil.Weight
	// LUT holds the tables: fp16 of shape [groups, 1, ..., 1, 2^Bits, 1],
	// whose rank is that of the weight plus 2.
	LUT mil.Weight
	// Encoding is the one in use: Group is the number of output channels per
	// table, which differs from the one asked for where that does not divide
	// the channels (see FitGroup), and is never 0.
	Encoding Encoding
}

// Palettize returns the promise of src compressed into tables. shape is that
// of the weight in the program; its first dimension is the number of rows
// (output channels), and its elements are src's, row by row.
func Palettize(src Source, shape []int, e Encoding, opts Options) (*Palettized, error) {
	index, ok := e.indexType()
	if !ok || e.Group < 0 {
		return nil, opts.wrap(fmt.Errorf("encoding {Bits: %d, Group: %d} has no tables, want 1, 2, 3, 4, 6 or 8 bits", e.Bits, e.Group))
	}
	if err := checkShape(src, shape); err != nil {
		return nil, opts.wrap(err)
	}
	if len(shape) == 0 || shape[0] != src.Rows() {
		return nil, opts.wrap(fmt.Errorf("shape %v of a matrix with %d rows: the first dimension has to be the rows, as tables belong to rows", shape, src.Rows()))
	}
	j := &job{
		Options: opts,
		src:     src,
		asked:   e.Group,
		enc:     Encoding{Bits: e.Bits, Group: FitGroup(src.Rows(), e.Group)},
		shape:   append([]int(nil), shape...),
		large:   4 * blockSize,
		report:  opts.Report.reserve(),
	}
	if j.Method == nil {
		j.Method = KMeans
	}
	lut := make([]int, len(shape)+2)
	for i := range lut {
		lut[i] = 1
	}
	lut[0] = j.groups()
	lut[len(shape)] = 1 << e.Bits
	j.indices.t = mil.TensorOf(index, j.shape...)
	j.lut.t = mil.TensorOf(mil.Float16, lut...)
	j.indices.j, j.lut.j = j, j
	j.indices.write, j.lut.write = j.writeIndices, j.writeLUT
	return &Palettized{Indices: &j.indices, LUT: &j.lut, Encoding: j.enc}, nil
}

// checkShape returns an error unless shape has as many elements as src.
func checkShape(src Source, shape []int) error {
	rows, cols := src.Rows(), src.Cols()
	n, ok := mil.NumElements(shape)
	m, ok2 := mil.NumElements([]int{rows, cols})
	if !ok || !ok2 || n != m || n == 0 {
		return fmt.Errorf("shape %v of a matrix of %d rows and %d columns: want as many elements, and at least one", shape, rows, cols)
	}
	return nil
}

// blockSize is the number of weights that are read at a time where the matrix
// does not say otherwise.
const blockSize = 1 << 20

// job is one weight to be palettized, and its half-written result.
type job struct {
	Options
	src     Source
	enc     Encoding // in use
	asked   int      // group asked for
	shape   []int
	large   int // weights of a group that is not to be held in memory
	report  func(Entry)
	indices promise
	lut     promise

	mu     sync.Mutex
	tables []byte // stored form of the LUT, once the indices have been written
	packed []byte // stored form of the indices, once the LUT has been written
}

// promise is a mil.Weight that writes with a function of its job. It is not
// a mil.PromiseWeight so that two of them never compare equal.
type promise struct {
	t     mil.Type
	j     *job
	write func(io.Writer) error
}

func (p *promise) Type() mil.Type { return p.t }

func (p *promise) WriteTo(w io.Writer) (int64, error) {
	p.j.mu.Lock()
	defer p.j.mu.Unlock()
	c := &counter{w: w}
	err := p.write(c)
	if want, _ := p.t.ByteSize(); err == nil && c.n != want {
		err = fmt.Errorf("wrote %d bytes of %v, want %d", c.n, p.t, want)
	}
	return c.n, p.j.wrap(err)
}

// counter counts what it passes on.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

func (j *job) groups() int { return j.src.Rows() / j.enc.Group }

func (j *job) writeIndices(w io.Writer) error {
	if b := j.packed; b != nil {
		j.packed = nil
		_, err := w.Write(b)
		return err
	}
	j.tables = nil
	out := bufio.NewWriterSize(w, 1<<16)
	tables, err := j.run(out)
	if err == nil {
		err = out.Flush()
	}
	if err == nil {
		j.tables = tables
	}
	return err
}

func (j *job) writeLUT(w io.Writer) error {
	if b := j.tables; b != nil {
		j.tables = nil
		_, err := w.Write(b)
		return err
	}
	j.packed = nil
	size, _ := j.indices.t.ByteSize()
	packed := bytes.NewBuffer(make([]byte, 0, size))
	tables, err := j.run(packed)
	if err == nil {
		_, err = w.Write(tables)
	}
	if err == nil {
		j.packed = packed.Bytes()
	}
	return err
}

// part is a run of weights whose indices have been found.
type part struct {
	figures
	packed []byte
	lut    []uint16 // of the group, with its first part
	n      int      // weights
}

// run finds tables and indices, writes the latter to w in their stored form,
// and returns the former in theirs.
func (j *job) run(w io.Writer) (tables []byte, err error) {
	var total figures
	out := &bitWriter{w: w}
	tables = make([]byte, 0, j.groups()<<j.enc.Bits*2)
	emit := func(_ int, p part) error {
		total.add(p.figures)
		for _, h := range p.lut {
			tables = binary.LittleEndian.AppendUint16(tables, h)
		}
		if err := out.write(p.packed, int64(p.n)*int64(j.enc.Bits)); err != nil {
			return err
		}
		j.progress(p.n)
		return nil
	}
	if _, ok := j.Method.(kmeans); ok && j.src.Cols() > j.large/j.enc.Group {
		err = j.runLarge(emit)
	} else {
		err = j.runGroups(emit)
	}
	if err == nil {
		err = out.flush()
	}
	if err != nil {
		return nil, err
	}
	e := Entry{
		Name:     j.Name,
		Shape:    j.shape,
		Encoding: fmt.Sprintf("lut%d", j.enc.Bits),
		Method:   j.Method.Name(),
		Group:    j.enc.Group,
		Elements: int64(j.src.Rows()) * int64(j.src.Cols()),
		Bytes:    out.n + int64(len(tables)),
	}
	if j.asked != 0 && j.asked != j.enc.Group {
		e.GroupAsked = j.asked
	}
	total.fill(&e)
	j.report(e)
	return tables, nil
}

// runGroups has each worker hold one group.
func (j *job) runGroups(emit func(int, part) error) error {
	ctx := j.context()
	do, err := j.Method.Start(ctx, Matrix{j.Name, j.src, j.Importance, j.enc.Bits, j.enc.Group})
	if err != nil {
		return err
	}
	groups := make([]Group, j.workers()) // one per worker
	return ordered(ctx, len(groups), j.groups(), func(worker, i int) (part, error) {
		g := &groups[worker]
		g.Row0, g.Rows, g.Cols = i*j.enc.Group, j.enc.Group, j.src.Cols()
		n := g.Rows * g.Cols
		g.Weights = grow(g.Weights, n)
		g.Indices = grow(g.Indices, n)
		g.LUT = make([]uint16, 1<<j.enc.Bits)
		loss, err := j.read(g.Weights, g.Row0)
		if err != nil {
			return part{}, err
		}
		if j.Importance != nil {
			g.Importance = grow(g.Importance, n)
			if err := j.readImportance(g.Importance, g.Row0); err != nil {
				return part{}, err
			}
		}
		if err := do(g); err != nil {
			return part{}, fmt.Errorf("rows from %d: %w", g.Row0, err)
		}
		p, err := j.finish(g.Weights, g.Indices, g.LUT)
		p.loss, p.lut = loss, g.LUT
		return p, err
	}, emit)
}

// shards is the number of parts of a large group that are counted apart. It
// is fixed, so that sums of importances do not depend on the machine.
const shards = 16

// runLarge does groups that are too large to be held, such as whole tensors:
// k-means needs only the counts of their values. They are read twice.
func (j *job) runLarge(emit func(int, part) error) error {
	ctx := j.context()
	cols := j.src.Cols()
	step := max(1, blockSize/cols) // rows at a time
	blocks := (j.enc.Group + step - 1) / step
	type memory struct {
		w   []uint16
		imp []float32
		idx []uint8
	}
	mem := make([]memory, j.workers())
	var counts [shards]histogram
	var pal palette
	// block reads one block of the group at row0.
	block := func(m *memory, row0, b int) (Loss, error) {
		first := b * step
		m.w = grow(m.w, min(step, j.enc.Group-first)*cols)
		return j.read(m.w, row0+first)
	}
	for row0 := 0; row0 < j.src.Rows(); row0 += j.enc.Group {
		err := ordered(ctx, len(mem), shards, func(worker, s int) (struct{}, error) {
			m := &mem[worker]
			counts[s].reset(j.Importance != nil)
			for b := blocks * s / shards; b < blocks*(s+1)/shards; b++ {
				if err := ctx.Err(); err != nil {
					return struct{}{}, err
				}
				if _, err := block(m, row0, b); err != nil {
					return struct{}{}, err
				}
				var imp []float32
				if j.Importance != nil {
					m.imp = grow(m.imp, len(m.w))
					if err := j.readImportance(m.imp, row0+b*step); err != nil {
						return struct{}{}, err
					}
					imp = m.imp
				}
				counts[s].add(m.w, imp)
			}
			return struct{}{}, nil
		}, func(int, struct{}) error { return nil })
		if err != nil {
			return err
		}
		all := make([]*histogram, shards)
		for s := range all {
			all[s] = &counts[s]
		}
		pal.find(j.enc.Bits, all...)
		err = ordered(ctx, len(mem), blocks, func(worker, b int) (part, error) {
			m := &mem[worker]
			loss, err := block(m, row0, b)
			if err != nil {
				return part{}, err
			}
			m.idx = grow(m.idx, len(m.w))
			pal.assign(m.idx, m.w)
			p, err := j.finish(m.w, m.idx, pal.lut)
			p.loss = loss
			if b == 0 {
				p.lut = pal.lut
			}
			return p, err
		}, emit)
		if err != nil {
			return err
		}
	}
	return nil
}

func (j *job) read(w []uint16, row0 int) (Loss, error) {
	loss, err := j.src.Float16(w, row0)
	if err == nil {
		err = checkFinite(w, j.src.Cols(), row0)
	}
	return loss, err
}

func (j *job) readImportance(imp []float32, row0 int) error {
	if err := j.Importance.Float32(imp, row0); err != nil {
		return err
	}
	return checkImportance(imp, j.src.Cols(), row0)
}

// finish packs the indices and takes the figures.
func (j *job) finish(w []uint16, idx []uint8, lut []uint16) (part, error) {
	p := part{n: len(w)}
	var table [256]float64
	for i, h := range lut {
		if h&0x7c00 == 0x7c00 || i > 0 && key(h) < key(lut[i-1]) {
			return p, errors.New("the table found is not finite and ascending")
		}
		table[i] = float64(float16.ToFloat32(h))
	}
	var over uint8
	idx = idx[:len(w)]
	for i, h := range w {
		x := float64(float16.ToFloat32(h))
		e := idx[i]
		over |= e
		d := x - table[e]
		p.squared += float64(d * d)
		p.energy += float64(x * x)
		p.maxError = max(p.maxError, math.Abs(d))
	}
	if int(over)>>j.enc.Bits != 0 {
		return p, fmt.Errorf("an index found is beyond the table of %d entries", len(lut))
	}
	p.packed = pack(make([]byte, 0, packedLen(len(w), j.enc.Bits)+8), idx, j.enc.Bits)
	return p, nil
}
