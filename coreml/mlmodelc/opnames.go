package mlmodelc

import (
	"fmt"
	"slices"
	"strings"

	"anemone/mil"
)

// opChanges lists the operation sets, by the number of their iOS, in which
// Apple changed the definition of an operation after iOS 15: metadata.json
// counts an operation under the last change before the function's set. The
// first line of each group is what compiled models show; the rest is taken to
// follow. It decides a label in a tool, nothing else.
var opChanges = func() map[string][]int {
	groups := []struct {
		at  []int
		ops string
	}{
		{nil, `identity pad range_1d select shape split stack tile
			cond const while_loop make_list list_read list_write list_gather list_scatter list_length
			non_zero one_hot fill band_part cumsum random_normal random_uniform random_bernoulli random_categorical`},
		{[]int{16, 17, 18}, `add cast clip conv floor floor_div greater greater_equal layer_norm less linear log logical_and logical_not lstm
			matmul maximum minimum mul pow reduce_argmax reshape sqrt sub
			abs acos asin atan atanh ceil cos cosh equal erf exp exp2 inverse less_equal logical_or logical_xor mod not_equal real_div round rsqrt
			sign sin sinh square tan tanh threshold batch_norm conv_transpose gru instance_norm l2_norm local_response_norm rnn reduce_argmin
			gather gather_along_axis gather_nd topk`},
		{[]int{16, 18}, `constexpr_affine_dequantize constexpr_lut_to_dense constexpr_sparse_to_dense reduce_max reduce_sum relu sigmoid silu softmax
			clamped_relu elu gelu leaky_relu linear_activation prelu relu6 scaled_tanh sigmoid_hard softplus softplus_parametric softsign
			thresholded_relu constexpr_cast reduce_l1_norm reduce_l2_norm reduce_log_sum reduce_log_sum_exp reduce_mean reduce_min reduce_prod
			reduce_sum_square`},
		{[]int{17, 18}, `concat expand_dims slice_by_index squeeze transpose
			argsort depth_to_space dequantize flatten2d pixel_shuffle pixel_unshuffle quantize reverse reverse_sequence scatter
			scatter_along_axis scatter_nd slice_by_size sliding_windows space_to_depth`},
		{[]int{18}, `read_state slice_update write_state
			constexpr_blockwise_shift_scale constexpr_lut_to_sparse constexpr_sparse_blockwise_shift_scale
			scaled_dot_product_attention coreml_update_state`},
	}
	m := map[string][]int{}
	for _, g := range groups {
		for op := range strings.FieldsSeq(g.ops) {
			m[op] = g.at
		}
	}
	return m
}()

// opLabel returns the name under which metadata.json counts an operation of a
// function, such as "Ios18.sliceUpdate", or "Select" if it is still the one
// of iOS 15.
func opLabel(op string, set mil.Opset) string {
	changes, ok := opChanges[op]
	if !ok {
		changes = []int{18}
	}
	var number int
	fmt.Sscanf(string(set), "CoreML%d", &number)
	ios := number + 10 // CoreML5 is iOS 15
	last := 0
	for _, at := range changes {
		if at <= ios {
			last = max(last, at)
		}
	}
	words := slices.DeleteFunc(strings.Split(op, "_"), func(w string) bool { return w == "" })
	for i, w := range words {
		if i > 0 || last == 0 {
			words[i] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	name := strings.Join(words, "")
	if last == 0 {
		return name
	}
	return fmt.Sprintf("Ios%d.%s", last, name)
}
