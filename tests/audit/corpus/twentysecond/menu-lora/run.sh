#!/usr/bin/env bash
set -euo pipefail

GPUS=4
GLOBAL=128
BATCH=4
ACCUM=$((GLOBAL / BATCH / GPUS))

torchrun --standalone --nproc_per_node "$GPUS" train.py \
    --batch_size "$BATCH" \
    --grad_accum "$ACCUM" \
    "$@"
