#!/bin/bash
# Makes packages of every kind with ANEMLL's own converter; see ../README.md.
# usage: build.sh ANEMLL PYTHON OUT
# ANEMLL is a checkout of ANEMLL 0.3.5, PYTHON has what it needs. convert_model.sh wants macOS, so its steps are made
# one by one, with its flags. Where it would compile a model, there is an empty .mlmodelc, as generate_meta_yaml.py
# looks for them.
set -u
export OMP_NUM_THREADS=1 PYTHONPATH=.
mkdir -p "$3"
out=$(cd "$3" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
py=$(command -v "$2")
cd "$1" || exit 2
"$py" "$here/make_checkpoints.py" "$out/checkpoints" || exit 2

size="--context-length 256 --batch-size 64"
log=$out/log.txt
fail() { echo "FAILED: $*" >&2; exit 1; }
part() { # converter, flags
  local c=$1; shift
  "$py" -m "anemll.ane_converter.${c}_converter" $size --output "$d" "$@" >>"$log" 2>&1 || fail "$c $*"
}
combine() { "$py" anemll/utils/combine_models.py --input "$d" --output "$d" "$@" >>"$log" 2>&1 || fail "combine $*"; }
meta() { # golden, chunks, prefix, architecture, flags
  local golden=$1 chunks=$2 prefix=$3 arch=$4; shift 4
  for m in "$d"/*.mlpackage; do mkdir -p "${m%.mlpackage}.mlmodelc"; done
  "$py" anemll/utils/generate_meta_yaml.py "$prefix" 256 64 none none none "$chunks" "$prefix" "$arch" "$d" "$@" >>"$log" 2>&1 || fail "meta $*"
  # Only the parts that belong to the package.
  rm -rf "$d"/*_FFN_chunk_* "$d"/*_FFN_rotate_* "$d"/*_prefill_* "$d"/*_monolithic.ml* "$d"/*_monolithic_rotate.*
  cp "$out/checkpoints/$golden.safetensors" "$d.golden.safetensors"
  echo "made $d"
}
new() { d=$out/$1; mkdir -p "$d"; }

gemma="--prefix gemma3 --model $out/checkpoints/gemma3"
new gemma3-c2-argmax # four functions, two chunks
part gemma3 --part 1 $gemma; part gemma3 --part 3 --argmax $gemma
for p in 2 2_rotate 2_prefill 2_prefill_rotate; do part gemma3 --part $p --chunk 2 $gemma; done
combine --chunk 2 --gemma3 --prefix gemma3
meta gemma3.golden 2 gemma3 gemma3_text --argmax --sliding-window 128 --dynamic-prefill-slice
new gemma3-split-updatemask
part gemma3 --part 1 $gemma; part gemma3 --part 3 $gemma
for p in 2 2_rotate 2_prefill 2_prefill_rotate; do part gemma3 --part $p --chunk 1 --static-prefill-slice $gemma; done
combine --chunk 1 --split-rotate --prefix gemma3
meta gemma3.golden 1 gemma3 gemma3_text --split-rotate --sliding-window 128 --update-mask-prefill --static-prefill-slice
new gemma3-mono-argmax
for p in monolithic monolithic_rotate monolithic_prefill monolithic_prefill_rotate; do part gemma3 --part $p --argmax $gemma; done
combine --monolithic --rotate --prefix gemma3
meta gemma3.golden 1 gemma3 gemma3_text --monolithic --argmax --rotate --sliding-window 128 --dynamic-prefill-slice
new gemma3-single-cache
part gemma3 --part 1 $gemma; part gemma3 --part 3 $gemma
for p in 2 2_prefill; do part gemma3 --part $p --chunk 1 --single-cache $gemma; done
combine --chunk 1 --prefix gemma3
meta gemma3.short 1 gemma3 gemma3_text --sliding-window 128 --dynamic-prefill-slice --single-cache

for a in llama:llama:llama:llama qwen2:qwen2_5:qwen25:qwen2 qwen3:qwen:qwen:qwen3; do
  IFS=: read -r checkpoint converter prefix arch <<<"$a"
  model="--prefix $prefix --model $out/checkpoints/$checkpoint"
  new "$checkpoint-c2"
  part "$converter" --part 1 $model; part "$converter" --part 3 $model
  for p in 2 2_prefill; do part "$converter" --part $p --chunk 2 $model; done
  combine --chunk 2 --prefix "$prefix"
  meta "$checkpoint.golden" 2 "$prefix" "$arch" --dynamic-prefill-slice
  new "$checkpoint-mono"
  for p in monolithic monolithic_prefill; do part "$converter" --part $p $model; done
  combine --monolithic --prefix "$prefix"
  meta "$checkpoint.golden" 1 "$prefix" "$arch" --monolithic --dynamic-prefill-slice
done
