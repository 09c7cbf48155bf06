"""Runs functions of models with the numpy implementation of ML Programs that lies beside the repository.

usage: python oracle.py ORACLE_FOLDER < JOBS
JOBS is a JSON list of {"model": PACKAGE, "function": NAME, "calls": N, "inputs": FILE, "outputs": FILE}. The function is
called N times on the same inputs and one state; the last outputs, and the states as "state.NAME", are saved.

needs: coremltools, numpy, safetensors
"""
import json, sys
import numpy as np
from safetensors.numpy import load_file, save_file

sys.path.insert(0, sys.argv[1])
from mil_numpy import Program

programs = {}
for job in json.load(sys.stdin):
    p = programs.get(job["model"]) or programs.setdefault(job["model"], Program(job["model"]))
    state = {k: np.zeros(s, np.float32) for k, s in p.state_shapes(job["function"]).items()}
    inputs = load_file(job["inputs"])
    for _ in range(job["calls"]): out = p.run(job["function"], inputs, state)
    save = {k: np.ascontiguousarray(v) for k, v in out.items()}
    save_file({**save, **{"state." + k: v for k, v in state.items()}}, job["outputs"])
