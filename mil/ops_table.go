package mil

import (
	"fmt"
	"slices"
	"strings"
)

// A rule tells the types of an operation's results, to programs and readers.
type rule struct {
	infer inferFunc
	gives string
}

// Element types that many parameters accept.
const (
	i32    Class = 1 << Int32
	u32    Class = 1 << UInt32
	small  Class = 1<<Int8 | 1<<UInt8 | 1<<Int16 | 1<<UInt16
	octets Class = 1<<Int8 | 1<<UInt8
	sizes  Class = 1<<Int8 | 1<<Int16 | 1<<Int32
	num          = Floats | i32
	value        = num | Booleans // what tensors hold before iOS 17
	wide         = value | small  // and since
	narrow       = 1<<UInt1 | 1<<UInt2 | 1<<UInt3 | 1<<UInt4 | 1<<UInt6 | 1<<UInt8
	packed       = octets | 1<<Int4 | 1<<UInt4 | Floats
)

// Short constructors keep the table readable. "x:T" is the parameter x of
// the group T.
func param(name string, c Class) Param {
	name, group, _ := strings.Cut(name, ":")
	return Param{Name: name, Group: group, Accepts: c}
}
func req(name string, c Class) Param { return param(name, c) }
func opt(name string, c Class) Param {
	p := param(name, c)
	p.Optional = true
	return p
}
func con(name string, c Class) Param {
	p := param(name, c)
	p.Const = true
	return p
}
func optCon(name string, c Class) Param {
	p := con(name, c)
	p.Optional = true
	return p
}
func variadic(name string, c Class) Param {
	p := param(name, c)
	p.Variadic = true
	return p
}
func drop(name string) Param { return Param{Name: name, dropped: true} }

// or sets the default value.
func (p Param) or(l *Literal) Param {
	p.Default = l
	return p
}

// orBy sets a default value that depends on the operands, or nothing but an
// explanation of what a missing argument means.
func (p Param) orBy(words string, f func(*call) *Literal) Param {
	p.Absent, p.def = words, f
	return p
}

// oneOf sets the allowed strings; a default is the first of them.
func (p Param) oneOf(values ...string) Param {
	p.Values = values
	if p.Optional {
		p.Default = Str(values[0])
	}
	return p
}
func (p Param) anyCase() Param {
	p.AnyCase = true
	return p
}

func nothing(words string) (string, func(*call) *Literal) { return words, nil }

// ones and zeros are defaults with a number for each spatial axis of x.
func ones(c *call) *Literal  { return Ints(slices.Repeat([]int{1}, max(0, c.t("x").Rank()-2))...) }
func zeros(c *call) *Literal { return Ints(make([]int, 2*max(0, c.t("x").Rank()-2))...) }

func allAxes(name string) func(*call) *Literal {
	return func(c *call) *Literal {
		a := make([]int, c.t(name).Rank())
		for i := range a {
			a[i] = i
		}
		return Ints(a...)
	}
}

// likeX is a default in the element type of x.
func likeX(v float64) func(*call) *Literal {
	return func(c *call) *Literal {
		if c.t("x").DType == Float16 {
			return Half(v)
		}
		return Float(v)
	}
}

type opRows map[string]*OpDef

// add adds operations, named in one string, that came with an operation set.
func (t opRows) add(names string, since Opset, r rule, params ...Param) {
	for _, n := range strings.Fields(names) {
		if t[n] != nil {
			panic("two rows for " + n)
		}
		d := &OpDef{Name: n, Params: slices.Clone(params), Results: 1, Since: since, Gives: r.gives, infer: r.infer}
		for i := range d.Params {
			d.Params[i].Since = since
		}
		t[n] = d
	}
}

// newer adds newer forms of operations, with the parameters of the form
// before where none of the given ones replaces them.
func (t opRows) newer(names string, since Opset, params ...Param) {
	for _, n := range strings.Fields(names) {
		old := t[n]
		d := *old
		d.Since, d.older, d.Params = since, old, slices.Clone(old.Params)
		for _, p := range params {
			i := slices.IndexFunc(d.Params, func(q Param) bool { return q.Name == p.Name })
			switch {
			case p.dropped && i >= 0:
				d.Params = slices.Delete(d.Params, i, i+1)
			case p.dropped:
				panic(n + " has no " + p.Name)
			case i >= 0:
				p.Since = d.Params[i].Since
				d.Params[i] = p
			default:
				p.Since = since
				d.Params = append(d.Params, p)
			}
		}
		t[n] = &d
	}
}

// by sets the rule of the newest form of operations, and results the number
// of their results.
func (t opRows) by(names string, r rule) {
	for _, n := range strings.Fields(names) {
		t[n].infer, t[n].Gives = r.infer, r.gives
	}
}
func (t opRows) results(n int, names string) {
	for _, name := range strings.Fields(names) {
		t[name].Results = n
	}
}

// families are the parts of the table, in the order in which documents show
// them.
var families = []struct {
	name string
	fill func(opRows)
}{
	{"Constants and quantization", constants},
	{"Elementwise", elementwise},
	{"Linear algebra", linearAlgebra},
	{"Convolution and pooling", convolutions},
	{"Normalization", normalizations},
	{"Reduction and sorting", reductions},
	{"Shape", shapes},
	{"Indexing", indexing},
	{"Resizing and sampling", resizing},
	{"Recurrence", recurrences},
	{"Random numbers", randomness},
	{"Control flow and lists", control},
	{"State", statefulness},
}

