#!/usr/bin/env bash
# Converts the small checkpoints and holds the package to an independent
# executor of Core ML programs (numpy) and to coremltools' own readers:
#
#   ANEMONE_PYTHON=python bench/oracle.sh [FOLDER]
#
# The Python needs coremltools, numpy, safetensors and pyyaml. The executor
# lies in ../shared/oracle.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-$(mktemp -d)}
py=${ANEMONE_PYTHON:-python3}
oracle=../shared/oracle/run_package.py
golden=../shared/fixtures/goldens/tiny-qwen3.safetensors
checkpoint=../shared/fixtures/checkpoints/tiny-qwen3
mkdir -p "$out"
go build -o "$out/anemone" ./cmd/anemone

# 1. An fp16 package gives transformers' float32 logits, in the contract's
#    sequence and token by token, and survives fp16 rounding of every result.
"$out/anemone" convert "$checkpoint" -o "$out/fp16" --context 256 --batch 64 --chunks 2 \
	--lut-ffn none --lut-lm-head none --overwrite >/dev/null
expect() { # expect MIN_COSINE ARGS...: top-1 agreement must be whole as well
	local line
	line=$("$py" "$oracle" "$out/fp16" "$golden" --min-cosine "$@")
	echo "oracle ${*:2}: $line"
	[[ $line == *"top1 1.0000"* ]] || { echo "top-1 agreement is not 1"; exit 1; }
}
expect 0.99999
expect 0.99999 --infer-only
expect 0.999 --half

# 2. The engine gives the oracle's logits: every one within 2e-3, with fp16
#    and with palettized weights; and `check` prints the oracle's figures.
for lut in none 4,8 6,8 3,8 8,0 2,16 1,8; do
	p="$out/lut-${lut/,/-}"
	"$out/anemone" convert "$checkpoint" -o "$p" --context 256 --batch 64 --chunks 2 \
		--lut-ffn "$lut" --lut-lm-head "$lut" --lut-embeddings "${lut/1,8/none}" --split-lm-head 7 --overwrite >/dev/null
	line=$("$py" "$oracle" "$p" "$golden" --infer-only --min-cosine -1 --save "$p.safetensors")
	"$py" bench/compare.py "$out/anemone" "$p" "$p.safetensors" "$golden" "$line"
done

# 3. Gemma 4 too, with whole (64) and shifting (256) caches of its sliding
#    layers, in one chunk and in three.
golden=../shared/fixtures/goldens/tiny-gemma4.safetensors
for context in 64 256; do
	for chunks in 1 3; do
		p="$out/gemma4-$context-$chunks"
		"$out/anemone" convert ../shared/fixtures/checkpoints/tiny-gemma4 -o "$p" --context $context --batch 16 --chunks $chunks \
			--lut-ffn none --lut-lm-head none --overwrite >/dev/null
		for mode in "" --infer-only --half "--half --infer-only"; do
			line=$("$py" "$oracle" "$p" "$golden" --min-cosine 0.9999 $mode)
			echo "oracle gemma4, context $context, $chunks chunks $mode: $line"
			[[ $line == *"top1 1.0000"* ]] || { echo "top-1 agreement is not 1"; exit 1; }
		done
		line=$("$py" "$oracle" "$p" "$golden" --infer-only --save "$p.safetensors")
		"$py" bench/compare.py "$out/anemone" "$p" "$p.safetensors" "$golden" "$line"
	done
done

# 4. Qwen3.5, dense and with experts, apart and fused: the same figures, and
#    the engine's logits beside the oracle's under every kind of encoding, for
#    batches and chunks of several sizes. Mixtures may choose another token
#    where two are nearly equal, when every result is rounded.
agrees() { # agrees LEAST_TOP1 LINE
	"$py" -c 'import sys; sys.exit(float(sys.argv[2].split("top1 ")[1].split()[0]) < float(sys.argv[1]))' "$1" "$2" || { echo "top-1 agreement is below $1"; exit 1; }
}
for name in tiny-qwen35 tiny-qwen35-moe tiny-qwen35-moe-fused; do
	golden=../shared/fixtures/goldens/${name%-fused}.safetensors
	checkpoint=../shared/fixtures/checkpoints/$name
	least=1
	[ $name = tiny-qwen35 ] || least=0.99
	for batch in 64 32; do
		for chunks in 1 3; do
			p="$out/$name-$batch-$chunks"
			"$out/anemone" convert "$checkpoint" -o "$p" --name qwen35 --context 256 --batch $batch --chunks $chunks \
				--lut-ffn none --lut-lm-head none --overwrite >/dev/null
			for mode in "" --infer-only --half "--half --infer-only"; do
				line=$("$py" "$oracle" "$p" "$golden" --min-cosine "$([[ $mode == *half* ]] && echo 0.999 || echo 0.9999)" $mode)
				echo "oracle $name, batch $batch, $chunks chunks $mode: $line"
				agrees $least "$line"
			done
		done
	done
	for lut in none 6,8 4,8; do
		for delta in 16 64; do
			p="$out/$name-lut-${lut/,/-}-$delta"
			"$out/anemone" convert "$checkpoint" -o "$p" --context 256 --batch 64 --chunks 2 --gdn-chunk $delta \
				--lut-ffn "$lut" --lut-lm-head "$lut" --overwrite >/dev/null
			line=$("$py" "$oracle" "$p" "$golden" --infer-only --min-cosine -1 --save "$p.safetensors")
			"$py" bench/compare.py "$out/anemone" "$p" "$p.safetensors" "$golden" "$line"
			"$py" "$oracle" "$p" "$p.safetensors" --min-cosine 0.999999 # prefill against infer
		done
	done
done
# Functions for what does not fill a batch: plain and shifting caches, and
# recurrent states with experts and without.
for args in "tiny-qwen3 64 16,4" "tiny-gemma4 16 8,2"; do
	read -r name batch sizes <<<"$args"
	p="$out/$name-remainder"
	"$out/anemone" convert ../shared/fixtures/checkpoints/$name -o "$p" --context 256 --batch "$batch" --chunks 2 \
		--lut-ffn none --lut-lm-head none --prefill-remainder "$sizes" --overwrite >/dev/null
	for mode in "" --half; do
		PYTHONPATH=../shared/oracle "$py" bench/remainder.py "$p" ../shared/fixtures/goldens/$name.safetensors $mode
	done
done
for name in tiny-qwen35 tiny-qwen35-moe; do
	for delta in 16 64; do
		p="$out/$name-remainder-$delta"
		"$out/anemone" convert ../shared/fixtures/checkpoints/$name -o "$p" --context 256 --batch 64 --chunks 2 --gdn-chunk $delta \
			--lut-ffn none --lut-lm-head none --prefill-remainder 16,4 --overwrite >/dev/null
		for mode in "" --half; do
			PYTHONPATH=../shared/oracle "$py" bench/remainder.py "$p" ../shared/fixtures/goldens/$name.safetensors $mode
		done
	done
done
diff -r "$out/tiny-qwen35-moe-64-3" "$out/tiny-qwen35-moe-fused-64-3" && echo "experts apart and fused: the same package"

# 5. coremltools reads every bundle and finds every weight.
"$py" bench/load.py "$out"/fp16/*.mlpackage "$out"/lut-*/*.mlpackage "$out"/gemma4-*/*.mlpackage "$out"/tiny-*/*.mlpackage
