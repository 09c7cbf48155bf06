#!/usr/bin/env bash
# Holds packages of the small checkpoints in the architectures' testdata
# folders (internal/arch/*/testdata/NAME with a config.json and a
# golden.safetensors) to an independent executor of Core ML programs (numpy):
#
#   ANEMONE_PYTHON=python bench/oracle-families.sh [CHECKPOINT...]
#
# Without arguments those of gemma3, llama, qwen2 and qwen3. The Python needs
# coremltools, numpy, safetensors and pyyaml; the executor lies in
# ../shared/oracle.
set -euo pipefail
cd "$(dirname "$0")/.."
py=${ANEMONE_PYTHON:-python3}
oracle=../shared/oracle/run_package.py
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
go build -o "$out/anemone" ./cmd/anemone

# expect PACKAGE GOLDEN FIGURE LEAST LEAST_TOP1 ARGS...: the figure, min or
# mean, of the cosine between the golden's logits and the executor's.
expect() {
	local line
	line=$("$py" "$oracle" "$1" "$2" --min-cosine -1 "${@:6}")
	"$py" - "$line" "$3" "$4" "$5" <<-'END' || { echo "$1 ${*:6}: $line: want a cosine ($3) of $4 and top-1 agreement of $5"; exit 1; }
		import re, sys
		line, figure, least, top1 = sys.argv[1:]
		low, mean, agree = map(float, re.search(r"cosine min (\S+) mean (\S+) .*top1 (\S+)", line).groups())
		sys.exit((low if figure == "min" else mean) < float(least) or agree < float(top1))
	END
	echo "oracle ${1##*/} ${*:6}: $line"
}

# family CHECKPOINT GOLDEN: fp16 packages give the golden's logits, in the
# contract's sequence, token by token, and with every result rounded to fp16;
# the engine gives the executor's logits to 2e-3, whole and palettized; and
# coremltools reads all of them.
family() {
	local name=${1#internal/arch/} p line
	name=${name//\//-} name=${name/-testdata/}
	for chunks in 1 2; do
		p=$out/$name-c$chunks
		"$out/anemone" convert "$1" -o "$p" --name "$name" --context 64 --batch 8 --chunks $chunks --split-lm-head 3 \
			--lut-ffn none --lut-lm-head none --overwrite >/dev/null 2>&1
		expect "$p" "$2" min 0.9999 1
		expect "$p" "$2" min 0.9999 1 --infer-only
		expect "$p" "$2" mean 0.999 0.9 --infer-only --half
	done
	for lut in none 4,8 6,8; do
		p=$out/$name-lut-${lut/,/-}
		"$out/anemone" convert "$1" -o "$p" --name "$name" --context 64 --batch 8 --chunks 2 --split-lm-head 3 \
			--lut-ffn "$lut" --lut-lm-head "$lut" --overwrite >/dev/null 2>&1
		line=$("$py" "$oracle" "$p" "$2" --infer-only --min-cosine -1 --save "$p.safetensors")
		"$py" bench/compare.py "$out/anemone" "$p" "$p.safetensors" "$2" "$line"
	done
	"$py" bench/load.py "$out/$name"-*/*.mlpackage >/dev/null && echo "coremltools reads $name"
}

if [ $# = 0 ]; then
	set -- internal/arch/{gemma3,llama,qwen2,qwen3}/testdata/*/
fi
for checkpoint; do
	checkpoint=${checkpoint%/}
	family "$checkpoint" "$checkpoint/golden.safetensors"
done
