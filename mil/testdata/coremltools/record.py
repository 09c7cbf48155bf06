"""Records what coremltools says about MIL operations, for the tests of package mil.

    python record.py            # writes ops.json.gz beside this file

Two things are recorded, both with coremltools' own code and for the
operation sets of iOS 15 to iOS 18:

"specs": every registered operation and form of it: the parameters with
their kinds, element types, type variables, whether they must be constant
and whether they may be missing.

"records": small functions built with coremltools' builder: the operations,
the types and constant values of their operands (only those that were given;
the values that the builder filled in for the others are in "defaults") and
the types of the results. Records with "error" were refused by the builder.

Needs coremltools 9 and numpy. Nothing is random: the same versions give the
same file.
"""

import gzip
import inspect
import json
import os
import sys

import numpy as np

import coremltools as ct
from coremltools.converters.mil.mil import Builder as mb
from coremltools.converters.mil.mil import Function, types
from coremltools.converters.mil.mil.input_type import (
    InternalInputType, ListInputType, StateInputType, TensorInputType, TupleInputType,
)
from coremltools.converters.mil.mil.ops.registry import SSAOpRegistry
from coremltools.converters.mil.mil.types.symbolic import any_variadic, is_symbolic
from coremltools.converters.mil.mil import get_new_symbol

TARGETS = {"CoreML5": ct.target.iOS15, "CoreML6": ct.target.iOS16, "CoreML7": ct.target.iOS17, "CoreML8": ct.target.iOS18}
ALL = list(TARGETS)
SINCE6, SINCE7, SINCE8 = ALL[1:], ALL[2:], ALL[3:]

NP = {"fp16": np.float16, "fp32": np.float32, "int8": np.int8, "uint8": np.uint8, "int16": np.int16, "uint16": np.uint16,
      "int32": np.int32, "uint32": np.uint32, "bool": np.bool_}
MIL = {k: types.string_to_builtin(k) for k in NP}
for sub in ("int4", "uint1", "uint2", "uint3", "uint4", "uint6"):
    MIL[sub] = types.string_to_builtin(sub)
NAMES = {v: k for k, v in MIL.items()}
NAMES[types.str] = "string"
NAMES[types.int64] = "int64"
NAMES[types.double] = "fp64"

# --------------------------------------------------------------------------
# specs


def specs():
    out = {}
    for op, forms in sorted(SSAOpRegistry.core_ops.items()):
        seen = {}
        for opset, target in TARGETS.items():
            cls = forms.get(target)
            if cls is None:
                continue
            params = {}
            domains = getattr(cls, "type_domains", {})
            for name, p in cls.input_spec.input_types.items():
                if name.startswith("_"):
                    continue
                d = {"const": bool(p.const), "optional": bool(p.optional)}
                if isinstance(p, TensorInputType):
                    d["kind"] = "tensor"
                    dom = p.type_domain
                    if p.type_domain_id is not None:
                        d["group"] = p.type_domain_id
                        dom = domains[p.type_domain_id]
                        if inspect.isclass(dom):
                            dom = (dom,)
                    d["types"] = sorted(NAMES[t] for t in dom)
                elif isinstance(p, TupleInputType):
                    d["kind"] = "tuple"
                elif isinstance(p, ListInputType):
                    d["kind"] = "list"
                elif isinstance(p, StateInputType):
                    d["kind"] = "state"
                elif isinstance(p, InternalInputType):
                    continue
                else:
                    d["kind"] = "any"
                params[name] = d
            seen[opset] = params
        if seen:
            out[op] = seen
    return out


# --------------------------------------------------------------------------
# records

EXPLICIT = {}
_add_op = mb._add_op.__func__


def _spy(cls, op_cls, **kwargs):
    given = {k for k, v in kwargs.items() if v is not None}
    kwargs = cls._maybe_set_name(kwargs, op_cls.__name__)
    EXPLICIT[kwargs["name"]] = given
    return _add_op(cls, op_cls, **kwargs)


mb._add_op = classmethod(_spy)


def dims(shape):
    return [-1 if is_symbolic(d) else int(d) for d in shape]


def type_of(t):
    """A type as JSON: [dtype, dims...], with "state" or "list" in front of those."""
    if types.is_tensor(t):
        if any_variadic(t.get_shape()):
            return ["any-rank", NAMES[t.get_primitive()]]
        return [NAMES[t.get_primitive()]] + dims(t.get_shape())
    if types.is_state(t):
        return ["state"] + type_of(t.wrapped_type())
    if types.is_list(t):
        elem, length = t.T[0], t.T[1]
        return ["list", -1 if length is None or t.T[2] else int(length)] + type_of(elem)
    if types.is_dict(t):
        return ["dict"]
    return [NAMES[t]]


MAX_VALUES = 300


def const_of(v):
    """A constant: its type and, unless it is long, its values in row-major order."""
    out = {"t": type_of(v.sym_type)}
    val = v.val
    if types.is_list(v.sym_type):
        return {"t": ["list"]}
    if isinstance(val, str):
        out["v"] = [val]
        return out
    a = np.asarray(val)
    if a.size <= MAX_VALUES:
        if a.dtype == np.bool_:
            out["v"] = [bool(x) for x in a.reshape(-1)]
        elif a.dtype.kind in "iu":
            out["v"] = [int(x) for x in a.reshape(-1)]
        elif a.dtype.kind == "f":
            out["v"] = [float(x) if np.isfinite(x) else str(float(x)) for x in a.reshape(-1)]
        else:
            out["v"] = [str(x) for x in a.reshape(-1)]
    return out


def operand(v):
    if v.op is not None and v.op.op_type == "const":
        return const_of(v)
    return v.name


def args_of(op, names):
    out = {}
    for k, v in op.inputs.items():
        if k.startswith("_") or k not in names or v is None:
            continue
        vs = v if isinstance(v, (list, tuple)) else [v]
        out[k] = [operand(x) for x in vs]
    return out


def block_of(b):
    ops = []
    for op in b.operations:
        if op.op_type == "const":
            continue
        given = EXPLICIT.get(op.name, set())
        o = {"op": op.op_type, "args": args_of(op, given), "results": [[v.name] + [type_of(v.sym_type)] for v in op.outputs]}
        rest = args_of(op, {k for k in op.inputs if k not in given})
        if rest:
            o["defaults"] = {k: v[0] if len(v) == 1 else v for k, v in rest.items()}
        if op.blocks:
            o["blocks"] = [block_of(n) for n in op.blocks]
        ops.append(o)
    out = {"ops": ops}
    ins = [] if isinstance(b, Function) else list(b.inputs)
    if ins:
        out["inputs"] = [[v.name, type_of(v.sym_type)] for v in ins]
    # Outputs that are constants have no name here; they are left out.
    outs = [operand(v) for v in b.outputs]
    out["outputs"] = [v for v in outs]
    return out


class T:
    """A placeholder: a dtype and a shape, where "s" stands for a dimension known at run time only
    and another letter for one that all placeholders with it share."""

    shared = {}

    def __init__(self, dtype, *shape):
        self.dtype, self.shape = dtype, shape

    def spec(self):
        shape = tuple(d if not isinstance(d, str) else get_new_symbol() if d == "s" else T.shared.setdefault(d, get_new_symbol()) for d in self.shape)
        return mb.placeholder(shape, dtype=MIL[self.dtype], allow_rank0_input=True)


class State(T):
    def spec(self):
        return mb.state_tensor_placeholder(self.shape, dtype=MIL[self.dtype])


RECORDS = []
PROBLEMS = []
KEYS = set()


def run(opset, inputs, body, note=None, error=False):
    """Builds one function and records it."""
    mb.name_count.clear()
    EXPLICIT.clear()
    rec = {"opset": opset}
    if note:
        rec["note"] = note
    try:
        with Function({k: v.spec() for k, v in inputs.items()}, opset_version=TARGETS[opset]) as f:
            outs = body(**f.inputs)
            if not isinstance(outs, (list, tuple)):
                outs = [outs]
            f.set_outputs([o for o in outs if o is not None])
    except Exception as e:  # the builder says no
        if not error:
            PROBLEMS.append(f"{sys._getframe(2).f_lineno}: {opset} {note or ''}: {type(e).__name__}: {e}")
        return str(e)
    if error:
        PROBLEMS.append(f"{sys._getframe(2).f_lineno}: {opset} {note}: was not refused")
    rec["inputs"] = [[k, type_of(v.sym_type)] for k, v in f.inputs.items()]
    rec.update(block_of(f))
    key = json.dumps(rec, sort_keys=True)
    if key not in KEYS:
        KEYS.add(key)
        RECORDS.append(rec)


def split_args(kwargs):
    ins, consts, lists = {}, {}, {}
    for k, v in kwargs.items():
        if isinstance(v, T):
            ins[k] = v
        elif isinstance(v, (list, tuple)) and any(isinstance(x, T) for x in v):
            lists[k] = v
            for i, x in enumerate(v):
                if isinstance(x, T):
                    ins[f"{k}_{i}"] = x
        else:
            consts[k] = v
    return ins, consts, lists


def case(op, opsets, **kwargs):
    """One operation whose operands are placeholders (T) and constants."""
    ins, consts, lists = split_args(kwargs)

    def body(**vs):
        args = dict(consts)
        for k in ins:
            if k in kwargs:
                args[k] = vs[k]
        for k, l in lists.items():
            args[k] = [vs[f"{k}_{i}"] if isinstance(x, T) else x for i, x in enumerate(l)]
        out = getattr(mb, op)(**args)
        return list(out) if isinstance(out, (list, tuple)) else [out]

    for o in opsets:
        run(o, ins or {"unused": T("fp32", 1)}, body, note=None if ins else "constant operands")


def refused(op, opsets, why, **kwargs):
    """One operation that the builder must refuse. The operands are recorded as they are."""
    ins, consts, lists = split_args(kwargs)

    def body(**vs):
        args = dict(consts)
        for k in ins:
            if k in kwargs:
                args[k] = vs[k]
        for k, l in lists.items():
            args[k] = [vs[f"{k}_{i}"] if isinstance(x, T) else x for i, x in enumerate(l)]
        return getattr(mb, op)(**args)

    for o in opsets:
        msg = run(o, ins or {"unused": T("fp32", 1)}, body, note=f"{op}: {why}", error=True)
        args = {}
        for k, v in kwargs.items():
            vs = v if isinstance(v, (list, tuple)) and k in lists else [v]
            args[k] = []
            for i, x in enumerate(vs):
                if isinstance(x, T):
                    args[k].append(k if k in ins else f"{k}_{i}")
                else:
                    args[k].append(plain_const(x))
        RECORDS.append({"opset": o, "note": why, "error": True,
                        "inputs": [[k, [v.dtype] + [-1 if isinstance(d, str) else d for d in v.shape]] for k, v in ins.items()],
                        "ops": [{"op": op, "args": args, "results": []}], "outputs": []})


