package check

import (
	"fmt"
	"slices"
	"strings"

	"anemone/internal/anemll"
	"anemone/mil"
)

// Device is what runs an operation.
type Device string

// Devices.
const (
	NeuralEngine Device = "ANE"
	CPU          Device = "CPU"
	// NoDevice is that of constants and compressed weights: they are data.
	NoDevice Device = "none"
)

// PlanReport says which device would run each operation of a package.
type PlanReport struct {
	// Predicted is true if the devices were worked out by rules, and false if
	// Core ML has told them.
	Predicted bool           `json:"predicted"`
	Functions []FunctionPlan `json:"functions"`
}

// FunctionPlan is the plan of one function of a part.
type FunctionPlan struct {
	Part     string         `json:"part"`
	Function string         `json:"function"`
	Counts   map[Device]int `json:"counts"` // operations by device
	Ops      []Placement    `json:"operations"`
}

// Placement is the device of one operation.
type Placement struct {
	Name   string `json:"name"` // of the result
	Type   string `json:"type"` // of the operation, such as "conv"
	Output string `json:"output"`
	Device Device `json:"device"`
	// Reason says why the operation is not on the Neural Engine.
	Reason string `json:"reason,omitempty"`
	// Risk says why it may not stay there.
	Risk string `json:"risk,omitempty"`
}

// Share returns the fraction of the operations that need a device which the
// Neural Engine runs; 1 if there are none.
func (p *PlanReport) Share() float64 {
	ane, all := 0, 0
	for _, f := range p.Functions {
		ane += f.Counts[NeuralEngine]
		all += f.Counts[NeuralEngine] + f.Counts[CPU]
	}
	if all == 0 {
		return 1
	}
	return float64(ane) / float64(all)
}

// Plan predicts which device runs each operation of every function of a
// package.
//
// The rules are those of the contract's notes on the Neural Engine and of
// published compute plans. What they leave out, the cost model of Core ML,
// can move more operations to the CPU or, in small models, all of them.
func Plan(p *anemll.Package) *PlanReport {
	r := &PlanReport{Predicted: true}
	for _, part := range p.Parts() {
		for _, f := range part.Model.Program.Functions {
			fp := FunctionPlan{Part: part.Name, Function: f.Name, Counts: map[Device]int{}, Ops: []Placement{}}
			f.Body.Walk(func(op *mil.Operation) bool {
				pl := place(op, part == p.Embeddings)
				fp.Counts[pl.Device]++
				fp.Ops = append(fp.Ops, pl)
				return true
			})
			r.Functions = append(r.Functions, fp)
		}
	}
	return r
}

// Limits of the Neural Engine.
const (
	// maxSide bounds the channels, height and width of a tensor, its last
	// three dimensions.
	maxSide = 65536
	// maxSideOlder bounds height and width before A16 and M4.
	maxSideOlder = 16384
	// maxOffsetOlder is the largest offset of a slice on M1 and M2.
	maxOffsetOlder = 4094
)

// offEngine lists operations that have no implementation on the Neural
// Engine.
var offEngine = map[string]bool{
	"cumsum": true, "mod": true, "logical_and": true, "logical_or": true, "logical_xor": true, "reduce_prod": true,
}

// moves are operations that only move elements about. They follow their
// surroundings, also for the integers of a position: the published plan of a
// Qwen3 of 28 layers has 7 operations of 2340 beside the Neural Engine, and
// there are 112 of these.
var moves = map[string]bool{
	"concat": true, "reshape": true, "expand_dims": true, "squeeze": true, "transpose": true, "slice_by_index": true,
	"slice_by_size": true, "split": true, "stack": true, "tile": true, "read_state": true, "write_state": true,
	"coreml_update_state": true, "slice_update": true, "gather": true,
}

