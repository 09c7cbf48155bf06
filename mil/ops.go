package mil

import (
	"fmt"
	"maps"
	"slices"
)

// OpDef is the definition of an operation: one row of the table that the
// builder, the verifier and the executors read.
type OpDef struct {
	Name   string
	Params []Param
	// Results is the number of results; -1 if it depends on the operands.
	Results int
	// Since is the first operation set that has the operation, in the form
	// described here.
	Since Opset

	infer inferFunc
}

// Param is a parameter of an operation.
type Param struct {
	Name     string
	Accepts  Class
	Optional bool
	Variadic bool // one or more values
	Const    bool // known before the program runs
}

// Class is a set of types that a parameter accepts.
type Class uint8

// Classes of parameter types.
const (
	Any      Class = iota // a tensor of any element type
	Floats                // fp16, fp32
	Integers              // any integer type
	Numbers               // Floats or Integers
	Booleans              // bool
	Strings               // string
	States                // a state
)

var classNames = [...]string{"tensor", "fp16 or fp32 tensor", "integer tensor", "tensor of numbers", "bool tensor", "string", "state"}

func (c Class) String() string { return classNames[c] }

// Contains reports whether t belongs to c.
func (c Class) Contains(t Type) bool {
	if c == States {
		return t.Kind == StateKind
	}
	if t.Kind != TensorKind {
		return false
	}
	switch c {
	case Floats:
		return t.DType.IsFloat()
	case Integers:
		return t.DType.IsInt()
	case Numbers:
		return t.DType.IsFloat() || t.DType.IsInt()
	case Booleans:
		return t.DType == Bool
	case Strings:
		return t.DType == String
	}
	return true
}

// Param returns the named parameter, or nil.
func (d *OpDef) Param(name string) *Param {
	for i := range d.Params {
		if d.Params[i].Name == name {
			return &d.Params[i]
		}
	}
	return nil
}

// Infer returns the types of the results of op, which must have the
// arguments that its definition requires. A dimension that depends on values
// not known before the program runs is Dynamic.
func (d *OpDef) Infer(op *Operation) ([]Type, error) {
	if err := d.checkArgs(op); err != nil {
		return nil, err
	}
	return d.infer(&call{op})
}

// checkArgs holds the arguments of op to the parameters of d.
func (d *OpDef) checkArgs(op *Operation) error {
	for i := range d.Params {
		p := &d.Params[i]
		vals := op.Arg(p.Name)
		if vals == nil {
			if v := op.Attr(p.Name); v != nil && p.Const {
				vals = []*Value{v}
			}
		}
		if len(vals) == 0 {
			if p.Optional {
				continue
			}
			return fmt.Errorf("argument %q is missing (want a %v)", p.Name, p.Accepts)
		}
		if len(vals) > 1 && !p.Variadic {
			return fmt.Errorf("argument %q has %d values, want one", p.Name, len(vals))
		}
		for _, v := range vals {
			if v == nil {
				return fmt.Errorf("argument %q is nil", p.Name)
			}
			if !p.Accepts.Contains(v.Type) {
				return fmt.Errorf("argument %q is a %v, want a %v", p.Name, v.Type, p.Accepts)
			}
			if p.Const && !v.IsConst() && !v.constexpr() {
				return fmt.Errorf("argument %q must be a constant, got value %q", p.Name, v.Name)
			}
		}
	}
	for _, a := range op.Args {
		if d.Param(a.Name) == nil {
			return fmt.Errorf("unknown argument %q (known: %s)", a.Name, d.paramNames())
		}
	}
	return nil
}

// constexpr reports whether v is the result of an operation that runs at
// load time, such as constexpr_lut_to_dense.
func (v *Value) constexpr() bool {
	return v.Op != nil && len(v.Op.Type) > 10 && v.Op.Type[:10] == "constexpr_"
}

func (d *OpDef) paramNames() string {
	s := ""
	for i, p := range d.Params {
		if i > 0 {
			s += ", "
		}
		s += p.Name
	}
	return s
}

// LookupOp returns the definition of the named operation.
func LookupOp(name string) (*OpDef, bool) {
	d, ok := opTable[name]
	return d, ok
}