def plain_const(x):
    if isinstance(x, str):
        return {"t": ["string"], "v": [x]}
    if isinstance(x, bool):
        return {"t": ["bool"], "v": [x]}
    if isinstance(x, int):
        return {"t": ["int32"], "v": [x]}
    if isinstance(x, float):
        return {"t": ["fp32"], "v": [x]}
    a = np.asarray(x)
    if a.dtype == np.int64:
        a = a.astype(np.int32)
    if a.dtype == np.float64:
        a = a.astype(np.float32)
    name = {np.dtype(v): k for k, v in NP.items()}[a.dtype]
    conv = bool if name == "bool" else float if a.dtype.kind == "f" else int
    return {"t": [name] + list(a.shape), "v": [conv(v) for v in a.reshape(-1)]}


def sub(name, a):
    """An array of a sub-byte element type."""
    return np.asarray(a).astype(types.nptype_from_builtin(MIL[name]))


FLOATS = ("fp16", "fp32")
NUM = ("fp16", "fp32", "int32")
NUMB = NUM + ("bool",)
SMALL = ("int8", "uint8", "int16", "uint16")


def ramp(dtype, *shape):
    n = int(np.prod(shape))
    return (np.arange(n) % 7 + 1).reshape(shape).astype(NP[dtype])


def elementwise():
    for op in ("add", "sub", "mul", "real_div", "floor_div", "mod", "pow", "maximum", "minimum",
               "equal", "not_equal", "less", "less_equal", "greater", "greater_equal"):
        for d in NUM:
            case(op, ["CoreML5"], x=T(d, 2, 1, 3), y=T(d, 4, 1))
        case(op, ["CoreML8"], x=T("fp16", "s", 3), y=ramp("fp16", 1))
        case(op, ["CoreML7"], x=T("int32"), y=T("int32", 2, 3))
        case(op, ["CoreML6"], x=T("fp32", "s", 1), y=T("fp32", 1, "s"))
        refused(op, ["CoreML8"], "mixed element types", x=T("fp16", 2), y=T("fp32", 2))
        refused(op, ["CoreML8"], "shapes that do not broadcast", x=T("fp16", 2), y=T("fp16", 3))
        refused(op, ["CoreML5"], "an element type it does not take", x=T("bool", 2), y=T("bool", 2))
    for op in ("logical_and", "logical_or", "logical_xor"):
        case(op, ALL, x=T("bool", 2, 3), y=T("bool", 3))
        refused(op, ["CoreML8"], "numbers", x=T("int32", 2), y=T("int32", 2))
    case("logical_not", ALL, x=T("bool", 2, 3))
    for op in ("relu", "relu6", "silu", "sigmoid", "softplus", "softsign", "tanh", "exp", "sqrt", "erf", "sin", "cos", "tan",
               "asin", "acos", "atan", "sinh", "cosh", "atanh", "ceil", "floor", "round"):
        case(op, ["CoreML5"], x=T("fp16", 2, 3))
        case(op, ["CoreML8"], x=T("fp32", "s", 3))
        refused(op, ["CoreML8"], "integers", x=T("int32", 2))
    for op in ("abs", "exp2", "sign", "square"):
        for d in NUM:
            case(op, ["CoreML5", "CoreML8"], x=T(d, 2, 3))
        refused(op, ["CoreML8"], "bools", x=T("bool", 2))
    for op in ("log", "rsqrt", "inverse"):
        for d in FLOATS:
            case(op, ALL, x=T(d, 2, 3))
            case(op, ["CoreML5", "CoreML8"], x=T(d, 2, "s"), epsilon=NP[d](0.5))
        case(op, SINCE7, x=T("fp16", 2), epsilon=np.float32(0.5))
        refused(op, ["CoreML6"], "epsilon of another type", x=T("fp16", 2), epsilon=np.float32(0.5))
    for d in FLOATS:
        case("clip", ALL, x=T(d, 2, 3), alpha=NP[d](0), beta=NP[d](6))
    refused("clip", SINCE7, "empty interval", x=T("fp32", 2), alpha=np.float32(1), beta=np.float32(1))
    for d in NUM:
        case("threshold", ["CoreML5", "CoreML8"], x=T(d, 2, 3), alpha=NP[d](2))
    for src in NUMB:
        for dst in ("fp16", "fp32", "int32", "bool"):
            case("cast", ["CoreML5"], x=T(src, 2, 3), dtype=dst)
    for src in ("fp16", "int8", "uint8", "int16", "uint16", "int32", "bool"):
        for dst in ("int8", "uint8", "int16", "uint16"):
            case("cast", ["CoreML7"], x=T(src, "s", 3), dtype=dst)
        case("cast", ["CoreML8"], x=T(src), dtype="fp32")
    refused("cast", ["CoreML8"], "unknown type", x=T("fp16", 2), dtype="int5")
    refused("cast", ["CoreML5"], "int16 before iOS 17", x=T("int16", 2), dtype="fp16")
    for d in NUMB:
        case("select", ["CoreML5", "CoreML8"], cond=T("bool", 2, 1), a=T(d, 2, 3), b=T(d, 2, 3))
    case("select", ["CoreML8"], cond=T("bool", 2, 3), a=T("fp16", 2, 3), b=ramp("fp16", 2, 1))
    case("select", ["CoreML8"], cond=T("bool", "s", 3), a=T("fp16", "s", 3), b=np.float16(0))
    refused("select", ["CoreML8"], "mixed element types", cond=T("bool", 2), a=T("fp16", 2), b=T("fp32", 2))
    for mode in (None, "EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION"):
        case("gelu", ["CoreML5", "CoreML8"], x=T("fp16", 2, 3), mode=mode)
    refused("gelu", ["CoreML8"], "unknown mode", x=T("fp16", 2, 3), mode="ROUGH")
    case("identity", ALL, x=T("fp16", 2, "s"))
    case("identity", ALL, x=T("bool"))


def activations():
    for op in ("elu", "leaky_relu", "thresholded_relu"):
        for d in FLOATS:
            case(op, ALL, x=T(d, 2, 3), alpha=NP[d](0.5))
        case(op, SINCE7, x=T("fp16", 2, "s"), alpha=np.float32(0.5))
        refused(op, ["CoreML6"], "alpha of another type", x=T("fp16", 2), alpha=np.float32(0.5))
        refused(op, ["CoreML8"], "alpha is not constant", x=T("fp16", 2), alpha=T("fp16"))
    for op in ("clamped_relu", "linear_activation", "scaled_tanh", "sigmoid_hard"):
        for d in FLOATS:
            case(op, ALL, x=T(d, 2, 3), alpha=NP[d](0.5), beta=NP[d](2))
        case(op, SINCE7, x=T("fp16", 2, "s"), alpha=np.float32(0.5), beta=np.float32(0.25))
    for d in FLOATS:
        case("prelu", ALL, x=T(d, 1, 3, 4, 4), alpha=ramp(d, 3))
        case("prelu", ["CoreML5", "CoreML8"], x=T(d, 1, 3, "s"), alpha=np.full(3, 0.5, NP[d]))
        case("softplus_parametric", ALL, x=T(d, 1, 3, 4), alpha=ramp(d, 3), beta=ramp(d, 3))
    case("prelu", SINCE7, x=T("fp16", 1, 3, 4, 4), alpha=ramp("fp32", 3))
    case("softplus_parametric", SINCE7, x=T("fp16", 1, 3, 4, "s"), alpha=ramp("fp32", 3), beta=ramp("fp32", 3))
    refused("prelu", ["CoreML8"], "rank", x=T("fp16", 3, 3), alpha=ramp("fp16", 3))
    refused("prelu", ["CoreML8"], "channels", x=T("fp16", 1, 3, 4, 4), alpha=ramp("fp16", 4))
    refused("softplus_parametric", ["CoreML8"], "channels", x=T("fp16", 1, 3, 4), alpha=ramp("fp16", 4), beta=ramp("fp16", 4))
    for d in FLOATS:
        case("softmax", ALL, x=T(d, 2, 3))
        case("softmax", ["CoreML8"], x=T(d, 2, "s"), axis=0)


def linear_algebra():
    for d in NUM:
        case("matmul", ["CoreML5", "CoreML8"], x=T(d, 2, 3), y=T(d, 3, 4))
        case("matmul", ["CoreML7"], x=T(d, 5, 1, 3, 2), y=T(d, 4, 2, 6))
    case("matmul", ALL, x=T("fp16", 1, 4, 1, 32), y=T("fp16", 1, 4, 256, 32), transpose_y=True)
    case("matmul", ALL, x=T("fp16", 4, "s", 8), y=T("fp16", 4, "s", 16), transpose_x=True)
    case("matmul", ALL, x=T("fp16", 8), y=T("fp16", 8, 5))
    case("matmul", ALL, x=T("fp16", "s", 8), y=ramp("fp16", 8, 5))
    case("matmul", SINCE7, x=T("fp16", 2, 3), y=ramp("fp32", 3, 4))
    case("matmul", SINCE7, x=ramp("fp32", 2, 3), y=T("fp16", 3, 4))
    case("matmul", SINCE7, x=T("int32", 2, 3), y=ramp("fp32", 3, 4))
    refused("matmul", ["CoreML6"], "mixed element types", x=T("fp16", 2, 3), y=ramp("fp32", 3, 4))
    refused("matmul", ["CoreML8"], "mixed element types", x=T("fp16", 2, 3), y=T("fp32", 3, 4))
    refused("matmul", ["CoreML8"], "inner dimensions", x=T("fp16", 2, 3), y=T("fp16", 4, 4))
    refused("matmul", ["CoreML8"], "batches", x=T("fp16", 2, 2, 3), y=T("fp16", 3, 3, 4))
    refused("matmul", ["CoreML8"], "transposed vector", x=T("fp16", 3), y=T("fp16", 3, 4), transpose_x=True)
    for d in NUM:
        case("linear", ["CoreML5", "CoreML8"], x=T(d, 2, 3), weight=ramp(d, 4, 3), bias=ramp(d, 4))
    case("linear", ALL, x=T("fp16", 5, "s", 3), weight=ramp("fp16", 4, 3))
    case("linear", ALL, x=T("fp16", 3), weight=ramp("fp16", 4, 3))
    case("linear", SINCE7, x=T("fp16", 2, 3), weight=ramp("fp32", 4, 3), bias=ramp("fp32", 4))
    refused("linear", ["CoreML6"], "mixed element types", x=T("fp16", 2, 3), weight=ramp("fp32", 4, 3))
    refused("linear", ["CoreML8"], "inner dimension", x=T("fp16", 2, 3), weight=ramp("fp16", 4, 5))
    refused("linear", ["CoreML8"], "bias", x=T("fp16", 2, 3), weight=ramp("fp16", 4, 3), bias=ramp("fp16", 3))
    refused("linear", ["CoreML8"], "weight is not constant", x=T("fp16", 2, 3), weight=T("fp16", 4, 3))
    for d in FLOATS:
        case("einsum", ALL, values=(T(d, 2, 3, 5, 4), T(d, 2, 4, 5, 6)), equation="nchw,nwhr->nchr")
        case("einsum", ["CoreML5", "CoreML8"], values=(T(d, 2, 3, 5, 4), T(d, 1, 4, 1, 6)), equation="bcqk,bkqv->bcqv")
        case("einsum", ["CoreML5", "CoreML8"], values=(T(d, 3, 5, 4), T(d, 4, 5, 6)), equation="chw,whr->chr")
        case("einsum", ["CoreML8"], values=(T(d, "n", 3, 5, 4), T(d, "n", 4, 5, 6)), equation="nchw,nwhr->nchr")
    refused("einsum", ["CoreML8"], "equation", values=(T("fp16", 2, 3), T("fp16", 3, 4)), equation="ab,bc->ac")
    for d in FLOATS:
        case("scaled_dot_product_attention", SINCE8, query=T(d, 1, 4, 3, 8), key=T(d, 1, 4, 5, 8), value=T(d, 1, 4, 5, 6))
        case("scaled_dot_product_attention", SINCE8, query=T(d, 4, "s", 8), key=T(d, 4, "s", 8), value=T(d, 4, "s", 6), attn_mask=T("bool", "s", "s"))
        case("scaled_dot_product_attention", SINCE8, query=T(d, 1, 4, 3, 8), key=T(d, 1, 4, 5, 8), value=T(d, 1, 4, 5, 8), attn_mask=T(d, 1, 1, 3, 5))
    refused("scaled_dot_product_attention", SINCE8, "embedding", query=T("fp16", 4, 3, 8), key=T("fp16", 4, 5, 7), value=T("fp16", 4, 5, 8))
    refused("scaled_dot_product_attention", SINCE8, "batch", query=T("fp16", 4, 3, 8), key=T("fp16", 2, 5, 8), value=T("fp16", 2, 5, 8))
    refused("scaled_dot_product_attention", SINCE8, "mask", query=T("fp16", 4, 3, 8), key=T("fp16", 4, 5, 8), value=T("fp16", 4, 5, 8), attn_mask=T("fp16", 3, 4))
    refused("scaled_dot_product_attention", ["CoreML7"], "before iOS 18", query=T("fp16", 4, 3, 8), key=T("fp16", 4, 5, 8), value=T("fp16", 4, 5, 8))


