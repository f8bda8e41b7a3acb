#!/usr/bin/env bash
# What needs a GPU, in calls of a few minutes each. Results go to the folder OUT, as JSON.
#   benchmarks/on_gpu.sh checks OUT SHARED COMMIT       the loop: host waits, masking, resume, precision
#   benchmarks/on_gpu.sh parts OUT SHARED COMMIT        attention, head and LoRA alone: correctness, then times
#   benchmarks/on_gpu.sh peers OUT SHARED COMMIT ROWS   whole training steps beside TRL, by default and tuned
# SHARED holds `data` and `tokenizers`; FLASH_ATTN may name a folder with a `flash_attn` package for TRL.
# ROWS: names of `python -m benchmarks.peers --list` with commas, all by default; called again it goes on where it was.
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
  peers)
    python3 -m benchmarks.peers --rows "${5:-all}" --shared "$shared" ${FLASH_ATTN:+--flash-attn "$FLASH_ATTN"} \
      --out "$out" --commit "$commit" || failed=1
    ;;
  *)
    echo "unknown: $what" >&2
    exit 2
    ;;
esac
exit $failed
