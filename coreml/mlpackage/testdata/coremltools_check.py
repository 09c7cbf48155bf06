"""What coremltools, an independent implementation, says about our files.

    coremltools_check.py load PACKAGE...   load each package: specification, program, every weight;
                                           print one JSON object with a digest of each constant
    coremltools_check.py blobs FILE        write a file of weights with one blob of every type
    coremltools_check.py make PACKAGE      convert a small program and save it
"""

import hashlib
import json
import logging
import os
import sys
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)

import coremltools as ct
import numpy as np
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil.frontend.milproto import load as milproto_load
from coremltools.converters.mil.mil import types


def digest(values):
    """SHA-256 of the values, one little-endian int64 or float64 each."""
    a = np.asarray(values)
    a = a.astype("<f8" if a.dtype.kind == "f" else "<i8")
    return hashlib.sha256(np.ascontiguousarray(a).tobytes()).hexdigest()


def load(paths):
    out = {}
    for path in paths:
        spec = ct.utils.load_spec(path)
        prog = milproto_load.load(spec, spec.specificationVersion, os.path.join(path, "Data", "com.apple.CoreML", "weights"))
        d = spec.description
        functions = {}
        for name, f in prog.functions.items():
            constants = {}
            for op in f.operations:
                if op.op_type == "const" and op.outputs[0].val is not None and not isinstance(op.val.val, str):
                    constants[op.outputs[0].name] = digest(op.outputs[0].val)
                elif op.op_type == "constexpr_lut_to_dense":
                    for arg in ("indices", "lut"):
                        constants[op.outputs[0].name + "." + arg] = digest(op.inputs[arg].val)
            functions[name] = {
                "inputs": {k: [list(map(str, v.shape)), types.builtin_to_string(v.dtype)] for k, v in f.inputs.items()},
                "outputs": [v.name for v in f.outputs],
                "operations": sum(op.op_type not in ("const",) for op in f.operations),
                "constants": constants,
            }
        out[path] = {
            "version": spec.specificationVersion,
            "default": d.defaultFunctionName,
            "functions": functions,
            "described": {f.name: [[x.name for x in l] for l in (f.input, f.output, f.state)] for f in d.functions},
            "user": dict(d.metadata.userDefined),
            "short": d.metadata.shortDescription,
        }
    json.dump(out, sys.stdout)


def blobs(path):
    """The values are 0, 1, 2 ... in their type's range: the test makes the same."""
    from coremltools.libmilstoragepython import _BlobStorageWriter

    w = _BlobStorageWriter(path)
    n = 13
    seq = np.arange(n)
    w.write_fp16_data(seq.astype(np.float16).view(np.uint16))
    w.write_float_data(seq.astype(np.float32))
    w.write_uint8_data(seq.astype(np.uint8))
    w.write_int8_data((seq - 5).astype(np.int8))
    w.write_int16_data((seq - 5).astype(np.int16))
    w.write_uint16_data(seq.astype(np.uint16))
    w.write_int4_data((seq - 6).astype(np.int8))
    w.write_uint1_data((seq % 2).astype(np.uint8))
    w.write_uint2_data((seq % 4).astype(np.uint8))
    w.write_uint4_data(seq.astype(np.uint8))
    w.write_uint3_data((seq % 8).astype(np.uint8))
    w.write_uint6_data((seq + 50).astype(np.uint8))
    w.write_int32_data((seq - 5).astype(np.int32))
    w.write_uint32_data(seq.astype(np.uint32))


def make(path):
    @mb.program(
        input_specs=[mb.TensorSpec(shape=(1, 4), dtype=types.fp16), mb.StateTensorSpec((3, 4), dtype=types.fp16)],
        opset_version=ct.target.iOS18,
    )
    def prog(x, kv):
        w = np.arange(48, dtype=np.float16).reshape(12, 4)
        y = mb.linear(x=x, weight=w, bias=np.ones(12, dtype=np.float16))
        y = mb.reshape(x=y, shape=[3, 4])
        old = mb.read_state(input=kv)
        new = mb.add(x=old, y=y, name="new")
        mb.coreml_update_state(state=kv, value=new)
        return mb.mul(x=new, y=np.float16(0.5), name="out")

    m = ct.convert(prog, convert_to="mlprogram", minimum_deployment_target=ct.target.iOS18, skip_model_load=True)
    m.user_defined_metadata["com.anemll.info"] = "made by a test"
    m.save(path)


{"load": load, "blobs": lambda a: blobs(*a), "make": lambda a: make(*a)}[sys.argv[1]](sys.argv[2:])
