"""Small ML Programs made with coremltools' own builder, and what they give: programs/ beside this file.

usage: python make_programs.py ORACLE [PATTERN]     (needs coremltools 9, numpy, safetensors; ORACLE is mil_numpy.py)

programs/NAME.mlpackage is a program, as coremltools saves it. programs/values.safetensors.gz has for every case k of it the
inputs "NAME/k/in/x" and the outputs "NAME/k/out/y" that the judge (judge.py) gives. Numbers of fp16 programs are fp16
numbers, and the judge computes with them in float32.
"""
import sys, json, uuid, gzip, shutil, fnmatch, warnings, logging
from pathlib import Path
import numpy as np
warnings.filterwarnings("ignore"); logging.disable(logging.WARNING)
import coremltools as ct
from coremltools.converters.mil.mil import Builder as mb, types, get_new_symbol
from coremltools.converters.mil.mil.types import type_mapping as tm
from safetensors.numpy import save, load
import judge as judges

HERE = Path(__file__).parent
OUT = HERE / "programs"
T15, T16, T17, T18 = ct.target.iOS15, ct.target.iOS16, ct.target.iOS17, ct.target.iOS18
F, H, I, B = np.float32, np.float16, np.int32, np.bool_
TY = {F: types.fp32, H: types.fp16, I: types.int32, B: types.bool}
rng = np.random.default_rng(11)
oracle = judges.load_oracle(sys.argv[1])
Judge = judges.make(oracle)
judges.published(Judge)
only = sys.argv[2] if len(sys.argv) > 2 else "*"
VALUES = OUT / "values.safetensors.gz"
values = load(gzip.decompress(VALUES.read_bytes())) if only != "*" and VALUES.exists() else {}
names, ops = [], set()


class V:
    """An input: its shape (a number, a (low, high) range or a [list] of alternatives per dimension), type and numbers."""
    def __init__(s, *shape, t=F, lo=-2., hi=2., data=None, state=False): s.shape, s.t, s.lo, s.hi, s.data, s.state = shape, t, lo, hi, data, state

    def draw(s, shape):
        shape = shape or (1,)  # coremltools has no inputs of rank 0: they are squeezed inside
        if s.data is not None: return np.asarray(s.data, s.t).reshape(shape)
        if s.t == B: return rng.integers(0, 2, shape).astype(B)
        if s.t == I: return rng.integers(int(s.lo), int(s.hi) + 1, shape).astype(I)
        return rng.uniform(s.lo, s.hi, shape).astype(s.t)


def P(name, target, ins, build, cases=None):
    """Makes one program. build gets the inputs and returns a list of outputs; cases lists input values, or a number."""
    if not fnmatch.fnmatch(name, only): names.append(name); return
    syms = {}

    def spec(k, v):
        sh = []
        for i, d in enumerate(v.shape or (1,)):
            if isinstance(d, int): sh.append(d)
            else: syms[k, i] = d; sh.append(get_new_symbol())
        if v.state: return mb.StateTensorSpec(tuple(sh), dtype=TY[v.t])
        return mb.TensorSpec(tuple(sh), dtype=TY[v.t])
    # coremltools reads the names of the parameters
    args = ", ".join(ins)
    env = {"_build": build}
    exec(f"def f({args}):\n    return _build({args})", env)

    def wrap(f):
        def g(*a):
            r = f(*[mb.squeeze(x=x, axes=[0]) if v.shape == () else x for x, v in zip(a, ins.values())]); r = list(r) if isinstance(r, (list, tuple)) else [r]
            used = set()
            for i, v in enumerate(r):
                if v.op is None or v.name in used: r[i] = v = mb.identity(x=v)
                used.add(v.name)
            return tuple(mb.identity(x=v, name=f"out{i}") for i, v in enumerate(r))
        return g
    env2 = {"_g": wrap(env["f"])}
    exec(f"def f({args}):\n    return _g({args})", env2)
    prog = mb.program(input_specs=[spec(k, v) for k, v in ins.items()], opset_version=target)(env2["f"])
    kw = {}
    if syms:
        def dim(d): return ct.RangeDim(*d) if isinstance(d, tuple) else d
        if any(isinstance(d, list) for d in syms.values()):
            kw["inputs"] = [ct.TensorType(k, shape=ct.EnumeratedShapes([[d[j] if isinstance(d, list) else d for d in v.shape] for j in range(len(next(d for d in v.shape if isinstance(d, list))))]) if any(isinstance(d, list) for d in v.shape) else v.shape, dtype=v.t) for k, v in ins.items()]
        else: kw["inputs"] = [ct.TensorType(k, shape=[dim(d) for d in v.shape], dtype=v.t) for k, v in ins.items()]
    m = ct.convert(prog, source="milinternal", convert_to="mlprogram", minimum_deployment_target=target, pass_pipeline=ct.PassPipeline.EMPTY, compute_precision=ct.precision.FLOAT32, skip_model_load=True, **kw)
    path = OUT / (name + ".mlpackage"); shutil.rmtree(path, ignore_errors=True); m.save(str(path))
    man = path / "Manifest.json"  # the identifiers in it are random: make them the same every time
    weights = path / "Data/com.apple.CoreML/weights"; d = json.loads(man.read_text()); root = d["itemInfoEntries"][d["rootModelIdentifier"]]
    if not any(weights.iterdir()): weights.rmdir()  # git keeps no empty folders
    d["itemInfoEntries"] = {str(uuid.uuid5(uuid.NAMESPACE_OID, name + v["path"])).upper(): v for v in sorted(d["itemInfoEntries"].values(), key=lambda v: v["path"]) if (path / "Data" / v["path"]).exists()}
    d["rootModelIdentifier"] = next(k for k, v in d["itemInfoEntries"].items() if v == root)
    man.write_text(json.dumps(d, indent=4, sort_keys=True) + "\n")
    f = path / "Data/com.apple.CoreML/model.mlmodel"  # as is the order of maps
    spec_ = ct.proto.Model_pb2.Model(); spec_.ParseFromString(f.read_bytes()); f.write_bytes(spec_.SerializeToString(deterministic=True))
    for f in list(values):
        if f.startswith(name + "/"): del values[f]
    j = Judge(str(path))
    assert set(j.funcs["main"].inputs) == set(ins), (name, list(j.funcs["main"].inputs))

    def walk(b):
        for op in b.operations:
            ops.add(op.op_type)
            for n in op.blocks: walk(n)
    walk(j.funcs["main"])
    if cases is None or isinstance(cases, int): cases = [{}] * (1 if cases is None else cases)
    for n, c in enumerate(cases):
        x, st = {}, {}
        for k, v in ins.items():
            fixed = [d if isinstance(d, int) else d[0] for d in v.shape]
            if v.state: st[k] = np.zeros(fixed, F); continue
            got = c.get(k)
            x[k] = v.draw(fixed) if got is None else v.draw(got) if isinstance(got, tuple) else np.atleast_1d(np.asarray(got, v.t))
        out = j.run("main", x, st)
        for k, a in x.items(): values[f"{name}/{n}/in/{k}"] = np.array(a.astype(I) if a.dtype == B else a, order="C")
        for k, a in out.items():
            a = np.asarray(a); a = a.astype(F) if a.dtype.kind == "f" else a.astype(I)
            values[f"{name}/{n}/out/{k}"] = np.array(a, order="C")
        for k, a in st.items(): values[f"{name}/{n}/state/{k}"] = np.array(a, order="C")
    names.append(name)


def c(*shape, t=F, lo=-1., hi=1.):
    """A constant of random numbers, as fp16 numbers in either type."""
    if t == I: return rng.integers(int(lo), int(hi) + 1, shape).astype(I)
    return rng.uniform(lo, hi, shape).astype(H).astype(t)


def i32(v): return mb.cast(x=v, dtype="int32")
def f32(v): return mb.cast(x=v, dtype="fp32")


