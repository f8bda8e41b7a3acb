#!/usr/bin/env bash
set -euo pipefail

GPUS=4
GLOBAL_BATCH=256
MICRO=16
ACCUM=$(( GLOBAL_BATCH / (MICRO * ${WORLD_SIZE:-1}) ))

torchrun --standalone --nproc_per_node="$GPUS" train_ddp.py \
  --data data/tokens.jsonl \
  --batch_size "$MICRO" \
  --accum "$ACCUM" \
  --epochs 3