// place decides where an operation runs.
func place(op *mil.Operation, embeddings bool) Placement {
	p := Placement{Name: op.Name, Type: op.Type, Device: NeuralEngine}
	var out []string
	for _, v := range op.Results {
		out = append(out, v.Type.String())
		if p.Name == "" {
			p.Name = v.Name
		}
	}
	p.Output = strings.Join(out, ", ")
	cpu := func(format string, a ...any) Placement {
		p.Device, p.Reason = CPU, fmt.Sprintf(format, a...)
		return p
	}
	switch {
	case op.Type == "const" || strings.HasPrefix(op.Type, "constexpr_"):
		p.Device = NoDevice
		if op.Type != "const" && op.Type != "constexpr_lut_to_dense" {
			p.Risk = "only look-up tables run correctly on the Neural Engine: linearly quantized weights compile to wrong results or not at all"
		}
		return p
	case embeddings && op.Type == "gather":
		return cpu("a look-up in the table of all tokens: the rows that are needed are read from the mapped file")
	case embeddings:
		return cpu("serves the look-up in the embeddings, which the CPU does")
	}
	if offEngine[op.Type] {
		return cpu("%s has no implementation on the Neural Engine", op.Type)
	}
	for _, t := range types(op) {
		if why := tooLarge(t); why != "" {
			return cpu("%s", why)
		}
	}
	d := resultType(op)
	if x := op.Value("x"); x != nil && (d == mil.Bool || op.Type == "cast") && x.Type.DType.IsInt() {
		d = x.Type.DType // comparisons and conversions are of the kind of what they take
	}
	switch {
	case moves[op.Type]:
	case d.IsInt():
		return cpu("arithmetic on %v", d)
	case d == mil.Float32 || d == mil.Float64:
		return cpu("computes in %v; the Neural Engine computes in fp16", d)
	}
	p.Risk = risk(op)
	return p
}

// types returns the tensors that an operation reads and makes.
func types(op *mil.Operation) []mil.Type {
	var ts []mil.Type
	for _, a := range op.Args {
		for _, v := range a.Values {
			if v.Type.Kind == mil.TensorKind {
				ts = append(ts, v.Type)
			}
		}
	}
	for _, v := range op.Results {
		if v.Type.Kind == mil.TensorKind {
			ts = append(ts, v.Type)
		}
	}
	return ts
}

// resultType returns the element type of the first tensor that an operation
// makes.
func resultType(op *mil.Operation) mil.DType {
	for _, v := range op.Results {
		if v.Type.Kind == mil.TensorKind {
			return v.Type.DType
		}
	}
	return mil.InvalidDType
}

// tooLarge says which dimension of a tensor the Neural Engine cannot take.
func tooLarge(t mil.Type) string {
	for i, n := range t.Shape {
		switch {
		case n < 0:
			return fmt.Sprintf("a tensor of unknown shape, %v", t)
		case i >= len(t.Shape)-3 && n > maxSide:
			return fmt.Sprintf("a tensor %v: more than %d elements in a dimension", t, maxSide)
		}
	}
	return ""
}

// risk names what is known to go wrong with an operation on some chips.
func risk(op *mil.Operation) string {
	for _, t := range types(op) {
		for i, n := range t.Shape {
			if i >= len(t.Shape)-2 && n > maxSideOlder {
				return fmt.Sprintf("a tensor %v: before A16 and M4 at most %d elements in the last two dimensions", t, maxSideOlder)
			}
		}
	}
	switch op.Type {
	case "sigmoid", "silu":
		return "the Neural Engine's sigmoid is off by up to 0.015; tanh is not"
	case "slice_by_index", "slice_by_size":
		if b := op.Value("begin"); b != nil && b.Literal != nil {
			if n := slices.Max(append([]int64{0}, b.Literal.Ints...)); n > maxOffsetOlder {
				return fmt.Sprintf("begins at %d: on M1 and M2, offsets saturate at %d", n, maxOffsetOlder)
			}
		}
	case "read_state":
		if s := op.Value("input"); s != nil && len(s.Type.Shape) > 0 {
			switch n := s.Type.Shape[len(s.Type.Shape)-1]; {
			case n == 3:
				return "a state whose last dimension is 3 fails at run time"
			case n%32 != 0:
				return fmt.Sprintf("a state whose last dimension, %d, is no multiple of 32 fails on some systems", n)
			}
		}
	}
	return ""
}