var opTable = func() map[string]*OpDef {
	t := opRows{}
	for _, f := range families {
		f.fill(t)
		for _, d := range t {
			if d.Family == "" {
				for g := d; g != nil; g = g.older {
					g.Family = f.name
				}
			}
		}
	}
	for _, d := range t {
		for f := d; f != nil; f = f.older {
			for i := range f.Params {
				if p := &f.Params[i]; p.Default != nil && !p.Accepts.Contains(p.Default.Type) {
					panic(fmt.Sprintf("%s: default of %s is a %v", f.Name, p.Name, p.Default.Type))
				}
			}
		}
	}
	return t
}()

var (
	same      = rule{inferSame, "as `x`"}
	broadcast = rule{inferBinary, "`x` and `y` broadcast"}
	compare   = rule{inferCompare, "bool, `x` and `y` broadcast"}
)

func constants(t opRows) {
	t.add("const", CoreML5, rule{inferConst, "as the value"})

	// Computed when a program is loaded. Before iOS 18 the operands are
	// attributes, with packed elements in vectors of bytes.
	t.add("constexpr_affine_dequantize", CoreML6, rule{inferAffineDequantize, "type of `scale`, shape of `quantized_data`"},
		con("quantized_data", octets), con("zero_point", octets|1<<Float32), con("scale", Floats), con("axis", i32))
	t.add("constexpr_cast", CoreML6, rule{inferConstexprCast, "fp32, shape of `source_val`"},
		con("source_val", 1<<Float16), con("output_dtype", Strings).oneOf("fp32"))
	t.add("constexpr_lut_to_dense", CoreML6, rule{inferPackedLUT, "type of `lut`, shape is the value of `shape`"},
		con("indices", 1<<UInt8), con("lut", octets|Floats), con("shape", u32))
	t.newer("constexpr_lut_to_dense", CoreML8, con("indices", narrow), drop("shape"),
		optCon("vector_axis", i32).orBy(nothing("the tables hold scalars")))
	t.by("constexpr_lut_to_dense", rule{inferLUT, "type of `lut`, shape of `indices`, times the length of a vector along `vector_axis`"})
	t.add("constexpr_sparse_to_dense", CoreML6, rule{inferPackedSparse, "type of `nonzero_data`, shape is the value of `shape`"},
		con("nonzero_data", octets|Floats), con("mask", 1<<UInt8), con("shape", u32))
	t.newer("constexpr_sparse_to_dense", CoreML8, con("nonzero_data", packed), con("mask", 1<<UInt1), drop("shape"))
	t.by("constexpr_sparse_to_dense", rule{inferSparse, "type of `nonzero_data`, shape of `mask`"})
	t.add("constexpr_blockwise_shift_scale", CoreML8, rule{inferBlockwise, "type of `scale`, shape of `data`"},
		con("data", packed), con("scale", Floats), optCon("offset", packed).orBy(nothing("0")))
	t.add("constexpr_lut_to_sparse", CoreML8, rule{inferLUTToSparse, "the mask, uint1; the values where it is set, type of `lut`"},
		con("indices_mask", 1<<UInt1), con("indices_nonzero_data", narrow), con("lut", octets|Floats),
		optCon("vector_axis", i32).orBy(nothing("the tables hold scalars")))
	t.add("constexpr_sparse_blockwise_shift_scale", CoreML8, rule{inferSparseBlockwise, "the mask, uint1; the values where it is set, type of `scale`"},
		con("data_mask", 1<<UInt1), con("nonzero_data", packed), con("scale", Floats), optCon("offset", packed).orBy(nothing("0")))
	t.results(2, "constexpr_lut_to_sparse constexpr_sparse_blockwise_shift_scale")

	// Computed when the program runs.
	t.add("quantize", CoreML7, rule{inferQuantize, "type is `output_dtype`, shape of `input`"},
		req("input:S", Floats), optCon("zero_point", octets).orBy(nothing("0")), con("scale:S", Floats),
		optCon("axis", i32).orBy(nothing("`scale` is a scalar")), con("output_dtype", Strings).oneOf("int8", "uint8"))
	t.add("dequantize", CoreML7, rule{inferDequantize, "type of `scale`, shape of `input`"},
		req("input:S", octets), optCon("zero_point:S", octets).orBy(nothing("0")), con("scale", Floats),
		optCon("axis", i32).orBy(nothing("`scale` is a scalar")))
}