for t, tag, tgt in ((F, "f32", T15), (H, "f16", T17)):
    one = ["abs", "atan", "ceil", "cos", "erf", "exp", "exp2", "floor", "relu", "relu6", "round", "sigmoid", "sign", "silu", "sin", "softplus", "softsign", "square", "tan", "tanh", "sinh", "cosh", "gelu"]
    P(f"unary_{tag}", tgt, {"x": V(2, 3, 4, t=t, lo=-1.4, hi=1.4), "p": V(7, t=t, lo=.1, hi=4.), "u": V(1, 2, 3, 2, 2, t=t, lo=-.9, hi=.9), "s": V(t=t, lo=1.1, hi=3.)}, lambda x, p, u, s: [getattr(mb, o)(x=x) for o in one] +
      [mb.sqrt(x=p), mb.rsqrt(x=p), mb.log(x=p), mb.inverse(x=p), mb.log(x=p, epsilon=t(.5)), mb.rsqrt(x=p, epsilon=t(.25)), mb.inverse(x=p, epsilon=t(.5)), mb.asin(x=u), mb.acos(x=u), mb.atanh(x=u), mb.exp(x=s),
       mb.gelu(x=x, mode="TANH_APPROXIMATION"), mb.gelu(x=u, mode="SIGMOID_APPROXIMATION"), mb.clip(x=x, alpha=t(-.5), beta=t(.75)), mb.identity(x=s)])
    P(f"activations_{tag}", tgt, {"x": V(2, 3, 4, t=t), "y": V(1, 3, 2, 5, t=t), "z": V(1, 3, 2, 2, 2, t=t)}, lambda x, y, z: [
        mb.elu(x=x, alpha=t(.7)), mb.leaky_relu(x=x, alpha=t(.1)), mb.thresholded_relu(x=x, alpha=t(.5)), mb.threshold(x=x, alpha=t(.25)), mb.clamped_relu(x=y, alpha=t(.5), beta=t(1.25)), mb.linear_activation(x=y, alpha=t(2.5), beta=t(-.5)),
        mb.scaled_tanh(x=y, alpha=t(1.5), beta=t(.5)), mb.sigmoid_hard(x=y, alpha=t(.25), beta=t(.5)), mb.prelu(x=y, alpha=c(3, t=t)), mb.prelu(x=x, alpha=np.full(3, .25, t)), mb.prelu(x=z, alpha=np.full(3, -.5, t)),
        mb.softplus_parametric(x=x, alpha=c(3, t=t), beta=c(3, t=t)), mb.softplus_parametric(x=y, alpha=c(3, t=t), beta=c(3, t=t)), mb.softmax(x=x), mb.softmax(x=y, axis=1), mb.softmax(x=z, axis=-2)])
    two = ["add", "sub", "mul", "real_div", "floor_div", "mod", "maximum", "minimum"]
    P(f"binary_{tag}", tgt, {"x": V(2, 1, 3, t=t, lo=-4., hi=4.), "y": V(4, 1, t=t, lo=.5, hi=3.), "s": V(t=t, lo=-3., hi=-1.)}, lambda x, y, s: [getattr(mb, o)(x=x, y=y) for o in two] + [getattr(mb, o)(x=y, y=s) for o in two] +
      [mb.pow(x=y, y=x), mb.pow(x=y, y=s)] + [getattr(mb, o)(x=x, y=mb.floor(x=x)) for o in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")] + [mb.select(cond=mb.less(x=x, y=y), a=mb.add(x=x, y=y), b=y), mb.select(cond=mb.less(x=s, y=s), a=s, b=x)])
    P(f"reduce_{tag}", tgt, {"x": V(2, 3, 4, t=t, lo=.25, hi=2.), "y": V(5, t=t), "z": V(2, 1, 3, 2, 2, t=t)}, lambda x, y, z: [getattr(mb, "reduce_" + o)(x=x, axes=a, keep_dims=k)
        for o, a, k in (("sum", [1], False), ("mean", [0, 2], True), ("max", [-1], False), ("min", [0], True), ("prod", [1, 2], False), ("sum_square", [2], False), ("l1_norm", [1], True), ("l2_norm", [0, 1], False), ("log_sum", [2], False), ("log_sum_exp", [-2], True))] +
      [mb.reduce_sum(x=y), mb.reduce_mean(x=z), mb.reduce_max(x=z, keep_dims=True), mb.reduce_l1_norm(x=z, axes=[2, 4]), mb.reduce_log_sum_exp(x=y), mb.reduce_argmax(x=x), mb.reduce_argmin(x=z, axis=2, keep_dims=True), mb.reduce_argmax(x=y, axis=0),
       mb.cumsum(x=x, axis=1), mb.cumsum(x=x, axis=-1, exclusive=True), mb.cumsum(x=z, axis=2, reverse=True), mb.argsort(x=x), mb.argsort(x=z, axis=2, ascending=True), *mb.topk(x=x, k=2, axis=1), *mb.topk(x=y, k=3, ascending=True)])
    P(f"norm_{tag}", tgt, {"x": V(2, 3, 5, t=t), "y": V(2, 3, 4, 2, t=t), "z": V(1, 3, 2, 2, 2, t=t)}, lambda x, y, z: [
        mb.batch_norm(x=x, mean=c(3, t=t), variance=c(3, t=t, lo=.5, hi=2.), gamma=c(3, t=t), beta=c(3, t=t), epsilon=t(1e-3)), mb.batch_norm(x=y, mean=c(3, t=t), variance=c(3, t=t, lo=.5, hi=2.), epsilon=t(1e-5)), mb.batch_norm(x=z, mean=c(3, t=t), variance=c(3, t=t, lo=.5, hi=2.), beta=c(3, t=t), epsilon=t(1e-5)),
        mb.instance_norm(x=x, gamma=c(3, t=t), beta=c(3, t=t), epsilon=t(1e-2)), mb.instance_norm(x=y, epsilon=t(1e-5)), mb.l2_norm(x=x, epsilon=t(1e-6)), mb.l2_norm(x=z, epsilon=t(.25)), mb.layer_norm(x=y, axes=[2, 3], gamma=c(4, 2, t=t), beta=c(4, 2, t=t), epsilon=t(1e-3)), mb.layer_norm(x=x, axes=[-1], epsilon=t(1e-5)), mb.layer_norm(x=z, axes=[1], epsilon=t(1e-5)),
        mb.local_response_norm(x=x, size=3, alpha=t(.5), beta=t(.75), k=t(1.5)), mb.local_response_norm(x=y, size=2, alpha=t(.25), beta=t(.75), k=t(1))])
    P(f"matrix_{tag}", tgt, {"x": V(2, 3, 4, t=t), "y": V(2, 4, 5, t=t), "v": V(4, t=t), "e": V(1, 2, 3, 4, t=t), "g": V(2, 4, 3, 5, t=t)}, lambda x, y, v, e, g: [
        mb.matmul(x=x, y=y), mb.matmul(x=x, y=c(4, 6, t=t)), mb.matmul(x=x, y=c(6, 4, t=t), transpose_y=True), mb.matmul(x=y, y=x, transpose_x=True, transpose_y=True), mb.matmul(x=mb.expand_dims(x=x, axes=[1]), y=c(1, 2, 4, 3, t=t)),
        mb.linear(x=x, weight=c(7, 4, t=t), bias=c(7, t=t)), mb.linear(x=v, weight=c(2, 4, t=t)), mb.einsum(values=(e, g), equation="nchw,nwhr->nchr"), mb.einsum(values=(mb.transpose(x=x, perm=[0, 1, 2]), mb.reduce_sum(x=g, axes=[0])), equation="chw,whr->chr")])
    P(f"conv_{tag}", tgt, {"x": V(1, 4, 7, t=t), "y": V(2, 4, 5, 6, t=t), "z": V(1, 2, 4, 3, 3, t=t)}, lambda x, y, z: [
        mb.conv(x=x, weight=c(3, 4, 3, t=t), bias=c(3, t=t)), mb.conv(x=x, weight=c(4, 1, 3, t=t), groups=4, pad_type="same", strides=[2]), mb.conv(x=x, weight=c(2, 4, 1, t=t)), mb.conv(x=y, weight=c(6, 2, 3, 3, t=t), groups=2, pad_type="custom", pad=[1, 0, 2, 1], strides=[2, 1], bias=c(6, t=t)),
        mb.conv(x=y, weight=c(3, 4, 2, 3, t=t), pad_type="same", dilations=[2, 1]), mb.conv(x=y, weight=c(5, 4, 1, 1, t=t), strides=[2, 3]), mb.conv(x=z, weight=c(3, 2, 2, 2, 2, t=t), pad_type="custom", pad=[0, 1, 1, 0, 1, 1]), mb.conv(x=z, weight=c(2, 1, 3, 2, 1, t=t), groups=2, strides=[1, 2, 1])])
    P(f"conv_transpose_{tag}", tgt, {"x": V(1, 4, 5, t=t), "y": V(2, 4, 3, 4, t=t), "z": V(1, 2, 2, 3, 2, t=t)}, lambda x, y, z: [
        mb.conv_transpose(x=x, weight=c(4, 3, 3, t=t), bias=c(3, t=t)), mb.conv_transpose(x=x, weight=c(4, 1, 2, t=t), groups=2, strides=[2], pad_type="custom", pad=[1, 0]), mb.conv_transpose(x=y, weight=c(4, 2, 3, 3, t=t), groups=2, strides=[2, 1], pad_type="same", bias=c(4, t=t)),
        mb.conv_transpose(x=y, weight=c(4, 3, 2, 3, t=t), dilations=[2, 1], strides=[1, 2], pad_type="custom", pad=[1, 1, 0, 1]), mb.conv_transpose(x=z, weight=c(2, 3, 2, 2, 2, t=t), strides=[2, 1, 2]), mb.conv_transpose(x=y, weight=c(4, 2, 3, 3, t=t), strides=[2, 2], pad_type="same", output_shape=[2, 2, 5, 8])])
    P(f"pool_{tag}", tgt, {"x": V(1, 2, 7, t=t), "y": V(1, 2, 5, 6, t=t), "z": V(1, 2, 4, 3, 3, t=t)}, lambda x, y, z: [getattr(mb, o)(x=x, kernel_sizes=[3], strides=[2], pad_type=p, **k) for o in ("max_pool", "avg_pool", "l2_pool") for p, k in (("valid", {}), ("same", {}), ("custom", {"pad": [1, 1]}), ("custom", {"pad": [1, 1], "ceil_mode": True}))] +
      [mb.max_pool(x=y, kernel_sizes=[2, 3], strides=[2, 1], pad_type="custom", pad=[1, 0, 0, 2]), mb.avg_pool(x=y, kernel_sizes=[3, 2], strides=[1, 2], pad_type="same", exclude_padding_from_average=True), mb.l2_pool(x=y, kernel_sizes=[2, 2], strides=[2, 2], pad_type="valid", ceil_mode=True),
       mb.max_pool(x=z, kernel_sizes=[2, 2, 2], pad_type="same"), mb.avg_pool(x=z, kernel_sizes=[3, 1, 2], strides=[1, 2, 1], pad_type="valid"), mb.avg_pool(x=y, kernel_sizes=[5, 6], pad_type="valid"), mb.avg_pool(x=y, kernel_sizes=[2, 2], strides=[2, 2], pad_type="custom", pad=[1, 1, 1, 1])])
    P(f"resize_{tag}", tgt, {"x": V(1, 2, 3, 4, t=t), "y": V(2, 5, 3, t=t)}, lambda x, y: [mb.resize_bilinear(x=x, target_size_height=5, target_size_width=7, sampling_mode=m) for m in ("DEFAULT", "STRICT_ALIGN_CORNERS", "ALIGN_CORNERS", "UNALIGN_CORNERS", "OFFSET_CORNERS")] +
      [mb.resize_bilinear(x=y, target_size_height=2, target_size_width=1, sampling_mode=m) for m in ("DEFAULT", "ALIGN_CORNERS", "STRICT_ALIGN_CORNERS", "OFFSET_CORNERS")] + [mb.resize_nearest_neighbor(x=x, target_size_height=7, target_size_width=3), mb.resize_nearest_neighbor(x=y, target_size_height=3, target_size_width=8),
       mb.upsample_nearest_neighbor(x=x, scale_factor_height=2, scale_factor_width=3), mb.upsample_nearest_neighbor(x=y, scale_factor_height=1.5, scale_factor_width=.75), mb.upsample_bilinear(x=x, scale_factor_height=2, scale_factor_width=2), mb.upsample_bilinear(x=x, scale_factor_height=1.5, scale_factor_width=2.5, align_corners=False),
       mb.crop(x=x, crop_height=[1, 0], crop_width=[1, 2]), mb.crop(x=y, crop_height=[0, 2], crop_width=[0, 0])])
    P(f"picture_{tag}", tgt, {"x": V(2, 2, 4, 5, t=t), "m": V(2, 6, t=t, lo=-.8, hi=.8), "k": V(2, 3, 4, 2, t=t, lo=-1.5, hi=1.5)}, lambda x, m, k: [
        mb.affine(x=x, transform_matrix=m, output_height=3, output_width=6, sampling_mode="bilinear", padding_mode="constant", padding_value=t(0), coordinates_mode="normalized_minus_one_to_one", align_corners=True),
        mb.affine(x=x, transform_matrix=np.array([[.5, .25, .1, -.25, 1, 0]], t), output_height=4, output_width=5, sampling_mode="bilinear", padding_mode="constant", padding_value=t(0), coordinates_mode="normalized_minus_one_to_one", align_corners=True)] +
      [mb.resample(x=x, coordinates=k, sampling_mode=a, padding_mode=b, padding_value=t(.5), coordinates_mode=n, align_corners=al) for a in ("bilinear", "nearest") for b in ("constant", "border", "reflection", "symmetric") for n, al in (("normalized_minus_one_to_one", True), ("normalized_zero_to_one", False))] +
      [mb.resample(x=x, coordinates=mb.linear_activation(x=k, alpha=t(3), beta=t(1)), sampling_mode="bilinear", padding_mode="border", padding_value=t(0), coordinates_mode="unnormalized", align_corners=False)])
    P(f"move_{tag}", tgt, {"x": V(2, 4, 4, 6, t=t), "y": V(3, 1, 2, t=t), "s": V(t=t)}, lambda x, y, s: [
        mb.depth_to_space(x=x, block_size=2), mb.space_to_depth(x=x, block_size=2), mb.pixel_shuffle(x=x, upscale_factor=2), mb.space_to_batch(x=x, block_shape=[2, 3], paddings=[[1, 1], [0, 3]]), mb.batch_to_space(x=mb.tile(x=x, reps=[2, 1, 1, 1]), block_shape=[2, 1], crops=[[1, 2], [0, 1]]),
        mb.reshape(x=x, shape=[8, -1]), mb.reshape(x=x, shape=[0, 0, 24, 1]), mb.transpose(x=x, perm=[3, 1, 0, 2]), mb.expand_dims(x=y, axes=[0, -1]), mb.squeeze(x=y, axes=[1]), mb.squeeze(x=y), mb.concat(values=(y, y), axis=1), mb.concat(values=(y, y, y), axis=-1, interleave=True), mb.stack(values=(y, y), axis=2),
        *mb.split(x=x, num_splits=3, axis=3), *mb.split(x=x, split_sizes=[1, 3], axis=-2), mb.tile(x=y, reps=[1, 2, 3]), mb.reverse(x=x, axes=[1, 3]), mb.reverse(x=y), mb.pad(x=y, pad=[1, 2, 0, 1], mode="constant", constant_val=t(1.5)), mb.pad(x=x, pad=[1, 2, 3, 1], mode="reflect", constant_val=t(0)), mb.pad(x=y, pad=[1, 1, 2, 2], mode="replicate", constant_val=t(0)),
        mb.shape(x=x), mb.band_part(x=x, lower=1, upper=0), mb.band_part(x=x, lower=-1, upper=2), mb.flatten2d(x=x, axis=2), mb.flatten2d(x=x, axis=-1), mb.sliding_windows(x=x, axis=3, size=3, stride=2), mb.sliding_windows(x=x, axis=-3, size=2), mb.reverse_sequence(x=x, lengths=[3, 1], seq_axis=2, batch_axis=0),
        mb.reverse_sequence(x=x, lengths=[0, 1, 3, 4], seq_axis=2, batch_axis=1), mb.reverse_sequence(x=x, lengths=[1, 2, 2, 0, 1, 2], seq_axis=0, batch_axis=3), mb.concat(values=(s, s), axis=0), mb.fill(shape=[2, 3], value=t(2.5)), mb.expand_dims(x=s, axes=[0])])
    P(f"slice_{tag}", tgt, {"x": V(4, 5, 6, t=t), "b": V(3, t=I, data=[1, 0, 2]), "e": V(3, t=I, data=[3, 4, 6]), "i": V(t=I, data=2)}, lambda x, b, e, i: [
        mb.slice_by_index(x=x, begin=[1, 0, -2], end=[3, 5, 6]), mb.slice_by_index(x=x, begin=[0, 4, 5], end=[0, 0, 0], stride=[1, -2, -1], begin_mask=[True, False, False], end_mask=[True, False, True]), mb.slice_by_index(x=x, begin=[-1, 1, 0], end=[0, 9, 0], squeeze_mask=[True, False, False], end_mask=[False, False, True]),
        mb.slice_by_size(x=x, begin=[1, 0, 3], size=[2, -1, 2]), mb.slice_by_size(x=x, begin=b, size=[2, 3, 1]), mb.slice_by_index(x=x, begin=b, end=e), mb.slice_by_size(x=x, begin=[0, 0, 0], size=e),
        mb.slice_by_index(x=x, begin=mb.concat(values=(i, 1, 0), axis=0), end=[0, 4, 6], squeeze_mask=[True, False, False])])
    for n, tg in (("15", T15), ("16", T16), ("17", T17)):
        if (t, n) == (H, "15"): continue
        P(f"gather{n}_{tag}", tg, {"x": V(3, 4, 5, t=t), "k": V(2, 2, t=I, data=[[0, -1], [2, 1]]), "a": V(3, 2, 5, t=I, lo=0, hi=3), "n": V(2, 3, 2, t=I, lo=0, hi=2)}, lambda x, k, a, n, tg=tg: [
            mb.gather(x=x, indices=k, axis=1), mb.gather(x=x, indices=mb.reduce_max(x=k), axis=-1), mb.gather(x=x, indices=mb.squeeze(x=mb.slice_by_size(x=k, begin=[0, 0], size=[1, 2])), axis=0), mb.gather_along_axis(x=x, indices=a, axis=1), mb.gather_nd(x=x, indices=n)] +
          ([] if tg == T15 else [mb.gather(x=x, indices=np.array([[0, 1], [3, 2], [1, 1]], I), axis=1, batch_dims=1), mb.gather(x=x, indices=a, axis=2, batch_dims=1), mb.gather_nd(x=x, indices=np.array([[[1]], [[3]], [[0]]], I), batch_dims=1), mb.gather(x=x, indices=np.array([1, 0], np.uint16), axis=0), mb.gather_along_axis(x=x, indices=np.zeros((3, 1, 5), np.int16), axis=-2)]) +
          ([] if tg != T17 else [mb.gather(x=x, indices=np.array([2, 0], np.uint8), axis=1, validate_indices=True), mb.gather_nd(x=x, indices=np.array([[0, 3], [2, 1]], np.int8))]))
    modes = ["add", "update", "sub", "mul", "div", "max", "min"]
    P(f"scatter_{tag}", tgt, {"x": V(3, 4, 2, t=t), "u": V(3, 3, 2, t=t, lo=.5, hi=2.), "k": V(3, t=I, data=[2, 0, 2]), "a": V(3, 3, 2, t=I, lo=0, hi=3), "n": V(2, 2, t=I, data=[[0, 3], [2, -1]]), "v": V(2, 2, t=t)}, lambda x, u, k, a, n, v: [mb.scatter(data=x, indices=k, updates=u, axis=1, mode=m) for m in modes] +
      [mb.scatter_along_axis(data=x, indices=a, updates=u, axis=1, mode=m) for m in modes] + [mb.scatter_nd(data=x, indices=n, updates=v, mode=m) for m in modes] + [mb.scatter(data=x, indices=np.array([1, -1], I), updates=c(2, 4, 2, t=t)), mb.scatter_nd(data=x, indices=np.array([[1], [0]], I), updates=c(2, 4, 2, t=t))])
    P(f"find_{tag}", tgt, {"x": V(3, 4, t=t, data=[[0, 1, 0, -2], [0, 0, 0, 0], [.5, 0, 3, 0]]), "i": V(2, 3, t=I, lo=-1, hi=4), "n": V(t=I, data=4)}, lambda x, i, n: [mb.non_zero(x=x), mb.shape(x=mb.non_zero(x=x)), mb.gather_nd(x=x, indices=mb.non_zero(x=x)), mb.one_hot(indices=i, one_hot_vector_size=4), mb.one_hot(indices=i, one_hot_vector_size=5, axis=0, on_value=t(2), off_value=t(-.5)),
        mb.one_hot(indices=i, one_hot_vector_size=3, axis=1, on_value=True, off_value=False), mb.one_hot(indices=i, one_hot_vector_size=n, axis=-2), mb.fill(shape=mb.stack(values=(n, 2), axis=0), value=t(.5))])
    rnnt = T17 if t == H else T15
    r = dict(hi=.5, lo=-.5, t=t)
    P(f"recurrent_{tag}", rnnt, {"x": V(4, 2, 3, t=t), "h": V(2, 5, t=t), "k": V(2, 5, t=t), "hh": V(2, 10, t=t), "kk": V(2, 10, t=t)}, lambda x, h, k, hh, kk: [*mb.rnn(x=x, initial_h=h, weight_ih=c(5, 3, **r), weight_hh=c(5, 5, **r), bias=c(5, **r), output_sequence=True), *mb.rnn(x=x, initial_h=h, weight_ih=c(5, 3, **r), weight_hh=c(5, 5, **r), direction="reverse", activation="relu"),
        *mb.gru(x=x, initial_h=h, weight_ih=c(15, 3, **r), weight_hh=c(15, 5, **r), bias=c(15, **r), output_sequence=True), *mb.gru(x=x, initial_h=h, weight_ih=c(15, 3, **r), weight_hh=c(15, 5, **r), direction="reverse", output_sequence=True, activation="sigmoid", recurrent_activation="tanh"),
        *mb.lstm(x=x, initial_h=h, initial_c=k, weight_ih=c(20, 3, **r), weight_hh=c(20, 5, **r), bias=c(20, **r), output_sequence=True), *mb.lstm(x=x, initial_h=h, initial_c=k, weight_ih=c(20, 3, **r), weight_hh=c(20, 5, **r), bias=c(20, **r), peephole=c(15, **r), clip=t(.5), direction="reverse", output_sequence=True),
        *mb.lstm(x=x, initial_h=hh, initial_c=kk, weight_ih=c(20, 3, **r), weight_hh=c(20, 5, **r), bias=c(20, **r), weight_ih_back=c(20, 3, **r), weight_hh_back=c(20, 5, **r), bias_back=c(20, **r), direction="bidirectional", output_sequence=True),
        *mb.lstm(x=x, initial_h=hh, initial_c=kk, weight_ih=c(20, 3, **r), weight_hh=c(20, 5, **r), weight_ih_back=c(20, 3, **r), weight_hh_back=c(20, 5, **r), peephole=c(15, **r), peephole_back=c(15, **r), direction="bidirectional", activation="scaled_tanh", cell_activation="linear", recurrent_activation="hard_sigmoid")])

# integers and bools
two = ["add", "sub", "mul", "maximum", "minimum", "floor_div", "mod", "real_div"]
P("binary_i32", T15, {"x": V(2, 1, 4, t=I, lo=-9, hi=9), "y": V(3, 1, t=I, data=[[3], [-4], [7]]), "s": V(t=I, data=-3)}, lambda x, y, s: [getattr(mb, o)(x=x, y=y) for o in two] + [getattr(mb, o)(x=x, y=s) for o in two] + [mb.pow(x=x, y=np.array([0, 1, 2, 3], I))] +
  [getattr(mb, o)(x=x, y=y) for o in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")] + [mb.abs(x=x), mb.sign(x=x), mb.square(x=x), mb.exp2(x=mb.abs(x=x)), mb.threshold(x=x, alpha=I(2)), mb.select(cond=mb.less(x=x, y=y), a=mb.add(x=x, y=y), b=s)], 2)
P("edge_i32", T15, {"x": V(6, t=I, data=[2**31 - 1, -2**31, -2**31, 7, -7, 0]), "y": V(6, t=I, data=[1, -1, 1, 0, 0, 0])}, lambda x, y: [getattr(mb, o)(x=x, y=y) for o in ("add", "sub", "mul", "floor_div", "mod")] + [mb.mul(x=x, y=x), mb.reduce_sum(x=x), mb.cumsum(x=x, axis=0), mb.abs(x=x), mb.square(x=x)])
P("logic", T15, {"x": V(2, 3, t=I, lo=0, hi=1), "y": V(3, t=I, lo=0, hi=1)}, lambda x, y: (lambda p, q: [mb.logical_and(x=p, y=q), mb.logical_or(x=p, y=q), mb.logical_xor(x=p, y=q), mb.logical_not(x=p), mb.select(cond=p, a=q, b=p), mb.reshape(x=p, shape=[3, 2]), mb.concat(values=(p, p), axis=0), mb.non_zero(x=p), f32(p), i32(q), mb.slice_by_size(x=p, begin=[0, 1], size=[2, 1])])(mb.cast(x=x, dtype="bool"), mb.cast(x=y, dtype="bool")), 2)
P("integers", T15, {"x": V(2, 3, 4, t=I, lo=-9, hi=9), "k": V(2, t=I, data=[1, -1])}, lambda x, k: [mb.reduce_sum(x=x, axes=[1]), mb.reduce_max(x=x, axes=[0], keep_dims=True), mb.reduce_min(x=x), mb.reduce_prod(x=x, axes=[2]), mb.reduce_sum_square(x=x, axes=[1]), mb.reduce_l1_norm(x=x, axes=[-1]), mb.reduce_argmax(x=x, axis=1), mb.reduce_argmin(x=x), mb.cumsum(x=x, axis=2, exclusive=True, reverse=True),
  mb.argsort(x=x, axis=1), *mb.topk(x=x, k=3), mb.transpose(x=x, perm=[2, 0, 1]), mb.reshape(x=x, shape=[6, 4]), mb.gather(x=x, indices=k, axis=1), mb.scatter(data=x, indices=k, updates=c(2, 2, 4, t=I, lo=1, hi=9), axis=1, mode="div"), mb.scatter_nd(data=x, indices=np.array([[0, 1, 2], [1, 2, 3]], I), updates=np.array([5, 7], I), mode="mul"), mb.stack(values=(x, x), axis=-1),
  mb.tile(x=x, reps=[2, 1, 1]), mb.reverse(x=x, axes=[0]), mb.band_part(x=x, lower=0, upper=1), mb.sliding_windows(x=x, axis=2, size=2), mb.matmul(x=x, y=c(4, 2, t=I, lo=-5, hi=5)), mb.fill(shape=[2], value=I(-7)), mb.flatten2d(x=x), mb.slice_by_index(x=x, begin=[0, 2, 3], end=[2, 0, 0], stride=[1, -1, -2])])
P("casts17", T17, {"x": V(9, data=[0, 1.5, -1.5, 2.5, 99.9, -100.2, 200, -3, .25]), "k": V(5, t=I, data=[0, -1, 127, 300, -70000]), "h": V(4, t=H, lo=-50, hi=50)}, lambda x, k, h: [i32(mb.cast(x=x, dtype=d)) for d in ("int8", "int16", "int32", "bool", "fp16")] + [i32(mb.cast(x=mb.abs(x=x), dtype=d)) for d in ("uint8", "uint16")] + [i32(mb.cast(x=k, dtype=d)) for d in ("int8", "uint8", "int16", "uint16", "bool")] + [f32(mb.cast(x=k, dtype="int8")), mb.cast(x=k, dtype="fp32"), f32(h), i32(h)])
small = [np.int8, np.uint8, np.int16, np.uint16]
def of(v, d): return mb.cast(x=v, dtype=np.dtype(d).name)
P("small17", T17, {"x": V(2, 3, 4, t=I, lo=0, hi=99), "u": V(2, 1, 4, t=I, lo=0, hi=9), "k": V(2, t=I, data=[1, 0])}, lambda x, u, k: [i32(v) for d in small for v in (lambda y, w: [mb.transpose(x=y, perm=[2, 0, 1]), mb.reshape(x=y, shape=np.array([6, 4], np.int16)), mb.slice_by_index(x=y, begin=np.array([0, 1, 0], np.int16), end=np.array([2, 3, 4], np.int16), stride=np.array([1, 1, 2], np.int16)), mb.slice_by_size(x=y, begin=np.array([0, 1, 1], np.int8), size=np.array([1, 2, 2], np.int8)),
  mb.gather(x=y, indices=of(k, np.uint8), axis=1), mb.gather_along_axis(x=y, indices=np.zeros((2, 1, 4), np.uint16), axis=1), mb.squeeze(x=mb.expand_dims(x=y, axes=[1]), axes=[1]), mb.reverse(x=y, axes=[2]), mb.sliding_windows(x=y, axis=2, size=2), mb.topk(x=y, k=2, output_indices_dtype="uint16")[0], mb.concat(values=(y, w), axis=1), mb.identity(x=w)])(of(x, d), of(u, d))] +
  [i32(mb.topk(x=of(x, np.uint8), k=np.int8(2), axis=1, output_indices_dtype="uint16")[1]), i32(mb.reduce_argmax(x=x, axis=2, output_dtype="uint16")), mb.topk(x=x, k=2, return_indices=False, sort=False), mb.reverse_sequence(x=x, lengths=np.array([1, 3], np.int8), seq_axis=1)])
P("empty", T15, {"x": V(3, 4), "k": V(0, t=I)}, lambda x, k: [mb.gather(x=x, indices=k, axis=0), mb.concat(values=(mb.gather(x=x, indices=k, axis=0), x), axis=0), mb.reshape(x=mb.gather(x=x, indices=k, axis=1), shape=[0, 0]), mb.softmax(x=mb.gather(x=x, indices=k, axis=0)), mb.tile(x=mb.gather(x=x, indices=k, axis=1), reps=[2, 3]), mb.reduce_sum(x=mb.gather(x=x, indices=k, axis=1), axes=[1]), mb.add(x=mb.gather(x=x, indices=k, axis=0), y=F(1)), mb.matmul(x=mb.gather(x=x, indices=k, axis=1), y=mb.gather(x=mb.transpose(x=x, perm=[1, 0]), indices=k, axis=0)), mb.shape(x=mb.gather(x=x, indices=k, axis=0)), mb.transpose(x=mb.gather(x=x, indices=k, axis=1), perm=[1, 0])])

# versions and rarer forms
P("convs16", T16, {"x": V(1, 2, 5, 6), "z": V(1, 4, 4, 6)}, lambda x, z: [mb.conv(x=x, weight=c(3, 2, 2, 4), pad_type="same_lower"), mb.conv(x=x, weight=c(2, 1, 4, 2), groups=2, pad_type="same_lower", strides=[2, 3]), *[getattr(mb, o)(x=x, kernel_sizes=[2, 4], strides=[1, 2], pad_type="same_lower") for o in ("max_pool", "avg_pool", "l2_pool")],
  mb.pixel_unshuffle(x=z, downscale_factor=np.uint32(2)), mb.reshape_like(x=z, ref_tensors=(x, mb.transpose(x=z, perm=[3, 2, 1, 0])), begins=(0, 0), ends=(1, 3), end_masks=(False, False)), mb.fill_like(ref_tensor=x, value=F(3.5)), mb.fill_like(ref_tensor=x, value=I(2)),
  *[mb.upsample_bilinear(x=z, scale_factor_height=2, scale_factor_width=3, align_corners=a, half_pixel_centers=h) for a, h in ((True, False), (False, True), (False, False))], mb.topk(x=z, k=2, axis=1, return_indices=False)])
P("quantized15", T15, {"x": V(1, 2, 5, 6)}, lambda x: [mb.conv_quantized(x=x, weight=rng.integers(0, 256, (3, 2, 2, 3)).astype(np.uint8), quantization_type="linear", nbits=8, quant_scale=F(.0125), quant_bias=F(-1.5)), mb.conv_quantized(x=x, weight=rng.integers(0, 256, (3, 2, 1, 1)).astype(np.uint8), quantization_type="linear", quant_scale=c(3, lo=.01, hi=.02), quant_bias=c(3), strides=[2, 1])])
P("crop_resize15", T15, {"x": V(2, 2, 5, 6), "r": V(3, 1, 4, 1, 1, data=[0, 1, 3, 4, 1, .5, 4, 2.5, 2, 2, 3, 3])}, lambda x, r: [mb.crop_resize(x=x, roi=r, target_height=3, target_width=4, sampling_mode=m, box_coordinate_mode=k) for m, k in (("ALIGN_CORNERS", "CORNERS_HEIGHT_FIRST"), ("DEFAULT", "CORNERS_WIDTH_FIRST"), ("UNALIGN_CORNERS", "CORNERS_HEIGHT_FIRST"), ("OFFSET_CORNERS", "CENTER_SIZE_HEIGHT_FIRST"))])
P("crop_resize16", T16, {"x": V(1, 2, 5, 6), "r": V(2, 1, 5, 1, 1, data=[0, .1, .3, 1.3, 1, 0, .5, 1.8, 1, .3])}, lambda x, r: [mb.crop_resize(x=x, roi=r, target_height=2, target_width=3, sampling_mode="ALIGN_CORNERS", normalized_coordinates=True, pad_value=F(7)), mb.crop_resize(x=x, roi=r, target_height=2, target_width=2, sampling_mode="STRICT_ALIGN_CORNERS", spatial_scale=F(.5))])
P("crop_resize17", T17, {"x": V(3, 2, 5, 6), "b": V(4, 4, lo=0., hi=1.), "k": V(4, t=I, lo=0, hi=2)}, lambda x, b, k: [mb.crop_resize(x=x, boxes=b, box_indices=k, target_height=3, target_width=2, normalized_coordinates=True, sampling_mode=m, box_coordinate_mode=q) for m, q in (("ALIGN_CORNERS", "CORNERS_HEIGHT_FIRST"), ("DEFAULT", "CENTER_SIZE_WIDTH_FIRST"))] +
  [mb.crop_resize(x=x, boxes=np.array([[0, 1, 3, 3], [1, 1, 4, 5]], np.uint16), box_indices=np.array([2, 0], np.uint16), target_height=2, target_width=2, sampling_mode="UNALIGN_CORNERS"), mb.crop_resize(x=x, boxes=np.array([[0, 1, 3, 3]], F), target_height=2, target_width=2)])
P("resize17", T17, {"x": V(1, 2, 3, 4), "i": V(2, 3, t=I, lo=-9, hi=9), "s": V(3, t=I, data=[1, 6, 0])}, lambda x, i, s: [mb.resize(x=x, shape=[5, 7], resized_dims=np.uint32(2), sampling_mode=m, interpolation_mode=k) for m in ("DEFAULT", "STRICT_ALIGN_CORNERS", "ALIGN_CORNERS", "UNALIGN_CORNERS", "OFFSET_CORNERS") for k in ("LINEAR", "NEAREST_NEIGHBOR")] +
  [mb.resize(x=x, shape=np.array([9, 3, 0, 6], np.uint16), resized_dims=np.uint32(3)), mb.resize(x=i, shape=[4, 5], resized_dims=np.uint32(2), interpolation_mode="NEAREST_NEIGHBOR"), mb.resize(x=x, shape=s, resized_dims=np.uint32(2))])
def boxes(n, k): return np.stack([rng.uniform(0, 8, (n, k)), rng.uniform(0, 8, (n, k)), rng.uniform(1, 5, (n, k)), rng.uniform(1, 5, (n, k))], 2).astype(F)
P("suppression15", T15, {"b": V(2, 9, 4, data=boxes(2, 9)), "s": V(2, 9, 3, lo=0., hi=1.)}, lambda b, s: [v for k, m, th in ((False, 4, .3), (True, 7, .5), (False, 3, .999)) for v in mb.non_maximum_suppression(boxes=b, scores=s, iou_threshold=F(.3), score_threshold=F(th), max_boxes=m, per_class_suppression=k)])
P("suppression17", T17, {"b": V(1, 4, 8, data=boxes(1, 8).transpose(0, 2, 1)), "s": V(1, 2, 8, lo=0., hi=1.)}, lambda b, s: [v for k in (False, True) for v in mb.non_maximum_suppression(boxes=b, scores=s, iou_threshold=F(.25), max_boxes=5, per_class_suppression=k)])
for t, tag in ((F, "f32"), (H, "f16")):
    P(f"gru18_{tag}", T18, {"x": V(3, 2, 3, t=t), "h": V(2, 4, t=t)}, lambda x, h: [v for a in (True, False) for b in (c(12, t=t), None) for v in mb.gru(x=x, initial_h=h, weight_ih=c(12, 3, t=t), weight_hh=c(12, 4, t=t), bias=c(12, t=t), output_sequence=True, reset_after=a, **({} if b is None else {"input_bias": b}))])
    P(f"attention18_{tag}", T18, {"q": V(1, 2, 3, 4, t=t), "k": V(1, 2, 5, 4, t=t), "v": V(1, 2, 5, 6, t=t), "m": V(3, 5, t=t), "q3": V(2, 3, 4, t=t), "k3": V(2, 3, 4, t=t)}, lambda q, k, v, m, q3, k3: [mb.scaled_dot_product_attention(query=q, key=k, value=v), mb.scaled_dot_product_attention(query=q, key=k, value=v, attn_mask=m), mb.scaled_dot_product_attention(query=q3, key=k3, value=k3),
      mb.scaled_dot_product_attention(query=q, key=k, value=v, attn_mask=np.array([[1, 0, 1, 1, 0], [1, 1, 1, 1, 1], [0, 0, 1, 0, 0]], B))])
    P(f"quantize17_{tag}", T17, {"x": V(2, 3, 4, t=t, lo=-3., hi=3.), "y": V(6, t=t)}, lambda x, y: (lambda q: [i32(v) for v in q] + [f32(v) for v in (mb.dequantize(input=q[0], scale=t(.03125)), mb.dequantize(input=q[1], scale=t(.0625), zero_point=np.uint8(120)), mb.dequantize(input=q[2], scale=c(3, t=t, lo=.0625, hi=.25), zero_point=np.array([1, -2, 3], np.int8), axis=1), mb.dequantize(input=q[3], scale=c(4, t=t, lo=.0625, hi=.25), axis=-1))])(
      [mb.quantize(input=x, scale=t(.03125), output_dtype="int8"), mb.quantize(input=x, scale=t(.015625), zero_point=np.uint8(120), output_dtype="uint8"), mb.quantize(input=x, scale=np.array([.5, .25, .125], t), zero_point=np.array([1, -2, 3], np.int8), axis=1, output_dtype="int8"), mb.quantize(input=x, scale=np.array([.5, .25, .125, 1], t), axis=2, output_dtype="uint8"), mb.quantize(input=y, scale=t(.25), output_dtype="int8")]))

# stored constants
def packed(idx, bits): return np.packbits(np.concatenate([[(k >> b) & 1 for b in range(bits)] for k in idx]).astype(np.uint8), bitorder="little")
def u8(*s): return rng.integers(0, 256, s).astype(np.uint8)
def i8(*s): return rng.integers(-128, 128, s).astype(np.int8)
for t, tag in ((F, "f32"), (H, "f16")):
    def old(x, p):
        w = [mb.constexpr_affine_dequantize(quantized_data=u8(5, 6), zero_point=np.uint8(120), scale=t(.03125), axis=I(0)), mb.constexpr_affine_dequantize(quantized_data=i8(5, 6), zero_point=i8(5), scale=c(5, t=t, lo=.01, hi=.05), axis=I(0)), mb.constexpr_affine_dequantize(quantized_data=i8(5, 6), zero_point=np.int8(-3), scale=c(6, t=t, lo=.01, hi=.05), axis=I(-1))]
        for bits in (1, 2, 4, 6, 8): w.append(mb.constexpr_lut_to_dense(indices=packed(rng.integers(0, 1 << bits, 30), bits), lut=c(1 << bits, t=t), shape=np.array([5, 6], np.uint32)))
        m = rng.integers(0, 2, 30); m[3] = 1
        w.append(mb.constexpr_sparse_to_dense(nonzero_data=c(int(m.sum()), t=t), mask=np.packbits(m.astype(np.uint8), bitorder="little"), shape=np.array([5, 6], np.uint32)))
        r = [mb.linear(x=x, weight=v) for v in w] + [mb.matmul(x=p, y=v) for v in w[::2]] + [mb.add(x=v, y=t(1)) for v in w[1::2]] + [mb.gather(x=w[0], indices=np.array([4, 0, 2], I), axis=0), mb.gather(x=w[-1], indices=np.array([1, 3], I), axis=1), mb.conv(x=mb.expand_dims(x=mb.transpose(x=x, perm=[1, 0]), axes=[0]), weight=mb.constexpr_affine_dequantize(quantized_data=u8(4, 6, 1), zero_point=np.uint8(99), scale=c(4, t=t, lo=.01, hi=.03), axis=I(0)))]
        return r
    P(f"constexpr16_{tag}", T16, {"x": V(3, 6, t=t), "p": V(2, 5, t=t)}, old)
    from coremltools.converters.mil.mil.types.type_mapping import string_to_nptype
    np4, npu = {n: string_to_nptype(f"int{n}") for n in (4,)}, {n: string_to_nptype(f"uint{n}") for n in (1, 2, 3, 4, 6)}
    def sub(n, *s): return rng.integers(0, 1 << n, s).astype(npu[n] if n != 8 else np.uint8)
    def s4(*s): return rng.integers(-8, 8, s).astype(np4[4])

    def blocks(x, p):
        sc = lambda *s: c(*s, t=t, lo=.01, hi=.06)
        w = [mb.constexpr_blockwise_shift_scale(data=s4(6, 8), scale=sc(6, 2)), mb.constexpr_blockwise_shift_scale(data=sub(4, 6, 8), scale=sc(3, 4), offset=sub(4, 3, 4)), mb.constexpr_blockwise_shift_scale(data=i8(6, 8), scale=sc(6, 1), offset=i8(6, 1)), mb.constexpr_blockwise_shift_scale(data=u8(6, 8), scale=sc(1, 1), offset=np.array([[130]], np.uint8)), mb.constexpr_blockwise_shift_scale(data=i8(6, 8), scale=sc(2, 8)),
             mb.constexpr_blockwise_shift_scale(data=c(6, 8, t=t), scale=sc(6, 1), offset=c(6, 1, t=t)), mb.constexpr_blockwise_shift_scale(data=u8(6, 8), scale=sc(1, 2), offset=c(1, 2, t=t, lo=3, hi=9))]
        for n, g, v, ax in ((1, (1, 1), 1, None), (2, (2, 1), 1, None), (3, (1, 1), 1, None), (4, (6, 1), 1, None), (6, (3, 2), 1, None), (8, (1, 1), 1, None), (4, (1, 1), 2, 0), (2, (3, 1), 2, 0), (3, (1, 2), 4, 1)):
            sh = [6 // (v if ax == 0 else 1), 8 // (v if ax == 1 else 1)]
            g = [min(a, b) if b % a == 0 else 1 for a, b in zip(g, sh)]
            w.append(mb.constexpr_lut_to_dense(indices=sub(n, *sh), lut=c(*g, 1 << n, v, t=t), **({} if ax is None else {"vector_axis": I(ax)})))
        # a table of integers with scales around it, and a table that is quantized itself
        w.append(mb.constexpr_blockwise_shift_scale(data=mb.constexpr_lut_to_dense(indices=sub(4, 6, 8), lut=i8(1, 1, 16, 1)), scale=sc(6, 1)))
        w.append(mb.constexpr_blockwise_shift_scale(data=mb.constexpr_lut_to_dense(indices=sub(2, 6, 8), lut=u8(2, 1, 4, 1)), scale=sc(3, 2), offset=u8(3, 2)))
        return [mb.linear(x=x, weight=v) for v in w] + [mb.matmul(x=p, y=v) for v in w[::3]] + [mb.mul(x=v, y=t(2)) for v in w[1::3]] + [mb.gather(x=w[1], indices=np.array([5, 0], I), axis=0), mb.gather(x=w[-1], indices=np.array([1], I), axis=0)]
    P(f"constexpr18_{tag}", T18, {"x": V(3, 8, t=t), "p": V(2, 6, t=t)}, blocks)

    def sparse(x, p):
        sc = lambda *s: c(*s, t=t, lo=.01, hi=.06); w = []
        def mask(*s): m = rng.integers(0, 2, s); m.flat[0] = 1; return m.astype(npu[1]), int(m.sum())
        m, n = mask(6, 8); w.append(mb.constexpr_sparse_to_dense(nonzero_data=c(n, t=t), mask=m))
        m, n = mask(6, 8); a, b = mb.constexpr_sparse_blockwise_shift_scale(data_mask=m, nonzero_data=i8(n), scale=sc(6, 2), offset=i8(6, 2)); w.append(mb.constexpr_sparse_to_dense(nonzero_data=b, mask=a))
        m, n = mask(6, 8); a, b = mb.constexpr_sparse_blockwise_shift_scale(data_mask=m, nonzero_data=s4(n), scale=sc(1, 4)); w.append(mb.constexpr_sparse_to_dense(nonzero_data=b, mask=a))
        m, n = mask(6, 8); a, b = mb.constexpr_lut_to_sparse(indices_mask=m, indices_nonzero_data=sub(2, n), lut=c(3, 1, 4, 1, t=t)); w.append(mb.constexpr_sparse_to_dense(nonzero_data=b, mask=a))
        m, n = mask(3, 8); a, b = mb.constexpr_lut_to_sparse(indices_mask=m, indices_nonzero_data=sub(4, n), lut=c(1, 2, 16, 2, t=t), vector_axis=I(0)); w.append(mb.constexpr_sparse_to_dense(nonzero_data=b, mask=a))
        m, n = mask(6, 8); w.append(mb.constexpr_blockwise_shift_scale(data=mb.constexpr_sparse_to_dense(nonzero_data=i8(n), mask=m), scale=sc(6, 1)))
        return [mb.linear(x=x, weight=v) for v in w] + [mb.matmul(x=p, y=v) for v in w] + [mb.mul(x=v, y=t(2)) for v in w]
    P(f"sparse18_{tag}", T18, {"x": V(3, 8, t=t), "p": V(2, 6, t=t)}, sparse)
P("constexpr_cast", T16, {"x": V(2, 6)}, lambda x: [mb.linear(x=x, weight=mb.constexpr_cast(source_val=c(5, 6, t=H), output_dtype="fp32")), mb.add(x=mb.constexpr_cast(source_val=c(6, t=H), output_dtype="fp32"), y=x)])

# control flow and lists
P("cond", T15, {"x": V(2, 3), "k": V(t=I)}, lambda x, k: [*mb.cond(pred=mb.less(x=k, y=2), _true_fn=lambda: (mb.add(x=x, y=F(1)), mb.mul(x=k, y=3)), _false_fn=lambda: (mb.mul(x=x, y=x), mb.cond(pred=mb.equal(x=k, y=5), _true_fn=lambda: mb.sub(x=k, y=9), _false_fn=lambda: mb.add(x=k, y=1)))), mb.cond(pred=mb.less(x=mb.reduce_sum(x=x), y=F(0)), _true_fn=lambda: mb.identity(x=x), _false_fn=lambda: mb.sub(x=F(0), y=x))],
  [{"k": 1}, {"k": 5}, {"k": 7}])
P("loop", T15, {"x": V(3), "n": V(t=I)}, lambda x, n: [*mb.while_loop(_cond=lambda i, a, b: mb.less(x=i, y=n), _body=lambda i, a, b: (mb.add(x=i, y=1), b, mb.add(x=mb.mul(x=a, y=F(.5)), y=mb.mul(x=b, y=x))), loop_vars=(0, x, mb.reverse(x=x)))], [{"n": 0}, {"n": 1}, {"n": 7}])
P("loops_nested", T15, {"n": V(t=I)}, lambda n: [*mb.while_loop(_cond=lambda i, s: mb.less(x=i, y=n), _body=lambda i, s: (mb.add(x=i, y=1), mb.while_loop(_cond=lambda j, q: mb.less_equal(x=j, y=i), _body=lambda j, q: (mb.add(x=j, y=1), mb.cond(pred=mb.equal(x=mb.mod(x=j, y=2), y=0), _true_fn=lambda: mb.add(x=q, y=j), _false_fn=lambda: mb.sub(x=q, y=i))), loop_vars=(0, s))[1]), loop_vars=(0, mb.add(x=mb.mul(x=n, y=0), y=100)))], [{"n": 0}, {"n": 4}, {"n": 9}])
P("loop_grows", T15, {"x": V(1, 2), "n": V(t=I)}, lambda x, n: [*mb.while_loop(_cond=lambda i, a: mb.less(x=i, y=n), _body=lambda i, a: (mb.add(x=i, y=1), mb.concat(values=(a, mb.mul(x=x, y=F(2))), axis=0)), loop_vars=(0, x))], [{"n": 0}, {"n": 3}])
def lists(x, n):
    ls = mb.make_list(init_length=2, dynamic_length=True, elem_shape=(3,), dtype="fp32")
    i, ls = mb.while_loop(_cond=lambda i, l: mb.less(x=i, y=n), _body=lambda i, l: (mb.add(x=i, y=1), mb.list_write(ls=l, index=i, value=mb.squeeze(x=mb.gather(x=x, indices=mb.expand_dims(x=i, axes=[0]), axis=0), axes=[0]))), loop_vars=(0, ls))
    ls = mb.list_scatter(ls=ls, indices=np.array([1, 0], I), value=mb.slice_by_size(x=x, begin=[2, 0], size=[2, 3]))
    return [i, mb.list_length(ls=ls), mb.list_read(ls=ls, index=1), mb.list_gather(ls=ls, indices=np.array([0, 3, 0], I)), mb.list_gather(ls=ls, indices=mb.range_1d(start=0, end=mb.list_length(ls=ls), step=1))]
P("lists", T15, {"x": V(5, 3), "n": V(t=I)}, lists, [{"n": 4}, {"n": 5}])

# shapes that only show when the program runs
P("ranged", T15, {"x": V(1, (1, 8), 3), "y": V((1, 8), 3)}, lambda x, y: [mb.add(x=x, y=y), mb.shape(x=x), mb.reduce_mean(x=x, axes=[1]), mb.reshape(x=x, shape=mb.concat(values=(mb.slice_by_size(x=mb.shape(x=x), begin=[1], size=[1]), [3, 1]), axis=0)), mb.linear(x=x, weight=c(4, 3)), mb.matmul(x=x, y=y, transpose_y=True), mb.softmax(x=y, axis=0), mb.range_1d(start=0, end=mb.squeeze(x=mb.slice_by_size(x=mb.shape(x=y), begin=[0], size=[1])), step=2), mb.conv(x=mb.transpose(x=x, perm=[0, 2, 1]), weight=c(2, 3, 1)), mb.fill(shape=mb.shape(x=y), value=F(2))],
  [{"x": (1, n, 3), "y": (n, 3)} for n in (1, 5, 8)])
P("enumerated", T15, {"x": V(1, [2, 4, 6], [3, 3, 5])}, lambda x: [mb.reduce_sum(x=x, axes=[2]), mb.transpose(x=x, perm=[2, 0, 1]), mb.reshape(x=x, shape=[1, -1]), mb.cumsum(x=x, axis=1), mb.softmax(x=x)], [{"x": s} for s in ((1, 2, 3), (1, 4, 3), (1, 6, 5))])
P("computed", T17, {"x": V(2, 6), "s": V(2, t=I, data=[3, 4]), "n": V(t=I, data=7), "r": V(2, t=I, data=[2, 1]), "p": V(4, t=I, data=[1, 0, 0, 2]), "f": V(data=.5)}, lambda x, s, n, r, p, f: [mb.reshape(x=x, shape=s), mb.range_1d(start=1, end=n, step=2), mb.range_1d(start=F(0), end=F(2), step=f), mb.fill(shape=s, value=F(1)), mb.tile(x=x, reps=r), mb.pad(x=x, pad=p, constant_val=F(3)), mb.matmul(x=mb.reshape(x=x, shape=s), y=mb.fill(shape=mb.reverse(x=s), value=F(2))), mb.slice_by_size(x=x, begin=[0, 0], size=r), mb.non_zero(x=mb.greater(x=x, y=F(0)))],
  [{}, {"s": [12, 1], "n": 1, "r": [1, 3], "f": .25}])
P("state18", T18, {"x": V(2, 3, t=H), "s": V(4, 3, t=H, state=True)}, lambda x, s: [mb.add(x=mb.coreml_update_state(state=s, value=mb.slice_update(x=mb.read_state(input=s), update=x, begin=np.array([1, 0], I), end=np.array([3, 3], I))), y=H(1)), mb.reduce_sum(x=mb.read_state(input=s), axes=[0])])
P("state_loop18", T18, {"n": V(t=I), "s": V(1, 4, t=H, state=True)}, lambda n, s: [mb.while_loop(_cond=lambda i: mb.less(x=i, y=n), _body=lambda i: mb.identity(x=mb.add(x=i, y=mb.cast(x=mb.squeeze(x=mb.slice_by_size(x=mb.coreml_update_state(state=s, value=mb.add(x=mb.read_state(input=s), y=H(1))), begin=[0, 0], size=[1, 1])), dtype="int32"))), loop_vars=(0,)), mb.read_state(input=s)], [{"n": 5}])
P("random15", T15, {"n": V(1, t=I, data=[2000]), "w": V(2, 3, data=[[0, 1, 2], [5, 5, 5]])}, lambda n, w: [mb.random_uniform(shape=[100, 50], low=F(-1), high=F(3), seed=7), mb.random_normal(shape=[5000], mean=F(2), stddev=F(.5), seed=8), mb.random_bernoulli(shape=n, prob=F(.25), seed=9), mb.random_categorical(x=w, size=3000, seed=3)], 0)

VALUES.write_bytes(gzip.compress(save(dict(sorted(values.items()))), 9, mtime=0))
if only == "*":
    for p in OUT.glob("*.mlpackage"):
        if p.stem not in names: shutil.rmtree(p)
print(len(names), "programs,", len(ops), "operations,", sum(f.stat().st_size for f in OUT.rglob("*") if f.is_file()), "bytes")
