"""Makes a model with an optional input, y = x + c where c is 2.5 unless it is given.

usage: python optional.py OUT.mlpackage
needs: coremltools
"""
import sys
import numpy as np, coremltools as ct
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil.mil import types


@mb.program(input_specs=[mb.TensorSpec((2,), types.fp32), mb.TensorSpec((2,), types.fp32)], opset_version=ct.target.iOS16)
def program(x, c): return mb.add(x=x, y=c, name="y")


ct.convert(program, convert_to="mlprogram", compute_precision=ct.precision.FLOAT32, minimum_deployment_target=ct.target.iOS16,
           inputs=[ct.TensorType("x", (2,)), ct.TensorType("c", (2,), default_value=np.full((2,), 2.5, np.float32))]).save(sys.argv[1])
