"""Writes mixed.safetensors by the reference implementation: types of every width, a scalar, an empty tensor, odd names.

usage: make.py        (writes beside itself; prints the values that file_test.go expects)
needs: numpy, safetensors (PyPI; the file in the repository is by 0.8.0)
"""
from pathlib import Path

import numpy as np
from safetensors import TensorSpec, serialize_file

HERE = Path(__file__).parent / "mixed.safetensors"
TENSORS = {  # name: type as the reference spells it, array of the bytes' type, shape
    "f32": ("float32", np.array([[1.5, -2, 3], [4, 5, 6.25]], np.float32)),
    "f64": ("float64", np.array([0.1], np.float64)),
    "f16": ("float16", np.array([1, -65504, 6e-8], np.float16)),
    "bf16": ("bfloat16", np.array([0x3F80, 0x4000, 0xC040], np.uint16)),
    "f8": ("float8_e4m3fn", np.array([0x38, 0x40, 0x44], np.uint8)),
    "f8_2": ("float8_e5m2", np.array([0x3C], np.uint8)),
    "i64": ("int64", np.array([-1, 2**62], np.int64)),
    "i32": ("int32", np.array([-9], np.int32)),
    "u16": ("uint16", np.array([65535], np.uint16)),
    "u8": ("uint8", np.array([1, 2, 3], np.uint8)),
    "bool": ("bool", np.array([True, False])),
    "c64": ("complex64", np.array([1 + 2j], np.complex64)),
    "scalar": ("float32", np.array(7, np.float32)),
    "empty": ("float32", np.zeros((0, 4), np.float32)),
    "a/ü <&> \"quoted\" \\ \n": ("int32", np.array([9], np.int32)),
}
serialize_file({n: TensorSpec(dtype=d, shape=a.shape, data_ptr=a.ctypes.data, data_len=a.nbytes) for n, (d, a) in TENSORS.items()}, HERE, {"format": "pt"})
for name, (dtype, a) in TENSORS.items():
    print(f"{name!r}: {dtype} {list(a.shape)} {a.tobytes().hex()}")
