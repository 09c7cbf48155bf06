"""Holds `anemone check` on a package to the numpy executor of the same package.

usage: compare.py ANEMONE PACKAGE ORACLE.safetensors GOLDEN.safetensors 'LINE that the oracle printed'
1. Every logit of the engine lies within 2e-3 of the oracle's (ORACLE.safetensors, written by run_package.py --save).
2. Against the golden file, `check` gives the figures that the oracle printed, to four digits.
needs: nothing but Python
"""
import json, re, subprocess, sys

anemone, package, oracle, golden, line = sys.argv[1:]


def check(target):
    p = subprocess.run([anemone, "check", package, "--golden", target, "--json", "--min-cosine", "-1", "--max-kl", "1e9", "--min-top1", "0"], capture_output=True, text=True)
    if p.returncode:
        sys.exit(f"check {package} --golden {target}: status {p.returncode}\n{p.stderr}")
    return json.loads(p.stdout)["infer"]


a = check(oracle)
print(f"engine against oracle, {package}: positions {a['positions']} cosine min {a['cosine']['min']:.9f} max|d| {a['max_abs_diff']:.2e}")
if a["max_abs_diff"] > 2e-3 or a["cosine"]["min"] < 0.999999:
    sys.exit("the engine and the oracle differ by more than 2e-3")
want = [float(x) for x in re.match(r"positions (\d+)  cosine min (\S+) mean (\S+)  max\|d\| (\S+)  KL mean (\S+)  top1 (\S+)", line).groups()]
b = check(golden)
got = [b["positions"], b["cosine"]["min"], b["cosine"]["mean"], b["max_abs_diff"], b["kl"]["mean"], b["top1"]]
for name, w, g in zip(["positions", "cosine min", "cosine mean", "max|d|", "KL mean", "top1"], want, got):
    if abs(w - g) > 1.5e-4 * max(1, abs(w)):
        sys.exit(f"{package}: {name} is {g}, the oracle says {w}")
