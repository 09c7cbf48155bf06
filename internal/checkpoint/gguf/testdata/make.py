"""Writes the files of this folder by gguf-py: metadata of every kind, and blocks of every quantized type with their values.

usage: make.py        (writes beside itself)
needs: numpy, gguf (PyPI; the files in the repository are by 0.19.0)
"""
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as T, GGUFEndian, GGUFValueType as V, GGUFWriter, GGML_QUANT_SIZES
from gguf.quants import dequantize

HERE = Path(__file__).parent


def write(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def meta(path, endian=GGUFEndian.LITTLE):
    w = GGUFWriter(path, "llama", endianess=endian)
    w.add_custom_alignment(64)
    w.add_uint8("u8", 255)
    w.add_int8("i8", -128)
    w.add_uint16("u16", 65535)
    w.add_int16("i16", -32768)
    w.add_uint32("u32", 2**32 - 1)
    w.add_int32("i32", -(2**31))
    w.add_uint64("u64", 2**63 - 1)
    w.add_uint64("u64 too large", 2**63)
    w.add_int64("i64", -(2**63))
    w.add_float32("f32", 1e-6)
    w.add_float64("f64", 1e-6)
    w.add_bool("yes", True)
    w.add_bool("no", False)
    w.add_string("text", "Zürich\n🜁")
    w.add_string("empty", "")  # gguf-py leaves empty strings out
    w.add_array("strings", ["<s>", "", "▁a", "\x00"])
    w.add_array("ints", [3, -1, 7])
    w.add_array("floats", [0.5, -1000.0])
    w.add_array("bools", [True, False, True])
    w.add_key_value("bytes", [0, 127, 255], V.ARRAY, sub_type=V.UINT8)
    w.add_key_value("longs", [2**63 - 1, 2**63], V.ARRAY, sub_type=V.UINT64)
    w.add_key_value("ключ", 1, V.UINT16)
    w.add_tensor("matrix", np.arange(6, dtype=np.float32).reshape(2, 3))
    w.add_tensor("cube", np.arange(24, dtype=np.float16).reshape(2, 3, 4))
    w.add_tensor("ints", np.array([1, -2], np.int32))
    w.add_tensor("one", np.array([7], np.float32))
    write(w)


def blocks(rng, t):
    """Blocks of any bytes are valid. Some have their fp16 scales set to what is worth a test."""
    elements, size = GGML_QUANT_SIZES[t]
    n = 12 if elements == 256 else 24
    b = rng.integers(0, 256, (n, size), dtype=np.uint8)
    at = {  # where the scales are: bytes
        T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.IQ4_NL: [0],
        T.Q2_K: [80, 82], T.Q3_K: [108], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208],
    }[t]

    def scale(i, *values):
        for a, v in zip(at, values):
            b[i, a : a + 2] = np.array([v], np.float16).view(np.uint8)

    for i in range(n):  # numbers of all sizes and signs
        scale(i, *(rng.standard_normal(2) * 2.0 ** rng.integers(-12, 6, 2)))
    scale(0, 0.0, 0.0)
    scale(1, -0.0, 0.0)
    scale(2, 2**-24, -(2**-24))  # the smallest subnormal numbers
    scale(3, -1023 * 2**-24, 513 * 2**-24)
    scale(4, 65504, -65504)
    scale(5, np.inf, 1)
    scale(6, np.nan, 1)
    scale(7, 1, -np.inf)
    b[8, :] = 0xFF  # quants at their ends (and NaN scales; so set again)
    scale(8, 0.01, 0.3)
    b[9, :] = 0x00
    scale(9, 0.01, 0.3)
    b[10, :] = 0x88
    scale(10, -0.01, -0.3)
    return b


def quants():
    rng = np.random.default_rng(7)
    w = GGUFWriter(HERE / "quants.gguf", "none")
    golden = {}
    for t in [T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.Q2_K, T.Q3_K, T.Q4_K, T.Q5_K, T.Q6_K, T.IQ4_NL]:
        b = blocks(rng, t).reshape(4, -1)  # four rows
        w.add_tensor(t.name, b, raw_dtype=t)
        with np.errstate(invalid="ignore", over="ignore"):
            golden[t.name] = dequantize(b, t)
    # The end of every range, and its neighbours.
    half = np.array([0, 1, 0x3FF, 0x400, 0x3C00, 0x7BFF, 0x7C00, 0x7E01, 0x8000, 0x8001, 0xC123, 0xFBFF, 0xFC00, 0x5555, 0x2AAA, 0x0200], np.uint16)
    for t, bits in [(T.F16, half), (T.BF16, half), (T.F32, half.astype(np.uint32) << 16 | half)]:
        b = bits.reshape(4, -1).view(np.uint8)
        w.add_tensor(t.name, b.view(np.float32) if t == T.F32 else b.view(np.float16) if t == T.F16 else b, raw_dtype=None if t in (T.F32, T.F16) else t)
        golden[t.name] = dequantize(b, t)
    write(w)
    np.savez_compressed(HERE / "quants.npz", **golden)


meta(HERE / "meta.gguf")
meta(HERE / "big-endian.gguf", GGUFEndian.BIG)
quants()