func elementwise(t opRows) {
	// With numpy's broadcasting.
	t.add("add sub mul real_div floor_div mod pow maximum minimum", CoreML5, broadcast, req("x:T", num), req("y:T", num))
	t.add("equal not_equal less less_equal greater greater_equal", CoreML5, compare, req("x:T", num), req("y:T", num))
	t.add("logical_and logical_or logical_xor", CoreML5, compare, req("x:T", Booleans), req("y:T", Booleans))
	t.add("select", CoreML5, rule{inferSelect, "`a` and `b` broadcast"}, req("cond", Booleans), req("a:T", value), req("b:T", value))

	t.add("logical_not", CoreML5, same, req("x", Booleans))
	t.add(`relu relu6 silu sigmoid softplus softsign tanh exp sqrt erf sin cos tan asin acos atan sinh cosh asinh acosh atanh
		ceil floor round`, CoreML5, same, req("x:T", Floats))
	t.add("abs exp2 sign square", CoreML5, same, req("x:T", num))
	for name, epsilon := range map[string]float64{"log": 1e-45, "rsqrt": 1e-12, "inverse": 1e-4} {
		words := fmt.Sprintf("%g in the type of `x`", epsilon)
		t.add(name, CoreML5, same, req("x:T", Floats), optCon("epsilon:T", Floats).orBy(words, likeX(epsilon)))
		t.newer(name, CoreML7, optCon("epsilon:U", Floats).orBy(words, likeX(epsilon)))
	}
	t.add("clip", CoreML5, same, req("x:T", Floats), con("alpha:T", Floats), con("beta:T", Floats))
	t.newer("clip", CoreML7)
	t.by("clip", rule{inferClip, "as `x`; `alpha` must be less than `beta`"})
	t.add("threshold", CoreML5, same, req("x:T", num), con("alpha:T", num))
	t.add("cast", CoreML5, rule{inferCast, "type is `dtype`, shape of `x`"}, req("x:T", value),
		con("dtype", Strings).oneOf("fp16", "fp32", "int32", "bool"))
	t.newer("cast", CoreML7, req("x:T", wide),
		con("dtype", Strings).oneOf("fp16", "fp32", "int8", "uint8", "int16", "uint16", "int32", "bool"))
	t.add("identity", CoreML5, same, req("x", Any|Lists|Dicts))

	// Activations.
	t.add("gelu", CoreML5, same, req("x:T", Floats), optCon("mode", Strings).oneOf("EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION"))
	t.add("softmax", CoreML5, rule{inferAxis, "as `x`"}, req("x:T", Floats), optCon("axis", i32).or(Int(-1)))
	one := []Param{req("x:T", Floats), con("alpha:T", Floats)}
	two := append(slices.Clone(one), con("beta:T", Floats))
	t.add("elu leaky_relu thresholded_relu", CoreML5, same, one...)
	t.add("prelu", CoreML5, rule{inferPReLU, "as `x`"}, one...)
	t.newer("elu leaky_relu thresholded_relu prelu", CoreML7, con("alpha:U", Floats))
	t.add("clamped_relu linear_activation scaled_tanh sigmoid_hard", CoreML5, same, two...)
	t.add("softplus_parametric", CoreML5, rule{inferPReLU, "as `x`"}, two...)
	t.newer("clamped_relu linear_activation scaled_tanh sigmoid_hard softplus_parametric", CoreML7, con("alpha:U", Floats), con("beta:U", Floats))
}

func linearAlgebra(t opRows) {
	t.add("matmul", CoreML5, rule{inferMatmul, "as `x`, matrix product with numpy's broadcasting"}, req("x:T", num), req("y:T", num),
		optCon("transpose_x", Booleans).or(Flag(false)), optCon("transpose_y", Booleans).or(Flag(false)))
	t.newer("matmul", CoreML7, req("y:U", num))
	t.by("matmul", rule{inferMatmul, "type of `x` and `y`; where one is a constant, of the other"})
	t.add("linear", CoreML5, rule{inferLinear, "as `x`, the last dimension is that of the rows of `weight`"},
		req("x:T", num), con("weight:T", num), optCon("bias:T", num).orBy(nothing("0")))
	t.newer("linear", CoreML7, con("weight:U", num), optCon("bias:U", num).orBy(nothing("0")))
	t.add("einsum", CoreML5, rule{inferEinsum, "as the first value"}, variadic("values:T", num), con("equation", Strings))
	t.add("scaled_dot_product_attention", CoreML8, rule{inferSDPA, "as `query`, the last dimension is that of `value`"},
		req("query:T", Floats), req("key:T", Floats), req("value:T", Floats), opt("attn_mask:M", Floats|Booleans).orBy(nothing("no mask")))
}

