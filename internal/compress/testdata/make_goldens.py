"""Palettizes small matrices with coremltools, for comparison with ours.

Needs coremltools 9.0 and scikit-learn 1.5.1 (its k-means for groups of less
than 10,000 weights). Writes NAME.f16 (row-major little-endian fp16) and
goldens.json, which holds the sum of squared errors of each result:

    python make_goldens.py
"""

import json
import pathlib

import numpy as np
from coremltools.optimize.coreml._quantization_passes import palettize_weights

here = pathlib.Path(__file__).parent
rng = np.random.default_rng(20)


def bf16(x):
    b = x.astype(np.float32).view(np.uint32)
    b = (b + 0x7FFF + ((b >> 16) & 1)) & 0xFFFF0000
    return b.astype(np.uint32).view(np.float32)


rows = np.exp(0.5 * rng.standard_normal((64, 1)))
matrices = {
    # As from a bfloat16 checkpoint: rows of different scale.
    "bf16": bf16(0.02 * rows * rng.standard_normal((64, 160))).astype(np.float16),
    # Heavy tails.
    "tails": (0.02 * rng.standard_t(3, (64, 160))).astype(np.float16),
    # All negative (coremltools issue 2698).
    "negative": (-0.5 - rng.random((16, 64))).astype(np.float16),
}
cases = [
    (name, bits, group)
    for name in ("bf16", "tails")
    for bits, group in [(1, 8), (2, 8), (3, 8), (4, 8), (6, 8), (4, 16), (4, 1), (8, 32), (2, 0), (4, 0), (6, 0), (8, 0)]
] + [("negative", 4, 8), ("negative", 6, 0)]

goldens = []
for name, m in matrices.items():
    m.tofile(here / f"{name}.f16")
for name, bits, group in cases:
    m = matrices[name]
    p = palettize_weights.blockwise_compress(m, "KMEANS", bits, [group, 0])
    lut = p.lut.reshape(-1, 1 << bits)
    assert lut.dtype == np.float16, lut.dtype
    per = m.shape[0] // lut.shape[0]
    q = np.stack([lut[r // per][p.indices[r]] for r in range(m.shape[0])])
    d = m.astype(np.float64) - q.astype(np.float64)
    goldens.append(
        {
            "matrix": name,
            "rows": m.shape[0],
            "bits": bits,
            "group": group,
            "lut_shape": list(p.lut.shape),
            "squared": float(np.sum(d * d)),
            "energy": float(np.sum(m.astype(np.float64) ** 2)),
            "max_error": float(np.max(np.abs(d))),
        }
    )
lines = ",\n".join(json.dumps(g) for g in goldens)
(here / "goldens.json").write_text(f"[\n{lines}\n]\n")
