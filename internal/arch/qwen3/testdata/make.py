"""Makes the small random checkpoints in this folder, and what an implementation in numpy and float64 gets from them.

usage: make.py FOLDER        needs numpy, safetensors
golden.safetensors holds tokens [n] and logits [n, vocab]; hidden [layers + 2, n, hidden], the embeddings, the residual
stream after each layer and the states after the final norm; input.NAME, what the linear layer of that name multiplies.
Every checkpoint has shapes that released models do not have together: biases, an untied head, one or four query heads
for each key head, a head_dim unlike hidden/heads, sizes that no tile divides. The weights are large enough for the
attention to be sharp and for every part to matter.
"""
import json, sys
from pathlib import Path
import numpy as np
from safetensors.numpy import save_file

base = dict(architectures=["Qwen3ForCausalLM"], model_type="qwen3", hidden_act="silu", eos_token_id=None, max_position_embeddings=512)
v4 = dict(base, rope_theta=10000.0, rope_scaling=None, torch_dtype="float32", sliding_window=None, use_sliding_window=False)
v5 = dict(base, rope_parameters=dict(rope_type="default", rope_theta=5000), dtype="float32")
CASES = {
    # name: config, dtype of the file, biases by tensor name
    "bias-untied": (dict(v5, hidden_size=24, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=2, head_dim=10, intermediate_size=37, vocab_size=77,
                         rms_norm_eps=1e-5, tie_word_embeddings=False, attention_bias=True, layer_types=["full_attention"] * 3), "F32",
                    ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]),
    # no word on tying, head_dim or key heads: those of hidden/heads and all; two biases that the config does not announce
    "mha-tied": (dict(v4, hidden_size=30, num_hidden_layers=2, num_attention_heads=5, intermediate_size=21, vocab_size=50, rms_norm_eps=1e-6), "BF16", ["self_attn.k_proj", "mlp.down_proj"]),
    # tied, with the lm_head.weight of a re-save, which must not be used
    "wide-heads": (dict(v4, hidden_size=12, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=1, head_dim=16, intermediate_size=64, vocab_size=33,
                        rms_norm_eps=1e-6, tie_word_embeddings=True, attention_bias=False), "F16", []),
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


def rms(x, w, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def forward(c, T, ids):
    H, A, hid = c["num_attention_heads"], c.get("num_key_value_heads", c["num_attention_heads"]), c["hidden_size"]
    D, eps, n = c.get("head_dim", hid // H), c["rms_norm_eps"], len(ids)
    theta = c["rope_theta"] if "rope_theta" in c else c["rope_parameters"]["rope_theta"]
    rotation = np.exp(1j * np.outer(np.arange(n), theta ** (-np.arange(0, D, 2) / D)))  # a pair of dimensions is a complex number

    seen = {"hidden": []}

    def linear(x, name):
        if name.split(".")[-1] in ("q_proj", "o_proj", "gate_proj", "down_proj"): seen["input." + name] = x  # the others share these
        y = np.einsum("ti,oi->to", x, T[name + ".weight"])
        return y + T[name + ".bias"] if name + ".bias" in T else y

    def heads(x, count, norm):
        x = rms(x.reshape(n, count, D), norm, eps)
        z = (x[..., : D // 2] + 1j * x[..., D // 2 :]) * rotation[:, None]
        return np.concatenate([z.real, z.imag], -1)

    x = T["model.embed_tokens.weight"][ids]
    seen["hidden"].append(x)
    for l in range(c["num_hidden_layers"]):
        p = f"model.layers.{l}."
        h = rms(x, T[p + "input_layernorm.weight"], eps)
        q = heads(linear(h, p + "self_attn.q_proj"), H, T[p + "self_attn.q_norm.weight"])
        k = heads(linear(h, p + "self_attn.k_proj"), A, T[p + "self_attn.k_norm.weight"])
        v = linear(h, p + "self_attn.v_proj").reshape(n, A, D)
        out = np.zeros((n, H, D))
        for i in range(n):
            for j in range(H):
                kv = j * A // H
                s = k[: i + 1, kv] @ q[i, j] / D**0.5
                e = np.exp(s - s.max())
                out[i, j] = e / e.sum() @ v[: i + 1, kv]
        x = x + linear(out.reshape(n, H * D), p + "self_attn.o_proj")
        h = rms(x, T[p + "post_attention_layernorm.weight"], eps)
        g = linear(h, p + "mlp.gate_proj")
        x = x + linear(g / (1 + np.exp(-g)) * linear(h, p + "mlp.up_proj"), p + "mlp.down_proj")
        seen["hidden"].append(x)
    x = rms(x, T["model.norm.weight"], eps)
    seen["hidden"].append(x)
    tied = c.get("tie_word_embeddings", "lm_head.weight" not in T)
    seen["logits"] = x @ T["model.embed_tokens.weight" if tied else "lm_head.weight"].T
    return seen


def main(out):
    for seed, (name, (c, dtype, biases)) in enumerate(CASES.items()):
        g = np.random.default_rng(seed)
        H, A, hid, I, V = c["num_attention_heads"], c.get("num_key_value_heads", c["num_attention_heads"]), c["hidden_size"], c["intermediate_size"], c["vocab_size"]
        D = c.get("head_dim", hid // H)
        shapes = {"model.embed_tokens.weight": (V, hid), "model.norm.weight": (hid,)}
        if c.get("tie_word_embeddings") is not None: shapes["lm_head.weight"] = (V, hid)
        for l in range(c["num_hidden_layers"]):
            p = f"model.layers.{l}."
            for n, o, i in [("self_attn.q_proj", H * D, hid), ("self_attn.k_proj", A * D, hid), ("self_attn.v_proj", A * D, hid), ("self_attn.o_proj", hid, H * D),
                            ("mlp.gate_proj", I, hid), ("mlp.up_proj", I, hid), ("mlp.down_proj", hid, I)]:
                shapes[p + n + ".weight"] = (o, i)
                if n in biases: shapes[p + n + ".bias"] = (o,)
            for n, d in [("self_attn.q_norm", D), ("self_attn.k_norm", D), ("input_layernorm", hid), ("post_attention_layernorm", hid)]: shapes[p + n + ".weight"] = (d,)
        raw, T = {}, {}
        for n, s in sorted(shapes.items()):
            w = g.standard_normal(s)
            if n.endswith("norm.weight"): w = 1.2 + 0.4 * w
            elif n.endswith(".bias"): w = 0.5 * w
            elif "embed" not in n: w = w / s[1] ** 0.5
            data, T[n] = rounded(w, dtype)
            raw[n] = dtype, s, data
        d = Path(out) / name; d.mkdir(parents=True, exist_ok=True)
        (d / "config.json").write_text(json.dumps(c, indent=1) + "\n")
        write(d / "model.safetensors", raw)
        ids = g.integers(0, V, 24)
        seen = forward(c, T, ids)
        save_file({"tokens": ids.astype(np.int32)} | {n: np.ascontiguousarray(a, np.float32) for n, a in seen.items()}, d / "golden.safetensors")
        print(name, "logits", seen["logits"].min(), seen["logits"].max())


main(sys.argv[1])