func convolutions(t opRows) {
	strides := optCon("strides", i32).orBy("1 for each spatial axis", ones)
	dilations := optCon("dilations", i32).orBy("1 for each spatial axis", ones)
	pad := optCon("pad", i32).orBy("0 for each side of each spatial axis", zeros)
	groups := optCon("groups", i32).or(Int(1))
	padType := optCon("pad_type", Strings)
	noBias := func(p Param) Param { return p.orBy(nothing("no bias")) }

	conv := rule{inferConv, "type of `x`, [n, rows of `weight`, spatial axes...]"}
	t.add("conv", CoreML5, conv, req("x:T", Floats), req("weight:T", Floats), noBias(optCon("bias:T", Floats)),
		strides, padType.oneOf("valid", "custom", "same"), pad, dilations, groups)
	t.newer("conv", CoreML6, padType.oneOf("valid", "custom", "same", "same_lower"))
	t.newer("conv", CoreML7, req("weight:U", Floats), noBias(opt("bias:U", Floats)))
	t.add("conv_quantized", CoreML5, conv, req("x:T", Floats), req("weight:U", 1<<UInt8), noBias(optCon("bias:U", 1<<UInt8)),
		con("quantization_type", Strings).oneOf("linear", "lut"), optCon("nbits", i32).or(Int(8)),
		con("quant_scale:T", Floats), con("quant_bias:T", Floats),
		strides, padType.oneOf("valid", "custom", "same"), pad, dilations, groups)
	t.newer("conv_quantized", CoreML6, padType.oneOf("valid", "custom", "same", "same_lower"))
	t.add("conv_transpose", CoreML5, rule{inferConvTranspose, "type of `x`, [n, columns of `weight` × groups, spatial axes...]"},
		req("x:T", Floats), con("weight:T", Floats), noBias(optCon("bias:T", Floats)), pad,
		optCon("output_shape", i32).orBy(nothing("by `pad_type`")), padType.oneOf("valid", "custom", "same"), strides, dilations, groups)
	t.newer("conv_transpose", CoreML7, req("weight:U", Floats), noBias(opt("bias:U", Floats)))

	kernel := []Param{req("x:T", Floats), con("kernel_sizes", i32), strides,
		con("pad_type", Strings).oneOf("valid", "custom", "same").anyCase(), pad, optCon("ceil_mode", Booleans).or(Flag(false))}
	pool := rule{inferPool, "type of `x`, [n, c, spatial axes...]"}
	t.add("max_pool l2_pool", CoreML5, pool, kernel...)
	t.add("avg_pool", CoreML5, pool, append(slices.Clone(kernel), optCon("exclude_padding_from_average", Booleans).or(Flag(false)))...)
	t.newer("avg_pool l2_pool max_pool", CoreML6, con("pad_type", Strings).oneOf("valid", "custom", "same", "same_lower").anyCase())
}

func normalizations(t opRows) {
	gamma := func(g string) Param { return optCon("gamma:"+g, Floats).orBy(nothing("1")) }
	beta := func(g string) Param { return optCon("beta:"+g, Floats).orBy(nothing("0")) }
	epsilon := func(g string, v float64) Param { return optCon("epsilon:"+g, Floats).or(Float(v)) }
	x := req("x:T", Floats)

	t.add("batch_norm", CoreML5, rule{inferChannels, "as `x`"}, x, con("mean:T", Floats), con("variance:T", Floats), gamma("T"), beta("T"), epsilon("T", 1e-5))
	t.newer("batch_norm", CoreML7, con("mean:U", Floats), con("variance:U", Floats), gamma("U"), beta("U"), epsilon("U", 1e-5))
	t.add("instance_norm", CoreML5, rule{inferChannels, "as `x`"}, x, gamma("T"), beta("T"), epsilon("T", 1e-5))
	t.newer("instance_norm", CoreML7, gamma("U"), beta("U"), epsilon("U", 1e-5))
	t.add("l2_norm", CoreML5, rule{inferL2Norm, "as `x`"}, x, epsilon("T", 1e-6))
	t.newer("l2_norm", CoreML7, epsilon("U", 1e-6))
	axes := optCon("axes", i32).orBy("all axes", allAxes("x"))
	t.add("layer_norm", CoreML5, rule{inferLayerNorm, "as `x`"}, x, axes, gamma("T"), beta("T"), epsilon("T", 1e-5))
	t.newer("layer_norm", CoreML7, gamma("U"), beta("U"), epsilon("U", 1e-5))
	lrn := func(g string) []Param {
		return []Param{optCon("alpha:"+g, Floats).or(Float(1e-4)), optCon("beta:"+g, Floats).or(Float(0.75)), optCon("k:"+g, Floats).or(Float(1))}
	}
	t.add("local_response_norm", CoreML5, same, append([]Param{x, con("size", i32)}, lrn("T")...)...)
	t.newer("local_response_norm", CoreML7, lrn("U")...)
}

func reductions(t opRows) {
	keep := optCon("keep_dims", Booleans).or(Flag(false))
	t.add(`reduce_sum reduce_mean reduce_max reduce_min reduce_prod reduce_sum_square reduce_l1_norm reduce_l2_norm reduce_log_sum
		reduce_log_sum_exp`, CoreML5, rule{inferReduce, "type of `x`, without `axes`, or with 1 in their place"},
		req("x:T", num), optCon("axes", i32).orBy("all axes", allAxes("x")), keep)
	axis := optCon("axis", i32).or(Int(-1))
	t.add("reduce_argmax reduce_argmin", CoreML5, rule{inferArg, "int32, without `axis`, or with 1 in its place"}, req("x:T", num), axis, keep)
	t.newer("reduce_argmax reduce_argmin", CoreML7, optCon("output_dtype", Strings).oneOf("int32", "uint16").anyCase())
	t.by("reduce_argmax reduce_argmin", rule{inferArg, "type is `output_dtype`, without `axis`, or with 1 in its place"})
	t.add("cumsum", CoreML5, rule{inferCumsum, "as `x`"}, req("x:T", num), optCon("axis", i32).or(Int(0)),
		optCon("exclusive", Booleans).or(Flag(false)), optCon("reverse", Booleans).or(Flag(false)))
	ascending := optCon("ascending", Booleans).or(Flag(false))
	t.add("argsort", CoreML5, rule{inferArgsort, "int32, shape of `x`"}, req("x:T", num), axis, ascending)
	t.add("topk", CoreML5, rule{inferTopK, "the values, type of `x`; their indices, int32: `k` along `axis`"},
		req("x:T", num), optCon("k", i32).or(Int(1)), axis, ascending)
	t.results(-1, "topk")
	t.newer("topk", CoreML6, optCon("sort", Booleans).or(Flag(true)), optCon("return_indices", Booleans).or(Flag(true)))
	t.by("topk", rule{inferTopK, "the values, type of `x`; with `return_indices` their indices, int32: `k` along `axis`"})
	t.newer("topk", CoreML7, req("x:T", Floats|i32|small), optCon("k:K", sizes).or(Int(1)), optCon("output_indices_dtype", Strings).oneOf("int32", "uint16"))
	t.by("topk", rule{inferTopK, "the values, type of `x`; with `return_indices` their indices, type is `output_indices_dtype`: `k` along `axis`"})
}

