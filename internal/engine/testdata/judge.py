"""A judge of ML Programs: what every operation gives, in numpy.

The operations that the oracle (mil_numpy.py in the shared material) knows are its own; the others are written here from
MIL's public documentation (the docstrings of coremltools' operations), with the plainest loops that say what it says.
Nothing here is taken from, or shared with, the engine.

Where the documentation leaves something open, the numbers that Apple published with coremltools decide; published()
holds the judge to those.
"""
import importlib.util, math
from pathlib import Path
import numpy as np


def load_oracle(path):
    s = importlib.util.spec_from_file_location("mil_numpy", path); m = importlib.util.module_from_spec(s); s.loader.exec_module(m)
    return m


def make(oracle):
    """Returns the judge's class, made of the oracle module."""
    F, sig = oracle.F, oracle.sigmoid
    D = lambda a: np.asarray(a, np.float64)
    INT = {"int32": np.int32, "int16": np.int16, "uint16": np.uint16, "int8": np.int8, "uint8": np.uint8}
    GRIDS = {
        "STRICT_ALIGN_CORNERS": lambda n, m: np.arange(m) * ((n - 1) / (m - 1) if m > 1 else 0),
        "ALIGN_CORNERS": lambda n, m: np.arange(m) * ((n - 1) / (m - 1)) if m > 1 else np.array([(n - 1) / 2]),
        "DEFAULT": lambda n, m: np.arange(m) * ((n - n / m) / (m - 1) if m > 1 else 0),
        "OFFSET_CORNERS": lambda n, m: .5 * max(1, n - 1) / m + np.arange(m) * (max(1, n - 1) / m),
        "UNALIGN_CORNERS": lambda n, m: np.arange(m) * (n / m) + .5 * n / m - .5,
    }
    ACT = {"tanh": np.tanh, "sigmoid": sig, "relu": lambda x: np.maximum(x, 0), "linear": lambda x: x,
           "hard_sigmoid": lambda x: np.clip(.2 * x + .5, 0, 1), "sigmoid_hard": lambda x: np.clip(.2 * x + .5, 0, 1), "scaled_tanh": lambda x: 1.7159 * np.tanh(2 / 3 * x)}

    def lerp(x, axis, pos):
        """Linear interpolation of x along an axis at positions within it."""
        lo = np.floor(pos).astype(int); hi = np.minimum(lo + 1, x.shape[axis] - 1)
        w = (pos - lo).reshape([-1 if a == axis % x.ndim else 1 for a in range(x.ndim)])
        return np.take(x, lo, axis) * (1 - w) + np.take(x, hi, axis) * w

    def grid(mode, n, m): return np.clip(GRIDS[mode](n, m), 0, n - 1)

    def nearest(mode, n, m, half):  # half 0: the element before, .5: the nearest
        return np.clip(np.floor(GRIDS[mode](n, m) + half), 0, n - 1).astype(int)

    def sample(img, y, x, kind, edge, pad):
        """One channel at one place: img[y, x] of a picture that goes on beyond its edges."""
        h, w = img.shape

        def fold(v, n):
            if edge == "border": return min(max(v, 0), n - 1)
            if edge == "reflection":
                if n == 1: return 0
                v = abs(v) % (2 * (n - 1)); return 2 * (n - 1) - v if v > n - 1 else v
            if edge == "symmetric":
                v = abs(v + .5) % (2 * n); v = 2 * n - v if v > n else v
                return min(max(v - .5, 0), n - 1)
            return v
        y, x = fold(y, h), fold(x, w)
        at = lambda i, j: img[i, j] if 0 <= i < h and 0 <= j < w else pad
        if kind == "nearest": return at(int(np.rint(y)), int(np.rint(x)))
        i, j = math.floor(y), math.floor(x); a, b = y - i, x - j
        return sum(k * at(i + p, j + q) for p, q, k in ((0, 0, (1 - a) * (1 - b)), (0, 1, (1 - a) * b), (1, 0, a * (1 - b)), (1, 1, a * b)) if k)

    def windows(x, kernel, strides, pad_type, pad, out=None, dil=None, fill=np.nan):
        """All windows of x's spatial axes, padding marked by fill; yields position -> elements."""
        n = x.ndim - 2; st = [1] * n if strides is None else [int(s) for s in strides]; dil = dil or [1] * n
        k = [int(v) for v in kernel]; span = [(a - 1) * b + 1 for a, b in zip(k, dil)]
        t = pad_type.lower(); lo, hi = [0] * n, [0] * n
        if t == "custom": lo, hi = [int(p) for p in pad[::2]], [int(p) for p in pad[1::2]]
        if t.startswith("same"):
            for i in range(n):
                m = -(-x.shape[2 + i] // st[i]); tot = max(0, (m - 1) * st[i] + span[i] - x.shape[2 + i])
                lo[i], hi[i] = (tot // 2, tot - tot // 2) if t == "same" else (tot - tot // 2, tot // 2)
        y = np.pad(x.astype(np.float64), [(0, 0), (0, 0)] + list(zip(lo, hi)), constant_values=fill)
        if out is None: out = [(y.shape[2 + i] - span[i]) // st[i] + 1 for i in range(n)]
        for p in np.ndindex(*out):
            yield p, y[(slice(None),) * 2 + tuple(slice(a * s, min(a * s + w, y.shape[2 + i]), d) for i, (a, s, w, d) in enumerate(zip(p, st, span, dil)))]

    class Judge(oracle.Program):
        def step(self, op, env, state):
            t = op.op_type
            if t in ("cond", "while_loop"):
                outs = getattr(self, "run_" + t)(op, env, state)
                for v, o in zip(op.outputs, outs): env[v] = o
                return
            if t.startswith("list") or t == "make_list":
                env[op.outputs[0]] = getattr(self, "op_" + t)(**{k: self.get(v, env) for k, v in op.inputs.items()}, **({"op": op} if t == "make_list" else {}))
                return
            self.now = op
            super().step(op, env, state)

        def get(self, v, env):
            if not isinstance(v, (list, tuple)) and v is not None and v not in env and isinstance(v.val, (np.bool_, bool)): return np.asarray(v.val)
            return super().get(v, env)

        def run(self, fn, inputs, state):
            f, env = self.funcs[fn], {}
            for n, v in f.inputs.items(): env[v] = ("state", n) if oracle.types.is_state(v.sym_type) else oracle.value(inputs[n])
            with np.errstate(all="ignore"): return {v.name: a for v, a in zip(f.outputs, self.block(f, env, state))}

        def block(self, b, env, state):
            for op in b.operations: self.step(op, env, state)
            return [self.get(v, env) for v in b.outputs]

        def run_cond(self, op, env, state): return self.block(op.blocks[0 if bool(np.asarray(self.get(op.pred, env))) else 1], dict(env), state)

        def run_while_loop(self, op, env, state):
            vs = [self.get(v, env) for v in op.loop_vars]
            for _ in range(10000):
                if not bool(np.asarray(self.block(op.blocks[0], {**env, **dict(zip(op.blocks[0].inputs, vs))}, state)[0])): return vs
                vs = self.block(op.blocks[1], {**env, **dict(zip(op.blocks[1].inputs, vs))}, state)
            raise RuntimeError("endless loop")

        # lists: Python lists with None where nothing was written
        def op_make_list(s, op, init_length=1, dynamic_length=True, elem_shape=(), dtype="fp32"):
            z = np.zeros([0 if isinstance(d, (str, bytes)) else int(d) for d in elem_shape], oracle.DT[dtype])
            return [z] * int(init_length)
        def op_list_length(s, ls): return np.int32(len(ls))
        def op_list_read(s, ls, index): return ls[int(index)]
        def op_list_write(s, ls, index, value):
            ls = list(ls); ls += [np.zeros_like(value)] * (int(index) + 1 - len(ls)); ls[int(index)] = value; return ls
        def op_list_gather(s, ls, indices): return np.stack([ls[int(i)] for i in indices])
        def op_list_scatter(s, ls, indices, value):
            for i, v in zip(indices, value): ls = s.op_list_write(ls, i, v)
            return ls

        # elementwise
        def op_logical_xor(s, x, y): return x ^ y
        def op_relu6(s, x): return np.minimum(np.maximum(x, 0), 6)
        def op_softsign(s, x): return x / (1 + np.abs(x))
        def op_tan(s, x): return np.tan(D(x))
        def op_asin(s, x): return np.arcsin(D(x))
        def op_acos(s, x): return np.arccos(D(x))
        def op_atan(s, x): return np.arctan(D(x))
        def op_sinh(s, x): return np.sinh(D(x))
        def op_cosh(s, x): return np.cosh(D(x))
        def op_asinh(s, x): return np.arcsinh(D(x))
        def op_acosh(s, x): return np.arccosh(D(x))
        def op_atanh(s, x): return np.arctanh(D(x))
        def op_exp2(s, x): return np.exp2(D(x)).astype(x.dtype)
        def op_elu(s, x, alpha): return np.where(x > 0, x, alpha * np.expm1(np.minimum(D(x), 0)))
        def op_leaky_relu(s, x, alpha): return np.where(x >= 0, x, alpha * x)
        def op_thresholded_relu(s, x, alpha): return np.where(x >= alpha, x, 0).astype(x.dtype)
        def op_threshold(s, x, alpha): return np.maximum(x, alpha)
        def op_clamped_relu(s, x, alpha, beta): return np.minimum(beta, np.where(x >= 0, x, alpha * x))
        def op_linear_activation(s, x, alpha, beta): return alpha * x + beta
        def op_scaled_tanh(s, x, alpha, beta): return alpha * np.tanh(D(beta * x))
        def op_sigmoid_hard(s, x, alpha, beta): return np.clip(alpha * x + beta, 0, 1)
        def chan(s, a, x): return a.reshape([-1] + [1] * (x.ndim - 2))
        def op_prelu(s, x, alpha): return np.where(x > 0, x, s.chan(alpha, x) * x)
        def op_softplus_parametric(s, x, alpha, beta): return s.chan(alpha, x) * np.logaddexp(0, D(s.chan(beta, x) * x))
        def op_cast(s, x, dtype):
            if x.dtype == F and dtype in INT: return np.trunc(D(x)).astype(np.int64).astype(INT[dtype]).astype(np.int32)
            if x.dtype != np.bool_ and dtype in INT: return x.astype(INT[dtype]).astype(np.int32)
            return x.astype(np.bool_ if dtype == "bool" else np.int32 if dtype in INT else F)
        def op_quantize(s, input, scale, output_dtype, zero_point=None, axis=None):
            sh = [-1 if axis is not None and a == int(axis) % input.ndim else 1 for a in range(input.ndim)]
            sc = scale.reshape(sh) if np.ndim(scale) else scale
            z = 0 if zero_point is None else np.reshape(zero_point, sh) if np.ndim(zero_point) else zero_point
            lo, hi = (0, 255) if output_dtype == "uint8" else (-128, 127)
            return np.clip(np.around((input / sc).astype(F)) + np.asarray(z, F), lo, hi).astype(np.int32)
        def op_dequantize(s, input, scale, zero_point=None, axis=None):
            sh = [-1 if axis is not None and a == int(axis) % input.ndim else 1 for a in range(input.ndim)]
            sc = np.reshape(scale, sh) if np.ndim(scale) else scale
            z = 0 if zero_point is None else np.reshape(zero_point, sh) if np.ndim(zero_point) else zero_point
            return (input.astype(F) - np.asarray(z, F)) * sc

        # convolutions and pooling
        def op_conv(s, x, weight, bias=None, strides=None, pad_type="valid", pad=None, dilations=None, groups=1):
            g, dil = int(groups), None if dilations is None else [int(d) for d in dilations]
            oc = weight.shape[0]; w = D(weight).reshape(g, oc // g, -1); out = {}
            for p, v in windows(x, weight.shape[2:], strides, pad_type, pad, dil=dil, fill=0):
                out[p] = np.einsum("ngk,gok->ngo", v.reshape(x.shape[0], g, -1), w).reshape(x.shape[0], oc)
            size = tuple(m + 1 for m in max(out)); y = np.empty((x.shape[0], oc) + size)
            for p, v in out.items(): y[(slice(None),) * 2 + p] = v
            return y if bias is None else y + s.chan(D(bias), y)
        def op_conv_quantized(s, x, weight, quantization_type, quant_scale, quant_bias, nbits=8, bias=None, **k):
            assert quantization_type == "linear" and int(nbits) == 8 and bias is None
            one = lambda a: np.reshape(a, [-1] + [1] * (weight.ndim - 1)) if np.size(a) > 1 else np.reshape(a, ())
            return s.op_conv(x, (weight.astype(F) * one(quant_scale) + one(quant_bias)).astype(F), **k)
        def op_conv_transpose(s, x, weight, bias=None, pad=None, output_shape=None, pad_type="valid", strides=None, dilations=None, groups=1):
            n, g = x.ndim - 2, int(groups); st = [1] * n if strides is None else [int(v) for v in strides]; di = [1] * n if dilations is None else [int(v) for v in dilations]
            k, d = weight.shape[2:], x.shape[2:]; full = [(d[i] - 1) * st[i] + (k[i] - 1) * di[i] + 1 for i in range(n)]
            lo, hi = [0] * n, [0] * n
            if pad_type == "custom": lo, hi = [int(v) for v in pad[::2]], [int(v) for v in pad[1::2]]
            out = [full[i] - lo[i] - hi[i] for i in range(n)]
            if pad_type == "same": out = [d[i] * st[i] for i in range(n)]
            if output_shape is not None: out = [int(v) for v in output_shape[2:]]
            if pad_type == "same": lo = [max(0, full[i] - out[i]) // 2 for i in range(n)]
            oc = weight.shape[1] * g; y = np.zeros((x.shape[0], oc) + tuple(full[i] + out[i] for i in range(n)))
            for p in np.ndindex(*d):
                for t in np.ndindex(*k):
                    q = tuple(p[i] * st[i] + t[i] * di[i] for i in range(n))
                    v = D(x[(slice(None),) * 2 + p]).reshape(-1, g, x.shape[1] // g); w = D(weight[(slice(None),) * 2 + t]).reshape(g, x.shape[1] // g, -1)
                    y[(slice(None),) * 2 + q] += np.einsum("ngi,gio->ngo", v, w).reshape(-1, oc)
            y = y[(slice(None),) * 2 + tuple(slice(lo[i], lo[i] + out[i]) for i in range(n))]
            return y if bias is None else y + s.chan(D(bias), y)
        def pool(s, f, x, kernel_sizes, strides, pad_type, pad, ceil_mode):
            n = x.ndim - 2; out = [int(v) for v in s.now.outputs[0].shape[2:]] if bool(ceil_mode) else None; got = {}
            for p, v in windows(x, kernel_sizes, strides, pad_type, pad, out): got[p] = f(v.reshape(v.shape[:2] + (-1,)))
            y = np.empty(x.shape[:2] + tuple(m + 1 for m in max(got)))
            for p, v in got.items(): y[(slice(None),) * 2 + p] = v
            return y
        def op_max_pool(s, x, kernel_sizes, pad_type, strides=None, pad=None, ceil_mode=False):
            return s.pool(lambda v: np.nanmax(v, -1), x, kernel_sizes, strides, pad_type, pad, ceil_mode)
        def op_l2_pool(s, x, kernel_sizes, pad_type, strides=None, pad=None, ceil_mode=False):
            return s.pool(lambda v: np.sqrt(np.nansum(v * v, -1)), x, kernel_sizes, strides, pad_type, pad, ceil_mode)
        def op_avg_pool(s, x, kernel_sizes, pad_type, strides=None, pad=None, ceil_mode=False, exclude_padding_from_average=False):
            f = (lambda v: np.nanmean(v, -1)) if bool(exclude_padding_from_average) else (lambda v: np.nansum(v, -1) / v.shape[-1])
            return s.pool(f, x, kernel_sizes, strides, pad_type, pad, ceil_mode)

        # normalizations
        def op_batch_norm(s, x, mean, variance, gamma=None, beta=None, epsilon=F(1e-5)):
            y = (D(x) - s.chan(mean, x)) / np.sqrt(D(s.chan(variance, x)) + epsilon)
            y = y if gamma is None else y * s.chan(gamma, x)
            return y if beta is None else y + s.chan(beta, x)
        def op_instance_norm(s, x, gamma=None, beta=None, epsilon=F(1e-5)):
            ax = tuple(range(2, x.ndim)); d = D(x) - D(x).mean(ax, keepdims=True); y = d / np.sqrt((d * d).mean(ax, keepdims=True) + epsilon)
            y = y if gamma is None else y * s.chan(gamma, x)
            return y if beta is None else y + s.chan(beta, x)
        def op_local_response_norm(s, x, size, alpha=F(1e-4), beta=F(.75), k=F(1)):
            q, n = D(x) ** 2, int(size); y = np.empty(x.shape)
            for c in range(x.shape[1]): y[:, c] = x[:, c] / (k + alpha / n * q[:, max(0, c - n // 2):c + (n - 1) // 2 + 1].sum(1)) ** D(beta)
            return y

        # reductions
        def op_reduce_log_sum(s, x, axes=None, keep_dims=False): return np.log(s.red(np.sum, D(x), axes, keep_dims))
        def op_reduce_log_sum_exp(s, x, axes=None, keep_dims=False): return np.log(s.red(np.sum, np.exp(D(x)), axes, keep_dims))
        def op_argsort(s, x, axis=-1, ascending=False): return np.argsort(x if bool(ascending) else -D(x), int(axis), kind="stable")
        def op_topk(s, x, k=1, axis=-1, ascending=False, sort=True, return_indices=True, output_indices_dtype=None):
            v, i = super().op_topk(x=x.astype(np.int64) if x.dtype != F else x, k=k, axis=axis, ascending=bool(ascending))
            return (v.astype(x.dtype), i) if bool(return_indices) else v.astype(x.dtype)

        # shapes
        def op_reshape(s, x, shape):
            r = len(shape); pick = lambda i: (x.shape[i] if r == x.ndim else ([1] * max(0, r - x.ndim) + list(x.shape))[i - r])
            return x.reshape([pick(i) if d == 0 else int(d) for i, d in enumerate(shape)])
        def op_reshape_like(s, x, ref_tensors, begins, ends, end_masks):
            sh = []
            for r, b, e, m in zip(ref_tensors, begins, ends, end_masks): sh += list(r.shape[int(b):] if bool(m) else r.shape[int(b):int(e)])
            return x.reshape(sh)
        def op_flatten2d(s, x, axis=1):
            a = int(axis); return x.reshape(int(np.prod(x.shape[:a])), -1)
        def op_concat(s, values, axis, interleave=False):
            if values[0].ndim == 0: return np.stack(values)
            return super().op_concat(values, axis, bool(interleave))
        def op_reverse_sequence(s, x, lengths, seq_axis=0, batch_axis=0):
            y = x.copy(); a, b = int(seq_axis) % x.ndim, int(batch_axis) % x.ndim
            for i, n in enumerate(lengths):
                ix = [slice(None)] * x.ndim; ix[b] = i; v = np.moveaxis(x[tuple(ix)], a - (a > b), 0); w = np.moveaxis(y[tuple(ix)], a - (a > b), 0)
                w[:int(n)] = v[:int(n)][::-1]
            return y
        def op_sliding_windows(s, x, axis, size, stride=1):
            a = int(axis) % x.ndim; n = (x.shape[a] - int(size)) // int(stride) + 1
            return np.stack([np.take(x, range(i * int(stride), i * int(stride) + int(size)), a) for i in range(n)], a)
        def op_one_hot(s, indices, one_hot_vector_size, axis=-1, on_value=1, off_value=0):
            hot = np.expand_dims(indices, int(axis)) == np.arange(int(one_hot_vector_size)).reshape([-1] + [1] * ((indices.ndim - int(axis)) if int(axis) >= 0 else -1 - int(axis)))
            return np.where(hot, on_value, off_value).astype(np.asarray(on_value).dtype)
        def op_non_zero(s, x): return np.argwhere(x)
        def op_range_1d(s, start, end, step): return np.arange(start, end, step, dtype=np.asarray(start).dtype)
        def op_depth_to_space(s, x, block_size):
            n, c, h, w = x.shape; b = int(block_size); y = np.empty((n, c // b // b, h * b, w * b), x.dtype)
            for i in range(b):
                for j in range(b): y[:, :, i::b, j::b] = x[:, (i * b + j) * (c // b // b):(i * b + j + 1) * (c // b // b)]
            return y
        def op_space_to_depth(s, x, block_size):
            b = int(block_size); return np.concatenate([x[:, :, i::b, j::b] for i in range(b) for j in range(b)], 1)
        def op_pixel_shuffle(s, x, upscale_factor):
            n, c, h, w = x.shape; f = int(upscale_factor); y = np.empty((n, c // f // f, h * f, w * f), x.dtype)
            for i in range(f):
                for j in range(f): y[:, :, i::f, j::f] = x[:, i * f + j::f * f]
            return y
        def op_pixel_unshuffle(s, x, downscale_factor):
            f = int(downscale_factor); y = np.empty((x.shape[0], x.shape[1] * f * f, x.shape[2] // f, x.shape[3] // f), x.dtype)
            for i in range(f):
                for j in range(f): y[:, i * f + j::f * f] = x[:, :, i::f, j::f]
            return y
        def op_space_to_batch(s, x, block_shape, paddings):
            x = np.pad(x, [(0, 0), (0, 0)] + [tuple(int(v) for v in p) for p in paddings]); a, b = (int(v) for v in block_shape)
            return np.concatenate([x[:, :, i::a, j::b] for i in range(a) for j in range(b)], 0)
        def op_batch_to_space(s, x, block_shape, crops):
            a, b = (int(v) for v in block_shape); n = x.shape[0] // (a * b); y = np.empty((n, x.shape[1], x.shape[2] * a, x.shape[3] * b), x.dtype)
            for i in range(a):
                for j in range(b): y[:, :, i::a, j::b] = x[(i * b + j) * n:(i * b + j + 1) * n]
            (t, d), (l, r) = [[int(v) for v in c] for c in crops]; return y[:, :, t:y.shape[2] - d, l:y.shape[3] - r]

        # gather and scatter
        def op_gather(s, x, indices, axis=0, batch_dims=0, validate_indices=False):
            a, b = int(axis) % x.ndim, int(batch_dims)
            if b == 0: return np.take(x, indices, a)
            return np.stack([s.op_gather(x[i], indices[i], a - 1, b - 1) for i in range(x.shape[0])])
        def op_gather_nd(s, x, indices, batch_dims=0, validate_indices=False):
            if int(batch_dims): return np.stack([s.op_gather_nd(x[i], indices[i], int(batch_dims) - 1) for i in range(x.shape[0])])
            return x[tuple(np.moveaxis(indices, -1, 0))]
        def put(s, y, ix, v, mode):
            u = {"update": lambda a: v, "add": lambda a: a + v, "sub": lambda a: a - v, "mul": lambda a: a * v, "max": lambda a: np.maximum(a, v), "min": lambda a: np.minimum(a, v),
                 "div": lambda a: a / v if a.dtype == F else np.floor_divide(a, v)}[str(mode)]
            y[ix] = u(y[ix])
        def op_scatter(s, data, indices, updates, axis=0, mode="add", validate_indices=False):
            y, a = data.copy(), int(axis) % data.ndim
            for i in np.ndindex(indices.shape): s.put(y, (slice(None),) * a + (indices[i],), updates[(slice(None),) * a + i], mode)
            return y
        def op_scatter_along_axis(s, data, indices, updates, axis=0, mode="add", validate_indices=False):
            y, a = data.copy(), int(axis) % data.ndim
            for i in np.ndindex(indices.shape): s.put(y, i[:a] + (indices[i],) + i[a + 1:], updates[i], mode)
            return y
        def op_scatter_nd(s, data, indices, updates, mode="add", validate_indices=False):
            y = data.copy()
            for i in np.ndindex(indices.shape[:-1]): s.put(y, tuple(indices[i]), updates[i], mode)
            return y
        def op_non_maximum_suppression(s, boxes, scores, iou_threshold, max_boxes, score_threshold=None, per_class_suppression=False):
            new = score_threshold is None
            if new: boxes, scores = np.moveaxis(boxes, 1, 2), np.moveaxis(scores, 1, 2)
            m = int(max_boxes); B = np.zeros((len(boxes), m, 4), F); S = np.zeros((len(boxes), m, scores.shape[2]), F); I = np.full((len(boxes), m), -1, np.int32); C = np.zeros(len(boxes), np.int32)
            for b in range(len(boxes)):
                best, cls = scores[b].max(1), scores[b].argmax(1); kept = []

                def iou(i, j):
                    (xi, yi, wi, hi), (xj, yj, wj, hj) = D(boxes[b, i]), D(boxes[b, j])
                    dx = min(xi + wi / 2, xj + wj / 2) - max(xi - wi / 2, xj - wj / 2); dy = min(yi + hi / 2, yj + hj / 2) - max(yi - hi / 2, yj - hj / 2)
                    o = max(0, dx) * max(0, dy); u = wi * hi + wj * hj - o; return o / u if u > 0 else 0
                for i in np.argsort(-best, kind="stable"):
                    if len(kept) == m or (not new and best[i] < score_threshold): break
                    if all(iou(i, j) <= iou_threshold for j in kept if not bool(per_class_suppression) or cls[i] == cls[j]): kept.append(i)
                if not kept: kept = [int(best.argmax())]
                for k, i in enumerate(kept): B[b, k], S[b, k], I[b, k] = boxes[b, i], scores[b, i], i
                C[b] = len(kept)
            return (np.moveaxis(B, 2, 1), np.moveaxis(S, 2, 1), I) if new else (B, S, I, C)

        # pictures
        def op_crop(s, x, crop_height, crop_width):
            (a, b), (c, d) = [[int(v) for v in k] for k in (crop_height, crop_width)]; return x[..., a:x.shape[-2] - b, c:x.shape[-1] - d]
        def op_resize_nearest_neighbor(s, x, target_size_height, target_size_width):
            y = np.take(x, nearest("DEFAULT", x.shape[-2], int(target_size_height), 0), -2); return np.take(y, nearest("DEFAULT", x.shape[-1], int(target_size_width), 0), -1)
        def op_resize_bilinear(s, x, target_size_height=1, target_size_width=1, sampling_mode="DEFAULT"):
            y = lerp(D(x), x.ndim - 2, grid(sampling_mode, x.shape[-2], int(target_size_height))); return lerp(y, x.ndim - 1, grid(sampling_mode, x.shape[-1], int(target_size_width)))
        def out_hw(s): return [int(v) for v in s.now.outputs[0].shape[-2:]]
        def op_upsample_nearest_neighbor(s, x, scale_factor_height=1, scale_factor_width=1): return s.op_resize_nearest_neighbor(x, *s.out_hw())
        def op_upsample_bilinear(s, x, scale_factor_height=1, scale_factor_width=1, align_corners=True, half_pixel_centers=None):
            half = not bool(align_corners) if half_pixel_centers is None else bool(half_pixel_centers)
            return s.op_resize_bilinear(x, *s.out_hw(), "STRICT_ALIGN_CORNERS" if bool(align_corners) else "UNALIGN_CORNERS" if half else "DEFAULT")
        def op_resize(s, x, shape, resized_dims, interpolation_mode="LINEAR", sampling_mode="DEFAULT"):
            n = int(resized_dims); y = D(x) if interpolation_mode == "LINEAR" else x
            for i in range(n):
                d, a = int(shape[len(shape) - n + i]), x.ndim - n + i
                if d == 0: d = x.shape[a]
                y = lerp(y, a, grid(sampling_mode, x.shape[a], d)) if interpolation_mode == "LINEAR" else np.take(y, nearest(sampling_mode, x.shape[a], d, .5), a)
            return y if x.dtype == F else np.trunc(y).astype(x.dtype)
        def op_affine(s, x, transform_matrix, output_height, output_width, **_):
            n, c, h, w = x.shape; H, W = int(output_height), int(output_width); y = np.empty((n, c, H, W))
            for b in range(n):
                m = D(transform_matrix[b if len(transform_matrix) > 1 else 0])
                for i in range(H):
                    for j in range(W):
                        u, v = (2 * j / (W - 1) - 1 if W > 1 else -1), (2 * i / (H - 1) - 1 if H > 1 else -1)
                        px, py = m[0] * u + m[1] * v + m[2], m[3] * u + m[4] * v + m[5]
                        for k in range(c): y[b, k, i, j] = sample(x[b, k], (py + 1) / 2 * (h - 1), (px + 1) / 2 * (w - 1), "bilinear", "constant", 0)
            return y
        def op_resample(s, x, coordinates, sampling_mode, padding_mode, padding_value, coordinates_mode, align_corners):
            n, c, h, w = x.shape; _, H, W, _ = coordinates.shape; y = np.empty((n, c, H, W)); mode = coordinates_mode.lower()

            def px(v, size):
                if mode == "unnormalized": return v
                if mode == "normalized_minus_one_to_one": v = (v + 1) / 2
                return v * (size - 1) if bool(align_corners) else v * size - .5
            for b, i, j in np.ndindex(n, H, W):
                X, Y = D(coordinates[b, i, j])
                for k in range(c): y[b, k, i, j] = sample(x[b, k], px(Y, h), px(X, w), sampling_mode.lower(), padding_mode.lower(), padding_value)
            return y
        def op_crop_resize(s, x, roi=None, boxes=None, box_indices=None, target_height=1, target_width=1, normalized_coordinates=False, spatial_scale=F(1), box_coordinate_mode="CORNERS_HEIGHT_FIRST", sampling_mode="DEFAULT", pad_value=F(0)):
            n, c, h, w = x.shape; H, W = int(target_height), int(target_width)

            def crop(img, box):
                v = D(box) * float(spatial_scale); mode = box_coordinate_mode
                if mode.endswith("WIDTH_FIRST"): v = v[[1, 0, 3, 2]]
                y0, x0, y1, x1 = v if mode.startswith("CORNERS") else (v[0] - v[2] / 2, v[1] - v[3] / 2, v[0] + v[2] / 2, v[1] + v[3] / 2)
                if bool(normalized_coordinates): y0, y1, x0, x1 = y0 * (h - 1), y1 * (h - 1), x0 * (w - 1), x1 * (w - 1)

                def pts(a, b, m): g = GRIDS[sampling_mode](b - a + 1, m); return a + np.clip(g, min(0, b - a), max(0, b - a))
                return np.array([[[sample(img[k], p, q, "bilinear", "border", 0) if 0 <= p <= h - 1 and 0 <= q <= w - 1 else pad_value for q in pts(x0, x1, W)] for p in pts(y0, y1, H)] for k in range(c)])
            if boxes is not None:
                ix = range(len(boxes)) if box_indices is None else box_indices
                return np.stack([crop(x[int(i)], b) for i, b in zip(ix, boxes)])
            r = roi.reshape(roi.shape[0], -1)
            if r.shape[1] == 5: return np.stack([crop(x[int(b[0])], b[1:])[None] for b in r])
            return np.stack([np.stack([crop(p, b) for p in x]) for b in r])

        # recurrences
        def steps(s, x, direction, f):
            ys = [f(D(v)) for v in (x[::-1] if direction == "reverse" else x)]
            return np.stack(ys)
        def op_rnn(s, x, initial_h, weight_ih, weight_hh, bias=None, direction="forward", output_sequence=False, activation="tanh"):
            h, act = D(initial_h), ACT[activation.lower()]

            def one(v):
                nonlocal h; h = act(v @ weight_ih.T + h @ weight_hh.T + (0 if bias is None else bias)); return h
            y = s.steps(x, direction, one); return (y if bool(output_sequence) else y[-1:]), h
        def op_gru(s, x, initial_h, weight_ih, weight_hh, bias=None, direction="forward", output_sequence=False, recurrent_activation="sigmoid", activation="tanh", reset_after=False, input_bias=None):
            h, g, a = D(initial_h), ACT[recurrent_activation.lower()], ACT[activation.lower()]; H = weight_hh.shape[1]
            Wr, Wo, Wz = np.split(D(weight_ih), 3); Rr, Ro, Rz = np.split(D(weight_hh), 3)
            br, bo, bz = np.split(D(np.zeros(3 * H) if bias is None else bias), 3); ir, io, iz = np.split(D(np.zeros(3 * H) if input_bias is None else input_bias), 3)

            def one(v):
                nonlocal h
                r = g(v @ Wr.T + h @ Rr.T + br + ir); z = g(v @ Wz.T + h @ Rz.T + bz + iz)
                o = a(v @ Wo.T + io + r * (h @ Ro.T + bo)) if bool(reset_after) else a(v @ Wo.T + io + (r * h) @ Ro.T + bo)
                h = (1 - z) * o + z * h; return h
            y = s.steps(x, direction, one); return (y if bool(output_sequence) else y[-1:]), h
        def op_lstm(s, x, initial_h, initial_c, weight_ih, weight_hh, bias=None, peephole=None, weight_ih_back=None, weight_hh_back=None, bias_back=None, peephole_back=None,
                    direction="forward", output_sequence=False, recurrent_activation="sigmoid", cell_activation="tanh", activation="tanh", clip=None):
            g, ca, a = (ACT[k.lower()] for k in (recurrent_activation, cell_activation, activation)); H = weight_hh.shape[1]

            def way(x, h, c, wi, wh, b, p):
                ys = []; p = D(np.zeros(3 * H) if p is None else p)
                for v in D(x):
                    i, f, o, z = np.split(v @ D(wi).T + h @ D(wh).T + (0 if b is None else b), 4, -1)
                    c = g(f + p[H:2 * H] * c) * c + g(i + p[:H] * c) * ca(z)
                    if clip is not None: c = np.clip(c, -clip, clip)
                    h = g(o + p[2 * H:] * c) * a(c); ys.append(h)
                return np.stack(ys), h, c
            if direction != "bidirectional":
                y, h, c = way(x[::-1] if direction == "reverse" else x, D(initial_h), D(initial_c), weight_ih, weight_hh, bias, peephole)
                return (y if bool(output_sequence) else y[-1:]), h, c
            yf, hf, cf = way(x, D(initial_h[:, :H]), D(initial_c[:, :H]), weight_ih, weight_hh, bias, peephole)
            yb, hb, cb = way(x[::-1], D(initial_h[:, H:]), D(initial_c[:, H:]), weight_ih_back, weight_hh_back, bias_back, peephole_back)
            h, c = np.concatenate([hf, hb], -1), np.concatenate([cf, cb], -1)
            return (np.concatenate([yf, yb[::-1]], -1) if bool(output_sequence) else h[None]), h, c

    return Judge


def published(Judge):
    """Holds the judge to numbers that Apple published with coremltools (its tests of operations, run on Core ML).

    Not among them: the test of local_response_norm with three channels, whose numbers are those of windows of one channel;
    the test beside it, against PyTorch, has the windows of the documentation.
    """
    j = object.__new__(Judge); f = lambda *v: np.array(v, np.float32)
    j.now = None

    def same(name, got, want): np.testing.assert_allclose(np.ravel(got), np.ravel(want), rtol=2e-4, atol=2e-4, err_msg=name)
    x = f(11, 22, 33, 44).reshape(1, 1, 2, 2)
    m = f(-1, -2, -3.7, -1, 3.5, 1.2).reshape(1, 6)
    same("affine", j.op_affine(x, m, 3, 3), [10.752501, 2.5025, 0, 1.98, 0, 0, 0, 0, 0]); same("affine", j.op_affine(x, m, 2, 5), [10.752501, 5.94, 2.5025, .44, 0, 0, 0, 0, 0, 0])
    c = f(-1, -2, -3.7, -1, 0, 0, 3.5, 1.2).reshape(1, 2, 2, 2)
    for k, want in ((("bilinear", "constant", 6.17, "normalized_minus_one_to_one", True), [8.585, 6.17, 27.5, 6.17]), (("nearest", "border", -1, "unnormalized", False), [11, 11, 11, 44]),
                    (("bilinear", "reflection", -1, "normalized_zero_to_one", True), [22, 36.3, 11, 34.1]), (("nearest", "symmetric", -1, "normalized_zero_to_one", False), [22, 33, 11, 33])):
        same("resample", j.op_resample(x, c, *k), want)
    x = np.arange(1, 17, dtype=np.float32).reshape(1, 1, 4, 4); b = f(1, 1, 2, 2).reshape(1, 4)
    same("crop_resize", j.op_crop_resize(x, boxes=b, target_height=2, target_width=2, sampling_mode="ALIGN_CORNERS"), [6, 7, 10, 11])
    same("crop_resize", j.op_crop_resize(x, boxes=b, target_height=1, target_width=1, sampling_mode="ALIGN_CORNERS"), [8.5])
    same("crop_resize", j.op_crop_resize(x, boxes=f(2, 2, 1, 1).reshape(1, 4), target_height=2, target_width=2, sampling_mode="ALIGN_CORNERS"), [11, 10, 7, 6])
    same("crop_resize", j.op_crop_resize(x, boxes=f(.1, .3, 1.3, 1, .5, 1.8, 1, .3, 0, .4, .6, .7).reshape(3, 4), box_indices=[0] * 3, target_height=2, target_width=2, normalized_coordinates=True, sampling_mode="ALIGN_CORNERS", pad_value=10.),
         [3.1, 5.2, 10, 10, 10, 7.899, 10, 13.9, 2.2, 3.1, 9.4, 10.3])
    x = f(0, 1).reshape(1, 1, 2)
    for mode, want in (("STRICT_ALIGN_CORNERS", [0, .25, .5, .75, 1]), ("DEFAULT", [0, .4, .8, 1, 1]), ("OFFSET_CORNERS", [.1, .3, .5, .7, .9]), ("UNALIGN_CORNERS", [0, .1, .5, .9, 1])):
        same(mode, j.op_resize_bilinear(x, 1, 5, mode), want)
    same("resize", j.op_resize(f(-6.174, 9.371).reshape(1, 1, 1, 2, 1), [1, 1, 3, 2], 2, "NEAREST_NEIGHBOR"), [-6.174, -6.174, 9.371, 9.371, 9.371, 9.371])
    same("reverse_sequence", j.op_reverse_sequence(f(1, 2, 3, 4, 5, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0).reshape(2, 8), [7, 2], 1, 0), [0, 0, 5, 4, 3, 2, 1, 0, 2, 1, 0, 0, 0, 0, 0, 0])
    same("one_hot", j.op_one_hot(np.array([1, 0]), 4, 0), [0, 1, 1, 0, 0, 0, 0, 0]); same("one_hot", j.op_one_hot(np.array([1, 0]), 4, -1, 1., .1), [.1, 1, .1, .1, 1, .1, .1, .1])
    same("pool", j.op_avg_pool(f(1, 2).reshape(1, 1, 2), [2], "same_lower"), [.5, 1.5]); same("pool", j.op_l2_pool(f(1, 2, 3, 4).reshape(1, 1, 2, 2), [2, 2], "same_lower"), [1, 2.236068, 3.162278, 5.477226])
    bx = np.repeat(np.arange(4, dtype=np.float32), 4).reshape(1, 4, 4); sc = f(-3.5, 9.4, 2.3, .7).reshape(1, 4, 1)
    for g, want in zip(j.op_non_maximum_suppression(bx, sc, .2, 2, .4, True), ([1, 1, 1, 1, 2, 2, 2, 2], [9.4, 2.3], [1, 2], [2])): same("non_maximum_suppression", g, want)
    same("upsample", j.op_resize_nearest_neighbor(f(1.5, -2.5, 3.5).reshape(1, 1, 1, 3), 3, 2), [1.5, -2.5] * 3)
    x = np.arange(1, 17, dtype=np.float32).reshape(2, 1, 2, 4); y = [0, 1, 3, 0, 9, 11, 0, 2, 4, 0, 10, 12, 0, 5, 7, 0, 13, 15, 0, 6, 8, 0, 14, 16]
    same("space_to_batch", j.op_space_to_batch(x, [2, 2], [[0, 0], [2, 0]]), y); same("batch_to_space", j.op_batch_to_space(f(*y).reshape(8, 1, 1, 3), [2, 2], [[0, 0], [2, 0]]), x)
    same("depth_to_space", j.op_depth_to_space(f(9, 5, 1, 3).reshape(1, 4, 1, 1), 2), [9, 5, 1, 3]); same("space_to_depth", j.op_space_to_depth(f(7, 9, 4, 6).reshape(1, 1, 2, 2), 2), [7, 9, 4, 6])
