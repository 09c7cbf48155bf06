"""Makes the small random checkpoints in this folder, and what transformers computes with them in float32.

usage: make.py FOLDER        needs torch, transformers (5.24), safetensors, numpy
golden.safetensors holds tokens [n] and logits [n, vocab], those after each of them; hidden_position [k], and hidden [layers +
2, k, hidden], the scaled embeddings, the residual stream after each layer and the states after the final norm at these
positions. Where there are many tokens, there are logits at these positions only, [k, vocab], which are position as well.
transformers saves each checkpoint, and reads it again for the golden: names and values in the file are its own. Where the
configuration is written anew, in the form that transformers 4 had, it reads that too. The weights are large enough for the
attention to be sharp and for every part to matter.
"""
import json, sys
from pathlib import Path
import numpy as np, torch
from safetensors.numpy import save_file
from transformers import AutoConfig, Gemma3Config, Gemma3ForCausalLM, Gemma3ForConditionalGeneration, Gemma3TextConfig

S, F = "sliding_attention", "full_attention"
CASES = {
    # A text model as transformers 5 saves it: rope_parameters, linear scaling of the full layers, a scale that is not that
    # of the heads, heads that do not fill the stream, windows smaller than a batch.
    "text": dict(dtype="float32", config=dict(hidden_size=12, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=6, intermediate_size=17, vocab_size=41,
        sliding_window=8, layer_types=[S, F, S], query_pre_attn_scalar=10, max_position_embeddings=512, eos_token_id=None,
        rope_parameters={F: dict(rope_type="linear", factor=4.0, rope_theta=1000.0), S: dict(rope_type="default", rope_theta=100.0)})),
    # The whole model with its vision tower, under the configuration of a release: little more than sizes.
    "outer": dict(dtype="bfloat16", config=dict(hidden_size=20, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=1, head_dim=8, intermediate_size=13, vocab_size=50,
        sliding_window=12, layer_types=[S, S, F, S], query_pre_attn_scalar=8, rope_parameters={F: dict(rope_type="linear", factor=8.0, rope_theta=1e6), S: dict(rope_type="default", rope_theta=1e4)}),
        released=dict(architectures=["Gemma3ForConditionalGeneration"], model_type="gemma3", dtype="bfloat16", eos_token_id=[1, 106], image_token_index=49, text_config=dict(model_type="gemma3_text",
            hidden_size=20, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=1, head_dim=8, intermediate_size=13, vocab_size=50, sliding_window=12, sliding_window_pattern=3,
            query_pre_attn_scalar=8, rope_scaling=dict(rope_type="linear", factor=8.0)))),
    # Positions far beyond the window; biases, an untied head, a bound of the logits, one key head for each query head.
    "long": dict(dtype="float16", tokens=700, config=dict(hidden_size=12, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=2, head_dim=16, intermediate_size=10, vocab_size=30,
        sliding_window=9, layer_types=[S, F, S], query_pre_attn_scalar=16, attention_bias=True, final_logit_softcapping=6.0, tie_word_embeddings=False, eos_token_id=None)),
}


def fill(model, seed):
    g = np.random.default_rng(seed)
    with torch.no_grad():
        for n, p in model.named_parameters():
            w = g.standard_normal(tuple(p.shape))
            if "q_norm" in n or "k_norm" in n: w = 1.2 + 0.3 * w
            elif n.endswith("norm.weight"): w = 0.3 * w
            elif n.endswith("bias"): w = 0.3 * w
            elif "embed_tokens" in n: w = 0.4 * w
            elif p.dim() > 1: w = w / p.shape[-1] ** 0.5
            p.copy_(torch.tensor(w, dtype=torch.float32).to(torch.float16))  # values that fp16 has, where the file has more
    return g


def main(out):
    for seed, (name, case) in enumerate(CASES.items()):
        d, dtype = Path(out) / name, getattr(torch, case["dtype"])
        text = Gemma3TextConfig(**case["config"])
        if "released" in case:
            vision = dict(model_type="siglip_vision_model", hidden_size=4, intermediate_size=4, num_hidden_layers=1, num_attention_heads=1, image_size=4, patch_size=2)
            model = Gemma3ForConditionalGeneration(Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=1))
        else: model = Gemma3ForCausalLM(text)
        g = fill(model, seed)
        model.to(dtype).save_pretrained(d)
        (d / "generation_config.json").unlink(missing_ok=True)
        if "released" in case:
            (d / "config.json").write_text(json.dumps(case["released"] | {"vision_config": vision}, indent=1) + "\n")
        config = AutoConfig.from_pretrained(d)
        inner = getattr(config, "text_config", config)
        for k, v in case["config"].items():
            assert getattr(inner, k) == v, (k, getattr(inner, k), v)
        model = type(model).from_pretrained(d, dtype=torch.float32, attn_implementation="eager").eval()
        n = case.get("tokens", 48)
        ids = g.integers(0, text.vocab_size - 1, n)
        keep = np.arange(0, n, 5) if n < 100 else np.array([0, 1, 7, 8, 9, 10, 31, 63, 100, 255, 256, 511, 512, 699])
        with torch.no_grad(): r = model(torch.tensor(ids)[None], output_hidden_states=True, use_cache=False)
        # The last of transformers' hidden states is behind the final norm; what enters that is seen by a hook.
        body = model.model.language_model if "released" in case else model.model
        seen = []
        hook = body.norm.register_forward_pre_hook(lambda _, x: seen.append(x[0]))
        with torch.no_grad(): body(torch.tensor(ids)[None])
        hook.remove()
        hidden = torch.stack([*r.hidden_states[:-1], seen[0], r.hidden_states[-1]])[:, 0, keep]
        assert hidden.shape[0] == text.num_hidden_layers + 2
        golden = {"tokens": ids, "hidden_position": keep, "hidden": hidden.numpy(), "logits": r.logits[0].numpy()}
        if n >= 100: golden |= {"position": keep, "logits": golden["logits"][keep]}
        save_file({k: np.ascontiguousarray(v, np.float32 if v.dtype.kind == "f" else np.int32) for k, v in golden.items()}, d / "golden.safetensors")
        print(name, "logits", r.logits.min().item(), r.logits.max().item(), "hidden", hidden.abs().max().item())


main(sys.argv[1])
