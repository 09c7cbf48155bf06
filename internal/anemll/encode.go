package anemll

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"

	"anemone/internal/arch/nn"
	"anemone/internal/compress"
	"anemone/mil"
)

// encoder chooses the stored form of the weights of a graph: it replaces the
// constants that hold a checkpoint's weights by what the compressor promises
// for them. A weight that several functions use is encoded once.
type encoder struct {
	ctx    context.Context
	report *compress.Report
	jobs   int
	done   map[*nn.Weight]*encoded
	work   *atomic.Int64 // units that have been written
}

// encoded is the stored form of a weight: one promise if it is dense, else
// two.
type encoded struct {
	dense   mil.Weight
	palette *compress.Palettized
	work    int64
}

// cost is the time that a weight takes to write, in units of writing one
// element as fp16 (about 1 ns): from the benchmarks of the compress package
// on normal weights of a bfloat16 checkpoint, 18 ns for 4 bits in groups of
// eight channels, 25 ns for 6 and 29 ns for 8.
func cost(e compress.Encoding) int64 {
	if e.Bits == 0 {
		return 1
	}
	return 8 + 3*int64(e.Bits)
}

// encode rewrites the constants of prog and returns the units of work that
// writing it takes.
func (c *encoder) encode(prog *mil.Program, e compress.Encoding) (work int64, err error) {
	counted := map[*encoded]bool{}
	for _, f := range prog.Functions {
		f.Body.Walk(func(op *mil.Operation) bool {
			if op.Type != "const" {
				return true
			}
			v := op.Results[0]
			w, ok := v.Weight.(*nn.Weight)
			if !ok {
				return true
			}
			x := c.done[w]
			if x == nil {
				if x, err = c.one(w, e); err != nil {
					return false
				}
				c.done[w] = x
			}
			if !counted[x] {
				counted[x] = true
				work += x.work
			}
			if x.palette == nil {
				v.Weight = x.dense
				return true
			}
			op.Type = "constexpr_lut_to_dense"
			op.Args = []mil.Arg{mil.A("indices", mil.ImmWeight(x.palette.Indices)), mil.A("lut", mil.ImmWeight(x.palette.LUT))}
			v.Weight = nil
			v.Name += "_palettized"
			op.Name = v.Name
			return true
		})
		if err != nil {
			return 0, err
		}
	}
	return work, nil
}

// one promises the stored form of a weight.
func (c *encoder) one(w *nn.Weight, e compress.Encoding) (*encoded, error) {
	if w.Kind() == nn.Vector {
		e = compress.Encoding{}
	}
	unit := cost(e)
	opts := compress.Options{Name: w.Name(), Report: c.report, Workers: c.jobs, Context: c.ctx}
	if c.work != nil {
		opts.Progress = func(n int) { c.work.Add(unit * int64(n)) }
	}
	shape := w.Type().Shape
	n, ok := w.Type().NumElements()
	if !ok {
		return nil, fmt.Errorf("%v is too large", w)
	}
	x := &encoded{work: unit * int64(n)}
	var err error
	if e.Bits == 0 {
		x.dense, err = compress.Dense(w, shape, opts)
		x.dense = releasing{x.dense, w}.promise()
	} else if x.palette, err = compress.Palettize(w, shape, e, opts); err == nil {
		x.palette.Indices = releasing{x.palette.Indices, w}.promise()
	}
	return x, err
}

// releasing is a promise that gives the checkpoint's pages back while it is
// kept and once it has been: an embedding table is larger than all that a
// conversion needs besides.
type releasing struct {
	mil.Weight
	src *nn.Weight
}

func (r releasing) promise() mil.Weight { return &r }

// WriteTo writes the weight and releases its source.
func (r *releasing) WriteTo(w io.Writer) (int64, error) {
	defer r.src.Release()
	return r.Weight.WriteTo(&releasingWriter{w: w, src: r.src})
}

// releasingWriter releases the source after every 32 MiB.
type releasingWriter struct {
	w   io.Writer
	src *nn.Weight
	n   int
}

func (r *releasingWriter) Write(p []byte) (int, error) {
	n, err := r.w.Write(p)
	if r.n += n; r.n >= 32<<20 {
		r.n = 0
		r.src.Release()
	}
	return n, err
}
