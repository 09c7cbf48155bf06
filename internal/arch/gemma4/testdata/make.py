"""Makes the small random checkpoints in this folder, and what an implementation in numpy and float64 gets from them.

usage: make.py FOLDER        needs numpy, safetensors
golden.safetensors holds tokens [n], position [k] and logits [k, vocab], those after the tokens at these positions; hidden
[layers + 2, k, hidden], the scaled embeddings, the residual stream after each layer and the states after the final norm.
Every checkpoint has what the trained one does not: two key heads, single-width MLPs, an untied head, no soft cap, tensors
that must not be used, sizes that no tile divides, positions beyond 1000. The weights are large enough for the attention to
be sharp and for every part to matter.
"""
import json, sys
from pathlib import Path
import numpy as np
from safetensors.numpy import save_file

S, F = "sliding_attention", "full_attention"
base = dict(hidden_activation="gelu_pytorch_tanh", attention_k_eq_v=False, enable_moe_block=False, eos_token_id=None, max_position_embeddings=2048, rms_norm_eps=1e-6)
CASES = {
    # As released: an outer configuration, global_head_dim, redundant keys and values in the layers that share, other towers.
    "released": dict(architectures=["Gemma4ForConditionalGeneration"], model_type="gemma4", tie_word_embeddings=True, dtype="bfloat16", audio_config=None, vision_config={"hidden_size": 8},
        text_config=dict(base, architectures=None, model_type="gemma4_text", hidden_size=20, num_hidden_layers=7, num_attention_heads=4, num_key_value_heads=2, head_dim=6, global_head_dim=12,
            num_global_key_value_heads=None, intermediate_size=13, use_double_wide_mlp=False, num_kv_shared_layers=3, sliding_window=5, hidden_size_per_layer_input=6, vocab_size=41, vocab_size_per_layer_input=44,
            final_logit_softcapping=8.0, layer_types=[S, S, F, S, F, S, F],
            rope_parameters={S: dict(rope_type="default", rope_theta=100.0), F: dict(rope_type="proportional", rope_theta=1000.0, partial_rotary_factor=0.34)})),
    # A text model alone, without keys and values in the layers that share, without rope_parameters; the last layer is full whatever is said.
    "text": dict(base, architectures=["Gemma4ForCausalLM"], model_type="gemma4_text", dtype="float32", hidden_size=16, num_hidden_layers=6, num_attention_heads=3, num_key_value_heads=1, head_dim=8, global_head_dim=16,
        intermediate_size=11, use_double_wide_mlp=True, num_kv_shared_layers=3, sliding_window=7, hidden_size_per_layer_input=4, vocab_size=50, vocab_size_per_layer_input=50,
        final_logit_softcapping=None, tie_word_embeddings=False, layer_types=[F, S, F, S, S, S]),
    # Positions beyond 1000; heads of full layers that are as wide as the others'.
    "long": dict(base, architectures=["Gemma4ForCausalLM"], model_type="gemma4_text", dtype="float32", hidden_size=12, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1, head_dim=16,
        per_layer_config={"1": {"head_dim": 32}, "2": {"head_dim": 32}}, intermediate_size=10, num_kv_shared_layers=0, sliding_window=9, hidden_size_per_layer_input=4, vocab_size=30, vocab_size_per_layer_input=30,
        final_logit_softcapping=30.0, tie_word_embeddings=True, layer_types=[S, F, F],
        rope_parameters={S: dict(rope_type="default", rope_theta=10000.0), F: dict(rope_type="proportional", rope_theta=50000.0, partial_rotary_factor=0.25)}),
}
TOKENS = {"long": 1100}


def rounded(a, dtype):
    """The array as the file's bytes, and the float64 value of those."""
    a = a.astype("<f4")
    if dtype == "BF16":
        bits = a.view("<u4"); bits = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")
        return bits.tobytes(), (bits.astype("<u4") << 16).view("<f4").astype(np.float64)
    a = a.astype("<f2").astype("<f4")  # so that packages hold the same values
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


def gelu(x):
    return 0.5 * x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))


