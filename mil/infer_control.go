package mil

import (
	"fmt"
	"slices"
)

// common returns what is known of a value that has one of two types.
func common(a, b Type) (Type, bool) {
	if !a.Accepts(b) {
		return Type{}, false
	}
	out := a
	out.Shape = slices.Clone(a.Shape)
	for i, d := range b.Shape {
		if out.Shape[i] != d {
			out.Shape[i] = Dynamic
		}
	}
	return out, true
}

// blockOutputs returns the types of the outputs of the n-th block of op.
func (c *call) blockOutputs(n int) ([]Type, error) {
	b := c.op.Blocks[n]
	if b == nil {
		return nil, fmt.Errorf("block %d is nil", n)
	}
	out := make([]Type, len(b.Outputs))
	for i, v := range b.Outputs {
		if v == nil {
			return nil, fmt.Errorf("output %d of block %d is nil", i, n)
		}
		out[i] = v.Type
	}
	return out, nil
}

func inferCond(c *call) ([]Type, error) {
	if err := c.rank("pred", 0); err != nil {
		return nil, err
	}
	if len(c.op.Blocks) != 2 {
		return nil, fmt.Errorf("cond has %d blocks, want 2: one for true, one for false", len(c.op.Blocks))
	}
	yes, err := c.blockOutputs(0)
	if err != nil {
		return nil, err
	}
	no, err := c.blockOutputs(1)
	if err != nil {
		return nil, err
	}
	if len(yes) != len(no) {
		return nil, fmt.Errorf("the block for true has %d outputs, the one for false %d", len(yes), len(no))
	}
	for _, b := range c.op.Blocks {
		if len(b.Inputs) > 0 {
			return nil, fmt.Errorf("blocks of cond have no inputs, got %d", len(b.Inputs))
		}
	}
	out := make([]Type, len(yes))
	for i := range out {
		var ok bool
		if out[i], ok = common(yes[i], no[i]); !ok {
			return nil, fmt.Errorf("output %d is a %v of the block for true, but a %v of the one for false", i, yes[i], no[i])
		}
	}
	return out, nil
}

