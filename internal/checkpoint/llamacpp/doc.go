// Package llamacpp reads what llama.cpp's converters made of a Hugging Face
// checkpoint back into Hugging Face's terms: config.json from the metadata of
// a GGUF file, names of tensors, the order of rows, constants that were folded
// into weights, and the vocabulary.
//
// # What converters do
//
//	general.architecture   llama (also Mistral), qwen2, qwen3, gemma3; others are refused
//	ARCH.*                 the sizes of config.json, as float32 where they are no integers
//	token_embd, blk.N.*    model.embed_tokens, model.layers.N.*
//	output                 lm_head; without it the head is the embedding
//	rope_freqs             llama: factors of the rotary frequencies (rope type llama3)
//
// llama's rows of attn_q and attn_k, and their biases, are in another order:
// within a head of D rows, row i of the first half and row i of the second are
// neighbours, 2i and 2i+1, because ggml turns neighbours where Hugging Face
// turns halves. gemma3's norms hold 1 + w, the factor, in place of w.
//
// Keys and tensors that are not those of the architecture are refused where
// they would change the computation, as llama.cpp refuses a file with tensors
// that it does not know.
//
// # Precision
//
// Values are those of [gguf.Type.Dequantize]. A norm of gemma3 is w - 1 in
// float32, as transformers has it when it loads the same file. Numbers of the
// metadata are the float32 that they are: rms_norm_eps may be
// 9.999999747378752e-06 where 1e-05 was meant, and stays so.
//
// # rope type llama3
//
// Its parameters are not in the file, only the factors that they give. Llama
// 3.1 to 3.3 have two sets of parameters; if one of them gives the factors, it
// is meant, and no other set is guessed.
package llamacpp