def convolutions():
    for d in FLOATS:
        case("conv", ALL, x=T(d, 1, 6, 10, 11), weight=ramp(d, 8, 6, 3, 2))
        case("conv", ["CoreML5", "CoreML8"], x=T(d, 1, 6, 10), weight=ramp(d, 8, 3, 3), bias=ramp(d, 8), strides=[2], pad_type="same", dilations=[2], groups=2)
        case("conv", ["CoreML5", "CoreML8"], x=T(d, 1, 2, 7, 8, 9), weight=ramp(d, 4, 2, 3, 3, 3), pad_type="custom", pad=[1, 0, 2, 1, 0, 1], strides=[1, 2, 3])
    case("conv", ALL, x=T("fp16", "s", 4, "s", 9), weight=ramp("fp16", 4, 1, 3, 3), groups=4, pad_type="custom", pad=[1, 1, 1, 1])
    case("conv", ALL, x=T("fp16", 1, 4, 9, 9), weight=T("fp16", 4, 4, 3, 3), pad_type="valid")
    case("conv", SINCE6, x=T("fp16", 1, 4, 9, 9), weight=ramp("fp16", 4, 4, 3, 3), pad_type="same_lower", strides=[2, 2])
    case("conv", SINCE7, x=T("fp16", 1, 4, 9, 9), weight=ramp("fp32", 4, 4, 3, 3), bias=ramp("fp32", 4))
    case("conv", SINCE7, x=T("fp16", 1, 4, 9, 9), weight=ramp("fp16", 4, 4, 3, 3), bias=T("fp16", 4))
    refused("conv", ["CoreML5"], "same_lower before iOS 16", x=T("fp16", 1, 4, 9, 9), weight=ramp("fp16", 4, 4, 3, 3), pad_type="same_lower")
    refused("conv", ["CoreML6"], "mixed element types", x=T("fp16", 1, 4, 9, 9), weight=ramp("fp32", 4, 4, 3, 3))
    refused("conv", ["CoreML8"], "kernel too large", x=T("fp16", 1, 4, 9, 9), weight=ramp("fp16", 4, 4, 10, 3))
    refused("conv", ["CoreML8"], "channels", x=T("fp16", 1, 5, 9, 9), weight=ramp("fp16", 4, 4, 3, 3))
    refused("conv", ["CoreML8"], "bias", x=T("fp16", 1, 4, 9, 9), weight=ramp("fp16", 4, 4, 3, 3), bias=ramp("fp16", 5))
    refused("conv", ["CoreML8"], "dilated dynamic weight", x=T("fp16", 1, 4, 9, 9), weight=T("fp16", 4, 4, 3, 3), dilations=[2, 2])
    for d in FLOATS:
        case("conv_transpose", ALL, x=T(d, 1, 6, 5, 4), weight=ramp(d, 6, 8, 3, 2))
        case("conv_transpose", ["CoreML5", "CoreML8"], x=T(d, 1, 6, 5), weight=ramp(d, 6, 4, 3), bias=ramp(d, 8), groups=2, strides=[3], pad_type="same")
        case("conv_transpose", ["CoreML5", "CoreML8"], x=T(d, 1, 6, 5, 4), weight=ramp(d, 6, 8, 3, 3), pad_type="custom", pad=[1, 0, 1, 1], strides=[2, 2], dilations=[2, 1])
    case("conv_transpose", ALL, x=T("fp16", 1, 6, 5, 4), weight=ramp("fp16", 6, 8, 3, 3), strides=[2, 2], output_shape=[1, 8, 12, 9])
    case("conv_transpose", ALL, x=T("fp16", 1, 2, 3, 4, 5), weight=ramp("fp16", 2, 2, 2, 2, 2))
    case("conv_transpose", SINCE7, x=T("fp16", 1, 6, 5, 4), weight=T("fp16", 6, 8, 3, 2), bias=ramp("fp16", 8))
    case("conv_transpose", SINCE7, x=T("fp16", 1, 6, 5, 4), weight=ramp("fp32", 6, 8, 3, 2))
    refused("conv_transpose", ["CoreML5"], "weight is not constant", x=T("fp16", 1, 6, 5, 4), weight=T("fp16", 6, 8, 3, 2))
    for op in ("avg_pool", "max_pool", "l2_pool"):
        for d in FLOATS:
            case(op, ALL, x=T(d, 1, 3, 10, 11), kernel_sizes=[3, 2], pad_type="valid")
            case(op, ["CoreML5", "CoreML8"], x=T(d, 1, 3, 10), kernel_sizes=[3], strides=[2], pad_type="same")
        case(op, ["CoreML5", "CoreML8"], x=T("fp16", 1, 3, 10, "s"), kernel_sizes=[3, 3], strides=[2, 2], pad_type="custom", pad=[1, 1, 1, 1])
        case(op, ["CoreML5", "CoreML8"], x=T("fp16", 1, 3, 10, 7), kernel_sizes=[3, 3], strides=[2, 2], pad_type="custom", pad=[1, 1, 1, 1], ceil_mode=True)
        case(op, ["CoreML8"], x=T("fp16", 1, 3, 11, 8), kernel_sizes=[2, 3], strides=[3, 2], pad_type="valid", ceil_mode=True)
        case(op, SINCE6, x=T("fp16", 1, 3, 10, 7), kernel_sizes=[3, 3], strides=[2, 2], pad_type="same_lower")
        refused(op, ["CoreML5"], "same_lower before iOS 16", x=T("fp16", 1, 3, 10, 7), kernel_sizes=[3, 3], strides=[2, 2], pad_type="same_lower")
        refused(op, ["CoreML8"], "ceil_mode with same", x=T("fp16", 1, 3, 10, 7), kernel_sizes=[3, 3], pad_type="same", ceil_mode=True)
        refused(op, ["CoreML8"], "ceil_mode with asymmetric padding", x=T("fp16", 1, 3, 10, 7), kernel_sizes=[3, 3], pad_type="custom", pad=[1, 0, 1, 1], ceil_mode=True)
        refused(op, ["CoreML8"], "kernel too large", x=T("fp16", 1, 3, 10, 7), kernel_sizes=[3, 8], pad_type="valid")
        refused(op, ["CoreML8"], "kernel of the wrong rank", x=T("fp16", 1, 3, 10, 7), kernel_sizes=[3], pad_type="valid")
    for op in ("avg_pool", "max_pool"):
        case(op, ["CoreML5", "CoreML8"], x=T("fp16", 1, 3, 5, 6, 7), kernel_sizes=[2, 2, 2], pad_type="valid")
    case("avg_pool", ALL, x=T("fp16", 1, 3, 5, 6), kernel_sizes=[2, 2], pad_type="same", exclude_padding_from_average=True)
    refused("l2_pool", ["CoreML8"], "rank", x=T("fp16", 1, 3, 5, 6, 7), kernel_sizes=[2, 2, 2], pad_type="valid")


def normalizations():
    for d in FLOATS:
        case("batch_norm", ALL, x=T(d, 2, 3, 4), mean=ramp(d, 3), variance=ramp(d, 3))
        case("batch_norm", ["CoreML5", "CoreML8"], x=T(d, 2, 3, 4, "s"), mean=ramp(d, 3), variance=ramp(d, 3), gamma=ramp(d, 3), beta=ramp(d, 3), epsilon=NP[d](0.5))
        case("instance_norm", ALL, x=T(d, 2, 3, 4, 5))
        case("instance_norm", ["CoreML5", "CoreML8"], x=T(d, 2, 3, 4), gamma=ramp(d, 3), beta=ramp(d, 3), epsilon=NP[d](0.5))
        case("l2_norm", ALL, x=T(d, 2, 3, 4))
        case("l2_norm", ["CoreML8"], x=T(d, 2, 3, 4, 5), epsilon=NP[d](0.5))
        case("layer_norm", ALL, x=T(d, 2, 3, 4), axes=[0, 1, 2])  # the builder fails without axes
        case("layer_norm", ALL, x=T(d, "s", 3, 4), axes=[-1], gamma=ramp(d, 4), beta=ramp(d, 4))
        case("layer_norm", ["CoreML5", "CoreML8"], x=T(d, 2, 3, 4), axes=[1, 2], gamma=ramp(d, 3, 4), epsilon=NP[d](0.5))
        case("local_response_norm", ALL, x=T(d, 2, 3, 4), size=2)
        case("local_response_norm", ["CoreML8"], x=T(d, 2, 3, 4, 5), size=3, alpha=NP[d](0.5), beta=NP[d](0.5), k=NP[d](2))
    for op, more in (("batch_norm", dict(mean=ramp("fp32", 3), variance=ramp("fp32", 3))), ("instance_norm", dict(gamma=ramp("fp32", 3), beta=ramp("fp32", 3))),
                     ("l2_norm", dict(epsilon=np.float32(0.5))), ("layer_norm", dict(axes=[2], gamma=ramp("fp32", 4))), ("local_response_norm", dict(size=2, k=np.float32(2)))):
        case(op, SINCE7, x=T("fp16", 2, 3, 4), **more)
        refused(op, ["CoreML6"], "mixed element types", x=T("fp16", 2, 3, 4), **more)
    refused("l2_norm", ["CoreML8"], "rank", x=T("fp16", 2, 3))
    refused("layer_norm", ["CoreML8"], "axes", x=T("fp16", 2, 3), axes=[2])
    refused("layer_norm", ["CoreML8"], "gamma", x=T("fp16", 2, 3), axes=[1], gamma=ramp("fp16", 4))


