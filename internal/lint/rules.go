package lint

// rules is the table of all rules, in the order of docs/lint.md.
var rules = []rule{
	// States.
	{
		Rule: Rule{
			Name: "state-axis-3", Severity: Error,
			Finds: "A state whose last dimension is 3.",
			Why:   "The Neural Engine fails at run time on such a state.",
			Fix:   "Put another dimension last: the inputs of a convolution over 4 steps as [layers, 3, channels], not [layers, channels, 3].",
		},
		function: stateAxis3,
	},
	{
		Rule: Rule{
			Name: "state-multiple-32", Severity: Warning,
			Finds: "A state whose last dimension is no multiple of 32 (and not 3).",
			Why:   "Such a model was seen to fail on the Neural Engine (macOS 15, M4: 270 fails, 256 works; apple/coremltools#2631).",
			Fix:   "Order the dimensions so that a multiple of 32 is last, or pad it.",
		},
		function: stateMultiple,
	},
	{
		Rule: Rule{
			Name: "state-dtype", Severity: Error,
			Finds: "A state whose elements are not fp16.",
			Why:   "Core ML has fp16 states only; coremltools refuses to convert any other.",
			Fix:   "Keep the state in fp16, scaled if its range asks for it, or pass it as an input and an output.",
		},
		function: stateDType,
	},
	{
		Rule: Rule{
			Name: "state-unread", Severity: Error,
			Finds: "A state that a function declares and never reads.",
			Why:   "Core ML refuses a model in which a declared state is not read by every function.",
			Fix:   "Read one element of it and add it times 0 to something, or do not declare it.",
		},
		function: stateUnread,
	},
	{
		Rule: Rule{
			Name: "state-shift", Severity: Warning,
			Finds: "A state that is overwritten with a concatenation of a part of itself and new values.",
			Why:   "The compiler for the Neural Engine was seen to reject caches that are shifted this way (error -14), so that the model runs elsewhere; writes of slices are fine.",
			Fix:   "Write with slice_update: at the position, or the shifted rows as a slice of the state.",
		},
		function: stateShift,
	},
	{
		Rule: Rule{
			Name: "update-dtype", Severity: Error,
			Finds: "A slice_update (or a write to a state) whose new values are of another type than what they go into.",
			Why:   "macOS 26 refuses it: \"Slice update: update data type must match output data type\" (Anemll#39). Older systems let it pass.",
			Fix:   "Cast the new values before the update.",
		},
		function: updateDType,
	},
	// Operations.
	{
		Rule: Rule{
			Name: "sigmoid", Severity: Warning,
			Finds: "The operations sigmoid and silu.",
			Why:   "The Neural Engine's sigmoid is an approximation that is off by up to 0.015; its tanh is not.",
			Fix:   "Write sigmoid(x) as 0.5 + 0.5 tanh(x / 2), and fold the x / 2 into the weights before it.",
		},
		function: coarseSigmoid,
	},
	{
		Rule: Rule{
			Name: "cumsum", Severity: Warning,
			Finds: "The operation cumsum.",
			Why:   "It runs on the CPU: the activations leave the Neural Engine and come back.",
			Fix:   "Multiply by a triangular matrix of ones.",
		},
		function: cumsum,
	},
	{
		Rule: Rule{
			Name: "no-ane-code", Severity: Warning,
			Finds: "Operations without an implementation on the Neural Engine: mod, logical_and, logical_or, logical_xor, reduce_prod.",
			Why:   "They run on the CPU: the activations leave the Neural Engine and come back.",
			Fix:   "Write them with others: a mask as a product of 0 and 1, a remainder with floor.",
		},
		function: noCode,
	},
	{
		Rule: Rule{
			Name: "large-tensor", Severity: Error,
			Finds: "A tensor with more than 65536 elements in one of its last three dimensions.",
			Why:   "No Neural Engine takes it; the operation runs on the CPU.",
			Fix:   "Split it: a vocabulary of 151936 into 16 outputs of 9496.",
		},
		function: largeTensor,
	},
	{
		Rule: Rule{
			Name: "large-tensor-older", Severity: Warning,
			Finds: "A tensor with more than 16384 elements in one of its last two dimensions.",
			Why:   "Before A16 and M4 the Neural Engine takes no more; the operation runs on the CPU there.",
			Fix:   "Split it further, or say which chips the model is for.",
		},
		function: largeTensorOlder,
	},
	{
		Rule: Rule{
			Name: "slice-offset", Severity: Warning,
			Finds: "A slice that begins beyond 4094.",
			Why:   "On M1 and M2 offsets saturate there: the slice is another one.",
			Fix:   "Split the tensor in two steps, or gather.",
		},
		function: sliceOffset,
	},
	{
		Rule: Rule{
			Name: "fp32-compute", Severity: Warning,
			Finds: "Operations that compute in fp32.",
			Why:   "The Neural Engine computes in fp16; they run on the CPU or the GPU.",
			Fix:   "Convert with compute_precision FLOAT16 and keep only what overflows in fp32.",
		},
		function: fp32Compute,
	},
	{
		Rule: Rule{
			Name: "cpu-operations", Severity: Info,
			Finds: "Operations that will run on the CPU for a reason that has no rule of its own: arithmetic on integers, unknown shapes.",
			Why:   "A few on positions are usual. Many, or in the middle of a layer, cost time at every token.",
			Fix:   "Compute positions once at the beginning; make shapes fixed or enumerated.",
		},
		function: cpuOperations,
	},
	{
		Rule: Rule{
			Name: "scale-after-conv", Severity: Info,
			Finds: "A multiplication by a constant that follows a convolution with palettized weights.",
			Why:   "Core ML's passes fold the constant into the weights when such a graph is converted again, and tables that were made for the weights as they were no longer fit.",
			Fix:   "Fold the constant into the weights before they are palettized.",
		},
		function: scaleAfterConv,
	},
	{
		Rule: Rule{
			Name: "input-unused", Severity: Info,
			Finds: "An input that a function does not use.",
			Why:   "Callers must still pass it. Where two inputs say the same (position_ids, current_pos), it is not the one that counts.",
			Fix:   "Nothing, if the layout wants it; else do not declare it.",
		},
		function: inputUnused,
	},
	// The program and its description.
	{
		Rule: Rule{
			Name: "program-invalid", Severity: Error,
			Finds: "A program that is not well formed: an unknown operation, one of a later operation set, a missing argument, a type that does not follow.",
			Why:   "Core ML refuses to compile or to load it.",
			Fix:   "See the message.",
		},
		model: programInvalid,
	},
	{
		Rule: Rule{
			Name: "reserved-name", Severity: Error,
			Finds: "A function, input or value whose name is a word of the text form (such as state, tensor, fp16), or not a letter or '_' and letters, digits, '_' and '@'.",
			Why:   "A compiled model is text, and cannot be read back.",
			Fix:   "Choose another name.",
		},
		function: reservedName,
	},
	{
		Rule: Rule{
			Name: "spec-version", Severity: Error,
			Finds: "A specification version that is too old for what the program uses: its operation sets, states, several functions.",
			Why:   "Core ML refuses the model.",
			Fix:   "Raise specificationVersion to what is wanted.",
		},
		model: specVersion,
	},
	{
		Rule: Rule{
			Name: "default-function", Severity: Error,
			Finds: "Several functions without a default one, or a default one that does not exist.",
			Why:   "Core ML loads the default function unless told otherwise, and refuses a model of several functions that names none.",
			Fix:   "Set defaultFunctionName.",
		},
		model: defaultFunction,
	},
	{
		Rule: Rule{
			Name: "os-spec", Severity: Error, NeedsOS: true,
			Finds: "A specification version that the system given with --os does not load.",
			Why:   "The model cannot be loaded there.",
			Fix:   "Convert for that system: without states and several functions before iOS 18.",
		},
		model: osSpec,
	},
	{
		Rule: Rule{
			Name: "os-compiler", Severity: Error, NeedsOS: true,
			Finds: "A compiled model of a newer format than the system given with --os knows.",
			Why:   "Core ML refuses it: \"compiler major version for compiled model is 9.0.0 and is more recent than this framework major version 8.0.0\" (Anemll#14). The version of the compiler itself does not matter.",
			Fix:   "Ship the .mlpackage too, which the device compiles for itself, or compile a model of an older specification version.",
		},
		model: osCompiler,
	},
	// Weights.
	{
		Rule: Rule{
			Name: "weight-linear", Severity: Error,
			Finds: "Linearly quantized weights (constexpr_blockwise_shift_scale, constexpr_affine_dequantize).",
			Why:   "On the Neural Engine int8 weights compile and compute garbage (logit cosine 0.75, 0.9992 on the GPU), int4 weights in blocks do not compile (M5 Max, macOS 26).",
			Fix:   "Palettize (constexpr_lut_to_dense), or run on the GPU.",
		},
		model: weightLinear,
	},
	{
		Rule: Rule{
			Name: "lut-scaled", Severity: Error,
			Finds: "Look-up tables with scales: constexpr_blockwise_shift_scale around constexpr_lut_to_dense, or around its table.",
			Why:   "It fails on the Neural Engine (apple/coremltools#2688, #2716).",
			Fix:   "Multiply the tables by the scales: one table for each group of rows holds them at no cost.",
		},
		model: lutScaled,
	},
	{
		Rule: Rule{
			Name: "lut-group", Severity: Warning,
			Finds: "Look-up tables shared by fewer than 8 rows (a warning for 1 or 2, else a note).",
			Why:   "More tables are more exact and slower: one for each output channel halves decoding speed on the Neural Engine, one for two costs a quarter, 8 are as fast as any (Qwen3-0.6B LUT4: 41 and 92 tokens/s).",
			Fix:   "Use groups of 8, and more bits where the quality asks for it.",
		},
		model: lutGroup,
	},
	{
		Rule: Rule{
			Name: "lut-3bit", Severity: Info,
			Finds: "Tables of 8 entries, 3 bits.",
			Why:   "On the Neural Engine a weight of 3 bits takes as much memory as one of 4 (4 layers of Qwen3.8-27B: 0.81 and 0.84 GB).",
			Fix:   "Use 4 bits unless the size on disk matters.",
		},
		model: lut3Bit,
	},
	{
		Rule: Rule{
			Name: "embeddings-palettized", Severity: Warning,
			Finds: "A palettized table of token embeddings.",
			Why:   "A dense table stays in the mapped file and only rows that are looked up are read; a palettized one is decompressed when the model loads (Gemma 4 E2B: 87 s and 16.7 GB).",
			Fix:   "Keep embeddings in fp16.",
		},
		model: embeddingsPalettized,
	},
	{
		Rule: Rule{
			Name: "rope-palettized", Severity: Error,
			Finds: "A palettized table of rotary embeddings: one that positions look up.",
			Why:   "With 16 or 64 values for all sines and cosines, positions collapse into each other. ANEMLL's converter does this silently with one table per tensor (\"4,0\").",
			Fix:   "Keep the tables in fp16: they are small.",
		},
		model: ropePalettized,
	},
	{
		Rule: Rule{
			Name: "gather-palettized", Severity: Warning,
			Finds: "Any other palettized table that a gather looks up.",
			Why:   "It is decompressed when the model loads.",
			Fix:   "Keep it in fp16.",
		},
		model: gatherPalettized,
	},
	{
		Rule: Rule{
			Name: "depthwise-palettized", Severity: Warning,
			Finds: "A depthwise convolution with palettized weights.",
			Why:   "It is slow on the Neural Engine: fp16 in its place gave 136 in place of 118 tokens/s (Qwen3.5-0.8B, M5 Max), and saves next to nothing.",
			Fix:   "Keep it in fp16.",
		},
		model: depthwisePalettized,
	},
	{
		Rule: Rule{
			Name: "lut-missing", Severity: Warning,
			Finds: "A large weight of a projection stored element by element in a model whose name or meta.yaml says that it is palettized.",
			Why:   "coremltools skips a weight whose rows do not divide into groups with no more than a warning, and ANEMLL saves the fp16 model under the palettized name when palettization fails.",
			Fix:   "Choose a group size that divides the rows, and convert again.",
		},
		model: lutMissing,
	},
	{
		Rule: Rule{
			Name: "head-bits", Severity: Info,
			Finds: "An LM head with tables of fewer than 64 entries, 6 bits.",
			Why:   "Published measurements lose 3 to 6 points of top-1 agreement with a head of 4 bits.",
			Fix:   "Use 6 bits for the head.",
		},
		model: headBits,
	},
	{
		Rule: Rule{
			Name: "weight-fp32", Severity: Warning,
			Finds: "Weights stored in fp32.",
			Why:   "They take twice the space and are rounded to fp16 by the Neural Engine.",
			Fix:   "Store fp16.",
		},
		model: weightFP32,
	},
	{
		Rule: Rule{
			Name: "functions-unshared", Severity: Warning,
			Finds: "Weights of the same name and type that functions of a model store each for themselves.",
			Why:   "The file is as many times larger as there are functions.",
			Fix:   "Combine the functions with deduplication, so that both refer to one place in the file.",
		},
		model: functionsUnshared,
	},
	{
		Rule: Rule{
			Name: "multifunction-memory", Severity: Info,
			Finds: "A model of several functions with weights.",
			Why:   "Shared on disk or not, every function that is loaded gets its own copy of the weights on the Neural Engine (Qwen3.8-27B, 4 layers: 0.8 GB for infer, 1.3 to 1.7 GB with prefill). The memory of the process does not show it.",
			Fix:   "Count with it; load only the functions that are needed.",
		},
		model: multifunctionMemory,
	},
	{
		Rule: Rule{
			Name: "bundle-2gb", Severity: Warning,
			Finds: "A model, the embeddings excepted, with more than 2 GiB of weights.",
			Why:   "Models above that were seen not to run on the Neural Engine.",
			Fix:   "Split the layers into more chunks.",
		},
		model: bundleLarge,
	},
	{
		Rule: Rule{
			Name: "bundle-phone", Severity: Warning,
			Finds: "A model, the embeddings excepted, with more than 1.4 GB of weights: a warning with --os ios..., else a note.",
			Why:   "On iPhones it silently runs on the GPU.",
			Fix:   "Split the layers into more chunks.",
		},
		model: bundlePhone,
	},
	{
		Rule: Rule{
			Name: "weight-nonfinite", Severity: Error, Deep: true,
			Finds: "Weights with NaN or infinity (a mask of -inf that is only added or selected is none).",
			Why:   "They spread to everything that is computed from them.",
			Fix:   "Look at the same tensor of the checkpoint: fp16 overflows at 65504.",
		},
		model: weightNonFinite,
	},
	{
		Rule: Rule{
			Name: "weight-zero", Severity: Warning, Deep: true,
			Finds: "Weights, or rows of them, that are all zero (rows of embeddings are a note).",
			Why:   "A broken conversion leaves them behind (ollama#15866: rows of K in two layers); weights that were trained have none.",
			Fix:   "Look at the same tensor of the checkpoint.",
		},
		model: weightZero,
	},
	{
		Rule: Rule{
			Name: "weight-duplicate", Severity: Warning, Deep: true,
			Finds: "Two pieces of the file of weights, of 4096 bytes or more, that are the same.",
			Why:   "The file is larger than it need be.",
			Fix:   "Store it once and refer to it twice.",
		},
		model: weightDuplicate,
	},
	// Packages.
	{
		Rule: Rule{
			Name: "meta", Severity: Warning,
			Finds: "What meta.yaml says and the models or the folder do not bear out.",
			Why:   "Runtimes that believe meta.yaml fail, or compute something else.",
			Fix:   "Correct meta.yaml: the models decide.",
		},
		target: meta,
	},
	{
		Rule: Rule{
			Name: "metadata", Severity: Warning,
			Finds: "A com.anemll.* entry in a model's metadata that its shapes, or the package, contradict.",
			Why:   "ANEMLL's runtimes read the context length and batch size from there.",
			Fix:   "Convert again with the same options for all parts.",
		},
		target: metadata,
	},
	{
		Rule: Rule{
			Name: "no-tokenizer", Severity: Warning,
			Finds: "A package without a tokenizer.json, in its folder or where meta.yaml says.",
			Why:   "It takes tokens, but no runtime can make them of a text.",
			Fix:   "Put the checkpoint's tokenizer.json into the folder.",
		},
		target: noTokenizer,
	},
	{
		Rule: Rule{
			Name: "no-prefill", Severity: Info,
			Finds: "A package whose prompts go token by token.",
			Why:   "A prompt takes as long as an answer of the same length.",
			Fix:   "Convert with a prefill function and prefill_dynamic_slice.",
		},
		target: noPrefill,
	},
	{
		Rule: Rule{
			Name: "context-256", Severity: Info,
			Finds: "A context of fewer than 256 positions.",
			Why:   "ANEMLL makes none without --force; it holds 256 for a rule of the Neural Engine.",
			Fix:   "Convert with a context of 256 or more.",
		},
		target: contextShort,
	},
	{
		Rule: Rule{
			Name: "part-not-compiled", Severity: Info,
			Finds: "A part that is there as .mlpackage only.",
			Why:   "ANEMLL's Swift runtime and oxinfer load .mlmodelc only.",
			Fix:   "anemone compile PART.mlpackage",
		},
		target: partNotCompiled,
	},
}
