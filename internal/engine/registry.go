package engine

import (
	"math"

	"anemone/internal/engine/kernels"
)

// builder plans an operation: it emits steps and gives results.
type builder func(o *opCtx) error

// builders is the registry of operations. It is filled here and nowhere
// else. What arguments an operation has is in mil's table.
var builders = map[string]builder{
	"constexpr_lut_to_dense": buildLUT,

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
	"exp2":     unaryOp(wide(math.Exp2), nil),
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
	"clip":     buildClip,
	"gelu":     buildGelu,
	"cast":     buildCast,
	"select":   buildSelect,
	"identity": buildIdentity,

	"matmul":                       buildMatmul,
	"linear":                       buildLinear,
	"conv":                         buildConv,
	"scaled_dot_product_attention": buildSDPA,

	"softmax":    buildSoftmax,
	"layer_norm": buildLayerNorm,
	"l2_norm":    buildL2Norm,

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

	"reshape":     buildReshape,
	"transpose":   buildTranspose,
	"expand_dims": buildExpandDims,
	"squeeze":     buildSqueeze,
	"concat":      buildConcat,
	"stack":       buildStack,
	"split":       buildSplit,
	"tile":        buildTile,
	"reverse":     buildReverse,
	"pad":         buildPad,
	"shape":       buildShape,
	"fill":        buildFill,
	"fill_like":   buildFillLike,
	"range_1d":    buildRange,
	"band_part":   buildBandPart,

	"slice_by_index":    buildSlice,
	"slice_by_size":     buildSliceSize,
	"slice_update":      buildSliceUpdate,
	"gather":            buildGather,
	"gather_along_axis": buildGatherAlong,
	"gather_nd":         buildGatherND,

	"read_state":          buildReadState,
	"write_state":         buildWriteState,
	"coreml_update_state": buildUpdateState,
}

func sqrt(x float32) float32 { return float32(math.Sqrt(float64(x))) }