def reductions():
    for op in ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod", "reduce_sum_square", "reduce_l1_norm",
               "reduce_l2_norm", "reduce_log_sum", "reduce_log_sum_exp"):
        for d in NUM:
            case(op, ["CoreML5"], x=T(d, 2, 3, 4), axes=[0, -1])
        case(op, ["CoreML8"], x=T("fp16", 2, 3, 4))
        case(op, ["CoreML8"], x=T("fp16", 2, "s", 4), axes=[1], keep_dims=True)
        case(op, ["CoreML7"], x=T("fp32", 2, "s", 4), axes=[2])
        refused(op, ["CoreML8"], "axis", x=T("fp16", 2, 3), axes=[2])
    for op in ("reduce_argmax", "reduce_argmin"):
        for d in NUM:
            case(op, ALL, x=T(d, 2, 3, 4))
        case(op, ["CoreML5", "CoreML8"], x=T("fp16", 2, "s", 4), axis=1, keep_dims=True)
        case(op, SINCE7, x=T("fp16", 2, 3), axis=0, output_dtype="uint16")
        refused(op, ["CoreML8"], "output type", x=T("fp16", 2, 3), output_dtype="int8")
        refused(op, ["CoreML6"], "output_dtype before iOS 17", x=T("fp16", 2, 3), output_dtype="int32")
    for d in NUM:
        case("cumsum", ["CoreML5", "CoreML8"], x=T(d, 2, 3))
        case("argsort", ["CoreML5", "CoreML8"], x=T(d, 2, 3))
        case("topk", ALL, x=T(d, 2, 9), k=3)
    case("cumsum", ["CoreML8"], x=T("fp16", 2, "s"), axis=1, exclusive=True, reverse=True)
    case("cumsum", ["CoreML8"], x=T("fp16", 2, 3), axis=-1)
    refused("cumsum", ["CoreML8"], "axis", x=T("fp16", 2, 3), axis=2)
    case("argsort", ["CoreML8"], x=T("fp16", 2, "s"), axis=0, ascending=True)
    case("topk", ALL, x=T("fp16", 2, 9))
    case("topk", ALL, x=T("fp16", 4, "s"), k=2, axis=0, ascending=True)
    case("topk", SINCE6, x=T("fp16", 4, "s"), k=2, sort=False)
    case("topk", SINCE6, x=T("fp16", 4, 7), k=2, return_indices=False)
    case("topk", SINCE7, x=T("fp16", 4, 7), k=np.int16(2), output_indices_dtype="uint16")
    for d in SMALL:
        case("topk", SINCE7, x=T(d, 4, 7), k=np.int8(2))
    refused("topk", ["CoreML8"], "k too large", x=T("fp16", 2, 3), k=4)
    refused("topk", ["CoreML5"], "sort before iOS 16", x=T("fp16", 2, 3), sort=False)
    refused("topk", ["CoreML8"], "indices type", x=T("fp16", 2, 3), output_indices_dtype="int8")
    refused("topk", ["CoreML8"], "type of indices not returned", x=T("fp16", 2, 3), return_indices=False, output_indices_dtype="int32")


def shapes():
    for d in NUMB:
        case("reshape", ["CoreML5"], x=T(d, 2, 6), shape=[3, 4])
    for d in SMALL:
        for op, more in (("reshape", dict(shape=[3, 4])), ("transpose", dict(perm=[1, 0])), ("expand_dims", dict(axes=[0])), ("reverse", dict(axes=[0])),
                         ("slice_by_size", dict(begin=[0, 1], size=[2, 3])), ("slice_by_index", dict(begin=[0, 1], end=[2, 3])), ("squeeze", {}),
                         ("reverse_sequence", dict(lengths=np.int32([2, 3]), seq_axis=1)), ("sliding_windows", dict(axis=1, size=2))):
            case(op, ["CoreML7"], x=T(d, 2, 6), **more)
            refused(op, ["CoreML6"], "small integers before iOS 17", x=T(d, 2, 6), **more)
    for s in ([3, 4], [-1, 2], [2, 2, 3], [12], [1, -1, 1]):
        case("reshape", ["CoreML5", "CoreML8"], x=T("fp16", 2, 6), shape=s)
    case("reshape", ["CoreML5", "CoreML8"], x=T("fp16", 2, 6), shape=[0, 6])
    case("reshape", ["CoreML5", "CoreML8"], x=T("fp16", 2, 6), shape=[0, -1])
    case("reshape", ["CoreML5", "CoreML8"], x=T("fp16", 2, 6, 5), shape=[0, 0, -1])
    case("reshape", SINCE7, x=T("fp16", 2, 50), shape=[1, 0, -1, 0])
    case("reshape", SINCE7, x=T("fp16", 2, 3, 4), shape=[-1, 0])
    case("reshape", SINCE7, x=T("fp16", 2, 6), shape=np.int16([3, 4]))
    case("reshape", ["CoreML5", "CoreML8"], x=T("fp16", 2, "s", 4), shape=[-1, 8])
    case("reshape", ["CoreML5", "CoreML8"], x=T("fp16", 2, "s", 4), shape=[2, -1, 2, 2])
    case("reshape", ["CoreML5", "CoreML8"], x=T("fp16", 2, 6), shape=T("int32", 3))
    case("reshape", ["CoreML8"], x=T("fp16", 1, 1), shape=np.zeros([0], np.int32))
    refused("reshape", ["CoreML5", "CoreML6"], "zero with another rank", x=T("fp16", 2, 50), shape=[1, 0, -1, 0])
    refused("reshape", ["CoreML8"], "count", x=T("fp16", 2, 6), shape=[5, 2])
    refused("reshape", ["CoreML8"], "remainder", x=T("fp16", 2, 6), shape=[5, -1])
    refused("reshape", ["CoreML8"], "two open dimensions", x=T("fp16", 2, 6), shape=[-1, -1])
    refused("reshape", ["CoreML6"], "shape is int16", x=T("fp16", 2, 6), shape=np.int16([3, 4]))
    for o, d in (("CoreML6", "fp16"), ("CoreML7", "fp32"), ("CoreML8", "int32"), ("CoreML8", "int8")):
        case("reshape_like", [o], x=T(d, 6, 4), ref_tensors=(T("fp16", 2, 3), T("fp32", 5, 4)), begins=(0, 1), ends=(2, 2), end_masks=(False, True))
    case("reshape_like", ["CoreML8"], x=T("fp16", 6, 4), ref_tensors=(T("bool", 9, 24),), begins=(1,), ends=(0,), end_masks=(True,))
    refused("reshape_like", ["CoreML8"], "count", x=T("fp16", 6, 4), ref_tensors=(T("fp16", 2, 3),), begins=(0,), ends=(2,), end_masks=(False,))
    for d in NUMB:
        case("transpose", ["CoreML5", "CoreML8"], x=T(d, 2, 3, 4), perm=[2, 0, 1])
        case("expand_dims", ["CoreML5", "CoreML8"], x=T(d, 2, 3), axes=[0, -1])
        case("squeeze", ["CoreML5", "CoreML8"], x=T(d, 1, 2, 1), axes=[0])
        case("tile", ["CoreML5", "CoreML8"], x=T(d, 1, 2), reps=[3, 2])
        case("reverse", ["CoreML5", "CoreML8"], x=T(d, 1, 2))
        case("flatten2d", ["CoreML5", "CoreML8"], x=T(d, 2, 3, 4))
        case("band_part", ["CoreML5", "CoreML8"], x=T(d, 3, 4))
        case("shape", ["CoreML5", "CoreML8"], x=T(d, 3, 4))
        case("non_zero", ["CoreML5", "CoreML8"], x=T(d, 3, 4))
        case("fill", ["CoreML5", "CoreML8"], shape=[2, 3], value=NP[d](1))
        case("fill_like", SINCE6, ref_tensor=T("int32", 2, "s"), value=NP[d](1))
        case("stack", ["CoreML5", "CoreML8"], values=(T(d, 2, 3), T(d, 2, 3)), axis=1)
        case("concat", ["CoreML5", "CoreML8"], values=(T(d, 2, 3), T(d, 2, 4)), axis=1)
        case("split", ["CoreML5", "CoreML8"], x=T(d, 2, 6), num_splits=3, axis=1)
        case("reverse_sequence", ["CoreML5", "CoreML8"], x=T(d, 2, 6), lengths=T("int32", 2), seq_axis=1, batch_axis=0)
    case("transpose", ["CoreML8"], x=T("fp16", "s", 3, 4), perm=[-1, 0, 1])
    case("expand_dims", ["CoreML8"], x=T("fp16", "s"), axes=[1, 2])
    case("expand_dims", ["CoreML8"], x=T("fp16"), axes=[0])
    case("squeeze", ["CoreML5", "CoreML8"], x=T("fp16", 1, 2, 1))
    case("squeeze", ["CoreML8"], x=T("fp16", 1, 1))
    case("squeeze", ["CoreML8"], x=T("fp16", "s", 2, 1), axes=[-1])
    case("tile", ["CoreML8"], x=T("fp16", "s", 2), reps=[1, 2])
    case("tile", ["CoreML8"], x=T("fp16", "s", 2), reps=[2, 2])
    case("tile", ["CoreML8"], x=T("fp16", 3, 2), reps=T("int32", 2))
    case("flatten2d", ["CoreML8"], x=T("fp16", 2, 3, 4), axis=-1)
    case("flatten2d", ["CoreML8"], x=T("fp16", 2, 3, 4), axis=0)
    case("band_part", ["CoreML8"], x=T("fp16", 3, "s"), lower=0, upper=-1)
    case("fill", ["CoreML5", "CoreML8"], shape=[2, 3])
    case("fill", ["CoreML8"], shape=T("int32", 3))
    case("fill_like", SINCE6, ref_tensor=T("fp16", 2, 3))
    case("stack", ["CoreML8"], values=(T("fp16", "s", 3), T("fp16", 2, 3), T("fp16", 2, 3)), axis=-1)
    case("stack", ["CoreML8"], values=(T("int32"), T("int32")), axis=0)
    case("concat", ["CoreML8"], values=(T("int32"), T("int32"), T("int32")), axis=0)
    case("concat", ["CoreML8"], values=(T("fp16", "s", 3), T("fp16", 2, 3)), axis=0)
    case("concat", ["CoreML8"], values=(T("fp16", "s", 3), T("fp16", 2, 3)), axis=-1)
    case("concat", ["CoreML8"], values=(T("fp16", 2, 3), T("fp16", 2, 3)), axis=1, interleave=True)
    case("split", ["CoreML5", "CoreML8"], x=T("fp16", 2, 6), split_sizes=[1, 2, 3], axis=-1)
    case("split", ["CoreML8"], x=T("fp16", "s", 6), split_sizes=[2, 4], num_splits=2, axis=1)
    case("split", ["CoreML8"], x=T("fp16", 2, "s"), split_sizes=[2, 4], axis=1)
    case("pad", ["CoreML5", "CoreML8"], x=T("fp16", 2, 3), pad=[1, 2])
    case("pad", ["CoreML5", "CoreML8"], x=T("fp32", 2, 3), pad=[1, 2, 3, 4], constant_val=np.float32(7))
    case("pad", ["CoreML8"], x=T("fp16", "s", 3), pad=[1, 2, 0, 0], mode="reflect")
    case("pad", ["CoreML8"], x=T("fp16", 1, 2, 3, 4, 5), pad=[0, 0, 0, 0, 1, 1, 2, 2, 3, 3], mode="replicate")
    case("pad", ["CoreML8"], x=T("fp16", 2, 3), pad=T("int32", 4))
    refused("pad", ["CoreML8"], "integers", x=T("int32", 2, 3), pad=[1, 2])
    refused("pad", ["CoreML8"], "mode", x=T("fp16", 2, 3), pad=[1, 2], mode="wrap")
    refused("pad", ["CoreML8"], "odd", x=T("fp16", 2, 3), pad=[1, 2, 3])
    refused("pad", ["CoreML8"], "negative", x=T("fp16", 2, 3), pad=[1, -2])
    refused("pad", ["CoreML8"], "too many", x=T("fp16", 2, 3), pad=[1, 2, 3, 4, 5, 6])
    for d in NUM:
        case("range_1d", ["CoreML5", "CoreML8"], start=NP[d](1), end=NP[d](8), step=NP[d](3))
        case("range_1d", ["CoreML5", "CoreML8"], start=T(d), end=NP[d](8), step=NP[d](1))
    case("range_1d", ["CoreML8"], start=np.float32(0), end=np.float32(1), step=np.float32(0.25))
    case("range_1d", ["CoreML8"], start=np.int32(5), end=np.int32(-2), step=np.int32(-3))
    refused("range_1d", ["CoreML8"], "mixed element types", start=np.float32(0), end=np.int32(1), step=np.float32(1))
    for d in NUMB:
        case("one_hot", ["CoreML5", "CoreML8"], indices=T("int32", 2, 3), one_hot_vector_size=5, on_value=NP[d](1), off_value=NP[d](0))
    case("one_hot", ["CoreML5", "CoreML8"], indices=T("int32", 2, 3), one_hot_vector_size=5)
    case("one_hot", ["CoreML8"], indices=T("int32", 2, "s"), one_hot_vector_size=5, axis=0)
    case("one_hot", ["CoreML8"], indices=T("int32", 2, 3), one_hot_vector_size=5, axis=-2)
    case("one_hot", ["CoreML8"], indices=T("int32", 2), one_hot_vector_size=T("int32"))
    refused("one_hot", ["CoreML8"], "axis", indices=T("int32", 2), one_hot_vector_size=5, axis=2)
    refused("one_hot", ["CoreML8"], "size", indices=T("int32", 2), one_hot_vector_size=-5)
    case("non_zero", ["CoreML8"], x=T("fp16", 3, "s"))
    for d in NUM:
        case("sliding_windows", ["CoreML5", "CoreML8"], x=T(d, 2, 9), axis=1, size=4)
    case("sliding_windows", ["CoreML8"], x=T("fp16", 2, 9, 3), axis=-2, size=4, stride=2)
    case("sliding_windows", ["CoreML8"], x=T("fp16", 2, "s", 3), axis=1, size=4)
    for d in FLOATS:
        case("depth_to_space", ["CoreML5", "CoreML8"], x=T(d, 1, 8, 2, 3), block_size=2)
        case("space_to_depth", ["CoreML5", "CoreML8"], x=T(d, 1, 2, 4, 6), block_size=2)
        case("pixel_shuffle", ["CoreML5", "CoreML8"], x=T(d, 1, 9, 2, 3), upscale_factor=3)
        case("pixel_unshuffle", SINCE6, x=T(d, 1, 2, 6, 9), downscale_factor=np.uint32(3))
        case("space_to_batch", ["CoreML5", "CoreML8"], x=T(d, 2, 3, 4, 6), block_shape=[2, 3], paddings=[[0, 0], [1, 2]])
        case("batch_to_space", ["CoreML5", "CoreML8"], x=T(d, 12, 3, 2, 3), block_shape=[2, 3], crops=[[0, 0], [1, 2]])
    case("space_to_batch", ["CoreML8"], x=T("fp16", "s", 3, 4, 6), block_shape=[2, 2], paddings=[[1, 1], [0, 0]])
    case("batch_to_space", ["CoreML8"], x=T("fp16", 8, 3, 4, "s"), block_shape=[2, 2], crops=[[1, 1], [0, 0]])
    refused("batch_to_space", ["CoreML8"], "batch", x=T("fp16", 7, 3, 4, 6), block_shape=[2, 2], crops=[[1, 1], [0, 0]])
    refused("space_to_batch", ["CoreML8"], "rank", x=T("fp16", 7, 3, 4), block_shape=[2, 2], paddings=[[1, 1], [0, 0]])


