#!/usr/bin/env bash
# usage: ./run.sh [number of GPUs]; the global batch stays at 128
set -euo pipefail
NGPU=${1:-2}
GLOBAL=128
PER_DEVICE=16
ACCUM=$(( GLOBAL / (NGPU * PER_DEVICE) ))
if (( ACCUM * NGPU * PER_DEVICE != GLOBAL )); then
    echo "128 is not divisible by $NGPU x $PER_DEVICE" >&2
    exit 1
fi
torchrun --standalone --nproc_per_node="$NGPU" train.py configs/base.yaml \
    --per_device_train_batch_size "$PER_DEVICE" \
    --gradient_accumulation_steps "$ACCUM"
