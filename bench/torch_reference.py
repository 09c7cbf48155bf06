#!/usr/bin/env python3
"""What transformers makes of a GGUF file, to hold Anemone to.

    pip install torch transformers gguf accelerate
    python torch_reference.py folder MODEL.gguf OUT           a Hugging Face folder of the dequantized weights, float32
    python torch_reference.py golden FOLDER TEXT OUT [TOKENS] float32 logits after each of the first tokens of a text
    python torch_reference.py answer FOLDER MESSAGE           the greedy answer to a message

The folder is that of transformers' own reader of GGUF files. A golden file
holds tokens int32 [n] and logits float32 [n, vocab], as `anemone check
--golden` wants it; all positions come from one forward pass without a cache.
"""
import os
import sys

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer


def folder(gguf, out):
    where, name = os.path.split(os.path.abspath(gguf))
    model = AutoModelForCausalLM.from_pretrained(where, gguf_file=name, dtype=torch.float32)
    # It is not quantized any more, which the configuration would still say.
    model.is_quantized, model.hf_quantizer = False, None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(out)
    AutoTokenizer.from_pretrained(where, gguf_file=name).save_pretrained(out)


def load(path):
    return (AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval(),
            AutoTokenizer.from_pretrained(path))


def golden(path, text, out, tokens="300"):
    model, tokenizer = load(path)
    ids = tokenizer(open(text, encoding="utf-8").read())["input_ids"][:int(tokens)]
    with torch.no_grad():
        logits = model(torch.tensor([ids]), use_cache=False).logits[0].float()
    save_file({"tokens": torch.tensor(ids, dtype=torch.int32), "logits": logits.contiguous()}, out)
    print(out, len(ids), "tokens")


def answer(path, message):
    model, tokenizer = load(path)
    ids = tokenizer.apply_chat_template([{"role": "user", "content": message}], add_generation_prompt=True, return_tensors="pt", return_dict=True)
    text = model.generate(**ids, max_new_tokens=40, do_sample=False)[0][ids["input_ids"].shape[1]:]
    print(tokenizer.decode(text, skip_special_tokens=True))


{"folder": folder, "golden": golden, "answer": answer}[sys.argv[1]](*sys.argv[2:])
