#!/usr/bin/env bash
# What needs a GPU, in calls of a few minutes each. Results go to the folder OUT, as JSON.
#   benchmarks/on_gpu.sh checks OUT SHARED COMMIT       the loop: host waits, masking, resume, precision
#   benchmarks/on_gpu.sh parts OUT SHARED COMMIT        attention, head and LoRA alone: correctness, then times
#   benchmarks/on_gpu.sh beside-trl OUT SHARED COMMIT   whole training steps beside TRL's best settings
# SHARED holds `data` and `tokenizers`; FLASH_ATTN may name a folder with a `flash_attn` package for TRL.
set -uo pipefail
what=$1 out=$2 shared=$3 commit=$4
failed=0
case "$what" in
  checks)
    python3 benchmarks/gpu_checks.py --out "$out/gpu_checks.json" --commit "$commit" || failed=1
    ;;
  parts)
    for part in attention head lora elementwise measure memory; do
      python3 "benchmarks/gpu_$part.py" --out "$out" || failed=1
    done
    ;;
  beside-trl)
    python3 -m benchmarks.beside_trl --shared "$shared" --flash-attn "${FLASH_ATTN:-}" --out "$out/beside_trl.json" \
      --commit "$commit" || failed=1
    ;;
  *)
    echo "unknown: $what" >&2
    exit 2
    ;;
esac
exit $failed
