"""Writes a random checkpoint in the shape of a released Qwen3.5, as it is released: outer config, F32 beside BF16.

usage: random_qwen35.py SHAPE FOLDER        SHAPE: 0.8b, moe (8 layers of width 1024 with 32 experts), tiny (a quick try)
needs: numpy. The weights are normal, scaled as trained ones are; their values do not matter for speed and memory.
Tensors are written one after the other: memory stays that of the largest.
"""
import json, sys
from pathlib import Path
import numpy as np

DENSE = dict(num_attention_heads=8, num_key_value_heads=2, head_dim=256, linear_num_key_heads=16, linear_num_value_heads=16, linear_key_head_dim=128, linear_value_head_dim=128,
             linear_conv_kernel_dim=4, hidden_size=1024, intermediate_size=3584, num_hidden_layers=24, vocab_size=248320)
SHAPES = {"0.8b": DENSE,
          "moe": {**{k: v for k, v in DENSE.items() if k != "intermediate_size"}, "num_hidden_layers": 8, "num_experts": 32, "num_experts_per_tok": 4, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "vocab_size": 32768},
          "tiny": {**DENSE, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "vocab_size": 4096}}


def main(shape, out):
    c = SHAPES[shape]; H, V, L = c["hidden_size"], c["vocab_size"], c["num_hidden_layers"]
    moe = "num_experts" in c
    kinds = ["full_attention" if (i + 1) % 4 == 0 else "linear_attention" for i in range(L)]
    T = []  # name, dtype, shape, mean, spread
    P = "model.language_model."
    mat = lambda n, *s, gain=.7: T.append((n, "BF16", s, 0, gain / s[-1] ** .5))
    vec = lambda n, d, mean, spread, t="BF16": T.append((n, t, (d,), mean, spread))
    mlp = lambda p, w: (mat(p + "gate_proj.weight", w, H), mat(p + "up_proj.weight", w, H), mat(p + "down_proj.weight", H, w))
    mat(P + "embed_tokens.weight", V, H); vec(P + "norm.weight", H, 0, .1)
    for l, k in enumerate(kinds):
        p = f"{P}layers.{l}."
        vec(p + "input_layernorm.weight", H, 0, .1); vec(p + "post_attention_layernorm.weight", H, 0, .1)
        if k == "full_attention":
            A, K, D = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]; q = p + "self_attn."
            mat(q + "q_proj.weight", 2 * A * D, H); mat(q + "k_proj.weight", K * D, H); mat(q + "v_proj.weight", K * D, H); mat(q + "o_proj.weight", H, A * D); vec(q + "q_norm.weight", D, 0, .1); vec(q + "k_norm.weight", D, 0, .1)
        else:
            nk, nv, dk, dv, n = (c["linear_" + x] for x in ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim", "conv_kernel_dim")); q = p + "linear_attn."; d = 2 * nk * dk + nv * dv
            mat(q + "in_proj_qkv.weight", d, H); mat(q + "in_proj_z.weight", nv * dv, H); mat(q + "in_proj_b.weight", nv, H); mat(q + "in_proj_a.weight", nv, H); mat(q + "conv1d.weight", d, 1, n, gain=1.4)
            vec(q + "A_log", nv, 1, .8, "F32"); vec(q + "dt_bias", nv, -3, 1); vec(q + "norm.weight", dv, 1, .1, "F32"); mat(q + "out_proj.weight", H, nv * dv)
        if not moe: mlp(p + "mlp.", c["intermediate_size"]); continue
        E, I = c["num_experts"], c["moe_intermediate_size"]
        mat(p + "mlp.gate.weight", E, H, gain=2); mat(p + "mlp.experts.gate_up_proj", E, 2 * I, H); mat(p + "mlp.experts.down_proj", E, H, I)
        mlp(p + "mlp.shared_expert.", c["shared_expert_intermediate_size"]); mat(p + "mlp.shared_expert_gate.weight", 1, H)
    head, at = {"__metadata__": {"format": "pt"}}, 0
    for n, t, s, *_ in T:
        size = int(np.prod(s)) * (4 if t == "F32" else 2)
        head[n] = dict(dtype=t, shape=list(s), data_offsets=[at, at + size]); at += size
    head = json.dumps(head).encode(); head += b" " * (-len(head) % 8)
    out = Path(out); out.mkdir(parents=True, exist_ok=True); g = np.random.default_rng(0)
    with open(out / "model.safetensors", "wb") as f:
        f.write(len(head).to_bytes(8, "little") + head)
        for n, t, s, mean, spread in T:
            rows = s[0]; cols = int(np.prod(s[1:]))
            for r in range(0, rows, 1 << 14):
                a = mean + spread * g.standard_normal((min(1 << 14, rows - r), cols), np.float32)
                f.write(a.astype("<f4").tobytes() if t == "F32" else (a.view("<u4") + 0x8000 >> 16).astype("<u2").tobytes())
    text = dict(c, model_type="qwen3_5_moe_text" if moe else "qwen3_5_text", attn_output_gate=True, attention_bias=False, hidden_act="silu", rms_norm_eps=1e-6, layer_types=kinds, full_attention_interval=4, tie_word_embeddings=True,
                max_position_embeddings=262144, mtp_num_hidden_layers=1, rope_parameters=dict(rope_type="default", rope_theta=1e7, partial_rotary_factor=.25, mrope_section=[11, 11, 10], mrope_interleaved=True), eos_token_id=0)
    (out / "config.json").write_text(json.dumps(dict(architectures=["Qwen3_5MoeForConditionalGeneration" if moe else "Qwen3_5ForConditionalGeneration"], model_type="qwen3_5_moe" if moe else "qwen3_5", tie_word_embeddings=True, text_config=text), indent=1))
    print(f"{sum(int(np.prod(s)) for _, _, s, *_ in T):,} parameters in {out}")


main(*sys.argv[1:3])
