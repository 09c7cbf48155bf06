"""Expected results of single operations, computed by numpy: ops.json.gz beside this file.

usage: python make_ops.py            (needs numpy)

A case has the operation's name, its arguments and its results. An argument that is an input may be given to the
program as a parameter or as a constant; the others are constants. Numbers are float32 unless said otherwise.
"""
import gzip, json, math
from pathlib import Path
import numpy as np

rng = np.random.default_rng(7)
F, I, B = np.float32, np.int32, np.bool_
NAMES = {"float32": "fp32", "int32": "int32", "bool": "bool", "float16": "fp16", "int16": "int16", "uint16": "uint16", "int8": "int8", "uint8": "uint8"}
cases = []


def num(x):
    if isinstance(x, (bool, np.bool_)): return bool(x)
    if isinstance(x, np.integer): return int(x)
    x = float(str(F(x)))  # the shortest digits that give the same float32
    return x if math.isfinite(x) else "nan" if math.isnan(x) else "inf" if x > 0 else "-inf"


def tensor(a, dtype=None):
    a = np.asarray(a)
    if a.dtype == np.float64: a = a.astype(F)
    if a.dtype == np.int64: a = a.astype(I)
    return {"dtype": dtype or NAMES[str(a.dtype)], "shape": list(a.shape), "data": [num(v) for v in a.ravel()]}


class C:  # a constant argument
    def __init__(self, v, dtype=None): self.v, self.dtype = v, dtype


def arg(v):
    if isinstance(v, (list, tuple)) and v and isinstance(v[0], np.ndarray): return {"list": [arg(x) for x in v]}
    if isinstance(v, C):
        if isinstance(v.v, str): return {"const": True, "dtype": "string", "shape": [], "data": [v.v]}
        return {"const": True, **tensor(v.v, v.dtype)}
    return {"const": False, **tensor(v)}


def case(op, out, tol=0., note="", **args):
    out = out if isinstance(out, (list, tuple)) else [out]
    cases.append({"op": op, "note": note, "tol": tol, "args": {k: arg(v) for k, v in args.items()}, "out": [o if isinstance(o, dict) else tensor(o) for o in out]})


def r(*s, lo=-2., hi=2.): return rng.uniform(lo, hi, s).astype(F)
def ri(*s, lo=-9, hi=10): return rng.integers(lo, hi, s).astype(I)
def w64(f, *x): return f(*[np.asarray(v, np.float64) for v in x]).astype(F)


SPECIAL = np.array([0, -0., 1, -1, .5, -.5, 2.5, -2.5, 3.5, 1e-3, -1e-3, 20, -20, 88, -88, 100, -100, 1e-38, np.inf, -np.inf, np.nan], F)

