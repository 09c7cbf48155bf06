"""Makes the arrays that the tests read, with NumPy, and prints what they hold.

usage: python make.py  (in this folder)
needs: numpy 2
"""
import io, json, zipfile
import numpy as np
from numpy.lib import format as npf

a = {
    "bool": np.array([[True, False, True]]),
    "i1": np.array([-128, 0, 127], np.int8),
    "u1": np.array([0, 255], np.uint8),
    "i2": np.array([[-32768], [32767]], np.int16),
    "u2": np.array([65535], np.uint16),
    "i4": np.arange(-3, 3, dtype=np.int32).reshape(2, 3),
    "u4": np.array([4294967295], np.uint32),
    "i8": np.array([-2**63, 2**63 - 1], np.int64),
    "u8": np.array([2**64 - 1], np.uint64),
    "f2": np.array([1, -65504, np.inf, 6e-8], np.float16),
    "f4": np.array([[1.5, -0.0], [np.nan, 3.4e38]], np.float32),
    "f8": np.array([np.pi, -np.inf], np.float64),
    "scalar": np.float32(7),
    "empty": np.zeros((2, 0, 3), np.float32),
    "fortran": np.asfortranarray(np.arange(24, dtype=np.float32).reshape(2, 3, 4)),
    "fortran_i2": np.asfortranarray(np.arange(6, dtype=np.int16).reshape(3, 2)),
    "big_f4": np.arange(4, dtype=">f4").reshape(2, 2),
    "big_i8": np.array([1, -2], dtype=">i8"),
    "big_fortran": np.asfortranarray(np.arange(6, dtype=">u2").reshape(2, 3)),
    "folder/ü key": np.array([5], np.int32),
}
np.savez("stored.npz", **a)
np.savez_compressed("deflated.npz", **a)

# The three versions of the header.
for v in (1, 2, 3):
    with open(f"v{v}.npy", "wb") as f:
        npf.write_array(f, a["i4"], version=(v, 0))

# What is refused.
with zipfile.ZipFile("refused.npz", "w", zipfile.ZIP_DEFLATED) as z:
    for name, x in {"text": np.array(["a"]), "bytes": np.array([b"a"]), "complex": np.array([1j]), "object": np.array([None], object),
                    "date": np.array(["2020-01-01"], "M8[D]"), "record": np.zeros(2, [("x", "f4"), ("y", "i4")]), "void": np.zeros(2, "V2"),
                    "long": np.zeros(1, np.longdouble), "fine": np.array([1, 2], np.int32)}.items():
        b = io.BytesIO(); np.save(b, x, allow_pickle=True); z.writestr(name + ".npy", b.getvalue())
    z.writestr("readme.txt", "not an array")

# What the arrays hold: shape, and bytes by row and little endian.
want = {k: [str(x.dtype.newbyteorder("=")), list(x.shape), np.ascontiguousarray(x).astype(x.dtype.newbyteorder("<")).tobytes().hex()] for k, x in a.items()}
want["scalar"][1] = []
with open("want.json", "w") as f:
    f.write("{\n" + ",\n".join(json.dumps(k, ensure_ascii=False) + ": " + json.dumps(v) for k, v in want.items()) + "\n}\n")
