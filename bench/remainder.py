"""Holds functions for fewer tokens than a batch (prefill_N) to a golden file and to infer, in the numpy executor.

usage: PYTHONPATH=../shared/oracle remainder.py PACKAGE GOLDEN.safetensors [--half]
For prompts that leave every kind of remainder, of up to five batches where golden file and context have so many: the tokens
go through prefill, the functions prefill_N (the largest first) and infer, each once and in order. Then once more from a token
before the end of the first batch on, as in a later turn, where calls cross the edges of blocks. Prints the lowest cosine of the
logits after the prompts to the golden's, the largest difference from infer's, and that of the states after them, relative to
their size; fails beyond 0.9999 (0.999 with --half), 1e-3 and 1e-3 (not looked at with --half, where every step of a recurrence
rounds, nor in the later turn, where the slots of a shifting cache that are yet to be written hold other leftovers).

needs: as run_package.py
"""
import re, sys
import numpy as np
from safetensors.numpy import load_file
from run_package import Package

half = "--half" in sys.argv
k = Package(sys.argv[1], half); g = load_file(sys.argv[2]); ids = g["tokens"].tolist()
sizes = sorted((int(m[1]) for f in k.chunks[0].funcs if (m := re.fullmatch(r"prefill_(\d+)", f))), reverse=True)
assert sizes, "the package has no function prefill_N"
names = {1: "infer", k.B: "prefill", **{n: f"prefill_{n}" for n in sizes}}


def feed(ids, sizes, first=0):
    k.reset(); p, calls = 0, []
    while p < len(ids):
        n = 1 if p < first else next(n for n in sizes if p + n <= len(ids)); h = k.call(names[n], ids[p:p + n], p); p += n; calls.append(n)
    return k.logits(h), {n: v.copy() for n, v in k.state.items()}, calls


cosine, apart, states, used = 1.0, 0.0, 0.0, set()
room = min(len(ids), k.ctx)
prompts = [(n, 0) for n in (k.B - 1, k.B + sum(sizes) + 1, 2 * k.B - 1, 5 * k.B - 1, sizes[0], sizes[-1], k.B + sizes[0]) if n <= room]
prompts += [(n, k.B - 1) for n in (4 * k.B + sum(sizes), k.B + sum(sizes)) if n <= room][:1]
for n, first in prompts:
    logits, state, calls = feed(ids[:n], [k.B, *sizes, 1], first); used |= set(calls)
    want, single, _ = feed(ids[:n], [1])
    ref = g["logits"][n - 1].astype(np.float64)
    cosine = min(cosine, logits @ ref / np.linalg.norm(logits) / np.linalg.norm(ref)); apart = max(apart, np.abs(logits - want).max())
    if not first: states = max(states, max(np.linalg.norm(state[s] - single[s]) / np.linalg.norm(single[s]) for s in state))
print(f"{sys.argv[1]}: calls of {sorted(used)} tokens, cosine {cosine:.6f} to the golden, logits {apart:.2g} and states {states:.2g} from those of infer")
sys.exit(not (used == {1, k.B, *sizes} and cosine >= (.999 if half else .9999) and (half or apart <= 1e-3 and states <= 1e-3)))
