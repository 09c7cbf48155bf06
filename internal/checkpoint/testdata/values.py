"""Prints what checkpoint_test.go expects of tiny-qwen3: values, sums and conversions to fp16.

usage: values.py MODEL.safetensors
needs: numpy
"""
import json
import struct
import sys

import numpy as np


raw = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", raw[:8])[0]
header = json.loads(raw[8 : 8 + n])
header.pop("__metadata__", None)
print(len(header), "tensors")
total = {"underflow": 0, "overflow": 0}
for name, t in header.items():
    assert t["dtype"] == "BF16"
    a, b = (8 + n + o for o in t["data_offsets"])
    x = (np.frombuffer(raw[a:b], "<u2").astype(np.uint32) << 16).view(np.float32).reshape(t["shape"])
    with np.errstate(over="ignore"):
        h = x.astype(np.float16)
    total["underflow"] += int(((h == 0) & (x != 0)).sum())
    total["overflow"] += int(np.isinf(h).sum())
    if name in ("model.embed_tokens.weight", "model.layers.3.mlp.down_proj.weight", "model.norm.weight"):
        f = x.ravel()
        bits = h.view(np.uint16).ravel()
        print(name, t["shape"], "first", f[:4].tolist(), "last", f[-2:].tolist(), "sum64", repr(float(f.astype(np.float64).sum())),
              "fp16", [hex(v) for v in bits[:4]], "fp16 checksum", int((bits.astype(np.uint64) * (np.arange(bits.size, dtype=np.uint64) % 65521 + 1)).sum() % (1 << 32)))
print(total)
# Edges, as numpy rounds them.
for v in [65504, 65519.99, 65520, 1e9, 6.103515625e-05, 6.0e-05, 2.0**-24, 2.0**-25, 2.0**-25 * 1.0000001, 1e-30, 0.1, 1.0009765625, 1.00048828125]:
    with np.errstate(over="ignore"):
        print(repr(v), hex(np.float32(v).astype(np.float16).view(np.uint16)))