def indexing():
    b = dict(begin=[1, 0, 2], end=[2, 3, 4])
    for d in NUMB:
        case("slice_by_index", ["CoreML5", "CoreML8"], x=T(d, 2, 3, 4), **b)
        case("slice_by_size", ["CoreML5", "CoreML8"], x=T(d, 2, 3, 4), begin=[0, 1, 0], size=[1, -1, 2])
    x = T("fp16", 2, 3, 4)
    case("slice_by_index", ALL, x=x, begin=[0, 0, 3], end=[2, 3, 0], stride=[1, 2, -1], end_mask=[False, True, True])
    case("slice_by_index", ALL, x=x, begin=[-1, 0, -3], end=[2, -1, -1], squeeze_mask=[True, False, False])
    case("slice_by_index", ALL, x=x, begin=[0, 1, 2], end=[0, 0, 0], begin_mask=[True, False, False], end_mask=[True, True, True])
    case("slice_by_index", ALL, x=x, begin=[0, 1, 2], end=[1, 2, 3], squeeze_mask=[True, True, True])
    case("slice_by_index", ALL, x=x, begin=T("int32", 3), end=[2, 3, 4])
    case("slice_by_index", ALL, x=x, begin=T("int32", 3), end=T("int32", 3), begin_mask=[True, False, False], end_mask=[True, False, True], squeeze_mask=[False, True, False])
    y = T("fp16", "s", 3, "s")
    case("slice_by_index", ALL, x=y, begin=[0, 0, 1], end=[1, 3, 2], end_mask=[False, True, False])
    case("slice_by_index", ALL, x=y, begin=[-1, 0, 0], end=[0, 3, 0], begin_mask=[False, False, True], end_mask=[True, True, True])
    case("slice_by_index", ALL, x=y, begin=[2, 0, 0], end=[5, 3, 7], stride=[1, 1, 3])
    case("slice_by_index", ALL, x=y, begin=[-1, 0, -1], end=[-2, 3, -4], stride=[-1, 1, -1])
    case("slice_by_index", ALL, x=y, begin=[3, 0, 0], end=[3, 3, 0], stride=[1, 1, -1], end_mask=[False, False, True])
    case("slice_by_index", ALL, x=T("fp16", 1, 3), begin=T("int32", 2), end=T("int32", 2))
    case("slice_by_index", ALL, x=T("fp16", 5, 3), begin=[-2, 1], end=T("int32", 2), end_mask=[True, False])
    case("slice_by_index", SINCE7, x=x, begin=np.int8([1, 0, 2]), end=np.int8([2, 3, 4]), stride=np.int8([1, 1, 2]))
    case("slice_by_index", SINCE7, x=x, begin=np.int16([1, 0, 2]), end=np.int16([2, 3, 4]))
    refused("slice_by_index", ["CoreML8"], "begin of another type than end", x=x, begin=np.int16([1, 0, 2]), end=np.int32([2, 3, 4]))
    refused("slice_by_index", ["CoreML6"], "begin is int16", x=x, begin=np.int16([1, 0, 2]), end=np.int16([2, 3, 4]))
    refused("slice_by_index", ["CoreML8"], "length of begin", x=x, begin=[1, 0], end=[2, 3, 4])
    refused("slice_by_index", ["CoreML8"], "stride is not constant", x=x, begin=[1, 0, 1], end=[2, 3, 4], stride=T("int32", 3))
    case("slice_by_size", ["CoreML8"], x=T("fp16", "s", 3, 4), begin=[0, 1, 0], size=[2, 1, -1])
    case("slice_by_size", ["CoreML8"], x=x, begin=T("int32", 3), size=[2, 1, 2])
    case("slice_by_size", ["CoreML8"], x=x, begin=T("int32", 3), size=[-1, 1, 2])
    case("slice_by_size", ["CoreML8"], x=x, begin=[0, 0, 0], size=T("int32", 3))
    case("slice_by_size", ["CoreML8"], x=x, begin=np.int16([0, 0, 0]), size=np.int16([1, 1, 1]))
    refused("slice_by_size", ["CoreML8"], "length", x=x, begin=[0, 0], size=[1, 1])
    for d in NUMB + SMALL:
        case("slice_update", SINCE8, x=T(d, 2, 3, 4), update=T(d, 1, 3, 2), **b)
    case("slice_update", SINCE8, x=x, update=T("fp16", 3, 2), begin=[1, 0, 0], end=[2, 3, 4], stride=[1, 1, 2], squeeze_mask=[True, False, False])
    case("slice_update", SINCE8, x=x, update=T("fp16", "s", "s", 4), begin=T("int32", 3), end=T("int32", 3), begin_mask=[False, False, True], end_mask=[False, False, True])
    refused("slice_update", SINCE8, "shape of the update", x=x, update=T("fp16", 1, 3, 3), **b)
    refused("slice_update", SINCE8, "type of the update", x=x, update=T("fp32", 1, 3, 2), **b)
    refused("slice_update", SINCE8, "scalar update", x=T("fp16", 4), update=T("fp16"), begin=[1], end=[2], squeeze_mask=[True])
    refused("slice_update", ["CoreML7"], "before iOS 18", x=x, update=T("fp16", 1, 3, 2), **b)

    for d in NUM:
        case("gather", ALL, x=T(d, 2, 3, 4), indices=T("int32", 5), axis=1)
        case("gather_along_axis", ALL, x=T(d, 2, 3), indices=T("int32", 2, 5), axis=1)
        case("gather_nd", ALL, x=T(d, 2, 3, 4), indices=T("int32", 5, 2))
    case("gather", ALL, x=T("fp16", 5, 3), indices=T("int32"))
    case("gather", ALL, x=T("fp16", 5), indices=T("int32"))
    case("gather", ALL, x=T("fp16", "s", 3), indices=T("int32", 2, "s"), axis=-2)
    case("gather", ALL, x=T("fp16", 5, 3), indices=np.int32([0, -1]))
    case("gather", SINCE6, x=T("fp16", 2, 5, 3), indices=T("int32", 2, 4), axis=1, batch_dims=1)
    case("gather", SINCE6, x=T("fp16", 2, 5, 3), indices=T("int16", 2, 4), axis=2)
    case("gather_along_axis", SINCE6, x=T("fp16", 2, 5), indices=T("uint16", 2, 4), axis=-1)
    case("gather_along_axis", ALL, x=T("fp16", 2, "s"), indices=T("int32", 7, "s"))
    case("gather_nd", SINCE6, x=T("fp16", 2, 5, 3), indices=T("int16", 2, 4, 1), batch_dims=1)
    case("gather_nd", SINCE6, x=T("fp16", "s", 5, 3), indices=T("int32", "s", 2))
    for d in SMALL:
        case("gather", SINCE7, x=T(d, 5, 3), indices=T(d, 2), validate_indices=True)
        case("gather_along_axis", SINCE7, x=T(d, 5, 3), indices=T(d, 2, 3), validate_indices=False)
        case("gather_nd", SINCE7, x=T(d, 5, 3), indices=T(d, 2, 2), validate_indices=True)
    refused("gather", ["CoreML5"], "int16 indices before iOS 16", x=T("fp16", 5, 3), indices=T("int16", 2))
    refused("gather", ["CoreML5"], "batch_dims before iOS 16", x=T("fp16", 5, 3), indices=T("int32", 5, 2), axis=1, batch_dims=1)
    refused("gather", ["CoreML6"], "int8 indices before iOS 17", x=T("fp16", 5, 3), indices=T("int8", 2))
    refused("gather", ["CoreML6"], "validate_indices before iOS 17", x=T("fp16", 5, 3), indices=T("int32", 2), validate_indices=True)
    refused("gather", ["CoreML8"], "axis", x=T("fp16", 5, 3), indices=T("int32", 2), axis=2)
    refused("gather", ["CoreML8"], "index outside", x=T("fp16", 5, 3), indices=np.int32([5]), validate_indices=True)
    refused("gather_along_axis", ["CoreML8"], "rank", x=T("fp16", 5, 3), indices=T("int32", 2))
    refused("gather_along_axis", ["CoreML8"], "another axis", x=T("fp16", 5, 3), indices=T("int32", 2, 2), axis=0)
    refused("gather_along_axis", ["CoreML8"], "index outside", x=T("fp16", 5, 3), indices=np.full((2, 3), 5, np.int32), validate_indices=True)
    refused("gather_nd", ["CoreML8"], "depth", x=T("fp16", 5, 3), indices=T("int32", 2, 3))
    for d in NUM:
        case("scatter", ALL, data=T(d, 4, 3), indices=T("int32", 2), updates=T(d, 2, 3))
        case("scatter_along_axis", ALL, data=T(d, 4, 3), indices=T("int32", 2, 3), updates=T(d, 2, 3))
        case("scatter_nd", ALL, data=T(d, 4, 3), indices=T("int32", 5, 1), updates=T(d, 5, 3))
    for m in ("update", "add", "sub", "mul", "div", "max", "min"):
        case("scatter", ["CoreML8"], data=T("fp16", 4, 3), indices=T("int32", 2), updates=T("fp16", 4, 2), axis=1, mode=m)
        case("scatter_along_axis", ["CoreML8"], data=T("fp16", 4, 3), indices=T("int32", 4, 2), updates=T("fp16", 4, 2), axis=-1, mode=m)
        case("scatter_nd", ["CoreML8"], data=T("fp16", 4, 3), indices=T("int32", 5, 2), updates=T("fp16", 5), mode=m)
    case("scatter", SINCE7, data=T("fp16", "s", 3), indices=T("int32", "s"), updates=T("fp16", "s", 3), validate_indices=True)
    case("scatter_along_axis", SINCE7, data=T("fp16", 4, 3), indices=T("int32", "s", 3), updates=T("fp16", "s", 3), validate_indices=True)
    case("scatter_nd", SINCE7, data=T("fp16", 4, "s"), indices=T("int32", 5, 1), updates=T("fp16", 5, "s"), validate_indices=True)
    refused("scatter", ["CoreML8"], "updates", data=T("fp16", 4, 3), indices=T("int32", 2), updates=T("fp16", 2, 2))
    refused("scatter", ["CoreML8"], "element types", data=T("fp16", 4, 3), indices=T("int32", 2), updates=T("fp32", 2, 3))
    refused("scatter", ["CoreML8"], "int16 indices", data=T("fp16", 4, 3), indices=T("int16", 2), updates=T("fp16", 2, 3))
    refused("scatter", ["CoreML6"], "validate_indices before iOS 17", data=T("fp16", 4, 3), indices=T("int32", 2), updates=T("fp16", 2, 3), validate_indices=True)
    refused("scatter", ["CoreML8"], "index outside", data=T("fp16", 4, 3), indices=np.int32([4]), updates=T("fp16", 1, 3), validate_indices=True)
    refused("scatter_along_axis", ["CoreML8"], "updates", data=T("fp16", 4, 3), indices=T("int32", 2, 3), updates=T("fp16", 3, 3))
    refused("scatter_along_axis", ["CoreML8"], "another axis", data=T("fp16", 4, 3), indices=T("int32", 2, 2), updates=T("fp16", 2, 2))
    refused("scatter_nd", ["CoreML8"], "updates", data=T("fp16", 4, 3), indices=T("int32", 5, 1), updates=T("fp16", 5, 4))
    refused("scatter_nd", ["CoreML8"], "depth", data=T("fp16", 4, 3), indices=T("int32", 5, 3), updates=T("fp16", 5))


