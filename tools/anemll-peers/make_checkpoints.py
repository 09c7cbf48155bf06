"""Small random checkpoints of the architectures that ANEMLL converts, and the logits of each after every token.

usage: make_checkpoints.py OUT
writes: OUT/<arch>/ (config.json, model.safetensors), OUT/<arch>.golden.safetensors (tokens, logits: transformers, float32)
needs: torch, transformers 4, safetensors
"""
import sys, torch
from pathlib import Path
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, Gemma3TextConfig, LlamaConfig, Qwen2Config, Qwen3Config

SMALL = dict(hidden_size=96, intermediate_size=192, num_attention_heads=4, max_position_embeddings=1024)
CONFIGS = {
    "gemma3": Gemma3TextConfig(**SMALL, vocab_size=512, num_hidden_layers=6, num_key_value_heads=1, head_dim=32, sliding_window=128, query_pre_attn_scalar=32,
                               rope_theta=1e6, rope_local_base_freq=1e4, layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2),
    # 516 does not divide by 8: ANEMLL's llama head loses the last four tokens.
    "llama": LlamaConfig(**SMALL, vocab_size=516, num_hidden_layers=3, num_key_value_heads=2, rope_theta=5e5, tie_word_embeddings=False),
    "qwen2": Qwen2Config(**SMALL, vocab_size=512, num_hidden_layers=3, num_key_value_heads=2, rope_theta=1e6, tie_word_embeddings=False),
    "qwen3": Qwen3Config(**SMALL, vocab_size=512, num_hidden_layers=3, num_key_value_heads=2, head_dim=32, rope_theta=1e6, tie_word_embeddings=False),
}

out = Path(sys.argv[1])
torch.manual_seed(5)
for name, config in CONFIGS.items():
    m = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float()
    with torch.no_grad():
        for k, p in m.named_parameters():
            if p.dim() > 1: p.copy_(torch.randn_like(p) * ((0.1 if name == "gemma3" else 1) if "embed" in k else 1.2 / p.shape[1] ** .5))
            elif "bias" in k: p.copy_(torch.randn_like(p) * .3)
            else: p.add_(torch.randn_like(p) * .1)
    m = m.to(torch.bfloat16)
    m.save_pretrained(out / name)
    ids = torch.randint(0, 512, (230,), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        logits = m.float().eval()(input_ids=ids[None], use_cache=False).logits[0]
    save_file({"tokens": ids.int(), "logits": logits.contiguous()}, out / f"{name}.golden.safetensors")
    # With one cache, ANEMLL's graphs know no window: only what lies within it is right.
    save_file({"tokens": ids[:128].int(), "logits": logits[:128].contiguous()}, out / f"{name}.short.safetensors")
