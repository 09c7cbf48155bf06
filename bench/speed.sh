#!/usr/bin/env bash
# The engine beside llama.cpp on the same random model, alternating, and the
# ratio of medians:
#
#   bench/speed.sh PACKAGE LLAMA_BENCH MODEL.gguf [ROUNDS]
#
# PACKAGE is made from the same checkpoint as the GGUF file (Q4_0), with
# --context 1024 --lut-ffn 4 --lut-lm-head 6; see ../shared/bench/README.md
# for making both and for building llama.cpp. Absolute rates mean little: the
# machine, its load and its clock change; the ratio is taken in one run.
set -euo pipefail
cd "$(dirname "$0")/.."
package=$1 llama=$2 gguf=$3 rounds=${4:-5}
go build -o "${TMPDIR:-/tmp}/anemone-speed" ./cmd/anemone
cores=$(nproc)
for ((i = 0; i < rounds; i++)); do
	"${TMPDIR:-/tmp}/anemone-speed" check "$package" --bench --json | python3 -c '
import json, sys
b = json.load(sys.stdin)["bench"]
print("anemone", b["prefill_tokens_per_second"]["median"], b["decode_tokens_per_second"]["median"])'
	"$llama" -m "$gguf" -t "$cores" -p 512 -n 64 -r 1 -o json 2>/dev/null | python3 -c '
import json, sys
r = json.load(sys.stdin)
print("llama.cpp", next(x["avg_ts"] for x in r if x["n_prompt"]), next(x["avg_ts"] for x in r if x["n_gen"]))'
done | tee /dev/stderr | python3 -c '
import statistics, sys
rows = [l.split() for l in sys.stdin]
med = lambda who, i: statistics.median(float(r[i]) for r in rows if r[0] == who)
for name, i in (("prefill", 1), ("decode", 2)):
    a, b = med("anemone", i), med("llama.cpp", i)
    print(f"{name}: anemone {a:.1f} tokens/s, llama.cpp {b:.1f} tokens/s, ratio {a / b:.3f}")'