def images():
    for d in FLOATS:
        x = T(d, 1, 3, 6, 7)
        case("upsample_nearest_neighbor", ["CoreML5", "CoreML8"], x=x, scale_factor_height=2, scale_factor_width=3)
        case("upsample_nearest_neighbor", ["CoreML5", "CoreML8"], x=x, scale_factor_height=np.float32(1.5), scale_factor_width=np.float32(2.5))
        case("upsample_bilinear", ALL, x=x, scale_factor_height=2, scale_factor_width=3)
        case("upsample_bilinear", ["CoreML5", "CoreML8"], x=x, scale_factor_height=np.float32(0.5), scale_factor_width=np.float32(1.7), align_corners=False)
        case("resize_nearest_neighbor", ["CoreML5", "CoreML8"], x=x, target_size_height=4, target_size_width=9)
        case("resize_bilinear", ["CoreML5", "CoreML8"], x=x, target_size_height=4, target_size_width=9)
        case("crop", ["CoreML5", "CoreML8"], x=x, crop_height=[1, 2], crop_width=[0, 3])
        case("crop_resize", ["CoreML5", "CoreML6"], x=T(d, 1, 3, 6, 7), roi=T(d, 4, 1, 4, 1, 1), target_height=2, target_width=5)
        case("crop_resize", SINCE7, x=T(d, 5, 3, 6, 7), boxes=T(d, 4, 4), target_height=2, target_width=5)
        case("affine", ["CoreML5", "CoreML8"], x=x, transform_matrix=T(d, 1, 6), output_height=3, output_width=4, sampling_mode="bilinear", padding_mode="constant",
             padding_value=NP[d](0), coordinates_mode="normalized_minus_one_to_one", align_corners=True)
        case("resample", ALL, x=x, coordinates=T("fp32", 1, 4, 5, 2), sampling_mode="bilinear", padding_mode="constant", padding_value=NP[d](2),
             coordinates_mode="normalized_minus_one_to_one", align_corners=True)
        case("resize", SINCE7, x=x, shape=[3, 4], resized_dims=np.uint32(2))
    case("upsample_nearest_neighbor", ["CoreML8"], x=T("fp16", 3, "s", 7))
    case("upsample_nearest_neighbor", ["CoreML8"], x=T("fp16", 3, "s", 7), scale_factor_height=2, scale_factor_width=2)
    case("upsample_bilinear", SINCE6, x=T("fp16", 1, 3, 6, "s"), scale_factor_height=2, scale_factor_width=2, align_corners=False, half_pixel_centers=True)
    refused("upsample_bilinear", ["CoreML5"], "half_pixel_centers before iOS 16", x=T("fp16", 1, 3, 6, 7), half_pixel_centers=True)
    refused("upsample_bilinear", ["CoreML8"], "rank", x=T("fp16", 6, 7))
    for m in ("STRICT_ALIGN_CORNERS", "ALIGN_CORNERS", "UNALIGN_CORNERS", "DEFAULT", "OFFSET_CORNERS"):
        case("resize_bilinear", ["CoreML8"], x=T("fp16", 1, 3, 6, "s"), target_size_height=4, target_size_width=9, sampling_mode=m)
    case("resize_bilinear", ["CoreML8"], x=T("fp16", 3, 6, 6))
    refused("resize_bilinear", ["CoreML8"], "sampling mode", x=T("fp16", 1, 3, 6, 6), sampling_mode="NEAREST")
    case("crop_resize", ["CoreML6"], x=T("fp16", 2, 3, 6, 7), roi=T("fp16", 4, 1, 5, 1, 1), normalized_coordinates=True, spatial_scale=np.float32(0.5),
         box_coordinate_mode="CENTER_SIZE_WIDTH_FIRST", sampling_mode="ALIGN_CORNERS", pad_value=np.float16(3))
    case("crop_resize", SINCE7, x=T("fp16", 2, 3, 6, 7), boxes=T("fp32", 4, 4), box_indices=T("int32", 4), normalized_coordinates=True,
         spatial_scale=np.float32(0.5), box_coordinate_mode="CENTER_SIZE_WIDTH_FIRST", sampling_mode="ALIGN_CORNERS", pad_value=np.float16(3))
    case("crop_resize", SINCE7, x=T("fp16", 2, 3, 6, 7), boxes=T("uint16", 4, 4), box_indices=np.uint16([0, 1, 1, 0]), target_height=2, target_width=2)
    refused("crop_resize", ["CoreML6"], "boxes before iOS 17", x=T("fp16", 5, 3, 6, 7), boxes=T("fp16", 4, 4))
    refused("crop_resize", ["CoreML8"], "roi since iOS 17", x=T("fp16", 1, 3, 6, 7), roi=T("fp16", 4, 1, 4, 1, 1))
    refused("crop_resize", ["CoreML8"], "more boxes than batches", x=T("fp16", 2, 3, 6, 7), boxes=T("fp16", 4, 4))
    refused("crop_resize", ["CoreML8"], "box index outside", x=T("fp16", 2, 3, 6, 7), boxes=T("fp16", 1, 4), box_indices=np.int32([2]))
    refused("crop_resize", ["CoreML8"], "integer boxes with normalized coordinates", x=T("fp16", 2, 3, 6, 7), boxes=T("uint16", 1, 4), normalized_coordinates=True)
    for o, ts in (("CoreML5", ("int32", "fp32")), ("CoreML6", ("int32", "fp16", "fp32")), ("CoreML7", SMALL + ("int32", "fp16")), ("CoreML8", SMALL)):
        for t in ts:
            case("resample", [o], x=T("fp16", "s", 3, 6, 7), coordinates=T(t, "s", 4, "s", 2), sampling_mode="nearest", padding_mode="border",
                 padding_value=np.float16(0), coordinates_mode="unnormalized", align_corners=False)
    refused("resample", ["CoreML5"], "fp16 coordinates before iOS 16", x=T("fp16", 1, 3, 6, 7), coordinates=T("fp16", 1, 4, 5, 2), sampling_mode="nearest",
            padding_mode="border", padding_value=np.float16(0), coordinates_mode="unnormalized", align_corners=False)
    refused("resample", ["CoreML8"], "last dimension", x=T("fp16", 1, 3, 6, 7), coordinates=T("fp16", 1, 4, 5, 3), sampling_mode="nearest",
            padding_mode="border", padding_value=np.float16(0), coordinates_mode="unnormalized", align_corners=False)
    refused("affine", ["CoreML8"], "transform of 5", x=T("fp16", 1, 3, 6, 7), transform_matrix=T("fp16", 1, 5), output_height=3, output_width=4, sampling_mode="bilinear",
            padding_mode="constant", padding_value=np.float16(0), coordinates_mode="normalized_minus_one_to_one", align_corners=True)
    refused("affine", ["CoreML8"], "padding", x=T("fp16", 1, 3, 6, 7), transform_matrix=T("fp16", 1, 6), output_height=3, output_width=4, sampling_mode="bilinear",
            padding_mode="constant", padding_value=np.float16(1), coordinates_mode="normalized_minus_one_to_one", align_corners=True)
    case("resize", SINCE7, x=T("int32", 1, 3, 6, 7), shape=np.int16([1, 3, 4, 5]), resized_dims=np.uint32(1), interpolation_mode="NEAREST_NEIGHBOR", sampling_mode="UNALIGN_CORNERS")
    case("resize", SINCE7, x=T("fp16", 1, "s", 6, 7), shape=np.uint16([0, 5]), resized_dims=np.uint32(2))
    case("resize", SINCE7, x=T("fp16", 1, 3, 6, 7), shape=T("int32", 2), resized_dims=np.uint32(2))
    case("resize", SINCE7, x=T("fp16", 1, 3, 6, 7), shape=T("uint16", 4), resized_dims=np.uint32(1))
    refused("resize", ["CoreML6"], "before iOS 17", x=T("fp16", 1, 3, 6, 7), shape=[3, 4], resized_dims=np.uint32(2))
    refused("resize", ["CoreML8"], "mode", x=T("fp16", 1, 3, 6, 7), shape=[3, 4], resized_dims=np.uint32(2), interpolation_mode="CUBIC")
    refused("resize", ["CoreML8"], "more dimensions than shape has", x=T("fp16", 1, 3, 6, 7), shape=[3, 4], resized_dims=np.uint32(3))
    for d in FLOATS:
        nms = dict(boxes=T(d, 2, 9, 4), scores=T(d, 2, 9, 3), iou_threshold=NP[d](0.5), max_boxes=5)
        case("non_maximum_suppression", ["CoreML5", "CoreML6"], score_threshold=NP[d](0.25), **nms)
        case("non_maximum_suppression", ["CoreML6"], score_threshold=NP[d](0.25), per_class_suppression=True, **nms)
        nms7 = dict(nms, boxes=T(d, 2, 4, 9), scores=T(d, 2, 3, 9))
        case("non_maximum_suppression", SINCE7, **nms7)
    refused("non_maximum_suppression", ["CoreML8"], "score_threshold since iOS 17", score_threshold=np.float32(0.25), **nms7)
    refused("non_maximum_suppression", ["CoreML5"], "no score_threshold", **nms)