func shapes(t opRows) {
	x, x7 := req("x:T", value), req("x:T", wide)
	t.add("reshape", CoreML5, rule{inferReshape, "type of `x`; -1 is what is left, 0 the dimension of `x` in the same place"}, x, req("shape", i32))
	t.newer("reshape", CoreML7, x7, req("shape:U", sizes))
	t.by("reshape", rule{inferReshape, "type of `x`; -1 is what is left, 0 the dimension of `x` in the same place from the end"})
	t.add("reshape_like", CoreML6, rule{inferReshapeLike, "type of `x`, the dimensions of `ref_tensors` from `begins` to `ends`"}, x, variadic("ref_tensors", Any),
		Param{Name: "begins", Accepts: i32, Variadic: true, Const: true}, Param{Name: "ends", Accepts: i32, Variadic: true, Const: true},
		Param{Name: "end_masks", Accepts: Booleans, Variadic: true, Const: true})
	t.add("transpose", CoreML5, rule{inferTranspose, "type of `x`, axes in the order `perm`"}, x, con("perm", i32))
	t.add("expand_dims", CoreML5, rule{inferExpandDims, "type of `x`, with 1 at `axes`"}, x, con("axes", i32))
	t.add("squeeze", CoreML5, rule{inferSqueeze, "type of `x`, without `axes`"}, x, optCon("axes", i32).orBy(nothing("all axes of size 1")))
	t.add("reverse", CoreML5, rule{inferAxes, "as `x`"}, x, optCon("axes", i32).orBy("all axes", allAxes("x")))
	t.add("reverse_sequence", CoreML5, rule{inferReverseSequence, "as `x`"}, x, req("lengths", i32),
		optCon("seq_axis", i32).or(Int(0)), optCon("batch_axis", i32).or(Int(0)))
	t.add("sliding_windows", CoreML5, rule{inferWindows, "type of `x`, an axis of `size` behind `axis`"}, req("x:T", num),
		con("axis", i32), con("size", i32), optCon("stride", i32).or(Int(1)))
	t.newer("reshape_like transpose expand_dims squeeze reverse sliding_windows", CoreML7, x7)
	t.newer("reverse_sequence", CoreML7, x7, req("lengths:U", sizes))
	t.add("flatten2d", CoreML5, rule{inferFlatten, "type of `x`, [product before `axis`, product from `axis`]"}, x, optCon("axis", i32).or(Int(1)))

	t.add("concat", CoreML5, rule{inferConcat, "type of the values, the sum of the dimensions at `axis`"}, variadic("values:T", Any), con("axis", i32),
		optCon("interleave", Booleans).or(Flag(false)))
	t.add("stack", CoreML5, rule{inferStack, "type of the values, their number at `axis`"}, variadic("values:T", Any), con("axis", i32))
	t.add("split", CoreML5, rule{inferSplit, "type of `x`, the sizes at `axis`"}, x, con("axis", i32),
		optCon("num_splits", i32).orBy(nothing("as many as `split_sizes`")), optCon("split_sizes", i32).orBy(nothing("equal parts")))
	t.results(-1, "split")
	t.add("tile", CoreML5, rule{inferTile, "type of `x`, dimensions times `reps`"}, x, req("reps", i32))
	t.add("pad", CoreML5, rule{inferPad, "type of `x`, with `pad` before and behind the last axes"}, req("x:T", Floats), req("pad", i32),
		optCon("mode", Strings).oneOf("constant", "reflect", "replicate"), optCon("constant_val:T", Floats).or(Float(0)))
	t.add("shape", CoreML5, rule{inferShape, "int32, [rank of `x`]"}, x)
	t.add("fill", CoreML5, rule{inferFill, "type of `value`, shape is the value of `shape`"}, req("shape", i32), optCon("value:T", value).or(Float(0)))
	t.add("fill_like", CoreML6, rule{inferFillLike, "type of `value`, shape of `ref_tensor`"}, req("ref_tensor:T", value), optCon("value:U", value).or(Float(0)))
	t.add("range_1d", CoreML5, rule{inferRange, "type of `start`, [number of steps]"}, req("end:T", num), req("start:T", num), req("step:T", num))
	t.add("band_part", CoreML5, same, x, optCon("lower", i32).or(Int(-1)), optCon("upper", i32).or(Int(-1)))

	t.add("depth_to_space space_to_depth", CoreML5, rule{inferBlocks, "type of `x`, [n, c, h, w] in blocks"}, req("x:T", Floats), con("block_size", i32))
	t.add("pixel_shuffle", CoreML5, rule{inferBlocks, "type of `x`, [n, c, h, w] in blocks"}, req("x:T", Floats), con("upscale_factor", i32))
	t.add("pixel_unshuffle", CoreML6, rule{inferBlocks, "type of `x`, [n, c, h, w] in blocks"}, req("x:T", Floats), con("downscale_factor", u32))
	t.add("space_to_batch", CoreML5, rule{inferBatchBlocks, "type of `x`, [n × blocks, c, h, w]"}, req("x:T", Floats), con("block_shape", i32), con("paddings", i32))
	t.add("batch_to_space", CoreML5, rule{inferBatchBlocks, "type of `x`, [n / blocks, c, h, w]"}, req("x:T", Floats), con("block_shape", i32), con("crops", i32))
}

