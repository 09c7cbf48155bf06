"""Makes the small random checkpoints in this folder, and what an implementation in numpy and float64 gets from them.

usage: make.py FOLDER        needs numpy, safetensors
golden.safetensors holds tokens [n] and logits [n, vocab]; hidden [layers + 2, n, hidden], the embeddings, the residual
stream after each layer and the states after the final norm; input.NAME, what the linear layer of that name multiplies;
and after the last token, for each layer i that is a Gated DeltaNet, memory.i [value heads, d_k, d_v] and conv.i
[kernel - 1, channels]. The checkpoints have what released models do not have together: three value heads for each key
head, head sizes that are no powers of two, other kernels and layer orders, norms near -1 and near 0, experts wider or
narrower than the model, routers that cannot decide between two experts.
"""
import json, sys
from pathlib import Path
import numpy as np
from safetensors.numpy import save_file

vision = {"depth": 1, "hidden_size": 8, "model_type": "qwen3_5_vision"}
moe = dict(hidden_size=16, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=2, head_dim=8, linear_num_key_heads=1, linear_num_value_heads=2, linear_key_head_dim=8,
           linear_value_head_dim=12, linear_conv_kernel_dim=4, vocab_size=40, layer_types=["full_attention", "linear_attention", "linear_attention"], num_experts=5, num_experts_per_tok=3,
           moe_intermediate_size=7, shared_expert_intermediate_size=20, tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=100.0, partial_rotary_factor=1.0))
CASES = {
    # name: outer config, keys of the text model, dtype of the file, prefix, seed; every key that is missing has a default
    "flat-untied": (dict(architectures=["Qwen3_5ForCausalLM"], model_type="qwen3_5_text"),
                    dict(hidden_size=18, num_hidden_layers=4, num_attention_heads=3, num_key_value_heads=1, head_dim=20, intermediate_size=25, vocab_size=57, linear_num_key_heads=2,
                         linear_num_value_heads=6, linear_key_head_dim=12, linear_value_head_dim=10, linear_conv_kernel_dim=3, full_attention_interval=2, rms_norm_eps=1e-5,
                         tie_word_embeddings=False, rope_theta=300.0, partial_rotary_factor=0.5), "F32", "model.", 1),
    # recurrent layers only; mtp and vision tensors; the text level alone says that the head is tied
    "nested-linear": (dict(architectures=["Qwen3_5ForConditionalGeneration"], model_type="qwen3_5", vision_config=vision, image_token_id=1),
                      dict(model_type="qwen3_5_text", hidden_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=8, intermediate_size=24, vocab_size=33,
                           linear_num_key_heads=2, linear_num_value_heads=2, linear_key_head_dim=16, linear_value_head_dim=8, linear_conv_kernel_dim=2, mtp_num_hidden_layers=1,
                           layer_types=["linear_attention"] * 2, tie_word_embeddings=True,
                           rope_parameters=dict(rope_type="default", rope_theta=1e7, partial_rotary_factor=0.25, mrope_section=[1, 1, 0], mrope_interleaved=True)), "BF16", "model.language_model.", 2),
    "moe-fused": (dict(architectures=["Qwen3_5MoeForConditionalGeneration"], model_type="qwen3_5_moe", vision_config=vision), dict(moe, model_type="qwen3_5_moe_text"), "F16", "model.language_model.", 3),
    "moe-split": (dict(architectures=["Qwen3_5MoeForCausalLM"], model_type="qwen3_5_moe_text"), moe, "F16", "model.", 3),
}


def rounded(a, dtype):
    """The array as the file's bytes, and the float64 value of those."""
    a = a.astype("<f4")
    if dtype == "BF16":
        bits = a.view("<u4"); bits = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")
        return bits.tobytes(), (bits.astype("<u4") << 16).view("<f4").astype(np.float64)
    a = a.astype({"F32": "<f4", "F16": "<f2"}[dtype])
    return a.tobytes(), a.astype(np.float64)