func inferWhile(c *call) ([]Type, error) {
	vars := c.op.Arg("loop_vars")
	if len(c.op.Blocks) != 2 {
		return nil, fmt.Errorf("while_loop has %d blocks, want 2: condition and body", len(c.op.Blocks))
	}
	test, err := c.blockOutputs(0)
	if err != nil {
		return nil, err
	}
	body, err := c.blockOutputs(1)
	if err != nil {
		return nil, err
	}
	if len(test) != 1 || !test[0].Accepts(TensorOf(Bool)) {
		return nil, fmt.Errorf("the condition gives %v, want one bool", test)
	}
	if len(body) != len(vars) {
		return nil, fmt.Errorf("the body has %d outputs for %d loop_vars", len(body), len(vars))
	}
	out := make([]Type, len(vars))
	for i, v := range vars {
		out[i] = v.Type
		for n, b := range c.op.Blocks {
			if len(b.Inputs) != len(vars) {
				return nil, fmt.Errorf("block %d has %d inputs for %d loop_vars", n, len(b.Inputs), len(vars))
			}
			in := b.Inputs[i]
			if in == nil {
				return nil, fmt.Errorf("input %d of block %d is nil", i, n)
			}
			// What a block gets is the variable before the loop, and what
			// the body gave: its dimension is known only if both's is.
			for _, t := range []Type{v.Type, body[i]} {
				if !in.Type.Accepts(t) {
					return nil, fmt.Errorf("input %q of block %d is a %v, but gets a %v", in.Name, n, in.Type, t)
				}
			}
			if out[i], err = commonOr(out[i], in.Type); err != nil {
				return nil, err
			}
		}
		if out[i], err = commonOr(out[i], body[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func commonOr(a, b Type) (Type, error) {
	t, ok := common(a, b)
	if !ok {
		return Type{}, fmt.Errorf("a %v turns into a %v", a, b)
	}
	return t, nil
}

// elem returns the type of the elements of the list operand.
func (c *call) elem() (Type, error) {
	t := c.t("ls")
	if len(t.Elems) != 1 || t.Elems[0].Kind != TensorKind {
		return Type{}, fmt.Errorf("argument %q is a %v, want a list of tensors", "ls", t)
	}
	return t.Elems[0], nil
}

func inferMakeList(c *call) ([]Type, error) {
	name, err := c.str("dtype")
	if err != nil {
		return nil, err
	}
	d, ok := ParseDType(name)
	if !ok || d == String {
		return nil, fmt.Errorf("argument %q is %q, want an element type", "dtype", name)
	}
	vals := c.op.Arg("elem_shape")
	if len(vals) > maxRank {
		return nil, fmt.Errorf("elem_shape has %d dimensions, more than %d", len(vals), maxRank)
	}
	shape := make([]int, len(vals))
	for i, v := range vals {
		n, ok := ConstInts(v)
		switch {
		case v.Type.DType == String: // a dimension by name
			shape[i] = Dynamic
		case !ok || len(n) != 1 || n[0] < 0 || n[0] > maxDim:
			return nil, fmt.Errorf("elem_shape has %v, want constant dimensions", n)
		default:
			shape[i] = n[0]
		}
	}
	length := Dynamic
	dynamic, err := c.flag("dynamic_length")
	if err != nil {
		return nil, err
	}
	n, known := c.ints("init_length")
	if !c.has("init_length") {
		n, known = []int{1}, true
	}
	switch {
	case known && (len(n) != 1 || n[0] < 0 || n[0] > maxDim):
		return nil, fmt.Errorf("init_length is %v", n)
	case known && !dynamic:
		length = n[0]
	}
	return []Type{{Kind: ListKind, Elems: []Type{TensorOf(d, shape...)}, Length: length}}, nil
}

func inferListLength(c *call) ([]Type, error) { return one(Int32) }

func inferListRead(c *call) ([]Type, error) {
	e, err := c.elem()
	return []Type{e}, err
}

func inferListWrite(c *call) ([]Type, error) {
	e, err := c.elem()
	if err == nil && !e.Accepts(c.t("value")) {
		err = fmt.Errorf("a %v cannot be an element of a %v", c.t("value"), c.t("ls"))
	}
	return []Type{c.t("ls")}, err
}

func inferListGather(c *call) ([]Type, error) {
	e, err := c.elem()
	if err != nil {
		return nil, err
	}
	if err := c.rank("indices", 1); err != nil {
		return nil, err
	}
	return one(e.DType, append([]int{c.t("indices").Shape[0]}, e.Shape...)...)
}

func inferListScatter(c *call) ([]Type, error) {
	e, err := c.elem()
	if err != nil {
		return nil, err
	}
	if err := c.rank("indices", 1); err != nil {
		return nil, err
	}
	if v := c.t("value"); v.DType != e.DType || !fits(v.Shape, append([]int{c.t("indices").Shape[0]}, e.Shape...)) {
		return nil, fmt.Errorf("value %v does not scatter to indices %v of a %v", v, c.t("indices"), c.t("ls"))
	}
	return []Type{c.t("ls")}, nil
}

func inferReadState(c *call) ([]Type, error) { return []Type{c.t("input").Tensor()}, nil }

func (c *call) fitsState(state, value string) error {
	s, v := c.t(state).Tensor(), c.t(value)
	if !s.Accepts(v) {
		return fmt.Errorf("a %v cannot be written to a state of %v", v, s)
	}
	return nil
}

func inferWriteState(c *call) ([]Type, error) { return nil, c.fitsState("input", "data") }

func inferUpdateState(c *call) ([]Type, error) {
	return []Type{c.t("state").Tensor()}, c.fitsState("state", "value")
}
