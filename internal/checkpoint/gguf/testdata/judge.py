"""Prints all of a GGUF file, by gguf-py: every key with the SHA-256 of its value, then every tensor with its type, its shape and the
SHA-256 of its dequantized values.

usage: judge.py MODEL.gguf
needs: numpy, gguf (PyPI)

TestPrint prints the same of the same file; they must not differ:

    go test -run TestPrint -v -args -model MODEL.gguf
"""
import hashlib
import struct
import sys

from gguf import GGUFReader
from gguf.quants import dequantize


def text(v):
    if isinstance(v, bool):
        v = str(v).lower()
    elif isinstance(v, float):
        v = "%x" % struct.unpack("<Q", struct.pack("<d", v))
    return f"{v} <nil>"


reader = GGUFReader(sys.argv[1])
for f in reader.fields.values():
    if not f.name.startswith("GGUF."):
        v = f.contents()
        v = [text(x) for x in (v if isinstance(v, list) else [v])]
        print(f.name, f"[{len(v)}]", hashlib.sha256("\0".join(v).encode()).hexdigest())
for t in reader.tensors:
    h = hashlib.sha256()
    shape = [int(n) for n in reversed(t.shape)]
    rows = t.data.reshape(-1, t.data.shape[-1])
    for i in range(0, len(rows), 1024):
        h.update(dequantize(rows[i : i + 1024], t.tensor_type).tobytes())
    print(t.name, t.tensor_type.name, "[" + " ".join(map(str, shape)) + "]", h.hexdigest())
