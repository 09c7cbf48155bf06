package predict

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Report is what a result comes down to.
type Report struct {
	Model    string `json:"model"`
	Function string `json:"function"`
	Numerics string `json:"numerics"` // fp32 or fp16
	Calls    int    `json:"calls"`
	// FirstSeconds is the duration of the first call, which prepares the
	// function; MeanSeconds is the mean of the others, if there are any.
	FirstSeconds float64        `json:"first_seconds"`
	MeanSeconds  float64        `json:"mean_seconds,omitempty"`
	Inputs       []InputReport  `json:"inputs"`
	Outputs      []TensorReport `json:"outputs"`
	States       []TensorReport `json:"states,omitempty"`
	Notes        []string       `json:"notes"` // what deserves attention
}

// InputReport describes an input.
type InputReport struct {
	Name   string `json:"name"`
	DType  string `json:"dtype"`
	Shape  []int  `json:"shape"`
	Source string `json:"source"` // a file, "random", or "default"
	Conversion
}

// TensorReport describes an output of the last call, or a state after it.
type TensorReport struct {
	Name  string   `json:"name"`
	DType string   `json:"dtype"`
	Shape []int    `json:"shape"`
	Min   Number   `json:"min"` // of the finite elements, as are max and mean
	Max   Number   `json:"max"`
	Mean  Number   `json:"mean"`
	NaN   int      `json:"nan"`
	Inf   int      `json:"inf"`
	First []Number `json:"first"` // up to eight elements
}

// Number is a number of a report. JSON has no words for some.
type Number float64

// MarshalJSON writes what is no number as a string.
func (n Number) MarshalJSON() ([]byte, error) {
	switch f := float64(n); {
	case math.IsNaN(f):
		return []byte(`"NaN"`), nil
	case math.IsInf(f, 1):
		return []byte(`"Infinity"`), nil
	case math.IsInf(f, -1):
		return []byte(`"-Infinity"`), nil
	}
	return []byte(n.String()), nil
}

// String returns n with six significant digits, or all of an integer.
func (n Number) String() string {
	if f := float64(n); f == math.Trunc(f) && math.Abs(f) < 1e15 {
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return strconv.FormatFloat(float64(n), 'g', 6, 64)
}

// Report describes the result of a run on m.
func (m *Model) Report(r *Result) *Report {
	p := &Report{Model: m.Path, Function: r.Function, Numerics: "fp32", Calls: r.Calls, Notes: []string{}, FirstSeconds: r.First.Seconds()}
	if m.half {
		p.Numerics = "fp16"
	}
	if r.Calls > 1 {
		p.MeanSeconds = (r.All - r.First).Seconds() / float64(r.Calls-1)
	}
	note := func(format string, args ...any) { p.Notes = append(p.Notes, fmt.Sprintf(format, args...)) }
	for _, x := range r.Inputs {
		in := InputReport{Name: x.Name, DType: x.DType.String(), Shape: x.call(0, r.Calls).Shape, Conversion: x.Conversion}
		switch {
		case x.Array == nil && x.Random:
			in.Source = "random"
		case x.Array == nil:
			in.Source = "default"
			note("input %q was not given and is %v everywhere, as the model says", x.Name, x.Default)
		default:
			in.Source = x.Array.File
			if x.Conversion.Any() {
				to := "fp32"
				if m.half {
					to = x.DType.String()
				}
				note("input %q: of %d values of type %v, as %s %v", x.Name, x.Tensor.Len(), x.Array.DType, to, x.Conversion)
			}
			if x.Given != nil && len(x.Given) > 0 {
				note("input %q: shape %v was taken as %v", x.Name, x.Given, in.Shape)
			}
		}
		p.Inputs = append(p.Inputs, in)
	}
	for _, name := range r.Unused {
		note("array %q is no input of function %q: not used", name, r.Function)
	}
	tensor := func(kind string, o Output) TensorReport {
		t := o.Tensor
		x := TensorReport{
			Name: o.Name, DType: o.DType.String(), Shape: t.Shape, NaN: o.Stats.NaN, Inf: o.Stats.Inf,
			Min: Number(o.Stats.Min), Max: Number(o.Stats.Max), Mean: Number(o.Stats.Mean), First: []Number{},
		}
		if t.Shape == nil {
			x.Shape = []int{}
		}
		for i := range min(8, t.Len()) {
			if t.DType.IsFloat() {
				x.First = append(x.First, Number(t.Float[i]))
			} else {
				x.First = append(x.First, Number(t.Int[i]))
			}
		}
		var what []string
		if x.NaN > 0 {
			what = append(what, fmt.Sprintf("%d NaN", x.NaN))
		}
		if x.Inf > 0 {
			what = append(what, fmt.Sprintf("%d infinite", x.Inf))
		}
		switch {
		case len(what) > 0 && r.Calls > 1 && kind == "output":
			note("%s %q: %s of %d values after the last call, not finite after %d of %d calls", kind, x.Name, strings.Join(what, ", "), o.Stats.N, o.Bad, r.Calls)
		case len(what) > 0:
			note("%s %q: %s of %d values", kind, x.Name, strings.Join(what, ", "), o.Stats.N)
		case o.Bad > 0:
			note("%s %q: not finite after %d of %d calls, though finite after the last", kind, x.Name, o.Bad, r.Calls)
		}
		return x
	}
	for _, o := range r.Outputs {
		p.Outputs = append(p.Outputs, tensor("output", o))
	}
	for _, o := range r.States {
		p.States = append(p.States, tensor("state", o))
	}
	for _, a := range r.Extra {
		note("state %v is not of this model: it is kept as it is", a)
	}
	return p
}
