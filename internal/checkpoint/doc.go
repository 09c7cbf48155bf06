// Package checkpoint opens a Hugging Face model folder, or a GGUF file as if it
// were one: config.json, the tensors by name, and the generation and tokenizer
// files.
//
// It knows the file formats and nothing of any architecture. Whether a
// model_type is supported, and which tensors it needs, is for the arch
// packages to say; they ask for tensors by name and shape, and what nobody
// asked for is listed by [Checkpoint.Unused].
//
// # Which file holds a tensor
//
//   - If the folder has model.safetensors.index.json, the index alone decides:
//     each tensor comes from the file that the index assigns it to, other
//     copies are ignored, and files that the index doesn't name aren't opened,
//     model.safetensors among them. A file that is missing or cut off, and a
//     tensor that its file lacks, are errors: an index that does not fit its
//     files is stale, and no guess is made about which of them is right.
//     Tensors that the files hold and the index never names can't be used;
//     [Checkpoint.Unindexed] lists them.
//   - Otherwise, if the folder has model.safetensors, it holds everything.
//   - Otherwise, the folder must have exactly one file *.safetensors.
//
// # GGUF
//
// Package llamacpp says what a GGUF file holds in the terms of a folder, and
// everything here is in these terms: names of tensors, their values and rows,
// config.json. Tensors of quantized types have the type F32 and are decoded as
// they are read, block by block; [Tensor.Stored] says what they are in the file.
// Errors name a tensor as the file does, too. The files of [Checkpoint.Files]
// are made of the metadata; [Checkpoint.OpenFile] gives them like others. So is
// the tokenizer.json of a folder that has a SentencePiece tokenizer.model alone.
// A tokenizer that cannot be written in that form is no error: the model can be
// used without, and [Checkpoint.TokenizerProblem] says why there is none.
//
// # config.json
//
// Both forms are read: that of transformers 4 (rope_theta, rope_scaling) and
// that of transformers 5 (rope_parameters). A key that is present with null
// counts as absent, everywhere. Keys given twice count once, the last, as in
// Python. Errors name the file, the path of the key, what was found and what
// was wanted.
//
// # Memory
//
// Files are mapped, so opening costs their headers only. Pages that were read
// count as resident memory until the system needs them; [Tensor.Release]
// gives them back at once.
package checkpoint
