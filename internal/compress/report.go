package compress

import (
	"encoding/json"
	"sync"
)

// Report collects what was done to the weights of a model. The zero Report is
// empty and ready; its methods may be called from several goroutines.
type Report struct {
	mu      sync.Mutex
	entries []*Entry // nil until the weight has been written
}

// Entry is what was done to one weight.
type Entry struct {
	Name  string `json:"name"`
	Shape []int  `json:"shape"`
	// Encoding is "fp16", or "lut" and the number of bits.
	Encoding string `json:"encoding"`
	// Method says how the tables were found.
	Method string `json:"method,omitempty"`
	// Group is the number of output channels that share a table, and
	// GroupAsked the number that was asked for where that does not divide
	// the channels. A table for the whole tensor has all channels.
	Group      int `json:"group,omitempty"`
	GroupAsked int `json:"group_asked,omitempty"`
	// Elements is the number of weights, Bytes the size of their stored form
	// with its tables.
	Elements int64 `json:"elements"`
	Bytes    int64 `json:"bytes"`
	// RelativeError is the sum of squared errors over the sum of squared
	// weights, MaxError the largest error. Tables are compared with the
	// weights rounded to fp16, fp16 with the weights of the source if that
	// gives them in float32, and is taken to be exact otherwise.
	RelativeError float64 `json:"relative_error"`
	MaxError      float64 `json:"max_error"`
	// Overflow and Underflow count the weights that fp16 cannot hold: they
	// were clamped, or became zero.
	Overflow  int64 `json:"overflow,omitempty"`
	Underflow int64 `json:"underflow,omitempty"`
}

// Summary is a report at one moment.
type Summary struct {
	Weights  []Entry `json:"weights"`
	Elements int64   `json:"elements"`
	Bytes    int64   `json:"bytes"`
}

// Summary returns what is known of the weights that have been written so far,
// in the order in which their promises were made.
func (r *Report) Summary() Summary {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Summary{Weights: []Entry{}}
	for _, e := range r.entries {
		if e != nil {
			s.Weights = append(s.Weights, *e)
			s.Elements += e.Elements
			s.Bytes += e.Bytes
		}
	}
	return s
}

// MarshalJSON returns the JSON form of the summary.
func (r *Report) MarshalJSON() ([]byte, error) { return json.Marshal(r.Summary()) }

// reserve returns a function that puts the entry of a weight in its place.
func (r *Report) reserve() func(Entry) {
	if r == nil {
		return func(Entry) {}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	i := len(r.entries)
	r.entries = append(r.entries, nil)
	return func(e Entry) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.entries[i] = &e
	}
}

// figures are the sums behind an entry.
type figures struct {
	loss     Loss
	squared  float64 // sum of squared errors
	energy   float64 // sum of squared weights
	maxError float64
}

func (f *figures) add(g figures) {
	f.loss.add(g.loss)
	f.squared += g.squared
	f.energy += g.energy
	f.maxError = max(f.maxError, g.maxError)
}

func (f *figures) fill(e *Entry) {
	e.MaxError = f.maxError
	e.Overflow, e.Underflow = f.loss.Overflow, f.loss.Underflow
	if f.energy > 0 {
		e.RelativeError = f.squared / f.energy
	}
}