with np.errstate(all="ignore"):
    # elementwise on one operand
    sig = lambda x: np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))))
    erf = np.vectorize(math.erf)
    one = {
        "relu": lambda x: np.maximum(x, 0), "relu6": lambda x: np.minimum(np.maximum(x, 0), 6), "sigmoid": sig, "tanh": np.tanh,
        "silu": lambda x: x * sig(x), "softplus": lambda x: np.logaddexp(0, x), "softsign": lambda x: x / (1 + np.abs(x)), "exp": np.exp, "exp2": np.exp2, "erf": erf,
        "sin": np.sin, "cos": np.cos, "tan": np.tan, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh, "abs": np.abs, "sign": np.sign,
        "square": np.square, "floor": np.floor, "ceil": np.ceil, "round": np.round, "identity": lambda x: x,
    }
    for op, f in one.items():
        x = r(3, 5, 4, lo=-4, hi=4); case(op, w64(f, x), 3e-7, x=x)
        s = SPECIAL
        if op in ("sin", "cos", "tan", "exp2", "sinh", "cosh", "silu", "softsign", "erf"): s = s[:-3]
        case(op, w64(f, s), 3e-7, "special values", x=s)
    for op, f in {"sqrt": np.sqrt, "acosh": lambda x: np.arccosh(x + 1), "asin": np.arcsin, "acos": np.arccos, "atanh": np.arctanh}.items():
        x = r(4, 6, lo=0, hi=.95); case(op, w64(f, x), 3e-7, x=(x + 1 if op == "acosh" else x).astype(F)) if op != "acosh" else case(op, w64(np.arccosh, (x + 1).astype(F)), 1e-6, x=(x + 1).astype(F))
    for op in ("abs", "sign", "square"):
        x = ri(3, 4); case(op, {"abs": np.abs, "sign": np.sign, "square": np.square}[op](x), x=x)
    x = r(4, 6, lo=.1, hi=9)
    case("log", w64(np.log, x), 3e-7, x=x); case("log", w64(lambda v: np.log(v + F(.5)), x), 3e-7, x=x, epsilon=C(F(.5)))
    case("rsqrt", w64(lambda v: 1 / np.sqrt(v), x), 3e-7, x=x); case("rsqrt", w64(lambda v: 1 / np.sqrt(v + F(.25)), x), 3e-7, x=x, epsilon=C(F(.25)))
    case("inverse", (1 / (x + F(1e-4))).astype(F), 3e-7, x=x); case("inverse", (1 / (x + F(.25))).astype(F), 3e-7, x=x, epsilon=C(F(.25)))
    x = r(4, 6, lo=-3, hi=3)
    case("clip", np.clip(x, F(-1), F(1.5)), x=x, alpha=C(F(-1)), beta=C(F(1.5)))
    case("elu", np.where(x > 0, x, F(.7) * np.expm1(x)), 3e-7, x=x, alpha=C(F(.7))); case("leaky_relu", np.where(x > 0, x, F(.1) * x), 3e-7, x=x, alpha=C(F(.1)))
    for mode, f in {None: lambda x: .5 * x * (1 + erf(x / math.sqrt(2))), "EXACT": lambda x: .5 * x * (1 + erf(x / math.sqrt(2))),
                    "TANH_APPROXIMATION": lambda x: .5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + .044715 * x ** 3))), "SIGMOID_APPROXIMATION": lambda x: x * sig(1.702 * x)}.items():
        case("gelu", w64(f, x), 1e-6, str(mode), x=x, **({} if mode is None else {"mode": C(mode)}))

    # elementwise on two operands
    two = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "real_div": np.divide, "maximum": np.maximum, "minimum": np.minimum}
    shapes = [((2, 3, 4), (2, 3, 4)), ((2, 3, 4), (4,)), ((2, 1, 4), (3, 1)), ((), (2, 2)), ((5,), ()), ((2, 3, 1), (1, 3, 5)), ((1, 1, 3), (4, 1, 1))]
    for op, f in two.items():
        for a, b in shapes: x, y = r(*a), r(*b, lo=.5, hi=3); case(op, f(x, y).astype(F), 1.2e-7, x=x, y=y)
    for op in ("maximum", "minimum"): x, y = np.array([1, np.nan, 2, np.nan, np.inf], F), np.array([np.nan, 1, 3, np.nan, -np.inf], F); case(op, two[op](x, y), x=x, y=y)
    x, y = r(3, 4, lo=-9, hi=9), r(4, lo=.5, hi=3) * np.array([1, -1, 1, -1], F)
    case("floor_div", np.floor(x / y), x=x, y=y); case("mod", w64(np.mod, x, y), 2e-6, x=x, y=y)
    case("pow", w64(np.power, np.abs(x), y), 3e-7, x=np.abs(x), y=y); case("pow", w64(np.power, x, F(3)), 3e-7, x=x, y=F(3))
    case("real_div", (np.array([1, -1, 0, 4], F) / np.array([0, 0, 0, 2], F)), x=np.array([1, -1, 0, 4], F), y=np.array([0, 0, 0, 2], F))
    x, y = ri(4, 5), ri(5); y[y == 0] = 3
    for op, f in {"add": np.add, "sub": np.subtract, "mul": np.multiply, "maximum": np.maximum, "minimum": np.minimum, "floor_div": np.floor_divide, "real_div": np.floor_divide, "mod": np.mod}.items(): case(op, f(x, y), x=x, y=y)
    case("floor_div", np.array([0, 0], I), note="by zero", x=np.array([5, -5], I), y=np.array([0, 0], I)); case("mod", np.array([0, 0], I), note="by zero", x=np.array([5, -5], I), y=np.array([0, 0], I))
    case("pow", x ** 3, x=x, y=np.array(3, I)); case("add", np.array([-2147483648], I), note="overflow wraps", x=np.array([2147483647], I), y=np.array([1], I))
    cmp = {"equal": np.equal, "not_equal": np.not_equal, "less": np.less, "less_equal": np.less_equal, "greater": np.greater, "greater_equal": np.greater_equal}
    for op, f in cmp.items():
        x, y = ri(3, 4, lo=0, hi=3), ri(4, lo=0, hi=3); case(op, f(x, y), x=x, y=y); case(op, f(x.astype(F), y.astype(F)), x=x.astype(F), y=y.astype(F))
        x = np.array([np.nan, 1, np.inf, -np.inf], F); case(op, f(x, x), note="nan", x=x, y=x)
    p, q = rng.random((3, 4)) < .5, rng.random(4) < .5
    for op, f in {"logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor}.items(): case(op, f(p, q), x=p, y=q)
    case("logical_not", ~p, x=p)
    a, b = r(2, 3, 4), r(4); c = rng.random((3, 1)) < .5
    case("select", np.where(c, a, b), cond=c, a=a, b=b); case("select", np.where(p, ri(3, 4) * 0 + 5, 7).astype(I), cond=p, a=np.full((3, 4), 5, I), b=np.array(7, I))
    case("select", np.where(c, F(-np.inf), a), cond=c, a=F(-np.inf) * np.ones((), F), b=a)

    # casts
    x = np.array([0, .9, -.9, 1.5, -1.5, 300.7, -300.7, 40000, 70000, -1], F)
    case("cast", np.trunc(x).astype(I), x=x, dtype=C("int32")); case("cast", x != 0, x=x, dtype=C("bool"))
    wrap = lambda v, t: tensor(np.trunc(v).astype(np.int64).astype(t).astype(I), NAMES[np.dtype(t).name])
    for t in (np.int16, np.uint16, np.int8, np.uint8): case("cast", wrap(x, t), x=x, dtype=C(NAMES[np.dtype(t).name]))
    k = ri(6, lo=-70000, hi=70000)
    case("cast", k.astype(F), x=k, dtype=C("fp32")); case("cast", {**tensor(k.astype(F)), "dtype": "fp16"}, x=k, dtype=C("fp16"), note="float32 numerics keep float32")
    case("cast", k != 0, x=k, dtype=C("bool")); case("cast", p.astype(I), x=p, dtype=C("int32")); case("cast", p.astype(F), x=p, dtype=C("fp32"))
    for t in (np.int16, np.uint16): case("cast", wrap(k, t), x=k, dtype=C(NAMES[np.dtype(t).name]))

    # products
    for xs, ys, tx, ty in [((3, 4), (4, 5), 0, 0), ((4, 3), (4, 5), 1, 0), ((3, 4), (5, 4), 0, 1), ((4, 3), (5, 4), 1, 1), ((2, 3, 4), (2, 4, 5), 0, 0), ((2, 1, 3, 4), (3, 4, 5), 0, 0),
                           ((3, 4), (2, 4, 5), 0, 0), ((2, 3, 1, 8), (2, 3, 9, 8), 0, 1), ((2, 3, 1, 9), (2, 3, 9, 8), 0, 0), ((1, 2, 5, 5), (1, 1, 5, 131), 0, 0), ((1, 2, 5, 5), (1, 2, 67, 5), 0, 1),
                           ((4,), (4, 5), 0, 0), ((3, 4), (4,), 0, 0), ((4,), (4,), 0, 0), ((2, 3, 4), (4,), 0, 0), ((1, 7), (7, 1), 0, 0), ((7, 1), (1, 3), 0, 0)]:
        x, y = r(*xs), r(*ys)
        u, v = (np.swapaxes(x, -1, -2) if tx else x), (np.swapaxes(y, -1, -2) if ty else y)
        case("matmul", w64(np.matmul, u, v), 2e-6, x=x, y=y, transpose_x=C(bool(tx)), transpose_y=C(bool(ty)))
    x, y = ri(2, 3, 4), ri(2, 4, 5); case("matmul", np.matmul(x, y), x=x, y=y)
    for xs, o in [((3, 7), 5), ((7,), 5), ((2, 3, 7), 66), ((1, 1, 130), 40)]:
        x, w, b = r(*xs), r(o, xs[-1]), r(o); case("linear", w64(lambda x, w: x @ w.T, x, w), 5e-6, x=x, weight=C(w)); case("linear", w64(lambda x, w, b: x @ w.T + b, x, w, b), 5e-6, x=x, weight=C(w), bias=C(b))

    def conv(x, w, b, st, pads, di, g):
        n = x.ndim - 2
        x = np.pad(np.asarray(x, np.float64), [(0, 0), (0, 0)] + pads)
        out = [(x.shape[2 + i] - (w.shape[2 + i] - 1) * di[i] - 1) // st[i] + 1 for i in range(n)]
        y = np.zeros([x.shape[0], w.shape[0]] + out)
        po, pi = w.shape[0] // g, w.shape[1]
        for o in range(w.shape[0]):
            for pos in np.ndindex(*out):
                for k in np.ndindex(*w.shape[2:]):
                    at = tuple(pos[i] * st[i] + k[i] * di[i] for i in range(n))
                    grp = o // po
                    y[(slice(None), o) + pos] += (x[(slice(None), slice(grp * pi, (grp + 1) * pi)) + at] * w[(o, slice(None)) + k].astype(np.float64)).sum(1)
        return (y if b is None else y + b.reshape([1, -1] + [1] * n)).astype(F)

    for xs, ws, st, pad, di, g, kind in [
        ((1, 6, 1, 1), (5, 6, 1, 1), (1, 1), None, (1, 1), 1, "valid"), ((2, 6, 1, 4), (5, 6, 1, 1), (1, 1), None, (1, 1), 1, "valid"), ((1, 6, 7), (5, 6, 1), (1,), None, (1,), 1, "valid"), ((1, 6, 7), (5, 6, 1), (2,), None, (1,), 1, "valid"),
        ((1, 3, 8), (4, 3, 3), (1,), None, (1,), 1, "valid"), ((2, 3, 8), (4, 3, 3), (2,), ((2, 1),), (2,), 1, "custom"), ((1, 4, 5, 6), (6, 4, 3, 2), (1, 2), ((1, 0), (2, 1)), (1, 1), 1, "custom"),
        ((1, 6, 9), (6, 1, 4), (1,), ((3, 0),), (1,), 6, "custom"), ((1, 4, 5, 5), (6, 2, 3, 3), (1, 1), None, (1, 1), 2, "valid"), ((1, 4, 5, 5), (3, 4, 1, 1), (1, 1), ((1, 1), (0, 1)), (1, 1), 1, "custom"), ((1, 2, 3, 4, 5), (3, 2, 2, 2, 2), (1, 1, 1), None, (1, 1, 1), 1, "valid")]:
        x, w, b = r(*xs), r(*ws), r(ws[0]); n = len(st)
        args = dict(strides=C(np.array(st, I)), dilations=C(np.array(di, I)), groups=C(np.array(g, I)), pad_type=C(kind), pad=C(np.array([v for p_ in pad for v in p_] if pad else [0] * 2 * n, I)))
        case("conv", conv(x, w, b, st, list(pad) if pad else [(0, 0)] * n, di, g), 3e-6, x=x, weight=C(w), bias=C(b), **args)
        case("conv", conv(x, w, None, st, list(pad) if pad else [(0, 0)] * n, di, g), 3e-6, x=x, weight=C(w), **args)
    for n_, k_, s_ in [(8, 3, 1), (7, 3, 2), (8, 4, 1), (9, 2, 3)]:
        x, w = r(1, 2, n_), r(3, 2, k_); out = -(-n_ // s_); total = max(0, (out - 1) * s_ + k_ - n_)
        for kind, lo in (("same", total // 2), ("same_lower", total - total // 2)): case("conv", conv(x, w, None, (s_,), [(lo, total - lo)], (1,), 1), 3e-6, kind, x=x, weight=C(w), strides=C(np.array([s_], I)), pad_type=C(kind))
    x, w = r(1, 3, 6), r(2, 3, 2); case("conv", conv(x, w, None, (1,), [(0, 0)], (1,), 1), 3e-6, "weight is no constant", x=x, weight=w)

    def softmax(x, a): e = np.exp(x - x.max(a, keepdims=True)); return e / e.sum(a, keepdims=True)
    q, k, v = r(1, 2, 3, 8), r(1, 2, 5, 8), r(1, 2, 5, 6); m = rng.random((1, 1, 3, 5)) < .6; m[..., 0] = True
    att = lambda q, k, v: q @ np.swapaxes(k, -1, -2) / math.sqrt(8)
    case("scaled_dot_product_attention", w64(lambda q, k, v: softmax(att(q, k, v), -1) @ v, q, k, v), 1e-6, query=q, key=k, value=v)
    case("scaled_dot_product_attention", w64(lambda q, k, v: softmax(np.where(m, att(q, k, v), -np.inf), -1) @ v, q, k, v), 1e-6, query=q, key=k, value=v, attn_mask=m)
    fm = r(1, 1, 3, 5); case("scaled_dot_product_attention", w64(lambda q, k, v: softmax(att(q, k, v) + fm, -1) @ v, q, k, v), 1e-6, query=q, key=k, value=v, attn_mask=fm)

    # normalization and reduction
    x = r(2, 3, 5, lo=-5, hi=5)
    for a in (None, -1, 0, 1): case("softmax", w64(lambda v: softmax(v, -1 if a is None else a), x), 3e-7, x=x, **({} if a is None else {"axis": C(np.array(a, I))}))
    y = x.copy(); y[0, 0] = -np.inf; y[1, 1, 2:] = -np.inf; case("softmax", w64(lambda v: softmax(v, -1), y), 3e-7, "masked rows", x=y, axis=C(np.array(-1, I)))
    for ax in [[-1], [1, 2], [0], [1], None]:
        t = tuple(range(3)) if ax is None else tuple(a % 3 for a in ax); sh = [x.shape[i] for i in sorted(t)]; g, b = r(*sh), r(*sh); full = [x.shape[i] if i in t else 1 for i in range(3)]
        f = lambda v, e: (v - v.mean(t, keepdims=True)) / np.sqrt(((v - v.mean(t, keepdims=True)) ** 2).mean(t, keepdims=True) + e)
        ar = {} if ax is None else {"axes": C(np.array(ax, I))}
        case("layer_norm", w64(lambda v: f(v, 1e-5), x), 2e-6, x=x, **ar)
        case("layer_norm", w64(lambda v: f(v, F(.1)) * g.reshape(full) + b.reshape(full), x), 2e-6, x=x, gamma=C(g), beta=C(b), epsilon=C(F(.1)), **ar)
    case("l2_norm", w64(lambda v: v / np.sqrt((v * v).sum((-1, -2, -3), keepdims=True) + F(1e-6)), x), 1e-6, x=x)
    red = {"reduce_sum": np.sum, "reduce_mean": np.mean, "reduce_max": np.max, "reduce_min": np.min, "reduce_prod": np.prod, "reduce_sum_square": lambda v, axis, keepdims: np.sum(v * v, axis=axis, keepdims=keepdims),
           "reduce_l1_norm": lambda v, axis, keepdims: np.sum(np.abs(v), axis=axis, keepdims=keepdims), "reduce_l2_norm": lambda v, axis, keepdims: np.sqrt(np.sum(v * v, axis=axis, keepdims=keepdims)),
           "reduce_log_sum": lambda v, axis, keepdims: np.log(np.sum(v, axis=axis, keepdims=keepdims)), "reduce_log_sum_exp": lambda v, axis, keepdims: np.log(np.sum(np.exp(v), axis=axis, keepdims=keepdims))}
    for op, f in red.items():
        v = np.abs(x) + F(.1) if op == "reduce_log_sum" else x
        for ax, keep in [([-1], True), ([0, 2], False), (None, False), ([1], False), ([0, 1, 2], True)]:
            case(op, w64(lambda u: np.asarray(f(u, axis=None if ax is None else tuple(ax), keepdims=keep)), v), 2e-6, x=v, keep_dims=C(keep), **({} if ax is None else {"axes": C(np.array(ax, I))}))
    k = ri(3, 4)
    for op in ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_sum_square", "reduce_l1_norm"): case(op, np.asarray(red[op](k, axis=1, keepdims=False)).astype(I), x=k, axes=C(np.array([1], I)))
    t = np.array([[1, 5, 5, 2], [7, 7, -1, -1], [0, np.nan, 9, np.nan]], F)
    for op, f in {"reduce_argmax": np.argmax, "reduce_argmin": np.argmin}.items():
        case(op, f(t, 1), x=t, axis=C(np.array(1, I))); case(op, f(t[:2], 0), x=t[:2], axis=C(np.array(0, I))); case(op, f(k, -1)[:, None], x=k, axis=C(np.array(-1, I)), keep_dims=C(True))
        case(op, tensor(f(t, 1).astype(I), "uint16"), x=t, axis=C(np.array(1, I)), output_dtype=C("uint16"))
    for a in (0, 1, -1):
        for ex in (False, True):
            for rev in (False, True):
                f = lambda v: (lambda w: (lambda c: np.flip(c, a) if rev else c)(np.cumsum(w, a) - (w if ex else 0)))(np.flip(v, a) if rev else v)
                case("cumsum", w64(f, x), 2e-6, x=x, axis=C(np.array(a, I)), exclusive=C(ex), reverse=C(rev))
    case("cumsum", np.cumsum(k, 1), x=k, axis=C(np.array(1, I)))
    x = np.array([[3, 1, 3, 2, 5], [0, -1, 4, 4, 4]], F)
    for asc in (False, True):
        for kk in (1, 3, 5):
            i = np.argsort(x if asc else -x, -1, kind="stable")[:, :kk]; case("topk", [np.take_along_axis(x, i, -1), i], x=x, k=C(np.array(kk, I)), axis=C(np.array(-1, I)), ascending=C(asc))
    i = np.argsort(-x, 0, kind="stable")[:1]; case("topk", [np.take_along_axis(x, i, 0), i], x=x, k=C(np.array(1, I)), axis=C(np.array(0, I))); case("topk", [np.take_along_axis(x, i, 0)], x=x, k=C(np.array(1, I)), axis=C(np.array(0, I)), return_indices=C(False))

    # shape
    x = r(2, 3, 4); z = ri(2, 3, 4)
    for s, want in [([6, 4], (6, 4)), ([-1, 2], (12, 2)), ([0, -1, 2], (2, 6, 2)), ([2, 2, 3, 2], (2, 2, 3, 2)), ([24], (24,)), ([1, 2, 1, 12], (1, 2, 1, 12))]: case("reshape", x.reshape(want), x=x, shape=C(np.array(s, I))); case("reshape", z.reshape(want), x=z, shape=C(np.array(s, I)))
    for pm in [(0, 2, 1), (2, 1, 0), (1, 2, 0), (-1, 0, 1)]: case("transpose", x.transpose(pm), x=x, perm=C(np.array(pm, I)))
    for ax in [[0], [1], [-1], [0, 2], [1, -1]]: case("expand_dims", np.expand_dims(x, tuple(ax)), x=x, axes=C(np.array(ax, I)))
    y = r(1, 3, 1, 2); case("squeeze", y.squeeze(), x=y); case("squeeze", y.squeeze(0), x=y, axes=C(np.array([0], I))); case("squeeze", y.squeeze((0, 2)), x=y, axes=C(np.array([0, -2], I)))
    for a in (0, 1, -1):
        parts = [r(*[(i + 1 if d == a % 3 else s) for d, s in enumerate((2, 3, 4))]) for i in range(3)]; case("concat", np.concatenate(parts, a), values=parts, axis=C(np.array(a, I)))
        parts = [r(2, 3, 4) for _ in range(3)]; il = np.stack(parts, a % 3 + 1).reshape([d * 3 if i == a % 3 else d for i, d in enumerate((2, 3, 4))]); case("concat", il, values=parts, axis=C(np.array(a, I)), interleave=C(True))
    case("concat", np.array([4, 5, 7, 9], I), values=[np.array([4], I), np.array([5, 7], I), np.array([9], I)], axis=C(np.array(0, I))); case("concat", x, values=[x], axis=C(np.array(1, I)))
    for a in (0, 1, 3, -1): parts = [r(2, 3, 4) for _ in range(2)]; case("stack", np.stack(parts, a), values=parts, axis=C(np.array(a, I)))
    case("split", np.split(x, 2, 2), x=x, num_splits=C(np.array(2, I)), axis=C(np.array(2, I))); case("split", np.split(x, [1], 1), x=x, split_sizes=C(np.array([1, 2], I)), axis=C(np.array(1, I)))
    for reps in [(1, 2, 1), (2, 1, 3), (1, 1, 1)]: case("tile", np.tile(x, reps), x=x, reps=C(np.array(reps, I)))
    for ax in [None, [0], [1, -1]]: case("reverse", np.flip(x, None if ax is None else tuple(ax)), x=x, **({} if ax is None else {"axes": C(np.array(ax, I))}))
    for pd, mode in [([1, 2], "constant"), ([0, 1, 2, 0], "constant"), ([1, 1, 0, 2, 1, 0], "constant"), ([1, 2, 2, 1], "reflect"), ([2, 1, 3, 0], "replicate")]:
        n = len(pd) // 2; wd = [(0, 0)] * (3 - n) + [(pd[2 * i], pd[2 * i + 1]) for i in range(n)]
        case("pad", np.pad(x, wd, constant_values=F(1.5)) if mode == "constant" else np.pad(x, wd, mode={"reflect": "reflect", "replicate": "edge"}[mode]), note=mode, x=x, pad=C(np.array(pd, I)), mode=C(mode), **({"constant_val": C(F(1.5))} if mode == "constant" else {}))
    case("shape", np.array([2, 3, 4], I), x=x); case("fill", np.full((2, 3), F(2.5)), shape=C(np.array([2, 3], I)), value=C(F(2.5))); case("fill_like", np.full((2, 3, 4), F(1)), ref_tensor=x, value=C(F(1)))
    case("range_1d", np.arange(2, 11, 3, dtype=I), start=C(np.array(2, I)), end=C(np.array(11, I)), step=C(np.array(3, I))); case("range_1d", np.arange(1, 0, -.25, dtype=F), start=C(F(1)), end=C(F(0)), step=C(F(-.25)))
    for lo, up in [(-1, -1), (0, -1), (-1, 0), (1, 1), (0, 0)]:
        i, j = np.arange(5)[:, None], np.arange(4)[None]; y = r(2, 5, 4); case("band_part", np.where(((lo < 0) | (i - j <= lo)) & ((up < 0) | (j - i <= up)), y, 0), x=y, lower=C(np.array(lo, I)), upper=C(np.array(up, I)))

    # indexing; begin and end as inputs too
    x = r(4, 5, 6)
    for b, e, st, bm, em, sq, ix in [
        ([1, 0, 2], [3, 5, 6], None, None, None, None, np.s_[1:3, 0:5, 2:6]), ([0, 1, 0], [4, 4, 6], [2, 1, 3], None, None, None, np.s_[0:4:2, 1:4, 0:6:3]), ([-2, -3, 0], [4, -1, 2], None, None, None, None, np.s_[-2:, -3:-1, 0:2]),
        ([3, 4, 5], [0, 0, 0], [-1, -2, -1], None, None, None, np.s_[3:0:-1, 4:0:-2, 5:0:-1]), ([1, 9, 9], [9, 9, 1], None, [0, 1, 1], [1, 1, 0], None, np.s_[1:, :, :1]), ([3, 0, 0], [0, 1, 1], None, None, [1, 1, 1], None, np.s_[3:, :, :]),
        ([2, 0, 1], [3, 5, 2], None, None, None, [1, 0, 0], np.s_[2, 0:5, 1:2]), ([-1, 2, 0], [0, 3, 6], None, None, [0, 0, 1], [1, 1, 0], np.s_[-1, 2, :]), ([0, 0, 0], [9, 9, 9], None, None, None, None, np.s_[:, :, :])]:
        ar = {}
        if st: ar["stride"] = C(np.array(st, I))
        if bm: ar["begin_mask"] = C(np.array(bm, bool))
        if em: ar["end_mask"] = C(np.array(em, bool))
        if sq: ar["squeeze_mask"] = C(np.array(sq, bool))
        case("slice_by_index", x[ix], x=x, begin=C(np.array(b, I)), end=C(np.array(e, I)), **ar)
        case("slice_by_index", x[ix], note="bounds are inputs", x=C(x), begin=np.array(b, I), end=np.array(e, I), **ar)
        y = x.copy(); u = r(*x[ix].shape); y[ix] = u
        case("slice_update", y, x=x, update=u, begin=C(np.array(b, I)), end=C(np.array(e, I)), **ar); case("slice_update", y, note="bounds are inputs", x=x, update=u, begin=np.array(b, I), end=np.array(e, I), **ar)
        zi = ri(4, 5, 6); yi = zi.copy(); ui = ri(*x[ix].shape); yi[ix] = ui; case("slice_update", yi, x=zi, update=ui, begin=C(np.array(b, I)), end=C(np.array(e, I)), **ar)
    case("slice_by_size", x[1:3, 0:5, 2:3], x=x, begin=C(np.array([1, 0, 2], I)), size=C(np.array([2, 5, 1], I))); case("slice_by_size", x[1:, 2:4, 3:], x=x, begin=C(np.array([1, 2, 3], I)), size=C(np.array([-1, 2, -1], I)))
    case("slice_by_size", x[1:3, 0:5, 2:3], note="begin is an input", x=x, begin=np.array([1, 0, 2], I), size=C(np.array([2, 5, 1], I)))
    for a in (0, 1, 2, -1):
        n = x.shape[a]; i = rng.integers(-n, n, (2, 3)).astype(I); case("gather", np.take(x, i % n, a), x=x, indices=i, axis=C(np.array(a, I))); case("gather", np.take(x, i[0, 0] % n, a), x=x, indices=i[0, 0] * np.ones((), I), axis=C(np.array(a, I)))
        ig = rng.integers(-n, n, [d if k2 != a % 3 else 3 for k2, d in enumerate(x.shape)]).astype(I); case("gather_along_axis", np.take_along_axis(x, ig % n, a), x=x, indices=ig, axis=C(np.array(a, I)))
    i = rng.integers(0, 6, (4, 2)).astype(I); case("gather", np.stack([x[j][:, i[j]] for j in range(4)]), x=x, indices=i, axis=C(np.array(2, I)), batch_dims=C(np.array(1, I)))
    zz = ri(7, 3); i = np.array([6, 0, -1], I); case("gather", zz[i], x=zz, indices=i, axis=C(np.array(0, I)))
    i = np.stack([rng.integers(0, 4, (3, 2)), rng.integers(0, 5, (3, 2))], -1).astype(I); case("gather_nd", x[i[..., 0], i[..., 1]], x=x, indices=i)
    i = np.stack([rng.integers(0, 4, 3), rng.integers(0, 5, 3), rng.integers(-6, 6, 3)], -1).astype(I); case("gather_nd", x[i[..., 0], i[..., 1], i[..., 2]], x=x, indices=i)
    i = rng.integers(0, 5, (4, 2, 1)).astype(I); case("gather_nd", np.stack([x[j][i[j, :, 0]] for j in range(4)]), x=x, indices=i, batch_dims=C(np.array(1, I)))

text = "[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]\n"
Path(__file__).with_name("ops.json.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
print(len(cases), "cases of", len({c["op"] for c in cases}), "operations")