def recurrent():
    S, B, I, H = 5, 2, 3, 4

    def weights(d, gates):
        return dict(weight_ih=ramp(d, gates * H, I), weight_hh=ramp(d, gates * H, H))

    for d in FLOATS:
        sets = ALL if d == "fp32" else SINCE7
        x, h = T(d, S, B, I), T(d, B, H)
        case("rnn", sets, x=x, initial_h=h, **weights(d, 1))
        case("rnn", sets[-1:], x=x, initial_h=h, bias=ramp(d, H), direction="reverse", output_sequence=True, activation="relu", **weights(d, 1))
        case("gru", sets, x=x, initial_h=h, **weights(d, 3))
        case("gru", sets[-1:], x=x, initial_h=h, bias=ramp(d, 3 * H), direction="reverse", output_sequence=True, recurrent_activation="tanh", activation="sigmoid", **weights(d, 3))
        case("gru", SINCE8, x=x, initial_h=h, bias=ramp(d, 3 * H), input_bias=ramp(d, 3 * H), reset_after=True, **weights(d, 3))
        case("lstm", sets, x=x, initial_h=h, initial_c=h, **weights(d, 4))
        case("lstm", sets, x=x, initial_h=h, initial_c=h, bias=ramp(d, 4 * H), output_sequence=True, direction="reverse", peephole=ramp(d, 3 * H), clip=NP[d](3),
             cell_activation="sigmoid", activation="relu", recurrent_activation="hard_sigmoid", **weights(d, 4))
        b = weights(d, 4)
        case("lstm", sets, x=x, initial_h=T(d, B, 2 * H), initial_c=T(d, B, 2 * H), direction="bidirectional", output_sequence=True,
             weight_ih_back=b["weight_ih"], weight_hh_back=b["weight_hh"], bias=ramp(d, 4 * H), bias_back=ramp(d, 4 * H), **b)
    x, h = T("fp32", "s", B, I), T("fp32", B, H)
    case("rnn", ["CoreML8"], x=x, initial_h=h, output_sequence=True, **weights("fp32", 1))
    case("gru", ["CoreML8"], x=x, initial_h=h, output_sequence=True, **weights("fp32", 3))
    case("lstm", ["CoreML8"], x=x, initial_h=h, initial_c=h, output_sequence=True, **weights("fp32", 4))
    refused("lstm", ["CoreML6"], "fp16 before iOS 17", x=T("fp16", S, B, I), initial_h=T("fp16", B, H), initial_c=T("fp16", B, H), **weights("fp16", 4))
    refused("gru", ["CoreML7"], "reset_after before iOS 18", x=x, initial_h=h, reset_after=True, **weights("fp32", 3))
    refused("gru", ["CoreML8"], "gates", x=x, initial_h=h, **weights("fp32", 4))
    refused("gru", ["CoreML8"], "direction", x=x, initial_h=h, direction="bidirectional", **weights("fp32", 3))
    refused("lstm", ["CoreML8"], "gates", x=x, initial_h=h, initial_c=h, **weights("fp32", 3))
    refused("lstm", ["CoreML8"], "no weights for the way back", x=x, initial_h=h, initial_c=h, direction="bidirectional", **weights("fp32", 4))
    refused("lstm", ["CoreML8"], "activation", x=x, initial_h=h, initial_c=h, activation="gelu", **weights("fp32", 4))


def randoms():
    for d in FLOATS:
        case("random_bernoulli", ["CoreML5", "CoreML8"], shape=[2, 3], prob=NP[d](0.25), seed=4)
        case("random_normal", ["CoreML5", "CoreML8"], shape=[2, 3], mean=NP[d](1), stddev=NP[d](2))
        case("random_uniform", ["CoreML5", "CoreML8"], shape=[2, 3], low=NP[d](1), high=NP[d](2), seed=1)
        case("random_categorical", ["CoreML5", "CoreML8"], x=T(d, 2, 3))
        case("random_categorical", ["CoreML8"], x=T(d, 2, "s"), mode="probs", size=7, seed=3)
    for op in ("random_bernoulli", "random_normal", "random_uniform"):
        case(op, ["CoreML5", "CoreML8"], shape=[2, 3])
        case(op, ["CoreML8"], shape=T("int32", 3))


def quantization():
    for d in FLOATS:
        case("quantize", SINCE7, input=T(d, 2, 3), scale=NP[d](0.5), output_dtype="int8")
        case("quantize", SINCE7, input=T(d, 2, 3), scale=NP[d](0.5), zero_point=np.uint8(3), output_dtype="uint8")
        case("quantize", SINCE7, input=T(d, "s", 3), scale=ramp(d, 3), zero_point=ramp("int8", 3), axis=1, output_dtype="int8")
        case("dequantize", SINCE7, input=T("int8", 2, 3), scale=NP[d](0.5))
        case("dequantize", SINCE7, input=T("uint8", "s", 3), scale=ramp(d, 3), zero_point=ramp("uint8", 3), axis=-1)
    refused("quantize", ["CoreML8"], "zero scale", input=T("fp16", 2, 3), scale=np.float16(0), output_dtype="int8")
    refused("quantize", ["CoreML8"], "zero point of another type", input=T("fp16", 2, 3), scale=np.float16(1), zero_point=np.int8(3), output_dtype="uint8")
    refused("quantize", ["CoreML8"], "output type", input=T("fp16", 2, 3), scale=np.float16(1), output_dtype="int32")
    refused("quantize", ["CoreML8"], "vector without axis", input=T("fp16", 2, 3), scale=ramp("fp16", 3), output_dtype="int8")
    refused("quantize", ["CoreML8"], "axis without vector", input=T("fp16", 2, 3), scale=np.float16(1), axis=1, output_dtype="int8")
    refused("dequantize", ["CoreML8"], "length of the scale", input=T("int8", 2, 3), scale=ramp("fp16", 2), axis=1)
    refused("dequantize", ["CoreML6"], "before iOS 17", input=T("int8", 2, 3), scale=np.float16(1))
    w = ramp("uint8", 4, 3, 3, 3)
    for d in FLOATS:
        run_conv_quantized(d, w)


def run_conv_quantized(d, w):
    case("conv_quantized", ["CoreML5", "CoreML8"], x=T(d, 1, 3, 9, 9), weight=w, quantization_type="linear", quant_scale=ramp(d, 4), quant_bias=ramp(d, 4))
    case("conv_quantized", ["CoreML8"], x=T(d, 1, 3, 9, 9), weight=w, quantization_type="linear", quant_scale=ramp(d, 4), quant_bias=ramp(d, 4), nbits=8,
         strides=[2, 2], pad_type="same", bias=ramp("uint8", 4))