// OpNames returns the names of all operations of the table, sorted.
func OpNames() []string { return slices.Sorted(maps.Keys(opTable)) }

// Ops is the table of operations by name. It is not to be changed.
func Ops() map[string]*OpDef { return opTable }

// Short constructors keep the table readable.
func req(name string, c Class) Param { return Param{Name: name, Accepts: c} }
func opt(name string, c Class) Param { return Param{Name: name, Accepts: c, Optional: true} }
func con(name string, c Class) Param { return Param{Name: name, Accepts: c, Const: true} }
func optCon(name string, c Class) Param {
	return Param{Name: name, Accepts: c, Const: true, Optional: true}
}
func variadic(name string, c Class) Param { return Param{Name: name, Accepts: c, Variadic: true} }

var opTable = func() map[string]*OpDef {
	t := map[string]*OpDef{}
	add := func(names []string, since Opset, infer inferFunc, params ...Param) {
		for _, n := range names {
			t[n] = &OpDef{Name: n, Params: params, Results: 1, Since: since, infer: infer}
		}
	}
	one := func(name string, since Opset, infer inferFunc, params ...Param) {
		add([]string{name}, since, infer, params...)
	}

	// Constants.
	one("const", CoreML5, inferConst)
	one("constexpr_lut_to_dense", CoreML6, inferLUT,
		con("indices", Integers), con("lut", Any), optCon("vector_axis", Integers), optCon("shape", Integers))

	// Elementwise, with numpy's broadcasting.
	add([]string{"add", "sub", "mul", "real_div", "floor_div", "mod", "pow", "maximum", "minimum"},
		CoreML5, inferBinary, req("x", Numbers), req("y", Numbers))
	add([]string{"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"},
		CoreML5, inferCompare, req("x", Any), req("y", Any))
	add([]string{"logical_and", "logical_or", "logical_xor"}, CoreML5, inferCompare, req("x", Booleans), req("y", Booleans))
	one("logical_not", CoreML5, inferSame, req("x", Booleans))
	add([]string{"relu", "relu6", "silu", "sigmoid", "softplus", "softsign", "tanh", "exp", "exp2", "sqrt", "erf",
		"sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh"},
		CoreML5, inferSame, req("x", Floats))
	add([]string{"abs", "sign", "square", "floor", "ceil", "round", "identity"}, CoreML5, inferSame, req("x", Any))
	add([]string{"log", "rsqrt", "inverse"}, CoreML5, inferSame, req("x", Floats), optCon("epsilon", Floats))
	one("clip", CoreML5, inferSame, req("x", Numbers), con("alpha", Numbers), con("beta", Numbers))
	one("gelu", CoreML5, inferSame, req("x", Floats), optCon("mode", Strings))
	add([]string{"elu", "leaky_relu"}, CoreML5, inferSame, req("x", Floats), con("alpha", Floats))
	one("cast", CoreML5, inferCast, req("x", Any), con("dtype", Strings))
	one("select", CoreML5, inferSelect, req("cond", Booleans), req("a", Any), req("b", Any))

	// Linear algebra.
	one("matmul", CoreML5, inferMatmul, req("x", Numbers), req("y", Numbers),
		optCon("transpose_x", Booleans), optCon("transpose_y", Booleans))
	one("linear", CoreML5, inferLinear, req("x", Numbers), con("weight", Numbers), optCon("bias", Numbers))
	one("conv", CoreML5, inferConv, req("x", Floats), req("weight", Floats), optCon("bias", Floats),
		optCon("strides", Integers), optCon("pad_type", Strings), optCon("pad", Integers),
		optCon("dilations", Integers), optCon("groups", Integers))
	one("scaled_dot_product_attention", CoreML8, inferSDPA, req("query", Floats), req("key", Floats), req("value", Floats), opt("attn_mask", Any))

	// Normalization and reduction.
	one("softmax", CoreML5, inferSame, req("x", Floats), optCon("axis", Integers))
	one("layer_norm", CoreML5, inferSame, req("x", Floats), optCon("axes", Integers),
		optCon("gamma", Floats), optCon("beta", Floats), optCon("epsilon", Floats))
	one("l2_norm", CoreML5, inferSame, req("x", Floats), optCon("epsilon", Floats))
	add([]string{"reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod", "reduce_sum_square",
		"reduce_l1_norm", "reduce_l2_norm", "reduce_log_sum", "reduce_log_sum_exp"},
		CoreML5, inferReduce, req("x", Numbers), optCon("axes", Integers), optCon("keep_dims", Booleans))
	add([]string{"reduce_argmax", "reduce_argmin"}, CoreML5, inferArg, req("x", Numbers),
		optCon("axis", Integers), optCon("keep_dims", Booleans), optCon("output_dtype", Strings))
	one("cumsum", CoreML5, inferSame, req("x", Numbers), optCon("axis", Integers), optCon("exclusive", Booleans), optCon("reverse", Booleans))
	one("topk", CoreML5, inferTopK, req("x", Numbers), opt("k", Integers), optCon("axis", Integers),
		optCon("ascending", Booleans), optCon("sort", Booleans), optCon("return_indices", Booleans), optCon("output_indices_dtype", Strings))
	t["topk"].Results = -1

	// Shape.
	one("reshape", CoreML5, inferReshape, req("x", Any), req("shape", Integers))
	one("transpose", CoreML5, inferTranspose, req("x", Any), con("perm", Integers))
	one("expand_dims", CoreML5, inferExpandDims, req("x", Any), con("axes", Integers))
	one("squeeze", CoreML5, inferSqueeze, req("x", Any), optCon("axes", Integers))
	one("concat", CoreML5, inferConcat, variadic("values", Any), con("axis", Integers), optCon("interleave", Booleans))
	one("stack", CoreML5, inferStack, variadic("values", Any), con("axis", Integers))
	one("split", CoreML5, inferSplit, req("x", Any), con("axis", Integers), optCon("num_splits", Integers), optCon("split_sizes", Integers))
	t["split"].Results = -1
	one("tile", CoreML5, inferTile, req("x", Any), req("reps", Integers))
	one("reverse", CoreML5, inferSame, req("x", Any), optCon("axes", Integers))
	one("pad", CoreML5, inferPad, req("x", Any), req("pad", Integers), optCon("mode", Strings), optCon("constant_val", Any))
	one("shape", CoreML5, inferShape, req("x", Any))
	one("fill", CoreML5, inferFill, req("shape", Integers), optCon("value", Any))
	one("fill_like", CoreML5, inferFillLike, req("ref_tensor", Any), optCon("value", Any))
	one("range_1d", CoreML5, inferRange, req("start", Numbers), req("end", Numbers), req("step", Numbers))
	one("band_part", CoreML5, inferSame, req("x", Any), optCon("lower", Integers), optCon("upper", Integers))

	// Indexing.
	index := []Param{req("begin", Integers), req("end", Integers), opt("stride", Integers),
		optCon("begin_mask", Booleans), optCon("end_mask", Booleans), optCon("squeeze_mask", Booleans)}
	one("slice_by_index", CoreML5, inferSlice, append([]Param{req("x", Any)}, index...)...)
	one("slice_by_size", CoreML5, inferSliceSize, req("x", Any), req("begin", Integers), req("size", Integers))
	one("slice_update", CoreML8, inferSliceUpdate, append([]Param{req("x", Any), req("update", Any)}, index...)...)
	one("gather", CoreML5, inferGather, req("x", Any), req("indices", Integers), optCon("axis", Integers),
		optCon("batch_dims", Integers), optCon("validate_indices", Booleans))
	one("gather_along_axis", CoreML5, inferGatherAlong, req("x", Any), req("indices", Integers), optCon("axis", Integers),
		optCon("validate_indices", Booleans))
	one("gather_nd", CoreML5, inferGatherND, req("x", Any), req("indices", Integers), optCon("batch_dims", Integers),
		optCon("validate_indices", Booleans))

	// States.
	one("read_state", CoreML8, inferReadState, req("input", States))
	one("write_state", CoreML8, inferWriteState, req("input", States), req("data", Any))
	t["write_state"].Results = 0
	one("coreml_update_state", CoreML8, inferUpdateState, req("state", States), req("value", Any))
	return t
}()
