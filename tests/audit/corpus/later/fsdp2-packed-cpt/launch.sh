#!/usr/bin/env bash
# Restarting continues from the newest complete checkpoint in --out.
set -euo pipefail
export OMP_NUM_THREADS=8
torchrun --standalone --nproc_per_node 8 --max_restarts 0 train.py \
  --data "${DATA:?folder with tokens.u32 and starts.u8}" \
  --out "${OUT:-runs/cpt-8b-16k}" \
  "$@"
