#!/usr/bin/env bash
# Times `anemone inspect` on a package: it maps the weights and does not read
# them, so a package of 600 MB takes no longer than its programs do. Fails if the
# median of the runs is above a limit, which on a busy machine says less than the
# time of the CPU does.
#
#   bench/inspect.sh PACKAGE [FLAGS OF INSPECT...]
#   RUNS=9 LIMIT_MS=300 bench/inspect.sh Qwen3-0.6B-ane --lint
set -euo pipefail
package=${1:?usage: bench/inspect.sh PACKAGE [FLAGS OF INSPECT...]}
shift
runs=${RUNS:-9} limit=${LIMIT_MS:-300}
tmp=$(mktemp -d)
trap 'rm -r "$tmp"' EXIT
go build -C "$(dirname "$0")/.." -o "$tmp/anemone" ./cmd/anemone

TIMEFORMAT='%R %U %S'
for ((i = 0; i < runs; i++)); do
	{ time "$tmp/anemone" inspect "$package" "$@" >"$tmp/out" 2>&1 || [[ $* == *--lint* ]]; } 2>&1 || {
		cat "$tmp/out" >&2
		exit 1
	}
done | sort -n >"$tmp/times"
median=$(awk -v n=$((runs / 2 + 1)) 'NR == n {print int($1 * 1000)}' "$tmp/times")
echo "$package: $(du -smL "$package" | cut -f1) MB, inspect $*: median $median ms of $runs runs," \
	"$(awk '{s += $2 + $3} END {printf "%.0f", 1000 * s / NR}' "$tmp/times") ms of CPU each"
if [[ -x /usr/bin/time ]]; then
	/usr/bin/time -f "peak memory %M kB, of which mapped files count what was touched" "$tmp/anemone" inspect "$package" "$@" >/dev/null || true
fi
((median <= limit)) || { echo "slower than $limit ms"; exit 1; }
