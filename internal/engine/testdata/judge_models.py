"""Runs functions of models by the judge (judge.py) for the engine's tests.

usage: python judge_models.py ORACLE < jobs      (needs coremltools, numpy, safetensors; ORACLE is mil_numpy.py)

jobs is a JSON list of {"model": package, "function": name, "inputs": safetensors file, "outputs": safetensors file to write}.
A line for every job goes to the output: "ok", or why the judge could not run it.
"""
import sys, json
import numpy as np
from safetensors.numpy import load_file, save_file
import judge

oracle = judge.load_oracle(sys.argv[1]); Judge = judge.make(oracle); judge.published(Judge)
for j in json.load(sys.stdin):
    try:
        p = Judge(j["model"])
        fn = j["function"] if j["function"] in p.funcs else "main"
        out = p.run(fn, load_file(j["inputs"]), {n: np.zeros(s, np.float32) for n, s in p.state_shapes(fn).items()})
        save_file({k: np.array(v, np.float32 if np.asarray(v).dtype.kind == "f" else np.int32, order="C") for k, v in out.items()}, j["outputs"])
        print("ok", flush=True)
    except Exception as e:
        print(f"{type(e).__name__}: {e}".replace("\n", " "), flush=True)