def constexprs():
    for d in FLOATS:
        for q in ("int8", "uint8"):
            case("constexpr_affine_dequantize", SINCE6, quantized_data=ramp(q, 4, 3), zero_point=NP[q](1), scale=NP[d](0.5), axis=0)
            case("constexpr_affine_dequantize", SINCE6, quantized_data=ramp(q, 4, 3, 2), zero_point=ramp(q, 3), scale=ramp(d, 3), axis=-2)
        case("constexpr_affine_dequantize", ["CoreML6"], quantized_data=ramp("int8", 4, 3), zero_point=np.float32(1), scale=ramp(d, 4), axis=0)
        for bits in (1, 2, 4, 6, 8):
            case("constexpr_lut_to_dense", ["CoreML6", "CoreML7"], indices=np.zeros((bits * 40 + 7) // 8, np.uint8), lut=ramp(d, 2 ** bits), shape=np.uint32([5, 8]))
        case("constexpr_sparse_to_dense", ["CoreML6", "CoreML7"], nonzero_data=ramp(d, 3), mask=np.uint8([5, 2]), shape=np.uint32([3, 4]))
        for q in ("int4", "uint4", "int8", "uint8"):
            data = sub(q, ramp("int8", 4, 6)) if q.endswith("4") else ramp(q, 4, 6)
            off = sub(q, ramp("int8", 2, 3)) if q.endswith("4") else ramp(q, 2, 3)
            case("constexpr_blockwise_shift_scale", SINCE8, data=data, scale=ramp(d, 4, 1))
            case("constexpr_blockwise_shift_scale", SINCE8, data=data, scale=ramp(d, 2, 3), offset=off)
        case("constexpr_blockwise_shift_scale", SINCE8, data=ramp("int8", 4, 6), scale=ramp(d, 2, 3), offset=ramp("fp32", 2, 3))
        for q, n in (("uint1", 2), ("uint2", 4), ("uint3", 8), ("uint4", 16), ("uint6", 64), ("uint8", 256)):
            idx = np.zeros((4, 6), np.uint8)
            idx = sub(q, idx) if q != "uint8" else idx
            case("constexpr_lut_to_dense", SINCE8, indices=idx, lut=ramp(d, 2, 1, n, 1))
            case("constexpr_lut_to_dense", SINCE8, indices=idx, lut=ramp(d, 2, 1, n, 2), vector_axis=0)
        mask = sub("uint1", [[1, 0, 1, 0], [0, 0, 0, 1]])
        case("constexpr_sparse_to_dense", SINCE8, nonzero_data=ramp(d, 3), mask=mask)
        idx = sub("uint2", [0, 1, 3])
        case("constexpr_lut_to_sparse", SINCE8, indices_mask=mask, indices_nonzero_data=idx, lut=ramp(d, 1, 2, 4, 1))
        case("constexpr_lut_to_sparse", SINCE8, indices_mask=mask, indices_nonzero_data=idx, lut=ramp(d, 1, 2, 4, 3), vector_axis=-1)
        case("constexpr_sparse_blockwise_shift_scale", SINCE8, data_mask=mask, nonzero_data=ramp("int8", 3), scale=ramp(d, 2, 1))
        case("constexpr_sparse_blockwise_shift_scale", SINCE8, data_mask=mask, nonzero_data=sub("uint4", [1, 2, 3]), scale=ramp(d, 1, 2), offset=sub("uint4", [[1, 2]]))

        def chain(x):  # look-up table of int8, then scales around it, then a convolution
            lut = mb.constexpr_lut_to_dense(indices=sub("uint4", np.zeros((8, 4, 1, 1))), lut=ramp("int8", 1, 1, 1, 1, 16, 1))
            w = mb.constexpr_blockwise_shift_scale(data=lut, scale=ramp(d, 8, 1, 1, 1))
            return mb.conv(x=x, weight=w)

        run("CoreML8", {"x": T(d, 1, 4, 1, 5)}, chain)

        def sparse_chain(x):
            m, v = mb.constexpr_lut_to_sparse(indices_mask=mask, indices_nonzero_data=idx, lut=ramp(d, 1, 1, 4, 1))
            return mb.linear(x=x, weight=mb.constexpr_sparse_to_dense(nonzero_data=v, mask=m))

        run("CoreML8", {"x": T(d, 1, 4)}, sparse_chain)

        def sparse_quantized_chain(x):
            m, v = mb.constexpr_sparse_blockwise_shift_scale(data_mask=mask, nonzero_data=ramp("int8", 3), scale=ramp(d, 2, 1))
            return mb.linear(x=x, weight=mb.constexpr_sparse_to_dense(nonzero_data=v, mask=m))

        run("CoreML8", {"x": T(d, 1, 4)}, sparse_quantized_chain)

        def transposed(x):  # not a constant, but known before the function runs
            w = mb.constexpr_lut_to_dense(indices=sub("uint4", np.zeros((4, 8))), lut=ramp(d, 1, 1, 16, 1))
            return mb.linear(x=x, weight=mb.transpose(x=w, perm=[1, 0]))

        run("CoreML8", {"x": T(d, 1, 4)}, transposed)
    case("constexpr_cast", SINCE6, source_val=ramp("fp16", 2, 3), output_dtype="fp32")
    refused("constexpr_affine_dequantize", ["CoreML6"], "length of the scale", quantized_data=ramp("int8", 4, 3), zero_point=np.int8(0), scale=ramp("fp16", 3), axis=0)
    refused("constexpr_affine_dequantize", ["CoreML6"], "axis", quantized_data=ramp("int8", 4, 3), zero_point=np.int8(0), scale=np.float16(1), axis=2)
    refused("constexpr_affine_dequantize", ["CoreML5"], "before iOS 16", quantized_data=ramp("int8", 4, 3), zero_point=np.int8(0), scale=np.float16(1), axis=0)
    refused("constexpr_lut_to_dense", ["CoreML6"], "entries", indices=np.zeros(15, np.uint8), lut=ramp("fp16", 8), shape=np.uint32([5, 8]))
    refused("constexpr_lut_to_dense", ["CoreML6"], "length of the indices", indices=np.zeros(21, np.uint8), lut=ramp("fp16", 16), shape=np.uint32([5, 8]))
    refused("constexpr_sparse_to_dense", ["CoreML6"], "count of values", nonzero_data=ramp("fp16", 4), mask=np.uint8([5, 2]), shape=np.uint32([3, 4]))
    refused("constexpr_sparse_to_dense", ["CoreML6"], "bits behind the end", nonzero_data=ramp("fp16", 3), mask=np.uint8([5, 32]), shape=np.uint32([3, 4]))
    refused("constexpr_sparse_to_dense", ["CoreML6"], "length of the mask", nonzero_data=ramp("fp16", 3), mask=np.uint8([5, 2, 0]), shape=np.uint32([3, 4]))
    refused("constexpr_blockwise_shift_scale", SINCE8, "blocks", data=ramp("int8", 4, 6), scale=ramp("fp16", 3, 1))
    refused("constexpr_blockwise_shift_scale", SINCE8, "rank", data=ramp("int8", 4, 6), scale=ramp("fp16", 4))
    refused("constexpr_blockwise_shift_scale", SINCE8, "offset", data=ramp("int8", 4, 6), scale=ramp("fp16", 4, 1), offset=ramp("int8", 1, 1))
    refused("constexpr_blockwise_shift_scale", SINCE8, "offset type", data=ramp("int8", 4, 6), scale=ramp("fp16", 4, 1), offset=ramp("uint8", 4, 1))
    refused("constexpr_lut_to_dense", SINCE8, "vectors without axis", indices=np.zeros((4, 6), np.uint8), lut=ramp("fp16", 1, 1, 256, 2))
    refused("constexpr_cast", ["CoreML8"], "output type", source_val=ramp("fp16", 2, 3), output_dtype="int32")


def control_flow():
    for o in ALL:
        def cond(p, x):
            return mb.cond(pred=p, _true_fn=lambda: mb.add(x=x, y=np.float32(1)), _false_fn=lambda: mb.mul(x=x, y=x))

        run(o, {"p": T("bool"), "x": T("fp32", 2, 3)}, cond)

        def two(p, x):
            return mb.cond(pred=p, _true_fn=lambda: (mb.relu(x=x), mb.cast(x=x, dtype="int32")),
                           _false_fn=lambda: (mb.exp(x=x), mb.cast(x=mb.tanh(x=x), dtype="int32")))

        run(o, {"p": T("bool"), "x": T("fp16", "s", 3)}, two)

        def loop(n, x):
            return mb.while_loop(_cond=lambda i, a: mb.less(x=i, y=np.int32(10)),
                                 _body=lambda i, a: (mb.add(x=i, y=np.int32(1)), mb.add(x=a, y=x)), loop_vars=(n, x))

        run(o, {"n": T("int32"), "x": T("fp32", 2, 3)}, loop)

        def grows(n, x):
            return mb.while_loop(_cond=lambda i, a: mb.less(x=i, y=np.int32(10)),
                                 _body=lambda i, a: (mb.add(x=i, y=np.int32(1)), mb.concat(values=[a, x], axis=0)), loop_vars=(n, x))

        run(o, {"n": T("int32"), "x": T("fp32", 2, 3)}, grows)

        def nested(n, x):
            def body(i, a):
                b = mb.cond(pred=mb.less(x=i, y=np.int32(3)), _true_fn=lambda: mb.relu(x=a), _false_fn=lambda: mb.sin(x=a))
                return mb.add(x=i, y=np.int32(1)), b

            return mb.while_loop(_cond=lambda i, a: mb.less(x=i, y=np.int32(10)), _body=body, loop_vars=(n, x))

        run(o, {"n": T("int32"), "x": T("fp16", 2, "s")}, nested)

        def lists(x, i, many, idx):
            ls = mb.make_list(init_length=3, dynamic_length=False, elem_shape=(2, 3), dtype="fp32")
            ls = mb.list_write(ls=ls, index=i, value=x)
            ls = mb.list_scatter(ls=ls, indices=idx, value=many)
            return mb.list_read(ls=ls, index=i), mb.list_gather(ls=ls, indices=idx), mb.list_length(ls=ls)

        run(o, {"x": T("fp32", 2, 3), "i": T("int32"), "many": T("fp32", 4, 2, 3), "idx": T("int32", 4)}, lists)

        def open_list(x, i):
            ls = mb.make_list(init_length=1, elem_shape=("a", 3), dtype="fp16")
            ls = mb.list_write(ls=ls, index=i, value=x)
            return mb.list_read(ls=ls, index=i), mb.list_gather(ls=ls, indices=np.int32([0, 2]))

        run(o, {"x": T("fp16", "s", 3), "i": T("int32")}, open_list)
    refused("cond", ["CoreML8"], "no blocks", pred=T("bool"))


def states():
    for d in ("fp16",):
        def read(s, x):
            return mb.add(x=mb.read_state(input=s), y=x)

        run("CoreML8", {"s": State(d, 2, 3), "x": T(d, 2, 3)}, read)

        def update(s, x):
            v = mb.coreml_update_state(state=s, value=mb.add(x=mb.read_state(input=s), y=x))
            return mb.relu(x=v)

        run("CoreML8", {"s": State(d, 2, 3), "x": T(d, 2, 3)}, update)
    refused("read_state", ["CoreML8"], "a tensor", input=T("fp16", 2))


def main():
    for part in (elementwise, activations, linear_algebra, convolutions, normalizations, reductions, shapes, indexing, images, recurrent,
                 randoms, quantization, constexprs, control_flow, states):
        before = len(RECORDS)
        try:
            part()
        except Exception:
            print("in", part.__name__, file=sys.stderr)
            raise
        print(part.__name__, len(RECORDS) - before)
    used = {o["op"] for r in RECORDS if not r.get("error") for o in walk(r["ops"])}
    s = specs()
    missing = sorted(set(s) - used - {"const", "_const_symbolic", "classify"})
    print("operations without a record:", missing)
    if PROBLEMS:
        sys.exit("\n".join(PROBLEMS))
    out = {"coremltools": ct.__version__, "specs": s, "records": RECORDS}
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ops.json.gz")
    data = json.dumps(out, separators=(",", ":"), sort_keys=True).encode()
    with open(path, "wb") as f, gzip.GzipFile(fileobj=f, mode="wb", mtime=0, filename="") as z:
        z.write(data)
    print(len(RECORDS), "records,", len(data), "bytes,", os.path.getsize(path), "compressed")


def walk(ops):
    for o in ops:
        yield o
        for b in o.get("blocks", []):
            yield from walk(b["ops"])


if __name__ == "__main__":
    main()
