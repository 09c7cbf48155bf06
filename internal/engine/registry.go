package engine

import (
	"math"

	"anemone/internal/engine/kernels"
	"anemone/mil"
)

// builder plans an operation: it emits steps and gives results.
type builder func(o *opCtx) error

// builders is the registry of operations. It is filled here and nowhere
// else. What arguments an operation has is in mil's table. A planner holds
// it, as some of them plan others.
var builders = map[string]builder{
	"constexpr_cast":                         buildConstexpr,
	"constexpr_lut_to_dense":                 buildConstexpr,
	"constexpr_affine_dequantize":            buildConstexpr,
	"constexpr_blockwise_shift_scale":        buildConstexpr,
	"constexpr_sparse_to_dense":              buildConstexpr,
	"constexpr_lut_to_sparse":                buildConstexpr,
	"constexpr_sparse_blockwise_shift_scale": buildConstexpr,

	"add":       binaryOp(addF, func(x, y int32) int32 { return x + y }),
	"sub":       binaryOp(subF, func(x, y int32) int32 { return x - y }),
	"mul":       binaryOp(mulF, func(x, y int32) int32 { return x * y }),
	"real_div":  binaryOp(divF, floorDiv),
	"floor_div": binaryOp(pairF(func(x, y float32) float32 { return float32(math.Floor(float64(x / y))) }), floorDiv),
	"mod":       binaryOp(pairF(floorModF), floorMod),
	"pow":       binaryOp(pairF(func(x, y float32) float32 { return float32(math.Pow(float64(x), float64(y))) }), powI),
	"maximum":   binaryOp(pairF(maxF), func(x, y int32) int32 { return max(x, y) }),
	"minimum":   binaryOp(pairF(minF), func(x, y int32) int32 { return min(x, y) }),

	"equal":         compareOp(func(x, y float32) bool { return x == y }, func(x, y int32) bool { return x == y }),
	"not_equal":     compareOp(func(x, y float32) bool { return x != y }, func(x, y int32) bool { return x != y }),
	"less":          compareOp(func(x, y float32) bool { return x < y }, func(x, y int32) bool { return x < y }),
	"less_equal":    compareOp(func(x, y float32) bool { return x <= y }, func(x, y int32) bool { return x <= y }),
	"greater":       compareOp(func(x, y float32) bool { return x > y }, func(x, y int32) bool { return x > y }),
	"greater_equal": compareOp(func(x, y float32) bool { return x >= y }, func(x, y int32) bool { return x >= y }),

	"logical_and": logicalOp(func(x, y bool) bool { return x && y }),
	"logical_or":  logicalOp(func(x, y bool) bool { return x || y }),
	"logical_xor": logicalOp(func(x, y bool) bool { return x != y }),
	"logical_not": unaryOp(nil, func(x int32) int32 { return 1 - x }),

	"relu":     unaryOp(eachF(func(x float32) float32 { return maxF(x, 0) }), nil),
	"relu6":    unaryOp(eachF(func(x float32) float32 { return minF(maxF(x, 0), 6) }), nil),
	"silu":     unaryOp(eachF(kernels.Silu), nil),
	"sigmoid":  unaryOp(eachF(kernels.Sigmoid), nil),
	"softplus": unaryOp(eachF(kernels.Softplus), nil),
	"softsign": unaryOp(eachF(func(x float32) float32 { return x / (1 + float32(math.Abs(float64(x)))) }), nil),
	"tanh":     unaryOp(eachF(kernels.Tanh), nil),
	"exp":      unaryOp(eachF(kernels.Exp), nil),
	"exp2":     unaryOp(wide(math.Exp2), exp2I),
	"sqrt":     unaryOp(eachF(sqrt), nil),
	"erf":      unaryOp(wide(math.Erf), nil),
	"sin":      unaryOp(wide(math.Sin), nil),
	"cos":      unaryOp(wide(math.Cos), nil),
	"tan":      unaryOp(wide(math.Tan), nil),
	"asin":     unaryOp(wide(math.Asin), nil),
	"acos":     unaryOp(wide(math.Acos), nil),
	"atan":     unaryOp(wide(math.Atan), nil),
	"sinh":     unaryOp(wide(math.Sinh), nil),
	"cosh":     unaryOp(wide(math.Cosh), nil),
	"asinh":    unaryOp(wide(math.Asinh), nil),
	"acosh":    unaryOp(wide(math.Acosh), nil),
	"atanh":    unaryOp(wide(math.Atanh), nil),
	"abs":      unaryOp(wide(math.Abs), absI),
	"sign":     unaryOp(eachF(sign[float32]), sign[int32]),
	"square":   unaryOp(eachF(func(x float32) float32 { return x * x }), func(x int32) int32 { return x * x }),
	"floor":    unaryOp(wide(math.Floor), keepI),
	"ceil":     unaryOp(wide(math.Ceil), keepI),
	"round":    unaryOp(wide(math.RoundToEven), keepI),
	"log":      withEpsilon(1e-45, func(x, e float32) float32 { return float32(math.Log(float64(x + e))) }),
	"rsqrt":    withEpsilon(1e-12, func(x, e float32) float32 { return 1 / sqrt(x+e) }),
	"inverse":  withEpsilon(1e-4, func(x, e float32) float32 { return 1 / (x + e) }),
	"elu": withAlpha(func(x, a float32) float32 {
		if x > 0 {
			return x
		}
		return a * float32(math.Expm1(float64(x)))
	}),
	"leaky_relu": withAlpha(func(x, a float32) float32 {
		if x > 0 {
			return x
		}
		return a * x
	}),
	"clamped_relu":        withTwo(clampedRelu),
	"linear_activation":   withTwo(func(x, a, b float32) float32 { return a*x + b }),
	"scaled_tanh":         withTwo(func(x, a, b float32) float32 { return a * kernels.Tanh(b*x) }),
	"sigmoid_hard":        withTwo(sigmoidHard),
	"thresholded_relu":    withAlpha(thresholdedRelu),
	"threshold":           buildThreshold,
	"prelu":               buildPReLU,
	"softplus_parametric": buildSoftplusParametric,
	"quantize":            buildQuantize,
	"dequantize":          buildDequantize,
	"clip":                buildClip,
	"gelu":                buildGelu,
	"cast":                buildCast,
	"select":              buildSelect,
	"identity":            buildIdentity,

	"matmul":                       buildMatmul,
	"linear":                       buildLinear,
	"conv":                         buildConv,
	"scaled_dot_product_attention": buildSDPA,
	"einsum":                       buildEinsum,
	"conv_transpose":               buildConvTranspose,
	"conv_quantized":               buildConvQuantized,

	"max_pool": poolOp("max"),
	"avg_pool": poolOp("avg"),
	"l2_pool":  poolOp("l2"),

	"rnn":  buildRecurrent,
	"gru":  buildRecurrent,
	"lstm": buildRecurrent,

	"softmax":             buildSoftmax,
	"layer_norm":          buildLayerNorm,
	"l2_norm":             buildL2Norm,
	"batch_norm":          buildBatchNorm,
	"instance_norm":       buildInstanceNorm,
	"local_response_norm": buildLRN,

	"reduce_sum":         reduceOp(reduceSum),
	"reduce_mean":        reduceOp(reduceMean),
	"reduce_max":         reduceOp(reduceMax),
	"reduce_min":         reduceOp(reduceMin),
	"reduce_prod":        reduceOp(reduceProd),
	"reduce_sum_square":  reduceOp(reduceSumSquare),
	"reduce_l1_norm":     reduceOp(reduceL1),
	"reduce_l2_norm":     reduceOp(reduceL2),
	"reduce_log_sum":     reduceOp(reduceLogSum),
	"reduce_log_sum_exp": reduceOp(reduceLogSumExp),
	"reduce_argmax":      argOp(true),
	"reduce_argmin":      argOp(false),
	"cumsum":             buildCumsum,
	"topk":               buildTopK,
	"argsort":            buildArgsort,

	"upsample_nearest_neighbor": buildUpsampleNearest,
	"upsample_bilinear":         buildUpsampleBilinear,
	"resize_nearest_neighbor":   buildResizeNearest,
	"resize_bilinear":           buildResizeBilinear,
	"resize":                    buildResize,
	"crop":                      buildCrop,
	"crop_resize":               buildCropResize,
	"affine":                    buildAffine,
	"resample":                  buildResample,

	"depth_to_space":  blocksOp("block_size", false, true),
	"space_to_depth":  blocksOp("block_size", false, false),
	"pixel_shuffle":   blocksOp("upscale_factor", true, true),
	"pixel_unshuffle": blocksOp("downscale_factor", true, false),
	"space_to_batch":  buildSpaceToBatch,
	"batch_to_space":  buildBatchToSpace,

	"reshape":          buildReshape,
	"transpose":        buildTranspose,
	"expand_dims":      buildExpandDims,
	"squeeze":          buildSqueeze,
	"concat":           buildConcat,
	"stack":            buildStack,
	"split":            buildSplit,
	"tile":             buildTile,
	"reverse":          buildReverse,
	"pad":              buildPad,
	"shape":            buildShape,
	"fill":             buildFill,
	"fill_like":        buildFillLike,
	"range_1d":         buildRange,
	"band_part":        buildBandPart,
	"flatten2d":        buildReshapeTo,
	"reshape_like":     buildReshapeTo,
	"reverse_sequence": buildReverseSequence,
	"sliding_windows":  buildWindows,

	"slice_by_index":          buildSlice,
	"slice_by_size":           buildSliceSize,
	"slice_update":            buildSliceUpdate,
	"gather":                  buildGather,
	"gather_along_axis":       buildGatherAlong,
	"gather_nd":               buildGatherND,
	"scatter":                 buildScatter,
	"scatter_along_axis":      buildScatterAlong,
	"scatter_nd":              buildScatterND,
	"non_zero":                buildNonZero,
	"one_hot":                 buildOneHot,
	"non_maximum_suppression": buildNMS,

	"random_bernoulli":   randomOp("prob", "", [2]float32{0.5}, bernoulli),
	"random_normal":      randomOp("mean", "stddev", [2]float32{0, 1}, normal),
	"random_uniform":     randomOp("low", "high", [2]float32{0, 1}, uniform),
	"random_categorical": buildCategorical,

	"cond":         buildCond,
	"while_loop":   buildWhile,
	"make_list":    buildMakeList,
	"list_length":  buildListLength,
	"list_read":    buildListRead,
	"list_write":   buildListWrite,
	"list_gather":  buildListGather,
	"list_scatter": buildListScatter,

	"read_state":          buildReadState,
	"write_state":         buildWriteState,
	"coreml_update_state": buildUpdateState,
}

// partly has what of an operation that runs is refused, and why.
var partly = map[string]string{
	"conv_quantized": "quantization_type \"lut\", other widths than 8 bits and a quantized bias are refused: their format is not documented, and coremltools writes none",
	"identity":       "dictionaries are refused: no operation on tensors uses them",
	"crop_resize":    "before iOS 17, boxes with the number of their picture (roi of 5 numbers) for several pictures are refused: the declared result has another shape than the documented one",
}

// Supports reports whether the engine runs an operation of MIL. note says
// what of it is refused and why, or why all of it is.
func Supports(op string) (ok bool, note string) {
	if op == "const" || builders[op] != nil {
		return true, partly[op]
	}
	if _, known := mil.LookupOp(op); known {
		return false, "not done"
	}
	return false, "not an operation of iOS 15 to iOS 18 on tensors of numbers"
}

func sqrt(x float32) float32 { return float32(math.Sqrt(float64(x))) }
