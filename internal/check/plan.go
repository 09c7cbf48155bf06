package check

import (
	"fmt"
	"strings"

	"anemone/internal/ane"
	"anemone/internal/anemll"
	"anemone/mil"
)

// Device is what runs an operation.
type Device = ane.Device

// Devices.
const (
	NeuralEngine = ane.Engine
	CPU          = ane.CPU
	// NoDevice is that of constants and compressed weights: they are data.
	NoDevice = ane.None
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

// place decides where an operation runs; see package ane for the facts.
func place(op *mil.Operation, embeddings bool) Placement {
	p := Placement{Name: op.Name, Type: op.Type}
	var out []string
	for _, v := range op.Results {
		out = append(out, v.Type.String())
		if p.Name == "" {
			p.Name = v.Name
		}
	}
	p.Output = strings.Join(out, ", ")
	p.Device, p.Reason = ane.Place(op, embeddings)
	switch {
	case p.Device == NeuralEngine:
		p.Risk = risk(op)
	case p.Device == NoDevice && op.Type != "const" && op.Type != "constexpr_lut_to_dense":
		p.Risk = "only look-up tables run correctly on the Neural Engine: linearly quantized weights compile to wrong results or not at all"
	}
	return p
}

// risk names what is known to go wrong with an operation on some chips.
func risk(op *mil.Operation) string {
	for _, t := range ane.Tensors(op) {
		if ane.TooLargeOlder(t) > 0 {
			return fmt.Sprintf("a tensor %v: before A16 and M4 at most %d elements in the last two dimensions", t, ane.MaxSideOlder)
		}
	}
	switch {
	case ane.Coarse(op.Type):
		return "the Neural Engine's sigmoid is off by up to 0.015; tanh is not"
	case ane.SliceOffset(op) > ane.MaxOffsetOlder:
		return fmt.Sprintf("begins at %d: on M1 and M2, offsets saturate at %d", ane.SliceOffset(op), ane.MaxOffsetOlder)
	case op.Type == "read_state":
		if s := op.Value("input"); s != nil && len(s.Type.Shape) > 0 {
			switch n := s.Type.Shape[len(s.Type.Shape)-1]; {
			case n == 3:
				return "a state whose last dimension is 3 fails at run time"
			case n%ane.StateMultiple != 0:
				return fmt.Sprintf("a state whose last dimension, %d, is no multiple of %d fails on some systems", n, ane.StateMultiple)
			}
		}
	}
	return ""
}