func indexing(t opRows) {
	index := func(group string, c Class) []Param {
		mask := func(name string) Param {
			return optCon(name, Booleans).orBy("false for each axis", func(c *call) *Literal { return Bools(make([]bool, c.t("x").Rank())...) })
		}
		return []Param{req("begin"+group, c), req("end"+group, c),
			optCon("stride"+group, c).orBy("1 for each axis", func(c *call) *Literal { return Ints(slices.Repeat([]int{1}, c.t("x").Rank())...) }),
			mask("begin_mask"), mask("end_mask"), mask("squeeze_mask")}
	}
	t.add("slice_by_index", CoreML5, rule{inferSlice, "type of `x`, as Python slices"}, append([]Param{req("x:T", value)}, index("", i32)...)...)
	t.newer("slice_by_index", CoreML7, append([]Param{req("x:T", wide)}, index(":U", sizes)...)...)
	t.add("slice_by_size", CoreML5, rule{inferSliceSize, "type of `x`, shape is the value of `size`, -1 the rest"}, req("x:T", value), req("begin", i32), req("size", i32))
	t.newer("slice_by_size", CoreML7, req("x:T", wide), req("begin:U", sizes), req("size:U", sizes))
	t.add("slice_update", CoreML8, rule{inferSliceUpdate, "as `x`"}, append([]Param{req("x:T", wide), req("update:T", wide)}, index(":U", sizes)...)...)

	axis, batch := optCon("axis", i32).or(Int(0)), optCon("batch_dims", i32).or(Int(0))
	validate := optCon("validate_indices", Booleans).or(Flag(false))
	index16, index8 := classOf(Int16, UInt16, Int32), small|i32
	t.add("gather", CoreML5, rule{inferGather, "type of `x`, the shape of `indices` at `axis`"}, req("x:T", num), req("indices", i32), axis)
	t.newer("gather", CoreML6, req("indices:I", index16), batch)
	t.add("gather_along_axis", CoreML5, rule{inferGatherAlong, "type of `x`, shape of `indices`"}, req("x:T", num), req("indices", i32), axis)
	t.newer("gather_along_axis", CoreML6, req("indices:I", index16))
	t.add("gather_nd", CoreML5, rule{inferGatherND, "type of `x`, shape of `indices` without the last axis, then what is left of `x`"}, req("x:T", num), req("indices", i32))
	t.newer("gather_nd", CoreML6, req("indices:I", index16), batch)
	t.newer("gather gather_along_axis gather_nd", CoreML7, req("x:T", num|small), req("indices:I", index8), validate)

	mode := optCon("mode", Strings).oneOf("add", "update", "sub", "mul", "div", "max", "min")
	t.add("scatter", CoreML5, rule{inferScatter, "as `data`"}, req("data:T", num), req("indices", i32), req("updates:T", num), axis, mode)
	t.add("scatter_along_axis", CoreML5, rule{inferScatterAlong, "as `data`"}, req("data:T", num), req("indices", i32), req("updates:T", num), axis, mode)
	t.add("scatter_nd", CoreML5, rule{inferScatterND, "as `data`"}, req("data:T", num), req("indices", i32), req("updates:T", num), mode)
	t.newer("scatter scatter_along_axis scatter_nd", CoreML7, validate)

	t.add("non_zero", CoreML5, rule{inferNonZero, "int32, [number of them, rank of `x`]"}, req("x:T", value))
	t.add("one_hot", CoreML5, rule{inferOneHot, "type of `on_value`, an axis of `one_hot_vector_size` at `axis`"}, req("indices", i32), req("one_hot_vector_size", i32),
		optCon("axis", i32).or(Int(-1)), optCon("on_value:T", value).or(Int(1)), optCon("off_value:T", value).or(Int(0)))
	t.add("non_maximum_suppression", CoreML5, rule{inferNMS, "boxes [n, `max_boxes`, 4]; scores [n, `max_boxes`, k]; indices int32, [n, `max_boxes`]; counts int32, [n]"},
		req("boxes:T", Floats), req("scores:T", Floats), con("iou_threshold:T", Floats), con("score_threshold:T", Floats), con("max_boxes", i32),
		optCon("per_class_suppression", Booleans).or(Flag(false)))
	t.results(4, "non_maximum_suppression")
	t.newer("non_maximum_suppression", CoreML7, drop("score_threshold"))
	t.by("non_maximum_suppression", rule{inferNMS, "boxes [n, 4, `max_boxes`]; scores [n, k, `max_boxes`]; indices int32, [n, `max_boxes`]"})
	t.results(3, "non_maximum_suppression")
}