class Shape:
    """What a configuration says about each layer."""

    def __init__(self, outer):
        c = self.c = outer.get("text_config", outer)
        self.L, self.H, self.A, self.hid, self.P, self.V = (c[k] for k in ["num_hidden_layers", "num_attention_heads", "num_key_value_heads", "hidden_size", "hidden_size_per_layer_input", "vocab_size"])
        self.kind = c["layer_types"][:-1] + [F]
        self.first = self.L - c["num_kv_shared_layers"]
        full = c.get("global_head_dim") or c["per_layer_config"][str(self.L - 1)]["head_dim"]
        self.dim = [full if k == F else c["head_dim"] for k in self.kind]
        self.mlp = [c["intermediate_size"] * (2 if c.get("use_double_wide_mlp") and l >= self.first else 1) for l in range(self.L)]

    def turns(self, kind, n):
        """Rotations as complex numbers [n, half of a head], by angles in float32 as transformers has them."""
        r = self.c.get("rope_parameters", {S: dict(rope_type="default", rope_theta=1e4), F: dict(rope_type="proportional", rope_theta=1e6, partial_rotary_factor=0.25)})[kind]
        d = self.dim[self.kind.index(kind)]
        some = int(r.get("partial_rotary_factor", 1.0) * d // 2)
        f = np.zeros(d // 2, np.float32)
        f[:some] = 1 / (np.float32(r["rope_theta"]) ** (np.arange(0, 2 * some, 2, dtype=np.float32) / np.float32(d))).astype(np.float32)
        return np.exp(1j * np.outer(np.arange(n, dtype=np.float32), f).astype(np.float64))


def forward(outer, T, ids, keep):
    m = Shape(outer)
    c, n, eps = m.c, len(ids), m.c["rms_norm_eps"]
    pre = "model.language_model." if "text_config" in outer else "model."
    t = lambda name: T[pre + name]
    linear = lambda x, name: np.einsum("ti,oi->to", x, t(name + ".weight"))
    turns = {k: m.turns(k, n) for k in (S, F)}

    def heads(x, count, l, norm, turn):
        x = rms(x.reshape(n, count, m.dim[l]), norm, eps)
        if not turn: return x
        h = m.dim[l] // 2
        z = (x[..., :h] + 1j * x[..., h:]) * turns[m.kind[l]][:, None]
        return np.concatenate([z.real, z.imag], -1)

    x = t("embed_tokens.weight")[ids] * m.hid**0.5
    hidden = [x]
    ple = rms((linear(x, "per_layer_model_projection") * m.hid**-0.5).reshape(n, m.L, m.P), t("per_layer_projection_norm.weight"), eps)
    ple = (ple + t("embed_tokens_per_layer.weight")[ids].reshape(n, m.L, m.P) * m.P**0.5) * 2**-0.5
    memory = {}
    for l in range(m.L):
        p = f"layers.{l}."
        norm = lambda x, name: rms(x, t(p + name + ".weight"), eps)
        h = norm(x, "input_layernorm")
        q = heads(linear(h, p + "self_attn.q_proj"), m.H, l, t(p + "self_attn.q_norm.weight"), True)
        if l < m.first:
            k = heads(linear(h, p + "self_attn.k_proj"), m.A, l, t(p + "self_attn.k_norm.weight"), True)
            v = heads(linear(h, p + "self_attn.v_proj"), m.A, l, 1.0, False)
            memory[m.kind[l]] = k, v  # the last layer of the kind that has its own is what later ones read
        k, v = memory[m.kind[l]]
        out = np.zeros((n, m.H, m.dim[l]))
        for i in range(n):
            a = 0 if m.kind[l] == F else max(0, i - c["sliding_window"] + 1)
            for j in range(m.H):
                s = k[a : i + 1, j * m.A // m.H] @ q[i, j]
                e = np.exp(s - s.max())
                out[i, j] = e / e.sum() @ v[a : i + 1, j * m.A // m.H]
        x = x + norm(linear(out.reshape(n, -1), p + "self_attn.o_proj"), "post_attention_layernorm")
        h = norm(x, "pre_feedforward_layernorm")
        h = linear(gelu(linear(h, p + "mlp.gate_proj")) * linear(h, p + "mlp.up_proj"), p + "mlp.down_proj")
        x = x + norm(h, "post_feedforward_layernorm")
        h = linear(gelu(linear(x, p + "per_layer_input_gate")) * ple[:, l], p + "per_layer_projection")
        x = (x + norm(h, "post_per_layer_input_norm")) * t(p + "layer_scalar")
        hidden.append(x)
    x = rms(x, t("norm.weight"), eps)
    hidden.append(x)
    y = x[keep] @ (t("embed_tokens.weight") if outer["tie_word_embeddings"] else T["lm_head.weight"]).T
    cap = c["final_logit_softcapping"]
    return np.stack(hidden)[:, keep], cap * np.tanh(y / cap) if cap else y


def main(out):
    for seed, (name, outer) in enumerate(CASES.items()):
        g, m = np.random.default_rng(seed), Shape(outer)
        c, dtype = m.c, {"bfloat16": "BF16", "float32": "F32"}[outer["dtype"]]
        pre = "model.language_model." if "text_config" in outer else "model."
        shapes = {"embed_tokens.weight": (m.V, m.hid), "embed_tokens_per_layer.weight": (c["vocab_size_per_layer_input"], m.L * m.P), "per_layer_model_projection.weight": (m.L * m.P, m.hid),
                  "per_layer_projection_norm.weight": (m.P,), "norm.weight": (m.hid,)}
        for l in range(m.L):
            p, d, keys = f"layers.{l}.", m.dim[l], l < m.first or "text_config" in outer
            for n, o, i in [("self_attn.q_proj", m.H * d, m.hid), ("self_attn.o_proj", m.hid, m.H * d), ("mlp.gate_proj", m.mlp[l], m.hid), ("mlp.up_proj", m.mlp[l], m.hid), ("mlp.down_proj", m.hid, m.mlp[l]),
                            ("per_layer_input_gate", m.P, m.hid), ("per_layer_projection", m.hid, m.P)] + [(f"self_attn.{k}_proj", m.A * d, m.hid) for k in "kv" if keys]:
                shapes[p + n + ".weight"] = (o, i)
            for n, k in [("self_attn.q_norm", d), ("input_layernorm", m.hid), ("post_attention_layernorm", m.hid), ("pre_feedforward_layernorm", m.hid), ("post_feedforward_layernorm", m.hid), ("post_per_layer_input_norm", m.hid)] + [("self_attn.k_norm", d)] * keys:
                shapes[p + n + ".weight"] = (k,)
            shapes[p + "layer_scalar"] = (1,)
        shapes = {pre + n: s for n, s in shapes.items()}
        if not outer["tie_word_embeddings"]: shapes["lm_head.weight"] = (m.V, m.hid)
        if "text_config" in outer: shapes |= {"model.vision_tower.patch_embedder.input_proj.weight": (8, 3), "model.embed_vision.embedding_projection.weight": (m.hid, 8)}
        raw, T = {}, {}
        for n, s in sorted(shapes.items()):
            w = g.standard_normal(s)
            if "q_norm" in n or "k_norm" in n: w = 0.5 + 0.15 * w
            elif n.endswith("norm.weight"): w = 1.0 + 0.3 * w
            elif n.endswith("layer_scalar"): w = 0.8 + 0.2 * w
            elif "embed" in n and "proj" not in n: w = w * 0.4
            else: w = w / s[1] ** 0.5
            data, T[n] = rounded(w, dtype)
            raw[n] = dtype, s, data
        d = Path(out) / name; d.mkdir(parents=True, exist_ok=True)
        (d / "config.json").write_text(json.dumps(outer, indent=1) + "\n")
        write(d / "model.safetensors", raw)
        n = TOKENS.get(name, 60)
        ids, keep = g.integers(0, m.V, n), np.arange(n) if n < 100 else np.array([0, 1, 9, 10, 500, 1023, 1024, 1098, 1099])
        hidden, logits = forward(outer, T, ids, keep)
        save_file({"tokens": ids.astype(np.int32), "position": keep.astype(np.int32), "hidden": np.ascontiguousarray(hidden, np.float32), "logits": np.ascontiguousarray(logits, np.float32)}, d / "golden.safetensors")
        print(name, "logits", logits.min(), logits.max(), "hidden", np.abs(hidden).max())


main(sys.argv[1])
