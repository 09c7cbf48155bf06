package compress

import (
	"context"
	"sync"
)

// Method finds tables and indices. The default is exact k-means; methods that
// know more about the matrix's surroundings (its inputs, or the loss) can do
// better than the smallest squared error.
type Method interface {
	// Name says in the report how the tables were found.
	Name() string
	// Start prepares for a matrix and returns the function that does one of
	// its groups; that is called by several goroutines at a time, once for
	// each group, in no particular order. Start is called each time that the
	// matrix is written; it has to lead to the same result each time.
	Start(ctx context.Context, m Matrix) (func(*Group) error, error)
}

// Matrix is what a Method is to compress.
type Matrix struct {
	Name       string
	Source     Source
	Importance Importance // nil if every weight matters as much
	Bits       int        // width of the indices
	Group      int        // rows that share a table; divides Source.Rows()
}

// Group is a range of rows that share a table, and room for the result. Its
// slices are valid only during the call.
type Group struct {
	Row0, Rows, Cols int
	// Weights holds Rows x Cols fp16 bit patterns, all finite, and Importance
	// as many values, or nil.
	Weights    []uint16
	Importance []float32
	// LUT has room for the 2^Bits entries of the table, as fp16 bit patterns.
	// They are to be finite and ascending.
	LUT []uint16
	// Indices has room for the number of the entry of each weight.
	Indices []uint8
}

// KMeans is the Method that minimises the squared error of the weights, each
// weighted by its importance, exactly.
var KMeans Method = kmeans{}

type kmeans struct{}

func (kmeans) Name() string { return "kmeans" }

func (kmeans) Start(ctx context.Context, m Matrix) (func(*Group) error, error) {
	type memory struct {
		histogram
		palette
	}
	pool := sync.Pool{New: func() any { return new(memory) }}
	return func(g *Group) error {
		mem := pool.Get().(*memory)
		defer pool.Put(mem)
		mem.histogram.reset(g.Importance != nil)
		mem.histogram.add(g.Weights, g.Importance)
		mem.palette.find(m.Bits, &mem.histogram)
		copy(g.LUT, mem.palette.lut)
		mem.palette.assign(g.Indices, g.Weights)
		return nil
	}, nil
}