func resizing(t opRows) {
	x := req("x:T", Floats)
	factor := func(name string) Param { return optCon(name+":U", 1<<Float32|i32).or(Int(1)) }
	flag := func(name string, v bool) Param { return optCon(name, Booleans).or(Flag(v)) }
	size := func(name string) Param { return optCon(name, i32).or(Int(1)) }
	sampling := optCon("sampling_mode", Strings).oneOf("DEFAULT", "STRICT_ALIGN_CORNERS", "ALIGN_CORNERS", "UNALIGN_CORNERS", "OFFSET_CORNERS")

	up := rule{inferUpsample, "type of `x`, last two dimensions times the factors, rounded down"}
	t.add("upsample_nearest_neighbor", CoreML5, up, x, factor("scale_factor_height"), factor("scale_factor_width"))
	t.add("upsample_bilinear", CoreML5, up, x, factor("scale_factor_height"), factor("scale_factor_width"), flag("align_corners", true))
	t.newer("upsample_bilinear", CoreML6, optCon("half_pixel_centers", Booleans).orBy("not `align_corners`", func(c *call) *Literal {
		align, err := c.flag("align_corners")
		if err != nil {
			return nil
		}
		return Flag(!align)
	}))
	re := rule{inferResize2, "type of `x`, last two dimensions are the target"}
	t.add("resize_nearest_neighbor", CoreML5, re, x, con("target_size_height", i32), con("target_size_width", i32))
	t.add("resize_bilinear", CoreML5, re, x, size("target_size_height"), size("target_size_width"), sampling)
	t.add("resize", CoreML7, rule{inferResize, "type of `x`, the last `resized_dims` dimensions are those of `shape`, 0 keeps"},
		req("x:T", num), req("shape:U", classOf(Int32, Int16, UInt16, UInt32)), con("resized_dims", u32),
		optCon("interpolation_mode", Strings).oneOf("LINEAR", "NEAREST_NEIGHBOR"), sampling)
	t.add("crop", CoreML5, rule{inferCrop, "type of `x`, last two dimensions less the crops"}, x, con("crop_height", i32), con("crop_width", i32))
	t.add("crop_resize", CoreML5, rule{inferCropROI, "type of `x`, [boxes, n, c, `target_height`, `target_width`]"}, x, req("roi:T", Floats),
		size("target_height"), size("target_width"), flag("normalized_coordinates", false), optCon("spatial_scale", 1<<Float32).or(Float(1)),
		optCon("box_coordinate_mode", Strings).oneOf("CORNERS_HEIGHT_FIRST", "CORNERS_WIDTH_FIRST", "CENTER_SIZE_HEIGHT_FIRST", "CENTER_SIZE_WIDTH_FIRST"), sampling)
	t.newer("crop_resize", CoreML6, optCon("pad_value:T", Floats).or(Float(0)))
	t.newer("crop_resize", CoreML7, drop("roi"), req("boxes:B", Floats|1<<UInt16),
		opt("box_indices:J", i32|1<<UInt16).orBy(nothing("0, 1, 2, ...")))
	t.by("crop_resize", rule{inferCropBoxes, "type of `x`, [boxes, c, `target_height`, `target_width`]"})

	t.add("affine", CoreML5, rule{inferAffine, "type of `x`, [n, c, `output_height`, `output_width`]"}, x, req("transform_matrix:T", Floats),
		con("output_height", i32), con("output_width", i32), con("sampling_mode", Strings).oneOf("bilinear").anyCase(),
		con("padding_mode", Strings).oneOf("constant").anyCase(), con("padding_value:T", Floats),
		con("coordinates_mode", Strings).oneOf("normalized_minus_one_to_one").anyCase(), con("align_corners", Booleans))
	t.add("resample", CoreML5, rule{inferResample, "type of `x`, [n, c, height and width of `coordinates`]"}, x, req("coordinates:U", i32|1<<Float32),
		con("sampling_mode", Strings).oneOf("bilinear", "nearest").anyCase(),
		con("padding_mode", Strings).oneOf("constant", "border", "reflection", "symmetric").anyCase(), con("padding_value:T", Floats),
		con("coordinates_mode", Strings).oneOf("unnormalized", "normalized_minus_one_to_one", "normalized_zero_to_one").anyCase(), con("align_corners", Booleans))
	t.newer("resample", CoreML6, req("coordinates:U", num))
	t.newer("resample", CoreML7, req("coordinates:U", num|small))
}