def write(path, tensors):
    """A safetensors file: BF16 is more than the package's numpy part can write. tensors: name to (dtype, shape, bytes)."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for n, (dtype, shape, b) in tensors.items():
        header[n] = dict(dtype=dtype, shape=shape, data_offsets=[len(data), len(data) + len(b)])
        data += b
    header = json.dumps(header).encode()
    header += b" " * (-len(header) % 8)
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)


def sigmoid(x): return 1 / (1 + np.exp(-x))
def silu(x): return x * sigmoid(x)
def rms(x, w, eps): return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def layer_types(c): return c.get("layer_types") or ["full_attention" if (i + 1) % c.get("full_attention_interval", 4) == 0 else "linear_attention" for i in range(c["num_hidden_layers"])]


def forward(c, T, prefix, ids):
    eps, n, R = c.get("rms_norm_eps", 1e-6), len(ids), c.get("rope_parameters", c)
    seen = {"hidden": []}

    def linear(x, name):
        seen["input." + prefix + name] = x
        return np.einsum("ti,oi->to", x, T[prefix + name])

    def attention(h, p):
        A, K, D = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        rot = int(D * R["partial_rotary_factor"])
        turn = np.exp(1j * np.outer(np.arange(n), R["rope_theta"] ** (-np.arange(0, rot, 2) / rot)))  # a pair of dimensions is a complex number
        def heads(x, norm):
            x = rms(x, 1 + T[prefix + p + norm], eps)
            z = (x[..., : rot // 2] + 1j * x[..., rot // 2 : rot]) * turn[:, None]
            return np.concatenate([z.real, z.imag, x[..., rot:]], -1)
        both = linear(h, p + "q_proj.weight").reshape(n, A, 2, D)
        q, gate = heads(both[:, :, 0], "q_norm.weight"), both[:, :, 1]
        k = heads(linear(h, p + "k_proj.weight").reshape(n, K, D), "k_norm.weight")
        v = linear(h, p + "v_proj.weight").reshape(n, K, D)
        k, v = np.repeat(k, A // K, 1), np.repeat(v, A // K, 1)
        s = np.einsum("tad,sad->ats", q, k) / np.sqrt(D)
        s = np.where(np.tril(np.ones((n, n), bool)), s, -np.inf)
        s = np.exp(s - s.max(-1, keepdims=True)); s /= s.sum(-1, keepdims=True)
        o = np.einsum("ats,sad->tad", s, v) * sigmoid(gate)
        return linear(o.reshape(n, -1), p + "o_proj.weight")

    def delta(h, p, l):
        nk, nv, dk, dv, K = (c["linear_" + x] for x in ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim", "conv_kernel_dim"))
        x = linear(h, p + "in_proj_qkv.weight")
        z = linear(h, p + "in_proj_z.weight").reshape(n, nv, dv)
        beta = sigmoid(linear(h, p + "in_proj_b.weight"))
        g = -np.exp(T[prefix + p + "A_log"]) * np.logaddexp(0, linear(h, p + "in_proj_a.weight") + T[prefix + p + "dt_bias"])
        x = np.concatenate([np.zeros((K - 1, x.shape[1])), x])
        seen[f"conv.{l}"] = x[n:]
        w = T[prefix + p + "conv1d.weight"][:, 0]
        y = silu(sum(x[i : i + n] * w[:, i] for i in range(K)))
        q, k, v = np.split(y, [nk * dk, 2 * nk * dk], -1)
        unit = lambda a: np.repeat(a.reshape(n, nk, dk) / np.sqrt((a.reshape(n, nk, dk) ** 2).sum(-1, keepdims=True) + 1e-6), nv // nk, 1)
        q, k, v = unit(q) / np.sqrt(dk), unit(k), v.reshape(n, nv, dv)
        S, out = np.zeros((nv, dk, dv)), []
        for t in range(n):
            S = S * np.exp(g[t])[:, None, None]
            S = S + np.einsum("hk,hv->hkv", k[t], beta[t][:, None] * (v[t] - np.einsum("hkv,hk->hv", S, k[t])))
            out.append(np.einsum("hkv,hk->hv", S, q[t]))
        seen[f"memory.{l}"] = S
        o = rms(np.stack(out), T[prefix + p + "norm.weight"], eps) * silu(z)
        return linear(o.reshape(n, -1), p + "out_proj.weight")

    def mlp(h, p): return linear(silu(linear(h, p + "gate_proj.weight")) * linear(h, p + "up_proj.weight"), p + "down_proj.weight")

    def experts(h, p):
        E, k, I = c["num_experts"], c["num_experts_per_tok"], c["moe_intermediate_size"]
        s = linear(h, p + "gate.weight")
        s = np.exp(s - s.max(-1, keepdims=True)); s /= s.sum(-1, keepdims=True)
        pick = np.argsort(-s, -1, kind="stable")[:, :k]  # of equals the first
        y = mlp(h, p + "shared_expert.") * sigmoid(linear(h, p + "shared_expert_gate.weight"))
        for t in range(n):
            for e in pick[t]:
                if prefix + p + "experts.gate_up_proj" in T:
                    gu, down = T[prefix + p + "experts.gate_up_proj"][e], T[prefix + p + "experts.down_proj"][e]
                    gate, up = gu[:I], gu[I:]
                else:
                    gate, up, down = (T[prefix + p + f"experts.{e}.{x}_proj.weight"] for x in ("gate", "up", "down"))
                y[t] += s[t, e] / s[t, pick[t]].sum() * (down @ (silu(gate @ h[t]) * (up @ h[t])))
        return y

    x = T[prefix + "embed_tokens.weight"][ids]
    seen["hidden"].append(x)
    for l, kind in enumerate(layer_types(c)):
        p = f"layers.{l}."
        h = rms(x, 1 + T[prefix + p + "input_layernorm.weight"], eps)
        x = x + (attention(h, p + "self_attn.") if kind == "full_attention" else delta(h, p + "linear_attn.", l))
        h = rms(x, 1 + T[prefix + p + "post_attention_layernorm.weight"], eps)
        x = x + (experts if "num_experts" in c else mlp)(h, p + "mlp.")
        seen["hidden"].append(x)
    x = rms(x, 1 + T[prefix + "norm.weight"], eps)
    seen["hidden"].append(x)
    head = T["lm_head.weight"] if not c["tie_word_embeddings"] else T[prefix + "embed_tokens.weight"]
    seen["hidden"] = np.stack(seen["hidden"])
    return x @ head.T, seen


def make(name, out):
    outer, c, dtype, prefix, seed = CASES[name]
    rng = np.random.default_rng(seed)
    H, V, L = c["hidden_size"], c["vocab_size"], c["num_hidden_layers"]
    raw = {}
    def mat(n, *shape, gain=1.3): raw[n] = rng.standard_normal(shape) * gain / np.sqrt(shape[-1])
    def vec(n, d, at=0.0, spread=0.4): raw[n] = at + spread * rng.standard_normal(d)
    def mlp(p, w, gain=1.3): mat(p + "gate_proj.weight", w, H, gain=gain); mat(p + "up_proj.weight", w, H, gain=gain); mat(p + "down_proj.weight", H, w, gain=gain)
    mat(prefix + "embed_tokens.weight", V, H, gain=3)
    for l, kind in enumerate(layer_types(c)):
        p = f"{prefix}layers.{l}."
        vec(p + "input_layernorm.weight", H, at=0.9 * (l % 2)); vec(p + "post_attention_layernorm.weight", H, at=-0.6 * (l % 2))
        if kind == "full_attention":
            A, K, D = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]; p += "self_attn."
            mat(p + "q_proj.weight", 2 * A * D, H); mat(p + "k_proj.weight", K * D, H); mat(p + "v_proj.weight", K * D, H); mat(p + "o_proj.weight", H, A * D)
            vec(p + "q_norm.weight", D); vec(p + "k_norm.weight", D)
        else:
            nk, nv, dk, dv, k = (c["linear_" + x] for x in ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim", "conv_kernel_dim")); p += "linear_attn."
            d = 2 * nk * dk + nv * dv
            mat(p + "in_proj_qkv.weight", d, H, gain=2); mat(p + "in_proj_z.weight", nv * dv, H); mat(p + "in_proj_b.weight", nv, H); mat(p + "in_proj_a.weight", nv, H); mat(p + "conv1d.weight", d, 1, k, gain=2)
            raw[p + "A_log"] = np.log(rng.uniform(0.05, 4, nv)); vec(p + "dt_bias", nv, at=-1); vec(p + "norm.weight", dv, at=1); mat(p + "out_proj.weight", H, nv * dv)
        p = f"{prefix}layers.{l}.mlp."
        if "num_experts" not in c: mlp(p, c["intermediate_size"]); continue
        E, I = c["num_experts"], c["moe_intermediate_size"]
        mat(p + "gate.weight", E, H, gain=3)
        raw[p + "gate.weight"][E - 1] = raw[p + "gate.weight"][1]  # two that are always equal
        mat(p + "gu", E, 2 * I, H); mat(p + "d", E, H, I); gu, d = raw.pop(p + "gu"), raw.pop(p + "d")
        if name.endswith("fused"): raw[p + "experts.gate_up_proj"], raw[p + "experts.down_proj"] = gu, d
        else:
            for e in range(E): raw[p + f"experts.{e}.gate_proj.weight"], raw[p + f"experts.{e}.up_proj.weight"], raw[p + f"experts.{e}.down_proj.weight"] = gu[e, :I], gu[e, I:], d[e]
        mlp(p + "shared_expert.", c["shared_expert_intermediate_size"]); mat(p + "shared_expert_gate.weight", 1, H)
    vec(prefix + "norm.weight", H)
    if not c["tie_word_embeddings"]: mat("lm_head.weight", V, H, gain=3)
    if name == "nested-linear": raw["mtp.fc.weight"] = rng.standard_normal((4, 4)); raw["model.visual.patch_embed.proj.weight"] = rng.standard_normal((2, 3))
    if name == "moe-split": raw["lm_head.weight"] = rng.standard_normal((V, H))  # of a re-save; not to be used

    bytes_, T = {}, {}
    for n, a in raw.items():
        # Released checkpoints keep these in F32 beside BF16.
        d = "F32" if dtype == "BF16" and (n.endswith("A_log") or n.endswith("linear_attn.norm.weight")) else dtype
        b, T[n] = rounded(a, d); bytes_[n] = (d, list(a.shape), b)
    d = Path(out) / name; d.mkdir(parents=True, exist_ok=True)
    config = {**outer, **c} if "vision_config" not in outer else {**outer, "text_config": c}
    (d / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    write(d / "model.safetensors", bytes_)
    ids = np.random.default_rng(seed + 100).integers(0, V, 33)
    logits, seen = forward(c, T, prefix, ids)
    save_file({"tokens": ids.astype(np.int32), "logits": logits.astype(np.float32), **{k: np.ascontiguousarray(v, np.float32) for k, v in seen.items()}}, d / "golden.safetensors")
    print(name, "logits", np.abs(logits).max().round(2), "hidden", [float(np.abs(x).max().round(1)) for x in seen["hidden"]])


if __name__ == "__main__":
    for n in CASES: make(n, sys.argv[1])
