#!/usr/bin/env bash
# Time and peak memory of conversions, to see that neither the second depends
# on the size of the model nor the first on luck:
#
#   bench/convert.sh CHECKPOINT... [-- FLAGS of convert]
#
# for example on the random checkpoint in Qwen3-0.6B's shape and one of twice
# the layers. It needs GNU time.
set -euo pipefail
cd "$(dirname "$0")/.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
go build -o "$tmp/anemone" ./cmd/anemone
checkpoints=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do checkpoints+=("$1"); shift; done
[ $# -gt 0 ] && shift
flags=("$@")
[ ${#flags[@]} -gt 0 ] || flags=(--context 1024 --lut-ffn 4 --lut-lm-head 6)
for c in "${checkpoints[@]}"; do
	/usr/bin/time -f "%e s elapsed, %U s of CPU, %M kB peak memory" -o "$tmp/time" \
		"$tmp/anemone" convert "$c" -o "$tmp/out" --overwrite --json "${flags[@]}" >"$tmp/report" 2>/dev/null
	echo "$c ${flags[*]}: $(python3 -c 'import json,sys; r = json.load(open(sys.argv[1])); print(len(r["weights"]["weights"]), "weights,", r["weights"]["elements"], "elements,", r["bytes"], "bytes stored;")' "$tmp/report") $(cat "$tmp/time")"
done