func recurrences(t opRows) {
	w := func(name string) Param { return con(name+":T", 1<<Float32) }
	maybe := func(name, words string) Param { return optCon(name+":T", 1<<Float32).orBy(nothing(words)) }
	activation := func(name, def string) Param {
		all := []string{"tanh", "sigmoid", "relu", "linear", "scaled_tanh", "hard_sigmoid", "sigmoid_hard"}
		all = slices.DeleteFunc(all, func(s string) bool { return s == def })
		return optCon(name, Strings).oneOf(append([]string{def}, all...)...).anyCase()
	}
	x := []Param{req("x:T", 1<<Float32), req("initial_h:T", 1<<Float32)}
	sequence := optCon("output_sequence", Booleans).or(Flag(false))
	oneWay := optCon("direction", Strings).oneOf("forward", "reverse")
	params := func(more ...Param) []Param { return append(slices.Clone(x), more...) }
	gives := "`x`'s type: [steps or 1, batch, hidden]; the last one of it, [batch, hidden]"

	t.add("rnn", CoreML5, rule{inferRNN, gives}, params(w("weight_ih"), w("weight_hh"), maybe("bias", "0"), oneWay, sequence, activation("activation", "tanh"))...)
	t.add("gru", CoreML5, rule{inferRNN, gives}, params(w("weight_ih"), w("weight_hh"), maybe("bias", "0"), oneWay, sequence,
		activation("recurrent_activation", "sigmoid"), activation("activation", "tanh"))...)
	t.add("lstm", CoreML5, rule{inferRNN, gives + "; the last cell, [batch, hidden]; twice hidden if bidirectional"},
		params(req("initial_c:T", 1<<Float32), w("weight_ih"), w("weight_hh"), maybe("bias", "0"), maybe("peephole", "none"),
			maybe("weight_ih_back", "only for bidirectional"), maybe("weight_hh_back", "only for bidirectional"), maybe("bias_back", "0"), maybe("peephole_back", "none"),
			optCon("direction", Strings).oneOf("forward", "reverse", "bidirectional"), sequence,
			activation("recurrent_activation", "sigmoid"), activation("cell_activation", "tanh"), activation("activation", "tanh"), maybe("clip", "not clipped"))...)
	t.results(2, "rnn gru")
	t.results(3, "lstm")
	for _, n := range []string{"rnn", "gru", "lstm"} { // fp16 too
		var ps []Param
		for _, p := range t[n].Params {
			if p.Accepts == 1<<Float32 {
				p.Accepts = Floats
				ps = append(ps, p)
			}
		}
		t.newer(n, CoreML7, ps...)
	}
	t.newer("gru", CoreML8, optCon("reset_after", Booleans).or(Flag(false)), optCon("input_bias:T", Floats).orBy(nothing("0")))
}

func randomness(t opRows) {
	shape, seed := req("shape", i32), optCon("seed", i32).or(Int(-1))
	of := func(name string, v float64) Param { return optCon(name+":T", Floats).or(Float(v)) }
	gives := func(name string) rule {
		return rule{inferRandom, "type of `" + name + "`, shape is the value of `shape`"}
	}
	t.add("random_bernoulli", CoreML5, gives("prob"), shape, of("prob", 0.5), seed)
	t.add("random_normal", CoreML5, gives("mean"), shape, of("mean", 0), of("stddev", 1), seed)
	t.add("random_uniform", CoreML5, gives("low"), shape, of("low", 0), of("high", 1), seed)
	t.add("random_categorical", CoreML5, rule{inferCategorical, "type of `x`, `size` as the last dimension"}, req("x:T", Floats),
		optCon("mode", Strings).oneOf("logits", "probs"), optCon("size", i32).or(Int(1)), seed)
}

func control(t opRows) {
	t.add("cond", CoreML5, rule{inferCond, "as the outputs of both blocks"}, req("pred", Booleans))
	t.add("while_loop", CoreML5, rule{inferWhile, "as `loop_vars`"}, variadic("loop_vars", Any|Lists))
	t.results(-1, "cond while_loop")

	// Lists of tensors.
	t.add("make_list", CoreML5, rule{inferMakeList, "list of tensors of `dtype` and `elem_shape`"}, opt("init_length", i32).or(Int(1)),
		Param{Name: "elem_shape", Accepts: i32 | Strings, Variadic: true, Const: true, Optional: true, Absent: "scalars"},
		optCon("dynamic_length", Booleans).or(Flag(true)), optCon("dtype", Strings).or(Str("fp32")))
	t.add("list_length", CoreML5, rule{inferListLength, "int32"}, req("ls", Lists))
	t.add("list_read", CoreML5, rule{inferListRead, "an element of the list"}, req("ls", Lists), req("index", i32))
	t.add("list_write", CoreML5, rule{inferListWrite, "as `ls`"}, req("ls", Lists), req("index", i32), req("value:T", value))
	t.add("list_gather", CoreML5, rule{inferListGather, "elements stacked at axis 0"}, req("ls", Lists), req("indices", i32))
	t.add("list_scatter", CoreML5, rule{inferListScatter, "as `ls`"}, req("ls", Lists), req("indices", i32), req("value:T", value))
}

func statefulness(t opRows) {
	stored := wide
	t.add("read_state", CoreML8, rule{inferReadState, "the tensor in the state"}, req("input", States))
	t.add("write_state", CoreML8, rule{inferWriteState, "nothing"}, req("input", States), req("data", stored))
	t.results(0, "write_state")
	t.add("coreml_update_state", CoreML8, rule{inferUpdateState, "as `value`"}, req("state", States), req("value:T", stored))
}
