"""Loads Core ML packages with coremltools and reads every weight.

usage: load.py X.mlpackage...        needs: coremltools, numpy (PyPI)
"""
import logging, os, sys, warnings
warnings.filterwarnings("ignore"); logging.disable(logging.WARNING)
import numpy as np
import coremltools as ct
from coremltools.converters.mil.frontend.milproto.load import load

for path in sys.argv[1:]:
    spec = ct.utils.load_spec(path)
    prog = load(spec, spec.specificationVersion, os.path.join(path, "Data/com.apple.CoreML/weights"))
    n = size = 0
    for name, f in prog.functions.items():
        for op in f.operations:
            if op.op_type == "const" or op.op_type.startswith("constexpr"):
                v = op.materialized_val_inference() if op.op_type != "const" else op.outputs[0].val
                if isinstance(v, np.ndarray) and v.dtype.kind == "f":
                    assert np.isfinite(v).all(), (path, op.name)
                    n, size = n + 1, size + v.size
    print(f"{os.path.basename(os.path.dirname(path))}/{os.path.basename(path)}: functions {sorted(prog.functions)}, {n} weights of {size} elements read")
