#!/usr/bin/env bash
# 256 sequences per update, whatever the number of cards
set -euo pipefail

CARDS=$(nvidia-smi --list-gpus | wc -l)
MICRO=8
ACCUM=$(( 256 / (MICRO * ${WORLD_SIZE:-1}) ))

torchrun --standalone --nproc_per_node="$CARDS" train.py \
    train.micro_batch=$MICRO \
    train.accumulation=$ACCUM \
    train.max_grad_norm=0.5 \
    output_dir=runs/newsdesk
